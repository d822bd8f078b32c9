/* softmax.cu -- y_c = exp(x_c) / sum_k exp(x_k) over the channels of a row.
 *
 * A group of threads works on a row (thread_group.cuh): 1 thread up to 4
 * channels, 32 from 65 on, a block above 1024. The row is read from memory once
 * and twice more from the L1 cache: for its maximum, the sum and the results;
 * the exponential is computed twice. The thread that writes a result is the
 * last to read that element, so y may be x's memory. Backward dx_c = y_c (dy_c
 * - sum_k dy_k y_k) in two passes over the row.
 *
 * Bound by memory: 8 bytes an element forward, 12 backward (16 when dx is added
 * to); exponentials, two an element, stay below that. */
#include "cuda/lib/thread_group.cuh"
#include "cuda/lib/vec.cuh"

namespace {

struct Rows {
    const float *x, *dy; // backward: x is y
    float *out;
    int channels;
    bool fresh;
    ThreadGroups group_count;
};

template <int V>
__global__ void __launch_bounds__(BLOCK) softmax_fwd_kernel(const Rows p)
{
    const ThreadGroup t = thread_group(p.group_count);
    const int end = t.live ? p.channels : 0;
    const int step = t.width * V, start = t.lane * V;
    const float *x = p.x + t.item * p.channels;
    float most = -INFINITY;

    for (int j = start; j < end; j += step) {
        const Vec<V> a = load<V>(x + j);
        for (int v = 0; v < V; v++) most = fmaxf(most, a.v[v]);
    }
    most = thread_group_max(most, t.width);
    Chain all = {};
    for (int j = start; j < end; j += step) {
        const Vec<V> a = load<V>(x + j);
        for (int v = 0; v < V; v++) chain_add(&all, expf(a.v[v] - most));
    }
    float sum[1] = {chain_total(all)};
    thread_group_sums(sum, t.width);
    for (int j = start; j < end; j += step) {
        Vec<V> a = load<V>(x + j);
        for (int v = 0; v < V; v++) a.v[v] = expf(a.v[v] - most) / sum[0];
        store_vec<V>(p.out + t.item * p.channels + j, a, true);
    }
}

template <int V>
__global__ void __launch_bounds__(BLOCK) softmax_bwd_kernel(const Rows p)
{
    const ThreadGroup t = thread_group(p.group_count);
    const int end = t.live ? p.channels : 0;
    const int step = t.width * V, start = t.lane * V;
    const int64_t base = t.item * p.channels;
    Chain all = {};

    for (int j = start; j < end; j += step) {
        const Vec<V> y = load<V>(p.x + base + j);
        const Vec<V> dy = load<V>(p.dy + base + j);
        for (int v = 0; v < V; v++) chain_add(&all, y.v[v] * dy.v[v]);
    }

    // of dy, weighted by the probabilities y
    float mean[1] = {chain_total(all)};
    thread_group_sums(mean, t.width);

    for (int j = start; j < end; j += step) {
        const Vec<V> y = load<V>(p.x + base + j);
        Vec<V> d = load<V>(p.dy + base + j);
        for (int v = 0; v < V; v++) d.v[v] = y.v[v] * (d.v[v] - mean[0]);
        store_vec<V>(p.out + base + j, d, p.fresh);
    }
}

Rows rows_of(const Call *c)
{
    const Dims s = c->y->dim;
    Rows p = {};
    p.channels = s.c;
    p.group_count = thread_groups_of(rows(s), s.c);
    return p;
}

} // namespace

extern "C" bool cuda_softmax_fwd(const Call *c)
{
    Rows p = rows_of(c);
    p.x = values(c->x[0]), p.out = values(c->y);
    if (!countable(c, p.group_count.items)) return false;
    LAUNCH_V(vec_width(p.channels), softmax_fwd_kernel, p.group_count.blocks, c,
             p);
    return gpu_launched("softmax");
}

extern "C" bool cuda_softmax_bwd(const Call *c)
{
    Rows p = rows_of(c);
    p.x = values(c->y), p.dy = values(c->dy), p.out = values(c->dx[0]);
    p.fresh = is_fresh(c, 0);
    if (!p.out) return true;
    if (!countable(c, p.group_count.items)) return false;
    LAUNCH_V(vec_width(p.channels), softmax_bwd_kernel, p.group_count.blocks, c,
             p);
    return gpu_launched("softmax, backward");
}
