/* winograd_wgrad.c -- geometry, tasks and memory of F(3x3, 4x4), the gradient
 * of the weights: a 4x4 tile of dy takes the place of the weights.
 *
 *     V[36][tile][ci]   of x, as for the result
 *     S[36][tile][co]   of dy
 *     W[36][co][ci]     = sum over tiles of S[tile][co] V[tile][ci], by
 *                       Simd.outer, plane by plane
 *     dw[co][3][3][ci]  of W, once all tiles are in it
 *
 * A task is a block of dw (rows by channels, one tap along d) and a part of the
 * tiles, with a W of its own: it computes V and S of a chunk of tiles, then
 * adds to all 36 sums. Threads that share W would need a barrier a chunk, which
 * was up to seven times slower on a busy machine. V is computed once for each
 * row of blocks and S once for each column; even so blocks of 64 x 64, with V,
 * S and W of 1.2 MB in L2, were faster than larger ones.
 *
 * A chain is CHUNK tiles, then the chunks of a part, then the parts, each in
 * order, by shapes alone. */
#include "cpu/conv/winograd.h"
#include "cpu/conv/winograd_tiles.h"
#include "cpu/lib/simd.h"
#include <string.h>

enum {
    CHUNK = 32,             // tiles: V, S and W in L2
    CHANNELS = 64,          // of x in a block
    ROWS = 64,              // of dw in a block: channels of dy
    TASKS = 32,             // at least, where there is enough work
    PART = 128,             // tiles of a part, at least
    PARTS_BYTES = 32 << 20, // the sums of all parts, at most
};

typedef struct Plan {
    Wgrad g;
    const Simd *simd;
    Tiles tiles;
    int64_t ci, co, taps;           // taps along d
    int64_t depth_in, depth, lo_d;  // planes of a sample: of x, of dy
    int64_t all;                    // tiles of dy
    int64_t many, slices;           // channels of a block; blocks of them
    int64_t block_rows, row_blocks; // rows of a block; blocks of them
    int64_t parts;
    int64_t v_row, s_row;              // floats of a tile
    int64_t v_plane, s_plane, w_plane; // floats
    int64_t private;                   // floats a thread
    float *sums;                       // (parts, dw); NULL: dw itself
    float *buffers;
} Plan;

/* Number of elements of dw. */
static int64_t weights(const Plan *p)
{
    return p->co * p->taps * SQUARE * p->ci;
}

/* Everything except addresses, from the extents. */
static Plan plan(const Wgrad *g)
{
    const Window *w = &g->window;
    Plan p = {.g = *g, .simd = simd(), .ci = g->in.c, .co = g->out.c};
    p.tiles = tiles_of(g->in, g->out, w->lo[1], w->lo[2]);
    p.taps = w->k[0], p.lo_d = w->lo[0];
    p.depth_in = g->in.d, p.depth = g->out.d;
    p.all = g->out.n * p.depth * tiles_plane(&p.tiles);
    p.slices = ceil_div(p.ci, CHANNELS);
    p.many = round_up(ceil_div(p.ci, p.slices), p.simd->lanes);
    p.slices = ceil_div(p.ci, p.many);
    p.row_blocks = ceil_div(p.co, ROWS);

    // whole vectors of S, and whole register blocks of W
    p.block_rows = round_up(ceil_div(p.co, p.row_blocks),
                            most(p.simd->lanes, p.simd->outer_high));
    p.row_blocks = ceil_div(p.co, p.block_rows);
    int64_t want = ceil_div(TASKS, p.taps * p.slices * p.row_blocks);
    int64_t room = PARTS_BYTES / (weights(&p) * (int64_t)sizeof(float));
    p.parts = most(1, least(want, least(p.all / PART, room)));
    p.v_row = p.many, p.s_row = p.block_rows;
    p.v_plane = plane_floats(CHUNK, p.v_row);
    p.s_plane = plane_floats(CHUNK, p.s_row);
    p.w_plane = plane_floats(p.block_rows, p.many);
    p.private = PLANES * (p.v_plane + p.s_plane + p.w_plane);
    return p;
}

size_t winograd_grad_bytes(const Wgrad *g)
{
    Plan p = plan(g);
    int64_t sums = p.parts > 1 ? p.parts * weights(&p) : 0;
    return (size_t)(round_up(sums, LINE) + g->threads * p.private) *
           sizeof(float);
}

/* A block of dw: rows r0 .. r0+block_rows-1, channels c0 .. c0+many-1, tap t.
 */
typedef struct Block {
    int64_t t, r0, block_rows, c0, many;
} Block;

/* The three buffers of a thread. */
typedef struct Private {
    float *v, *s, *w;
} Private;

