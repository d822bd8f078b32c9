/* window.h -- what a window sees: taps along three axes, and borders.
 *
 * Convolution, its gradient in x and transposed convolution are one sum
 *
 *     y[i] = sum over t of w[k0 + t*k_step] * x[first + i*step + t*gap]
 *
 * along each axis, with different numbers in an Axis. A transposed one with
 * stride s is s such sums (phases), one for every s-th result; each tap of
 * the kernel belongs to exactly one phase.
 *
 * Tensors have no border in memory. A task that needs one copies the part of
 * the image it reads into a strip with zeros at both ends of the rows; rows
 * beyond the image are never read, the caller leaves them out of its sums.
 * The copy costs one pass over what a task reads and buys inner loops without
 * a single question about borders. */
#ifndef SEG_CPU_LIB_WINDOW_H
#define SEG_CPU_LIB_WINDOW_H
#include "engine/graph/op.h"
#include <stddef.h>

typedef struct Axis {
    int64_t in;             /* extent of the image that is read        */
    int64_t count;          /* results, maybe 0                        */
    int64_t first, step;    /* image position of tap 0 of result 0 ..  */
    int64_t taps, gap;      /* taps, maybe 0; gap >= 1                 */
    int64_t out0, out_step; /* result i is written at out0 + i*out_step */
    int64_t k0, k_step;     /* tap t is index k0 + t*k_step of weights */
} Axis;

/* Axis i of a convolution from extent `in` to `out`. */
Axis axis_forward(const Window *g, int i, int64_t in, int64_t out);
/* Axis i of the transpose: `in` is the convolution's result, `out` its
 * image; phase 0 .. stride-1 covers results phase, phase + stride, ... */
Axis axis_transposed(const Window *g, int i, int64_t in, int64_t out,
                     int64_t phase);
/* Extent of the image that `count` results in a row read; count and taps are
 * at least 1. */
int64_t axis_span(const Axis *a, int64_t count);
/* No tap of any result is outside the image. */
bool axis_inside(const Axis *a);

/* Part of an image as one task reads it; channels from .. from+many-1 of an
 * image with `c` channels, results (n, d, h .. h+rows-1, w .. w+cols-1). */
typedef struct Region {
    int64_t n, d, h, w, rows, cols, from, many;
} Region;

/* Where the taps are. Tap (td,th,tw) of result (h+i, w+j) of the region is
 * at + td*plane + (i*step + th*gap of h)*row + (j*step + tw*gap of w)*pixel,
 * `many` floats. */
typedef struct Strip {
    const float *at;
    ptrdiff_t plane, row, pixel;
} Strip;

/* Floats of the buffer of a strip, 0 where an axis has no taps: planes of
 * taps x rows x columns x many. Along d only the planes of taps are kept, as
 * a region is one result deep. */
int64_t strip_floats(const Axis a[3], int64_t rows, int64_t cols, int64_t many);
/* Copy what the region reads into the buffer. Planes and rows outside the
 * image stay garbage: see axis_has. */
Strip strip_copy(const float *x, Dims dim, const Axis a[3], const Region *r,
                 float *buffer);
/* The image itself, where the axis along w is inside it (axis_inside). May
 * point before the image; no tap that axis_has is there. */
Strip strip_view(const float *x, Dims dim, const Axis a[3], const Region *r);

/* The channels of an image from number `from` on, where these are a tensor of
 * their own; else `from` is 0. Of a result that nobody wants `at` is NULL. */
typedef struct ConcatInput {
    float *at;
    int64_t from;
    bool add; /* of a result: to what is there */
} ConcatInput;

/* A window of one without border sees pixels only: make them one long row,
 * where both extents allow. */
void window_flatten(const Window *g, Dims *in, Dims *out);

/* Tap `t` of result i is inside the image. */
static inline bool axis_has(const Axis *a, int64_t i, int64_t t)
{
    int64_t at = a->first + i * a->step + t * a->gap;
    return at >= 0 && at < a->in;
}

static inline int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* ceil(a / b), a >= 0, b > 0. */
static inline int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static inline int64_t round_up(int64_t a, int64_t b)
{
    return ceil_div(a, b) * b;
}
#endif
