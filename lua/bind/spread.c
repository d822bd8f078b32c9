/* spread.c -- many predictions of one batch, as seg.spread: their mean and
 * variance; and arrays mirrored, for flips.
 *
 * Mean and sum of squared deviations are updated with each prediction in double
 * (Welford, "Note on a method for calculating corrected sums of squares and
 * products", Technometrics 4 (1962)): equal predictions have variance 0. */
#include "lua/bind/bind.h"
#include <string.h>

typedef struct Spread {
    int axes;
    int64_t shape[MAX_AXES], count;
    double *mean, *square; /* (count); square: sum of squared deviations */
    int64_t n;             /* predictions so far */
    int64_t room;
} Spread;

static Spread *check_spread(lua_State *L)
{
    return luaL_checkudata(L, 1, "seg.spread");
}

static int spread_gc(lua_State *L)
{
    Spread *s = check_spread(L);
    mem_free(s->mean);
    mem_free(s->square);
    memset(s, 0, sizeof *s);
    return 0;
}

/* spread.new() -> a spread without predictions */
static int l_spread(lua_State *L)
{
    new_object(L, "seg.spread", sizeof(Spread));
    return 1;
}

/* s:clear(): removes all predictions */
static int l_clear(lua_State *L)
{
    check_spread(L)->n = 0;
    return 0;
}

static bool same_shape(const Spread *s, const Array *a)
{
    bool same = s->axes == a->axes;
    for (int i = 0; same && i < a->axes; i++) same = s->shape[i] == a->shape[i];
    return same;
}

/* s:add(array): adds one; all have the shape of the first */
static int l_add(lua_State *L)
{
    Spread *s = check_spread(L);
    const Array *a = check_array(L, 2);
    if (s->n && !same_shape(s, a))
        raise_usage(L, "predictions of different shapes have no mean");

    if (!s->n && a->count > s->room) {
        spread_gc(L);
        const size_t bytes = (size_t)a->count * sizeof(double);
        s->mean = mem_alloc(bytes);
        s->square = mem_alloc(bytes);
        if (!s->mean || !s->square) return raise_error(L);
        s->room = a->count;
        charge_memory(L, 2 * bytes);
    }

    if (!s->n) {
        s->axes = a->axes, s->count = a->count;
        memcpy(s->shape, a->shape, sizeof s->shape);
        memset(s->mean, 0, (size_t)a->count * sizeof(double));
        memset(s->square, 0, (size_t)a->count * sizeof(double));
    }

    const double n = (double)++s->n;
    for (int64_t i = 0; i < s->count; i++) {
        const double x = (double)a->data[i], off = x - s->mean[i];
        s->mean[i] += off / n;
        s->square[i] += off * (x - s->mean[i]);
    }
    return 0;
}

/* Channels of the result for this choice of variances. */
static int64_t channels_of(const Spread *s, const char *variances)
{
    const int64_t c = s->shape[1];
    return !strcmp(variances, "each") ? 2 * c : *variances ? c + 1 : c;
}

/* s:result(variances, into) -> array (N,C,...) of means; with variances "mean"
 * one channel more, the mean of the variances over all channels; with "each"
 * twice the channels, means and variances (divided by n). `into` is reused when
 * it has the shape. */
static int l_result(lua_State *L)
{
    static const char *const known[] = {"", "mean", "each", NULL};
    Spread *s = check_spread(L);
    const char *variances = known[luaL_checkoption(L, 2, "", known)];

    if (!s->n || s->axes < 2) raise_usage(L, "there are no predictions");
    const int64_t c = s->shape[1], all = channels_of(s, variances);
    int64_t shape[MAX_AXES], inner = 1;
    memcpy(shape, s->shape, sizeof shape);
    shape[1] = all;
    for (int i = 2; i < s->axes; i++) inner *= shape[i];
    Array *a = lua_isnoneornil(L, 3) ? NULL : check_array(L, 3);
    bool fits = a && a->axes == s->axes;
    for (int i = 0; fits && i < a->axes; i++) fits = a->shape[i] == shape[i];
    if (!fits) a = push_array(L, s->axes, shape);

    for (int64_t k = 0; k < shape[0]; k++) {
        const double *mean = s->mean + k * c * inner;
        const double *square = s->square + k * c * inner;
        float *y = a->data + k * all * inner;
        for (int64_t i = 0; i < c * inner; i++) y[i] = (float)mean[i];
        y += c * inner;
        for (int64_t i = 0; all == 2 * c && i < c * inner; i++)
            y[i] = (float)(square[i] / (double)s->n);
        for (int64_t i = 0; !strcmp(variances, "mean") && i < inner; i++) {
            double sum = 0;
            for (int64_t q = 0; q < c; q++) sum += square[q * inner + i];
            y[i] = (float)(sum / (double)(s->n * c));
        }
    }

    if (fits) lua_pushvalue(L, 3);
    return 1;
}

