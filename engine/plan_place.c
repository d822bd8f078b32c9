/* plan_place.c -- lifetimes: from first and last use to offsets in a pool.
 *
 * A value lives from the call that makes it to the last call that reads it,
 * which may be a backward call; a gradient from its first store to the call
 * that reads it; what a forward call saves until its backward call; scratch
 * for one call; a copy in 16 bits from the call that makes it to the last that
 * reads it. A call that has a copy does not read what was copied, which may so
 * go early. Two values share a buffer when one is computed in place. */
#include "plan_inside.h"

enum { POOL_ALIGN = 256 }; // bytes: what a GPU wants of an array; CPUs: 64

/* A buffer in use from call `first` to `last`; its number, or -1 without
 * memory. first = -1: before the first call. */
static int buffer_new(Plan *p, size_t bytes, int first, int last)
{
    if (p->buffers == p->room) {
        int room = p->room ? 2 * p->room : 256;
        Buffer *grown = mem_realloc(p->buffer, (size_t)room * sizeof *grown);
        if (!grown) return -1;
        p->buffer = grown;
        p->room = room;
    }
    bytes = (bytes + POOL_ALIGN - 1) / POOL_ALIGN * POOL_ALIGN;
    p->buffer[p->buffers] = (Buffer){bytes, first, last, 0};
    return p->buffers++;
}

/* Call `at` touches the buffer as well. */
static void extend(Plan *p, int buffer, int at)
{
    if (buffer < 0) return;
    Buffer *b = &p->buffer[buffer];
    if (at < b->first) b->first = at;
    if (at > b->last) b->last = at;
}

/* Does call c read the value of node v? A forward call reads its operands,
 * unless it has a copy; a backward call those that its row keeps, and the
 * result of its own node where it keeps that. What makes a copy reads what it
 * copies. */
static bool reads(const Plan *p, int c, int v)
{
    const Call *call = &p->call[c];
    const Tensor *x = &p->node[v].x;
    const OpInfo *info = is_convert(call) ? NULL : &op_info[call->attr->op];
    bool back = info && c >= p->forward;
    for (int k = 0; k < MAX_IN; k++)
        if (call->x[k] == x && !call->half[k] && (!back || op_keeps(info, k)))
            return true;
    return back && call->y == x && (info->keep & KEEP_Y);
}

/* Last call that reads the value of node v, not counting call `but`; -1 when
 * none does. */
static int last_use(const Plan *p, int v, int but)
{
    int last = -1;
    for (int c = 0; c < p->calls; c++)
        if (c != but && reads(p, c, v)) last = c;
    return last;
}

// a root may be a node that is dropped in evaluation: then what it shows is
// kept
bool plan_keeps(const Plan *p, int v)
{
    for (int i = 0; i < p->spec.roots; i++)
        if (p->node[p->spec.root[i]].same == v) return true;
    return v == p->spec.loss;
}

/* May call c write its result over the value of operand 0? Its row must allow
 * it, and nobody may want the old value: not the caller (inputs, roots), not a
 * later call, not a backward one. */
static bool inplace(const Plan *p, int c)
{
    const Node *n = node_of(p, p->call[c].node);
    int v = p->node[n->in[0]].same;
    return (op_info[n->attr.op].flags & INPLACE) &&
           node_of(p, v)->kind == NODE_OP && !plan_keeps(p, v) &&
           dims_equal(p->node[v].x.dim, p->call[c].y->dim) &&
           last_use(p, v, c) < c;
}

/* Buffers of inputs and results, each from the call that makes it to the last
 * that reads it. Values of parameters lie in blocks of their own. */
static bool place_values(Plan *p)
{
    int end = p->calls;
    for (int i = 0; i < p->nodes; i++) {
        PlanNode *q = &p->node[i];
        if (!q->used || q->same != i || node_of(p, i)->kind == NODE_PARAM)
            continue;
        if (q->fwd >= 0 && inplace(p, q->fwd)) {
            // operands come first on the tape: it has its buffer already
            q->value = p->node[p->node[node_of(p, i)->in[0]].same].value;
        } else {
            q->value = buffer_new(p, tensor_bytes(&q->x), q->fwd, q->fwd);
            if (q->value < 0) return false;
        }
        int last = last_use(p, i, -1);
        if (last >= 0) extend(p, q->value, last);
        // inputs outlive the run, so that it can be repeated
        if (node_of(p, i)->kind == NODE_INPUT || plan_keeps(p, i)) {
            extend(p, q->value, end);
            if (q->fwd < 0) extend(p, q->value, -1);
        }
    }
    return true;
}

