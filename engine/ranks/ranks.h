/* ranks.h -- several processes that train one network.
 *
 * Each process is a rank, from 0. All hold the same parameters; each works on
 * its shard of a batch, and sums over samples are all-reduced. Every function
 * below is collective: all ranks call it in the same order with the same sizes,
 * and it returns when all have called it.
 *
 * Sums are taken in the order of the ranks by every rank that adds. So all
 * ranks get the same bits, which depend on the number of ranks but not on
 * machine load or transport. If a rank dies or stops responding, the functions
 * of the others fail with a reason that names it, within 10 s; after a failure
 * only ranks_close may be called.
 *
 * Transports: shared memory for processes of one machine (ranks_shared.c), and
 * the MPI library of the machine (ranks_mpi.c). */
#ifndef SEG_ENGINE_RANKS_RANKS_H
#define SEG_ENGINE_RANKS_RANKS_H
#include "engine/base/err.h"
#include "engine/graph/tensor.h"

/* Maximum bytes that a rank sends in one exchange; longer vectors are split. A
 * multiple of the page size. */
enum { RANKS_PIECE = 512 << 10, RANKS_MOST = 1024 };

/* A transport between ranks. `bytes` is a multiple of 8. */
typedef struct RanksVia {
    const char *name;
    /* All-gather: all (ranks, bytes) = `mine` of each rank; at most
     * RANKS_PIECE bytes. */
    bool (*gather)(void *state, const void *mine, size_t bytes, void *all);
    /* All-to-all: block i of `to` (ranks, bytes) goes to rank i, which stores
     * it in `from` as the block of its sender; ranks * bytes is at most
     * RANKS_PIECE. */
    bool (*exchange)(void *state, const void *to, size_t bytes, void *from);
    /* This rank ends with this exit code and reason: ends the others, too. */
    void (*quit)(void *state, int code, const char *why);
    void (*close)(void *state);
} RanksVia;

typedef struct Ranks {
    int rank, count;
    const RanksVia *via;
    void *state;
    char *room;        /* two pieces                             */
    double spent_s;    /* inside the functions below             */
    int64_t sent;      /* bytes                                  */
    int64_t meetings;  /* number of exchanges: each pays latency */
    bool time_waiting; /* a barrier before each exchange separates waiting for
                        * slower ranks from sending              */
    double waited_s;   /* part of spent_s, in these barriers     */
} Ranks;

/* Opens this process as the rank that its environment names: started by
 * ranks_shared_start or by an MPI launcher. *out is NULL for a single process.
 * ERR_USAGE if a launcher's variables are set but there is no module for its
 * MPI. */
bool ranks_open(Ranks **out);
/* Called before a rank ends normally; the others may go on. NULL is fine. */
void ranks_close(Ranks *r);
/* Called before a rank ends because of the failure `why`: the others end
 * too. */
void ranks_quit(Ranks *r, int code, const char *why);

bool ranks_barrier(Ranks *r);
/* v[i] = sum over ranks of v[i]. */
bool ranks_sum(Ranks *r, double *v, int64_t count);
/* The same for F32 or F64 numbers, added in that type: each rank adds up one
 * slice and sends it to the others. */
bool ranks_sum_values(Ranks *r, void *v, Dtype type, int64_t count);
/* All-gather of any size: all (count, bytes) = `mine` of each rank. */
bool ranks_gather(Ranks *r, const void *mine, size_t bytes, void *all);

/* Returns the size of a rank's shard of a batch of `count`: samples [*first,
 * *first + result), contiguous; smaller shards come first. 0: empty shard. */
static inline int ranks_shard(int count, int rank, int ranks, int *first)
{
    *first = (int)((int64_t)count * rank / ranks);
    return (int)((int64_t)count * (rank + 1) / ranks) - *first;
}

/* == transports, for ranks.c and tests ================================== */

/* close frees `state`. */
bool ranks_make(int rank, int count, const RanksVia *via, void *state,
                Ranks **out);
/* Opens the transport over shared memory `fd` from ranks_shared_make. */
bool ranks_shared_open(int fd, int rank, int count, Ranks **out);
/* Makes anonymous shared memory for so many ranks; child processes inherit its
 * descriptor. */
bool ranks_shared_make(int count, int *fd);
/* Opens the MPI module next to the program or in the library folder. */
bool ranks_mpi_open(Ranks **out);
bool ranks_mpi_launched(void); /* a launcher's variables are set */

/* Environment variable of a started rank: "descriptor rank count". */
#define RANKS_VARIABLE "SEGENGINE_RANK"

/* == the process that starts ranks on one machine ======================= */

/* Starts this program `count` times with the arguments argv (argv[0] included,
 * NULL at the end) and waits for all. If a rank fails, the others are ended,
 * and a rank that does not end within 10 s is killed. *code: 0, or the exit
 * code of the rank that failed first; `why`: its reason as "rank 1: ..."
 * (without a number if all ranks report the same), "" if it gave none.
 * `signalled` returns the signal that asks this process to stop, or 0; the
 * signal is passed on. */
bool ranks_shared_start(int count, char *const argv[], int (*signalled)(void),
                        int *code, char why[ERR_MAX]);
#endif
