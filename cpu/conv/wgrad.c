/* wgrad.c -- geometry, tasks and memory around Simd.outer.
 *
 * Bound by multiply-adds: simd/outer.c keeps a block of dw in registers (8 rows
 * x 48 columns with AVX-512, 4 x 24 with AVX2) during a pass over the pixels of
 * a region. A region has at most 1024 pixels, the longest chain, and at most
 * 256 KiB of image and dy together, because every block of dw reads them again:
 * they have to stay in L2.
 *
 * A task is a part (some regions) of a block of dw: up to 128 rows times up to
 * 96 channels of x with all their taps, or 256 channels with a single tap. Few
 * parts save memory for their sums, many keep the threads busy: there are as
 * many as make TASKS tasks. dy is packed such that the rows of a register block
 * are contiguous. x is copied with its borders (window.h), unless it has none
 * and its layout fits.
 *
 * With few channels (the first layer of a network has one) runs would be
 * shorter than a vector: then all taps of a pixel are written side by side
 * (im2col) and are one run. */
#include "cpu/conv/wgrad.h"
#include "cpu/conv/bf16.h"
#include "cpu/conv/depthwise.h"
#include "cpu/conv/fprop_dgrad.h"
#include "cpu/conv/winograd.h"
#include "cpu/lib/simd.h"
#include <string.h>

enum {
    COLS = 256,               // pixels of a row in one region, at most
    REGION_BYTES = 256 << 10, // of x and a in one region
    CHANNELS = 64,            // of x in one slice, if x has more than
    CHANNELS_MOST = 96,       // these; else all are one slice
    LONE_CHANNELS = 256,      // the same with windows of one position
    ROWS = 128,               // of dw in one task, at most
    TASKS = 32,               // at least, where there is enough work
    IM2COL_MOST = 64,         // taps x channels side by side, at most
    PARTS_BYTES = 32 << 20,   // the sums of all parts, at most
};

typedef struct Plan {
    Wgrad g;
    const Simd *simd;
    const Pairs *pairs; // NULL: f32
    Axis axis[3];
    int64_t ci, co, taps;               // channels and rows of a group; taps
    int64_t many, slices;               // channels of a task; tasks along them
    int64_t high, task_rows, row_tasks; // rows of a block; of a task; tasks
    int64_t rows, cols;                 // pixels of a region, at most
    int64_t regions_h, regions_w, regions, parts;
    bool view;    // x is read without a copy: a window of one position, all
                  // channels
    Axis near[3]; // axes of a strip: `axis`, but one plane of taps at a time
                  // without im2col, so that regions have more pixels
    // floats a thread; im2col is 0 where runs are long enough for vectors
    int64_t strip, packed, im2col;
    float *sums;    // (parts, dw); NULL: one part, in dw itself
    float *private; // (threads, strip + packed + im2col)
} Plan;

/* Floats of scratch of one thread. */
static int64_t private_floats(const Plan *p)
{
    return p->strip + p->packed + p->im2col;
}

/* Number of elements of dw. */
static int64_t weights(const Plan *p)
{
    return p->g.out.c * p->taps * p->ci;
}

/* How Simd.outer sums over a row of pixels: one product per pixel, or `steps`
 * products of `step` pairs of pixels each. All have the same number of pairs,
 * which together may be more than the row has. */
typedef struct RowSteps {
    int64_t steps, step; // products of Simd.outer
    int64_t pixels;      // columns of the strip
} RowSteps;

static RowSteps row_steps(const Plan *p, int64_t cols)
{
    if (!p->pairs) return (RowSteps){cols, 1, cols};
    int64_t pairs = ceil_div(cols, 2), steps = ceil_div(pairs, p->pairs->deep);
    int64_t step = ceil_div(pairs, steps);
    return (RowSteps){steps, step, 2 * steps * step};
}

/* Sets rows and columns of a region: as wide as fits CHAIN and the cache (a
 * single row may use all of the chain), then as many rows as both still
 * allow. */
