/* polygon.c -- polygons into voxels: areas, holes, common edges, and shapes
 * that are restored from their own outline. */
#include "data/dicom/polygon.h"
#include "engine/base/rng.h"
#include "tests/test.h"
#include <stdlib.h>

enum { H = 60, W = 70, PLANE = H * W, MOST = 4 * PLANE };

static const Rng draws = {.seed = 5, .stream = RNG_PHANTOM, .op = 77};
static uint32_t next;

static double uniform(double from, double to)
{
    return from + (to - from) * (double)rng_uniform(&draws, next++);
}

static int64_t count(const uint8_t *p)
{
    int64_t n = 0;
    for (int i = 0; i < PLANE; i++) n += p[i];
    return n;
}

// fills one or two polygons into an empty plane
static void fill(uint8_t *out, const double *a, size_t n, const double *b,
                 size_t m)
{
    memset(out, 0, PLANE);
    contour_add(out, H, W, a, n);
    if (b) contour_add(out, H, W, b, m);
    contour_fill(out, H, W);
}

static void circle(double *uv, int n, double u, double v, double r)
{
    for (int i = 0; i < n; i++) {
        uv[2 * i] = u + r * cos(2 * 3.14159265358979 * i / n);
        uv[2 * i + 1] = v + r * sin(2 * 3.14159265358979 * i / n);
    }
}

// shoelace formula
static double area(const double *uv, int n)
{
    double twice = 0;
    for (int i = 0; i < n; i++) {
        const double *a = uv + 2 * i, *b = uv + 2 * ((i + 1) % n);
        twice += a[0] * b[1] - b[0] * a[1];
    }
    return fabs(twice) / 2;
}

TEST(contour_area_is_the_mean_over_places)
{
    // over all offsets to the centres, the mean count of a shape is its area
    enum { STEPS = 24, POINTS = 97 };
    static uint8_t plane[PLANE];
    static const double radii[][2] = {{9.3, 0}, {20.1, 8.4}, {25, 24}, {3, 1}};

    for (size_t k = 0; k < sizeof radii / sizeof *radii; k++) {
        double outer[2 * POINTS], hole[2 * POINTS], sum = 0, want = 0;
        for (int i = 0; i < STEPS * STEPS; i++) {
            double u = 35 + (i % STEPS) / (double)STEPS;
            double v = 29 + (i / STEPS) / (double)STEPS;
            circle(outer, POINTS, u, v, radii[k][0]);
            circle(hole, POINTS, u + 0.3, v, radii[k][1]);
            fill(plane, outer, POINTS, radii[k][1] > 0 ? hole : NULL, POINTS);
            want = area(outer, POINTS) -
                   (radii[k][1] > 0 ? area(hole, POINTS) : 0);
            // at a single offset, voxels on the boundary may go either way
            double length = 6.2832 * (radii[k][0] + radii[k][1]);
            EXPECT_NEAR(count(plane), want, 2 * sqrt(length) + 4);
            sum += (double)count(plane);
        }
        EXPECT_NEAR(sum / (STEPS * STEPS), want, 0.002 * want + 0.02);
    }
}

TEST(contour_random_polygons_have_their_area)
{
    enum { STEPS = 16 };
    static uint8_t plane[PLANE];

    for (int round = 0; round < 40; round++) {
        // star-shaped, so that it does not cross itself
        double uv[64], moved[64];
        int n = 3 + round % 29;
        for (int i = 0; i < n; i++) {
            double r = uniform(4, 25);
            uv[2 * i] = 34 + r * cos(6.2831853 * i / n);
            uv[2 * i + 1] = 30 + r * sin(6.2831853 * i / n);
        }
        double sum = 0;
        for (int k = 0; k < STEPS * STEPS; k++) {
            for (int i = 0; i < n; i++) {
                moved[2 * i] = uv[2 * i] + (k % STEPS) / (double)STEPS;
                moved[2 * i + 1] = uv[2 * i + 1] + (k / STEPS) / (double)STEPS;
            }
            fill(plane, moved, (size_t)n, NULL, 0);
            sum += (double)count(plane);
        }
        EXPECT_NEAR(sum / (STEPS * STEPS), area(uv, n),
                    0.005 * area(uv, n) + 0.5);
    }
}

