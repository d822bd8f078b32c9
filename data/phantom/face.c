/* face.c -- see face.h.
 *
 * Parts are joined smoothly, so there are no creases between them; the colour
 * is that of the part with the nearest surface. Distances of ellipsoids are
 * correct to first order only, so rays advance a little less than the
 * distance. */
#include "data/phantom/face.h"
#include "engine/base/rng.h"
#include <math.h>

typedef struct Vec {
    float x, y, z;
} Vec;

typedef enum Stuff { SKIN, HAIR, EYE, MOUTH, BROW, CLOTH } Stuff;

// draws of the phantom's stream; below 100 are used by head and scan
enum { DRAW_PERSON = 101, DRAW_POSE, DRAW_LIGHT, DRAW_WALL, DRAW_NOISE };

/* -- helpers
 * ---------------------------------------------------------------- */

static Vec vec(float x, float y, float z)
{
    return (Vec){x, y, z};
}

static Vec less(Vec a, Vec b)
{
    return vec(a.x - b.x, a.y - b.y, a.z - b.z);
}

static float dot(Vec a, Vec b)
{
    return a.x * b.x + a.y * b.y + a.z * b.z;
}

static float length(Vec a)
{
    return sqrtf(dot(a, a));
}

static Vec unit(Vec a)
{
    float n = 1 / length(a);
    return vec(a.x * n, a.y * n, a.z * n);
}

static float clamp01(float t)
{
    return t < 0 ? 0 : t > 1 ? 1 : t;
}

// minimum of two, rounded where they differ by less than k
static float join(float a, float b, float k)
{
    float h = fmaxf(k - fabsf(a - b), 0) / k;
    return fminf(a, b) - h * h * k / 4;
}

// distance to an ellipsoid around 0: its level divided by the gradient norm
static float ellipsoid(Vec p, float rx, float ry, float rz)
{
    Vec a = vec(p.x / rx, p.y / ry, p.z / rz);
    Vec b = vec(a.x / rx, a.y / ry, a.z / rz);
    float level = length(a), slope = length(b);
    // at the centre both are 0
    return slope > 1e-6f ? level * (level - 1) / slope : -rx;
}

// distance to a rod from a to b with a radius from ra to rb
static float rod(Vec p, Vec a, Vec b, float ra, float rb)
{
    Vec d = less(b, a), e = less(p, a);
    float t = clamp01(dot(e, d) / dot(d, d));
    return length(less(e, vec(t * d.x, t * d.y, t * d.z))) - ra - t * (rb - ra);
}

// out = R p, or with its transpose R^-1 p
static Vec turned(const float r[3][3], Vec p)
{
    return vec(r[0][0] * p.x + r[0][1] * p.y + r[0][2] * p.z,
               r[1][0] * p.x + r[1][1] * p.y + r[1][2] * p.z,
               r[2][0] * p.x + r[2][1] * p.y + r[2][2] * p.z);
}

static Vec turned_back(const float r[3][3], Vec p)
{
    return vec(r[0][0] * p.x + r[1][0] * p.y + r[2][0] * p.z,
               r[0][1] * p.x + r[1][1] * p.y + r[2][1] * p.z,
               r[0][2] * p.x + r[1][2] * p.y + r[2][2] * p.z);
}

/* -- parameters
 * ------------------------------------------------------------- */

static float range(const Rng *r, uint32_t *next, float lo, float hi)
{
    return rng_range(r, (*next)++, lo, hi);
}

// interpolates two colours at t, with a small random offset per channel
static void blend(const Rng *r, uint32_t *next, const float a[3],
                  const float b[3], float t, float off, float out[3])
{
    for (int c = 0; c < 3; c++)
        out[c] = clamp01(a[c] + t * (b[c] - a[c]) + range(r, next, -off, off));
}

