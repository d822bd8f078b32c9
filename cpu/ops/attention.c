/* attention.c -- attention by blocks (as FlashAttention), fast: see ops.def.
 *
 * The matrix of all scores is never in memory. A task has ROWS positions of one
 * head and goes over blocks of BLOCK other positions: a product of both, the
 * running softmax (the largest score and the sum so far, by which earlier
 * results are rescaled when they change), a product with the values. The
 * operands of a block are packed for Simd.product. The backward run computes
 * the scores again from the logarithms that the forward run saves, once for the
 * rows of dq and once for those of dk and dv, so that no two tasks add to the
 * same element.
 *
 *     forward   s = q kT,  a = softmax,  y = a v
 *     queries   s = q kT,  da = dy vT,   ds, dq = ds k
 *     keys      s = k qT,  da = v dyT,   ds, dk = ds q,  dv = a dy
 *
 * Blocks begin at position 0 and end at a sample's length, so a result depends
 * on its own sample alone. Source of the running softmax: Milakov and
 * Gimelshein, "Online normalizer calculation for softmax", 2018. */
#include "cpu/conv/panel.h"
#include "cpu/lib/kernels.h"
#include "cpu/lib/thread_pool.h"
#include "engine/graph/attention_dropout.h"
#include "engine/graph/length.h"
#include <math.h>
#include <string.h>

enum { ROWS = 192, BLOCK = 64 }; // of a task; at a time

typedef struct Attention {
    const Call *c;
    const Simd *simd;
    int64_t n, positions, width, heads, depth; // P, E, D = E / heads
    int64_t parts;                             // of ROWS positions
    int64_t transposed, plain, own;            // floats: see Buffers
    float *logs, *means, *private;             // logs, means: (n, heads, P)
    float scale;
    bool drops;
} Attention;

/* Extents only, no addresses. */
static Attention attention_of(const Call *c)
{
    Dims s = c->y->dim;
    Attention m = {.c = c, .simd = simd(), .n = s.n, .width = s.c};
    m.positions = positions(s);
    m.heads = c->attr->attention.heads, m.depth = s.c / m.heads;
    m.parts = ceil_div(m.positions, ROWS);
    m.scale = (float)(1 / sqrt((double)m.depth));
    m.drops = c->train && c->attr->attention.p > 0;
    m.transposed = panel_floats(m.simd, m.depth, BLOCK);
    m.plain = panel_floats(m.simd, BLOCK, m.depth);
    m.own = 2 * (m.transposed + m.plain) + 2 * ROWS * BLOCK + 2 * ROWS;
    return m;
}

/* Rows of all heads of all samples. */
static int64_t lines(const Attention *m)
{
    return m->n * m->heads * m->positions;
}

/* Buffers of a thread: two packed blocks transposed and two as they are; two
 * tables of scores; the largest score and the sum of each row. */
typedef struct Buffers {
    float *transposed[2], *plain[2], *score[2], *most, *sum;
} Buffers;

static Buffers buffers_of(const Attention *m, int thread)
{
    Buffers r;
    float *at = m->private + thread * m->own;
    for (int i = 0; i < 2; i++, at += m->transposed) r.transposed[i] = at;
    for (int i = 0; i < 2; i++, at += m->plain) r.plain[i] = at;
    for (int i = 0; i < 2; i++, at += ROWS * BLOCK) r.score[i] = at;
    r.most = at, r.sum = at + ROWS;
    return r;
}

// the means of the backward run, then the buffers of the threads
static size_t scratch_bytes(const Attention *m, bool back)
{
    int64_t means = back ? round_up(lines(m), LANES_MAX) : 0;
    int64_t threads = most(1, m->c->threads);
    return (size_t)(means + threads * m->own) * sizeof(float);
}

Space cpu_attention_space(const Call *c)
{
    Attention m = attention_of(c);
    Space s = {.fwd = scratch_bytes(&m, false), .bwd = scratch_bytes(&m, true)};
    if (c->dy) s.saved = (size_t)lines(&m) * sizeof(float);
    return s;
}

/* One head of one sample, and the rows of a task in it. */
typedef struct Part {
    int64_t n, head, count; // positions within the sample's length
    int64_t from, rows;     // the task's part of them; may be none
    const float *q, *k, *v; // of position 0; rows are 3 E apart
    int64_t out, line;      // of position 0: in y and dy; in logs, means
    Rng rng;
} Part;

static Part part_of(const Attention *m, int64_t task)
{
    const Call *c = m->c;
    Part p = {.from = task % m->parts * ROWS};
    p.head = task / m->parts % m->heads;
    p.n = task / m->parts / m->heads;
    p.count = length_of(c->x[1], p.n, m->positions);
    p.rows = most(0, least(ROWS, p.count - p.from));
    p.q = (const float *)c->x[0]->data + p.n * m->positions * 3 * m->width +
          p.head * m->depth;
    p.k = p.q + m->width, p.v = p.k + m->width;
    p.out = p.n * m->positions * m->width + p.head * m->depth;
    p.line = (p.n * m->heads + p.head) * m->positions;
    p.rng = attend_rng(c->step->seed, c->step->count, c->node,
                       sample_number(c, p.n), (int)m->heads, (int)p.head);
    return p;
}

