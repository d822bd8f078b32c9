/* nifti.c -- NIfTI files: names, bytes, voxels.
 *
 * The header is parsed in nifti_header.c. Here the voxels are read from a
 * bounded source, plain or gzip, in pieces that are converted immediately.
 * Memory for voxels is allocated only after the file has been found long enough
 * for them. */
#include "data/format/nifti.h"
#include "data/format/gzip.h"
#include "data/format/nifti_header.h"
#include "engine/base/file.h"
#include <ctype.h>
#include <math.h>
#include <string.h>
#include <strings.h>

/* Bytes converted at a time; a multiple of every element size. */
enum { PIECE = 1 << 16 };
static const int64_t most_bytes = (int64_t)16 << 30;
static const int64_t most_voxels = (int64_t)1 << 33;

/* Sequential bytes, inflated if necessary. */
typedef struct Source {
    const NiftiBytes *from;
    size_t at; /* bytes returned so far, after inflating */
    Gunzip *gz;
} Source;

/* Returns byte i of a file, 0 after its end. */
static unsigned byte_at(const NiftiBytes *f, size_t i)
{
    return i < f->bytes ? f->data[i] : 0;
}

/* Opens a source. The name and the first bytes must agree about gzip: a file
 * that was renamed is often damaged in other ways too. `header`: the source
 * begins with a header, unlike the second file of a pair. */
static bool source_open(Source *s, const NiftiBytes *from, bool header)
{
    *s = (Source){.from = from};
    if (!from->bytes) return fail_data("file is empty");
    bool is = gzip_is(from->data, from->bytes);
    if (is && !from->gz)
        return fail_data("gzip data in a file not named .gz; fix: rename it");

    if (!is && from->gz)
        return header && !nifti_header_begins(from->data, from->bytes)
                   ? fail_data("named .gz but neither gzip data nor NIfTI: %zu "
                               "bytes, the first are %02x %02x %02x %02x; fix: "
                               "look at what it is, fetch it again",
                               from->bytes, byte_at(from, 0), byte_at(from, 1),
                               byte_at(from, 2), byte_at(from, 3))
                   : fail_data("named .gz but not gzip data; fix: rename it "
                               "without .gz, or gzip it");
    return !is || gunzip_open(from->data, from->bytes, &s->gz);
}

/* Reads up to `want` bytes: *p points to the bytes, in `room` if they were
 * inflated; *got < want only at the end. */
static bool source_read(Source *s, uint8_t *room, size_t want,
                        const uint8_t **p, size_t *got)
{
    if (s->gz) {
        *p = room;
        if (!gunzip_read(s->gz, room, want, got)) return false;
    } else {
        size_t left = s->from->bytes - s->at;
        *p = s->from->data + s->at;
        *got = want < left ? want : left;
    }
    s->at += *got;
    return true;
}

/* Returns the maximum number of bytes that a new source can give. Checked
 * before any allocation: a header cannot declare more voxels than its file
 * could contain. */
static uint64_t source_bound(const NiftiBytes *from)
{
    if (!from->gz) return from->bytes;
    // one block of tolerance for short streams
    return from->bytes > UINT64_MAX / 2 / GZIP_MOST
               ? UINT64_MAX
               : (uint64_t)from->bytes * GZIP_MOST + 1024;
}

/* Skips the bytes up to vox_offset; *begin are the first of them. */
static bool skip_to_voxels(Source *s, uint64_t offset, uint8_t *room)
{
    const uint8_t *p;
    while (s->at < offset) {
        uint64_t left = offset - s->at;
        size_t want = left < PIECE ? (size_t)left : PIECE, got;
        if (!source_read(s, room, want, &p, &got)) return false;
        if (got < want)
            return fail_data("file ends at byte %zu, before the voxels at "
                             "vox_offset %llu",
                             s->at, (unsigned long long)offset);
    }
    return true;
}

/* Checks the extensions, which lie between header and voxels of a single file.
 * They are not used, but an invalid chain indicates a damaged header. */
