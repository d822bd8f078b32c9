/* nifti_header.c -- the fixed part of a NIfTI file.
 *
 * One table names each field once: where it stands in a NIfTI-1 and in a
 * NIfTI-2 header, and as what. Reading, writing and both byte orders walk it.
 * Space follows nifti1.h: method 3 (sform rows), method 2 (quaternion, method
 * names of that file), method 1 (spacing alone) only when asked for. */
#include "nifti_header.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

/* How far the two forms may be apart, in parts of the shortest edge. */
#define FORMS_AGREE 0.01
/* What float32 leaves unknown of the square of a quaternion's fourth number:
 * the rounding of three squares, each below 1. */
#define SQUARE_ROUNDING 4e-7
/* No voxel is a thousand kilometres away; sums of such numbers stay finite. */
#define FARTHEST_MM 1e9

/* the fields that are read; what is not here is neither checked nor kept */
typedef enum Field {
    DIM,
    INTENT,
    DATATYPE,
    BITPIX,
    PIXDIM,
    VOX_OFFSET,
    SLOPE,
    INTER,
    UNITS,
    QFORM,
    SFORM,
    QUATERN,
    OFFSET,
    SROW,
    FIELD_COUNT
} Field;

/* Type letters: c 1 byte, s int16, i int32, l int64, f float, d double. */
static const struct {
    int count;
    struct {
        int at;
        char type;
    } in[2]; /* NIfTI-1, NIfTI-2 */
} fields[FIELD_COUNT] = {
    [DIM] = {8, {{40, 's'}, {16, 'l'}}},
    [INTENT] = {1, {{68, 's'}, {504, 'i'}}},
    [DATATYPE] = {1, {{70, 's'}, {12, 's'}}},
    [BITPIX] = {1, {{72, 's'}, {14, 's'}}},
    [PIXDIM] = {8, {{76, 'f'}, {104, 'd'}}},
    [VOX_OFFSET] = {1, {{108, 'f'}, {168, 'l'}}},
    [SLOPE] = {1, {{112, 'f'}, {176, 'd'}}},
    [INTER] = {1, {{116, 'f'}, {184, 'd'}}},
    [UNITS] = {1, {{123, 'c'}, {500, 'i'}}},
    [QFORM] = {1, {{252, 's'}, {344, 'i'}}},
    [SFORM] = {1, {{254, 's'}, {348, 'i'}}},
    [QUATERN] = {3, {{256, 'f'}, {352, 'd'}}},
    [OFFSET] = {3, {{268, 'f'}, {376, 'd'}}},
    [SROW] = {12, {{280, 'f'}, {400, 'd'}}},
};

static const struct {
    int code, bits;
    const char *name;
    char kind; /* of number.h; 0: refused */
} types[] = {
    {1, 1, "binary", 0},          {2, 8, "uint8", 'u'},
    {4, 16, "int16", 'i'},        {8, 32, "int32", 'i'},
    {16, 32, "float32", 'f'},     {32, 64, "complex64", 0},
    {64, 64, "float64", 'f'},     {128, 24, "RGB24", 0},
    {256, 8, "int8", 'i'},        {512, 16, "uint16", 'u'},
    {768, 32, "uint32", 'u'},     {1024, 64, "int64", 'i'},
    {1280, 64, "uint64", 'u'},    {1536, 128, "float128", 0},
    {1792, 128, "complex128", 0}, {2048, 256, "complex256", 0},
    {2304, 32, "RGBA32", 0},
};

/* Meanings of voxels that are not one quantity per place. */
static const struct {
    int code;
    const char *name;
} intents[] = {
    {1004, "general matrix"},      {1005, "symmetric matrix"},
    {1006, "displacement vector"}, {1007, "vector"},
    {1008, "point set"},           {1009, "triangle"},
    {1010, "quaternion"},          {2003, "RGB vector"},
    {2004, "RGBA vector"},
};

/* Bytes of a field's element, by its type letter. */
static size_t width(char type)
{
    return type == 'c'                  ? 1
           : type == 's'                ? 2
           : type == 'i' || type == 'f' ? 4
                                        : 8;
}

