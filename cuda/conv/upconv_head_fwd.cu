/* upconv_head_fwd.cu -- y of an upconv with 1 to 4 output channels, in 16 bits:
 * a product for each tap, then the sums over taps.
 *
 *     z[p, k] = sum_c x[p, c] w[c, k]      k = (tap, output channel), <= 64
 *     y[q]    = sum_k z[p, k]              p: the position that meets q by tap
 * k
 *
 * An implicit GEMM with the output channels as columns would use one column of
 * 16, and would read x for each tap of each residue class. With taps as columns
 * the product is dense, and x is read once, except at the borders of tiles.
 *
 * A block of 256 threads has a tile of 128 positions of a plane and loops over
 * a run of planes (2-D: one plane). w stays in shared memory; x comes in chunks
 * of 32 channels of one tensor, the next chunk in flight (cp.async), and each
 * thread applies the deferred norm to the lines that it copied. z of a plane is
 * written to shared memory and added to a ring of result planes, as many as the
 * window is deep. A thread adds the same results of each plane, in the order of
 * the planes. A result is stored by the tile with the last position that meets
 * it; so a tile begins with extra positions before its own, as many as meet the
 * same result.
 *
 * Bound by memory: 2 B an element of x, and y. With 4x4x4 taps and stride 2 a
 * plane has 1.22 positions for each of its own. */
#include "cuda/conv/igemm_tile_load.cuh"
#include "cuda/conv/upconv_head.cuh"

namespace {

enum {
    COLUMNS = UPCONV_HEAD_COLUMNS,
    LINES = 8,       // of 16 bytes in a row of w
    POSITIONS = 128, // of a tile
    POSITION_BITS = 7,
    THREADS = 256,
    WARPS = THREADS / WARP,
    BLOCKS = 2,          // on a multiprocessor of an H100
    FILL = 512,          // blocks that fill any GPU
    MIN_RUN = 8,         // planes that are worth the extra planes before them
    PITCH = COLUMNS + 8, // floats of a row of z
    RING = 2560,         // results in all planes of the ring
    ROW_STEP = THREADS / TILE_LINES, // rows that the block copies at a time
    TILES = 4,                       // of 8 columns, of an mma
};

struct UpconvHeadFwd {
    Operand x, second;
    const void *w;
    const float *bias; // or NULL
    float *y;
    int border, channels; // channels of x's first tensor; of both
    int results, columns;
    Dims output, input; // of x and y; c is not used
    int k[3], step[3], lo[3];
    int own[3], back[3]; // own positions of a tile, extra positions before
    int bits;            // log2 of a tile's last axis
    Divisor tiles[3], stride[2], line; // line: results of a tile's line
    int high, ring;                    // lines of results; planes of the ring
};

struct Shared {
    unsigned char w[UPCONV_HEAD_X_CHANNELS * LINES * TILE_LINE];
    unsigned char x[2][POSITIONS * TILE_ROW];
    float z[POSITIONS * PITCH];
    float ring[RING];
    float2 deferred_norm[UPCONV_HEAD_X_CHANNELS];
};
static_assert(sizeof(Shared) <= SHARED_MOST, "fits a block from 8.0 on");

/* A tile: its sample and first position, which may be outside of x. */
struct Tile {
    int n, at[3];
};

__device__ __forceinline__ Tile tile_of(const UpconvHeadFwd &p)
{
    uint32_t rest = blockIdx.x;
    Tile t;
#pragma unroll
    for (int a = 2; a >= 0; a--)
        t.at[a] = (int)split(&rest, p.tiles[a]) * p.own[a] - p.back[a];
    t.n = (int)rest;
    return t;
}

/* The row of x for position m of a plane; -1: outside. */
__device__ __forceinline__ int tile_row(const UpconvHeadFwd &p, const Tile &t,
                                        int plane, int m)
{
    const int d = t.at[0] + plane, h = t.at[1] + (m >> p.bits);
    const int w = t.at[2] + (m & ((1 << p.bits) - 1));
    const bool inside = d >= 0 && d < p.output.d && h >= 0 && h < p.output.h &&
                        w >= 0 && w < p.output.w;
    return inside ? ((t.n * p.output.d + d) * p.output.h + h) * p.output.w + w
                  : -1;
}

/* Issues the copies of 32 channels of a plane; a thread copies one line of each
 * of its rows. */
__device__ __forceinline__ void fill(const UpconvHeadFwd &p, const Tile &t,
                                     int plane, int c, unsigned char *to)
{
    const int line = (int)threadIdx.x % TILE_LINES;
#pragma unroll
    for (int m = (int)threadIdx.x / TILE_LINES; m < POSITIONS; m += ROW_STEP) {
        const int row = tile_row(p, t, plane, m);
        cp_async16(to + tile_place<TILE_LINES>(m, line),
                   concat_at<uint16_t>(p.x.data, p.second.data, p.border,
                                       p.channels, row < 0 ? 0 : row,
                                       c + line * 8),
                   row >= 0);
    }
}

/* Applies the deferred norm to the lines that this thread copied; positions
 * outside of x stay zero. */
template <Dtype D>
__device__ __forceinline__ void apply_norm(const UpconvHeadFwd &p,
                                           const Tile &t, int plane,
                                           const Act &act,
                                           const float2 *deferred_norm,
                                           unsigned char *x)
{
    const int line = (int)threadIdx.x % TILE_LINES;
#pragma unroll 1
    for (int m = (int)threadIdx.x / TILE_LINES; m < POSITIONS; m += ROW_STEP) {
        if (tile_row(p, t, plane, m) < 0) continue;
        uint4 *at = (uint4 *)(x + tile_place<TILE_LINES>(m, line));
        uint4 all = *at;
        uint32_t *v = &all.x;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float2 *by = &deferred_norm[line * 8 + i * 2];
            const float2 one = Stored<D>::unpack(v[i]);
            v[i] = Stored<D>::pack(norm_act_one<D>(act, by[0], one.x),
                                   norm_act_one<D>(act, by[1], one.y));
        }
        *at = all;
    }
}

