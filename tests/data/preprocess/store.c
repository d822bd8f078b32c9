/* store.c -- tests of prepared cases in a file: the same samples from it
 * whatever happens to it, and never samples of other files or steps. */
#include "data/preprocess/store.h"
#include "data/dataset/dataset_list.h"
#include "data/format/npy.h"
#include "engine/base/file.h"
#include "tests/support/volumes.h"
#include "tests/test.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CASES = 5 };

static const char steps_text[] = "normalize\nfit h=8 w=8\nslices axis=stored\n";

static const char *path_of(const char *name)
{
    static char path[2][512];
    static int turn;
    turn = !turn;
    snprintf(path[turn], sizeof path[turn], "%s/%s", test_folder(), name);
    return path[turn];
}

/* Writes the file of case i, with numbers that depend on `seed`. */
static void write_case(int i, int seed)
{
    float x[3 * 6 * 7];
    char name[32];
    for (int k = 0; k < 3 * 6 * 7; k++)
        x[k] = (float)((k * 7 + i * 31 + seed * 1009) % 101) / 4;
    snprintf(name, sizeof name, "store_%d.npy", i);
    REQUIRE(npy_write(path_of(name), 3, (int64_t[]){3, 6, 7}, x));
}

/* Five volumes with a number each. */
static Dataset *files(void)
{
    static const ListField field[] = {
        {.name = "image", .kind = FIELD_IMAGE, .rank = 3, .reader = "npy"},
        {.name = "age", .kind = FIELD_NUMBER, .numbers = 1}};
    DatasetBuilder *b;
    Dataset *ds;

    REQUIRE(dataset_list_begin(field, 2, NULL, &b));
    for (int i = 0; i < CASES; i++) {
        char key[8], name[32];
        const double age = 40 + i;
        snprintf(key, sizeof key, "c%d", i);
        snprintf(name, sizeof name, "store_%d.npy", i);
        ListCase c = {.key = key, .patient = key};
        c.field[0].path[0] = path_of(name), c.field[0].paths = 1;
        c.field[1].number = &age;
        REQUIRE(dataset_list_add(b, &c));
    }

    REQUIRE(dataset_finish(b, &ds));
    return ds;
}

/* Hashes every number of every sample. */
static uint64_t samples_hash(Pipeline *p)
{
    uint64_t h = 1;
    for (int32_t i = 0; i < pipeline_samples(p); i++) {
        float x[8 * 8], age;
        float *const out[MAX_FIELDS] = {x, &age};
        REQUIRE(pipeline_sample(p, i, 0, false, NULL, out));
        for (int k = 0; k <= 64; k++) {
            uint32_t bits;
            memcpy(&bits, k < 64 ? &x[k] : &age, sizeof bits);
            h = (h ^ bits) * 0x9E3779B97F4A7C15u;
        }
    }
    return h;
}

/* Called on the file of case 2 after it was read; NULL: nothing. */
static void (*meanwhile)(const char *path);
static bool (*load)(const Source *s, Volume *out, DicomNotes *notes);

static bool load_and_more(const Source *s, Volume *out, DicomNotes *notes)
{
    const bool ok = load(s, out, notes);
    meanwhile(s->path);
    return ok;
}

/* Opens the five cases with this store and steps; returns their hash, and the
 * message of the pipeline about the store. */
static uint64_t opened(const char *store, const char *steps, int threads,
                       char text[256])
{
    const PipelineOptions options = {
        .threads = threads, .cache_bytes = 1 << 20, .store = store};
    Steps s = made_steps(steps);
    Dataset *ds = files();
    Pipeline *p;
    Arena mem = {NULL};

    if (meanwhile) {
        Source *source = (Source *)(uintptr_t)ds->cases[2].field[0].source;
        load = source->load, source->load = load_and_more;
    }
    REQUIRE(pipeline_open(ds, &s, &options, &p));
    uint64_t h = samples_hash(p);
    const char *said = pipeline_store(p, &mem);
    snprintf(text, 256, "%s", said ? said : "");
    arena_release(&mem);
    pipeline_free(p);
    dataset_free(ds);
    return h;
}

static void expect_text(const char *got, const char *want, int line)
{
    if (!strstr(got, want))
        test_failed(__FILE__, line, "\"%s\", want \"%s\"", got, want);
}
#define SAYS(got, want) expect_text(got, want, __LINE__)

static void all_cases(int seed)
{
    for (int i = 0; i < CASES; i++) write_case(i, seed);
}

