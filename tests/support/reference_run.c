/* reference_run.c -- a network run without a planner. */
#include "tests/support/reference_run.h"
#include <string.h>

typedef struct Work {
    const PlanSpec *s;
    ReferenceRun *out;
    bool *used, *wants, *touched;
    Tensor *dx;
    Call *call;
    Attr *attr;
} Work;

/* Memory that reads as NaN both as floats and as doubles. */
static void *poisoned(Arena *mem, size_t bytes)
{
    void *p = arena_alloc(mem, bytes);
    if (p) memset(p, 0xFF, bytes);
    return p;
}

static bool dropped(const Work *w, const Node *n)
{
    return n->kind == NODE_OP && !w->s->train &&
           (op_info[n->attr.op].flags & TRAIN);
}

/* Number of operands with a gradient: of a loss one, else all but lengths and
 * indices. */
static int grad_operands(const OpInfo *info)
{
    if (!info->grad) return 0;
    return info->flags & LOSS
               ? 1
               : info->in - !!(info->flags & (LENGTHS | INDICES));
}

static bool leaf(Work *w, int i, const void *const *input)
{
    const Node *n = &w->s->graph->node[i];
    const Params *q = w->s->params;
    Tensor *y = &w->out->y[i];
    size_t real = dtype_bytes(w->s->be->real);

    *y = n->y;
    y->type = w->s->be->real;

    for (int k = 0; k < w->s->inputs; k++) {
        if (w->s->input[k].node != i) continue;
        y->dim = w->s->input[k].dim;
        if (!(y->data = arena_alloc(&w->out->mem, tensor_bytes(y))))
            return false;
        memcpy(y->data, input[k], tensor_bytes(y));
        return true;
    }

    for (int k = 0; k < q->count; k++) {
        const Param *a = &q->list[k];
        if (a->node != i) continue;
        y->data = (char *)w->out->value + (size_t)a->at * real;
        w->wants[i] = a->trained && !a->frozen;
        w->dx[i] = *y;
        w->dx[i].data = (char *)w->out->grad + (size_t)a->at * real;
        return true;
    }
    return fail("node %d is neither input nor parameter", i);
}

static bool forward(Work *w, int i, void *dev, const Step *step)
{
    const Node *n = &w->s->graph->node[i];
    const OpInfo *info = &op_info[n->attr.op];
    const Backend *be = w->s->be;
    Arena *mem = &w->out->mem;
    Tensor *y = &w->out->y[i], x[MAX_IN];

    if (dropped(w, n)) {
        *y = w->out->y[n->in[0]];
        w->wants[i] = w->wants[n->in[0]];
        w->dx[i] = w->dx[n->in[0]];
        return true;
    }

    Call *c = &w->call[i];
    w->attr[i] = n->attr;
    *c = (Call){.attr = &w->attr[i],
                .step = step,
                .dev = dev,
                .threads = w->s->threads,
                .node = i,
                .train = w->s->train};
    memset(x, 0, sizeof x);

    for (int k = 0; k < MAX_IN; k++) {
        if (n->in[k] < 0) continue;
        c->x[k] = &w->out->y[n->in[k]];
        x[k] = *c->x[k];
        if (k < grad_operands(info) && w->wants[n->in[k]]) w->wants[i] = true;
    }

    *y = x[0];
    if (!info->shape(&n->attr, x, y)) return false;
    y->data = poisoned(mem, tensor_bytes(y));
    w->dx[i] = *y;
    w->dx[i].data = poisoned(mem, tensor_bytes(y));
    if (!y->data || !w->dx[i].data) return false;
    c->y = y;

    // the needed memory may depend on the gradients that will exist
    Call ask = *c;
    if (w->s->loss >= 0)
        for (int k = 0; k < grad_operands(info); k++)
            if (n->in[k] >= 0 && w->wants[n->in[k]])
                ask.dx[k] = &w->dx[n->in[k]];
    ask.dy = &w->dx[i];
    Space space = {0};
    if (be->space[n->attr.op]) space = be->space[n->attr.op](&ask);
    c->saved = poisoned(mem, space.saved);
    c->scratch = poisoned(mem, space.fwd > space.bwd ? space.fwd : space.bwd);
    return c->saved && c->scratch && be->fwd[n->attr.op](c);
}

/* The node with the gradient of node i: a dropped operator uses its operand's.
 */
static int owner(const Work *w, int i)
{
    while (dropped(w, &w->s->graph->node[i])) i = w->s->graph->node[i].in[0];
    return i;
}

static bool backward(Work *w, int i)
{
    const Node *n = &w->s->graph->node[i];
    Call c = w->call[i];
    c.dy = &w->dx[i];

    for (int k = 0; k < grad_operands(&op_info[n->attr.op]); k++) {
        if (n->in[k] < 0) continue;
        int v = owner(w, n->in[k]);
        if (!w->wants[v]) continue;
        c.dx[k] = &w->dx[v];
        if (!w->touched[v]) c.fresh |= 1u << k;
        w->touched[v] = true;
    }
    return w->s->be->bwd[n->attr.op](&c);
}

bool reference_run(const PlanSpec *spec, void *dev, const Step *step,
                   double seed_grad, const void *const *input,
                   ReferenceRun *out)
{
    const Graph *g = spec->graph;
    size_t n = (size_t)g->count, real = dtype_bytes(spec->be->real);
    Work w = {.s = spec, .out = out};

    *out = (ReferenceRun){.y = NULL};
    Arena *mem = &out->mem;
    w.used = arena_alloc(mem, n);
    w.wants = arena_alloc(mem, n);
    w.touched = arena_alloc(mem, n);
    w.dx = ARENA_NEW(mem, Tensor, n);
    w.call = ARENA_NEW(mem, Call, n);
    w.attr = ARENA_NEW(mem, Attr, n);
    out->y = ARENA_NEW(mem, Tensor, n);
    out->value = arena_alloc(mem, (size_t)spec->params->total * real);
    out->grad = arena_alloc(mem, (size_t)spec->params->trained * real);
    if (!w.used || !w.wants || !w.touched || !w.dx || !w.call || !w.attr ||
        !out->y || !out->value || !out->grad)
        return false;
    memcpy(out->value, spec->params->value, (size_t)spec->params->total * real);
    graph_ancestors(g, spec->root, spec->roots, w.used);

    if (spec->loss >= 0) {
        bool *more = arena_alloc(mem, n);
        if (!more) return false;
        graph_ancestors(g, &spec->loss, 1, more);
        for (size_t i = 0; i < n; i++) w.used[i] |= more[i];
    }

    for (int i = 0; i < g->count; i++) {
        if (!w.used[i]) continue;
        bool op = g->node[i].kind == NODE_OP;
        if (!(op ? forward(&w, i, dev, step) : leaf(&w, i, input)))
            return false;
    }

    if (spec->loss < 0) return true;
    tensor_set(&w.dx[spec->loss], 0, seed_grad);
    w.touched[spec->loss] = true;
    for (int i = spec->loss; i >= 0; i--)
        if (w.touched[i] && w.wants[i] && g->node[i].kind == NODE_OP &&
            !dropped(&w, &g->node[i]) && !backward(&w, i))
            return false;
    return true;
}
