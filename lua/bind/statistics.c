/* statistics.c -- the fitted numbers of standardize steps, for Lua. */
#include "data/preprocess/statistics.h"
#include "data/steps/standardize.h"
#include "lua/bind/data.h"
#include "lua/bind/user_step.h"

/* Push the text of `steps`. */
static int push_steps(lua_State *L, const Steps *steps)
{
    Arena mem = {NULL};
    const char *text = steps_print(steps, &mem);
    if (!text) return raise_error(L);
    // if Lua cannot allocate the copy, the arena leaks; the program ends then
    lua_pushstring(L, text);
    arena_release(&mem);
    return 1;
}

/* data.fit_steps(ds, text, {threads=0, cache_bytes=0, store=, functions=,
 * skip_bad=}) -> the text with the numbers of its standardize steps, fitted on
 * the cases of ds; lines that describe the fit; options as of data.pipeline.
 * Raises the error of a case (kind data), or that a signal came. */
static int l_fit(lua_State *L)
{
    static const char *const known[] = {"threads",   "cache_bytes", "store",
                                        "functions", "skip_bad",    NULL};
    Steps steps;
    Arena mem = {NULL};
    const char *said;
    const Dataset *ds = check_dataset(L, 1);

    check_keys(L, 3, "fit_steps", known);
    const PipelineOptions o = {
        .stop = signal_stopping(),
        .threads = (int)opt_int(L, 3, "threads", 0, 0, 1024),
        .cache_bytes = opt_int(L, 3, "cache_bytes", 0, 0, INT64_MAX),
        .store = opt_string(L, 3, "store", NULL),
        .skip_bad = opt_bool(L, 3, "skip_bad", false)};
    read_steps(L, 2, 3, &steps);
    const bool ok = statistics_fit(ds, &steps, &o, &mem, &said);
    drop_steps(L);
    if (ok) lua_pushstring(L, said);
    arena_release(&mem);
    if (!ok) return raise_error(L);
    push_steps(L, &steps);
    lua_insert(L, -2);
    return 2;
}

/* data.take_steps(from, to) -> the text `to` with the fitted numbers of the
 * standardize steps in the text `from`. Raises when the steps do not match
 * (kind usage). */
static int l_take(lua_State *L)
{
    Steps from, to;
    if (!steps_parse(luaL_checkstring(L, 1), &from) ||
        !steps_parse(luaL_checkstring(L, 2), &to) || !steps_take(&from, &to))
        return raise_error(L);
    return push_steps(L, &to);
}

/* data.fitted_steps(text) -> the text without steps that are not fitted */
static int l_fitted(lua_State *L)
{
    Steps all, out = {.count = 0};
    if (!steps_parse(luaL_checkstring(L, 1), &all)) return raise_error(L);
    for (int i = 0; i < all.count; i++)
        if (steps_fitted(&all.step[i])) out.step[out.count++] = all.step[i];
    return push_steps(L, &out);
}

void bind_statistics(lua_State *L)
{
    static const luaL_Reg functions[] = {{"fit_steps", l_fit},
                                         {"take_steps", l_take},
                                         {"fitted_steps", l_fitted},
                                         {NULL, NULL}};
    lua_getfield(L, -1, "data");
    luaL_setfuncs(L, functions, 0);
    lua_pop(L, 1);
}
