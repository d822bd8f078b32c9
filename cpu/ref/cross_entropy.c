/* cross_entropy.c -- softmax cross entropy with class numbers.
 *
 * x (N,D,H,W,C) logits, target (N,D,H,W,1) numbers 0 .. C-1 or `ignore`. The
 * mask has one channel, the weight one or C (then the true class selects). The
 * mean is over M = sum of the mask where the target is not `ignore`; the weight
 * is not in M. A counted number that is no class makes the loss NaN; the
 * forward run then searches for it and fails with its value.
 *
 * Where the mask is 0, neither logits nor target are read. Where only the
 * weight is 0, the logits are not read. */
#include "cpu/ref/loss.h"

typedef struct Job {
    const Call *c;
    LossViews views;
    double ignore, factor; /* dy / M */
} Job;

/* A Job without its factor, which only the backward run has. */
static Job job_of(const Call *c)
{
    return (Job){c, loss_views(c), c->attr->cross_entropy.ignore, 0};
}

/* Mask of a row; 0 if it does not count, because of the mask or of `ignore`. */
static double counted(const Job *j, int64_t row)
{
    double m = *view_row(&j->views.m, row);
    return m == 0 || *view_row(&j->views.t, row) == j->ignore ? 0 : m;
}

/* The true class of a row, or -1 if the target is no class: outside 0 .. C-1,
 * NaN, or between two classes, as in an interpolated mask. Only for rows that
 * count: elsewhere the target may be anything. */
static int true_class(const Job *j, int64_t row)
{
    double t = *view_row(&j->views.t, row);
    // the range first: only then is the conversion defined
    return t >= 0 && t < j->views.x.c && t == (int)t ? (int)t : -1;
}

/* Weight q of the true class; a weight with one channel has step 0. */
static double weight_of(const Job *j, int64_t row, int class)
{
    return view_row(&j->views.q, row)[class * j->views.q.step];
}

/* Returns the sum of log sum exp of a row = max + log(sum). */
static double row_sum(const real *x, int n, double *max)
{
    double sum = 0;
    *max = x[0];
    for (int i = 1; i < n; i++) *max = x[i] > *max ? x[i] : *max;
    for (int i = 0; i < n; i++) sum += exp(x[i] - *max);
    return sum;
}

/* -log softmax(x)[t]. */
static double row_loss(const real *x, int n, int t)
{
    double max, sum = row_sum(x, n, &max);
    return log(sum) + (max - x[t]);
}

/* sum[0]: the weighted losses; sum[1]: M. */
static void value_chunk(void *ctx, int64_t set, int64_t from, int64_t to,
                        double *sum)
{
    const Job *j = ctx;
    int classes = j->views.x.c;
    (void)set;

    for (int64_t row = from; row < to; row++) {
        double m = counted(j, row);
        if (m == 0) continue;
        const real *x = values(j->c->x[0]) + row * classes;
        int t = true_class(j, row);
        double w = t < 0 ? 0 : m * weight_of(j, row, t);
        // a target that is no class: the loss becomes NaN and stays NaN
        if (t < 0) sum[0] = NAN;
        if (w != 0) sum[0] += w * row_loss(x, classes, t);
        sum[1] += m;
    }
}

/* M alone, for the backward run: fwd saves nothing. */
static void count_chunk(void *ctx, int64_t set, int64_t from, int64_t to,
                        double *sum)
{
    (void)set;
    for (int64_t row = from; row < to; row++) *sum += counted(ctx, row);
}

/* Scratch of the sums; nothing is saved. */
Space KERNEL(cross_entropy_space)(const Call *c)
{
    int64_t n = rows(c->x[0]->dim);
    return (Space){.fwd = sum_bytes(1, n, 2), .bwd = sum_bytes(1, n, 1)};
}

/* Fails with the first counted target that is no class. Called only after a
 * NaN. The NaN may come from the logits: then all targets are classes, and the
 * loss is NaN without an error. The same holds for a target that is not finite:
 * data are finite, so a network computed this one and has diverged. */
bool KERNEL(cross_entropy_check)(const Call *c)
{
    const Job j = job_of(c);
    for (int64_t row = 0, n = rows(j.views.x); row < n; row++)
        if (counted(&j, row) != 0 && true_class(&j, row) < 0 &&
            isfinite(*view_row(&j.views.t, row)))
            return fail_data("the target holds %g, want a class number from 0 "
                             "to %d, or %g to be ignored",
                             (double)*view_row(&j.views.t, row),
                             j.views.x.c - 1, j.ignore);
    return true;
}

bool KERNEL(cross_entropy_fwd)(const Call *c)
{
    Job j = job_of(c);
    double *sum =
        sum_run(c, 1, rows(j.views.x), 2, value_chunk, &j, c->scratch);
    bool bad = isnan(sum[0]); // a wrong target of this rank, not of another
    if (!sum_ranks(c, sum, 2)) return false;
    put(values(c->y), sum[1] != 0 ? sum[0] / sum[1] : 0, true);
    return !bad || KERNEL(cross_entropy_check)(c);
}

/* dx = m q / M dy (softmax(x) - [is the true class]). */
static void gradient_rows(void *ctx, int64_t from, int64_t to)
{
    const Job *j = ctx;
    int classes = j->views.x.c;
    bool fresh = is_fresh(j->c, 0);

    for (int64_t row = from; row < to; row++) {
        const real *x = values(j->c->x[0]) + row * classes;
        real *dx = values(j->c->dx[0]) + row * classes;
        // m becomes the factor of the whole row: m q / M dy
        double m = counted(j, row), max = 0, sum = 1;
        int t = m == 0 ? 0 : true_class(j, row);
        if (m != 0) m *= weight_of(j, row, t) * j->factor;
        if (m != 0) sum = row_sum(x, classes, &max);
        for (int i = 0; i < classes; i++) {
            double g = m == 0 ? 0 : exp(x[i] - max) / sum - (i == t);
            put(dx + i, m * g, fresh);
        }
    }
}

bool KERNEL(cross_entropy_bwd)(const Call *c)
{
    double dy = loss_seed(c);
    if (!c->dx[0]) return true;
    Job j = job_of(c);
    int64_t n = rows(j.views.x);
    double total = *sum_run(c, 1, n, 1, count_chunk, &j, c->scratch);
    if (!sum_ranks(c, &total, 1)) return false;
    j.factor = total != 0 ? dy / total : 0;
    range_run(c, n, 8 * (int64_t)j.views.x.c, gradient_rows, &j);
    return true;
}
