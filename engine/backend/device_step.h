/* device_step.h -- training steps that a device decides by itself.
 *
 * After each step somebody must look at the loss and the norm of the
 * gradients, clip, and update or leave the step out. On the CPU the session
 * does. A GPU would stand still while the host looked, so it has a DeviceStep:
 * the same decisions by kernels, from numbers in its own memory. The host
 * queues steps ahead and reads their results late.
 *
 * A step has one or more parts (batches whose gradients are averaged). For
 * each: order, begin, the calls of the plan, end, report. What begin to end
 * queue depends on addresses only, so it may be recorded once and played. */
#ifndef SEG_ENGINE_BACKEND_DEVICE_STEP_H
#define SEG_ENGINE_BACKEND_DEVICE_STEP_H
#include "engine/graph/loss_scale.h"
#include "engine/graph/optim.h"

/* How many reports may wait to be collected. */
enum { TRAINER_AHEAD = 8 };
/* Each parameter starts at a multiple of so many elements of a block. */
enum { PARAM_ALIGN = 64 };

/* Neighbours of the trained block, elements [from, to), that are updated as one
 * group. What lies between two is frozen. */
typedef struct ParamRange {
    int64_t from, to; /* multiples of PARAM_ALIGN; `to` may be the end */
    int group;        /* number in the list of groups */
} ParamRange;

/* How many param_ranges of gradients are read for their squares, at most: they
 * go to a kernel as one argument, of which CUDA takes 4096 bytes. */
enum { MAX_RESTS = 448 };

/* Lines of PARAM_ALIGN gradients: number `first` of those that are read is
 * number `line` of the block, and so on to the next param_range. */
typedef struct Rest {
    uint32_t first, line;
} Rest;

/* Squares of all gradients: of most, calls of the plan left sums
 * (Call.grad_sqnorm), the rest is read. */
typedef struct SqnormPlaces {
    const double *left; /* (lefts), of the device */
    int64_t lefts;
    int64_t elements; /* of the rest */
    int rests;
    Rest rest[MAX_RESTS]; /* in order */
} SqnormPlaces;

typedef struct DeviceStepSpec {
    Optim optim;
    bool scaled;                   /* the loss scale adapts                 */
    void *value, *grad, *state[2]; /* (trained) each, of the device         */
    void *copy; /* (trained) values in 16 bits, of type `copied`, which
                 * an update writes with them; NULL: none           */
    Dtype copied;
    int64_t trained; /* elements                              */
    void *running;   /* (running_count), put back when a step
                      * is left out                           */
    int64_t running_count;
    const ParamRange *param_range; /* in order; may go after open */
    int param_ranges;
    const OptimGroup *group; /* at most MAX_GROUPS; may go after open */
    int groups;
    /* An average over steps, of values and running statistics in one piece:
     * after each update e += (1 - d) (x - e), d by average_keeps. NULL: none.
     */
    void *average;
    int64_t averaged; /* elements; they are those at `value`     */
    double ema;
} DeviceStepSpec;

/* What the host decides for one part. */
typedef struct StepParams {
    uint64_t seed; /* of its random draws            */
    double lr;
    double clip_norm; /* <= 0: none                     */
    double share;     /* of the part in the mean: 1/parts */
    int64_t first;    /* of several ranks: see Share in op.h */
    bool idle;
} StepParams;

/* Where a step stands between two orders; all that a resumed run needs. */
typedef struct StepState {
    int64_t count; /* updates so far */
    LossScale scale;
    int64_t start; /* the count at which moments and average were new: update
                    * t of the optimiser is number count - start */
} StepState;

/* What one part did, and with the last part the whole step. */
typedef struct StepResult {
    double loss;      /* before the update                              */
    double grad_norm; /* of all trained parameters, unscaled, before
                       * clipping; 0 before the last part               */
    bool applied;     /* false: loss or norm not finite, nothing changed,
                       * or not the last part                           */
    bool overflow;    /* not applied for gradients that were scaled too
                       * far: the next step's are smaller               */
    StepState state;  /* after it                                       */
} StepResult;

/* What gradients of this norm are multiplied by. As PyTorch's clip_grad_norm_:
 * the 1e-6 is its, and keeps a norm of 0 from dividing; a gradient is never
 * enlarged. clip_norm <= 0: 1. */
EVERYWHERE double clip_factor(double norm, double clip_norm)
{
    double factor = clip_norm / (norm + 1e-6);
    return clip_norm > 0 && factor < 1 ? factor : 1;
}

/* What an average over steps keeps of itself at update t (from 1): `ema`, but
 * less at first, when it is still made of the start: TensorFlow's rule
 * min(ema, (1 + t) / (10 + t)). */
EVERYWHERE double average_keeps(double ema, int64_t t)
{
    double warm = (1 + (double)t) / (10 + (double)t);
    return warm < ema ? warm : ema;
}

/* Functions of a backend; false with the reason. A device_step is for one
 * session; close(NULL) is fine. */
typedef struct DeviceStep {
    bool (*open)(void *dev, const DeviceStepSpec *spec, void **device_step);
    void (*close)(void *dev, void *device_step);
    /* Set where the step stands, behind all that is queued. */
    bool (*set)(void *dev, void *device_step, const StepState *state);
    /* Queue: the numbers of the next part. At most TRAINER_AHEAD reports may
     * wait then. */
    bool (*order)(void *dev, void *device_step, const StepParams *order);
    /* Queue: *loss_grad = scale * share, draws of this part; the first part
     * also keeps the running statistics. */
    bool (*begin)(void *dev, void *device_step, void *loss_grad, bool first);
    /* Queue: look at *loss; after the last part (squares not NULL: of what the
     * gradients are then) decide, update or put back. */
    bool (*end)(void *dev, void *device_step, const void *loss,
                const SqnormPlaces *squares);
    /* Queue: the result on its way to the host. */
    bool (*report)(void *dev, void *device_step);
    /* The oldest result that was not collected. *got is false when there is
     * none, or it is not there yet and `wait` is false. A failure loses it. */
    bool (*collect)(void *dev, void *device_step, bool wait, StepResult *out,
                    bool *got);
} DeviceStep;
#endif
