/* openkbp.c -- speed of the sparse CSV reader, compared with pandas.
 *
 *     build/tests/bench/openkbp [FILE.csv ...]
 *
 * Without FILE: the dose of a synthetic patient, some megabytes. One thread,
 * from file to grid, with the file in the page cache. Each file is read
 * alternately by segengine and, if installed, by pandas.read_csv with its
 * fastest parser of numbers; figures are medians of rounds. */
#include "data/datasets/openkbp.h"
#include "engine/base/file.h"
#include "engine/base/rng.h"
#include "tests/bench/timing.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ROUNDS = 7 };

static double read_once(const char *path)
{
    SparseGrid g;
    double begin = seconds(CLOCK_MONOTONIC);
    if (!openkbp_grid_read(path, OPENKBP_VALUES, &g)) {
        fprintf(stderr, "%s\n", err_text());
        exit(3);
    }
    openkbp_grid_free(&g);
    return seconds(CLOCK_MONOTONIC) - begin;
}

/* Returns the seconds of one read by pandas; 0 without pandas. */
static double pandas_once(const char *path)
{
    char command[1024];
    double time = 0;
    snprintf(command, sizeof command,
             "/usr/bin/python3 -c 'import sys, time, pandas\n"
             "t = time.perf_counter()\n"
             "pandas.read_csv(sys.argv[1], index_col=0)\n"
             "print(time.perf_counter() - t)' '%s' 2> /dev/null",
             path);
    FILE *f = popen(command, "r");
    if (!f) return 0;
    if (fscanf(f, "%lf", &time) != 1) time = 0;
    pclose(f);
    return time;
}

static void bench(const char *path)
{
    double ours[ROUNDS], theirs[ROUNDS];
    FILE *f = fopen(path, "rb");
    if (!f || fseek(f, 0, SEEK_END)) {
        perror(path);
        exit(3);
    }
    double megabytes = (double)ftell(f) / 1e6;
    fclose(f);
    for (int k = 0; k < ROUNDS; k++) {
        ours[k] = read_once(path);
        theirs[k] = pandas_once(path);
    }
    double us = median(ours, ROUNDS), they = median(theirs, ROUNDS);
    printf("openkbp  %6.2f MB  %7.1f MB/s", megabytes, megabytes / us);
    if (they > 0)
        printf("  pandas %7.1f MB/s  ratio %.2f", megabytes / they, they / us);
    printf("  %s\n", path);
}

/* A third of the voxels, three decimals, as in the challenge. */
static void synthetic(char path[64])
{
    size_t room = (size_t)OPENKBP_VOXELS * 16, n;
    char *text = mem_alloc(room);
    Rng r = {.seed = 1, .stream = RNG_TEST};

    snprintf(path, 64, "/tmp/openkbp-%ld.csv", (long)getpid());
    if (!text) exit(1);
    n = (size_t)snprintf(text, room, ",data\n");
    for (uint32_t i = 0; i < OPENKBP_VOXELS; i += 3)
        n += (size_t)snprintf(text + n, room - n, "%u,%.3f\n", i,
                              (double)rng_range(&r, i, 0, 76));
    if (!file_replace(path, text, n)) {
        fprintf(stderr, "%s\n", err_text());
        exit(1);
    }
    mem_free(text);
}

int main(int argc, char **argv)
{
    for (int k = 1; k < argc; k++) bench(argv[k]);
    if (argc > 1) return 0;
    char path[64];
    synthetic(path);
    bench(path);
    remove(path);
    return 0;
}
