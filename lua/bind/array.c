/* array.c -- seg.array: f32 numbers in PyTorch's order.
 *
 * A userdata of shape and memory, (N,C,[D],[H],W) for a network, else any
 * shape; the last axis is contiguous and indices count from 1. Inputs and
 * outputs of a network and contents of .npy files are arrays. An array owns its
 * numbers and nothing else points to them, so it may be changed and dropped at
 * any time. */
#include "engine/base/rng.h"
#include "lua/bind/data.h"
#include <math.h>
#include <string.h>

Array *check_array(lua_State *L, int arg)
{
    Array *a = luaL_testudata(L, arg, "seg.array");
    if (!a) {
        luaL_tolstring(L, arg, NULL);
        raise_usage(L, "argument %d must be a seg.array, got %s", arg,
                    lua_tostring(L, -1));
    }
    return a;
}

static int array_gc(lua_State *L)
{
    Array *a = luaL_checkudata(L, 1, "seg.array");
    mem_free(a->data);
    a->data = NULL;
    a->count = 0;
    return 0;
}

Array *push_array(lua_State *L, int axes, const int64_t *shape)
{
    Array *a = new_object(L, "seg.array", sizeof *a);
    size_t count = 1, bytes;
    a->axes = axes;
    for (int i = 0; i < axes; i++) {
        a->shape[i] = shape[i];
        if (!size_mul(count, (size_t)shape[i], &count)) raise_error(L);
    }
    if (!size_mul(count, sizeof(float), &bytes)) raise_error(L);
    a->data = mem_alloc(bytes);
    if (!a->data) raise_error(L);
    a->count = (int64_t)count;
    charge_memory(L, bytes);
    return a;
}

/* The table at `arg` as a shape of whole numbers >= 1; the number of axes. A
 * shape without axes is one number. */
static int check_axes(lua_State *L, int arg, int64_t shape[MAX_AXES])
{
    if (!lua_istable(L, arg))
        raise_usage(L, "shape must be a table of extents, got %s",
                    luaL_typename(L, arg));
    int axes = (int)lua_rawlen(L, arg);
    if (axes > MAX_AXES)
        raise_usage(L, "shape has %d axes, at most %d", axes, MAX_AXES);
    for (int i = 0; i < axes; i++) {
        lua_rawgeti(L, arg, i + 1);
        shape[i] = check_int(L, lua_gettop(L), "extent", 1, INT32_MAX);
        lua_pop(L, 1);
    }
    return axes;
}

/* Fill `a` from number `at` on with the numbers of the table at index `table`,
 * nested in any way, in order. Returns the end position, which counts all
 * numbers, also beyond the room of `a`. The depth limit catches a table that
 * contains itself. */
static int64_t fill(lua_State *L, int table, Array *a, int64_t at, int depth)
{
    luaL_checkstack(L, 4, "data nested too deep");
    if (depth > MAX_AXES)
        raise_usage(L, "data is nested deeper than %d tables", MAX_AXES);
    int64_t n = (int64_t)lua_rawlen(L, table);

    for (int64_t i = 1; i <= n; i++) {
        lua_rawgeti(L, table, i);
        if (lua_istable(L, -1)) {
            at = fill(L, lua_gettop(L), a, at, depth + 1);
        } else {
            double v = check_number(L, lua_gettop(L), "data");
            if (at < a->count) a->data[at] = (float)v;
            at++;
        }
        lua_pop(L, 1);
    }
    return at;
}

/* seg.array{shape={...}, data={...}} -> array; without data, of zeros. Raises
 * when the number of data does not match the shape. */
static int array_new(lua_State *L)
{
    static const char *const known[] = {"shape", "data", NULL};
    int64_t shape[MAX_AXES];

    // called as a metamethod: the module table comes first
    check_keys(L, 2, "array", known);
    lua_getfield(L, 2, "shape");
    int axes = check_axes(L, lua_gettop(L), shape);
    Array *a = push_array(L, axes, shape);
    int type = lua_getfield(L, 2, "data");
    if (type != LUA_TNIL && type != LUA_TTABLE)
        raise_usage(L, "data must be a table of numbers, got %s",
                    luaL_typename(L, -1));

    if (type == LUA_TTABLE) {
        int64_t got = fill(L, lua_gettop(L), a, 0, 1);
        if (got != a->count)
            raise_usage(L, "data has %lld numbers, shape needs %lld",
                        (long long)got, (long long)a->count);
    }

    lua_pop(L, 1);
    return 1;
}

/* array.zeros(shape) -> array */
static int array_zeros(lua_State *L)
{
    int64_t shape[MAX_AXES];
    int axes = check_axes(L, 1, shape);
    push_array(L, axes, shape);
    return 1;
}

/* array.random(shape, seed, binary = false) -> array, uniform in [0, 1), or 0
 * and 1 with equal probability; the same for the same seed on every machine */
static int array_random(lua_State *L)
{
    int64_t shape[MAX_AXES];
    int axes = check_axes(L, 1, shape);
    Rng r = {.seed = (uint64_t)luaL_checkinteger(L, 2), .stream = RNG_USER};
    bool binary = lua_toboolean(L, 3);
    Array *a = push_array(L, axes, shape);
    for (int64_t i = 0; i < a->count; i++) {
        float u = rng_uniform(&r, (uint32_t)i);
        a->data[i] = binary ? (float)(u > 0.5f) : u;
    }
    return 1;
}

/* The element with the indices from argument `first` on, one for each axis;
 * raises for another number of indices and for an index out of range. */
