/* blocks.h -- elementwise kernels over long arrays, one task a block of
 * elements.
 *
 * Such kernels do one or two operations a number and are bound by memory: a
 * second core adds little, and the vectors only have to keep up. Blocks give
 * each thread an equal part and a range of the result of its own. Two blocks
 * never write to one cache line, because BLOCK is a multiple of a line and
 * tensors begin at one. A kernel that reduces writes one partial sum a block,
 * and blocks_sum adds the partial sums. */
#ifndef SEG_CPU_LIB_BLOCKS_H
#define SEG_CPU_LIB_BLOCKS_H
#include "cpu/lib/thread_pool.h"
#include "cpu/lib/window.h"

/* Elements of a block: a few microseconds of memory traffic; handing out a task
 * costs well under one. */
enum { BLOCK = 16384 };

/* Computes elements from .. from+count-1; from is a multiple of BLOCK. Several
 * calls run at the same time on different threads. */
typedef void BlockFn(const Call *c, int64_t from, int64_t count);

/* The arguments of one blocks_run, shared by its tasks. */
typedef struct Blocks {
    const Call *c;
    BlockFn *fn;
    int64_t count; /* elements of all blocks */
} Blocks;

/* The PoolFn: task number = block number. */
static inline void blocks_task(void *ctx, int64_t task, int thread)
{
    const Blocks *b = ctx;
    (void)thread;
    b->fn(b->c, task * BLOCK, least(BLOCK, b->count - task * BLOCK));
}

/* Runs fn over elements 0 .. count-1 on all threads and returns when all are
 * done. */
static inline void blocks_run(const Call *c, int64_t count, BlockFn *fn)
{
    Blocks b = {c, fn, count};
    pool_run(c->dev, ceil_div(count, BLOCK), blocks_task, &b);
}

/* Adds the partial sums of `blocks` blocks in the order of the blocks, so the
 * bits do not depend on which thread computed which block. */
static inline double blocks_sum(const double *sum, int64_t blocks)
{
    double all = 0;
    for (int64_t i = 0; i < blocks; i++) all += sum[i];
    return all;
}

/* Address of element `from` of an operand, result or gradient. t is not NULL
 * and F32, as all tensors of `cpu` are. */
static inline float *floats(const Tensor *t, int64_t from)
{
    return (float *)t->data + from;
}
#endif
