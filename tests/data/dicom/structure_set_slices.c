/* structure_set_slices.c -- the slice of a contour: the slice that it names, or
 * the slice in whose plane it lies; and regions selected by number. */
#include "data/dicom/file.h"
#include "data/dicom/stack.h"
#include "tests/support/dicom_contours.h"

TEST(dicom_contour_lies_in_its_slice_to_a_tolerance)
{
    // 0.05 mm for slices 3 mm apart without the option, else 0.4 mm
    static const struct {
        double off, tolerance_mm;
        bool ok;
    } rows[] = {{0.016, 0, true},   {-0.016, 0, true},   {0.017, 0, false},
                {-0.017, 0, false}, {0.13, 0.4, true},   {-0.13, 0.4, true},
                {0.14, 0.4, false}, {-0.14, 0.4, false}, {0.49, 1.5, true}};
    Desk d;
    Volume got;

    desk_set_up(&d, "contour_off", NULL);
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        const MadeContour c = {
            .slice = 2, .points = 4, .uv = desk_hole, .off = rows[k].off};
        const MadeRegion r = {1, "a", &c, 1, NULL, 0};
        const DicomMaskOptions o = {.contour_tolerance_mm =
                                        rows[k].tolerance_mm};
        uint8_t want[D * PLANE] = {0};
        bool ok = desk_load(&d, &r, 1, NULL, &o, &got, NULL);
        EXPECT_INT(ok, rows[k].ok);
        desk_expect(&c, 1, 1, want);
        if (ok) EXPECT(!memcmp(got.voxels.data, want, sizeof want));
        if (ok) volume_free(&got);
    }
    desk_clear(&d);
}

// the SOPInstanceUID of slice k, for any order of the files
static const char *uid_of(Desk *d, int k)
{
    for (int32_t i = 0; i < d->image->count; i++) {
        DicomFile f;
        DicomHeader h;
        double normal[3], at[3];
        REQUIRE(dicom_file_open(d->image->paths[i], NULL, true, &f) ==
                WALK_DONE);
        REQUIRE(header_identity(&f.walk, &d->arena, &h));
        REQUIRE(header_geometry(&f.walk, NULL, &h));
        dicom_file_close(&f);
        stack_normal(h.orientation, normal);
        for (int a = 0; a < 3; a++) at[a] = d->v.affine[a][3];
        if (fabs(stack_project(normal, h.position_mm) -
                 stack_project(normal, at) - 3 * k) < 0.1)
            return h.sop_uid;
    }

    REQUIRE(false);
    return NULL;
}

TEST(dicom_contour_is_of_the_slice_that_it_names)
{
    // distance in slices, and the note; beyond half a slice another slice is
    // nearer
    static const struct {
        double off;
        const char *note;
        bool ok;
    } rows[] = {
        {0.0447, "1 contour up to 0.134 mm off the plane of the slice", true},
        {-0.49, "1 contour up to 1.47 mm off the plane of the slice", true},
        {0.01, NULL, true},
        {0.6, NULL, false},
        {1, NULL, false}};
    Desk d;

    desk_set_up(&d, "contour_named", NULL);
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        const MadeContour c = {.slice = 2,
                               .points = 4,
                               .uv = desk_hole,
                               .off = rows[k].off,
                               .drawn = uid_of(&d, 2)};
        const MadeRegion r = {1, "a", &c, 1, NULL, 0};
        uint8_t want[D * PLANE] = {0};
        Volume got;
        DicomNotes notes = {0};
        bool ok = desk_load(&d, &r, 1, NULL, NULL, &got, &notes);
        EXPECT_INT(ok, rows[k].ok);
        if (ok) {
            desk_expect(&c, 1, 1, want);
            EXPECT(!memcmp(got.voxels.data, want, sizeof want));
            EXPECT_INT(kit_noted(&notes, "off the plane"),
                       rows[k].note != NULL);
            if (rows[k].note) EXPECT(kit_noted(&notes, rows[k].note));
            volume_free(&got);
        }
        dicom_notes_free(&notes);
    }
    desk_clear(&d);
}

