/* igemm_operands.cuh -- gather and spread as a product: which source elements
 * and weights a tile of results takes, and where the results go.
 *
 * Both are result[m,n] = sum_k source[m,k] w[k,n]: m counts positions of the
 * result, n its channels in a group, k = (tap, channel of the source). What
 * position m sees through tap i is one formula for both, see ConvAxis. A stride
 * s makes spread irregular: an image position q meets only every s-th tap,
 * and which ones depends on q mod s. So positions are sorted into s^rank
 * classes by q mod s; inside a class all meet the same taps, whose numbers are
 * an arithmetic progression, and the product is dense again. gather has one
 * class.
 *
 * igemm_f32.cu multiplies in f32, igemm_mma.cuh on tensor cores; T is the type
 * of source and weights in memory. */
#ifndef SEG_CUDA_CONV_IGEMM_OPERANDS_H
#define SEG_CUDA_CONV_IGEMM_OPERANDS_H
#include "cuda/conv/conv.cuh"
#include "cuda/lib/precision_traits.cuh"

enum {
    RESIDUE_CLASSES = 8, // of one launch
    CHUNK_LINES = 4, // of 16 bytes along the k axis in shared memory at a time
};

/* Position j of `count` sees source position j*step + base + i*tap through
 * the i-th of `taps` taps, kernel tap first + i*every, and stands at
 * j*out_step + out_base in the result. */
struct ConvAxis {
    int count, step, base, tap, taps, first, every, size, out_step, out_base;
};

struct ResidueClass {
    ConvAxis axis[3];
    Divisor count[3], taps[3], channels;
    int positions; // of all samples
    int depth;     // of the k axis: taps * channels of the source
};

struct IgemmParams {
    ResidueClass cls[RESIDUE_CLASSES];
    const void *source, *w;
    const float *bias;
    // what the source is seen through where conv_loads_deferred; channels
    // `border` and `result_border` on of source and result are in tensors of
    // their own
    NormOnLoad norm_on_load;
    int border, result_border; // of one tensor: its channels
    Operand second;
    Target result, second_result;
    // by tiles alone: what the source is taken back through; sums of the result
    NormBwd norm_bwd;
    bool loads_norm_bwd; // slant is there, or will be
    ChannelSums sums;
    int64_t source_c, result_c; // channels of all groups
    int depth, width;           // channels of a group: source, result
    int taps[3];                // of the whole kernel
    int tiles;                  // of the channels of one group
    Dims extent;                // of the result
    bool dgrad;
};

/* What a thread knows of a position whose source it fetches. */
struct RowOrigin {
    int n, at[3]; // n < 0: beyond the last
};

