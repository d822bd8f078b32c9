/* nifti_space.c -- tests of the position of the voxels of a NIfTI file: sform
 * and qform, one of them, both, neither. */
#include "tests/support/nifti_make.h"
#include "tests/test.h"
#include <math.h>

TEST(nifti_forms)
{
    Maker m;
    Volume v;
    NiftiOptions s = {.form = NIFTI_SFORM}, q = {.form = NIFTI_QFORM};
    NiftiOptions spacing = {.assume_spacing = true};

    // each form alone
    make(&m, 1, false);
    set(&m, &sform, 0, 0), set(&m, &srow, 0, 77);
    REQUIRE(decode(&m, NULL, &v));
    expect_affine(&v, made_lps, 1e-6);
    volume_free(&v);
    EXPECT_FAIL(decode(&m, &s, &v),
                "there is no sform (sform_code is 0), but a qform; fix: form = "
                "\"sform_or_qform\" takes it");
    make(&m, 1, false);
    set(&m, &qform, 0, 0), set(&m, &quatern, 0, 0.3);
    REQUIRE(decode(&m, NULL, &v));
    expect_affine(&v, made_lps, 1e-6);
    volume_free(&v);
    EXPECT_FAIL(decode(&m, &q, &v),
                "there is no qform (qform_code is 0), but a sform; fix: form = "
                "\"qform_or_sform\" takes it");

    // both, at most 1 % of the shortest edge, 0.005 mm, apart
    make(&m, 1, false);
    set(&m, &offset, 2, 30.0049);
    REQUIRE(decode(&m, NULL, &v));
    EXPECT_NEAR(v.affine[2][3], 30, 0);
    volume_free(&v);
    set(&m, &offset, 2, 30.0051);
    EXPECT_FAIL(decode(&m, NULL, &v), "sform and qform differ by 0.0102 voxels:"
                                      " sform origin (10 -20 30)");
    EXPECT_FAIL(decode(&m, NULL, &v), "qform origin (10 -20 30.005)");
    EXPECT_FAIL(decode(&m, NULL, &v), "fix: say which with form");
    REQUIRE(decode(&m, &s, &v));
    EXPECT_NEAR(v.affine[2][3], 30, 0);
    volume_free(&v);
    REQUIRE(decode(&m, &q, &v));
    EXPECT_NEAR(v.affine[2][3], 30.0051, 1e-6);
    volume_free(&v);

    // neither form
    set(&m, &qform, 0, 0), set(&m, &sform, 0, 0);
    EXPECT_FAIL(decode(&m, NULL, &v),
                "no orientation: qform_code and sform_code are 0; fix: "
                "assume_spacing = true takes pixdim 0.5 x 1.5 x 2 and axes R A "
                "S, which is a guess: left and right may be exchanged");
    static const double plain[3][4] = {
        {-0.5, 0, 0, 0}, {0, -1.5, 0, 0}, {0, 0, 2, 0}};
    REQUIRE(decode(&m, &spacing, &v));
    expect_affine(&v, plain, 0);
    volume_free(&v);
}

/* A set in which one file has two forms that disagree, and others have one
 * form: LAS by the sform, RAS by the qform and by the spacing. */
TEST(nifti_form_that_is_there)
{
    static const struct {
        int sform, qform;
        NiftiForm form;
        const char *code, *doubt;
    } row[] = {
        {2, 0, NIFTI_BOTH, "LAS", ""},
        {0, 1, NIFTI_BOTH, "RAS", ""},
        {2, 0, NIFTI_QFORM_OR_SFORM, "LAS", ""},
        {2, 0, NIFTI_SFORM_OR_QFORM, "LAS", ""},
        {0, 1, NIFTI_QFORM_OR_SFORM, "RAS", ""},
        {0, 1, NIFTI_SFORM_OR_QFORM, "RAS", ""},
        {2, 1, NIFTI_SFORM_OR_QFORM, "LAS", "voxels; the sform is taken"},
        {2, 1, NIFTI_QFORM_OR_SFORM, "RAS", "voxels; the qform is taken"},
        {2, 1, NIFTI_SFORM, "LAS", ""},
        {2, 1, NIFTI_QFORM, "RAS", ""},
        // never the assumption if a form is present
        {2, 0, NIFTI_QFORM, NULL,
         "but a sform; fix: form = \"qform_or_sform\""},
        {0, 1, NIFTI_SFORM, NULL,
         "but a qform; fix: form = \"sform_or_qform\""},
        {0, 0, NIFTI_BOTH, "RAS", "axes R A S and pixdim 0.5 x 1.5 x 2"},
        {0, 0, NIFTI_QFORM_OR_SFORM, "RAS", "left and right may be exchanged"},
    };

    for (int version = 1; version <= 2; version++)
        for (size_t r = 0; r < sizeof row / sizeof *row; r++)
            for (int assume = 0; assume < 2; assume++) {
                const NiftiOptions o = {.form = row[r].form,
                                        .assume_spacing = assume};
                static const double las[12] = {-0.5, 0, 0, 10, 0, 1.5,
                                               0,    0, 0, 0,  2, 0};
                Maker m;
                Volume v;
                NiftiHeader h;
                char code[4];
                make(&m, version, false);
                set(&m, &sform, 0, row[r].sform);
                set(&m, &qform, 0, row[r].qform);
                for (int k = 0; k < 12; k++) set(&m, &srow, k, las[k]);
                set(&m, &quatern, 2, 0);
                const bool ok = nifti_decode(
                    &(NiftiBytes){m.bytes, m.size, false}, NULL, &o, &v, &h);
                const bool none = !row[r].sform && !row[r].qform;
                EXPECT(ok == (row[r].code && (assume || !none)));
                if (!ok) {
                    EXPECT(strstr(err_text(), row[r].code ? "no orientation"
                                                          : row[r].doubt));
                    continue;
                }
                EXPECT_TEXT(volume_code(&v, code), row[r].code);
                EXPECT(strstr(h.doubt, row[r].doubt));
                EXPECT(!*h.doubt == !*row[r].doubt);
                volume_free(&v);
            }
}

