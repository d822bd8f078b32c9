/* plan.h -- a plan: the calls of a graph in order, over one pool of memory.
 *
 * plan_build takes the ancestors of the roots, fixes all extents, makes forward
 * and backward calls, finds the first and last use of each value and gives it
 * an offset in one block of memory. It needs no device, its byte count is
 * exact, and a run allocates nothing. Training and evaluation are two plans
 * over the same parameters; several plans may share one pool, one run at a
 * time. Graph and parameters must outlive the plan; the graph may grow. */
#ifndef SEG_ENGINE_PLAN_PLAN_H
#define SEG_ENGINE_PLAN_PLAN_H
#include "engine/graph/program.h"
#include "engine/plan/params.h"

/* Extents of one input: n any batch, d h w any that the network accepts, c as
 * declared. */
typedef struct PlanInput {
    int node;
    Dims dim;
} PlanInput;

typedef struct PlanSpec {
    const Graph *graph;
    const Params *params; /* params_list has run; freezing is done */
    const Backend *be;
    int threads;         /* of the device                        */
    Precision precision; /* of products; one that `be` has       */
    bool no_winograd;    /* Call.no_winograd                     */
    const char *tiles;   /* valid text of tile_names.h           */
    const int *root;     /* nodes whose values stay readable     */
    int roots;
    int loss;   /* node where the backward pass starts; -1: no backward */
    bool train; /* dropout on, batch norm by batch statistics  */
    bool sync_batch_norm; /* the batch is the shard of a rank: batch norm takes
                           * its statistics over all ranks */
    bool mc_dropout; /* evaluation with dropout (Gal and Ghahramani, "Dropout as
                      * a Bayesian approximation", ICML 2016)                */
    bool no_fusion;  /* one call an operator, for the whole batch: nothing is
                      * fused or cut. On the CPU roots and gradients have the
                      * same bits either way; on a GPU deferred norms, gradient
                      * sums, sums of squares and, in 16 bits, programs change
                      * roundings                                            */
    bool sqnorms;    /* the caller wants plan_sqnorms, and changes no gradient
                      * after the calls                                      */
    const PlanInput *input;
    int inputs; /* all inputs that the roots need */
    /* Bytes of the pool, for a plan with a loss; 0: no limit. Above it, values
     * are dropped and recomputed by the same calls: the same bits of every root
     * and gradient for more arithmetic. One exception: a concat that is not
     * implicit for this reason moves the sum of a gradient
     * (plan_grad_sums.c) to another call with another order of additions.
     * least: if nothing fits, take the smallest plan. */
    size_t budget;
    bool least;
} PlanSpec;

/* The nodes whose operators one call runs, in the order of the graph. */
typedef struct PlanOps {
    int count, node[PROGRAM_STEPS];
} PlanOps;

/* Writes the names of the operators, as "concat + conv + relu"; of many as
 * "mul + exp + 7 more". */
enum { PLAN_OPS_TEXT = 64 };
void plan_ops_text(const Graph *g, const PlanOps *ops,
                   char text[PLAN_OPS_TEXT]);

/* A row of the printed plan: one forward call, for the whole batch. half_bytes:
 * copies in 16 bits that this call is the first to read. */
typedef struct PlanRow {
    int node;
    PlanOps ops;
    double flops;                                   /* forward */
    size_t value_bytes, saved_bytes, scratch_bytes; /* scratch: forward */
    size_t half_bytes;
    int64_t params;   /* elements that it reads */
    bool recomputed;  /* runs again in the backward pass */
    bool approximate; /* Schedule.approximate */
} PlanRow;

typedef struct Plan Plan;

/* ERR_USAGE when an input is missing, its extents do not fit the network, the
 * backend lacks the precision or the budget is too small; *out is set on
 * success only. */
bool plan_build(const PlanSpec *spec, Plan **out);
void plan_free(Plan *p);

size_t plan_bytes(const Plan *p); /* of the pool, exact           */
/* The contents of the pool at its fullest call, by purpose. Gaps between
 * buffers make plan_bytes a little larger than the sum. */
