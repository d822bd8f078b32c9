/* ranks.c -- the ranks of a training, for Lua.
 *
 * A process is one rank at most, so the rank belongs to the program: it is
 * opened when training begins, and closed by main, which also informs the other
 * ranks of an error that ends this one. */
#include "engine/ranks/ranks.h"
#include "engine/base/crc32c.h"
#include "lua/bind/bind.h"
#include <stdio.h>
#include <string.h>

static Ranks *ours; // NULL: alone

Ranks *own_ranks(void)
{
    return ours;
}

void ranks_end(void)
{
    ranks_close(ours);
    ours = NULL;
}

// the launcher of the ranks prints an error once for all; an MPI launcher does
// not
bool ranks_say(int code, const char *text)
{
    if (!ours) return false;
    bool told = strcmp(ours->via->name, "MPI") != 0;
    if (!told) fprintf(stderr, "segengine: rank %d: %s\n", ours->rank, text);
    fflush(NULL);
    ranks_quit(ours, code, text);
    return true;
}

/* ranks.open() -> rank from 0, count, name of the transport; nothing when this
 * process is alone */
static int l_open(lua_State *L)
{
    if (!ours && !ranks_open(&ours)) return raise_bare(L);
    if (!ours) return 0;
    lua_pushinteger(L, ours->rank);
    lua_pushinteger(L, ours->count);
    lua_pushstring(L, ours->via->name);
    return 3;
}

static Ranks *check_ranks(lua_State *L)
{
    if (!ours) raise_usage(L, "this process is the only rank");
    return ours;
}

/* ranks.start(count, {arguments}) -> exit code: runs this program as so many
 * ranks on this machine and waits. Raises the error of a rank that failed. */
static int l_start(lua_State *L)
{
    static char name[] = "segengine";
    char why[ERR_MAX];
    int count = (int)check_int(L, 1, "ranks", 1, RANKS_MOST), code = 0;

    luaL_checktype(L, 2, LUA_TTABLE);
    size_t n = lua_rawlen(L, 2);
    char **argv = lua_newuserdatauv(L, (n + 2) * sizeof *argv, 0);
    argv[0] = name;
    for (size_t i = 1; i <= n; i++) {
        lua_rawgeti(L, 2, (lua_Integer)i);
        argv[i] = (char *)luaL_checkstring(L, -1); // the table keeps it alive
        lua_pop(L, 1);
    }

    argv[n + 1] = NULL;
    fflush(NULL);
    signal_waits(true);
    bool started = ranks_shared_start(count, argv, signal_caught, &code, why);
    signal_waits(false);
    if (!started) return raise_error(L);
    if (*why) {
        err_set((ErrKind)code, why);
        return raise_bare(L);
    }
    lua_pushinteger(L, code);
    return 1;
}

/* ranks.gather(text) -> {text of rank 0, text of rank 1, ...} */
static int l_gather(lua_State *L)
{
    Ranks *r = check_ranks(L);
    size_t n;
    const char *text = luaL_checklstring(L, 1, &n);
    size_t ranks = (size_t)r->count, most = 0;
    uint64_t own = n, *all = lua_newuserdatauv(L, ranks * sizeof *all, 0);

    if (!ranks_gather(r, &own, sizeof own, all)) return raise_bare(L);
    for (size_t k = 0; k < ranks; k++)
        if (all[k] > most) most = (size_t)all[k];

    // all ranks send the length of the longest text
    char *mine = lua_newuserdatauv(L, most + 1, 0);
    char *got = lua_newuserdatauv(L, ranks * most + 1, 0);
    memcpy(mine, text, n);
    memset(mine + n, 0, most - n);
    if (!ranks_gather(r, mine, most, got)) return raise_bare(L);
    lua_createtable(L, r->count, 0);
    for (size_t k = 0; k < ranks; k++) {
        lua_pushlstring(L, got + k * most, (size_t)all[k]);
        lua_rawseti(L, -2, (lua_Integer)k + 1);
    }
    return 1;
}

