/* prediction.c -- predictions as Lua objects: the outputs of a network for the
 * samples of a case, stitched together on the grid of its input (stitch.h). */
#include "data/metrics/stitch.h"
#include "lua/bind/data.h"
#include <string.h>

typedef struct Prediction {
    Pipeline
        *p; /* held: it may be closed in Lua before this is; NULL: closed */
    Stitch *m;
    int item, rank;
    int32_t channels, last; /* the number that was put last, or -1 */
    float *sample;          /* one in memory order */
} Prediction;

static Prediction *check_prediction(lua_State *L, int arg)
{
    Prediction *q = luaL_checkudata(L, arg, "seg.prediction");
    if (!q->p) raise_usage(L, "this prediction is closed");
    return q;
}

/* Also q:close(). */
static int prediction_gc(lua_State *L)
{
    Prediction *q = luaL_checkudata(L, 1, "seg.prediction");
    stitch_free(q->m);
    pipeline_free(q->p);
    mem_free(q->sample);
    memset(q, 0, sizeof *q);
    return 0;
}

static size_t sample_bytes(const Prediction *q)
{
    Dims n =
        part_dims(pipeline_steps(q->p), pipeline_facts(q->p, q->item)->dim);
    n.c = q->channels;
    return (size_t)numel(n) * sizeof(float);
}

/* data.prediction(pipeline, case, channels, {classes=channels, threshold=0.5,
 * labels=false, values=false, entropy=false, grid="input"}) -> prediction of
 * case number `case` (from 1) with the results labels, values and entropy that
 * are true, values if none is. The first `classes` channels are scores. grid
 * "prepared": the grid of the prepared case. Raises errors of preparing it. */
static int l_prediction(lua_State *L)
{
    static const char *const known[] = {
        "classes", "threshold", "labels", "values", "entropy", "grid", NULL};
    Pipeline *p = check_pipeline(L, 1);
    const int cases = pipeline_dataset(p)->count;
    const int item = (int)check_int(L, 2, "case", 1, cases) - 1;
    const int channels = (int)check_int(L, 3, "channels", 1, 4096);

    check_keys(L, 4, "prediction", known);
    StitchOptions o = {.channels = channels,
                       .classes =
                           (int)opt_int(L, 4, "classes", channels, 0, channels),
                       .threshold = opt_number(L, 4, "threshold", 0.5),
                       .labels = opt_bool(L, 4, "labels", false),
                       .entropy = opt_bool(L, 4, "entropy", false)};
    o.values = opt_bool(L, 4, "values", !o.labels && !o.entropy);
    const char *grid = opt_string(L, 4, "grid", "input");
    o.prepared = !strcmp(grid, "prepared");
    if (!o.prepared && strcmp(grid, "input"))
        raise_usage(L, "grid must be \"input\" or \"prepared\", got \"%s\"",
                    grid);
    if (o.labels && (o.classes < 1 || o.classes > 256))
        raise_usage(L, "labels are made of 1 to 256 classes, got %d",
                    (int)o.classes);
    Prediction *q = new_object(L, "seg.prediction", sizeof *q);
    pipeline_hold(p);
    q->p = p, q->item = item, q->channels = channels, q->last = -1;
    q->rank = pipeline_rank(p, 0);
    q->sample = mem_alloc(sample_bytes(q));
    if (!q->sample || !stitch_new(p, item, &o, &q->m)) return raise_error(L);
    const StitchBytes bytes = stitch_bytes(q->m);
    charge_memory(L, bytes.slab + bytes.results);
    return 1;
}

/* q:bytes() -> bytes of the buffers for samples, of the results; voxels of one
 * result */
static int l_bytes(lua_State *L)
{
    const Prediction *q = check_prediction(L, 1);
    const StitchBytes bytes = stitch_bytes(q->m);
    lua_pushinteger(L, (lua_Integer)(bytes.slab + sample_bytes(q)));
    lua_pushinteger(L, (lua_Integer)bytes.results);
    lua_pushinteger(L, bytes.voxels);
    return 3;
}

