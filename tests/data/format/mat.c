/* mat.c -- tests of variables of every class, byte order and compression; long
 * variables; files. */
#include "engine/base/file.h"
#include "tests/support/mat_make.h"

TEST(mat_reads_every_class)
{
    static const struct {
        int mx;
        const char *name;
        struct {
            int mi, width;
        } stored[10];
    } row[] = {
        {6,
         "double",
         {{9, 8},
          {7, 4},
          {1, 1},
          {2, 1},
          {3, 2},
          {4, 2},
          {5, 4},
          {6, 4},
          {12, 8},
          {13, 8}}},
        {7, "single", {{7, 4}, {1, 1}, {2, 1}, {3, 2}, {4, 2}, {5, 4}, {6, 4}}},
        {8, "int8", {{1, 1}}},
        {9, "uint8", {{2, 1}}},
        {10, "int16", {{3, 2}, {1, 1}, {2, 1}}},
        {11, "uint16", {{4, 2}, {2, 1}}},
        {12, "int32", {{5, 4}, {4, 2}, {3, 2}, {2, 1}}},
        {13, "uint32", {{6, 4}, {4, 2}}},
        {14, "int64", {{12, 8}, {6, 4}, {5, 4}}},
        {15, "uint64", {{13, 8}, {6, 4}}},
    };

    for (size_t r = 0; r < sizeof row / sizeof *row; r++)
        for (int k = 0; k < 40; k++) {
            int big = k & 1, packed = k & 2, s = k / 4;
            MatMaker m;
            Mat mat;
            NpyArray a;
            uint8_t *copy;
            if (!row[r].stored[s].mi) break;
            size_t at = mat_make(&m, big, row[r].mx, row[r].stored[s].mi,
                                 row[r].stored[s].width);
            if (packed) mat_compress(&m, at);
            REQUIRE(mat_copy(&m, &copy, &mat));
            EXPECT_INT(mat.variables, 1);
            EXPECT_TEXT(mat.variable[0].name, "x");
            EXPECT_TEXT(mat.variable[0].class_name, row[r].name);
            EXPECT_INT(mat.variable[0].axes, 2);
            EXPECT_INT(mat.variable[0].shape[1], 3);
            REQUIRE(mat_read(&mat, "x", 0, &a));
            EXPECT(a.axes == 2 && a.shape[0] == 2 && a.shape[1] == 3);
            EXPECT_INT(a.count, 6);
            for (int i = 0; i < 2; i++)
                for (int j = 0; j < 3; j++)
                    EXPECT_INT(a.data[i * 3 + j], 1 + i + 2 * j);
            mem_free(a.data);
            mat_close(&mat);
            mat_close(&mat);
            mem_free(copy);
        }
}

TEST(mat_small_elements_and_many_axes)
{
    static const int shape[] = {1, 2, 1, 2, 1, 1, 1, 1, 1},
                     four[] = {7, 8, 9, 1};

    for (int big = 0; big < 2; big++)
        for (int axes = 4; axes <= 9; axes++) {
            MatMaker m;
            Mat mat;
            NpyArray a;
            uint8_t *copy;
            mat_begin(&m, big);
            size_t at = mat_matrix(&m, 0, 9, shape, axes, "long_name_of_x");
            mat_numbers(&m, 2, 1, four, 4, true);
            mat_end(&m, at);
            REQUIRE(mat_copy(&m, &copy, &mat));
            EXPECT_INT(mat.variable[0].axes, axes);
            if (axes == 9) {
                EXPECT_FAIL(mat_read(&mat, "long_name_of_x", 0, &a),
                            "mat: long_name_of_x: has 9 axes, at most 8 are");
            } else {
                // column order of 1 x 2 x 1 x 2: (0,0,0,0) (0,1,0,0) (0,0,0,1)
                // ...
                REQUIRE(mat_read(&mat, "long_name_of_x", 0, &a));
                EXPECT_INT(a.axes, axes);
                EXPECT(a.data[0] == 7 && a.data[1] == 9 && a.data[2] == 8 &&
                       a.data[3] == 1);
                mem_free(a.data);
            }
            mat_close(&mat);
            mem_free(copy);
        }
}