static void cut_regions(Plan *p)
{
    // columns: one row of x and of dy within REGION_BYTES, but at least 16
    const Axis *a = p->axis;
    int64_t most_cols = a[1].count > 1 ? COLS : CHAIN;

    most_cols =
        least(most_cols, most(16, REGION_BYTES / 4 / (p->many + p->task_rows)));
    p->regions_w = ceil_div(a[2].count, most_cols);
    p->cols = ceil_div(a[2].count, p->regions_w);
    p->rows = least(a[1].count, CHAIN / p->cols);

    for (; p->rows > 1; p->rows--) {
        int64_t x = axis_span(&a[1], p->rows) * axis_span(&a[2], p->cols);
        int64_t floats =
            p->near[0].taps * x * p->many + p->rows * p->cols * p->task_rows;
        if (floats * 4 <= REGION_BYTES) break;
    }

    p->regions_h = ceil_div(a[1].count, p->rows);
    p->rows = ceil_div(a[1].count, p->regions_h);
    p->regions = p->g.out.n * a[0].count * p->regions_h * p->regions_w;
}

/* Everything except addresses, from the extents. */
static Plan plan(const Wgrad *g)
{
    Plan p = {.g = *g, .simd = simd()};
    if (g->half) p.pairs = p.simd->pairs;
    int high = p.pairs ? p.pairs->outer_high : p.simd->outer_high;
    window_flatten(&g->window, &p.g.in, &p.g.out);
    const Window *w = &g->window;
    const int64_t in[3] = {p.g.in.d, p.g.in.h, p.g.in.w};
    const int64_t out[3] = {p.g.out.d, p.g.out.h, p.g.out.w};
    for (int i = 0; i < 3; i++) p.axis[i] = axis_forward(w, i, in[i], out[i]);
    p.ci = g->in.c / w->groups, p.co = g->out.c / w->groups;
    p.taps = (int64_t)w->k[0] * w->k[1] * w->k[2];

    // a single tap reads the packed dy once, so it takes more channels
    const bool lone = p.taps == 1 && !p.pairs;
    const int64_t channels = lone ? LONE_CHANNELS : CHANNELS;
    p.slices =
        p.ci <= most(channels, CHANNELS_MOST) ? 1 : ceil_div(p.ci, channels);

    // whole vectors of channels, which may make the last slice unnecessary
    p.many = least(round_up(ceil_div(p.ci, p.slices), p.simd->lanes), p.ci);
    p.slices = ceil_div(p.ci, p.many);

    // rows of a register block: a power of two, no larger than needed
    for (p.high = 1; p.high < p.co && p.high < high;) p.high *= 2;
    p.task_rows = round_up(ceil_div(p.co, ceil_div(p.co, ROWS)), p.high);
    p.row_tasks = ceil_div(p.co, p.task_rows);
    p.view = lone && p.many == g->in.c && axis_inside(&p.axis[0]) &&
             axis_inside(&p.axis[1]) && axis_inside(&p.axis[2]);

    // few channels and several rows of taps: a run is less than a vector. Side
    // by side they are one long run; beyond IM2COL_MOST the copy costs more
    // than the empty lanes
    const bool im2col = w->k[2] * p.ci < p.simd->lanes && w->k[2] < p.taps &&
                        p.axis[2].gap == 1 && p.taps * p.ci <= IM2COL_MOST;
    memcpy(p.near, p.axis, sizeof p.near);
    if (!im2col) p.near[0].taps = least(p.near[0].taps, 1);
    cut_regions(&p);

    // large weights make enough tasks without parts and leave no room for them
    int64_t room = PARTS_BYTES / (weights(&p) * (int64_t)sizeof(float));
    int64_t want = ceil_div(TASKS, w->groups * p.slices * p.row_tasks);
    p.parts = most(1, least(want, least(p.regions, room)));
    RowSteps all = row_steps(&p, p.cols);
    int64_t products = p.rows * all.steps * all.step;
    int64_t strip = strip_floats(p.near, p.rows, all.pixels, p.many);
    p.strip = p.view ? 0 : round_up(strip, LANES_MAX);
    p.packed = round_up(products * p.task_rows, LANES_MAX);
    if (im2col)
        p.im2col = round_up(products * p.taps * p.ci + LANES_MAX, LANES_MAX);
    return p;
}

