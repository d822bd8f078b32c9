/* biwi.c -- tests of poses, calibrations, run-length coded depths, and rejected
 * files. */
#include "data/datasets/biwi.h"
#include "engine/base/file.h"
#include "engine/base/rng.h"
#include "tests/test.h"

#define HALF_TURN 180
static const double degree = 3.14159265358979323846 / HALF_TURN;

/* Runs biwi_pose_decode on a copy of exactly that size. */
static bool pose(const char *text, bool plus, BiwiPose *p)
{
    size_t n = strlen(text);
    char *copy = mem_alloc(n);
    REQUIRE(copy);
    memcpy(copy, text, n);
    bool ok = biwi_pose_decode(copy, n, plus, p);
    mem_free(copy);
    return ok;
}

static bool camera(const char *text, BiwiCamera *c)
{
    size_t n = strlen(text);
    char *copy = mem_alloc(n);
    REQUIRE(copy);
    memcpy(copy, text, n);
    bool ok = biwi_camera_decode(copy, n, c);
    mem_free(copy);
    return ok;
}

/* out = a b */
static void multiply(double a[3][3], double b[3][3], double out[3][3])
{
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < 3; k++) {
            out[i][k] = 0;
            for (int j = 0; j < 3; j++) out[i][k] += a[i][j] * b[j][k];
        }
}

/* Rotation by roll about z after yaw about y after `x` about x, in degrees,
 * built from the matrix of each axis; its angles are recovered by the formulas
 * of biwi.h, which are not used here. */
static void turn(double yaw, double x, double roll, double r[3][3])
{
    double a = x * degree, b = yaw * degree, g = roll * degree, zy[3][3];
    double rx[3][3] = {{1, 0, 0}, {0, cos(a), -sin(a)}, {0, sin(a), cos(a)}};
    double ry[3][3] = {{cos(b), 0, sin(b)}, {0, 1, 0}, {-sin(b), 0, cos(b)}};
    double rz[3][3] = {{cos(g), -sin(g), 0}, {sin(g), cos(g), 0}, {0, 0, 1}};
    multiply(rz, ry, zy);
    multiply(zy, rx, r);
}

TEST(biwi_pose_angles)
{
    for (int yaw = -85; yaw <= 85; yaw += 17)
        for (int x = -170; x <= 170; x += 34)
            for (int roll = -170; roll <= 170; roll += 34)
                for (int plus = 0; plus < 2; plus++) {
                    char text[400];
                    double r[3][3];
                    BiwiPose p;
                    turn(yaw, x, roll, r);
                    // six digits, spaces at line ends, as in the database
                    snprintf(text, sizeof text,
                             "%g %g %g \n%g %g %g \n%g %g %g \n\n"
                             "118.871 -56.4157 934.667 \n\n",
                             r[0][0], r[0][1], r[0][2], r[1][0], r[1][1],
                             r[1][2], r[2][0], r[2][1], r[2][2]);
                    REQUIRE(pose(text, plus, &p));
                    EXPECT_NEAR(p.yaw_deg, yaw, 2e-3);
                    EXPECT_NEAR(p.pitch_deg, plus ? x : -x, 2e-3);
                    EXPECT_NEAR(p.roll_deg, roll, 2e-3);
                    EXPECT_NEAR(p.rotation[1][2], r[1][2], 1e-5);
                    EXPECT(p.centre_mm[0] == 118.871 &&
                           p.centre_mm[1] == -56.4157 &&
                           p.centre_mm[2] == 934.667);
                }
}

