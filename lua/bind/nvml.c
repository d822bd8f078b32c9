/* nvml.c -- the counters of a GPU's driver, for Lua. */
#include "engine/base/nvml.h"
#include "lua/bind/bind.h"
#include <math.h>
#include <stdio.h>

typedef struct GpuMonitorBox {
    GpuMonitor *g; /* NULL once closed */
    char address[BACKEND_ADDRESS];
} GpuMonitorBox;

static int gpu_monitor_gc(lua_State *L)
{
    GpuMonitorBox *box = luaL_checkudata(L, 1, "seg.gpu_monitor");
    gpu_monitor_close(box->g);
    box->g = NULL;
    return 0;
}

/* core.gpu_monitor(session or PCI address, seconds = 1) -> a monitor that
 * samples that GPU so often, or nil and the reason: no GPU, no NVML library */
static int l_gpu_monitor(lua_State *L)
{
    char address[BACKEND_ADDRESS];
    const char *at = lua_tostring(L, 1);
    const double every = luaL_optnumber(L, 2, 1);

    if (!at) {
        Session *s = check_session(L, 1);
        const Backend *be = session_backend(s);
        if (!be->address) {
            lua_pushnil(L);
            lua_pushliteral(L, "this device is not a GPU");
            return 2;
        }
        if (!be->address(session_device(s), address)) return raise_error(L);
        at = address;
    }

    GpuMonitorBox *box = new_object(L, "seg.gpu_monitor", sizeof *box);
    snprintf(box->address, sizeof box->address, "%s", at);
    if (gpu_monitor_open(NVML_LIBRARY, at, every, &box->g)) return 1;
    lua_pushnil(L);
    lua_pushstring(L, err_text());
    return 2;
}

/* g:read() -> {use=, watts=, bytes=, celsius=, joules=, looks=}, the samples
 * since the last reading (nvml.h), without values that the GPU lacks */
static int l_read(lua_State *L)
{
    GpuMonitorBox *box = luaL_checkudata(L, 1, "seg.gpu_monitor");
    GpuMonitorReading r;
    if (!box->g) raise_usage(L, "this GPU monitor is closed");
    gpu_monitor_read(box->g, &r);
    const struct {
        const char *key;
        double value;
    } fact[] = {{"use", r.use},
                {"watts", r.watts},
                {"bytes", r.bytes},
                {"celsius", r.celsius},
                {"joules", r.joules}};
    lua_createtable(L, 0, 6);
    set_integer(L, "looks", r.looks);
    for (size_t i = 0; i < sizeof fact / sizeof *fact; i++)
        if (!isnan(fact[i].value)) set_number(L, fact[i].key, fact[i].value);
    return 1;
}

/* g:address() -> the PCI address of its GPU */
static int l_address(lua_State *L)
{
    GpuMonitorBox *box = luaL_checkudata(L, 1, "seg.gpu_monitor");
    lua_pushstring(L, box->address);
    return 1;
}

/* core.gpu_driver() -> the driver's description of itself and each GPU, ""
 * without a driver; nil and the reason when the driver does not answer */
static int l_gpu_driver(lua_State *L)
{
    char text[2048];
    if (gpu_monitor_describe(NVML_LIBRARY, text, sizeof text)) {
        lua_pushstring(L, text);
        return 1;
    }
    lua_pushnil(L);
    lua_pushstring(L, err_text());
    return 2;
}

void bind_gpu_monitor(lua_State *L)
{
    static const luaL_Reg methods[] = {{"read", l_read},
                                       {"address", l_address},
                                       {"close", gpu_monitor_gc},
                                       {NULL, NULL}};
    static const luaL_Reg functions[] = {{"gpu_monitor", l_gpu_monitor},
                                         {"gpu_driver", l_gpu_driver},
                                         {NULL, NULL}};
    new_type(L, "seg.gpu_monitor", methods, gpu_monitor_gc);
    luaL_setfuncs(L, functions, 0);
}
