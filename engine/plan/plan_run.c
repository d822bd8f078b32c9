/* plan_run.c -- binds a plan to memory and runs it.
 *
 * A run is a loop over calls and allocates nothing; plan_time, which serves
 * tables, does. Kernels of a device may run later than
 * their call: only sync and download wait, and a failure may be reported one
 * call late. Two runs differ in p->step, to which every call points, and in the
 * bits of `fresh`. */
#include "engine/base/clock.h"
#include "engine/plan/plan_inside.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

static void bind_value(const Plan *p, PlanValue *m)
{
    m->x.data = plan_address(p, m->value);
    m->half.data = plan_address(p, m->half_value);
}

void plan_bind(Plan *p, void *pool, void *dev)
{
    const Params *params = p->spec.params;
    p->pool = pool;
    p->dev = dev;
    double *squares = plan_address(p, p->sqnorm_room);
    p->sqnorms.left = squares;

    for (int i = 0; i < p->nodes; i++) {
        PlanNode *q = &p->node[i];
        bind_value(p, &q->first);
        bind_value(p, &q->recomputed);
        q->dx.data = plan_address(p, q->grad);
        q->half_dx.data = plan_address(p, q->half_grad);
        q->grad_sums.data = plan_address(p, q->sums);
        if (q->deferred)
            q->deferred_norm.saved = plan_address(p, p->saved[q->first.call]);
        if (q->param < 0) continue;
        if (squares) q->grad_sqnorm.data = squares + q->sqnorm_at;
        q->first.x = params_tensor(params, q->param, PARAM_VALUE, 0);
        if (is_narrow(&q->first.half) && params_has_copy(params, q->param))
            q->first.half = params_copy(params, q->param);
        // before params_train there is no gradient memory: no backward call
        // runs then
        if (q->wants && params->grad)
            q->dx = params_tensor(params, q->param, PARAM_GRAD, 0);
    }

    for (int c = 0; c < p->calls; c++) {
        p->call[c].dev = dev;
        p->call[c].saved = plan_address(p, p->saved[c]);
        p->call[c].scratch = plan_address(p, p->scratch[c]);
    }
}

const Tensor *plan_value(const Plan *p, int node)
{
    if (node < 0 || node >= p->nodes) return NULL;
    const PlanNode *q = &p->node[p->node[node].alias_of];
    // the value between fused operators is never in memory
    if (p->node[node].norm >= 0 || p->node[node].act >= 0) return NULL;
    // any other value may be overwritten by the end of the run
    bool kept =
        node_of(p, node)->kind == NODE_INPUT || plan_keeps(p, q->alias_of);
    return p->node[node].used && kept ? &q->first.x : NULL;
}

/* Writes the operators of call c. */
static char *call_text(const Plan *p, int c, char text[ROW_TEXT])
{
    const int v = p->call[c].node;
    if (!is_convert(&p->call[c])) return row_text(p, v, text);
    snprintf(text, ROW_TEXT, "copy in 16 bits");
    return text;
}

void plan_describe(const Plan *p, int node, const char *what, char *text,
                   size_t room)
{
    const Node *n = node_of(p, node);
    const char *comma = *n->name && *n->where ? ", " : "";
    if (*n->name || *n->where)
        snprintf(text, room, "%s (%s%s%s)", what, n->name, comma, n->where);
    else
        snprintf(text, room, "%s", what);
}

/* If gradients accumulate, gradients of parameters are added to; all other
 * gradients live in the pool and start from zero. Set before the first call, as
 * a call may write gradients of another (Call.sums.reader). */
static void set_fresh(Plan *p, bool accumulate)
{
    for (int c = 0; c < p->calls; c++)
        p->call[c].fresh = p->fresh[c] & ~(accumulate ? p->param_bits[c] : 0);
}

/* The least cost of call c and of its pair. */
static LaunchPart cost_of(const Plan *p, int c, bool accumulate)
{
    LaunchPart cost = plan_cost(p, c, accumulate);
    if (!p->call[c].pair) return cost;
    const LaunchPart pair = plan_cost(p, c + 1, accumulate);
    cost.bytes += pair.bytes, cost.flops += pair.flops;
    return cost;
}

bool plan_run_call(Plan *p, int c, const PlanRun *run)
{
    Call *call = &p->call[c];
    const Backend *be = p->spec.be;
    char text[ERR_MAX / 4], row[ROW_TEXT];

    if (call->runs_before) return true;
    if (launch_log_here()) launch_log_part(cost_of(p, c, run->accumulate));
    KernelFn *kernel = is_convert(call)    ? be->convert
                       : call->program     ? be->program
                       : is_backward(call) ? be->bwd[call->attr->op]
                                           : be->fwd[call->attr->op];
    bool ok = kernel(call);
    if (run->careful) ok = ok && be->sync(p->dev);
    if (ok) return true;
    plan_describe(p, call->node, call_text(p, c, row), text, sizeof text);
    return within("%s%s", text,
                  c < p->forward     ? ""
                  : call->recomputed ? ", computed again"
                                     : ", backward");
}