/* Kinds that are not numeric are listed, and named when one is read. */
TEST(mat_kinds_that_are_refused)
{
    static const struct {
        int flags, mx;
        const char *class_name, *reason;
    } row[] = {
        {0, 1, "cell", "x.mat: mat: x: is a cell array, need numbers; fix: sa"},
        {0, 2, "struct", "x.mat: mat: x: is a struct, need numbers"},
        {0, 3, "object", "x.mat: mat: x: is an object, need numbers"},
        {0, 4, "char", "x.mat: mat: x: is text (char), need numbers"},
        {0, 5, "sparse", "x.mat: mat: x: is a sparse matrix, need numbers"},
        {0, 16, "function", "x.mat: mat: x: is a function, need numbers"},
        {0, 17, "opaque", "x.mat: mat: x: is an object, need numbers"},
        {8, 6, "double", "x.mat: mat: x: is complex, need real numbers; fix"},
        {8 + 2, 9, "logical", "x.mat: mat: x: is complex, need real numbers"},
    };
    char path[300];
    snprintf(path, sizeof path, "%s/x.mat", test_folder());

    for (size_t r = 0; r < sizeof row / sizeof *row; r++) {
        MatMaker m;
        Mat mat;
        NpyArray a;
        long live = mem_live();
        mat_begin(&m, r & 1);
        size_t at = m.size;
        if (row[r].mx == 17) {
            int word[2] = {17, 0};
            mat_put(&m, 14, 4), mat_put(&m, 0, 4);
            mat_numbers(&m, 6, 4, word, 2, false);
            mat_element(&m, 1, "x", 1, true);
            mat_element(&m, 1, "MCOS", 4, true);
        } else {
            mat_matrix(&m, row[r].flags, row[r].mx, mat_grid, 2, "x");
            // nested matrices in the contents are never parsed
            for (int deep = 0; deep < 100; deep++)
                mat_put(&m, 14, 4), mat_put(&m, 0x7fffffff, 4);
        }
        mat_end(&m, at);
        if (r & 2) mat_compress(&m, at);
        size_t next = m.size;
        mat_matrix(&m, 0, 6, mat_grid, 2, "y");
        mat_numbers(&m, 9, 8, mat_counted, 6, false);
        mat_end(&m, next);
        REQUIRE(file_replace(path, m.bytes, m.size));
        REQUIRE(mat_open(path, &mat));
        EXPECT_INT(mat.variables, 2);
        EXPECT_TEXT(mat.variable[0].class_name, row[r].class_name);
        EXPECT(mat.variable[0].complex == (row[r].flags >= 8));
        EXPECT_FAIL(mat_read(&mat, "x", 0, &a), row[r].reason);
        EXPECT(!a.data && err_kind() == ERR_DATA);
        REQUIRE(mat_read(&mat, "y", 0, &a));
        mem_free(a.data);
        EXPECT_FAIL(mat_read(&mat, "z", 0, &a),
                    "x.mat: mat: no variable \"z\"; there are: x, y");
        mat_close(&mat);
        EXPECT_INT(mem_live(), live);
    }
}

/* Longer than the bytes inflated to list a variable. */
TEST(mat_long_variables)
{
    enum { N = 300 };
    int x[N], shape[32] = {1, N};
    char name[258];
    MatMaker m;
    for (int i = 0; i < N; i++) x[i] = i * 7 - 900;
    for (int i = 2; i < 32; i++) shape[i] = 1;
    memset(name, 'n', 257);
    name[257] = 0;

    for (int packed = 0; packed < 2; packed++)
        for (int k = 0; k < 3; k++) {
            // 256 letters and 32 axes are the limits; 257 letters are too many
            Mat mat;
            NpyArray a;
            uint8_t *copy;
            mat_begin(&m, packed);
            size_t at = mat_matrix(&m, 0, 10, shape, k ? 32 : 2,
                                   k == 2 ? name : name + 1);
            mat_numbers(&m, 3, 2, x, N, false);
            mat_end(&m, at);
            if (packed) mat_compress(&m, at);
            bool ok = mat_copy(&m, &copy, &mat);
            if (k == 2) {
                EXPECT_FAIL(ok, "its name has 257 letters, limit 256");
            } else if (k) {
                REQUIRE(ok);
                EXPECT_INT(mat.variable[0].axes, 32);
                EXPECT_FAIL(mat_read(&mat, name + 1, 0, &a), "has 32 axes, at");
            } else {
                REQUIRE(ok);
                REQUIRE(mat_read(&mat, name + 1, N, &a));
                for (int i = 0; i < N; i++) EXPECT_INT(a.data[i], x[i]);
                mem_free(a.data);
                EXPECT_FAIL(mat_read(&mat, name + 1, N - 1, &a),
                            "has more than 299 elements");
            }
            mat_close(&mat);
            mem_free(copy);
        }
}

