/* ranks_shared.c -- ranks of one machine over shared memory.
 *
 * Each rank has a seat and two send buffers. An exchange: write into one's own
 * buffer, publish that meeting number m is reached, wait until all ranks have
 * reached it, read the buffers of the others. The two buffers alternate, so a
 * rank may write for meeting m + 1 while others still read meeting m: no rank
 * is at m + 2 before all have reached m + 1, that is, have read m.
 *
 * Waiting is polling: first a short spin, then sleeps of growing length. There
 * is no lock that a dead rank could hold, and a machine with fewer cores than
 * ranks still makes progress.
 *
 * The process that started the ranks detects a dead one and records the reason
 * in shared memory. The other ranks detect a silent one (stopped, or stuck in
 * the kernel): a thread of each rank increments its heartbeat as long as the
 * process runs, and checks the heartbeats of all. It also ends its own process
 * if the main thread waits somewhere else, as for a sum on a GPU, and cannot
 * see that the run has ended. */
#include "engine/base/clock.h"
#include "engine/base/mem.h"
#include "engine/base/thread.h"
#include "engine/ranks/ranks.h"
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    LINE = 64, // bytes of a cache line
    SPINS = 200,
    YIELDS = 200,
    PAUSE_LEAST_NS = 20000,
    PAUSE_MOST_NS = 500000,
};

static const double beat_s = 0.2;
static const double silent_s = 5; // of a rank: counts as dead
static const double start_s = 30; // of a rank that has not started yet
static const double away_s = 1;   // a stopped rank does not judge others
static const double leave_s = 2;  // to notice that another rank has ended
static const double kill_s = 4;   // to end by itself before it is killed

typedef struct Seat {
    _Alignas(LINE) atomic_uint_fast64_t reached; // number of exchanges
    _Alignas(LINE) atomic_uint_fast64_t beat;
    atomic_bool over; // has ended normally
    atomic_bool said; // code and why are valid
    int code;
    char why[ERR_MAX];
} Seat;

/* Header in front of the seats. */
typedef struct Hall {
    int count;
    atomic_int first; // 1 + the rank that ended all; 0: none
    size_t bytes;     // of all shared memory
    pid_t starter;    // made the memory and starts the ranks; may have died
                      // before a rank opens it
} Hall;

typedef struct Shared {
    Hall *hall;
    Seat *seat;
    char *place; // (ranks, 2, RANKS_PIECE)
    int rank;
    uint64_t meeting;
    uint64_t *beat; // (ranks) heartbeats as last seen by the thread
    double *since;  // (ranks) and the time of their last change
    pthread_t heart;
    bool beats; // the thread exists
    atomic_bool stop;
} Shared;

static Seat *seats(Hall *h)
{
    return (Seat *)((char *)h + LINE);
}

static size_t bytes_for(int count)
{
    size_t all = LINE + (size_t)count * sizeof(Seat);
    return all + (size_t)count * 2 * RANKS_PIECE;
}

/* == reasons ============================================================ */

/* Records why `rank` ends; the first record ends the others. */
static void say(Hall *h, int rank, int code, const char *why)
{
    Seat *s = &seats(h)[rank];
    int none = 0;
    if (!atomic_load(&s->said)) {
        s->code = code;
        snprintf(s->why, sizeof s->why, "%s", why);
        atomic_store(&s->said, true);
    }
    atomic_compare_exchange_strong(&h->first, &none, rank + 1);
}

static bool ended(const Shared *s)
{
    int first = atomic_load(&s->hall->first) - 1;
    return fail("rank %d has ended: %s", first, s->seat[first].why);
}

/* Checks the heartbeats of the others; `all`: restarts all timeouts. */
static void look(Shared *s, bool all)
{
    double clock = clock_s();
    for (int k = 0; k < s->hall->count; k++) {
        char why[64];
        uint64_t beat = atomic_load(&s->seat[k].beat);
        double most = beat ? silent_s : start_s;
        if (all || beat != s->beat[k] || atomic_load(&s->seat[k].over))
            s->since[k] = clock;
        s->beat[k] = beat;
        if (k == s->rank || clock - s->since[k] < most) continue;
        snprintf(why, sizeof why, "no sign of life for %.0f s", most);
        say(s->hall, k, ERR_FAILURE, why);
    }
}

/* The heartbeat thread. Ends the process if its main thread does not notice the
 * end of the run in time: its work would be wasted. */
static void *heart(void *context)
{
    Shared *s = context;
    double since = 0, last = 0;
    struct timespec t = {0, (long)(beat_s * 1e9)};

    while (!atomic_load(&s->stop)) {
        atomic_fetch_add(&s->seat[s->rank].beat, 1);
        look(s, clock_s() - last > away_s);
        last = clock_s();
        bool lost = getppid() != s->hall->starter;
        if (lost)
            say(s->hall, s->rank, ERR_FAILURE,
                "the process that started it has died");
        if (since == 0 && (lost || atomic_load(&s->hall->first)))
            since = clock_s();
        if (since > 0 && clock_s() - since > leave_s) _exit(ERR_FAILURE);
        nanosleep(&t, NULL);
    }
    return NULL;
}

