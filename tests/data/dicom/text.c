/* text.c -- names of segments: valid names of a SEG, their character set, and
 * refused names. */
#include "data/dicom/text.h"
#include "data/dicom/tag.h"
#include "tests/support/dicom_series.h"
#include <stdlib.h>

// a series, a mask with two labels on its grid, and the path of a SEG
typedef struct Pair {
    Arena arena;
    const DicomSeries *series;
    Volume mask;
    const char *folder;
    char path[600];
} Pair;

// patient's name and character set of a series
static const char *patient, *set;

static void say_patient(KitFile *f, int file)
{
    (void)file;
    kit_set_text(f, TAG_PatientName, patient);
    if (set)
        kit_set_text(f, TAG_SpecificCharacterSet, set);
    else
        kit_delete(f, TAG_SpecificCharacterSet);
}

static void open_pair(Pair *p, const char *name)
{
    static const KitRow row = {.all = true, .edit = say_patient};
    char folder[64];
    *p = (Pair){.folder = NULL};
    p->series = kit_series(&p->arena, kit_damage(&row, name));
    Volume image;
    REQUIRE(dicom_load(p->series, &(DicomOptions){0}, &image, NULL));
    REQUIRE(volume_new(&p->mask, image.voxels.dim, U8));
    memcpy(p->mask.affine, image.affine, sizeof image.affine);
    volume_free(&image);
    uint8_t *v = p->mask.voxels.data;
    for (int i = 0; i < KIT_SLICES * KIT_H * KIT_W; i++) v[i] = i % 3;
    snprintf(folder, sizeof folder, "%s_seg", name);
    p->folder = kit_folder(folder);
    snprintf(p->path, sizeof p->path, "%s/seg.dcm", p->folder);
}

static void close_pair(Pair *p)
{
    volume_free(&p->mask);
    arena_release(&p->arena);
}

// is the value of this element in the file this text with padding?
static bool says(const char *path, uint32_t tag, const char *text)
{
    KitFile f;
    REQUIRE(kit_read(path, &f));
    const uint8_t *e = f.bytes + kit_find(&f, tag);
    const size_t n = strlen(text);
    // a short header: tag, VR, 16 bits of length
    const size_t length = e[6] + 256u * e[7];
    const bool same = length == n + n % 2 && !memcmp(e + 8, text, n);
    mem_free(f.bytes);
    return same;
}

// every label has its name, and finds its voxels
static void expect_names(Pair *p, const char *const *names)
{
    DicomSegInfo info;
    const DicomSeries *seg = kit_series(&p->arena, p->folder);
    REQUIRE(dicom_seg_info(seg, &p->arena, &info));
    REQUIRE(info.segments == 2);
    for (int i = 0; i < 2; i++) EXPECT_TEXT(info.segment[i].label, names[i]);
    const DicomMaskOptions o = {.segments = names, .segment_count = 2};
    Volume got;
    REQUIRE(dicom_load_mask(p->series, seg, &o, &got, NULL));
    EXPECT(!memcmp(got.voxels.data, p->mask.voxels.data,
                   tensor_bytes(&got.voxels)));
    volume_free(&got);
}

#define MICRO      "\xc2\xb5"
#define NIHON      "\xe6\x97\xa5\xe6\x9c\xac"
#define EIGHT      "\xc3\xbc\xc3\xbc\xc3\xbc\xc3\xbc\xc3\xbc\xc3\xbc\xc3\xbc\xc3\xbc"
#define LETTERS_64 EIGHT EIGHT EIGHT EIGHT EIGHT EIGHT EIGHT EIGHT
static const char *const foreign[] = {NIHON, LETTERS_64};
static const char *const plain[] = {"tumour", "spleen"};

TEST(dicom_names_beyond_ascii_come_back)
{
    // the patient of the source and of the written file; `set` of the source,
    // NULL: absent
    static const struct {
        const char *set, *patient, *copied;
    } rows[] = {
        {"ISO_IR 100", "M\xfcller^\xc5sa", "M\xc3\xbcller^\xc3\x85sa"},
        {"ISO 2022 IR 100", "M\xfcller", "M\xc3\xbcller"},
        {"ISO_IR 192", "M\xc3\xbcller", "M\xc3\xbcller"},
        {"ISO_IR 144", "Ivan", "Ivan"},
        {"ISO_IR 144", "\xb8\xd2\xd0\xdd", "\xd0\x98\xd0\xb2\xd0\xb0\xd0\xbd"},
        {"ISO 2022 IR 100\\ISO 2022 IR 87", "M\xfcller", "M\xc3\xbcller"},
        {"\\ISO 2022 IR 87", "Yamada", "Yamada"},
        {NULL, "Anna", "Anna"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Pair p;
        char name[32];
        patient = rows[i].patient, set = rows[i].set;
        snprintf(name, sizeof name, "names%zu", i);
        open_pair(&p, name);
        // ASCII names: everything is copied unchanged
        REQUIRE(dicom_write_seg(p.path, &p.mask, plain, 2, p.series));
        EXPECT(says(p.path, TAG_PatientName, rows[i].patient));
        if (set) EXPECT(says(p.path, TAG_SpecificCharacterSet, set));
        expect_names(&p, plain);
        REQUIRE(dicom_write_seg(p.path, &p.mask, foreign, 2, p.series));
        EXPECT(says(p.path, TAG_PatientName, rows[i].copied));
        EXPECT(says(p.path, TAG_SpecificCharacterSet, "ISO_IR 192"));
        expect_names(&p, foreign);
        close_pair(&p);
    }
}

TEST(dicom_names_want_texts_of_the_source_in_utf8)
{
    static const struct {
        const char *set, *patient;
    } rows[] = {
        {"ISO_IR 127", "\xa1"},      // a byte that the set lacks
        {"KOI8", "\xb8\xd2"},        // an unknown set
        {"ISO_IR 192", "M\xfcller"}, // not in the named set
        {NULL, "M\xfcller"},         // no set
    };
    static const char *const third[] = {"a", MICRO};

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Pair p;
        char name[32], want[400];
        patient = rows[i].patient, set = rows[i].set;
        snprintf(name, sizeof name, "foreign%zu", i);
        open_pair(&p, name);
        snprintf(want, sizeof want,
                 "a text in character set \"%s\", which cannot be turned into "
                 "ISO_IR 192 for the name of segment 2 [tag (0010,0010) "
                 "PatientName]; fix: name the segments in ASCII, or convert "
                 "the series to ISO_IR 192",
                 set ? set : "");
        EXPECT_FAIL(dicom_write_seg(p.path, &p.mask, third, 2, p.series), want);
        EXPECT_INT(err_kind(), ERR_DATA);
        REQUIRE(dicom_write_seg(p.path, &p.mask, plain, 2, p.series));
        EXPECT(says(p.path, TAG_PatientName, patient));
        close_pair(&p);
    }
}

