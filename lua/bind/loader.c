/* loader.c -- batches as Lua objects.
 *
 * A batch is a table of blocks that point into the ring buffer of the loader;
 * they become empty when the next batch is requested or the loader is closed.
 * For that, user value 1 of the loader's userdata is the table of the current
 * blocks. */
#include "data/loader/loader.h"
#include "lua/bind/bind.h"
#include <stdio.h>
#include <string.h>

typedef struct LoaderBox {
    Loader *l;
} LoaderBox;

static Loader *check_loader(lua_State *L, int arg)
{
    LoaderBox *box = luaL_checkudata(L, arg, "seg.loader");
    if (!box->l) raise_usage(L, "this loader is closed");
    return box->l;
}

/* The blocks of the previous batch no longer point into the ring buffer. */
static void forget_blocks(lua_State *L)
{
    if (lua_getiuservalue(L, 1, 1) == LUA_TTABLE) {
        lua_pushnil(L);
        while (lua_next(L, -2)) {
            Block *b = test_block(L, lua_gettop(L));
            if (b) b->t.data = NULL;
            lua_pop(L, 1);
        }
    }
    lua_pop(L, 1);
}

/* Also l:close(): ends the workers. */
static int loader_gc(lua_State *L)
{
    LoaderBox *box = luaL_checkudata(L, 1, "seg.loader");
    forget_blocks(L);
    loader_close(box->l);
    box->l = NULL;
    return 0;
}

/* Called by the loader when a batch takes long. */
static void say_waiting(void *context, const char *text)
{
    (void)context;
    fprintf(stderr, "segengine: %s\n", text);
}

/* The list "only" of the options at `arg`, counted from 0, in a userdata on the
 * stack; NULL when there is none. */
static int32_t *read_only(lua_State *L, int arg, int32_t *count)
{
    if (lua_getfield(L, arg, "only") == LUA_TNIL) return NULL;
    luaL_checktype(L, -1, LUA_TTABLE);
    const int list = lua_gettop(L);
    *count = (int32_t)lua_rawlen(L, list);
    int32_t *out = lua_newuserdatauv(L, ((size_t)*count + 1) * sizeof *out, 0);
    for (int32_t i = 0; i < *count; i++) {
        lua_rawgeti(L, list, i + 1);
        out[i] = (int32_t)check_int(L, lua_gettop(L), "only", 1, INT32_MAX) - 1;
        lua_pop(L, 1);
    }
    return out;
}

/* data.loader(pipeline, {batch=1, workers=0, prefetch=0, prefetch_bytes=0,
 * shuffle=false, drop_last=false, augment=false, ids=false, seed=0, bucket=,
 * multiple=1, rank=0, ranks=1, whole=false}) -> loader at the start of epoch 0.
 * workers = 0 prepares a batch when it is requested; prefetch is the number of
 * batches prepared ahead (0: two), prefetch_bytes the limit of the ring buffer
 * (0: 256 MiB). ids: batches have sample numbers only, and empty fields.
 * bucket: "length" puts samples of similar length into one batch, which is as
 * long as its longest sample, rounded up to a multiple. only: numbers of
 * samples from 1, instead of all. again: the same samples, with other draws of
 * augmentation. trace: records preparation and waiting. rank, ranks: only the
 * shard of this rank of each batch, or with `whole` a share of the batches. The
 * pipeline is held. Raises when samples of different extents would be in one
 * batch, or when there would be no batch. */
static int l_loader(lua_State *L)
{
    static const char *const known[] = {
        "batch",          "workers", "prefetch", "shuffle", "drop_last",
        "augment",        "ids",     "seed",     "bucket",  "multiple",
        "prefetch_bytes", "only",    "idle",     "rank",    "ranks",
        "whole",          "trace",   "again",    NULL};
    Pipeline *p = check_pipeline(L, 1);
    check_keys(L, 2, "loader", known);
    const char *bucket = opt_string(L, 2, "bucket", "");
    if (strcmp(bucket, "") && strcmp(bucket, "length"))
        raise_usage(L, "bucket must be \"length\", got \"%s\"", bucket);
    LoaderOptions o = {.batch = (int)opt_int(L, 2, "batch", 1, 1, 1 << 20),
                       .workers = (int)opt_int(L, 2, "workers", 0, 0, 1024),
                       .prefetch = (int)opt_int(L, 2, "prefetch", 0, 0, 1024),
                       .prefetch_bytes =
                           opt_int(L, 2, "prefetch_bytes", 0, 0, INT64_MAX),
                       .shuffle = opt_bool(L, 2, "shuffle", false),
                       .drop_last = opt_bool(L, 2, "drop_last", false),
                       .bucket = *bucket != 0,
                       .multiple = (int)opt_int(L, 2, "multiple", 1, 1, 65535),
                       .augment = opt_bool(L, 2, "augment", false),
                       .again = opt_bool(L, 2, "again", false),
                       .idle = opt_bool(L, 2, "idle", false),
                       .ids_only = opt_bool(L, 2, "ids", false),
                       .seed = (uint64_t)opt_int(L, 2, "seed", 0, 0, INT64_MAX),
                       .rank = (int)opt_int(L, 2, "rank", 0, 0, INT32_MAX),
                       .ranks = (int)opt_int(L, 2, "ranks", 1, 1, INT32_MAX),
                       .whole_batches = opt_bool(L, 2, "whole", false),
                       .waiting = say_waiting};
    o.only = read_only(L, 2, &o.only_count);
    lua_getfield(L, 2, "trace");
    o.trace = opt_trace(L, lua_gettop(L));
    LoaderBox *box = new_object(L, "seg.loader", sizeof *box);
    if (!loader_open(p, &o, &box->l)) return raise_error(L);
    return 1;
}

