/* dice.cu -- losses of overlapping regions: dice_loss, bce_dice, tversky.
 *
 * All three are one formula. With I, P, T the sums of m q s t, m q s, m q t
 * over a class (of a sample or of the batch), its score is
 *
 *     S = (r I + eps) / ((r - alpha - beta) I + alpha P + beta T + eps)
 *
 * with r = 2, alpha = beta = 1 for dice and r = 1 for tversky. The loss is 1 -
 * mean S over the classes that count, plus the cross entropy of bce_dice. S is
 * a quotient of linear functions of I and P, so the gradient needs only two
 * numbers a class, dL/ds = m q (a t + b), which forward saves.
 *
 * The kernels sum I, A = P - I = sum m q s (1 - t) and B = T - I = sum m q (1 -
 * s) t, term by term without cancellation: then
 *
 *     1 - S = (alpha A + beta B) / (r I + alpha A + beta B + eps)
 *
 * keeps its digits in float terms when a network is almost right.
 *
 * Mapping: with one channel a thread takes 4 elements (loss.cuh), with several
 * a group of lanes takes a row, one lane a channel (classes.cuh; beyond 32
 * channels blocks of another y have the next 32). Both write
 * parts[set][part][5][C]; one block adds the parts, with at most a warp a
 * class. Bound by memory: x, t once forward (8 bytes an element, 4 + 4 / C with
 * class numbers), x, t, dx backward (12); up to 4 classes the shuffles take
 * equal time on the largest cards. */
#include "cuda/lib/logistic.cuh"
#include "cuda/loss/classes.cuh"

