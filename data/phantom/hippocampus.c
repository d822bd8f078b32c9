/* hippocampus.c -- a synthetic hippocampus and the tissue around it.
 *
 * The tissue of a voxel is that at its centre; a small blur models partial
 * volume, followed by the gradient of the coil, noise, and the scale of the
 * scanner. Points are in mm from the middle of the volume: x to the side of the
 * head with this hippocampus, y to the front, z up. */
#include "data/phantom/hippocampus.h"
#include "data/format/nifti.h"
#include "engine/base/err.h"
#include "engine/base/file.h"
#include "engine/base/rng.h"
#include <stdio.h>
#include <string.h>

// positions in the phantom's stream, distinct from the heads (20, 21)
enum { DRAW_SHAPE = 30, DRAW_LATTICE = 31, DRAW_VOXEL = 32 };
enum { KNOTS = 33, LATTICE = 8, PATH_TEXT = 4096, STORED_MAX = 255 };

typedef struct Shape {
    int extent[3];           /* w, h, d                                      */
    float curve[KNOTS][3];   /* from tail to head                            */
    float radius[KNOTS];     /* half the height; the width is this times
                              * `flat` */
    float flat, part;        /* `part`: boundary of the parts, as a fraction of
                              * the curve */
    float amygdala[4], horn; /* middle and radius; width of the fluid */
    float coil[3], scale;
    float lattice[LATTICE][LATTICE][LATTICE]; /* smooth noise, periodic */
    bool right;
} Shape;

static float mix(float a, float b, float t)
{
    return a + (b - a) * t;
}

// Each number has its own draw: adding one does not change the others.
static void draw(const Phantom *how, int patient, Shape *s)
{
    Rng r = {.seed = how->seed,
             .stream = RNG_PHANTOM,
             .op = DRAW_SHAPE,
             .sample = (uint32_t)patient};
    s->extent[0] = 31 + (int)rng_below(&r, 0, 13);
    s->extent[1] = 42 + (int)rng_below(&r, 1, 17);
    s->extent[2] = 28 + (int)rng_below(&r, 2, 17);
    s->right = patient % 2;

    // the length follows the extents, as the original volumes are cropped
    // around it
    float front = 0.35f * (float)s->extent[1], up = 0.27f * (float)s->extent[2];
    float bow = rng_range(&r, 3, 2, 5), sag = rng_range(&r, 4, -2, 2);
    float thick = rng_range(&r, 5, 0.85f, 1.15f), yaw = rng_range(&r, 6, -3, 3);

    for (int i = 0; i < KNOTS; i++) {
        float t = (float)i / (KNOTS - 1), arc = 4 * t * (1 - t);
        s->curve[i][0] = bow * (arc - 0.5f) + yaw * (2 * t - 1);
        s->curve[i][1] = front * (2 * t - 1);
        s->curve[i][2] = up * (1 - 2 * t) + sag * arc;
        // a slender tail, a body, then the head, rounded at both ends
        float wide = t < 0.6f ? mix(3.4f, 4.6f, t / 0.6f)
                              : mix(4.6f, 5.8f, (t - 0.6f) / 0.4f);
        float end = fminf(1, sqrtf(fmaxf(0, 1 - powf(2 * t - 1, 10))) + 0.3f);
        s->radius[i] = thick * wide * end;
    }

    s->flat = rng_range(&r, 7, 1.2f, 1.5f);
    s->part = rng_range(&r, 8, 0.5f, 0.58f);
    s->amygdala[0] = s->curve[KNOTS - 1][0] + rng_range(&r, 9, -2, 2);
    s->amygdala[1] = front + rng_range(&r, 10, 1, 3);
    s->amygdala[2] = s->curve[KNOTS - 1][2] + rng_range(&r, 11, 7, 9);
    s->amygdala[3] = rng_range(&r, 12, 4.5f, 6);
    s->horn = rng_range(&r, 13, 0.8f, 2);
    for (uint32_t a = 0; a < 3; a++)
        s->coil[a] = rng_range(&r, 14 + a, -0.12f, 0.12f);
    s->scale = 255 * powf(10, rng_range(&r, 17, 0, 3.6f));
    r.op = DRAW_LATTICE;
    for (uint32_t i = 0; i < LATTICE * LATTICE * LATTICE; i++)
        (&s->lattice[0][0][0])[i] = rng_range(&r, i, -1, 1);
}

