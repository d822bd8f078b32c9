/* components.c -- tests of components and holes of labels against
 * scipy.ndimage. */
#include "data/metrics/components.h"
#include "tests/golden/components_golden.h"
#include "tests/test.h"
#include <string.h>

enum { MOST = 16 * 12 * 10 };

/* Makes a block of components_golden.py. */
static int64_t make_block(int index, const int32_t n[3], int percent,
                          uint8_t *x)
{
    const int64_t count = (int64_t)n[0] * n[1] * n[2];
    uint32_t seed = 1000 + (uint32_t)index;
    for (int64_t i = 0; i < count; i++) {
        seed = (seed * 1103515245u + 12345u) & 0x7fffffffu;
        x[i] = (int)((seed >> 16) % 100) < percent ? 3 : 0;
    }
    return count;
}

TEST(components_as_scipy)
{
    static uint8_t x[MOST];
    static int32_t number[MOST];
    const int count = (int)(sizeof golden / sizeof *golden);

    for (int k = 0; k < count; k++) {
        const int32_t *n = golden[k].n;
        const int64_t voxels = make_block(k / 2, n, golden[k].percent, x);
        Components c;
        REQUIRE(components_find(x, n, 3, false, golden[k].connect, &c));
        EXPECT_INT(c.count, golden[k].pieces);
        for (int64_t i = 0; i < voxels; i++) number[i] = -1;
        for (int64_t row = 0; row < (int64_t)n[1] * n[2]; row++)
            for (int64_t i = c.row[row]; i < c.row[row + 1]; i++)
                for (int32_t w = c.run[i].from; w < c.run[i].to; w++)
                    number[row * n[0] + w] = c.run[i].piece;
        uint64_t hash = 0xCBF29CE484222325u;
        int64_t largest = 0;
        for (int64_t i = 0; i < voxels; i++)
            hash = (hash ^ (uint32_t)number[i]) * 0x100000001B3u;
        for (int32_t i = 0; i < c.count; i++)
            largest = c.size[i] > largest ? c.size[i] : largest;
        EXPECT(hash == golden[k].hash);
        EXPECT_INT(largest, golden[k].largest);
        components_free(&c);
        const Tidy fill = {
            .value = 3, .connect = golden[k].connect, .fill = true};
        TidyDone done;
        REQUIRE(labels_tidy(x, n, &fill, &done));
        EXPECT_INT(done.voxels_filled, golden[k].filled);
    }
}

/* Makes a row of components of 3, 1, 2, 3 voxels of class 2; the rest is 0 or
 * class 5. */
static void pieces(uint8_t x[14])
{
    static const uint8_t row[14] = {2, 2, 2, 0, 2, 5, 2, 2, 0, 2, 2, 2, 5, 0};
    memcpy(x, row, sizeof row);
}

static void tidied(const Tidy *how, const char *want)
{
    uint8_t x[14];
    char got[15] = "";
    TidyDone done;
    pieces(x);
    REQUIRE(labels_tidy(x, (int32_t[]){14, 1, 1}, how, &done));
    for (int i = 0; i < 14; i++) got[i] = (char)('0' + x[i]);
    EXPECT_TEXT(got, want);
}

TEST(tidy_keeps_and_drops)
{
    tidied(&(Tidy){.value = 2, .connect = 6}, "22202522022250");

    // of equal ones the first
    tidied(&(Tidy){.value = 2, .connect = 6, .keep = 1}, "22200500000050");
    tidied(&(Tidy){.value = 2, .connect = 6, .keep = 2}, "22200500022250");
    tidied(&(Tidy){.value = 2, .connect = 6, .keep = 9}, "22202522022250");
    tidied(&(Tidy){.value = 2, .connect = 6, .least = 2}, "22200522022250");
    tidied(&(Tidy){.value = 2, .connect = 6, .least = 4}, "00000500000050");
    tidied(&(Tidy){.value = 2, .connect = 6, .keep = 3, .least = 3},
           "22200500022250");
    tidied(&(Tidy){.value = 7, .connect = 6, .keep = 1}, "22202522022250");

    // holes: zeros between components; another class stays
    tidied(&(Tidy){.value = 2, .connect = 6, .fill = true}, "22222522222250");
}

/* A box of ones of 5^3 with a hole in its middle, or a channel through it. */
TEST(tidy_fills_holes)
{
    const int32_t n[3] = {7, 7, 7};
    static uint8_t x[343];

    for (int through = 0; through < 2; through++) {
        const Tidy ways[] = {{.value = 1, .connect = 26, .fill = true},
                             {.value = 1, .connect = 26, .fill_slices = true}};
        for (int k = 0; k < 2; k++) {
            TidyDone done;
            for (int i = 0; i < 343; i++) {
                const int w = i % 7, h = i / 7 % 7, d = i / 49;
                const bool box =
                    w > 0 && w < 6 && h > 0 && h < 6 && d > 0 && d < 6;
                const bool hole = w == 3 && h == 3 && (d == 3 || through);
                x[i] = box && !hole;
            }
            REQUIRE(labels_tidy(x, n, &ways[k], &done));
            EXPECT_INT(done.voxels_filled, through ? (k ? 5 : 0) : 1);
        }
    }
}
