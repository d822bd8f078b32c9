/* stack.c -- checks that slices form one regular stack, and derives its affine.
 * Each check relies on the checks before it: equal attributes, then no two
 * slices at one position, then even spacing, then positions on one line. A gap
 * is never closed and a slice never dropped: either would move every slice
 * after it. */
#include "data/dicom/stack.h"
#include "data/dicom/image_type.h"
#include "data/dicom/same_position.h"
#include "engine/base/file.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// tolerances of equal positions and directions: positions are rounded text
static const double SAME_MM = 1e-3, SAME_COSINE = 1e-3;
// fractions of the spacing and of a voxel, degrees
static const double SPACING_SLACK = 0.01, SHIFT_SLACK = 0.1, TILT_DEG = 0.5;
// Allowed deviation of a slice from the regular grid, as a fraction of the
// spacing. Positions of two decimals are off by up to 0.005 mm, and so are the
// two ends of the grid: 0.01 mm for slices of 0.5 mm, the thinnest of CT and
// MR.
static const double POSITION_TOLERANCE = 0.02;
enum { NAMED = 10, SHOWN = 8 };

double stack_tolerance(const DicomOptions *o)
{
    return o && o->position_tolerance > 0 ? o->position_tolerance
                                          : POSITION_TOLERANCE;
}

void stack_normal(const double o[6], double normal[3])
{
    normal[0] = o[1] * o[5] - o[2] * o[4];
    normal[1] = o[2] * o[3] - o[0] * o[5];
    normal[2] = o[0] * o[4] - o[1] * o[3];
}

double stack_project(const double normal[3], const double p[3])
{
    return normal[0] * p[0] + normal[1] * p[1] + normal[2] * p[2];
}

// the last part of the path, or the frame: messages name the folder or file
// before it
static const char *name(const DicomHeader *h)
{
    return h->name ? h->name : path_tail(h->path);
}

// two directions that differ only by rounding
static bool same_orientation(const double a[6], const double b[6])
{
    for (int i = 0; i < 6; i++)
        if (fabs(a[i] - b[i]) > SAME_COSINE) return false;
    return true;
}

// row 54, naming the first file of each direction
static bool check_orientations(const char *where, const DicomHeader *h,
                               int32_t n)
{
    char list[1024] = "";
    size_t used = 0;
    int32_t kinds = 0;
    // one file for each direction so far
    const DicomHeader *first[NAMED];

    for (int32_t i = 0; i < n; i++) {
        int32_t k = 0;
        while (k < kinds && k < NAMED &&
               !same_orientation(first[k]->orientation, h[i].orientation))
            k++;
        // known, or more than can be named: the message then gives this number
        if (k < kinds || k == NAMED) continue;
        first[kinds++] = &h[i];
        int wrote = snprintf(list + used, sizeof list - used, "%s%s",
                             used ? ", " : "", name(&h[i]));
        if (wrote > 0 && used + (size_t)wrote < sizeof list)
            used += (size_t)wrote;
    }

    if (kinds == 1) return true;
    return dicom_fail(where, TAG_ImageOrientationPatient, NULL,
                      "%d orientations in one series (localizer?): %s", kinds,
                      list);
}

