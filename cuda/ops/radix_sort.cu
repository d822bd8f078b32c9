/* radix_sort.cu -- sorts pairs by digits of 4 bits, the lowest first.
 *
 * A pass has three launches. Each block counts the digits of its TILE pairs;
 * one block makes the offsets of all digits and blocks from the counts; each
 * block moves its pairs to their places. Within a block a thread has EACH_OWN
 * neighbouring pairs and a counter of each digit, so that pairs with equal
 * digits keep their order however threads and blocks are scheduled.
 *
 * 20 bytes a pair and pass. 17 KB of shared memory. */
#include "cuda/ops/radix_sort.cuh"

namespace {

enum {
    DIGIT_BITS = 4,
    DIGITS = 1 << DIGIT_BITS,
    EACH_OWN = 16, // pairs of a thread
    TILE = BLOCK * EACH_OWN
};
static_assert(DIGITS * BLOCK == BLOCK * EACH_OWN,
              "each thread adds up EACH_OWN counters");

__device__ __forceinline__ uint32_t digit_of(uint32_t key, int shift)
{
    return key >> shift & (DIGITS - 1);
}

/* counts[digit * blocks + block] */
__global__ void __launch_bounds__(BLOCK)
    radix_count_kernel(const uint32_t *keys, int64_t count, int shift,
                       uint32_t *counts)
{
    SMEM(unsigned, own, [DIGITS]);
    if (threadIdx.x < DIGITS) own[threadIdx.x] = 0;
    __syncthreads();
    for (int i = 0; i < EACH_OWN; i++) {
        const int64_t at = (int64_t)blockIdx.x * TILE + i * BLOCK + threadIdx.x;
        if (at < count) atomicAdd(&own[digit_of(keys[at], shift)], 1u);
    }
    __syncthreads();
    if (threadIdx.x < DIGITS)
        counts[threadIdx.x * gridDim.x + blockIdx.x] = own[threadIdx.x];
}

/* The sum of `own` over the threads of the block before this one. */
__device__ __forceinline__ uint32_t sum_before(uint32_t own, uint32_t *sums)
{
    const int t = (int)threadIdx.x;
    sums[t] = own;
    __syncthreads();
    for (int step = 1; step < BLOCK; step *= 2) {
        const uint32_t more = t >= step ? sums[t - step] : 0;
        __syncthreads();
        sums[t] += more;
        __syncthreads();
    }
    return sums[t] - own;
}

/* Replaces each of `count` numbers by the sum of those before it; one block. */
__global__ void __launch_bounds__(BLOCK)
    radix_offsets_kernel(uint32_t *v, int64_t count)
{
    SMEM(uint32_t, sums, [BLOCK]);
    const int64_t own = (count + BLOCK - 1) / BLOCK;
    const int64_t from = threadIdx.x * own, to = min(from + own, count);
    uint32_t sum = 0;
    for (int64_t i = from; i < to; i++) sum += v[i];
    sum = sum_before(sum, sums);
    for (int64_t i = from; i < to; i++) {
        const uint32_t here = v[i];
        v[i] = sum;
        sum += here;
    }
}

struct Move {
    const uint32_t *keys, *items;
    uint32_t *to_keys, *to_items;
    const uint32_t *offsets;
    int64_t count;
    int shift;
};

__global__ void __launch_bounds__(BLOCK) radix_move_kernel(const Move p)
{
    SMEM(uint32_t, before, [DIGITS * BLOCK]); // of each digit and thread
    SMEM(uint32_t, sums, [BLOCK]);
    SMEM(uint32_t, first, [DIGITS]);
    const int t = (int)threadIdx.x;
    const int64_t from = (int64_t)blockIdx.x * TILE + t * EACH_OWN;
    const int own =
        (int)max((int64_t)0, min((int64_t)EACH_OWN, p.count - from));

    for (int d = 0; d < DIGITS; d++) before[d * BLOCK + t] = 0;
    for (int i = 0; i < own; i++)
        before[digit_of(p.keys[from + i], p.shift) * BLOCK + t]++;
    __syncthreads();

    uint32_t sum = 0;
    for (int i = 0; i < EACH_OWN; i++) sum += before[t * EACH_OWN + i];
    sum = sum_before(sum, sums);
    for (int i = 0; i < EACH_OWN; i++) {
        const uint32_t here = before[t * EACH_OWN + i];
        before[t * EACH_OWN + i] = sum;
        sum += here;
    }
    __syncthreads();
    if (t < DIGITS)
        first[t] = p.offsets[t * gridDim.x + blockIdx.x] - before[t * BLOCK];
    __syncthreads();

    for (int i = 0; i < own; i++) {
        const uint32_t key = p.keys[from + i], d = digit_of(key, p.shift);
        const uint32_t to = first[d] + before[d * BLOCK + t]++;
        p.to_keys[to] = key;
        p.to_items[to] = p.items[from + i];
    }
}

/* Numbers of one of the four lists, such that each begins at 16 bytes. */
int64_t list_of(int64_t count)
{
    return ceil_div(count, 4) * 4;
}

} // namespace

size_t radix_sort_bytes(int64_t count)
{
    return (size_t)(4 * list_of(count) + DIGITS * ceil_div(count, TILE)) *
           sizeof(uint32_t);
}

RadixSort radix_sort_in(void *scratch, int64_t count)
{
    uint32_t *const v = (uint32_t *)scratch;
    const int64_t list = list_of(count);
    return {v, v + list, v + 2 * list, v + 3 * list, v + 4 * list, count};
}

bool radix_sort(void *dev, RadixSort *s, int bits)
{
    const unsigned blocks = (unsigned)ceil_div(s->count, TILE);
    for (int shift = 0; shift < bits; shift += DIGIT_BITS) {
        const Move p = {s->keys,    s->items, s->other_keys, s->other_items,
                        s->offsets, s->count, shift};
        LAUNCH(radix_count_kernel, blocks, BLOCK, 0, gpu_stream(dev), s->keys,
               s->count, shift, s->offsets);
        LAUNCH(radix_offsets_kernel, 1, BLOCK, 0, gpu_stream(dev), s->offsets,
               (int64_t)DIGITS * blocks);
        LAUNCH(radix_move_kernel, blocks, BLOCK, 0, gpu_stream(dev), p);
        if (!gpu_launched("radix sort")) return false;
        s->keys = p.to_keys, s->items = p.to_items;
        s->other_keys = (uint32_t *)p.keys,
        s->other_items = (uint32_t *)p.items;
    }
    return true;
}
