/* fprop_dgrad.c -- geometry, tasks and memory around Simd.product.
 *
 * Bound by multiply-adds where channels fill vectors: simd/product.c keeps a
 * block of results in registers (6 pixels x 64 channels with AVX-512, 6 x 16
 * with AVX2), so each number it loads is used 6 to 64 times. The code here
 * keeps its operands in near caches:
 *
 *   panel   the weights of one register block's width, all taps of a chunk of
 *           channels, packed in the order in which they are read; at 64
 *           channels and 3x3 it is 144 KiB, and a task reads it once a block
 *           of pixels
 *   strip   the part of the image that a task reads, with its borders, in L2;
 *           or the image itself where no border is near
 *   task    up to 2048 results x some panels; all panels of one task read
 *           the same strip
 *
 * With few channels (co below a vector, or many groups) lanes are empty and the
 * rate falls in proportion: with 4 channels a group to a tenth of the peak,
 * where 16 channels without groups still reach two thirds. With HEAD_CO
 * result channels or fewer, each a sum over many channels, as in the head of a
 * network, the lanes lie along the sum instead (simd/head.c). */
#include "cpu/conv/fprop_dgrad.h"
#include "cpu/conv/bf16.h"
#include "cpu/conv/depthwise.h"
#include "cpu/conv/transpose.h"
#include "cpu/conv/winograd.h"
#include "cpu/lib/simd.h"
#include <string.h>

enum {
    STRIP_BYTES = 320 << 10, // of one task: fits L2 with a panel
    COLS = 256,              // results of a row in one task
    TASKS = 32,              // at least, where there is enough work: equal
                             // parts for any sensible number of threads
    PIXELS = 2048,           // of a task, at most
};

/* Everything that follows from the extents. */
typedef struct Plan {
    FpropDgrad c;
    const Simd *simd;
    void (*product)(const PanelGemm *); // for floats, pairs, or `head`
    bool head;                          // few results: see HEAD_CO
    int64_t ci, co;                     // channels, or pairs, of a group
    int64_t taps;                       // of the kernel
    int64_t w_in, w_out, w_tap;         // strides of w
    int64_t phases[3], phases_all;      // 1 or the strides; product
    int64_t together;                   // phases that share a strip: all or 1
    int64_t chunk, chunks;              // channels of x in one sum
    int64_t panels, panels_task;        // of a group; of one task
    int64_t count[3];                   // results along an axis, of any phase
    int64_t rows, cols;                 // of a task, at most
    int64_t tasks_h, tasks_w, splits;   // splits = ceil(panels / panels_task)
    int64_t packed, strip, runs;        // floats, floats, Runs a thread
    float *weights;                     // (phase, group, panel, chunk)
    char *private;                      // (threads, strip and runs)
    size_t private_bytes;
} Plan;

/* Extent of axis i: d, h, w. */
static int64_t extent(Dims s, int i)
{
    return i == 0 ? s.d : i == 1 ? s.h : s.w;
}

/* The three axes of a phase. Phases are numbered in the order (d, h, w); a
 * convolution has phase 0 only. */
static void axes_of(const Plan *p, int64_t phase, Axis a[3])
{
    const FpropDgrad *c = &p->c;
    // c.in and c.out are the tensors that are read and written: for a
    // transposed window the convolution's result and its image
    int64_t at[3] = {phase / (p->phases[1] * p->phases[2]),
                     phase / p->phases[2] % p->phases[1], phase % p->phases[2]};
    for (int i = 0; i < 3; i++) {
        int64_t in = extent(c->in, i), out = extent(c->out, i);
        a[i] = c->transposed ? axis_transposed(&c->window, i, in, out, at[i])
                             : axis_forward(&c->window, i, in, out);
    }
}

/* The axes of one window that covers all taps of phases from ..
 * from+together-1. These taps are contiguous, so the taps of each phase are a
 * part of them. */
