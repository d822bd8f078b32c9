/* dvh.cu -- the difference of the dose-volume histograms of two doses.
 *
 * The loss is the mean of (H / M)^2 over bins b and over pairs (sample n,
 * structure s) with voxels, H = sum m (v_b(x) - v_b(t)), M = sum m, v_b(x) =
 * sigmoid(scale x - steep b), scale = steep / width. The gradient needs G = 2 H
 * scale / M^2 of each pair and bin, and one over the number of pairs and bins
 * (cpu/ref/dvh.c, ops.def).
 *
 * Mapping: a block has a part of a sample. Its threads load BLOCK voxels at
 * once and store the doses of voxels inside a structure in shared memory; then
 * each thread is one bin and loops over the voxels in their order. Sums are in
 * memory, (N, parts, S, B + 1), each written by one thread; one block a pair
 * adds the parts. Backward each thread is one voxel. Bound by memory where
 * structures are sparse: 8 + 4 S bytes a voxel forward, 4 + 4 S backward and 4
 * written. */
#include "cuda/lib/logistic.cuh"
#include "cuda/loss/loss.cuh"
#include "engine/graph/dose_bins.h"

namespace {

struct Dvh {
    const float *x, *t, *m;
    int64_t places; // of a sample
    int structures, bins;
    float scale, steep;
};

static_assert((int)DOSE_BINS <= (int)BLOCK, "a bin is a thread");

Dvh dvh_of(const Call *c)
{
    Dvh d = {};
    d.x = values(c->x[0]), d.t = values(c->x[1]), d.m = values(c->x[2]);
    d.places = positions(c->x[0]->dim);
    d.structures = c->x[2]->dim.c, d.bins = c->attr->dvh_loss.bins;
    d.steep = c->attr->dvh_loss.steep;
    d.scale = d.steep / c->attr->dvh_loss.width;
    return d;
}

/* Is voxel `row` in any structure? */
__device__ __forceinline__ bool inside(const Dvh &d, int64_t row)
{
    bool any = false;
    for (int s = 0; s < d.structures; s++)
        any = any || d.m[row * d.structures + s] != 0;
    return any;
}

/* H and M of a part: out[s][0 .. bins - 1] and out[s][bins]. */
__global__ void __launch_bounds__(BLOCK)
    dvh_sums_kernel(const __grid_constant__ Dvh d, int64_t part, int parts,
                    double *sums)
{
    SMEM(float, x, [BLOCK]);
    SMEM(float, t, [BLOCK]);
    SMEM(int, on, [BLOCK]);
    const int me = (int)threadIdx.x, width = d.bins + 1;
    const int64_t n = blockIdx.x / (unsigned)parts;
    const int64_t from = blockIdx.x % (unsigned)parts * part;
    const int64_t to = from + part < d.places ? from + part : d.places;
    double *out = sums + (int64_t)blockIdx.x * d.structures * width;

    // each sum belongs to one thread, which clears it first
    for (int s = 0; s < d.structures && me < d.bins; s++)
        out[s * width + me] = 0;
    for (int s = 0; s < d.structures && me == 0; s++)
        out[s * width + d.bins] = 0;

    for (int64_t base = from; base < to; base += BLOCK) {
        const int64_t row = n * d.places + base + me;
        on[me] = base + me < to && inside(d, row);
        if (on[me]) x[me] = d.scale * d.x[row], t[me] = d.scale * d.t[row];
        __syncthreads();
        for (int i = 0; i < BLOCK && me < d.bins; i++) {
            if (!on[i]) continue;
            const float at = d.steep * (float)(me + 1);
            Both p = logistic(x[i] - at), q = logistic(t[i] - at);
            // p - q, in a form that keeps its digits where both are almost 1
            const float difference = p.pos * q.neg - q.pos * p.neg;
            const float *m = d.m + (n * d.places + base + i) * d.structures;
            for (int s = 0; s < d.structures; s++) {
                if (m[s] == 0) continue;
                out[s * width + me] += (double)(m[s] * difference);
                if (me == 0) out[s * width + d.bins] += (double)m[s];
            }
        }
        __syncthreads();
    }
}

/* One block a pair: total[pair] = the sum of its squares, and 1 if it has
 * voxels; g = 2 H scale / M^2. */
__global__ void __launch_bounds__(BLOCK)
    dvh_pair_kernel(const __grid_constant__ Dvh d, const double *sums,
                    int parts, float *g, double *total)
{
    const int me = (int)threadIdx.x, width = d.bins + 1;
    const int64_t pair = blockIdx.x;
    const int64_t n = pair / d.structures, s = pair % d.structures;
    double h = 0, m = 0;

    for (int i = 0; i < parts; i++) {
        const double *own = sums + ((n * parts + i) * d.structures + s) * width;
        if (me < d.bins) h += own[me];
        m += own[d.bins];
    }

    const bool there = m > 0;
    h = there ? h / m : 0;
    if (me < d.bins)
        g[pair * d.bins + me] =
            there ? (float)(2 * h * (double)d.scale / m) : 0;
    double sum[1] = {h * h};
    block_sums<1>(sum, total + 2 * pair);
    if (me == 0) total[2 * pair + 1] = there;
}

/* The loss, and the common factor of the gradients of all pairs. */
struct DvhMean {
    float *y, *share;
    int bins;
    __device__ void operator()(const double *sum) const
    {
        double one = sum[1] != 0 ? 1 / (sum[1] * bins) : 0;
        *share = (float)one, *y = (float)(sum[0] * one);
    }
};

__global__ void __launch_bounds__(BLOCK)
    dvh_grads_kernel(const __grid_constant__ Dvh d, int64_t all, const float *g,
                     const float *share, const float *dy, float *dx, bool fresh)
{
    const float factor = *dy * *share;
    EACH(row, all)
    {
        float sum = 0;
        if (inside(d, row)) {
            const float *m = d.m + row * d.structures;
            const float *own =
                g + row / d.places * d.structures * (int64_t)d.bins;
            for (int b = 0; b < d.bins; b++) {
                float grad = 0;
                for (int s = 0; s < d.structures; s++)
                    if (m[s] != 0) grad += m[s] * own[s * d.bins + b];
                Both v =
                    logistic(d.scale * d.x[row] - d.steep * (float)(b + 1));
                sum += grad * (v.pos * v.neg);
            }
        }
        put(&dx[row], factor * sum, fresh);
    }
}

/* Parts of a sample; a whole block reads each part. */
int dvh_parts(const Call *c, int64_t *part)
{
    Dims x = c->x[0]->dim;
    return loss_parts(x.n, positions(x), positions(x), part);
}

int64_t dvh_pairs(const Call *c)
{
    return c->x[0]->dim.n * (int64_t)c->x[2]->dim.c;
}

} // namespace

