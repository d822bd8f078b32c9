/* nifti_space.c -- the position of the voxels of a NIfTI file.
 *
 * Space follows nifti1.h, with its names of methods: method 3 (sform rows),
 * method 2 (quaternion), method 1 (spacing alone) only when requested, and only
 * if both forms are absent. */
#include "data/format/nifti_header.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Maximum distance of the two forms, as a fraction of the shortest edge. */
#define FORMS_AGREE 0.01
/* Uncertainty of the square of a quaternion's fourth component in float32: the
 * rounding of three squares, each below 1. */
#define SQUARE_ROUNDING 4e-7
/* No voxel is farther away than a thousand kilometres; sums stay finite. */
#define FARTHEST_MM 1e9

/* Reads the spacing along each axis; an axis with one voxel may have 0. */
static bool spacing_of(const NiftiHeader *h, double spacing[3])
{
    for (int i = 0; i < 3; i++) {
        bool flat = i >= h->dim[0] || h->dim[i + 1] == 1;
        spacing[i] = h->pixdim[i + 1];
        if (flat && spacing[i] == 0) spacing[i] = 1;
        if (!(spacing[i] > 0))
            return fail_data("pixdim[%d] is %g, need a spacing above 0", i + 1,
                             h->pixdim[i + 1]);
    }
    return true;
}

/* Returns the fourth component of the quaternion, a, from the rotation in these
 * columns, using the largest component: 4 a d = R10 - R01, and so on. */
static double fourth_of(const NiftiHeader *h, double m[4][4])
{
    const double *q = h->quatern;
    int top = 0;
    for (int k = 1; k < 3; k++)
        if (fabs(q[k]) > fabs(q[top])) top = k;
    const int i = (top + 1) % 3, k = (top + 2) % 3;
    double turn[2] = {m[k][i], m[i][k]};

    for (int n = 0; n < 2; n++) {
        const int column = n ? k : i;
        turn[n] /= hypot(hypot(m[0][column], m[1][column]), m[2][column]);
        // the mirror denoted by pixdim[0]
        if (column == 2 && h->pixdim[0] < 0) turn[n] = -turn[n];
    }
    return (turn[0] - turn[1]) / (4 * q[top]);
}

/* Method 2 of nifti1.h, in file units and RAS. The file has three components of
 * the quaternion, and the fourth follows from the unit length. In a NIfTI-1
 * file near a half turn, such as axial slices of DICOM in RAS, it is mostly
 * rounding. `fourth`, unless NaN, is used within the limits of that
 * rounding. */
static bool qform_affine(const NiftiHeader *h, double fourth, double m[4][4])
{
    double b = h->quatern[0], c = h->quatern[1], d = h->quatern[2], s[3];
    // a squared, from the unit length of a quaternion
    double rest = 1 - (b * b + c * c + d * d);

    if (!isfinite(rest) || rest < -1e-4 || !isfinite(h->offset[0]) ||
        !isfinite(h->offset[1]) || !isfinite(h->offset[2]))
        return fail_data("qform quaternion (%g %g %g) with offset (%g %g %g) "
                         "is not a rotation",
                         b, c, d, h->offset[0], h->offset[1], h->offset[2]);

    if (!spacing_of(h, s)) return false;

    // a half turn: the difference to 1 is rounding
    double a = rest < 1e-7 ? 0 : sqrt(rest);

    if (!isnan(fourth)) {
        const double high = sqrt(fmax(0, rest + SQUARE_ROUNDING));
        const double low =
            rest > SQUARE_ROUNDING ? sqrt(rest - SQUARE_ROUNDING) : -high;
        a = fmax(low, fmin(fourth, high));
    }

    double unit = sqrt(a * a + b * b + c * c + d * d);
    a /= unit, b /= unit, c /= unit, d /= unit;
    double turn[3][3] = {
        {a * a + b * b - c * c - d * d, 2 * (b * c - a * d),
         2 * (b * d + a * c)},
        {2 * (b * c + a * d), a * a + c * c - b * b - d * d,
         2 * (c * d - a * b)},
        {2 * (b * d - a * c), 2 * (c * d + a * b),
         a * a + d * d - b * b - c * c},
    };

    // pixdim[0] is the handedness; 0 means 1, as in the reference
    // implementation
    if (h->pixdim[0] < 0) s[2] = -s[2];
    for (int r = 0; r < 3; r++) {
        for (int k = 0; k < 3; k++) m[r][k] = turn[r][k] * s[k];
        m[r][3] = h->offset[r];
    }
    return true;
}

/* Reads the rows as stored; rows that cannot be inverted are rejected. */
static bool sform_affine(const NiftiHeader *h, double m[4][4])
{
    double unused[4][4];
    memcpy(m, h->srow, sizeof h->srow);
    for (int r = 0; r < 3; r++)
        if (!isfinite(h->srow[r][3]))
            return fail_data("sform has the offset %g", h->srow[r][3]);
    return affine_invert(m, unused) || within("sform");
}

