/* deferred_norm.cu -- applies a deferred norm to a tensor, for kernels that
 * cannot apply it on load.
 *
 * Each thread works on vectors of eight channels. Bound by memory: 4 bytes an
 * element, read and written. */
#include "cuda/norm/deferred_norm.cuh"

namespace {

enum { CHANNELS = NARROW_CHANNELS }; // a vector of 16 bytes

template <Dtype D>
__global__ void __launch_bounds__(BLOCK)
    deferred_norm_apply_kernel(const NormOnLoad s, const Element<D> *x,
                               Element<D> *to, const Vecs vecs)
{
    EACH(i, vecs.count)
    {
        int vec;
        row_of(vecs, i, &vec);
        const auto v = load<CHANNELS, D>(x + i * CHANNELS);
        store_vec<CHANNELS, D>(to + i * CHANNELS,
                               norm_act<CHANNELS, D>(s, vec * CHANNELS, v),
                               true);
    }
}

} // namespace

bool norm_on_load_apply(const Call *c, const NormOnLoad &s, Dims x,
                        const void *data, Dtype type, void *to)
{
    const Vecs vecs = vecs_of(x, CHANNELS);
    const unsigned blocks = blocks_for(vecs.count);
    cudaStream_t stream = gpu_stream(c->dev);
    moves(2.0 * (double)numel(x) * (double)dtype_bytes(type));
    if (type == BF16)
        LAUNCH(deferred_norm_apply_kernel<BF16>, blocks, BLOCK, 0, stream, s,
               (const uint16_t *)data, (uint16_t *)to, vecs);
    else
        LAUNCH(deferred_norm_apply_kernel<F16>, blocks, BLOCK, 0, stream, s,
               (const uint16_t *)data, (uint16_t *)to, vecs);
    return gpu_launched("deferred norm");
}
