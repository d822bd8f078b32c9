/* plan_inside.h -- what the parts of a plan share: plan.c finds extents and
 * who wants a gradient, plan_fuse.c which rows run as one, plan_half.c which
 * values are of 16 bits, plan_deferred_norm.c which norms nobody runs,
 * plan_calls.c makes the calls, plan_grad_sums.c says which of them sum what
 * they store, plan_grad_sqnorm.c which leave squares of it, plan_microbatch.c
 * which run a few samples at a time, plan_memory.c gives their memory places,
 * plan_recompute.c drops values to be made again where that is too much,
 * plan_run.c runs the calls, plan_cost.c counts what they cost. */
#ifndef SEG_ENGINE_PLAN_PLAN_INSIDE_H
#define SEG_ENGINE_PLAN_PLAN_INSIDE_H
#include "engine/backend/launch_log.h"
#include "engine/plan/mem_plan.h"
#include "engine/plan/plan.h"

/* One making of a value: in the forward run, or once more on the way back. */
typedef struct PlanValue {
    int call;              /* that makes it; -1: none                     */
    int early, late;       /* last call of the forward run and first of the
                            * backward one that read it or its copy, -1   */
    int last, half_last;   /* call that reads it last, and its copy; -1   */
    int value, half_value; /* buffers, -1 where there are none            */
    Tensor x;              /* what calls point at                         */
    Tensor half; /* its copy in 16 bits, of type F32 until a call makes it */
} PlanValue;

/* What a plan knows of each node of the graph, by the node's number. */
typedef struct PlanNode {
    bool used;        /* an ancestor of a root, but no concat that another
                       * call reads in parts; all else is -1 or 0 */
    bool wants;       /* a gradient of its value is wanted          */
    bool dropped;     /* not kept for backward calls: made again    */
    bool read;        /* by a backward call                         */
    bool saves_again; /* what its kernel saved is not kept either, though
                       * no backward call reads its value          */
    int same;         /* node whose value this one shows (else self) */
    int norm, act;    /* nodes that its call runs, too, and that show the
                       * result: see plan_fuse.c; -1 */
    bool deferred;    /* its call leaves both to who reads its value,
                       * see plan_deferred_norm.c */
    DeferredNorm deferred_norm; /* of a lazy one: what readers see through */
    int concat;      /* node whose operands it reads instead of it; -1 */
    int read_by;     /* of a concat that is not used: whose `concat` it is */
    int bwd;         /* its backward call, -1 */
    int param;       /* number in params, -1  */
    Attr attr;       /* a copy: the graph may grow and move */
    PlanValue first; /* in the forward run; of inputs and parameters, what
                      * the caller gives; its extents hold for all of these */
    PlanValue recomputed; /* in the backward run                     */
    Tensor dx;            /* its gradient, and the copy in 16 bits   */
    Tensor half_dx;       /* of type F32 until a call makes it       */
    int grad, half_grad, half_grad_last; /* as of a PlanValue     */
    Tensor grad_sums;   /* sums of its gradient: Call.grad_sums          */
    int sums_by;        /* the call that makes them, -1: none        */
    int sums;           /* their buffer                              */
    Tensor grad_sqnorm; /* of a parameter: Call.grad_sqnorm               */
    int64_t sqnorm_at;  /* the first of them in Squares.left         */
} PlanNode;

/* Calls first .. end-1 run for `each` samples of the batch at a time, in the
 * last slice perhaps for fewer. */
typedef struct MicrobatchGroup {
    int first, end;
    int32_t each, batch, microbatches;
} MicrobatchGroup;

/* Who has a node as operand in the graph: user[from[i]] .. user[from[i + 1] -
 * 1] of node i, rising. seen, stack, walks: of plan_fuse.c's walks over them.
 */
typedef struct Users {
    int *from, *user, *seen, *stack, walks;
} Users;

/* Lives in its own arena, which plan_free must therefore copy out first. All
 * arrays are as long as they can get before the first call is emitted: calls
 * point at nodes, so nothing may move. */
