/* prepare.h -- the VOLUME steps: from the files of a case to a volume.
 *
 * One function for training, validation and prediction. It loads each field,
 * checks that all share the grid of the first, runs the steps and remembers
 * the grid of the input so that a prediction can go back. */
#ifndef SEG_PREPARE_H
#define SEG_PREPARE_H
#include "change.h"
#include "dataset.h"
#include "hook.h"
#include "intensity.h"
#include "part.h"
#include "patients.h"
#include <stdatomic.h>

/* A case after its VOLUME steps: field[i] is field i of the dataset. All share
 * extents (but c) and affine. */
typedef struct Prepared {
    Pack field[MAX_FIELDS];
    int fields;
    Grid grid;       /* of all fields                            */
    int item;        /* place of the case in its dataset         */
    Grid input;      /* of the first field as loaded             */
    Unit input_unit; /* of the first field                       */
    uint64_t hash;   /* extents and voxels of field 0 as loaded  */
    /* Of field 0 as loaded, where that is an image. */
    Intensity intensity[INTENSITY_CHANNELS];
    int32_t intensities;
    size_t bytes; /* of all packs                             */
} Prepared;

/* Load case `item` and run the VOLUME steps. `patients`: what normalize per
 * patient needs; NULL: the case is all that there is of its patient. `notes`
 * and `stop` may be NULL; with *stop raised it gives up between two pieces of
 * work, reason "stopped". The reason of a failure begins with the key of the
 * case. */
bool prepare_case(const Dataset *ds, int item, const Steps *steps,
                  const Patients *patients, DicomNotes *notes,
                  const atomic_bool *stop, Prepared *out);

/* The same with the fields as case_load gives them, none for FIELD_LENGTH. They
 * are freed, also by a failure. */
bool prepare_loaded(const Dataset *ds, int item, const Steps *steps,
                    const Patients *patients, const atomic_bool *stop,
                    Volume field[MAX_FIELDS], Prepared *out);

/* Free fields, zero where there is none: they are zero again. */
void fields_free(Volume field[MAX_FIELDS]);

/* Free the voxels; p is zero again. */
void prepared_free(Prepared *p);

/* out = the voxels of the box (part.h) of field `field` as F32 (d,h,w,c); all
 * of a field that does not lie on the grid. */
void prepared_sample(const Prepared *p, int field, const Box *box, float *out);

/* out = field `field` as F32 on the grid of the case. ERR_USAGE for one that
 * does not lie there. */
bool prepared_volume(const Prepared *p, int field, Volume *out);

/* ---- the SAMPLE steps -------------------------------------------------- */

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
    Hook *hook;
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

/* Both, for all SAMPLE steps. */
bool augment_sample(const Steps *steps, uint64_t seed, uint32_t epoch,
                    uint32_t number, Sample *s);

#endif
