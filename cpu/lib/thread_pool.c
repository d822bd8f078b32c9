/* thread_pool.c -- the gate and the task counter behind pool_run.
 *
 * A job is open while the OPEN bit of the gate is set. A worker joins by adding
 * 1 to an open gate, and reads the job only after that. The caller closes the
 * gate when no task is left; the value it gets back has the number of workers
 * that joined, and it waits for exactly these. The upper bits of the gate count
 * jobs, so that a late worker cannot mistake a new job for an old one.
 *
 * Sleeping is decided by two flags. Each side sets its own flag before it reads
 * the other side's state (all sequentially consistent), so at least one of the
 * two sees the other and no wake-up is lost.
 *
 * All atomics but `next` are sequentially consistent on purpose: it costs a few
 * fences a job, and the argument above is then complete. */
#define _GNU_SOURCE // sched_getaffinity
#include "cpu/lib/thread_pool.h"
#include "engine/base/cgroup.h"
#include "engine/base/mem.h"
#include "engine/base/thread.h"
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    SPIN = 2000,     // reads of the gate before sleeping: 20 to 100 us
    JOINED = 0xffff, // gate: workers inside the job
    OPEN = 0x10000,  // gate: tasks may be left
    JOB = 0x20000,   // gate: one more job
    LINE = 64,       // bytes of a cache line
};

typedef struct Worker {
    Pool *pool;
    pthread_t id;
    int thread;   // 1 .. threads-1; slot 0 is the caller's and unused
    char row[24]; // row of the trace
} Worker;

/* Variables that many threads write have cache lines of their own. */
struct Pool {
    _Alignas(LINE) atomic_uint_fast64_t gate;
    _Alignas(LINE) atomic_int_fast64_t next; // first task not handed out
    _Alignas(LINE) atomic_int finished;      // joined and finished
    atomic_int sleeping;                     // workers waiting on `wake`
    atomic_bool waiting;                     // the caller waits on `done`
    atomic_bool busy, quit;                  // inside pool_run; closing
    // the job; written while no worker is inside
    _Alignas(LINE) PoolFn *fn;
    void *ctx;
    int64_t tasks;
    Trace *trace;         // not owned; changed between jobs
    pthread_mutex_t lock; // for sleeping only
    pthread_cond_t wake, done;
    int threads; // the caller included
    Worker worker[];
};

/* Gives the other hardware thread of this core precedence during a wait. */
static void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Runs tasks until all have begun. Each thread adds 1 to `next` once more than
 * it runs tasks, so `next` ends above the number of tasks. The addition is
 * relaxed: the gate publishes the inputs of a task, and `finished` its
 * results. */
static void take_tasks(Pool *p, int thread)
{
    Trace *t = thread ? p->trace : NULL;
    const double from = trace_now(t);
    int64_t done = 0;

    for (;; done++) {
        int64_t i =
            atomic_fetch_add_explicit(&p->next, 1, memory_order_relaxed);
        if (i >= p->tasks) break;
        p->fn(p->ctx, i, thread);
    }

    // not for a worker that found no task left
    if (done)
        trace_span(t, p->worker[thread].row, "tasks", "kernel", done, from);
}

/* Is there a job that this worker has not seen, or does the pool close? */
static bool called(Pool *p, uint64_t seen)
{
    uint64_t gate = p->gate;
    return ((gate & OPEN) && gate / JOB != seen) || p->quit;
}

/* Returns when called() is true: spins first, then sleeps. */
static void wait_for_call(Pool *p, uint64_t seen)
{
    for (int i = 0; i < SPIN; i++) {
        if (called(p, seen)) return;
        relax();
    }
    pthread_mutex_lock(&p->lock);
    p->sleeping++;
    while (!called(p, seen)) pthread_cond_wait(&p->wake, &p->lock);
    p->sleeping--;
    pthread_mutex_unlock(&p->lock);
}

