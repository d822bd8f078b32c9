/* session.c -- plans on demand, one pool, and runs.
 *
 * A plan is made for given extents and kept: slices of two sizes and a smaller
 * last batch cost one planning each, not one per step. The plans share a pool
 * of the size of the largest, since only one runs at a time. */
#include "engine/plan/tile_names.h"
#include "engine/session/session_inside.h"
#include <stdlib.h>
#include <string.h>

/* Finds and opens the device that the spec names. */
static bool open_device(Session *s)
{
    int number;
    const char *text = s->spec.device ? s->spec.device : "cpu";
    if (!backend_find(text, &s->be, &number)) return false;
    backend_target(s->be, number, s->spec.capability);
    if (!backend_takes(s->be, s->spec.precision)) return false;
    s->threads = s->be->threads(s->spec.threads);

    if (!s->spec.dry_run)
        s->opened = backend_open(s->be, text, number, s->threads, &s->dev);
    else if (s->be->dry_run)
        s->opened = s->be->dry_run(&s->dev);
    else
        fail_usage("device \"%s\": only cuda has a launch plan", text);

    return s->opened &&
           (!s->spec.ranks || !s->be->allreduce_open ||
            s->be->allreduce_open(
                s->dev, s->spec.ranks,
                s->spec.allreduce ? s->spec.allreduce : "auto", &s->allreduce));
}

/* Returns the bytes of an average of all values. */
static size_t average(const Session *s)
{
    return (size_t)s->params.total * dtype_bytes(s->be->real);
}

/* Returns the bytes of the parameters on the device, with gradients and moments
 * if the session trains, and an average if there is or will be one. */
static size_t weights(const Session *s)
{
    int states = s->trains ? optim_info[s->spec.optim->kind].states : 0;
    bool averages = s->spec.averages || s->params.average;
    return params_bytes(&s->params, s->be->real, s->trains, states) +
           (averages ? average(s) : 0);
}

/* Returns whether `bytes` of arena, the weights and the lent memory together
 * fit into the limit of the session; else fails with the numbers. */
static bool within_limit(const Session *s, size_t bytes)
{
    const size_t limit = s->spec.limit, rest = weights(s) + s->accounted;
    if (!limit || (rest <= limit && bytes <= limit - rest)) return true;
    // a device with memory of its own, or host memory
    return fail_memory(s->be->room ? ERR_DEVICE : ERR_FAILURE,
                       bytes ? bytes : rest, rest < limit ? limit - rest : 0,
                       "no memory: the arena needs %zu bytes, weights and "
                       "samples %zu; --vram allows %zu for both",
                       bytes, rest, limit);
}

/* Is there room for all blocks of the parameters? Checked before the first is
 * allocated: each alone might fit. */
static bool has_room(const Session *s)
{
    const size_t wanted = weights(s);
    size_t room = s->be->room ? 0 : mem_room("");
    if (s->be->room && !s->be->room(s->dev, &room)) return false;
    if (wanted <= room) return true;
    return fail_memory(s->be->room ? ERR_DEVICE : ERR_FAILURE, wanted, room,
                       "%sno memory: the weights%s need %zu bytes, %zu are "
                       "free; fix: a smaller network, or a %s with more memory",
                       s->be->room ? "GPU: " : "",
                       s->trains ? ", gradients and moments" : "", wanted, room,
                       s->be->room ? "GPU" : "machine");
}

/* Freezes parameters that the loss does not depend on, such as those of an
 * output for another training: without a gradient, weight decay would shrink
 * them. */
static bool freeze_unreached(Session *s)
{
    const Graph *g = s->spec.graph;
    bool *used = mem_alloc((size_t)g->count + 1);
    if (!used) return false;
    graph_ancestors(g, &s->spec.loss, 1, used);
    for (int i = 0; i < s->params.count; i++) {
        Param *p = &s->params.list[i];
        if (p->trained && !used[p->node]) p->frozen = true;
    }
    mem_free(used);
    return true;
}

/* Finds the roots and nodes that a training step computes. */
static bool find_step(Session *s)
{
    const Graph *g = s->spec.graph;
    int roots = s->spec.step_root ? s->spec.step_roots : s->spec.roots;
    s->step_root = mem_alloc(((size_t)roots + 1) * sizeof *s->step_root);
    s->in_step = mem_alloc((size_t)g->count + 1);
    if (!s->step_root || !s->in_step) return false;
    memcpy(s->step_root, s->spec.step_root ? s->spec.step_root : s->root,
           (size_t)roots * sizeof *s->step_root);

    for (int i = 0; i < roots; i++) {
        bool known = false;
        for (int k = 0; k < s->spec.roots; k++)
            known = known || s->root[k] == s->step_root[i];
        if (!known)
            return fail_usage("step_roots: node \"%s\" is not one of the roots",
                              g->node[s->step_root[i]].name);
    }

    if (s->spec.loss >= 0) s->step_root[roots++] = s->spec.loss;
    s->spec.step_root = s->step_root, s->spec.step_roots = roots;
    graph_ancestors(g, s->step_root, roots, s->in_step);
    s->nodes = g->count;
    return true;
}

