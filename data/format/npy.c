/* npy.c -- parses a header that is a Python literal, followed by numbers.
 *
 * The header is `{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }`.
 * Only this form is accepted: a dictionary with these three keys, each once, in
 * any order. */
#include "data/format/npy.h"
#include "data/format/columns.h"
#include "engine/base/file.h"
#include <stdio.h>
#include <string.h>

enum { MAGIC = 6, ALIGN = 64, LONGEST_HEADER = 1 << 20 };
static const int64_t most_elements = (int64_t)1 << 33;
static const uint64_t most_bytes = (uint64_t)16 << 30;

_Static_assert((int)NPY_AXES <= (int)COLUMNS_AXES, "every array is walked");

/* The rest of the literal. */
typedef struct Text {
    const char *p, *end;
} Text;

static void skip_space(Text *t)
{
    while (t->p < t->end && strchr(" \t\r\n", *t->p) && *t->p) t->p++;
}

/* Consumes `c`, and the space before it; false without a reason. */
static bool accept(Text *t, char c)
{
    skip_space(t);
    if (t->p == t->end || *t->p != c) return false;
    t->p++;
    return true;
}

/* Fails with "at 'xyz...'": the position of the syntax error. */
static bool unexpected(const Text *t, const char *wanted)
{
    char rest[17] = "";
    size_t n = (size_t)(t->end - t->p) < 16 ? (size_t)(t->end - t->p) : 16;
    for (size_t i = 0; i < n; i++)
        rest[i] = t->p[i] >= ' ' && t->p[i] < 127 ? t->p[i] : '?';
    return fail_data(
        "header is not the dictionary of an array: expected %s at \"%s\"",
        wanted, rest);
}

static bool expect(Text *t, char c)
{
    char wanted[] = {'\'', c, '\'', 0};
    return accept(t, c) || unexpected(t, wanted);
}

/* Reads a quoted word without escapes, of at most `room` - 1 characters, into
 * `word`; the two quotes must match. */
static bool quoted(Text *t, char *word, size_t room)
{
    skip_space(t);
    if (t->p == t->end || (*t->p != '\'' && *t->p != '"'))
        return unexpected(t, "a quoted word");
    char quote = *t->p;
    const char *begin = t->p + 1, *p = begin;
    while (p < t->end && *p != quote && *p != '\\') p++;
    size_t n = (size_t)(p - begin);
    if (p == t->end || *p != quote || n >= room)
        return unexpected(t, "a short quoted word");
    memcpy(word, begin, n);
    word[n] = 0;
    t->p = p + 1;
    return true;
}

/* Reads the type, such as '<f4'. */
static bool read_descr(Text *t, NpyHeader *h)
{
    static const struct {
        char letter;
        const char *name;
    } refused[] = {
        {'O', "Python objects (pickle), which could run anything"},
        {'S', "text"},
        {'a', "text"},
        {'U', "text"},
        {'c', "complex numbers"},
        {'M', "dates"},
        {'m', "time spans"},
        {'V', "raw bytes"},
    };
    char d[32];
    skip_space(t);
    if (t->p < t->end && (*t->p == '[' || *t->p == '('))
        return fail_data("a structured array, need plain numbers; fix: save "
                         "one field, as in numpy.save(path, a['field'])");
    if (!quoted(t, d, sizeof d)) return false;
    const char *p = d;
    // the byte order mark is optional
    bool marked = *p && strchr("<>|=", *p);
    char order = marked ? *p++ : '|';
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (*p == refused[i].letter)
            return fail_data("elements are %s (descr '%s'), need numbers; fix: "
                             "save a.astype('float32')",
                             refused[i].name, d);

    // a letter and one digit
    bool one = p[0] && p[1] >= '1' && p[1] <= '8' && !p[2];
    int bytes = one ? p[1] - '0' : 0;
    h->boolean = p[0] == 'b' && bytes == 1;
    h->type = (NumberType){h->boolean ? 'u' : p[0], bytes, order == '>'};

    // one byte has no order; wider types must have one
    if (!one || !number_known(h->type) || (bytes > 1 && order == '|'))
        return fail_data(
            "descr '%s' is not a supported type; fix: save a.astype('float32')",
            d);
    return true;
}

