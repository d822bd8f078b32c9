/* lstm.c -- one layer of an LSTM in one direction; see ops.def.
 *
 *     (i,f,g,o) = z + w h' + b,  c = s(f) c' + s(i) tanh(g),  h = s(o) tanh(c)
 *
 * with h', c' of the previous step. A sample is one task: its steps follow each
 * other and samples are independent. Steps beyond a sample's length are never
 * read.
 *
 * Saved: the gates i, f, g, o after sigmoid or tanh (N,W,4H), then the cells c
 * (N,W,H). The backward run goes from the last step to the first and overwrites
 * the gates with the gradient in z. From it come dx, db and dw, which is a
 * wgrad with y of the previous step, hence with a border of one. */
#include "cpu/ref/conv_loops.h"
#include "cpu/ref/logistic.h"
#include "engine/graph/length.h"

/* Extents of a call: samples, steps, units. */
typedef struct Size {
    int64_t n, steps, units;
} Size;

static Size size_of(const Call *c)
{
    Dims s = c->y->dim;
    return (Size){s.n, s.w, s.c};
}

/* Position of step number s of `count` in memory. */
static int64_t step_at(const Call *c, int64_t s, int64_t count)
{
    return c->attr->lstm.reverse ? count - 1 - s : s;
}

/* Distance from a step to the previous one. */
static int64_t before(const Call *c)
{
    return c->attr->lstm.reverse ? 1 : -1;
}

/* Backward: dh and dc of each sample, in double. */
Space KERNEL(lstm_space)(const Call *c)
{
    Size z = size_of(c);
    int64_t gates = z.n * z.steps * 4 * z.units;
    size_t carry = (size_t)(2 * z.n * z.units) * sizeof(double);
    size_t bias = conv_bias_grad_bytes(c->x[0]->dim);
    Space s = {.fwd = (size_t)(z.n * z.units) * sizeof(real)};
    // an evaluation has no backward run, so it saves nothing
    if (c->dy) s.saved = (size_t)(gates + gates / 4) * sizeof(real);
    s.bwd = carry > bias ? carry : bias;
    return s;
}

/* Gate number k of a unit before sigmoid or tanh. */
static double gate_sum(const Call *c, const real *z, const real *h, int64_t k)
{
    int64_t units = c->y->dim.c;
    double sum = z[k];
    if (c->x[2]) sum += values(c->x[2])[k];
    return h ? sum + dot(values(c->x[1]) + k * units, h, units) : sum;
}

/* One step of a sample. h and cell of the previous step are NULL at the first
 * step; gates is NULL if they are not saved; next may be cell. */
static void step(const Call *c, const real *z, const real *h, const real *cell,
                 real *gates, real *next, real *y)
{
    int64_t units = c->y->dim.c;
    for (int64_t u = 0; u < units; u++) {
        double i = logistic(gate_sum(c, z, h, u));
        double f = logistic(gate_sum(c, z, h, units + u));
        double g = tanh(gate_sum(c, z, h, 2 * units + u));
        double o = logistic(gate_sum(c, z, h, 3 * units + u));
        double v = i * g + (cell ? f * cell[u] : 0);
        next[u] = (real)v;
        y[u] = (real)(o * tanh(v));
        if (!gates) continue;
        gates[u] = (real)i, gates[units + u] = (real)f;
        gates[2 * units + u] = (real)g, gates[3 * units + u] = (real)o;
    }
}

/* Samples from .. to-1. */
static void forward(void *ctx, int64_t from, int64_t to)
{
    const Call *c = ctx;
    Size z = size_of(c);
    int64_t h = z.units;
    real *gates = c->saved, *cells = gates ? gates + z.n * z.steps * 4 * h : 0;

    for (int64_t n = from; n < to; n++) {
        int64_t count = length_of(c->x[3], n, z.steps);
        real *y = values(c->y) + n * z.steps * h;
        for (int64_t s = 0; s < count; s++) {
            int64_t t = step_at(c, s, count), row = n * z.steps + t;
            int64_t last = row + before(c);
            // if nothing is saved, one cell a sample
            real *next = cells ? cells + row * h : (real *)c->scratch + n * h;
            step(c, values(c->x[0]) + row * 4 * h,
                 s ? y + (t + before(c)) * h : NULL,
                 !s      ? NULL
                 : cells ? cells + last * h
                         : next,
                 gates ? gates + row * 4 * h : NULL, next, y + t * h);
        }
        for (int64_t k = count * h; k < z.steps * h; k++) y[k] = 0;
    }
}