/* == exchanges ========================================================== */

/* Rank k has not arrived: can it still? False with a reason if it has ended. */
static bool may_come(const Shared *s, int k)
{
    if (atomic_load(&s->hall->first)) return ended(s);
    if (atomic_load(&s->seat[k].over) &&
        atomic_load(&s->seat[k].reached) < s->meeting)
        return fail("rank %d has ended before the others", k);
    return true;
}

/* Arrives at the next exchange and waits for all ranks. */
static bool meet(Shared *s)
{
    s->meeting++;
    atomic_store_explicit(&s->seat[s->rank].reached, s->meeting,
                          memory_order_release);

    for (int k = 0; k < s->hall->count; k++) {
        struct timespec t = {0, PAUSE_LEAST_NS};
        for (int i = 0; atomic_load_explicit(&s->seat[k].reached,
                                             memory_order_acquire) < s->meeting;
             i++) {
            if (i < SPINS) continue;
            if (i < SPINS + YIELDS) {
                sched_yield();
                continue;
            }
            if (!may_come(s, k)) return false;
            nanosleep(&t, NULL);
            if (t.tv_nsec < PAUSE_MOST_NS) t.tv_nsec += t.tv_nsec / 4;
        }
    }
    return true;
}

/* Returns the send buffer of rank k for exchange number `turn`. */
static char *place_of(const Shared *s, int k, uint64_t turn)
{
    return s->place + ((size_t)k * 2 + turn % 2) * RANKS_PIECE;
}

static bool shared_gather(void *state, const void *mine, size_t bytes,
                          void *all)
{
    Shared *s = state;
    CHECK(bytes <= RANKS_PIECE);
    memcpy(place_of(s, s->rank, s->meeting + 1), mine, bytes);
    if (!meet(s)) return false;
    for (int k = 0; k < s->hall->count; k++)
        memcpy((char *)all + (size_t)k * bytes, place_of(s, k, s->meeting),
               bytes);
    return true;
}

static bool shared_exchange(void *state, const void *to, size_t bytes,
                            void *from)
{
    Shared *s = state;
    size_t ranks = (size_t)s->hall->count, mine = (size_t)s->rank * bytes;
    CHECK(ranks * bytes <= RANKS_PIECE);
    memcpy(place_of(s, s->rank, s->meeting + 1), to, ranks * bytes);
    if (!meet(s)) return false;
    for (size_t k = 0; k < ranks; k++)
        memcpy((char *)from + k * bytes, place_of(s, (int)k, s->meeting) + mine,
               bytes);
    return true;
}

static void shared_quit(void *state, int code, const char *why)
{
    Shared *s = state;
    say(s->hall, s->rank, code, why);
}

static void shared_close(void *state)
{
    Shared *s = state;
    atomic_store(&s->stop, true);
    if (s->beats) pthread_join(s->heart, NULL);
    atomic_store(&s->seat[s->rank].over, true);
    munmap(s->hall, s->hall->bytes);
    mem_free(s->beat);
    mem_free(s->since);
    mem_free(s);
}

static const RanksVia shared_via = {"shared memory", shared_gather,
                                    shared_exchange, shared_quit, shared_close};

/* == opening ============================================================ */

// the name is removed at once, so nothing is left behind after a crash
bool ranks_shared_make(int count, int *fd)
{
    char name[64];
    size_t bytes = bytes_for(count);
    if (count < 1 || count > RANKS_MOST)
        return fail_usage("%d ranks, want 1 to %d", count, RANKS_MOST);
    snprintf(name, sizeof name, "/segengine.%ld", (long)getpid());
    *fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
    if (*fd < 0) return fail("shared memory: %s", strerror(errno));
    shm_unlink(name);

    // allocate now: a full system would otherwise raise SIGBUS later
    int full = posix_fallocate(*fd, 0, (off_t)bytes);
    void *at = MAP_FAILED;
    if (!full)
        at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);

    if (at == MAP_FAILED) {
        full = full ? full : errno;
        close(*fd);
        return fail("shared memory for %d ranks, %zu bytes: %s (see df "
                    "/dev/shm; a container may give it more)",
                    count, bytes, strerror(full));
    }

    *(Hall *)at = (Hall){.count = count, .bytes = bytes, .starter = getpid()};
    munmap(at, bytes);
    int flags = fcntl(*fd, F_GETFD);
    if (flags >= 0) fcntl(*fd, F_SETFD, flags & ~FD_CLOEXEC);
    return true;
}

/* Maps the memory of `fd`; NULL with a reason. */
static Hall *hall_of(int fd, int count)
{
    size_t bytes = bytes_for(count);
    Hall *h = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (h == MAP_FAILED || h->count != count || h->bytes != bytes) {
        fail(
            "descriptor %d is not the memory of %d ranks: only --ranks may set "
            "%s; unset it",
            fd, count, RANKS_VARIABLE);
        return NULL;
    }
    return h;
}

