/* thread.c -- see thread.h. */
#include "thread.h"
#include <signal.h>

// a thread begins with the mask of its maker
int thread_start(pthread_t *thread, void *(*work)(void *), void *context)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int error = pthread_create(thread, NULL, work, context);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}
