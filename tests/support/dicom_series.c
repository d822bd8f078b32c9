#include "tests/support/dicom_series.h"
#include "data/dicom/parse.h"
#include <sys/stat.h>

void kit_volume(Volume *v, int d, int h, int w, bool tilted_axes)
{
    REQUIRE(volume_new(v, (Dims){1, d, h, w, 1}, I16));
    int16_t *p = v->voxels.data;
    for (int i = 0; i < d * h * w; i++) p[i] = (int16_t)(i * 37 % 4096);
    double c = tilted_axes ? 0.8 : 1, s = tilted_axes ? 0.6 : 0;
    const double affine[4][4] = {{1 * c, 0, 3 * s, -5},
                                 {0, 2, 0, 7},
                                 {-1 * s, 0, 3 * c, 11},
                                 {0, 0, 0, 1}};
    memcpy(v->affine, affine, sizeof affine);
}

DicomWrite kit_write(void)
{
    return (DicomWrite){.patient_id = "KIT01",
                        .description = "image",
                        .seed = 7,
                        .bits_stored = 12};
}

const char *kit_folder(const char *name)
{
    static Arena names;
    const char *path = arena_printf(&names, "%s/%s", test_folder(), name);
    REQUIRE(path);
    mkdir(path, 0777);
    return path;
}

const DicomSeries *kit_series(Arena *arena, const char *folder)
{
    DicomIndex index;
    REQUIRE(dicom_scan(folder, NULL, arena, &index));
    const DicomSeries *s = dicom_select(&index, NULL);
    REQUIRE(s);
    return s;
}

bool kit_noted(const DicomNotes *notes, const char *part)
{
    for (const DicomNote *n = notes->first; n; n = n->next)
        if (strstr(n->text, part)) return true;
    return false;
}

bool kit_read(const char *path, KitFile *f)
{
    *f = (KitFile){.bytes = NULL};
    snprintf(f->path, sizeof f->path, "%s", path);
    FILE *in = fopen(path, "rb");
    if (!in) return false;
    struct stat st;
    bool ok = !stat(path, &st);
    f->size = ok ? (size_t)st.st_size : 0;
    f->bytes = mem_alloc(f->size);
    ok = ok && f->bytes && fread(f->bytes, 1, f->size, in) == f->size;
    fclose(in);
    return ok;
}

bool kit_save(KitFile *f)
{
    FILE *out = fopen(f->path, "wb");
    bool ok = out && fwrite(f->bytes, 1, f->size, out) == f->size;
    ok = out && !fclose(out) && ok;
    mem_free(f->bytes);
    f->bytes = NULL;
    return ok;
}

void kit_splice(KitFile *f, size_t at, size_t old, const void *with, size_t n)
{
    REQUIRE(at + old <= f->size);
    uint8_t *bytes = mem_alloc(f->size - old + n);
    REQUIRE(bytes);
    memcpy(bytes, f->bytes, at);
    if (n) memcpy(bytes + at, with, n);
    memcpy(bytes + at + n, f->bytes + at + old, f->size - at - old);
    mem_free(f->bytes);
    f->bytes = bytes;
    f->size = f->size - old + n;
}

// the position of an element, header and value, by the parser under test
static WalkElement element(const KitFile *f, uint32_t tag)
{
    Walk w;
    WalkInput in = {
        .path = f->path, .bytes = f->bytes, .have = f->size, .size = f->size};
    REQUIRE(walk_file(&in, &w) == WALK_DONE);
    const WalkElement *e = walk_find(&w, WALK_ROOT, tag);
    REQUIRE(e);
    WalkElement copy = *e;
    walk_free(&w);
    return copy;
}

size_t kit_find(const KitFile *f, uint32_t tag)
{
    return element(f, tag).at;
}

