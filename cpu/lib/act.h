/* act.h -- the activation in the epilogue of a kernel (Call.then). */
#ifndef SEG_CPU_LIB_ACT_H
#define SEG_CPU_LIB_ACT_H
#include "cpu/lib/simd.h"
#include "engine/graph/op.h"

/* The activation of a call for the kernels of cpu/simd; c->then is an operator
 * that cpu_fuses takes. */
static inline Then then_of(const Call *c)
{
    if (!c->then) return (Then){THEN_NOTHING, 0};
    if (c->then->op == OP_relu) return (Then){THEN_RELU, 0};
    return (Then){THEN_LEAKY, c->then->leaky_relu.slope};
}

#endif
