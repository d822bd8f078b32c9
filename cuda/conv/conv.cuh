/* conv.cuh -- a convolution problem and its three passes, for conv, upconv and
 * linear.
 *
 * A ConvProblem names the two sides of a convolution: `input`, the side that is
 * padded and strided over, and `output`, with one position for each position of
 * the window. On each axis, output position p and tap k meet input position
 *
 *     q = p*s - lo + k*dil      (s stride, lo padding before, dil dilation)
 *
 * and the input is zero outside of its extents. All tensors are channels-last
 * (n, d, h, w, c); a row is the channels of one position. The filter w is
 * (output channels, kd, kh, kw, cin), KTRSC in the order of cuDNN. With a the
 * cin channels and b the cout channels of one group, the passes are
 *
 *     fprop  output[n,p,b] = sum_{k,a}   input[n,q,a]  w[b,k,a]
 *     dgrad  input[n,q,a]  = sum_{p,k,b} output[n,p,b] w[b,k,a]
 *     wgrad  w[b,k,a]      = sum_{n,p}   input[n,q,a]  output[n,p,b]
 *
 * A pass is named by the tensor that it computes; it may be the value or the
 * gradient of an operator:
 *
 *               y              dx             dw
 *     conv      fprop(x, w)    dgrad(dy, w)   wgrad(x, dy)
 *     upconv    dgrad(x, w)    fprop(dy, w)   wgrad(dy, x)
 *     linear    as conv, with a window of one position
 *
 * So `input` is conv's x and dx, and upconv's y and dy; `output` is the other
 * side. kernels.cu chooses the kernel of each pass; cpu/ref/conv_loops.h has
 * the three passes as plain loops. */
#ifndef SEG_CUDA_CONV_CONV_H
#define SEG_CUDA_CONV_CONV_H
#include "cuda/norm/channel_sums.cuh"

enum { CONV_THREADS = 128 }; // of a block of igemm_mma, wgrad_mma

struct ConvProblem {
    const Call *c;
    Window win;
    Dims input, output;
    int cin, cout; // channels of one group
    // elements from a position of the input to its neighbour along w, and from
    // a line to the next; 0: of a dense tensor. Rows overlap where positions
    // lie closer than their channels (im2row_sm90.cu)
    int64_t position, line;
};

static inline ConvProblem conv_problem(const Call *c, Window win, Dims input,
                                       Dims output)
{
    return {c, win, input, output, input.c / win.groups, output.c / win.groups,
            0, 0};
}

/* Taps of the window. */
static inline int64_t conv_taps(const ConvProblem *r)
{
    return (int64_t)r->win.k[0] * r->win.k[1] * r->win.k[2];
}

/* FLOPs of one pass. */
static inline double conv_flops(const ConvProblem *r)
{
    return 2.0 * (double)numel(r->output) * (double)conv_taps(r) * r->cin;
}

