/* sandbox.c -- see sandbox.h: makes a state, calls functions in it, ends
 * functions that do not return. */
#include "lua/bind/sandbox.h"
#include "engine/base/clock.h"
#include "lua/bind/embed.h"
#include <stdio.h>
#include <string.h>

enum {
    WATCH = 10000, // instructions between two checks of `stop`
    PATIENCE_S = 5 // after a signal: a training step may need this batch
};

struct Sandbox {
    lua_State *L;
    Sandbox *next;
    size_t bytes; // allocated by L
    bool full;    // the last allocation exceeded SANDBOX_BYTES
    UserStepCall *call;
    uint64_t number; // of the call: objects of other calls are invalid
    double signal_s; // when the call noticed a signal; 0: none yet
    bool ended;      // a call did not return in time after a signal
    bool stopped;
    atomic_bool ticks;           // the hook ran since the last sandbox_stuck
    char where[LUA_IDSIZE + 24]; // where it was stopped, as "x.lua:12"
};

// Their addresses are keys of the registry.
static const char case_key, functions_key;

static Sandbox *sandbox_of(lua_State *L)
{
    Sandbox *s;
    memcpy(&s, lua_getextraspace(L), sizeof s);
    return s;
}

Sandbox **sandbox_next(Sandbox *s)
{
    return &s->next;
}

UserStepCall *sandbox_call(lua_State *L, uint64_t *number)
{
    const Sandbox *s = sandbox_of(L);
    *number = s->number;
    return s->call;
}

/* lua_Alloc: memory of Lua is counted with all other memory. */
static void *allocate(void *context, void *p, size_t old, size_t bytes)
{
    Sandbox *s = context;
    if (!p) old = 0; // of a new block `old` is the type of the object
    if (!bytes) {
        mem_free(p);
        s->bytes -= old;
        return NULL;
    }

    s->full = bytes > old && s->bytes - old + bytes > SANDBOX_BYTES;
    if (s->full) return NULL;
    void *q = p ? mem_realloc(p, bytes) : mem_alloc(bytes);
    if (!q && bytes > old) return NULL;
    s->bytes += bytes - old;

    // Lua relies on it that shrinking a block succeeds
    return q ? q : p;
}

/* ---- calls that hang in a function of Lua's library ---------------------- */

enum { BUSY_MOST = 256 };

// States that run a call. One that finds no free entry is not supervised.
static _Atomic(Sandbox *) busy[BUSY_MOST];

/* Replace `old` by s in the table. */
static void set_busy(Sandbox *old, Sandbox *s)
{
    for (int i = 0; i < BUSY_MOST; i++) {
        Sandbox *there = old;
        if (atomic_compare_exchange_strong(&busy[i], &there, s)) return;
    }
}

bool sandbox_stuck(bool begin)
{
    bool stuck = false;
    for (int i = 0; i < BUSY_MOST; i++) {
        Sandbox *s = atomic_load(&busy[i]);
        if (!s) continue;
        const bool ticked = atomic_exchange(&s->ticks, false);
        stuck = stuck || (!begin && !ticked && signal_in_library(s->L));
    }
    return stuck;
}

/* ---- making a state ------------------------------------------------------ */

static const struct EmbeddedLua *find_globals(void)
{
    const struct EmbeddedLua *e = embedded_lua;
    while (strcmp(e->name, "seg.data.sandbox")) e++;
    return e;
}

/* (functions, count): the part of making a state that may raise. */
static int l_make(lua_State *L)
{
    static const luaL_Reg libraries[] = {
        {"_G", luaopen_base},       {"math", luaopen_math},
        {"string", luaopen_string}, {"table", luaopen_table},
        {"utf8", luaopen_utf8},     {NULL, NULL}};
    const SandboxFunction *f = lua_touserdata(L, 1);
    const int count = (int)lua_tointeger(L, 2);
    const struct EmbeddedLua *globals = find_globals();

    for (int i = 0; libraries[i].name; i++) {
        luaL_requiref(L, libraries[i].name, libraries[i].func, true);
        lua_pop(L, 1);
    }
    signal_guard(L);
    sandbox_types(L);
    if (luaL_loadbufferx(L, globals->text, globals->size, "=[sandbox.lua]",
                         "t"))
        return lua_error(L);
    lua_call(L, 0, 2);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &case_key);

    // chunks that are loaded from here on get these globals
    lua_rawseti(L, LUA_REGISTRYINDEX, LUA_RIDX_GLOBALS);
    lua_createtable(L, 2 * count, 0);

    for (int i = 0; i < count; i++) {
        if (luaL_loadbufferx(L, f[i].bytecode, f[i].bytes, "=function", "b"))
            return lua_error(L);
        lua_rawseti(L, -2, 2 * i + 1);
        // a chunk that makes a new table for every call, so that a function
        // cannot keep changes of it
        lua_pushfstring(L, "return %s", f[i].constants ? f[i].constants : "");
        if (luaL_loadbufferx(L, lua_tostring(L, -1), lua_rawlen(L, -1),
                             "=constants", "t"))
            return lua_error(L);
        lua_rawseti(L, -3, 2 * i + 2);
        lua_pop(L, 1);
    }

    lua_rawsetp(L, LUA_REGISTRYINDEX, &functions_key);
    return 0;
}

