/* igemm_operands.cuh -- fprop and dgrad as an implicit GEMM: how a tile of the
 * result loads its operands, and where it stores. Shared by igemm_f32.cu and
 * igemm_mma.cuh; igemm_tile.cuh uses the residue classes.
 *
 *     result[m, n] = sum_k source[m, k] w[k, n]
 *
 * m counts positions of the result, n its channels in a group, and k = (tap,
 * channel of the source). The source is `input` in fprop and `output` in dgrad;
 * the matrix source[m, k] is gathered from it while loading. ConvAxis has one
 * formula for both passes.
 *
 * With stride s, a position q of a dgrad meets only every s-th tap of an axis;
 * which ones depends on q mod s. So the positions of a dgrad are sorted into
 * residue classes, by q mod s on each axis (s^3 classes in 3-D). All positions
 * of a class meet the same taps, whose numbers are an arithmetic progression,
 * so each class is a dense product. fprop has one class. A launch has up to
 * RESIDUE_CLASSES, one each blockIdx.z.
 *
 * T is the type of source and filter in memory. */
#ifndef SEG_CUDA_CONV_IGEMM_OPERANDS_H
#define SEG_CUDA_CONV_IGEMM_OPERANDS_H
#include "cuda/conv/conv.cuh"
#include "cuda/lib/precision_traits.cuh"

enum {
    RESIDUE_CLASSES = 8, // of a launch
    CHUNK_LINES = 4,     // a chunk: vectors of 16 bytes along the k axis that
                         // shared memory holds for a position
};

/* One axis of a residue class. Position j (of `count`) is position j*out_step +
 * out_base of the result. Its i-th tap (of `taps`) is tap first + i*every of
 * the filter and reads source position j*step + base + i*tap; the source has
 * `size` positions. */
struct ConvAxis {
    int count, step, base, tap, taps, first, every, size, out_step, out_base;
};

struct ResidueClass {
    ConvAxis axis[3];
    Divisor count[3], taps[3], channels;
    int positions; // of all samples
    int gemm_k;    // length of the k axis: taps * channels
};

struct IgemmParams {
    ResidueClass cls[RESIDUE_CLASSES];
    const void *source, *w;
    const float *bias;
    // Of the source, if conv_loads_vectors. In an implicit concat, channels
    // `border` .. of the source and `result_border` .. of the result are in a
    // second tensor.
    NormOnLoad norm_on_load;
    int border, result_border; // with one tensor: all its channels
    Operand second;
    Target result, second_result;
    // igemm_tile only: norm backward on load of the source, and the sums over
    // the result
    NormBwd norm_bwd;
    bool loads_norm_bwd; // norm_bwd is or will be set
    ChannelSums sums;
    int64_t source_c, result_c; // channels of all groups
    int k_channels, gemm_n;     // channels of a group: source, result
    int taps[3];                // of the whole filter
    int tiles;                  // tiles along a group's channels
    Dims extent;                // extents of the result
    bool dgrad;
};

/* The source position under tap 0 of a position of the class, perhaps outside
 * of the source. */
struct RowOrigin {
    int n, at[3]; // n < 0: past the last position
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

/* One element of the k axis: the offset of its tap from RowOrigin, the channel,
 * and the number of the tap in the filter. */
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

/* The address of the source at a position and tap; NULL outside. VEC: the
 * source may be an implicit concat. */
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
    const int64_t channel = group * p.k_channels + t.channel;
    if constexpr (!VEC) return (const T *)p.source + row * p.source_c + channel;
    return concat_at<T>(p.source, p.second.data, p.border, p.source_c, row,
                        channel);
}

/* The address of w for an element of the k axis and channel n of the result. */
template <bool DGRAD, class T>
static __device__ __forceinline__ const T *weight_at(const IgemmParams &p,
                                                     const Tap &t,
                                                     int64_t group, int n)
{
    int64_t taps = p.taps[0] * p.taps[1] * p.taps[2];
    // w is (output channels, taps, cin). fprop runs over cin along k, dgrad
    // along n. p.dgrad is tested at run time: as the template parameter it
    // costs up to 30 registers more
    return (const T *)p.w +
           (p.dgrad
                ? ((group * p.k_channels + t.channel) * taps + t.number) *
                          p.gemm_n +
                      n
                : ((group * p.gemm_n + n) * taps + t.number) * p.k_channels +
                      t.channel);
}

/* Loads 16 bytes along the k axis for one position: channels of one tap, where
 * COUNT divides the source's channels. Returns false, and zeros, outside of the
 * source. */
template <class T>
static __device__ __forceinline__ bool fetch_line(const IgemmParams &p,
                                                  const ResidueClass &k,
                                                  const RowOrigin &o, int at,
                                                  const Tap &tap, int64_t group,
                                                  Line<T> *out)
{
    *out = {};
    if (at >= k.gemm_k) return false;
    const T *s = source_at<true, T>(p, k, o, tap, group);
    if (s) *out = *(const Line<T> *)s;
    return s != NULL;
}