/* Does this job run by Winograd? Its window and extents fit, and the direct sum
 * was not requested. */
static bool by_winograd(const Wgrad *g)
{
    if (g->no_winograd) return false;
    return g->half ? bf16_by_winograd(&g->window, g->in, g->out, true)
                   : winograd_fits(&g->window, g->in, g->out);
}

size_t wgrad_bytes(const Wgrad *g)
{
    if (by_winograd(g)) return winograd_grad_bytes(g);
    if (g->half && !simd()->pairs) return bf16_wgrad_bytes(g);
    if (is_depthwise(&g->window, g->in, g->out)) return depthwise_grad_bytes(g);
    Plan p = plan(g);
    int64_t sums = p.parts > 1 ? p.parts * weights(&p) : 0;
    return (size_t)(round_up(sums, LANES_MAX) +
                    g->threads * private_floats(&p)) *
           sizeof(float);
}

/* Packs rows r0 .. r0+task_rows-1 of a at the pixels of the region, block after
 * block: to[(block*pixels + pixel)*high + i], zeros beyond the last row. */
static void pack_rows(const Plan *p, const Region *r, int64_t r0,
                      int64_t task_rows, float *to)
{
    const Dims s = p->g.out;
    const int64_t high = p->high, pixels = r->rows * r->cols;

    for (int64_t i = 0; i < r->rows; i++) {
        int64_t row = (r->n * s.d + r->d) * s.h + r->h + i;
        const float *a = p->g.a + (row * s.w + r->w) * s.c + r0;
        for (int64_t j = 0; j < r->cols; j++, a += s.c) {
            float *at = to + (i * r->cols + j) * high;
            int64_t k = 0;
            // whole blocks of the usual heights as one copy
            if (high == 8)
                for (; k + 8 <= task_rows; k += 8, at += pixels * 8)
                    memcpy(at, a + k, 8 * sizeof *at);
            if (high == 4)
                for (; k + 4 <= task_rows; k += 4, at += pixels * 4)
                    memcpy(at, a + k, 4 * sizeof *at);
            for (; k < task_rows; k += high, at += pixels * high)
                for (int64_t l = 0; l < high; l++)
                    at[l] = k + l < task_rows ? a[k + l] : 0;
        }
    }
}

/* The same for pairs of pixels: blocks are rows x steps x step x high apart. */
static void pack_pairs(const Plan *p, const Region *r, int64_t r0,
                       int64_t task_rows, float *to)
{
    const Dims s = p->g.out;
    const RowSteps all = row_steps(p, r->cols);
    const int64_t row = all.steps * all.step * p->high;
    PairPack job = {.ld = s.c,
                    .cols = r->cols,
                    .height = task_rows,
                    .steps = all.steps,
                    .gap = r->rows * row,
                    .high = (int)p->high,
                    .step = (int)all.step};

    for (int64_t i = 0; i < r->rows; i++) {
        int64_t at = (r->n * s.d + r->d) * s.h + r->h + i;
        job.a = (const uint16_t *)p->g.a + (at * s.w + r->w) * s.c + r0;
        job.to = to + i * row;
        p->pairs->pack(&job);
    }
}

