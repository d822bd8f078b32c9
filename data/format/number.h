/* number.h -- converts stored numbers of any width and byte order to float.
 *
 * Shared by the file formats: integers of 1 to 8 bytes, signed or not, and IEEE
 * numbers of 2, 4 and 8 bytes, little or big endian, unaligned. */
#ifndef SEG_DATA_FORMAT_NUMBER_H
#define SEG_DATA_FORMAT_NUMBER_H
#include "engine/base/mem.h"

typedef struct NumberType {
    char kind; /* 'i' signed, 'u' unsigned, 'f' IEEE            */
    int bytes; /* 1, 2, 4, 8; for 'f' 2, 4, 8                   */
    bool big;  /* most significant byte first                   */
} NumberType;

/* Reads one unsigned integer at p. */
static inline uint16_t number_u16(const uint8_t *p, bool big)
{
    return (uint16_t)(big ? p[0] << 8 | p[1] : p[1] << 8 | p[0]);
}

static inline uint32_t number_u32(const uint8_t *p, bool big)
{
    uint32_t a = number_u16(p, big), b = number_u16(p + 2, big);
    return big ? a << 16 | b : b << 16 | a;
}

/* Returns true for the combinations above. */
bool number_known(NumberType t);

/* Sets out[i] = slope * in[i] + inter, computed in double and rounded once;
 * with slope 1 and inter 0 the value itself. NaN and infinities are kept.
 * Returns the index of the first finite number with a result beyond float, else
 * -1: all are converted then. Integers above 2^24 are rounded to float. */
int64_t number_to_f32(const void *in, NumberType t, int64_t count, double slope,
                      double inter, float *out);

/* Copies integers of 1 or 2 bytes in the byte order of this machine; kind and
 * width are kept. */
void number_copy(const void *in, NumberType t, int64_t count, void *out);
#endif
