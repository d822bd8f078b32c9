/* charset.c -- code extensions of ISO 2022 as used in DICOM: bytes below 80 are
 * characters of the set G0, bytes from A0 on of G1, and an escape sequence
 * designates another set as G0 or G1. A separator of values restores the
 * initial sets (PS3.5 6.1.2.5.3). */
#include "data/dicom/charset.h"
#include "engine/base/utf8.h"
#include <ctype.h>
#include <errno.h>
#include <iconv.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { ESCAPE = 27 };

// Sets without a table: those without a right half, and those of two bytes per
// character.
enum {
    NO_SET = CHARSET_TABLES,
    ASCII,
    JIS_X_0208,
    JIS_X_0212,
    KS_X_1001,
    GB_2312,
    GB_18030, // these two do not use ISO 2022
    UTF_8,
    UNKNOWN,
};

// Registered numbers of the standard's terms, ISO_IR 100 or ISO 2022 IR 100,
// and the escape sequence that designates a set as G0 or G1.
static const struct {
    int number;
    uint8_t set;
    bool right; // designated as G1
    char escape[4];
} sets[] = {
    {6, ASCII, false, "(B"},
    {14, ASCII, false, "(J"}, // except yen and overline at \ and ~
    {13, CHARSET_KATAKANA, true, ")I"},
    {100, CHARSET_LATIN_1, true, "-A"},
    {101, CHARSET_LATIN_2, true, "-B"},
    {109, CHARSET_LATIN_3, true, "-C"},
    {110, CHARSET_LATIN_4, true, "-D"},
    {144, CHARSET_CYRILLIC, true, "-L"},
    {127, CHARSET_ARABIC, true, "-G"},
    {126, CHARSET_GREEK, true, "-F"},
    {138, CHARSET_HEBREW, true, "-H"},
    {148, CHARSET_LATIN_5, true, "-M"},
    {166, CHARSET_THAI, true, "-T"},
    {203, CHARSET_LATIN_9, true, "-b"},
    {87, JIS_X_0208, false, "$B"},
    {87, JIS_X_0208, false, "$@"}, // of 1978
    {159, JIS_X_0212, false, "$(D"},
    {149, KS_X_1001, true, "$)C"},
    {58, GB_2312, true, "$)A"},
    {192, UTF_8, true, ""},
};
enum { SETS = sizeof sets / sizeof *sets };

// state of the conversion
typedef struct Reader {
    const unsigned char *p, *end;
    char *out;
    uint8_t left, right;             // current sets in G0 and G1
    uint8_t first_left, first_right; // sets at the start
    bool person;
    unsigned odd;
    iconv_t converter; // for the set `opened`, if that is a set
    uint8_t opened;
} Reader;

// ---- output -----------------------------------------------------------------

static void put_code(Reader *r, uint32_t code)
{
    // controls of both blocks would reach a terminal
    if (code < 32 || (code >= 127 && code < 160)) code = '?';
    r->out += utf8_put(r->out, code);
}

// writes n bytes as \xNN
static void put_bytes(Reader *r, size_t n, unsigned why)
{
    r->odd |= why;
    for (; n && r->p < r->end; n--)
        r->out += sprintf(r->out, "\\x%02x", *r->p++);
}

// ---- sets of several bytes per character ------------------------------------

// Opens the converter of a set, once per text, and keeps it until another set
// needs one; false: this machine has none.
static bool open_converter(Reader *r, uint8_t set)
{
    const char *name = set == GB_2312 || set == GB_18030 ? "GB18030"
                       : set == KS_X_1001                ? "EUC-KR"
                                                         : "EUC-JP";
    if (r->opened != set) {
        if (r->opened != NO_SET && r->converter != (iconv_t)-1)
            iconv_close(r->converter);
        r->converter = iconv_open("UTF-8", name);
        r->opened = set;
    }
    return r->converter != (iconv_t)-1;
}

// Converts one character of `n` bytes in the file; `bytes` is its form for the
// converter.
static void put_letter(Reader *r, uint8_t set, size_t n,
                       const unsigned char *bytes, size_t length)
{
    char letter[8], *in = (char *)(uintptr_t)bytes, *out = letter;
    size_t left = length, room = sizeof letter;
    uint32_t code;

    if (!open_converter(r, set)) {
        put_bytes(r, n, CHARSET_NO_CONVERTER);
        return;
    }
    iconv(r->converter, NULL, NULL, NULL, NULL);

    if (iconv(r->converter, &in, &left, &out, &room) == (size_t)-1 || left ||
        out == letter || !utf8_length(letter, out, &code) ||
        (code >= 0x80 && code < 0xA0)) {
        // the last three of four bytes may be characters by themselves
        put_bytes(r, n == 4 ? 1 : n, CHARSET_DAMAGED);
        return;
    }

    memcpy(r->out, letter, (size_t)(out - letter));
    r->out += out - letter;
    r->p += n;
}

// converts the two bytes at r->p, both in the upper half if `high`, else in the
// lower
static void put_pair(Reader *r, uint8_t set, bool high)
{
    unsigned char euc[3];
    const unsigned char flip = high ? 0x80 : 0;
    size_t n = 0;

    for (int i = 0; i < 2; i++)
        if (r->end - r->p < 2 || (r->p[i] ^ flip) < 0x21 ||
            (r->p[i] ^ flip) > 0x7E) {
            put_bytes(r, 1, CHARSET_DAMAGED);
            return;
        }

    // EUC-JP has JIS X 0212 after a prefix byte
    if (set == JIS_X_0212) euc[n++] = 0x8F;
    euc[n++] = r->p[0] | 0x80;
    euc[n++] = r->p[1] | 0x80;
    put_letter(r, set, 2, euc, n);
}

