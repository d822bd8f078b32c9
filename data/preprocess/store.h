/* store.h -- prepared cases in a file, cached from one run to the next.
 *
 * Decoding and preparing a case takes far longer than reading the prepared
 * numbers. A store is one file that is mapped into memory. Cases are found by
 * their cache key, so a case made from other files or by other steps is not
 * found, and the numbers are used in place. All contents have checksums;
 * damaged parts count as absent. The file holds images of patients and is
 * readable by its owner only.
 *
 * Cases are appended: existing contents stay, and the index lists new cases
 * only after all of them are on the disk, so that a killed run leaves the store
 * unchanged. One process appends at a time; another process continues without
 * appending. To free the disk space, remove the file. */
#ifndef SEG_DATA_PREPROCESS_STORE_H
#define SEG_DATA_PREPROCESS_STORE_H
#include "data/preprocess/cache_key.h"
#include "data/preprocess/prepare.h"

typedef struct Store Store;

/* Opens or begins the file. ERR_DATA if it is not a store (it is never
 * overwritten), ERR_FAILURE if it cannot be read or created. */
bool store_open(const char *path, Store **out);
/* Discards cases that were added and not committed; NULL is allowed. No
 * Prepared of this store may be in use. */
void store_close(Store *s);

/* Looks up the case with this key: *found; its packs point into the mapped
 * file, and *notes lives until store_close. Safe in several threads. */
void store_get(Store *s, const CacheKey *cache_key, Prepared *out,
               const char **notes, bool *found);

/* The Origin of the files of this case when it was added; false: the case is
 * absent. Safe in several threads, as are the next two functions. */
bool store_origin(Store *s, const CacheKey *cache_key, Origin *out);
/* Records the new place of the files of a case with unchanged bytes; written by
 * the next commit if possible. */
void store_moved(Store *s, const CacheKey *cache_key, const CacheKey *place);

/* Appends a case; replaces one with the same key. A failure (a full disk,
 * another process that appends) ends all appending, and store_commit reports
 * its reason. */
void store_add(Store *s, const CacheKey *cache_key, const Origin *origin,
               const Prepared *p, const char *notes);

/* Makes the added cases part of the file; they can be read at once. False with
 * the reason if cases were to be added and could not be. */
bool store_commit(Store *s);

typedef struct StoreStats {
    int64_t cases, bytes;        /* in the file        */
    int64_t got, added, damaged; /* since opening       */
} StoreStats;
StoreStats store_stats(Store *s);

/* Is this file a store, by its first bytes? */
bool store_is(const char *path);

/* Reads the number of cases and bytes of a store without changing it. *current
 * false: of another version of the program, or damaged; counts no cases. */
bool store_look(const char *path, StoreStats *out, bool *current);
#endif
