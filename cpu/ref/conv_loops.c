/* conv_loops.c -- the three passes of conv_loops.h as plain loops.
 *
 * Each result belongs to one task, which sums it in one fixed order, so no
 * partial sums are needed. The innermost loop runs over contiguous channels,
 * and a piece of the weights is used for a whole row of positions before the
 * next piece is loaded. */
#include "cpu/ref/conv_loops.h"
#include "cpu/ref/window.h"

enum {
    BLOCK_A = 64, // image channels summed at a time, on the stack
    BLOCK_B = 4,  // grid channels that share a load of the image
    BLOCK_W = 8,  // positions that share a load of the weights
};

/* The operands of one pass; `out` is its result, and operands that it does not
 * read are NULL. */
typedef struct Job {
    const ConvProblem *r;
    const real *image, *grid, *w, *bias;
    real *out;
    bool fresh;
} Job;

// -- fprop -------------------------------------------------------------------

/* One sum of fprop: x and w point to channel 0 of the group in sample n and to
 * the weights of filter b. */
static double window_dot(const ConvProblem *r, const real *x, const real *w,
                         Taps td, Taps th, Taps tw)
{
    const Window *g = &r->win;
    // neighbouring taps of all channels are contiguous in both operands
    bool run = g->dil[2] == 1 && g->groups == 1;
    double sum = 0;

    for (int64_t kd = td.from; kd < td.to; kd++) {
        for (int64_t kh = th.from; kh < th.to; kh++) {
            const real *wk = w + (kd * g->k[1] + kh) * g->k[2] * r->a;
            const real *xk = x + at(r->image, 0, td.first + kd * g->dil[0],
                                    th.first + kh * g->dil[1], 0);
            for (int64_t kw = tw.from; kw < tw.to; kw += run ? tw.to : 1)
                sum +=
                    dot(xk + (tw.first + kw * g->dil[2]) * r->image.c,
                        wk + kw * r->a, run ? (tw.to - tw.from) * r->a : r->a);
        }
    }
    return sum;
}

/* Rows (n,d,h) of the grid. A filter goes over a whole row of positions before
 * the next one: its weights stay in L1. */
static void fprop_rows(void *ctx, int64_t from, int64_t to)
{
    const Job *j = ctx;
    const ConvProblem *r = j->r;
    int64_t taps = window_taps(&r->win);

    for (int64_t row = from; row < to; row++) {
        Place p = place(r->grid, row * r->grid.w);
        Taps td = taps_inside(&r->win, 0, p.d, r->image.d);
        Taps th = taps_inside(&r->win, 1, p.h, r->image.h);
        const real *x = j->image + at(r->image, p.n, 0, 0, 0);
        real *y = j->out + row * r->grid.w * r->grid.c;
        for (int64_t b = 0; b < r->grid.c; b++) {
            const real *xg = x + b / r->b * r->a;
            for (int64_t w = 0; w < r->grid.w; w++) {
                Taps tw = taps_inside(&r->win, 2, w, r->image.w);
                double sum = j->bias ? j->bias[b] : 0;
                sum += window_dot(r, xg, j->w + b * taps * r->a, td, th, tw);
                put(&y[w * r->grid.c + b], sum, j->fresh);
            }
        }
    }
}

void conv_fprop(const ConvProblem *r, const real *image, const real *w,
                const real *bias, real *grid, bool fresh)
{
    Job j = {r, image, NULL, w, bias, grid, fresh};
    int64_t taps = window_taps(&r->win);
    range_run(r->c, rows(r->grid) / r->grid.w,
              taps * r->a * r->grid.c * r->grid.w, fprop_rows, &j);
}

// -- dgrad -------------------------------------------------------------------

/* The sum as a gather: each image element sums over the grid positions that
 * read it, so no task writes to another's elements. Image positions `w0` ..
 * w0+count-1 of row p, channels a0 .. a0+na-1 of group `group`. */
static void dgrad_block(const Job *j, Place p, int64_t w0, int64_t count,
                        int64_t group, int64_t a0, int64_t na)
{
    const ConvProblem *r = j->r;
    const Window *g = &r->win;
    int64_t taps = window_taps(g), c0 = group * r->a + a0;
    double sum[BLOCK_W][BLOCK_A] = {{0}}; // 4 KiB: fits L1

    for (int64_t k = 0; k < taps; k++) {
        int64_t kk[3];
        tap_split(g, k, kk);
        int64_t d = result_at(g, 0, p.d, kk[0], r->grid.d);
        int64_t h = result_at(g, 1, p.h, kk[1], r->grid.h);
        if (d < 0 || h < 0) continue;
        const real *y = j->grid + at(r->grid, p.n, d, h, 0) + group * r->b;
        for (int64_t b = 0; b < r->b; b++) {
            const real *w = j->w + ((group * r->b + b) * taps + k) * r->a + a0;
            for (int64_t i = 0; i < count; i++) {
                int64_t q = result_at(g, 2, w0 + i, kk[2], r->grid.w);
                if (q >= 0) axpy(sum[i], y[q * r->grid.c + b], w, na);
            }
        }
    }

    for (int64_t i = 0; i < count; i++) {
        real *x = j->out + at(r->image, p.n, p.d, p.h, w0 + i) + c0;
        for (int64_t a = 0; a < na; a++)
            put(&x[a], sum[i][a] + (j->bias ? j->bias[c0 + a] : 0), j->fresh);
    }
}

