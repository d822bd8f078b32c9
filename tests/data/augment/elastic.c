/* elastic.c -- tests of smooth random displacements, and that the row-wise
 * lookup equals the plain definition. */
#include "data/augment/augment_inside.h"
#include "engine/base/rng.h"
#include "tests/support/volumes.h"
#include "tests/test.h"

enum { MOST = 11 * 13 * 17 * 2 };

/* An image of c channels, a quantity, a mask. */
typedef struct Bent {
    float x[3][MOST];
    Sample s;
} Bent;

static void bent_make(Bent *b, Dims n, uint32_t seed)
{
    Dims one = n;
    one.c = 1;
    REQUIRE(numel(n) <= MOST);
    b->s = (Sample){.data = {b->x[0], b->x[1], b->x[2]},
                    .dim = {n, one, one},
                    .kind = {FIELD_IMAGE, FIELD_VALUE, FIELD_LABEL},
                    .fields = 3};
    const Rng r = {.seed = seed, .stream = RNG_TEST};
    for (int f = 0; f < 3; f++)
        for (uint32_t i = 0; i < numel(b->s.dim[f]); i++)
            b->x[f][i] =
                f < 2 ? rng_uniform(&r, i) * 10 : (float)rng_below(&r, i, 5);
}

static const Dims shapes[] = {
    {1, 11, 13, 17, 2}, {1, 1, 13, 17, 1}, {1, 5, 6, 7, 1},
    {1, 1, 9, 8, 2},    {1, 1, 1, 33, 2},  {1, 1, 1, 1, 1},
    {1, 2, 2, 2, 1},    {1, 3, 1, 5, 1},   {1, 4, 5, 1, 1}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

TEST(elastic_that_is_none_changes_nothing)
{
    Steps s = made_steps("elastic amplitude=0,0 p=1\n");
    for (int i = 0; i < SHAPES; i++) {
        Bent a, b;
        bent_make(&a, shapes[i], 3);
        bent_make(&b, shapes[i], 3);
        EXPECT(augment_sample(&s, 1, 0, 7, &b.s));
        for (int f = 0; f < 3; f++)
            EXPECT(!memcmp(a.x[f], b.x[f],
                           (size_t)numel(a.s.dim[f]) * sizeof(float)));
    }
}

/* The cubic B-spline of the textbook, 0 beyond 2. */
static double b3(double t)
{
    t = fabs(t);
    if (t >= 2) return 0;
    if (t >= 1) return (2 - t) * (2 - t) * (2 - t) / 6;
    return 2.0 / 3 - t * t + t * t * t / 2;
}

/* Computes the position by the formula of steps.def, with all control points
 * for every voxel. */
static void place_of(const Rng *r, double spacing, double a, Dims n,
                     const int v[3], double q[3])
{
    const int size[] = {n.w, n.h, n.d};
    int points[3];
    for (int k = 0; k < 3; k++)
        points[k] = size[k] == 1 ? 1 : (int)floor((size[k] - 1) / spacing) + 4;
    for (int k = 0; k < 3; k++) q[k] = v[k];
    uint32_t at = 0;

    for (int d = 0; d < points[2]; d++)
        for (int h = 0; h < points[1]; h++)
            for (int w = 0; w < points[0]; w++, at++) {
                const int i[] = {w, h, d};
                double b = 1;
                for (int k = 0; k < 3; k++)
                    if (size[k] > 1) b *= b3(v[k] / spacing - (i[k] - 1));
                for (uint32_t k = 0; k < 3; k++) {
                    double u = (double)rng_uniform(r, 4 + 4 * at + k);
                    q[k] += b * a * (2 * u - 1);
                }
            }
    for (int k = 0; k < 3; k++) q[k] = fmin(fmax(q[k], 0), size[k] - 1);
}

/* Trilinear interpolation from eight corners. */
static double mix(const float *x, Dims n, const double q[3], int c)
{
    const int size[] = {n.w, n.h, n.d};
    double sum = 0;

    for (int k = 0; k < 8; k++) {
        double weight = 1;
        int at[3];
        for (int a = 0; a < 3; a++) {
            int low = (int)q[a], up = k >> a & 1;
            weight *= up ? q[a] - low : 1 - (q[a] - low);
            at[a] = low + up < size[a] ? low + up : low;
        }
        sum +=
            weight * (double)x[((at[2] * n.h + at[1]) * n.w + at[0]) * n.c + c];
    }
    return sum;
}

TEST(elastic_is_its_definition)
{
    Steps s = made_steps("elastic spacing=5 amplitude=0.5,2 p=1\n");
    int wrong = 0, labels = 0;

    for (int i = 0; i < SHAPES; i++)
        for (uint32_t k = 0; k < 3; k++) {
            Bent a, b;
            Dims n = shapes[i];
            bent_make(&a, n, 3);
            bent_make(&b, n, 3);
            EXPECT(augment_sample(&s, 1, 2, k, &b.s));
            const Rng r = {1, RNG_AUGMENT, 0, 2, k};
            double amp = 0.5 + 1.5 * (double)rng_uniform(&r, 1);
            for (int at = 0; at < n.d * n.h * n.w; at++) {
                const int v[] = {at % n.w, at / n.w % n.h, at / n.w / n.h};
                double q[3];
                place_of(&r, 5, amp, n, v, q);
                for (int c = 0; c < n.c; c++)
                    EXPECT_NEAR(b.x[0][at * n.c + c], mix(a.x[0], n, q, c),
                                1e-4);
                Dims one = n;
                one.c = 1;
                EXPECT_NEAR(b.x[1][at], mix(a.x[1], one, q, 0), 1e-4);
                int near =
                    ((int)floor(q[2] + 0.5) * n.h + (int)floor(q[1] + 0.5)) *
                        n.w +
                    (int)floor(q[0] + 0.5);
                labels++, wrong += b.x[2][at] != a.x[2][near];
            }
        }
    EXPECT(labels > 5000 && wrong == 0);
}

/* Applies a change voxel by voxel with the functions of the device; the
 * row-wise code must give the same bits. */
static void plain(const Change *c, const Bent *from, Bent *to)
{
    static double points[3 * 4096];
    if (c->kind == CHANGE_ELASTIC) {
        REQUIRE(elastic_points(&c->elastic) <= 4096);
        for (int64_t i = 0; i < elastic_points(&c->elastic); i++)
            elastic_point(&c->elastic, &c->draw, i, points + 3 * i);
    }

    for (int f = 0; f < 3; f++) {
        Dims n = from->s.dim[f];
        float *y = to->x[f];
        const ChangeSource s = {from->x[f], n, 0};
        for (int d = 0; d < n.d; d++)
            for (int h = 0; h < n.h; h++)
                for (int w = 0; w < n.w; w++, y += n.c) {
                    double q[3];
                    change_places(c, points, w, h, d, q);
                    if (f < 2)
                        change_between(&s, q, y);
                    else
                        *y = from->x[f][change_voxel(
                            n, 0, change_nearest(q[0], n.w),
                            change_nearest(q[1], n.h),
                            change_nearest(q[2], n.d))];
                }
    }
}

TEST(elastic_and_affine_rows_are_the_plain_definition)
{
    static const char *const text[] = {
        "elastic spacing=4 amplitude=1.6,1.6 p=1\n",
        "elastic spacing=6.5 amplitude=0,2.6 p=1\n",
        "affine rotate=-60,60 scale=0.5,2 shift=0.3 p=1 shear=-30,30\n",
        "affine rotate=0,0 scale=1,1 shift=0 p=1\n"};

    for (int t = 0; t < 4; t++)
        for (int i = 0; i < SHAPES; i++)
            for (uint32_t k = 0; k < 6; k++) {
                Steps s = made_steps(text[t]);
                Change c[MAX_STEPS];
                Bent a, b, want;
                bent_make(&a, shapes[i], k);
                bent_make(&b, shapes[i], k);
                REQUIRE(augment_decide(&s, 5, 0, k, shapes[i], c) == 1);
                plain(&c[0], &a, &want);
                EXPECT(change_sample(&c[0], &b.s));
                for (int f = 0; f < 3; f++)
                    EXPECT(!memcmp(want.x[f], b.x[f],
                                   (size_t)numel(a.s.dim[f]) * sizeof(float)));
            }
}

/* Amplitudes fill their range; displacements stay below them, have both signs
 * equally often, and keep the order along an axis: no folding. */
TEST(elastic_draws_and_does_not_fold)
{
    Steps s = made_steps("elastic spacing=4 amplitude=0.4,1.6 p=1\n");
    double lo = 9, hi = -9, sum[3] = {0}, squares[3] = {0}, amps = 0;
    int count = 0;

    for (uint32_t k = 0; k < 2000; k++) {
        static double points[3 * 512];
        Change c[MAX_STEPS];
        Dims n = {1, 6, 7, 8, 1};
        REQUIRE(augment_decide(&s, 4, 0, k, n, c) == 1);
        const Elastic *e = &c[0].elastic;
        lo = fmin(lo, e->amplitude), hi = fmax(hi, e->amplitude);
        REQUIRE(elastic_points(e) == 5 * 5 * 5);
        for (int64_t i = 0; i < 125; i++) {
            double *p = points + 3 * i;
            elastic_point(e, &c[0].draw, i, p);
            for (int a = 0; a < 3; a++) {
                EXPECT(fabs(p[a]) <= e->amplitude);
                sum[a] += p[a], squares[a] += p[a] * p[a];
            }
            amps += e->amplitude * e->amplitude, count++;
        }
        for (int h = 0; h < 7; h++) {
            double before = -99;
            for (int w = 0; w < 8; w++) {
                double u[3];
                elastic_move(e, points, w, h, 3, u);
                for (int a = 0; a < 3; a++) EXPECT(fabs(u[a]) <= e->amplitude);
                EXPECT(w + u[0] > before);
                before = w + u[0];
            }
        }
    }

    EXPECT(lo >= 0.4 - 1e-6 && lo < 0.41 && hi <= 1.6 + 1e-6 && hi > 1.59);
    for (int a = 0; a < 3; a++) {
        // uniform in -a .. a: mean 0, mean square a^2 / 3
        EXPECT_NEAR(sum[a] / count, 0, 0.006);
        EXPECT_NEAR(3 * squares[a] / amps, 1, 0.01);
    }
}

/* Labels stay existing classes, displaced equally in every field; another epoch
 * gives other displacements, the same epoch the same. */
TEST(elastic_takes_the_mask_along)
{
    Steps s = made_steps("elastic spacing=6 amplitude=2,2.4 p=0.5\n");
    int changed = 0, other = 0;

    for (uint32_t k = 0; k < 200; k++) {
        Bent a, b, again, later;
        Dims n = {1, 4, 9, 8, 1};
        bent_make(&a, n, 1);
        for (int i = 0; i < 4 * 9 * 8; i++)
            a.x[0][i] = a.x[1][i] = a.x[2][i] = (float)(i % 8 > 3) * 3;
        b = again = later = a;
        for (int f = 0; f < 3; f++) {
            b.s.data[f] = b.x[f], again.s.data[f] = again.x[f];
            later.s.data[f] = later.x[f];
        }
        EXPECT(augment_sample(&s, 2, 1, k, &b.s));
        EXPECT(augment_sample(&s, 2, 1, k, &again.s));
        EXPECT(augment_sample(&s, 2, 2, k, &later.s));
        size_t bytes = sizeof(float) * 4 * 9 * 8;
        changed += memcmp(a.x[0], b.x[0], bytes) != 0;
        other += memcmp(later.x[0], b.x[0], bytes) != 0;
        EXPECT(!memcmp(b.x[0], b.x[1], bytes));
        EXPECT(!memcmp(b.x[0], again.x[0], bytes));
        for (int i = 0; i < 4 * 9 * 8; i++) {
            EXPECT(b.x[2][i] == 0 || b.x[2][i] == 3);
            if (b.x[0][i] == 0 || b.x[0][i] == 3)
                EXPECT(b.x[2][i] == b.x[0][i]);
        }
    }
    EXPECT(changed > 70 && changed < 130 && other > 100);
}

TEST(elastic_without_memory_says_so)
{
    Steps s = made_steps("elastic p=1\n");
    Bent a;
    bent_make(&a, (Dims){1, 1, 6, 5, 1}, 1);
    for (int k = 0; k < 2; k++) {
        mem_fail_after(k, false);
        EXPECT_FAIL(augment_sample(&s, 1, 0, 0, &a.s), "memory");
        mem_fail_after(-1, false);
    }
}
