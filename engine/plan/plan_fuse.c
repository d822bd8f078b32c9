/* plan_fuse.c -- operators that run in one call.
 *
 * An activation after a normalisation or a sum costs a pass over memory and
 * little arithmetic; so does, in evaluation, a batch_norm after a convolution,
 * whose statistics are constant then. Where the backend runs them in the
 * epilogue of the operator before (Fusions.epilogue), the planner makes one
 * call: the later nodes show the value of the first (`alias_of`), whose call
 * has `norm` and `act`. The values in between are never in memory, so no other
 * operator and no root may read them.
 *
 * The backward call gets the gradient of the activation's result and multiplies
 * it by the derivative of the activation on load. It runs when the backward
 * call of the first operator would run, so gradients add up in the same order
 * and all bits are those of separate calls.
 *
 * A concat is a copy. Where a convolution, transposed or not, reads its two
 * operands where they are and writes their gradients there
 * (Fusions.concat), the concat is implicit; then nothing else may read
 * it, and no other reader of these operands may stand between the two, so that
 * gradients add up in the same order.
 *
 * Errors and printed rows use the names of the graph: "batch_norm + relu",
 * "concat + conv". */
#include "engine/plan/plan_inside.h"
#include <stdio.h>

bool plan_users_make(Plan *p)
{
    Users *u = &p->users;
    int edges = 0;
    u->from = ARENA_NEW(&p->mem, int, p->nodes + 2);
    u->seen = ARENA_NEW(&p->mem, int, p->nodes + 1);
    u->stack = ARENA_NEW(&p->mem, int, p->nodes + 1);
    if (!u->from || !u->seen || !u->stack) return false;

    // counted one index further, so that filling moves each entry to its begin
    for (int i = 0; i < p->nodes; i++)
        for (int k = 0; k < MAX_IN; k++)
            if (node_of(p, i)->in[k] >= 0)
                edges++, u->from[node_of(p, i)->in[k] + 2]++;
    for (int i = 2; i < p->nodes + 2; i++) u->from[i] += u->from[i - 1];
    u->user = ARENA_NEW(&p->mem, int, edges + 1);
    if (!u->user) return false;
    for (int i = 0; i < p->nodes; i++)
        for (int k = 0; k < MAX_IN; k++)
            if (node_of(p, i)->in[k] >= 0)
                u->user[u->from[node_of(p, i)->in[k] + 1]++] = i;
    return true;
}

/* A search for readers of the value of node v. */
typedef struct Walk {
    const Plan *p;
    int v, from, end; // only nodes from .. end-1
    int count, top;
} Walk;

/* Visits node i once and counts its operands that are the value. A node without
 * a call reads nothing: its own readers read the value. */
static void walk_meet(Walk *w, int i)
{
    const Plan *p = w->p;
    if (p->users.seen[i] == p->users.walks) return;
    p->users.seen[i] = p->users.walks;
    if (i != w->v && p->node[i].alias_of == w->v) p->users.stack[w->top++] = i;
    if (i < w->from || i >= w->end || !p->node[i].used ||
        p->node[i].alias_of != i)
        return;
    for (int k = 0; k < MAX_IN; k++) w->count += operand_of(p, i, k) == w->v;
}

// visits only users of v in the graph, and users of nodes that show it: a loop
// over all nodes for each v would be quadratic
int plan_readers(Plan *p, int v, int from, int end, int most)
{
    const Users *u = &p->users;
    Walk w = {.p = p, .v = v, .from = from, .end = end};
    p->users.walks++;
    p->users.stack[w.top++] = v;

    while (w.top && w.count < most) {
        const int shown = u->stack[--w.top];
        for (int k = u->from[shown]; k < u->from[shown + 1]; k++) {
            const int i = u->user[k], by = p->node[i].read_by;
            walk_meet(&w, i);
            // the reader of an implicit concat reads its operands, possibly
            // through a node that shows the concat; the call of a program
            // those of its steps
            if (!p->node[i].used && by >= 0 &&
                (p->node[by].concat == i || p->node[by].program))
                walk_meet(&w, by);
        }
    }
    return w.count;
}

bool is_read_once(Plan *p, int v)
{
    return !plan_keeps(p, v) && plan_readers(p, v, v + 1, p->nodes, 2) == 1;
}

/* May the call of operator v also run node i, which reads its value? */
static bool may_follow(Plan *p, int v, int i)
{
    const PlanNode *a = &p->node[v];
    // the loss starts the backward pass and keeps its own call
    return a->act < 0 && i != p->spec.loss &&
           dims_equal(a->first.x.dim, p->node[i].first.x.dim) &&
           is_read_once(p, v);
}

/* Does the backend fuse all operators assigned to node v so far? */
static bool is_fused(Plan *p, int v)
{
    Call c = plan_call(p, v);
    if (p->spec.loss >= 0 && p->node[v].wants) c.dy = &p->node[v].first.x;
    return backend_fusions(p->spec.be, &c).epilogue;
}

