/* real.c -- series from real scanners and real patients, if installed. */
#include "data/dicom/dicom.h"
#include "tests/test.h"
#include <sys/stat.h>

// the folder of a data set, or the end of the test
static const char *dataset(Arena *a, const char *name)
{
    const char *path = arena_printf(a, "%s/%s", test_datasets(), name);
    struct stat st;
    if (!stat(path, &st)) return path;
    arena_release(a);
    SKIP("the data set is not here");
}

static bool has_note(const DicomNotes *notes, const char *part)
{
    for (const DicomNote *n = notes->first; n; n = n->next)
        if (strstr(n->text, part)) return true;
    return false;
}

static const DicomSeries *series_of(const DicomIndex *index,
                                    const char *patient, const char *name)
{
    for (int32_t i = 0; i < index->count; i++)
        if (!strcmp(index->series[i].patient_id, patient) &&
            !strcmp(index->series[i].description, name))
            return &index->series[i];
    return NULL;
}

TEST(dicom_real_lgg_pairs_every_patient)
{
    Arena a = {0};
    DicomIndex index;
    REQUIRE(dicom_scan(dataset(&a, "lgg-dicom"), NULL, &a, &index));
    EXPECT_INT(index.count, 24 * 2 + 6 * 2);
    EXPECT_INT(index.not_dicom, 0);
    int patients = 0, slices = 0, with_tumour = 0;

    for (int32_t i = 0; i < index.count; i++) {
        const DicomSeries *image = &index.series[i];
        if (strcmp(image->description, "FLAIR")) continue;
        const DicomSeries *mask =
            series_of(&index, image->patient_id, "FLAIR_ROI");
        REQUIRE(mask);
        Volume v, m;
        DicomNotes notes = {0};
        REQUIRE(dicom_load(image, NULL, &v, &notes));
        REQUIRE(dicom_load_mask(image, mask, NULL, &m, &notes));
        EXPECT(has_note(&notes, "ReferencedSOPInstanceUID"));
        EXPECT(volume_same_grid(&v, &m));
        EXPECT_INT(v.voxels.type, I16);
        EXPECT_INT(m.voxels.type, U8);
        EXPECT_INT(m.unit, UNIT_LABEL);
        EXPECT_INT(v.voxels.dim.h, 256);
        const uint8_t *labels = m.voxels.data;
        for (int32_t d = 0; d < m.voxels.dim.d; d++) {
            int count = 0;
            for (int j = 0; j < 256 * 256; j++)
                count += labels[(size_t)d * 256 * 256 + (size_t)j];
            with_tumour += count > 0;
        }
        patients++, slices += v.voxels.dim.d;
        volume_free(&v);
        volume_free(&m);
        dicom_notes_free(&notes);
    }

    EXPECT_INT(patients, 24);
    EXPECT_INT(slices, 652);
    EXPECT_INT(with_tumour, 241);
    arena_release(&a);
}

TEST(dicom_real_pgbm_order_is_spatial)
{
    static const struct {
        const char *name;
        int highest;
    } want[] = {{"T1post", 2040},
                {"T1prereg", 1594},
                {"FLAIRreg", 1436},
                {"T2reg", 1391}};
    Arena a = {0};
    DicomIndex index;

    REQUIRE(dicom_scan(dataset(&a, "dicom-pgbm"), NULL, &a, &index));
    EXPECT_INT(index.count, 4);
    EXPECT_INT(index.files, 88);

    for (int32_t i = 0; i < index.count; i++) {
        Volume v;
        DicomNotes notes = {0};
        REQUIRE(dicom_load(&index.series[i], NULL, &v, &notes));
        EXPECT_INT(v.voxels.dim.d, 22);
        EXPECT_INT(v.voxels.dim.h, 320);
        EXPECT_INT(v.voxels.dim.w, 280);
        double mm[3];
        volume_spacing_mm(&v, mm);
        EXPECT_NEAR(mm[0], 0.6875, 1e-6);
        EXPECT_NEAR(mm[2], 6.5, 1e-3);
        // upwards in the patient, for any file names
        EXPECT(v.affine[2][2] > 0);
        int highest = 0;
        const int16_t *p = v.voxels.data;
        REQUIRE(v.voxels.type == I16);
        for (int j = 0; j < 22 * 320 * 280; j++)
            if (p[j] > highest) highest = p[j];
        bool known = false;
        for (int k = 0; k < 4; k++)
            if (strstr(index.series[i].folder, want[k].name))
                known = highest == want[k].highest;
        EXPECT(known);
        EXPECT(has_note(&notes, "SliceThickness 5 differs"));
        volume_free(&v);
        dicom_notes_free(&notes);
    }
    arena_release(&a);
}

TEST(dicom_real_folder_of_four_asks_which)
{
    Arena a = {0};
    DicomIndex index;
    REQUIRE(dicom_scan(dataset(&a, "dicom-pgbm"), NULL, &a, &index));
    EXPECT(!dicom_select(&index, NULL));
    EXPECT(strstr(err_text(), "4 series in folder: "));
    EXPECT(strstr(err_text(), "; fix: series = \"...\""));
    const DicomSeries *s = dicom_select(&index, "11-T1post-18670");
    EXPECT(s && s->count == 22);
    arena_release(&a);
}
