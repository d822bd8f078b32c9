/* roc.c -- see roc.h. */
#include "data/metrics/roc.h"
#include <math.h>
#include <string.h>

/* The bits of a float as an integer with the same order; -0 equals 0. */
static uint32_t ordered(float x)
{
    uint32_t bits;
    x += 0.0f;
    memcpy(&bits, &x, sizeof bits);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

/* Radix sort by digits of 8 bits, from the lowest; `room` has n elements too,
 * and after four passes the result is in `key` again. */
static void sort_keys(uint32_t *key, int64_t n, uint32_t *room)
{
    for (int shift = 0; shift < 32; shift += 8) {
        int64_t place[257] = {0};
        for (int64_t i = 0; i < n; i++) place[(key[i] >> shift & 255) + 1]++;
        for (int k = 0; k < 256; k++) place[k + 1] += place[k];
        for (int64_t i = 0; i < n; i++)
            room[place[key[i] >> shift & 255]++] = key[i];
        uint32_t *other = key;
        key = room, room = other;
    }
}

/* yes[] and no[] are ascending. Counts half pairs, exactly: a double holds
 * 2^53, the number for 67 million voxels of each kind. */
static double count_pairs(const uint32_t *yes, int64_t y, const uint32_t *no,
                          int64_t n)
{
    double halves = 0;
    int64_t below = 0, upto = 0;
    for (int64_t i = 0; i < y; i++) {
        while (below < n && no[below] < yes[i]) below++;
        while (upto < n && no[upto] <= yes[i]) upto++;
        halves += (double)(below + upto);
    }
    return halves / 2;
}

bool roc_area(const float *score, const uint8_t *truth, int64_t n, double *area)
{
    size_t bytes;
    *area = NAN;
    if (!size_mul((size_t)n, sizeof(uint32_t), &bytes)) return false;
    uint32_t *key = mem_alloc(bytes), *room = mem_alloc(bytes);
    const bool ok = key && room;
    int64_t y = 0, no = n;

    // true elements from the front, false ones from the back
    for (int64_t i = 0; ok && i < n; i++)
        key[truth[i] ? y++ : --no] = ordered(score[i]);

    if (ok && y > 0 && y < n) {
        sort_keys(key, y, room);
        sort_keys(key + y, n - y, room);
        *area =
            count_pairs(key, y, key + y, n - y) / ((double)y * (double)(n - y));
    }

    mem_free(key);
    mem_free(room);
    return ok;
}
