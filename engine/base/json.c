/* json.c -- the tokens of JSON, and trees.
 *
 * Every read of a character follows a comparison with r->end. The parser of
 * trees recurses to a bounded depth; the tokens do not recurse. */
#include "engine/base/json.h"
#include "engine/base/utf8.h"
#include <stdint.h>
#include <string.h>

/* == tokens ============================================================= */

bool json_wrong(const JsonReader *r, const char *what)
{
    return fail_data("%s: %s at byte %zu", r->what, what,
                     (size_t)(r->p - r->start));
}

// strchr would find the zero at the end of its list, hence the first test
void json_space(JsonReader *r)
{
    while (r->p < r->end && *r->p && strchr(" \t\r\n", *r->p)) r->p++;
}

bool json_next(JsonReader *r, char c)
{
    json_space(r);
    if (r->p == r->end || *r->p != c) return false;
    r->p++;
    return true;
}

bool json_expect(JsonReader *r, char c)
{
    char what[] = "expected ' '";
    what[10] = c; // between the quotes
    return json_next(r, c) || json_wrong(r, what);
}

bool json_more(JsonReader *r, char close, bool *more)
{
    *more = !json_next(r, close);
    return !*more || json_expect(r, ',');
}

/* Four hex digits of a \u escape, of either case. */
static bool parse_hex(JsonReader *r, uint32_t *code)
{
    static const char digits[] = "0123456789abcdefABCDEF";
    *code = 0;
    for (int i = 0; i < 4; i++, r->p++) {
        const char *at = r->p < r->end && *r->p ? strchr(digits, *r->p) : NULL;
        if (!at) return json_wrong(r, "expected a hex digit");
        uint32_t v = (uint32_t)(at - digits); // 16..21: A..F
        *code = *code << 4 | (v < 16 ? v : v - 6);
    }
    return true;
}

/* Decodes the escape after a backslash to UTF-8 at *out and advances *out. */
static bool parse_escape(JsonReader *r, char **out)
{
    // pairs: the character in the text, the character that it means
    static const char plain[] = "\"\"\\\\//b\bf\fn\nr\rt\t";
    uint32_t c, low;

    for (const char *e = plain; *e; e += 2)
        if (r->p < r->end && *r->p == *e) {
            *(*out)++ = e[1];
            r->p++;
            return true;
        }

    if (r->p == r->end || *r->p != 'u') return json_wrong(r, "unknown escape");
    r->p++;
    if (!parse_hex(r, &c)) return false;

    if (c >= 0xd800 && c < 0xdc00) {
        // a character beyond 0xffff takes two escapes
        bool pair = r->end - r->p >= 2 && r->p[0] == '\\' && r->p[1] == 'u';
        if (!pair) return json_wrong(r, "half of a surrogate pair");
        r->p += 2;
        if (!parse_hex(r, &low)) return false;
        if (low < 0xdc00 || low > 0xdfff)
            return json_wrong(r, "half of a surrogate pair");
        c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
    } else if (c >= 0xdc00 && c < 0xe000) {
        return json_wrong(r, "half of a surrogate pair");
    }

    // strings end with a zero: one inside would hide the rest
    if (!c) return json_wrong(r, "zero character in text");
    *out += utf8_put(*out, c);
    return true;
}

bool json_text(JsonReader *r, const char **text)
{
    uint32_t code;
    if (!json_expect(r, '"')) return false;
    char *out = r->text;
    *text = out;

    for (;;) {
        if (r->p == r->end) return json_wrong(r, "text without an end");
        if (*r->p == '"') break;
        if ((unsigned char)*r->p < 0x20)
            return json_wrong(r, "control character in text");
        if (*r->p == '\\') {
            r->p++;
            if (!parse_escape(r, &out)) return false;
            continue;
        }
        int n = utf8_length(r->p, r->end, &code);
        if (!n) return json_wrong(r, "text is not UTF-8");
        memmove(out, r->p, (size_t)n);
        out += n;
        r->p += n;
    }

    r->p++;
    *out++ = 0;
    r->text = out;
    return true;
}

/* == trees ============================================================== */

/* A number in JSON's grammar: no leading zeros, digits on both sides of the
 * point. Its text is kept, as the caller decides how many digits count. */
