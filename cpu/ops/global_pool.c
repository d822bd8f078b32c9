/* global_pool.c -- mean over the positions within the length, fast.
 *
 * Positions of a sample are cut into blocks by shapes alone. A block adds STEP
 * rows at a time, whole rows in the order of memory, so that memory is read
 * contiguously. The sums of blocks are added in double, in order. Rows of few
 * channels are joined to one long row, for vectors. Bound by memory: forward
 * reads x once, backward writes dx once.
 *
 * A chain of f32 additions is STEP rows, then STEPS of their sums: some two
 * dozen roundings, which the bound `dot` allows for any numbers. */
#include "cpu/lib/blocks.h"
#include "cpu/lib/kernels.h"
#include "cpu/lib/simd.h"
#include "engine/graph/length.h"
#include <string.h>

enum {
    STEP = 8,          // rows that are added at a time
    STEPS = 16,        // .. of a block, at most
    WIDE = 64,         // floats of a long row: the registers of add_rows
    BYTES = 128 << 10, // of x in a block, but at least STEP rows
};

typedef struct Mean {
    const Call *c;
    int64_t rows, channels; // positions of a sample; C
    int64_t fold;           // rows that are joined to a long row
    int64_t block, blocks;  // rows of a block, whole long ones; of a sample
    float *part;            // fwd: (N, blocks, C), sums of blocks
    float *grad_row;        // bwd: (N, fold, C), gradient of a long row
} Mean;

static Mean mean_of(const Call *c)
{
    Dims s = c->x[0]->dim;
    Mean m = {.c = c, .rows = positions(s), .channels = s.c};
    // no more rows than a sample has
    m.fold = least(most(1, WIDE / s.c), m.rows);
    int64_t room = BYTES / (int64_t)sizeof(float) / (s.c * m.fold);
    m.block = m.fold * most(STEP, least(STEP * STEPS, room));
    m.blocks = ceil_div(m.rows, m.block);
    m.part = m.grad_row = c->scratch;
    return m;
}

Space cpu_global_avgpool_space(const Call *c)
{
    Mean m = mean_of(c);
    size_t row = (size_t)(c->x[0]->dim.n * m.channels) * sizeof(float);
    return (Space){.fwd = row * (size_t)m.blocks, .bwd = row * (size_t)m.fold};
}

/* Positions of sample n within its length. */
static int64_t own(const Mean *m, int64_t n)
{
    return length_of(m->c->x[1], n, m->rows);
}

/* A block: its sample, first row, rows, and rows within the length. */
typedef struct Part {
    int64_t n, row, rows, own;
} Part;

static Part part_of(const Mean *m, int64_t task)
{
    Part p = {.n = task / m->blocks, .row = task % m->blocks * m->block};
    p.rows = least(m->block, m->rows - p.row);
    p.own = most(0, least(p.rows, own(m, p.n) - p.row));
    return p;
}

/* sum = the sum of `rows` rows of n floats; 0 for no rows. */
static void add_up(const float *x, int64_t rows, int64_t n, float *sum)
{
    simd()->add_rows(x, least(rows, STEP), n, n, sum, false);
    for (int64_t r = STEP; r < rows; r += STEP)
        simd()->add_rows(x + r * n, least(rows - r, STEP), n, n, sum, true);
}

/* Forward: the sum of one block. */
static void sum_task(void *ctx, int64_t task, int thread)
{
    const Mean *m = ctx;
    Part p = part_of(m, task);
    int64_t wide = m->fold * m->channels, whole = p.own / m->fold;
    const float *x = floats(m->c->x[0], (p.n * m->rows + p.row) * m->channels);
    float *part = m->part + task * m->channels, sum[WIDE];

    (void)thread;
    if (m->fold == 1) {
        add_up(x, p.own, wide, part);
        return;
    }

    // an incomplete long row is added to its first elements
    int64_t rest = (p.own - whole * m->fold) * m->channels;
    add_up(x, whole, wide, sum);
    simd()->sum2(sum, x + whole * wide, rest, sum);
    for (int64_t i = 0; i < m->channels; i++) {
        double all = 0;
        for (int64_t k = i; k < wide; k += m->channels) all += sum[k];
        part[i] = (float)all;
    }
}

/* Forward: y of one sample. */
static void mean_task(void *ctx, int64_t n, int thread)
{
    const Mean *m = ctx;
    float *y = floats(m->c->y, n * m->channels);
    double count = (double)most(1, own(m, n));
    (void)thread;

    for (int64_t c0 = 0; c0 < m->channels; c0 += WIDE) {
        const float *part = m->part + n * m->blocks * m->channels + c0;
        int64_t wide = least(WIDE, m->channels - c0);
        double sum[WIDE] = {0};
        for (int64_t b = 0; b < m->blocks; b++)
            for (int64_t i = 0; i < wide; i++)
                sum[i] += part[b * m->channels + i];
        for (int64_t i = 0; i < wide; i++) y[c0 + i] = (float)(sum[i] / count);
    }
}

bool cpu_global_avgpool_fwd(const Call *c)
{
    Mean m = mean_of(c);
    int64_t n = c->x[0]->dim.n;
    pool_run(c->dev, n * m.blocks, sum_task, &m);
    pool_run(c->dev, n, mean_task, &m);
    return true;
}

/* Backward: the gradient of each position of a sample, repeated to a long
 * row. */
static void grad_row_task(void *ctx, int64_t n, int thread)
{
    const Mean *m = ctx;
    const float *dy = floats(m->c->dy, n * m->channels);
    float *share = m->grad_row + n * m->fold * m->channels;
    double factor = 1 / (double)most(1, own(m, n));
    (void)thread;
    for (int64_t i = 0; i < m->fold * m->channels; i++)
        share[i] = (float)(dy[i % m->channels] * factor);
}

/* Backward: dx of one block. Positions beyond the length get 0, even if dy is
 * not finite. */
static void grad_task(void *ctx, int64_t task, int thread)
{
    const Mean *m = ctx;
    Part p = part_of(m, task);
    bool add = !(m->c->fresh & 1);
    int64_t wide = m->fold * m->channels, whole = p.own / m->fold;
    const float *share = m->grad_row + p.n * wide;
    float *dx = floats(m->c->dx[0], (p.n * m->rows + p.row) * m->channels);

    (void)thread;
    simd()->copy_rows(share, 0, whole, wide, dx, wide, add);
    simd()->copy(share, p.own * m->channels - whole * wide, dx + whole * wide,
                 add);
    if (add) return;
    memset(dx + p.own * m->channels, 0,
           (size_t)((p.rows - p.own) * m->channels) * sizeof *dx);
}

bool cpu_global_avgpool_bwd(const Call *c)
{
    Mean m = mean_of(c);
    int64_t n = c->x[0]->dim.n;
    if (!c->dx[0]) return true;
    pool_run(c->dev, n, grad_row_task, &m);
    pool_run(c->dev, n * m.blocks, grad_task, &m);
    return true;
}
