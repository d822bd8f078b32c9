/* dose.c -- synthetic patients of head-and-neck radiotherapy, with their plans.
 *
 * Lengths are in voxels; axes are as in openkbp.h: d to posterior, h to the
 * left, w to inferior. The anatomy is a set of ellipsoids and tubes around the
 * spine. The dose is a sum of beams in the plane of the slice:
 *
 *     dose(p) = sum over beams of open(ray of p) exp(-depth(p) / REACH)
 *
 * where a ray is open up to the highest prescription along it, blurred over
 * neighbouring rays and slices, and depth is its path length in the body. */
#include "data/phantom/dose.h"
#include "data/datasets/beams.h"
#include "engine/base/err.h"
#include "engine/base/file.h"
#include "engine/base/mem.h"
#include "engine/base/rng.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    E = OPENKBP_EDGE,
    DRAW_PLAN = 30, /* positions in the phantom's stream, distinct from */
    DRAW_CT,        /* the positions of scan.c and head.c */
    PATH_TEXT = 4096,
};

static const float REACH = 45; /* attenuation length of a beam, in voxels */

/* The structures in the order of openkbp_name. */
enum {
    BRAINSTEM,
    CORD,
    RIGHT_PAROTID,
    LEFT_PAROTID,
    ESOPHAGUS,
    LARYNX,
    MANDIBLE,
    PTV56,
    PTV63,
    PTV70
};

/* Frequency with which each structure is missing among the challenge's 340
 * patients; and the fraction of the dose by which a plan spares an organ. */
static const float missing[OPENKBP_STRUCTURES] = {
    0.10f, 0.08f, 0.03f, 0.03f, 0.59f, 0.49f, 0.31f, 0.10f, 0.53f, 0};
static const float spared[OPENKBP_STRUCTURES] = {
    [BRAINSTEM] = 0.4f,    [CORD] = 0.4f,   [RIGHT_PAROTID] = 0.3f,
    [LEFT_PAROTID] = 0.3f, [LARYNX] = 0.2f, [ESOPHAGUS] = 0.2f};

/* Parameters of one patient. */
typedef struct Body {
    float head_d, head_h, neck, shoulder; /* radii of the outline */
    float chin;                           /* slice where the neck begins     */
    float side;                           /* of the tumour: -1 right, 1 left */
    float tumour[3], radius;
    float size;   /* scale of all organs */
    float gantry; /* angle of the first beam */
} Body;

// Each number has its own draw: adding one does not change the others.
static Body draw_body(const Rng *r)
{
    return (Body){.head_d = rng_range(r, 0, 24, 28),
                  .head_h = rng_range(r, 1, 18, 22),
                  .neck = rng_range(r, 2, 14, 17),
                  .shoulder = rng_range(r, 3, 34, 46),
                  .chin = rng_range(r, 4, 64, 72),
                  .side = rng_uniform(r, 5) < 0.5f ? -1.0f : 1.0f,
                  .tumour = {rng_range(r, 6, -7, 1), rng_range(r, 7, 3, 9),
                             rng_range(r, 8, -8, 12)},
                  .radius = rng_range(r, 9, 5, 8),
                  .size = rng_range(r, 10, 0.9f, 1.15f),
                  .gantry = rng_range(r, 11, 0, 0.7f)};
}

/* 0 below a, 1 above b, smooth between them. */
static float ramp(float a, float b, float x)
{
    float t = fminf(fmaxf((x - a) / (b - a), 0), 1);
    return t * t * (3 - 2 * t);
}

/* Below 1 inside the body. */
static float outline(const Body *b, float d, float h, float w)
{
    // crown, neck, shoulders
    float top = ramp(4, 26, w), neck = ramp(b->chin, b->chin + 10, w);
    float low = ramp(b->chin + 22, b->chin + 40, w);
    float rd = top * (b->head_d + (b->neck - b->head_d) * neck) + 6 * low;
    float rh = top * (b->head_h + (b->neck - b->head_h) * neck);
    rh += (b->shoulder - rh) * low;
    if (rd <= 0 || rh <= 0) return 2;
    return d * d / (rd * rd) + h * h / (rh * rh);
}

