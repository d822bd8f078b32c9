/* plan_calls.c -- the calls of a plan in the order of execution.
 *
 * Forward calls come first, in the order of the nodes, then backward calls in
 * reverse order. Where the backend multiplies in 16 bits, a separate call
 * copies an operand right before its first reader; several readers share one
 * copy, and a weight is copied once a run.
 *
 * A dropped value is not kept for the backward pass. Before the first backward
 * call that reads it, its forward call runs once more, after the forward calls
 * of those of its operands that are dropped too: the same kernels on the same
 * numbers, so the same bits. The second copy lives until its last backward
 * reader; no value is computed three times. A value without a backward reader
 * counts as dropped, since its memory is reused. */
#include "engine/plan/plan_inside.h"
#include "engine/plan/tile_names.h"

/* == one call ========================================================== */

/* Collects the operand tensors of node i from number `from` on. */
static void operands_of(Plan *p, int i, int from, const Tensor *x[MAX_IN])
{
    for (int k = from; k < MAX_IN; k++) {
        int v = operand_of(p, i, k);
        if (v >= 0) x[k] = &p->node[v].first.x;
    }
}

Call plan_call(Plan *p, int i)
{
    PlanNode *q = &p->node[i];
    Call c = {.attr = &q->attr,
              .program = q->program ? &q->program->code : NULL,
              .act = q->act < 0 ? NULL : &p->node[q->act].attr,
              .norm = {.attr = q->norm < 0 ? NULL : &p->node[q->norm].attr,
                       .deferred = q->deferred},
              .step = &p->step,
              .threads = p->spec.threads,
              .node = i,
              .train = p->spec.train ||
                       (p->spec.mc_dropout && (info_of(p, i)->flags & RANDOM)),
              .precision = op_multiplies((Op)q->attr.op) ? p->spec.precision
                                                         : PRECISION_f32,
              .no_winograd = p->spec.no_winograd,
              .y = &q->first.x};
    tiles_of(p->spec.tiles, p->spec.graph->node[i].name, p->spec.be, c.tile);
    operands_of(p, i, 0, c.x);
    for (int k = 0; k < MAX_IN; k++) {
        const int v = operand_of(p, i, k);
        if (v >= 0 && p->node[v].deferred)
            c.x_norm[k] = &p->node[v].deferred_norm;
    }

    // parameters: no call computes them
    if (q->norm >= 0) operands_of(p, q->norm, 1, c.norm.x);
    return c;
}

/* Appends c; the array has room. */
static void append(Plan *p, const Call *c)
{
    p->call[p->calls] = *c;
    p->saved[p->calls] = p->scratch[p->calls] = -1;
    p->param_bits[p->calls] = 0;
    p->calls++;
}

/* Returns the copy `to` of `from`, a value or gradient of node i; appends a
 * call that makes it unless it exists. Parameters may have a permanent copy. */
static const Tensor *copy_of(Plan *p, int i, const Tensor *from, Tensor *to)
{
    const int param = p->node[i].param;
    if (to->type != F32) return to;
    if (param >= 0 && params_has_copy(p->spec.params, param)) {
        to->type = p->spec.params->copied;
        return to;
    }
    to->type = precision_copy(p->spec.precision);
    append(p, &(Call){.step = &p->step,
                      .threads = p->spec.threads,
                      .node = i,
                      .train = p->spec.train,
                      .x = {from},
                      .y = to});
    return to;
}

/* Returns the value of node v that backward calls read. */
static PlanValue *late_making(Plan *p, int v)
{
    PlanNode *q = &p->node[v];
    return q->recomputed.call >= 0 ? &q->recomputed : &q->first;
}

/* Appends call c of node i after the copies that it needs; late: in the
 * backward pass. Returns its number. */
static int emit(Plan *p, int i, Call c, bool late)
{
    bool copies = precision_copy(c.precision) != F32;
    const unsigned wants = copies ? backend_storage(p->spec.be, &c).copies : 0;

    for (int k = 0; k < MAX_IN; k++) {
        int v = operand_of(p, i, k);
        if (v < 0) continue;
        PlanValue *m = late ? late_making(p, v) : &p->node[v].first;
        c.x[k] = &m->x;
        if (wants >> k & 1 && !is_narrow(&m->x))
            c.half.x[k] = copy_of(p, v, &m->x, &m->half);
    }

    PlanNode *q = &p->node[i];
    if (wants & HALF_DY && !is_narrow(&q->dx))
        c.half.dy = copy_of(p, i, &q->dx, &q->half_dx);
    append(p, &c);
    return p->calls - 1;
}

/* == backward ========================================================== */

/* Is the value of node v dropped and not recomputed yet? */
static bool is_gone(const Plan *p, int v)
{
    return p->node[v].dropped && p->node[v].recomputed.call < 0;
}

/* Ensures that the value of node v exists for a backward call: recomputes it if
 * it is gone, and all dropped values that this needs. Operands have smaller
 * numbers: the search goes down, the recomputation up. */
static void bring(Plan *p, int v)
{
    int wanted = 1, low = v;
    if (!is_gone(p, v)) return;
    p->mark[v] = true;

    for (int i = v; wanted > 0; i--) {
        if (!p->mark[i]) continue;
        low = i, wanted--;
        for (int k = 0; k < MAX_IN; k++) {
            int u = operand_of(p, i, k);
            if (u < 0 || !is_gone(p, u) || p->mark[u]) continue;
            p->mark[u] = true, wanted++;
        }
    }

    for (int i = low; i <= v; i++) {
        if (!p->mark[i]) continue;
        Call c = plan_call(p, i);
        c.recomputed = true;
        c.y = &p->node[i].recomputed.x;
        p->mark[i] = false;
        p->node[i].recomputed.call = emit(p, i, c, true);
    }
}

