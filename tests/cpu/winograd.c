/* winograd.c -- tests of Winograd convolutions: their tiles, their selection,
 * the same bits for any number of threads and batch size, and the layers of the
 * recipes against sums in double. suite_conv.c draws odd sizes, paddings and
 * depths. */
#include "cpu/conv/winograd.h"
#include "cpu/conv/bf16.h"
#include "cpu/conv/winograd_tiles.h"
#include "tests/support/op_call.h"
#include <stdlib.h>

// -- tiles --------------------------------------------------------------------

/* For every extent and padding each result is in one tile, and element (i, j)
 * of the input of a tile is present exactly if the image has it. */
TEST(winograd_tiles)
{
    for (int h = 1; h < 14; h++)
        for (int lo = 0; lo < 3; lo++) {
            int w = 14 - h, out = h + lo - 1;
            if (out < 1) continue;
            Dims image = {2, 1, h, w, 3}, result = {2, 1, out, w, 5};
            Tiles t = tiles_of(image, result, lo, 1);
            int seen[2 * 16 * 16] = {0};
            for (int64_t at = 0; at < tiles_plane(&t); at++) {
                int64_t from, to;
                Tile x = tile_image_at(&t, 1, at, 3, &from);
                Tile y = tile_result_at(&t, 1, at, 5, &to);
                for (int i = 0; i < y.r1; i++)
                    for (int j = 0; j < y.c1; j++)
                        seen[(to + i * y.row + j * y.pixel) / 5 - out * w]++;
                int top = (int)(at / t.across) * 4 - lo;
                int left = (int)(at % t.across) * 4 - 1;
                EXPECT_INT(from, ((h + top) * w + left) * 3);
                for (int i = 0; i < 6; i++) {
                    EXPECT_INT(i >= x.r0 && i < x.r1,
                               top + i >= 0 && top + i < h);
                    EXPECT_INT(i >= x.c0 && i < x.c1,
                               left + i >= 0 && left + i < w);
                }
            }
            for (int i = 0; i < out * w; i++) EXPECT_INT(seen[i], 1);
        }
}

// ---- selection --------------------------------------------------------------

static Window window(int kd, int k, int pad)
{
    return (Window){.k = {kd, k, k},
                    .s = {1, 1, 1},
                    .lo = {kd / 2, pad, pad},
                    .hi = {kd / 2, pad, pad},
                    .dil = {1, 1, 1},
                    .groups = 1};
}

/* For the gradient of x, the answer equals that of the forward run. */
static bool fits(const Window *g, Dims in, Dims out)
{
    EXPECT_INT(winograd_fits(g, in, out), winograd_fits(g, out, in));
    return winograd_fits(g, in, out);
}

TEST(winograd_fits)
{
    Window g = window(1, 3, 1);
    Dims x = {1, 1, 7, 7, 16}, y = {1, 1, 7, 7, 17}, few = y, small = y;
    EXPECT(fits(&g, x, y));
    few.c = 15, small.h = 6;
    EXPECT(!fits(&g, x, few) && !fits(&g, few, x) && !fits(&g, x, small));

    // independent of the batch size
    few.n = small.n = 64;
    EXPECT(!fits(&g, x, few) && !fits(&g, x, small));
    Window other = window(1, 1, 0);
    EXPECT(!fits(&other, x, y));
    other = window(1, 5, 2);
    EXPECT(!fits(&other, x, y));
    other = window(1, 3, 3);
    EXPECT(!fits(&other, x, y));
    other = window(3, 3, 2);
    EXPECT(fits(&other, x, y));
    other = window(WINOGRAD_DEEP + 1, 3, 1);
    EXPECT(!fits(&other, x, y));
    other = g, other.s[2] = 2;
    EXPECT(!fits(&other, x, y));
    other = g, other.dil[1] = 2;
    EXPECT(!fits(&other, x, y));
    other = g, other.groups = 2;
    EXPECT(!fits(&other, x, y));
    other = g, other.hi[1] = -1;
    EXPECT(!fits(&other, x, y));
}

TEST(winograd_of_bf16_is_for_some)
{
    Window g = window(1, 3, 1);
    const Pairs *pairs = simd()->pairs;

    for (int in = 8; in <= 64; in *= 2)
        for (int out = 8; out <= 64; out *= 2) {
            Dims x = {1, 1, 16, 16, in}, y = {1, 1, 16, 16, out};
            bool may = winograd_fits(&g, x, y);
            bool other = bf16_by_winograd(&g, x, y, false);
            bool weights = bf16_by_winograd(&g, x, y, true);
            if (!pairs) EXPECT(weights == may && other == may);
            if (pairs && pairs->tiles) EXPECT(!weights && !other);
            // bf16 pairs at twice the rate of f32 are faster with few channels
            if (!pairs || pairs->tiles) continue;
            EXPECT_INT(weights, in >= 32 && out >= 32);
            EXPECT_INT(other, weights && in + out > 64);
        }

    g = window(1, 5, 2);
    EXPECT(!bf16_by_winograd(&g, (Dims){1, 1, 16, 16, 64},
                             (Dims){1, 1, 16, 16, 64}, true));
}

// -- bits ---------------------------------------------------------------------

static OpCase layer(int n, int d, int size, int ci, int co)
{
    int kd = d > 1 ? 3 : 1;
    OpCase c = {.attr = op_default(OP_conv), .rank = d > 1 ? 3 : 2, .wrt = 7};
    c.x[0] = (Dims){n, d, size, size, ci};
    c.x[1] = (Dims){co, kd, 3, 3, ci};
    c.x[2] = (Dims){1, 1, 1, 1, co};
    c.attr.conv.pd0 = c.attr.conv.pd1 = kd / 2;
    c.attr.conv.ph0 = c.attr.conv.ph1 = 1;
    c.attr.conv.pw0 = c.attr.conv.pw1 = 1;
    return c;
}