TEST(mat_names)
{
    MatMaker m;
    mat_make(&m, false, 6, 9, 8);
    size_t at = mat_matrix(&m, 0, 9, mat_grid, 2, "x");
    mat_numbers(&m, 2, 1, mat_counted, 6, false);
    mat_end(&m, at);
    EXPECT_FAIL(mat_read_x(&m), "mat: two variables are called \"x\"");

    // no name: rejected, except for the subsystem data of objects
    for (int big = 0; big < 2; big++) {
        mat_make(&m, big, 6, 9, 8);
        at = mat_matrix(&m, 0, 9, mat_grid, 2, "");
        mat_numbers(&m, 2, 1, mat_counted, 6, false);
        mat_end(&m, at);
        EXPECT_FAIL(mat_read_x(&m), "mat: variable 2 at byte 232 has no name");
        mat_patch(&m, 116, at, 8);
        EXPECT(mat_read_x(&m));
    }

    // a value beyond float
    double huge[6] = {1, 1e300, 1};
    mat_make(&m, false, 6, 9, 8);
    memcpy(m.bytes + 184, huge, sizeof huge);
    EXPECT_FAIL(mat_read_x(&m), "mat: x: element 3 does not fit a float");

    // 0 and 1 in a logical class
    static const int bits[] = {0, 1, 1, 0, 1, 0};
    mat_begin(&m, false);
    at = mat_matrix(&m, 2, 9, mat_grid, 2, "x");
    mat_numbers(&m, 2, 1, bits, 6, false);
    mat_end(&m, at);
    EXPECT(mat_read_x(&m));

    // numbers after the numbers, like complex ones without the flag
    mat_begin(&m, false);
    at = mat_matrix(&m, 0, 9, mat_grid, 2, "x");
    mat_numbers(&m, 2, 1, bits, 6, false);
    mat_numbers(&m, 2, 1, bits, 6, false);
    mat_end(&m, at);
    EXPECT_FAIL(mat_read_x(&m), "mat: x: has 16 bytes after its numbers");

    // no numbers at all
    mat_begin(&m, false);
    mat_end(&m, mat_matrix(&m, 0, 9, mat_grid, 2, "x"));
    EXPECT_FAIL(mat_read_x(&m),
                "mat: x: ends inside the tag of its numbers, at ");
}

TEST(mat_files)
{
    char path[300];
    MatMaker m;
    Mat mat;
    NpyArray a;
    long live = mem_live();

    snprintf(path, sizeof path, "%s/files.mat", test_folder());
    mat_compress(&m, mat_make(&m, true, 6, 9, 8));
    EXPECT_FAIL(mat_open("no/such.mat", &mat), "no/such.mat: mat: cannot open");
    REQUIRE(file_replace(path, m.bytes, m.size));
    REQUIRE(mat_open(path, &mat));
    REQUIRE(mat_read(&mat, "x", 0, &a));
    EXPECT_INT(a.data[5], 6);
    mem_free(a.data);
    FILE *f = fopen(path, "w");
    REQUIRE(f);
    fclose(f);
    EXPECT_FAIL(mat_read(&mat, "x", 0, &a), "files.mat: mat: x: file was cut");
    mat_close(&mat);
    EXPECT_FAIL(mat_open(path, &mat), "files.mat: mat: file is empty");

    // every allocation fails once
    REQUIRE(file_replace(path, m.bytes, m.size));
    int failures = 0;

    for (int k = 0; k < 40; k++) {
        mem_fail_after(k, false);
        bool ok = mat_open(path, &mat) && mat_read(&mat, "x", 0, &a);
        mem_fail_after(-1, false);
        if (ok)
            mem_free(a.data);
        else
            failures++;
        mat_close(&mat);
        EXPECT_INT(mem_live(), live);
    }
    EXPECT(failures > 6 && failures < 40);
}

TEST(mat_many_variables)
{
    MatMaker m;
    Mat mat;
    NpyArray a;
    uint8_t *copy;
    char name[8];
    static const int one[] = {1, 1};

    mat_begin(&m, false);
    for (int i = 0; i < 12; i++) {
        snprintf(name, sizeof name, "v%02d", i);
        size_t at = mat_matrix(&m, 0, 9, one, 2, name);
        mat_numbers(&m, 2, 1, &i, 1, true);
        mat_end(&m, at);
    }

    REQUIRE(mat_copy(&m, &copy, &mat));
    EXPECT_INT(mat.variables, 12);
    for (int i = 0; i < 12; i++) {
        REQUIRE(mat_read(&mat, mat.variable[i].name, 0, &a));
        EXPECT_INT(a.data[0], i);
        mem_free(a.data);
    }

    EXPECT_FAIL(mat_read(&mat, "x", 0, &a),
                "mat: no variable \"x\"; there are: v00, v01, v02, v03, v04, "
                "v05, v06, v07, v08, v09, ...");
    mat_close(&mat);
    mem_free(copy);
}