/* Inside an ellipsoid? Its middle is relative to the spine's slice. */
static bool in_ball(float d, float h, float w, const float m[3],
                    const float r[3])
{
    float a = (d - m[0]) / r[0], b = (h - m[1]) / r[1], c = (w - m[2]) / r[2];
    return a * a + b * b + c * c < 1;
}

/* Inside a tube along the body from slice `from` to `to`? */
static bool in_tube(float d, float h, float w, const float m[2], float r,
                    float from, float to)
{
    return w >= from && w <= to &&
           (d - m[0]) * (d - m[0]) + (h - m[1]) * (h - m[1]) < r * r;
}

/* Is a point in structure s? */
static bool in_structure(const Body *b, int s, float d, float h, float w)
{
    const float z = b->chin, k = b->size;
#define BALL(md, mh, mw, rd, rh, rw)                 \
    in_ball(d, h, w, (float[3]){md, (mh), z + (mw)}, \
            (float[3]){(rd)*k, (rh)*k, (rw)*k})
    const float *t = b->tumour;
    switch (s) {
    case BRAINSTEM:
        return BALL(5, 0, -28, 4, 4, 8);
    case CORD:
        return in_tube(d, h, w, (float[2]){8, 0}, 2.2f * k, z - 20, z + 44);
    case RIGHT_PAROTID:
        return BALL(1, -12, -14, 4, 3.2f, 7);
    case LEFT_PAROTID:
        return BALL(1, 12, -14, 4, 3.2f, 7);
    case ESOPHAGUS:
        return in_tube(d, h, w, (float[2]){3, 0}, 2.2f * k, z + 20, z + 46);
    case LARYNX:
        return BALL(-7, 0, 14, 4, 4, 6);
    case MANDIBLE: {
        float a = d + 4, r = sqrtf(a * a + h * h) / k;
        return a < 0 && fabsf(w - z + 4) < 4 * k && r > 10.5f && r < 13;
    }
    case PTV70:
        return BALL(t[0], b->side * t[1], t[2], b->radius, b->radius,
                    b->radius * 1.3f);
    case PTV63:
        return BALL(t[0], b->side * t[1], t[2], b->radius * 1.5f,
                    b->radius * 1.4f, b->radius * 1.9f) &&
               !in_structure(b, PTV70, d, h, w);
    default: { // nodes on both sides
        float at = 2 - 3 * ramp(z - 14, z + 20, w);
        return (in_tube(d, h, w, (float[2]){at, 10}, 4.2f * k, z - 12,
                        z + 30) ||
                in_tube(d, h, w, (float[2]){at, -10}, 4.2f * k, z - 12,
                        z + 30)) &&
               !in_structure(b, PTV70, d, h, w);
    }
    }
#undef BALL
}

static int32_t index_of(int d, int h, int w)
{
    return w + E * (h + E * d);
}

/* Makes body, CT and structures. CT values start at 0 for air: soft tissue is
 * near 1000. `body` (0 or 1) is used for the beams. */
static void make_anatomy(const Phantom *how, int patient, const Body *b,
                         RadioPlan *p, float *body)
{
    const Rng r = {.seed = how->seed,
                   .stream = RNG_PHANTOM,
                   .op = DRAW_CT,
                   .sample = (uint32_t)patient};

    for (int i = 0; i < OPENKBP_VOXELS; i++) {
        float w = (float)(i % E), h = (float)(i / E % E) - 63.5f;
        float d = (float)(i / E / E) - 63.5f, at = outline(b, d, h, w);
        if (at >= 1) continue;
        body[i] = 1;
        float ct = 1020;
        for (int s = 0; s < OPENKBP_STRUCTURES; s++) {
            if (!in_structure(b, s, d, h, w)) continue;
            if (p->has[OPENKBP_STRUCTURE + s])
                p->grid[OPENKBP_STRUCTURE + s][i] = 1;
            if (s == MANDIBLE) ct = 1650;
            if (s == RIGHT_PAROTID || s == LEFT_PAROTID) ct = 980;
        }
        // bone around the cord and of the skull, and the airway
        if (in_tube(d, h, w, (float[2]){8, 0}, 6, 20, E) &&
            !in_structure(b, CORD, d, h, w))
            ct = 1350;
        if (w < b->chin - 18 && at > 0.78f && at < 0.93f) ct = 1750;
        if (in_tube(d, h, w, (float[2]){-8, 0}, 2, b->chin - 10, E)) ct = 120;
        float pair[2];
        rng_normal_pair(&r, (uint32_t)i, pair);
        ct += 1000 * (float)how->noise * pair[0];
        p->grid[OPENKBP_CT][i] = floorf(fmaxf(ct, 1) + 0.5f);
    }
}

