/* structure_set.c -- structure sets: contours in planes of any direction fill
 * the voxels around which they were drawn; contours without a slice are
 * refused. */
#include "data/dataset/dataset.h"
#include "tests/support/dicom_contours.h"
#include "tests/support/dicom_damage.h"
#include <stdlib.h>

static const double small[] = {9.5, 8.5, 13.5, 8.5, 13.5, 11.5, 9.5, 11.5};

static const MadeContour ring[] = {
    {.slice = 1, .points = 5, .uv = desk_big},
    {.slice = 1, .points = 4, .uv = desk_hole},
    {.slice = 2, .points = 5, .uv = desk_big},
    {.slice = 3, .points = 4, .uv = small},
};
static const MadeContour corner[] = {
    {.slice = 0, .points = 4, .uv = small},
    {.slice = 4, .points = 4, .uv = small},
};

TEST(dicom_contour_in_planes_of_any_direction)
{
    // 24 right-handed orders of the axes, and rotated ones
    int seen = 0;

    for (int k = 0; k < 48 + 8; k++) {
        static const int axes[6][3] = {{0, 1, 2}, {1, 2, 0}, {2, 0, 1},
                                       {1, 0, 2}, {0, 2, 1}, {2, 1, 0}};
        double dir[3][3] = {{0}}, affine[4][4] = {{0}, {0}, {0}, {0, 0, 0, 1}};
        for (int a = 0; a < 3; a++)
            dir[a][axes[k % 6][a]] = k / 6 % 8 >> a & 1 ? -1 : 1;
        if (k >= 48)
            // three rotations about the axes, with different angles
            for (int axis = 0; axis < 3; axis++) {
                double angle = 0.3 + 0.7 * k + axis, c = cos(angle),
                       s = sin(angle);
                for (int a = 0; a < 3; a++) {
                    double *p = &dir[a][axis], *q = &dir[a][(axis + 1) % 3];
                    double x = *p, y = *q;
                    *p = c * x - s * y, *q = s * x + c * y;
                }
            }
        double turn = 0;
        for (int a = 0; a < 3; a++)
            turn += dir[2][a] * (dir[0][(a + 1) % 3] * dir[1][(a + 2) % 3] -
                                 dir[0][(a + 2) % 3] * dir[1][(a + 1) % 3]);
        if (turn < 0) continue; // slices are sorted along the normal
        seen++;
        const double mm[3] = {0.9, 1.7, 2.6};
        for (int a = 0; a < 3; a++) {
            for (int x = 0; x < 3; x++) affine[a][x] = dir[x][a] * mm[x];
            affine[a][3] = 17.25 * a - 30;
        }
        Desk d;
        Volume got;
        char name[40];
        snprintf(name, sizeof name, "contour_plane%d", k);
        desk_set_up(&d, name, (const double(*)[4])affine);
        const MadeRegion r[] = {{7, "ring", ring, 4, NULL, 0},
                                {3, "corner", corner, 2, NULL, 0}};
        uint8_t want[D * PLANE] = {0};
        desk_expect(ring, 4, 7, want);
        desk_expect(corner, 2, 3, want);
        REQUIRE(desk_load(&d, r, 2, d.image->series_uid, NULL, &got, NULL));
        EXPECT(volume_same_grid(&d.v, &got));
        EXPECT(!memcmp(got.voxels.data, want, sizeof want));
        volume_free(&got);
        desk_clear(&d);
    }
    EXPECT_INT(seen, 24 + 3);
}

