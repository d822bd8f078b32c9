/* winograd.c -- geometry, tasks and memory of F(4x4, 3x3): fprop, and dgrad,
 * which is the same sum over dy with the weights rotated by 180 degrees and
 * their channels exchanged.
 *
 * A block is some tiles (4x4 results each) of some neighbouring planes:
 *
 *   image     6x6 of each tile and channel become 36 numbers, V[36][tile][ci]
 *   product   for each of the 36 planes M[tile][co] = V[tile][ci] U[ci][co],
 *             by Simd.product on panels of transformed weights; of a window
 *             with depth, the planes of taps are its runs
 *   result    M[36][tile][co] becomes 4x4 results
 *
 * The product has a quarter of the multiply-adds of the direct sum and is fast
 * if V and M of a block stay in L2. The transforms load and store more than
 * they add. Product and transforms together are twice as fast as the direct sum
 * at 32 channels and 2.5 times at 64. M holds one slice of co at a time.
 *
 * With few blocks, as in the deep layers of a network, tasks are slices of a
 * block. V is then computed for all blocks before, and each task transforms the
 * weights of its slice itself, a chunk at a time: that is faster than reading
 * them from L3. The bits are the same either way: an element of M is one chain
 * over a chunk, and chunks are added in order. */
#include "cpu/conv/winograd.h"
#include "cpu/conv/bf16.h"
#include "cpu/conv/transpose.h"
#include "cpu/conv/winograd_tiles.h"
#include "cpu/lib/simd.h"
#include <string.h>

enum {
    BLOCK = 48,      // tiles of a block, at most
    LARGE = 64,      // .. where each task transforms weights
    SLICE = 64,      // channels of the result at a time
    NARROW = 32,     // .. where there are few tasks
    TASKS = 16,      // at least, where there is enough work
    ROWS = 128,      // of a panel at a time: channels of x times taps along d
    IMAGE_TILES = 8, // of a task that transforms V for all
};

typedef struct Plan {
    FpropDgrad c;
    const Simd *simd;
    Tiles tiles;
    int64_t ci, co, taps;             // taps along d
    int64_t samples, depth_in, depth; // planes of a sample: image, result
    int64_t lo_d;                     // result plane 0 reads -lo_d ..
    int64_t chunk, chunks;            // channels of x in one sum
    int64_t slice, slices;            // channels of the result; slices
    int64_t many, deep;               // tiles of a plane in a block; planes
    int64_t blocks_d, blocks_at;      // of a sample, along d; of a plane
    bool few;                         // few blocks: V for all, U by each task
    int64_t v_row, v_plane, m_plane;  // floats
    int64_t u_chunk, u_all, v_all;    // floats: one chunk of a slice; scratch
    int64_t private;                  // floats a thread
    float *u, *v, *buffers;
    ConcatInput image, result;
} Plan;

static int64_t blocks(const Plan *p)
{
    return p->samples * p->blocks_d * p->blocks_at;
}

/* Channels of slice s, padded to vectors. */
static int64_t slice_width(const Plan *p, int64_t s)
{
    return round_up(least(p->slice, p->co - s * p->slice), p->simd->lanes);
}

/* Sets tiles and planes of a block, by the plane alone. If the window has
 * depth, a block has several planes, which share planes of the image. */
static void cut_blocks(Plan *p, int64_t block)
{
    int64_t all = tiles_plane(&p->tiles);
    int64_t want = p->taps > 1 ? ceil_div(block, least(p->depth, 4)) : block;
    p->many = ceil_div(all, ceil_div(all, want));
    p->deep = least(p->depth, most(1, block / p->many));
    p->blocks_at = ceil_div(all, p->many);
    p->blocks_d = ceil_div(p->depth, p->deep);
}

/* The layout of scratch: U of all slices, V, then the buffers of each
 * thread. */
