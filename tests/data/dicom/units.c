/* units.c -- MONOCHROME1: does not change values with a unit, inverts grey
 * values, does not change labels. */
#include "data/dicom/tag.h"
#include "tests/support/dicom_series.h"

enum { VOXELS = KIT_SLICES * KIT_H * KIT_W };

/* Elements inserted before PixelData: tag, VR, value ("|": 124). NULL value: an
 * empty sequence. */
typedef struct Extra {
    uint32_t tag;
    const char *vr, *value;
} Extra;

typedef struct Kind {
    const char *name, *modality, *sop_class; // NULL: as for MR
    bool is_signed;
    int bits;
    int least, most; // stored values go from least to most
    double slope, intercept;
    Extra extra[4];
    const char *by; // NULL: inverted
} Kind;

static const Extra slope_2 = {TAG_RescaleSlope, "DS", "2 "};

static void put_extra(KitFile *f, const Extra *x)
{
    if (x->value) {
        // numbers have two bytes, of which the second may be zero
        bool number = !strcmp(x->vr, "US") || !strcmp(x->vr, "SS");
        kit_insert(f, TAG_PixelData, x->tag, x->vr, x->value,
                   number ? 2 : strlen(x->value));
        return;
    }

    const uint8_t empty[12] = {(uint8_t)(x->tag >> 16),
                               (uint8_t)(x->tag >> 24),
                               (uint8_t)x->tag,
                               (uint8_t)(x->tag >> 8),
                               'S',
                               'Q'};
    kit_splice(f, kit_find(f, TAG_PixelData), 0, empty, sizeof empty);
}

// writes a series with the stored values and elements of *k, MONOCHROME1
static const char *write_kind(const Kind *k, const char *name, Volume *stored)
{
    char path[600];
    snprintf(path, sizeof path, "units_%s", name);
    const char *folder = kit_folder(path);
    kit_volume(stored, KIT_SLICES, KIT_H, KIT_W, false);
    int16_t *p = stored->voxels.data;
    for (int i = 0; i < VOXELS; i++)
        p[i] = (int16_t)(k->least + (k->most - k->least) * i / (VOXELS - 1));
    DicomWrite how = kit_write();
    how.is_signed = k->is_signed;
    how.bits_stored = k->bits;
    REQUIRE(dicom_write_series(folder, stored, &how));

    for (int i = 1; i <= KIT_SLICES; i++) {
        KitFile f;
        snprintf(path, sizeof path, "%s/IM%04d.dcm", folder, i);
        REQUIRE(kit_read(path, &f));
        kit_set_text(&f, TAG_Modality, k->modality);
        if (k->sop_class) kit_set_text(&f, TAG_SOPClassUID, k->sop_class);
        kit_set_text(&f, TAG_PhotometricInterpretation, "MONOCHROME1");
        for (int e = 0; e < 4 && k->extra[e].tag; e++)
            put_extra(&f, &k->extra[e]);
        REQUIRE(kit_save(&f));
    }
    return folder;
}

static double value_at(const Volume *v, int i)
{
    return v->voxels.type == I16 ? ((const int16_t *)v->voxels.data)[i]
                                 : (double)((const float *)v->voxels.data)[i];
}

