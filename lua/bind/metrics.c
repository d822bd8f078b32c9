/* metrics.c -- core.measure: metrics of the prediction of a case.
 *
 *     local m = { prediction = volume, truth = volume, mask = volume,
 *                 used = { true, false, ... }, threshold = 0.5 }
 *     core.measure.overlap(m)
 *
 * Each function takes such a table: volumes of one grid, f32; mask, used (of
 * each slice) and threshold may be left out. metrics.h documents the counts and
 * distances; Lua makes the metrics of them. */
#include "data/metrics/metrics.h"
#include "data/metrics/roc.h"
#include "data/preprocess/cropped.h"
#include "lua/bind/bind.h"
#include <math.h>

enum { MAX_CLASSES = 256, STEPS = 100 };

/* Field `key` of the table at 1 as a volume; NULL when it may be missing. */
static const Volume *read_volume(lua_State *L, const char *key, bool must)
{
    const Volume *v = NULL;
    if (lua_getfield(L, 1, key) != LUA_TNIL) {
        v = luaL_testudata(L, -1, "seg.volume");
        if (!v || !v->voxels.data)
            raise_usage(L, "%s must be a volume that is not closed", key);
    } else if (must) {
        raise_usage(L, "%s is missing", key);
    }
    lua_pop(L, 1); // the table keeps it
    return v;
}

/* The table at 1. Leaves the list of slices on the stack. */
static Measured read_measured(lua_State *L)
{
    static const char *const known[] = {"prediction", "truth",     "mask",
                                        "used",       "threshold", NULL};
    luaL_checktype(L, 1, LUA_TTABLE);
    check_keys(L, 1, "measure", known);
    Measured m = {.prediction = read_volume(L, "prediction", true),
                  .truth = read_volume(L, "truth", true),
                  .mask = read_volume(L, "mask", false),
                  .threshold = opt_number(L, 1, "threshold", 0.5)};
    if (m.prediction->voxels.dim.c > MAX_CLASSES)
        raise_usage(L, "at most %d channels can be measured", MAX_CLASSES);
    if (!measure_check(&m)) raise_error(L);

    if (lua_getfield(L, 1, "used") == LUA_TTABLE) {
        const int slices = m.prediction->voxels.dim.d;
        uint8_t *used = lua_newuserdatauv(L, (size_t)slices, 0);
        for (int i = 0; i < slices; i++) {
            lua_rawgeti(L, -2, i + 1);
            used[i] = (uint8_t)lua_toboolean(L, -1);
            lua_pop(L, 1);
        }
        m.used = used;
    }
    return m;
}

static int channels(const Measured *m)
{
    return m->prediction->voxels.dim.c;
}

static void push_counts(lua_State *L, int count, const int64_t *n)
{
    lua_createtable(L, count, 0);
    for (int i = 0; i < count; i++) {
        lua_pushinteger(L, n[i]);
        lua_rawseti(L, -2, i + 1);
    }
}

/* Argument `arg`, a channel of v from 1, as a number from 0. */
static int check_channel(lua_State *L, int arg, const Volume *v)
{
    return (int)check_int(L, arg, "class", 1, v->voxels.dim.c) - 1;
}

/* measure.overlap(m) -> {both, predicted, true of each class}, voxels */
static int l_overlap(lua_State *L)
{
    int64_t count[3 * MAX_CLASSES];
    const Measured m = read_measured(L);
    const int64_t all = measure_overlap(&m, count);
    push_counts(L, 3 * channels(&m), count);
    lua_pushinteger(L, all);
    return 2;
}

/* measure.confusion(m) -> { {voxels of class 1 predicted as 1, as 2, ...}, ...
 * }; the truth has one channel */
static int l_confusion(lua_State *L)
{
    const Measured m = read_measured(L);
    const int k = channels(&m) > 1 ? channels(&m) : 2;
    int64_t *count = lua_newuserdatauv(L, (size_t)(k * k) * sizeof *count, 0);

    if (m.truth->voxels.dim.c != 1)
        raise_usage(L,
                    "a confusion matrix needs class numbers as ground truth");
    measure_confusion(&m, count);
    lua_createtable(L, k, 0);
    for (int t = 0; t < k; t++) {
        push_counts(L, k, count + (int64_t)t * k);
        lua_rawseti(L, -2, t + 1);
    }
    return 1;
}

/* The diagonal of a grid in mm; an axis of one voxel has no length. */
static double diagonal(Dims n, const double mm[3])
{
    const int32_t extent[3] = {n.w, n.h, n.d};
    double square = 0;
    for (int a = 0; a < 3; a++)
        if (extent[a] > 1) square += pow(extent[a] * mm[a], 2);
    return sqrt(square);
}

