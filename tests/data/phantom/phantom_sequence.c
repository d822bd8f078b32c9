/* phantom_sequence.c -- tests of synthetic speech: reproducible, with the
 * promised lengths and files, and with a class that depends on order alone. */
#include "data/format/npy.h"
#include "data/phantom/sequence.h"
#include "engine/base/crc32c.h"
#include "engine/base/file.h"
#include "tests/test.h"
#include <stdlib.h>

enum { SPEAKERS = 8, TAKES = 8, CLASSES = 4, FEATURES = 16 };
enum { EACH = CLASSES * TAKES, ALL = SPEAKERS * EACH };

static Phantom usual(void)
{
    return (Phantom){.form = phantom_form("sequences"),
                     .number = {SPEAKERS, TAKES, CLASSES, FEATURES},
                     .seed = 42,
                     .noise = 0.1};
}

typedef struct Take {
    int frames, label, speaker;
    float *x;
} Take;

static Take make(const Phantom *how, int speaker, int label, int take)
{
    Take t = {.frames = sequence_frames(how, speaker, label, take),
              .label = label,
              .speaker = speaker};
    t.x = mem_alloc((size_t)(t.frames * how->number[SEQUENCE_FEATURES]) *
                    sizeof *t.x);
    REQUIRE(t.x);
    sequence_fill(how, speaker, label, take, t.x);
    return t;
}

static uint32_t sum_of(const Phantom *how, int speaker, int label, int take)
{
    Take t = make(how, speaker, label, take);
    size_t n = (size_t)(t.frames * how->number[SEQUENCE_FEATURES]);
    uint32_t sum = crc32c(0, t.x, n * sizeof *t.x);
    mem_free(t.x);
    return sum;
}

TEST(phantom_sequence_is_a_function_of_its_options)
{
    Phantom how = usual(), other = usual();
    const uint32_t sum = sum_of(&how, 2, 1, 3);

    // bytes of version 1: a change of the bytes must increase the version
    EXPECT_INT(how.form->version, 1);
    EXPECT_INT(sum, 1560984553);
    EXPECT_INT(sum_of(&how, 2, 1, 3), sum);
    EXPECT(sum_of(&how, 3, 1, 3) != sum && sum_of(&how, 2, 2, 3) != sum);
    EXPECT(sum_of(&how, 2, 1, 4) != sum);
    other.seed++;
    EXPECT(sum_of(&other, 2, 1, 3) != sum);

    // the number of other takes has no effect
    other = usual(), other.number[SEQUENCE_SPEAKERS] = 3;
    other.number[SEQUENCE_TAKES] = 99;
    EXPECT_INT(sum_of(&other, 2, 1, 3), sum);
}

/* -- features with and without information about the class --------------- */

/* Returns the fraction of the takes that are nearest to the mean of their own
 * class, by `dim` numbers each; means are over the other speakers. */
static double nearest_mean(const Take *all, const double *v, int dim)
{
    double *mean = calloc((size_t)(CLASSES * dim), sizeof *mean);
    int right = 0;
    REQUIRE(mean);

    for (int speaker = 0; speaker < SPEAKERS; speaker++) {
        memset(mean, 0, (size_t)(CLASSES * dim) * sizeof *mean);
        for (int i = 0; i < ALL; i++)
            for (int k = 0; all[i].speaker != speaker && k < dim; k++)
                mean[all[i].label * dim + k] +=
                    v[i * dim + k] / (TAKES * (SPEAKERS - 1));
        for (int i = speaker * EACH; i < (speaker + 1) * EACH; i++) {
            double best = INFINITY;
            int found = -1;
            for (int c = 0; c < CLASSES; c++) {
                double far = 0;
                for (int k = 0; k < dim; k++)
                    far += pow(v[i * dim + k] - mean[c * dim + k], 2);
                if (far < best) best = far, found = c;
            }
            right += found == all[i].label;
        }
    }

    free(mean);
    return (double)right / ALL;
}

// mean and standard deviation of each feature over time
static void moments(const Take *t, double out[2 * FEATURES])
{
    for (int f = 0; f < FEATURES; f++) {
        double sum = 0, squares = 0;
        for (int i = 0; i < t->frames; i++) {
            double x = (double)t->x[i * FEATURES + f];
            sum += x, squares += x * x;
        }
        out[f] = sum / t->frames;
        out[FEATURES + f] = sqrt(squares / t->frames - out[f] * out[f]);
    }
}

