/* mat.c -- parses the tagged elements of a .mat file.
 *
 * A file is a header of 128 bytes followed by one element per variable: a tag
 * (type and number of bytes), then data, padded to a multiple of 8. A matrix is
 * an element that contains elements: flags, extents, name, numbers. A
 * compressed element is a zlib stream of one matrix. Only this one level is
 * parsed. */
#include "data/format/mat.h"
#include "data/format/columns.h"
#include "data/format/gzip.h"
#include "data/format/unpack.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HEADER = 128, TAG = 8, HDF5_AT = 512 };
/* Limits of the elements before the numbers; START bytes are inflated to list
 * one variable, sufficient for the longest of these elements. */
enum { MOST_AXES = 32, LONGEST_NAME = 256, START = 512 };
enum { MOST_VARIABLES = 65536, SHOWN_NAMES = 10 };
static const int64_t most_elements = (int64_t)1 << 33;

/* Types of elements, table 1-1 of the format. */
enum {
    MI_INT8 = 1,
    MI_INT32 = 5,
    MI_UINT32 = 6,
    MI_MATRIX = 14,
    MI_COMPRESSED = 15,
    MI_UTF8 = 16,
    MI_COUNT
};
static const struct {
    const char *name;
    char kind; /* of number.h; 0: not numeric */
    int bytes;
} types[MI_COUNT] = {
    [1] = {"miINT8", 'i', 1},   [2] = {"miUINT8", 'u', 1},
    [3] = {"miINT16", 'i', 2},  [4] = {"miUINT16", 'u', 2},
    [5] = {"miINT32", 'i', 4},  [6] = {"miUINT32", 'u', 4},
    [7] = {"miSINGLE", 'f', 4}, [9] = {"miDOUBLE", 'f', 8},
    [12] = {"miINT64", 'i', 8}, [13] = {"miUINT64", 'u', 8},
    [14] = {"miMATRIX", 0, 0},  [15] = {"miCOMPRESSED", 0, 0},
    [16] = {"miUTF8", 0, 0},
};

/* Classes of arrays, table 1-3; classes with a kind are supported. */
enum { CLASS_OPAQUE = 17, CLASS_COUNT };
static const struct {
    const char *name, *refused;
    char kind;
    int bytes;
} classes[CLASS_COUNT] = {
    [1] = {"cell", "is a cell array, need numbers; fix: save a plain matrix", 0,
           0},
    [2] = {"struct", "is a struct, need numbers; fix: save a plain matrix", 0,
           0},
    [3] = {"object", "is an object, need numbers; fix: save a plain matrix", 0,
           0},
    [4] = {"char", "is text (char), need numbers; fix: save a plain matrix", 0,
           0},
    [5] = {"sparse",
           "is a sparse matrix, need numbers; fix: save a plain matrix", 0, 0},
    [6] = {"double", NULL, 'f', 8},
    [7] = {"single", NULL, 'f', 4},
    [8] = {"int8", NULL, 'i', 1},
    [9] = {"uint8", NULL, 'u', 1},
    [10] = {"int16", NULL, 'i', 2},
    [11] = {"uint16", NULL, 'u', 2},
    [12] = {"int32", NULL, 'i', 4},
    [13] = {"uint32", NULL, 'u', 4},
    [14] = {"int64", NULL, 'i', 8},
    [15] = {"uint64", NULL, 'u', 8},
    [16] = {"function", "is a function, need numbers; fix: save a plain matrix",
            0, 0},
    [17] = {"opaque", "is an object, need numbers; fix: save a plain matrix", 0,
            0},
};
enum { FLAG_LOGICAL = 2, FLAG_COMPLEX = 8 };

/* An element: its `bytes` bytes of data begin `at` bytes into its matrix. */
typedef struct Element {
    uint32_t type;
    size_t at, bytes;
} Element;

/* Parser state of one matrix. Offsets in reasons count from its own start. */
typedef struct Parts {
    const uint8_t *p;
    size_t at, have, size; /* `have` bytes of `size` are at p */
    bool big;
} Parts;

/* Reads the next tag. Up to four bytes of data are stored in the tag itself if
 * the upper half of its first word, their number, is not 0. */