bool ranks_shared_open(int fd, int rank, int count, Ranks **out)
{
    Hall *h = hall_of(fd, count);
    if (!h) return false;
    Shared *s = mem_alloc(sizeof *s);
    if (!s) return false;
    s->hall = h;
    s->seat = seats(h);
    s->place = (char *)(s->seat + count);
    s->rank = rank;
    s->beat = mem_alloc((size_t)count * sizeof *s->beat);
    s->since = mem_alloc((size_t)count * sizeof *s->since);
    if (!s->beat || !s->since) {
        shared_close(s);
        return false;
    }
    atomic_fetch_add(&s->seat[rank].beat, 1); // it has started
    int failed = thread_start(&s->heart, heart, s);
    s->beats = !failed;
    if (failed) {
        shared_close(s);
        return fail("cannot start a thread: %s", strerror(failed));
    }
    if (ranks_make(rank, count, &shared_via, s, out)) return true;
    shared_close(s);
    return false;
}

/* == starting =========================================================== */

/* Records the end of a rank's process from its waitpid status. */
static void note_end(Hall *h, int rank, int status, int *code)
{
    Seat *s = &seats(h)[rank];
    char why[128];
    *code = WIFEXITED(status) ? WEXITSTATUS(status) : ERR_FAILURE;

    // the rank has recorded its reason, or has ended normally
    if (atomic_load(&s->said) || (WIFEXITED(status) && atomic_load(&s->over)))
        return;
    if (WIFSIGNALED(status))
        snprintf(why, sizeof why, "killed by signal %d (%s)", WTERMSIG(status),
                 strsignal(WTERMSIG(status)));
    else
        snprintf(why, sizeof why, "ended with exit code %d", *code);
    say(h, rank, *code ? *code : ERR_FAILURE, why);
}

/* Starts the processes of all ranks with argv; returns how many could start. */
static int start_all(int count, int fd, char *const argv[], pid_t *child)
{
    extern char **environ;
    for (int k = 0; k < count; k++) {
        char text[64];
        snprintf(text, sizeof text, "%d %d %d", fd, k, count);
        int e = setenv(RANKS_VARIABLE, text, 1) ? errno : 0;
        if (!e)
            e = posix_spawn(&child[k], "/proc/self/exe", NULL, NULL, argv,
                            environ);
        if (e) {
            fail("cannot start rank %d: %s", k, strerror(e));
            unsetenv(RANKS_VARIABLE);
            return k;
        }
    }

    unsetenv(RANKS_VARIABLE);
    return count;
}

/* Waits until all have ended; stores exit codes by rank. */
static void wait_all(Hall *h, int count, pid_t *child, int (*signalled)(void),
                     int *codes)
{
    struct timespec t = {0, 20000000};
    double since = 0;
    int told = 0;

    for (int left = count; left > 0; nanosleep(&t, NULL)) {
        int number = signalled();
        if (since == 0 && atomic_load(&h->first)) since = clock_s();
        for (int k = 0; k < count; k++) {
            int status;
            if (!child[k]) continue;
            if (number && !told) kill(child[k], number);
            if (since > 0 && clock_s() - since > kill_s)
                kill(child[k], SIGKILL);
            if (waitpid(child[k], &status, WNOHANG) != child[k]) continue;
            note_end(h, k, status, &codes[k]);
            child[k] = 0;
            left--;
        }
        told = number;
    }
}

/* Returns the code of the rank that ended all, and its reason in `why`. */
static int judge(Hall *h, const int *codes, char why[ERR_MAX])
{
    int first = atomic_load(&h->first) - 1, same = 0;
    *why = 0;
    if (first < 0) return codes[0];
    const Seat *s = &seats(h)[first];
    for (int k = 0; k < h->count; k++)
        same +=
            atomic_load(&seats(h)[k].said) && !strcmp(seats(h)[k].why, s->why);
    if (same == h->count)
        snprintf(why, ERR_MAX, "%s", s->why);
    else
        snprintf(why, ERR_MAX, "rank %d: %.*s", first, ERR_MAX - 32, s->why);
    return s->code ? s->code : ERR_FAILURE;
}

bool ranks_shared_start(int count, char *const argv[], int (*signalled)(void),
                        int *code, char why[ERR_MAX])
{
    int fd, started;
    bool ok = false;
    Hall *h = NULL;
    pid_t *child = NULL;
    int *codes = NULL;

    if (!ranks_shared_make(count, &fd)) return false;
    child = mem_alloc((size_t)count * sizeof *child);
    codes = mem_alloc((size_t)count * sizeof *codes);
    TRY(child && codes);
    h = hall_of(fd, count);
    TRY(h);
    started = start_all(count, fd, argv, child);

    // the ranks that did start would wait for the missing ones
    if (started < count) say(h, started, ERR_FAILURE, err_text());
    wait_all(h, started, child, signalled, codes);
    *code = judge(h, codes, why);
    ok = true;

done:
    if (h) munmap(h, h->bytes);
    mem_free(codes);
    mem_free(child);
    close(fd);
    return ok;
}