/* Packs `count` positions of x, ld floats apart, for a product over channels
 * (transposed) or over positions (plain). */
static void pack_transposed(const Attention *m, const float *x, int64_t ld,
                            int64_t count, float *to)
{
    Matrix t = {x, m->depth, count, 1, ld};
    panel_pack_all(m->simd, &t, to);
}

static void pack_plain(const Attention *m, const float *x, int64_t ld,
                       int64_t count, float *to)
{
    Matrix t = {x, count, m->depth, ld, 1};
    panel_pack_all(m->simd, &t, to);
}

/* score (rows, BLOCK) = x (rows, D), ld apart, times a transposed block. */
static void scores(const Attention *m, const float *x, int64_t ld, int64_t rows,
                   const float *transposed, int64_t count, float *score)
{
    PanelRows r = {x, score, ld, BLOCK, rows, false};
    panel_multiply(m->simd, transposed, m->depth, count, &r);
}

/* y (rows, D), ld apart, = or += score (rows, BLOCK) times a plain block. */
static void values(const Attention *m, const float *score, int64_t rows,
                   const float *plain, int64_t count, float *y, int64_t ld,
                   bool add)
{
    PanelRows r = {score, y, BLOCK, ld, rows, add};
    panel_multiply(m->simd, plain, count, m->depth, &r);
}

/* Applies dropout: multiplies score[i][j] by the factor of query row+i and key
 * col+j, or with `keys` of key row+i and query col+j. */
static void drop(const Attention *m, const Part *p, float *score, int64_t row,
                 int64_t rows, int64_t col, int64_t cols, bool keys)
{
    float share = m->c->attr->attention.p, draw[ATTEND_DRAWS];
    float factor = share < 1 ? (float)(1 / (1 - (double)share)) : 0;

    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++) {
            int64_t query = keys ? col + j : row + i;
            int64_t key = keys ? row + i : col + j;
            // ATTEND_DRAWS neighbouring keys share one call of the generator
            if (keys || key % ATTEND_DRAWS == 0)
                attend_draw(&p->rng, (uint32_t)query,
                            (uint32_t)(key / ATTEND_DRAWS), draw);
            float *at = score + i * BLOCK + j;
            *at = draw[key % ATTEND_DRAWS] < share ? 0 : *at * factor;
        }
}

/* Clears the task's positions beyond the length in x, rows ld apart. */
static void clear(const Attention *m, const Part *p, float *x, int64_t ld)
{
    int64_t end = least(p->from + ROWS, m->positions);
    for (int64_t i = p->from + p->rows; i < end; i++)
        memset(x + i * ld, 0, (size_t)m->depth * sizeof *x);
}

/* Forward: rows of queries. */
static void forward(void *ctx, int64_t task, int thread)
{
    const Attention *m = ctx;
    Buffers r = buffers_of(m, thread);
    Part p = part_of(m, task);
    const int64_t ld = 3 * m->width;
    float *y = (float *)m->c->y->data + p.out, *own = y + p.from * m->width;

    for (int64_t i = 0; i < p.rows; i++) r.most[i] = -INFINITY, r.sum[i] = 0;
    for (int64_t j = 0; p.rows && j < p.count; j += BLOCK) {
        int64_t count = least(BLOCK, p.count - j);
        pack_transposed(m, p.k + j * ld, ld, count, r.transposed[0]);
        pack_plain(m, p.v + j * ld, ld, count, r.plain[0]);
        scores(m, p.q + p.from * ld, ld, p.rows, r.transposed[0], count,
               r.score[0]);
        for (int64_t i = 0; i < p.rows; i++) {
            float factor = m->simd->attend_row(r.score[0] + i * BLOCK, count,
                                               m->scale, &r.most[i], &r.sum[i]);
            float *at = own + i * m->width;
            if (j && factor != 1) m->simd->times(at, m->depth, factor, at);
        }
        if (m->drops) drop(m, &p, r.score[0], p.from, p.rows, j, count, false);
        values(m, r.score[0], p.rows, r.plain[0], count, own, m->width, j > 0);
    }

    for (int64_t i = 0; i < p.rows; i++) {
        float *at = own + i * m->width;
        m->simd->times(at, m->depth, 1 / r.sum[i], at);
        if (m->logs) m->logs[p.line + p.from + i] = r.most[i] + logf(r.sum[i]);
    }
    clear(m, &p, y, m->width);
}

/* Sets the addresses in scratch and saved. */
static Attention begin(const Call *c, bool back)
{
    Attention m = attention_of(c);
    m.logs = c->saved;
    m.private = c->scratch;
    if (!back) return m;
    m.means = c->scratch;
    m.private += round_up(lines(&m), LANES_MAX);
    return m;
}

