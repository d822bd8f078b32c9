/* corr.cu -- gather and spread: a tiled product with an operand that is
 * looked up.
 *
 * Both are result[m,n] = sum_k source[m,k] w[k,n]: m counts positions of the
 * result, n its channels in a group, k = (tap, channel of the source). What
 * position m sees through tap i is one formula for both, see Axis. A stride
 * s makes spread irregular: an image position q meets only every s-th tap,
 * and which ones depends on q mod s. So positions are sorted into s^rank
 * classes by q mod s; inside a class all meet the same taps, whose numbers are
 * an arithmetic progression, and the product is dense again. gather has one
 * class.
 *
 * A block of 128 threads makes a tile of BM positions by BN channels, each
 * thread TM x TN of them in registers. Chunks of BK of the k axis go through
 * shared memory, two buffers, the next chunk on its way in registers while
 * this one is used: per chunk (BM + BN) BK floats are read for BM BN BK
 * multiply-adds, 16 FLOP a byte with the 64 x 64 tile. From shared memory a
 * warp reads 3 x 128 bytes for 32 multiply-adds a thread: the arithmetic
 * units, not shared memory, bind. Tile 128 x 16 is for results of few
 * channels.
 *
 * Groups of few channels on both sides would leave most of a tile empty: they
 * take the loop of corr_direct.cu, one thread a result. */
#include "corr.cuh"
#include "corr_direct.cuh"