TEST(dicom_contour_regions_by_name)
{
    static const char *const names[] = {"corner", "ring"};
    Desk d;
    Volume got;
    const MadeRegion r[] = {{700, "ring", ring, 4, NULL, 0},
                            {-3, "corner", corner, 2, NULL, 0}};

    desk_set_up(&d, "contour_names", NULL);
    DicomMaskOptions o = {.segments = names, .segment_count = 2};
    REQUIRE(desk_load(&d, r, 2, NULL, &o, &got, NULL));
    uint8_t want[D * PLANE] = {0};
    desk_expect(ring, 4, 2, want);
    desk_expect(corner, 2, 1, want);
    EXPECT(!memcmp(got.voxels.data, want, sizeof want));
    EXPECT_INT(got.unit, UNIT_LABEL);
    volume_free(&got);
    o.segment_count = 1, o.fractions = true;
    REQUIRE(desk_load(&d, r, 2, NULL, &o, &got, NULL));
    REQUIRE(got.voxels.type == F32);
    for (int i = 0; i < D * PLANE; i++)
        EXPECT_NEAR(((float *)got.voxels.data)[i], want[i] == 1, 0);
    volume_free(&got);

    // its contents, in the form that inspect shows
    DicomSegInfo info;
    REQUIRE(dicom_seg_info(kit_series(&d.arena, d.path), &d.arena, &info));
    EXPECT_TEXT(info.type, "RTSTRUCT");
    EXPECT_INT(info.segments, 2);
    EXPECT_INT(info.frames, 6);
    EXPECT_INT(info.segment[0].number, -3);
    EXPECT_TEXT(info.segment[0].label, "corner");
    EXPECT_INT(info.segment[1].frames, 4);
    desk_clear(&d);
}

TEST(dicom_contour_on_a_tilted_stack)
{
    // drawn on slices as stored, straightened like the image
    const double tilted[4][4] = {
        {1, 0, 0, -5}, {0, 2, 0.4, 7}, {0, 0, 3, 11}, {0, 0, 0, 1}};
    const MadeRegion r[] = {{7, "ring", ring, 4, NULL, 0},
                            {3, "corner", corner, 2, NULL, 0}};
    const DicomMaskOptions o = {.image = {.resample_tilt = true}};
    Desk d;
    Volume image, stored, want, got;

    desk_set_up(&d, "contour_tilt", tilted);
    REQUIRE(dicom_load(d.image, &o.image, &image, NULL));
    REQUIRE(desk_load(&d, r, 2, NULL, &o, &got, NULL));
    EXPECT(volume_same_grid(&image, &got));
    REQUIRE(volume_new(&stored, d.v.voxels.dim, U8));
    memcpy(stored.affine, tilted, sizeof tilted);
    stored.unit = UNIT_LABEL;
    desk_expect(ring, 4, 7, stored.voxels.data);
    desk_expect(corner, 2, 3, stored.voxels.data);
    Grid g = volume_grid(&image);
    REQUIRE(volume_resample(&stored, &g, NEAREST, 0, &want));
    EXPECT(
        !memcmp(want.voxels.data, got.voxels.data, tensor_bytes(&want.voxels)));
    EXPECT(got.voxels.dim.h > H);
    volume_free(&want);
    volume_free(&stored);
    volume_free(&got);
    volume_free(&image);
    desk_clear(&d);
}

TEST(dicom_contour_of_many_points)
{
    // a list of numbers longer than 64 KiB, which is written as UN
    enum { MANY = 6000 };
    static double uv[2 * MANY];
    Desk d;
    Volume got;
    for (int i = 0; i < MANY; i++) {
        uv[2 * i] = 6.3 + 5 * cos(6.2831853 * i / MANY);
        uv[2 * i + 1] = 5.8 + 5 * sin(6.2831853 * i / MANY);
    }
    const MadeContour c = {.slice = 2, .points = MANY, .uv = uv};
    const MadeRegion r = {1, "round", &c, 1, NULL, 0};
    uint8_t want[D * PLANE] = {0};
    desk_expect(&c, 1, 1, want);
    desk_set_up(&d, "contour_many", NULL);
    REQUIRE(desk_load(&d, &r, 1, NULL, NULL, &got, NULL));
    EXPECT(!memcmp(got.voxels.data, want, sizeof want));
    volume_free(&got);
    desk_clear(&d);
}

// ---- refused sets -----------------------------------------------------------

static const MadeContour plain = {.slice = 1, .points = 4, .uv = desk_hole};
static const MadeContour point = {
    .type = "POINT", .slice = 1, .points = 1, .uv = desk_hole};
static const MadeContour open_one = {
    .type = "OPEN_PLANAR", .slice = 1, .points = 4, .uv = desk_hole};