TEST(biwi_pose_defects)
{
    static const struct {
        const char *text, *reason;
    } row[] = {
        {"", "biwi: no numbers in this file"},
        {" \n\n \r\n", "biwi: no numbers in this file"},
        {"1 0 0\n0 1 0\n0 0 1\n", "1 blocks of numbers, need 2: rotation and"},
        {"1 0 0\n0 1 0\n0 0 1\n\n1 2 3\n\n4\n", "3 blocks of numbers, need 2"},
        {"1 0 0\n0 1 0\n0 0\n\n1 2 3\n", "rotation has 8 numbers, need 9"},
        {"1 0 0\n0 1 0\n0 0 1\n1 2 3\n", "line 4: more than 9 numbers in a"},
        {"1 0 0\n0 1 0\n0 0 1\n\n1 2\n", "centre has 2 numbers, need 3"},
        {"1 0 0\n0 x 0\n0 0 1\n\n1 2 3\n",
         "line 2: \"x\" is not a finite numb"},
        {"1 0 0\n0 1 0\n0 0 1\n\n1 nan 3\n", "line 5: \"nan\" is not a finite"},
        {"1 0 0\n0 1 0\n0 0 1\n\n1 1e999 3\n", "\"1e999\" is not a finite num"},
        {"1,0,0\n0,1,0\n0,0,1\n", "line 1: \"1,0,0\" is not a finite number"},
        {"1 0 0\n0 1 0\n0 0 -1\n\n1 2 3\n",
         "not a rotation: determinant -1, need 1; rows 1 and 1 have the dot "
         "product 1, need 1"},
        {"2 0 0\n0 2 0\n0 0 2\n\n1 2 3\n",
         "not a rotation: determinant 8, need 1; rows 1 and 1 have the dot "
         "product 4, need 1"},
        {"1 0 0\n0.6 0.8 0\n0 0 1\n\n1 2 3\n",
         "not a rotation: determinant 0.8, need 1; rows 1 and 2 have the dot "
         "product 0.6, need 0"},
        {"0 0 0\n0 0 0\n0 0 0\n\n1 2 3\n", "not a rotation: determinant 0"},
        {"1e300 0 0\n0 1e300 0\n0 0 1e300\n\n1 2 3\n", "not a rotation: det"},
        {"1\n\n2\n\n3\n\n4\n\n5\n\n6\n", "line 11: more than 5 blocks of num"},
    };

    for (size_t r = 0; r < sizeof row / sizeof *row; r++) {
        BiwiPose p;
        EXPECT_FAIL(pose(row[r].text, false, &p), row[r].reason);
        EXPECT_FAIL(pose(row[r].text, false, &p), "biwi: ");
        EXPECT(err_kind() == ERR_DATA && p.rotation[0][0] == 0);
    }

    BiwiPose p;
    EXPECT_FAIL(biwi_pose_decode("1 0\0 0", 6, false, &p),
                "line 1: \"0\" is not a finite number");
    EXPECT_FAIL(biwi_pose_read("no/frame_00003_pose.txt", false, &p),
                "no/frame_00003_pose.txt: biwi: cannot open");
}

TEST(biwi_rotation_tolerance)
{
    // rows too long by less and by more than the tolerance
    for (int k = 0; k < 2; k++) {
        char text[200];
        BiwiPose p;
        double size = sqrt(k ? 1.0011 : 1.0009);
        snprintf(text, sizeof text, "%.9f 0 0\n0 1 0\n0 0 1\n\n1 2 3\n", size);
        if (k)
            EXPECT_FAIL(pose(text, false, &p), "not a rotation");
        else
            EXPECT(pose(text, false, &p));
    }
}

static const char good_camera[] =
    "575.816 0 320 \n0 575.816 240 \n0 0 1 \n\n0 0 0 0 0 \n\n"
    "0.999947 0.00432361 0.00929419 \n-0.00446314 0.999877 0.0150443 \n"
    "-0.009228 -0.015085 0.999844 \n\n-24.0198 5.8896 -13.2308 \n\n640 480 \n";

