/* kernels.cuh -- the convolution kernels of the GPU and the choice among them.
 *
 * A call computes y (PASS_Y) or gradients: of its operand (PASS_DX), its filter
 * (PASS_DW) and its bias (PASS_DB). kernels.cu has a table with a row for each
 * kernel (one for the kernels of all precisions of an implicit GEMM): the
 * passes that one run computes, and the test of the problem. The first row with
 * a pass that no earlier row computes and that takes the problem gets its
 * passes. The planner and dispatch.cu read all facts about a kernel and a
 * problem (workspace, partial sums, 16-bit copies of operands) from its
 * ConvChoice.
 *
 * y of conv is the fprop of its ConvProblem (conv.cuh) and dx the dgrad; upconv
 * exchanges them (ConvChoice.runs_dgrad). */
#ifndef SEG_CUDA_CONV_KERNELS_H
#define SEG_CUDA_CONV_KERNELS_H
#include "cuda/conv/conv.cuh"

enum { PASS_Y = 1, PASS_DX = 2, PASS_DW = 4, PASS_DB = 8 };

struct ConvKernel;

/* One kernel for one call: its passes, memory and fusions. */
struct ConvChoice {
    const ConvKernel *kernel;
    unsigned passes;  // the kernel's passes that the call needs
    bool runs_dgrad;  // y or dx: by the problem's dgrad, else by its fprop
    size_t workspace; // bytes
    bool after_sums;  // partial sums and workspace are used at the same time:
                      // the workspace follows them, else it has the same memory
    int sum_parts; // partial sums (parts, 2, channels) over y or dx that it can
                   // write at the start of the scratch memory; 0: none
    bool sums_dx;  // can compute Call.sums.dx; conv_head keeps their partial
                   // sums in its own workspace, so that sum_parts is 0
    bool sums_fresh;  // sums_dx: of gradients that it stores, not of those to
                      // which it adds
    int sqnorm_parts; // partial sums of squares of dw that it can write
    unsigned half;    // 16-bit copies that it reads (Storage.copies)
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
/* Is operand 0 loaded 8 channels (16 bytes) at a time? Only such loads can
 * apply a deferred norm. */
bool conv_loads_vectors(const ConvProblem *r);
/* Of the plan of y: may operand 0 be the tensor before its norm (Call.x_norm)?
 * All kernels but small_cin and im2row_sm90 apply the norm on load, or read a
 * copy to which dispatch.cu has applied it. */
bool conv_takes_deferred(const ConvPlan &fwd);
/* May operand 0 and its gradient be in two tensors, x[0] and x[X2]? */
bool conv_fuses_concat(const ConvProblem *r, const ConvPlan &fwd);
/* The number of the tile (igemm_tile_choice.h) with which a choice for y or dx
 * runs; 0: its kernel has no choice of tiles. */
int conv_tile(const ConvProblem *r, const ConvChoice &choice);
/* The kernels of a forward (y) or backward (gradients) call. */
ConvPlan conv_plan(const ConvProblem *r, bool bwd);
#endif
