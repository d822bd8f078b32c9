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

enum { GRID_REDUCE_FAN_IN = 32 }; // parts that a block adds at a time

struct GridReduce {
    int parts, fan_in; // neighbours whose parts are added at a time
    int counters;      // of last_block that it takes
};

/* Of `columns` sums, at most GPU_COUNTERS, that all have so many parts: their
 * words are no more than that, either. */
static inline GridReduce grid_reduce_of(int64_t parts, int64_t columns)
{
    GridReduce f = {(int)parts, GRID_REDUCE_FAN_IN, 0};
    for (;; f.fan_in *= 2) {
        f.counters = 0;
        for (int64_t left = parts; left > 1; f.counters += (int)left)
            left = ceil_div(left, f.fan_in);
        if (f.counters * columns <= GPU_COUNTERS || parts <= f.fan_in) return f;
    }
}

/* Parts that are written and read again, sums of parts among them. */
static inline int64_t grid_reduce_traffic(const GridReduce &f)
{
    return f.parts > 1 ? f.parts + f.counters - 1 : 0;
}

/* The block has left its part. add(first, step, count, all) adds up parts
 * first, first + step, .. of which there are `count`; unless these are all that
 * are left, it puts what comes of it into the place of part `first`. Is this
 * the block that has added all? All of its threads call it. */
template <class Add>
static __device__ __forceinline__ bool grid_reduce(const GridReduce &f,
                                                   int part, unsigned *counters,
                                                   const Add &add)
{
    if (f.parts == 1) {
        __syncthreads(); // it is there
        add(0, 1, 1, true);
    }
    for (int left = f.parts, step = 1; left > 1; step *= f.fan_in) {
        const int group = part / f.fan_in, first = group * f.fan_in;
        const int count = min(f.fan_in, left - first);
        if (!last_block(counters + group, (unsigned)count)) return false;
        left = (left + f.fan_in - 1) / f.fan_in;
        add(first * step, step, count, left == 1);
        counters += left, part = group;
    }
    return true;
}

/* The sum of `count` numbers, `step` after each other. */
static __device__ __forceinline__ double strided_sum(const double *at,
                                                     int64_t step, int count)
{
    double sum = 0;
#pragma unroll 8
    for (int k = 0; k < count; k++) sum += at[k * step];
    return sum;
}

/* Likewise of four neighbours, 16 bytes at a time. */
static __device__ __forceinline__ void strided_sum_four(const float *at,
                                                        int64_t step, int count,
                                                        double (&sum)[4])
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
static __device__ __forceinline__ void block_sum_rows(const double *rows,
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
        sum[i] = strided_sum(rows + r * step + k * apart + c, deep * step,
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
static __device__ __forceinline__ bool grid_reduce_sums(
    const GridReduce &f, int part, unsigned *counters, double *rows,
    int64_t step, int apart, int width, double *sum)
{
    auto add = [&](int first, int every, int count, bool all) {
        block_sum_rows<K>(rows + first * step, every * step, count, apart,
                          width, sum);
        for (int i = (int)threadIdx.x; i < K * width && !all;
             i += (int)blockDim.x)
            rows[first * step + i / width * apart + i % width] = sum[i];
    };
    return grid_reduce(f, part, counters, add);
}
#endif
