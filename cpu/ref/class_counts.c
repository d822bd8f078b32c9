/* class_counts.c -- number of elements of each class that are predicted, true,
 * or both (`overlap`).
 *
 * One channel: predicted if logistic(x) > threshold, compared as x >
 * log(threshold / (1 - threshold)), so that the rounding of an exponential does
 * not matter; true if the target is at least 1/2. Several channels: predicted
 * is the first of the largest logits; true is the class number, or each channel
 * with at least 1/2. An element counts if its mask is not 0.
 *
 * Counts are integers until they are stored, so they are exact in double and
 * rounded once in float. */
#include "cpu/ref/view.h"

/* Classes that are counted in one pass over a sample. */
enum { BLOCK = 64 };

typedef struct Job {
    const Call *c;
    View t, m;  // target and mask, broadcast to the logits
    double cut; /* logit of the threshold */
} Job;

/* The first of the largest logits. */
static int largest(const real *x, int n)
{
    int best = 0;
    for (int i = 1; i < n; i++)
        if (x[i] > x[best]) best = i;
    return best;
}

/* An item is a block of classes of a sample. y has three neighbours a class:
 * predicted and true, predicted, true. A class number outside 0 .. C-1 is true
 * for no class. */
static void count_items(void *ctx, int64_t from, int64_t to)
{
    const Job *j = ctx;
    Dims s = j->c->x[0]->dim;
    int64_t blocks = ceil_div(s.c, BLOCK), count = positions(s);
    bool numbers = s.c > 1 && j->t.dim.c == 1;

    for (int64_t item = from; item < to; item++) {
        int64_t n = item / blocks, first = item % blocks * BLOCK;
        int64_t width = least(BLOCK, s.c - first);
        int64_t both[BLOCK] = {0}, predicted[BLOCK] = {0}, truth[BLOCK] = {0};
        for (int64_t row = n * count; row < (n + 1) * count; row++) {
            const real *x = values(j->c->x[0]) + row * s.c;
            const real *t = view_row(&j->t, row), *m = view_row(&j->m, row);
            int best = s.c > 1 ? largest(x, s.c) : x[0] > j->cut ? 0 : -1;
            for (int64_t i = 0; i < width; i++) {
                int64_t k = first + i;
                bool p = k == best, q = numbers ? t[0] == k : t[k] >= 0.5;
                if (m[k * j->m.step] == 0) continue;
                both[i] += p && q, predicted[i] += p, truth[i] += q;
            }
        }
        real *y = values(j->c->y) + 3 * (n * s.c + first);
        for (int64_t i = 0; i < width; i++) {
            y[3 * i] = (real)both[i];
            y[3 * i + 1] = (real)predicted[i];
            y[3 * i + 2] = (real)truth[i];
        }
    }
}

bool KERNEL(overlap_fwd)(const Call *c)
{
    Dims s = c->x[0]->dim;
    double p = c->attr->overlap.threshold;
    Job j = {.c = c, .t = view_of(c->x[1], s), .m = view_of(c->x[2], s)};
    // no probability is above 1, and all are above a threshold below 0
    j.cut = p <= 0 ? -INFINITY : p >= 1 ? INFINITY : log(p / (1 - p));
    range_run(c, s.n * ceil_div(s.c, BLOCK), positions(s) * s.c, count_items,
              &j);
    return true;
}
