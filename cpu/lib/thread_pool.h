/* thread_pool.h -- a thread pool: numbered tasks, each taken by the next free
 * thread.
 *
 * It is the only source of parallelism in the CPU backends. Idle workers spin
 * for some microseconds, so that consecutive calls do not pay for a wake-up,
 * and then sleep. The caller runs tasks too. It waits only for workers that
 * joined the job, not for one that wakes up late.
 *
 * Which thread runs which task is not determined. For results that do not
 * depend on the number of threads, work is cut into tasks by shapes alone, and
 * each task writes to memory of its own. A task should take some microseconds:
 * it costs one atomic addition, and a job costs a few of these plus a
 * wake-up. */
#ifndef SEG_CPU_LIB_THREAD_POOL_H
#define SEG_CPU_LIB_THREAD_POOL_H
#include "engine/base/err.h"
#include "engine/base/trace.h"
#include <stdint.h>

typedef struct Pool Pool;

enum { POOL_MAX = 1024 }; /* threads at most */

/* One task. `thread` is 0 (the caller) .. pool_threads() - 1; no two tasks with
 * the same thread number run at the same time. */
typedef void PoolFn(void *ctx, int64_t task, int thread);

/* Pins the workers of pools opened from now on, each to one core. Thread i gets
 * core (first + i) modulo n of the n cores that this process may use. The
 * caller, thread 0, is not pinned, because threads that it starts would inherit
 * the core. -1, the default: no pinning. */
void pool_pin(int first);

/* Opens a pool of `threads` threads, 1 .. POOL_MAX, the caller included; a pool
 * of 1 starts none. Fails when the system gives no more threads or memory, or
 * refuses a core. */
bool pool_open(int threads, Pool **out);
void pool_close(Pool *p); /* may be NULL */

int pool_threads(const Pool *p); /* 1 for NULL */

/* Workers record in `t` the times at which they run tasks; NULL: no trace. The
 * caller's work is in the trace row of its call. Not to be called within a
 * job. */
void pool_trace(Pool *p, Trace *t);

/* Runs fn(ctx, i, thread) for i = 0 .. tasks-1, each once, in any order.
 * Returns when all are done and their writes are visible. With one thread, one
 * task or no pool it runs in the caller. A task must not call pool_run, and two
 * threads must not use one pool at once; both are CHECKed. */
void pool_run(Pool *p, int64_t tasks, PoolFn *fn, void *ctx);

/* Returns the number of cores that this process may use: the smaller of its
 * affinity, which a batch system sets, and the CPU quota of its control
 * group. */
int pool_cores(void);

/* Returns the number of threads where the user gives none: pool_cores(), less
 * one if there are more than four, for data loading and the desktop. */
int pool_default_threads(void);

/* Returns the CPU quota of the control group in cores, rounded up; 0 when there
 * is no quota. Reads <root>/proc/self/cgroup and files under
 * <root>/sys/fs/cgroup; root is "" except in tests. */
int pool_quota(const char *root);
#endif
