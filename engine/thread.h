/* thread.h -- threads that leave signals to who knows what to do with them. */
#ifndef SEG_THREAD_H
#define SEG_THREAD_H
#include <pthread.h>

/* pthread_create of a thread that takes no signals; 0, or an errno. */
int thread_start(pthread_t *thread, void *(*work)(void *), void *context);
#endif