struct Plan {
    Arena mem;
    PlanSpec spec;  /* root and input point at copies in mem */
    PlanNode *node; /* (nodes)                               */
    Users users;
    int nodes;       /* of the graph when it was planned; it may grow */
    Call *call;      /* in the order of running */
    unsigned *fresh; /* per call: Call.fresh, unless gradients accumulate */
    unsigned *param_bits;   /* per call: bits of it that are parameters'   */
    bool *mark, *reached;   /* (nodes) of plan_calls_make                   */
    MicrobatchGroup *group; /* in the order of their calls                  */
    int groups;
    SqnormPlaces squares;
    int sqnorm_by, sqnorm_room; /* the first call that leaves some, and the
                                 * buffer of all of them; -1 */
    int group_at, microbatch; /* stage that runs now, -1, and its slice       */
    int *saved, *scratch;     /* per call: buffers, -1                     */
    int calls, forward;       /* forward calls come first                  */
    Buffer *buffer; /* owned, from mem_alloc: the only array that grows */
    int buffers, room;
    size_t bytes;      /* of the pool                                    */
    size_t kept_bytes; /* the same with nothing dropped              */
    size_t cut_bytes;  /* that slices leave out of buffers           */
    PlanRow *row;
    int rows;
    size_t *live; /* (calls) bytes in use while each runs; NULL before they
                   * are asked for                                    */
    Step step;    /* of the run at hand: every call points here     */
    char *pool;   /* of the device, not owned; NULL before plan_bind */
    void *dev;
};

/* Node i of the graph, which may have moved since the plan was built; so this
 * is asked for anew each time. */
static inline const Node *node_of(const Plan *p, int i)
{
    return &p->spec.graph->node[i];
}

/* The row of node i, which is an operator. */
static inline const OpInfo *info_of(const Plan *p, int i)
{
    return &op_info[node_of(p, i)->attr.op];
}

/* Has node i, an operator, a call of its own? */
static inline bool is_run(const Plan *p, int i)
{
    const PlanNode *q = &p->node[i];
    return q->used && q->same == i && node_of(p, i)->kind == NODE_OP;
}

/* The node whose value is operand k of the call of node i; -1: none. */
static inline int operand_of(const Plan *p, int i, int k)
{
    const PlanNode *q = &p->node[i];
    const Node *n = node_of(p, i);
    if (q->concat >= 0 && (k == 0 || k == X2))
        n = node_of(p, q->concat), k = k == X2;
    return n->in[k] < 0 ? -1 : p->node[n->in[k]].same;
}

/* A call that makes a copy in 16 bits is one of Backend.convert, not of a row;
 * its node is the one whose value or gradient is copied. */
static inline bool is_convert(const Call *c)
{
    return !c->attr;
}

/* What the backward run of call c reads beside dy: see op.h. Back through a
 * fused row it goes by the sign of that row's operand, which a row that keeps
 * its own finds from it again; else by that row's result, which is y. A lazy
 * call takes dy through its norm by what it stored. */
static inline int keeps_of(const Plan *p, const Call *c)
{
    const int keep = info_of(p, c->node)->keep;
    return keep | (c->deferred || (c->act && !(keep & KEEP_X)) ? KEEP_Y : 0);
}

/* How many operands of a row, from the first, get gradients: of a loss only the
 * prediction, so a target that is itself computed is taken as given; lengths
 * are, too. */
static inline int differentiable(const OpInfo *info)
{
    if (!info->grad || info->flags & LOSS) return info->grad;
    return info->in - !!(info->flags & LENGTHS);
}

/* Is call c of the backward run of its node? Others compute values, those of
 * Plan.forward and later for the second time, or copies. */
static inline bool is_backward(const Call *c)
{
    return c->dy != NULL;
}

/* Is it of 16 bits? */
static inline bool is_narrow(const Tensor *t)
{
    return t->type == BF16 || t->type == F16;
}

/* Does the value of node v stay readable after a run? v shows itself. */
bool plan_keeps(const Plan *p, int v);

