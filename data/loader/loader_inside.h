/* loader_inside.h -- batches and workers of a loader; private to its
 * sources. */
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
    int started, done;       /* samples begun, finished              */
    int failed;              /* first failed sample, or count        */
    ErrKind kind;
    char text[ERR_MAX];
} Slot;

typedef struct Worker {
    struct Loader *loader;
    pthread_t thread;
    double since; /* start of the current sample; 0: waiting */
    int32_t item; /* index of its case                       */
    bool over;    /* has left the loop                       */
    char row[24]; /* its row in a trace                      */
    /* a sample with other extents than its batch; NULL if they never differ */
    float *scratch[MAX_FIELDS];
} Worker;

/* Lives as long as the caller or any worker uses it. `lock` guards all members
 * below it. The members above are constant after loader_open, except `order`,
 * which only begin_batch changes, and the number of workers, which is set to
 * the threads that could be started; both change with the lock held. */
struct Loader {
    Pipeline *pipeline;
    LoaderOptions options;
    Order order;
    int fields, slots;
    int64_t bytes; /* of all slots */
    Slot *slot;

    pthread_mutex_t lock;
    pthread_cond_t work, ready; /* samples to make; a batch is finished */
    uint32_t epoch;             /* of the next batch to begin           */
    int32_t number;
    int64_t begun, taken; /* batches begun; returned to the caller */
    bool held, started;   /* the caller has a slot; workers run   */
    atomic_bool stop;
    int users;      /* the caller and the running workers     */
    Worker *worker; /* (workers) */
    int workers;    /* at least one: without threads the caller is it */
    LoaderStats stats;
};

/* == batches, in loader_batch.c; all but making need the lock =========== */

/* Skips batches of other ranks, to the next batch that this rank makes. */
void loader_skip_others(const Loader *l, uint32_t *epoch, int32_t *number);
/* Returns a slot with a sample to make, or NULL if the ring is full. */
Slot *loader_next_work(Loader *l);
/* Makes sample i of a slot; call without the lock. */
bool loader_make_sample(Loader *l, Worker *me, Slot *s, int i);
/* Records the result of sample i; on failure err.h has the reason. */
void loader_finish_sample(Slot *s, int i, bool ok);
#endif
