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
    double sum[1][V] = {};

    for (int64_t row = s.from; row < s.to; row += RUN * (int64_t)p.cols.deep) {
        float run[V] = {};
#pragma unroll
        for (int i = 0; i < RUN; i++, at += step) {
            // no break: the loads of a run are in flight together
            if (row + i * (int64_t)p.cols.deep >= s.to) continue;
            const Vec<V> y = load<V, D>(at);
            for (int v = 0; v < V; v++) run[v] += y.v[v];
        }
        for (int v = 0; v < V; v++) sum[0][v] += (double)run[v];
    }

    const ColTotal all =
        col_grid_sums<1, V>(p.cols, s, sum, p.parts, p.counters);
    if (!all.sum) return;
    for (int i = (int)threadIdx.x; i < all.count; i += BLOCK)
        put(&p.db[all.first + i], (float)all.sum[i], p.fresh);
}

/* All rows are one set of the reduction: all samples share the bias. */
ColReduce bias_cols(Dims s)
{
    return col_reduce_of(1, rows(s), s.c, vec_width(s.c));
}

} // namespace

size_t conv_bias_grad_bytes(Dims dy)
{
    return col_reduce_bytes(bias_cols(dy), 1, 1);
}

bool conv_bias_grad(const Call *c, const Tensor *dy, float *db, bool fresh)
{
    const Dims s = dy->dim;
    moves(moved(dy));
    Bias p = {dy->data, db, (double *)c->scratch, NULL, bias_cols(s), fresh};
    p.counters = gpu_counters(c->dev, col_reduce_counters(p.cols, 1));
    LAUNCH_STORED(dy->type, vec_width(s.c), conv_bias_grad_kernel,
                  p.cols.blocks, c, p);
    return gpu_launched("bias_grad");
}
