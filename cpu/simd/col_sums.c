/* col_sums.c -- sums over the rows of a matrix, column by column.
 *
 * add_rows: the gradient of a bias, and the last step of every sum that is cut
 * into parts; bound by memory. dot_rows: one tap of wgrad of a depthwise
 * convolution; bound by its two loads a multiply-add. A column is one chain in
 * the order of rows (add_rows), or 2 or 4 alternating chains, by its place and
 * n alone (dot_rows). */
#include "cpu/simd/vec.h"

/* `wide` vectors of every row; a constant, so that sums are registers. */
INLINE void sum_columns(const float *x, int64_t rows, int64_t ldx, int wide,
                        float *y, bool add)
{
    V sum[4];
    UNROLL for (int j = 0; j < wide; j++) sum[j] = v_zero();
    for (int64_t r = 0; r < rows; r++, x += ldx)
        UNROLL for (int j = 0; j < wide; j++) sum[j] += v_load(x + j * LANES);
    UNROLL for (int j = 0; j < wide; j++)
    {
        float *at = y + j * LANES;
        v_store(at, add ? v_load(at) + sum[j] : sum[j]);
    }
}

void ISA_NAME(add_rows)(const float *x, int64_t rows, int64_t ldx, int64_t n,
                        float *y, bool add);
void ISA_NAME(add_rows)(const float *x, int64_t rows, int64_t ldx, int64_t n,
                        float *y, bool add)
{
    int64_t i = 0;
    for (; i + 4 * LANES <= n; i += 4 * LANES)
        sum_columns(x + i, rows, ldx, 4, y + i, add);
    for (; i + LANES <= n; i += LANES)
        sum_columns(x + i, rows, ldx, 1, y + i, add);
    int rest = (int)(n - i);
    if (!rest) return;
    V sum = v_zero();
    for (int64_t r = 0; r < rows; r++)
        sum += v_load_part(x + r * ldx + i, rest);
    v_store_part(y + i, add ? v_load_part(y + i, rest) + sum : sum, rest);
}

/* `wide` vectors of every row, or with `part` the first `rest` lanes of one.
 * Rows 0, deep, 2 deep .. share a sum, and so on: with only one vector a row,
 * several sums hide the latency of the multiply-adds. */
INLINE void dot_columns(const float *a, int64_t lda, const float *x,
                        int64_t ldx, int64_t rows, int wide, int deep,
                        bool part, int rest, float *y)
{
    V sum[4][4];
    UNROLL for (int k = 0; k < deep; k++) UNROLL for (int j = 0; j < wide; j++)
        sum[k][j] = v_zero();
    int64_t r = 0;

    for (; r + deep <= rows; r += deep)
        UNROLL for (int k = 0; k < deep; k++, a += lda, x += ldx)
            UNROLL for (int j = 0; j < wide; j++)
        {
            const float *p = a + j * LANES, *q = x + j * LANES;
            sum[k][j] =
                v_fma(part ? v_load_part(p, rest) : v_load(p),
                      part ? v_load_part(q, rest) : v_load(q), sum[k][j]);
        }

    for (; r < rows; r++, a += lda, x += ldx)
        UNROLL for (int j = 0; j < wide; j++)
        {
            const float *p = a + j * LANES, *q = x + j * LANES;
            sum[0][j] =
                v_fma(part ? v_load_part(p, rest) : v_load(p),
                      part ? v_load_part(q, rest) : v_load(q), sum[0][j]);
        }

    UNROLL for (int j = 0; j < wide; j++)
    {
        V all = sum[0][j];
        UNROLL for (int k = 1; k < deep; k++) all += sum[k][j];
        float *at = y + j * LANES;
        if (part)
            v_store_part(at, v_load_part(at, rest) + all, rest);
        else
            v_store(at, v_load(at) + all);
    }
}

void ISA_NAME(dot_rows)(const float *a, int64_t lda, const float *x,
                        int64_t ldx, int64_t rows, int64_t n, float *y);
void ISA_NAME(dot_rows)(const float *a, int64_t lda, const float *x,
                        int64_t ldx, int64_t rows, int64_t n, float *y)
{
    int64_t i = 0;
    for (; i + 4 * LANES <= n; i += 4 * LANES)
        dot_columns(a + i, lda, x + i, ldx, rows, 4, 2, false, 0, y + i);
    for (; i + LANES <= n; i += LANES)
        dot_columns(a + i, lda, x + i, ldx, rows, 1, 4, false, 0, y + i);
    if (i < n)
        dot_columns(a + i, lda, x + i, ldx, rows, 1, 4, true, (int)(n - i),
                    y + i);
}
