/* session.c -- plans on demand, one pool, and the training step.
 *
 * A plan is made for given extents and kept: slices of two sizes and a last,
 * smaller batch cost one planning each, not one a step. The plans share a pool
 * as large as the largest of them asked for, since only one runs at a time.
 *
 * A training step is: keep the running statistics, forward and backward (for
 * each part), look at losses and gradient norm, and only then either update or
 * put the running statistics back. Gradients, the step's only other trace,
 * are overwritten by the next. So a step that is not finite leaves no trace
 * at all, whatever the network holds. */
#include "session.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    MAX_PLANS = 16,  // extents in use at a time; more are planned again
    MAX_INPUTS = 16, // of a network; the embedding face has the same bound
};

/* A plan and what it was made for. */
typedef struct Slot {
    Plan *plan;
    bool train;
    PlanInput input[MAX_INPUTS];
    int inputs;
    int64_t used; /* when it was last asked for: the oldest makes room */
} Slot;

struct Session {
    SessionSpec spec; /* its root and optim point at the copies below    */
    int *root;        /* owned: the caller's, and the loss               */
    Optim optim;
    bool trains; /* has a loss and an optimiser                     */
    const Backend *be;
    void *dev;
    bool opened;       /* dev is to be closed                        */
    int threads;       /* that dev has                               */
    char why[ERR_MAX]; /* why not a better device, or ""             */
    Params params;
    Slot slot[MAX_PLANS];
    int64_t clock;     /* counts what was asked for: the age of slots */
    void *pool;        /* on dev, shared by all plans                 */
    size_t pool_bytes; /* 0 when there is none yet                    */
    int64_t count;     /* updates so far, over all runs of a network  */
    void *before;      /* running statistics at the start of a step   */
    Journal *journal;  /* values that session_keep puts aside         */
    int part;          /* of this step, from 0: see step_here         */
    bool finite;       /* so were the losses of all its parts so far  */
};

/* Find and open the device that the spec names. */
static bool open_device(Session *s)
{
    int number;
    const char *text = s->spec.device ? s->spec.device : "auto";
    if (!backend_find(text, &s->be, &number, s->why)) return false;
    s->threads = s->be->threads(s->spec.threads);
    s->opened = s->be->open(number, s->threads, &s->dev);
    return s->opened;
}

bool session_open(const SessionSpec *spec, Session **out)
{
    bool ok = false;
    size_t real;
    // before anything is opened: a wrong number is the user's, and is said
    // first
    if (spec->optim && !optim_valid(spec->optim)) return false;
    Session *s = mem_alloc(sizeof *s);
    if (!s) return false;
    s->spec = *spec;
    s->trains = spec->optim && spec->loss >= 0;
    s->root = mem_alloc(((size_t)spec->roots + 1) * sizeof *s->root);
    TRY(s->root);
    // the loss is a root whether the caller lists it or not, hence the + 1
    memcpy(s->root, spec->root, (size_t)spec->roots * sizeof *s->root);
    if (spec->loss >= 0) s->root[s->spec.roots++] = spec->loss;
    s->spec.root = s->root;
    TRY(open_device(s));
    real = dtype_bytes(s->be->real);
    TRY(params_list(&s->params, spec->graph, s->root, s->spec.roots));
    TRY(params_open(&s->params, spec->graph, s->be, s->dev, spec->seed));
    if (s->trains) {
        s->optim = *spec->optim;
        s->spec.optim = &s->optim;
        TRY(params_train(&s->params, optim_info[s->optim.kind].states));
    }
    s->before = mem_alloc((size_t)(s->params.total - s->params.trained) * real);
    TRY(s->before);
    TRY(journal_open(s->be, s->dev, &s->journal));
    ok = true;
done:
    if (ok)
        *out = s;
    else
        session_close(s);
    return ok;
}

// also of a session that session_open could not finish: whatever is not there
// is NULL; the device goes last, as all the rest lies on it
void session_close(Session *s)
{
    if (!s) return;
    for (int i = 0; i < MAX_PLANS; i++) plan_free(s->slot[i].plan);
    params_free(&s->params);
    journal_close(s->journal);
    if (s->opened) {
        s->be->release(s->dev, s->pool);
        s->be->close(s->dev);
    }
    mem_free(s->before);
    mem_free(s->root);
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
                     .root = s->root,
                     .roots = s->spec.roots,
                     .loss = train && s->trains ? s->spec.loss : -1,
                     .train = train,
                     .input = input,
                     .inputs = inputs};
    Plan *p;
    // only now that there is a new plan the oldest goes: a failure costs none
    if (!plan_build(&spec, &p)) return false;
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
        // first back, then new: two pools at a time might not fit
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

