/* norm_layer.cu -- normalisation over channels of one row: layer_norm, and
 * group_norm without positions.
 *
 * The values of one mean are contiguous: a segment of `per` channels, which one
 * group of threads works on (thread_group.cuh). Forward: the mean, then the
 * deviations from it and their squares, then y; the sum of the deviations, 0
 * but for rounding, corrects the mean. Backward: bar(u) and bar(u x_hat), then
 * dx. Each thread reads an element for the last time just before it writes the
 * result of the same element, so dx may be in the memory of dy.
 *
 * A segment is read from memory once, later from the L1 cache. Bound by memory:
 * 8 bytes an element forward, 12 backward (16 when dx is added to), half as
 * much in 16 bits. dgamma and dbeta are column sums over rows, in norm.cu. */
#include "cuda/norm/norm.cuh"

namespace {

/* First channel of a segment. */
__device__ __forceinline__ int segment_channel(const Norm &p, int64_t item)
{
    return p.count == 1 ? 0 : (int)(item % p.count) * (int)p.per.by;
}

template <int V, Dtype D>
__global__ void __launch_bounds__(BLOCK) layer_norm_fwd_kernel(const Norm p)
{
    const ThreadGroup t = thread_group(p.group_count);
    const int length = (int)p.per.by, end = t.live ? length : 0;
    const int step = t.width * V, start = t.lane * V;
    const Element<D> *x = (const Element<D> *)p.x + t.item * length;
    const float share = 1 / (float)length;
    Chain all = {};

    for (int j = start; j < end; j += step) {
        const Vec<V> a = load<V, D>(x + j);
        for (int v = 0; v < V; v++) chain_add(&all, a.v[v]);
    }
    float mean[1] = {chain_total(all)};
    thread_group_sums(mean, t.width);
    mean[0] *= share;
    Chain off = {}, square = {};

    for (int j = start; j < end; j += step) {
        const Vec<V> a = load<V, D>(x + j);
        for (int v = 0; v < V; v++) {
            const float e = a.v[v] - mean[0];
            chain_add(&off, e);
            chain_add(&square, e * e);
        }
    }

    float sum[2] = {chain_total(off), chain_total(square)};
    thread_group_sums(sum, t.width);
    ChannelStats s = {mean[0], sum[0] * share, 0};
    const float var = (sum[1] - sum[0] * s.lo) * share;
    s.rstd = 1 / sqrtf((var < 0 ? 0 : var) + p.stats_out.eps);
    if (t.live && t.lane == 0) p.stats_out.stat[t.item] = s;
    const int c = segment_channel(p, t.item);

    for (int j = start; j < end; j += step) {
        const Vec<V> a = load<V, D>(x + j);
        Vec<V> y;
        for (int v = 0; v < V; v++) y.v[v] = centred(a.v[v], s) * s.rstd;
        if (p.stats_out.gamma) {
            const Vec<V> g = load<V>(p.stats_out.gamma + c + j);
            const Vec<V> b = load<V>(p.stats_out.beta + c + j);
            for (int v = 0; v < V; v++) y.v[v] = y.v[v] * g.v[v] + b.v[v];
        }
        store_vec<V, D>((Element<D> *)p.out + t.item * length + j, y, true);
    }
}

template <int V, Dtype D>
__global__ void __launch_bounds__(BLOCK) layer_norm_bwd_kernel(const Norm p)
{
    const ThreadGroup t = thread_group(p.group_count);
    const int length = (int)p.per.by, end = t.live ? length : 0;
    const int step = t.width * V, start = t.lane * V;
    const Element<D> *x = (const Element<D> *)p.x + t.item * length;
    const Element<D> *dy = (const Element<D> *)p.dy + t.item * length;
    const float *gamma = p.stats_out.gamma;

    if (gamma) gamma += segment_channel(p, t.item);
    ChannelStats s = {};
    if (t.live) s = p.stats_out.stat[t.item];

    // u and x_hat of V adjacent channels from j on
    auto fetch = [&](int j, Vec<V> *u, Vec<V> *x_hat) {
        *x_hat = load<V, D>(x + j);
        *u = load<V, D>(dy + j);
        for (int v = 0; v < V; v++)
            x_hat->v[v] = centred(x_hat->v[v], s) * s.rstd;
        if (!gamma) return;
        const Vec<V> g = load<V>(gamma + j);
        for (int v = 0; v < V; v++) u->v[v] *= g.v[v];
    };
    Vec<V> u, x_hat;
    Chain plain = {}, with_x_hat = {};

    for (int j = start; j < end; j += step) {
        fetch(j, &u, &x_hat);
        for (int v = 0; v < V; v++) {
            chain_add(&plain, u.v[v]);
            chain_add(&with_x_hat, u.v[v] * x_hat.v[v]);
        }
    }

    float bar[2] = {chain_total(plain), chain_total(with_x_hat)};
    thread_group_sums(bar, t.width);
    for (int k = 0; k < 2; k++) bar[k] /= (float)length;

    for (int j = start; j < end; j += step) {
        fetch(j, &u, &x_hat);
        for (int v = 0; v < V; v++)
            u.v[v] = s.rstd * (u.v[v] - bar[0] - x_hat.v[v] * bar[1]);
        store_vec<V, D>((Element<D> *)p.out + t.item * length + j, u, p.fresh);
    }
}

} // namespace

bool norm_rows_fwd(const Call *c, const Norm &p)
{
    moves(moved(c->x[0]) + moved(c->y));
    LAUNCH_STORED(p.type, p.vec, layer_norm_fwd_kernel, p.group_count.blocks, c,
                  p);
    return gpu_launched("norm of rows");
}

bool norm_rows_bwd(const Call *c, const Norm &p)
{
    moves(moved(c->x[0]) + moved(c->dy) + moved(c->dx[0], is_fresh(c, 0)));
    LAUNCH_STORED(p.type, p.vec, layer_norm_bwd_kernel, p.group_count.blocks, c,
                  p);
    return gpu_launched("norm of rows, backward");
}