static void layout_scratch(Plan *p)
{
    int64_t tiles_in = p->many * (p->deep + p->taps - 1),
            tiles_out = p->many * p->deep;
    p->v_row = round_up(p->chunk, p->simd->lanes);
    if (p->few) tiles_in = p->samples * p->depth_in * tiles_plane(&p->tiles);
    p->v_plane = plane_floats(tiles_in, p->v_row);
    p->m_plane = plane_floats(tiles_out, p->slice);
    p->u_chunk = PLANES * plane_floats(p->taps * p->chunk, p->slice);
    p->u_all = p->few ? 0 : p->slices * p->chunks * p->u_chunk;
    int64_t v = p->chunks * PLANES * p->v_plane;
    p->v_all = p->few ? v : 0;
    int64_t w_t = round_up(SQUARE * LANES_MAX * p->simd->panel, LINE);
    p->private = PLANES * p->m_plane + w_t;
    p->private += p->few ? p->u_chunk : v;
}

/* Everything except addresses, from the extents. */
static Plan plan(const FpropDgrad *c)
{
    const Window *g = &c->window;
    Plan p = {.c = *c, .simd = simd(), .ci = c->in.c, .co = c->out.c};
    // the transpose reads dy through the rotated window
    int64_t lo[3];

    for (int i = 0; i < 3; i++)
        lo[i] = c->transposed ? g->k[i] - 1 - g->lo[i] : g->lo[i];
    p.tiles = tiles_of(c->in, c->out, lo[1], lo[2]);
    *(c->transposed ? &p.result : &p.image) = c->second;
    p.taps = g->k[0], p.lo_d = lo[0];
    p.samples = c->out.n, p.depth_in = c->in.d, p.depth = c->out.d;
    if (p.taps == 1) { // planes are independent: one long sample
        p.depth_in = p.depth = p.samples * p.depth;
        p.samples = 1;
    }
    p.chunks = ceil_div(p.taps * p.ci, ROWS);
    p.chunk = ceil_div(p.ci, p.chunks);
    if (p.chunks > 1) p.chunk = least(round_up(p.chunk, LANES_MAX), p.ci);
    p.chunks = ceil_div(p.ci, p.chunk);
    cut_blocks(&p, BLOCK);
    p.slice = least(SLICE, round_up(p.co, p.simd->lanes));
    p.slices = ceil_div(p.co, p.slice);
    p.few = blocks(&p) < TASKS && p.slices > 1;
    if (p.few) cut_blocks(&p, LARGE);
    if (p.few && blocks(&p) * p.slices < TASKS) {
        p.slice = NARROW;
        p.slices = ceil_div(p.co, p.slice);
    }
    layout_scratch(&p);
    return p;
}

/* Both directions call this, with in and out exchanged, so the answer must be
 * symmetric. Measured on a Xeon with AVX-512, one thread, batch 4: speed of y,
 * dx and dw relative to the direct sum. Channels at 64x64: 8 to 8 0.8, 0.7 and
 * 0.6, 12 to 12 1.1, 1.2 and 1.6, 16 to 32 1.2, 1.5 and 1.5. Planes with 64 to
 * 64 channels: 5x5 0.5, 1.3 and 0.7, 6x6 0.8, 1.6 and 1.1, 7x7 1.4, 2.6 and
 * 1.1; with 512 to 512 7x7 2.0, 2.5 and 1.3. Of larger planes 9x9 leaves most
 * of the last tiles empty: with 128 to 128 channels 1.3, 1.2 and 1.4. */
bool winograd_fits(const Window *g, Dims in, Dims out)
{
    enum { CHANNELS = 16, RESULTS = 49 };
    for (int i = 0; i < 3; i++) {
        bool plane = i > 0, shape = plane ? g->k[i] == 3 : true;
        if (!shape || g->s[i] != 1 || g->dil[i] != 1) return false;
        if (g->lo[i] < 0 || g->lo[i] > g->k[i] - 1 || g->hi[i] < 0 ||
            g->hi[i] > g->k[i] - 1)
            return false;
    }
    int64_t results = least((int64_t)in.h * in.w, (int64_t)out.h * out.w);
    return g->groups == 1 && g->k[0] <= WINOGRAD_DEEP && in.c >= CHANNELS &&
           out.c >= CHANNELS && results >= RESULTS;
}

