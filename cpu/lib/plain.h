/* plain.h -- types and loops shared by the reference kernels in cpu/ref.
 *
 * Every file of cpu/ref is compiled twice: as `ref` (real is double), the
 * reference for all other backends, and as the plain operators of `cpu` (real
 * is float). The Makefile sets REAL, REAL_IS_DOUBLE and PLAIN (the prefix).
 *
 * Rules of these kernels:
 * - sums are accumulated in double, for either `real`, and rounded once at
 *   the end;
 * - results do not depend on the number of threads: either each result belongs
 *   to one task, or sum_run cuts a sum into chunks by shapes alone and adds
 *   the chunks in order;
 * - inner loops run over contiguous channels and have no branches, so that the
 *   compiler vectorises them;
 * - dx[i] is written by put(), which stores or adds, as `fresh` says.
 *
 * They are the specification, so they are written to be read: one loop nest a
 * formula, in the order of the formula, with only as much tiling and packing as
 * keeps a test suite in double bearable. An operator that has to be fast gets a
 * file in cpu/ops or cpu/conv, and this one stays its reference. */
#ifndef SEG_CPU_LIB_PLAIN_H
#define SEG_CPU_LIB_PLAIN_H
#include "cpu/lib/kernels.h"
#include "cpu/lib/thread_pool.h"
#include <math.h>
#include <string.h>

#if !defined REAL || !defined REAL_IS_DOUBLE || !defined PLAIN
#error "compile with -DREAL=, -DREAL_IS_DOUBLE= and -DPLAIN=: see Makefile"
#endif

typedef REAL real; /* element type of all tensors of the backend */

/* KERNEL(conv_fwd) is ref_conv_fwd or plain_conv_fwd. */
#define KERNEL(name)            KERNEL_NAME(PLAIN, name)
#define KERNEL_NAME(set, name)  KERNEL_PASTE(set, name)
#define KERNEL_PASTE(set, name) set##_##name

// -- operands ----------------------------------------------------------------

/* Memory of a tensor; NULL for an absent one. */
static inline real *values(const Tensor *t)
{
    return t ? t->data : NULL;
}

/* True if dx[i] is to be stored, not added to. Its memory may then hold
 * garbage, NaN included, so it must not be read. */
static inline bool is_fresh(const Call *c, int i)
{
    return c->fresh >> i & 1;
}

/* Stores or adds v; the sum is taken in double and rounded once. */
static inline void put(real *p, double v, bool fresh)
{
    *p = (real)(fresh ? v : *p + v);
}

/* Flat index of (n,d,h,w,0). */
static inline int64_t at(Dims s, int64_t n, int64_t d, int64_t h, int64_t w)
{
    return (((n * s.d + d) * s.h + h) * s.w + w) * s.c;
}

/* Rows of channels in a tensor: N*D*H*W. */
static inline int64_t rows(Dims s)
{
    return s.n * positions(s);
}

/* A flat row number of a tensor of extents `s`, split into (n,d,h,w). */
typedef struct Place {
    int32_t n, d, h, w;
} Place;

