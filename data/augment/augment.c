/* augment.c -- draws the random numbers of the SAMPLE steps.
 *
 * Draws of a step: number 0 decides, those from 1 on are its parameters (flip:
 * 0, 1, 2 decide for w, h, d). From CHANGE_DRAWS on noise uses one per voxel,
 * and the draws made in apply.c begin there too. Draws are keyed by the
 * position of the step, so a step that is not applied does not change the draws
 * of the others. */
#include "data/augment/augment.h"
#include "data/steps/standardize.h"
#include "engine/base/rng.h"
#include <math.h>

static void decide_flip(const DataStep *s, Change *out)
{
    // the axes w, h, d of each choice of steps.def
    static const bool named[][3] = {
        [FLIP_W] = {true, false, false}, [FLIP_H] = {false, true, false},
        [FLIP_D] = {false, false, true}, [FLIP_HW] = {true, true, false},
        [FLIP_DHW] = {true, true, true},
    };
    for (uint32_t axis = 0; axis < 3; axis++)
        if (named[(int)s->flip.axis][axis] &&
            (double)rng_uniform(&out->draw, axis) < s->flip.p)
            out->axes |= 1u << axis;
    if (!out->axes) return;
    out->kind = CHANGE_FLIP;

    // two mirrors make a rotation
    const uint32_t a = out->axes;
    if (!((a ^ a >> 1 ^ a >> 2) & 1)) return;
    Mirrored *m = &out->mirrored;
    for (int i = 0; i < (int)s->flip.negate_count; i++)
        m->negate |= 1u << (uint32_t)s->flip.negate[i];
    for (int i = 0; i + 1 < (int)s->flip.swap_count; i += 2, m->swaps++)
        for (int k = 0; k < 2; k++)
            m->swap[m->swaps][k] = (uint8_t)s->flip.swap[i + k];
}

/* m = r m, where r rotates axis `from` towards axis `to`. */
static void turn(double m[3][3], int from, int to, double angle)
{
    double c = cos(angle), s = sin(angle);
    for (int k = 0; k < 3; k++) {
        double a = m[from][k], b = m[to][k];
        m[from][k] = c * a - s * b;
        m[to][k] = s * a + c * b;
    }
}

/* m = m S^-1, computed on the transpose: rows of m are columns of the rotation,
 * and S moves w by tan(angle 0) h + tan(angle 1) d and h by tan(angle 2) d. */
static void unshear(double m[3][3], const double angle[3])
{
    const double hw = tan(angle[0]), dw = tan(angle[1]), dh = tan(angle[2]);
    for (int b = 0; b < 3; b++) {
        m[b][1] -= dh * m[b][2];
        m[b][0] -= hw * m[b][1] + dw * m[b][2];
    }
}

/* Draws number `at` out of a range of angles in degrees; out of the multiples
 * of `step` if it is not 0. step_settle has checked that the range contains
 * one. */
static double draw_angle(const Rng *r, uint32_t at, const double range[2],
                         double step)
{
    if (step == 0)
        return (double)rng_range(r, at, (float)range[0], (float)range[1]);
    const double first = ceil(range[0] / step), last = floor(range[1] / step);
    return step * (first + rng_below(r, at, (uint32_t)(last - first) + 1));
}

/* The sample is sheared, rotated and scaled about its centre and then moved, so
 * voxel p of the result shows place q = centre + S^-1 R^T (p - centre - move) /
 * scale. R rotates w towards h, then, in a volume, d towards w and h towards
 * d. */
