/* npy.c -- a header that is a Python literal, then numbers.
 *
 * The header is `{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }`.
 * Only that form is understood: a dictionary with these three keys, each
 * once, in any order. */
#include "npy.h"
#include "file.h"
#include "number.h"
#include <stdio.h>
#include <string.h>

enum { MAGIC = 6, ALIGN = 64, LONGEST_HEADER = 1 << 20 };
static const int64_t most_elements = (int64_t)1 << 33;
static const uint64_t most_bytes = (uint64_t)16 << 30;

/* What the header says. */
typedef struct Header {
    NumberType type;
    bool fortran;
    int axes;
    int64_t shape[NPY_AXES];
    unsigned seen; /* bit k: key k was met */
} Header;

/* The literal that is left to read. */
typedef struct Text {
    const char *p, *end;
} Text;

static void skip_space(Text *t)
{
    while (t->p < t->end && strchr(" \t\r\n", *t->p) && *t->p) t->p++;
}

/* Pass over `c`, with space before it; false without a reason. */
static bool accept(Text *t, char c)
{
    skip_space(t);
    if (t->p == t->end || *t->p != c) return false;
    t->p++;
    return true;
}

/* "at 'xyz...'": where the literal stopped making sense. */
static bool unexpected(const Text *t, const char *wanted)
{
    char rest[17] = "";
    size_t n = (size_t)(t->end - t->p) < 16 ? (size_t)(t->end - t->p) : 16;
    for (size_t i = 0; i < n; i++)
        rest[i] = t->p[i] >= ' ' && t->p[i] < 127 ? t->p[i] : '?';
    return fail_data("header is not the dictionary of an array: %s wanted at "
                     "\"%s\"",
                     wanted, rest);
}

static bool expect(Text *t, char c)
{
    char wanted[] = {'\'', c, '\'', 0};
    return accept(t, c) || unexpected(t, wanted);
}

/* A quoted word without escapes, at most `room` - 1 characters.
 * word[room] gets the characters between the quotes, which must be a pair */
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

/* '<f4' and the like. */
static bool read_descr(Text *t, NumberType *type)
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
    // the mark of the byte order may be absent
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
    *type = (NumberType){p[0] == 'b' && bytes == 1 ? 'u' : p[0], bytes,
                         order == '>'};
    // one byte has no order; more bytes must say theirs
    if (!one || !number_known(*type) || (bytes > 1 && order == '|'))
        return fail_data("descr '%s' is no type that is read; fix: save "
                         "a.astype('float32')",
                         d);
    return true;
}

/* Python's spelling, no other */
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

