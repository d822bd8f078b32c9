/* augment.h -- the SAMPLE steps: random changes of one training sample.
 *
 * A change is first decided (its numbers, from counters of the random
 * generator) and then applied, by the host here or by a GPU, which gets the
 * same Change. */
#ifndef SEG_DATA_AUGMENT_AUGMENT_H
#define SEG_DATA_AUGMENT_AUGMENT_H
#include "data/steps/step.h"
#include "data/steps/user_step.h"
#include "engine/backend/augment.h"

/* The fields of one sample, changed in place. */
typedef struct Sample {
    float *data[MAX_FIELDS]; /* NULL: not requested     */
    Dims dim[MAX_FIELDS];    /* n = 1; d, h, w equal    */
    FieldKind kind[MAX_FIELDS];
    int fields;
    int32_t length; /* of w without padding; 0: all of it          */
    /* The standardised value of 0 for each number of the first field of
     * numbers: flip negates a number about it. NULL: 0. */
    const float *zero;
    /* Further arguments of a function of the recipe; NULL without one. */
    const Dataset *ds;
    UserStep *user_step;
    const atomic_bool *stop;
    int rank[MAX_FIELDS]; /* as in recipes       */
} Sample;

/* Decides the changes that the SAMPLE steps of `steps` make to sample `number`,
 * an image of extents `dim`: one per step, in their order; returns how many.
 * Draws are keyed by (seed, RNG_AUGMENT, epoch, number, position of the
 * step). */
int augment_decide(const Steps *steps, uint64_t seed, uint32_t epoch,
                   uint32_t number, Dims dim, Change out[MAX_STEPS]);

/* Do GPU kernels exist for all SAMPLE steps with samples of `ds`? Else false;
 * the reason names the step without a kernel (ERR_USAGE). */
bool augment_on_device(const Steps *steps, const Dataset *ds);

/* Applies a decided change to a sample. A constant image stays finite. Fails if
 * memory runs out (an affine map works from a copy), with ERR_DATA if an image
 * does not suit a step (jitter needs 3 channels of 0 .. top), or as a function
 * of the recipe fails. */
bool change_sample(const Change *c, Sample *s);

/* augment_decide and change_sample, for all SAMPLE steps. */
bool augment_sample(const Steps *steps, uint64_t seed, uint32_t epoch,
                    uint32_t number, Sample *s);

#endif