TEST(biwi_camera)
{
    BiwiCamera c;
    REQUIRE(camera(good_camera, &c));
    EXPECT(c.intrinsics[0][0] == 575.816 && c.intrinsics[1][2] == 240);
    EXPECT_INT(c.distortions, 5);
    EXPECT(c.rotation[2][1] == -0.015085 && c.translation_mm[2] == -13.2308);
    EXPECT(c.width == 640 && c.height == 480);

    // without third-order distortion, and without the size
    REQUIRE(camera("500 0 1\n0 500 2\n0 0 1\n\n.1 .2 .3 .4\n\n1 0 0\n0 1 0\n"
                   "0 0 1\n\n0 0 0\n",
                   &c));
    EXPECT(c.distortions == 4 && c.distortion[3] == 0.4 && c.width == 0);

    // one defect each
    static const struct {
        const char *from, *to, *reason;
    } row[] = {
        {"575.816 0 320", "575.816 0", "intrinsics has 8 numbers, need 9"},
        {"575.816 0 320", "575.816 1 320", "intrinsics are not fx 0 cx, 0 fy"},
        {"575.816 0 320", "-575.816 0 320", "intrinsics are not fx 0 cx"},
        {"0 0 1 \n\n0 0 0 0 0", "0 0 2\n\n0 0 0 0 0", "intrinsics are not fx"},
        {"0 0 0 0 0 \n", "0 0 0 0 0 0\n", "distortion has 6 numbers, need 4"},
        {"0.999947", "-0.999947", "not a rotation: determinant"},
        {"-24.0198 5.8896 -13.2308", "1 2", "translation has 2 numbers, need"},
        {"640 480", "640.5 480", "picture size 640.5 x 480, need whole numb"},
        {"640 480", "0 480", "picture size 0 x 480, need whole numbers from"},
        {"640 480", "640 16385", "picture size 640 x 16385, need whole"},
        {"640 480", "640 480 3", "picture size has 3 numbers, need 2"},
        {"\n\n-24.0198 5.8896 -13.2308 \n\n640 480 \n", "\n",
         "3 blocks of numbers, need 4 or 5: intrinsics, distortion"},
        {"640 480 \n", "640 480\n\n1\n", "line 15: more than 5 blocks of"},
    };

    for (size_t r = 0; r < sizeof row / sizeof *row; r++) {
        char text[600];
        const char *at = strstr(good_camera, row[r].from);
        REQUIRE(at);
        snprintf(text, sizeof text, "%.*s%s%s", (int)(at - good_camera),
                 good_camera, row[r].to, at + strlen(row[r].from));
        EXPECT_FAIL(camera(text, &c), row[r].reason);
        EXPECT(err_kind() == ERR_DATA && !c.width && !c.distortions);
    }

    EXPECT_FAIL(biwi_camera_read("no/depth.cal", &c),
                "no/depth.cal: biwi: cannot open");
}

TEST(biwi_from_files)
{
    char path[300];
    BiwiPose p;
    BiwiCamera c;
    static const char turned[] = "1 0 0\n0 0 -1\n0 1 0\n\n1 2 3\n";

    snprintf(path, sizeof path, "%s/frame_00003_pose.txt", test_folder());
    REQUIRE(file_replace(path, turned, sizeof turned - 1));
    REQUIRE(biwi_pose_read(path, false, &p));
    EXPECT_NEAR(p.pitch_deg, -90, 1e-12);
    REQUIRE(biwi_pose_read(path, true, &p));
    EXPECT_NEAR(p.pitch_deg, 90, 1e-12);
    REQUIRE(file_replace(path, turned, 8));
    EXPECT_FAIL(biwi_pose_read(path, false, &p),
                "frame_00003_pose.txt: biwi: 1 blocks of numbers, need 2");
    snprintf(path, sizeof path, "%s/depth.cal", test_folder());
    REQUIRE(file_replace(path, good_camera, sizeof good_camera - 1));
    REQUIRE(biwi_camera_read(path, &c));
    EXPECT(c.width == 640 && c.translation_mm[0] == -24.0198);
}

