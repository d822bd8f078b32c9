/* cache.h -- prepared volumes in memory under a byte budget.
 *
 * cache_get makes a volume when it is not there; two threads that want the
 * same one make it once. What is kept between uses never exceeds the budget;
 * a volume that has no room lives as long as someone holds it. When room is
 * needed the most recently used volume that nobody holds goes: training draws
 * cases at random and evaluation walks them in a circle, and in a circle
 * larger than the budget the least recently used one is just the next one
 * wanted. */
#ifndef SEG_DATA_PREPROCESS_CACHE_H
#define SEG_DATA_PREPROCESS_CACHE_H
#include "data/preprocess/pipeline.h"

typedef struct Cache Cache;

/* Make volume `item`; may run in several threads for different items. */
typedef bool CacheMake(void *context, int item, const atomic_bool *stop,
                       Prepared *out);

bool cache_new(int count, int64_t budget, CacheMake *make, void *context,
               Cache **out);
void cache_free(Cache *c); /* nobody holds a volume; NULL is fine */

/* Make volumes another way from now on; no thread is in cache_get. */
void cache_set_make(Cache *c, CacheMake *make);

/* Keep the volumes of these `count` items, which go up: item[i] is i from now
 * on. The others are not there, and nobody holds or makes any. */
void cache_pick(Cache *c, const int *item, int count);

/* Volume `item`, held until cache_put. Fails as `make` does, and with
 * "stopped" when *stop is raised while another thread makes it. */
bool cache_get(Cache *c, int item, const atomic_bool *stop,
               const Prepared **out);
void cache_put(Cache *c, const Prepared *one);

/* Wake those who wait, so that they look at `stop`. */
void cache_wake(Cache *c);

CacheStats cache_stats(Cache *c);

#endif
