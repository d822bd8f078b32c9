/* Names and sizes of element types, the two axis orders, and limits. */
#include "engine/graph/tensor.h"
#include "engine/base/mem.h"
#include "tests/test.h"

TEST(tensor_dtype_names_round_trip)
{
    static const size_t bytes[DTYPE_COUNT] = {8, 4, 2, 2, 2, 1};
    Dtype t;
    for (int i = 0; i < DTYPE_COUNT; i++) {
        EXPECT_INT(dtype_bytes((Dtype)i), bytes[i]);
        EXPECT(dtype_find(dtype_name((Dtype)i), &t) && t == (Dtype)i);
    }
    EXPECT_TEXT(dtype_name(BF16), "BF16");
    EXPECT(!dtype_find("f32", &t) && !dtype_find("", &t));
}

TEST(tensor_shape_in_user_order)
{
    static const struct {
        int rank, axes;
        int64_t shape[5];
        Dims dim;
        const char *text;
    } row[] = {
        {RANK_SCALAR, 0, {0}, {1, 1, 1, 1, 1}, "() scalar"},
        {RANK_VECTOR, 1, {7}, {1, 1, 1, 1, 7}, "7 (C)"},
        {0, 2, {2, 7}, {2, 1, 1, 1, 7}, "2x7 (N,C)"},
        {1, 3, {2, 7, 5}, {2, 1, 1, 5, 7}, "2x7x5 (N,C,W)"},
        {2, 4, {2, 7, 4, 5}, {2, 1, 4, 5, 7}, "2x7x4x5 (N,C,H,W)"},
        {3, 5, {2, 7, 3, 4, 5}, {2, 3, 4, 5, 7}, "2x7x3x4x5 (N,C,D,H,W)"},
        {3,
         5,
         {INT32_MAX, INT32_MAX, INT32_MAX, INT32_MAX, INT32_MAX},
         {INT32_MAX, INT32_MAX, INT32_MAX, INT32_MAX, INT32_MAX},
         "2147483647x2147483647x2147483647x2147483647x2147483647 "
         "(N,C,D,H,W)"},
    };

    for (size_t r = 0; r < sizeof row / sizeof *row; r++) {
        int64_t shape[5];
        Dims dim;
        char text[DIMS_TEXT];
        EXPECT_INT(dims_to_user(row[r].dim, row[r].rank, shape), row[r].axes);
        for (int i = 0; i < row[r].axes; i++)
            EXPECT_INT(shape[i], row[r].shape[i]);
        EXPECT(dims_from_user(row[r].shape, row[r].axes, row[r].rank, &dim));
        EXPECT(dims_equal(dim, row[r].dim));
        EXPECT_TEXT(dims_text(row[r].dim, row[r].rank, text), row[r].text);
        EXPECT(
            !dims_from_user(row[r].shape, row[r].axes + 1, row[r].rank, &dim));
    }
}

TEST(tensor_shape_refuses_extents)
{
    Dims dim;
    int64_t bad[] = {0, -1, (int64_t)INT32_MAX + 1, INT64_MIN};
    for (int i = 0; i < 4; i++)
        for (int at = 0; at < 3; at++) {
            int64_t shape[3] = {2, 3, 4};
            shape[at] = bad[i];
            EXPECT(!dims_from_user(shape, 3, 1, &dim));
        }
}

TEST(tensor_size_limit)
{
    // 2^62 bytes are fine, 2^63 are too many, and products that overflow to a
    // small number are refused too
    int32_t k = 1 << 20;
    EXPECT(dims_valid((Dims){1, k, k, k, 1}, F32));
    EXPECT(!dims_valid((Dims){1, k, k, k, 2}, F32));
    EXPECT(!dims_valid((Dims){2, k, k, k, 1}, F32));
    EXPECT(dims_valid((Dims){1, k, k, k, 4}, U8));
    EXPECT(!dims_valid((Dims){1, k, k, k, 8}, U8));
    EXPECT(!dims_valid((Dims){1 << 30, k, k, 1 << 30, 1 << 30}, U8));

    for (int i = 0; i < 5; i++) {
        int32_t e[5] = {1, 1, 1, 1, 1};
        e[i] = 0;
        EXPECT(!dims_valid((Dims){e[0], e[1], e[2], e[3], e[4]}, U8));
        e[i] = -1;
        EXPECT(!dims_valid((Dims){e[0], e[1], e[2], e[3], e[4]}, U8));
    }
}

