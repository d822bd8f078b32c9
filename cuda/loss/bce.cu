/* bce.cu -- sigmoid cross entropy of logits; each channel is a binary
 * classification of its own.
 *
 * Mapping and kernels are those of loss.cuh: 4 elements a thread, partial sums,
 * finish, gradients. Bound by memory: 8 bytes an element forward (x, t), 12
 * backward (also dx; 16 where dx is added to), 4 more for a mask or weight of
 * x's extents. Around 45 instructions an element for exp and log1p stay within
 * that time on all cards but the fastest, where both are equal. */
#include "cuda/lib/logistic.cuh"
#include "cuda/loss/loss.cuh"

namespace {

struct Term {
    float pos_weight;
    __device__ float value(float x, float t) const
    {
        return cross_value(pos_weight, x, t);
    }
    __device__ float grad(float x, float t) const
    {
        return cross_grad(pos_weight, x, t);
    }
};

} // namespace

MEAN_LOSS(bce, Term{c->attr->bce.pos_weight})
