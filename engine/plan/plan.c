/* plan.c -- builds a plan: from a graph to a list of calls.
 *
 * The passes run in this order:
 *
 *     infer                 extents of all nodes
 *     find_wanted           which values need a gradient
 *     plan_fuse.c           activations and norms into epilogues, concats away
 *     plan_programs.c       trees of elementwise operators as programs
 *     plan_half.c           storage in 16 bits
 *     plan_deferred_norm.c  batch norms that their readers apply on load
 *     plan_calls.c          the calls, with plan_grad_sums.c and
 *                           plan_grad_sqnorm.c for sums of gradients, and
 *                           plan_pairs.c for calls that share a launch
 *     plan_microbatch.c     calls that run in micro-batches
 *     plan_memory.c         lifetimes and offsets of all buffers
 *     plan_recompute.c      if the plan exceeds its budget: drop values, then
 *                           calls and memory again
 *
 * and at last the rows that `segengine SCRIPT plan` prints. The first and last
 * use of a buffer are numbers of calls. A node whose operator does nothing in
 * evaluation, as dropout, shares the value of its operand: `alias_of` is that
 * operand, and its readers read the operand. */
#include "engine/plan/plan_inside.h"
#include <string.h>

// the arena contains *p itself, so it is copied out before it is released
void plan_free(Plan *p)
{
    if (!p) return;
    mem_free(p->buffer);
    Arena mem = p->mem;
    arena_release(&mem);
}

/* == extents =========================================================== */

/* Sets the extents that the caller gives input i, if the network accepts
 * them. */
static bool infer_input(Plan *p, int i)
{
    const Node *n = node_of(p, i);
    char want[DIMS_TEXT], got[DIMS_TEXT];

    for (int k = 0; k < p->spec.inputs; k++) {
        Dims d = p->spec.input[k].dim;
        if (p->spec.input[k].node != i) continue;
        p->node[i].first.x.dim = d;
        if (d.c != n->y.dim.c || !dims_valid(d, F64) ||
            !dims_shown(d, n->y.rank))
            return fail_usage("input \"%s\" has shape %s, want %s", n->name,
                              dims_text(d, n->y.rank, got),
                              dims_text(n->y.dim, n->y.rank, want));
        return true;
    }
    return fail_usage("input \"%s\" is missing", n->name);
}

/* Runs the shape rule again, now with the batch size; a reason names the line
 * of the recipe. */
static bool infer_op(Plan *p, int i)
{
    const Node *n = node_of(p, i);
    const OpInfo *info = info_of(p, i);
    Tensor x[MAX_IN], *y = &p->node[i].first.x;

    memset(x, 0, sizeof x);
    for (int k = 0; k < info->in; k++)
        if (n->in[k] >= 0) x[k] = p->node[n->in[k]].first.x;
    if (!op_shape(&n->attr, x, y))
        return *n->where ? within("%s", n->where) : false;

    // the unbiased variance divides by n - 1
    if (n->attr.op == OP_batch_norm && p->spec.train &&
        !p->spec.sync_batch_norm && x[0].dim.n * positions(x[0].dim) == 1)
        return fail_usage("%s%sbatch_norm: one value a channel has no "
                          "variance; train with a batch of 2 or more",
                          n->where, *n->where ? ": " : "");

    // an operator that is the identity in evaluation is not run there
    if ((info->flags & TRAIN) && !p->spec.train && !p->spec.mc_dropout)
        p->node[i].alias_of = p->node[n->in[0]].alias_of;
    return true;
}

/* Checks that the loss is one number, from which gradients start. */
static bool infer_loss(Plan *p)
{
    char text[DIMS_TEXT];
    if (p->spec.loss < 0) return true;
    const Tensor *t = &p->node[p->spec.loss].first.x;
    if (numel(t->dim) != 1)
        return fail_usage("the loss has shape %s, want one number; reduce it "
                          "with a loss",
                          dims_text(t->dim, t->rank, text));
    p->spec.loss = p->node[p->spec.loss].alias_of;
    return true;
}

/* Infers every node that is used, in the order of the graph. */
static bool infer(Plan *p)
{
    const Graph *g = p->spec.graph;
    Dtype real = p->spec.be->real;

    for (int i = 0; i < p->nodes; i++) {
        PlanNode *q = &p->node[i];
        const Node *n = &g->node[i];
        *q = (PlanNode){.used = q->used,
                        .alias_of = i,
                        .norm = -1,
                        .act = -1,
                        .concat = -1,
                        .read_by = -1,
                        .param = -1,
                        .attr = n->attr,
                        .first.x = n->y};
        if (!q->used) continue;
        if (n->kind == NODE_INPUT && !infer_input(p, i)) return false;
        if (n->kind == NODE_OP && !infer_op(p, i)) return false;
        // the graph says F32; a plan computes in its backend's type
        q->first.x.type = real;
    }

    for (int i = 0; i < p->spec.params->count; i++)
        p->node[p->spec.params->list[i].node].param = i;
    return infer_loss(p);
}

/* == gradients ========================================================= */

/* Sets which nodes need a gradient: only the ones with a trained parameter as
 * operand or ancestor. So there are no gradients for images or below frozen
 * layers. */
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

/* == the printed rows ================================================== */

