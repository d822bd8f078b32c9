/* broadcast.h -- kernels of functions of two operands, each extent of either
 * equal to that of the result or 1. */
#ifndef SEG_CPU_REF_BROADCAST_H
#define SEG_CPU_REF_BROADCAST_H
#include "cpu/lib/plain.h"

/* Value of a and b; derivative by one of them, times dy. */
typedef double ValueFn(double a, double b);
typedef double GradFn(double dy, double a, double b);

/* y = value(a, b). */
bool KERNEL(broadcast_fwd)(const Call *c, ValueFn *value);
/* dx[k] (+)= the sum of grad[k](dy, a, b) over the axes along which operand k
 * was broadcast. */
bool KERNEL(broadcast_bwd)(const Call *c, GradFn *const grad[2]);

/* Defines the forward kernel of operator `name` from its result, an expression
 * in a and b. */
#define BROADCAST_VALUES(name, result)                 \
    static double name##_value(double a, double b)     \
    {                                                  \
        return result;                                 \
    }                                                  \
    bool KERNEL(name##_fwd)(const Call *c)             \
    {                                                  \
        return KERNEL(broadcast_fwd)(c, name##_value); \
    }

/* The same and the backward kernel, from the terms of the two gradients:
 * expressions in dy, a and b. */
#define BROADCAST(name, result, part0, part1)                 \
    BROADCAST_VALUES(name, result)                            \
    static double name##_grad0(double dy, double a, double b) \
    {                                                         \
        (void)dy, (void)a, (void)b;                           \
        return part0;                                         \
    }                                                         \
    static double name##_grad1(double dy, double a, double b) \
    {                                                         \
        (void)dy, (void)a, (void)b;                           \
        return part1;                                         \
    }                                                         \
    bool KERNEL(name##_bwd)(const Call *c)                    \
    {                                                         \
        GradFn *const grad[2] = {name##_grad0, name##_grad1}; \
        return KERNEL(broadcast_bwd)(c, grad);                \
    }
#endif
