/* upconv.c -- transposed convolution, fast: see dispatch.h.
 *
 * y[n, p*s - lo + k*dil, co] += x[n,p,ci] w[ci,k,co], plus b[co]: the same
 * sum as dgrad of a convolution, so the flag is `true`. */
#include "cpu/conv/dispatch.h"
#include "cpu/lib/kernels.h"

Space cpu_upconv_space(const Call *c)
{
    return conv_call_space(c, true);
}

bool cpu_upconv_fwd(const Call *c)
{
    conv_call_fwd(c, true);
    return true;
}

bool cpu_upconv_bwd(const Call *c)
{
    conv_call_bwd(c, true);
    return true;
}
