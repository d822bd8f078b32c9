/* wgrad.c -- geometry, tasks and memory around Simd.outer. */
#include "wgrad.h"
#include "correlate.h"
#include "simd.h"
#include <string.h>

enum {
    COLS = 256,               // pixels of a row in one region, at most
    REGION_BYTES = 256 << 10, // of x and a that one region reads
    CHANNELS = 64,            // of x in one task ..
    CHANNELS_MOST = 96,       // .. where there are more than these
    ROWS = 128,               // of dw in one task, at most
    TASKS = 32,               // at least, where there is that much to do
    FOLD_MOST = 64,           // taps x channels that are laid side by side
    PARTS_BYTES = 32 << 20,
};

typedef struct Plan {
    Wgrad g;
    const Simd *simd;
    Axis axis[3];
    int64_t ci, co, taps;      // channels, rows of a group; taps
    int64_t many, slices;      // channels of a task; tasks along them
    int64_t high, lift, lifts; // rows of a block; of a task; tasks
    int64_t rows, cols;        // pixels of a region, at most
    int64_t regions_h, regions_w, regions, parts;
    // floats a thread; folded is 0 where runs are long enough for vectors
    int64_t strip, packed, folded;
    float *sums;    // (parts, dw); NULL: one part, in dw itself
    float *private; // (threads, strip + packed + folded)
} Plan;

static int64_t private_floats(const Plan *p)
{
    return p->strip + p->packed + p->folded;
}

static int64_t weights(const Plan *p)
{
    return p->g.out.c * p->taps * p->ci;
}

static void cut_regions(Plan *p)
{
    const Axis *a = p->axis;
    int64_t most_cols = a[1].count > 1 ? COLS : CHAIN;
    most_cols =
        least(most_cols, most(16, REGION_BYTES / 4 / (p->many + p->lift)));
    p->regions_w = ceil_div(a[2].count, most_cols);
    p->cols = ceil_div(a[2].count, p->regions_w);
    p->rows = least(a[1].count, CHAIN / p->cols);
    for (; p->rows > 1; p->rows--) {
        int64_t x = axis_span(&a[1], p->rows) * axis_span(&a[2], p->cols);
        int64_t floats = a[0].taps * x * p->many + p->rows * p->cols * p->lift;
        if (floats * 4 <= REGION_BYTES) break;
    }
    p->regions_h = ceil_div(a[1].count, p->rows);
    p->rows = ceil_div(a[1].count, p->regions_h);
    p->regions = p->g.out.n * a[0].count * p->regions_h * p->regions_w;
}

static Plan plan(const Wgrad *g)
{
    Plan p = {.g = *g, .simd = simd()};
    window_flatten(&g->window, &p.g.in, &p.g.out);
    const Window *w = &g->window;
    const int64_t in[3] = {p.g.in.d, p.g.in.h, p.g.in.w};
    const int64_t out[3] = {p.g.out.d, p.g.out.h, p.g.out.w};
    for (int i = 0; i < 3; i++) p.axis[i] = axis_forward(w, i, in[i], out[i]);
    p.ci = g->in.c / w->groups, p.co = g->out.c / w->groups;
    p.taps = (int64_t)w->k[0] * w->k[1] * w->k[2];
    p.slices = p.ci <= CHANNELS_MOST ? 1 : ceil_div(p.ci, CHANNELS);
    p.many = least(round_up(ceil_div(p.ci, p.slices), p.simd->lanes), p.ci);
    p.slices = ceil_div(p.ci, p.many);
    for (p.high = 1; p.high < p.co && p.high < p.simd->outer_high;) p.high *= 2;
    p.lift = round_up(ceil_div(p.co, ceil_div(p.co, ROWS)), p.high);
    p.lifts = ceil_div(p.co, p.lift);
    cut_regions(&p);
    int64_t room = PARTS_BYTES / (weights(&p) * (int64_t)sizeof(float));
    int64_t want = ceil_div(TASKS, w->groups * p.slices * p.lifts);
    p.parts = most(1, least(want, least(p.regions, room)));
    p.strip = round_up(strip_floats(p.axis, p.rows, p.cols, p.many), LANES_MAX);
    p.packed = round_up(p.rows * p.cols * p.lift, LANES_MAX);
    // few channels, several rows of taps: less than a vector a run
    bool narrow = w->k[2] * p.ci < p.simd->lanes && w->k[2] < p.taps &&
                  p.axis[2].gap == 1;
    if (narrow && p.taps * p.ci <= FOLD_MOST)
        p.folded =
            round_up(p.rows * p.cols * p.taps * p.ci + LANES_MAX, LANES_MAX);
    return p;
}

