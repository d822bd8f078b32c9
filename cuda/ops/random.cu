/* random.cu -- normal and uniform: new random numbers in every training step,
 * with the draws of cpu/ref/random.c. Seed and step count are read from device
 * memory, so that a captured step draws new numbers at each launch.
 *
 * A thread draws one block for 4 neighbouring elements of a sample: 4 bytes an
 * element, and for two normal numbers a logarithm, a root, a sine and a
 * cosine. */
#include "cuda/lib/kernel.cuh"
extern "C" {
#include "engine/base/normal.h"
}

namespace {

enum { DRAWS = 4 };

struct Random {
    float *y;
    const Step *step; // in device memory
    bool normal, train;
    float a, b; // mean and deviation; least and largest
    float mean;
    int node;
    Divisor fours;            // blocks of draws of a sample
    int64_t elements, blocks; // of a sample; of all
};

__global__ void __launch_bounds__(BLOCK) random_kernel(const Random p)
{
    EACH(i, p.blocks)
    {
        uint32_t n = (uint32_t)i;
        const uint32_t four = split(&n, p.fours);
        float drawn[DRAWS] = {p.mean, p.mean, p.mean, p.mean};
        if (p.train) {
            Rng r;
            r.seed = p.step->seed, r.stream = RNG_NOISE;
            r.op = (uint16_t)p.node, r.epoch = (uint32_t)p.step->count;
            r.sample = n + (uint32_t)p.step->shard.first;
            if (p.normal)
                normal_four(&r, four, p.a, p.b, drawn);
            else
                rng_range4(&r, four, p.a, p.b, drawn);
        }
        const int64_t at = n * p.elements + (int64_t)four * DRAWS;
        const int64_t end = min(at + DRAWS, (n + 1) * p.elements);
        for (int k = 0; k < DRAWS && at + k < end; k++) p.y[at + k] = drawn[k];
    }
}

bool draw(const Call *c, bool normal, float a, float b, float mean)
{
    const Dims s = c->y->dim;
    Random p = {};
    p.y = values(c->y), p.step = gpu_step(c->dev), p.node = c->node;
    p.normal = normal, p.train = c->train, p.a = a, p.b = b, p.mean = mean;
    p.elements = numel(s) / s.n;
    p.fours = divisor(ceil_div(p.elements, DRAWS));
    p.blocks = s.n * ceil_div(p.elements, DRAWS);
    if (!countable(c, p.blocks)) return false;
    LAUNCH(random_kernel, blocks_for(p.blocks), BLOCK, 0, gpu_stream(c->dev),
           p);
    return gpu_launched("random");
}

} // namespace

extern "C" {
bool cuda_normal_fwd(const Call *c)
{
    return draw(c, true, c->attr->normal.mean, c->attr->normal.std,
                c->attr->normal.mean);
}

bool cuda_uniform_fwd(const Call *c)
{
    const float low = c->attr->uniform.low, high = c->attr->uniform.high;
    return draw(c, false, low, high, uniform_mean(low, high));
}
}