/* Covariances of each feature with each feature `lag` frames later. */
static void covariances(const Take *t, int lag, double *out)
{
    double m[2 * FEATURES];
    moments(t, m);
    for (int a = 0; a < FEATURES; a++)
        for (int b = 0; b < FEATURES; b++) {
            double sum = 0;
            for (int i = 0; i + lag < t->frames; i++)
                sum += ((double)t->x[i * FEATURES + a] - m[a]) *
                       ((double)t->x[(i + lag) * FEATURES + b] - m[b]);
            out[a * FEATURES + b] = sum / (t->frames - lag);
        }
}

TEST(phantom_sequence_has_its_class_in_the_order_alone)
{
    enum { FRAMES = 3, LAG = 7, PAIRS = FEATURES * FEATURES };
    static Take all[ALL];
    static double moment[ALL][2 * FEATURES], pair[ALL][PAIRS], now[ALL][PAIRS];
    static double frame[FRAMES][ALL][FEATURES];
    Phantom how = usual();

    for (int i = 0; i < ALL; i++) {
        Take t = make(&how, i / EACH, i % EACH / TAKES, i % TAKES);
        all[i] = t;
        moments(&t, moment[i]);
        covariances(&t, 0, now[i]);
        covariances(&t, LAG, pair[i]);
        // frames at one, two and three quarters of the take
        for (int k = 0; k < FRAMES; k++)
            for (int f = 0; f < FEATURES; f++)
                frame[k][i][f] =
                    (double)t.x[(k + 1) * t.frames / 4 * FEATURES + f];
    }

    // chance is 1/4 of 256 takes: standard deviation 0.027
    EXPECT(nearest_mean(all, moment[0], 2 * FEATURES) < 0.34);
    EXPECT(nearest_mean(all, now[0], PAIRS) < 0.34);
    for (int k = 0; k < FRAMES; k++)
        EXPECT(nearest_mean(all, frame[k][0], FEATURES) < 0.34);
    EXPECT(nearest_mean(all, pair[0], PAIRS) > 0.98);
    for (int i = 0; i < ALL; i++) mem_free(all[i].x);
}

TEST(phantom_sequence_lengths_and_speakers_differ)
{
    Phantom how = usual();
    int least = 9999, most = 0;
    double level[SPEAKERS], low = INFINITY, high = -INFINITY;

    for (int s = 0; s < SPEAKERS; s++) {
        level[s] = 0;
        for (int i = 0; i < EACH; i++) {
            double m[2 * FEATURES];
            Take t = make(&how, s, i / TAKES, i % TAKES);
            moments(&t, m);
            for (int f = 0; f < FEATURES; f++)
                level[s] += m[f] / FEATURES / EACH;
            least = t.frames < least ? t.frames : least;
            most = t.frames > most ? t.frames : most;
            mem_free(t.x);
        }
        low = fmin(low, level[s]), high = fmax(high, level[s]);
    }

    EXPECT(least > 40 && most < 120);
    EXPECT(most > 1.6 * least && most < 2.4 * least);
    EXPECT(high - low > 0.3);

    // without noise the rest between syllables is the speaker's baseline
    how.noise = 0;
    Take t = make(&how, 0, 0, 0), loud = make(&how, 0, 1, 0);
    EXPECT_NEAR((double)t.x[FEATURES / 2], (double)loud.x[FEATURES / 2], 1e-6);
    mem_free(t.x);
    mem_free(loud.x);
}

/* Finds the positions of the lower bump at the loudest frames of a take's
 * syllables; returns their number. */
enum { WIDE = 512, MOST = 2 * 11 };
static int places(const Take *t, int at[MOST])
{
    int syllables = 0, peak[2] = {0};
    float top[3] = {0};

    for (int i = 0; i < t->frames; i++) {
        top[0] = top[1], top[1] = top[2], top[2] = -INFINITY;
        peak[0] = peak[1];
        for (int f = 0; f < WIDE / 2; f++)
            if (t->x[i * WIDE + f] > top[2])
                top[2] = t->x[i * WIDE + f], peak[1] = f;
        if (i < 2 || top[1] <= top[0] || top[1] < top[2]) continue;
        REQUIRE(syllables < MOST);
        at[syllables++] = peak[0];
    }
    return syllables;
}

/* Twice through all motifs, and no two classes share a pair of neighbours, for
 * any number of classes. */
