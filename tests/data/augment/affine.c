/* affine.c -- tests of rotation, scaling and translation of a sample. */
#include "engine/base/rng.h"
#include "tests/support/volumes.h"
#include "tests/test.h"

enum { MOST = 9 * 9 * 9 * 2 };

/* An image of c channels, a quantity and a mask with the same positions. */
typedef struct Turned {
    float x[3][MOST];
    Sample s;
} Turned;

static void turned_make(Turned *t, Dims n)
{
    Dims one = n;
    one.c = 1;
    REQUIRE(numel(n) <= MOST);
    t->s = (Sample){.data = {t->x[0], t->x[1], t->x[2]},
                    .dim = {n, one, one},
                    .kind = {FIELD_IMAGE, FIELD_VALUE, FIELD_LABEL},
                    .fields = 3};
    const Rng r = {.seed = 8, .stream = RNG_TEST};
    for (int f = 0; f < 3; f++)
        for (uint32_t i = 0; i < numel(t->s.dim[f]); i++)
            t->x[f][i] =
                f < 2 ? rng_uniform(&r, i) * 10 : (float)rng_below(&r, i, 5);
}

static float at(const Turned *t, int f, int d, int h, int w, int c)
{
    Dims n = t->s.dim[f];
    return t->x[f][((d * n.h + h) * n.w + w) * n.c + c];
}

TEST(affine_that_is_none_changes_nothing)
{
    Steps s = made_steps("affine rotate=0,0 scale=1,1 shift=0 p=1\n");
    static const Dims n[] = {{1, 1, 6, 5, 2}, {1, 4, 5, 6, 1}, {1, 1, 1, 1, 1}};

    for (int i = 0; i < 3; i++)
        for (uint32_t k = 0; k < 20; k++) {
            Turned a, b;
            turned_make(&a, n[i]);
            turned_make(&b, n[i]);
            EXPECT(augment_sample(&s, 1, 0, k, &b.s));
            for (int f = 0; f < 3; f++)
                EXPECT(!memcmp(a.x[f], b.x[f],
                               (size_t)numel(a.s.dim[f]) * sizeof(float)));
        }
}

/* A quarter turn: w goes to h, and the left side becomes the top. */
TEST(affine_turns_w_towards_h)
{
    Steps s = made_steps("affine rotate=90,90 scale=1,1 shift=0 p=1\n");
    for (int n = 5; n <= 6; n++) {
        Turned a, b;
        turned_make(&a, (Dims){1, 1, n, n, 2});
        turned_make(&b, (Dims){1, 1, n, n, 2});
        EXPECT(augment_sample(&s, 1, 0, 0, &b.s));
        for (int h = 0; h < n; h++)
            for (int w = 0; w < n; w++)
                for (int f = 0; f < 3; f++)
                    for (int c = 0; c < a.s.dim[f].c; c++)
                        EXPECT_NEAR(at(&b, f, 0, w, n - 1 - h, c),
                                    at(&a, f, 0, h, w, c), 1e-5);
    }
}

/* A quarter turn about all three axes of a cube: w goes to d, h to the other
 * end of h, d to w. */
TEST(affine_turns_a_volume_about_three_axes)
{
    enum { N = 5 };
    Steps s = made_steps("affine rotate=90,90 scale=1,1 shift=0 p=1\n");
    Turned a, b;
    turned_make(&a, (Dims){1, N, N, N, 1});
    turned_make(&b, (Dims){1, N, N, N, 1});
    EXPECT(augment_sample(&s, 1, 0, 0, &b.s));

    for (int d = 0; d < N; d++)
        for (int h = 0; h < N; h++)
            for (int w = 0; w < N; w++)
                for (int f = 0; f < 3; f++)
                    EXPECT_NEAR(at(&b, f, w, N - 1 - h, d, 0),
                                at(&a, f, d, h, w, 0), 1e-5);
}

/* Rotation about one axis alone: in the plane of the other two, as in a
 * slice. */
TEST(affine_turns_about_one_axis)
{
    static const struct {
        const char *steps;
        int d, h, w; // destination of the voxel at d, h, w = 0, 1, 3
    } row[] = {
        {"affine rotate=90,90 scale=1,1 shift=0 p=1 about=d\n", 0, 3, 3},
        {"affine rotate=90,90 scale=1,1 shift=0 p=1 about=h\n", 1, 1, 0},
        {"affine rotate=90,90 scale=1,1 shift=0 p=1 about=w\n", 1, 4, 3}};
    enum { N = 5 };

    for (int i = 0; i < 3; i++) {
        Steps s = made_steps(row[i].steps);
        Turned a, b;
        turned_make(&a, (Dims){1, N, N, N, 1});
        turned_make(&b, (Dims){1, N, N, N, 1});
        EXPECT(augment_sample(&s, 1, 0, 0, &b.s));
        for (int f = 0; f < 3; f++)
            EXPECT_NEAR(at(&b, f, row[i].d, row[i].h, row[i].w, 0),
                        at(&a, f, 0, 1, 3, 0), 1e-5);
    }
}

