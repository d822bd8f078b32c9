/* order.h -- which samples the batches of an epoch have, and their extents.
 *
 * What a Loader needs to know before any sample is made: a function of
 * (pipeline, options, epoch), of no thread. Not thread-safe: the loader asks
 * with its lock held. */
#ifndef SEG_DATA_LOADER_ORDER_H
#define SEG_DATA_LOADER_ORDER_H
#include "data/loader/bucket.h"
#include "data/loader/loader.h"

typedef struct Order {
    Pipeline *pipeline; /* not held: the loader does */
    LoaderOptions options;
    int32_t samples, batches; /* of an epoch */
    int fields;
    Dims dim[MAX_FIELDS];  /* of one sample in a batch, the largest   */
    Dims made[MAX_FIELDS]; /* of one sample as it is made, the largest */
    int32_t most_w;        /* no batch is padded beyond it            */
    Bucket *bucket;        /* NULL: samples are taken as they come    */
    uint32_t *number;      /* (samples) of `epoch`; NULL: 0, 1, 2, ... */
    int32_t *only;         /* (samples) that `number` counts; NULL: all */
    uint32_t epoch;
    bool known; /* `number` is that of `epoch` */
} Order;

/* Checks the options that it needs and looks at all samples; order_free takes
 * what is only half built. */
bool order_make(Order *o, Pipeline *p, const LoaderOptions *options);
void order_free(Order *o);

/* The sample at `place` of an epoch. An epoch's order is drawn when its first
 * sample is asked for: ask for one epoch at a time. */
int32_t order_sample(Order *o, uint32_t epoch, int32_t place);

/* Extents (n = 1) of field `field` of each sample of a batch of these. */
Dims order_dims(const Order *o, const SampleId *id, int count, int field);

/* What the lengths come to, as loader_report says, or "". NULL: no memory. */
const char *order_report(Order *o, uint32_t epoch, Arena *mem);

#endif
