/* text.c -- checks names of segments, and converts texts to UTF-8. */
#include "data/dicom/text.h"
#include "data/dicom/charset.h"
#include "engine/base/err.h"
#include "engine/base/utf8.h"
#include <stdio.h>
#include <string.h>

// bytes of a name shown in an error: enough to recognise it
enum { SHOWN = 40, SHOWN_TEXT = 4 * SHOWN + 4 };

// A name as one printable line: bytes other than printable ASCII as \xNN,
// because a name may be cut within a character.
static const char *shown(const char *name, size_t n, char text[SHOWN_TEXT])
{
    char *out = text;
    for (size_t i = 0; i < n && i < SHOWN; i++) {
        const unsigned char c = (unsigned char)name[i];
        if (c < 32 || c > 126)
            out += snprintf(out, 5, "\\x%02x", c);
        else
            *out++ = (char)c;
    }
    strcpy(out, n > SHOWN ? "..." : "");
    return text;
}

bool segment_name_check(const char *name, size_t bytes, int32_t number)
{
    const char *end = name + bytes;
    char text[SHOWN_TEXT];
    int32_t letters = 0, blanks = 0;

    shown(name, bytes, text);
    for (const char *p = name; p < end; letters++) {
        uint32_t code;
        const int n = utf8_length(p, end, &code);
        if (!n)
            return fail_usage("name of segment %d, \"%s\", is not UTF-8 at "
                              "byte %zu; fix: save the recipe as UTF-8",
                              number, text, (size_t)(p - name) + 1);
        // the two blocks of controls, below the blank and above the tilde
        if (code < 32 || (code >= 127 && code < 160))
            return fail_usage("name of segment %d, \"%s\", has a control "
                              "character (code %u); fix: leave it out",
                              number, text, (unsigned)code);
        if (code == '\\')
            return fail_usage("name of segment %d, \"%s\", has a backslash, "
                              "which separates values in DICOM; fix: leave it "
                              "out",
                              number, text);
        blanks += code == ' ' || code == 160;
        p += n;
    }

    if (letters == blanks)
        return fail_usage("name of segment %d, \"%s\", is %s, and a segment of "
                          "DICOM must have one; fix: give it a name",
                          number, text, letters ? "blank" : "empty");
    if (letters > SEGMENT_NAME_MAX)
        return fail_usage("name of segment %d, \"%s\", has %d characters, at "
                          "most %d fit into DICOM; fix: shorten it",
                          number, text, letters, SEGMENT_NAME_MAX);
    return true;
}

bool text_is_ascii(const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)p[i] > 127 || p[i] == 27) return false;
    return true;
}

const char *text_as_utf8(Arena *arena, const char *p, size_t n, const char *set,
                         bool person, bool *known)
{
    unsigned odd;
    const char *text = charset_utf8(arena, p, n, set, person, &odd);
    *known = !odd;
    return odd ? NULL : text;
}
