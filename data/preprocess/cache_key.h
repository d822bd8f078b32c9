/* cache_key.h -- what a prepared case depends on, as one number.
 *
 * Two prepared cases with the same stamp are equal: it covers the steps, the
 * fields and options of the data set, and of each file its size, time of
 * change, and first and last 64 KiB. Neither names nor paths are in it. A file
 * may be other all the same, where its time was put back: that shows in its
 * Origin. */
#ifndef SEG_DATA_PREPROCESS_CACHE_KEY_H
#define SEG_DATA_PREPROCESS_CACHE_KEY_H
#include "data/dataset/dataset.h"
#include "data/steps/step.h"

typedef struct CacheKey {
    uint64_t word[2];
} CacheKey;

/* One more piece of what a case depends on. */
void cache_key_add(CacheKey *s, const void *data, size_t bytes);

/* What all cases of a data set have in common: fields, options, steps. False
 * without memory. */
bool cache_key_begin(const Dataset *ds, const Steps *steps, CacheKey *out);

/* That of a case, from what they have in common. False when a file cannot be
 * read, or a source does not say what it depends on. */
bool cache_key_case(const CacheKey *common, const Dataset *ds, int item,
                    CacheKey *out);

/* Where the files of a case lie, and all that they hold. `place` changes with
 * whatever is done to a file (the inode, and the time of its last change of
 * state, which nobody can put back), and also where nothing in it is other:
 * chmod, a restored backup, a layer of a container. Then `bytes` decides. */
typedef struct Origin {
    CacheKey place, bytes;
} Origin;
bool cache_key_place(const Dataset *ds, int item, CacheKey *out);
/* Reads all bytes of the files. */
bool cache_key_bytes(const Dataset *ds, int item, CacheKey *out);

/* The order of two stamps, as of numbers. */
int cache_key_order(const CacheKey *a, const CacheKey *b);
#endif
