/* apply.c -- tests of augmentation on the host: formulas, ranges of the random
 * draws, and that strength 0 changes no bit. */
#include "engine/base/rng.h"
#include "tests/support/volumes.h"
#include "tests/test.h"

enum { MOST = 40 * 40 * 3 };

/* Two images, a mask, numbers. */
typedef struct Made {
    float x[4][MOST];
    Sample s;
} Made;

static void case_make(Made *t, Dims n, int32_t length)
{
    Dims one = n, numbers = {1, 1, 1, 1, 4};
    one.c = 1;
    REQUIRE(numel(n) <= MOST);
    t->s =
        (Sample){.data = {t->x[0], t->x[1], t->x[2], t->x[3]},
                 .dim = {n, n, one, numbers},
                 .kind = {FIELD_IMAGE, FIELD_IMAGE, FIELD_LABEL, FIELD_NUMBER},
                 .fields = 4,
                 .length = length};
    const Rng r = {.seed = 8, .stream = RNG_TEST};
    for (int f = 0; f < 4; f++)
        for (uint32_t i = 0; i < numel(t->s.dim[f]); i++)
            t->x[f][i] = f == 2 ? (float)rng_below(&r, i, 6)
                                : rng_uniform(&r, i + (uint32_t)f * 10000);
}

static size_t bytes_of(const Made *t, int f)
{
    return (size_t)numel(t->s.dim[f]) * sizeof(float);
}

static bool same(const Made *a, const Made *b)
{
    for (int f = 0; f < 4; f++)
        if (memcmp(a->x[f], b->x[f], bytes_of(a, f))) return false;
    return true;
}

/* Makes sample `k` twice: unchanged as a, after these steps as b. */
static void both(const char *text, Dims n, int32_t length, uint32_t k, Made *a,
                 Made *b)
{
    Steps s = made_steps(text);
    case_make(a, n, length);
    case_make(b, n, length);
    EXPECT(augment_sample(&s, 6, 1, k, &b->s));
}

static const Dims colour = {1, 1, 12, 15, 3}, volume = {1, 5, 8, 9, 1},
                  sequence = {1, 1, 1, 40, 2};

TEST(change_of_no_strength_changes_nothing)
{
    static const char *const text[] = {
        "elastic amplitude=0,0 p=1\n",
        "affine rotate=0,0 scale=1,1 shift=0 p=1\n",
        "timeshift most=0 p=1\n",
        "timeshift most=0 p=1 beyond=wrap\n",
        "jitter brightness=0 contrast=0 saturation=0 hue=0\n",
        "bias by=0 p=1\n",
        "blur sigma=0,0 p=1\n",
        "lowres factor=1,1 p=1\n",
        "rician sigma=0 p=1\n",
        "noise sigma=0 p=1\n",
        "cutout size=0,0 p=1\n",
        "timemask most=0 p=1\n",
        "bands stretch=0 shift=0 p=1\n",
        "timemask p=0\ncutout p=0\nrician p=0\nlowres p=0\nblur p=0\n",
        "jitter p=0\nbias p=0\ntimeshift p=0\n"};

    for (size_t t = 0; t < sizeof text / sizeof *text; t++)
        for (uint32_t k = 0; k < 5; k++) {
            Made a, b;
            both(text[t], colour, 0, k, &a, &b);
            if (!same(&a, &b))
                test_failed(__FILE__, __LINE__, "%s changes", text[t]);
        }
}

/* Equal draws give equal bits; another epoch, sample or seed gives others. The
 * mask stays, unless the step moves it. */