static void joint_axes(const Plan *p, int64_t from, Axis a[3])
{
    axes_of(p, from, a);
    for (int64_t f = from + 1; f < from + p->together; f++) {
        Axis b[3];
        axes_of(p, f, b);
        for (int i = 0; i < 3; i++) {
            int64_t first = least(a[i].first, b[i].first);
            int64_t end = most(a[i].first + a[i].taps, b[i].first + b[i].taps);
            a[i].first = first, a[i].taps = end - first;
            a[i].count = most(a[i].count, b[i].count);
        }
    }
}

/* The number of phases that share a strip. Phases of a transposed window with
 * contiguous taps read almost the same pixels, which are copied once. Not if an
 * axis has phases without taps, or dilated ones. */
static int64_t joint_phases(const Plan *p)
{
    for (int64_t f = 0; f < p->phases_all; f++) {
        Axis a[3];
        axes_of(p, f, a);
        for (int i = 0; i < 3; i++)
            if (!a[i].taps || a[i].gap != 1) return 1;
    }
    return p->phases_all;
}

/* Sets p->count and *taps to the largest number of results along each axis and
 * of taps in any phase. */
static void measure_phases(Plan *p, int64_t *taps)
{
    Axis a[3];
    *taps = 0;
    for (int64_t f = 0; f < p->phases_all; f++) {
        axes_of(p, f, a);
        *taps = most(*taps, a[0].taps * a[1].taps * a[2].taps);
        for (int i = 0; i < 3; i++) p->count[i] = most(p->count[i], a[i].count);
    }
}

/* Floats of the largest strip of any phase for a task of rows x cols; 0 where
 * every phase reads the image itself. */
static int64_t strip_most(const Plan *p, int64_t rows, int64_t cols)
{
    Axis a[3];
    int64_t floats = 0;
    for (int64_t f = 0; f < p->phases_all; f += p->together) {
        joint_axes(p, f, a);
        if (!axis_inside(&a[2]))
            floats = most(floats, strip_floats(a, rows, cols, p->chunk));
    }
    return floats;
}

/* Number of tasks. They are cut by the longest phase: in a shorter one the last
 * task of a row or column may have nothing to do. */
static int64_t tasks(const Plan *p)
{
    return p->c.in.n * p->c.window.groups * p->count[0] * p->tasks_h *
           p->tasks_w * p->splits;
}

/* Sets rows, columns and panels of a task. Rows are halved until the strip
 * fits. While there are too few tasks, first the panels are distributed
 * (several tasks then copy the same strip), then the rows are halved again. The
 * cut depends on shapes alone, never on the number of threads. It may depend on
 * the batch: the sum of a result is the same in any task. */
static void cut_tasks(Plan *p)
{
    p->tasks_w = ceil_div(p->count[2], COLS);
    p->cols = ceil_div(p->count[2], p->tasks_w);
    p->rows = most(1, least(p->count[1], PIXELS / p->cols));
    while (p->rows > 1 && strip_most(p, p->rows, p->cols) * 4 > STRIP_BYTES)
        p->rows = ceil_div(p->rows, 2);
    p->tasks_h = ceil_div(p->count[1], p->rows);
    p->rows = ceil_div(p->count[1], p->tasks_h);

    // few rows, as in the deep layers of a network or with a batch of one
    p->panels_task = p->panels, p->splits = 1;
    while (p->panels_task > 1 && tasks(p) < TASKS) {
        p->panels_task = ceil_div(p->panels_task, 2);
        p->splits = ceil_div(p->panels, p->panels_task);
    }
    while (p->rows > 1 && tasks(p) < TASKS) {
        p->rows = ceil_div(p->rows, 2);
        p->tasks_h = ceil_div(p->count[1], p->rows);
    }
}

/* Everything except addresses, from the extents. It is cheap, so it is computed
 * twice: for the size of scratch and for the run. */
