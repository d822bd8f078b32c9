/* picture.c -- drawing by distance, and PNG through stb_image_write.
 *
 * The coverage of a pixel by a stroke depends on the distance of its centre:
 * full within half the width, fading over one pixel. All letters, curves and
 * contours consist of such strokes. */
#include "data/image/picture.h"
#include "data/image/font.h"
#include "engine/base/file.h"
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

/* Memory that stb allocates while it encodes one PNG; empty outside encode's
 * callers. An arena, because stb leaks a block when memory runs out halfway. */
static _Thread_local Arena stb_memory;

/* stb formats the PNG; zlib compresses better than the compressor of stb and
 * does not write beyond its buffer. */
static unsigned char *pack(unsigned char *data, int bytes, int *out_bytes,
                           int level)
{
    uLongf most = compressBound((uLong)bytes);
    unsigned char *out =
        most <= INT_MAX ? arena_alloc(&stb_memory, most) : NULL;
    if (!out || compress2(out, &most, data, (uLong)bytes, level) != Z_OK)
        return NULL;
    *out_bytes = (int)most;
    return out;
}

#if defined(__GNUC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"
#endif
#define STB_IMAGE_WRITE_IMPLEMENTATION
#define STB_IMAGE_WRITE_STATIC
#define STBIW_ZLIB_COMPRESS     pack
#define STBIW_MALLOC(bytes)     arena_alloc(&stb_memory, (size_t)(bytes))
#define STBIW_REALLOC(p, bytes) NULL // only the compressor of stb grows blocks
#define STBIW_FREE(p)           (void)(p)
#include <stb/stb_image_write.h>
#if defined(__GNUC__)
#pragma GCC diagnostic pop
#endif

bool picture_new(Picture *p, int w, int h, uint32_t color)
{
    size_t bytes;
    *p = (Picture){0, 0, NULL};
    if (w < 1 || h < 1 || w > PICTURE_SIDE || h > PICTURE_SIDE)
        return fail_usage("a picture of %d x %d pixels; each must be from 1 "
                          "to %d",
                          w, h, PICTURE_SIDE);
    if (!size_mul((size_t)w, (size_t)h, &bytes) ||
        !size_mul(bytes, 3, &bytes) || !(p->rgb = mem_alloc(bytes)))
        return within("picture");
    p->w = w, p->h = h;
    picture_rect(p, 0, 0, w, h, color, 1);
    return true;
}

void picture_free(Picture *p)
{
    mem_free(p->rgb);
    *p = (Picture){0, 0, NULL};
}

/* -- strokes -------------------------------------------------------------- */

// Colours are mixed in multiples of 1/256, so that the same calls give the same
// bytes on every machine.
static void blend(Picture *p, int x, int y, uint32_t color, double cover)
{
    uint8_t *at = p->rgb + 3 * ((size_t)y * (size_t)p->w + (size_t)x);
    // 256 is full opacity: no remainder of the old colour stays
    int a = (int)(cover * 256 + 0.5);
    for (int c = 0; c < 3; c++) {
        int want = (int)(color >> (16 - 8 * c) & 255);
        at[c] = (uint8_t)(at[c] + (want - at[c]) * a / 256);
    }
}

// pixels first .. last - 1 of 0 .. n - 1 that [lo, hi) touches; clamped before
// the cast, because a coordinate may be as large as a double
static void span(double lo, double hi, int n, int *first, int *last)
{
    *first = (int)floor(fmin(fmax(lo, 0), n));
    *last = (int)ceil(fmin(fmax(hi, 0), n));
}

// edges are rounded to pixels; only strokes are antialiased
void picture_rect(Picture *p, double x, double y, double w, double h,
                  uint32_t color, double cover)
{
    int x0, x1, y0, y1;
    if (!isfinite(x + y + w + h) || !(cover > 0)) return;
    span(floor(x + 0.5), floor(x + w + 0.5), p->w, &x0, &x1);
    span(floor(y + 0.5), floor(y + h + 0.5), p->h, &y0, &y1);
    for (int j = y0; j < y1; j++)
        for (int i = x0; i < x1; i++) blend(p, i, j, color, fmin(cover, 1));
}

