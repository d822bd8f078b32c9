/* attention.c -- self-attention over the positions within the length; see
 * ops.def.
 *
 *     s[p,j] = q[p] k[j] / sqrt(D),  a[p,:] = softmax over j,  y[p] = sum_j
 *     m[p,j] a[p,j] v[j]
 *
 * for each head; m are the factors of dropout. Saved: log sum_j exp(s[p,j]) of
 * each row (N, heads, P), from which the backward run computes a[p,j] again:
 *
 *     da = m (dy[p] v[j]),  ds = a (da - dy[p] y[p])
 *     dq[p] = sum_j ds k[j] / sqrt(D),  dk[j] = sum_p ds q[p] / sqrt(D)
 *     dv[j] = sum_p m a dy[p]
 *
 * A task is a row of one head and sums in order; its sums are in scratch, in
 * double. */
#include "cpu/lib/plain.h"
#include "engine/graph/attention_dropout.h"
#include "engine/graph/length.h"

/* Extents of a call, and one head of one sample. */
typedef struct Head {
    const Call *c;
    int64_t positions, width, depth; /* P, E, D */
    int64_t n, head, count;          /* positions within the length */
    const real *q, *k, *v;           /* of position 0; rows are 3 E apart */
    double scale;
    Rng rng;
    bool drops;
    float p;
    double factor;
} Head;

/* Head number i of all samples. */
static Head head_of(const Call *c, int64_t i)
{
    Dims s = c->y->dim;
    int heads = c->attr->attention.heads;
    Head h = {.c = c, .positions = positions(s), .width = s.c};

    h.depth = s.c / heads;
    h.n = i / heads, h.head = i % heads;
    h.count = length_of(c->x[1], h.n, h.positions);
    h.q = values(c->x[0]) + h.n * h.positions * 3 * s.c + h.head * h.depth;
    h.k = h.q + s.c, h.v = h.k + s.c;
    h.scale = 1 / sqrt((double)h.depth);
    h.p = c->attr->attention.p;
    h.drops = c->train && h.p > 0;
    h.factor = h.p < 1 ? 1 / (1 - (double)h.p) : 0;
    h.rng = attend_rng(c->step->seed, c->step->count, c->node,
                       sample_number(c, h.n), heads, (int)h.head);
    return h;
}

static double score(const Head *h, int64_t p, int64_t j)
{
    return h->scale *
           dot(h->q + p * 3 * h->width, h->k + j * 3 * h->width, h->depth);
}

/* m[p,j]; draw: the current block of draws, kept from key to key. */
static double kept(const Head *h, int64_t p, int64_t j,
                   float draw[ATTEND_DRAWS], bool first)
{
    if (!h->drops) return 1;
    if (first || j % ATTEND_DRAWS == 0)
        attend_draw(&h->rng, (uint32_t)p, (uint32_t)(j / ATTEND_DRAWS), draw);
    return draw[j % ATTEND_DRAWS] >= h->p ? h->factor : 0;
}

/* Index of row p of head h in y, dy and (N,P,E) of scratch. */
static int64_t row_of(const Head *h, int64_t p)
{
    return (h->n * h->positions + p) * h->width + h->head * h->depth;
}

/* Address of the saved logarithm of row p, or NULL. */
static real *saved_of(const Head *h, int64_t p)
{
    int64_t heads = h->width / h->depth;
    real *all = h->c->saved;
    return all ? all + (h->n * heads + h->head) * h->positions + p : NULL;
}

Space KERNEL(attention_space)(const Call *c)
{
    Dims s = c->y->dim;
    int64_t lines = s.n * c->attr->attention.heads * positions(s);
    return (Space){.saved = c->dy ? (size_t)lines * sizeof(real) : 0,
                   .fwd = (size_t)numel(s) * sizeof(double),
                   .bwd = (size_t)numel(c->x[0]->dim) * sizeof(double)};
}

