/* trace.c -- traces as Lua objects, and sessions that are traced.
 *
 * Sessions and loaders hold their trace by a reference of their own, so the Lua
 * object may be collected while they still record into it. */
#include "engine/base/trace.h"
#include "lua/bind/bind.h"

typedef struct TraceBox {
    Trace *t;
} TraceBox;

static Trace *check_trace(lua_State *L, int arg)
{
    return ((TraceBox *)luaL_checkudata(L, arg, "seg.trace"))->t;
}

Trace *opt_trace(lua_State *L, int arg)
{
    return lua_isnoneornil(L, arg) ? NULL : check_trace(L, arg);
}

static int trace_gc(lua_State *L)
{
    TraceBox *box = luaL_checkudata(L, 1, "seg.trace");
    trace_drop(box->t);
    box->t = NULL;
    return 0;
}

/* core.trace() -> a trace; its time begins here */
static int l_trace(lua_State *L)
{
    TraceBox *box = new_object(L, "seg.trace", sizeof *box);
    if (!trace_open(&box->t)) return raise_error(L);
    return 1;
}

/* t:span(row, name, kind, from, to = now): an activity between two times of
 * sys.clock() */
static int l_span(lua_State *L)
{
    Trace *t = check_trace(L, 1);
    trace_put(t, luaL_checkstring(L, 2), luaL_checkstring(L, 3),
              luaL_checkstring(L, 4), -1, check_number(L, 5, "from"),
              lua_isnoneornil(L, 6) ? trace_now(t) : check_number(L, 6, "to"));
    return 0;
}

/* t:count(name, value, at): the value of a counter of bytes from `at` on */
static int l_count(lua_State *L)
{
    trace_count(check_trace(L, 1), luaL_checkstring(L, 2),
                luaL_checkinteger(L, 3), check_number(L, 4, "at"));
    return 0;
}

/* t:write(path) -> number of events in the file, number that were dropped */
static int l_write(lua_State *L)
{
    int64_t kept, lost;
    Trace *t = check_trace(L, 1);
    if (!trace_write(t, luaL_checkstring(L, 2))) return raise_error(L);
    trace_events(t, &kept, &lost);
    lua_pushinteger(L, kept);
    lua_pushinteger(L, lost);
    return 2;
}

/* s:trace(trace): the session records into it from here on; nil: no longer */
static int l_session_trace(lua_State *L)
{
    session_trace(check_session(L, 1), opt_trace(L, 2));
    return 0;
}

void bind_trace(lua_State *L)
{
    static const luaL_Reg methods[] = {
        {"span", l_span}, {"count", l_count}, {"write", l_write}, {NULL, NULL}};
    static const luaL_Reg of_session[] = {{"trace", l_session_trace},
                                          {NULL, NULL}};
    static const luaL_Reg functions[] = {{"trace", l_trace}, {NULL, NULL}};
    new_type(L, "seg.trace", methods, trace_gc);
    luaL_setfuncs(L, functions, 0);
    luaL_getmetatable(L, "seg.session");
    lua_getfield(L, -1, "__index");
    luaL_setfuncs(L, of_session, 0);
    lua_pop(L, 2);
}
