/* focal.cu -- focal loss: cross entropy that gives little weight to elements
 * that are already right.
 *
 * With u the logit of the true class, z = logistic(u), the loss of an element
 * is f(u) = (1 - z)^gamma softplus(-u), where u is x if t is 1 and -x if t is
 * 0; a target in between weights the two cases. alpha and 1 - alpha (or 1 and
 * 1) weight positive and negative elements.
 *
 * Mapping and kernels are those of loss.cuh. Memory: 8 bytes an element
 * forward, 12 backward. With gamma = 2 the power is a product and the kernels
 * are bound by memory; other powers cost some 150 instructions an element,
 * which bound the kernels on large cards. */
#include "cuda/lib/logistic.cuh"
#include "cuda/loss/loss.cuh"

namespace {

struct Term {
    float gamma, yes, no; // weights of positive and negative

    __device__ float power(float rest) const
    {
        // the same for all threads: no divergence
        return gamma == 2 ? rest * rest : powf(rest, gamma);
    }
    __device__ float value(float x, float t) const
    {
        Both s = logistic(x), l = softplus(x);
        return t * yes * power(s.neg) * l.neg +
               (1 - t) * no * power(s.pos) * l.pos;
    }
    // df/du = -(1 - z)^gamma (gamma z softplus(-u) + (1 - z)); u is -x for t =
    // 0, hence its sign
    __device__ float grad(float x, float t) const
    {
        Both s = logistic(x), l = softplus(x);
        float u = power(s.neg) * (gamma * s.pos * l.neg + s.neg);
        float v = power(s.pos) * (gamma * s.neg * l.pos + s.pos);
        return (1 - t) * no * v - t * yes * u;
    }
};

Term term_of(const Attr *a)
{
    float alpha = a->focal.alpha;
    if (alpha < 0) return {a->focal.gamma, 1, 1};
    return {a->focal.gamma, alpha, 1 - alpha};
}

} // namespace

MEAN_LOSS(focal, term_of(c->attr))
