/* bce.cu -- sigmoid cross entropy of logits, one or several channels, each a
 * yes or no of its own.
 *
 * Mapping and kernels are loss.cuh's: 4 elements a thread, parts, finish,
 * slopes. Floor: 8 bytes an element forward (x, t), 12 backward (dx as well,
 * 16 where it is added to), 4 more for a mask or weight of x's extents.
 * Around 45 instructions an element for exp and log1p keep the forward run at
 * that floor on all cards but the fastest, where they are level with it. */
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
