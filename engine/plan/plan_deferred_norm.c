/* plan_deferred_norm.c -- norms that nobody runs.
 *
 * In training a batch_norm knows its statistics only when the convolution
 * before it is done. To apply them, and the activation behind, is a pass that
 * reads and writes all of a value for a few operations each. Where those who
 * read the value can apply them as they load (Backend.loads_deferred), the pass
 * is not run: memory has what the convolution made, and that alone is kept for
 * the way back. The norm and the activation show the convolution's value
 * (`same`), whose call is lazy: see Call.deferred and DeferredNorm.
 *
 * The norm's own gradients are made by the call that gets the gradient of the
 * value, the convolution's backward call.
 *
 * Only in 16 bits: loads in f32 are bound by arithmetic as it is. Statistics
 * are those of rows apart; what a lens shows is rounded once, where rows apart
 * round behind the norm and behind the activation. */
#include "engine/plan/plan_inside.h"

/* Could the norm that node i is be left to its readers by the product v? */
static bool may_be_deferred(Plan *p, int v, int i)
{
    const PlanNode *a = &p->node[v], *b = &p->node[i];
    return node_of(p, v)->kind == NODE_OP && op_multiplies((Op)a->attr.op) &&
           b->attr.op == OP_batch_norm && a->norm < 0 && a->act < 0 &&
           a->wants && is_narrow(&a->first.x) && is_narrow(&b->first.x) &&
           !plan_keeps(p, i) && is_read_once(p, v);
}

/* Node v becomes lazy, or is no longer: norm i and all that show it show v. */
static void set_deferred(Plan *p, int v, int i, bool deferred)
{
    PlanNode *a = &p->node[v], *b = &p->node[i];
    const int from = deferred ? i : v, to = deferred ? v : i;
    for (int k = i; k < p->nodes; k++)
        if (p->node[k].same == from) p->node[k].same = to;
    a->deferred = deferred;
    a->norm = deferred ? i : -1;
    a->act = deferred ? b->act : -1;
    a->deferred_norm = (DeferredNorm){
        .norm = &b->attr, .act = b->act < 0 ? NULL : &p->node[b->act].attr};
}

/* Does each reader of lazy node v see through a lens, and its own call leave
 * the norm alone? */
static bool all_see(Plan *p, int v)
{
    Call own = plan_call(p, v);
    own.dy = &p->node[v].first.x;
    if (!p->spec.be->fuses(&own)) return false;
    for (int i = v + 1; i < p->nodes; i++) {
        const PlanNode *q = &p->node[i];
        if (!is_run(p, i)) continue;
        Call c = plan_call(p, i);
        if (q->wants) c.dy = &q->first.x;
        for (int k = 0; k < MAX_IN; k++)
            if (operand_of(p, i, k) == v &&
                !(p->spec.be->loads_deferred(&c) >> k & 1))
                return false;
    }
    return true;
}

void plan_deferred_norm(Plan *p)
{
    const bool trains = p->spec.train && p->spec.loss >= 0;
    if (!trains || !p->spec.be->loads_deferred || !p->spec.be->fuses) return;
    for (int i = 0; i < p->nodes; i++) {
        if (!is_run(p, i)) continue;
        const int v = operand_of(p, i, 0);
        if (v < 0 || !may_be_deferred(p, v, i)) continue;
        set_deferred(p, v, i, true);
        if (!all_see(p, v)) set_deferred(p, v, i, false);
    }
}
