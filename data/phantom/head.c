/* head.c -- anatomy as formulas.
 *
 * Organs are level sets in mm, positive inside: ellipsoids, capsules along
 * polylines, and zero crossings of smooth noise for folded surfaces. Distances
 * are approximate (that of an ellipsoid is scaled by its smallest radius),
 * which only distorts shapes slightly. */
#include "data/phantom/head.h"
#include <math.h>
#include <string.h>

// positions in the phantom's stream; 61001 and above belong to write.c
enum { DRAW_SHAPE = 1, DRAW_LESION, DRAW_SPOTS, DRAW_BRIGHT, DRAW_LATTICE };

/* Brightness for FLAIR and T1, and its variation between patients. Scalp, caps
 * and spots are as bright as the tumour in FLAIR, so no threshold segments
 * it. */
static const float palette[TISSUES][3] = {
    [AIR] = {0.01f, 0.01f, 0},           [SCALP] = {0.80f, 0.92f, 0.12f},
    [BONE] = {0.07f, 0.08f, 0.03f},      [MARROW] = {0.26f, 0.42f, 0.08f},
    [BASE] = {0.32f, 0.46f, 0.06f},      [CSF] = {0.13f, 0.17f, 0.03f},
    [GRAY] = {0.59f, 0.50f, 0.03f},      [WHITE] = {0.43f, 0.74f, 0.03f},
    [VENTRICLE] = {0.09f, 0.14f, 0.02f}, [CAP] = {0.74f, 0.66f, 0.06f},
    [SPOT] = {0.80f, 0.60f, 0.05f},      [OEDEMA] = {0.80f, 0.42f, 0.05f},
    [RIM] = {0.90f, 0.60f, 0.04f},       [CORE] = {0.48f, 0.30f, 0.18f},
};

/* -- helpers
 * ---------------------------------------------------------------- */

static float clamp01(float t)
{
    return t < 0 ? 0 : t > 1 ? 1 : t;
}

// Smooth noise with features of `mm`; `place` selects a stream of noise.
static float noise(const Head *h, const float p[3], float mm, float place)
{
    int at[3];
    float t[3];

    for (int a = 0; a < 3; a++) {
        // large enough that truncation equals floor
        float x = p[a] / mm + 1024 + place * (float)(a + 1);
        at[a] = (int)x;
        t[a] = x - (float)at[a];
        // smooth at the border of two cells
        t[a] = t[a] * t[a] * (3 - 2 * t[a]);
    }

    // bilinear in two planes of the lattice, then linear between the planes
    float v[2];

    for (int k = 0; k < 2; k++) {
        const float(*plane)[HEAD_LATTICE] =
            h->lattice[(at[2] + k) & (HEAD_LATTICE - 1)];
        const float *r0 = plane[at[1] & (HEAD_LATTICE - 1)];
        const float *r1 = plane[(at[1] + 1) & (HEAD_LATTICE - 1)];
        int x0 = at[0] & (HEAD_LATTICE - 1),
            x1 = (at[0] + 1) & (HEAD_LATTICE - 1);
        float a = r0[x0] + t[0] * (r0[x1] - r0[x0]);
        float b = r1[x0] + t[0] * (r1[x1] - r1[x0]);
        v[k] = a + t[1] * (b - a);
    }
    return v[0] + t[2] * (v[1] - v[0]);
}

// depth in mm below the surface of an ellipsoid
static float ellipsoid(const float p[3], float x, float y, float z, float rx,
                       float ry, float rz)
{
    float dx = (p[0] - x) / rx, dy = (p[1] - y) / ry, dz = (p[2] - z) / rz;
    float least = fminf(rx, fminf(ry, rz));
    return (1 - sqrtf(dx * dx + dy * dy + dz * dz)) * least;
}

typedef struct Knot {
    float x, y, z, r;
} Knot;

