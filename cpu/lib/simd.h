/* simd.h -- the kernels that exist once per instruction set, and the choice.
 *
 * Files in cpu/simd are compiled for avx512, avx2 and portable, on aarch64 for
 * neon and portable; each set fills one table. The rest of cpu/ is compiled
 * once, decides geometry, tasks and memory, and calls the table for the inner
 * loops. Nothing here knows tensors or threads. Distances (ld*, pitch, step,
 * gap) are in floats; blocks need the alignment of a float only. No kernel
 * reads or writes beyond the last element it names: the ends of rows are parts
 * of vectors.
 *
 * A call is a row of work, so that the way through a table costs nothing;
 * what must be a constant for the compiler (shapes of register blocks) is
 * chosen inside the kernel. */
#ifndef SEG_CPU_LIB_SIMD_H
#define SEG_CPU_LIB_SIMD_H
#include "engine/base/err.h"
#include "engine/base/rng.h"
#include <stddef.h>
#include <stdint.h>

/* Widest vector of any set: what padding of buffers may assume. */
enum { LANES_MAX = 16 };

/* A run: `len` consecutive floats of each pixel meet rows of a panel. */
typedef struct Run {
    const float *a; /* of pixel 0; pixel i is lda further */
    int64_t k;      /* first row of the panel             */
} Run;

/* A row of pixels times a panel (rows, width) of packed weights, where width
 * is co rounded up to lanes; for i < cols and j < co:
 * y[i*ldy + j] = bias[j] + sum over runs r and k < len of
 *                run[r].a[i*lda + k] * panel[(run[r].k + k)*width + j]
 * A bias of NULL is 0; `add` adds to y and ignores the bias. One chain of
 * additions per element, in the order of runs. */
typedef struct PanelGemm {
    const Run *run; /* `runs` of them, in the order of the sum */
    const float *panel, *bias;
    float *y;
    int64_t runs, len, cols;
    ptrdiff_t lda, ldy;
    ptrdiff_t ldw; /* of narrow alone                */
    int co;        /* 1 .. Simd.panel; of narrow NARROW_CO */
    bool add;
    bool far; /* a is likely not in a cache */
} PanelGemm;

/* The same for the few channels of `narrow`, whose weights are not packed side
 * by side but one channel after the other: panel[j*ldw + run[r].k + k]. */
enum { NARROW_CO = 4 };

/* Sum over pixels of outer products; for i < height and j < width:
 * out[i*ldo + j] = sum over r < rows and c < cols of
 *                  a[(r*cols + c)*lda + i] * x[r*pitch + c*ldx + j]
 * with `add` added to out. One chain of rows*cols additions per element. */
typedef struct Outer {
    const float *a, *x;
    float *out;
    int64_t rows, cols;
    ptrdiff_t pitch, lda, ldx, ldo;
    int high;          /* 1, 2, 4, ... Simd.outer_high; as many are read */
    int height, width; /* <= high; <= Simd.outer_wide */
    bool add;
} Outer;

/* A row of pixels where every channel is alone (depthwise.h); for i < cols
 * and j < channels:
 * y[i*ldy + j] = bias[j] + sum over runs r and taps t of
 *     run[r].a[at + i*lda + t*gap + j] * w[run[r].k + t*w_gap + j]
 * A bias of NULL is 0; `add` adds to y and ignores the bias. One chain of
 * additions per element, in the order of runs and taps, both maybe none. */
typedef struct Depth {
    const Run *run;
    const float *w, *bias;
    float *y;
    int64_t runs, taps, cols, channels;
    ptrdiff_t at, lda, ldy, gap, w_gap; /* w_gap < 0: taps in reverse */
    bool add;
} Depth;

/* A square of n x n numbers a channel that Winograd's transforms make 36 of,
 * in planes, or of 36: element (i, j) is at i*row + j*pixel, number (i, j) of
 * the 6 x 6 at (6 i + j)*plane; one channel follows the other, and planes have
 * room for whole vectors, of which the lanes beyond the last channel are
 * transforms of zeros, or not looked at. Elements of rows r0 .. r1-1 and
 * columns c0 .. c1-1 are there; others are read as 0, and not written (those
 * that are written begin at 0). */
typedef struct Tile {
    ptrdiff_t row, pixel, plane;
    int64_t channels;
    int r0, r1, c0, c1;
    bool half; /* elements are read as bf16 */
    bool add;  /* to what is there; the bias is ignored then */
} Tile;