static void decide_affine(const DataStep *s, Dims n, Change *out)
{
    const Rng *r = &out->draw;
    const double extent[] = {n.w, n.h, n.d}, degree = acos(-1) / 180;
    const bool flat = n.d == 1; // a slice stays in its plane
    double m[3][3] = {{1, 0, 0}, {0, 1, 0}, {0, 0, 1}}, scale, angle[3];
    double shear[3] = {0};

    if (!((double)rng_uniform(r, 0) < s->affine.p)) return;
    scale = (double)rng_range(r, 1, (float)s->affine.scale[0],
                              (float)s->affine.scale[1]);

    // the axes of the three rotations
    static const int about[] = {ABOUT_D, ABOUT_H, ABOUT_W};

    for (uint32_t k = 0; k < 3; k++)
        angle[k] =
            flat || s->affine.about == ABOUT_ALL || s->affine.about == about[k]
                ? degree *
                      draw_angle(r, 5 + k, s->affine.rotate, s->affine.step)
                : 0;

    for (uint32_t k = 0; k < (flat ? 1 : 3); k++)
        shear[k] =
            degree * (double)rng_range(r, 8 + k, (float)s->affine.shear[0],
                                       (float)s->affine.shear[1]);
    turn(m, 0, 1, angle[0]);
    if (!flat) turn(m, 2, 0, angle[1]);
    if (!flat) turn(m, 1, 2, angle[2]);

    // without shear this changes no bit
    unshear(m, shear);
    out->kind = CHANGE_AFFINE;

    for (int a = 0; a < 3; a++) {
        double at = (extent[a] - 1) / 2;
        for (int b = 0; b < 3; b++) {
            double move = s->affine.shift * extent[b] *
                          (2 * (double)rng_uniform(r, 2 + (uint32_t)b) - 1);
            if (b == 2 && flat) move = 0;
            // the inverse of a rotation is its transpose; in a single slice d
            // maps to itself
            double k = flat && (a == 2 || b == 2) ? a == b : m[b][a] / scale;
            out->map[a][b] = k;
            at -= k * ((extent[b] - 1) / 2 + move);
        }
        out->map[a][3] = at;
    }
}

/* One displacement grid for all fields of a sample. */
static void decide_elastic(const DataStep *s, Dims n, Change *out)
{
    const double *a = s->elastic.amplitude, k = s->elastic.spacing;
    if (!((double)rng_uniform(&out->draw, 0) < s->elastic.p)) return;
    out->kind = CHANGE_ELASTIC;
    out->elastic = (Elastic){
        .spacing = k,
        .amplitude = (double)rng_range(&out->draw, 1, (float)a[0], (float)a[1]),
        .n = {spline_points(k, n.w), spline_points(k, n.h),
              spline_points(k, n.d)}};
}

/* Draws a permutation of 0, 1, 2, 3 and four factors, as number[0 .. 3] and [4
 * .. 7]; number[8] is the largest value. */
static void decide_jitter(const DataStep *s, Change *out)
{
    const Rng *r = &out->draw;
    const double by[] = {s->jitter.brightness, s->jitter.contrast,
                         s->jitter.saturation, s->jitter.hue};
    uint32_t order[4];

    if (!((double)rng_uniform(r, 0) < s->jitter.p)) return;
    out->kind = CHANGE_JITTER;

    // draws 1 to 4 are the factors, draws from 8 on the order
    for (uint32_t i = 0; i < 4; i++) order[i] = i;
    for (uint32_t i = 3; i > 0; i--) {
        uint32_t j = rng_below(r, 8 + i, i + 1), t = order[i];
        order[i] = order[j], order[j] = t;
    }
    for (uint32_t i = 0; i < 4; i++) {
        double u = 2 * (double)rng_uniform(r, 1 + i) - 1;
        out->number[i] = order[i];
        out->number[4 + i] = (i < 3 ? 1 : 0) + by[i] * u;
    }
    out->number[8] = s->jitter.top;
}

/* Sets number[] to a, b, c if the step is drawn. */
static void decide_numbers(Change *out, double p, ChangeKind kind, double a,
                           double b, double c)
{
    if (!((double)rng_uniform(&out->draw, 0) < p)) return;
    out->kind = kind;
    out->number[0] = a, out->number[1] = b, out->number[2] = c;
}

/* Sets an intensity change if the step is drawn. */
static void decide(Change *out, double p, ChangeKind kind, float amount)
{
    if (!((double)rng_uniform(&out->draw, 0) < p)) return;
    out->kind = kind;
    out->amount = amount;
}