// depth in mm below the surface of a tube with varying radius
static float tube(const float p[3], const Knot *k, int count, float scale)
{
    float best = -1000;
    for (int i = 0; i + 1 < count; i++) {
        float d[3] = {k[i + 1].x - k[i].x, k[i + 1].y - k[i].y,
                      k[i + 1].z - k[i].z};
        float e[3] = {p[0] - k[i].x, p[1] - k[i].y, p[2] - k[i].z};
        // nearest point on the segment, 0 .. 1
        float t = clamp01((e[0] * d[0] + e[1] * d[1] + e[2] * d[2]) /
                          (d[0] * d[0] + d[1] * d[1] + d[2] * d[2]));
        for (int a = 0; a < 3; a++) e[a] -= t * d[a];
        float r = scale * (k[i].r + t * (k[i + 1].r - k[i].r));
        best = fmaxf(best, r - sqrtf(e[0] * e[0] + e[1] * e[1] + e[2] * e[2]));
    }
    return best;
}

/* -- parameters
 * ------------------------------------------------------------- */

// the next draw of a sequence, in [lo, hi)
static float range(Rng *r, uint32_t *next, float lo, float hi)
{
    return rng_range(r, (*next)++, lo, hi);
}

// Draws rotation by yaw, roll and nod, and size, as one matrix; then the radii
// of the skull.
static void draw_pose(Head *h, Rng *r)
{
    uint32_t n = 0;
    // heads in a scanner are nearly straight
    const float turn = 0.14f; // radians
    float yaw = range(r, &n, -turn, turn), roll = range(r, &n, -0.1f, 0.1f);
    float nod = range(r, &n, -turn, turn), size = range(r, &n, 0.93f, 1.06f);
    // product of three rotations
    float cy = cosf(yaw), sy = sinf(yaw), cr = cosf(roll), sr = sinf(roll);
    float cn = cosf(nod), sn = sinf(nod);
    const float m[3][3] = {
        {cy * cr, sy * cr, -sr},
        {cy * sr * sn - sy * cn, sy * sr * sn + cy * cn, cr * sn},
        {cy * sr * cn + sy * sn, sy * sr * cn - cy * sn, cr * cn}};

    for (int a = 0; a < 3; a++) {
        for (int b = 0; b < 3; b++) h->pose[a][b] = m[a][b] / size;
        h->shift[a] = range(r, &n, -5, 5);
    }
    h->skull[0] = range(r, &n, 69, 77);
    h->skull[1] = range(r, &n, 87, 96);
    h->skull[2] = range(r, &n, 80, 86);
    h->ventricle = range(r, &n, 0.75f, 1.5f);
    h->folds = range(r, &n, 11, 16);
}

// Draws a tumour in the white matter of one hemisphere, away from the midline.
static void draw_lesion(Head *h, Rng *r)
{
    const float pi = 3.14159265f;
    uint32_t n = 0;
    // left or right with equal probability
    float side = range(r, &n, -1, 1) < 0 ? -1 : 1;
    float angle = range(r, &n, 0.22f * pi, 0.8f * pi);
    float out = range(r, &n, 0.42f, 0.64f);

    h->lesion[0] = side * out * sinf(angle) * (h->skull[0] - 12);
    h->lesion[1] = -out * cosf(angle) * (h->skull[1] - 12);
    h->lesion[2] = range(r, &n, 0, 36);
    h->reach[0] = range(r, &n, 16, 27);
    h->reach[1] = range(r, &n, 19, 32);
    h->reach[2] = range(r, &n, 20, 31);
    float turn = range(r, &n, -0.9f, 0.9f);
    h->turn[0] = cosf(turn), h->turn[1] = sinf(turn);
    h->ragged = range(r, &n, 0.14f, 0.30f);
    h->core = range(r, &n, 0, 1) < 0.6f;
}