// smooth noise -1 .. 1 with features of `mm`
static float cloud(const Shape *s, const float p[3], float mm)
{
    int at[3];
    float f[3], sum = 0;
    for (int a = 0; a < 3; a++) {
        float x = p[a] / mm + 100;
        at[a] = (int)x, f[a] = x - floorf(x);
        f[a] = f[a] * f[a] * (3 - 2 * f[a]);
    }

    for (int i = 0; i < 8; i++) {
        float weight = 1;
        int n[3];
        for (int a = 0; a < 3; a++) {
            int one = i >> a & 1;
            weight *= one ? f[a] : 1 - f[a];
            n[a] = (at[a] + one) % LATTICE;
        }
        sum += weight * s->lattice[n[0]][n[1]][n[2]];
    }
    return sum;
}

/* Distance from p to the nearest point of the curve, relative to its radius:
 * below 1 is inside. *t: that point, 0 .. 1. */
static float inside(const Shape *s, const float p[3], float *t)
{
    float best = 1e9f;
    for (int i = 0; i < KNOTS; i++) {
        float x = (p[0] - s->curve[i][0]) / s->flat, y = p[1] - s->curve[i][1];
        float z = p[2] - s->curve[i][2], r = s->radius[i];
        float d = (x * x + y * y + z * z) / (r * r);
        if (d < best) best = d, *t = (float)i / (KNOTS - 1);
    }
    return sqrtf(best);
}

/* Brightness 0 .. 1 at p, and its label. */
static float tissue(const Shape *s, const float p[3], uint8_t *label)
{
    const float gray = 0.55f, white = 0.85f, fluid = 0.15f;
    float t = 0, d = inside(s, p, &t) * (1 + 0.06f * cloud(s, p, 5));
    *label = 0;
    if (d < 1) {
        *label = t > s->part ? HIPPOCAMPUS_ANTERIOR : HIPPOCAMPUS_POSTERIOR;
        // faintly visible layers
        return gray + 0.05f * cloud(s, p, 3);
    }

    float far = 0;
    for (int a = 0; a < 3; a++)
        far += (p[a] - s->amygdala[a]) * (p[a] - s->amygdala[a]);
    if (far < s->amygdala[3] * s->amygdala[3]) return gray;

    // the horn lies on the superior lateral side of body and head
    float side = p[0] - s->curve[(int)(t * (KNOTS - 1))][0];
    if (d < 1 + s->horn / 4 && side > 0 && t > 0.3f) return fluid;

    // below are folds of cortex, alternating gray and fluid; else white matter
    float fold = cloud(s, p, 6) + 0.08f * (-p[2] - 8);
    return fold > 0.55f ? fluid : fold > 0.1f ? gray : white;
}

// Blurs each voxel with both neighbours along an axis, `step` elements apart.
static void blur(float *v, int n, int64_t step)
{
    float before = v[0];
    for (int i = 0; i < n; i++) {
        float here = v[i * step];
        float after = i + 1 < n ? v[(i + 1) * step] : here;
        v[i * step] = 0.2f * before + 0.6f * here + 0.2f * after;
        before = here;
    }
}

static void blur_volume(float *v, const int n[3])
{
    int64_t row = n[0], plane = row * n[1];
    for (int d = 0; d < n[2]; d++) {
        for (int h = 0; h < n[1]; h++) blur(v + d * plane + h * row, n[0], 1);
        for (int w = 0; w < n[0]; w++) blur(v + d * plane + w, n[1], row);
    }
    for (int64_t i = 0; i < plane; i++) blur(v + i, n[2], plane);
}

// stored value of brightness v, at x, y, z of -1 .. 1
static float stored(const Phantom *how, const Shape *s, const Rng *r,
                    int64_t voxel, float v, const float at[3])
{
    float gain = 1, pair[2];
    for (int a = 0; a < 3; a++) gain += s->coil[a] * at[a];
    rng_normal_pair(r, (uint32_t)voxel, pair);
    float sigma = (float)how->noise;
    // magnitude of a complex signal: Rician noise, never negative
    float re = v * gain + sigma * pair[0], im = sigma * pair[1];
    return sqrtf(re * re + im * im) * s->scale;
}

