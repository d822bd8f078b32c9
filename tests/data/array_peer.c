/* array_peer -- compares files of NumPy, zipfile and SciPy with our readers,
 * value for value.
 *
 * A Python script writes files to a folder, with an index of their arrays and
 * the numbers themselves (array_index.py). */
#include "data/format/mat.h"
#include "data/format/npz.h"
#include "engine/base/file.h"
#include "tests/test.h"
#include <stdlib.h>
#include <sys/stat.h>

/* Reads array `name` of a file; "-" if the file is a single array. */
typedef bool Reader(const char *path, const char *name, NpyArray *out);

/* Reads the whole array, and again in ranges of odd length, which must
 * agree. */
static bool by_npy(const char *path, const char *name, NpyArray *out)
{
    NpyFile f;
    float piece[5];
    (void)name;
    if (!npy_read(path, out)) return false;
    REQUIRE(npy_open(path, &f));
    for (int64_t at = 0; at < out->count; at += 5) {
        int64_t n = out->count - at < 5 ? out->count - at : 5;
        REQUIRE(npy_read_range(&f, at, n, piece));
        EXPECT(!memcmp(piece, out->data + at, (size_t)n * sizeof *piece));
    }

    npy_close(&f);
    return true;
}

static bool by_npz(const char *path, const char *name, NpyArray *out)
{
    Npz z;
    NpyHeader h;
    if (!npz_open(path, &z)) return false;
    for (int i = 0; i < z.entries; i++) REQUIRE(npz_about(&z, i, &h));
    bool ok = npz_read(&z, name, 0, out);
    npz_close(&z);
    return ok;
}

static bool by_mat(const char *path, const char *name, NpyArray *out)
{
    Mat m;
    if (!mat_open(path, &m)) return false;
    bool ok = mat_read(&m, name, 0, out);
    mat_close(&m);
    return ok;
}

/* Compares one line of the index with the array that was read. *at: number of
 * floats used so far. */
static void compare(const char *folder, const char *line, const float *want,
                    size_t count, size_t *at, Reader *read)
{
    char file[64], name[64], path[400];
    int axes, used;
    NpyArray a;

    REQUIRE(sscanf(line, "%63s %63s %d%n", file, name, &axes, &used) == 3);
    snprintf(path, sizeof path, "%s/%s", folder, file);
    if (!read(path, name, &a)) {
        test_failed(__FILE__, __LINE__, "%s", err_text());
        test_stop();
    }
    EXPECT_INT(a.axes, axes);
    for (int k = 0; k < axes; k++) {
        char *next;
        EXPECT_INT(a.shape[k], strtoll(line + used, &next, 10));
        used = (int)(next - line);
    }

    REQUIRE(*at + (size_t)a.count <= count);
    for (int64_t i = 0; i < a.count; i++) {
        float w = want[*at + (size_t)i], g = a.data[i];
        if (isnan(w) ? !isnan(g) : memcmp(&w, &g, sizeof w) != 0)
            test_failed(__FILE__, __LINE__, "%s %s: number %lld is %g, want %g",
                        file, name, (long long)i, (double)g, (double)w);
    }

    *at += (size_t)a.count;
    mem_free(a.data);
}

/* Compares all files that a script makes; their number must be `files`. */
static void agree(const char *script, const char *needs, const char *absent,
                  const char *by, int files, Reader *read)
{
    Arena mem = {0};
    char folder[300], path[400], command[900];
    char *index, *data, last[64] = "";
    size_t n, bytes, at = 0;
    int seen = 0;

    snprintf(command, sizeof command, "/usr/bin/python3 -c '%s' 2> /dev/null",
             needs);
    if (system(command)) SKIP(absent);
    snprintf(folder, sizeof folder, "%s/%s", test_folder(), script);
    REQUIRE(!mkdir(folder, 0700));

    // no __pycache__ of the shared module in the source tree
    snprintf(command, sizeof command,
             "/usr/bin/python3 -B tests/data/format/%s.py '%s' > /dev/null",
             script, folder);
    REQUIRE(!system(command));
    snprintf(path, sizeof path, "%s/index.txt", folder);
    REQUIRE(file_read(path, (size_t)1 << 24, &mem, &index, &n));
    snprintf(path, sizeof path, "%s/expected.bin", folder);
    REQUIRE(file_read(path, (size_t)1 << 28, &mem, &data, &bytes));

    for (char *line = strtok(index, "\n"); line; line = strtok(NULL, "\n")) {
        size_t name = strcspn(line, " ");
        REQUIRE(name < sizeof last);
        seen += strncmp(line, last, name + 1) != 0;
        memcpy(last, line, name + 1);
        compare(folder, line, (float *)data, bytes / sizeof(float), &at, read);
    }

    EXPECT_INT(at * sizeof(float), bytes);
    EXPECT(seen >= files);
    test_compared(seen, by);
    arena_release(&mem);
}

static const char no_numpy[] =
    "python3-numpy is not installed (sh vendor/fetch test)";

TEST(npy_agrees_with_numpy_on_every_kind)
{
    agree("npy_peer", "import numpy", no_numpy, ".npy of NumPy", 300, by_npy);
}

TEST(npz_agrees_with_numpy)
{
    agree("npz_peer", "import numpy", no_numpy, ".npz of NumPy and zipfile",
          200, by_npz);
}

TEST(mat_agrees_with_scipy)
{
    agree("mat_peer", "import numpy, scipy.io",
          "python3-scipy is not installed (sh vendor/fetch ci)",
          ".mat of SciPy", 200, by_mat);
}