// rows 51, 52, 54, 59, 60 and 61: attributes that must be equal in all slices
static bool check_alike(const char *where, const DicomHeader *h, int32_t n)
{
    int32_t missing = 0;
    for (int32_t i = 0; i < n; i++) {
        if (!h[i].has_orientation) return image_unoriented(&h[i]);
        if (!h[i].has_spacing)
            return dicom_fail(h[i].path, TAG_PixelSpacing,
                              h[i].has_imager_spacing
                                  ? "dcmodify -i \"PixelSpacing=ROWS\\\\COLS\" "
                                    "with the mm in the patient"
                                  : NULL,
                              "PixelSpacing missing, 0, negative or NaN%s",
                              h[i].has_imager_spacing
                                  ? "; ImagerPixelSpacing is that of the "
                                    "detector, not of the patient"
                                  : "");
        missing += !h[i].has_position;
    }

    if (missing)
        return dicom_fail(where, TAG_ImagePositionPatient, NULL,
                          "ImagePositionPatient missing in %d of %d files",
                          missing, n);
    if (!check_orientations(where, h, n)) return false;

    for (int32_t i = 1; i < n; i++) {
        if (h[i].rows != h->rows || h[i].cols != h->cols)
            return dicom_fail(where, TAG_Rows, NULL,
                              "size differs: %s (%d x %d) %s (%d x %d)",
                              name(h), h->rows, h->cols, name(&h[i]), h[i].rows,
                              h[i].cols);
        for (int a = 0; a < 2; a++)
            if (fabs(h[i].spacing_mm[a] - h->spacing_mm[a]) >
                1e-3 * h->spacing_mm[a])
                return dicom_fail(where, TAG_PixelSpacing, NULL,
                                  "PixelSpacing differs: %s (%g\\%g) %s "
                                  "(%g\\%g)",
                                  name(h), h->spacing_mm[0], h->spacing_mm[1],
                                  name(&h[i]), h[i].spacing_mm[0],
                                  h[i].spacing_mm[1]);
    }
    return true;
}

// qsort has no context, so the key is stored with its slice
typedef struct Placed {
    double along_mm;
    DicomHeader header;
} Placed;

// order along the normal, then by name and frame so that slices at equal
// positions keep a fixed order
static int compare_placed(const void *x, const void *y)
{
    const Placed *a = x, *b = y;
    int order = (a->along_mm > b->along_mm) - (a->along_mm < b->along_mm);
    if (!order) order = strcmp(a->header.path, b->header.path);
    return order ? order : a->header.frame - b->header.frame;
}

// order of two doubles, for qsort
static int compare_doubles(const void *x, const void *y)
{
    double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}

// Rows 55 and 65: more than one slice at a position. If all runs of equal
// position have the same length, the series is a time series (row 65);
// otherwise a slice was stored twice (row 55).
static bool check_repeated(const char *where, const Placed *p, int32_t n)
{
    // repeated: index of the first repetition; times: length of the first run;
    // even: all runs have that length
    int32_t repeated = 0, times = 1, run = 1;
    bool even = true;

    for (int32_t i = 1; i <= n; i++) {
        if (i < n && p[i].along_mm - p[i - 1].along_mm < SAME_MM) {
            run++;
            if (!repeated) repeated = i;
            continue;
        }
        // a run that ends at its own length began at 0
        if (i == run) times = run;
        even = even && run == times;
        run = 1;
    }

    if (!repeated) return true;
    bool all = even && times > 1 && times < n;
    // the images at the first position with several
    const DicomHeader *image[SHOWN];
    int32_t count = 0;
    for (int32_t i = repeated - 1; i < n && count < SHOWN; i++) {
        if (i >= repeated && p[i].along_mm - p[i - 1].along_mm >= SAME_MM)
            break;
        image[count++] = &p[i].header;
    }

    char text[REPEAT_TEXT], fix[120];
    const char *first;
    repeat_differences(image, count, text, &first);
    snprintf(fix, sizeof fix,
             "keep the files of one %s in the folder, the others outside of it",
             first);
    const char *differ = *text ? ", which differ in " : "";
    if (all)
        return dicom_fail(where, TAG_ImagePositionPatient,
                          *text ? fix : "keep one of them in the folder",
                          "%d images at every position%s%s", times, differ,
                          text);

    return dicom_fail(where, TAG_ImagePositionPatient,
                      *text ? fix : "keep one of them in the folder",
                      "slices %s and %s at one position (%g mm)%s%s",
                      name(&p[repeated - 1].header), name(&p[repeated].header),
                      p[repeated].along_mm, differ, text);
}