/* The first want.w positions of a sequence (C,W) into memory order: in a batch
 * of sequences of similar length each is padded to the longest. */
static void cut_sequence(const float *user, Dims got, Dims want, float *out)
{
    for (int32_t w = 0; w < want.w; w++)
        for (int32_t c = 0; c < want.c; c++)
            out[(int64_t)w * want.c + c] = user[(int64_t)c * got.w + w];
}

/* q:put(number, array (N,C,[D],H,W), n, output): row n of a batch of outputs is
 * the network's output for sample `number` of the pipeline, from 1; the padding
 * of a sequence is dropped. Raises when the extents are not those of the
 * sample, when the sample is of another case or does not follow the one before,
 * or when a value is not finite (kind diverged); that error has the name
 * `output`, if given. */
static int l_put(lua_State *L)
{
    Prediction *q = check_prediction(L, 1);
    int number = (int)check_int(L, 2, "number", 1, pipeline_samples(q->p)) - 1;
    Array *a = check_array(L, 3);
    int n = (int)check_int(L, 4, "sample", 1, a->axes ? a->shape[0] : 1) - 1;
    const char *output = luaL_optstring(L, 5, NULL);
    Dims want = pipeline_dims_of(q->p, number, 0), got;

    want.c = q->channels;
    if (pipeline_id(q->p, number).item != q->item)
        raise_usage(L, "sample %d is of another case", number + 1);
    if (number <= q->last)
        raise_usage(L, "sample %d comes after sample %d", number + 1,
                    q->last + 1);
    if (!dims_from_user(a->shape, a->axes, q->rank, &got))
        raise_usage(L, "a prediction of %d axes, wanted %d", a->axes,
                    2 + q->rank);
    got.n = 1;
    const float *from = a->data + (int64_t)n * numel(got);
    const bool longer = q->rank == 1 && got.w > want.w && got.c == want.c;
    if (!dims_equal(want, got) && !longer) {
        char w[DIMS_TEXT], g[DIMS_TEXT];
        raise_usage(L, "a prediction of shape %s does not fit %s",
                    dims_text(got, q->rank, g), dims_text(want, q->rank, w));
    }

    Tensor t = {.dim = got, .type = F32, .rank = q->rank, .data = q->sample};
    if (longer)
        cut_sequence(from, got, want, q->sample);
    else
        tensor_from_user(from, &t);
    if (!stitch_put(q->m, number, q->sample)) {
        if (output) within("output %s", output);
        return raise_error(L);
    }
    q->last = number;
    return 0;
}

/* q:restore() -> values, labels, entropy: volumes on the grid, nil for results
 * that were not requested; resize, fit, resample and orient are undone. It
 * takes no more samples after this and can only be closed. */
static int l_restore(lua_State *L)
{
    Prediction *q = check_prediction(L, 1);
    StitchResult r;
    Volume *const owner[] = {push_volume(L), push_volume(L), push_volume(L)};

    if (!stitch_finish(q->m, &r)) return raise_error(L);
    const Volume *const result[] = {&r.values, &r.labels, &r.entropy};
    q->last = INT32_MAX;

    for (int i = 0; i < 3; i++) {
        *owner[i] = *result[i];
        if (owner[i]->voxels.data) continue;
        lua_pushnil(L);
        lua_replace(L, -4 + i);
    }
    return 3;
}

void bind_prediction(lua_State *L)
{
    static const luaL_Reg methods[] = {{"put", l_put},
                                       {"bytes", l_bytes},
                                       {"restore", l_restore},
                                       {"close", prediction_gc},
                                       {NULL, NULL}};
    static const luaL_Reg functions[] = {{"prediction", l_prediction},
                                         {NULL, NULL}};
    new_type(L, "seg.prediction", methods, prediction_gc);
    lua_getfield(L, -1, "data");
    luaL_setfuncs(L, functions, 0);
    lua_pop(L, 1);
}
