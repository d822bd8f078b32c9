/* kernels.cuh -- the convolution kernels of the GPU and the choice among them.
 *
 * The passes of a convolution are y (FPROP), the gradients of its operand
 * (DGRAD), of its filter (WGRAD) and of its bias (BIAS_GRAD). kernels.cu has a
 * row a kernel: the passes that one run of it computes, and the test of the
 * problem. The first row with a pass that is still wanted and that takes the
 * problem gets its passes. All facts about a kernel and a problem that the
 * planner or dispatch.cu need (workspace, partial sums, operand copies) are
 * members of its ConvChoice; nothing else asks. */
#ifndef SEG_CUDA_CONV_KERNELS_H
#define SEG_CUDA_CONV_KERNELS_H
#include "cuda/conv/conv.cuh"

enum { FPROP = 1, DGRAD = 2, WGRAD = 4, BIAS_GRAD = 8 };

struct ConvKernel;

/* What one kernel does for one call. */
struct ConvChoice {
    const ConvKernel *kernel;
    unsigned passes;      // of the kernel's, those that the call wants
    bool dgrad;           // of ConvProblem: the direction of y, or of dx
    size_t workspace;     // bytes that the kernel needs,
    bool after_sums;      // after the partial sums instead of in their memory
    int sum_parts;        // partial sums (parts, 2, channels) over y or dx that
                          // it can write; 0: none
    bool sums_dx;         // it can write sums over dx (Call.grad_sums)
    int sqnorm_parts;     // partial sums of squares of dw that it can write
    unsigned half;        // the copies in 16 bits that it reads (Backend.half)
    bool loads_norm_bwd;  // it takes dy back through a deferred norm on load,
    bool stores_norm_bwd; // and stores the result for the kernels after it
};

/* The choices for the passes of a call, in the order of their launches. */
struct ConvPlan {
    ConvChoice choice[3];
    int count;
};

/* The operands of a run; members of passes that are not wanted are empty. */
struct ConvRun {
    const ConvProblem *r;
    const ConvChoice *choice;
    Source x, dy;
    const Tensor *dy_tensor; // dy itself, never a copy: bias_grad reads it
    const void *w;
    const float *bias;
    Result to; // y, or dx
    float *dw, *db;
    bool fresh_dw;
    double *sqnorm; // where the partial sums of squares of dw go, or NULL
    void *workspace;
};

struct ConvKernel {
    const char *name;
    unsigned passes;
    /* Does it take this problem? Fills in the members of `out` that are not
     * their default. Follows from extents, attributes, precision and types. */
    bool (*takes)(const ConvProblem *r, ConvChoice *out);
    /* Queue it. False with the reason. */
    bool (*run)(const ConvRun *o);
};

/* upconv is conv with its two sides exchanged. */
static inline bool is_upconv(const Call *c)
{
    return c->attr->op == OP_upconv;
}

/* Has the call a gradient of its operand, in one tensor or two? */
static inline bool wants_dx(const Call *c)
{
    return c->dx[0] || c->dx[X2];
}

/* The problem of a call of conv, upconv or linear. Its input is the side with
 * the positions of a convolution's operand: conv's x, upconv's y. */
ConvProblem conv_problem_of(const Call *c);
/* Are the channels of operand 0 read 16 bytes at a time, and so through a
 * deferred norm? */
bool conv_loads_deferred(const ConvProblem *r);
/* Can operand 0 be stored before its norm (Call.deferred_norm)? It is applied
 * on load, or to a copy before; small_cin can do neither. */
bool conv_applies_norm(const ConvProblem *r);
/* Can operand 0 and its gradient be in two tensors, x[0] and x[X2]? */
bool conv_fuses_concat(const ConvProblem *r);
/* The kernels of a call: of y, or (bwd) of its gradients. */
ConvPlan conv_plan(const ConvProblem *r, bool bwd);
#endif
