/* simd_loss.c -- tests of the loss kernels of each instruction set against
 * plain loops in double: lengths that are not a multiple of the vector, and
 * values that are not finite. */
#include "engine/check/compare.h"
#include "tests/support/each_isa.h"

/* Value and gradient of the binary cross entropy for logits of all
 * magnitudes. */
static void check_bce(const Simd *s, Random *d, Arena *mem)
{
    int n = roll(d, 1, 3000);
    float *x = numbers(mem, n, 1), *t = numbers(mem, n, 2);
    float *dx = numbers(mem, n, 3), w = 0.25f * (float)roll(d, 1, 9);
    double want = 0;

    for (int i = 0; i < n; i++) x[i] *= (float)(i % 30), t[i] = t[i] > 0;
    s->bce_grad(x, t, n, w, 2, dx, false);

    for (int i = 0; i < n; i++) {
        double e = exp(-fabs((double)x[i])), both = log1p(e);
        double p = (x[i] < 0 ? e : 1) / (1 + e),
               q = (x[i] < 0 ? 1 : e) / (1 + e);
        want += w * t[i] * (fmax(-x[i], 0) + both);
        want += (1 - t[i]) * (fmax(x[i], 0) + both);
        double grad = 2 * ((1 - t[i]) * p - w * t[i] * q);
        // accuracy ends at subnormal numbers
        EXPECT_NEAR(dx[i], grad, 4 * float_spacing(grad) + 1e-37);
    }
    EXPECT_NEAR(s->bce_sum(x, t, n, w), want, 1e-6 * want);
}

/* Sums and gradient of an overlap loss; x is not near the saturation of the
 * sigmoid, where s (1 - s) vanishes. */
static void check_region(const Simd *s, Random *d, Arena *mem)
{
    int n = roll(d, 1, 3000);
    bool cross = roll(d, 0, 1), add = roll(d, 0, 1);
    float *x = numbers(mem, n, 1), *t = numbers(mem, n, 2);
    float *dx = numbers(mem, n + 1, 3), *old = numbers(mem, n + 1, 3);
    const RegionGrad r = {0.75f, -0.5f, cross ? 0.25f : 0, 3};
    double sum[4], want[4] = {0};

    for (int i = 0; i < n; i++) x[i] *= 3, t[i] = t[i] > 0;
    s->region_sums(x, t, n, r.weight, cross, sum);
    s->region_grad(x, t, n, &r, dx, add);

    for (int i = 0; i < n; i++) {
        double p = 1 / (1 + exp(-(double)x[i])), q = 1 / (1 + exp(x[i]));
        want[0] += p * t[i], want[1] += p, want[2] += t[i];
        if (cross) want[3] -= r.weight * t[i] * log(p) + (1 - t[i]) * log(q);
        double grad = (r.a * t[i] + r.b) * p * q +
                      r.bce * ((1 - t[i]) * p - r.weight * t[i] * q);
        EXPECT_NEAR(dx[i], grad + (add ? old[i] : 0), 1e-6);
    }

    EXPECT(dx[n] == old[n]);
    for (int k = 0; k < 4; k++) EXPECT_NEAR(sum[k], want[k], 3e-7 * want[k]);
}

/* Costs and gradients of error losses, with masked elements and elements that
 * are not finite: gradients equal the result in double, rounded once. */
