/* corr_weights.cu -- w[b,k,a] = sum_{n,p} image[n,q,a] grid[n,p,b].
 *
 * A product over positions: a block makes BM grid channels by BN of the
 * (tap, image channel) axis, which is contiguous in w, from the positions of
 * one part. Chunks of BK positions go through shared memory as in corr.cu.
 * Positions are cut into parts, in a number that depends on extents only, so
 * that layers of few channels fill a GPU too; a second kernel adds the parts
 * up in their order, in double. Same bits always, no atomics.
 *
 * Bound by arithmetic from 64 channels on, as corr.cu; below, by reading the
 * image once per tile of taps. */
#include "corr.cuh"
#include "parts.cuh"

namespace {

enum {
    THREADS = 128,
    BM = 64,
    BN = 64,
    TM = 8,
    TN = 4,
    BK = 16,
    FILL = 512,      // blocks that fill any GPU of today
    MIN_PART = 1024, // positions worth a block
    FLUSH = CHAIN / BK,
};

struct Weights {
    const float *image, *grid;
    float *out; // w, or the parts
    Window win;
    Dims size; // of the image
    int64_t grid_c;
    int a, b, depth; // channels of a group; taps * a
    int mtiles;
    int positions, part; // of the grid; of one part
    int64_t part_stride; // floats between parts in `out`
    Divisor axis[3], channels, k[3];
    bool fresh;
};

/* A tap and channel on the (tap, a) axis. */
struct Column {
    int off[3], channel;
    bool valid;
};

__device__ __forceinline__ Column column_of(const Weights &p, int n)
{
    Column c;
    uint32_t rest = (uint32_t)n;
    c.valid = n < p.depth;
    c.channel = (int)split(&rest, p.channels);
    for (int i = 2; i >= 0; i--)
        c.off[i] = (int)split(&rest, p.k[i]) * p.win.dil[i] - p.win.lo[i];
    return c;
}

/* Address of the image that grid position m meets there; NULL outside. */
__device__ __forceinline__ const float *image_at(const Weights &p, int m,
                                                 const Column &c, int64_t group)
{
    if (!c.valid) return NULL;
    uint32_t rest = (uint32_t)m;
    int q[3];
    for (int i = 2; i >= 0; i--)
        q[i] = (int)split(&rest, p.axis[i]) * p.win.s[i] + c.off[i];
    bool inside = q[0] >= 0 && q[0] < p.size.d && q[1] >= 0 &&
                  q[1] < p.size.h && q[2] >= 0 && q[2] < p.size.w;
    if (!inside) return NULL;
    int64_t row =
        (((int64_t)rest * p.size.d + q[0]) * p.size.h + q[1]) * p.size.w + q[2];
    return p.image + row * p.size.c + group * p.a + c.channel;
}

/* One tile of w of one group, from the positions of one part. Threads fetch
 * along the channels (contiguous in memory) and compute 8 x 4 of the tile.
 * VEC: channels of both sides divide by 4, so four of them are one load and
 * belong to one tap. */
template <bool VEC>
__global__ void __launch_bounds__(THREADS)
    weights_kernel(const __grid_constant__ Weights p)
{
    enum { QUADS = BM / 4, STEP = THREADS / QUADS, LOADS = BK / STEP };
    SMEM(float, grid, [2][BK][BM]);
    SMEM(float, image, [2][BK][BN]);
    const int t = (int)threadIdx.x;
    const int64_t group = blockIdx.y / p.mtiles;
    const int m0 = (int)(blockIdx.y % p.mtiles) * BM;
    const int n0 = (int)blockIdx.x * BN;
    const int from = (int)blockIdx.z * p.part;
    const int to = from + p.part < p.positions ? from + p.part : p.positions;
    // fetches 4 channels (quad) of positions row, row + STEP
    const int quad = t % QUADS * 4, row = t / QUADS;
    const int my = t / (BN / TN) * 4, nx = t % (BN / TN) * TN;
    Column column[VEC ? 1 : 4];
    for (int i = 0; i < (VEC ? 1 : 4); i++)
        column[i] = column_of(p, n0 + quad + i);

    Share<TM, TN> share;
    alignas(16) float g[LOADS][4], x[LOADS][4];
    auto fetch = [&](int at) {
#pragma unroll
        for (int i = 0; i < LOADS; i++) {
            int m = at + row + i * STEP;
            for (int j = 0; j < 4; j++) g[i][j] = x[i][j] = 0;
            if (m >= to) continue;
            const float *y = p.grid + m * p.grid_c + group * p.b + m0 + quad;
            if constexpr (VEC) {
                if (m0 + quad < p.b) *(float4 *)g[i] = *(const float4 *)y;
                const float *s = image_at(p, m, column[0], group);
                if (s) *(float4 *)x[i] = *(const float4 *)s;
            } else {
                for (int j = 0; j < 4; j++) {
                    if (m0 + quad + j < p.b) g[i][j] = y[j];
                    const float *s = image_at(p, m, column[j], group);
                    if (s) x[i][j] = *s;
                }
            }
        }
    };
    auto store = [&](int b) {
#pragma unroll
        for (int i = 0; i < LOADS; i++) {
            *(float4 *)&grid[b][row + i * STEP][quad] = *(float4 *)g[i];
            *(float4 *)&image[b][row + i * STEP][quad] = *(float4 *)x[i];
        }
    };

    fetch(from);
    store(0);
    __syncthreads();
    for (int at = from, b = 0, n = 1; at < to; at += BK, b ^= 1, n++) {
        if (at + BK < to) fetch(at + BK);
#pragma unroll
        for (int k = 0; k < BK; k++)
            share.multiply(&grid[b][k][my], BM / 2, &image[b][k][nx]);
        if (n % FLUSH == 0 || at + BK >= to) share.end_chain();
        if (at + BK < to) store(b ^ 1);
        __syncthreads();
    }

    float *out = p.out + blockIdx.z * p.part_stride;
    for (int i = 0; i < TM; i++) {
        int m = m0 + i / 4 * (BM / 2) + my + i % 4;
        if (m >= p.b) continue;
        for (int j = 0; j < TN; j++)
            if (n0 + nx + j < p.depth)
                put(&out[(group * p.b + m) * p.depth + n0 + nx + j],
                    share.sum[i][j], p.fresh);
    }
}

/* Parts of the positions; a function of extents only. */
int parts_of(const Corr *r, int *part)
{
    int64_t positions = rows(r->grid);
    int64_t depth = (int64_t)r->win.k[0] * r->win.k[1] * r->win.k[2] * r->a;
    int64_t tiles = ceil_div(r->b, BM) * ceil_div(depth, BN) * r->win.groups;
    int64_t parts = most(1, least(FILL / tiles, ceil_div(positions, MIN_PART)));
    *part = (int)(ceil_div(ceil_div(positions, parts), BK) * BK);
    return (int)ceil_div(positions, *part);
}

/* Elements of w. */
int64_t weights_size(const Corr *r)
{
    return (int64_t)r->grid.c * r->win.k[0] * r->win.k[1] * r->win.k[2] * r->a;
}

} // namespace

