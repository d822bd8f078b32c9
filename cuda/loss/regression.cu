/* regression.cu -- mean absolute error, mean squared error, and Huber's mix.
 *
 * e = x - t. The absolute value has no slope at 0; it gets 0 there, as in
 * PyTorch, so that a voxel that is exactly right stays where it is.
 *
 * Mapping and kernels are loss.cuh's. Bound by memory: 8 bytes an element
 * forward (x, t), 12 backward (dx as well, 16 where it is added to), 4 more
 * for a mask or weight of x's extents. */
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
        // NaN must go on as NaN, hence e and not 0 for what is left
        return e > 0 ? 1 : e < 0 ? -1 : e;
    }
};

// the mean has no factor 1/2, so the slope has one of 2
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

// e^2/2 up to delta; beyond it the tangent, so the slope is e cut at +-delta
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

} // namespace

MEAN_LOSS(mae, Absolute{})
MEAN_LOSS(mse, Square{})
MEAN_LOSS(huber, Huber{c->attr->huber.delta})