static void check_errors(const Simd *s, Random *d, Arena *mem)
{
    int n = roll(d, 1, 300), kind = roll(d, 0, 2), odd = roll(d, 0, 2 * n);
    bool add = roll(d, 0, 1);
    float *x = numbers(mem, n, 1), *t = numbers(mem, n, 2);
    float *m = numbers(mem, n, 3), *q = numbers(mem, n, 4);
    float *dx = numbers(mem, n + 1, 5), *old = numbers(mem, n + 1, 5);
    const Errors e = {.x = x,
                      .t = t,
                      .m = roll(d, 0, 1) ? m : NULL,
                      .q = roll(d, 0, 1) ? q : NULL,
                      .delta = 0.75,
                      .kind = (ErrorKind)kind};

    // including exact predictions, and masked elements that are NaN
    for (int i = 0; i < n; i++) {
        if (i % 5 == 0) x[i] = t[i];
        if (i % 3 == 0) m[i] = 0;
        if (i % 7 == 0) q[i] = 0;
        bool counts = !(e.m && m[i] == 0) && !(e.q && q[i] == 0);
        if (!counts || i == odd) x[i] = i % 2 ? INFINITY : NAN;
    }

    double sum = 0, scale = 0, all = 0;
    s->error_grad(&e, n, 0.3, dx, add);

    for (int i = 0; i < n; i++) {
        double w = (double)(e.m ? m[i] : 1) * (e.q ? q[i] : 1);
        double v = (double)x[i] - t[i], size = fabs(v);
        double cost[] = {size, v * v,
                         size <= e.delta ? v * v / 2
                                         : e.delta * (size - e.delta / 2)};
        double grad[] = {v > 0   ? 1
                         : v < 0 ? -1
                                 : v,
                         2 * v,
                         v > e.delta    ? e.delta
                         : v < -e.delta ? -e.delta
                                        : v};
        if (w == 0) cost[kind] = grad[kind] = 0;
        sum += w * cost[kind], scale += fabs(w * cost[kind]), all += m[i];
        float want = (float)((add ? (double)old[i] : 0) + 0.3 * w * grad[kind]);
        EXPECT(isnan(want) ? isnan(dx[i]) : dx[i] == want);
    }

    EXPECT(dx[n] == old[n]);
    double got = s->error_sum(&e, n);
    if (isfinite(sum))
        EXPECT_NEAR(got, sum, 1e-14 * scale);
    else
        EXPECT(isnan(sum) ? isnan(got) : got == sum);
    EXPECT_NEAR(s->sum(m, n), all, 1e-13 * n);
}

/* Draws logits of few classes, targets and masks; some rows are ignored and
 * have NaN. */
static Classes draw_classes(Random *d, Arena *mem, bool shares, float ignore)
{
    int rows = roll(d, 1, 400), classes = roll(d, 2, CLASSES_MAX);
    float *x = numbers(mem, rows * classes, 1), *m = numbers(mem, rows, 2);
    float *t = numbers(mem, rows * classes, 3);

    for (int i = 0; i < rows; i++) {
        if (i % 5 == 0) m[i] = 0;
        // including almost certain predictions
        for (int k = 0; k < classes; k++) {
            x[i * classes + k] *= (float)(i % 12);
            if (shares) t[i * classes + k] = t[i * classes + k] > 0;
        }
        if (!shares) t[i] = (float)roll(d, 0, classes - 1);
    }

    Classes r = {.x = x,
                 .t = t,
                 .m = roll(d, 0, 1) ? m : NULL,
                 .rows = rows,
                 .classes = classes,
                 .soft = shares,
                 .ignore = ignore};
    for (int i = 0; i < rows; i++)
        if ((r.m && m[i] == 0) || t[i] == ignore)
            x[i * classes + i % classes] = NAN;
    return r;
}

/* Returns the loss of row i; its probabilities p, and 1 - p. */
static double exact_row(const Classes *r, int64_t i, double *p, double *rest)
{
    const float *x = r->x + i * r->classes;
    double most = x[0], sum = 0, m = r->m ? r->m[i] : 1;
    if (m == 0 || r->t[i] == r->ignore) return 0;
    for (int k = 0; k < r->classes; k++) most = fmax(most, x[k]);
    for (int k = 0; k < r->classes; k++) sum += exp(x[k] - most);
    for (int k = 0; k < r->classes; k++) p[k] = exp(x[k] - most) / sum;
    for (int k = 0; k < r->classes; k++) {
        rest[k] = 0;
        for (int l = 0; l < r->classes; l++) rest[k] += l != k ? p[l] : 0;
    }
    return m;
}

/* Cross entropy: every gradient is accurate, also for almost certain rows. */
static void check_classes(const Simd *s, Random *d, Arena *mem)
{
    const Classes r = draw_classes(d, mem, false, roll(d, 0, 1) ? NAN : 1);
    const bool add = roll(d, 0, 1);
    const int64_t n = r.rows * r.classes;
    float *dx = numbers(mem, n + 1, 5), *old = numbers(mem, n + 1, 5);
    double p[CLASSES_MAX], rest[CLASSES_MAX], got[2], loss = 0, all = 0;
    double scale = 0;

    s->class_grad(&r, 0.5f, dx, add);
    for (int64_t i = 0; i < r.rows; i++) {
        double m = exact_row(&r, i, p, rest);
        int t = (int)r.t[i];
        for (int k = 0; k < r.classes; k++) {
            int64_t at = i * r.classes + k;
            double g = m == 0 ? 0 : 0.5 * m * (k == t ? -rest[k] : p[k]);
            double was = add ? old[at] : 0;
            EXPECT_NEAR(dx[at], g + was,
                        1e-37 + 4e-6 * fabs(g) + 1e-7 * fabs(was));
        }
        double l =
            m == 0 ? 0 : m * (p[t] > 0.5 ? -log1p(-rest[t]) : -log(p[t]));
        loss += l, scale += fabs(l), all += m;
    }

    EXPECT(dx[n] == old[n]);
    s->class_sums(&r, got);
    EXPECT_NEAR(got[0], loss, 1e-6 * scale);
    EXPECT_NEAR(got[1], all, 1e-6 * (double)r.rows);
    EXPECT_NEAR(s->class_count(&r), all, 1e-6 * (double)r.rows);
}

