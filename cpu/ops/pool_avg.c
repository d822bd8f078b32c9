/* pool_avg.c -- mean of each window, fast for windows of at most 256 taps; the
 * plain loops take larger ones.
 *
 * Bound by memory if each number is read once, and not once a tap. So the
 * window is separated: first the lines (d,h) under it are added, columns and
 * channels in one pass, and then the columns of their sum; backward in the
 * reverse order. The line in between is on the stack, in pieces, with 0 for
 * columns in the padding, so that borders need no code of their own.
 *
 * Every element belongs to one task, and the order of its sum depends on
 * extents only. Sums are float, which is exact enough for so few terms. */
#include "cpu/lib/kernels.h"
#include "cpu/lib/line.h"

enum {
    TAPS_MOST = 256,
    ROOM = 4096, // floats of a piece of a line
};

typedef struct Job {
    const Call *c;
    Window g;
    Dims x, y;    // extents of operand and result
    int64_t cols; // of a piece: results forward, elements of x backward
    bool inside;  // the divisor counts only elements inside the image
} Job;

/* cols is chosen such that the input of a piece fits ROOM; 0: it never does.
 * Only the extents of operand 0 are used: backward its data may be gone. */
static Job job_of(const Call *c, bool forward)
{
    const Window g = op_window(c->attr, NULL);
    Job j = {.c = c,
             .g = g,
             .x = c->x[0]->dim,
             .y = forward ? c->y->dim : c->dy->dim,
             .inside = !c->attr->avgpool.count_all};
    const int64_t room = ROOM / j.x.c, k = g.k[2];
    if ((int64_t)g.k[0] * g.k[1] * k > TAPS_MOST) return j;
    // backward k - 1 windows may begin before the piece
    if (k <= room) j.cols = forward ? (room - k) / g.s[2] + 1 : room - k + 1;
    return j;
}

/* Taps from .. to-1 of window p of an axis are inside; tap 0 is at `first`. */
typedef struct Part {
    int64_t first, from, to;
} Part;

static Part part_of(const Job *j, int axis, int64_t p)
{
    const int64_t first = p * j->g.s[axis] - j->g.lo[axis];
    return (Part){first, most(0, -first),
                  least(j->g.k[axis], (&j->x.d)[axis] - first)};
}

/* 1 / the axis' factor of the divisor of window p. */
static float inverse_divisor(const Job *j, int axis, int64_t p)
{
    const Part t = part_of(j, axis, p);
    return 1.0F / (float)(j->inside ? t.to - t.from : j->g.k[axis]);
}

/* A row (n,d,h) of results: one task. */
static void fwd_task(void *ctx, int64_t row, int thread)
{
    const Job *j = ctx;
    (void)thread;
    const int64_t C = j->x.c, s = j->g.s[2], k = j->g.k[2];
    const LinePlace p = line_place(j->y, row);
    const Part pd = part_of(j, 0, p.d), ph = part_of(j, 1, p.h);
    const float by = inverse_divisor(j, 0, p.d) * inverse_divisor(j, 1, p.h);
    float line[ROOM];

    for (int64_t w = 0; w < j->y.w; w += j->cols) {
        const int64_t cols = least(j->cols, j->y.w - w);
        const int64_t first = w * s - j->g.lo[2];
        const int64_t width = (cols - 1) * s + k;
        const int64_t from = most(0, first), to = least(j->x.w, first + width);
        memset(line, 0, (size_t)(width * C) * sizeof *line);
        for (int64_t kd = pd.from; kd < pd.to; kd++)
            for (int64_t kh = ph.from; kh < ph.to; kh++) {
                const LinePlace q = {p.n, pd.first + kd, ph.first + kh};
                line_add(line + (from - first) * C,
                         line_at(j->c->x[0], q, from), 1, (to - from) * C);
            }
        float *y = line_at(j->c->y, p, w);
        for (int64_t i = 0; i < cols; i++) {
            const float *l = line + i * s * C;
            const float all = by * inverse_divisor(j, 2, w + i);
            for (int64_t c = 0; c < C; c++) {
                float sum = l[c];
                for (int64_t t = 1; t < k; t++) sum += l[t * C + c];
                y[i * C + c] = all * sum;
            }
        }
    }
}

/* Windows from .. to-1 of an axis contain element q. */
static void windows_of(const Job *j, int axis, int64_t q, int64_t *from,
                       int64_t *to)
{
    const int64_t s = j->g.s[axis], at = q + j->g.lo[axis];
    *from = most(0, ceil_div(most(0, at - j->g.k[axis] + 1), s));
    *to = least((&j->y.d)[axis], at / s + 1);
}

/* A row (n,d,h) of elements of x: one task. */
static void bwd_task(void *ctx, int64_t row, int thread)
{
    const Job *j = ctx;
    (void)thread;
    const int64_t C = j->x.c, s = j->g.s[2], lo = j->g.lo[2];
    const LinePlace p = line_place(j->x, row);
    int64_t d0, d1, h0, h1;
    windows_of(j, 0, p.d, &d0, &d1);
    windows_of(j, 1, p.h, &h0, &h1);
    float line[ROOM], sum[ROOM];

    for (int64_t w = 0; w < j->x.w; w += j->cols) {
        const int64_t cols = least(j->cols, j->x.w - w);
        int64_t from, to, none;
        windows_of(j, 2, w, &from, &none);
        windows_of(j, 2, w + cols - 1, &none, &to);
        const int64_t count = most(0, to - from);
        memset(line, 0, (size_t)(count * C) * sizeof *line);
        memset(sum, 0, (size_t)(cols * C) * sizeof *sum);
        for (int64_t q = d0; q < d1; q++)
            for (int64_t r = h0; r < h1; r++)
                line_add(line, line_at(j->c->dy, (LinePlace){p.n, q, r}, from),
                         inverse_divisor(j, 0, q) * inverse_divisor(j, 1, r),
                         count * C);
        for (int64_t i = 0; i < count; i++) {
            const float by = inverse_divisor(j, 2, from + i);
            const int64_t first = (from + i) * s - lo - w; // of tap 0, in `sum`
            const int64_t t1 = least(j->g.k[2], cols - first);
            for (int64_t t = most(0, -first); t < t1; t++)
                line_add(sum + (first + t) * C, line + i * C, by, C);
        }
        line_put(line_at(j->c->dx[0], p, w), sum, j->c->fresh & 1, cols * C);
    }
}

bool cpu_avgpool_fwd(const Call *c)
{
    Job j = job_of(c, true);
    if (!j.cols) return plain_avgpool_fwd(c);
    pool_run(c->dev, line_count(j.y), fwd_task, &j);
    return true;
}

bool cpu_avgpool_bwd(const Call *c)
{
    if (!c->dx[0]) return true;
    Job j = job_of(c, false);
    if (!j.cols) return plain_avgpool_bwd(c);
    pool_run(c->dev, line_count(j.x), bwd_task, &j);
    return true;
}
