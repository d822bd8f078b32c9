/* broadcast.c -- functions of two operands with equal extents or 1; add, sub,
 * mul, div; sums over axes.
 *
 * A gradient is a sum over the axes along which its operand was broadcast. Each
 * element of it belongs to one task, which reads the rows of dy in memory
 * order, so the order of the sum does not depend on the number of threads. */
#include "cpu/ref/broadcast.h"
#include "cpu/ref/view.h"

typedef struct Job {
    const Call *c;
    View a, b;      // operands 0 and 1, broadcast to the result
    ValueFn *value; // forward
    GradFn *grad;   // backward, of `operand`
    int operand;
} Job;

/* Channels of a row of the gradient that are summed together. */
enum { BLOCK = 64 };

/* Rows of y; View does the broadcasting. The functions are called through a
 * pointer for each element: cpu/ops/program.c is faster. */
static void value_rows(void *ctx, int64_t from, int64_t to)
{
    const Job *j = ctx;
    int64_t n = j->c->y->dim.c;
    for (int64_t row = from; row < to; row++) {
        const real *a = view_row(&j->a, row), *b = view_row(&j->b, row);
        real *y = values(j->c->y) + row * n;
        for (int64_t i = 0; i < n; i++)
            y[i] = (real)j->value(a[i * j->a.step], b[i * j->b.step]);
    }
}

// row by row
bool KERNEL(broadcast_fwd)(const Call *c, ValueFn *value)
{
    Dims s = c->y->dim;
    Job j = {.c = c,
             .a = view_of(c->x[0], s),
             .b = view_of(c->x[1], s),
             .value = value};
    range_run(c, rows(s), 2 * (int64_t)s.c, value_rows, &j);
    return true;
}

/* Adds the gradient of one row of dy: channels first .. first+count-1 to sum[0
 * .. count-1], or all of them to sum[0] when the gradient has one channel. */
static void add_row(const Job *j, int64_t row, int64_t first, int64_t count,
                    bool together, double *sum)
{
    int64_t n = j->c->y->dim.c;
    const real *a = view_row(&j->a, row), *b = view_row(&j->b, row);
    const real *dy = values(j->c->dy) + row * n;
    for (int64_t i = first; i < first + count; i++)
        sum[together ? 0 : i - first] +=
            j->grad(dy[i], a[i * j->a.step], b[i * j->b.step]);
}

/* An item is a row of the gradient, or BLOCK channels of it. If an operand was
 * broadcast along all positions (a bias), there are few items, hence few
 * threads: the price of sums in one order without scratch. */
static void grad_items(void *ctx, int64_t from, int64_t to)
{
    const Job *j = ctx;
    const Tensor *out = j->c->dx[j->operand];
    Dims own = out->dim, all = j->c->y->dim;
    bool fresh = is_fresh(j->c, j->operand), together = own.c != all.c;
    int64_t blocks = ceil_div(own.c, BLOCK);

    // own.c != all.c: one channel, used by all channels of dy
    for (int64_t item = from; item < to; item++) {
        double sum[BLOCK] = {0};
        int64_t row = item / blocks, first = item % blocks * BLOCK;
        int64_t width = least(BLOCK, own.c - first);
        Place p = place(own, row);
        Span n = span(own.n, all.n, p.n), d = span(own.d, all.d, p.d);
        Span h = span(own.h, all.h, p.h), w = span(own.w, all.w, p.w);
        for (int32_t in = n.from; in < n.to; in++)
            for (int32_t id = d.from; id < d.to; id++)
                for (int32_t ih = h.from; ih < h.to; ih++)
                    for (int32_t iw = w.from; iw < w.to; iw++)
                        add_row(j, at(all, in, id, ih, iw) / all.c, first,
                                together ? all.c : width, together, sum);
        real *dx = values(out) + row * own.c + first;
        for (int64_t i = 0; i < width; i++) put(dx + i, sum[i], fresh);
    }
}

// one operand after the other: both gradients may be the same memory
bool KERNEL(broadcast_bwd)(const Call *c, GradFn *const grad[2])
{
    Dims s = c->y->dim;
    // add and sub keep nothing: their operands may be gone, and a constant 1
    // replaces them
    bool kept = op_info[c->attr->op].keep & KEEP_X;
    Job j = {.c = c,
             .a = view_of(kept ? c->x[0] : NULL, s),
             .b = view_of(kept ? c->x[1] : NULL, s)};

    for (j.operand = 0; j.operand < 2; j.operand++) {
        if (!c->dx[j.operand]) continue;
        Dims own = c->dx[j.operand]->dim;
        j.grad = grad[j.operand];
        range_run(c, rows(own) * ceil_div(own.c, BLOCK),
                  2 * least(own.c, BLOCK) * (numel(s) / numel(own)), grad_items,
                  &j);
    }
    return true;
}

// -- sums over axes ----------------------------------------------------------

/* The factor of a sum: 1, or for a mean 1 / the number of its terms. */
static double share_of(const Call *c, const Tensor *sums)
{
    const int64_t terms = numel(c->x[0]->dim) / numel(sums->dim);
    return c->attr->sum.mean ? 1 / (double)terms : 1;
}

/* A sum is the gradient of an operand of add that is repeated along the axes
 * of the sum; `sums` has that operand's extents. */
static double sum_grad(double dy, double a, double b)
{
    (void)a, (void)b;
    return dy;
}

bool KERNEL(sum_fwd)(const Call *c)
{
    GradFn *const grad[2] = {sum_grad, sum_grad};
    const Attr add = op_default(OP_add);
    Tensor x = *c->x[0], sums = *c->y;
    sums.dim = op_reduced_dims(c->attr, x.dim);
    Call of = {.attr = &add, .y = &x, .dy = &x, .dx = {&sums}, .fresh = 1};
    of.dev = c->dev;
    if (!KERNEL(broadcast_bwd)(&of, grad)) return false;
    const double share = share_of(c, &sums);
    real *y = values(&sums);
    for (int64_t i = 0; share != 1 && i < numel(sums.dim); i++)
        y[i] = (real)(y[i] * share);
    return true;
}

static void sum_grad_rows(void *ctx, int64_t from, int64_t to)
{
    const Call *c = ctx;
    Tensor sums = *c->dy;
    sums.dim = op_reduced_dims(c->attr, c->x[0]->dim);
    const View dy = view_of(&sums, c->x[0]->dim);
    const int64_t n = c->x[0]->dim.c;
    const double share = share_of(c, &sums);
    for (int64_t row = from; row < to; row++) {
        const real *g = view_row(&dy, row);
        real *dx = values(c->dx[0]) + row * n;
        for (int64_t i = 0; i < n; i++)
            put(dx + i, share * g[i * dy.step], is_fresh(c, 0));
    }
}

bool KERNEL(sum_bwd)(const Call *c)
{
    const Dims s = c->x[0]->dim;
    if (c->dx[0]) range_run(c, rows(s), s.c, sum_grad_rows, (void *)c);
    return true;
}

// -- the four operators ------------------------------------------------------

// a quotient's second gradient is -dy y / b, written with the kept operands
BROADCAST(add, a + b, dy, dy)
BROADCAST(sub, a - b, dy, -dy)
BROADCAST(mul, a *b, dy *b, dy *a)
BROADCAST(div, a / b, dy / b, -dy *a / b / b)
