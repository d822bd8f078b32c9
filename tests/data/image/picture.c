/* picture.c -- tests of the positions of drawings, and of the PNG, which zlib
 * inflates to the pixels. */
#include "data/image/picture.h"
#include "data/image/font.h"
#include "engine/base/file.h"
#include "tests/test.h"
#include <stdlib.h>
#include <zlib.h>

enum { WHITE = 0xffffff, BLACK = 0, RED = 0xff0000 };

static uint32_t at(const Picture *p, int x, int y)
{
    const uint8_t *c = p->rgb + 3 * (y * p->w + x);
    return (uint32_t)c[0] << 16 | (uint32_t)c[1] << 8 | c[2];
}

// pixels that are not white
static int inked(const Picture *p)
{
    int n = 0;
    for (int i = 0; i < p->w * p->h; i++)
        n += at(p, i % p->w, i / p->w) != WHITE;
    return n;
}

TEST(picture_new_refuses_sizes)
{
    Picture p;
    EXPECT_FAIL(picture_new(&p, 0, 5, 0), "0 x 5");
    EXPECT_FAIL(picture_new(&p, 5, PICTURE_SIDE + 1, 0), "16384");
    mem_fail_after(0, false);
    EXPECT_FAIL(picture_new(&p, 5, 5, 0), "picture");
    mem_fail_after(-1, false);
}

TEST(picture_rect_fills_its_pixels)
{
    Picture p;
    REQUIRE(picture_new(&p, 8, 6, WHITE));
    picture_rect(&p, 2, 1, 3, 2, 0x102030, 1);
    EXPECT_INT(inked(&p), 6);
    EXPECT_INT(at(&p, 2, 1), 0x102030);
    EXPECT_INT(at(&p, 4, 2), 0x102030);
    picture_rect(&p, -5, -5, 100, 100, BLACK, 0.5);
    EXPECT_INT(at(&p, 7, 5), 0x808080);
    picture_rect(&p, NAN, 0, 1, 1, RED, 1);
    picture_rect(&p, 1e300, 0, 1e300, 1, RED, 1);
    picture_free(&p);
}

TEST(picture_line_is_smooth_and_clipped)
{
    Picture p;
    REQUIRE(picture_new(&p, 64, 64, WHITE));
    picture_line(&p, 0, 10.5, 64, 10.5, 1, BLACK);
    EXPECT_INT(inked(&p), 64);
    EXPECT_INT(at(&p, 30, 10), BLACK);

    // a line between two rows of pixels covers half of each
    picture_line(&p, 0, 20, 64, 20, 1, BLACK);
    EXPECT_INT(at(&p, 30, 19), 0x808080);
    EXPECT_INT(at(&p, 30, 20), 0x808080);

    // a diagonal line is visible along its whole length
    picture_line(&p, -1000, -1000 + 0.5, 1000, 1000 + 0.5, 2, RED);
    for (int i = 0; i < 64; i++) EXPECT((at(&p, i, i) & 0xff) < 0x40);
    int before = inked(&p);
    picture_line(&p, NAN, 0, 5, 5, 1, BLACK);
    picture_line(&p, INFINITY, 0, 5, 5, 1, BLACK);
    picture_line(&p, 0, 0, 5, 5, 0, BLACK);
    EXPECT_INT(inked(&p), before);
    picture_free(&p);
}

TEST(picture_text_has_all_letters)
{
    Picture p, q;
    for (int c = 33; c < 127; c++) {
        int dots = 0;
        for (int i = 0; i < FONT_ROWS * FONT_COLS; i++)
            dots += font_dot((char)c, i / FONT_COLS, i % FONT_COLS);
        EXPECT(dots >= 2);
        // no two letters are equal
        for (int d = 32; d < c; d++) {
            bool same = true;
            for (int i = 0; i < FONT_ROWS * FONT_COLS; i++)
                same =
                    same && font_dot((char)c, i / FONT_COLS, i % FONT_COLS) ==
                                font_dot((char)d, i / FONT_COLS, i % FONT_COLS);
            EXPECT(!same);
        }
    }

    EXPECT(font_dot('L', 6, 4) && !font_dot('L', 5, 4));
    EXPECT(!font_dot('L', 9, 0) && !font_dot('L', 0, 5));
    EXPECT_NEAR(picture_text_width(2, "abc"), 34, 1e-12);
    EXPECT_NEAR(picture_text_width(2, ""), 0, 0);
    REQUIRE(picture_new(&p, 60, 20, WHITE) && picture_new(&q, 60, 20, WHITE));
    picture_text(&p, 1, 1, 2, BLACK, "L");
    EXPECT((at(&p, 2, 8) & 0xff) < 0x20);
    EXPECT_INT(at(&p, 8, 2), WHITE);
    EXPECT(inked(&p) > 20);

    // a byte outside ASCII is a box; far away nothing is drawn
    picture_text(&q, 1, 1, 2, BLACK, "\xc3");
    EXPECT(inked(&q) > 20);
    int before = inked(&q);
    picture_text(&q, -500, 1e9, 2, BLACK, "out of sight");
    EXPECT_INT(inked(&q), before);
    picture_free(&p);
    picture_free(&q);
}

