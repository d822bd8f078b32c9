/* cache_key.h -- a hash of everything that a prepared case depends on.
 *
 * Two prepared cases with the same key are equal: it covers the steps, the
 * fields and options of the data set, and of each file its size, modification
 * time, and first and last 64 KiB. Names and paths are not included. A file can
 * differ in spite of an equal key if its modification time was set back; its
 * Origin then differs. */
#ifndef SEG_DATA_PREPROCESS_CACHE_KEY_H
#define SEG_DATA_PREPROCESS_CACHE_KEY_H
#include "data/dataset/dataset.h"
#include "data/steps/step.h"

typedef struct CacheKey {
    uint64_t word[2];
} CacheKey;

/* Adds one more input of the key. */
void cache_key_add(CacheKey *s, const void *data, size_t bytes);

/* The part that is common to all cases of a data set: fields, options, steps.
 * False if memory runs out. */
bool cache_key_begin(const Dataset *ds, const Steps *steps, CacheKey *out);

/* The key of a case, from the common part. False if a file cannot be read, or a
 * source cannot list its inputs (Source.depends is NULL). */
bool cache_key_case(const CacheKey *common, const Dataset *ds, int item,
                    CacheKey *out);

/* Where the files of a case are, and all their bytes. `place` changes with
 * every change to a file (it has the inode and the ctime, which cannot be set
 * back), but also when the contents stay equal: chmod, a restored backup, a
 * container layer. Then `bytes` decides. */
typedef struct Origin {
    CacheKey place, bytes;
} Origin;
bool cache_key_place(const Dataset *ds, int item, CacheKey *out);
/* Reads all bytes of the files. */
bool cache_key_bytes(const Dataset *ds, int item, CacheKey *out);

/* Compares two keys as numbers, for sorting. */
int cache_key_order(const CacheKey *a, const CacheKey *b);
#endif
