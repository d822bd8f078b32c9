/* reference_run.h -- a network run without a planner: the judge of plan.c.
 *
 * Node after node, then back; every value, gradient, saved and scratch block
 * has memory of its own that starts as NaN, nothing is done in place and
 * nothing is dropped but the rows that evaluation drops. Parameters are a
 * copy, so the session's stay as they are. For backends in host memory. */
#ifndef SEG_TESTS_SUPPORT_REFERENCE_RUN_H
#define SEG_TESTS_SUPPORT_REFERENCE_RUN_H
#include "engine/plan/plan.h"

typedef struct ReferenceRun {
    Arena mem;   /* owns all below; arena_release when done     */
    Tensor *y;   /* of every node; data NULL when it is not used */
    void *value; /* parameters after the run, as Params.value   */
    void *grad;  /* gradients, as Params.grad; zero if not reached */
} ReferenceRun;

/* input[i] has the values of spec->input[i] in memory order and reals of the
 * backend. */
bool reference_run(const PlanSpec *spec, void *dev, const Step *step,
                   double seed_grad, const void *const *input,
                   ReferenceRun *out);
#endif
