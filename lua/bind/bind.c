/* bind.c -- shared by all bindings: raising, checking, objects.
 *
 * Raising: an error of this program is a text that begins with a line of the
 * recipe, and a kind that becomes the exit code. Lua's errors carry no kind, so
 * the last raised text is kept with its kind and compared at the very end
 * (raised_kind).
 *
 * Checking: arguments are read without calling Lua code: metamethods of an
 * options table are not called, so a string that a check returns lives as long
 * as the table does. */
#include "lua/bind/bind.h"
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MESSAGE_MAX = ERR_MAX + 512 };

// the last raise; the state runs on one thread, workers never raise
static char last_message[MESSAGE_MAX];
static ErrKind last_kind;
static size_t last_wanted, last_room; // of fail_memory(), else 0

void settle_stack(lua_State *L, int slots)
{
    // a frame keeps the slots that it asked for; without memory the stack grows
    // on demand as always
    (void)lua_checkstack(L, slots);
}

const char *push_where(lua_State *L)
{
    lua_Debug ar;
    for (int level = 0; lua_getstack(L, level, &ar); level++) {
        lua_getinfo(L, "Sl", &ar);
        // embedded modules have sources that begin with '=', files with '@'
        if (*ar.source == '@' && ar.currentline > 0)
            return lua_pushfstring(L, "%s:%d", ar.short_src, ar.currentline);
    }
    return lua_pushstring(L, "");
}

/* Raise the last reason with the prefix `where` (or none, ""). */
static int raise_at(lua_State *L, const char *where)
{
    // this error already stops a script that a signal is to stop
    if (signal_caught()) {
        lua_sethook(L, NULL, 0, 0);
        signal_heard();
    }

    // a reason that already begins with this position does not repeat it
    bool named = !*where || !strncmp(err_text(), where, strlen(where));
    snprintf(last_message, sizeof last_message, "%s%s%s", named ? "" : where,
             named ? "" : ": ", err_text());
    last_kind = err_kind();
    last_wanted = err_wanted(&last_room);
    lua_pushstring(L, last_message);
    return lua_error(L);
}

int raise_error(lua_State *L)
{
    return raise_at(L, push_where(L));
}

int raise_bare(lua_State *L)
{
    return raise_at(L, "");
}

int raise_usage(lua_State *L, const char *fmt, ...)
{
    char text[ERR_MAX];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    err_set(ERR_USAGE, text);
    return raise_error(L);
}

/* Is `message` the text of the last raise? With SEG_TRACEBACK a traceback
 * follows it, after a line break. */
static bool raised_last(const char *message)
{
    size_t n = strlen(last_message);
    return message && n && !strncmp(message, last_message, n) &&
           (!message[n] || message[n] == '\n');
}

ErrKind raised_kind(const char *message)
{
    return raised_last(message) ? last_kind : ERR_FAILURE;
}

size_t raised_wanted(const char *message, size_t *room)
{
    bool ours = raised_last(message);
    *room = ours ? last_room : 0;
    return ours ? last_wanted : 0;
}

/* The number at `at` as an integer in lo .. hi, or an error for `name`. */
static int64_t integer_at(lua_State *L, int at, const char *name, int64_t lo,
                          int64_t hi)
{
    int whole;
    lua_Integer v = lua_tointegerx(L, at, &whole);

    // "3" is not a number here, although Lua would convert it
    if (lua_type(L, at) != LUA_TNUMBER || !whole) {
        luaL_tolstring(L, at, NULL);
        raise_usage(L, "%s must be a whole number, got %s (%s)", name,
                    lua_tostring(L, -1), luaL_typename(L, at));
    }

    if (v < lo || v > hi)
        raise_usage(L, "%s must be from %lld to %lld, got %lld", name,
                    (long long)lo, (long long)hi, (long long)v);
    return v;
}

/* The number at `at`, infinite ones too, or an error for `name`. NaN is an
 * error: nobody writes it in an option on purpose. */
static double number_at(lua_State *L, int at, const char *name)
{
    double v = lua_tonumber(L, at);
    if (lua_type(L, at) != LUA_TNUMBER || isnan(v)) {
        luaL_tolstring(L, at, NULL);
        raise_usage(L, "%s must be a number, got %s (%s)", name,
                    lua_tostring(L, -1), luaL_typename(L, at));
    }
    return v;
}