static const double wide[] = {3, 3, 20, 3, 20, 6, 3, 6};
static const MadeContour far_off = {
    .slice = 2, .points = 4, .uv = desk_hole, .off = 0.5};
static const MadeContour bent = {
    .slice = 2, .points = 4, .uv = desk_hole, .bent = 0.1};
static const MadeContour liar = {
    .slice = 2, .points = 4, .uv = desk_hole, .said = 5};
static const MadeContour words = {
    .slice = 2, .points = 1, .uv = desk_hole, .text = true};
static const MadeContour spiral = {
    .type = "SPIRAL", .points = 4, .uv = desk_hole};
static const double beyond[] = {1e10, 3, 20, 3, 20, 6, 3, 6};
static const MadeContour lost = {.slice = 1, .points = 4, .uv = beyond};
static const MadeContour outside = {
    .slice = 4, .points = 4, .uv = desk_hole, .off = 2};
static const MadeContour line = {.slice = 1, .points = 2, .uv = desk_hole};
static const MadeContour wider = {.slice = 1, .points = 4, .uv = wide};

TEST(dicom_contour_defects_have_exact_words)
{
    static const char *const named[] = {"a"}, *const other[] = {"liver"},
                             *const both[] = {"a", "b"},
                             *const twice[] = {"a", "#1"};
    static const struct {
        MadeRegion region[2];
        int regions;
        const char *series;
        DicomMaskOptions options;
        const char *text;
    } rows[] = {
        {{{1, "a", &far_off, 1, NULL, 0}},
         1,
         NULL,
         {.segments = NULL},
         "contour 1 of region \"a\" lies 1.5 mm off the nearest slice (> 0.05 "
         "mm; slices are 3 mm apart) [tag (3006,0050) ContourData]; fix: take "
         "the series that it was drawn on, or contour_tolerance = MM"},
        {{{1, "a", &bent, 1, NULL, 0}},
         1,
         NULL,
         {.segments = NULL},
         "contour 1 of region \"a\" lies 0.3 mm off the nearest slice (> 0.05 "
         "mm; slices are 3 mm apart) [tag (3006,0050) ContourData]; fix: take "
         "the series that it was drawn on, or contour_tolerance = MM"},
        {{{1, "a", &liar, 1, NULL, 0}},
         1,
         NULL,
         {.segments = NULL},
         "12 values, need 15 [tag (3006,0050) ContourData]"},
        {{{1, "a", &lost, 1, NULL, 0}},
         1,
         NULL,
         {.segments = NULL},
         "position 8e+09 mm, need less than 1e+09 [tag (3006,0050) "
         "ContourData]"},
        {{{1, "a", &words, 1, NULL, 0}},
         1,
         NULL,
         {.segments = NULL},
         "number \"x\" not a decimal string [tag (3006,0050) ContourData]"},
        {{{1, "a", &spiral, 1, NULL, 0}},
         1,
         NULL,
         {.segments = NULL},
         "contour of a type that is not known [tag (3006,0042) "
         "ContourGeometricType]"},
        {{{1, "a", &plain, 1, NULL, 0}, {2, "b", &plain, 1, NULL, 0}},
         2,
         NULL,
         {.segments = NULL},
         "segments \"a\" and \"b\" overlap (14 voxels) [tag (3006,0020) "
         "StructureSetROISequence]; fix: segments = one of them, or fractions "
         "= true"},
        {{{1, "a", &plain, 1, NULL, 0}, {1, "b", &plain, 1, NULL, 0}},
         2,
         NULL,
         {.segments = NULL},
         "two regions with number 1 [tag (3006,0022) ROINumber]"},
        {{{0, "a", &plain, 1, NULL, 0}},
         1,
         NULL,
         {.segments = NULL},
         "region without a number [tag (3006,0022) ROINumber]"},
        {{{256, "a", &plain, 1, NULL, 0}},
         1,
         NULL,
         {.segments = NULL},
         "ROINumber 256, need 1 to 255 [tag (3006,0022) ROINumber]; fix: name "
         "the regions: segments = {\"...\"}"},
        {{{1, "a", &plain, 1, NULL, 5}},
         1,
         NULL,
         {.segments = NULL},
         "contours of region 5, which is not described [tag (3006,0084) "
         "ReferencedROINumber]"},
        {{{1, "a", &plain, 1, NULL, 0}, {2, "b", &plain, 1, NULL, 1}},
         2,
         NULL,
         {.segments = NULL},
         "contours of region 1 appear twice [tag (3006,0084) "
         "ReferencedROINumber]"},
        {{{1, "a", &plain, 1, NULL, 0}},
         0,
         NULL,
         {.segments = NULL},
         "structure set without regions [tag (3006,0020) "
         "StructureSetROISequence]"},
        {{{1, "a", &plain, 1, NULL, 0}, {2, "b", &plain, 1, NULL, 0}},
         2,
         NULL,
         {.segments = other, .segment_count = 1},
         "0 regions called \"liver\", need 1; there are \"a\", \"b\" [tag "
         "(3006,0026) ROIName]"},
        {{{1, "a", &plain, 1, NULL, 0}, {2, "a", &plain, 1, NULL, 0}},
         2,
         NULL,
         {.segments = named, .segment_count = 1},
         "2 regions called \"a\", need 1; their numbers are 1, 2 [tag "
         "(3006,0026) ROIName]; fix: take one by its number: segments = "
         "{\"#NUMBER\"}"},
        {{{1, "a", &plain, 1, NULL, 0}},
         1,
         NULL,
         {.segments = twice, .segment_count = 2},
         "region \"a\" (number 1) is asked for twice [tag (3006,0026) "
         "ROIName]"},
        {{{1, "a", &outside, 1, NULL, 0}},
         1,
         NULL,
         {.segments = named, .segment_count = 1},
         "region \"a\" lies beyond the first or last slice with all its 1 "
         "contours [tag (3006,0050) ContourData]; fix: take the series that "
         "it was drawn on"},
        {{{1, "a", &plain, 1, NULL, 0}, {2, "b", &plain, 1, NULL, 0}},
         2,
         NULL,
         {.segments = both, .segment_count = 2, .fractions = true},
         "fractions of 2 regions at once [tag (3006,0020) "
         "StructureSetROISequence]; fix: name the regions: segments = "
         "{\"...\"}"},
        {{{1, "a", &point, 1, NULL, 0}},
         1,
         NULL,
         {.segments = named, .segment_count = 1},
         "region \"a\" has no closed contour [tag (3006,0040) "
         "ContourSequence]"},
        {{{1, "a", &plain, 1, "2.25.99", 0}},
         1,
         "2.25.98",
         {.segments = NULL},
         "region \"a\" lies in another frame of reference than the image [tag "
         "(3006,0024) ReferencedFrameOfReferenceUID]; fix: take the series "
         "that it was drawn on"},
    };
    Desk d;

    desk_set_up(&d, "contour_defects", NULL);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Volume got;
        char want[900];
        snprintf(want, sizeof want, "%s: dicom: %s", d.path, rows[i].text);
        EXPECT(!desk_load(&d, rows[i].region, rows[i].regions, rows[i].series,
                          &rows[i].options, &got, NULL));
        EXPECT_TEXT(err_text(), want);
        EXPECT_INT(err_kind(), ERR_DATA);
    }
    desk_clear(&d);
}