namespace {

/* The attributes of the three operators in one form. */
struct Region {
    bool per_sample, skip_empty, background;
    double r, alpha, beta, eps;
    double dice, bce; // weights of the two terms
    float pos_weight;
};

#define OVERLAP(row)                                \
    g.per_sample = row.per_sample, g.eps = row.eps, \
    g.skip_empty = row.skip_empty, g.background = row.background
Region region_of(const Attr *a)
{
    Region g = {};
    g.r = 2, g.alpha = 1, g.beta = 1, g.dice = 1;

    switch (a->op) {
    case OP_tversky:
        OVERLAP(a->tversky);
        g.r = 1, g.alpha = a->tversky.alpha, g.beta = a->tversky.beta;
        break;
    case OP_bce_dice:
        OVERLAP(a->bce_dice);
        g.dice = a->bce_dice.dice, g.bce = a->bce_dice.bce;
        g.pos_weight = a->bce_dice.pos_weight;
        break;
    default:
        OVERLAP(a->dice_loss);
    }
    return g;
}

/* Sums of a class and set. M is the sum of the mask in its channel. */
enum { SUM_I, SUM_A, SUM_B, SUM_BCE, SUM_M, SUMS };

/* Saved: a Coef for each set and class, then the Factors of all. The derivative
 * for a target of 1 is stored instead of a, because a and b cancel there. */
struct Coef {
    float one, none; // dL/ds / (share m q) where t is 1, and where it is 0
};
struct Factors {
    float share, bce; // of the dice term; of cross entropy: its weight / M
};

/* The parameters of the kernels over rows. */
struct Job {
    Views v;
    int channels;
    int64_t rows; // of a set
    Divisor set_rows;
    bool bce, numbers; // numbers: the target has class numbers
    float pos_weight;
};

/* The mask m, w = m q with the weight q, and the target t of one channel at one
 * position; t is 0 where w is 0, even if the target is NaN. */
struct Truth {
    float m, w, t;
};

__device__ __forceinline__ Truth truth_at(const Job &j, int64_t row,
                                          const Place &p, int c)
{
    Truth k;
    k.m = view_at(j.v.m, j.v.way, row, p, c);
    k.w = k.m * view_at(j.v.q, j.v.way, row, p, c);
    k.t = k.w != 0 ? view_at(j.v.t, j.v.way, row, p, c) : 0;
    if (j.numbers) k.t = k.t == (float)c;
    return k;
}

__device__ __forceinline__ Place place_of(const Job &j, int64_t row)
{
    return j.v.way == PLACES ? place(j.v.grid, (uint32_t)row) : Place{};
}

/* Adds one element of probability s.pos; s.neg is 1 - s.pos. */
__device__ __forceinline__ void add_sums(Both s, float x, float t, float m,
                                         float w, bool bce, float pos_weight,
                                         float run[SUMS])
{
    run[SUM_M] += m;
    if (w == 0) return;
    run[SUM_I] += w * t * s.pos;
    run[SUM_A] += w * (1 - t) * s.pos;
    run[SUM_B] += w * t * s.neg;
    if (bce) run[SUM_BCE] += w * cross_value(pos_weight, x, t);
}

// -- sums --------------------------------------------------------------------

/* One channel: the function for view4_sums. */
struct SigmoidSums {
    bool bce;
    float pos_weight;
    __device__ void operator()(float x, float t, float m, float w,
                               float run[SUMS]) const
    {
        add_sums(logistic(x), x, t, m, w, bce, pos_weight, run);
    }
};

/* Several channels: this lane's channel over a part of the rows of a set. */
template <class L>
__global__ void __launch_bounds__(BLOCK)
    region_loss_softmax_sums_kernel(const __grid_constant__ Job j, int64_t part,
                                    int parts, double *out)
{
    const int64_t set = blockIdx.x / (unsigned)parts;
    const int64_t from = blockIdx.x % (unsigned)parts * part;
    const int64_t to = from + part < j.rows ? from + part : j.rows;
    const int c = (int)blockIdx.y * L::COUNT + lane_of<L>();
    double sum[SUMS] = {};

    for (int64_t base = from; base < to;) {
        float run[SUMS] = {};
        for (int n = 0; n < RUN && base < to; n++, base += L::ROWS_AT_ONCE) {
            int64_t row = base + group_of<L>();
            bool live = row < to && c < j.channels;
            row = set * j.rows + (row < to ? row : from);
            ClassRow<L> r = class_row<L>(j.v.x + row * j.channels, j.channels);
            Soft s = soft_of(r);
            if (!live) continue;
            Truth k = truth_at(j, row, place_of(j, row), c);
            float e = soft_exp(r, s, c), scale = 1 / (1 + s.rest);
            Both prob = {e * scale,
                         (c == s.own_leader ? s.rest : 1 + s.rest - e) * scale};
            add_sums(prob, r.at(c), k.t, k.m, k.w, j.bce, j.pos_weight, run);
        }
        for (int k = 0; k < SUMS; k++) sum[k] += (double)run[k];
    }

    class_block_sums<L, SUMS>(sum, c, j.channels,
                              out + (int64_t)blockIdx.x * SUMS * j.channels);
}

// -- finish ------------------------------------------------------------------

/* 1 - S of one class, and its derivatives by I and P. A class with all sums 0
 * and eps = 0 scores 1: the limit of small eps. */
__device__ double miss(const Region &g, const double sum[SUMS], Coef *grad)
{
    double top = g.r * sum[SUM_I] + g.eps;
    double lost = g.alpha * sum[SUM_A] + g.beta * sum[SUM_B];
    double bottom = top + lost;
    if (bottom == 0) return 0;
    double s = top / bottom;
    double a = (g.r - s * (g.r - g.alpha - g.beta)) / bottom;
    double b = -s * g.alpha / bottom;
    *grad = {(float)(a + b), (float)b};
    return lost / bottom;
}

/* The totals of a finish: 1 - S of the classes, number of classes, cross
 * entropy and its mask. */
enum { MISSED, COUNTED, BCE, MASK, ALL };

__device__ __forceinline__ void region_end(const Region &g, const double *all,
                                           float *y, Factors *factors)
{
    double n = all[COUNTED], bce = all[MASK] != 0 ? g.bce / all[MASK] : 0;
    *factors = {(float)(n != 0 ? -g.dice / n : 0), (float)bce};
    *y = (float)((n != 0 ? g.dice * all[MISSED] / n : 0) + bce * all[BCE]);
}

/* One block: adds the parts, `lanes` threads a set and class, and writes the
 * loss and the values for the backward pass. Classes that do not count
 * (background, empty ones when skipped) have coefficients 0. own: receives the
 * totals instead, for an all-reduce. */
__global__ void __launch_bounds__(BLOCK, 2)
    region_loss_finish_kernel(const __grid_constant__ Region g,
                              const double *parts, int count, int lanes,
                              int64_t pairs, int channels, float *y, Coef *coef,
                              Factors *factors, double *own, const Step *step)
{
    SMEM(double, all, [ALL]);
    const int lane = (int)threadIdx.x % lanes;
    const int first = channels > 1 && !g.background;
    double totals[ALL] = {};

    for (int64_t base = 0; base < pairs; base += BLOCK / lanes) {
        int64_t pair = base + (int)threadIdx.x / lanes;
        int64_t set = pair / channels;
        int c = (int)(pair % channels);
        double sum[SUMS] = {};
        if (pair < pairs)
            for (int i = lane; i < count; i += lanes)
#pragma unroll
                for (int k = 0; k < SUMS; k++)
                    sum[k] +=
                        parts[((set * count + i) * SUMS + k) * channels + c];
#pragma unroll
        for (int k = 0; k < SUMS; k++) sum[k] = warp_sum(sum[k], lanes);
        if (pair >= pairs || lane) continue;
        Coef grad = {0, 0};
        bool empty = sum[SUM_I] + sum[SUM_B] == 0; // T
        if (c >= first && !(g.skip_empty && empty)) {
            totals[MISSED] += miss(g, sum, &grad);
            totals[COUNTED]++;
        }
        coef[pair] = grad;
        // cross entropy and its mask are over the batch in any case
        totals[BCE] += sum[SUM_BCE], totals[MASK] += sum[SUM_M];
    }

    block_sums<ALL>(totals, all);
    __syncthreads();
    if (threadIdx.x) return;
    if (!own) return region_end(g, all, y, factors);
    for (int k = 0; k < ALL; k++) own[k] = step->shard.idle ? 0 : all[k];
}

/* The same from the sums of all ranks. */
__global__ void region_loss_all_ranks_kernel(const __grid_constant__ Region g,
                                             const double *all, float *y,
                                             Factors *factors)
{
    region_end(g, all, y, factors);
}

/* For several ranks that score over the batch: the sums of a class over the
 * parts of this rank, in place of the first part; one block a class. */
__global__ void __launch_bounds__(BLOCK)
    region_loss_rank_sums_kernel(double *parts, int count, int channels,
                                 const Step *step)
{
    double sum[SUMS] = {};
    const int c = (int)blockIdx.x;
    for (int i = (int)threadIdx.x; i < count; i += BLOCK)
        for (int k = 0; k < SUMS; k++)
            sum[k] += parts[((int64_t)i * SUMS + k) * channels + c];
    SMEM(double, all, [SUMS]);
    block_sums<SUMS>(sum, all);
    __syncthreads();
    const int k = (int)threadIdx.x;
    if (k < SUMS) parts[k * channels + c] = step->shard.idle ? 0 : all[k];
}

// -- gradient ----------------------------------------------------------------

__device__ __forceinline__ float grad_at(Coef k, Truth u)
{
    return u.w * (u.t * k.one + (1 - u.t) * k.none);
}

/* One channel, dx = dL/ds s (1 - s): the function for view4_grads. */
struct SigmoidGrad {
    float pos_weight;
    const float *dy;
    const Coef *coef;
    const Factors *factors;
    float share, bce; // times dy after open()
    Coef own;