/* What a store does to each result: the rows relu and leaky_relu, with their
 * bits. On the way back the sign of what went in says what they do to a
 * gradient. */
typedef enum ActKind { ACT_NONE, ACT_RELU, ACT_LEAKY_RELU } ActKind;
typedef struct Act {
    ActKind kind;
    float slope; /* of ACT_LEAKY_RELU, for x <= 0 */
} Act;

/* Per channel; what a kernel of batch_norm does not use may be NULL. */
typedef struct BnAffine {
    const float *hi, *lo;      /* the mean is their sum                  */
    const float *scale, *beta; /* see bn_apply; of bn_sums with `then` only */
    const float *shift, *tilt; /* see bn_grad                           */
    Act act; /* run on each result; dy of bn_sums and bn_grad is of what it
              * gave, and the sign of what it was given is found again from
              * x: one operation a number, where y would be one more to read
              * and to keep                                             */
} BnAffine;

/* Rows that are normalised each by itself, (rows, channels): y = z gamma + beta
 * with z = (x - mean) rstd; gamma and beta (channels) may both be NULL: 1 and
 * 0. What belongs to a row is written by row_norm and read by row_norm_grad.
 */
typedef struct RowNorm {
    const float *x, *gamma, *beta;
    int64_t rows, channels;
    double eps;
    float *hi, *lo, *rstd; /* (rows); the mean is hi + lo */
} RowNorm;

/* Back through it. dgamma and dbeta (channels), both or neither, become the
 * sums of these rows; dx may be NULL, or dy's memory. */
typedef struct RowGrad {
    const float *dy;
    float *dx, *dgamma, *dbeta;
    bool add; /* to dx */
} RowGrad;

/* What is done to results that are complete: batch_norm of constants, where
 * norm.hi is not NULL, and `then`, which is norm's too. */
typedef struct Epilogue {
    BnAffine norm;
    Act act;
} Epilogue;

/* A row of windows of max pooling: window i has tap number[t] at
 * x[t] + i*step, `channels` floats. Taps outside the image are left out, and
 * at least one is inside; numbers are below 256. dx is that of pool_spread, x
 * that of pool_max; the other may hold garbage. */
typedef struct PoolRow {
    const float *const *x;
    float *const *dx;
    const int *number;
    int taps;
    int64_t step, cols, channels;
} PoolRow;

/* A step of an LSTM of one sample: z and b (or NULL) are four gates i, f, g, o
 * of `units` numbers each; `sum`, likewise, what the weights make of the step
 * before, or NULL at the first, which has no cell either. gates: i, f, g, o
 * behind their sigmoid or tanh, may be sum's memory; next may be cell's. */
typedef struct LstmStep {
    const float *z, *bias, *sum, *cell;
    float *gates, *next, *y;
    int64_t units;
} LstmStep;

/* Back through a step: gates as LstmStep leaves them become the gradient of
 * what was behind them; dh (NULL: 0) is what the step after gives back beside
 * dy, and so is dc, which becomes what this one gives to the one before. */
typedef struct LstmGrad {
    const float *dy, *dh, *cell, *last; /* last: c of the step before, NULL */
    float *dc, *gates;
    int64_t units;
} LstmGrad;

/* The slope of a loss of dice.h, all of it times the gradient of the loss:
 * dx = (a t + b) s (1 - s) + bce ((1 - t) s - weight t (1 - s)). */
typedef struct RegionGrad {
    float a, b, bce, weight;
} RegionGrad;

/* Activations that have an exponential in them. */
typedef enum CurveKind {
    CURVE_SIGMOID,
    CURVE_TANH,
    CURVE_GELU,
    CURVE_SILU
} CurveKind;

/* Errors e = x - t of a regression, each times its mask m and its weight q
 * (NULL: 1), and what one costs: |e|, e^2, or e^2/2 within delta and
 * delta (|e| - delta/2) beyond. An element with m q = 0 is 0, whatever e is. */
typedef enum ErrorKind { ERROR_MAE, ERROR_MSE, ERROR_HUBER } ErrorKind;
typedef struct Errors {
    const float *x, *t, *m, *q;
    double delta;
    ErrorKind kind;
} Errors;