static Plan plan(const FpropDgrad *c)
{
    Plan p = {.c = *c, .simd = simd()};
    window_flatten(&c->window, &p.c.in, &p.c.out);
    const Window *g = &p.c.window;
    p.ci = c->in.c / g->groups, p.co = c->out.c / g->groups;
    p.taps = (int64_t)g->k[0] * g->k[1] * g->k[2];
    p.product = c->paired ? p.simd->pairs->product : p.simd->product;

    // the slow axis of w is the convolution's result
    int64_t ci = c->paired ? c->paired : p.ci;
    p.w_tap = c->transposed ? p.co : ci;
    p.w_in = c->transposed ? p.taps * p.co : 1;
    p.w_out = c->transposed ? 1 : p.taps * ci;
    p.phases_all = 1;
    for (int i = 0; i < 3; i++) {
        p.phases[i] = c->transposed ? g->s[i] : 1;
        p.phases_all *= p.phases[i];
    }
    int64_t taps;
    p.together = joint_phases(&p);
    measure_phases(&p, &taps);

    // shorter chunks shorten the chain and the panel. A chunk has at least one
    // channel, so a window of more than CHAIN taps has a longer chain. Equal
    // chunks, a multiple of 8 channels where there are several
    p.chunks = least(ceil_div(most(1, taps) * p.ci, CHAIN), p.ci);
    p.chunk = ceil_div(p.ci, p.chunks);
    if (p.chunks > 1)
        p.chunk = least(round_up(p.chunk, c->paired ? 16 : 8), p.ci);
    p.chunks = ceil_div(p.ci, p.chunk);
    p.panels = ceil_div(p.co, p.simd->panel);
    p.head = !c->paired && p.co <= HEAD_CO && p.chunk >= LANES_MAX;
    if (p.head) p.product = p.simd->head;

    // all phases together have each tap once, so their panels fit in this
    p.packed = g->groups * p.taps * p.ci * round_up(p.co, p.simd->lanes);
    cut_tasks(&p);
    p.strip = round_up(strip_most(&p, p.rows, p.cols), LANES_MAX);
    p.runs = most(1, taps);

    // a multiple of a line: two threads never write to the same one
    p.private_bytes = (size_t)round_up(
        p.strip * (int64_t)sizeof(float) + p.runs * (int64_t)sizeof(Run), 64);
    return p;
}

/* Does this job run by Winograd? Its window and extents fit, its operands are
 * not pairs, and the direct sum was not requested. */
static bool by_winograd(const FpropDgrad *c)
{
    return !c->no_winograd && !c->paired &&
           winograd_fits(&c->window, c->in, c->out);
}

/* The packed weights, and a strip and Runs for each thread. */
size_t fprop_dgrad_bytes(const FpropDgrad *c)
{
    if (c->half) return bf16_fprop_dgrad_bytes(c);
    if (!c->paired && is_depthwise(&c->window, c->in, c->out))
        return depthwise_bytes(c);
    if (by_winograd(c)) return winograd_bytes(c);
    Plan p = plan(c);
    return (size_t)round_up(p.packed * (int64_t)sizeof(float), 64) +
           (size_t)c->threads * p.private_bytes;
}

/* A panel of a group: its first result channel, channels and padded width. All
 * panels before it are full. */
typedef struct Panel {
    int64_t from, co, width;
} Panel;

/* Panel `b`, the same in every group. */
static Panel panel(const Plan *p, int64_t b)
{
    int64_t from = b * p->simd->panel;
    int64_t co = least(p->simd->panel, p->co - from);
    return (Panel){from, co, round_up(co, p->simd->lanes)};
}

/* Address of packed chunk q of panel b; `before` is taps_before() of the phase
 * and `taps` its own number. Order: phase, group, panel, chunk, tap, ci, co.
 * Each phase has only its own taps. */
static float *packed_at(const Plan *p, int64_t before, int64_t taps,
                        int64_t group, const Panel *b, int64_t q)
{
    // all phases before, then whole groups, then panels and chunks before this
    // one: only the last panel of a group is narrow, and only the last chunk of
    // a panel is short, so these have full sizes
    int64_t padded = round_up(p->co, p->simd->lanes);
    return p->weights + p->c.window.groups * before * p->ci * padded +
           (group * padded + b->from) * taps * p->ci +
           q * p->chunk * taps * b->width;
}

/* Taps of all phases before this one. */
static int64_t taps_before(const Plan *p, int64_t phase)
{
    Axis a[3];
    int64_t taps = 0;
    for (int64_t f = 0; f < phase; f++) {
        axes_of(p, f, a);
        taps += a[0].taps * a[1].taps * a[2].taps;
    }
    return taps;
}

