/* upconv.c -- transposed convolution, fast: see filter.h. */
#include "filter.h"
#include "kernels.h"

Space cpu_upconv_space(const Call *c)
{
    return filter_space(c, true);
}

bool cpu_upconv_fwd(const Call *c)
{
    filter_fwd(c, true);
    return true;
}

bool cpu_upconv_bwd(const Call *c)
{
    filter_bwd(c, true);
    return true;
}
