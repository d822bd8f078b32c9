/* plan_inside.h -- the structures of a plan, shared by plan.c and its passes
 * (plan_*.c); plan.c lists the passes in their order. */
#ifndef SEG_ENGINE_PLAN_PLAN_INSIDE_H
#define SEG_ENGINE_PLAN_PLAN_INSIDE_H
#include "engine/backend/launch_log.h"
#include "engine/plan/mem_plan.h"
#include "engine/plan/plan.h"

/* A value as one call computes it: in the forward pass, or recomputed in the
 * backward pass. Calls and buffers are numbers; -1: none. */
typedef struct PlanValue {
    int call;              /* computes it                                   */
    int early, late;       /* last forward and first backward call that read
                            * it or its copy                                */
    int last, half_last;   /* last readers of it and of its copy            */
    int value, half_value; /* buffers of both                               */
    Tensor x;              /* calls point at it                             */
    Tensor half;           /* copy in 16 bits; F32 until a call makes it    */
} PlanValue;

/* A program and the nodes of its operands and of its steps, which are in the
 * order of the graph; the last step is the node that has the program. */
typedef struct PlanProgram {
    Program code;
    int operand[MAX_IN], node[PROGRAM_STEPS];
} PlanProgram;

/* The state of one node of the graph. Numbers are -1 for none. */
typedef struct PlanNode {
    bool used;        /* an ancestor of a root, and not an implicit concat
                       * or a step inside a program; of other nodes the rest
                       * is -1 or 0                                         */
    bool wants;       /* a gradient of its value is wanted                  */
    bool dropped;     /* not kept for backward calls: recomputed            */
    bool read;        /* by a backward call                                 */
    bool saves_again; /* its saved memory is not kept either, though no
                       * backward call reads its value                      */
    int alias_of;     /* the node whose value this one shows; else itself   */
    int norm, act;    /* nodes in the epilogue of its call (plan_fuse.c)    */
    bool deferred;    /* `norm` and `act` are a deferred norm               */
    DeferredNorm deferred_norm; /* for the readers of its value             */
    int concat;           /* implicit concat whose operands it reads        */
    PlanProgram *program; /* that its call runs; or NULL                    */
    int read_by;          /* of an implicit concat: the node that reads it;
                           * of a step inside a program: the last step      */
    int bwd;              /* its backward call                              */
    int param;            /* number in params                               */
    Attr attr;            /* a copy, since the graph may grow and move      */
    PlanValue first;      /* of the forward pass; of inputs and parameters
                           * the caller's; all of them have its extents     */
    PlanValue recomputed; /* of the backward pass                           */
    Tensor dx;            /* its gradient                                   */
    Tensor half_dx;       /* copy of dx; F32 until a call makes it          */
    int grad, half_grad, half_grad_last; /* as in PlanValue                 */
    Tensor grad_sums;   /* Call.sums.dx of its gradient                 */
    int sums_by;        /* the call that writes them                      */
    int sums;           /* their buffer                                   */
    Tensor grad_sqnorm; /* of a parameter: Call.sums.sqnorm               */
    int64_t sqnorm_at;  /* its first number in SqnormPlaces.left          */
} PlanNode;

/* Calls first .. end-1 run on micro-batches of `each` samples; the last one may
 * be smaller. */
typedef struct MicrobatchGroup {
    int first, end;
    int32_t each, batch, microbatches;
} MicrobatchGroup;

/* The users of each node: user[from[i]] .. user[from[i + 1] - 1] have node i as
 * an operand, in rising order. seen, stack, walks: search state of plan_fuse.c.
 */
typedef struct Users {
    int *from, *user, *seen, *stack, walks;
} Users;

/* A plan lies in its own arena; plan_free copies the arena out before it frees
 * it. Arrays get their full length before the first call is emitted: calls
 * point at nodes, so nothing may move. */
