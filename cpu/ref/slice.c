/* slice.c -- slice, a box cut out of x, and pad, a border put around it.
 *
 * slice: y[n,d,h,w,c] = x[n,d+d0,h+h0,w+w0,c+c0]; pad: y[n,p] = x[n,p-lo]
 * inside and `value` outside. Each is the other's gradient: a small block at an
 * offset within a large one, copied out of it (crop) or into it (embed).
 * Extents come from the tensors, so a size of 0 in a slice ("up to the end")
 * needs no case of its own. */
#include "cpu/lib/plain.h"

typedef struct Job {
    const Tensor *from, *to;
    int d, h, w, c; /* offset of the small block in the large one */
    double fill;    /* value outside the box, for embed */
    bool fresh;
} Job;

/* By rows of the small block `to`: forward of slice, backward of pad. */
static void crop_rows(void *ctx, int64_t from, int64_t to)
{
    const Job *j = ctx;
    Dims s = j->to->dim;
    for (int64_t row = from; row < to; row++) {
        Place p = place(s, row);
        const real *x = values(j->from) + at(j->from->dim, p.n, p.d + j->d,
                                             p.h + j->h, p.w + j->w);
        real *y = values(j->to) + row * s.c;
        for (int k = 0; k < s.c; k++) put(y + k, x[j->c + k], j->fresh);
    }
}

/* 0 <= i < extent. */
static bool inside(int i, int extent)
{
    return i >= 0 && i < extent;
}

/* Forward of pad, backward of slice. By rows of the large block `to`, so that
 * each is written by one task. Outside the box `fill` is stored; if gradients
 * are added, nothing is. */
static void embed_rows(void *ctx, int64_t from, int64_t to)
{
    const Job *j = ctx;
    Dims s = j->to->dim, box = j->from->dim;
    for (int64_t row = from; row < to; row++) {
        Place p = place(s, row);
        int d = p.d - j->d, h = p.h - j->h, w = p.w - j->w;
        real *y = values(j->to) + row * s.c;
        for (int k = 0; j->fresh && k < s.c; k++) y[k] = (real)j->fill;
        if (!inside(d, box.d) || !inside(h, box.h) || !inside(w, box.w))
            continue;
        const real *x = values(j->from) + at(box, p.n, d, h, w);
        for (int k = 0; k < box.c; k++) put(y + j->c + k, x[k], j->fresh);
    }
}

/* Either direction of either operator: `from` to `to`; `to` is NULL for a
 * gradient that is not wanted. */
static bool run(const Call *c, RangeFn *fn, const Tensor *from,
                const Tensor *to, bool fresh)
{
    if (!to) return true;
    Job j = {.from = from, .to = to, .fresh = fresh};
    if (c->attr->op == OP_slice) {
        j.d = c->attr->slice.d0, j.h = c->attr->slice.h0;
        j.w = c->attr->slice.w0, j.c = c->attr->slice.c0;
    } else {
        j.d = c->attr->pad.pd0, j.h = c->attr->pad.ph0;
        j.w = c->attr->pad.pw0, j.fill = c->attr->pad.value;
    }
    range_run(c, rows(to->dim), to->dim.c, fn, &j);
    return true;
}

bool KERNEL(slice_fwd)(const Call *c)
{
    return run(c, crop_rows, c->x[0], c->y, true);
}

bool KERNEL(slice_bwd)(const Call *c)
{
    return run(c, embed_rows, c->dy, c->dx[0], is_fresh(c, 0));
}

bool KERNEL(pad_fwd)(const Call *c)
{
    return run(c, embed_rows, c->x[0], c->y, true);
}

bool KERNEL(pad_bwd)(const Call *c)
{
    return run(c, crop_rows, c->dy, c->dx[0], is_fresh(c, 0));
}
