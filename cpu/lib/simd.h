/* simd.h -- the kernels that are compiled once per instruction set, and the
 * choice of the set.
 *
 * Files in cpu/simd are compiled for avx512, avx2 and portable, on aarch64 for
 * neon and portable; each set fills one table. The rest of cpu/ is compiled
 * once, decides geometry, tasks and memory, and calls the table for the inner
 * loops. Nothing here knows tensors or threads. Distances (ld*, pitch, step,
 * gap) are in floats; blocks need the alignment of a float only. No kernel
 * reads or writes beyond the last element that its arguments name: the end of a
 * row is a partial vector.
 *
 * A call computes a row or more, so the cost of the indirect call is
 * negligible. Parameters that have to be constants for the compiler (shapes of
 * register blocks) are dispatched inside the kernel. */
#ifndef SEG_CPU_LIB_SIMD_H
#define SEG_CPU_LIB_SIMD_H
#include "engine/base/err.h"
#include "engine/base/rng.h"
#include <stddef.h>
#include <stdint.h>

/* Floats of the widest vector of any set; the padding of buffers assumes it. */
enum { LANES_MAX = 16 };

/* A run: `len` consecutive floats of each pixel, multiplied by `len` rows of a
 * panel. */
typedef struct Run {
    const float *a; /* of pixel 0; pixel i is at a + i*lda */
    int64_t k;      /* first row of the panel */
} Run;

/* A row of pixels times a panel (rows, width) of packed weights, where width is
 * co rounded up to lanes. For i < cols and j < co:
 *
 *   y[i*ldy + j] = bias[j] + sum over runs r and k < len of
 *                  run[r].a[i*lda + k] * panel[(run[r].k + k)*width + j]
 *
 * A bias of NULL is 0. With `add` the sum is added to y and the bias is
 * ignored. Each element is one chain of additions, in the order of the runs. */
typedef struct PanelGemm {
    const Run *run; /* `runs` runs, in the order of the sum */
    const float *panel, *bias;
    float *y;
    int64_t runs, len, cols;
    ptrdiff_t lda, ldy;
    ptrdiff_t ldw; /* only of Simd.head */
    int co;        /* 1 .. Simd.panel; of Simd.head 1 .. HEAD_CO */
    bool add;
    bool far; /* a is probably not in a cache: prefetch it */
} PanelGemm;

/* The most channels of a PanelGemm for Simd.head. The weights are packed one
 * channel after the other: panel[j*ldw + run[r].k + k]. */
enum { HEAD_CO = 4 };

/* Sum over pixels of outer products. For i < height and j < width:
 *
 *   out[i*ldo + j] = sum over r < rows and c < cols of
 *                    a[(r*cols + c)*lda + i] * x[r*pitch + c*ldx + j]
 *
 * With `add` the sum is added to out. Each element is one chain of rows*cols
 * additions. */
typedef struct Outer {
    const float *a, *x;
    float *out;
    int64_t rows, cols;
    ptrdiff_t pitch, lda, ldx, ldo;
    int high;          /* 1, 2, 4, ... Simd.outer_high; so many rows of a are
                        * read */
    int height, width; /* <= high; <= Simd.outer_wide */
    bool add;
} Outer;

/* A row of pixels of a depthwise convolution (depthwise.h). For i < cols and j
 * < channels:
 *
 *   y[i*ldy + j] = bias[j] + sum over runs r and taps t of
 *       run[r].a[at + i*lda + t*gap + j] * w[run[r].k + t*w_gap + j]
 *
 * A bias of NULL is 0. With `add` the sum is added to y and the bias is
 * ignored. Each element is one chain of additions, in the order of runs and
 * taps; either may be 0. */
typedef struct DepthwiseRow {
    const Run *run;
    const float *w, *bias;
    float *y;
    int64_t runs, taps, cols, channels;
    ptrdiff_t at, lda, ldy, gap, w_gap; /* w_gap < 0: taps in reverse */
    bool add;
} DepthwiseRow;