TEST(contour_centres_on_the_edge)
{
    static uint8_t plane[PLANE];
    // a square through centres includes those on its left and top edge
    const double square[] = {2, 3, 5, 3, 5, 7, 2, 7};

    fill(plane, square, 4, NULL, 0);
    for (int j = 0; j < H; j++)
        for (int i = 0; i < W; i++)
            EXPECT_INT(plane[j * W + i], i >= 2 && i < 5 && j >= 3 && j < 7);

    // empty: no area, one line, one point
    const double line[] = {2, 3, 9, 8, 2, 3};
    fill(plane, line, 3, NULL, 0);
    EXPECT_INT(count(plane), 0);
    fill(plane, line, 1, NULL, 0);
    EXPECT_INT(count(plane), 0);
}

TEST(contour_keyhole_is_a_hole)
{
    static uint8_t rings[PLANE], keyhole[PLANE];
    for (int round = 0; round < 200; round++) {
        enum { OUTER = 31, INNER = 17, ALL = OUTER + INNER + 2 };
        double outer[2 * OUTER], inner[2 * INNER], key[2 * ALL];
        double u = uniform(20, 50), v = uniform(15, 45);
        circle(outer, OUTER, u, v, uniform(10, 30));
        circle(inner, INNER, u, v, uniform(2, 9));
        fill(rings, outer, OUTER, inner, INNER);
        // around the outer ring, through the channel, around the hole in the
        // other direction, and back through the same channel
        memcpy(key, outer, sizeof outer);
        memcpy(key + 2 * OUTER, outer, 2 * sizeof *key);
        for (int i = 0; i <= INNER; i++)
            memcpy(key + 2 * (OUTER + 1 + i), inner + 2 * ((INNER - i) % INNER),
                   2 * sizeof *key);
        fill(keyhole, key, ALL, NULL, 0);
        EXPECT(!memcmp(rings, keyhole, PLANE));
        EXPECT(count(rings) > 0);
    }
}

TEST(contour_direction_and_order_change_nothing)
{
    static uint8_t one[PLANE], two[PLANE];
    for (int round = 0; round < 100; round++) {
        double a[40], b[40], back[40];
        for (int i = 0; i < 40; i++) {
            a[i] = uniform(-10, 80), b[i] = uniform(-10, 80);
        }
        for (int i = 0; i < 20; i++)
            memcpy(back + 2 * i, a + 2 * ((27 - i) % 20), 2 * sizeof *a);
        fill(one, a, 20, b, 20);
        fill(two, b, 20, back, 20);
        EXPECT(!memcmp(one, two, PLANE));
    }
}

TEST(contour_neighbours_share_an_edge_without_gap)
{
    static uint8_t left[PLANE], right[PLANE], whole[PLANE];
    for (int round = 0; round < 200; round++) {
        // a rectangle cut in two by a polyline
        enum { CUT = 9 };
        double cut[2 * CUT], a[2 * (CUT + 2)], b[2 * (CUT + 2)];
        const double box[] = {5.25, 4.5, 60, 4.5, 60, 55, 5.25, 55};
        for (int i = 0; i < CUT; i++) {
            cut[2 * i] = round % 2 ? uniform(6, 59) : floor(uniform(6, 59));
            cut[2 * i + 1] = 4.5 + 50.5 * i / (CUT - 1);
        }
        memcpy(a, cut, sizeof cut);
        memcpy(b, cut, sizeof cut);
        a[2 * CUT] = 5.25, a[2 * CUT + 1] = 55;
        a[2 * CUT + 2] = 5.25, a[2 * CUT + 3] = 4.5;
        b[2 * CUT] = 60, b[2 * CUT + 1] = 55;
        b[2 * CUT + 2] = 60, b[2 * CUT + 3] = 4.5;
        fill(left, a, CUT + 2, NULL, 0);
        fill(right, b, CUT + 2, NULL, 0);
        fill(whole, box, 4, NULL, 0);
        for (int i = 0; i < PLANE; i++) EXPECT(left[i] + right[i] == whole[i]);
    }
}

