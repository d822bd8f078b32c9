/* session_inside.h -- what the two parts of a session share: session.c has
 * its plans, memory and runs, session_step.c the training step. */
#ifndef SEG_ENGINE_SESSION_SESSION_INSIDE_H
#define SEG_ENGINE_SESSION_SESSION_INSIDE_H
#include "engine/session/session.h"

enum {
    MAX_PLANS = 16,  // extents in use at a time; more are planned again
    MAX_INPUTS = 16, // of a network; the embedding face has the same bound
};

/* A part of a step with one plan, first or last or neither. */
typedef struct CapturedStep {
    bool tried;     /* it ran call by call once, so that a fault has a name */
    void *graph;    /* a CUDA graph, where the device has them; NULL        */
    int64_t number; /* of the recording, which all ranks made together      */
    int odd;        /* times in a row that other ranks had another          */
} CapturedStep;

/* A plan and what it was made for. */
typedef struct Slot {
    Plan *plan;
    bool train;
    PlanInput input[MAX_INPUTS];
    int inputs;
    int64_t used; /* when it was last asked for: the oldest makes room */
    CapturedStep captured[2][2]; /* of parts of steps, by [first][last] */
} Slot;

struct Session {
    SessionSpec spec; /* what it points to is copied below, for long */
    int *root;        /* owned: the caller's, and the loss               */
    int *step_root;   /* owned: those that a training step computes      */
    bool *in_step;    /* owned: nodes that these need, of `nodes`, which
                       * the graph had when the session was opened       */
    int nodes;
    char *tiles; /* owned: the caller's                     */
    Optim optim;
    bool trains; /* has a loss and an optimiser                     */
    const Backend *be;
    void *dev;
    bool opened;         /* dev is to be closed                        */
    bool careful;        /* wait after each call, always: SEG_CAREFUL  */
    int threads;         /* that dev has                               */
    char why[ERR_MAX];   /* why not a better device, or ""             */
    Allreduce allreduce; /* of ranks that have a device each           */
    Params params;
    Slot slot[MAX_PLANS];
    int64_t clock;     /* counts what was asked for: the age of slots */
    int64_t captures;  /* how often a graph was captured, by all ranks alike */
    void *pool;        /* on dev, shared by all plans                 */
    size_t pool_bytes; /* 0 when there is none yet                    */
    size_t budget;     /* of training plans; 0: none                  */
    bool least;        /* what comes nearest to it, when it cannot be */
    size_t lent;       /* bytes that guests hold on dev               */
    void *before;      /* running statistics at the start of a step   */
    double *norms;     /* sums of statistics that are taken anew, and
                        * of how many batches; NULL: none are         */
    int64_t norms_batches;
    Readback *readback; /* values that session_keep puts aside         */
    Trace *trace;       /* NULL: nobody looks; held                     */
    int part;           /* of this step, from 0: see step_here         */
    Share share;        /* of the batch that is run in training mode   */

    /* the training step */
    StepState state;         /* over all runs of a network                  */
    double grad_scale;       /* of the gradients that were collected last   */
    bool finite;             /* so were the losses of all its parts so far  */
    StepResult result;       /* of a part that has run and waits to be
                              * collected, where there is no device step      */
    double update_s;         /* looking at gradients and updating, all steps;
                              * where the session decides, else 0           */
    int under_way;           /* parts that were not collected               */
    ParamRange *param_range; /* (param_ranges) that are updated; NULL before
                              * the first step                              */
    int param_ranges;
    OptimGroup group[MAX_GROUPS]; /* of the ranges */
    int groups;
    double ema;        /* share that the average of every step keeps; 0:
                        * steps are not averaged                      */
    void *device_step; /* of the device; NULL before the first step   */
};

/* What random draws depend on now: seed and step, and the part of the step. A
 * part gets a key of its own, as sample n of each would else lose the same
 * units; part 0 keeps the seed, so a step of one part is what it always was. */
static inline Step step_here(const Session *s)
{
    uint64_t key = (uint64_t)s->part * 0x9E3779B97F4A7C15u;
    return (Step){s->spec.seed ^ key, s->state.count, s->share};
}

/* Copy the running statistics to the host, in case a step is undone; and put
 * them back. */
bool keep_running(Session *s);
bool restore_running(Session *s);

/* Forget what was recorded; with this slot's plan: it or its memory goes. */
void destroy_graph(Session *s, CapturedStep *t);
void destroy_graphs(Session *s, Slot *slot);
#endif
