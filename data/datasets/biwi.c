/* biwi.c -- three small formats: blocks of numbers, and runs of depths. */
#include "data/datasets/biwi.h"
#include "data/format/decimal.h"
#include "data/format/number.h"
#include "engine/base/file.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    TEXT_MAX = 1 << 16,   /* of text; real files have hundreds         */
    DEPTH_MAX = 1 << 28,  /* bytes of a depth file                     */
    PIXELS_MAX = 1 << 24, /* of a picture: a run without depths is 8 bytes */
    EDGE_MAX = 1 << 14,
    BLOCKS_MAX = 5, /* of a text  */
    NUMBERS_MAX = 9 /* of a block */
};
/* Tolerance for unit length and right angles of rows: texts have six digits. */
#define ROTATION_TOLERANCE 1e-3

// -- blocks of numbers --------------------------------------------------------

typedef struct Block {
    int count;
    double number[NUMBERS_MAX];
} Block;

/* Copies the start of a text in printable form for a message. */
static const char *shown(const char *p, const char *end, char text[24])
{
    size_t n = 0;
    while (n < 20 && p + n < end && (unsigned char)p[n] > ' ') {
        text[n] = p[n] <= '~' ? p[n] : '?';
        n++;
    }
    text[n] = 0;
    return text;
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/* Reads the next number at p; returns its length, or 0 with a reason without
 * one. */
static size_t read_number(const char *p, const char *end, int line, double *v)
{
    char got[24];
    size_t used = decimal_read(p, (size_t)(end - p), v);
    if (used && (p + used == end || is_space(p[used])) && isfinite(*v))
        return used;
    fail_data("line %d: \"%s\" is not a finite number", line,
              shown(p, end, got));
    return 0;
}

/* Reads the blocks of a text; *count is their number. Blank lines before the
 * first block, after the last, and repeated ones count as one. */
static bool read_blocks(const char *p, const char *end, Block block[BLOCKS_MAX],
                        int *count)
{
    int line = 1;
    bool apart = true; // a blank line, or the start of the text, is before this
                       // line
    bool blank = true; // this line is empty so far
    *count = 0;
    p = text_begin(p, end);

    while (p < end) {
        if (*p == '\n') {
            apart = blank, blank = true;
            line++;
        }
        if (is_space(*p)) {
            p++;
            continue;
        }
        double v = 0;
        size_t used = read_number(p, end, line, &v);
        if (!used) return false;
        if (blank && apart) {
            if (*count == BLOCKS_MAX)
                return fail_data("line %d: more than %d blocks of numbers",
                                 line, BLOCKS_MAX);
            block[(*count)++].count = 0;
        }
        blank = false;
        Block *b = &block[*count - 1];
        if (b->count == NUMBERS_MAX)
            return fail_data("line %d: more than %d numbers in a block", line,
                             NUMBERS_MAX);
        b->number[b->count++] = v;
        p += used;
    }
    return *count > 0 || fail_data("no numbers in this file");
}

/* Copies a block of `count` numbers. */
static bool take(const Block *b, const char *what, int count, double *out)
{
    if (b->count != count)
        return fail_data("%s has %d numbers, need %d", what, b->count, count);
    memcpy(out, b->number, (size_t)count * sizeof *out);
    return true;
}

/* Copies a block that is a rotation: rows of length 1 at right angles,
 * right-handed. The reason names the worst pair of rows. */
static bool take_rotation(const Block *b, double r[3][3])
{
    int a = 0, c = 0;
    double worst = -1, dot = 0; // any pair is worse than none
    if (!take(b, "rotation", 9, r[0])) return false;

    for (int i = 0; i < 3; i++)
        for (int k = i; k < 3; k++) {
            double d =
                r[i][0] * r[k][0] + r[i][1] * r[k][1] + r[i][2] * r[k][2];
            // not "worst < off": a NaN must be the worst
            if (!(fabs(d - (i == k)) <= worst)) {
                worst = fabs(d - (i == k));
                a = i, c = k, dot = d;
            }
        }

    double det = r[0][0] * (r[1][1] * r[2][2] - r[1][2] * r[2][1]) -
                 r[0][1] * (r[1][0] * r[2][2] - r[1][2] * r[2][0]) +
                 r[0][2] * (r[1][0] * r[2][1] - r[1][1] * r[2][0]);
    return (worst <= ROTATION_TOLERANCE && det > 0) ||
           fail_data("not a rotation: determinant %.4g, need 1; rows %d and "
                     "%d have the dot product %.4g, need %d",
                     det, a + 1, c + 1, dot, a == c);
}

/* Reads a whole file; reasons without the path. */
static bool load(const char *path, size_t limit, Arena *mem, char **data,
                 size_t *bytes)
{
    return file_read(path, limit, mem, data, bytes) || within("biwi");
}

// -- pose ---------------------------------------------------------------------

static bool decode_pose(const char *text, size_t bytes, BiwiPose *out)
{
    Block block[BLOCKS_MAX];
    int count;
    if (!read_blocks(text, text + bytes, block, &count)) return false;
    if (count != 2)
        return fail_data("%d blocks of numbers, need 2: rotation and centre",
                         count);
    return take_rotation(&block[0], out->rotation) &&
           take(&block[1], "centre", 3, out->centre_mm);
}

bool biwi_pose_decode(const char *text, size_t bytes, bool pitch_plus,
                      BiwiPose *out)
{
    const double degrees = 180 / 3.14159265358979323846;
    double(*r)[3] = out->rotation;
    *out = (BiwiPose){.yaw_deg = 0};
    if (!decode_pose(text, bytes, out)) {
        *out = (BiwiPose){.yaw_deg = 0};
        return within("biwi");
    }
    double pitch = degrees * atan2(r[2][1], r[2][2]);
    out->roll_deg = degrees * atan2(r[1][0], r[0][0]);
    out->yaw_deg = degrees * atan2(-r[2][0], hypot(r[2][1], r[2][2]));
    out->pitch_deg = pitch_plus ? pitch : -pitch;
    return true;
}

bool biwi_pose_read(const char *path, bool pitch_plus, BiwiPose *out)
{
    Arena mem = {0};
    char *text = NULL;
    size_t bytes;
    *out = (BiwiPose){.yaw_deg = 0};
    bool ok = load(path, TEXT_MAX, &mem, &text, &bytes) &&
              biwi_pose_decode(text, bytes, pitch_plus, out);
    arena_release(&mem);
    return ok || within("%s", path);
}

// -- camera -------------------------------------------------------------------

/* fx 0 cx, 0 fy cy, 0 0 1; the Kinect has no skew. */
static bool take_intrinsics(const Block *b, double k[3][3])
{
    if (!take(b, "intrinsics", 9, k[0])) return false;
    bool zero = k[0][1] == 0 && k[1][0] == 0 && k[2][0] == 0 && k[2][1] == 0;
    return (zero && k[2][2] == 1 && k[0][0] > 0 && k[1][1] > 0) ||
           fail_data("intrinsics are not fx 0 cx, 0 fy cy, 0 0 1 with fx and "
                     "fy above 0");
}

/* Reads the size of the picture. */
static bool take_size(const Block *b, BiwiCamera *out)
{
    double size[2];
    if (!take(b, "picture size", 2, size)) return false;
    for (int k = 0; k < 2; k++)
        if (size[k] != floor(size[k]) || size[k] < 1 || size[k] > EDGE_MAX)
            return fail_data("picture size %g x %g, need whole numbers from 1 "
                             "to %d",
                             size[0], size[1], EDGE_MAX);
    out->width = (int)size[0];
    out->height = (int)size[1];
    return true;
}

static bool decode_camera(const char *text, size_t bytes, BiwiCamera *out)
{
    Block block[BLOCKS_MAX];
    int count;
    if (!read_blocks(text, text + bytes, block, &count)) return false;
    if (count < 4)
        return fail_data("%d blocks of numbers, need 4 or 5: intrinsics, "
                         "distortion, rotation, translation, size",
                         count);
    int n = out->distortions = block[1].count;
    if (n != 4 && n != 5 && n != BIWI_DISTORTION_MAX)
        return fail_data("distortion has %d numbers, need 4, 5 or %d", n,
                         BIWI_DISTORTION_MAX);
    return take_intrinsics(&block[0], out->intrinsics) &&
           take(&block[1], "distortion", n, out->distortion) &&
           take_rotation(&block[2], out->rotation) &&
           take(&block[3], "translation", 3, out->translation_mm) &&
           (count == 4 || take_size(&block[4], out));
}

bool biwi_camera_decode(const char *text, size_t bytes, BiwiCamera *out)
{
    *out = (BiwiCamera){.width = 0};
    if (decode_camera(text, bytes, out)) return true;
    *out = (BiwiCamera){.width = 0};
    return within("biwi");
}

bool biwi_camera_read(const char *path, BiwiCamera *out)
{
    Arena mem = {0};
    char *text = NULL;
    size_t bytes;
    *out = (BiwiCamera){.width = 0};
    bool ok = load(path, TEXT_MAX, &mem, &text, &bytes) &&
              biwi_camera_decode(text, bytes, out);
    arena_release(&mem);
    return ok || within("%s", path);
}

// -- depth --------------------------------------------------------------------

/* The int32 at byte `at`; its four bytes must lie inside. */
static int32_t int_at(const uint8_t *bytes, size_t at)
{
    return (int32_t)number_u32(bytes + at, false);
}

/* Reads all runs into `pixel`, which is zero. The lengths of a run are checked
 * against the remaining pixels and bytes before use. */
static bool read_runs(const uint8_t *bytes, size_t size, int32_t pixels,
                      int16_t *pixel)
{
    const NumberType depth = {'i', 2, false};
    size_t at = 8;
    int32_t done = 0;

    for (int run = 1; done < pixels; run++) {
        if (size - at < 8)
            return fail_data("file ends inside run %d at byte %zu, %d of %d "
                             "pixels read",
                             run, size, (int)done, (int)pixels);
        int32_t empty = int_at(bytes, at), full = int_at(bytes, at + 4);
        int32_t left = pixels - done;
        if (empty < 0 || full < 0 || empty > left || full > left - empty)
            return fail_data("run %d at byte %zu: %d pixels without and %d "
                             "with depth, %d left",
                             run, at, (int)empty, (int)full, (int)left);
        if (!empty && !full)
            return fail_data("run %d at byte %zu has no pixels", run, at);
        at += 8;
        if ((size_t)full > (size - at) / 2)
            return fail_data("run %d at byte %zu: %d depths, only %zu bytes "
                             "left",
                             run, at - 8, (int)full, size - at);
        number_copy(bytes + at, depth, full, pixel + done + empty);
        at += 2 * (size_t)full;
        done += empty + full;
    }
    return at == size || fail_data("%zu bytes after the last run", size - at);
}

bool biwi_depth_decode(const uint8_t *bytes, size_t size, Volume *v)
{
    *v = (Volume){.unit = UNIT_NONE};
    if (size < 8) {
        fail_data("file ends inside width and height: %zu bytes", size);
        return within("biwi");
    }
    int32_t w = int_at(bytes, 0), h = int_at(bytes, 4);
    if (w < 1 || h < 1 || w > EDGE_MAX || h > EDGE_MAX || w > PIXELS_MAX / h) {
        fail_data("picture of %d x %d pixels, need 1 to %d each, %d together",
                  (int)w, (int)h, EDGE_MAX, PIXELS_MAX);
        return within("biwi");
    }

    if (!volume_new(v, (Dims){1, 1, h, w, 1}, I16)) return false;
    if (read_runs(bytes, size, w * h, v->voxels.data)) return true;
    volume_free(v);
    return within("biwi");
}

bool biwi_depth_read(const char *path, Volume *v)
{
    Arena mem = {0};
    char *bytes = NULL;
    size_t size;
    *v = (Volume){.unit = UNIT_NONE};
    bool ok = load(path, DEPTH_MAX, &mem, &bytes, &size) &&
              biwi_depth_decode((const uint8_t *)bytes, size, v);
    arena_release(&mem);
    return ok || within("%s", path);
}
