/* convert.cu -- a copy in 16 bits of what convolutions read; see
 * Backend.convert. A thread four neighbours; bound by memory, 6 B an element.
 */
#include "pack.cuh"

namespace {

/* 4 elements of the copy. */
struct alignas(8) Copy {
    uint32_t pair[2];
};

/* Two neighbours in one register, the first in the low half. */
template <Dtype TYPE>
__device__ __forceinline__ uint32_t pair(float low, float high)
{
    return TYPE == BF16 ? pack_bf16(low, high) : pack_f16(low, high);
}

template <Dtype TYPE>
__global__ void __launch_bounds__(BLOCK)
    convert_kernel(const float *x, uint16_t *y, int64_t count)
{
    EACH(i, (count + 3) / 4)
    {
        if (4 * i + 4 <= count) {
            const Pack<4> f = load<4>(x + 4 * i);
            ((Copy *)y)[i] = {pair<TYPE>(f.v[0], f.v[1]),
                              pair<TYPE>(f.v[2], f.v[3])};
        } else {
            for (int64_t k = 4 * i; k < count; k++)
                y[k] = (uint16_t)pair<TYPE>(x[k], 0);
        }
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