/* Copies the text: it may be freed before plans are made. */
static bool keep_text(const char **text, char **kept)
{
    if (!*text) return true;
    *kept = mem_alloc(strlen(*text) + 1);
    if (!*kept) return false;
    *text = strcpy(*kept, *text);
    return true;
}

bool session_open(const SessionSpec *spec, Session **out)
{
    bool ok = false;
    size_t real;

    // before anything is opened: a wrong number is the user's error and is
    // reported first
    if (spec->optim && !optim_valid(spec->optim)) return false;
    Session *s = mem_alloc(sizeof *s);
    if (!s) return false;
    s->spec = *spec;
    s->trains = spec->optim && spec->loss >= 0;
    s->careful = getenv("SEG_CAREFUL") != NULL;
    if (spec->precision == PRECISION_f16) s->spec.scaled = true;
    session_set_shard(s, 0, false);
    s->state.scale.by = s->spec.scaled ? LOSS_SCALE_FIRST : 1;
    s->grad_scale = 1;
    s->root = mem_alloc(((size_t)spec->roots + 1) * sizeof *s->root);
    TRY(s->root);

    // the loss is a root even if the caller does not list it, hence the + 1
    memcpy(s->root, spec->root, (size_t)spec->roots * sizeof *s->root);
    if (spec->loss >= 0) s->root[s->spec.roots++] = spec->loss;
    s->spec.root = s->root;
    TRY(find_step(s));
    TRY(keep_text(&s->spec.tiles, &s->tiles));
    TRY(open_device(s));
    TRY(tiles_valid(s->spec.tiles, spec->graph, s->be));
    real = dtype_bytes(s->be->real);
    TRY(params_list(&s->params, spec->graph, s->root, s->spec.roots));
    params_copied(&s->params, s->be, spec->precision);
    TRY(within_limit(s, 0));
    TRY(spec->dry_run || has_room(s));
    TRY(spec->dry_run
            ? params_room(&s->params, s->be, s->dev)
            : params_open(&s->params, spec->graph, s->be, s->dev, spec->seed));

    if (s->trains) {
        s->optim = *spec->optim;
        s->spec.optim = &s->optim;
        TRY(freeze_unreached(s));
        TRY(params_train(&s->params, optim_info[s->optim.kind].states));
    }

    s->before = mem_alloc((size_t)(s->params.total - s->params.trained) * real);
    TRY(s->before);
    TRY(readback_open(s->be, s->dev, &s->readback));
    ok = true;

done:
    if (ok)
        *out = s;
    else
        session_close(s);
    return ok;
}

// also after a failure of session_open: missing parts are NULL; the device is
// closed last, as all else is allocated on it
void session_close(Session *s)
{
    if (!s) return;
    for (int i = 0; i < MAX_PLANS; i++) {
        destroy_graphs(s, &s->slot[i]);
        plan_free(s->slot[i].plan);
    }
    if (s->device_step) s->be->device_step->close(s->dev, s->device_step);
    params_free(&s->params);
    readback_close(s->readback);
    if (s->opened) {
        s->be->release(s->dev, s->pool);
        s->be->close(s->dev);
    }
    trace_drop(s->trace);
    mem_free(s->param_range);
    mem_free(s->bn_sums);
    mem_free(s->before);
    mem_free(s->root);
    mem_free(s->step_root);
    mem_free(s->in_step);
    mem_free(s->tiles);
    mem_free(s);
}

/* Was slot q planned for this mode and these inputs, in this order? */
static bool same_inputs(const Slot *q, bool train, const PlanInput *input,
                        int inputs)
{
    if (!q->plan || q->train != train || q->inputs != inputs) return false;
    for (int i = 0; i < inputs; i++)
        if (q->input[i].node != input[i].node ||
            !dims_equal(q->input[i].dim, input[i].dim))
            return false;
    return true;
}

void destroy_graph(Session *s, CapturedStep *t)
{
    if (t->graph) s->be->destroy(s->dev, t->graph);
    t->graph = NULL, t->number = 0, t->odd = 0;
}

void destroy_graphs(Session *s, Slot *slot)
{
    for (int i = 0; i < 4; i++) destroy_graph(s, &slot->captured[i / 2][i % 2]);
}