// feeding and reading pass a copy on the host in memory order and real type
bool session_feed(Session *s, Plan *p, int node, const float *user)
{
    const Tensor *t = plan_value(p, node);
    CHECK(t);
    Tensor host = *t;
    size_t bytes = tensor_bytes(t);
    host.data = mem_alloc(bytes);
    if (!host.data) return false;
    tensor_from_user(user, &host);
    bool ok = s->be->upload(s->dev, t->data, host.data, bytes);
    mem_free(host.data);
    return ok;
}

bool session_feed_tensor(Session *s, Plan *p, int node, const Tensor *from)
{
    const Tensor *t = plan_value(p, node);
    CHECK(t && from->type == F32 && dims_equal(t->dim, from->dim));
    // the loader's blocks are already what a float device wants
    if (t->type == F32)
        return s->be->upload(s->dev, t->data, from->data, tensor_bytes(t));
    Tensor host = *t;
    host.data = mem_alloc(tensor_bytes(t));
    if (!host.data) return false;
    for (int64_t i = 0, n = numel(t->dim); i < n; i++)
        tensor_set(&host, i, tensor_get(from, i));
    bool ok = s->be->upload(s->dev, t->data, host.data, tensor_bytes(t));
    mem_free(host.data);
    return ok;
}

bool session_read(Session *s, Plan *p, int node, float *user)
{
    const Tensor *t = plan_value(p, node);
    CHECK(t);
    Tensor host = *t;
    size_t bytes = tensor_bytes(t);
    host.data = mem_alloc(bytes);
    if (!host.data) return false;
    bool ok = s->be->download(s->dev, host.data, t->data, bytes);
    if (ok) tensor_to_user(&host, user);
    mem_free(host.data);
    return ok;
}

/* What random draws depend on now: seed and step, and the part of the step. A
 * part gets a key of its own, as sample n of each would else lose the same
 * units; part 0 keeps the seed, so a step of one part is what it always was. */
static Step step_here(const Session *s)
{
    uint64_t key = (uint64_t)s->part * 0x9E3779B97F4A7C15u;
    return (Step){s->spec.seed ^ key, s->count};
}

bool session_run(Session *s, Plan *p)
{
    s->part = 0;
    PlanRun run = {.step = step_here(s)};
    return plan_run(p, &run) && s->be->sync(s->dev);
}

// a value of one batch is put aside before the next overwrites it: calls are
// queued in order
bool session_keep(Session *s, Plan *p, const int *node, int nodes)
{
    s->part = 0;
    PlanRun run = {.step = step_here(s)};
    if (!plan_run(p, &run)) return false;
    for (int i = 0; i < nodes; i++) {
        const Tensor *t = plan_value(p, node[i]);
        CHECK(t);
        if (!journal_add(s->journal, t)) return false;
    }
    return true;
}

Journal *session_journal(Session *s)
{
    return s->journal;
}

/* == training ========================================================== */

/* The running statistics stand behind the trained part in one piece: its
 * address on the device, and its bytes. */
static void *running(const Session *s, size_t *bytes)
{
    size_t real = dtype_bytes(s->be->real);
    *bytes = (size_t)(s->params.total - s->params.trained) * real;
    return (char *)s->params.value + (size_t)s->params.trained * real;
}

/* Copy the running statistics to the host, in case the step is undone. */
static bool keep_running(Session *s)
{
    size_t bytes;
    void *at = running(s, &bytes);
    return s->be->download(s->dev, s->before, at, bytes);
}

/* Put them back as they were at keep_running. */
static bool restore_running(Session *s)
{
    size_t bytes;
    void *at = running(s, &bytes);
    return s->be->upload(s->dev, at, s->before, bytes);
}

/* Update all trained parameters and count the step. Neighbours in the block
 * that decay alike and are alike frozen go in one call: mostly one call for
 * all. The gaps between them are updated too, and stay 0 as their gradient
 * and value are. */
