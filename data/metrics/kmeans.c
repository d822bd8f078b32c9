/* kmeans.c -- k-means++, Lloyd's iterations, silhouette, assignment. */
#include "data/metrics/kmeans.h"
#include "engine/base/rng.h"
#include <math.h>
#include <string.h>

/* Streams of random numbers: k-means++ of a start, points of a silhouette. */
enum { OP_CENTRES, OP_SAMPLE };

typedef struct Job {
    const Points *p;
    const KMeans *how;
    double *centre;   /* (k, dim)                                  */
    double *near;     /* (count): squared distance from the centre */
    int64_t *members; /* (k)                                       */
    int32_t *group;   /* (count)                                   */
} Job;

static const float *point(const Points *p, int64_t i)
{
    return p->x + i * p->dim;
}

/* Four partial sums: the order is fixed, and a compiler may use vectors. */
static double distance2(const float *x, const double *c, int dim)
{
    double sum[4] = {0};
    int j = 0;
    for (; j + 4 <= dim; j += 4)
        for (int l = 0; l < 4; l++) {
            double e = x[j + l] - c[j + l];
            sum[l] += e * e;
        }
    for (; j < dim; j++) sum[0] += (x[j] - c[j]) * (x[j] - c[j]);
    return sum[0] + sum[1] + sum[2] + sum[3];
}

static void put_centre(Job *j, int g, int64_t i)
{
    double *c = j->centre + (int64_t)g * j->p->dim;
    for (int d = 0; d < j->p->dim; d++) c[d] = point(j->p, i)[d];
}

/* k-means++: each further centre is a point drawn with a probability
 * proportional to its squared distance from the nearest centre so far. */
static bool draw_centres(Job *j, int start)
{
    const Points *p = j->p;
    Rng r = {.seed = j->how->seed,
             .stream = RNG_GROUP,
             .op = OP_CENTRES,
             .epoch = (uint32_t)start};

    for (int g = 0; g < j->how->k; g++) {
        double sum = 0, u = rng_uniform(&r, (uint32_t)g);
        int64_t chosen = 0;
        for (int64_t i = 0; g > 0 && i < p->count; i++) {
            const double *c = j->centre + (int64_t)(g - 1) * p->dim;
            double d = distance2(point(p, i), c, p->dim);
            if (g == 1 || d < j->near[i]) j->near[i] = d;
            sum += j->near[i];
        }
        if (g == 0) {
            chosen = (int64_t)(u * (double)p->count);
        } else if (!(sum > 0)) {
            return fail_data("k-means: %d groups, but only %d different "
                             "points; fix: fewer groups",
                             j->how->k, g);
        } else {
            // rounding may leave a remainder after the last point that can be
            // drawn
            double left = u * sum;
            for (int64_t i = 0; i < p->count; i++) {
                if (j->near[i] > 0) chosen = i;
                left -= j->near[i];
                if (left < 0 && j->near[i] > 0) break;
            }
        }
        put_centre(j, g, chosen);
    }
    return true;
}

/* Assigns each point to its nearest centre; did a group change? */
static bool assign_points(Job *j)
{
    const Points *p = j->p;
    bool changed = false;

    for (int64_t i = 0; i < p->count; i++) {
        int32_t best = 0;
        double least = INFINITY;
        for (int32_t g = 0; g < j->how->k; g++) {
            double d =
                distance2(point(p, i), j->centre + (int64_t)g * p->dim, p->dim);
            if (d < least) least = d, best = g;
        }
        changed |= j->group[i] != best;
        j->group[i] = best, j->near[i] = least;
    }
    return changed;
}

/* A group without points gets the point furthest from its centre, taken from a
 * group with more than one point. Such a group exists, because the centres were
 * drawn from as many distinct points. */
static void fill_empty(Job *j)
{
    memset(j->members, 0, (size_t)j->how->k * sizeof *j->members);
    for (int64_t i = 0; i < j->p->count; i++) j->members[j->group[i]]++;

    for (int g = 0; g < j->how->k; g++) {
        if (j->members[g]) continue;
        int64_t far = -1;
        for (int64_t i = 0; i < j->p->count; i++)
            if (j->members[j->group[i]] > 1 &&
                (far < 0 || j->near[i] > j->near[far]))
                far = i;
        CHECK(far >= 0);
        j->members[j->group[far]]--;
        j->group[far] = g, j->members[g] = 1, j->near[far] = 0;
    }
}

