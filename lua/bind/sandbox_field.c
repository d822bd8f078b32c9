/* sandbox_field.c -- fields and random draws as objects of a function that runs
 * as a data step.
 *
 *     f.name, f.kind, f.c, f.d, f.h, f.w, f.shape
 *     f:get(c, d, h, w)   f:set(c, d, h, w, v)   positions from 1; one for each
 *                         axis of the field: (c, h, w) of a picture
 *     f:add(x), f:mul(x), f:fill(x), f:clamp(lo, hi), f:apply(function(x) ...)
 *     f:mean(), f:std(), f:min(), f:max()
 *
 * All but get and set take two more optional arguments: channel (from 1), and
 * where, a field that is not 0 in the selected voxels. x of add, mul and fill
 * is a number or a field. Numbers are checked when they are stored, so that an
 * error has the line of the script. */
#include "engine/backend/augment.h"
#include "lua/bind/sandbox.h"
#include <math.h>
#include <string.h>

static const char field_type[] = "seg.case.field", draws_type[] = "seg.rng";

/* == fields ============================================================ */

typedef struct Box {
    uint64_t call; // number of the call that it belongs to
    int field;
} Box;

/* The field at `arg`, which must belong to the current call. */
static UserStepField *check_field(lua_State *L, int arg)
{
    const Box *box = luaL_checkudata(L, arg, field_type);
    uint64_t now;
    UserStepCall *call = sandbox_call(L, &now);
    if (box->call != now) luaL_error(L, "the field is of another case");
    return &call->field[box->field];
}

static float value_at(const UserStepField *f, int64_t i)
{
    return f->x.type == U8 ? ((const uint8_t *)f->x.data)[i]
                           : ((const float *)f->x.data)[i];
}

/* Element i becomes v; raises for values that the field cannot hold. */
static void store(lua_State *L, UserStepField *f, int64_t i, double v)
{
    if (f->kind == FIELD_LABEL) {
        uint64_t number;
        const int classes = sandbox_call(L, &number)->classes;
        // written so that NaN is refused
        if (!(v >= 0 && v <= classes && v == floor(v)))
            luaL_error(L, "%s: %f is not a class number from 0 to %d", f->name,
                       v, classes);
    } else if (!isfinite((float)v)) {
        luaL_error(L, "%s: a value would be %s", f->name,
                   isnan(v) ? "NaN" : "infinite");
    }

    if (f->x.type == U8)
        ((uint8_t *)f->x.data)[i] = (uint8_t)v;
    else
        ((float *)f->x.data)[i] = (float)v;
    f->changed = true;
}

/* The elements that a method selects: channels first .. last, at voxels where
 * `where` is not 0. */
typedef struct Walk {
    UserStepField *f;
    const UserStepField *where; // NULL: everywhere
    int64_t places;
    int32_t c, first, last; // from 0
    int64_t place;
} Walk;

/* Does `other` have the voxels of `f`, with as many channels or one? */
static bool fits(const UserStepField *f, const UserStepField *other)
{
    const Dims a = f->x.dim, b = other->x.dim;
    return a.d == b.d && a.h == b.h && a.w == b.w && (b.c == a.c || b.c == 1);
}

static UserStepField *check_fitting(lua_State *L, const UserStepField *f,
                                    int arg)
{
    UserStepField *other = check_field(L, arg);
    if (!fits(f, other))
        luaL_error(L,
                   "%s has %d channels of %d x %d x %d voxels (d, h, w), %s "
                   "has %d of %d x %d x %d: the extents differ",
                   f->name, (int)f->x.dim.c, (int)f->x.dim.d, (int)f->x.dim.h,
                   (int)f->x.dim.w, other->name, (int)other->x.dim.c,
                   (int)other->x.dim.d, (int)other->x.dim.h,
                   (int)other->x.dim.w);
    return other;
}

/* The element of another field at a voxel, in channel c or its only one. */
static float other_value(const UserStepField *other, int64_t place, int32_t c)
{
    const int32_t n = other->x.dim.c;
    return value_at(other, place * n + (n == 1 ? 0 : c));
}

/* The elements selected by a channel at `arg` and a field after it; both are
 * optional. */
