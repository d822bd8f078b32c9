/* kmeans.c -- core.measure.groups, silhouette and match: k-means clustering.
 *
 * Points are the rows of an array (N,K); groups are lists of N numbers from 0.
 */
#include "data/metrics/kmeans.h"
#include "lua/bind/bind.h"
#include <math.h>

/* The array at 1 as points. */
static Points check_points(lua_State *L)
{
    const Array *a = check_array(L, 1);
    if (a->axes != 2 || a->count == 0 || a->shape[1] > INT32_MAX)
        raise_usage(L, "points must be an array (N,K) of at least one point");
    return (Points){a->data, a->shape[0], (int)a->shape[1]};
}

/* measure.groups(points, {k=, starts=10, steps=300, seed=0}) -> list of groups,
 * sum of squared distances */
static int l_groups(lua_State *L)
{
    static const char *const known[] = {"k", "starts", "steps", "seed", NULL};
    const Points p = check_points(L);
    check_keys(L, 2, "groups", known);
    const KMeans how = {.k = (int)opt_int(L, 2, "k", 0, 1, 1 << 20),
                        .starts = (int)opt_int(L, 2, "starts", 10, 1, 1 << 20),
                        .steps = (int)opt_int(L, 2, "steps", 300, 1, 1 << 20),
                        .seed =
                            (uint64_t)opt_int(L, 2, "seed", 0, 0, INT64_MAX)};
    double spread;
    int32_t *group = lua_newuserdatauv(L, (size_t)p.count * sizeof *group, 0);
    if (!kmeans_run(&p, &how, group, &spread)) return raise_error(L);
    lua_createtable(L, 0, 0);
    for (int64_t i = 0; i < p.count; i++) {
        lua_pushinteger(L, group[i]);
        lua_rawseti(L, -2, i + 1);
    }
    lua_pushnumber(L, spread);
    return 2;
}

/* measure.silhouette(points, groups, {k=, most=2000, seed=0}) -> mean */
static int l_silhouette(lua_State *L)
{
    static const char *const known[] = {"k", "most", "seed", NULL};
    const Points p = check_points(L);
    luaL_checktype(L, 2, LUA_TTABLE);
    check_keys(L, 3, "silhouette", known);
    const int k = (int)opt_int(L, 3, "k", 0, 1, 1 << 20);
    const int64_t most = opt_int(L, 3, "most", 2000, 1, INT32_MAX);
    const uint64_t seed = (uint64_t)opt_int(L, 3, "seed", 0, 0, INT64_MAX);
    double mean;
    int32_t *group = lua_newuserdatauv(L, (size_t)p.count * sizeof *group, 0);
    for (int64_t i = 0; i < p.count; i++) {
        lua_rawgeti(L, 2, i + 1);
        group[i] = (int32_t)check_int(L, lua_gettop(L), "group", 0, k - 1);
        lua_pop(L, 1);
    }

    if (!silhouette(&p, group, k, most, seed, &mean)) return raise_error(L);
    lua_pushnumber(L, mean);
    return 1;
}

/* measure.match(rows of counts, k x k) -> list: the column, from 1, of each
 * row, in a one-to-one assignment with the largest sum of counts */
static int l_match(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TTABLE);
    const int64_t k = (int64_t)lua_rawlen(L, 1);
    if (k < 1 || k > 1024)
        raise_usage(L, "match takes 1 to 1024 rows, got %lld", (long long)k);
    double *count = lua_newuserdatauv(L, (size_t)(k * k) * sizeof *count, 0);
    int32_t *match = lua_newuserdatauv(L, (size_t)k * sizeof *match, 0);

    for (int64_t a = 0; a < k; a++) {
        lua_rawgeti(L, 1, a + 1);
        luaL_checktype(L, -1, LUA_TTABLE);
        for (int64_t b = 0; b < k; b++) {
            lua_rawgeti(L, -1, b + 1);
            count[a * k + b] = check_number(L, lua_gettop(L), "count");
            if (!isfinite(count[a * k + b]))
                raise_usage(
                    L, "match: count %lld of row %lld must be finite, got %g",
                    (long long)b + 1, (long long)a + 1, count[a * k + b]);
            lua_pop(L, 1);
        }
        lua_pop(L, 1);
    }

    if (!assign_groups(count, (int)k, match)) return raise_error(L);
    lua_createtable(L, (int)k, 0);
    for (int64_t a = 0; a < k; a++) {
        lua_pushinteger(L, match[a] + 1);
        lua_rawseti(L, -2, a + 1);
    }
    return 1;
}

void bind_kmeans(lua_State *L)
{
    static const luaL_Reg functions[] = {{"groups", l_groups},
                                         {"silhouette", l_silhouette},
                                         {"match", l_match},
                                         {NULL, NULL}};
    lua_getfield(L, -1, "measure");
    luaL_setfuncs(L, functions, 0);
    lua_pop(L, 1);
}
