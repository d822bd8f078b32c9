/* linear.c -- a matrix product at every position, fast: see dispatch.h.
 *
 * y[n,p,co] = b[co] + sum_ci x[n,p,ci] w[co,ci]: a convolution whose window
 * is one, as op_window says of this row; window_flatten (window.h) then makes
 * one long row of all positions of the batch. */
#include "cpu/conv/dispatch.h"
#include "cpu/lib/kernels.h"

Space cpu_linear_space(const Call *c)
{
    return conv_call_space(c, false);
}

bool cpu_linear_fwd(const Call *c)
{
    conv_call_fwd(c, false);
    return true;
}

bool cpu_linear_bwd(const Call *c)
{
    conv_call_bwd(c, false);
    return true;
}
