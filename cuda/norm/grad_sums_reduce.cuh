/* grad_sums_reduce.cuh -- the sums of grad_sums.cuh, by a walk of
 * col_reduce.cuh over the rows of the gradient.
 *
 * A thread keeps its channels and their sums, in float over RUN rows, then in
 * double; the last blocks add the parts and make what they are for. 16 KB of
 * shared memory. */
#ifndef SEG_CUDA_NORM_GRAD_SUMS_REDUCE_H
#define SEG_CUDA_NORM_GRAD_SUMS_REDUCE_H
#include "cuda/lib/col_reduce.cuh"
#include "cuda/norm/grad_sums.cuh"

/* rows(row, by, run) stores AT_ONCE rows of the gradient from `row` on, those
 * before s.to, and adds what close_one says of them to run; by: closing_by of
 * the thread's channels. joined: the walk of whose parts there is one sum. All
 * threads come here. */
template <int V, int AT_ONCE, class Rows>
static __device__ __forceinline__ void close_walk(
    const Closing &close, const Walk &walk, const Walk &joined, const Spot &s,
    double *parts, unsigned *words, const Rows &rows)
{
    double sum[2][V] = {};
    float4 by[V] = {};
    for (int v = 0; v < V && s.valid; v++) by[v] = closing_by(close, s.c + v);
    for (int64_t row = s.from; row < s.to;) {
        float run[2][V] = {};
#pragma unroll 1
        for (int n = 0; n < RUN; n += AT_ONCE, row += AT_ONCE * walk.deep)
            rows(row, by, run);
        for (int v = 0; v < V; v++) {
            sum[0][v] += (double)run[0][v];
            sum[1][v] += (double)run[1][v];
        }
    }
    const Total all = spot_total<2, V>(joined, s, sum, parts, words);
    for (int i = (int)threadIdx.x; all.sum && i < all.count; i += BLOCK)
        close_end(close, all.first + i, all.sum[i], all.sum[all.count + i]);
}
#endif
