/* loader.h -- batches that worker threads make ahead of training.
 *
 * The stream of batches is endless: epoch 0, batch 0, 1, ...; epoch 1, ....
 * Batch b of epoch e is a function of (pipeline, options, e, b) alone: its
 * samples are order[b * size ...], where order is 0, 1, 2, ... or, shuffled,
 * the permutation drawn from (seed, RNG_SHUFFLE, e), or that of bucket_order.
 * It therefore has the same bytes with any number of workers, and a resumed run
 * seeks and continues.
 *
 * Workers fill a ring of up to `prefetch` batches, sample by sample. A failure
 * in a worker is kept in the batch and returned by loader_next, in the caller's
 * thread, with the case in front. A Loader is used by one thread. */
#ifndef SEG_DATA_LOADER_LOADER_H
#define SEG_DATA_LOADER_LOADER_H
#include "data/preprocess/pipeline.h"
#include "engine/base/trace.h"

typedef struct LoaderOptions {
    int batch;    /* samples per batch, >= 1                          */
    int workers;  /* threads; 0: batches are made inside loader_next  */
    int prefetch; /* batches ahead; 0: 2                              */
    /* Memory limit of the batches ahead and the caller's batch; lowers
     * `prefetch`, but at least one batch is made ahead. 0: 256 MiB. Not used if
     * workers is 0, as no batch is made ahead. */
    int64_t prefetch_bytes;
    bool shuffle;
    bool drop_last; /* leave out a last batch that is not full          */
    /* Samples may differ in w: samples of similar length share a batch
     * (bucket.h). It is padded or cut to its longest sample, rounded up to a
     * multiple of `multiple` (0: 1), but not beyond the w of all samples if
     * they have the same w, as after a fit. The length of a sample is its
     * FIELD_LENGTH, else its w. */
    bool bucket;
    int multiple;
    bool augment;  /* run the SAMPLE steps: training only              */
    bool again;    /* the same samples in the same order with other random
                    * draws: a second view of each sample */
    bool idle;     /* workers use only idle processor time (Linux:
                    * SCHED_IDLE) */
    bool ids_only; /* return sample ids with NULL data; workers and prefetch are
                    * not used */
    /* Use only these `only_count` samples; NULL: all. Not with bucket. Copied
     * by loader_open. */
    const int32_t *only;
    int32_t only_count;
    uint64_t seed; /* of the order                                     */
    /* This process is number `rank` of `ranks` that divide the work; 0 and 1:
     * there is one process. It makes its shard of every batch (ranks_shard), or
     * with whole_batches every batch with number modulo `ranks` equal to
     * `rank`, and passes over the others only in seeking. Extents are those of
     * whole batches. */
    int rank, ranks;
    bool whole_batches;
    /* Called in the caller's thread after it has waited `patience_s` (0: 60)
     * for a batch, and again after each further patience_s: "waiting 60 s for
     * data: worker 1 has been at case_017 for 61 s". May be NULL. */
    void (*waiting)(void *context, const char *text);
    void *context;
    double patience_s;
    Trace *trace; /* records the caller's waits and the making of each sample;
                   * NULL: no trace. Referenced */
} LoaderOptions;

typedef struct Loader Loader;

typedef struct Batch {
    uint32_t epoch;
    int32_t number; /* in its epoch, from 0                  */
    bool last;      /* of its epoch                          */
    int count;      /* samples; fewer in a last batch        */
    int whole;      /* samples of all ranks together         */
    int first;      /* index of this rank's first sample in it */
    bool idle;      /* no sample was left for this rank: the one here belongs to
                     * another rank */
    int fields;
    Tensor field[MAX_FIELDS]; /* F32, n = count, as in the data set; bucketed:
                               * with the w of this batch; data is NULL with
                               * ids_only */
    const SampleId *id;       /* count                                 */
} Batch;

/* Fails if samples differ in extents (bucketed: other than w) and batch > 1, if
 * there are no samples, or if drop_last leaves no batch. Holds the pipeline.
 * Starts at epoch 0, batch 0; work starts with the first loader_next. */
bool loader_open(Pipeline *p, const LoaderOptions *options, Loader **out);

/* Stops and frees; returns within a second whatever the workers do: a worker
 * that hangs in a file is detached, keeps its memory alive and ends when it
 * returns. NULL is allowed. */
void loader_close(Loader *l);

/* Batches of an epoch, and the samples in them. */
int32_t loader_batches(const Loader *l);
int32_t loader_samples(const Loader *l);

/* The index of a field by its name, or -1; for a field the largest extents of a
 * sample in any batch, and its rank, with data NULL. */
int loader_find(const Loader *l, const char *name);
Tensor loader_field(const Loader *l, int field);

/* For the log: "2 batches ahead, 25.3 MiB"; for a bucketed loader also the
 * padding in the next epoch: "; batches of samples of like length, w 64 to 320:
 * 4.1 % of them is padding, 38.9 % were all 320". NULL if memory runs out. */
char *loader_report(Loader *l, Arena *mem);

/* Continues with this batch; number == loader_batches means the first of the
 * next epoch. Batches made ahead are kept if they are the next ones. */
bool loader_seek(Loader *l, uint32_t epoch, int32_t number);

/* Returns the next batch, valid until the next call for this loader. After a
 * failure the same batch is due again and fails again. */
bool loader_next(Loader *l, const Batch **out);

typedef struct LoaderStats {
    int64_t batches, samples; /* returned                                 */
    double wait_s;            /* time that the caller waited (workers 0: made
                               * batches) */
} LoaderStats;
LoaderStats loader_stats(const Loader *l);

#endif
