/* grad_sums.cuh -- gradient sums: sums over all rows of a gradient by channel,
 * made by the call that writes the gradient last: Call.sums.dx.
 *
 * The backward pass of a deferred norm needs sums of its gradient first, and
 * the gradient of a bias is such a sum; a call of its own would read the
 * gradient again. With x the operand of the deferred norm and dz the gradient
 * of the activation's result (norm_bwd_on_load.cuh):
 *
 *     total[0][c] = sum u,   total[1][c] = sum u x_hat
 *
 * u = dz taken back through the activation, x_hat = (x - mean) rstd. Without a
 * deferred norm total[0] is the sum of the gradient and total[1] is not set.
 * The mean is the sum of two floats, hi + lo (ChannelStats). The kernels add u
 * and u (x - hi) in float; grad_sums_finish subtracts lo times the sum of u, in
 * double. */
#ifndef SEG_CUDA_NORM_GRAD_SUMS_H
#define SEG_CUDA_NORM_GRAD_SUMS_H
#include "cuda/norm/norm_bwd_on_load.cuh"

/* The parameters for the sums of one gradient, and for the last block: the
 * results that it computes from the totals. */
struct GradSums {
    bool runs;
    const void *x; // of the gradient's extents and type; NULL: no deferred norm
    const ChannelStats *stat; // (C) of its norm
    NormOnLoad norm_on_load;
    int channels;  // C
    double *total; // (2, C)
    // If this call also writes gradients of the call that reads dx as its dy
    // (Call.sums.reader): the gradients of its parameters and, for a deferred
    // norm, the coefficients of norm backward on load.
    NormGrads put;
    float4 *line; // (C), or NULL
    const float *gamma;
    double rows;
    const Step *step;
};

/* The parameter gradients of a call that are sums of its dy: dbeta and dgamma
 * of a deferred norm, otherwise the gradient of the bias. */
static inline NormGrads norm_grads_of_dy(const Call *c)
{
    const int at = NORM_FRESH;
    if (!c->norm.deferred) return {{values(c->dx[2])}, {is_fresh(c, 2)}};
    return {{values(c->norm.dx[2]), values(c->norm.dx[1])},
            {is_fresh(c, at + 2), is_fresh(c, at + 1)}};
}

/* The coefficients of norm backward on load, after the totals. */
static inline float4 *grad_sums_lines(const Tensor *total, int channels)
{
    return (float4 *)((double *)total->data + GRAD_SUMS * channels + 2);
}

/* The gradient sums of dx[k]. */
static inline GradSums grad_sums_of(const Call *c, int k)
{
    GradSums by = {};
    const Call *reader = c->sums.reader[k];
    by.runs = c->sums.dx[k] != NULL;

    // while the plan asks for space there are no addresses
    if (!by.runs || !c->dev) return by;
    by.channels = c->x[k]->dim.c;
    by.total = (double *)c->sums.dx[k]->data;
    if (reader) by.put = norm_grads_of_dy(reader);

    if (reader && reader->norm.deferred) {
        by.line = grad_sums_lines(c->sums.dx[k], by.channels);
        by.gamma = values(reader->norm.x[1]);
        by.rows = (double)rows(c->x[k]->dim);
        by.step = gpu_step(c->dev);
    }

    if (!c->x_norm[k]) return by;
    by.x = c->x[k]->data;
    by.stat = (const ChannelStats *)c->x_norm[k]->saved;
    by.norm_on_load = norm_on_load_of(c, k);
    return by;
}

/* The values of channel c for grad_sums_add: scale and shift of the deferred
 * norm, the mean, and the activation's slope at and below zero. */
static __device__ __forceinline__ float4 grad_sums_channel(const GradSums &by,
                                                           int c)
{
    if (!by.x) return make_float4(0, 0, 0, 1);
    const float2 table = by.norm_on_load.table[c];
    return make_float4(table.x, table.y, by.stat[c].hi,
                       by.norm_on_load.act.leak);
}

/* Adds one element: v of the gradient, x of the norm's operand. */
static __device__ __forceinline__ void grad_sums_add(float4 by, float x,
                                                     float v, float *sum,
                                                     float *sum_x)
{
    const float u = fmaf(x, by.x, by.y) <= 0 ? v * by.w : v;
    *sum += u;
    *sum_x += u * (x - by.z);
}

/* Stores the results for channel c from its complete sums. */
static __device__ __forceinline__ void grad_sums_finish(const GradSums &by,
                                                        int c, double sum,
                                                        double sum_x)
{
    by.total[c] = sum;
    store_norm_grad(by.put, 0, c, sum);
    if (!by.x) return;
    const ChannelStats s = by.stat[c];

    // the partial sums ignore the low part of the mean
    sum_x = (sum_x - (double)s.lo * sum) * (double)s.rstd;
    by.total[by.channels + c] = sum_x;
    store_norm_grad(by.put, 1, c, sum_x);
    if (!by.line) return;
    const double gamma = by.gamma ? (double)by.gamma[c] : 1;
    double x_coef = 0, offset = 0;
    if (!by.step->shard.idle)
        norm_bwd_terms(gamma, s, by.rows, sum, sum_x, &x_coef, &offset);
    by.line[c] = norm_bwd_line(by.norm_on_load.table[c], s, x_coef, offset);
}

/* In grad_sums.cu: queues the parameter gradients (+)= c->sums.dy, if the call
 * that made the sums has not written the gradients. */
bool grad_sums_store(const Call *c);
#endif
