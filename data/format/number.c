/* number.c -- one loop per stored type, made by one macro.
 *
 * Bytes become a word of the right width (memcpy, as they may be unaligned),
 * the word is turned round for big endian, its bits are taken as the type,
 * and that becomes a double: exact for all but 64-bit integers above 2^53.
 * The one rounding that is promised is the one to float at the end. */
#include "data/format/number.h"
#include <float.h>
#include <math.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "byte orders are told apart as little and not little");

/* half, single and double; integers of the four widths */
bool number_known(NumberType t)
{
    bool width = t.bytes == 2 || t.bytes == 4 || t.bytes == 8;
    if (t.kind == 'f') return width;
    return (t.kind == 'i' || t.kind == 'u') && (width || t.bytes == 1);
}

/* IEEE binary16 to float; exact. */
static float half_value(uint16_t h)
{
    int exponent = h >> 10 & 31, fraction = h & 1023;
    float v = exponent == 31  ? (fraction ? NAN : INFINITY)
              : exponent == 0 ? ldexpf((float)fraction, -24)
                              : ldexpf((float)(fraction + 1024), exponent - 25);
    return h & 0x8000 ? -v : v;
}

/* a byte has no order; the macro below needs a function all the same */
static uint8_t swap8(uint8_t x)
{
    return x;
}

/* False when x is finite and beyond float: that cast would be undefined. */
static bool fits(double x)
{
    return !(fabs(x) > (double)FLT_MAX) || isinf(x);
}

/* For each number: bytes -> word -> value of its type -> float. */
#define CONVERT(word, swap, type, value)                                 \
    for (int64_t i = 0; i < count; i++, p += sizeof(word)) {             \
        word bits;                                                       \
        type x;                                                          \
        memcpy(&bits, p, sizeof bits);                                   \
        if (t.big) bits = swap(bits);                                    \
        memcpy(&x, &bits, sizeof x);                                     \
        double v =                                                       \
            plain ? (double)value(x) : slope * (double)value(x) + inter; \
        if (!fits(v)) return i;                                          \
        out[i] = (float)v;                                               \
    }                                                                    \
    break

/* how the stored type becomes a number: as it is, or by half_value */
#define SAME(x) (x)

/* One switch outside, one loop inside: the type is constant in the loop. */
int64_t number_to_f32(const void *in, NumberType t, int64_t count, double slope,
                      double inter, float *out)
{
    const uint8_t *p = in;
    bool plain = slope == 1 && inter == 0;
    CHECK(number_known(t));
    switch (t.kind << 8 | t.bytes) {
    case 'u' << 8 | 1:
        CONVERT(uint8_t, swap8, uint8_t, SAME);
    case 'u' << 8 | 2:
        CONVERT(uint16_t, __builtin_bswap16, uint16_t, SAME);
    case 'u' << 8 | 4:
        CONVERT(uint32_t, __builtin_bswap32, uint32_t, SAME);
    case 'u' << 8 | 8:
        CONVERT(uint64_t, __builtin_bswap64, uint64_t, SAME);
    case 'i' << 8 | 1:
        CONVERT(uint8_t, swap8, int8_t, SAME);
    case 'i' << 8 | 2:
        CONVERT(uint16_t, __builtin_bswap16, int16_t, SAME);
    case 'i' << 8 | 4:
        CONVERT(uint32_t, __builtin_bswap32, int32_t, SAME);
    case 'i' << 8 | 8:
        CONVERT(uint64_t, __builtin_bswap64, int64_t, SAME);
    case 'f' << 8 | 2:
        CONVERT(uint16_t, __builtin_bswap16, uint16_t, half_value);
    case 'f' << 8 | 4:
        CONVERT(uint32_t, __builtin_bswap32, float, SAME);
    case 'f' << 8 | 8:
        CONVERT(uint64_t, __builtin_bswap64, double, SAME);
    }
    return -1;
}

/* only for the types that a volume keeps as they are */
void number_copy(const void *in, NumberType t, int64_t count, void *out)
{
    CHECK(t.bytes <= 2);
    memcpy(out, in, (size_t)count * (size_t)t.bytes);
    if (!t.big || t.bytes == 1) return;
    uint16_t *x = out;
    for (int64_t i = 0; i < count; i++) x[i] = __builtin_bswap16(x[i]);
}
