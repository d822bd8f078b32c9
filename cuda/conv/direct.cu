/* direct.cu -- fprop, dgrad and wgrad for groups of few channels (fewer than 8
 * on both sides), in all precisions.
 *
 * Neighbouring threads compute neighbouring channels, so a depthwise
 * convolution reads and writes contiguous memory.
 *
 * - fprop and dgrad: one thread a result; it reads its taps from global memory,
 *   without shared memory.
 * - wgrad: a block computes 32 output channels by 4 elements of the (tap, input
 *   channel) axis, for one part of the positions (split-K). Its 8 warps take
 *   every 8th position of the part; the last block adds the parts in double
 *   (grid_reduce.cuh).
 *
 * All three are bound by the L2 cache, which holds the window that neighbours
 * share. A 64x64 tile of an implicit GEMM would be empty but for a tap or so of
 * each group. */
#include "cuda/conv/direct.cuh"
#include "cuda/lib/grad_sqnorm.cuh"
#include "cuda/lib/grid_reduce.cuh"
#include "cuda/lib/precision_traits.cuh"

namespace {

enum {
    LANES = 32, // output channels of a block
    TAPS = 4,   // of the (tap, input channel) axis
    SUMS = TAPS * LANES,
    SHARE = BLOCK / LANES, // warps, among which a part's positions are divided
};

struct Direct {
    const void *source, *w;
    const float *bias;
    Target result;
    Window win;
    Dims from, to;                        // extents of source and result
    int source_channels, result_channels; // of a group
    Divisor channels;                     // channels of the result, all groups
    Grid output;                          // positions of the result
};

/* The source position, along one axis, that tap k multiplies for result
 * position q; negative: outside of the source, or between two steps of the
 * stride. */
template <bool DGRAD>
__device__ __forceinline__ int source_index(const Direct &p, int axis, int q,
                                            int k, int size)
{
    const Window &g = p.win;
    if (!DGRAD) {
        int at = q * g.s[axis] - g.lo[axis] + k * g.dil[axis];
        return at < size ? at : -1;
    }
    int at = q + g.lo[axis] - k * g.dil[axis];
    if (at < 0 || at % g.s[axis]) return -1;
    at /= g.s[axis];
    return at < size ? at : -1;
}

/* The result at position q and channel c: taps in their order, the group's
 * channels innermost, in float chains of CHAIN terms. */
template <bool DGRAD, Precision P>
__device__ float direct_sum(const Direct &p, Place q, int c)
{
    typedef PrecisionTraits<P> N;
    typedef typename N::T T;
    const Window &g = p.win;
    const int group = c / p.result_channels, n = c % p.result_channels;
    float acc = 0, sum = 0;
    int chain = 0;

    for (int kd = 0; kd < g.k[0]; kd++) {
        int d = source_index<DGRAD>(p, 0, q.d, kd, p.from.d);
        for (int kh = 0; d >= 0 && kh < g.k[1]; kh++) {
            int h = source_index<DGRAD>(p, 1, q.h, kh, p.from.h);
            for (int kw = 0; h >= 0 && kw < g.k[2]; kw++) {
                int x = source_index<DGRAD>(p, 2, q.w, kw, p.from.w);
                if (x < 0) continue;
                int64_t row =
                    (((int64_t)q.n * p.from.d + d) * p.from.h + h) * p.from.w +
                    x;
                const T *s = (const T *)p.source + row * p.from.c +
                             (int64_t)group * p.source_channels;
                int64_t taps = (int64_t)g.k[0] * g.k[1] * g.k[2];
                int64_t tap = ((int64_t)kd * g.k[1] + kh) * g.k[2] + kw;
                for (int i = 0; i < p.source_channels; i++) {
                    // w is (output channels, taps, cin)
                    int64_t b = DGRAD ? group * p.source_channels + i : c;
                    int64_t a = DGRAD ? n : i;
                    int64_t cin = DGRAD ? p.result_channels : p.source_channels;
                    T w = ((const T *)p.w)[(b * taps + tap) * cin + a];
                    acc = fmaf(N::value(s[i]), N::value(w), acc);
                }
                if ((chain += p.source_channels) < CHAIN) continue;
                sum += acc, acc = 0, chain = 0;
            }
        }
    }
    return sum + acc;
}

/* One thread a result; neighbouring threads have neighbouring channels. */
template <bool DGRAD, Precision P>
__global__ void direct_kernel(const Direct p, int64_t count)
{
    EACH(i, count)
    {
        // elements may exceed 32 bits, rows do not
        int64_t row = i / p.channels.by;
        int c = (int)(i - row * p.channels.by);
        float v = direct_sum<DGRAD, P>(p, place(p.output, (uint32_t)row), c);
        put_one(p.result, i, v + (p.bias ? p.bias[c] : 0.0f));
    }
}

/* Queues the kernel of the call's precision. */
template <bool DGRAD>
bool launch(const ConvProblem *r, const Direct &p, int64_t count)
{
    unsigned blocks = blocks_for(count);
    cudaStream_t stream = gpu_stream(r->c->dev);

    switch (r->c->precision) {
    case PRECISION_tf32:
        LAUNCH((direct_kernel<DGRAD, PRECISION_tf32>), blocks, BLOCK, 0, stream,
               p, count);
        break;
    case PRECISION_bf16:
        LAUNCH((direct_kernel<DGRAD, PRECISION_bf16>), blocks, BLOCK, 0, stream,
               p, count);
        break;
    case PRECISION_f16:
        LAUNCH((direct_kernel<DGRAD, PRECISION_f16>), blocks, BLOCK, 0, stream,
               p, count);
        break;
    default:
        LAUNCH((direct_kernel<DGRAD, PRECISION_f32>), blocks, BLOCK, 0, stream,
               p, count);
    }
    return gpu_launched(DGRAD ? "direct dgrad" : "direct fprop");
}

/* wgrad. A block computes output channels LANES blockIdx.x .. + LANES - 1 by
 * elements TAPS blockIdx.y .. + TAPS - 1 of the (tap, input channel) axis, over
 * part blockIdx.z of the positions. */
struct DirectWgrad {
    Direct of; // source is ConvProblem.input
    const void *output;
    int axis; // taps * cin
    int positions, part;
    float *out;     // w (output channels, axis)
    double *sqnorm; // partial sums of squares of dw, one a tile; or NULL
    bool fresh;
    double *parts; // (parts, tiles, TAPS, LANES)
    GridReduce grid_reduce;
    unsigned *counters;
};

/* One element of the (tap, input channel) axis. */
struct TapChannel {
    int k[3], channel;
};

__device__ __forceinline__ TapChannel tap_channel_of(const DirectWgrad &p,
                                                     int at)
{
    const Window &g = p.of.win;
    const int tap = at / p.of.source_channels;
    return {{tap / g.k[2] / g.k[1], tap / g.k[2] % g.k[1], tap % g.k[2]},
            at % p.of.source_channels};
}

/* The input value that tap l of output position q multiplies, 0 outside of the
 * input. source points at the group's first channel. */
template <Precision P>
__device__ __forceinline__ float input_value(const Direct &p,
                                             const void *source,
                                             const TapChannel &l,
                                             const Place &q)
{
    typedef typename PrecisionTraits<P>::T T;
    const int d = source_index<false>(p, 0, q.d, l.k[0], p.from.d);
    const int h = source_index<false>(p, 1, q.h, l.k[1], p.from.h);
    const int w = source_index<false>(p, 2, q.w, l.k[2], p.from.w);
    if (d < 0 || h < 0 || w < 0) return 0;
    const int64_t row =
        (((int64_t)q.n * p.from.d + d) * p.from.h + h) * p.from.w + w;
    return PrecisionTraits<P>::value(
        ((const T *)source)[row * p.from.c + l.channel]);
}

/* The sums of a thread: TAPS elements of dw for output channel c, over every
 * SHARE-th position of the part, in chains of CHAIN terms and then in double.
 */
template <Precision P>
__device__ __forceinline__ void dw_sums(const DirectWgrad &p, int c,
                                        double (&sum)[TAPS])
{
    typedef typename PrecisionTraits<P>::T T;
    const int first = (int)blockIdx.y * TAPS;
    const int from = (int)blockIdx.z * p.part;
    const int to = min(from + p.part, p.positions);
    const T *source =
        (const T *)p.of.source +
        (int64_t)(c / p.of.result_channels) * p.of.source_channels;
    TapChannel at[TAPS];
    float acc[TAPS] = {};
    int chain = 0;
#pragma unroll
    for (int i = 0; i < TAPS; i++)
        at[i] = tap_channel_of(p, min(first + i, p.axis - 1));

    for (int m = from + (int)threadIdx.x / LANES; m < to; m += SHARE) {
        const Place q = place(p.of.output, (uint32_t)m);
        const float y = PrecisionTraits<P>::value(
            ((const T *)p.output)[(int64_t)m * p.of.to.c + c]);
#pragma unroll
        for (int i = 0; i < TAPS; i++)
            acc[i] = fmaf(input_value<P>(p.of, source, at[i], q), y, acc[i]);
        if (++chain < CHAIN) continue;
        chain = 0;
#pragma unroll
        for (int i = 0; i < TAPS; i++) sum[i] += (double)acc[i], acc[i] = 0;
    }
#pragma unroll
    for (int i = 0; i < TAPS; i++) sum[i] += (double)acc[i];
}

/* Stores the complete tile, `sum`[TAPS][LANES], to dw, and the partial sum of
 * its squares. column: the number of the tile. */
__device__ __forceinline__ void store_dw(const DirectWgrad &p, int column,
                                         const double *sum)
{
    const int i = (int)threadIdx.x;
    const int c = (int)blockIdx.x * LANES + i % LANES;
    const int at = (int)blockIdx.y * TAPS + i / LANES;
    double own = 0;
    if (i < SUMS && c < p.of.to.c && at < p.axis) {
        float *to = p.out + (int64_t)c * p.axis + at;
        put(to, (float)sum[i], p.fresh);
        own = square_of(*to);
    }
    if (p.sqnorm) store_sqnorm(own, p.sqnorm + column);
}

template <Precision P>
__global__ void __launch_bounds__(BLOCK, 3) // with four blocks ptxas spills
    direct_wgrad_kernel(const __grid_constant__ DirectWgrad p)
{
    SMEM(double, partials, [SHARE][SUMS]);
    const int t = (int)threadIdx.x, c = (int)blockIdx.x * LANES + t % LANES;
    const int column = (int)(blockIdx.y * gridDim.x + blockIdx.x);
    const int64_t step = (int64_t)gridDim.x * gridDim.y * SUMS;
    double *rows = p.parts + (int64_t)column * SUMS;
    double sum[TAPS] = {};
    if (c < p.of.to.c) dw_sums<P>(p, c, sum);
#pragma unroll
    for (int i = 0; i < TAPS; i++)
        partials[t / LANES][i * LANES + t % LANES] = sum[i];
    __syncthreads();
    if (t < SUMS)
        rows[(int)blockIdx.z * step + t] =
            strided_sum(&partials[0][t], SUMS, SHARE);
    __syncthreads(); // all threads have read partials
    if (grid_reduce_sums<TAPS>(p.grid_reduce, (int)blockIdx.z,
                               p.counters + column * p.grid_reduce.counters,
                               rows, step, LANES, LANES, partials[0]))
        store_dw(p, column, partials[0]);
}

int dw_columns(const ConvProblem *r)
{
    return (int)conv_taps(r) * r->cin;
}

int dw_tiles(const ConvProblem *r)
{
    return (int)(ceil_div(r->output.c, LANES) * ceil_div(dw_columns(r), TAPS));
}

int dw_parts(const ConvProblem *r, int *part)
{
    return wgrad_split_k(r, dw_tiles(r), 1, part);
}

} // namespace

