/* mpi_module.c -- segengine-mpi.so: the transport of ranks.h over the MPI that
 * it is compiled with.
 *
 * Uses functions of MPI-3 (2012) and older, so any current MPI works. An error
 * of MPI is returned as a reason instead of ending the program. A rank sends at
 * most RANKS_PIECE bytes per call, far below the int in which MPI counts.
 *
 * A launcher ends all ranks when one dies, but does not notice a rank that
 * hangs, and a blocking collective would wait for it forever. So no call here
 * blocks: calls are started, then polled, with the lock held only for each
 * poll. In between, a thread of each rank sends heartbeats to the next rank and
 * listens to the previous one. A rank that hears nothing for `silent_s` reports
 * it and aborts all. If the MPI does not support threads, there are no
 * heartbeats. */
#include "engine/base/thread.h"
#include "engine/ranks/ranks_module.h"
#include <mpi.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>

__attribute__((visibility("default"))) const RanksModule *segengine_mpi(void);

enum {
    SPINS = 200, // then yield the processor, then sleep for longer and longer
    YIELDS = 200,
    PAUSE_LEAST_NS = 20000,
    PAUSE_MOST_NS = 500000,
    BEAT_NS = 250000000,
};
static const double silent_s = 5; // a silent rank counts as dead

typedef enum Word { NOTHING, BEAT, BYE } Word;

/* One MPI per process, so one of these. */
static struct {
    pthread_mutex_t lock; // of all calls of MPI
    pthread_t heart;
    bool beats;       // the thread exists
    atomic_bool stop; // asks the thread to end
    MPI_Comm comm;    // of its own: heartbeats do not match data
    int rank, count;
    MPI_Request sent, heard; // pending
    int said, word;          // their messages
    double since;            // last heartbeat of the previous rank
    bool bye;                // the previous rank has sent its last one
} my = {.lock = PTHREAD_MUTEX_INITIALIZER};

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Writes MPI's text for `code`; true if there was no error. */
static bool passed(int code, const char *what, char *why, size_t room)
{
    char text[MPI_MAX_ERROR_STRING + 1];
    int length = 0;
    if (code == MPI_SUCCESS) return true;
    if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) length = 0;
    snprintf(why, room, "%s: %.*s", what, length, text);
    return false;
}

/* == heartbeats; with the lock held ===================================== */

/* Sends a word to the next rank if the previous send has completed. */
static bool say(Word word)
{
    int gone = 1;
    if (my.sent != MPI_REQUEST_NULL)
        MPI_Test(&my.sent, &gone, MPI_STATUS_IGNORE);
    if (!gone) return false;
    my.said = word;
    return MPI_Isend(&my.said, 1, MPI_INT, (my.rank + 1) % my.count, 0, my.comm,
                     &my.sent) == MPI_SUCCESS;
}

static void listen(void)
{
    if (my.bye) return;
    for (int there = 1; there;) {
        if (my.heard == MPI_REQUEST_NULL) {
            my.word = NOTHING;
            if (MPI_Irecv(&my.word, 1, MPI_INT,
                          (my.rank + my.count - 1) % my.count, 0, my.comm,
                          &my.heard) != MPI_SUCCESS)
                return;
        }
        there = 0;
        if (MPI_Test(&my.heard, &there, MPI_STATUS_IGNORE) != MPI_SUCCESS)
            return;
        if (there) my.since = seconds();
        if (there && my.word == BYE) {
            my.bye = true;
            return;
        }
    }
}

