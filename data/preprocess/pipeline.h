/* pipeline.h -- a dataset and steps: samples by number.
 *
 * Opening a pipeline prepares every case once, in threads: whatever is wrong
 * with a file is said before training begins, and the number of samples,
 * their extents, the slices with foreground and the class counts are known.
 * Prepared volumes are kept under a byte budget and prepared again when they
 * were dropped; the bytes of a sample depend on nothing but (steps, case,
 * slice, and for augmentation seed, epoch, number).
 *
 * The function that prepares a case is the same for training, validation and
 * prediction (a dataset without a mask field). */
#ifndef SEG_DATA_PREPROCESS_PIPELINE_H
#define SEG_DATA_PREPROCESS_PIPELINE_H
#include "data/augment/augment.h"
#include "data/preprocess/prepare.h"

typedef struct Pipeline Pipeline;

typedef struct PipelineOptions {
    int threads;         /* for opening; 0: in the caller               */
    int64_t cache_bytes; /* kept prepared volumes; 0: none              */
    const char *store;   /* file that keeps them from one run to the next
                          * (store.h); NULL: none */
    uint64_t seed;       /* of augmentation                             */
    bool skip_bad; /* leave out cases that cannot be read or prepared (what
                    * fails with ERR_DATA) instead of failing: pipeline_bad */
    const atomic_bool *stop; /* raise it to give up opening; may be NULL  */
    /* Called by opening after each case, from any of its threads, one at a
     * time; may be NULL. */
    void (*progress)(void *context, int done, int count);
    void *context;
    /* Called by opening, from a thread of its own, when a case takes longer
     * than patience_s (0: 60): see watch.h. May be NULL. */
    void (*waiting)(void *context, const char *text);
    double patience_s;
} PipelineOptions;

/* Prepares all cases; keeps its own view of `ds`, and holds the hook of
 * `steps`. The reason of a failure begins with the key of the first case (in
 * order) that failed. */
bool pipeline_open(const Dataset *ds, const Steps *steps,
                   const PipelineOptions *options, Pipeline **out);

/* Pipelines are counted: loaders hold one too. NULL is fine. */
void pipeline_hold(Pipeline *p);
void pipeline_free(Pipeline *p);

const Dataset *pipeline_dataset(const Pipeline *p);
const Steps *pipeline_steps(const Pipeline *p);

/* What a sample is. Samples are sorted by case, then part. */
typedef struct SampleId {
    int32_t number; /* place in the list of samples                       */
    int32_t item;   /* place of its case in the dataset                   */
    int32_t part;   /* of the case (patch.h): d of slices; 0: all of it     */
} SampleId;

int32_t pipeline_samples(const Pipeline *p);
SampleId pipeline_id(const Pipeline *p, int32_t number);

/* Rank of a field of samples: that of the data set, but 2 of slices and flat
 * patches of volumes. */
int pipeline_rank(const Pipeline *p, int field);

/* Extents of field `field` of sample `number`, n = 1, and of all samples;
 * the latter fails when they differ, naming two cases and the way out (fit
 * or resize). */
Dims pipeline_dims_of(const Pipeline *p, int32_t number, int field);
bool pipeline_dims(const Pipeline *p, int field, Dims *out);
/* The same for samples that may differ in w; *out has the largest. */
bool pipeline_dims_but_w(const Pipeline *p, int field, Dims *out);

/* Do samples differ from epoch to epoch before any SAMPLE step? */
bool pipeline_drawn(const Pipeline *p);

/* Fill out[field] (F32, pipeline_dims_of elements; NULL: not wanted) with
 * sample `number`, of patches as they are drawn for `epoch`. `augment`: with
 * the SAMPLE steps as drawn for it. Safe in several threads at once. `stop`
 * raised: gives up with "stopped". */
bool pipeline_sample(Pipeline *p, int32_t number, uint32_t epoch, bool augment,
                     const atomic_bool *stop, float *const out[MAX_FIELDS]);

/* What the SAMPLE steps do to sample `number` in `epoch`, in their order, for
 * whoever holds it as it is without them; how many there are. */
int pipeline_changes(const Pipeline *p, int32_t number, uint32_t epoch,
                     Change out[MAX_STEPS]);

/* A prepared case, held until put back; constant. */
bool pipeline_get(Pipeline *p, int item, const Prepared **out);
void pipeline_put(Pipeline *p, const Prepared *one);

/* Wake threads that wait inside the pipeline so that they see `stop`. */
void pipeline_wake(Pipeline *p);

/* Facts found when opening, for case `item`. */
typedef struct CaseFacts {
    Dims dim;   /* of the prepared image                   */
    Grid input; /* as loaded                               */
    int32_t channels[MAX_FIELDS];
    int64_t bytes; /* of the prepared volumes */
    uint64_t hash; /* of the loaded image: extents and voxels */
    /* Of the image as loaded, its first channels. */
    Intensity intensity[INTENSITY_CHANNELS];
    int32_t intensities;
    int64_t *voxels; /* (MAX_LABELS + 1): of each class in the slices used;
                      * NULL without a field of class numbers */
    int32_t slices, foreground_slices; /* used; of them with a label > 0  */
    int32_t length;    /* of w that is the case's own: the field of that kind;
                        * 0 without one */
    const char *notes; /* lines of what the reader said, or ""    */
} CaseFacts;
const CaseFacts *pipeline_facts(const Pipeline *p, int item);

/* With skip_bad: the cases that were left out, in the order of the data set
 * they were in, with the reasons. pipeline_dataset has the others only. More
 * than half of all is a failure of opening: then it is not some files that are
 * bad.
 */
typedef struct BadCase {
    const char *key, *patient, *reason;
} BadCase;
int pipeline_bad(const Pipeline *p, const BadCase **list);

/* In leaks.c: no volume stands on two sides under two names, and no patient on
 * two sides; sides[i] may be NULL. Disjoint slabs are no leak. */
enum { PIPELINE_SIDES = 8 };
bool pipeline_leaks(const Pipeline *const *sides, int count);

/* In report.c: cases, patients, samples, extents, spacings, class shares, and
 * what the cache holds. NULL when there is no memory. */
char *pipeline_report(Pipeline *p, Arena *mem);

typedef struct CacheStats {
    int64_t budget, bytes, peak; /* kept bytes; peak <= budget          */
    int64_t hits, misses;        /* since opening                       */
    int32_t kept, count;         /* volumes kept, of so many            */
} CacheStats;
CacheStats pipeline_cache(Pipeline *p);

/* What became of the file of prepared cases, for the log: "24 prepared cases
 * from FILE, 3 added (12.3 MiB)", or why it could not be used, which is no
 * failure. NULL without one, or without memory. */
char *pipeline_store(const Pipeline *p, Arena *mem);

#endif