TEST(store_gives_the_same_samples)
{
    char text[256];
    const char *path = path_of("same.cases");
    char store[512];
    struct stat st;

    snprintf(store, sizeof store, "%s", path);
    all_cases(0);
    uint64_t want = opened(NULL, steps_text, 1, text);
    EXPECT_TEXT(text, "");
    EXPECT(opened(store, steps_text, 3, text) == want);
    SAYS(text, "prepared cases: 0 found, 5 added");

    // readable by its owner only
    REQUIRE(!stat(store, &st));
    EXPECT_INT(st.st_mode & 0777, 0600);
    for (int threads = 1; threads < 4; threads++) {
        EXPECT(opened(store, steps_text, threads, text) == want);
        SAYS(text, "prepared cases: 5 found, 0 added");
    }

    // other steps make other cases, which are added to the file
    uint64_t other = opened(NULL, "fit h=8 w=8\nslices axis=stored\n", 1, text);
    EXPECT(other != want);
    EXPECT(opened(store, "fit h=8 w=8\nslices axis=stored\n", 1, text) ==
           other);
    SAYS(text, "0 found, 5 added");
    EXPECT(opened(store, steps_text, 1, text) == want);
    SAYS(text, "5 found, 0 added");

    // augmentation is not part of a case
    opened(store, "normalize\nfit h=8 w=8\nslices axis=stored\nflip\n", 1,
           text);
    SAYS(text, "5 found, 0 added");
}