static void *heart(void *none)
{
    const struct timespec t = {0, BEAT_NS};
    while (!atomic_load(&my.stop)) {
        pthread_mutex_lock(&my.lock);
        say(BEAT);
        listen();
        double silence = my.bye ? 0 : seconds() - my.since;
        if (silence > silent_s) {
            fprintf(stderr, "segengine: rank %d: no sign of life for %.0f s\n",
                    (my.rank + my.count - 1) % my.count, silent_s);
            fflush(stderr);
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
        pthread_mutex_unlock(&my.lock);
        nanosleep(&t, NULL);
    }
    return none;
}

static bool start_beats(char *why, size_t room)
{
    if (!passed(MPI_Comm_dup(MPI_COMM_WORLD, &my.comm), "MPI_Comm_dup", why,
                room))
        return false;
    MPI_Comm_set_errhandler(my.comm, MPI_ERRORS_RETURN);
    my.sent = my.heard = MPI_REQUEST_NULL;
    my.since = seconds();
    my.beats = !thread_start(&my.heart, heart, NULL);
    if (!my.beats) snprintf(why, room, "cannot start a thread");
    return my.beats;
}

/* == exchanges =========================================================== */

/* Polls until the request is complete; the caller does not hold the lock. */
static bool finished(MPI_Request *request, const char *what, char *why,
                     size_t room)
{
    struct timespec t = {0, PAUSE_LEAST_NS};
    for (int i = 0;; i++) {
        int done = 0;
        pthread_mutex_lock(&my.lock);
        int code = MPI_Test(request, &done, MPI_STATUS_IGNORE);
        pthread_mutex_unlock(&my.lock);
        if (!passed(code, what, why, room)) return false;
        if (done) return true;
        if (i < SPINS) continue;
        if (i < SPINS + YIELDS) {
            sched_yield();
            continue;
        }
        nanosleep(&t, NULL);
        if (t.tv_nsec < PAUSE_MOST_NS) t.tv_nsec += t.tv_nsec / 4;
    }
}

static bool module_gather(const void *mine, size_t bytes, void *all, char *why,
                          size_t room)
{
    static const char what[] = "MPI_Iallgather";
    MPI_Request request;
    pthread_mutex_lock(&my.lock);
    int code = MPI_Iallgather(mine, (int)bytes, MPI_BYTE, all, (int)bytes,
                              MPI_BYTE, MPI_COMM_WORLD, &request);
    pthread_mutex_unlock(&my.lock);
    return passed(code, what, why, room) && finished(&request, what, why, room);
}

static bool module_exchange(const void *to, size_t bytes, void *from, char *why,
                            size_t room)
{
    static const char what[] = "MPI_Ialltoall";
    MPI_Request request;
    pthread_mutex_lock(&my.lock);
    int code = MPI_Ialltoall(to, (int)bytes, MPI_BYTE, from, (int)bytes,
                             MPI_BYTE, MPI_COMM_WORLD, &request);
    pthread_mutex_unlock(&my.lock);
    return passed(code, what, why, room) && finished(&request, what, why, room);
}

/* == opening and closing ================================================= */

static bool module_open(int *rank, int *count, char *why, size_t room)
{
    int given = MPI_THREAD_SINGLE, started = 0;
    if (!passed(MPI_Initialized(&started), "MPI_Initialized", why, room))
        return false;

    // one thread at a time calls MPI: the lock ensures it
    if (!started &&
        !passed(MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &given),
                "MPI_Init_thread", why, room))
        return false;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (!passed(MPI_Comm_rank(MPI_COMM_WORLD, rank), "MPI_Comm_rank", why,
                room) ||
        !passed(MPI_Comm_size(MPI_COMM_WORLD, count), "MPI_Comm_size", why,
                room))
        return false;

    my.rank = *rank, my.count = *count;
    return given < MPI_THREAD_SERIALIZED || *count < 2 ||
           start_beats(why, room);
}

// does not return; takes no lock, as another thread may hold it
static void module_quit(int code)
{
    MPI_Abort(MPI_COMM_WORLD, code);
}

/* Heartbeats continue until all ranks have arrived, so that no finished rank
 * counts as dead. Then each sends a last word and waits for one, as
 * MPI_Finalize requires that nothing is pending. */
static void module_close(void)
{
    char why[512];
    MPI_Request request;
    pthread_mutex_lock(&my.lock);
    int code = MPI_Ibarrier(MPI_COMM_WORLD, &request);
    pthread_mutex_unlock(&my.lock);
    bool met = code == MPI_SUCCESS &&
               finished(&request, "MPI_Ibarrier", why, sizeof why);

    if (my.beats) {
        atomic_store(&my.stop, true);
        pthread_join(my.heart, NULL);
        const struct timespec t = {0, PAUSE_MOST_NS};
        const double since = seconds();
        bool told = false;
        while (met && !(told && my.bye) && seconds() - since < silent_s) {
            told = told || say(BYE);
            listen();
            nanosleep(&t, NULL);
        }
        MPI_Wait(&my.sent, MPI_STATUS_IGNORE);
        MPI_Comm_free(&my.comm);
    }
    MPI_Finalize();
}

static const char *module_library(void)
{
    static char text[MPI_MAX_LIBRARY_VERSION_STRING + 1];
    int length = 0;
    if (MPI_Get_library_version(text, &length) != MPI_SUCCESS) return "MPI";
    // its first line names the library
    for (char *p = text; *p; p++)
        if (*p == '\n') *p = 0;
    return text;
}

const RanksModule *segengine_mpi(void)
{
    static const RanksModule module = {
        RANKS_MODULE, module_open,  module_gather, module_exchange,
        module_quit,  module_close, module_library};
    return &module;
}
