/* ranks.c -- sums over ranks, the same for every transport.
 *
 * A short vector is all-gathered, and each rank adds up all of it. A long one
 * is cut into slices, one per rank: the owner of a slice receives it from all
 * ranks and adds it up (reduce-scatter), then all receive the sums
 * (all-gather). So each number leaves a rank twice, for any number of ranks.
 * Both add in the order of the ranks. */
#include "engine/ranks/ranks.h"
#include "engine/base/clock.h"
#include "engine/base/mem.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool ranks_make(int rank, int count, const RanksVia *via, void *state,
                Ranks **out)
{
    Ranks *r = mem_alloc(sizeof *r);
    if (!r) return false;
    *r = (Ranks){.rank = rank, .count = count, .via = via, .state = state};
    r->room = mem_alloc((size_t)2 * RANKS_PIECE);
    if (!r->room) {
        mem_free(r);
        return false;
    }
    *out = r;
    return true;
}

bool ranks_open(Ranks **out)
{
    const char *text = getenv(RANKS_VARIABLE);
    int fd, rank, count;
    *out = NULL;
    if (!text) return !ranks_mpi_launched() || ranks_mpi_open(out);
    if (sscanf(text, "%d %d %d", &fd, &rank, &count) != 3 || rank < 0 ||
        rank >= count || count > RANKS_MOST)
        return fail_usage("%s is \"%s\": only --ranks may set it; unset it",
                          RANKS_VARIABLE, text);
    return ranks_shared_open(fd, rank, count, out);
}

void ranks_close(Ranks *r)
{
    if (!r) return;
    r->via->close(r->state);
    mem_free(r->room);
    mem_free(r);
}

void ranks_quit(Ranks *r, int code, const char *why)
{
    if (r) r->via->quit(r->state, code, why);
}

/* Updates the counters after a gather or exchange. */
static bool met(Ranks *r, double since, size_t bytes, bool ok)
{
    r->spent_s += clock_s() - since;
    r->sent += (int64_t)bytes;
    r->meetings++;
    return ok;
}

/* If `time_waiting`: a barrier before the gather or exchange that began at
 * `since`. */
static bool timed_barrier(Ranks *r, double since)
{
    double none = 0, all[RANKS_MOST];
    if (!r->time_waiting) return true;
    bool ok = r->via->gather(r->state, &none, sizeof none, all);
    r->waited_s += clock_s() - since;
    return ok;
}

static bool gather(Ranks *r, const void *mine, size_t bytes, void *all)
{
    double since = clock_s();
    if (!timed_barrier(r, since)) return false;
    bool ok = r->via->gather(r->state, mine, bytes, all);
    return met(r, since, bytes * (size_t)(r->count - 1), ok);
}

bool ranks_barrier(Ranks *r)
{
    double none = 0;
    return ranks_sum(r, &none, 1);
}

bool ranks_sum(Ranks *r, double *v, int64_t count)
{
    // the contributions of all ranks together fit the first half of the room
    int64_t most = RANKS_PIECE / (int64_t)sizeof *v / r->count;
    double *all = (double *)r->room;

    for (int64_t at = 0; at < count; at += most) {
        int64_t n = count - at < most ? count - at : most;
        if (!gather(r, v + at, (size_t)n * sizeof *v, all)) return false;
        for (int64_t i = 0; i < n; i++) {
            double sum = all[i];
            for (int k = 1; k < r->count; k++) sum += all[k * n + i];
            v[at + i] = sum;
        }
    }
    return true;
}

/* Adds slices of all ranks, (count, n), into the first; one function per
 * type. */
#define ADD_UP(type)                                                  \
    static void add_up_##type(type *all, int ranks, int64_t n)        \
    {                                                                 \
        for (int k = 1; k < ranks; k++)                               \
            for (int64_t i = 0; i < n; i++) all[i] += all[k * n + i]; \
    }
ADD_UP(float)
ADD_UP(double)

bool ranks_sum_values(Ranks *r, void *v, Dtype type, int64_t count)
{
    CHECK(type == F32 || type == F64);
    size_t real = dtype_bytes(type), ranks = (size_t)r->count;
    // numbers in a slice, even so that its bytes are a multiple of 8
    int64_t most = (int64_t)(RANKS_PIECE / ranks / real) & ~(int64_t)1;
    char *to = r->room, *from = to + RANKS_PIECE;

    for (int64_t at = 0; at < count;) {
        int64_t left = count - at, slice = (left + r->count - 1) / r->count;
        slice = (slice + 1) & ~(int64_t)1;
        if (slice > most) slice = most;
        int64_t n = slice * r->count < left ? slice * r->count : left;
        size_t bytes = (size_t)slice * real;
        char *here = (char *)v + (size_t)at * real;
        memcpy(to, here, (size_t)n * real);
        memset(to + (size_t)n * real, 0, ranks * bytes - (size_t)n * real);
        double since = clock_s();
        if (!timed_barrier(r, since)) return false;
        bool ok = r->via->exchange(r->state, to, bytes, from);
        if (!met(r, since, bytes * (ranks - 1), ok)) return false;
        if (type == F32)
            add_up_float((float *)from, r->count, slice);
        else
            add_up_double((double *)from, r->count, slice);
        if (!gather(r, from, bytes, to)) return false;
        memcpy(here, to, (size_t)n * real);
        at += n;
    }
    return true;
}

bool ranks_gather(Ranks *r, const void *mine, size_t bytes, void *all)
{
    enum { SMALL = 8 };
    size_t ranks = (size_t)r->count, most = RANKS_PIECE / ranks / SMALL * SMALL;
    char *piece = r->room, *got = piece + RANKS_PIECE;

    for (size_t at = 0; at < bytes; at += most) {
        size_t n = bytes - at < most ? bytes - at : most;
        size_t wide = (n + SMALL - 1) / SMALL * SMALL;
        memset(piece, 0, wide);
        memcpy(piece, (const char *)mine + at, n);
        if (!gather(r, piece, wide, got)) return false;
        for (size_t k = 0; k < ranks; k++)
            memcpy((char *)all + k * bytes + at, got + k * wide, n);
    }
    return true;
}
