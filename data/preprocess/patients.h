/* patients.h -- mean and deviation of all cases of a patient, for normalize
 * with per = "patient".
 *
 * In speech recognition this is cepstral mean and variance normalization by
 * speaker (Viikki and Laurila, Speech Communication 25, 1998): it removes the
 * contribution of voice and microphone to every recording, and keeps the
 * differences between recordings. Labels are not used. */
#ifndef SEG_DATA_PREPROCESS_PATIENTS_H
#define SEG_DATA_PREPROCESS_PATIENTS_H
#include "data/dataset/dataset.h"
#include "data/preprocess/cache_key.h"

struct PipelineOptions;

/* For each patient: mean and standard deviation of each channel of each image
 * (with `together`, of each image). Constant once found. */
typedef struct Patients Patients;

/* Finds the numbers for the per-patient normalize step of `steps`, over all
 * cases of each patient in `ds` after the steps before it, without padding
 * after the end of a sequence; *out is NULL without such a step. The same bits
 * for any options->threads and cache. ERR_DATA for a constant patient or for
 * cases with different channels; with options->skip_bad bad cases are left
 * out. */
bool patients_find(const Dataset *ds, const Steps *steps,
                   const struct PipelineOptions *options, Patients **out);
void patients_free(Patients *p);

/* Normalises v (F32), field `field` of a case of `patient`: (x - mean) / sd
 * with the numbers of that patient; unit NONE afterwards. */
bool patients_normalize(const Patients *p, const DataStep *s,
                        const char *patient, int field, Volume *v);

/* Adds the patient's numbers to the cache key of a case, because they depend on
 * other cases. */
void patients_cache_key(const Patients *p, const char *patient, CacheKey *s);

#endif