static void fill(const Phantom *how, int patient, const Shape *s, float *image,
                 uint8_t *labels)
{
    Rng r = {.seed = how->seed,
             .stream = RNG_PHANTOM,
             .op = DRAW_VOXEL,
             .sample = (uint32_t)patient};
    const int *n = s->extent;
    int64_t count = (int64_t)n[0] * n[1] * n[2];

    for (int pass = 0; pass < 2; pass++) {
        for (int64_t i = 0; i < count; i++) {
            int64_t at[3] = {i % n[0], i / n[0] % n[1], i / n[0] / n[1]};
            float p[3], unit[3];
            for (int a = 0; a < 3; a++) {
                p[a] = (float)at[a] - 0.5f * (float)(n[a] - 1);
                unit[a] = 2 * p[a] / (float)n[a];
            }
            // indices increase to the right of the head, p to the lateral side
            if (!s->right) p[0] = -p[0];
            if (!pass)
                image[i] = tissue(s, p, &labels[i]);
            else
                image[i] = stored(how, s, &r, i, image[i], unit);
        }
        if (!pass) blur_volume(image, n);
    }
}

bool hippocampus_make(const Phantom *how, int patient, Volume *image,
                      Volume *labels)
{
    Shape s;
    *image = *labels = (Volume){0};
    if (!phantom_check(how)) return false;
    CHECK(patient >= 0 && patient < how->number[0]);
    draw(how, patient, &s);
    Dims dim = {1, s.extent[2], s.extent[1], s.extent[0], 1};
    if (!volume_new(image, dim, F32) || !volume_new(labels, dim, U8)) {
        volume_free(image);
        volume_free(labels);
        return within("phantom, patient %d", patient + 1);
    }

    labels->unit = UNIT_LABEL;
    fill(how, patient, &s, image->voxels.data, labels->voxels.data);

    // RAS axes of 1 mm in LPS, about 27 mm from the middle of the head
    const double middle[3] = {s.right ? -27 : 27, 20, -15};
    for (int a = 0; a < 3; a++) {
        double to = a < 2 ? -1 : 1;
        image->affine[a][a] = to;
        image->affine[a][3] = middle[a] - to * 0.5 * (s.extent[a] - 1);
    }

    memcpy(labels->affine, image->affine, sizeof image->affine);
    return true;
}

/* -- files ---------------------------------------------------------------- */

// v, from 0 up, as whole numbers 0 .. 255
static bool to_bytes(const Volume *v, Volume *out)
{
    if (!volume_new(out, v->voxels.dim, U8)) return false;
    memcpy(out->affine, v->affine, sizeof v->affine);
    const float *x = v->voxels.data;
    uint8_t *y = out->voxels.data;
    int64_t n = numel(v->voxels.dim);
    float top = 0;
    for (int64_t i = 0; i < n; i++) top = fmaxf(top, x[i]);
    for (int64_t i = 0; i < n; i++)
        y[i] = (uint8_t)floorf(x[i] / top * STORED_MAX + 0.5f);
    return true;
}

// folder/room/hippocampus_001.nii.gz; the first thread to need `room` makes it
static bool write_one(const char *folder, const char *room, int patient,
                      const Volume *v)
{
    char path[PATH_TEXT];
    snprintf(path, sizeof path, "%s/%s", folder, room);
    if (!file_mkdirs(path)) return false;
    snprintf(path, sizeof path, "%s/%s/hippocampus_%03d.nii.gz", folder, room,
             patient + 1);
    return nifti_write(path, v, NULL);
}

bool hippocampus_write(const char *folder, const Phantom *how, int patient)
{
    Volume image, labels, other = {0};
    if (!hippocampus_make(how, patient, &image, &labels)) return false;
    bool small = patient % 3 == 2, floats = patient % 8 == 7;
    bool ok = !small || to_bytes(&image, &other);
    ok = ok && write_one(folder, "imagesTr", patient, small ? &other : &image);
    volume_free(&other);
    ok = ok && (!floats || volume_to_f32(&labels, &other));
    ok =
        ok && write_one(folder, "labelsTr", patient, floats ? &other : &labels);
    volume_free(&other);
    volume_free(&image);
    volume_free(&labels);
    return ok;
}
