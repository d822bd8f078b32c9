/* views.c -- tests of loaders that give the same samples with other random
 * draws. */
#include "data/loader/loader.h"
#include "tests/support/volumes.h"
#include "tests/test.h"

enum { BATCHES = 18 }; // three epochs of 6 cases of 4 slices, 4 a batch

static const char recipe[] = "normalize\nslices axis=stored\nflip\nnoise\n";

static const Batch *next(Loader *l)
{
    const Batch *b;
    REQUIRE(loader_next(l, &b));
    return b;
}

static bool same(const Batch *a, const Batch *b)
{
    const size_t bytes = (size_t)numel(a->field[0].dim) * sizeof(float);
    return !memcmp(a->field[0].data, b->field[0].data, bytes);
}

TEST(views_are_of_the_same_samples_by_other_draws)
{
    Dataset *ds = made_dataset(6, 1, 4, 8, 8);
    Pipeline *p = made_pipeline(ds, recipe);
    LoaderOptions o = {.batch = 4, .shuffle = true, .augment = true, .seed = 8};
    Loader *first, *second, *plain;
    int other = 0, changed = 0;

    REQUIRE(loader_open(p, &o, &first));
    o.again = true;
    REQUIRE(loader_open(p, &o, &second));
    o.augment = false;
    REQUIRE(loader_open(p, &o, &plain));

    for (int i = 0; i < BATCHES; i++) {
        const Batch *a = next(first), *b = next(second), *c = next(plain);
        EXPECT_INT(b->epoch, a->epoch);
        for (int k = 0; k < a->count; k++)
            EXPECT(a->id[k].number == b->id[k].number);
        other += !same(a, b);
        changed += !same(c, b);
    }

    // a batch may by chance have no change in any sample
    EXPECT(other >= BATCHES - 2 && changed >= BATCHES - 2);
    loader_close(first);
    loader_close(second);
    loader_close(plain);
    pipeline_free(p);
    dataset_free(ds);
}
