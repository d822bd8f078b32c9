/* emu_warp.h -- shuffles, votes and reductions of a warp.
 *
 * All use one mechanism: each lane writes its operands into its slot and waits;
 * the last lane of the mask to arrive runs the operation for all; each lane
 * then reads its result. A lane that waits elsewhere, has returned, or is
 * missing from the mask stops the run with a message about both places.
 *
 * As on the device, a collective exchanges values only: shared memory written
 * by one lane and read by another needs __syncwarp() (the checked build checks
 * it). */
#ifndef EMU_WARP_H
#define EMU_WARP_H
#include "tests/cuda/emulator/emu_launch.h"

namespace emu {

/* Operands and result of one lane in a collective. */
struct Lane {
    alignas(16) unsigned char in[48];
    alignas(16) unsigned char out[16];
    int arg;
};
typedef void (*WarpBody)(Lane *lanes, uint32_t mask);

Lane &lane_slot();
/* Waits for all lanes of `mask`; the last one runs `body` for all. */
void collective(uint32_t mask, WarpBody body, const char *what,
                const char *file, int line);

void body_sync(Lane *lanes, uint32_t mask);
void body_shuffle(Lane *lanes, uint32_t mask); /* 8 bytes from lane `arg` */
void body_ballot(Lane *lanes, uint32_t mask);
void body_match(Lane *lanes, uint32_t mask);

inline int lane_number()
{
    return thread_number & 31;
}

template <class T>
inline T shuffle(uint32_t mask, T value, int from, const char *what,
                 const char *file, int line)
{
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 8,
                  "a shuffle moves at most 8 bytes");
    Lane &slot = lane_slot();
    memcpy(slot.in, &value, sizeof value);
    slot.arg = from;
    collective(mask, body_shuffle, what, file, line);
    memcpy(&value, slot.out, sizeof value);
    return value;
}

inline uint32_t ballot(uint32_t mask, bool yes, const char *what,
                       const char *file, int line)
{
    Lane &slot = lane_slot();
    slot.arg = yes;
    collective(mask, body_ballot, what, file, line);
    uint32_t votes;
    memcpy(&votes, slot.out, sizeof votes);
    return votes;
}

/* Gives every lane of the mask the reduction by op, in ascending order of
 * lanes. */
template <class T, T (*op)(T, T)> void body_reduce(Lane *lanes, uint32_t mask)
{
    T total{}, value;
    bool first = true;
    for (int l = 0; l < 32; l++) {
        if (!(mask >> l & 1)) continue;
        memcpy(&value, lanes[l].in, sizeof value);
        total = first ? value : op(total, value);
        first = false;
    }
    for (int l = 0; l < 32; l++)
        if (mask >> l & 1) memcpy(lanes[l].out, &total, sizeof total);
}
template <class T, T (*op)(T, T)>
inline T reduce(uint32_t mask, T value, const char *what, const char *file,
                int line)
{
    Lane &slot = lane_slot();
    memcpy(slot.in, &value, sizeof value);
    collective(mask, body_reduce<T, op>, what, file, line);
    memcpy(&value, slot.out, sizeof value);
    return value;
}

} // namespace emu

inline void __syncwarp(uint32_t mask = 0xffffffffu, EMU_AT)
{
    emu::collective(mask, emu::body_sync, "__syncwarp", file, line);
}

/* `width` is a power of two; a source outside the segment means the lane
 * itself. */
template <class T>
inline T __shfl_sync(uint32_t mask, T value, int from, int width = 32, EMU_AT)
{
    int l = emu::lane_number(), in = width - 1;
    return emu::shuffle(mask, value, (l & ~in) | (from & in), "__shfl_sync",
                        file, line);
}
template <class T>
inline T __shfl_up_sync(uint32_t mask, T value, unsigned by, int width = 32,
                        EMU_AT)
{
    int l = emu::lane_number(), at = l & (width - 1);
    int from = at - (int)by < 0 ? l : l - (int)by;
    return emu::shuffle(mask, value, from, "__shfl_up_sync", file, line);
}
template <class T>
inline T __shfl_down_sync(uint32_t mask, T value, unsigned by, int width = 32,
                          EMU_AT)
{
    int l = emu::lane_number(), at = l & (width - 1);
    int from = at + (int)by >= width ? l : l + (int)by;
    return emu::shuffle(mask, value, from, "__shfl_down_sync", file, line);
}
template <class T>
inline T __shfl_xor_sync(uint32_t mask, T value, int bits, int width = 32,
                         EMU_AT)
{
    int l = emu::lane_number(), from = l ^ bits;
    if (from > (l | (width - 1))) from = l;
    return emu::shuffle(mask, value, from, "__shfl_xor_sync", file, line);
}

inline uint32_t __ballot_sync(uint32_t mask, int yes, EMU_AT)
{
    return emu::ballot(mask, yes != 0, "__ballot_sync", file, line);
}
inline int __any_sync(uint32_t mask, int yes, EMU_AT)
{
    return emu::ballot(mask, yes != 0, "__any_sync", file, line) != 0;
}
inline int __all_sync(uint32_t mask, int yes, EMU_AT)
{
    return emu::ballot(mask, yes == 0, "__all_sync", file, line) == 0;
}
/* Returns the lanes of the mask that hold the same value. */
template <class T>
inline uint32_t __match_any_sync(uint32_t mask, T value, EMU_AT)
{
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "4 or 8 bytes");
    emu::Lane &slot = emu::lane_slot();
    memset(slot.in, 0, 8);
    memcpy(slot.in, &value, sizeof value);
    emu::collective(mask, emu::body_match, "__match_any_sync", file, line);
    uint32_t same;
    memcpy(&same, slot.out, sizeof same);
    return same;
}

namespace emu {
/* the sum wraps, as on the device */
template <class T> T op_add(T a, T b)
{
    return (T)((uint32_t)a + (uint32_t)b);
}
template <class T> T op_min(T a, T b)
{
    return a < b ? a : b;
}
template <class T> T op_max(T a, T b)
{
    return a > b ? a : b;
}
template <class T> T op_and(T a, T b)
{
    return a & b;
}
template <class T> T op_or(T a, T b)
{
    return a | b;
}
template <class T> T op_xor(T a, T b)
{
    return a ^ b;
}
} // namespace emu
#define EMU_REDUCE(T, op)                                         \
    inline T __reduce_##op##_sync(uint32_t mask, T value, EMU_AT) \
    {                                                             \
        return emu::reduce<T, emu::op_##op<T>>(                   \
            mask, value, "__reduce_" #op "_sync", file, line);    \
    }
EMU_REDUCE(int, add)
EMU_REDUCE(int, min)
EMU_REDUCE(int, max)
EMU_REDUCE(unsigned, add)
EMU_REDUCE(unsigned, min)
EMU_REDUCE(unsigned, max)
EMU_REDUCE(unsigned, and)
EMU_REDUCE(unsigned, or)
EMU_REDUCE(unsigned, xor)
#undef EMU_REDUCE
#endif
