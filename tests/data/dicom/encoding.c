/* encoding.c -- encodings of some writers that deviate from the standard:
 * sequences with VR UN, values of odd length, bytes after pixels, padding and
 * fragments of JPEG streams. All are read as the same values. */
#include "data/dicom/file.h"
#include "data/dicom/frames.h"
#include "tests/support/dicom_make.h"
#include "tests/support/dicom_series.h"

enum { ITEM = 8, PIXEL_HEADER = 12 };

// writes n bytes of an integer, lowest first, to p
static void put_le(uint8_t *p, uint32_t v, int n)
{
    for (int i = 0; i < n; i++) p[i] = (uint8_t)(v >> 8 * i);
}

// ---- sequences with VR UN (CP-246) ------------------------------------------

// writes an element of implicit VR, or of explicit VR if `vr` is given, at p
static uint8_t *put_element(uint8_t *p, uint32_t tag, const char *vr,
                            const char *value)
{
    const uint32_t n = (uint32_t)strlen(value);
    put_le(p, tag >> 16, 2);
    put_le(p + 2, tag & 0xFFFF, 2);
    if (vr) {
        memcpy(p + 4, vr, 2);
        put_le(p + 6, n, 2);
    } else {
        put_le(p + 4, n, 4);
    }
    memcpy(p + 8, value, n);
    return p + 8 + n;
}

// writes a tag of items, with a length of 32 bits
static uint8_t *put_item(uint8_t *p, uint32_t tag, uint32_t length)
{
    put_le(p, tag >> 16, 2);
    put_le(p + 2, tag & 0xFFFF, 2);
    put_le(p + 4, length, 4);
    return p + ITEM;
}

// Writes the sequence `tag` as UN: one item that refers to "1.2.3.4 " and
// contains another sequence. `open`: of undefined length; `vr`: explicit VR
// inside.
static size_t un_sequence(uint8_t *out, uint32_t tag, bool open, bool vr)
{
    uint8_t inside[200], *p = inside;
    p = put_element(p, TAG_ReferencedSOPClassUID, vr ? "UI" : NULL, "1.2 ");
    p = put_element(p, TAG_ReferencedSOPInstanceUID, vr ? "UI" : NULL,
                    "1.2.3.4 ");

    // implicit VR: a sequence is recognised by its tag
    if (!vr) {
        p = put_item(p, TAG_PurposeOfReferenceCodeSequence, 0xFFFFFFFF);
        p = put_item(p, TAG_ITEM, 0xFFFFFFFF);
        p = put_element(p, TAG_CodeValue, NULL, "121322");
        p = put_item(p, TAG_ITEM_END, 0);
        p = put_item(p, TAG_SEQUENCE_END, 0);
    }

    const uint32_t n = (uint32_t)(p - inside);
    const uint32_t whole = ITEM + n;
    uint8_t *o = out;
    put_le(o, tag >> 16, 2);
    put_le(o + 2, tag & 0xFFFF, 2);
    memcpy(o + 4, "UN\0\0", 4);
    put_le(o + 8, open ? 0xFFFFFFFF : whole, 4);
    o = put_item(o + 12, TAG_ITEM, open ? 0xFFFFFFFF : n);
    memcpy(o, inside, n);
    o += n;
    if (open) o = put_item(o, TAG_ITEM_END, 0);
    if (open) o = put_item(o, TAG_SEQUENCE_END, 0);
    return (size_t)(o - out);
}

// the next edit inserts this before PatientName; private elements are skipped
// by the reader
static uint32_t un_tag;
static bool un_open, un_explicit;

static void insert_un(KitFile *f, int file)
{
    uint8_t bytes[400];
    (void)file;
    const size_t n = un_sequence(bytes, un_tag, un_open, un_explicit);
    kit_splice(f, kit_find(f, TAG_PatientName), 0, bytes, n);
}

