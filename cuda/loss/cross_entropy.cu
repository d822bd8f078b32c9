/* cross_entropy.cu -- softmax cross entropy with class numbers.
 *
 * x (N,D,H,W,C) logits, target (N,D,H,W,1) numbers 0 .. C-1 or `ignore`; the
 * mask has one channel, the weight one or C (then the weight of the true class
 * applies). The mean is over M = sum of the mask where the target is not
 * `ignore`; the weight is not in M. A target outside 0 .. C-1 makes the loss,
 * and the gradient of its row, NaN: an error message would have to wait for the
 * device.
 *
 * Mapping: groups of lanes hold a row (classes.cuh); partial sums over rows,
 * finish and gradients as in loss.cuh. Memory: 4 + 4 / C bytes an element
 * forward, 8 + 4 / C backward. Up to 4 classes the shuffles and the one
 * logarithm a row, some 80 instructions an element, take longer than the memory
 * of the largest cards. */
#include "cuda/loss/classes.cuh"

namespace {

struct Job {
    Views v; // extents of the rows: all but x have one channel, or C (q)
    int channels;
    int64_t rows;
    float ignore;
};

/* Target, mask and weight of a row. */
struct Label {
    float m; // 0 if masked or ignored
    int t;   // true class; -1 for an invalid number
    float w; // m q of the true class
};

__device__ __forceinline__ Label label_of(const Job &j, int64_t row)
{
    Label l = {0, 0, 0};
    Place p = {};
    if (j.v.way == PLACES) p = place(j.v.grid, (uint32_t)row);
    l.m = view_at(j.v.m, j.v.way, row, p, 0);
    float t = j.v.t.data[row];
    if (l.m == 0 || t == j.ignore) return {0, 0, 0};

    // the range first: only then is the conversion defined; a number between
    // two classes, as an interpolated mask has it, is invalid
    bool valid = t >= 0 && t < (float)j.channels && t == (float)(int)t;
    l.t = valid ? (int)t : -1;
    l.w = valid ? l.m * view_at(j.v.q, j.v.way, row, p, l.t) : NAN;
    return l;
}

/* out[part][2]: the weighted losses, and M. -log softmax(x)[t] is log(1 + rest)
 * + (max - x[t]), both without cancellation. */
template <class L>
__global__ void __launch_bounds__(BLOCK)
    cross_entropy_fwd_kernel(const __grid_constant__ Job j, int64_t part,
                             double *out)
{
    const int64_t from = blockIdx.x * part;
    const int64_t to = from + part < j.rows ? from + part : j.rows;
    double sum[2] = {};

    for (int64_t base = from; base < to;) {
        float run[2] = {};
        for (int n = 0; n < RUN && base < to; n++, base += L::ROWS_AT_ONCE) {
            int64_t row = base + group_of<L>();
            bool live = row < to;
            const float *x = j.v.x + (live ? row : from) * j.channels;
            Soft s = soft_of(class_row<L>(x, j.channels));
            // lane 0 adds the row
            if (!live || lane_of<L>()) continue;
            Label l = label_of(j, row);
            if (l.t < 0)
                run[0] = NAN;
            else if (l.w != 0)
                run[0] += l.w * (log1pf(s.rest) + (s.max - x[l.t]));
            run[1] += l.m;
        }
        for (int k = 0; k < 2; k++) sum[k] += (double)run[k];
    }
    block_sums<2>(sum, out + (int64_t)blockIdx.x * 2);
}

/* dx = m q / M dy (softmax(x) - [is the true class]); for the leader, s - 1 is
 * -rest / (1 + rest). */
template <class L>
__global__ void __launch_bounds__(BLOCK, 4)
    cross_entropy_bwd_kernel(const __grid_constant__ Job j, const float *dy,
                             const float *inverse, float *dx, bool fresh)
{
    const float factor = *dy * *inverse;
    const uint32_t rows = (uint32_t)j.rows;

    // at most 2^31 - 1 rows and 2^24 a step: no overflow
    for (uint32_t base = blockIdx.x * L::ROWS_AT_ONCE; base < rows;
         base += gridDim.x * L::ROWS_AT_ONCE) {
        uint32_t row = base + (uint32_t)group_of<L>();
        bool live = row < rows;
        if (!live) row = base;
        const int64_t at = (int64_t)row * j.channels;
        ClassRow<L> r = class_row<L>(j.v.x + at, j.channels);
        Soft s = soft_of(r);
        if (!live) continue;
        Label l = label_of(j, row);
        float scale = l.w * factor, share = 1 / (1 + s.rest);
        OWN_CHANNELS(r, c)
        {
            float e = soft_exp(r, s, c);
            if (c == l.t) e = c == s.own_leader ? -s.rest : e - (1 + s.rest);
            put(&dx[at + c], l.w != 0 ? scale * (e * share) : 0, fresh);
        }
    }
}

/* M alone, for the backward pass: forward saves nothing. The target takes the
 * place of x. */
struct Counted {
    float ignore;
    __device__ void operator()(float t, float, float m, float, float *run) const
    {
        if (t != ignore) run[0] += m;
    }
};

Dims row_dims(const Call *c)
{
    return c->x[1]->dim;
}

Job job_of(const Call *c)
{
    Dims x = c->x[0]->dim;
    Job j = {};
    j.channels = x.c, j.rows = rows(x);
    j.ignore = (float)c->attr->cross_entropy.ignore;
    j.v = loss_views(c, 1);
    // FLAT works by elements of x, but these kernels work by rows
    j.v.way = (Way)most(j.v.way, ROWS);
    return j;
}

int parts_of(const Call *c, int64_t *part)
{
    Dims x = c->x[0]->dim;
    return loss_parts(1, rows(x), numel(x), part);
}

} // namespace

