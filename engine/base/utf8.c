/* utf8.c -- strict UTF-8 (RFC 3629). */
#include "engine/base/utf8.h"
#include <string.h>

int utf8_length(const char *p, const char *end, uint32_t *code)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    unsigned char c = (unsigned char)*p;
    int n = c < 0x80 ? 1 : c < 0xc0 ? 0 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;

    if (!n || c > 0xf4 || end - p < n) return 0;
    *code = n == 1 ? c : c & (0x7fu >> n);
    for (int i = 1; i < n; i++) {
        if ((p[i] & 0xc0) != 0x80) return 0;
        *code = *code << 6 | ((unsigned char)p[i] & 0x3f);
    }

    // overlong, surrogate, or beyond the last character: with two encodings of
    // one text, it would pass for two names
    bool bad = *code < least[n] || *code > 0x10ffff ||
               (*code >= 0xd800 && *code < 0xe000);
    return bad ? 0 : n;
}

// the first byte starts with as many ones as there are bytes, the others with
// 10
int utf8_put(char *out, uint32_t code)
{
    const int n = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (int i = n - 1; i > 0; i--, code >>= 6)
        out[i] = (char)(0x80 | (code & 0x3f));
    out[0] = (char)(n == 1 ? code : (0xf00u >> n & 0xf0) | code);
    return n;
}

bool utf8_is(const char *p, const char *end)
{
    uint32_t code;
    for (int n; p < end; p += n)
        if (!(n = utf8_length(p, end, &code))) return false;
    return true;
}

void utf8_mend(char *text)
{
    uint32_t code;
    const char *end = text + strlen(text);
    for (int n; text < end; text += n ? n : 1)
        if (!(n = utf8_length(text, end, &code))) *text = '?';
}