TEST(change_is_what_was_drawn)
{
    static const char *const text[] = {"timeshift p=1 most=9\n",
                                       "jitter\n",
                                       "bias p=1\n",
                                       "blur p=1 sigma=0.5,2\n",
                                       "lowres p=1 factor=0.2,0.9\n",
                                       "rician p=1\n",
                                       "cutout p=1\n",
                                       "timemask p=1\n",
                                       "bands p=1\n"};

    for (size_t t = 0; t < sizeof text / sizeof *text; t++) {
        Steps s = made_steps(text[t]);
        int other = 0;
        for (uint32_t k = 0; k < 20; k++) {
            Made a, b, c, start;
            case_make(&start, colour, 0);
            both(text[t], colour, 0, k, &a, &b);
            both(text[t], colour, 0, k, &a, &c);
            EXPECT(same(&b, &c));
            case_make(&c, colour, 0);
            EXPECT(augment_sample(&s, k % 2 ? 6 : 7, k % 2 ? 2 : 1, k, &c.s));
            other += !same(&b, &c);
            if (t > 0) EXPECT(!memcmp(start.x[2], b.x[2], bytes_of(&b, 2)));
            EXPECT(!memcmp(start.x[3], b.x[3], bytes_of(&b, 3)));
        }
        EXPECT(other >= 15);
    }
}

TEST(change_flip_swaps_and_negates)
{
    const char *text = "flip axis=dhw p=0.5 negate=1,3 swap=1,4,5,2\n";
    static const float to[] = {0, 4, 5, 3, 1, 2};
    Steps s = made_steps(text), plain = made_steps("flip axis=dhw p=0.5\n");
    int mirrored = 0, turned = 0;

    for (uint32_t k = 0; k < 400; k++) {
        Made a, b, c;
        Change one[MAX_STEPS];
        both(text, volume, 0, k, &a, &b);
        case_make(&c, volume, 0);
        EXPECT(augment_sample(&plain, 6, 1, k, &c.s));
        REQUIRE(augment_decide(&s, 6, 1, k, volume, one) == 1);
        bool odd =
            (one[0].axes & 1) ^ (one[0].axes >> 1 & 1) ^ one[0].axes >> 2;
        mirrored += odd, turned += !odd && one[0].axes;
        EXPECT(!memcmp(b.x[0], c.x[0], bytes_of(&b, 0)));
        for (int i = 0; i < numel(b.s.dim[2]); i++)
            EXPECT(b.x[2][i] == (odd ? to[(int)c.x[2][i]] : c.x[2][i]));
        for (int i = 0; i < 4; i++)
            EXPECT(b.x[3][i] == (odd && i % 2 == 0 ? -a.x[3][i] : a.x[3][i]));
        // applied twice, a flip restores the sample
        EXPECT(augment_sample(&s, 6, 1, k, &b.s));
        EXPECT(same(&a, &b));
    }

    EXPECT(mirrored > 150 && turned > 100);
    Made a, b;
    both("flip p=1 negate=0\n", volume, 0, 0, &a, &b);
    for (int i = 0; i < 4; i++) EXPECT(b.x[3][i] == -a.x[3][i]);
    s = made_steps("flip p=1 negate=5\n");
    EXPECT_FAIL(augment_sample(&s, 1, 0, 0, &a.s),
                "negate has number 5, but a case has 4");
}

/* Without class numbers, the channels of maps are swapped, such as the left and
 * right parotids of OpenKBP; channels of images never are. */
TEST(change_flip_swaps_channels)
{
    Steps s = made_steps("flip axis=hw p=0.5 swap=1,3\n"),
          plain = made_steps("flip axis=hw p=0.5\n");
    int mirrored = 0, turned = 0;

    for (uint32_t k = 0; k < 100; k++) {
        Made a, b, c;
        Change one[MAX_STEPS];
        case_make(&a, colour, 0), case_make(&b, colour, 0);
        case_make(&c, colour, 0);
        a.s.kind[1] = b.s.kind[1] = a.s.kind[2] = b.s.kind[2] = FIELD_VALUE;
        EXPECT(augment_sample(&s, 6, 1, k, &a.s));
        EXPECT(augment_sample(&plain, 6, 1, k, &b.s));
        EXPECT(augment_sample(&s, 6, 1, k, &c.s)); // has class numbers
        REQUIRE(augment_decide(&s, 6, 1, k, colour, one) == 1);
        bool odd = (one[0].axes & 1) ^ (one[0].axes >> 1 & 1);
        mirrored += odd, turned += one[0].axes == 3;
        EXPECT(!memcmp(a.x[0], b.x[0], bytes_of(&a, 0)));
        EXPECT(!memcmp(a.x[2], b.x[2], bytes_of(&a, 2)));
        EXPECT(!memcmp(c.x[1], b.x[1], bytes_of(&a, 1)));
        for (int i = 0; i < numel(colour); i++)
            EXPECT(a.x[1][i] == b.x[1][odd ? i - i % 3 + 2 - i % 3 : i]);
    }

    EXPECT(mirrored > 30 && turned > 10);
    s = made_steps("flip p=1 swap=2,4\n");
    Made a;
    case_make(&a, colour, 0);
    a.s.kind[1] = a.s.kind[2] = FIELD_VALUE;
    EXPECT_FAIL(augment_sample(&s, 1, 0, 0, &a.s),
                "swap has channel 4, but a map has 3");
}

