/* thread.h -- threads that leave signals to who knows what to do with them, on
 * stacks that are large enough whatever the shell gives. */
#ifndef SEG_ENGINE_BASE_THREAD_H
#define SEG_ENGINE_BASE_THREAD_H
#include <pthread.h>
#include <stdbool.h>

/* Bytes of the stack of every thread that is started here, as most systems give
 * by themselves; memory is taken only where it is used. By default it would be
 * what `ulimit -s` says (glibc), or 128 KiB (musl); below 256 KiB kernels
 * overflowed it. */
enum { THREAD_STACK = 8 << 20 };

/* pthread_create of a thread that takes no signals; 0, or an errno. */
int thread_start(pthread_t *thread, void *(*work)(void *), void *context);

/* work(context) on a stack of THREAD_STACK bytes or more: in a thread of its
 * own where the limit of this process (`ulimit -s`) is lower, which takes the
 * signals then, as the caller waits. 0 and *out is what work returned, or an
 * errno: there is no such stack. */
int thread_with_stack(int (*work)(void *), void *context, int *out);
#endif
