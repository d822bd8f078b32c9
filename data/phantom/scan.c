/* scan.c -- simulates the scan of a head: grid, coil, blur, noise.
 *
 * head.c gives the tissue at the centre of each voxel, which defines the mask.
 * The image is computed from it with partial volume (a small blur in the
 * plane), coil inhomogeneity and Rician noise, as whole numbers of 12 bits. */
#include "data/phantom/scan.h"
#include "data/phantom/head.h"
#include <math.h>
#include <stdio.h>

// positions in the phantom's stream, distinct from head.c
enum { DRAW_SCAN = 20, DRAW_NOISE = 21 };

enum { STORED_MAX = 4095 };

/* Scan parameters of one patient. */
typedef struct Scan {
    float field_mm, low_mm, high_mm; /* in the plane; along the head */
    float oblique;                   /* radians about the left-right axis */
    float scale;                     /* stored value of brightness 1 */
    float coil[6];                   /* linear and quadratic terms */
    float sigma;
} Scan;

// Each number has its own draw: adding one changes neither the others nor data
// sets that were made before.
static Scan draw_scan(const Phantom *how, HeadContrast contrast, int patient)
{
    Rng r = {.seed = how->seed,
             .stream = RNG_PHANTOM,
             .op = DRAW_SCAN,
             .sample = (uint32_t)patient};
    Scan s = {.field_mm = rng_range(&r, 0, 222, 246),
              .low_mm = -62,
              .high_mm = 77 + rng_range(&r, 1, -3, 3),
              .scale = rng_range(&r, 2, 600, 2400),
              .sigma = (float)how->noise * rng_range(&r, 3, 0.7f, 1.3f)};
    for (uint32_t i = 0; i < 6; i++)
        s.coil[i] = rng_range(&r, 4 + i, -0.16f, 0.16f);

    // every fourth is tilted about the left-right axis
    if (contrast == HEAD_FLAIR && patient % 4 == 3)
        s.oblique = rng_range(&r, 10, 0.05f, 0.16f);
    return s;
}

/* Sets the grid of the scan: axial slices from below. Columns and rows run to
 * left and back (DICOM), or to left or right and front (NFBS). */
static void place_grid(const Phantom *how, HeadContrast contrast, int patient,
                       const Scan *s, Volume *v)
{
    double mm = (double)s->field_mm / how->number[SCAN_SIZE];
    // the slices cover the whole head, whatever their number
    double step =
        ((double)s->high_mm - (double)s->low_mm) / how->number[SCAN_SLICES];
    double c = cos((double)s->oblique), o = sin((double)s->oblique);
    // mirrored axes, so that readers are tested with both
    bool nifti = contrast == HEAD_T1;
    double x = nifti && patient % 2 ? -mm : mm, y = nifti ? -mm : mm;

    // index of the point at the origin
    const double middle[3] = {(how->number[SCAN_SIZE] - 1) / 2.0,
                              (how->number[SCAN_SIZE] - 1) / 2.0,
                              -0.5 - (double)s->low_mm / step};
    const double axis[3][3] = {
        {x, 0, 0}, {0, c * y, -o * step}, {0, o * y, c * step}};

    for (int a = 0; a < 3; a++) {
        double origin = 0;
        for (int b = 0; b < 3; b++) {
            v->affine[a][b] = axis[a][b];
            origin -= axis[a][b] * middle[b];
        }
        v->affine[a][3] = origin;
    }
}

static void world(const Volume *v, int w, int h, int d, float p[3])
{
    double lps[3];
    volume_world(v, w, h, d, lps);
    for (int a = 0; a < 3; a++) p[a] = (float)lps[a];
}

// brightness and mask of slice k; both size * size
static void look(const Phantom *how, HeadContrast contrast, const Head *head,
                 const Volume *v, int k, float *bright, uint8_t *mask)
{
    for (int j = 0; j < how->number[SCAN_SIZE]; j++)
        for (int i = 0; i < how->number[SCAN_SIZE]; i++) {
            bool brain;
            float p[3];
            world(v, i, j, k, p);
            Tissue t = head_tissue(head, p, &brain);
            *bright++ = head_bright(head, contrast, t, p);
            *mask++ = contrast == HEAD_FLAIR ? t >= OEDEMA : brain;
        }
}

