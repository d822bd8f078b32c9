/* pipeline.c -- pipelines as Lua objects: data sets with steps, opened.
 *
 * Cases and samples count from 1 here and from 0 in the engine. A pipeline
 * holds its data set. */
#include "data/preprocess/pipeline.h"
#include "lua/bind/data.h"
#include "lua/bind/user_step.h"
#include <stdio.h>

typedef struct PipelineBox {
    Pipeline *p;
} PipelineBox;

Pipeline *check_pipeline(lua_State *L, int arg)
{
    PipelineBox *box = luaL_checkudata(L, arg, "seg.pipeline");
    if (!box->p) raise_usage(L, "this pipeline is closed");
    return box->p;
}

static int pipeline_gc(lua_State *L)
{
    PipelineBox *box = luaL_checkudata(L, 1, "seg.pipeline");
    pipeline_free(box->p);
    box->p = NULL;
    return 0;
}

/* Called when a case takes long to open, from a thread without a Lua state. */
static void say_waiting(void *context, const char *text)
{
    (void)context;
    fprintf(stderr, "segengine: %s\n", text);
}

/* data.pipeline(ds, steps, {threads=0, cache_bytes=0, seed=0, store=,
 * skip_bad=false, functions=}) -> pipeline. Prepares every case once on
 * `threads` threads, so that all errors of cases show at once, and keeps as
 * many cases as fit into cache_bytes; `seed` is the seed of augmentation;
 * store: a file that keeps prepared cases from one run to the next; skip_bad:
 * leaves out cases that cannot be read; functions: the functions that the steps
 * name (functions.lua). Raises the error of a case (kind data), or that a
 * signal came. */
static int l_pipeline(lua_State *L)
{
    static const char *const known[] = {"threads", "cache_bytes", "seed",
                                        "store",   "skip_bad",    "functions",
                                        NULL};
    Steps steps;
    const Dataset *ds = check_dataset(L, 1);

    check_keys(L, 3, "pipeline", known);
    PipelineOptions o = {
        .stop = signal_stopping(),
        .waiting = say_waiting,
        .threads = (int)opt_int(L, 3, "threads", 0, 0, 1024),
        .cache_bytes = opt_int(L, 3, "cache_bytes", 0, 0, INT64_MAX),
        .store = opt_string(L, 3, "store", NULL),
        .skip_bad = opt_bool(L, 3, "skip_bad", false),
        .seed = (uint64_t)opt_int(L, 3, "seed", 0, 0, INT64_MAX)};
    PipelineBox *box = new_object(L, "seg.pipeline", sizeof *box);
    read_steps(L, 2, 3, &steps);
    bool ok = pipeline_open(ds, &steps, &o, &box->p);
    drop_steps(L);
    return ok ? 1 : raise_error(L);
}

/* p:store() -> a report on the file of prepared cases, or nil without one */
static int l_store(lua_State *L)
{
    Arena mem = {NULL};
    char *text = pipeline_store(check_pipeline(L, 1), &mem);
    lua_pushstring(L, text);
    arena_release(&mem);
    return 1;
}

/* p:cases() -> the opened cases: all of the data set but bad ones */
static int l_opened_cases(lua_State *L)
{
    return push_cases(L, pipeline_dataset(check_pipeline(L, 1)));
}

/* p:bad() -> { {key=, patient=, reason=}, ... }: cases left out by skip_bad */
static int l_bad(lua_State *L)
{
    const BadCase *bad;
    const int n = pipeline_bad(check_pipeline(L, 1), &bad);
    lua_createtable(L, n, 0);
    for (int i = 0; i < n; i++) {
        lua_createtable(L, 0, 3);
        set_text(L, "key", bad[i].key);
        set_text(L, "patient", bad[i].patient);
        set_text(L, "reason", bad[i].reason);
        lua_rawseti(L, -2, i + 1);
    }
    return 1;
}

/* p:cache() -> {kept=, count=, made=, all_bytes=}: prepared volumes in memory,
 * all volumes; how many were prepared since opening; bytes of all volumes */
static int l_cache(lua_State *L)
{
    Pipeline *p = check_pipeline(L, 1);
    const CacheStats c = pipeline_cache(p);
    int64_t all = 0;
    for (int i = 0; i < c.count; i++) all += pipeline_facts(p, i)->bytes;
    lua_createtable(L, 0, 4);
    set_integer(L, "kept", c.kept);
    set_integer(L, "count", c.count);
    set_integer(L, "made", c.misses);
    set_integer(L, "all_bytes", all);
    return 1;
}

/* p:steps() -> its steps as text, with the fitted numbers */
static int l_steps(lua_State *L)
{
    Arena mem = {NULL};
    char *text = steps_print(pipeline_steps(check_pipeline(L, 1)), &mem);
    if (!text) return raise_error(L);
    lua_pushstring(L, text);
    arena_release(&mem);
    return 1;
}

/* p:samples() -> the number of samples: slices, patches, or cases */
static int l_samples(lua_State *L)
{
    lua_pushinteger(L, pipeline_samples(check_pipeline(L, 1)));
    return 1;
}

