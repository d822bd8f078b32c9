/* depthwise.h -- depthwise convolution: each channel is a group of its own
 * (groups = channels of operand = channels of result, weights (C, taps)):
 *
 *     y[n, o, c] = bias[c] + sum over t of x[n, p(o, t), c] * w[c, t]
 *
 * There is no sum over channels, so a panel of weights (fprop_dgrad.c) would
 * use one lane of each vector and read the whole image once a channel. Here the
 * vectors lie along the channels and nothing is copied: columns at a border
 * have fewer taps.
 *
 * Only fprop_dgrad.c and wgrad.c call these functions. As there, bits depend on
 * shapes and not on threads. */
#ifndef SEG_CPU_CONV_DEPTHWISE_H
#define SEG_CPU_CONV_DEPTHWISE_H
#include "cpu/conv/fprop_dgrad.h"
#include "cpu/conv/wgrad.h"

/* A single channel is a dense convolution, for fprop_dgrad.c. */
static inline bool is_depthwise(const Window *g, Dims in, Dims out)
{
    return g->groups > 1 && in.c == g->groups && out.c == g->groups;
}

/* fprop_dgrad_bytes and fprop_dgrad_run: fprop, dgrad, transposed. */
size_t depthwise_bytes(const FpropDgrad *c);
void depthwise_run(const FpropDgrad *c, Pool *pool, void *scratch);

/* wgrad_bytes and wgrad_run. */
size_t depthwise_grad_bytes(const Wgrad *g);
void depthwise_grad_run(const Wgrad *g, Pool *pool, void *scratch);
#endif