static bool parse_number(JsonReader *r, JsonValue *v)
{
    const char *first = r->p, *digits;
    char *out = r->text;
    // one or more digits
#define DIGITS                                                    \
    digits = r->p;                                                \
    while (r->p < r->end && *r->p >= '0' && *r->p <= '9') r->p++; \
    if (r->p == digits) return json_wrong(r, "expected a value")
    if (*r->p == '-') r->p++;
    DIGITS;
    if (*digits == '0' && r->p > digits + 1)
        return json_wrong(r, "number with a leading zero");
    if (r->p < r->end && *r->p == '.') {
        r->p++;
        DIGITS;
    }
    if (r->p < r->end && (*r->p == 'e' || *r->p == 'E')) {
        r->p++;
        if (r->p < r->end && (*r->p == '+' || *r->p == '-')) r->p++;
        DIGITS;
    }
#undef DIGITS
    const size_t n = (size_t)(r->p - first);
    memcpy(out, first, n);
    out[n] = 0;
    r->text = out + n + 1;
    v->kind = JSON_NUMBER;
    v->text = out;
    return true;
}

/* true, false or null. */
static bool parse_word(JsonReader *r, JsonValue *v)
{
    static const struct {
        const char *word;
        JsonKind kind;
    } words[] = {
        {"true", JSON_TRUE}, {"false", JSON_FALSE}, {"null", JSON_NULL}};

    for (int i = 0; i < 3; i++) {
        const size_t n = strlen(words[i].word);
        if ((size_t)(r->end - r->p) < n || memcmp(r->p, words[i].word, n))
            continue;
        r->p += n;
        v->kind = words[i].kind;
        return true;
    }
    return json_wrong(r, "expected a value");
}

static bool parse_value(JsonReader *r, Arena *mem, int depth, JsonValue *v);

/* Reads the members of an object or the elements of an array, after its
 * bracket. */
static bool parse_members(JsonReader *r, Arena *mem, int depth, JsonValue *v)
{
    const bool table = v->kind == JSON_TABLE;
    const char close = table ? '}' : ']';
    JsonValue **last = &v->first;
    int members = 0;

    for (bool more = !json_next(r, close); more;) {
        JsonValue *one = ARENA_NEW(mem, JsonValue, 1);
        if (!one) return false;
        one->name = one->text = "";
        if (table && (!json_text(r, &one->name) || !json_expect(r, ':')))
            return false;
        if (table && ++members > JSON_MEMBERS)
            return json_wrong(r, "too many members of a table");
        if (table && json_get(v, one->name))
            return fail_data("%s: \"%.60s\" twice", r->what, one->name);
        if (!parse_value(r, mem, depth + 1, one)) return false;
        *last = one;
        last = &one->next;
        if (!json_more(r, close, &more)) return false;
    }
    return true;
}

static bool parse_value(JsonReader *r, Arena *mem, int depth, JsonValue *v)
{
    if (depth > JSON_DEPTH) return json_wrong(r, "nested too deeply");
    json_space(r);
    const char c = r->p < r->end ? *r->p : 0;
    if (c == '"') {
        v->kind = JSON_TEXT;
        return json_text(r, &v->text);
    }
    if (c == '{' || c == '[') {
        r->p++;
        v->kind = c == '{' ? JSON_TABLE : JSON_LIST;
        return parse_members(r, mem, depth, v);
    }

    if (c == '-' || (c >= '0' && c <= '9')) return parse_number(r, v);
    return parse_word(r, v);
}

bool json_parse(const char *text, const char *what, Arena *mem, JsonValue **out)
{
    const size_t n = strlen(text);
    JsonReader r = {.start = text, .p = text, .end = text + n, .what = what};

    // a number needs a byte more than it has characters: its final 0
    r.text = arena_alloc(mem, 2 * n + 2);
    JsonValue *v = ARENA_NEW(mem, JsonValue, 1);
    if (!r.text || !v) return false;
    v->name = v->text = "";
    if (!parse_value(&r, mem, 1, v)) return false;
    json_space(&r);
    if (r.p != r.end) return json_wrong(&r, "text after the end");
    *out = v;
    return true;
}

const JsonValue *json_get(const JsonValue *table, const char *name)
{
    if (!table || table->kind != JSON_TABLE) return NULL;
    for (const JsonValue *v = table->first; v; v = v->next)
        if (!strcmp(v->name, name)) return v;
    return NULL;
}

const char *json_kind(const JsonValue *v)
{
    static const char *const kind[] = {"null",   "true",   "false",  "a number",
                                       "a text", "a list", "a table"};
    return kind[v->kind];
}