/* Gradients of values that are not parameters: from the first backward call
 * that stores into it to the one that reads it as its dy. */
static bool place_gradients(Plan *p)
{
    if (p->spec.loss < 0) return true;
    // the root's own gradient is written before the first backward call
    PlanNode *root = &p->node[p->spec.loss];
    root->grad = buffer_new(p, tensor_bytes(&root->dx), -1, p->calls);
    if (root->grad < 0) return false;
    for (int c = p->forward; c < p->calls; c++) {
        const Call *call = &p->call[c];
        const Node *n = node_of(p, call->node);
        int dy = p->node[call->node].grad;
        if (is_convert(call)) continue; // right before the call that reads dy
        extend(p, dy, c);
        for (int k = 0; k < MAX_IN; k++) {
            if (!call->dx[k]) continue;
            PlanNode *v = &p->node[p->node[n->in[k]].same];
            if (v->param >= 0) continue;
            // dx over dy: the first to store into it, and of the same extents;
            // never over the root's, which keeps what a run was seeded with
            bool over = k == 0 && (call->fresh & 1) && v->grad < 0 &&
                        (op_info[n->attr.op].flags & INPLACE_GRAD) &&
                        call->node != p->spec.loss &&
                        dims_equal(v->dx.dim, call->y->dim);
            if (v->grad < 0 && over) v->grad = dy;
            if (v->grad < 0)
                v->grad = buffer_new(p, tensor_bytes(&v->dx), c, c);
            if (v->grad < 0) return false;
            extend(p, v->grad, c);
        }
    }
    return true;
}

/* Buffers of the copies. Every call is looked at for who reads them: those of
 * values by forward and backward calls, those of gradients by the next call. */
static bool place_copies(Plan *p)
{
    for (int c = 0; c < p->calls; c++) {
        const Call *call = &p->call[c];
        if (!is_convert(call)) continue;
        PlanNode *q = &p->node[call->node];
        int b = buffer_new(p, tensor_bytes(call->y), c, c);
        if (b < 0) return false;
        *(call->y == &q->half_x ? &q->half_value : &q->half_grad) = b;
        for (int r = c + 1; r < p->calls; r++) {
            const Call *reader = &p->call[r];
            bool reads = reader->half_dy == call->y;
            for (int k = 0; k < MAX_IN; k++)
                reads |= reader->half[k] == call->y;
            if (reads) extend(p, b, r);
        }
    }
    return true;
}

/* What each node's kernels want beside their operands: saved bytes live from
 * the forward call to the backward one, scratch for its own call only. The
 * backend is asked with the backward call where there is one, as only that
 * shows which gradients are wanted. */
static bool place_spaces(Plan *p)
{
    for (int i = 0; i < p->nodes; i++) {
        PlanNode *q = &p->node[i];
        if (q->fwd < 0) continue;
        SpaceFn *space = p->spec.be->space[node_of(p, i)->attr.op];
        if (!space) continue;
        Space s = space(&p->call[q->bwd >= 0 ? q->bwd : q->fwd]);
        if (s.saved) {
            int b =
                buffer_new(p, s.saved, q->fwd, q->bwd >= 0 ? q->bwd : q->fwd);
            if (b < 0) return false;
            p->saved[q->fwd] = b;
            if (q->bwd >= 0) p->saved[q->bwd] = b;
        }
        if (s.fwd &&
            (p->scratch[q->fwd] = buffer_new(p, s.fwd, q->fwd, q->fwd)) < 0)
            return false;
        if (q->bwd >= 0 && s.bwd &&
            (p->scratch[q->bwd] = buffer_new(p, s.bwd, q->bwd, q->bwd)) < 0)
            return false;
    }
    return true;
}

bool plan_place(Plan *p)
{
    return place_values(p) && place_gradients(p) && place_copies(p) &&
           place_spaces(p) && place_buffers(p->buffer, p->buffers, &p->bytes);
}