// GB 18030 and its subset GBK: one, two or four bytes
static void read_gb(Reader *r)
{
    while (r->p < r->end) {
        const unsigned char *p = r->p;
        const ptrdiff_t left = r->end - p;
        if (*p < 0x80) {
            put_code(r, *r->p++);
            continue;
        }
        size_t n = left >= 2 && p[1] >= 0x40 ? 2 : 4;
        if ((ptrdiff_t)n > left)
            put_bytes(r, 1, CHARSET_DAMAGED);
        else
            put_letter(r, GB_18030, n, p, n);
    }
}

// ---- ISO 2022 ---------------------------------------------------------------

// Reads the escape sequence at r->p; the first byte of a sequence that DICOM
// does not define becomes '?'.
static void read_escape(Reader *r)
{
    for (int i = 0; i < SETS; i++) {
        const size_t n = strlen(sets[i].escape);
        if (!n || (size_t)(r->end - r->p) < n + 1 ||
            memcmp(r->p + 1, sets[i].escape, n))
            continue;
        *(sets[i].right ? &r->right : &r->left) = sets[i].set;
        r->p += n + 1;
        return;
    }
    r->odd |= CHARSET_DAMAGED;
    put_code(r, *r->p++);
}

// Does the byte separate values, lines or, for PN, components of the name?
static bool separates(const Reader *r, unsigned char c)
{
    return strchr("\\\t\n\f\r", c) || (r->person && (c == '^' || c == '='));
}

static void read_iso_2022(Reader *r)
{
    while (r->p < r->end) {
        const unsigned char c = *r->p;
        if (c == ESCAPE) {
            read_escape(r);
        } else if (c < 0x80) {
            // blanks and controls are in no set of two bytes
            if (r->left != ASCII && c > ' ' && c < 127) {
                put_pair(r, r->left, false);
                continue;
            }
            if (c && separates(r, c))
                r->left = r->first_left, r->right = r->first_right;
            put_code(r, *r->p++);
        } else if (r->right > NO_SET) {
            put_pair(r, r->right, true);
        } else if (r->right == NO_SET || c < 0xA0 ||
                   !charset_table[r->right][c - 0xA0]) {
            put_bytes(r, 1, CHARSET_DAMAGED);
        } else {
            put_code(r, charset_table[r->right][c - 0xA0]);
            r->p++;
        }
    }
}

// ---- choice of the set ------------------------------------------------------

// copies valid UTF-8, and writes other bytes as \xNN
static void read_utf8(Reader *r, unsigned why)
{
    while (r->p < r->end) {
        uint32_t code;
        int n = utf8_length((const char *)r->p, (const char *)r->end, &code);
        if (!n) {
            put_bytes(r, 1, why);
        } else if (code < 160) {
            put_code(r, code);
            r->p += n;
        } else {
            memcpy(r->out, r->p, (size_t)n);
            r->out += n, r->p += n;
        }
    }
}

// The set of the first value of SpecificCharacterSet, in which a text starts.
// Writers vary the separators around the number: "ISO-IR 100", "ISO_IR_100".
static uint8_t set_of(const char *term)
{
    char text[17];
    size_t n = 0;
    for (; *term && *term != '\\' && n < sizeof text - 1; term++)
        if (isalnum((unsigned char)*term))
            text[n++] = (char)toupper((unsigned char)*term);
    text[n] = 0;
    if (!n) return ASCII;
    if (!strncmp(text, "GB", 2)) return GB_18030;
    if (!strcmp(text, "UTF8")) return UTF_8;
    const char *number = strstr(text, "IR");
    for (int i = 0; number && i < SETS; i++) {
        char want[12];
        snprintf(want, sizeof want, "%d", sets[i].number);
        if (!strcmp(number + 2, want)) return sets[i].set;
    }
    return UNKNOWN;
}

static bool beyond_ascii(const Reader *r)
{
    for (const unsigned char *p = r->p; p < r->end; p++)
        if (*p > 127) return true;
    return false;
}

const char *charset_utf8(Arena *arena, const char *p, size_t n, const char *set,
                         bool person, unsigned *odd)
{
    // a byte becomes at most four: \xNN
    size_t room;
    *odd = 0;
    char *text = size_mul(n, 4, &room) ? arena_alloc(arena, room + 1) : NULL;
    if (!text) return NULL;
    Reader r = {.p = (const unsigned char *)p,
                .end = (const unsigned char *)p + n,
                .out = text,
                .person = person,
                .opened = NO_SET,
                .left = ASCII,
                .right = NO_SET};
    uint8_t first = set_of(set);

    // characters beyond ASCII then need an escape sequence
    if (first == ASCII && beyond_ascii(&r) && !memchr(p, ESCAPE, n)) {
        r.odd = CHARSET_UNDECLARED;
        first = utf8_is(p, p + n) ? UTF_8 : CHARSET_LATIN_1;
    } else if (first == UNKNOWN && beyond_ascii(&r)) {
        r.odd = CHARSET_UNKNOWN;
        first = UTF_8;
    }

    if (first == GB_18030) {
        read_gb(&r);
    } else if (first == UTF_8) {
        read_utf8(&r, r.odd ? r.odd : CHARSET_DAMAGED);
    } else {
        // sets of two bytes in G0 are only selected by an escape
        if (first < NO_SET || first == KS_X_1001 || first == GB_2312)
            r.right = first;
        r.first_left = r.left, r.first_right = r.right;
        read_iso_2022(&r);
    }

    if (r.opened != NO_SET && r.converter != (iconv_t)-1)
        iconv_close(r.converter);
    *r.out = 0;
    *odd = r.odd;
    return text;
}
