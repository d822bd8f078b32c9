/* conv.c -- convolution, fast: see dispatch.h.
 *
 * y[n,p,co] = b[co] + sum_{k,ci} x[n, p*s - lo + k*dil, ci] w[co,k,ci], and its
 * gradients in x, w and b. */
#include "cpu/conv/dispatch.h"
#include "cpu/lib/kernels.h"

Space cpu_conv_space(const Call *c)
{
    return conv_call_space(c, false);
}

bool cpu_conv_fwd(const Call *c)
{
    conv_call_fwd(c, false);
    return true;
}

bool cpu_conv_bwd(const Call *c)
{
    conv_call_bwd(c, false);
    return true;
}
