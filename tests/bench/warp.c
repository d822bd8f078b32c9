/* warp.c -- speed of spatial augmentation, compared with scipy.ndimage.
 *
 *     build/tests/bench/warp
 *
 * A volume of 128 x 128 x 128, an image and a mask, on one thread: an elastic
 * and an affine transform. The peer does what a Python recipe does for the
 * same: a grid of random displacements interpolated to all voxels by
 * zoom(order=3), then map_coordinates, and affine_transform; order 1 for the
 * image, 0 for the mask, mode "nearest". In each round segengine runs first,
 * then the peer, in a process that was started before; figures are medians of
 * rounds. */
#include "data/augment/augment.h"
#include "engine/base/rng.h"
#include "tests/bench/timing.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 7, SIDE = 128, VOXELS = SIDE * SIDE * SIDE };

/* seconds of an elastic transform, of its interpolation alone, of an affine
 * one */
typedef struct Times {
    double elastic, look_up, affine;
} Times;

static double once(const char *text, Sample *s, uint32_t number)
{
    Steps steps;
    double begin = seconds(CLOCK_MONOTONIC);
    if (!steps_parse(text, &steps) ||
        !augment_sample(&steps, 1, 0, number, s)) {
        fprintf(stderr, "%s\n", err_text());
        exit(1);
    }
    return seconds(CLOCK_MONOTONIC) - begin;
}

static const char *const scipy =
    "/usr/bin/python3 -c '\n"
    "import time, numpy as np\n"
    "from scipy import ndimage as nd\n"
    "n = 128; r = np.random.default_rng(1)\n"
    "x = r.random((n, n, n), dtype=np.float32)\n"
    "m = (x > 0.5).astype(np.float32)\n"
    "at = np.meshgrid(*3 * [np.arange(n)], indexing=\"ij\")\n"
    "t = time.perf_counter()\n"
    "q = [a + nd.zoom(r.uniform(-4, 4, (11, 11, 11)), n / 11, order=3)"
    " for a in at]\n"
    "l = time.perf_counter()\n"
    "nd.map_coordinates(x, q, order=1, mode=\"nearest\")\n"
    "nd.map_coordinates(m, q, order=0, mode=\"nearest\")\n"
    "a = time.perf_counter()\n"
    "c, s = np.cos(0.1), np.sin(0.1)\n"
    "k = np.array([[c, s, 0.02], [-s, c, 0.03], [0.01, 0.02, 0.95]])\n"
    "nd.affine_transform(x, k, order=1, mode=\"nearest\")\n"
    "nd.affine_transform(m, k, order=0, mode=\"nearest\")\n"
    "print(a - t, a - l, time.perf_counter() - a)' 2> /dev/null";

/* Reads the times of scipy; false without scipy. */
static bool scipy_once(Times *t)
{
    FILE *f = popen(scipy, "r");
    if (!f) return false;
    bool ok =
        fscanf(f, "%lf %lf %lf", &t->elastic, &t->look_up, &t->affine) == 3;
    return pclose(f) == 0 && ok;
}

int main(void)
{
    double ours[2][ROUNDS], theirs[2][ROUNDS], look_up[ROUNDS];
    const Dims n = {1, SIDE, SIDE, SIDE, 1};
    const Rng r = {.seed = 1, .stream = RNG_TEST};
    float *x[2] = {mem_alloc(VOXELS * sizeof(float)),
                   mem_alloc(VOXELS * sizeof(float))};

    if (!x[0] || !x[1]) return 1;
    for (uint32_t i = 0; i < VOXELS; i++) {
        x[0][i] = rng_uniform(&r, i);
        x[1][i] = x[0][i] > 0.5f;
    }
    Sample s = {.data = {x[0], x[1]},
                .dim = {n, n},
                .kind = {FIELD_IMAGE, FIELD_LABEL},
                .fields = 2};
    bool has_scipy = true;

    for (uint32_t k = 0; k < ROUNDS; k++) {
        Times t = {0, 0, 0};
        ours[0][k] = once("elastic spacing=16 amplitude=4,4 p=1\n", &s, k);
        ours[1][k] = once("affine p=1\n", &s, k);
        has_scipy = has_scipy && scipy_once(&t);
        theirs[0][k] = t.elastic, theirs[1][k] = t.affine;
        look_up[k] = t.look_up;
    }

    static const char *const name[] = {"elastic", "affine"};
    puts("an image and a mask of 128 x 128 x 128, one thread");

    for (int i = 0; i < 2; i++) {
        double own = median(ours[i], ROUNDS), other = median(theirs[i], ROUNDS);
        printf("  %-8s %6.1f ms (%.1f ns a voxel and field)", name[i],
               1e3 * own, 1e9 * own / (2.0 * VOXELS));
        if (has_scipy)
            printf("   scipy.ndimage %7.1f ms, %.1f times as long", 1e3 * other,
                   other / own);
        puts("");
    }

    if (has_scipy)
        printf("  of scipy's elastic one map_coordinates alone %.1f ms\n",
               1e3 * median(look_up, ROUNDS));
    else
        puts("  scipy.ndimage: not here");

    mem_free(x[0]);
    mem_free(x[1]);
    return 0;
}