TEST(dicom_units_are_not_inverted)
{
    const Extra none_1024 = {TAG_RescaleIntercept, "DS", "-1024 "};
    const Extra identity = {TAG_RescaleIntercept, "DS", "0 "};
    const Kind kinds[] = {
        {"pet",
         "PT",
         NULL,
         true,
         16,
         0,
         450,
         2,
         0,
         {identity, slope_2},
         "Modality"},
        {"ct",
         "CT",
         NULL,
         true,
         16,
         124,
         1923,
         1,
         -1024,
         {none_1024},
         "Modality"},
        {"ct_unsigned",
         "CT",
         NULL,
         false,
         12,
         124,
         1923,
         1,
         -1024,
         {none_1024},
         "Modality"},
        {"ct_by_class",
         "OT",
         CLASS_CT,
         true,
         16,
         124,
         1923,
         1,
         -1024,
         {none_1024},
         "Modality"},
        {"nm", "NM", NULL, false, 8, 0, 255, 1, 0, {{0}}, "Modality"},
        {"units",
         "OT",
         NULL,
         false,
         12,
         0,
         4095,
         1,
         0,
         {{0x00541001, "CS", "BQML"}},
         "Units"},
        {"type",
         "MR",
         NULL,
         false,
         12,
         3,
         4090,
         1,
         0,
         {{TAG_RescaleType, "LO", "OD"}},
         "RescaleType"},
        {"real_world",
         "MR",
         NULL,
         false,
         12,
         3,
         4090,
         1,
         0,
         {{0x00409096, "SQ", NULL}},
         "RealWorldValueMappingSequence"},
        {"rescale",
         "MR",
         NULL,
         true,
         12,
         -2048,
         2047,
         2,
         0,
         {identity, slope_2},
         "RescaleSlope"},
        // grey values only
        {"grey", "MR", NULL, false, 12, 3, 4090, 1, 0, {{0}}, NULL},
        {"radiograph",
         "DX",
         NULL,
         false,
         12,
         3,
         4090,
         1,
         0,
         {{TAG_RescaleType, "LO", "US"}},
         NULL},
        {"unitless",
         "OT",
         NULL,
         false,
         8,
         0,
         200,
         1,
         0,
         {{0x00541001, "CS", "NONE"}},
         NULL},
        {"signed", "MG", NULL, true, 12, -2048, 2000, 1, 0, {identity}, NULL},
    };

    for (size_t n = 0; n < sizeof kinds / sizeof *kinds; n++) {
        const Kind *k = &kinds[n];
        Arena a = {0};
        Volume stored, got;
        DicomNotes notes = {0};
        char note[120];
        const char *folder = write_kind(k, k->name, &stored);
        REQUIRE(dicom_load(kit_series(&a, folder), NULL, &got, &notes));
        const int16_t *p = stored.voxels.data;
        int turn = k->is_signed ? -1 : (1 << k->bits) - 1, wrong = 0;
        for (int i = 0; i < VOXELS; i++) {
            int v = k->by ? p[i] : turn - p[i];
            wrong += value_at(&got, i) != v * k->slope + k->intercept;
        }
        if (wrong)
            test_failed(__FILE__, __LINE__, "%s: %d of %d voxels are wrong",
                        k->name, wrong, VOXELS);
        snprintf(note, sizeof note, "MONOCHROME1 %s%s",
                 k->by ? "not inverted: values have a unit by " : "inverted",
                 k->by ? k->by : "");
        if (!kit_noted(&notes, note))
            test_failed(__FILE__, __LINE__, "%s: no note \"%s\"", k->name,
                        note);
        // Bq/ml from 0 to 900, HU from -900 to 899
        if (n < 2) {
            EXPECT_NEAR(value_at(&got, 0), n ? -900 : 0, 0);
            EXPECT_NEAR(value_at(&got, VOXELS - 1), n ? 899 : 900, 0);
        }
        dicom_notes_free(&notes);
        volume_free(&stored);
        volume_free(&got);
        arena_release(&a);
    }
}

// one slice with another slope makes all slices of the series quantities
TEST(dicom_units_are_those_of_the_series)
{
    const Kind k = {"one_slope", "MR", NULL, true,  12,  -100,
                    100,         1,    0,    {{0}}, NULL};
    Arena a = {0};
    Volume stored, got;
    char path[600];
    KitFile f;
    const char *folder = write_kind(&k, k.name, &stored);

    snprintf(path, sizeof path, "%s/IM0003.dcm", folder);
    REQUIRE(kit_read(path, &f));
    put_extra(&f, &(Extra){TAG_RescaleIntercept, "DS", "0 "});
    put_extra(&f, &slope_2);
    REQUIRE(kit_save(&f));
    REQUIRE(dicom_load(kit_series(&a, folder), NULL, &got, NULL));
    const int16_t *p = stored.voxels.data;
    for (int i = 0; i < VOXELS; i++)
        EXPECT_NEAR(value_at(&got, i),
                    p[i] * (i / (KIT_H * KIT_W) == 2 ? 2 : 1), 0);
    volume_free(&stored);
    volume_free(&got);
    arena_release(&a);
}

