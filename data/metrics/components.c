/* components.c -- see components.h.
 *
 * The first pass lists the runs of every row and joins touching runs of
 * neighbouring rows; the second numbers the components. A set of runs is
 * represented by its first run, so that numbers follow the order of memory,
 * whatever the order of the joins. */
#include "data/metrics/components.h"
#include <math.h>
#include <string.h>

typedef struct Job {
    const uint8_t *x;
    int32_t w, h, d;
    uint8_t value;
    bool others;
    Components *c;
} Job;

static bool wanted(const Job *j, uint8_t v)
{
    return (v == j->value) != j->others;
}

/* Writes the runs of a row to `to` unless that is NULL; returns their
 * number. */
static int64_t row_runs(const Job *j, int64_t row, Run *to)
{
    const uint8_t *x = j->x + row * j->w;
    int64_t count = 0;

    for (int32_t i = 0; i < j->w;) {
        if (!wanted(j, x[i])) {
            i++;
            continue;
        }
        const int32_t from = i;
        while (i < j->w && wanted(j, x[i])) i++;
        if (to) to[count] = (Run){from, i, 0};
        count++;
    }
    return count;
}

/* Returns the first run of a set. Until components are numbered, `piece` is the
 * parent of a run in its set; the first run of a set is its own parent. */
static int32_t first_of(Run *run, int32_t i)
{
    while (run[i].piece != i) {
        run[i].piece = run[run[i].piece].piece;
        i = run[i].piece;
    }
    return i;
}

static void join(Run *run, int32_t a, int32_t b)
{
    a = first_of(run, a), b = first_of(run, b);
    if (a < b)
        run[b].piece = a;
    else
        run[a].piece = b;
}

/* Joins touching runs of two rows; `reach` 1: also over a corner. */
static void join_rows(const Job *j, int64_t a, int64_t b, int32_t reach)
{
    Run *run = j->c->run;
    int64_t p = j->c->row[a], q = j->c->row[b];
    const int64_t p_end = j->c->row[a + 1], q_end = j->c->row[b + 1];

    while (p < p_end && q < q_end) {
        if (run[p].from < run[q].to + reach && run[q].from < run[p].to + reach)
            join(run, (int32_t)p, (int32_t)q);
        // the run that ends first can touch no further run
        if (run[p].to < run[q].to)
            p++;
        else
            q++;
    }
}

/* Joins every row with the rows before it in memory that it may touch. */
static void join_all(const Job *j, int connect)
{
    const int32_t reach = connect == 26;
    for (int32_t d = 0; d < j->d; d++)
        for (int32_t h = 0; h < j->h; h++) {
            const int64_t row = (int64_t)d * j->h + h;
            if (h > 0) join_rows(j, row - 1, row, reach);
            if (d == 0) continue;
            join_rows(j, row - j->h, row, reach);
            if (reach && h > 0) join_rows(j, row - j->h - 1, row, 1);
            if (reach && h + 1 < j->h) join_rows(j, row - j->h + 1, row, 1);
        }
}

/* Does a voxel of the run lie on a face? Pictures have no faces across d. */
static bool on_border(const Job *j, int64_t row, const Run *r)
{
    const int64_t h = row % j->h, d = row / j->h;
    const bool point = j->w == 1 && j->h == 1 && j->d == 1;
    return point || (j->w > 1 && (r->from == 0 || r->to == j->w)) ||
           (j->h > 1 && (h == 0 || h == j->h - 1)) ||
           (j->d > 1 && (d == 0 || d == j->d - 1));
}

/* Numbers the components, and finds their sizes and if they reach a face. The
 * first run of a set precedes the others, so its number is already known. */
static bool number_pieces(const Job *j)
{
    Components *c = j->c;
    const int64_t rows = (int64_t)j->h * j->d, runs = c->row[rows];
    for (int32_t i = 0; i < runs; i++) c->count += c->run[i].piece == i;
    const size_t count = (size_t)c->count;
    c->size = mem_alloc(count * sizeof *c->size);
    c->border = mem_alloc(count * sizeof *c->border);
    if (!c->size || !c->border) return false;
    int32_t next = 0;

    for (int64_t row = 0; row < rows; row++)
        for (int64_t i = c->row[row]; i < c->row[row + 1]; i++) {
            Run *r = &c->run[i];
            // a parent precedes this run, so it has its number
            r->piece = r->piece == i ? next++ : c->run[r->piece].piece;
            c->size[r->piece] += r->to - r->from;
            c->border[r->piece] |= on_border(j, row, r);
        }
    return true;
}