static void draw_spots(Head *h, Rng *r)
{
    uint32_t n = 0;
    h->spots = (int)range(r, &n, 1, HEAD_SPOTS + 1);
    for (int i = 0; i < h->spots; i++) {
        float side = range(r, &n, -1, 1) < 0 ? -1 : 1;
        h->spot[i][0] = side * range(r, &n, 16, 38);
        h->spot[i][1] = range(r, &n, -48, 48);
        h->spot[i][2] = range(r, &n, 4, 46);
        h->spot[i][3] = range(r, &n, 1.8f, 4.2f);
    }
}

static void draw_bright(Head *h, Rng *r)
{
    uint32_t n = 0;
    for (int c = 0; c < 2; c++)
        for (int t = 0; t < TISSUES; t++)
            h->bright[c][t] =
                palette[t][c] + range(r, &n, -palette[t][2], palette[t][2]);
}

// Every part has its own `op`, so that changing one does not change the others.
// The lattice is uniform; smoothness comes from interpolation.
void head_draw(Head *h, uint64_t seed, uint32_t number, bool tumour)
{
    Rng r = {.seed = seed, .stream = RNG_PHANTOM, .sample = number};
    memset(h, 0, sizeof *h);
    h->tumour = tumour;
    r.op = DRAW_SHAPE;
    draw_pose(h, &r);
    r.op = DRAW_LESION;
    draw_lesion(h, &r);
    r.op = DRAW_SPOTS;
    draw_spots(h, &r);
    r.op = DRAW_BRIGHT;
    draw_bright(h, &r);
    r.op = DRAW_LATTICE;
    float *v = &h->lattice[0][0][0];

    for (uint32_t i = 0; i < HEAD_LATTICE * HEAD_LATTICE * HEAD_LATTICE;
         i += 4) {
        uint32_t w[4];
        rng_block(&r, i / 4, w);
        for (int k = 0; k < 4; k++) v[i + (uint32_t)k] = 2 * rng_unit(w[k]) - 1;
    }
}

/* -- the brain's surface -------------------------------------------------- */

// depth below the scalp; further down, the head narrows more slowly
static float skull_depth(const Head *h, const float p[3])
{
    // the ellipsoid is longer below: face and neck
    float low = p[2] < 0 ? 1.7f : 1;
    // deviation from an ellipsoid
    float wobble = 2 * noise(h, p, 45, 0.3f);
    return ellipsoid(p, 0, 0, 0, h->skull[0], h->skull[1], low * h->skull[2]) +
           wobble;
}

typedef enum Part { CEREBRUM, CEREBELLUM, STEM } Part;

/* depth below the envelope of the brain, < 0 outside; *part: part of the
 * brain */
static float brain_depth(const Head *h, const float p[3], float skull,
                         Part *part)
{
    float side[3] = {fabsf(p[0]), p[1], p[2]};
    float in = skull - 12 + 1.5f * noise(h, p, 30, 4.1f);
    // the frontal lobes end higher than the other lobes
    float slope = 22 * (1 - 0.4f * clamp01((p[1] + 10) / 20));
    float floor_mm = 5 * noise(h, p, 30, 2.6f) - slope;
    float cerebrum = fminf(in, 0.9f * (p[2] - floor_mm));
    float temporal = fminf(in, ellipsoid(side, 40, -6, -24, 23, 40, 30));
    float cerebellum = fminf(in, ellipsoid(side, 18, 45, -38, 40, 36, 29) +
                                     0.8f * noise(h, p, 14, 2.9f));
    static const Knot stem[] = {
        {0, 6, -10, 17}, {0, 8, -36, 15}, {0, 20, -90, 10}};
    float trunk = tube(p, stem, 3, 1);
    float depth = fmaxf(cerebrum, temporal);

    *part = CEREBRUM;
    if (cerebellum > depth) depth = cerebellum, *part = CEREBELLUM;
    if (trunk > depth) depth = trunk, *part = STEM;
    return depth;
}

/* depth below the surface covered by cortex: the envelope, and the clefts
 * between the hemispheres and above the temporal lobes */
