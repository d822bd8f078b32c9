/* pack.c -- tests of compressed volumes: the form chosen, and that every number
 * is restored. */
#include "data/preprocess/pack.h"
#include "engine/base/rng.h"
#include "tests/test.h"
#include <string.h>

enum { MOST = 4096 };

static float x[MOST], y[MOST];

/* Reads some boxes of p, of all sizes and positions, and compares with x. */
static void expect_boxes(const Pack *p)
{
    static float z[MOST];
    const Dims n = p->dim;
    const int32_t all[3] = {n.w, n.h, n.d};

    for (uint32_t k = 0; k < 40; k++) {
        const Rng draw = {.seed = k, .stream = RNG_TEST};
        Box box;
        for (uint32_t a = 0; a < 3; a++) {
            uint32_t m = 1 + rng_below(&draw, a, (uint32_t)all[a]);
            uint32_t most = (uint32_t)all[a] - m + 1;
            box.n[a] = (int32_t)m;
            box.from[a] = (int32_t)rng_below(&draw, 4 + a, most);
        }
        memset(z, 0xff, sizeof z);
        pack_read_box(p, &box, z);
        int64_t wrong = 0, i = 0;
        for (int32_t d = 0; d < box.n[2]; d++)
            for (int32_t h = 0; h < box.n[1]; h++)
                for (int32_t w = 0; w < box.n[0]; w++)
                    for (int32_t c = 0; c < n.c; c++, i++)
                        wrong += z[i] != x[(((int64_t)(box.from[2] + d) * n.h +
                                             box.from[1] + h) *
                                                n.w +
                                            box.from[0] + w) *
                                               n.c +
                                           c];
        uint32_t bits = 0xffffffff;
        if (i < MOST) memcpy(&bits, &z[i], sizeof bits);
        EXPECT_INT(wrong, 0);
        EXPECT(bits == 0xffffffff);
    }
}

/* Packs the first numbers of x; reads all, each slice, slices in pairs, and
 * boxes. */
static Pack packed(Dims n)
{
    Pack p;
    Tensor t = {.dim = n, .type = F32, .data = x};
    int64_t slice = numel(n) / n.d;

    CHECK(numel(n) <= MOST);
    REQUIRE(pack_make(&t, &p));
    EXPECT(pack_check(&p));
    expect_boxes(&p);

    for (int32_t count = 1; count <= n.d; count += count < 2 ? 1 : n.d - 2)
        for (int32_t d = 0; d + count <= n.d; d++) {
            memset(y, 0xff, sizeof y);
            pack_read(&p, d, count, y);
            for (int64_t i = 0; i < count * slice; i++)
                if (y[i] != x[d * slice + i])
                    test_failed(__FILE__, __LINE__,
                                "slice %d, number %lld: %g, want %g", d,
                                (long long)i, (double)y[i],
                                (double)x[d * slice + i]);
            // and none beyond
            uint32_t bits;
            memcpy(&bits, &y[count * slice], sizeof bits);
            EXPECT(count * slice == MOST || bits == 0xffffffff);
            if (n.d == 2 && count == 2) return p;
        }
    return p;
}

static void expect(Dims n, PackKind kind, Dtype type, size_t bytes)
{
    Pack p = packed(n);
    EXPECT_INT(p.kind, kind);
    EXPECT_INT(p.type, type);
    EXPECT_INT(p.bytes, bytes);
    pack_free(&p);
    EXPECT(!p.data);
}

TEST(pack_takes_the_smallest_form)
{
    const Dims n = {1, 3, 4, 5, 1};
    for (int i = 0; i < 60; i++) x[i] = (float)(i % 2);
    expect(n, PACK_BITS, U8, 8);
    for (int i = 0; i < 60; i++) x[i] = (float)(1 + i * 4);
    expect(n, PACK_DENSE, U8, 60);
    x[7] = 256;
    expect(n, PACK_DENSE, I16, 120);
    x[7] = -1;
    expect(n, PACK_DENSE, I16, 120);

    // each of these needs float: a fraction, too large for 16 bits, too small,
    // larger still
    const float wide[] = {0.5f, 32768, -32769, 1e30f};
    for (int k = 0; k < 4; k++) {
        x[7] = wide[k];
        expect(n, PACK_DENSE, F32, 240);
    }
    x[7] = 0;
    x[59] = 32767, x[0] = -32768;
    expect(n, PACK_DENSE, I16, 120);
}

TEST(pack_keeps_what_is_not_zero)
{
    const Dims n = {1, 4, 8, 16, 2};
    const size_t head = 5 * 4;
    memset(x, 0, sizeof x);
    expect(n, PACK_RUNS, U8, head);

    // first and last voxel of the volume, and of a slice
    x[0] = x[1023] = x[256] = x[511] = 0.5f;
    expect(n, PACK_RUNS, F32, head + 4 * (12 + 4));

    // a gap of three zeros costs as much as a run, a gap of four more
    x[4] = 1;
    expect(n, PACK_RUNS, F32, head + 4 * 12 + 8 * 4);
    x[4] = 0, x[5] = 1;
    expect(n, PACK_RUNS, F32, head + 5 * 12 + 5 * 4);

    // runs end with their slice
    memset(x, 0, sizeof x);
    x[255] = x[256] = 300;
    expect(n, PACK_RUNS, I16, head + 2 * (12 + 2));

    // bits are smaller than short runs of ones
    memset(x, 0, sizeof x);
    for (int i = 0; i < 1024; i += 64) x[i] = 1;
    expect(n, PACK_BITS, U8, 128);
}

