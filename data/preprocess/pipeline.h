/* pipeline.h -- a data set and data steps: samples by number.
 *
 * Opening a pipeline prepares every case once, in threads: faults of files are
 * reported before training begins, and the number of samples, their extents,
 * the slices with foreground and the class counts are known. Prepared volumes
 * are cached under a byte budget and prepared again after eviction; the bytes
 * of a sample depend only on (steps, case, slice, and for augmentation seed,
 * epoch, number).
 *
 * Training, validation and prediction (a data set without a mask field) prepare
 * a case by the same function. */
#ifndef SEG_DATA_PREPROCESS_PIPELINE_H
#define SEG_DATA_PREPROCESS_PIPELINE_H
#include "data/augment/augment.h"
#include "data/preprocess/prepare.h"

typedef struct Pipeline Pipeline;

typedef struct PipelineOptions {
    int threads;         /* for opening; 0: only the caller's           */
    int64_t cache_bytes; /* cache of prepared volumes; 0: none          */
    const char *store;   /* file that caches them between runs (store.h); NULL:
                          * none */
    uint64_t seed;       /* for augmentation                            */
    bool skip_bad; /* leave out cases that cannot be read or prepared (ERR_DATA)
                    * instead of failing: pipeline_bad */
    const atomic_bool *stop; /* raise it to stop opening; may be NULL     */
    /* Called by opening after each case, from any of its threads, one at a
     * time; may be NULL. */
    void (*progress)(void *context, int done, int count);
    void *context;
    /* Called by opening, from a thread of its own, if a case takes longer than
     * patience_s (0: 60): see stall_monitor.h. May be NULL. */
    void (*waiting)(void *context, const char *text);
    double patience_s;
} PipelineOptions;

/* Prepares all cases; keeps its own view of `ds` and a reference to the user
 * step of `steps`. The reason of a failure begins with the key of the first
 * case (in order) that failed. */
bool pipeline_open(const Dataset *ds, const Steps *steps,
                   const PipelineOptions *options, Pipeline **out);

/* Pipelines are reference-counted: loaders hold one too. NULL is allowed. */
void pipeline_hold(Pipeline *p);
void pipeline_free(Pipeline *p);

const Dataset *pipeline_dataset(const Pipeline *p);
const Steps *pipeline_steps(const Pipeline *p);

/* Identifies a sample. Samples are sorted by case, then part. */
typedef struct SampleId {
    int32_t number; /* index in the list of samples                       */
    int32_t item;   /* index of the case in the data set                  */
    int32_t part;   /* of the case (patch.h); for slices its d; 0: whole    */
} SampleId;

int32_t pipeline_samples(const Pipeline *p);
SampleId pipeline_id(const Pipeline *p, int32_t number);

/* Rank of a field in samples: its rank in the data set, but 2 for slices and
 * flat patches of volumes. */
int pipeline_rank(const Pipeline *p, int field);

/* Extents of field `field` of sample `number`, n = 1, and of all samples; the
 * latter fails if they differ, naming two cases and the fix (fit or resize). */
Dims pipeline_dims_of(const Pipeline *p, int32_t number, int field);
bool pipeline_dims(const Pipeline *p, int field, Dims *out);
/* The same for samples that may differ in w; *out has the largest w. */
bool pipeline_dims_but_w(const Pipeline *p, int field, Dims *out);

/* Do samples differ between epochs before any SAMPLE step? */
bool pipeline_drawn(const Pipeline *p);

/* Fills out[field] (F32, pipeline_dims_of elements; NULL: not requested) with
 * sample `number`; random patches are drawn for `epoch`. `augment`: applies the
 * SAMPLE steps as drawn for `epoch`. Safe in several threads at once. If *stop
 * is raised, fails with "stopped". */
bool pipeline_sample(Pipeline *p, int32_t number, uint32_t epoch, bool augment,
                     const atomic_bool *stop, float *const out[MAX_FIELDS]);

/* The changes that the SAMPLE steps make to sample `number` in `epoch`, in
 * their order, for a caller that has the sample without augmentation; returns
 * how many. */
int pipeline_changes(const Pipeline *p, int32_t number, uint32_t epoch,
                     Change out[MAX_STEPS]);

/* Gets a prepared case, held until pipeline_put; constant. */
bool pipeline_get(Pipeline *p, int item, const Prepared **out);
void pipeline_put(Pipeline *p, const Prepared *one);

/* Wakes threads that wait inside the pipeline, so that they check `stop`. */
void pipeline_wake(Pipeline *p);

/* Properties of case `item`, found when opening. */
typedef struct CaseFacts {
    Dims dim;   /* of the prepared image                   */
    Grid input; /* as loaded                               */
    int32_t channels[MAX_FIELDS];
    int64_t bytes; /* of the prepared volumes */
    uint64_t hash; /* of the loaded image: extents and voxels */
    /* For the first channels of the image as loaded. */
    Intensity intensity[INTENSITY_CHANNELS];
    int32_t intensities;
    int64_t *voxels; /* (MAX_LABELS + 1): of each class in the slices used; NULL
                      * without a field of class numbers */
    int32_t slices, foreground_slices; /* used; of these with a label > 0 */
    int32_t length;    /* along w without padding, from the field of kind
                        * FIELD_LENGTH; 0 without one */
    const char *notes; /* messages of the reader, one per line, or "" */
} CaseFacts;
const CaseFacts *pipeline_facts(const Pipeline *p, int item);

/* With skip_bad: the cases that were left out, in the order of the data set,
 * with reasons. pipeline_dataset has only the others. If more than half of all
 * cases are bad, opening fails: the fault is then not in single files. */
typedef struct BadCase {
    const char *key, *patient, *reason;
} BadCase;
int pipeline_bad(const Pipeline *p, const BadCase **list);

/* In split_leakage.c: checks that no volume is on two sides under two names and
 * no patient on two sides; sides[i] may be NULL. Disjoint slabs are no leak. */
enum { PIPELINE_SIDES = 8 };
bool pipeline_check_leakage(const Pipeline *const *sides, int count);

/* In report.c: cases, patients, samples, extents, spacings, class fractions,
 * and the contents of the cache. NULL if memory runs out. */
char *pipeline_report(Pipeline *p, Arena *mem);

typedef struct CacheStats {
    int64_t budget, bytes, peak; /* bytes cached; peak <= budget        */
    int64_t hits, misses;        /* since opening                       */
    int32_t kept, count;         /* volumes cached, of `count`          */
} CacheStats;
CacheStats pipeline_cache(Pipeline *p);

/* The use of the file of prepared cases, for the log: "24 prepared cases from
 * FILE, 3 added (12.3 MiB)", or why the file was not used, which is not a
 * failure. NULL without a file, or if memory runs out. */
char *pipeline_store(const Pipeline *p, Arena *mem);

#endif
