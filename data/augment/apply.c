/* apply.c -- applies a decided change (engine/backend/augment.h) to a sample on
 * the host, in place. */
#include "data/augment/augment_inside.h"
#include <string.h>

/* Swaps the blocks of `inner` floats k and n-1-k in each of `outer` rows. */
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

/* The padding after the end of a sequence is not moved. */
static void flip(float *x, Dims n, int32_t own, uint32_t axes)
{
    const int64_t row = (int64_t)n.w * n.c;
    // swaps blocks of one voxel, of one row, of one slice
    if (axes & 1)
        for (int64_t r = 0; r < (int64_t)n.d * n.h; r++)
            mirror(x + r * row, 1, own, n.c);
    if (axes & 2) mirror(x, n.d, n.h, row);
    if (axes & 4) mirror(x, 1, n.d, row * n.h);
}

/* Swaps the class numbers of a mirror image. */
static void swap_classes(const Mirrored *m, float *x, Dims n)
{
    const int64_t count = numel(n);
    if (!m->swaps) return;
    float to[MAX_LABELS + 1];
    for (int i = 0; i <= MAX_LABELS; i++) to[i] = (float)i;
    for (int i = 0; i < m->swaps; i++) {
        to[m->swap[i][0]] = m->swap[i][1];
        to[m->swap[i][1]] = m->swap[i][0];
    }
    for (int64_t i = 0; i < count; i++) {
        CHECK(x[i] >= 0 && x[i] <= MAX_LABELS);
        x[i] = to[(int)x[i]];
    }
}

/* Swaps channels of a mirror image, such as left and right organs; a map with
 * one channel is unchanged. */
static bool swap_channels(const Mirrored *m, float *x, Dims n)
{
    const int64_t rows = numel(n) / n.c;
    for (int i = 0; n.c > 1 && i < m->swaps; i++) {
        const int a = m->swap[i][0] - 1, b = m->swap[i][1] - 1;
        if ((a > b ? a : b) >= n.c)
            return fail_data("flip: swap has channel %d, but a map has %d",
                             (a > b ? a : b) + 1, (int)n.c);
        for (int64_t k = 0; k < rows; k++) {
            float t = x[k * n.c + a];
            x[k * n.c + a] = x[k * n.c + b], x[k * n.c + b] = t;
        }
    }
    return true;
}

/* Mirrors the numbers of a mirror image about the value that 0 has become. */
static bool negate_numbers(const Mirrored *m, const float *zero, float *x,
                           Dims n)
{
    // channel 1 is bit 1; bits beyond the count of numbers must be 0
    for (int32_t c = n.c + 1; c < 32; c++)
        if (m->negate >> c & 1)
            return fail_data("flip: negate has number %d, but a case has %d",
                             (int)c, (int)n.c);
    for (int32_t c = 0; c < n.c; c++)
        if (m->negate & 1 || (c < 31 && m->negate >> (c + 1) & 1))
            x[c] = zero ? 2 * zero[c] - x[c] : -x[c];
    return true;
}

/* The extent along w without padding. */
static int32_t own_of(const Sample *s, Dims n)
{
    return s->length > 0 && s->length < n.w ? s->length : n.w;
}

static bool has_classes(const Sample *s)
{
    for (int f = 0; f < s->fields; f++)
        if (s->kind[f] == FIELD_LABEL) return true;
    return false;
}

/* Applies a flip to field f. */
static bool flip_field(const Change *c, const Sample *s, int f, bool *numbers)
{
    const Dims n = s->dim[f];
    if (field_on_grid(s->kind[f])) flip(s->data[f], n, own_of(s, n), c->axes);
    if (s->kind[f] == FIELD_LABEL) swap_classes(&c->mirrored, s->data[f], n);
    if (s->kind[f] == FIELD_VALUE && !has_classes(s))
        return swap_channels(&c->mirrored, s->data[f], n);
    if (s->kind[f] != FIELD_NUMBER || *numbers) return true;
    *numbers = true; // only the first such field
    return negate_numbers(&c->mirrored, s->zero, s->data[f], n);
}

/* Moves the first `own` elements of each row: x(w) becomes x(w - by). */
static bool timeshift(const Change *c, float *x, Dims n, int32_t own)
{
    const int64_t row = (int64_t)n.w * n.c, by = (int64_t)c->number[0];
    float *copy = mem_alloc(sizeof *x * (size_t)own * (size_t)n.c);
    if (!copy) return false;

    for (int64_t r = 0; r < (int64_t)n.d * n.h; r++, x += row) {
        memcpy(copy, x, sizeof *x * (size_t)own * (size_t)n.c);
        for (int64_t w = 0; w < own; w++) {
            int64_t from = w - by;
            if ((int)c->number[1] == BEYOND_WRAP)
                from = (from % own + own) % own;
            from = from < 0 ? 0 : from < own ? from : own - 1;
            memcpy(x + w * n.c, copy + from * n.c, sizeof *x * (size_t)n.c);
        }
    }

    mem_free(copy);
    return true;
}

static bool image_change(const Change *c, const Image *m)
{
    switch (c->kind) {
    case CHANGE_JITTER:
        return jitter_change(c, m);
    case CHANGE_BIAS:
        return bias_change(c, m);
    case CHANGE_BLUR:
        return blur_change(c, m);
    case CHANGE_LOWRES:
        return lowres_change(c, m);
    case CHANGE_CUTOUT:
        cutout_change(c, m);
        return true;
    case CHANGE_TIMEMASK:
        timemask_change(c, m);
        return true;
    case CHANGE_BANDS:
        return bands_change(c, m);
    default:
        intensity_change(c, m);
        return true;
    }
}

bool change_sample(const Change *c, Sample *s)
{
    // the images of a sample use consecutive draws
    uint32_t first = CHANGE_DRAWS, before = 0;
    bool numbers = false;

    if (c->kind == CHANGE_NONE) return true;
    if (c->kind == CHANGE_FUNCTION) return user_step_sample(c, s);

    for (int f = 0; f < s->fields; f++) {
        float *x = s->data[f];
        const Dims n = s->dim[f];
        bool ok = true;
        if (!x) continue;
        const int32_t own = own_of(s, n);
        if (c->kind == CHANGE_FLIP) {
            ok = flip_field(c, s, f, &numbers);
        } else if (!field_on_grid(s->kind[f])) {
            continue;
        } else if (change_moves(c->kind)) {
            ok = warp_field(c, x, n, s->kind[f]);
        } else if (c->kind == CHANGE_TIMESHIFT) {
            ok = timeshift(c, x, n, own);
        } else if (s->kind[f] == FIELD_IMAGE) {
            const Image m = {x, n, own, first, before};
            ok = image_change(c, &m);
            first = change_next(first, n), before += (uint32_t)n.c;
        }
        if (!ok) return false;
    }
    return true;
}
