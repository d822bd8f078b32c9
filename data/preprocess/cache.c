/* cache.c -- prepared volumes under a byte budget; see cache.h for the eviction
 * policy.
 *
 * One lock guards everything except making a volume. An entry is EMPTY, MAKING
 * (by one thread, outside the lock; others wait) or READY. A READY volume that
 * is `kept` counts against the budget; a volume that does not fit is freed when
 * its last holder returns it. */
#include "data/preprocess/cache.h"
#include <pthread.h>

typedef enum EntryState { EMPTY, MAKING, READY } EntryState;

typedef struct Entry {
    Prepared value;
    EntryState state;
    int holders;
    bool kept;     /* counted in bytes; stays without holders           */
    uint64_t used; /* clock of the last get                             */
} Entry;

/* Only the thread that makes an entry in state MAKING may access it; others
 * wait. */
struct Cache {
    pthread_mutex_t lock;
    pthread_cond_t changed; /* an entry left MAKING, or cache_wake */
    Entry *entry;
    CacheMake *make;
    void *context;
    int making;   /* threads that make a volume                       */
    bool crowded; /* several threads made volumes at once             */
    bool alone;   /* a thread ran out of memory: it waits until no other makes
                   * a volume, or makes its volume alone */
    uint64_t clock;
    CacheStats stats;
};

/* makes no volume until cache_get */
bool cache_new(int count, int64_t budget, CacheMake *make, void *context,
               Cache **out)
{
    *out = NULL;
    Cache *c = mem_alloc(sizeof *c);
    Entry *entry = c ? mem_alloc((size_t)count * sizeof *entry) : NULL;
    if (!entry) {
        mem_free(c);
        return false;
    }
    *c = (Cache){.entry = entry, .make = make, .context = context};
    c->stats.budget = budget;
    c->stats.count = count;
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->changed, NULL);
    *out = c;
    return true;
}

void cache_free(Cache *c)
{
    if (!c) return;
    for (int i = 0; i < c->stats.count; i++) {
        CHECK(c->entry[i].holders == 0);
        prepared_free(&c->entry[i].value);
    }
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->lock);
    mem_free(c->entry);
    mem_free(c);
}

void cache_set_make(Cache *c, CacheMake *make)
{
    c->make = make;
}

void cache_pick(Cache *c, const int *item, int count)
{
    static const Entry empty;
    for (int i = 0; i < count; i++) {
        if (item[i] == i) continue;
        CHECK(item[i] > i && c->entry[i].state == EMPTY);
        c->entry[i] = c->entry[item[i]];
        c->entry[i].value.item = i;
        c->entry[item[i]] = empty;
    }
    c->stats.count = count;
}

/* frees a volume without holders */
static void drop(Cache *c, Entry *e)
{
    if (e->kept) {
        c->stats.bytes -= (int64_t)e->value.bytes;
        c->stats.kept--;
    }
    prepared_free(&e->value);
    e->kept = false;
    e->state = EMPTY;
}

/* Keeps `e` if it fits, after evicting volumes without holders. Does nothing if
 * it does not fit even then; the volume then lives only while it is held.
 * Linear in the number of cases, which is cheap compared with preparing one. */
static void keep(Cache *c, Entry *e)
{
    int64_t want = (int64_t)e->value.bytes;

    // would evict everything and still not fit
    if (want > c->stats.budget) return;

    while (c->stats.bytes + want > c->stats.budget) {
        // the most recently used volume without holders
        Entry *latest = NULL;
        for (int i = 0; i < c->stats.count; i++) {
            Entry *o = &c->entry[i];
            if (o->kept && !o->holders && (!latest || o->used > latest->used))
                latest = o;
        }
        if (!latest) return;
        drop(c, latest);
    }

    // its bytes count from this point
    e->kept = true;
    c->stats.kept++;
    c->stats.bytes += want;
    if (c->stats.bytes > c->stats.peak) c->stats.peak = c->stats.bytes;
}

/* Makes a volume; the lock is held on entry and exit. Threads that make several
 * volumes at once may run out of memory when one volume would fit: the volume
 * is then made again while no other thread makes any. */
static bool make_one(Cache *c, int item, const atomic_bool *stop, Prepared *out)
{
    size_t room;
    while (c->alone) pthread_cond_wait(&c->changed, &c->lock);
    c->crowded = ++c->making > 1 || c->crowded;
    pthread_mutex_unlock(&c->lock);
    bool ok = c->make(c->context, item, stop, out);
    pthread_mutex_lock(&c->lock);
    c->making--;
    pthread_cond_broadcast(&c->changed);
    if (ok || !c->crowded || !err_wanted(&room)) return ok;
    while (c->alone) pthread_cond_wait(&c->changed, &c->lock);
    c->alone = true;
    while (c->making) pthread_cond_wait(&c->changed, &c->lock);
    pthread_mutex_unlock(&c->lock);
    ok = c->make(c->context, item, stop, out);
    pthread_mutex_lock(&c->lock);
    c->alone = false;
    pthread_cond_broadcast(&c->changed);
    return ok;
}

/* After a failure the entry is EMPTY: the next thread that requests it tries
 * again and gets the reason itself. */
bool cache_get(Cache *c, int item, const atomic_bool *stop,
               const Prepared **out)
{
    Entry *e = &c->entry[item];
    bool ok = true;
    CHECK(item >= 0 && item < c->stats.count);
    pthread_mutex_lock(&c->lock);

    // cache_wake ends the wait of a loader that closes
    while (ok && e->state == MAKING) {
        if (stop && atomic_load(stop))
            ok = fail("stopped");
        else
            pthread_cond_wait(&c->changed, &c->lock);
    }

    if (ok && e->state == READY) {
        c->stats.hits++;
    } else if (ok) {
        // keeps all others out of the entry
        e->state = MAKING;
        c->stats.misses++;
        ok = make_one(c, item, stop, &e->value);
        e->state = ok ? READY : EMPTY;
        if (ok) keep(c, e);
        pthread_cond_broadcast(&c->changed);
    }

    if (ok) {
        e->holders++;
        e->used = ++c->clock;
        *out = &e->value;
    }

    pthread_mutex_unlock(&c->lock);
    return ok;
}

/* A volume that was not kept gets a second chance here, else it is freed. */
void cache_put(Cache *c, const Prepared *one)
{
    // value is the first member of its entry
    Entry *e = (Entry *)one;
    pthread_mutex_lock(&c->lock);
    CHECK(e->holders > 0);
    if (--e->holders == 0 && !e->kept) {
        // memory may have become free since it was made
        keep(c, e);
        if (!e->kept) drop(c, e);
    }
    pthread_mutex_unlock(&c->lock);
}

void cache_wake(Cache *c)
{
    pthread_mutex_lock(&c->lock);
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
}

CacheStats cache_stats(Cache *c)
{
    pthread_mutex_lock(&c->lock);
    CacheStats s = c->stats;
    pthread_mutex_unlock(&c->lock);
    return s;
}