// The number of gaps, from gap `from` on, that are nearly equal.
static int32_t even_run(const double *gap, int32_t n, int32_t from)
{
    double least = gap[from], most = gap[from];
    int32_t i = from + 1;
    for (; i < n; i++) {
        if (gap[i] < least) least = gap[i];
        if (gap[i] > most) most = gap[i];
        // positions may be rounded: a sixth is more than the effect of
        // rounding, and less than the difference of two scanner settings
        if (most - least > least / 6) break;
    }
    return i - from;
}

// Row 185: runs of slices, each with a spacing of its own, without a missing
// slice. A single different gap is no run: there a slice is missing. `least` is
// the smallest gap.
static bool check_runs(const char *where, const Placed *p, int32_t n,
                       const double *gap, double least)
{
    char list[600] = "";
    size_t used = 0;
    int32_t runs = 0;

    for (int32_t i = 0, length; i + 1 < n; i += length) {
        length = even_run(gap, n - 1, i);
        double mm = (p[i + length].along_mm - p[i].along_mm) / length;
        // a whole multiple of the smallest distance may mean regularly missing
        // slices, unless it continues
        double times = mm / least;
        bool whole = times > 1.5 && fabs(times - rint(times)) < 0.05 * times;
        if (length < (whole ? 3 : 2)) return true;
        int wrote =
            snprintf(list + used, sizeof list - used,
                     "%s%d of %.4g mm (%s to %s)", used ? ", " : "", length, mm,
                     name(&p[i].header), name(&p[i + length].header));
        if (wrote > 0 && used + (size_t)wrote < sizeof list)
            used += (size_t)wrote;
        runs++;
    }

    return runs < 2 || runs > NAMED ||
           dicom_fail(where, TAG_ImagePositionPatient,
                      "make a volume of even slices of it, as dcm2niix does "
                      "(_Eq), or keep the files of one run",
                      "%d spacings in one series: %s", runs, list);
}

// rows 56 and 57, and runs of other spacing: neighbours that are too far apart
static bool check_gaps(const char *where, const Placed *p, int32_t n,
                       double *gap, double *sorted)
{
    for (int32_t i = 0; i + 1 < n; i++)
        sorted[i] = gap[i] = p[i + 1].along_mm - p[i].along_mm;
    qsort(sorted, (size_t)n - 1, sizeof *sorted, compare_doubles);
    if (!check_runs(where, p, n, gap, sorted[0])) return false;

    // the upper of the two middle gaps: with two gaps, one of them doubled, the
    // stack is reported as uneven rather than as lacking a slice
    double median = sorted[(n - 1) / 2];

    for (int32_t i = 0; i + 1 < n; i++)
        // a gap of one and a half steps cannot be unevenness of the scanner;
        // the neighbours are named in spatial order, so p is not sorted by gap
        if (gap[i] > 1.5 * median)
            return dicom_fail(where, TAG_ImagePositionPatient,
                              "find the slices; a gap is never filled",
                              "slice missing between %s and %s: gap %g mm, "
                              "median %g mm",
                              name(&p[i].header), name(&p[i + 1].header),
                              gap[i], median);
    return true;
}

// One unit of the last decimal of the positions, in mm: 0.01 for two decimals;
// 0 if they have more than three.
static double last_decimal(const Placed *p, int32_t n)
{
    double unit = 1;
    for (int decimals = 0; decimals <= 3; decimals++, unit /= 10) {
        bool all = true;
        for (int32_t i = 0; i < n && all; i++)
            for (int a = 0; a < 3 && all; a++) {
                double units = p[i].header.position_mm[a] / unit;
                all = fabs(units - rint(units)) < 1e-6 * (1 + fabs(units));
            }
        if (all) return unit;
    }
    return 0;
}