/* z of a warp, 32 positions by 32 columns: adds the products of 32 channels. */
template <Precision P>
__device__ __forceinline__ void multiply(const unsigned char *x,
                                         const unsigned char *w, int m,
                                         int line, float (&acc)[2][TILES][4])
{
    const int lane = (int)threadIdx.x % WARP;
#pragma unroll
    for (int k = 0; k < 2; k++) {
        uint32_t a[2][4];
#pragma unroll
        for (int i = 0; i < 2; i++)
            ldmatrix_x4(a[i], x + tile_place<TILE_LINES>(m + i * 16 + lane % 16,
                                                         k * 2 + lane / 16));
#pragma unroll
        for (int j = 0; j < TILES; j += 2) {
            uint32_t b[4];
            ldmatrix_x4_trans(b, w + tile_place<LINES>(k * 16 + lane % 16,
                                                       line + j + lane / 16));
#pragma unroll
            for (int i = 0; i < 2; i++) {
                PrecisionTraits<P>::multiply(acc[i][j], a[i], {b[0], b[1]});
                PrecisionTraits<P>::multiply(acc[i][j + 1], a[i], {b[2], b[3]});
            }
        }
    }
}

/* Writes z of a warp to shared memory. d[i] of mma is row lane / 4 + i / 2 * 8,
 * column lane % 4 * 2 + i % 2. */
__device__ __forceinline__ void put_z(const float (&acc)[2][TILES][4], int m,
                                      int line, float *z)
{
    const int lane = (int)threadIdx.x % WARP;
#pragma unroll
    for (int i = 0; i < 2 * TILES * 2; i++) {
        const int tile = i / 4, j = i / 2 % 2 + tile % 2 * 2, half = i % 2;
        const int row = m + tile / 2 * 16 + half * 8 + lane / 4;
        *(float2 *)&z[row * PITCH + (line + j) * 8 + lane % 4 * 2] =
            make_float2(acc[tile / 2][j][half * 2],
                        acc[tile / 2][j][half * 2 + 1]);
    }
}

/* Adds z of a plane to the ring, and stores the results that this plane
 * completes. Along an axis, result i of a tile, counted from the first result
 * of its first position, meets position i / stride through tap i % stride, the
 * position before through tap i % stride + stride, and so on. */