// Blurs rows of n values, `step` apart, in place: tissues mix at edges as they
// do inside a voxel. `row` has room for n values.
static void blur(float *v, int n, int step, float sigma, float *row)
{
    float side = expf(-0.5f / (sigma * sigma));
    // three taps that sum to 1
    float middle = 1 / (1 + 2 * side);
    for (int i = 0; i < n; i++) row[i] = v[i * step];
    for (int i = 0; i < n; i++) {
        float a = row[i ? i - 1 : 0], b = row[i + 1 < n ? i + 1 : i];
        v[i * step] = middle * (row[i] + side * (a + b));
    }
}

// stored values of slice k from brightness
static void measure(const Phantom *how, int patient, const Scan *s, int k,
                    const float *bright, int16_t *out)
{
    Rng r = {.seed = how->seed,
             .stream = RNG_PHANTOM,
             .op = DRAW_NOISE,
             .sample = (uint32_t)patient,
             .epoch = (uint32_t)k};
    int n = how->number[SCAN_SIZE];
    // -1 .. 1 along all three axes, for the coil
    float z = 2 * ((float)k + 0.5f) / (float)how->number[SCAN_SLICES] - 1;

    for (int i = 0; i < n * n; i++) {
        float x = 2 * (float)(i % n) / (float)n - 1, pair[2] = {0, 0};
        float y = 2 * (float)(i / n) / (float)n - 1;
        const float *c = s->coil;
        float gain = 1 + c[0] * x + c[1] * y + c[2] * z + c[3] * x * x +
                     c[4] * y * y + c[5] * x * y;
        float v = bright[i] * gain;
        if (s->sigma > 0) {
            rng_normal_pair(&r, (uint32_t)i, pair);
            // magnitude of a complex signal: Rician noise, never negative
            float re = v + s->sigma * pair[0], im = s->sigma * pair[1];
            v = sqrtf(re * re + im * im);
        }
        v = floorf(v * s->scale + 0.5f);
        out[i] = (int16_t)fminf(fmaxf(v, 0), STORED_MAX);
    }
}

// Slice by slice: brightness, blur in the plane, then coil and noise, in the
// order of a real scanner.
bool scan_make(const Phantom *how, HeadContrast contrast, int patient,
               Volume *image, Volume *mask)
{
    Arena mem = {0};
    bool ok = false;
    *image = *mask = (Volume){0};
    if (!phantom_check(how)) return false;
    CHECK(patient >= 0 && patient < how->number[SCAN_PATIENTS]);
    Scan s = draw_scan(how, contrast, patient);
    int n = how->number[SCAN_SIZE];
    int64_t plane = (int64_t)n * n;
    Head *head = ARENA_NEW(&mem, Head, 1);
    float *bright = ARENA_NEW(&mem, float, plane);
    float *row = ARENA_NEW(&mem, float, n);
    Dims dim = {1, how->number[SCAN_SLICES], n, n, 1};
    TRY(head && bright && row && volume_new(image, dim, I16) &&
        volume_new(mask, dim, U8));
    mask->unit = UNIT_LABEL;
    place_grid(how, contrast, patient, &s, image);
    for (int a = 0; a < 3; a++)
        for (int b = 0; b < 4; b++) mask->affine[a][b] = image->affine[a][b];
    head_draw(head, how->seed, (uint32_t)patient, contrast == HEAD_FLAIR);

    // the blur of a coarse grid is half a voxel, of a fine one 0.7 mm
    float sigma = fmaxf(0.5f, 0.7f * (float)n / s.field_mm);

    for (int k = 0; k < how->number[SCAN_SLICES]; k++) {
        look(how, contrast, head, image, k, bright,
             (uint8_t *)mask->voxels.data + k * plane);
        for (int i = 0; i < n; i++) blur(bright + i * n, n, 1, sigma, row);
        for (int i = 0; i < n; i++) blur(bright + i, n, n, sigma, row);
        measure(how, patient, &s, k, bright,
                (int16_t *)image->voxels.data + k * plane);
    }

    ok = true;

done:
    arena_release(&mem);
    if (ok) return true;
    volume_free(image);
    volume_free(mask);
    return within("phantom, patient %d", patient + 1);
}
