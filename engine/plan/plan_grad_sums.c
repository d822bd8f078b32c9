/* plan_grad_sums.c -- sums of a gradient, made by the call that writes it last.
 *
 * The backward pass of a batch_norm begins with sums over all rows of its
 * gradient, and the gradient of a bias is such a sum: a pass over a tensor that
 * another call has just written. Several calls may add to one gradient; the
 * last of them has the final values. If that call can sum them as it stores
 * (Fusions.sums), it writes the sums for the call that reads the
 * gradient, and the gradients that depend on these sums alone.
 *
 * The sums are used by a convolution with a deferred norm, whose backward call
 * computes the norm's gradients (plan_deferred_norm.c), and by one with a bias
 * that is trained. */
#include "engine/plan/plan_inside.h"

/* Does the backward call of node v begin with sums of its gradient? */
static bool wants_grad_sums(const Plan *p, int v)
{
    const PlanNode *q = &p->node[v];
    if (q->bwd < 0 || node_of(p, v)->kind != NODE_OP) return false;
    return q->deferred || (op_multiplies((Op)q->attr.op) && q->act < 0 &&
                           p->call[q->bwd].dx[2]);
}

/* Is call c the only one that adds to gradient dx? */
static bool is_alone(const Plan *p, int c, const Tensor *dx)
{
    for (int i = p->forward; i < p->calls; i++)
        for (int k = 0; k < MAX_IN && i != c && dx; k++)
            if (p->call[i].dx[k] == dx || p->call[i].norm.dx[k] == dx)
                return false;
    return true;
}

/* Are the gradients that call c computes from sums of its dy written by c
 * alone, so that another call may write them earlier? */
static bool are_own(const Plan *p, int c)
{
    const Call *call = &p->call[c];
    return call->norm.deferred ? is_alone(p, c, call->norm.dx[1]) &&
                                     is_alone(p, c, call->norm.dx[2])
                               : is_alone(p, c, call->dx[2]);
}

/* Call c writes the final gradient of node v, its operand k: assigns the
 * sums. */
static void close_gradient(Plan *p, int c, int k, int v)
{
    PlanNode *q = &p->node[v];
    Call *call = &p->call[c];
    if (!wants_grad_sums(p, v) || times(p, call, v) != 1 ||
        !(backend_fusions(p->spec.be, call).sums >> k & 1))
        return;
    q->sums_by = c;
    Call *reader = &p->call[q->bwd];
    q->grad_sums = (Tensor){
        {1, 1, 1, 1, grad_sums_size(q->first.x.dim.c)}, F64, RANK_MAX, NULL};
    call->sums.dx[k] = reader->sums.dy = &q->grad_sums;
    reader->sums.written = are_own(p, q->bwd);
    if (reader->sums.written) call->sums.reader[k] = reader;
}

void plan_grad_sums(Plan *p)
{
    // backwards: the first call found here is the last that adds
    for (int c = p->calls - 1; c >= p->forward; c--) {
        const Call *call = &p->call[c];
        if (!is_backward(call)) continue;
        for (int k = 0; k < MAX_IN; k++) {
            const int v = operand_of(p, call->node, k);
            if (!call->dx[k] || p->mark[v]) continue;
            p->mark[v] = true;
            close_gradient(p, c, k, v);
        }
    }
    for (int i = 0; i < p->nodes; i++) p->mark[i] = false;
}
