/* pool.cuh -- a call of maxpool or avgpool, for pool_max.cu, pool_avg.cu and
 * pool_grad_sums.cu. */
#ifndef SEG_CUDA_OPS_POOL_H
#define SEG_CUDA_OPS_POOL_H
#include "cuda/lib/window.cuh"
#include "cuda/norm/grad_sums.cuh"

struct Pool {
    void *x, *y; // operand and result, or their gradients
    void *tap;   // maxpool: the winning tap of each result
    Axis axis[3];
    Vecs vecs;               // of the written tensor
    NormOnLoad norm_on_load; // forward: of x
    Grid grid;               // of the written tensor
    Dims xs, ys;
    bool fresh; // backward
};

static inline int64_t taps_of(const Call *c)
{
    Window g = op_window(c->attr, NULL);
    return (int64_t)g.k[0] * g.k[1] * g.k[2];
}

/* The parameters of a pass that writes a tensor of extents `into`: y forward,
 * dx backward. */
static inline bool pool_of(const Call *c, Dims into, int v, Pool *p)
{
    Window g = op_window(c->attr, NULL);
    *p = {};
    p->xs = c->x[0]->dim, p->ys = c->y->dim;
    for (int i = 0; i < 3; i++) {
        p->axis[i] = axis_of(g, i, p->xs, p->ys);
        // results_reading computes q + lo
        if (!countable(c, (int64_t)p->axis[i].size + g.lo[i])) return false;
    }

    p->tap = c->saved;
    p->vecs = vecs_of(into, v);
    p->grid = grid_of(into);
    return countable(c, taps_of(c)) && countable(c, rows(p->xs)) &&
           countable(c, rows(p->ys));
}

/* The window of the result at q: its taps inside the image. */
__device__ __forceinline__ Box taps_box(const Pool &p, Place q)
{
    Box b;
    taps_inside(p.axis[0], q.d, &b.from[0], &b.to[0]);
    taps_inside(p.axis[1], q.h, &b.from[1], &b.to[1]);
    taps_inside(p.axis[2], q.w, &b.from[2], &b.to[2]);
    return b;
}

/* Saved taps are bytes, else int32_t. */
static inline bool small_taps(const Call *c)
{
    return taps_of(c) <= 256;
}

/* The winning taps of a vector of results. */
template <int V, class T> struct alignas(sizeof(T) * V) WonTaps {
    T v[V];
};

/* The number of a tap; taps outside the image are counted too. */
static __device__ __forceinline__ int tap_number(const Pool &p, int d, int h,
                                                 int w)
{
    return (d * p.axis[1].k + h) * p.axis[2].k + w;
}

/* Do the windows not overlap, so that an element is in at most one? */
static inline bool windows_disjoint(const Call *c)
{
    const Window g = op_window(c->attr, NULL);
    return g.k[0] <= g.s[0] && g.k[1] <= g.s[1] && g.k[2] <= g.s[2];
}

/* In pool_grad_sums.cu: the backward pass of a maxpool that also makes gradient
 * sums. */
bool pool_grad_sums(const Call *c);
size_t pool_grad_sums_bytes(const Call *c);
#endif
