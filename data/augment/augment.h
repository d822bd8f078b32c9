/* augment.h -- the SAMPLE steps: random changes of one training sample.
 *
 * A change is first decided (which numbers, from which counters) and then
 * applied, by the host here or by a GPU, which is given the same Change. */
#ifndef SEG_DATA_AUGMENT_AUGMENT_H
#define SEG_DATA_AUGMENT_AUGMENT_H
#include "data/steps/step.h"
#include "data/steps/user_step.h"
#include "engine/backend/augment.h"

/* The fields of one sample, changed in place. */
typedef struct Sample {
    float *data[MAX_FIELDS]; /* NULL: not wanted        */
    Dims dim[MAX_FIELDS];    /* n = 1; d, h, w equal    */
    FieldKind kind[MAX_FIELDS];
    int fields;
    int32_t length; /* of w that is the sample's own; 0: all of it */
    /* What 0 of the first field of numbers has become by standardize, one for
     * each of them: a sign changes about it. NULL: 0. */
    const float *zero;
    /* What a function of the recipe wants beside these; NULL without one. */
    const Dataset *ds;
    UserStep *user_step;
    const atomic_bool *stop;
    int rank[MAX_FIELDS]; /* as recipes count it */
} Sample;

/* What the SAMPLE steps of `steps` do to sample `number`, an image of extents
 * `dim`: a change for each of them, in their order; returns how many. Draws are
 * keyed by (seed, RNG_AUGMENT, epoch, number, position of the step). */
int augment_decide(const Steps *steps, uint64_t seed, uint32_t epoch,
                   uint32_t number, Dims dim, Change out[MAX_STEPS]);

/* Do kernels exist for all SAMPLE steps with samples of `ds`? Else false, with
 * the step that has none as the reason (ERR_USAGE). */
bool augment_on_device(const Steps *steps, const Dataset *ds);

/* Change a sample as was decided. An image that is constant stays finite.
 * Fails when there is no memory (an affine map works from a copy), and
 * (ERR_DATA) when an image is not what a step is for: jitter wants 3 channels
 * of 0 .. top; or as the function of a recipe fails. */
bool change_sample(const Change *c, Sample *s);

/* augment_decide and change_sample, for all SAMPLE steps. */
bool augment_sample(const Steps *steps, uint64_t seed, uint32_t epoch,
                    uint32_t number, Sample *s);

#endif
