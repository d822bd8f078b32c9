/* depthwise.h -- convolution where each channel is a group of its own
 * (groups = channels of operand = channels of result, weights (C, taps)):
 *
 *     y[n, o, c] = bias[c] + sum over t of x[n, p(o, t), c] * w[c, t]
 *
 * There is no sum over channels, so a panel of weights (fprop_dgrad.c) would
 * use one lane of each vector and read the whole image once a channel. Here
 * channels lie along the vectors instead, and nothing is copied: borders are
 * columns with fewer taps.
 *
 * fprop_dgrad.c and wgrad.c hand over what fits; nobody else calls. The same
 * promises hold as there: bits depend on shapes, not on threads. */
#ifndef SEG_CPU_CONV_DEPTHWISE_H
#define SEG_CPU_CONV_DEPTHWISE_H
#include "cpu/conv/fprop_dgrad.h"
#include "cpu/conv/wgrad.h"

/* One channel alone is the dense case, which is at home in fprop_dgrad.c. */
static inline bool is_depthwise(const Window *g, Dims in, Dims out)
{
    return g->groups > 1 && in.c == g->groups && out.c == g->groups;
}

/* As fprop_dgrad_bytes and fprop_dgrad_run: forward, gradient in x, transposed.
 */
size_t depthwise_bytes(const FpropDgrad *c);
void depthwise_run(const FpropDgrad *c, Pool *pool, void *scratch);

/* As wgrad_bytes and wgrad_run. */
size_t depthwise_grad_bytes(const Wgrad *g);
void depthwise_grad_run(const Wgrad *g, Pool *pool, void *scratch);
#endif
