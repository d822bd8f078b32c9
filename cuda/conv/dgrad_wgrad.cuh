/* dgrad_wgrad.cuh -- dx and dw of a narrow layer from one reading of its
 * gradient; see dgrad_wgrad.cu. */
#ifndef SEG_CUDA_CONV_DGRAD_WGRAD_H
#define SEG_CUDA_CONV_DGRAD_WGRAD_H
#include "cuda/conv/conv.cuh"

/* Could both be made so? Follows from extents, attributes and precision; the
 * image is in two tensors from channel `from` on, 0: it is in one. */
bool twin_takes(const Corr *r, int from);
/* Parts (parts, 2, channels) of sums over dx that it leaves. */
int twin_parts(const Corr *r);
/* Bytes that it needs for the parts of dw. */
size_t twin_bytes(const Corr *r);
/* Queue what is wanted of dx, and dw. dy comes by a slant, which it does not
 * store; parts: twin_bytes. False with the reason. */
bool twin_back(const Corr *r, const Source &image, const Operand &dy,
               const void *w, const Result &dx, float *dw, bool fresh,
               float *parts);
#endif
