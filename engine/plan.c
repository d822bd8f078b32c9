/* plan.c -- from a graph to calls with addresses.
 *
 * Time is counted in calls: forward calls first, in the order of the nodes,
 * then backward calls in reverse. A Buffer is a piece of the pool with the
 * first and last call that touches it; place.c gives it an offset. A node
 * whose operator is dropped in evaluation shares its operand's value. */
#include "plan.h"
#include "place.h"
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

typedef struct PlanNode {
    bool used;
    bool wants;      /* a gradient of its value is wanted           */
    int same;        /* node whose value this one shows (else self) */
    int fwd, bwd;    /* its calls, -1 where it has none             */
    int value;       /* buffers, -1 where there are none            */
    int grad;
    int param;       /* number in params, -1                        */
    Attr attr;       /* a copy: the graph may grow and move         */
    Tensor x, dx;    /* what calls point at                         */
} PlanNode;

struct Plan {
    Arena mem;
    PlanSpec spec;
    PlanNode *node;
    Call *call;
    unsigned *param_bits; /* per call: bits of dx that are parameters' */
    int *saved, *scratch; /* per call: buffers, -1                     */
    int calls, forward;   /* forward calls come first                  */
    Buffer *buffer;
    int buffers, room;
    size_t bytes;
    PlanRow *row;
    int rows;
    Step step;
    char *pool;
    void *dev;
};

enum { POOL_ALIGN = 256 };

void plan_free(Plan *p)
{
    if (!p) return;
    mem_free(p->buffer);
    Arena mem = p->mem;
    arena_release(&mem);
}

static const Node *node_of(const Plan *p, int i)
{
    return &p->spec.graph->node[i];
}

static const OpInfo *info_of(const Plan *p, int i)
{
    return &op_info[node_of(p, i)->attr.op];
}

/* Which operand gradients a row gives: a loss only that of its prediction. */
static int differentiable(const OpInfo *info)
{
    return !info->grad ? 0 : info->flags & LOSS ? 1 : info->in;
}

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

/* == extents =========================================================== */

static bool infer_input(Plan *p, int i)
{
    const Node *n = node_of(p, i);
    char want[DIMS_TEXT], got[DIMS_TEXT];
    for (int k = 0; k < p->spec.inputs; k++) {
        Dims d = p->spec.input[k].dim;
        if (p->spec.input[k].node != i) continue;
        p->node[i].x.dim = d;
        if (d.c != n->y.dim.c || !dims_valid(d, F64))
            return fail_usage("input \"%s\" has shape %s, want %s", n->name,
                              dims_text(d, n->y.rank, got),
                              dims_text(n->y.dim, n->y.rank, want));
        return true;
    }
    return fail_usage("input \"%s\" is missing", n->name);
}

static bool infer_op(Plan *p, int i)
{
    const Node *n = node_of(p, i);
    const OpInfo *info = info_of(p, i);
    Tensor x[MAX_IN], *y = &p->node[i].x;
    memset(x, 0, sizeof x);
    for (int k = 0; k < info->in; k++)
        if (n->in[k] >= 0) x[k] = p->node[n->in[k]].x;
    *y = x[0];
    y->data = NULL;
    if (!info->shape(&n->attr, x, y))
        return *n->where ? within("%s", n->where) : false;
    if (!dims_valid(y->dim, F64))
        return fail("%s: the result is too large to address", info->name);
    if (n->attr.op == OP_batch_norm && p->spec.train &&
        x[0].dim.n * positions(x[0].dim) == 1)
        return fail_usage("%s%sbatch_norm: one value a channel has no "
                          "variance; train with a batch of 2 or more",
                          n->where, *n->where ? ": " : "");
    // a row that changes nothing in evaluation is not run there
    if ((info->flags & TRAIN) && !p->spec.train)
        p->node[i].same = p->node[n->in[0]].same;
    return true;
}

static bool infer(Plan *p)
{
    const Graph *g = p->spec.graph;
    Dtype real = p->spec.be->real;
    for (int i = 0; i < g->count; i++) {
        PlanNode *q = &p->node[i];
        const Node *n = &g->node[i];
        *q = (PlanNode){.used = q->used, .same = i, .fwd = -1, .bwd = -1,
                        .value = -1, .grad = -1, .param = -1,
                        .attr = n->attr, .x = n->y};
        if (!q->used) continue;
        if (n->kind == NODE_INPUT && !infer_input(p, i)) return false;
        if (n->kind == NODE_OP && !infer_op(p, i)) return false;
        q->x.type = real;
        q->dx = q->x;
    }
    for (int i = 0; i < p->spec.params->count; i++)
        p->node[p->spec.params->list[i].node].param = i;
    return true;
}

