/* text.h -- texts written to a DICOM file: valid names of segments, and texts
 * of another file converted to UTF-8. */
#ifndef SEG_DATA_DICOM_TEXT_H
#define SEG_DATA_DICOM_TEXT_H
#include "engine/base/mem.h"
#include <stdbool.h>
#include <stdint.h>

/* Maximum length of a SegmentLabel, a Long String (PS3.5, table 6.2-1), in
 * characters, not bytes. */
enum { SEGMENT_NAME_MAX = 64 };

/* Can the `bytes` at `name` be the label of segment `number` (from 1)? It must
 * be UTF-8, 1 to 64 characters that are not all blank, without control
 * characters and without backslash, which separates values. Else false with a
 * usage error that gives the segment, the problem and the fix. */
bool segment_name_check(const char *name, size_t bytes, int32_t number);

/* True if no byte is above 127 and no escape selects another set: the same text
 * in every DICOM character set. */
bool text_is_ascii(const char *p, size_t n);

/* Returns n bytes of a file with SpecificCharacterSet `set` ("" if absent) as
 * UTF-8; `person`: the VR is PN. If the text has any anomaly (charset_utf8),
 * *known = false and NULL without a reason, because the written text must mean
 * the same as the source. NULL with *known true: out of memory, with a
 * reason. */
const char *text_as_utf8(Arena *arena, const char *p, size_t n, const char *set,
                         bool person, bool *known);
#endif
