/* copy.c -- operators that only copy: concat, slice, pad.
 *
 * concat: the channels of up to six operands, one after the other. Operand 0's
 * channels come first (`a .. b` in a recipe). Operands are dense from 0 on: the
 * first absent one ends the list. The rule for shapes gives all the same
 * positions, so a row of y is a row of each operand.
 *
 * slice, a box cut out of x: y[n,d,h,w,c] = x[n,d+d0,h+h0,w+w0,c+c0]. pad, a
 * border put around x: y[n,p] = x[n,p-lo] inside and `value` outside. Each is
 * the other's gradient: a small block at an offset within a large one, copied
 * out of it (crop) or into it (embed). Extents come from the tensors, so a size
 * of 0 in a slice ("up to the end") needs no case of its own. */
#include "cpu/lib/plain.h"

// -- concat ------------------------------------------------------------------

/* Writes one row of y after the other, each from a row of every operand. */
static void concat_rows(void *ctx, int64_t from, int64_t to)
{
    const Call *c = ctx;
    for (int64_t row = from; row < to; row++) {
        real *y = values(c->y) + row * c->y->dim.c;
        for (int i = 0; i < MAX_IN && c->x[i]; i++) {
            int64_t n = c->x[i]->dim.c;
            memcpy(y, values(c->x[i]) + row * n, (size_t)n * sizeof *y);
            y += n;
        }
    }
}

bool KERNEL(concat_fwd)(const Call *c)
{
    range_run(c, rows(c->y->dim), c->y->dim.c, concat_rows, (void *)c);
    return true;
}

/* If an operand occurs twice, its gradients may be the same memory: a row of dy
 * is copied for one operand after the other, and the later operands add to the
 * gradient. */
static void split_rows(void *ctx, int64_t from, int64_t to)
{
    const Call *c = ctx;
    for (int64_t row = from; row < to; row++) {
        const real *dy = values(c->dy) + row * c->dy->dim.c;
        for (int i = 0; i < MAX_IN && c->x[i]; i++) {
            int64_t n = c->x[i]->dim.c;
            if (c->dx[i]) {
                real *dx = values(c->dx[i]) + row * n;
                bool fresh = is_fresh(c, i);
                for (int64_t k = 0; k < n; k++) put(dx + k, dy[k], fresh);
            }
            dy += n;
        }
    }
}

bool KERNEL(concat_bwd)(const Call *c)
{
    range_run(c, rows(c->dy->dim), c->dy->dim.c, split_rows, (void *)c);
    return true;
}

// -- slice and pad -----------------------------------------------------------

typedef struct Job {
    const Tensor *from, *to;
    int d, h, w, c; /* offset of the small block in the large one */
    double fill;    /* value outside the box, for embed */
    bool fresh;
} Job;

/* The place of line number `line` along w of a tensor of extents s. */
static Place place_of_line(Dims s, int64_t line)
{
    s.w = 1;
    return place(s, line);
}

/* Copies a line along w of `rows` positions with `channels` each; a position of
 * x has x_channels, of y y_channels. */
static void copy_line(const real *x, int64_t x_channels, real *y,
                      int64_t y_channels, int64_t rows, int64_t channels,
                      bool fresh)
{
    // all channels of both: one run
    if (x_channels == y_channels && channels == x_channels)
        channels *= rows, rows = 1;
    for (int64_t i = 0; i < rows; i++, x += x_channels, y += y_channels)
        for (int64_t k = 0; k < channels; k++) put(y + k, x[k], fresh);
}

/* By lines of the small block `to`: forward of slice, backward of pad. */
static void crop_lines(void *ctx, int64_t from, int64_t to)
{
    const Job *j = ctx;
    const Dims s = j->to->dim, all = j->from->dim;
    for (int64_t line = from; line < to; line++) {
        const Place p = place_of_line(s, line);
        const real *x =
            values(j->from) + at(all, p.n, p.d + j->d, p.h + j->h, j->w) + j->c;
        copy_line(x, all.c, values(j->to) + line * s.w * s.c, s.c, s.w, s.c,
                  j->fresh);
    }
}

/* 0 <= i < extent. */
static bool inside(int i, int extent)
{
    return i >= 0 && i < extent;
}

/* Forward pass of pad, backward pass of slice: copies the box `from` into the
 * larger tensor `to`. Each line of `to` is written by one task. Outside of the
 * box `to` becomes `fill`, or stays if gradients are added. */
static void embed_lines(void *ctx, int64_t from, int64_t to)
{
    const Job *j = ctx;
    const Dims s = j->to->dim, box = j->from->dim;

    for (int64_t line = from; line < to; line++) {
        const Place p = place_of_line(s, line);
        const int d = p.d - j->d, h = p.h - j->h;
        const int64_t width = (int64_t)s.w * s.c;
        real *y = values(j->to) + line * width;
        for (int64_t k = 0; j->fresh && k < width; k++) y[k] = (real)j->fill;
        if (!inside(d, box.d) || !inside(h, box.h)) continue;
        copy_line(values(j->from) + at(box, p.n, d, h, 0), box.c,
                  y + (int64_t)j->w * s.c + j->c, s.c, box.w, box.c, j->fresh);
    }
}

/* Either direction of either operator: `from` to `to`; `to` is NULL for a
 * gradient that is not wanted. */
static bool run_box(const Call *c, RangeFn *fn, const Tensor *from,
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
    const int64_t width = (int64_t)to->dim.w * to->dim.c;
    range_run(c, numel(to->dim) / width, width, fn, &j);
    return true;
}

bool KERNEL(slice_fwd)(const Call *c)
{
    return run_box(c, crop_lines, c->x[0], c->y, true);
}

bool KERNEL(slice_bwd)(const Call *c)
{
    return run_box(c, embed_lines, c->dy, c->dx[0], is_fresh(c, 0));
}

bool KERNEL(pad_fwd)(const Call *c)
{
    return run_box(c, embed_lines, c->x[0], c->y, true);
}

bool KERNEL(pad_bwd)(const Call *c)
{
    return run_box(c, crop_lines, c->dy, c->dx[0], is_fresh(c, 0));
}
