/* kernels.h -- what the two CPU backends are made of, declared by expansion.
 *
 * Of each row of ops.def: ref_<name>_* (double) and plain_<name>_* (float)
 * from the one source in cpu/ref, and for rows marked `fast` cpu_<name>_*.
 * Only those that a table names need to exist: a row that is not `fast` has
 * no cpu_ kernels, and a row without space or gradient lacks _space or _bwd.
 * The linker is the checklist. */
#ifndef SEG_KERNELS_H
#define SEG_KERNELS_H
#include "op.h"
#include "optim.h"

/* The declarations of one row in one family. */
#define KERNEL_SET(family, name)                           \
    KernelFn family##_##name##_fwd, family##_##name##_bwd; \
    SpaceFn family##_##name##_space;
#define OP(name, ...) \
    KERNEL_SET(ref, name) KERNEL_SET(plain, name) KERNEL_SET(cpu, name)
#include "ops.def"
#undef KERNEL_SET

/* Backend.update, .blend and .sum_squares; `dev` is a Pool or NULL. */
bool ref_update(void *dev, const Update *u);
bool plain_update(void *dev, const Update *u);
bool ref_blend(void *dev, void *y, const void *x, int64_t count, double by);
bool plain_blend(void *dev, void *y, const void *x, int64_t count, double by);
bool ref_sum_squares(void *dev, const void *x, int64_t count, double *out);
bool plain_sum_squares(void *dev, const void *x, int64_t count, double *out);
#endif
