/* augment.c -- tests of augmentation: the draws and their application to
 * samples. */
#include "engine/base/crc32c.h"
#include "engine/base/rng.h"
#include "tests/support/volumes.h"
#include "tests/test.h"

/* ---- augmentation ------------------------------------------------------- */

enum { H = 6, W = 5 };

/* One sample with an image and a mask that marks the same voxels. */
typedef struct Pair {
    float image[2 * H * W], mask[2 * H * W];
    Sample s;
} Pair;

static void pair_make(Pair *p)
{
    Dims n = {1, 2, H, W, 1};
    p->s = (Sample){.data = {p->image, p->mask},
                    .dim = {n, n},
                    .kind = {FIELD_IMAGE, FIELD_LABEL},
                    .fields = 2};
    for (int i = 0; i < 2 * H * W; i++) {
        p->image[i] = (float)((i * 37) % 60) / 10 - 2;
        p->mask[i] = p->image[i] > 1;
    }
}

TEST(augment_flip_takes_the_mask_along)
{
    Steps s = made_steps("flip axis=dhw p=0.5\n");
    int seen[3] = {0};

    for (uint32_t k = 0; k < 200; k++) {
        Pair p, q;
        pair_make(&p);
        pair_make(&q);
        augment_sample(&s, 9, 0, k, &q.s);
        for (int i = 0; i < 2 * H * W; i++)
            EXPECT(q.mask[i] == (q.image[i] > 1));
        // the position of the first voxel shows the mirrored axes
        const Rng r = {9, RNG_AUGMENT, 0, 0, k};
        bool f[3];
        for (uint32_t a = 0; a < 3; a++)
            seen[a] += f[a] = rng_uniform(&r, a) < 0.5f;
        for (int d = 0; d < 2; d++)
            for (int h = 0; h < H; h++)
                for (int w = 0; w < W; w++) {
                    int to =
                        ((f[2] ? 1 - d : d) * H + (f[1] ? H - 1 - h : h)) * W +
                        (f[0] ? W - 1 - w : w);
                    EXPECT(q.image[to] == p.image[(d * H + h) * W + w]);
                }
    }
    for (int a = 0; a < 3; a++) EXPECT(seen[a] > 70 && seen[a] < 130);
}

TEST(augment_ranges_and_formulas)
{
    static const char *text[] = {"contrast\n", "brightness\n", "gamma p=1\n"};
    double lo[3] = {9, 9, 9}, hi[3] = {-9, -9, -9};

    for (int kind = 0; kind < 3; kind++) {
        Steps s = made_steps(text[kind]);
        for (uint32_t k = 0; k < 500; k++) {
            Pair p, q;
            pair_make(&p);
            pair_make(&q);
            augment_sample(&s, 4, 1, k, &q.s);
            EXPECT(!memcmp(p.mask, q.mask, sizeof p.mask));
            double mean, std, factor;
            made_moments(p.image, 2 * H * W, &mean, &std);
            double x = (double)p.image[7], y = (double)q.image[7];
            if (kind == 0)
                factor = (y - mean) / (x - mean);
            else if (kind == 1)
                factor = y - x;
            else
                factor = log((y + 2) / 5.9) / log((x + 2) / 5.9);
            lo[kind] = fmin(lo[kind], factor);
            hi[kind] = fmax(hi[kind], factor);
            for (int i = 0; i < 2 * H * W; i++) {
                x = (double)p.image[i];
                double want = kind == 0 ? mean + factor * (x - mean)
                              : kind == 1
                                  ? x + factor
                                  : -2 + 5.9 * pow((x + 2) / 5.9, factor);
                EXPECT_NEAR(q.image[i], want, 2e-5);
            }
        }
    }

    // the draws fill their range and never leave it
    for (int kind = 0; kind < 3; kind++) {
        double middle = kind == 1 ? 0 : 1;
        EXPECT(lo[kind] >= middle - 0.1 - 1e-5 && lo[kind] < middle - 0.095);
        EXPECT(hi[kind] <= middle + 0.1 + 1e-5 && hi[kind] > middle + 0.095);
    }
}

TEST(augment_noise_is_normal_and_new_every_time)
{
    enum { N = 100 * 101 };
    static float x[N], y[N];
    Dims n = {1, 1, 100, 101, 1};
    Steps s = made_steps("noise sigma=0.05 p=1\n");
    Sample a = {.data = {x}, .dim = {n}, .fields = 1};
    Sample b = {.data = {y}, .dim = {n}, .fields = 1};
    double mean, std;
    memset(x, 0, sizeof x);
    memset(y, 0, sizeof y);
    augment_sample(&s, 1, 0, 0, &a);
    made_moments(x, N, &mean, &std);
    EXPECT_NEAR(mean, 0, 0.002);
    EXPECT_NEAR(std, 0.05, 0.002);
    augment_sample(&s, 1, 0, 0, &b);
    EXPECT(!memcmp(x, y, sizeof x));

    // another epoch, another sample, another seed: other values
    for (int k = 0; k < 3; k++) {
        memset(y, 0, sizeof y);
        augment_sample(&s, 1 + (k == 0), k == 1, k == 2, &b);
        int same = 0;
        for (int i = 0; i < N; i++) same += x[i] == y[i];
        EXPECT(same < 5);
    }
}