// Row 57: compares every slice with the regular grid through the first and the
// last slice, along the normal. If distances of neighbours differ by more than
// SPACING_SLACK, the grid is used with a note, and out->off_mm is the deviation
// of the slices. `sorted`: the distances.
static bool check_even(const char *where, const Placed *p, int32_t n,
                       const double *sorted, const DicomOptions *o,
                       DicomStack *out, DicomNotes *notes)
{
    double step = (p[n - 1].along_mm - p->along_mm) / (n - 1), most = 0;
    double tolerance = stack_tolerance(o);
    int32_t worst = 0;

    for (int32_t i = 1; i + 1 < n; i++) {
        double off = fabs(p[i].along_mm - p->along_mm - i * step);
        if (off > most) most = off, worst = i;
    }

    // a deviation equal to the tolerance in decimals must not count as larger
    if (most > (tolerance + 1e-9) * step) {
        char fix[160];
        // rounding moves a slice by half a unit, and the two ends as well
        double share = ceil(100 * most / step) / 100;
        bool rounded = share <= MOST_POSITION_TOLERANCE &&
                       most <= (1 + 1e-6) * last_decimal(p, n);
        snprintf(fix, sizeof fix,
                 "position_tolerance = %.2g takes the regular grid, if "
                 "positions were rounded; else split the series",
                 share);
        return dicom_fail(where, TAG_ImagePositionPatient,
                          rounded ? fix : "split the series",
                          "spacing varies %g to %g mm: %s is %.2g mm off the "
                          "regular grid of %.4g mm (%.2g %% of a slice, more "
                          "than %g %%)",
                          sorted[0], sorted[n - 2], name(&p[worst].header),
                          most, step, 100 * most / step, 100 * tolerance);
    }

    if (sorted[n - 2] - sorted[0] <= SPACING_SLACK * step) return true;
    out->off_mm = most;
    return dicom_note(notes, false, where, TAG_ImagePositionPatient,
                      "positions are rounded: up to %.2g mm (%.2g %% of a "
                      "slice) off the regular grid of %.4g mm, which is used",
                      most, 100 * most / step, step);
}

// Row 62, and slices that do not lie on one line. The step is taken from the
// two ends, over which the rounding of positions matters least. Its angle to
// the normal is the tilt of the gantry.
static bool check_line(const char *where, const Placed *p, int32_t n,
                       const double normal[3], const DicomOptions *o,
                       DicomStack *out)
{
    // the third column of the affine is the step itself, tilt included:
    // dicom_load straightens afterwards
    double step[3], edge = p->header.spacing_mm[0], along = 0, whole = 0;
    if (p->header.spacing_mm[1] < edge) edge = p->header.spacing_mm[1];

    for (int a = 0; a < 3; a++) {
        step[a] = (p[n - 1].header.position_mm[a] - p->header.position_mm[a]) /
                  (n - 1);
        along += step[a] * normal[a];
        whole += step[a] * step[a];
        out->grid.affine[a][2] = step[a];
    }

    // oblique positions are rounded within the plane too
    double slack =
        fmax(SHIFT_SLACK * edge, o ? o->position_tolerance * fabs(along) : 0);

    for (int32_t i = 1; i + 1 < n; i++) {
        double shift = 0, off[3], back = 0;
        for (int a = 0; a < 3; a++) {
            // from the expected position of slice i to its actual one
            off[a] = p[i].header.position_mm[a] - p->header.position_mm[a] -
                     i * step[a];
            // the component along the normal was checked by check_even
            back += off[a] * normal[a];
        }
        for (int a = 0; a < 3; a++)
            shift += (off[a] - back * normal[a]) * (off[a] - back * normal[a]);
        if (sqrt(shift) > slack)
            return dicom_fail(where, TAG_ImagePositionPatient, NULL,
                              "slice %s shifted in its plane by %.3g mm "
                              "(> 10 %% of a voxel)",
                              name(&p[i].header), sqrt(shift));
    }

    // squared length of the step within the plane, by Pythagoras
    double side = whole - along * along;
    out->tilt_deg = atan2(sqrt(side > 0 ? side : 0), along) * 57.29577951308232;
    if (out->tilt_deg > TILT_DEG && !(o && o->resample_tilt))
        return dicom_fail(
            where, TAG_ImagePositionPatient, "resample_tilt = true",
            "tilted stack: shear %.2f degrees (> 0.5)", out->tilt_deg);
    return true;
}

