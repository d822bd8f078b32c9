/* plan_inside.h -- what the parts of a plan share: plan.c makes the
 * calls, plan_place.c gives their memory places, plan_run.c runs them,
 * plan_cost.c counts what they cost. */
#ifndef SEG_PLAN_INSIDE_H
#define SEG_PLAN_INSIDE_H
#include "launch_log.h"
#include "place.h"
#include "plan.h"

/* What a plan knows of each node of the graph, by the node's number. */
typedef struct PlanNode {
    bool used;    /* an ancestor of a root; all else is -1 or 0 */
    bool wants;   /* a gradient of its value is wanted           */
    int same;     /* node whose value this one shows (else self) */
    int fwd, bwd; /* its calls, -1 where it has none             */
    int value;    /* buffers, -1 where there are none            */
    int grad;
    int param;    /* number in params, -1                        */
    Attr attr;    /* a copy: the graph may grow and move         */
    Tensor x, dx; /* what calls point at                         */
    /* their copies in 16 bits, of type F32 until a call makes them */
    Tensor half_x, half_dx;
    int half_value, half_grad; /* buffers of the copies, -1 */
} PlanNode;

/* Lives in its own arena, which plan_free must therefore copy out first. All
 * arrays are as long as they can get before the first call is emitted: calls
 * point at nodes, so nothing may move. */
struct Plan {
    Arena mem;
    PlanSpec spec;        /* root and input point at copies in mem */
    PlanNode *node;       /* (nodes)                               */
    int nodes;            /* of the graph when it was planned; it may grow */
    Call *call;           /* in the order of running */
    unsigned *param_bits; /* per call: bits of dx that are parameters' */
    int *saved, *scratch; /* per call: buffers, -1                     */
    int calls, forward;   /* forward calls come first                  */
    Buffer *buffer;       /* owned, from mem_alloc: the only array that grows */
    int buffers, room;
    size_t bytes; /* of the pool                                    */
    PlanRow *row;
    int rows;
    Step step;  /* of the run at hand: every call points here     */
    char *pool; /* of the device, not owned; NULL before plan_bind */
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

/* A call that makes a copy in 16 bits is one of Backend.convert, not of a row;
 * its node is the one whose value or gradient is copied. */
static inline bool is_convert(const Call *c)
{
    return !c->attr;
}

/* Does the value of node v stay readable after a run? v shows itself. */
bool plan_keeps(const Plan *p, int v);

/* The least that call c can cost; does it add to gradients of parameters? */
LaunchPart plan_cost(const Plan *p, int c, bool accumulate);

/* Buffers for the values, gradients and spaces of all calls, with offsets. */
bool plan_place(Plan *p);
#endif
