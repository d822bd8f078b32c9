/* survey.h -- a report of the contents of a data set's files, before training.
 *
 * Every case is loaded as stored and measured: ranges, classes, slices that are
 * constant or duplicated, labels in the background of the image. Then the steps
 * are run on it. Unlike pipeline_open, which ends with the first fault, a
 * survey records every fault of every case and goes on.
 *
 * It only measures; whether a number is suspicious is decided by its
 * callers. */
#ifndef SEG_DATA_PREPROCESS_SURVEY_H
#define SEG_DATA_PREPROCESS_SURVEY_H
#include "data/image/picture.h"
#include "data/preprocess/prepare.h"

enum {
    SURVEY_NUMBERS = 64, /* numbers kept of a field                   */
    SURVEY_SIDE = 160,   /* longer side of a picture in pixels        */
};

/* One field of a case as stored. */
typedef struct SurveyField {
    const char *fault; /* why it cannot be loaded; NULL: loaded      */
    double lo, hi;     /* over all voxels and channels               */
    double mean, sd;   /* population sd (divided by n)               */
    double *number;    /* (numbers) of FIELD_NUMBER; or NULL          */
    int numbers;
    Dims dim; /* of a sample after the steps; zero if they failed    */
    int rank; /* of a sample */
} SurveyField;

typedef struct SurveyCase {
    SurveyField field[MAX_FIELDS];
    Grid grid;     /* of the first field, if loaded            */
    uint64_t hash; /* extents and voxels of the first field    */
    /* Slices across d of the first field: `constant` have one value, and `gaps`
     * of these lie between slices with contrast; `twice` pairs of slices with
     * contrast are equal, and `pair` is the first such pair, from 0. */
    int32_t constant, gaps, twice, pair[2];
    /* For the first label field: voxels of each class; foreground voxels, and
     * how many of them are where the first channel of the image has its lowest
     * value (`outside`); number of slices with a class other than 0
     * (`marked`). */
    int64_t voxels[MAX_LABELS + 1];
    int64_t foreground, outside;
    int32_t marked;
    int64_t left; /* foreground voxels after the steps; -1: not run       */
    const char *fault; /* why the steps failed after loading succeeded; or
                        * NULL */
    const char *notes; /* warnings of the readers, one per line; ""      */
    /* The middle slice with foreground after the steps: w x h grey values, and
     * 1 for foreground. NULL: there is no such slice. */
    uint8_t *gray, *label;
    int32_t w, h;
} SurveyCase;

typedef struct Survey Survey;

typedef struct SurveyOptions {
    int threads;             /* 0: in the caller's thread          */
    const atomic_bool *stop; /* raise it to stop; may be NULL      */
} SurveyOptions;

/* Surveys all cases of `ds`. Fails only when memory runs out or when stopped:
 * faults of a case are recorded in its SurveyCase. */
bool survey_open(const Dataset *ds, const Steps *steps,
                 const SurveyOptions *options, Survey **out);
void survey_free(Survey *s); /* NULL is allowed */

const SurveyCase *survey_case(const Survey *s, int item);
const Dataset *survey_dataset(const Survey *s);

/* The picture of a case with its ground truth outlined; false without a reason
 * if it has none. */
bool survey_picture(const Survey *s, int item, Picture *out);
#endif
