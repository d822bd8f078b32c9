/* decimal.c -- conversion between decimal text and binary numbers.
 *
 * Nearly every number in a file has at most 19 digits and a small exponent.
 * Then mantissa and power of ten are both exact doubles, and the one division
 * or product of the two is the only rounding: the result is the double nearest
 * to the text. All other numbers go to strtod in the C locale, which is set for
 * this thread during that one call. */
#include "data/format/decimal.h"
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* powers of ten that a double holds exactly */
static const double tens[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                              1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                              1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
enum { MOST_TENS = 22, MOST_DIGITS = 19 };
static const uint64_t exact = (uint64_t)1 << 53; // whole numbers of a double

/* strtod of n characters that form one number */
static double slow_value(const char *text, size_t n)
{
    char copy[DECIMAL_LONGEST + 1];
    memcpy(copy, text, n);
    copy[n] = 0;
    locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    CHECK(plain != (locale_t)0); // the C locale is built in
    locale_t before = uselocale(plain);
    double v = strtod(copy, NULL);
    uselocale(before);
    freelocale(plain);
    return v;
}

size_t decimal_read(const char *text, size_t n, double *out)
{
    const char *p = text, *end = text + n;
    uint64_t mantissa = 0;
    bool minus = p < end && *p == '-';

    if (p < end && (*p == '-' || *p == '+')) p++;

    // 20 digits may overflow the mantissa; the digits are counted, and the
    // mantissa is then not used
    const char *digits = p;
    while (p < end && (unsigned)(*p - '0') < 10)
        mantissa = 10 * mantissa + (uint64_t)(*p++ - '0');
    ptrdiff_t count = p - digits;
    int tenths = 0;

    if (p < end && *p == '.') {
        const char *point = ++p;
        while (p < end && (unsigned)(*p - '0') < 10)
            mantissa = 10 * mantissa + (uint64_t)(*p++ - '0');
        if (p - point > DECIMAL_LONGEST) return 0;
        tenths = (int)(p - point);
        count += tenths;
    }

    if (!count) return 0;
    int power = -tenths;

    // an e without digits is not part of the number
    if (p < end && (*p == 'e' || *p == 'E')) {
        const char *q = p + 1;
        bool down = q < end && *q == '-';
        if (q < end && (*q == '-' || *q == '+')) q++;
        int e = 0;
        const char *first = q;
        // the exact value of a larger exponent is irrelevant
        for (; q < end && (unsigned)(*q - '0') < 10; q++)
            if (e < 100000) e = 10 * e + (*q - '0');
        if (q > first) {
            p = q;
            power += down ? -e : e;
        }
    }

    size_t used = (size_t)(p - text);
    if (used > DECIMAL_LONGEST) return 0;
    if (count > MOST_DIGITS || mantissa > exact || power > MOST_TENS ||
        power < -MOST_TENS) {
        *out = slow_value(text, used);
        return used;
    }

    double v = (double)mantissa;
    v = power < 0 ? v / tens[-power] : v * tens[power];
    *out = minus ? -v : v;
    return used;
}

/* Writes digits with a decimal point: value = 0.DIGITS * 10^point. */
static size_t spell(const char *digits, int count, int point, bool minus,
                    char text[DECIMAL_TEXT])
{
    char *p = text;
    if (minus) *p++ = '-';

    if (point > -4 && point <= 16) {
        // 0.00012, 12.5, 120.0
        if (point <= 0) {
            *p++ = '0', *p++ = '.';
            for (int i = point; i < 0; i++) *p++ = '0';
            memcpy(p, digits, (size_t)count);
            p += count;
        } else {
            for (int i = 0; i < point || i < count; i++) {
                if (i == point) *p++ = '.';
                *p++ = i < count ? digits[i] : '0';
            }
            if (count <= point) *p++ = '.', *p++ = '0';
        }
    } else {
        *p++ = digits[0];
        if (count > 1) *p++ = '.';
        memcpy(p, digits + 1, (size_t)count - 1);
        p += count - 1;
        // the exponent refers to the first digit
        int e = point - 1;
        *p++ = 'e', *p++ = e < 0 ? '-' : '+';
        if (e < 0) e = -e;
        *p++ = (char)('0' + e / 10), *p++ = (char)('0' + e % 10);
    }

    *p = 0;
    return (size_t)(p - text);
}

/* Increases the number of digits until the text reads back as v; nine digits
 * always do, because nine-digit decimals are closer together than floats. */
size_t decimal_print(float v, char text[DECIMAL_TEXT])
{
    bool minus = signbit(v);
    double size = fabs((double)v), back = 0;
    CHECK(isfinite(v));
    if (size == 0) return spell("0", 1, 1, minus, text);

    // 10^(point - 1) <= size < 10^point
    int point = (int)floor(log10(size)) + 1;

    for (int count = 1;; count++) {
        char digits[12];
        int shift = count - point, place = point;
        // in two factors where 10^shift is beyond double
        double scaled = shift > 300 ? size * 1e300 * pow(10, shift - 300)
                        : shift < 0 ? size / pow(10, -shift)
                                    : size * pow(10, shift);
        long whole = lround(scaled);
        // 999.6 rounds to one digit more
        int n = snprintf(digits, sizeof digits, "%ld", whole);
        place += n - count;
        while (n > 1 && digits[n - 1] == '0') n--;
        size_t used = spell(digits, n, place, minus, text);
        CHECK(decimal_read(text, used, &back) == used);
        if ((float)back == v) return used;
        CHECK(count < 9);
    }
}

const char *text_begin(const char *p, const char *end)
{
    return end - p >= 3 && !memcmp(p, "\xef\xbb\xbf", 3) ? p + 3 : p;
}
