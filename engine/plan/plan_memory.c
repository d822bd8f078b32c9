/* plan_memory.c -- the lifetime of every buffer, and offsets in the pool.
 *
 * A value lives from the call that writes it to its last reader, which may be a
 * backward call; a gradient from its first store to its reader; saved memory
 * from the forward to the backward call; scratch memory for one call; gradient
 * sums from their writer to their reader; a copy in 16 bits from the call that
 * makes it to its last reader. A call with a copy does not read the original,
 * which may be freed earlier. Two values share a buffer if one is computed in
 * place. */
#include "engine/plan/plan_inside.h"

/* Makes a buffer in use from call `first` to `last`; returns its number, or -1
 * without memory. first = -1: before the first call. */
static int buffer_new(Plan *p, size_t bytes, int first, int last)
{
    if (p->buffers == p->room) {
        int room = p->room ? 2 * p->room : 256;
        Buffer *grown = mem_realloc(p->buffer, (size_t)room * sizeof *grown);
        if (!grown) return -1;
        p->buffer = grown;
        p->room = room;
    }
    p->buffer[p->buffers] = (Buffer){plan_aligned(bytes), first, last, 0};
    return p->buffers++;
}

/* Extends the buffer's lifetime to call `at`. */
static void extend(Plan *p, int buffer, int at)
{
    if (buffer < 0) return;
    Buffer *b = &p->buffer[buffer];
    if (at < b->first) b->first = at;
    if (at > b->last) b->last = at;
}

/* Records that call c reads a value or its copy. */
static void note_read(const Plan *p, PlanValue *m, int c)
{
    if (c < p->forward) m->early = c;
    if (c >= p->forward && m->late < 0) m->late = c;
}

/* Finds the first and last reader of each value. A call that computes a value
 * reads its operands, or their copies; a backward call reads the operands that
 * its operator keeps, and its own result if kept. A copy reads its original. */
static void find_reads(Plan *p)
{
    for (int c = 0; c < p->calls; c++) {
        const Call *call = &p->call[c];
        bool back = is_backward(call);
        for (int k = 0; k < MAX_IN; k++) {
            if (!call->x[k]) continue;
            int v =
                is_convert(call) ? call->node : operand_of(p, call->node, k);
            PlanValue *m = value_of(p, v, call->x[k]);
            // a copy of a gradient, or an operand of which only the extents are
            // used
            if (!m || (back && !reads_operand(p, call, k) &&
                       !(call->sums.dx[k] && call->x_norm[k])))
                continue;
            *(call->half.x[k] ? &m->half_last : &m->last) = c;
            note_read(p, m, c);
        }
        if (call->half.dy) p->node[call->node].half_grad_last = c;
        if (!back || !(keeps_of(p, call) & KEEP_Y)) continue;
        PlanValue *m = value_of(p, call->node, call->y);
        m->last = c;
        note_read(p, m, c);
    }
}

// a root may be a node that is skipped in evaluation: then the value that it
// shows is kept
bool plan_keeps(const Plan *p, int v)
{
    for (int i = 0; i < p->spec.roots; i++)
        if (p->node[p->spec.root[i]].alias_of == v) return true;
    return v == p->spec.loss;
}

/* Returns the value of operand 0 that call c may overwrite with its result, or
 * NULL. The operator must allow it, and the old value must have no further use:
 * not by the caller (inputs, roots), nor by later forward or backward calls. */
static const PlanValue *inplace(Plan *p, int c)
{
    const Call *call = &p->call[c];
    const Node *n = node_of(p, call->node);
    const int v = operand_of(p, call->node, 0);
    if (v < 0) return NULL; // a program of constants
    const PlanValue *m = value_of(p, v, call->x[0]);
    bool over = (call->program || op_info[n->attr.op].flags & INPLACE) &&
                node_of(p, v)->kind == NODE_OP && !plan_keeps(p, v) &&
                dims_equal(m->x.dim, call->y->dim) &&
                m->x.type == call->y->type && m->last <= c;
    return over ? m : NULL;
}

