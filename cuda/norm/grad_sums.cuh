/* grad_sums.cuh -- sums over all rows of a gradient, by the call that stores
 * the last of it: Call.grad_sums.
 *
 * A norm that nobody runs needs sums of its gradient before it can be taken
 * back, and a bias is such a sum; each was a pass over what had just been
 * stored. Of x, which a lens shows, and dz, the gradient of what it shows:
 *
 *     total[0][c] = sum u,   total[1][c] = sum u z
 *
 * u = dz back through the activation, z = (x - mean) rstd; without a lens
 * total[0] is the sum of dz and total[1] nothing. Parts are sums of u and of
 * u (x - the mean as one float), which the totals put right in double. */
#ifndef SEG_CUDA_NORM_GRAD_SUMS_H
#define SEG_CUDA_NORM_GRAD_SUMS_H
#include "cuda/norm/norm_bwd_on_load.cuh"

/* What a kernel needs to sum one of its gradients, and what is made of the
 * sums once they are whole. */
struct GradSums {
    bool runs;
    const void *x; // of the gradient's extents and type; NULL: no lens
    const ChannelStats *stat; // (C) of its norm
    NormOnLoad norm_on_load;
    int channels;  // C
    double *total; // (2, C)
    // where the reader's gradients are made, too (Call.sums_for): those of its
    // parameters, and of a lazy one its slant
    NormGrads put;
    float4 *line; // (C), or NULL
    const float *gamma;
    double rows;
    const Step *step;
};

/* Which gradients of a call are sums of its dy: of a lazy one those of its
 * norm's parameters, of another that of its bias. */
static inline NormGrads norm_grads_of_dy(const Call *c)
{
    const int at = NORM_FRESH;
    if (!c->deferred) return {{values(c->dx[2])}, {is_fresh(c, 2)}};
    return {{values(c->norm_dx[2]), values(c->norm_dx[1])},
            {is_fresh(c, at + 2), is_fresh(c, at + 1)}};
}

/* The slant's lines behind the totals. */
static inline float4 *grad_sums_lines(const Tensor *total, int channels)
{
    return (float4 *)((double *)total->data + GRAD_SUMS * channels + 2);
}

/* That of dx[k]. */
static inline GradSums grad_sums_of(const Call *c, int k)
{
    GradSums by = {};
    const Call *reader = c->sums_for[k];
    by.runs = c->grad_sums[k] != NULL;
    // a plan that asks for space has no addresses yet
    if (!by.runs || !c->dev) return by;
    by.channels = c->x[k]->dim.c;
    by.total = (double *)c->grad_sums[k]->data;
    if (reader) by.put = norm_grads_of_dy(reader);
    if (reader && reader->deferred) {
        by.line = grad_sums_lines(c->grad_sums[k], by.channels);
        by.gamma = values(reader->norm_x[1]);
        by.rows = (double)rows(c->x[k]->dim);
        by.step = gpu_step(c->dev);
    }
    if (!c->deferred_norm[k]) return by;
    by.x = c->x[k]->data;
    by.stat = (const ChannelStats *)c->deferred_norm[k]->saved;
    by.norm_on_load = norm_on_load_of(c, k);
    return by;
}

/* What it takes of channel c: scale and shift of the lens, the mean, and the
 * slope at and below zero. */
static __device__ __forceinline__ float4 grad_sums_channel(const GradSums &by,
                                                           int c)
{
    if (!by.x) return make_float4(0, 0, 0, 1);
    const float2 table = by.norm_on_load.table[c];
    return make_float4(table.x, table.y, by.stat[c].hi,
                       by.norm_on_load.act.leak);
}

/* One number more: v of the gradient, x of what the lens is over. */
static __device__ __forceinline__ void grad_sums_add(float4 by, float x,
                                                     float v, float *sum,
                                                     float *sum_x)
{
    const float u = fmaf(x, by.x, by.y) <= 0 ? v * by.w : v;
    *sum += u;
    *sum_x += u * (x - by.z);
}

/* What is made of the sums of channel c, which are whole. */
static __device__ __forceinline__ void grad_sums_finish(const GradSums &by,
                                                        int c, double sum,
                                                        double sum_x)
{
    by.total[c] = sum;
    store_norm_grad(by.put, 0, c, sum);
    if (!by.x) return;
    const ChannelStats s = by.stat[c];
    // what the parts left of the mean
    sum_x = (sum_x - (double)s.lo * sum) * (double)s.rstd;
    by.total[by.channels + c] = sum_x;
    store_norm_grad(by.put, 1, c, sum_x);
    if (!by.line) return;
    const double gamma = by.gamma ? (double)by.gamma[c] : 1;
    double tilt = 0, shift = 0;
    if (!by.step->share.idle)
        norm_bwd_terms(gamma, s, by.rows, sum, sum_x, &tilt, &shift);
    by.line[c] = norm_bwd_line(by.norm_on_load.table[c], s, tilt, shift);
}

/* grad_sums.cu: queue what is wanted of these (+)= c->dy_sums, where the call
 * that made it has not. */
bool grad_sums_store(const Call *c);
#endif
