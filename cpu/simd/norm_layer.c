/* norm_layer.c -- layer_norm: rows that are normalised each by itself,
 * channels along the vectors.
 *
 * Some rows go side by side: their sums are chains that hide each other's
 * latency, and what belongs to a channel (gamma, beta, its gradients) is
 * loaded and stored once for all of them. A row is looked at three times
 * forward and twice back, in the first cache from the second look on: bound
 * by memory, with few channels by the sums across lanes and the root that
 * every row costs.
 *
 * As in norm_batch.c squares are of distances from a rounded mean, and what
 * that misses is made good in double. The bits of a row do not depend on the
 * rows beside it. */
#include "cpu/simd/vec.h"

/* Rows side by side: backward has two sums and three constants of each, and
 * sums and constants of the channels, in registers. SPAN: channels whose sum
 * is a float; further ones are added in double. */
enum { X2 = REGISTERS == 32 ? 4 : 2, SPAN = 256 * LANES };

INLINE int64_t span_end(int64_t from, int64_t channels)
{
    return from + SPAN < channels ? from + SPAN : channels;
}

// -- forward ------------------------------------------------------------------

/* The first look: sums of n rows, each rounded to a float in the end. */
INLINE void add_values(const float *x, int64_t ldx, int n, int rest, V *sum)
{
    UNROLL for (int j = 0; j < n; j++) sum[j] += v_get(x + j * ldx, rest);
}

/* The second: of d = x - about and of d^2. */
INLINE void add_squares(const float *x, int64_t ldx, int n, int rest,
                        const V *about, V *off, V *square)
{
    UNROLL for (int j = 0; j < n; j++)
    {
        V d = v_get(x + j * ldx, rest) - about[j];
        // a lane that is not there is 0, which is no distance from the mean
        if (rest) d = v_select(v_first(rest), d, v_zero());
        off[j] += d;
        square[j] = v_fma(d, d, square[j]);
    }
}

/* Mean and rstd of n rows from row `row` on: with d = x - about the exact mean
 * is about + bar(d), the squares about it are sum d^2 - sum d bar(d). */
INLINE void row_stats(const RowNorm *r, int64_t row, int n)
{
    const int64_t wide = r->channels;
    const float *x = r->x + row * wide;
    double sum[X2] = {0}, off[X2] = {0}, square[X2] = {0};
    V about[X2], s[X2], t[X2];
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
        // below 0 by rounding only; asked this way NaN stays
        if (m2 < 0) m2 = 0;
        r->hi[row + j] = (float)mean;
        r->lo[row + j] = (float)(mean - (double)r->hi[row + j]);
        r->rstd[row + j] = (float)(1 / sqrt(m2 / (double)wide + r->eps));
    }
}

/* Constants of n rows, in all lanes. */
typedef struct Rows {
    V hi[X2], lo[X2], rstd[X2];
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

/* The third look: y of a vector of channels of n rows. */
INLINE void apply(const RowNorm *r, const Rows *v, int64_t at, int64_t c, int n,
                  int rest, bool affine, float *y)
{
    V gamma = v_zero(), beta = v_zero();
    if (affine)
        gamma = v_get(r->gamma + c, rest), beta = v_get(r->beta + c, rest);
    UNROLL for (int j = 0; j < n; j++)
    {
        const int64_t i = at + j * r->channels + c;
        V z = (v_get(r->x + i, rest) - v->hi[j] - v->lo[j]) * v->rstd[j];
        v_put(y + i, rest, affine ? v_fma(z, gamma, beta) : z);
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
    for (; row + X2 <= r->rows; row += X2) forward(r, row, X2, affine, y);
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

/* Sums of u = dy gamma and of u (x - mean), and for the channels, with `parts`,
 * of dy and dy z, which are added to p's. */
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

/* dx = rstd (u - bar(u) - (x - mean) tilt), tilt = rstd bar(u z). The formula
 * as it stands: of one channel it is 0 to the last bit. */
INLINE void slope(const RowNorm *r, const RowGrad *p, const Rows *v,
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
    double sum[X2] = {0}, dot[X2] = {0};
    V s[X2], t[X2];
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
#define BODY(c, rest) slope(r, p, &v, s, t, begin, c, n, rest, affine)
    FOR_VECTORS(0, wide, BODY);
#undef BODY
}

INLINE void backward_all(const RowNorm *r, const RowGrad *p, bool affine,
                         bool parts)
{
    int64_t row = 0;
    for (; row + X2 <= r->rows; row += X2)
        backward(r, p, row, X2, affine, parts);
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
