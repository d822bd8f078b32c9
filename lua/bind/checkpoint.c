/* checkpoint.c -- checkpoints, exported files, run folders and their lock for
 * Lua.
 *
 * Metadata is a table of strings on both sides; fit.lua and export.lua decide
 * what the keys mean. Memory that a call needs while it runs (strings and
 * header of a file) is in an arena that is a userdata, so that an error midway
 * frees it too. Errors of files are of kind data or failure and name the
 * file. */
#include "engine/checkpoint/checkpoint.h"
#include "engine/api/segengine.h"
#include "engine/base/file.h"
#include "engine/checkpoint/safetensors.h"
#include "engine/checkpoint/snapshot.h"
#include "engine/onnx/onnx.h"
#include "lua/bind/bind.h"
#include <string.h>

enum { MAX_PAIRS = 64, MAX_PATHS = 8 };

/* An arena that Lua collects: memory for the duration of a call. */
static int arena_gc(lua_State *L)
{
    arena_release(luaL_checkudata(L, 1, "seg.arena"));
    return 0;
}

/* An empty arena on the stack, freed with the call's other values. */
static Arena *push_arena(lua_State *L)
{
    return new_object(L, "seg.arena", sizeof(Arena));
}

/* The table at `arg`, key -> string, as pairs sorted by key in `pair`. The
 * order must not depend on Lua's hashes, as a checkpoint must have the same
 * bytes in every run. nil is an empty table. */
static Meta read_meta(lua_State *L, int arg, MetaPair pair[MAX_PAIRS])
{
    Meta m = {.pair = pair};
    if (lua_isnoneornil(L, arg)) return m;
    luaL_checktype(L, arg, LUA_TTABLE);
    lua_pushnil(L);

    while (lua_next(L, arg)) {
        if (lua_type(L, -2) != LUA_TSTRING || lua_type(L, -1) != LUA_TSTRING)
            raise_usage(L, "metadata must be a table of strings");
        if (m.count == MAX_PAIRS)
            raise_usage(L, "metadata: more than %d keys", MAX_PAIRS);
        int i = m.count++;
        // the table keeps both strings alive; insertion sort
        MetaPair new = {lua_tostring(L, -2), lua_tostring(L, -1)};
        for (; i > 0 && strcmp(new.key, pair[i - 1].key) < 0; i--)
            pair[i] = pair[i - 1];
        pair[i] = new;
        lua_pop(L, 1);
    }
    return m;
}

/* Push a table key -> string. */
static void push_meta(lua_State *L, const Meta *m)
{
    lua_createtable(L, 0, m->count);
    for (int i = 0; i < m->count; i++) {
        lua_pushstring(L, m->pair[i].value);
        lua_setfield(L, -2, m->pair[i].key);
    }
}

/* The table at `arg`, name -> array, as tensors stored with the parameters; the
 * count. Leaves their names in the file on the Lua stack. */
static int read_extra(lua_State *L, int arg, Extra extra[MAX_FEEDS])
{
    int n = 0;
    if (lua_isnoneornil(L, arg)) return 0;
    luaL_checkstack(L, MAX_FEEDS + 4, "arrays");
    lua_pushnil(L);

    while (next_input(L, arg)) {
        if (n == MAX_FEEDS) raise_usage(L, "more than %d arrays", MAX_FEEDS);
        Array *a = check_array(L, lua_gettop(L));
        if (a->axes > ST_AXES) raise_usage(L, "more than %d axes", ST_AXES);
        Extra *x = &extra[n++];
        *x = (Extra){.axes = a->axes, .data = a->data};
        memcpy(x->shape, a->shape, (size_t)a->axes * sizeof *x->shape);
        // below the key, which lua_next needs on top
        x->name =
            lua_pushfstring(L, CHECKPOINT_BATCH "%s", lua_tostring(L, -2));
        lua_replace(L, -2);
        lua_insert(L, -2);
    }
    return n;
}

/* A path or a list of paths at `arg`; -> their number. The values on the Lua
 * stack keep the strings alive. */
static int read_paths(lua_State *L, int arg, const char *path[MAX_PATHS])
{
    if (!lua_istable(L, arg)) {
        path[0] = luaL_checkstring(L, arg);
        return 1;
    }
    const lua_Integer count = luaL_len(L, arg);
    if (count < 1 || count > MAX_PATHS)
        raise_usage(L, "%d paths, want 1 to %d", (int)count, MAX_PATHS);
    for (int i = 0; i < count; i++) {
        lua_rawgeti(L, arg, i + 1);
        path[i] = luaL_checkstring(L, -1);
        lua_pop(L, 1); // the table keeps it alive
    }
    return (int)count;
}

