/* volume.c -- volumes as Lua objects: voxels with their position in the
 * patient. They own their voxels, which are large and invisible to the
 * collector; so the bytes are charged to it, and predict.lua closes volumes
 * explicitly. */
#include "data/dataset/relabel.h"
#include "data/dicom/text.h"
#include "data/format/nifti.h"
#include "lua/bind/data.h"
#include <math.h>
#include <string.h>

typedef struct VolumeBox {
    Volume v; /* no voxels: not filled yet, or closed */
} VolumeBox;

Volume *check_volume(lua_State *L, int arg)
{
    Volume *v = &((VolumeBox *)luaL_checkudata(L, arg, "seg.volume"))->v;
    if (!v->voxels.data) raise_usage(L, "this volume is closed");
    return v;
}

/* Also v:close(). */
static int volume_gc(lua_State *L)
{
    volume_free(&((VolumeBox *)luaL_checkudata(L, 1, "seg.volume"))->v);
    return 0;
}

Volume *push_volume(lua_State *L)
{
    return &((VolumeBox *)new_object(L, "seg.volume", sizeof(VolumeBox)))->v;
}

void charge_volume(lua_State *L, const Volume *v)
{
    charge_memory(L, tensor_bytes(&v->voxels));
}

/* v:labels(threshold = 0.5) -> volume of class numbers (u8): of one channel 1
 * where it is above the threshold; of several the channel with the largest
 * value, the first of equals, counted from 0 */
static int l_labels(lua_State *L)
{
    Volume *v = check_volume(L, 1);
    double threshold = luaL_optnumber(L, 2, 0.5);
    VolumeBox *box = new_object(L, "seg.volume", sizeof *box);
    Dims d = v->voxels.dim;
    int channels = d.c;

    if (v->voxels.type != F32 || channels > 256)
        raise_usage(L, "labels are made from probabilities of at most 256 "
                       "classes");
    d.c = 1;
    if (!volume_new(&box->v, d, U8)) return raise_error(L);
    memcpy(box->v.affine, v->affine, sizeof v->affine);
    box->v.unit = UNIT_LABEL;
    charge_volume(L, &box->v);
    const float *p = v->voxels.data;
    uint8_t *y = box->v.voxels.data;

    for (int64_t i = 0, n = numel(d); i < n; i++, p += channels) {
        int best = 0;
        for (int c = 1; c < channels; c++)
            if (p[c] > p[best]) best = c;
        y[i] = channels > 1 ? (uint8_t)best : (double)*p > threshold;
    }
    return 1;
}

void push_volume_text(lua_State *L, const Volume *v)
{
    char text[VOLUME_TEXT];
    lua_pushstring(L, volume_text(v, text));
    if (v->voxels.dim.c == 1) return;
    lua_pushfstring(L, ", %d channels", (int)v->voxels.dim.c);
    lua_concat(L, 2);
}

/* v:stats() -> {min=, max=, mean=, sd=, nonzero=, type=, voxels=} over all
 * voxels and channels; sd is divided by n, nonzero is a fraction */
static int l_stats(lua_State *L)
{
    Volume *v = check_volume(L, 1);
    int64_t n = numel(v->voxels.dim), nonzero = 0;
    double lo = 0, hi = 0, sum = 0, squares = 0;

    for (int64_t i = 0; i < n; i++) {
        double x = v->voxels.type == U8    ? ((uint8_t *)v->voxels.data)[i]
                   : v->voxels.type == I16 ? ((int16_t *)v->voxels.data)[i]
                                           : tensor_get(&v->voxels, i);
        if (i == 0 || x < lo) lo = x;
        if (i == 0 || x > hi) hi = x;
        sum += x, squares += x * x, nonzero += x != 0;
    }

    double mean = sum / (double)n, var = squares / (double)n - mean * mean;
    const struct {
        const char *key;
        double value;
    } fact[] = {{"min", lo},
                {"max", hi},
                {"mean", mean},
                {"sd", sqrt(var > 0 ? var : 0)},
                {"nonzero", (double)nonzero / (double)n}};
    lua_createtable(L, 0, 7);
    for (size_t i = 0; i < sizeof fact / sizeof *fact; i++) {
        lua_pushnumber(L, fact[i].value);
        lua_setfield(L, -2, fact[i].key);
    }
    set_integer(L, "voxels", n);
    set_text(L, "type", dtype_name(v->voxels.type));
    return 1;
}