/* Padding stays at the end of a flipped sequence. */
TEST(change_keeps_padding)
{
    static const char *const text[] = {"flip p=1\n",
                                       "noise p=1\n",
                                       "timemask p=1 spans=9 fill=mean\n",
                                       "timeshift p=1 most=30\n",
                                       "timeshift p=1 most=30 beyond=wrap\n",
                                       "cutout p=1 boxes=9 size=0.5,1\n"};

    for (size_t t = 0; t < sizeof text / sizeof *text; t++)
        for (uint32_t k = 0; k < 50; k++) {
            Made a, b;
            both(text[t], sequence, 11, k, &a, &b);
            for (int i = 22; i < 80; i++) EXPECT(a.x[0][i] == b.x[0][i]);
            if (t == 0)
                for (int i = 0; i < 11; i++)
                    EXPECT(b.x[0][2 * i] == a.x[0][2 * (10 - i)] &&
                           b.x[2][i] == a.x[2][10 - i]);
            if (t == 1) EXPECT(memcmp(a.x[0], b.x[0], 22 * sizeof(float)));
        }
}

TEST(change_timeshift)
{
    int seen[11] = {0};
    for (uint32_t k = 0; k < 2200; k++)
        for (int wrap = 0; wrap < 2; wrap++) {
            Made a, b;
            Change c[MAX_STEPS];
            const char *text = wrap ? "timeshift most=5 p=1 beyond=wrap\n"
                                    : "timeshift most=5 p=1\n";
            Steps s = made_steps(text);
            REQUIRE(augment_decide(&s, 6, 1, k, sequence, c) == 1);
            int by = (int)c[0].number[0];
            REQUIRE(by >= -5 && by <= 5);
            seen[by + 5] += wrap;
            if (k > 50) continue;
            both(text, sequence, 0, k, &a, &b);
            for (int w = 0; w < 40; w++) {
                int from = w - by;
                if (wrap) from = (from + 40) % 40;
                from = from < 0 ? 0 : from > 39 ? 39 : from;
                EXPECT(b.x[0][2 * w + 1] == a.x[0][2 * from + 1]);
                EXPECT(b.x[1][2 * w] == a.x[1][2 * from]);
                EXPECT(b.x[2][w] == a.x[2][from]);
            }
        }

    // 200 expected of each, standard deviation 14
    for (int i = 0; i < 11; i++) EXPECT(seen[i] > 140 && seen[i] < 260);
}

TEST(change_timemask)
{
    int lengths[9] = {0}, first = 0, last = 0;
    for (uint32_t k = 0; k < 4500; k++) {
        Made a, b;
        both("timemask most=8 p=1\n", sequence, k % 2 ? 40 : 20, k, &a, &b);
        int from = -1, count = 0, own = k % 2 ? 40 : 20;
        for (int w = 0; w < 40; w++) {
            bool gone = b.x[0][2 * w] == 0 && b.x[0][2 * w + 1] == 0;
            EXPECT(gone || b.x[0][2 * w] == a.x[0][2 * w]);
            if (gone && from < 0) from = w;
            count += gone;
            EXPECT(gone == (b.x[1][2 * w] == 0)); // the same in every image
        }
        REQUIRE(count <= 8);
        lengths[count]++;
        if (count) EXPECT(from + count <= own);
        first += from == 0, last += from >= 0 && from + count == own;
    }

    for (int i = 0; i < 9; i++) EXPECT(lengths[i] > 400 && lengths[i] < 600);
    EXPECT(first > 80 && first < 260 && last > 80 && last < 260);
    Made a, b;
    both("timemask spans=3 most=40 p=1 fill=mean\n", sequence, 30, 2, &a, &b);
    double mean = 0;
    bool filled = false;
    for (int w = 0; w < 30; w++) mean += (double)a.x[0][2 * w + 1] / 30;
    for (int w = 0; w < 30; w++) {
        if (b.x[0][2 * w + 1] == a.x[0][2 * w + 1]) continue;
        EXPECT_NEAR(b.x[0][2 * w + 1], mean, 1e-6);
        filled = true;
    }
    EXPECT(filled);
}