/* run_outer for pairs. */
static void run_pairs(const Plan *p, const Outer *job, const float *x,
                      int64_t run, const float *packed, const Region *r,
                      int64_t r1, int64_t task_rows, float *dw, int64_t k)
{
    const RowSteps all = row_steps(p, r->cols);
    const int64_t row = all.steps * all.step * p->high;
    PairOuter o = {.a = packed + r1 * row,
                   .rows = job->rows,
                   .steps = all.steps,
                   .height = task_rows,
                   .gap = r->rows * row,
                   .pitch = job->pitch,
                   .ldx = job->ldx,
                   .ldo = job->ldo,
                   .high = (int)p->high,
                   .step = (int)all.step,
                   .add = job->add};
    int64_t lanes = p->simd->lanes, vectors = ceil_div(run, lanes);
    int64_t tiles = ceil_div(vectors * lanes, p->pairs->outer_wide);

    for (int64_t i = 0; i < tiles; i++) {
        int64_t v0 = vectors * i / tiles, v1 = vectors * (i + 1) / tiles;
        o.x = x + v0 * lanes;
        o.width = (int)(least(v1 * lanes, run) - v0 * lanes);
        o.out = dw + k + v0 * lanes;
        p->pairs->outer(&o);
    }
}

/* Multiplies one run of `run` floats of x, at `x` for the first pixel of
 * job->rows rows from row r1 of the region, with all rows of dw; k is its place
 * in dw. A run is cut into tiles of equal width, 3 vectors at most, rather than
 * into full tiles and a rest, so that each has enough independent sums. */
static void run_outer(const Plan *p, Outer *job, const float *x, int64_t run,
                      const float *packed, const Region *r, int64_t r1,
                      int64_t task_rows, float *dw, int64_t k)
{
    // a row of dw is (taps, channels): k is the index in it, ldo the distance
    // to the next row
    if (p->pairs) {
        run_pairs(p, job, x, run, packed, r, r1, task_rows, dw, k);
        return;
    }
    int64_t lanes = p->simd->lanes, vectors = ceil_div(run, lanes);
    int64_t tiles = ceil_div(vectors * lanes, p->simd->outer_wide);

    for (int64_t i = 0; i < tiles; i++) {
        int64_t v0 = vectors * i / tiles, v1 = vectors * (i + 1) / tiles;
        job->x = x + v0 * lanes;
        job->width = (int)(least(v1 * lanes, run) - v0 * lanes);
        for (int64_t b = 0; b < task_rows; b += p->high) {
            job->a = packed + (b * r->rows + r1 * p->high) * r->cols;
            job->height = (int)least(p->high, task_rows - b);
            job->out = dw + b * job->ldo + k + v0 * lanes;
            p->simd->outer(job);
        }
    }
}

/* Writes all taps of each pixel side by side, zeros for taps outside the image:
 * to[pixel*width + k], width = taps * channels. */
static void im2col(const Plan *p, const Strip *s, const Region *r, float *to)
{
    const Axis *a = p->axis;
    const RowSteps all = row_steps(p, r->cols);
    int64_t run = a[2].taps * p->ci, every = p->pairs ? 2 : 1;
    int64_t cols = all.steps * all.step, step = every * a[2].step * s->pixel;

    for (int64_t td = 0; td < a[0].taps; td++)
        for (int64_t th = 0; th < a[1].taps; th++)
            for (int64_t i = 0; i < r->rows; i++) {
                float *at = to + i * cols * p->taps * p->ci +
                            (td * a[1].taps + th) * run;
                bool inside =
                    axis_has(&a[0], r->d, td) && axis_has(&a[1], r->h + i, th);
                const float *x = s->at + td * s->plane +
                                 (i * a[1].step + th * a[1].gap) * s->row;
                for (int64_t j = 0; j < cols; j++) {
                    for (int64_t k = 0; k < run; k++) at[k] = inside ? x[k] : 0;
                    at += p->taps * p->ci, x += step;
                }
            }
}

/* The strip of planes of taps td .. of a region; `private` is this thread's. */
static Strip strip_of(const Plan *p, const Region *r, int64_t td,
                      float *private)
{
    Axis near[3] = {p->near[0], p->near[1], p->near[2]};
    near[0].first += td * near[0].gap;
    if (p->view) return strip_view(p->g.x, p->g.in, near, r);
    if (!p->pairs) return strip_copy(p->g.x, p->g.in, near, r, private);
    Region wide = *r;
    wide.cols = row_steps(p, r->cols).pixels;
    return strip_pairs(p->g.x, p->g.in, near, &wide, private);
}

