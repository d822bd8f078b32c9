/* augment.c -- the SAMPLE steps: what happens to a sample is drawn here.
 *
 * Draws of a step: 0 decides, those from 1 on are its parameters (flip: 0, 1, 2
 * decide for w, h, d), from CHANGE_DRAWS on noise has one a voxel. They are
 * keyed by the place of the step, so a step that is left out does not disturb
 * the others' draws. */
#include "prepare.h"
#include "rng.h"
#include <math.h>

static void decide_flip(const DataStep *s, Change *out)
{
    // which of w, h, d each choice of steps.def names
    static const bool named[][3] = {
        [FLIP_W] = {true, false, false}, [FLIP_H] = {false, true, false},
        [FLIP_D] = {false, false, true}, [FLIP_HW] = {true, true, false},
        [FLIP_DHW] = {true, true, true},
    };
    for (uint32_t axis = 0; axis < 3; axis++)
        if (named[(int)s->flip.axis][axis] &&
            (double)rng_uniform(&out->draw, axis) < s->flip.p)
            out->axes |= 1u << axis;
    out->kind = out->axes ? CHANGE_FLIP : CHANGE_NONE;
}

/* m = r m, r turning axis `from` towards axis `to`. */
static void turn(double m[3][3], int from, int to, double angle)
{
    double c = cos(angle), s = sin(angle);
    for (int k = 0; k < 3; k++) {
        double a = m[from][k], b = m[to][k];
        m[from][k] = c * a - s * b;
        m[to][k] = s * a + c * b;
    }
}

/* The sample is turned and scaled about its middle and then moved, so place
 * q = middle + R^T (p - middle - move) / scale is what shows at p. R turns w
 * towards h, then, in a volume, d towards w and h towards d. */
static void decide_affine(const DataStep *s, Dims n, Change *out)
{
    const Rng *r = &out->draw;
    const double extent[] = {n.w, n.h, n.d}, degree = acos(-1) / 180;
    const bool flat = n.d == 1; // a slice stays in its plane
    double m[3][3] = {{1, 0, 0}, {0, 1, 0}, {0, 0, 1}}, scale, angle[3];
    if (!((double)rng_uniform(r, 0) < s->affine.p)) return;
    scale = (double)rng_range(r, 1, (float)s->affine.scale[0],
                              (float)s->affine.scale[1]);
    for (uint32_t k = 0; k < 3; k++)
        angle[k] =
            degree * (double)rng_range(r, 5 + k, (float)s->affine.rotate[0],
                                       (float)s->affine.rotate[1]);
    turn(m, 0, 1, angle[0]);
    if (!flat) turn(m, 2, 0, angle[1]);
    if (!flat) turn(m, 1, 2, angle[2]);
    out->kind = CHANGE_AFFINE;
    for (int a = 0; a < 3; a++) {
        double at = (extent[a] - 1) / 2;
        for (int b = 0; b < 3; b++) {
            double move = s->affine.shift * extent[b] *
                          (2 * (double)rng_uniform(r, 2 + (uint32_t)b) - 1);
            if (b == 2 && flat) move = 0;
            // the inverse of a turn is its transpose; one of one slice maps
            // its d to itself
            double k = flat && (a == 2 || b == 2) ? a == b : m[b][a] / scale;
            out->map[a][b] = k;
            at -= k * ((extent[b] - 1) / 2 + move);
        }
        out->map[a][3] = at;
    }
}

/* An intensity step with these numbers, when it is drawn. */
static void decide(Change *out, double p, ChangeKind kind, float amount)
{
    if (!((double)rng_uniform(&out->draw, 0) < p)) return;
    out->kind = kind;
    out->amount = amount;
}

int augment_decide(const Steps *steps, uint64_t seed, uint32_t epoch,
                   uint32_t number, Dims dim, Change out[MAX_STEPS])
{
    int count = 0;
    for (int i = 0; i < steps->count; i++) {
        const DataStep *s = &steps->step[i];
        if (step_info[s->id].phase != STEP_SAMPLE) continue;
        Change *c = &out[count++];
        // the key of every draw: nothing here depends on which thread runs it
        const Rng r = {.seed = seed,
                       .stream = RNG_AUGMENT,
                       .op = (uint16_t)i,
                       .epoch = epoch,
                       .sample = number};
        *c = (Change){.kind = CHANGE_NONE, .draw = r};
        switch (s->id) {
        case STEP_flip:
            decide_flip(s, c);
            break;
        case STEP_affine:
            decide_affine(s, dim, c);
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
        default:
            CHECK(s->id == STEP_noise);
            decide(c, s->noise.p, CHANGE_NOISE, (float)s->noise.sigma);
        }
    }
    return count;
}

bool augment_sample(const Steps *steps, uint64_t seed, uint32_t epoch,
                    uint32_t number, Sample *sample)
{
    Change change[MAX_STEPS];
    int count =
        augment_decide(steps, seed, epoch, number, sample->dim[0], change);
    for (int i = 0; i < count; i++)
        if (!change_sample(&change[i], sample)) return false;
    return true;
}
