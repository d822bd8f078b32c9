/* bias_grad.cu -- the gradient of a bias: db[c] (+)= the sum of dy over all
 * rows. A column reduction (col_reduce.cuh); bound by memory, dy once. */
#include "cuda/conv/conv.cuh"
#include "cuda/lib/col_reduce.cuh"

namespace {

struct Bias {
    const void *dy;
    float *db;
    double *parts;
    unsigned *counters;
    ColReduce cols;
    bool fresh;
};

/* One part of the rows: RUN rows are added in float, then the sum continues in
 * double. */
template <int V, Dtype D>
__global__ void __launch_bounds__(BLOCK, 4) conv_bias_grad_kernel(const Bias p)
{
    const ColPosition s = col_position<V>(p.cols);
    const int64_t step = (int64_t)p.cols.deep * p.cols.channels;
    const Element<D> *at =
        (const Element<D> *)p.dy + s.from * p.cols.channels + s.c;
    ColSums<1, V> sums;
    sums.clear();

    for (int64_t row = s.from; row < s.to; row += RUN * (int64_t)p.cols.deep) {
        float run[1][V] = {};
#pragma unroll
        for (int i = 0; i < RUN; i++, at += step) {
            // no break: the loads of a run are in flight together
            if (row + i * (int64_t)p.cols.deep >= s.to) continue;
            const Vec<V> y = load<V, D>(at);
            for (int v = 0; v < V; v++) run[0][v] += y.v[v];
        }
        sums.add(run);
    }

    const ColTotal all = col_grid_sums(p.cols, s, sums, p.parts, p.counters);
    if (!all.sum) return;
    for (int i = (int)threadIdx.x; i < all.count; i += BLOCK)
        put(&p.db[all.first + i], (float)all.sum[i], p.fresh);
}

/* All rows are one set of the reduction: all samples share the bias. */
ColReduce bias_cols(Dims s, Dtype type)
{
    return col_reduce_of(1, rows(s), s.c, wide_vec(type, s.c));
}

} // namespace

size_t conv_bias_grad_bytes(Dims dy, Dtype type)
{
    return col_reduce_bytes(bias_cols(dy, type), 1, 1);
}

bool conv_bias_grad(const Call *c, const Tensor *dy, float *db, bool fresh)
{
    moves(moved(dy));
    Bias p = {
        dy->data, db, (double *)c->scratch, NULL, bias_cols(dy->dim, dy->type),
        fresh};
    p.counters = gpu_counters(c->dev, col_reduce_counters(p.cols, 1));
    LAUNCH_WIDE(dy->type, vec_width(dy->dim.c), conv_bias_grad_kernel,
                p.cols.blocks, c, p);
    return gpu_launched("bias_grad");
}
