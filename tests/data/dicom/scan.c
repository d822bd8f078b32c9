/* scan.c -- other files in a folder of images, and files that have changed
 * since the folder was scanned. */
#include "tests/support/dicom_make.h"
#include <sys/stat.h>
#include <unistd.h>

/* A new folder with a series of three slices in folder/image. */
static const char *made_folder(const char *name)
{
    char image[80];
    Volume v;
    DicomWrite how = kit_write();
    const char *folder = kit_folder(name);
    kit_volume(&v, 3, 4, 5, false);
    snprintf(image, sizeof image, "%s/image", name);
    REQUIRE(dicom_write_series(kit_folder(image), &v, &how));
    volume_free(&v);
    return folder;
}

static const char *in(const char *folder, const char *name)
{
    static char path[700];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void put(const char *folder, const char *name, const char *bytes,
                size_t n)
{
    FILE *f = fopen(in(folder, name), "wb");
    REQUIRE(f && fwrite(bytes, 1, n, f) == n && !fclose(f));
}

/* Writes a report, which has no pixels. */
static void put_report(const char *path)
{
    Make m;
    make_begin(&m, "1.2.840.10008.5.1.4.1.1.88.11", "2.25.31", NULL);
    make_text(&m, TAG_Modality, "SR");
    make_save(&m, path);
}

TEST(dicom_scan_passes_over_what_is_no_image)
{
    Arena a = {0};
    DicomIndex index;
    const char *folder = made_folder("scan_mixed");

    put_report(in(folder, "report"));
    put(folder, "notes.txt", "hello", 5);

    // starts like DICOM without a mark, and continues with garbage
    put(folder, "data", "\10\0\0\0\4\0\0\0junk and no element", 27);
    put(folder, "tiny", "\10", 1);
    REQUIRE(!mkfifo(in(folder, "pipe"), 0600));
    REQUIRE(!symlink("/nowhere/at/all", in(folder, "gone")));
    REQUIRE(!symlink("self", in(folder, "self")));

    // a folder that contains a link to itself
    REQUIRE(!symlink("..", in(folder, "image/up")));
    REQUIRE(!mkdir(in(folder, "empty"), 0700));
    REQUIRE(dicom_scan(in(folder, ""), NULL, &a, &index));
    EXPECT_INT(index.count, 1);
    EXPECT_INT(index.files, 3);
    EXPECT_INT(index.not_images, 1);
    EXPECT_INT(index.not_dicom, 4); // the pipe is one of them
    arena_release(&a);
}

TEST(dicom_scan_says_why_not)
{
    Arena a = {0};
    DicomIndex index;
    const char *folder = made_folder("scan_damaged");
    char path[700];

    EXPECT_FAIL(dicom_scan(in(folder, "absent"), NULL, &a, &index),
                "scan_damaged/absent: cannot open: No such file or directory");
    EXPECT_INT(err_kind(), ERR_DATA);
    put_report(in(kit_folder("scan_reports"), "report"));
    EXPECT_FAIL(dicom_scan(kit_folder("scan_reports"), NULL, &a, &index),
                "no DICOM image here (1 DICOM files without pixels, 0 other");

    // two truncated files: the first is named, the other counted
    REQUIRE(!truncate(in(folder, "image/IM0001.dcm"), 400));
    snprintf(path, sizeof path, "%s", in(folder, "image/IM0003.dcm"));
    REQUIRE(!truncate(path, 400));
    EXPECT_FAIL(dicom_scan(folder, NULL, &a, &index), "image/IM0001.dcm: dic");
    EXPECT(strstr(err_text(), " (and 1 more damaged files below "));

    // too deep
    char deep[700];
    snprintf(deep, sizeof deep, "%s", kit_folder("scan_deep"));
    for (int i = 0; i < 66; i++) {
        strcat(deep, "/d");
        REQUIRE(!mkdir(deep, 0700));
    }
    EXPECT_FAIL(dicom_scan(kit_folder("scan_deep"), NULL, &a, &index),
                "/d: folders nested deeper than 64");
    arena_release(&a);
}

TEST(dicom_scan_of_files_that_have_changed_since)
{
    Arena a = {0};
    DicomIndex index;
    Volume v;
    const char *folder = made_folder("scan_changed");

    REQUIRE(dicom_scan(folder, NULL, &a, &index));
    REQUIRE(dicom_load(index.series, NULL, &v, NULL));
    volume_free(&v);
    EXPECT_FAIL(dicom_load(index.series, &(DicomOptions){.max_file_bytes = 500},
                           &v, NULL),
                "IM0001.dcm: dicom: file larger than limit 500");
    REQUIRE(!remove(in(folder, "image/IM0002.dcm")));
    EXPECT_FAIL(dicom_load(index.series, NULL, &v, NULL),
                "IM0002.dcm: cannot open: No such file or directory");

    // the reader must not wait for a pipe
    REQUIRE(!mkfifo(in(folder, "image/IM0002.dcm"), 0600));
    EXPECT_FAIL(dicom_load(index.series, NULL, &v, NULL),
                "IM0002.dcm: not a regular file");
    EXPECT_INT(err_kind(), ERR_DATA);
    arena_release(&a);
}

TEST(dicom_scan_of_one_series_in_several_folders)
{
    Arena a = {0};
    DicomIndex index;
    Volume v;
    char from[700];
    const char *folder = made_folder("scan_spread");

    REQUIRE(!mkdir(in(folder, "image/part"), 0700));
    snprintf(from, sizeof from, "%s", in(folder, "image/IM0001.dcm"));
    REQUIRE(!rename(from, in(folder, "image/part/IM0001.dcm")));
    REQUIRE(!mkdir(in(folder, "image2"), 0700));
    snprintf(from, sizeof from, "%s", in(folder, "image/IM0003.dcm"));
    REQUIRE(!rename(from, in(folder, "image2/IM0003.dcm")));
    REQUIRE(dicom_scan(folder, NULL, &a, &index));
    EXPECT_INT(index.count, 1);
    EXPECT_TEXT(index.series->folder, folder);
    REQUIRE(dicom_load(index.series, NULL, &v, NULL));
    EXPECT_INT(v.voxels.dim.d, 3);
    volume_free(&v);
    arena_release(&a);
}

TEST(dicom_scan_lists_ten_series)
{
    Arena a = {0};
    DicomIndex index;
    Volume v;
    const char *folder = kit_folder("scan_many");

    kit_volume(&v, 2, 4, 5, false);
    for (int i = 0; i < 12; i++) {
        char uid[40];
        snprintf(uid, sizeof uid, "2.25.12%02d", i);
        make_multi(&(MadeMulti){.v = &v, .series_uid = uid}, in(folder, uid));
    }

    REQUIRE(dicom_scan(folder, NULL, &a, &index));
    EXPECT_INT(index.count, 12);
    EXPECT(!dicom_select(&index, NULL));
    EXPECT(strstr(err_text(), "12 series in folder: "));
    EXPECT(strstr(err_text(), ", ..."));
    volume_free(&v);
    arena_release(&a);
}

TEST(dicom_is_file_looks_at_the_first_bytes)
{
    const char *folder = made_folder("scan_is");
    EXPECT(dicom_is_file(in(folder, "image/IM0001.dcm")));
    put(folder, "old", "\10\0\5\0CS\12\0ISO_IR 100", 18);
    EXPECT(dicom_is_file(in(folder, "old")));
    put(folder, "text", "no DICOM at all", 15);
    EXPECT(!dicom_is_file(in(folder, "text")));
    put(folder, "nothing", "", 0);
    EXPECT(!dicom_is_file(in(folder, "nothing")));
    REQUIRE(!mkfifo(in(folder, "pipe"), 0600));
    EXPECT(!dicom_is_file(in(folder, "pipe")));
    EXPECT(!dicom_is_file(folder));
    EXPECT(!dicom_is_file(in(folder, "absent")));
}
