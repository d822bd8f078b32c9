/* plan.h -- the prepared statement: a straight line of calls over one pool.
 *
 * plan_build takes the ancestors of its roots, fixes the extents of the
 * inputs, emits forward calls, walks back for the gradients, finds the first
 * and last use of each value and gives it a place in one block of memory.
 * Everything is known before a device is opened: the byte count is exact.
 * Running allocates nothing. Training and evaluation are two plans over the
 * same parameters; several plans may share one pool, one run at a time. Graph
 * and parameters must outlive the plan; the graph may grow meanwhile. */
#ifndef SEG_ENGINE_PLAN_PLAN_H
#define SEG_ENGINE_PLAN_PLAN_H
#include "engine/plan/params.h"

/* Extents of one input; n may be any batch, d h w any that the network
 * takes, c as declared. */
typedef struct PlanInput {
    int node;
    Dims dim;
} PlanInput;

typedef struct PlanSpec {
    const Graph *graph;
    const Params *params; /* params_list has run; freezing is done */
    const Backend *be;
    int threads;         /* that the device has or will have  */
    Precision precision; /* of convolutions; one that `be` has */
    bool no_winograd;    /* see Call.no_winograd                     */
    const char *tiles;   /* see tile_names.h; valid             */
    const int *root;     /* nodes whose values stay readable  */
    int roots;
    int loss;    /* root of the gradients; -1: none   */
    bool train;  /* dropout on, batch statistics      */
    bool shared; /* the batch is a rank's share, batch norm goes by all of it */
    bool draws;  /* in evaluation: dropout on all the same, to see how much
                  * predictions differ (Gal and Ghahramani, "Dropout as a
                  * Bayesian approximation", ICML 2016)         */
    bool plain;  /* each row by itself and for the whole batch: nothing is
                  * fused or cut. The same bits of every root and gradient
                  * either way                                  */
    bool squares; /* of gradients are wanted, which nobody changes behind the
                   * calls: see plan_sqnorms */
    const PlanInput *input;
    int inputs; /* every input that the roots need   */
    /* Of a plan with a loss: bytes that its pool may have. Where keeping all
     * values for backward calls takes more, some are dropped and computed again
     * by the same calls: the same bits of every root and gradient for more
     * arithmetic; but that concats are made, so that a call which else sums the
     * gradient of an operand (plan_grad_sums.c) leaves that to another, in
     * another order. 0: none. least: what comes nearest, where it cannot be. */
    size_t budget;
    bool least;
} PlanSpec;

/* A row of the printed plan: one forward call, for the whole batch; half:
 * copies in 16 bits that are made for it and that no call before it had. */
typedef struct PlanRow {
    int node;
    int concat;    /* node whose operands it reads in its place; or -1 .. */
    int norm, act; /* nodes that its store runs, too: plan_fuse.c; or -1 */
    double flops;  /* forward */
    size_t value_bytes, saved_bytes, scratch_bytes; /* scratch: forward */
    size_t half_bytes;
    int64_t params;   /* elements that it reads */
    bool recomputed;  /* computed once more on the way back */
    bool approximate; /* Backend.approximate */
} PlanRow;

typedef struct Plan Plan;

/* ERR_USAGE when an input is missing, its extents do not fit the network, the
 * backend lacks the precision or the budget is too small; *out is set on
 * success only. */
bool plan_build(const PlanSpec *spec, Plan **out);
void plan_free(Plan *p);

size_t plan_bytes(const Plan *p); /* of the pool, exact           */
/* What lies in the pool when most does, by purpose; their sum may be a little
 * less than plan_bytes, as buffers leave gaps. */
typedef struct PlanPeak {
    size_t values;    /* inputs and results, and copies of them in 16 bits  */
    size_t gradients; /* of values, and copies; parameters have their block */
    size_t workspace; /* what kernels keep or want beside */
} PlanPeak;
PlanPeak plan_peak(const Plan *p);
/* Bytes that the forward run makes and that are there when the backward one
 * begins: values that it reads and roots, copies, and what kernels saved. */
size_t plan_carried_bytes(const Plan *p);
/* What the budget cost: calls that run again, their FLOPs and the bytes that
 * they move at least, of one training step. All 0 but `values` and kept_bytes
 * where nothing is dropped. */
typedef struct PlanAgain {
    int values, dropped; /* that backward calls read; of these, made again */
    int calls;
    double flops, moved;
    size_t kept_bytes; /* of the pool, had nothing been dropped */
} PlanAgain;
PlanAgain plan_again(const Plan *p);
size_t plan_naive_bytes(const Plan *p); /* without sharing, to compare  */
double plan_flops(const Plan *p);       /* forward, of the whole batch  */
int plan_calls(const Plan *p);
/* Calls that run a few samples at a time: see Backend.microbatch. */
int plan_microbatched(const Plan *p);

/* Where the squares of parameters' gradients are once it has run: what calls
 * left, where the spec wanted it and they can, and what is to be read. */
const SqnormPlaces *plan_sqnorms(const Plan *p);

/* Give the plan its pool (plan_bytes bytes of device memory, aligned as
 * Backend.alloc does) and the device; may be called again when the pool
 * moved. */
void plan_bind(Plan *p, void *pool, void *dev);

/* The value of an input (to fill before a run) or of a root (to read after
 * it); NULL when the plan has none. Addresses are of the device. */
const Tensor *plan_value(const Plan *p, int node);

/* How a plan is run once. */
typedef struct PlanRun {
    Step step;
    bool backward;    /* the spec had a loss: gradients into params->grad  */
    bool accumulate;  /* add to params->grad instead of overwriting it     */
    double seed_grad; /* gradient of the loss: 1, a loss scale, a share    */
    bool prepared;    /* the device has step and gradient of the loss      */
    bool careful;     /* wait after each call: a fault has a name          */
    Trace *trace;     /* takes down each call, in the row "main"; or NULL  */
} PlanRun;

/* A failing call is named with its node and recipe line. */
bool plan_run(Plan *p, const PlanRun *run);
bool plan_trains(const Plan *p); /* spec.train */
/* The gradient of the loss, which a run with backward starts from. */
const Tensor *plan_loss_grad(const Plan *p);

/* What is in a value that is not finite. */
typedef struct Blame {
    int64_t count, nan, inf; /* elements; those not a number, infinite  */
    int64_t sample;          /* the first of the batch that has some; -1:
                              * the value is of no sample                */
    double lo, hi;           /* of the finite ones; lo > hi: none        */
    double from_lo, from_hi; /* of its first operand, where it is known  */
} Blame;

/* After a run that gave something not finite: the first call of the forward
 * run whose result is not, as "conv (enc1.conv1, scripts/x.lua:12)", and what
 * is in it (`more` may be NULL); runs forward again, call by call. Text "" when
 * all results are finite. */
bool plan_blame(Plan *p, const Step *step, char *text, size_t room,
                Blame *more);

/* Per-node rows in forward order; returns how many. */
int plan_rows(const Plan *p, const PlanRow **rows);

/* Milliseconds per call of one run, forward and backward apart. */
typedef struct PlanTime {
    int node, concat, norm, act; /* as of a PlanRow */
    bool backward, convert; /* convert: a copy in 16 bits of its value or dy */
    int tile;               /* number of Backend.tile that it took, 0: none */
    double ms;
    size_t live; /* bytes of the pool that are in use while it runs     */
} PlanTime;
/* out[0 .. *count): at most `max` of them, all calls are run. */
bool plan_time(Plan *p, const PlanRun *run, PlanTime *out, int max, int *count);
#endif
