/* norm_layer.c -- layer_norm: each row is normalised by itself, with channels
 * along the vectors.
 *
 * Some rows are processed together: their sums are independent chains that hide
 * each other's latency, and the values of a channel (gamma, beta, its
 * gradients) are loaded and stored once for all of them. Forward makes three
 * passes over a row and backward two, in L1 from the second pass on: bound by
 * memory, with few channels by the sums across lanes and the square root of
 * every row.
 *
 * As in norm_batch.c, squared deviations are from a rounded mean, and the
 * result is corrected in double. The bits of a row do not depend on the other
 * rows. */
#include "cpu/simd/vec.h"

/* ROWS: rows that are processed together. Backward has two sums and three
 * constants of each, and sums and constants of the channels, in registers.
 * SPAN: channels with a sum in float; sums of further ones are added in
 * double. */
enum { ROWS = REGISTERS == 32 ? 4 : 2, SPAN = 256 * LANES };

INLINE int64_t span_end(int64_t from, int64_t channels)
{
    return from + SPAN < channels ? from + SPAN : channels;
}

// -- forward ------------------------------------------------------------------

/* First pass: sums of n rows, each rounded to a float in the end. */
INLINE void add_values(const float *x, int64_t ldx, int n, int rest, V *sum)
{
    UNROLL for (int j = 0; j < n; j++) sum[j] += v_get(x + j * ldx, rest);
}

/* Second pass: sums of d = x - about and of d^2. */
INLINE void add_squares(const float *x, int64_t ldx, int n, int rest,
                        const V *about, V *off, V *square)
{
    UNROLL for (int j = 0; j < n; j++)
    {
        V d = v_get(x + j * ldx, rest) - about[j];
        // a lane beyond the row counts as d = 0
        if (rest) d = v_select(v_first(rest), d, v_zero());
        off[j] += d;
        square[j] = v_fma(d, d, square[j]);
    }
}

/* Mean and rstd of n rows from row `row` on. With d = x - about, the exact mean
 * is about + bar(d), and the squared deviations from it are sum d^2 - sum d
 * bar(d). */
INLINE void row_stats(const RowNorm *r, int64_t row, int n)
{
    const int64_t wide = r->channels;
    const float *x = r->x + row * wide;
    double sum[ROWS] = {0}, off[ROWS] = {0}, square[ROWS] = {0};
    V about[ROWS], s[ROWS], t[ROWS];

    for (int64_t at = 0; at < wide; at += SPAN) {
        UNROLL for (int j = 0; j < n; j++) s[j] = v_zero();
#define BODY(c, rest) add_values(x + (c), wide, n, rest, s)
        FOR_VECTORS(at, span_end(at, wide), BODY);
#undef BODY
        UNROLL for (int j = 0; j < n; j++) sum[j] += v_sum(s[j]);
    }

    UNROLL for (int j = 0; j < n; j++) about[j] =
        v_set((float)(sum[j] / (double)wide));

    for (int64_t at = 0; at < wide; at += SPAN) {
        UNROLL for (int j = 0; j < n; j++) s[j] = t[j] = v_zero();
#define BODY(c, rest) add_squares(x + (c), wide, n, rest, about, s, t)
        FOR_VECTORS(at, span_end(at, wide), BODY);
#undef BODY
        UNROLL for (int j = 0; j < n; j++)
        {
            off[j] += v_sum(s[j]);
            square[j] += v_sum(t[j]);
        }
    }

    for (int j = 0; j < n; j++) {
        double bar = off[j] / (double)wide, m2 = square[j] - off[j] * bar;
        double mean = (double)about[j][0] + bar;
        // below 0 by rounding only; with this comparison NaN stays
        if (m2 < 0) m2 = 0;
        r->hi[row + j] = (float)mean;
        r->lo[row + j] = (float)(mean - (double)r->hi[row + j]);
        r->rstd[row + j] = (float)(1 / sqrt(m2 / (double)wide + r->eps));
    }
}

/* Constants of n rows, in all lanes. */
typedef struct Rows {
    V hi[ROWS], lo[ROWS], rstd[ROWS];
} Rows;

INLINE Rows rows_at(const RowNorm *r, int64_t row, int n)
{
    Rows v;
    UNROLL for (int j = 0; j < n; j++)
    {
        v.hi[j] = v_set(r->hi[row + j]);
        v.lo[j] = v_set(r->lo[row + j]);
        v.rstd[j] = v_set(r->rstd[row + j]);
    }
    return v;
}

/* Third pass: y of a vector of channels of n rows. */
INLINE void apply(const RowNorm *r, const Rows *v, int64_t at, int64_t c, int n,
                  int rest, bool affine, float *y)
{
    V gamma = v_zero(), beta = v_zero();
    if (affine)
        gamma = v_get(r->gamma + c, rest), beta = v_get(r->beta + c, rest);
    UNROLL for (int j = 0; j < n; j++)
    {
        const int64_t i = at + j * r->channels + c;
        V x_hat = (v_get(r->x + i, rest) - v->hi[j] - v->lo[j]) * v->rstd[j];
        v_put(y + i, rest, affine ? v_fma(x_hat, gamma, beta) : x_hat);
    }
}