static bool same(const double *a, const double *b, int64_t count)
{
    return !memcmp(a, b, (size_t)count * sizeof *a);
}

/* Many blocks, few blocks, several parts of dw, depth. */
TEST(winograd_threads)
{
    const OpCase cases[] = {layer(1, 1, 130, 16, 20), layer(1, 1, 12, 200, 130),
                            layer(2, 1, 67, 33, 36), layer(1, 5, 21, 32, 48)};

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Arena mem = {0};
        OpValues in, one, more;
        REQUIRE(opcase_values(&cases[i], &mem, &in));
        given_values(&backend_cpu, 1, &cases[i], &in, &mem, &one);
        for (int threads = 2; threads <= 7; threads += threads == 3 ? 4 : 1) {
            given_values(&backend_cpu, threads, &cases[i], &in, &mem, &more);
            EXPECT(same(one.y, more.y, one.results));
            for (int k = 0; k < 3; k++)
                EXPECT(same(one.dx[k], more.dx[k], one.count[k]));
        }
        arena_release(&mem);
    }
}

/* A sample alone has few blocks, in a batch many: other tasks, same bits. */
TEST(winograd_batch)
{
    OpCase many = layer(48, 1, 16, 40, 130), one = layer(1, 1, 16, 40, 130);
    Arena mem = {0};
    OpValues in, all, alone;

    REQUIRE(opcase_values(&many, &mem, &in));
    given_values(&backend_cpu, 2, &many, &in, &mem, &all);
    int64_t x = in.count[0] / 48, y = in.results / 48;

    for (int n = 0; n < 48; n += 19) {
        OpValues part = in;
        part.x[0] += n * x, part.dy += n * y;
        part.count[0] = x, part.results = y;
        given_values(&backend_cpu, 2, &one, &part, &mem, &alone);
        EXPECT(same(alone.y, all.y + n * y, y));
        EXPECT(same(alone.dx[0], all.dx[0] + n * x, x));
    }
    arena_release(&mem);
}

// -- layers of the recipes ----------------------------------------------------

typedef struct Layer {
    int n, d, size, ci, co;
} Layer;

/* The layers with 3x3 windows that Winograd runs, with fewer pixels in very
 * large images. */
static const Layer layers[] = {
    // brain_unet
    {1, 1, 128, 32, 32},
    {1, 1, 128, 32, 64},
    {1, 1, 96, 64, 64},
    {1, 1, 64, 64, 128},
    {1, 1, 64, 128, 128},
    {1, 1, 32, 128, 256},
    {1, 1, 32, 256, 256},
    {1, 1, 16, 256, 512},
    {1, 1, 16, 512, 512},
    {1, 1, 32, 512, 256},
    {1, 1, 64, 256, 128},
    {1, 1, 96, 128, 64},
    {1, 1, 128, 64, 32},
    // nfbs_unet, and the volumes of hippocampus
    {1, 1, 12, 512, 1024},
    {1, 16, 32, 32, 64},
    {1, 8, 16, 64, 128},
    {1, 8, 8, 128, 256},
    {1, 16, 24, 128, 64},
    // headpose_cnn: ResNet-18
    {2, 1, 56, 64, 64},
    {2, 1, 28, 128, 128},
    {4, 1, 14, 256, 256},
    {8, 1, 7, 512, 512},
};

static int at_most(bool limited, int n, int most)
{
    return limited && n > most ? most : n;
}

/* Layer i. A build that checks each access uses `few` pixels and channels,
 * which are still more than one block of each; some layers are then the same.
 */
static Layer layer_at(size_t i, bool few)
{
    Layer l = layers[i];
    l.size = at_most(few, l.size, l.d > 1 ? 16 : 33);
    l.ci = at_most(few, l.ci, 136);
    l.co = at_most(few, l.co, 136);
    return l;
}

static bool is_repeated(size_t i, bool few)
{
    const Layer l = layer_at(i, few);
    for (size_t k = 0; k < i; k++) {
        const Layer m = layer_at(k, few);
        if (!memcmp(&l, &m, sizeof l)) return true;
    }
    return false;
}

/* Errors relative to the largest; `SEG_MARGINS=1` prints each. */
static void check_layers(Precision p)
{
    const bool few = given_once();
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
        if (is_repeated(i, few)) continue;
        const Layer l = layer_at(i, few);
        OpCase c = layer(l.n, l.d, l.size, l.ci, l.co);
        c.fill[1] = (Fill){FILL_RANGE, -0.1, 0.1};
        OpCheck k = {
            .be = &backend_cpu, .precision = p, .report = given_report};
        opcase_agree_sampled(&c, &k, 1024, 256);
        // all ran by Winograd; in bf16 with AMX tiles, none did
        const Pairs *pairs = simd()->pairs;
        bool direct = p == PRECISION_bf16 && pairs && pairs->tiles;
        EXPECT((k.blur > 0) == !direct);
        if (getenv("SEG_MARGINS"))
            printf("%dx%dx%d %d to %d: %.2g of the largest\n", l.d, l.size,
                   l.size, l.ci, l.co, k.blur);
    }
}

TEST(winograd_layers)
{
    check_layers(PRECISION_f32);
}

TEST(winograd_layers_bf16)
{
    check_layers(PRECISION_bf16);
}