typedef struct Stroke {
    double x0, y0, x1, y1;
} Stroke;

// squared distance of a point from the centre line of the stroke
static double distance2(const Stroke *s, double x, double y)
{
    double dx = s->x1 - s->x0, dy = s->y1 - s->y0, long2 = dx * dx + dy * dy;
    // nearest point on the stroke, 0 .. 1
    double t = 0;
    if (long2 > 0) {
        t = ((x - s->x0) * dx + (y - s->y0) * dy) / long2;
        t = fmin(fmax(t, 0), 1);
    }
    double ex = x - s->x0 - t * dx, ey = y - s->y0 - t * dy;
    return ex * ex + ey * ey;
}

// Draws several strokes together, so that a pixel where strokes meet is not
// covered twice. Each pixel of their common bounding box finds the nearest
// stroke, so the cost is box times strokes.
static void draw(Picture *p, const Stroke *s, int count, double width,
                 uint32_t color)
{
    double lo_x = INFINITY, hi_x = -INFINITY, reach = width / 2 + 0.5;
    double lo_y = INFINITY, hi_y = -INFINITY;
    int x0, x1, y0, y1;

    for (int k = 0; k < count; k++) {
        lo_x = fmin(lo_x, fmin(s[k].x0, s[k].x1));
        hi_x = fmax(hi_x, fmax(s[k].x0, s[k].x1));
        lo_y = fmin(lo_y, fmin(s[k].y0, s[k].y1));
        hi_y = fmax(hi_y, fmax(s[k].y0, s[k].y1));
    }

    span(lo_x - reach, hi_x + reach, p->w, &x0, &x1);
    span(lo_y - reach, hi_y + reach, p->h, &y0, &y1);

    for (int j = y0; j < y1; j++)
        for (int i = x0; i < x1; i++) {
            double nearest = INFINITY;
            for (int k = 0; k < count; k++)
                nearest = fmin(nearest, distance2(&s[k], i + 0.5, j + 0.5));
            // a stroke thinner than a pixel is fainter, not interrupted
            double cover = fmin(reach - sqrt(nearest), fmin(width, 1));
            if (cover > 0) blend(p, i, j, color, cover);
        }
}

// Splits a line into pieces with small bounding boxes; neighbours share an end,
// where double coverage is hardly visible.
void picture_line(Picture *p, double x0, double y0, double x1, double y1,
                  double width, uint32_t color)
{
    Stroke s = {x0, y0, x1, y1};
    if (!isfinite(x0 + y0 + x1 + y1) || !(width > 0)) return;
    // the bounding box of a long diagonal line would be mostly empty
    double dx = x1 - x0, dy = y1 - y0;
    int parts = (int)fmin(fmin(fabs(dx), fabs(dy)) / 32, 256) + 1;
    for (int k = 0; k < parts; k++) {
        double from = (double)k / parts, to = (double)(k + 1) / parts;
        s = (Stroke){x0 + from * dx, y0 + from * dy, x0 + to * dx,
                     y0 + to * dy};
        draw(p, &s, 1, width, color);
    }
}

/* -- text ----------------------------------------------------------------- */

// at most three strokes begin at a dot
enum { MOST_STROKES = 3 * FONT_COLS * FONT_ROWS };