TEST(contour_beyond_the_plane_is_cut_off)
{
    static uint8_t plane[PLANE], part[PLANE];
    const double all[] = {-1e9, -1e9, 1e9, -1e9, 1e9, 1e9, -1e9, 1e9};
    fill(plane, all, 4, NULL, 0);
    EXPECT_INT(count(plane), PLANE);
    const double outside[] = {-9, -9, -1, -9, -1, 90, -9, 90};
    fill(plane, outside, 4, NULL, 0);
    EXPECT_INT(count(plane), 0);

    // a circle over each corner equals the same circle in a wider plane
    double uv[64];
    circle(uv, 32, 0.2, 0.3, 12.7);
    fill(plane, uv, 32, NULL, 0);
    circle(uv, 32, 30.2, 30.3, 12.7);
    fill(part, uv, 32, NULL, 0);
    for (int j = 0; j < 20; j++)
        for (int i = 0; i < 20; i++)
            EXPECT_INT(plane[j * W + i], part[(j + 30) * W + i + 30]);
}

// ---- outlines ---------------------------------------------------------------

// an edge of the border between voxels, from corner (u,v) - 0.5; inside left
typedef struct Edge {
    int from, to;
    bool used;
} Edge;

// writes all borders of a mask, closed loop by loop, into `out`
static void outline(const uint8_t *mask, uint8_t *out)
{
    static Edge edge[MOST];
    static double uv[2 * MOST];
    int edges = 0;

    for (int j = 0; j < H; j++)
        for (int i = 0; i < W; i++) {
            if (!mask[j * W + i]) continue;
            int c = j * (W + 1) + i, s = W + 1;
            const struct {
                bool inside;
                int from, to;
            } side[] = {{j > 0 && mask[(j - 1) * W + i], c, c + 1},
                        {i + 1 < W && mask[j * W + i + 1], c + 1, c + 1 + s},
                        {j + 1 < H && mask[(j + 1) * W + i], c + 1 + s, c + s},
                        {i > 0 && mask[j * W + i - 1], c + s, c}};
            for (int k = 0; k < 4; k++)
                if (!side[k].inside)
                    edge[edges++] = (Edge){side[k].from, side[k].to, false};
        }

    memset(out, 0, PLANE);
    for (int e = 0; e < edges; e++) {
        if (edge[e].used) continue;
        size_t n = 0;
        int at = edge[e].from, start = at;
        do {
            int k = 0;
            while (edge[k].used || edge[k].from != at) k++;
            edge[k].used = true;
            uv[2 * n] = at % (W + 1) - 0.5;
            uv[2 * n + 1] = at / (W + 1) - 0.5;
            n++;
            at = edge[k].to;
        } while (at != start);
        contour_add(out, H, W, uv, n);
    }
    contour_fill(out, H, W);
}

TEST(contour_outline_gives_the_shape_back)
{
    static uint8_t mask[PLANE], back[PLANE];
    for (int round = 0; round < 40; round++) {
        if (round < 10) {
            // voxels that touch in corners, holes of one voxel
            for (int i = 0; i < PLANE; i++) mask[i] = uniform(0, 1) < 0.1;
        } else {
            double a[48], b[24];
            circle(a, 24, uniform(20, 40), uniform(20, 40), uniform(5, 25));
            circle(b, 12, uniform(20, 40), uniform(20, 40), uniform(3, 9));
            fill(mask, a, 24, b, 12);
        }
        outline(mask, back);
        EXPECT(!memcmp(mask, back, PLANE));
    }
}