TEST(phantom_sequence_goes_through_all_motifs)
{
    static const int want[] = {3, 5, 5, 7, 7, 11, 11, 11, 11};
    for (int classes = 2; classes <= 10; classes++) {
        bool follows[MOST][MOST] = {{false}};
        for (int c = 0; c < classes; c++) {
            int at[MOST], motif[MOST];
            Phantom how = usual();
            how.number[SEQUENCE_CLASSES] = classes;
            how.number[SEQUENCE_FEATURES] = WIDE;
            how.noise = 0;
            Take t = make(&how, 1, c, 0);
            const int motifs = want[classes - 2], all = places(&t, at);
            mem_free(t.x);
            EXPECT_INT(all, 2 * motifs);
            // the second round equals the first, without a repeated motif
            for (int i = 0; i < motifs; i++) {
                EXPECT(abs(at[i] - at[i + motifs]) < 4);
                motif[i] = 0;
                for (int k = 0; k < motifs; k++) {
                    EXPECT(k == i || abs(at[i] - at[k]) > 8);
                    motif[i] += at[k] < at[i];
                }
            }
            for (int i = 0; i < motifs; i++) {
                bool *seen = &follows[motif[i]][motif[(i + 1) % motifs]];
                EXPECT(!*seen);
                *seen = true;
            }
        }
    }
}

/* -- files ---------------------------------------------------------------- */

TEST(phantom_sequence_files_are_the_same_for_any_threads)
{
    char folder[2][512], path[700], *table[2];
    size_t bytes[2];
    Arena mem = {0};
    Phantom how = usual();

    how.number[SEQUENCE_SPEAKERS] = 3, how.number[SEQUENCE_TAKES] = 2;
    for (int i = 0; i < 2; i++) {
        how.threads = i ? 3 : 1;
        snprintf(folder[i], sizeof folder[i], "%s/spoken_%d", test_folder(), i);
        REQUIRE(phantom_write(folder[i], &how, NULL));
        snprintf(path, sizeof path, "%s/labels.csv", folder[i]);
        REQUIRE(file_read(path, 1 << 20, &mem, &table[i], &bytes[i]));
    }

    EXPECT(bytes[0] == bytes[1] && !memcmp(table[0], table[1], bytes[0]));
    EXPECT(!strncmp(table[0], "path,label,speaker,take,frames\n", 31));
    char *save, *line = strtok_r(table[0], "\n", &save);
    int rows = 0;

    while ((line = strtok_r(NULL, "\n", &save))) {
        char name[100];
        int label, speaker, take, frames;
        NpyArray a[2];
        REQUIRE(sscanf(line, "%99[^,],%d,PHANTOM_%d,%d,%d", name, &label,
                       &speaker, &take, &frames) == 5);
        for (int i = 0; i < 2; i++) {
            snprintf(path, sizeof path, "%s/%s", folder[i], name);
            REQUIRE(npy_read(path, &a[i]));
        }
        EXPECT_INT(a[0].axes, 2);
        EXPECT_INT(a[0].shape[0], frames);
        EXPECT_INT(a[0].shape[1], FEATURES);
        EXPECT_INT(a[1].count, a[0].count);
        size_t size = (size_t)a[0].count * sizeof(float);
        EXPECT(!memcmp(a[0].data, a[1].data, size));
        // the file equals the generated take
        EXPECT_INT(crc32c(0, a[0].data, size),
                   sum_of(&how, speaker - 1, label, take));
        mem_free(a[0].data);
        mem_free(a[1].data);
        rows++;
    }

    EXPECT_INT(rows, 3 * 2 * CLASSES);
    arena_release(&mem);
}

TEST(phantom_sequence_refuses)
{
    static const struct {
        int number, value;
        const char *says;
    } bad[] = {
        {SEQUENCE_SPEAKERS, 0, "speakers must be from 1 to 999, got 0"},
        {SEQUENCE_TAKES, 1000, "takes must be from 1 to 999, got 1000"},
        {SEQUENCE_CLASSES, 1, "classes must be from 2 to 10, got 1"},
        {SEQUENCE_CLASSES, 11, "classes must be from 2 to 10, got 11"},
        {SEQUENCE_FEATURES, 7, "features must be from 8 to 1024, got 7"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        Phantom how = usual();
        how.number[bad[i].number] = bad[i].value;
        EXPECT_FAIL(phantom_write("x", &how, NULL), bad[i].says);
    }

    // each allocation fails once
    Phantom how = usual();
    char folder[512], name[32];
    how.number[SEQUENCE_SPEAKERS] = how.number[SEQUENCE_TAKES] = 1;
    long live = mem_live(), n = 0;

    for (bool ok = false; !ok && n < 50; n += !ok) {
        snprintf(name, sizeof name, "room-%ld", n);
        snprintf(folder, sizeof folder, "%s/%s", test_folder(), name);
        mem_fail_after(n, false);
        ok = phantom_write(folder, &how, NULL);
        mem_fail_after(-1, false);
    }

    EXPECT(n >= 5 && n < 50);
    EXPECT_INT(mem_live(), live);
}
