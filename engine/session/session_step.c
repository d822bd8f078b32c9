/* session_step.c -- the training step.
 *
 * A step: keep the running statistics, run forward and backward (for each
 * part), check losses and gradient norm, and only then either update the
 * parameters or restore the running statistics. Gradients, the only other state
 * of a step, are overwritten by the next. So a step that is not finite changes
 * nothing.
 *
 * The session checks and updates, or a backend with a DeviceStep does so on the
 * device: the two halves of this file. The first time such a backend runs a
 * plan it waits after each call, because a fault on an asynchronous device
 * would have no name; from the second time on a part is captured and
 * launched. */
#include "engine/base/clock.h"
#include "engine/session/session_inside.h"
#include <math.h>
#include <stdio.h>

/* Returns the number of the group of parameter `a`; -1 with a reason if there
 * would be too many groups. */
static int group_of(Session *s, const Param *a)
{
    OptimGroup g = {a->rate,
                    a->decay < 0 ? optim_hyper(&s->optim, "decay") : a->decay};
    if (!a->decayed) g.decay = 0;
    for (int i = 0; i < s->groups; i++)
        if (s->group[i].rate == g.rate && s->group[i].decay == g.decay)
            return i;

    if (s->groups == MAX_GROUPS) {
        fail_usage("groups: parameter %s is the first of group %d; at most %d "
                   "different rates and decays are possible",
                   a->name, MAX_GROUPS + 1, MAX_GROUPS);
        return -1;
    }

    s->group[s->groups] = g;
    return s->groups++;
}

/* Collects parameters that are updated as ranges of the block: neighbours of
 * one group are merged. Gaps between them are updated too, and stay 0 as their
 * gradient and value are 0. There is room for one range per parameter. */
static bool find_param_ranges(Session *s)
{
    const Params *q = &s->params;
    ParamRange *end = NULL; // range that the next parameter may continue

    for (int i = 0; i < q->count; i++) {
        const Param *a = &q->list[i];
        if (!a->trained) continue;
        if (end) end->to = a->at;
        if (a->frozen) {
            end = NULL;
            continue;
        }
        int group = group_of(s, a);
        if (group < 0) return false;
        if (!end || end->group != group)
            *(end = &s->param_range[s->param_ranges++]) =
                (ParamRange){a->at, 0, group};
    }

    if (end) end->to = q->trained;
    return true;
}

/* Called at the first step: until then parameters may be frozen and grouped. */
static bool keep_param_ranges(Session *s)
{
    if (s->param_range) return true;
    s->param_range =
        mem_alloc(((size_t)s->params.count + 1) * sizeof *s->param_range);
    if (!s->param_range) return false;
    s->param_ranges = s->groups = 0;
    if (find_param_ranges(s)) return true;
    mem_free(s->param_range);
    s->param_range = NULL;
    return false;
}

/* == the session updates =============================================== */

/* Updates all trained parameters, then the average; counts the step. */
static bool update(Session *s, double lr, double grad_scale)
{
    const Params *q = &s->params;
    size_t real = dtype_bytes(s->be->real);
    int64_t t = s->state.count + 1 - s->state.start;

    for (int i = 0; i < s->param_ranges; i++) {
        const ParamRange *a = &s->param_range[i];
        const OptimGroup *group = &s->group[a->group];
        size_t skip = (size_t)a->from * real;
        Update u = {.optim = &s->optim,
                    .value = (char *)q->value + skip,
                    .grad = (char *)q->grad + skip,
                    .count = a->to - a->from,
                    .step = t,
                    .lr = lr * group->rate,
                    .decay = group->decay,
                    .grad_scale = grad_scale};
        if (q->states > 0) u.m = (char *)q->state[0] + skip;
        if (q->states > 1) u.v = (char *)q->state[1] + skip;
        if (!s->be->update(s->dev, &u)) return false;
    }

    s->state.count++;
    return s->ema == 0 || s->be->blend(s->dev, q->average, q->value, q->total,
                                       1 - average_keeps(s->ema, t));
}

/* Reads the loss of a run from the device. */
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

/* All-reduces the gradients. Before, each rank has the contribution of its
 * shard to the gradient of the batch's loss; after, all ranks have the sum.
 * Running statistics are equal on all ranks; with local_batch_norm each rank
 * has its own, and they are averaged. */
