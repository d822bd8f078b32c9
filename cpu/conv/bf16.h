/* bf16.h -- convolution, transposed convolution and linear of a plan with
 * precision bf16.
 *
 * The planner makes bf16 copies of operands and dy (bf16_copies selects them,
 * cpu_convert makes them). Results, bias and gradients are f32. There are three
 * kinds of kernels:
 *
 *   pairs      where the processor has dot products of pairs (Simd.pairs). Two
 *              neighbouring channels are read as one number of 32 bits, so
 *              fprop_dgrad.c works unchanged on an image with half the
 *              channels; wgrad.c pairs two neighbouring pixels instead. An odd
 *              number of channels is padded by one of zeros
 *   Winograd   where that is faster: the transforms read bf16, and everything
 *              after them is f32
 *   f32        elsewhere: operands are converted back to f32 in scratch, for
 *              the kernels of f32
 *
 * All accumulate in f32 and read the same bf16 values. The first and the last
 * add the same products, in another order and with other roundings.
 *
 * A depthwise convolution (depthwise.h) adds no two products of neighbouring
 * channels, so pairs gain nothing: it stays f32, without copies. */
#ifndef SEG_CPU_CONV_BF16_H
#define SEG_CPU_CONV_BF16_H
#include "cpu/conv/fprop_dgrad.h"
#include "cpu/conv/wgrad.h"

/* Does this call, a conv, upconv or linear, multiply in bf16? */
bool is_bf16(const Call *c);

/* Storage.copies: of x and w forward, of the operands of the wanted gradients
 * backward. */
unsigned bf16_copies(const Call *c);
KernelFn cpu_convert;

/* Is Winograd faster than the direct sum for bf16 operands, in wgrad if
 * `weights`, else in fprop and dgrad? Extents as for winograd_fits. */
bool bf16_by_winograd(const Window *g, Dims in, Dims out, bool weights);

/* fprop_dgrad_bytes and fprop_dgrad_run for an FpropDgrad with `half`. */
size_t bf16_fprop_dgrad_bytes(const FpropDgrad *c);
void bf16_fprop_dgrad_run(const FpropDgrad *c, Pool *pool, void *scratch);

/* strip_copy for an image in bf16 (`x`). Each pixel is paired with the pixel
 * that the next result reads, so r->cols / 2 results along w, 2 steps apart,
 * have the products of r->cols. */
Strip strip_pairs(const float *x, Dims dim, const Axis a[3], const Region *r,
                  float *buffer);

/* wgrad_bytes and wgrad_run for a Wgrad with `half`, where there are no dot
 * products of pairs. */
size_t bf16_wgrad_bytes(const Wgrad *g);
void bf16_wgrad_run(const Wgrad *g, Pool *pool, void *scratch);
#endif
