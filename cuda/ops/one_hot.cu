/* one_hot.cu -- a channel for each class; see cpu/ref/one_hot.c. A thread
 * writes one element, 4 bytes and the share of a class number. */
#include "cuda/lib/kernel.cuh"

namespace {

__global__ void one_hot_kernel(const float *x, Divisor classes, int64_t count,
                               float *y)
{
    EACH(i, count)
    {
        uint32_t row = (uint32_t)i;
        const int c = (int)split(&row, classes);
        const float v = rintf(x[row]);
        y[i] = v != v ? v : v == (float)c;
    }
}

} // namespace

extern "C" bool cuda_one_hot_fwd(const Call *c)
{
    const int64_t count = numel(c->y->dim);
    if (!countable(c, count)) return false;
    LAUNCH(one_hot_kernel, blocks_for(count), BLOCK, 0, gpu_stream(c->dev),
           values(c->x[0]), divisor(c->y->dim.c), count, values(c->y));
    return gpu_launched("one_hot");
}