TEST(dicom_contour_oddities_are_noted)
{
    static const MadeContour gap[] = {
        {.slice = 0, .points = 4, .uv = desk_hole},
        {.slice = 3, .points = 4, .uv = desk_hole}};
    static const struct {
        MadeRegion region[2];
        int regions;
        const char *series, *text;
    } rows[] = {
        {{{1, "a", &plain, 1, NULL, 0}, {2, "b", &point, 1, NULL, 0}},
         2,
         NULL,
         "region \"b\": 1 contour of type POINT skipped [tag (3006,0042) "
         "ContourGeometricType]"},
        {{{1, "a", &plain, 1, NULL, 0}, {2, "b", &open_one, 1, NULL, 0}},
         2,
         NULL,
         "region \"b\": 1 contour of type OPEN_PLANAR skipped [tag "
         "(3006,0042) ContourGeometricType]"},
        {{{1, "a", &plain, 1, NULL, 0}, {2, "b", &open_one, 1, NULL, 0}},
         2,
         NULL,
         "region \"b\" has no closed contour [tag (3006,0040) "
         "ContourSequence]"},
        {{{1, "a", &line, 1, NULL, 0}},
         1,
         NULL,
         "region \"a\": 1 contour of fewer than 3 points skipped [tag "
         "(3006,0050) ContourData]"},
        {{{1, "a", gap, 2, NULL, 0}},
         1,
         NULL,
         "region \"a\": 2 of 4 slices between its first and last have no "
         "contour [tag (3006,0040) ContourSequence]"},
        {{{1, "a", &wider, 1, NULL, 0}},
         1,
         NULL,
         "region \"a\" reaches beyond the image, cut off [tag (3006,0050) "
         "ContourData]"},
        {{{1, "a", &plain, 1, NULL, 0}},
         1,
         "2.25.98",
         "contours were drawn on another series of this frame of reference "
         "[tag (3006,0014) RTReferencedSeriesSequence]"},
    };
    Desk d;

    desk_set_up(&d, "contour_notes", NULL);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Volume got;
        DicomNotes notes = {0};
        bool warned = false;
        REQUIRE(desk_load(&d, rows[i].region, rows[i].regions, rows[i].series,
                          NULL, &got, &notes));
        for (const DicomNote *n = notes.first; n; n = n->next) {
            const char *says = strstr(n->text, ": dicom: ");
            warned = warned ||
                     (says && n->warning && !strcmp(says + 9, rows[i].text));
        }
        if (!warned)
            test_failed(__FILE__, __LINE__, "no note: %s", rows[i].text);
        dicom_notes_free(&notes);
        volume_free(&got);
    }
    desk_clear(&d);
}

