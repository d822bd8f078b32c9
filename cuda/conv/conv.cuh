/* conv.cuh -- the correlation that conv, upconv and linear share.
 *
 * An `image` and a `grid` look at each other through a window: position p of
 * the grid sees image position p*s - lo + k*dil through tap k. With weights
 * w (B,kd,kh,kw,A), A and B the channels of one group of image and grid:
 *
 *     gather   grid[n,p,b]  = sum_{k,a}   image[n,q,a] w[b,k,a]
 *     spread   image[n,q,a] = sum_{p,k,b} grid[n,p,b]  w[b,k,a]
 *     weights  w[b,k,a]     = sum_{n,p}   image[n,q,a] grid[n,p,b]
 *
 * The forward run and the two gradients of conv; of upconv, whose operand is
 * the grid, in another order. cpu/ref/conv_loops.h has the same three as loops.
 */
#ifndef SEG_CUDA_CONV_CONV_H
#define SEG_CUDA_CONV_CONV_H
#include "cuda/norm/channel_sums.cuh"

enum { CONV_THREADS = 128 }; // of a block that makes a tile

struct ConvProblem {
    const Call *c;
    Window win;
    Dims input, output;
    int cin, cout; // channels of one group of `input` and of `output`
};

static inline ConvProblem conv_problem(const Call *c, Window win, Dims input,
                                       Dims output)
{
    return {c, win, input, output, input.c / win.groups, output.c / win.groups};
}

/* FLOPs of each of the three. */
static inline double conv_flops(const ConvProblem *r)
{
    const Window *g = &r->win;
    return 2.0 * (double)numel(r->output) * g->k[0] * g->k[1] * g->k[2] *
           r->cin;
}

/* Bytes of so many numbers as an operand has them. */
static inline double conv_operand_bytes(const ConvProblem *r, int64_t count)
{
    return (double)count * (double)dtype_bytes(precision_copy(r->c->precision));
}

/* Elements of w. */
static inline int64_t conv_filter_size(const ConvProblem *r)
{
    const Window *g = &r->win;
    return (int64_t)r->output.c * g->k[0] * g->k[1] * g->k[2] * r->cin;
}

/* Into how many parts the positions of the grid are cut for dw, of which so
 * many tiles are made; *part: how many a part has, a multiple of `step`. So
 * that layers of few channels fill a GPU too; a function of extents only. */
static inline int wgrad_split_k(const ConvProblem *r, int64_t tiles, int step,
                                int *part)
{
    enum {
        FILL_GPU = 512,  // blocks that fill any GPU of today
        MIN_PART = 1024, // positions worth a block
    };
    const int64_t positions = rows(r->output);
    const int64_t parts =
        most(1, least(FILL_GPU / tiles, ceil_div(positions, MIN_PART)));
    *part = (int)(ceil_div(ceil_div(positions, parts), step) * step);
    return (int)ceil_div(positions, *part);
}

/* Bytes of one: with a slant it is read, what it is of is, and it is stored. */
static inline double operand_traffic(const ConvProblem *r, const NormBwd &s,
                                     int64_t count)
{
    return conv_operand_bytes(r, s.table ? 3 * count : count);
}

/* Address of a channel of a row of `channels` that two tensors share, the first
 * up to the border. */
template <class T>
static __device__ __forceinline__ const T *concat_at(const void *first,
                                                     const void *second,
                                                     int border,
                                                     int64_t channels,
                                                     int64_t row, int64_t c)
{
    if (c < border) return (const T *)first + row * border + c;
    return (const T *)second + row * (channels - border) + c - border;
}

/* Where results go: floats, or numbers of 16 bits. */
struct Target {
    void *data;
    Dtype type;
    bool fresh; /* stored, else added */
};

static inline Target target_of(const Tensor *t, bool fresh)
{
    return {t->data, t->type, fresh};
}

/* Bytes that it is written in, or read and written. */
static inline double target_traffic(const Target &t, int64_t count)
{
    return (double)count * (double)dtype_bytes(t.type) * (t.fresh ? 1 : 2);
}

static __device__ __forceinline__ void put_one(const Target &t, int64_t i,
                                               float v)
{
    uint16_t *narrow = (uint16_t *)t.data + i;
    if (t.type == BF16)
        *narrow =
            (uint16_t)pack_bf16(t.fresh ? v : unpack_bf16(*narrow).x + v, 0);
    else if (t.type == F16)
        *narrow =
            (uint16_t)pack_f16(t.fresh ? v : unpack_f16(*narrow).x + v, 0);
    else
        put((float *)t.data + i, v, t.fresh);
}

/* An operand, of the type that PrecisionTraits<c->precision>
 * (precision_traits.cuh) has in memory, and what it is seen through, or taken
 * back through. */
