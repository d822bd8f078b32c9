/* safetensors_write.c -- written files: their bytes, their checksums, and
 * detection of any damage; and a file that Python wrote.
 *
 * tests/golden/safetensors.py made that file and can read files of this
 * program. */
#include "engine/base/file.h"
#include "engine/checkpoint/safetensors.h"
#include "tests/test.h"
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static bool fill_ramp(void *ctx, int i, void *out)
{
    const StTensor *t = ctx;
    size_t n = st_type_bytes(t[i].type);
    for (int k = 0; k < t[i].axes; k++) n *= (size_t)t[i].shape[k];
    for (size_t k = 0; k < n; k++)
        ((unsigned char *)out)[k] =
            (unsigned char)(k * 7 + (size_t)t[i].name[0]);
    return true;
}

static StTensor sample[] = {
    {.name = "head.weight", .type = ST_F32, .axes = 2, .shape = {3, 5}},
    {.name = "enc.bias", .type = ST_F32, .axes = 1, .shape = {7}},
    {.name = "a scalar", .type = ST_F64},
    {.name = "gr\xc3\xb6\xc3\x9f"
             "e",
     .type = ST_U8,
     .axes = 1,
     .shape = {3}},
};
static MetaPair sample_meta[] = {
    {"recipe", "-- \"x\"\\\n\tseg\x7f \xe2\x82\xac"},
    {"epoch", "3"},
};

static bool save_sample(const char *path)
{
    return safetensors_save(
        path, &(StWrite){sample, 4, sample_meta, 2, fill_ramp, sample});
}

static void in_folder(char *path, size_t room, const char *name)
{
    snprintf(path, room, "%s/%s", test_folder(), name);
}

/* Returns the whole file of save_sample. */
static char *sample_bytes(Arena *mem, size_t *size)
{
    char path[256], *data;
    in_folder(path, sizeof path, "sample.safetensors");
    REQUIRE(save_sample(path));
    REQUIRE(file_read(path, 1 << 20, mem, &data, size));
    return data;
}

TEST(safetensors_written)
{
    Arena mem = {0};
    size_t size, again_size;
    char *bytes = sample_bytes(&mem, &size);

    // the file, byte for byte: a stable format
    static const char want[] =
        "{\"__metadata__\":{\"crc32c.header\":\"XXXXXXXX\",\"crc32c.tensors\":"
        "\"XXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXX\",\"epoch\":\"3\",\"recipe\":\"-- "
        "\\\"x\\\"\\\\\\n\\u0009seg\\u007f \xe2\x82\xac\"},\"a scalar\":{"
        "\"dtype\":\"F64\",\"shape\":[],\"data_offsets\":[0,8]},\"enc.bias\":{"
        "\"dtype\":\"F32\",\"shape\":[7],\"data_offsets\":[8,36]},"
        "\"gr\xc3\xb6\xc3\x9f"
        "e\":{\"dtype\":\"U8\",\"shape\":[3],"
        "\"data_offsets\":[36,39]},\"head.weight\":{\"dtype\":\"F32\","
        "\"shape\":[3,5],\"data_offsets\":[39,99]}}";
    uint64_t length;

    memcpy(&length, bytes, 8);
    EXPECT_INT((8 + length) % 64, 0);
    EXPECT_INT(size, 8 + length + 99);
    REQUIRE(length >= sizeof want - 1);
    for (size_t i = 0; i < sizeof want - 1; i++)
        if (want[i] != 'X') EXPECT_INT(bytes[8 + i], want[i]);
    for (size_t i = sizeof want - 1; i < length; i++)
        EXPECT_INT(bytes[8 + i], ' ');

    // the caller's order does not matter
    char path[256], *again;
    in_folder(path, sizeof path, "again.safetensors");
    StTensor turned[] = {sample[3], sample[1], sample[0], sample[2]};
    MetaPair pair[] = {sample_meta[1], sample_meta[0], {"crc32c.header", "x"}};
    REQUIRE(safetensors_save(
        path, &(StWrite){turned, 4, pair, 3, fill_ramp, turned}));
    REQUIRE(file_read(path, 1 << 20, &mem, &again, &again_size));
    EXPECT_INT(again_size, size);
    EXPECT(again_size == size && !memcmp(bytes, again, size));

    // and it reads back
    Safetensors f;
    char data[64], ramp[64];
    REQUIRE(safetensors_open(path, &f));
    EXPECT(f.crcs && !*f.meta.note);
    EXPECT_INT(f.data_at, 8 + length);
    EXPECT_TEXT(meta_get(&f.meta, "recipe"), sample_meta[0].value);
    int i = safetensors_find(&f, "head.weight");
    REQUIRE(i == 3 && f.tensor[i].bytes == 60);
    EXPECT(safetensors_read(&f, i, data) && fill_ramp(sample, 0, ramp) &&
           !memcmp(data, ramp, 60));
    EXPECT(safetensors_verify(&f));
    safetensors_close(&f);
    arena_release(&mem);
}

