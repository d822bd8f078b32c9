/* device_step.cu -- training steps that the device decides without the host.
 *
 * The values that change from step to step are in one Control in device memory.
 * The host sends StepParams (learning rate, clipping, seed) and gets a
 * StepResult, each by one copy in the order of the calls; between the two only
 * kernels run, which depend on addresses alone and can be captured. Besides its
 * plan a step is five launches and one copy: begin; squares of the gradients in
 * parts; the decision, one block, which adds the parts; the update of all
 * parameters; the restoration of running statistics. An average is one launch
 * more. Bound by memory: 28 bytes a parameter for the update (adam), 12 for the
 * average.
 *
 * Results go to PLACES host slots in turn, one more than may be pending. */
#include "cuda/device/device.cuh"
#include "cuda/device/optim.cuh"
#include "cuda/lib/thread_group.cuh"
#include <string.h>

namespace {

enum { PLACES = DEVICE_STEPS_AHEAD + 1 };

/* The state of the step on the device. */
struct Control {
    StepParams order;
    StepState state;
    double sqnorm[SQNORM_PARTS]; // of the gradients, in parts
    int32_t finite;              // all losses of this step are finite
    double grad_scale; // factor on the gradients if the step is applied
    Decision decision;
    StepResult result;
};

/* The parameters of a decision; the same for all steps. */
struct Rules {
    OptimRule optim;
    double ema;
    bool scaled;
    int groups;
    OptimGroup group[MAX_GROUPS];
};

} // namespace

struct DeviceStepCuda {
    DeviceStepSpec spec; // its param_ranges are below, its groups in rules
    Rules rules;
    Control *control; // in device memory, as param_range and before
    ParamRange *param_range;
    int64_t updated;          // elements of all param_ranges
    float *before;            // running statistics at the start of the step
    StepResult *result;       // (PLACES), pinned host memory
    cudaEvent_t done[PLACES]; // the result has arrived
    int64_t reported, collected;
};

