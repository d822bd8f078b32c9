/* picture.h -- a canvas of RGB pixels: curves, text, slices, contours, PNG.
 *
 * Coordinates are pixels from the upper left corner, fractions allowed: the
 * pixel in column i, row j covers [i, i+1) x [j, j+1). Drawing is clipped to
 * the canvas; a coordinate that is not finite draws nothing. Edges of lines,
 * letters and contours are antialiased. A colour is 0xRRGGBB. The same calls
 * give the same bytes. */
#ifndef SEG_DATA_IMAGE_PICTURE_H
#define SEG_DATA_IMAGE_PICTURE_H
#include "engine/base/mem.h"

typedef struct Picture {
    int w, h;
    uint8_t *rgb; /* h rows of w pixels, 3 bytes each */
} Picture;

enum { PICTURE_SIDE = 16384 }; /* maximum number of pixels along an axis */

/* A canvas of one colour; fails beyond PICTURE_SIDE or without memory. */
bool picture_new(Picture *p, int w, int h, uint32_t color);
void picture_free(Picture *p); /* p is zero again */

/* Fills a rectangle; `cover` 0 .. 1 is its opacity. */
void picture_rect(Picture *p, double x, double y, double w, double h,
                  uint32_t color, double cover);

/* Draws a straight stroke of this width with round ends; equal ends: a dot. */
void picture_line(Picture *p, double x0, double y0, double x1, double y1,
                  double width, uint32_t color);

/* Draws text with the upper left corner of its first letter at (x, y). `dot` is
 * the distance of two dots of the font: capitals are 7 dots high, letters 6
 * dots apart. Bytes outside printable ASCII become boxes. */
void picture_text(Picture *p, double x, double y, double dot, uint32_t color,
                  const char *text);
double picture_text_width(double dot, const char *text);

/* Draws a plane of numbers, h rows of w, from (x, y) on, each number as zoom x
 * zoom pixels: lo and below are black, hi and above white, NaN dark red. */
void picture_gray(Picture *p, int x, int y, int zoom, const float *plane, int w,
                  int h, double lo, double hi);

/* The colour of a value, and its opacity, 0 .. 1. */
typedef struct Stop {
    double value;
    uint32_t color;
    double cover;
} Stop;

/* Draws a plane of numbers as translucent colours, at the position and zoom of
 * picture_gray. Colour and opacity are interpolated linearly between two stops,
 * which are in ascending order of value, and constant before the first and
 * after the last. NaN is transparent. */
void picture_wash(Picture *p, int x, int y, int zoom, const float *plane, int w,
                  int h, const Stop *stop, int stops);

/* Draws the lines where the plane, at the same position and zoom, crosses
 * `level`; the plane is padded with zeros, so lines close. Between the centres
 * of two numbers the crossing is interpolated linearly (marching squares). */
void picture_contour(Picture *p, int x, int y, int zoom, const float *plane,
                     int w, int h, double level, double width, uint32_t color);

/* Finds the grey window of a plane: the quantiles `low` and `high` (0 .. 1) of
 * the finite numbers; always lo < hi. Fails without memory. */
bool picture_window(const float *plane, int64_t count, double low, double high,
                    double *lo, double *hi);

/* Encodes as PNG; *png from mem_alloc. */
bool picture_png(const Picture *p, void **png, size_t *bytes);

/* Writes a PNG, the whole file or none. */
bool picture_save(const Picture *p, const char *path);

/* Writes h rows of w bytes as a PNG of 8 bits of grey, the whole file or none;
 * at most PICTURE_SIDE per side. */
bool grey_save(const uint8_t *pixels, int w, int h, const char *path);
#endif