/* The number at p; int64 above 2^53 loses bits, which no limit allows. */
static double load(const uint8_t *p, char type, bool big)
{
    uint8_t b[8] = {0};
    size_t n = width(type);
    for (size_t i = 0; i < n; i++) b[i] = p[big ? n - 1 - i : i];
    int16_t s;
    int32_t w;
    int64_t l;
    float f;
    double d;
    memcpy(&s, b, sizeof s);
    memcpy(&w, b, sizeof w);
    memcpy(&l, b, sizeof l);
    memcpy(&f, b, sizeof f);
    memcpy(&d, b, sizeof d);
    switch (type) {
    case 'c':
        return b[0];
    case 's':
        return s;
    case 'i':
        return w;
    case 'l':
        return (double)l;
    case 'f':
        return (double)f;
    default:
        return d;
    }
}

/* The reverse of load, little endian; integers are cut to the width. */
static void store(uint8_t *p, char type, double v)
{
    int64_t l = type == 'f' || type == 'd' ? 0 : (int64_t)v;
    float f = (float)v;
    switch (type) {
    case 'f':
        memcpy(p, &f, sizeof f);
        break;
    case 'd':
        memcpy(p, &v, sizeof v);
        break;
    default: // the low bytes of a little-endian integer
        memcpy(p, &l, width(type));
    }
}

/* All fields as doubles, SROW row by row; the two directions of one copy. */
typedef double Values[FIELD_COUNT][12];

/* header to table */
static void values_get(const NiftiHeader *h, Values v)
{
    memset(v, 0, sizeof(Values));
    for (int i = 0; i < 8; i++) v[DIM][i] = (double)h->dim[i];
    memcpy(v[PIXDIM], h->pixdim, sizeof h->pixdim);
    memcpy(v[QUATERN], h->quatern, sizeof h->quatern);
    memcpy(v[OFFSET], h->offset, sizeof h->offset);
    memcpy(v[SROW], h->srow, sizeof h->srow);
    *v[INTENT] = h->intent;
    *v[DATATYPE] = h->datatype;
    *v[BITPIX] = h->bitpix;
    *v[VOX_OFFSET] = h->vox_offset;
    *v[SLOPE] = h->slope;
    *v[INTER] = h->inter;
    *v[UNITS] = h->units;
    *v[QFORM] = h->qform;
    *v[SFORM] = h->sform;
}

/* table to header */
static void values_set(NiftiHeader *h, Values v)
{
    // extents beyond any limit stay beyond it, without undefined casts
    for (int i = 0; i < 8; i++)
        h->dim[i] = v[DIM][i] > 9e15    ? INT64_MAX
                    : v[DIM][i] < -9e15 ? INT64_MIN
                                        : (int64_t)v[DIM][i];
    memcpy(h->pixdim, v[PIXDIM], sizeof h->pixdim);
    memcpy(h->quatern, v[QUATERN], sizeof h->quatern);
    memcpy(h->offset, v[OFFSET], sizeof h->offset);
    memcpy(h->srow, v[SROW], sizeof h->srow);
    h->intent = (int)*v[INTENT];
    h->datatype = (int)*v[DATATYPE];
    h->bitpix = (int)*v[BITPIX];
    h->vox_offset = *v[VOX_OFFSET];
    h->slope = *v[SLOPE];
    h->inter = *v[INTER];
    h->units = (int)*v[UNITS];
    h->qform = (int)*v[QFORM];
    h->sform = (int)*v[SFORM];
}

bool nifti_header_begins(const uint8_t *p, size_t count)
{
    for (int big = 0; big < 2 && count >= NIFTI1_BYTES; big++) {
        double size = load(p, 'i', big);
        if (size == NIFTI1_BYTES || size == NIFTI2_BYTES) return true;
    }
    return false;
}

