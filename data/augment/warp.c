/* warp.c -- spatial transforms of a field of a sample: affine maps and elastic
 * displacements.
 *
 * The unit of work is a row along w. The source coordinates of all voxels of
 * the row are computed first, in loops without branches: terms that do not
 * depend on w are computed outside the loops, and the sum of B-spline control
 * points is taken along d once per slice and along h once per row, in the order
 * of elastic_move, so that every bit equals the plain definition. Then each run
 * of voxels whose source neighbours all lie inside the volume is interpolated
 * (labels: nearest neighbour) without tests for the border. The others go
 * through change_between (labels: change_nearest), which handles the border. */
#include "data/augment/augment_inside.h"
#include <string.h>

/* Working memory for the rows of one field; the arrays lie in one block. */
typedef struct Rows {
    const Change *c;
    Dims n;
    double *q[3];   /* source coordinates of a row (w) along each axis     */
    double *taps;   /* (4, w): weights of the control points of a voxel    */
    double *points; /* (nd, nh, nw, 3): control points                     */
    double *slice;  /* (nh, nw, 3): summed along d                         */
    double *row;    /* (3, nw): summed along h                             */
    void *block;
} Rows;

static bool rows_open(Rows *r, const Change *c, Dims n)
{
    const Elastic *e = &c->elastic;
    const bool elastic = c->kind == CHANGE_ELASTIC;
    *r = (Rows){.c = c, .n = n};
    size_t w = (size_t)n.w, all = 0, slice = 0, row = 0, room = 3 * w, bytes;
    if (elastic) {
        all = 3 * (size_t)elastic_points(e);
        row = 3 * (size_t)e->n[0], slice = row * (size_t)e->n[1];
        room += 4 * w + all + slice + row;
    }

    if (!size_mul(room, sizeof(double), &bytes) ||
        !(r->block = mem_alloc(bytes)))
        return false;
    double *at = r->block;
    for (int a = 0; a < 3; a++) r->q[a] = at, at += w;
    if (!elastic) return true;
    r->taps = at, at += 4 * w;
    r->points = at, at += all;
    r->slice = at, at += slice;
    r->row = at;
    for (int64_t i = 0; i < elastic_points(e); i++)
        elastic_point(e, &c->draw, i, r->points + 3 * i);
    for (int32_t v = 0; v < n.w; v++) {
        const Taps k = spline_taps(e->spacing, e->n[0], v);
        for (int i = 0; i < 4; i++) r->taps[i * n.w + v] = k.w[i];
    }
    return true;
}

/* Sums the control points along d for slice d. */
static void rows_slice(Rows *r, int32_t d)
{
    if (r->c->kind != CHANGE_ELASTIC) return;
    const Elastic *e = &r->c->elastic;
    const int64_t step = 3 * (int64_t)e->n[0] * e->n[1];
    const Taps k = spline_taps(e->spacing, e->n[2], d);
    const double *x = r->points + k.first * step;
    for (int64_t i = 0; i < step; i++)
        r->slice[i] = spline_sum(&k, x + i, step);
}

/* Along one axis, voxels from .. to - 1 of a row, which depend on the same four
 * control points p. */
static void spline_stretch(const Rows *r, const double p[4], int32_t from,
                           int32_t to, double *q)
{
    const double *w0 = r->taps, *w1 = w0 + r->n.w, *w2 = w1 + r->n.w;
    const double *w3 = w2 + r->n.w;
    const double a = p[0], b = p[1], c = p[2], d = p[3];
    for (int32_t v = from; v < to; v++)
        q[v] = ((w0[v] * a + w1[v] * b) + w2[v] * c) + w3[v] * d;
}

static void row_elastic(Rows *r, int32_t h, int32_t d)
{
    const Elastic *e = &r->c->elastic;
    const int32_t points = e->n[0];
    const int64_t step = 3 * (int64_t)points;
    const Taps k = spline_taps(e->spacing, e->n[1], h);
    const double *x = r->slice + k.first * step;

    for (int32_t i = 0; i < points; i++)
        for (int a = 0; a < 3; a++)
            r->row[a * points + i] = spline_sum(&k, x + 3 * i + a, step);

    for (int32_t from = 0, to; from < r->n.w; from = to) {
        const int32_t first = spline_taps(e->spacing, points, from).first;
        to = from + 1;
        while (to < r->n.w && (int32_t)(to / e->spacing) == first) to++;
        for (int a = 0; a < 3; a++) {
            const double *p = r->row + a * points + first;
            if (points == 1)
                r->q[a][0] = p[0];
            else
                spline_stretch(r, p, from, to, r->q[a]);
        }
    }

    for (int32_t v = 0; v < r->n.w; v++)
        r->q[0][v] += v, r->q[1][v] += h, r->q[2][v] += d;
}

static void row_affine(Rows *r, int32_t h, int32_t d)
{
    for (int a = 0; a < 3; a++) {
        const double *m = r->c->map[a];
        const double along = m[0], by_h = m[1] * h, by_d = m[2] * d;
        double *q = r->q[a];
        for (int32_t v = 0; v < r->n.w; v++)
            q[v] = along * v + by_h + by_d + m[3];
    }
}

/* == interpolation ===================================================== */