__device__ __forceinline__ void add_plane(const UpconvHeadFwd &p, const Tile &t,
                                          int plane, Shared *s)
{
    const int outputs = p.high * (int)p.line.by;
    const int slot = plane * p.step[0] % p.ring;
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < outputs; i += THREADS) {
        uint32_t high = (uint32_t)i;
        const int e = (int)split(&high, p.line);
        const int r = e % p.results;
        const int h = (int)high + p.back[1] * p.step[1];
        const int w = e / p.results + p.back[2] * p.step[2];
        uint32_t ph = (uint32_t)h, pw = (uint32_t)w;
        const int kh0 = (int)split(&ph, p.stride[0]);
        const int kw0 = (int)split(&pw, p.stride[1]);
        for (int kd = 0; kd < p.k[0]; kd++) {
            float sum = 0;
            int line = (int)ph << p.bits;
            for (int kh = kh0; kh < p.k[1]; kh += p.step[1]) {
                const int tap = (kd * p.k[1] + kh) * p.k[2];
                const float *z = s->z + (line + (int)pw) * PITCH + r;
                for (int kw = kw0; kw < p.k[2]; kw += p.step[2]) {
                    sum += z[(tap + kw) * p.results];
                    z -= PITCH;
                }
                line -= 1 << p.bits;
            }
            const int to = slot + kd < p.ring ? slot + kd : slot + kd - p.ring;
            s->ring[to * outputs + i] += sum;
        }
        const int64_t qh = (int64_t)t.at[1] * p.step[1] + h - p.lo[1];
        const int64_t qw = (int64_t)t.at[2] * p.step[2] + w - p.lo[2];
        for (int j = 0; j < p.step[0]; j++) {
            const int from = slot + j < p.ring ? slot + j : slot + j - p.ring;
            const int64_t qd =
                (int64_t)(t.at[0] + plane) * p.step[0] + j - p.lo[0];
            float *at = &s->ring[from * outputs + i];
            if (plane >= p.back[0] && qd >= 0 && qd < p.input.d && qh >= 0 &&
                qh < p.input.h && qw >= 0 && qw < p.input.w)
                p.y[(((t.n * p.input.d + qd) * p.input.h + qh) * p.input.w +
                     qw) *
                        p.results +
                    r] = *at + (p.bias ? p.bias[r] : 0);
            *at = 0; // for the plane that takes its place
        }
    }
}

/* Sets the parts of shared memory that stay the same for all planes, and clears
 * the ring. */
__device__ __forceinline__ void set_up(const UpconvHeadFwd &p, Shared *s)
{
    const int t = (int)threadIdx.x;
    for (int i = t; i < p.channels * COLUMNS; i += THREADS) {
        const int c = i / COLUMNS, k = i % COLUMNS;
        *(uint16_t *)(s->w + tile_place<LINES>(c, k / 8) + k % 8 * 2) =
            k < p.columns ? ((const uint16_t *)p.w)[c * p.columns + k]
                          : (uint16_t)0;
    }

    for (int i = t; i < p.ring * p.high * (int)p.line.by; i += THREADS)
        s->ring[i] = 0;

    for (int c = t; c < p.channels; c += THREADS) {
        const bool far = c >= p.border;
        const NormOnLoad &norm_on_load =
            far ? p.second.norm_on_load : p.x.norm_on_load;
        if (norm_on_load.table)
            s->deferred_norm[c] = norm_on_load.table[far ? c - p.border : c];
    }
}

template <Precision P>
__global__ void __launch_bounds__(THREADS, BLOCKS)
    upconv_head_fwd_kernel(const __grid_constant__ UpconvHeadFwd p)
{
    constexpr Dtype D = NARROW_TYPE<P>;
    need_sm80("96 KB of shared memory");
    DYN_SMEM(unsigned char, bytes);
    Shared &s = *(Shared *)bytes;
    const int warp = (int)threadIdx.x / WARP;
    const int m = warp % 4 * 32, line = warp / 4 * TILES;
    const Tile t = tile_of(p);
    const int planes = p.own[0] + p.back[0];
    fill(p, t, 0, 0, s.x[0]);
    cp_async_commit();
    set_up(p, &s);
    __syncthreads(); // the coefficients of the norms are set
    int buffer = 0;

    for (int plane = 0; plane < planes; plane++) {
        float acc[2][TILES][4] = {};
        for (int c = 0; c < p.channels; c += TILE_CHUNK, buffer ^= 1) {
            const NormOnLoad &norm_on_load =
                c < p.border ? p.x.norm_on_load : p.second.norm_on_load;
            cp_async_wait<0>();
            if (norm_on_load.table)
                apply_norm<D>(p, t, plane, norm_on_load.act,
                              s.deferred_norm + c, s.x[buffer]);
            __syncthreads(); // and the previous chunk has been used
            const bool more = c + TILE_CHUNK < p.channels;
            if (more || plane + 1 < planes)
                fill(p, t, more ? plane : plane + 1, more ? c + TILE_CHUNK : 0,
                     s.x[buffer ^ 1]);
            cp_async_commit();
            multiply<P>(s.x[buffer], s.w + c * LINES * TILE_LINE, m, line, acc);
        }
        put_z(acc, m, line, s.z);
        __syncthreads();
        add_plane(p, t, plane, &s);
    }
}

