/* plan_rig.h -- a plan over parameters of its own, between a poisoned pool and
 * a canary. For backends in host memory. */
#ifndef SEG_TESTS_SUPPORT_PLAN_RIG_H
#define SEG_TESTS_SUPPORT_PLAN_RIG_H
#include "tests/support/networks.h"

typedef struct Rig {
    Net *net;
    const Backend *be;
    void *dev;
    Params params;
    PlanInput input[8];
    PlanSpec spec; /* may be changed before rig_plan */
    Plan *plan;
    char *base, *pool; /* pool: plan_bytes bytes, then CANARY bytes */
} Rig;

/* Device, parameters and gradients for all inputs, roots and the loss of
 * `n`, batch `count`. Values of batch norm are moved away from 1 and 0. */
void rig_open(Rig *r, Net *n, const Backend *be, int threads, int count);
void rig_plan(Rig *r, bool train); /* build, pool of NaN, bind, fill */
void rig_pool(Rig *r);             /* the same without building       */
void rig_fill(Rig *r);             /* the inputs                      */
void rig_close(Rig *r);
void rig_drop(Rig *r); /* the network, too */

/* Rows of the plan that read the two operands of a concat where they are. */
int rig_apart(const Rig *r);

/* The canary lives. */
bool rig_intact(const Rig *r);

/* Values of input k in memory order, reals of the backend. */
void *rig_input(const Rig *r, int k, Arena *mem);

/* Run forward and backward as optimiser step 3. */
void rig_run(Rig *r, bool backward, bool accumulate, double seed_grad);

/* Element i of a root, of a gradient block. */
double rig_value(const Rig *r, int node, int64_t i);
double rig_grad(const Rig *r, int64_t i);
extern const Step rig_step;
#endif
