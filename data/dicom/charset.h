/* charset.h -- converts DICOM text to UTF-8 from every character set that
 * SpecificCharacterSet (0008,0005) may name (PS3.3 C.12.1.1.2, PS3.5 6.1).
 *
 * Single-byte sets are tables of this program. Chinese, Japanese and Korean
 * characters of two or more bytes are converted by iconv of the C library,
 * which loads its converters from files: on a machine without the converters
 * such characters are shown as their bytes. */
#ifndef SEG_DATA_DICOM_CHARSET_H
#define SEG_DATA_DICOM_CHARSET_H
#include "engine/base/mem.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Anomalies of a text. A byte that has no character in its set becomes four
 * characters, \xNN, in the result. Texts that differ in the file therefore
 * differ after conversion, so that two patients never become one. */
enum {
    CHARSET_UNDECLARED = 1,   /* not ASCII, and no set is named: read as UTF-8
                               * if valid, else ISO 8859-1 */
    CHARSET_UNKNOWN = 2,      /* unknown set; UTF-8, or \xNN             */
    CHARSET_DAMAGED = 4,      /* bytes that the set lacks: \xNN         */
    CHARSET_NO_CONVERTER = 8, /* no iconv converter here: \xNN             */
};

/* Returns n bytes of a file as valid UTF-8 in the arena, with control
 * characters replaced by '?'. `set` is the value of SpecificCharacterSet with
 * its backslashes, "" if absent. `person`: the VR is PN, in which ^ and = also
 * reset the escape to another set, as a backslash does in every VR. *odd =
 * CHARSET_... of this text. NULL only when memory runs out. */
const char *charset_utf8(Arena *arena, const char *p, size_t n, const char *set,
                         bool person, unsigned *odd);

/* The single-byte sets: the Unicode character of byte 0xA0 + i; 0 if
 * undefined. */
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
