/* without_dcmtk.c -- DICOM in a build without DCMTK, and in others.
 *
 * The files that the tests read are made here byte by byte, also the compressed
 * ones, which only DCMTK writes. */
#include "data/dicom/tag.h"
#include "tests/support/dicom_series.h"
#include <sys/stat.h>
#include <zlib.h>

enum { SLICES = 3, ROWS = 4, COLS = 5, PLANE = ROWS * COLS };

static const char implicit_le[] = "1.2.840.10008.1.2";
static const char explicit_le[] = "1.2.840.10008.1.2.1";
static const char explicit_be[] = "1.2.840.10008.1.2.2";
static const char deflated[] = "1.2.840.10008.1.2.1.99";
static const char rle[] = "1.2.840.10008.1.2.5";
static const char jpeg[] = "1.2.840.10008.1.2.4.70";

/* A file to be written. */
typedef struct Out {
    uint8_t bytes[4096];
    size_t size;
    bool implicit, big;
} Out;

static void put(Out *o, const void *p, size_t n)
{
    REQUIRE(o->size + n <= sizeof o->bytes);
    memcpy(o->bytes + o->size, p, n);
    o->size += n;
}

/* Writes the low `bytes` bytes of v in file order. */
static void put_number(Out *o, uint32_t v, int bytes)
{
    for (int i = 0; i < bytes; i++) {
        uint8_t b = (uint8_t)(v >> 8 * (o->big ? bytes - 1 - i : i));
        put(o, &b, 1);
    }
}

static void put_header(Out *o, uint32_t tag, const char *vr, uint32_t length)
{
    put_number(o, tag >> 16, 2);
    put_number(o, tag & 0xFFFF, 2);
    if (o->implicit) {
        put_number(o, length, 4);
        return;
    }
    put(o, vr, 2);
    bool wide = dicom_vr_long(VR(vr[0], vr[1]));
    if (wide) put_number(o, 0, 2);
    put_number(o, length, wide ? 4 : 2);
}

static void put_text(Out *o, uint32_t tag, const char *vr, const char *text)
{
    size_t n = strlen(text);
    put_header(o, tag, vr, (uint32_t)(n + n % 2));
    put(o, text, n);
    if (n % 2) put(o, vr[0] == 'U' ? "" : " ", 1);
}

static void put_u16(Out *o, uint32_t tag, int value)
{
    put_header(o, tag, "US", 2);
    put_number(o, (uint32_t)value, 2);
}

static int stored(int slice, int i)
{
    return slice * 300 + i * 37;
}

/* Writes an RLE frame of 16 bits: two segments of literal runs of PLANE
 * bytes. */
static void put_rle(Out *o, int slice)
{
    const uint32_t each = 1 + PLANE + (1 + PLANE) % 2, size = 64 + 2 * each;
    put_number(o, 0xFFFE, 2), put_number(o, 0xE000, 2), put_number(o, size, 4);
    put_number(o, 2, 4);
    put_number(o, 64, 4), put_number(o, 64 + each, 4);
    for (int i = 3; i < 16; i++) put_number(o, 0, 4);
    for (int high = 1; high >= 0; high--) {
        put_number(o, PLANE - 1, 1);
        for (int i = 0; i < PLANE; i++)
            put_number(o, (uint32_t)stored(slice, i) >> 8 * high, 1);
        if ((1 + PLANE) % 2) put_number(o, 128, 1);
    }
}

static void put_pixels(Out *o, const char *syntax, int slice)
{
    if (syntax != rle && syntax != jpeg) {
        put_header(o, (uint32_t)TAG_PixelData, "OW", 2 * PLANE);
        for (int i = 0; i < PLANE; i++)
            put_number(o, (uint32_t)stored(slice, i), 2);
        return;
    }

    put_header(o, (uint32_t)TAG_PixelData, "OB", UINT32_MAX);

    // an empty offset table, the frame, the end
    put_number(o, 0xFFFE, 2), put_number(o, 0xE000, 2), put_number(o, 0, 4);

    if (syntax == rle) {
        put_rle(o, slice);
    } else {
        put_number(o, 0xFFFE, 2), put_number(o, 0xE000, 2);
        put_number(o, 4, 4), put(o, "\xFF\xD8\xFF\xD9", 4);
    }
    put_number(o, 0xFFFE, 2), put_number(o, 0xE0DD, 2), put_number(o, 0, 4);
}

static void put_data_set(Out *o, const char *syntax, int slice)
{
    char text[64];
    put_text(o, TAG_SOPClassUID, "UI", CLASS_MR);
    snprintf(text, sizeof text, "1.2.3.%d", slice + 1);
    put_text(o, TAG_SOPInstanceUID, "UI", text);
    put_text(o, TAG_Modality, "CS", "MR");
    put_text(o, TAG_PatientID, "LO", "PLAIN");
    put_text(o, TAG_StudyInstanceUID, "UI", "1.2.3");
    put_text(o, TAG_SeriesInstanceUID, "UI", "1.2.3.4");
    snprintf(text, sizeof text, "-5\\7\\%d", 11 + 3 * slice);
    put_text(o, TAG_ImagePositionPatient, "DS", text);
    put_text(o, TAG_ImageOrientationPatient, "DS", "1\\0\\0\\0\\1\\0");
    put_u16(o, TAG_SamplesPerPixel, 1);
    put_text(o, TAG_PhotometricInterpretation, "CS", "MONOCHROME2");
    put_u16(o, TAG_Rows, ROWS);
    put_u16(o, TAG_Columns, COLS);
    put_text(o, TAG_PixelSpacing, "DS", "2\\1");
    put_u16(o, TAG_BitsAllocated, 16);
    put_u16(o, TAG_BitsStored, 16);
    put_u16(o, TAG_HighBit, 15);
    put_u16(o, TAG_PixelRepresentation, 0);
    put_pixels(o, syntax, slice);
}

