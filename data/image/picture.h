/* picture.h -- a canvas of RGB pixels: curves, text, slices, contours, PNG.
 *
 * Coordinates are pixels from the upper left corner, fractions allowed: the
 * pixel in column i, row j covers [i, i+1) x [j, j+1). What lies outside the
 * canvas is left out; a coordinate that is not finite draws nothing. Edges of
 * lines, letters and contours are smooth. A colour is 0xRRGGBB. The same
 * calls give the same bytes. */
#ifndef SEG_DATA_IMAGE_PICTURE_H
#define SEG_DATA_IMAGE_PICTURE_H
#include "engine/base/mem.h"

typedef struct Picture {
    int w, h;
    uint8_t *rgb; /* h rows of w pixels, 3 bytes each */
} Picture;

enum { PICTURE_SIDE = 16384 }; /* most pixels along an axis */

/* A canvas of one colour; fails beyond PICTURE_SIDE or without memory. */
bool picture_new(Picture *p, int w, int h, uint32_t color);
void picture_free(Picture *p); /* p is zero again */

/* Colour the rectangle; `cover` 0 .. 1 is how much of it hides what was. */
void picture_rect(Picture *p, double x, double y, double w, double h,
                  uint32_t color, double cover);

/* A straight stroke of this width with round ends; equal ends: a dot. */
void picture_line(Picture *p, double x0, double y0, double x1, double y1,
                  double width, uint32_t color);

/* Text whose first letter has its upper left corner at (x, y). `dot` is the
 * distance of two dots of the font: capitals are 7 dots high, letters 6 dots
 * apart. Bytes outside printable ASCII become boxes. */
void picture_text(Picture *p, double x, double y, double dot, uint32_t color,
                  const char *text);
double picture_text_width(double dot, const char *text);

/* A plane of numbers, h rows of w, shown from (x, y) with zoom x zoom pixels
 * a number: lo and below are black, hi and above white, NaN dark red. */
void picture_gray(Picture *p, int x, int y, int zoom, const float *plane, int w,
                  int h, double lo, double hi);

/* The colour of a value, and how much of what lies below it hides, 0 .. 1. */
typedef struct Stop {
    double value;
    uint32_t color;
    double cover;
} Stop;

/* A plane of numbers as colours over what is there, at the place and zoom of
 * picture_gray. Between two stops, whose values grow, each part of the colour
 * and the cover are linear; before the first and behind the last they are those
 * of that stop. NaN is left out. */
void picture_wash(Picture *p, int x, int y, int zoom, const float *plane, int w,
                  int h, const Stop *stop, int stops);

/* The lines where the plane, drawn at the same place and zoom, crosses
 * `level`; around the plane lie zeros, so lines close. Between the centres of
 * two numbers the crossing is placed linearly (marching squares). */
void picture_contour(Picture *p, int x, int y, int zoom, const float *plane,
                     int w, int h, double level, double width, uint32_t color);

/* Grey window of a plane: the numbers below which `low` and `high` (0 .. 1)
 * of the finite ones lie; lo < hi always. Fails without memory. */
bool picture_window(const float *plane, int64_t count, double low, double high,
                    double *lo, double *hi);

/* As the bytes of a PNG, from mem_alloc. */
bool picture_png(const Picture *p, void **png, size_t *bytes);

/* Write as PNG, whole or not at all. */
bool picture_save(const Picture *p, const char *path);

/* h rows of w bytes as a PNG of 8 bits of grey, the same way; at most
 * PICTURE_SIDE along a side. */
bool grey_save(const uint8_t *pixels, int w, int h, const char *path);
#endif