// Makes strokes between neighbouring dots; a diagonal only if no path around it
// is set, so that corners stay corners.
static int letter_strokes(char c, double x, double y, double dot, Stroke *out)
{
    int n = 0;
    for (int j = 0; j < FONT_ROWS; j++)
        for (int i = 0; i < FONT_COLS; i++) {
            bool right = font_dot(c, j, i + 1), down = font_dot(c, j + 1, i);
            bool left = font_dot(c, j, i - 1);
            double cx = x + (i + 0.5) * dot, cy = y + (j + 0.5) * dot;
            if (!font_dot(c, j, i)) continue;
            out[n++] = (Stroke){cx, cy, cx, cy};
            if (right) out[n++] = (Stroke){cx, cy, cx + dot, cy};
            if (down) out[n++] = (Stroke){cx, cy, cx, cy + dot};
            if (!right && !down && font_dot(c, j + 1, i + 1))
                out[n++] = (Stroke){cx, cy, cx + dot, cy + dot};
            if (!left && !down && font_dot(c, j + 1, i - 1))
                out[n++] = (Stroke){cx, cy, cx - dot, cy + dot};
        }
    return n;
}

void picture_text(Picture *p, double x, double y, double dot, uint32_t color,
                  const char *text)
{
    Stroke s[MOST_STROKES];
    if (!isfinite(x + y) || !(dot > 0 && dot < PICTURE_SIDE)) return;
    for (; *text; text++, x += FONT_STEP * dot) {
        int n = letter_strokes(*text, x, y, dot, s);
        draw(p, s, n, 0.9 * dot, color);
    }
}

// the last letter takes its columns only, without the gap after it
double picture_text_width(double dot, const char *text)
{
    size_t n = strlen(text);
    return n ? ((double)n * FONT_STEP - 1) * dot : 0;
}

/* -- planes --------------------------------------------------------------- */

// NaN compares as neither black nor white and gets its own colour.
void picture_gray(Picture *p, int x, int y, int zoom, const float *plane, int w,
                  int h, double lo, double hi)
{
    enum { NAN_COLOR = 0x600000 };
    for (int j = 0; j < h; j++)
        for (int i = 0; i < w; i++) {
            // fmin and fmax return the other number for NaN, so NaN is tested
            // below
            double v = ((double)*plane++ - lo) / (hi - lo);
            uint32_t g = (uint32_t)(255 * fmin(fmax(v, 0), 1) + 0.5);
            picture_rect(p, x + (double)i * zoom, y + (double)j * zoom, zoom,
                         zoom, isnan(v) ? NAN_COLOR : g << 16 | g << 8 | g, 1);
        }
}

// Interpolates the channel at bit `shift` of two colours, at t from a to b.
static uint32_t between(uint32_t a, uint32_t b, int shift, double t)
{
    const double from = a >> shift & 0xff, to = b >> shift & 0xff;
    return (uint32_t)(from + t * (to - from) + 0.5) << shift;
}

static Stop stop_at(const Stop *stop, int stops, double v)
{
    int k = 0;
    while (k < stops && stop[k].value <= v) k++;
    if (k == 0) return stop[0];
    if (k == stops) return stop[stops - 1];
    const Stop *a = &stop[k - 1], *b = &stop[k];
    const double t = (v - a->value) / (b->value - a->value);
    return (Stop){v,
                  between(a->color, b->color, 16, t) |
                      between(a->color, b->color, 8, t) |
                      between(a->color, b->color, 0, t),
                  a->cover + t * (b->cover - a->cover)};
}

void picture_wash(Picture *p, int x, int y, int zoom, const float *plane, int w,
                  int h, const Stop *stop, int stops)
{
    for (int j = 0; j < h; j++)
        for (int i = 0; i < w; i++) {
            const double v = (double)*plane++;
            if (isnan(v)) continue;
            const Stop s = stop_at(stop, stops, v);
            picture_rect(p, x + (double)i * zoom, y + (double)j * zoom, zoom,
                         zoom, s.color, s.cover);
        }
}