namespace {

// -- kernels of one block ----------------------------------------------------

__global__ void step_begin_kernel(Control *k, Step *step, float *loss_grad,
                                  bool first)
{
    step->seed = k->order.seed;
    step->count = k->state.count;
    step->shard.first = k->order.first;
    step->shard.idle = k->order.idle;
    // an idle rank contributes no gradient
    *loss_grad =
        k->order.idle ? 0 : (float)(k->state.scale.by * k->order.share);
    if (first) k->finite = 1;
}

/* Is x finite? */
template <class T> __device__ __forceinline__ bool is_finite(T x)
{
    return x - x == 0;
}

/* Called after each batch of an accumulated step: an infinite loss may have a
 * finite gradient, and a later loss would overwrite it. */
__device__ __forceinline__ void note(Control *k, const float *loss)
{
    StepResult r = {};
    r.loss = (double)*loss;
    r.state = k->state;
    k->result = r;
    if (!is_finite(*loss)) k->finite = 0;
}

__global__ void step_loss_kernel(Control *k, const float *loss)
{
    note(k, loss);
}

/* The number of the optimiser's update, from 1. */
__device__ __forceinline__ int64_t update(const Control *k)
{
    return k->state.count - k->state.start;
}

/* As decide() of session_step.c; by one thread. */
__device__ void decide(Control *k, const float *loss, const Rules &rules,
                       double sqnorm)
{
    note(k, loss);
    const double by = k->state.scale.by;
    const double norm = sqrt(sqnorm) / by;
    const bool applied = k->finite && is_finite(norm);
    if (rules.scaled) loss_scale_next(&k->state.scale, applied);
    k->result.grad_norm = norm;
    k->result.applied = applied;
    k->result.overflow = k->finite && k->state.scale.by < by;
    k->decision.applied = applied;
    if (applied) {
        k->grad_scale = clip_factor(norm, k->order.clip_norm) / by;
        k->state.count++;
        k->decision.blend = (float)(1 - average_keeps(rules.ema, update(k)));
    }
    k->result.state = k->state;
}

/* Adds all parts; then one thread decides, and one thread for each group
 * computes its factors. */
__global__ void __launch_bounds__(BLOCK, 2)
    step_decide_kernel(Control *k, const float *loss, const Rules rules,
                       int parts)
{
    static_assert((int)MAX_GROUPS <= (int)BLOCK, "a thread a group");
    const int i = (int)threadIdx.x;
    double sqnorm[1];
    partial_sums(k->sqnorm, parts, 1, 0, sqnorm);
    if (i == 0) decide(k, loss, rules, sqnorm[0]);
    __syncthreads();
    if (!k->decision.applied || i >= rules.groups) return;
    double exact[FACTOR_COUNT];
    rule_factors(&rules.optim, update(k), k->order.lr * rules.group[i].rate,
                 rules.group[i].decay, k->grad_scale, exact);
    for (int f = 0; f < FACTOR_COUNT; f++)
        k->decision.factors[i][f] = (float)exact[f];
}

// -- running statistics ------------------------------------------------------

__global__ void __launch_bounds__(BLOCK)
    restore_stats_kernel(float *running, const float *before, int64_t count,
                         const Decision *d)
{
    if (d->applied) return;
    EACH(i, count) running[i] = before[i];
}

// -- the functions of DeviceStep ---------------------------------------------

void close(void *dev, void *device_step)
{
    DeviceStepCuda *t = (DeviceStepCuda *)device_step;
    if (!t) return;
    // first: cudaFree waits for copies that still write to the slots
    gpu_release(dev, t->control);
    for (int i = 0; i < PLACES; i++)
        if (t->done[i]) (void)cudaEventDestroy(t->done[i]);
    gpu_release(dev, t->param_range);
    gpu_release(dev, t->before);
    if (t->result) (void)cudaFreeHost(t->result);
    (void)cudaGetLastError();
    mem_free(t);
}

bool open(void *dev, const DeviceStepSpec *spec, void **device_step)
{
    bool ok = false;
    DeviceStepCuda *t = (DeviceStepCuda *)mem_alloc(sizeof *t);
    if (!t) return false;
    const size_t bytes = (size_t)spec->param_ranges * sizeof *spec->param_range;
    const size_t running = (size_t)spec->running_count * sizeof *t->before;
    t->spec = *spec;
    t->spec.param_range = NULL;
    t->spec.group = NULL;
    t->rules.optim = optim_rule(&spec->optim);
    t->rules.ema = spec->ema, t->rules.scaled = spec->scaled;
    t->rules.groups = spec->groups;
    for (int i = 0; i < spec->param_ranges; i++)
        t->updated += spec->param_range[i].to - spec->param_range[i].from;
    for (int i = 0; i < spec->groups; i++) t->rules.group[i] = spec->group[i];
    TRY(gpu_alloc(dev, sizeof *t->control, (void **)&t->control));
    TRY(gpu_alloc(dev, bytes, (void **)&t->param_range));
    TRY(gpu_upload(dev, t->param_range, spec->param_range, bytes));
    TRY(gpu_alloc(dev, running, (void **)&t->before));
    ok = gpu_dry_runs(dev); // a dry run has no results to wait for
    if (ok) goto done;
    TRY(gpu_good(cudaMallocHost(&t->result, PLACES * sizeof *t->result),
                 "memory for results"));
    for (int i = 0; i < PLACES; i++)
        TRY(gpu_good(
            cudaEventCreateWithFlags(&t->done[i], cudaEventDisableTiming),
            "an event"));
    ok = true;

done:
    if (ok)
        *device_step = t;
    else
        close(dev, t);
    return ok;
}

bool set(void *dev, void *device_step, const StepState *state)
{
    DeviceStepCuda *t = (DeviceStepCuda *)device_step;
    return gpu_upload(dev, &t->control->state, state, sizeof *state);
}

bool order(void *dev, void *device_step, const StepParams *order)
{
    DeviceStepCuda *t = (DeviceStepCuda *)device_step;
    CHECK(t->reported - t->collected < PLACES);
    return gpu_upload(dev, &t->control->order, order, sizeof *order);
}

bool begin(void *dev, void *device_step, void *loss_grad, bool first)
{
    DeviceStepCuda *t = (DeviceStepCuda *)device_step;
    const size_t bytes = (size_t)t->spec.running_count * sizeof *t->before;
    if (first && bytes && !gpu_copy(dev, t->before, t->spec.running, bytes))
        return false;
    LAUNCH(step_begin_kernel, 1, 1, 0, gpu_stream(dev), t->control,
           gpu_step(dev), (float *)loss_grad, first);
    return gpu_launched("begin of a step");
}

bool end(void *dev, void *device_step, const void *loss,
         const SqnormPlaces *sqnorm)
{
    DeviceStepCuda *t = (DeviceStepCuda *)device_step;
    const DeviceStepSpec *spec = &t->spec;
    Control *k = t->control;
    int parts;

    if (!sqnorm) {
        LAUNCH(step_loss_kernel, 1, 1, 0, gpu_stream(dev), k,
               (const float *)loss);
        return gpu_launched("loss of a part");
    }
    if (!sqnorm_queue(dev, (const float *)spec->grad, sqnorm, k->sqnorm,
                      &parts))
        return false;
    moves((double)parts * sizeof *k->sqnorm);
    LAUNCH(step_decide_kernel, 1, BLOCK, 0, gpu_stream(dev), k,
           (const float *)loss, t->rules, parts);
    if (!gpu_launched("decision of a step") ||
        !update_all_queue(dev, spec, t->param_range, t->updated, &k->decision))
        return false;
    if (spec->average &&
        !blend_queue(dev, (float *)spec->average, (const float *)spec->value,
                     spec->averaged, &k->decision))
        return false;
    if (!spec->running_count) return true;
    LAUNCH(restore_stats_kernel, blocks_for(spec->running_count), BLOCK, 0,
           gpu_stream(dev), (float *)spec->running, (const float *)t->before,
           spec->running_count, (const Decision *)&k->decision);
    return gpu_launched("running statistics");
}

bool report(void *dev, void *device_step)
{
    DeviceStepCuda *t = (DeviceStepCuda *)device_step;
    const int at = (int)(t->reported % PLACES);
    const char *what = "reporting a step";
    if (!gpu_good(cudaMemcpyAsync(&t->result[at], &t->control->result,
                                  sizeof(StepResult), cudaMemcpyDeviceToHost,
                                  gpu_stream(dev)),
                  what) ||
        !gpu_good(cudaEventRecord(t->done[at], gpu_stream(dev)), what))
        return false;
    t->reported++;
    return true;
}

bool collect(void *dev, void *device_step, bool wait, StepResult *out,
             bool *got)
{
    DeviceStepCuda *t = (DeviceStepCuda *)device_step;
    const int at = (int)(t->collected % PLACES);
    (void)dev;
    *got = false;
    if (t->collected == t->reported) return true;
    cudaError_t e =
        wait ? cudaEventSynchronize(t->done[at]) : cudaEventQuery(t->done[at]);
    if (e == cudaErrorNotReady) {
        (void)cudaGetLastError();
        return true;
    }

    // a lost result still uses up its slot
    t->collected++;
    *got = gpu_good(e, "running");
    if (*got) *out = t->result[at];
    return *got;
}

} // namespace

extern "C" const DeviceStep cuda_device_step;
const DeviceStep cuda_device_step = {open,  close, set,    order,
                                     begin, end,   report, collect};
