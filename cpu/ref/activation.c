/* activation.c -- relu, leaky_relu, sigmoid, tanh, gelu, silu, scale.
 *
 * Values are computed in double and rounded once. A derivative is a function of
 * the result if the operator keeps it (k is y), else of the operand (k is x).
 * With y kept, x may be overwritten by it. gelu and silu are not monotonic, so
 * y does not determine x. NaN passes through all of them: an activation must
 * not hide that a network has diverged. */
#include "cpu/ref/elementwise.h"
#include "cpu/ref/logistic.h"

// relu: the test is x <= 0 and not x > 0, so that NaN is returned
static double relu_value(const Attr *a, double x)
{
    (void)a;
    return x <= 0 ? 0 : x;
}

static double relu_grad(const Attr *a, double y)
{
    (void)a;
    return y <= 0 ? 0 : 1;
}

// leaky_relu: the slope is positive, so y has the sign of x
static double leaky_relu_value(const Attr *a, double x)
{
    return x <= 0 ? x * a->leaky_relu.slope : x;
}

static double leaky_relu_grad(const Attr *a, double y)
{
    return y <= 0 ? a->leaky_relu.slope : 1;
}

// sigmoid: y = 1 / (1 + exp(-x)), dy/dx = y (1 - y)
static double sigmoid_value(const Attr *a, double x)
{
    (void)a;
    return logistic(x);
}

static double sigmoid_grad(const Attr *a, double y)
{
    (void)a;
    return y * (1 - y);
}

// tanh: dy/dx = 1 - y^2, as a product that does not cancel near 1
static double tanh_value(const Attr *a, double x)
{
    (void)a;
    return tanh(x);
}

static double tanh_grad(const Attr *a, double y)
{
    (void)a;
    return (1 - y) * (1 + y);
}

/* The normal distribution: cumulative and density. erfc keeps the digits of the
 * lower tail, where 1 + erf would cancel. */
static double normal_below(double x)
{
    return 0.5 * erfc(-x * 0.70710678118654752440);
}

static double normal_density(double x)
{
    return 0.39894228040143267794 * exp(-0.5 * x * x);
}

// gelu: y = x P(x), dy/dx = P(x) + x p(x)
static double gelu_value(const Attr *a, double x)
{
    (void)a;
    return x * normal_below(x);
}

static double gelu_grad(const Attr *a, double x)
{
    (void)a;
    return normal_below(x) + x * normal_density(x);
}

// silu: y = x s(x), dy/dx = s (1 + x (1 - s))
static double silu_value(const Attr *a, double x)
{
    (void)a;
    return x * logistic(x);
}

static double silu_grad(const Attr *a, double x)
{
    (void)a;
    return logistic(x) * (1 + x * logistic(-x));
}

// scale: y = mul x + add, both numbers fixed in the recipe, for weights in a
// sum of losses and for units
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

// the kept tensor (as the KEEP_ flag in ops.def), and the rough cost of an
// element
ELEMENTWISE(relu, c->y, 1)
ELEMENTWISE(leaky_relu, c->y, 1)
ELEMENTWISE(sigmoid, c->y, 16)
ELEMENTWISE(tanh, c->y, 16)
ELEMENTWISE(gelu, c->x[0], 32)
ELEMENTWISE(silu, c->x[0], 32)
ELEMENTWISE(scale, c->dy, 1)