typedef struct PlanPeak {
    size_t values;    /* inputs and results, and copies of them in 16 bits  */
    size_t gradients; /* of values, and copies; parameters have their block */
    size_t workspace; /* saved and scratch memory of kernels */
} PlanPeak;
PlanPeak plan_peak(const Plan *p);
/* Bytes that live from the forward into the backward pass: values with backward
 * readers, roots, copies, saved memory of kernels. */
size_t plan_activation_bytes(const Plan *p);
/* The price of the budget in one training step. All 0 except `values` and
 * kept_bytes if nothing is dropped. */
typedef struct PlanRecompute {
    int values, dropped; /* with backward readers; of these, recomputed */
    int calls;           /* that run again                              */
    double flops, moved; /* of these; moved: bytes, a lower bound       */
    size_t kept_bytes;   /* of the pool without dropping                */
} PlanRecompute;
PlanRecompute plan_recomputed(const Plan *p);
size_t plan_naive_bytes(const Plan *p); /* without sharing, to compare  */
/* Bytes on the device, besides the pool, of the buffers through which the
 * inputs of one batch are uploaded (Backend.staging). */
size_t plan_upload_bytes(const Plan *p);
double plan_flops(const Plan *p); /* forward, of the whole batch  */
int plan_calls(const Plan *p);
/* The number of calls that run in micro-batches. */
int plan_microbatched(const Plan *p);

/* After a run: the partial sums of squares of gradients that calls wrote, if
 * PlanSpec.sqnorms asked for them, and the gradients that have none. */
const SqnormPlaces *plan_sqnorms(const Plan *p);

/* Give the plan its device and pool: plan_bytes bytes, aligned as by
 * Backend.alloc. May be called again when the pool moves. */
void plan_bind(Plan *p, void *pool, void *dev);

/* The value of an input (to fill before a run) or of a root (to read after
 * it); NULL when the plan has none. Addresses are of the device. */
const Tensor *plan_value(const Plan *p, int node);

/* Options of one run. */
typedef struct PlanRun {
    Step step;
    bool backward;    /* the spec had a loss: gradients into params->grad  */
    bool accumulate;  /* add to params->grad instead of storing            */
    double seed_grad; /* gradient of the loss: 1, a loss scale, a share    */
    bool prepared;    /* the device has `step` and the loss's gradient     */
    bool careful;     /* sync after each call, so that an error names it   */
    Trace *trace;     /* records each call in the row "main"; or NULL      */
} PlanRun;

/* A failing call is named with its node and recipe line. */
bool plan_run(Plan *p, const PlanRun *run);
bool plan_trains(const Plan *p); /* spec.train */
/* The gradient of the loss, where the backward pass starts. */
const Tensor *plan_loss_grad(const Plan *p);

/* The contents of a value that is not finite. */
typedef struct Blame {
    int64_t count, nan, inf; /* elements; those not a number, infinite  */
    int64_t sample;          /* the first sample with such elements; -1: the
                              * value has no samples                     */
    double lo, hi;           /* of the finite elements; lo > hi: none    */
    double from_lo, from_hi; /* of its first operand, if known           */
} Blame;

/* After a run with a result that is not finite: run forward again, call by
 * call, and name the first call with such a result, as
 * "conv (enc1.conv1, scripts/x.lua:12)"; `more` may be NULL. Text "" if all
 * results are finite. */
bool plan_blame(Plan *p, const Step *step, char *text, size_t room,
                Blame *more);

/* Per-node rows in forward order; returns how many. */
int plan_rows(const Plan *p, const PlanRow **rows);

/* Milliseconds per call of one run, forward and backward apart. */
typedef struct PlanTime {
    int node;
    PlanOps ops;            /* as of a PlanRow */
    bool backward, convert; /* convert: a copy in 16 bits of its value or dy */
    int tile;               /* its tile, a number of Backend.tile; 0: none */
    double ms;
    size_t live; /* bytes of the pool in use while it runs              */
} PlanTime;
/* Run all calls; the first `max` times go to out[0 .. *count). */
bool plan_time(Plan *p, const PlanRun *run, PlanTime *out, int max, int *count);
#endif
