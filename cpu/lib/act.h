/* act.h -- the activation in the epilogue of a kernel (Call.act). */
#ifndef SEG_CPU_LIB_ACT_H
#define SEG_CPU_LIB_ACT_H
#include "cpu/lib/simd.h"
#include "engine/graph/op.h"

/* The activation of a call as the kernels of cpu/simd take it. c->act is NULL
 * or an operator that cpu_fuses accepts: relu or leaky_relu. */
static inline Act act_of(const Call *c)
{
    if (!c->act) return (Act){ACT_NONE, 0};
    if (c->act->op == OP_relu) return (Act){ACT_RELU, 0};
    return (Act){ACT_LEAKY_RELU, c->act->leaky_relu.slope};
}

#endif
