/* then.h -- the rows that a kernel of `cpu` runs, too: in its store (see
 * Call.then), or a concat in its load; and how much of a batch at a time. */
#ifndef SEG_CPU_THEN_H
#define SEG_CPU_THEN_H
#include "op.h"
#include "simd.h"

/* What kernels of cpu/simd are told; c->then is a row that cpu_fuses takes. */
static inline Then then_of(const Call *c)
{
    if (!c->then) return (Then){THEN_NOTHING, 0};
    if (c->then->op == OP_relu) return (Then){THEN_RELU, 0};
    return (Then){THEN_LEAKY, c->then->leaky_relu.slope};
}

/* Backend.fuses */
bool cpu_fuses(const Call *c);
/* Backend.beside */
bool cpu_beside(const Call *c);
/* Backend.slice */
int32_t cpu_slice(const Call *c);
#endif
