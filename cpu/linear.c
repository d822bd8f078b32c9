/* linear.c -- a matrix product at every position, fast: see filter.h. */
#include "filter.h"
#include "kernels.h"

Space cpu_linear_space(const Call *c)
{
    return filter_space(c, false);
}

bool cpu_linear_fwd(const Call *c)
{
    filter_fwd(c, false);
    return true;
}

bool cpu_linear_bwd(const Call *c)
{
    filter_bwd(c, false);
    return true;
}
