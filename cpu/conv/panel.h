/* panel.h -- a matrix packed into panels for Simd.product, and the product with
 * it.
 *
 * y (rows, out) = x (rows, in) times m (in, out), for a matrix that many
 * products use (every step of an LSTM, every block of an attention), with any
 * distance between rows of x and y. Each element is a sum in chunks of CHAIN
 * terms and does not depend on the other rows. */
#ifndef SEG_CPU_CONV_PANEL_H
#define SEG_CPU_CONV_PANEL_H
#include "cpu/lib/simd.h"
#include "cpu/lib/window.h"

/* m(i, j) = at[i * ld_in + j * ld_out]; one of the two strides is 1. */
typedef struct Matrix {
    const float *at;
    int64_t in, out, ld_in, ld_out;
} Matrix;

/* Number of panels of up to Simd.panel columns each. */
static inline int64_t panel_count(const Simd *s, int64_t out)
{
    return ceil_div(out, s->panel);
}

/* Floats of all panels; a multiple of a cache line. */
static inline int64_t panel_floats(const Simd *s, int64_t in, int64_t out)
{
    return round_up(in * round_up(out, s->lanes), LANES_MAX);
}

/* Packs panel number b of m into its place in `panels`. */
void panel_pack(const Simd *s, const Matrix *m, int64_t b, float *panels);
void panel_pack_all(const Simd *s, const Matrix *m, float *panels);

/* x (rows, in), y (rows, out) with distances ldx and ldy. */
typedef struct PanelRows {
    const float *x;
    float *y;
    int64_t ldx, ldy, rows;
    bool add; /* add to y */
} PanelRows;

void panel_multiply(const Simd *s, const float *panels, int64_t in, int64_t out,
                    const PanelRows *r);
#endif