TEST(dicom_un_sequence_is_read_as_sequence)
{
    static const uint32_t tags[] = {TAG_ReferencedImageSequence,
                                    TAG_SourceImageSequence, 0x00091010};

    for (int i = 0; i < 12; i++) {
        static const KitRow row = {.all = true, .edit = insert_un};
        char name[40];
        Arena a = {0};
        Volume plain, v;
        un_tag = tags[i / 4], un_open = i & 1, un_explicit = i & 2;
        snprintf(name, sizeof name, "un_%d", i);
        const DicomSeries *s = kit_series(&a, kit_damage(&row, name));
        // the reference inside the sequence, unless it is private
        DicomFile f;
        DicomHeader h;
        REQUIRE(dicom_file_open(s->paths[0], NULL, false, &f) == WALK_DONE);
        REQUIRE(header_identity(&f.walk, &a, &h));
        EXPECT_TEXT(h.reference, i < 8 ? "1.2.3.4" : "");
        dicom_file_close(&f);
        REQUIRE(dicom_load(s, NULL, &v, NULL));
        kit_volume(&plain, KIT_SLICES, KIT_H, KIT_W, false);
        EXPECT(!memcmp(v.voxels.data, plain.voxels.data,
                       tensor_bytes(&plain.voxels)));
        volume_free(&plain);
        volume_free(&v);
        arena_release(&a);
    }
}

// changes a short header of VR DS or US to the long header of UN
static void as_un(KitFile *f, uint32_t tag)
{
    uint8_t header[12];
    const size_t at = kit_find(f, tag);
    memcpy(header, f->bytes + at, 4);
    memcpy(header + 4, "UN\0\0", 4);
    put_le(header + 8, f->bytes[at + 6] | (uint32_t)f->bytes[at + 7] << 8, 4);
    kit_splice(f, at, 8, header, sizeof header);
}

static void values_as_un(KitFile *f, int file)
{
    (void)file;
    as_un(f, TAG_PixelSpacing);
    as_un(f, TAG_Rows);
    as_un(f, TAG_PatientID);
}

TEST(dicom_values_with_vr_un_are_read)
{
    static const KitRow row = {.all = true, .edit = values_as_un};
    Arena a = {0};
    Volume v;
    const DicomSeries *s = kit_series(&a, kit_damage(&row, "un_values"));
    EXPECT_TEXT(s->patient_id, kit_write().patient_id);
    REQUIRE(dicom_load(s, NULL, &v, NULL));
    EXPECT_INT(v.voxels.dim.h, KIT_H);
    EXPECT_NEAR(v.affine[0][0], 1, 1e-12);
    EXPECT_NEAR(v.affine[1][1], 2, 1e-12);
    volume_free(&v);
    arena_release(&a);
}

// ---- bytes after the pixels -------------------------------------------------

static uint32_t pixel_bytes;

static void longer_pixels(KitFile *f, int file)
{
    static const uint8_t more[200] = {1, 2, 3};
    (void)file;
    const size_t at = kit_find(f, TAG_PixelData), n = 2 * KIT_H * KIT_W;
    put_le(f->bytes + at + 8, pixel_bytes, 4);
    kit_splice(f, at + PIXEL_HEADER + n, 0, more, pixel_bytes - n);
}