/* The operand or the result of a Winograd transform between a grid of n x n
 * pixels and 36 planes. For each channel, pixel (i, j) of the grid is at i*row
 * + j*pixel, and number (i, j) of the 6 x 6 is at (6 i + j)*plane. Channels are
 * contiguous. Planes have room for whole vectors; the lanes beyond the last
 * channel hold transforms of zeros or are not read. Only pixels of rows r0 ..
 * r1-1 and columns c0 .. c1-1 exist; others are read as 0 and not written. A
 * grid that is written has r0 = c0 = 0. */
typedef struct Tile {
    ptrdiff_t row, pixel, plane;
    int64_t channels;
    int r0, r1, c0, c1;
    bool half; /* pixels are read as bf16 */
    bool add;  /* add to the grid and ignore the bias */
} Tile;

/* The activation that a kernel applies to a result before the store, with the
 * bits of relu and leaky_relu. The backward kernels take its derivative from
 * the sign of its operand. */
typedef enum ActKind { ACT_NONE, ACT_RELU, ACT_LEAKY_RELU } ActKind;
typedef struct Act {
    ActKind kind;
    float slope; /* of ACT_LEAKY_RELU, for x <= 0 */
} Act;

/* Constants per channel of the bn_* kernels; pointers that a kernel does not
 * use may be NULL. */
typedef struct BnAffine {
    const float *hi, *lo;      /* the mean is their sum */
    const float *scale, *beta; /* see bn_apply; bn_sums: only with `act` */
    const float *shift, *tilt; /* see bn_grad */
    Act act; /* The activation after the norm. bn_sums and bn_grad get the
              * gradient of its result as dy. They compute its operand again
              * from x for the sign: one operation an element, where keeping y
              * would be one more array to read and store. */
} BnAffine;

/* Layer normalisation of rows (rows, channels): y = z gamma + beta with z = (x
 * - mean) rstd. gamma and beta (channels) may both be NULL: 1 and 0. row_norm
 * writes hi, lo and rstd of each row, and row_norm_grad reads them. */
typedef struct RowNorm {
    const float *x, *gamma, *beta;
    int64_t rows, channels;
    double eps;
    float *hi, *lo, *rstd; /* (rows); the mean is hi + lo */
} RowNorm;

/* The backward run of RowNorm. dgamma and dbeta (channels), both or neither,
 * become the sums over these rows. dx may be NULL or dy's memory. */
typedef struct RowGrad {
    const float *dy;
    float *dx, *dgamma, *dbeta;
    bool add; /* to dx */
} RowGrad;

/* The epilogue of a convolution, which a kernel applies to a result after its
 * last addition: a batch_norm with constant statistics, if norm.hi is not NULL,
 * then the activation `act`; norm.act is a copy of it. */
typedef struct Epilogue {
    BnAffine norm;
    Act act;
} Epilogue;

/* A row of windows of max pooling. Window i has tap number[t] at x[t] + i*step,
 * `channels` floats. Taps outside the image are left out; at least one is
 * inside. Tap numbers are below 256. pool_max reads x and ignores dx;
 * pool_max_grad writes dx and ignores x. */
typedef struct PoolRow {
    const float *const *x;
    float *const *dx;
    const int *number;
    int taps;
    int64_t step, cols, channels;
} PoolRow;

/* One step of an LSTM for one sample. z and bias (or NULL) hold the gates i, f,
 * g, o, `units` numbers each. sum, in the same layout, is the product of the
 * weights and the previous step's y; it is NULL at the first step, as is cell.
 * gates receives i, f, g, o after sigmoid or tanh and may be sum's memory; next
 * receives the cell state and may be cell's memory. */
typedef struct LstmStep {
    const float *z, *bias, *sum, *cell;
    float *gates, *next, *y;
    int64_t units;
} LstmStep;

/* The backward run of LstmStep. gates, as LstmStep leaves them, are overwritten
 * by the gradients of z. dh (NULL: 0) is the gradient of y from the next step,
 * added to dy. dc is the gradient of the cell state from the next step and is
 * overwritten by that for the previous step. */
