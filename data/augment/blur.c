/* blur.c -- resolution of an image: Gaussian blur, and simulated low
 * resolution.
 *
 * Both filter axis by axis, one line of one channel at a time: the line is
 * copied out and its filtered values are written back. Outside the border the
 * border voxel is repeated. An axis of one voxel is not filtered. */
#include "data/augment/augment_inside.h"
#include <math.h>
#include <string.h>

/* A line: element i of channel 0 is x[i * step]. */
typedef struct Line {
    float *x;
    int64_t step;
    int32_t n;
} Line;

/* Filters a line: `line` is a copy of it, followed by as much scratch
 * memory. */
typedef void LineDo(const Line *to, float *line, const void *how);

/* Calls f for each line along axis a (0 w, 1 h, 2 d) of channel c. */
static void each_line(const Image *m, int a, int32_t c, float *room, LineDo *f,
                      const void *how)
{
    const int32_t n[] = {m->n.w, m->n.h, m->n.d};
    const int64_t step[] = {m->n.c, (int64_t)m->n.w * m->n.c,
                            (int64_t)m->n.w * m->n.h * m->n.c};
    const int p = (a + 1) % 3, q = (a + 2) % 3;
    for (int32_t j = 0; j < n[q]; j++)
        for (int32_t i = 0; i < n[p]; i++) {
            Line one = {m->x + c + j * step[q] + i * step[p], step[a], n[a]};
            for (int32_t k = 0; k < one.n; k++) room[k] = one.x[k * one.step];
            f(&one, room, how);
        }
}

/* Allocates two lines along the longest axis. */
static float *line_room(const Image *m)
{
    int32_t n = m->n.w > m->n.h ? m->n.w : m->n.h;
    if (m->n.d > n) n = m->n.d;
    return mem_alloc(2 * sizeof(float) * (size_t)n);
}

/* == blur ============================================================== */

enum { RADIUS = 256 }; /* for the largest sigma: 4 * 64 */

typedef struct Weights {
    int radius;
    double w[RADIUS + 1]; /* of the centre, and of offset k on either side */
} Weights;

static void weights_make(Weights *g, double sigma)
{
    double sum = 0;
    g->radius = (int)(4 * sigma + 0.5);
    for (int k = 0; k <= g->radius; k++) {
        g->w[k] = k ? exp(-0.5 * k * k / (sigma * sigma)) : 1;
        sum += k ? 2 * g->w[k] : 1;
    }
    for (int k = 0; k <= g->radius; k++) g->w[k] /= sum;
}

static void blur_line(const Line *to, float *x, const void *how)
{
    const Weights *g = how;
    const int32_t last = to->n - 1;
    for (int32_t i = 0; i <= last; i++) {
        double sum = g->w[0] * (double)x[i];
        for (int k = 1; k <= g->radius; k++) {
            const int32_t a = i - k < 0 ? 0 : i - k;
            const int32_t b = i + k > last ? last : i + k;
            sum += g->w[k] * ((double)x[a] + (double)x[b]);
        }
        to->x[i * to->step] = (float)sum;
    }
}

bool blur_change(const Change *c, const Image *m)
{
    const int32_t n[] = {m->n.w, m->n.h, m->n.d};
    float *room = line_room(m);
    if (!room) return false;

    for (int32_t k = 0; k < m->n.c; k++) {
        Weights g;
        const double sigma =
            (double)rng_range(&c->draw, CHANGE_DRAWS + m->before + (uint32_t)k,
                              (float)c->number[0], (float)c->number[1]);
        weights_make(&g, sigma);
        for (int a = 0; a < 3 && g.radius > 0; a++)
            if (n[a] > 1) each_line(m, a, k, room, blur_line, &g);
    }

    mem_free(room);
    return true;
}

/* == low resolution ==================================================== */

typedef struct Lowres {
    int32_t few; /* voxels of the line at low resolution */
    bool cubic;
} Lowres;

/* Cubic interpolation between `few` voxels v at place q, which may be
 * outside. */
static double keys(const float *v, int32_t few, double q)
{
    const double base = floor(q), t = q - base;
    const double w[] = {
        t * (-0.5 + t * (1 - 0.5 * t)), 1 + t * t * (-2.5 + 1.5 * t),
        t * (0.5 + t * (2 - 1.5 * t)), t * t * (-0.5 + 0.5 * t)};
    double sum = 0;
    for (int i = 0; i < 4; i++) {
        int64_t k = (int64_t)base - 1 + i;
        k = k < 0 ? 0 : k < few ? k : few - 1;
        sum += w[i] * (double)v[k];
    }
    return sum;
}

static double straight(const float *v, int32_t few, double q)
{
    if (!(q > 0)) return (double)v[0];
    if (q >= few - 1) return (double)v[few - 1];
    const int32_t k = (int32_t)q;
    return (double)v[k] + (q - k) * ((double)v[k + 1] - (double)v[k]);
}

static void lowres_line(const Line *to, float *x, const void *how)
{
    const Lowres *l = how;
    const int64_t n = to->n, few = l->few;
    float *v = x + n;
    // the voxel that contains the centre of each coarse voxel
    for (int64_t i = 0; i < few; i++) v[i] = x[(2 * i + 1) * n / (2 * few)];
    for (int64_t i = 0; i < n; i++) {
        const double q = ((double)i + 0.5) * (double)few / (double)n - 0.5;
        to->x[i * to->step] =
            (float)(l->cubic ? keys(v, l->few, q) : straight(v, l->few, q));
    }
}

bool lowres_change(const Change *c, const Image *m)
{
    const int32_t n[] = {m->n.w, m->n.h, m->n.d};
    float *room = line_room(m);
    if (!room) return false;

    for (int a = 0; a < 3; a++) {
        Lowres l = {(int32_t)floor(n[a] * c->number[0] + 0.5),
                    (int)c->number[1] == UP_CUBIC};
        if (l.few < 1) l.few = 1;
        if (l.few >= n[a]) continue;
        for (int32_t k = 0; k < m->n.c; k++)
            each_line(m, a, k, room, lowres_line, &l);
    }

    mem_free(room);
    return true;
}
