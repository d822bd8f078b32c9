/* training.c -- further methods of a session for training, in addition to the
 * step itself.
 *
 * Groups of parameters, averages of weights, and the step count at which the
 * optimiser begins. Lua decides all of it; these methods set it. */
#include "lua/bind/bind.h"

/* s:group(name, rate, decay): parameter `name` is updated with `rate` times the
 * rate of a step, and with this decay (nil: the optimiser's); to be called
 * before the first step */
static int l_group(lua_State *L)
{
    Session *s = check_session(L, 1);
    const char *name = luaL_checkstring(L, 2);
    double rate = check_number(L, 3, "rate");
    double decay = lua_isnoneornil(L, 4) ? -1 : check_number(L, 4, "decay");
    if (!params_group(session_params(s), name, rate, decay))
        return raise_error(L);
    return 0;
}

/* == averages ========================================================== */

/* s:ema(decay): keeps an average of the weights: the exponential moving average
 * over all optimiser steps, or with 0 a mean that average() adds to; it begins
 * with the present weights */
static int l_ema(lua_State *L)
{
    Session *s = check_session(L, 1);
    if (!session_ema(s, check_number(L, 2, "ema"))) return raise_error(L);
    return 0;
}

/* The session at 1, which must have an average and no queued step. */
static Session *check_average(lua_State *L)
{
    Session *s = check_session(L, 1);
    if (!session_params(s)->average)
        raise_usage(L, "this session averages no weights");
    if (session_under_way(s))
        raise_usage(L, "%d steps are under way: collect them first",
                    session_under_way(s));
    return s;
}

/* s:average(count): adds the present weights to the mean of `count` others */
static int l_average(lua_State *L)
{
    Session *s = check_average(L);
    int64_t count = check_int(L, 2, "count", 0, INT32_MAX);
    if (!session_average(s, count)) return raise_error(L);
    return 0;
}

/* s:swap(): exchanges weights and averages */
static int l_swap(lua_State *L)
{
    if (!session_swap(check_average(L))) return raise_error(L);
    return 0;
}

/* s:update_bn("begin" | "add" | "end"): computes the running statistics anew;
 * "add" after each forward(batch, true) */
static int l_update_bn(lua_State *L)
{
    static const char *const names[] = {"begin", "add", "end", NULL};
    static bool (*const calls[])(Session *) = {
        session_update_bn_begin, session_update_bn_add, session_update_bn_end};
    Session *s = check_session(L, 1);
    if (!calls[luaL_checkoption(L, 2, NULL, names)](s)) return raise_error(L);
    return 0;
}

/* s:begin_at(count): the optimiser starts fresh at step `count`, after updates
 * by other sessions of the same run */
static int l_begin_at(lua_State *L)
{
    Session *s = check_session(L, 1);
    StepState state = session_state(s);
    state.count = state.start = check_int(L, 2, "count", 0, INT64_MAX / 2);
    if (!session_set_state(s, &state)) return raise_error(L);
    return 0;
}

// adds to seg.session, which exists already
void bind_training(lua_State *L)
{
    static const luaL_Reg methods[] = {{"group", l_group},
                                       {"ema", l_ema},
                                       {"average", l_average},
                                       {"swap", l_swap},
                                       {"update_bn", l_update_bn},
                                       {"begin_at", l_begin_at},
                                       {NULL, NULL}};
    luaL_getmetatable(L, "seg.session");
    lua_getfield(L, -1, "__index");
    luaL_setfuncs(L, methods, 0);
    lua_pop(L, 2);
}
