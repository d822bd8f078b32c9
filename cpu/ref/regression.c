/* regression.c -- mean absolute error, mean squared error, and Huber's mix.
 *
 * e = x - t in double. The absolute value has no slope at 0; it gets 0 there,
 * as in PyTorch, so that a voxel that is exactly right stays where it is.
 * Mean, mask and weight are loss.h's; here is only what an element costs. */
#include "cpu/ref/loss.h"

// |e|
static double mae_value(const Attr *a, double x, double t)
{
    (void)a;
    return fabs(x - t);
}

static double mae_grad(const Attr *a, double x, double t)
{
    (void)a;
    double e = x - t;
    // NaN must go on as NaN, hence e and not 0 for what is left
    return e > 0 ? 1 : e < 0 ? -1 : e;
}

// the mean has no factor 1/2, so the slope has one of 2
static double mse_value(const Attr *a, double x, double t)
{
    (void)a;
    return (x - t) * (x - t);
}

static double mse_grad(const Attr *a, double x, double t)
{
    (void)a;
    return 2 * (x - t);
}

// e^2/2 up to delta; beyond it the tangent, so the slope is e cut at +-delta
static double huber_value(const Attr *a, double x, double t)
{
    double e = x - t, delta = a->huber.delta;
    if (fabs(e) <= delta) return e * e / 2;
    return delta * (fabs(e) - delta / 2);
}

static double huber_grad(const Attr *a, double x, double t)
{
    double e = x - t, delta = a->huber.delta;
    return e > delta ? delta : e < -delta ? -delta : e;
}

MEAN_LOSS(mae)
MEAN_LOSS(mse)
MEAN_LOSS(huber)
