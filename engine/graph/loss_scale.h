/* loss_scale.h -- what the loss is multiplied by before gradients are taken.
 *
 * In f16 small gradients vanish below 2^-24, so backward starts from a large
 * power of two, which the optimiser divides by again. It adapts: a step whose
 * gradients overflowed is left out and halves it, GROWTH good steps in a row
 * double it. As PyTorch's GradScaler, but kept inside [1, 2^24]: below 1 it
 * would hide a network that diverges, above 2^24 it gains nothing and ends at
 * infinity. All values are powers of two, so scaling rounds nothing.
 *
 * A state machine of its own, since two places run it: the session for a
 * backend that it decides for, and a kernel for one that decides by itself. */
#ifndef SEG_ENGINE_GRAPH_LOSS_SCALE_H
#define SEG_ENGINE_GRAPH_LOSS_SCALE_H
#include "engine/base/host_device.h"
#include <stdbool.h>
#include <stdint.h>

enum { LOSS_SCALE_FIRST = 1 << 16, LOSS_SCALE_MOST = 1 << 24 };
enum { LOSS_SCALE_GROWTH = 2000 };

typedef struct LossScale {
    double by;    /* 1 when the plan is not scaled */
    int64_t good; /* steps in a row since it last changed, < GROWTH */
} LossScale;

/* After a step: were its gradients finite? */
EVERYWHERE void loss_scale_next(LossScale *s, bool finite)
{
    s->good = finite ? s->good + 1 : 0;
    if (!finite && s->by > 1) s->by /= 2;
    if (s->good < LOSS_SCALE_GROWTH) return;
    s->good = 0;
    if (s->by < LOSS_SCALE_MOST) s->by *= 2;
}
#endif
