/* broadcast.c -- add, sub, mul, div of operands with equal extents or 1.
 *
 * A gradient sums over the axes along which its operand was repeated. Each
 * element of it belongs to one task, which walks the rows of dy in memory
 * order; so the sum has one order, whatever the number of threads. */
#include "cpu/ref/view.h"

/* A result from a and b, or the part of a gradient from dy, a and b. */
typedef double ValueFn(double a, double b);
typedef double GradFn(double dy, double a, double b);

typedef struct Job {
    const Call *c;
    View a, b;      // operands 0 and 1, seen as the result
    ValueFn *value; // forward
    GradFn *slope;  // backward, of `operand`
    int operand;
} Job;

/* Channels of a row of the gradient that are summed together. */
enum { BLOCK = 64 };

/* Rows of y; View takes care of who is repeated. The four functions are called
 * through a pointer, an element each: where extents are equal, cpu/ops/add.c
 * and cpu/ops/mul.c do better. */
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

/* y = value(a, b), row by row. */
static bool broadcast_fwd(const Call *c, ValueFn *value)
{
    Dims s = c->y->dim;
    Job j = {.c = c,
             .a = view_of(c->x[0], s),
             .b = view_of(c->x[1], s),
             .value = value};
    range_run(c, rows(s), 2 * (int64_t)s.c, value_rows, &j);
    return true;
}

/* Add one row of dy: its channels first .. first+count-1 to sum[0 ..
 * count-1], or all of them to sum[0] when the gradient has one channel. */
static void add_row(const Job *j, int64_t row, int64_t first, int64_t count,
                    bool together, double *sum)
{
    int64_t n = j->c->y->dim.c;
    const real *a = view_row(&j->a, row), *b = view_row(&j->b, row);
    const real *dy = values(j->c->dy) + row * n;
    for (int64_t i = first; i < first + count; i++)
        sum[together ? 0 : i - first] +=
            j->slope(dy[i], a[i * j->a.step], b[i * j->b.step]);
}

/* Extent `own` of an operand against `all` of the result: from one place of
 * it, to how many. */
typedef struct Span {
    int32_t from, to;
} Span;

/* Where `all` results came from one place of the operand, all of them. */
static Span span(int32_t own, int32_t all, int32_t place)
{
    return own == all ? (Span){place, place + 1} : (Span){0, all};
}

/* An item is a row of the gradient, or BLOCK channels of it. Where an operand
 * was repeated everywhere (a bias) this is few items, hence few threads: the
 * price of sums with one order and no scratch. */
static void grad_items(void *ctx, int64_t from, int64_t to)
{
    const Job *j = ctx;
    const Tensor *out = j->c->dx[j->operand];
    Dims own = out->dim, all = j->c->y->dim;
    bool fresh = is_fresh(j->c, j->operand), together = own.c != all.c;
    int64_t blocks = ceil_div(own.c, BLOCK);
    // own.c != all.c: one channel that all of dy's channels used
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

/* The operands one after the other: both gradients may be one block. */
static bool broadcast_bwd(const Call *c, GradFn *const slope[2])
{
    Dims s = c->y->dim;
    // add and sub keep nothing: their operands may be gone, and 1 stands in
    bool kept = op_info[c->attr->op].keep & KEEP_X;
    Job j = {.c = c,
             .a = view_of(kept ? c->x[0] : NULL, s),
             .b = view_of(kept ? c->x[1] : NULL, s)};
    for (j.operand = 0; j.operand < 2; j.operand++) {
        if (!c->dx[j.operand]) continue;
        Dims own = c->dx[j.operand]->dim;
        j.slope = slope[j.operand];
        range_run(c, rows(own) * ceil_div(own.c, BLOCK),
                  2 * least(own.c, BLOCK) * (numel(s) / numel(own)), grad_items,
                  &j);
    }
    return true;
}

// -- the four rows -----------------------------------------------------------

/* name, result, parts of the two gradients; a quotient's second is
 * -dy y / b, written with what the row keeps, its operands */
#define BROADCAST(name, result, part0, part1)                  \
    static double name##_value(double a, double b)             \
    {                                                          \
        return result;                                         \
    }                                                          \
    static double name##_grad0(double dy, double a, double b)  \
    {                                                          \
        (void)a, (void)b;                                      \
        return part0;                                          \
    }                                                          \
    static double name##_grad1(double dy, double a, double b)  \
    {                                                          \
        (void)a, (void)b;                                      \
        return part1;                                          \
    }                                                          \
    bool KERNEL(name##_fwd)(const Call *c)                     \
    {                                                          \
        return broadcast_fwd(c, name##_value);                 \
    }                                                          \
    bool KERNEL(name##_bwd)(const Call *c)                     \
    {                                                          \
        GradFn *const slope[2] = {name##_grad0, name##_grad1}; \
        return broadcast_bwd(c, slope);                        \
    }

BROADCAST(add, a + b, dy, dy)
BROADCAST(sub, a - b, dy, -dy)
BROADCAST(mul, a *b, dy *b, dy *a)
BROADCAST(div, a / b, dy / b, -dy *a / b / b)
