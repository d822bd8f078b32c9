/* split.h -- splits a data set into train, valid and test, always by patient.
 *
 * All cases of a patient are in one part. The order of patients is drawn from
 * (seed, RNG_SPLIT) over their sorted names, so it depends only on the seed and
 * the set of patients. A set with one patient is split by slabs of slices
 * instead. */
#ifndef SEG_DATA_DATASET_SPLIT_H
#define SEG_DATA_DATASET_SPLIT_H
#include "data/dataset/dataset.h"

typedef enum SplitPart { TRAIN_PART, VALID_PART, TEST_PART, PARTS } SplitPart;

/* How to split; each part uses the first rule that is given:
 *   names   patients (or keys of cases) by name
 *   count   so many patients
 *   share   test = round(share * n), then valid = round(share * (n - test)):
 *           with 0.2 and 0.15, 28 patients become 19, 3 and 6
 * train gets the rest. A requested part that comes out empty, or an empty
 * train, is an error. */
typedef struct SplitOptions {
    uint64_t seed;
    struct SplitRule {
        const char *const *names; /* NULL: not by name */
        int name_count;
        int count; /* 0: not by count */
        double share;
    } part[PARTS]; /* TRAIN_PART: names only, else the rest */
} SplitOptions;

/* out[i] is NULL for a part that was not requested. */
bool dataset_split(const Dataset *ds, const SplitOptions *how,
                   Dataset *out[PARTS]);

/* Every case gives slices to all parts: valid and test get the fractions [lo,
 * hi) of the slices (lo == hi: none), train gets the rest without `gap` (a
 * fraction) on each side of both. */
typedef struct SplitSlabs {
    double valid[2], test[2], gap;
} SplitSlabs;
bool dataset_split_slabs(const Dataset *ds, const SplitSlabs *how,
                         Dataset *out[PARTS]);

/* k folds by patient: fold `fold` (0 .. k-1) is the VALID_PART, the others are
 * the TRAIN_PART; the k valid parts together are the dataset. */
bool dataset_fold(const Dataset *ds, uint64_t seed, int k, int fold,
                  Dataset *out[PARTS]);

/* Checks that no patient is in two parts (disjoint slabs are allowed); fails
 * with the first ten. sides[i] may be NULL. Equal voxels under two names are
 * found by pipeline_check_leakage, which has loaded them. */
bool dataset_leaks(const Dataset *const *sides, int count);

#endif
