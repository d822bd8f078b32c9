/* norm.cu -- batch, instance, group and layer normalisation.
 *
 * Over the walk of walk.cuh (a block has a part of the rows of a set, a thread
 * keeps its channels). Forward: sums of each channel by parts; totals, a block
 * for each set and group, which make mean and rstd; y. Sums are of d = x -
 * pivot and d^2, pivot being the first element of the set and group, so what
 * d^2 - (sum d)^2 / n cancels is far above the rounding of double; a thread
 * takes RUN rows in float about their own mean, and goes on in double.
 *
 * Backward: sums of dy and dy z in the same way, totals (dgamma and dbeta are
 * those over sets), bars where a group has several channels, dx.
 *
 * Bound by memory: 12 bytes an element forward, 20 backward (x twice; x and dy
 * twice), narrow 6 and 10. 16 KB of shared memory. Sets of one row are in
 * norm_rows.cu. */
#include "norm.cuh"

namespace {

enum { BATCH = 4 }; // rows whose loads a thread has under way

// -- sums over rows ----------------------------------------------------------

/* RUN numbers v[0 .. n-1] as sums of d and d^2, d = v - pivot; the others
 * are 0. */
template <int V>
__device__ __forceinline__ void add_run(const Pack<V> (&x)[RUN], int v, int n,
                                        double pivot, double *sum,
                                        double *square)
{
    const float share = n == RUN ? 1.0f / RUN : 1.0f / (float)n;
    float mean = 0, off = 0, m2 = 0;
#pragma unroll
    for (int i = 0; i < RUN; i++) mean += x[i].v[v];
    mean *= share;
#pragma unroll
    for (int i = 0; i < RUN; i++) {
        const float e = i < n ? x[i].v[v] - mean : 0;
        off += e; // what rounding took from the mean
        m2 += e * e;
    }
    off *= share;
    const double d = (double)mean - pivot + (double)off;
    *sum += n * d;
    *square += n * d * d + (double)(m2 - (float)n * off * off);
}

/* Sums of d and d^2 of each channel over a part of the rows. */
template <int V, Dtype D>
__global__ void __launch_bounds__(BLOCK) stats_kernel(const Norm p)
{
    const Spot s = spot<V>(p.walk);
    const Cell<D> *from = (const Cell<D> *)p.x;
    const int64_t base = spot_base(p.walk, s), deep = p.walk.deep;
    double sum[2][V] = {}, pivot[V] = {};
    for (int v = 0; v < V && s.valid; v++) {
        const uint32_t group = quotient((uint32_t)(s.c + v), p.per);
        const Cell<D> *first = from + base - s.c + group * p.per.by;
        pivot[v] = (double)load<1, D>(first).v[0];
    }
    for (int64_t row = s.from; row < s.to; row += RUN * deep) {
        Pack<V> x[RUN];
        int n = 0;
#pragma unroll
        for (int i = 0; i < RUN; i++) {
            x[i] = {};
            const int64_t at = row + i * deep;
            if (at >= s.to) continue;
            x[i] = load<V, D>(from + base + at * p.channels);
            n++;
        }
#pragma unroll
        for (int v = 0; v < V; v++)
            add_run<V>(x, v, n, pivot[v], &sum[0][v], &sum[1][v]);
    }
    spot_fold<2, V>(p.walk, s, sum, p.parts);
}

/* Element i of x. Kernels that need one of it are not there for each type. */
__device__ __forceinline__ float element(const Norm &p, int64_t i)
{
    if (p.type == BF16) return load<1, BF16>((const Cell<BF16> *)p.x + i).v[0];
    if (p.type == F16) return load<1, F16>((const Cell<F16> *)p.x + i).v[0];
    return ((const float *)p.x)[i];
}

/* Mean and variance of the block's set and group from the sums over its parts
 * and channels; on thread 0. */
__device__ __forceinline__ void moments(const Norm &p, double *mean,
                                        double *var)
{
    uint32_t set = blockIdx.x;
    const uint32_t group = split(&set, p.groups), first = group * p.per.by;
    const uint32_t items = p.walk.parts.by * p.per.by;
    double sum[2] = {};
    for (uint32_t i = threadIdx.x; i < items; i += blockDim.x) {
        uint32_t part = i;
        const uint32_t c = first + split(&part, p.per);
        const double *at =
            p.parts + ((int64_t)set * p.walk.parts.by + part) * 2 * p.channels;
        sum[0] += at[c];
        sum[1] += at[p.channels + c];
    }
    team_sums(sum, (int)blockDim.x);
    const double n = (double)p.rows * p.per.by, off = sum[0] / n;
    const double square = sum[1] / n - off * off;
    *mean = (double)element(p, set * p.rows * p.channels + first) + off;
    *var = square < 0 ? 0 : square;
}

/* Keep the statistics of a set and group of n values; the running ones move. */
__device__ __forceinline__ void put_stat(const Norm &p, int64_t at, double n,
                                         double mean, double var, bool moves)
{
    const uint32_t first = (uint32_t)(at % p.count) * p.per.by;
    Stat s;
    s.hi = (float)mean;
    s.lo = (float)(mean - (double)s.hi);
    s.rstd = (float)(1 / sqrt(var + (double)p.eps));
    p.stat[at] = s;
    if (!p.running || !moves) return;
    // of a single value there is no unbiased variance
    const double unbias = n > 1 ? n / (n - 1) : 1, stay = 1 - p.momentum;
    float *move = p.running + first, *spread = p.spread + first;
    *move = (float)(stay * (double)*move + p.momentum * mean);
    *spread = (float)(stay * (double)*spread + p.momentum * unbias * var);
}

/* Statistics of a set and group; a block each. An idle rank that is on its own
 * has none to move by. */
__global__ void __launch_bounds__(BLOCK) stat_kernel(const Norm p)
{
    double mean, var;
    moments(p, &mean, &var);
    if (threadIdx.x) return;
    put_stat(p, blockIdx.x, (double)p.rows * p.per.by, mean, var,
             !p.step->share.idle);
}

/* What ranks join: sums of d and d^2, d = x - about, and rows; a block a
 * channel. `about` is the running mean, which all have alike and which is near
 * enough: what the difference of squares cancels is far above the rounding of
 * double. */
__global__ void __launch_bounds__(BLOCK) own_kernel(const Norm p)
{
    const int c = (int)blockIdx.x;
    const double n = p.step->share.idle ? 0 : (double)p.rows;
    double mean, var;
    moments(p, &mean, &var);
    if (threadIdx.x) return;
    const double d = mean - (double)p.about[c];
    // what is idle may hold what is not finite: it is not computed with
    p.joined[c] = n == 0 ? 0 : n * d;
    p.joined[p.channels + c] = n == 0 ? 0 : n * (var + d * d);
    if (c == 0) p.joined[2 * p.channels] = n;
}

/* Statistics from the sums of all ranks; a thread a channel. */
__global__ void __launch_bounds__(BLOCK) joined_kernel(const Norm p)
{
    const double n = p.joined[2 * p.channels];
    EACH(c, p.channels)
    {
        const double off = p.joined[c] / n;
        const double var = p.joined[p.channels + c] / n - off * off;
        put_stat(p, c, n, (double)p.about[c] + off, var < 0 ? 0 : var, true);
    }
}

/* Statistics of channel c of a set: measured, or the running ones. */
__device__ __forceinline__ Stat stat_of(const Norm &p, int64_t set, int c)
{
    if (!p.given) return p.stat[set * p.count + quotient((uint32_t)c, p.per)];
    return {p.running[c], 0,
            (float)(1 / sqrt((double)p.spread[c] + (double)p.eps))};
}

// -- forward -----------------------------------------------------------------

/* y = (x - mean) scale + shift, by the same walk as the sums: a thread looks
 * its channels' numbers up once. */
template <int V, Dtype D>
__global__ void __launch_bounds__(BLOCK) apply_kernel(const Norm p)
{
    const Spot s = spot<V>(p.walk);
    const Cell<D> *from = (const Cell<D> *)p.x;
    Cell<D> *to = (Cell<D> *)p.out;
    const int64_t base = spot_base(p.walk, s), deep = p.walk.deep;
    Stat stat[V];
    float scale[V], shift[V];
    if (!s.valid) return;
    for (int v = 0; v < V; v++) {
        stat[v] = stat_of(p, s.set, s.c + v);
        scale[v] = p.gamma ? stat[v].rstd * p.gamma[s.c + v] : stat[v].rstd;
        shift[v] = p.gamma ? p.beta[s.c + v] : 0;
    }
    for (int64_t row = s.from; row < s.to; row += BATCH * deep) {
        Pack<V> x[BATCH];
#pragma unroll
        for (int i = 0; i < BATCH; i++)
            if (row + i * deep < s.to)
                x[i] = load<V, D>(from + base + (row + i * deep) * p.channels);
#pragma unroll
        for (int i = 0; i < BATCH; i++) {
            if (row + i * deep >= s.to) continue;
            for (int v = 0; v < V; v++)
                x[i].v[v] = centred(x[i].v[v], stat[v]) * scale[v] + shift[v];
            put_pack<V, D>(to + base + (row + i * deep) * p.channels, x[i],
                           true);
        }
    }
}

// -- backward ----------------------------------------------------------------

/* Sums of dy and dy z. ALONE: each row has its own statistics. */
template <int V, Dtype D, bool ALONE>
__global__ void __launch_bounds__(BLOCK, 2) slopes_kernel(const Norm p)
{
    const Spot s = spot<V>(p.walk);
    const Cell<D> *xs = (const Cell<D> *)p.x, *dys = (const Cell<D> *)p.dy;
    const int64_t base = spot_base(p.walk, s), deep = p.walk.deep;
    double sum[2][V] = {};
    Stat stat[V] = {};
    for (int v = 0; v < V && s.valid && !ALONE; v++)
        stat[v] = stat_of(p, s.set, s.c + v);
    // alone: one for all V, see norm_of
    const uint32_t group = quotient((uint32_t)s.c, p.per);
    for (int64_t row = s.from; row < s.to;) {
        float run[2][V] = {};
#pragma unroll 1
        for (int n = 0; n < RUN; n += BATCH, row += BATCH * deep) {
            Pack<V> x[BATCH], dy[BATCH];
            Stat own[BATCH];
#pragma unroll
            for (int i = 0; i < BATCH; i++) {
                const int64_t at = row + i * deep;
                x[i] = dy[i] = {};
                own[i] = {};
                if (at >= s.to) continue;
                x[i] = load<V, D>(xs + base + at * p.channels);
                dy[i] = load<V, D>(dys + base + at * p.channels);
                if (ALONE) own[i] = p.stat[at * p.count + group];
            }
#pragma unroll
            for (int i = 0; i < BATCH; i++)
                for (int v = 0; v < V; v++) {
                    const Stat &k = ALONE ? own[i] : stat[v];
                    const float z = centred(x[i].v[v], k) * k.rstd;
                    run[0][v] += dy[i].v[v];
                    run[1][v] += dy[i].v[v] * z;
                }
        }
        for (int v = 0; v < V; v++) {
            sum[0][v] += (double)run[0][v];
            sum[1][v] += (double)run[1][v];
        }
    }
    spot_fold<2, V>(p.walk, s, sum, p.parts);
}

/* Totals of `count` parts for each set and channel, a block each; to `total`
 * and, where there is one set, to dbeta and dgamma. */
struct Totals {
    const double *parts; // (sets, count, 2, C)
    double *total;       // (sets, 2, C), or NULL
    float *slope[2];     // dbeta, dgamma, or NULL
    bool fresh[2];
    int64_t count;
    Divisor channels;
};

__global__ void __launch_bounds__(BLOCK) total_kernel(const Totals p)
{
    uint32_t set = blockIdx.x;
    const uint32_t c = split(&set, p.channels);
    const int64_t pair = 2 * (int64_t)p.channels.by;
    const double *at = p.parts + set * p.count * pair + c;
    double sum[2] = {};
    for (int64_t i = threadIdx.x; i < p.count; i += blockDim.x) {
        sum[0] += at[i * pair];
        sum[1] += at[i * pair + p.channels.by];
    }
    team_sums(sum, (int)blockDim.x);
    if (threadIdx.x) return;
    for (int k = 0; k < 2; k++) {
        if (p.total) p.total[set * pair + k * p.channels.by + c] = sum[k];
        if (p.slope[k]) put(&p.slope[k][c], (float)sum[k], p.fresh[k]);
    }
}

/* Totals times gamma, added up over the channels of a group; all of them get
 * the sum. A block for each set and group. */
__global__ void __launch_bounds__(BLOCK) group_kernel(const Norm p)
{
    uint32_t set = blockIdx.x;
    const uint32_t first = split(&set, p.groups) * p.per.by;
    double *total = p.total + (int64_t)set * 2 * p.channels + first;
    double sum[2] = {};
    for (uint32_t c = threadIdx.x; c < p.per.by; c += blockDim.x) {
        const double gamma = p.gamma ? (double)p.gamma[first + c] : 1;
        sum[0] += total[c] * gamma;
        sum[1] += total[p.channels + c] * gamma;
    }
    team_sums(sum, (int)blockDim.x);
    for (uint32_t c = threadIdx.x; c < p.per.by; c += blockDim.x) {
        total[c] = sum[0];
        total[p.channels + c] = sum[1];
    }
}

/* Totals of a rank as ranks join them: its rows behind them, and nothing of an
 * idle one. */
__global__ void __launch_bounds__(BLOCK) own_slopes_kernel(const Norm p)
{
    const bool idle = p.step->share.idle;
    EACH(i, 2 * p.channels + 1)
    {
        if (i == 2 * p.channels)
            p.joined[i] = idle ? 0 : (double)p.rows;
        else if (idle)
            p.joined[i] = 0;
    }
}

/* dx = dy scale + (x - mean) tilt + shift. */
template <int V, Dtype D>
__global__ void __launch_bounds__(BLOCK) slope_kernel(const Norm p)
{
    const Spot s = spot<V>(p.walk);
    const Cell<D> *xs = (const Cell<D> *)p.x, *dys = (const Cell<D> *)p.dy;
    Cell<D> *to = (Cell<D> *)p.out;
    const int64_t base = spot_base(p.walk, s), deep = p.walk.deep;
    Stat stat[V];
    float scale[V], tilt[V], shift[V];
    if (!s.valid) return;
    for (int v = 0; v < V; v++) {
        const int c = s.c + v;
        const double gamma = p.gamma ? (double)p.gamma[c] : 1;
        stat[v] = stat_of(p, s.set, c);
        scale[v] = (float)((double)stat[v].rstd * gamma);
        // given statistics are constants and share nothing; 0 is said and
        // not computed, so that a sum that is not finite stays outside
        tilt[v] = shift[v] = 0;
        if (p.given || p.step->share.idle) continue;
        const double n =
            p.joined ? p.joined[2 * p.channels] : (double)p.rows * p.per.by;
        // a group of one channel holds a plain total
        const double share = (p.per.by == 1 ? gamma : 1) * -stat[v].rstd / n;
        const double *total = p.total + s.set * 2 * p.channels + c;
        shift[v] = (float)(share * total[0]);
        tilt[v] = (float)(share * total[p.channels] * (double)stat[v].rstd);
    }
    for (int64_t row = s.from; row < s.to; row += BATCH * deep) {
        Pack<V> x[BATCH], dy[BATCH];
#pragma unroll
        for (int i = 0; i < BATCH; i++) {
            const int64_t at = base + (row + i * deep) * p.channels;
            if (row + i * deep >= s.to) continue;
            x[i] = load<V, D>(xs + at);
            dy[i] = load<V, D>(dys + at);
        }
#pragma unroll
        for (int i = 0; i < BATCH; i++) {
            if (row + i * deep >= s.to) continue;
            for (int v = 0; v < V; v++)
                dy[i].v[v] = dy[i].v[v] * scale[v] +
                             centred(x[i].v[v], stat[v]) * tilt[v] + shift[v];
            put_pack<V, D>(to + base + (row + i * deep) * p.channels, dy[i],
                           p.fresh);
        }
    }
}

// -- the call ----------------------------------------------------------------

/* Are the statistics those of the batch of all ranks? */
bool is_joined(const Call *c, const Norm &p)
{
    return c->attr->op == OP_batch_norm && !p.given && is_shared(c) &&
           c->step->share.norms;
}

/* Extents, operands and the layout of scratch: parts, then totals, which with
 * the rows behind them are also what ranks join. */
Norm norm_of(const Call *c)
{
    const Dims s = c->x[0]->dim;
    const Attr *a = c->attr;
    Norm p = {};
    p.sets = s.n, p.rows = positions(s), p.channels = p.count = s.c;
    switch (a->op) {
    case OP_batch_norm:
        p.sets = 1, p.rows = rows(s);
        p.eps = a->batch_norm.eps, p.momentum = a->batch_norm.momentum;
        p.given = !c->train;
        p.about = values(c->x[3]);
        p.running = values(c->x[3]), p.spread = values(c->x[4]);
        break;
    case OP_instance_norm:
        p.eps = a->instance_norm.eps;
        break;
    case OP_group_norm:
        p.eps = a->group_norm.eps, p.count = a->group_norm.groups;
        break;
    default:
        p.sets = rows(s), p.rows = 1, p.count = 1;
        p.eps = a->layer_norm.eps;
    }
    const int per = p.channels / p.count;
    p.groups = divisor(p.count), p.per = divisor(per);
    p.alone = p.rows == 1 && a->op != OP_batch_norm;
    p.pack = pack_of(p.alone ? per : p.channels);
    // sums over single rows are sums over all of them
    p.walked = p.alone ? 1 : p.sets;
    p.walk = walk_of(p.walked, p.sets * p.rows / p.walked, p.channels, p.pack);
    p.teams = teams_of(p.sets * p.count, per);
    p.step = c->dev ? gpu_step(c->dev) : NULL;
    p.x = c->x[0]->data, p.type = c->x[0]->type;
    p.gamma = values(c->x[1]), p.beta = values(c->x[2]);
    p.stat = (Stat *)c->saved;
    p.parts = (double *)c->scratch;
    if (p.parts)
        p.total = p.parts + walk_bytes(p.walk, p.walked, 2) / sizeof(double);
    return p;
}

/* Kept: mean and rstd. Scratch: parts of two sums, and backward their totals
 * of each set. */
Space norm_space(const Call *c)
{
    const Norm p = norm_of(c);
    const size_t parts = walk_bytes(p.walk, p.walked, 2);
    Space s = {};
    s.saved = (size_t)(p.sets * p.count) * sizeof(Stat);
    // of ranks nothing is known yet, but that only batches are shared
    const size_t total = (size_t)(p.sets * 2 * p.channels + 1) * sizeof(double);
    s.fwd = p.alone || p.given ? 0 : parts;
    if (s.fwd && c->attr->op == OP_batch_norm) s.fwd += total;
    s.bwd = parts;
    if (!p.alone) s.bwd += total;
    return s;
}

/* Statistics of the batch of all ranks. */
bool joined_stat(const Call *c, Norm *p)
{
    cudaStream_t stream = gpu_stream(c->dev);
    p->joined = p->total;
    LAUNCH(own_kernel, (unsigned)p->channels,
           sum_threads((int64_t)p->walk.parts.by), 0, stream, *p);
    if (!gpu_launched("norm, own statistics") ||
        !gpu_join(c->dev, p->joined, F64, 2 * (int64_t)p->channels + 1, 1))
        return false;
    LAUNCH(joined_kernel, blocks_for(p->channels), BLOCK, 0, stream, *p);
    return gpu_launched("norm, statistics of all");
}

/* Sums, statistics, y; with given statistics only the last. */
bool norm_fwd(const Call *c)
{
    Norm p = norm_of(c);
    cudaStream_t stream = gpu_stream(c->dev);
    p.out = c->y->data;
    if (!countable(c, p.sets * p.rows)) return false;
    if (p.alone) return norm_rows_fwd(c, p);
    // computed again a batch norm is what it was: what it saved is there
    if (!p.given && !(c->again && c->attr->op == OP_batch_norm)) {
        LAUNCH_STORED(p.type, p.pack, stats_kernel, p.walk.blocks, c, p);
        if (!gpu_launched("norm, sums")) return false;
        if (is_joined(c, p)) {
            if (!joined_stat(c, &p)) return false;
        } else
            LAUNCH(stat_kernel, (unsigned)(p.sets * p.count),
                   sum_threads((int64_t)p.walk.parts.by * p.per.by), 0, stream,
                   p);
        if (!gpu_launched("norm, statistics")) return false;
    }
    LAUNCH_STORED(p.type, p.pack, apply_kernel, p.walk.blocks, c, p);
    return gpu_launched("norm");
}

/* Queue totals of `sets` sets; those of a single one are dbeta and dgamma. */
bool totals(const Call *c, const Norm &p, const double *parts, int64_t sets,
            int64_t count, double *total)
{
    Totals t = {};
    t.parts = parts, t.total = total, t.count = count;
    t.channels = divisor(p.channels);
    for (int k = 0; k < 2 && sets == 1; k++) {
        t.slope[k] = values(c->dx[2 - k]);
        t.fresh[k] = is_fresh(c, 2 - k);
    }
    LAUNCH(total_kernel, (unsigned)(sets * p.channels), sum_threads(count), 0,
           gpu_stream(c->dev), t);
    return gpu_launched("norm, totals");
}

template <int V, Dtype D> void start_slopes(const Call *c, const Norm &p)
{
    cudaStream_t stream = gpu_stream(c->dev);
    if (p.alone)
        LAUNCH((slopes_kernel<V, D, true>), p.walk.blocks, BLOCK, 0, stream, p);
    else
        LAUNCH((slopes_kernel<V, D, false>), p.walk.blocks, BLOCK, 0, stream,
               p);
}

/* Sums of dy and dy z: totals for the bars of dx, and dbeta and dgamma. */
bool slopes(const Call *c, const Norm &p)
{
    CALL_STORED(p.type, p.pack, start_slopes, c, p);
    if (!gpu_launched("norm, sums of slopes") ||
        !totals(c, p, p.parts, p.walked, p.walk.parts.by,
                p.alone ? NULL : p.total))
        return false;
    if (p.walked > 1 && (c->dx[1] || c->dx[2]))
        return totals(c, p, p.total, 1, p.walked, NULL);
    return true;
}

/* Sums of the slopes if anybody wants them, bars of groups, dx. */
bool norm_bwd(const Call *c)
{
    Norm p = norm_of(c);
    cudaStream_t stream = gpu_stream(c->dev);
    const bool affine = c->dx[1] || c->dx[2], bars = !p.alone && !p.given;
    p.dy = c->dy->data, p.out = values(c->dx[0]), p.fresh = is_fresh(c, 0);
    if (!countable(c, p.sets * p.rows)) return false;
    // before dx, which may be dy's memory
    if ((affine || (bars && p.out)) && !slopes(c, p)) return false;
    if (!p.out) return true;
    if (p.alone) return norm_rows_bwd(c, p);
    if (is_joined(c, p)) {
        p.joined = p.total;
        LAUNCH(own_slopes_kernel, blocks_for(2 * p.channels + 1), BLOCK, 0,
               stream, p);
        if (!gpu_launched("norm, own slopes") ||
            !gpu_join(c->dev, p.joined, F64, 2 * (int64_t)p.channels + 1, 1))
            return false;
    }
    if (bars && p.per.by > 1) {
        LAUNCH(group_kernel, (unsigned)(p.sets * p.count),
               sum_threads(p.per.by), 0, stream, p);
        if (!gpu_launched("norm, groups")) return false;
    }
    LAUNCH_STORED(p.type, p.pack, slope_kernel, p.walk.blocks, c, p);
    return gpu_launched("norm, slope");
}

} // namespace

#define ROW(name)                            \
    Space cuda_##name##_space(const Call *c) \
    {                                        \
        return norm_space(c);                \
    }                                        \
    bool cuda_##name##_fwd(const Call *c)    \
    {                                        \
        return norm_fwd(c);                  \
    }                                        \
    bool cuda_##name##_bwd(const Call *c)    \
    {                                        \
        return norm_bwd(c);                  \
    }
extern "C" {
ROW(batch_norm)
ROW(instance_norm)
ROW(group_norm)
ROW(layer_norm)
}
