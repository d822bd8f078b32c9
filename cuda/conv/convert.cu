/* convert.cu -- a copy in 16 bits of an f32 operand of a convolution; see
 * Backend.convert. Four neighbouring elements a thread; bound by memory, 6 B an
 * element. */
#include "cuda/lib/vec.cuh"

namespace {

template <Dtype D>
__global__ void __launch_bounds__(BLOCK)
    convert_kernel(const float *x, uint16_t *y, int64_t count)
{
    EACH(i, (count + 3) / 4)
    {
        if (4 * i + 4 <= count)
            store_vec<4, D>(y + 4 * i, load<4>(x + 4 * i), true);
        else
            for (int64_t k = 4 * i; k < count; k++)
                y[k] = (uint16_t)Stored<D>::pack(x[k], 0);
    }
}

} // namespace

extern "C" bool cuda_convert(const Call *c)
{
    int64_t count = numel(c->y->dim);
    unsigned blocks = blocks_for(ceil_div(count, 4));
    cudaStream_t stream = gpu_stream(c->dev);
    const float *x = values(c->x[0]);
    uint16_t *y = (uint16_t *)c->y->data;
    if (c->y->type == BF16)
        LAUNCH((convert_kernel<BF16>), blocks, BLOCK, 0, stream, x, y, count);
    else
        LAUNCH((convert_kernel<F16>), blocks, BLOCK, 0, stream, x, y, count);
    return gpu_launched("copy in 16 bits");
}
