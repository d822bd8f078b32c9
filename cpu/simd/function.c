/* function.c -- one instruction of a program (engine/graph/program.h) on an
 * array: values and gradients of the elementwise operators.
 *
 * Vectors of floats compute exp, log, log1p and every operator that is exact or
 * correctly rounded in float. The other functions are loops in double over the
 * expressions of elementwise.def, rounded once, as in cpu/ref. The result may
 * be the memory of an operand: element i of the operands is loaded before
 * element i of the result is stored. */
#include "cpu/lib/floored_mod.h"
#include "cpu/simd/explog.h"
#include "engine/graph/program.h"

// -- vectors ------------------------------------------------------------------

/* Locals of a function with MAP: vectors in memory may alias the members of
 * *f. */
#define ARRAYS                                                         \
    const float *const pa = f->a, *const pb = f->b, *const pd = f->dy; \
    float *const to = f->to;                                           \
    const int64_t n = f->n;                                            \
    const bool add = f->add
/* One vector of MAP; rest: 0, or the number of its elements. */
#define STEP(value, rest)                                           \
    do {                                                            \
        const V a = v_get(pa + at, rest), b = v_get(pb + at, rest), \
                dy = v_get(pd + at, rest);                          \
        (void)a, (void)b, (void)dy;                                 \
        const V v = (value);                                        \
        v_put(to + at, rest, add ? v_get(to + at, rest) + v : v);   \
    } while (0)
/* to[at] (+)= value over n elements, an expression in vectors a, b and dy, and
 * return. */
#define MAP(value)                                           \
    do {                                                     \
        int64_t at = 0;                                      \
        for (; at + LANES <= n; at += LANES) STEP(value, 0); \
        const int rest = (int)(n - at);                      \
        if (rest) STEP(value, rest);                         \
        return true;                                         \
    } while (0)

INLINE V v_abs(V x)
{
    return (V)((Vi)x & ~SIGN);
}

INLINE V one_if(Vi holds)
{
    return v_select(holds, v_set(1), v_zero());
}

/* The larger, or with a and b negated the smaller; NaN if either is NaN. */
INLINE V larger(V a, V b)
{
    return v_select(a > b, a, v_select(b >= a, b, a + b));
}

/* The share of dy that goes to a = max(a, b). */
INLINE V share_of_larger(V dy, V a, V b)
{
    return v_select(a > b, dy, v_select(a == b, dy * v_set(0.5f), v_zero()));
}

/* Computes the value of instruction i on vectors; false if the operator has a
 * loop in double instead. */
static bool value_vectors(const Instruction *i, const Function *f)
{
    ARRAYS;
    const V p = v_set(i->p), q = v_set(i->q);
    switch (i->op) {
    case OP_constant:
        MAP(p);
    case OP_stop:
        MAP(a);
    case OP_scale: // a 0 added makes 0 of -0, as in the plain loops
        if (i->q == 0) MAP(a * p + v_zero());
        return false;
    case OP_add:
        MAP(a + b);
    case OP_sub:
        MAP(a - b);
    case OP_mul:
        MAP(a * b);
    case OP_div:
        MAP(a / b);
    case OP_max:
        MAP(larger(a, b));
    case OP_min:
        MAP(-larger(-a, -b));
    case OP_select:
        MAP(v_select(a != 0, b, v_zero()));
    case OP_gt:
        MAP(one_if(a > b));
    case OP_ge:
        MAP(one_if(a >= b));
    case OP_eq:
        MAP(one_if(a == b));
    case OP_abs:
        MAP(v_abs(a));
    case OP_sign:
        MAP(v_select(a > 0, v_set(1), v_select(a < 0, v_set(-1), a)));
    case OP_clamp:
        MAP(v_select(a < p, p, v_select(a > q, q, a)));
    case OP_sqrt:
        MAP(v_sqrt(a));
    case OP_rsqrt:
        MAP(v_set(1) / v_sqrt(a));
    case OP_exp:
        MAP(v_exp(a));
    case OP_log:
        MAP(v_log(a));
    case OP_log1p:
        MAP(v_log1p_any(a));
    case OP_power:
        if (i->p == 2) MAP(a * a);
        return false;
    default:
        return false;
    }
}

/* The same for a gradient. */
static bool grad_vectors(const Instruction *i, const Function *f)
{
    ARRAYS;
    const bool second = i->action == PROGRAM_GRAD1;
    const V p = v_set(i->p), q = v_set(i->q);
    switch (i->op) {
    case OP_scale: // an added gradient is rounded once, in grad_loop()
        if (!add) MAP(dy * p);
        return false;
    case OP_add:
        MAP(dy);
    case OP_sub:
        if (second) MAP(-dy);
        MAP(dy);
    case OP_mul:
        if (second) MAP(dy * a);
        MAP(dy * b);
    case OP_max:
        if (second) MAP(share_of_larger(dy, b, a));
        MAP(share_of_larger(dy, a, b));
    case OP_min:
        if (second) MAP(share_of_larger(dy, -b, -a));
        MAP(share_of_larger(dy, -a, -b));
    case OP_select:
        if (second) MAP(v_select(a != 0, dy, v_zero()));
        MAP(v_zero());
    case OP_abs:
        MAP(v_select(a > 0, dy, v_select(a < 0, -dy, a * dy)));
    case OP_clamp:
        MAP(v_select((a < p) | (a > q), v_zero() * dy, dy));
    case OP_sqrt:
        MAP(dy * (v_set(0.5f) / a));
    case OP_exp:
        MAP(dy * a);
    case OP_log:
        MAP(dy / a);
    case OP_log1p:
        MAP(dy / (v_set(1) + a));
    case OP_power:
        if (i->p == 2) MAP(dy * (v_set(2) * a));
        return false;
    default:
        return false;
    }
}

