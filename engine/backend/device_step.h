/* device_step.h -- device step: an optimiser step that the GPU decides and runs
 * without the host.
 *
 * After the backward pass of a step, loss and gradient norm are checked, the
 * gradients clipped, and the parameters updated or the step skipped. On the CPU
 * the session does so. A GPU would be idle while the host reads the values, so
 * its kernels make the same decisions from values in device memory. The host
 * queues steps ahead and reads their results later.
 *
 * A step has one or more parts (batches whose gradients are averaged). For each
 * part the session calls order, begin, the calls of the plan, end, report. The
 * work queued from begin to end depends on addresses only, so it can be
 * captured once as a CUDA graph and replayed. */
#ifndef SEG_ENGINE_BACKEND_DEVICE_STEP_H
#define SEG_ENGINE_BACKEND_DEVICE_STEP_H
#include "engine/graph/loss_scale.h"
#include "engine/graph/optim.h"

/* The largest number of reports that are not yet collected. */
enum { DEVICE_STEPS_AHEAD = 8 };
/* Each parameter starts at a multiple of PARAM_ALIGN elements in the block. */
enum { PARAM_ALIGN = 64 };

/* Parameter range: neighbouring trained parameters of one optimiser group,
 * elements [from, to) of the block. Parameters between two ranges are frozen.
 */
typedef struct ParamRange {
    int64_t from, to; /* multiples of PARAM_ALIGN; `to` may be the end */
    int group;        /* number in the list of groups */
} ParamRange;

/* The largest number of Rest entries: they are one argument of a kernel, and
 * CUDA limits arguments to 4096 bytes. */
enum { MAX_RESTS = 448 };

/* Gradients that the norm reads, in lines of PARAM_ALIGN elements: line `first`
 * of the read gradients is line `line` of the block; the lines after it follow,
 * up to `first` of the next entry. */
typedef struct Rest {
    uint32_t first, line;
} Rest;

/* Sources of the gradient norm: gradient-norm partial sums that calls of the
 * plan wrote (Call.sums.sqnorm), and the gradients without them. */
typedef struct SqnormPlaces {
    const double *left; /* (lefts) partial sums, in device memory */
    int64_t lefts;
    int64_t elements; /* gradients to read */
    int rests;
    Rest rest[MAX_RESTS]; /* ascending */
} SqnormPlaces;

typedef struct DeviceStepSpec {
    Optim optim;
    bool scaled;                   /* the loss scale adapts                 */
    void *value, *grad, *state[2]; /* (trained) each, in device memory      */
    void *copy; /* (trained) copy of the values in 16 bits, of type
                 * `copied`; an update writes both. NULL: none      */
    Dtype copied;
    int64_t trained; /* elements                              */
    void *running;   /* (running_count) statistics, restored
                      * when a step is skipped                */
    int64_t running_count;
    const ParamRange *param_range; /* ascending; copied by open */
    int param_ranges;
    const OptimGroup *group; /* at most MAX_GROUPS; copied by open */
    int groups;
    /* Moving average over steps, of values and running statistics together:
     * after each update e += (1 - d) (x - e), d by average_keeps. NULL: none.
     */
    void *average;
    int64_t averaged; /* number of elements at `value` and `average` */
    double ema;
} DeviceStepSpec;

/* Parameters of one part, set by the host. */
typedef struct StepParams {
    uint64_t seed; /* of the part's random draws     */
    double lr;
    double clip_norm; /* <= 0: no clipping              */
    double share;     /* weight in the mean: 1/parts    */
    int64_t first;    /* with several ranks: see Shard in op.h */
    bool idle;
} StepParams;

/* State between two steps; a resumed run needs no more. */
typedef struct StepState {
    int64_t count; /* updates so far */
    LossScale scale;
    int64_t start; /* `count` when moments and average were last reset: step t
                    * of the optimiser is count - start */
} StepState;

/* Result of one part; with the last part, of the whole step. */
typedef struct StepResult {
    double loss;      /* before the update                              */
    double grad_norm; /* of all trained parameters, unscaled, before
                       * clipping; 0 before the last part               */
    bool applied;     /* false: loss or norm not finite, nothing changed,
                       * or not the last part                           */
    bool overflow;    /* not applied because scaled gradients overflowed:
                       * the next step has a smaller loss scale         */
    StepState state;  /* after the part                                 */
} StepResult;

/* Returns the factor on gradients of this norm, as PyTorch's clip_grad_norm_
 * with its 1e-6, which avoids a division by 0. The factor is at most 1, and 1
 * for clip_norm <= 0. */
HOST_DEVICE double clip_factor(double norm, double clip_norm)
{
    double factor = clip_norm / (norm + 1e-6);
    return clip_norm > 0 && factor < 1 ? factor : 1;
}

/* Returns the decay of the moving average at update t (from 1): `ema`, but less
 * at first, so that the initial values are soon forgotten: TensorFlow's rule
 * min(ema, (1 + t) / (10 + t)). */
HOST_DEVICE double average_keeps(double ema, int64_t t)
{
    double warm = (1 + (double)t) / (10 + (double)t);
    return warm < ema ? warm : ema;
}

/* Functions of a backend. They return false with an error text. A device_step
 * belongs to one session; close(NULL) does nothing. */
typedef struct DeviceStep {
    bool (*open)(void *dev, const DeviceStepSpec *spec, void **device_step);
    void (*close)(void *dev, void *device_step);
    /* Sets the state, after all queued work. */
    bool (*set)(void *dev, void *device_step, const StepState *state);
    /* Queues the upload of the next part's parameters. At most
     * DEVICE_STEPS_AHEAD reports may be uncollected then. */
    bool (*order)(void *dev, void *device_step, const StepParams *order);
    /* Queues *loss_grad = scale * share and the random draws of the part; the
     * first part also saves the running statistics. */
    bool (*begin)(void *dev, void *device_step, void *loss_grad, bool first);
    /* Queues the check of *loss; in the last part (`sqnorm` not NULL: of the
     * final gradients) also the decision and the update or the restored
     * statistics. */
    bool (*end)(void *dev, void *device_step, const void *loss,
                const SqnormPlaces *sqnorm);
    /* Queues the download of the result. */
    bool (*report)(void *dev, void *device_step);
    /* Returns the oldest uncollected result in *out. *got is false when there
     * is none, or when it has not arrived and `wait` is false. A failure loses
     * the result. */
    bool (*collect)(void *dev, void *device_step, bool wait, StepResult *out,
                    bool *got);
} DeviceStep;
#endif
