/* parallel_for.c -- tests of threads that process items in order. */
#include "data/parallel_for.h"
#include "engine/base/err.h"
#include "tests/test.h"
#include <stdatomic.h>
#include <string.h>
#include <time.h>

enum { ITEMS = 500 };

/* Records the work, and defines the items that fail. */
typedef struct Job {
    atomic_int times[ITEMS];
    atomic_bool busy[MAX_PARALLEL]; /* a thread processes one item at a time */
    atomic_int overlaps;            /* violations of that */
    int slow, quick;                /* items that fail; -1: none         */
    atomic_bool *stop;
    int stop_at; /* item that sets stop; later items wait for it */
} Job;

static void pause_ms(int ms)
{
    nanosleep(&(struct timespec){0, ms * 1000000}, NULL);
}

static bool work(void *context, int thread, int item)
{
    Job *job = context;
    bool ok = true;
    REQUIRE(thread >= 0 && thread < MAX_PARALLEL);
    if (atomic_exchange(&job->busy[thread], true))
        atomic_fetch_add(&job->overlaps, 1);
    atomic_fetch_add(&job->times[item], 1);
    if (job->stop && item == job->stop_at) atomic_store(job->stop, true);
    while (job->stop && item > job->stop_at && !atomic_load(job->stop))
        pause_ms(1);

    if (item == job->slow) {
        pause_ms(20);
        ok = fail_data("item %d, slow", item);
    } else if (item == job->quick) {
        ok = fail_usage("item %d, quick", item);
    }

    atomic_store(&job->busy[thread], false);
    return ok;
}

static const int THREADS[] = {0, 1, 2, 7, MAX_PARALLEL, 1000};

TEST(parallel_for_does_every_item_once)
{
    for (size_t t = 0; t < sizeof THREADS / sizeof *THREADS; t++) {
        Job job = {.slow = -1, .quick = -1};
        EXPECT(parallel_for(ITEMS, THREADS[t], NULL, work, &job));
        for (int i = 0; i < ITEMS; i++)
            EXPECT_INT(atomic_load(&job.times[i]), 1);
        EXPECT_INT(atomic_load(&job.overlaps), 0);
    }
    EXPECT(parallel_for(0, 4, NULL, work, NULL));
}

/* Item 3 fails slowly, so that with several threads item 4 has failed long
 * before. */
TEST(parallel_for_reports_the_first_failure_in_order)
{
    for (size_t t = 0; t < sizeof THREADS / sizeof *THREADS; t++) {
        Job job = {.slow = 3, .quick = 4};
        EXPECT(!parallel_for(ITEMS, THREADS[t], NULL, work, &job));
        EXPECT_TEXT(err_text(), "item 3, slow");
        EXPECT_INT(err_kind(), ERR_DATA);
        // no item starts after a failure; earlier items may still be running
        for (int i = 4; THREADS[t] < 2 && i < ITEMS; i++)
            EXPECT_INT(atomic_load(&job.times[i]), 0);
    }
}

TEST(parallel_for_stops)
{
    for (size_t t = 0; t < sizeof THREADS / sizeof *THREADS; t++) {
        atomic_bool stop = false;
        Job job = {.slow = -1, .quick = -1, .stop = &stop, .stop_at = 9};
        EXPECT(!parallel_for(ITEMS, THREADS[t], &stop, work, &job));
        EXPECT_TEXT(err_text(), "stopped");
        EXPECT_INT(err_kind(), ERR_FAILURE);
        EXPECT_INT(atomic_load(&job.times[ITEMS - 1]), 0);
    }
}