/* Overlap of each class, and softmax itself. */
static void check_shares(const Simd *s, Random *d, Arena *mem)
{
    const Classes r = draw_classes(d, mem, roll(d, 0, 1), NAN);
    const bool add = roll(d, 0, 1);
    const int64_t n = r.rows * r.classes;
    const int terms = 3 * r.classes + 1;
    float *dx = numbers(mem, n + 1, 5), *old = numbers(mem, n + 1, 5);
    float *coef = numbers(mem, 2 * r.classes, 6), *y = numbers(mem, n + 1, 7);
    double p[CLASSES_MAX], rest[CLASSES_MAX], got[3 * CLASSES_MAX + 1];
    double want[3 * CLASSES_MAX + 1] = {0}, size[3 * CLASSES_MAX + 1] = {0};

    s->class_region_grad(&r, coef, dx, add);
    s->class_softmax(r.x, r.rows, r.classes, y);

    for (int64_t i = 0; i < r.rows; i++) {
        double m = exact_row(&r, i, p, rest), mean = 0, g[CLASSES_MAX];
        for (int k = 0; k < r.classes && m != 0; k++) {
            double t = r.soft ? r.t[i * r.classes + k] : r.t[i] == k;
            double term[3] = {m * p[k] * t, m * p[k], m * t};
            for (int l = 0; l < 3; l++) {
                want[3 * k + l] += term[l];
                size[3 * k + l] += fabs(term[l]);
            }
            g[k] = m * (coef[k] * t + coef[r.classes + k]);
            mean += g[k] * p[k];
            EXPECT_NEAR(y[i * r.classes + k], p[k], 1e-37 + 4e-6 * p[k]);
        }
        want[terms - 1] += m, size[terms - 1] += fabs(m);
        for (int k = 0; k < r.classes; k++) {
            int64_t at = i * r.classes + k;
            double grad = m == 0 ? 0 : (g[k] - mean) * p[k];
            EXPECT_NEAR(dx[at], grad + (add ? old[at] : 0), 4e-6);
        }
    }

    EXPECT(dx[n] == old[n]);
    s->class_region_sums(&r, got);
    for (int k = 0; k < terms; k++)
        EXPECT_NEAR(got[k], want[k], 1e-30 + 1e-6 * size[k]);
}

/* Results of the plain loops for logits that are not finite. */
static void check_infinite(const Simd *s, Random *d, Arena *mem)
{
    const int classes = roll(d, 2, CLASSES_MAX), odd = roll(d, 0, classes - 1);
    float *x = numbers(mem, classes, 1), *y = numbers(mem, classes, 2);
    float t = (float)roll(d, -1, classes), dx[CLASSES_MAX];
    const Classes r = {
        .x = x, .t = &t, .rows = 1, .classes = classes, .ignore = NAN};
    double sum[2];

    x[odd] = -INFINITY;
    s->class_softmax(x, 1, classes, y);
    s->class_sums(&r, sum);
    for (int k = 0; k < classes; k++) EXPECT(k == odd ? y[k] == 0 : y[k] > 0);
    if (t < 0 || t >= (float)classes)
        EXPECT(isnan(sum[0]));
    else
        EXPECT(t == (float)odd ? isinf(sum[0]) : isfinite(sum[0]));
    x[odd] = roll(d, 0, 1) ? NAN : INFINITY;
    s->class_softmax(x, 1, classes, y);
    s->class_sums(&r, sum);
    s->class_grad(&r, 1, dx, false);
    EXPECT(isnan(sum[0]));
    for (int k = 0; k < classes; k++) EXPECT(isnan(y[k]) && isnan(dx[k]));
}

TEST(simd_kernels_of_losses)
{
    static CheckFn *const check[] = {check_bce,    check_region,
                                     check_errors, check_classes,
                                     check_shares, check_infinite};
    check_sets(check, sizeof check / sizeof *check);
}
