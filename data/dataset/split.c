/* split.c -- splits a data set by patient or by slabs of slices.
 *
 * Patients, sorted by name, are assigned to parts first by lists and then by a
 * random permutation; a part is a view with the cases of its patients. Parts
 * share the store of the data set and own nothing else. dataset_leaks verifies
 * that no patient is in two parts, also for sets that were made separately. */
#include "data/dataset/split.h"
#include "data/dataset/dataset_build.h"
#include "engine/base/rng.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *part_names[PARTS] = {"train", "valid", "test"};

/* The distinct patients of a data set and the part of each. */
typedef struct Patients {
    const char **name; /* sorted                          */
    int *part;         /* SplitPart, or -1: not assigned  */
    uint32_t *order;   /* the random permutation          */
    int count;
} Patients;

static int text_order(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void patients_free(Patients *p)
{
    mem_free(p->name);
    mem_free(p->part);
    mem_free(p->order);
}

/* Sorts the names first, then permutes them: the draw does not depend on the
 * order of cases, nor on the number of cases of a patient. */
static bool patients_find(const Dataset *ds, uint64_t seed, Patients *p)
{
    size_t n = (size_t)ds->count;
    *p = (Patients){.name = mem_alloc(n * sizeof *p->name),
                    .part = mem_alloc(n * sizeof *p->part),
                    .order = mem_alloc(n * sizeof *p->order)};
    if (!p->name || !p->part || !p->order) {
        patients_free(p);
        return false;
    }
    for (int i = 0; i < ds->count; i++) p->name[i] = ds->cases[i].patient;
    qsort(p->name, n, sizeof *p->name, text_order);
    for (int i = 0; i < ds->count; i++)
        if (!i || strcmp(p->name[i], p->name[p->count - 1]))
            p->name[p->count++] = p->name[i];
    for (int i = 0; i < p->count; i++) p->part[i] = -1;
    const Rng draw = {.seed = seed, .stream = RNG_SPLIT};
    rng_permutation(&draw, (uint32_t)p->count, p->order);
    return true;
}

/* index of a patient in the sorted names, or -1 */
static int patients_at(const Patients *p, const char *name)
{
    const char **at =
        bsearch(&name, p->name, (size_t)p->count, sizeof *p->name, text_order);
    return at ? (int)(at - p->name) : -1;
}

/* A further fix if there are too few patients: one patient for several cases
 * may result from anonymisation. Follows the "; fix: " of a reason. */
static const char *one_for_all(const Dataset *ds, const Patients *p)
{
    return p->count == 1 && ds->count > 1
               ? ", or, if the cases are of several people, the option patient "
                 "of their reader in the script, as patient = \"folder\""
               : "";
}

/* Assigns the patients that a rule names to `part`. A name is a patient or the
 * key of a case. */
static bool take_named(const Dataset *ds, Patients *p,
                       const struct SplitRule *rule, int part)
{
    for (int i = 0; i < rule->name_count; i++) {
        int at = patients_at(p, rule->names[i]);
        for (int k = 0; at < 0 && k < ds->count; k++)
            if (!strcmp(ds->cases[k].key, rule->names[i]))
                at = patients_at(p, ds->cases[k].patient);
        if (at < 0)
            return fail_usage("split: %s: no patient or case \"%s\"",
                              part_names[part], rule->names[i]);
        if (p->part[at] >= 0 && p->part[at] != part)
            return fail_usage("split: \"%s\" is in %s and in %s",
                              rule->names[i], part_names[p->part[at]],
                              part_names[part]);
        p->part[at] = part;
    }
    return true;
}

/* Assigns the next `count` free patients of the random order to `part`. */
static bool take_drawn(const Dataset *ds, Patients *p, int count, int part)
{
    // patients assigned by a list are skipped, not counted
    int left = count;
    for (int i = 0; left > 0 && i < p->count; i++) {
        if (p->part[p->order[i]] >= 0) continue;
        p->part[p->order[i]] = part;
        left--;
    }

    if (left)
        return fail_data(
            "split: %s needs %d patient%s, only %d %s left of %d; fix: fewer%s",
            part_names[part], count, count == 1 ? "" : "s", count - left,
            count - left == 1 ? "is" : "are", p->count, one_for_all(ds, p));
    return true;
}

/* number of patients that no rule has assigned */
static int patients_free_count(const Patients *p)
{
    int n = 0;
    for (int i = 0; i < p->count; i++) n += p->part[i] < 0;
    return n;
}

/* A view of the cases with patients in `part`. */
static bool make_part(const Dataset *ds, const Patients *p, int part,
                      Dataset **out)
{
    if (!dataset_view(ds->store, ds, ds->count, out)) return false;
    Dataset *view = *out;
    // no other code has the view yet, so its cases may be written
    Case *cases = (Case *)view->cases;
    view->count = 0;
    for (int i = 0; i < ds->count; i++)
        if (p->part[patients_at(p, ds->cases[i].patient)] == part)
            cases[view->count++] = ds->cases[i];
    return true;
}

/* Makes all requested parts and fails if one is empty, with `fix`. */
static bool make_parts(const Dataset *ds, const Patients *p,
                       const bool wanted[PARTS], const char *fix,
                       Dataset *out[PARTS])
{
    for (int part = 0; part < PARTS; part++) {
        if (!wanted[part]) continue;
        if (!make_part(ds, p, part, &out[part])) return false;
        if (!out[part]->count)
            return fail_data("split: %s has no patient (%d in all); fix: %s%s",
                             part_names[part], p->count, fix,
                             one_for_all(ds, p));
    }
    return true;
}

/* The fix if a part came out empty: whole numbers of patients, if there are
 * enough for all parts. */
static const char *split_fix(const Patients *p, const bool wanted[PARTS])
{
    if (p->count < wanted[TRAIN_PART] + wanted[VALID_PART] + wanted[TEST_PART])
        return "more patients, or fewer parts";
    return wanted[VALID_PART] && wanted[TEST_PART]
               ? "whole numbers of patients instead of shares, as valid = 1, "
                 "test = 1"
           : wanted[VALID_PART]
               ? "a whole number of patients instead of a share, as valid = 1"
               : "a whole number of patients instead of a share, as test = 1";
}

static void parts_free(Dataset *out[PARTS])
{
    for (int part = 0; part < PARTS; part++) {
        dataset_free(out[part]);
        out[part] = NULL;
    }
}

/* Names first, then draws from the remaining patients: test, then valid. The
 * share of valid is a share of the patients that test leaves. */
bool dataset_split(const Dataset *ds, const SplitOptions *how,
                   Dataset *out[PARTS])
{
    // test is drawn before valid, so that changing valid does not change test
    static const int drawn[] = {TEST_PART, VALID_PART};
    Patients p;
    bool ok = false, wanted[PARTS] = {true, false, false};

    memset(out, 0, PARTS * sizeof *out);
    if (!patients_find(ds, how->seed, &p)) return false;
    for (int part = 0; part < PARTS; part++)
        TRY(take_named(ds, &p, &how->part[part], part));

    for (int i = 0; i < 2; i++) {
        const struct SplitRule *rule = &how->part[drawn[i]];
        // a list takes precedence over count and share
        bool named = rule->name_count > 0;
        wanted[drawn[i]] = named || rule->count || rule->share != 0;
        if (named || !wanted[drawn[i]]) continue;
        if (rule->count < 0 || !(rule->share >= 0 && rule->share < 1)) {
            fail_usage("split: %s is %g, wanted a share of 0 to 1 or a count",
                       part_names[drawn[i]],
                       rule->count < 0 ? rule->count : rule->share);
            goto done;
        }
        // count takes precedence over share
        int count = rule->count
                        ? rule->count
                        : (int)lround(rule->share * patients_free_count(&p));
        TRY(take_drawn(ds, &p, count, drawn[i]));
    }

    // the remaining patients train, unless train is a list: then they are
    // unused
    for (int i = 0; i < p.count && !how->part[TRAIN_PART].name_count; i++)
        if (p.part[i] < 0) p.part[i] = TRAIN_PART;
    TRY(make_parts(ds, &p, wanted, split_fix(&p, wanted), out));
    ok = true;

done:
    patients_free(&p);
    if (!ok) parts_free(out);
    return ok;
}

/* Patient i of the random order is in fold i mod k, so folds differ in size by
 * at most one. */
bool dataset_fold(const Dataset *ds, uint64_t seed, int k, int fold,
                  Dataset *out[PARTS])
{
    Patients p;
    const bool wanted[PARTS] = {true, true, false};
    memset(out, 0, PARTS * sizeof *out);
    if (k < 2 || fold < 0 || fold >= k)
        return fail_usage("fold %d of %d, wanted 0 to k - 1 of 2 or more", fold,
                          k);
    if (!patients_find(ds, seed, &p)) return false;
    bool ok = false;

    // fails for every fold, also for the first ones, which would have a patient
    if (k > p.count) {
        fail_data("split: %d folds of %d patient%s: some folds would validate "
                  "no patient; fix: %s%s",
                  k, p.count, p.count == 1 ? "" : "s",
                  p.count < 2 ? "more patients" : "fewer folds",
                  one_for_all(ds, &p));
        goto done;
    }

    for (int i = 0; i < p.count; i++)
        p.part[p.order[i]] = i % k == fold ? VALID_PART : TRAIN_PART;
    TRY(make_parts(ds, &p, wanted, "fewer folds", out));
    ok = true;

done:
    patients_free(&p);
    if (!ok) parts_free(out);
    return ok;
}

/* ---- slabs -------------------------------------------------------------- */

/* Removes [lo, hi) from the ranges of a case. Each range leaves up to two
 * pieces, one on either side of the cut. */
static bool slab_cut(Case *c, double lo, double hi)
{
    double keep[MAX_SLABS][2];
    int n = 0;

    for (int i = 0; i < c->slabs; i++) {
        double from = c->slab[i][0], to = c->slab[i][1];
        // the pieces before and after the cut
        const double piece[2][2] = {{from, fmin(to, lo)}, {fmax(from, hi), to}};
        for (int k = 0; k < 2; k++) {
            if (!(piece[k][0] < piece[k][1])) continue;
            if (n == MAX_SLABS)
                return fail_usage("split: more than %d slabs", MAX_SLABS);
            memcpy(keep[n++], piece[k], sizeof piece[k]);
        }
    }

    memcpy(c->slab, keep, (size_t)n * sizeof *keep);
    c->slabs = n;
    return true;
}

/* written so that NaN fails */
static bool slabs_check(const SplitSlabs *how)
{
    const double *range[] = {how->valid, how->test};
    for (int i = 0; i < 2; i++)
        if (!(range[i][0] >= 0 && range[i][0] <= range[i][1] &&
              range[i][1] <= 1))
            return fail_usage("split: slab %s is {%g, %g}, wanted 0 <= lo <= "
                              "hi <= 1",
                              part_names[1 + i], range[i][0], range[i][1]);

    if (!(how->gap >= 0 && how->gap < 1))
        return fail_usage("split: gap is %g, wanted 0 to 1", how->gap);
    if (fmax(how->valid[0], how->test[0]) < fmin(how->valid[1], how->test[1]))
        return fail_usage("split: the slabs of valid and test overlap");
    return true;
}

/* Every part is a view of all cases; only their slabs differ. */
bool dataset_split_slabs(const Dataset *ds, const SplitSlabs *how,
                         Dataset *out[PARTS])
{
    const double *range[PARTS] = {NULL, how->valid, how->test};
    memset(out, 0, PARTS * sizeof *out);
    if (!slabs_check(how)) return false;

    for (int part = 0; part < PARTS; part++) {
        bool none = part && range[part][0] == range[part][1];
        if (none) continue;
        if (!dataset_copy(ds, &out[part])) goto done;
        for (int i = 0; i < ds->count; i++) {
            Case *c = (Case *)&out[part]->cases[i];
            if (c->slabs) {
                fail_usage("split: the data set is split by slabs already");
                goto done;
            }
            c->slabs = 1;
            // train starts with everything and loses the other parts
            c->slab[0][0] = part ? range[part][0] : 0;
            c->slab[0][1] = part ? range[part][1] : 1;
            for (int k = 1; part == 0 && k < PARTS; k++)
                if (range[k][0] < range[k][1] &&
                    !slab_cut(c, range[k][0] - how->gap,
                              range[k][1] + how->gap))
                    goto done;
            if (c->slabs) continue;
            fail_usage("split: nothing is left to train on");
            goto done;
        }
    }

    return true;

done:
    parts_free(out);
    return false;
}

/* ---- leakage between parts ---------------------------------------------- */

/* Do two cases of a patient share slices? Whole cases always do, and slabs are
 * fractions of one body in every series. */
static bool slabs_meet(const Case *a, const Case *b)
{
    if (!a->slabs || !b->slabs) return true;
    for (int i = 0; i < a->slabs; i++)
        for (int k = 0; k < b->slabs; k++)
            if (fmax(a->slab[i][0], b->slab[k][0]) <
                fmin(a->slab[i][1], b->slab[k][1]))
                return true;
    return false;
}

static int patient_order(const void *a, const void *b)
{
    const Case *const *x = a, *const *y = b;
    return strcmp((*x)->patient, (*y)->patient);
}

/* Does a patient of the sorted list share slices with case a? */
static bool meets(const Case *const *list, int count, const Case *a)
{
    int from = 0, to = count; // the first that is not less
    while (from < to) {
        int half = from + (to - from) / 2;
        if (strcmp(list[half]->patient, a->patient) < 0)
            from = half + 1;
        else
            to = half;
    }
    for (; from < count && !strcmp(list[from]->patient, a->patient); from++)
        if (slabs_meet(a, list[from])) return true;
    return false;
}

bool dataset_leaks(const Dataset *const *sides, int count)
{
    Names both = {.count = 0};
    for (int t = 1; t < count; t++) {
        if (!sides[t]) continue;
        const int n = sides[t]->count;
        const Case **list = mem_alloc((size_t)n * sizeof *list);
        if (!list) return false;
        for (int i = 0; i < n; i++) list[i] = &sides[t]->cases[i];
        qsort(list, (size_t)n, sizeof *list, patient_order);
        for (int s = 0; s < t; s++)
            for (int i = 0; sides[s] && i < sides[s]->count; i++)
                if (meets(list, n, &sides[s]->cases[i]))
                    names_add(&both, sides[s]->cases[i].patient);
        mem_free(list);
    }

    if (!both.count) return true;
    return fail_data("%d case%s of patients on two sides of the split: %s; "
                     "fix: split by patient",
                     both.count, both.count == 1 ? "" : "s", both.text);
}