typedef struct LstmGrad {
    const float *dy, *dh, *cell, *last; /* last: cell of the previous step, or
                                         * NULL */
    float *dc, *gates;
    int64_t units;
} LstmGrad;

/* The gradient of a region loss (dice.h); all four are multiplied by dy: dx =
 * (a t + b) s (1 - s) + bce ((1 - t) s - weight t (1 - s)). */
typedef struct RegionGrad {
    float a, b, bce, weight;
} RegionGrad;

/* The operands and the result of an elementwise operator on n elements. An
 * operand that the instruction does not read is any memory of that size; `to`
 * may be the memory of an operand. add: to += the result; of gradients only. */
typedef struct Function {
    const float *a, *b, *dy;
    float *to;
    int64_t n;
    bool add;
} Function;
struct Instruction;

/* Activations with an exponential. */
typedef enum SmoothAct {
    SMOOTH_SIGMOID,
    SMOOTH_TANH,
    SMOOTH_GELU,
    SMOOTH_SILU
} SmoothAct;

/* Operands of a regression loss. An error e = x - t, multiplied by its mask m
 * and its weight q (NULL: 1), costs |e|, e^2, or e^2/2 up to delta and delta
 * (|e| - delta/2) beyond; the cost of a mean is x, and t is x. An element with
 * m q = 0 costs 0 for any e, NaN included. */
typedef enum ErrorKind {
    ERROR_MAE,
    ERROR_MSE,
    ERROR_HUBER,
    ERROR_MEAN
} ErrorKind;
typedef struct Errors {
    const float *x, *t, *m, *q;
    double delta;
    ErrorKind kind;
} Errors;

/* Operands of a loss over rows of logits x with few classes, 2 .. CLASSES_MAX;
 * each row has a softmax. The target is one class number a row or, if `soft`,
 * one probability a class. m is the mask of rows (NULL: 1). A row with mask 0
 * or with the target `ignore` (NAN: none) does not count, and its logits are
 * not read. */
enum { CLASSES_MAX = 16 };
typedef struct Classes {
    const float *x, *t, *m;
    int64_t rows;
    int classes;
    bool soft;
    float ignore;
} Classes;

/* The list of kernels: result, name, arguments. Declarations, the table and its
 * rows are made from it, so a new kernel is a line here and a function
 * ISA_NAME(name) in a file of cpu/simd. With `add` a kernel adds its result to
 * the destination, else it stores. */
