/* lstm.c -- one layer of an LSTM in one direction, fast: see ops.def.
 *
 * A task is some samples, which go through the steps together: y of the
 * previous step (a row a sample) times all weights, by Simd.product, then the
 * gates. The weights are packed once. Up to some 128 units they stay in L2;
 * with more units each step reads them from L3, and more samples a task make up
 * for that. Samples are sorted by length, longest first, so that the samples
 * that have ended are the last rows of a task and are left out.
 *
 * A result is a chain over the units of the previous step, whichever task its
 * sample is in: the bits are the same for any number of threads, batch or
 * padding. The gradient of the weights is a sum over the batch, by wgrad.h.
 *
 * Saved as in cpu/ref/lstm.c: gates and cells, and dz takes the place of the
 * gates. */
#include "cpu/conv/panel.h"
#include "cpu/conv/wgrad.h"
#include "cpu/lib/kernels.h"
#include "cpu/lib/thread_pool.h"
#include "engine/graph/length.h"
#include <string.h>

enum {
    GROUP = 24,      // samples of a task, at most
    COPY_ROWS = 256, // rows of dx in one task
};

typedef struct Lstm {
    const Call *c;
    const Simd *simd;
    int64_t n, steps, units;
    int64_t group, tasks;   // samples of a task
    int64_t in, out;        // of the product: terms of a sum; results
    float *panels;          // the weights, packed
    float *private, *gates; // a part for each thread; saved (n, steps, 4 units)
    float *cells;           // (n, steps, units); NULL: none are saved
    const int32_t *order;   // samples, the longest first
    int64_t packed, own;    // floats of panels, of a thread
} Lstm;

/* Extents only. `back`: of the backward run, with a product by the transposed
 * weights. */
static Lstm lstm_of(const Call *c, bool back)
{
    Dims s = c->y->dim;
    Lstm m = {.c = c, .simd = simd(), .n = s.n, .steps = s.w, .units = s.c};
    m.in = back ? 4 * m.units : m.units;
    m.out = back ? m.units : 4 * m.units;

    // the same number of tasks for each thread, none of more than GROUP samples
    int64_t threads = most(1, c->threads);
    m.tasks = threads * ceil_div(m.n, threads * GROUP);
    m.group = ceil_div(m.n, m.tasks);
    m.tasks = ceil_div(m.n, m.group);
    m.packed = panel_floats(m.simd, m.in, m.out);

    // state, sum and cell (or dc) of each sample
    m.own = round_up(m.group * 6 * m.units, LANES_MAX);
    return m;
}

/* The layout of scratch: order, panels, then the buffers of the threads. */
static size_t scratch_bytes(const Lstm *m)
{
    int64_t floats = m->packed + m->own * most(1, m->c->threads);
    return (size_t)(round_up(m->n, LANES_MAX) + floats) * sizeof(float);
}

Space cpu_lstm_space(const Call *c)
{
    Lstm f = lstm_of(c, false), b = lstm_of(c, true);
    Space s = {.fwd = scratch_bytes(&f)};
    if (!c->dy) return s; // evaluation: nothing is saved
    s.saved = (size_t)(5 * f.n * f.steps * f.units) * sizeof(float);
    s.bwd = scratch_bytes(&b);
    size_t bias = bias_grad_bytes(c->x[0]->dim);
    Wgrad w = {.window = op_window(c->attr, c->x[1]),
               .in = c->y->dim,
               .out = c->x[0]->dim,
               .threads = c->threads};
    size_t weights = wgrad_bytes(&w);
    if (weights > s.bwd) s.bwd = weights;
    if (bias > s.bwd) s.bwd = bias;
    return s;
}

static int64_t count_of(const Lstm *m, int64_t n)
{
    return length_of(m->c->x[3], n, m->steps);
}

/* Sorts the sample numbers by descending length; equal lengths keep their
 * order. */
static void sort(const Lstm *m, int32_t *order)
{
    // insertion sort: batches are small, and of similar lengths when bucketed
    for (int64_t i = 0; i < m->n; i++) {
        int64_t k = i, own = count_of(m, i);
        for (; k > 0 && count_of(m, order[k - 1]) < own; k--)
            order[k] = order[k - 1];
        order[k] = (int32_t)i;
    }
}

/* The weights (4 units, units) as a Matrix of the product. */
static Matrix weights(const Lstm *m)
{
    const float *w = m->c->x[1]->data;
    bool back = m->in == 4 * m->units;
    return (Matrix){w, m->in, m->out, back ? m->units : 1, back ? 1 : m->units};
}

static void pack(void *ctx, int64_t task, int thread)
{
    const Lstm *m = ctx;
    (void)thread;
    Matrix w = weights(m);
    panel_pack(m->simd, &w, task, m->panels);
}

/* Sets the addresses, packs the weights and sorts the samples. */
static void begin(Lstm *m)
{
    const Call *c = m->c;
    int32_t *order = c->scratch;
    m->order = order;
    m->panels = (float *)c->scratch + round_up(m->n, LANES_MAX);
    m->private = m->panels + m->packed;
    m->gates = c->saved;
    if (m->gates) m->cells = m->gates + 4 * m->n * m->steps * m->units;
    sort(m, order);
    pool_run(c->dev, panel_count(m->simd, m->out), pack, m);
}

/* A group of samples; `active`: how many of them have step number s. */
typedef struct Samples {
    const int32_t *sample;
    int64_t size, active;
    float *state, *sum, *carry; // a row a sample: x and y of the product; c
} Samples;

/* sum = state times the weights, for the first `rows` samples of a group. */
static void multiply(const Lstm *m, const Samples *g, int64_t rows)
{
    PanelRows r = {g->state, g->sum, m->in, m->out, rows, false};
    panel_multiply(m->simd, m->panels, m->in, m->out, &r);
}