static Walk check_walk(lua_State *L, int arg)
{
    UserStepField *f = check_field(L, 1);
    Walk w = {.f = f,
              .places = positions(f->x.dim),
              .last = f->x.dim.c - 1,
              .place = -1};

    if (lua_isnoneornil(L, arg)) {
        arg++;
    } else if (!lua_isuserdata(L, arg)) {
        const lua_Integer c = luaL_checkinteger(L, arg);
        if (c < 1 || c > f->x.dim.c)
            luaL_error(L, "%s has channels 1 to %d, got %I", f->name,
                       (int)f->x.dim.c, (LUAI_UACINT)c);
        w.first = w.last = (int32_t)c - 1;
        arg++;
    }

    if (!lua_isnoneornil(L, arg)) w.where = check_fitting(L, f, arg);
    w.c = w.last;
    return w;
}

/* The next element, in the order of memory; -1 at the end. */
static int64_t walk_next(Walk *w)
{
    do {
        if (w->c < w->last) {
            w->c++;
        } else {
            w->c = w->first;
            if (++w->place == w->places) return -1;
        }
    } while (w->where && other_value(w->where, w->place, w->c) == 0);
    return w->place * w->f->x.dim.c + w->c;
}

/* == a number at a place =============================================== */

/* The element at the positions from argument 2 on, one for each axis of the
 * field; `more` arguments follow them. */
static int64_t check_place(lua_State *L, const UserStepField *f, int more)
{
    static const char *const axes[] = {"c", "c, w", "c, h, w", "c, d, h, w"};
    const int rank = f->x.rank;
    const Dims n = f->x.dim;
    const int32_t extent[] = {n.c, n.d, n.h, n.w};
    int32_t at[] = {0, 0, 0, 0};

    if (lua_gettop(L) != 2 + rank + more)
        luaL_error(L, "%s: positions are %s%s; got %d arguments, wanted %d",
                   f->name, axes[rank], more ? ", then the value" : "",
                   lua_gettop(L) - 1, 1 + rank + more);

    for (int i = 0; i <= rank; i++) {
        // c is followed by the last axes of d, h, w
        const int axis = i ? 3 - rank + i : 0;
        const lua_Integer p = luaL_checkinteger(L, 2 + i);
        if (p < 1 || p > extent[axis])
            luaL_error(L, "%s: %c is from 1 to %d, got %I", f->name,
                       "cdhw"[axis], (int)extent[axis], (LUAI_UACINT)p);
        at[axis] = (int32_t)p - 1;
    }
    return (((int64_t)at[1] * n.h + at[2]) * n.w + at[3]) * n.c + at[0];
}

/* f:get(c, ...) -> number */
static int l_get(lua_State *L)
{
    const UserStepField *f = check_field(L, 1);
    lua_pushnumber(L, (double)value_at(f, check_place(L, f, 0)));
    return 1;
}

/* f:set(c, ..., v) -> f */
static int l_set(lua_State *L)
{
    UserStepField *f = check_field(L, 1);
    const int64_t i = check_place(L, f, 1);
    store(L, f, i, luaL_checknumber(L, -1));
    lua_settop(L, 1);
    return 1;
}

/* == operations on all elements ======================================== */

typedef enum Sum { SUM_ADD, SUM_MUL, SUM_FILL } Sum;

/* f:add(x, channel, where), mul and fill -> f */
static int combine(lua_State *L, Sum how)
{
    const bool number = lua_type(L, 2) == LUA_TNUMBER;
    Walk w = check_walk(L, 3);
    const UserStepField *other = number ? NULL : check_fitting(L, w.f, 2);
    const double x = number ? lua_tonumber(L, 2) : 0;

    for (int64_t i; (i = walk_next(&w)) >= 0;) {
        const double now = (double)value_at(w.f, i);
        const double y = other ? (double)other_value(other, w.place, w.c) : x;
        store(L, w.f, i,
              how == SUM_ADD   ? now + y
              : how == SUM_MUL ? now * y
                               : y);
    }

    lua_settop(L, 1);
    return 1;
}

static int l_add(lua_State *L)
{
    return combine(L, SUM_ADD);
}

static int l_mul(lua_State *L)
{
    return combine(L, SUM_MUL);
}

static int l_fill(lua_State *L)
{
    return combine(L, SUM_FILL);
}

