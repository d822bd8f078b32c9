/* norm_batch.c -- the passes of batch_norm over a block of rows, with channels
 * along the vectors.
 *
 * A block stays in a near cache, so statistics take two passes over it: the
 * mean first, then squared deviations from it. bn_stats corrects in double for
 * the rounding of that mean. The mean is given as a sum hi + lo of two floats,
 * so that x - mean keeps its digits where the mean is large against the
 * standard deviation.
 *
 * One, two or four vectors of channels go over all rows of the block, with sums
 * and constants in registers; four vectors of 64 bytes are the whole row of 64
 * channels. Bound by L2 or memory, not by arithmetic; with fewer channels than
 * a vector has lanes, some lanes are idle. */
#include "cpu/simd/vec.h"

/* Calls function(..., kind) with the kind of `act` as a constant: three inlined
 * copies. */
#define FOR_KINDS(kind, function, ...)             \
    do {                                           \
        switch (kind) {                            \
        case ACT_RELU:                             \
            function(__VA_ARGS__, ACT_RELU);       \
            break;                                 \
        case ACT_LEAKY_RELU:                       \
            function(__VA_ARGS__, ACT_LEAKY_RELU); \
            break;                                 \
        default:                                   \
            function(__VA_ARGS__, ACT_NONE);       \
        }                                          \
    } while (0)

/* Loops over the channels: `wide` whole vectors from channel c, or with wide ==
 * 0 the last `rest` channels. body(wide, c, rest) is inlined. */
#define FOR_CHANNELS(channels, body)                                       \
    do {                                                                   \
        int64_t c = 0;                                                     \
        for (; c + 4 * LANES <= (channels); c += 4 * LANES) body(4, c, 0); \
        for (; c + 2 * LANES <= (channels); c += 2 * LANES) body(2, c, 0); \
        for (; c + LANES <= (channels); c += LANES) body(1, c, 0);         \
        if (c < (channels)) body(0, c, (int)((channels)-c));               \
    } while (0)

/* Number of vectors of a step; below, the j-th of them at p. The shape is
 * (wide, rest): `wide` whole vectors, or with wide == 0 one of `rest` lanes. */
INLINE int vectors(int wide)
{
    return wide ? wide : 1;
}

INLINE V get(const float *p, int wide, int rest, int j)
{
    return wide ? v_load(p + j * LANES) : v_load_part(p, rest);
}

INLINE void set(float *p, int wide, int rest, int j, V v)
{
    if (wide)
        v_store(p + j * LANES, v);
    else
        v_store_part(p, v, rest);
}

/* Mean and squared deviations of `lanes` channels in two passes. With d = x -
 * about, the exact mean is about + bar(d), and the squared deviations from it
 * are sum d^2 - n bar(d)^2, where bar(d) is as small as a rounding error. */
INLINE void stats(const float *x, int64_t rows, int64_t ldx, int wide, int rest,
                  double *mean, double *m2)
{
    V sum[4], off[4], square[4], about[4];
    float shift[LANES], miss[LANES], m[LANES]; // about, off, square as arrays
    int n = vectors(wide), lanes = wide ? LANES : rest;
    UNROLL for (int j = 0; j < n; j++) sum[j] = off[j] = square[j] = v_zero();

    for (int64_t r = 0; r < rows; r++)
        UNROLL for (int j = 0; j < n; j++) sum[j] +=
            get(x + r * ldx, wide, rest, j);
    UNROLL for (int j = 0; j < n; j++) about[j] = sum[j] / v_set((float)rows);

    for (int64_t r = 0; r < rows; r++) UNROLL for (int j = 0; j < n; j++)
        {
            V d = get(x + r * ldx, wide, rest, j) - about[j];
            off[j] += d;
            square[j] = v_fma(d, d, square[j]);
        }

    UNROLL for (int j = 0; j < n; j++)
    {
        v_store(shift, about[j]), v_store(miss, off[j]), v_store(m, square[j]);
        for (int i = 0; i < lanes; i++) {
            double d = (double)miss[i] / (double)rows;
            mean[j * LANES + i] = shift[i] + d;
            m2[j * LANES + i] = m[i] - miss[i] * d;
        }
    }
}

void ISA_NAME(bn_stats)(const float *x, int64_t rows, int64_t channels,
                        double *mean, double *m2);
void ISA_NAME(bn_stats)(const float *x, int64_t rows, int64_t channels,
                        double *mean, double *m2)
{
#define BODY(wide, c, rest) \
    stats(x + c, rows, channels, wide, rest, mean + c, m2 + c)
    FOR_CHANNELS(channels, BODY);
#undef BODY
}

/* y = act((x - mean) scale + beta) of `n` vectors of channels. */
INLINE void apply(const float *x, const BnAffine *a, int64_t c, int64_t rows,
                  int64_t ldx, int wide, int rest, ActKind act, float *y)
{
    V hi[4], lo[4], scale[4], beta[4], low = v_set(a->act.slope);
    int n = vectors(wide);
    UNROLL for (int j = 0; j < n; j++)
    {
        hi[j] = get(a->hi + c, wide, rest, j);
        lo[j] = get(a->lo + c, wide, rest, j);
        scale[j] = get(a->scale + c, wide, rest, j);
        beta[j] = get(a->beta + c, wide, rest, j);
    }

    for (int64_t r = 0; r < rows; r++) UNROLL for (int j = 0; j < n; j++)
        {
            V d = get(x + r * ldx, wide, rest, j) - hi[j] - lo[j];
            V v = v_fma(d, scale[j], beta[j]);
            set(y + r * ldx, wide, rest, j, v_act(act, low, v));
        }
}