bool winograd_runs(const Call *c)
{
    if (c->no_winograd || !op_multiplies(call_op(c))) return false;
    const Window g = op_window(c->attr, c->x[1]);
    const Dims in = call_image(c), out = c->dy ? c->dy->dim : c->y->dim;
    // wgrad runs by Winograd wherever fprop and dgrad do
    return is_bf16(c) ? bf16_by_winograd(&g, in, out, true)
                      : winograd_fits(&g, in, out);
}

size_t winograd_bytes(const FpropDgrad *c)
{
    Plan p = plan(c);
    return (size_t)(p.u_all + p.v_all + c->threads * p.private) * sizeof(float);
}

// -- weights ------------------------------------------------------------------

/* The taps of a plane of one channel of x and results from .. from+co-1 as a
 * 3x3 Tile, for weights with the results along the fast axis (transposed). */
static const float *square_along(const Plan *p, int64_t t, int64_t k,
                                 int64_t from, Tile *s)
{
    const int64_t co = p->co;
    s->row = -3 * (ptrdiff_t)co, s->pixel = -(ptrdiff_t)co;
    // from the last tap to the first, along d too: rotated
    int64_t tap = (k * p->taps + p->taps - 1 - t) * SQUARE + SQUARE - 1;
    return p->c.w + tap * co + from;
}

/* w_t[tap][i][j] = w of result from+j, channel k+i, for `many` channels and
 * co results; zeros up to `width`. */
static void transpose_weights(const Plan *p, int64_t t, int64_t k, int64_t many,
                              int64_t from, int64_t co, int64_t width,
                              float *w_t)
{
    for (int64_t tap = 0; tap < SQUARE; tap++) {
        float *to = w_t + tap * LANES_MAX * width;
        const float *w =
            p->c.w + ((from * p->taps + t) * SQUARE + tap) * p->ci + k;
        int64_t ldw = p->taps * SQUARE * p->ci, j = 0;
        for (; many == LANES_MAX && j + 4 <= co; j += 4, w += 4 * ldw) {
            // the next call's lines: hardware does not prefetch such short rows
            for (int64_t i = 0; i < 4; i++)
                __builtin_prefetch(w + i * ldw + LANES_MAX);
            for (int64_t i = 0; i < LANES_MAX; i += 4)
                transpose_square(w + i, ldw, to + i * width + j, width);
        }
        for (; j < co; j++, w += ldw)
            for (int64_t i = 0; i < many; i++) to[i * width + j] = w[i];
        for (; j < width; j++)
            for (int64_t i = 0; i < many; i++) to[i * width + j] = 0;
    }
}

/* Transforms chunk q of the weights of a slice: for each of the 36 planes the
 * panels of the slice, each (taps, channels of the chunk, width). */
static void transform_weights(const Plan *p, int64_t slice, int64_t q,
                              float *w_t, float *u)
{
    int64_t first = q * p->chunk, many = least(p->chunk, p->ci - first);
    int64_t end = least(p->co, (slice + 1) * p->slice);
    Tile s = {
        .plane = plane_floats(p->taps * p->chunk, p->slice), .r1 = 3, .c1 = 3};

    for (int64_t from = slice * p->slice; from < end; from += p->simd->panel) {
        int64_t co = least(p->simd->panel, end - from);
        int64_t width = round_up(co, p->simd->lanes);
        for (int64_t t = 0; t < p->taps; t++)
            for (int64_t k = 0; k < many; k++, u += width) {
                const float *w;
                s.channels = co;
                if (p->c.transposed) {
                    w = square_along(p, t, first + k, from, &s);
                } else {
                    int64_t i = k % LANES_MAX;
                    if (!i)
                        transpose_weights(p, t, first + k,
                                          least(LANES_MAX, many - k), from, co,
                                          width, w_t);
                    s.pixel = LANES_MAX * width, s.row = 3 * s.pixel;
                    s.channels = width;
                    w = w_t + i * width;
                }
                p->simd->tile_weights(&s, w, u);
            }
    }
}

/* Buffers of a thread: M, transposed weights, then V and U where they belong to
 * the thread. */
typedef struct Private {
    float *m, *w_t, *v, *u;
} Private;

static Private private_of(const Plan *p, int thread)
{
    Private b = {.m = p->buffers + thread * p->private};
    b.w_t = b.m + PLANES * p->m_plane;
    b.v = b.w_t + round_up(SQUARE * LANES_MAX * p->simd->panel, LINE);
    b.u = b.v; // a thread has only one of the two
    return b;
}

