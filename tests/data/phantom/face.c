/* face.c -- tests of rendered heads and of their angles, landmarks and
 * files. */
#include "data/phantom/face.h"
#include "data/format/mat.h"
#include "data/format/mat_write.h"
#include "data/image/image.h"
#include "data/phantom/face_write.h"
#include "engine/base/file.h"
#include "engine/base/rng.h"
#include "tests/test.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SIDE = 64 };

static const char *scratch(const char *name, char path[512])
{
    snprintf(path, 512, "%s/%s", test_folder(), name);
    return path;
}

/* A photograph at these angles, without noise, lit from the front. */
static FaceLook look_at(double yaw, double pitch, double roll)
{
    FaceLook v;
    face_look(&v, 3, 1, 2, SIDE, 0);
    v.yaw_deg = yaw, v.pitch_deg = pitch, v.roll_deg = roll;
    face_turn(&v);
    v.column = SIDE / 2, v.row = SIDE / 2, v.zoom = SIDE / 3;
    v.light[0] = v.light[1] = 0, v.light[2] = 1;
    memcpy(v.wall[1], v.wall[0], sizeof v.wall[0]);
    for (int b = 0; b < FACE_BLOBS; b++) v.blob[b][6] = 0;
    return v;
}

TEST(face_angles_are_those_of_300wlp)
{
    const double degree = acos(-1) / 180;
    FaceLook v = look_at(30, 20, 10);
    // (Rz(roll) Ry(yaw) Rx(pitch))^T, factor by factor
    double r[3][3] = {{1, 0, 0}, {0, 1, 0}, {0, 0, 1}};
    const double angle[] = {20 * degree, 30 * degree, 10 * degree};

    for (int k = 0; k < 3; k++) {
        const int a = (k + 1) % 3, b = (k + 2) % 3;
        const double c = cos(angle[k]), s = sin(angle[k]);
        for (int j = 0; j < 3; j++) {
            double p = r[a][j], q = r[b][j];
            r[a][j] = c * p - s * q, r[b][j] = s * p + c * q;
        }
    }

    for (int a = 0; a < 3; a++)
        for (int b = 0; b < 3; b++)
            EXPECT_NEAR((double)v.turn[a][b], r[b][a], 1e-6);

    // the nose goes left with yaw and up with pitch, the brow right with roll
    EXPECT(look_at(30, 0, 0).turn[0][2] < 0);
    EXPECT(look_at(0, 20, 0).turn[1][2] > 0);
    EXPECT(look_at(0, 0, 10).turn[0][1] > 0);
}

TEST(face_landmarks_follow_the_head)
{
    enum { NOSE_TIP = 30, CHIN = 8, LEFT_EYE = 36, RIGHT_EYE = 45 };
    Face f;
    double p[2][FACE_POINTS], q[2][FACE_POINTS];
    face_draw(&f, 3, 1);
    FaceLook v = look_at(0, 0, 0), left = look_at(40, 0, 0);
    face_points(&f, &v, p);
    face_points(&f, &left, q);
    EXPECT_NEAR(p[0][NOSE_TIP], SIDE / 2, 1e-4);
    EXPECT(p[1][CHIN] > p[1][NOSE_TIP] && p[1][NOSE_TIP] > p[1][LEFT_EYE]);
    EXPECT(p[0][LEFT_EYE] < p[0][RIGHT_EYE]);
    EXPECT(q[0][NOSE_TIP] < p[0][NOSE_TIP] - 5);
    EXPECT_NEAR(q[1][NOSE_TIP], p[1][NOSE_TIP], 1e-4);
}

/* A mirrored picture is the head with yaw and roll negated. */
TEST(face_mirrored_has_yaw_and_roll_negated)
{
    static uint8_t a[3 * SIDE * SIDE], b[3 * SIDE * SIDE];
    Face f;
    int off = 0, other = 0;

    face_draw(&f, 3, 1);
    FaceLook v = look_at(35, -15, 20), m = look_at(-35, -15, -20);
    face_render(&f, &v, SIDE, a);
    face_render(&f, &m, SIDE, b);
    for (int y = 0; y < SIDE; y++)
        for (int x = 0; x < SIDE; x++)
            for (int c = 0; c < 3; c++)
                off += abs(a[3 * (y * SIDE + x) + c] -
                           b[3 * (y * SIDE + SIDE - 1 - x) + c]) > 2;

    // edges, where rounding decides which surface is in front
    EXPECT(off < 3 * SIDE * SIDE / 25);

    // and the picture differs from the unmirrored head
    for (int i = 0; i < 3 * SIDE * SIDE; i++) other += abs(a[i] - b[i]) > 2;
    EXPECT(other > 3 * SIDE * SIDE / 5);
}

