/* safetensors_header.c -- reads and writes the JSON in front of the data.
 *
 * The header is parsed by hand: its grammar is fixed and three levels deep, so
 * nothing here recurses, and anything outside the grammar is an error. The
 * parser only collects; rules between entries (unique names, no gap, no
 * overlap) are checked afterwards by header_sort and header_places.
 *
 * Input is untrusted: it may be any bytes. Every read of a character follows a
 * comparison with r->end, every number is checked while it grows, and no
 * decoded string is longer than its form in the header (an escape is never
 * shorter than its character), so one buffer of the header's size holds all
 * strings. */
#include "engine/checkpoint/safetensors_header.h"
#include "engine/base/json.h"
#include "engine/base/utf8.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// extents come from a file: their product may overflow
bool header_tensor_bytes(const StTensor *t, size_t *bytes)
{
    *bytes = st_type_bytes(t->type);
    for (int i = 0; i < t->axes; i++)
        if (!size_mul(*bytes, (size_t)t->shape[i], bytes)) return false;
    return true;
}

// -- text ---------------------------------------------------------------------

/* A name or key: 1 to 256 bytes of UTF-8 that are safe on a terminal: control
 * characters (C0, DEL, C1) could move its cursor or change its title. */
bool header_name_check(const char *what, const char *name)
{
    size_t n = strlen(name);
    if (n < 1 || n > ST_NAME)
        return fail_data("%s of %zu bytes (1 to %d are allowed)", what, n,
                         ST_NAME);
    uint32_t code;

    for (const char *p = name, *end = name + n; p < end;) {
        int step = utf8_length(p, end, &code);
        if (!step || code < 0x20 || (code >= 0x7f && code < 0xa0))
            return fail_data("%s with byte 0x%02x, which is not printable",
                             what, (unsigned char)*p);
        p += step;
    }
    return true;
}

// -- the header ---------------------------------------------------------------

typedef struct Parser {
    JsonReader json;              // the header, length in front included
    const char *crc;              // digits of the header's checksum, or NULL
    Safetensors *f;               // receives the entries
    int tensors_room, pairs_room; // capacity of f's arrays
} Parser;

/* Parses an integer from 0 to 2^63-1 without sign, point or exponent. */
static bool parse_integer(JsonReader *r, int64_t *out)
{
    json_space(r);
    const char *first = r->p;
    *out = 0;
    for (; r->p < r->end && *r->p >= '0' && *r->p <= '9'; r->p++)
        if (__builtin_mul_overflow(*out, 10, out) ||
            __builtin_add_overflow(*out, *r->p - '0', out))
            return json_wrong(r, "number over 2^63-1");
    if (r->p == first) return json_wrong(r, "expected a number, 0 or more");

    // JSON does not allow 007: each number has one form
    if (*first == '0' && r->p > first + 1)
        return json_wrong(r, "number with a leading zero");
    return true;
}

/* Parses "[1, 2, 3]" of at most `room` numbers; *count = room + 1 if more. */
static bool parse_list(JsonReader *r, int64_t *list, int room, int *count)
{
    int64_t extra;
    bool more;
    *count = 0;
    if (!json_expect(r, '[')) return false;
    if (json_next(r, ']')) return true;

    do {
        // extra numbers are still parsed, for the better reason
        bool fits = *count < room;
        if (!parse_integer(r, fits ? list + *count : &extra)) return false;
        if (*count <= room) ++*count;
        if (!json_more(r, ']', &more)) return false;
    } while (more);
    return true;
}

/* Parses the element type. */
static bool parse_type(JsonReader *r, StTensor *t)
{
    const char *name;
    if (!json_text(r, &name)) return false;
    for (int i = 0; i < ST_TYPE_COUNT; i++)
        if (!strcmp(name, st_type_name((StType)i))) {
            t->type = (StType)i;
            return true;
        }
    return fail_data("tensor \"%s\" has type \"%.32s\", which is not known "
                     "(F64 F32 F16 BF16 I64 I32 I16 I8 U8 BOOL are)",
                     t->name, name);
}

/* Parses {"dtype": text, "shape": [...], "data_offsets": [begin, end]}, the
 * fields in any order, each once. t->name is set before. */