/* Version and byte order, from size and magic. */
static bool identify(const uint8_t *p, size_t count, bool pair, NiftiHeader *h)
{
    static const char *magic[2][2] = {{"n+1", "ni1"}, {"n+2", "ni2"}};
    if (!count) return fail_data("file is empty");
    if (count < NIFTI1_BYTES)
        return fail_data("file ends inside the header: %zu bytes, need %d",
                         count, NIFTI1_BYTES);
    // sizeof_hdr is right in one byte order only
    for (int big = 0; big < 2 && !h->version; big++) {
        double size = load(p, 'i', big);
        h->big = big;
        h->version = size == NIFTI1_BYTES ? 1 : size == NIFTI2_BYTES ? 2 : 0;
    }
    if (!h->version)
        return fail_data("not NIfTI: sizeof_hdr is %.0f, need %d or %d",
                         load(p, 'i', false), NIFTI1_BYTES, NIFTI2_BYTES);
    if (h->version == 2 && count < NIFTI2_BYTES)
        return fail_data("file ends inside the header: %zu bytes, need %d",
                         count, NIFTI2_BYTES);
    // the magic stands at the end of a NIfTI-1 header, at the start of a
    // NIfTI-2
    const uint8_t *m = p + (h->version == 1 ? 344 : 4);
    if (h->version == 1 && !memcmp(m, "\0\0\0", 4))
        return fail_data("an Analyze 7.5 header, which has no orientation; "
                         "fix: convert it to NIfTI with the tool that knows "
                         "how it was made");
    if (!memcmp(m, magic[h->version - 1][!pair], 4))
        return fail_data(pair ? "header of a single file in a pair; fix: name "
                                "it .nii"
                              : "header of a pair in a single file; fix: "
                                "name it .hdr, with its .img beside it");
    bool same = !memcmp(m, magic[h->version - 1][pair], 4);
    // NIfTI-2 goes on with bytes that a text-mode copy would have changed
    if (same && h->version == 2) same = !memcmp(m + 4, "\r\n\032\n", 4);
    if (!same)
        return fail_data("not NIfTI: magic is %02x %02x %02x %02x", m[0], m[1],
                         m[2], m[3]);
    return true;
}

/* Axes beyond the third must be single: whether several volumes in one file are
 * channels or times, and which one is meant, is not for a reader to guess. */
static bool check_dims(const NiftiHeader *h, const NiftiOptions *o)
{
    if (h->dim[0] < 1 || h->dim[0] > 7)
        return fail_data("dim[0] is %lld, need 1 to 7 axes",
                         (long long)h->dim[0]);
    for (int i = 1; i <= h->dim[0]; i++)
        if (h->dim[i] < 1 || h->dim[i] > INT32_MAX)
            return fail_data("dim[%d] is %lld, need 1 to %d", i,
                             (long long)h->dim[i], INT32_MAX);
    for (size_t i = 0; i < sizeof intents / sizeof *intents; i++)
        if (h->intent == intents[i].code)
            return fail_data("intent code %d, voxels are a %s; need one "
                             "number a voxel",
                             h->intent, intents[i].name);
    for (int i = o->channels && !o->label ? 5 : 4; i <= h->dim[0]; i++)
        if (h->dim[i] > 1)
            return fail_data("dim[%d] is %lld: several volumes in one file, "
                             "need one; fix: %ssplit it, for example with "
                             "nifti_tool -copy_brick_list",
                             i, (long long)h->dim[i],
                             i > 4 || o->label ? ""
                                               : "channels = true when they "
                                                 "are channels of an image, "
                                                 "else ");
    return true;
}

/* bitpix says the same again; where it does not, one of the two is damaged. */
static bool check_type(const NiftiHeader *h, NumberType *type)
{
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (types[i].code != h->datatype) continue;
        if (!types[i].kind)
            return fail_data("voxels are %s, need integers of 8 to 64 bits, "
                             "float32 or float64",
                             types[i].name);
        if (types[i].bits != h->bitpix)
            return fail_data("datatype %s has %d bits, bitpix says %d",
                             types[i].name, types[i].bits, h->bitpix);
        *type = (NumberType){types[i].kind, types[i].bits / 8, h->big};
        return true;
    }
    return fail_data("datatype %d is not known", h->datatype);
}

/* All fields become doubles in a table first, so that every check below is
 * on one kind of number. */
