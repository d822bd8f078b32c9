/* session_step.c -- the training step.
 *
 * A step is: keep the running statistics, forward and backward (for each
 * part), look at losses and gradient norm, and only then either update or put
 * the running statistics back. Gradients, the step's only other trace, are
 * overwritten by the next. So a step that is not finite leaves no trace at
 * all, whatever the network holds.
 *
 * Who looks and decides is the session, or a backend that has a DeviceStep, by
 * itself: the two halves of this file. The first time such a backend runs a
 * plan it waits after each call, as a fault of a device that only queues has
 * no name; from the second time on a part is captured and launched. */
#include "engine/base/clock.h"
#include "engine/session/session_inside.h"
#include <math.h>
#include <stdio.h>

/* The number of the group that parameter `a` is updated with; -1 with a reason
 * when that would be one more than there may be. */
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

/* Parameters that are updated, as ranges of the block: neighbours of one
 * group are one. The gaps between them are updated too, and stay 0 as their
 * gradient and value are. There is room for one a parameter. */
static bool find_param_ranges(Session *s)
{
    const Params *q = &s->params;
    ParamRange *end = NULL; // that the next parameter may continue
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

/* With the first step: until then parameters may be frozen, and grouped. */
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

/* == the session decides =============================================== */

/* Update all trained parameters, then the average; count the step. */
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

/* Gradients of all ranks, added up: each has those of its share, of a loss that
 * is of the whole batch. Running statistics are the same everywhere, or become
 * the mean of what each rank has found. */
static bool join_ranks(Session *s)
{
    const Params *q = &s->params;
    Ranks *r = s->spec.ranks;
    Dtype real = s->be->real;
    int64_t count = q->total - q->trained;
    if (!r) return true;
    if (!ranks_sum_values(r, q->grad, real, q->trained)) return false;
    if (!s->spec.own_norms) return true;
    char *at = (char *)q->value + (size_t)q->trained * dtype_bytes(real);
    if (!ranks_sum_values(r, at, real, count)) return false;
    for (int64_t i = 0; i < count; i++)
        if (real == F64)
            ((double *)at)[i] /= r->count;
        else
            ((float *)at)[i] /= (float)r->count;
    return true;
}

/* Look at the gradients after the last part; update or put back. */
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

/* The whole part; its result waits in the session. */
static bool run_part(Session *s, Plan *p, const StepPart *part)
{
    StepResult *out = &s->result;
    PlanRun run = {.step = step_here(s),
                   .backward = true,
                   .accumulate = !part->first,
                   .trace = s->trace,
                   // of an idle rank nothing comes
                   .seed_grad =
                       s->share.idle ? 0 : s->state.scale.by / part->parts};
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

/* == the device decides ================================================ */

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
    // one that does not know where the step stands is none
    s->be->device_step->close(s->dev, s->device_step);
    s->device_step = NULL;
    return false;
}

/* What is launched from here on is of the step itself, and tells what it
 * moves. */
static void log_part(const char *what)
{
    launch_log_part((LaunchPart){.node = LAUNCH_NO_NODE, .what = what});
}

/* As join_ranks, queued. */
static bool queue_join(Session *s)
{
    const Params *q = &s->params;
    const Backend *be = s->be;
    const Ranks *r = s->spec.ranks;
    if (!r) return true;
    char *running =
        (char *)q->value + (size_t)q->trained * dtype_bytes(be->real);
    return be->allreduce(s->dev, q->grad, be->real, q->trained, 1) &&
           (!s->spec.own_norms ||
            be->allreduce(s->dev, running, be->real, q->total - q->trained,
                          1.0 / r->count));
}

/* Everything between order and report: depends on addresses only. */
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
    // the reason is that of the call that failed
    char why[ERR_MAX];
    ErrKind kind = err_kind();
    snprintf(why, sizeof why, "%s", err_text());
    (void)s->be->instantiate(s->dev, NULL);
    return err_set(kind, why);
}

/* The slot of a plan of this session that has gradients, or NULL. */
static Slot *training_slot(Session *s, const Plan *p)
{
    for (int i = 0; i < MAX_PLANS; i++)
        if (s->slot[i].plan == p && s->slot[i].train) return &s->slot[i];
    return NULL;
}

/* How a part is queued. */
typedef enum Way { BY_CALLS, CAPTURING, LAUNCHING } Way;

/* That of a rank whose sums are on the stream: NCCL wants a sum to be
 * captured at all ranks or at none, and together. Ranks
 * differ in it where their shares do: one may have met this extent before,
 * another not. A graph that no longer meets its like is given up, so that
 * all record anew. */
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
    // what waits for other ranks on the host cannot be captured
    *way = s->careful || !t->tried || shared ? BY_CALLS
           : t->graph                        ? LAUNCHING
                                             : CAPTURING;
    return true;
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
                        .first = s->share.first,
                        .idle = s->share.idle};
    if (!open_device_step(s) || !t->order(s->dev, s->device_step, &order))
        return false;
    if (!choose_way(s, captured, &way)) return false;
    if (way == BY_CALLS) {
        if (!queue_calls(s, p, part, s->careful || !captured->tried))
            return false;
        captured->tried = true;
    } else if ((way == CAPTURING && !capture_calls(s, p, part, captured)) ||
               !s->be->launch(s->dev, captured->graph))
        return false;
    return t->report(s->dev, s->device_step);
}

// opening the device_step is no part of a step
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

/* == both ============================================================== */

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
    // one that cannot be had is not waited for again
    s->under_way--;
    if (!ok) return false;
    // a device that decides began this part with the state before
    if (s->be->device_step) s->grad_scale = s->state.scale.by;
    s->state = out->state;
    return true;
}

int session_ahead(const Session *s)
{
    // one that waits for other ranks in each step is not ahead of anything
    bool waits = s->spec.ranks && !s->allreduce.queues;
    return s->be->device_step && !waits ? TRAINER_AHEAD : 0;
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
    // a file of a run in another precision may say otherwise, or nothing
    if (!s->spec.scaled || state->scale.by < 1) s->state.scale = kept;
    return !s->device_step ||
           s->be->device_step->set(s->dev, s->device_step, &s->state);
}
