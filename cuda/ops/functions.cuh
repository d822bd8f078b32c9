/* functions.cuh -- the elementwise operators as functions of numbers: values
 * and derivatives, for kernels of one operator (activation.cu, broadcast.cu)
 * and of programs (program.cu). Both have the same bits. */
#ifndef SEG_CUDA_OPS_FUNCTIONS_H
#define SEG_CUDA_OPS_FUNCTIONS_H
#include "cuda/lib/logistic.cuh"

namespace {

// -- functions of one operand ------------------------------------------------
// value(x), and grad(k) with k the saved tensor: y, or x where the gradient
// does not follow from y.

struct Relu {
    __device__ float value(float x) const
    {
        return x <= 0 ? 0 : x;
    }
    __device__ float grad(float y) const
    {
        return y <= 0 ? 0 : 1;
    }
};

struct LeakyRelu {
    float leak;
    __device__ float value(float x) const
    {
        return x <= 0 ? x * leak : x;
    }
    __device__ float grad(float y) const
    {
        return y <= 0 ? leak : 1;
    }
};

struct Sigmoid {
    __device__ float value(float x) const
    {
        return logistic_of(x);
    }
    __device__ float grad(float y) const
    {
        return y * (1 - y);
    }
};

struct Tanh {
    __device__ float value(float x) const
    {
        return tanhf(x);
    }
    __device__ float grad(float y) const
    {
        return (1 - y) * (1 + y);
    }
};

/* The normal distribution function: erfc(-x / sqrt(2)) / 2. In the lower tail
 * erfc changes by 2t per cent for each per cent of its argument t, so the
 * rounding error of t is corrected to first order: erfc(t + d) = erfc(t) - d
 * 2/sqrt(pi) exp(-t^2). */
__device__ __forceinline__ float normal_below(float x)
{
    const float root = 0.70710678f, rest = 1.21016175e-8f; // 1/sqrt(2)
    float t = -x * root;
    float d = fmaf(-x, root, -t) - x * rest;
    return 0.5f * (erfcf(t) - d * 1.12837917f * expf(-t * t));
}

/* x P(x);  P(x) + x p(x), p the density */
struct Gelu {
    __device__ float value(float x) const
    {
        return x * normal_below(x);
    }
    __device__ float grad(float x) const
    {
        float density = 0.39894228f * expf(-0.5f * x * x);
        // far out the density is 0 and x may be infinite
        return normal_below(x) + (density == 0 ? 0.0f : x * density);
    }
};

/* x s(x);  s (1 + x (1 - s)) */
struct Silu {
    __device__ float value(float x) const
    {
        return x * logistic_of(x);
    }
    __device__ float grad(float x) const
    {
        return logistic_of(x) * (1 + x * logistic_of(-x));
    }
};

struct Scale {
    float mul, add;
    __device__ float value(float x) const
    {
        return fmaf(mul, x, add);
    }
    __device__ float grad(float) const
    {
        return mul;
    }
};

/* A function of elementwise.def; p, q: its attributes. One kernel for all of
 * them: all threads take the same case. */
struct UnaryFunction {
    int op;
    float p, q;

#define N(number) number##f
#define P         p
#define Q         q
    __device__ float value(float x) const
    {
        switch (op) {
#define UNARY(name, kept, cost, value, derivative) \
    case OP_##name:                                \
        return value;
#define UNARY_STEP(name, value) \
    case OP_##name:             \
        return value;
#include "engine/graph/elementwise.def"
        }
        return x;
    }

    __device__ float grad(float k) const
    {
        switch (op) {
#define UNARY(name, kept, cost, value, derivative) \
    case OP_##name:                                \
        return derivative;
#include "engine/graph/elementwise.def"
        }
        return k;
    }
#undef N
#undef P
#undef Q
};

// -- functions of two operands -----------------------------------------------
// value(a, b); part: the term that an element of dy adds to the gradient of an
// operand; reads: part depends on a and b.

struct Add {
    static constexpr bool reads = false;
    static __device__ float value(float a, float b)
    {
        return a + b;
    }
    static __device__ float part(int, float dy, float, float)
    {
        return dy;
    }
};

struct Sub {
    static constexpr bool reads = false;
    static __device__ float value(float a, float b)
    {
        return a - b;
    }
    static __device__ float part(int operand, float dy, float, float)
    {
        return operand ? -dy : dy;
    }
};

struct Mul {
    static constexpr bool reads = true;
    static __device__ float value(float a, float b)
    {
        return a * b;
    }
    static __device__ float part(int operand, float dy, float a, float b)
    {
        return dy * (operand ? a : b);
    }
};

struct Div {
    static constexpr bool reads = true;
    static __device__ float value(float a, float b)
    {
        return a / b;
    }
    static __device__ float part(int operand, float dy, float a, float b)
    {
        return operand ? -dy * a / b / b : dy / b;
    }
};

/* A function of elementwise.def. One kernel for all of them: all threads take
 * the same case. */
struct BinaryFunction {
    static constexpr bool reads = true;
    int op;

    /* a - b floor(a / b): the remainder with the sign of b, exact as fmodf. */
    static __device__ float floored_mod(float a, float b)
    {
        const float r = fmodf(a, b);
        return r != 0 && (r < 0) != (b < 0) ? r + b : r;
    }

#define N(number) number##f
    __device__ float value(float a, float b) const
    {
        switch (op) {
#define BINARY(name, value, da, db) \
    case OP_##name:                 \
        return value;
#define BINARY_STEP(name, value) \
    case OP_##name:              \
        return value;
#include "engine/graph/elementwise.def"
        }
        return a;
    }

    __device__ float part(int operand, float dy, float a, float b) const
    {
        switch (op) {
#define BINARY(name, value, da, db) \
    case OP_##name:                 \
        return operand ? (db) : (da);
#include "engine/graph/elementwise.def"
        }
        return dy;
    }
#undef N
};

} // namespace
#endif