/* to[ci*width + co] = w of one tap, for `many` channels ci from w on. The lanes
 * beyond the last co, which product() multiplies too, become 0. */
static void pack_tap(const Plan *p, const float *w, int64_t many,
                     const Panel *b, float *to)
{
    if (p->w_out != 1) transpose_rows(w, p->w_out, b->co, many, to, b->width);
    for (int64_t i = 0; i < many; i++) {
        if (p->w_out == 1)
            memcpy(to + i * b->width, w + i * p->w_in,
                   (size_t)b->co * sizeof *to);
        if (b->co < b->width)
            memset(to + i * b->width + b->co, 0,
                   (size_t)(b->width - b->co) * sizeof *to);
    }
}

/* The same for `head`: to[co*ldw + ci]. */
static void pack_head(const Plan *p, const float *w, int64_t many, int64_t ldw,
                      float *to)
{
    for (int64_t j = 0; j < p->co; j++)
        for (int64_t i = 0; i < many; i++)
            to[j * ldw + i] = w[i * p->w_in + j * p->w_out];
}

/* The same for pairs: to[i*width + co] holds channels 2i and 2i+1 of w, which
 * has `left` channels; 0 past the last. */
static void pack_pairs(const Plan *p, const uint16_t *w, int64_t many,
                       int64_t left, const Panel *b, float *to)
{
    uint16_t *half = (uint16_t *)to;
    memset(to, 0, (size_t)(many * b->width) * sizeof *to);
    // along the fast axis of w, a cache line of results at a time
    for (int64_t j0 = 0; j0 < b->co; j0 += 16)
        for (int64_t i = 0; i < least(2 * many, left); i++) {
            const uint16_t *from = w + i * p->w_in;
            uint16_t *at = half + i / 2 * 2 * b->width + i % 2;
            for (int64_t j = j0; j < least(j0 + 16, b->co); j++)
                at[2 * j] = from[j * p->w_out];
        }
}

/* Packs one chunk of one panel. Weights change with every training step, and
 * packing moves as many numbers as one pixel has multiply-adds. */
static void pack_task(void *ctx, int64_t task, int thread)
{
    const Plan *p = ctx;
    const FpropDgrad *c = &p->c;
    (void)thread;
    int64_t q = task % p->chunks;
    Panel b = panel(p, task / p->chunks % p->panels);
    int64_t group = task / (p->chunks * p->panels) % c->window.groups;
    int64_t phase = task / (p->chunks * p->panels) / c->window.groups;
    Axis a[3];
    axes_of(p, phase, a);
    int64_t taps = a[0].taps * a[1].taps * a[2].taps;
    float *to = packed_at(p, taps_before(p, phase), taps, group, &b, q);
    int64_t from = q * p->chunk, many = least(p->chunk, p->ci - from);
    const int64_t ci = c->paired ? c->paired : p->ci, two = c->paired ? 2 : 1;
    // in elements of w, f32 or bf16
    int64_t at =
        group * p->taps * ci * p->co + two * from * p->w_in + b.from * p->w_out;

    for (int64_t t = 0; t < taps; t++, to += many * (p->head ? 1 : b.width)) {
        // tap number t of this phase as an index into the kernel
        int64_t kd = a[0].k0 + t / (a[1].taps * a[2].taps) * a[0].k_step;
        int64_t kh = a[1].k0 + t / a[2].taps % a[1].taps * a[1].k_step;
        int64_t kw = a[2].k0 + t % a[2].taps * a[2].k_step;
        int64_t k = (kd * c->window.k[1] + kh) * c->window.k[2] + kw;
        if (c->paired)
            pack_pairs(p, (const uint16_t *)c->w + at + k * p->w_tap, many,
                       ci - 2 * from, &b, to);
        else if (p->head)
            pack_head(p, c->w + at + k * p->w_tap, many, taps * many, to);
        else
            pack_tap(p, c->w + at + k * p->w_tap, many, &b, to);
    }
}

