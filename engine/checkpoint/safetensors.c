/* safetensors.c -- the file around the header: data, checksums, writing.
 *
 * Data is not memory-mapped: a file that shrinks while it is used would kill
 * the program. Every read of a tensor with a checksum compares it, even after
 * an earlier verification, so damaged data never reaches the caller.
 *
 * Opening reads and checks the header: it parses, its entries agree with each
 * other and with the file size, its checksum is right. Then a tensor is an
 * offset and a length. Writing computes the layout first, writes tensor after
 * tensor with its checksum, and the header last; then the draft is opened and
 * verified like any other file. */
#include "engine/checkpoint/safetensors.h"
#include "engine/base/crc32c.h"
#include "engine/base/file.h"
#include "engine/checkpoint/safetensors_header.h"
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "data is copied as it is stored");

enum { CHUNK = 1 << 20 }; // bytes per read when only the checksum is needed

static const struct {
    const char *name;
    size_t bytes;
} types[ST_TYPE_COUNT] = {
#define X(name, bytes) [ST_##name] = {#name, bytes},
    ST_TYPES(X)
#undef X
};

const char *st_type_name(StType t)
{
    CHECK((unsigned)t < ST_TYPE_COUNT);
    return types[t].name;
}

size_t st_type_bytes(StType t)
{
    CHECK((unsigned)t < ST_TYPE_COUNT);
    return types[t].bytes;
}

// a handful of pairs, seldom looked up: not worth an index
const char *meta_get(const Meta *m, const char *key)
{
    for (int i = 0; i < m->count; i++)
        if (!strcmp(m->pair[i].key, key)) return m->pair[i].value;
    return NULL;
}

// -- opening ------------------------------------------------------------------

/* Sets the reason for a file of another format, recognised by its first bytes;
 * if they are unknown, `otherwise`. */
static bool foreign(const char head[HEADER_LENGTH], const char *otherwise)
{
    static const struct {
        const char *magic;
        int bytes;
        const char *what, *fix;
    } known[] = {
        {"PK\3\4", 4, "a zip archive (PyTorch's .pt, or .npz)",
         "safetensors.torch.save_file(model.state_dict(), \"w.safetensors\")"},
        {"\x89HDF\r\n\x1a\n", 8, "HDF5 (Keras's .h5, or MATLAB)",
         "safetensors.numpy.save_file(arrays, \"w.safetensors\")"},
        {"\x93NUMPY", 6, "a NumPy array (.npy)",
         "safetensors.numpy.save_file({name: array}, \"w.safetensors\")"},
        {"\x1f\x8b", 2, "compressed with gzip", "gunzip it first"},
        {"GGUF", 4, "GGUF", "convert it to safetensors"},
        {"\x80\2", 2, "a Python pickle (an old PyTorch .pt)",
         "safetensors.torch.save_file(model.state_dict(), \"w.safetensors\")"},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!memcmp(head, known[i].magic, (size_t)known[i].bytes))
            return fail_data("this is %s, not safetensors; fix: %s",
                             known[i].what, known[i].fix);
    return fail_data("%s", otherwise);
}

/* Reads `bytes` bytes at offset `at`, from disk or memory. */
static bool read_at(const Safetensors *f, uint64_t at, void *out, size_t bytes)
{
    if (!f->bytes) return file_read_at(f->fd, f->path, at, out, bytes);
    // load_header has compared every offset with the size
    CHECK(at <= f->size && bytes <= f->size - at);
    if (bytes) memcpy(out, f->bytes + at, bytes);
    return true;
}

