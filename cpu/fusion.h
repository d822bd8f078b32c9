/* fusion.h -- what `cpu` tells the planner: which activation runs in the
 * epilogue of an operator, which concat in the load of a convolution, and into
 * how many micro-batches a call is cut. */
#ifndef SEG_CPU_FUSION_H
#define SEG_CPU_FUSION_H
#include "engine/graph/op.h"

/* Backend.fuses */
bool cpu_fuses(const Call *c);
/* Backend.fuses_concat */
bool cpu_fuses_concat(const Call *c);
/* Backend.microbatch */
int32_t cpu_microbatch(const Call *c);
#endif