/* Rows (n,d,h) of the image. */
static void dgrad_rows(void *ctx, int64_t from, int64_t to)
{
    const Job *j = ctx;
    const ConvProblem *r = j->r;
    for (int64_t row = from; row < to; row++)
        for (int64_t group = 0; group < r->win.groups; group++)
            for (int64_t a = 0; a < r->a; a += BLOCK_A)
                for (int64_t w = 0; w < r->image.w; w += BLOCK_W)
                    dgrad_block(j, place(r->image, row * r->image.w), w,
                                least(BLOCK_W, r->image.w - w), group, a,
                                least(BLOCK_A, r->a - a));
}

void conv_dgrad(const ConvProblem *r, const real *grid, const real *w,
                const real *bias, real *image, bool fresh)
{
    Job j = {r, NULL, grid, w, bias, image, fresh};
    int64_t taps = window_taps(&r->win);
    range_run(r->c, rows(r->image) / r->image.w,
              taps * r->b * r->image.c * r->image.w, dgrad_rows, &j);
}

// -- wgrad -------------------------------------------------------------------

/* Sums over all samples and positions for one small block of weights: grid
 * channels b0 .. b0+nb-1, tap k, channels a0 .. a0+na-1. */
static void wgrad_block(const Job *j, int64_t b0, int64_t nb, int64_t k,
                        int64_t a0, int64_t na)
{
    const ConvProblem *r = j->r;
    const Window *g = &r->win;
    int64_t kk[3], from[3], to[3], taps = window_taps(g);

    tap_split(g, k, kk);

    // extents d, h, w follow each other in Dims
    const int32_t *count = &r->grid.d, *size = &r->image.d;
    for (int i = 0; i < 3; i++)
        result_range(g, i, kk[i], count[i], size[i], &from[i], &to[i]);
    double sum[BLOCK_B][BLOCK_A] = {{0}};

    for (int64_t n = 0; n < r->grid.n; n++) {
        for (int64_t d = from[0]; d < to[0]; d++) {
            for (int64_t h = from[1]; h < to[1]; h++) {
                // may lie before the image until w * s is added
                int64_t x =
                    at(r->image, n, d * g->s[0] - g->lo[0] + kk[0] * g->dil[0],
                       h * g->s[1] - g->lo[1] + kk[1] * g->dil[1], 0) +
                    (kk[2] * g->dil[2] - g->lo[2]) * r->image.c +
                    b0 / r->b * r->a + a0;
                const real *y = j->grid + at(r->grid, n, d, h, 0) + b0;
                for (int64_t w = from[2]; w < to[2]; w++)
                    for (int64_t b = 0; b < nb; b++)
                        axpy(sum[b], y[w * r->grid.c + b],
                             j->image + x + w * g->s[2] * r->image.c, na);
            }
        }
    }

    for (int64_t b = 0; b < nb; b++)
        for (int64_t a = 0; a < na; a++)
            put(&j->out[((b0 + b) * taps + k) * r->a + a0 + a], sum[b][a],
                j->fresh);
}

/* Blocks of grid channels within one group, for each tap. */
static void wgrad_part(void *ctx, int64_t from, int64_t to)
{
    const Job *j = ctx;
    const ConvProblem *r = j->r;
    int64_t taps = window_taps(&r->win);
    int64_t blocks = ceil_div(r->b, BLOCK_B);

    for (int64_t i = from; i < to; i++) {
        int64_t k = i % taps, block = i / taps % blocks;
        int64_t group = i / taps / blocks;
        int64_t b = block * BLOCK_B, nb = least(BLOCK_B, r->b - b);
        for (int64_t a = 0; a < r->a; a += BLOCK_A)
            wgrad_block(j, group * r->b + b, nb, k, a,
                        least(BLOCK_A, r->a - a));
    }
}

void conv_wgrad(const ConvProblem *r, const real *image, const real *grid,
                real *w, bool fresh)
{
    Job j = {r, image, grid, NULL, NULL, w, fresh};
    int64_t taps = window_taps(&r->win);
    range_run(r->c, r->win.groups * ceil_div(r->b, BLOCK_B) * taps,
              rows(r->grid) * least(r->b, BLOCK_B) * r->a, wgrad_part, &j);
}

// -- bias --------------------------------------------------------------------

/* A matrix of rows of `width` numbers. */
typedef struct Columns {
    const real *x;
    int64_t width;
} Columns;

/* SumFn: adds rows from .. to-1, column by column. */
static void add_rows(void *ctx, int64_t set, int64_t from, int64_t to,
                     double *sum)
{
    const Columns *m = ctx;
    (void)set;
    for (int64_t i = from; i < to; i++)
        axpy(sum, 1, m->x + i * m->width, m->width);
}

void conv_bias_grad(const Call *c, Dims s, const real *dy, real *db, bool fresh)
{
    Columns m = {dy, s.c};
    const double *sum = sum_run(c, 1, rows(s), s.c, add_rows, &m, c->scratch);
    for (int64_t i = 0; i < s.c; i++) put(&db[i], sum[i], fresh);
}
