/* decimal.c -- tests of reading compared with strtod, and of printing that
 * reads back. */
#include "data/format/decimal.h"
#include "engine/base/rng.h"
#include "tests/support/comma.h"

/* Reads all of `text` as one number. */
static double value(const char *text)
{
    double v = -12345;
    EXPECT_INT(decimal_read(text, strlen(text), &v), strlen(text));
    return v;
}

TEST(decimal_reads_what_strtod_reads)
{
    static const char *const text[] = {
        "0", "-0", "1", "+1", "-17.25", "6.0", "0.438", "1.", ".5", "-.5e1",
        "1e5", "1E+05", "1e-3", "00012.5", "1e22", "1e23", "1e-22", "1e-23",
        "1e308", "1e-308", "4.9e-324", "2.4e-324", "1e-400", "0e999999",
        "1.8e308", "-1e999", "1e99999", "123456789", "1e00000", "0.1e-0",
        // halfway between two doubles, and more digits than a double has
        "9007199254740993", "9007199254740992.5", "9007199254740993.0000001",
        "3.906000000000000139e+00", "0.1000000000000000055511151231257827",
        "179769313486231580793728971405303415079934132710037826936173778980444",
        "18446744073709551615", "18446744073709551616", "99999999999999999999"};

    for (size_t i = 0; i < sizeof text / sizeof *text; i++) {
        double got = value(text[i]), want = strtod(text[i], NULL);
        if (memcmp(&got, &want, sizeof got))
            test_failed(__FILE__, __LINE__, "%s: %a, not %a", text[i], got,
                        want);
    }

    // at random: short numbers, long ones, and numbers of all exponents
    Rng r = {.seed = 11, .stream = RNG_TEST};
    int wrong = 0;

    for (uint32_t i = 0; i < 200000; i++) {
        char number[64];
        double x = (double)rng_range(&r, 4 * i, -1000, 1000);
        double y = x + 1e-9 * (double)rng_range(&r, 4 * i + 1, 0, 1000);
        int e = (int)rng_range(&r, 4 * i + 2, -330, 310);
        switch (i % 4) {
        case 0:
            snprintf(number, sizeof number, "%.3f", x);
            break;
        case 1:
            snprintf(number, sizeof number, "%.17g", y);
            break;
        case 2:
            snprintf(number, sizeof number, "%.18e", y);
            break;
        case 3:
            snprintf(number, sizeof number, "%.9fe%d", y, e);
            break;
        }
        wrong += value(number) != strtod(number, NULL);
    }
    EXPECT_INT(wrong, 0);
}

TEST(decimal_ends_where_the_number_does)
{
    static const struct {
        const char *text;
        size_t used;
        double value;
    } row[] = {{"1,5", 1, 1},     {"1.5.5", 3, 1.5}, {"1e", 1, 1},
               {"1e+", 1, 1},     {"1e5e5", 3, 1e5}, {"0x10", 1, 0},
               {"12 ", 2, 12},    {"1d5", 1, 1},     {"7\n8", 1, 7},
               {"2.e1x", 4, 20.}, {"-3-", 2, -3},    {"1.5f", 3, 1.5}};

    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        double v = 0;
        size_t n = strlen(row[i].text);
        EXPECT_INT(decimal_read(row[i].text, n, &v), row[i].used);
        EXPECT(v == row[i].value);
    }

    static const char *const none[] = {"",    "-",   "+",   ".",  "e5",  "-.e5",
                                       "nan", "NaN", "inf", " 1", "--1", "+-1"};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        double v = 42;
        EXPECT_INT(decimal_read(none[i], strlen(none[i]), &v), 0);
        EXPECT(v == 42);
    }

    // bytes from n on are not read
    double v;
    EXPECT_INT(decimal_read("12345", 2, &v), 2);
    EXPECT(v == 12);
    EXPECT_INT(decimal_read("1.25e3", 5, &v), 4);
    EXPECT(v == 1.25);
}

TEST(decimal_limit)
{
    char text[DECIMAL_LONGEST + 2];
    double v = HUGE_VAL;
    memset(text, '1', sizeof text);

    for (size_t n = DECIMAL_LONGEST - 1; n <= DECIMAL_LONGEST + 1; n++) {
        bool fits = n <= DECIMAL_LONGEST;
        EXPECT_INT(decimal_read(text, n, &v), fits ? n : 0);
        EXPECT(isinf(v));
        text[1] = '.';
        EXPECT_INT(decimal_read(text, n, &v), fits ? n : 0);
        EXPECT(fits ? v > 1.1 && v < 1.2 : isinf(v));
        text[1] = '1', v = HUGE_VAL;
    }
}

TEST(decimal_prints_what_reads_back)
{
    static const struct {
        float v;
        const char *text;
    } row[] = {{0, "0.0"},
               {-0.0f, "-0.0"},
               {1, "1.0"},
               {6, "6.0"},
               {0.438f, "0.438"},
               {-17.25f, "-17.25"},
               {1000, "1000.0"},
               {999.99994f, "999.99994"},
               {0.1f, "0.1"},
               {16777216, "16777216.0"},
               {0.0001f, "0.0001"},
               {0.00001f, "1e-05"},
               {1e10f, "10000000000.0"},
               {1.5e20f, "1.5e+20"},
               {3.4028235e38f, "3.4028235e+38"},
               {1e-45f, "1e-45"},
               {1.1754944e-38f, "1.1754944e-38"}};
    char text[DECIMAL_TEXT];
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        EXPECT_INT(decimal_print(row[i].v, text), strlen(row[i].text));
        EXPECT_TEXT(text, row[i].text);
    }

    // every exponent, many fractions; read back by decimal_read and by strtod
    int wrong = 0;
    Rng r = {.seed = 12, .stream = RNG_TEST};

    for (uint32_t i = 0; i < 400000; i++) {
        uint32_t words[4];
        float v;
        rng_block(&r, i, words);
        memcpy(&v, words, sizeof v);
        if (!isfinite(v)) continue;
        size_t n = decimal_print(v, text);
        double back = 0;
        wrong += n >= DECIMAL_TEXT || strlen(text) != n;
        wrong += decimal_read(text, n, &back) != n || (float)back != v;
        wrong += strtof(text, NULL) != v;
    }
    EXPECT_INT(wrong, 0);
}

TEST(decimal_in_a_locale_with_commas)
{
    if (!comma_set())
        SKIP("no decimal comma: locales is not installed (sh vendor/fetch ci)");
    char text[DECIMAL_TEXT];
    EXPECT_NEAR(value("3.906000000000000139e+00"), 3.906, 1e-15);
    EXPECT_NEAR(value("2.5"), 2.5, 0);
    decimal_print(2.5f, text);
    EXPECT_TEXT(text, "2.5");
    // the locale of the host program is unchanged
    snprintf(text, sizeof text, "%.1f", 2.5);
    EXPECT_TEXT(text, "2,5");
    setlocale(LC_ALL, "C");
}
