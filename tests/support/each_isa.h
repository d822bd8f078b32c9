/* each_isa.h -- tests kernels of every instruction set of this machine with
 * random extents and numbers. */
#ifndef SEG_TESTS_SUPPORT_EACH_ISA_H
#define SEG_TESTS_SUPPORT_EACH_ISA_H
#include "cpu/lib/kernels.h"
#include "cpu/lib/simd.h"
#include "tests/support/random.h"

#if defined(__x86_64__)
static const char *const set_name[] = {"amx", "avx512_bf16", "avx512", "avx2",
                                       "portable"};
#elif defined(__aarch64__)
static const char *const set_name[] = {"neon", "portable"};
#else
static const char *const set_name[] = {"portable"};
#endif

enum { SETS = sizeof set_name / sizeof *set_name };

/* The kernels of set i; NULL when this machine cannot run it. */
static inline const Simd *set_at(int i)
{
    return simd_find(set_name[i]);
}

/* One random trial of the kernels of an instruction set. */
typedef void CheckFn(const Simd *s, Random *d, Arena *mem);

static inline void check_sets(CheckFn *const *check, size_t count)
{
    for (int i = 0; i < SETS; i++) {
        const Simd *s = set_at(i);
        for (size_t k = 0; s && k < count; k++)
            for (uint32_t r = 0; r < 40; r++) {
                Arena mem = {0};
                Random d = dice(r);
                check[k](s, &d, &mem);
                arena_release(&mem);
            }
    }
}
#endif