static bool parse_tensor(JsonReader *r, StTensor *t)
{
    static const char *const keys[] = {"dtype", "shape", "data_offsets"};
    enum { TYPE, SHAPE, OFFSETS, KEYS };
    bool seen[KEYS] = {false};
    int64_t place[2] = {0};
    int count;
    if (!json_expect(r, '{')) return false;

    for (bool more = !json_next(r, '}'); more;) {
        const char *key;
        if (!json_text(r, &key)) return false;
        int k = 0;
        while (k < KEYS && strcmp(key, keys[k])) k++;
        if (k == KEYS)
            return fail_data("tensor \"%s\" has an unknown field \"%.32s\"",
                             t->name, key);
        if (seen[k])
            return fail_data("tensor \"%s\" has \"%s\" twice", t->name, key);
        seen[k] = true;
        if (!json_expect(r, ':')) return false;
        if (k == TYPE && !parse_type(r, t)) return false;
        if (k == SHAPE && !parse_list(r, t->shape, ST_AXES, &t->axes))
            return false;
        if (t->axes > ST_AXES)
            return fail_data("tensor \"%s\" has more than %d axes", t->name,
                             ST_AXES);
        if (k == OFFSETS && !parse_list(r, place, 2, &count)) return false;
        if (k == OFFSETS && count != 2)
            return fail_data("data_offsets of tensor \"%s\" are not two "
                             "numbers",
                             t->name);
        if (!json_more(r, '}', &more)) return false;
    }

    // all fields are known only here, so they are compared here
    for (int k = 0; k < KEYS; k++)
        if (!seen[k])
            return fail_data("tensor \"%s\" has no \"%s\"", t->name, keys[k]);

    // header_places and safetensors.c compare it with the end of the data
    if (place[0] > place[1])
        return fail_data("tensor \"%s\" ends before it begins", t->name);
    if (!header_tensor_bytes(t, &t->bytes))
        return fail_data("tensor \"%s\": %s", t->name, err_text());
    if ((uint64_t)(place[1] - place[0]) != t->bytes)
        return fail_data("tensor \"%s\" has %lld bytes, its shape needs %zu",
                         t->name, (long long)(place[1] - place[0]), t->bytes);
    t->at = (uint64_t)place[0];
    return true;
}

/* Returns an array with room for one more element, doubled if needed; NULL with
 * a reason. The old array stays in the arena until the file is closed. */
static void *grown(Arena *mem, void *array, int count, int *room, size_t size)
{
    if (count < *room) return array;
    int more = *room ? *room * 2 : 64;
    void *wider = arena_array(mem, size, (size_t)more);
    if (wider && count) memcpy(wider, array, (size_t)count * size);
    if (wider) *room = more;
    return wider;
}

/* Parses {"key": "text", ...} into f->meta. */
static bool parse_metadata(Parser *r)
{
    JsonReader *j = &r->json;
    Safetensors *f = r->f;
    if (!json_expect(j, '{')) return false;

    for (bool more = !json_next(j, '}'); more;) {
        if (f->meta.count == ST_ENTRIES)
            return fail_data("more than %d pairs of metadata", ST_ENTRIES);
        f->meta.pair = grown(&f->mem, f->meta.pair, f->meta.count,
                             &r->pairs_room, sizeof *f->meta.pair);
        if (!f->meta.pair) return false;
        MetaPair *pair = f->meta.pair + f->meta.count++;
        if (!json_text(j, &pair->key)) return false;
        if (!header_name_check("metadata key", pair->key)) return false;
        if (!json_expect(j, ':')) return false;
        json_space(j);
        const char *raw = j->p;
        if (j->p < j->end && *j->p != '"')
            return fail_data("metadata \"%s\" is not text", pair->key);
        if (!json_text(j, &pair->value)) return false;
        if (!strcmp(pair->key, HEADER_CRC)) {
            // its digits are zeroed in place, so they must not contain escapes
            if (j->p - raw != HEADER_DIGITS + 2)
                return fail_data("metadata \"%s\" is not %d hex digits",
                                 HEADER_CRC, HEADER_DIGITS);
            r->crc = raw + 1;
        }
        if (!json_more(j, '}', &more)) return false;
    }
    return true;
}

