/* focal.c -- cross entropy with less weight for elements that are already
 * predicted well.
 *
 * With u the logit of the true case and z = logistic(u), the loss of an element
 * is f(u) = (1 - z)^gamma softplus(-u); u is x where t is 1 and -x where t is
 * 0. A target in between mixes the two cases, so that the loss is linear in t,
 * as in bce. Source: Lin et al. 2017, "Focal loss for dense object
 * detection". */
#include "cpu/ref/loss.h"

/* The loss as a function of the logit u of the true case. */
static double f(double gamma, double u)
{
    return pow(logistic(-u), gamma) * softplus(-u);
}

/* df/du = -(1 - z)^gamma (gamma z softplus(-u) + (1 - z)). */
static double df(double gamma, double u)
{
    double z = logistic(u), rest = logistic(-u);
    return -pow(rest, gamma) * (gamma * z * softplus(-u) + rest);
}

/* The weights of "true" and "false": alpha and 1 - alpha, or 1 and 1. */
static double weight(const Attr *a, bool truth)
{
    double alpha = a->focal.alpha;
    // a negative alpha means no weights, because 0 is a weight
    return alpha < 0 ? 1 : truth ? alpha : 1 - alpha;
}

/* l: both cases, weighted by the target. */
static double focal_value(const Attr *a, double x, double t)
{
    double gamma = a->focal.gamma;
    return t * weight(a, true) * f(gamma, x) +
           (1 - t) * weight(a, false) * f(gamma, -x);
}

/* dl/dx; u is -x in the second case, hence its sign. */
static double focal_grad(const Attr *a, double x, double t)
{
    double gamma = a->focal.gamma;
    return t * weight(a, true) * df(gamma, x) -
           (1 - t) * weight(a, false) * df(gamma, -x);
}

MEAN_LOSS(focal)
