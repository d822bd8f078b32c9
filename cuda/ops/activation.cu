/* activation.cu -- relu, leaky_relu, sigmoid, tanh, gelu, silu, scale, and the
 * functions of one operand of elementwise.def; constant.
 *
 * Mapping: each thread makes four adjacent elements with one load and store,
 * then continues with the stride of the grid; the last count % 4 elements go
 * one by one. No shared memory. Bound by bandwidth: forward reads and writes
 * one element (4 bytes each, 2 in 16 bits); backward reads two (the operand or
 * result that the operator saves, and dy) and writes one, or also reads that
 * one when it adds.
 *
 * y may be operand 0's memory and dx[0] may be dy's: a thread reads its
 * elements before it writes them and reads nothing else. NaN passes through all
 * functions (they test x <= 0, never x > 0). */
#include "cuda/lib/vec.cuh"
#include "cuda/ops/functions.cuh"

namespace {

/* The function of a call. */
UnaryFunction function_of(const Call *c)
{
    UnaryFunction f = {call_op(c), 0, 0};
    const int attrs = op_info[f.op].attrs;
    if (attrs > 0) f.p = (float)op_attr(c->attr, 0);
    if (attrs > 1) f.q = (float)op_attr(c->attr, 1);
    return f;
}

// -- kernels -----------------------------------------------------------------

__global__ void constant_kernel(float value, float *y)
{
    *y = value;
}

template <class F, Dtype D>
__global__ void activation_fwd_kernel(const F f, const Element<D> *x,
                                      Element<D> *y, int64_t count)
{
    EACH(i, count / 4)
    {
        Vec<4> q = load<4, D>(x + i * 4);
        for (int k = 0; k < 4; k++) q.v[k] = f.value(q.v[k]);
        store_vec<4, D>(y + i * 4, q, true);
    }
    // block 0 does the tail; its other threads may still be in the loop.
    // Tensors in 16 bits have no tail
    int64_t t = count / 4 * 4 + threadIdx.x;
    if constexpr (D == F32)
        if (blockIdx.x == 0 && t < count) y[t] = f.value(x[t]);
}

template <class F, Dtype D>
__global__ void activation_bwd_kernel(const F f, const Element<D> *kept,
                                      const Element<D> *dy, Element<D> *dx,
                                      int64_t count, bool fresh)
{
    EACH(i, count / 4)
    {
        const Vec<4> k = load<4, D>(kept + i * 4);
        Vec<4> d = load<4, D>(dy + i * 4);
        for (int n = 0; n < 4; n++) d.v[n] *= f.grad(k.v[n]);
        store_vec<4, D>(dx + i * 4, d, fresh);
    }
    int64_t t = count / 4 * 4 + threadIdx.x;
    if constexpr (D == F32)
        if (blockIdx.x == 0 && t < count)
            put(&dx[t], dy[t] * f.grad(kept[t]), fresh);
}

template <class F, Dtype D> bool forward_as(const Call *c, const F &f)
{
    int64_t count = numel(c->y->dim);
    LAUNCH((activation_fwd_kernel<F, D>), blocks_for(ceil_div(count, 4)), BLOCK,
           0, gpu_stream(c->dev), f, elements<D>(c->x[0]), elements<D>(c->y),
           count);
    return gpu_launched("elementwise");
}

template <class F> bool forward(const Call *c, const F &f)
{
    return c->y->type == BF16  ? forward_as<F, BF16>(c, f)
           : c->y->type == F16 ? forward_as<F, F16>(c, f)
                               : forward_as<F, F32>(c, f);
}

template <class F, Dtype D>
bool backward_as(const Call *c, const F &f, const Tensor *kept)
{
    int64_t count = numel(c->y->dim);
    LAUNCH((activation_bwd_kernel<F, D>), blocks_for(ceil_div(count, 4)), BLOCK,
           0, gpu_stream(c->dev), f, elements<D>(kept), elements<D>(c->dy),
           elements<D>(c->dx[0]), count, is_fresh(c, 0));
    return gpu_launched("elementwise, backward");
}

template <class F> bool backward(const Call *c, const F &f, const Tensor *kept)
{
    if (!c->dx[0]) return true;
    return c->dy->type == BF16  ? backward_as<F, BF16>(c, f, kept)
           : c->dy->type == F16 ? backward_as<F, F16>(c, f, kept)
                                : backward_as<F, F32>(c, f, kept);
}

} // namespace

/* Defines the forward and backward function of an operator. `curve` computes
 * value and derivative; `kept` is the tensor that ops.def keeps for the
 * backward pass (KEEP_Y: y, KEEP_X: x). An operator that keeps none passes dy,
 * which its grad() ignores. */
#define ROW(name, curve, kept)            \
    bool cuda_##name##_fwd(const Call *c) \
    {                                     \
        return forward(c, curve);         \
    }                                     \
    bool cuda_##name##_bwd(const Call *c) \
    {                                     \
        return backward(c, curve, kept);  \
    }
extern "C" {
ROW(relu, Relu{}, c->y)
ROW(leaky_relu, LeakyRelu{c->attr->leaky_relu.slope}, c->y)
ROW(sigmoid, Sigmoid{}, c->y)
ROW(tanh, Tanh{}, c->y)
ROW(gelu, Gelu{}, c->x[0])
ROW(silu, Silu{}, c->x[0])
ROW(scale, (Scale{c->attr->scale.mul, c->attr->scale.add}), c->dy)

#define UNARY(name, kept, cost, value, derivative) \
    ROW(name, function_of(c), c->kept)
#define UNARY_STEP(name, value)            \
    bool cuda_##name##_fwd(const Call *c)  \
    {                                      \
        return forward(c, function_of(c)); \
    }
#include "engine/graph/elementwise.def"

bool cuda_constant_fwd(const Call *c)
{
    LAUNCH(constant_kernel, 1, 1, 0, gpu_stream(c->dev),
           c->attr->constant.value, values(c->y));
    return gpu_launched("constant");
}
}
