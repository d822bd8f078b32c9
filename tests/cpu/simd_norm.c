/* simd_norm.c -- tests of normalisation of rows by each instruction set against
 * plain loops in double: widths that are not a multiple of the vector, one
 * channel, more channels than one sum in float, and values that are not
 * finite. */
#include "tests/support/each_isa.h"
#include <string.h>

/* Rows to normalise, with the results of the plain loops. */
typedef struct Rows {
    RowNorm r;
    float *y, *dy;
    double *mean, *rstd; /* (rows) */
} Rows;

/* Draws the number of channels: some, sometimes one, or more than SPAN of
 * norm_layer.c; every other draw has values far from 0. */
static Rows draw_rows(const Simd *s, Random *d, Arena *mem)
{
    const int kind = roll(d, 0, 9);
    const int channels = kind == 0   ? 1
                         : kind == 1 ? 256 * s->lanes + roll(d, -1, 70)
                                     : roll(d, 2, 150);
    const int rows = roll(d, 1, 13), n = rows * channels;
    float *x = numbers(mem, n, 1), *dy = numbers(mem, n, 2);
    const float far = roll(d, 0, 1) ? 1000 : 0;
    Rows v = {.r = {.x = x, .rows = rows, .channels = channels, .eps = 1e-5}};

    for (int i = 0; i < n; i++) x[i] += far;
    if (roll(d, 0, 2)) {
        v.r.gamma = numbers(mem, channels, 3);
        v.r.beta = numbers(mem, channels, 4);
    }
    v.r.hi = ARENA_NEW(mem, float, rows);
    v.r.lo = ARENA_NEW(mem, float, rows);
    v.r.rstd = ARENA_NEW(mem, float, rows);
    v.y = numbers(mem, n + 1, 5), v.dy = dy;
    v.mean = ARENA_NEW(mem, double, rows);
    v.rstd = ARENA_NEW(mem, double, rows);

    for (int r = 0; r < rows; r++) {
        double sum = 0, squares = 0;
        for (int c = 0; c < channels; c++) sum += x[r * channels + c];
        v.mean[r] = sum / channels;
        for (int c = 0; c < channels; c++)
            squares += pow(x[r * channels + c] - v.mean[r], 2);
        v.rstd[r] = 1 / sqrt(squares / channels + v.r.eps);
    }
    return v;
}

static double gamma_at(const Rows *v, int64_t c)
{
    return v->r.gamma ? v->r.gamma[c] : 1;
}

static double z_at(const Rows *v, int64_t row, int64_t c)
{
    return (v->r.x[row * v->r.channels + c] - v->mean[row]) * v->rstd[row];
}

static void check_value(const Simd *s, Random *d, Arena *mem)
{
    Rows v = draw_rows(s, d, mem);
    const int64_t wide = v.r.channels, n = v.r.rows * wide;
    const float last = v.y[n];

    s->row_norm(&v.r, v.y);
    for (int64_t i = 0; i < n; i++) {
        double want = z_at(&v, i / wide, i % wide) * gamma_at(&v, i % wide);
        if (v.r.beta) want += v.r.beta[i % wide];
        EXPECT_NEAR(v.y[i], want, 1e-5);
    }

    EXPECT(v.y[n] == last);
    for (int64_t r = 0; r < v.r.rows; r++) {
        EXPECT_NEAR((double)v.r.hi[r] + v.r.lo[r], v.mean[r], 1e-6);
        EXPECT_NEAR(v.r.rstd[r], v.rstd[r], 1e-5 * v.rstd[r]);
    }
}

/* Computes dx of row `row`, and its part of the gradients of gamma and beta. */
static void exact_grad(const Rows *v, int64_t row, double *dx, double *dgamma,
                       double *dbeta)
{
    const int64_t wide = v->r.channels;
    const float *dy = v->dy + row * wide;
    double bar = 0, bar_z = 0;

    for (int64_t c = 0; c < wide; c++) {
        bar += dy[c] * gamma_at(v, c) / (double)wide;
        bar_z += dy[c] * gamma_at(v, c) * z_at(v, row, c) / (double)wide;
        dgamma[c] += dy[c] * z_at(v, row, c);
        dbeta[c] += dy[c];
    }

    for (int64_t c = 0; c < wide; c++)
        dx[c] = v->rstd[row] *
                (dy[c] * gamma_at(v, c) - bar - z_at(v, row, c) * bar_z);
}