TEST(tensor_order_of_elements)
{
    // user element (n,c,d,h,w) holds the digits n c d h w
    enum { N = 2, C = 3, D = 2, H = 3, W = 4, COUNT = N * C * D * H * W };
    float user[COUNT], back[COUNT], mem[COUNT];
    double wide[COUNT], mem64[COUNT];
    int i = 0;

    for (int n = 0; n < N; n++)
        for (int c = 0; c < C; c++)
            for (int d = 0; d < D; d++)
                for (int h = 0; h < H; h++)
                    for (int w = 0; w < W; w++)
                        user[i++] = (float)(n * 10000 + c * 1000 + d * 100 +
                                            h * 10 + w);

    Tensor t = {{N, D, H, W, C}, F32, 3, mem}, t64 = t;
    t64.type = F64, t64.data = mem64;
    tensor_from_user(user, &t);

    for (int n = 0; n < N; n++)
        for (int d = 0; d < D; d++)
            for (int h = 0; h < H; h++)
                for (int w = 0; w < W; w++)
                    for (int c = 0; c < C; c++) {
                        int at = (((n * D + d) * H + h) * W + w) * C + c;
                        EXPECT_INT(tensor_get(&t, at),
                                   n * 10000 + c * 1000 + d * 100 + h * 10 + w);
                    }

    tensor_to_user(&t, back);
    EXPECT(!memcmp(user, back, sizeof user));

    // through double and back
    tensor_to_user_f64(&t, wide);
    tensor_from_user_f64(wide, &t64);
    for (i = 0; i < COUNT; i++) EXPECT_INT(mem64[i], mem[i]);
    tensor_to_user(&t64, back);
    EXPECT(!memcmp(user, back, sizeof user));
    memset(mem64, 0, sizeof mem64);
    tensor_from_user(user, &t64);
    tensor_to_user_f64(&t64, wide);
    for (i = 0; i < COUNT; i++) EXPECT_INT(wide[i], user[i]);
}

TEST(tensor_order_of_many_channels)
{
    // user element (n,c,p) holds its number; a part is some positions of n
    enum { N = 2, C = 200, P = 77, COUNT = N * C * P, FROM = 5, TO = 70 };
    Arena mem = {0};
    float *user = ARENA_NEW(&mem, float, 3 * COUNT);
    REQUIRE(user);
    float *back = user + COUNT, *place = back + COUNT;
    for (int i = 0; i < COUNT; i++) user[i] = (float)i;
    Tensor t = {{N, 1, 1, P, C}, F32, 1, place};
    tensor_from_user(user, &t);
    for (int n = 0; n < N; n++)
        for (int i = 0; i < P * C; i++)
            EXPECT_INT(place[n * P * C + i], n * P * C + i % C * P + i / C);
    tensor_to_user(&t, back);
    EXPECT(!memcmp(user, back, COUNT * sizeof *user));
    memset(place, 0, COUNT * sizeof *place);
    tensor_part_from_user(user, &t, 1, FROM, TO);
    for (int i = 0; i < COUNT; i++) {
        int n = i / (P * C), at = i / C % P;
        bool inside = n == 1 && at >= FROM && at < TO;
        EXPECT_INT(place[i], inside ? n * P * C + i % C * P + at : 0);
    }

    memset(back, 0, COUNT * sizeof *back);
    tensor_part_to_user(&t, back, 1, FROM, TO);
    for (int i = 0; i < COUNT; i++) {
        bool inside = i / (P * C) == 1 && i % P >= FROM && i % P < TO;
        EXPECT_INT(back[i], inside ? i : 0);
    }
    arena_release(&mem);
}

TEST(tensor_set_rounds_to_its_type)
{
    float f[2] = {0};
    double d[2] = {0};
    Tensor t = {{1, 1, 1, 1, 2}, F32, 0, f};
    tensor_set(&t, 1, 1.0 / 3);
    EXPECT(tensor_get(&t, 1) == (double)(1.0f / 3) && f[0] == 0);
    t.type = F64, t.data = d;
    tensor_set(&t, 1, 1.0 / 3);
    EXPECT(tensor_get(&t, 1) == 1.0 / 3 && d[0] == 0);
    EXPECT_INT(tensor_bytes(&t), 16);
}

TEST(tensor_to_f32_of_any_length)
{
    enum { MOST = 200 };
    uint8_t u8[MOST];
    int16_t i16[MOST];
    float f32[MOST], y[MOST + 1];
    for (int i = 0; i < MOST; i++) {
        u8[i] = (uint8_t)(255 - i);
        i16[i] = (int16_t)(INT16_MIN + 300 * i);
        f32[i] = 0.1f * (float)i;
    }

    for (int at = 0; at < 3; at++)
        for (int count = 0; at + count <= MOST; count++) {
            y[count] = -1;
            tensor_to_f32(u8, U8, at, count, y);
            for (int i = 0; i < count; i++) EXPECT(y[i] == u8[at + i]);
            tensor_to_f32(i16, I16, at, count, y);
            for (int i = 0; i < count; i++) EXPECT(y[i] == i16[at + i]);
            tensor_to_f32(f32, F32, at, count, y);
            for (int i = 0; i < count; i++) EXPECT(y[i] == f32[at + i]);
            EXPECT(y[count] == -1);
        }
}
