/* view.h -- an operand broadcast to larger extents.
 *
 * Masks, weights and the operands of add .. div have, along each axis, the
 * extent of the whole or 1, and an absent operand is 1 everywhere. A View hides
 * the difference: view_row() is the address of channel 0 of a row of the whole,
 * and channel ch is ch*step elements further. */
#ifndef SEG_CPU_REF_VIEW_H
#define SEG_CPU_REF_VIEW_H
#include "cpu/lib/plain.h"

typedef struct View {
    const real *data;
    Dims dim, whole; /* own extents, and those of the result */
    bool flat;       /* every row of the whole has a row of its own */
    int64_t step;    /* between channels: 1, or 0 for one channel */
} View;

static const real view_one = 1; /* an absent operand */

/* Returns t, or 1 everywhere if t is NULL, broadcast to `whole`. */
static inline View view_of(const Tensor *t, Dims whole)
{
    View v = {.data = &view_one, .dim = {1, 1, 1, 1, 1}, .whole = whole};
    if (t) v.data = t->data, v.dim = t->dim;
    v.flat = v.dim.n == whole.n && v.dim.d == whole.d && v.dim.h == whole.h &&
             v.dim.w == whole.w;
    v.step = v.dim.c > 1;
    return v;
}

/* Address of the row of `v` for place p of the whole. */
static inline const real *view_place(const View *v, Place p)
{
    Dims s = v->dim;
    return v->data + at(s, s.n > 1 ? p.n : 0, s.d > 1 ? p.d : 0,
                        s.h > 1 ? p.h : 0, s.w > 1 ? p.w : 0);
}

/* Address of row number `row` of the whole. */
static inline const real *view_row(const View *v, int64_t row)
{
    // called for millions of rows: avoid the divisions where possible
    if (v->flat) return v->data + row * v->dim.c;
    if (numel(v->dim) == 1) return v->data;
    return view_place(v, place(v->whole, row));
}

/* A range of positions of the whole along one axis. */
typedef struct Span {
    int32_t from, to;
} Span;

/* Returns the range along an axis that goes with position `at` of a tensor of
 * extent `own`: one position, or all if the tensor is broadcast along it. */
static inline Span span(int32_t own, int32_t all, int32_t at)
{
    return own == all ? (Span){at, at + 1} : (Span){0, all};
}
#endif