TEST(picture_gray_maps_the_window)
{
    const float v[] = {-1, 0, 0.5f, 1, 2, NAN};
    Picture p;
    REQUIRE(picture_new(&p, 12, 4, WHITE));
    picture_gray(&p, 0, 0, 2, v, 6, 1, 0, 1);
    const uint32_t want[] = {0, 0, 0x808080, WHITE, WHITE, 0x600000};
    for (int i = 0; i < 6; i++)
        for (int k = 0; k < 4; k++)
            EXPECT_INT(at(&p, 2 * i + k % 2, k / 2), want[i]);
    EXPECT_INT(at(&p, 0, 2), WHITE);
    picture_free(&p);
}

TEST(picture_wash_mixes_colours_and_what_is_below)
{
    // before the first stop transparent, at the second half transparent, after
    // the last opaque
    static const Stop stop[] = {{0, BLACK, 0}, {2, BLACK, 0.5}, {4, RED, 1}};
    const float v[] = {-1, 0, 1, 2, 3, 4, 9, NAN};
    const uint32_t want[] = {WHITE,    WHITE, 0xbfbfbf, 0x808080,
                             0x9f4040, RED,   RED,      WHITE};
    Picture p;

    REQUIRE(picture_new(&p, 18, 4, WHITE));
    picture_wash(&p, 1, 1, 2, v, 8, 1, stop, 3);

    for (int i = 0; i < 8; i++)
        for (int k = 0; k < 4; k++) {
            const uint32_t got = at(&p, 1 + 2 * i + k % 2, 1 + k / 2);
            for (int shift = 0; shift < 24; shift += 8)
                EXPECT_NEAR((double)(got >> shift & 0xff),
                            (double)(want[i] >> shift & 0xff), 1);
        }

    for (int i = 0; i < 18; i++) {
        EXPECT_INT(at(&p, i, 0), WHITE);
        EXPECT_INT(at(&p, i, 3), WHITE);
    }
    picture_wash(&p, 0, 3, 1, v, 8, 1, stop + 2, 1);
    EXPECT_INT(at(&p, 0, 3), RED);
    picture_free(&p);
}

TEST(picture_contour_goes_round)
{
    // a box of ones at the border: its line closes outside the plane
    enum { N = 8, ZOOM = 4 };
    float mask[N * N] = {0};
    Picture p;
    for (int j = 2; j < 6; j++)
        for (int i = 0; i < 4; i++) mask[j * N + i] = 1;
    REQUIRE(picture_new(&p, N * ZOOM, N * ZOOM, WHITE));
    picture_contour(&p, 0, 0, ZOOM, mask, N, N, 0.5, 1, RED);

    // the edges are between rows 1 and 2, columns 3 and 4: pixels 8 and 16
    EXPECT((at(&p, 8, 8) & 0xff) < 0xa0);
    EXPECT((at(&p, 15, 16) & 0xff) < 0xa0);
    EXPECT((at(&p, 0, 14) & 0xff) < 0xa0);
    EXPECT_INT(at(&p, 8, 16), WHITE);
    EXPECT_INT(at(&p, 24, 16), WHITE);

    // two voxels that touch at a corner stay separate
    memset(mask, 0, sizeof mask);
    mask[3 * N + 3] = mask[4 * N + 4] = 1;
    picture_free(&p);
    REQUIRE(picture_new(&p, 2 * N * ZOOM, 2 * N * ZOOM, WHITE));
    picture_contour(&p, 0, 0, 2 * ZOOM, mask, N, N, 0.5, 1, RED);
    EXPECT((at(&p, 28, 24) & 0xff) < 0xa0);
    EXPECT((at(&p, 29, 30) & 0xff) < 0xa0);
    EXPECT_INT(at(&p, 28, 28), WHITE);
    EXPECT_INT(at(&p, 32, 32), WHITE);
    EXPECT_INT(at(&p, 36, 36), WHITE);
    picture_free(&p);
}

