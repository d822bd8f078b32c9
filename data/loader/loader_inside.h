/* loader_inside.h -- a loader's batches and workers, for its own files. */
#ifndef SEG_DATA_LOADER_LOADER_INSIDE_H
#define SEG_DATA_LOADER_LOADER_INSIDE_H
#include "data/loader/loader.h"
#include "data/loader/order.h"
#include <pthread.h>

/* One batch of the ring. */
typedef struct Slot {
    Batch batch;
    SampleId *id;
    float *data[MAX_FIELDS]; /* room for a full batch                */
    int started, done;       /* samples handed out, finished         */
    int failed;              /* first sample that failed, or count   */
    ErrKind kind;
    char text[ERR_MAX];
} Slot;

typedef struct Worker {
    struct Loader *loader;
    pthread_t thread;
    double since; /* when it began what it does; 0: it waits */
    int32_t item; /* the case it works on                    */
    bool over;    /* has left the loop                       */
    char row[24]; /* of a trace                              */
    /* one sample, where it has other extents than its batch; (0) when they
     * never differ */
    float *scratch[MAX_FIELDS];
} Worker;

/* Lives as long as the caller or any worker uses it.
 * All below `lock` is guarded by it; what stands above is constant after
 * loader_open, but for `order`, which only begin_batch touches, and the number
 * of workers, which is what could be started; both with the lock held. */
struct Loader {
    Pipeline *pipeline;
    LoaderOptions options;
    Order order;
    int fields, slots;
    int64_t bytes; /* of all slots */
    Slot *slot;

    pthread_mutex_t lock;
    pthread_cond_t work, ready; /* tickets to take; a batch is finished */
    uint32_t epoch;             /* of the next batch to be begun        */
    int32_t number;
    int64_t begun, taken; /* batches begun; handed to the caller  */
    bool held, started;   /* the caller holds a slot; workers run */
    atomic_bool stop;
    int users;      /* the caller and workers that still run  */
    Worker *worker; /* (workers) */
    int workers;    /* at least one: the caller, where there are none */
    LoaderStats stats;
};

/* == batches, in loader_batch.c; all but making need the lock =========== */

/* From a batch that others make, to the next that this rank makes. */
void loader_skip_others(const Loader *l, uint32_t *epoch, int32_t *number);
/* A slot with a sample to make, or NULL when the ring is full. */
Slot *loader_next_work(Loader *l);
/* Make sample i of a slot; the lock is not held. */
bool loader_make_sample(Loader *l, Worker *me, Slot *s, int i);
/* Note what came of sample i; of a failure err.h has the reason. */
void loader_finish_sample(Slot *s, int i, bool ok);
#endif