/* The same element by element. Elements of one tap are neighbours in memory and
 * have one test, so that their loads are in flight together; others belong to
 * several taps. */
template <class T>
static __device__ __forceinline__ void fetch_singly(const IgemmParams &p,
                                                    const ResidueClass &k,
                                                    const RowOrigin &o, int at,
                                                    int64_t group, Line<T> *out)
{
    enum { COUNT = Line<T>::COUNT };
    *out = {};
    if (at >= k.gemm_k) return;
    const Tap tap = tap_of(p, k, at);
    if (tap.channel + COUNT <= p.k_channels) {
        const T *s = source_at<false, T>(p, k, o, tap, group);
        if (!s) return;
#pragma unroll
        for (int i = 0; i < COUNT; i++) out->v[i] = s[i];
        return;
    }
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        if (at + i >= k.gemm_k) continue;
        const T *s = source_at<false, T>(p, k, o, tap_of(p, k, at + i), group);
        if (s) out->v[i] = *s;
    }
}

/* Loads 16 bytes of w, along the k axis (fprop) or the n axis (dgrad). */
template <bool DGRAD, bool VEC, class T>
static __device__ __forceinline__ void fetch_weights(const IgemmParams &p,
                                                     const ResidueClass &k,
                                                     int at, int n,
                                                     int64_t group,
                                                     Line<T> *out)
{
    *out = {};
    if (at >= k.gemm_k || n >= p.gemm_n) return;

    enum { COUNT = Line<T>::COUNT };
    const Tap tap = tap_of(p, k, at);
    const T *s = weight_at<DGRAD, T>(p, tap, group, n);
    if constexpr (VEC) {
        *out = *(const Line<T> *)s;
    } else if (DGRAD ? n + COUNT <= p.gemm_n
                     : tap.channel + COUNT <= p.k_channels) {
#pragma unroll
        for (int i = 0; i < COUNT; i++) out->v[i] = s[i];
    } else {
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            int a = DGRAD ? at : at + i, b = DGRAD ? n + i : n;
            if (a < k.gemm_k && b < p.gemm_n)
                out->v[i] = *weight_at<DGRAD, T>(p, tap_of(p, k, a), group, b);
        }
    }
}

/* The registers of a thread for one chunk of a BM x BN tile. The thread loads
 * vectors of the source at element fk of the chunk, for positions fm, fm +
 * STEP, .., and vectors of w at the places that weights() returns. */
template <class T, int BM, int BN, bool DGRAD> struct IgemmLoad {
    enum {
        COUNT = Line<T>::COUNT,
        BK = CHUNK_LINES * COUNT,
        STEP = CONV_THREADS / CHUNK_LINES,
        MS = BM / STEP,
        ALL = BN * CHUNK_LINES, // vectors of w
        NS = (ALL + CONV_THREADS - 1) / CONV_THREADS,
    };
    Line<T> s[MS], w[NS];
    // if the source is loaded in vectors: whether each is inside of the source,
    // and the first channel in the group
    bool inside[MS];
    int channel;

    /* The place of vector i of w of this thread: its element of the chunk and
     * its channel in the tile. False if the thread has no such vector. */
    static __device__ __forceinline__ bool weights(int i, int *k, int *n)
    {
        const int q = (int)threadIdx.x + i * CONV_THREADS;
        *k = DGRAD ? q / (BN / COUNT) : q % CHUNK_LINES * COUNT;
        *n = DGRAD ? q % (BN / COUNT) * COUNT : q / CHUNK_LINES;
        return q < ALL;
    }

    /* Loads the chunk that begins at element `at` of the k axis. SOURCE, VEC:
     * each vector of the source, of w, is one load. */
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

/* The row of the result for position m of a class. */
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

/* Stores or adds v plus the bias to channel n of a group in a row of the
 * result. Ignores channels past the last and a tensor without data. */
static __device__ __forceinline__ void put_result(const IgemmParams &p,
                                                  int64_t row, int64_t group,
                                                  int n, float v)
{
    if (n >= p.gemm_n) return;
    const int64_t c = group * p.gemm_n + n, far = c - p.result_border;
    if (p.bias) v += p.bias[c];
    if (far < 0) {
        if (p.result.data) put_one(p.result, row * p.result_border + c, v);
    } else if (p.second_result.data) {
        put_one(p.second_result, row * (p.result_c - p.result_border) + far, v);
    }
}

/* In igemm_mma_bf16.cu, _f16.cu, _tf32.cu: queues one launch on tensor cores.
 * positions: of the largest class. */
template <Precision P>
bool igemm_mma(const ConvProblem *r, IgemmParams *p, int classes,
               int positions);
#endif
