/* fibres.h -- the elements of a tensor along one or several axes.
 *
 * A fibre is the elements along the axes of an operator (Attr.sum.d, .h, .w,
 * .c) at one place of the other axes. They count from 0 in user order, c d h w,
 * w fastest. */
#ifndef SEG_CPU_REF_FIBRES_H
#define SEG_CPU_REF_FIBRES_H
#include "cpu/lib/plain.h"

typedef struct Fibres {
    Dims all;  /* extents of the tensor                                  */
    Dims own;  /* its extents across fibres: 1 along the axes of a fibre */
    Dims each; /* extents of a fibre: 1 along the other axes             */
    int64_t count, length;
    int64_t step; /* memory elements between neighbours; 0: they vary    */
} Fibres;

static inline Fibres fibres_of(const Attr *a, Dims s)
{
    const Dims own = op_reduced_dims(a, s);
    Fibres f = {.all = s,
                .own = own,
                .each = dims_repeats(own, s),
                .count = numel(own),
                .length = numel(s) / numel(own),
                .step = 1};
    const int32_t extent[4] = {f.each.w, f.each.h, f.each.d, f.each.c};
    const int64_t step[4] = {s.c, (int64_t)s.w * s.c, (int64_t)s.h * s.w * s.c,
                             1};
    int64_t next = 0; // the step that continues those so far
    for (int i = 0; i < 4; i++) {
        if (extent[i] == 1) continue;
        if (!next) f.step = step[i];
        if (next && next != step[i]) f.step = 0;
        next = step[i] * extent[i];
    }
    return f;
}

/* Elements from the first one of a fibre to element k. */
static inline int64_t fibre_step(const Fibres *f, int64_t k)
{
    if (f->step) return k * f->step;
    const int64_t h = k / f->each.w, d = h / f->each.h, c = d / f->each.d;
    return at(f->all, 0, d % f->each.d, h % f->each.h, k % f->each.w) + c;
}

/* The first element of the fibre at a place of a tensor to which this one is
 * broadcast. */
static inline int64_t fibre_at(const Fibres *f, Place p, int64_t c)
{
    const Dims s = f->own;
    return at(f->all, s.n > 1 ? p.n : 0, s.d > 1 ? p.d : 0, s.h > 1 ? p.h : 0,
              s.w > 1 ? p.w : 0) +
           (s.c > 1 ? c : 0);
}

/* The first element of fibre number i. */
static inline int64_t fibre_start(const Fibres *f, int64_t i)
{
    return fibre_at(f, place(f->own, i / f->own.c), i % f->own.c);
}
#endif
