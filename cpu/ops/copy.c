/* copy.c -- concat: the channels of up to six operands one after the other,
 * fast.
 *
 * A task is a block of positions. It copies one operand after the other, so
 * that each kernel call has one row distance in both arrays. Bound by memory:
 * the block of the result (64 KiB) stays in L2 while the operands fill their
 * columns of it, so each line is written to memory once, whole. Pure copies:
 * any cut into tasks gives the same bits. */
#include "cpu/lib/kernels.h"
#include "cpu/lib/simd.h"
#include "cpu/lib/thread_pool.h"
#include "cpu/lib/window.h"

enum { BLOCK_BYTES = 64 << 10 }; // of the result, a task

typedef struct Job {
    const Call *c;
    int64_t rows, block; // positions of all; of a task
    int64_t channels;    // of the result
} Job;

/* y: extents of the result, or of dy. */
static Job job_of(const Call *c, Dims y)
{
    int64_t block = BLOCK_BYTES / (int64_t)sizeof(float) / y.c;
    return (Job){c, y.n * positions(y), most(1, block), y.c};
}

/* Forward: writes block `task` of y. */
static void join_task(void *ctx, int64_t task, int thread)
{
    const Job *j = ctx;
    (void)thread;
    int64_t from = task * j->block, rows = least(j->block, j->rows - from);
    float *y = (float *)j->c->y->data + from * j->channels;
    for (int i = 0; i < MAX_IN && j->c->x[i]; i++) {
        int64_t n = j->c->x[i]->dim.c;
        simd()->copy_rows((const float *)j->c->x[i]->data + from * n, n, rows,
                          n, y, j->channels, false);
        y += n;
    }
}

/* Backward: writes block `task` of each wanted dx. If an operand occurs twice,
 * its gradients may be the same memory: the later one adds to the earlier
 * one. */
static void split_task(void *ctx, int64_t task, int thread)
{
    const Job *j = ctx;
    (void)thread;
    int64_t from = task * j->block, rows = least(j->block, j->rows - from);
    const float *dy = (const float *)j->c->dy->data + from * j->channels;

    for (int i = 0; i < MAX_IN && j->c->x[i]; i++) {
        int64_t n = j->c->x[i]->dim.c;
        if (j->c->dx[i])
            simd()->copy_rows(dy, j->channels, rows, n,
                              (float *)j->c->dx[i]->data + from * n, n,
                              !(j->c->fresh >> i & 1));
        dy += n;
    }
}

bool cpu_concat_fwd(const Call *c)
{
    Job j = job_of(c, c->y->dim);
    pool_run(c->dev, ceil_div(j.rows, j.block), join_task, &j);
    return true;
}

bool cpu_concat_bwd(const Call *c)
{
    Job j = job_of(c, c->dy->dim);
    pool_run(c->dev, ceil_div(j.rows, j.block), split_task, &j);
    return true;
}