bool nifti_header_parse(const uint8_t *bytes, size_t count, bool pair,
                        const NiftiOptions *o, NiftiHeader *h, NumberType *type)
{
    Values v = {{0}};
    *h = (NiftiHeader){0};
    if (!identify(bytes, count, pair, h)) return false;
    for (int f = 0; f < FIELD_COUNT; f++) {
        int at = fields[f].in[h->version - 1].at;
        char t = fields[f].in[h->version - 1].type;
        for (int i = 0; i < fields[f].count; i++)
            v[f][i] = load(bytes + at + (size_t)i * width(t), t, h->big);
    }
    values_set(h, v);
    if (!check_dims(h, o) || !check_type(h, type)) return false;
    int least = pair              ? 0
                : h->version == 1 ? NIFTI1_BYTES + NIFTI_EXTENDER
                                  : NIFTI2_BYTES + NIFTI_EXTENDER;
    // 2^53: beyond it the number in a double is no longer the one stored
    if (!(h->vox_offset >= least && h->vox_offset < 9e15) ||
        h->vox_offset != floor(h->vox_offset))
        return fail_data("vox_offset is %g, need a whole number from %d",
                         h->vox_offset, least);
    if (!isfinite(h->slope) || !isfinite(h->inter))
        return fail_data("scl_slope is %g and scl_inter %g, need finite "
                         "numbers",
                         h->slope, h->inter);
    for (int i = 0; i < 4; i++)
        if (!isfinite(h->pixdim[i]))
            return fail_data("pixdim[%d] is %g", i, h->pixdim[i]);
    return true;
}

Dims nifti_header_dims(const NiftiHeader *h)
{
    int32_t n[4];
    for (int i = 0; i < 4; i++)
        n[i] = i < h->dim[0] ? (int32_t)h->dim[i + 1] : 1;
    return (Dims){1, n[2], n[1], n[0], n[3]};
}

/* Spacing along each axis; an axis with one voxel may leave it at 0. */
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

/* The fourth number of the quaternion, a, from the rotation in these columns,
 * by its largest one: 4 a d = R10 - R01, and so on. */
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
        // the mirror that pixdim[0] stands for
        if (column == 2 && h->pixdim[0] < 0) turn[n] = -turn[n];
    }
    return (turn[0] - turn[1]) / (4 * q[top]);
}

/* Method 2 of nifti1.h, in file units and RAS. The file has three numbers of
 * the quaternion, and the fourth is what they leave of 1: of a NIfTI-1 near
 * half a turn, as axial slices of DICOM are in RAS, mostly rounding. `fourth`,
 * unless NaN, is taken as far as that rounding allows it. */
static bool qform_affine(const NiftiHeader *h, double fourth, double m[4][4])
{
    double b = h->quatern[0], c = h->quatern[1], d = h->quatern[2], s[3];
    // a squared, by the unit length of a quaternion
    double rest = 1 - (b * b + c * c + d * d);
    if (!isfinite(rest) || rest < -1e-4 || !isfinite(h->offset[0]) ||
        !isfinite(h->offset[1]) || !isfinite(h->offset[2]))
        return fail_data("qform quaternion (%g %g %g) with offset (%g %g %g) "
                         "is not a rotation",
                         b, c, d, h->offset[0], h->offset[1], h->offset[2]);
    if (!spacing_of(h, s)) return false;
    // half a turn: what is left of 1 is rounding
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
    // pixdim[0] is the handedness; 0 means 1, as in the reference reader
    if (h->pixdim[0] < 0) s[2] = -s[2];
    for (int r = 0; r < 3; r++) {
        for (int k = 0; k < 3; k++) m[r][k] = turn[r][k] * s[k];
        m[r][3] = h->offset[r];
    }
    return true;
}

/* Rows as stored; a form that cannot be inverted is no place in space. */
static bool sform_affine(const NiftiHeader *h, double m[4][4])
{
    double unused[4][4];
    memcpy(m, h->srow, sizeof h->srow);
    for (int r = 0; r < 3; r++)
        if (!isfinite(h->srow[r][3]))
            return fail_data("sform has the offset %g", h->srow[r][3]);
    return affine_invert(m, unused) || within("sform");
}

/* Largest distance of the corners of two affines, and the shortest edge. */
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

/* "origin (1 2 3), steps (1 0 0) (0 1 0) (0 0 1)", RAS in file units. */
static char *form_text(double m[4][4], char text[160])
{
    snprintf(text, 160,
             "origin (%.5g %.5g %.5g), steps (%.4g %.4g %.4g) "
             "(%.4g %.4g %.4g) (%.4g %.4g %.4g)",
             m[0][3], m[1][3], m[2][3], m[0][0], m[1][0], m[2][0], m[0][1],
             m[1][1], m[2][1], m[0][2], m[1][2], m[2][2]);
    return text;
}