static bool next_element(Parts *m, const char *what, Element *e)
{
    size_t left = m->size - m->at;
    if (left < TAG)
        return fail_data("ends inside the tag of its %s, at its byte %zu", what,
                         m->at);

    // START is large enough for the listed elements
    CHECK(m->have - m->at >= TAG);
    uint32_t type = number_u32(m->p + m->at, m->big);
    bool small = type >> 16;
    e->type = type & 0xffff;
    e->bytes = small ? type >> 16 : number_u32(m->p + m->at + 4, m->big);
    e->at = m->at + (small ? 4 : TAG);
    if (small && e->bytes > 4)
        return fail_data("small element of %zu bytes for its %s, need at most "
                         "4",
                         e->bytes, what);
    if (!small && e->bytes > left - TAG)
        return fail_data("tag of its %s says %zu bytes, only %zu left", what,
                         e->bytes, left - TAG);

    // padded to a multiple of 8, but not after the last element
    size_t whole = small ? TAG : TAG + (e->bytes + 7) / 8 * 8;
    m->at += whole < left ? whole : left;
    return true;
}

static const char *type_name(uint32_t type)
{
    return type < MI_COUNT && types[type].name ? types[type].name : "unknown";
}

static bool wrong_type(const Element *e, const char *what, const char *wanted)
{
    return fail_data("its %s are of type %u (%s), need %s", what, e->type,
                     type_name(e->type), wanted);
}

/* Reads class and flags: two words. */
static bool read_flags(Parts *m, MatVariable *v)
{
    Element e;
    if (!next_element(m, "flags", &e)) return false;
    if (e.type != MI_UINT32) return wrong_type(&e, "flags", "miUINT32");
    if (e.bytes != 8)
        return fail_data("its flags have %zu bytes, need 8", e.bytes);
    uint32_t word = number_u32(m->p + e.at, m->big);
    v->class_number = word & 255;
    v->flags = word >> 8 & 255;
    v->complex = v->flags & FLAG_COMPLEX;
    if (v->class_number >= CLASS_COUNT || !classes[v->class_number].name)
        return fail_data("class %d is not known", v->class_number);
    v->class_name = v->flags & FLAG_LOGICAL && classes[v->class_number].kind
                        ? "logical"
                        : classes[v->class_number].name;
    return true;
}

/* Reads the extents; beyond NPY_AXES they are counted but not kept. */
static bool read_shape(Parts *m, MatVariable *v)
{
    Element e;
    if (!next_element(m, "extents", &e)) return false;

    // some writers store them as unsigned
    if (e.type != MI_INT32 && e.type != MI_UINT32)
        return wrong_type(&e, "extents", "miINT32");
    if (e.bytes % 4 || e.bytes < 8 || e.bytes > 4 * MOST_AXES)
        return fail_data("its extents have %zu bytes, need 4 for each of 2 to "
                         "%d axes",
                         e.bytes, MOST_AXES);
    v->axes = (int)(e.bytes / 4);
    for (int a = 0; a < v->axes; a++) {
        uint32_t n = number_u32(m->p + e.at + 4 * (size_t)a, m->big);
        if (n > INT32_MAX) return fail_data("extent %d is below 0", a + 1);
        if (a < NPY_AXES) v->shape[a] = n;
    }
    return true;
}

/* Reads the name of a variable: printable characters only. */
static bool read_name(Parts *m, char name[LONGEST_NAME + 1])
{
    Element e;
    if (!next_element(m, "name", &e)) return false;
    if (e.type != MI_INT8 && e.type != MI_UTF8)
        return wrong_type(&e, "letters of the name", "miINT8");
    if (e.bytes > LONGEST_NAME)
        return fail_data("its name has %zu letters, limit %d", e.bytes,
                         LONGEST_NAME);
    for (size_t i = 0; i < e.bytes; i++)
        if (m->p[e.at + i] < ' ' || m->p[e.at + i] > '~')
            return fail_data("its name has the character 0x%02x",
                             m->p[e.at + i]);
    memcpy(name, m->p + e.at, e.bytes);
    name[e.bytes] = 0;
    return true;
}

/* Reads the elements before the numbers; m->at is then the offset of the
 * numbers. */
static bool read_start(Parts *m, MatVariable *v, char name[LONGEST_NAME + 1])
{
    return read_flags(m, v) &&
           // objects of newer classes have no extents
           (v->class_number == CLASS_OPAQUE || read_shape(m, v)) &&
           read_name(m, name);
}

/* Inflates the first `have` bytes of the matrix of a compressed element to
 * `start`; *bytes: its total size without the tag. */
