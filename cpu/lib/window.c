/* window.c -- axes of windows, and copies of rows with their borders.
 *
 * The fast kernels get all index arithmetic of windows from here: position =
 * first + result*step + tap*gap. Copies are whole rows, or a few channels of
 * each pixel where there are groups or chunks. They are bound by L2 and take a
 * small part of the time of the products that read them. */
#include "cpu/lib/window.h"
#include "cpu/lib/simd.h"
#include <string.h>

/* The numbers of the formula are those of the window. Padding after the image
 * does not occur: `out` already says how far results reach. */
Axis axis_forward(const Window *g, int i, int64_t in, int64_t out)
{
    return (Axis){.in = in,
                  .count = out,
                  .first = -(int64_t)g->lo[i],
                  .step = g->s[i],
                  .taps = g->k[i],
                  .gap = g->dil[i],
                  .out_step = 1,
                  .k_step = 1};
}

/* Greatest common divisor by Euclid's algorithm; b may be 0. */
static int64_t common_divisor(int64_t a, int64_t b)
{
    while (b) {
        int64_t rest = a % b;
        a = b, b = rest;
    }
    return a;
}

Axis axis_transposed(const Window *g, int i, int64_t in, int64_t out,
                     int64_t phase)
{
    // solve result + lo = position*s + k*dil for positions: k and the next k
    // with an integer solution are s / gcd(s, dil) apart
    int64_t s = g->s[i], dil = g->dil[i];
    int64_t common = common_divisor(s, dil);
    Axis a = {.in = in,
              .count = phase < out ? ceil_div(out - phase, s) : 0,
              .step = 1,
              .gap = dil / common,
              .out0 = phase,
              .out_step = s,
              .k_step = -(s / common)};

    // result phase + s*j has index k at image position j + (phase + lo - k*dil)
    // / s, for each k where this divides; the largest k comes first, so that
    // positions ascend
    int64_t k = g->k[i] - 1;

    while (k >= 0 && (phase + g->lo[i] - k * dil) % s) k--;
    if (k < 0) return a;
    a.k0 = k;
    a.first = (phase + g->lo[i] - k * dil) / s;
    a.taps = k / -a.k_step + 1;
    return a;
}

int64_t axis_span(const Axis *a, int64_t count)
{
    return (count - 1) * a->step + (a->taps - 1) * a->gap + 1;
}

bool axis_inside(const Axis *a)
{
    return a->count == 0 || a->taps == 0 ||
           (a->first >= 0 && a->first + axis_span(a, a->count) <= a->in);
}

int64_t strip_floats(const Axis a[3], int64_t rows, int64_t cols, int64_t many)
{
    if (!a[0].taps || !a[1].taps || !a[2].taps) return 0;
    return a[0].taps * axis_span(&a[1], rows) * axis_span(&a[2], cols) * many;
}

/* Copies the input positions along w that r->cols results read, from one row of
 * an image with `c` channels: channels r->from .. r->from + r->many - 1.
 * Positions left and right of the image (padding) become 0; if all of them are
 * on one side of the image, the copy is all zeros. */
static void copy_row(const float *row, int64_t c, const Axis *a,
                     const Region *r, float *to)
{
    int64_t from = a->first + r->w * a->step, span = axis_span(a, r->cols);
    // zeros to `left`, pixels to `end`, then zeros again
    int64_t left = least(most(-from, 0), span);
    int64_t end = most(least(a->in - from, span), left);

    memset(to, 0, (size_t)(left * r->many) * sizeof *to);
    const float *x = row + (from + left) * c + r->from;
    float *y = to + left * r->many;

    if (c == r->many) {
        memcpy(y, x, (size_t)((end - left) * c) * sizeof *y);
    } else {
        for (int64_t i = left; i < end; i++, x += c, y += r->many)
            memcpy(y, x, (size_t)r->many * sizeof *y);
    }

    memset(to + end * r->many, 0,
           (size_t)((span - end) * r->many) * sizeof *to);
}

Strip strip_copy(const float *x, Dims dim, const Axis a[3], const Region *r,
                 float *buffer)
{
    const int64_t c = dim.c, width = dim.w * c, plane = dim.h * width;
    const float *sample = x + r->n * dim.d * plane;
    int64_t d = a[0].first + r->d * a[0].step;
    int64_t h = a[1].first + r->h * a[1].step;
    int64_t rows = axis_span(&a[1], r->rows);
    int64_t pitch = axis_span(&a[2], r->cols) * r->many;

    for (int64_t td = 0; td < a[0].taps; td++) {
        int64_t id = d + td * a[0].gap;
        if (id < 0 || id >= dim.d) continue;
        for (int64_t i = 0; i < rows; i++) {
            int64_t ih = h + i;
            if (ih < 0 || ih >= dim.h) continue;
            copy_row(sample + id * plane + ih * width, c, &a[2], r,
                     buffer + (td * rows + i) * pitch);
        }
    }
    return (Strip){buffer, rows * pitch, pitch, r->many};
}

/* The distances are those of the tensor. */
Strip strip_view(const float *x, Dims dim, const Axis a[3], const Region *r)
{
    const int64_t c = dim.c, width = dim.w * c, plane = dim.h * width;
    int64_t d = a[0].first + r->d * a[0].step;
    int64_t h = a[1].first + r->h * a[1].step;
    int64_t w = a[2].first + r->w * a[2].step;
    return (Strip){x + (r->n * dim.d + d) * plane + h * width + w * c + r->from,
                   a[0].gap * plane, width, c};
}

/* The number of positions must fit an int32_t extent; else rows stay rows,
 * which is only slower. */
void window_flatten(const Window *g, Dims *in, Dims *out)
{
    for (int i = 0; i < 3; i++)
        if (g->k[i] != 1 || g->s[i] != 1 || g->lo[i]) return;
    int64_t pixels = in->n * positions(*in);
    if (positions(*in) != positions(*out) || pixels > INT32_MAX) return;
    *in = (Dims){1, 1, 1, (int32_t)pixels, in->c};
    *out = (Dims){1, 1, 1, (int32_t)pixels, out->c};
}