static bool check_extensions(Source *s, const NiftiHeader *h, uint8_t *room)
{
    const uint8_t *p;
    size_t got;
    uint64_t end = (uint64_t)h->vox_offset;

    if (!source_read(s, room, NIFTI_EXTENDER, &p, &got)) return false;
    if (got < NIFTI_EXTENDER || !p[0]) return true;

    while (s->at < end) {
        uint64_t at = s->at;
        if (!source_read(s, room, 8, &p, &got)) return false;
        if (got < 8) break; // skip_to_voxels reports the end
        int64_t size = h->big ? (int32_t)((uint32_t)p[0] << 24 | p[1] << 16 |
                                          p[2] << 8 | p[3])
                              : (int32_t)((uint32_t)p[3] << 24 | p[2] << 16 |
                                          p[1] << 8 | p[0]);
        if (size < 16 || size % 16 || (uint64_t)size > end - at)
            return fail_data("extension at byte %llu has %lld bytes; need a "
                             "multiple of 16 that ends before vox_offset %llu",
                             (unsigned long long)at, (long long)size,
                             (unsigned long long)end);
        if (!skip_to_voxels(s, at + (uint64_t)size, room)) return false;
    }
    return true;
}

/* Conversion of the stored numbers. */
typedef struct Decoding {
    NumberType type;
    double slope, inter;
    bool keep; /* as U8 or I16, bit for bit */
} Decoding;

/* Converts `count` voxels of one piece at p to the voxels from `at` on of out.
 * The types of a Volume are copied, int8 is widened, all other types go through
 * double to float. */
static bool convert(const Decoding *how, const uint8_t *p, int64_t count,
                    int64_t at, const Volume *out)
{
    void *y = out->voxels.data;
    if (how->keep && how->type.bytes == 1 && how->type.kind == 'i') {
        for (int64_t i = 0; i < count; i++)
            ((int16_t *)y)[at + i] = (int8_t)p[i];
    } else if (how->keep) {
        size_t bytes = (size_t)how->type.bytes;
        number_copy(p, how->type, count, (char *)y + (size_t)at * bytes);
    } else {
        int64_t bad = number_to_f32(p, how->type, count, how->slope, how->inter,
                                    (float *)y + at);
        if (bad < 0) return true;
        Dims n = out->voxels.dim;
        at += bad;
        return fail_data("voxel (%lld,%lld,%lld) does not fit a float",
                         (long long)(at % n.w), (long long)(at / n.w % n.h),
                         (long long)(at / n.w / n.h));
    }
    return true;
}

/* Does a file end where its header, which declares `need` bytes, says? For
 * gzip, compares the size in its trailer, modulo 2^32. With several members the
 * trailer has less than the total, so `false` does not prove a defect. */
static bool ends_as_declared(const NiftiBytes *from, uint64_t need)
{
    const size_t n = from->bytes;
    if (!from->gz) return n == need;
    uint32_t size = 0;
    for (size_t i = 1; i <= 4 && i <= n; i++)
        size = size << 8 | from->data[n - i];
    return size == (uint32_t)need;
}

/* Reads all voxels from s, which is at the first voxel, and checks that it ends
 * after the last; if out has no memory for voxels they are skipped. */
static bool read_voxels(Source *s, const Decoding *how, const Volume *out,
                        uint8_t *room)
{
    int64_t count = numel(out->voxels.dim), done = 0;
    uint64_t size = (uint64_t)how->type.bytes;
    const uint8_t *p;
    size_t got, begin = s->at;

    while (done < count) {
        int64_t n = PIECE / how->type.bytes;
        if (n > count - done) n = count - done;
        size_t want = (size_t)n * (size_t)size;
        if (!source_read(s, room, want, &p, &got)) return false;
        if (got < want)
            return fail_data("voxels end after %zu bytes, need %llu",
                             s->at - begin,
                             (unsigned long long)((uint64_t)count * size));
        if (out->voxels.data && !convert(how, p, n, done, out)) return false;
        done += n;
    }

    // requests one more byte: it must not exist, and only reading to the very
    // end verifies the CRC
    if (!source_read(s, room, 1, &p, &got)) return false;
    if (got)
        return fail_data("more bytes than the header declares: voxels need "
                         "%llu from vox_offset on",
                         (unsigned long long)((uint64_t)count * size));
    return true;
}

/* Converts labels that were read as float to the smallest integer type that
 * holds them, if all are whole: resampling tools write float masks. Other
 * labels stay float. */
static bool pack_labels(Volume *v)
{
    const float *x = v->voxels.data;
    int64_t count = numel(v->voxels.dim);
    float lo = 0, hi = 0;
    Volume out;

    for (int64_t i = 0; i < count; i++) {
        if (!(x[i] >= -32768 && x[i] <= 32767) || x[i] != floorf(x[i]))
            return true;
        if (x[i] < lo) lo = x[i];
        if (x[i] > hi) hi = x[i];
    }

    bool small = lo >= 0 && hi <= 255;
    if (!volume_new(&out, v->voxels.dim, small ? U8 : I16)) return false;
    for (int64_t i = 0; i < count; i++)
        if (small)
            ((uint8_t *)out.voxels.data)[i] = (uint8_t)x[i];
        else
            ((int16_t *)out.voxels.data)[i] = (int16_t)x[i];
    memcpy(out.affine, v->affine, sizeof out.affine);
    volume_free(v);
    *v = out;
    return true;
}

