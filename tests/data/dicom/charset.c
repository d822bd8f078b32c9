/* charset.c -- DICOM texts in every character set of the standard, converted to
 * UTF-8; bytes and texts are from pydicom and PS3.5, annexes H to K. */
#include "data/dicom/charset.h"
#include "engine/base/utf8.h"
#include "tests/support/dicom_make.h"
#include "tests/support/dicom_series.h"
#include <iconv.h>

// without its modules, iconv of a machine converts no characters of two bytes
static bool has_converters(void)
{
    iconv_t c = iconv_open("UTF-8", "EUC-KR");
    if (c == (iconv_t)-1) return false;
    iconv_close(c);
    return true;
}

TEST(dicom_charset_of_every_term)
{
    static const struct {
        const char *set, *bytes, *want;
        unsigned odd;
        bool person;
    } rows[] = {
        {"ISO_IR 100",
         "T1 Sch\xe4"
         "del",
         "T1 Sch\xc3\xa4"
         "del",
         0, false},
        {"ISO_IR 101",
         "\xa3\xf3"
         "d\xbc",
         "\xc5\x81\xc3\xb3"
         "d\xc5\xba",
         0, false},
        {"ISO_IR 109",
         "\xa1"
         "a\xf5"
         "ar",
         "\xc4\xa6"
         "a\xc4\xa1"
         "ar",
         0, false},
        {"ISO_IR 110", "R\xefga \xf3", "R\xc4\xabga \xc4\xb7", 0, false},
        {"ISO_IR 144",
         "\xbb\xee\xda"
         "ce\xdc\xd1yp\xd3",
         "\xd0\x9b\xd1\x8e\xd0\xba"
         "ce\xd0\xbc\xd0\xb1yp\xd0\xb3",
         0, false},
        {"ISO_IR 127", "\xe2\xc8\xc7\xe6\xea",
         "\xd9\x82\xd8\xa8\xd8\xa7\xd9\x86\xd9\x8a", 0, false},
        {"ISO_IR 126", "\xc4\xe9\xef\xed\xf5\xf3\xe9\xef\xf2",
         "\xce\x94\xce\xb9\xce\xbf\xce\xbd\xcf\x85\xcf\x83\xce\xb9\xce\xbf\xcf"
         "\x82",
         0, false},
        {"ISO_IR 138", "\xf9\xf8\xe5\xef", "\xd7\xa9\xd7\xa8\xd7\x95\xd7\x9f",
         0, false},
        {"ISO_IR 148",
         "\xc7"
         "avu\xfeo\xf0lu",
         "\xc3\x87"
         "avu\xc5\x9fo\xc4\x9flu",
         0, false},
        {"ISO_IR 166", "\xb9\xd2\xc1\xca\xa1\xd8\xc5",
         "\xe0\xb8\x99\xe0\xb8\xb2\xe0\xb8\xa1\xe0\xb8\xaa\xe0\xb8\x81\xe0\xb8"
         "\xb8\xe0\xb8\xa5",
         0, false},
        {"ISO_IR 13", "\xd4\xcf\xc0\xde",
         "\xef\xbe\x94\xef\xbe\x8f\xef\xbe\x80\xef\xbe\x9e", 0, false},
        {"ISO_IR 192", "\xe5\xb9\xb3\xe6\x89\xab \xc3\xbc",
         "\xe5\xb9\xb3\xe6\x89\xab \xc3\xbc", 0, false},
        {"GB18030", "\xc6\xbd\xc9\xa8", "\xe5\xb9\xb3\xe6\x89\xab", 0, false},
        {"GBK", "\xcd\xf5\xd0\xa1\xb6\xab",
         "\xe7\x8e\x8b\xe5\xb0\x8f\xe4\xb8\x9c", 0, false},
        {"\\ISO 2022 IR 87", "\x1b$BF,It\x1b(B MR",
         "\xe9\xa0\xad\xe9\x83\xa8 MR", 0, false},
        {"ISO 2022 IR 13\\ISO 2022 IR 87",
         "\x1b)I\xd4\xcf\xc0\xde\x1b(J \x1b$B;3ED\x1b(J",
         "\xef\xbe\x94\xef\xbe\x8f\xef\xbe\x80\xef\xbe\x9e "
         "\xe5\xb1\xb1\xe7\x94\xb0",
         0, false},
        {"\\ISO 2022 IR 149", "\x1b$)C\xb1\xe8\xc8\xf1\xc1\xdf",
         "\xea\xb9\x80\xed\x9d\xac\xec\xa4\x91", 0, false},
        {"\\ISO 2022 IR 159", "\x1b$(D0!0\"\x1b(B", "\xe4\xb8\x82\xe4\xb8\x84",
         0, false},
        {"ISO 2022 IR 100\\ISO 2022 IR 144",
         "\x1b-A\xfc \x1b-L\xb8\xd2\xd0\xdd",
         "\xc3\xbc \xd0\x98\xd0\xb2\xd0\xb0\xd0\xbd", 0, false},
        {"\\ISO 2022 IR 87",
         "Yamada^Tarou=\x1b$B;3ED\x1b(B^\x1b$BB@O:\x1b(B=\x1b$B$d$^$@\x1b(B^"
         "\x1b$B$?$m$&\x1b(B",
         "Yamada^Tarou=\xe5\xb1\xb1\xe7\x94\xb0^\xe5\xa4\xaa\xe9\x83\x8e="
         "\xe3\x82\x84\xe3\x81\xbe\xe3\x81\xa0^"
         "\xe3\x81\x9f\xe3\x82\x8d\xe3\x81\x86",
         0, true},
        {"\\ISO 2022 IR 149",
         "Hong^Gildong=\x1b$)C\xfb\xf3^\x1b$)C\xd1\xce\xd4\xd7=\x1b$)C\xc8\xab^"
         "\x1b$)C\xb1\xe6\xb5\xbf",
         "Hong^Gildong=\xe6\xb4\xaa^\xe5\x90\x89\xe6\xb4\x9e=\xed\x99\x8d^"
         "\xea\xb8\xb8\xeb\x8f\x99",
         0, true},
        {"\\ISO 2022 IR 58",
         "Zhang^XiaoDong=\x1b$)A\xd5\xc5^\x1b$)A\xd0\xa1\xb6\xab=",
         "Zhang^XiaoDong=\xe5\xbc\xa0^\xe5\xb0\x8f\xe4\xb8\x9c=", 0, true},
        {"ISO 2022 IR 100\\ISO 2022 IR 144", "\x1b-L\xb8^\xfc",
         "\xd0\x98^\xc3\xbc", 0, true},
        {"ISO 2022 IR 100\\ISO 2022 IR 144", "\x1b-L\xb8\\\xfc",
         "\xd0\x98\\\xc3\xbc", 0, false},
        {"ISO-IR_100 ", "\xfc", "\xc3\xbc", 0, false},
        {"",
         "Sch\xe4"
         "del",
         "Sch\xc3\xa4"
         "del",
         CHARSET_UNDECLARED, false},
        {"ISO_IR 6",
         "Sch\xc3\xa4"
         "del",
         "Sch\xc3\xa4"
         "del",
         CHARSET_UNDECLARED, false},
        {"\\ISO 2022 IR 87", "\xe4", "\xc3\xa4", CHARSET_UNDECLARED, false},
        {"ISO_IR 999", "P\xe4", "P\\xe4", CHARSET_UNKNOWN, false},
        {"ISO_IR 192",
         "P\xe4"
         "1\xfc",
         "P\\xe41\\xfc", CHARSET_DAMAGED, false},
        {"ISO_IR 100", "it\x92s", "it\\x92s", CHARSET_DAMAGED, false},
        {"ISO_IR 127", "\xa1\xe2", "\\xa1\xd9\x82", CHARSET_DAMAGED, false},
        {"GB18030", "\xc6\xbd\xc9", "\xe5\xb9\xb3\\xc9", CHARSET_DAMAGED,
         false},
        {"\\ISO 2022 IR 87", "\x1b$BF,I", "\xe9\xa0\xad\\x49", CHARSET_DAMAGED,
         false},
        {"ISO_IR 192",
         "a\xc2\x9b"
         "1m",
         "a?1m", 0, false},
        {"", "\x1b[31mred", "?[31mred", CHARSET_DAMAGED, false},
        {"\\ISO 2022 IR 149", "\x1b$)C\xb1", "\\xb1", CHARSET_DAMAGED, false},
        {"GB18030",
         "\xff"
         "0\x81"
         "0",
         "\\xff0\\x810", CHARSET_DAMAGED, false},
    };
    if (!has_converters()) SKIP("iconv has no modules here");
    Arena a = {0};

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        unsigned odd;
        const char *got = charset_utf8(&a, rows[i].bytes, strlen(rows[i].bytes),
                                       rows[i].set, rows[i].person, &odd);
        if (!got || strcmp(got, rows[i].want) || odd != rows[i].odd)
            test_failed(__FILE__, __LINE__,
                        "row %zu, %s: \"%s\" %u, want "
                        "\"%s\" %u",
                        i, rows[i].set, got, odd, rows[i].want, rows[i].odd);
    }
    arena_release(&a);
}

