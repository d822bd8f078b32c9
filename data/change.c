/* change.c -- a decided change (engine/change.h) of a sample on the host, in
 * place. */
#include "prepare.h"
#include <math.h>
#include <string.h>

/* Swap the blocks of `inner` floats k and n-1-k of each of `outer` rows. */
static void mirror(float *x, int64_t outer, int64_t n, int64_t inner)
{
    for (int64_t o = 0; o < outer; o++)
        for (int64_t k = 0; k < n / 2; k++) {
            float *a = x + (o * n + k) * inner;
            float *b = x + (o * n + n - 1 - k) * inner;
            for (int64_t i = 0; i < inner; i++) {
                float t = a[i];
                a[i] = b[i], b[i] = t;
            }
        }
}

static void flip(float *x, Dims n, uint32_t axes)
{
    // blocks of one voxel, of one row, of one slice change places
    if (axes & 1) mirror(x, (int64_t)n.d * n.h, n.w, n.c);
    if (axes & 2) mirror(x, n.d, n.h, (int64_t)n.w * n.c);
    if (axes & 4) mirror(x, 1, n.d, (int64_t)n.h * n.w * n.c);
}

static void map_nearest(const ChangeSource *s, const double q[3], float *to)
{
    const float *x =
        s->x + change_voxel(s->n, s->axes, change_nearest(q[0], s->n.w),
                            change_nearest(q[1], s->n.h),
                            change_nearest(q[2], s->n.d));
    for (int32_t c = 0; c < s->n.c; c++) to[c] = x[c];
}

static void affine(const float *from, Dims n, const double map[3][4],
                   bool nearest, float *to)
{
    const ChangeSource s = {from, n, 0};
    for (int32_t d = 0; d < n.d; d++)
        for (int32_t h = 0; h < n.h; h++)
            for (int32_t w = 0; w < n.w; w++, to += n.c) {
                double q[3];
                for (int a = 0; a < 3; a++)
                    q[a] = change_place(map[a], w, h, d);
                if (nearest)
                    map_nearest(&s, q, to);
                else
                    change_between(&s, q, to);
            }
}

/* A map reads what it has written over: from a copy. */
static bool affine_field(float *x, Dims n, const double map[3][4],
                         FieldKind kind)
{
    size_t bytes = (size_t)numel(n) * sizeof *x;
    float *copy = mem_alloc(bytes);
    if (!copy) return false;
    memcpy(copy, x, bytes);
    affine(copy, n, map, kind == FIELD_LABEL, x);
    mem_free(copy);
    return true;
}

/* One channel of an image of a sample: every step-th of count elements. */
typedef struct Channel {
    float *x;
    int64_t count, step;
} Channel;

/* The sum runs in double, in memory order: the same mean in every build. */
static void contrast(Channel c, float factor)
{
    double sum = 0;
    for (int64_t i = 0; i < c.count; i++) sum += (double)c.x[i * c.step];
    float mean = (float)(sum / (double)c.count);
    for (int64_t i = 0; i < c.count; i++)
        c.x[i * c.step] = mean + factor * (c.x[i * c.step] - mean);
}

static void brightness(Channel c, float by)
{
    for (int64_t i = 0; i < c.count; i++) c.x[i * c.step] += by;
}

/* lo and hi stay where they are, values between them bend. */
static void gamma_curve(Channel c, float exponent)
{
    float lo = c.x[0], hi = c.x[0];
    for (int64_t i = 0; i < c.count; i++) {
        lo = fminf(lo, c.x[i * c.step]);
        hi = fmaxf(hi, c.x[i * c.step]);
    }
    if (!(lo < hi)) return; // nothing to bend
    float span = hi - lo;
    for (int64_t i = 0; i < c.count; i++) {
        float *x = &c.x[i * c.step];
        *x = lo + span * powf((*x - lo) / span, exponent);
    }
}

/* Draw `first + i` for element i; one pair of draws for two of them. */
static void noise(float *x, int64_t n, float sigma, const Rng *r,
                  uint32_t first)
{
    for (int64_t i = 0; i < n; i += 2) {
        float z[2];
        rng_normal_pair(r, (first + (uint32_t)i) / 2, z);
        x[i] += sigma * z[0];
        if (i + 1 < n) x[i + 1] += sigma * z[1];
    }
}

/* All images and channels share the parameters, not the noise. */
static void intensity(const Change *c, float *x, Dims n, uint32_t first)
{
    if (c->kind == CHANGE_NOISE) {
        noise(x, numel(n), c->amount, &c->draw, first);
        return;
    }
    for (int32_t k = 0; k < n.c; k++) {
        Channel one = {x + k, positions(n), n.c};
        if (c->kind == CHANGE_CONTRAST) contrast(one, c->amount);
        if (c->kind == CHANGE_BRIGHTNESS) brightness(one, c->amount);
        if (c->kind == CHANGE_GAMMA) gamma_curve(one, c->amount);
    }
}

bool change_sample(const Change *c, Sample *sample)
{
    // images of a sample take their draws one behind the other
    uint32_t first = CHANGE_DRAWS;
    for (int f = 0; f < sample->fields; f++) {
        float *x = sample->data[f];
        Dims n = sample->dim[f];
        if (!x || c->kind == CHANGE_NONE || !field_on_grid(sample->kind[f]))
            continue;
        if (c->kind == CHANGE_FLIP) {
            flip(x, n, c->axes);
        } else if (c->kind == CHANGE_AFFINE) {
            if (!affine_field(x, n, c->map, sample->kind[f])) return false;
        } else if (sample->kind[f] == FIELD_IMAGE) {
            intensity(c, x, n, first);
            first = change_next(first, n);
        }
    }
    return true;
}