extern "C" {

/* Saved: G (N,S,B), then the common factor. Scratch: the partial sums, then two
 * numbers a pair. */
Space cuda_dvh_loss_space(const Call *c)
{
    const int bins = c->attr->dvh_loss.bins;
    int64_t part, pairs = dvh_pairs(c), parts = dvh_parts(c, &part);
    Space s = {};
    s.saved = (size_t)(pairs * bins + 1) * sizeof(float);
    s.fwd = (size_t)(pairs * (parts * (bins + 1) + 2)) * sizeof(double);
    return s;
}

bool cuda_dvh_loss_fwd(const Call *c)
{
    if (!countable(c, rows(c->x[0]->dim))) return false;
    const Dvh d = dvh_of(c);
    const int64_t pairs = dvh_pairs(c);
    int64_t part;
    const int parts = dvh_parts(c, &part);
    double *sums = (double *)c->scratch;
    double *total = sums + pairs * parts * (d.bins + 1);
    float *g = (float *)c->saved;
    cudaStream_t stream = gpu_stream(c->dev);
    LAUNCH(dvh_sums_kernel, (unsigned)(c->x[0]->dim.n * parts), BLOCK, 0,
           stream, d, part, parts, sums);
    if (!gpu_launched("dvh loss, sums")) return false;
    LAUNCH(dvh_pair_kernel, (unsigned)pairs, BLOCK, 0, stream, d, sums, parts,
           g, total);
    if (!gpu_launched("dvh loss, pairs")) return false;
    DvhMean mean = {values(c->y), g + pairs * d.bins, d.bins};
    return finish<2>(c, mean, total, (int)pairs);
}

bool cuda_dvh_loss_bwd(const Call *c)
{
    only_dx0(c);
    if (!c->dx[0]) return true;
    const int64_t all = rows(c->x[0]->dim);
    if (!countable(c, all)) return false;
    const Dvh d = dvh_of(c);
    const float *g = (const float *)c->saved;
    LAUNCH(dvh_grads_kernel, blocks_for(all), BLOCK, 0, gpu_stream(c->dev), d,
           all, g, g + dvh_pairs(c) * d.bins, values(c->dy), values(c->dx[0]),
           is_fresh(c, 0));
    return gpu_launched("dvh loss, gradients");
}
}