/* Reads all bytes before the data; *bytes is 8 + the header's length. */
static bool read_head(Safetensors *f, char **head, size_t *bytes)
{
    char first[HEADER_LENGTH], text[160];
    uint64_t length;
    if (!f->size) return fail_data("the file is empty");
    if (f->size < HEADER_LENGTH)
        return fail_data("the file has %d bytes, too few for safetensors",
                         (int)f->size);
    if (!read_at(f, 0, first, HEADER_LENGTH)) return false;
    memcpy(&length, first, HEADER_LENGTH); // little endian, see above
    unsigned long long shown = length;

    // allocates nothing for a length that exceeds the file
    if (length > ST_HEADER) {
        snprintf(text, sizeof text,
                 "not safetensors: its header would have %llu bytes (at most "
                 "%d are allowed)",
                 shown, ST_HEADER);
        return foreign(first, text);
    }

    // a first word within bounds may still be another format's magic number
    if (length > f->size - HEADER_LENGTH) {
        snprintf(text, sizeof text,
                 "the file is truncated: its header ends at byte %llu, the "
                 "file at %llu",
                 shown + HEADER_LENGTH, (unsigned long long)f->size);
        return foreign(first, text);
    }

    *bytes = HEADER_LENGTH + (size_t)length;
    *head = arena_alloc(&f->mem, *bytes);
    if (!*head || !read_at(f, 0, *head, *bytes)) return false;
    if (length && (*head)[HEADER_LENGTH] == '{') return true;
    return foreign(first, "not safetensors: no '{' at byte 8");
}

/* Writes a checksum as eight lowercase hex digits. They are compared as text,
 * so that a bit flip from 'a' to 'A' is an error too. */
static void digits_of(uint32_t crc, char text[HEADER_DIGITS + 1])
{
    snprintf(text, HEADER_DIGITS + 1, "%08x", (unsigned)crc);
}

/* Compares the header with its checksum; crc points to its digits, NULL if
 * absent. Sets f->crcs, which from here on means "has checksums". */
static bool check_head(Safetensors *f, const char *head, size_t bytes,
                       const char *crc)
{
    const char *list = meta_get(&f->meta, HEADER_CRCS);

    // one without the other: damage has changed a key
    if (!list && !crc) return true;
    if (!list || !crc)
        return fail_data("the header is damaged: it has \"%s\" but not "
                         "\"%s\"",
                         crc ? HEADER_CRC : HEADER_CRCS,
                         crc ? HEADER_CRCS : HEADER_CRC);

    // the checksum was computed with zeros in place of its digits
    size_t before = (size_t)(crc - head), after = before + HEADER_DIGITS;
    uint32_t sum = crc32c(0, head, before);
    sum = crc32c(sum, "00000000", HEADER_DIGITS);
    sum = crc32c(sum, head + after, bytes - after);
    char want[HEADER_DIGITS + 1];
    digits_of(sum, want);
    if (memcmp(crc, want, HEADER_DIGITS))
        return fail_data("the header is damaged (checksum %.8s, computed %s)",
                         crc, want);
    if (strlen(list) != (size_t)f->count * HEADER_DIGITS)
        return fail_data("%zu digits of checksums for %d tensors", strlen(list),
                         f->count);
    f->header_crc = sum;
    f->crcs = list;
    return true;
}

/* Checks all that does not need the data. Reasons do not name the file:
 * opened() adds the name. */
static bool load_header(Safetensors *f)
{
    char *head = NULL;
    const char *crc = NULL;
    size_t bytes = 0;
    uint64_t end;

    if (!read_head(f, &head, &bytes)) return false;
    if (!header_parse(head, bytes, f, &crc)) return false;
    if (!header_sort(f->tensor, f->count, f->meta.pair, f->meta.count))
        return false;

    // before the offsets: damage is a better reason than its consequence
    if (!check_head(f, head, bytes, crc)) return false;
    if (!header_places(f, &end)) return false;
    f->data_at = bytes;

    // both are sizes of existing memory and files, far from overflow
    if (end > f->size - bytes)
        return fail_data("the file is truncated: %llu bytes needed, it has "
                         "%llu",
                         (unsigned long long)(bytes + end),
                         (unsigned long long)f->size);

    if (end < f->size - bytes)
        return fail_data("%llu bytes after the last tensor",
                         (unsigned long long)(f->size - bytes - end));
    f->meta.note = f->crcs ? ""
                           : "without checksums (written by another "
                             "program): damage could not be seen";
    return true;
}

