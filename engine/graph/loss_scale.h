/* loss_scale.h -- the factor on the loss that keeps f16 gradients
 * representable.
 *
 * In f16 small gradients vanish below 2^-24, so backward starts from a large
 * power of two, which the optimiser divides out again. It adapts: a step with
 * overflowed gradients is skipped and halves it, GROWTH good steps in a row
 * double it. As PyTorch's GradScaler, but kept in [1, 2^24]: below 1 it would
 * hide a network that diverges, above 2^24 it gains nothing and ends at
 * infinity. All values are powers of two, so scaling is exact.
 *
 * A separate state machine, since it runs in two places: in the session, and in
 * a kernel for backends with device steps. */
#ifndef SEG_ENGINE_GRAPH_LOSS_SCALE_H
#define SEG_ENGINE_GRAPH_LOSS_SCALE_H
#include "engine/base/host_device.h"
#include <stdbool.h>
#include <stdint.h>

enum { LOSS_SCALE_FIRST = 1 << 16, LOSS_SCALE_MOST = 1 << 24 };
enum { LOSS_SCALE_GROWTH = 2000 };

typedef struct LossScale {
    double by;    /* 1 if the plan is not scaled                */
    int64_t good; /* good steps since the last change, < GROWTH */
} LossScale;

/* Updates the scale after a step; `finite`: all its gradients were finite. */
HOST_DEVICE void loss_scale_next(LossScale *s, bool finite)
{
    s->good = finite ? s->good + 1 : 0;
    if (!finite && s->by > 1) s->by /= 2;
    if (s->good < LOSS_SCALE_GROWTH) return;
    s->good = 0;
    if (s->by < LOSS_SCALE_MOST) s->by *= 2;
}
#endif
