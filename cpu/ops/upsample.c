/* upsample.c -- nearest and linear upsampling, fast for factors with a product
 * of at most 64 and lines that fit the stack; the plain loops take the other
 * calls.
 *
 * Bound by memory if each number is read a few times and not once for every
 * result that uses it. So the axes are separated: first the lines (d,h) of a
 * line of results are interpolated, columns and channels in one pass, and then
 * the columns of that line; backward in the reverse order. The weights of
 * columns are the same for every line: a task looks them up once for its rows.
 *
 * Every element belongs to one task, and the order of its sum depends on
 * extents only. Sums are float, which is exact enough for so few terms. */
#include "cpu/lib/kernels.h"
#include "cpu/lib/line.h"
#include "cpu/lib/upsample_weights.h"

enum {
    RESULTS_MOST = 64, // results of an operand position: product of the factors
    ROOM = 8192,       // floats of a piece of a line
    COLS = 512,        // results of a piece of a line
    ROWS = 8,          // of a task
};

typedef struct Job {
    const Call *c;
    Dims x, y;       // extents of operand and result
    MixAxis axis[3]; // d, h, w
    int64_t cols;    // of a piece: results forward, elements of x backward
} Job;

/* Source columns and weights of a result, counted from the first of the
 * piece. */
typedef struct Column {
    int i[2];
    float w[2];
} Column;

/* cols is chosen such that both the operand's and the result's line of a piece
 * fit; 0: they never do. */
static Job job_of(const Call *c, bool forward)
{
    Job j = {.c = c, .x = c->x[0]->dim, .y = c->y->dim};
    for (int i = 0; i < 3; i++) j.axis[i] = mix_axis(c, i, j.x, j.y);
    const int64_t room = least(COLS, ROOM / j.x.c);
    const int64_t f = j.axis[2].f;
    if (j.axis[0].f * j.axis[1].f * f > RESULTS_MOST) return j;
    // aligned, the results of two neighbours are up to 2 f - 1 apart
    if (forward)
        j.cols = most(0, room - 2);
    else
        j.cols = most(0, (room - 2) / (2 * f) - 2);
    return j;
}

/* Looks up results from .. to-1 along w; operand columns are counted from
 * `first`. */
static void look_up(const Job *j, int64_t from, int64_t to, int64_t first,
                    Column *out)
{
    for (int64_t p = from; p < to; p++) {
        const Mix m = mix_at(j->axis[2], p);
        *out++ = (Column){{(int)(m.i[0] - first), (int)(m.i[1] - first)},
                          {(float)m.w[0], (float)m.w[1]}};
    }
}

/* == forward =========================================================== */

/* Interpolates the lines of row (n,d,h) of results: columns from .. to-1. A
 * line with weight 0 is not read, because it may hold an infinity. */
static void mix_lines(const Job *j, int64_t row, int64_t from, int64_t to,
                      float *line)
{
    const LinePlace p = line_place(j->y, row);
    const Mix d = mix_at(j->axis[0], p.d), h = mix_at(j->axis[1], p.h);
    const int64_t count = (to - from) * j->x.c;
    memset(line, 0, (size_t)count * sizeof *line);
    for (int k = 0; k < 4; k++) {
        const double by = d.w[k >> 1] * h.w[k & 1];
        const LinePlace q = {p.n, d.i[k >> 1], h.i[k & 1]};
        if (by > 0)
            line_add(line, line_at(j->c->x[0], q, from), (float)by, count);
    }
}

/* Interpolates a result from two columns of the line. */
static void mix_column(const Column *m, const float *line, int64_t channels,
                       float *y)
{
    const float *a = line + m->i[0] * channels, *b = line + m->i[1] * channels;
    if (m->w[1] == 0)
        memcpy(y, a, (size_t)channels * sizeof *y);
    else if (m->w[0] == 0)
        memcpy(y, b, (size_t)channels * sizeof *y);
    else
        for (int64_t c = 0; c < channels; c++)
            y[c] = m->w[0] * a[c] + m->w[1] * b[c];
}