TEST(picture_window_ignores_what_is_not_finite)
{
    float v[101];
    double lo, hi;
    for (int i = 0; i < 101; i++) v[i] = (float)(100 - i);
    REQUIRE(picture_window(v, 101, 0.02, 0.98, &lo, &hi));
    EXPECT_NEAR(lo, 2, 0);
    EXPECT_NEAR(hi, 98, 0);
    v[0] = INFINITY, v[1] = NAN;
    REQUIRE(picture_window(v, 101, 0, 1, &lo, &hi));
    EXPECT_NEAR(hi, 98, 0);
    REQUIRE(picture_window(v, 2, 0, 1, &lo, &hi));
    EXPECT_NEAR(hi - lo, 1, 0);
}

static uint32_t big32(const uint8_t *b)
{
    return (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 |
           b[3];
}

TEST(picture_save_is_a_png)
{
    enum { W = 37, H = 23 };
    char path[512], again[512];
    Picture p;
    Arena mem = {0};
    char *png, *twice;
    size_t bytes, bytes2;
    snprintf(path, sizeof path, "%s/a.png", test_folder());
    snprintf(again, sizeof again, "%s/b.png", test_folder());
    REQUIRE(picture_new(&p, W, H, 0x123456));
    picture_text(&p, 3, 3, 1.7, WHITE, "Dice 0.9");
    REQUIRE(picture_save(&p, path) && picture_save(&p, again));
    REQUIRE(file_read(path, 1 << 20, &mem, &png, &bytes));
    REQUIRE(file_read(again, 1 << 20, &mem, &twice, &bytes2));
    EXPECT(bytes == bytes2 && !memcmp(png, twice, bytes));
    const uint8_t *b = (const uint8_t *)png;
    REQUIRE(bytes > 60 && !memcmp(b, "\x89PNG\r\n\x1a\n", 8));
    EXPECT(!memcmp(b + 12, "IHDR", 4) && big32(b + 16) == W);
    EXPECT_INT(big32(b + 20), H);
    EXPECT_INT(big32(b + 29), crc32(0, b + 12, 17));

    // reverses the filters of the only IDAT chunk
    uint8_t row[(3 * W + 1) * H], pixel[3 * W * H];
    uLongf size = sizeof row;
    REQUIRE(!memcmp(b + 37, "IDAT", 4) &&
            uncompress(row, &size, b + 41, big32(b + 33)) == Z_OK);
    EXPECT_INT(size, sizeof row);

    for (int j = 0; j < H; j++)
        for (int i = 0; i < 3 * W; i++) {
            int filter = row[j * (3 * W + 1)];
            int left = i >= 3 ? pixel[j * 3 * W + i - 3] : 0;
            int up = j ? pixel[(j - 1) * 3 * W + i] : 0;
            int both = i >= 3 && j ? pixel[(j - 1) * 3 * W + i - 3] : 0;
            int guess = left + up - both, add = 0;
            int a = abs(guess - left), c = abs(guess - up);
            int d = abs(guess - both);
            if (filter == 1) add = left;
            if (filter == 2) add = up;
            if (filter == 3) add = (left + up) / 2;
            if (filter == 4) add = a <= c && a <= d ? left : c <= d ? up : both;
            pixel[j * 3 * W + i] =
                (uint8_t)(row[j * (3 * W + 1) + 1 + i] + add);
        }

    EXPECT(!memcmp(pixel, p.rgb, sizeof pixel));
    picture_free(&p);
    arena_release(&mem);
}

TEST(picture_save_without_memory_leaves_nothing)
{
    Picture p;
    char path[512];
    long live = mem_live();

    snprintf(path, sizeof path, "%s/c.png", test_folder());
    REQUIRE(picture_new(&p, 20, 20, WHITE));
    long n = 0;

    for (bool ok = false; !ok && n < 20; n += !ok) {
        mem_fail_after(n, false);
        ok = picture_save(&p, path);
        mem_fail_after(-1, false);
        FILE *f = fopen(path, "rb");
        EXPECT((f != NULL) == ok);
        if (f) fclose(f);
    }

    EXPECT(n >= 3 && n < 20);
    picture_free(&p);
    EXPECT_INT(mem_live(), live);
}
