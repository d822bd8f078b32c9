/* radix_sort.cuh -- sorts pairs of a 32-bit key and a 32-bit item in device
 * memory, stable. */
#ifndef SEG_CUDA_OPS_RADIX_SORT_H
#define SEG_CUDA_OPS_RADIX_SORT_H
#include "cuda/lib/kernel.cuh"

struct RadixSort {
    uint32_t *keys, *items;             // `count` pairs, before and after
    uint32_t *other_keys, *other_items; // scratch memory of the same size
    uint32_t *offsets;                  // of each digit and block
    int64_t count;                      // at most MOST_POSITIONS
};

/* Bytes of scratch memory for `count` pairs; and its parts. */
size_t radix_sort_bytes(int64_t count);
RadixSort radix_sort_in(void *scratch, int64_t count);

/* The number of bits of a number below `end`. */
static inline int radix_sort_bits(int64_t end)
{
    int bits = 0;
    while (bits < 32 && (int64_t)1 << bits < end) bits++;
    return bits;
}

/* Sorts by the lowest `bits` bits of the keys; keys and items exchange memory
 * with the other ones, so read their addresses afterwards. */
bool radix_sort(void *dev, RadixSort *s, int bits);
#endif