// -- loops in double ----------------------------------------------------------

#define N(number) (number)
#define P         ((double)i->p)
#define Q         ((double)i->q)
/* to[at] (+)= value, the sum in double. */
#define LOOP(value)                                                  \
    do {                                                             \
        for (int64_t at = 0; at < f->n; at++) {                      \
            const double v = (value);                                \
            f->to[at] = (float)(f->add ? (double)f->to[at] + v : v); \
        }                                                            \
        return;                                                      \
    } while (0)

#define UNARY(name, kept, cost, value, derivative)             \
    static double name##_value(const Instruction *i, double x) \
    {                                                          \
        (void)i;                                               \
        return value;                                          \
    }                                                          \
    static double name##_grad(const Instruction *i, double k)  \
    {                                                          \
        (void)i;                                               \
        return derivative;                                     \
    }
#define UNARY_STEP(name, value)                                \
    static double name##_value(const Instruction *i, double x) \
    {                                                          \
        (void)i;                                               \
        return value;                                          \
    }
#define BINARY(name, value, grad0, grad1)                     \
    static double name##_value(double a, double b)            \
    {                                                         \
        return value;                                         \
    }                                                         \
    static double name##_grad0(double dy, double a, double b) \
    {                                                         \
        (void)dy, (void)a, (void)b;                           \
        return grad0;                                         \
    }                                                         \
    static double name##_grad1(double dy, double a, double b) \
    {                                                         \
        (void)dy, (void)a, (void)b;                           \
        return grad1;                                         \
    }
#define BINARY_STEP(name, value)                   \
    static double name##_value(double a, double b) \
    {                                              \
        return value;                              \
    }
#include "engine/graph/elementwise.def"

static void value_loop(const Instruction *i, const Function *f)
{
    switch (i->op) {
    case OP_scale:
        LOOP((double)i->p * (double)f->a[at] + (double)i->q);
#define UNARY(name, ...) \
    case OP_##name:      \
        LOOP(name##_value(i, (double)f->a[at]));
#define UNARY_STEP UNARY
#define BINARY(name, ...) \
    case OP_##name:       \
        LOOP(name##_value((double)f->a[at], (double)f->b[at]));
#define BINARY_STEP BINARY
#include "engine/graph/elementwise.def"
    default:
        CHECK(!"an operator of program_takes()");
    }
}

static void grad_loop(const Instruction *i, const Function *f)
{
    const bool second = i->action == PROGRAM_GRAD1;
#define D(array) ((double)f->array[at])
    switch (i->op) {
    case OP_scale:
        LOOP(D(dy) * (double)i->p);
    case OP_div:
        if (second) LOOP(-D(dy) * D(a) / D(b) / D(b));
        LOOP(D(dy) / D(b));
#define UNARY(name, ...) \
    case OP_##name:      \
        LOOP(D(dy) * name##_grad(i, D(a)));
#define BINARY(name, ...)                                  \
    case OP_##name:                                        \
        if (second) LOOP(name##_grad1(D(dy), D(a), D(b))); \
        LOOP(name##_grad0(D(dy), D(a), D(b)));
#include "engine/graph/elementwise.def"
    default:
        CHECK(!"an operator with a gradient");
    }
#undef D
}
#undef N
#undef P
#undef Q

// -- operators with kernels of their own --------------------------------------

/* The SmoothAct of an operator, -1: none. */
static int smooth_of(int op)
{
    return op == OP_sigmoid ? (int)SMOOTH_SIGMOID
           : op == OP_tanh  ? (int)SMOOTH_TANH
           : op == OP_gelu  ? (int)SMOOTH_GELU
           : op == OP_silu  ? (int)SMOOTH_SILU
                            : -1;
}

extern const Simd ISA_NAME(simd);

void ISA_NAME(function)(const Instruction *i, const Function *f);
void ISA_NAME(function)(const Instruction *i, const Function *f)
{
    const Simd *own = &ISA_NAME(simd);
    const int smooth = smooth_of(i->op);
    const bool value = i->action == PROGRAM_VALUE;
    if (smooth >= 0 && value)
        own->smooth_act((SmoothAct)smooth, f->a, f->n, f->to);
    else if (smooth >= 0)
        own->smooth_act_grad((SmoothAct)smooth, f->dy, f->a, f->n, f->to,
                             f->add);
    else if (i->op == OP_relu && value)
        own->relu(f->a, f->n, f->to);
    else if (i->op == OP_relu)
        own->relu_grad(f->dy, f->a, f->n, f->to, f->add);
    else if (i->op == OP_leaky_relu && value)
        own->leaky_relu(f->a, f->n, i->p, f->to);
    else if (i->op == OP_leaky_relu)
        own->leaky_grad(f->dy, f->a, f->n, i->p, f->to, f->add);
    else if (value ? !value_vectors(i, f) : !grad_vectors(i, f))
        value ? value_loop(i, f) : grad_loop(i, f);
}
