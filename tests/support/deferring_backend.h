/* deferring_backend.h -- a CPU backend for tests that supports deferred norms,
 * in plans that are inspected and never run. */
#ifndef SEG_TESTS_SUPPORT_DEFERRING_BACKEND_H
#define SEG_TESTS_SUPPORT_DEFERRING_BACKEND_H
#include "tests/support/plan_rig.h"

/* Takes convolutions, norms, relu, maxpool, sigmoid and add in 16 bits. The
 * norm after a convolution may be deferred; convolutions and maxpool apply it
 * as they load; convolutions also make the gradient sums of their operand. */
Backend deferring_backend(void);

/* deferred_image: an image of 8 channels in a new network. deferred_layer:
 * conv, norm, relu. Both return the last node. */
int deferred_image(Net *n);
int deferred_layer(Net *n, int x);

/* Plans the network of `y` under a loss, in bf16; the spec may be changed
 * before it is planned again. */
void deferred_plan(PlanRig *r, Net *n, const Backend *be, int y, bool train,
                   bool no_fusion);
/* deferred_long: a plan of six layers and a conv. deferred_less: plans them
 * again with nine tenths of the bytes, so that some values are recomputed. */
void deferred_long(PlanRig *r, Net *n, const Backend *be);
void deferred_less(PlanRig *r);
#endif