/* Numbers in reverse order along one axis, in place. */
static void mirror_axis(Array *a, int axis)
{
    int64_t outer = 1, inner = 1, n = a->shape[axis];
    for (int i = 0; i < axis; i++) outer *= a->shape[i];
    for (int i = axis + 1; i < a->axes; i++) inner *= a->shape[i];

    for (int64_t o = 0; o < outer; o++)
        for (int64_t k = 0; k < n / 2; k++) {
            float *x = a->data + (o * n + k) * inner;
            float *y = a->data + (o * n + n - 1 - k) * inner;
            for (int64_t i = 0; i < inner; i++) {
                const float t = x[i];
                x[i] = y[i], y[i] = t;
            }
        }
}

/* spread.mirror(a, axes): (N,C,[D],H,W) in place, mirrored along each letter of
 * axes, of w, h and d */
static int l_mirror(lua_State *L)
{
    Array *a = check_array(L, 1);
    const char *axes = luaL_checkstring(L, 2);
    for (; *axes; axes++) {
        const char *at = strchr("whd", *axes);
        const int axis = at ? a->axes - 1 - (int)(at - "whd") : -1;
        if (axis < 2)
            raise_usage(L, "an array of %d axes has no axis \"%c\"", a->axes,
                        *axes);
        mirror_axis(a, axis);
    }
    return 0;
}

/* spread.exchange(a, p, q): swaps channels p and q of (N,C,...), from 1 */
static int l_exchange(lua_State *L)
{
    Array *a = check_array(L, 1);
    const int64_t c = a->axes > 1 ? a->shape[1] : 0;
    const int64_t p = check_int(L, 2, "channel", 1, c) - 1;
    const int64_t q = check_int(L, 3, "channel", 1, c) - 1;
    const int64_t inner = a->count / (a->shape[0] * c);

    for (int64_t n = 0; n < a->shape[0]; n++)
        for (int64_t i = 0; i < inner; i++) {
            float *x = a->data + (n * c + p) * inner + i;
            float *y = a->data + (n * c + q) * inner + i;
            const float t = *x;
            *x = *y, *y = t;
        }
    return 0;
}

/* spread.negate(a, p): negates channel p of (N,C,...), from 1 */
static int l_negate(lua_State *L)
{
    Array *a = check_array(L, 1);
    const int64_t c = a->axes > 1 ? a->shape[1] : 0;
    const int64_t p = check_int(L, 2, "channel", 1, c) - 1;
    const int64_t inner = a->count / (a->shape[0] * c);
    for (int64_t n = 0; n < a->shape[0]; n++)
        for (int64_t i = 0; i < inner; i++)
            a->data[(n * c + p) * inner + i] *= -1;
    return 0;
}

void bind_spread(lua_State *L)
{
    static const luaL_Reg methods[] = {
        {"clear", l_clear}, {"add", l_add}, {"result", l_result}, {NULL, NULL}};
    static const luaL_Reg functions[] = {{"new", l_spread},
                                         {"mirror", l_mirror},
                                         {"exchange", l_exchange},
                                         {"negate", l_negate},
                                         {NULL, NULL}};
    new_type(L, "seg.spread", methods, spread_gc);
    luaL_newlib(L, functions);
    lua_setfield(L, -2, "spread");
}