/* Rows of logits x, a softmax each, of few classes: 2 .. CLASSES_MAX. The
 * target is a class number a row or, if `shares`, a number for each class; m
 * counts rows (NULL: all), and what has a target of `ignore` (NAN: none) does
 * not count. Rows that do not are not looked at. */
enum { CLASSES_MAX = 16 };
typedef struct Classes {
    const float *x, *t, *m;
    int64_t rows;
    int classes;
    bool shares;
    float ignore;
} Classes;

/* The list of kernels: result, name, arguments. Declarations, the table and
 * its rows are made from it, so a new kernel is a line here and a function
 * ISA_NAME(name) in a file of cpu/simd. `add`: to what is there, else store. */
#define SIMD_KERNELS(K)                                                        \
    K(void, product, (const PanelGemm *p))                                     \
    K(void, narrow, (const PanelGemm *p))                                      \
    K(void, outer, (const Outer *p))                                           \
    K(void, depth, (const Depth *p))                                           \
    /* Winograd (simd/winograd.c): x 6x6, w 3x3 or dy 4x4 into planes */       \
    K(void, tile_image, (const Tile *t, const void *x, float *planes))         \
    K(void, tile_weights, (const Tile *t, const float *w, float *planes))      \
    K(void, tile_grad, (const Tile *t, const void *dy, float *planes))         \
    /* planes into y 4x4 (bias NULL: 0) or dw 3x3 */                           \
    K(void, tile_result,                                                       \
      (const Tile *t, const float *planes, const float *bias,                  \
       const Epilogue *epilogue, float *y))                                    \
    K(void, tile_gradient, (const Tile *t, const float *planes, float *dw))    \
    /* mean, and sum of squared distances from it, of each channel of          \
     * (rows, channels); at most 1024 rows */                                  \
    K(void, bn_stats,                                                          \
      (const float *x, int64_t rows, int64_t channels, double *mean,           \
       double *m2))                                                            \
    /* y = then((x - mean) * scale + beta) */                                  \
    K(void, bn_apply,                                                          \
      (const float *x, int64_t rows, int64_t channels, const BnAffine *a,      \
       float *y))                                                              \
    /* sum of dy; of dy * (x - mean); dy as `then` lets it through */          \
    K(void, bn_sums,                                                           \
      (const float *dy, const float *x, int64_t rows, int64_t channels,        \
       const BnAffine *a, double *sum, double *dot))                           \
    /* dx = dy * scale + (x - mean) * tilt + shift, or added */                \
    K(void, bn_grad,                                                           \
      (const float *dy, const float *x, int64_t rows, int64_t channels,        \
       const BnAffine *a, float *dx, bool add))                                \
    /* layer_norm and its gradients */                                         \
    K(void, row_norm, (const RowNorm *r, float *y))                            \
    K(void, row_norm_grad, (const RowNorm *r, const RowGrad *p))               \
    /* y = x, or added */                                                      \
    K(void, copy, (const float *x, int64_t n, float *y, bool add))             \
    /* y[r*ldy + i] = x[r*ldx + i] for i < n, or added */                      \
    K(void, copy_rows,                                                         \
      (const float *x, int64_t ldx, int64_t rows, int64_t n, float *y,         \
       int64_t ldy, bool add))                                                 \
    K(void, sum2, (const float *a, const float *b, int64_t n, float *y))       \
    /* y = a * b, or added */                                                  \
    K(void, mul2,                                                              \
      (const float *a, const float *b, int64_t n, float *y, bool add))         \
    K(void, relu, (const float *x, int64_t n, float *y))                       \
    /* y = x <= 0 ? x * slope : x */                                           \
    K(void, leaky, (const float *x, int64_t n, float slope, float *y))         \
    /* dx = y <= 0 ? 0 : dy, or added */                                       \
    K(void, relu_grad,                                                         \
      (const float *dy, const float *y, int64_t n, float *dx, bool add))       \
    /* y = x <= 0 ? slope x : x; dx = y <= 0 ? slope dy : dy, or added */      \
    K(void, leaky_relu, (const float *x, int64_t n, float slope, float *y))    \
    K(void, leaky_grad,                                                        \
      (const float *dy, const float *y, int64_t n, float slope, float *dx,     \
       bool add))                                                              \
    /* y = the curve of x, may be x's memory; dx = its slope times dy, or      \
     * added; `kept`: y of sigmoid and tanh, x of the others */                \
    K(void, curve, (CurveKind kind, const float *x, int64_t n, float *y))      \
    K(void, curve_grad,                                                        \
      (CurveKind kind, const float *dy, const float *kept, int64_t n,          \
       float *dx, bool add))                                                   \
    /* y (cols, channels): the largest; `which`: the number of its tap */      \
    K(void, pool_max, (const PoolRow *p, float *y, uint8_t *which))            \
    /* dx = dy at the tap that won, else 0; or added */                        \
    K(void, pool_spread,                                                       \
      (const PoolRow *p, const float *dy, const uint8_t *which, bool add))     \
    /* sum of cross entropies of logits x; its slope times `factor` */         \
    K(double, bce_sum,                                                         \
      (const float *x, const float *t, int64_t n, float weight))               \
    K(void, bce_grad,                                                          \
      (const float *x, const float *t, int64_t n, float weight, float factor,  \
       float *dx, bool add))                                                   \
    /* sums of s t, s, t and, if `cross`, the cross entropy; s = sigmoid(x) */ \
    K(void, region_sums,                                                       \
      (const float *x, const float *t, int64_t n, float weight, bool cross,    \
       double *sum))                                                           \
    K(void, region_grad,                                                       \
      (const float *x, const float *t, int64_t n, const RegionGrad *r,         \
       float *dx, bool add))                                                   \
    /* sum of what n errors cost; dx = factor times its slope, or added, with  \
     * the bits of the plain loop; sum of n numbers; all in double */          \
    K(double, error_sum, (const Errors *e, int64_t n))                         \
    K(void, error_grad,                                                        \
      (const Errors *e, int64_t n, double factor, float *dx, bool add))        \
    K(double, sum, (const float *x, int64_t n))                                \
    /* with v_b(e) = 1 / (1 + e rise[b]), b < bins, whole vectors of doubles:  \
     * apart = v(x) - v(t); sum += by x; sum of g v (1 - v), v of x */         \
    K(void, dose_apart,                                                        \
      (double x, double t, const double *rise, int64_t bins, double *apart))   \
    K(void, dose_add, (const double *x, double by, int64_t bins, double *sum)) \
    K(double, dose_grad,                                                       \
      (double x, const double *rise, const double *g, int64_t bins))           \
    K(void, lstm_step, (const LstmStep *s))                                    \
    K(void, lstm_grad, (const LstmGrad *s))                                    \
    /* s = exp(scale s - most) of n scores, most the largest so far; sum of    \
     * these added to sum; returns what older sums were multiplied by */       \
    K(float, attend_row,                                                       \
      (float *s, int64_t n, float scale, float *most, float *sum))             \
    /* s = a = exp(scale s - log), da = scale a (da - mean); log and mean of   \
     * element i stand at i * step */                                          \
    K(void, attend_grad,                                                       \
      (float *s, float *da, int64_t n, float scale, const float *log,          \
       const float *mean, int64_t step))                                       \
    /* y = x * factor; may be x's memory */                                    \
    K(void, times, (const float *x, int64_t n, float factor, float *y))        \
    /* the words of rng_block for `blocks` blocks from `block` on */           \
    K(void, random_words,                                                      \
      (const Rng *r, uint32_t block, int64_t blocks, uint32_t *word))          \
    /* y[r*ld + i] = x[r*ld + i] * factor where word[i] >> 8 is at least       \
     * `least`, else 0, for i < n; or added; in double. May be x's memory */   \
    K(void, drop,                                                              \
      (const uint32_t *word, int32_t least, double factor, const float *x,     \
       int64_t rows, int64_t n, int64_t ld, float *y, bool add))               \
    /* y = softmax(x) over classes; may be x's memory */                       \
    K(void, class_softmax,                                                     \
      (const float *x, int64_t rows, int classes, float *y))                   \
    /* sum[0] of m times -log softmax(x)[t], NaN for a t that is no class;     \
     * sum[1] of m, also alone; the slope of the first times `factor` */       \
    K(void, class_sums, (const Classes *r, double *sum))                       \
    K(double, class_count, (const Classes *r))                                 \
    K(void, class_grad, (const Classes *r, float factor, float *dx, bool add)) \
    /* with s = softmax(x), of each class the sums of m s t, m s and m t, then \
     * that of m; dx = slope of the sum of m (a t + b) s, a of all classes,    \
     * then b */                                                               \
    K(void, share_sums, (const Classes *r, double *sum))                       \
    K(void, share_grad,                                                        \
      (const Classes *r, const float *coef, float *dx, bool add))              \
    /* multiply-adds only; returns the floating-point operations of a round */ \
    K(double, peak, (int64_t rounds))                                          \
    /* y[i] = sum of x[r*ldx + i] over r < rows, in order; i < n; or added */  \
    K(void, add_rows,                                                          \
      (const float *x, int64_t rows, int64_t ldx, int64_t n, float *y,         \
       bool add))                                                              \
    /* y[i] += sum of a[r*lda + i] * x[r*ldx + i] over r < rows; i < n */      \
    K(void, dot_rows,                                                          \
      (const float *a, int64_t lda, const float *x, int64_t ldx, int64_t rows, \
       int64_t n, float *y))                                                   \
    /* an update of n parameters by the numbers of `Factor` in optim.h */      \
    K(void, adam,                                                              \
      (const float *grad, int64_t n, const float *factor, float *p, float *m,  \
       float *v))                                                              \
    K(void, sgd,                                                               \
      (const float *grad, int64_t n, const float *factor, float *p, float *m)) \
    /* y += by (x - y) */                                                      \
    K(void, blend, (const float *x, int64_t n, float by, float *y))            \
    /* sum of x^2, in double */                                                \
    K(double, squares, (const float *x, int64_t n))                            \
    /* y = x rounded to bf16, ties to even; y = x of bf16 */                   \
    K(void, round_bf16, (const float *x, int64_t n, uint16_t *y))              \
    K(void, widen_bf16, (const uint16_t *x, int64_t n, float *y))              \
    /* pairs: y[i] has a[i] and b[i] */                                        \
    K(void, pair_bf16,                                                         \
      (const uint16_t *a, const uint16_t *b, int64_t n, float *y))