int64_t check_int(lua_State *L, int arg, const char *name, int64_t lo,
                  int64_t hi)
{
    return integer_at(L, arg, name, lo, hi);
}

double check_number(lua_State *L, int arg, const char *name)
{
    return number_at(L, arg, name);
}

int raw_field(lua_State *L, int arg, const char *key)
{
    lua_pushstring(L, key);
    return lua_rawget(L, arg);
}

/* Push field `key` of the options at `arg`. False, with nothing pushed, when
 * there are no options or it is nil; raises when they are not a table. */
static bool push_option(lua_State *L, int arg, const char *key)
{
    if (lua_isnoneornil(L, arg)) return false;
    if (lua_type(L, arg) != LUA_TTABLE)
        raise_usage(L, "options must be a table {...}, got %s",
                    luaL_typename(L, arg));
    if (raw_field(L, arg, key) != LUA_TNIL) return true;
    lua_pop(L, 1);
    return false;
}

int64_t opt_int(lua_State *L, int arg, const char *key, int64_t def, int64_t lo,
                int64_t hi)
{
    if (!push_option(L, arg, key)) return def;
    int64_t v = integer_at(L, lua_gettop(L), key, lo, hi);
    lua_pop(L, 1);
    return v;
}

double opt_number(lua_State *L, int arg, const char *key, double def)
{
    if (!push_option(L, arg, key)) return def;
    double v = number_at(L, lua_gettop(L), key);
    lua_pop(L, 1);
    return v;
}

bool opt_bool(lua_State *L, int arg, const char *key, bool def)
{
    if (!push_option(L, arg, key)) return def;
    if (!lua_isboolean(L, -1))
        raise_usage(L, "%s must be true or false, got %s", key,
                    luaL_typename(L, -1));
    bool v = lua_toboolean(L, -1);
    lua_pop(L, 1);
    return v;
}

const char *opt_string(lua_State *L, int arg, const char *key, const char *def)
{
    if (!push_option(L, arg, key)) return def;
    if (lua_type(L, -1) != LUA_TSTRING)
        raise_usage(L, "%s must be a string, got %s", key,
                    luaL_typename(L, -1));
    // the table keeps the string alive
    const char *v = lua_tostring(L, -1);
    lua_pop(L, 1);
    return v;
}

static int lesser(int a, int b)
{
    return a < b ? a : b;
}

/* Edits that turn a into b: letters changed, added or dropped, neighbours
 * exchanged (optimal string alignment); LONG when a string is longer. */