TEST(dicom_bytes_behind_pixels_are_left_out)
{
    static const KitRow row = {.all = true, .edit = longer_pixels};
    enum { NEED = 2 * KIT_H * KIT_W };

    // odd lengths too; additional whole frames contradict the header
    static const uint32_t lengths[] = {NEED + 2,      NEED + 1, NEED + 69,
                                       2 * NEED + 20, 2 * NEED, 3 * NEED};

    for (int i = 0; i < 6; i++) {
        char name[40], want[80];
        Arena a = {0};
        Volume plain, v;
        DicomNotes notes = {0};
        pixel_bytes = lengths[i];
        snprintf(name, sizeof name, "behind_%d", i);
        const DicomSeries *s = kit_series(&a, kit_damage(&row, name));
        if (i >= 4) {
            snprintf(want, sizeof want, "pixel data has %u bytes, need %d",
                     (unsigned)lengths[i], NEED);
            EXPECT_FAIL(dicom_load(s, NULL, &v, NULL), want);
        } else {
            REQUIRE(dicom_load(s, NULL, &v, &notes));
            snprintf(want, sizeof want, "%u bytes after the pixels ignored",
                     (unsigned)lengths[i] - NEED);
            EXPECT(kit_noted(&notes, want));
            kit_volume(&plain, KIT_SLICES, KIT_H, KIT_W, false);
            EXPECT(!memcmp(v.voxels.data, plain.voxels.data,
                           tensor_bytes(&plain.voxels)));
            volume_free(&plain);
        }
        volume_free(&v);
        dicom_notes_free(&notes);
        arena_release(&a);
    }
}

// ---- JPEG streams -----------------------------------------------------------

// the bytes after FFD9, and how many
static uint8_t pad_byte;
static int pads;

// the only fragment of a file: offset of its item, and its bytes up to FFD9
static size_t find_fragment(const KitFile *f, size_t *stream)
{
    // after the header of the element and the empty offset table
    const size_t table = kit_find(f, TAG_PixelData) + PIXEL_HEADER;
    const uint8_t *p = f->bytes + table;
    const size_t at = table + ITEM + p[4] + 256u * p[5];
    p = f->bytes + at;
    size_t n = p[4] + 256u * p[5] + 65536u * p[6];
    while (n > 2 && !(p[ITEM + n - 2] == 0xFF && p[ITEM + n - 1] == 0xD9)) n--;
    *stream = n;
    return at;
}

static void pad_jpeg(KitFile *f, int file)
{
    uint8_t pad[8];
    (void)file;
    size_t n, at = find_fragment(f, &n);
    const size_t old = f->bytes[at + 4] + 256u * f->bytes[at + 5];
    memset(pad, pad_byte, sizeof pad);
    put_le(f->bytes + at + 4, (uint32_t)n + (uint32_t)pads, 4);
    kit_splice(f, at + ITEM + n, old - n, pad, (size_t)pads);
}

TEST(dicom_jpeg_padding_of_any_byte)
{
    static const DicomSyntax syntaxes[] = {DICOM_JPEG_LOSSLESS, DICOM_JPEG_LS};
    static const struct {
        uint8_t byte;
        int count;
    } cases[] = {{0, 1},    {0xFF, 1}, {' ', 1}, {0x41, 1},
                 {0xFF, 3}, {' ', 2},  {0, 0}};
    if (!dicom_ready()) SKIP("built without DCMTK");

    for (int i = 0; i < 14; i++) {
        const KitRow row = {
            .all = true, .edit = pad_jpeg, .syntax = syntaxes[i % 2]};
        char name[40];
        Arena a = {0};
        Volume plain, v;
        pad_byte = cases[i / 2].byte, pads = cases[i / 2].count;
        snprintf(name, sizeof name, "pad_%d", i);
        REQUIRE(
            dicom_load(kit_series(&a, kit_damage(&row, name)), NULL, &v, NULL));
        kit_volume(&plain, KIT_SLICES, KIT_H, KIT_W, false);
        EXPECT(!memcmp(v.voxels.data, plain.voxels.data,
                       tensor_bytes(&plain.voxels)));
        volume_free(&plain);
        volume_free(&v);
        arena_release(&a);
    }
}

// the number of fragments of two frames, and whether there is an offset table
typedef struct Cut {
    int pieces[2];
    bool table, ambiguous;
} Cut;