TEST(pack_of_anything)
{
    const Dims dims[] = {
        {1, 1, 1, 1, 1}, {1, 5, 3, 7, 3}, {1, 2, 9, 11, 1}, {1, 1, 1, 200, 12}};

    for (uint32_t seed = 0; seed < 200; seed++) {
        const Dims n = dims[seed % 4];
        const Rng r = {.seed = seed};
        float share = rng_uniform(&r, 0), scale = seed % 3 ? 1 : 300;
        for (int64_t i = 0; i < numel(n); i++) {
            float v = rng_uniform(&r, 2 * (uint32_t)i + 1) * scale;
            if (seed % 5) v = (float)(int)(2 * v);
            bool zero = rng_uniform(&r, 2 * (uint32_t)i + 2) < share;
            x[i] = zero ? 0 : v - (seed % 2 ? 100 : 0);
        }
        Pack p = packed(n);
        pack_free(&p);
    }
}

TEST(pack_of_labels)
{
    uint8_t label[24];
    Pack p;
    Tensor t = {.dim = {1, 2, 3, 4, 1}, .type = U8, .data = label};
    for (int i = 0; i < 24; i++) label[i] = (uint8_t)(i % 3);
    REQUIRE(pack_make(&t, &p));
    EXPECT_INT(p.kind, PACK_DENSE);
    EXPECT_INT(p.bytes, 24);
    pack_read(&p, 1, 1, y);
    for (int i = 0; i < 12; i++) EXPECT_NEAR(y[i], i % 3, 0);
    pack_free(&p);
}

/* A damaged block is rejected or is another valid one; the sanitizers check the
 * reads. */
TEST(pack_check_refuses_damage)
{
    const Dims n = {1, 3, 8, 8, 1};
    Tensor t = {.dim = n, .type = F32, .data = x};
    Pack p;

    memset(x, 0, sizeof x);
    for (int i = 70; i < 90; i += 9) x[i] = 2.5f;
    REQUIRE(pack_make(&t, &p));
    EXPECT_INT(p.kind, PACK_RUNS);
    int refused = 0;
    uint8_t *b = p.data;

    for (size_t i = 0; i < p.bytes * 8; i++) {
        b[i / 8] ^= (uint8_t)(1 << i % 8);
        if (pack_check(&p))
            pack_read(&p, 0, n.d, y);
        else
            refused++;
        b[i / 8] ^= (uint8_t)(1 << i % 8);
    }

    // nearly every change in the positions is detected
    EXPECT(refused > 8 * 40);
    Pack q = p;
    q.bytes -= 4;
    EXPECT_FAIL(pack_check(&q), "contradicts itself");
    q = p, q.kind = PACK_DENSE;
    EXPECT_FAIL(pack_check(&q), "contradicts itself");
    q.kind = PACK_KINDS;
    EXPECT_FAIL(pack_check(&q), "contradicts itself");
    q = p, q.dim.w = 0;
    EXPECT_FAIL(pack_check(&q), "contradicts itself");
    q = p, q.dim = (Dims){1, 1 << 30, 1 << 30, 1 << 30, 1 << 30};
    EXPECT_FAIL(pack_check(&q), "contradicts itself");
    q = p, q.type = F64;
    EXPECT_FAIL(pack_check(&q), "contradicts itself");
    pack_free(&p);
}

/* One number decides the form, wherever it is. */
TEST(pack_one_number_decides)
{
    static const struct {
        float other;
        Dtype type;
    } odd[] = {{255, U8},    {256, I16},     {-1, I16},     {32767, I16},
               {32768, F32}, {-32768, I16},  {-32769, F32}, {0.5f, F32},
               {3e9f, F32},  {INFINITY, F32}};
    const Dims n = {1, 2, 1, 300, 1};

    for (size_t k = 0; k < sizeof odd / sizeof *odd; k++)
        for (int at = 0; at < 600; at += k ? 37 : 1) {
            for (int i = 0; i < 600; i++) x[i] = 2;
            x[at] = odd[k].other;
            Pack p = packed(n);
            EXPECT_INT(p.kind, PACK_DENSE);
            EXPECT_INT(p.type, odd[k].type);
            pack_free(&p);
        }

    for (int at = 0; at < 600; at++) {
        for (int i = 0; i < 600; i++) x[i] = (float)(i % 2);
        x[at] = 2;
        Pack p = packed(n);
        EXPECT_INT(p.kind, PACK_DENSE);
        EXPECT_INT(p.type, U8);
        pack_free(&p);
    }

    // NaN equals no number, so it is tested separately
    float bad[300], back[300];

    for (int at = 0; at < 300; at++) {
        for (int i = 0; i < 300; i++) bad[i] = 1;
        bad[at] = NAN;
        Tensor t = {.dim = {1, 1, 1, 300, 1}, .type = F32, .data = bad};
        Pack p;
        REQUIRE(pack_make(&t, &p));
        pack_read(&p, 0, 1, back);
        EXPECT(isnan(back[at]) && back[(at + 1) % 300] == 1);
        pack_free(&p);
    }
}