TEST(face_files_are_read_as_300wlp)
{
    char path[512], text[600];
    Mat m;
    NpyArray pose, points;
    Volume image;
    Phantom how = {.form = phantom_form("faces"),
                   .number = {2, 2, SIDE},
                   .seed = 5,
                   .noise = 0.02};

    REQUIRE(how.form && phantom_write(scratch("faces", path), &how, NULL));
    snprintf(text, sizeof text, "%s/PHANTOM_002_1.mat", path);
    REQUIRE(mat_open(text, &m));
    REQUIRE(mat_read(&m, "Pose_Para", 0, &pose));
    REQUIRE(mat_read(&m, "pt2d", 0, &points));
    FaceLook v;
    Face f;
    double want[2][FACE_POINTS];
    face_look(&v, 5, 1, 1, SIDE, 0.02);
    face_draw(&f, 5, 1);
    face_points(&f, &v, want);
    const double angle[] = {v.pitch_deg, v.yaw_deg, v.roll_deg};
    for (int i = 0; i < 3; i++)
        EXPECT_NEAR((double)pose.data[i], angle[i] * acos(-1) / 180, 1e-6);
    for (int i = 0; i < FACE_POINTS; i++) {
        EXPECT_NEAR((double)points.data[i], want[0][i], 1e-4);
        EXPECT_NEAR((double)points.data[FACE_POINTS + i], want[1][i], 1e-4);
    }
    mem_free(pose.data);
    mem_free(points.data);
    mat_close(&m);
    snprintf(text, sizeof text, "%s/PHANTOM_002_1.jpg", path);
    REQUIRE(image_read(text, NULL, &image));
    EXPECT_INT(image.voxels.dim.w, SIDE);
    EXPECT_INT(image.voxels.dim.c, 3);
    volume_free(&image);
}

/* Every file in the two folders has the same bytes. */
TEST(face_files_do_not_depend_on_threads)
{
    char one[512], many[512], name[600];
    Phantom how = {.form = phantom_form("faces"),
                   .number = {3, 1, SIDE},
                   .seed = 5,
                   .noise = 0.02,
                   .threads = 1};
    REQUIRE(phantom_write(scratch("faces-1", one), &how, NULL));
    how.threads = 3;
    REQUIRE(phantom_write(scratch("faces-3", many), &how, NULL));

    for (int person = 1; person <= 3; person++)
        for (int k = 0; k < 2; k++) {
            Arena mem = {0};
            char *a = NULL, *b = NULL;
            size_t na = 0, nb = 0;
            snprintf(name, sizeof name, "%s/PHANTOM_%03d_0.%s", one, person,
                     k ? "mat" : "jpg");
            REQUIRE(file_read(name, 1 << 20, &mem, &a, &na));
            snprintf(name, sizeof name, "%s/PHANTOM_%03d_0.%s", many, person,
                     k ? "mat" : "jpg");
            REQUIRE(file_read(name, 1 << 20, &mem, &b, &nb));
            EXPECT(na == nb && na > 100 && !memcmp(a, b, na));
            arena_release(&mem);
        }
}

TEST(mat_write_is_read_back)
{
    static const double grid[] = {1, 2, 3, 4, 5, -6.5}, whole[] = {-32768, 7};
    const MatMatrix list[] = {{"a", MAT_DOUBLE, 2, 3, grid},
                              {"long_name_9", MAT_SINGLE, 3, 2, grid},
                              {"w", MAT_INT16, 1, 2, whole}};
    static const char *const kind[] = {"double", "single", "int16"};
    char path[512];
    Mat m;

    REQUIRE(mat_write(scratch("x.mat", path), list, 3));
    REQUIRE(mat_open(path, &m));
    EXPECT_INT(m.variables, 3);

    for (int i = 0; i < 3; i++) {
        NpyArray a;
        EXPECT_TEXT(m.variable[i].name, list[i].name);
        EXPECT_TEXT(m.variable[i].class_name, kind[i]);
        REQUIRE(mat_read(&m, list[i].name, 0, &a));
        EXPECT_INT(a.shape[0], list[i].rows);
        for (int k = 0; k < list[i].rows * list[i].columns; k++)
            EXPECT_NEAR((double)a.data[k], list[i].x[k], 0);
        mem_free(a.data);
    }

    mat_close(&m);
    EXPECT_FAIL(mat_write("/nowhere/x.mat", list, 3), "/nowhere/x.mat");
}

TEST(image_write_jpeg_is_read_back)
{
    enum { W = 37, H = 21 };
    static uint8_t rgb[3 * W * H];
    char path[512];
    Volume v;
    for (int i = 0; i < W * H; i++) {
        rgb[3 * i] = (uint8_t)(6 * (i % W));
        rgb[3 * i + 1] = (uint8_t)(10 * (i / W));
        rgb[3 * i + 2] = 90;
    }

    REQUIRE(image_write_jpeg(scratch("x.jpg", path), rgb, W, H, 95));
    REQUIRE(image_read(path, NULL, &v));
    EXPECT_INT(v.voxels.dim.w, W);
    EXPECT_INT(v.voxels.dim.h, H);
    const uint8_t *got = v.voxels.data;
    int worst = 0;
    for (int i = 0; i < 3 * W * H; i++) {
        int off = abs(got[i] - rgb[i]);
        if (off > worst) worst = off;
    }
    EXPECT(worst > 0 && worst < 12);
    volume_free(&v);
    EXPECT_FAIL(image_write_jpeg("/nowhere/x.jpg", rgb, W, H, 95),
                "/nowhere/x.jpg");
}

/* The file buffer grows several times, with pixels that JPEG cannot compress,
 * and each allocation fails once. */
TEST(image_write_jpeg_without_memory)
{
    enum { N = 160, TIMES = 20 };
    static uint8_t rgb[3 * N * N];
    char path[512];
    const long live = mem_live();
    long n = 0;
    const Rng r = {.seed = 1, .stream = RNG_TEST};
    for (uint32_t i = 0; i < 3 * N * N; i++)
        rgb[i] = (uint8_t)rng_below(&r, i, 256);
    scratch("room.jpg", path);

    for (bool ok = false; !ok && n < TIMES; n += !ok) {
        mem_fail_after(n, false);
        ok = image_write_jpeg(path, rgb, N, N, 95);
        mem_fail_after(-1, false);
        EXPECT_INT(mem_live(), live);
    }

    // two for the name of the file, the others for its content
    EXPECT(n >= 4 && n < TIMES);
}
