/* first.cu -- fprop of convolutions with 1 to 4 input channels, in 16 bits.
 *
 * With so few products the result takes the time: 64 bytes of 32 filters for
 * every 4 bytes of x. So nothing else goes through memory: x is read in f32 or
 * 16 bits and rounded as a 16-bit copy would be, and sums for a norm are made
 * from registers.
 *
 * The k axis of the product is (tap, channel), at most 64: up to four steps of
 * m16n8k16. Each of the 8 warps of a block computes 16 positions by 32 filters
 * at a time; the lanes load their fragments of x through L1, by a table of taps
 * in shared memory. Column n of mma tile j is filter n/2 * 8 + 2j + n%2, so
 * each lane ends with 8 neighbouring filters: one store of 16 bytes.
 *
 * Bound by memory: x and y once. About 25 instructions a position and step. */
#include "cuda/conv/first.cuh"
#include "cuda/conv/igemm_tile.cuh"
#include "cuda/lib/precision_traits.cuh"

namespace {

enum {
    WARPS = BLOCK / WARP,
    ROWS = 16,    // positions of a warp at a time
    COLUMNS = 32, // filters of a block
    TILES = COLUMNS / 8,
    STEP = 16, // of the k axis
    STEPS = CONV_FIRST_GEMM_K / STEP,
    BLOCKS = 1024,    // blocks that fill any GPU
    OUTSIDE = 1 << 30 // larger than any extent
};

struct ConvFirst {
    const void *x; // f32 or 16 bits
    const uint16_t *w;
    const float *bias; // or NULL
    Target y;
    ChannelSums sums; // of y
    Window win;
    Dims input;
    Grid output; // positions of y
    int channels, filters, gemm_k;
    int steps, each; // of the k axis; tiles of 16 positions a warp
    int positions;
};

/* An element of the k axis: its offset from tap 0, channel 0, in elements and
 * along the axes. */
struct alignas(16) TapOffset {
    int off, d, h, w;
};

/* The input position under tap 0 of an output position, perhaps outside of the
 * input. */
struct WindowOrigin {
    int64_t at;
    int d, h, w;
};

__device__ __forceinline__ TapOffset tap_offset_of(const ConvFirst &p, int k)
{
    const Window &g = p.win;
    const int tap = k / p.channels;
    TapOffset r = {0, -OUTSIDE, 0, 0};
    if (k >= p.gemm_k) return r;
    r.w = tap % g.k[2] * g.dil[2];
    r.h = tap / g.k[2] % g.k[1] * g.dil[1];
    r.d = tap / g.k[2] / g.k[1] * g.dil[0];
    r.off = ((r.d * p.input.h + r.h) * p.input.w + r.w) * p.channels +
            k % p.channels;
    return r;
}

__device__ __forceinline__ WindowOrigin window_origin(const ConvFirst &p, int m)
{
    const Place q = place(p.output, (uint32_t)m);
    WindowOrigin f;
    f.d = q.d * p.win.s[0] - p.win.lo[0];
    f.h = q.h * p.win.s[1] - p.win.lo[1];
    f.w = q.w * p.win.s[2] - p.win.lo[2];
    f.at = (((int64_t)q.n * p.input.d + f.d) * p.input.h + f.h) * p.input.w;
    f.at = (f.at + f.w) * p.channels;
    if (m >= p.positions) f.d = -OUTSIDE;
    return f;
}

template <Dtype X>
__device__ __forceinline__ float element(const ConvFirst &p,
                                         const WindowOrigin &f,
                                         const TapOffset &r)
{
    const bool inside = (uint32_t)(f.d + r.d) < (uint32_t)p.input.d &&
                        (uint32_t)(f.h + r.h) < (uint32_t)p.input.h &&
                        (uint32_t)(f.w + r.w) < (uint32_t)p.input.w;
    const Element<X> *x = (const Element<X> *)p.x + f.at;
    return inside ? load<1, X>(x + r.off).v[0] : 0;
}

/* Elements k and k + 1 of a filter, 0 past the ends. */
__device__ __forceinline__ uint32_t filter_pair(const ConvFirst &p, int filter,
                                                int k)
{
    const uint16_t *w = p.w + filter * p.gemm_k + k;
    if (filter >= p.filters || k >= p.gemm_k) return 0;
    return w[0] | (k + 1 < p.gemm_k ? (uint32_t)w[1] << 16 : 0);
}

/* The sums of a lane over its stored values v, for each of 8 filters: sums of d
 * and d^2 with d = v - pivot, where pivot is the first value. */
struct LaneSums {
    float pivot[TILE_CHANNELS], d[TILE_CHANNELS], square[TILE_CHANNELS];
    int n;
};

__device__ __forceinline__ void add_sums(LaneSums *s,
                                         const Vec<TILE_CHANNELS> &v)
{
#pragma unroll
    for (int i = 0; i < TILE_CHANNELS; i++) {
        if (s->n == 0) s->pivot[i] = v.v[i];
        const float d = v.v[i] - s->pivot[i];
        s->d[i] += d;
        s->square[i] = fmaf(d, d, s->square[i]);
    }
    s->n++;
}

/* Writes the block's sums of v and v^2 to its partial sums; warps are added in
 * their order. All threads of the block must call it. */
__device__ __forceinline__ void put_sums(const ConvFirst &p, const LaneSums &s,
                                         int f0)
{
    SMEM(double, partials, [2][WARPS][COLUMNS]);
    const int t = (int)threadIdx.x, lane = t % WARP;
#pragma unroll
    for (int i = 0; i < TILE_CHANNELS; i++) {
        const double pivot = (double)s.pivot[i], d = (double)s.d[i];
        double sum = d + s.n * pivot;
        double square = (double)s.square[i] + pivot * (d + sum);
        sum = warp_sum_strided(sum, 4);
        square = warp_sum_strided(square, 4);
        if (lane >= 4) continue;
        partials[0][t / WARP][lane * TILE_CHANNELS + i] = sum;
        partials[1][t / WARP][lane * TILE_CHANNELS + i] = square;
    }

    __syncthreads();
    if (t < 2 * COLUMNS && f0 + t % COLUMNS < p.filters) {
        const int which = t / COLUMNS, filter = f0 + t % COLUMNS;
        double sum = 0;
        for (int i = 0; i < WARPS; i++) sum += partials[which][i][t % COLUMNS];
        p.sums.parts[((int64_t)blockIdx.x * 2 + which) * p.filters + filter] =
            sum;
    }

    channel_sums_finish(p.sums, (int)blockIdx.x, (int)blockIdx.y, f0,
                        min((int)COLUMNS, p.filters - f0), partials[0][0]);
}

template <Precision P, Dtype X>
__global__ void __launch_bounds__(BLOCK, 2)
    conv_first_kernel(const __grid_constant__ ConvFirst p)
{
    constexpr Dtype D = NARROW_TYPE<P>;
    SMEM(TapOffset, taps, [CONV_FIRST_GEMM_K]);
    SMEM(uint2, weights, [STEPS][TILES][WARP]);
    const int t = (int)threadIdx.x, lane = t % WARP;
    const int f0 = (int)blockIdx.y * COLUMNS;
    const int filter0 = f0 + lane % 4 * TILE_CHANNELS; // the lane's
    const bool in_range = filter0 < p.filters;
    if (t < p.steps * STEP) taps[t] = tap_offset_of(p, t);

    for (int i = t; i < p.steps * TILES * WARP; i += BLOCK) {
        const int l = i % WARP, j = i / WARP % TILES, s = i / WARP / TILES;
        const int n = l / 4, k = s * STEP + l % 4 * 2;
        const int filter = f0 + n / 2 * TILE_CHANNELS + 2 * j + n % 2;
        weights[s][j][l] = {filter_pair(p, filter, k),
                            filter_pair(p, filter, k + 8)};
    }

    __syncthreads();
    LaneSums sums = {};

    for (int i = 0; i < p.each; i++) {
        const int row_tile = ((int)blockIdx.x * p.each + i) * WARPS + t / WARP;
        const int m = row_tile * ROWS;
        if (m >= p.positions) break;
        const WindowOrigin first[2] = {window_origin(p, m + lane / 4),
                                       window_origin(p, m + lane / 4 + 8)};
        float acc[TILES][4] = {};
#pragma unroll
        for (int s = 0; s < STEPS; s++) {
            if (s >= p.steps) break;
            uint32_t a[4];
#pragma unroll
            for (int q = 0; q < 2; q++) {
                const TapOffset *r = &taps[s * STEP + lane % 4 * 2 + q * 8];
                const TapOffset one = r[0], two = r[1];
#pragma unroll
                for (int h = 0; h < 2; h++)
                    a[q * 2 + h] =
                        Stored<D>::pack(element<X>(p, first[h], one),
                                        element<X>(p, first[h], two));
            }
            __syncwarp(); // some lanes skipped their loads
#pragma unroll
            for (int j = 0; j < TILES; j++) {
                const uint2 both = weights[s][j][lane];
                const uint32_t b[2] = {both.x, both.y};
                PrecisionTraits<P>::multiply(acc[j], a, b);
            }
        }
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int row = m + lane / 4 + h * 8;
            Vec<TILE_CHANNELS> v;
            if (row >= p.positions || !in_range) continue;
#pragma unroll
            for (int j = 0; j < TILES; j++) {
                v.v[2 * j] = acc[j][2 * h];
                v.v[2 * j + 1] = acc[j][2 * h + 1];
            }
            add_bias(p.bias, filter0, &v);
            put_channels(p.y, (int64_t)row * p.filters + filter0, v);
            if (!p.sums.parts) continue;
#pragma unroll
            for (int k = 0; k < TILE_CHANNELS; k++) v.v[k] = rounded<D>(v.v[k]);
            add_sums(&sums, v);
        }
    }
    if (p.sums.parts) put_sums(p, sums, f0);
}