    __device__ void open(int64_t set)
    {
        share = *dy * factors->share, bce = *dy * factors->bce;
        own = coef[set];
    }
    __device__ float operator()(float x, float t, float w) const
    {
        Both s = logistic(x);
        float g = share * grad_at(own, {1, w, t}) * (s.pos * s.neg);
        return bce != 0 ? g + bce * w * cross_grad(pos_weight, x, t) : g;
    }
};

/* Several channels: dx_c = s_c (g_c - sum_k s_k g_k), g = dL/ds. As the s_k add
 * up to 1, the g may be taken relative to the leader's: then the result for an
 * almost certain row is a sum of small terms, not the difference of large
 * ones. */
template <class L>
__global__ void __launch_bounds__(BLOCK, 4)
    region_loss_softmax_bwd_kernel(const __grid_constant__ Job j, uint32_t rows,
                                   const float *dy, const Coef *coef,
                                   const Factors *factors, float *dx,
                                   bool fresh)
{
    const float share = *dy * factors->share, bce = *dy * factors->bce;

    // at most 2^31 - 1 rows and 2^24 a step: no overflow
    for (uint32_t base = blockIdx.x * L::ROWS_AT_ONCE; base < rows;
         base += gridDim.x * L::ROWS_AT_ONCE) {
        uint32_t row = base + (uint32_t)group_of<L>();
        bool live = row < rows;
        if (!live) row = base;
        const int64_t at = (int64_t)row * j.channels;
        const Coef *k = coef + quotient(row, j.set_rows) * (int64_t)j.channels;
        ClassRow<L> r = class_row<L>(j.v.x + at, j.channels);
        Soft s = soft_of(r);
        Place p = place_of(j, row);
        Truth own = {0, 0, 0};
        float own_grad = 0;
        if (!L::WIDE && r.lane < j.channels) {
            own = truth_at(j, row, p, r.lane);
            own_grad = grad_at(k[r.lane], own);
        }
        auto truth = [&](int c) {
            return L::WIDE ? truth_at(j, row, p, c) : own;
        };
        auto grad = [&](int c) {
            return L::WIDE ? grad_at(k[c], truth(c)) : own_grad;
        };
        float lead = s.own_leader < 0 ? 0 : grad(s.own_leader);
        // a row of NaN has no leader: any lane will do
        lead = __shfl_sync(~0u, lead, s.leader & (L::COUNT - 1), L::COUNT);
        float mean = 0, scale = 1 / (1 + s.rest);
        bool some = false;
        OWN_CHANNELS(r, c)
        {
            some = some || truth(c).w != 0;
            mean += (grad(c) - lead) * (soft_exp(r, s, c) * scale);
        }
        mean = group_sum<L>(mean);
        // a row in which no channel counts has no gradient
        some = group_votes<L>(some) != 0;
        if (!live) continue;
        OWN_CHANNELS(r, c)
        {
            Truth u = truth(c);
            float prob = soft_exp(r, s, c) * scale, g = 0;
            if (some) g = share * ((grad(c) - lead - mean) * prob);
            if (u.w != 0 && bce != 0)
                g += bce * u.w * cross_grad(j.pos_weight, r.at(c), u.t);
            put(&dx[at + c], g, fresh);
        }
    }
}

// -- launches ----------------------------------------------------------------

int64_t sets_of(const Call *c)
{
    return region_of(c->attr).per_sample ? c->x[0]->dim.n : 1;
}

Job job_of(const Call *c, int64_t sets)
{
    Dims x = c->x[0]->dim;
    Region g = region_of(c->attr);
    Job j = {};
    j.v = loss_views(c, sets);
    // FLAT works by elements; with several channels all kernels work by rows
    if (x.c > 1) j.v.way = (Way)most(j.v.way, ROWS);
    j.channels = x.c, j.rows = rows(x) / sets;
    j.set_rows = divisor(j.rows);
    j.bce = g.bce != 0, j.pos_weight = g.pos_weight;
    j.numbers = x.c > 1 && c->x[1]->dim.c == 1;
    return j;
}

/* Parts of a set, in quads or in rows. */
int region_parts(const Call *c, int64_t sets, int64_t *part)
{
    Dims x = c->x[0]->dim;
    int64_t all = numel(x) / sets;
    return loss_parts(sets, x.c > 1 ? rows(x) / sets : ceil_div(all, QUAD), all,
                      part);
}

Space region_space(const Call *c)
{
    int64_t sets = sets_of(c), part, pairs = sets * c->x[0]->dim.c;
    Space s = {};
    s.saved = (size_t)pairs * sizeof(Coef) + sizeof(Factors);
    s.fwd =
        (size_t)(pairs * region_parts(c, sets, &part) * SUMS) * sizeof(double);
    return s;
}

/* The second stage: reduces the partial sums of the blocks to the loss and to
 * the coefficients of the backward pass. Several ranks all-reduce the sums of
 * each class, or, where each sample is scored by itself, the totals of loss and
 * count. */
bool region_finish(const Call *c, int64_t sets, double *sums, int parts)
{
    cudaStream_t stream = gpu_stream(c->dev);
    const Region g = region_of(c->attr);
    const int channels = c->x[0]->dim.c;
    const int64_t pairs = sets * channels;
    Coef *coef = (Coef *)c->saved;
    Factors *factors = (Factors *)(coef + pairs);
    const bool shared = is_sharded(c), each = shared && g.per_sample;
    const Step *step = gpu_step(c->dev);

    if (shared && !each) {
        LAUNCH(region_loss_rank_sums_kernel, (unsigned)channels, BLOCK, 0,
               stream, sums, parts, channels, step);
        if (!gpu_launched("overlap loss, own sums") ||
            !gpu_allreduce(c->dev, sums, F64, (int64_t)SUMS * channels, 1))
            return false;
        parts = 1;
    }

    // no lanes without a part
    int lanes = WARP;
    while (lanes > parts) lanes /= 2;

    // the block reads the parts before it writes `own`
    LAUNCH(region_loss_finish_kernel, 1, BLOCK, 0, stream, g, sums, parts,
           lanes, pairs, channels, values(c->y), coef, factors,
           each ? sums : NULL, step);
    if (!gpu_launched("overlap loss, finish")) return false;
    if (!each) return true;
    if (!gpu_allreduce(c->dev, sums, F64, ALL, 1)) return false;
    LAUNCH(region_loss_all_ranks_kernel, 1, 1, 0, stream, g, sums, values(c->y),
           factors);
    return gpu_launched("overlap loss, end");
}

bool region_fwd(const Call *c)
{
    int64_t sets = sets_of(c), part;
    if (!countable(c, rows(c->x[0]->dim))) return false;
    Job j = job_of(c, sets);
    double *sums = (double *)c->scratch;
    cudaStream_t stream = gpu_stream(c->dev);
    int parts = region_parts(c, sets, &part);

    if (j.channels == 1) {
        SigmoidSums f = {j.bce, j.pos_weight};
        if (!view4_sums<SUMS, ONE_CHANNEL>(c, f, j.v, sets, j.rows, sums))
            return false;
    } else {
        dim3 grid((unsigned)(sets * parts),
                  (unsigned)ceil_div(j.channels, lanes_of(j.channels)));
        with_lanes<2>(j.channels, [&](auto l) {
            LAUNCH((region_loss_softmax_sums_kernel<decltype(l)>), grid, BLOCK,
                   0, stream, j, part, parts, sums);
        });
        if (!gpu_launched("overlap loss, sums")) return false;
    }
    return region_finish(c, sets, sums, parts);
}

bool region_bwd(const Call *c)
{
    only_dx0(c);
    if (!c->dx[0]) return true;
    int64_t sets = sets_of(c), all = rows(c->x[0]->dim);
    if (!countable(c, all)) return false;
    Job j = job_of(c, sets);
    const Coef *coef = (const Coef *)c->saved;
    const Factors *factors = (const Factors *)(coef + sets * j.channels);

    if (j.channels == 1) {
        SigmoidGrad f = {};
        f.pos_weight = j.pos_weight, f.dy = values(c->dy);
        f.coef = coef, f.factors = factors;
        return view4_grads<ONE_CHANNEL>(c, f, j.v, sets, j.rows);
    }

    with_lanes<2>(j.channels, [&](auto l) {
        LAUNCH((region_loss_softmax_bwd_kernel<decltype(l)>),
               class_blocks(all, j.channels), BLOCK, 0, gpu_stream(c->dev), j,
               (uint32_t)all, values(c->dy), coef, factors, values(c->dx[0]),
               is_fresh(c, 0));
    });
    return gpu_launched("overlap loss, gradients");
}

} // namespace

/* The launchers of an operator; region_of reads which one it is. */
#define REGION_LOSS(name)                    \
    Space cuda_##name##_space(const Call *c) \
    {                                        \
        return region_space(c);              \
    }                                        \
    bool cuda_##name##_fwd(const Call *c)    \
    {                                        \
        return region_fwd(c);                \
    }                                        \
    bool cuda_##name##_bwd(const Call *c)    \
    {                                        \
        return region_bwd(c);                \
    }
extern "C" {
REGION_LOSS(dice_loss)
REGION_LOSS(bce_dice)
REGION_LOSS(tversky)
}
