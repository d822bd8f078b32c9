/* thread.h -- threads with blocked signals and a stack of fixed size. */
#ifndef SEG_ENGINE_BASE_THREAD_H
#define SEG_ENGINE_BASE_THREAD_H
#include <pthread.h>
#include <stdbool.h>

/* Stack size in bytes of every thread started here, the default of most
 * systems; a page takes memory only when it is used. Without it the size would
 * be that of `ulimit -s` (glibc) or 128 KiB (musl); kernels overflowed less
 * than 256 KiB. */
enum { THREAD_STACK = 8 << 20 };

/* pthread_create with all signals blocked in the new thread; 0, or an errno. */
int thread_start(pthread_t *thread, void *(*work)(void *), void *context);

/* Runs work(context) on a stack of at least THREAD_STACK bytes: in a new thread
 * if the limit of this process (`ulimit -s`) is lower. That thread handles the
 * signals, as the caller only waits. Returns 0 with the result of work in *out,
 * or an errno if there is no such stack. */
int thread_with_stack(int (*work)(void *), void *context, int *out);
#endif