void face_draw(Face *f, uint64_t seed, uint32_t person)
{
    static const float pale[] = {0.94f, 0.78f, 0.69f};
    static const float dark[] = {0.34f, 0.22f, 0.16f};
    static const float black[] = {0.06f, 0.05f, 0.05f};
    static const float fair[] = {0.78f, 0.64f, 0.42f};
    static const float brown[] = {0.25f, 0.15f, 0.08f};
    static const float blue[] = {0.35f, 0.52f, 0.66f};
    static const float rose[] = {0.72f, 0.36f, 0.35f};
    static const float none[] = {0, 0, 0}, all[] = {1, 1, 1};
    Rng r = {.seed = seed,
             .stream = RNG_PHANTOM,
             .op = DRAW_PERSON,
             .sample = person};
    uint32_t n = 0;

    f->wide = range(&r, &n, 0.70f, 0.80f);
    f->tall = range(&r, &n, 0.92f, 1.04f);
    f->deep = range(&r, &n, 0.86f, 0.98f);
    f->jaw = range(&r, &n, 0.50f, 0.62f);
    f->chin = range(&r, &n, 0.36f, 0.48f);
    f->nose_long = range(&r, &n, 0.16f, 0.30f);
    f->nose_wide = range(&r, &n, 0.10f, 0.15f);
    f->eye_apart = range(&r, &n, 0.27f, 0.33f);
    f->eye_size = range(&r, &n, 0.11f, 0.135f);
    f->lips = range(&r, &n, 0.05f, 0.09f);
    f->ear = range(&r, &n, 0.20f, 0.28f);
    f->hair_thick = range(&r, &n, 0.04f, 0.16f);
    f->hair_line = range(&r, &n, 0.50f, 0.68f);
    f->hair_low = range(&r, &n, -0.9f, 0.3f);
    float tone = range(&r, &n, 0, 1);
    blend(&r, &n, pale, dark, tone, 0.04f, f->skin);

    // fair hair occurs with pale skin
    blend(&r, &n, black, fair, (1 - tone) * range(&r, &n, 0, 1), 0.04f,
          f->hair);
    blend(&r, &n, brown, blue, (1 - tone) * range(&r, &n, 0, 1), 0.04f,
          f->iris);
    blend(&r, &n, rose, f->skin, range(&r, &n, 0.1f, 0.6f), 0.03f, f->mouth);
    blend(&r, &n, none, all, 0.5f, 0.45f, f->cloth);
}

// R of face.h, the product of its three factors
void face_turn(FaceLook *v)
{
    const double degree = acos(-1) / 180;
    const double p = -v->pitch_deg * degree, y = -v->yaw_deg * degree;
    const double r = -v->roll_deg * degree;
    const double cp = cos(p), sp = sin(p), cy = cos(y), sy = sin(y);
    const double cr = cos(r), sr = sin(r);
    const double m[3][3] = {
        {cy * cr, -cy * sr, sy},
        {cp * sr + sp * sy * cr, cp * cr - sp * sy * sr, -sp * cy},
        {sp * sr - cp * sy * cr, sp * cr + cp * sy * sr, cp * cy}};
    for (int a = 0; a < 3; a++)
        for (int b = 0; b < 3; b++) v->turn[a][b] = (float)m[a][b];
}

// Each part has its own `op`, so changing one does not change the others.
void face_look(FaceLook *v, uint64_t seed, uint32_t person, uint32_t photo,
               int size, double noise)
{
    Rng r = {.seed = seed,
             .stream = RNG_PHANTOM,
             .op = DRAW_POSE,
             .epoch = photo,
             .sample = person};
    const float side = (float)size;
    uint32_t n = 0;

    v->yaw_deg = (double)range(&r, &n, -75, 75);
    v->pitch_deg = (double)range(&r, &n, -40, 40);
    v->roll_deg = (double)range(&r, &n, -30, 30);
    face_turn(v);
    v->column = side * range(&r, &n, 0.45f, 0.55f);
    v->row = side * range(&r, &n, 0.45f, 0.53f);
    v->zoom = side * range(&r, &n, 0.29f, 0.35f);
    r.op = DRAW_LIGHT, n = 0;
    Vec to = unit(vec(range(&r, &n, -1, 1), range(&r, &n, -0.2f, 1),
                      range(&r, &n, 0.4f, 1.2f)));
    v->light[0] = to.x, v->light[1] = to.y, v->light[2] = to.z;
    v->ambient = range(&r, &n, 0.30f, 0.60f);
    v->shine = range(&r, &n, 0, 0.25f);
    for (int c = 0; c < 3; c++) v->tint[c] = range(&r, &n, 0.85f, 1.1f);
    r.op = DRAW_WALL, n = 0;
    for (int e = 0; e < 2; e++)
        for (int c = 0; c < 3; c++) v->wall[e][c] = range(&r, &n, 0.05f, 0.95f);

    for (int b = 0; b < FACE_BLOBS; b++) {
        v->blob[b][0] = range(&r, &n, 0, 1);
        v->blob[b][1] = range(&r, &n, 0, 1);
        v->blob[b][2] = range(&r, &n, 0.05f, 0.3f);
        for (int c = 3; c < 6; c++) v->blob[b][c] = range(&r, &n, 0, 1);
        v->blob[b][6] = range(&r, &n, 0, 0.8f);
    }

    v->seed = seed, v->person = person, v->photo = photo;
    v->noise = (float)noise;
}

