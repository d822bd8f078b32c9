/* plan.c -- from a graph to calls.
 *
 * Time is counted in calls: forward calls first, in the order of the nodes,
 * then backward calls in reverse. A Buffer is a piece of the pool with the
 * first and last call that touches it; plan_place.c gives it an offset and
 * plan_run.c an address. A node whose operator is dropped in evaluation
 * shares its operand's value: its `same` is the operand's, and whoever reads
 * it reads that one.
 *
 * Where the backend multiplies in 16 bits, what such a call reads is copied by
 * a call of its own right before the first that wants it: a value that several
 * read, weights too, once a run.
 *
 * In this order: extents of all nodes (infer), who wants a gradient
 * (find_wanted), forward calls, backward calls, places, the printed rows. */
#include "plan_inside.h"
#include <string.h>

// the arena holds *p itself, so its handle is taken out before it goes
void plan_free(Plan *p)
{
    if (!p) return;
    mem_free(p->buffer);
    Arena mem = p->mem;
    arena_release(&mem);
}

/* How many operands of a row, from the first, get gradients: of a loss only the
 * prediction, so a target that is itself computed is taken as given; lengths
 * are, too. */
static int differentiable(const OpInfo *info)
{
    if (!info->grad || info->flags & LOSS) return info->grad;
    return info->in - !!(info->flags & LENGTHS);
}

/* == extents =========================================================== */

/* The extents that the caller gives input i, if the network can take them. */
static bool infer_input(Plan *p, int i)
{
    const Node *n = node_of(p, i);
    char want[DIMS_TEXT], got[DIMS_TEXT];
    for (int k = 0; k < p->spec.inputs; k++) {
        Dims d = p->spec.input[k].dim;
        if (p->spec.input[k].node != i) continue;
        p->node[i].x.dim = d;
        if (d.c != n->y.dim.c || !dims_valid(d, F64) ||
            !dims_shown(d, n->y.rank))
            return fail_usage("input \"%s\" has shape %s, want %s", n->name,
                              dims_text(d, n->y.rank, got),
                              dims_text(n->y.dim, n->y.rank, want));
        return true;
    }
    return fail_usage("input \"%s\" is missing", n->name);
}

/* The shape rule again, now with the batch; a refusal names the recipe's
 * line. */
static bool infer_op(Plan *p, int i)
{
    const Node *n = node_of(p, i);
    const OpInfo *info = info_of(p, i);
    Tensor x[MAX_IN], *y = &p->node[i].x;
    memset(x, 0, sizeof x);
    for (int k = 0; k < info->in; k++)
        if (n->in[k] >= 0) x[k] = p->node[n->in[k]].x;
    if (!op_shape(&n->attr, x, y))
        return *n->where ? within("%s", n->where) : false;
    // the unbiased variance divides by n - 1
    if (n->attr.op == OP_batch_norm && p->spec.train && !p->spec.shared &&
        x[0].dim.n * positions(x[0].dim) == 1)
        return fail_usage("%s%sbatch_norm: one value a channel has no "
                          "variance; train with a batch of 2 or more",
                          n->where, *n->where ? ": " : "");
    // a row that changes nothing in evaluation is not run there
    if ((info->flags & TRAIN) && !p->spec.train && !p->spec.draws)
        p->node[i].same = p->node[n->in[0]].same;
    return true;
}

/* Gradients start from one number. */
static bool infer_loss(Plan *p)
{
    char text[DIMS_TEXT];
    if (p->spec.loss < 0) return true;
    const Tensor *t = &p->node[p->spec.loss].x;
    if (numel(t->dim) != 1)
        return fail_usage("the loss has shape %s, want one number; reduce it "
                          "with a loss",
                          dims_text(t->dim, t->rank, text));
    p->spec.loss = p->node[p->spec.loss].same;
    return true;
}

/* Fill in every node that is used, in the order of the tape. */
static bool infer(Plan *p)
{
    const Graph *g = p->spec.graph;
    Dtype real = p->spec.be->real;
    for (int i = 0; i < p->nodes; i++) {
        PlanNode *q = &p->node[i];
        const Node *n = &g->node[i];
        *q = (PlanNode){.used = q->used,
                        .same = i,
                        .fwd = -1,
                        .bwd = -1,
                        .value = -1,
                        .grad = -1,
                        .half_value = -1,
                        .half_grad = -1,
                        .param = -1,
                        .attr = n->attr,
                        .x = n->y};
        if (!q->used) continue;
        if (n->kind == NODE_INPUT && !infer_input(p, i)) return false;
        if (n->kind == NODE_OP && !infer_op(p, i)) return false;
        // the graph says F32; a plan computes in its backend's type
        q->x.type = real;
        q->dx = q->half_x = q->half_dx = q->x;
    }
    for (int i = 0; i < p->spec.params->count; i++)
        p->node[p->spec.params->list[i].node].param = i;
    return infer_loss(p);
}