TEST(safetensors_write_refused)
{
    char path[256];
    in_folder(path, sizeof path, "refused.safetensors");
    StTensor twice[] = {{.name = "a"}, {.name = "a"}};
    StTensor odd = {.name = "a\x1b[2J"}, own = {.name = "__metadata__"};
    StTensor huge = {.name = "a", .axes = 2, .shape = {INT64_MAX, 2}};
    MetaPair latin = {"recipe", "gr\xf6\xdf"
                                "er"},
             nokey = {"", ""};
    StWrite w = {.fill = fill_ramp, .ctx = twice};
#define REFUSED(text)                                                      \
    EXPECT(!safetensors_save(path, &w));                                   \
    EXPECT(strstr(err_text(), "refused.safetensors: safetensors: " text)); \
    EXPECT(access(path, F_OK))
    w.tensor = twice, w.count = 2;
    REFUSED("tensor \"a\" appears twice");
    w.tensor = &odd, w.count = 1;
    REFUSED("tensor name with byte 0x1b, which is not printable");
    w.tensor = &own;
    REFUSED("no tensor may be called __metadata__");
    w.tensor = &huge;
    REFUSED("tensor \"a\": size");
    w.count = 0, w.pair = &latin, w.pairs = 1;
    REFUSED("metadata \"recipe\" is not UTF-8 at byte 2");
    w.pair = &nokey;
    REFUSED("metadata key of 0 bytes (1 to 256 are allowed)");
}

/* Opens and checks everything, as a load does. */
static bool sound(const char *bytes, size_t size)
{
    Safetensors f;
    if (!safetensors_memory("f", bytes, size, &f)) return false;
    bool ok = safetensors_verify(&f) && f.crcs;
    safetensors_close(&f);
    return ok;
}

TEST(safetensors_truncated)
{
    Arena mem = {0};
    size_t size;
    char *bytes = sample_bytes(&mem, &size);

    REQUIRE(sound(bytes, size));
    for (size_t n = 0; n < size; n++) {
        char *part = malloc(n + !n);
        memcpy(part, bytes, n);
        if (sound(part, n))
            test_failed(__FILE__, __LINE__, "%zu of %zu bytes are read", n,
                        size);
        EXPECT_INT(err_kind(), ERR_DATA);
        free(part);
    }
    arena_release(&mem);
}

TEST(safetensors_flipped)
{
    Arena mem = {0};
    size_t size;
    char *bytes = sample_bytes(&mem, &size);

    // every single bit, padding included, then two and three at random
    for (size_t bit = 0; bit < size * 8; bit++) {
        bytes[bit / 8] ^= (char)(1 << bit % 8);
        if (sound(bytes, size))
            test_failed(__FILE__, __LINE__, "bit %zu is not seen", bit);
        bytes[bit / 8] ^= (char)(1 << bit % 8);
    }

    uint32_t state = 7;
    for (int round = 0; round < 100000; round++) {
        size_t at[3];
        for (int k = 0; k < 3; k++) {
            state = state * 1664525u + 1013904223u;
            at[k] = (state >> 8) % (size * 8);
        }
        int flips = 2 + round % 2;
        if (at[0] == at[1] || at[1] == at[2] || at[0] == at[2]) continue;
        for (int k = 0; k < flips; k++)
            bytes[at[k] / 8] ^= (char)(1 << at[k] % 8);
        if (sound(bytes, size))
            test_failed(__FILE__, __LINE__, "bits %zu %zu %zu are not seen",
                        at[0], at[1], at[2]);
        for (int k = 0; k < flips; k++)
            bytes[at[k] / 8] ^= (char)(1 << at[k] % 8);
    }

    EXPECT(sound(bytes, size));
    arena_release(&mem);
}

