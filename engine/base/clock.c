/* clock.c -- see clock.h. */
#include "engine/base/clock.h"
#include <time.h>

double clock_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void clock_cond(pthread_cond_t *cond)
{
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(cond, &clock);
    pthread_condattr_destroy(&clock);
}

void clock_wait(pthread_cond_t *cond, pthread_mutex_t *lock, double seconds)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    const double at = (double)t.tv_nsec * 1e-9 + seconds;
    t.tv_sec += (time_t)at;
    t.tv_nsec = (long)((at - (double)(time_t)at) * 1e9);
    pthread_cond_timedwait(cond, lock, &t);
}
