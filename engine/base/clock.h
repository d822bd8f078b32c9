/* clock.h -- seconds that are never set back, and waits that go by them. */
#ifndef SEG_ENGINE_BASE_CLOCK_H
#define SEG_ENGINE_BASE_CLOCK_H
#include <pthread.h>

/* Seconds since some moment. May be called from a signal handler. */
double clock_s(void);

/* A condition for clock_wait: others go by the time of day, which may be set.
 */
void clock_cond(pthread_cond_t *cond);

/* Waits for `cond` (made by clock_cond) for at most `seconds` >= 0, with `lock`
 * held before and after; may also return for no reason. */
void clock_wait(pthread_cond_t *cond, pthread_mutex_t *lock, double seconds);
#endif
