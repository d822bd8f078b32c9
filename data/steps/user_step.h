/* user_step.h -- steps that are functions of the recipe: change and vary.
 *
 * A step stores two numbers, a hash of its function and of its constants; a
 * UserStep finds both and calls the function. lua/bind/user_step.c implements
 * it: this folder does not depend on Lua. A call gets the fields of one case,
 * or of one sample, and changes numbers in place; extents stay.
 *
 * The result of a function may depend on its arguments alone, so that a case
 * has the same bytes in any thread and after any number of calls. */
#ifndef SEG_DATA_STEPS_USER_STEP_H
#define SEG_DATA_STEPS_USER_STEP_H
#include "data/dataset/dataset.h"
#include "data/steps/step.h"
#include "engine/base/rng.h"
#include <stdatomic.h>

/* A field as a function sees it. x: n = 1; F32, except class numbers of a case,
 * which are U8; rank as in recipes (a slice of a volume has 2). */
typedef struct UserStepField {
    const char *name;
    FieldKind kind;
    Tensor x;
    bool changed; /* out: a number was stored */
} UserStepField;

typedef struct UserStepCall {
    UserStepField field[MAX_FIELDS];
    int fields;
    int classes;             /* class numbers are 0 .. classes           */
    const Rng *draw;         /* its draws begin at CHANGE_DRAWS; NULL: none */
    const atomic_bool *stop; /* raised: fail with "stopped"; may be NULL */
} UserStepCall;

typedef struct UserStep UserStep;
struct UserStep {
    /* Runs the function with these two numbers, in any thread, several at once.
     * On failure false with the line of the script. It must not store values
     * that are not finite, or invalid class numbers in a field of class
     * numbers. */
    bool (*run)(UserStep *h, double code, double with, UserStepCall *call);
    void (*hold)(UserStep *h); /* user steps are reference-counted */
    void (*drop)(UserStep *h);
};

/* Runs step `s`, a change, on a case with volumes field[], by steps->user_step.
 * Fails as the function does, and (ERR_USAGE) without a user step. */
bool user_step_volume(const Steps *steps, const DataStep *s, const Dataset *ds,
                      const atomic_bool *stop, Volume field[MAX_FIELDS]);

/* Runs the function identified by `code` and `with`. Fails as the function
 * does, and (ERR_USAGE) without a user step. */
bool user_step_call(UserStep *user_step, double code, double with,
                    UserStepCall *c);

/* The number of classes of `ds`, before earlier steps change the labels. */
int user_step_classes(const Dataset *ds);

#endif
