/* batches.c -- tests that batches are the same, byte for byte, for any number
 * of workers, with cases cached in memory, in part, in a file or not at all.
 * One data set of each kind, with every augmentation that applies to it. */
#include "data/dataset/dataset_list.h"
#include "data/format/npy.h"
#include "data/image/picture.h"
#include "data/loader/loader.h"
#include "data/phantom/phantom.h"
#include "engine/base/rng.h"
#include "tests/support/volumes.h"
#include "tests/test.h"
#include <sys/stat.h>
#include <unistd.h>

enum { EPOCHS = 2, MOST = 64 };

/* Every augmentation of grey images except those for sequences. */
#define GREY                                                                \
    "flip axis=hw\naffine p=1 shear=-5,5\nelastic spacing=8 amplitude=1,3 " \
    "p=1\nbias\ncontrast\nbrightness\ngamma p=1\nblur p=1\nlowres p=1\n"    \
    "rician p=1\ncutout p=1\nnoise p=1\n"

/* How cases are cached. */
static const struct {
    const char *name;
    int64_t bytes; /* in memory    */
    bool file;     /* and in a file, which the first use makes */
} keeping[] = {
    {"all", 1 << 24, false}, {"a few", 40000, false},
    {"none", 0, false},      {"a new file", 0, true},
    {"that file", 0, true},  {"that file and all", 1 << 24, true},
};

static uint64_t hash(uint64_t h, const void *data, size_t bytes)
{
    const uint8_t *x = data;
    for (size_t i = 0; i < bytes; i++) h = (h ^ x[i]) * 0x100000001b3u;
    return h;
}

/* Computes the batches of two epochs as hashes; returns their number. */
static int made(Pipeline *p, int workers, uint64_t out[MOST])
{
    const LoaderOptions o = {.batch = 3,
                             .shuffle = true,
                             .augment = true,
                             .seed = 5,
                             .workers = workers,
                             .prefetch = 1 + workers};
    Loader *l;
    int n = 0;

    REQUIRE(loader_open(p, &o, &l));
    for (; n < EPOCHS * loader_batches(l); n++) {
        const Batch *b;
        REQUIRE(n < MOST && loader_next(l, &b));
        out[n] = hash(b->epoch, b->id, (size_t)b->count * sizeof *b->id);
        for (int f = 0; f < b->fields; f++)
            out[n] = hash(out[n], b->field[f].data,
                          (size_t)numel(b->field[f].dim) * sizeof(float));
    }

    loader_close(l);
    return n;
}

/* Checks one data set with all combinations. */
static void expect_same(Dataset *ds, const char *steps)
{
    static const int workers[] = {0, 1, 4, 8};
    const Steps s = made_steps(steps);
    uint64_t want[MOST], got[MOST];
    char file[128];
    int batches = 0;

    snprintf(file, sizeof file, "%s/batches.cases", test_folder());
    remove(file);

    for (size_t k = 0; k < sizeof keeping / sizeof *keeping; k++) {
        const PipelineOptions how = {.seed = 9,
                                     .threads = 1 + (int)k % 3,
                                     .cache_bytes = keeping[k].bytes,
                                     .store = keeping[k].file ? file : NULL};
        Pipeline *p;
        REQUIRE(pipeline_open(ds, &s, &how, &p));
        for (int w = 0; w < 4; w++) {
            bool first = !k && !w;
            int n = made(p, workers[w], first ? want : got);
            if (first) batches = n;
            EXPECT_INT(n, batches);
            for (int i = 0; i < n && !first; i++)
                if (got[i] != want[i])
                    test_failed(__FILE__, __LINE__,
                                "batch %d, %d workers, kept: %s: other bytes",
                                i, workers[w], keeping[k].name);
        }
        pipeline_free(p);
    }

    // augmentation differs from epoch to epoch
    EXPECT(batches >= 4 && want[0] != want[batches / 2]);
    dataset_free(ds);
}

/* Synthetic heads as NIfTI files. */
static Dataset *heads(void)
{
    const Phantom how = {.form = phantom_form("nifti"),
                         .number = {4, 24, 10},
                         .seed = 3,
                         .noise = 0.03};
    const DatasetNifti nifti = {
        .image = {"*_T1w"}, .images = 1, .mask = "*_T1w_brainmask"};
    char folder[128];
    bool written;
    Dataset *ds;

    snprintf(folder, sizeof folder, "%s/batches_heads", test_folder());
    REQUIRE(phantom_write(folder, &how, &written));
    REQUIRE(dataset_nifti(folder, &nifti, &ds));
    return ds;
}