/* f:clamp(lo, hi, channel, where) -> f */
static int l_clamp(lua_State *L)
{
    const double lo = luaL_checknumber(L, 2), hi = luaL_checknumber(L, 3);
    Walk w = check_walk(L, 4);
    if (!(lo <= hi)) luaL_error(L, "clamp: %f to %f is not a range", lo, hi);
    for (int64_t i; (i = walk_next(&w)) >= 0;) {
        const double v = (double)value_at(w.f, i);
        store(L, w.f, i, v < lo ? lo : v > hi ? hi : v);
    }
    lua_settop(L, 1);
    return 1;
}

/* f:apply(function(x) return y end, channel, where) -> f */
static int l_apply(lua_State *L)
{
    luaL_checktype(L, 2, LUA_TFUNCTION);
    Walk w = check_walk(L, 3);

    for (int64_t i; (i = walk_next(&w)) >= 0;) {
        lua_pushvalue(L, 2);
        lua_pushnumber(L, (double)value_at(w.f, i));
        lua_call(L, 1, 1);
        if (lua_type(L, -1) != LUA_TNUMBER)
            luaL_error(L,
                       "%s: apply: the function returned a %s, wanted a "
                       "number",
                       w.f->name, luaL_typename(L, -1));
        store(L, w.f, i, lua_tonumber(L, -1));
        lua_pop(L, 1);
    }

    lua_settop(L, 1);
    return 1;
}

/* Sums in double, in the order of memory. */
typedef struct Moments {
    int64_t count;
    double sum, least, most;
} Moments;

static Moments measure(lua_State *L)
{
    Moments m = {.least = INFINITY, .most = -INFINITY};
    Walk w = check_walk(L, 2);

    for (int64_t i; (i = walk_next(&w)) >= 0; m.count++) {
        const double v = (double)value_at(w.f, i);
        m.sum += v;
        m.least = v < m.least ? v : m.least;
        m.most = v > m.most ? v : m.most;
    }

    if (!m.count)
        luaL_error(L, "%s: no voxels, %s is 0 everywhere", w.f->name,
                   w.where ? w.where->name : w.f->name);
    return m;
}

/* f:mean(channel, where), min and max -> number */
static int l_mean(lua_State *L)
{
    const Moments m = measure(L);
    lua_pushnumber(L, m.sum / (double)m.count);
    return 1;
}

static int l_min(lua_State *L)
{
    lua_pushnumber(L, measure(L).least);
    return 1;
}

static int l_max(lua_State *L)
{
    lua_pushnumber(L, measure(L).most);
    return 1;
}

/* f:std(channel, where) -> sqrt(mean (x - mean)^2) */
static int l_std(lua_State *L)
{
    const Moments m = measure(L);
    const double mean = m.sum / (double)m.count;
    Walk w = check_walk(L, 2);
    double sum = 0;
    for (int64_t i; (i = walk_next(&w)) >= 0;) {
        const double off = (double)value_at(w.f, i) - mean;
        sum += off * off;
    }
    lua_pushnumber(L, sqrt(sum / (double)m.count));
    return 1;
}

/* == members of a field ================================================= */

/* f[key]: a method, or a property of the field. */
static int l_index(lua_State *L)
{
    static const char *const kinds[] = {"image", "value", "label", "numbers"};
    const UserStepField *f = check_field(L, 1);
    const char *key = luaL_checkstring(L, 2);
    const Dims n = f->x.dim;
    const int32_t extent[] = {n.c, n.d, n.h, n.w};
    const char *axis = *key && !key[1] ? strchr("cdhw", *key) : NULL;

    if (axis) {
        lua_pushinteger(L, extent[axis - strchr("cdhw", 'c')]);
    } else if (!strcmp(key, "name")) {
        lua_pushstring(L, f->name);
    } else if (!strcmp(key, "kind")) {
        lua_pushstring(L, kinds[f->kind]);
    } else if (!strcmp(key, "shape")) {
        int64_t shape[2 + RANK_MAX];
        const int axes = dims_to_user(n, f->x.rank, shape);
        push_shape(L, axes - 1, shape + 1);
    } else if (lua_pushvalue(L, 2),
               lua_rawget(L, lua_upvalueindex(1)) == LUA_TNIL) {
        return luaL_error(L,
                          "a field has no %s; it has name, kind, c, d, h, "
                          "w, shape and the methods get, set, add, mul, "
                          "fill, clamp, apply, mean, std, min, max",
                          key);
    }
    return 1;
}

/* == draws ============================================================= */