/* Brings back the values that c, the future backward call of node i, reads in
 * addition to dy. */
static void bring_operands(Plan *p, int i, const Call *c)
{
    const int keep = keeps_of(p, c);
    for (int k = 0; k < MAX_IN; k++) {
        int v = operand_of(p, i, k);
        if (v < 0 || !reads_operand(p, c, k)) continue;
        p->node[v].read = true;
        bring(p, v);
    }
    if (keep & KEEP_Y) p->node[i].read = true;
    if ((keep & KEEP_Y) || p->node[i].saves_again) bring(p, i);
}

/* Brings back the operands with a deferred norm that c reads for gradient sums:
 * the sums must be the same whether the operand is dropped or not. */
static void bring_closed(Plan *p, int i, const Call *c)
{
    if (p->spec.no_fusion) return;
    const unsigned bits = backend_fusions(p->spec.be, c).sums;
    for (int k = 0; k < MAX_IN; k++)
        if (c->x_norm[k] && bits >> k & 1) bring(p, operand_of(p, i, k));
}

/* Adds the gradients of the parameters of norm i to c, a call with a deferred
 * norm. Returns their bits of c->fresh. */
static unsigned norm_gradients(Plan *p, int i, Call *c)
{
    unsigned bits = 0;
    for (int k = 1; k < differentiable(info_of(p, i)); k++) {
        const int v = operand_of(p, i, k);
        if (v < 0 || !p->node[v].wants) continue;
        bits |= 1u << (NORM_FRESH + k);
        if (!p->reached[v]) c->fresh |= 1u << (NORM_FRESH + k);
        c->norm.dx[k] = &p->node[v].dx;
        p->reached[v] = true;
    }
    return bits;
}

/* Emits the backward call of node i, which has a gradient; marks its
 * operands. */
static void emit_backward(Plan *p, int i)
{
    PlanNode *q = &p->node[i];
    Call c = plan_call(p, i);
    const int count =
        c.program ? c.program->operands : differentiable(info_of(p, i));

    bring_operands(p, i, &c);
    unsigned bits = 0;
    c.dy = &q->dx;
    c.y = &late_making(p, i)->x;

    for (int k = 0; k < MAX_IN; k++) {
        int v = operand_of(p, i, k);
        // the second operand of an implicit concat is treated like operand 0
        if (v < 0 || (k >= count && q->concat < 0) || !p->node[v].wants)
            continue;
        if (c.program && !(c.program->wants >> k & 1)) continue;
        // the first call in this order stores, later calls add; an operand that
        // occurs twice in one call is stored once
        if (!p->reached[v]) c.fresh |= 1u << k;
        // gradients of parameters outlive the run, so a run may add to them
        if (p->node[v].param >= 0) bits |= 1u << k;
        c.dx[k] = &p->node[v].dx;
        p->reached[v] = true;
    }

    if (q->deferred) bits |= norm_gradients(p, q->norm, &c);
    bring_closed(p, i, &c);
    q->bwd = emit(p, i, c, true);
    p->param_bits[q->bwd] = bits;
}

/* == all calls ========================================================= */

/* Resets a value: no call computes it. */
static void clear(PlanValue *m, Tensor x)
{
    *m = (PlanValue){.call = -1,
                     .early = -1,
                     .late = -1,
                     .last = -1,
                     .half_last = -1,
                     .value = -1,
                     .half_value = -1,
                     .x = x,
                     .half = x};
}

/* Makes the backward calls, from the loss on. */
static void backward_calls_make(Plan *p)
{
    const Graph *g = p->spec.graph;

    // reached: an earlier call has stored a gradient of this value. Readers
    // have larger numbers than the value, so all of them come before it here
    p->reached[p->spec.loss] = true;
    for (int i = p->spec.loss; i >= 0; i--)
        if (p->reached[i] && p->node[i].wants && g->node[i].kind == NODE_OP)
            emit_backward(p, i);
    if (!p->spec.no_fusion) plan_grad_sums(p);
    plan_grad_sqnorm(p);
    for (int c = 0; c < p->calls; c++) p->fresh[c] = p->call[c].fresh;
}

void plan_calls_make(Plan *p)
{
    const Graph *g = p->spec.graph;
    p->calls = 0;

    for (int i = 0; i < p->nodes; i++) {
        PlanNode *q = &p->node[i];
        clear(&q->first, q->first.x);
        clear(&q->recomputed, q->first.x);
        q->dx = q->half_dx = q->first.x;
        q->bwd = q->grad = q->half_grad = q->half_grad_last = -1;
        q->sums_by = q->sums = -1;
        q->read = p->reached[i] = false;
    }

    for (int i = 0; i < p->nodes; i++) {
        PlanNode *q = &p->node[i];
        // the order of the graph is an order of execution
        if (!q->used || q->alias_of != i || g->node[i].kind != NODE_OP)
            continue;
        q->first.call = emit(p, i, plan_call(p, i), false);
    }

    p->forward = p->calls;
    p->sqnorm_by = p->sqnorm_room = -1;
    if (p->spec.loss >= 0) backward_calls_make(p);
    if (!p->spec.no_fusion) plan_pairs(p);
}