static float cleft_depth(const Head *h, const float p[3], float depth)
{
    float bend = noise(h, p, 28, 7.7f);
    float dy = p[1] / 50, dz = (p[2] - 8) / 26;
    if (dy * dy + dz * dz > 1 || p[2] < -16)
        depth = fminf(depth, fabsf(p[0] + 2 * bend) - 0.9f);
    if (p[2] > -16 && p[2] < 16) {
        float lateral = 31 - fabsf(p[0]);
        float slit = fabsf(p[1] + 4 + 0.5f * p[2] + 9 * bend) - 1.4f;
        depth = fminf(depth, fmaxf(lateral, slit));
    }
    return depth;
}

// Folds are zero crossings of smooth noise: a cleft of fluid at the crossing, a
// ribbon of grey matter around it and along the surface.
static Tissue cortex(const Head *h, const float p[3], float depth)
{
    const float ribbon = 3.4f; // thickness of the cortex
    float q[3];
    // warped coordinates make folds of noise long instead of round
    float bend = 9 * noise(h, p, 24, 1.7f), wave = 9 * noise(h, p, 24, 5.3f);
    q[0] = p[0] + bend, q[1] = p[1] + wave, q[2] = 0.8f * (p[2] - bend);
    float fold = fabsf(noise(h, q, 17, 0) + 0.4f * noise(h, q, 8, 3.1f));
    // depth of the fold at this distance from its middle
    float cleft = h->folds * (1 - fold / 0.12f);
    float gray = (h->folds + ribbon) * (1 - fold / 0.36f);
    if (depth < fmaxf(0.8f, cleft)) return CSF;
    return depth < fmaxf(ribbon, gray) ? GRAY : WHITE;
}

/* -- inside --------------------------------------------------------------- */

// |x| stands for x: one description for both sides
static float ventricle_depth(const Head *h, const float p[3])
{
    static const Knot body[] = {{9, -34, 6, 4.5f},
                                {8, -22, 13, 5.5f},
                                {11, 4, 20, 4.5f},
                                {21, 30, 11, 6.5f},
                                {22, 50, 5, 2.5f}};
    static const Knot horn[] = {{22, 28, 8, 4}, {32, 8, -16, 2.5f}};
    float side[3] = {fabsf(p[0]), p[1], p[2]};
    float d = fmaxf(tube(side, body, 5, h->ventricle),
                    tube(side, horn, 2, h->ventricle));
    float third =
        fminf(1.6f * h->ventricle - side[0], ellipsoid(p, 0, 2, 0, 30, 15, 11));
    return fmaxf(d, third);
}

// caudate, thalamus, putamen, roughly
static bool deep_gray(const float p[3])
{
    float side[3] = {fabsf(p[0]), p[1], p[2]};
    return ellipsoid(side, 14, -20, 10, 5, 13, 8) > 0 ||
           ellipsoid(side, 10, 8, 3, 8, 14, 9) > 0 ||
           ellipsoid(side, 26, -4, 2, 6, 17, 11) > 0;
}

// > 0 inside the tumour with its oedema, about 1 at its centre
static float lesion_level(const Head *h, const float p[3])
{
    float d[3] = {p[0] - h->lesion[0], p[1] - h->lesion[1],
                  p[2] - h->lesion[2]};
    // axes of the tumour
    float x = h->turn[0] * d[0] + h->turn[1] * d[1];
    float y = h->turn[0] * d[1] - h->turn[1] * d[0];
    x /= h->reach[0], y /= h->reach[1], d[2] /= h->reach[2];
    float r = sqrtf(x * x + y * y + d[2] * d[2]);
    // beyond the ragged edge: skips the noise
    if (r > 1.6f) return -1;
    return 1 - r +
           h->ragged * (noise(h, p, 15, 6.3f) + 0.5f * noise(h, p, 7, 2.2f));
}

// spots are elongated along the head
static bool in_spot(const Head *h, const float p[3])
{
    for (int i = 0; i < h->spots; i++) {
        const float *s = h->spot[i];
        float x = p[0] - s[0], y = p[1] - s[1], z = 0.7f * (p[2] - s[2]);
        if (x * x + y * y + z * z < s[3] * s[3]) return true;
    }
    return false;
}