/* Returns the largest distance of the corners of two affines; sets *edge to the
 * shortest edge. */
static double apart(const NiftiHeader *h, double a[4][4], double b[4][4],
                    double *edge)
{
    Dims n = nifti_header_dims(h);
    double worst = 0;
    *edge = INFINITY;
    for (int k = 0; k < 3; k++)
        *edge = fmin(*edge, hypot(hypot(a[0][k], a[1][k]), a[2][k]));

    for (int corner = 0; corner < 8; corner++) {
        double at[4] = {corner & 1 ? n.w - 0.5 : -0.5,
                        corner & 2 ? n.h - 0.5 : -0.5,
                        corner & 4 ? n.d - 0.5 : -0.5, 1};
        double gap[3] = {0};
        for (int r = 0; r < 3; r++)
            for (int k = 0; k < 4; k++) gap[r] += (a[r][k] - b[r][k]) * at[k];
        worst = fmax(worst, hypot(hypot(gap[0], gap[1]), gap[2]));
    }
    return worst;
}

/* Writes "origin (1 2 3), steps (1 0 0) (0 1 0) (0 0 1)", RAS in file units. */
static char *form_text(double m[4][4], char text[160])
{
    snprintf(text, 160,
             "origin (%.5g %.5g %.5g), steps (%.4g %.4g %.4g) "
             "(%.4g %.4g %.4g) (%.4g %.4g %.4g)",
             m[0][3], m[1][3], m[2][3], m[0][0], m[1][0], m[2][0], m[0][1],
             m[1][1], m[2][1], m[0][2], m[1][2], m[2][2]);
    return text;
}

/* Both forms are absent: uses the spacing alone, method 1 of nifti1.h, if that
 * was requested. */
static bool choose_none(NiftiHeader *h, const NiftiOptions *o, double m[4][4])
{
    double s[3];
    if (!o->assume_spacing)
        return fail_data(
            "no orientation: qform_code and sform_code are 0; fix: "
            "assume_spacing = true takes pixdim %g x %g x %g and axes R A S, "
            "which is a guess: left and right may be exchanged",
            h->pixdim[1], h->pixdim[2], h->pixdim[3]);

    if (!spacing_of(h, s)) return false;
    for (int k = 0; k < 3; k++) m[k][k] = s[k];
    nifti_doubt(
        h,
        "qform_code and sform_code are 0: axes R A S and pixdim %g x %g x "
        "%g are assumed (assume_spacing); left and right may be exchanged",
        h->pixdim[1], h->pixdim[2], h->pixdim[3]);
    return true;
}

/* Do the sform a and the qform b agree? *edge: the shortest edge. */
static bool forms_agree(const NiftiHeader *h, double a[4][4], double b[4][4],
                        double *gap, double *edge)
{
    double near[4][4] = {{0}};
    *gap = apart(h, a, b, edge);
    if (*gap <= FORMS_AGREE * *edge) return true;
    return h->version == 1 && qform_affine(h, fourth_of(h, a), near) &&
           apart(h, a, near, edge) <= FORMS_AGREE * *edge;
}

/* Both forms are present, and one of them is preferred: sets m to it, and
 * compares the other one with it. */
static bool choose_first(NiftiHeader *h, bool sform, double m[4][4])
{
    double other[4][4] = {{0}}, edge = 1, gap = 0;
    if (!(sform ? sform_affine(h, m) : qform_affine(h, NAN, m))) return false;
    const bool read =
        sform ? qform_affine(h, NAN, other) : sform_affine(h, other);
    if (read &&
        forms_agree(h, sform ? m : other, sform ? other : m, &gap, &edge))
        return true;
    char left[160], right[160];

    if (read)
        nifti_doubt(
            h,
            "sform and qform differ by %.3g voxels; the %s is taken: %s, "
            "and not %s",
            gap / edge, sform ? "sform" : "qform", form_text(m, left),
            form_text(other, right));
    else
        nifti_doubt(h, "the %s is taken; the %s describes no place",
                    sform ? "sform" : "qform", sform ? "qform" : "sform");
    return true;
}

/* Chooses a form; m in file units and RAS. The assumption of choose_none is
 * used only if both forms are absent. */
