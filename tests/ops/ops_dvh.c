/* ops_dvh.c -- the loss of dose-volume histograms, beyond the properties of
 * ops.c: by hand, by PyTorch, and frequent mistakes of other implementations:
 * every sample counts, and a missing structure does not. */
#include "tests/golden/ops_golden.h"
#include "tests/support/op_call.h"

static const double one = 1;

static OpCase dvh_case(int samples, int voxels, int structures, int bins)
{
    OpCase c = {.attr = op_default(OP_dvh_loss), .rank = 1, .wrt = 1};
    c.x[0] = c.x[1] = c.x[2] = (Dims){samples, 1, 1, voxels, 1};
    c.x[2].c = structures;
    c.attr.dvh_loss.bins = bins;
    return c;
}

TEST(dvh_loss_by_hand)
{
    // half of the one voxel inside has 1 Gy or more, and 3/4 of the target
    static const double x[2] = {1, 9}, m[2] = {1, 0};
    const double t[2] = {1 + log(3), 0};
    Arena mem = {0};

    for (int i = 0; i < 2; i++) {
        OpCase c = dvh_case(1, 2, 1, 1);
        OpValues out;
        given_run(given_backend(i), &c, (const double *[MAX_IN]){x, t, m}, &one,
                  &mem, &out);
        EXPECT_NEAR(out.y[0], 1 / 16.0, 1e-7);
        EXPECT_NEAR(out.dx[0][0], -1 / 8.0, 1e-7);
        EXPECT_NEAR(out.dx[0][1], 0, 0);
    }
    arena_release(&mem);
}

TEST(dvh_loss_golden)
{
    double x[12], t[12], m[36];
    for (int i = 0; i < 12; i++) {
        x[i] = (i * 5 % 64 - 32) / 8.0 + 4;
        t[i] = (i * 3 % 64 - 32) / 16.0 + 4;
    }
    for (int i = 0; i < 36; i++)
        m[i] = i % 3 == 2 || (i >= 18 && i % 3 == 0) ? 0 : i * 7 % 3 / 2.0;
    Arena mem = {0};

    for (int i = 0; i < 2; i++) {
        OpCase c = dvh_case(2, 6, 3, 16);
        c.attr.dvh_loss.width = 0.5f, c.attr.dvh_loss.steep = 1.5f;
        OpValues out;
        given_run(given_backend(i), &c, (const double *[MAX_IN]){x, t, m}, &one,
                  &mem, &out);
        double tol = i ? 1e-6 : 1e-14;
        EXPECT_NEAR(out.y[0], *golden_dvh, tol);
        given_near(out.dx[0], golden_dvh_grad, 12, tol);
    }
    arena_release(&mem);
}

/* Trap: a loss of the first sample of a batch only. The loss of a batch is the
 * mean of the losses of its samples, and each gets half of its own gradient. */
TEST(dvh_loss_of_every_sample)
{
    static const double x[6] = {2, 5, 1, 7, 3, 4}, t[6] = {3, 3, 3, 1, 6, 2};
    static const double m[6] = {1, 1, 0, 1, 1, 1};
    Arena mem = {0};

    for (int i = 0; i < 2; i++) {
        OpCase both = dvh_case(2, 3, 1, 8), single = dvh_case(1, 3, 1, 8);
        OpValues all, own[2];
        given_run(given_backend(i), &both, (const double *[MAX_IN]){x, t, m},
                  &one, &mem, &all);
        for (int n = 0; n < 2; n++) {
            const double *in[MAX_IN] = {x + 3 * n, t + 3 * n, m + 3 * n};
            given_run(given_backend(i), &single, in, &one, &mem, &own[n]);
            EXPECT(own[n].y[0] > 1e-3);
            for (int k = 0; k < 3; k++)
                EXPECT_NEAR(all.dx[0][3 * n + k], own[n].dx[0][k] / 2, 1e-8);
        }
        EXPECT_NEAR(all.y[0], (own[0].y[0] + own[1].y[0]) / 2, 1e-8);
    }
    arena_release(&mem);
}

/* A structure that is missing in a sample is left out of the mean; without any
 * the loss is 0. Voxels outside of all structures are not read. */
TEST(dvh_loss_missing_structures)
{
    static const double x[2] = {2, NAN}, t[2] = {5, NAN};
    static const double m[2][4] = {{1, 0, 0, 0}, {0}};
    static const double alone[2] = {1, 0};
    Arena mem = {0};

    for (int i = 0; i < 2; i++) {
        OpCase c = dvh_case(1, 2, 1, 8);
        OpValues want, out;
        given_run(given_backend(i), &c, (const double *[MAX_IN]){x, t, alone},
                  &one, &mem, &want);
        EXPECT(want.y[0] > 0.01);
        c.x[2].c = 2;
        for (int k = 0; k < 2; k++) {
            given_run(given_backend(i), &c,
                      (const double *[MAX_IN]){x, t, m[k]}, &one, &mem, &out);
            EXPECT_NEAR(out.y[0], k ? 0 : want.y[0], 0);
            EXPECT_NEAR(out.dx[0][0], k ? 0 : want.dx[0][0], 0);
            EXPECT_NEAR(out.dx[0][1], 0, 0);
        }
    }
    arena_release(&mem);
}

/* Doses far from all bins: finite, with zero gradient. */
TEST(dvh_loss_extreme_doses)
{
    static const double t[4] = {1e30, -1e30, 3, 1e4}, m[4] = {1, 1, 1, 1};
    static const double x[4] = {-1e30, 1e30, 1e30, 1e4};
    Arena mem = {0};

    for (int i = 0; i < 2; i++) {
        OpCase c = dvh_case(1, 4, 1, 256);
        c.attr.dvh_loss.steep = 600 / 256.0f;
        OpValues out;
        given_run(given_backend(i), &c, (const double *[MAX_IN]){x, t, m}, &one,
                  &mem, &out);
        // three of four are above most bins, and two should be
        EXPECT_NEAR(out.y[0], 1 / 16.0, 0.01);
        for (int k = 0; k < 4; k++) EXPECT_NEAR(out.dx[0][k], 0, 1e-20);
    }
    arena_release(&mem);
}
