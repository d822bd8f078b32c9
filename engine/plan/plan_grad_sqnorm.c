/* plan_grad_sqnorm.c -- gradient-norm partial sums, written by the kernels that
 * write the gradients.
 *
 * After the backward pass the norm of all gradients is needed: a pass over
 * numbers that kernels had in registers shortly before. A call that writes the
 * final gradient of a parameter also writes partial sums of its squares, if it
 * can (Fusions.sqnorm_parts); they stand in one buffer until the next run. The
 * norm reads these sums, and the other gradients in full.
 *
 * In a run that accumulates, the sums are those of the accumulated gradient:
 * after the last batch of a step, of the gradient that the optimiser uses. */
#include "engine/plan/plan_inside.h"

/* Call c writes the final gradient of its operand k, the value of node v:
 * assigns partial sums to it. */
static void leave_squares(Plan *p, int c, int k, int v, int *left)
{
    PlanNode *q = &p->node[v];
    Call *call = &p->call[c];

    // there may be a gradient to read between two with partial sums
    if (q->param < 0 || *left == MAX_RESTS - 1 || times(p, call, v) != 1)
        return;
    const int32_t count = backend_fusions(p->spec.be, call).sqnorm_parts[k];
    if (!count) return;
    q->grad_sqnorm = (Tensor){{1, 1, 1, 1, count}, F64, RANK_MAX, NULL};
    q->sqnorm_at = p->sqnorms.lefts;
    p->sqnorms.lefts += count;
    p->sqnorm_by = c;
    call->sums.sqnorm[k] = &q->grad_sqnorm;
    ++*left;
}

/* If call c has a deferred norm, it also adds to gradients of the norm's
 * parameters, without partial sums: marks them. */
static void mark_norm(Plan *p, const Call *c)
{
    for (int k = 0; k < MAX_IN; k++)
        if (c->norm.dx[k])
            p->mark[operand_of(p, p->node[c->node].norm, k)] = true;
}

static void find_last(Plan *p)
{
    int left = 0;

    // from the end, as in plan_grad_sums.c
    for (int c = p->calls - 1; c >= p->forward; c--) {
        const Call *call = &p->call[c];
        if (!is_backward(call)) continue;
        mark_norm(p, call);
        for (int k = 0; k < MAX_IN; k++) {
            const int v = operand_of(p, call->node, k);
            if (!call->dx[k] || p->mark[v]) continue;
            p->mark[v] = true;
            leave_squares(p, c, k, v, &left);
        }
    }
    for (int i = 0; i < p->nodes; i++) p->mark[i] = false;
}

static int64_t lines(int64_t elements)
{
    return (elements + PARAM_ALIGN - 1) / PARAM_ALIGN;
}

/* Adds lines from .. to - 1 of the block to the gradients that are read in
 * full. */
static void add_rest(SqnormPlaces *s, int64_t from, int64_t to)
{
    if (from == to) return;
    s->rest[s->rests++] =
        (Rest){(uint32_t)(s->elements / PARAM_ALIGN), (uint32_t)from};
    s->elements += (to - from) * PARAM_ALIGN;
}

void plan_grad_sqnorm(Plan *p)
{
    const Params *all = p->spec.params;
    SqnormPlaces *s = &p->sqnorms;
    int64_t from = 0;

    s->lefts = s->elements = s->rests = 0;
    for (int i = 0; i < p->nodes; i++) p->node[i].grad_sqnorm.dim.c = 0;
    if (p->spec.sqnorms && !p->spec.no_fusion) find_last(p);

    for (int i = 0; i < all->count; i++) {
        const Param *a = &all->list[i];
        // running statistics come after the trained block
        if (!a->trained || !p->node[a->node].grad_sqnorm.dim.c) continue;
        add_rest(s, from, a->at / PARAM_ALIGN);
        from = a->at / PARAM_ALIGN + lines(numel(a->dim));
    }
    add_rest(s, from, all->trained / PARAM_ALIGN);
}

const SqnormPlaces *plan_sqnorms(const Plan *p)
{
    return &p->sqnorms;
}
