/* utf8.h -- text of files, one character after the other. */
#ifndef SEG_ENGINE_BASE_UTF8_H
#define SEG_ENGINE_BASE_UTF8_H
#include <stdbool.h>
#include <stdint.h>

/* Bytes of the character that p (below `end`) begins with, itself in *code; 0:
 * not UTF-8, which is also what is longer than needed, half of a pair of
 * UTF-16, or beyond the last character. */
int utf8_length(const char *p, const char *end, uint32_t *code);

/* Write a character (up to 0x10ffff) at `out`, which has room for four bytes;
 * how many it took. */
int utf8_put(char *out, uint32_t code);

/* Is [p, end) UTF-8 from one end to the other? */
bool utf8_is(const char *p, const char *end);

/* Bytes of a text that are not UTF-8 become '?': a name that was cut to fit may
 * end in half a letter. */
void utf8_mend(char *text);
#endif
