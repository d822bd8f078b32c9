/* reference_run.h -- a network run without a planner, as the reference for
 * plan.c.
 *
 * Runs node after node, then backward; every value, gradient, saved and scratch
 * block has memory of its own that starts as NaN, nothing is done in place and
 * only operators that evaluation drops are dropped. Parameters are a copy, so
 * the session's stay unchanged. For backends in host memory. */
#ifndef SEG_TESTS_SUPPORT_REFERENCE_RUN_H
#define SEG_TESTS_SUPPORT_REFERENCE_RUN_H
#include "engine/plan/plan.h"

typedef struct ReferenceRun {
    Arena mem;   /* owns all below; arena_release when done     */
    Tensor *y;   /* of every node; data NULL when it is not used */
    void *value; /* parameters after the run, as Params.value   */
    void *grad;  /* gradients, as Params.grad; zero if not reached */
} ReferenceRun;

/* input[i] has the values of spec->input[i] in memory order, in the backend's
 * real type. */
bool reference_run(const PlanSpec *spec, void *dev, const Step *step,
                   double seed_grad, const void *const *input,
                   ReferenceRun *out);
#endif