/* checkpoint.save(path, session, full, {key = text}, {name = array}): weights
 * and running statistics; with `full` also moments and step count; the arrays
 * as tensors batch.<name>. Written to a temporary file, flushed, read back,
 * renamed: when it raises, the previous file is intact. `path` may be a list of
 * paths, of which the later ones are linked to the first, in this order. */
static int l_save(lua_State *L)
{
    MetaPair pair[MAX_PAIRS];
    Extra extra[MAX_FEEDS];
    const char *path[MAX_PATHS];
    const int paths = read_paths(L, 1, path);
    Session *s = check_session(L, 2);
    bool full = lua_toboolean(L, 3);
    Meta m = read_meta(L, 4, pair);
    int extras = read_extra(L, 5, extra);
    if (!checkpoint_save_as(path, paths, s, full, &m, extra, extras))
        return raise_error(L);
    return 0;
}

/* Also k:close(): waits for a write under way. */
static int snapshot_gc(lua_State *L)
{
    Snapshot **k = luaL_checkudata(L, 1, "seg.snapshot");
    snapshot_free(*k);
    *k = NULL;
    return 0;
}

static Snapshot *check_snapshot(lua_State *L)
{
    Snapshot **k = luaL_checkudata(L, 1, "seg.snapshot");
    if (!*k) raise_usage(L, "this snapshot is closed");
    return *k;
}

/* checkpoint.snapshot() -> an empty snapshot, see snapshot.h */
static int l_snapshot(lua_State *L)
{
    Snapshot **k = new_object(L, "seg.snapshot", sizeof *k);
    *k = snapshot_new();
    return *k ? 1 : raise_error(L);
}

/* k:take(session, full, {key = text}): copies what save() would write; raises
 * without enough memory */
static int l_take(lua_State *L)
{
    MetaPair pair[MAX_PAIRS];
    Snapshot *k = check_snapshot(L);
    Session *s = check_session(L, 2);
    bool full = lua_toboolean(L, 3);
    Meta m = read_meta(L, 4, pair);
    return snapshot_take(k, s, full, &m) ? 0 : raise_error(L);
}

/* k:write(path or paths): begins to write the files that save() would have
 * written at take(), in a thread */
static int l_write(lua_State *L)
{
    const char *path[MAX_PATHS];
    Snapshot *k = check_snapshot(L);
    const int paths = read_paths(L, 2, path);
    return snapshot_write(k, path, paths) ? 0 : raise_error(L);
}

/* k:done() -> whether the write has ended */
static int l_done(lua_State *L)
{
    lua_pushboolean(L, snapshot_done(check_snapshot(L)));
    return 1;
}

/* k:wait(): waits for the end of the write; raises why it failed */
static int l_wait(lua_State *L)
{
    return snapshot_wait(check_snapshot(L)) ? 0 : raise_error(L);
}

/* checkpoint.note(path, {key = text}): adds these texts to the metadata of a
 * file without changing its tensors */
static int l_note(lua_State *L)
{
    MetaPair pair[MAX_PAIRS];
    const char *path = luaL_checkstring(L, 1);
    Meta m = read_meta(L, 2, pair);
    if (!checkpoint_note(path, &m)) return raise_error(L);
    return 0;
}

/* checkpoint.load(path, session, full) -> metadata, a note on the file for the
 * user (mostly ""). Raises, and leaves the session unchanged, when names or
 * shapes differ from the session's or a checksum is wrong; with `full` also
 * when the moments of the same optimiser are missing. */
static int l_load(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1);
    Session *s = check_session(L, 2);
    bool full = lua_toboolean(L, 3);
    Meta m;
    Arena *mem = push_arena(L);
    if (!checkpoint_load(path, s, full, mem, &m)) return raise_error(L);
    push_meta(L, &m);
    lua_pushstring(L, m.note ? m.note : "");
    return 2;
}

/* The table from names in a file to names in the session: its stack index. */
typedef struct Names {
    lua_State *L;
    int table;
} Names;

/* The session's name of a tensor of the file; NULL: the tensor is not imported.
 * The table keeps the string alive. */
static const char *rename_by_table(void *ctx, const char *name)
{
    Names *n = ctx;
    // a raw lookup of a string raises nothing and calls no Lua code
    lua_pushstring(n->L, name);
    lua_rawget(n->L, n->table);
    const char *to = lua_tostring(n->L, -1);
    lua_pop(n->L, 1);
    return to;
}

