/* argsort.c -- the permutation that sorts each fibre.
 *
 * A merge sort: runs of RUN elements by insertion, then neighbouring runs are
 * merged until one is left, O(n log n). A stable sort has one result, so
 * threads share the runs of a level as they like. */
#include "cpu/ref/fibres.h"

enum { RUN = 32 };

typedef struct Item {
    real x;
    int32_t number; /* in its fibre of x */
} Item;

typedef struct Job {
    const Call *c;
    Fibres fibres;
    bool descending;
    int64_t width; /* of the sorted runs */
    int64_t runs;  /* of a fibre, at this or the next width */
    Item *from, *to;
} Job;

/* Does a number come before another one, which differs? NaN is the largest. */
static bool is_before(const Job *j, real a, real b)
{
    const real low = j->descending ? b : a, high = j->descending ? a : b;
    return low < high || (isnan(high) && !isnan(low));
}

/* Sorts runs of RUN elements of x into `to`. */
static void sort_runs(void *ctx, int64_t from, int64_t to)
{
    const Job *j = ctx;
    const int64_t length = j->fibres.length;
    for (int64_t run = from; run < to; run++) {
        const int64_t fibre = run / j->runs, first = run % j->runs * RUN;
        const real *x = values(j->c->x[0]) + fibre_start(&j->fibres, fibre);
        Item *out = j->to + fibre * length + first;
        for (int64_t i = 0; i < least(RUN, length - first); i++) {
            const Item v = {x[fibre_step(&j->fibres, first + i)],
                            (int32_t)(first + i)};
            int64_t k = i;
            for (; k > 0 && is_before(j, v.x, out[k - 1].x); k--)
                out[k] = out[k - 1];
            out[k] = v;
        }
    }
}

/* Merges pairs of runs from `from` to `to`. Of equals the left run's come
 * first. */
static void merge_runs(void *ctx, int64_t from, int64_t to)
{
    const Job *j = ctx;
    const int64_t length = j->fibres.length;
    for (int64_t pair = from; pair < to; pair++) {
        const int64_t first = pair % j->runs * 2 * j->width;
        const Item *in = j->from + pair / j->runs * length;
        Item *out = j->to + pair / j->runs * length;
        const int64_t middle = least(first + j->width, length);
        const int64_t end = least(first + 2 * j->width, length);
        int64_t a = first, b = middle;
        for (int64_t i = first; i < end; i++) {
            const bool right =
                b < end && (a == middle || is_before(j, in[b].x, in[a].x));
            out[i] = right ? in[b++] : in[a++];
        }
    }
}

/* Writes RUN elements of a fibre. */
static void results(void *ctx, int64_t from, int64_t to)
{
    const Job *j = ctx;
    const int64_t length = j->fibres.length;
    for (int64_t run = from; run < to; run++) {
        const int64_t fibre = run / j->runs, first = run % j->runs * RUN;
        real *y = values(j->c->y) + fibre_start(&j->fibres, fibre);
        for (int64_t k = first; k < least(first + RUN, length); k++)
            y[fibre_step(&j->fibres, k)] =
                (real)j->from[fibre * length + k].number;
    }
}

Space KERNEL(argsort_space)(const Call *c)
{
    return (Space){.fwd = 2 * (size_t)numel(c->y->dim) * sizeof(Item)};
}

bool KERNEL(argsort_fwd)(const Call *c)
{
    Item *const memory = c->scratch;
    Job j = {.c = c,
             .fibres = fibres_of(c->attr, c->y->dim),
             .descending = c->attr->argsort.descending,
             .from = memory + numel(c->y->dim),
             .to = memory};
    const int64_t runs = ceil_div(j.fibres.length, RUN);
    j.runs = runs;
    range_run(c, j.fibres.count * runs, RUN * RUN / 4, sort_runs, &j);
    for (j.width = RUN;; j.width *= 2) {
        Item *const sorted = j.to;
        j.to = j.from, j.from = sorted;
        if (j.width >= j.fibres.length) break;
        j.runs = ceil_div(j.fibres.length, 2 * j.width);
        range_run(c, j.fibres.count * j.runs, 8 * j.width, merge_runs, &j);
    }
    j.runs = runs;
    range_run(c, j.fibres.count * runs, 2 * RUN, results, &j);
    return true;
}