/* The main function of a worker. */
static void *work(void *arg)
{
    const Worker *w = arg;
    Pool *p = w->pool;
    uint64_t seen = 0; // jobs count from 1

    for (;;) {
        wait_for_call(p, seen);
        if (p->quit) return NULL;
        // join only if the gate is still open; the exchange may also fail
        // because another worker joined, so read the gate again
        uint64_t gate = p->gate;
        if (!(gate & OPEN)) continue;
        if (!atomic_compare_exchange_weak(&p->gate, &gate, gate + 1)) continue;
        seen = gate / JOB;
        take_tasks(p, w->thread);
        // from here on the caller may return and begin another job
        p->finished++;
        if (p->waiting) {
            pthread_mutex_lock(&p->lock);
            pthread_cond_signal(&p->done);
            pthread_mutex_unlock(&p->lock);
        }
    }
}

/* Returns when all `joined` workers have left the job. */
static void wait_for_workers(Pool *p, int joined)
{
    for (int i = 0; i < SPIN; i++) {
        if (p->finished == joined) return;
        relax();
    }
    pthread_mutex_lock(&p->lock);
    // not a store: an emulator (qemu-user 7.2 on x86) lets the read of
    // `finished` pass a store of aarch64, which that processor does not
    atomic_exchange(&p->waiting, true);
    while (p->finished != joined) pthread_cond_wait(&p->done, &p->lock);
    p->waiting = false;
    pthread_mutex_unlock(&p->lock);
}

void pool_run(Pool *p, int64_t tasks, PoolFn *fn, void *ctx)
{
    // a nested call would wait for itself, two callers would mix up jobs
    if (p) CHECK(!atomic_exchange(&p->busy, true));

    if (!p || p->threads == 1 || tasks <= 1) {
        for (int64_t i = 0; i < tasks; i++) fn(ctx, i, 0);
    } else {
        p->fn = fn;
        p->ctx = ctx;
        p->tasks = tasks;
        p->next = 0;
        p->finished = 0;
        // closed and empty since the last job: only the count changes
        p->gate += JOB + OPEN;
        // the gate is open before `sleeping` is read, and a worker that is
        // about to sleep adds itself to `sleeping` before it reads the gate
        // again
        if (p->sleeping) {
            pthread_mutex_lock(&p->lock);
            pthread_cond_broadcast(&p->wake);
            pthread_mutex_unlock(&p->lock);
        }
        take_tasks(p, 0);
        // no task is left: close the gate and count the workers inside
        uint64_t gate = atomic_fetch_and(&p->gate, ~(uint64_t)OPEN);
        wait_for_workers(p, (int)(gate & JOINED));
        p->gate -= gate & JOINED;
    }
    if (p) p->busy = false;
}

void pool_trace(Pool *p, Trace *t)
{
    p->trace = t;
}

int pool_threads(const Pool *p)
{
    return p ? p->threads : 1;
}

/* Returns the set of cores on which the scheduler may put this process, to be
 * freed, and its size in bytes; NULL where the system does not report it. */
static cpu_set_t *own_cores(size_t *bytes)
{
    // the kernel refuses a set smaller than its own number of cores
    for (int room = 1024; room <= 1 << 20; room *= 4) {
        cpu_set_t *set = CPU_ALLOC(room);
        *bytes = CPU_ALLOC_SIZE(room);
        if (set && !sched_getaffinity(0, *bytes, set)) return set;
        CPU_FREE(set);
    }
    return NULL;
}

static atomic_int first_core = -1; // set by pool_pin

void pool_pin(int first)
{
    first_core = first;
}

/* Pins thread i of a pool to its core, if pool_pin is on; returns 0 or an
 * errno. */