/* -- the solid ------------------------------------------------------------ */

static const float EYE_Y = 0.05f, EYE_Z = 0.66f, NOSE_Y = -0.26f;
static const float MOUTH_Y = -0.55f, MOUTH_Z = 0.66f, CHIN_Y = -0.92f;

/* Distance to the skin: skull, jaw and chin, nose, ears, without the eye
 * sockets. `side` is p with |x|: a face is symmetric. */
static float skin(const Face *f, Vec p, Vec side)
{
    float d = ellipsoid(less(p, vec(0, 0.18f, -0.12f)), f->wide, f->tall - 0.1f,
                        f->deep);
    float face =
        ellipsoid(less(p, vec(0, -0.36f, 0.20f)), f->jaw, 0.66f, 0.54f);
    d = join(d, face, 0.25f);
    d = join(d, length(less(p, vec(0, CHIN_Y, f->chin))) - 0.14f, 0.2f);

    // the ridge above the eyes
    d = join(d,
             rod(side, vec(0.08f, 0.24f, 0.68f), vec(0.45f, 0.20f, 0.52f),
                 0.07f, 0.06f),
             0.12f);
    float socket =
        length(less(side, vec(f->eye_apart, EYE_Y, EYE_Z + 0.16f))) - 0.15f;
    d = -join(-d, socket, 0.1f);
    const Vec bridge = vec(0, 0.12f, 0.70f);
    const Vec tip = vec(0, NOSE_Y, 0.70f + f->nose_long);
    d = join(d, rod(p, bridge, tip, 0.06f, f->nose_wide), 0.08f);
    d = join(d,
             length(less(side, vec(0.8f * f->nose_wide, NOSE_Y - 0.02f,
                                   0.66f + 0.6f * f->nose_long))) -
                 0.7f * f->nose_wide,
             0.05f);
    float ear = ellipsoid(less(side, vec(f->wide + 0.03f, 0, -0.08f)), 0.07f,
                          f->ear, 0.15f);
    return join(d, ear, 0.06f);
}

// a cap slightly larger than the skull, cut off before the face and below
static float hair(const Face *f, Vec p)
{
    float cap =
        ellipsoid(less(p, vec(0, 0.20f, -0.16f)), f->wide + f->hair_thick,
                  f->tall - 0.1f + f->hair_thick, f->deep + f->hair_thick);
    float mane =
        rod(p, vec(0, 0.1f, -0.45f), vec(0, f->hair_low, -0.5f), 0.6f, 0.55f);
    float front = 0.62f * (p.z - 0.42f) - 0.78f * (p.y - f->hair_line);
    float below = f->hair_low - p.y;
    return fmaxf(join(cap, mane, 0.2f), fmaxf(front, below));
}

/* Distance to the head, in its own frame, and the material of the nearest
 * part. */
static float head(const Face *f, Vec p, Stuff *stuff)
{
    const Vec side = vec(fabsf(p.x), p.y, p.z);
    float best = skin(f, p, side);

    // the nearest part; of equally near ones the first
    const float part[] = {
        [HAIR] = hair(f, p),
        [EYE] = length(less(side, vec(f->eye_apart, EYE_Y, EYE_Z - 0.09f))) -
                f->eye_size - 0.03f,
        [MOUTH] =
            ellipsoid(less(p, vec(0, MOUTH_Y, MOUTH_Z)), 0.24f, f->lips, 0.10f),
        [BROW] = rod(side, vec(0.14f, 0.27f, 0.745f), vec(0.44f, 0.25f, 0.56f),
                     0.04f, 0.025f),
    };

    *stuff = SKIN;
    for (int i = HAIR; i <= BROW; i++)
        if (part[i] < best) best = part[i], *stuff = (Stuff)i;
    return best;
}

/* Neck and shoulders stay upright while the head rotates. */
static float body(const FaceLook *v, Vec p, Stuff *stuff)
{
    Vec top = turned(v->turn, vec(0, -0.55f, -0.2f));
    float neck = rod(p, top, vec(0, -1.7f, -0.3f), 0.36f, 0.42f);
    float chest = ellipsoid(less(p, vec(0, -2.25f, -0.35f)), 1.5f, 0.75f, 0.6f);
    *stuff = chest < neck ? CLOTH : SKIN;
    return fminf(neck, chest);
}

