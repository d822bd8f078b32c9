/* thread_pool.c -- tests of the thread pool: every task runs once, no wake-up
 * is lost, no nesting. */
#define _GNU_SOURCE // sched_getaffinity
#include "cpu/lib/thread_pool.h"
#include "engine/backend/backend.h"
#include "tests/test.h"
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { TASKS = 1000, THREADS = 8 };

typedef struct Tally {
    atomic_int runs[TASKS], inside[THREADS], wrong;
    int threads;
} Tally;

static void count_task(void *ctx, int64_t task, int thread)
{
    Tally *t = ctx;
    if (thread < 0 || thread >= t->threads) {
        t->wrong++;
        return;
    }
    // no other thread may have this number at the same time
    if (t->inside[thread]++) t->wrong++;
    t->runs[task]++;
    t->inside[thread]--;
}

TEST(pool_runs_each_task_once)
{
    static const int64_t counts[] = {0, 1, 2, 7, TASKS};
    for (int threads = 1; threads <= THREADS; threads++) {
        Pool *p;
        REQUIRE(pool_open(threads, &p));
        EXPECT_INT(pool_threads(p), threads);
        for (int k = 0; k < 5; k++) {
            static Tally t;
            t = (Tally){.threads = threads};
            pool_run(p, counts[k], count_task, &t);
            EXPECT_INT(t.wrong, 0);
            for (int i = 0; i < TASKS; i++)
                if (t.runs[i] != (i < counts[k]))
                    test_failed(__FILE__, __LINE__,
                                "%d threads, %d tasks: task %d ran %d times",
                                threads, (int)counts[k], i, t.runs[i]);
        }
        pool_close(p);
    }
}

TEST(pool_none_runs_inline)
{
    static Tally t;
    t = (Tally){.threads = 1};
    EXPECT_INT(pool_threads(NULL), 1);
    pool_run(NULL, 5, count_task, &t);
    EXPECT_INT(t.runs[4], 1);
    EXPECT_INT(t.wrong, 0);
    pool_close(NULL);
}

/* Plain memory: writes of tasks are visible to the caller, and earlier writes
 * of the caller to the tasks (the thread sanitizer checks the order). */
typedef struct Chain {
    long in[16], out[16];
} Chain;

static void copy_task(void *ctx, int64_t task, int thread)
{
    Chain *c = ctx;
    (void)thread;
    c->out[task] = c->in[task] + 1;
}

TEST(pool_many_short_jobs)
{
    Pool *p;
    REQUIRE(pool_open(4, &p));
    Chain c = {.in = {0}};
    enum { JOBS = 3000 };

    for (int job = 0; job < JOBS; job++) {
        pool_run(p, 16, copy_task, &c);
        memcpy(c.in, c.out, sizeof c.in);
        // sometimes long enough for the workers to fall asleep
        if (job % 500 == 0)
            nanosleep(&(struct timespec){.tv_nsec = 3000000}, NULL);
    }

    for (int i = 0; i < 16; i++) EXPECT_INT(c.in[i], JOBS);
    pool_close(p);
}

/* Two tasks that wait for each other: only two concurrent threads finish. */
static void meet_task(void *ctx, int64_t task, int thread)
{
    atomic_int *here = ctx;
    (void)task, (void)thread;
    ++*here;
    time_t until = time(NULL) + 20;
    while (*here < 2 && time(NULL) < until)
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
}

TEST(pool_runs_at_once)
{
    Pool *p;
    atomic_int here = 0;
    REQUIRE(pool_open(2, &p));
    // workers are asleep by then
    nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    time_t start = time(NULL);
    pool_run(p, 2, meet_task, &here);
    EXPECT(time(NULL) - start < 15);
    pool_close(p);
}

static void nested_task(void *ctx, int64_t task, int thread)
{
    (void)task, (void)thread;
    atomic_int here = 2;
    pool_run(ctx, 1, meet_task, &here);
}