static bool unpack_start(const Mat *m, const MatVariable *v,
                         uint8_t start[TAG + START], size_t *have,
                         size_t *bytes)
{
    Unpack *u;
    size_t got;
    if (!unpack_open(m->bytes + v->at, v->stored, UNPACK_ZLIB, &u))
        return false;
    bool ok = unpack_read(u, start, TAG + START, &got);
    unpack_close(u);
    if (!ok) return false;
    if (got < TAG)
        return fail_data("%zu bytes unpacked, need a tag of %d", got, TAG);
    uint32_t type = number_u32(start, m->big);
    *bytes = number_u32(start + 4, m->big);
    if (type != MI_MATRIX)
        return fail_data("type %u (%s) in a compressed element, need miMATRIX",
                         type, type_name(type));
    if (*bytes / GZIP_MOST > v->stored)
        return fail_data("%zu bytes cannot come from %zu packed ones (at most "
                         "%d each)",
                         *bytes, v->stored, GZIP_MOST);
    *have = *bytes < START ? *bytes : START;
    if (got - TAG < *have)
        return fail_data("%zu bytes unpacked, %zu declared", got - TAG, *bytes);
    return true;
}

/* Describes one variable after its tag, of `type`, has been read. */
static bool describe(Mat *m, uint32_t type, MatVariable *v)
{
    uint8_t start[TAG + START];
    char name[LONGEST_NAME + 1];
    Parts parts = {m->bytes + v->at, 0, v->stored, v->stored, m->big};

    if (type == MI_COMPRESSED) {
        v->packed = true;
        parts.p = start + TAG;
        if (!unpack_start(m, v, start, &parts.have, &parts.size)) return false;
    } else if (type != MI_MATRIX) {
        return fail_data("type %u (%s), need a matrix", type, type_name(type));
    }

    v->bytes = parts.size;
    if (!read_start(&parts, v, name)) return false;
    v->name = arena_strdup(&m->mem, name);
    return v->name != NULL;
}

/* Is this element the subsystem data of objects, which is not a variable? An
 * offset of 0 or spaces in the header: there is none. */
static bool is_subsystem(const Mat *m, const MatVariable *v, size_t tag)
{
    uint64_t low = number_u32(m->bytes + (m->big ? 120 : 116), m->big);
    uint64_t high = number_u32(m->bytes + (m->big ? 116 : 120), m->big);
    return !v->name[0] && (high << 32 | low) == tag;
}

/* Appends to the list, which doubles in the arena: at most twice the memory. */
static bool add_variable(Mat *m, const MatVariable *v)
{
    if (m->variables == MOST_VARIABLES)
        return fail_data("more than %d variables", MOST_VARIABLES);

    if (!(m->variables & (m->variables - 1))) {
        size_t room = m->variables ? 2 * (size_t)m->variables : 1;
        MatVariable *more = ARENA_NEW(&m->mem, MatVariable, room);
        if (!more) return false;
        if (m->variables)
            memcpy(more, m->variable, (size_t)m->variables * sizeof *more);
        m->variable = more;
    }

    m->variable[m->variables++] = *v;
    return true;
}