/* Parses the outermost object: tensors, and the metadata at most once. Spaces
 * after it are padding; anything else there is an error. */
static bool parse_header(Parser *r)
{
    JsonReader *j = &r->json;
    Safetensors *f = r->f;
    bool seen_metadata = false;

    // no space is allowed before the first brace
    if (j->p == j->end || *j->p != '{') return json_wrong(j, "expected '{'");
    j->p++;

    for (bool more = !json_next(j, '}'); more;) {
        const char *name;
        if (!json_text(j, &name) || !json_expect(j, ':')) return false;
        if (!strcmp(name, HEADER_METADATA)) {
            if (seen_metadata)
                return fail_data("%s appears twice", HEADER_METADATA);
            seen_metadata = true;
            if (!parse_metadata(r)) return false;
        } else {
            if (!header_name_check("tensor name", name)) return false;
            if (f->count == ST_ENTRIES)
                return fail_data("more than %d tensors", ST_ENTRIES);
            f->tensor = grown(&f->mem, f->tensor, f->count, &r->tensors_room,
                              sizeof *f->tensor);
            if (!f->tensor) return false;
            StTensor *t = f->tensor + f->count++;
            *t = (StTensor){.name = name};
            if (!parse_tensor(j, t)) return false;
        }
        if (!json_more(j, '}', &more)) return false;
    }

    while (j->p < j->end && *j->p == ' ') j->p++;
    return j->p == j->end || json_wrong(j, "something after the last '}'");
}

bool header_parse(const char *head, size_t bytes, Safetensors *f,
                  const char **crc)
{
    Parser r = {.json = {.start = head,
                         .p = head + HEADER_LENGTH,
                         .end = head + bytes,
                         .what = "header"},
                .f = f};
    // a decoded string with its final 0 is never longer than with its quotes,
    // so all of them fit
    r.json.text = arena_alloc(&f->mem, bytes);
    if (!r.json.text || !parse_header(&r)) return false;
    *crc = r.crc;
    return true;
}

// bytewise: the order of a file must not depend on the locale
static int by_name(const void *a, const void *b)
{
    const StTensor *x = a, *y = b;
    return strcmp(x->name, y->name);
}

static int by_key(const void *a, const void *b)
{
    const MetaPair *x = a, *y = b;
    return strcmp(x->key, y->key);
}

bool header_sort(StTensor *tensor, int count, MetaPair *pair, int pairs)
{
    if (count) qsort(tensor, (size_t)count, sizeof *tensor, by_name);
    if (pairs) qsort(pair, (size_t)pairs, sizeof *pair, by_key);
    // equal names are adjacent after sorting
    for (int i = 1; i < count; i++)
        if (!by_name(tensor + i - 1, tensor + i))
            return fail_data("tensor \"%s\" appears twice", tensor[i].name);
    for (int i = 1; i < pairs; i++)
        if (!by_key(pair + i - 1, pair + i))
            return fail_data("metadata \"%s\" appears twice", pair[i].key);
    return true;
}