static bool join_ranks(Session *s)
{
    const Params *q = &s->params;
    Ranks *r = s->spec.ranks;
    Dtype real = s->be->real;
    int64_t count = q->total - q->trained;

    if (!r) return true;
    if (!ranks_sum_values(r, q->grad, real, q->trained)) return false;
    if (!s->spec.local_batch_norm) return true;
    char *at = (char *)q->value + (size_t)q->trained * dtype_bytes(real);
    if (!ranks_sum_values(r, at, real, count)) return false;
    for (int64_t i = 0; i < count; i++)
        if (real == F64)
            ((double *)at)[i] /= r->count;
        else
            ((float *)at)[i] /= (float)r->count;
    return true;
}

/* Checks the gradients after the last part; updates or restores. */
static bool decide(Session *s, const StepPart *part, StepResult *out)
{
    double squares, by = s->state.scale.by;
    if (!s->be->sum_squares(s->dev, s->params.grad, s->params.trained,
                            &squares))
        return false;
    out->grad_norm = sqrt(squares) / by;
    bool finite = s->finite && isfinite(out->grad_norm);
    if (s->spec.scaled) loss_scale_next(&s->state.scale, finite);
    out->overflow = s->finite && s->state.scale.by < by;
    if (!finite) return restore_running(s);
    out->applied = true;
    return update(s, part->lr,
                  clip_factor(out->grad_norm, part->clip_norm) / by);
}

/* Runs the whole part; its result waits in the session. */
static bool run_part(Session *s, Plan *p, const StepPart *part)
{
    StepResult *out = &s->result;
    PlanRun run = {.step = step_here(s),
                   .backward = true,
                   .accumulate = !part->first,
                   .trace = s->trace,
                   // an idle rank contributes nothing
                   .seed_grad =
                       s->shard.idle ? 0 : s->state.scale.by / part->parts};
    *out = (StepResult){0};
    s->grad_scale = s->state.scale.by;
    if (part->first && !keep_running(s)) return false;
    if (!plan_run(p, &run) || !s->be->sync(s->dev) ||
        !read_loss(s, p, &out->loss))
        return false;

    // an infinite loss may have a finite gradient, which a later part hides
    s->finite = (part->first || s->finite) && isfinite(out->loss);
    const double from = clock_s();
    if (part->last && !(join_ranks(s) && decide(s, part, out))) return false;
    s->update_s += clock_s() - from;
    if (part->last) trace_span(s->trace, "main", "update", "run", -1, from);
    out->state = s->state;
    return true;
}

/* == the device updates ================================================ */

static bool open_device_step(Session *s)
{
    const Params *q = &s->params;
    size_t real = dtype_bytes(s->be->real);
    if (s->device_step) return true;
    DeviceStepSpec spec = {.optim = s->optim,
                           .scaled = s->spec.scaled,
                           .value = q->value,
                           .grad = q->grad,
                           .state = {q->state[0], q->state[1]},
                           .copy = q->copy,
                           .copied = q->copied,
                           .trained = q->trained,
                           .running =
                               (char *)q->value + (size_t)q->trained * real,
                           .running_count = q->total - q->trained,
                           .param_range = s->param_range,
                           .param_ranges = s->param_ranges,
                           .group = s->group,
                           .groups = s->groups,
                           .average = s->ema == 0 ? NULL : q->average,
                           .averaged = q->total,
                           .ema = s->ema};
    if (!s->be->device_step->open(s->dev, &spec, &s->device_step)) return false;
    if (s->be->device_step->set(s->dev, s->device_step, &s->state)) return true;

    // without a state on the device it is useless
    s->be->device_step->close(s->dev, s->device_step);
    s->device_step = NULL;
    return false;
}

/* Labels the launches that follow as part of the step itself, with the name of
 * the memory that they move. */
static void log_part(const char *what)
{
    launch_log_part((LaunchPart){.node = LAUNCH_NO_NODE, .what = what});
}

/* The same as join_ranks, queued. */
static bool queue_join(Session *s)
{
    const Params *q = &s->params;
    const Backend *be = s->be;
    const Ranks *r = s->spec.ranks;
    if (!r) return true;
    char *running =
        (char *)q->value + (size_t)q->trained * dtype_bytes(be->real);
    return be->allreduce(s->dev, q->grad, be->real, q->trained, 1) &&
           (!s->spec.local_batch_norm ||
            be->allreduce(s->dev, running, be->real, q->total - q->trained,
                          1.0 / r->count));
}

