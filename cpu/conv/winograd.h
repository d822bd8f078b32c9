/* winograd.h -- convolution with windows of 3 x 3 by Winograd's minimal
 * filtering: F(4x4, 3x3) for fprop and dgrad, F(3x3, 4x4) for wgrad (Lavin and
 * Gray 2016). 36 products make 16 results where the direct sum needs 144, at
 * the price of transforms before and after. A window of k x 3 x 3 is a direct
 * sum along d of such convolutions.
 *
 * The error is larger than that of the direct sum: some 1e-5 of the largest
 * result instead of some 1e-6 (docs/numerics.md).
 *
 * Only fprop_dgrad.c and wgrad.c call these functions. As there, bits depend on
 * shapes and not on threads, and those of fprop and dgrad not on the batch. */
#ifndef SEG_CPU_CONV_WINOGRAD_H
#define SEG_CPU_CONV_WINOGRAD_H
#include "cpu/conv/fprop_dgrad.h"
#include "cpu/conv/wgrad.h"

enum { WINOGRAD_DEEP = 8 }; /* most taps along d */

/* Does Winograd take a convolution with this window? `in` and `out` are the
 * extents of its image and of its result, or the reverse. The answer holds for
 * all three passes and does not depend on the batch. */
bool winograd_fits(const Window *g, Dims in, Dims out);

/* Does any part of this call, forward or backward, run by Winograd? Extents and
 * attributes are set, addresses need not be. */
bool winograd_runs(const Call *c);

/* fprop_dgrad_bytes and fprop_dgrad_run: fprop, dgrad, transposed. */
size_t winograd_bytes(const FpropDgrad *c);
void winograd_run(const FpropDgrad *c, Pool *pool, void *scratch);

/* wgrad_bytes and wgrad_run. */
size_t winograd_grad_bytes(const Wgrad *g);
void winograd_grad_run(const Wgrad *g, Pool *pool, void *scratch);
#endif