/* The least that call c can cost; does it add to gradients of parameters? */
LaunchPart plan_cost(const Plan *p, int c, bool accumulate);

/* How many operands of call c are node v. */
static inline int times(const Plan *p, const Call *c, int v)
{
    int count = 0;
    for (int k = 0; k < MAX_IN; k++) count += operand_of(p, c->node, k) == v;
    return count;
}

/* Which making of node v tensor x is; NULL: none of them, but its gradient. */
static inline PlanValue *making_of(Plan *p, int v, const Tensor *x)
{
    PlanNode *q = &p->node[v];
    return x == &q->first.x        ? &q->first
           : x == &q->recomputed.x ? &q->recomputed
                                   : NULL;
}

/* Does one call read the value of node v, and nobody else want it? */
bool is_read_once(Plan *p, int v);
/* Plan.users, before the first of these. */
bool plan_users_make(Plan *p);
/* Rows that the backend runs as one become one: what plan_fuse.c says. */
void plan_fuse(Plan *p);
/* Concats are not made where a convolution reads their operands as well; not
 * `apart`: all are. */
void plan_apart(Plan *p, bool apart);
/* Which values, and so their gradients, are of 16 bits: see plan_half.c. */
void plan_narrow(Plan *p);
/* Which norms are left to those who read what they would make. */
void plan_deferred_norm(Plan *p);
/* What the call of node v runs: "concat + conv + batch_norm + relu". */
enum { ROW_TEXT = 64 };
char *row_text(const Plan *p, int v, char text[ROW_TEXT]);
/* The call of node i, without gradients: extents are set. */
Call plan_call(Plan *p, int i);
/* All calls anew: each value that is dropped and read on the way back is made
 * again before the first that reads it. */
void plan_calls_make(Plan *p);
/* Which backward calls sum gradients that are whole once they have run. */
void plan_grad_sums(Plan *p);
/* Which leave squares of gradients of parameters, and what is left to read. */
void plan_grad_sqnorm(Plan *p);
/* Which calls run a few samples at a time; then, once buffers are there, what
 * this makes of their sizes and lifetimes. */
void plan_microbatches(Plan *p);
void plan_microbatches_fit(Plan *p);
/* The stage of call c, -1; its tensors become those of a slice, or those of the
 * batch again. */
int plan_microbatch_of(const Plan *p, int c);
void plan_microbatch_cut(Plan *p, int i, int microbatch);
void plan_microbatch_mend(Plan *p, int i);
/* The calls in the order of running: the first, and the one after c, with
 * tensors as it is to see them. A run that ends earlier must plan_stop, so that
 * they are whole again. */
int plan_first(Plan *p);
int plan_next(Plan *p, int c);
void plan_stop(Plan *p);
/* Number in the batch of the first sample that the call at hand sees; does
 * none come after those that it sees? */
int32_t plan_sample(const Plan *p);
bool plan_in_last_microbatch(const Plan *p);

enum { POOL_ALIGN = 256 }; // bytes: what a GPU wants of an array; CPUs: 64

static inline size_t plan_aligned(size_t bytes)
{
    return (bytes + POOL_ALIGN - 1) / POOL_ALIGN * POOL_ALIGN;
}

/* Bytes of all buffers, had each a place of its own. */
static inline size_t plan_buffers_sum(const Plan *p)
{
    size_t sum = 0;
    for (int i = 0; i < p->buffers; i++) sum += p->buffer[i].bytes;
    return sum;
}

/* Where a buffer is in the pool; NULL for none, and before plan_bind. */
static inline void *plan_address(const Plan *p, int buffer)
{
    return buffer < 0 || !p->pool ? NULL : p->pool + p->buffer[buffer].at;
}

/* Buffers with lifetimes for the values, gradients and spaces of all calls;
 * then their offsets, and Plan.bytes. */
bool plan_lifetimes(Plan *p);
bool plan_place(Plan *p);
/* Drop values until Plan.bytes is within the budget of the spec. ERR_USAGE when
 * that cannot be, with the least that can. */
bool plan_recompute(Plan *p);
#endif
