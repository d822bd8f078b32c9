/* blocks.h -- long arrays in blocks, one a task, for kernels that treat every
 * element alone. */
#ifndef SEG_BLOCKS_H
#define SEG_BLOCKS_H
#include "pool.h"
#include "strip.h"

/* Elements of a block: a few microseconds of memory traffic. */
enum { BLOCK = 16384 };

/* Elements from .. from+count-1. */
typedef void BlockFn(const Call *c, int64_t from, int64_t count);

typedef struct Blocks {
    const Call *c;
    BlockFn *fn;
    int64_t count;
} Blocks;

static inline void blocks_task(void *ctx, int64_t task, int thread)
{
    const Blocks *b = ctx;
    (void)thread;
    b->fn(b->c, task * BLOCK, least(BLOCK, b->count - task * BLOCK));
}

static inline void blocks_run(const Call *c, int64_t count, BlockFn *fn)
{
    Blocks b = {c, fn, count};
    pool_run(c->dev, ceil_div(count, BLOCK), blocks_task, &b);
}

/* Element `from` of an operand, result or gradient. */
static inline float *floats(const Tensor *t, int64_t from)
{
    return (float *)t->data + from;
}
#endif