int push_values(lua_State *L, const UndeclaredValues *found)
{
    if (found->more) return 0;
    lua_createtable(L, found->count, 0);
    for (int i = 0; i < found->count; i++) {
        lua_pushnumber(L, found->value[i]);
        lua_rawseti(L, -2, i + 1);
    }
    return 1;
}

/* v:values() -> its different values, ascending, when there are few enough to
 * be labels (UNDECLARED_MAX), else nil */
static int l_values(lua_State *L)
{
    const Volume *v = check_volume(L, 1);
    const int64_t n = numel(v->voxels.dim);
    UndeclaredValues found = {.count = 0};
    for (int64_t i = 0; i < n && !found.more; i++)
        undeclared_add(&found, v->voxels.type == U8
                                   ? ((const uint8_t *)v->voxels.data)[i]
                               : v->voxels.type == I16
                                   ? ((const int16_t *)v->voxels.data)[i]
                                   : tensor_get(&v->voxels, i));
    return push_values(L, &found);
}

/* v:slice(k, class) -> array (h, w) of slice k from 1, first channel; with a
 * class 1 where the voxel has that class, else 0 */
static int l_slice(lua_State *L)
{
    Volume *v = check_volume(L, 1);
    Dims d = v->voxels.dim;
    int64_t k = check_int(L, 2, "slice", 1, d.d) - 1;
    const bool one = !lua_isnoneornil(L, 3);
    const double class = one ? check_number(L, 3, "class") : 0;
    int64_t shape[2] = {d.h, d.w}, size = (int64_t)d.h * d.w;
    Array *a = push_array(L, 2, shape);
    for (int64_t i = 0; i < size; i++) {
        const double x = volume_value(v, (k * size + i) * d.c);
        a->data[i] = one ? x == class : (float)x;
    }
    return 1;
}

/* v:count(classes = 0) -> number of voxels that are not 0, their millilitres,
 * and {voxels of class 1, ..., classes}; labels only */
static int l_count(lua_State *L)
{
    const Volume *v = check_volume(L, 1);
    const int classes =
        lua_isnoneornil(L, 2) ? 0 : (int)check_int(L, 2, "classes", 0, 255);
    double mm[3];
    int64_t of[256] = {0};

    if (v->voxels.type != U8) raise_usage(L, "count is for labels");
    const int64_t all = numel(v->voxels.dim);
    const uint8_t *p = v->voxels.data;
    for (int64_t i = 0; i < all; i++) of[p[i]]++;
    volume_spacing_mm(v, mm);
    lua_pushinteger(L, all - of[0]);
    lua_pushnumber(L, (double)(all - of[0]) * mm[0] * mm[1] * mm[2] / 1000);
    lua_createtable(L, classes, 0);
    for (int i = 1; i <= classes; i++) {
        lua_pushinteger(L, of[i]);
        lua_rawseti(L, -2, i);
    }
    return 3;
}

/* Extents, spacing, axes and origin in one line, as inspect prints them. */
static int volume_tostring(lua_State *L)
{
    push_volume_text(L, check_volume(L, 1));
    return 1;
}

/* v:relabel{values} -> volume in which class i becomes values[i], the value in
 * the files of the ground truth; raises for a value that no voxel can hold
 * (kind data) */
static int l_relabel(lua_State *L)
{
    Volume *v = check_volume(L, 1);
    int32_t label[MAX_LABELS];
    int n = 0;

    luaL_checktype(L, 2, LUA_TTABLE);
    while (n < MAX_LABELS && lua_rawgeti(L, 2, n + 1) != LUA_TNIL) {
        label[n++] =
            (int32_t)check_int(L, lua_gettop(L), "label", INT32_MIN, INT32_MAX);
        lua_pop(L, 1);
    }

    if (v->voxels.type != U8) raise_usage(L, "relabel is for labels");
    VolumeBox *box = new_object(L, "seg.volume", sizeof *box);
    if (!volume_relabel(v, label, n, &box->v)) return raise_error(L);
    charge_volume(L, &box->v);
    return 1;
}

/* v:write_nifti(path, dataset, case): the volume with its own geometry, in the
 * form (sform, qform, units) of the case's file if that was NIfTI; written
 * completely or not at all */