/* measure.surface(m, class, tolerance_mm) -> {predicted=, truth=, diagonal=,
 * hd=, hd95=, hd95_union=, assd=, asd=, within=}: voxels of prediction and
 * truth, the diagonal of the grid, distances in mm; no distances when one of
 * the two is empty */
static int l_surface(lua_State *L)
{
    const Measured m = read_measured(L);
    const int k = check_channel(L, 2, m.prediction);
    const double tolerance = luaL_optnumber(L, 3, 0);
    const Dims n = m.prediction->voxels.dim;
    Surface s;
    double mm[3];

    if (!measure_surface(&m, k, tolerance, &s)) return raise_error(L);
    volume_spacing_mm(m.prediction, mm);
    lua_createtable(L, 0, 9);
    set_integer(L, "predicted", s.voxels[0]);
    set_integer(L, "truth", s.voxels[1]);
    set_number(L, "diagonal", diagonal(n, mm));
    const struct {
        const char *key;
        double value;
    } fact[] = {
        {"hd", s.hd},     {"hd95", s.hd95},  {"hd95_union", s.hd95_union},
        {"assd", s.assd}, {"asd", s.asd[0]}, {"within", s.within}};
    for (size_t i = 0; i < sizeof fact / sizeof *fact; i++)
        if (!isnan(fact[i].value)) set_number(L, fact[i].key, fact[i].value);
    return 1;
}

/* measure.roc(m, class) -> area under the curve; nil when all voxels or none
 * have the class */
static int l_roc(lua_State *L)
{
    const Measured m = read_measured(L);
    const int k = check_channel(L, 2, m.prediction);
    double area;
    if (!measure_roc(&m, k, &area)) return raise_error(L);
    if (isnan(area)) return 0;
    lua_pushnumber(L, area);
    return 1;
}

/* measure.error(m) -> {sum of |prediction - truth| of each channel}, {number of
 * voxels} */
static int l_error(lua_State *L)
{
    double sum[MAX_CLASSES];
    int64_t n[MAX_CLASSES];
    const Measured m = read_measured(L);
    measure_error(&m, sum, n);
    push_numbers(L, channels(&m), sum);
    push_counts(L, channels(&m), n);
    return 2;
}

/* measure.dvh(m, structure) -> {voxels=, d_01cc=, mean=, d_99=, d_95=, d_1=} of
 * the dose m.prediction in channel `structure` of m.truth; nil when the case
 * lacks the structure */
static int l_dvh(lua_State *L)
{
    const Measured m = read_measured(L);
    const int k = check_channel(L, 2, m.truth);
    Dvh dvh;

    if (channels(&m) != 1) raise_usage(L, "a dose has one channel");
    if (!measure_dvh(&m, k, &dvh)) return raise_error(L);
    if (!dvh.voxels) return 0;
    lua_createtable(L, 0, 6);
    set_integer(L, "voxels", dvh.voxels);
    set_number(L, "d_01cc", dvh.d_01cc);
    set_number(L, "mean", dvh.mean);
    set_number(L, "d_99", dvh.d_99);
    set_number(L, "d_95", dvh.d_95);
    set_number(L, "d_1", dvh.d_1);
    return 1;
}

/* measure.dvh_curve(m, structure, first, step, points) -> { percent of the
 * structure that gets at least first + k step, k = 0 .. points - 1 }; nil when
 * the case lacks the structure */
static int l_dvh_curve(lua_State *L)
{
    enum { MOST_POINTS = 100000 };
    const Measured m = read_measured(L);
    const int k = check_channel(L, 2, m.truth);
    const double first = check_number(L, 3, "first");
    const double step = check_number(L, 4, "step");
    const int points = (int)check_int(L, 5, "points", 1, MOST_POINTS);
    int64_t voxels;
    if (channels(&m) != 1) raise_usage(L, "a dose has one channel");
    if (!(step > 0)) raise_usage(L, "step must be above 0, got %g", step);
    double *percent = lua_newuserdatauv(L, (size_t)points * sizeof *percent, 0);
    if (!measure_dvh_curve(&m, k, first, step, points, percent, &voxels))
        return raise_error(L);
    if (!voxels) return 0;
    push_numbers(L, points, percent);
    return 1;
}

/* measure.thresholds(m) -> {in both at 0.01, 0.02, ... 0.99}, {predicted}, true
 */
static int l_thresholds(lua_State *L)
{
    int64_t both[STEPS], predicted[STEPS], truth;
    const Measured m = read_measured(L);
    if (channels(&m) != 1) raise_usage(L, "a threshold is for one channel");
    measure_thresholds(&m, STEPS, both, predicted, &truth);
    push_counts(L, STEPS - 1, both + 1);
    push_counts(L, STEPS - 1, predicted + 1);
    lua_pushinteger(L, truth);
    return 3;
}

/* measure.reliability(m) -> {true voxels of each bin}, {other voxels}, {logit
 * in the middle of each bin}: measure_reliability */