/* Chooses the decoding and the type of the voxels from options and header.
 * `bound`: maximum number of bytes in the file with the voxels. Afterwards the
 * sizes are known to fit, so the products below cannot overflow. */
static bool plan_voxels(const NiftiHeader *h, const NiftiOptions *o,
                        uint64_t bound, Decoding *how, Dtype *type)
{
    Dims n = nifti_header_dims(h);
    int64_t limit = o->max_voxels > 0 ? o->max_voxels : most_voxels;

    // each extent is below 2^31, so two of them fit in 64 bits
    if (n.w > limit || (int64_t)n.w * n.h > limit ||
        (int64_t)n.w * n.h > limit / n.d)
        return fail_data("%d x %d x %d voxels, limit %lld", n.w, n.h, n.d,
                         (long long)limit);
    if (positions(n) > limit / n.c || (int64_t)n.d * n.c > INT32_MAX)
        return fail_data("%d x %d x %d voxels of %d channels, limit %lld", n.w,
                         n.h, n.d, n.c, (long long)limit);

    // below 2^33 voxels of 8 bytes: no overflow
    uint64_t need = (uint64_t)numel(n) * (uint64_t)how->type.bytes;
    if ((uint64_t)h->vox_offset > bound)
        return fail_data("vox_offset %.0f lies beyond the end of the file",
                         h->vox_offset);
    if (need > bound - (uint64_t)h->vox_offset)
        return fail_data("header declares %llu bytes of voxels from byte "
                         "%.0f; the file cannot hold them",
                         (unsigned long long)need, h->vox_offset);

    // slope 0 means that no scaling is stored
    bool scaled = h->slope != 0 && (h->slope != 1 || h->inter != 0);
    how->slope = scaled ? h->slope : 1;
    how->inter = scaled ? h->inter : 0;

    // kept as stored, unless a slope changes the values
    bool u8 = how->type.kind == 'u' && how->type.bytes == 1;
    bool i16 = how->type.kind == 'i' && how->type.bytes <= 2;
    how->keep = !scaled && (u8 || i16);
    *type = how->keep ? (u8 ? U8 : I16) : F32;
    return true;
}

/* Interleaves the channels of a file, which lie one after the other, as slices
 * of a volume that is c times as deep; *v gets extents n. */
static bool interleave(Volume *v, Dims n)
{
    Volume out;
    const int64_t count = positions(n);
    const size_t size = dtype_bytes(v->voxels.type);

    if (!volume_new(&out, n, v->voxels.type)) return false;
    const char *from = v->voxels.data;
    char *to = out.voxels.data;
    for (int32_t c = 0; c < n.c; c++)
        for (int64_t i = 0; i < count; i++)
            memcpy(to + ((size_t)i * (size_t)n.c + (size_t)c) * size,
                   from + ((size_t)c * (size_t)count + (size_t)i) * size, size);
    memcpy(out.affine, v->affine, sizeof out.affine);
    volume_free(v);
    *v = out;
    return true;
}

/* Decodes everything once the source is open and `room` is allocated. A pair
 * uses one Source twice: header from the first file, voxels from the second,
 * where vox_offset refers to. */