/* Blurs rows of n values, `step` apart, by 1/4, 1/2, 1/4. */
static void soften(float *v, int n, int step)
{
    float before = v[0];
    for (int i = 0; i < n; i++) {
        float own = v[i * step], after = v[(i + 1 < n ? i + 1 : i) * step];
        v[i * step] = (before + 2 * own + after) / 4;
        before = own;
    }
}

/* Is slice w of a column in the body, and its ray open? */
static bool is_lit(const float *column, const float *open, int w)
{
    return column[w] > 0 && open[w * E] > 0;
}

/* Adds one beam from direction (cd, ch) to `dose`. `level` has the highest
 * prescription of each voxel, `open` is E x E: rays of a slice. */
static void add_beam(float cd, float ch, const float *body, const float *level,
                     float *open, float *dose)
{
    const float half = (E - 1) / 2.0f;
    memset(open, 0, sizeof(float) * E * E);

    // a ray is a coordinate across the beam: each voxel is on one ray
    for (int i = 0; i < OPENKBP_VOXELS; i++) {
        if (level[i] <= 0) continue;
        float h = (float)(i / E % E) - half, d = (float)(i / E / E) - half;
        int ray = (int)floorf(-ch * d + cd * h + half + 0.5f);
        float *to = &open[(i % E) * E + (ray < 0 ? 0 : ray < E ? ray : E - 1)];
        *to = fmaxf(*to, level[i]);
    }

    for (int k = 0; k < 2; k++) {
        for (int w = 0; w < E; w++) soften(open + w * E, E, 1);
        for (int ray = 0; ray < E; ray++) soften(open + ray, E, E);
    }

    // a column has one ray and one path to the source, in all its slices
    for (int d = 0; d < E; d++)
        for (int h = 0; h < E; h++) {
            const float *column = body + index_of(d, h, 0);
            float y = (float)d - half, x = (float)h - half, depth[E] = {0};
            int ray = (int)floorf(-ch * y + cd * x + half + 0.5f);
            const float *in = open + (ray < 0 ? 0 : ray < E ? ray : E - 1);
            int from = 0, to = E; // slices with dose
            while (from < to && !is_lit(column, in, from)) from++;
            while (from < to && !is_lit(column, in, to - 1)) to--;
            if (from == to) continue;

            // back to the source, two voxels per step
            for (float t = 2; t < E; t += 2) {
                int a = (int)floorf((float)d - cd * t + 0.5f);
                int c = (int)floorf((float)h - ch * t + 0.5f);
                if (a < 0 || a >= E || c < 0 || c >= E) break;
                const float *at = body + index_of(a, c, 0);
                for (int w = from; w < to; w++) depth[w] += 2 * at[w];
            }

            float *sum = dose + index_of(d, h, 0);
            for (int w = from; w < to; w++)
                if (is_lit(column, in, w))
                    sum[w] += in[w * E] * expf(-depth[w] / REACH);
        }
}

/* Computes the dose in Gy and its mask: above 1 Gy, the lowest isodose of a
 * plan. */