TEST(pool_nesting_aborts)
{
    fflush(NULL);
    pid_t child = fork();
    REQUIRE(child >= 0);

    if (!child) {
        // the message of CHECK is expected and would confuse a reader of the
        // log
        int null = open("/dev/null", O_WRONLY);
        dup2(null, 2);
        signal(SIGABRT, SIG_DFL);
        Pool *p;
        if (pool_open(2, &p)) pool_run(p, 2, nested_task, p);
        _exit(0);
    }

    int status;
    waitpid(child, &status, 0);
    EXPECT(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

TEST(pool_open_fails)
{
    Pool *p;
    EXPECT_FAIL(pool_open(0, &p), "threads must be 1 to 1024, got 0");
    EXPECT_FAIL(pool_open(POOL_MAX + 1, &p), "got 1025");
    mem_fail_after(0, false);
    EXPECT_FAIL(pool_open(2, &p), "no memory");
    EXPECT(p == NULL);
}

TEST(cpu_is_one_device)
{
    void *dev = NULL;
    EXPECT_FAIL(backend_cpu.open(3, 1, &dev), "no cpu:3");
    EXPECT_FAIL(backend_ref.open(1, 1, &dev), "no ref:1");
    EXPECT(dev == NULL);
}

/* Two tasks that wait for each other, so that each has a thread of its own. */
static void meet(void *ctx, int64_t task, int thread)
{
    atomic_int *here = ctx;
    (void)task, (void)thread;
    atomic_fetch_add(here, 1);
    while (atomic_load(here) < 2) sched_yield();
}

TEST(pool_notes_what_workers_do)
{
    Pool *p;
    Trace *t;
    int64_t kept, lost;

    REQUIRE(pool_open(2, &p) && trace_open(&t));
    for (int round = 0; round < 3; round++) {
        atomic_int here = 0;
        pool_trace(p, round == 1 ? t : NULL);
        pool_run(p, 2, meet, &here);
    }

    pool_close(p);

    // one job, of the worker alone
    trace_events(t, &kept, &lost);
    EXPECT_INT(kept, 1);
    trace_drop(t);
}

/* The number of allowed cores of each thread, and one of them. */
typedef struct Cores {
    atomic_int seen[THREADS], count[THREADS], core[THREADS];
} Cores;

static void cores_task(void *ctx, int64_t task, int thread)
{
    Cores *c = ctx;
    cpu_set_t set;
    (void)task;
    if (sched_getaffinity(0, sizeof set, &set)) return;
    c->count[thread] = CPU_COUNT(&set);
    for (int i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &set)) c->core[thread] = i;
    c->seen[thread]++;
    usleep(1000); // so that each thread gets some tasks
}

TEST(pool_pins_workers)
{
    cpu_set_t all;
    int list[CPU_SETSIZE], cores = 0;

    // without permission there is nothing to test
    if (sched_getaffinity(0, sizeof all, &all)) SKIP("no affinity");
    for (int i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &all)) list[cores++] = i;

    for (int first = -1; first < cores + 2; first++) {
        Cores c = {0};
        Pool *p;
        pool_pin(first);
        REQUIRE(pool_open(THREADS, &p));
        pool_run(p, 40 * THREADS, cores_task, &c);
        pool_close(p);
        EXPECT_INT(c.count[0], cores);
        for (int i = 1; i < THREADS; i++) {
            if (!c.seen[i]) continue;
            EXPECT_INT(c.count[i], first < 0 ? cores : 1);
            if (first >= 0) EXPECT_INT(c.core[i], list[(first + i) % cores]);
        }
    }

    pool_pin(-1);
    EXPECT_INT(pool_cores() <= cores, true);
}

TEST(pool_default_is_sane)
{
    int n = pool_default_threads();
    EXPECT(n >= 1 && n <= POOL_MAX && n <= sysconf(_SC_NPROCESSORS_CONF));
}

// -- control groups ----------------------------------------------------------

/* Writes `text` to root/path, making its folders. */
static void put_file(const char *root, const char *path, const char *text)
{
    char full[512];
    snprintf(full, sizeof full, "%s%s", root, path);
    for (char *s = full + strlen(root) + 1; (s = strchr(s, '/')); s++) {
        *s = 0;
        mkdir(full, 0777);
        *s = '/';
    }
    FILE *f = fopen(full, "w");
    REQUIRE(f);
    fputs(text, f);
    fclose(f);
}

/* Makes a new root below the scratch folder. */
static const char *new_root(char root[256])
{
    static int count;
    snprintf(root, 256, "%s/root%d", test_folder(), count++);
    mkdir(root, 0777);
    return root;
}

TEST(pool_quota_version_2)
{
    char r[256];
    new_root(r);
    EXPECT_INT(pool_quota(r), 0); // no such files
    put_file(r, "/proc/self/cgroup", "0::/a/b\n");
    EXPECT_INT(pool_quota(r), 0);
    put_file(r, "/sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
    EXPECT_INT(pool_quota(r), 0);
    put_file(r, "/sys/fs/cgroup/a/b/cpu.max", "250000 100000\n");
    EXPECT_INT(pool_quota(r), 3); // 2.5, rounded up
    put_file(r, "/sys/fs/cgroup/a/cpu.max", "200000 100000\n");
    EXPECT_INT(pool_quota(r), 2); // the limit of an outer group applies too
    put_file(r, "/sys/fs/cgroup/cpu.max", "50000 100000\n");
    EXPECT_INT(pool_quota(r), 1);
    put_file(r, "/sys/fs/cgroup/cpu.max", "nonsense\n");
    EXPECT_INT(pool_quota(r), 2);
}

TEST(pool_quota_of_a_container)
{
    // the group has its name outside the container, its files are at the root
    char r[256];
    new_root(r);
    put_file(r, "/proc/self/cgroup", "0::/docker/0123\n");
    put_file(r, "/sys/fs/cgroup/cpu.max", "400000 100000\n");
    EXPECT_INT(pool_quota(r), 4);
}

TEST(pool_quota_version_1)
{
    char r[256];
    new_root(r);
    put_file(r, "/proc/self/cgroup",
             "3:memory:/g\n2:cpu,cpuacct:/g\n1:cpuset:/g\n");
    put_file(r, "/sys/fs/cgroup/cpu,cpuacct/g/cpu.cfs_quota_us", "-1\n");
    put_file(r, "/sys/fs/cgroup/cpu,cpuacct/g/cpu.cfs_period_us", "100000\n");
    EXPECT_INT(pool_quota(r), 0);
    put_file(r, "/sys/fs/cgroup/cpu,cpuacct/g/cpu.cfs_quota_us", "150000\n");
    EXPECT_INT(pool_quota(r), 2);
}
