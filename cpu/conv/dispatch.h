/* dispatch.h -- forward and backward runs of conv, upconv and linear.
 *
 * A transposed convolution is the gradient of a convolution in x, so fprop and
 * dgrad change places. With `transposed` false the Call is a conv or linear,
 * with true an upconv:
 *
 *                 conv                          upconv
 *     y           fprop_dgrad                   fprop_dgrad, transposed
 *     dx          fprop_dgrad, transposed       fprop_dgrad
 *     dw          wgrad(image x, grid dy)       wgrad(image dy, grid x)
 *     db          bias_grad                     bias_grad
 *
 * Operand 0 is x, 1 the weights, 2 the bias or absent. */
#ifndef SEG_CPU_CONV_DISPATCH_H
#define SEG_CPU_CONV_DISPATCH_H
#include "engine/graph/op.h"

/* Scratch of both runs; nothing is saved between them. */
Space conv_call_space(const Call *c, bool transposed);
/* Computes y; it is always stored, never added to. */
void conv_call_fwd(const Call *c, bool transposed);
/* Computes each of dx, dw, db that is non-NULL in c->dx; c->fresh says whether
 * it is stored or added. */
void conv_call_bwd(const Call *c, bool transposed);
#endif
