/* dicom_defects.c -- every kind of damage has its own words.
 *
 * The rows are those of the table of defects: a good series of four slices
 * is written, IM0002.dcm (or all files) is damaged, and the reason must be
 * exactly "PATH: dicom: TEXT". Accepted oddities must leave exactly that as
 * a note. */
#include "dicom_kit.h"
#include "dicom_walk.h"

enum { SLICES = 4, H = 5, W = 7 };

typedef enum Scope {
    FILE_SCAN,   // scan the damaged file itself; PATH is the file
    FILE_LOAD,   // scan and load the folder; PATH is the file
    FOLDER_LOAD, // scan and load the folder; PATH is the folder
    NOTE,        // loads, with this note of the folder
} Scope;

typedef struct Row {
    int row;
    Scope scope;
    bool all; // edit all files, not only the second
    void (*edit)(KitFile *f, int file);
    const char *text;
    DicomSyntax syntax;
    DicomOptions options;
} Row;

// texts with an offset in them are made where the offset is known
static char made_text[300];

// ---- the file ---------------------------------------------------------------

static void cut(KitFile *f, size_t at)
{
    kit_splice(f, at, f->size - at, NULL, 0);
}

static void empty_file(KitFile *f, int n)
{
    (void)n;
    cut(f, 0);
}

static void no_mark(KitFile *f, int n)
{
    (void)n;
    memset(f->bytes, 'x', 200);
}

static void cut_header(KitFile *f, int n)
{
    (void)n;
    size_t at = kit_find(f, TAG_PixelData);
    cut(f, at + 4);
    snprintf(made_text, sizeof made_text,
             "file ends inside an element header at byte %zu", at);
}

static void cut_pixels(KitFile *f, int n)
{
    (void)n;
    size_t at = kit_find(f, TAG_PixelData);
    cut(f, at + 12 + 20);
    snprintf(made_text, sizeof made_text,
             "element says 70 bytes, only 20 left at byte %zu "
             "[tag (7fe0,0010) PixelData]",
             at);
}

static void odd_length(KitFile *f, int n)
{
    (void)n;
    size_t at = kit_find(f, TAG_PatientID);
    f->bytes[at + 6] = 5;
    kit_splice(f, at + 13, 1, NULL, 0);
}

static const uint8_t open_sequence[] = {
    0x08, 0,    0x40, 0x11, 'S', 'Q',  0,    0,    0xFF, 0xFF,
    0xFF, 0xFF, 0xFE, 0xFF, 0,   0xE0, 0xFF, 0xFF, 0xFF, 0xFF};

static void unclosed(KitFile *f, int n)
{
    (void)n;
    size_t at = kit_find(f, TAG_PatientName);
    cut(f, at);
    kit_splice(f, at, 0, open_sequence, sizeof open_sequence);
}

static void deep(KitFile *f, int n)
{
    (void)n;
    size_t at = kit_find(f, TAG_PatientName);
    for (int i = 0; i < 65; i++)
        kit_splice(f, at, 0, open_sequence, sizeof open_sequence);
}

static void stray_delimiter(KitFile *f, int n)
{
    (void)n;
    static const uint8_t end[] = {0xFE, 0xFF, 0x0D, 0xE0, 0, 0, 0, 0};
    size_t at = kit_find(f, TAG_PatientName);
    kit_splice(f, at, 0, end, sizeof end);
    snprintf(made_text, sizeof made_text,
             "item delimiter without item at byte %zu", at);
}

static void trailing(KitFile *f, int n)
{
    (void)n;
    kit_splice(f, f->size, 0, "bytes", 5);
}

static void group_length(KitFile *f, int n)
{
    (void)n;
    kit_insert(f, TAG_PatientName, 0x00100000, "UL", "\x09\0\0\0", 4);
}

static void twice(KitFile *f, int n)
{
    (void)n;
    kit_insert(f, TAG_PatientBirthDate, TAG_PatientID, "LO", "KIT01 ", 6);
}

static void out_of_order(KitFile *f, int n)
{
    (void)n;
    kit_insert(f, TAG_PatientID, 0x00080080, "LO", "Home", 4);
}

static void wrong_vr(KitFile *f, int n)
{
    (void)n;
    f->bytes[kit_find(f, TAG_Rows) + 5] = 'L';
}

static void report(KitFile *f, int n)
{
    (void)n;
    kit_set_text(f, TAG_SOPClassUID, "1.2.840.10008.5.1.4.1.1.481.3");
    cut(f, kit_find(f, TAG_PixelData));
}