/* Queues all between order and report: depends on addresses only. */
static bool queue_calls(Session *s, Plan *p, const StepPart *part, bool careful)
{
    const DeviceStep *t = s->be->device_step;
    PlanRun run = {.step = step_here(s),
                   .backward = true,
                   .accumulate = !part->first,
                   .prepared = true,
                   .careful = careful};
    log_part("begin");
    if (!t->begin(s->dev, s->device_step, plan_loss_grad(p)->data,
                  part->first) ||
        !plan_run(p, &run))
        return false;
    log_part("update");
    return (!part->last || queue_join(s)) &&
           t->end(s->dev, s->device_step, plan_value(p, s->spec.loss)->data,
                  part->last ? plan_sqnorms(p) : NULL) &&
           (!careful || s->be->sync(s->dev));
}

static bool capture_calls(Session *s, Plan *p, const StepPart *part,
                          CapturedStep *t)
{
    if (!s->be->capture(s->dev)) return false;
    if (queue_calls(s, p, part, false)) {
        if (!s->be->instantiate(s->dev, &t->graph)) return false;
        t->number = ++s->captures;
        return true;
    }

    // keep the reason of the call that failed
    char why[ERR_MAX];
    ErrKind kind = err_kind();
    snprintf(why, sizeof why, "%s", err_text());
    (void)s->be->instantiate(s->dev, NULL);
    return err_set(kind, why);
}

/* Returns the slot of a plan of this session with gradients, or NULL. */
static Slot *training_slot(Session *s, const Plan *p)
{
    for (int i = 0; i < MAX_PLANS; i++)
        if (s->slot[i].plan == p && s->slot[i].train) return &s->slot[i];
    return NULL;
}

/* How a part is run. */
typedef enum Way { BY_CALLS, CAPTURING, LAUNCHING } Way;

/* Chooses the way on a rank with all-reduces on its stream: NCCL requires that
 * either all ranks capture a collective or none does, at the same time. Ranks
 * may differ if their shards do: one may have seen these extents before,
 * another not. A graph without a matching graph on other ranks is destroyed
 * after PATIENCE steps, so that all capture again. */
static bool agree(Session *s, CapturedStep *t, Way *way)
{
    enum { PATIENCE = 3 };
    Ranks *r = s->spec.ranks;
    const int64_t mine[2] = {t->tried && !s->careful, t->number};
    int64_t(*all)[2] = mem_alloc((size_t)r->count * sizeof *all);
    bool same = true, tried = true;
    if (!all || !ranks_gather(r, mine, sizeof mine, all)) {
        mem_free(all);
        return false;
    }
    for (int k = 0; k < r->count; k++) {
        tried = tried && all[k][0];
        same = same && all[k][1] == mine[1];
    }
    mem_free(all);
    *way = !tried || !same ? BY_CALLS : t->graph ? LAUNCHING : CAPTURING;
    t->odd = same ? 0 : t->odd + 1;
    if (t->odd >= PATIENCE) destroy_graph(s, t);
    return true;
}

static bool choose_way(Session *s, CapturedStep *t, Way *way)
{
    const bool shared = s->spec.ranks != NULL;
    if (shared && s->allreduce.queues) return agree(s, t, way);
    // waiting for other ranks on the host cannot be captured
    *way = s->careful || !t->tried || shared ? BY_CALLS
           : t->graph                        ? LAUNCHING
                                             : CAPTURING;
    return true;
}

/* queue_calls with times. */
static bool time_calls(Session *s, Plan *p, const StepPart *part)
{
    launch_log_into(s->log);
    bool ok = s->be->time_launches(s->dev) && queue_calls(s, p, part, false);
    launch_log_into(NULL);
    // also after a failure, as it ends the timing
    return s->be->launch_times(s->dev, s->log) && ok && !s->log->failed;
}

static bool queue_part(Session *s, Plan *p, const StepPart *part)
{
    const DeviceStep *t = s->be->device_step;
    CapturedStep *captured =
        &training_slot(s, p)->captured[part->first][part->last];
    Way way;
    StepParams order = {.seed = step_here(s).seed,
                        .lr = part->lr,
                        .clip_norm = part->clip_norm,
                        .share = 1.0 / part->parts,
                        .first = s->shard.first,
                        .idle = s->shard.idle};

    if (!open_device_step(s) || !t->order(s->dev, s->device_step, &order))
        return false;
    if (!choose_way(s, captured, &way)) return false;

    if (s->log) {
        if (!time_calls(s, p, part)) return false;
    } else if (way == BY_CALLS) {
        if (!queue_calls(s, p, part, s->careful || !captured->tried))
            return false;
        captured->tried = true;
    } else if ((way == CAPTURING && !capture_calls(s, p, part, captured)) ||
               !s->be->launch(s->dev, captured->graph))
        return false;
    return t->report(s->dev, s->device_step);
}