bool components_find(const uint8_t *x, const int32_t n[3], uint8_t value,
                     bool others, int connect, Components *out)
{
    Job j = {x, n[0], n[1], n[2], value, others, out};
    const int64_t rows = (int64_t)j.h * j.d;
    CHECK(connect == 6 || connect == 26);
    *out = (Components){.count = 0};
    out->row = mem_alloc((size_t)(rows + 1) * sizeof *out->row);
    if (!out->row) return false;
    for (int64_t i = 0; i < rows; i++)
        out->row[i + 1] = out->row[i] + row_runs(&j, i, NULL);
    const int64_t runs = out->row[rows];
    if (runs > INT32_MAX) {
        components_free(out);
        return fail("a label of more than 2^31 - 1 runs of voxels");
    }
    out->run = mem_alloc((size_t)runs * sizeof *out->run);
    if (!out->run) {
        components_free(out);
        return false;
    }
    for (int64_t i = 0; i < rows; i++) row_runs(&j, i, out->run + out->row[i]);
    for (int32_t i = 0; i < runs; i++) out->run[i].piece = i;
    join_all(&j, connect);

    // first_of only halves paths; numbering needs the root of each run
    for (int32_t i = 0; i < runs; i++)
        out->run[i].piece = first_of(out->run, i);
    if (number_pieces(&j)) return true;
    components_free(out);
    return false;
}

void components_free(Components *c)
{
    mem_free(c->row);
    mem_free(c->run);
    mem_free(c->size);
    mem_free(c->border);
    *c = (Components){.count = 0};
}

/* ---- clean-up ------------------------------------------------------------ */

/* Sets stays[i] for the `keep` largest components of at least `least` voxels,
 * taking the largest remaining one each time, or for all of them if keep is
 * 0. */
static int64_t choose(const Components *c, const Tidy *how, bool *stays)
{
    int64_t chosen = 0;
    for (int32_t i = 0; i < c->count && !how->keep; i++)
        chosen += stays[i] = c->size[i] >= how->least;

    for (int32_t k = 0; k < how->keep; k++) {
        int32_t best = -1;
        for (int32_t i = 0; i < c->count; i++)
            if (!stays[i] && c->size[i] >= how->least &&
                (best < 0 || c->size[i] > c->size[best]))
                best = i;
        if (best < 0) break;
        stays[best] = true, chosen++;
    }
    return chosen;
}

/* Sets the components that do not stay to 0. */
static bool drop_pieces(uint8_t *x, const int32_t n[3], const Tidy *how,
                        TidyDone *done)
{
    Components c;
    if (!components_find(x, n, how->value, false, how->connect, &c))
        return false;
    bool *stays = mem_alloc((size_t)c.count * sizeof *stays);

    if (stays) {
        done->pieces = c.count;
        done->pieces_gone = c.count - choose(&c, how, stays);
        for (int64_t row = 0; row < (int64_t)n[1] * n[2]; row++)
            for (int64_t i = c.row[row]; i < c.row[row + 1]; i++) {
                const Run *r = &c.run[i];
                if (stays[r->piece]) continue;
                memset(x + row * n[0] + r->from, 0, (size_t)(r->to - r->from));
                done->voxels_gone += r->to - r->from;
            }
    }

    const bool ok = stays != NULL;
    mem_free(stays);
    components_free(&c);
    return ok;
}

/* Sets zeros in holes of a block to the class. */
static bool fill_holes(uint8_t *x, const int32_t n[3], const Tidy *how,
                       TidyDone *done)
{
    Components c;
    // complement of a class connected over corners: connected over faces only
    const int other = how->connect == 26 ? 6 : 26;

    if (!components_find(x, n, how->value, true, other, &c)) return false;
    for (int64_t row = 0; row < (int64_t)n[1] * n[2]; row++)
        for (int64_t i = c.row[row]; i < c.row[row + 1]; i++) {
            const Run *r = &c.run[i];
            if (c.border[r->piece]) continue;
            for (int64_t k = row * n[0] + r->from; k < row * n[0] + r->to;
                 k++) {
                done->voxels_filled += x[k] == 0;
                x[k] = x[k] ? x[k] : how->value;
            }
        }

    components_free(&c);
    return true;
}

bool labels_tidy(uint8_t *x, const int32_t n[3], const Tidy *how,
                 TidyDone *done)
{
    const int64_t plane = (int64_t)n[0] * n[1];
    const int32_t flat[3] = {n[0], n[1], 1};
    *done = (TidyDone){.pieces = 0};
    if ((how->keep || how->least) && !drop_pieces(x, n, how, done))
        return false;
    for (int32_t d = 0; how->fill_slices && d < n[2]; d++)
        if (!fill_holes(x + d * plane, flat, how, done)) return false;
    return !how->fill || fill_holes(x, n, how, done);
}

int64_t labels_least(double ml, const double mm[3])
{
    const double voxel = mm[0] * mm[1] * mm[2] / 1000;
    // the margin keeps rounding from removing a component of exactly `ml`
    const double least = ceil(ml / voxel * (1 - 1e-12));
    return least < 1e18 ? (int64_t)least : INT64_MAX;
}