/* Choose a form; m in file units and RAS. */
static bool choose(const NiftiHeader *h, const NiftiOptions *o, double m[4][4])
{
    bool sform = h->sform > 0 && o->form != NIFTI_QFORM;
    bool qform = h->qform > 0 && o->form != NIFTI_SFORM;
    double other[4][4] = {{0}}, edge, s[3];
    if (sform && !sform_affine(h, m)) return false;
    if (qform && !qform_affine(h, NAN, sform ? other : m)) return false;
    // writers that set both mean the same; when not, one was edited
    if (sform && qform) {
        double gap = apart(h, m, other, &edge);
        if (gap <= FORMS_AGREE * edge) return true;
        double near[4][4] = {{0}};
        if (h->version == 1 && qform_affine(h, fourth_of(h, m), near) &&
            apart(h, m, near, &edge) <= FORMS_AGREE * edge)
            return true;
        char left[160], right[160];
        return fail_data("sform and qform differ by %.3g voxels: sform %s; "
                         "qform %s; fix: say which with form = \"sform\" or "
                         "form = \"qform\"",
                         gap / edge, form_text(m, left),
                         form_text(other, right));
    }
    if (sform || qform) return true;
    if (!o->assume_spacing)
        return fail_data("no orientation: %s%s; fix: assume_spacing = true "
                         "takes pixdim %g x %g x %g and axes R A S",
                         o->form == NIFTI_QFORM   ? "qform_code is 0"
                         : o->form == NIFTI_SFORM ? "sform_code is 0"
                                                  : "qform_code and ",
                         o->form == NIFTI_BOTH ? "sform_code are 0" : "",
                         h->pixdim[1], h->pixdim[2], h->pixdim[3]);
    if (!spacing_of(h, s)) return false;
    for (int k = 0; k < 3; k++) m[k][k] = s[k];
    return true;
}

/* Millimetres of one unit of length; 0 when the code is not one. */
static double unit_mm(const NiftiHeader *h)
{
    static const double mm[8] = {1, 1000, 1, 0.001};
    return mm[h->units & 7];
}

/* From the units of the file to mm, and from RAS to LPS by the sign of two
 * rows. */
bool nifti_header_affine(const NiftiHeader *h, const NiftiOptions *options,
                         double affine[4][4])
{
    double m[4][4] = {{0}}, unused[4][4];
    double mm = unit_mm(h);
    if (!mm)
        return fail_data("xyzt_units is %d: %d is no unit of length", h->units,
                         h->units & 7);
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
 * mirror, which pixdim[0] = -1 says and which is taken out of the third
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
    // a quaternion cannot say a shear; without one the sform stands alone
    h->qform = most < 1e-6;
    if (!h->qform) return;
    // q[i] squared from the diagonal; divide by the largest, the stable one
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

/* The magic numbers are offsets of nifti1.h and nifti2.h for what no reader
 * needs from us: regular, descrip, magic. */
size_t nifti_header_bytes(const NiftiHeader *h,
                          uint8_t bytes[NIFTI2_BYTES + NIFTI_EXTENDER])
{
    Values v;
    bool second = h->version == 2;
    memset(bytes, 0, NIFTI2_BYTES + NIFTI_EXTENDER);
    values_get(h, v);
    for (int f = 0; f < FIELD_COUNT; f++) {
        int at = fields[f].in[second].at;
        char t = fields[f].in[second].type;
        for (int i = 0; i < fields[f].count; i++)
            store(bytes + at + (size_t)i * width(t), t, v[f][i]);
    }
    store(bytes, 'i', second ? NIFTI2_BYTES : NIFTI1_BYTES);
    if (!second) bytes[38] = 'r'; // "regular", which some readers still want
    memcpy(bytes + (second ? 240 : 148), "segengine", 9); // descrip
    memcpy(bytes + (second ? 4 : 344), second ? "n+2\0\r\n\032\n" : "n+1",
           second ? 8 : 4);
    return (second ? NIFTI2_BYTES : NIFTI1_BYTES) + NIFTI_EXTENDER;
}