static Samples group_of(const Lstm *m, int64_t task, int thread)
{
    Samples g = {.sample = m->order + task * m->group};
    g.size = least(m->group, m->n - task * m->group);
    g.state = m->private + thread * m->own;
    g.sum = g.state + m->group * m->in;
    g.carry = g.sum + m->group * m->out;
    return g;
}

static void set_active(const Lstm *m, Samples *g, int64_t s)
{
    g->active = 0;
    while (g->active < g->size && count_of(m, g->sample[g->active]) > s)
        g->active++;
}

/* The row (n, t) of step number s of sample n. */
static int64_t row_of(const Lstm *m, int64_t n, int64_t s)
{
    int64_t t = m->c->attr->lstm.reverse ? count_of(m, n) - 1 - s : s;
    return n * m->steps + t;
}

/* Runs step s of sample number i of the group. */
static void step(const Lstm *m, const Samples *g, int64_t i, int64_t s)
{
    const Call *c = m->c;
    int64_t h = m->units, row = row_of(m, g->sample[i], s);
    float *cell = g->carry + i * h, *sum = g->sum + i * 4 * h;
    LstmStep one = {.z = (const float *)c->x[0]->data + row * 4 * h,
                    .bias = c->x[2] ? c->x[2]->data : NULL,
                    .sum = s ? sum : NULL,
                    .cell = s ? cell : NULL,
                    .gates = m->gates ? m->gates + row * 4 * h : sum,
                    .next = cell,
                    .y = (float *)c->y->data + row * h,
                    .units = h};

    m->simd->lstm_step(&one);
    memcpy(g->state + i * h, one.y, (size_t)h * sizeof(float));
    if (m->cells) memcpy(m->cells + row * h, cell, (size_t)h * sizeof(float));
}

/* Clears the rows beyond the length in an array (n, steps, width). */
static void clear(const Lstm *m, const Samples *g, float *all, int64_t width)
{
    for (int64_t i = 0; i < g->size; i++) {
        int64_t n = g->sample[i], count = count_of(m, n);
        memset(all + (n * m->steps + count) * width, 0,
               (size_t)((m->steps - count) * width) * sizeof(float));
    }
}

static void forward(void *ctx, int64_t task, int thread)
{
    const Lstm *m = ctx;
    Samples g = group_of(m, task, thread);
    set_active(m, &g, 0);
    for (int64_t s = 0; g.active; set_active(m, &g, ++s)) {
        if (s) multiply(m, &g, g.active);
        for (int64_t i = 0; i < g.active; i++) step(m, &g, i, s);
    }
    clear(m, &g, m->c->y->data, m->units);
}

bool cpu_lstm_fwd(const Call *c)
{
    Lstm m = lstm_of(c, false);
    begin(&m);
    pool_run(c->dev, m.tasks, forward, &m);
    return true;
}

/* Runs step s of sample number i backward; `later`: it has a next step. */
static void grad(const Lstm *m, const Samples *g, int64_t i, int64_t s,
                 bool later)
{
    int64_t h = m->units, n = g->sample[i], row = row_of(m, n, s);
    float *dc = g->carry + i * h;
    if (!later) memset(dc, 0, (size_t)h * sizeof *dc);
    LstmGrad one = {.dy = (const float *)m->c->dy->data + row * h,
                    .dh = later ? g->sum + i * h : NULL,
                    .cell = m->cells + row * h,
                    .last = s ? m->cells + row_of(m, n, s - 1) * h : NULL,
                    .dc = dc,
                    .gates = m->gates + row * 4 * h,
                    .units = h};
    m->simd->lstm_grad(&one);
    memcpy(g->state + i * 4 * h, one.gates, (size_t)(4 * h) * sizeof(float));
}

static void backward(void *ctx, int64_t task, int thread)
{
    const Lstm *m = ctx;
    Samples g = group_of(m, task, thread);
    for (int64_t s = m->steps - 1; s >= 0; s--) {
        int64_t later = g.active; // samples with a next step
        set_active(m, &g, s);
        if (later) multiply(m, &g, later);
        for (int64_t i = 0; i < g.active; i++) grad(m, &g, i, s, i < later);
    }
    clear(m, &g, m->gates, 4 * m->units);
}

/* Copies rows of dz to dx. */
static void copy_dx(void *ctx, int64_t task, int thread)
{
    const Lstm *m = ctx;
    (void)thread;
    int64_t width = 4 * m->units, from = task * COPY_ROWS;
    int64_t rows = least(COPY_ROWS, m->n * m->steps - from);
    m->simd->copy(m->gates + from * width, rows * width,
                  (float *)m->c->dx[0]->data + from * width,
                  !(m->c->fresh & 1));
}

bool cpu_lstm_bwd(const Call *c)
{
    Lstm m = lstm_of(c, true);
    begin(&m);
    pool_run(c->dev, m.tasks, backward, &m);

    // the scratch is free from here on
    if (c->dx[0])
        pool_run(c->dev, ceil_div(m.n * m.steps, COPY_ROWS), copy_dx, &m);

    if (c->dx[1]) {
        // y of the previous step times dz of this one: y has a border of one
        Wgrad w = {.window = op_window(c->attr, c->x[1]),
                   .in = c->y->dim,
                   .out = c->x[0]->dim,
                   .x = c->y->data,
                   .a = m.gates,
                   .dw = c->dx[1]->data,
                   .add = !(c->fresh & 2),
                   .threads = c->threads};
        wgrad_run(&w, c->dev, c->scratch);
    }

    if (c->dx[2])
        bias_grad_run(m.gates, c->x[0]->dim, c->dx[2]->data, !(c->fresh & 4),
                      c->dev, c->scratch);
    return true;
}