TEST(store_knows_files_that_changed)
{
    char text[256], store[512];
    snprintf(store, sizeof store, "%s", path_of("changed.cases"));
    all_cases(0);
    opened(store, steps_text, 1, text);
    write_case(2, 1);
    uint64_t want = opened(NULL, steps_text, 1, text);
    EXPECT(opened(store, steps_text, 1, text) == want);
    SAYS(text, "4 found, 1 added");

    // the same bytes with another time: prepared again, and equal
    char name[32] = "store_3.npy";
    struct timespec times[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
    REQUIRE(!utimensat(AT_FDCWD, path_of(name), times, 0));
    EXPECT(opened(store, steps_text, 1, text) == want);
    SAYS(text, "4 found, 1 added");
    EXPECT(opened(store, steps_text, 1, text) == want);
    SAYS(text, "5 found, 0 added");
}

/* Writes into the middle of a file of 2 MiB, beyond the hashed parts at its
 * ends, and restores its time. */
static void change_middle(const char *path, char value)
{
    struct stat st;
    FILE *f = fopen(path, "r+b");
    REQUIRE(f && !fstat(fileno(f), &st) && !fseek(f, 1 << 20, SEEK_SET));
    REQUIRE(fputc(value, f) == value && !fclose(f));
    const struct timespec times[2] = {st.st_atim, st.st_mtim};
    REQUIRE(!utimensat(AT_FDCWD, path, times, 0));
}

static void change_back(const char *path)
{
    change_middle(path, 0x01);
}

TEST(store_knows_files_whose_time_was_put_back)
{
    enum { D = 8, H = 256, W = 256 }; // 2 MiB
    char text[256], store[512], path[512], other[512];
    snprintf(store, sizeof store, "%s", path_of("put_back.cases"));
    snprintf(path, sizeof path, "%s", path_of("store_2.npy"));
    snprintf(other, sizeof other, "%s", path_of("store_other.npy"));
    float *x = mem_alloc((size_t)D * H * W * sizeof *x);
    REQUIRE(x);
    for (int k = 0; k < D * H * W; k++) x[k] = (float)(k % 101);
    all_cases(0);
    REQUIRE(npy_write(path, 3, (int64_t[]){D, H, W}, x));
    mem_free(x);
    const uint64_t want = opened(NULL, steps_text, 1, text);
    EXPECT(opened(store, steps_text, 1, text) == want);
    SAYS(text, "0 found, 5 added");

    // the number in the middle changes
    change_middle(path, 0x42);
    const uint64_t now = opened(NULL, steps_text, 1, text);
    EXPECT(now != want);
    EXPECT(opened(store, steps_text, 1, text) == now);
    SAYS(text, "4 found, 1 added");
    EXPECT(opened(store, steps_text, 2, text) == now);
    SAYS(text, "5 found, 0 added");

    // another inode, or only other metadata: read, not prepared again
    struct stat st;
    REQUIRE(!stat(path, &st) && !chmod(path, 0600));
    EXPECT(opened(store, steps_text, 1, text) == now);
    SAYS(text, "5 found, 0 added");
    Arena mem = {NULL};
    char *data;
    size_t bytes;
    REQUIRE(file_read(path, 1 << 22, &mem, &data, &bytes));
    REQUIRE(file_replace(other, data, bytes) && !rename(other, path));
    arena_release(&mem);
    const struct timespec times[2] = {st.st_atim, st.st_mtim};
    REQUIRE(!utimensat(AT_FDCWD, path, times, 0));
    EXPECT(opened(store, steps_text, 1, text) == now);
    SAYS(text, "5 found, 0 added");

    // between the reading and the hashing: the case that was read is not stored
    // under the hash of the new file
    change_middle(path, 0x7f);
    meanwhile = change_back;
    EXPECT(opened(store, steps_text, 1, text) != now);
    meanwhile = NULL;
    SAYS(text, "4 found, 0 added");
    EXPECT(opened(store, steps_text, 1, text) ==
           opened(NULL, steps_text, 1, other));
}

/* With any byte changed, and the file truncated anywhere: the samples are
 * correct, and the file is usable again. */
TEST(store_that_is_damaged)
{
    char text[256], store[512], copy[512];
    char *data;
    size_t bytes;
    Arena mem = {NULL};

    snprintf(store, sizeof store, "%s", path_of("good.cases"));
    snprintf(copy, sizeof copy, "%s", path_of("damaged.cases"));
    all_cases(0);
    uint64_t want = opened(store, steps_text, 1, text);
    REQUIRE(file_read(store, 1 << 24, &mem, &data, &bytes));
    int whole = 0, rounds = 0;

    for (size_t i = 8; i < bytes; i += i < 64 ? 3 : 61) {
        data[i] = (char)(data[i] ^ 0x41);
        REQUIRE(file_replace(copy, data, bytes));
        data[i] = (char)(data[i] ^ 0x41);
        if (opened(copy, steps_text, 1, text) != want)
            test_failed(__FILE__, __LINE__, "byte %zu: other samples", i);
        whole += strstr(text, "5 found") != NULL;
        rounds++;
        EXPECT(opened(copy, steps_text, 1, text) == want);
    }

    // most bytes belong to a case or to the index
    EXPECT(whole < rounds / 3);

    for (size_t n = 1; n < bytes; n += n < 80 ? 7 : 997) {
        REQUIRE(file_replace(copy, data, n));
        EXPECT(opened(copy, steps_text, 1, text) == want);
        EXPECT(opened(copy, steps_text, 1, text) == want);
        SAYS(text, "found, 0 added");
    }
    arena_release(&mem);
}

/* Inspecting returns the number of cases and changes nothing, whatever is wrong
 * with the file. */
TEST(store_is_looked_at)
{
    char text[256], store[512], copy[512];
    char *data, *again;
    size_t bytes, same;
    bool current;
    StoreStats stats;
    Arena mem = {NULL};

    snprintf(store, sizeof store, "%s", path_of("looked.cases"));
    snprintf(copy, sizeof copy, "%s", path_of("looked_copy.cases"));
    all_cases(0);
    opened(store, steps_text, 1, text);
    EXPECT(store_is(store));
    REQUIRE(store_look(store, &stats, &current));
    EXPECT(current);
    EXPECT_INT(stats.cases, CASES);
    REQUIRE(file_read(store, 1 << 24, &mem, &data, &bytes));
    EXPECT_INT(stats.bytes, bytes);

    for (size_t i = 8; i < bytes; i += i < 64 ? 3 : 509) {
        data[i] = (char)(data[i] ^ 0x41);
        REQUIRE(file_replace(copy, data, bytes));
        EXPECT(store_is(copy));
        REQUIRE(store_look(copy, &stats, &current));
        EXPECT_INT(stats.cases, current ? CASES : 0);
        // all bytes of the header are checked
        if (i < 64) EXPECT(!current);
        REQUIRE(file_read(copy, 1 << 24, &mem, &again, &same));
        EXPECT(same == bytes && !memcmp(data, again, bytes));
        data[i] = (char)(data[i] ^ 0x41);
    }

    for (size_t n = 8; n < bytes; n += n < 80 ? 7 : 997) {
        REQUIRE(file_replace(copy, data, n));
        REQUIRE(store_look(copy, &stats, &current));
        EXPECT(!current && stats.cases == 0);
    }

    // neither a folder nor another file is a store
    EXPECT(!store_is(test_folder()));
    EXPECT(!store_is(path_of("store_0.npy")));
    EXPECT(!store_look(path_of("store_0.npy"), &stats, &current));
    EXPECT(!store_look(path_of("nowhere"), &stats, &current));
    arena_release(&mem);
}

/* After a killed run: cases after the index that the header does not list. */
TEST(store_is_not_half_added_to)
{
    char text[256], store[512];
    Prepared v;
    Store *s;
    CacheKey cache_key = {{1, 2}};
    const char *notes;
    bool found;

    snprintf(store, sizeof store, "%s", path_of("half.cases"));
    all_cases(0);
    uint64_t want = opened(store, steps_text, 1, text);
    Dataset *ds = files();
    Steps steps = made_steps(steps_text);
    REQUIRE(prepare_case(ds, 0, &steps, NULL, NULL, NULL, &v));

    for (int committed = 0; committed < 2; committed++) {
        REQUIRE(store_open(store, &s));
        EXPECT_INT(store_stats(s).cases, 5);
        store_add(s, &cache_key, &(Origin){.place = {{0}}}, &v, "a note\n");
        store_get(s, &cache_key, &(Prepared){.fields = 0}, &notes, &found);
        EXPECT(!found);
        if (committed) EXPECT(store_commit(s));
        if (committed) {
            Prepared w;
            store_get(s, &cache_key, &w, &notes, &found);
            EXPECT(found && w.hash == v.hash && w.fields == 2);
            EXPECT_TEXT(notes, "a note\n");
        }
        store_close(s);
        EXPECT(opened(store, steps_text, 1, text) == want);
        SAYS(text, "5 found, 0 added");
    }

    prepared_free(&v);
    dataset_free(ds);
}

TEST(store_is_added_to_by_one_at_a_time)
{
    char text[256], store[512];
    Prepared v;
    Store *s;

    snprintf(store, sizeof store, "%s", path_of("busy.cases"));
    all_cases(0);
    uint64_t want = opened(NULL, steps_text, 1, text);
    Dataset *ds = files();
    Steps steps = made_steps(steps_text);
    REQUIRE(prepare_case(ds, 0, &steps, NULL, NULL, NULL, &v));
    REQUIRE(store_open(store, &s));
    store_add(s, &(CacheKey){{1, 2}}, &(Origin){.place = {{0}}}, &v, "");

    // the other pipeline continues without the store, and reports it
    EXPECT(opened(store, steps_text, 2, text) == want);
    SAYS(text, "prepared cases are not kept: ");
    SAYS(text, "another process adds cases to it");
    REQUIRE(store_commit(s));
    EXPECT(opened(store, steps_text, 1, text) == want);
    SAYS(text, "0 found, 5 added");

    // a process with the file open sees new cases when it adds
    store_add(s, &(CacheKey){{3, 4}}, &(Origin){.place = {{0}}}, &v, "");
    REQUIRE(store_commit(s));
    EXPECT_INT(store_stats(s).cases, 7);
    store_close(s);
    EXPECT(opened(store, steps_text, 1, text) == want);
    SAYS(text, "5 found, 0 added");
    prepared_free(&v);
    dataset_free(ds);
}

TEST(store_goes_nowhere_else)
{
    char text[256], path[512];
    Store *s;
    struct rlimit before, small = {.rlim_cur = 3000};

    snprintf(path, sizeof path, "%s", path_of("letter.txt"));
    all_cases(0);
    uint64_t want = opened(NULL, steps_text, 1, text);
    REQUIRE(file_replace(path, "Dear Sir", 8));
    EXPECT_FAIL(store_open(path, &s), "there is a file that segengine did not "
                                      "make; fix: another name");
    EXPECT(opened(path, steps_text, 1, text) == want);
    SAYS(text, "not kept: ");
    EXPECT_FAIL(store_open(test_folder(), &s), "cannot keep prepared cases");
    EXPECT_FAIL(store_open("/nowhere/x", &s), "/nowhere/x: cannot keep");
    REQUIRE(!mkfifo(path_of("fifo"), 0600));
    EXPECT_FAIL(store_open(path_of("fifo"), &s), "not a file");

    // like a full disk: cases that are not stored are prepared, and the next
    // run tries again
    snprintf(path, sizeof path, "%s", path_of("full.cases"));
    REQUIRE(!getrlimit(RLIMIT_FSIZE, &before));
    small.rlim_max = before.rlim_max;
    REQUIRE(!setrlimit(RLIMIT_FSIZE, &small));
    uint64_t got = opened(path, steps_text, 2, text);
    REQUIRE(!setrlimit(RLIMIT_FSIZE, &before));
    EXPECT(got == want);
    SAYS(text, "not kept: ");
    EXPECT(opened(path, steps_text, 2, text) == want);
    SAYS(text, "0 found, 5 added");
}