INLINE void apply_all(const float *x, int64_t rows, int64_t channels,
                      const BnAffine *a, float *y, ActKind act)
{
#define BODY(wide, c, rest) \
    apply(x + c, a, c, rows, channels, wide, rest, act, y + c)
    FOR_CHANNELS(channels, BODY);
#undef BODY
}

void ISA_NAME(bn_apply)(const float *x, int64_t rows, int64_t channels,
                        const BnAffine *a, float *y);
void ISA_NAME(bn_apply)(const float *x, int64_t rows, int64_t channels,
                        const BnAffine *a, float *y)
{
    FOR_KINDS(a->act.kind, apply_all, x, rows, channels, a, y);
}

/* Sums of dy and dy (x - mean); one chain of `rows` f32 additions each. */
INLINE void sums(const float *dy, const float *x, const BnAffine *a, int64_t c,
                 int64_t rows, int64_t ldx, int wide, int rest, ActKind act,
                 double *sum, double *dot)
{
    V hi[4], lo[4], scale[4], beta[4], s[4], t[4];
    V low = v_set(a->act.slope);
    float part[LANES], with[LANES];
    int n = vectors(wide), lanes = wide ? LANES : rest;
    UNROLL for (int j = 0; j < n; j++)
    {
        hi[j] = get(a->hi + c, wide, rest, j);
        lo[j] = get(a->lo + c, wide, rest, j);
        s[j] = t[j] = v_zero();
        if (!act) continue;
        scale[j] = get(a->scale + c, wide, rest, j);
        beta[j] = get(a->beta + c, wide, rest, j);
    }

    for (int64_t r = 0; r < rows; r++) UNROLL for (int j = 0; j < n; j++)
        {
            V d = get(x + r * ldx, wide, rest, j) - hi[j] - lo[j];
            V g = get(dy + r * ldx, wide, rest, j);
            if (act) g = v_act_bwd(act, low, v_fma(d, scale[j], beta[j]), g);
            s[j] += g;
            t[j] = v_fma(g, d, t[j]);
        }

    UNROLL for (int j = 0; j < n; j++)
    {
        v_store(part, s[j]), v_store(with, t[j]);
        for (int i = 0; i < lanes; i++) {
            sum[j * LANES + i] = part[i];
            dot[j * LANES + i] = with[i];
        }
    }
}

INLINE void sums_all(const float *dy, const float *x, int64_t rows,
                     int64_t channels, const BnAffine *a, double *sum,
                     double *dot, ActKind act)
{
#define BODY(wide, c, rest) \
    sums(dy + c, x + c, a, c, rows, channels, wide, rest, act, sum + c, dot + c)
    FOR_CHANNELS(channels, BODY);
#undef BODY
}

void ISA_NAME(bn_sums)(const float *dy, const float *x, int64_t rows,
                       int64_t channels, const BnAffine *a, double *sum,
                       double *dot);
void ISA_NAME(bn_sums)(const float *dy, const float *x, int64_t rows,
                       int64_t channels, const BnAffine *a, double *sum,
                       double *dot)
{
    FOR_KINDS(a->act.kind, sums_all, dy, x, rows, channels, a, sum, dot);
}

/* dx of `n` vectors of channels; dx may be dy. */
INLINE void grad(const float *dy, const float *x, const BnAffine *a, int64_t c,
                 int64_t rows, int64_t ldx, int wide, int rest, ActKind act,
                 float *dx, bool add)
{
    V hi[4], lo[4], scale[4], beta[4], shift[4], tilt[4];
    V low = v_set(a->act.slope);
    int n = vectors(wide);
    UNROLL for (int j = 0; j < n; j++)
    {
        hi[j] = get(a->hi + c, wide, rest, j);
        lo[j] = get(a->lo + c, wide, rest, j);
        scale[j] = get(a->scale + c, wide, rest, j);
        shift[j] = get(a->shift + c, wide, rest, j);
        tilt[j] = get(a->tilt + c, wide, rest, j);
        if (act) beta[j] = get(a->beta + c, wide, rest, j);
    }

    for (int64_t r = 0; r < rows; r++) UNROLL for (int j = 0; j < n; j++)
        {
            V d = get(x + r * ldx, wide, rest, j) - hi[j] - lo[j];
            V g = get(dy + r * ldx, wide, rest, j);
            if (act) g = v_act_bwd(act, low, v_fma(d, scale[j], beta[j]), g);
            V v = v_fma(g, scale[j], v_fma(d, tilt[j], shift[j]));
            if (add) v += get(dx + r * ldx, wide, rest, j);
            set(dx + r * ldx, wide, rest, j, v);
        }
}

INLINE void grad_all(const float *dy, const float *x, int64_t rows,
                     int64_t channels, const BnAffine *a, float *dx, bool add,
                     ActKind act)
{
#define BODY(wide, c, rest) \
    grad(dy + c, x + c, a, c, rows, channels, wide, rest, act, dx + c, add)
    FOR_CHANNELS(channels, BODY);
#undef BODY
}

void ISA_NAME(bn_grad)(const float *dy, const float *x, int64_t rows,
                       int64_t channels, const BnAffine *a, float *dx,
                       bool add);
void ISA_NAME(bn_grad)(const float *dy, const float *x, int64_t rows,
                       int64_t channels, const BnAffine *a, float *dx, bool add)
{
    FOR_KINDS(a->act.kind, grad_all, dy, x, rows, channels, a, dx, add);
}