static bool update(Session *s, double lr, double grad_scale)
{
    const Params *q = &s->params;
    size_t real = dtype_bytes(s->be->real);
    double decay = optim_hyper(&s->optim, "decay");
    int64_t from = 0;
    int last = -1; // the trained parameter that ends the block
    for (int i = 0; i < q->count; i++)
        if (q->list[i].trained) last = i;
    // [from, to) is the run of equals that ends with parameter i
    for (int i = 0; i <= last; i++) {
        const Param *a = &q->list[i];
        if (!a->trained) continue;
        int next = i + 1;
        while (next <= last && !q->list[next].trained) next++;
        bool join = next <= last && q->list[next].decayed == a->decayed &&
                    q->list[next].frozen == a->frozen;
        if (i != last && join) continue;
        int64_t to = i == last ? q->trained : q->list[next].at;
        size_t skip = (size_t)from * real;
        Update u = {.optim = &s->optim,
                    .value = (char *)q->value + skip,
                    .grad = (char *)q->grad + skip,
                    .count = to - from,
                    .step = s->count + 1,
                    .lr = lr,
                    .decay = a->decayed ? decay : 0,
                    .grad_scale = grad_scale};
        if (q->states > 0) u.m = (char *)q->state[0] + skip;
        if (q->states > 1) u.v = (char *)q->state[1] + skip;
        if (!a->frozen && !s->be->update(s->dev, &u)) return false;
        from = to;
    }
    s->count++;
    return true;
}

/* Is p a plan of this session that has gradients? */
static bool is_training(const Session *s, const Plan *p)
{
    for (int i = 0; i < MAX_PLANS; i++)
        if (s->slot[i].plan == p) return s->slot[i].train;
    return false;
}

/* The value of the loss after a run, from the device. */
static bool read_loss(Session *s, Plan *p, double *loss)
{
    const Tensor *t = plan_value(p, s->spec.loss);
    double value[1] = {0};
    Tensor host = *t;
    host.data = value;
    if (!s->be->download(s->dev, value, t->data, tensor_bytes(t))) return false;
    *loss = tensor_get(&host, 0);
    return true;
}

bool session_accumulate(Session *s, Plan *p, bool first, bool last, int parts,
                        double lr, double clip_norm, StepResult *out)
{
    if (!s->trains)
        return fail_usage("this network was opened without a loss and an "
                          "optimiser, so it cannot train");
    CHECK(is_training(s, p));
    double squares;
    s->part = first ? 0 : s->part + 1;
    PlanRun run = {.step = step_here(s),
                   .backward = true,
                   .accumulate = !first,
                   .seed_grad = 1.0 / parts};
    *out = (StepResult){0};
    if (first && !keep_running(s)) return false;
    if (!plan_run(p, &run) || !s->be->sync(s->dev) ||
        !read_loss(s, p, &out->loss))
        return false;
    // an infinite loss may have a finite gradient, which a later part hides
    s->finite = (first || s->finite) && isfinite(out->loss);
    if (!last) return true;
    if (!s->be->sum_squares(s->dev, s->params.grad, s->params.trained,
                            &squares))
        return false;
    out->grad_norm = sqrt(squares);
    if (!s->finite || !isfinite(out->grad_norm)) return restore_running(s);
    // as PyTorch's clip_grad_norm_: the 1e-6 is its, and keeps a norm of 0 from
    // dividing; a gradient is never enlarged
    double scale = 1;
    if (clip_norm > 0 && clip_norm / (out->grad_norm + 1e-6) < 1)
        scale = clip_norm / (out->grad_norm + 1e-6);
    out->applied = true;
    return update(s, lr, scale);
}

bool session_step(Session *s, Plan *p, double lr, double clip_norm,
                  StepResult *out)
{
    return session_accumulate(s, p, true, true, 1, lr, clip_norm, out);
}

// runs forward again in training mode, which moves running statistics
bool session_blame(Session *s, Plan *p, char *text, size_t room)
{
    Step step = step_here(s);
    if (!keep_running(s)) return false;
    bool ok = plan_blame(p, &step, text, room);
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

int session_threads(const Session *s)
{
    return s->threads;
}

const char *session_why(const Session *s)
{
    return s->why;
}

int64_t session_count(const Session *s)
{
    return s->count;
}

void session_set_count(Session *s, int64_t count)
{
    s->count = count;
}

size_t session_pool_bytes(const Session *s)
{
    return s->pool_bytes;
}
