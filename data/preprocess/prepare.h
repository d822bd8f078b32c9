/* prepare.h -- the VOLUME steps: from the files of a case to a volume.
 *
 * One function for training, validation and prediction. It loads each field,
 * checks that all share the grid of the first, runs the steps and keeps the
 * grid of the input so that a prediction can be resampled to it. */
#ifndef SEG_DATA_PREPROCESS_PREPARE_H
#define SEG_DATA_PREPROCESS_PREPARE_H
#include "data/dataset/dataset.h"
#include "data/preprocess/intensity.h"
#include "data/preprocess/patch.h"
#include "data/preprocess/patients.h"
#include "data/steps/user_step.h"
#include <stdatomic.h>

/* A case after its preprocessing steps of phase VOLUME (steps.def): field[i] is
 * field i of the data set. All fields on the grid have the same affine and the
 * same extents, except c (channels). */
typedef struct Prepared {
    Pack field[MAX_FIELDS];
    int fields;
    Grid grid;       /* of all fields                            */
    int item;        /* index of the case in its data set        */
    Grid input;      /* of the first field as loaded             */
    Unit input_unit; /* of the first field                       */
    uint64_t hash;   /* extents and voxels of field 0 as loaded  */
    /* Of field 0 as loaded, if it is an image. */
    Intensity intensity[INTENSITY_CHANNELS];
    int32_t intensities;
    size_t bytes; /* of all packs                             */
} Prepared;

/* Loads case `item` and runs the VOLUME steps. `patients`: the numbers for
 * normalize per patient; NULL: the case is the only one of its patient. `notes`
 * and `stop` may be NULL; if *stop is raised it gives up between two pieces of
 * work, reason "stopped". The reason of a failure begins with the key of the
 * case. */
bool prepare_case(const Dataset *ds, int item, const Steps *steps,
                  const Patients *patients, DicomNotes *notes,
                  const atomic_bool *stop, Prepared *out);

/* The same with fields that case_load has loaded (none for FIELD_LENGTH). They
 * are freed, also on failure. */
bool prepare_loaded(const Dataset *ds, int item, const Steps *steps,
                    const Patients *patients, const atomic_bool *stop,
                    Volume field[MAX_FIELDS], Prepared *out);

/* Frees fields (zeroed ones are allowed) and zeroes them. */
void fields_free(Volume field[MAX_FIELDS]);

/* Frees the voxels and zeroes p. */
void prepared_free(Prepared *p);

/* out = the voxels of the box (patch.h) of field `field` as F32 (d,h,w,c); for
 * a field without a grid all its numbers. */
void prepared_sample(const Prepared *p, int field, const Box *box, float *out);

/* out = field `field` as F32 on the grid of the case. ERR_USAGE for a field
 * without a grid. */
bool prepared_volume(const Prepared *p, int field, Volume *out);

#endif
