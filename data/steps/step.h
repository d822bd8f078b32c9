/* step.h -- the table of data steps, expanded from steps.def.
 *
 * A step is a description: numbers, no addresses, no closures, so that any
 * thread may execute it, a checkpoint may carry it as text and two pipelines
 * may share it by copying. What executes it is prepare.c (volumes), augment.c
 * and apply.c (samples). */
#ifndef SEG_DATA_STEPS_STEP_H
#define SEG_DATA_STEPS_STEP_H
#include "engine/base/mem.h"

enum {
    MAX_STEPS = 32,      /* steps of a pipeline               */
    MAX_STEP_ATTR = 8,   /* attributes of a row               */
    MAX_STEP_LIST = 32,  /* numbers of an attribute of kind L */
    MAX_STEP_REALS = 64, /* numbers of an attribute of kind F */
    STEP_NAME = 37,      /* bytes of an attribute of kind T, with its end */
    STEP_NAME_WORDS = 6, /* six letters in each, as a whole number        */
    STEP_WORDS = 4 * (1 + MAX_STEP_REALS) + 10, /* of the longest row */
};

typedef enum StepId {
#define STEP(name, ...) STEP_##name,
#include "data/steps/steps.def"
    STEP_COUNT
} StepId;

typedef enum StepPhase { STEP_VOLUME, STEP_SLICE, STEP_SAMPLE } StepPhase;

/* Which fields a step changes. */
typedef enum StepActs { ACTS_ALL, ACTS_IMAGE, ACTS_LABEL } StepActs;

/* Named positions of the choices in steps.def. */
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

/* A step with its attributes: typed fields for the code that executes it, a
 * flat array of double for everything that walks attributes by name. */
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
    char kind;           /* the letter of steps.def                       */
    int words;           /* doubles it takes in `word`                    */
    double min, max;     /* of each number                                */
    double def[2];       /* default; R has two; V, L, F and T none (zeros) */
    const char *choices; /* "one|two" of C, else NULL                     */
} StepAttr;

typedef struct StepInfo {
    const char *name;
    StepPhase phase;
    StepActs acts;
    int attrs;
    StepAttr attr[MAX_STEP_ATTR];
} StepInfo;

extern const StepInfo step_info[STEP_COUNT];

/* Row by name; STEP_COUNT when there is none. */
StepId step_find(const char *name);

/* A step of row `id` with its defaults. */
DataStep step_default(StepId id);

/* Set attribute `name` to `count` numbers: one for N, I, B and C (a choice by
 * position), two for R, one or three for V, any for L and F. Fails (ERR_USAGE)
 * with the known names, the range or the count that was wanted. */
bool step_set(DataStep *s, const char *name, const double *value, int count);

/* Set a choice by its name, or a name; fails with the known choices. */
bool step_set_choice(DataStep *s, const char *name, const char *choice);

/* "zscore": the name of choice `value` of attribute `attr`, in `text`. */
enum { STEP_CHOICE_TEXT = 32 };
char *step_choice(const StepAttr *attr, double value,
                  char text[STEP_CHOICE_TEXT]);

/* The name that an attribute of kind T has, "" for none, in `text`. */
char *step_name(const double *word, char text[STEP_NAME]);

/* The steps of a pipeline in the order in which they run. */
typedef struct Steps {
    DataStep step[MAX_STEPS];
    int count;
    struct UserStep *user_step; /* calls the functions that steps change and
                                 * vary name by number (user_step.h); no part of
                                 * the text. NULL: there are none */
} Steps;

/* False (ERR_USAGE) for numbers that are allowed but surely meant otherwise, as
 * percentiles from 0 to 1: for what a person writes. Steps that are stored with
 * weights run as they are. */
bool step_meant(const DataStep *s);

/* Append `s`. Fails (ERR_USAGE) when its phase comes before that of a step
 * already there, when it is a second SLICE step, when a value contradicts
 * another, or when there are too many. Resolves what depends on another
 * attribute (clip of method percentile), so that what is stored is what is
 * done. */
bool steps_add(Steps *all, const DataStep *s);

/* The SLICE step, or NULL: samples are whole volumes. */
const DataStep *steps_parts(const Steps *all);

/* That, if it is one of slices; else NULL. */
const DataStep *steps_slices(const Steps *all);

/* True when there is a SAMPLE step. */
bool steps_augment(const Steps *all);

/* out = the steps before number `at`, and how slices turn the volume: what a
 * case is when that step begins. */
bool steps_before(const Steps *all, int at, Steps *out);

/* The place of the normalize step that is per patient; -1: there is none. */
int steps_per_patient(const Steps *all);

/* The same without the SAMPLE steps: what a checkpoint carries. */
Steps steps_without_augment(const Steps *all);

/* That with every slice of a volume, or patches that cover it: what to learn
 * from is a choice of training, and a prediction has no holes. */
Steps steps_for_prediction(const Steps *all);

/* One line a step, every attribute named, in the C locale:
 *     resample spacing_mm=1,1,0
 *     normalize method=zscore per=volume clip=0,100 nonzero=false
 * (an empty list is left out).
 * Parsing the text gives the same bits. NULL when there is no memory. */
char *steps_print(const Steps *all, Arena *mem);

/* The reverse. Attributes left out keep their defaults. Fails (ERR_DATA) and
 * names the line. */
bool steps_parse(const char *text, Steps *out);

#endif