TEST(safetensors_damage_is_named)
{
    Arena mem = {0};
    size_t size;
    char *bytes = sample_bytes(&mem, &size);
    Safetensors f;

    bytes[size - 1] ^= 1;
    REQUIRE(safetensors_memory("f", bytes, size, &f));
    char data[64];
    EXPECT_FAIL(safetensors_verify(&f),
                "f: safetensors: tensor \"head.weight\" is damaged (checksum ");
    EXPECT(safetensors_read(&f, 0, data));
    EXPECT_FAIL(safetensors_read(&f, 3, data), "\"head.weight\" is damaged");
    safetensors_close(&f);
    arena_release(&mem);
}

/* Each allocation fails once: nothing is left behind. */
TEST(safetensors_no_memory)
{
    Arena mem = {0};
    size_t size;
    char *bytes = sample_bytes(&mem, &size), path[256];

    in_folder(path, sizeof path, "memory.safetensors");
    long before = mem_live();

    for (int mode = 0; mode < 2; mode++) {
        bool ok = false;
        for (long n = 0; !ok && n < 1000; n++) {
            mem_fail_after(n, mode);
            ok = sound(bytes, size) && save_sample(path);
            mem_fail_after(-1, false);
            EXPECT_INT(mem_live(), before);
            if (!ok) EXPECT(strstr(err_text(), "no memory"));
        }
        EXPECT(ok);
    }
    arena_release(&mem);
}

// -- files of Python ----------------------------------------------------------

TEST(safetensors_golden)
{
    Safetensors f;
    double x[24];
    REQUIRE(safetensors_open("tests/golden/python.safetensors", &f));
    EXPECT(!f.crcs);
    EXPECT_INT(f.count, 9);
    EXPECT_TEXT(meta_get(&f.meta, "format"), "pt");
    EXPECT_TEXT(meta_get(&f.meta, "quote"), "\"\\\n\xc3\xbc");
    int i = safetensors_find(&f, "conv.weight");
    REQUIRE(i >= 0 && f.tensor[i].type == ST_F32 && f.tensor[i].axes == 4);
    EXPECT_INT(f.tensor[i].shape[0], 2);
    EXPECT_INT(f.tensor[i].shape[3], 3);
    REQUIRE(safetensors_read_f64(&f, i, x));
    for (int k = 0; k < 24; k++) EXPECT_NEAR(x[k], k / 8.0 - 1, 0);
    static const struct {
        const char *name;
        double want[3];
    } rows[] = {
        {"f64", {1e-300, -2.5, 3}},  {"f16", {0.5, -65504, 6e-8}},
        {"i64", {-1, 2, 1LL << 40}}, {"i32", {-1, 2, 1 << 20}},
        {"u8", {0, 127, 255}},       {"bool", {0, 1, 1}},
    };

    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        i = safetensors_find(&f, rows[r].name);
        REQUIRE(i >= 0 && safetensors_count(&f, i) == 3);
        REQUIRE(safetensors_read_f64(&f, i, x));
        for (int k = 0; k < 3; k++) EXPECT_NEAR(x[k], rows[r].want[k], 1e-9);
    }

    i = safetensors_find(&f, "norm.num_batches_tracked");
    REQUIRE(i >= 0 && f.tensor[i].axes == 0);
    REQUIRE(safetensors_read_f64(&f, i, x));
    EXPECT_NEAR(x[0], 42, 0);
    EXPECT(safetensors_find(&f, "empty") >= 0);
    safetensors_close(&f);
}

TEST(safetensors_read_by_python)
{
    char path[256], command[1024];
    const char *python = getenv("SEG_PYTHON");
    in_folder(path, sizeof path, "sample.safetensors");
    REQUIRE(save_sample(path));
    snprintf(command, sizeof command,
             "'%s' tests/golden/safetensors.py --check '%s' 2>/dev/null",
             python ? python : "python3", path);
    int status = system(command);
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    if (code == 77 || code == 127)
        SKIP("no Python with the safetensors package (see SEG_PYTHON)");
    EXPECT_INT(code, 0);
}