/* Is node i a batch_norm with constants that are parameters? */
static bool is_constant_norm(const Plan *p, int i)
{
    const Node *n = node_of(p, i);
    if (n->attr.op != OP_batch_norm || p->spec.train || p->spec.loss >= 0)
        return false;
    for (int k = 1; k < MAX_IN; k++)
        if (n->in[k] >= 0 && p->node[n->in[k]].param < 0) return false;
    return true;
}

/* Fuses node i, which reads the value of operator v, into the call of v, if
 * possible. */
static bool join(Plan *p, int v, int i)
{
    PlanNode *a = &p->node[v];
    const OpInfo *info = info_of(p, i);
    int *at = NULL;
    if (!may_follow(p, v, i)) return false;
    // an activation may keep only its result, as its operand is not in memory
    if (info->in == 1 && !(info->keep & ~KEEP_Y)) at = &a->act;
    if (a->norm < 0 && is_constant_norm(p, i)) at = &a->norm;
    if (!at) return false;
    *at = i;
    if (!is_fused(p, v)) *at = -1;
    return *at == i;
}

void plan_fuse(Plan *p)
{
    for (int i = 0; i < p->nodes; i++) {
        PlanNode *q = &p->node[i];
        if (!q->used) continue;
        // the node that a skipped operator shows may itself show another by now
        if (q->alias_of != i) q->alias_of = p->node[q->alias_of].alias_of;
        if (q->alias_of != i || node_of(p, i)->kind != NODE_OP) continue;
        int v = p->node[node_of(p, i)->in[0]].alias_of;
        if (node_of(p, v)->kind == NODE_OP && join(p, v, i)) q->alias_of = v;
    }
}

/* Is node j a two-input concat with node i as its only reader? */
static bool is_apart(Plan *p, int j, int i)
{
    const Node *n = node_of(p, j);
    if (n->kind != NODE_OP || n->attr.op != OP_concat || n->in[1] < 0 ||
        n->in[2] >= 0 || !is_read_once(p, j))
        return false;
    const int a = operand_of(p, j, 0), b = operand_of(p, j, 1);
    return a != b && !plan_readers(p, a, j + 1, i, 1) &&
           !plan_readers(p, b, j + 1, i, 1);
}

/* Makes the concat before node i implicit, if possible. */
static void read_apart(Plan *p, int i)
{
    PlanNode *q = &p->node[i];
    const int j = operand_of(p, i, 0);
    if (j < 0 || !op_multiplies((Op)q->attr.op) || !is_apart(p, j, i)) return;
    q->concat = j;
    p->node[j].read_by = i;
    Call c = plan_call(p, i);
    for (int k = 0; k < MAX_IN && p->spec.loss >= 0; k++) {
        const int v = operand_of(p, i, k);
        if (v >= 0 && p->node[v].wants) c.dx[k] = &p->node[v].first.x;
    }
    p->node[j].used = !backend_fusions(p->spec.be, &c).concat;
    if (p->node[j].used) q->concat = -1;
}

void plan_concat(Plan *p, bool apart)
{
    for (int i = 0; i < p->nodes; i++) {
        PlanNode *q = &p->node[i];
        if (q->concat >= 0) p->node[q->concat].used = true;
        q->concat = -1;
        if (apart && is_run(p, i)) read_apart(p, i);
    }
}

PlanOps ops_of(const Plan *p, int v)
{
    const PlanNode *q = &p->node[v];
    PlanOps ops = {.count = 0};
    if (q->program) {
        for (int s = 0; s < q->program->code.steps; s++)
            if (q->program->code.step[s].attr->op != OP_constant)
                ops.node[ops.count++] = q->program->node[s];
        return ops;
    }
    const int part[] = {q->concat, v, q->norm, q->act};
    for (int i = 0; i < 4; i++)
        if (part[i] >= 0) ops.node[ops.count++] = part[i];
    return ops;
}

void plan_ops_text(const Graph *g, const PlanOps *ops, char text[PLAN_OPS_TEXT])
{
    enum { NAMES = 4 }; // of the longest row without a program
    const int names = ops->count > NAMES ? NAMES - 2 : ops->count;
    size_t at = 0;
    *text = 0;
    for (int i = 0; i < names && at < PLAN_OPS_TEXT; i++)
        at += (size_t)snprintf(text + at, PLAN_OPS_TEXT - at, "%s%s",
                               at ? " + " : "",
                               op_info[g->node[ops->node[i]].attr.op].name);
    if (names < ops->count && at < PLAN_OPS_TEXT)
        snprintf(text + at, PLAN_OPS_TEXT - at, " + %d more",
                 ops->count - names);
}

char *row_text(const Plan *p, int v, char text[ROW_TEXT])
{
    const PlanOps ops = ops_of(p, v);
    plan_ops_text(p->spec.graph, &ops, text);
    return text;
}