TEST(augment_probability)
{
    Steps s = made_steps("noise p=0.3\n");
    int changed = 0;

    for (uint32_t k = 0; k < 1000; k++) {
        Pair p, q;
        pair_make(&p);
        pair_make(&q);
        augment_sample(&s, 2, 0, k, &q.s);
        changed += memcmp(p.image, q.image, sizeof p.image) != 0;
    }

    EXPECT(changed > 250 && changed < 350);
    s = made_steps("noise p=0\ngamma p=0\nflip p=0\ncontrast p=0\n");
    Pair p, q;
    pair_make(&p);
    pair_make(&q);
    augment_sample(&s, 2, 0, 1, &q.s);
    EXPECT(!memcmp(p.image, q.image, sizeof p.image));
}

TEST(augment_constant_image_stays_finite)
{
    Steps s = made_steps("contrast\ngamma p=1\nbrightness by=0\n");
    Pair p;
    pair_make(&p);
    for (int i = 0; i < 2 * H * W; i++) p.image[i] = 3;
    augment_sample(&s, 2, 0, 1, &p.s);
    for (int i = 0; i < 2 * H * W; i++) EXPECT_NEAR(p.image[i], 3, 1e-6);
}

/* Augmented samples stay the same between versions: a recipe that is run again
 * gives the same values. Three images of two voxel sizes, a mask. */
typedef struct Trio {
    float x[3][3 * 4 * 7 * 2];
    Sample s;
} Trio;

static void trio_make(Trio *t, uint32_t number)
{
    const Rng r = {.seed = 5, .stream = RNG_TEST, .sample = number};
    Dims two = {1, 3, 4, 7, 2}, one = {1, 3, 4, 7, 1};
    t->s = (Sample){.data = {t->x[0], t->x[1], t->x[2]},
                    .dim = {one, two, one},
                    .kind = {FIELD_IMAGE, FIELD_IMAGE, FIELD_LABEL},
                    .fields = 3};
    for (int f = 0; f < 3; f++)
        for (uint32_t i = 0; i < numel(t->s.dim[f]); i++)
            t->x[f][i] =
                f < 2 ? rng_uniform(&r, i) * 3 - 1 : (float)rng_below(&r, i, 3);
}

/* Returns the CRC of 20 samples after these steps; *sum of their values. */
static uint32_t trio_crc(const char *steps, double *sum)
{
    Steps s = made_steps(steps);
    uint32_t crc = 0;
    *sum = 0;

    for (uint32_t k = 0; k < 20; k++) {
        Trio t;
        trio_make(&t, k);
        EXPECT(augment_sample(&s, 77, k % 3, k, &t.s));
        for (int f = 0; f < 3; f++) {
            int64_t n = numel(t.s.dim[f]);
            crc = crc32c(crc, t.x[f], (size_t)n * sizeof(float));
            // weighted by position
            for (int64_t i = 0; i < n; i++)
                *sum += (double)t.x[f][i] * (double)(1 + i % 7);
        }
    }
    return crc;
}

TEST(augment_is_what_it_was)
{
    double sum;
    EXPECT_INT(trio_crc("flip axis=dhw\ncontrast\nbrightness\n", &sum),
               0xdd42cd8d);

    // a map without rotation, which would use the library's sine
    EXPECT_INT(trio_crc("affine p=0.8 rotate=0,0 shift=0.2 scale=0.7,1.4\n"
                        "flip axis=hw\n",
                        &sum),
               0xc37ab9c8);

    // powers and logarithms depend on the mathematical library
    trio_crc("flip axis=dhw\ncontrast\nbrightness\ngamma p=0.7\n"
             "noise p=0.7\n",
             &sum);
    EXPECT_NEAR(sum, 16747.157, 1e-2);
}

/* augment_decide gives the parameters of each step at its position. */
TEST(augment_decides_for_each_step)
{
    Steps s = made_steps("normalize\nslices\nflip p=0\naffine p=1\n"
                         "contrast\nbrightness\ngamma p=1\nnoise p=1\n");
    static const int32_t kind[] = {CHANGE_NONE,     CHANGE_AFFINE,
                                   CHANGE_CONTRAST, CHANGE_BRIGHTNESS,
                                   CHANGE_GAMMA,    CHANGE_NOISE};
    Change c[MAX_STEPS];

    REQUIRE(augment_decide(&s, 1, 2, 3, (Dims){1, 1, 8, 8, 1}, c) == 6);
    for (int i = 0; i < 6; i++) EXPECT_INT(c[i].kind, kind[i]);
    EXPECT_INT(c[5].draw.op, 7);
    EXPECT_INT(c[5].draw.sample, 3);
    EXPECT_NEAR(c[5].amount, 0.05, 1e-7);
    s = made_steps("normalize\n");
    EXPECT_INT(augment_decide(&s, 1, 2, 3, (Dims){1, 1, 8, 8, 1}, c), 0);
}