size_t direct_wgrad_bytes(const ConvProblem *r)
{
    int part;
    return (size_t)dw_parts(r, &part) * (size_t)dw_tiles(r) * SUMS *
           sizeof(double);
}

// one for each tile
int direct_wgrad_sqnorm_parts(const ConvProblem *r)
{
    return dw_tiles(r);
}

bool direct_wgrad(const ConvProblem *r, const void *input, const void *output,
                  float *w, bool fresh, double *sqnorm, void *scratch)
{
    if (!countable(r->c, rows(r->input)) || !countable(r->c, rows(r->output)))
        return false;
    DirectWgrad p = {};
    const int columns = dw_tiles(r), parts = dw_parts(r, &p.part);
    const dim3 blocks((unsigned)ceil_div(r->output.c, LANES),
                      (unsigned)ceil_div(dw_columns(r), TAPS), (unsigned)parts);
    p.of.source = input, p.of.win = r->win;
    p.of.from = r->input, p.of.to = r->output, p.of.output = grid_of(r->output);
    p.of.source_channels = r->cin, p.of.result_channels = r->cout;
    p.output = output, p.axis = dw_columns(r),
    p.positions = (int)rows(r->output);
    p.out = w, p.fresh = fresh, p.sqnorm = sqnorm;
    p.parts = (double *)scratch, p.grid_reduce = grid_reduce_of(parts, columns);
    if (parts > 1)
        p.counters =
            gpu_counters(r->c->dev, (int64_t)columns * p.grid_reduce.counters);
    cudaStream_t stream = gpu_stream(r->c->dev);

    // dw, and its partial sums, written and read
    moves(conv_operand_bytes(r, numel(r->input) + numel(r->output)) +
              (double)(conv_filter_size(r) * (fresh ? 1 : 2)) * sizeof(float) +
              2.0 * (double)most(1, grid_reduce_traffic(p.grid_reduce)) *
                  columns * SUMS * sizeof(double) +
              (sqnorm ? columns * (double)sizeof *sqnorm : 0),
          conv_flops(r));

    switch (r->c->precision) {
    case PRECISION_tf32:
        LAUNCH((direct_wgrad_kernel<PRECISION_tf32>), blocks, BLOCK, 0, stream,
               p);
        break;
    case PRECISION_bf16:
        LAUNCH((direct_wgrad_kernel<PRECISION_bf16>), blocks, BLOCK, 0, stream,
               p);
        break;
    case PRECISION_f16:
        LAUNCH((direct_wgrad_kernel<PRECISION_f16>), blocks, BLOCK, 0, stream,
               p);
        break;
    default:
        LAUNCH((direct_wgrad_kernel<PRECISION_f32>), blocks, BLOCK, 0, stream,
               p);
    }
    return gpu_launched("direct_wgrad");
}

bool direct_run(const ConvProblem *r, bool dgrad, const void *source,
                const void *w, const float *bias, const Target &result)
{
    const Dims from = dgrad ? r->output : r->input;
    const Dims to = dgrad ? r->input : r->output;
    Direct p = {};

    if (!countable(r->c, rows(from)) || !countable(r->c, rows(to)))
        return false;
    p.source = source, p.w = w, p.bias = bias, p.result = result;
    p.win = r->win, p.from = from, p.to = to;
    p.source_channels = dgrad ? r->cout : r->cin,
    p.result_channels = dgrad ? r->cin : r->cout;
    p.channels = divisor(to.c), p.output = grid_of(to);
    moves(conv_operand_bytes(r, numel(from) + conv_filter_size(r)) +
              target_traffic(result, numel(to)),
          conv_flops(r));
    return dgrad ? launch<true>(r, p, numel(to))
                 : launch<false>(r, p, numel(to));
}