// distance to the scene from a point in the picture's frame, and its material
static float scene(const Face *f, const FaceLook *v, Vec p, Stuff *stuff)
{
    enum { BOUND_TENTHS = 15 }; // no head reaches beyond this radius
    float d = body(v, p, stuff), out = length(p) - BOUND_TENTHS / 10.0f;
    if (out > 0.3f) return fminf(d, out);
    Stuff of_head;
    float h = head(f, turned_back(v->turn, p), &of_head);
    if (h < d) *stuff = of_head;
    return fminf(h, d);
}

/* -- the picture ---------------------------------------------------------- */

static void wall(const FaceLook *v, float x, float y, float rgb[3])
{
    for (int c = 0; c < 3; c++)
        rgb[c] = v->wall[0][c] + x * (v->wall[1][c] - v->wall[0][c]);
    for (int b = 0; b < FACE_BLOBS; b++) {
        const float *k = v->blob[b];
        float dx = (x - k[0]) / k[2], dy = (y - k[1]) / k[2];
        float cover = k[6] * expf(-dx * dx - dy * dy);
        for (int c = 0; c < 3; c++) rgb[c] += cover * (k[3 + c] - rgb[c]);
    }
}

// white, iris or pupil by the angle to the direction of gaze
static void eye_color(const Face *f, Vec p, float rgb[3])
{
    Vec middle = vec(f->eye_apart, EYE_Y, EYE_Z - 0.09f);
    Vec out = unit(less(vec(fabsf(p.x), p.y, p.z), middle));
    float iris = 0.86f, pupil = 0.965f;
    for (int c = 0; c < 3; c++)
        rgb[c] = out.z > pupil ? 0.03f : out.z > iris ? f->iris[c] : 0.88f;
}

static void color_of(const Face *f, Stuff stuff, Vec p, float rgb[3])
{
    const float *from[] = {
        [SKIN] = f->skin,   [HAIR] = f->hair, [EYE] = f->skin,
        [MOUTH] = f->mouth, [BROW] = f->hair, [CLOTH] = f->cloth};
    for (int c = 0; c < 3; c++) rgb[c] = from[stuff][c];
    if (stuff == EYE) eye_color(f, p, rgb);
    if (stuff != SKIN) return;
    // nostrils
    Vec hole = vec(0.5f * f->nose_wide, NOSE_Y - 0.9f * f->nose_wide,
                   0.66f + f->nose_long);
    if (length(less(vec(fabsf(p.x), p.y, p.z), hole)) < 0.055f)
        for (int c = 0; c < 3; c++) rgb[c] *= 0.25f;
}

// gradient of the distance, from four points of a tetrahedron
static Vec normal_at(const Face *f, const FaceLook *v, Vec p)
{
    static const Vec corner[] = {
        {1, -1, -1}, {-1, -1, 1}, {-1, 1, -1}, {1, 1, 1}};
    const float e = 0.004f;
    Vec n = {0};

    for (int i = 0; i < 4; i++) {
        Stuff any;
        Vec k = corner[i];
        float d =
            scene(f, v, vec(p.x + e * k.x, p.y + e * k.y, p.z + e * k.z), &any);
        n.x += d * k.x, n.y += d * k.y, n.z += d * k.z;
    }
    return unit(n);
}

/* Traces a ray along -z from (x, y): sets the shaded colour, or returns false
 * if it meets nothing. */
static bool trace(const Face *f, const FaceLook *v, float x, float y,
                  float rgb[3])
{
    enum { STEPS = 64 };
    const Vec light = vec(v->light[0], v->light[1], v->light[2]);
    float z = 1.6f;
    Stuff stuff = SKIN;

    for (int i = 0; i < STEPS; i++) {
        Vec p = vec(x, y, z);
        float d = scene(f, v, p, &stuff);
        if (d < 0.004f) {
            Vec n = normal_at(f, v, p);
            float lit = fmaxf(dot(n, light), 0);
            // halfway between the directions to the light and to the viewer
            Vec half = unit(vec(light.x, light.y, light.z + 1));
            float gloss = powf(fmaxf(dot(n, half), 0), 24) * v->shine;
            color_of(f, stuff, turned_back(v->turn, p), rgb);
            float all = v->ambient * (0.7f + 0.3f * n.y) +
                        (1 - v->ambient) * 1.3f * lit;
            for (int c = 0; c < 3; c++)
                rgb[c] = v->tint[c] * (rgb[c] * all + gloss);
            return true;
        }
        z -= 0.85f * d;
        if (z < -1.8f) return false;
    }
    return false;
}

