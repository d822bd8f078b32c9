/* concat.c -- concat with operands and results of each type on the emulated
 * device: a plan mixes f32 and 16 bits when it stores a concat that would
 * otherwise be implicit. */
#include "engine/graph/precision.h"
#include "tests/cuda/kernels/bench.h"

enum { ROWS = 2 * 3 * 5, MOST = 16 };

/* Returns v rounded to this type. */
static double kept(Dtype type, double v)
{
    return type == F32 ? v : precision_round(precision_of_type(type), v);
}

/* Checks the concat of two operands and its backward call, which stores dx[0]
 * and adds to dx[1]. */
static void there_and_back(Bench *b, const int channels[2],
                           const Dtype types[2], Dtype y_type)
{
    static double v[2][ROWS * MOST], old[2][ROWS * MOST],
        whole[ROWS * 2 * MOST];
    const Attr concat = op_default(OP_concat);
    Tensor x[2], dx[2];
    Dims s = {2, 1, 3, 5, 0};

    for (int i = 0; i < 2; i++) {
        s.c = channels[i];
        x[i] = uniform(b, s, types[i], -3, 3),
        dx[i] = uniform(b, s, types[i], -3, 3);
        read_tensor(b, &x[i], v[i]);
        read_tensor(b, &dx[i], old[i]);
    }

    s.c = channels[0] + channels[1];
    Tensor y = tensor_of(b, s, y_type);
    Call c = {.attr = &concat, .x = {&x[0], &x[1]}, .y = &y};
    run(b, &c);
    read_tensor(b, &y, whole);

    for (int i = 0; i < ROWS * s.c; i++) {
        const int at = i % s.c, k = at >= channels[0];
        const int from = at - k * channels[0];
        EXPECT_NEAR(whole[i], kept(y_type, v[k][i / s.c * channels[k] + from]),
                    0);
    }

    c.dy = &y, c.dx[0] = &dx[0], c.dx[1] = &dx[1], c.fresh = 1;
    run(b, &c);

    for (int k = 0; k < 2; k++) {
        read_tensor(b, &dx[k], v[k]);
        for (int i = 0; i < ROWS * channels[k]; i++) {
            const int at = i / channels[k] * s.c + i % channels[k];
            const double dy = whole[at + k * channels[0]];
            const float sum = (float)old[k][i] + (float)dy;
            EXPECT_NEAR(v[k][i], kept(types[k], k ? (double)sum : dy), 0);
        }
    }
}

TEST(concat_of_each_type)
{
    static const int channels[][2] = {{8, 16}, {4, 12}, {1, 10}, {3, 8}};
    static const Dtype narrow[] = {BF16, F16};

    for (int n = 0; n < 2; n++)
        for (int i = 0; i < 4; i++)
            for (int k = 0; k < 8; k++) {
                const Dtype types[2] = {k & 1 ? F32 : narrow[n],
                                        k & 2 ? F32 : narrow[n]};
                Bench b;
                bench_open(&b, n ? PRECISION_f16 : PRECISION_bf16);
                there_and_back(&b, channels[i], types, k & 4 ? F32 : narrow[n]);
                bench_close(&b);
            }
}
