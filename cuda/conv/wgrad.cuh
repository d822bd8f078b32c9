/* wgrad.cuh -- wgrad as a product over positions: how a tile of dw loads its
 * operands, and where it stores.
 *
 *     w[b, (k, a)] = sum_{n,p} output[(n, p), b] input[q(n, p, k), a]
 *
 * The rows of the product are the output channels of a group, its columns the
 * (tap, input channel) axis, which is contiguous in w, and its k axis the
 * output positions of all samples. A block computes a tile of w, WGRAD_TILE x
 * WGRAD_TILE unless BM and BN say otherwise, from one part of the positions
 * (split-K, wgrad_split_k); the last block of a tile adds the parts in double.
 * wgrad_f32.cu multiplies in f32, igemm_mma.cuh on tensor cores; T is the type
 * of input and output in memory. */
#ifndef SEG_CUDA_CONV_WGRAD_H
#define SEG_CUDA_CONV_WGRAD_H
#include "cuda/conv/conv.cuh"
#include "cuda/lib/grad_sqnorm.cuh"
#include "cuda/lib/grid_reduce.cuh"
#include "cuda/lib/precision_traits.cuh"

enum {
    WGRAD_TILE = 64,
    WGRAD_STEP = 32,         // positions of a part are a multiple of it
    WGRAD_OUTSIDE = 1 << 30, // larger than any extent
};

struct WgradParams {
    const void *input, *output;
    // The deferred norms, if conv_loads_vectors. In an implicit concat,
    // channels `border` .. of the input, `output_border` .. of the output are
    // in second tensors.
    NormOnLoad input_norm, output_norm;
    Operand second, second_output;
    int border, output_border;
    float *out;     // dw
    double *sqnorm; // partial sums of squares of dw, one a tile; or NULL
    Window win;
    Dims size; // extents of the input
    int64_t output_c;
    int cin, cout; // channels of a group
    int gemm_n;    // columns of dw in a group: taps * cin
    int mtiles;
    int positions, part;    // output positions; positions of a part
    GridReduce grid_reduce; // over the parts of a tile
    float *parts;           // (tiles, parts, BM, BN)
    unsigned *counters;
    Divisor axis[3], channels, k[3];
    bool fresh;
};

/* The coordinates of a block: its tile of w, its positions. */
struct WgradTile {
    int64_t group;
    int m0, n0, from, to;
};

template <int BM = WGRAD_TILE, int BN = WGRAD_TILE>
static __device__ __forceinline__ WgradTile wgrad_tile_of(const WgradParams &p)
{
    WgradTile s;
    s.group = blockIdx.y / p.mtiles;
    s.m0 = (int)(blockIdx.y % p.mtiles) * BM;
    s.n0 = (int)blockIdx.x * BN;
    s.from = (int)blockIdx.z * p.part;
    s.to = s.from + p.part < p.positions ? s.from + p.part : p.positions;
    return s;
}

/* A column of the product: the offset of its tap from p*s, and its channel.
 * Past the last column the offset is outside of any input. */
struct alignas(16) Column {
    int off[3], channel;
};

static __device__ __forceinline__ Column column_of(const WgradParams &p, int n)
{
    Column c;
    uint32_t rest = (uint32_t)n;
    c.channel = (int)split(&rest, p.channels);
    for (int i = 2; i >= 0; i--)
        c.off[i] = (int)split(&rest, p.k[i]) * p.win.dil[i] - p.win.lo[i];
    if (n >= p.gemm_n) c.off[0] = -WGRAD_OUTSIDE;
    return c;
}

/* The address of the input value for output position m and column c; NULL
 * outside of the input. */
template <class T>
static __device__ __forceinline__ const T *input_at(const WgradParams &p, int m,
                                                    const Column &c,
                                                    int64_t group)
{
    uint32_t rest = (uint32_t)m;
    int q[3];
    for (int i = 2; i >= 0; i--)
        q[i] = (int)split(&rest, p.axis[i]) * p.win.s[i] + c.off[i];
    bool inside = q[0] >= 0 && q[0] < p.size.d && q[1] >= 0 &&
                  q[1] < p.size.h && q[2] >= 0 && q[2] < p.size.w;
    if (!inside) return NULL;
    int64_t row =
        (((int64_t)rest * p.size.d + q[0]) * p.size.h + q[1]) * p.size.w + q[2];
    const int channel = (int)group * p.cin + c.channel;

    // the same branch in all threads; one tensor needs no second address
    if (p.border == p.size.c)
        return (const T *)p.input + row * p.size.c + channel;
    return concat_at<T>(p.input, p.second.data, p.border, p.size.c, row,
                        channel);
}