INLINE void forward(const RowNorm *r, int64_t row, int n, bool affine, float *y)
{
    row_stats(r, row, n);
    const Rows v = rows_at(r, row, n);
#define BODY(c, rest) apply(r, &v, row * r->channels, c, n, rest, affine, y)
    FOR_VECTORS(0, r->channels, BODY);
#undef BODY
}

INLINE void forward_all(const RowNorm *r, bool affine, float *y)
{
    int64_t row = 0;
    for (; row + ROWS <= r->rows; row += ROWS) forward(r, row, ROWS, affine, y);
    for (; row < r->rows; row++) forward(r, row, 1, affine, y);
}

void ISA_NAME(row_norm)(const RowNorm *r, float *y);
void ISA_NAME(row_norm)(const RowNorm *r, float *y)
{
    if (r->gamma)
        forward_all(r, true, y);
    else
        forward_all(r, false, y);
}

// -- backward -----------------------------------------------------------------

/* Adds to the sums of u = dy gamma and of u (x - mean) of each row and, with
 * `parts`, to the sums of dy and dy x_hat of each channel in p. */
INLINE void add_grads(const RowNorm *r, const RowGrad *p, const Rows *v,
                      int64_t at, int64_t c, int n, int rest, bool affine,
                      bool parts, V *s, V *t)
{
    V gamma = v_zero(), dgamma = v_zero(), dbeta = v_zero();
    if (affine) gamma = v_get(r->gamma + c, rest);
    if (parts) dgamma = v_get(p->dgamma + c, rest);
    if (parts) dbeta = v_get(p->dbeta + c, rest);
    UNROLL for (int j = 0; j < n; j++)
    {
        const int64_t i = at + j * r->channels + c;
        V d = v_get(r->x + i, rest) - v->hi[j] - v->lo[j];
        V dy = v_get(p->dy + i, rest), u = affine ? dy * gamma : dy;
        s[j] += u;
        t[j] = v_fma(u, d, t[j]);
        if (!parts) continue;
        dbeta += dy;
        dgamma = v_fma(dy, d * v->rstd[j], dgamma);
    }
    if (!parts) return;
    v_put(p->dgamma + c, rest, dgamma);
    v_put(p->dbeta + c, rest, dbeta);
}

/* dx = rstd (u - bar(u) - (x - mean) tilt), tilt = rstd bar(u x_hat). Computed
 * in this order dx of a single channel is exactly 0. */
INLINE void grad(const RowNorm *r, const RowGrad *p, const Rows *v,
                 const V *bar, const V *tilt, int64_t at, int64_t c, int n,
                 int rest, bool affine)
{
    V gamma = v_zero();
    if (affine) gamma = v_get(r->gamma + c, rest);
    UNROLL for (int j = 0; j < n; j++)
    {
        const int64_t i = at + j * r->channels + c;
        V d = v_get(r->x + i, rest) - v->hi[j] - v->lo[j];
        V u = v_get(p->dy + i, rest);
        if (affine) u *= gamma;
        u = (u - bar[j] - d * tilt[j]) * v->rstd[j];
        if (p->add) u += v_get(p->dx + i, rest);
        v_put(p->dx + i, rest, u);
    }
}

INLINE void backward(const RowNorm *r, const RowGrad *p, int64_t row, int n,
                     bool affine, bool parts)
{
    const int64_t wide = r->channels, begin = row * wide;
    const Rows v = rows_at(r, row, n);
    double sum[ROWS] = {0}, dot[ROWS] = {0};
    V s[ROWS], t[ROWS];
    for (int64_t at = 0; at < wide; at += SPAN) {
        UNROLL for (int j = 0; j < n; j++) s[j] = t[j] = v_zero();
#define BODY(c, rest) \
    add_grads(r, p, &v, begin, c, n, rest, affine, parts, s, t)
        FOR_VECTORS(at, span_end(at, wide), BODY);
#undef BODY
        UNROLL for (int j = 0; j < n; j++)
        {
            sum[j] += v_sum(s[j]);
            dot[j] += v_sum(t[j]);
        }
    }
    if (!p->dx) return;
    UNROLL for (int j = 0; j < n; j++)
    {
        double rstd = r->rstd[row + j];
        s[j] = v_set((float)(sum[j] / (double)wide));
        t[j] = v_set((float)(rstd * rstd * dot[j] / (double)wide));
    }
#define BODY(c, rest) grad(r, p, &v, s, t, begin, c, n, rest, affine)
    FOR_VECTORS(0, wide, BODY);
#undef BODY
}

INLINE void backward_all(const RowNorm *r, const RowGrad *p, bool affine,
                         bool parts)
{
    int64_t row = 0;
    for (; row + ROWS <= r->rows; row += ROWS)
        backward(r, p, row, ROWS, affine, parts);
    for (; row < r->rows; row++) backward(r, p, row, 1, affine, parts);
}

void ISA_NAME(row_norm_grad)(const RowNorm *r, const RowGrad *p);
void ISA_NAME(row_norm_grad)(const RowNorm *r, const RowGrad *p)
{
    if (p->dgamma) {
        memset(p->dgamma, 0, (size_t)r->channels * sizeof *p->dgamma);
        memset(p->dbeta, 0, (size_t)r->channels * sizeof *p->dbeta);
        backward_all(r, p, true, true);
    } else if (r->gamma) {
        backward_all(r, p, true, false);
    } else {
        backward_all(r, p, false, false);
    }
}