bool session_queue_timed(Session *s, Plan *p, const StepPart *part,
                         LaunchLog *log)
{
    if (!s->be->time_launches || s->spec.ranks)
        return fail_usage("launches are timed on one GPU alone");
    CHECK(training_slot(s, p));
    // the first part of a plan would wait after each call
    if (!training_slot(s, p)->captured[part->first][part->last].tried)
        return fail_usage("launches are timed after a step of these extents");
    s->log = log;
    const bool queued = session_queue(s, p, part);
    s->log = NULL;
    return queued;
}

// opening the device step is not part of a step
bool session_dry_run(Session *s, Plan *p, LaunchLog *log)
{
    StepPart whole = {true, true, 1, 1, 0};
    CHECK(s->spec.dry_run && training_slot(s, p));
    if (!keep_param_ranges(s) || !open_device_step(s)) return false;
    launch_log_into(log);
    bool ok = queue_calls(s, p, &whole, false);
    launch_log_into(NULL);
    return ok && !log->failed;
}

/* == both halves ======================================================= */

bool session_queue(Session *s, Plan *p, const StepPart *part)
{
    if (!s->trains)
        return fail_usage("this network was opened without a loss and an "
                          "optimiser, so it cannot train");
    CHECK(training_slot(s, p) && s->under_way <= session_ahead(s));
    s->part = part->first ? 0 : s->part + 1;
    if (!keep_param_ranges(s)) return false;
    const double from = trace_now(s->trace);
    if (!(s->be->device_step ? queue_part : run_part)(s, p, part)) return false;
    trace_span(s->trace, "main", s->be->device_step ? "queue a step" : "step",
               "step", s->state.count, from);
    s->under_way++;
    return true;
}

bool session_collect(Session *s, bool wait, StepResult *out, bool *got)
{
    *got = s->under_way > 0;
    if (!*got) return true;
    *out = s->result;
    const double from = trace_now(s->trace);
    bool ok =
        !s->be->device_step ||
        s->be->device_step->collect(s->dev, s->device_step, wait, out, got);
    if (s->be->device_step && wait)
        trace_span(s->trace, "main", "wait for the device", "wait", -1, from);
    if (ok && !*got) return true;

    // a part that failed is not waited for again
    s->under_way--;
    if (!ok) return false;

    // a device step began this part with the state before it
    if (s->be->device_step) s->grad_scale = s->state.scale.by;
    s->state = out->state;
    return true;
}

int session_ahead(const Session *s)
{
    // with a wait for other ranks in each step, nothing can run ahead
    bool waits = s->spec.ranks && !s->allreduce.queues;
    return s->be->device_step && !waits ? DEVICE_STEPS_AHEAD : 0;
}

int session_under_way(const Session *s)
{
    return s->under_way;
}

bool session_part(Session *s, Plan *p, const StepPart *part, StepResult *out)
{
    bool got;
    CHECK(s->under_way == 0);
    return session_queue(s, p, part) && session_collect(s, true, out, &got);
}

bool session_step(Session *s, Plan *p, double lr, double clip_norm,
                  StepResult *out)
{
    StepPart whole = {true, true, 1, lr, clip_norm};
    return session_part(s, p, &whole, out);
}

double session_grad_scale(const Session *s)
{
    return s->grad_scale;
}

double session_update_s(const Session *s)
{
    return s->update_s;
}

StepState session_state(const Session *s)
{
    return s->state;
}

bool session_scaled(const Session *s)
{
    return s->spec.scaled;
}

bool session_set_state(Session *s, const StepState *state)
{
    if (s->under_way)
        return fail_usage("%d step%s under way: collect them before the "
                          "state is set",
                          s->under_way, s->under_way == 1 ? " is" : "s are");
    LossScale kept = s->state.scale;
    s->state = *state;
    // a checkpoint of a run in another precision may have another scale, or
    // none
    if (!s->spec.scaled || state->scale.by < 1) s->state.scale = kept;
    return !s->device_step ||
           s->be->device_step->set(s->dev, s->device_step, &s->state);
}