bool KERNEL(lstm_fwd)(const Call *c)
{
    Size z = size_of(c);
    range_run(c, z.n, 4 * z.steps * z.units * z.units, forward, (void *)c);
    return true;
}

/* Overwrites the gates of one step by their gradients. dh is the gradient of h
 * from the next step on entry and that for the previous step on return;
 * likewise dc. cell and last: c of this step and of the previous one, or
 * NULL. */
static void grad(const Call *c, const real *dy, const real *cell,
                 const real *last, double *dh, double *dc, real *gates)
{
    int64_t units = c->y->dim.c;
    const real *w = values(c->x[1]);

    for (int64_t u = 0; u < units; u++) {
        double i = gates[u], f = gates[units + u];
        double g = gates[2 * units + u], o = gates[3 * units + u];
        double t = tanh(cell[u]), d = dy[u] + dh[u];
        double v = dc[u] + d * o * (1 - t * t);
        gates[u] = (real)(v * g * i * (1 - i));
        gates[units + u] = (real)(last ? v * last[u] * f * (1 - f) : 0);
        gates[2 * units + u] = (real)(v * i * (1 - g * g));
        gates[3 * units + u] = (real)(d * t * o * (1 - o));
        dc[u] = v * f;
        dh[u] = 0;
    }

    for (int64_t k = 0; k < 4 * units; k++)
        axpy(dh, gates[k], w + k * units, units);
}

/* Samples from .. to-1: the gates become dz, 0 beyond the length. */
static void backward(void *ctx, int64_t from, int64_t to)
{
    const Call *c = ctx;
    Size z = size_of(c);
    int64_t h = z.units;
    real *gates = c->saved, *cells = gates + z.n * z.steps * 4 * h;

    for (int64_t n = from; n < to; n++) {
        int64_t count = length_of(c->x[3], n, z.steps);
        double *dh = (double *)c->scratch + 2 * n * h, *dc = dh + h;
        for (int64_t k = 0; k < 2 * h; k++) dh[k] = 0;
        for (int64_t s = count - 1; s >= 0; s--) {
            int64_t row = n * z.steps + step_at(c, s, count);
            grad(c, values(c->dy) + row * h, cells + row * h,
                 s ? cells + (row + before(c)) * h : NULL, dh, dc,
                 gates + row * 4 * h);
        }
        real *end = gates + (n + 1) * z.steps * 4 * h;
        for (real *at = end - (z.steps - count) * 4 * h; at < end; at++)
            *at = 0;
    }
}

/* Rows of dx. */
static void copy_dx(void *ctx, int64_t from, int64_t to)
{
    const Call *c = ctx;
    int64_t width = c->x[0]->dim.c;
    const real *dz = c->saved;
    for (int64_t k = from * width; k < to * width; k++)
        put(&values(c->dx[0])[k], dz[k], is_fresh(c, 0));
}

bool KERNEL(lstm_bwd)(const Call *c)
{
    Size z = size_of(c);
    Dims s = c->x[0]->dim;
    const real *dz = c->saved;

    range_run(c, z.n, 4 * z.steps * z.units * z.units, backward, (void *)c);
    if (c->dx[0]) range_run(c, rows(s), s.c, copy_dx, (void *)c);
    if (c->dx[1]) {
        ConvProblem r =
            conv_problem_of(c, op_window(c->attr, c->x[1]), c->y->dim, s);
        conv_wgrad(&r, values(c->y), dz, values(c->dx[1]), is_fresh(c, 1));
    }

    if (c->dx[2]) conv_bias_grad(c, s, dz, values(c->dx[2]), is_fresh(c, 2));
    return true;
}