// Tissues in order of precedence: fluid of the ventricles, tumour, caps,
// clefts, grey and white matter.
static Tissue inside(const Head *h, const float p[3], float depth, Part part)
{
    if (part == STEM) return depth < 1 ? CSF : WHITE;
    if (part == CEREBELLUM) {
        // folia: thin and horizontal
        float leaf = sinf(1.1f * p[2] + 3 * noise(h, p, 12, 8.8f));
        if (depth < 0.8f) return CSF;
        return depth < 12 && leaf > -0.5f ? GRAY : WHITE;
    }

    float cavity = ventricle_depth(h, p);
    if (cavity > 0) return VENTRICLE;

    // the tumour flattens folds, but does not fill the cleft of the falx
    if (h->tumour && depth > 1.2f && p[0] * h->lesion[0] > 0) {
        float level = lesion_level(h, p);
        if (level > 0) {
            float inner = level - 0.42f;
            if (!h->core || inner < 0) return OEDEMA;
            return inner < 0.12f ? RIM : CORE;
        }
    }

    // bright caps at the ends of the ventricles
    bool end = p[1] < -26 || p[1] > 30;
    if (cavity > (end ? -3.2f : -1.2f) && noise(h, p, 9, 9.4f) > -0.35f &&
        fabsf(p[0]) > 4)
        return CAP;
    float cleft = cleft_depth(h, p, depth);
    if (cleft < 0) return CSF;
    if (deep_gray(p)) return GRAY;
    Tissue t = cortex(h, p, cleft);
    return t == WHITE && in_spot(h, p) ? SPOT : t;
}

// scalp, skull with its marrow, fluid, and the region below the brain
static Tissue outside(const Head *h, const float p[3], float skull, float depth)
{
    float scalp = 3.8f + 1.4f * noise(h, p, 35, 5.9f);
    if (skull < scalp) return SCALP;
    bool low = p[2] < -22;
    if (skull < scalp + 6.5f) {
        float in = skull - scalp;
        return in > 2 && in < 4.2f && !low ? MARROW : BONE;
    }
    if (!low || depth > -1.2f) return CSF;
    return noise(h, p, 11, 3.7f) > -0.1f ? BASE : BONE;
}

// from scanner coordinates to the upright head
static void to_head(const Head *h, const float lps_mm[3], float p[3])
{
    for (int a = 0; a < 3; a++) {
        p[a] = 0;
        for (int b = 0; b < 3; b++)
            p[a] += h->pose[a][b] * (lps_mm[b] - h->shift[b]);
    }
}

// Computes the depth of the brain only inside the scalp: most points are air.
Tissue head_tissue(const Head *h, const float lps_mm[3], bool *brain)
{
    float p[3];
    Part part;
    to_head(h, lps_mm, p);
    *brain = false;
    float skull = skull_depth(h, p);
    if (skull < 0) return AIR;
    float depth = brain_depth(h, p, skull, &part);
    if (depth < 0) return outside(h, p, skull, depth);
    *brain = true;
    return inside(h, p, depth, part);
}

float head_bright(const Head *h, HeadContrast contrast, Tissue t,
                  const float lps_mm[3])
{
    // amplitude of the texture of each tissue
    static const float texture[TISSUES] = {
        [SCALP] = 0.16f, [BASE] = 0.26f,   [GRAY] = 0.025f, [WHITE] = 0.025f,
        [CSF] = 0.03f,   [OEDEMA] = 0.05f, [CORE] = 0.08f,  [RIM] = 0.03f};
    float v = h->bright[contrast][t], p[3];
    if (texture[t] > 0) {
        to_head(h, lps_mm, p);
        v += texture[t] * (noise(h, p, 6, 1.3f) + noise(h, p, 13, 4.6f));
    }
    return fmaxf(v, 0);
}
