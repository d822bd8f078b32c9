/* cache.c -- tests of prepared volumes that several threads make at a time,
 * with memory for one. */
#include "data/preprocess/cache.h"
#include "engine/base/clock.h"
#include "tests/test.h"
#include <pthread.h>

enum { ITEMS = 8, THREADS = 4 };

typedef struct Maker {
    Cache *cache;
    atomic_int now, next, refused, made;
    bool always; /* not even memory for one */
} Maker;

/* Makes a volume that takes all memory while it is made. */
static bool make(void *context, int item, const atomic_bool *stop,
                 Prepared *out)
{
    Maker *m = context;
    bool alone = atomic_fetch_add(&m->now, 1) == 0;
    (void)item, (void)stop;
    for (double until = clock_s() + 0.005; clock_s() < until;)
        alone = alone && atomic_load(&m->now) == 1;
    atomic_fetch_sub(&m->now, 1);
    if (!alone || m->always) {
        m->refused++;
        return fail_memory(ERR_FAILURE, 100, 50, "no memory: 100 bytes wanted");
    }
    m->made++;
    *out = (Prepared){.bytes = 10};
    return true;
}

static void *ask(void *context)
{
    Maker *m = context;
    int got = 0;
    for (int i; (i = atomic_fetch_add(&m->next, 1)) < ITEMS;) {
        const Prepared *one;
        if (!cache_get(m->cache, i, NULL, &one)) continue;
        cache_put(m->cache, one);
        got++;
    }
    return (void *)(intptr_t)got;
}

/* Returns the number of volumes that all threads together received. */
static int ask_all(Maker *m)
{
    pthread_t thread[THREADS];
    int all = 0;
    REQUIRE(cache_new(ITEMS, 1 << 20, make, m, &m->cache));
    for (int i = 0; i < THREADS; i++)
        REQUIRE(!pthread_create(&thread[i], NULL, ask, m));
    for (int i = 0; i < THREADS; i++) {
        void *got;
        pthread_join(thread[i], &got);
        all += (int)(intptr_t)got;
    }

    cache_free(m->cache);
    return all;
}

TEST(cache_makes_one_at_a_time_when_memory_is_short)
{
    Maker m = {0};
    EXPECT_INT(ask_all(&m), ITEMS);
    EXPECT_INT(m.made, ITEMS);
    EXPECT(m.refused > 0);
}

TEST(cache_without_memory_for_one_fails)
{
    Maker m = {.always = true};
    EXPECT_INT(ask_all(&m), 0);
    EXPECT(m.refused >= ITEMS);
}
