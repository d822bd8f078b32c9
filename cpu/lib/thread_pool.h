/* thread_pool.h -- a thread pool: numbered tasks handed out to whoever is free.
 *
 * The one source of parallelism of the CPU backends. Workers sleep while
 * there is nothing to do (after a spin of some microseconds, so that calls in
 * a row do not pay for a wake-up) and a worker that wakes late is not waited
 * for: the caller takes tasks too and only waits for those who took one.
 *
 * Which thread runs which task is not determined. A result that must not
 * depend on the number of threads is cut into tasks by shapes alone, and each
 * task writes to places of its own. Tasks are worth some microseconds: one
 * costs an atomic addition, a job a handful of them plus a wake-up. */
#ifndef SEG_CPU_LIB_THREAD_POOL_H
#define SEG_CPU_LIB_THREAD_POOL_H
#include "engine/base/err.h"
#include "engine/base/trace.h"
#include <stdint.h>

typedef struct Pool Pool;

enum { POOL_MAX = 1024 }; /* threads at most */

/* One task. `thread` is 0 (the caller) .. pool_threads() - 1; no two tasks
 * run at the same time with the same number. */
typedef void PoolFn(void *ctx, int64_t task, int thread);

/* Workers of the pools that open from now on stay on a core each: thread i on
 * the one i after number `first` of those that this process may use, and around
 * behind the last. The caller, thread 0, stays free: what it starts would be
 * bound with it. -1, as at the beginning: where the system puts them. */
void pool_pin(int first);

/* `threads` 1 .. POOL_MAX, the caller included; a pool of 1 starts none.
 * Fails when the system gives no more threads or memory, or refuses a core. */
bool pool_open(int threads, Pool **out);
void pool_close(Pool *p); /* NULL is fine */

int pool_threads(const Pool *p); /* 1 for NULL */

/* From now on the workers note in `t` (NULL: nowhere) when they were at tasks;
 * the caller, who takes part, has a call in his own row. Not within a job. */
void pool_trace(Pool *p, Trace *t);

/* fn(ctx, i, thread) for i = 0 .. tasks-1, each once, in any order; returns
 * when all are done and their writes are visible. Runs in the caller when
 * there is one thread, one task or no pool. A task must not call it again,
 * and two threads must not use one pool at once (both are CHECKed). */
void pool_run(Pool *p, int64_t tasks, PoolFn *fn, void *ctx);

/* The cores that this process may use: by affinity, which is what a batch
 * system sets, and by the CPU quota of its control group. */
int pool_cores(void);

/* Threads for a user who did not say: those cores, less one when there are more
 * than four, so that loading data and the desktop have a place. */
int pool_default_threads(void);

/* Cores that the control group's CPU quota is worth, rounded up; 0 when
 * there is no quota. The files read are <root>/proc/self/cgroup and those
 * under <root>/sys/fs/cgroup; root is "" but in tests. */
int pool_quota(const char *root);
#endif