/* The offset of the next part of a workspace, a multiple of 256 bytes. */
static inline size_t conv_aligned(size_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

/* Bytes of `count` elements of an operand, in its stored type. */
static inline double conv_operand_bytes(const ConvProblem *r, int64_t count)
{
    return (double)count * (double)dtype_bytes(precision_copy(r->c->precision));
}

/* Elements of w, all groups. */
static inline int64_t conv_filter_size(const ConvProblem *r)
{
    return r->output.c * conv_taps(r) * r->cin;
}

/* The split-K of wgrad: into how many parts the output positions, its k axis,
 * are divided; *part is the positions of one part, a multiple of `step`. tiles:
 * blocks that one part has, so that layers of few channels fill a GPU too;
 * fill: blocks that fill any GPU. Depends on extents only. */
static inline int wgrad_split_k(const ConvProblem *r, int64_t tiles, int step,
                                int *part, int fill = 512)
{
    enum { MIN_PART = 1024 }; // positions worth a block
    const int64_t positions = rows(r->output);
    const int64_t parts =
        most(1, least(fill / tiles, ceil_div(positions, MIN_PART)));
    *part = (int)(ceil_div(ceil_div(positions, parts), step) * step);
    return (int)ceil_div(positions, *part);
}

/* Bytes that `count` elements of an operand move. With norm backward on load:
 * dz and the norm's operand are read, the result is stored. */
static inline double operand_traffic(const ConvProblem *r, const NormBwd &s,
                                     int64_t count)
{
    return conv_operand_bytes(r, s.table ? 3 * count : count);
}

/* The address of channel c in a row of an implicit concat: a row has `channels`
 * channels, the first `border` of them in `first`, the others in `second`. */
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

/* A tensor that a kernel writes, in f32 or 16 bits. */
struct Target {
    void *data;
    Dtype type;
    bool fresh; /* store, else add to the content */
};

static inline Target target_of(const Tensor *t, bool fresh)
{
    return {t->data, t->type, fresh};
}

/* Bytes that `count` results move: written if fresh, else read and written. */
static inline double target_traffic(const Target &t, int64_t count)
{
    return (double)count * (double)dtype_bytes(t.type) * (t.fresh ? 1 : 2);
}

/* On compute capability 7.5 no tensor is bf16, and code for it would only take
 * registers. */
static __device__ __forceinline__ bool is_bf16(const Target &t)
{
    return has_sm80() && t.type == BF16;
}

static __device__ __forceinline__ void put_one(const Target &t, int64_t i,
                                               float v)
{
    uint16_t *narrow = (uint16_t *)t.data + i;
    if (is_bf16(t))
        *narrow =
            (uint16_t)pack_bf16(t.fresh ? v : unpack_bf16(*narrow).x + v, 0);
    else if (t.type == F16)
        *narrow =
            (uint16_t)pack_f16(t.fresh ? v : unpack_f16(*narrow).x + v, 0);
    else
        put((float *)t.data + i, v, t.fresh);
}

/* An operand in memory, of type PrecisionTraits<c->precision>::T
 * (precision_traits.cuh), and the norm that the kernel applies as it loads the
 * operand: a deferred norm forward, or a norm backward. */
struct Operand {
    const void *data;
    NormOnLoad norm_on_load;
    NormBwd norm_bwd; // for kernels with ConvChoice.loads_norm_bwd
};

/* An operand in one tensor or, as an implicit concat, in two: channels below
 * `border` are in `first`. Norms and a second tensor are for problems with
 * conv_loads_vectors and conv_fuses_concat. */
struct Source {
    Operand first, second;
    int border; // 0: one tensor
};

/* The result of fprop or dgrad, in one tensor or two. A tensor with NULL data
 * is not computed. */
struct Result {
    Target first, second;
    int border;       // 0: one tensor
    ChannelSums sums; // sums over it; ConvChoice.sum_parts
};

/* Bytes that one tensor of a result moves, `count` elements. Its gradient sums
 * also read the operand of the deferred norm. */
static inline double target_part_traffic(const Target &t, const GradSums &by,
                                         int64_t count)
{
    if (!t.data) return 0;
    return target_traffic(t, count) +
           (by.x ? (double)count * (double)dtype_bytes(t.type) : 0);
}

/* Bytes that a result of extents s moves. */
static inline double result_traffic(const Result &r, Dims s)
{
    const int64_t all = numel(s), first = r.border ? all / s.c * r.border : all;
    return target_part_traffic(r.first, r.sums.grads, first) +
           target_part_traffic(r.second, r.sums.second, all - first) +
           channel_sums_traffic(r.sums);
}

/* dw (+)= wgrad(input, output) on the kernels of wgrad.cuh, which in 16 bits
 * apply the deferred norms of both operands on load. sqnorm: NULL, or memory
 * for conv_wgrad_sqnorm_parts partial sums of the squares of dw. scratch:
 * conv_wgrad_bytes. False with the reason. */
bool conv_wgrad(const ConvProblem *r, const Source &input, const Source &output,
                float *w, bool fresh, double *sqnorm, void *scratch);
size_t conv_wgrad_bytes(const ConvProblem *r);
int conv_wgrad_sqnorm_parts(const ConvProblem *r);
/* bias_grad.cu: db[c] (+)= the sum of dy over its rows. c->scratch:
 * conv_bias_grad_bytes. */
bool conv_bias_grad(const Call *c, const Tensor *dy, float *db, bool fresh);
size_t conv_bias_grad_bytes(Dims dy, Dtype type);

/* The main loop of a block over its k axis, from .. to-1 in chunks of BK, with
 * two buffers in shared memory: the next chunk is loaded while the current one
 * is multiplied. fetch(at) loads the chunk at `at` into registers, store(b)
 * writes it to buffer b, multiply(b) uses it. end_chain() follows each CHAIN
 * terms and the last term. `to` is a reference to a launch parameter: it is
 * read again from constant memory and takes no register. */
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
#endif