namespace {

enum {
    THREADS = 128,
    BK = 16,     // of the k axis in shared memory at a time
    CLASSES = 8, // of one launch
    PAD = 4,     // floats behind a row of a tile: other banks, same alignment
};

/* Position j of `count` sees source position j*step + base + i*tap through
 * the i-th of `taps` taps, kernel tap first + i*every, and stands at
 * j*out_step + out_base in the result. */
struct Axis {
    int count, step, base, tap, taps, first, every, size, out_step, out_base;
};

struct Class {
    Axis axis[3];
    Divisor count[3], taps[3], channels;
    int positions; // of all samples
    int depth;     // of the k axis: taps * channels of the source
};

struct Product {
    Class cls[CLASSES];
    const float *source, *w, *bias;
    float *result;
    int64_t source_c, result_c; // channels of all groups
    int depth, width;           // channels of a group: source, result
    int taps[3];                // of the whole kernel
    int tiles;                  // of the channels of one group
    Dims extent;                // of the result
    bool spread, fresh;
};

/* What a thread knows of a position whose source it fetches. */
struct Origin {
    int n, at[3]; // n < 0: beyond the last
};

__device__ __forceinline__ Origin origin_of(const Class &k, int m)
{
    Origin o;
    uint32_t rest = (uint32_t)m;
    for (int i = 2; i >= 0; i--)
        o.at[i] =
            (int)split(&rest, k.count[i]) * k.axis[i].step + k.axis[i].base;
    o.n = m < k.positions ? (int)rest : -1;
    return o;
}

/* A place on the k axis: source offsets of its tap, channel, kernel tap. */
struct Tap {
    int off[3], channel, number;
};

__device__ __forceinline__ Tap tap_of(const Product &p, const Class &k, int at)
{
    Tap t;
    uint32_t rest = (uint32_t)at;
    int i[3];
    t.channel = (int)split(&rest, k.channels);
    i[2] = (int)split(&rest, k.taps[2]);
    i[1] = (int)split(&rest, k.taps[1]);
    i[0] = (int)rest;
    t.number = 0;
    for (int a = 0; a < 3; a++) {
        t.off[a] = i[a] * k.axis[a].tap;
        t.number =
            t.number * p.taps[a] + k.axis[a].first + i[a] * k.axis[a].every;
    }
    return t;
}

/* Address of the source at a position and tap; NULL outside the image. */
__device__ __forceinline__ const float *source_at(const Product &p,
                                                  const Class &k,
                                                  const Origin &o, const Tap &t,
                                                  int64_t group)
{
    int64_t row = o.n;
    bool inside = o.n >= 0;
    for (int a = 0; a < 3; a++) {
        int q = o.at[a] + t.off[a];
        inside = inside && q >= 0 && q < k.axis[a].size;
        row = row * k.axis[a].size + q;
    }
    return inside ? p.source + row * p.source_c + group * p.depth + t.channel
                  : NULL;
}

/* Address of the weight of a place on the k axis and channel n. */
__device__ __forceinline__ const float *weight_at(const Product &p,
                                                  const Tap &t, int64_t group,
                                                  int n)
{
    int64_t taps = p.taps[0] * p.taps[1] * p.taps[2];
    // (B, taps, A): gather runs over a inside k, spread over a inside n
    return p.spread
               ? p.w +
                     ((group * p.depth + t.channel) * taps + t.number) *
                         p.width +
                     n
               : p.w + ((group * p.width + n) * taps + t.number) * p.depth +
                     t.channel;
}

/* Four neighbours on the k axis of one position: one load when they are
 * channels of one tap (VEC: channels of the source are a multiple of 4). */
template <bool VEC>
__device__ __forceinline__ void fetch_source(const Product &p, const Class &k,
                                             const Origin &o, int at,
                                             int64_t group, float out[4])
{
    for (int i = 0; i < 4; i++) out[i] = 0;
    if constexpr (VEC) {
        if (at >= k.depth) return;
        const float *s = source_at(p, k, o, tap_of(p, k, at), group);
        if (s) *(float4 *)out = *(const float4 *)s;
    } else {
        for (int i = 0; i < 4 && at + i < k.depth; i++) {
            const float *s = source_at(p, k, o, tap_of(p, k, at + i), group);
            if (s) out[i] = *s;
        }
    }
}

/* Four neighbouring weights: on the k axis (gather) or the n axis (spread).
 */
template <bool SPREAD, bool VEC>
__device__ __forceinline__ void fetch_weights(const Product &p, const Class &k,
                                              int at, int n, int64_t group,
                                              float out[4])
{
    for (int i = 0; i < 4; i++) out[i] = 0;
    if (at >= k.depth || n >= p.width) return;
    if constexpr (VEC) {
        *(float4 *)out =
            *(const float4 *)weight_at(p, tap_of(p, k, at), group, n);
    } else {
        for (int i = 0; i < 4; i++) {
            int a = SPREAD ? at : at + i, b = SPREAD ? n + i : n;
            if (a < k.depth && b < p.width)
                out[i] = *weight_at(p, tap_of(p, k, a), group, b);
        }
    }
}

template <int BM, int BN, int TM, int TN, bool SPREAD, bool VEC>
__global__ void __launch_bounds__(THREADS)
    product_kernel(const __grid_constant__ Product p)
{
    enum { QUADS = BK / 4, MS = BM * QUADS / THREADS };
    enum { NS = BN * QUADS / THREADS > 0 ? BN * QUADS / THREADS : 1 };
    SMEM(float, source, [2][BK][BM + PAD]);
    SMEM(float, weight, [2][BK][BN + PAD]);
    const Class &k = p.cls[blockIdx.z];
    const int t = (int)threadIdx.x, m0 = (int)blockIdx.x * BM;
    const int64_t group = blockIdx.y / p.tiles;
    const int n0 = (int)(blockIdx.y % p.tiles) * BN;
    if (m0 >= k.positions) return; // of a class with fewer: the whole block

    // this thread fetches four k at positions fm + i*STEP ...
    enum { STEP = THREADS / QUADS };
    const int fk = t % QUADS * 4, fm = t / QUADS;
    Origin o[MS];
    for (int i = 0; i < MS; i++) o[i] = origin_of(k, m0 + fm + i * STEP);
    // ... and makes rows (i/4)*BM/2 + my + i%4, columns nx + j of the tile
    const int my = t / (BN / TN) * 4, nx = t % (BN / TN) * TN;

    Share<TM, TN> share;
    alignas(16) float s[MS][4], w[NS][4];
    auto fetch = [&](int at) {
#pragma unroll
        for (int i = 0; i < MS; i++)
            fetch_source<VEC>(p, k, o[i], at + fk, group, s[i]);
#pragma unroll
        for (int i = 0; i < NS; i++) {
            int q = t + i * THREADS;
            if (q >= BN * QUADS) break;
            if (SPREAD)
                fetch_weights<true, VEC>(p, k, at + q / (BN / 4),
                                         n0 + q % (BN / 4) * 4, group, w[i]);
            else
                fetch_weights<false, VEC>(p, k, at + q % QUADS * 4,
                                          n0 + q / QUADS, group, w[i]);
        }
    };
    auto store = [&](int b) {
#pragma unroll
        for (int i = 0; i < MS; i++)
            for (int j = 0; j < 4; j++)
                source[b][fk + j][fm + i * STEP] = s[i][j];
#pragma unroll
        for (int i = 0; i < NS; i++) {
            int q = t + i * THREADS;
            if (q >= BN * QUADS) break;
            if (SPREAD)
                *(float4 *)&weight[b][q / (BN / 4)][q % (BN / 4) * 4] =
                    *(float4 *)w[i];
            else
                for (int j = 0; j < 4; j++)
                    weight[b][q % QUADS * 4 + j][q / QUADS] = w[i][j];
        }
    };

    fetch(0);
    store(0);
    __syncthreads();
    for (int at = 0, b = 0; at < k.depth; at += BK, b ^= 1) {
        if (at + BK < k.depth) fetch(at + BK);
#pragma unroll
        for (int kk = 0; kk < BK; kk++)
            share.multiply(&source[b][kk][my], BM / 2, &weight[b][kk][nx]);
        if ((at / BK + 1) % (CHAIN / BK) == 0 || at + BK >= k.depth)
            share.end_chain();
        if (at + BK < k.depth) store(b ^ 1);
        __syncthreads();
    }

    for (int i = 0; i < TM; i++) {
        int m = m0 + i / 4 * (BM / 2) + my + i % 4;
        if (m >= k.positions) continue;
        uint32_t rest = (uint32_t)m;
        int q[3];
        for (int a = 2; a >= 0; a--)
            q[a] = (int)split(&rest, k.count[a]) * k.axis[a].out_step +
                   k.axis[a].out_base;
        int64_t row =
            (((int64_t)rest * p.extent.d + q[0]) * p.extent.h + q[1]) *
                p.extent.w +
            q[2];
        for (int j = 0; j < TN; j++) {
            int n = n0 + nx + j;
            if (n >= p.width) continue;
            int64_t c = group * p.width + n;
            float v = share.sum[i][j] + (p.bias ? p.bias[c] : 0.0f);
            put(&p.result[row * p.result_c + c], v, p.fresh);
        }
    }
}

// -- launching ---------------------------------------------------------------

template <int BM, int BN, int TM, int TN>
bool launch_tile(const Corr *r, Product *p, int classes, int positions)
{
    p->tiles = (int)ceil_div(p->width, BN);
    dim3 grid((unsigned)ceil_div(positions, BM),
              (unsigned)(p->tiles * r->win.groups), (unsigned)classes);
    cudaStream_t stream = gpu_stream(r->c->dev);
    bool vec = p->depth % 4 == 0 && (!p->spread || p->width % 4 == 0);
    if (p->spread && vec)
        LAUNCH((product_kernel<BM, BN, TM, TN, true, true>), grid, THREADS, 0,
               stream, *p);
    else if (p->spread)
        LAUNCH((product_kernel<BM, BN, TM, TN, true, false>), grid, THREADS, 0,
               stream, *p);
    else if (vec)
        LAUNCH((product_kernel<BM, BN, TM, TN, false, true>), grid, THREADS, 0,
               stream, *p);
    else
        LAUNCH((product_kernel<BM, BN, TM, TN, false, false>), grid, THREADS, 0,
               stream, *p);
    return gpu_launched(p->spread ? "spread" : "gather");
}

bool launch(const Corr *r, Product *p, int classes)
{
    int positions = 0;
    for (int i = 0; i < classes; i++)
        if (p->cls[i].positions > positions) positions = p->cls[i].positions;
    if (!positions) return true;
    return p->width > 16 ? launch_tile<64, 64, 8, 4>(r, p, classes, positions)
                         : launch_tile<128, 16, 8, 2>(r, p, classes, positions);
}

/* What follows from the axes. */
void finish(Class *k, int samples, int channels)
{
    k->positions = samples;
    k->depth = channels;
    for (int i = 0; i < 3; i++) {
        k->positions *= k->axis[i].count;
        k->depth *= k->axis[i].taps;
        k->count[i] = divisor(most(1, k->axis[i].count));
        k->taps[i] = divisor(most(1, k->axis[i].taps));
    }
    k->channels = divisor(channels);
}

/* Image positions r mod s of one axis: taps k with r + lo - k*dil divisible
 * by s are first, first + s/gcd(dil, s), ... */
Axis spread_axis(const Window *g, int i, int r, int size, int count)
{
    int s = g->s[i], first = 0, every = 1;
    Axis x = {};
    x.count = r < size ? (size - r + s - 1) / s : 0;
    x.size = count, x.out_step = s, x.out_base = r, x.step = 1;
    while (first < g->k[i] && (r + g->lo[i] - first * g->dil[i]) % s) first++;
    while (every * g->dil[i] % s) every++;
    x.taps = first < g->k[i] ? (g->k[i] - first + every - 1) / every : 0;
    x.first = first, x.every = every;
    x.base = (r + g->lo[i] - first * g->dil[i]) / s;
    x.tap = -(every * g->dil[i] / s);
    return x;
}

} // namespace

