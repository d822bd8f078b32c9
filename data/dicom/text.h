/* text.h -- texts that go into a DICOM file: which names segments may
 * have, and texts of another file in the character set of this one. */
#ifndef SEG_DATA_DICOM_TEXT_H
#define SEG_DATA_DICOM_TEXT_H
#include "engine/base/mem.h"
#include <stdbool.h>
#include <stdint.h>

/* Letters of a SegmentLabel, a Long String (PS3.5, table 6.2-1); they are
 * counted as characters, not bytes. */
enum { SEGMENT_NAME_MAX = 64 };

/* Whether the `bytes` at `name` can be the label of segment `number` (from 1):
 * UTF-8, 1 to 64 characters that are not all blank, no control character, and
 * no backslash, which separates values. false: usage, naming the segment, what
 * was got and what to do. */
bool segment_name_check(const char *name, size_t bytes, int32_t number);

/* No byte above 127, and no escape to another set: the same text in every
 * character set of DICOM. */
bool text_is_ascii(const char *p, size_t n);

/* n bytes of a file whose SpecificCharacterSet is `set` ("" when it has none),
 * as UTF-8; `person`: of VR PN. *known = false, and NULL without a reason, when
 * anything is odd about it (charset_utf8): what is written must mean what the
 * source says. NULL and *known: no memory, with the reason. */
const char *text_as_utf8(Arena *arena, const char *p, size_t n, const char *set,
                         bool person, bool *known);
#endif
