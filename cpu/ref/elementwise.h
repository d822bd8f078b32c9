/* elementwise.h -- kernels of operators where result i depends on operand
 * element i alone.
 *
 * y may be operand 0's memory and dx[0] may be dy's: a loop reads element i
 * before it writes result i, and result i depends on no other element. */
#ifndef SEG_CPU_REF_ELEMENTWISE_H
#define SEG_CPU_REF_ELEMENTWISE_H
#include "cpu/lib/plain.h"

/* Defines the forward kernel of operator `name` from name_value(attr, x), its
 * result. `cost` is in multiply-adds an element and only decides the number of
 * elements of a task. */
#define ELEMENTWISE_VALUES(name, cost)                                  \
    static void name##_values(void *ctx, int64_t from, int64_t to)      \
    {                                                                   \
        const Call *c = ctx;                                            \
        const real *x = values(c->x[0]);                                \
        real *y = values(c->y);                                         \
        for (int64_t i = from; i < to; i++)                             \
            y[i] = (real)name##_value(c->attr, x[i]);                   \
    }                                                                   \
    bool KERNEL(name##_fwd)(const Call *c)                              \
    {                                                                   \
        range_run(c, numel(c->y->dim), cost, name##_values, (void *)c); \
        return true;                                                    \
    }

/* The same and the backward kernel, from name_grad(attr, k), the derivative; k
 * is an element of the kept tensor `kept`, c->x[0] or c->y. An operator that
 * may run in place keeps y or nothing, because its x is then overwritten. */
#define ELEMENTWISE(name, kept, cost)                                      \
    ELEMENTWISE_VALUES(name, cost)                                         \
    static void name##_grads(void *ctx, int64_t from, int64_t to)          \
    {                                                                      \
        const Call *c = ctx;                                               \
        const real *k = values(kept), *dy = values(c->dy);                 \
        real *dx = values(c->dx[0]);                                       \
        bool fresh = is_fresh(c, 0);                                       \
        for (int64_t i = from; i < to; i++)                                \
            put(dx + i, dy[i] * name##_grad(c->attr, k[i]), fresh);        \
    }                                                                      \
    bool KERNEL(name##_bwd)(const Call *c)                                 \
    {                                                                      \
        if (c->dx[0])                                                      \
            range_run(c, numel(c->y->dim), cost, name##_grads, (void *)c); \
        return true;                                                       \
    }
#endif
