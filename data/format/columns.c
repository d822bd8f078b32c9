/* columns.c -- gathers stored bytes, then converts them.
 *
 * The bytes of the elements are copied in C order to a small buffer first, so
 * that the conversion is one loop over one type, and so that a range of a large
 * array needs no memory beyond the range. */
#include "data/format/columns.h"
#include <string.h>

enum { GATHERED = 1024 }; /* elements at a time: 8 kB at most */

/* Position of the next element in C order. */
typedef struct Walk {
    int axes;
    const int64_t *shape;
    int64_t stride[COLUMNS_AXES], index[COLUMNS_AXES];
    int64_t at; /* in elements */
} Walk;

static void walk_begin(Walk *w, int64_t first)
{
    int64_t total = 1;
    for (int a = 0; a < w->axes; a++) {
        w->stride[a] = total;
        total *= w->shape[a];
    }
    w->at = 0;

    // in C order the last axis is the fastest
    for (int a = w->axes - 1; a >= 0; a--) {
        w->index[a] = first % w->shape[a];
        first /= w->shape[a];
        w->at += w->index[a] * w->stride[a];
    }
}

/* Advances by one element in C order, the last axis first. */
static void walk_next(Walk *w)
{
    for (int a = w->axes - 1; a >= 0; a--) {
        w->at += w->stride[a];
        if (++w->index[a] < w->shape[a]) return;
        w->at -= w->stride[a] * w->shape[a];
        w->index[a] = 0;
    }
}

int64_t columns_to_f32(const void *in, NumberType t, int axes,
                       const int64_t *shape, int64_t first, int64_t count,
                       float *out)
{
    uint8_t buffer[GATHERED * 8];
    const uint8_t *p = in;
    size_t width = (size_t)t.bytes;
    Walk w = {.axes = axes, .shape = shape};

    CHECK(axes >= 1 && axes <= COLUMNS_AXES && width <= 8);
    walk_begin(&w, first);

    for (int64_t done = 0; done < count; done += GATHERED) {
        int64_t n = count - done < GATHERED ? count - done : GATHERED;
        for (int64_t i = 0; i < n; i++) {
            memcpy(buffer + (size_t)i * width, p + (size_t)w.at * width, width);
            walk_next(&w);
        }
        int64_t bad = number_to_f32(buffer, t, n, 1, 0, out + done);
        if (bad >= 0) return done + bad;
    }
    return -1;
}