/* Moves each centre to the mean of its group. */
static void move_centres(Job *j)
{
    const Points *p = j->p;
    int k = j->how->k;
    memset(j->centre, 0, (size_t)k * (size_t)p->dim * sizeof *j->centre);
    for (int64_t i = 0; i < p->count; i++) {
        double *c = j->centre + (int64_t)j->group[i] * p->dim;
        for (int d = 0; d < p->dim; d++) c[d] += point(p, i)[d];
    }
    for (int g = 0; g < k; g++)
        for (int d = 0; d < p->dim; d++)
            j->centre[(int64_t)g * p->dim + d] /= (double)j->members[g];
}

/* Runs one start to its end; *spread: its sum of squares. */
static bool run_start(Job *j, int start, double *spread)
{
    for (int64_t i = 0; i < j->p->count; i++) j->group[i] = -1;
    if (!draw_centres(j, start)) return false;
    bool changed = true;
    for (int step = 0; changed && step <= j->how->steps; step++) {
        if (step) move_centres(j);
        changed = assign_points(j);
        fill_empty(j);
    }
    *spread = 0;
    for (int64_t i = 0; i < j->p->count; i++) *spread += j->near[i];
    return true;
}

static bool check_points(const Points *p, int k)
{
    if (k < 1 || k > p->count)
        return fail_usage("k-means: %d groups of %lld points; want 1 to %lld",
                          k, (long long)p->count, (long long)p->count);
    for (int64_t i = 0; i < p->count * p->dim; i++)
        if (!isfinite(p->x[i]))
            return fail_diverged("k-means: number %lld of point %lld is %g",
                                 (long long)(i % p->dim + 1),
                                 (long long)(i / p->dim + 1), (double)p->x[i]);
    return true;
}

/* Numbers the groups in the order of their first points. */
static void rename_groups(int32_t *group, int64_t count, int32_t *name, int k)
{
    int32_t next = 0;
    for (int g = 0; g < k; g++) name[g] = -1;
    for (int64_t i = 0; i < count; i++) {
        if (name[group[i]] < 0) name[group[i]] = next++;
        group[i] = name[group[i]];
    }
}

bool kmeans_run(const Points *p, const KMeans *how, int32_t *group,
                double *spread)
{
    if (!check_points(p, how->k)) return false;
    Arena a = {0};
    bool ok = false;
    Job j = {p, how, NULL, NULL, NULL, NULL};
    size_t numbers;
    TRY(size_mul((size_t)how->k, (size_t)p->dim, &numbers));
    TRY(j.centre = ARENA_NEW(&a, double, numbers));
    TRY(j.near = ARENA_NEW(&a, double, p->count));
    TRY(j.members = ARENA_NEW(&a, int64_t, how->k));
    TRY(j.group = ARENA_NEW(&a, int32_t, p->count));
    int32_t *name = ARENA_NEW(&a, int32_t, how->k);
    TRY(name);
    *spread = INFINITY;

    for (int s = 0; s < how->starts; s++) {
        double sum;
        TRY(run_start(&j, s, &sum));
        if (!(sum < *spread)) continue;
        *spread = sum;
        memcpy(group, j.group, (size_t)p->count * sizeof *group);
    }

    rename_groups(group, p->count, name, how->k);
    ok = true;

done:
    arena_release(&a);
    return ok;
}

// -- silhouette --------------------------------------------------------------

static double distance(const Points *p, int64_t a, int64_t b)
{
    const float *x = point(p, a), *y = point(p, b);
    double sum = 0;
    for (int d = 0; d < p->dim; d++) {
        double e = (double)x[d] - y[d];
        sum += e * e;
    }
    return sqrt(sum);
}