TEST(dicom_units_of_a_mask_are_labels)
{
    // 0, 1 and 2 in 8 bits, of a modality with inverted images
    const Kind k = {"mask", "OT", NULL, false, 8, 0, 2, 1, 0, {{0}}, NULL};
    Arena a = {0};
    Volume v, stored, got;
    DicomNotes notes = {0};
    const char *folder = write_kind(&k, "mono_mask", &stored);

    kit_volume(&v, KIT_SLICES, KIT_H, KIT_W, false);
    DicomWrite how = kit_write();
    const char *image = kit_folder("mono_image");
    REQUIRE(dicom_write_series(image, &v, &how));
    REQUIRE(dicom_load_mask(kit_series(&a, image), kit_series(&a, folder), NULL,
                            &got, &notes));
    const int16_t *p = stored.voxels.data;
    for (int i = 0; i < VOXELS; i++)
        EXPECT_INT(((const uint8_t *)got.voxels.data)[i], p[i]);
    EXPECT(kit_noted(&notes, "MONOCHROME1 not inverted: values are labels"));
    dicom_notes_free(&notes);
    volume_free(&v);
    volume_free(&stored);
    volume_free(&got);
    arena_release(&a);
}

// padding is kept and counted, with its converted value
TEST(dicom_units_of_padding_are_noted)
{
    const Kind kinds[] = {
        {"padded",
         "CT",
         NULL,
         true,
         16,
         124,
         1923,
         1,
         -1024,
         {{TAG_RescaleIntercept, "DS", "-1024 "}, {0x00280120, "SS", "|"}},
         "Modality"},
        {"padded_grey",
         "OT",
         NULL,
         false,
         8,
         124,
         255,
         1,
         0,
         {{0x00280120, "US", "|"}},
         NULL}};
    static const char *const texts[] = {
        "1 voxels are PixelPaddingValue, -900 here",
        "are PixelPaddingValue, 131 here"};

    for (int k = 0; k < 2; k++) {
        Arena a = {0};
        Volume stored, got;
        DicomNotes notes = {0};
        const char *folder = write_kind(&kinds[k], kinds[k].name, &stored);
        REQUIRE(dicom_load(kit_series(&a, folder), NULL, &got, &notes));
        EXPECT(kit_noted(&notes, texts[k]));
        dicom_notes_free(&notes);
        volume_free(&stored);
        volume_free(&got);
        arena_release(&a);
    }
}

// the writer of series inverts in the same cases as the reader
TEST(dicom_units_come_back_from_the_writer)
{
    for (int ct = 0; ct < 2; ct++)
        for (int slope = 0; slope < 2; slope++) {
            Arena a = {0};
            Volume v, got;
            kit_volume(&v, KIT_SLICES, KIT_H, KIT_W, false);
            int16_t *p = v.voxels.data;
            for (int i = 0; i < VOXELS; i++)
                p[i] = (int16_t)(p[i] / 4 * 2 - 300);
            DicomWrite how = kit_write();
            how.modality = ct ? "CT" : "MR";
            how.monochrome1 = true;
            how.is_signed = true;
            if (slope) how.slope = 2, how.intercept = -300;
            const char *folder = kit_folder("mono_written");
            REQUIRE(dicom_write_series(folder, &v, &how));
            REQUIRE(dicom_load(kit_series(&a, folder), NULL, &got, NULL));
            for (int i = 0; i < VOXELS; i++)
                EXPECT_NEAR(value_at(&got, i), p[i], 0);
            volume_free(&v);
            volume_free(&got);
            arena_release(&a);
        }
}