TEST(dicom_charset_of_any_bytes_is_utf8)
{
    static const char *const all[] = {
        "",  "ISO_IR 100",       "ISO_IR 13",       "ISO_IR 192",    "GB18030",
        "?", "\\ISO 2022 IR 87", "ISO 2022 IR 149", "ISO 2022 IR 58"};
    static const char pieces[][6] = {"\033$B", "\033$)C", "\033$(D",
                                     "\033-L", "\033(B",  "\xc3\xa4"};
    Arena a = {0};
    uint32_t seed = 1, code;

    for (int i = 0; i < 4000; i++) {
        char text[40];
        size_t n = 0;
        unsigned odd;
        while (n < 30) {
            seed = seed * 1664525 + 1013904223;
            const unsigned piece = seed >> 8 & 7;
            if ((seed >> 28) < 2 && piece < 6)
                n += (size_t)snprintf(text + n, sizeof text - n, "%s",
                                      pieces[piece]);
            else
                text[n++] = (char)(seed >> 20);
        }
        const char *p = charset_utf8(&a, text, n, all[i % 9], i & 1, &odd);
        REQUIRE(p);
        for (const char *end = p + strlen(p); p < end;) {
            const int step = utf8_length(p, end, &code);
            REQUIRE(step && code >= 32 && (code < 127 || code >= 160));
            p += step;
        }
        if (i % 256 == 0) arena_release(&a), a = (Arena){0};
    }
    arena_release(&a);
}