/* Writes the runs of row r->h + row of results and returns their number: 0 when
 * all taps are in the padding above or below. Taps along w are one run where
 * they and their channels are contiguous. */
static int64_t find_runs(const Strip *s, const Axis a[3], const Region *r,
                         int64_t row, bool joined, Run *run)
{
    int64_t runs = 0, split = joined ? 1 : a[2].taps;
    for (int64_t td = 0; td < a[0].taps; td++)
        for (int64_t th = 0; th < a[1].taps; th++) {
            if (!axis_has(&a[0], r->d, td) || !axis_has(&a[1], r->h + row, th))
                continue;
            const float *x = s->at + td * s->plane +
                             (row * a[1].step + th * a[1].gap) * s->row;
            // in the order of pack_task, not of the kernel
            int64_t tap = (td * a[1].taps + th) * a[2].taps;
            for (int64_t tw = 0; tw < split; tw++, runs++)
                run[runs] =
                    (Run){x + tw * a[2].gap * s->pixel, (tap + tw) * r->many};
        }
    return runs;
}

/* Returns the strip of some phases and of r->many channels from r->from: the
 * image itself where no border is near. `joint`: joint_axes of these
 * phases. */
static Strip strip_of(const Plan *p, const Axis joint[3], const Region *r,
                      float *buffer)
{
    if (!joint[0].taps || !joint[1].taps || !joint[2].taps) return (Strip){0};
    return axis_inside(&joint[2])
               ? strip_view(p->c.x, p->c.in, joint, r)
               : strip_copy(p->c.x, p->c.in, joint, r, buffer);
}

/* A task: panels b0 .. b1-1 of a group in a region, and its buffers. */
typedef struct Task {
    Region whole; // of the largest phase
    int64_t group, b0, b1;
    float *strip;
    Run *run;
} Task;

/* Phases first .. first+together-1, the number `before` of taps in the phases
 * before, and joint_axes of these phases. */
typedef struct Phases {
    int64_t first, before;
    Axis joint[3];
} Phases;

/* Computes chunk q of the channels of one phase for the results of region r:
 * the first chunk stores (with bias), later ones add. The strip `s` covers the
 * window `joint` and serves all panels, rows and phases. */
static void run_chunk(const Plan *p, const Task *t, const Axis a[3],
                      int64_t before, const Axis joint[3], Strip s, Region r,
                      int64_t q)
{
    const FpropDgrad *c = &p->c;
    int64_t taps = a[0].taps * a[1].taps * a[2].taps;
    bool view = axis_inside(&joint[2]);

    if (taps)
        s.at += (a[0].first - joint[0].first) * s.plane +
                (a[1].first - joint[1].first) * s.row +
                (a[2].first - joint[2].first) * s.pixel;

    // one row of taps is contiguous here and in the panel: one long run
    bool joined = s.pixel == r.many && a[2].gap == 1;
    PanelGemm job = {.run = t->run,
                     .len = joined ? a[2].taps * r.many : r.many,
                     .lda = a[2].step * s.pixel,
                     .cols = r.cols,
                     .ldy = a[2].out_step * c->out.c,
                     .ldw = taps * r.many,
                     .add = c->add || q > 0};

    for (int64_t b = t->b0; b < t->b1; b++) {
        Panel pan = panel(p, b);
        int64_t co = t->group * p->co + pan.from;
        // a strip is in a cache; the image may be in memory, and is in a cache
        // once the first panel has read it
        job.far = view && b == t->b0;
        job.panel = packed_at(p, before, taps, t->group, &pan, q);
        job.co = (int)pan.co;
        job.bias = c->bias ? c->bias + co : NULL;
        for (int64_t i = 0; i < r.rows; i++) {
            // place of this phase's results among all results
            int64_t od = a[0].out0 + r.d * a[0].out_step;
            int64_t oh = a[1].out0 + (r.h + i) * a[1].out_step;
            int64_t ow = a[2].out0 + r.w * a[2].out_step;
            int64_t at = ((r.n * c->out.d + od) * c->out.h + oh) * c->out.w;
            job.y = c->y + (at + ow) * c->out.c + co;
            job.runs = find_runs(&s, a, &r, i, joined, t->run);
            p->product(&job);
        }
    }
}