/* == calls ============================================================= */

/* Does a gradient have to reach node i? */
static void find_wanted(Plan *p)
{
    for (int i = 0; i < p->spec.graph->count; i++) {
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

static Call *emit(Plan *p, int i)
{
    const Node *n = node_of(p, i);
    Call *c = &p->call[p->calls];
    *c = (Call){.attr = &p->node[i].attr,
                .step = &p->step,
                .threads = p->spec.threads,
                .node = i,
                .train = p->spec.train,
                .y = &p->node[i].x};
    for (int k = 0; k < MAX_IN; k++)
        if (n->in[k] >= 0) c->x[k] = &p->node[p->node[n->in[k]].same].x;
    p->saved[p->calls] = p->scratch[p->calls] = -1;
    p->calls++;
    return c;
}

/* Backward calls for every node on a path from the loss to a parameter. */
static bool emit_backward(Plan *p)
{
    const Graph *g = p->spec.graph;
    bool *reached = arena_array(&p->mem, 1, (size_t)g->count);
    if (!reached) return false;
    if (p->spec.loss < 0) return true;
    reached[p->spec.loss] = true;
    for (int i = p->spec.loss; i >= 0; i--) {
        const Node *n = &g->node[i];
        PlanNode *q = &p->node[i];
        if (!reached[i] || !q->wants || n->kind != NODE_OP) continue;
        q->bwd = p->calls;
        Call *c = emit(p, i);
        c->dy = &q->dx;
        for (int k = 0; k < differentiable(info_of(p, i)); k++) {
            if (n->in[k] < 0) continue;
            int v = p->node[n->in[k]].same;
            if (!p->node[v].wants) continue;
            // who comes first in this order stores, the others add; the
            // same operand twice in one call is stored once
            if (!reached[v]) c->fresh |= 1u << k;
            if (p->node[v].param >= 0)
                p->param_bits[p->calls - 1] |= 1u << k;
            c->dx[k] = &p->node[v].dx;
            reached[v] = true;
        }
    }
    return true;
}

/* == lifetimes ========================================================= */

static void extend(Plan *p, int buffer, int at)
{
    if (buffer < 0) return;
    Buffer *b = &p->buffer[buffer];
    if (at < b->first) b->first = at;
    if (at > b->last) b->last = at;
}

/* Last call that reads the value of node v, not counting call `but`. */
static int last_use(const Plan *p, int v, int but)
{
    int last = -1;
    for (int c = 0; c < p->calls; c++) {
        const Call *call = &p->call[c];
        int keep = op_info[call->attr->op].keep;
        bool back = c >= p->forward, reads = false;
        for (int k = 0; k < MAX_IN; k++)
            reads |= call->x[k] == &p->node[v].x;
        reads = back ? (reads && (keep & KEEP_X)) ||
                           (call->node == v && (keep & KEEP_Y))
                     : reads;
        if (reads && c != but) last = c;
    }
    return last;
}

static bool is_root(const Plan *p, int v)
{
    for (int i = 0; i < p->spec.roots; i++)
        if (p->node[p->spec.root[i]].same == v) return true;
    return v == p->spec.loss;
}

/* May call c write its result over the value of operand 0? */
static bool inplace(const Plan *p, int c)
{
    const Node *n = node_of(p, p->call[c].node);
    int v = p->node[n->in[0]].same;
    return (op_info[n->attr.op].flags & INPLACE) &&
           node_of(p, v)->kind == NODE_OP && !is_root(p, v) &&
           dims_equal(p->node[v].x.dim, p->call[c].y->dim) &&
           last_use(p, v, c) < c;
}

static bool place_values(Plan *p)
{
    int end = p->calls;
    for (int i = 0; i < p->spec.graph->count; i++) {
        PlanNode *q = &p->node[i];
        if (!q->used || q->same != i || node_of(p, i)->kind == NODE_PARAM)
            continue;
        if (q->fwd >= 0 && inplace(p, q->fwd)) {
            q->value = p->node[p->node[node_of(p, i)->in[0]].same].value;
        } else {
            q->value = buffer_new(p, tensor_bytes(&q->x), q->fwd, q->fwd);
            if (q->value < 0) return false;
        }
        extend(p, q->value, last_use(p, i, -1));
        // inputs outlive the run, so that it can be repeated
        if (node_of(p, i)->kind == NODE_INPUT || is_root(p, i)) {
            extend(p, q->value, end);
            if (q->fwd < 0) extend(p, q->value, -1);
        }
    }
    return true;
}

/* Gradients of values that are not parameters. */
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
        extend(p, dy, c);
        for (int k = 0; k < MAX_IN; k++) {
            if (!call->dx[k]) continue;
            PlanNode *v = &p->node[p->node[n->in[k]].same];
            if (v->param >= 0) continue;
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

static bool place_spaces(Plan *p)
{
    for (int i = 0; i < p->spec.graph->count; i++) {
        PlanNode *q = &p->node[i];
        if (q->fwd < 0) continue;
        SpaceFn *space = p->spec.be->space[node_of(p, i)->attr.op];
        if (!space) continue;
        Space s = space(&p->call[q->bwd >= 0 ? q->bwd : q->fwd]);
        if (s.saved) {
            int b = buffer_new(p, s.saved, q->fwd,
                               q->bwd >= 0 ? q->bwd : q->fwd);
            if (b < 0) return false;
            p->saved[q->fwd] = b;
            if (q->bwd >= 0) p->saved[q->bwd] = b;
        }
        if (s.fwd && (p->scratch[q->fwd] =
                          buffer_new(p, s.fwd, q->fwd, q->fwd)) < 0)
            return false;
        if (q->bwd >= 0 && s.bwd &&
            (p->scratch[q->bwd] = buffer_new(p, s.bwd, q->bwd, q->bwd)) < 0)
            return false;
    }
    return true;
}

/* == the printed rows ================================================== */

static size_t buffer_bytes(const Plan *p, int b)
{
    return b < 0 ? 0 : p->buffer[b].bytes;
}

static void make_rows(Plan *p)
{
    for (int c = 0; c < p->forward; c++) {
        const Call *call = &p->call[c];
        const Node *n = node_of(p, call->node);
        PlanRow *r = &p->row[p->rows++];
        Tensor x[MAX_IN];
        memset(x, 0, sizeof x);
        *r = (PlanRow){.node = call->node,
                       .value_bytes = tensor_bytes(call->y),
                       .saved_bytes = buffer_bytes(p, p->saved[c]),
                       .scratch_bytes = buffer_bytes(p, p->scratch[c])};
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
    size_t most = 2 * (size_t)g->count + 1;
    int *root = NULL;
    PlanInput *input;
    Plan *p = arena_alloc(&mem, sizeof *p);
    if (!p) return false;
    p->mem = mem;
    p->spec = *spec;
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
    memcpy(root, spec->root, (size_t)spec->roots * sizeof *root);
    memcpy(input, spec->input, (size_t)spec->inputs * sizeof *input);
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
        if (!q->used || q->same != i || g->node[i].kind != NODE_OP) continue;
        q->fwd = p->calls;
        emit(p, i);
    }
    p->forward = p->calls;
    TRY(emit_backward(p));
    TRY(place_values(p) && place_gradients(p) && place_spaces(p));
    TRY(place_buffers(p->buffer, p->buffers, &p->bytes));
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

/* == running =========================================================== */

static void *address(const Plan *p, int buffer)
{
    return buffer < 0 ? NULL : p->pool + p->buffer[buffer].at;
}

void plan_bind(Plan *p, void *pool, void *dev)
{
    const Params *params = p->spec.params;
    p->pool = pool;
    p->dev = dev;
    for (int i = 0; i < p->spec.graph->count; i++) {
        PlanNode *q = &p->node[i];
        q->x.data = address(p, q->value);
        q->dx.data = address(p, q->grad);
        if (q->param < 0) continue;
        q->x = params_tensor(params, q->param, PARAM_VALUE, 0);
        if (q->wants && params->grad)
            q->dx = params_tensor(params, q->param, PARAM_GRAD, 0);
    }
    for (int c = 0; c < p->calls; c++) {
        p->call[c].dev = dev;
        p->call[c].saved = address(p, p->saved[c]);
        p->call[c].scratch = address(p, p->scratch[c]);
    }
}

const Tensor *plan_value(const Plan *p, int node)
{
    if (node < 0 || node >= p->spec.graph->count) return NULL;
    const PlanNode *q = &p->node[p->node[node].same];
    bool kept = node_of(p, node)->kind == NODE_INPUT || is_root(p, q->same);
    return p->node[node].used && kept ? &q->x : NULL;
}

/* "conv (enc1.conv1, scripts/x.lua:12)" */
static void describe(const Plan *p, int c, char *text, size_t room)
{
    const Node *n = node_of(p, p->call[c].node);
    const char *comma = *n->name && *n->where ? ", " : "";
    snprintf(text, room, "%s (%s%s%s)", op_info[n->attr.op].name, n->name,
             comma, n->where);
}

static bool run_call(Plan *p, int c, const PlanRun *run)
{
    Call *call = &p->call[c];
    const Backend *be = p->spec.be;
    unsigned fresh = call->fresh;
    char text[ERR_MAX / 4];
    if (run->accumulate) call->fresh &= ~p->param_bits[c];
    bool ok = (c < p->forward ? be->fwd : be->bwd)[call->attr->op](call);
    call->fresh = fresh;
    if (ok) return true;
    describe(p, c, text, sizeof text);
    return within("%s%s", text, c < p->forward ? "" : ", backward");
}

static bool seed_root(Plan *p, double value)
{
    const Tensor *t = &p->node[p->spec.loss].dx;
    double f64 = value;
    float f32 = (float)value;
    const void *from = t->type == F64 ? (void *)&f64 : (void *)&f32;
    return p->spec.be->upload(p->dev, t->data, from, dtype_bytes(t->type));
}

bool plan_run(Plan *p, const PlanRun *run)
{
    bool backward = run->backward && p->spec.loss >= 0;
    p->step = run->step;
    if (backward && !seed_root(p, run->seed_grad)) return false;
    for (int c = 0; c < (backward ? p->calls : p->forward); c++)
        if (!run_call(p, c, run)) return false;
    return true;
}

bool plan_time(Plan *p, const PlanRun *run, PlanTime *out, int max, int *count)
{
    bool backward = run->backward && p->spec.loss >= 0;
    p->step = run->step;
    *count = 0;
    if (backward && !seed_root(p, run->seed_grad)) return false;
    for (int c = 0; c < (backward ? p->calls : p->forward); c++) {
        struct timespec a, b;
        clock_gettime(CLOCK_MONOTONIC, &a);
        if (!run_call(p, c, run) || !p->spec.be->sync(p->dev)) return false;
        clock_gettime(CLOCK_MONOTONIC, &b);
        if (*count < max)
            out[(*count)++] = (PlanTime){
                p->call[c].node, c >= p->forward,
                1e3 * (double)(b.tv_sec - a.tv_sec) +
                    1e-6 * (double)(b.tv_nsec - a.tv_nsec)};
    }
    return true;
}

/* Is every element of t, in device memory, finite? */
static bool finite_value(Plan *p, const Tensor *t, bool *finite)
{
    Tensor host = *t;
    host.data = mem_alloc(tensor_bytes(t));
    bool ok = host.data && p->spec.be->download(p->dev, host.data, t->data,
                                                tensor_bytes(t));
    *finite = true;
    for (int64_t i = 0; ok && *finite && i < numel(t->dim); i++)
        *finite = isfinite(tensor_get(&host, i));
    mem_free(host.data);
    return ok;
}

bool plan_blame(Plan *p, const Step *step, char *text, size_t room)
{
    p->step = *step;
    *text = 0;
    for (int i = 0; i < p->spec.inputs; i++) {
        const PlanNode *q = &p->node[p->spec.input[i].node];
        bool finite = true;
        if (!q->used) continue;
        if (!finite_value(p, &q->x, &finite)) return false;
        if (finite) continue;
        snprintf(text, room, "input \"%s\"",
                 node_of(p, p->spec.input[i].node)->name);
        return true;
    }
    for (int c = 0; c < p->forward; c++) {
        bool finite;
        if (!run_call(p, c, &(PlanRun){.step = *step}) ||
            !finite_value(p, p->call[c].y, &finite))
            return false;
        if (finite) continue;
        describe(p, c, text, room);
        return true;
    }
    return true;
}
