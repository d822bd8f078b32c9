/* direct.cu -- gather, spread and weights of groups of few channels.
 *
 * Neighbouring threads are neighbouring channels, so reads and writes of a
 * depthwise convolution are contiguous. Gather and spread: one thread a result,
 * which reads its taps from memory. WgradParams: a block has 32 channels of the
 * grid and 4 of the (tap, image channel) axis, from the positions of one part;
 * its warps share those, and the last blocks add up the parts
 * (grid_reduce.cuh), in double. All bound by the second level cache, which
 * holds what neighbours share: a tile of 64 x 64 would be empty but for a tap
 * or so of each group. */
#include "cuda/conv/direct.cuh"
#include "cuda/lib/grad_sqnorm.cuh"
#include "cuda/lib/grid_reduce.cuh"
#include "cuda/lib/precision_traits.cuh"

namespace {

enum {
    LANES = 32, // channels of the grid that a block has
    TAPS = 4,   // of the (tap, image channel) axis
    SUMS = TAPS * LANES,
    SHARE = BLOCK / LANES, // warps that share the positions of a part
};

struct Direct {
    const void *source, *w;
    const float *bias;
    Target result;
    Window win;
    Dims from, to;    // extents of source and result
    int depth, width; // channels of a group: source, result
    Divisor channels; // of the result, all groups
    Grid output;      // of the result
};

/* The source position that result position q meets along one axis through
 * tap k, or -1. */
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

/* The result at q and channel c: taps in their order, channels of the group
 * innermost, in chains of CHAIN. */
template <bool DGRAD, Precision P>
__device__ float direct_sum(const Direct &p, Place q, int c)
{
    typedef PrecisionTraits<P> N;
    typedef typename N::T T;
    const Window &g = p.win;
    const int group = c / p.width, n = c % p.width;
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
                             (int64_t)group * p.depth;
                int64_t taps = (int64_t)g.k[0] * g.k[1] * g.k[2];
                int64_t tap = ((int64_t)kd * g.k[1] + kh) * g.k[2] + kw;
                for (int i = 0; i < p.depth; i++) {
                    // w (B, taps, A): the grid's channel is outermost
                    int64_t b = DGRAD ? group * p.depth + i : c;
                    int64_t a = DGRAD ? n : i;
                    int64_t width = DGRAD ? p.width : p.depth;
                    T w = ((const T *)p.w)[(b * taps + tap) * width + a];
                    acc = fmaf(N::value(s[i]), N::value(w), acc);
                }
                if ((chain += p.depth) < CHAIN) continue;
                sum += acc, acc = 0, chain = 0;
            }
        }
    }
    return sum + acc;
}

/* One thread a result, neighbours are channels. */
template <bool DGRAD, Precision P>
__global__ void direct_kernel(const Direct p, int64_t count)
{
    EACH(i, count)
    {
        // count may pass 32 bits, rows do not
        int64_t row = i / p.channels.by;
        int c = (int)(i - row * p.channels.by);
        float v = direct_sum<DGRAD, P>(p, place(p.output, (uint32_t)row), c);
        put_one(p.result, i, v + (p.bias ? p.bias[c] : 0.0f));
    }
}

/* Queue the kernel of the call's precision. */
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

/* The sums of a block: channels first .. first + LANES - 1 of the grid,
 * elements TAPS blockIdx.y and on of the (tap, image channel) axis. */
struct DirectWgrad {
    Direct of; // source: the image, as gather has it; depth: of a group
    const void *output;
    int axis; // elements: taps * depth
    int positions, part;
    float *out;     // w (B, axis)
    double *square; // of w, one number a block of the first part; or NULL
    bool fresh;
    double *parts; // (parts, blocks of a part, TAPS, LANES)
    GridReduce grid_reduce;
    unsigned *counters;
};

/* Where an element of the axis looks, from a place of the grid. */
struct TapChannel {
    int k[3], channel;
};

__device__ __forceinline__ TapChannel tap_channel_of(const DirectWgrad &p,
                                                     int at)
{
    const Window &g = p.of.win;
    const int tap = at / p.of.depth;
    return {{tap / g.k[2] / g.k[1], tap / g.k[2] % g.k[1], tap % g.k[2]},
            at % p.of.depth};
}

/* What it sees there, 0 beside the image. source: of its group. */
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

/* What this thread has of the sums: of its channel, over the positions of its
 * warp, in chains of CHAIN. */