extern "C" {

Space cuda_cross_entropy_space(const Call *c)
{
    int64_t part;
    Space s = {};
    s.fwd = (size_t)parts_of(c, &part) * 2 * sizeof(double);
    // partial sums of M, then its inverse
    s.bwd = view4_bytes(1, numel(row_dims(c)), 1) + sizeof(double);
    return s;
}

bool cuda_cross_entropy_fwd(const Call *c)
{
    Job j = job_of(c);
    int64_t part;
    int parts = parts_of(c, &part);
    double *sums = (double *)c->scratch;
    if (!countable(c, j.rows)) return false;
    with_lanes<2>(j.channels, [&](auto lanes) {
        LAUNCH((cross_entropy_fwd_kernel<decltype(lanes)>), (unsigned)parts,
               BLOCK, 0, gpu_stream(c->dev), j, part, sums);
    });
    return gpu_launched("cross_entropy") &&
           finish<2>(c, Mean{values(c->y)}, sums, parts);
}

bool cuda_cross_entropy_bwd(const Call *c)
{
    only_dx0(c);
    if (!c->dx[0]) return true;
    Job j = job_of(c);
    double *sums = (double *)c->scratch;
    if (!countable(c, j.rows)) return false;
    Dims s = row_dims(c);
    Views v = views_of(c->x[1], NULL, c->x[2], NULL, s, 1);
    int count =
        view4_sums<1, ONE_CHANNEL>(c, Counted{j.ignore}, v, 1, numel(s), sums);
    float *inverse = (float *)(sums + count);
    if (!count || !finish<1>(c, Inverse{inverse, 1}, sums, count)) return false;
    with_lanes<2>(j.channels, [&](auto lanes) {
        LAUNCH((cross_entropy_bwd_kernel<decltype(lanes)>),
               class_blocks(j.rows, j.channels), BLOCK, 0, gpu_stream(c->dev),
               j, values(c->dy), inverse, values(c->dx[0]), is_fresh(c, 0));
    });
    return gpu_launched("cross_entropy, gradients");
}
}
