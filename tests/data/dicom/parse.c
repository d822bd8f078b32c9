/* parse.c -- functions without files: numbers, the walker, slices in space, and
 * behaviour when memory runs out. */
#include "data/dicom/frames.h"
#include "data/dicom/stack.h"
#include "tests/support/dicom_series.h"

TEST(dicom_decimals)
{
    static const struct {
        const char *text;
        bool ok;
        double value;
    } cases[] = {
        {"1", true, 1},
        {" -2.5 ", true, -2.5},
        {"+.5", true, 0.5},
        {"3.", true, 3},
        {"1e3", true, 1000},
        {"1.5E-3", true, 1.5e-3},
        {"0.1", true, 0.1},
        {"-97.15811645847", true, -97.15811645847},
        {"2.046187e-10", true, 2.046187e-10},
        {"0.99999996693059", true, 0.99999996693059},
        {"1e22", true, 1e22},
        {"123456789012345678901234567890", true, 1.2345678901234568e29},
        {"1e-400", true, 0},
        {"0e99999999", true, 0},
        {"", false, 0},
        {"-", false, 0},
        {".", false, 0},
        {"1e", false, 0},
        {"1e+", false, 0},
        {"1,5", false, 0},
        {"1 2", false, 0},
        {"0x10", false, 0},
        {"nan", false, 0},
        {"inf", false, 0},
        {"1e400", false, 0},
        {"1..2", false, 0},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double v = 0;
        bool ok = header_decimal(cases[i].text, strlen(cases[i].text), &v);
        if (ok != cases[i].ok ||
            (ok && v != cases[i].value && fabs(v / cases[i].value - 1) > 1e-15))
            test_failed(__FILE__, __LINE__, "\"%s\" is %d %.17g", cases[i].text,
                        ok, v);
    }
}

TEST(dicom_walk_needs_no_more_than_the_header)
{
    if (!dicom_ready()) SKIP("built without DCMTK");
    Volume v;
    kit_volume(&v, 1, 8, 8, false);

    for (int syntax = 0; syntax < DICOM_SYNTAX_COUNT; syntax++) {
        char name[64], path[600];
        DicomWrite how = kit_write();
        how.syntax = (DicomSyntax)syntax;
        snprintf(name, sizeof name, "prefix%d", syntax);
        snprintf(path, sizeof path, "%s/IM0001.dcm", kit_folder(name));
        REQUIRE(dicom_write_series(kit_folder(name), &v, &how));
        KitFile f;
        REQUIRE(kit_read(path, &f));
        WalkInput in = {.path = path,
                        .bytes = f.bytes,
                        .size = f.size,
                        .header_only = true};
        size_t enough = 0;
        // every prefix from some length on suffices, and none before
        for (in.have = 132; in.have <= f.size; in.have++) {
            Walk w;
            WalkResult r = walk_file(&in, &w);
            if (r == WALK_DONE && !enough) enough = in.have;
            EXPECT_INT(r, enough ? WALK_DONE : WALK_MORE);
            walk_free(&w);
        }
        EXPECT(enough && (enough < f.size || syntax == DICOM_DEFLATED));
        mem_free(f.bytes);
    }
    volume_free(&v);
}

// n axial slices 2 mm apart, in reverse
static void make_slices(DicomHeader *h, int n)
{
    static const char *const names[] = {"f/a", "f/b", "f/c", "f/d"};
    for (int i = 0; i < n; i++)
        h[i] = (DicomHeader){.path = names[i],
                             .rows = 4,
                             .cols = 4,
                             .position_mm = {1, 2, 3 - 2.0 * i},
                             .orientation = {1, 0, 0, 0, 1, 0},
                             .spacing_mm = {0.5, 0.25},
                             .has_position = true,
                             .has_orientation = true,
                             .has_spacing = true};
}

TEST(dicom_stack_orders_by_position)
{
    DicomHeader h[4];
    DicomStack s;
    make_slices(h, 4);
    REQUIRE(stack_order("f", h, 4, NULL, &s, NULL));
    EXPECT_TEXT(h[0].path, "f/d");
    EXPECT_TEXT(h[3].path, "f/a");

    // rows are 0.5 mm apart, columns 0.25
    EXPECT_NEAR(s.grid.affine[0][0], 0.25, 0);
    EXPECT_NEAR(s.grid.affine[1][1], 0.5, 0);
    EXPECT_NEAR(s.grid.affine[2][2], 2, 0);
    EXPECT_NEAR(s.grid.affine[2][3], -3, 0);
    EXPECT_NEAR(s.tilt_deg, 0, 0);
}

TEST(dicom_stack_limits_lie_where_they_should)
{
    DicomHeader h[4];
    DicomStack s;

    // a slice may be 2 % of the spacing off the grid: just below passes, just
    // above does not
    for (int over = 0; over < 2; over++) {
        make_slices(h, 4);
        h[1].position_mm[2] += over ? 0.0401 : 0.0399;
        EXPECT(stack_order("f", h, 4, NULL, &s, NULL) == !over);
    }

    // a shear of 0.5 degrees: 2 mm * tan(0.5) = 0.01745 mm per slice
    for (int over = 0; over < 2; over++) {
        make_slices(h, 4);
        for (int i = 0; i < 4; i++)
            h[i].position_mm[0] += i * (over ? 0.0180 : 0.0170);
        EXPECT(stack_order("f", h, 4, NULL, &s, NULL) == !over);
    }
}

// scan, load and a mask, with the k-th allocation failing
static bool whole_way(const char *top)
{
    Arena a = {0};
    Volume v = {.unit = UNIT_NONE}, m = {.unit = UNIT_NONE};
    DicomIndex index;
    DicomNotes notes = {0};
    bool ok =
        dicom_scan(top, NULL, &a, &index) && index.count == 2 &&
        dicom_load(&index.series[0], NULL, &v, &notes) &&
        dicom_load_mask(&index.series[0], &index.series[1], NULL, &m, &notes);

    volume_free(&v);
    volume_free(&m);
    dicom_notes_free(&notes);
    arena_release(&a);
    return ok;
}

TEST(dicom_without_memory_fails_and_leaks_nothing)
{
    if (!dicom_ready()) SKIP("built without DCMTK");
    Volume v;
    kit_volume(&v, 3, 4, 5, false);
    const char *top = kit_folder("memory");
    DicomWrite how = kit_write();
    how.syntax = DICOM_RLE, how.shuffle = true;
    REQUIRE(dicom_write_series(kit_folder("memory/a"), &v, &how));
    for (int i = 0; i < 60; i++)
        ((int16_t *)v.voxels.data)[i] = (int16_t)(i % 2);
    how.description = "mask", how.series_number = 9,
    how.syntax = DICOM_DEFLATED;
    REQUIRE(dicom_write_series(kit_folder("memory/b"), &v, &how));
    volume_free(&v);
    REQUIRE(whole_way(top));

    for (int from_then_on = 0; from_then_on < 2; from_then_on++) {
        long before = mem_live(), k = 0;
        for (bool ok = false; !ok && k < 10000; k++) {
            mem_fail_after(k, from_then_on);
            ok = whole_way(top);
            mem_fail_after(-1, false);
            EXPECT_INT(mem_live(), before);
            if (!ok) EXPECT(strstr(err_text(), "no memory"));
        }
        EXPECT(k > 20 && k < 10000);
    }
}