static bool decode(Source *s, const NiftiBytes *image, const NiftiOptions *o,
                   uint8_t *room, Volume *out, NiftiHeader *h)
{
    Decoding how = {0};
    Dtype type = F32;
    const uint8_t *p;
    size_t got;
    double affine[4][4];

    if (!source_read(s, room, NIFTI1_BYTES, &p, &got)) return false;
    if (p != room) memcpy(room, p, got);

    // tests the magic of NIfTI-2, which has a longer header
    bool second = got >= 4 && (!memcmp(room, "\x1c\x02\0\0", 4) ||
                               !memcmp(room, "\0\0\x02\x1c", 4));

    if (second) {
        size_t more;
        uint8_t *rest = room + got;
        if (!source_read(s, rest, NIFTI2_BYTES - NIFTI1_BYTES, &p, &more))
            return false;
        if (p != rest) memcpy(rest, p, more);
        got += more;
    }

    if (!nifti_header_parse(room, got, image != NULL, o, h, &how.type))
        return false;
    const Dims n = nifti_header_dims(h), file = {1, n.d * n.c, n.h, n.w, 1};
    const NiftiBytes *voxels = image ? image : s->from;
    if (!nifti_header_affine(h, o, affine) ||
        !plan_voxels(h, o, source_bound(voxels), &how, &type))
        return false;

    if (o->no_voxels) {
        out->voxels.dim = n;
        out->voxels.type = type;
        memcpy(out->affine, affine, sizeof affine);
        // An interrupted copy has a wrong size. Such a file is decoded
        // completely, which distinguishes a truncated file from one with
        // several gzip members.
        const uint64_t bytes = (uint64_t)numel(n) * (uint64_t)how.type.bytes;
        if (ends_as_declared(voxels, (uint64_t)h->vox_offset + bytes))
            return true;
    }

    if (image) {
        gunzip_close(s->gz);
        s->gz = NULL;
        if (!source_open(s, image, false)) return within("image");
    } else if (!check_extensions(s, h, room)) {
        return false;
    }

    if (!skip_to_voxels(s, (uint64_t)h->vox_offset, room)) return false;
    if (!o->no_voxels && !volume_new(out, file, type)) return false;
    memcpy(out->affine, affine, sizeof affine);
    if (!read_voxels(s, &how, out, room)) return false;
    if (o->no_voxels) return true;
    if (n.c > 1 && !interleave(out, n)) return false;
    if (!o->label) return true;
    if (type == F32 && !pack_labels(out)) return false;
    out->unit = UNIT_LABEL;
    return true;
}

/* One buffer of PIECE bytes is used for the header, for skipping and for
 * voxels. */
bool nifti_decode(const NiftiBytes *file, const NiftiBytes *image,
                  const NiftiOptions *options, Volume *out, NiftiHeader *header)
{
    static const NiftiOptions defaults = {0};
    const NiftiOptions *o = options ? options : &defaults;
    NiftiHeader h;
    Source s = {0};
    bool ok = false;

    *out = (Volume){0};

    // for inflated data; plain bytes are used in place
    uint8_t *room = mem_alloc(PIECE);
    TRY(room);
    TRY(source_open(&s, file, true));
    TRY(decode(&s, image, o, room, out, &h));
    if (header) *header = h;
    ok = true;

done:
    gunzip_close(s.gz);
    mem_free(room);
    if (!ok) volume_free(out);
    return ok || within("nifti");
}

/* Ignores case, because Windows may use capitals; the name must be longer than
 * the extension: ".nii" alone is no name. */
static bool ends_with(const char *path, const char *end)
{
    size_t n = strlen(path), m = strlen(end);
    return n > m && !strcasecmp(path + n - m, end);
}

/* Extensions of files with a header, and of their images or NULL. */
static const struct {
    const char *header, *image;
} endings[] = {
    {".nii", NULL},
    {".nii.gz", NULL},
    {".hdr", ".img"},
    {".hdr.gz", ".img.gz"},
};

size_t nifti_stem(const char *path)
{
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
        if (ends_with(path, endings[i].header))
            return strlen(path) - strlen(endings[i].header);
    return 0;
}

int nifti_files(const char *path, Arena *mem, const char *name[2])
{
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        const char *image = endings[i].image, *end = endings[i].header;
        if (image && ends_with(path, image)) end = image;
        if (!ends_with(path, end)) continue;
        const int stem = (int)(strlen(path) - strlen(end)), n = image ? 2 : 1;
        // the counterpart of A.HDR is A.IMG
        const bool capitals = isupper((unsigned char)path[stem + 1]);
        for (int k = 0; k < n; k++) {
            char *whole = arena_printf(mem, "%.*s%s", stem, path,
                                       k ? image : endings[i].header);
            for (char *c = whole + stem; whole && capitals && *c; c++)
                *c = (char)toupper((unsigned char)*c);
            // a single file keeps its name
            if (n == 1 && whole) memcpy(whole, path, strlen(path));
            if (!(name[k] = whole)) return 0;
        }
        return n;
    }

    fail_data("%s: nifti: the name does not end in .nii, .nii.gz, .hdr or .img",
              path);
    return 0;
}

char *nifti_asked(const NiftiOptions *o, Arena *mem)
{
    return arena_printf(mem, "nifti %d %d %d %d", (int)o->form, o->label,
                        o->assume_spacing, o->channels);
}

