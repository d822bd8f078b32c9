/* regression.cu -- mean absolute error, mean squared error and Huber loss; the
 * mean of a tensor.
 *
 * e = x - t. The absolute value has no derivative at 0; it is 0 there, as in
 * PyTorch, so exact predictions get no gradient.
 *
 * Mapping and kernels are those of loss.cuh. Bound by memory: 8 bytes an
 * element forward (x, t), 12 backward (also dx; 16 where dx is added to), 4
 * more for a mask or weight of x's extents. */
#include "cuda/loss/loss.cuh"

namespace {

struct Absolute {
    __device__ float value(float x, float t) const
    {
        return fabsf(x - t);
    }
    __device__ float grad(float x, float t) const
    {
        float e = x - t;
        // NaN must stay NaN, hence e and not 0 in the last case
        return e > 0 ? 1 : e < 0 ? -1 : e;
    }
};

// the value has no factor 1/2, so the derivative has a factor 2
struct Square {
    __device__ float value(float x, float t) const
    {
        return (x - t) * (x - t);
    }
    __device__ float grad(float x, float t) const
    {
        return 2 * (x - t);
    }
};

// e^2/2 up to delta, then the tangent: the derivative is e clamped to +-delta
struct Huber {
    float delta;
    __device__ float value(float x, float t) const
    {
        float e = x - t, size = fabsf(e);
        return size <= delta ? e * e / 2 : delta * (size - delta / 2);
    }
    __device__ float grad(float x, float t) const
    {
        float e = x - t;
        return e > delta ? delta : e < -delta ? -delta : e;
    }
};

struct Identity {
    __device__ float value(float x, float) const
    {
        return x;
    }
    __device__ float grad(float, float) const
    {
        return 1;
    }
};

} // namespace

MEAN_LOSS(mae, Absolute{})
MEAN_LOSS(mse, Square{})
MEAN_LOSS(huber, Huber{c->attr->huber.delta})
MEAN_LOSS(mean, Identity{})
