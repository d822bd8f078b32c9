/* fusion.h -- what `cpu` tells the planner: which activation runs in the
 * epilogue of an operator, which concat in the load of a convolution, and into
 * how many micro-batches a call is cut. */
#ifndef SEG_CPU_FUSION_H
#define SEG_CPU_FUSION_H
#include "engine/graph/op.h"

/* Backend.fuses */
bool cpu_fuses(const Call *c);
/* Backend.beside */
bool cpu_beside(const Call *c);
/* Backend.slice */
int32_t cpu_slice(const Call *c);
#endif
