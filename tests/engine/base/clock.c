/* clock.c -- tests of seconds and of timed waits. */
#include "engine/base/clock.h"
#include "tests/test.h"

typedef struct Bell {
    pthread_mutex_t lock;
    pthread_cond_t rung;
    bool done;
} Bell;

static void *ring(void *context)
{
    Bell *b = context;
    pthread_mutex_lock(&b->lock);
    b->done = true;
    pthread_cond_signal(&b->rung);
    pthread_mutex_unlock(&b->lock);
    return NULL;
}

static void bell_init(Bell *b)
{
    b->done = false;
    pthread_mutex_init(&b->lock, NULL);
    clock_cond(&b->rung);
}

static void bell_free(Bell *b)
{
    pthread_cond_destroy(&b->rung);
    pthread_mutex_destroy(&b->lock);
}

/* Timeouts that carry into the next second, and some that do not. */
TEST(clock_waits_for_the_time_said)
{
    static const double TIMES[] = {0, 0.001, 0.05, 0.999, 1.03};
    Bell b;
    bell_init(&b);

    for (size_t i = 0; i < sizeof TIMES / sizeof *TIMES; i++) {
        const double from = clock_s(), until = from + TIMES[i];
        pthread_mutex_lock(&b.lock);
        // it may return early (spurious wakeup)
        while (clock_s() < until)
            clock_wait(&b.rung, &b.lock, until - clock_s());
        pthread_mutex_unlock(&b.lock);
        EXPECT(clock_s() - from < TIMES[i] + 5);
    }
    bell_free(&b);
}

TEST(clock_wait_ends_at_a_signal)
{
    Bell b;
    pthread_t thread;
    bell_init(&b);
    const double from = clock_s();
    pthread_mutex_lock(&b.lock);
    REQUIRE(!pthread_create(&thread, NULL, ring, &b));
    while (!b.done && clock_s() - from < 60) clock_wait(&b.rung, &b.lock, 60);
    EXPECT(b.done);
    pthread_mutex_unlock(&b.lock);
    EXPECT(clock_s() - from < 30);
    pthread_join(thread, NULL);
    bell_free(&b);
}