static int l_reliability(lua_State *L)
{
    int64_t yes[MEASURE_BINS], no[MEASURE_BINS];
    const Measured m = read_measured(L);
    if (channels(&m) != 1) raise_usage(L, "reliability is of one channel");
    measure_reliability(&m, yes, no);
    push_counts(L, MEASURE_BINS, yes);
    push_counts(L, MEASURE_BINS, no);
    lua_createtable(L, MEASURE_BINS, 0);
    for (int b = 0; b < MEASURE_BINS; b++) {
        lua_pushnumber(L, (b - MEASURE_BINS / 2 + 0.5) * MEASURE_BIN);
        lua_rawseti(L, -2, b + 1);
    }
    return 3;
}

/* measure.area({score, ...}, {true, false, ...}) -> area under the ROC curve;
 * nil when all are true or none is */
static int l_area(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TTABLE);
    luaL_checktype(L, 2, LUA_TTABLE);
    const size_t n = (size_t)lua_rawlen(L, 1);
    float *score = lua_newuserdatauv(L, n * sizeof *score + 1, 0);
    uint8_t *truth = lua_newuserdatauv(L, n + 1, 0);
    double area;

    for (size_t i = 0; i < n; i++) {
        lua_rawgeti(L, 1, (lua_Integer)i + 1);
        lua_rawgeti(L, 2, (lua_Integer)i + 1);
        score[i] = (float)luaL_checknumber(L, -2);
        truth[i] = (uint8_t)lua_toboolean(L, -1);
        lua_pop(L, 2);
    }

    if (!roc_area(score, truth, (int64_t)n, &area)) return raise_error(L);
    if (isnan(area)) return 0;
    lua_pushnumber(L, area);
    return 1;
}

/* measure.prepared(pipeline, case, field) -> volume (f32) of a field of the
 * prepared case; raises when the field has no grid */
static int l_prepared(lua_State *L)
{
    Pipeline *p = check_pipeline(L, 1);
    const Dataset *ds = pipeline_dataset(p);
    const int item = (int)check_int(L, 2, "case", 1, ds->count) - 1;
    const char *name = luaL_checkstring(L, 3);
    const int field = dataset_field(ds, name);
    const Prepared *one;

    if (field < 0) raise_usage(L, "the data set has no field \"%s\"", name);
    Volume *v = push_volume(L);
    if (!pipeline_get(p, item, &one)) return raise_error(L);
    const bool ok = prepared_volume(one, field, v);
    pipeline_put(p, one);
    if (!ok) {
        within("field \"%s\"", name);
        return raise_error(L);
    }
    charge_volume(L, v);
    return 1;
}

/* measure.cropped(pipeline, case, field) -> nil when the prepared grid contains
 * the whole input or the field has no class numbers; false when the part that
 * was cropped off is unknown; else the cropped voxels of each class from 1, in
 * voxels of the prepared grid */
static int l_cropped(lua_State *L)
{
    Pipeline *p = check_pipeline(L, 1);
    const Dataset *ds = pipeline_dataset(p);
    const int item = (int)check_int(L, 2, "case", 1, ds->count) - 1;
    const int field = dataset_field(ds, luaL_checkstring(L, 3));
    double voxels[MAX_LABELS + 1];
    CroppedKind kind;

    if (field < 0 || ds->field[field].kind != FIELD_LABEL) return 0;
    if (!cropped_count(p, item, field, &kind, voxels)) return raise_error(L);
    if (kind == CROPPED_NOTHING) return 0;
    if (kind == CROPPED_UNKNOWN)
        lua_pushboolean(L, false);
    else
        push_numbers(L, MAX_LABELS, voxels + 1);
    return 1;
}

/* measure.spacing(volume) -> edges of a voxel along w, h, d in mm, volume of a
 * voxel in ml */
static int l_spacing(lua_State *L)
{
    double mm[3];
    const Volume *v = luaL_checkudata(L, 1, "seg.volume");
    volume_spacing_mm(v, mm);
    push_numbers(L, 3, mm);
    lua_pushnumber(L, mm[0] * mm[1] * mm[2] / 1000);
    return 2;
}

void bind_measure(lua_State *L)
{
    static const luaL_Reg functions[] = {
        {"overlap", l_overlap},     {"confusion", l_confusion},
        {"surface", l_surface},     {"roc", l_roc},
        {"error", l_error},         {"dvh", l_dvh},
        {"dvh_curve", l_dvh_curve}, {"thresholds", l_thresholds},
        {"area", l_area},           {"reliability", l_reliability},
        {"prepared", l_prepared},   {"spacing", l_spacing},
        {"cropped", l_cropped},     {NULL, NULL}};
    luaL_newlib(L, functions);
    lua_setfield(L, -2, "measure");
}
