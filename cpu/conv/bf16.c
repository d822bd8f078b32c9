/* bf16.c -- see bf16.h: which operands need bf16 copies, and the layout of
 * operands for the kernels.
 *
 * A new layout costs one pass over an operand, bound by memory, and a product
 * reads the operand many times. Winograd needs one only for the weights: its
 * transforms of the image read 16 bits instead of 32. */
#include "cpu/conv/bf16.h"
#include "cpu/conv/depthwise.h"
#include "cpu/conv/winograd.h"
#include "cpu/lib/blocks.h"
#include "cpu/lib/kernels.h"
#include "cpu/lib/simd.h"
#include <string.h>

// -- copies ------------------------------------------------------------------

bool is_bf16(const Call *c)
{
    Dims y = c->dy ? c->dy->dim : c->y->dim;
    Window g = op_window(c->attr, c->x[1]);
    return c->precision == PRECISION_bf16 && !is_depthwise(&g, c->x[0]->dim, y);
}

unsigned bf16_copies(const Call *c)
{
    unsigned copies = 0;
    if (!op_multiplies(call_op(c)) || !is_bf16(c)) return 0;
    if (!c->dy) copies = 1 | 2;
    if (c->dy && c->dx[0]) copies |= HALF_DY | 2;
    if (c->dy && c->dx[1]) copies |= HALF_DY | 1;
    return copies;
}

// Measured on Zen 5, one thread, with channels and extents of the brain U-Net:
// speed of Winograd relative to direct pairs. wgrad: 1.5 at 32 channels on both
// sides to 1.6 at 512. fprop and dgrad: 0.9 at 32 to 32, 1.1 at 32 to 64 and 64
// to 32, 1.2 to 1.3 with more channels. With AMX tiles the direct sum is at
// least as fast.
bool bf16_by_winograd(const Window *g, Dims in, Dims out, bool weights)
{
    enum { CHANNELS = 32, PRODUCTS = 2048 };
    const Pairs *pairs = simd()->pairs;
    const int64_t few = least(in.c, out.c), products = (int64_t)in.c * out.c;
    if (!winograd_fits(g, in, out)) return false;
    if (!pairs) return true;
    return !pairs->tiles && few >= CHANNELS &&
           (weights || products >= PRODUCTS);
}

static void convert_block(const Call *c, int64_t from, int64_t count)
{
    simd()->round_bf16(floats(c->x[0], from), count,
                       (uint16_t *)c->y->data + from);
}

bool cpu_convert(const Call *c)
{
    blocks_run(c, numel(c->y->dim), convert_block);
    return true;
}

// -- layouts of operands ------------------------------------------------------

/* A conversion of `rows` rows of `count` bf16 numbers to f32, or to pairs; the
 * last pair of a row may be half empty. */
typedef struct Conversion {
    const uint16_t *from;
    float *to;
    int64_t rows, count;
    bool pairs;
} Conversion;

/* Number of 32-bit elements of the result, a multiple of a cache line. */
static int64_t conversion_floats(const Conversion *l)
{
    int64_t row = l->pairs ? ceil_div(l->count, 2) : l->count;
    return round_up(l->rows * row, LANES_MAX);
}

static void widen_task(void *ctx, int64_t task, int thread)
{
    const Conversion *l = ctx;
    (void)thread;
    int64_t from = task * BLOCK;
    simd()->widen_bf16(l->from + from, least(BLOCK, l->rows * l->count - from),
                       l->to + from);
}

/* Pairs of rows with an odd length: one 0 is appended to each row. */
static void pair_task(void *ctx, int64_t task, int thread)
{
    const Conversion *l = ctx;
    (void)thread;
    int64_t pairs = ceil_div(l->count, 2), rows = most(1, BLOCK / pairs);
    int64_t end = least((task + 1) * rows, l->rows);
    for (int64_t i = task * rows; i < end; i++) {
        uint16_t *to = (uint16_t *)(l->to + i * pairs);
        memcpy(to, l->from + i * l->count, (size_t)l->count * sizeof *to);
        to[l->count] = 0;
    }
}

static void convert_run(Conversion *l, Pool *pool)
{
    int64_t row = l->pairs ? ceil_div(l->count, 2) : l->count;
    if (l->pairs)
        pool_run(pool, ceil_div(l->rows, most(1, BLOCK / row)), pair_task, l);
    else
        pool_run(pool, ceil_div(l->rows * row, BLOCK), widen_task, l);
}

/* The conversion of a whole operand to f32. */
static Conversion widening(const float *from, int64_t count)
{
    return (Conversion){
        .from = (const uint16_t *)from, .rows = 1, .count = count};
}

// -- fprop and dgrad ---------------------------------------------------------

/* An fprop or dgrad job and the conversions of its operands before it; rows is
 * 0 for an operand that is read as it is. */
typedef struct ConvertedJob {
    FpropDgrad c;
    Conversion x, w;
} ConvertedJob;

/* Converts a job with `half`. For Winograd only the weights become f32, as the
 * image transform of Winograd reads bf16. Without dot products of bf16 pairs
 * both operands become f32; else the channels of a group become pairs. */
