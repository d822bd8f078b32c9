/* grid_reduce.cuh -- grid reduction: sums over all blocks of a launch, finished
 * by the last block.
 *
 * Each block writes one partial sum; their number depends on extents only. Of
 * each group of neighbouring blocks, the last one to arrive adds the group's
 * partial sums in their order and stores the sum in place of the first one; the
 * last of the blocks that did so adds the sums of the groups, and so on. So no
 * second launch waits for the first to end, no block reads more than fan_in
 * partial sums at a time, and the bits do not depend on which block arrives
 * last. */
#ifndef SEG_CUDA_LIB_GRID_REDUCE_H
#define SEG_CUDA_LIB_GRID_REDUCE_H
#include "cuda/lib/kernel.cuh"

enum { GRID_REDUCE_FAN_IN = 32 }; // partial sums that a block adds at a time

struct GridReduce {
    int parts, fan_in; // fan_in: neighbouring parts that are added at a time
    int counters;      // of last_block, per column
};

/* A reduction of `columns` sums, at most GPU_COUNTERS, of `parts` partial sums
 * each. fan_in grows until the counters of all columns fit GPU_COUNTERS. */
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

/* The number of partial sums that are written and read again, the sums of
 * groups included. */
static inline int64_t grid_reduce_traffic(const GridReduce &f)
{
    return f.parts > 1 ? f.parts + f.counters - 1 : 0;
}

/* Call it after the block has stored partial sum `part`. add(first, step,
 * count, all) adds the `count` partial sums first, first + step, ..; unless
 * `all` is set (no others are left) it stores the result in place of part
 * `first`. Returns true on the block that made the total. All threads of the
 * block must call it. */
template <class Add>
static __device__ __forceinline__ bool grid_reduce(const GridReduce &f,
                                                   int part, unsigned *counters,
                                                   const Add &add)
{
    if (f.parts == 1) {
        __syncthreads(); // the partial sum is stored
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

/* The sum of `count` numbers, `step` apart. */
static __device__ __forceinline__ double strided_sum(const double *at,
                                                     int64_t step, int count)
{
    double sum = 0;
#pragma unroll 8
    for (int k = 0; k < count; k++) sum += at[k * step];
    return sum;
}

/* The sums of `count` groups of four neighbouring floats, 16 bytes a load. */
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

/* sum[k * width + c] = the sum over `count` rows of element k * k_stride + c,
 * for k < K and c < width; rows begin `step` apart. `sum` has room for one
 * number per thread of the block, or per column if there are more. The rows are
 * shared by as many threads as the block has per column, and their sums are
 * added as a tree. All threads of the block must call it, after the last read
 * of earlier content of `sum`. */
template <int K>
static __device__ __forceinline__ void block_sum_rows(const double *rows,
                                                      int64_t step, int count,
                                                      int k_stride, int width,
                                                      double *sum)
{
    const int t = (int)threadIdx.x, threads = (int)blockDim.x;
    const int columns = K * width;
    const int deep = columns < threads ? threads / columns : 1;

    for (int i = t; i < deep * columns; i += threads) {
        const int k = i % columns / width, c = i % columns % width;
        const int r = i / columns;
        sum[i] = strided_sum(rows + r * step + k * k_stride + c, deep * step,
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

/* block_sum_rows over all partial sums of a column reduction: part i is the row
 * that begins at rows + i * step, and the block has stored its own part.
 * Returns true on the last block, which has the totals in `sum`. */
template <int K>
static __device__ __forceinline__ bool grid_reduce_sums(
    const GridReduce &f, int part, unsigned *counters, double *rows,
    int64_t step, int k_stride, int width, double *sum)
{
    auto add = [&](int first, int every, int count, bool all) {
        block_sum_rows<K>(rows + first * step, every * step, count, k_stride,
                          width, sum);
        for (int i = (int)threadIdx.x; i < K * width && !all;
             i += (int)blockDim.x)
            rows[first * step + i / width * k_stride + i % width] = sum[i];
    };
    return grid_reduce(f, part, counters, add);
}
#endif
