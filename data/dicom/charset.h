/* charset.h -- texts of DICOM as UTF-8, from any set of characters
 * that SpecificCharacterSet (0008,0005) may name (PS3.3 C.12.1.1.2, PS3.5
 * 6.1).
 *
 * Single-byte sets are tables of our own. Chinese, Japanese and Korean
 * letters of two and more bytes are converted by iconv of the C library,
 * which loads its converters from files: on a machine that lacks them such
 * letters are shown as their bytes. */
#ifndef SEG_DATA_DICOM_CHARSET_H
#define SEG_DATA_DICOM_CHARSET_H
#include "engine/base/mem.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Ways in which a text is odd. A byte for which no letter was found stands in
 * the result as four characters, \xNN: texts that differ in the file differ
 * there, so that two patients never become one. */
enum {
    CHARSET_UNDECLARED = 1,   /* beyond ASCII, and no set is named: UTF-8 where
                               * it is that, else ISO 8859-1 */
    CHARSET_UNKNOWN = 2,      /* the set is none we know; UTF-8, or \xNN */
    CHARSET_DAMAGED = 4,      /* bytes that the set does not have: \xNN */
    CHARSET_NO_CONVERTER = 8, /* iconv of this machine lacks the set: \xNN */
};

/* n bytes of a file as valid UTF-8 in the arena, control characters as '?'.
 * `set`: the value of SpecificCharacterSet with its backslashes, "" for none.
 * `person`: of VR PN, in which ^ and = end an escape to another set as a
 * backslash does. *odd = CHARSET_... of this text. NULL only without memory. */
const char *charset_utf8(Arena *arena, const char *p, size_t n, const char *set,
                         bool person, unsigned *odd);

/* The single-byte sets: the letter of byte 0xA0 + i, 0 when there is none. */
enum {
    CHARSET_LATIN_1,
    CHARSET_LATIN_2,
    CHARSET_LATIN_3,
    CHARSET_LATIN_4,
    CHARSET_CYRILLIC,
    CHARSET_ARABIC,
    CHARSET_GREEK,
    CHARSET_HEBREW,
    CHARSET_LATIN_5,
    CHARSET_THAI,
    CHARSET_LATIN_9,
    CHARSET_KATAKANA,
    CHARSET_TABLES
};
extern const uint16_t charset_table[CHARSET_TABLES][96];
#endif