bool cpu_attention_fwd(const Call *c)
{
    Attention m = begin(c, false);
    pool_run(c->dev, m.n * m.heads * m.parts, forward, &m);
    return true;
}

/* means[p] = dy[p] y[p], summed in double: a difference of large numbers
 * follows. */
static void mean(void *ctx, int64_t task, int thread)
{
    const Attention *m = ctx;
    Part p = part_of(m, task);
    (void)thread;
    for (int64_t i = p.from; i < p.from + p.rows; i++) {
        const float *y = (const float *)m->c->y->data + p.out + i * m->width;
        const float *dy = (const float *)m->c->dy->data + p.out + i * m->width;
        double sum = 0;
        for (int64_t d = 0; d < m->depth; d++) sum += (double)y[d] * dy[d];
        m->means[p.line + i] = (float)sum;
    }
}

/* Backward: rows of dq. */
static void queries(const Attention *m, const Part *p, const Buffers *r,
                    float *dq)
{
    const int64_t ld = 3 * m->width;
    const float *dy = (const float *)m->c->dy->data + p->out;

    for (int64_t j = 0; j < p->count; j += BLOCK) {
        int64_t count = least(BLOCK, p->count - j);
        pack_transposed(m, p->k + j * ld, ld, count, r->transposed[0]);
        pack_transposed(m, p->v + j * ld, ld, count, r->transposed[1]);
        pack_plain(m, p->k + j * ld, ld, count, r->plain[0]);
        scores(m, p->q + p->from * ld, ld, p->rows, r->transposed[0], count,
               r->score[0]);
        scores(m, dy + p->from * m->width, m->width, p->rows, r->transposed[1],
               count, r->score[1]);
        if (m->drops)
            drop(m, p, r->score[1], p->from, p->rows, j, count, false);
        for (int64_t i = 0; i < p->rows; i++) {
            int64_t line = p->line + p->from + i;
            m->simd->attend_grad(r->score[0] + i * BLOCK,
                                 r->score[1] + i * BLOCK, count, m->scale,
                                 m->logs + line, m->means + line, 0);
        }
        values(m, r->score[1], p->rows, r->plain[0], count, dq + p->from * ld,
               ld, j > 0 || !(m->c->fresh & 1));
    }
}

/* Backward: rows of dk and dv; blocks are of queries. */
static void keys(const Attention *m, const Part *p, const Buffers *r, float *dk,
                 float *dv)
{
    const int64_t ld = 3 * m->width;
    const float *dy = (const float *)m->c->dy->data + p->out;

    for (int64_t i = 0; i < p->count; i += BLOCK) {
        int64_t count = least(BLOCK, p->count - i);
        bool add = i > 0 || !(m->c->fresh & 1);
        pack_transposed(m, p->q + i * ld, ld, count, r->transposed[0]);
        pack_transposed(m, dy + i * m->width, m->width, count,
                        r->transposed[1]);
        pack_plain(m, p->q + i * ld, ld, count, r->plain[0]);
        pack_plain(m, dy + i * m->width, m->width, count, r->plain[1]);
        scores(m, p->k + p->from * ld, ld, p->rows, r->transposed[0], count,
               r->score[0]);
        scores(m, p->v + p->from * ld, ld, p->rows, r->transposed[1], count,
               r->score[1]);
        if (m->drops) drop(m, p, r->score[1], p->from, p->rows, i, count, true);
        for (int64_t j = 0; j < p->rows; j++)
            m->simd->attend_grad(
                r->score[0] + j * BLOCK, r->score[1] + j * BLOCK, count,
                m->scale, m->logs + p->line + i, m->means + p->line + i, 1);
        if (m->drops) drop(m, p, r->score[0], p->from, p->rows, i, count, true);
        values(m, r->score[1], p->rows, r->plain[0], count, dk + p->from * ld,
               ld, add);
        values(m, r->score[0], p->rows, r->plain[1], count, dv + p->from * ld,
               ld, add);
    }
}

static void backward(void *ctx, int64_t task, int thread)
{
    const Attention *m = ctx;
    Buffers r = buffers_of(m, thread);
    Part p = part_of(m, task);
    float *dq = (float *)m->c->dx[0]->data + p.n * m->positions * 3 * m->width +
                p.head * m->depth;
    if (p.rows) {
        queries(m, &p, &r, dq);
        keys(m, &p, &r, dq + m->width, dq + 2 * m->width);
    }
    for (int k = 0; k < 3 && m->c->fresh & 1; k++)
        clear(m, &p, dq + k * m->width, 3 * m->width);
}

bool cpu_attention_bwd(const Call *c)
{
    if (!c->dx[0]) return true;
    Attention m = begin(c, true);
    pool_run(c->dev, m.n * m.heads * m.parts, mean, &m);
    pool_run(c->dev, m.n * m.heads * m.parts, backward, &m);
    return true;
}