/* accepts only the spelling of Python */
static bool read_bool(Text *t, bool *value)
{
    skip_space(t);
    for (int k = 0; k < 2; k++) {
        const char *word = k ? "True" : "False";
        size_t n = strlen(word);
        if ((size_t)(t->end - t->p) < n || memcmp(t->p, word, n)) continue;
        t->p += n;
        *value = k;
        return true;
    }
    return unexpected(t, "True or False");
}

/* Reads (), (3,), (3, 4): extents without sign; Python 2 wrote some as 3L. */
static bool read_shape(Text *t, NpyHeader *h)
{
    if (!expect(t, '(')) return false;
    h->axes = 0;

    while (!accept(t, ')')) {
        int64_t n = 0;
        if (accept(t, '-')) return fail_data("shape has an extent below 0");
        // an extent needs at least one digit
        const char *begin = t->p;
        for (; t->p < t->end && *t->p >= '0' && *t->p <= '9'; t->p++) {
            if (n > (INT64_MAX - 9) / 10)
                return fail_data("shape has an extent beyond 64 bits");
            n = n * 10 + (*t->p - '0');
        }
        if (t->p == begin) return unexpected(t, "an extent");
        if (t->p < t->end && *t->p == 'L') t->p++;
        if (h->axes == NPY_AXES)
            return fail_data("shape has more than %d axes", NPY_AXES);
        h->shape[h->axes++] = n;
        if (accept(t, ',')) continue;
        // (3) is a number in Python, not a shape
        if (h->axes == 1) return unexpected(t, "','");
        if (!expect(t, ')')) return false;
        break;
    }
    return true;
}

/* Reads the whole literal; the keys may come in any order. */
static bool read_header(Text t, NpyHeader *h)
{
    static const char *keys[] = {"descr", "fortran_order", "shape"};
    unsigned seen = 0; // bit k: key k has been read
    if (!expect(&t, '{')) return false;

    while (!accept(&t, '}')) {
        char key[32];
        unsigned k = 0;
        if (!quoted(&t, key, sizeof key) || !expect(&t, ':')) return false;
        while (k < 3 && strcmp(key, keys[k])) k++;
        if (k == 3) return fail_data("header has the unknown key '%s'", key);
        if (seen >> k & 1)
            return fail_data("header has the key '%s' twice", key);
        seen |= 1u << k;
        if (!(k == 0   ? read_descr(&t, h)
              : k == 1 ? read_bool(&t, &h->fortran)
                       : read_shape(&t, h)))
            return false;
        if (accept(&t, ',')) continue;
        if (!expect(&t, '}')) return false;
        break;
    }

    skip_space(&t);
    if (t.p != t.end) return unexpected(&t, "the end of the header");
    for (unsigned k = 0; k < 3; k++)
        if (!(seen >> k & 1))
            return fail_data("header lacks the key '%s'", keys[k]);
    return true;
}

/* Returns the bytes before the literal: magic, version, and a length of two
 * bytes in version 1, four in later versions. */
static size_t prefix(int major)
{
    return MAGIC + 2 + (major == 1 ? 2 : 4);
}

/* Returns the length of the literal, from a file that has the whole prefix. */
static size_t literal_bytes(const uint8_t *b)
{
    size_t length = 0;
    for (size_t i = MAGIC + 2; i < prefix(b[MAGIC]); i++)
        length |= (size_t)b[i] << (8 * (i - MAGIC - 2));
    return length;
}

size_t npy_header_end(const uint8_t *b, size_t have)
{
    if (have < NPY_PREFIX || memcmp(b, "\x93NUMPY", MAGIC)) return have;
    size_t length = literal_bytes(b);
    return length > LONGEST_HEADER ? have : prefix(b[MAGIC]) + length;
}

/* Finds the literal and the beginning of the numbers. Every offset is checked
 * against `size`. */