TEST(batches_of_slices)
{
    expect_same(heads(),
                "normalize\nresize h=20 w=20\nslices axis=coronal\n" GREY);
}

TEST(batches_of_volumes)
{
    expect_same(heads(), "resample spacing_mm=9,9,9\nfit d=8 h=20 w=20\n"
                         "normalize\n" GREY);
}

TEST(batches_of_patches)
{
    expect_same(heads(), "clamp range=0,700\nnormalize method=minmax\npatches "
                         "d=6 h=12 w=30 count=5 foreground=0.4\n" GREY);
}

/* Photographs of noise, with two numbers each. */
static Dataset *photographs(void)
{
    enum { N = 7, W = 13, H = 11 };
    const DatasetOptions options = {.label_count = 0};
    const ListField field[] = {
        {.name = "image", .kind = FIELD_IMAGE, .rank = 2, .reader = "image"},
        {.name = "pose", .kind = FIELD_NUMBER, .numbers = 2}};
    DatasetBuilder *b;
    Dataset *ds;
    REQUIRE(dataset_list_begin(field, 2, &options, &b));

    for (uint32_t i = 0; i < N; i++) {
        const Rng draw = {.seed = 1, .stream = RNG_TEST, .sample = i};
        const double pose[2] = {i * 3.5, -1.0 * i};
        char path[128], key[16];
        Picture p;
        REQUIRE(picture_new(&p, W + (int)i, H, 0));
        for (int64_t k = 0; k < 3 * (W + i) * H; k++)
            p.rgb[k] = (uint8_t)rng_below(&draw, (uint32_t)k, 256);
        snprintf(path, sizeof path, "%s/photograph_%u.png", test_folder(), i);
        snprintf(key, sizeof key, "p%u", i);
        REQUIRE(picture_save(&p, path));
        picture_free(&p);
        REQUIRE(dataset_list_add(
            b, &(ListCase){
                   .key = key,
                   .patient = key,
                   .field = {{.path = {path}, .paths = 1}, {.number = pose}}}));
    }

    REQUIRE(dataset_finish(b, &ds));
    return ds;
}

TEST(batches_of_photographs)
{
    expect_same(photographs(),
                "resize h=16 w=16 method=smooth\nflip negate=2\naffine p=1\n"
                "elastic spacing=8 amplitude=1,3 p=1\njitter top=255\nblur "
                "p=1\nlowres p=1\ncutout p=1\nnoise p=1\n");
}

/* Sequences of several lengths, with their length. */
static Dataset *sequences(void)
{
    enum { N = 8, CHANNELS = 3 };
    const DatasetOptions options = {.label_count = 0};
    const ListField field[] = {
        {.name = "x", .kind = FIELD_IMAGE, .rank = 1, .reader = "npy"},
        {.name = "length", .kind = FIELD_LENGTH}};
    DatasetBuilder *b;
    Dataset *ds;
    REQUIRE(dataset_list_begin(field, 2, &options, &b));

    for (uint32_t i = 0; i < N; i++) {
        const Rng draw = {.seed = 2, .stream = RNG_TEST, .sample = i};
        const int64_t shape[] = {9 + 2 * i, CHANNELS};
        float x[(9 + 2 * N) * CHANNELS];
        char path[128], key[16];
        for (uint32_t k = 0; k < shape[0] * CHANNELS; k++)
            x[k] = rng_normal(&draw, k);
        snprintf(path, sizeof path, "%s/sequence_%u.npy", test_folder(), i);
        snprintf(key, sizeof key, "s%u", i);
        REQUIRE(npy_write(path, 2, shape, x));
        REQUIRE(dataset_list_add(
            b, &(ListCase){.key = key,
                           .patient = key,
                           .field = {{.path = {path}, .paths = 1}}}));
    }

    REQUIRE(dataset_finish(b, &ds));
    return ds;
}

TEST(batches_of_sequences)
{
    expect_same(sequences(),
                "fit w=30 at=start\nnormalize\nflip axis=w\ntimeshift most=4 "
                "p=1\nbrightness\nnoise p=1\ncutout p=1\ntimemask most=3 "
                "spans=2 fill=mean p=1\nbands p=1 tilt=0.2 most=1\n");
}