// -- depth --------------------------------------------------------------------

typedef struct File {
    uint8_t bytes[4096];
    size_t size;
} File;

static void put(File *f, int64_t v, int bytes)
{
    for (int i = 0; i < bytes; i++)
        f->bytes[f->size++] = (uint8_t)((uint64_t)v >> 8 * i);
}

static bool depth(const File *f, Volume *v)
{
    uint8_t *copy = mem_alloc(f->size);
    REQUIRE(copy);
    memcpy(copy, f->bytes, f->size);
    bool ok = biwi_depth_decode(copy, f->size, v);
    mem_free(copy);
    return ok;
}

/* 4 x 3 pixels: 2 empty, 3 depths, 5 empty, 2 depths. */
static void make(File *f)
{
    *f = (File){.size = 0};
    put(f, 4, 4), put(f, 3, 4);
    put(f, 2, 4), put(f, 3, 4);
    put(f, 900, 2), put(f, 901, 2), put(f, -7, 2);
    put(f, 5, 4), put(f, 2, 4);
    put(f, 32767, 2), put(f, -32768, 2);
}

TEST(biwi_depth)
{
    static const int16_t want[12] = {0, 0, 900, 901, -7,    0,
                                     0, 0, 0,   0,   32767, -32768};
    File f;
    Volume v;

    make(&f);
    REQUIRE(depth(&f, &v));
    EXPECT(dims_equal(v.voxels.dim, (Dims){1, 1, 3, 4, 1}));
    EXPECT_INT(v.voxels.type, I16);
    EXPECT(!memcmp(v.voxels.data, want, sizeof want));
    volume_free(&v);

    // from a file; and a file of empty pixels only
    char path[300];
    snprintf(path, sizeof path, "%s/frame_depth.bin", test_folder());
    f = (File){.size = 0};
    put(&f, 4, 4), put(&f, 3, 4), put(&f, 12, 4), put(&f, 0, 4);
    REQUIRE(file_replace(path, f.bytes, f.size));
    REQUIRE(biwi_depth_read(path, &v));
    for (int i = 0; i < 12; i++) EXPECT(!((int16_t *)v.voxels.data)[i]);
    volume_free(&v);
}

