/* polygon.c -- scan conversion by crossings. Each edge toggles, in every row it
 * crosses, the first voxel whose centre is not left of it; a prefix sum of
 * toggles along a row then separates inside from outside. An edge thus costs
 * one step per row, for any width of the shape. */
#include "data/dicom/polygon.h"
#include <math.h>

// fraction of a voxel: an edge through a centre counts as on it despite
// rounding
static const double ON_CENTRE = 1e-9;

// the first whole number >= x within 0 .. n
static int32_t first_at(double x, int32_t n)
{
    double c = ceil(x - ON_CENTRE);
    return c < 0 ? 0 : c > n ? n : (int32_t)c;
}

void contour_add(uint8_t *toggle, int32_t h, int32_t w, const double *uv,
                 size_t points)
{
    for (size_t i = 0; i < points; i++) {
        const double *a = uv + 2 * i, *b = uv + 2 * ((i + 1) % points);
        // from the upper end to the lower: the two sides of a keyhole's channel
        // are the same edge in both directions and must cancel exactly
        if (a[1] > b[1]) {
            const double *swap = a;
            a = b, b = swap;
        }
        // half-open: a corner belongs to the edge below it only
        int32_t from = first_at(a[1], h), to = first_at(b[1], h);
        for (int32_t j = from; j < to; j++) {
            double share = (j - a[1]) / (b[1] - a[1]);
            int32_t x = first_at(a[0] + share * (b[0] - a[0]), w);
            if (x < w) toggle[(size_t)j * (size_t)w + (size_t)x] ^= 1;
        }
    }
}

void contour_fill(uint8_t *toggle, int32_t h, int32_t w)
{
    for (int32_t j = 0; j < h; j++) {
        uint8_t inside = 0, *row = toggle + (size_t)j * (size_t)w;
        for (int32_t i = 0; i < w; i++) row[i] = inside ^= row[i];
    }
}