void kit_set(KitFile *f, uint32_t tag, const void *value, size_t n)
{
    WalkElement e = element(f, tag);
    char padded[600] = {0};
    REQUIRE(n < sizeof padded);
    memcpy(padded, value, n);
    if (n % 2) padded[n++] = ' ';
    kit_splice(f, e.offset, e.length, padded, n);
    f->bytes[e.offset - 2] = (uint8_t)n;
    f->bytes[e.offset - 1] = (uint8_t)(n >> 8);
}

void kit_set_text(KitFile *f, uint32_t tag, const char *text)
{
    kit_set(f, tag, text, strlen(text));
}

void kit_set_u16(KitFile *f, uint32_t tag, int value)
{
    uint8_t bytes[2] = {(uint8_t)value, (uint8_t)(value >> 8)};
    kit_set(f, tag, bytes, 2);
}

void kit_delete(KitFile *f, uint32_t tag)
{
    WalkElement e = element(f, tag);
    kit_splice(f, e.at, e.offset + e.length - e.at, NULL, 0);
}

void kit_insert(KitFile *f, uint32_t before, uint32_t tag, const char *vr,
                const void *value, size_t n)
{
    uint8_t bytes[600] = {(uint8_t)(tag >> 16), (uint8_t)(tag >> 24),
                          (uint8_t)tag,         (uint8_t)(tag >> 8),
                          (uint8_t)vr[0],       (uint8_t)vr[1],
                          (uint8_t)n,           (uint8_t)(n >> 8)};
    REQUIRE(n + 8 < sizeof bytes);
    memcpy(bytes + 8, value, n);
    kit_splice(f, kit_find(f, before), 0, bytes, n + 8);
}

char kit_made_text[300];

const char *kit_damage(const KitRow *r, const char *name)
{
    const char *folder = kit_folder(name);
    Volume v;
    kit_volume(&v, KIT_SLICES, KIT_H, KIT_W, false);
    DicomWrite how = kit_write();
    how.syntax = r->syntax;
    REQUIRE(dicom_write_series(folder, &v, &how));
    volume_free(&v);

    for (int i = 1; r->edit && i <= KIT_SLICES; i++) {
        if (!r->all && i != 2) continue;
        char path[600];
        KitFile f;
        snprintf(path, sizeof path, "%s/IM%04d.dcm", folder, i);
        REQUIRE(kit_read(path, &f));
        r->edit(&f, i);
        REQUIRE(kit_save(&f));
    }
    return folder;
}

static void run_row(const KitRow *r, int number)
{
    char name[64], path[600], want[1200];
    snprintf(name, sizeof name, "defect%d_%d", r->row, number);
    const char *folder = kit_damage(r, name);
    Volume out = {.unit = UNIT_NONE};
    snprintf(path, sizeof path, "%s/IM%04d.dcm", folder, r->all ? 1 : 2);
    snprintf(want, sizeof want, "%s: dicom: %s",
             r->scope == FILE_SCAN || r->scope == FILE_LOAD ? path : folder,
             r->text ? r->text : kit_made_text);
    Arena a = {0};
    DicomIndex index;
    DicomNotes notes = {0};
    bool scanned = dicom_scan(r->scope == FILE_SCAN ? path : folder,
                              &r->options, &a, &index);
    bool loaded =
        scanned && dicom_load(index.series, &r->options, &out, &notes);

    if (r->scope == NOTE) {
        bool found = false;
        for (const DicomNote *n = notes.first; n; n = n->next)
            found = found || !strcmp(n->text, want);
        if (!loaded || !found)
            test_failed(__FILE__, __LINE__, "row %d: no note \"%s\" (%s)",
                        r->row, want, loaded ? "loaded" : err_text());
    } else if (loaded || strcmp(err_text(), want)) {
        test_failed(__FILE__, __LINE__, "row %d: \"%s\", want \"%s\"", r->row,
                    loaded ? "loaded" : err_text(), want);
    } else {
        EXPECT_INT(err_kind(), ERR_DATA);
    }

    dicom_notes_free(&notes);
    volume_free(&out);
    arena_release(&a);
}

void kit_defects(const KitRow *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) run_row(&rows[i], (int)i);
}
