/* plan_inside.h -- what the three parts of a plan share: plan.c makes the
 * calls, plan_place.c gives their memory places, plan_run.c runs them. */
#ifndef SEG_PLAN_INSIDE_H
#define SEG_PLAN_INSIDE_H
#include "place.h"
#include "plan.h"

typedef struct PlanNode {
    bool used;
    bool wants;   /* a gradient of its value is wanted           */
    int same;     /* node whose value this one shows (else self) */
    int fwd, bwd; /* its calls, -1 where it has none             */
    int value;    /* buffers, -1 where there are none            */
    int grad;
    int param;    /* number in params, -1                        */
    Attr attr;    /* a copy: the graph may grow and move         */
    Tensor x, dx; /* what calls point at                         */
} PlanNode;

struct Plan {
    Arena mem;
    PlanSpec spec;
    PlanNode *node;
    int nodes; /* of the graph when it was planned; it may grow */
    Call *call;
    unsigned *param_bits; /* per call: bits of dx that are parameters' */
    int *saved, *scratch; /* per call: buffers, -1                     */
    int calls, forward;   /* forward calls come first                  */
    Buffer *buffer;
    int buffers, room;
    size_t bytes;
    PlanRow *row;
    int rows;
    Step step;
    char *pool;
    void *dev;
};

static inline const Node *node_of(const Plan *p, int i)
{
    return &p->spec.graph->node[i];
}

static inline const OpInfo *info_of(const Plan *p, int i)
{
    return &op_info[node_of(p, i)->attr.op];
}

/* Does the value of node v stay readable after a run? v shows itself. */
bool plan_keeps(const Plan *p, int v);

/* Buffers for the values, gradients and spaces of all calls, with offsets. */
bool plan_place(Plan *p);
#endif