/* Nine angles of a circle, all equally frequent, and none in between. */
TEST(affine_turns_by_multiples)
{
    Steps s = made_steps("affine rotate=-170,165 scale=1,1 shift=0 p=1 about=w "
                         "step=40\n");
    int count[9] = {0};

    for (uint32_t k = 0; k < 9000; k++) {
        Change c[MAX_STEPS];
        REQUIRE(augment_decide(&s, 3, 0, k, (Dims){1, 9, 9, 9, 1}, c) == 1);
        // h and d rotate, w stays
        const double turned =
            atan2(c[0].map[1][2], c[0].map[1][1]) * 180 / acos(-1) / 40;
        EXPECT_NEAR(turned, round(turned), 1e-9);
        EXPECT_NEAR(c[0].map[0][0], 1, 0);
        REQUIRE(fabs(turned) < 4.5);
        count[(int)round(turned) + 4]++;
    }

    for (int i = 0; i < 9; i++) EXPECT(count[i] > 850 && count[i] < 1150);
    Steps none;
    EXPECT_FAIL(steps_parse("affine rotate=10,30 step=40\n", &none),
                "no multiple of step = 40 lies in rotate = {10, 30}");
    EXPECT_FAIL(steps_parse("affine step=0.0001\n", &none),
                "wanted 0 (any angle) or at least 0.001");
}

/* A ramp moves by the drawn translation; outside, the border is repeated. */
TEST(affine_moves_and_scales_a_ramp)
{
    enum { H = 7, W = 9 };
    Steps s = made_steps("affine rotate=0,0 scale=0.5,2 shift=0.25 p=1\n");
    bool beyond = false, smaller = false, larger = false;

    for (uint32_t k = 0; k < 50; k++) {
        Turned a;
        Change c[MAX_STEPS];
        Dims n = {1, 1, H, W, 1};
        turned_make(&a, n);
        for (int i = 0; i < H * W; i++) {
            a.x[0][i] = (float)(i % W) + 100 * (float)(i / W);
            a.x[2][i] = (float)(i % W);
        }
        REQUIRE(augment_decide(&s, 3, 0, k, n, c) == 1);
        // the formula: q = middle + (p - middle - move) / scale
        const Rng r = {3, RNG_AUGMENT, 0, 0, k};
        double scale = (double)rng_range(&r, 1, 0.5f, 2);
        double mw = 0.25 * W * (2 * (double)rng_uniform(&r, 2) - 1);
        double mh = 0.25 * H * (2 * (double)rng_uniform(&r, 3) - 1);
        smaller = smaller || scale < 0.6, larger = larger || scale > 1.8;
        EXPECT(augment_sample(&s, 3, 0, k, &a.s));
        for (int h = 0; h < H; h++)
            for (int w = 0; w < W; w++) {
                double qw = 4 + (w - 4 - mw) / scale;
                double qh = 3 + (h - 3 - mh) / scale;
                beyond = beyond || qw < -1 || qw > W;
                qw = fmin(fmax(qw, 0), W - 1), qh = fmin(fmax(qh, 0), H - 1);
                EXPECT_NEAR(at(&a, 0, 0, h, w, 0), qw + 100 * qh, 1e-3);
                EXPECT_NEAR(at(&a, 2, 0, h, w, 0), floor(qw + 0.5), 0);
            }
    }
    EXPECT(beyond && smaller && larger);
}

/* Angles and factors fill their whole ranges; a slice stays in its plane, a
 * volume does not. */
TEST(affine_draws_fill_their_ranges)
{
    Steps s = made_steps("affine rotate=-20,10 scale=0.8,1.5 shift=0 p=1\n");
    const double degree = acos(-1) / 180;
    double lo[2] = {99, 99}, hi[2] = {-99, -99};

    for (uint32_t k = 0; k < 1000; k++) {
        Change c[MAX_STEPS];
        REQUIRE(augment_decide(&s, 4, 0, k, (Dims){1, 1, 6, 9, 1}, c) == 1);
        REQUIRE(c[0].kind == CHANGE_AFFINE);
        double(*m)[4] = c[0].map;
        double v[] = {atan2(m[0][1], m[0][0]) / degree,
                      1 / hypot(m[0][0], m[0][1])};
        for (int i = 0; i < 2; i++)
            lo[i] = fmin(lo[i], v[i]), hi[i] = fmax(hi[i], v[i]);
        EXPECT(m[2][2] == 1 && m[2][0] == 0 && m[0][2] == 0 && m[2][3] == 0);
        // a rotation keeps lengths, and the middle stays
        REQUIRE(augment_decide(&s, 4, 0, k, (Dims){1, 5, 6, 9, 1}, c) == 1);
        EXPECT(m[2][0] != 0 && m[0][2] != 0 && m[1][2] != 0);
        for (int a = 0; a < 3; a++)
            for (int b = 0; b < 3; b++) {
                double dot = 0;
                for (int i = 0; i < 3; i++) dot += m[a][i] * m[b][i];
                EXPECT_NEAR(dot * v[1] * v[1], a == b, 1e-9);
            }
        const double middle[] = {4, 2.5, 2};
        for (int a = 0; a < 3; a++)
            EXPECT_NEAR(m[a][0] * 4 + m[a][1] * 2.5 + m[a][2] * 2 + m[a][3],
                        middle[a], 1e-9);
    }

    EXPECT(lo[0] >= -20 && lo[0] < -19.5 && hi[0] <= 10 && hi[0] > 9.5);
    EXPECT(lo[1] >= 0.8 - 1e-6 && lo[1] < 0.81 && hi[1] <= 1.5 + 1e-6 &&
           hi[1] > 1.49);
}