/* == calls ============================================================= */

/* Does a gradient have to reach node i? Only where a trained parameter lies
 * above it; so nothing is computed for the image, or below frozen layers. */
static void find_wanted(Plan *p)
{
    for (int i = 0; i < p->nodes; i++) {
        const Node *n = node_of(p, i);
        PlanNode *q = &p->node[i];
        if (!q->used) continue;
        if (n->kind == NODE_PARAM) {
            const Param *a = &p->spec.params->list[q->param];
            q->wants = a->trained && !a->frozen;
        } else if (n->kind == NODE_OP) {
            for (int k = 0; k < differentiable(info_of(p, i)); k++)
                if (n->in[k] >= 0) q->wants |= p->node[n->in[k]].wants;
        }
    }
}

/* The call of node i, without gradients. */
static Call call_of(Plan *p, int i)
{
    const Node *n = node_of(p, i);
    Call c = {.attr = &p->node[i].attr,
              .step = &p->step,
              .threads = p->spec.threads,
              .node = i,
              .train = p->spec.train ||
                       (p->spec.draws && (info_of(p, i)->flags & TRAIN)),
              .precision = op_multiplies((Op)n->attr.op) ? p->spec.precision
                                                         : PRECISION_f32,
              .y = &p->node[i].x};
    for (int k = 0; k < MAX_IN; k++)
        if (n->in[k] >= 0) c.x[k] = &p->node[p->node[n->in[k]].same].x;
    return c;
}

/* Append c; the array has room. */
static void append(Plan *p, const Call *c)
{
    p->call[p->calls] = *c;
    p->saved[p->calls] = p->scratch[p->calls] = -1;
    p->calls++;
}

/* The copy `to` of `from`, which are of node i; unless there is one, a call
 * that makes it is appended. */
static const Tensor *copy_of(Plan *p, int i, const Tensor *from, Tensor *to)
{
    if (to->type != F32) return to;
    to->type = precision_copy(p->spec.precision);
    append(p, &(Call){.step = &p->step,
                      .threads = p->spec.threads,
                      .node = i,
                      .train = p->spec.train,
                      .x = {from},
                      .y = to});
    return to;
}

/* Append c of node i behind the copies that it wants. */
static void emit(Plan *p, int i, Call c)
{
    const Node *n = node_of(p, i);
    bool copies = precision_copy(c.precision) != F32;
    unsigned wants = copies ? p->spec.be->half(&c) : 0;
    for (int k = 0; k < MAX_IN; k++) {
        if (!(wants >> k & 1)) continue;
        int v = p->node[n->in[k]].same;
        PlanNode *q = &p->node[v];
        c.half[k] = copy_of(p, v, &q->x, &q->half_x);
    }
    PlanNode *q = &p->node[i];
    if (wants & HALF_DY) c.half_dy = copy_of(p, i, &q->dx, &q->half_dx);
    append(p, &c);
}

/* Backward calls for every node on a path from the loss to a parameter. */
static bool emit_backward(Plan *p)
{
    const Graph *g = p->spec.graph;
    // reached[v]: some call before has stored a gradient of value v
    bool *reached = arena_array(&p->mem, 1, (size_t)p->nodes + 1);
    if (!reached) return false;
    if (p->spec.loss < 0) return true;
    reached[p->spec.loss] = true;
    // who reads a value has a larger number: all of them come before it here
    for (int i = p->spec.loss; i >= 0; i--) {
        const Node *n = &g->node[i];
        PlanNode *q = &p->node[i];
        if (!reached[i] || !q->wants || n->kind != NODE_OP) continue;
        Call c = call_of(p, i);
        unsigned bits = 0;
        c.dy = &q->dx;
        for (int k = 0; k < differentiable(info_of(p, i)); k++) {
            if (n->in[k] < 0) continue;
            int v = p->node[n->in[k]].same;
            if (!p->node[v].wants) continue;
            // who comes first in this order stores, the others add; the
            // same operand twice in one call is stored once
            if (!reached[v]) c.fresh |= 1u << k;
            // parameters outlive the run, so these may be told to add instead
            if (p->node[v].param >= 0) bits |= 1u << k;
            c.dx[k] = &p->node[v].dx;
            reached[v] = true;
        }
        emit(p, i, c);
        q->bwd = p->calls - 1;
        p->param_bits[q->bwd] = bits;
    }
    return true;
}

