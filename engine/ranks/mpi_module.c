/* mpi_module.c -- segengine-mpi.so: ranks.h over the MPI that it is compiled
 * with.
 *
 * Functions of MPI-3 (2012) and before, so any MPI of today does. An error of
 * MPI comes back as a reason instead of ending the program. What one rank sends
 * in one call is RANKS_PIECE at most, far below the int that MPI counts with.
 *
 * A launcher ends all ranks when one dies, but does not see one that stands
 * still, and a collective call would wait for it for ever. So no call here
 * blocks: calls are begun, then asked after, each with the lock held for a
 * moment, and between them a thread of each rank sends a beat to the rank
 * behind it and listens to the one in front. Who hears nothing for `silent_s`
 * says so and ends all. Without threads in the MPI there are no beats. */
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
    SPINS = 200, // then others may have the processor, then pauses grow
    YIELDS = 200,
    PAUSE_LEAST_NS = 20000,
    PAUSE_MOST_NS = 500000,
    BEAT_NS = 250000000,
};
static const double silent_s = 5; // taken for dead

typedef enum Word { NOTHING, BEAT, BYE } Word;

/* One MPI a process, so one of these. */
static struct {
    pthread_mutex_t lock; // of all calls of MPI
    pthread_t heart;
    bool beats;       // the thread is there
    atomic_bool stop; // it is to end
    MPI_Comm comm;    // beats do not meet sums
    int rank, count;
    MPI_Request sent, heard; // under way
    int said, word;          // their messages
    double since;            // the last beat of the rank in front
    bool bye;                // it beats no more, and said so
} my = {.lock = PTHREAD_MUTEX_INITIALIZER};

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* MPI's text for `code`; true where there is none. */
static bool passed(int code, const char *what, char *why, size_t room)
{
    char text[MPI_MAX_ERROR_STRING + 1];
    int length = 0;
    if (code == MPI_SUCCESS) return true;
    if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) length = 0;
    snprintf(why, room, "%s: %.*s", what, length, text);
    return false;
}

/* == beats; with the lock held ========================================== */

/* A word to the rank behind, when the one before has left. */
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
            fprintf(stderr,
                    "segengine: rank %d: nothing was heard of it for %.0f s\n",
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

/* == meetings ============================================================ */

/* Until what was begun is done; the lock is not held. */
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

/* == from the first to the last ========================================== */

static bool module_open(int *rank, int *count, char *why, size_t room)
{
    int given = MPI_THREAD_SINGLE, started = 0;
    if (!passed(MPI_Initialized(&started), "MPI_Initialized", why, room))
        return false;
    // one thread at a time calls MPI: the lock sees to it
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

// it does not come back, and the lock may be another's
static void module_quit(int code)
{
    MPI_Abort(MPI_COMM_WORLD, code);
}

/* Beats go on until all are here, so that nobody takes one that is done for
 * dead; then each says good-bye and hears it, as nothing may be under way when
 * MPI ends. */
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
    // its first line says what it is
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