static int pin(pthread_t id, int i)
{
    size_t bytes;
    cpu_set_t *set = first_core < 0 ? NULL : own_cores(&bytes);
    if (!set) return first_core < 0 ? 0 : ENOMEM;
    int left = (first_core + i) % CPU_COUNT_S(bytes, set), core = 0;
    while (!CPU_ISSET_S((size_t)core, bytes, set) || left-- > 0) core++;
    CPU_ZERO_S(bytes, set);
    CPU_SET_S((size_t)core, bytes, set);
    int error = pthread_setaffinity_np(id, bytes, set);
    CPU_FREE(set);
    return error;
}

bool pool_open(int threads, Pool **out)
{
    *out = NULL;
    if (threads < 1 || threads > POOL_MAX)
        return fail_usage("threads must be 1 to %d, got %d", POOL_MAX, threads);
    Pool *p = mem_alloc(sizeof *p + (size_t)threads * sizeof *p->worker);
    if (!p) return false;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->wake, NULL);
    pthread_cond_init(&p->done, NULL);
    p->threads = 1; // threads that run: pool_close joins them
    int error = 0;

    for (int i = 1; i < threads && !error; i++) {
        Worker *w = &p->worker[i];
        *w = (Worker){.pool = p, .thread = i};
        snprintf(w->row, sizeof w->row, "thread %d", i);
        error = thread_start(&w->id, work, w);
        if (error) break;
        p->threads++;
        error = pin(w->id, i);
    }

    if (error) {
        int got = p->threads; // pool_close joins the threads that run
        pool_close(p);
        return fail("thread %d of %d did not start: %s; use fewer threads",
                    got + 1, threads, strerror(error));
    }

    *out = p;
    return true;
}

void pool_close(Pool *p)
{
    if (!p) return;
    p->quit = true;
    pthread_mutex_lock(&p->lock);
    pthread_cond_broadcast(&p->wake);
    pthread_mutex_unlock(&p->lock);
    for (int i = 1; i < p->threads; i++) pthread_join(p->worker[i].id, NULL);
    pthread_cond_destroy(&p->done);
    pthread_cond_destroy(&p->wake);
    pthread_mutex_destroy(&p->lock);
    mem_free(p);
}

/* Cores of one group's folder. Version 2 keeps "quota period" in one file
 * ("max" for none), version 1 keeps two numbers in two files (-1 for none). The
 * quota is the processor time in microseconds in each period of that many
 * microseconds. */
static int64_t folder_quota(const char *folder)
{
    char text[128];
    long long quota = 0, period = 0;

    if (cgroup_line(folder, "cpu.max", text, sizeof text)) {
        if (sscanf(text, "%lld %lld", &quota, &period) != 2) return -1;
    } else if (!cgroup_line(folder, "cpu.cfs_quota_us", text, sizeof text) ||
               sscanf(text, "%lld", &quota) != 1 ||
               !cgroup_line(folder, "cpu.cfs_period_us", text, sizeof text) ||
               sscanf(text, "%lld", &period) != 1) {
        return -1;
    }

    // rounded up: three threads use a quota of 2.5 cores best
    return quota <= 0 || period <= 0 ? -1 : (quota - 1) / period + 1;
}

int pool_quota(const char *root)
{
    int64_t cores = cgroup_least(root, "cpu", folder_quota);
    return cores < 0 ? 0 : cores > POOL_MAX ? POOL_MAX : (int)cores;
}

/* Number of cores in the affinity mask; of all online cores where the system
 * does not report the mask. */
static int affinity_cores(void)
{
    size_t bytes;
    cpu_set_t *set = own_cores(&bytes);
    long cores = set ? CPU_COUNT_S(bytes, set) : sysconf(_SC_NPROCESSORS_ONLN);
    CPU_FREE(set);
    return cores > 0 ? (int)cores : 1;
}

int pool_cores(void)
{
    int cores = affinity_cores(), quota = pool_quota("");
    return quota && quota < cores ? quota : cores;
}

int pool_default_threads(void)
{
    int cores = pool_cores();
    if (cores > POOL_MAX) cores = POOL_MAX;
    return cores > 4 ? cores - 1 : cores;
}
