/* norm_layer.cu -- normalisation over channels of one row: layer_norm, and
 * group_norm without positions.
 *
 * What a mean is taken of is contiguous: a segment of `per` channels, and a
 * team of threads has it (warp_group.cuh). Forward: the mean, then distances
 * from it and their squares, then y; the sum of the distances, 0 but for
 * rounding, says what the mean lost. Backward: bar(u) and bar(u z), then dx;
 * thread by thread an element is read for the last time just before its own
 * result is written, so dx may be dy's memory.
 *
 * A segment is read from memory once, and again from the first cache: bound by
 * memory at 8 bytes an element forward, 12 backward (16 when dx is added to),
 * narrow at half of them.
 * dgamma and dbeta are column sums over rows, in norm.cu. */
#include "cuda/norm/norm.cuh"

namespace {

/* First channel of a segment. */
__device__ __forceinline__ int segment_channel(const Norm &p, int64_t item)
{
    return p.count == 1 ? 0 : (int)(item % p.count) * (int)p.per.by;
}

template <int V, Dtype D>
__global__ void __launch_bounds__(BLOCK) fwd_kernel(const Norm p)
{
    const Team t = team(p.teams);
    const int length = (int)p.per.by, end = t.live ? length : 0;
    const int step = t.width * V, start = t.lane * V;
    const Cell<D> *x = (const Cell<D> *)p.x + t.item * length;
    const float share = 1 / (float)length;
    Chain all = {};
    for (int j = start; j < end; j += step) {
        const Pack<V> a = load<V, D>(x + j);
        for (int v = 0; v < V; v++) chain_add(&all, a.v[v]);
    }
    float mean[1] = {chain_total(all)};
    team_sums(mean, t.width);
    mean[0] *= share;
    Chain off = {}, square = {};
    for (int j = start; j < end; j += step) {
        const Pack<V> a = load<V, D>(x + j);
        for (int v = 0; v < V; v++) {
            const float e = a.v[v] - mean[0];
            chain_add(&off, e);
            chain_add(&square, e * e);
        }
    }
    float sum[2] = {chain_total(off), chain_total(square)};
    team_sums(sum, t.width);
    Stat s = {mean[0], sum[0] * share, 0};
    const float var = (sum[1] - sum[0] * s.lo) * share;
    s.rstd = 1 / sqrtf((var < 0 ? 0 : var) + p.keep.eps);
    if (t.live && t.lane == 0) p.keep.stat[t.item] = s;
    const int c = segment_channel(p, t.item);
    for (int j = start; j < end; j += step) {
        const Pack<V> a = load<V, D>(x + j);
        Pack<V> y;
        for (int v = 0; v < V; v++) y.v[v] = centred(a.v[v], s) * s.rstd;
        if (p.keep.gamma) {
            const Pack<V> g = load<V>(p.keep.gamma + c + j);
            const Pack<V> b = load<V>(p.keep.beta + c + j);
            for (int v = 0; v < V; v++) y.v[v] = y.v[v] * g.v[v] + b.v[v];
        }
        put_pack<V, D>((Cell<D> *)p.out + t.item * length + j, y, true);
    }
}

template <int V, Dtype D>
__global__ void __launch_bounds__(BLOCK) bwd_kernel(const Norm p)
{
    const Team t = team(p.teams);
    const int length = (int)p.per.by, end = t.live ? length : 0;
    const int step = t.width * V, start = t.lane * V;
    const Cell<D> *x = (const Cell<D> *)p.x + t.item * length;
    const Cell<D> *dy = (const Cell<D> *)p.dy + t.item * length;
    const float *gamma = p.keep.gamma;
    if (gamma) gamma += segment_channel(p, t.item);
    Stat s = {};
    if (t.live) s = p.keep.stat[t.item];
    // u and z of V neighbours from channel j on
    auto fetch = [&](int j, Pack<V> *u, Pack<V> *z) {
        *z = load<V, D>(x + j);
        *u = load<V, D>(dy + j);
        for (int v = 0; v < V; v++) z->v[v] = centred(z->v[v], s) * s.rstd;
        if (!gamma) return;
        const Pack<V> g = load<V>(gamma + j);
        for (int v = 0; v < V; v++) u->v[v] *= g.v[v];
    };
    Pack<V> u, z;
    Chain plain = {}, with_z = {};
    for (int j = start; j < end; j += step) {
        fetch(j, &u, &z);
        for (int v = 0; v < V; v++) {
            chain_add(&plain, u.v[v]);
            chain_add(&with_z, u.v[v] * z.v[v]);
        }
    }
    float bar[2] = {chain_total(plain), chain_total(with_z)};
    team_sums(bar, t.width);
    for (int k = 0; k < 2; k++) bar[k] /= (float)length;
    for (int j = start; j < end; j += step) {
        fetch(j, &u, &z);
        for (int v = 0; v < V; v++)
            u.v[v] = s.rstd * (u.v[v] - bar[0] - z.v[v] * bar[1]);
        put_pack<V, D>((Cell<D> *)p.out + t.item * length + j, u, p.fresh);
    }
}

} // namespace

bool norm_rows_fwd(const Call *c, const Norm &p)
{
    moves(moved(c->x[0]) + moved(c->y));
    LAUNCH_STORED(p.type, p.pack, fwd_kernel, p.teams.blocks, c, p);
    return gpu_launched("norm of rows");
}

bool norm_rows_bwd(const Call *c, const Norm &p)
{
    moves(moved(c->x[0]) + moved(c->dy) + moved(c->dx[0], is_fresh(c, 0)));
    LAUNCH_STORED(p.type, p.pack, bwd_kernel, p.teams.blocks, c, p);
    return gpu_launched("norm of rows, backward");
}