bool corr_gather(const Corr *r, const float *image, const float *w,
                 const float *bias, float *grid, bool fresh)
{
    const Window *g = &r->win;
    const int32_t *size = &r->image.d, *count = &r->grid.d;
    if (!countable(r->c, rows(r->image)) || !countable(r->c, rows(r->grid)))
        return false;
    if (corr_is_small(r))
        return corr_direct_gather(r, image, w, bias, grid, fresh);
    Product p = {};
    p.source = image, p.w = w, p.bias = bias, p.result = grid;
    p.source_c = r->image.c, p.result_c = r->grid.c;
    p.depth = r->a, p.width = r->b, p.extent = r->grid, p.fresh = fresh;
    for (int i = 0; i < 3; i++) {
        p.taps[i] = g->k[i];
        p.cls[0].axis[i] = {count[i], g->s[i], -g->lo[i], g->dil[i], g->k[i],
                            0,        1,       size[i],   1,         0};
    }
    finish(&p.cls[0], r->grid.n, r->a);
    return launch(r, &p, 1);
}

bool corr_spread(const Corr *r, const float *grid, const float *w,
                 const float *bias, float *image, bool fresh)
{
    const Window *g = &r->win;
    const int32_t *size = &r->image.d, *count = &r->grid.d;
    if (!countable(r->c, rows(r->image)) || !countable(r->c, rows(r->grid)))
        return false;
    if (corr_is_small(r))
        return corr_direct_spread(r, grid, w, bias, image, fresh);
    Product p = {};
    p.source = grid, p.w = w, p.bias = bias, p.result = image;
    p.source_c = r->grid.c, p.result_c = r->image.c;
    p.depth = r->b, p.width = r->a, p.extent = r->image;
    p.spread = true, p.fresh = fresh;
    for (int i = 0; i < 3; i++) p.taps[i] = g->k[i];
    int all = g->s[0] * g->s[1] * g->s[2], n = 0;
    for (int i = 0; i < all; i++) {
        int residue[3] = {i / g->s[2] / g->s[1], i / g->s[2] % g->s[1],
                          i % g->s[2]};
        Class *k = &p.cls[n];
        for (int a = 0; a < 3; a++)
            k->axis[a] = spread_axis(g, a, residue[a], size[a], count[a]);
        finish(k, r->image.n, r->b);
        // without taps a class still writes: its bias, or zero
        if (!k->positions) continue;
        if (++n < CLASSES && i + 1 < all) continue;
        if (!launch(r, &p, n)) return false;
        n = 0;
    }
    return !n || launch(r, &p, n);
}
