/* close.cuh -- sums over all rows of a gradient, by the call that stores the
 * last of it: Call.total.
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
#ifndef SEG_CLOSE_CUH
#define SEG_CLOSE_CUH
#include "lens.cuh"

/* What a kernel needs to sum one of its gradients. */
struct Closing {
    bool runs;
    const void *x;    // of the gradient's extents and type; NULL: no lens
    const Stat *stat; // (C) of its norm
    Sight sight;
};

/* That of dx[k]. */
static inline Closing closing_of(const Call *c, int k)
{
    Closing by = {};
    by.runs = c->total[k] != NULL;
    if (!by.runs || !c->lens[k]) return by;
    by.x = c->x[k]->data;
    by.stat = (const Stat *)c->lens[k]->saved;
    by.sight = sight_of(c, k);
    return by;
}

/* What it takes of channel c: scale and shift of the lens, the mean, and the
 * slope at and below zero. */
static __device__ __forceinline__ float4 closing_by(const Closing &by, int c)
{
    if (!by.x) return make_float4(0, 0, 0, 1);
    const float2 table = by.sight.table[c];
    return make_float4(table.x, table.y, by.stat[c].hi, by.sight.then.leak);
}

/* One number more: v of the gradient, x of what the lens is over. */
static __device__ __forceinline__ void close_one(float4 by, float x, float v,
                                                 float *sum, float *sum_x)
{
    const float u = fmaf(x, by.x, by.y) <= 0 ? v * by.w : v;
    *sum += u;
    *sum_x += u * (x - by.z);
}

/* close.cu: queue the totals of dx[k] from `count` parts (count, 2, channels),
 * of which its own begin at channel `from`. */
bool close_total(const Call *c, int k, const double *parts, int count,
                 int channels, int from);
/* Queue: what is wanted (+)= c->dy_total. */
bool close_put(const Call *c, const Puts &to);
#endif