TEST(dicom_contour_names_the_slice_it_lies_in)
{
    Desk d;
    Volume got;
    desk_set_up(&d, "contour_named", NULL);

    // UIDs of slices 1 and 3, found through a mask that marks both
    char uid[D][80];

    for (int i = 0; i < D; i++) {
        KitFile f;
        REQUIRE(kit_read(d.image->paths[i], &f));
        Walk w;
        Arena a = {0};
        DicomHeader h;
        WalkInput in = {
            .path = f.path, .bytes = f.bytes, .have = f.size, .size = f.size};
        REQUIRE(walk_file(&in, &w) == WALK_DONE &&
                header_identity(&w, &a, &h) &&
                header_image(&w, NULL, false, "", &h, NULL));
        double mm[3];
        for (int k = 0; k < D; k++) {
            volume_world(&d.v, 0, 0, k, mm);
            if (fabs(mm[2] - h.position_mm[2]) < 1e-6)
                snprintf(uid[k], sizeof uid[k], "%s", h.sop_uid);
        }
        walk_free(&w);
        arena_release(&a);
        mem_free(f.bytes);
    }

    MadeContour c = plain;
    const MadeRegion r = {1, "a", &c, 1, NULL, 0};
    c.drawn = uid[1];
    REQUIRE(desk_load(&d, &r, 1, NULL, NULL, &got, NULL));
    volume_free(&got);
    c.drawn = "2.25.123";
    REQUIRE(desk_load(&d, &r, 1, NULL, NULL, &got, NULL));
    volume_free(&got);
    c.drawn = uid[3];
    EXPECT_FAIL(desk_load(&d, &r, 1, NULL, NULL, &got, NULL),
                "contour 1 of region \"a\" lies in slice 2, but names slice 4 "
                "[tag (3006,0016) ContourImageSequence]");
    desk_clear(&d);
}