/* Rows of dy (or x) for PairOuter: `cols` pixels of `height` numbers in bf16,
 * ld apart, a row of a region. Pixel 2 (s*step + k) and the next one, 0 where
 * there is none, become the pair
 *   to[(i / high)*gap + (s*high + i % high)*step + k]    i < height
 * for s < steps, k < step. What lies behind the last of a block is garbage. */
typedef struct PairPack {
    const uint16_t *a;
    float *to;
    int64_t ld, cols, height, steps;
    ptrdiff_t gap;
    int high, step;
} PairPack;

/* Outer of pairs, for all blocks of rows; for i < height and j < width:
 * out[i*ldo + j] = sum over r < rows, s < steps, k < step of the products of
 *     a[(i / high)*gap + ((r*steps + s)*high + i % high)*step + k]
 *     and x[r*pitch + (s*step + k)*ldx + j]
 * with `add` added to out. */
typedef struct PairOuter {
    const float *a, *x;
    float *out;
    int64_t rows, steps, height;
    ptrdiff_t gap, pitch, ldx, ldo;
    int high, step, width; /* <= outer_high, deep, outer_wide of Pairs */
    bool add;
} PairOuter;

/* Dot products of pairs of bf16: kernels to which a float is two numbers of 16
 * bits, the first in its lower half. The sum of an element adds both products
 * of a pair; results, bias and sums are f32. What is below the least normal
 * number counts as 0. `panel` and `lanes` are the set's. */
typedef struct Pairs {
    const char *text; /* what does them, for people */
    void (*product)(const PanelGemm *p);
    void (*pack)(const PairPack *p);
    void (*outer)(const PairOuter *p);
    int outer_high, outer_wide, deep;
    bool tiles; /* at many times the rate of f32, not twice */
} Pairs;

typedef struct Simd {
    const char *name;
    const Pairs *pairs; /* NULL: this processor has none */
    int lanes; /* floats in a vector                                  */
    int panel; /* result channels of one packed panel of weights      */
    int outer_high, outer_wide; /* most of an Outer's high and width  */
#define K(result, name, args) result(*name) args;
    SIMD_KERNELS(K)
#undef K
} Simd;

/* The table called `name`, or the best this processor has for NULL or "";
 * NULL with the reason when there is no such set or the processor lacks it. */
const Simd *simd_find(const char *name);

/* The table in use: what SEG_ISA names, else the best. Chosen at the first
 * call and kept: the bits of two sets differ. */
const Simd *simd(void);

/* False with the reason when SEG_ISA names no set that runs here (simd() then
 * is the best): for those who open a device. */
bool simd_check(void);
#endif
