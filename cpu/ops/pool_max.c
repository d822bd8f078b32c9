/* pool_max.c -- largest element of each window, fast where windows do not
 * overlap (stride >= kernel on all axes) and have at most 256 taps; the plain
 * loops take the other calls.
 *
 * Bound by memory: each number of x is read once. Channels lie along the
 * vectors, and the taps of a window are compared in registers. A result whose
 * window is cut by a border is a kernel call of its own with fewer taps, so the
 * kernel has no tests for borders. A task is a row of results along w.
 *
 * Saved: the tap of the maximum of each result, one byte. In the backward pass
 * each element of the operand belongs to at most one window, so no two tasks
 * write to one element and nothing is summed. */
#include "cpu/lib/blocks.h"
#include "cpu/lib/kernels.h"
#include "cpu/lib/simd.h"
#include <string.h>

enum { TAPS_MOST = 256 }; // so that a tap number fits a byte

/* Must return the same in space, fwd and bwd: the saved data differ from those
 * of the plain loops. */
static bool is_fast(const Window *g)
{
    for (int i = 0; i < 3; i++)
        if (g->s[i] < g->k[i]) return false;
    return (int64_t)g->k[0] * g->k[1] * g->k[2] <= TAPS_MOST;
}

typedef struct Job {
    const Call *c;
    const Simd *simd;
    Window g;
    Dims x, y;        // extents of operand and result
    int64_t from, to; // columns with windows inside the image
} Job;

/* y: extents of the result; backward those of dy. Only the extents of operand 0
 * are used: its data need not be kept. */
static Job job_of(const Call *c, Dims y)
{
    Job j = {c, simd(), op_window(c->attr, NULL), c->x[0]->dim, y, 0, 0};
    int64_t lo = j.g.lo[2], s = j.g.s[2], k = j.g.k[2];
    j.from = least(ceil_div(lo, s), y.w);
    // the last window inside begins at w*s - lo <= x.w - k
    int64_t room = j.x.w + lo - k;
    j.to = most(j.from, room < 0 ? 0 : least(room / s + 1, y.w));
    return j;
}

/* Runs results w .. w+cols-1 of row number `row` = (n,d,h); all their windows
 * have the same taps inside the image. */
static void run_cols(const Job *j, int64_t row, int64_t w, int64_t cols,
                     bool forward)
{
    const Window *g = &j->g;
    int64_t h = row % j->y.h, d = row / j->y.h % j->y.d;
    int64_t n = row / j->y.h / j->y.d;
    int64_t at[3] = {d * g->s[0] - g->lo[0], h * g->s[1] - g->lo[1],
                     w * g->s[2] - g->lo[2]};

    // only the list of addresses of this direction is filled; the rule for
    // shapes leaves every window at least one tap inside
    const float *x[TAPS_MOST];
    float *dx[TAPS_MOST];
    int number[TAPS_MOST];
    PoolRow p = {.x = x,
                 .dx = dx,
                 .number = number,
                 .cols = cols,
                 .step = (int64_t)g->s[2] * j->x.c,
                 .channels = j->x.c};

    for (int k = 0; k < g->k[0] * g->k[1] * g->k[2]; k++) {
        int64_t id = at[0] + k / g->k[2] / g->k[1];
        int64_t ih = at[1] + k / g->k[2] % g->k[1], iw = at[2] + k % g->k[2];
        if (id < 0 || id >= j->x.d || ih < 0 || ih >= j->x.h || iw < 0 ||
            iw >= j->x.w)
            continue;
        int64_t i = ((n * j->x.d + id) * j->x.h + ih) * j->x.w + iw;
        if (forward)
            x[p.taps] = floats(j->c->x[0], i * j->x.c);
        else
            dx[p.taps] = floats(j->c->dx[0], i * j->x.c);
        number[p.taps++] = k;
    }

    // results, dy and `which` have the same order
    int64_t out = (row * j->y.w + w) * j->y.c;
    uint8_t *which = (uint8_t *)j->c->saved + out;
    if (forward)
        j->simd->pool_max(&p, floats(j->c->y, out), which);
    else
        j->simd->pool_max_grad(&p, floats(j->c->dy, out), which,
                               !(j->c->fresh & 1));
}

/* Left border column by column, the middle in one call, right border. */
static void run_row(const Job *j, int64_t row, bool forward)
{
    for (int64_t w = 0; w < j->from; w++) run_cols(j, row, w, 1, forward);
    if (j->to > j->from) run_cols(j, row, j->from, j->to - j->from, forward);
    for (int64_t w = j->to; w < j->y.w; w++) run_cols(j, row, w, 1, forward);
}

static void fwd_task(void *ctx, int64_t task, int thread)
{
    (void)thread;
    run_row(ctx, task, true);
}

static void bwd_task(void *ctx, int64_t task, int thread)
{
    (void)thread;
    run_row(ctx, task, false);
}

/* Rows (n,d,h) of results: the number of tasks. */
static int64_t rows(Dims y)
{
    return (int64_t)y.n * y.d * y.h;
}

/* Are there elements outside all windows? Their gradient is 0. */
static bool has_gaps(const Job *j)
{
    const int64_t x[3] = {j->x.d, j->x.h, j->x.w};
    const int64_t y[3] = {j->y.d, j->y.h, j->y.w};
    for (int i = 0; i < 3; i++)
        if (j->g.s[i] > j->g.k[i] || y[i] * j->g.s[i] - j->g.lo[i] < x[i])
            return true;
    return false;
}

/* BlockFn: dx = 0. */
static void clear(const Call *c, int64_t from, int64_t count)
{
    memset(floats(c->dx[0], from), 0, (size_t)count * sizeof(float));
}

Space cpu_maxpool_space(const Call *c)
{
    Window g = op_window(c->attr, NULL);
    if (!is_fast(&g)) return plain_maxpool_space(c);
    return (Space){.saved = (size_t)numel(c->y->dim)};
}

bool cpu_maxpool_fwd(const Call *c)
{
    Job j = job_of(c, c->y->dim);
    if (!is_fast(&j.g)) return plain_maxpool_fwd(c);
    pool_run(c->dev, rows(j.y), fwd_task, &j);
    return true;
}

bool cpu_maxpool_bwd(const Call *c)
{
    Job j = job_of(c, c->dy->dim);
    if (!is_fast(&j.g)) return plain_maxpool_bwd(c);
    if (!c->dx[0]) return true;
    // windows do not overlap: a task writes all elements of its windows, and
    // only elements between windows must be cleared before
    if ((c->fresh & 1) && has_gaps(&j)) blocks_run(c, numel(j.x), clear);
    pool_run(c->dev, rows(j.y), bwd_task, &j);
    return true;
}
