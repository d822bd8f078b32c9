/* transpose.h -- transposition, for weights that are packed into panels. */
#ifndef SEG_CPU_CONV_TRANSPOSE_H
#define SEG_CPU_CONV_TRANSPOSE_H
#include <stdint.h>
#include <string.h>

/* y[i*ldy + j] = x[j*ldx + i] for 4 x 4 numbers: four vectors, which every
 * processor has, take half the time of sixteen scalars. */
static inline void transpose_square(const float *x, int64_t ldx, float *y,
                                    int64_t ldy)
{
    typedef float Four __attribute__((vector_size(16)));
    Four a, b, c, d;
    memcpy(&a, x, sizeof a);
    memcpy(&b, x + ldx, sizeof b);
    memcpy(&c, x + 2 * ldx, sizeof c);
    memcpy(&d, x + 3 * ldx, sizeof d);
    for (int i = 0; i < 4; i++) {
        Four row = {a[i], b[i], c[i], d[i]};
        memcpy(y + i * ldy, &row, sizeof row);
    }
}

/* y[i*ldy + j] = x[j*ldx + i] for i < many, j < count. It reads one cache line
 * of each row of x at a time, because distances in weights are often multiples
 * of a page, and a cache holds few lines at such distances. */
static inline void transpose_rows(const float *x, int64_t ldx, int64_t count,
                                  int64_t many, float *y, int64_t ldy)
{
    enum { SEEN = 16 }; // floats of a cache line
    for (int64_t from = 0; from < many; from += SEEN) {
        int64_t to = many < from + SEEN ? many : from + SEEN, j = 0;
        for (; to - from == SEEN && j + 4 <= count; j += 4)
            for (int64_t i = from; i < to; i += 4)
                transpose_square(x + j * ldx + i, ldx, y + i * ldy + j, ldy);
        for (; j < count; j++)
            for (int64_t i = from; i < to; i++) y[i * ldy + j] = x[j * ldx + i];
    }
}
#endif
