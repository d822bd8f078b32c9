/* dvh.c -- the loss between two dose-volume histograms, fast.
 *
 * The formula is in cpu/ref/dvh.c. All numbers are in double here too, for the
 * reason given in simd/dvh.c. It is faster because bins lie along the vectors
 * (simd/dvh.c), padded to whole ones, and because both sigmoids of a bin share
 * a division. A task is a range of voxels, cut by shapes alone, with sums of
 * its own, which are added in order.
 *
 * Bound by arithmetic: a division for each bin of a voxel that is in a
 * structure, and a multiply-add for each structure that it is in. */
#include "cpu/lib/blocks.h"
#include "cpu/lib/kernels.h"
#include "cpu/lib/simd.h"
#include "engine/graph/dose_bins.h"
#include <math.h>
#include <string.h>

enum {
    GRAIN = 4096, // voxels of a task at least
    PARTS = 64,   // tasks of a sample at most: partial sums stay small
    WIDE = DOSE_BINS + LANES_MAX,
};

typedef struct Job {
    const Call *c;
    const Simd *simd;
    int64_t size, structures; /* voxels of a sample, S */
    int64_t bins, wide;       /* B; B rounded up to whole vectors */
    int64_t part, parts;      /* voxels of a task; tasks a sample */
    double scale;             /* u = scale x */
    double rise[WIDE];        /* e^(steep b), 0 after the last */
    double *sums;             /* (N, parts, S, wide + 1): H and M */
    const double *g;          /* (N, S, wide), of bwd */
} Job;

static void job_init(Job *j, const Call *c)
{
    const Dims x = c->x[0]->dim;
    *j = (Job){.c = c,
               .simd = simd(),
               .size = positions(x),
               .structures = c->x[2]->dim.c,
               .bins = c->attr->dvh_loss.bins};

    // for the widest set, so that space asked for before a set is chosen fits
    j->wide = ceil_div(j->bins, LANES_MAX) * LANES_MAX;
    j->part = most(GRAIN, ceil_div(j->size, PARTS));
    j->parts = ceil_div(j->size, j->part);
    j->scale = (double)c->attr->dvh_loss.steep / c->attr->dvh_loss.width;
    for (int b = 0; b < j->bins; b++)
        j->rise[b] = exp((double)c->attr->dvh_loss.steep * (b + 1));
}

/* Saved: G (N, S, wide). */
Space cpu_dvh_loss_space(const Call *c)
{
    Job j;
    job_init(&j, c);
    const int64_t pairs = c->x[0]->dim.n * j.structures;
    return (Space){
        .saved = (size_t)(pairs * j.wide) * sizeof(double),
        .fwd = (size_t)(pairs * j.parts * (j.wide + 1)) * sizeof(double),
    };
}

/* Weights of voxel `at` in the structures; NULL if it is in none. */
static const float *inside(const Job *j, int64_t at)
{
    const float *m = floats(j->c->x[2], at * j->structures);
    for (int64_t s = 0; s < j->structures; s++)
        if (m[s] != 0) return m;
    return NULL;
}

static void sums_task(void *ctx, int64_t task, int thread)
{
    const Job *j = ctx;
    const int64_t set = task / j->parts, from = task % j->parts * j->part;
    const int64_t first = set * j->size, width = j->wide + 1;
    const int64_t to = least(from + j->part, j->size);
    double *sum = j->sums + task * j->structures * width, diff[WIDE];

    (void)thread;
    memset(sum, 0, (size_t)(j->structures * width) * sizeof *sum);

    for (int64_t at = first + from; at < first + to; at++) {
        const float *m = inside(j, at);
        if (!m) continue;
        j->simd->dose_diff(dose_fall(j->scale * *floats(j->c->x[0], at)),
                           dose_fall(j->scale * *floats(j->c->x[1], at)),
                           j->rise, j->wide, diff);
        for (int64_t s = 0; s < j->structures; s++) {
            if (m[s] == 0) continue;
            j->simd->dose_add(diff, m[s], j->wide, sum + s * width);
            sum[s * width + j->wide] += m[s];
        }
    }
}

/* Adds the parts, adds the squares of H / M and the number of non-empty pairs
 * (sample, structure) to total, and writes G without its last factor. */
static void join(const Job *j, int64_t samples, double *g, double total[2])
{
    const int64_t width = j->wide + 1, one = j->structures * width;
    for (int64_t k = 0; k < samples * j->structures; k++) {
        const int64_t set = k / j->structures, s = k % j->structures;
        double *h = j->sums + set * j->parts * one + s * width;
        for (int64_t p = 1; p < j->parts; p++)
            for (int64_t b = 0; b < width; b++) h[b] += h[p * one + b];
        const double m = h[j->wide];
        for (int64_t b = 0; b < j->wide; b++) {
            double d = m > 0 && b < j->bins ? h[b] / m : 0;
            total[0] += d * d;
            g[k * j->wide + b] = m > 0 ? 2 * d * j->scale / m : 0;
        }
        total[1] += m > 0;
    }
}

bool cpu_dvh_loss_fwd(const Call *c)
{
    Job j;
    const Dims x = c->x[0]->dim;
    double *g = c->saved, total[2] = {0};

    job_init(&j, c);
    j.sums = c->scratch;
    pool_run(c->dev, x.n * j.parts, sums_task, &j);
    join(&j, x.n, g, total);
    if (!sum_ranks(c, total, 2)) return false;
    const double share = total[1] > 0 ? 1 / (total[1] * (double)j.bins) : 0;
    for (int64_t k = 0; k < x.n * j.structures * j.wide; k++) g[k] *= share;
    *floats(c->y, 0) = (float)(total[0] * share);
    return true;
}

/* dx of each voxel. */
static void grad_task(void *ctx, int64_t task, int thread)
{
    const Job *j = ctx;
    const Call *c = j->c;
    const int64_t set = task / j->parts, from = task % j->parts * j->part;
    const int64_t to = least(from + j->part, j->size);
    const double *g = j->g + set * j->structures * j->wide;
    const double dy = *floats(c->dy, 0);
    double sum[WIDE];
    (void)thread;

    for (int64_t at = set * j->size + from; at < set * j->size + to; at++) {
        const float *m = inside(j, at);
        double grad = 0;
        if (m) {
            memset(sum, 0, (size_t)j->wide * sizeof *sum);
            for (int64_t s = 0; s < j->structures; s++)
                if (m[s] != 0)
                    j->simd->dose_add(g + s * j->wide, m[s], j->wide, sum);
            grad =
                j->simd->dose_grad(dose_fall(j->scale * *floats(c->x[0], at)),
                                   j->rise, sum, j->wide);
        }
        float *dx = floats(c->dx[0], at);
        *dx = (float)(c->fresh & 1 ? dy * grad : *dx + dy * grad);
    }
}

bool cpu_dvh_loss_bwd(const Call *c)
{
    Job j;
    // target and structures are constants for the planner
    for (int i = 1; i < MAX_IN; i++) CHECK(!c->dx[i]);
    if (!c->dx[0]) return true;
    job_init(&j, c);
    j.g = c->saved;
    pool_run(c->dev, c->x[0]->dim.n * j.parts, grad_task, &j);
    return true;
}