/* The address of `output` at position m. VEC: it may be an implicit concat. */
template <class T, bool VEC>
static __device__ __forceinline__ const T *output_at(const WgradParams &p,
                                                     int64_t m, int channel)
{
    if constexpr (!VEC) return (const T *)p.output + m * p.output_c + channel;
    return concat_at<T>(p.output, p.second_output.data, p.output_border,
                        p.output_c, m, channel);
}

/* The registers of a thread for one chunk of BK positions: lines of
 * neighbouring channels of output (g) and input (x), for positions row(), row()
 * + STEP, .. OUTPUT, INPUT: the channels of a group are a multiple of COUNT on
 * that side, so a line is one load, and a line of the input belongs to one
 * tap. */
template <class T, bool OUTPUT, bool INPUT> struct WgradLoad {
    enum {
        COUNT = Line<T>::COUNT,
        ACROSS = WGRAD_TILE / COUNT, // lines of a row of the tile
        STEP = CONV_THREADS / ACROSS,
        LOADS = 2,
        BK = LOADS * STEP,
    };
    static_assert(WGRAD_STEP % BK == 0, "parts are whole chunks");
    Column column;       // INPUT: of the thread's line;
    const Column *table; // else all columns of the tile, in shared memory:
                         // COUNT columns a line do not fit the registers
    Line<T> g[LOADS], x[LOADS];
    bool inside[INPUT ? LOADS : 1]; // x is inside of the input

    static __device__ __forceinline__ int first()
    {
        return (int)threadIdx.x % ACROSS * COUNT;
    }

    static __device__ __forceinline__ int row()
    {
        return (int)threadIdx.x / ACROSS;
    }

    /* columns: WGRAD_TILE columns in shared memory, without INPUT. All threads
     * of the block must call it. */
    __device__ __forceinline__ WgradLoad(const WgradParams &p,
                                         const WgradTile &s, Column *columns)
        : table(columns)
    {
        const int t = (int)threadIdx.x;
        if (INPUT) column = column_of(p, s.n0 + first());
        if (INPUT) return;
        if (t < WGRAD_TILE) columns[t] = column_of(p, s.n0 + t);
        __syncthreads();
    }

    __device__ __forceinline__ void fetch(const WgradParams &p,
                                          const WgradTile &s, int at)
    {
        const int m1 = s.m0 + first();
#pragma unroll
        for (int i = 0; i < LOADS; i++) {
            const int m = at + row() + i * STEP;
            g[i] = x[i] = {};
            if (INPUT) inside[i] = false;
            if (m >= s.to) continue;
            const T *y = output_at<T, OUTPUT>(p, m, (int)s.group * p.cout + m1);
            if constexpr (OUTPUT) {
                if (m1 < p.cout) g[i] = *(const Line<T> *)y;
            } else {
#pragma unroll
                for (int j = 0; j < COUNT; j++)
                    if (m1 + j < p.cout) g[i].v[j] = y[j];
            }
            if constexpr (INPUT) {
                const T *from = input_at<T>(p, m, column, s.group);
                inside[i] = from != NULL;
                if (from) x[i] = *(const Line<T> *)from;
            } else {
#pragma unroll
                for (int j = 0; j < COUNT; j++) {
                    const T *from =
                        input_at<T>(p, m, table[first() + j], s.group);
                    if (from) x[i].v[j] = *from;
                }
            }
        }
    }
};

/* Applies a deferred norm to lines of 16-bit channels, `channel` the first;
 * lines that are not `wanted` are left alone. */
template <Dtype D, int COUNT>
static __device__ __forceinline__ void norm_lines(const NormOnLoad &s,
                                                  int channel,
                                                  Line<uint16_t> (&x)[COUNT],
                                                  const bool (&wanted)[COUNT])
{
    enum { EACH = Line<uint16_t>::COUNT };
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        if (!wanted[i]) continue;
        const auto v = norm_act<EACH, D>(s, channel, load<EACH, D>(x[i].v));
        store_vec<EACH, D>(x[i].v, v, true);
    }
}

/* The same for an implicit concat, each tensor with its own norm. */
template <Dtype D, int COUNT>
static __device__ __forceinline__ void norm_concat_lines(
    const NormOnLoad &own, const NormOnLoad &second, int border, int channel,
    Line<uint16_t> (&x)[COUNT], const bool (&wanted)[COUNT])
{
    const bool far = channel >= border;
    const NormOnLoad norm_on_load = far ? second : own;
    if (norm_on_load.table)
        norm_lines<D>(norm_on_load, channel - (far ? border : 0), x, wanted);
}

/* Applies to the lines of both sides their deferred norms. A line of output is
 * normed even if this thread's line of input is outside: it
 * multiplies all columns of the tile. Past the last position the input is zero
 * in all threads. */