/* The index of the field with the name at `arg`; raises when there is none. */
static int check_field(lua_State *L, const Pipeline *p, int arg)
{
    const char *name = luaL_checkstring(L, arg);
    int f = dataset_field(pipeline_dataset(p), name);
    if (f < 0) raise_usage(L, "the data set has no field \"%s\"", name);
    return f;
}

/* p:shape("image") -> {c, [d], h, w}, common to all samples; raises when two
 * differ, with both names (kind data) */
static int l_shape(lua_State *L)
{
    Pipeline *p = check_pipeline(L, 1);
    int64_t shape[2 + RANK_MAX];
    Dims d;
    int f = check_field(L, p, 2);
    if (!pipeline_dims(p, f, &d)) return raise_error(L);
    int axes = dims_to_user(d, pipeline_rank(p, f), shape);
    push_shape(L, axes - 1, shape + 1);
    return 1;
}

/* p:report() -> lines of text on the opened data; names no patient */
static int l_report(lua_State *L)
{
    Arena mem = {NULL};
    char *text = pipeline_report(check_pipeline(L, 1), &mem);
    if (!text) return raise_error(L);
    lua_pushstring(L, text);
    arena_release(&mem);
    return 1;
}

/* p:item(number) -> case and slice of sample `number`; all count from 1, slice
 * 0 for a sample that is not a slice */
static int l_item(lua_State *L)
{
    Pipeline *p = check_pipeline(L, 1);
    int n = (int)check_int(L, 2, "sample", 1, pipeline_samples(p));
    SampleId id = pipeline_id(p, n - 1);
    lua_pushinteger(L, id.item + 1);
    lua_pushinteger(L, steps_slices(pipeline_steps(p)) ? id.part + 1 : 0);
    return 2;
}

/* p:facts(case) -> {slices=, foreground_slices=, highest=, depth=, voxels=,
 * rank=, patches=, drawn=, notes=, key=, patient=, image=, bytes=}: number of
 * used slices, number of used slices with foreground, the highest class in
 * them; number of slices and voxels of the prepared case; axes of its image (3
 * for a volume, 2 a picture, 1 a sequence); number of patches, nil without such
 * a step, and whether they are random; notes on unusual files; the hash of the
 * image's voxels in 16 digits; bytes of the prepared volumes */
static int l_facts(lua_State *L)
{
    Pipeline *p = check_pipeline(L, 1);
    const Dataset *ds = pipeline_dataset(p);
    int i = (int)check_int(L, 2, "case", 1, ds->count) - 1;
    const CaseFacts *f = pipeline_facts(p, i);
    const DataStep *parts = steps_parts(pipeline_steps(p));
    int highest = f->voxels ? MAX_LABELS : 0;
    char hash[17];

    while (highest > 0 && !f->voxels[highest]) highest--;
    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)f->hash);
    lua_createtable(L, 0, 13);
    set_integer(L, "slices", f->slices);
    set_integer(L, "foreground_slices", f->foreground_slices);
    set_integer(L, "highest", highest);
    set_integer(L, "depth", f->dim.d);
    set_integer(L, "voxels", (int64_t)f->dim.d * f->dim.h * f->dim.w);
    set_integer(L, "rank", ds->field[0].rank);
    set_integer(L, "bytes", f->bytes);
    if (parts && parts->id == STEP_patches)
        set_integer(L, "patches", part_count(pipeline_steps(p), f->dim));
    set_bool(L, "drawn", pipeline_drawn(p));
    set_text(L, "notes", f->notes);
    set_text(L, "key", ds->cases[i].key);
    set_text(L, "patient", ds->cases[i].patient);
    set_text(L, "image", hash);
    return 1;
}

/* data.split_leakage{p1, p2, p3}: raises when two parts share a patient or
 * voxels, with the names of both cases (kind data) */
static int l_split_leakage(lua_State *L)
{
    const Pipeline *side[8];
    int n = 0;
    luaL_checktype(L, 1, LUA_TTABLE);
    while (n < 8 && lua_rawgeti(L, 1, n + 1) != LUA_TNIL) {
        side[n++] = check_pipeline(L, lua_gettop(L));
        lua_pop(L, 1);
    }
    if (!pipeline_check_leakage(side, n)) return raise_error(L);
    return 0;
}

void bind_pipeline(lua_State *L)
{
    static const luaL_Reg pipeline[] = {
        {"store", l_store}, {"cache", l_cache},        {"samples", l_samples},
        {"steps", l_steps}, {"shape", l_shape},        {"report", l_report},
        {"item", l_item},   {"facts", l_facts},        {"close", pipeline_gc},
        {"bad", l_bad},     {"cases", l_opened_cases}, {NULL, NULL}};
    static const luaL_Reg functions[] = {{"pipeline", l_pipeline},
                                         {"split_leakage", l_split_leakage},
                                         {NULL, NULL}};
    new_type(L, "seg.pipeline", pipeline, pipeline_gc);
    lua_getfield(L, -1, "data");
    luaL_setfuncs(L, functions, 0);
    lua_pop(L, 1);
}
