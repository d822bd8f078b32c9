/* grad_sums.cu -- parameter gradients that are sums of dy, from the sums that
 * another call left: see grad_sums.cuh. Needed only where several calls add to
 * the gradient of a parameter; otherwise the call that makes the sums also
 * writes the gradients. Bound by latency. */
#include "cuda/norm/grad_sums.cuh"

namespace {

__global__ void __launch_bounds__(BLOCK)
    grad_sums_store_kernel(const double *total, int channels,
                           const NormGrads to)
{
    EACH(c, channels)
    {
        store_norm_grad(to, 0, (int)c, total[c]);
        store_norm_grad(to, 1, (int)c, total[channels + c]);
    }
}

} // namespace

bool grad_sums_store(const Call *c)
{
    const int channels = c->y->dim.c;
    const NormGrads to = norm_grads_of_dy(c);
    if (!to.to[0] && !to.to[1]) return true;
    moves(4.0 * channels * sizeof(double));
    LAUNCH(grad_sums_store_kernel, blocks_for(channels), BLOCK, 0,
           gpu_stream(c->dev), (const double *)c->sums.dy->data, channels, to);
    return gpu_launched("gradients from sums");
}