// -- launching ---------------------------------------------------------------

/* The number of positions along an axis that meet one result, less one. */
int overlap_of(const ConvProblem *r, int i)
{
    return (int)ceil_div(r->win.k[i], r->win.s[i]) - 1;
}

/* Sets everything but the operands. False: the window is dilated, or too large
 * for a tile or the ring. */
bool fwd_params(const ConvProblem *r, UpconvHeadFwd *p)
{
    const Window *g = &r->win;
    *p = {};
    p->channels = p->border = r->cout, p->results = r->cin;
    p->columns = g->k[0] * g->k[1] * g->k[2] * r->cin;
    p->output = r->output, p->input = r->input;
    p->bits = r->output.h > 1 ? POSITION_BITS - 3 : POSITION_BITS;
    const int tile[3] = {1, POSITIONS >> p->bits, 1 << p->bits};
    int64_t count[3];

    for (int i = 0; i < 3; i++) {
        p->k[i] = g->k[i], p->step[i] = g->s[i], p->lo[i] = g->lo[i];
        p->back[i] = overlap_of(r, i), p->own[i] = tile[i] - p->back[i];
        if (g->dil[i] != 1 || (i && p->own[i] <= p->back[i])) return false;
        // positions that meet a result
        count[i] = ceil_div((int64_t)(&r->input.d)[i] + g->lo[i], g->s[i]);
        if (i) count[i] = ceil_div(count[i], p->own[i]);
    }

    const int64_t tiles = r->output.n * count[1] * count[2];
    const int64_t run = ceil_div(count[0], ceil_div(FILL, tiles));
    p->own[0] = (int)least(most(run, MIN_RUN), count[0]);
    count[0] = ceil_div(count[0], p->own[0]);
    for (int i = 0; i < 3; i++) p->tiles[i] = divisor(count[i]);
    p->stride[0] = divisor(g->s[1]), p->stride[1] = divisor(g->s[2]);
    const int64_t high = (int64_t)p->own[1] * g->s[1];
    const int64_t wide = (int64_t)p->own[2] * g->s[2] * r->cin;
    p->ring = (int)most(g->k[0], g->s[0]);
    if (high > RING || wide > RING || p->ring * high * wide > RING)
        return false;
    p->high = (int)high, p->line = divisor(wide);
    return countable(r->c, tiles * count[0]);
}

template <Precision P>
bool queue(const ConvProblem *r, const UpconvHeadFwd &p, unsigned blocks)
{
    if (!gpu_allows(upconv_head_fwd_kernel<P>, sizeof(Shared))) return false;
    LAUNCH(upconv_head_fwd_kernel<P>, blocks, THREADS, sizeof(Shared),
           gpu_stream(r->c->dev), p);
    return gpu_launched("upconv_head fwd");
}

} // namespace

bool upconv_head_fwd_takes(const ConvProblem *r, int border)
{
    UpconvHeadFwd p;
    return gpu_fits(sizeof(Shared)) && upconv_head_narrow(r, border) &&
           fwd_params(r, &p);
}

bool upconv_head_fwd(const ConvProblem *r, const Source &x, const void *w,
                     const float *bias, float *y)
{
    UpconvHeadFwd p;
    if (!countable(r->c, rows(r->output)) || !fwd_params(r, &p)) return false;
    p.x = x.first, p.second = x.second, p.w = w, p.bias = bias, p.y = y;
    if (x.border) p.border = x.border;
    const unsigned blocks =
        (unsigned)r->output.n * p.tiles[0].by * p.tiles[1].by * p.tiles[2].by;
    moves(conv_operand_bytes(r, numel(r->output) + conv_filter_size(r)) +
              moved(r->c->y),
          conv_flops(r));
    return r->c->precision == PRECISION_bf16
               ? queue<PRECISION_bf16>(r, p, blocks)
               : queue<PRECISION_f16>(r, p, blocks);
}
