/* kernels.h -- what the two CPU backends are made of, declared by expansion.
 *
 * Of each row of ops.def: ref_<name>_* (double) and plain_<name>_* (float)
 * from the one source in cpu/ref, and for rows marked `fast` cpu_<name>_*.
 * Only those that a table names need to exist: a row that is not `fast` has
 * no cpu_ kernels, and a row without space or gradient lacks _space or _bwd.
 * The linker is the checklist. */
#ifndef SEG_CPU_LIB_KERNELS_H
#define SEG_CPU_LIB_KERNELS_H
#include "engine/graph/op.h"
#include "engine/graph/optim.h"
#include "engine/ranks/ranks.h"

/* The declarations of one row in one family. */
#define KERNEL_SET(family, name)                           \
    KernelFn family##_##name##_fwd, family##_##name##_bwd; \
    SpaceFn family##_##name##_space;
#define OP(name, ...) \
    KERNEL_SET(ref, name) KERNEL_SET(plain, name) KERNEL_SET(cpu, name)
#include "engine/graph/ops.def"
#undef KERNEL_SET

/* The kernels and the space of `cpu` for a row whose fast ones serve some
 * calls, by is_fast(), and several rows alike: space_of(), <kind>_fwd() and
 * <kind>_bwd(). All three decide by one function, so they decide alike. */
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

/* cross_entropy's first counted target that is no class, named in the error;
 * true if there is none. */
bool ref_cross_entropy_check(const Call *c);
bool plain_cross_entropy_check(const Call *c);

/* v[i] = its sum over the ranks that share the batch of this call; what an idle
 * one has counts nothing. Alone: as it is. */
static inline bool sum_ranks(const Call *c, double *v, int64_t count)
{
    const Share *s = c->step ? &c->step->share : NULL;
    if (!s || !s->ranks) return true;
    for (int64_t i = 0; i < count && s->idle; i++) v[i] = 0;
    return ranks_sum(s->ranks, v, count);
}

/* Is what this call is fed only there to keep step with the other ranks? */
static inline bool is_idle(const Call *c)
{
    return c->step && c->step->share.idle;
}

/* Number in the whole batch of sample n of this call. */
static inline int64_t sample_number(const Call *c, int64_t n)
{
    return c->step->share.first + n;
}

/* Backend.update, .blend and .sum_squares; `dev` is a Pool or NULL. Those of
 * `plain` are what the bits of `cpu` are judged by. */
#define UPDATE_SET(family)                                            \
    bool family##_update(void *dev, const Update *u);                 \
    bool family##_blend(void *dev, void *y, const void *x, int64_t n, \
                        double by);                                   \
    bool family##_sum_squares(void *dev, const void *x, int64_t n, double *out);
UPDATE_SET(ref) UPDATE_SET(plain) UPDATE_SET(cpu)
#undef UPDATE_SET
#endif
