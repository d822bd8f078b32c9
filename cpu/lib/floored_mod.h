/* floored_mod.h -- the remainder of the operators mod and floor_div, for the
 * expressions of engine/graph/elementwise.def in double. */
#ifndef SEG_CPU_LIB_FLOORED_MOD_H
#define SEG_CPU_LIB_FLOORED_MOD_H
#include <math.h>

/* a - b floor(a / b): the remainder with the sign of b, exact as fmod is. */
static inline double floored_mod(double a, double b)
{
    const double r = fmod(a, b);
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
#endif
