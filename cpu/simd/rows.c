/* rows.c -- sums over the rows of a matrix. */
#include "vec.h"

/* `wide` vectors of every row; constant, so that sums are registers. */
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