/* == the printed rows ================================================== */

/* Bytes of buffer b; -1 has none. */
static size_t buffer_bytes(const Plan *p, int b)
{
    return b < 0 ? 0 : p->buffer[b].bytes;
}

/* One row a forward call. A parameter used twice is counted in both rows: the
 * sum over rows is not the size of the network. */
static void make_rows(Plan *p)
{
    size_t half = 0; // of the copies before the call that wants them
    for (int c = 0; c < p->forward; c++) {
        const Call *call = &p->call[c];
        const Node *n = node_of(p, call->node);
        if (is_convert(call)) {
            half += tensor_bytes(call->y);
            continue;
        }
        PlanRow *r = &p->row[p->rows++];
        Tensor x[MAX_IN];
        memset(x, 0, sizeof x);
        *r = (PlanRow){.node = call->node,
                       .value_bytes = tensor_bytes(call->y),
                       .saved_bytes = buffer_bytes(p, p->saved[c]),
                       .scratch_bytes = buffer_bytes(p, p->scratch[c]),
                       .half_bytes = half};
        half = 0;
        for (int k = 0; k < MAX_IN; k++) {
            if (!call->x[k]) continue;
            x[k] = *call->x[k];
            if (p->node[n->in[k]].param >= 0)
                r->params += numel(call->x[k]->dim);
        }
        r->flops = op_flops(call->attr, x, call->y);
    }
}

bool plan_build(const PlanSpec *spec, Plan **out)
{
    bool ok = false;
    Arena mem = {NULL};
    const Graph *g = spec->graph;
    // at most one forward and one backward call a node, and copies of its value
    // and its gradient
    size_t most = 4 * (size_t)g->count + 1;
    int *root = NULL;
    PlanInput *input;
    if (!backend_takes(spec->be, spec->precision)) return false;
    Plan *p = arena_alloc(&mem, sizeof *p);
    if (!p) return false;
    p->mem = mem; // from here on plan_free gives everything back
    p->spec = *spec;
    p->nodes = g->count;
    p->node = ARENA_NEW(&p->mem, PlanNode, g->count + 1);
    p->call = ARENA_NEW(&p->mem, Call, most);
    p->param_bits = ARENA_NEW(&p->mem, unsigned, most);
    p->saved = ARENA_NEW(&p->mem, int, most);
    p->scratch = ARENA_NEW(&p->mem, int, most);
    p->row = ARENA_NEW(&p->mem, PlanRow, most);
    root = ARENA_NEW(&p->mem, int, spec->roots + 1);
    input = ARENA_NEW(&p->mem, PlanInput, spec->inputs + 1);
    TRY(p->node && p->call && p->param_bits && p->saved && p->scratch &&
        p->row && root && input);
    // the spec's arrays are the caller's: keep copies, the loss a root too
    for (int i = 0; i < spec->roots; i++) root[i] = spec->root[i];
    for (int i = 0; i < spec->inputs; i++) input[i] = spec->input[i];
    p->spec.root = root;
    p->spec.input = input;
    if (spec->loss >= 0) root[p->spec.roots++] = spec->loss;
    bool *used = arena_array(&p->mem, 1, (size_t)g->count + 1);
    TRY(used);
    graph_ancestors(g, root, p->spec.roots, used);
    for (int i = 0; i < g->count; i++) p->node[i].used = used[i];
    TRY(infer(p));
    find_wanted(p);
    for (int i = 0; i < g->count; i++) {
        PlanNode *q = &p->node[i];
        // the tape's order is an order to run in
        if (!q->used || q->same != i || g->node[i].kind != NODE_OP) continue;
        emit(p, i, call_of(p, i));
        q->fwd = p->calls - 1;
    }
    p->forward = p->calls;
    TRY(emit_backward(p));
    TRY(plan_place(p));
    make_rows(p);
    ok = true;
done:
    if (ok)
        *out = p;
    else
        plan_free(p);
    return ok;
}

size_t plan_bytes(const Plan *p)
{
    return p->bytes;
}

// each buffer a place of its own: what a framework without a planner would take
size_t plan_naive_bytes(const Plan *p)
{
    size_t sum = 0;
    for (int i = 0; i < p->buffers; i++) sum += p->buffer[i].bytes;
    return sum;
}

double plan_flops(const Plan *p)
{
    double sum = 0;
    for (int i = 0; i < p->rows; i++) sum += p->row[i].flops;
    return sum;
}

int plan_calls(const Plan *p)
{
    return p->calls;
}

int plan_rows(const Plan *p, const PlanRow **rows)
{
    *rows = p->row;
    return p->rows;
}