/* checkpoint.import(path, session, {name in the file = name in the session},
 * partial) -> metadata. Weights of any safetensors file. Tensors that are not
 * in the table are ignored; every parameter of the session must be in the file
 * unless `partial`. */
static int l_import(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1);
    Session *s = check_session(L, 2);
    Meta m;

    luaL_checktype(L, 3, LUA_TTABLE);
    luaL_checkstack(L, 8, "names");
    Arena *mem = push_arena(L);
    Names names = {L, 3};
    if (!checkpoint_import(path, s, rename_by_table, &names,
                           lua_toboolean(L, 4), mem, &m))
        return raise_error(L);
    push_meta(L, &m);
    return 1;
}

/* checkpoint.meta(path) -> metadata; the header is verified, tensors are not
 * read */
static int l_meta(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1);
    Meta m;
    Arena *mem = push_arena(L);
    if (!checkpoint_meta(path, mem, &m)) return raise_error(L);
    push_meta(L, &m);
    return 1;
}

/* checkpoint.onnx(path, session, {node, ...}, {name, ...},
 * {probabilities=false, any_size=false}, {key = text}) -> {nodes=, numbers=,
 * bytes=, probabilities=, opset=}: writes the network of these outputs with the
 * session's weights as an ONNX file (onnx.h) with these pairs as metadata.
 * Raises for operators that ONNX cannot express. */
static int l_onnx(lua_State *L)
{
    static const char *const known[] = {"probabilities", "any_size", NULL};
    MetaPair pair[MAX_PAIRS];
    OnnxFacts facts;
    int node[MAX_ROOTS];
    const char *name[MAX_ROOTS];
    const char *path = luaL_checkstring(L, 1);
    Session *s = check_session(L, 2);
    const int nodes = check_nodes(L, 3, node, MAX_ROOTS);

    luaL_checktype(L, 4, LUA_TTABLE);
    for (int i = 0; i < nodes; i++) {
        if (lua_rawgeti(L, 4, i + 1) != LUA_TSTRING)
            raise_usage(L, "%d outputs need as many names", nodes);
        name[i] = lua_tostring(L, -1); // the table keeps it alive
        lua_pop(L, 1);
    }

    check_keys(L, 5, "onnx", known);
    const Meta m = read_meta(L, 6, pair);
    const OnnxOptions how = {.probabilities =
                                 opt_bool(L, 5, "probabilities", false),
                             .any_size = opt_bool(L, 5, "any_size", false),
                             .version = SEG_VERSION,
                             .pair = m.pair,
                             .pairs = m.count};
    if (!onnx_save(path, check_graph(L), session_params(s), node, name, nodes,
                   &how, &facts))
        return raise_error(L);
    lua_createtable(L, 0, 5);
    set_integer(L, "nodes", facts.nodes);
    set_integer(L, "numbers", facts.numbers);
    set_integer(L, "bytes", (int64_t)facts.bytes);
    set_integer(L, "probabilities", facts.probabilities);
    set_integer(L, "opset", ONNX_OPSET);
    return 1;
}

static int file_gc(lua_State *L)
{
    safetensors_close(luaL_checkudata(L, 1, "seg.safetensors"));
    return 0;
}

/* checkpoint.tensors(path) -> { {name=, type=, shape={...}}, ... } by name, of
 * any safetensors file */
static int l_tensors(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1);
    Safetensors *f = new_object(L, "seg.safetensors", sizeof *f);
    if (!safetensors_open(path, f)) return raise_error(L);
    lua_createtable(L, f->count, 0);

    for (int i = 0; i < f->count; i++) {
        const StTensor *t = &f->tensor[i];
        lua_createtable(L, 0, 3);
        set_text(L, "name", t->name);
        set_text(L, "type", st_type_name(t->type));
        lua_createtable(L, t->axes, 0);
        for (int k = 0; k < t->axes; k++) {
            lua_pushinteger(L, t->shape[k]);
            lua_rawseti(L, -2, k + 1);
        }
        lua_setfield(L, -2, "shape");
        lua_rawseti(L, -2, i + 1);
    }
    return 1;
}

