/* grad_sums.cu -- gradients of parameters that are sums of dy, from totals that
 * another call left: see grad_sums.cuh. That call makes them itself but where a
 * parameter has gradients of several calls. Bound by latency. */
#include "cuda/norm/grad_sums.cuh"

namespace {

__global__ void __launch_bounds__(BLOCK)
    close_put_kernel(const double *total, int channels, const Puts to)
{
    EACH(c, channels)
    {
        put_total(to, 0, (int)c, total[c]);
        put_total(to, 1, (int)c, total[channels + c]);
    }
}

} // namespace

bool close_put(const Call *c)
{
    const int channels = c->y->dim.c;
    const Puts to = puts_of_dy(c);
    if (!to.to[0] && !to.to[1]) return true;
    moves(4.0 * channels * sizeof(double));
    LAUNCH(close_put_kernel, blocks_for(channels), BLOCK, 0, gpu_stream(c->dev),
           (const double *)c->dy_sums->data, channels, to);
    return gpu_launched("slopes by totals");
}