/* Address of chunk q of a slice, where U is for all tasks. */
static float *weights_at(const Plan *p, int64_t slice, int64_t q)
{
    return p->u + (slice * p->chunks + q) * p->u_chunk;
}

static void weights_task(void *ctx, int64_t task, int thread)
{
    const Plan *p = ctx;
    int64_t slice = task / p->chunks, q = task % p->chunks;
    transform_weights(p, slice, q, private_of(p, thread).w_t,
                      weights_at(p, slice, q));
}

// -- blocks -------------------------------------------------------------------

/* Tiles at .. at+many-1 of result planes d .. d+deep-1 of sample n, and the
 * address of V of image plane d - lo_d (which may lie before the first). */
typedef struct Block {
    int64_t n, d, deep, at, many;
    const float *v;
    int64_t v_step; // floats of V between planes of the image
} Block;

/* Computes V of tiles at .. at+many-1 of image plane `plane` (of all
 * samples). */
static void transform_image(const Plan *p, int64_t plane, int64_t at,
                            int64_t many, float *v)
{
    for (int64_t i = 0; i < many; i++, v += p->v_row)
        for (int64_t q = 0; q < p->chunks; q++) {
            int64_t from = q * p->chunk, end = least(from + p->chunk, p->ci);
            tile_channels(&p->tiles, p->c.x, p->c.half_x, &p->image, plane,
                          at + i, from, end, p->v_plane,
                          v + q * PLANES * p->v_plane);
        }
}

/* Computes IMAGE_TILES tiles of the V for all tasks. */
static void image_task(void *ctx, int64_t task, int thread)
{
    const Plan *p = ctx;
    (void)thread;
    int64_t all = tiles_plane(&p->tiles), first = task * IMAGE_TILES;
    int64_t end = least(first + IMAGE_TILES, p->samples * p->depth_in * all);
    for (int64_t i = first; i < end; i++)
        transform_image(p, i / all, i % all, 1, p->v + i * p->v_row);
}

/* Computes V of those planes of the block's image that exist. */
static void own_image(const Plan *p, Block *b, float *v)
{
    b->v = v, b->v_step = b->many * p->v_row;
    for (int64_t i = 0; i < b->deep + p->taps - 1; i++) {
        int64_t d = b->d - p->lo_d + i;
        if (d < 0 || d >= p->depth_in) continue;
        transform_image(p, b->n * p->depth_in + d, b->at, b->many,
                        v + i * b->v_step);
    }
}

/* The taps t0 .. t1-1 along d that are inside the image for result plane d. */
static void taps_inside(const Plan *p, int64_t d, int64_t *t0, int64_t *t1)
{
    *t0 = least(p->taps, most(0, p->lo_d - d));
    *t1 = most(*t0, least(p->taps, p->depth_in + p->lo_d - d));
}

/* Computes chunk q of plane f of M. Neighbouring planes of results with the
 * same taps and contiguous tiles in V are one long row. */
static void multiply(const Plan *p, const Block *b, int64_t q, int64_t f,
                     const float *u, int64_t width, float *m)
{
    Run run[WINOGRAD_DEEP];
    const float *v = b->v + (q * PLANES + f) * p->v_plane;
    m += f * p->m_plane;
    int64_t many = least(p->chunk, p->ci - q * p->chunk);
    bool joined = b->v_step == b->many * p->v_row;

    for (int64_t i = 0, next; i < b->deep; i = next) {
        int64_t t0, t1, s0, s1;
        taps_inside(p, b->d + i, &t0, &t1);
        for (next = i + 1; joined && next < b->deep; next++) {
            taps_inside(p, b->d + next, &s0, &s1);
            if (s0 != t0 || s1 != t1) break;
        }
        for (int64_t t = t0; t < t1; t++)
            run[t - t0] = (Run){v + (i + t) * b->v_step, t * many};
        PanelGemm job = {.run = run,
                         .runs = t1 - t0,
                         .len = many,
                         .cols = (next - i) * b->many,
                         .lda = p->v_row,
                         .ldy = p->slice,
                         .add = q > 0,
                         .far = true};
        for (int64_t j = 0; j < width; j += p->simd->panel) {
            job.co = (int)least(p->simd->panel, width - j);
            job.panel = u + j * p->taps * many;
            job.y = m + i * b->many * p->slice + j;
            p->simd->product(&job);
        }
    }
}