/* Tensor i of f as an array on the stack. */
static void push_tensor(lua_State *L, const Safetensors *f, int i)
{
    const StTensor *t = &f->tensor[i];
    size_t n = safetensors_count(f, i);
    Array *a = push_array(L, t->axes, t->shape);
    double *user = lua_newuserdatauv(L, (n + 1) * sizeof *user, 0);
    if (!safetensors_read_f64(f, i, user)) raise_error(L);
    for (size_t k = 0; k < n; k++) a->data[k] = (float)user[k];
    lua_pop(L, 1);
}

/* checkpoint.batch(path) -> {name = array}: the tensors batch.<name> */
static int l_batch(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1);
    Safetensors *f = new_object(L, "seg.safetensors", sizeof *f);
    if (!safetensors_open(path, f)) return raise_error(L);
    lua_newtable(L);

    for (int i = 0; i < f->count; i++) {
        const char *name = f->tensor[i].name;
        const size_t n = strlen(CHECKPOINT_BATCH);
        if (strncmp(name, CHECKPOINT_BATCH, n)) continue;
        push_tensor(L, f, i);
        lua_setfield(L, -2, name + n);
    }
    return 1;
}

/* checkpoint.verify(path) -> true, or false and the reason; reads the whole
 * file */
static int l_verify(lua_State *L)
{
    bool ok = checkpoint_verify(luaL_checkstring(L, 1));
    lua_pushboolean(L, ok);
    if (ok) return 1;
    lua_pushstring(L, err_text());
    return 2;
}

/* checkpoint.newest(folder) -> path of the full checkpoint with the most steps
 * among all that verify, sentences about unusable ones ("" when all are good);
 * or nil and the reason */
static int l_newest(lua_State *L)
{
    const char *folder = luaL_checkstring(L, 1), *path, *said;
    Arena *mem = push_arena(L);
    if (!checkpoint_newest(folder, mem, &path, &said)) {
        lua_pushnil(L);
        lua_pushstring(L, err_text());
        return 2;
    }
    lua_pushstring(L, path);
    lua_pushstring(L, said);
    return 2;
}

/* Also lock:close(). */
static int lock_gc(lua_State *L)
{
    file_unlock(luaL_checkudata(L, 1, "seg.lock"));
    return 0;
}

/* lock:there(folder) -> whether the folder still has this lock: false after the
 * folder was removed */
static int lock_there(lua_State *L)
{
    const FileLock *lock = luaL_checkudata(L, 1, "seg.lock");
    lua_pushboolean(L, file_lock_there(luaL_checkstring(L, 2), lock));
    return 1;
}

/* checkpoint.lock(folder) -> a lock that ends when it is collected or the
 * program ends; raises with the PID of another holder. Once the lock is held,
 * temporary files of writers that died are removed from the folder. */
static int l_lock(lua_State *L)
{
    const char *folder = luaL_checkstring(L, 1);
    FileLock *lock = new_object(L, "seg.lock", sizeof *lock);
    int removed;
    if (!file_lock(folder, lock) || !file_clean(folder, &removed))
        return raise_error(L);
    return 1;
}

/* checkpoint.holder(folder) -> PID of the process that holds its lock, 0 when
 * unknown; nil when the folder is not locked */
static int l_holder(lua_State *L)
{
    long pid;
    if (!file_locked(luaL_checkstring(L, 1), &pid)) return 0;
    lua_pushinteger(L, pid);
    return 1;
}

void bind_checkpoint(lua_State *L)
{
    static const luaL_Reg none[] = {{NULL, NULL}};
    static const luaL_Reg lock[] = {
        {"close", lock_gc}, {"there", lock_there}, {NULL, NULL}};
    static const luaL_Reg snapshot[] = {
        {"take", l_take}, {"write", l_write},     {"done", l_done},
        {"wait", l_wait}, {"close", snapshot_gc}, {NULL, NULL}};
    static const luaL_Reg functions[] = {
        {"save", l_save},         {"load", l_load},
        {"import", l_import},     {"meta", l_meta},
        {"verify", l_verify},     {"newest", l_newest},
        {"lock", l_lock},         {"tensors", l_tensors},
        {"batch", l_batch},       {"holder", l_holder},
        {"onnx", l_onnx},         {"note", l_note},
        {"snapshot", l_snapshot}, {NULL, NULL}};

    new_type(L, "seg.snapshot", snapshot, snapshot_gc);
    new_type(L, "seg.arena", none, arena_gc);
    new_type(L, "seg.safetensors", none, file_gc);
    new_type(L, "seg.lock", lock, lock_gc);
    luaL_newlib(L, functions);
    lua_setfield(L, -2, "checkpoint");
}