static float *element(lua_State *L, const Array *a, int first)
{
    int64_t at = 0;
    for (int i = 0; i < a->axes; i++) {
        int64_t k = check_int(L, first + i, "index", 1, a->shape[i]);
        at = at * a->shape[i] + k - 1;
    }
    if (!lua_isnone(L, first + a->axes))
        raise_usage(L, "%d indices, the array has %d axes",
                    lua_gettop(L) - first + 1, a->axes);
    return &a->data[at];
}

/* a:get(i, ...) -> number */
static int array_get(lua_State *L)
{
    Array *a = check_array(L, 1);
    lua_pushnumber(L, (double)*element(L, a, 2));
    return 1;
}

/* a:set(value, i, ...); NaN and infinities are allowed */
static int array_set(lua_State *L)
{
    Array *a = check_array(L, 1);
    double v = lua_tonumber(L, 2);
    if (lua_type(L, 2) != LUA_TNUMBER)
        raise_usage(L, "value must be a number, got %s", luaL_typename(L, 2));
    *element(L, a, 3) = (float)v;
    return 0;
}

/* a:reshape{...} -> array with the same numbers in the same order and another
 * shape of as many elements; a copy */
static int array_reshape(lua_State *L)
{
    int64_t shape[MAX_AXES];
    Array *a = check_array(L, 1);
    int axes = check_axes(L, 2, shape);
    double count = 1;

    // checked before a wrong shape allocates memory
    for (int i = 0; i < axes; i++) count *= (double)shape[i];
    if (count != (double)a->count)
        raise_usage(L, "reshape: %lld elements, the new shape needs %.0f",
                    (long long)a->count, count);
    Array *b = push_array(L, axes, shape);
    memcpy(b->data, a->data, (size_t)a->count * sizeof(float));
    return 1;
}

/* a:stats() -> least, largest, mean (summed in double); a NaN shows in the
 * mean only, unless it comes first */
static int array_stats(lua_State *L)
{
    Array *a = check_array(L, 1);
    double lo = 0, hi = 0, sum = 0;

    for (int64_t i = 0; i < a->count; i++) {
        double v = (double)a->data[i];
        if (i == 0 || v < lo) lo = v;
        if (i == 0 || v > hi) hi = v;
        sum += v;
    }

    lua_pushnumber(L, lo);
    lua_pushnumber(L, hi);
    lua_pushnumber(L, a->count ? sum / (double)a->count : 0);
    return 3;
}

/* a:finite() -> whether no value is NaN or infinite */
static int array_finite(lua_State *L)
{
    const Array *a = check_array(L, 1);
    bool finite = true;
    for (int64_t i = 0; i < a->count; i++)
        finite = finite && isfinite(a->data[i]);
    lua_pushboolean(L, finite);
    return 1;
}

/* a:values() -> its different values, ascending, when there are few enough to
 * be labels, else nil */
static int array_values(lua_State *L)
{
    const Array *a = check_array(L, 1);
    UndeclaredValues found = {.count = 0};
    for (int64_t i = 0; i < a->count && !found.more; i++)
        undeclared_add(&found, (double)a->data[i]);
    return push_values(L, &found);
}

/* a.shape, a.count, or a method; any other name is an error, also the name of a
 * metamethod */
static int array_index(lua_State *L)
{
    Array *a = check_array(L, 1);
    const char *key = luaL_checkstring(L, 2);
    if (!strcmp(key, "shape")) {
        push_shape(L, a->axes, a->shape);
        return 1;
    }
    if (!strcmp(key, "count")) {
        lua_pushinteger(L, a->count);
        return 1;
    }
    lua_getmetatable(L, 1);
    if (lua_getfield(L, -1, key) != LUA_TNIL && *key != '_') return 1;
    return raise_usage(L,
                       "an array has no field \"%s\" (known: shape, count, "
                       "get, set, stats, finite, values, reshape, "
                       "distance)",
                       key);
}

/* "array 2x1x8x8" */
static int array_tostring(lua_State *L)
{
    Array *a = check_array(L, 1);
    luaL_Buffer b;
    luaL_buffinit(L, &b);
    luaL_addstring(&b, "array ");
    for (int i = 0; i < a->axes; i++) {
        lua_pushfstring(L, i ? "x%I" : "%I", (LUAI_UACINT)a->shape[i]);
        luaL_addvalue(&b);
    }
    luaL_pushresult(&b);
    return 1;
}

/* a:distance(b) -> sum (a - b)^2, sum b^2; both must have the same number of
 * elements */
static int array_distance(lua_State *L)
{
    Array *a = check_array(L, 1), *b = check_array(L, 2);
    double errors = 0, total = 0;
    if (a->count != b->count)
        return raise_usage(L, "distance: %lld elements and %lld",
                           (long long)a->count, (long long)b->count);
    for (int64_t i = 0; i < a->count; i++) {
        double want = (double)b->data[i], e = (double)a->data[i] - want;
        errors += e * e, total += want * want;
    }
    lua_pushnumber(L, errors);
    lua_pushnumber(L, total);
    return 2;
}

void bind_array(lua_State *L)
{
    static const luaL_Reg methods[] = {{"get", array_get},
                                       {"set", array_set},
                                       {"stats", array_stats},
                                       {"finite", array_finite},
                                       {"values", array_values},
                                       {"reshape", array_reshape},
                                       {"distance", array_distance},
                                       {"__index", array_index},
                                       {"__tostring", array_tostring},
                                       {NULL, NULL}};
    static const luaL_Reg functions[] = {
        {"zeros", array_zeros}, {"random", array_random}, {NULL, NULL}};
    new_type(L, "seg.array", methods, array_gc);
    luaL_newlib(L, functions);
    lua_createtable(L, 0, 1);
    lua_pushcfunction(L, array_new);
    lua_setfield(L, -2, "__call");
    lua_setmetatable(L, -2);
    lua_setfield(L, -2, "array");
}