static inline Place place(Dims s, int64_t row)
{
    Place p;
    p.w = (int32_t)(row % s.w), row /= s.w;
    p.h = (int32_t)(row % s.h), row /= s.h;
    p.d = (int32_t)(row % s.d);
    p.n = (int32_t)(row / s.d);
    return p;
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

// -- inner loops -------------------------------------------------------------

/* Partial sums of dot(): a fixed number, so that vectors of any length give the
 * same bits. */
enum { DOT_LANES = 8 };

/* Returns sum a[i] b[i]: first each lane i % DOT_LANES, then the lanes in
 * pairs. */
static inline double dot(const real *a, const real *b, int64_t n)
{
    double sum[DOT_LANES] = {0};
    int64_t i = 0;
    for (; i + DOT_LANES <= n; i += DOT_LANES)
        for (int l = 0; l < DOT_LANES; l++)
            sum[l] += (double)a[i + l] * b[i + l];
    for (int l = 0; i + l < n; l++) sum[l] += (double)a[i + l] * b[i + l];
    return ((sum[0] + sum[1]) + (sum[2] + sum[3])) +
           ((sum[4] + sum[5]) + (sum[6] + sum[7]));
}

/* sum[i] += a x[i]: products of a row, accumulated in double by one vector
 * loop. */
static inline void axpy(double *restrict sum, double a, const real *restrict x,
                        int64_t n)
{
    for (int64_t i = 0; i < n; i++) sum[i] += a * x[i];
}

// -- outer loops -------------------------------------------------------------

/* Computes items from .. to-1 of an outer loop; each result belongs to one
 * item. Runs on any thread, ranges in any order. */
typedef void RangeFn(void *ctx, int64_t from, int64_t to);

/* Multiply-adds of a task: enough to outweigh the cost of handing it out. */
enum { TASK_COST = 16384 };

/* The arguments of one range_run. */
typedef struct RangeJob {
    RangeFn *fn;
    void *ctx;
    int64_t items, grain; /* in all; of a task */
} RangeJob;

/* The PoolFn: task number -> items. */
static inline void range_task(void *ctx, int64_t task, int thread)
{
    const RangeJob *j = ctx;
    (void)thread;
    j->fn(j->ctx, task * j->grain, least((task + 1) * j->grain, j->items));
}

/* Runs fn over 0 .. items-1 on all threads. `cost` is roughly the work of one
 * item in multiply-adds or elements. */
static inline void range_run(const Call *c, int64_t items, int64_t cost,
                             RangeFn *fn, void *ctx)
{
    RangeJob j = {fn, ctx, items, most(1, TASK_COST / most(1, cost))};
    pool_run(c->dev, ceil_div(items, j.grain), range_task, &j);
}

/* Adds the contributions of items from .. to-1 of set `set` to sum[0 ..
 * width-1], which is zero on entry. */
typedef void SumFn(void *ctx, int64_t set, int64_t from, int64_t to,
                   double *sum);

/* The arguments of one sum_run: sets x chunks tasks of up to `grain` items. */
typedef struct SumJob {
    SumFn *fn;
    void *ctx;
    int64_t items, width, grain, chunks; /* per set */
    double *sums;                        /* (sets, chunks, width) */
} SumJob;

/* Cuts a set into at most 64 chunks, so that the partial sums stay small
 * compared with the operand. The cut depends on shapes alone. */
static inline SumJob sum_job(int64_t items, int64_t width)
{
    SumJob j = {.items = items, .width = width};
    j.grain = most(ceil_div(items, 64), most(1, TASK_COST / most(1, width)));
    j.chunks = most(1, ceil_div(items, j.grain));
    return j;
}

/* Bytes of scratch of sum_run for these extents. */
static inline size_t sum_bytes(int64_t sets, int64_t items, int64_t width)
{
    return (size_t)(sets * sum_job(items, width).chunks * width) *
           sizeof(double);
}

/* The PoolFn: sums one chunk of one set into its own slot. */
static inline void sum_task(void *ctx, int64_t task, int thread)
{
    const SumJob *j = ctx;
    (void)thread;
    int64_t set = task / j->chunks, from = task % j->chunks * j->grain;
    double *sum = j->sums + task * j->width;
    memset(sum, 0, (size_t)j->width * sizeof *sum);
    j->fn(j->ctx, set, from, least(from + j->grain, j->items), sum);
}

/* Computes `width` sums over `items` items for each of `sets` independent sets.
 * Returns the result (sets, width), which lies at the start of `scratch`;
 * scratch has sum_bytes() bytes and is 8-byte aligned. */
static inline double *sum_run(const Call *c, int64_t sets, int64_t items,
                              int64_t width, SumFn *fn, void *ctx,
                              void *scratch)
{
    SumJob j = sum_job(items, width);
    j.fn = fn, j.ctx = ctx, j.sums = scratch;
    pool_run(c->dev, sets * j.chunks, sum_task, &j);

    // in the calling thread and in order; the result moves to the front
    for (int64_t s = 0; s < sets; s++) {
        const double *part = j.sums + s * j.chunks * width;
        double *out = j.sums + s * width; // no chunk that is still unread
        if (out != part) memmove(out, part, (size_t)width * sizeof *out);
        for (int64_t k = 1; k < j.chunks; k++)
            for (int64_t i = 0; i < width; i++) out[i] += part[k * width + i];
    }
    return j.sums;
}
#endif
