/* dgrad_wgrad.cuh -- dx and dw of a narrow 2-D 3x3 convolution with norm
 * backward on load, in one kernel, on GPUs of compute capability 8.0 and more
 * (94 KB of shared memory); see dgrad_wgrad.cu. */
#ifndef SEG_CUDA_CONV_DGRAD_WGRAD_H
#define SEG_CUDA_CONV_DGRAD_WGRAD_H
#include "cuda/conv/conv.cuh"

/* Returns whether the kernel takes this problem: its window, channels and
 * precision. border: the first channel of the input's second tensor; 0: one
 * tensor. */
bool dgrad_wgrad_takes(const ConvProblem *r, int border);
/* Partial sums (parts, 2, channels) over dx that it writes. */
int dgrad_wgrad_sum_parts(const ConvProblem *r);
/* Bytes of workspace: the parts of dw. */
size_t dgrad_wgrad_bytes(const ConvProblem *r);
/* Queues dx, for the tensors that need it, and dw. dy has norm backward on
 * load; the result of the norm backward is not stored. parts:
 * dgrad_wgrad_bytes. False with the reason. */
bool dgrad_wgrad_run(const ConvProblem *r, const Source &input,
                     const Operand &dy, const void *w, const Result &dx,
                     float *dw, bool fresh, float *parts);
#endif
