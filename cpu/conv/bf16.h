/* bf16.h -- convolution, transposed convolution and linear of a plan whose
 * precision is bf16.
 *
 * The planner has copies of operands and dy made (cpu_half says of which,
 * cpu_convert makes them); results, bias and gradients are f32. Three ways to
 * the products:
 *
 *   pairs   where the processor has dot products of pairs (Simd.pairs). Two
 *           neighbouring channels are read as one number of 32 bits, so all
 *           of fprop_dgrad.c works as it stands on an image with half the
 *           channels; wgrad.c puts two neighbouring pixels together instead.
 *           An odd number of channels gets one more, of zeros
 *   tiles   of Winograd, where that is sooner done: transforms read bf16,
 *           and are f32 from there on
 *   f32     elsewhere: operands are made floats again in scratch, and
 *           multiplied by the kernels of f32
 *
 * All add up in f32 what comes of the same numbers, the first and the last the
 * same products in another order and rounding.
 *
 * Where every channel is alone (depthwise.h) there is nothing to gain, as no
 * two products of neighbours are added: that stays f32, without copies. */
#ifndef SEG_CPU_CONV_BF16_H
#define SEG_CPU_CONV_BF16_H
#include "cpu/conv/fprop_dgrad.h"
#include "cpu/conv/wgrad.h"

/* Does this call of one of the three rows multiply in bf16? */
bool is_bf16(const Call *c);

/* Backend.half and .convert. */
unsigned cpu_half(const Call *c);
KernelFn cpu_convert;

/* Is the gradient of weights, or any other sum, of numbers in bf16 sooner made
 * by Winograd than as it stands? Extents as of winograd_fits. */
bool bf16_by_winograd(const Window *g, Dims in, Dims out, bool weights);

/* As fprop_dgrad_bytes and fprop_dgrad_run, of one with `half`. */
size_t bf16_fprop_dgrad_bytes(const FpropDgrad *c);
void bf16_fprop_dgrad_run(const FpropDgrad *c, Pool *pool, void *scratch);

/* As strip_copy, of an image in bf16 (`x`): each pixel is paired with the one
 * that the next result reads, so r->cols / 2 results along w, 2 steps apart,
 * have the products of r->cols. */
Strip strip_pairs(const float *x, Dims dim, const Axis a[3], const Region *r,
                  float *buffer);

/* As wgrad_bytes and wgrad_run, of one with `half` where there are no dot
 * products of pairs. */
size_t bf16_wgrad_bytes(const Wgrad *g);
void bf16_wgrad_run(const Wgrad *g, Pool *pool, void *scratch);
#endif