/* l:shape("image") -> {c, [d], h, w}, the largest extents of all batches */
static int l_shape(lua_State *L)
{
    Loader *l = check_loader(L, 1);
    int64_t shape[2 + RANK_MAX];
    const char *name = luaL_checkstring(L, 2);
    const int field = loader_find(l, name);
    if (field < 0) raise_usage(L, "the data set has no field \"%s\"", name);
    const Tensor t = loader_field(l, field);
    const int axes = dims_to_user(t.dim, t.rank, shape);
    push_shape(L, axes - 1, shape + 1);
    return 1;
}

/* l:report() -> a line: batches ahead and their bytes, padding of sequences */
static int l_report(lua_State *L)
{
    Arena mem = {NULL};
    const char *text = loader_report(check_loader(L, 1), &mem);
    if (!text) return raise_error(L);
    lua_pushstring(L, text);
    arena_release(&mem);
    return 1;
}

/* l:batches() -> batches, samples of an epoch */
static int l_batches(lua_State *L)
{
    lua_pushinteger(L, loader_batches(check_loader(L, 1)));
    lua_pushinteger(L, loader_samples(check_loader(L, 1)));
    return 2;
}

/* l:seek(epoch from 0, batch from 0): the batch that next() gives next */
static int l_seek(lua_State *L)
{
    Loader *l = check_loader(L, 1);
    uint32_t epoch = (uint32_t)check_int(L, 2, "epoch", 0, UINT32_MAX);
    int batch = (int)check_int(L, 3, "batch", 0, INT32_MAX);
    if (!loader_seek(l, epoch, batch)) return raise_error(L);
    return 0;
}

/* l:next() -> {epoch=, number=, last=, count=, whole=, first=, idle=,
 * samples={number, ...}, fields={block, ...}}: epoch and number of the batch
 * count from 0, the samples' numbers from 1; one block for each field of the
 * data set, in its order, valid until the next call. For a loader of shards,
 * count is the size of the shard, whole that of the batch, first the position
 * of the shard in it from 0; idle: the shard is empty, and its one sample
 * belongs to another rank. Raises errors of the worker threads (kind data). */
static int l_next(lua_State *L)
{
    Loader *l = check_loader(L, 1);
    const Batch *b;
    forget_blocks(L);
    if (!loader_next(l, &b)) return raise_error(L);
    lua_createtable(L, 0, 9);
    set_integer(L, "whole", b->whole);
    set_integer(L, "first", b->first);
    set_bool(L, "idle", b->idle);
    set_integer(L, "epoch", b->epoch);
    set_integer(L, "number", b->number);
    set_bool(L, "last", b->last);
    set_integer(L, "count", b->count);
    lua_createtable(L, b->count, 0);
    for (int i = 0; i < b->count; i++) {
        lua_pushinteger(L, b->id[i].number + 1);
        lua_rawseti(L, -2, i + 1);
    }
    lua_setfield(L, -2, "samples");
    lua_createtable(L, b->fields, 0);
    for (int i = 0; i < b->fields; i++) {
        Block *block = push_block(L);
        block->t = b->field[i];
        lua_rawseti(L, -2, i + 1);
    }

    lua_pushvalue(L, -1);
    lua_setiuservalue(L, 1, 1);
    lua_setfield(L, -2, "fields");
    return 1;
}

/* l:stats() -> batches, samples, seconds of waiting for them, since it was
 * opened */
static int l_stats(lua_State *L)
{
    LoaderStats s = loader_stats(check_loader(L, 1));
    lua_pushinteger(L, s.batches);
    lua_pushinteger(L, s.samples);
    lua_pushnumber(L, s.wait_s);
    return 3;
}

void bind_loader(lua_State *L)
{
    static const luaL_Reg loader[] = {
        {"batches", l_batches}, {"seek", l_seek},   {"next", l_next},
        {"stats", l_stats},     {"shape", l_shape}, {"report", l_report},
        {"close", loader_gc},   {NULL, NULL}};
    new_type(L, "seg.loader", loader, loader_gc);
    lua_getfield(L, -1, "data");
    lua_pushcfunction(L, l_loader);
    lua_setfield(L, -2, "loader");
    lua_pop(L, 1);
}