/* Returns the bytes of buffer b; 0 for -1. */
static size_t buffer_bytes(const Plan *p, int b)
{
    return b < 0 ? 0 : p->buffer[b].bytes;
}

/* Makes one row per forward call. A parameter used twice is counted in both
 * rows: the sum over rows is not the size of the network. */
static void make_rows(Plan *p)
{
    size_t half = 0; // of the copies before the call that reads them
    for (int c = 0; c < p->forward; c++) {
        const Call *call = &p->call[c];
        if (is_convert(call)) {
            half += tensor_bytes(call->y);
            continue;
        }
        PlanRow *r = &p->row[p->rows++];
        Tensor x[MAX_IN];
        memset(x, 0, sizeof x);
        *r = (PlanRow){.node = call->node,
                       .ops = ops_of(p, call->node),
                       .value_bytes = tensor_bytes(call->y),
                       .saved_bytes = buffer_bytes(p, p->saved[c]),
                       .scratch_bytes = buffer_bytes(p, p->scratch[c]),
                       .half_bytes = half,
                       .recomputed = p->node[call->node].recomputed.call >= 0,
                       .approximate =
                           backend_schedule(p->spec.be, call).approximate};
        half = 0;
        for (int k = 0; k < MAX_IN; k++) {
            if (!call->x[k]) continue;
            x[k] = *call->x[k];
            if (p->node[operand_of(p, call->node, k)].param >= 0)
                r->params += numel(call->x[k]->dim);
        }
        for (int k = 0; k < MAX_IN; k++)
            if (call->norm.x[k]) r->params += numel(call->norm.x[k]->dim);
        r->flops = op_flops(call->attr, x, call->y);
    }
}

bool plan_build(const PlanSpec *spec, Plan **out)
{
    bool ok = false;
    Arena mem = {NULL};
    const Graph *g = spec->graph;
    // at most two forward calls and one backward call per node, and copies of
    // both values and of the gradient
    size_t most = 6 * (size_t)g->count + 1;
    int *root = NULL;
    PlanInput *input;

    if (!backend_takes(spec->be, spec->precision)) return false;
    Plan *p = arena_alloc(&mem, sizeof *p);
    if (!p) return false;
    p->mem = mem; // from here on plan_free releases everything
    p->spec = *spec;
    p->nodes = g->count;
    p->node = ARENA_NEW(&p->mem, PlanNode, g->count + 1);
    p->call = ARENA_NEW(&p->mem, Call, most);
    p->fresh = ARENA_NEW(&p->mem, unsigned, most);
    p->param_bits = ARENA_NEW(&p->mem, unsigned, most);
    p->mark = arena_array(&p->mem, 1, (size_t)g->count + 1);
    p->reached = arena_array(&p->mem, 1, (size_t)g->count + 1);
    p->saved = ARENA_NEW(&p->mem, int, most);
    p->scratch = ARENA_NEW(&p->mem, int, most);
    p->row = ARENA_NEW(&p->mem, PlanRow, most);
    p->group = ARENA_NEW(&p->mem, MicrobatchGroup, g->count + 1);
    p->group_at = -1;
    root = ARENA_NEW(&p->mem, int, spec->roots + 1);
    input = ARENA_NEW(&p->mem, PlanInput, spec->inputs + 1);
    TRY(p->node && p->call && p->fresh && p->param_bits && p->mark &&
        p->reached && p->saved && p->scratch && p->row && p->group && root &&
        input);

    // copies of the arrays, which belong to the caller; the loss becomes a root
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
    TRY(plan_users_make(p));
    if (!spec->no_fusion) plan_fuse(p), plan_programs(p), plan_concat(p, true);
    plan_half(p);
    if (!spec->no_fusion) plan_deferred_norm(p);
    plan_calls_make(p);
    plan_microbatches(p);
    TRY(plan_lifetimes(p) && plan_place(p));
    p->kept_bytes = p->bytes;
    if (spec->loss >= 0 && spec->budget && p->bytes > spec->budget)
        TRY(plan_recompute(p));
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

// a buffer of its own for each tensor, for the whole batch: the memory of a
// framework without a memory plan
size_t plan_naive_bytes(const Plan *p)
{
    return p->cut_bytes + plan_buffers_sum(p);
}

size_t plan_upload_bytes(const Plan *p)
{
    size_t sum = 0;
    for (int i = 0; p->spec.be->staging && i < p->spec.inputs; i++) {
        const PlanNode *q = &p->node[p->spec.input[i].node];
        if (q->used) sum += p->spec.be->staging(tensor_bytes(&q->first.x));
    }
    return sum;
}

double plan_flops(const Plan *p)
{
    double sum = 0;
    for (int i = 0; i < p->rows; i++) sum += p->row[i].flops;
    return sum;
}

PlanRecompute plan_recomputed(const Plan *p)
{
    PlanRecompute sum = {.kept_bytes = p->kept_bytes};
    for (int c = p->forward; c < p->calls; c++) {
        if (!p->call[c].recomputed) continue;
        LaunchPart cost = plan_cost(p, c, false);
        sum.calls++;
        sum.flops += cost.flops;
        sum.moved += cost.bytes;
    }

    for (int i = 0; i < p->nodes; i++) {
        const PlanNode *q = &p->node[i];
        sum.values += q->read && node_of(p, i)->kind == NODE_OP;
        sum.dropped += q->read && q->dropped;
    }
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