bool session_plan(Session *s, bool train, const PlanInput *input, int inputs,
                  Plan **out)
{
    Slot *slot = &s->slot[0];
    if (inputs > MAX_INPUTS)
        return fail_usage("%d inputs, at most %d", inputs, MAX_INPUTS);

    for (int i = 0; i < MAX_PLANS; i++) {
        Slot *q = &s->slot[i];
        if (same_inputs(q, train, input, inputs)) {
            q->used = ++s->clock;
            *out = q->plan;
            return true;
        }
        // an empty slot was never used, so it is the oldest
        if (q->used < slot->used) slot = q;
    }

    // a session without an optimiser runs training mode forward only
    PlanSpec spec = {.graph = s->spec.graph,
                     .params = &s->params,
                     .be = s->be,
                     .threads = s->threads,
                     .precision = s->spec.precision,
                     .no_winograd = s->spec.no_winograd,
                     .tiles = s->spec.tiles,
                     .root = s->root,
                     .roots = s->spec.roots,
                     .loss = train && s->trains ? s->spec.loss : -1,
                     .train = train,
                     .mc_dropout = s->spec.mc_dropout,
                     .no_fusion = s->spec.no_fusion,
                     .sync_batch_norm =
                         s->spec.ranks && !s->spec.local_batch_norm,
                     // gradients summed over ranks have other squares
                     .sqnorms = !s->spec.ranks,
                     .input = input,
                     .inputs = inputs,
                     .budget = s->budget,
                     .least = s->least};
    Plan *p;
    if (train && s->trains)
        spec.root = s->spec.step_root, spec.roots = s->spec.step_roots;

    // the oldest plan is freed only now: a failed build loses nothing
    if (!plan_build(&spec, &p)) return false;
    destroy_graphs(s, slot);
    plan_free(slot->plan);
    *slot =
        (Slot){.plan = p, .train = train, .inputs = inputs, .used = ++s->clock};
    memcpy(slot->input, input, (size_t)inputs * sizeof *input);
    *out = p;
    return true;
}

bool session_bind(Session *s, Plan *p)
{
    size_t bytes = plan_bytes(p);
    if (bytes > s->pool_bytes || !s->pool) {
        if (!within_limit(s, bytes)) return false;
        for (int i = 0; i < MAX_PLANS; i++) destroy_graphs(s, &s->slot[i]);
        // free first, then allocate: two pools at a time might not fit
        s->be->release(s->dev, s->pool);
        s->pool = NULL;
        s->pool_bytes = 0;
        if (!s->be->alloc(s->dev, bytes, &s->pool))
            return within("arena of %zu bytes (a smaller batch or smaller "
                          "images need less)",
                          bytes);
        s->pool_bytes = bytes;
    }

    plan_bind(p, s->pool, s->dev);
    return true;
}

void session_budget(Session *s, size_t bytes, bool least)
{
    s->budget = bytes;
    s->least = least;
}

bool session_available_memory(Session *s, size_t *bytes, size_t *left)
{
    const size_t limit = s->spec.limit, rest = weights(s) + s->accounted;
    *left = !limit ? SIZE_MAX : rest < limit ? limit - rest : 0;
    *bytes = s->be->room ? 0 : mem_room("");
    if (s->be->room && !s->be->room(s->dev, bytes)) return false;
    if (*bytes < SIZE_MAX - s->pool_bytes) *bytes += s->pool_bytes;
    if (s->spec.averages && !s->params.average && *bytes < SIZE_MAX)
        *bytes -= average(s) < *bytes ? average(s) : *bytes;
    return true;
}

bool session_check_memory(Session *s, size_t bytes)
{
    size_t room, left;
    if (!session_available_memory(s, &room, &left)) return false;
    if (bytes <= room) return true;
    return fail_memory(
        s->be->room ? ERR_DEVICE : ERR_FAILURE, bytes, room,
        "no memory: the arena of a training step needs %zu bytes, %zu are free",
        bytes, room);
}

void session_account_memory(Session *s, int64_t bytes)
{
    s->accounted = (size_t)((int64_t)s->accounted + bytes);
}

// on a device with memory of its own, feeding and reading use a host copy in
// memory order and the real type
bool session_feed(Session *s, Plan *p, int node, const float *user)
{
    const Tensor *t = plan_value(p, node);
    CHECK(t);
    if (s->be->from_user) {
        s->be->from_user(s->dev, user, t);
        return true;
    }
    Tensor host = *t;
    const bool narrow = dtype_bytes(t->type) == 2;
    if (narrow) host.type = F32;
    host.data = mem_alloc(tensor_bytes(&host));
    if (!host.data) return false;
    tensor_from_user(user, &host);
    bool ok = narrow
                  ? s->be->upload_narrow(s->dev, t, host.data)
                  : s->be->upload(s->dev, t->data, host.data, tensor_bytes(t));
    mem_free(host.data);
    return ok;
}

