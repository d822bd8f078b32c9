/* fusion.h -- answers of `cpu` to the planner: the activation that runs in the
 * epilogue of an operator, the concat that a convolution reads implicitly, and
 * the micro-batch and the algorithm of a call. */
#ifndef SEG_CPU_FUSION_H
#define SEG_CPU_FUSION_H
#include "engine/backend/fusions.h"

Fusions cpu_fusions(const Call *c);
Storage cpu_storage(const Call *c);
Schedule cpu_schedule(const Call *c);
#endif