/* (), (3,), (3, 4): extents without sign; 3L is how Python 2 wrote some. */
static bool read_shape(Text *t, Header *h)
{
    if (!expect(t, '(')) return false;
    h->axes = 0;
    while (!accept(t, ')')) {
        int64_t n = 0;
        if (accept(t, '-')) return fail_data("shape has an extent below 0");
        // no digit at all is not an extent
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

/* The whole literal; each key is looked for wherever it stands, and read by
 * its own function. */
static bool read_header(Text t, Header *h)
{
    static const char *keys[] = {"descr", "fortran_order", "shape"};
    *h = (Header){.axes = 0};
    if (!expect(&t, '{')) return false;
    while (!accept(&t, '}')) {
        char key[32];
        unsigned k = 0;
        if (!quoted(&t, key, sizeof key) || !expect(&t, ':')) return false;
        while (k < 3 && strcmp(key, keys[k])) k++;
        if (k == 3) return fail_data("header has the unknown key '%s'", key);
        if (h->seen >> k & 1)
            return fail_data("header has the key '%s' twice", key);
        h->seen |= 1u << k;
        if (!(k == 0   ? read_descr(&t, &h->type)
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
        if (!(h->seen >> k & 1))
            return fail_data("header lacks the key '%s'", keys[k]);
    return true;
}

/* Where the literal is, and where the numbers begin.
 * *t is the literal, *begin the first byte of numbers. Nothing is trusted
 * but what lies inside `size`. */
static bool frame(const uint8_t *b, size_t size, Text *t, size_t *begin)
{
    if (!size) return fail_data("file is empty");
    if (size >= 4 && !memcmp(b, "PK\3\4", 4))
        return fail_data("a .npz archive, need one .npy array; fix: "
                         "numpy.save(path, archive['name'])");
    if (size < MAGIC + 2 || memcmp(b, "\x93NUMPY", MAGIC))
        return fail_data("not .npy: the first bytes are not \\x93NUMPY");
    int major = b[MAGIC], minor = b[MAGIC + 1];
    if (major < 1 || major > 3 || minor)
        return fail_data("version %d.%d, need 1.0, 2.0 or 3.0", major, minor);
    // the length of the header has two bytes in version 1, four later
    size_t at = MAGIC + 2, wide = major == 1 ? 2 : 4, length = 0;
    if (size < at + wide)
        return fail_data("file ends inside the header, at byte %zu", size);
    for (size_t i = 0; i < wide; i++) length |= (size_t)b[at + i] << (8 * i);
    at += wide;
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

/* y = x with its first axis slowest instead of fastest.
 * Counts through y in its own order and follows in x with one index, which
 * moves by the stride of each axis. */
static void reorder(const Header *h, const float *x, float *y)
{
    int64_t stride[NPY_AXES], index[NPY_AXES] = {0}, from = 0, total = 1;
    for (int a = 0; a < h->axes; a++) {
        stride[a] = total;
        total *= h->shape[a];
    }
    for (int64_t i = 0; i < total; i++) {
        y[i] = x[from];
        // count up in C order, the last axis first
        for (int a = h->axes - 1; a >= 0; a--) {
            from += stride[a];
            if (++index[a] < h->shape[a]) break;
            from -= stride[a] * h->shape[a];
            index[a] = 0;
        }
    }
}

/* Number of elements, within the limit and exactly as many as are there.
 * An exact match, both ways: a file that is longer than its header says is
 * as suspect as one that was cut. */
static bool count_elements(const Header *h, size_t bytes, int64_t limit,
                           int64_t *count)
{
    *count = 1;
    for (int a = 0; a < h->axes; a++) {
        if (h->shape[a] < 1)
            return fail_data("an empty array: axis %d has extent 0", a);
        if (h->shape[a] > limit / *count)
            return fail_data("more than %lld elements", (long long)limit);
        *count *= h->shape[a];
    }
    // the limit keeps this far below 2^64
    uint64_t need = (uint64_t)*count * (uint64_t)h->type.bytes;
    if (need != bytes)
        return fail_data("%zu bytes of numbers, the header declares %llu",
                         bytes, (unsigned long long)need);
    return true;
}

/* First C order as in the file, then, for Fortran order, a copy: twice the
 * memory, but such files are rare. */
static bool decode(const uint8_t *b, size_t size, int64_t limit, NpyArray *out)
{
    Header h;
    Text t;
    size_t begin = 0;
    int64_t count;
    if (!frame(b, size, &t, &begin) || !read_header(t, &h) ||
        !count_elements(&h, size - begin, limit, &count))
        return false;
    float *x = mem_alloc((size_t)count * sizeof *x);
    if (!x) return false;
    int64_t bad = number_to_f32(b + begin, h.type, count, 1, 0, x);
    if (bad >= 0) {
        mem_free(x);
        return fail_data("element %lld does not fit a float", (long long)bad);
    }
    // with one axis both orders are the same
    if (h.fortran && h.axes > 1) {
        float *y = mem_alloc((size_t)count * sizeof *y);
        if (y) reorder(&h, x, y);
        mem_free(x);
        if (!y) return false;
        x = y;
    }
    *out = (NpyArray){.axes = h.axes, .count = count, .data = x};
    memcpy(out->shape, h.shape, sizeof h.shape);
    return true;
}

/* the limit comes before any allocation */
bool npy_decode(const uint8_t *bytes, size_t size, int64_t max_elements,
                NpyArray *out)
{
    *out = (NpyArray){0};
    int64_t limit = max_elements > 0 ? max_elements : most_elements;
    return decode(bytes, size, limit, out) || within("npy");
}

/* reasons grow outwards: path, then npy, then what */
bool npy_read(const char *path, NpyArray *out)
{
    Arena mem = {0};
    char *data = NULL;
    size_t size;
    *out = (NpyArray){0};
    bool ok = file_read(path, (size_t)most_bytes, &mem, &data, &size)
                  ? npy_decode((uint8_t *)data, size, 0, out)
                  : within("npy");
    arena_release(&mem);
    return ok || within("%s", path);
}

/* The length of the literal is below 2^16, as version 1 wants. Its end is
 * padded with spaces and closed by a newline, as numpy does, so that the
 * numbers begin at a multiple of ALIGN. */
bool npy_write(const char *path, int axes, const int64_t *shape,
               const float *data)
{
    // eight extents of twenty characters and the rest stay below 256
    char literal[320];
    size_t count = 1, bytes, all;
    int n;
    CHECK(axes >= 0 && axes <= NPY_AXES);
    n = snprintf(literal, sizeof literal,
                 "{'descr': '<f4', 'fortran_order': False, 'shape': (");
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
    if (!size_mul(count, sizeof *data, &bytes) || !size_add(begin, bytes, &all))
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