template <Precision P>
__device__ __forceinline__ void dw_sums(const DirectWgrad &p, int c,
                                        double (&sum)[TAPS])
{
    typedef typename PrecisionTraits<P>::T T;
    const int first = (int)blockIdx.y * TAPS;
    const int from = (int)blockIdx.z * p.part;
    const int to = min(from + p.part, p.positions);
    const T *source =
        (const T *)p.of.source + (int64_t)(c / p.of.width) * p.of.depth;
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

/* The block's sums are in `sum`, as a part has them: put those that there are
 * into w, and leave their squares. */
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
    if (p.square) square_leave(own, p.square + column);
}

template <Precision P>
__global__ void __launch_bounds__(BLOCK, 3) // for four ptxas spills
    direct_wgrad_kernel(const __grid_constant__ DirectWgrad p)
{
    SMEM(double, pile, [SHARE][SUMS]);
    const int t = (int)threadIdx.x, c = (int)blockIdx.x * LANES + t % LANES;
    const int column = (int)(blockIdx.y * gridDim.x + blockIdx.x);
    const int64_t step = (int64_t)gridDim.x * gridDim.y * SUMS;
    double *rows = p.parts + (int64_t)column * SUMS;
    double sum[TAPS] = {};
    if (c < p.of.to.c) dw_sums<P>(p, c, sum);
#pragma unroll
    for (int i = 0; i < TAPS; i++)
        pile[t / LANES][i * LANES + t % LANES] = sum[i];
    __syncthreads();
    if (t < SUMS)
        rows[(int)blockIdx.z * step + t] =
            strided_sum(&pile[0][t], SUMS, SHARE);
    __syncthreads(); // pile has been read
    if (grid_reduce_sums<TAPS>(p.grid_reduce, (int)blockIdx.z,
                               p.counters + column * p.grid_reduce.counters,
                               rows, step, LANES, LANES, pile[0]))
        store_dw(p, column, pile[0]);
}

int dw_depth(const ConvProblem *r)
{
    return r->win.k[0] * r->win.k[1] * r->win.k[2] * r->cin;
}

int dw_tiles(const ConvProblem *r)
{
    return (int)(ceil_div(r->output.c, LANES) * ceil_div(dw_depth(r), TAPS));
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

// one a block of a part
int direct_wgrad_sqnorm_parts(const ConvProblem *r)
{
    return dw_tiles(r);
}

bool direct_wgrad(const ConvProblem *r, const void *input, const void *output,
                  float *w, bool fresh, double *square, void *scratch)
{
    if (!countable(r->c, rows(r->input)) || !countable(r->c, rows(r->output)))
        return false;
    DirectWgrad p = {};
    const int columns = dw_tiles(r), parts = dw_parts(r, &p.part);
    const dim3 blocks((unsigned)ceil_div(r->output.c, LANES),
                      (unsigned)ceil_div(dw_depth(r), TAPS), (unsigned)parts);
    p.of.source = input, p.of.win = r->win;
    p.of.from = r->input, p.of.to = r->output, p.of.output = grid_of(r->output);
    p.of.depth = r->cin, p.of.width = r->cout;
    p.output = output, p.axis = dw_depth(r), p.positions = (int)rows(r->output);
    p.out = w, p.fresh = fresh, p.square = square;
    p.parts = (double *)scratch, p.grid_reduce = grid_reduce_of(parts, columns);
    if (parts > 1)
        p.counters =
            gpu_counters(r->c->dev, (int64_t)columns * p.grid_reduce.counters);
    cudaStream_t stream = gpu_stream(r->c->dev);
    // w, and the parts of it that are written and read
    moves(conv_operand_bytes(r, numel(r->input) + numel(r->output)) +
              (double)(conv_filter_size(r) * (fresh ? 1 : 2)) * sizeof(float) +
              2.0 * (double)most(1, grid_reduce_traffic(p.grid_reduce)) *
                  columns * SUMS * sizeof(double) +
              (square ? columns * (double)sizeof *square : 0),
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
    p.depth = dgrad ? r->cout : r->cin, p.width = dgrad ? r->cin : r->cout;
    p.channels = divisor(to.c), p.output = grid_of(to);
    moves(conv_operand_bytes(r, numel(from) + conv_filter_size(r)) +
              target_traffic(result, numel(to)),
          conv_flops(r));
    return dgrad ? launch<true>(r, p, numel(to))
                 : launch<false>(r, p, numel(to));
}