TEST(dicom_contours_of_two_planes_in_one_slice)
{
    // slices 3 mm apart, contours every 1.5 mm, and twice in one plane
    Desk d;
    desk_set_up(&d, "contour_planes", NULL);
    const char *uid = uid_of(&d, 2);

    for (int same = 0; same < 2; same++) {
        const double off = same ? 0.01 : 0.5;
        const MadeContour c[] = {
            {.slice = 2, .points = 5, .uv = desk_big, .drawn = uid},
            {.slice = 2,
             .points = 4,
             .uv = desk_hole,
             .off = off,
             .drawn = uid}};
        const MadeRegion r = {1, "a", c, 2, NULL, 0};
        Volume got;
        const bool ok = desk_load(&d, &r, 1, NULL, NULL, &got, NULL);
        EXPECT_INT(ok, same);
        if (ok) {
            uint8_t want[D * PLANE] = {0};
            desk_expect(c, 2, 1, want);
            EXPECT(!memcmp(got.voxels.data, want, sizeof want));
            volume_free(&got);
        } else {
            EXPECT(strstr(err_text(),
                          "contour 2 of region \"a\" falls into slice 3 with a "
                          "contour that lies 1.5 mm off it (slices are 3 mm "
                          "apart)"));
        }
    }
    desk_clear(&d);
}

TEST(dicom_contours_beyond_the_image_are_left_out)
{
    // two slices above the last and one below the first; one names a slice
    Desk d;
    desk_set_up(&d, "contour_beyond", NULL);
    const MadeContour tall[] = {
        {.slice = 0, .points = 4, .uv = desk_hole, .off = -1},
        {.slice = 0, .points = 4, .uv = desk_hole},
        {.slice = 4, .points = 5, .uv = desk_big},
        {.slice = 4, .points = 4, .uv = desk_hole, .off = 1},
        {.slice = 4,
         .points = 4,
         .uv = desk_hole,
         .off = 2,
         .drawn = uid_of(&d, 4)}};
    const MadeContour inside[] = {tall[1], tall[2]};
    const MadeRegion r = {1, "a", tall, 5, NULL, 0};
    uint8_t want[D * PLANE] = {0};
    Volume got;
    DicomNotes notes = {0};
    REQUIRE(desk_load(&d, &r, 1, NULL, NULL, &got, &notes));
    desk_expect(inside, 2, 1, want);
    EXPECT(!memcmp(got.voxels.data, want, sizeof want));
    EXPECT(kit_noted(&notes,
                     "region \"a\": 3 contours beyond the first or last "
                     "slice left out"));
    volume_free(&got);
    dicom_notes_free(&notes);

    // a region without remaining contours is an error only if it was selected
    const MadeRegion two[] = {{1, "a", inside, 2, NULL, 0},
                              {2, "b", tall + 3, 2, NULL, 0}};
    REQUIRE(desk_load(&d, two, 2, NULL, NULL, &got, NULL));
    EXPECT(!memcmp(got.voxels.data, want, sizeof want));
    volume_free(&got);
    desk_clear(&d);
}

TEST(dicom_contour_of_a_region_by_its_number)
{
    static const char *const by_number[] = {"#7"}, *const as_name[] = {"#3"};
    const MadeContour first = {.slice = 1, .points = 4, .uv = desk_hole};
    const MadeContour second = {.slice = 3, .points = 5, .uv = desk_big};
    const MadeRegion r[] = {{3, "GTV", &first, 1, NULL, 0},
                            {7, "GTV", &second, 1, NULL, 0}};

    // a name that looks like a number is a name
    const MadeRegion odd[] = {{3, "GTV", &first, 1, NULL, 0},
                              {7, "#3", &second, 1, NULL, 0}};
    Desk d;

    desk_set_up(&d, "contour_number", NULL);
    uint8_t want[D * PLANE] = {0};
    desk_expect(&second, 1, 1, want);

    for (int i = 0; i < 2; i++) {
        const DicomMaskOptions o = {.segments = i ? as_name : by_number,
                                    .segment_count = 1};
        Volume got;
        REQUIRE(desk_load(&d, i ? odd : r, 2, NULL, &o, &got, NULL));
        EXPECT(!memcmp(got.voxels.data, want, sizeof want));
        volume_free(&got);
    }
    desk_clear(&d);
}