/* The parameters are recovered from the result: a ramp shows the positions, a
 * constant the tilt; both are within their ranges. */
TEST(change_bands)
{
    static const Dims n = {1, 1, 1, 30, 21};
    double least[2] = {99, 99}, largest[2] = {-99, -99};
    int wiped[5] = {0};

    for (uint32_t k = 0; k < 1000; k++) {
        Made a, b;
        Steps s = made_steps("bands stretch=0.2 shift=2 p=1\n"),
              tilt = made_steps("bands stretch=0 shift=0 tilt=3 most=4 p=1\n");
        case_make(&a, n, 20);
        for (int i = 0; i < 30 * 21; i++) a.x[0][i] = (float)(i % 21);
        EXPECT(augment_sample(&s, 6, 1, k, &a.s));
        const double f = (double)a.x[0][11] - (double)a.x[0][10];
        const double by = (double)a.x[0][10] - 10;
        for (int i = 0; i < 30 * 21; i++) {
            const double place = 10 + (i % 21 - 10) * f + by;
            const double want = place < 0 ? 0 : place > 20 ? 20 : place;
            EXPECT_NEAR(a.x[0][i], i / 21 < 20 ? want : i % 21, 2e-5);
        }
        const double drawn[] = {f, by};
        for (int q = 0; q < 2; q++) {
            if (drawn[q] < least[q]) least[q] = drawn[q];
            if (drawn[q] > largest[q]) largest[q] = drawn[q];
        }
        case_make(&b, n, 0);
        for (int i = 0; i < 30 * 21; i++) b.x[0][i] = 100;
        EXPECT(augment_sample(&tilt, 6, 1, k, &b.s));
        int gone = 0, first = -1;
        for (int c = 0; c < 21; c++)
            if (b.x[0][c] == 0) gone++, first = first < 0 ? c : first;
        for (int c = 0; c < gone; c++) EXPECT(b.x[0][first + c] == 0);
        REQUIRE(gone <= 4);
        wiped[gone]++;
        if (gone) continue;
        // a u + b (3 u u - 1) / 2 at u = -1, 0, 1
        const double lo = (double)b.x[0][0] - 100,
                     hi = (double)b.x[0][20] - 100;
        const double mid = (double)b.x[0][10] - 100;
        EXPECT(fabs((hi - lo) / 2) <= 3.0001 && fabs(mid) <= 1.5001);
        EXPECT_NEAR((hi + lo) / 2, -2 * mid, 1e-4);
        EXPECT(!memcmp(b.x[0], b.x[0] + 21 * 29, 21 * sizeof(float)));
    }

    EXPECT(least[0] > 0.7999 && least[0] < 0.81 && largest[0] > 1.19 &&
           largest[0] < 1.2001);
    EXPECT(least[1] > -2.0001 && least[1] < -1.9 && largest[1] > 1.9 &&
           largest[1] < 2.0001);
    for (int i = 0; i < 5; i++) EXPECT(wiped[i] > 140 && wiped[i] < 260);
}