/* Clips region r to the axes; returns false if nothing is left. */
static bool clip(const Plan *p, const Axis a[3], Region *r)
{
    r->rows = least(p->rows, a[1].count - r->h);
    r->cols = least(p->cols, a[2].count - r->w);
    return r->d < a[0].count && r->rows > 0 && r->cols > 0;
}

/* Computes chunk q of some phases and returns their number of taps. */
static int64_t run_phases(const Plan *p, const Task *t, const Phases *f,
                          int64_t q)
{
    int64_t from = q * p->chunk, taps = 0;
    Region whole = t->whole;
    whole.many = least(p->chunk, p->ci - from);
    whole.from = t->group * p->ci + from;
    Strip s = {0};
    if (clip(p, f->joint, &whole)) s = strip_of(p, f->joint, &whole, t->strip);

    for (int64_t i = f->first; i < f->first + p->together; i++) {
        Axis a[3];
        axes_of(p, i, a);
        Region r = whole;
        if (clip(p, a, &r))
            run_chunk(p, t, a, f->before + taps, f->joint, s, r, q);
        taps += a[0].taps * a[1].taps * a[2].taps;
    }
    return taps;
}

/* Runs the epilogue over the finished results; there is one group. */
static void finish(const Plan *p, const Task *t)
{
    const FpropDgrad *c = &p->c;
    const Region *r = &t->whole;
    Panel first = panel(p, t->b0), last = panel(p, t->b1 - 1);
    int64_t row = (r->n * c->out.d + r->d) * c->out.h + r->h;
    for (int64_t i = 0; i < r->rows; i++)
        epilogue_run(
            &c->epilogue,
            c->y + ((row + i) * c->out.w + r->w) * c->out.c + first.from,
            r->cols, c->out.c, first.from, last.from + last.co - first.from);
}

/* Splits the task number into panels, group and region, and runs all their
 * phases and chunks in a fixed order, so that a chain of additions depends on
 * nothing else. */
static void run_task(void *ctx, int64_t task, int thread)
{
    const Plan *p = ctx;
    char *private = p->private + (size_t)thread * p->private_bytes;
    Task t = {.strip = (float *)private,
              .run = (Run *)(private + p->strip * (int64_t)sizeof *t.strip)};

    t.b0 = task % p->splits * p->panels_task;
    t.b1 = least(t.b0 + p->panels_task, p->panels);
    task /= p->splits;
    t.group = task % p->c.window.groups;
    task /= p->c.window.groups;
    t.whole.w = task % p->tasks_w * p->cols;
    task /= p->tasks_w;
    t.whole.h = task % p->tasks_h * p->rows;
    task /= p->tasks_h;
    t.whole.d = task % p->count[0];
    t.whole.n = task / p->count[0];
    Phases f = {0};

    for (; f.first < p->phases_all; f.first += p->together) {
        int64_t taps = 0;
        joint_axes(p, f.first, f.joint);
        for (int64_t q = 0; q < p->chunks; q++) taps = run_phases(p, &t, &f, q);
        f.before += taps;
    }

    // a convolution: `joint` is its only phase
    if (has_epilogue(&p->c.epilogue) && clip(p, f.joint, &t.whole))
        finish(p, &t);
}

/* Two parallel loops: all panels are packed before any is used. */
void fprop_dgrad_run(const FpropDgrad *c, Pool *pool, void *scratch)
{
    if (c->half) {
        bf16_fprop_dgrad_run(c, pool, scratch);
        return;
    }
    if (!c->paired && is_depthwise(&c->window, c->in, c->out)) {
        depthwise_run(c, pool, scratch);
        return;
    }
    if (by_winograd(c)) {
        winograd_run(c, pool, scratch);
        return;
    }
    Plan p = plan(c);
    p.weights = scratch;
    p.private =
        (char *)scratch + round_up(p.packed * (int64_t)sizeof *p.weights, 64);
    pool_run(pool, p.phases_all * c->window.groups * p.panels * p.chunks,
             pack_task, &p);
    pool_run(pool, tasks(&p), run_task, &p);
}
