/* thread.c -- see thread.h. */
#include "engine/base/thread.h"
#include <signal.h>
#include <sys/resource.h>

static int start(pthread_t *thread, void *(*work)(void *), void *context)
{
    pthread_attr_t attr;
    int error = pthread_attr_init(&attr);
    if (error) return error;
    error = pthread_attr_setstacksize(&attr, THREAD_STACK);
    if (!error) error = pthread_create(thread, &attr, work, context);
    pthread_attr_destroy(&attr);
    return error;
}

// a thread inherits the signal mask of its creator
int thread_start(pthread_t *thread, void *(*work)(void *), void *context)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int error = start(thread, work, context);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

typedef struct Work {
    int (*work)(void *);
    void *context;
    sigset_t signals; /* mask of the caller before the call */
    int result;
} Work;

static void *run(void *context)
{
    Work *w = context;
    pthread_sigmask(SIG_SETMASK, &w->signals, NULL);
    w->result = w->work(w->context);
    return NULL;
}

int thread_with_stack(int (*work)(void *), void *context, int *out)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_STACK, &limit) || limit.rlim_cur == RLIM_INFINITY ||
        limit.rlim_cur >= THREAD_STACK) {
        *out = work(context);
        return 0;
    }

    sigset_t all;
    pthread_t thread;
    Work w = {.work = work, .context = context};
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &w.signals);
    const int error = start(&thread, run, &w);
    if (!error) pthread_join(thread, NULL);
    pthread_sigmask(SIG_SETMASK, &w.signals, NULL);
    *out = w.result;
    return error;
}
