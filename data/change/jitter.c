/* jitter.c -- random brightness, contrast, saturation and hue of a colour
 * image, as ColorJitter of torchvision defines them for tensors of floats.
 *
 * Colours are counted in shares of `top`, so that 0..255 and 0..1 are the same
 * picture. Each of the four works on what the one before it made. */
#include "change_inside.h"
#include <math.h>

static float cut(double v)
{
    return (float)fmin(fmax(v, 0), 1);
}

static double gray(const float p[3])
{
    return 0.2989 * (double)p[0] + 0.587 * (double)p[1] + 0.114 * (double)p[2];
}

/* p = f p + (1 - f) other, cut to 0 .. 1. */
static void blend(float p[3], double f, double other)
{
    for (int c = 0; c < 3; c++) p[c] = cut(f * (double)p[c] + (1 - f) * other);
}

/* The hue of HSV turned by `by` of a circle. The largest and the least of the
 * three stay, so do saturation and value. */
static void turn_hue(float p[3], double by)
{
    const double r = (double)p[0], g = (double)p[1], b = (double)p[2];
    const double v = fmax(r, fmax(g, b)), chroma = v - fmin(r, fmin(g, b));
    if (!(chroma > 0)) return; // gray has no hue
    double h = v == r   ? (g - b) / chroma
               : v == g ? 2 + (b - r) / chroma
                        : 4 + (r - g) / chroma;
    // in sixths of a circle, 0 .. 6
    h = h + 6 * by;
    h -= 6 * floor(h / 6);
    const double part = h - floor(h), least = v - chroma;
    const double falls = v - chroma * part, rises = v - chroma * (1 - part);
    const double out[6][3] = {{v, rises, least}, {falls, v, least},
                              {least, v, rises}, {least, falls, v},
                              {rises, least, v}, {v, least, falls}};
    for (int c = 0; c < 3; c++) p[c] = cut(out[(int)h % 6][c]);
}

/* One of the four over the whole image. What changes nothing is left out, so
 * that not a bit does. */
static void jitter_one(float *x, int64_t count, int which, double f)
{
    double mean = 0;
    if (f == (which < 3 ? 1 : 0)) return;
    if (which == 1) {
        for (int64_t i = 0; i < count; i++) mean += gray(x + 3 * i);
        mean /= (double)count;
    }
    for (int64_t i = 0; i < count; i++) {
        float *p = x + 3 * i;
        if (which == 3)
            turn_hue(p, f);
        else
            blend(p, f, which == 0 ? 0 : which == 1 ? mean : gray(p));
    }
}

bool jitter_change(const Change *c, const Image *m)
{
    const int64_t size = numel(m->n), count = positions(m->n);
    const float top = (float)c->number[8];
    float lo = m->x[0], hi = m->x[0];
    bool any = false;
    if (m->n.c != 3)
        return fail_data("jitter: an image has %d channel%s, wanted 3: red, "
                         "green, blue",
                         (int)m->n.c, m->n.c == 1 ? "" : "s");
    for (int64_t i = 0; i < size; i++)
        lo = fminf(lo, m->x[i]), hi = fmaxf(hi, m->x[i]);
    // what interpolation rounds is cut, what is no colour is not guessed at
    if (!(lo >= -1e-4f * top && hi <= 1.0001f * top))
        return fail_data("jitter: an image has values of %g to %g, wanted 0 to "
                         "top = %g; fix: top, and no normalize before it but "
                         "minmax",
                         (double)lo, (double)hi, (double)top);
    for (int k = 0; k < 4; k++)
        any = any || c->number[4 + k] != (k < 3 ? 1 : 0);
    if (!any) return true;
    for (int64_t i = 0; i < size; i++) m->x[i] = cut((double)(m->x[i] / top));
    for (int k = 0; k < 4; k++) {
        const int which = (int)c->number[k];
        jitter_one(m->x, count, which, c->number[4 + which]);
    }
    for (int64_t i = 0; i < size; i++) m->x[i] *= top;
    return true;
}