/* Makes the buffer of a value of node i, from the call that computes it to its
 * last reader. */
static bool place_value(Plan *p, int i, PlanValue *m)
{
    bool given = node_of(p, i)->kind == NODE_INPUT;
    const PlanValue *under = given ? NULL : inplace(p, m->call);

    // operands come first in the graph, so this one has its buffer already
    m->value = under ? under->value
                     : buffer_new(p, tensor_bytes(&m->x), m->call, m->call);
    if (m->value < 0) return false;
    if (m->last >= 0) extend(p, m->value, m->last);

    // inputs outlive the run, so that it can be repeated
    if (m == &p->node[i].first && (given || plan_keeps(p, i))) {
        extend(p, m->value, p->calls);
        if (given) extend(p, m->value, -1);
    }
    return true;
}

/* Makes the buffers of inputs and results. Values of parameters are in
 * Params. */
static bool place_values(Plan *p)
{
    for (int i = 0; i < p->nodes; i++) {
        PlanNode *q = &p->node[i];
        if (!q->used || q->alias_of != i || node_of(p, i)->kind == NODE_PARAM)
            continue;
        if (!place_value(p, i, &q->first) ||
            (q->recomputed.call >= 0 && !place_value(p, i, &q->recomputed)))
            return false;
    }
    return true;
}

/* Makes the buffers of gradients except of parameters: from the first backward
 * call that stores into one to the call that reads it as its dy. */
static bool place_gradients(Plan *p)
{
    if (p->spec.loss < 0) return true;

    // the gradient of the loss is written before the first backward call
    PlanNode *root = &p->node[p->spec.loss];
    root->grad = buffer_new(p, tensor_bytes(&root->dx), -1, p->calls);
    if (root->grad < 0) return false;

    for (int c = p->forward; c < p->calls; c++) {
        const Call *call = &p->call[c];
        const Node *n = node_of(p, call->node);
        int dy = p->node[call->node].grad;
        if (!is_backward(call)) continue;
        extend(p, dy, c);
        for (int k = 0; k < MAX_IN; k++) {
            if (!call->dx[k]) continue;
            PlanNode *v = &p->node[operand_of(p, call->node, k)];
            if (v->param >= 0) continue;
            // dx in place of dy: only by the first call that stores dx, with
            // equal extents; never over the gradient of the loss, which a
            // repeated run needs
            bool over =
                k == 0 && (call->fresh & 1) && v->grad < 0 &&
                (call->program || op_info[n->attr.op].flags & INPLACE_GRAD) &&
                call->node != p->spec.loss &&
                dims_equal(v->dx.dim, call->y->dim) &&
                v->dx.type == call->dy->type;
            if (v->grad < 0 && over) v->grad = dy;
            if (v->grad < 0)
                v->grad = buffer_new(p, tensor_bytes(&v->dx), c, c);
            if (v->grad < 0) return false;
            extend(p, v->grad, c);
        }
    }
    return true;
}

/* Makes the buffers of 16-bit copies: from their call to their last reader. */
static bool place_copies(Plan *p)
{
    for (int c = 0; c < p->calls; c++) {
        const Call *call = &p->call[c];
        if (!is_convert(call)) continue;
        PlanNode *q = &p->node[call->node];
        PlanValue *m = value_of(p, call->node, call->x[0]);
        int b = buffer_new(p, tensor_bytes(call->y), c, c);
        if (b < 0) return false;
        *(m ? &m->half_value : &q->half_grad) = b;
        extend(p, b, m ? m->half_last : q->half_grad_last);
    }
    return true;
}

/* Makes the buffers of gradient sums: from the call that writes them to the
 * call that reads the gradient. */
static bool place_totals(Plan *p)
{
    for (int i = 0; i < p->nodes; i++) {
        PlanNode *q = &p->node[i];
        if (q->sums_by < 0) continue;
        q->sums =
            buffer_new(p, tensor_bytes(&q->grad_sums), q->sums_by, q->bwd);
        if (q->sums < 0) return false;
    }
    return true;
}

