/* conv.c -- convolution, fast: see filter.h. */
#include "filter.h"
#include "kernels.h"

Space cpu_conv_space(const Call *c)
{
    return filter_space(c, false);
}

bool cpu_conv_fwd(const Call *c)
{
    filter_fwd(c, false);
    return true;
}

bool cpu_conv_bwd(const Call *c)
{
    filter_bwd(c, false);
    return true;
}