static void fwd_task(void *ctx, int64_t task, int thread)
{
    const Job *j = ctx;
    (void)thread;
    const int64_t C = j->x.c, end = least(line_count(j->y), (task + 1) * ROWS);
    float line[ROOM];
    Column column[COLS];

    for (int64_t w = 0; w < j->y.w; w += j->cols) {
        const int64_t last = least(j->y.w, w + j->cols) - 1;
        const int64_t from = mix_at(j->axis[2], w).i[0];
        const int64_t to = mix_at(j->axis[2], last).i[1] + 1;
        look_up(j, w, last + 1, from, column);
        for (int64_t row = task * ROWS; row < end; row++) {
            mix_lines(j, row, from, to, line);
            float *y = line_at(j->c->y, line_place(j->y, row), w);
            for (int64_t p = 0; p <= last - w; p++)
                mix_column(&column[p], line, C, y + p * C);
        }
    }
}

/* == backward ========================================================== */

/* Sums the lines of dy, columns from .. from+count-1, that use row (n,d,h) of
 * x, each times its weight. */
static void grad_lines(const Job *j, int64_t row, int64_t from, int64_t count,
                       float *line)
{
    const LinePlace p = line_place(j->x, row);
    const int64_t C = j->y.c;
    int64_t d0, d1, h0, h1;

    mix_range(j->axis[0], p.d, &d0, &d1);
    mix_range(j->axis[1], p.h, &h0, &h1);
    memset(line, 0, (size_t)(count * C) * sizeof *line);

    for (int64_t q = d0; q < d1; q++) {
        const double share = mix_weight(j->axis[0], q, p.d);
        for (int64_t r = h0; share > 0 && r < h1; r++) {
            const double by = share * mix_weight(j->axis[1], r, p.h);
            if (by > 0)
                line_add(line, line_at(j->c->dy, (LinePlace){p.n, q, r}, from),
                         (float)by, count * C);
        }
    }
}

/* Adds the results of the line to sum[i] of the columns that they use. */
static void grad_columns(const Column *column, int64_t results,
                         const float *line, int64_t cols, int64_t channels,
                         float *sum)
{
    memset(sum, 0, (size_t)(cols * channels) * sizeof *sum);
    for (int64_t p = 0; p < results; p++)
        for (int k = 0; k < 2; k++) {
            const int i = column[p].i[k];
            // the neighbouring piece has the other columns
            if (column[p].w[k] > 0 && i >= 0 && i < cols)
                line_add(sum + i * channels, line + p * channels,
                         column[p].w[k], channels);
        }
}

static void bwd_task(void *ctx, int64_t task, int thread)
{
    const Job *j = ctx;
    (void)thread;
    const int64_t C = j->x.c, end = least(line_count(j->x), (task + 1) * ROWS);
    float line[ROOM], sum[ROOM];
    Column column[COLS];

    for (int64_t w = 0; w < j->x.w; w += j->cols) {
        const int64_t cols = least(j->cols, j->x.w - w);
        int64_t from, to, none;
        mix_range(j->axis[2], w, &from, &none);
        mix_range(j->axis[2], w + cols - 1, &none, &to);
        look_up(j, from, to, w, column);
        for (int64_t row = task * ROWS; row < end; row++) {
            grad_lines(j, row, from, to - from, line);
            grad_columns(column, to - from, line, cols, C, sum);
            line_put(line_at(j->c->dx[0], line_place(j->x, row), w), sum,
                     j->c->fresh & 1, cols * C);
        }
    }
}

/* == both rows ========================================================= */

bool cpu_upsample_linear_fwd(const Call *c)
{
    Job j = job_of(c, true);
    if (!j.cols) return plain_upsample_linear_fwd(c);
    pool_run(c->dev, ceil_div(line_count(j.y), ROWS), fwd_task, &j);
    return true;
}

bool cpu_upsample_linear_bwd(const Call *c)
{
    if (!c->dx[0]) return true;
    Job j = job_of(c, false);
    if (!j.cols) return plain_upsample_linear_bwd(c);
    pool_run(c->dev, ceil_div(line_count(j.x), ROWS), bwd_task, &j);
    return true;
}

bool cpu_upsample_nearest_fwd(const Call *c)
{
    return cpu_upsample_linear_fwd(c);
}

bool cpu_upsample_nearest_bwd(const Call *c)
{
    return cpu_upsample_linear_bwd(c);
}
