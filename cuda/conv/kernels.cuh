/* kernels.cuh -- the convolution kernels of the GPU and the choice among them.
 *
 * The passes of a call are y (FPROP), the gradients of its operand (DGRAD), of
 * its filter (WGRAD) and of its bias (BIAS_GRAD). kernels.cu has a table with
 * one row for each kernel: the passes that one run computes, and the test of
 * the problem. The first row with a pass that no earlier row computes and that
 * takes the problem gets its passes. The planner and dispatch.cu read all facts
 * about a kernel and a problem (workspace, partial sums, 16-bit copies of
 * operands) from its ConvChoice.
 *
 * FPROP is y and DGRAD is dx for all three operators; for upconv they run the
 * dgrad and fprop of its ConvProblem (conv.cuh, ConvChoice.dgrad). */
#ifndef SEG_CUDA_CONV_KERNELS_H
#define SEG_CUDA_CONV_KERNELS_H
#include "cuda/conv/conv.cuh"

enum { FPROP = 1, DGRAD = 2, WGRAD = 4, BIAS_GRAD = 8 };

struct ConvKernel;

/* One kernel for one call: its passes, memory and fusions. */
struct ConvChoice {
    const ConvKernel *kernel;
    unsigned passes; // the kernel's passes that the call needs
    bool dgrad; // runs ConvProblem's dgrad, not fprop: dx of conv, y of upconv
    size_t workspace; // bytes of workspace,
    bool after_sums;  // placed after the partial sums, not in the same memory
    int sum_parts; // partial sums (parts, 2, channels) that it can write over y
                   // or dx; 0: none
    bool sums_dx;  // can write sums over dx (Call.grad_sums)
    int sqnorm_parts;     // partial sums of squares of dw that it can write
    unsigned half;        // 16-bit copies that it reads (Backend.half)
    bool loads_norm_bwd;  // applies norm backward to dy on load
    bool stores_norm_bwd; // and stores the result for later kernels
};

/* The choices for the passes of a call, in the order of their launches. */
struct ConvPlan {
    ConvChoice choice[3];
    int count;
};

/* The operands of a run; members of passes that do not run are empty. */
struct ConvRun {
    const ConvProblem *r;
    const ConvChoice *choice;
    Source x, dy;
    const Tensor *dy_tensor; // dy itself, never a 16-bit copy: for bias_grad
    const void *w;
    const float *bias;
    Result to; // y or dx
    float *dw, *db;
    bool fresh_dw;
    double *sqnorm; // partial sums of squares of dw, or NULL
    void *workspace;
};

struct ConvKernel {
    const char *name;
    unsigned passes;
    /* Returns whether the kernel takes the problem. Sets members of `out` that
     * differ from their default. Depends on extents, attributes, precision and
     * types. */
    bool (*takes)(const ConvProblem *r, ConvChoice *out);
    /* Queues the kernel. False with the reason. */
    bool (*run)(const ConvRun *o);
};

/* upconv is conv with the two sides of its ConvProblem exchanged. */
static inline bool is_upconv(const Call *c)
{
    return c->attr->op == OP_upconv;
}

/* Does the call compute the gradient of its operand, in one tensor or two? */
static inline bool wants_dx(const Call *c)
{
    return c->dx[0] || c->dx[X2];
}

/* The problem of a call of conv, upconv or linear. */
ConvProblem conv_problem_of(const Call *c);
/* Does the kernel load operand 0 in vectors of 16 bytes, and so can apply a
 * deferred norm on load? */
bool conv_loads_deferred(const ConvProblem *r);
/* May operand 0 be stored before its norm (Call.deferred_norm)? The kernel
 * applies the norm on load, or dispatch.cu applies it to a copy. small_cin can
 * do neither. */
bool conv_applies_norm(const ConvProblem *r);
/* May operand 0 and its gradient be in two tensors, x[0] and x[X2]? */
bool conv_fuses_concat(const ConvProblem *r);
/* The kernels of a forward (y) or backward (gradients) call. */
ConvPlan conv_plan(const ConvProblem *r, bool bwd);
#endif