bool session_feed_tensor(Session *s, Plan *p, int node, const Tensor *from)
{
    const Tensor *t = plan_value(p, node);
    CHECK(t && from->type == F32 && dims_equal(t->dim, from->dim));

    // the loader's blocks already have the layout of a float device
    if (t->type == F32)
        return s->be->upload(s->dev, t->data, from->data, tensor_bytes(t));
    if (dtype_bytes(t->type) == 2)
        return s->be->upload_narrow(s->dev, t, from->data);
    Tensor host = *t;
    host.data = mem_alloc(tensor_bytes(t));
    if (!host.data) return false;
    tensor_convert(from, &host);
    bool ok = s->be->upload(s->dev, t->data, host.data, tensor_bytes(t));
    mem_free(host.data);
    return ok;
}

bool session_read(Session *s, Plan *p, int node, float *user)
{
    const Tensor *t = plan_value(p, node);
    CHECK(t);
    if (s->be->to_user) {
        s->be->to_user(s->dev, t, user);
        return true;
    }
    Tensor host = *t, wide = *t;
    size_t bytes = tensor_bytes(t);
    host.data = mem_alloc(bytes);
    if (!host.data) return false;
    bool ok = s->be->download(s->dev, host.data, t->data, bytes);

    if (ok && dtype_bytes(t->type) == 2) { // an input in 16 bits
        wide.type = F32;
        wide.data = mem_alloc(tensor_bytes(&wide));
        ok = wide.data != NULL;
        if (ok) tensor_convert(&host, &wide);
        if (ok) tensor_to_user(&wide, user);
        mem_free(wide.data);
    } else if (ok) {
        tensor_to_user(&host, user);
    }

    mem_free(host.data);
    return ok;
}

void session_set_shard(Session *s, int64_t first, bool idle)
{
    s->shard =
        (Shard){.ranks = s->spec.ranks,
                .first = first,
                .idle = idle,
                .sync_batch_norm = s->spec.ranks && !s->spec.local_batch_norm};
}

/* A forward run; evaluation uses only its own inputs. */
static PlanRun forward_run(Session *s, const Plan *p)
{
    s->part = 0;
    PlanRun run = {
        .step = step_here(s), .careful = s->careful, .trace = s->trace};
    if (!plan_trains(p)) run.step.shard = (Shard){0};
    return run;
}

bool session_run(Session *s, Plan *p)
{
    PlanRun run = forward_run(s, p);
    return plan_run(p, &run) && s->be->sync(s->dev);
}

// a value of one batch is copied before the next batch overwrites it: calls are
// queued in order
bool session_readback_add(Session *s, Plan *p, const int *node, int nodes)
{
    for (int i = 0; i < nodes; i++) {
        const Tensor *t = plan_value(p, node[i]);
        CHECK(t);
        if (!readback_add(s->readback, t)) return false;
    }
    return true;
}

bool session_run_async(Session *s, Plan *p, const int *node, int nodes)
{
    PlanRun run = forward_run(s, p);
    return plan_run(p, &run) && session_readback_add(s, p, node, nodes);
}

void session_trace(Session *s, Trace *t)
{
    trace_hold(t);
    trace_drop(s->trace);
    s->trace = t;
    if (s->be->trace) s->be->trace(s->dev, t);
}

Trace *session_traced(const Session *s)
{
    return s->trace;
}

Readback *session_readback(Session *s)
{
    return s->readback;
}

/* Returns the device address of the running statistics, which follow the
 * trained part in one piece, and their size. */
static void *running(const Session *s, size_t *bytes)
{
    size_t real = dtype_bytes(s->be->real);
    *bytes = (size_t)(s->params.total - s->params.trained) * real;
    return (char *)s->params.value + (size_t)s->params.trained * real;
}

bool keep_running(Session *s)
{
    size_t bytes;
    void *at = running(s, &bytes);
    return s->be->download(s->dev, s->before, at, bytes);
}

bool restore_running(Session *s)
{
    size_t bytes;
    void *at = running(s, &bytes);
    return s->be->upload(s->dev, at, s->before, bytes);
}

// runs forward again in training mode, which changes running statistics
bool session_blame(Session *s, Plan *p, char *text, size_t room, Blame *more)
{
    s->part = 0;
    Step step = step_here(s);
    // ranks may find it at different calls: each searches alone
    step.shard.ranks = NULL;
    step.shard.sync_batch_norm = false;
    if (!keep_running(s)) return false;
    bool ok = plan_blame(p, &step, text, room, more);
    return restore_running(s) && ok;
}

Params *session_params(Session *s)
{
    return &s->params;
}

const Backend *session_backend(const Session *s)
{
    return s->be;
}

void *session_device(const Session *s)
{
    return s->dev;
}

const char *session_transport(const Session *s)
{
    return s->allreduce.text;
}

int session_threads(const Session *s)
{
    return s->threads;
}

size_t session_pool_bytes(const Session *s)
{
    return s->pool_bytes;
}