template <Dtype D, bool OUTPUT, bool INPUT>
static __device__ __forceinline__ void norm_operands(
    const WgradParams &p, const WgradTile &s,
    WgradLoad<uint16_t, OUTPUT, INPUT> *f)
{
    typedef WgradLoad<uint16_t, OUTPUT, INPUT> F;
    const int m1 = s.m0 + F::first();
    if constexpr (INPUT)
        norm_concat_lines<D>(p.input_norm, p.second.norm_on_load, p.border,
                             s.group * p.cin + f->column.channel, f->x,
                             f->inside);

    if constexpr (OUTPUT) {
        bool all[F::LOADS];
        for (int i = 0; i < F::LOADS; i++) all[i] = true;
        if (m1 < p.cout)
            norm_concat_lines<D>(p.output_norm, p.second_output.norm_on_load,
                                 p.output_border, s.group * p.cout + m1, f->g,
                                 all);
    }
}

template <int BM, int BN>
static __device__ __forceinline__ float *wgrad_part(const WgradParams &p,
                                                    int part)
{
    const int tile = (int)(blockIdx.y * gridDim.x + blockIdx.x);
    return p.parts + ((int64_t)tile * p.grid_reduce.parts + part) * BM * BN;
}

/* Stores element (m, n) of the tile to dw, or to the block's part of the tile;
 * ignores elements outside of w. Returns the square of the value in dw. */
template <int BM = WGRAD_TILE, int BN = WGRAD_TILE>
static __device__ __forceinline__ double store_wgrad(const WgradParams &p,
                                                     const WgradTile &s, int m,
                                                     int n, float v)
{
    if (s.m0 + m >= p.cout || s.n0 + n >= p.gemm_n) return 0;
    const bool whole = p.grid_reduce.parts == 1;
    float *to = whole ? p.out + (s.group * p.cout + s.m0) * p.gemm_n + s.n0
                      : wgrad_part<BM, BN>(p, (int)blockIdx.z);
    to += m * (whole ? p.gemm_n : BN) + n;
    put(to, v, !whole || p.fresh);
    return whole ? square_of(*to) : 0;
}

/* Stores the partial sum of squares of a tile; own: the sum of a thread. */
static __device__ __forceinline__ void store_tile_sqnorm(const WgradParams &p,
                                                         double own)
{
    if (p.sqnorm)
        store_sqnorm(own, p.sqnorm + blockIdx.y * gridDim.x + blockIdx.x);
}

/* The reduction of split-K: the last block of a tile adds its parts and stores
 * dw. Not inlined, so that the main loop has all registers. */
template <int BM, int BN>
static __device__ __attribute__((noinline)) void reduce_wgrad_parts(
    const WgradParams &p)
{
    enum { SIZE = BM * BN };
    const WgradTile s = wgrad_tile_of<BM, BN>(p);
    double own = 0;
    auto add = [&](int first, int step, int count, bool all) {
        float *parts = wgrad_part<BM, BN>(p, first);
        // four neighbouring elements a thread
        for (int i = (int)threadIdx.x * 4; i < SIZE; i += (int)blockDim.x * 4) {
            const int m = s.m0 + i / BN, n = s.n0 + i % BN;
            double sum[4];
            if (m >= p.cout || n >= p.gemm_n) continue;
            strided_sum_four(parts + i, (int64_t)step * SIZE, count, sum);
            float *to =
                all ? p.out + (s.group * p.cout + m) * p.gemm_n + n : parts + i;
            for (int j = 0; j < 4 && n + j < p.gemm_n; j++) {
                put(&to[j], (float)sum[j], !all || p.fresh);
                if (all) own += square_of(to[j]);
            }
        }
    };
    const int tile = (int)(blockIdx.y * gridDim.x + blockIdx.x);
    if (grid_reduce(p.grid_reduce, (int)blockIdx.z,
                    p.counters + tile * p.grid_reduce.counters, add))
        store_tile_sqnorm(p, own);
}

/* Call it after store_wgrad for the whole tile. own: the sum of the squares
 * that store_wgrad returned to this thread. */
template <int BM = WGRAD_TILE, int BN = WGRAD_TILE>
static __device__ __forceinline__ void finish_wgrad(const WgradParams &p,
                                                    double own)
{
    if (p.grid_reduce.parts > 1)
        reduce_wgrad_parts<BM, BN>(p);
    else
        store_tile_sqnorm(p, own);
}

/* The extents of a tile of dw, and the blocks that fill any GPU with them. */
struct WgradTileSize {
    int m, n, fill;
};

/* In wgrad_f32.cu: queues the kernel; the tile for a problem in f32. */
bool wgrad_f32(const ConvProblem *r, const WgradParams *p, dim3 blocks);
WgradTileSize wgrad_f32_tile(const ConvProblem *r);

/* In igemm_mma_bf16.cu, _f16.cu, _tf32.cu: queues the kernel. */
template <Precision P>
bool wgrad_mma(const ConvProblem *r, const WgradParams *p, dim3 blocks);
#endif
