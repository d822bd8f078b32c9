/* survey.h -- what the files of a data set hold, before anyone trains on it.
 *
 * Every case is loaded as it lies in its files and counted: ranges, classes,
 * slices that are constant or stand there twice, truth where there is no image.
 * Then the steps are run on it. Unlike pipeline_open, which ends with the first
 * fault, a survey notes every fault of every case and goes on.
 *
 * What is odd about the numbers is for others to judge: here they are only
 * taken down. */
#ifndef SEG_DATA_PREPROCESS_SURVEY_H
#define SEG_DATA_PREPROCESS_SURVEY_H
#include "data/image/picture.h"
#include "data/preprocess/prepare.h"

enum {
    SURVEY_NUMBERS = 64, /* numbers of a field that are kept          */
    SURVEY_SIDE = 160,   /* pixels of the longer side of a picture    */
};

/* One field of a case as its files have it. */
typedef struct SurveyField {
    const char *fault; /* why it cannot be loaded; NULL: it was      */
    double lo, hi;     /* of all voxels and channels                 */
    double mean, sd;   /* sd divided by n                            */
    double *number;    /* of FIELD_NUMBER, `numbers` of them; or NULL */
    int numbers;
    Dims dim; /* of a sample after the steps; zero when these failed */
    int rank; /* of a sample */
} SurveyField;

typedef struct SurveyCase {
    SurveyField field[MAX_FIELDS];
    Grid grid;     /* of the first field, where it was loaded  */
    uint64_t hash; /* extents and voxels of the first field    */
    /* Slices across d of the first field: those of one value, and those of them
     * between slices with more; pairs that are equal though they have contrast,
     * and the first such pair, from 0. */
    int32_t constant, gaps, twice, pair[2];
    /* Of the first label field: voxels of each class, slices with a class
     * beside 0, voxels in them, and how many of these lie where the first
     * channel of the image has its lowest value. */
    int64_t voxels[MAX_LABELS + 1];
    int64_t foreground, outside;
    int32_t marked;
    int64_t left; /* of its voxels after the steps; -1: these did not run */
    const char *fault; /* why the steps fail, though all was loaded; or NULL */
    const char *notes; /* warnings of the readers, a line each; ""       */
    /* A slice as it is after the steps, the middle one of those with a class:
     * w x h greys, and 1 where a class is. NULL: there is nothing to see. */
    uint8_t *gray, *label;
    int32_t w, h;
} SurveyCase;

typedef struct Survey Survey;

typedef struct SurveyOptions {
    int threads;             /* 0: in the caller                   */
    const atomic_bool *stop; /* raise it to give up; may be NULL   */
} SurveyOptions;

/* Looks at all cases of `ds`. Fails only without memory or when stopped: what
 * is wrong with a case is noted there. */
bool survey_open(const Dataset *ds, const Steps *steps,
                 const SurveyOptions *options, Survey **out);
void survey_free(Survey *s); /* NULL is fine */

const SurveyCase *survey_case(const Survey *s, int item);
const Dataset *survey_dataset(const Survey *s);

/* The picture of a case, its truth outlined; false without a reason when it
 * has none. */
bool survey_picture(const Survey *s, int item, Picture *out);
#endif