/* Adds the contribution of the strip `s` of plane td of taps to dw; stores it
 * if job->add is false. */
static void run_plane(const Plan *p, Outer job, const Strip *s, int64_t td,
                      const float *packed, const Region *r, int64_t task_rows,
                      float *dw)
{
    const Axis *a = p->axis;
    // neighbouring taps with contiguous channels in x and dw are one run
    bool joined = r->many == p->ci && a[2].gap == 1;
    int64_t run = joined ? a[2].taps * r->many : r->many;
    int64_t split = joined ? 1 : a[2].taps, from = r->from % p->ci;

    for (int64_t t = 0; t < a[1].taps * split; t++) {
        int64_t th = t / split, tw = t % split;
        int64_t k = ((td * a[1].taps + th) * a[2].taps + tw) * p->ci + from;
        // rows of taps beyond the image add nothing; they lie at the ends of
        // the region, never in between
        int64_t r1 = 0, r2 = r->rows;
        while (r1 < r2 && !axis_has(&a[1], r->h + r1, th)) r1++;
        while (r1 < r2 && !axis_has(&a[1], r->h + r2 - 1, th)) r2--;
        if (!axis_has(&a[0], r->d, td)) r2 = r1;
        job.rows = r2 - r1;
        // without pixels dw is still to be stored: zeros
        if (!job.rows && job.add) continue;
        const float *x = s->at + tw * a[2].gap * s->pixel +
                         (r1 * a[1].step + th * a[1].gap) * s->row;
        run_outer(p, &job, x, run, packed, r, r1, task_rows, dw, k);
    }
}

/* Adds one region's contribution to rows r0 .. r0+task_rows-1 and the region's
 * channels of dw, which points to row r0. `private` is this thread's: strip,
 * packed dy, columns of im2col. */
static void run_region(const Plan *p, Region r, int64_t r0, int64_t task_rows,
                       float *dw, bool add, float *private)
{
    const RowSteps all = row_steps(p, r.cols);
    float *packed = private + p->strip, *columns = packed + p->packed;
    if (p->pairs)
        pack_pairs(p, &r, r0, task_rows, packed);
    else
        pack_rows(p, &r, r0, task_rows, packed);
    Outer job = {.rows = r.rows,
                 .cols = r.cols,
                 .lda = p->high,
                 .ldo = p->taps * p->ci,
                 .high = (int)p->high,
                 .add = add};

    if (p->im2col) {
        Strip s = strip_of(p, &r, 0, private);
        im2col(p, &s, &r, columns);
        job.ldx = job.ldo, job.pitch = job.ldo * all.steps * all.step;
        run_outer(p, &job, columns, job.ldo, packed, &r, 0, task_rows, dw, 0);
        return;
    }

    for (int64_t td = 0; td < p->axis[0].taps; td++) {
        Strip s = strip_of(p, &r, td, private);
        job.ldx = (p->pairs ? 2 : 1) * p->axis[2].step * s.pixel;
        job.pitch = p->axis[1].step * s.row;
        run_plane(p, job, &s, td, packed, &r, task_rows, dw);
    }
}

/* Splits the task number into part, group, rows and channels, and runs the
 * regions of the part in order; the first of them stores. */
static void run_task(void *ctx, int64_t task, int thread)
{
    const Plan *p = ctx;
    float *private = p->private + thread * private_floats(p);
    int64_t slice = task % p->slices,
            row_task = task / p->slices % p->row_tasks;

    task /= p->slices * p->row_tasks;
    int64_t group = task % p->g.window.groups;
    int64_t part = task / p->g.window.groups;
    int64_t first = p->regions * part / p->parts;
    int64_t end = p->regions * (part + 1) / p->parts;
    int64_t r0 = group * p->co + row_task * p->task_rows;
    // a single part is summed in dw itself
    float *dw = p->sums ? p->sums + part * weights(p) : p->g.dw;
    dw += r0 * p->taps * p->ci;

    for (int64_t i = first; i < end; i++) {
        Region r = {.from = group * p->ci + slice * p->many,
                    .many = least(p->many, p->ci - slice * p->many)};
        int64_t at = i;
        r.w = at % p->regions_w * p->cols, at /= p->regions_w;
        r.h = at % p->regions_h * p->rows, at /= p->regions_h;
        r.d = at % p->axis[0].count;
        r.n = at / p->axis[0].count;
        r.cols = least(p->cols, p->axis[2].count - r.w);
        r.rows = least(p->rows, p->axis[1].count - r.h);
        run_region(p, r, r0,
                   least(p->task_rows, p->co - row_task * p->task_rows), dw,
                   i > first || (p->parts == 1 && p->g.add), private);
    }
}