// -- launching ---------------------------------------------------------------

int gemm_k_of(const ConvProblem *r)
{
    return (int)least(conv_taps(r) * r->cin, CONV_FIRST_GEMM_K + 1);
}

/* The tiles of 16 positions that a warp computes: a thread has two rows of
 * each, so its sums are no longer than a chain. */
int each_of(const ConvProblem *r)
{
    const int64_t row_tiles = ceil_div(rows(r->output), ROWS * WARPS);
    return (int)least(ceil_div(row_tiles, BLOCKS), CHAIN / 2);
}

template <Precision P, Dtype X>
void start(const Call *c, dim3 blocks, const ConvFirst &p)
{
    LAUNCH((conv_first_kernel<P, X>), blocks, BLOCK, 0, gpu_stream(c->dev), p);
}

} // namespace

bool conv_first_takes(const ConvProblem *r)
{
    const Call *c = r->c;
    return call_op(c) == OP_conv && r->win.groups == 1 &&
           r->cin <= CONV_FIRST_CIN && gemm_k_of(r) <= CONV_FIRST_GEMM_K &&
           r->cout % TILE_CHANNELS == 0 && r->cout <= CONV_FIRST_FILTERS &&
           positions(r->input) * r->cin <= OUTSIDE &&
           precision_copy(c->precision) != F32;
}