static bool frame(const uint8_t *b, size_t size, Text *t, size_t *begin)
{
    if (!size) return fail_data("file is empty");
    if (size >= 4 && !memcmp(b, "PK\3\4", 4))
        return fail_data("a .npz archive, need one .npy array; fix: name it "
                         ".npz");
    if (size < MAGIC + 2 || memcmp(b, "\x93NUMPY", MAGIC))
        return fail_data("not .npy: the first bytes are not \\x93NUMPY");
    int major = b[MAGIC], minor = b[MAGIC + 1];
    if (major < 1 || major > 3 || minor)
        return fail_data("version %d.%d, need 1.0, 2.0 or 3.0", major, minor);
    size_t at = prefix(major);
    if (size < at)
        return fail_data("file ends inside the header, at byte %zu", size);
    size_t length = literal_bytes(b);
    if (length > LONGEST_HEADER)
        return fail_data("header of %zu bytes, limit %d", length,
                         LONGEST_HEADER);
    if (length > size - at)
        return fail_data("header of %zu bytes, only %zu left in the file",
                         length, size - at);
    *t = (Text){(const char *)b + at, (const char *)b + at + length};
    *begin = at + length;
    return true;
}

/* Counts the elements, within the limit. Their bytes must match exactly: a file
 * longer than its header declares is as suspect as a truncated one. */
static bool count_elements(NpyHeader *h, size_t bytes, int64_t limit)
{
    h->count = 1;
    for (int a = 0; a < h->axes; a++) {
        if (h->shape[a] < 1)
            return fail_data("an empty array: axis %d has extent 0", a);
        if (h->shape[a] > limit / h->count)
            return fail_data("more than %lld elements", (long long)limit);
        h->count *= h->shape[a];
    }

    // the limit keeps this far below 2^64
    uint64_t need = (uint64_t)h->count * (uint64_t)h->type.bytes;
    if (need != bytes)
        return fail_data("%zu bytes of numbers, the header declares %llu",
                         bytes, (unsigned long long)need);
    return true;
}

bool npy_about(const uint8_t *bytes, size_t have, size_t size,
               int64_t max_elements, NpyHeader *h)
{
    Text t;
    size_t begin = 0;
    *h = (NpyHeader){0};
    if (!frame(bytes, size, &t, &begin)) return within("npy");
    CHECK(begin <= have);
    h->begin = begin;
    return (read_header(t, h) &&
            count_elements(h, size - begin,
                           max_elements > 0 ? max_elements : most_elements)) ||
           within("npy");
}

const char *npy_type_name(const NpyHeader *h)
{
    static const char *name[3][4] = {{"int8", "int16", "int32", "int64"},
                                     {"uint8", "uint16", "uint32", "uint64"},
                                     {"", "float16", "float32", "float64"}};
    int width = h->type.bytes == 1   ? 0
                : h->type.bytes == 2 ? 1
                : h->type.bytes == 4 ? 2
                                     : 3;
    if (h->boolean) return "bool";
    return name[h->type.kind == 'i' ? 0 : h->type.kind == 'u' ? 1 : 2][width];
}

bool npy_open_bytes(const uint8_t *bytes, size_t size, int64_t max_elements,
                    NpyFile *f)
{
    *f = (NpyFile){0};
    if (!npy_about(bytes, size, size, max_elements, &f->header)) return false;
    f->numbers = bytes + f->header.begin;
    return true;
}

/* Opens a file of at most `limit` bytes (0: any); reasons without the path. */
static bool open_file(const char *path, uint64_t limit, NpyFile *f)
{
    Map map;
    *f = (NpyFile){0};
    if (!map_open(path, limit, &map)) return within("npy");
    if (!npy_open_bytes(map.bytes, map.size, 0, f)) {
        map_close(&map);
        return false;
    }
    f->map = map;
    return true;
}

bool npy_open(const char *path, NpyFile *f)
{
    return open_file(path, 0, f) || within("%s", path);
}

void npy_close(NpyFile *f)
{
    map_close(&f->map);
    *f = (NpyFile){0};
}

/* reasons without path and format */
static bool read_range(const NpyFile *f, int64_t first, int64_t count,
                       float *out)
{
    const NpyHeader *h = &f->header;
    if (first < 0 || count < 0 || first > h->count - count)
        return fail_data(
            "%lld elements from %lld on requested, the array has %lld",
            (long long)count, (long long)first, (long long)h->count);
    if (!map_check(&f->map)) return false;

    // with one axis both orders are the same
    int64_t bad =
        h->fortran && h->axes > 1
            ? columns_to_f32(f->numbers, h->type, h->axes, h->shape, first,
                             count, out)
            : number_to_f32(f->numbers + (size_t)first * (size_t)h->type.bytes,
                            h->type, count, 1, 0, out);
    if (bad >= 0)
        return fail_data("element %lld does not fit a float",
                         (long long)(first + bad));

    // NumPy writes only 0 and 1, so another byte is damage
    for (int64_t i = 0; h->boolean && i < count; i++)
        if (out[i] > 1)
            return fail_data("element %lld is %.0f, need False (0) or True (1)",
                             (long long)(first + i), (double)out[i]);
    return true;
}

