/* depthwise.c -- geometry and tasks around Simd.depthwise and Simd.dot_rows.
 *
 * Each number that is loaded is used in one multiply-add. So loads bound both
 * passes and, with the few taps of a 3x3, memory itself: about a fifth of the
 * peak. The code reads each row from memory only once: a task is some
 * neighbouring rows of results, whose rows of the image overlap; a block of 8
 * pixels is computed for all channels before the next; and wgrad takes a piece
 * of a row of dy that stays in L1 while all taps read it.
 *
 * Weights (C, taps) are transposed to (taps, C) on each call, so that a vector
 * of them is one load; that is C * taps numbers against C * taps * results
 * multiply-adds. */
#include "cpu/conv/depthwise.h"
#include "cpu/lib/simd.h"
#include <string.h>

enum {
    TASK_WORK = 1 << 16,    // multiply-adds of a task: some microseconds
    GRAD_FLOATS = 4096,     // piece of a row of dy, read by all taps
    PARTS = 32,             // of the sum over pixels, at most ..
    PARTS_BYTES = 32 << 20, // .. and their memory
};

/* Taps of the whole window. */
static int64_t taps_of(const Window *g)
{
    return (int64_t)g->k[0] * g->k[1] * g->k[2];
}

// -- fprop and dgrad ---------------------------------------------------------

typedef struct Job {
    const FpropDgrad *c;
    const Simd *simd;
    int64_t channels, taps;
    int64_t rows, grain; // rows (n,d,h) of results; of a task
    int64_t runs;        // rows of taps: Runs of a thread
    float *weights;      // (taps, C)
    Run *run;            // (threads, runs)
} Job;

/* Extents, and the layout of scratch (NULL while only sizes are asked for):
 * transposed weights, then each thread's Runs. */
static Job job_of(const FpropDgrad *c, void *scratch)
{
    const Window *g = &c->window;
    Job j = {.c = c, .simd = simd(), .channels = c->in.c, .taps = taps_of(g)};
    j.rows = (int64_t)c->out.n * c->out.d * c->out.h;
    j.grain = most(1, TASK_WORK / (c->out.w * j.channels * j.taps));
    j.runs = (int64_t)g->k[0] * g->k[1];
    j.weights = scratch;
    if (scratch) // a Run holds an address: 8 bytes
        j.run = (Run *)(j.weights + round_up(j.channels * j.taps, LANES_MAX));
    return j;
}

size_t depthwise_bytes(const FpropDgrad *c)
{
    Job j = job_of(c, NULL);
    return (size_t)round_up(j.channels * j.taps, LANES_MAX) * sizeof(float) +
           (size_t)(c->threads * j.runs) * sizeof(Run);
}

/* to[t*C + c] = w[c*taps + t] for tap number `task`. */
static void transpose_task(void *ctx, int64_t task, int thread)
{
    const Job *j = ctx;
    (void)thread;
    for (int64_t i = 0; i < j->channels; i++)
        j->weights[task * j->channels + i] = j->c->w[i * j->taps + task];
}

/* Axis i for result number `at` of the tensor, and its number on that axis: a
 * transposed window has one axis a phase (window.h). */
static Axis axis_of(const FpropDgrad *c, int i, int64_t in, int64_t out,
                    int64_t at, int64_t *result)
{
    int64_t phases = c->transposed ? c->window.s[i] : 1;
    *result = at / phases;
    return c->transposed ? axis_transposed(&c->window, i, in, out, at % phases)
                         : axis_forward(&c->window, i, in, out);
}

/* Computes results from .. from+cols-1 of axis `a` in a row of results at y;
 * taps t0 .. t1-1 are inside the image for all of them. */
