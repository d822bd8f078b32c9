/* session_inside.h -- definitions shared by session.c (plans, memory, runs),
 * session_step.c (the training step) and session_average.c. */
#ifndef SEG_ENGINE_SESSION_SESSION_INSIDE_H
#define SEG_ENGINE_SESSION_SESSION_INSIDE_H
#include "engine/session/session.h"

enum {
    MAX_PLANS = 16,  // sets of extents in use; older ones are planned again
    MAX_INPUTS = 16, // of a network; the C API has the same limit
};

/* A captured part of a step with one plan; the part may be first, last, both or
 * neither. */
typedef struct CapturedStep {
    bool tried;     /* ran call by call once, so that a fault has a name  */
    void *graph;    /* a CUDA graph, on a GPU; or NULL                    */
    int64_t number; /* of the capture, which all ranks made together      */
    int odd;        /* times in a row that other ranks had another number */
} CapturedStep;

/* A plan and the inputs that it was made for. */
typedef struct Slot {
    Plan *plan;
    bool train;
    PlanInput input[MAX_INPUTS];
    int inputs;
    int64_t used; /* time of the last request: the oldest is replaced   */
    CapturedStep captured[2][2]; /* of parts of steps, by [first][last] */
} Slot;

struct Session {
    SessionSpec spec; /* the data that it points to is copied below      */
    int *root;        /* owned: the caller's, and the loss               */
    int *step_root;   /* owned: roots that a training step computes      */
    bool *in_step;    /* owned: nodes that these roots need, of `nodes`,
                       * which the graph had when the session was opened */
    int nodes;
    char *tiles; /* owned: the caller's                     */
    Optim optim;
    bool trains; /* has a loss and an optimiser                     */
    const Backend *be;
    void *dev;
    bool opened;         /* dev is to be closed                       */
    bool careful;        /* wait after each call, always: SEG_CAREFUL */
    int threads;         /* of dev                                    */
    Allreduce allreduce; /* of ranks that have a device each          */
    Params params;
    Slot slot[MAX_PLANS];
    int64_t clock;     /* counts requests: the age of slots             */
    int64_t captures;  /* number of captures, equal on all ranks        */
    void *pool;        /* on dev, shared by all plans                   */
    size_t pool_bytes; /* 0 if there is none yet                        */
    size_t budget;     /* of training plans; 0: none                    */
    bool least;        /* if the budget cannot be met: the closest plan */
    size_t accounted;  /* bytes that other objects hold on dev          */
    void *before;      /* running statistics at the start of a step     */
    double *bn_sums;   /* sums while statistics are computed again,
                        * and the number of their batches; or NULL      */
    int64_t bn_batches;
    Readback *readback; /* values that session_run_async appends          */
    Trace *trace;       /* NULL: not traced; one reference           */
    LaunchLog *log;     /* of the part that session_queue_timed queues      */
    int part;           /* of this step, from 0: see step_here       */
    Shard shard;        /* of the batch that is run in training mode */

    /* the training step */
    StepState state;         /* over all runs of a network               */
    double grad_scale;       /* of the last collected gradients          */
    bool finite;             /* were the losses of all its parts so far? */
    StepResult result;       /* of a part that has run and is not collected
                              * yet, without device steps                */
    double update_s;         /* gradient norms and updates, all steps;
                              * 0 with device steps                      */
    int under_way;           /* parts that were not collected            */
    ParamRange *param_range; /* (param_ranges) that are updated; NULL before
                              * the first step                           */
    int param_ranges;
    OptimGroup group[MAX_GROUPS]; /* of the ranges */
    int groups;
    double ema;        /* share that the average keeps in every step; 0:
                        * no average in every step                  */
    void *device_step; /* of the device; NULL before the first step */
};

/* Returns the key of the random draws: seed and step, and the part of the step.
 * Each part has its own seed, as otherwise sample n of every part would drop
 * the same units; part 0 keeps the seed of the session. */
static inline Step step_here(const Session *s)
{
    uint64_t key = (uint64_t)s->part * 0x9E3779B97F4A7C15u;
    return (Step){s->spec.seed ^ key, s->state.count, s->shard};
}

/* Copy the running statistics to the host, in case a step is undone; and
 * restore them. */
bool keep_running(Session *s);
bool restore_running(Session *s);

/* Destroy one captured graph; and all of this slot, before its plan or memory
 * changes. */
void destroy_graph(Session *s, CapturedStep *t);
void destroy_graphs(Session *s, Slot *slot);
#endif
