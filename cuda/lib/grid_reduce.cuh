/* grid_reduce.cuh -- sums by parts, finished by whoever comes last.
 *
 * Blocks leave a part each, in a number that depends on extents only. The last
 * block to come of some neighbours adds theirs in their order and leaves the
 * sum in the place of the first; the last of those that did so adds these, and
 * so on. So no second launch waits for the first to end, no block has more
 * than a few parts to read, and the bits are the same whoever came last. */
#ifndef SEG_CUDA_LIB_GRID_REDUCE_H
#define SEG_CUDA_LIB_GRID_REDUCE_H
#include "cuda/lib/kernel.cuh"

enum { FOLD_NEAR = 32 }; // parts that a block adds at a time

struct Fold {
    int parts, near; // neighbours whose parts are added at a time
    int words;       // of last_block that it takes
};

/* Of `columns` sums, at most GPU_WORDS, that all have so many parts: their
 * words are no more than that, either. */
static inline Fold fold_of(int64_t parts, int64_t columns)
{
    Fold f = {(int)parts, FOLD_NEAR, 0};
    for (;; f.near *= 2) {
        f.words = 0;
        for (int64_t left = parts; left > 1; f.words += (int)left)
            left = ceil_div(left, f.near);
        if (f.words * columns <= GPU_WORDS || parts <= f.near) return f;
    }
}

/* Parts that are written and read again, sums of parts among them. */
static inline int64_t fold_moves(const Fold &f)
{
    return f.parts > 1 ? f.parts + f.words - 1 : 0;
}

/* The block has left its part. add(first, step, count, all) adds up parts
 * first, first + step, .. of which there are `count`; unless these are all that
 * are left, it puts what comes of it into the place of part `first`. Is this
 * the block that has added all? All of its threads call it. */
template <class Add>
static __device__ __forceinline__ bool fold(const Fold &f, int part,
                                            unsigned *words, const Add &add)
{
    if (f.parts == 1) {
        __syncthreads(); // it is there
        add(0, 1, 1, true);
    }
    for (int left = f.parts, step = 1; left > 1; step *= f.near) {
        const int group = part / f.near, first = group * f.near;
        const int count = min(f.near, left - first);
        if (!last_block(words + group, (unsigned)count)) return false;
        left = (left + f.near - 1) / f.near;
        add(first * step, step, count, left == 1);
        words += left, part = group;
    }
    return true;
}

/* The sum of `count` numbers, `step` after each other. */
static __device__ __forceinline__ double fold_one(const double *at,
                                                  int64_t step, int count)
{
    double sum = 0;
#pragma unroll 8
    for (int k = 0; k < count; k++) sum += at[k * step];
    return sum;
}

/* Likewise of four neighbours, 16 bytes at a time. */
static __device__ __forceinline__ void fold_four(const float *at, int64_t step,
                                                 int count, double (&sum)[4])
{
    for (int j = 0; j < 4; j++) sum[j] = 0;
#pragma unroll 8
    for (int k = 0; k < count; k++) {
        const float4 v = *(const float4 *)(at + k * step);
        sum[0] += (double)v.x, sum[1] += (double)v.y;
        sum[2] += (double)v.z, sum[3] += (double)v.w;
    }
}

/* sum[k * width + c] = the sum of numbers k * apart + c of `count` rows that
 * begin `step` after each other, k < K, c < width. `sum`: room for as many as
 * the block has threads, or as there are sums. The rows are shared by as many
 * threads as there are for a column, and their sums added as a tree. All
 * threads of the block come here; what is in `sum` has been read. */
template <int K>
static __device__ __forceinline__ void fold_rows(const double *rows,
                                                 int64_t step, int count,
                                                 int apart, int width,
                                                 double *sum)
{
    const int t = (int)threadIdx.x, threads = (int)blockDim.x;
    const int columns = K * width;
    const int deep = columns < threads ? threads / columns : 1;
    for (int i = t; i < deep * columns; i += threads) {
        const int k = i % columns / width, c = i % columns % width;
        const int r = i / columns;
        sum[i] = fold_one(rows + r * step + k * apart + c, deep * step,
                          (count - r + deep - 1) / deep);
    }
    __syncthreads();
    for (int n = deep; n > 1;) {
        const int rest = (n + 1) / 2;
        if (t < (n - rest) * columns) sum[t] += sum[t + rest * columns];
        n = rest;
        __syncthreads();
    }
}

/* The same over all parts of a sum, part i being the row that begins i * step
 * behind `rows`; the block has stored its own. True on the last block, which
 * has the sums in `sum`. */
template <int K>
static __device__ __forceinline__ bool fold_parts(const Fold &f, int part,
                                                  unsigned *words, double *rows,
                                                  int64_t step, int apart,
                                                  int width, double *sum)
{
    auto add = [&](int first, int every, int count, bool all) {
        fold_rows<K>(rows + first * step, every * step, count, apart, width,
                     sum);
        for (int i = (int)threadIdx.x; i < K * width && !all;
             i += (int)blockDim.x)
            rows[first * step + i / width * apart + i % width] = sum[i];
    };
    return fold(f, part, words, add);
}
#endif
