/* patients.h -- means and deviations of patients: normalize per = "patient".
 *
 * In speech recognition this is cepstral mean and variance normalization by
 * speaker (Viikki and Laurila, Speech Communication 25, 1998): what a voice and
 * a microphone add to every recording goes, and what tells one recording from
 * another stays. No label is looked at. */
#ifndef SEG_DATA_PREPROCESS_PATIENTS_H
#define SEG_DATA_PREPROCESS_PATIENTS_H
#include "data/dataset/dataset.h"
#include "data/preprocess/cache_key.h"

struct PipelineOptions;

/* Of each patient, each channel of each image (or, with `together`, of each
 * image) mean and standard deviation. Constant once found. */
typedef struct Patients Patients;

/* The numbers for the normalize step of `steps` that is per patient, over all
 * cases of each patient in `ds` as the steps before leave them, without what
 * lies behind the end of a sequence; *out is NULL without such a step. The same
 * bits for any options->threads and cache. ERR_DATA for one value everywhere,
 * or for cases with different channels; with options->skip_bad bad cases do not
 * count. */
bool patients_find(const Dataset *ds, const Steps *steps,
                   const struct PipelineOptions *options, Patients **out);
void patients_free(Patients *p);

/* v (F32), field `field` of a case of `patient`: (x - mean) / sd by the numbers
 * of that patient; unit NONE afterwards. */
bool patients_normalize(const Patients *p, const DataStep *s,
                        const char *patient, int field, Volume *v);

/* Its numbers into the stamp of a case of `patient`: they depend on others. */
void patients_cache_key(const Patients *p, const char *patient, CacheKey *s);

#endif