// Cells lie between four centres; one row and column of centres lies outside
// the plane on each side, so that every line closes.
void picture_contour(Picture *p, int x, int y, int zoom, const float *plane,
                     int w, int h, double level, double width, uint32_t color)
{
    // corners of a cell in cyclic order
    static const int di[] = {0, 1, 1, 0}, dj[] = {0, 0, 1, 1};

    for (int j = -1; j < h; j++)
        for (int i = -1; i < w; i++) {
            double v[4], at[4][2];
            int cuts = 0;
            for (int k = 0; k < 4; k++) {
                int a = i + di[k], b = j + dj[k];
                bool inside = a >= 0 && a < w && b >= 0 && b < h;
                v[k] = inside ? (double)plane[(int64_t)b * w + a] : 0;
            }
            for (int k = 0; k < 4; k++) {
                int l = (k + 1) % 4;
                // both corners on one side of the level: the edge is not
                // crossed
                if ((v[k] > level) == (v[l] > level)) continue;
                double t = (level - v[k]) / (v[l] - v[k]);
                at[cuts][0] =
                    x + zoom * (i + 0.5 + di[k] + t * (di[l] - di[k]));
                at[cuts++][1] =
                    y + zoom * (j + 0.5 + dj[k] + t * (dj[l] - dj[k]));
            }
            // four crossings: two opposite corners are cut off separately; the
            // crossings begin with the edge after corner 0
            int first = cuts == 4 && v[0] > level ? 1 : 0;
            for (int k = 0; k < cuts; k += 2) {
                const double *a = at[(first + k) % 4];
                const double *b = at[(first + k + 1) % 4];
                picture_line(p, a[0], a[1], b[0], b[1], width, color);
            }
        }
}

// order of two floats, for qsort; no NaN among them
static int compare(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

// Without finite numbers the window is 0 .. 1: a picture is drawn nevertheless.
bool picture_window(const float *plane, int64_t count, double low, double high,
                    double *lo, double *hi)
{
    size_t n = 0, bytes;
    if (!size_mul((size_t)count, sizeof *plane, &bytes)) return false;
    float *sorted = mem_alloc(bytes);
    if (!sorted) return within("grey window");
    for (int64_t i = 0; i < count; i++)
        if (isfinite(plane[i])) sorted[n++] = plane[i];
    qsort(sorted, n, sizeof *sorted, compare);

    // percentiles at the next lower rank, sufficient for a window
    double last = n ? (double)(n - 1) : 0;
    *lo = n ? (double)sorted[(size_t)(low * last)] : 0;
    *hi = n ? (double)sorted[(size_t)(high * last)] : 1;
    if (!(*hi > *lo)) *hi = *lo + 1;
    mem_free(sorted);
    return true;
}

// Returns the bytes of a PNG in stb's memory, with `channels` bytes per pixel;
// NULL with a reason.
static unsigned char *encode(const uint8_t *pixels, int w, int h, int channels,
                             int *bytes)
{
    unsigned char *png =
        stbi_write_png_to_mem(pixels, channels * w, w, h, channels, bytes);
    if (!png) fail("no memory for a picture of %d x %d", w, h);
    return png;
}

bool picture_png(const Picture *p, void **png, size_t *bytes)
{
    int n = 0;
    const unsigned char *made = encode(p->rgb, p->w, p->h, 3, &n);
    *png = made ? mem_alloc((size_t)n) : NULL;
    *bytes = (size_t)n;
    if (*png) memcpy(*png, made, *bytes);
    arena_release(&stb_memory);
    return *png != NULL;
}

// The PNG is complete in memory before the file is opened.
static bool save(const uint8_t *pixels, int w, int h, int channels,
                 const char *path)
{
    int bytes = 0;
    const unsigned char *png = encode(pixels, w, h, channels, &bytes);
    bool ok = png ? file_replace(path, png, (size_t)bytes) : within("%s", path);
    arena_release(&stb_memory);
    return ok;
}

bool picture_save(const Picture *p, const char *path)
{
    return save(p->rgb, p->w, p->h, 3, path);
}

bool grey_save(const uint8_t *pixels, int w, int h, const char *path)
{
    if (w < 1 || h < 1 || w > PICTURE_SIDE || h > PICTURE_SIDE)
        return fail_usage("%s: a PNG has 1 to %d pixels along a side, got "
                          "%d x %d",
                          path, PICTURE_SIDE, w, h);
    return save(pixels, w, h, 1, path);
}
