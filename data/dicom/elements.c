/* elements.c -- builds the list of elements of a file to be written. Errors are
 * sticky: after the first one every call does nothing and elements_write fails
 * with the reason that is still set, so that the dozens of calls that describe
 * a file need no checks of their own. */
#include "data/dicom/elements.h"
#include "data/dicom/encode.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

// Appends a new element; NULL once the list has failed. Growing copies the list
// into a new block of the arena; the old one stays until elements_free.
static CodecElement *append(Elements *l, uint32_t tag)
{
    if (l->failed) return NULL;
    if (l->count == l->room) {
        int32_t room = l->room ? 2 * l->room : 64;
        CodecElement *grown = ARENA_NEW(&l->arena, CodecElement, room);
        if (!grown) {
            l->failed = true;
            return NULL;
        }
        // a first list is empty: memcpy from NULL is undefined
        if (l->count) memcpy(grown, l->list, (size_t)l->count * sizeof *grown);
        l->list = grown, l->room = room;
    }

    const DicomTag *t = dicom_tag(tag);
    CHECK(t || tag == TAG_ITEM);
    CodecElement *e = &l->list[l->count++];
    *e = (CodecElement){.tag = tag, .vr = t ? t->vr : 0, .depth = l->depth};
    return e;
}

void elements_put(Elements *l, uint32_t tag, const char *fmt, ...)
{
    CodecElement *e = append(l, tag);
    if (!e) return;
    char text[1024];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    CHECK(n >= 0);

    // a value copied from an input file may have any length
    if ((size_t)n >= sizeof text) {
        l->failed = true;
        fail_data("%s of %d bytes, at most %zu can be copied",
                  dicom_tag(tag)->name, n, sizeof text - 1);
        return;
    }

    e->value = arena_strdup(&l->arena, text);
    if (!e->value) l->failed = true;
}

char *decimal_text(double v, char text[DECIMAL_TEXT])
{
    // 15 digits are read back unchanged; the loop ends at 9 in the worst case,
    // -1.23456789e-300
    for (int digits = 15; digits > 0; digits--) {
        int n = snprintf(text, DECIMAL_TEXT, "%.*g", digits, v);
        // a host program may have set a locale with another decimal point
        for (char *p = text; *p; p++)
            if (!strchr("0123456789+-e.", *p)) *p = '.';
        if (n <= 16) break;
    }
    return text;
}

void elements_decimals(Elements *l, uint32_t tag, const double *v, int n)
{
    char text[256] = "", one[DECIMAL_TEXT];
    for (int i = 0; i < n; i++) {
        CHECK(strlen(text) + DECIMAL_TEXT < sizeof text);
        if (i) strcat(text, "\\");
        strcat(text, decimal_text(v[i], one));
    }
    elements_put(l, tag, "%s", text);
}

void elements_open(Elements *l, uint32_t sequence)
{
    append(l, sequence);
}

void elements_item(Elements *l)
{
    // an item is one level deeper than its sequence
    l->depth++;
    append(l, TAG_ITEM);
}

void elements_close(Elements *l)
{
    l->depth--;
}

void elements_code(Elements *l, uint32_t sequence, const char *value,
                   const char *scheme, const char *meaning)
{
    elements_open(l, sequence);
    elements_item(l);
    elements_put(l, TAG_CodeValue, "%s", value);
    elements_put(l, TAG_CodingSchemeDesignator, "%s", scheme);
    elements_put(l, TAG_CodeMeaning, "%s", meaning);
    elements_close(l);
}

void elements_free(Elements *l)
{
    arena_release(&l->arena);
    *l = (Elements){0};
}

// FNV-1a from the start value h, then mixed so that every bit depends on all
// (splitmix64). The two start values of uid_from make two independent halves.
static uint64_t hash64(const char *key, uint64_t h)
{
    for (; *key; key++) h = (h ^ (unsigned char)*key) * 0x100000001B3u;
    h = (h ^ h >> 30) * 0xBF58476D1CE4E5B9u;
    h = (h ^ h >> 27) * 0x94D049BB133111EBu;
    return h ^ h >> 31;
}

