/* cache.h -- prepared volumes in memory under a byte budget.
 *
 * cache_get makes a volume that is absent; if two threads request the same
 * volume, it is made once. Cached volumes never exceed the budget; a volume
 * that does not fit lives as long as a caller holds it. To make room the cache
 * evicts the most recently used volume that no caller holds: training draws
 * cases at random and evaluation cycles through them, and in a cycle larger
 * than the budget the least recently used volume is the next one needed. */
#ifndef SEG_DATA_PREPROCESS_CACHE_H
#define SEG_DATA_PREPROCESS_CACHE_H
#include "data/preprocess/pipeline.h"

typedef struct Cache Cache;

/* Makes volume `item`; may run in several threads for different items. */
typedef bool CacheMake(void *context, int item, const atomic_bool *stop,
                       Prepared *out);

bool cache_new(int count, int64_t budget, CacheMake *make, void *context,
               Cache **out);
void cache_free(Cache *c); /* call when no volume is held; NULL is allowed */

/* Sets another function for later volumes; no thread may be in cache_get. */
void cache_set_make(Cache *c, CacheMake *make);

/* Keeps the volumes of these `count` items (ascending) and renumbers them:
 * item[i] becomes i. The other items are not cached, held or being made. */
void cache_pick(Cache *c, const int *item, int count);

/* Returns volume `item`, held until cache_put. Fails as `make` does, and with
 * "stopped" if *stop is raised while another thread makes the volume. */
bool cache_get(Cache *c, int item, const atomic_bool *stop,
               const Prepared **out);
void cache_put(Cache *c, const Prepared *one);

/* Wakes waiting threads, so that they check `stop`. */
void cache_wake(Cache *c);

CacheStats cache_stats(Cache *c);

#endif