static int distance(const char *a, const char *b)
{
    enum { LONG = 32 };

    // d[i][j]: from the first i letters of a to the first j of b
    int d[LONG + 1][LONG + 1], m = (int)strlen(a), n = (int)strlen(b);
    if (n > LONG || m > LONG) return LONG;
    for (int i = 0; i <= m; i++) d[i][0] = i;
    for (int j = 0; j <= n; j++) d[0][j] = j;

    for (int i = 1; i <= m; i++)
        for (int j = 1; j <= n; j++) {
            int change = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
            d[i][j] = lesser(change, lesser(d[i - 1][j], d[i][j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                d[i][j] = lesser(d[i][j], d[i - 2][j - 2] + 1);
        }
    return d[m][n];
}

/* Is `key` in the list? If not, *nearest is the name closest to it. */
static bool known_key(const char *key, const char *const *known,
                      const char **nearest)
{
    int best = 1000;
    for (; *known; known++) {
        int d = distance(key, *known);
        if (d == 0) return true;
        if (d < best) best = d, *nearest = *known;
    }
    return false;
}

void check_keys(lua_State *L, int arg, const char *what,
                const char *const *known)
{
    if (lua_isnoneornil(L, arg)) return;
    if (lua_type(L, arg) != LUA_TTABLE)
        raise_usage(L, "%s: options must be a table {...}, got %s", what,
                    luaL_typename(L, arg));
    lua_pushnil(L);

    while (lua_next(L, arg)) {
        const char *nearest = "";
        lua_pop(L, 1); // the key stays: the next round starts from it
        if (lua_type(L, -1) != LUA_TSTRING)
            raise_usage(L, "%s: options have names, got a value at [%s]", what,
                        luaL_tolstring(L, -1, NULL));
        if (known_key(lua_tostring(L, -1), known, &nearest)) continue;
        luaL_Buffer b;
        luaL_buffinit(L, &b);
        for (int i = 0; known[i]; i++) {
            if (i) luaL_addstring(&b, ", ");
            luaL_addstring(&b, known[i]);
        }
        luaL_pushresult(&b);
        raise_usage(L,
                    "%s: unknown option \"%s\"; did you mean \"%s\"? "
                    "(known: %s)",
                    what, lua_tostring(L, -2), nearest, lua_tostring(L, -1));
    }
}

void *new_object(lua_State *L, const char *type, size_t bytes)
{
    void *p = lua_newuserdatauv(L, bytes, 1);
    memset(p, 0, bytes);
    luaL_setmetatable(L, type);
    return p;
}

void charge_memory(lua_State *L, size_t bytes)
{
    size_t kib = bytes / 1024;
    if (kib) lua_gc(L, LUA_GCSTEP, kib < INT_MAX ? (int)kib : INT_MAX);
}

void push_shape(lua_State *L, int axes, const int64_t *shape)
{
    lua_createtable(L, axes, 0);
    for (int i = 0; i < axes; i++) {
        lua_pushinteger(L, shape[i]);
        lua_rawseti(L, -2, i + 1);
    }
}

void push_numbers(lua_State *L, int count, const double *v)
{
    lua_createtable(L, count, 0);
    for (int i = 0; i < count; i++) {
        lua_pushnumber(L, v[i]);
        lua_rawseti(L, -2, i + 1);
    }
}

void set_number(lua_State *L, const char *key, double v)
{
    lua_pushnumber(L, v);
    lua_setfield(L, -2, key);
}

void push_bytes(lua_State *L, size_t bytes)
{
    if (bytes > INT64_MAX)
        lua_pushnil(L);
    else
        lua_pushinteger(L, (lua_Integer)bytes);
}

void set_integer(lua_State *L, const char *key, int64_t v)
{
    lua_pushinteger(L, v);
    lua_setfield(L, -2, key);
}

void set_bool(lua_State *L, const char *key, bool v)
{
    lua_pushboolean(L, v);
    lua_setfield(L, -2, key);
}

void set_text(lua_State *L, const char *key, const char *v)
{
    lua_pushstring(L, v);
    lua_setfield(L, -2, key);
}

void new_type(lua_State *L, const char *type, const luaL_Reg *methods,
              lua_CFunction gc)
{
    luaL_newmetatable(L, type);
    luaL_setfuncs(L, methods, 0);

    if (gc) {
        lua_pushcfunction(L, gc);
        lua_pushvalue(L, -1);
        lua_setfield(L, -3, "__gc");
        lua_setfield(L, -2, "__close");
    }

    // methods are found through the metatable unless it has its own __index
    if (lua_getfield(L, -1, "__index") == LUA_TNIL) {
        lua_pushvalue(L, -2);
        lua_setfield(L, -3, "__index");
    }
    lua_pop(L, 2);
}

bool next_input(lua_State *L, int arg)
{
    if (!lua_istable(L, arg))
        raise_usage(L, "inputs must be a table name -> array, got %s",
                    luaL_typename(L, arg));
    if (!lua_next(L, arg)) return false;
    if (lua_type(L, -2) != LUA_TSTRING)
        raise_usage(L, "inputs have names, got a value at [%s]",
                    luaL_tolstring(L, -2, NULL));
    return true;
}

bool read_frozen(lua_State *L, int arg, Params *p)
{
    int top = lua_gettop(L), type = lua_getfield(L, arg, "frozen");
    bool ok = type == LUA_TNIL || type == LUA_TTABLE;
    if (!ok) fail_usage("frozen must be a list of names");
    for (int i = 1; ok && type == LUA_TTABLE; i++, lua_pop(L, 1)) {
        if (lua_rawgeti(L, top + 1, i) == LUA_TNIL) break;
        ok = lua_type(L, -1) == LUA_TSTRING
                 ? params_freeze(p, lua_tostring(L, -1))
                 : fail_usage("frozen must be a list of names");
    }
    lua_settop(L, top);
    return ok;
}