/* The reason of a call that raised: the value on top of the stack. */
static bool fail_raised(Sandbox *s, int status)
{
    if (s->stopped) return fail("stopped at %s", s->where);
    if (status == LUA_ERRMEM && s->full)
        return fail_usage("the function needs more than %d MiB in addition to "
                          "the fields; fix: fewer and smaller tables",
                          SANDBOX_BYTES >> 20);
    if (status == LUA_ERRMEM) return fail("no memory for Lua");
    const char *text = lua_tostring(s->L, -1);
    return fail_usage("%s", text ? text : "the function failed without a text");
}

bool sandbox_open(const SandboxFunction *f, int count, Sandbox **out)
{
    *out = NULL;
    Sandbox *s = mem_alloc(sizeof *s);
    if (!s) return false;
    s->L = lua_newstate(allocate, s);
    bool ok = s->L || fail("no memory for Lua");

    if (ok) {
        memcpy(lua_getextraspace(s->L), &s, sizeof s);
        lua_pushcfunction(s->L, l_make);
        lua_pushlightuserdata(s->L, (void *)(uintptr_t)f);
        lua_pushinteger(s->L, count);
        int status = lua_pcall(s->L, 2, 0, 0);
        ok = status == LUA_OK || fail_raised(s, status);
    }

    if (ok)
        *out = s;
    else
        sandbox_close(s);
    return ok;
}

void sandbox_close(Sandbox *s)
{
    if (!s) return;
    if (s->L) lua_close(s->L);
    CHECK(s->bytes == 0);
    mem_free(s);
}

/* ---- calling ------------------------------------------------------------- */

/* Must the function be ended? At once when its loader closes. After a signal
 * training still completes its step, which needs the result; a function that
 * takes longer than PATIENCE_S is ended, as it would keep the program alive. */
static bool is_over(Sandbox *s)
{
    const atomic_bool *stop = s->call->stop;
    if (stop && atomic_load(stop)) return true;
    if (!atomic_load(signal_stopping())) return false;
    if (s->signal_s == 0) s->signal_s = clock_s();
    // once one sample is lost the batch is, so later calls end at once
    s->ended = s->ended || clock_s() - s->signal_s > PATIENCE_S;
    return s->ended;
}

/* The hook, called every WATCH instructions. */
static void watch(lua_State *L, lua_Debug *ar)
{
    Sandbox *s = sandbox_of(L);
    (void)ar;
    atomic_store(&s->ticks, true);
    if (!s->stopped) {
        if (!is_over(s)) return;
        s->stopped = true;
        snprintf(s->where, sizeof s->where, "%s", push_where(L));
    }

    // a pcall of the function catches this error; the hook then raises again
    // at every instruction
    lua_sethook(L, watch, LUA_MASKCOUNT, 1);
    luaL_error(L, "stopped");
}

/* The raised value as a text, with script and line in front. */
static int l_message(lua_State *L)
{
    const char *text = lua_tostring(L, 1); // numbers too
    if (!text)
        text = lua_pushfstring(L, "the function raised a %s, which is not text",
                               luaL_typename(L, 1));
    const char *where = push_where(L), *line = strrchr(where, ':');
    // error(text, 0) omits the position; other levels give another one
    if (!line || strncmp(text, where, (size_t)(line - where) + 1) == 0)
        lua_pushstring(L, text);
    else
        lua_pushfstring(L, "%s: %s", where, text);
    return 1;
}

/* (which, from 0): calls the function. */
static int l_call(lua_State *L)
{
    UserStepCall *call = sandbox_of(L)->call;
    const lua_Integer which = lua_tointeger(L, 1);
    int arguments = 1;

    lua_rawgetp(L, LUA_REGISTRYINDEX, &functions_key);
    lua_rawgeti(L, 2, 2 * which + 1);

    // its one upvalue is _ENV; assignments of an earlier call are undone
    lua_rawgeti(L, LUA_REGISTRYINDEX, LUA_RIDX_GLOBALS);
    if (!lua_setupvalue(L, 3, 1)) lua_pop(L, 1);
    lua_rawgetp(L, LUA_REGISTRYINDEX, &case_key);
    lua_createtable(L, 0, call->fields);
    lua_createtable(L, call->fields, 0);

    for (int i = 0; i < call->fields; i++) {
        sandbox_push_field(L, i);
        lua_setfield(L, -3, call->field[i].name);
        lua_pushstring(L, call->field[i].name);
        lua_rawseti(L, -2, i + 1);
    }

    lua_call(L, 2, 1);
    if (call->draw) sandbox_push_draws(L), arguments++;
    lua_rawgeti(L, 2, 2 * which + 2);
    lua_call(L, 0, 1);
    lua_call(L, arguments + 1, 0);
    return 0;
}

bool sandbox_run(Sandbox *s, int which, UserStepCall *call)
{
    lua_State *L = s->L;
    s->call = call;
    s->number++;
    s->stopped = s->full = false;
    s->signal_s = 0;
    atomic_store(&s->ticks, true);
    set_busy(NULL, s);
    lua_sethook(L, watch, LUA_MASKCOUNT, WATCH);
    lua_pushcfunction(L, l_message);
    lua_pushcfunction(L, l_call);
    lua_pushinteger(L, which);
    int status = lua_pcall(L, 1, 0, 1);
    set_busy(s, NULL);

    // also when a pcall of the function caught the error at its very end
    bool ok = (status == LUA_OK && !s->stopped) || fail_raised(s, status);
    lua_settop(L, 0);
    s->call = NULL;
    return ok;
}
