/* grad_sums_reduce.cuh -- the sums of grad_sums.cuh by a column reduction
 * (col_reduce.cuh) over the rows of the gradient.
 *
 * Each thread keeps the sums of its channels, in float over RUN rows, then in
 * double; the last blocks add the partial sums and compute the results. 16 KB
 * of shared memory. */
#ifndef SEG_CUDA_NORM_GRAD_SUMS_REDUCE_H
#define SEG_CUDA_NORM_GRAD_SUMS_REDUCE_H
#include "cuda/lib/col_reduce.cuh"
#include "cuda/norm/grad_sums.cuh"

/* rows(row, by, run) stores AT_ONCE rows of the gradient from `row` on, only
 * rows before s.to, and adds their terms to run by grad_sums_add; by:
 * grad_sums_channel of the thread's channels. joined: `cols` with the parts of
 * all sets added to one total (col_reduce_joined). All threads must call it. */
template <int V, int AT_ONCE, class Rows>
static __device__ __forceinline__ void grad_sums_reduce(
    const GradSums &grads, const ColReduce &cols, const ColReduce &joined,
    const ColPosition &s, double *parts, unsigned *counters, const Rows &rows)
{
    ColSums<2, V> sums;
    sums.clear();
    float4 by[V] = {};
    for (int v = 0; v < V && s.valid; v++)
        by[v] = grad_sums_channel(grads, s.c + v);

    for (int64_t row = s.from; row < s.to;) {
        float run[2][V] = {};
#pragma unroll 1
        for (int n = 0; n < RUN; n += AT_ONCE, row += AT_ONCE * cols.deep)
            rows(row, by, run);
        sums.add(run);
    }

    const ColTotal all = col_grid_sums(joined, s, sums, parts, counters);
    for (int i = (int)threadIdx.x; all.sum && i < all.count; i += BLOCK)
        grad_sums_finish(grads, all.first + i, all.sum[i],
                         all.sum[all.count + i]);
}
#endif