bool npy_read_range(const NpyFile *f, int64_t first, int64_t count, float *out)
{
    if (read_range(f, first, count, out)) return true;
    within("npy");
    return map_within(&f->map);
}

/* Reads the whole array of an open file. */
static bool read_all(const NpyFile *f, NpyArray *out)
{
    const NpyHeader *h = &f->header;
    size_t bytes;
    if (!size_mul((size_t)h->count, sizeof *out->data, &bytes))
        return within("npy");
    float *x = mem_alloc(bytes);
    if (!x) return within("npy");
    if (!read_range(f, 0, h->count, x)) {
        mem_free(x);
        return within("npy");
    }
    *out = (NpyArray){.axes = h->axes, .count = h->count, .data = x};
    memcpy(out->shape, h->shape, sizeof h->shape);
    return true;
}

/* the limit comes before any allocation */
bool npy_decode(const uint8_t *bytes, size_t size, int64_t max_elements,
                NpyArray *out)
{
    NpyFile f;
    *out = (NpyArray){0};
    return npy_open_bytes(bytes, size, max_elements, &f) && read_all(&f, out);
}

/* reasons are extended outwards: path, then npy, then the problem */
bool npy_read(const char *path, NpyArray *out)
{
    NpyFile f;
    *out = (NpyArray){0};
    if (!open_file(path, most_bytes, &f)) return within("%s", path);
    bool ok = read_all(&f, out);
    npy_close(&f);
    return ok || within("%s", path);
}

/* The length of the literal is below 2^16, as required by version 1. It is
 * padded with spaces and ends in a newline, as in numpy, so that the numbers
 * begin at a multiple of ALIGN. */
bool npy_write_numbers(const char *path, Dtype type, int axes,
                       const int64_t *shape, const void *data)
{
    static const char *const descr[DTYPE_COUNT] = {
        [U8] = "|u1", [I16] = "<i2", [F32] = "<f4"};

    // eight extents of twenty characters and the rest fit in 256
    char literal[320];
    size_t count = 1, bytes, all;
    int n;

    CHECK(axes >= 0 && axes <= NPY_AXES && descr[type]);
    n = snprintf(literal, sizeof literal,
                 "{'descr': '%s', 'fortran_order': False, 'shape': (",
                 descr[type]);

    for (int a = 0; a < axes; a++) {
        CHECK(shape[a] >= 1);
        if (!size_mul(count, (size_t)shape[a], &count)) return false;
        n += snprintf(literal + n, sizeof literal - (size_t)n, "%s%lld",
                      a ? ", " : "", (long long)shape[a]);
    }

    n += snprintf(literal + n, sizeof literal - (size_t)n, "%s), }",
                  axes == 1 ? "," : "");

    // magic, version, length
    size_t before = MAGIC + 4;
    size_t begin = (before + (size_t)n + 1 + ALIGN - 1) / ALIGN * ALIGN;
    size_t length = begin - before;
    if (!size_mul(count, dtype_bytes(type), &bytes) ||
        !size_add(begin, bytes, &all))
        return false;
    uint8_t *file = mem_alloc(all);
    if (!file) return false;
    memcpy(file, "\x93NUMPY\1\0", MAGIC + 2);
    file[MAGIC + 2] = (uint8_t)length;
    file[MAGIC + 3] = (uint8_t)(length >> 8);
    memset(file + before, ' ', length - 1);
    memcpy(file + before, literal, (size_t)n);
    file[begin - 1] = '\n';
    memcpy(file + begin, data, bytes);
    bool ok = file_replace(path, file, all);
    mem_free(file);
    return ok || within("%s: npy", path);
}

bool npy_write(const char *path, int axes, const int64_t *shape,
               const float *data)
{
    return npy_write_numbers(path, F32, axes, shape, data);
}
