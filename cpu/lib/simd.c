/* simd.c -- chooses the instruction set: the best that the processor has; the
 * last one runs anywhere.
 *
 * One program holds the kernels of all sets (cpu/simd is compiled once for
 * each) and queries the processor at run time, so the same binary serves an old
 * laptop and a new server. SEG_ISA=name forces a lower set, to reproduce the
 * bits of another machine or to test a lower set on a better processor. */
#define _GNU_SOURCE // syscall
#include "cpu/lib/simd.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

extern const Simd simd_portable;
#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
extern const Simd simd_amx, simd_avx512_bf16, simd_avx512, simd_avx2;

/* The extensions that the compiler flags of the kernels assume: see ISA_avx512
 * in the Makefile. The test includes that the system saves the wide
 * registers. */
static bool has_avx512(void)
{
    return __builtin_cpu_supports("avx512f") &&
           __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512dq");
}

static bool has_avx512_bf16(void)
{
    return has_avx512() && __builtin_cpu_supports("avx512bf16");
}

/* Are dot products of pairs faster than f32? AMD processors do two a cycle,
 * twice the rate of f32. The Intel processor that was measured, which has AMX,
 * does one in two cycles, half the rate of f32. */
static bool has_fast_dots(void)
{
    return has_avx512_bf16() && __builtin_cpu_is("amd");
}

/* AMX tiles with bf16: processors from Sapphire Rapids on. The tile registers
 * are large, so Linux (from 5.16 on) enables them for a process on request. The
 * request fails if the kernel does not know them or the user may not use
 * them. */
static bool has_amx(void)
{
    enum { ASK = 0x1023, TILES = 18 };         // ARCH_REQ_XCOMP_PERM, XTILEDATA
    const unsigned both = 1u << 24 | 1u << 22; // amx-tile, amx-bf16
    unsigned a, b, c, d = 0;
    if (!has_avx512() || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
    return (d & both) == both && !syscall(SYS_arch_prctl, ASK, TILES);
}

static bool has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}
#elif defined(__aarch64__)
extern const Simd simd_neon;

/* All aarch64 processors have NEON. */
static bool has_neon(void)
{
    return true;
}
#endif

static bool has_portable(void)
{
    return true;
}

/* Best first. Another set is a row here and a line in the Makefile, or a line
 * in table.c if it only adds kernels of pairs. `preferred` is false for a set
 * that is present but not the fastest; it is used only if SEG_ISA names it. */
static const struct {
    const Simd *table;
    bool (*present)(void), (*preferred)(void);
} sets[] = {
#if defined(__x86_64__)
    {&simd_amx, has_amx, has_amx},
    {&simd_avx512_bf16, has_avx512_bf16, has_fast_dots},
    {&simd_avx512, has_avx512, has_avx512},
    {&simd_avx2, has_avx2, has_avx2},
#elif defined(__aarch64__)
    {&simd_neon, has_neon, has_neon},
#endif
    {&simd_portable, has_portable, has_portable},
};

enum { SETS = sizeof sets / sizeof *sets };

const Simd *simd_find(const char *name)
{
    // from the last set, which is always present, to the best
    const Simd *best = NULL;
    for (int i = SETS - 1; i >= 0; i--)
        if (sets[i].preferred()) best = sets[i].table;
    if (!name || !*name) return best;

    for (int i = 0; i < SETS; i++) {
        if (strcmp(name, sets[i].table->name)) continue;
        if (sets[i].present()) return sets[i].table;
        fail_usage("SEG_ISA=%s: this processor has no %s; leave SEG_ISA "
                   "unset to use %s",
                   name, name, best->name);
        return NULL;
    }

    fail_usage("SEG_ISA=%s: no such instruction set; this program has been "
               "built for amx, avx512_bf16, avx512, avx2 and portable on "
               "x86-64, for neon and portable on aarch64, for portable "
               "elsewhere",
               name);
    return NULL;
}

static const Simd *chosen; // set once by choose(), never changed

/* simd_check() reported an invalid SEG_ISA when a device was opened. Kernels
 * that run without a device get the best set. */
static void choose(void)
{
    chosen = simd_find(getenv("SEG_ISA"));
    if (!chosen) chosen = simd_find(NULL);
}

const Simd *simd(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, choose);
    return chosen;
}

bool simd_check(void)
{
    return simd_find(getenv("SEG_ISA")) != NULL;
}
