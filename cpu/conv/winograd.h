/* winograd.h -- convolution through windows of 3 x 3 by Winograd's minimal
 * filtering: F(4x4, 3x3) for the result and the gradient in x, F(3x3, 4x4) for
 * the gradient in w (Lavin and Gray 2016). 36 products make 16 results where
 * the direct sum needs 144, for transforms before and after; a window of
 * k x 3 x 3 is a direct sum along d of such.
 *
 * The error is larger than that of the direct sum, some 1e-5 of the largest
 * result against some 1e-6 (docs/numerics.md).
 *
 * fprop_dgrad.c and wgrad.c hand over what fits; nobody else calls. The same
 * promises hold as there: bits depend on shapes, not on threads, and those of
 * a result or gradient in x not on the batch. */
#ifndef SEG_CPU_CONV_WINOGRAD_H
#define SEG_CPU_CONV_WINOGRAD_H
#include "cpu/conv/fprop_dgrad.h"
#include "cpu/conv/wgrad.h"

enum { WINOGRAD_DEEP = 8 }; /* taps along d, at most */

/* Does Winograd take a convolution with this window? `in` and `out` are the
 * extents of its image and of its result, or the reverse; they decide for all
 * three passes, the batch never. */
bool winograd_fits(const Window *g, Dims in, Dims out);

/* Does any part of this call, forward or backward, run by Winograd? Extents
 * and attributes are set, addresses need not be. */
bool winograd_runs(const Call *c);

/* As fprop_dgrad_bytes and fprop_dgrad_run: forward, gradient in x, transposed.
 */
size_t winograd_bytes(const FpropDgrad *c);
void winograd_run(const FpropDgrad *c, Pool *pool, void *scratch);

/* As wgrad_bytes and wgrad_run. */
size_t winograd_grad_bytes(const Wgrad *g);
void winograd_grad_run(const Wgrad *g, Pool *pool, void *scratch);
#endif