/* The whole file is read; it is inflated in pieces from memory. */
bool nifti_read(const char *path, const NiftiOptions *options, Volume *out,
                NiftiHeader *header)
{
    Arena mem = {0};
    NiftiBytes part[2] = {{0}};
    const char *name[2] = {NULL, NULL};
    bool ok = false;
    int64_t limit =
        options && options->max_bytes > 0 ? options->max_bytes : most_bytes;

    *out = (Volume){0};
    TRY(nifti_files(path, &mem, name));
    part[0].gz = part[1].gz = ends_with(name[0], ".gz");

    for (int i = 0; i < 2 && name[i]; i++) {
        char *data = NULL;
        if (!file_read(name[i], (size_t)limit, &mem, &data, &part[i].bytes)) {
            within("%s: nifti%s", path,
                   name[1] ? ": .hdr and .img belong together" : "");
            goto done;
        }
        part[i].data = (uint8_t *)data;
    }

    ok = nifti_decode(&part[0], name[1] ? &part[1] : NULL, options, out,
                      header) ||
         within("%s", path);

done:
    arena_release(&mem);
    return ok;
}

/* Makes the header for v; false if v is not on the grid of `like`. With `like`,
 * its description of space is kept bit for bit, after checking that one of its
 * two forms agrees with the affine of v. */
static bool header_for(const Volume *v, const NiftiHeader *like, NiftiHeader *h)
{
    Dims n = v->voxels.dim;
    Volume there = *v;
    // the reader of `like` has checked that its forms agree; this must accept
    // the form that it used
    NiftiOptions any = {.form = NIFTI_SFORM_OR_QFORM, .assume_spacing = true};

    if (!like) {
        // dim is int16 in NIfTI-1
        bool large = n.w > INT16_MAX || n.h > INT16_MAX || n.d > INT16_MAX;
        *h = (NiftiHeader){.version = large ? 2 : 1,
                           .dim = {3, n.w, n.h, n.d, 1, 1, 1, 1}};
        for (int i = 4; i < 8; i++) h->pixdim[i] = 1;
        nifti_header_place(h, there.affine);
        return true;
    }

    *h = *like;
    if (h->dim[0] > 3 && h->dim[4] > 1) h->dim[0] = 3, h->dim[4] = 1;
    NiftiHeader read = *like;
    there.voxels.dim = nifti_header_dims(like);
    bool same = nifti_header_affine(&read, &any, there.affine) &&
                volume_same_grid(&there, v);
    if (same || like->sform <= 0 || like->qform <= 0) return same;

    // both are present: `like` may have been read by the other one
    any.form = NIFTI_QFORM;
    return nifti_header_affine(&read, &any, there.affine) &&
           volume_same_grid(&there, v);
}

/* NiftiHeader has no texts (descrip, aux_file), so none can leak. */
bool nifti_write(const char *path, const Volume *v, const NiftiHeader *like)
{
    static const int code[DTYPE_COUNT] = {[U8] = 2, [I16] = 4, [F32] = 16};
    uint8_t head[NIFTI2_BYTES + NIFTI_EXTENDER], *all = NULL;
    size_t bytes = tensor_bytes(&v->voxels), room;
    NiftiHeader h;
    bool ok = false, gz = ends_with(path, ".nii.gz");

    CHECK(v->voxels.dim.c == 1 && code[v->voxels.type]);
    if (!gz && !ends_with(path, ".nii"))
        return fail_usage("%s: nifti: the name to write must end in .nii or "
                          ".nii.gz",
                          path);
    TRY(header_for(v, like, &h));
    h.datatype = code[v->voxels.type];
    h.bitpix = 8 * (int)dtype_bytes(v->voxels.type);
    h.intent = 0;

    // values are written unscaled
    h.slope = 1, h.inter = 0;
    h.vox_offset =
        (h.version == 2 ? NIFTI2_BYTES : NIFTI1_BYTES) + NIFTI_EXTENDER;
    size_t first = nifti_header_bytes(&h, head);

    if (gz) {
        TRY(gzip_deflate(head, first, v->voxels.data, bytes, &all, &room));
    } else {
        TRY(size_add(bytes, first, &room));
        TRY(all = mem_alloc(room));
        memcpy(all, head, first);
        memcpy(all + first, v->voxels.data, bytes);
    }

    TRY(file_replace(path, all, room));
    ok = true;

done:
    mem_free(all);
    return ok || within("%s: nifti", path);
}