// Replaces rounded positions by the regular grid, so that masks, contours and
// written files all lie on it. off_mm becomes the distance in space.
static void snap(DicomHeader *h, int32_t n, DicomStack *out)
{
    double most = 0;
    for (int32_t i = 0; i < n; i++) {
        double far = 0;
        for (int a = 0; a < 3; a++) {
            double at = out->grid.affine[a][3] + i * out->grid.affine[a][2];
            far += (h[i].position_mm[a] - at) * (h[i].position_mm[a] - at);
            h[i].position_mm[a] = at;
        }
        if (far > most) most = far;
    }
    out->off_mm = sqrt(most);
}

// row 68: does the numbering follow the spatial order, forward or backward?
static bool numbered_in_order(const DicomHeader *h, int32_t n)
{
    bool up = true, down = true;
    for (int32_t i = 1; i < n; i++) {
        if (!h[i].has_instance || !h[i - 1].has_instance) return true;
        // equal numbers are neither
        up = up && h[i].instance > h[i - 1].instance;
        down = down && h[i].instance < h[i - 1].instance;
    }
    return up || down;
}

bool stack_order(const char *where, DicomHeader *h, int32_t n,
                 const DicomOptions *options, DicomStack *out,
                 DicomNotes *notes)
{
    CHECK(n >= 1);
    *out = (DicomStack){.grid = {n, h->rows, h->cols, {[3] = {0, 0, 0, 1}}}};
    if (!check_alike(where, h, n)) return false;
    if (n == 1 && options && options->want_3d)
        return dicom_fail(where, 0, NULL, "one slice, recipe needs 3-D");
    double normal[3];

    // all slices have the same normal up to SAME_COSINE: use that of the first
    stack_normal(h->orientation, normal);
    Arena scratch = {0};
    bool ok = false;
    // headers are stored with their key; a few hundred bytes each
    Placed *p = ARENA_NEW(&scratch, Placed, n);
    double *gap = ARENA_NEW(&scratch, double, n);
    double *sorted = ARENA_NEW(&scratch, double, n);
    TRY(p && gap && sorted);
    for (int32_t i = 0; i < n; i++)
        p[i] = (Placed){stack_project(normal, h[i].position_mm), h[i]};
    qsort(p, (size_t)n, sizeof *p, compare_placed);
    for (int32_t i = 0; i < n; i++) h[i] = p[i].header;

    for (int a = 0; a < 3; a++) {
        out->grid.affine[a][0] = h->orientation[a] * h->spacing_mm[1];
        out->grid.affine[a][1] = h->orientation[3 + a] * h->spacing_mm[0];
        // one slice has its SliceThickness; 1 mm if absent
        out->grid.affine[a][2] =
            normal[a] * (h->thickness_mm > 0 ? h->thickness_mm : 1);
        out->grid.affine[a][3] = h->position_mm[a];
    }

    if (n == 1) {
        ok = h->thickness_mm > 0 ||
             dicom_note(notes, true, where, TAG_SliceThickness,
                        "one slice without thickness: 1 mm taken");
        goto done;
    }

    TRY(check_repeated(where, p, n));
    TRY(check_gaps(where, p, n, gap, sorted));
    TRY(check_even(where, p, n, sorted, options, out, notes));
    TRY(check_line(where, p, n, normal, options, out));
    if (out->off_mm > 0) snap(h, n, out);
    double spacing = (p[n - 1].along_mm - p->along_mm) / (n - 1);

    if (h->thickness_mm > 0 &&
        fabs(h->thickness_mm - spacing) > SPACING_SLACK * spacing)
        TRY(dicom_note(notes, true, where, TAG_SliceThickness,
                       "SliceThickness %g differs from spacing %g; spacing "
                       "used",
                       h->thickness_mm, spacing));

    if (!numbered_in_order(h, n))
        TRY(dicom_note(notes, false, where, TAG_InstanceNumber,
                       "InstanceNumber not in spatial order"));
    ok = true;

done:
    arena_release(&scratch);
    return ok;
}