/* Forward: row p, in two passes over the keys. */
static void forward_row(const Head *h, int64_t p)
{
    const Call *c = h->c;
    real *y = values(c->y) + row_of(h, p);
    double *sum = (double *)c->scratch + row_of(h, p), max = -INFINITY, all = 0;
    float draw[ATTEND_DRAWS];

    for (int64_t d = 0; d < h->depth; d++) sum[d] = 0;
    for (int64_t j = 0; j < h->count && p < h->count; j++)
        max = fmax(max, score(h, p, j));

    for (int64_t j = 0; j < h->count && p < h->count; j++) {
        double e = exp(score(h, p, j) - max);
        all += e;
        axpy(sum, e * kept(h, p, j, draw, false), h->v + j * 3 * h->width,
             h->depth);
    }

    for (int64_t d = 0; d < h->depth; d++)
        y[d] = (real)(p < h->count ? sum[d] / all : 0);
    if (c->saved) *saved_of(h, p) = (real)(p < h->count ? max + log(all) : 0);
}

/* The weights with which one pair of positions enters the gradients. */
typedef struct Pair {
    double weight, grad; /* m a; ds / sqrt(D) */
} Pair;

/* mean: dy[p] y[p]. */
static Pair pair(const Head *h, int64_t p, int64_t j, double mean, double m)
{
    const real *dy = values(h->c->dy) + row_of(h, p);
    double a = exp(score(h, p, j) - *saved_of(h, p));
    double da = m * dot(dy, h->v + j * 3 * h->width, h->depth);
    return (Pair){m * a, a * (da - mean) * h->scale};
}

static double mean_of(const Head *h, int64_t p)
{
    return dot(values(h->c->dy) + row_of(h, p), values(h->c->y) + row_of(h, p),
               h->depth);
}

/* Backward: row p of dq, dk and dv. Each task sums over all queries and all
 * keys, so no two tasks add to the same element, at the price of computing each
 * pair twice. */
static void backward_row(const Head *h, int64_t p)
{
    const Call *c = h->c;
    int64_t row = 3 * row_of(h, p) - 2 * h->head * h->depth;
    double *dq = (double *)c->scratch + row, *dk = dq + h->width,
           *dv = dk + h->width;
    float draw[ATTEND_DRAWS];

    for (int64_t d = 0; d < h->depth; d++) dq[d] = dk[d] = dv[d] = 0;
    double mean = mean_of(h, p);
    for (int64_t j = 0; j < h->count && p < h->count; j++) {
        Pair at = pair(h, p, j, mean, kept(h, p, j, draw, false));
        axpy(dq, at.grad, h->k + j * 3 * h->width, h->depth);
    }
    for (int64_t i = 0; i < h->count && p < h->count; i++) {
        Pair at = pair(h, i, p, mean_of(h, i), kept(h, i, p, draw, true));
        axpy(dk, at.grad, h->q + i * 3 * h->width, h->depth);
        axpy(dv, at.weight, values(c->dy) + row_of(h, i), h->depth);
    }

    real *dx = values(c->dx[0]) + row;
    for (int k = 0; k < 3; k++)
        for (int64_t d = 0; d < h->depth; d++)
            put(&dx[k * h->width + d], dq[k * h->width + d], is_fresh(c, 0));
}

/* Rows from .. to-1 of all heads of all samples. */
static void forward(void *ctx, int64_t from, int64_t to)
{
    const Call *c = ctx;
    int64_t count = positions(c->y->dim);
    for (int64_t i = from; i < to; i++) {
        Head h = head_of(c, i / count);
        forward_row(&h, i % count);
    }
}

static void backward(void *ctx, int64_t from, int64_t to)
{
    const Call *c = ctx;
    int64_t count = positions(c->y->dim);
    for (int64_t i = from; i < to; i++) {
        Head h = head_of(c, i / count);
        backward_row(&h, i % count);
    }
}

/* `reads`: reads of D channels for each pair of positions. */
static void run(const Call *c, RangeFn *fn, int reads)
{
    Dims s = c->y->dim;
    int heads = c->attr->attention.heads;
    range_run(c, s.n * heads * positions(s),
              reads * positions(s) * (s.c / heads), fn, (void *)c);
}

bool KERNEL(attention_fwd)(const Call *c)
{
    run(c, forward, 3);
    return true;
}

bool KERNEL(attention_bwd)(const Call *c)
{
    if (c->dx[0]) run(c, backward, 8);
    return true;
}