/* Returns s of one of the n selected points; sum and members: (k). */
static double silhouette_of(const Points *p, const int32_t *group, int k,
                            const uint32_t *which, int64_t n, int64_t own,
                            double *sum, int64_t *members)
{
    memset(sum, 0, (size_t)k * sizeof *sum);
    memset(members, 0, (size_t)k * sizeof *members);
    int32_t g = group[which[own]];
    for (int64_t i = 0; i < n; i++) {
        if (i == own) continue;
        sum[group[which[i]]] += distance(p, which[own], which[i]);
        members[group[which[i]]]++;
    }

    if (!members[g]) return 0;
    double a = sum[g] / (double)members[g], b = INFINITY;
    for (int o = 0; o < k; o++)
        if (o != g && members[o] && sum[o] / (double)members[o] < b)
            b = sum[o] / (double)members[o];
    double larger = a > b ? a : b;
    return isfinite(b) && larger > 0 ? (b - a) / larger : 0;
}

bool silhouette(const Points *p, const int32_t *group, int k, int64_t most,
                uint64_t seed, double *mean)
{
    Arena a = {0};
    bool ok = false;
    Rng r = {.seed = seed, .stream = RNG_GROUP, .op = OP_SAMPLE};
    int64_t n = p->count < most ? p->count : most;

    CHECK(p->count <= UINT32_MAX);
    uint32_t *which = ARENA_NEW(&a, uint32_t, p->count);
    TRY(which);
    double *sum = ARENA_NEW(&a, double, k);
    TRY(sum);
    int64_t *members = ARENA_NEW(&a, int64_t, k);
    TRY(members);
    rng_permutation(&r, (uint32_t)p->count, which);
    *mean = 0;
    for (int64_t i = 0; i < n; i++)
        *mean += silhouette_of(p, group, k, which, n, i, sum, members);
    *mean /= n > 0 ? (double)n : 1;
    ok = true;

done:
    arena_release(&a);
    return ok;
}

// -- assignment --------------------------------------------------------------

/* Rows and columns are counted from 1; column 0 holds the row to be placed.
 * cost = -count; u and v are the dual variables, always with cost - u - v >=
 * 0. */
typedef struct Assignment {
    const double *count;
    int k;
    double *u, *v, *least;
    int *row_of, *from;
    bool *done;
} Assignment;

/* Assigns a column to row `row`; rows that hold a column on the way are moved
 * along the cheapest path to a free column. */
static void place_row(Assignment *s, int row)
{
    int column = 0;
    s->row_of[0] = row;
    for (int b = 0; b <= s->k; b++) s->least[b] = INFINITY, s->done[b] = false;

    do {
        s->done[column] = true;
        int a = s->row_of[column], next = 0;
        double step = INFINITY;
        for (int b = 1; b <= s->k; b++) {
            if (s->done[b]) continue;
            double c = -s->count[(a - 1) * s->k + b - 1] - s->u[a] - s->v[b];
            if (c < s->least[b]) s->least[b] = c, s->from[b] = column;
            if (s->least[b] < step) step = s->least[b], next = b;
        }
        for (int b = 0; b <= s->k; b++) {
            if (s->done[b])
                s->u[s->row_of[b]] += step, s->v[b] -= step;
            else
                s->least[b] -= step;
        }
        column = next;
    } while (s->row_of[column]);

    for (; column; column = s->from[column])
        s->row_of[column] = s->row_of[s->from[column]];
}

bool assign_groups(const double *count, int k, int32_t *match)
{
    Arena a = {0};
    bool ok = false;
    Assignment s = {.count = count, .k = k};

    TRY(s.u = ARENA_NEW(&a, double, k + 1));
    TRY(s.v = ARENA_NEW(&a, double, k + 1));
    TRY(s.least = ARENA_NEW(&a, double, k + 1));
    TRY(s.row_of = ARENA_NEW(&a, int, k + 1));
    TRY(s.from = ARENA_NEW(&a, int, k + 1));
    TRY(s.done = ARENA_NEW(&a, bool, k + 1));
    for (int row = 1; row <= k; row++) place_row(&s, row);
    for (int b = 1; b <= k; b++) match[s.row_of[b] - 1] = b - 1;
    ok = true;

done:
    arena_release(&a);
    return ok;
}