// Makes a file of two frames, from `f` and `other`, each in fragments.
static void two_frames(KitFile *f, const KitFile *other, Cut cut)
{
    uint8_t *made = mem_alloc(f->size + other->size + 200), *p = made;
    size_t length[2], from[2];
    const KitFile *files[] = {f, other};

    REQUIRE(made);
    for (int i = 0; i < 2; i++) from[i] = find_fragment(files[i], &length[i]);
    p = put_item(p, TAG_ITEM, cut.table ? 8 : 0);
    uint8_t *table = p;
    if (cut.table) p += 8;
    const uint8_t *first = p;

    for (int i = 0; i < 2; i++) {
        const uint8_t *stream = files[i]->bytes + from[i] + ITEM;
        if (cut.table) put_le(table + 4 * i, (uint32_t)(p - first), 4);
        size_t at = 0;
        for (int k = 0; k < cut.pieces[i]; k++) {
            size_t n = length[i] * (size_t)(k + 1) / (size_t)cut.pieces[i] - at;
            // the end marker of the first frame is cut in two
            if (cut.ambiguous && !i && k + 2 == cut.pieces[i])
                n = length[i] - 1 - at;
            p = put_item(p, TAG_ITEM, (uint32_t)n);
            memcpy(p, stream + at, n);
            p += n, at += n;
        }
    }

    p = put_item(p, TAG_SEQUENCE_END, 0);
    const size_t start = kit_find(f, TAG_PixelData) + PIXEL_HEADER;
    kit_splice(f, start, f->size - start, made, (size_t)(p - made));
    kit_insert(f, TAG_Rows, TAG_NumberOfFrames, "IS", "2 ", 2);
    mem_free(made);
}

// decodes the frames of a file; fails with a reason if it has none
static bool decode_file(const KitFile *f, Arena *a, uint8_t *out)
{
    Walk w;
    DicomHeader h;
    const WalkInput in = {
        .path = "two", .bytes = f->bytes, .have = f->size, .size = f->size};
    REQUIRE(walk_file(&in, &w) == WALK_DONE);
    REQUIRE(header_identity(&w, a, &h));
    REQUIRE(header_pixels(&w, NULL, false, "two", &h, NULL));
    const bool ok =
        frames_check(&w, &h, "two", NULL) && frames_decode(&w, &h, out);
    walk_free(&w);
    return ok;
}

TEST(dicom_jpeg_frames_in_several_fragments)
{
    static const Cut cuts[] = {{{1, 1}, false, false}, {{3, 2}, false, false},
                               {{1, 4}, false, false}, {{3, 2}, true, false},
                               {{2, 2}, true, true},   {{2, 2}, false, true}};
    enum { FRAME = 2 * KIT_H * KIT_W };
    if (!dicom_ready()) SKIP("built without DCMTK");
    Volume plain;
    kit_volume(&plain, KIT_SLICES, KIT_H, KIT_W, false);

    for (int i = 0; i < 12; i++) {
        const KitRow row = {.syntax =
                                i % 2 ? DICOM_JPEG_LS : DICOM_JPEG_LOSSLESS};
        char name[40], path[600];
        Arena a = {0};
        KitFile f, other;
        uint8_t got[2 * FRAME];
        snprintf(name, sizeof name, "fragments_%d", i);
        const char *folder = kit_damage(&row, name);
        snprintf(path, sizeof path, "%s/IM0001.dcm", folder);
        REQUIRE(kit_read(path, &f));
        snprintf(path, sizeof path, "%s/IM0002.dcm", folder);
        REQUIRE(kit_read(path, &other));
        two_frames(&f, &other, cuts[i / 2]);
        // if an end marker is cut in two, only the offset table separates the
        // frames
        if (i / 2 == 5)
            EXPECT_FAIL(decode_file(&f, &a, got),
                        "two: dicom: 4 fragments for 2 frames");
        else if (!decode_file(&f, &a, got))
            test_failed(__FILE__, __LINE__, "cut %d: %s", i, err_text());
        else
            EXPECT(!memcmp(got, plain.voxels.data, sizeof got));
        mem_free(f.bytes);
        mem_free(other.bytes);
        arena_release(&a);
    }
    volume_free(&plain);
}