/* Deflates the bytes after the meta group to one raw stream. */
static void deflate_rest(Out *o, size_t from)
{
    Out plain = *o;
    z_stream z = {0};
    REQUIRE(deflateInit2(&z, 9, Z_DEFLATED, -MAX_WBITS, 8,
                         Z_DEFAULT_STRATEGY) == Z_OK);
    z.next_in = plain.bytes + from, z.avail_in = (uInt)(plain.size - from);
    z.next_out = o->bytes + from, z.avail_out = (uInt)(sizeof o->bytes - from);
    REQUIRE(deflate(&z, Z_FINISH) == Z_STREAM_END);
    o->size = from + z.total_out;
    deflateEnd(&z);
}

static const char *write_series(const char *name, const char *syntax)
{
    const char *folder = kit_folder(name);
    for (int k = 0; k < SLICES; k++) {
        Out o = {.size = 132};
        memcpy(o.bytes + 128, "DICM", 4);
        put_text(&o, TAG_TransferSyntaxUID, "UI", syntax);
        size_t meta = o.size;
        o.implicit = syntax == implicit_le;
        o.big = syntax == explicit_be;
        put_data_set(&o, syntax, k);
        if (syntax == deflated) deflate_rest(&o, meta);
        // names against the spatial order
        char path[600];
        snprintf(path, sizeof path, "%s/IM%d.dcm", folder, SLICES - k);
        FILE *f = fopen(path, "wb");
        REQUIRE(f);
        bool ok = fwrite(o.bytes, 1, o.size, f) == o.size;
        REQUIRE(!fclose(f) && ok);
    }
    return folder;
}

TEST(plain_dicom_is_read_in_every_build)
{
    static const struct {
        const char *name, *syntax;
    } forms[] = {{"plain_implicit", implicit_le},
                 {"plain_explicit", explicit_le},
                 {"plain_big", explicit_be},
                 {"plain_deflated", deflated},
                 {"plain_rle", rle}};

    for (size_t n = 0; n < sizeof forms / sizeof *forms; n++) {
        Arena a = {0};
        Volume v;
        DicomNotes notes = {0};
        const char *folder = write_series(forms[n].name, forms[n].syntax);
        REQUIRE(dicom_load(kit_series(&a, folder), NULL, &v, &notes));
        EXPECT(kit_noted(&notes, "big endian") ==
               (forms[n].syntax == explicit_be));
        REQUIRE(v.voxels.type == I16);
        const int16_t *x = v.voxels.data;
        for (int k = 0; k < SLICES; k++)
            for (int i = 0; i < PLANE; i++)
                EXPECT_INT(x[k * PLANE + i], stored(k, i));
        EXPECT_NEAR(v.affine[2][2], 3, 1e-12);
        EXPECT_NEAR(v.affine[2][3], 11, 1e-12);
        // the first file by name is the last slice: sorted by position
        dicom_notes_free(&notes);
        volume_free(&v);
        arena_release(&a);
    }
}

TEST(plain_dicom_mask_is_read_in_every_build)
{
    Arena a = {0};
    Volume v;
    const char *folder = write_series("plain_mask", explicit_le);
    const DicomSeries *s = kit_series(&a, folder);
    // any series may be a mask; this one has values that are not labels
    EXPECT_FAIL(
        dicom_load_mask(s, s, NULL, &v, NULL),
        "are not declared labels [tag (7fe0,0010) PixelData]; fix: name "
        "the series of the mask");
    arena_release(&a);
}

TEST(plain_dicom_jpeg_says_what_is_missing)
{
    Arena a = {0};
    Volume v;
    const char *folder = write_series("plain_jpeg", jpeg);
    const DicomSeries *s = kit_series(&a, folder);
    bool dcmtk = dicom_ready();

    EXPECT_FAIL(dicom_load(s, NULL, &v, NULL),
                dcmtk ? "JPEG inside DICOM: no scan"
                      : "compression JPEG lossless (1.2.840.10008.1.2.4.70) "
                        "not supported: this program was built without DCMTK "
                        "[tag (0002,0010) TransferSyntaxUID]; fix: dcmdjpeg");
    EXPECT_INT(err_kind(), ERR_DATA);
    arena_release(&a);
}

/* Without DCMTK uncompressed files are written; a compressed syntax is refused
 * with the fix. */
TEST(plain_dicom_is_written_without_dcmtk)
{
    Volume v, back;
    Arena a = {0};
    kit_volume(&v, 2, 4, 5, false);

    for (int s = 0; s < DICOM_SYNTAX_COUNT; s++) {
        char name[32];
        DicomWrite how = kit_write();
        how.syntax = (DicomSyntax)s;
        snprintf(name, sizeof name, "plain_write_%d", s);
        const char *folder = kit_folder(name);
        if (!dicom_writes(how.syntax)) {
            EXPECT(s >= DICOM_RLE && !dicom_ready());
            EXPECT_FAIL(dicom_write_series(folder, &v, &how),
                        "compressed files not written; fix: install DCMTK");
            EXPECT(strstr(err_text(), "make DICOM=1"));
            continue;
        }
        REQUIRE(dicom_write_series(folder, &v, &how));
        REQUIRE(dicom_load(kit_series(&a, folder), NULL, &back, NULL));
        EXPECT(
            !memcmp(v.voxels.data, back.voxels.data, tensor_bytes(&v.voxels)));
        volume_free(&back);
    }
    volume_free(&v);
    arena_release(&a);
}
