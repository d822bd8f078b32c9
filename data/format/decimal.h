/* decimal.h -- numbers in text, whatever the locale of the host program is.
 *
 * Reading is correctly rounded to double, as strtod is in the C locale, and
 * takes decimal numbers only: no hexadecimal, no "nan", no "inf". Printing is
 * the shortest text that reads back as the same float. */
#ifndef SEG_DATA_FORMAT_DECIMAL_H
#define SEG_DATA_FORMAT_DECIMAL_H
#include "engine/base/mem.h"

/* Characters of the longest number that is read, far above what any program
 * writes: the longest exact double has 767 digits. */
enum { DECIMAL_LONGEST = 1000 };

/* The longest number that text[0 .. n) begins with:
 *     [+-] digits [. digits] [e [+-] digits],   a digit before the e
 * Its value is in *out, an infinity when it is beyond double. Returns its
 * characters; 0, and *out as it was, when there is none. */
size_t decimal_read(const char *text, size_t n, double *out);

/* Where text [p, end) begins: behind the mark that programs of Windows put in
 * front of UTF-8, when there is one. */
const char *text_begin(const char *p, const char *end);

/* v, finite, with as few digits as tell it from all other floats, in the form
 * that Python prints: 0.438, 6.0, 1e-07. Returns the characters before the
 * ending 0. */
enum { DECIMAL_TEXT = 24 };
size_t decimal_print(float v, char text[DECIMAL_TEXT]);
#endif
