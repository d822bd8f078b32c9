/* clock.h -- a monotonic clock in seconds, and waits with a timeout on it. */
#ifndef SEG_ENGINE_BASE_CLOCK_H
#define SEG_ENGINE_BASE_CLOCK_H
#include <pthread.h>

/* Returns seconds since an arbitrary moment. Safe in a signal handler. */
double clock_s(void);

/* Initialises a condition for clock_wait. A condition with default attributes
 * uses the time of day, which an administrator may set back. */
void clock_cond(pthread_cond_t *cond);

/* Waits for `cond` (from clock_cond) for at most `seconds` >= 0. `lock` is held
 * before and after. May return early (spurious wakeup). */
void clock_wait(pthread_cond_t *cond, pthread_mutex_t *lock, double seconds);
#endif