/* Computes V and S of up to CHUNK tiles from *next on (up to `end`), without
 * the tiles that have the tap outside the image; returns the number of tiles.
 */
static int64_t fill_chunk(const Plan *p, const Block *b, int64_t *next,
                          int64_t end, const Private *mine)
{
    const int64_t plane = tiles_plane(&p->tiles);
    int64_t filled = 0;

    for (; *next < end && filled < CHUNK; ++*next) {
        int64_t at = *next % plane, out = *next / plane, offset;
        int64_t d = out % p->depth - p->lo_d + b->t;
        if (d < 0 || d >= p->depth_in) continue;
        tile_channels(&p->tiles, p->g.x, p->g.half, &p->g.second,
                      out / p->depth * p->depth_in + d, at, b->c0,
                      b->c0 + b->many, p->v_plane, mine->v + filled * p->v_row);
        Tile t = tile_result_at(&p->tiles, out, at, p->co, &offset);
        t.plane = p->s_plane, t.channels = b->block_rows, t.half = p->g.half;
        p->simd->tile_dy(&t, numbers_at(p->g.a, t.half, offset + b->r0),
                         mine->s + filled * p->s_row);
        filled++;
    }
    return filled;
}

/* Computes W of one plane: the products of `cols` tiles. */
static void multiply(const Plan *p, const Block *b, const float *v,
                     const float *s, int64_t cols, bool add, float *w)
{
    const int64_t lanes = p->simd->lanes;
    int64_t vectors = ceil_div(b->many, lanes);
    int64_t cuts = ceil_div(vectors * lanes, p->simd->outer_wide);
    Outer job = {.rows = 1,
                 .cols = cols,
                 .lda = p->s_row,
                 .ldx = p->v_row,
                 .ldo = p->many,
                 .high = p->simd->outer_high,
                 .height = p->simd->outer_high,
                 .add = add};

    for (int64_t i = 0; i < cuts; i++) {
        int64_t v0 = vectors * i / cuts, v1 = vectors * (i + 1) / cuts;
        job.x = v + v0 * lanes;
        job.width = (int)((v1 - v0) * lanes);
        // rows of W beyond the last one of dw are never read
        for (int64_t r = 0; r < b->block_rows; r += job.high) {
            job.a = s + r;
            job.out = w + r * p->many + v0 * lanes;
            p->simd->outer(&job);
        }
    }
}

/* Splits the task number into part, tap, rows and channels. */
static void run_task(void *ctx, int64_t task, int thread)
{
    const Plan *p = ctx;
    Block b = {.c0 = task % p->slices * p->many};
    task /= p->slices;
    b.r0 = task % p->row_blocks * p->block_rows, task /= p->row_blocks;
    b.t = task % p->taps;
    int64_t part = task / p->taps;
    b.block_rows = least(p->block_rows, p->co - b.r0),
    b.many = least(p->many, p->ci - b.c0);
    Private mine = {.v = p->buffers + thread * p->private};
    mine.s = mine.v + PLANES * p->v_plane;
    mine.w = mine.s + PLANES * p->s_plane;
    int64_t next = p->all * part / p->parts;
    int64_t end = p->all * (part + 1) / p->parts, cols;
    bool add = false;

    while ((cols = fill_chunk(p, &b, &next, end, &mine))) {
        for (int64_t f = 0; f < PLANES; f++)
            multiply(p, &b, mine.v + f * p->v_plane, mine.s + f * p->s_plane,
                     cols, add, mine.w + f * p->w_plane);
        add = true;
    }

    // a tap that is outside the image for every plane
    if (!add) memset(mine.w, 0, (size_t)(PLANES * p->w_plane) * sizeof *mine.w);
    float *dw = p->sums ? p->sums + part * weights(p) : p->g.dw;
    Tile t = {.row = 3 * (ptrdiff_t)p->ci,
              .pixel = p->ci,
              .plane = p->w_plane,
              .channels = b.many,
              .r1 = 3,
              .c1 = 3,
              .add = !p->sums && p->g.add};
    for (int64_t r = 0; r < b.block_rows; r++)
        p->simd->tile_dw(&t, mine.w + r * p->many,
                         dw + ((b.r0 + r) * p->taps + b.t) * SQUARE * p->ci +
                             b.c0);
}

void winograd_grad_run(const Wgrad *g, Pool *pool, void *scratch)
{
    Plan p = plan(g);
    p.buffers = scratch;
    if (p.parts > 1) {
        p.sums = scratch;
        p.buffers += round_up(p.parts * weights(&p), LINE);
    }
    pool_run(pool, p.parts * p.taps * p.row_blocks * p.slices, run_task, &p);
    if (p.sums) wgrad_combine(g, pool, p.sums, p.parts, weights(&p));
}