char *uid_from(const char *key, char uid[UID_TEXT])
{
    // two hashes of one key make 128 bits: UIDs of two slices never collide
    uint64_t a = hash64(key, 0xCBF29CE484222325u);
    uint64_t b = hash64(key, 0x9E3779B97F4A7C15u);

    // the bits of a UUID of version 8 (custom)
    a = (a & ~(uint64_t)0xF000) | 0x8000;
    b = (b & ~((uint64_t)3 << 62)) | (uint64_t)1 << 63;
    uint32_t word[4] = {(uint32_t)(a >> 32), (uint32_t)a, (uint32_t)(b >> 32),
                        (uint32_t)b};

    // 2^128 has 39 digits
    char digits[40];
    int n = 0;

    // long division of 128 bits by ten, lowest digit first
    while (word[0] | word[1] | word[2] | word[3]) {
        uint64_t rest = 0;
        for (int i = 0; i < 4; i++) {
            rest = rest << 32 | word[i];
            word[i] = (uint32_t)(rest / 10);
            rest %= 10;
        }
        digits[n++] = (char)('0' + rest);
    }

    int at = snprintf(uid, UID_TEXT, "2.25.");
    while (n) uid[at++] = digits[--n];
    uid[at] = 0;
    return uid;
}

// Writes the file `aside`; false with a reason in `why`.
static bool write_bytes(const char *aside, const uint8_t *bytes, size_t count,
                        char why[CODEC_WHY])
{
    FILE *f = fopen(aside, "wb");
    bool ok = f && fwrite(bytes, 1, count, f) == count;
    int error = errno;

    if (f && fclose(f) && ok) ok = false, error = errno;
    if (!ok) snprintf(why, CODEC_WHY, "%s", strerror(error));
    return ok;
}

// Writes a file by encode.h; false with the reason as an error.
static bool write_encoded(Elements *l, const char *path, const char *aside,
                          const CodecPixels *form, const uint8_t *pixels,
                          size_t bytes)
{
    Arena mem = {0};
    uint8_t *file;
    size_t count;
    char why[CODEC_WHY];
    bool ok = dicom_encode(form, l->list, l->count, pixels, bytes, &mem, &file,
                           &count);

    if (!ok)
        within("%s: dicom", path);
    else if (!write_bytes(aside, file, count, why))
        ok = fail("%s: dicom: cannot write: %s", path, why);
    arena_release(&mem);
    return ok;
}

// Writes a file by DCMTK; false with the reason as an error.
static bool write_dcmtk(Elements *l, const char *path, const char *aside,
                        const CodecPixels *form, const uint8_t *pixels,
                        size_t bytes)
{
    char why[CODEC_WHY];
    const CodecResult r =
        codec_write(aside, form, l->list, l->count, pixels, bytes, why);
    if (r == CODEC_NO_MEMORY)
        return fail("%s: dicom: no memory to write it; fix: end other "
                    "programs, or raise the limit (ulimit -v)",
                    path);
    return r == CODEC_DONE || fail("%s: dicom: cannot write: %s", path, why);
}

bool elements_write(Elements *l, const char *path, const CodecPixels *form,
                    const uint8_t *pixels, size_t bytes)
{
    if (l->failed) return within("%s: dicom", path);
    // a reader of the folder must never find a partial file under the final
    // name
    char *aside = arena_printf(&l->arena, "%s.tmp", path);
    if (!aside) return false;
    // a build with DCMTK writes uncompressed files by DCMTK too: prepared cases
    // are found by the bytes of their files, which differ from those of
    // encode.h
    const bool encode = !SEG_DICOM && dicom_encodes(form->syntax_uid);

    if (!(encode ? write_encoded : write_dcmtk)(l, path, aside, form, pixels,
                                                bytes)) {
        remove(aside);
        return false;
    }

    if (rename(aside, path)) {
        // remove() would overwrite errno
        int error = errno;
        remove(aside);
        return fail("%s: dicom: cannot write: %s", path, strerror(error));
    }
    return true;
}
