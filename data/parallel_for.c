/* parallel_for.c -- see parallel_for.h. One lock guards the assignment of
 * items; items are processed without it. */
#include "data/parallel_for.h"
#include "engine/base/err.h"
#include "engine/base/thread.h"
#include <pthread.h>
#include <stdio.h>

typedef struct ParallelFor {
    ParallelForWork *work;
    void *context;
    const atomic_bool *stop;
    pthread_mutex_t lock; /* guards the members below */
    int threads;          /* threads that have started */
    int next;             /* next item to start */
    int failed;           /* first item, in order, that failed; or count */
    ErrKind kind;
    char text[ERR_MAX];
} ParallelFor;

bool parallel_for_stopped(const atomic_bool *stop)
{
    return stop && atomic_load(stop) && !fail("stopped");
}

static void *take_items(void *context)
{
    ParallelFor *c = context;
    pthread_mutex_lock(&c->lock);
    const int me = c->threads++;

    while (c->next < c->failed) {
        const int item = c->next++;
        pthread_mutex_unlock(&c->lock);
        const bool ok =
            !parallel_for_stopped(c->stop) && c->work(c->context, me, item);
        pthread_mutex_lock(&c->lock);
        if (ok || item >= c->failed) continue;
        c->failed = item;
        c->kind = err_kind();
        snprintf(c->text, sizeof c->text, "%s", err_text());
    }

    pthread_mutex_unlock(&c->lock);
    return NULL;
}

bool parallel_for(int count, int threads, const atomic_bool *stop,
                  ParallelForWork *work, void *context)
{
    pthread_t thread[MAX_PARALLEL];
    ParallelFor c = {
        .work = work, .context = context, .stop = stop, .failed = count};
    const int want = threads < MAX_PARALLEL ? threads : MAX_PARALLEL;
    int started = 0;

    pthread_mutex_init(&c.lock, NULL);

    // with fewer threads than wanted the loop only takes longer
    while (started < want - 1 &&
           !thread_start(&thread[started], take_items, &c))
        started++;
    take_items(&c);
    for (int i = 0; i < started; i++) pthread_join(thread[i], NULL);
    pthread_mutex_destroy(&c.lock);
    return c.failed == count || err_set(c.kind, c.text);
}
