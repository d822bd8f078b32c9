/* dispatch.h -- what convolution, transposed convolution and linear do with
 * their operands x, weights, bias, and with their gradients.
 *
 * A convolution reads its image through windows; a transposed one is the
 * gradient of a convolution, so forward and backward change places. With
 * `transposed` false the Call is a conv or linear, with true an upconv:
 *
 *                 conv                         upconv
 *     y           correlate                    correlate, transposed
 *     dx          correlate, transposed        correlate
 *     dw          wgrad(image x, grid dy)      wgrad(image dy, grid x)
 *     db          bias_grad                    bias_grad
 *
 * Operand 0 is x, 1 the weights, 2 the bias or absent. */
#ifndef SEG_CPU_CONV_DISPATCH_H
#define SEG_CPU_CONV_DISPATCH_H
#include "engine/graph/op.h"

/* Scratch of both runs; nothing is saved between them. */
Space conv_call_space(const Call *c, bool transposed);
/* y, which is always stored, never added to. */
void conv_call_fwd(const Call *c, bool transposed);
/* Those of dx, dw, db that c->dx asks for; stored or added as c->fresh says. */
void conv_call_bwd(const Call *c, bool transposed);
#endif
