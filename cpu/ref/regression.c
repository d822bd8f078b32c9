/* regression.c -- mean absolute error, mean squared error and Huber loss; the
 * mean of a tensor.
 *
 * e = x - t in double. The absolute value has no derivative at 0; it is 0 here,
 * as in PyTorch, so that a voxel that is exactly right stays. Mean, mask and
 * weight are in loss.h. */
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
    // NaN must stay NaN, hence e and not 0 in the last case
    return e > 0 ? 1 : e < 0 ? -1 : e;
}

// without a factor 1/2, so the derivative has a factor 2
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

// e^2/2 up to delta; beyond it the tangent, so the derivative is e clamped to
// +-delta
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

// the value is x; the target is not read
static double mean_value(const Attr *a, double x, double t)
{
    (void)a, (void)t;
    return x;
}

static double mean_grad(const Attr *a, double x, double t)
{
    (void)a, (void)x, (void)t;
    return 1;
}

MEAN_LOSS(mae)
MEAN_LOSS(mse)
MEAN_LOSS(huber)
MEAN_LOSS(mean)