static void run_cols(const Job *j, const Axis *a, int64_t from, int64_t cols,
                     DepthwiseRow *call, float *y)
{
    int64_t t0 = 0, t1 = a->taps;
    while (t0 < t1 && !axis_has(a, from, t0)) t0++;
    while (t0 < t1 && !axis_has(a, from, t1 - 1)) t1--;
    call->at = (a->first + from * a->step + t0 * a->gap) * j->channels;
    call->w = j->weights + (a->k0 + t0 * a->k_step) * j->channels;
    call->taps = t1 - t0;
    call->cols = cols;
    call->y = y + (a->out0 + from * a->out_step) * j->channels;
    j->simd->depthwise(call);
}

/* Computes one row (n,d,h) of results: finds the rows of taps inside the image,
 * then runs each phase of columns as left border, middle, right border. */
static void run_row(const Job *j, int64_t row, Run *run)
{
    const FpropDgrad *c = j->c;
    const Dims in = c->in, out = c->out;
    int64_t h, d, ch = j->channels;
    Axis ah = axis_of(c, 1, in.h, out.h, row % out.h, &h);
    Axis ad = axis_of(c, 0, in.d, out.d, row / out.h % out.d, &d);
    int64_t n = row / out.h / out.d;
    DepthwiseRow call = {
        .run = run, .bias = c->bias, .channels = ch, .add = c->add};

    for (int64_t td = 0; td < ad.taps; td++)
        for (int64_t th = 0; th < ah.taps; th++) {
            if (!axis_has(&ad, d, td) || !axis_has(&ah, h, th)) continue;
            int64_t id = ad.first + d * ad.step + td * ad.gap;
            int64_t ih = ah.first + h * ah.step + th * ah.gap;
            int64_t kd = ad.k0 + td * ad.k_step, kh = ah.k0 + th * ah.k_step;
            run[call.runs++] =
                (Run){c->x + ((n * in.d + id) * in.h + ih) * in.w * ch,
                      (kd * c->window.k[1] + kh) * c->window.k[2] * ch};
        }

    float *y = c->y + row * out.w * ch;
    int64_t phases = c->transposed ? c->window.s[2] : 1, ignored;

    for (int64_t f = 0; f < phases; f++) {
        Axis a = axis_of(c, 2, in.w, out.w, f, &ignored);
        call.gap = a.gap * ch, call.w_gap = a.k_step * ch;
        call.lda = a.step * ch, call.ldy = a.out_step * ch;
        // results left .. right-1 have all their taps inside the image
        int64_t left = 0, right = a.count;
        while (left < right && a.taps && !axis_has(&a, left, 0)) left++;
        while (left < right && a.taps && !axis_has(&a, right - 1, a.taps - 1))
            right--;
        for (int64_t i = 0; i < left; i++) run_cols(j, &a, i, 1, &call, y);
        if (left < right) run_cols(j, &a, left, right - left, &call, y);
        for (int64_t i = right; i < a.count; i++)
            run_cols(j, &a, i, 1, &call, y);
    }
}

/* Computes `grain` neighbouring rows. */
static void rows_task(void *ctx, int64_t task, int thread)
{
    const Job *j = ctx;
    int64_t from = task * j->grain;
    for (int64_t i = from; i < least(j->rows, from + j->grain); i++)
        run_row(j, i, j->run + thread * j->runs);
}

/* All weights first, then rows. */
void depthwise_run(const FpropDgrad *c, Pool *pool, void *scratch)
{
    Job j = job_of(c, scratch);
    pool_run(pool, j.taps, transpose_task, &j);
    pool_run(pool, ceil_div(j.rows, j.grain), rows_task, &j);
}

// -- wgrad -------------------------------------------------------------------

typedef struct Grad {
    const Wgrad *g;
    const Simd *simd;
    Axis axis[3];
    int64_t channels, taps;
    int64_t rows, parts; // rows (n,d,h) of dy; parts of their sum
    int64_t cols;        // columns of a piece of a row
    float *sums;         // (parts, taps, C)
} Grad;

