/* dvh.c -- mean squared difference of the dose-volume histograms of two doses.
 *
 * With m the weight of voxel p in structure s of sample n, M its sum, and
 *
 *     H[n,s,b] = sum_p m (v_b(x) - v_b(t)),   v_b(x) = sigmoid(u - steep b),
 *     u = steep x / width,
 *
 * the loss is the mean of (H / M)^2 over the bins b and the pairs (n,s) that
 * have voxels; ops.def has the whole formula and its source. Its gradient
 *
 *     dL/dx = sum_s m sum_b G[n,s,b] v_b (1 - v_b),
 *     G = 2 H steep / (width M^2 pairs bins),
 *
 * depends on the sums only through G, which the forward run saves.
 *
 * Structures have few voxels: a voxel in no structure is not read, NaN
 * included, and the sigmoids of a voxel are computed once for all its
 * structures. The sigmoids of all bins take one exponential: e^(steep b - u) =
 * e^-u e^(steep b), with the second factor from a table; dose_bins.h bounds
 * both. */
#include "cpu/lib/plain.h"
#include "engine/graph/dose_bins.h"

typedef struct Job {
    const Call *c;
    int structures, bins;
    double scale;           /* u = scale x */
    double rise[DOSE_BINS]; /* e^(steep b) */
    const double *g;        /* G (N,S,B) of bwd */
    double dy;
} Job;

static void job_init(Job *j, const Call *c)
{
    const double steep = c->attr->dvh_loss.steep;
    *j = (Job){.c = c,
               .structures = c->x[2]->dim.c,
               .bins = c->attr->dvh_loss.bins,
               .scale = steep / c->attr->dvh_loss.width};
    for (int b = 0; b < j->bins; b++) j->rise[b] = exp(steep * (b + 1));
    for (int i = 1; i < MAX_IN; i++) CHECK(!c->dx[i]);
}

/* Weights of row `row` in the structures; NULL if it is in none. */
static const real *row_inside(const Job *j, int64_t row)
{
    const real *m = values(j->c->x[2]) + row * j->structures;
    for (int s = 0; s < j->structures; s++)
        if (m[s] != 0) return m;
    return NULL;
}

/* SumFn: a set is a sample, an item a position. sum[s][0 .. bins-1] are H,
 * sum[s][bins] is M. With a = e^-u of x and b of t, the difference of two
 * sigmoids 1/(1 + a) - 1/(1 + b) is (b - a) / ((1 + a) (1 + b)), which keeps
 * its digits where both are almost 1. */
static void sums_chunk(void *ctx, int64_t n, int64_t from, int64_t to,
                       double *sum)
{
    const Job *j = ctx;
    const int64_t first = n * positions(j->c->x[0]->dim);
    double diff[DOSE_BINS];

    for (int64_t row = first + from; row < first + to; row++) {
        const real *m = row_inside(j, row);
        if (!m) continue;
        double x = dose_fall(j->scale * values(j->c->x[0])[row]);
        double t = dose_fall(j->scale * values(j->c->x[1])[row]);
        for (int b = 0; b < j->bins; b++) {
            double p = 1 / (1 + x * j->rise[b]), q = 1 / (1 + t * j->rise[b]);
            diff[b] = (t - x) * j->rise[b] * p * q;
        }
        for (int s = 0; s < j->structures; s++) {
            double *own = sum + s * (j->bins + 1);
            if (m[s] == 0) continue;
            for (int b = 0; b < j->bins; b++) own[b] += (double)m[s] * diff[b];
            own[j->bins] += m[s];
        }
    }
}

/* Saved: G. */
Space KERNEL(dvh_loss_space)(const Call *c)
{
    Dims x = c->x[0]->dim;
    int64_t s = c->x[2]->dim.c, bins = c->attr->dvh_loss.bins;
    return (Space){
        .saved = (size_t)(x.n * s * bins) * sizeof(double),
        .fwd = sum_bytes(x.n, positions(x), s * (bins + 1)),
    };
}

bool KERNEL(dvh_loss_fwd)(const Call *c)
{
    Job j;
    job_init(&j, c);
    const Dims x = c->x[0]->dim;
    const int64_t width = j.bins + 1, pairs = x.n * (int64_t)j.structures;
    const double *sums = sum_run(c, x.n, positions(x), j.structures * width,
                                 sums_chunk, &j, c->scratch);
    double *g = c->saved, total[2] = {0}; // sum of squares; number of pairs
                                          // with voxels
    for (int64_t k = 0; k < pairs; k++) {
        const double *h = sums + k * width, m = h[j.bins];
        for (int b = 0; b < j.bins; b++) {
            double d = m > 0 ? h[b] / m : 0;
            total[0] += d * d;
            g[k * j.bins + b] = m > 0 ? 2 * d * j.scale / m : 0;
        }
        total[1] += m > 0;
    }
    if (!sum_ranks(c, total, 2)) return false;
    const double share = total[1] > 0 ? 1 / (total[1] * j.bins) : 0;
    for (int64_t k = 0; k < pairs * j.bins; k++) g[k] *= share;
    put(values(c->y), total[0] * share, true);
    return true;
}

/* dx of each voxel. */
static void gradient_rows(void *ctx, int64_t from, int64_t to)
{
    const Job *j = ctx;
    const Dims x = j->c->x[0]->dim;
    const bool fresh = is_fresh(j->c, 0);
    double sum[DOSE_BINS];

    for (int64_t row = from; row < to; row++) {
        const real *m = row_inside(j, row);
        const double *g = j->g + row / positions(x) * j->structures * j->bins;
        double grad = 0;
        if (m) {
            memset(sum, 0, sizeof sum);
            for (int s = 0; s < j->structures; s++)
                for (int b = 0; m[s] != 0 && b < j->bins; b++)
                    sum[b] += (double)m[s] * g[s * j->bins + b];
            double e = dose_fall(j->scale * values(j->c->x[0])[row]);
            for (int b = 0; b < j->bins; b++) {
                double v = 1 / (1 + e * j->rise[b]);
                grad += sum[b] * v * (e * j->rise[b] * v);
            }
        }
        put(values(j->c->dx[0]) + row, j->dy * grad, fresh);
    }
}

bool KERNEL(dvh_loss_bwd)(const Call *c)
{
    if (!c->dx[0]) return true;
    Job j;
    job_init(&j, c);
    j.g = c->saved, j.dy = *values(c->dy);
    range_run(c, rows(c->x[0]->dim), 8 * (int64_t)j.structures, gradient_rows,
              &j);
    return true;
}