/* Labels stay existing classes; the map is the same for every field. */
TEST(affine_takes_the_mask_along)
{
    Steps s = made_steps("affine rotate=-45,45 shift=0.2 p=0.5\n");
    int changed = 0;

    for (uint32_t k = 0; k < 200; k++) {
        Turned a, b;
        turned_make(&a, (Dims){1, 4, 9, 8, 1});
        // the quantity equals the mask: linear and nearest then nearly agree
        for (int i = 0; i < 4 * 9 * 8; i++)
            a.x[0][i] = a.x[1][i] = a.x[2][i] = (float)(i % 8 > 3);
        b = a;
        for (int f = 0; f < 3; f++) b.s.data[f] = b.x[f];
        EXPECT(augment_sample(&s, 2, 1, k, &b.s));
        changed += memcmp(a.x[0], b.x[0], sizeof a.x[0]) != 0;
        EXPECT(!memcmp(b.x[0], b.x[1], sizeof(float) * 4 * 9 * 8));
        for (int i = 0; i < 4 * 9 * 8; i++) {
            EXPECT(b.x[2][i] == 0 || b.x[2][i] == 1);
            if (b.x[0][i] == 0 || b.x[0][i] == 1)
                EXPECT(b.x[2][i] == b.x[0][i]);
        }
    }
    EXPECT(changed > 70 && changed < 130);
}

TEST(affine_without_memory_says_so)
{
    Steps s = made_steps("affine p=1\n");
    Turned a;
    turned_make(&a, (Dims){1, 1, 6, 5, 1});
    mem_fail_after(0, false);
    EXPECT_FAIL(augment_sample(&s, 1, 0, 0, &a.s), "memory");
    mem_fail_after(-1, false);
}

/* Shear, rotation and scale, inverted by their definition: the voxel sampled at
 * q = m + z is at s R S z. */
TEST(affine_shears_before_it_turns)
{
    Steps s = made_steps("affine rotate=-50,50 scale=0.7,1.4 shift=0 p=1 "
                         "shear=-30,20\n");
    const double degree = acos(-1) / 180;
    double lo = 99, hi = -99;

    for (uint32_t k = 0; k < 1000; k++) {
        Change c[MAX_STEPS];
        const Rng r = {4, RNG_AUGMENT, 0, 0, k};
        double t[3], turn[3], factor = (double)rng_range(&r, 1, 0.7f, 1.4f);
        for (uint32_t i = 0; i < 3; i++) {
            double angle = (double)rng_range(&r, 8 + i, -30, 20);
            turn[i] = degree * (double)rng_range(&r, 5 + i, -50, 50);
            lo = fmin(lo, angle), hi = fmax(hi, angle);
            t[i] = tan(degree * angle);
        }
        for (int flat = 0; flat < 2; flat++) {
            Dims n = {1, flat ? 1 : 5, 6, 9, 1};
            REQUIRE(augment_decide(&s, 4, 0, k, n, c) == 1);
            const double m[] = {4, 2.5, flat ? 0 : 2};
            double z[] = {1.25, -0.5, flat ? 0 : 0.75}, p[3];
            // S
            p[0] = z[0] + t[0] * z[1] + (flat ? 0 : t[1] * z[2]);
            p[1] = z[1] + (flat ? 0 : t[2] * z[2]), p[2] = z[2];
            // R: w to h, d to w, h to d
            static const int from[] = {0, 2, 1}, to[] = {1, 0, 2};
            for (int i = 0; i < (flat ? 1 : 3); i++) {
                double a = p[from[i]], b = p[to[i]];
                p[from[i]] = cos(turn[i]) * a - sin(turn[i]) * b;
                p[to[i]] = sin(turn[i]) * a + cos(turn[i]) * b;
            }
            for (int a = 0; a < 3; a++) p[a] = m[a] + factor * p[a];
            if (flat) p[2] = 0;
            for (int a = 0; a < 3; a++) {
                const double *row = c[0].map[a];
                EXPECT_NEAR(row[0] * p[0] + row[1] * p[1] + row[2] * p[2] +
                                row[3],
                            m[a] + z[a], 1e-6);
            }
        }
    }
    EXPECT(lo >= -30 && lo < -29.5 && hi <= 20 && hi > 19.5);
}
