/* jitter.c -- random brightness, contrast, saturation and hue of a colour
 * image, as ColorJitter of torchvision defines them for tensors of floats.
 *
 * Colours are fractions of `top`, so that 0..255 and 0..1 give the same
 * picture. Each of the four operations works on the result of the previous one.
 *
 * Pixels are copied out in blocks, one array per colour, and every loop over a
 * block has a fixed length and no branch, so that the compiler vectorises it:
 * 14 ms for 224 x 224 pixels one by one in doubles became 0.5, and 0.2 with
 * AVX2, for which the same functions are compiled again, as for AVX-512. Only
 * the sum of grey values combines pixels, and its order is fixed: the bits are
 * the same for every width of vectors. */
#include "data/augment/augment_inside.h"
#include <math.h>
#include <string.h>

#define EACH static inline __attribute__((always_inline))

enum { BRIGHTNESS, CONTRAST, SATURATION, HUE, FOUR, BLOCK = 64 };

/* BLOCK pixels; lanes after the last pixel are black. */
typedef struct Block {
    float c[3][BLOCK];
} Block;

EACH float cut(float v)
{
    v = v > 0 ? v : 0;
    return v < 1 ? v : 1;
}

EACH void take(Block *b, const float *x, int n, float top)
{
    float all[3 * BLOCK];
    if (n < BLOCK) memset(all, 0, sizeof all);
    memcpy(all, x, (size_t)n * 3 * sizeof *x);

    // the first pass (begin) left fractions already
    if (top != 1)
        for (int i = 0; i < 3 * BLOCK; i++) all[i] /= top;
    for (int i = 0; i < 3 * BLOCK; i++) all[i] = cut(all[i]);
    for (int i = 0; i < BLOCK; i++) {
        b->c[0][i] = all[3 * i];
        b->c[1][i] = all[3 * i + 1];
        b->c[2][i] = all[3 * i + 2];
    }
}

EACH void give(const Block *b, float *x, int n, float top)
{
    float all[3 * BLOCK];
    for (int i = 0; i < BLOCK; i++) {
        all[3 * i] = b->c[0][i] * top;
        all[3 * i + 1] = b->c[1][i] * top;
        all[3 * i + 2] = b->c[2][i] * top;
    }
    memcpy(x, all, (size_t)n * 3 * sizeof *x);
}

EACH void gray(const Block *b, float *restrict y)
{
    for (int i = 0; i < BLOCK; i++)
        y[i] = 0.2989f * b->c[0][i] + 0.587f * b->c[1][i] + 0.114f * b->c[2][i];
}

/* b = f b + (1 - f) other, clipped to 0 .. 1. */
EACH void blend(Block *b, float f, const float *restrict other)
{
    const float g = 1 - f;
    for (int c = 0; c < 3; c++) {
        float *restrict x = b->c[c];
        for (int i = 0; i < BLOCK; i++) x[i] = cut(f * x[i] + g * other[i]);
    }
}

/* Rotates the hue of HSV by `by` sixths of a circle, -3 .. 3. The largest and
 * the smallest of the three colours stay, so saturation and value stay. Grey
 * has no hue, and keeps every bit because its chroma is 0. */
EACH void turn_hue(Block *b, float by)
{
    float hue[BLOCK], value[BLOCK], chroma[BLOCK], share[BLOCK];
    for (int i = 0; i < BLOCK; i++) {
        const float red = b->c[0][i], green = b->c[1][i], blue = b->c[2][i];
        float most = red > green ? red : green;
        float least = red < green ? red : green;
        most = most > blue ? most : blue;
        least = least < blue ? least : blue;
        // each colour as the largest has a third of the circle; the difference
        // of the two others gives the position in it
        float next = most == green ? blue : red;
        float last = most == green ? red : green;
        float third = most == green ? 2.0f : 4.0f;
        next = most == red ? green : next;
        last = most == red ? blue : last;
        third = most == red ? 0.0f : third;
        value[i] = most;
        chroma[i] = most - least;
        hue[i] = next - last;
        hue[i] /= chroma[i] > 1e-30f ? chroma[i] : 1e-30f;
        hue[i] += third + by;
    }

    // back: with k = (n + hue) mod 6 a colour is value - chroma times max(0,
    // min(k, 4 - k, 1)), n = 5, 3, 1 for red, green, blue
    for (int c = 0; c < 3; c++) {
        const float n = (float)(5 - 2 * c);
        for (int i = 0; i < BLOCK; i++) {
            float k = n + hue[i];
            // above -6, so that truncation rounds a positive number. A k of 6
            // instead of 0 is harmless: both give 0
            k -= 6 * (float)((int)(k * (1.0f / 6) + 1) - 1);
            share[i] = cut(k < 4 - k ? k : 4 - k);
        }
        for (int i = 0; i < BLOCK; i++)
            b->c[c][i] = value[i] - chroma[i] * share[i];
    }
}

/* Runs the operations at positions from .. to - 1 of the drawn order; contrast
 * blends with `mean`, the mean grey value. */