/* Decides the change of step `s`; c->draw is its random generator. */
static void decide_step(const DataStep *s, Dims dim, Change *c)
{
    const Rng r = c->draw;
    switch (s->id) {
    case STEP_flip:
        decide_flip(s, c);
        break;
    case STEP_affine:
        decide_affine(s, dim, c);
        break;
    case STEP_elastic:
        decide_elastic(s, dim, c);
        break;
    case STEP_timeshift: {
        const uint32_t most = (uint32_t)s->timeshift.most;
        const double by = (double)rng_below(&r, 1, 2 * most + 1) - most;
        decide_numbers(c, s->timeshift.p, CHANGE_TIMESHIFT, by,
                       s->timeshift.beyond, 0);
        break;
    }
    case STEP_jitter:
        decide_jitter(s, c);
        break;
    case STEP_bias:
        decide_numbers(c, s->bias.p, CHANGE_BIAS, s->bias.by, s->bias.order, 0);
        break;
    case STEP_contrast:
        decide(c, s->contrast.p, CHANGE_CONTRAST,
               rng_range(&r, 1, (float)s->contrast.range[0],
                         (float)s->contrast.range[1]));
        break;
    case STEP_brightness:
        decide(c, s->brightness.p, CHANGE_BRIGHTNESS,
               (float)s->brightness.by * (2 * rng_uniform(&r, 1) - 1));
        break;
    case STEP_gamma:
        decide(c, s->gamma.p, CHANGE_GAMMA,
               rng_range(&r, 1, (float)s->gamma.range[0],
                         (float)s->gamma.range[1]));
        break;
    case STEP_blur:
        decide_numbers(c, s->blur.p, CHANGE_BLUR, s->blur.sigma[0],
                       s->blur.sigma[1], 0);
        break;
    case STEP_lowres:
        decide_numbers(c, s->lowres.p, CHANGE_LOWRES,
                       (double)rng_range(&r, 1, (float)s->lowres.factor[0],
                                         (float)s->lowres.factor[1]),
                       s->lowres.up, 0);
        break;
    case STEP_rician:
        decide(c, s->rician.p, CHANGE_RICIAN, (float)s->rician.sigma);
        break;
    case STEP_cutout:
        decide_numbers(c, s->cutout.p, CHANGE_CUTOUT, s->cutout.boxes,
                       s->cutout.size[0], s->cutout.size[1]);
        break;
    case STEP_timemask:
        decide_numbers(c, s->timemask.p, CHANGE_TIMEMASK, s->timemask.spans,
                       s->timemask.most, s->timemask.fill);
        break;
    case STEP_bands:
        decide_numbers(c, s->bands.p, CHANGE_BANDS, s->bands.stretch,
                       s->bands.shift, s->bands.tilt);
        c->number[3] = s->bands.most;
        break;
    case STEP_vary:
        decide_numbers(c, 1, CHANGE_FUNCTION, s->vary.code, s->vary.with, 0);
        break;
    default:
        CHECK(s->id == STEP_noise);
        decide(c, s->noise.p, CHANGE_NOISE, (float)s->noise.sigma);
    }
}

int augment_decide(const Steps *steps, uint64_t seed, uint32_t epoch,
                   uint32_t number, Dims dim, Change out[MAX_STEPS])
{
    int count = 0;
    for (int i = 0; i < steps->count; i++) {
        const DataStep *s = &steps->step[i];
        if (step_info[s->id].phase != STEP_SAMPLE) continue;
        Change *c = &out[count++];
        // the key of every draw: independent of threads
        const Rng r = {.seed = seed,
                       .stream = RNG_AUGMENT,
                       .op = (uint16_t)i,
                       .epoch = epoch,
                       .sample = number};
        *c = (Change){.kind = CHANGE_NONE, .draw = r};
        decide_step(s, dim, c);
    }
    return count;
}

bool augment_sample(const Steps *steps, uint64_t seed, uint32_t epoch,
                    uint32_t number, Sample *sample)
{
    Change change[MAX_STEPS];
    float zero[MAX_STEP_REALS];
    if (sample->ds) sample->zero = standardize_zero(steps, sample->ds, zero);
    int count =
        augment_decide(steps, seed, epoch, number, sample->dim[0], change);
    bool ok = true;
    for (int i = 0; ok && i < count; i++)
        ok = change_sample(&change[i], sample);
    sample->zero = NULL; // it points to memory of this call
    return ok;
}

bool augment_on_device(const Steps *steps, const Dataset *ds)
{
    bool length = false;
    for (int f = 0; f < ds->fields; f++)
        length = length || ds->field[f].kind == FIELD_LENGTH;

    for (int i = 0; i < steps->count; i++) {
        const DataStep *s = &steps->step[i];
        const StepInfo *info = &step_info[s->id];
        if (info->phase != STEP_SAMPLE) continue;
        switch (s->id) {
        case STEP_flip:
            if (s->flip.negate_count > 0 || s->flip.swap_count > 0)
                return fail_usage(
                    "only the host's loader can flip with negate or swap");
            if (length && s->flip.axis != FLIP_H && s->flip.axis != FLIP_D)
                return fail_usage("only the host's loader can flip sequences "
                                  "with a length along w");
            break;
        case STEP_noise:
            if (length)
                return fail_usage("only the host's loader can add noise to "
                                  "sequences with a length");
            break;
        case STEP_affine:
        case STEP_elastic:
        case STEP_contrast:
        case STEP_brightness:
        case STEP_gamma:
            break;
        default:
            return fail_usage(
                "augment has %s, which only the host's loader can run",
                info->name);
        }
    }
    return true;
}
