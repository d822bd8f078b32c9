/* thread_group.cuh -- groups of threads, one for each of many short rows of
 * numbers.
 *
 * A group is a power of two of adjacent lanes, such that each lane has about
 * four elements, and at most 32 lanes; a row of more than THREAD_GROUP_LENGTH
 * elements gets a whole block. Sums within a warp use shuffles, sums over a
 * block also shared memory; the order is the order of the lanes. All threads of
 * a block, including threads without a row, must call the sums together. */
#ifndef SEG_CUDA_LIB_THREAD_GROUP_H
#define SEG_CUDA_LIB_THREAD_GROUP_H
#include "cuda/lib/kernel.cuh"

enum { THREAD_GROUP_LENGTH = 1024 };

struct ThreadGroups {
    int shift;       // log2 of the threads of a group
    int64_t items;   // rows
    unsigned blocks; // of BLOCK threads
};

static inline ThreadGroups thread_groups_of(int64_t items, int64_t length)
{
    ThreadGroups t = {0, items, 0};
    while (t.shift < 5 && 4 << t.shift < length) t.shift++;
    if (length > THREAD_GROUP_LENGTH) t.shift = 8;
    t.blocks = (unsigned)ceil_div(items, BLOCK >> t.shift);
    return t;
}

/* The position of a thread: lane of `width` in its group, and the group's row;
 * live is false without a row. */
struct ThreadGroup {
    int lane, width;
    int64_t item;
    bool live;
};

static __device__ __forceinline__ ThreadGroup
thread_group(const ThreadGroups &t)
{
    static_assert(BLOCK == 1 << 8,
                  "thread_groups_of gives long rows a whole block");
    ThreadGroup m;
    m.width = 1 << t.shift;
    m.lane = (int)threadIdx.x & (m.width - 1);
    m.item =
        (int64_t)blockIdx.x * (BLOCK >> t.shift) + (threadIdx.x >> t.shift);
    m.live = m.item < t.items;
    return m;
}

/* Each v[k] becomes its sum over `width` threads: a power of two up to a
 * warp, or the whole block, which has width threads then. */
template <int K, class T>
static __device__ __forceinline__ void thread_group_sums(T (&v)[K], int width)
{
    for (int step = 1; step < width && step < WARP; step *= 2)
        for (int k = 0; k < K; k++)
            v[k] += __shfl_xor_sync(0xffffffffu, v[k], step);
    if (width <= WARP) return;
    SMEM(T, warp, [K][WARP]);
    const int t = (int)threadIdx.x;
    __syncthreads(); // the previous sums have been read
    for (int k = 0; k < K; k++)
        if (t % WARP == 0) warp[k][t / WARP] = v[k];
    __syncthreads();
    for (int k = 0; k < K; k++) {
        v[k] = warp[k][0];
        for (int i = 1; i < width / WARP; i++) v[k] += warp[k][i];
    }
}

/* sum[k] = the sum of `count` numbers that begin at at[k * k_stride] and lie
 * `step` apart, for the whole block; added in the order of its threads. */
template <int K>
static __device__ __forceinline__ void partial_sums(const double *at,
                                                    int64_t count, int64_t step,
                                                    int64_t k_stride,
                                                    double (&sum)[K])
{
    for (int k = 0; k < K; k++) sum[k] = 0;
    for (int64_t i = threadIdx.x; i < count; i += blockDim.x)
        for (int k = 0; k < K; k++) sum[k] += at[i * step + k * k_stride];
    thread_group_sums(sum, (int)blockDim.x);
}

/* The maximum over a group; NaN is ignored. */
static __device__ __forceinline__ float thread_group_max(float v, int width)
{
    for (int step = 1; step < width && step < WARP; step *= 2)
        v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, step));
    if (width <= WARP) return v;
    SMEM(float, warp, [WARP]);
    const int t = (int)threadIdx.x;
    __syncthreads();
    if (t % WARP == 0) warp[t / WARP] = v;
    __syncthreads();
    for (int i = 0; i < width / WARP; i++) v = fmaxf(v, warp[i]);
    return v;
}

/* The sum of one thread over any number of terms, without long float chains. */
struct Chain {
    float sum, run;
    int length;
};

static __device__ __forceinline__ void chain_add(Chain *c, float v)
{
    c->run += v;
    if (++c->length < CHAIN) return;
    c->sum += c->run;
    c->run = 0, c->length = 0;
}

static __device__ __forceinline__ float chain_total(const Chain &c)
{
    return c.sum + c.run;
}

/* Threads of a block that sums `items` numbers: about four per thread. */
static inline unsigned sum_threads(int64_t items)
{
    return WARP * (unsigned)most(1, least(8, ceil_div(items, 4 * WARP)));
}
#endif