struct Plan {
    Arena mem;
    PlanSpec spec;  /* root and input point at copies in mem */
    PlanNode *node; /* (nodes)                               */
    Users users;
    int nodes;       /* of the graph when it was planned; it may grow */
    Call *call;      /* in the order of running */
    unsigned *fresh; /* per call: Call.fresh, unless gradients accumulate */
    unsigned *param_bits;   /* per call: bits of `fresh` for parameters     */
    bool *mark, *reached;   /* (nodes) of plan_calls_make                   */
    MicrobatchGroup *group; /* in the order of their calls                  */
    int groups;
    SqnormPlaces sqnorms;
    int sqnorm_by, sqnorm_room; /* the first call that writes partial sums of
                                 * squares, and the buffer for all; -1      */
    int group_at, microbatch; /* the group that runs now, -1, and its number */
    int *saved, *scratch;     /* per call: buffers, -1                     */
    int calls, forward;       /* forward calls come first                  */
    Buffer *buffer; /* owned, from mem_alloc: the only array that grows */
    int buffers, room;
    size_t bytes;      /* of the pool                                    */
    size_t kept_bytes; /* the same with nothing dropped              */
    size_t cut_bytes;  /* saved by micro-batches                     */
    PlanRow *row;
    int rows;
    size_t *live; /* (calls) bytes in use while each runs; NULL until they
                   * are requested                                   */
    Step step;    /* of the current run: every call points here      */
    char *pool;   /* of the device, not owned; NULL before plan_bind */
    void *dev;
};

/* Node i of the graph. The graph may have moved since the plan was built, so no
 * pointer is kept. */
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
    return q->used && q->alias_of == i && node_of(p, i)->kind == NODE_OP;
}

/* The node whose value is operand k of the call of node i; -1: none. */
static inline int operand_of(const Plan *p, int i, int k)
{
    const PlanNode *q = &p->node[i];
    const Node *n = node_of(p, i);
    if (q->program)
        return k < q->program->code.operands ? q->program->operand[k] : -1;
    if (q->concat >= 0 && (k == 0 || k == X2))
        n = node_of(p, q->concat), k = k == X2;
    return n->in[k] < 0 ? -1 : p->node[n->in[k]].alias_of;
}

/* Is it a 16-bit copy, by Backend.convert? Its node is the node of the copied
 * value or gradient. */
static inline bool is_convert(const Call *c)
{
    return !c->attr;
}

/* The KEEP_* bits of call c with its epilogue. The backward pass through an
 * activation needs the sign of the activation's operand: an operator that keeps
 * its own operand computes it again, any other takes it from y. A call with a
 * deferred norm needs y for the norm. */
static inline int keeps_of(const Plan *p, const Call *c)
{
    const int keep = info_of(p, c->node)->keep;
    if (c->program) return c->program->reads_y ? KEEP_Y : 0;
    return keep |
           (c->norm.deferred || (c->act && !(keep & KEEP_X)) ? KEEP_Y : 0);
}

/* Does backward call c read operand k? */
static inline bool reads_operand(const Plan *p, const Call *c, int k)
{
    return c->program ? c->program->reads >> k & 1
                      : op_keeps(info_of(p, c->node), k);
}

/* The number of operands, from the first, that get gradients: of a loss the
 * prediction alone, so a computed target is a constant; lengths and indices
 * are constants too. */
static inline int differentiable(const OpInfo *info)
{
    if (!info->grad || info->flags & LOSS) return info->grad;
    return info->in - !!(info->flags & (LENGTHS | INDICES));
}

/* Is it a backward call? Other calls compute values, from Plan.forward on for
 * the second time, or copies. */
static inline bool is_backward(const Call *c)
{
    return c->dy != NULL;
}

/* Is it stored in 16 bits? */
static inline bool is_narrow(const Tensor *t)
{
    return t->type == BF16 || t->type == F16;
}

/* Is the value of node v readable after a run? v shows its own value. */
bool plan_keeps(const Plan *p, int v);

/* A lower bound of the cost of call c; accumulate: gradients of parameters are
 * added to. */
LaunchPart plan_cost(const Plan *p, int c, bool accumulate);

/* How many operands of call c are node v. */
static inline int times(const Plan *p, const Call *c, int v)
{
    int count = 0;
    for (int k = 0; k < MAX_IN; k++) count += operand_of(p, c->node, k) == v;
    return count;
}

