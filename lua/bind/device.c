/* device.c -- the device of a text: --device auto, and what a GPU is. */
#include "engine/check/auto_device.h"
#include "lua/bind/bind.h"
#include <limits.h>
#include <string.h>

/* Push the device that "auto" stands for, in precision p; its text. */
static const char *push_auto(lua_State *L, Precision p)
{
    AutoDevice a;
    auto_device(backend_gpu(), 0, p, &a);
    return lua_pushstring(L, a.device);
}

const char *check_device(lua_State *L, int arg)
{
    const char *text = luaL_checkstring(L, arg);
    return strcmp(text, "auto") ? text : push_auto(L, PRECISION_f32);
}

const char *opt_device(lua_State *L, int arg, const char *def)
{
    const char *text = opt_string(L, arg, "device", def);
    return strcmp(text, "auto") ? text : push_auto(L, opt_precision(L, arg));
}

/* Precision `arg`, f32 where it is absent. */
static Precision opt_precision_at(lua_State *L, int arg)
{
    Precision p;
    if (!precision_find(luaL_optstring(L, arg, "f32"), &p)) raise_error(L);
    return p;
}

/* The number of a GPU at `arg`, 0 where it is absent. */
static int opt_number_at(lua_State *L, int arg)
{
    return lua_isnoneornil(L, arg) ? 0
                                   : (int)check_int(L, arg, "GPU", 0, INT_MAX);
}

/* core.device_due(precision = "f32", number = 0) -> the description of GPU
 * `number` if core.auto_device would check it now, which takes seconds; else
 * nil. Opens no device. */
static int l_device_due(lua_State *L)
{
    char text[BACKEND_TEXT];
    const Precision p = opt_precision_at(L, 1);
    if (auto_device_due(backend_gpu(), opt_number_at(L, 2), p, text))
        lua_pushstring(L, text);
    else
        lua_pushnil(L);
    return 1;
}

/* core.auto_device(precision = "f32", number = 0) -> what "auto" stands for in
 * a run in this precision, "cuda:0" or "cpu"; why it is the CPU ("" for a GPU);
 * and a warning for the user, or "" (AutoDevice) */
static int l_auto_device(lua_State *L)
{
    AutoDevice a;
    const Precision p = opt_precision_at(L, 1);
    auto_device(backend_gpu(), opt_number_at(L, 2), p, &a);
    lua_pushstring(L, a.device);
    lua_pushstring(L, a.why);
    lua_pushstring(L, a.warning);
    return 3;
}

/* core.open_device(text) opens a device and closes it again; raises when it
 * cannot be opened. */
static int l_open_device(lua_State *L)
{
    const char *text = check_device(L, 1);
    const Backend *be;
    int number;
    void *dev;
    if (!backend_find(text, &be, &number) ||
        !backend_open(be, text, number, 1, &dev))
        return raise_error(L);
    be->close(dev);
    return 0;
}

/* core.gpu(number = 0) -> true and a description, or false and the reason */
static int l_gpu(lua_State *L)
{
    char text[BACKEND_TEXT];
    const Backend *gpu = backend_gpu();
    const bool ok = gpu && gpu->describe(opt_number_at(L, 1), text);
    lua_pushboolean(L, ok);
    lua_pushstring(L, ok    ? text
                      : gpu ? err_text()
                            : "this program was built without CUDA");
    return 2;
}

void bind_device(lua_State *L)
{
    static const luaL_Reg functions[] = {{"device_due", l_device_due},
                                         {"auto_device", l_auto_device},
                                         {"open_device", l_open_device},
                                         {"gpu", l_gpu},
                                         {NULL, NULL}};
    luaL_setfuncs(L, functions, 0);
}