#define SIMD_KERNELS(K)                                                        \
    K(void, product, (const PanelGemm *p))                                     \
    K(void, head, (const PanelGemm *p))                                        \
    K(void, outer, (const Outer *p))                                           \
    K(void, depthwise, (const DepthwiseRow *p))                                \
    /* Winograd (simd/winograd.c): x 6x6, w 3x3 or dy 4x4 into planes */       \
    K(void, tile_image, (const Tile *t, const void *x, float *planes))         \
    K(void, tile_weights, (const Tile *t, const float *w, float *planes))      \
    K(void, tile_dy, (const Tile *t, const void *dy, float *planes))           \
    /* planes into y 4x4 (bias NULL: 0) or dw 3x3 */                           \
    K(void, tile_result,                                                       \
      (const Tile *t, const float *planes, const float *bias,                  \
       const Epilogue *epilogue, float *y))                                    \
    K(void, tile_dw, (const Tile *t, const float *planes, float *dw))          \
    /* mean and sum of squared deviations of each channel of (rows, channels); \
     * at most 1024 rows */                                                    \
    K(void, bn_stats,                                                          \
      (const float *x, int64_t rows, int64_t channels, double *mean,           \
       double *m2))                                                            \
    /* y = act((x - mean) * scale + beta) */                                   \
    K(void, bn_apply,                                                          \
      (const float *x, int64_t rows, int64_t channels, const BnAffine *a,      \
       float *y))                                                              \
    /* sum of dy and of dy * (x - mean), with dy multiplied by the derivative  \
     * of `act` */                                                             \
    K(void, bn_sums,                                                           \
      (const float *dy, const float *x, int64_t rows, int64_t channels,        \
       const BnAffine *a, double *sum, double *dot))                           \
    /* dx = dy * scale + (x - mean) * tilt + shift; dy as above */             \
    K(void, bn_grad,                                                           \
      (const float *dy, const float *x, int64_t rows, int64_t channels,        \
       const BnAffine *a, float *dx, bool add))                                \
    /* layer_norm and its gradients */                                         \
    K(void, row_norm, (const RowNorm *r, float *y))                            \
    K(void, row_norm_grad, (const RowNorm *r, const RowGrad *p))               \
    /* y = x */                                                                \
    K(void, copy, (const float *x, int64_t n, float *y, bool add))             \
    /* y[r*ldy + i] = x[r*ldx + i] for i < n */                                \
    K(void, copy_rows,                                                         \
      (const float *x, int64_t ldx, int64_t rows, int64_t n, float *y,         \
       int64_t ldy, bool add))                                                 \
    K(void, sum2, (const float *a, const float *b, int64_t n, float *y))       \
    K(void, relu, (const float *x, int64_t n, float *y))                       \
    /* y = x <= 0 ? x * slope : x */                                           \
    K(void, leaky, (const float *x, int64_t n, float slope, float *y))         \
    /* dx = y <= 0 ? 0 : dy */                                                 \
    K(void, relu_grad,                                                         \
      (const float *dy, const float *y, int64_t n, float *dx, bool add))       \
    /* y = x <= 0 ? slope x : x; dx = y <= 0 ? slope dy : dy */                \
    K(void, leaky_relu, (const float *x, int64_t n, float slope, float *y))    \
    K(void, leaky_grad,                                                        \
      (const float *dy, const float *y, int64_t n, float slope, float *dx,     \
       bool add))                                                              \
    /* y = f(x), may be x's memory; dx = f'(x) dy; `kept`: y for sigmoid and   \
     * tanh, else x */                                                         \
    K(void, smooth_act, (SmoothAct kind, const float *x, int64_t n, float *y)) \
    K(void, smooth_act_grad,                                                   \
      (SmoothAct kind, const float *dy, const float *kept, int64_t n,          \
       float *dx, bool add))                                                   \
    /* one instruction of a program (engine/graph/program.h) */                \
    K(void, function, (const struct Instruction *i, const Function *f))        \
    /* y (cols, channels): the maxima; which: the tap of each */               \
    K(void, pool_max, (const PoolRow *p, float *y, uint8_t *which))            \
    /* dx = dy at the tap of the maximum, else 0 */                            \
    K(void, pool_max_grad,                                                     \
      (const PoolRow *p, const float *dy, const uint8_t *which, bool add))     \
    /* bce_sum: the sum of the binary cross entropies of logits x with targets \
     * t; bce_grad: dx = the gradient of that sum times `factor` */            \
    K(double, bce_sum,                                                         \
      (const float *x, const float *t, int64_t n, float weight))               \
    K(void, bce_grad,                                                          \
      (const float *x, const float *t, int64_t n, float weight, float factor,  \
       float *dx, bool add))                                                   \
    /* sums of s t, s, t and, if `cross`, of the cross entropy, with s =       \
     * sigmoid(x); dx: see RegionGrad */                                       \
    K(void, region_sums,                                                       \
      (const float *x, const float *t, int64_t n, float weight, bool cross,    \
       double *sum))                                                           \
    K(void, region_grad,                                                       \
      (const float *x, const float *t, int64_t n, const RegionGrad *r,         \
       float *dx, bool add))                                                   \
    /* error_sum: the sum of the costs of n errors; error_grad: dx = `factor`  \
     * times the gradient of that sum, with the bits of the plain loop; sum:   \
     * of n numbers; all computed in double */                                 \
    K(double, error_sum, (const Errors *e, int64_t n))                         \
    K(void, error_grad,                                                        \
      (const Errors *e, int64_t n, double factor, float *dx, bool add))        \
    K(double, sum, (const float *x, int64_t n))                                \
    /* v_b(e) = 1 / (1 + e rise[b]), b < bins, whole vectors of doubles.       \
     * diff[b] = v_b(x) - v_b(t); sum[b] += by x[b]; returns the sum over b    \
     * of g[b] v_b(x) (1 - v_b(x)) */                                          \
    K(void, dose_diff,                                                         \
      (double x, double t, const double *rise, int64_t bins, double *diff))    \
    K(void, dose_add, (const double *x, double by, int64_t bins, double *sum)) \
    K(double, dose_grad,                                                       \
      (double x, const double *rise, const double *g, int64_t bins))           \
    K(void, lstm_step, (const LstmStep *s))                                    \
    K(void, lstm_grad, (const LstmGrad *s))                                    \
    /* s = exp(scale s - most) of n scores, with most updated to the largest   \
     * score so far; adds their sum to the rescaled sum; returns the factor    \
     * that rescales older results */                                          \
    K(float, attend_row,                                                       \
      (float *s, int64_t n, float scale, float *most, float *sum))             \
    /* backward pass of the softmax of attention: s becomes the weights a =    \
     * exp(scale s - log), log the logarithm of the sum of exp(scale s) over   \
     * the row of scores; da (gradient of a) becomes the gradient of the       \
     * scores, scale a (da - mean), mean the sum of a da over the row; log and \
     * mean of element i are at i * step */                                    \
    K(void, attend_grad,                                                       \
      (float *s, float *da, int64_t n, float scale, const float *log,          \
       const float *mean, int64_t step))                                       \
    /* y = x * factor; may be x's memory */                                    \
    K(void, times, (const float *x, int64_t n, float factor, float *y))        \
    /* the words of rng_block for `blocks` blocks from `block` on */           \
    K(void, random_words,                                                      \
      (const Rng *r, uint32_t block, int64_t blocks, uint32_t *word))          \
    /* y[r*ld + i] = x[r*ld + i] * factor where word[i] >> 8 is at least       \
     * `least`, else 0, for i < n; in double. May be x's memory */             \
    K(void, drop,                                                              \
      (const uint32_t *word, int32_t least, double factor, const float *x,     \
       int64_t rows, int64_t n, int64_t ld, float *y, bool add))               \
    /* y = softmax(x) over classes; may be x's memory */                       \
    K(void, class_softmax,                                                     \
      (const float *x, int64_t rows, int classes, float *y))                   \
    /* cross-entropy of rows of logits with targets t and mask m: sum[0] = sum \
     * of -m log softmax(x)[t] (NaN if t is no class), sum[1] = sum of m,      \
     * which class_count alone returns. class_grad: dx = `factor` times the    \
     * gradient of sum[0] */                                                   \
    K(void, class_sums, (const Classes *r, double *sum))                       \
    K(double, class_count, (const Classes *r))                                 \
    K(void, class_grad, (const Classes *r, float factor, float *dx, bool add)) \
    /* region losses, with s = softmax(x). class_region_sums: sum = m s t, m s \
     * and m t of each class, each summed over rows, class after class; then   \
     * the sum of m. class_region_grad: dx = the gradient of the sum of m (a t \
     * + b) s over rows and classes; coef = a of all classes, then b of all    \
     * classes */                                                              \
    K(void, class_region_sums, (const Classes *r, double *sum))                \
    K(void, class_region_grad,                                                 \
      (const Classes *r, const float *coef, float *dx, bool add))              \
    /* multiply-adds only; returns the floating-point operations of a round */ \
    K(double, peak, (int64_t rounds))                                          \
    /* y[i] = sum of x[r*ldx + i] over r < rows, in order; i < n */            \
    K(void, add_rows,                                                          \
      (const float *x, int64_t rows, int64_t ldx, int64_t n, float *y,         \
       bool add))                                                              \
    /* y[i] += sum of a[r*lda + i] * x[r*ldx + i] over r < rows; i < n */      \
    K(void, dot_rows,                                                          \
      (const float *a, int64_t lda, const float *x, int64_t ldx, int64_t rows, \
       int64_t n, float *y))                                                   \
    /* an update of n parameters; factor: the FACTOR_* of optim.h */           \
    K(void, adam,                                                              \
      (const float *grad, int64_t n, const float *factor, float *p, float *m,  \
       float *v))                                                              \
    K(void, sgd,                                                               \
      (const float *grad, int64_t n, const float *factor, float *p, float *m)) \
    /* y += by (x - y) */                                                      \
    K(void, blend, (const float *x, int64_t n, float by, float *y))            \
    /* sum of x^2, in double */                                                \
    K(double, sum_squares, (const float *x, int64_t n))                        \
    /* y = x rounded to bf16, ties to even; y = x converted from bf16 */       \
    K(void, round_bf16, (const float *x, int64_t n, uint16_t *y))              \
    K(void, widen_bf16, (const uint16_t *x, int64_t n, float *y))              \
    /* y[i] is the pair of a[i] and b[i] */                                    \
    K(void, pair_bf16,                                                         \
      (const uint16_t *a, const uint16_t *b, int64_t n, float *y))

