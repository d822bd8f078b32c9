/* precision.c -- rounding to fewer bits, names, and precisions of backends. */
#include "engine/graph/precision.h"
#include "tests/support/networks.h"

TEST(precision_names)
{
    Precision p;
    for (int i = 0; i < PRECISION_COUNT; i++) {
        REQUIRE(precision_find(precision_name((Precision)i), &p));
        EXPECT_INT(p, i);
    }
    EXPECT_FAIL(precision_find("fp16", &p),
                "precision \"fp16\" is not known; use f32, tf32, bf16 or f16");
    EXPECT_INT(err_kind(), ERR_USAGE);
    EXPECT_INT(precision_copy(PRECISION_bf16), BF16);
    EXPECT_INT(precision_copy(PRECISION_f16), F16);
    EXPECT_INT(precision_copy(PRECISION_tf32), F32);
}

TEST(precision_rounds_to_nearest)
{
    static const struct {
        Precision p;
        double v, want;
    } row[] = {
        // ties: to even, for tf32 away from zero
        {PRECISION_bf16, 1 + 0x1p-8, 1},
        {PRECISION_bf16, 1 + 3 * 0x1p-8, 1 + 0x1p-6},
        {PRECISION_bf16, 1 + 0x1.02p-8, 1 + 0x1p-7},
        {PRECISION_f16, 1 + 0x1p-11, 1},
        {PRECISION_f16, -1 - 3 * 0x1p-11, -1 - 0x1p-9},
        {PRECISION_tf32, 1 + 0x1p-11, 1 + 0x1p-10},
        {PRECISION_tf32, -1 - 0x1p-11, -1 - 0x1p-10},
        {PRECISION_tf32, 1 + 0x1.fp-12, 1},
        {PRECISION_f32, 1 + 0x1p-23, 1 + 0x1p-23},
        // into the next power of two
        {PRECISION_bf16, 2 - 0x1p-9, 2},
        // the ends
        {PRECISION_f16, 65519, 65504},
        {PRECISION_f16, 65520, INFINITY},
        {PRECISION_f16, -70000, -INFINITY},
        {PRECISION_bf16, 70000, 70144},
        {PRECISION_bf16, 0x1.fffffep127, INFINITY},
        {PRECISION_f16, 0x1p-24, 0x1p-24},
        {PRECISION_f16, 0x1p-25, 0},
        {PRECISION_f16, 0x1.8p-24, 0x1p-23},
        {PRECISION_f16, 0x1.004p-14, 0x1.004p-14},
        {PRECISION_f16, 0x1.002p-15, 0x1p-15},
        {PRECISION_bf16, 0x1p-133, 0x1p-133},
        {PRECISION_bf16, 0, 0},
        {PRECISION_f16, -INFINITY, -INFINITY},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        EXPECT(precision_round(row[i].p, row[i].v) == row[i].want);
    EXPECT(isnan(precision_round(PRECISION_f16, NAN)));
    EXPECT(signbit(precision_round(PRECISION_bf16, -0.0)));
    EXPECT_NEAR(precision_unit(PRECISION_bf16), 0x1p-8, 0);
    EXPECT_NEAR(precision_unit(PRECISION_tf32), 0x1p-11, 0);
    EXPECT_NEAR(precision_least(PRECISION_f16), 0x1p-14, 0);
}

/* Every 16-bit pattern decodes to a number that encodes to itself. */
TEST(precision_of_all_bits)
{
    for (int i = 0; i < 65536; i++) {
        double h = precision_value(PRECISION_f16, (uint16_t)i);
        double b = precision_value(PRECISION_bf16, (uint16_t)i);
        if (isnan(h)) {
            EXPECT((i & 0x7fff) > 0x7c00);
        } else {
            EXPECT(precision_round(PRECISION_f16, h) == h);
            EXPECT_INT(precision_bits(PRECISION_f16, h), i);
        }
        if (isnan(b)) {
            EXPECT((i & 0x7fff) > 0x7f80);
        } else {
            EXPECT(precision_round(PRECISION_bf16, b) == b);
            EXPECT_INT(precision_bits(PRECISION_bf16, b), i);
        }
    }

    EXPECT_NEAR(precision_value(PRECISION_f16, 0x7bff), 65504, 0);
    EXPECT_NEAR(precision_value(PRECISION_f16, 0x8001), -0x1p-24, 0);
    EXPECT(precision_value(PRECISION_bf16, 0xff80) == -INFINITY);
    EXPECT_NEAR(precision_value(PRECISION_bf16, 0x3f81), 1 + 0x1p-7, 0);
}

TEST(precision_bits_of_the_nearest)
{
    EXPECT_INT(precision_bits(PRECISION_bf16, 1 + 0x1p-8), 0x3f80);
    EXPECT_INT(precision_bits(PRECISION_bf16, 1 + 0x1.8p-7), 0x3f82);
    EXPECT_INT(precision_bits(PRECISION_f16, 65520), 0x7c00);
    EXPECT_INT(precision_bits(PRECISION_f16, -65519), 0xfbff);
    EXPECT_INT(precision_bits(PRECISION_f16, 0x1.8p-24), 2);
    EXPECT_INT(precision_bits(PRECISION_f16, 0x1.ffep-15), 0x0400);
    EXPECT_INT(precision_bits(PRECISION_bf16, -0.0), 0x8000);
    EXPECT(isnan(
        precision_value(PRECISION_bf16, precision_bits(PRECISION_bf16, NAN))));
    EXPECT_INT(precision_of_type(BF16), PRECISION_bf16);
    EXPECT_INT(precision_of_type(F16), PRECISION_f16);
    EXPECT_INT(precision_of_type(F32), PRECISION_f32);
    EXPECT_INT(precision_of_type(U8), PRECISION_f32);
}

/* The vector function equals single calls, at and next to each boundary between
 * two numbers. */
TEST(precision_narrow_is_the_nearest)
{
    static const uint32_t low[] = {0,      1,      0xfff,  0x1000,
                                   0x1001, 0x2fff, 0x3000, 0x3001,
                                   0x7fff, 0x8000, 0x8001, 0xffff};
    enum { LOWS = sizeof low / sizeof *low };

    for (uint32_t high = 0; high < 1 << 16; high++) {
        float x[LOWS];
        uint16_t y[LOWS];
        for (int i = 0; i < LOWS; i++) {
            const uint32_t bits = high << 16 | low[i];
            memcpy(&x[i], &bits, sizeof bits);
        }
        for (int p = PRECISION_bf16; p <= PRECISION_f16; p++) {
            precision_narrow(precision_copy((Precision)p), x, LOWS, y);
            for (int i = 0; i < LOWS; i++)
                if (y[i] != precision_bits((Precision)p, (double)x[i]))
                    test_failed(__FILE__, __LINE__, "%s of %08x is %04x",
                                precision_name((Precision)p),
                                (unsigned)(high << 16 | low[i]), y[i]);
        }
    }
}

TEST(precision_that_a_device_lacks)
{
    static const struct {
        const char *device, *has;
        Precision lacks;
    } row[] = {{"cpu", "f32, bf16", PRECISION_f16},
               {"cpu", "f32, bf16", PRECISION_tf32},
               {"ref", "f32", PRECISION_bf16}};
    Net n;
    net_small(&n);

    for (int i = 0; i < 3; i++) {
        SessionSpec spec = {.graph = &n.g,
                            .root = n.root,
                            .roots = n.roots,
                            .loss = n.loss,
                            .device = row[i].device,
                            .precision = row[i].lacks};
        char want[160];
        snprintf(want, sizeof want,
                 "precision %s is not available on device %s, which has %s: "
                 "use --precision f32, or --device cuda",
                 precision_name(row[i].lacks), row[i].device, row[i].has);
        EXPECT_FAIL(session_open(&spec, &n.s), want);
        EXPECT_INT(err_kind(), ERR_USAGE);
    }
    net_free(&n);
}
