/* jitter.c -- tests of random brightness, contrast, saturation and hue. */
#include "data/augment/augment_inside.h"
#include "engine/base/rng.h"
#include "tests/support/volumes.h"
#include "tests/test.h"

enum { PIXELS = 8 * 9 };

static void colour_make(float x[3 * PIXELS], Sample *s, float top)
{
    Dims n = {1, 1, 8, 9, 3};
    const Rng r = {.seed = 8, .stream = RNG_TEST};
    for (uint32_t i = 0; i < 3 * PIXELS; i++) x[i] = top * rng_uniform(&r, i);
    x[0] = x[1] = x[2] = top / 2; // a gray pixel
    *s = (Sample){.data = {x}, .dim = {n}, .fields = 1};
}

static double cut(double v)
{
    return fmin(fmax(v, 0), 1);
}

static double gray(const double p[3])
{
    return 0.2989 * p[0] + 0.587 * p[1] + 0.114 * p[2];
}

/* Converts to hue, saturation and value and back, as in the textbook (Foley and
 * van Dam, 13.3). */
static void turn(double p[3], double by)
{
    double v = fmax(p[0], fmax(p[1], p[2])), m = fmin(p[0], fmin(p[1], p[2]));
    double s = v > 0 ? (v - m) / v : 0, h = 0;
    if (s == 0) return;
    double rc = (v - p[0]) / (v - m), gc = (v - p[1]) / (v - m);
    double bc = (v - p[2]) / (v - m);

    if (p[0] == v)
        h = bc - gc;
    else if (p[1] == v)
        h = 2 + rc - bc;
    else
        h = 4 + gc - rc;

    h = fmod(h / 6 + by + 2, 1) * 6;
    int i = (int)floor(h) % 6;
    double f = h - floor(h),
           q[] = {v * (1 - s), v * (1 - s * f), v * (1 - s * (1 - f)), v};
    static const int at[6][3] = {{3, 2, 0}, {1, 3, 0}, {0, 3, 2},
                                 {0, 1, 3}, {2, 0, 3}, {3, 0, 1}};
    for (int c = 0; c < 3; c++) p[c] = q[at[i][c]];
}

/* Every step in the order drawn, for 0..1 and for 0..255. */
TEST(jitter_is_its_definition)
{
    static float x[3 * PIXELS], y[3 * PIXELS];
    double lo[4] = {9, 9, 9, 9}, hi[4] = {-9, -9, -9, -9};
    int first[4] = {0};

    for (uint32_t k = 0; k < 2000; k++) {
        const float top = k % 2 ? 255 : 1;
        Steps s = made_steps(k % 2 ? "jitter contrast=0.3 hue=0.5 top=255\n"
                                   : "jitter contrast=0.3 hue=0.5\n");
        Sample a, b;
        Change c[MAX_STEPS];
        colour_make(x, &a, top);
        colour_make(y, &b, top);
        REQUIRE(augment_decide(&s, 3, 0, k, a.dim[0], c) == 1);
        bool seen[4] = {false};
        for (int i = 0; i < 4; i++) {
            seen[(int)c[0].number[i]] = true;
            lo[i] = fmin(lo[i], c[0].number[4 + i]);
            hi[i] = fmax(hi[i], c[0].number[4 + i]);
        }
        EXPECT(seen[0] && seen[1] && seen[2] && seen[3]);
        first[(int)c[0].number[0]]++;
        if (k >= 200) continue;
        static double p[PIXELS][3];
        for (int i = 0; i < 3 * PIXELS; i++)
            p[i / 3][i % 3] = (double)(x[i] / top);
        for (int w = 0; w < 4; w++) {
            int which = (int)c[0].number[w];
            double f = c[0].number[4 + which], mean = 0;
            for (int i = 0; i < PIXELS; i++) mean += gray(p[i]) / PIXELS;
            for (int i = 0; i < PIXELS; i++) {
                double g = gray(p[i]);
                if (which == 3) turn(p[i], f);
                for (int ch = 0; ch < 3 && which < 3; ch++)
                    p[i][ch] = cut(f * p[i][ch] + (1 - f) * (which == 0   ? 0
                                                             : which == 1 ? mean
                                                                          : g));
            }
        }
        EXPECT(augment_sample(&s, 3, 0, k, &b));
        for (int i = 0; i < 3 * PIXELS; i++)
            EXPECT_NEAR(y[i] / top, p[i / 3][i % 3], 2e-5);
    }

    static const double want[] = {0.2, 0.3, 0.2, 0.5};
    for (int i = 0; i < 4; i++) {
        double middle = i < 3;
        EXPECT(lo[i] >= middle - want[i] - 1e-6 &&
               lo[i] < middle - 0.97 * want[i]);
        EXPECT(hi[i] <= middle + want[i] + 1e-6 &&
               hi[i] > middle + 0.97 * want[i]);
        EXPECT(first[i] > 420 && first[i] < 580); // 500, deviation 19
    }
}

