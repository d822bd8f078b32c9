/* fibres.cuh -- the elements of a tensor along one or several axes; see
 * cpu/ref/fibres.h. */
#ifndef SEG_CUDA_OPS_FIBRES_H
#define SEG_CUDA_OPS_FIBRES_H
#include "cuda/lib/kernel.cuh"

struct Fibres {
    Steps step;  // of the tensor; 0 along axes of extent 1
    Grid each;   // extents of a fibre
    Steps start; // from fibre to fibre: 0 along the axes of a fibre too
    uint32_t length;
};

static inline Fibres fibres_of(const Attr *a, Dims s)
{
    const Dims own = op_reduced_dims(a, s), each = dims_repeats(own, s);
    Fibres f = {steps_of(s), grid_of(each), steps_of(s),
                (uint32_t)(numel(s) / numel(own))};
    if (own.d == 1) f.start.d = 0;
    if (own.h == 1) f.start.h = 0;
    if (own.w == 1) f.start.w = 0;
    if (own.c == 1) f.start.c = 0;
    return f;
}

/* Elements from the first one of a fibre to element k. */
static __device__ __forceinline__ int64_t fibre_step(const Fibres &f,
                                                     uint32_t k)
{
    Place p = {};
    p.w = (int32_t)split(&k, f.each.w);
    p.h = (int32_t)split(&k, f.each.h);
    p.d = (int32_t)split(&k, f.each.d);
    return offset(f.step, p, (int)k);
}

/* The number of an element in its fibre, from its place in the tensor; `axes`
 * has 1 for the axes of a fibre. */
struct FibreAxes {
    int d, h, w, c;
};

static inline FibreAxes fibre_axes(const Attr *a)
{
    return {a->sum.d, a->sum.h, a->sum.w, a->sum.c};
}

static __device__ __forceinline__ uint32_t fibre_number(const FibreAxes &a,
                                                        const Fibres &f,
                                                        const Place &p, int c)
{
    uint32_t k = a.c ? (uint32_t)c : 0;
    if (a.d) k = k * f.each.d.by + (uint32_t)p.d;
    if (a.h) k = k * f.each.h.by + (uint32_t)p.h;
    if (a.w) k = k * f.each.w.by + (uint32_t)p.w;
    return k;
}
#endif