/* Axes and parts, by shapes alone; `scratch` may be NULL as above. */
static Grad grad_of(const Wgrad *g, void *scratch)
{
    const Window *w = &g->window;
    Grad j = {.g = g, .simd = simd(), .channels = g->in.c, .taps = taps_of(w)};
    j.axis[0] = axis_forward(w, 0, g->in.d, g->out.d);
    j.axis[1] = axis_forward(w, 1, g->in.h, g->out.h);
    j.axis[2] = axis_forward(w, 2, g->in.w, g->out.w);
    j.rows = (int64_t)g->out.n * g->out.d * g->out.h;
    int64_t bytes = j.taps * j.channels * (int64_t)sizeof(float);
    j.parts = most(1, least(PARTS, least(j.rows, PARTS_BYTES / bytes)));
    j.cols = most(8, GRAD_FLOATS / j.channels);
    j.sums = scratch;
    return j;
}

size_t depthwise_grad_bytes(const Wgrad *g)
{
    Grad j = grad_of(g, NULL);
    return (size_t)(j.parts * j.taps * j.channels) * sizeof(float);
}

/* Adds the contribution of columns w0 .. w1-1 of row (n,d,h) of dy to sum
 * (taps, C). */
static void grad_cols(const Grad *j, int64_t row, int64_t w0, int64_t w1,
                      float *sum)
{
    const Dims in = j->g->in, out = j->g->out;
    const Axis *a = j->axis;
    int64_t h = row % out.h, d = row / out.h % out.d, n = row / out.h / out.d;

    for (int64_t t = 0; t < j->taps; t++, sum += j->channels) {
        int64_t tw = t % a[2].taps, th = t / a[2].taps % a[1].taps;
        int64_t td = t / a[2].taps / a[1].taps;
        if (!axis_has(&a[0], d, td) || !axis_has(&a[1], h, th)) continue;
        int64_t id = a[0].first + d * a[0].step + td * a[0].gap;
        int64_t ih = a[1].first + h * a[1].step + th * a[1].gap;
        // column w reads first + w*step: inside for from .. to-1
        int64_t first = a[2].first + tw * a[2].gap, step = a[2].step;
        int64_t from = most(w0, ceil_div(most(0, -first), step));
        int64_t to = least(w1, ceil_div(most(0, in.w - first), step));
        if (from >= to) continue;
        const float *x = j->g->x + (((n * in.d + id) * in.h + ih) * in.w +
                                    first + from * step) *
                                       j->channels;
        const float *dy = j->g->a + (row * out.w + from) * j->channels;
        j->simd->dot_rows(dy, j->channels, x, step * j->channels, to - from,
                          j->channels, sum);
    }
}

/* Sums part `task` of the rows, in order, into its own (taps, C). */
static void grad_task(void *ctx, int64_t task, int thread)
{
    const Grad *j = ctx;
    (void)thread;
    float *sum = j->sums + task * j->taps * j->channels;
    memset(sum, 0, (size_t)(j->taps * j->channels) * sizeof *sum);
    int64_t end = j->rows * (task + 1) / j->parts;
    for (int64_t i = j->rows * task / j->parts; i < end; i++)
        for (int64_t w = 0; w < j->g->out.w; w += j->cols)
            grad_cols(j, i, w, least(w + j->cols, j->g->out.w), sum);
}

/* Adds the parts of one tap in order and stores the sum in w's layout. */
static void combine_task(void *ctx, int64_t task, int thread)
{
    const Grad *j = ctx;
    (void)thread;
    float *sum = j->sums + task * j->channels, *dw = j->g->dw + task;
    // in place: a sum is stored after the last read of its column
    j->simd->add_rows(sum, j->parts, j->taps * j->channels, j->channels, sum,
                      false);
    for (int64_t i = 0; i < j->channels; i++)
        dw[i * j->taps] = (j->g->add ? dw[i * j->taps] : 0) + sum[i];
}

/* All parts, then their sum. */
void depthwise_grad_run(const Wgrad *g, Pool *pool, void *scratch)
{
    Grad j = grad_of(g, scratch);
    pool_run(pool, j.parts, grad_task, &j);
    pool_run(pool, j.taps, combine_task, &j);
}
