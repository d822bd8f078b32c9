/* emu_atomic.h -- integer atomics.
 *
 * One OS thread runs all fibers, so a plain read and write is atomic; the race
 * checker records one atomic access instead of two plain accesses. Each
 * function returns the old value. There are no float atomics: a sum by float
 * atomics depends on the order of threads, and results must not. */
#ifndef EMU_ATOMIC_H
#define EMU_ATOMIC_H
#include "tests/cuda/emulator/emu_types.h"

namespace emu {
/* Records an atomic access of `bytes` at `p` by the code at `pc`. */
void atomic_access(const void *p, size_t bytes, void *pc);
} // namespace emu

/* not inlined, so that the return address is the kernel's line */
#define EMU_ATOMIC                               \
    template <class T>                           \
    __attribute__((noinline, no_sanitize("threa" \
                                         "d"))) inline T
#define EMU_OPERAND std::common_type_t<T>
#define EMU_OLD                                                    \
    static_assert(std::is_integral_v<T> && sizeof(T) >= 4,         \
                  "atomics are for 32- and 64-bit integers");      \
    emu::atomic_access(p, sizeof(T), __builtin_return_address(0)); \
    T old = *p

EMU_ATOMIC atomicAdd(T *p, EMU_OPERAND v)
{
    EMU_OLD;
    *p = (T)((unsigned long long)old + (unsigned long long)v); /* wraps */
    return old;
}
EMU_ATOMIC atomicSub(T *p, EMU_OPERAND v)
{
    EMU_OLD;
    *p = (T)((unsigned long long)old - (unsigned long long)v);
    return old;
}
EMU_ATOMIC atomicMin(T *p, EMU_OPERAND v)
{
    EMU_OLD;
    if (v < old) *p = v;
    return old;
}
EMU_ATOMIC atomicMax(T *p, EMU_OPERAND v)
{
    EMU_OLD;
    if (v > old) *p = v;
    return old;
}
EMU_ATOMIC atomicAnd(T *p, EMU_OPERAND v)
{
    EMU_OLD;
    *p = old & v;
    return old;
}
EMU_ATOMIC atomicOr(T *p, EMU_OPERAND v)
{
    EMU_OLD;
    *p = old | v;
    return old;
}
EMU_ATOMIC atomicXor(T *p, EMU_OPERAND v)
{
    EMU_OLD;
    *p = old ^ v;
    return old;
}
EMU_ATOMIC atomicExch(T *p, EMU_OPERAND v)
{
    EMU_OLD;
    *p = v;
    return old;
}
EMU_ATOMIC atomicCAS(T *p, EMU_OPERAND expected, EMU_OPERAND v)
{
    EMU_OLD;
    if (old == expected) *p = v;
    return old;
}
#undef EMU_ATOMIC
#undef EMU_OPERAND
#undef EMU_OLD
#endif