TEST(dicom_names_that_are_refused)
{
    static const struct {
        const char *name, *why;
    } rows[] = {
        {"", "\"\", is empty, and a segment of DICOM must have one; fix: give "
             "it a name"},
        {"  ", "\"  \", is blank, and a segment of DICOM must have one; fix: "
               "give it a name"},
        {"\xc2\xa0", "\"\\xc2\\xa0\", is blank, and a segment"},
        {"a\\b", "\"a\\b\", has a backslash, which separates values in DICOM; "
                 "fix: leave it out"},
        {"a\nb", "\"a\\x0ab\", has a control character (code 10); fix: leave "
                 "it out"},
        {"\x7f", "\"\\x7f\", has a control character (code 127)"},
        {"\xc2\x85", "\"\\xc2\\x85\", has a control character (code 133)"},
        {"\xff\xfe", "\"\\xff\\xfe\", is not UTF-8 at byte 1; fix: save the "
                     "recipe as UTF-8"},
        {"M\xfcller", "\"M\\xfcller\", is not UTF-8 at byte 2"},
        {LETTERS_64 "x", "...\", has 65 characters, at most 64 fit into DICOM; "
                         "fix: shorten it"},
    };
    Pair p;
    patient = "Anna", set = "ISO_IR 100";
    open_pair(&p, "text_refused");
    Volume f;
    Dims dim = p.mask.voxels.dim;
    dim.c = 2;
    REQUIRE(volume_new(&f, dim, F32));
    memcpy(f.affine, p.mask.affine, sizeof f.affine);

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *const names[] = {"good", rows[i].name};
        EXPECT_FAIL(dicom_write_seg(p.path, &p.mask, names, 2, p.series),
                    rows[i].why);
        EXPECT_FAIL(dicom_write_fractions(p.path, &f, 0, names, 2, p.series),
                    "seg.dcm: dicom: name of segment 2, \"");
        EXPECT_INT(err_kind(), ERR_USAGE);
    }

    // a zero ends a text in C, but not in Lua
    EXPECT_FAIL(segment_name_check("a\0b", 3, 7),
                "name of segment 7, \"a\\x00b\", has a control character");
    volume_free(&f);
    close_pair(&p);
}

TEST(dicom_names_beyond_ascii_are_valid)
{
    if (system("dciodvfy -version >/dev/null 2>&1; test $? -ne 127"))
        SKIP("dciodvfy is not installed (sh vendor/fetch ci)");

    // dciodvfy counts bytes of a text where the standard counts characters
    static const char *const names[] = {NIHON, EIGHT EIGHT EIGHT EIGHT};
    Pair p;
    char command[1400];
    patient = "M\xfcller", set = "ISO_IR 100";
    open_pair(&p, "names_valid");
    REQUIRE(dicom_write_seg(p.path, &p.mask, names, 2, p.series));
    snprintf(command, sizeof command, "dciodvfy -new %s > %s/report 2>&1",
             p.path, test_folder());
    EXPECT(system(command) != -1);
    snprintf(command, sizeof command, "grep '^Error' %s/report", test_folder());
    EXPECT(system(command) != 0);
    snprintf(command, sizeof command, "grep -q Segmentation %s/report",
             test_folder());
    EXPECT(system(command) == 0);
    close_pair(&p);
}

TEST(dicom_names_as_pydicom_reads_them)
{
    if (system("/usr/bin/python3 -c 'import pydicom' 2> /dev/null"))
        SKIP("python3-pydicom is not installed (sh vendor/fetch test)");
    Pair p;
    char command[800], line[400];
    patient = "M\xfcller", set = "ISO_IR 100";
    open_pair(&p, "names_peer");
    REQUIRE(dicom_write_seg(p.path, &p.mask, foreign, 2, p.series));
    snprintf(command, sizeof command,
             "/usr/bin/python3 tests/data/dicom/peer.py names %s", p.path);
    FILE *f = popen(command, "r");
    REQUIRE(f);
    const char *const want[] = {"M\xc3\xbcller\n", NIHON "\n", LETTERS_64 "\n"};
    for (int i = 0; i < 3; i++) {
        REQUIRE(fgets(line, sizeof line, f));
        EXPECT_TEXT(line, want[i]);
    }
    pclose(f);
    close_pair(&p);
}
