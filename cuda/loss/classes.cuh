/* classes.cuh -- softmax and argmax over the channels of a row.
 *
 * A group of lanes holds a row of C channels; it has the next power of two of
 * lanes, up to a warp. Lane i has channel i and, beyond 32 channels, i + 32 and
 * so on (WIDE; then a row is read again instead of kept in registers, and comes
 * from L1). So adjacent lanes read adjacent channels, and a block covers BLOCK
 * / lanes rows at once. Reductions over a group are butterflies of shuffles:
 * all lanes get the same bits. All lanes of a warp must call the reductions
 * together, including lanes of rows beyond the end. */
#ifndef SEG_CUDA_LOSS_CLASSES_H
#define SEG_CUDA_LOSS_CLASSES_H
#include "cuda/loss/loss.cuh"

/* The layout of rows on lanes: the argument of the kernels' templates. */
template <int N, bool W> struct Lanes {
    enum { COUNT = N, WIDE = W, ROWS_AT_ONCE = BLOCK / N };
};

/* Calls launch(Lanes<..>) for rows of `channels` channels, at least LEAST, so
 * that only kernels that can run are instantiated. */
template <int LEAST, class F>
static void with_lanes(int channels, const F &launch)
{
    if constexpr (LEAST == 1)
        if (channels == 1) return launch(Lanes<1, false>{});
    if (channels == 2) return launch(Lanes<2, false>{});
    if (channels <= 4) return launch(Lanes<4, false>{});
    if (channels <= 8) return launch(Lanes<8, false>{});
    if (channels <= 16) return launch(Lanes<16, false>{});
    if (channels <= 32) return launch(Lanes<32, false>{});
    launch(Lanes<32, true>{});
}

/* Lanes of a group; also the channels that the lanes hold at once. */
static inline int lanes_of(int channels)
{
    int lanes = 1;
    while (lanes < channels && lanes < WARP) lanes *= 2;
    return lanes;
}

/* The position of this thread: its group in the block, its lane in the
 * group. */
template <class L> static __device__ __forceinline__ int group_of()
{
    return (int)threadIdx.x / L::COUNT;
}

template <class L> static __device__ __forceinline__ int lane_of()
{
    return (int)threadIdx.x % L::COUNT;
}

template <class L> static __device__ __forceinline__ float group_max(float v)
{
    return warp_max(v, L::COUNT);
}

template <class L> static __device__ __forceinline__ float group_sum(float v)
{
    return warp_sum(v, L::COUNT);
}

/* Bit i: the vote of lane i of the group. */
template <class L>
static __device__ __forceinline__ unsigned group_votes(bool vote)
{
    unsigned all = __ballot_sync(~0u, vote);
    return all >> (threadIdx.x % WARP / L::COUNT * L::COUNT) &
           (~0u >> (WARP - L::COUNT));
}

/* A row of channels, one lane's view. */
template <class L> struct ClassRow {
    const float *x;
    int channels, lane;
    float own; // x[lane], unless WIDE

    __device__ __forceinline__ float at(int c) const
    {
        return L::WIDE ? x[c] : own;
    }
};

template <class L>
static __device__ __forceinline__ ClassRow<L> class_row(const float *x,
                                                        int channels)
{
    ClassRow<L> r = {x, channels, lane_of<L>(), 0};
    if (!L::WIDE && r.lane < channels) r.own = x[r.lane];
    return r;
}

/* for (each channel c of this lane) */
#define OWN_CHANNELS(r, c) for (int c = (r).lane; c < (r).channels; c += WARP)

/* The softmax of a row. One channel with the largest logit, the leader, is left
 * out of `rest`: its exponential is exactly 1, and 1 minus its softmax is rest
 * / (1 + rest) with all digits, even for a row that is almost certain. A row
 * with NaN has a `rest` of NaN. */
struct Soft {
    float max, rest;
    int leader;     // lane of the leader, the same on all lanes
    int own_leader; // channel of the leader on that lane, elsewhere -1
    float e;        // exponential of channel `lane`
};

template <class L>
static __device__ __forceinline__ Soft soft_of(const ClassRow<L> &r)
{
    Soft s = {-INFINITY, 0, 0, -1, 0};
    OWN_CHANNELS(r, c) s.max = fmaxf(s.max, r.at(c));
    s.max = group_max<L>(s.max);
    OWN_CHANNELS(r, c)
    if (s.own_leader < 0 && r.at(c) == s.max) s.own_leader = c;
    s.leader = __ffs((int)group_votes<L>(s.own_leader >= 0)) - 1;
    if (r.lane != s.leader) s.own_leader = -1;
    OWN_CHANNELS(r, c)
    {
        float e = expf(r.at(c) - s.max);
        if (c == r.lane) s.e = e;
        if (c != s.own_leader) s.rest += e;
    }
    s.rest = group_sum<L>(s.rest);
    return s;
}

/* exp(x[c] - max); the probability of c is this / (1 + rest). */
template <class L>
static __device__ __forceinline__ float soft_exp(const ClassRow<L> &r,
                                                 const Soft &s, int c)
{
    return L::WIDE ? expf(r.at(c) - s.max) : s.e;
}

/* out[k][c] = the sum of sum[k] over the lanes of the block that have channel
 * c. */
template <class L, int K>
static __device__ __forceinline__ void class_block_sums(double sum[K], int c,
                                                        int channels,
                                                        double *out)
{
    SMEM(double, warps, [K][BLOCK / WARP][L::COUNT]);
    const int t = (int)threadIdx.x;
#pragma unroll
    for (int k = 0; k < K; k++)
        for (int i = L::COUNT; i < WARP; i *= 2)
            sum[k] += __shfl_xor_sync(~0u, sum[k], i);
    if (t % WARP < L::COUNT)
        for (int k = 0; k < K; k++) warps[k][t / WARP][t % WARP] = sum[k];
    __syncthreads();
    if (t >= L::COUNT || c >= channels) return;
    for (int k = 0; k < K; k++) {
        double all = 0;
        for (int i = 0; i < BLOCK / WARP; i++) all += warps[k][i][t];
        out[(int64_t)k * channels + c] = all;
    }
}

/* Blocks of a kernel that loops over `rows` rows with the stride of the
 * grid. */
static inline unsigned class_blocks(int64_t rows, int channels)
{
    return blocks_for(rows * lanes_of(channels));
}
#endif