static void make_dose(const Body *b, RadioPlan *p, const float *body,
                      float *level, float *open)
{
    float *dose = p->grid[OPENKBP_DOSE];
    double sum = 0, target = 0;
    for (int s = PTV56; s <= PTV70; s++)
        for (int i = 0; i < OPENKBP_VOXELS; i++)
            if (p->grid[OPENKBP_STRUCTURE + s][i] > 0)
                level[i] = fmaxf(level[i], openkbp_target_gy[s - PTV56]);
    for (int k = 0; k < BEAMS; k++) {
        float angle = b->gantry + (float)k * 6.2831853f / BEAMS;
        add_beam(cosf(angle), sinf(angle), body, level, open, dose);
    }
    for (int i = 0; i < OPENKBP_VOXELS; i++)
        if (level[i] > 0) sum += (double)dose[i], target += (double)level[i];
    const float scale = sum > 0 ? (float)(target / sum) : 0;

    for (int i = 0; i < OPENKBP_VOXELS; i++) {
        float v = dose[i] * scale, spare = 0;
        for (int s = 0; s < PTV56; s++)
            if (p->grid[OPENKBP_STRUCTURE + s][i] > 0)
                spare = fmaxf(spare, spared[s]);
        // homogenised inside the targets, as by an optimiser
        v = level[i] > 0 ? 0.8f * level[i] + 0.2f * v : v * (1 - spare);
        v = fminf(v, 80);
        bool there = body[i] > 0 && v > 1;
        p->grid[OPENKBP_POSSIBLE][i] = there;
        // rounded to 1/1000 Gy, as in the files of the challenge
        dose[i] = there ? floorf(v * 1000 + 0.5f) / 1000 : 0;
    }
}

bool dose_make(const Phantom *how, int patient, RadioPlan *p)
{
    const Rng r = {.seed = how->seed,
                   .stream = RNG_PHANTOM,
                   .op = DRAW_PLAN,
                   .sample = (uint32_t)patient};
    const Body b = draw_body(&r);
    const size_t each = sizeof(float) * OPENKBP_VOXELS;
    float *body = NULL, *level = NULL, *open = NULL;
    bool ok = false;

    *p = (RadioPlan){0};
    TRY(phantom_check(how));
    TRY(p->grid[0] = mem_alloc(each * OPENKBP_GRIDS));
    TRY(body = mem_alloc(each));
    TRY(level = mem_alloc(each));
    TRY(open = mem_alloc(sizeof(float) * E * E));
    memset(p->grid[0], 0, each * OPENKBP_GRIDS);
    memset(body, 0, each);
    memset(level, 0, each);

    for (int g = 0; g < OPENKBP_GRIDS; g++) {
        p->grid[g] = p->grid[0] + (size_t)g * OPENKBP_VOXELS;
        p->has[g] =
            g < OPENKBP_STRUCTURE ||
            rng_uniform(&r, 32 + (uint32_t)g) >= missing[g - OPENKBP_STRUCTURE];
    }

    p->spacing_mm[0] = p->spacing_mm[1] =
        (double)floorf(rng_range(&r, 12, 3500, 4600)) / 1000;
    p->spacing_mm[2] = rng_uniform(&r, 13) < 0.7f ? 2.5 : 3;
    make_anatomy(how, patient, &b, p, body);
    make_dose(&b, p, body, level, open);
    ok = true;

done:
    mem_free(open);
    mem_free(level);
    mem_free(body);
    if (!ok) dose_free(p);
    return ok;
}

void dose_free(RadioPlan *p)
{
    mem_free(p->grid[0]);
    *p = (RadioPlan){0};
}

/* Writes the files of a patient to the folder `path`, which is a buffer. */
static bool write_files(char path[PATH_TEXT], const RadioPlan *p)
{
    const size_t end = strlen(path);
    char text[96];
    int n = 0;

    for (int g = 0; g < OPENKBP_GRIDS; g++) {
        const bool mask = g != OPENKBP_CT && g != OPENKBP_DOSE;
        if (!p->has[g]) continue;
        snprintf(path + end, PATH_TEXT - end, "/%s.csv", openkbp_name[g]);
        if (!openkbp_grid_write(path, mask ? OPENKBP_MASK : OPENKBP_VALUES,
                                p->grid[g], 1))
            return false;
    }

    for (int a = 0; a < 3; a++)
        n += snprintf(text + n, sizeof text - (size_t)n, "%.18e\n",
                      p->spacing_mm[a]);
    snprintf(path + end, PATH_TEXT - end, "/voxel_dimensions.csv");
    return file_replace(path, text, (size_t)n);
}

bool dose_write(const char *folder, const Phantom *how, int patient)
{
    char path[PATH_TEXT];
    RadioPlan p;
    snprintf(path, sizeof path, "%s/pt_%d", folder, patient + 1);
    if (!phantom_mkdir(path) || !dose_make(how, patient, &p)) return false;
    bool ok = write_files(path, &p);
    dose_free(&p);
    return ok;
}
