/* augment.cu -- changes of intensity: contrast, brightness, gamma, noise.
 *
 * Contrast needs the mean, gamma the minimum and maximum of each channel of
 * each sample. The first launch computes them for parts of the voxels, whose
 * number depends on the number of voxels only; the second combines the parts in
 * their order, sums in double; the third changes the voxels. Noise draws the
 * same numbers as on the host, one pair of normal numbers for two adjacent
 * elements of a sample.
 *
 * blockIdx.y is the sample; for a sample without a change its blocks return at
 * once. Bound by memory: 8 bytes an element, 12 with a mean. Noise is bound by
 * 10 rounds of the generator, a logarithm, a root, a sine and a cosine for two
 * elements, which take about as long. */
#include "cuda/device/augment.cuh"
#include "cuda/lib/thread_group.cuh"
#include "engine/base/rng.h"

namespace {

enum {
    PART = 4096, // voxels that are worth a block
    PARTS = 64,  // per channel at most
};

/* The sum and range of one channel of one sample, or of a part of it. */
struct Extent {
    double sum;
    float lo, hi;
};

/* The samples of an image field; `change` has one entry each. */
struct Images {
    float *x;
    const Change *change;
    int64_t voxels;
    int channels, count;
    uint32_t first; // number of the first draw of noise
};

/* parts[(n * channels + c) * gridDim.x + part]; blockIdx.z is the channel. */
__global__ void __launch_bounds__(BLOCK)
    channel_range_parts_kernel(const Images p, int64_t grain, Extent *parts)
{
    const int n = (int)blockIdx.y, c = (int)blockIdx.z;
    if (p.change[n].kind == CHANGE_NONE) return;
    const int64_t from = blockIdx.x * grain;
    const int64_t to = from + grain < p.voxels ? from + grain : p.voxels;
    const float *x = p.x + n * p.voxels * p.channels + c;
    double sum[1] = {};
    // each thread starts with a value of the part
    float lo = x[from * p.channels], hi = lo;
    for (int64_t i = from + threadIdx.x; i < to; i += BLOCK) {
        const float v = x[i * p.channels];
        sum[0] += (double)v;
        lo = fminf(lo, v), hi = fmaxf(hi, v);
    }

    thread_group_sums(sum, BLOCK);
    hi = thread_group_max(hi, BLOCK);
    lo = -thread_group_max(-lo, BLOCK);
    if (threadIdx.x == 0)
        parts[((int64_t)n * p.channels + c) * gridDim.x + blockIdx.x] = {
            sum[0], lo, hi};
}

/* Combines the parts of each channel, in their order, in its first part. */
__global__ void __launch_bounds__(BLOCK)
    channel_range_kernel(const Images p, int count, Extent *parts)
{
    EACH(i, (int64_t)p.count * p.channels)
    {
        if (p.change[i / p.channels].kind == CHANGE_NONE) continue;
        Extent *e = parts + i * count, all = e[0];
        for (int k = 1; k < count; k++) {
            all.sum += e[k].sum;
            all.lo = fminf(all.lo, e[k].lo), all.hi = fmaxf(all.hi, e[k].hi);
        }
        *e = all;
    }
}

/* `of`: `parts` entries for each channel, the first of which is combined; NULL
 * for brightness. */
__global__ void __launch_bounds__(BLOCK)
    intensity_kernel(const Images p, const Divisor channels, int parts,
                     const Extent *of)
{
    const int n = (int)blockIdx.y;
    const int32_t kind = p.change[n].kind;
    const float amount = p.change[n].amount;

    if (kind == CHANGE_NONE) return;
    float *x = p.x + n * p.voxels * p.channels;
    EACH(i, p.voxels * p.channels)
    {
        if (kind == CHANGE_BRIGHTNESS) {
            x[i] += amount;
            continue;
        }
        uint32_t voxel = (uint32_t)i;
        const int64_t c = split(&voxel, channels);
        const Extent e = of[((int64_t)n * p.channels + c) * parts];
        if (kind == CHANGE_CONTRAST) {
            const float mean = (float)(e.sum / (double)p.voxels);
            x[i] = mean + amount * (x[i] - mean);
        } else if (e.lo < e.hi) {
            const float span = e.hi - e.lo;
            x[i] = e.lo + span * powf((x[i] - e.lo) / span, amount);
        }
    }
}

/* Each thread takes a pair of elements; the last pair may lack the second. */
__global__ void __launch_bounds__(BLOCK) augment_noise_kernel(const Images p)
{
    const int64_t size = p.voxels * p.channels;
    const Change c = p.change[blockIdx.y];
    if (c.kind == CHANGE_NONE) return;
    float *x = p.x + blockIdx.y * size;
    EACH(i, (size + 1) / 2)
    {
        float z[2];
        rng_normal_pair(&c.draw, (p.first + (uint32_t)(2 * i)) / 2, z);
        x[2 * i] += c.amount * z[0];
        if (2 * i + 1 < size) x[2 * i + 1] += c.amount * z[1];
    }
}

/* A grid for `items` of each of `count` samples, 65535 at most. */
dim3 blocks_of(int64_t items, int count)
{
    return dim3(blocks_for(items), (unsigned)count);
}

/* Queues the extents of all channels. Returns the array, with *parts entries a
 * channel, or NULL with the reason. */
Extent *extents(void *dev, const Images &p, int *parts)
{
    cudaStream_t stream = gpu_stream(dev);
    const int64_t grain = most(PART, ceil_div(p.voxels, PARTS));
    *parts = (int)ceil_div(p.voxels, grain);
    const int64_t all = (int64_t)p.count * p.channels * *parts;
    Extent *e = (Extent *)gpu_scratch(dev, sizeof *e * (size_t)all);
    if (!e) return NULL;
    const dim3 grid((unsigned)*parts, (unsigned)p.count, (unsigned)p.channels);
    LAUNCH(channel_range_parts_kernel, grid, BLOCK, 0, stream, p, grain, e);
    if (!gpu_launched("range of intensities, parts")) return NULL;
    LAUNCH(channel_range_kernel, blocks_for((int64_t)p.count * p.channels),
           BLOCK, 0, stream, p, *parts, e);
    return gpu_launched("range of intensities") ? e : NULL;
}

} // namespace

bool change_images(void *dev, const GatherField *f, int count, int32_t kind,
                   const Change *change)
{
    cudaStream_t stream = gpu_stream(dev);
    Images p = {};
    p.x = (float *)f->out, p.change = change, p.count = count,
    p.first = f->first;
    p.voxels = positions(f->dim), p.channels = f->dim.c;
    const int64_t size = numel(f->dim);
    const Extent *of = NULL;
    int parts = 1;

    // grids count samples and channels to 65535; element numbers are divided in
    // 32 bits
    if (size > MOST_POSITIONS || count > 65535 || p.channels > 65535)
        return fail_device("%d samples of %lld elements, %d channels: the GPU "
                           "kernels count to 65535, %d and 65535: use "
                           "--device_dataset off",
                           count, (long long)size, p.channels,
                           (int)MOST_POSITIONS);

    if (kind == CHANGE_NOISE) {
        LAUNCH(augment_noise_kernel, blocks_of((size + 1) / 2, count), BLOCK, 0,
               stream, p);
        return gpu_launched("noise");
    }

    if (kind != CHANGE_BRIGHTNESS && !(of = extents(dev, p, &parts)))
        return false;
    LAUNCH(intensity_kernel, blocks_of(size, count), BLOCK, 0, stream, p,
           divisor(p.channels), parts, of);
    return gpu_launched("change of intensities");
}