static int by_place(const void *a, const void *b)
{
    const StTensor *x = *(StTensor *const *)a, *y = *(StTensor *const *)b;
    // an empty tensor comes before one that begins at the same byte, otherwise
    // the two would seem to overlap
    if (x->at != y->at) return x->at < y->at ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

bool header_places(Safetensors *f, uint64_t *end)
{
    uint64_t at = 0; // end of the previous tensor
    *end = 0;

    // the list itself keeps the order of names
    if (!f->count) return true;
    StTensor **order = ARENA_NEW(&f->mem, StTensor *, f->count);
    if (!order) return false;
    for (int i = 0; i < f->count; i++) order[i] = f->tensor + i;
    qsort(order, (size_t)f->count, sizeof *order, by_place);

    for (int i = 0; i < f->count; at = order[i]->at + order[i]->bytes, i++) {
        const StTensor *t = order[i];
        if (t->at > at)
            return fail_data(
                "%llu bytes before tensor \"%s\" belong to no tensor",
                (unsigned long long)(t->at - at), t->name);
        if (t->at < at)
            return fail_data("tensors \"%s\" and \"%s\" overlap",
                             order[i - 1]->name, t->name);
    }

    *end = at;
    return true;
}

// -- writing ------------------------------------------------------------------

/* A growing string; `ok` is false from the first failure on. */
typedef struct Text {
    char *p;
    size_t count, room;
    bool ok;
} Text;

/* Appends n bytes. */
static void put(Text *t, const char *p, size_t n)
{
    if (!t->ok) return;
    if (t->room - t->count < n) {
        size_t room = t->room + n + t->room / 2 + 4096;
        char *wider = mem_realloc(t->p, room);
        t->ok = wider;
        if (!wider) return;
        t->p = wider;
        t->room = room;
    }
    memcpy(t->p + t->count, p, n);
    t->count += n;
}

/* Appends a string unchanged. */
static void put_plain(Text *t, const char *p)
{
    put(t, p, strlen(p));
}

/* Appends `p` in quotes; text that is not UTF-8 fails with a reason. */
static void put_text(Text *t, const char *p, const char *what)
{
    const char *start = p, *end = p + strlen(p);
    uint32_t code;
    char escape[8];

    put_plain(t, "\"");
    for (int n; t->ok && p < end; p += n) {
        n = utf8_length(p, end, &code);
        if (!n)
            t->ok = fail_data("%s is not UTF-8 at byte %zu", what,
                              (size_t)(p - start));
        else if (code == '"' || code == '\\')
            put(t, (char[]){'\\', *p}, 2);
        else if (code == '\n')
            put_plain(t, "\\n");
        else if (code < 0x20 || code == 0x7f)
            put(t, escape,
                (size_t)snprintf(escape, sizeof escape, "\\u%04x", code));
        else
            put(t, p, (size_t)n);
    }
    put_plain(t, "\"");
}

/* Appends one entry, always in this form: equal content gives equal bytes. */
static void put_tensor(Text *t, const StTensor *e)
{
    char number[64];
    put_text(t, e->name, "tensor name");
    put_plain(t, ":{\"dtype\":\"");
    put_plain(t, st_type_name(e->type));
    put_plain(t, "\",\"shape\":[");
    for (int i = 0; i < e->axes; i++) {
        snprintf(number, sizeof number, "%s%lld", i ? "," : "",
                 (long long)e->shape[i]);
        put_plain(t, number);
    }

    snprintf(number, sizeof number, "],\"data_offsets\":[%llu,%llu]}",
             (unsigned long long)e->at, (unsigned long long)(e->at + e->bytes));
    put_plain(t, number);
}

bool header_print(const StTensor *tensor, int count, const MetaPair *pair,
                  int pairs, char **head, size_t *bytes)
{
    Text t = {.ok = true};
    char what[ST_NAME + 16];

    // room for the length, which is known at the end
    put(&t, "\0\0\0\0\0\0\0\0{", HEADER_LENGTH + 1);

    for (int i = 0; i < pairs; i++) {
        put_plain(&t, i ? "," : "\"" HEADER_METADATA "\":{");
        snprintf(what, sizeof what, "metadata \"%s\"", pair[i].key);
        put_text(&t, pair[i].key, "metadata key");
        put_plain(&t, ":");
        put_text(&t, pair[i].value, what);
    }

    if (pairs) put_plain(&t, "}");
    for (int i = 0; i < count; i++) {
        if (i || pairs) put_plain(&t, ",");
        put_tensor(&t, tensor + i);
    }
    put_plain(&t, "}");

    // the data starts aligned, for readers that map the file
    while (t.ok && t.count % ST_ALIGN) put_plain(&t, " ");
    uint64_t length = t.count - HEADER_LENGTH;
    if (t.ok && length > ST_HEADER)
        t.ok = fail("the header would have %llu bytes (at most %d are "
                    "allowed)",
                    (unsigned long long)length, ST_HEADER);
    if (!t.ok) {
        mem_free(t.p);
        return false;
    }
    memcpy(t.p, &length, HEADER_LENGTH);
    *head = t.p;
    *bytes = t.count;
    return true;
}
