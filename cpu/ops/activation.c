/* activation.c -- relu, leaky_relu, sigmoid, tanh, gelu and silu, fast.
 *
 * relu and leaky_relu are bound by memory: one load and one store an element
 * forward, two loads backward. NaN passes. Their derivatives are functions of
 * the sign of y, because the slope of leaky_relu is above 0; so y may be x's
 * memory and the planner may drop x.
 *
 * The others are bound by arithmetic (simd/activation.c), so every thread
 * helps. The derivatives of sigmoid and tanh are functions of y, which may be
 * x's memory. gelu and silu are not monotonic, so they keep x.
 *
 * dx may be dy's memory in all of them. */
#include "cpu/lib/blocks.h"
#include "cpu/lib/kernels.h"
#include "cpu/lib/simd.h"

// -- relu ---------------------------------------------------------------------

/* BlockFn of the forward run. */
static void relu_value(const Call *c, int64_t from, int64_t count)
{
    simd()->relu(floats(c->x[0], from), count, floats(c->y, from));
}

/* BlockFn of the backward run: dx = dy where y > 0 or NaN, else 0. */
static void relu_grad(const Call *c, int64_t from, int64_t count)
{
    simd()->relu_grad(floats(c->dy, from), floats(c->y, from), count,
                      floats(c->dx[0], from), !(c->fresh & 1));
}

bool cpu_relu_fwd(const Call *c)
{
    blocks_run(c, numel(c->y->dim), relu_value);
    return true;
}

bool cpu_relu_bwd(const Call *c)
{
    if (c->dx[0]) blocks_run(c, numel(c->dy->dim), relu_grad);
    return true;
}

// -- leaky_relu ---------------------------------------------------------------

/* BlockFn of the forward run. */
static void leaky_relu_value(const Call *c, int64_t from, int64_t count)
{
    simd()->leaky_relu(floats(c->x[0], from), count, c->attr->leaky_relu.slope,
                       floats(c->y, from));
}

/* BlockFn of the backward run: dx = dy where y > 0 or NaN, else slope * dy. */
static void leaky_relu_grad(const Call *c, int64_t from, int64_t count)
{
    simd()->leaky_grad(floats(c->dy, from), floats(c->y, from), count,
                       c->attr->leaky_relu.slope, floats(c->dx[0], from),
                       !(c->fresh & 1));
}

bool cpu_leaky_relu_fwd(const Call *c)
{
    blocks_run(c, numel(c->y->dim), leaky_relu_value);
    return true;
}

bool cpu_leaky_relu_bwd(const Call *c)
{
    if (c->dx[0]) blocks_run(c, numel(c->dy->dim), leaky_relu_grad);
    return true;
}

// -- sigmoid, tanh, gelu, silu ------------------------------------------------

static SmoothAct kind_of(const Call *c)
{
    switch (call_op(c)) {
    case OP_sigmoid:
        return SMOOTH_SIGMOID;
    case OP_tanh:
        return SMOOTH_TANH;
    case OP_gelu:
        return SMOOTH_GELU;
    case OP_silu:
        return SMOOTH_SILU;
    default:
        CHECK(!"an operator of SMOOTH()");
    }
}

/* BlockFn of the forward run. */
static void smooth_value(const Call *c, int64_t from, int64_t count)
{
    simd()->smooth_act(kind_of(c), floats(c->x[0], from), count,
                       floats(c->y, from));
}

/* BlockFn of the backward run. */
static void smooth_grad(const Call *c, int64_t from, int64_t count)
{
    const SmoothAct kind = kind_of(c);
    const bool by_result = kind == SMOOTH_SIGMOID || kind == SMOOTH_TANH;
    simd()->smooth_act_grad(kind, floats(c->dy, from),
                            floats(by_result ? c->y : c->x[0], from), count,
                            floats(c->dx[0], from), !(c->fresh & 1));
}

/* The kernels of an operator; kind_of() selects the function. */
#define SMOOTH(name)                                                 \
    bool cpu_##name##_fwd(const Call *c)                             \
    {                                                                \
        blocks_run(c, numel(c->y->dim), smooth_value);               \
        return true;                                                 \
    }                                                                \
    bool cpu_##name##_bwd(const Call *c)                             \
    {                                                                \
        if (c->dx[0]) blocks_run(c, numel(c->dy->dim), smooth_grad); \
        return true;                                                 \
    }
SMOOTH(sigmoid)
SMOOTH(tanh)
SMOOTH(gelu)
SMOOTH(silu)