static void directory(KitFile *f, int n)
{
    (void)n;
    static const uint8_t records[] = {4, 0, 0x20, 0x12, 'S', 'Q',
                                      0, 0, 0,    0,    0,   0};
    size_t at = kit_find(f, TAG_SpecificCharacterSet);
    kit_splice(f, at, 0, records, sizeof records);
}

static void strange_digits(KitFile *f, int n)
{
    (void)n;
    kit_set(f, TAG_SliceThickness, "3\xC3\xA9", 3);
}

static void crowded(KitFile *f, int n)
{
    (void)n;
    enum { MANY = 100000 };
    uint8_t *many = mem_alloc(MANY * 8);
    REQUIRE(many);
    for (int i = 0; i < MANY; i++) {
        uint8_t *p = many + i * 8;
        p[0] = 0x29, p[1] = (uint8_t)(i >> 16), p[2] = (uint8_t)i;
        p[3] = (uint8_t)(i >> 8), p[4] = 'L', p[5] = 'O';
    }
    size_t at = kit_find(f, TAG_PixelData);
    kit_splice(f, at, 0, many, MANY * 8);
    mem_free(many);
}

static void nothing(KitFile *f, int n)
{
    (void)f, (void)n;
}

// ---- transfer syntax --------------------------------------------------------

// the value of the first UI that starts with this, wherever it is
static size_t find_bytes(const KitFile *f, const void *what, size_t n)
{
    for (size_t i = 0; i + n <= f->size; i++)
        if (!memcmp(f->bytes + i, what, n)) return i;
    REQUIRE(!"the bytes are there");
    return 0;
}

static void jpeg_2000(KitFile *f, int n)
{
    (void)n;
    size_t at = find_bytes(f, "1.2.840.10008.1.2.1", 20);
    f->bytes[at - 2] = 22;
    kit_splice(f, at, 20, "1.2.840.10008.1.2.4.90", 22);
}

static void no_meta(KitFile *f, int n)
{
    (void)n;
    kit_splice(f, 0, kit_find(f, TAG_SpecificCharacterSet), NULL, 0);
}

static void cut_deflated(KitFile *f, int n)
{
    (void)n;
    cut(f, f->size - 30);
    snprintf(made_text, sizeof made_text,
             "deflated data set is damaged at byte %zu", f->size);
}

// offset of the first fragment's item, behind the offset table
static size_t fragment(const KitFile *f)
{
    size_t table = kit_find(f, TAG_PixelData) + 12;
    return table + 8 + f->bytes[table + 4];
}

static void no_fragment(KitFile *f, int n)
{
    (void)n;
    size_t at = fragment(f);
    kit_splice(f, at, f->size - 8 - at, NULL, 0);
}

static void two_fragments(KitFile *f, int n)
{
    (void)n;
    uint8_t copy[400];
    size_t at = fragment(f), size = f->size - 8 - at;
    REQUIRE(size < sizeof copy);
    memcpy(copy, f->bytes + at, size);
    kit_splice(f, at, 0, copy, size);
}

static void bad_offset(KitFile *f, int n)
{
    (void)n;
    size_t table = kit_find(f, TAG_PixelData) + 12;
    if (f->bytes[table + 4] == 0) {
        f->bytes[table + 4] = 4;
        kit_splice(f, table + 8, 0, "\4\0\0\0", 4);
    } else {
        f->bytes[table + 8] = 4;
    }
}

static void segments_16(KitFile *f, int n)
{
    (void)n;
    f->bytes[fragment(f) + 8] = 16;
}

static void segment_outside(KitFile *f, int n)
{
    (void)n;
    f->bytes[fragment(f) + 8 + 4] = 32;
}

static void segment_short(KitFile *f, int n)
{
    (void)n;
    size_t data = fragment(f) + 8;
    memset(f->bytes + data + 64, 128, f->bytes[data + 8] - 64u);
}

static void jpeg_size(KitFile *f, int n)
{
    (void)n;
    size_t at = find_bytes(f, "\xFF\xC3", 2);
    f->bytes[at + 6]++;
}

// ---- pixels -----------------------------------------------------------------

static void set_u16(KitFile *f, uint32_t tag, int value)
{
    kit_set_u16(f, tag, value);
}

