/* plan_fuse.c -- rows that run as one.
 *
 * An activation behind a normalisation or a sum costs a pass over memory and
 * next to no arithmetic; so does, in evaluation, a batch_norm behind a
 * convolution, where its statistics are constants. Where the backend runs them
 * in the store of the row before them (Backend.fuses), the planner makes one
 * call of all: the nodes that follow show the value of that row (`same`), whose
 * call has a `norm` and a `then`. The values between are never in memory. So
 * nobody else may want them: no other row, no root.
 *
 * On the way back that call gets the gradient of the activation's value and
 * takes it through the activation as it reads it. It runs where the first row's
 * backward call would, so a gradient that several rows add to is added up in
 * the same order, and all bits are those of calls apart.
 *
 * Names of errors and of printed rows stay those of the graph:
 * "batch_norm + relu". */
#include "plan_inside.h"
#include <stdio.h>

/* How many operands of used nodes are node v's value. */
static int readers(const Plan *p, int v)
{
    int count = 0;
    for (int i = v + 1; i < p->nodes; i++) {
        const Node *n = node_of(p, i);
        // a row that is not run reads nothing: who reads it reads v
        if (!p->node[i].used || p->node[i].same != i) continue;
        for (int k = 0; k < MAX_IN; k++)
            count += n->in[k] >= 0 && p->node[n->in[k]].same == v;
    }
    return count;
}

/* May node v, an operator, run node i, too, which reads its value? */
static bool may_follow(const Plan *p, int v, int i)
{
    const PlanNode *a = &p->node[v];
    // the loss starts the way back by itself
    return a->then < 0 && i != p->spec.loss &&
           dims_equal(a->first.x.dim, p->node[i].first.x.dim) &&
           !plan_keeps(p, v) && readers(p, v) == 1;
}

/* Does the backend run all that node v has by now? */
static bool is_fused(Plan *p, int v)
{
    Call c = plan_call(p, v);
    if (p->spec.loss >= 0 && p->node[v].wants) c.dy = &p->node[v].first.x;
    return p->spec.be->fuses(&c);
}

/* Is node i a batch_norm of constants that are parameters? */
static bool is_constant_norm(const Plan *p, int i)
{
    const Node *n = node_of(p, i);
    if (n->attr.op != OP_batch_norm || p->spec.train || p->spec.loss >= 0)
        return false;
    for (int k = 1; k < MAX_IN; k++)
        if (n->in[k] >= 0 && p->node[n->in[k]].param < 0) return false;
    return true;
}

/* Node i, which reads the value of operator v, becomes a part of its call where
 * it can. */
static bool join(Plan *p, int v, int i)
{
    PlanNode *a = &p->node[v];
    const OpInfo *info = info_of(p, i);
    int *at = NULL;
    if (!may_follow(p, v, i)) return false;
    // of an activation what it keeps must be what is left
    if (info->in == 1 && !(info->keep & ~KEEP_Y)) at = &a->then;
    if (a->norm < 0 && is_constant_norm(p, i)) at = &a->norm;
    if (!at) return false;
    *at = i;
    if (!is_fused(p, v)) *at = -1;
    return *at == i;
}

void plan_fuse(Plan *p)
{
    if (!p->spec.be->fuses) return;
    for (int i = 0; i < p->nodes; i++) {
        PlanNode *q = &p->node[i];
        if (!q->used) continue;
        // what a row that is not run shows may by now show another
        if (q->same != i) q->same = p->node[q->same].same;
        if (q->same != i || node_of(p, i)->kind != NODE_OP) continue;
        int v = p->node[node_of(p, i)->in[0]].same;
        if (node_of(p, v)->kind == NODE_OP && join(p, v, i)) q->same = v;
    }
}

char *row_text(const Plan *p, int v, char text[ROW_TEXT])
{
    const int part[3] = {v, p->node[v].norm, p->node[v].then};
    size_t at = 0;
    for (int i = 0; i < 3 && at < ROW_TEXT; i++)
        if (part[i] >= 0)
            at += (size_t)snprintf(text + at, ROW_TEXT - at, "%s%s",
                                   i ? " + " : "", info_of(p, part[i])->name);
    return text;
}