TEST(change_cutout)
{
    double share = 0, squares = 0, middle = 0;
    int count = 0;

    for (uint32_t k = 0; k < 3000; k++) {
        Made a, b;
        Dims n = {1, 1, 40, 40, 1};
        both("cutout p=1 size=0.1,0.4\n", n, 0, k, &a, &b);
        double mean = 0;
        int lo[2] = {99, 99}, hi[2] = {-1, -1}, gone = 0;
        for (int i = 0; i < 1600; i++) mean += (double)a.x[0][i] / 1600;
        for (int i = 0; i < 1600; i++) {
            if (a.x[0][i] == b.x[0][i]) continue;
            EXPECT_NEAR(b.x[0][i], mean, 1e-6);
            int at[] = {i % 40, i / 40};
            for (int q = 0; q < 2; q++) {
                if (at[q] < lo[q]) lo[q] = at[q];
                if (at[q] > hi[q]) hi[q] = at[q];
            }
            gone++;
        }
        // a complete box
        EXPECT_INT(gone, (hi[0] - lo[0] + 1) * (hi[1] - lo[1] + 1));
        for (int q = 0; q < 2; q++) {
            double side = (hi[q] - lo[q] + 1) / 40.0;
            EXPECT(side >= 0.1 && side <= 0.4);
            share += side, squares += side * side, count++;
            middle += (lo[q] + hi[q]) / 2.0;
        }
    }

    // uniform in 0.1 .. 0.4, rounded to 1 / 40
    EXPECT_NEAR(share / count, 0.25, 0.005);
    EXPECT_NEAR(squares / count - 0.0625, 0.3 * 0.3 / 12, 5e-4);
    EXPECT_NEAR(middle / count, 19.5, 0.5);
}

TEST(change_rician_is_a_magnitude)
{
    enum { N = 40 * 40 };
    Dims n = {1, 1, 40, 40, 1};
    double rest = 0, power = 0, high = 0;

    for (uint32_t k = 0; k < 100; k++) {
        Made a;
        Steps s = made_steps("rician p=1 sigma=0.1\n");
        case_make(&a, n, 0);
        // background at -2, one half at 1 above it
        for (int i = 0; i < N; i++) a.x[0][i] = i < N / 2 ? -2 : -1;
        EXPECT(augment_sample(&s, 6, 1, k, &a.s));
        for (int i = 0; i < N; i++) {
            double y = (double)a.x[0][i] + 2;
            EXPECT(y >= 0);
            if (i < N / 2) rest += y, power += y * y;
            if (i >= N / 2) high += y * y;
        }
    }

    // Rayleigh: mean sigma sqrt(pi / 2), mean square 2 sigma^2; plus A^2 with
    // signal A
    EXPECT_NEAR(rest / (50 * N), 0.1 * sqrt(acos(-1) / 2), 1e-3);
    EXPECT_NEAR(power / (50 * N), 0.02, 3e-4);
    EXPECT_NEAR(high / (50 * N), 1.02, 5e-3);
}

TEST(change_blur_is_gaussian)
{
    enum { ALL = 13 * 15 * 17, MIDDLE = (6 * 15 + 7) * 17 + 8 };
    Dims n = {1, 13, 15, 17, 1};
    double lo = 9, hi = 0, sum = 0;

    for (uint32_t k = 0; k < 1000; k++) {
        Made a;
        static float many[ALL];
        Steps s = made_steps("blur p=1 sigma=0.5,1.5\n");
        memset(many, 0, sizeof many);
        many[MIDDLE] = 1;
        a.s = (Sample){.data = {many}, .dim = {n}, .fields = 1};
        EXPECT(augment_sample(&s, 6, 1, k, &a.s));
        // the second moment along w is approximately sigma^2
        double total = 0, moment = 0;
        for (int i = 0; i < ALL; i++) {
            total += (double)many[i];
            moment += (double)many[i] * (i % 17 - 8) * (i % 17 - 8);
        }
        EXPECT_NEAR(total, 1, 1e-5);
        double sigma = sqrt(moment);
        lo = fmin(lo, sigma), hi = fmax(hi, sigma), sum += sigma;
        // neighbours along w, h, d are equal, and agree with the formula
        const Rng r = {6, RNG_AUGMENT, 0, 1, k};
        double want = (double)rng_range(&r, 4, 0.5f, 1.5f);
        EXPECT_NEAR(many[MIDDLE + 1] / many[MIDDLE], exp(-0.5 / want / want),
                    1e-5);
        EXPECT_NEAR(many[MIDDLE + 1], many[MIDDLE + 17], 1e-6);
        EXPECT_NEAR(many[MIDDLE + 1], many[MIDDLE + 17 * 15], 1e-6);
    }

    EXPECT(lo > 0.45 && lo < 0.5 && hi > 1.45 && hi < 1.52);
    EXPECT_NEAR(sum / 1000, 1, 0.03);

    // each channel has its own sigma, and a constant stays
    Made a, b;
    both("blur p=1 sigma=0.5,1.5\n", (Dims){1, 1, 1, 40, 2}, 0, 0, &a, &b);
    Steps s = made_steps("blur p=1 sigma=3,3\n");
    for (int i = 0; i < 80; i++) a.x[0][i] = 2.5f;
    EXPECT(augment_sample(&s, 6, 1, 0, &a.s));
    for (int i = 0; i < 80; i++) EXPECT_NEAR(a.x[0][i], 2.5, 1e-6);
}