int conv_first_sum_parts(const ConvProblem *r)
{
    return (int)ceil_div(rows(r->output), (int64_t)each_of(r) * ROWS * WARPS);
}

bool conv_first_fprop(const ConvProblem *r, const void *w, const float *bias,
                      const ChannelSums &sums)
{
    const Call *c = r->c;
    if (!countable(c, rows(r->input)) || !countable(c, rows(r->output)))
        return false;
    ConvFirst p = {};
    p.x = c->x[0]->data, p.w = (const uint16_t *)w, p.bias = bias;
    p.y = target_of(c->y, true), p.sums = sums;
    p.win = r->win, p.input = r->input, p.output = grid_of(r->output);
    p.channels = r->cin, p.filters = r->cout, p.gemm_k = gemm_k_of(r);
    p.steps = (int)ceil_div(p.gemm_k, STEP), p.each = each_of(r);
    p.positions = (int)rows(r->output);
    const int parts = conv_first_sum_parts(r);
    const dim3 blocks((unsigned)parts, (unsigned)ceil_div(r->cout, COLUMNS));
    channel_sums_columns(c, (int)blocks.y, &p.sums);
    moves(moved(c->x[0]) + conv_operand_bytes(r, conv_filter_size(r)) +
              moved(c->y) + channel_sums_traffic(p.sums),
          conv_flops(r));
    const bool wide = c->x[0]->type == F32;

    if (c->precision == PRECISION_bf16)
        wide ? start<PRECISION_bf16, F32>(c, blocks, p)
             : start<PRECISION_bf16, BF16>(c, blocks, p);
    else
        wide ? start<PRECISION_f16, F32>(c, blocks, p)
             : start<PRECISION_f16, F16>(c, blocks, p);
    return gpu_launched("conv_first fprop");
}