size_t corr_weights_bytes(const Corr *r)
{
    int part, parts = parts_of(r, &part);
    return parts > 1 ? (size_t)(parts * weights_size(r)) * sizeof(float) : 0;
}

bool corr_weights(const Corr *r, const float *image, const float *grid,
                  float *w, bool fresh, void *scratch)
{
    if (!countable(r->c, rows(r->image)) || !countable(r->c, rows(r->grid)))
        return false;
    Weights p = {};
    int parts = parts_of(r, &p.part);
    const int32_t *count = &r->grid.d;
    p.image = image, p.grid = grid, p.win = r->win, p.size = r->image;
    p.grid_c = r->grid.c, p.a = r->a, p.b = r->b;
    p.depth = (int)(weights_size(r) / r->grid.c);
    p.mtiles = (int)ceil_div(r->b, BM);
    p.positions = (int)rows(r->grid);
    p.part_stride = weights_size(r);
    // parts are new each time; whether w is added to is the second launch's
    p.out = parts > 1 ? (float *)scratch : w;
    p.fresh = parts > 1 || fresh;
    p.channels = divisor(r->a);
    for (int i = 0; i < 3; i++) {
        p.axis[i] = divisor(count[i]);
        p.k[i] = divisor(r->win.k[i]);
    }
    dim3 blocks((unsigned)ceil_div(p.depth, BN),
                (unsigned)(p.mtiles * r->win.groups), (unsigned)parts);
    if (r->a % 4 == 0 && r->b % 4 == 0)
        LAUNCH((weights_kernel<true>), blocks, THREADS, 0,
               gpu_stream(r->c->dev), p);
    else
        LAUNCH((weights_kernel<false>), blocks, THREADS, 0,
               gpu_stream(r->c->dev), p);
    if (!gpu_launched("weights")) return false;
    return parts == 1 || add_parts(r->c, p.out, parts, p.part_stride, w, fresh);
}