static int l_write_nifti(lua_State *L)
{
    Volume *v = check_volume(L, 1);
    const char *path = luaL_checkstring(L, 2);
    const Dataset *ds = check_dataset(L, 3);
    int item = (int)check_int(L, 4, "case", 1, ds->count) - 1;
    NiftiHeader h;
    bool like = case_nifti_header(ds, item, &h);
    if (!nifti_write(path, v, like ? &h : NULL)) return raise_error(L);
    return 0;
}

/* v:write_seg(path, dataset, case, {segment names}, {fractions=false}) -> true,
 * or false when the case does not come from DICOM. Label k is segment k;
 * patient and study are copied from the case's series. fractions: the volume
 * holds probabilities, a channel for each name; with one channel more than
 * names the first is the background and is left out. */
static int l_write_seg(lua_State *L)
{
    enum { MAX_SEGMENTS = 255 };
    static const char *const known[] = {"fractions", NULL};
    Volume *v = check_volume(L, 1);
    const char *path = luaL_checkstring(L, 2), *name[MAX_SEGMENTS];
    const Dataset *ds = check_dataset(L, 3);
    int item = (int)check_int(L, 4, "case", 1, ds->count) - 1, n = 0;
    luaL_checktype(L, 5, LUA_TTABLE);

    while (n < MAX_SEGMENTS && lua_rawgeti(L, 5, n + 1) == LUA_TSTRING) {
        size_t bytes;
        name[n++] = lua_tolstring(L, -1, &bytes);
        // a Lua string may continue after a zero byte
        if (!segment_name_check(name[n - 1], bytes, n)) return raise_error(L);
        lua_pop(L, 1);
    }

    check_keys(L, 6, "write_seg", known);
    const bool fractions = opt_bool(L, 6, "fractions", false);
    const int c = v->voxels.dim.c, first = fractions ? c - n : 0;
    if (v->voxels.type != (fractions ? F32 : U8))
        raise_usage(L, fractions ? "fractions need probabilities, not labels"
                                 : "segments need labels; give fractions = "
                                   "true for probabilities");
    if (n < 1 || (fractions && first != 0 && first != 1))
        raise_usage(L, "%d names of segments for %d channel%s", n, c,
                    c > 1 ? "s" : "");
    const DicomSeries *series = case_series(ds, item);
    lua_pushboolean(L, series != NULL);
    if (!series) return 1;
    if (!(fractions ? dicom_write_fractions(path, v, first, name, n, series)
                    : dicom_write_seg(path, v, name, n, series)))
        return raise_error(L);
    return 1;
}

/* v:equal(value) -> volume (f32): 1 where the first channel equals it, else 0
 */
static int l_equal(lua_State *L)
{
    Volume *v = check_volume(L, 1);
    const double value = check_number(L, 2, "value");
    Dims d = v->voxels.dim;
    const int c = d.c;

    d.c = 1;
    VolumeBox *box = new_object(L, "seg.volume", sizeof *box);
    if (!volume_new(&box->v, d, F32)) return raise_error(L);
    memcpy(box->v.affine, v->affine, sizeof v->affine);
    charge_volume(L, &box->v);
    float *y = box->v.voxels.data;
    for (int64_t i = 0, n = numel(d); i < n; i++)
        y[i] = volume_value(v, i * c) == value;
    return 1;
}

/* v:same_grid(other) -> true, or false and the difference */
static int l_same_grid(lua_State *L)
{
    const Volume *a = check_volume(L, 1), *b = check_volume(L, 2);
    const bool same = volume_same_grid(a, b);
    lua_pushboolean(L, same);
    lua_pushstring(L, same ? "" : err_text());
    return 2;
}

/* v:extents() -> slices, rows, columns, channels */
static int l_extents(lua_State *L)
{
    const Dims d = check_volume(L, 1)->voxels.dim;
    lua_pushinteger(L, d.d);
    lua_pushinteger(L, d.h);
    lua_pushinteger(L, d.w);
    lua_pushinteger(L, d.c);
    return 4;
}

/* v:array(rank) -> array (C,D,H,W), (C,H,W) or (C,W) of rank 3, 2 or 1, the
 * same numbers in user order */
