/* suite_edges.c -- extents at and next to the boundaries of kernels.
 *
 * The usual draws are small and of any size; block sizes of a GPU kernel are
 * fixed, so mistakes concentrate one element before and after them. The numbers
 * below are those of the kernels in cuda/ (each comment names its file): a
 * change of block sizes there needs new numbers here. For other backends they
 * are ordinary extents. */
#include "engine/check/suite.h"

enum { GPU_BLOCK = 256 }; // threads

/* col_reduce.cuh: rows of channels in units of 4 or 1, tiles of 128 units, many
 * rows of threads, 32 rows per thread row for a partial sum. */
Dims image_walk(Draw *d, OpCase *c)
{
    enum { UNITS = 128, PART = 32 };
    int ch =
        PICK(d, 1, 1, 2, 3, 4, 5, 12, 31, 64, 127, 130, 257, 512, 516, 1028);
    int units = ch % 4 ? ch : ch / 4, tiles = (units + UNITS - 1) / UNITS;
    int width = (units + tiles - 1) / tiles, deep = GPU_BLOCK / width;
    c->rank = 1;
    return (Dims){draw_int(d, 1, 2), 1, 1,
                  draw_int(d, 1, 2) * PART * deep + draw_int(d, -1, 1), ch};
}

/* thread_group.cuh and classes.cuh: a power of two of lanes per row, a block
 * for more than 1024 channels; as many rows as fit in a block, and one more or
 * less. One row so long that each thread adds more than a chain. */
Dims image_channels(Draw *d, OpCase *c)
{
    int ch = PICK(d, 1, 2, 3, 4, 5, 8, 9, 16, 17, 32, 33, 64, 65, 127, 128, 129,
                  1023, 1024, 1025, 1028);
    if (d->sample % 18 == 17) ch = 140001;
    int lanes = 1;
    while (lanes < 32 && 4 * lanes < ch) lanes *= 2;
    c->rank = 1;
    int rows =
        ch > 1024 ? 1 + 3 * (ch < 2000) : draw_edge(d, GPU_BLOCK / lanes);
    return (Dims){1, 1, 1, rows, ch};
}

/* Few classes, and one more than the limit: samples that end at a block of
 * rows, a chunk of rows or a vector. */
Dims image_few(Draw *d, OpCase *c)
{
    int rows = draw_edge(d, PICK(d, 2048, 2 * 2048, 128, 64, 32, 16));
    c->rank = 1;
    return (Dims){draw_int(d, 1, 3), 1, 1, rows, PICK(d, 2, 3, 4, 5, 16, 17)};
}

/* loss.cuh: partial sums of 1024 elements, four per thread, groups of lanes for
 * rows of several channels; more sets than partial sums. */
Dims image_parts(Draw *d, OpCase *c)
{
    int ch = PICK(d, 1, 1, 1, 2, 3, 4, 5, 8, 9, 16, 17, 32, 33, 65);
    c->rank = 1;
    if (d->sample % 9 == 8) return (Dims){1030, 1, 1, 3, ch < 5 ? ch : 5};
    int rows = 1024 * PICK(d, 1, 2, 3, 7) / ch + draw_int(d, -1, 1);
    int n = PICK(d, 1, 1, 2, 3);
    return (Dims){n, 1, 1, (rows + n - 1) / n, ch};
}

/* global_pool.cu: lines of 1, 2 or 4 rows, tiles of 256 packs, partial sums of
 * 32 steps of a block, a warp for 32 partial sums. */
Dims image_global(Draw *d, OpCase *c)
{
    static const Dims table[] = {
        {1, 1, 1, 70000, 1},  {1, 1, 1, 70001, 1}, {2, 1, 1, 32770, 2},
        {1, 1, 1, 32769, 2},  {1, 1, 1, 20002, 6}, {1, 1, 1, 9001, 3},
        {1, 1, 1, 9004, 3},   {1, 1, 1, 49, 512},  {1, 1, 1, 64, 1024},
        {2, 1, 1, 65, 1028},  {1, 1, 1, 5, 4100},  {1, 1, 1, 64, 257},
        {1, 1, 1, 64, 255},   {1, 1, 1, 100, 258}, {600, 1, 1, 8, 4},
        {1, 1, 1, 1025, 992},
    };
    c->rank = 1;
    return table[d->sample % (sizeof table / sizeof *table)];
}

/* transpose.cuh: flatten transposes tiles of 32 positions by 32 channels, from
 * 8 of each on. */
Dims image_turn(Draw *d, OpCase *c)
{
    int positions = draw_edge(d, PICK(d, 8, 32, 64));
    c->rank = 1;
    return (Dims){draw_int(d, 1, 3), 1, 1, positions,
                  draw_edge(d, PICK(d, 8, 32, 64))};
}
