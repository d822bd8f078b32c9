/* memory.c -- how much memory a device has, and how much a session may take.
 *
 * lua/train/budget.lua decides with these numbers. */
#include "lua/bind/bind.h"

/* s:budget(bytes, least = false): limits the arena of training steps planned
 * from here on; 0: no limit. least: where no plan fits, take the smallest */
static int l_budget(lua_State *L)
{
    Session *s = check_session(L, 1);
    session_budget(s, (size_t)check_int(L, 2, "budget", 0, INT64_MAX),
                   lua_toboolean(L, 3));
    return 0;
}

/* s:room() -> bytes for arena and kept samples: free on the device, nil where
 * unknown; left by the limit, nil without one */
static int l_room(lua_State *L)
{
    size_t bytes, left;
    if (!session_available_memory(check_session(L, 1), &bytes, &left))
        return raise_error(L);
    push_bytes(L, bytes);
    push_bytes(L, left);
    return 2;
}

/* s:want(bytes): raises, with the free bytes, where the device has less than an
 * arena of so many bytes */
static int l_want(lua_State *L)
{
    Session *s = check_session(L, 1);
    if (!session_check_memory(s, (size_t)check_int(L, 2, "want", 0, INT64_MAX)))
        return raise_error(L);
    return 0;
}

/* room("cuda:0") -> bytes that are free on a device, or in this machine where
 * the device has no memory of its own; nil where unknown. Opens the device for
 * the duration of the call. */
static int l_device_room(lua_State *L)
{
    const Backend *be;
    int number;
    void *dev;
    size_t bytes = 0;
    const char *text = check_device(L, 1);

    if (!backend_find(text, &be, &number)) return raise_error(L);
    if (be->room) {
        if (!backend_open(be, text, number, 1, &dev)) return raise_error(L);
        bool ok = be->room(dev, &bytes);
        be->close(dev);
        if (!ok) return raise_error(L);
    } else {
        bytes = mem_room("");
    }

    push_bytes(L, bytes);
    return 1;
}

void bind_memory(lua_State *L)
{
    static const luaL_Reg methods[] = {
        {"budget", l_budget}, {"room", l_room}, {"want", l_want}, {NULL, NULL}};
    static const luaL_Reg functions[] = {{"room", l_device_room}, {NULL, NULL}};
    luaL_getmetatable(L, "seg.session");
    luaL_setfuncs(L, methods, 0);
    lua_pop(L, 1);
    luaL_setfuncs(L, functions, 0);
}
