/* kernels.h -- declarations of the kernels of both CPU backends, by expansion
 * of ops.def.
 *
 * For each operator of ops.def: ref_<name>_* (double) and plain_<name>_*
 * (float), both compiled from cpu/ref, and cpu_<name>_* for operators marked
 * `fast`. Only functions that a backend's table names have to exist: an
 * operator that is not `fast` has no cpu_ kernels, and one without space or
 * gradient has no _space or _bwd. The linker reports each missing kernel. */
#ifndef SEG_CPU_LIB_KERNELS_H
#define SEG_CPU_LIB_KERNELS_H
#include "engine/graph/op.h"
#include "engine/graph/optim.h"
#include "engine/ranks/ranks.h"

/* The declarations of one operator in one family. */
#define KERNEL_SET(family, name)                           \
    KernelFn family##_##name##_fwd, family##_##name##_bwd; \
    SpaceFn family##_##name##_space;
#define OP(name, ...) \
    KERNEL_SET(ref, name) KERNEL_SET(plain, name) KERNEL_SET(cpu, name)
#include "engine/graph/ops.def"
#undef KERNEL_SET

KernelFn cpu_program; /* Backend.program */

/* The `cpu` kernels of an operator that has fast kernels only for calls with
 * is_fast(), and plain loops for other calls. Similar operators share the fast
 * kernels space_of(), <kind>_fwd() and <kind>_bwd(). All three test is_fast(),
 * so they agree. */
#define FAST_OR_PLAIN(name, kind)                                  \
    Space cpu_##name##_space(const Call *c)                        \
    {                                                              \
        return is_fast(c) ? space_of(c) : plain_##name##_space(c); \
    }                                                              \
    bool cpu_##name##_fwd(const Call *c)                           \
    {                                                              \
        return is_fast(c) ? kind##_fwd(c) : plain_##name##_fwd(c); \
    }                                                              \
    bool cpu_##name##_bwd(const Call *c)                           \
    {                                                              \
        return is_fast(c) ? kind##_bwd(c) : plain_##name##_bwd(c); \
    }

/* Returns true if every counted target of a cross_entropy is a class number;
 * else fails with the first that is not. */
bool ref_cross_entropy_check(const Call *c);
bool plain_cross_entropy_check(const Call *c);

/* Replaces v[i] by its sum over the ranks that share the batch of this call; an
 * idle rank adds 0. With one rank v does not change. */
static inline bool sum_ranks(const Call *c, double *v, int64_t count)
{
    const Shard *s = c->step ? &c->step->shard : NULL;
    if (!s || !s->ranks) return true;
    for (int64_t i = 0; i < count && s->idle; i++) v[i] = 0;
    return ranks_sum(s->ranks, v, count);
}

/* Is the batch of this call only there to keep step with the other ranks? */
static inline bool is_idle(const Call *c)
{
    return c->step && c->step->shard.idle;
}

/* Number of sample n of this call within the batch of all ranks. */
static inline int64_t sample_number(const Call *c, int64_t n)
{
    return c->step->shard.first + n;
}

/* Backend.update, .blend and .sum_squares; `dev` is a Pool or NULL. The tests
 * compare the bits of cpu_* with those of plain_*. */
#define UPDATE_SET(family)                                            \
    bool family##_update(void *dev, const Update *u);                 \
    bool family##_blend(void *dev, void *y, const void *x, int64_t n, \
                        double by);                                   \
    bool family##_sum_squares(void *dev, const void *x, int64_t n, double *out);
UPDATE_SET(ref) UPDATE_SET(plain) UPDATE_SET(cpu)
#undef UPDATE_SET
#endif
