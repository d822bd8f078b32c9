/* blocks.h -- long arrays in blocks, one a task, for kernels that treat every
 * element alone.
 *
 * Such kernels do one or two operations a number and are bound by memory; a
 * second core adds little, and vectors only have to keep up. What a block
 * buys is an even share for each thread and places of its own to write to.
 * Neighbouring blocks never write to one cache line, because BLOCK is a
 * multiple of a line and tensors begin at one. A kernel that adds up over
 * blocks adds the sums of all with blocks_sum. */
#ifndef SEG_CPU_LIB_BLOCKS_H
#define SEG_CPU_LIB_BLOCKS_H
#include "cpu/lib/thread_pool.h"
#include "cpu/lib/window.h"

/* Elements of a block: a few microseconds of memory traffic, against well
 * under one for handing out a task. */
enum { BLOCK = 16384 };

/* Elements from .. from+count-1; from is a multiple of BLOCK. Runs on any
 * thread, several at once. */
typedef void BlockFn(const Call *c, int64_t from, int64_t count);

/* One blocks_run: what its tasks need to know. */
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

/* fn over elements 0 .. count-1 on all threads; done when it returns. */
static inline void blocks_run(const Call *c, int64_t count, BlockFn *fn)
{
    Blocks b = {c, fn, count};
    pool_run(c->dev, ceil_div(count, BLOCK), blocks_task, &b);
}

/* Of the sums of blocks, in their order: the same bits whoever made them. */
static inline double blocks_sum(const double *sum, int64_t blocks)
{
    double all = 0;
    for (int64_t i = 0; i < blocks; i++) all += sum[i];
    return all;
}

/* Address of element `from` of an operand, result or gradient; t is not NULL
 * and F32, as all tensors of `cpu` are. */
static inline float *floats(const Tensor *t, int64_t from)
{
    return (float *)t->data + from;
}
#endif