/* Makes the buffer of gradient-norm partial sums, which are read after the
 * run. */
static bool place_squares(Plan *p)
{
    const size_t bytes = (size_t)p->sqnorms.lefts * sizeof *p->sqnorms.left;
    if (bytes) p->sqnorm_room = buffer_new(p, bytes, p->sqnorm_by, p->calls);
    return !bytes || p->sqnorm_room >= 0;
}

/* Makes a buffer for saved or scratch memory of a kernel; none for 0 bytes. */
static bool place_space(Plan *p, size_t bytes, int first, int last, int *buffer)
{
    if (bytes) *buffer = buffer_new(p, bytes, first, last);
    return !bytes || *buffer >= 0;
}

/* Returns the Space of forward call c: in a group the largest of all
 * micro-batches, as a smaller one may need more. */
static Space space_of(Plan *p, SpaceFn *space, int c)
{
    const int i = plan_microbatch_of(p, c);
    if (i < 0) return space(&p->call[c]);
    plan_microbatch_cut(p, i, 0);
    Space s = space(&p->call[c]);
    plan_microbatch_cut(p, i, p->group[i].microbatches - 1);
    const Space last = space(&p->call[c]);
    plan_microbatch_mend(p, i);
    if (last.saved > s.saved) s.saved = last.saved;
    if (last.fwd > s.fwd) s.fwd = last.fwd;
    return s;
}

/* Makes the saved and scratch buffers of each node. Saved memory lives from the
 * node's last forward call (for SAVES_ONCE operators the first, as the second
 * reads it) to its backward call; scratch memory for its own call only. The
 * backend gets the backward call if there is one, as only that shows which
 * gradients are needed. */
static bool place_spaces(Plan *p)
{
    for (int i = 0; i < p->nodes; i++) {
        const PlanNode *q = &p->node[i];
        const int first = q->first.call, recomputed = q->recomputed.call,
                  bwd = q->bwd;
        if (first < 0) continue;
        SpaceFn *space = p->spec.be->space[node_of(p, i)->attr.op];
        if (!space || q->program) continue;
        Space s = bwd >= 0 ? space(&p->call[bwd]) : space_of(p, space, first);
        const bool once =
            q->deferred || op_info[node_of(p, i)->attr.op].flags & SAVES_ONCE;
        int last = recomputed >= 0 ? recomputed : first,
            from = once ? first : last;
        int to = bwd >= 0 ? bwd : last;
        if (!place_space(p, s.saved, from, to, &p->saved[from]) ||
            !place_space(p, s.fwd, first, first, &p->scratch[first]))
            return false;
        p->saved[to] = p->saved[last] = p->saved[from];
        if (bwd >= 0 && !place_space(p, s.bwd, bwd, bwd, &p->scratch[bwd]))
            return false;
        if (recomputed < 0) continue;
        if ((!once &&
             !place_space(p, s.saved, first, first, &p->saved[first])) ||
            !place_space(p, s.fwd, recomputed, recomputed,
                         &p->scratch[recomputed]))
            return false;
    }
    return true;
}

/* Lets the buffers of a call that runs with the call before it begin there. */
static void join_pairs(Plan *p)
{
    for (int b = 0; b < p->buffers; b++) {
        int *first = &p->buffer[b].first;
        if (*first >= 0 && *first < p->calls && p->call[*first].runs_before)
            --*first;
    }
}

bool plan_lifetimes(Plan *p)
{
    p->buffers = 0;
    find_reads(p);
    if (!place_values(p) || !place_gradients(p) || !place_copies(p))
        return false;
    p->cut_bytes = plan_buffers_sum(p);
    plan_microbatches_fit(p);
    p->cut_bytes -= plan_buffers_sum(p);
    if (!place_totals(p) || !place_squares(p) || !place_spaces(p)) return false;
    join_pairs(p);
    return true;
}

bool plan_place(Plan *p)
{
    return place_buffers(p->buffer, p->buffers, &p->bytes);
}