typedef struct Combine {
    const Wgrad *g;
    const float *sums; // (parts, count)
    int64_t parts, count;
} Combine;

enum { COMBINE = 4096 }; // weights of one task

static void combine_task(void *ctx, int64_t task, int thread)
{
    const Combine *c = ctx;
    (void)thread;
    int64_t from = task * COMBINE;
    simd()->add_rows(c->sums + from, c->parts, c->count,
                     least(COMBINE, c->count - from), c->g->dw + from,
                     c->g->add);
}

void wgrad_combine(const Wgrad *g, Pool *pool, const float *sums, int64_t parts,
                   int64_t count)
{
    Combine c = {g, sums, parts, count};
    pool_run(pool, ceil_div(count, COMBINE), combine_task, &c);
}

void wgrad_run(const Wgrad *g, Pool *pool, void *scratch)
{
    if (by_winograd(g)) {
        winograd_grad_run(g, pool, scratch);
        return;
    }
    if (g->half && !simd()->pairs) {
        bf16_wgrad_run(g, pool, scratch);
        return;
    }
    if (is_depthwise(&g->window, g->in, g->out)) {
        depthwise_grad_run(g, pool, scratch);
        return;
    }
    Plan p = plan(g);
    p.private = scratch;
    if (p.parts > 1) {
        p.sums = scratch;
        p.private += round_up(p.parts * weights(&p), LANES_MAX);
    }
    int64_t tasks = p.parts * g->window.groups * p.slices * p.row_tasks;
    pool_run(pool, tasks, run_task, &p);
    if (p.sums) wgrad_combine(g, pool, p.sums, p.parts, weights(&p));
}

// -- the gradient of a bias --------------------------------------------------

enum { BIAS_PARTS = 64 }; // at most; with fewer rows, one for CHAIN rows

typedef struct BiasGrad {
    const Simd *simd;
    const float *dy;
    float *sums; // (parts, c)
    int64_t rows, c, parts;
} BiasGrad;

/* Bound by memory: dy is read once, with a register block of four vectors. */
static BiasGrad bias_grad(Dims dy)
{
    BiasGrad b = {.simd = simd(), .rows = dy.n * positions(dy), .c = dy.c};
    b.parts = least(BIAS_PARTS, ceil_div(b.rows, CHAIN));
    return b;
}

/* Sums one part: chains of CHAIN rows, added one after the other. */
static void bias_task(void *ctx, int64_t task, int thread)
{
    const BiasGrad *b = ctx;
    (void)thread;
    int64_t first = b->rows * task / b->parts;
    int64_t end = b->rows * (task + 1) / b->parts;
    for (int64_t i = first; i < end; i += CHAIN)
        b->simd->add_rows(b->dy + i * b->c, least(CHAIN, end - i), b->c, b->c,
                          b->sums + task * b->c, i > first);
}

size_t bias_grad_bytes(Dims dy)
{
    BiasGrad b = bias_grad(dy);
    return (size_t)(b.parts * b.c) * sizeof(float);
}

void bias_grad_run(const float *dy, Dims dim, float *db, bool add, Pool *pool,
                   void *scratch)
{
    BiasGrad b = bias_grad(dim);
    b.dy = dy, b.sums = scratch;
    pool_run(pool, b.parts, bias_task, &b);
    b.simd->add_rows(b.sums, b.parts, b.c, b.c, db, add);
}