static ConvertedJob converted_job(const FpropDgrad *c)
{
    ConvertedJob l = {.c = *c};
    int64_t taps = (int64_t)c->window.k[0] * c->window.k[1] * c->window.k[2];
    int64_t ci = c->in.c / c->window.groups,
            pixels = c->in.n * positions(c->in);

    l.c.half = false;
    if (!c->no_winograd && bf16_by_winograd(&c->window, c->in, c->out, false)) {
        l.c.half_x = true;
        l.w = widening(c->w, ci * taps * c->out.c);
        return l;
    }

    if (!simd()->pairs) {
        l.x = widening(c->x, pixels * c->in.c);
        l.w = widening(c->w, ci * taps * c->out.c);
        return l;
    }

    l.c.paired = ci;
    l.c.in.c = (int32_t)(c->window.groups * ceil_div(ci, 2));
    if (ci % 2)
        l.x = (Conversion){.from = (const uint16_t *)c->x,
                           .rows = pixels * c->window.groups,
                           .count = ci,
                           .pairs = true};
    return l;
}

size_t bf16_fprop_dgrad_bytes(const FpropDgrad *c)
{
    ConvertedJob l = converted_job(c);
    return (size_t)(conversion_floats(&l.x) + conversion_floats(&l.w)) *
               sizeof(float) +
           fprop_dgrad_bytes(&l.c);
}

void bf16_fprop_dgrad_run(const FpropDgrad *c, Pool *pool, void *scratch)
{
    ConvertedJob l = converted_job(c);
    float *at = scratch;
    if (l.x.rows) {
        l.c.x = l.x.to = at;
        convert_run(&l.x, pool);
    }
    at += conversion_floats(&l.x);
    if (l.w.rows) {
        l.c.w = l.w.to = at;
        convert_run(&l.w, pool);
    }
    at += conversion_floats(&l.w);
    fprop_dgrad_run(&l.c, pool, at);
}

// -- wgrad -------------------------------------------------------------------

/* Channel c of pixel `at` of a row, 0 outside of it. */
static uint16_t of_row(const uint16_t *row, Dims dim, int64_t at, int64_t c)
{
    return at >= 0 && at < dim.w ? row[at * dim.c + c] : 0;
}

/* Writes one row of pairs. Its ends may lie outside the image. */
static void pair_row(const uint16_t *row, Dims dim, const Axis *a,
                     const Region *r, float *to)
{
    const int64_t c = dim.c, many = r->many;
    int64_t from = a->first + r->w * a->step, span = axis_span(a, r->cols);
    // for pixels from `left` to `end` both pixels of the pair are inside
    int64_t left = least(most(-from, 0), span);
    int64_t end = most(least(dim.w - a->step - from, span), left);

    for (int64_t i = 0; i < span; i++) {
        if (i == left) i = end;
        for (int64_t k = 0; k < many && i < span; k++) {
            uint16_t pair[2] = {
                of_row(row, dim, from + i, r->from + k),
                of_row(row, dim, from + i + a->step, r->from + k)};
            memcpy(to + i * many + k, pair, sizeof pair);
        }
    }

    const uint16_t *x = row + (from + left) * c + r->from;
    // contiguous pixels are one long one
    int64_t pixels = c == many ? 1 : end - left;
    int64_t count = c == many ? (end - left) * c : many;
    for (int64_t i = 0; i < pixels; i++)
        simd()->pair_bf16(x + i * c, x + (i + a->step) * c, count,
                          to + (left + i) * many);
}

Strip strip_pairs(const float *x, Dims dim, const Axis a[3], const Region *r,
                  float *buffer)
{
    const int64_t width = (int64_t)dim.w * dim.c;
    const uint16_t *sample = (const uint16_t *)x + r->n * dim.d * dim.h * width;
    int64_t rows = axis_span(&a[1], r->rows);
    int64_t pitch = axis_span(&a[2], r->cols) * r->many;

    for (int64_t td = 0; td < a[0].taps; td++)
        for (int64_t i = 0; i < rows; i++) {
            int64_t d = a[0].first + r->d * a[0].step + td * a[0].gap;
            int64_t h = a[1].first + r->h * a[1].step + i;
            // rows outside the image are never read: see window.h
            if (d < 0 || d >= dim.d || h < 0 || h >= dim.h) continue;
            pair_row(sample + (d * dim.h + h) * width, dim, &a[2], r,
                     buffer + (td * rows + i) * pitch);
        }
    return (Strip){buffer, rows * pitch, pitch, r->many};
}

/* A wgrad job without dot products of pairs: both operands are converted to
 * f32. */
typedef struct ConvertedWgrad {
    Wgrad g;
    Conversion x, a;
} ConvertedWgrad;

static ConvertedWgrad converted_wgrad(const Wgrad *g)
{
    ConvertedWgrad l = {.g = *g};
    l.g.half = false;
    l.x = widening(g->x, g->in.n * positions(g->in) * g->in.c);
    l.a = widening(g->a, g->out.n * positions(g->out) * g->out.c);
    return l;
}

size_t bf16_wgrad_bytes(const Wgrad *g)
{
    ConvertedWgrad l = converted_wgrad(g);
    return (size_t)(conversion_floats(&l.x) + conversion_floats(&l.a)) *
               sizeof(float) +
           wgrad_bytes(&l.g);
}

void bf16_wgrad_run(const Wgrad *g, Pool *pool, void *scratch)
{
    ConvertedWgrad l = converted_wgrad(g);
    float *at = scratch;
    l.g.x = l.x.to = at;
    convert_run(&l.x, pool);
    at += conversion_floats(&l.x);
    l.g.a = l.a.to = at;
    convert_run(&l.a, pool);
    wgrad_run(&l.g, pool, at + conversion_floats(&l.a));
}