size_t wgrad_bytes(const Wgrad *g)
{
    Plan p = plan(g);
    int64_t sums = p.parts > 1 ? p.parts * weights(&p) : 0;
    return (size_t)(round_up(sums, LANES_MAX) +
                    g->threads * private_floats(&p)) *
           sizeof(float);
}

/* Rows r0 .. r0+lift-1 of a at the region's pixels, a block after the other:
 * to[(block*pixels + pixel)*high + i], zeros beyond the last row. */
static void pack_rows(const Plan *p, const Region *r, int64_t r0, int64_t lift,
                      float *to)
{
    const Dims s = p->g.out;
    const int64_t high = p->high, pixels = r->rows * r->cols;
    for (int64_t i = 0; i < r->rows; i++) {
        int64_t row = (r->n * s.d + r->d) * s.h + r->h + i;
        const float *a = p->g.a + (row * s.w + r->w) * s.c + r0;
        for (int64_t j = 0; j < r->cols; j++, a += s.c) {
            float *at = to + (i * r->cols + j) * high;
            int64_t k = 0;
            if (high == 8)
                for (; k + 8 <= lift; k += 8, at += pixels * 8)
                    memcpy(at, a + k, 8 * sizeof *at);
            for (; k < lift; k += high, at += pixels * high)
                for (int64_t l = 0; l < high; l++)
                    at[l] = k + l < lift ? a[k + l] : 0;
        }
    }
}

/* One run of `run` floats of x, at `x` for the first pixel of job->rows rows
 * from row r1 of the region, times all rows of dw; k is its place in dw. */
static void run_outer(const Plan *p, Outer *job, const float *x, int64_t run,
                      const float *packed, const Region *r, int64_t r1,
                      int64_t lift, float *dw, int64_t k)
{
    int64_t lanes = p->simd->lanes, vectors = ceil_div(run, lanes);
    int64_t tiles = ceil_div(vectors * lanes, p->simd->outer_wide);
    for (int64_t i = 0; i < tiles; i++) {
        int64_t v0 = vectors * i / tiles, v1 = vectors * (i + 1) / tiles;
        job->x = x + v0 * lanes;
        job->width = (int)(least(v1 * lanes, run) - v0 * lanes);
        for (int64_t b = 0; b < lift; b += p->high) {
            job->a = packed + (b * r->rows + r1 * p->high) * r->cols;
            job->height = (int)least(p->high, lift - b);
            job->out = dw + b * job->ldo + k + v0 * lanes;
            p->simd->outer(job);
        }
    }
}

/* All taps of each pixel side by side: to[pixel*width + k]. */
static void fold(const Plan *p, const Strip *s, const Region *r, float *to)
{
    const Axis *a = p->axis;
    int64_t run = a[2].taps * p->ci;
    for (int64_t td = 0; td < a[0].taps; td++)
        for (int64_t th = 0; th < a[1].taps; th++)
            for (int64_t i = 0; i < r->rows; i++) {
                float *at = to + i * r->cols * p->taps * p->ci +
                            (td * a[1].taps + th) * run;
                bool inside =
                    axis_has(&a[0], r->d, td) && axis_has(&a[1], r->h + i, th);
                const float *x = s->at + td * s->plane +
                                 (i * a[1].step + th * a[1].gap) * s->row;
                for (int64_t j = 0; j < r->cols; j++) {
                    for (int64_t k = 0; k < run; k++) at[k] = inside ? x[k] : 0;
                    at += p->taps * p->ci, x += a[2].step * s->pixel;
                }
            }
}

