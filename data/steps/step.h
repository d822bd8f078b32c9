/* step.h -- the table of data steps, expanded from steps.def.
 *
 * A step is a description: numbers, no addresses, no closures, so that any
 * thread may execute it, a checkpoint may store it as text and two pipelines
 * may share it by copying. Steps are executed by prepare.c (volumes), augment.c
 * and apply.c (samples). */
#ifndef SEG_DATA_STEPS_STEP_H
#define SEG_DATA_STEPS_STEP_H
#include "engine/base/mem.h"

enum {
    MAX_STEPS = 32,      /* steps of a pipeline               */
    MAX_STEP_ATTR = 8,   /* attributes of a step              */
    MAX_STEP_LIST = 32,  /* numbers of an attribute of kind L */
    MAX_STEP_REALS = 64, /* numbers of an attribute of kind F */
    STEP_NAME = 37,      /* size of an attribute of kind T, with its end  */
    STEP_NAME_WORDS = 6, /* doubles of it, six letters in each, as a whole
                          * number */
    STEP_WORDS = 4 * (1 + MAX_STEP_REALS) + 10, /* doubles of the longest
                                                 * step */
};

typedef enum StepId {
#define STEP(name, ...) STEP_##name,
#include "data/steps/steps.def"
    STEP_COUNT
} StepId;

typedef enum StepPhase { STEP_VOLUME, STEP_SLICE, STEP_SAMPLE } StepPhase;

/* Which fields a step changes. */
typedef enum StepActs { ACTS_ALL, ACTS_IMAGE, ACTS_LABEL } StepActs;

/* The choices of steps.def by position. */
enum { NORMALIZE_ZSCORE, NORMALIZE_MINMAX, NORMALIZE_PERCENTILE };
enum { PER_VOLUME, PER_SLICE, PER_PATIENT };
enum { METHOD_LINEAR, METHOD_SMOOTH, METHOD_CUBIC };
enum { FIT_CENTRE, FIT_START };
enum { CROP_IMAGE, CROP_LABEL };
enum { AXIS_AXIAL, AXIS_CORONAL, AXIS_SAGITTAL, AXIS_STORED };
enum { KEEP_ALL, KEEP_FOREGROUND };
enum { PATCHES_RANDOM, PATCHES_GRID };
enum { STANDARDIZE_IMAGE, STANDARDIZE_NUMBERS };
enum { OF_ALL, OF_FOREGROUND };
enum { FLIP_W, FLIP_H, FLIP_D, FLIP_HW, FLIP_DHW };
enum { ABOUT_ALL, ABOUT_W, ABOUT_H, ABOUT_D };
enum { BEYOND_BORDER, BEYOND_WRAP };
enum { UP_LINEAR, UP_CUBIC };
enum { FILL_ZERO, FILL_MEAN };

/* A step with its attributes: named members for the code that executes it, an
 * array of double for code that loops over attributes. */
// clang-format off
typedef struct DataStep {
    StepId id;
    union {
#define N(name, min, max, def)     double name;
#define I(name, min, max, def)     double name;
#define B(name, def)               double name;
#define C(name, names, def)        double name;
#define R(name, min, max, lo, hi)  double name[2];
#define V(name, min, max)          double name[3];
#define L(name, min, max)          double name##_count, name[MAX_STEP_LIST];
#define F(name, min, max)          double name##_count, name[MAX_STEP_REALS];
#define T(name)                    double name[STEP_NAME_WORDS];
#define STEP(name, phase, acts, attrs) struct { attrs } name;
#include "data/steps/steps.def"
        double word[STEP_WORDS];
    };
} DataStep;
// clang-format on

typedef struct StepAttr {
    const char *name;
    char kind;           /* the letter in steps.def                       */
    int words;           /* doubles that it occupies in `word`            */
    double min, max;     /* of each number                                */
    double def[2];       /* default; R has two; V, L, F and T none (zeros) */
    const char *choices; /* "one|two" for C, else NULL                    */
} StepAttr;

typedef struct StepInfo {
    const char *name;
    StepPhase phase;
    StepActs acts;
    int attrs;
    StepAttr attr[MAX_STEP_ATTR];
} StepInfo;

extern const StepInfo step_info[STEP_COUNT];

/* The step of this name; STEP_COUNT if there is none. */
StepId step_find(const char *name);

/* Step `id` with its defaults. */
DataStep step_default(StepId id);

/* Sets attribute `name` to `count` numbers: one for N, I, B and C (a choice by
 * position), two for R, one or three for V, any for L and F. Fails (ERR_USAGE)
 * with the valid names, range or count. */
bool step_set(DataStep *s, const char *name, const double *value, int count);

/* Sets a choice by its name, or a name (kind T); fails with the valid
 * choices. */
bool step_set_choice(DataStep *s, const char *name, const char *choice);

/* Writes the name of choice `value` of attribute `attr`, "zscore", to
 * `text`. */
enum { STEP_CHOICE_TEXT = 32 };
char *step_choice(const StepAttr *attr, double value,
                  char text[STEP_CHOICE_TEXT]);

/* Writes the name of an attribute of kind T, "" for none, to `text`. */
char *step_name(const double *word, char text[STEP_NAME]);

/* The steps of a pipeline in execution order. */
typedef struct Steps {
    DataStep step[MAX_STEPS];
    int count;
    struct UserStep *user_step; /* runs the functions of the steps change and
                                 * vary by number (user_step.h); not part of the
                                 * text. NULL: none */
} Steps;

/* False (ERR_USAGE) for numbers that are valid but surely a mistake, such as
 * percentiles from 0 to 1: for steps in a recipe. Steps stored with weights run
 * unchanged. */
bool step_meant(const DataStep *s);

/* Appends `s`. Fails (ERR_USAGE) if its phase comes before the phase of an
 * earlier step, if it is a second SLICE step, if a value contradicts another,
 * or if there are too many. Sets defaults that depend on another attribute
 * (clip of method percentile), so that the stored step is the executed step. */
bool steps_add(Steps *all, const DataStep *s);

/* The SLICE step, or NULL: samples are whole volumes. */
const DataStep *steps_parts(const Steps *all);

/* The SLICE step if it is `slices`; else NULL. */
const DataStep *steps_slices(const Steps *all);

/* Is there a SAMPLE step? */
bool steps_augment(const Steps *all);

/* out = the steps before number `at`, and the reorientation by `slices`: the
 * preparation of a case before that step. */
bool steps_before(const Steps *all, int at, Steps *out);

/* Copies the steps without the SAMPLE steps: the steps in a checkpoint. */
int steps_per_patient(const Steps *all);

/* The same without the SAMPLE steps: the steps in a checkpoint. */
Steps steps_without_augment(const Steps *all);

/* steps_without_augment with every slice of a volume, or a grid of patches that
 * covers it: training may select samples, a prediction covers the whole
 * volume. */
Steps steps_for_prediction(const Steps *all);

/* One line per step, every attribute named, in the C locale:
 *     resample spacing_mm=1,1,0
 *     normalize method=zscore per=volume clip=0,100 nonzero=false
 * (an empty list is left out). Parsing the text gives the same bits. NULL if
 * memory runs out. */
char *steps_print(const Steps *all, Arena *mem);

/* Parses the text of steps_print. Missing attributes keep their defaults. Fails
 * (ERR_DATA) and names the line. */
bool steps_parse(const char *text, Steps *out);

#endif
