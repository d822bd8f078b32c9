/* plan_cost.c -- memory of a plan by purpose, and a lower bound of the cost of
 * each call on any device.
 *
 * Bytes of a call: it reads each operand once and writes each result once; a
 * gradient that it adds to counts twice. A kernel that reads an operand twice
 * moves more. It moves less only if a cache still holds the result of the call
 * before, so the sum is a lower bound for networks whose tensors are larger
 * than the caches. FLOPs: op_flops forward, and once for each of dx and
 * dw that is wanted. */
#include "engine/plan/plan_inside.h"
#include <string.h>

/* Returns the bytes of each purpose in use at call `at`. A gradient or value
 * may share its buffer with another, so this counts buffers and not nodes. */
static PlanPeak in_use(const Plan *p, const char *purpose, int at)
{
    PlanPeak sum = {0};
    for (int b = 0; b < p->buffers; b++) {
        const Buffer *q = &p->buffer[b];
        if (q->first > at || q->last < at) continue;
        *(purpose[b] == 'v'   ? &sum.values
          : purpose[b] == 'g' ? &sum.gradients
                              : &sum.workspace) += q->bytes;
    }
    return sum;
}

static size_t total(PlanPeak k)
{
    return k.values + k.gradients + k.workspace;
}

// without memory for its list all counts as workspace, so the sum is right
PlanPeak plan_peak(const Plan *p)
{
    PlanPeak most = {.workspace = p->bytes};
    char *purpose = mem_alloc((size_t)p->buffers + 1);
    if (!purpose) return most;
    memset(purpose, 'w', (size_t)p->buffers);

    for (int i = 0; i < p->nodes; i++) {
        const PlanNode *q = &p->node[i];
        for (int k = 0; k < 2; k++) {
            const PlanValue *m = k ? &q->recomputed : &q->first;
            if (m->value >= 0) purpose[m->value] = 'v';
            if (m->half_value >= 0) purpose[m->half_value] = 'v';
        }
        if (q->grad >= 0) purpose[q->grad] = 'g';
        if (q->half_grad >= 0) purpose[q->half_grad] = 'g';
    }

    most = in_use(p, purpose, -1); // before the first call
    for (int c = 0; c < p->calls; c++) {
        PlanPeak k = in_use(p, purpose, c);
        if (total(k) > total(most)) most = k;
    }
    mem_free(purpose);
    return most;
}

// the inputs and the gradient of the loss existed before
size_t plan_activation_bytes(const Plan *p)
{
    size_t sum = 0;
    if (p->forward == p->calls) return 0;
    for (int i = 0; i < p->buffers; i++) {
        const Buffer *b = &p->buffer[i];
        if (b->first >= 0 && b->first < p->forward && b->last >= p->forward)
            sum += b->bytes;
    }
    return sum;
}

static double size_of(const Tensor *t)
{
    return t ? (double)tensor_bytes(t) : 0;
}

/* Returns the bytes that fwd saves for bwd. */
static double saved_of(const Plan *p, int c)
{
    int b = p->saved[c];
    return b < 0 ? 0 : (double)p->buffer[b].bytes;
}

/* Returns the bytes of operand k, or of its 16-bit copy if the call has one. */
static double operand(const Call *c, int k)
{
    return size_of(c->half.x[k] ? c->half.x[k] : c->x[k]);
}

/* Returns the bytes of a gradient: written, or read and written. */
static double written(const Tensor *dx, unsigned fresh)
{
    return size_of(dx) * (fresh & 1 ? 1 : 2);
}

/* Returns the bytes of all gradients that are computed. */
static double gradients(const Call *c, unsigned fresh)
{
    double bytes = 0;
    for (int k = 0; k < MAX_IN; k++)
        bytes += written(c->dx[k], fresh >> k) +
                 written(c->norm.dx[k], fresh >> (NORM_FRESH + k));
    return bytes;
}

/* Does a product compute the gradient of its data, or of a part of it? */
static bool wants_image(const Call *c)
{
    return c->dx[0] || c->dx[X2];
}

/* Does a backward call read operand k at all? A product reads one factor for
 * the gradient of the other and never its bias, so a first layer does not read
 * its weights and a frozen one not its image. */
static bool needs(const Call *c, int k)
{
    if (c->program || (!op_multiplies(call_op(c)) && call_op(c) != OP_mul))
        return true;
    const bool image = k == 0 || k == X2;
    return image ? c->dx[1] != NULL : k == 1 && wants_image(c);
}

/* Returns the cost of a backward call; flops: one product for the data and one
 * for the weights (a bias is a sum). */
static LaunchPart backward(const Plan *p, int c, unsigned fresh)
{
    const Call *call = &p->call[c];
    LaunchPart cost = {.node = call->node, .backward = true};
    cost.bytes = gradients(call, fresh) +
                 size_of(call->half.dy ? call->half.dy : call->dy);
    for (int k = 0; k < MAX_IN; k++)
        if (reads_operand(p, call, k) && needs(call, k))
            cost.bytes += operand(call, k);
    if (keeps_of(p, call) & KEEP_Y) cost.bytes += size_of(call->y);
    if (info_of(p, call->node)->keep & KEEP_S) cost.bytes += saved_of(p, c);
    cost.flops = wants_image(call) + (call->dx[1] != NULL);
    return cost;
}

LaunchPart plan_cost(const Plan *p, int c, bool accumulate)
{
    const Call *call = &p->call[c];
    if (is_convert(call))
        return (LaunchPart){.node = call->node,
                            .backward = c >= p->forward,
                            .what = "copy in 16 bits",
                            .bytes = size_of(call->x[0]) + size_of(call->y)};

    unsigned fresh = p->fresh[c] & ~(accumulate ? p->param_bits[c] : 0);
    LaunchPart cost = {.node = call->node};
    Tensor x[MAX_IN] = {{.data = NULL}};
    for (int k = 0; k < MAX_IN; k++) {
        if (call->x[k]) x[k] = *call->x[k];
        cost.bytes += operand(call, k) + size_of(call->norm.x[k]);
    }
    cost.bytes += size_of(call->y) + saved_of(p, c);
    cost.flops = op_flops(call->attr, x, call->y);
    if (!is_backward(call)) return cost;
    LaunchPart back = backward(p, c, fresh);
    back.flops *= cost.flops;
    return back;
}