TEST(change_lowres)
{
    static const char *const text[] = {"lowres p=1 factor=0.5,0.5 up=linear\n",
                                       "lowres p=1 factor=0.5,0.5\n",
                                       "lowres p=1 factor=0.05,0.05\n"};
    Dims n = {1, 1, 1, 12, 1};
    Made a;

    for (int t = 0; t < 3; t++) {
        Steps s = made_steps(text[t]);
        case_make(&a, n, 0);
        double v[6], *low = v;
        for (int i = 0; i < 12; i++) a.x[0][i] = (float)(i * i % 7);
        for (int i = 0; i < 6; i++) v[i] = (double)a.x[0][2 * i + 1];
        double middle = (double)a.x[0][6];
        EXPECT(augment_sample(&s, 6, 1, 0, &a.s));
        for (int i = 0; i < 12; i++) {
            double q = (i + 0.5) / 2 - 0.5, b = floor(q), f = q - b, want = 0;
            for (int k = -1; k < 3; k++) {
                int at = (int)b + k;
                at = at < 0 ? 0 : at > 5 ? 5 : at;
                double x = fabs(f - k), w = fmax(0, 1 - x);
                // Keys, a = -1/2
                if (t == 1)
                    w = x < 1   ? 1.5 * x * x * x - 2.5 * x * x + 1
                        : x < 2 ? -0.5 * x * x * x + 2.5 * x * x - 4 * x + 2
                                : 0;
                want += w * low[at];
            }
            EXPECT_NEAR(a.x[0][i], t == 2 ? middle : want, 1e-5);
        }
    }

    // factors fill their range: the 40 voxels take 20 to 40 values
    double lo = 1, hi = 0;

    for (uint32_t k = 0; k < 1000; k++) {
        Change c[MAX_STEPS];
        Steps s = made_steps("lowres p=1\n");
        REQUIRE(augment_decide(&s, 6, 1, k, n, c) == 1);
        lo = fmin(lo, c[0].number[0]), hi = fmax(hi, c[0].number[0]);
    }
    EXPECT(lo >= 0.5 && lo < 0.505 && hi <= 1 && hi > 0.995);
}

/* The field is smooth, the same for all images, and follows its formula. */
TEST(change_bias_is_its_polynomial)
{
    double squares = 0;
    for (uint32_t k = 0; k < 500; k++) {
        Made a;
        Steps s = made_steps("bias p=1 by=0.4 order=1\n");
        case_make(&a, volume, 0);
        a.x[0][100] = a.x[1][200] = -3; // background
        Made b = a;
        for (int f = 0; f < 4; f++) b.s.data[f] = b.x[f];
        EXPECT(augment_sample(&s, 6, 1, k, &b.s));
        const Rng r = {6, RNG_AUGMENT, 0, 1, k};
        double c[3]; // of w, h, d
        static const uint32_t draw[] = {1, 6, 36};
        for (int i = 0; i < 3; i++) {
            c[i] = 0.4 * (2 * (double)rng_uniform(&r, 4 + draw[i]) - 1);
            squares += c[i] * c[i];
        }
        for (int i = 0; i < 5 * 8 * 9; i++) {
            double field =
                exp(c[0] * (i % 9 / 4.0 - 1) + c[1] * (i / 9 % 8 / 3.5 - 1) +
                    c[2] * (i / 72 / 2.0 - 1));
            for (int f = 0; f < 2; f++)
                EXPECT_NEAR(b.x[f][i] + 3, field * ((double)a.x[f][i] + 3),
                            2e-5);
        }
    }
    EXPECT_NEAR(squares / 1500, 0.16 / 3, 0.003);
}