static bool choose(NiftiHeader *h, const NiftiOptions *o, double m[4][4])
{
    const bool sform = h->sform > 0, qform = h->qform > 0;
    double other[4][4] = {{0}}, gap, edge;
    if (!sform && !qform) return choose_none(h, o, m);
    const bool sform_first =
        o->form == NIFTI_SFORM || o->form == NIFTI_SFORM_OR_QFORM;
    if (sform && qform && o->form != NIFTI_BOTH) {
        if (o->form == NIFTI_SFORM) return sform_affine(h, m);
        if (o->form == NIFTI_QFORM) return qform_affine(h, NAN, m);
        return choose_first(h, sform_first, m);
    }

    if ((o->form == NIFTI_SFORM && !sform) ||
        (o->form == NIFTI_QFORM && !qform))
        return fail_data("there is no %s (%s_code is 0), but a %s; fix: form = "
                         "\"%s\" takes it",
                         sform ? "qform" : "sform", sform ? "qform" : "sform",
                         sform ? "sform" : "qform",
                         sform ? "qform_or_sform" : "sform_or_qform");

    if (sform && !sform_affine(h, m)) return false;
    if (qform && !qform_affine(h, NAN, sform ? other : m)) return false;

    // writers that set both mean the same; if they differ, one was edited
    if (!sform || !qform || forms_agree(h, m, other, &gap, &edge)) return true;
    char left[160], right[160];
    return fail_data(
        "sform and qform differ by %.3g voxels: sform %s; qform %s; fix: say "
        "which with form = \"sform\" or form = \"qform\" (\"sform_or_qform\" "
        "or \"qform_or_sform\" where other files have only one)",
        gap / edge, form_text(m, left), form_text(other, right));
}

/* Returns the millimetres of the unit of length; 0 for an unknown code. */
static double unit_mm(const NiftiHeader *h)
{
    static const double mm[8] = {1, 1000, 1, 0.001};
    return mm[h->units & 7];
}

/* Converts from the units of the file to mm, and from RAS to LPS by the sign of
 * two rows. */
bool nifti_header_affine(NiftiHeader *h, const NiftiOptions *options,
                         double affine[4][4])
{
    double m[4][4] = {{0}}, unused[4][4];
    double mm = unit_mm(h);
    if (!mm)
        return fail_data("xyzt_units is %d: %d is not a unit of length",
                         h->units, h->units & 7);

    // last row of an affine
    m[3][3] = 1;
    if (!choose(h, options, m)) return false;

    for (int r = 0; r < 3; r++)
        for (int k = 0; k < 4; k++) {
            m[r][k] *= r < 2 ? -mm : mm; // RAS to LPS
            if (!(fabs(m[r][k]) < FARTHEST_MM))
                return fail_data("voxels are %g mm apart or away",
                                 fabs(m[r][k]));
        }

    memcpy(affine, m, sizeof m);
    return affine_invert(m, unused);
}

/* srow holds any affine; the quaternion only a rotation with spacing and one
 * mirror, which is stored as pixdim[0] = -1 and removed from the third
 * column. */
void nifti_header_place(NiftiHeader *h, double affine[4][4])
{
    double s[3], r[3][3], most = 0;
    for (int k = 0; k < 3; k++) {
        s[k] = hypot(hypot(affine[0][k], affine[1][k]), affine[2][k]);
        for (int i = 0; i < 3; i++)
            r[i][k] = (i < 2 ? -affine[i][k] : affine[i][k]) / s[k];
    }

    for (int i = 0; i < 3; i++)
        for (int k = 0; k < 4; k++)
            h->srow[i][k] = i < 2 ? -affine[i][k] : affine[i][k];
    h->sform = 1;
    h->units = 2; // mm

    // -1 for a left-handed set of axes
    double det = r[0][0] * (r[1][1] * r[2][2] - r[1][2] * r[2][1]) -
                 r[0][1] * (r[1][0] * r[2][2] - r[1][2] * r[2][0]) +
                 r[0][2] * (r[1][0] * r[2][1] - r[1][1] * r[2][0]);
    h->pixdim[0] = det < 0 ? -1 : 1;

    for (int k = 0; k < 3; k++) {
        h->pixdim[k + 1] = s[k];
        h->offset[k] = h->srow[k][3];
        if (det < 0) r[k][2] = -r[k][2];
        for (int i = 0; i < k; i++)
            most = fmax(most, fabs(r[0][i] * r[0][k] + r[1][i] * r[1][k] +
                                   r[2][i] * r[2][k]));
    }

    // a quaternion cannot represent shear; then the sform is the only form
    h->qform = most < 1e-6;
    if (!h->qform) return;

    // squares of q[i] from the diagonal; divides by the largest, for stability
    double q[4] = {
        1 + r[0][0] + r[1][1] + r[2][2], 1 + r[0][0] - r[1][1] - r[2][2],
        1 - r[0][0] + r[1][1] - r[2][2], 1 - r[0][0] - r[1][1] + r[2][2]};
    double pair[4][4] = {
        {0, r[2][1] - r[1][2], r[0][2] - r[2][0], r[1][0] - r[0][1]},
        {0, 0, r[0][1] + r[1][0], r[0][2] + r[2][0]},
        {0, 0, 0, r[1][2] + r[2][1]},
    };

    // at least one of the four is 1 or more
    int top = 0;
    for (int i = 1; i < 4; i++)
        if (q[i] > q[top]) top = i;
    double root = 0.5 * sqrt(q[top]);
    for (int i = 0; i < 4; i++)
        q[i] = i == top ? root
                        : (i < top ? pair[i][top] : pair[top][i]) / (4 * root);

    // b, c, d are stored for a >= 0
    for (int i = 0; i < 3; i++) h->quatern[i] = q[0] < 0 ? -q[i + 1] : q[i + 1];
}
