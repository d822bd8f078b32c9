/* deferring_backend.h -- the cpu backend as one that leaves norms to those who
 * read, in plans that are looked at and never run. */
#ifndef SEG_TESTS_SUPPORT_DEFERRING_BACKEND_H
#define SEG_TESTS_SUPPORT_DEFERRING_BACKEND_H
#include "tests/support/plan_rig.h"

/* Takes convolutions, norms, relu, maxpool, sigmoid and add in 16 bits. Its
 * convolutions leave norms to others, and they and maxpool see through lenses;
 * convolutions close the gradients of their data. */
Backend deferring_backend(void);

/* A new network's image of 8 channels; conv, norm, relu: the last one's node.
 */
int deferred_image(Net *n);
int deferred_layer(Net *n, int x);

/* The network of `y` under a loss, in bf16; the spec may be changed before it
 * is planned again. */
void deferred_plan(PlanRig *r, Net *n, const Backend *be, int y, bool train,
                   bool plain);
/* Six layers and a conv behind them, planned; then anew in nine tenths of the
 * bytes, where some of them are dropped. */
void deferred_long(PlanRig *r, Net *n, const Backend *be);
void deferred_less(PlanRig *r);
#endif