/* Stores the results of tile `at` of a plane, channels from .. end-1, from
 * M. */
static void store_tile(const Plan *p, int64_t plane, int64_t at, int64_t from,
                       int64_t end, const float *m)
{
    const FpropDgrad *c = &p->c;
    for (int64_t k = from, many; k < end; k += many) {
        const Part s = part_at(&p->result, p->co, k);
        float *y = s.second ? p->result.at : c->y;
        int64_t offset;
        Tile t = tile_result_at(&p->tiles, plane, at, s.channels, &offset);
        t.plane = p->m_plane, t.add = s.second ? p->result.add : c->add;
        t.channels = many = least(s.from + s.channels, end) - k;
        if (!y) continue;
        y += offset + k - s.from;
        const Epilogue epilogue = epilogue_at(&c->epilogue, k);
        p->simd->tile_result(&t, m + k - from, c->bias ? c->bias + k : NULL,
                             &epilogue, y);
    }
}

/* Computes one slice of a block. */
static void run_slice(const Plan *p, const Block *b, int64_t slice,
                      const Private *mine)
{
    int64_t u_plane = plane_floats(p->taps * p->chunk, p->slice);
    int64_t width = slice_width(p, slice), from = slice * p->slice;
    for (int64_t i = 0; p->few && i < p->chunks; i++) {
        transform_weights(p, slice, i, mine->w_t, mine->u);
        for (int64_t f = 0; f < PLANES; f++)
            multiply(p, b, i, f, mine->u + f * u_plane, width, mine->m);
    }

    for (int64_t i = 0; !p->few && i < PLANES * p->chunks; i++) {
        int64_t f = i / p->chunks, q = i % p->chunks;
        multiply(p, b, q, f, weights_at(p, slice, q) + f * u_plane, width,
                 mine->m);
    }

    for (int64_t i = 0; i < b->deep * b->many; i++) {
        int64_t plane = b->n * p->depth + b->d + i / b->many;
        store_tile(p, plane, b->at + i % b->many, from,
                   least(from + p->slice, p->co), mine->m + i * p->slice);
    }
}

/* Splits the task number into a block, and a slice if V is for all tasks. */
static void block_task(void *ctx, int64_t task, int thread)
{
    const Plan *p = ctx;
    Private mine = private_of(p, thread);
    int64_t s0 = 0, s1 = p->slices;

    if (p->few) s0 = task % p->slices, s1 = s0 + 1, task /= p->slices;
    Block b = {.at = task % p->blocks_at * p->many};
    task /= p->blocks_at;
    b.d = task % p->blocks_d * p->deep;
    b.n = task / p->blocks_d;
    b.deep = least(p->deep, p->depth - b.d);
    b.many = least(p->many, tiles_plane(&p->tiles) - b.at);

    if (p->few) {
        b.v_step = tiles_plane(&p->tiles) * p->v_row;
        b.v = p->v + (b.n * p->depth_in + b.d - p->lo_d) * b.v_step +
              b.at * p->v_row;
    } else {
        own_image(p, &b, mine.v);
    }
    for (int64_t s = s0; s < s1; s++) run_slice(p, &b, s, &mine);
}

/* The weights or the image first, where they are for all tasks. */
void winograd_run(const FpropDgrad *c, Pool *pool, void *scratch)
{
    Plan p = plan(c);
    p.u = scratch;
    p.v = p.u + p.u_all;
    p.buffers = p.v + p.v_all;
    int64_t all = p.samples * p.depth_in * tiles_plane(&p.tiles);
    if (p.few)
        pool_run(pool, ceil_div(all, IMAGE_TILES), image_task, &p);
    else
        pool_run(pool, p.slices * p.chunks, weights_task, &p);
    pool_run(pool, blocks(&p) * (p.few ? p.slices : 1), block_task, &p);
}