/* Axial slices of DICOM are a half turn in RAS, where three float32 components
 * of a quaternion hardly determine a small angle; the sform does. */
TEST(nifti_forms_near_half_a_turn)
{
    for (int axis = 0; axis < 3; axis++)
        for (int i = -60; i <= 60; i++)
            for (int off = 0; off < 2; off++) {
                // a half turn plus `angle` about the axis, from a to b
                const double angle = i * 2e-5, turn = angle + off * 3e-3;
                const int a = (axis + 1) % 3, b = (axis + 2) % 3;
                const double step = 0.7, s = step * sin(angle),
                             c = step * cos(angle);
                Maker m;
                Volume v;
                make(&m, 1, false);
                for (int k = 0; k < 3; k++) {
                    set(&m, &dim, k + 1, k == a ? COUNT : 1);
                    set(&m, &pixdim, k + 1, step);
                    set(&m, &offset, k, 0);
                    set(&m, &quatern, k, 0);
                }
                for (int k = 0; k < 12; k++) set(&m, &srow, k, 0);
                set(&m, &srow, 5 * axis, step);
                set(&m, &srow, 5 * a, -c), set(&m, &srow, 5 * b, -c);
                set(&m, &srow, 4 * a + b, s), set(&m, &srow, 4 * b + a, -s);
                set(&m, &quatern, axis,
                    turn > 0 ? -cos(turn / 2) : cos(turn / 2));
                if (off) {
                    EXPECT_FAIL(decode(&m, NULL, &v), "sform and qform differ");
                    continue;
                }
                REQUIRE(decode(&m, NULL, &v));
                EXPECT_NEAR(v.affine[a][b], a < 2 ? -s : s, 1e-9);
                volume_free(&v);
            }
}

TEST(nifti_handedness_and_half_turns)
{
    // qfac -1, 0 and 1; quaternions without real part
    static const struct {
        double qfac, q[3];
        const char *code;
    } row[] = {
        {1, {0, 0, 0}, "RAS"},         {0, {0, 0, 0}, "RAS"},
        {-1, {0, 0, 0}, "RAI"},        {1, {1, 0, 0}, "RPI"},
        {1, {0, 1, 0}, "LAI"},         {1, {0, 0, 1}, "LPS"},
        {-1, {0, 0, 1}, "LPI"},        {1, {0.5, 0.5, 0.5}, "ASR"},
        {-1, {0.5, -0.5, 0.5}, "SLA"},
    };

    for (size_t r = 0; r < sizeof row / sizeof *row; r++) {
        Maker m;
        Volume v;
        char code[4];
        make(&m, 1, false);
        set(&m, &sform, 0, 0);
        set(&m, &pixdim, 0, row[r].qfac);
        for (int i = 0; i < 3; i++) set(&m, &quatern, i, row[r].q[i]);
        REQUIRE(decode(&m, NULL, &v));
        EXPECT_TEXT(volume_code(&v, code), row[r].code);
        double s[3];
        volume_spacing_mm(&v, s);
        EXPECT_NEAR(s[0], 0.5, 1e-6);
        EXPECT_NEAR(s[1], 1.5, 1e-6);
        EXPECT_NEAR(s[2], 2, 1e-6);
        volume_free(&v);
    }
}
