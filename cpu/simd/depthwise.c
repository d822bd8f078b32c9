/* depthwise.c -- a row of results of a depthwise convolution, with channels
 * along the vectors.
 *
 * A block of `high` pixels of one vector of channels stays in registers during
 * the loop over taps: each vector of weights is loaded once for all of them,
 * and eight independent sums hide the latency of the multiply-adds. All
 * channels of a block of pixels are computed before the next pixels, so a block
 * reads a contiguous part of the image that stays in L1. */
#include "cpu/simd/vec.h"

enum { HIGH = 8 };

/* Pixels from .. from+high-1, channels from c on: a whole vector, or with
 * `part` the last `rest` of them. high and part are constants. */
INLINE void block(const DepthwiseRow *p, int64_t from, int high, int64_t c,
                  int rest, bool part)
{
    V sum[HIGH];
    UNROLL for (int i = 0; i < high; i++) sum[i] = v_zero();

    for (int64_t r = 0; r < p->runs; r++) {
        const float *x = p->run[r].a + p->at + from * p->lda + c;
        const float *w = p->w + p->run[r].k + c;
        for (int64_t t = 0; t < p->taps; t++, x += p->gap, w += p->w_gap) {
            V f = part ? v_load_part(w, rest) : v_load(w);
            UNROLL for (int i = 0; i < high; i++)
            {
                const float *at = x + i * p->lda;
                sum[i] =
                    v_fma(part ? v_load_part(at, rest) : v_load(at), f, sum[i]);
            }
        }
    }

    V bias = !p->bias || p->add ? v_zero()
             : part             ? v_load_part(p->bias + c, rest)
                                : v_load(p->bias + c);
    UNROLL for (int i = 0; i < high; i++)
    {
        float *y = p->y + (from + i) * p->ldy + c;
        if (part)
            v_store_part(y, sum[i] + (p->add ? v_load_part(y, rest) : bias),
                         rest);
        else
            v_store(y, sum[i] + (p->add ? v_load(y) : bias));
    }
}

/* All channels of `high` pixels. */
INLINE void pixels(const DepthwiseRow *p, int64_t from, int high)
{
    int64_t c = 0;
    for (; c + LANES <= p->channels; c += LANES)
        block(p, from, high, c, LANES, false);
    if (c < p->channels) block(p, from, high, c, (int)(p->channels - c), true);
}

void ISA_NAME(depthwise)(const DepthwiseRow *p);
void ISA_NAME(depthwise)(const DepthwiseRow *p)
{
    int64_t i = 0;
    for (; i + HIGH <= p->cols; i += HIGH) pixels(p, i, HIGH);
    for (; i + 2 <= p->cols; i += 2) pixels(p, i, 2);
    if (i < p->cols) pixels(p, i, 1);
}