static int l_array(lua_State *L)
{
    const Volume *v = check_volume(L, 1);
    const int rank = (int)check_int(L, 2, "rank", 1, 3);
    int64_t shape[2 + RANK_MAX];
    Tensor t = v->voxels;
    if (t.type != F32) raise_usage(L, "an array is made of f32 voxels");
    if ((rank < 3 && t.dim.d != 1) || (rank < 2 && t.dim.h != 1))
        raise_usage(L,
                    "a volume of %d slices and %d rows has more axes than %d",
                    (int)t.dim.d, (int)t.dim.h, rank);
    t.rank = rank;
    const int axes = dims_to_user(t.dim, rank, shape);
    tensor_to_user(&t, push_array(L, axes - 1, shape + 1)->data);
    return 1;
}

/* v:view("axial") -> volume: v's own voxels with its axes permuted and flipped
 * so that d counts the slices of that plane of the patient, and a slice has
 * radiological orientation (volume_grid_plane) */
static int l_view(lua_State *L)
{
    static const char *const plane[] = {"axial", "coronal", "sagittal", NULL};
    const Volume *v = check_volume(L, 1);
    const Grid grid = volume_grid_plane(v, luaL_checkoption(L, 2, NULL, plane));
    VolumeBox *box = new_object(L, "seg.volume", sizeof *box);
    if (!volume_resample(v, &grid, NEAREST, 0, &box->v)) return raise_error(L);
    charge_volume(L, &box->v);
    return 1;
}

/* v:along(like) -> volume: v's own voxels with the axes in the order and
 * direction of `like`, as nearly as possible (volume_grid_along) */
static int l_along(lua_State *L)
{
    const Volume *v = check_volume(L, 1);
    const Grid grid = volume_grid_along(v, check_volume(L, 2));
    VolumeBox *box = new_object(L, "seg.volume", sizeof *box);
    if (!volume_resample(v, &grid, NEAREST, 0, &box->v)) return raise_error(L);
    charge_volume(L, &box->v);
    return 1;
}

/* v:temper(temperature) -> v itself, of one channel: divides the logit of every
 * probability p by the temperature T, p = 1 / (1 + ((1 - p) / p)^(1/T)) */
static int l_temper(lua_State *L)
{
    Volume *v = check_volume(L, 1);
    const double t = check_number(L, 2, "temperature");
    if (v->voxels.type != F32 || v->voxels.dim.c != 1 || !(t > 0))
        raise_usage(L, "a temperature above 0 is for probabilities of one "
                       "class");
    float *p = v->voxels.data;
    for (int64_t i = 0, n = numel(v->voxels.dim); i < n; i++)
        p[i] = (float)(1 / (1 + pow((1 - (double)p[i]) / (double)p[i], 1 / t)));
    lua_settop(L, 1);
    return 1;
}

/* v:channel(k, count = 1) -> volume of channels k .. k + count - 1, from 1; f32
 */
static int l_channel(lua_State *L)
{
    Volume *v = check_volume(L, 1);
    Dims d = v->voxels.dim;
    const int c = d.c, k = (int)check_int(L, 2, "channel", 1, c) - 1;
    const int n =
        lua_isnoneornil(L, 3) ? 1 : (int)check_int(L, 3, "count", 1, c - k);
    VolumeBox *box = new_object(L, "seg.volume", sizeof *box);

    d.c = n;
    if (v->voxels.type != F32) raise_usage(L, "channels need probabilities");
    if (!volume_new(&box->v, d, F32)) return raise_error(L);
    memcpy(box->v.affine, v->affine, sizeof v->affine);
    box->v.unit = v->unit;
    charge_volume(L, &box->v);
    const float *x = v->voxels.data;
    float *y = box->v.voxels.data;
    for (int64_t i = 0; i < positions(d); i++)
        memcpy(y + i * n, x + i * c + k, (size_t)n * sizeof *y);
    return 1;
}

void bind_volume(lua_State *L)
{
    static const luaL_Reg volume[] = {{"labels", l_labels},
                                      {"relabel", l_relabel},
                                      {"count", l_count},
                                      {"stats", l_stats},
                                      {"slice", l_slice},
                                      {"extents", l_extents},
                                      {"array", l_array},
                                      {"view", l_view},
                                      {"along", l_along},
                                      {"values", l_values},
                                      {"write_nifti", l_write_nifti},
                                      {"write_seg", l_write_seg},
                                      {"channel", l_channel},
                                      {"temper", l_temper},
                                      {"equal", l_equal},
                                      {"same_grid", l_same_grid},
                                      {"close", volume_gc},
                                      {"__tostring", volume_tostring},
                                      {NULL, NULL}};
    new_type(L, "seg.volume", volume, volume_gc);
}