static int by_name(const void *a, const void *b)
{
    const MatVariable *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

/* Checks that names differ. Sorts first: comparing all pairs would take
 * minutes. */
static bool check_names(Mat *m)
{
    int n = m->variables;
    MatVariable **sorted = ARENA_NEW(&m->mem, MatVariable *, n);
    if (!sorted) return false;
    for (int i = 0; i < n; i++) sorted[i] = &m->variable[i];
    qsort(sorted, (size_t)n, sizeof *sorted, by_name);
    for (int i = 1; i < n; i++)
        if (!strcmp(sorted[i - 1]->name, sorted[i]->name))
            return fail_data("two variables are called \"%s\"",
                             sorted[i]->name);
    return true;
}

/* Lists all elements after the header. */
static bool list(Mat *m)
{
    for (size_t at = HEADER; at < m->size;) {
        size_t left = m->size - at;
        if (left < TAG)
            return fail_data("file ends inside a tag, at byte %zu", m->size);
        uint32_t type = number_u32(m->bytes + at, m->big);
        size_t bytes = number_u32(m->bytes + at + 4, m->big);
        MatVariable v = {.at = at + TAG, .stored = bytes};
        if (bytes > left - TAG)
            return fail_data("tag at byte %zu says %zu bytes, only %zu left",
                             at, bytes, left - TAG);
        if (!describe(m, type, &v))
            return within("variable %d at byte %zu", m->variables + 1, at);
        if (!is_subsystem(m, &v, at)) {
            if (!v.name[0])
                return fail_data("variable %d at byte %zu has no name",
                                 m->variables + 1, at);
            if (!add_variable(m, &v)) return false;
        }
        at += TAG + bytes;
    }

    if (!m->variables) return fail_data("the file holds no variable");
    return check_names(m);
}

/* Recognises version 4, which has no header: a file begins with five numbers
 * about its first matrix, of which the first has four decimal digits with few
 * valid values. */
static bool is_version4(const uint8_t *p, size_t size)
{
    for (int big = 0; big < 2 && size >= 20; big++) {
        uint32_t mopt = number_u32(p, big), imaginary = number_u32(p + 12, big);
        uint32_t letters = number_u32(p + 16, big);
        if (mopt < 5000 && mopt / 100 % 10 == 0 && mopt / 10 % 10 <= 5 &&
            mopt % 10 <= 2 && imaginary <= 1 && letters && letters < 1024)
            return true;
    }
    return false;
}

/* Determines the version of the format from the header. */
static bool identify(Mat *m)
{
    static const char hdf5[] = "\x89HDF\r\n\x1a\n";
    const uint8_t *p = m->bytes;
    if (!m->size) return fail_data("file is empty");
    if ((m->size >= 8 && !memcmp(p, hdf5, 8)) ||
        (m->size >= HDF5_AT + 8 && !memcmp(p + HDF5_AT, hdf5, 8)))
        return fail_data("MATLAB 7.3 file (HDF5), which is not read; fix: "
                         "save(..., '-v7')");
    if (is_version4(p, m->size))
        return fail_data("MATLAB 4 file, which is not read; fix: save(..., "
                         "'-v7')");
    if (m->size < HEADER)
        return fail_data("not MATLAB 5: %zu bytes, need a header of %d",
                         m->size, HEADER);
    m->big = p[126] == 'M' && p[127] == 'I';
    if (!m->big && (p[126] != 'I' || p[127] != 'M'))
        return fail_data("not MATLAB 5: endian mark is %02x %02x, need IM or "
                         "MI",
                         p[126], p[127]);
    int version = number_u16(p + 124, m->big);
    if (version != 0x0100)
        return fail_data("version 0x%04x, need 0x0100; fix: save(..., '-v7')",
                         version);
    return true;
}

bool mat_open_bytes(const uint8_t *bytes, size_t size, Mat *m)
{
    *m = (Mat){.bytes = bytes, .size = size};
    if (identify(m) && list(m)) return true;
    mat_close(m);
    return within("mat");
}

bool mat_open(const char *path, Mat *m)
{
    Map map;
    *m = (Mat){0};
    if (!map_open(path, 0, &map)) return within("%s: mat", path);
    if (!mat_open_bytes(map.bytes, map.size, m)) {
        map_close(&map);
        return within("%s", path);
    }
    m->map = map;
    return true;
}

void mat_close(Mat *m)
{
    map_close(&m->map);
    arena_release(&m->mem);
    *m = (Mat){0};
}

const char *mat_refused(const MatVariable *v)
{
    if (classes[v->class_number].refused)
        return classes[v->class_number].refused;
    return v->complex ? "is complex, need real numbers; fix: save real(x) or "
                        "abs(x)"
                      : NULL;
}

/* Checks that a variable has a supported type, and counts its elements. */
static bool check_wanted(const MatVariable *v, int64_t limit, int64_t *count)
{
    if (mat_refused(v)) return fail_data("%s", mat_refused(v));
    if (v->axes > NPY_AXES)
        return fail_data("has %d axes, at most %d are read", v->axes, NPY_AXES);
    *count = 1;

    for (int a = 0; a < v->axes; a++) {
        if (!v->shape[a])
            return fail_data("is empty: axis %d has extent 0", a + 1);
        if (v->shape[a] > limit / *count)
            return fail_data("has more than %lld elements", (long long)limit);
        *count *= v->shape[a];
    }

    // at least one byte per element, checked before memory is allocated
    if ((uint64_t)*count > v->bytes)
        return fail_data("has %lld elements in %zu bytes", (long long)*count,
                         v->bytes);
    return true;
}

/* Checks the stored type. To save space, the numbers of a class may be stored
 * in a narrower type if every value of it is a value of the class: not integers
 * as floats, nor negative numbers as unsigned, nor more bits. */
static bool check_stored(const MatVariable *v, const Element *e)
{
    char want = classes[v->class_number].kind;
    int room = classes[v->class_number].bytes;
    char kind = e->type < MI_COUNT ? types[e->type].kind : 0;
    int bytes = kind ? types[e->type].bytes : 0;
    // unsigned fits a wider signed type, and both fit floats
    if (kind && bytes <= room &&
        (kind == want || want == 'f' ||
         (want == 'i' && kind == 'u' && bytes < room)))
        return true;
    return fail_data("is %s stored as type %u (%s)", v->class_name, e->type,
                     type_name(e->type));
}

/* Converts the numbers of a matrix that is completely in memory. */
static bool convert(Parts *m, const MatVariable *v, int64_t count, float *out)
{
    MatVariable again = {0};
    char name[LONGEST_NAME + 1];
    Element e;

    if (!read_start(m, &again, name) || !next_element(m, "numbers", &e) ||
        !check_stored(v, &e))
        return false;
    NumberType type = {types[e.type].kind, types[e.type].bytes, m->big};
    // the limit keeps this far below 2^64
    uint64_t need = (uint64_t)count * (uint64_t)type.bytes;
    if (need != e.bytes)
        return fail_data("has %zu bytes of %s, its extents need %llu", e.bytes,
                         types[e.type].name, (unsigned long long)need);
    if (m->at < m->size)
        return fail_data("has %zu bytes after its numbers", m->size - m->at);
    int64_t bad =
        columns_to_f32(m->p + e.at, type, v->axes, v->shape, 0, count, out);
    if (bad >= 0)
        return fail_data("element %lld does not fit a float", (long long)bad);
    for (int64_t i = 0; v->flags & FLAG_LOGICAL && i < count; i++)
        if (out[i] != 0 && out[i] != 1)
            return fail_data("element %lld of a logical array is %g, need 0 or "
                             "1",
                             (long long)i, (double)out[i]);
    return true;
}

/* Inflates a compressed element, including its tag; NULL with a reason. */
static uint8_t *unpack_matrix(const Mat *m, const MatVariable *v)
{
    Unpack *u = NULL;
    size_t bytes = TAG + v->bytes;
    uint8_t *all = mem_alloc(bytes);
    bool ok = all &&
              unpack_open(m->bytes + v->at, v->stored, UNPACK_ZLIB, &u) &&
              unpack_all(u, all, bytes);
    unpack_close(u);
    if (!ok) mem_free(all);
    return ok ? all : NULL;
}

static bool read_variable(const Mat *m, const MatVariable *v, int64_t limit,
                          NpyArray *out)
{
    uint8_t *all = NULL;
    float *x = NULL;
    bool ok = false;
    int64_t count = 0;
    Parts parts = {m->bytes + v->at, 0, v->bytes, v->bytes, m->big};

    TRY(check_wanted(v, limit, &count));
    TRY(map_check(&m->map));
    if (v->packed) {
        TRY(all = unpack_matrix(m, v));
        parts.p = all + TAG;
    }
    TRY(x = mem_alloc((size_t)count * sizeof *x));
    TRY(convert(&parts, v, count, x));
    *out = (NpyArray){.axes = v->axes, .count = count, .data = x};
    memcpy(out->shape, v->shape, sizeof v->shape);
    ok = true;

done:
    mem_free(all);
    if (!ok) mem_free(x);
    return ok;
}

bool mat_read(const Mat *m, const char *name, int64_t max_elements,
              NpyArray *out)
{
    char names[256] = "";
    size_t used = 0;
    int64_t limit = max_elements > 0 ? max_elements : most_elements;

    *out = (NpyArray){0};
    for (int i = 0; i < m->variables; i++) {
        if (strcmp(m->variable[i].name, name)) continue;
        if (read_variable(m, &m->variable[i], limit, out)) return true;
        within("mat: %s", name);
        return map_within(&m->map);
    }

    // the first names, up to the size of the buffer
    for (int i = 0; i < m->variables && i <= SHOWN_NAMES && used < sizeof names;
         i++)
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s",
                                 i ? ", " : "",
                                 i < SHOWN_NAMES ? m->variable[i].name : "...");

    fail_data("mat: no variable \"%s\"; there are: %s", name, names);
    return map_within(&m->map);
}
