/* user_step.c -- functions of a recipe that run as steps change and vary.
 *
 * functions.lua has checked and dumped them. This file copies them out of the
 * state of the recipe for the workers (user_step.h); each call runs in a state
 * that no other thread uses (sandbox.h). States are made on demand and kept
 * until the last holder of the hook releases it, so their number is at most the
 * number of threads that called at one time. */
#include "lua/bind/user_step.h"
#include "lua/bind/sandbox.h"
#include <pthread.h>
#include <string.h>

typedef struct Functions {
    UserStep user_step; // the first member: the hook points to a Functions
    atomic_int holders;
    SandboxFunction function[MAX_STEPS];
    int count;
    Arena mem; // bytecode and constants
    pthread_mutex_t lock;
    Sandbox *idle; // guarded by lock
} Functions;

/* == what workers call ================================================= */

/* The function with these numbers; read_steps has checked that it exists. */
static int find_function(const Functions *f, double code, double with)
{
    int i = 0;
    while (i < f->count &&
           (f->function[i].code != code || f->function[i].with != with))
        i++;
    return i;
}

static bool functions_run(UserStep *h, double code, double with,
                          UserStepCall *call)
{
    Functions *f = (Functions *)h;
    const int which = find_function(f, code, with);
    CHECK(which < f->count);
    pthread_mutex_lock(&f->lock);
    Sandbox *s = f->idle;
    if (s) f->idle = *sandbox_next(s);
    pthread_mutex_unlock(&f->lock);
    if (!s && !sandbox_open(f->function, f->count, &s)) return false;
    bool ok = sandbox_run(s, which, call);
    pthread_mutex_lock(&f->lock);
    *sandbox_next(s) = f->idle;
    f->idle = s;
    pthread_mutex_unlock(&f->lock);
    return ok;
}

static void functions_hold(UserStep *h)
{
    atomic_fetch_add(&((Functions *)h)->holders, 1);
}

static void functions_drop(UserStep *h)
{
    Functions *f = (Functions *)h;
    if (atomic_fetch_sub(&f->holders, 1) > 1) return;
    while (f->idle) {
        Sandbox *s = f->idle;
        f->idle = *sandbox_next(s);
        sandbox_close(s);
    }
    pthread_mutex_destroy(&f->lock);
    arena_release(&f->mem);
    mem_free(f);
}

static bool functions_new(Functions **out)
{
    Functions *f = *out = mem_alloc(sizeof *f);
    if (!f) return false;
    f->user_step = (UserStep){functions_run, functions_hold, functions_drop};
    f->holders = 1;
    pthread_mutex_init(&f->lock, NULL);
    return true;
}

/* == copies out of the state of the recipe ============================== */

typedef struct FunctionsBox {
    Functions *f; // NULL: none
} FunctionsBox;

static int functions_gc(lua_State *L)
{
    FunctionsBox *box = luaL_checkudata(L, 1, "seg.functions");
    if (box->f) box->f->user_step.drop(&box->f->user_step);
    box->f = NULL;
    return 0;
}

/* Copy the function that the table on top of the stack describes. False without
 * memory. */
static bool add_function(lua_State *L, Functions *f)
{
    const int at = lua_gettop(L);
    SandboxFunction *one = &f->function[f->count];
    one->code = opt_number(L, at, "code", 0);
    one->with = opt_number(L, at, "with", 0);
    const char *constants = opt_string(L, at, "constants", NULL);
    if (raw_field(L, at, "bytecode") != LUA_TSTRING)
        raise_usage(L, "functions: bytecode is missing");
    const char *bytecode = lua_tolstring(L, -1, &one->bytes);
    char *copy = arena_alloc(&f->mem, one->bytes);
    if (!copy) return false;
    memcpy(copy, bytecode, one->bytes);
    one->bytecode = copy;
    if (constants) one->constants = arena_strdup(&f->mem, constants);
    lua_pop(L, 1);
    f->count++;
    return !constants || one->constants;
}

void read_steps(lua_State *L, int arg, int options, Steps *out)
{
    FunctionsBox *box = new_object(L, "seg.functions", sizeof *box);
    if (!steps_parse(luaL_checkstring(L, arg), out)) raise_error(L);
    if (lua_isnoneornil(L, options)) return;
    const bool some = raw_field(L, options, "functions") == LUA_TTABLE;
    const int list = lua_gettop(L), count = some ? (int)lua_rawlen(L, list) : 0;
    if (count > MAX_STEPS) raise_usage(L, "functions: more than %d", MAX_STEPS);
    if (count && !functions_new(&box->f)) raise_error(L);
    for (int i = 0; i < count; i++) {
        lua_rawgeti(L, list, i + 1);
        if (!add_function(L, box->f)) raise_error(L);
        lua_pop(L, 1);
    }

    for (int i = 0; i < out->count && box->f; i++) {
        const DataStep *s = &out->step[i];
        if (s->id != STEP_change && s->id != STEP_vary) continue;
        if (find_function(box->f, s->change.code, s->change.with) ==
            box->f->count)
            raise_usage(L, "%s: its function is missing",
                        step_info[s->id].name);
    }

    if (box->f) out->user_step = &box->f->user_step;
    lua_pop(L, 1);
}

void drop_steps(lua_State *L)
{
    FunctionsBox *box = luaL_checkudata(L, -1, "seg.functions");
    if (box->f) box->f->user_step.drop(&box->f->user_step);
    box->f = NULL;
    lua_pop(L, 1);
}

void bind_function(lua_State *L)
{
    new_type(L, "seg.functions", (luaL_Reg[]){{NULL, NULL}}, functions_gc);
}