/* dx stored, added, in place of dy, or not requested; with or without gradients
 * of gamma and beta. */
static void check_grad(const Simd *s, Random *d, Arena *mem)
{
    Rows v = draw_rows(s, d, mem);
    const int64_t wide = v.r.channels, n = v.r.rows * wide;
    const int how = roll(d, 0, 3);
    const bool add = how == 1, parts = v.r.gamma && roll(d, 0, 3);
    float *dx = numbers(mem, n + 1, 6), *old = numbers(mem, n + 1, 6);
    float *dgamma = numbers(mem, wide + 1, 7), *dbeta = numbers(mem, wide, 8);
    double *want = ARENA_NEW(mem, double, wide);
    double *gamma = ARENA_NEW(mem, double, wide);
    double *beta = ARENA_NEW(mem, double, wide);
    const float last = dgamma[wide];

    s->row_norm(&v.r, v.y);
    RowGrad p = {.dy = v.dy, .dx = how == 3 ? NULL : dx, .add = add};
    if (how == 2) memcpy(dx, v.dy, (size_t)n * sizeof *dx), p.dy = dx;
    if (parts) p.dgamma = dgamma, p.dbeta = dbeta;
    s->row_norm_grad(&v.r, &p);
    memset(gamma, 0, (size_t)wide * sizeof *gamma);
    memset(beta, 0, (size_t)wide * sizeof *beta);

    for (int64_t r = 0; r < v.r.rows; r++) {
        exact_grad(&v, r, want, gamma, beta);
        for (int64_t c = 0; c < wide; c++) {
            const int64_t i = r * wide + c;
            if (how == 3) want[c] = old[i];
            if (add) want[c] += old[i];
            EXPECT_NEAR(dx[i], want[c], 1e-5 * (1 + v.rstd[r]));
        }
    }

    EXPECT(dx[n] == old[n] && dgamma[wide] == last);
    for (int64_t c = 0; c < wide && parts; c++) {
        EXPECT_NEAR(dgamma[c], gamma[c], 1e-4);
        EXPECT_NEAR(dbeta[c], beta[c], 1e-5);
    }
}

/* The bits of a row do not depend on other rows, and values that are not finite
 * affect only their row; with one channel the gradient is exactly 0. */
static void check_independent(const Simd *s, Random *d, Arena *mem)
{
    Rows v = draw_rows(s, d, mem);
    const int64_t wide = v.r.channels, n = v.r.rows * wide;
    const int64_t odd = roll(d, 0, (int)v.r.rows - 1);
    float *dx = numbers(mem, n, 6), *alone = numbers(mem, wide, 7);
    float *x = numbers(mem, n, 1);

    memcpy(x, v.r.x, (size_t)n * sizeof *x);
    x[odd * wide + roll(d, 0, (int)wide - 1)] = roll(d, 0, 1) ? NAN : INFINITY;
    v.r.x = x;
    RowGrad p = {.dy = v.dy, .dx = dx};
    s->row_norm(&v.r, v.y);
    s->row_norm_grad(&v.r, &p);

    for (int64_t r = 0; r < v.r.rows; r++) {
        RowNorm one = v.r;
        one.x += r * wide, one.rows = 1;
        one.hi += r, one.lo += r, one.rstd += r;
        s->row_norm(&one, alone);
        for (int64_t c = 0; c < wide && r == odd; c++)
            EXPECT(isnan(v.y[r * wide + c]) && isnan(dx[r * wide + c]));
        if (r == odd) continue;
        EXPECT(!memcmp(alone, v.y + r * wide, (size_t)wide * sizeof *alone));
        EXPECT(wide > 1 || dx[r] == 0);
    }
}

TEST(simd_norm_of_rows)
{
    static CheckFn *const check[] = {check_value, check_grad,
                                     check_independent};
    check_sets(check, sizeof check / sizeof *check);
}
