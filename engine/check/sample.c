/* sample.c -- see sample.h. The sums are those of cpu/ref/conv_loops.h: a
 * window connects an image and a grid; for tap k, position p of the grid reads
 * the image at p*s - lo + k*dil. For conv the operand is the image and the
 * result the grid; for upconv the other way round; linear is conv with one
 * tap. */
#include "engine/check/sample.h"
#include <math.h>

typedef struct ConvProblem {
    Window win;
    Dims image, grid;
    const double *at_image, *at_grid, *w;
    int64_t a, b; /* channels of one group of the image and of the grid */
} ConvProblem;

static void add(Sample *s, double x, double y)
{
    s->value += x * y;
    s->scale += fabs(x * y);
    s->terms++;
}

/* Splits flat index i into (n, d, h, w, c). */
static void split(Dims s, int64_t i, int64_t out[5])
{
    const int32_t extent[5] = {s.n, s.d, s.h, s.w, s.c};
    for (int k = 4; k >= 0; k--) out[k] = i % extent[k], i /= extent[k];
}

/* Returns the flat index of (n, d, h, w, 0). */
static int64_t row(Dims s, int64_t n, const int64_t p[3])
{
    return (((n * s.d + p[0]) * s.h + p[1]) * s.w + p[2]) * s.c;
}

/* Returns tap number k as (kd, kh, kw). */
static void tap(const Window *g, int64_t k, int64_t out[3])
{
    out[2] = k % g->k[2], k /= g->k[2];
    out[1] = k % g->k[1];
    out[0] = k / g->k[1];
}

/* Computes the image position q of tap k at grid position p; false if
 * outside. */
static bool image_position(const ConvProblem *r, const int64_t p[3],
                           const int64_t k[3], int64_t q[3])
{
    const int32_t size[3] = {r->image.d, r->image.h, r->image.w};
    for (int i = 0; i < 3; i++) {
        q[i] = p[i] * r->win.s[i] - r->win.lo[i] + k[i] * r->win.dil[i];
        if (q[i] < 0 || q[i] >= size[i]) return false;
    }
    return true;
}

/* Computes the grid position that reads q at tap k; false if there is none. */
static bool grid_position(const ConvProblem *r, const int64_t q[3],
                          const int64_t k[3], int64_t p[3])
{
    const int32_t count[3] = {r->grid.d, r->grid.h, r->grid.w};
    for (int i = 0; i < 3; i++) {
        int64_t t = q[i] + r->win.lo[i] - k[i] * r->win.dil[i];
        if (t < 0 || t % r->win.s[i]) return false;
        p[i] = t / r->win.s[i];
        if (p[i] >= count[i]) return false;
    }
    return true;
}

static int64_t taps(const ConvProblem *r)
{
    return (int64_t)r->win.k[0] * r->win.k[1] * r->win.k[2];
}

/* grid[n,p,b] = sum_{k,a} image[n,q,a] w[b,k,a] */
static Sample fprop(const ConvProblem *r, int64_t i)
{
    Sample s = {0};
    int64_t at[5], k[3], q[3];
    split(r->grid, i, at);

    for (int64_t t = 0; t < taps(r); t++) {
        tap(&r->win, t, k);
        if (!image_position(r, at + 1, k, q)) continue;
        const double *x =
            r->at_image + row(r->image, at[0], q) + at[4] / r->b * r->a;
        const double *w = r->w + (at[4] * taps(r) + t) * r->a;
        for (int64_t a = 0; a < r->a; a++) add(&s, x[a], w[a]);
    }
    return s;
}

/* image[n,q,a] = sum_{p,k,b} grid[n,p,b] w[b,k,a] */
static Sample dgrad(const ConvProblem *r, int64_t i)
{
    Sample s = {0};
    int64_t at[5], k[3], p[3];
    split(r->image, i, at);
    int64_t group = at[4] / r->a, a = at[4] % r->a;

    for (int64_t t = 0; t < taps(r); t++) {
        tap(&r->win, t, k);
        if (!grid_position(r, at + 1, k, p)) continue;
        const double *y = r->at_grid + row(r->grid, at[0], p) + group * r->b;
        const double *w = r->w + (group * r->b * taps(r) + t) * r->a + a;
        for (int64_t b = 0; b < r->b; b++) add(&s, y[b], w[b * taps(r) * r->a]);
    }
    return s;
}

/* w[b,k,a] = sum_{n,p} image[n,q,a] grid[n,p,b] */
static Sample wgrad(const ConvProblem *r, int64_t i)
{
    Sample s = {0};
    int64_t a = i % r->a, t = i / r->a % taps(r), b = i / r->a / taps(r);
    int64_t k[3], p[3], q[3];

    tap(&r->win, t, k);
    for (int64_t n = 0; n < r->grid.n; n++)
        for (p[0] = 0; p[0] < r->grid.d; p[0]++)
            for (p[1] = 0; p[1] < r->grid.h; p[1]++)
                for (p[2] = 0; p[2] < r->grid.w; p[2]++) {
                    if (!image_position(r, p, k, q)) continue;
                    add(&s,
                        r->at_image[row(r->image, n, q) + b / r->b * r->a + a],
                        r->at_grid[row(r->grid, n, p) + b]);
                }
    return s;
}

/* db[c] = sum of dy over positions. */
static Sample bias(Dims y, const double *dy, int64_t c)
{
    Sample s = {0};
    for (int64_t i = c; i < numel(y); i += y.c) add(&s, dy[i], 1);
    return s;
}

Sample sample_at(const OpCase *c, const OpValues *v, int operand, int64_t i)
{
    Tensor wt = {c->x[1], F64, c->rank, NULL}, y;
    CHECK(op_multiplies((Op)c->attr.op) && opcase_shape(c, &y));
    bool up = c->attr.op == OP_upconv;
    ConvProblem r = {.win = op_window(&c->attr, &wt), .w = v->x[1]};
    r.image = up ? y.dim : c->x[0];
    r.grid = up ? c->x[0] : y.dim;
    r.a = r.image.c / r.win.groups, r.b = r.grid.c / r.win.groups;

    // operands of the larger and the smaller side, forward or backward
    const double *other = operand < 0 ? NULL : v->dy;
    r.at_image = up ? other : v->x[0];
    r.at_grid = up ? v->x[0] : other;
    if (operand == 2) return bias(y.dim, v->dy, i);
    if (operand == 1) return wgrad(&r, i);
    if (operand == 0 && up) {
        r.at_image = v->dy;
        return fprop(&r, i);
    }
    if (operand == 0) {
        r.at_grid = v->dy;
        return dgrad(&r, i);
    }
    Sample s = up ? dgrad(&r, i) : fprop(&r, i);
    if (v->x[2]) add(&s, v->x[2][i % y.dim.c], 1);
    return s;
}
