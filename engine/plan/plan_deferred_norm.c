/* plan_deferred_norm.c -- batch norms that their readers apply on load.
 *
 * In training a batch_norm has its statistics only after the convolution before
 * it has finished. To apply them, and the activation, would be a pass that
 * reads and writes the whole tensor for a few operations an element. Where all
 * readers can apply both as they load (Fusions.x_norm), no call runs
 * them: memory has the result of the convolution, which alone is kept for the
 * backward pass. The nodes of the norm and of the activation show that tensor
 * (`alias_of`); the convolution's call has Call.norm.deferred, its readers a
 * DeferredNorm.
 *
 * The backward call of the convolution also computes the gradients of the
 * norm's parameters, since it gets the gradient of the activation's result.
 *
 * For storage in 16 bits only: in f32 a load is bound by arithmetic already.
 * Statistics have the bits of separate calls. The normalised value is rounded
 * once, where separate calls round after the norm and after the activation. */
#include "engine/plan/plan_inside.h"

/* May node i be a deferred norm of the result of product v? */
static bool may_be_deferred(Plan *p, int v, int i)
{
    const PlanNode *a = &p->node[v], *b = &p->node[i];
    return node_of(p, v)->kind == NODE_OP && op_multiplies((Op)a->attr.op) &&
           b->attr.op == OP_batch_norm && a->norm < 0 && a->act < 0 &&
           a->wants && is_narrow(&a->first.x) && is_narrow(&b->first.x) &&
           !plan_keeps(p, i) && is_read_once(p, v);
}

/* Makes norm i a deferred norm of node v, or undoes it: nodes that show i then
 * show v. */
static void set_deferred(Plan *p, int v, int i, bool deferred)
{
    PlanNode *a = &p->node[v], *b = &p->node[i];
    const int from = deferred ? i : v, to = deferred ? v : i;
    for (int k = i; k < p->nodes; k++)
        if (p->node[k].alias_of == from) p->node[k].alias_of = to;
    a->deferred = deferred;
    a->norm = deferred ? i : -1;
    a->act = deferred ? b->act : -1;
    a->deferred_norm = (DeferredNorm){
        .norm = &b->attr, .act = b->act < 0 ? NULL : &p->node[b->act].attr};
}

/* Can each reader of node v apply the deferred norm on load, and can its own
 * call skip the norm? */
static bool all_see(Plan *p, int v)
{
    Call own = plan_call(p, v);
    own.dy = &p->node[v].first.x;
    if (!backend_fusions(p->spec.be, &own).epilogue) return false;

    for (int i = v + 1; i < p->nodes; i++) {
        const PlanNode *q = &p->node[i];
        if (!is_run(p, i)) continue;
        Call c = plan_call(p, i);
        if (q->wants) c.dy = &q->first.x;
        for (int k = 0; k < MAX_IN; k++)
            if (operand_of(p, i, k) == v &&
                !(backend_fusions(p->spec.be, &c).x_norm >> k & 1))
                return false;
    }
    return true;
}

void plan_deferred_norm(Plan *p)
{
    const bool trains = p->spec.train && p->spec.loss >= 0;
    if (!trains) return;
    for (int i = 0; i < p->nodes; i++) {
        if (!is_run(p, i)) continue;
        const int v = operand_of(p, i, 0);
        if (v < 0 || !may_be_deferred(p, v, i)) continue;
        set_deferred(p, v, i, true);
        if (!all_see(p, v)) set_deferred(p, v, i, false);
    }
}
