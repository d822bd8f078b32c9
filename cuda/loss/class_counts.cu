/* class_counts.cu -- how many elements of each class are predicted, true, or
 * both.
 *
 * One channel: predicted where logistic(x) > threshold, compared as x >
 * log(threshold / (1 - threshold)), so that the rounding of an exponential has
 * no influence; true where the target is at least 1/2. Several channels:
 * predicted is the first of the largest logits; true is the class number, or
 * each channel of the target that is at least 1/2. An element counts where its
 * mask is not 0.
 *
 * Mapping: a group of lanes holds the logits of one position (classes.cuh);
 * each lane counts one channel (of more than 32 channels, the blocks with the
 * next blockIdx.y count the next 32). A block counts a part of the positions of
 * a sample and adds the integer counts atomically to the memory of the result
 * y, in any order; the last block converts them to floats in place. Counts
 * below 2^31 are exact until then. Bound by memory: 8 bytes per element, 4 + 4
 * / C if the target has class numbers. */
#include "cuda/loss/classes.cuh"
#include <math.h>

namespace {

struct Job {
    Views v;
    int channels;
    int64_t rows; // of a sample
    float cut;    // predicted is x > cut
    bool numbers; // the target has class numbers
};

/* The first of the largest. As in the reference loop, NaN in channel 0 always
 * wins, and elsewhere never. */
template <class L> __device__ __forceinline__ int largest(const ClassRow<L> &r)
{
    float top = -INFINITY;
    auto value = [&](int c) {
        float x = r.at(c);
        return x == x ? x : c ? -INFINITY : INFINITY;
    };
    OWN_CHANNELS(r, c) top = fmaxf(top, value(c));
    top = group_max<L>(top);
    int first = INT32_MAX;
    OWN_CHANNELS(r, c) if (value(c) == top && c < first) first = c;
    for (int i = L::COUNT / 2; i; i /= 2)
        first = min(first, __shfl_xor_sync(~0u, first, i, L::COUNT));
    return first;
}

enum { COUNTS = 3 };

/* y[sample][3 c + k] += counts of a part of the sample; y has `size` numbers,
 * which the last block converts to floats, in place. */
template <class L>
__global__ void __launch_bounds__(BLOCK)
    class_counts_kernel(const __grid_constant__ Job j, int64_t part, int parts,
                        unsigned *y, int64_t size, unsigned *word)
{
    SMEM(unsigned, warps, [COUNTS][BLOCK / WARP][L::COUNT]);
    const int t = (int)threadIdx.x;
    const int64_t sample = blockIdx.x / (unsigned)parts;
    const int64_t from = blockIdx.x % (unsigned)parts * part;
    const int64_t to = from + part < j.rows ? from + part : j.rows;
    const int k = (int)blockIdx.y * L::COUNT + lane_of<L>();
    unsigned both = 0, predicted = 0, truth = 0;

    for (int64_t base = from; base < to; base += L::ROWS_AT_ONCE) {
        int64_t row = base + group_of<L>();
        bool live = row < to;
        row = sample * j.rows + (live ? row : from);
        ClassRow<L> r = class_row<L>(j.v.x + row * j.channels, j.channels);
        int best = j.channels > 1 ? largest(r) : r.own > j.cut ? 0 : -1;
        if (!live || k >= j.channels) continue;
        Place p = {};
        if (j.v.way == PLACES) p = place(j.v.grid, (uint32_t)row);
        if (view_at(j.v.m, j.v.way, row, p, k) == 0) continue;
        float target = view_at(j.v.t, j.v.way, row, p, k);
        bool is = j.numbers ? target == (float)k : target >= 0.5f;
        both += k == best && is, predicted += k == best, truth += is;
    }

    unsigned count[COUNTS] = {both, predicted, truth};
    for (int i = 0; i < COUNTS; i++) {
        for (int lanes = L::COUNT; lanes < WARP; lanes *= 2)
            count[i] += __shfl_xor_sync(~0u, count[i], lanes);
        if (t % WARP < L::COUNT) warps[i][t / WARP][t % WARP] = count[i];
    }

    __syncthreads();
    for (int i = 0; i < COUNTS && t < L::COUNT && k < j.channels; i++) {
        unsigned all = 0;
        for (int w = 0; w < BLOCK / WARP; w++) all += warps[i][w][t];
        // integers: the order of blocks does not matter
        if (all) atomicAdd(&y[(sample * j.channels + k) * COUNTS + i], all);
    }

    if (!last_block(word, gridDim.x * gridDim.y)) return;

    // atomics, because the sums are in the L2 cache that all blocks share
    for (int64_t i = t; i < size; i += BLOCK)
        atomicExch(&y[i], __float_as_uint((float)atomicAdd(&y[i], 0u)));
}

__global__ void class_counts_zero_kernel(unsigned *y, int64_t count)
{
    EACH(i, count) y[i] = 0;
}

/* The largest float not above log(p / (1 - p)). No float lies between the two,
 * so comparing floats with it gives the same as comparing with the double. For
 * p >= 1 nothing is predicted, for p <= 0 everything. */
float cut_of(double p)
{
    double cut = p <= 0 ? -INFINITY : p >= 1 ? INFINITY : log(p / (1 - p));
    float below = (float)cut;
    return (double)below > cut ? nextafterf(below, -INFINITY) : below;
}

} // namespace

extern "C" bool cuda_overlap_fwd(const Call *c)
{
    Dims s = c->x[0]->dim;
    int64_t part, size = numel(c->y->dim);
    cudaStream_t stream = gpu_stream(c->dev);
    Job j = {};

    j.channels = s.c, j.rows = positions(s);
    j.cut = cut_of(c->attr->overlap.threshold);
    j.numbers = s.c > 1 && c->x[1]->dim.c == 1;
    j.v = views_of(c->x[0], c->x[1], c->x[2], NULL, s, s.n);
    j.v.way = (Way)most(j.v.way, ROWS);
    if (!countable(c, rows(s))) return false;
    float *y = values(c->y);
    LAUNCH(class_counts_zero_kernel, blocks_for(size), BLOCK, 0, stream,
           (unsigned *)y, size);
    if (!gpu_launched("overlap, zero")) return false;
    int parts = loss_parts(s.n, j.rows, j.rows * s.c, &part);
    dim3 grid((unsigned)(s.n * parts), (unsigned)ceil_div(s.c, lanes_of(s.c)));
    with_lanes<1>(s.c, [&](auto lanes) {
        LAUNCH((class_counts_kernel<decltype(lanes)>), grid, BLOCK, 0, stream,
               j, part, parts, (unsigned *)y, size, gpu_counters(c->dev, 1));
    });
    return gpu_launched("overlap, count");
}