// ---- in files ---------------------------------------------------------------

static const char *set_text, *patient_text;

static void say_texts(KitFile *f, int file)
{
    (void)file;
    if (set_text)
        kit_set_text(f, TAG_SpecificCharacterSet, set_text);
    else
        kit_delete(f, TAG_SpecificCharacterSet);
    kit_set_text(f, TAG_PatientID, patient_text);
    kit_set_text(f, TAG_SeriesDescription,
                 "Sch\xe4"
                 "del");
}

TEST(dicom_charset_of_a_series)
{
    static const KitRow row = {.all = true, .edit = say_texts};
    static const struct {
        const char *set, *patient, *id, *description, *note;
    } rows[] = {
        {"ISO_IR 100",
         "P\xe4"
         "1",
         "P\xc3\xa4"
         "1",
         "Sch\xc3\xa4"
         "del",
         NULL},
        {"ISO_IR 144",
         "P\xe4"
         "1",
         "P\xd1\x84"
         "1",
         "Sch\xd1\x84"
         "del",
         NULL},
        {NULL,
         "P\xe4"
         "1",
         "P\xc3\xa4"
         "1",
         "Sch\xc3\xa4"
         "del",
         "text beyond ASCII without a character set, taken for UTF-8 or ISO_IR "
         "100"},
        {"ISO_IR 192",
         "P\xe4"
         "1",
         "P\\xe41",
         "Sch\\xe4"
         "del",
         "text not in its character set, bytes shown as \\xNN"},
        {"KOI8",
         "P\xe4"
         "1",
         "P\\xe41",
         "Sch\\xe4"
         "del",
         "text in an unknown character set, bytes shown as \\xNN"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Arena a = {0};
        Volume v;
        DicomNotes notes = {0};
        char name[40];
        set_text = rows[i].set, patient_text = rows[i].patient;
        snprintf(name, sizeof name, "charset_%zu", i);
        const char *folder = kit_damage(&row, name);
        const DicomSeries *s = kit_series(&a, folder);
        EXPECT_TEXT(s->patient_id, rows[i].id);
        EXPECT_TEXT(s->description, rows[i].description);
        DicomIndex index;
        REQUIRE(dicom_scan(folder, NULL, &a, &index));
        EXPECT(dicom_select(&index, rows[i].description));
        REQUIRE(dicom_load(s, NULL, &v, &notes));
        EXPECT_INT(kit_noted(&notes, "bytes shown") ||
                       kit_noted(&notes, "taken for UTF-8"),
                   rows[i].note != NULL);
        if (rows[i].note) EXPECT(kit_noted(&notes, rows[i].note));
        // half a character never reaches a message
        EXPECT_FAIL(dicom_select(&index, "none"), rows[i].description);
        volume_free(&v);
        dicom_notes_free(&notes);
        arena_release(&a);
    }
}

static void long_description(KitFile *f, int file)
{
    char text[65] = "x";
    (void)file;
    // 1 and 63 characters of two bytes: a cut at an even byte halves one
    memset(text + 1, '\xe4', 63);
    kit_set_text(f, TAG_SpecificCharacterSet, "ISO_IR 100");
    kit_set_text(f, TAG_SeriesDescription, text);
}

TEST(dicom_charset_cuts_leave_no_half_letter)
{
    static const KitRow row = {.all = true, .edit = long_description};
    Arena a = {0};
    DicomIndex index;
    uint32_t code;
    int bad = 0;

    REQUIRE(dicom_scan(kit_damage(&row, "cut"), NULL, &a, &index));
    EXPECT(!dicom_select(&index, "none"));
    const char *text = err_text(), *end = text + strlen(text);
    for (int n; text < end; text += n ? n : 1)
        bad += !(n = utf8_length(text, end, &code));
    EXPECT_INT(bad, 0);
    char mended[] = "ab\xc3\xa4\xe9\xa0";
    utf8_mend(mended);
    EXPECT_TEXT(mended, "ab\xc3\xa4??");
    arena_release(&a);
}

TEST(dicom_charset_of_an_item_counts_inside)
{
    static const double square[] = {1, 1, 4, 1, 4, 3, 1, 3};
    static const MadeContour contour = {.slice = 1, .points = 4, .uv = square};
    const MadeRegion region[] = {{1, "\xfc", &contour, 1, NULL, 0},
                                 {2, "\xfc", &contour, 1, NULL, 0}};
    Arena a = {0};
    Volume v;
    DicomWrite how = kit_write();
    char path[600];

    kit_volume(&v, 3, 6, 8, false);
    REQUIRE(dicom_write_series(kit_folder("item_charset"), &v, &how));
    const DicomSeries *image = kit_series(&a, kit_folder("item_charset"));
    snprintf(path, sizeof path, "%s/rs.dcm", kit_folder("item_charset_rs"));
    make_set(
        &(MadeSet){.v = &v, .image = image, .region = region, .regions = 2},
        path);

    // the file is Latin-1, its first region Cyrillic
    KitFile f;
    REQUIRE(kit_read(path, &f));
    kit_insert(&f, TAG_SOPClassUID, TAG_SpecificCharacterSet, "CS",
               "ISO_IR 100", 10);
    static const uint8_t number[] = {0x06, 0x30, 0x22, 0, 'I', 'S'};
    size_t at = kit_find(&f, TAG_StructureSetROISequence);
    while (memcmp(f.bytes + at, number, sizeof number)) at++;
    kit_splice(&f, at, 0, "\x08\0\x05\0CS\x0a\0ISO_IR 144", 18);
    REQUIRE(kit_save(&f));
    DicomSegInfo info;
    REQUIRE(dicom_seg_info(kit_series(&a, kit_folder("item_charset_rs")), &a,
                           &info));
    REQUIRE(info.segments == 2);
    EXPECT_TEXT(info.segment[0].label, "\xd1\x9c");
    EXPECT_TEXT(info.segment[1].label, "\xc3\xbc");
    const char *const name[] = {"\xc3\xbc"};
    const DicomMaskOptions o = {.segments = name, .segment_count = 1};
    Volume mask;
    REQUIRE(dicom_load_mask(
        image, kit_series(&a, kit_folder("item_charset_rs")), &o, &mask, NULL));
    int64_t inside = 0;
    const uint8_t *label = mask.voxels.data;
    for (int64_t i = 0; i < positions(mask.voxels.dim); i++) inside += label[i];

    // columns 1 to 3 of rows 1 and 2
    EXPECT_INT(inside, 6);
    volume_free(&mask);
    volume_free(&v);
    arena_release(&a);
}
