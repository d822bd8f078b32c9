/* scale.c -- y = mul x + add, both numbers fixed in the recipe.
 *
 * For weights in a sum of losses, and units; in double like all curves. */
#include "cpu/ref/elementwise.h"

static double scale_value(const Attr *a, double x)
{
    return (double)a->scale.mul * x + a->scale.add;
}

/* The row keeps nothing; its slope asks for nothing, and dy only stands in
 * for the operand that is gone. */
static double scale_grad(const Attr *a, double dy)
{
    (void)dy;
    return a->scale.mul;
}

ELEMENTWISE(scale, c->dy, 1)