typedef struct Draws {
    uint64_t call; // number of the call that they belong to
    Rng rng;
    uint64_t next; // index of the next draw
} Draws;

/* The draws at argument 1, which must belong to the current call. */
static Draws *check_draws(lua_State *L)
{
    Draws *d = luaL_checkudata(L, 1, draws_type);
    uint64_t now;
    sandbox_call(L, &now);
    if (d->call != now) luaL_error(L, "rng is of another sample");
    return d;
}

/* The index of the next draw; `pair`: of the next pair of draws. */
static uint32_t take(lua_State *L, Draws *d, bool pair)
{
    uint64_t at = pair ? (d->next + 1) / 2 * 2 : d->next;
    d->next = at + (pair ? 2 : 1);
    if (d->next > UINT32_MAX) luaL_error(L, "more than 2^32 draws");
    return (uint32_t)at;
}

/* rng:uniform(lo = 0, hi = 1) -> number in [lo, hi) */
static int l_uniform(lua_State *L)
{
    Draws *d = check_draws(L);
    const double lo = luaL_optnumber(L, 2, 0), hi = luaL_optnumber(L, 3, 1);
    const double u = (double)rng_uniform(&d->rng, take(L, d, false));
    lua_pushnumber(L, lo + (hi - lo) * u);
    return 1;
}

/* rng:normal(mean = 0, sd = 1) -> number */
static int l_normal(lua_State *L)
{
    Draws *d = check_draws(L);
    const double mean = luaL_optnumber(L, 2, 0), sd = luaL_optnumber(L, 3, 1);
    // the second number of the pair is dropped: the result then depends on the
    // script's calls alone
    const double z = (double)rng_normal(&d->rng, take(L, d, true));
    lua_pushnumber(L, mean + sd * z);
    return 1;
}

/* rng:int(lo, hi) -> an integer in lo .. hi, uniformly */
static int l_int(lua_State *L)
{
    Draws *d = check_draws(L);
    const lua_Integer lo = luaL_checkinteger(L, 2),
                      hi = luaL_checkinteger(L, 3);
    if (lo > hi || (uint64_t)hi - (uint64_t)lo >= UINT32_MAX)
        luaL_error(L,
                   "int: %I to %I is not a range of at most 2^32 - 1 numbers",
                   (LUAI_UACINT)lo, (LUAI_UACINT)hi);
    const uint32_t n = (uint32_t)((uint64_t)hi - (uint64_t)lo + 1);
    lua_pushinteger(L, lo + rng_below(&d->rng, take(L, d, false), n));
    return 1;
}

/* == making ============================================================ */

void sandbox_push_field(lua_State *L, int field)
{
    uint64_t now;
    const UserStepField *f = &sandbox_call(L, &now)->field[field];
    if (f->kind == FIELD_LENGTH) {
        lua_pushinteger(L, (lua_Integer)value_at(f, 0));
        return;
    }
    Box *box = lua_newuserdatauv(L, sizeof *box, 0);
    *box = (Box){.call = now, .field = field};
    luaL_setmetatable(L, field_type);
}

void sandbox_push_draws(lua_State *L)
{
    uint64_t now;
    const UserStepCall *call = sandbox_call(L, &now);
    Draws *d = lua_newuserdatauv(L, sizeof *d, 0);
    *d = (Draws){.call = now, .rng = *call->draw, .next = CHANGE_DRAWS};
    luaL_setmetatable(L, draws_type);
}

void sandbox_types(lua_State *L)
{
    static const luaL_Reg methods[] = {
        {"get", l_get},     {"set", l_set},   {"add", l_add},
        {"mul", l_mul},     {"fill", l_fill}, {"clamp", l_clamp},
        {"apply", l_apply}, {"mean", l_mean}, {"std", l_std},
        {"min", l_min},     {"max", l_max},   {NULL, NULL}};
    static const luaL_Reg draws[] = {{"uniform", l_uniform},
                                     {"normal", l_normal},
                                     {"int", l_int},
                                     {NULL, NULL}};
    luaL_newmetatable(L, field_type);
    luaL_newlib(L, methods);
    lua_pushcclosure(L, l_index, 1);
    lua_setfield(L, -2, "__index");
    luaL_newmetatable(L, draws_type);
    luaL_newlib(L, draws);
    lua_setfield(L, -2, "__index");
    lua_pop(L, 2);
}
