/* loader.h -- batches made ahead by worker threads.
 *
 * The stream of batches is endless: epoch 0, batch 0, 1, ...; epoch 1, ....
 * Batch b of epoch e is a function of (pipeline, options, e, b) alone: its
 * samples are order[b * size ...] where order is 0, 1, 2, ... or, shuffled,
 * the permutation drawn from (seed, RNG_SHUFFLE, e), or what bucket_order makes
 * of it. So it has the same bytes
 * with any number of workers, and a resumed run seeks and goes on.
 *
 * Workers fill a ring of up to `prefetch` batches, sample by sample. What fails
 * in a worker is kept in the batch and returned by loader_next, in the caller's
 * thread, with the case in front. One thread uses a Loader. */
#ifndef SEG_DATA_LOADER_LOADER_H
#define SEG_DATA_LOADER_LOADER_H
#include "data/preprocess/pipeline.h"
#include "engine/base/trace.h"

typedef struct LoaderOptions {
    int batch;    /* samples a batch, >= 1                            */
    int workers;  /* threads; 0: batches are made inside loader_next  */
    int prefetch; /* batches ahead; 0: 2                              */
    /* What the batches ahead and the one that the caller holds take at most;
     * fewer are made ahead then, but always one. 0: 256 MiB. Workers 0: none
     * is made ahead. */
    int64_t prefetch_bytes;
    bool shuffle;
    bool drop_last; /* leave out a last batch that is not full          */
    /* Samples may differ in w: those of like length share a batch (bucket.h),
     * which is padded to, or cut to, its longest, rounded up to a multiple of
     * `multiple` (0: 1); but not beyond what all samples have where that is
     * one extent, as after a fit. The length of a sample is what a field of
     * that kind says, else its w. */
    bool bucket;
    int multiple;
    bool augment;  /* run the SAMPLE steps: training only              */
    bool again;    /* the same samples in the same order, but all that is
                    * drawn for a sample is drawn anew: another view of it */
    bool idle;     /* workers take only what processor time nobody else
                    * on the machine wants (Linux: SCHED_IDLE)         */
    bool ids_only; /* name the samples, make none: their data is NULL,
                    * and neither workers nor prefetch count            */
    /* These samples alone, `only_count` of them, instead of all; NULL: all.
     * Not with bucket. Not kept: copied by loader_open. */
    const int32_t *only;
    int32_t only_count;
    uint64_t seed; /* of the order                                     */
    /* One of `ranks` processes that divide the work; 0 and 1: there is one.
     * It makes its share of every batch (ranks_share), or with whole_batches
     * all of those whose number in the epoch is `rank` modulo `ranks`, and
     * comes by the others in seeking only. Extents are those of whole batches.
     */
    int rank, ranks;
    bool whole_batches;
    /* Called in the caller's thread after it has waited `patience_s` (0: 60)
     * for a batch, and again each time that passes: "waiting 60 s for data:
     * worker 1 has been at case_017 for 61 s". May be NULL. */
    void (*waiting)(void *context, const char *text);
    void *context;
    double patience_s;
    Trace *trace; /* takes down the caller's waits and each sample that is
                   * made; NULL: nobody looks. Held */
} LoaderOptions;

typedef struct Loader Loader;

typedef struct Batch {
    uint32_t epoch;
    int32_t number; /* in its epoch, from 0                  */
    bool last;      /* of its epoch                          */
    int count;      /* samples; fewer than `batch` at an end */
    int whole;      /* those of all ranks together           */
    int first;      /* number among them of the first here   */
    bool idle;      /* none was left for this rank: the one here is
                     * another's                             */
    int fields;
    Tensor field[MAX_FIELDS]; /* F32, n = count; as the dataset's; its w that
                               * of this batch when bucketed; the data
                               * of ids_only is NULL                      */
    const SampleId *id;       /* count                                 */
} Batch;

/* Fails when samples differ in extents (bucketed: in others than w) and
 * batch > 1, when there are no samples, or when drop_last leaves no batch.
 * Holds the pipeline. Starts at
 * epoch 0, batch 0, and starts no work before the first loader_next. */
bool loader_open(Pipeline *p, const LoaderOptions *options, Loader **out);

/* Stops and frees; returns within a second whatever the workers do: one that
 * hangs in a file is left alone, keeps what it uses alive and ends by itself
 * when it returns. NULL is fine. */
void loader_close(Loader *l);

/* Batches of an epoch, and the samples in them. */
int32_t loader_batches(const Loader *l);
int32_t loader_samples(const Loader *l);

/* The number of a field by its name, or -1; of a field the largest extents that
 * a sample has in any batch, and its rank; data is NULL. */
int loader_find(const Loader *l, const char *name);
Tensor loader_field(const Loader *l, int field);

/* For the log: "2 batches ahead, 25.3 MiB"; of a bucketed loader also what the
 * lengths come to in the epoch that is begun next: "; batches of samples of
 * like length, w 64 to 320: 4.1 % of them is padding, 38.9 % were all 320".
 * NULL without memory. */
char *loader_report(Loader *l, Arena *mem);

/* Go on with this batch; number == loader_batches means the next epoch's
 * first. Batches made ahead are kept when they are the ones wanted. */
bool loader_seek(Loader *l, uint32_t epoch, int32_t number);

/* The next batch; it is valid until the next call for this loader. After a
 * failure the same batch is due again and fails again. */
bool loader_next(Loader *l, const Batch **out);

typedef struct LoaderStats {
    int64_t batches, samples; /* handed out                               */
    double wait_s;            /* the caller spent waiting (with workers 0:
                               * making batches)                          */
} LoaderStats;
LoaderStats loader_stats(const Loader *l);

#endif