TEST(dicom_contour_frame_of_reference_row_67)
{
    // another frame of reference, but the set names this series
    Desk d;
    Volume got;
    DicomNotes notes = {0};

    desk_set_up(&d, "contour_frame", NULL);
    const MadeRegion r = {1, "a", &plain, 1, "2.25.99", 0};
    REQUIRE(desk_load(&d, &r, 1, d.image->series_uid, NULL, &got, &notes));
    volume_free(&got);
    dicom_notes_free(&notes);

    // a set with another frame of reference in its header
    KitFile f;
    REQUIRE(kit_read(d.path, &f));
    kit_set_text(&f, TAG_FrameOfReferenceUID, "2.25.99");
    REQUIRE(kit_save(&f));
    REQUIRE(dicom_load_mask(d.image, kit_series(&d.arena, d.path), NULL, &got,
                            &notes));
    EXPECT(kit_noted(&notes, "FrameOfReference of mask differs"));
    dicom_notes_free(&notes);
    volume_free(&got);
    desk_clear(&d);
}

TEST(dicom_contour_in_a_data_set)
{
    static const char *const names[] = {"ring", "corner"};
    Desk d;
    Volume got;
    Dataset *ds;
    Arena a = {0};

    desk_set_up(&d, "contour_set", NULL);
    const MadeRegion r[] = {{7, "ring", ring, 4, NULL, 0},
                            {9, "corner", corner, 2, NULL, 0},
                            {11, "body", ring, 4, NULL, 0}};
    snprintf(d.path, sizeof d.path, "%s/set.dcm",
             kit_folder("contour_set_image"));
    make_set(&(MadeSet){&d.v, d.image, r, 3, d.image->series_uid}, d.path);
    DatasetDicom how = {.image = {"image"},
                        .images = 1,
                        .mask = "regions",
                        .segments = names,
                        .segment_count = 2};
    uint8_t want[D * PLANE] = {0};
    desk_expect(ring, 4, 1, want);
    desk_expect(corner, 2, 2, want);
    REQUIRE(dataset_dicom(kit_folder("contour_set_image"), &how, &ds));
    EXPECT_INT(ds->field[1].kind, FIELD_LABEL);
    REQUIRE(case_load(ds, 0, 1, NULL, &got, NULL));
    EXPECT(!memcmp(got.voxels.data, want, sizeof want));
    volume_free(&got);
    dataset_free(ds);

    // as channels of fractions, where regions may overlap
    static const char *const three[] = {"ring", "corner", "body"};
    how.segments = three, how.segment_count = 3, how.fractions = true;
    REQUIRE(dataset_dicom(kit_folder("contour_set_image"), &how, &ds));
    EXPECT_INT(ds->field[1].kind, FIELD_VALUE);
    REQUIRE(case_load(ds, 0, 1, NULL, &got, NULL));
    REQUIRE(got.voxels.dim.c == 3 && got.voxels.type == F32);
    const float *p = got.voxels.data;
    for (int i = 0; i < D * PLANE; i++, p += 3) {
        EXPECT_NEAR(p[0], want[i] == 1, 0);
        EXPECT_NEAR(p[1], want[i] == 2, 0);
        EXPECT_NEAR(p[2], want[i] == 1, 0);
    }

    volume_free(&got);
    dataset_free(ds);
    arena_release(&a);
    desk_clear(&d);
}

static bool load_damaged(void *ctx)
{
    const Desk *d = ctx;
    Arena a = {0};
    DicomIndex index;
    DicomNotes notes = {0};
    DicomSegInfo info;
    Volume got;
    bool ok = dicom_scan(d->path, NULL, &a, &index) &&
              dicom_load_mask(d->image, index.series, NULL, &got, &notes);

    if (ok) volume_free(&got);
    ok = ok && dicom_seg_info(index.series, &a, &info);
    dicom_notes_free(&notes);
    arena_release(&a);
    return ok;
}

TEST(dicom_contour_damaged_anywhere_is_refused)
{
    Desk d;
    desk_set_up(&d, "contour_damage", NULL);
    const MadeRegion r[] = {{1, "ring", ring, 4, NULL, 0},
                            {2, "corner", corner, 2, NULL, 0}};
    make_set(&(MadeSet){&d.v, d.image, r, 2, d.image->series_uid}, d.path);
    EXPECT(damage_elements(d.path, load_damaged, &d) > 100);
    damage_memory(load_damaged, &d);
    desk_clear(&d);
}
