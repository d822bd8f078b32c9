/* logistic.h -- the logistic function and softplus, accurate for any x.
 *
 * Neither overflows nor loses digits: the exponential is only taken of a number
 * <= 0, and 1 - logistic(x) is logistic(-x). NaN gives NaN. */
#ifndef SEG_CPU_REF_LOGISTIC_H
#define SEG_CPU_REF_LOGISTIC_H
#include <math.h>

/* 1 / (1 + exp(-x)); small results keep their digits, as e does. */
static inline double logistic(double x)
{
    double e = exp(-fabs(x));
    return (x < 0 ? e : 1) / (1 + e);
}

/* log(1 + exp(x)) = -log(logistic(-x)): x for large x, exp(x) for small. */
static inline double softplus(double x)
{
    return (x > 0 ? x : 0) + log1p(exp(-fabs(x)));
}
#endif
