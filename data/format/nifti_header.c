/* nifti_header.c -- the fixed part of a NIfTI file.
 *
 * One table lists each field once, with its offset and type in a NIfTI-1 and in
 * a NIfTI-2 header. Reading, writing and both byte orders use it. The position
 * of the voxels is handled in nifti_space.c. */
#include "data/format/nifti_header.h"
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* the fields that are read; others are neither checked nor kept */
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
    char kind; /* of number.h; 0: rejected */
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

/* Intents of voxels that are not one quantity per position. */
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

/* Returns the bytes of a field's element, by its type letter. */
static size_t width(char type)
{
    return type == 'c'                  ? 1
           : type == 's'                ? 2
           : type == 'i' || type == 'f' ? 4
                                        : 8;
}

/* Reads the number at p; int64 above 2^53 loses bits, but exceeds every
 * limit. */
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

/* The inverse of load, little endian; integers are truncated to the width. */
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

/* All fields as doubles, SROW row by row; for copies in both directions. */
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
    // clamps extents beyond any limit, as the cast would be undefined
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

/* Determines version and byte order from size and magic. */
static bool identify(const uint8_t *p, size_t count, bool pair, NiftiHeader *h)
{
    static const char *magic[2][2] = {{"n+1", "ni1"}, {"n+2", "ni2"}};
    if (!count) return fail_data("file is empty");
    if (count < NIFTI1_BYTES)
        return fail_data("file ends inside the header: %zu bytes, need %d",
                         count, NIFTI1_BYTES);

    // sizeof_hdr is correct in one byte order only
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

    // the magic is at the end of a NIfTI-1 header, at the start of a NIfTI-2
    // header
    const uint8_t *m = p + (h->version == 1 ? 344 : 4);
    if (h->version == 1 && !memcmp(m, "\0\0\0", 4))
        return fail_data("an Analyze 7.5 header, which has no orientation; "
                         "fix: convert it to NIfTI with the tool that knows "
                         "how it was made");
    if (!memcmp(m, magic[h->version - 1][!pair], 4))
        return fail_data(pair ? "header of a single file in a pair; fix: name "
                                "it .nii"
                              : "header of a pair in a single file; fix: name "
                                "it .hdr, with its .img next to it");

    bool same = !memcmp(m, magic[h->version - 1][pair], 4);

    // NIfTI-2 continues with bytes that a text-mode copy changes
    if (same && h->version == 2) same = !memcmp(m + 4, "\r\n\032\n", 4);
    if (!same)
        return fail_data("not NIfTI: magic is %02x %02x %02x %02x", m[0], m[1],
                         m[2], m[3]);
    return true;
}

/* Extents beyond the third axis must be 1: the header does not say if several
 * volumes in one file are channels or time points, nor which one is meant. */
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

/* bitpix repeats the size of the type; if they differ, one is damaged. */
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

void nifti_doubt(NiftiHeader *h, const char *format, ...)
{
    const size_t used = strlen(h->doubt);
    va_list ap;
    va_start(ap, format);
    int n = snprintf(h->doubt + used, sizeof h->doubt - used, "%s",
                     used ? "; " : "");
    if (n >= 0 && used + (size_t)n < sizeof h->doubt)
        vsnprintf(h->doubt + used + n, sizeof h->doubt - used - (size_t)n,
                  format, ap);
    va_end(ap);
}

/* Replaces a slope and an intercept that are not finite by 0, as nifti_clib
 * does (FIXED_FLOAT of nifti1_io.c): a slope of 0 means that no scaling is
 * stored. */
static void settle_scale(NiftiHeader *h)
{
    if (!isfinite(h->slope)) h->slope = 0;
    if (isfinite(h->inter)) return;
    if (h->slope != 0)
        nifti_doubt(h, "scl_slope is %g and scl_inter %g, which is taken as 0",
                    h->slope, h->inter);
    h->inter = 0;
}

/* Converts all fields to doubles in a table first, so that every check below
 * handles one type of number. */
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

    // above 2^53 a double may differ from the stored number
    if (!(h->vox_offset >= least && h->vox_offset < 9e15) ||
        h->vox_offset != floor(h->vox_offset))
        return fail_data("vox_offset is %g, need a whole number from %d",
                         h->vox_offset, least);
    settle_scale(h);
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

/* The constants are offsets of nifti1.h and nifti2.h for fields that are not in
 * the table: regular, descrip, magic. */
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
    if (!second) bytes[38] = 'r'; // "regular", which some readers still require
    memcpy(bytes + (second ? 240 : 148), "segengine", 9); // descrip
    memcpy(bytes + (second ? 4 : 344), second ? "n+2\0\r\n\032\n" : "n+1",
           second ? 8 : 4);
    return (second ? NIFTI2_BYTES : NIFTI1_BYTES) + NIFTI_EXTENDER;
}
