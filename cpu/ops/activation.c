/* activation.c -- sigmoid, tanh, gelu and silu, fast.
 *
 * Bound by arithmetic (simd/activation.c), so every thread helps. The
 * derivatives of sigmoid and tanh are functions of y, which may be x's memory.
 * gelu and silu are not monotonic, so they keep x. dx may be dy's memory in all
 * of them. */
#include "cpu/lib/blocks.h"
#include "cpu/lib/kernels.h"
#include "cpu/lib/simd.h"

static SmoothAct kind_of(const Call *c)
{
    switch (call_op(c)) {
    case OP_sigmoid:
        return SMOOTH_SIGMOID;
    case OP_tanh:
        return SMOOTH_TANH;
    case OP_gelu:
        return SMOOTH_GELU;
    default:
        return SMOOTH_SILU;
    }
}

/* BlockFn of the forward run. */
static void value(const Call *c, int64_t from, int64_t count)
{
    simd()->smooth_act(kind_of(c), floats(c->x[0], from), count,
                       floats(c->y, from));
}

/* BlockFn of the backward run. */
static void grad(const Call *c, int64_t from, int64_t count)
{
    const SmoothAct kind = kind_of(c);
    const bool by_result = kind == SMOOTH_SIGMOID || kind == SMOOTH_TANH;
    simd()->smooth_act_grad(kind, floats(c->dy, from),
                            floats(by_result ? c->y : c->x[0], from), count,
                            floats(c->dx[0], from), !(c->fresh & 1));
}

/* The kernels of an operator; kind_of() selects the function. */
#define SMOOTH(name)                                          \
    bool cpu_##name##_fwd(const Call *c)                      \
    {                                                         \
        blocks_run(c, numel(c->y->dim), value);               \
        return true;                                          \
    }                                                         \
    bool cpu_##name##_bwd(const Call *c)                      \
    {                                                         \
        if (c->dx[0]) blocks_run(c, numel(c->dy->dim), grad); \
        return true;                                          \
    }
SMOOTH(sigmoid)
SMOOTH(tanh)
SMOOTH(gelu)
SMOOTH(silu)