/* Packs a row of dy (or x) for PairOuter: `cols` pixels, ld apart, of `height`
 * numbers in bf16. Pixels 2 (s*step + k) and the next, or 0 past the end,
 * become the pair
 *
 *   to[(i / high)*gap + (s*high + i % high)*step + k]    i < height
 *
 * for s < steps, k < step. Rows past the last one of a block are garbage. */
typedef struct PairPack {
    const uint16_t *a;
    float *to;
    int64_t ld, cols, height, steps;
    ptrdiff_t gap;
    int high, step;
} PairPack;

/* Outer for pairs of bf16, over all blocks of rows. For i < height and j <
 * width:
 *
 *   out[i*ldo + j] = sum over r < rows, s < steps, k < step of the products of
 *       a[(i / high)*gap + ((r*steps + s)*high + i % high)*step + k]
 *       and x[r*pitch + (s*step + k)*ldx + j]
 *
 * With `add` the sum is added to out. */
typedef struct PairOuter {
    const float *a, *x;
    float *out;
    int64_t rows, steps, height;
    ptrdiff_t gap, pitch, ldx, ldo;
    int high, step, width; /* <= outer_high, deep, outer_wide of Pairs */
    bool add;
} PairOuter;

/* Kernels with dot products of pairs of bf16: each float of an operand holds
 * two bf16 numbers, the first in its lower half, and one step adds both
 * products of a pair. Results, bias and sums are f32. Subnormal numbers count
 * as 0. `panel` and `lanes` are those of the set. */
typedef struct Pairs {
    const char *text; /* the instructions, for messages */
    void (*product)(const PanelGemm *p);
    void (*pack)(const PairPack *p);
    void (*outer)(const PairOuter *p);
    int outer_high, outer_wide, deep;
    bool tiles; /* AMX: many times the rate of f32, not twice */
} Pairs;

typedef struct Simd {
    const char *name;
    const Pairs *pairs; /* NULL: no dot products of pairs */
    int lanes;          /* floats in a vector */
    int panel;          /* result channels of one packed panel of weights */
    int outer_high, outer_wide; /* the largest Outer */
#define K(result, name, args) result(*name) args;
    SIMD_KERNELS(K)
#undef K
} Simd;

/* Returns the table called `name`, or for NULL or "" the best that this
 * processor runs; NULL with the reason when there is no such set or the
 * processor lacks it. */
const Simd *simd_find(const char *name);

/* Returns the table in use: the set of SEG_ISA, else the best. It is chosen at
 * the first call and kept, because the bits of two sets differ. */
const Simd *simd(void);

/* Returns false with the reason when SEG_ISA names no set that runs here;
 * simd() is then the best. Called when a device is opened. */
bool simd_check(void);
#endif