struct Operand {
    const void *data;
    NormOnLoad norm_on_load;
    NormBwd norm_bwd; // of one that conv_loads_norm_bwd says, or of conv_wgrad
};

/* An operand of a product whose channels are those of one tensor or, from
 * channel `from` on, of a second. Lenses and a second one are for those that
 * conv_loads_deferred and conv_fuses_concat. */
struct Source {
    Operand first, second;
    int border; // 0: there is one
};

/* Likewise of a result. One whose data is NULL is not wanted. */
struct Result {
    Target first, second;
    int border;       // 0: there is one
    ChannelSums sums; // over it: conv_sum_parts
};

/* Bytes of one part of a result, `count` numbers: what is wanted of it is
 * stored, and what closing it takes is read. */
static inline double target_part_traffic(const Target &t, const GradSums &by,
                                         int64_t count)
{
    if (!t.data) return 0;
    return target_traffic(t, count) +
           (by.x ? (double)count * (double)dtype_bytes(t.type) : 0);
}

/* Of the parts that are wanted of a result of these extents. */
static inline double result_traffic(const Result &r, Dims s)
{
    const int64_t all = numel(s), first = r.border ? all / s.c * r.border : all;
    return target_part_traffic(r.first, r.sums.grads, first) +
           target_part_traffic(r.second, r.sums.second, all - first) +
           channel_sums_traffic(r.sums);
}

/* dw (+)= wgrad of input and output, on the kernels of wgrad.cu. `output` may
 * be a gradient that is taken back through a norm on load, where its channels
 * are read 16 bytes at a time. square: conv_wgrad_sqnorm_parts partial sums of
 * the squares of dw, or NULL. scratch: conv_wgrad_bytes. False with the
 * reason. */
bool conv_wgrad(const ConvProblem *r, const Source &input, const Source &output,
                float *w, bool fresh, double *square, void *scratch);
size_t conv_wgrad_bytes(const ConvProblem *r);
int conv_wgrad_sqnorm_parts(const ConvProblem *r);
/* bias_grad.cu: db[c] (+)= the sum of dy over its rows. c->scratch:
 * conv_bias_grad_bytes. */
bool conv_bias_grad(const Call *c, const Tensor *dy, float *db, bool fresh);
size_t conv_bias_grad_bytes(Dims s);

/* The walk of a block over an axis that all its results are sums over: from ..
 * to-1 in chunks of BK. fetch(at) takes the chunk at `at` into registers,
 * store(b) puts it into buffer b of shared memory, multiply(b) uses it. There
 * are two buffers: the next chunk is on its way while this one is used.
 * end_chain() comes after each CHAIN terms and after the last. `to` is taken by
 * reference: what is constant in a launch is read again and held by no
 * register. */
template <int BK, class Fetch, class Store, class Multiply, class End>
static __device__ __forceinline__ void each_chunk(int from, const int &to,
                                                  const Fetch &fetch,
                                                  const Store &store,
                                                  const Multiply &multiply,
                                                  const End &end_chain)
{
    fetch(from);
    store(0);
    __syncthreads();
    for (int at = from, b = 0; at < to; at += BK, b ^= 1) {
        if (at + BK < to) fetch(at + BK);
        multiply(b);
        if (((at - from) / BK + 1) % (CHAIN / BK) == 0 || at + BK >= to)
            end_chain();
        if (at + BK < to) store(b ^ 1);
        __syncthreads();
    }
}

/* A thread of a tiled product: results of TM rows, in blocks of four that lie
 * `apart` in the tile, by TN columns. A chain of float additions has at most
 * CHAIN terms: `acc` is the chain, `sum` holds those before. */
template <int TM, int TN> struct Fragment {
    float acc[TM][TN] = {}, sum[TM][TN] = {};

    /* One place of the k axis: x points at the first row, y at the column. */
    __device__ __forceinline__ void multiply(const float *x, int apart,
                                             const float *y)
    {
        alignas(16) float u[TM], v[TN];
#pragma unroll
        for (int i = 0; i < TM; i += 4)
            *(float4 *)&u[i] = *(const float4 *)&x[i / 4 * apart];
#pragma unroll
        for (int j = 0; j < TN; j++) v[j] = y[j];
#pragma unroll
        for (int i = 0; i < TM; i++)
#pragma unroll
            for (int j = 0; j < TN; j++)
                acc[i][j] = fmaf(u[i], v[j], acc[i][j]);
    }

    __device__ __forceinline__ void end_chain()
    {
        for (int i = 0; i < TM; i++)
            for (int j = 0; j < TN; j++) sum[i][j] += acc[i][j], acc[i][j] = 0;
    }
};
#endif
