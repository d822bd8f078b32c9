/* augment.c -- the SAMPLE steps: random changes of one sample, in place.
 *
 * Draws of a step: 0 decides, 1 and 2 are its parameters (flip: 0, 1, 2
 * decide for w, h, d), from 4 on one a voxel. They are keyed by the place of
 * the step, so a step that is left out does not disturb the others' draws. */
#include "prepare.h"
#include "rng.h"
#include <math.h>
#include <string.h>

enum { VOXEL_DRAWS = 4 };

/* Swap the blocks of `inner` floats k and n-1-k of each of `outer` rows. */
static void mirror(float *x, int64_t outer, int64_t n, int64_t inner)
{
    for (int64_t o = 0; o < outer; o++)
        for (int64_t k = 0; k < n / 2; k++) {
            float *a = x + (o * n + k) * inner;
            float *b = x + (o * n + n - 1 - k) * inner;
            for (int64_t i = 0; i < inner; i++) {
                float t = a[i];
                a[i] = b[i], b[i] = t;
            }
        }
}

/* All fields of the sample by the same draws, labels with their image. */
static void flip(const DataStep *s, const Rng *r, Sample *sample)
{
    // which of w, h, d each choice of steps.def names
    static const bool named[][3] = {
        [FLIP_W] = {true, false, false}, [FLIP_H] = {false, true, false},
        [FLIP_D] = {false, false, true}, [FLIP_HW] = {true, true, false},
        [FLIP_DHW] = {true, true, true},
    };
    for (int axis = 0; axis < 3; axis++) {
        if (!named[(int)s->flip.axis][axis]) continue;
        if (!((double)rng_uniform(r, (uint32_t)axis) < s->flip.p)) continue;
        for (int f = 0; f < sample->fields; f++) {
            Dims n = sample->dim[f];
            float *x = sample->data[f];
            if (!x) continue;
            // blocks of one voxel, of one row, of one slice change places
            if (axis == 0) mirror(x, (int64_t)n.d * n.h, n.w, n.c);
            if (axis == 1) mirror(x, n.d, n.h, (int64_t)n.w * n.c);
            if (axis == 2) mirror(x, 1, n.d, (int64_t)n.h * n.w * n.c);
        }
    }
}

/* One channel of an image of a sample: every step-th of count elements. */
typedef struct Channel {
    float *x;
    int64_t count, step;
} Channel;

/* The sum runs in double, in memory order: the same mean in every build. */
static void contrast(Channel c, float factor)
{
    double sum = 0;
    for (int64_t i = 0; i < c.count; i++) sum += (double)c.x[i * c.step];
    float mean = (float)(sum / (double)c.count);
    for (int64_t i = 0; i < c.count; i++)
        c.x[i * c.step] = mean + factor * (c.x[i * c.step] - mean);
}

static void brightness(Channel c, float by)
{
    for (int64_t i = 0; i < c.count; i++) c.x[i * c.step] += by;
}

/* lo and hi stay where they are, values between them bend. */
static void gamma_curve(Channel c, float exponent)
{
    float lo = c.x[0], hi = c.x[0];
    for (int64_t i = 0; i < c.count; i++) {
        lo = fminf(lo, c.x[i * c.step]);
        hi = fmaxf(hi, c.x[i * c.step]);
    }
    if (!(lo < hi)) return; // nothing to bend
    float span = hi - lo;
    for (int64_t i = 0; i < c.count; i++) {
        float *x = &c.x[i * c.step];
        *x = lo + span * powf((*x - lo) / span, exponent);
    }
}

/* x += sigma z for a whole image; draw `first + i` for element i.
 * Normal numbers come in pairs, one pair of draws for two voxels; `first` is
 * even. */
static void noise(float *x, int64_t n, float sigma, const Rng *r,
                  uint32_t first)
{
    for (int64_t i = 0; i < n; i += 2) {
        float z[2];
        rng_normal_pair(r, (first + (uint32_t)i) / 2, z);
        x[i] += sigma * z[0];
        if (i + 1 < n) x[i + 1] += sigma * z[1];
    }
}

/* A step that changes intensities, on every image of the sample. All images
 * and channels share the parameters, not the noise. */
static void intensity(const DataStep *s, double p, const Rng *r, Sample *sample)
{
    // images of a sample take their draws one behind the other
    uint32_t next = VOXEL_DRAWS;
    if (!((double)rng_uniform(r, 0) < p)) return;
    for (int f = 0; f < sample->fields; f++) {
        if (sample->kind[f] != FIELD_IMAGE || !sample->data[f]) continue;
        Dims n = sample->dim[f];
        float *x = sample->data[f];
        if (s->id == STEP_noise) {
            noise(x, numel(n), (float)s->noise.sigma, r, next);
            // even, so that pairs of one image do not reach into the next
            next += ((uint32_t)numel(n) + 1) / 2 * 2;
            continue;
        }
        for (int32_t k = 0; k < n.c; k++) {
            Channel c = {x + k, positions(n), n.c};
            if (s->id == STEP_contrast)
                contrast(c, rng_range(r, 1, (float)s->contrast.range[0],
                                      (float)s->contrast.range[1]));
            if (s->id == STEP_brightness)
                brightness(c, (float)s->brightness.by *
                                  (2 * rng_uniform(r, 1) - 1));
            if (s->id == STEP_gamma)
                gamma_curve(c, rng_range(r, 1, (float)s->gamma.range[0],
                                         (float)s->gamma.range[1]));
        }
    }
}

/* Steps run in the order of the list; volume and slice steps are passed
 * over. */
void augment_sample(const Steps *steps, uint64_t seed, uint32_t epoch,
                    uint32_t number, Sample *sample)
{
    for (int i = 0; i < steps->count; i++) {
        const DataStep *s = &steps->step[i];
        // the key of every draw: nothing here depends on which thread runs it
        const Rng r = {.seed = seed,
                       .stream = RNG_AUGMENT,
                       .op = (uint16_t)i,
                       .epoch = epoch,
                       .sample = number};
        switch (s->id) {
        case STEP_flip:
            flip(s, &r, sample);
            break;
        case STEP_contrast:
            intensity(s, s->contrast.p, &r, sample);
            break;
        case STEP_brightness:
            intensity(s, s->brightness.p, &r, sample);
            break;
        case STEP_gamma:
            intensity(s, s->gamma.p, &r, sample);
            break;
        case STEP_noise:
            intensity(s, s->noise.p, &r, sample);
            break;
        default: // of another phase
            break;
        }
    }
}