/* One region's share of rows r0 .. r0+lift-1 and the region's channels. */
static void run_region(const Plan *p, Region r, int64_t r0, int64_t lift,
                       float *dw, bool add, float *private)
{
    const Axis *a = p->axis;
    Strip s = strip_copy(p->g.x, p->g.in, a, &r, private);
    float *packed = private + p->strip, *folded = packed + p->packed;
    pack_rows(p, &r, r0, lift, packed);
    Outer job = {.rows = r.rows,
                 .cols = r.cols,
                 .ldo = p->taps * p->ci,
                 .high = (int)p->high,
                 .add = add};
    if (p->folded) {
        fold(p, &s, &r, folded);
        job.ldx = job.ldo, job.pitch = job.ldo * r.cols;
        run_outer(p, &job, folded, job.ldo, packed, &r, 0, lift, dw, 0);
        return;
    }
    job.ldx = a[2].step * s.pixel, job.pitch = a[1].step * s.row;
    // neighbouring taps whose channels are neighbours in x and dw are one run
    bool joined = r.many == p->ci && a[2].gap == 1;
    int64_t run = joined ? a[2].taps * r.many : r.many;
    int64_t split = joined ? 1 : a[2].taps, from = r.from % p->ci;
    for (int64_t t = 0; t < a[0].taps * a[1].taps * split; t++) {
        int64_t td = t / (a[1].taps * split), th = t / split % a[1].taps;
        int64_t tw = t % split;
        int64_t k = ((td * a[1].taps + th) * a[2].taps + tw) * p->ci + from;
        // rows of taps that look beyond the image add nothing
        int64_t r1 = 0, r2 = r.rows;
        while (r1 < r2 && !axis_has(&a[1], r.h + r1, th)) r1++;
        while (r1 < r2 && !axis_has(&a[1], r.h + r2 - 1, th)) r2--;
        if (!axis_has(&a[0], r.d, td)) r2 = r1;
        job.rows = r2 - r1;
        if (!job.rows && add) continue;
        const float *x = s.at + td * s.plane + tw * a[2].gap * s.pixel +
                         (r1 * a[1].step + th * a[1].gap) * s.row;
        run_outer(p, &job, x, run, packed, &r, r1, lift, dw, k);
    }
}

static void run_task(void *ctx, int64_t task, int thread)
{
    const Plan *p = ctx;
    float *private = p->private + thread * private_floats(p);
    int64_t slice = task % p->slices, lift = task / p->slices % p->lifts;
    task /= p->slices * p->lifts;
    int64_t group = task % p->g.window.groups;
    int64_t part = task / p->g.window.groups;
    int64_t first = p->regions * part / p->parts;
    int64_t end = p->regions * (part + 1) / p->parts;
    int64_t r0 = group * p->co + lift * p->lift;
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
        run_region(p, r, r0, least(p->lift, p->co - lift * p->lift), dw,
                   i > first || (p->parts == 1 && p->g.add), private);
    }
}

enum { COMBINE = 4096 }; // weights of one task of the last step

static void combine_task(void *ctx, int64_t task, int thread)
{
    const Plan *p = ctx;
    (void)thread;
    int64_t all = weights(p), from = task * COMBINE;
    p->simd->add_rows(p->sums + from, p->parts, all, least(COMBINE, all - from),
                      p->g.dw + from, p->g.add);
}

void wgrad_run(const Wgrad *g, Pool *pool, void *scratch)
{
    Plan p = plan(g);
    p.private = scratch;
    if (p.parts > 1) {
        p.sums = scratch;
        p.private += round_up(p.parts * weights(&p), LANES_MAX);
    }
    int64_t tasks = p.parts * g->window.groups * p.slices * p.lifts;
    pool_run(pool, tasks, run_task, &p);
    if (p.sums)
        pool_run(pool, ceil_div(weights(&p), COMBINE), combine_task, &p);
}

// -- the gradient of a bias ---------------------------------------------------

enum { BIAS_PARTS = 64 };

typedef struct BiasGrad {
    const Simd *simd;
    const float *dy;
    float *sums; // (parts, c)
    int64_t rows, c, parts;
} BiasGrad;

static BiasGrad bias_grad(Dims dy)
{
    BiasGrad b = {.simd = simd(), .rows = dy.n * positions(dy), .c = dy.c};
    b.parts = least(BIAS_PARTS, ceil_div(b.rows, CHAIN));
    return b;
}

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
