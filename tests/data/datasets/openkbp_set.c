/* openkbp_set.c -- tests of real OpenKBP patients as a recipe reads them: the
 * fields of data.openkbp, packed, from memory and from a file of prepared
 * cases, as batches. Every voxel is compared with pandas, and sizes with
 * docs/data.md.
 *
 * The four patients of validation-pats; with SEG_SOAK all 32. */
#include "data/dataset/dataset_list.h"
#include "data/datasets/openkbp.h"
#include "data/loader/loader.h"
#include "engine/base/clock.h"
#include "tests/test.h"
#include <dirent.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define PYTHON "/usr/bin/python3 "

enum { MOST = 32, FIELDS = 4, PATH = 500 };

/* As in lua/data/data.lua; dose last, so that a set without it is shorter. */
static const ListField fields[FIELDS] = {
    {.name = "ct", .kind = FIELD_IMAGE, .rank = 3, .reader = "openkbp_ct"},
    {.name = "structures",
     .kind = FIELD_VALUE,
     .rank = 3,
     .reader = "openkbp_structures"},
    {.name = "possible",
     .kind = FIELD_VALUE,
     .rank = 3,
     .reader = "openkbp_possible"},
    {.name = "dose", .kind = FIELD_VALUE, .rank = 3, .reader = "openkbp_dose"},
};

/* Returns the resident memory of this process, in bytes. */
static double device_dataset(void)
{
    long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f || fscanf(f, "%*d %ld", &pages) != 1) pages = 0;
    if (f) fclose(f);
    return (double)pages * (double)sysconf(_SC_PAGESIZE);
}

/* Adds the folders of a part of the challenge's data to the list. */
static int add_part(const char *part, char list[MOST][PATH], int count)
{
    char folder[PATH / 2];
    snprintf(folder, sizeof folder, "%s/provided-data/%s", test_datasets(),
             part);
    DIR *dir = opendir(folder);
    for (const struct dirent *e; dir && (e = readdir(dir));)
        if (!strncmp(e->d_name, "pt_", 3) && count < MOST)
            snprintf(list[count++], PATH, "%s/%.200s", folder, e->d_name);
    if (dir) closedir(dir);
    return count;
}

static Dataset *patients(char list[MOST][PATH], int count)
{
    DatasetBuilder *b;
    Dataset *ds;
    REQUIRE(dataset_list_begin(fields, FIELDS, NULL, &b));

    for (int i = 0; i < count; i++) {
        // folder names also differ between the parts
        const char *name = strrchr(list[i], '/') + 1;
        ListCase c = {.key = name, .patient = name};
        for (int f = 0; f < FIELDS; f++)
            c.field[f].path[0] = list[i], c.field[f].paths = 1;
        REQUIRE(dataset_list_add(b, &c));
    }

    REQUIRE(dataset_finish(b, &ds));
    return ds;
}

/* Opens a pipeline over whole cases; *seconds: duration. */
static Pipeline *opened(const Dataset *ds, const char *store, double *seconds)
{
    const PipelineOptions how = {
        .threads = 2, .cache_bytes = (int64_t)1 << 30, .store = store};
    Steps none;
    Pipeline *p;
    const double begin = clock_s();
    REQUIRE(steps_parse("", &none) && pipeline_open(ds, &none, &how, &p));
    *seconds = clock_s() - begin;
    return p;
}

/* Reads all samples as batches of one and sends them to the peer, if there is
 * one; returns their hash. */
static uint64_t each_sample(Pipeline *p, FILE *peer)
{
    const Dataset *ds = pipeline_dataset(p);
    const LoaderOptions how = {.batch = 1, .workers = 2};
    uint64_t h = 1;
    Loader *l;

    REQUIRE(loader_open(p, &how, &l));
    for (int i = 0; i < ds->count; i++) {
        const Batch *b;
        REQUIRE(loader_next(l, &b));
        const Case *c = &ds->cases[b->id[0].item];
        if (peer) fprintf(peer, "%s\n", c->field[0].source->path);
        for (int f = 0; f < FIELDS; f++) {
            const Tensor *t = &b->field[f];
            const size_t n = (size_t)numel(t->dim);
            const uint64_t *word = t->data;
            EXPECT_INT(n, OPENKBP_VOXELS * (f == 1 ? OPENKBP_STRUCTURES : 1));
            for (size_t k = 0; k < n / 2; k++)
                h = (h ^ word[k]) * 0x9E3779B97F4A7C15u, h ^= h >> 29;
            if (peer) fwrite(t->data, sizeof(float), n, peer);
        }
    }

    loader_close(l);
    return h;
}

TEST(openkbp_set_of_real_patients)
{
    static char list[MOST][PATH];
    char store[PATH], command[64];
    int count = add_part("validation-pats", list, 0);

    if (getenv("SEG_SOAK")) {
        count = add_part("train-pats", list, count);
        count = add_part("test-pats", list, count);
        if (count) EXPECT_INT(count, 32);
    }

    if (!count) SKIP("the 32 OpenKBP patients are not here");
    snprintf(command, sizeof command,
             PYTHON "tests/data/datasets/openkbp_set_peer.py");
    bool has_pandas = !system(PYTHON "-c 'import pandas' 2> /dev/null");
    snprintf(store, sizeof store, "%s/openkbp.cases", test_folder());

    Dataset *ds = patients(list, count);
    double csv_s, store_s, before = device_dataset();
    Pipeline *p = opened(ds, store, &csv_s);
    const double grown = device_dataset() - before;
    const double packed = (double)pipeline_cache(p).bytes;
    double facts = 0;
    for (int i = 0; i < count; i++)
        facts += (double)pipeline_facts(p, i)->bytes;
    EXPECT(packed == facts && pipeline_cache(p).kept == count);
    FILE *peer = has_pandas ? popen(command, "w") : NULL;
    const uint64_t want = each_sample(p, peer);
    if (peer) EXPECT(!pclose(peer));
    pipeline_free(p);

    // the same from the file, which consists of little but the packs
    struct stat st;
    REQUIRE(!stat(store, &st));
    EXPECT((double)st.st_size >= packed &&
           (double)st.st_size < packed + 4096.0 * (count + 1));
    p = opened(ds, store, &store_s);
    EXPECT(each_sample(p, NULL) == want);
    pipeline_free(p);
    dataset_free(ds);

    const double each = packed / count;
    printf("  %d patients: %.1f a second from CSV, %.0f from the file of "
           "prepared cases (two threads); %.2f MB each (memory grew by %.1f "
           "MB, the file has %.1f MB); 200 patients take %.2f GB\n",
           count, count / csv_s, count / store_s, each / 1e6, grown / 1e6,
           (double)st.st_size / 1e6, 200 * each / 1e9);

    // sizes per patient on average in docs/data.md, and the limit for 200
    EXPECT(each > (count == 32 ? 1.2e6 : 0.5e6) && each < 1.5e6);
    EXPECT(200 * each < 2.5e9);
    if (!has_pandas)
        SKIP("python3-pandas is not installed (sh vendor/fetch ci)");
}
