/* scale.c -- y = mul x + add, both numbers fixed in the recipe.
 *
 * For weights in a sum of losses, and for units; in double like all elementwise
 * functions. */
#include "cpu/ref/elementwise.h"

static double scale_value(const Attr *a, double x)
{
    return (double)a->scale.mul * x + a->scale.add;
}

/* The operator keeps nothing; its derivative is a constant, and dy only stands
 * in for the operand. */
static double scale_grad(const Attr *a, double dy)
{
    (void)dy;
    return a->scale.mul;
}

ELEMENTWISE(scale, c->dy, 1)