EACH void run(Block *b, const Change *c, int from, int to, float mean)
{
    float other[BLOCK];
    for (int k = from; k < to; k++) {
        const int which = (int)c->number[k];
        const float f = (float)c->number[FOUR + which];
        if (which == HUE) {
            if (f != 0) turn_hue(b, 6 * f);
            continue;
        }
        if (f == 1) continue;
        for (int i = 0; i < BLOCK; i++) other[i] = which == CONTRAST ? mean : 0;
        if (which == SATURATION) gray(b, other);
        blend(b, f, other);
    }
}

/* Runs the first `to` operations and stores fractions of `top`. Returns the
 * mean of their grey values. */
EACH float begin(const Change *c, const Image *m, int to, float top)
{
    enum { SUMS = 8 };
    const int64_t count = positions(m->n);
    double sum[SUMS] = {0}, all = 0;

    for (int64_t at = 0; at < count; at += BLOCK) {
        const int n = count - at < BLOCK ? (int)(count - at) : BLOCK;
        Block b;
        float g[BLOCK];
        take(&b, m->x + 3 * at, n, top);
        run(&b, c, 0, to, 0);
        gray(&b, g);
        for (int i = 0; i < BLOCK; i += SUMS)
            for (int k = 0; k < SUMS; k++) sum[k] += (double)g[i + k];
        give(&b, m->x + 3 * at, n, 1);
    }

    for (int k = 0; k < SUMS; k++) all += sum[k];
    return (float)(all / (double)count);
}

EACH void change_all(const Change *c, const Image *m)
{
    const int64_t count = positions(m->n);
    const float top = (float)c->number[2 * FOUR];
    float mean = 0, now = top;
    int done = 0;

    // contrast needs the mean of all pixels after the operations before it
    for (int k = 0; k < FOUR; k++)
        if ((int)c->number[k] == CONTRAST && c->number[FOUR + CONTRAST] != 1)
            mean = begin(c, m, k, top), done = k, now = 1;

    for (int64_t at = 0; at < count; at += BLOCK) {
        const int n = count - at < BLOCK ? (int)(count - at) : BLOCK;
        Block b;
        take(&b, m->x + 3 * at, n, now);
        run(&b, c, done, FOUR, mean);
        give(&b, m->x + 3 * at, n, top);
    }
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static void by_avx2(const Change *c,
                                                    const Image *m)
{
    change_all(c, m);
}

__attribute__((target("avx512f,prefer-vector-width=512"))) static void
by_avx512(const Change *c, const Image *m)
{
    change_all(c, m);
}
#endif

bool jitter_by(int floats, const Change *c, const Image *m)
{
#if defined(__x86_64__)
    if (floats == 16) {
        if (!__builtin_cpu_supports("avx512f")) return false;
        by_avx512(c, m);
        return true;
    }

    if (floats == 8) {
        if (!__builtin_cpu_supports("avx2")) return false;
        by_avx2(c, m);
        return true;
    }
#endif
    if (floats > 4) return false;
    change_all(c, m);
    return true;
}

/* Counts the values outside least .. most, and NaN. */
static int count_out_of_range(const float *x, int n, float least, float most)
{
    int count = 0;
    for (int i = 0; i < n; i++) count += !(x[i] >= least) | !(x[i] <= most);
    return count;
}

/* Clips values that interpolation has rounded beyond the range; fails for
 * values that cannot be colours. */
static bool check_colors(const Image *m, float top)
{
    const int64_t size = numel(m->n), whole = size / BLOCK * BLOCK;
    const float least = -1e-4f * top, most = 1.0001f * top;
    float lo = m->x[0], hi = m->x[0];
    int bad =
        count_out_of_range(m->x + whole, (int)(size - whole), least, most);

    for (int64_t at = 0; at < whole && !bad; at += BLOCK)
        bad = count_out_of_range(m->x + at, BLOCK, least, most);
    if (!bad) return true;
    for (int64_t i = 0; i < size; i++)
        lo = fminf(lo, m->x[i]), hi = fmaxf(hi, m->x[i]);
    return fail_data(
        "jitter: an image has values of %g to %g, wanted 0 to top = %g; fix: "
        "set top, and put no normalize but minmax before it",
        (double)lo, (double)hi, (double)top);
}

bool jitter_change(const Change *c, const Image *m)
{
    bool any = false;
    if (m->n.c != 3)
        return fail_data("jitter: an image has %d channel%s, wanted 3: red, "
                         "green, blue",
                         (int)m->n.c, m->n.c == 1 ? "" : "s");
    if (!check_colors(m, (float)c->number[2 * FOUR])) return false;
    for (int k = 0; k < FOUR; k++)
        any = any || c->number[FOUR + k] != (k == HUE ? 0 : 1);
    // so that no bit changes
    if (!any) return true;
    return jitter_by(16, c, m) || jitter_by(8, c, m) || jitter_by(4, c, m);
}
