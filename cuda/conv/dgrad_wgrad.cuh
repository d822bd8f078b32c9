/* dgrad_wgrad.cuh -- dx and dw of a narrow layer from one reading of its
 * gradient; see dgrad_wgrad.cu. */
#ifndef SEG_CUDA_CONV_DGRAD_WGRAD_H
#define SEG_CUDA_CONV_DGRAD_WGRAD_H
#include "cuda/conv/conv.cuh"

/* Could both be made so? Follows from extents, attributes and precision; the
 * image is in two tensors from channel `from` on, 0: it is in one. */
bool dgrad_wgrad_takes(const ConvProblem *r, int border);
/* Parts (parts, 2, channels) of sums over dx that it leaves. */
int dgrad_wgrad_sum_parts(const ConvProblem *r);
/* Bytes that it needs for the parts of dw. */
size_t dgrad_wgrad_bytes(const ConvProblem *r);
/* Queue what is wanted of dx, and dw. dy comes by a slant, which it does not
 * store; parts: dgrad_wgrad_bytes. False with the reason. */
bool dgrad_wgrad_run(const ConvProblem *r, const Source &input,
                     const Operand &dy, const void *w, const Result &dx,
                     float *dw, bool fresh, float *parts);
#endif