#define SETS(name, tag, value)          \
    static void name(KitFile *f, int n) \
    {                                   \
        (void)n;                        \
        set_u16(f, TAG_##tag, value);   \
    }
SETS(rows_0, Rows, 0)
SETS(rows_7, Rows, 7)
SETS(allocated_12, BitsAllocated, 12)
SETS(stored_17, BitsStored, 17)
SETS(high_16, HighBit, 16)
SETS(high_15, HighBit, 15)
SETS(sign_2, PixelRepresentation, 2)
SETS(samples_3, SamplesPerPixel, 3)

#define WRITES(name, tag, value)           \
    static void name(KitFile *f, int n)    \
    {                                      \
        (void)n;                           \
        kit_set_text(f, TAG_##tag, value); \
    }
WRITES(palette, PhotometricInterpretation, "PALETTE COLOR")
WRITES(text_position, ImagePositionPatient, "1\\2\\x")
WRITES(two_positions, ImagePositionPatient, "1\\2")
WRITES(is_ct, Modality, "CT")
WRITES(zero_spacing, PixelSpacing, "0\\1")
WRITES(nan_spacing, PixelSpacing, "NaN\\1")
WRITES(other_spacing, PixelSpacing, "2\\1.5")
WRITES(skewed, ImageOrientationPatient, "1\\0\\0\\0.6\\0.8\\0")
WRITES(coronal, ImageOrientationPatient, "1\\0\\0\\0\\0\\-1")
WRITES(same_place, ImagePositionPatient, "-5\\7\\11")
WRITES(uneven, ImagePositionPatient, "-5\\7\\14.1")
WRITES(shifted, ImagePositionPatient, "-4.5\\7\\14")
WRITES(thick, SliceThickness, "4")

#define DELETES(name, tag)              \
    static void name(KitFile *f, int n) \
    {                                   \
        (void)n;                        \
        kit_delete(f, TAG_##tag);       \
    }
DELETES(no_position, ImagePositionPatient)
DELETES(no_orientation, ImageOrientationPatient)
DELETES(no_spacing, PixelSpacing)

static void frames_text(KitFile *f, int n)
{
    (void)n;
    kit_insert(f, TAG_Rows, TAG_NumberOfFrames, "IS", "many", 4);
}

static void two_pixels(KitFile *f, int n)
{
    (void)n;
    uint8_t copy[200];
    size_t at = kit_find(f, TAG_PixelData), size = f->size - at;
    REQUIRE(size < sizeof copy);
    memcpy(copy, f->bytes + at, size);
    kit_splice(f, at, 0, copy, size);
}

static void put_slope(KitFile *f, const char *slope)
{
    kit_insert(f, TAG_PixelData, TAG_RescaleIntercept, "DS", "0 ", 2);
    kit_insert(f, TAG_PixelData, TAG_RescaleSlope, "DS", slope, strlen(slope));
}

static void slope_0(KitFile *f, int n)
{
    (void)n;
    put_slope(f, "0 ");
}

static void slope_nan(KitFile *f, int n)
{
    (void)n;
    put_slope(f, "NaN ");
}

static void slope_text(KitFile *f, int n)
{
    (void)n;
    put_slope(f, "1,25");
}

static void slope_each(KitFile *f, int n)
{
    put_slope(f, n == 2 ? "2 " : "1 ");
}

static void table(KitFile *f, int n)
{
    (void)n;
    static const uint8_t lut[] = {0x28, 0, 0, 0x30, 'S', 'Q', 0, 0, 0, 0, 0, 0};
    kit_splice(f, kit_find(f, TAG_PixelData), 0, lut, sizeof lut);
}

static void constant(KitFile *f, int n)
{
    (void)n;
    size_t at = kit_find(f, TAG_PixelData) + 12;
    memset(f->bytes + at, 3, f->size - at);
}

static void other_rows(KitFile *f, int n)
{
    (void)n;
    kit_set_u16(f, TAG_Rows, 7);
    kit_set_u16(f, TAG_Columns, 5);
}

static void tilt(KitFile *f, int n)
{
    char text[64];
    snprintf(text, sizeof text, "-5\\%g\\%d", 7 + 0.3 * (n - 1),
             11 + 3 * (n - 1));
    kit_set_text(f, TAG_ImagePositionPatient, text);
}

static void lose_second(KitFile *f, int n)
{
    (void)n;
    // as if it were slice 5: a hole at 2
    kit_set_text(f, TAG_ImagePositionPatient, "-5\\7\\23");
}

#define MADE NULL /* the text is made_text */
static const Row rows[] = {
    {1, FILE_SCAN, false, empty_file, "file is empty", 0, {0}},
    {2,
     FILE_SCAN,
     false,
     no_mark,
     "not DICOM: no DICM mark and no readable group 0008",
     0,
     {0}},
    {3, FILE_LOAD, false, cut_header, MADE, 0, {0}},
    {4, FILE_LOAD, false, cut_pixels, MADE, 0, {0}},
    {5,
     FILE_LOAD,
     false,
     odd_length,
     "value length is odd (5) [tag (0010,0020) PatientID]",
     0,
     {0}},
    {6,
     FILE_LOAD,
     false,
     unclosed,
     "sequence not closed at end of file",
     0,
     {0}},
    {7,
     FILE_LOAD,
     false,
     deep,
     "sequences nested deeper than 64 [tag (0008,1140) "
     "ReferencedImageSequence]",
     0,
     {0}},
    {8, FILE_LOAD, false, stray_delimiter, MADE, 0, {0}},
    {9,
     NOTE,
     false,
     trailing,
     "5 bytes after the last element ignored",
     0,
     {0}},
    {10,
     NOTE,
     false,
     group_length,
     "group length wrong, ignored [tag (0010,0000)]",
     0,
     {0}},
    {11,
     FILE_LOAD,
     false,
     twice,
     "element appears twice [tag (0010,0020) PatientID]",
     0,
     {0}},
    {12,
     NOTE,
     false,
     out_of_order,
     "elements out of order [tag (0008,0080)]",
     0,
     {0}},
    {13,
     FILE_LOAD,
     false,
     wrong_vr,
     "value representation UL, need US [tag (0028,0010) Rows]",
     0,
     {0}},
    {14,
     FILE_SCAN,
     false,
     report,
     "not an image (RT Structure Set Storage) [tag (0008,0016) SOPClassUID]",
     0,
     {0}},
    {15,
     FILE_SCAN,
     false,
     directory,
     "DICOMDIR given; pass the folder",
     0,
     {0}},
    {16,
     FILE_LOAD,
     false,
     strange_digits,
     "character set ISO_IR 192 in a number [tag (0018,0050) SliceThickness]",
     0,
     {0}},
    {17,
     FILE_LOAD,
     false,
     crowded,
     "more than 100000 elements (limit 100000)",
     0,
     {0}},
    {18,
     FILE_SCAN,
     false,
     nothing,
     "file larger than limit 500",
     0,
     {.max_file_bytes = 500}},
    {19,
     FILE_LOAD,
     true,
     jpeg_2000,
     "compression JPEG 2000 lossless (1.2.840.10008.1.2.4.90) not supported "
     "[tag (0002,0010) TransferSyntaxUID]; fix: dcmdjpeg or gdcmconv --raw",
     0,
     {0}},
    {20,
     FILE_SCAN,
     false,
     no_meta,
     "no transfer syntax; assume_implicit_le = true to force "
     "[tag (0002,0010) TransferSyntaxUID]",
     DICOM_IMPLICIT_LE,
     {0}},
    {21, FILE_SCAN, false, cut_deflated, MADE, DICOM_DEFLATED, {0}},
    {23,
     FILE_LOAD,
     false,
     no_fragment,
     "pixel fragments missing [tag (7fe0,0010) PixelData]",
     DICOM_RLE,
     {0}},
    {24,
     FILE_LOAD,
     false,
     two_fragments,
     "2 fragments for 1 frames [tag (7fe0,0010) PixelData]",
     DICOM_RLE,
     {0}},
    {25,
     FILE_LOAD,
     false,
     bad_offset,
     "offset table entry 1 outside pixel data [tag (7fe0,0010) PixelData]",
     DICOM_RLE,
     {0}},
    {26,
     FILE_LOAD,
     false,
     segments_16,
     "RLE header has 16 segments (1 to 15) [tag (7fe0,0010) PixelData]",
     DICOM_RLE,
     {0}},
    {27,
     FILE_LOAD,
     false,
     segment_outside,
     "RLE segment 1 offset 32 outside frame [tag (7fe0,0010) PixelData]",
     DICOM_RLE,
     {0}},
    {28,
     FILE_LOAD,
     false,
     segment_short,
     "RLE segment 1 gives 0 bytes, need 35 [tag (7fe0,0010) PixelData]",
     DICOM_RLE,
     {0}},
    {29,
     NOTE,
     true,
     nothing,
     "big endian [tag (0002,0010) TransferSyntaxUID]",
     DICOM_BIG_ENDIAN,
     {0}},
    {30,
     FILE_LOAD,
     false,
     jpeg_size,
     "JPEG inside DICOM: frame of 6 x 7 x 1, need 5 x 7 x 1 "
     "[tag (7fe0,0010) PixelData]",
     DICOM_JPEG_LOSSLESS,
     {0}},
    {31,
     FILE_LOAD,
     true,
     rows_0,
     "Rows or Columns is 0 [tag (0028,0010) Rows]",
     0,
     {0}},
    {32,
     FILE_LOAD,
     true,
     nothing,
     "5 x 7 x 1 x 1 does not fit (limit 34 voxels) [tag (0028,0010) Rows]",
     0,
     {.max_voxels = 34}},
    {32,
     FOLDER_LOAD,
     true,
     nothing,
     "5 x 7 x 4 x 1 does not fit (limit 139 voxels) [tag (0028,0010) Rows]",
     0,
     {.max_voxels = 139}},
    {33,
     FILE_LOAD,
     false,
     allocated_12,
     "BitsAllocated 12, need 8, 16 or 32 [tag (0028,0100) BitsAllocated]",
     0,
     {0}},
    {34,
     FILE_LOAD,
     false,
     stored_17,
     "BitsStored 17 > BitsAllocated 16 [tag (0028,0101) BitsStored]",
     0,
     {0}},
    {35,
     FILE_LOAD,
     false,
     high_16,
     "HighBit 16 >= BitsAllocated 16 [tag (0028,0102) HighBit]",
     0,
     {0}},
    {36,
     FILE_LOAD,
     false,
     high_15,
     "HighBit 15, need BitsStored - 1 [tag (0028,0102) HighBit]",
     0,
     {0}},
    {37,
     FILE_LOAD,
     false,
     sign_2,
     "PixelRepresentation 2, need 0 or 1 [tag (0028,0103) "
     "PixelRepresentation]",
     0,
     {0}},
    {39,
     FILE_LOAD,
     false,
     samples_3,
     "3 samples per pixel, recipe wants 1 [tag (0028,0002) SamplesPerPixel]",
     0,
     {0}},
    {40,
     FILE_LOAD,
     false,
     palette,
     "photometric PALETTE COLOR not supported [tag (0028,0004) "
     "PhotometricInterpretation]",
     0,
     {0}},
    {42,
     FILE_LOAD,
     true,
     rows_7,
     "pixel data has 70 bytes, need 98 [tag (7fe0,0010) PixelData]",
     0,
     {0}},
    {44,
     FILE_LOAD,
     false,
     frames_text,
     "NumberOfFrames \"many\" is not a number from 1 to 16777216 "
     "[tag (0028,0008) NumberOfFrames]",
     0,
     {0}},
    {45,
     FILE_LOAD,
     false,
     two_pixels,
     "two PixelData elements [tag (7fe0,0010) PixelData]",
     0,
     {0}},
    {46,
     FILE_LOAD,
     false,
     slope_0,
     "RescaleSlope is 0 [tag (0028,1053) RescaleSlope]",
     0,
     {0}},
    {46,
     FILE_LOAD,
     false,
     slope_nan,
     "RescaleSlope is NaN [tag (0028,1053) RescaleSlope]",
     0,
     {0}},
    {46,
     FILE_LOAD,
     false,
     slope_text,
     "RescaleSlope is 1,25 [tag (0028,1053) RescaleSlope]",
     0,
     {0}},
    {47,
     NOTE,
     true,
     slope_each,
     "slope differs between slices, applied per slice [tag (0028,1053) "
     "RescaleSlope]",
     0,
     {0}},
    {48,
     FILE_LOAD,
     false,
     table,
     "Modality LUT is not linear [tag (0028,3000) ModalityLUTSequence]",
     0,
     {0}},
    {49,
     FILE_LOAD,
     true,
     is_ct,
     "CT without RescaleIntercept [tag (0028,1052) RescaleIntercept]; fix: "
     "assume_hu = true",
     0,
     {0}},
    {50,
     FOLDER_LOAD,
     true,
     constant,
     "all 140 voxels are 771 [tag (7fe0,0010) PixelData]",
     0,
     {0}},
    {51,
     FOLDER_LOAD,
     false,
     no_position,
     "ImagePositionPatient missing in 1 of 4 files [tag (0020,0032) "
     "ImagePositionPatient]",
     0,
     {0}},
    {52,
     FILE_LOAD,
     false,
     no_orientation,
     "ImageOrientationPatient missing [tag (0020,0037) "
     "ImageOrientationPatient]",
     0,
     {0}},
    {53,
     FILE_LOAD,
     false,
     skewed,
     "row and column not unit and orthogonal (dot 0.6) [tag (0020,0037) "
     "ImageOrientationPatient]",
     0,
     {0}},
    {54,
     FOLDER_LOAD,
     false,
     coronal,
     "2 orientations in one series (localizer?): IM0001.dcm, IM0002.dcm [tag "
     "(0020,0037) ImageOrientationPatient]",
     0,
     {0}},
    {55,
     FOLDER_LOAD,
     false,
     same_place,
     "slices IM0001.dcm and IM0002.dcm at one position (11 mm) [tag "
     "(0020,0032) ImagePositionPatient]",
     0,
     {0}},
    {56,
     FOLDER_LOAD,
     false,
     lose_second,
     "slice missing between IM0001.dcm and IM0003.dcm: gap 6 mm, median 3 mm "
     "[tag (0020,0032) ImagePositionPatient]",
     0,
     {0}},
    {57,
     FOLDER_LOAD,
     false,
     uneven,
     "spacing varies 2.9 to 3.1 mm (> 1 %) [tag (0020,0032) "
     "ImagePositionPatient]",
     0,
     {0}},
    {58,
     NOTE,
     true,
     thick,
     "SliceThickness 4 differs from spacing 3; spacing used [tag (0018,0050) "
     "SliceThickness]",
     0,
     {0}},
    {59,
     FILE_LOAD,
     false,
     no_spacing,
     "PixelSpacing missing, 0, negative or NaN [tag (0028,0030) PixelSpacing]",
     0,
     {0}},
    {59,
     FILE_LOAD,
     false,
     zero_spacing,
     "PixelSpacing missing, 0, negative or NaN [tag (0028,0030) PixelSpacing]",
     0,
     {0}},
    {59,
     FILE_LOAD,
     false,
     nan_spacing,
     "PixelSpacing missing, 0, negative or NaN [tag (0028,0030) PixelSpacing]",
     0,
     {0}},
    {60,
     FOLDER_LOAD,
     false,
     other_spacing,
     "PixelSpacing differs: IM0001.dcm (2\\1) IM0002.dcm (2\\1.5) [tag "
     "(0028,0030) PixelSpacing]",
     0,
     {0}},
    {61,
     FOLDER_LOAD,
     false,
     other_rows,
     "size differs: IM0001.dcm (5 x 7) IM0002.dcm (7 x 5) [tag (0028,0010) "
     "Rows]",
     0,
     {0}},
    {62,
     FOLDER_LOAD,
     true,
     tilt,
     "tilted stack: shear 5.71 degrees (> 0.5) [tag (0020,0032) "
     "ImagePositionPatient]; fix: resample_tilt = true",
     0,
     {0}},
    {0,
     FOLDER_LOAD,
     false,
     shifted,
     "slice IM0002.dcm shifted in its plane by 0.5 mm (> 10 % of a voxel) "
     "[tag (0020,0032) ImagePositionPatient]",
     0,
     {0}},
    {69,
     FILE_LOAD,
     false,
     text_position,
     "number \"x\" not a decimal string [tag (0020,0032) "
     "ImagePositionPatient]",
     0,
     {0}},
    {70,
     FILE_LOAD,
     false,
     two_positions,
     "2 values, need 3 [tag (0020,0032) ImagePositionPatient]",
     0,
     {0}},
};

static void run_row(const Row *r)
{
    char name[64], path[600], want[1200];
    snprintf(name, sizeof name, "defect%d_%d", r->row, (int)(r - rows));
    const char *folder = kit_folder(name);
    Volume v, out = {.unit = UNIT_NONE};
    kit_volume(&v, SLICES, H, W, false);
    DicomWrite how = kit_write();
    how.syntax = r->syntax;
    REQUIRE(dicom_write_series(folder, &v, &how));
    volume_free(&v);
    for (int i = 1; i <= SLICES; i++) {
        if (!r->all && i != 2) continue;
        KitFile f;
        snprintf(path, sizeof path, "%s/IM%04d.dcm", folder, i);
        bool edits = r->edit != nothing;
        if (!edits) continue;
        REQUIRE(kit_read(path, &f));
        r->edit(&f, i);
        REQUIRE(kit_save(&f));
    }
    snprintf(path, sizeof path, "%s/IM%04d.dcm", folder, r->all ? 1 : 2);
    snprintf(want, sizeof want, "%s: dicom: %s",
             r->scope == FILE_SCAN || r->scope == FILE_LOAD ? path : folder,
             r->text ? r->text : made_text);
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

TEST(dicom_defects_have_exact_words)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) run_row(&rows[i]);
}

TEST(dicom_defect_22_inflation_is_bounded)
{
    Volume v;
    kit_volume(&v, 1, 64, 64, false);
    memset(v.voxels.data, 0, 64 * 64 * 2 - 2);
    DicomWrite how = kit_write();
    how.syntax = DICOM_DEFLATED, how.bits_stored = 16;
    const char *folder = kit_folder("defect22");
    REQUIRE(dicom_write_series(folder, &v, &how));
    volume_free(&v);
    char path[600];
    KitFile f;
    snprintf(path, sizeof path, "%s/IM0001.dcm", folder);
    REQUIRE(kit_read(path, &f));
    // exactly what it needs passes, one byte less does not
    for (size_t limit = 16384; limit > 64; limit /= 2) {
        Walk w;
        WalkLimits limits = {.inflated_bytes = limit};
        WalkInput in = {.path = path,
                        .bytes = f.bytes,
                        .have = f.size,
                        .size = f.size,
                        .limits = &limits};
        WalkResult result = walk_file(&in, &w);
        if (limit > 8192) {
            EXPECT_INT(result, WALK_DONE);
        } else {
            char want[700];
            snprintf(want, sizeof want,
                     "%s: dicom: deflated data grows beyond %zu", path, limit);
            EXPECT_INT(result, WALK_DAMAGED);
            EXPECT_TEXT(err_text(), want);
        }
        walk_free(&w);
    }
    mem_free(f.bytes);
}

TEST(dicom_defect_43_pad_byte)
{
    Arena a = {0};
    Volume v, out;
    DicomNotes notes = {0};
    kit_volume(&v, 2, 3, 5, false);
    int16_t *p = v.voxels.data;
    for (int i = 0; i < 30; i++) p[i] = (int16_t)i;
    DicomWrite how = kit_write();
    how.bits_stored = 8;
    const char *folder = kit_folder("defect43");
    REQUIRE(dicom_write_series(folder, &v, &how));
    REQUIRE(dicom_load(kit_series(&a, folder), NULL, &out, &notes));
    EXPECT(kit_noted(&notes, "pad byte after an odd number of pixel bytes"));
    EXPECT(!memcmp(out.voxels.data, v.voxels.data, 60));
    volume_free(&out);
    volume_free(&v);
    dicom_notes_free(&notes);
    arena_release(&a);
}

TEST(dicom_defects_63_to_66_of_folders)
{
    Arena a = {0};
    Volume v, out;
    DicomIndex index;
    char want[900];
    kit_volume(&v, 3, 4, 5, false);
    DicomWrite how = kit_write();
    const char *top = kit_folder("defect63");
    REQUIRE(dicom_write_series(kit_folder("defect63/a"), &v, &how));
    how.description = "other";
    REQUIRE(dicom_write_series(kit_folder("defect63/b"), &v, &how));
    REQUIRE(dicom_scan(top, NULL, &a, &index));
    REQUIRE(index.count == 2);
    EXPECT(!dicom_select(&index, NULL));
    snprintf(want, sizeof want,
             "%s: dicom: 2 series in folder: %s (%s), %s (%s) [tag "
             "(0020,000e) SeriesInstanceUID]; fix: series = \"...\"",
             top, index.series[0].series_uid, index.series[0].description,
             index.series[1].series_uid, index.series[1].description);
    EXPECT_TEXT(err_text(), want);
    EXPECT(dicom_select(&index, "other") != NULL);
    EXPECT(dicom_select(&index, "a") != NULL);
    EXPECT(!dicom_select(&index, "c"));
    EXPECT(strstr(err_text(), "no series \"c\" in folder, only: "));

    how.patient_id = "KIT02";
    REQUIRE(dicom_write_series(kit_folder("defect63/c"), &v, &how));
    REQUIRE(dicom_scan(top, NULL, &a, &index));
    EXPECT(!dicom_select(&index, NULL));
    snprintf(want, sizeof want,
             "%s: dicom: 2 patients in folder [tag (0010,0020) PatientID]",
             top);
    EXPECT_TEXT(err_text(), want);

    // the same three places twice over
    const char *times = kit_folder("defect65");
    how.description = "time";
    REQUIRE(dicom_write_series(times, &v, &how));
    for (int i = 1; i <= 3; i++) {
        KitFile f;
        char path[600];
        snprintf(path, sizeof path, "%s/IM%04d.dcm", times, i);
        REQUIRE(kit_read(path, &f));
        snprintf(f.path, sizeof f.path, "%.400s/LATER%04d", times, i);
        snprintf(path, sizeof path, "2.25.%d", i);
        kit_set_text(&f, TAG_SOPInstanceUID, path);
        REQUIRE(kit_save(&f));
    }
    EXPECT_FAIL(dicom_load(kit_series(&a, times), NULL, &out, NULL),
                "2 time points per position [tag (0020,0032) "
                "ImagePositionPatient]");

    Volume one;
    kit_volume(&one, 1, 4, 5, false);
    const char *single = kit_folder("defect66");
    REQUIRE(dicom_write_series(single, &one, &how));
    DicomOptions deep = {.want_3d = true};
    snprintf(want, sizeof want, "%s: dicom: one slice, recipe wants 3-D",
             single);
    EXPECT(!dicom_load(kit_series(&a, single), &deep, &out, NULL));
    EXPECT_TEXT(err_text(), want);
    REQUIRE(dicom_load(kit_series(&a, single), NULL, &out, NULL));
    EXPECT_NEAR(out.affine[2][2], 3, 1e-12);
    volume_free(&out);
    volume_free(&one);
    volume_free(&v);
    arena_release(&a);
}

TEST(dicom_defect_71_of_segmentations)
{
    Arena a = {0};
    Volume v, mask, out;
    kit_volume(&v, 3, 4, 5, false);
    REQUIRE(volume_new(&mask, v.voxels.dim, U8));
    memcpy(mask.affine, v.affine, sizeof v.affine);
    ((uint8_t *)mask.voxels.data)[30] = 1;
    DicomWrite how = kit_write();
    const char *folder = kit_folder("defect71");
    REQUIRE(dicom_write_series(folder, &v, &how));
    const DicomSeries *image = kit_series(&a, folder);
    char path[600], want[800];
    snprintf(path, sizeof path, "%s/mask.dcm", kit_folder("defect71_seg"));
    const char *names[] = {"tumour"};
    REQUIRE(dicom_write_seg(path, &mask, names, 1, image));
    KitFile f;
    REQUIRE(kit_read(path, &f));
    kit_delete(&f, TAG_PerFrameFunctionalGroupsSequence);
    REQUIRE(kit_save(&f));
    EXPECT(!dicom_load_mask(image, kit_series(&a, path), NULL, &out, NULL));
    snprintf(want, sizeof want,
             "%s: dicom: enhanced multi-frame: per-frame position missing "
             "[tag (5200,9230) PerFrameFunctionalGroupsSequence]",
             path);
    EXPECT_TEXT(err_text(), want);
    volume_free(&v);
    volume_free(&mask);
    arena_release(&a);
}

TEST(dicom_options_get_round_three_rows)
{
    static const struct {
        void (*edit)(KitFile *f, int file);
        DicomSyntax syntax;
        DicomOptions options;
    } ways[] = {
        {no_meta, DICOM_IMPLICIT_LE, {.assume_implicit_le = true}},
        {is_ct, DICOM_EXPLICIT_LE, {.assume_hu = true}},
        {tilt, DICOM_EXPLICIT_LE, {.resample_tilt = true}},
    };
    for (int k = 0; k < 3; k++) {
        Arena a = {0};
        Volume v, out;
        DicomIndex index;
        char name[64];
        snprintf(name, sizeof name, "way%d", k);
        const char *folder = kit_folder(name);
        kit_volume(&v, SLICES, H, W, false);
        DicomWrite how = kit_write();
        how.syntax = ways[k].syntax;
        REQUIRE(dicom_write_series(folder, &v, &how));
        for (int i = 1; i <= SLICES; i++) {
            char path[600];
            KitFile f;
            snprintf(path, sizeof path, "%s/IM%04d.dcm", folder, i);
            REQUIRE(kit_read(path, &f));
            ways[k].edit(&f, i);
            REQUIRE(kit_save(&f));
        }
        REQUIRE(dicom_scan(folder, &ways[k].options, &a, &index));
        REQUIRE(dicom_load(index.series, &ways[k].options, &out, NULL));
        if (k < 2)
            EXPECT(!memcmp(out.voxels.data, v.voxels.data,
                           tensor_bytes(&v.voxels)));
        if (k == 1) EXPECT_INT(out.unit, UNIT_HU);
        if (k == 2) {
            // perpendicular now, one row more for the drift of 0.45 rows
            EXPECT_INT(out.voxels.dim.h, H + 1);
            EXPECT_NEAR(out.affine[1][2], 0, 1e-12);
            EXPECT_NEAR(out.affine[2][2], 3, 1e-12);
            const float *p = out.voxels.data;
            const int16_t *q = v.voxels.data;
            EXPECT_INT(out.voxels.type, F32);
            // the first slice stays where it was
            EXPECT_NEAR(p[2], q[2], 1e-3);
        }
        volume_free(&out);
        volume_free(&v);
        arena_release(&a);
    }
}
