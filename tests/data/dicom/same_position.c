/* same_position.c -- several images at one position: the message names their
 * differences, and the files to keep. */
#include "data/dicom/tag.h"
#include "tests/support/dicom_series.h"

/* The difference between the first and the second image of each position. */
typedef struct Difference {
    uint32_t before, tag; // the element is inserted before `before`
    const char *vr;
    const void *value[2];
    size_t length;
    const char *text;
} Difference;

// writes a series with every slice twice
static const char *write_twice(const Difference *d, int copies)
{
    static int number;
    char name[40];
    Volume v;
    DicomWrite how = kit_write();

    snprintf(name, sizeof name, "repeat%d", number++);
    const char *folder = kit_folder(name);
    kit_volume(&v, 3, 4, 5, false);
    REQUIRE(dicom_write_series(folder, &v, &how));

    for (int time = 1; time >= 0; time--)
        for (int i = 1; i <= 3; i++) {
            KitFile f;
            char path[600], uid[40];
            if (time && i > copies) continue;
            snprintf(path, sizeof path, "%s/IM%04d.dcm", folder, i);
            REQUIRE(kit_read(path, &f));
            if (time) snprintf(f.path, sizeof f.path, "%.400s/L%d", folder, i);
            snprintf(uid, sizeof uid, "2.25.%d", 10 * time + i);
            kit_set_text(&f, TAG_SOPInstanceUID, uid);
            if (d->before)
                kit_insert(&f, d->before, d->tag, d->vr, d->value[time],
                           d->length);
            else
                kit_set(&f, d->tag, d->value[time], d->length);
            REQUIRE(kit_save(&f));
        }

    volume_free(&v);
    return folder;
}

TEST(dicom_repeat_says_what_differs)
{
    static const double b[2] = {0, 800};
    static const Difference rows[] = {
        {0, TAG_EchoTime, NULL, {"10", "20"}, 2, "EchoTime (10, 20)"},
        {TAG_StudyInstanceUID,
         0x00200012,
         "IS",
         {"1 ", "2 "},
         2,
         "AcquisitionNumber (1, 2)"},
        {TAG_PatientPosition,
         0x00180086,
         "IS",
         {"1 ", "2 "},
         2,
         "EchoNumbers (1, 2)"},
        {TAG_PatientPosition,
         0x00181060,
         "DS",
         {"0 ", "50"},
         2,
         "TriggerTime (0, 50)"},
        {TAG_StudyInstanceUID,
         0x00189087,
         "FD",
         {&b[0], &b[1]},
         8,
         "DiffusionBValue (0, 800)"},
        {0,
         TAG_ImageType,
         NULL,
         {"ORIGINAL\\PRIMARY\\M ", "ORIGINAL\\PRIMARY\\P "},
         19,
         "ImageType (ORIGINAL\\PRIMARY\\M, ORIGINAL\\PRIMARY\\P)"},
        {TAG_SOPClassUID,
         0x00080032,
         "TM",
         {"101500", "101501"},
         6,
         "AcquisitionTime"},
    };

    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        Arena a = {0};
        Volume got;
        char want[400];
        // without the values of a time of day
        snprintf(want, sizeof want,
                 "2 images at every position, which differ in %s [tag "
                 "(0020,0032) ImagePositionPatient]; fix: keep the files of "
                 "one %.*s in the folder, the others outside of it",
                 rows[k].text, (int)strcspn(rows[k].text, " "), rows[k].text);
        const char *folder = write_twice(&rows[k], 3);
        EXPECT_FAIL(dicom_load(kit_series(&a, folder), NULL, &got, NULL), want);
        arena_release(&a);
    }
}

TEST(dicom_repeat_of_one_slice_says_it_too)
{
    static const Difference row = {0, TAG_EchoTime, NULL, {"10", "20"},
                                   2, NULL};
    Arena a = {0};
    Volume got;
    EXPECT_FAIL(
        dicom_load(kit_series(&a, write_twice(&row, 1)), NULL, &got, NULL),
        "slices IM0001.dcm and L1 at one position (11 mm), which differ in "
        "EchoTime (10, 20) [tag (0020,0032) ImagePositionPatient]; fix: keep "
        "the files of one EchoTime in the folder");
    arena_release(&a);
}
