/* decimal.h -- numbers in text, independent of the locale of the host program.
 *
 * Reading is correctly rounded to double, as strtod is in the C locale, and
 * takes decimal numbers only: no hexadecimal, no "nan", no "inf". Printing is
 * the shortest text that reads back as the same float. */
#ifndef SEG_DATA_FORMAT_DECIMAL_H
#define SEG_DATA_FORMAT_DECIMAL_H
#include "engine/base/mem.h"

/* Characters of the longest number that is accepted, far above any number that
 * a program writes: the longest exact double has 767 digits. */
enum { DECIMAL_LONGEST = 1000 };

/* Reads the longest number at the start of text[0 .. n):
 *     [+-] digits [. digits] [e [+-] digits],   a digit before the e
 * Sets *out to its value, or to an infinity when it is beyond double. Returns
 * the number of characters; 0, with *out unchanged, when there is no number. */
size_t decimal_read(const char *text, size_t n, double *out);

/* Returns the beginning of text [p, end): after the byte order mark that
 * Windows programs write before UTF-8, if there is one. */
const char *text_begin(const char *p, const char *end);

/* Writes v, finite, with the fewest digits that distinguish it from all other
 * floats, in the format of Python: 0.438, 6.0, 1e-07. Returns the number of
 * characters before the terminating 0. */
enum { DECIMAL_TEXT = 24 };
size_t decimal_print(float v, char text[DECIMAL_TEXT]);
#endif