/* The PlanValue of node v that has tensor x; NULL: x is its gradient. */
static inline PlanValue *value_of(Plan *p, int v, const Tensor *x)
{
    PlanNode *q = &p->node[v];
    return x == &q->first.x        ? &q->first
           : x == &q->recomputed.x ? &q->recomputed
                                   : NULL;
}

/* Returns how many operands of used nodes from .. end-1 are node v's value, at
 * most `most`. */
int plan_readers(Plan *p, int v, int from, int end, int most);
/* Does exactly one call read the value of node v, which is no root? */
bool is_read_once(Plan *p, int v);
/* Make Plan.users, which the passes below need. */
bool plan_users_make(Plan *p);
/* The passes; each file has the description. */
void plan_fuse(Plan *p);
void plan_programs(Plan *p);
/* Implicit concats; apart false: every concat is a call. */
void plan_concat(Plan *p, bool apart);
void plan_half(Plan *p);
void plan_deferred_norm(Plan *p);
/* The operators of the call of node v; their names, as plan_ops_text. */
enum { ROW_TEXT = PLAN_OPS_TEXT };
PlanOps ops_of(const Plan *p, int v);
char *row_text(const Plan *p, int v, char text[ROW_TEXT]);
/* Set the state that all calls of a run read. */
bool plan_begin(Plan *p, const Step *step);
/* Run call c, and its pair with it. */
bool plan_run_call(Plan *p, int c, const PlanRun *run);
/* Describe node `node` for people, with `what` for its operators:
 * "conv (enc1.conv1, scripts/x.lua:12)". */
void plan_describe(const Plan *p, int node, const char *what, char *text,
                   size_t room);
/* The forward call of node i with its extents. */
Call plan_call(Plan *p, int i);
/* Make all calls; a dropped value is computed again before its first backward
 * reader. */
void plan_calls_make(Plan *p);
void plan_grad_sums(Plan *p);
void plan_grad_sqnorm(Plan *p);
void plan_pairs(Plan *p);
/* Find the groups; then, with buffers made, set their sizes and lifetimes. */
void plan_microbatches(Plan *p);
void plan_microbatches_fit(Plan *p);
/* Return the group of call c, or -1. Cut its tensors to a micro-batch, and
 * restore them to the batch. */
int plan_microbatch_of(const Plan *p, int c);
void plan_microbatch_cut(Plan *p, int i, int microbatch);
void plan_microbatch_mend(Plan *p, int i);
/* The calls in the order of execution: the first, and the one after c, with
 * tensors cut to its micro-batch. A run that ends early calls plan_stop, which
 * restores them. */
int plan_first(Plan *p);
int plan_next(Plan *p, int c);
void plan_stop(Plan *p);
/* The number in the batch of the first sample of the current micro-batch; is it
 * the last micro-batch? */
int32_t plan_sample(const Plan *p);
bool plan_in_last_microbatch(const Plan *p);

enum {
    POOL_ALIGN = 256
}; // bytes: the alignment of arrays on a GPU; CPUs need 64

static inline size_t plan_aligned(size_t bytes)
{
    return (bytes + POOL_ALIGN - 1) / POOL_ALIGN * POOL_ALIGN;
}

/* Bytes of all buffers without sharing. */
static inline size_t plan_buffers_sum(const Plan *p)
{
    size_t sum = 0;
    for (int i = 0; i < p->buffers; i++) sum += p->buffer[i].bytes;
    return sum;
}

/* The address of a buffer in the pool; NULL for none, and before plan_bind. */
static inline void *plan_address(const Plan *p, int buffer)
{
    return buffer < 0 || !p->pool ? NULL : p->pool + p->buffer[buffer].at;
}

/* Make the buffers of all calls with their lifetimes; then their offsets, and
 * Plan.bytes. */
bool plan_lifetimes(Plan *p);
bool plan_place(Plan *p);
/* Drop values until Plan.bytes is within the budget of the spec. ERR_USAGE with
 * the smallest possible budget if none fits. */
bool plan_recompute(Plan *p);
#endif