/* Has the source coordinate of voxel v a voxel at or before it and one after
 * it, along each axis of more than one voxel? Written so that NaN is
 * outside. */
static bool inside(const Rows *r, int32_t v)
{
    const int32_t n[] = {r->n.w, r->n.h, r->n.d};
    bool in = true;
    for (int a = 0; a < 3; a++)
        in &= n[a] == 1 || (r->q[a][v] >= 0 && r->q[a][v] < n[a] - 1);
    return in;
}

/* The first voxel at or after `from` with inside() != in. */
static int32_t stretch(const Rows *r, int32_t from, bool in)
{
    while (from < r->n.w && inside(r, from) == in) from++;
    return from;
}

/* Interpolates at one source coordinate between the voxels of a slice: along w,
 * then h. */
static inline float between(const float *x, int64_t w, int64_t h, float tw,
                            float th)
{
    const float a = x[0] + tw * (x[w] - x[0]);
    const float b = x[h] + tw * (x[h + w] - x[h]);
    return a + th * (b - a);
}

/* Interpolates voxels from .. to - 1 of the row, whose source coordinates are
 * all inside a volume or (flat) a slice of more than one row; c channels, which
 * a call may know at compile time. */
static inline void linear(const Rows *r, const float *x, int32_t from,
                          int32_t to, bool flat, int32_t c, float *y)
{
    const int64_t row = (int64_t)r->n.w * c, slice = row * r->n.h;
    const double *qw = r->q[0], *qh = r->q[1], *qd = r->q[2];

    for (int32_t v = from; v < to; v++) {
        const int32_t w = (int32_t)qw[v], h = (int32_t)qh[v];
        const int32_t d = flat ? 0 : (int32_t)qd[v];
        const float tw = (float)(qw[v] - w), th = (float)(qh[v] - h);
        const float td = flat ? 0 : (float)(qd[v] - d);
        const float *p = x + d * slice + h * row + (int64_t)w * c;
        for (int32_t k = 0; k < c; k++, p++) {
            float s = between(p, c, row, tw, th);
            if (!flat) s += td * (between(p + slice, c, row, tw, th) - s);
            y[(int64_t)v * c + k] = s;
        }
    }
}

static void nearest(const Rows *r, const float *x, int32_t from, int32_t to,
                    int32_t c, float *y)
{
    // along an axis of one voxel every coordinate is valid
    const bool narrow = r->n.w == 1, thin = r->n.h == 1, flat = r->n.d == 1;
    for (int32_t v = from; v < to; v++) {
        const int32_t w = narrow ? 0 : (int32_t)(r->q[0][v] + 0.5);
        const int32_t h = thin ? 0 : (int32_t)(r->q[1][v] + 0.5);
        const int32_t d = flat ? 0 : (int32_t)(r->q[2][v] + 0.5);
        const float *p = x + (((int64_t)d * r->n.h + h) * r->n.w + w) * c;
        for (int32_t k = 0; k < c; k++) y[(int64_t)v * c + k] = p[k];
    }
}

/* Interpolates voxel v of the row; its source coordinate may be outside. */
static void anywhere(const Rows *r, const float *x, int32_t v, bool label,
                     float *y)
{
    const ChangeSource s = {x, r->n, 0};
    const double q[] = {r->q[0][v], r->q[1][v], r->q[2][v]};
    y += (int64_t)v * r->n.c;
    if (!label) {
        change_between(&s, q, y);
        return;
    }
    const float *p = x + change_voxel(r->n, 0, change_nearest(q[0], r->n.w),
                                      change_nearest(q[1], r->n.h),
                                      change_nearest(q[2], r->n.d));
    for (int32_t k = 0; k < r->n.c; k++) y[k] = p[k];
}

static void look_up(const Rows *r, const float *x, bool label, float *y)
{
    const bool flat = r->n.d == 1;
    for (int32_t from = 0, to; from < r->n.w; from = to) {
        to = stretch(r, from, true);
        // a sequence has one row, so this path is fast enough
        if (!label && (r->n.h == 1 || r->n.w == 1)) to = from;
        if (label)
            nearest(r, x, from, to, r->n.c, y);
        else if (r->n.c == 1 && flat)
            linear(r, x, from, to, true, 1, y);
        else if (r->n.c == 1)
            linear(r, x, from, to, false, 1, y);
        else
            linear(r, x, from, to, flat, r->n.c, y);
        if (to < r->n.w) anywhere(r, x, to, label, y), to++;
    }
}

bool warp_field(const Change *c, float *x, Dims n, FieldKind kind)
{
    const size_t bytes = (size_t)numel(n) * sizeof *x;
    bool ok = false;
    Rows r = {.c = c};
    float *y = x, *copy = mem_alloc(bytes);

    if (!copy || !rows_open(&r, c, n)) goto done;
    memcpy(copy, x, bytes);

    for (int32_t d = 0; d < n.d; d++) {
        rows_slice(&r, d);
        for (int32_t h = 0; h < n.h; h++, y += (int64_t)n.w * n.c) {
            if (c->kind == CHANGE_AFFINE)
                row_affine(&r, h, d);
            else
                row_elastic(&r, h, d);
            look_up(&r, copy, kind == FIELD_LABEL, y);
        }
    }

    ok = true;

done:
    mem_free(r.block);
    mem_free(copy);
    return ok;
}
