/* store.h -- prepared cases in a file, from one run to the next.
 *
 * Decoding and preparing a case takes far longer than reading what came of it.
 * A store is one file that is mapped into memory: cases are found by their
 * stamp, so that one that was made from other files, or by other steps, is not
 * found, and the numbers are used where they lie. Everything in it has a
 * checksum; what is damaged is as if it were not there. It holds images of
 * patients and is readable by its owner only.
 *
 * Cases are appended: what was there stays, and the file names the new ones
 * only when all of them are on the disk, so that a killed run leaves it as it
 * was. One process appends at a time; another goes on without. Whoever wants
 * the room back removes the file. */
#ifndef SEG_DATA_PREPROCESS_STORE_H
#define SEG_DATA_PREPROCESS_STORE_H
#include "data/preprocess/cache_key.h"
#include "data/preprocess/prepare.h"

typedef struct Store Store;

/* Open or begin the file. ERR_DATA when it is something else than a store
 * (which is never written over), ERR_FAILURE when it cannot be read or made. */
bool store_open(const char *path, Store **out);
/* Forgets what was added and not committed; NULL is fine. No Prepared of this
 * store is in use. */
void store_close(Store *s);

/* The case with this stamp: *found; its packs lie in the file, *notes until
 * store_close. Safe in several threads. */
void store_get(Store *s, const CacheKey *cache_key, Prepared *out,
               const char **notes, bool *found);

/* What the files of this case were when it was added; false: it is not there.
 * Safe in several threads, as are the two below. */
bool store_origin(Store *s, const CacheKey *cache_key, Origin *out);
/* The files of a case, whose bytes are the same, lie at another place now:
 * remembered from the next commit on, if it can be. */
void store_moved(Store *s, const CacheKey *cache_key, const CacheKey *place);

/* Append a case, in the place of one with the same stamp. A failure (a full
 * disk; another process that appends) ends all appending, and its reason is
 * that of store_commit. */
void store_add(Store *s, const CacheKey *cache_key, const Origin *origin,
               const Prepared *p, const char *notes);

/* Make what was added part of the file, from which it can be had at once. False
 * with the reason when there was something to add and it could not be. */
bool store_commit(Store *s);

typedef struct StoreStats {
    int64_t cases, bytes;        /* in the file        */
    int64_t got, added, damaged; /* since it was opened */
} StoreStats;
StoreStats store_stats(Store *s);

/* Is this file a store, by its first bytes? */
bool store_is(const char *path);

/* Cases and bytes of a store that is only looked at: nothing is begun anew or
 * changed. *current false: another program's, or damaged; it counts no cases.
 */
bool store_look(const char *path, StoreStats *out, bool *current);
#endif