TEST(jitter_wants_colours)
{
    static float x[3 * PIXELS];
    Steps s = made_steps("jitter\n");
    Sample a;
    colour_make(x, &a, 255);
    EXPECT_FAIL(augment_sample(&s, 3, 0, 1, &a), "wanted 0 to top = 1");
    EXPECT_INT(err_kind(), ERR_DATA);
    colour_make(x, &a, 1);
    x[5] = -0.5f;
    EXPECT_FAIL(augment_sample(&s, 3, 0, 1, &a), "values of -0.5 to");
    a.dim[0].c = 1;
    EXPECT_FAIL(augment_sample(&s, 3, 0, 1, &a), "1 channel, wanted 3");
}

/* The bits do not depend on the vector width, nor on the position of a pixel in
 * a vector: all steps but contrast are functions of one pixel. */
TEST(jitter_same_bits_however_it_runs)
{
    enum { MOST = 200 };
    static float x[3 * MOST], y[3 * MOST], z[3 * MOST];
    const Rng r = {.seed = 4, .stream = RNG_TEST};

    for (int count = 1; count <= MOST; count++) {
        Steps s = made_steps("jitter hue=0.5 top=255\n");
        Dims n = {1, 1, 1, count, 3};
        Change c[MAX_STEPS];
        REQUIRE(augment_decide(&s, 9, 0, (uint32_t)count, n, c) == 1);
        for (uint32_t i = 0; i < 3 * MOST; i++)
            x[i] = floorf(256 * rng_uniform(&r, i % 97 + (uint32_t)count));
        const Image wide = {y, n, count, 0, 0}, plain = {z, n, count, 0, 0};
        memcpy(z, x, sizeof x);
        REQUIRE(jitter_by(4, &c[0], &plain));
        for (int floats = 8; floats <= 16; floats += 8) {
            memcpy(y, x, sizeof x);
            EXPECT(!jitter_by(floats, &c[0], &wide) || !memcmp(y, z, sizeof y));
        }
        memcpy(y, x, sizeof x);
        REQUIRE(jitter_change(&c[0], &wide));
        EXPECT(!memcmp(y, z, sizeof y));
        // memory after the image stays unchanged
        EXPECT(!memcmp(y + 3 * count, x + 3 * count,
                       sizeof *x * 3 * (size_t)(MOST - count)));
        c[0].number[4 + 1] = 1; // contrast
        memcpy(z, x, sizeof x);
        REQUIRE(jitter_by(4, &c[0], &plain));
        for (int i = 0; i < count; i++) {
            const Image one = {y, {1, 1, 1, 1, 3}, 1, 0, 0};
            memcpy(y, x + 3 * i, 3 * sizeof *x);
            REQUIRE(jitter_change(&c[0], &one));
            EXPECT(!memcmp(y, z + 3 * i, 3 * sizeof *x));
        }
    }
}

TEST(jitter_refuses_any_pixel_that_is_no_colour)
{
    enum { COUNT = 150 };
    static float x[3 * COUNT];
    Steps s = made_steps("jitter\n");
    Sample a = {.data = {x}, .dim = {{1, 1, 1, COUNT, 3}}, .fields = 1};
    for (int i = 0; i < 3 * COUNT; i++) {
        const float bad[] = {NAN, -0.1f, 1.5f};
        for (int k = 0; k < 3 * COUNT; k++) x[k] = 0.5f;
        x[i] = bad[i % 3];
        EXPECT_FAIL(augment_sample(&s, 3, 0, 1, &a), "wanted 0 to top = 1");
    }
}
