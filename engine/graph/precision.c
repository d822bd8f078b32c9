/* precision.c -- see precision.h. Rounds in double, in which a float and its
 * neighbours are exact. */
#include "engine/graph/precision.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct Info {
    const char *name;
    int bits, least;
    Dtype type;
} Info;

static const Info info[PRECISION_COUNT] = {
#define X(name, bits, least, type) {#name, bits, least, type},
    PRECISIONS(X)
#undef X
};

const char *precision_name(Precision p)
{
    return info[p].name;
}

const char *precision_names(char out[PRECISION_NAMES])
{
    size_t at = 0;
    for (int i = 0; i < PRECISION_COUNT; i++) {
        const char *before = i == 0                     ? ""
                             : i == PRECISION_COUNT - 1 ? " or "
                                                        : ", ";
        at += (size_t)snprintf(out + at, PRECISION_NAMES - at, "%s%s", before,
                               info[i].name);
        CHECK(at < PRECISION_NAMES);
    }
    return out;
}

bool precision_find(const char *name, Precision *out)
{
    char names[PRECISION_NAMES];
    for (int i = 0; i < PRECISION_COUNT; i++) {
        if (strcmp(info[i].name, name)) continue;
        *out = (Precision)i;
        return true;
    }
    return fail_usage("precision \"%s\" is not known; use %s", name,
                      precision_names(names));
}

Dtype precision_copy(Precision p)
{
    return info[p].type;
}

/* Replacements: frexp and ldexp of libm take a tenth of a test's time. */

/* Returns 2^e, a normal double. */
static double two_to(int e)
{
    const uint64_t u = (uint64_t)(e + 1023) << 52;
    double v;
    memcpy(&v, &u, sizeof v);
    return v;
}

/* Returns e with |v| in [2^(e-1), 2^e); -1022 for a subnormal double. */
static int above(double v)
{
    uint64_t u;
    memcpy(&u, &v, sizeof u);
    return (int)(u >> 52 & 0x7ff) - 1022;
}

double precision_round(Precision p, double v)
{
    const int bits = info[p].bits, least = info[p].least;
    if (v == 0 || !isfinite(v)) return v;
    int e = above(v);

    // subnormal numbers have the spacing of the smallest normal number
    if (e < least + 1) e = least + 1;

    // adding and subtracting this rounds to an integer, ties to even
    const double places = v * two_to(bits - e), halves = 0x1.8p52;
    double r = p == PRECISION_tf32 ? round(places) : (places + halves) - halves;
    r = copysign(r * two_to(e - bits), v);

    // the first number out of range: 2^128, in f16 2^16
    const double end = two_to(p == PRECISION_f16 ? 16 : 128);
    return fabs(r) >= end ? copysign(INFINITY, v) : r;
}

double precision_value(Precision p, uint16_t word)
{
    int places = info[p].bits - 1; // of the stored fraction
    int field = word >> places & ((1 << (15 - places)) - 1);
    int fraction = word & ((1 << places) - 1);
    double sign = word >> 15 ? -1 : 1;
    if (field == (1 << (15 - places)) - 1) // infinity or NaN
        return fraction ? (double)NAN : sign * (double)INFINITY;
    if (field) fraction += 1 << places;
    return sign * fraction *
           two_to(info[p].least - places + (field ? field : 1) - 1);
}

uint16_t precision_bits(Precision p, double v)
{
    const int places = info[p].bits - 1;       // of the fraction
    const int most = (1 << (15 - places)) - 1; // exponent of infinity and NaN
    const unsigned sign = signbit(v) ? 0x8000 : 0;
    const double r = fabs(precision_round(p, v));

    if (isnan(r)) return (uint16_t)(sign | 0x7fff);
    if (isinf(r)) return (uint16_t)(sign | (unsigned)most << places);
    const int e = above(r);
    if (r == 0 || e - 1 < info[p].least) // subnormal: exponent field 0
        return (uint16_t)(sign |
                          (unsigned)(r * two_to(places - info[p].least)));
    const unsigned exponent = (unsigned)(e - info[p].least);
    const unsigned fraction = (unsigned)(r * two_to(places - (e - 1)));
    return (uint16_t)(sign | exponent << places |
                      (fraction & ((1u << places) - 1)));
}

/* Adds half a unit of the last place to the bits that are cut off; in a tie
 * only if the last bit that stays is odd. The carry goes into the exponent, up
 * to infinity. */
static uint16_t bf16_bits(uint32_t u)
{
    const uint32_t r = (u + 0x7fff + (u >> 16 & 1)) >> 16;
    return (uint16_t)((u & 0x7fffffff) > 0x7f800000 ? u >> 16 | 0x7fff : r);
}

/* Below the smallest normal number, adding 0.5 leaves multiples of 2^-24 in the
 * low bits, rounded by the addition; above it as bf16_bits. */
static uint16_t f16_bits(uint32_t u)
{
    const uint32_t size = u & 0x7fffffff, sign = u >> 16 & 0x8000;
    const uint32_t normal =
        (size - (112u << 23) + 0xfff + (size >> 13 & 1)) >> 13;
    float small;
    uint32_t places;

    memcpy(&small, &size, sizeof small);
    small += 0.5f;
    memcpy(&places, &small, sizeof places);
    places -= 126u << 23;
    const uint32_t finite = size < 113u << 23 ? places : normal;
    const uint32_t r = size >= 0x47800000 ? 0x7c00 : finite;
    return (uint16_t)(sign | (size > 0x7f800000 ? 0x7fff : r));
}

/* Runs over every batch; the loops have a form that compilers vectorise. */
void precision_narrow(Dtype type, const float *x, int64_t n, uint16_t *y)
{
    CHECK(type == BF16 || type == F16);
    for (int64_t i = 0; i < n; i++) {
        uint32_t u;
        memcpy(&u, x + i, sizeof u);
        y[i] = type == BF16 ? bf16_bits(u) : f16_bits(u);
    }
}

Precision precision_of_type(Dtype t)
{
    for (int p = 0; p < PRECISION_COUNT; p++)
        if (t != F32 && info[p].type == t) return (Precision)p;
    return PRECISION_f32;
}

double precision_unit(Precision p)
{
    return two_to(-info[p].bits);
}

double precision_least(Precision p)
{
    return two_to(info[p].least);
}