TEST(biwi_depth_defects)
{
    static const struct {
        int at, value;
        const char *reason;
    } row[] = {
        {0, 0, "picture of 0 x 3 pixels, need 1 to 16384 each"},
        {0, -4, "picture of -4 x 3 pixels, need 1 to 16384 each"},
        {4, 0, "picture of 4 x 0 pixels, need 1 to 16384 each"},
        {4, 16385, "picture of 4 x 16385 pixels, need 1 to 16384 each"},
        {4, INT32_MIN, "picture of 4 x -2147483648 pixels"},
        {4, 4, "file ends inside run 3 at byte 34, 12 of 16 pixels read"},
        {4, 2, "run 2 at byte 22: 5 pixels without and 2 with depth, 3 left"},
        {8, -1, "run 1 at byte 8: -1 pixels without and 3 with depth, 12 lef"},
        {8, 13, "run 1 at byte 8: 13 pixels without and 3 with depth, 12"},
        {8, INT32_MAX, "run 1 at byte 8: 2147483647 pixels without and 3"},
        {12, -1, "run 1 at byte 8: 2 pixels without and -1 with depth, 12"},
        {12, 11, "run 1 at byte 8: 2 pixels without and 11 with depth, 12"},
        {12, INT32_MAX, "2 pixels without and 2147483647 with depth"},
        {22, 4, "file ends inside run 3 at byte 34, 11 of 12 pixels read"},
    };
    File f;
    Volume v;

    for (size_t r = 0; r < sizeof row / sizeof *row; r++) {
        make(&f);
        f.size = (size_t)row[r].at;
        put(&f, row[r].value, 4);
        f.size = 34;
        long live = mem_live();
        EXPECT_FAIL(depth(&f, &v), row[r].reason);
        EXPECT_FAIL(depth(&f, &v), "biwi: ");
        EXPECT(err_kind() == ERR_DATA && !v.voxels.data);
        EXPECT_INT(mem_live(), live);
    }

    // truncated at any byte, or too long
    make(&f);
    for (size_t n = 0; n < 34; n++) {
        f.size = n;
        EXPECT(!depth(&f, &v));
        EXPECT(err_kind() == ERR_DATA && !v.voxels.data);
    }

    f.size = 7;
    EXPECT_FAIL(depth(&f, &v), "file ends inside width and height: 7 bytes");
    f.size = 33;
    EXPECT_FAIL(depth(&f, &v), "run 2 at byte 22: 2 depths, only 3 bytes left");
    f.size = 35;
    EXPECT_FAIL(depth(&f, &v), "1 bytes after the last run");

    // a run of length 0 could repeat forever
    f = (File){.size = 0};
    put(&f, 4, 4), put(&f, 3, 4), put(&f, 0, 4), put(&f, 0, 4);
    EXPECT_FAIL(depth(&f, &v), "run 1 at byte 8 has no pixels");

    // 16384 x 1024 is the largest size
    f = (File){.size = 0};
    put(&f, 16384, 4), put(&f, 1024, 4), put(&f, 1 << 24, 4), put(&f, 0, 4);
    REQUIRE(depth(&f, &v));
    volume_free(&v);
    f.size = 4;
    put(&f, 1025, 4);
    f.size = 16;
    EXPECT_FAIL(depth(&f, &v), "need 1 to 16384 each, 16777216 together");
    EXPECT_FAIL(biwi_depth_read("no/x_depth.bin", &v),
                "no/x_depth.bin: biwi: cannot open");
}

/* Encoding any picture and decoding it gives the same picture. */
TEST(biwi_depth_round_trip)
{
    Rng r = {.seed = 3, .stream = RNG_TEST};
    for (uint32_t k = 0; k < 200; k++) {
        File f = {.size = 0};
        int16_t picture[24 * 16];
        int w = 1 + (int)rng_below(&r, 1000 * k, 24);
        int h = 1 + (int)rng_below(&r, 1000 * k + 1, 16), n = w * h;
        for (int i = 0; i < n; i++) {
            bool full = rng_below(&r, 1000 * k + (uint32_t)i + 2, 8) < k % 9;
            picture[i] = (int16_t)(full ? 500 + i : 0);
        }
        put(&f, w, 4), put(&f, h, 4);
        for (int i = 0; i < n;) {
            int empty = i, full;
            while (empty < n && !picture[empty]) empty++;
            for (full = empty; full < n && picture[full];) full++;
            put(&f, empty - i, 4), put(&f, full - empty, 4);
            for (i = empty; i < full; i++) put(&f, picture[i], 2);
        }
        Volume v;
        REQUIRE(depth(&f, &v));
        EXPECT(v.voxels.dim.w == w && v.voxels.dim.h == h);
        EXPECT(!memcmp(v.voxels.data, picture, (size_t)n * 2));
        volume_free(&v);
    }
}

TEST(biwi_without_memory)
{
    char path[300];
    File f;
    Volume v;

    make(&f);
    snprintf(path, sizeof path, "%s/poor_depth.bin", test_folder());
    REQUIRE(file_replace(path, f.bytes, f.size));
    long live = mem_live();
    int k = 0;

    for (bool ok = false; !ok; k++) {
        mem_fail_after(k, false);
        ok = biwi_depth_read(path, &v);
        mem_fail_after(-1, false);
        if (ok)
            volume_free(&v);
        else
            EXPECT(strstr(err_text(), "no memory") && !v.voxels.data);
        EXPECT_INT(mem_live(), live);
    }
    EXPECT(k > 1);
}
