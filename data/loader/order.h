/* order.h -- the samples of the batches of an epoch, and their extents.
 *
 * A function of (pipeline, options, epoch) alone, computed before any sample is
 * made and independent of threads. Not thread-safe: the loader calls it with
 * its lock held. */
#ifndef SEG_DATA_LOADER_ORDER_H
#define SEG_DATA_LOADER_ORDER_H
#include "data/loader/bucket.h"
#include "data/loader/loader.h"

typedef struct Order {
    Pipeline *pipeline; /* not referenced: the loader holds it */
    LoaderOptions options;
    int32_t samples, batches; /* per epoch   */
    int fields;
    Dims dim[MAX_FIELDS];  /* of one sample in a batch, the largest   */
    Dims made[MAX_FIELDS]; /* of one sample as made, the largest       */
    int32_t most_w;        /* maximum w of a batch after padding      */
    Bucket *bucket;        /* NULL: no bucketing                      */
    uint32_t *number;      /* (samples) of `epoch`; NULL: 0, 1, 2, ... */
    int32_t *only;         /* (samples): `number` indexes it; NULL: all */
    uint32_t epoch;
    bool known; /* `number` is that of `epoch` */
} Order;

/* Checks the options and the extents of all samples; order_free accepts the
 * result of a failure. */
bool order_make(Order *o, Pipeline *p, const LoaderOptions *options);
void order_free(Order *o);

/* The sample at `place` of an epoch. The first request for an epoch draws its
 * order: request the samples of one epoch at a time. */
int32_t order_sample(Order *o, uint32_t epoch, int32_t place);

/* Extents (n = 1) of field `field` of each sample in a batch of these
 * samples. */
Dims order_dims(const Order *o, const SampleId *id, int count, int field);

/* The text about padding in loader_report, or "". NULL: out of memory. */
const char *order_report(Order *o, uint32_t epoch, Arena *mem);

#endif
