/* plan_rig.h -- runs a plan with its own parameters, between a poisoned pool
 * and a canary. For backends in host memory. */
#ifndef SEG_TESTS_SUPPORT_PLAN_RIG_H
#define SEG_TESTS_SUPPORT_PLAN_RIG_H
#include "tests/support/networks.h"

typedef struct PlanRig {
    Net *net;
    const Backend *be;
    void *dev;
    Params params;
    PlanInput input[8];
    PlanSpec spec; /* may be changed before plan_rig_plan */
    Plan *plan;
    char *base, *pool; /* pool: plan_bytes bytes, then CANARY bytes */
} PlanRig;

/* Device, parameters and gradients for all inputs, roots and the loss of `n`,
 * batch `count`. Batch norm's gamma and beta differ from 1 and 0. */
void plan_rig_open(PlanRig *r, Net *n, const Backend *be, int threads,
                   int count);
void plan_rig_plan(PlanRig *r, bool train); /* build, pool of NaN, bind, fill */
void plan_rig_pool(PlanRig *r); /* the same without building       */
void plan_rig_fill(PlanRig *r); /* the inputs                      */
void plan_rig_close(PlanRig *r);
void plan_rig_drop(PlanRig *r); /* and frees the network */

/* The number of plan rows with an implicit concat. */
int plan_rig_implicit_concats(const PlanRig *r);

/* The canary is unchanged. */
bool plan_rig_intact(const PlanRig *r);

/* Values of input k in memory order, in the backend's real type. */
void *plan_rig_input(const PlanRig *r, int k, Arena *mem);

/* Run forward and backward as optimiser step 3. */
void plan_rig_run(PlanRig *r, bool backward, bool accumulate, double seed_grad);

/* Element i of a root, of a gradient block. */
double plan_rig_value(const PlanRig *r, int node, int64_t i);
double plan_rig_grad(const PlanRig *r, int64_t i);
extern const Step plan_rig_step;
#endif