void face_render(const Face *f, const FaceLook *v, int size, uint8_t *rgb)
{
    const Rng r = {.seed = v->seed,
                   .stream = RNG_PHANTOM,
                   .op = DRAW_NOISE,
                   .epoch = v->photo,
                   .sample = v->person};

    for (int row = 0; row < size; row++)
        for (int column = 0; column < size; column++) {
            const int at = row * size + column;
            float i = (float)column + 0.5f, k = (float)row + 0.5f;
            float color[3], grain[4];
            if (!trace(f, v, (i - v->column) / v->zoom, (v->row - k) / v->zoom,
                       color))
                wall(v, i / (float)size, k / (float)size, color);
            for (uint32_t pair = 0; pair < 2; pair++)
                rng_normal_pair(&r, 2 * (uint32_t)at + pair, grain + 2 * pair);
            for (int c = 0; c < 3; c++) {
                float value = clamp01(color[c] + v->noise * grain[c]);
                rgb[3 * at + c] = (uint8_t)(255 * value + 0.5f);
            }
        }
}

/* -- landmarks ------------------------------------------------------------ */

// point of an arc around (x, y): degrees from the right, upwards
static Vec arc(float x, float y, float z, float rx, float ry, float degrees)
{
    const float a = degrees * 0.0174532925f;
    return vec(x + rx * cosf(a), y + ry * sinf(a), z);
}

/* Landmarks in the order of 300-W: 17 along the jaw from the left of the
 * picture, 5 and 5 of the brows, 4 down the nose and 5 below it, 6 and 6 around
 * the eyes, 12 around the lips and 8 inside. */
static int place_points(const Face *f, Vec out[FACE_POINTS])
{
    int n = 0;
    for (int i = 0; i < 17; i++) {
        // from ear to chin to ear; the middle is further in front
        float t = (float)(i - 8) / 8, c = cosf(1.5708f * t);
        out[n++] = vec(f->wide * sinf(1.5708f * t), CHIN_Y * c - 0.1f * c * c,
                       -0.05f + c * (f->chin + 0.15f));
    }

    for (int s = -1; s <= 1; s += 2)
        for (int i = 0; i < 5; i++) {
            float t = (float)(s < 0 ? 4 - i : i) / 4;
            out[n++] = vec((float)s * (0.14f + 0.30f * t),
                           0.27f - 0.02f * t + 0.04f * t * (1 - t),
                           0.79f - 0.185f * t);
        }

    for (int i = 0; i < 4; i++) {
        float t = (float)i / 3;
        out[n++] = vec(0, 0.12f + t * (NOSE_Y - 0.12f),
                       0.76f + t * (f->nose_long + f->nose_wide - 0.06f));
    }

    for (int i = -2; i <= 2; i++)
        out[n++] =
            vec(0.55f * (float)i * f->nose_wide, NOSE_Y - 0.9f * f->nose_wide,
                0.70f + 0.6f * f->nose_long - 0.03f * (float)(i * i));
    for (int s = -1; s <= 1; s += 2)
        for (int i = 0; i < 6; i++)
            out[n++] = arc((float)s * f->eye_apart, EYE_Y, EYE_Z + 0.03f, 0.13f,
                           0.06f, 180 - 60 * (float)i);
    for (int i = 0; i < 12; i++)
        out[n++] = arc(0, MOUTH_Y, MOUTH_Z + 0.08f, 0.24f, f->lips,
                       180 - 30 * (float)i);
    for (int i = 0; i < 8; i++)
        out[n++] = arc(0, MOUTH_Y, MOUTH_Z + 0.09f, 0.18f, 0.3f * f->lips,
                       180 - 45 * (float)i);
    return n;
}

void face_points(const Face *f, const FaceLook *v, double out[2][FACE_POINTS])
{
    Vec point[FACE_POINTS];
    const int n = place_points(f, point);
    for (int i = 0; i < n; i++) {
        Vec p = turned(v->turn, point[i]);
        out[0][i] = (double)(v->column + v->zoom * p.x);
        out[1][i] = (double)(v->row - v->zoom * p.y);
    }
}