/* ranks.stats() -> seconds in exchanges, bytes sent, number of exchanges,
 * seconds of the first value spent waiting while ranks.time_waiting; all so far
 */
static int l_stats(lua_State *L)
{
    const Ranks *r = check_ranks(L);
    lua_pushnumber(L, r->spent_s);
    lua_pushinteger(L, r->sent);
    lua_pushinteger(L, r->meetings);
    lua_pushnumber(L, r->waited_s);
    return 4;
}

/* ranks.time_waiting(on): a barrier precedes each exchange, so that waiting is
 * timed apart; false: no longer */
static int l_time_waiting(lua_State *L)
{
    check_ranks(L)->time_waiting = lua_toboolean(L, 1);
    return 0;
}

/* == values that go to other ranks ===================================== */

/* ranks.pack(array) -> its shape and numbers as a text */
static int l_pack(lua_State *L)
{
    const Array *a = check_array(L, 1);
    int64_t head[1 + MAX_AXES] = {a->axes};
    luaL_Buffer b;
    memcpy(head + 1, a->shape, (size_t)a->axes * sizeof *head);
    luaL_buffinit(L, &b);
    luaL_addlstring(&b, (const char *)head, (size_t)(1 + a->axes) * 8);
    luaL_addlstring(&b, (const char *)a->data,
                    (size_t)a->count * sizeof(float));
    luaL_pushresult(&b);
    return 1;
}

/* ranks.unpack(text) -> array, of a text from pack */
static int l_unpack(lua_State *L)
{
    size_t n;
    const char *text = luaL_checklstring(L, 1, &n);
    int64_t head[1 + MAX_AXES], count = 1;

    memset(head, 0, sizeof head);
    if (n >= 8) memcpy(head, text, 8);
    size_t from = (size_t)(1 + head[0]) * 8;
    if (n < 8 || head[0] < 0 || head[0] > MAX_AXES || n < from)
        raise_usage(L, "this is not a packed array");
    memcpy(head, text, from);
    for (int i = 1; i <= head[0]; i++) count *= head[i];
    if (count < 0 || n != from + (size_t)count * sizeof(float))
        raise_usage(L, "this is not a packed array");
    Array *a = push_array(L, (int)head[0], head + 1);
    memcpy(a->data, text + from, n - from);
    return 1;
}

/* == sessions ========================================================== */

/* s:shard(first, idle): the next runs in training mode are the shard of a batch
 * that begins at sample `first` of the batch, from 0 */
static int l_shard(lua_State *L)
{
    Session *s = check_session(L, 1);
    int64_t first = check_int(L, 2, "first", 0, INT32_MAX);
    session_set_shard(s, first, lua_toboolean(L, 3));
    return 0;
}

/* s:digest() -> a checksum of these weights and statistics */
static int l_digest(lua_State *L)
{
    Session *s = check_session(L, 1);
    const Params *p = session_params(s);
    size_t bytes = (size_t)p->total * dtype_bytes(p->be->real);
    void *copy = lua_newuserdatauv(L, bytes, 0);
    if (!p->be->download(session_device(s), copy, p->value, bytes))
        return raise_error(L);
    lua_pushinteger(L, crc32c(0, copy, bytes));
    return 1;
}

void bind_ranks(lua_State *L)
{
    static const luaL_Reg functions[] = {{"open", l_open},
                                         {"start", l_start},
                                         {"gather", l_gather},
                                         {"pack", l_pack},
                                         {"unpack", l_unpack},
                                         {"stats", l_stats},
                                         {"time_waiting", l_time_waiting},
                                         {NULL, NULL}};
    static const luaL_Reg methods[] = {
        {"shard", l_shard}, {"digest", l_digest}, {NULL, NULL}};
    luaL_newlib(L, functions);
    lua_setfield(L, -2, "ranks");
    luaL_getmetatable(L, "seg.session");
    lua_getfield(L, -1, "__index");
    luaL_setfuncs(L, methods, 0);
    lua_pop(L, 2);
}
