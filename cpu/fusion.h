/* fusion.h -- answers of `cpu` to the planner: the activation that runs in the
 * epilogue of an operator, the concat that a convolution reads implicitly, and
 * the micro-batch of a call. */
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