/* The common end of both ways to open; closes *f on failure. */
static bool opened(Safetensors *f, const char *path)
{
    f->path = arena_strdup(&f->mem, path);
    if (f->path && load_header(f)) return true;
    safetensors_close(f);
    return within("%s: safetensors", path);
}

bool safetensors_open(const char *path, Safetensors *f)
{
    *f = (Safetensors){0};
    if (!file_open(path, &f->fd, &f->size)) return false;
    f->open = true;
    return opened(f, path);
}

bool safetensors_memory(const char *path, const void *bytes, uint64_t size,
                        Safetensors *f)
{
    *f = (Safetensors){.bytes = bytes, .size = size};
    return opened(f, path);
}

void safetensors_close(Safetensors *f)
{
    if (f->open) close(f->fd);
    arena_release(&f->mem);
    *f = (Safetensors){0};
}

// binary search, as the tensors are sorted
int safetensors_find(const Safetensors *f, const char *name)
{
    int low = 0, high = f->count;
    while (low < high) {
        int middle = low + (high - low) / 2;
        int order = strcmp(f->tensor[middle].name, name);
        if (!order) return middle;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return -1;
}

size_t safetensors_count(const Safetensors *f, int i)
{
    return f->tensor[i].bytes / st_type_bytes(f->tensor[i].type);
}

// -- reading ------------------------------------------------------------------

/* Compares the CRC of tensor i's bytes with the one in the header. */
static bool check_tensor(const Safetensors *f, int i, uint32_t crc)
{
    if (!f->crcs) return true;
    const char *want = f->crcs + (size_t)i * HEADER_DIGITS;
    char got[HEADER_DIGITS + 1];
    digits_of(crc, got);
    if (!memcmp(want, got, HEADER_DIGITS)) return true;
    return fail_data("%s: safetensors: tensor \"%s\" is damaged (checksum "
                     "%.8s, computed %s)",
                     f->path, f->tensor[i].name, want, got);
}

bool safetensors_read(const Safetensors *f, int i, void *out)
{
    CHECK(i >= 0 && i < f->count);
    const StTensor *t = f->tensor + i;
    return read_at(f, f->data_at + t->at, out, t->bytes) &&
           check_tensor(f, i, crc32c(0, out, t->bytes));
}

/* IEEE 754 half: 1 sign, 5 exponent (bias 15), 10 fraction bits; exponent 0:
 * fraction times 2^-24, exponent 31: infinity or NaN. */
static double from_f16(uint16_t h)
{
    int exponent = h >> 10 & 31, fraction = h & 1023;
    double v = exponent == 31  ? (fraction ? (double)NAN : (double)INFINITY)
               : exponent == 0 ? ldexp(fraction, -24)
                               : ldexp(fraction + 1024, exponent - 25);
    return h & 0x8000 ? -v : v;
}

/* The upper half of a float. */
static double from_bf16(uint16_t h)
{
    uint32_t bits = (uint32_t)h << 16;
    float v;
    memcpy(&v, &bits, sizeof v);
    return (double)v;
}

// out[k] = v for each element, in order; `v` is an expression over `x`. Uses
// memcpy, as raw elements need not be aligned for their type
#define CONVERT(type, v)                          \
    for (size_t k = 0; k < count; k++) {          \
        type x;                                   \
        memcpy(&x, raw + k * sizeof x, sizeof x); \
        out[k] = (v);                             \
    }                                             \
    break

bool safetensors_read_f64(const Safetensors *f, int i, double *out)
{
    size_t count = safetensors_count(f, i), bytes = f->tensor[i].bytes;
    // raw elements are not larger than doubles: they are stored at the end of
    // `out`, and each is read before the double in its place is written, so no
    // second buffer is needed
    char *raw = (char *)out + (count * sizeof *out - bytes);

    if (!safetensors_read(f, i, raw)) return false;
    switch (f->tensor[i].type) {
    case ST_F64:
        break;
    case ST_F32:
        CONVERT(float, (double)x);
    case ST_F16:
        CONVERT(uint16_t, from_f16(x));
    case ST_BF16:
        CONVERT(uint16_t, from_bf16(x));
    case ST_I64:
        CONVERT(int64_t, (double)x);
    case ST_I32:
        CONVERT(int32_t, (double)x);
    case ST_I16:
        CONVERT(int16_t, (double)x);
    case ST_I8:
        CONVERT(int8_t, (double)x);
    case ST_U8:
        CONVERT(uint8_t, (double)x);
    case ST_BOOL:
        CONVERT(uint8_t, x != 0);
    case ST_TYPE_COUNT:
        CHECK(!"a type");
    }
    return true;
}

bool safetensors_verify(const Safetensors *f)
{
    // reads in chunks: a tensor need not fit in memory
    if (!f->crcs) return true;
    char *buffer = mem_alloc(CHUNK);
    bool ok = buffer;

    for (int i = 0; ok && i < f->count; i++) {
        const StTensor *t = f->tensor + i;
        uint32_t crc = 0;
        for (size_t at = 0; ok && at < t->bytes; at += CHUNK) {
            size_t n = t->bytes - at < CHUNK ? t->bytes - at : CHUNK;
            ok = read_at(f, f->data_at + t->at + at, buffer, n);
            if (ok) crc = crc32c(crc, buffer, n);
        }
        ok = ok && check_tensor(f, i, crc);
    }

    mem_free(buffer);
    return ok;
}

// -- writing ------------------------------------------------------------------

/* Sorted copies of the data to write, with offsets; checksums are zero. */
typedef struct Layout {
    Arena mem;
    StTensor *tensor;
    int *from; // tensor[i] is the caller's from[i]
    int count;
    MetaPair *pair;
    int pairs;
    char *head; // owned
    size_t head_bytes, largest;
    uint64_t bytes; // of the file
} Layout;

/* Copies and sorts; zeros reserve the room of the checksums, so that the header
 * has its final length before they are known. */
static bool layout_names(Layout *l, const StWrite *w)
{
    l->tensor = ARENA_NEW(&l->mem, StTensor, w->count + 1);
    l->from = ARENA_NEW(&l->mem, int, w->count + 1);
    l->pair = ARENA_NEW(&l->mem, MetaPair, w->pairs + 2);
    char *zeros = arena_alloc(&l->mem, (size_t)w->count * HEADER_DIGITS + 1);
    if (!l->tensor || !l->from || !l->pair || !zeros) return false;
    memset(zeros, '0', (size_t)w->count * HEADER_DIGITS);
    for (int i = 0; i < w->count; i++) {
        l->tensor[i] = w->tensor[i];
        l->tensor[i].at = (uint64_t)i; // until they are sorted
        if (!header_name_check("tensor name", w->tensor[i].name)) return false;
    }

    l->pair[l->pairs++] = (MetaPair){HEADER_CRC, "00000000"};
    l->pair[l->pairs++] = (MetaPair){HEADER_CRCS, zeros};

    for (int i = 0; i < w->pairs; i++) {
        const char *key = w->pair[i].key;
        // a file's own metadata may be passed: checksums are computed again
        if (!strcmp(key, HEADER_CRC) || !strcmp(key, HEADER_CRCS)) continue;
        if (!header_name_check("metadata key", key)) return false;
        l->pair[l->pairs++] = w->pair[i];
    }

    l->count = w->count;
    return header_sort(l->tensor, l->count, l->pair, l->pairs);
}

/* Sets the offset of every tensor and prints the header. The caller frees it,
 * also after a failure. */
static bool layout_make(Layout *l, const StWrite *w)
{
    if (w->count > ST_ENTRIES || w->pairs > ST_ENTRIES - 2)
        return fail("%d tensors and %d pairs of metadata (a file holds at most "
                    "%d of each)",
                    w->count, w->pairs, ST_ENTRIES - 2);
    if (!layout_names(l, w)) return false;
    size_t at = 0;

    for (int i = 0; i < l->count; i++) {
        StTensor *t = l->tensor + i;
        CHECK(t->axes >= 0 && t->axes <= ST_AXES);
        l->from[i] = (int)t->at; // the number stored there by layout_names
        t->at = at;              // contiguous, no gap
        if (!strcmp(t->name, HEADER_METADATA))
            return fail("no tensor may be called %s", HEADER_METADATA);
        if (!header_tensor_bytes(t, &t->bytes) || !size_add(at, t->bytes, &at))
            return within("tensor \"%s\"", t->name);
        if (t->bytes > l->largest) l->largest = t->bytes;
    }

    if (!header_print(l->tensor, l->count, l->pair, l->pairs, &l->head,
                      &l->head_bytes))
        return false;
    if (!size_add(at, l->head_bytes, &at)) return false;
    l->bytes = at;
    return true;
}

/* Returns the address of the value of a metadata pair in a printed head. */
static char *head_value(const Layout *l, const char *key)
{
    char text[64];
    int n = snprintf(text, sizeof text, "\"%s\":\"", key);
    // metadata comes first; quotes inside a string are escaped, so no match
    // there
    for (char *p = l->head; p + n < l->head + l->head_bytes; p++)
        if (!memcmp(p, text, (size_t)n)) return p + n;
    CHECK(!"the key is in the header");
    return NULL;
}

/* Requests each tensor once, writes it, and stores its checksum in the header.
 * One buffer of the size of the largest tensor: there is no second copy of all
 * weights. */
static bool write_data(const Layout *l, const StWrite *w, Draft *d)
{
    char digits[HEADER_DIGITS + 1], *list = head_value(l, HEADER_CRCS);
    void *buffer = mem_alloc(l->largest);
    bool ok = buffer;

    for (int i = 0; ok && i < l->count; i++) {
        const StTensor *t = l->tensor + i;
        // fill may refuse: values that are not finite are not saved
        ok = (w->fill(w->ctx, l->from[i], buffer) || within("%s", d->path)) &&
             draft_write(d, l->head_bytes + t->at, buffer, t->bytes);
        digits_of(ok ? crc32c(0, buffer, t->bytes) : 0, digits);
        memcpy(list + i * HEADER_DIGITS, digits, HEADER_DIGITS);
    }

    mem_free(buffer);
    return ok;
}

/* A FileCheck: the draft opens, every checksum is right, and its header is the
 * intended one (*ctx is its CRC). */
static bool reads_back(void *ctx, const char *tmp)
{
    const uint32_t *header_crc = ctx;
    Safetensors f;
    if (!safetensors_open(tmp, &f)) return false;
    bool ok = safetensors_verify(&f);
    if (ok && (!f.crcs || f.header_crc != *header_crc))
        ok = fail("%s: its header differs from the one written", tmp);
    safetensors_close(&f);
    return ok;
}

bool safetensors_save(const char *path, const StWrite *w)
{
    return safetensors_save_as(&path, 1, w);
}

bool safetensors_save_as(const char *const *path, int paths, const StWrite *w)
{
    bool ok = false;
    Layout l = {0};
    Draft d = {0};

    TRY(layout_make(&l, w) || within("%s: safetensors", path[0]));
    TRY(draft_open(&d, path[0], l.bytes));

    // the header is written last, when the checksums are known
    TRY(write_data(&l, w, &d));
    char digits[HEADER_DIGITS + 1];
    uint32_t crc = crc32c(0, l.head, l.head_bytes);
    digits_of(crc, digits);
    memcpy(head_value(&l, HEADER_CRC), digits, HEADER_DIGITS);
    TRY(draft_write(&d, 0, l.head, l.head_bytes));
    ok = draft_commit(&d, reads_back, &crc);
    for (int i = 1; ok && i < paths; i++)
        ok = file_link(path[0], path[i], reads_back, &crc);

done:
    draft_discard(&d);
    mem_free(l.head);
    arena_release(&l.mem);
    return ok;
}