bool plan_begin(Plan *p, const Step *step)
{
    const Backend *be = p->spec.be;
    p->step = *step;
    return !be->begin || be->begin(p->dev, &p->step);
}

/* Writes the gradient of the loss with respect to itself: the start of
 * backward. */
static bool seed_root(Plan *p, double value)
{
    const Tensor *t = &p->node[p->spec.loss].dx;
    double f64 = value;
    float f32 = (float)value;
    const void *from = t->type == F64 ? (void *)&f64 : (void *)&f32;
    return p->spec.be->upload(p->dev, t->data, from, dtype_bytes(t->type));
}

bool plan_trains(const Plan *p)
{
    return p->spec.train;
}

const Tensor *plan_loss_grad(const Plan *p)
{
    return &p->node[p->spec.loss].dx;
}

/* Prepares a run; *calls: number of calls to run. */
static bool prepare(Plan *p, const PlanRun *run, int *calls)
{
    bool backward = run->backward && p->spec.loss >= 0;
    *calls = backward ? p->calls : p->forward;
    set_fresh(p, run->accumulate);
    return run->prepared || (plan_begin(p, &run->step) &&
                             (!backward || seed_root(p, run->seed_grad)));
}

/* Returns the bytes of the pool in use while call c runs; 0 without memory for
 * the list. Computed at the first request, as few runs need it. */
static size_t live_at(Plan *p, int c)
{
    if (!p->live) {
        p->live = ARENA_NEW(&p->mem, size_t, p->calls);
        if (!p->live) return 0;
        for (int b = 0; b < p->buffers; b++)
            for (int i = 0; i < p->calls; i++)
                if (p->buffer[b].first <= i && i <= p->buffer[b].last)
                    p->live[i] += p->buffer[b].bytes;
    }
    return p->live[c];
}

/* Traces call c under the name of its layer, or of its operator if it has
 * none. */
static void trace_call(Plan *p, int c, Trace *t, double from)
{
    const Node *n = node_of(p, p->call[c].node);
    char kind[ROW_TEXT];
    call_text(p, c, kind);
    const double to = clock_s();
    trace_put(t, "main", *n->name ? n->name : kind, kind, -1, from, to);
    trace_count(t, "arena", (int64_t)live_at(p, c), from);
}

/* Ends a run after a failed call. */
static bool stopped(Plan *p)
{
    plan_stop(p);
    return false;
}

// returns when all calls are queued; read a root after the device's sync
bool plan_run(Plan *p, const PlanRun *run)
{
    int calls;

    // a prepared device has its own step; calls read Step.shard here
    p->step = run->step;
    if (!prepare(p, run, &calls)) return false;
    double begin = trace_now(run->trace);

    for (int c = plan_first(p), next; c < calls; c = next) {
        const double from = trace_now(run->trace);
        if (!plan_run_call(p, c, run)) return stopped(p);
        if (run->trace) trace_call(p, c, run->trace, from);
        next = plan_next(p, c);
        if (!run->trace || (next != p->forward && next != calls)) continue;
        trace_span(run->trace, "main", c < p->forward ? "forward" : "backward",
                   "run", -1, begin);
        begin = clock_s();
    }
    return true;
}

/* Places a mark on the device, if it has marks; else times come from the
 * clock. */
static bool mark(Plan *p, int i)
{
    return !p->spec.be->mark || p->spec.be->mark(p->dev, i);
}

/* Returns the number of the tile of call c; 0: none. */
static int tile_of(const Plan *p, int c)
{
    return is_convert(&p->call[c])
               ? 0
               : backend_schedule(p->spec.be, &p->call[c]).tile;
}

bool plan_time(Plan *p, const PlanRun *run, PlanTime *out, int max, int *count)
{
    const Backend *be = p->spec.be;
    int calls;
    if (!prepare(p, run, &calls) || !be->sync(p->dev) || !mark(p, 0))
        return false;

    for (int c = 0; c < calls && c < max; c++)
        out[c] = (PlanTime){.node = p->call[c].node,
                            .ops = ops_of(p, p->call[c].node),
                            .backward = c >= p->forward,
                            .convert = is_convert(&p->call[c]),
                            .tile = tile_of(p, c),
                            .live = live_at(p, c)};

    for (int c = plan_first(p); c < calls; c = plan_next(p, c)) {
        const double from = clock_s();
        if (!plan_run_call(p, c, run) || !mark(p, c + 1)) return stopped(p);
        if (c >= max) continue;
        out[c].ms += 1e3 * (clock_s() - from);
    }

    *count = calls < max ? calls : max;
    if (!be->sync(p->dev)) return false;
    for (int c = 0; be->elapsed && c < *count; c++)
        if (!be->elapsed(p->dev, c, &out[c].ms)) return false;
    return true;
}
