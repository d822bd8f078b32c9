/* utf8.h -- UTF-8: decode, encode, check. */
#ifndef SEG_ENGINE_BASE_UTF8_H
#define SEG_ENGINE_BASE_UTF8_H
#include <stdbool.h>
#include <stdint.h>

/* Returns the bytes of the character at p (below `end`) and stores it in *code;
 * 0: not valid UTF-8 (also overlong, a surrogate, or above U+10FFFF). */
int utf8_length(const char *p, const char *end, uint32_t *code);

/* Writes a character (up to 0x10ffff) at `out`, which has room for four bytes;
 * returns the number of bytes. */
int utf8_put(char *out, uint32_t code);

/* Is all of [p, end) valid UTF-8? */
bool utf8_is(const char *p, const char *end);

/* Replaces bytes that are not UTF-8 by '?': a name that was cut to fit may end
 * inside a character. */
void utf8_mend(char *text);
#endif
