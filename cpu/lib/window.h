/* window.h -- windows: taps along three axes, and borders.
 *
 * Convolution, its gradient in x and transposed convolution have one form,
 *
 *     y[i] = sum over t of w[k0 + t*k_step] * x[first + i*step + t*gap]
 *
 * along each axis, with different numbers in an Axis. A transposed convolution
 * with stride s is s such sums (phases), each for every s-th result; each tap
 * of the kernel belongs to exactly one phase.
 *
 * Tensors have no border in memory. Where a border is needed, a task copies its
 * part of the image into a strip with zeros at both ends of the rows. Rows
 * beyond the image are not copied: the caller leaves them out of its sums. The
 * copy costs one pass over the part, and the inner loops have no tests for
 * borders. */
#ifndef SEG_CPU_LIB_WINDOW_H
#define SEG_CPU_LIB_WINDOW_H
#include "engine/graph/op.h"
#include <stddef.h>

typedef struct Axis {
    int64_t in;             /* extent of the image that is read */
    int64_t count;          /* results, may be 0 */
    int64_t first, step;    /* image position of tap 0 of result 0; its distance
                             * from result to result */
    int64_t taps, gap;      /* taps, may be 0; their distance, >= 1 */
    int64_t out0, out_step; /* result i is written at out0 + i*out_step */
    int64_t k0, k_step;     /* tap t is index k0 + t*k_step of the weights */
} Axis;

/* Axis i of a convolution from extent `in` to `out`. */
Axis axis_forward(const Window *g, int i, int64_t in, int64_t out);
/* Axis i of the transposed convolution: `in` is the extent of the convolution's
 * result, `out` that of its image. Phase 0 .. stride-1 covers results phase,
 * phase + stride, ... */
Axis axis_transposed(const Window *g, int i, int64_t in, int64_t out,
                     int64_t phase);
/* Extent of the part of the image that `count` consecutive results read; count
 * and taps are at least 1. */
int64_t axis_span(const Axis *a, int64_t count);
/* Is every tap of every result inside the image? */
bool axis_inside(const Axis *a);

/* The part of an image that one task reads: channels from .. from+many-1 for
 * results (n, d, h .. h+rows-1, w .. w+cols-1). */
typedef struct Region {
    int64_t n, d, h, w, rows, cols, from, many;
} Region;

/* The addresses of taps. Tap (td,th,tw) of result (h+i, w+j) of the region is
 * at + td*plane + (i*step + th*gap of h)*row + (j*step + tw*gap of w)*pixel,
 * `many` floats. */
typedef struct Strip {
    const float *at;
    ptrdiff_t plane, row, pixel;
} Strip;

/* Floats of the buffer of a strip, 0 where an axis has no taps: planes of taps
 * x rows x columns x many. Along d only the planes of taps are stored, because
 * a region is one result deep. */
int64_t strip_floats(const Axis a[3], int64_t rows, int64_t cols, int64_t many);
/* Copies the part of the image that the region reads into the buffer. Planes
 * and rows outside the image stay garbage: see axis_has. */
Strip strip_copy(const float *x, Dims dim, const Axis a[3], const Region *r,
                 float *buffer);
/* A strip without a copy, where axis w has no border (axis_inside). Its address
 * may lie before the image; taps outside the image, for which axis_has is
 * false, must not be read. */
Strip strip_view(const float *x, Dims dim, const Axis a[3], const Region *r);

/* The second input of an implicit concat: channels `from` and following of the
 * image, in a tensor of their own. Without a concat `from` is 0. `at` is NULL
 * for a gradient that is not wanted. */
typedef struct ConcatInput {
    float *at;
    int64_t from;
    bool add; /* a result is added, not stored */
} ConcatInput;

/* With a window of one position and no border, makes all pixels one long row,
 * if both extents allow. */
void window_flatten(const Window *g, Dims *in, Dims *out);

/* Is tap `t` of result i inside the image? */
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
