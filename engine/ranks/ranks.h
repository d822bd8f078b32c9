/* ranks.h -- several processes that train one network.
 *
 * Each process is a rank, from 0. All hold the same weights; each works on its
 * share of a batch, and sums over all samples are sums over ranks. Every
 * function below is called by all ranks, in the same order, with the same
 * sizes: it returns when all have called it.
 *
 * Sums are taken in the order of the ranks, whoever takes them: all ranks get
 * the same bits, and these depend on the number of ranks, not on the machine's
 * load or the way between them. One that has died or is silent makes the
 * functions of the others fail, with its reason, within 10 s; after a failure
 * nothing but ranks_close makes sense.
 *
 * Ways between ranks: memory that processes of one machine share
 * (ranks_shared.c), and an MPI that the machine has (ranks_mpi.c). */
#ifndef SEG_ENGINE_RANKS_RANKS_H
#define SEG_ENGINE_RANKS_RANKS_H
#include "engine/base/err.h"
#include "engine/graph/tensor.h"

/* At most so many bytes leave a rank in one exchange; longer vectors go in
 * pieces. A multiple of a page. */
enum { RANKS_PIECE = 512 << 10, RANKS_MOST = 1024 };

/* What a way between ranks can do. `bytes` is a multiple of 8. */
typedef struct RanksVia {
    const char *name;
    /* all (ranks, bytes): `mine` of each, bytes <= RANKS_PIECE. */
    bool (*gather)(void *state, const void *mine, size_t bytes, void *all);
    /* Block i of `to` (ranks, bytes) goes to rank i, where it is block
     * `own number` of `from`; ranks * bytes <= RANKS_PIECE. */
    bool (*exchange)(void *state, const void *to, size_t bytes, void *from);
    /* This rank ends with this exit code and reason: the others shall, too. */
    void (*quit)(void *state, int code, const char *why);
    void (*close)(void *state);
} RanksVia;

typedef struct Ranks {
    int rank, count;
    const RanksVia *via;
    void *state;
    char *room;       /* two pieces                             */
    double spent_s;   /* inside the functions below             */
    int64_t sent;     /* bytes                                  */
    int64_t meetings; /* exchanges: what latency is paid for    */
    bool apart;       /* all meet before each exchange, which tells waiting
                       * for slower ranks from sending          */
    double waited_s;  /* of spent_s, in these meetings          */
} Ranks;

/* The rank that the environment says this process is: one that
 * ranks_shared_start started, or one of an MPI launcher. *out is NULL for a
 * process that is alone. ERR_USAGE when a launcher's variables are there, but
 * the module for its MPI is not. */
bool ranks_open(Ranks **out);
/* NULL is fine. Before a rank ends in order; the others may go on. */
void ranks_close(Ranks *r);
/* Before a rank ends because of `why`: the others end with it. */
void ranks_quit(Ranks *r, int code, const char *why);

bool ranks_barrier(Ranks *r);
/* v[i] = sum over ranks of v[i]. */
bool ranks_sum(Ranks *r, double *v, int64_t count);
/* The same of F32 or F64 numbers, added as numbers of that type: each rank adds
 * up a slice of them and hands it round. */
bool ranks_sum_values(Ranks *r, void *v, Dtype type, int64_t count);
/* all (count, bytes): `mine` of each rank; any size. */
bool ranks_gather(Ranks *r, const void *mine, size_t bytes, void *all);

/* The share of a rank in a batch of `count`: samples [*first, *first + result),
 * contiguous, larger ones behind smaller ones. 0: none is left for it. */
static inline int ranks_share(int count, int rank, int ranks, int *first)
{
    *first = (int)((int64_t)count * rank / ranks);
    return (int)((int64_t)count * (rank + 1) / ranks) - *first;
}

/* == ways, for ranks.c and tests ======================================== */

/* `own` is freed by close. */
bool ranks_make(int rank, int count, const RanksVia *via, void *state,
                Ranks **out);
/* A way by shared memory: `fd` is that of ranks_shared_make. */
bool ranks_shared_open(int fd, int rank, int count, Ranks **out);
/* The memory for so many ranks, without a name; its descriptor stays open in
 * programs that are started. */
bool ranks_shared_make(int count, int *fd);
/* By the module beside the program, or in the folder of libraries. */
bool ranks_mpi_open(Ranks **out);
bool ranks_mpi_launched(void); /* the variables of a launcher are there */

/* The environment of a rank that was started: "descriptor rank count". */
#define RANKS_VARIABLE "SEGENGINE_RANK"

/* == the process that starts ranks on one machine ======================= */

/* Start this program `count` times with these arguments (argv[0] too, NULL at
 * the end) and wait for all. What one of them ends with ends the others, and
 * who does not end is killed after 10 s. *code: 0, or the exit code of the rank
 * that ended first; `why`: its reason, as "rank 1: ..." (or without a number
 * where all have the same), "" when it said none. `signalled` gives the signal
 * that this process was told to stop by, or 0; it is passed on. */
bool ranks_shared_start(int count, char *const argv[], int (*signalled)(void),
                        int *code, char why[ERR_MAX]);
#endif
