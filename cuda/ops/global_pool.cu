/* global_pool.cu -- mean or maximum over all positions, y[n,c], or over the
 * valid positions of a sample with a length (global_pool_lengths_kernel:
 * sequences, so short).
 *
 * A sample is cut into lines: the shortest runs of its P C floats that have
 * whole rows and whole vectors (1, 2 or 4 rows). The threads of a block take
 * consecutive vectors of as many lines as they cover, and step by as many
 * lines; so a warp reads contiguous memory for any C, even one channel, and
 * each register of a thread belongs to one channel. Lines of more than 256
 * vectors are cut into tiles. Lines are cut into parts, one a block, by extents
 * alone. Each part is reduced in registers (sums: runs of RUN floats, then
 * double), then over the block in shared memory (8 KB) in a fixed tree. The
 * last block reduces the parts, one warp a channel.
 *
 * Backward each thread writes one vector of dx. Where the gradient of a maximum
 * is added, only the winning elements are touched.
 *
 * Bound by memory: 4 bytes per element of x in both passes, 8 to add; half as
 * much in 16 bits. */
#include "cuda/lib/vec.cuh"
#include "cuda/ops/length.cuh"

namespace {

enum {
    FILL = 512, // blocks that fill any GPU
    AHEAD = 4,  // loads of a thread in flight
    STEPS = 8,  // steps of a block, of AHEAD lines each, that are worth a part
};

// -- the reductions ----------------------------------------------------------

/* The state of a channel; 8 bytes. */
struct Sum {
    double v;
};

struct Peak {
    float v;
    int at; // position; < 0: none yet
};

__device__ __forceinline__ Sum join(Sum a, Sum b)
{
    return {a.v + b.v};
}

/* The larger; of equal values the first. NaN wins, and of several the last: a
 * total order, so that any tree of joins finds the same winner. */
__device__ __forceinline__ Peak join(Peak a, Peak b)
{
    const bool nan_a = a.v != a.v, nan_b = b.v != b.v;
    const bool later = b.at > a.at;
    bool wins = b.v > a.v || (b.v == a.v && !later);
    if (nan_a || nan_b) wins = nan_b && (!nan_a || later);
    return b.at >= 0 && (wins || a.at < 0) ? b : a;
}

__device__ __forceinline__ Sum shuffled(Sum a, int by)
{
    return {__shfl_down_sync(~0u, a.v, by)};
}

__device__ __forceinline__ Peak shuffled(Peak a, int by)
{
    return {__shfl_down_sync(~0u, a.v, by), __shfl_down_sync(~0u, a.at, by)};
}

__device__ __forceinline__ void none(Sum *s)
{
    s->v = 0;
}

__device__ __forceinline__ void none(Peak *s)
{
    s->v = -INFINITY, s->at = -1;
}

/* One vector of a thread: V sums, in double after RUN floats. */
template <int V> struct Sums {
    float run[V];
    double sum[V];
    int batches;

    __device__ void begin()
    {
        for (int k = 0; k < V; k++) run[k] = 0, sum[k] = 0;
        batches = 0;
    }
    /* x[i] is of line `line` + i * step, 0 from `to` on. */
    __device__ void take(const Vec<V> x[AHEAD], int, int, int)
    {
        for (int k = 0; k < V; k++)
            run[k] += (x[0].v[k] + x[1].v[k]) + (x[2].v[k] + x[3].v[k]);
        if (++batches % (RUN / AHEAD)) return;
        for (int k = 0; k < V; k++) sum[k] += (double)run[k], run[k] = 0;
    }
    /* Sum k; `rows` rows a line, and sum k belongs to row number `row` of
     * it. */
    __device__ Sum end(int k, int, int) const
    {
        return {sum[k] + (double)run[k]};
    }
};

/* V maxima, with the line of each. */
template <int V> struct Peaks {
    float best[V];
    int line_of[V];

    __device__ void begin()
    {
        for (int k = 0; k < V; k++) best[k] = -INFINITY, line_of[k] = -1;
    }
    __device__ void take(const Vec<V> x[AHEAD], int line, int step, int to)
    {
        for (int i = 0; i < AHEAD; i++) {
            const bool more = i * step < to - line;
            for (int k = 0; k < V; k++) {
                const float v = x[i].v[k];
                // lines come in their order: v != v is NaN
                const bool wins =
                    more & ((v > best[k]) | (v != v) | (line_of[k] < 0));
                best[k] = wins ? v : best[k];
                line_of[k] = wins ? line + i * step : line_of[k];
            }
        }
    }
    __device__ Peak end(int k, int rows, int row) const
    {
        return {best[k], line_of[k] < 0 ? -1 : line_of[k] * rows + row};
    }
};

// -- forward -----------------------------------------------------------------

/* How a tensor is cut; a function of its extents only. */
struct Cut {
    int v;             // channels of a vector
    int rows;          // of a line
    int vecs, lines;   // of a line, of a sample
    int tiles, width;  // of a line, vectors of each
    int threads, step; // of a block, lines it covers
    int parts, part;   // of a sample, lines of each
};

Cut cut_of(Dims s)
{
    Cut k = {1, 1, s.c, 0, 0, 0, 0, 0, 0, 0};
    const int64_t count = positions(s);
    const int rows = s.c % 4 == 0 ? 1 : s.c % 2 == 0 ? 2 : 4;

    // lines of several rows must fit a block
    if (count % rows == 0 && (rows == 1 || s.c <= BLOCK))
        k.v = 4, k.rows = rows, k.vecs = (int)((int64_t)s.c * rows / 4);
    k.lines = (int)(count / k.rows);
    k.tiles = (int)ceil_div(k.vecs, BLOCK);
    k.width = (int)ceil_div(k.vecs, k.tiles);
    k.threads =
        (int)least(BLOCK, ceil_div((int64_t)k.lines * k.width, WARP) * WARP);
    k.step = k.threads / k.width;
    int64_t parts = least(FILL / least(FILL, (int64_t)s.n * k.tiles),
                          k.lines / ((int64_t)k.step * AHEAD * STEPS));
    k.part = (int)ceil_div(k.lines, most(1, parts));
    k.parts = (int)ceil_div(k.lines, k.part);
    return k;
}

struct GlobalPool {
    const void *x;
    void *y;
    int *where;         // Peak: the position of each result
    void *parts;        // [n][c][part], if there is more than one
    unsigned *counters; // of last_block, (n, tiles)
    Cut cut;
    int n, channels;
    int positions;
};

template <Dtype D>
__device__ __forceinline__ void put_result(const GlobalPool &p, int64_t i,
                                           float v)
{
    store_vec<1, D>((Element<D> *)p.y + i, {v}, true);
}

/* Stores result i, `all`. */
template <Dtype D>
__device__ __forceinline__ void finish(const GlobalPool &p, int64_t i, Sum all)
{
    put_result<D>(p, i, (float)(all.v / (double)p.positions));
}

template <Dtype D>
__device__ __forceinline__ void finish(const GlobalPool &p, int64_t i, Peak all)
{
    put_result<D>(p, i, all.v);
    p.where[i] = all.at;
}

/* Reduces a part of a tile of a sample. Thread t takes vector t % width of line
 * t / width of the lines that the block covers. */
template <int V, Dtype D, class Lanes, class State>
__global__ void __launch_bounds__(BLOCK, 4)
    global_pool_kernel(const __grid_constant__ GlobalPool p)
{
    SMEM(State, lane, [BLOCK * V]);
    const Cut &k = p.cut;
    const int t = (int)threadIdx.x;
    const int part = (int)(blockIdx.x % k.parts);
    const int tile = (int)(blockIdx.x / k.parts % k.tiles);
    const int64_t n = blockIdx.x / k.parts / k.tiles;
    const int column = t % k.width, row = t / k.width;
    const int vec = tile * k.width + column;
    const int from = part * k.part;
    const int to = k.lines - from < k.part ? k.lines : from + k.part;
    const bool works = row < k.step && vec < k.vecs;

    Lanes own;
    own.begin();
    const Element<D> *x = (const Element<D> *)p.x +
                          n * p.positions * p.channels + (int64_t)vec * V;
    const int64_t line = (int64_t)k.vecs * V;

    // in 64 bits: the last steps go beyond the last line
    for (int64_t i = from + row; works && i < to; i += AHEAD * k.step) {
        Vec<V> v[AHEAD];
#pragma unroll
        for (int j = 0; j < AHEAD; j++) {
            v[j] = {};
            const int64_t at = i + (int64_t)j * k.step;
            if (at < to) v[j] = load<V, D>(x + at * line);
        }
        own.take(v, (int)i, k.step, to);
    }

    for (int j = 0; j < V; j++) {
        const int e = vec * V + j;
        lane[t * V + j] = own.end(j, k.rows, e / p.channels);
    }
    __syncthreads();

    // a tree over the lines; its shape depends on step only
    int half = 1;
    while (half * 2 < k.step) half *= 2;

    for (; half > 0; half /= 2) {
        if (row < half && row + half < k.step)
            for (int j = 0; j < V; j++)
                lane[t * V + j] =
                    join(lane[t * V + j], lane[(t + half * k.width) * V + j]);
        __syncthreads();
    }

    // the rows of a line
    const int first = tile * k.width * V; // channel, when there are tiles
    const int channels =
        k.rows > 1 ? p.channels : min(k.width * V, p.channels - first);

    for (int c = t; c < channels; c += k.threads) {
        State all = lane[c];
        for (int j = 1; j < k.rows; j++)
            all = join(all, lane[c + j * p.channels]);
        const int64_t i = n * p.channels + first + c;
        if (k.parts == 1)
            finish<D>(p, i, all);
        else
            ((State *)p.parts)[i * k.parts + part] = all;
    }

    if (k.parts == 1 ||
        !last_block(p.counters + n * k.tiles + tile, (unsigned)k.parts))
        return;

    // the last block reduces all parts: one warp a channel
    for (int c = t / WARP; c < channels; c += k.threads / WARP) {
        const int64_t i = n * p.channels + first + c;
        const State *parts = (const State *)p.parts + i * k.parts;
        State all;
        none(&all);
        for (int j = t % WARP; j < k.parts; j += WARP)
            all = join(all, parts[j]);
        for (int by = WARP / 2; by > 0; by /= 2)
            all = join(all, shuffled(all, by));
        if (t % WARP == 0) finish<D>(p, i, all);
    }
}

__device__ __forceinline__ void one(Sum *s, float v, int)
{
    s->v = (double)v;
}

__device__ __forceinline__ void one(Peak *s, float v, int at)
{
    s->v = v, s->at = at;
}

enum { OWN_WIDE = 32, OWN_DEEP = BLOCK / OWN_WIDE };

/* Positions below a sample's length: a block has OWN_WIDE channels of one
 * sample, a row of threads every OWN_DEEP-th position, so that the order does
 * not depend on the number of positions beyond the length. */
template <Dtype D, class State>
__global__ void __launch_bounds__(BLOCK)
    global_pool_lengths_kernel(const __grid_constant__ GlobalPool p,
                               const float *lengths, int tiles)
{
    SMEM(State, part, [OWN_DEEP][OWN_WIDE]);
    const int x = (int)threadIdx.x % OWN_WIDE, y = (int)threadIdx.x / OWN_WIDE;
    const int64_t n = blockIdx.x / (unsigned)tiles;
    const int c = (int)(blockIdx.x % (unsigned)tiles) * OWN_WIDE + x;
    const int count = own_count(lengths, n, p.positions);
    State all;
    none(&all);
    const Element<D> *from =
        (const Element<D> *)p.x + n * p.positions * p.channels + c;
    for (int i = y; c < p.channels && i < count; i += OWN_DEEP) {
        State next;
        one(&next, load<1, D>(from + (int64_t)i * p.channels).v[0], i);
        all = join(all, next);
    }

    part[y][x] = all;
    __syncthreads();
    if (y || c >= p.channels) return;
    for (int i = 1; i < OWN_DEEP; i++) all = join(all, part[i][x]);
    GlobalPool own = p;
    own.positions = max(count, 1);
    finish<D>(own, n * p.channels + c, all);
    if (!count) put_result<D>(p, n * p.channels + c, 0);
}

template <Dtype D, class State> bool own(const Call *c)
{
    const Dims s = c->x[0]->dim;
    const int64_t tiles = ceil_div(s.c, OWN_WIDE);
    GlobalPool p = {};
    if (!countable(c, s.n * tiles)) return false;
    p.x = c->x[0]->data, p.y = c->y->data;
    p.where = (int *)c->saved;
    p.n = s.n, p.channels = s.c, p.positions = (int)positions(s);
    LAUNCH((global_pool_lengths_kernel<D, State>), (unsigned)(s.n * tiles),
           BLOCK, 0, gpu_stream(c->dev), p, values(c->x[1]), (int)tiles);
    return gpu_launched(op_info[c->attr->op].name);
}

template <int V, Dtype D, template <int> class Lanes, class State>
void start_pool(const Call *c, const GlobalPool &p, int64_t blocks)
{
    LAUNCH((global_pool_kernel<V, D, Lanes<V>, State>), (unsigned)blocks,
           (unsigned)p.cut.threads, 0, gpu_stream(c->dev), p);
}

template <Dtype D, template <int> class Lanes, class State>
bool pool_as(const Call *c)
{
    const Dims s = c->x[0]->dim;
    if (!countable(c, rows(s))) return false;
    if (c->x[1]) return own<D, State>(c);
    GlobalPool p = {};
    p.x = c->x[0]->data, p.y = c->y->data;
    p.where = (int *)c->saved, p.parts = c->scratch;
    p.cut = cut_of(s);
    p.n = s.n, p.channels = s.c, p.positions = (int)positions(s);
    const int64_t blocks = (int64_t)s.n * p.cut.tiles * p.cut.parts;
    if (!countable(c, blocks)) return false;
    if (p.cut.parts > 1)
        p.counters = gpu_counters(c->dev, (int64_t)s.n * p.cut.tiles);

    // rows of tensors in 16 bits are whole vectors
    if (D != F32 || p.cut.v == 4)
        start_pool<4, D, Lanes, State>(c, p, blocks);
    else
        start_pool<1, F32, Lanes, State>(c, p, blocks);
    return gpu_launched(op_info[c->attr->op].name);
}

template <template <int> class Lanes, class State> bool pool(const Call *c)
{
    return c->y->type == BF16  ? pool_as<BF16, Lanes, State>(c)
           : c->y->type == F16 ? pool_as<F16, Lanes, State>(c)
                               : pool_as<F32, Lanes, State>(c);
}

/* Bytes of the parts. */
size_t parts_bytes(const Call *c)
{
    const Dims s = c->x[0]->dim;
    if (rows(s) >= INT32_MAX) return 0; // pool_as() refuses such extents
    const Cut k = cut_of(s);
    return k.parts > 1 ? (size_t)s.n * s.c * k.parts * sizeof(Sum) : 0;
}

// -- backward ----------------------------------------------------------------

struct GlobalPoolBwd {
    const void *dy;
    const int *where; // NULL: mean
    const float *lengths;
    void *dx;
    Vecs vecs; // of dx
    Divisor positions;
    int channels;
    float share; // 1 / positions
    bool fresh;
};

/* dx[n,p,c] = dy[n,c] / valid positions, or dy[n,c] at the maximum and 0
 * elsewhere. */
template <int V, Dtype D>
__global__ void __launch_bounds__(BLOCK)
    global_pool_bwd_kernel(const __grid_constant__ GlobalPoolBwd p)
{
    EACH(i, p.vecs.count)
    {
        int c;
        uint32_t n = row_of(p.vecs, i, &c);
        const int at = (int)split(&n, p.positions);
        const int64_t from = (int64_t)n * p.channels + c * V;
        Vec<V> x = load<V, D>((const Element<D> *)p.dy + from);
        float share = p.share;
        if (p.lengths) {
            const int count = own_count(p.lengths, n, (int)p.positions.by);
            share = at < count ? 1.0f / (float)count : 0;
        }
        for (int k = 0; k < V; k++)
            if (p.where)
                x.v[k] = p.where[from + k] == at ? x.v[k] : 0;
            else
                x.v[k] = share == 0 ? 0 : x.v[k] * share;
        store_vec<V, D>((Element<D> *)p.dx + i * V, x, p.fresh);
    }
}

/* Adds to the winning elements only; a sample of length 0 has none. */
template <Dtype D>
__global__ void __launch_bounds__(BLOCK)
    global_maxpool_bwd_kernel(const __grid_constant__ GlobalPoolBwd p,
                              int64_t count)
{
    EACH(i, count)
    {
        const int64_t n = i / p.channels;
        if (p.where[i] < 0) continue;
        const int64_t row = n * p.positions.by + p.where[i];
        store_vec<1, D>((Element<D> *)p.dx + row * p.channels + i -
                            n * p.channels,
                        load<1, D>((const Element<D> *)p.dy + i), false);
    }
}

template <int V, Dtype D> void start_bwd(const Call *c, const GlobalPoolBwd &p)
{
    const int64_t winners = numel(c->y->dim);
    if (p.where && !p.fresh)
        LAUNCH(global_maxpool_bwd_kernel<D>, blocks_for(winners), BLOCK, 0,
               gpu_stream(c->dev), p, winners);
    else
        LAUNCH((global_pool_bwd_kernel<V, D>), blocks_for(p.vecs.count), BLOCK,
               0, gpu_stream(c->dev), p);
}

bool back(const Call *c, const int *where)
{
    if (!c->dx[0]) return true;
    const Dims s = c->x[0]->dim;
    const int v = vec_width(s.c);
    if (!countable(c, rows(s))) return false;
    GlobalPoolBwd p = {};
    p.dy = c->dy->data, p.where = where, p.dx = c->dx[0]->data;
    p.lengths = values(c->x[1]);
    p.vecs = vecs_of(s, v);
    p.positions = divisor(positions(s));
    p.channels = s.c;
    p.share = 1.0f / (float)positions(s);
    p.fresh = is_fresh(c, 0);
    CALL_STORED(c->dy->type, v, start_bwd, c, p);
    return gpu_launched(op_info[c->attr->op].name);
}

} // namespace

extern "C" {

Space cuda_global_avgpool_space(const Call *c)
{
    Space s = {};
    s.fwd = parts_bytes(c);
    return s;
}

bool cuda_global_avgpool_fwd(const Call *c)
{
    return pool<Sums, Sum>(c);
}

bool cuda_global_avgpool_bwd(const Call *c)
{
    return back(c, NULL);
}

Space cuda_global_maxpool_space(const Call *c)
{
    Space s = {};
    s.saved = (size_t)numel(c->y->dim) * sizeof(int);
    s.fwd = parts_bytes(c);
    return s;
}

bool cuda_global_maxpool_fwd(const Call *c)
{
    return pool<Peaks, Peak>(c);
}

bool cuda_global_maxpool_bwd(const Call *c)
{
    return back(c, (const int *)c->saved);
}
}