static __device__ __forceinline__ RowOrigin origin_of(const ResidueClass &k,
                                                      int m)
{
    RowOrigin o;
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

static __device__ __forceinline__ Tap tap_of(const IgemmParams &p,
                                             const ResidueClass &k, int at)
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

/* Address of the source at a position and tap; NULL outside the image. VEC: it
 * may be in two parts. */
template <bool VEC, class T>
static __device__ __forceinline__ const T *source_at(const IgemmParams &p,
                                                     const ResidueClass &k,
                                                     const RowOrigin &o,
                                                     const Tap &t,
                                                     int64_t group)
{
    int64_t row = o.n;
    bool inside = o.n >= 0;
    for (int a = 0; a < 3; a++) {
        int q = o.at[a] + t.off[a];
        inside = inside && q >= 0 && q < k.axis[a].size;
        row = row * k.axis[a].size + q;
    }
    if (!inside) return NULL;
    const int64_t channel = group * p.depth + t.channel;
    if constexpr (!VEC) return (const T *)p.source + row * p.source_c + channel;
    return concat_at<T>(p.source, p.second.data, p.border, p.source_c, row,
                        channel);
}

/* Address of the weight of a place on the k axis and channel n. */
template <bool DGRAD, class T>
static __device__ __forceinline__ const T *weight_at(const IgemmParams &p,
                                                     const Tap &t,
                                                     int64_t group, int n)
{
    int64_t taps = p.taps[0] * p.taps[1] * p.taps[2];
    // (B, taps, A): gather runs over a inside k, spread over a inside n;
    // asked at run time: known to nvcc it costs up to 30 registers more
    return (const T *)p.w +
           (p.dgrad
                ? ((group * p.depth + t.channel) * taps + t.number) * p.width +
                      n
                : ((group * p.width + n) * taps + t.number) * p.depth +
                      t.channel);
}

/* A line of neighbours on the k axis of one position, channels of one tap:
 * those of the source divide by COUNT. Is it of the source, and no zeros? */
template <class T>
static __device__ __forceinline__ bool fetch_line(const IgemmParams &p,
                                                  const ResidueClass &k,
                                                  const RowOrigin &o, int at,
                                                  const Tap &tap, int64_t group,
                                                  Line<T> *out)
{
    *out = {};
    if (at >= k.depth) return false;
    const T *s = source_at<true, T>(p, k, o, tap, group);
    if (s) *out = *(const Line<T> *)s;
    return s != NULL;
}

/* One by one, where they may be of several. */
template <class T>
static __device__ __forceinline__ void fetch_singly(const IgemmParams &p,
                                                    const ResidueClass &k,
                                                    const RowOrigin &o, int at,
                                                    int64_t group, Line<T> *out)
{
    *out = {};
#pragma unroll
    for (int i = 0; i < Line<T>::COUNT; i++) {
        if (at + i >= k.depth) continue;
        const T *s = source_at<false, T>(p, k, o, tap_of(p, k, at + i), group);
        if (s) out->v[i] = *s;
    }
}

/* A line of neighbouring weights: on the k axis (gather) or the n axis
 * (spread). */
template <bool DGRAD, bool VEC, class T>
static __device__ __forceinline__ void fetch_weights(const IgemmParams &p,
                                                     const ResidueClass &k,
                                                     int at, int n,
                                                     int64_t group,
                                                     Line<T> *out)
{
    *out = {};
    if (at >= k.depth || n >= p.width) return;
    if constexpr (VEC) {
        *out = *(const Line<T> *)weight_at<DGRAD, T>(p, tap_of(p, k, at), group,
                                                     n);
    } else {
#pragma unroll
        for (int i = 0; i < Line<T>::COUNT; i++) {
            int a = DGRAD ? at : at + i, b = DGRAD ? n + i : n;
            if (a < k.depth && b < p.width)
                out->v[i] = *weight_at<DGRAD, T>(p, tap_of(p, k, a), group, b);
        }
    }
}

/* What a thread of a tile of BM x BN fetches of a chunk of the k axis, at
 * `at`, into registers: lines of the source at places fk of the chunk and
 * positions fm, fm + STEP, ..; lines of weights where weights() says. */
template <class T, int BM, int BN, bool DGRAD> struct IgemmLoad {
    enum {
        COUNT = Line<T>::COUNT,
        BK = CHUNK_LINES * COUNT,
        STEP = CONV_THREADS / CHUNK_LINES,
        MS = BM / STEP,
        ALL = BN * CHUNK_LINES, // lines of weights
        NS = (ALL + CONV_THREADS - 1) / CONV_THREADS,
    };
    Line<T> s[MS], w[NS];
    // of a source in lines: which are of it, and their channel of the group
    bool inside[MS];
    int channel;

    /* Where line i of this thread's weights begins, on the k axis and in the
     * tile's channels; false when there is no such line. */
    static __device__ __forceinline__ bool weights(int i, int *k, int *n)
    {
        const int q = (int)threadIdx.x + i * CONV_THREADS;
        *k = DGRAD ? q / (BN / COUNT) : q % CHUNK_LINES * COUNT;
        *n = DGRAD ? q % (BN / COUNT) * COUNT : q / CHUNK_LINES;
        return q < ALL;
    }

    /* SOURCE, VEC: lines of the source, of weights, are one load. */
    template <bool SOURCE, bool VEC>
    __device__ __forceinline__ void fetch(const IgemmParams &p,
                                          const ResidueClass &k,
                                          const RowOrigin (&o)[MS], int at,
                                          int n0, int64_t group)
    {
        const int first = at + (int)threadIdx.x % CHUNK_LINES * COUNT;
        if constexpr (SOURCE) {
            const Tap tap = tap_of(p, k, first);
            channel = tap.channel;
#pragma unroll
            for (int i = 0; i < MS; i++)
                inside[i] = fetch_line(p, k, o[i], first, tap, group, &s[i]);
        } else {
#pragma unroll
            for (int i = 0; i < MS; i++)
                fetch_singly(p, k, o[i], first, group, &s[i]);
        }
#pragma unroll
        for (int i = 0; i < NS; i++) {
            int wk, wn;
            if (!weights(i, &wk, &wn)) break;
            fetch_weights<DGRAD, VEC>(p, k, at + wk, n0 + wn, group, &w[i]);
        }
    }
};

/* Row of the result that position m of a class is. */
static __device__ __forceinline__ int64_t result_row(const IgemmParams &p,
                                                     const ResidueClass &k,
                                                     int m)
{
    uint32_t rest = (uint32_t)m;
    int q[3];
    for (int a = 2; a >= 0; a--)
        q[a] = (int)split(&rest, k.count[a]) * k.axis[a].out_step +
               k.axis[a].out_base;
    return (((int64_t)rest * p.extent.d + q[0]) * p.extent.h + q[1]) *
               p.extent.w +
           q[2];
}

/* Column n of a group at a row of the result: v and the bias, stored or added
 * to; nothing beyond the last, nor of a tensor that is not wanted. */
static __device__ __forceinline__ void put_result(const IgemmParams &p,
                                                  int64_t row, int64_t group,
                                                  int n, float v)
{
    if (n >= p.width) return;
    const int64_t c = group * p.width + n, far = c - p.result_border;
    if (p.bias) v += p.bias[c];
    if (far < 0) {
        if (p.result.data) put_one(p.result, row * p.result_border + c, v);
    } else if (p.second_result.data) {
        put_one(p.second_result, row * (p.result_c - p.result_border) + far, v);
    }
}

/* What igemm_mma_bf16.cu and its like have: the product on tensor cores, of
 * classes whose largest has `positions`. */
template <Precision P>
bool igemm_mma(const ConvProblem *r, IgemmParams *p, int classes,
               int positions);
#endif
