/* nccl.cc -- a substitute for libnccl.so.2, for ranks on emulated devices.
 *
 * Implements the functions of cuda/device/nccl.h with memory that the processes
 * share. An all-reduce is a host function on the emulated stream, so it is
 * queued, captured and replayed like NCCL's kernels, and it blocks its stream
 * until all ranks have arrived. Values are added in the order of the ranks. A
 * rank ends after waiting for 60 s. It also ends when its all-reduce belongs to
 * a CUDA graph and another rank's does not, or to another graph: NCCL forbids
 * both. */
#include <emu.h>

#include "cuda/device/nccl.h"
#include <atomic>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

namespace {

const size_t PIECE = 1 << 20, RANKS = 64;

struct Hall {
    std::atomic<int> came, round;
    int taken[RANKS];
};

struct Sum {
    struct ncclComm *comm;
    const void *from;
    void *to;
    size_t count;
    int type;
    int taken; // number among the captured all-reduces; 0: not captured
};

} // namespace

struct ncclComm {
    int rank, ranks;
    Hall *hall;
    char *slots; // (ranks, PIECE)
    size_t bytes;
};

namespace {

void meet(ncclComm *c)
{
    const int round = c->hall->round;
    if (++c->hall->came == c->ranks) {
        c->hall->came = 0;
        c->hall->round++;
        return;
    }
    const timespec t = {0, 50000};
    for (int i = 0; c->hall->round == round; i++) {
        if (i > 60 * 20000) {
            fprintf(stderr, "nccl: rank %d waits in vain\n", c->rank);
            abort();
        }
        nanosleep(&t, nullptr);
    }
}

template <class T> void add(const Sum &s)
{
    ncclComm *c = s.comm;
    const size_t most = PIECE / sizeof(T);
    for (size_t at = 0; at < s.count; at += most) {
        const size_t n = s.count - at < most ? s.count - at : most;
        memcpy(c->slots + (size_t)c->rank * PIECE,
               static_cast<const T *>(s.from) + at, n * sizeof(T));
        meet(c);
        T *to = static_cast<T *>(s.to) + at;
        for (size_t i = 0; i < n; i++) {
            T all = reinterpret_cast<const T *>(c->slots)[i];
            for (int k = 1; k < c->ranks; k++)
                all += reinterpret_cast<const T *>(c->slots +
                                                   (size_t)k * PIECE)[i];
            to[i] = all;
        }
        meet(c);
    }
}

void compare(const Sum &s)
{
    ncclComm *c = s.comm;
    c->hall->taken[c->rank] = s.taken;
    meet(c);
    for (int k = 0; k < c->ranks; k++)
        if (c->hall->taken[k] != s.taken) {
            fprintf(stderr,
                    "nccl: sum %d of the captures of rank %d meets %d of "
                    "rank %d (0: not recorded)\n",
                    s.taken, c->rank, c->hall->taken[k], k);
            abort();
        }
    meet(c);
}

void run(void *data)
{
    const Sum &s = *static_cast<Sum *>(data);
    compare(s);
    if (s.type == NCCL_FLOAT32)
        add<float>(s);
    else
        add<double>(s);
}

} // namespace

extern "C" {
int ncclGetVersion(int *out)
{
    *out = 22105;
    return 0;
}

const char *ncclGetErrorString(int)
{
    return "an error of the stand-in";
}

int ncclGetUniqueId(NcclId *id)
{
    static int made;
    snprintf(id->bytes, sizeof id->bytes, "/emu_nccl.%ld.%d", (long)getpid(),
             made++);
    return 0;
}

int ncclCommInitRank(ncclComm **out, int ranks, NcclId id, int rank)
{
    const size_t bytes = 4096 + (size_t)ranks * PIECE;
    if (ranks > (int)RANKS) return 4;
    const int fd = shm_open(id.bytes, O_RDWR | O_CREAT, 0600);
    if (fd < 0 || ftruncate(fd, (off_t)bytes)) return 2;
    void *at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (at == MAP_FAILED) return 2;
    *out = new ncclComm{rank, ranks, static_cast<Hall *>(at),
                        static_cast<char *>(at) + 4096, bytes};
    meet(*out);
    if (rank == 0) shm_unlink(id.bytes);
    return 0;
}

// a Sum is never freed: a captured one may be replayed until the program ends
int ncclAllReduce(const void *from, void *to, size_t count, int type, int op,
                  ncclComm *comm, CUstream_st *stream)
{
    if (op != NCCL_SUM || (type != NCCL_FLOAT32 && type != NCCL_FLOAT64))
        return 4;
    static Sum *all[1 << 16];
    static int sums, taken;
    cudaStreamCaptureStatus status;
    if (sums == 1 << 16 || cudaStreamIsCapturing(stream, &status)) return 3;
    const bool captured = status == cudaStreamCaptureStatusActive;
    all[sums] = new Sum{comm, from, to, count, type, captured ? ++taken : 0};
    return cudaLaunchHostFunc(stream, run, all[sums++]) ? 1 : 0;
}

int ncclCommGetAsyncError(ncclComm *, int *error)
{
    *error = 0;
    return 0;
}

int ncclCommDestroy(ncclComm *c)
{
    munmap(c->hall, c->bytes);
    delete c;
    return 0;
}

int ncclCommAbort(ncclComm *c)
{
    return ncclCommDestroy(c);
}
}
