/* window.cuh -- the taps and positions of a pooling window, and an iterator
 * over boxes of either.
 *
 * Along one axis, tap k of result p reads element p*s - lo + k of the image (no
 * dilation: the windows are pooling windows). A result needs its taps inside
 * the image, an element of the image the results that read it; both are ranges,
 * so over three axes they are boxes. The iterator visits the points of a box in
 * (d,h,w) order; kernels take several points at a time so that their loads are
 * in flight together. */
#ifndef SEG_CUDA_LIB_WINDOW_H
#define SEG_CUDA_LIB_WINDOW_H
#include "cuda/lib/vec.cuh"

/* Points from .. to-1 along each axis. */
struct Box {
    int from[3], to[3];
};

/* One axis of a window. */
struct Axis {
    int k, lo;
    int size, count; // of the image, of the result
    Divisor stride;
};

static inline Axis axis_of(const Window &g, int i, Dims image, Dims result)
{
    return {g.k[i], g.lo[i], (&image.d)[i], (&result.d)[i], divisor(g.s[i])};
}

/* The element under tap 0 of result p, perhaps outside the image. */
static __device__ __forceinline__ int first_of(const Axis &a, int p)
{
    return p * (int)a.stride.by - a.lo;
}

/* The range of taps of result p inside the image; never empty (shape.c). */
static __device__ __forceinline__ void taps_inside(const Axis &a, int p,
                                                   int *from, int *to)
{
    const int first = first_of(a, p);
    *from = first < 0 ? -first : 0;
    *to = a.size - first < a.k ? a.size - first : a.k;
}

/* The range of results that read element q; may be empty. */
static __device__ __forceinline__ void results_reading(const Axis &a, int q,
                                                       int *from, int *to)
{
    const uint32_t at = (uint32_t)(q + a.lo), k = (uint32_t)a.k;
    *from = at < k ? 0 : (int)quotient(at - k, a.stride) + 1;
    *to = (int)quotient(at, a.stride) + 1;
    if (*to > a.count) *to = a.count;
}

/* A position in a box. */
struct BoxIterator {
    Box box;
    int at[3];
    int left; // points to come; all boxes here have fewer than 2^31
};

static __device__ __forceinline__ BoxIterator box_iterator(const Box &b)
{
    BoxIterator w = {b, {b.from[0], b.from[1], b.from[2]}, 1};
    for (int i = 0; i < 3; i++)
        w.left *= b.to[i] > b.from[i] ? b.to[i] - b.from[i] : 0;
    return w;
}

/* Advances to the next point; w runs fastest. No branches: the threads of a
 * warp reach the end of a row at different points. */
static __device__ __forceinline__ void box_next(BoxIterator *w)
{
    w->left--;
    const bool row = ++w->at[2] == w->box.to[2];
    w->at[2] = row ? w->box.from[2] : w->at[2];
    w->at[1] += row;
    const bool plane = w->at[1] == w->box.to[1];
    w->at[1] = plane ? w->box.from[1] : w->at[1];
    w->at[0] += plane;
}

/* A sum of vectors whose float chains end after CHAIN terms. */
template <int V> struct VecChain {
    float run[V], sum[V];
    int terms;
};

/* Call it after `terms` terms have been added to run. */
template <int V>
static __device__ __forceinline__ void chain_on(VecChain<V> *c, int terms)
{
    if ((c->terms += terms) < CHAIN) return;
    for (int i = 0; i < V; i++) c->sum[i] += c->run[i], c->run[i] = 0;
    c->terms = 0;
}

template <int V>
static __device__ __forceinline__ Vec<V> chain_end(const VecChain<V> &c)
{
    Vec<V> x;
    for (int i = 0; i < V; i++) x.v[i] = c.sum[i] + c.run[i];
    return x;
}
#endif
