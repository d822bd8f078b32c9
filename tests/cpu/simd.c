/* simd.c -- tests of the kernels of each instruction set against plain loops in
 * double (losses: simd_loss.c), and of convolutions large enough to be split
 * into chunks, panels, regions and parts (the suites of ops_*.c are small). */
#include "tests/support/each_isa.h"
#include "tests/support/op_call.h"
#include <string.h>

TEST(simd_choice)
{
    EXPECT(simd_find(NULL) && simd_find("") == simd_find(NULL));
    EXPECT(simd_find("portable"));
    EXPECT_FAIL(simd_find("avx1024") != NULL, "no such instruction set");

    // an instruction set of another processor lists all names
#if defined(__aarch64__)
    EXPECT(simd_find(NULL) == simd_find("neon"));
    EXPECT_FAIL(simd_find("avx2") != NULL, "avx2 and portable on x86-64");
#else
    EXPECT_FAIL(simd_find("neon") != NULL, "neon and portable on aarch64");
#endif
    for (int i = 0; i < SETS; i++) {
        if (set_at(i))
            EXPECT_TEXT(set_at(i)->name, set_name[i]);
        else
            EXPECT_FAIL(set_at(i) != NULL, "this processor has no");
    }
}

/* Products of a row of pixels with weights: `product` in panels, or `head`
 * (few: true) one channel after the other. */
static void check_row(const Simd *s, Random *d, Arena *mem, bool few)
{
    enum { RUNS = 3 };
    int co = roll(d, 1, few ? HEAD_CO : s->panel), cols = roll(d, 1, 40);
    int runs = roll(d, 0, RUNS), len = roll(d, 1, few ? 70 : 20);
    int width = (co + s->lanes - 1) / s->lanes * s->lanes;
    int ldy = co + roll(d, 0, 5), ldw = runs * len + roll(d, 0, 9);
    Run run[RUNS];
    float *a = numbers(mem, 64 * 64, 1), *bias = numbers(mem, co, 2);
    float *panel = numbers(mem, RUNS * len * width + co * ldw, 3);
    for (int i = 0; i < runs; i++)
        run[i] = (Run){a + roll(d, 0, 300), (int64_t)i * len};
    float *y = numbers(mem, cols * ldy, 4), *old = numbers(mem, cols * ldy, 4);
    PanelGemm p = {.run = run,
                   .panel = panel,
                   .bias = roll(d, 0, 1) ? bias : NULL,
                   .y = y,
                   .runs = runs,
                   .len = len,
                   .cols = cols,
                   .lda = roll(d, 1, 64),
                   .ldy = ldy,
                   .ldw = ldw,
                   .co = co,
                   .add = roll(d, 0, 1),
                   .far = roll(d, 0, 1)};
    if (few)
        s->head(&p);
    else
        s->product(&p);

    for (int i = 0; i < cols; i++)
        for (int j = 0; j < ldy; j++) {
            int at = i * ldy + j;
            double want = p.add ? old[at] : p.bias && j < co ? bias[j] : 0;
            double scale = fabs(want);
            for (int r = 0; r < runs && j < co; r++)
                for (int k = 0; k < len; k++) {
                    int64_t row = run[r].k + k;
                    double v = (double)run[r].a[i * p.lda + k] *
                               panel[few ? j * ldw + row : row * width + j];
                    want += v, scale += fabs(v);
                }
            if (j >= co) want = old[at];
            EXPECT_NEAR(y[at], want, 1e-6 * scale);
        }
}

static void check_product(const Simd *s, Random *d, Arena *mem)
{
    check_row(s, d, mem, false);
}

static void check_head(const Simd *s, Random *d, Arena *mem)
{
    check_row(s, d, mem, true);
}

static void check_outer(const Simd *s, Random *d, Arena *mem)
{
    int high = 1 << roll(d, 0, 3), width = roll(d, 1, s->outer_wide);
    if (high > s->outer_high) high = s->outer_high;
    int height = roll(d, 1, high), ldo = width + roll(d, 0, 5);
    int rows = roll(d, 0, 3), cols = roll(d, 1, 9);
    int lda = high + roll(d, 0, 5);
    float *a = numbers(mem, 3 * 9 * lda, 1), *x = numbers(mem, 4096, 2);
    float *out = numbers(mem, height * ldo, 3);
    float *old = numbers(mem, height * ldo, 3);
    Outer p = {.a = a,
               .x = x,
               .out = out,
               .rows = rows,
               .cols = cols,
               .pitch = roll(d, 1, 900),
               .lda = lda,
               .ldx = roll(d, 1, 90),
               .ldo = ldo,
               .high = high,
               .height = height,
               .width = width,
               .add = roll(d, 0, 1)};
    s->outer(&p);

    for (int i = 0; i < height; i++)
        for (int j = 0; j < ldo; j++) {
            double want = p.add || j >= width ? old[i * ldo + j] : 0;
            double scale = fabs(want);
            for (int r = 0; r < rows && j < width; r++)
                for (int c = 0; c < cols; c++) {
                    double v = (double)a[(r * cols + c) * lda + i] *
                               x[r * p.pitch + c * p.ldx + j];
                    want += v, scale += fabs(v);
                }
            EXPECT_NEAR(out[i * ldo + j], want, 1e-6 * scale);
        }
}

/* The epilogue of a tile: equal to bn_apply, relu and leaky applied to its
 * results. y has the results without epilogue, computed from planes. */
static void check_tail(const Simd *s, Random *d, const Tile *t, float *planes,
                       const float *bias, const float *y, Arena *mem)
{
    enum { LD = 48 };
    int kind = roll(d, ACT_NONE, ACT_LEAKY_RELU), n = (int)t->channels;
    float *table = numbers(mem, 4 * LD, 8), *got = numbers(mem, 16 * LD, 9);
    float *want = numbers(mem, 16 * LD, 9);
    Epilogue tail = {.act = {(ActKind)kind, 0.3f}};
    BnAffine norm = {.hi = table,
                     .lo = table + LD,
                     .scale = table + 2 * LD,
                     .beta = table + 3 * LD,
                     .act = tail.act};
    if (roll(d, 0, 1)) tail.norm = norm;
    Tile fresh = *t;
    fresh.add = false;
    s->tile_result(&fresh, planes, bias, &(Epilogue){0}, want);

    for (int i = 0; i < 16; i++) {
        float *at = want + i * LD;
        if (i / 4 >= t->r1 || i % 4 >= t->c1) continue;
        // unchanged without epilogue, too
        for (int c = 0; c < n && !t->add; c++) EXPECT(at[c] == y[i * LD + c]);
        if (tail.norm.hi)
            s->bn_apply(at, 1, n, &norm, at);
        else if (kind == ACT_RELU)
            s->relu(at, n, at);
        else if (kind == ACT_LEAKY_RELU)
            s->leaky(at, n, tail.act.slope, at);
    }

    s->tile_result(&fresh, planes, bias, &tail, got);
    EXPECT(!memcmp(got, want, 16 * LD * sizeof *got));
}

/* V and S of bf16 numbers have the same bits as those of the same numbers in
 * float. */
static void check_half(const Simd *s, const Tile *t, bool dy, Arena *mem)
{
    enum { LD = 48, COUNT = 36 * LD };
    float *x = numbers(mem, COUNT, 8), *v = numbers(mem, 36 * t->plane, 9);
    float *got = numbers(mem, 36 * t->plane, 9);
    uint16_t *half = ARENA_NEW(mem, uint16_t, COUNT);
    Tile narrow = *t;
    REQUIRE(half);
    narrow.half = true;
    s->round_bf16(x, COUNT, half);
    s->widen_bf16(half, COUNT, x);
    (dy ? s->tile_dy : s->tile_image)(t, x, v);
    (dy ? s->tile_dy : s->tile_image)(&narrow, half, got);
    EXPECT(!memcmp(got, v, (size_t)(36 * t->plane) * sizeof *v));
}

/* y 4x4 = A'[(G w G') . (B' x B)]A of random tiles, and dw 3x3 likewise: the
 * transforms together are a small convolution, also for incomplete tiles and
 * vectors. */
static void check_tiles(const Simd *s, Random *d, Arena *mem)
{
    enum { LD = 48, PLANE = LD + 16 };
    int n = roll(d, 1, 40), rows = roll(d, 1, 4), cols = roll(d, 1, 4);
    float *x = numbers(mem, 36 * LD, 1), *w = numbers(mem, 9 * LD, 2);
    float *y = numbers(mem, 16 * LD, 3), *old = numbers(mem, 16 * LD, 3);
    float *dw = numbers(mem, 9 * LD, 4), *bias = numbers(mem, LD, 5);
    float *v = numbers(mem, 36 * PLANE, 6), *u = numbers(mem, 36 * PLANE, 7);
    Tile t = {.pixel = LD, .plane = PLANE, .channels = n};
    Tile image = t, grid = t, square = t;
    image.row = 6 * LD, image.r0 = roll(d, 0, 2), image.r1 = roll(d, 3, 6);
    image.c0 = roll(d, 0, 2), image.c1 = roll(d, 3, 6);
    grid.row = 4 * LD, grid.r1 = rows, grid.c1 = cols, grid.add = roll(d, 0, 1);
    square.row = 3 * LD, square.r1 = square.c1 = 3;
    check_half(s, &image, false, mem);
    check_half(s, &grid, true, mem);
    s->tile_image(&image, x, v);
    s->tile_weights(&square, w, u);
    for (int i = 0; i < 36 * PLANE; i++) u[i] *= v[i];
    s->tile_result(&grid, u, bias, &(Epilogue){0}, y);
    check_tail(s, d, &grid, u, bias, y, mem);
    s->tile_dy(&grid, old, u);
    for (int i = 0; i < 36 * PLANE; i++) u[i] *= v[i];
    s->tile_dw(&square, u, dw);

    for (int k = 0; k < 16 * LD; k++) {
        int i = k / LD / 4, j = k / LD % 4, c = k % LD;
        bool there = i < rows && j < cols && c < n;
        double want = !there || grid.add ? old[k] : bias[c];
        for (int tap = 0; tap < 9 && there; tap++) {
            int h = i + tap / 3, b = j + tap % 3;
            if (h >= image.r0 && h < image.r1 && b >= image.c0 && b < image.c1)
                want += (double)w[tap * LD + c] * x[(h * 6 + b) * LD + c];
        }
        EXPECT_NEAR(y[k], want, there ? 2e-4 : 0);
    }

    for (int k = 0; k < 9 * LD; k++) {
        int i = k / LD / 3, j = k / LD % 3, c = k % LD;
        double want = 0;
        for (int o = 0; o < 16 && c < n; o++) {
            int h = i + o / 4, b = j + o % 4;
            if (o / 4 < rows && o % 4 < cols && h >= image.r0 && h < image.r1 &&
                b >= image.c0 && b < image.c1)
                want += (double)old[o * LD + c] * x[(h * 6 + b) * LD + c];
        }
        if (c < n) EXPECT_NEAR(dw[k], want, 2e-4);
    }
}

static void check_rows(const Simd *s, Random *d, Arena *mem)
{
    int rows = roll(d, 1, 9), n = roll(d, 1, 150), ldx = n + roll(d, 0, 9);
    bool add = roll(d, 0, 1);
    float *x = numbers(mem, rows * ldx, 1), *y = numbers(mem, n, 2);
    float *old = numbers(mem, n, 2);
    s->add_rows(x, rows, ldx, n, y, add);
    for (int i = 0; i < n; i++) {
        double want = add ? old[i] : 0;
        for (int r = 0; r < rows; r++) want += x[r * ldx + i];
        EXPECT_NEAR(y[i], want, 1e-5);
    }
}

static void check_depth(const Simd *s, Random *d, Arena *mem)
{
    enum { RUNS = 3, TAPS = 4 };
    int channels = roll(d, 1, 70), cols = roll(d, 1, 30);
    int runs = roll(d, 0, RUNS), taps = roll(d, 0, TAPS);
    int ldy = channels + roll(d, 0, 5), lda = roll(d, 1, 80);
    // taps in reverse, as for a transposed window
    bool reverse = roll(d, 0, 1);
    Run run[RUNS];
    float *x = numbers(mem, 8192, 1), *bias = numbers(mem, channels, 2);
    float *w = numbers(mem, RUNS * TAPS * channels, 3);
    float *y = numbers(mem, cols * ldy, 4), *old = numbers(mem, cols * ldy, 4);
    for (int i = 0; i < runs; i++)
        run[i] = (Run){x + roll(d, 0, 900), (int64_t)i * TAPS * channels};
    DepthwiseRow p = {.run = run,
                      .w = w + (reverse ? (TAPS - 1) * channels : 0),
                      .bias = roll(d, 0, 1) ? bias : NULL,
                      .y = y,
                      .runs = runs,
                      .taps = taps,
                      .cols = cols,
                      .channels = channels,
                      .at = roll(d, 0, 50),
                      .lda = lda,
                      .ldy = ldy,
                      .gap = roll(d, 1, 90),
                      .w_gap = reverse ? -channels : channels,
                      .add = roll(d, 0, 1)};
    s->depthwise(&p);

    for (int i = 0; i < cols; i++)
        for (int j = 0; j < ldy; j++) {
            int at = i * ldy + j;
            bool own = j < channels;
            double want = p.add || !own ? old[at] : p.bias ? bias[j] : 0;
            double scale = fabs(want);
            for (int r = 0; r < runs && own; r++)
                for (int t = 0; t < taps; t++) {
                    double v =
                        (double)run[r].a[p.at + i * lda + t * p.gap + j] *
                        p.w[run[r].k + t * p.w_gap + j];
                    want += v, scale += fabs(v);
                }
            EXPECT_NEAR(y[at], want, 1e-6 * scale);
        }
}

static void check_dot_rows(const Simd *s, Random *d, Arena *mem)
{
    int rows = roll(d, 0, 9), n = roll(d, 1, 150);
    int lda = n + roll(d, 0, 9), ldx = n + roll(d, 0, 9);
    float *a = numbers(mem, 9 * lda, 1), *x = numbers(mem, 9 * ldx, 2);
    float *y = numbers(mem, n + 1, 3), *old = numbers(mem, n + 1, 3);

    s->dot_rows(a, lda, x, ldx, rows, n, y);
    for (int i = 0; i < n; i++) {
        double want = old[i];
        for (int r = 0; r < rows; r++)
            want += (double)a[r * lda + i] * x[r * ldx + i];
        EXPECT_NEAR(y[i], want, 1e-5);
    }
    EXPECT(y[n] == old[n]);
}

/* Mean and sum of squares where the mean is large relative to the deviation. */
static void check_stats(const Simd *s, Random *d, Arena *mem)
{
    int rows = roll(d, 2, 300), channels = roll(d, 1, 150);
    float *x = numbers(mem, rows * channels, 1);
    double *mean = ARENA_NEW(mem, double, channels);
    double *m2 = ARENA_NEW(mem, double, channels);

    for (int i = 0; i < rows * channels; i++) x[i] += 1000;
    s->bn_stats(x, rows, channels, mean, m2);

    for (int c = 0; c < channels; c++) {
        double m = 0, q = 0;
        for (int r = 0; r < rows; r++) m += x[r * channels + c];
        m /= rows;
        for (int r = 0; r < rows; r++) q += pow(x[r * channels + c] - m, 2);
        EXPECT_NEAR(mean[c], m, 1e-6);
        EXPECT_NEAR(m2[c], q, 1e-5 * q);
    }
}

/* An update, an average and a sum of squares equal the plain loops to the last
 * bit, without a write after the last element. */
static void check_update(const Simd *s, Random *d, Arena *mem)
{
    int n = roll(d, 1, 300);
    enum { P, M, V, ARRAYS };
    float *got[ARRAYS], *want[ARRAYS], *grad = numbers(mem, n, 9);
    for (uint32_t k = 0; k < ARRAYS; k++) {
        got[k] = numbers(mem, n + 1, k), want[k] = numbers(mem, n + 1, k);
        for (int i = 0; i < n && k == V; i++)
            got[k][i] = want[k][i] = fabsf(got[k][i]);
    }

    Optim o = optim_default((OptimKind)roll(d, 0, OPTIM_COUNT - 1));
    if (o.kind == OPTIM_sgd) o.hyper[0] = 0.9, o.hyper[1] = roll(d, 0, 1);
    Update u = {.optim = &o,
                .value = want[P],
                .grad = grad,
                .m = want[M],
                .v = want[V],
                .count = n,
                .step = roll(d, 1, 9),
                .lr = 0.01,
                .decay = 0.1,
                .grad_scale = 0.7};
    double exact[FACTOR_COUNT];
    float f[FACTOR_COUNT];
    update_factors(&u, exact);
    for (int i = 0; i < FACTOR_COUNT; i++) f[i] = (float)exact[i];
    plain_update(NULL, &u);
    if (o.kind == OPTIM_sgd)
        s->sgd(grad, n, f, got[P], got[M]);
    else
        s->adam(grad, n, f, got[P], got[M], got[V]);
    plain_blend(NULL, want[P], grad, n, 0.3);
    s->blend(grad, n, 0.3f, got[P]);
    for (int k = 0; k < ARRAYS; k++)
        EXPECT(!memcmp(got[k], want[k], (size_t)(n + 1) * sizeof(float)));
    double sum, squares = s->sum_squares(grad, n);
    plain_sum_squares(NULL, grad, n, &sum);
    EXPECT(!memcmp(&squares, &sum, sizeof sum));
}

TEST(simd_kernels)
{
    static CheckFn *const check[] = {check_product,  check_head,  check_outer,
                                     check_depth,    check_tiles, check_rows,
                                     check_dot_rows, check_stats, check_update};
    check_sets(check, sizeof check / sizeof *check);
}

// ---- large convolutions -----------------------------------------------------

typedef struct Large {
    Op op;
    Dims x, w;
    int stride, pad, dilation, groups;
} Large;

/* Rows longer than those of one task, or more channels than one chunk, panel or
 * slice; or several parts of the gradient of weights. */
static const Large large[] = {
    {OP_conv, {1, 1, 5, 300, 3}, {5, 1, 3, 3, 3}, 1, 1, 1, 1},
    {OP_conv, {1, 1, 9, 31, 2}, {9, 1, 3, 3, 2}, 1, 2, 2, 1},
    {OP_conv, {1, 1, 4, 9, 200}, {131, 1, 3, 3, 200}, 1, 1, 1, 1},
    {OP_conv, {2, 1, 17, 19, 36}, {20, 1, 3, 3, 36}, 1, 1, 1, 1},
    {OP_conv, {3, 1, 30, 31, 8}, {300, 1, 1, 1, 8}, 1, 0, 1, 1},
    {OP_conv, {1, 1, 12, 14, 66}, {70, 1, 3, 3, 33}, 2, 1, 1, 2},
    {OP_conv, {1, 1, 9, 40, 100}, {10, 1, 5, 5, 100}, 2, 3, 2, 1},
    {OP_conv, {1, 6, 6, 6, 70}, {33, 4, 4, 4, 70}, 2, 1, 1, 1},
    {OP_conv, {2, 1, 1, 700, 17}, {16, 1, 1, 5, 17}, 1, 2, 1, 1},
    {OP_conv, {1, 1, 20, 21, 24}, {48, 1, 3, 3, 1}, 1, 1, 1, 24},
    // depthwise, in both directions: rows longer than a block of columns,
    // channels that are not a multiple of the vector, windows larger than the
    // image
    {OP_conv, {2, 1, 20, 90, 64}, {64, 1, 3, 3, 1}, 1, 1, 1, 64},
    {OP_conv, {1, 1, 31, 33, 35}, {35, 1, 5, 5, 1}, 2, 2, 2, 35},
    {OP_conv, {2, 9, 8, 7, 18}, {18, 3, 3, 3, 1}, 1, 1, 1, 18},
    {OP_conv, {1, 1, 3, 4, 130}, {130, 1, 7, 7, 1}, 1, 3, 1, 130},
    {OP_upconv, {2, 1, 13, 70, 40}, {40, 1, 2, 2, 1}, 2, 0, 1, 40},
    {OP_upconv, {1, 4, 5, 6, 21}, {21, 4, 4, 4, 1}, 3, 1, 2, 21},
    {OP_upconv, {1, 1, 20, 21, 150}, {150, 1, 2, 2, 70}, 2, 0, 1, 1},
    {OP_upconv, {2, 1, 6, 7, 130}, {130, 1, 3, 3, 33}, 2, 1, 1, 1},
    {OP_upconv, {1, 3, 5, 4, 66}, {66, 4, 4, 4, 20}, 2, 1, 1, 1},
    {OP_linear, {70, 1, 1, 3, 300}, {140, 1, 1, 1, 300}, 1, 0, 1, 1},
    // few output channels, in one chunk and in several; phases with shared
    // input, with disjoint input (dilated), or without input (strides beyond
    // the window)
    {OP_conv, {2, 1, 30, 31, 40}, {3, 1, 1, 1, 40}, 1, 0, 1, 1},
    {OP_conv, {1, 5, 6, 40, 17}, {1, 3, 3, 3, 17}, 1, 1, 1, 1},
    {OP_conv, {1, 1, 9, 33, 200}, {2, 1, 5, 5, 200}, 1, 2, 1, 1},
    {OP_upconv, {1, 5, 6, 7, 64}, {64, 4, 4, 4, 1}, 2, 1, 1, 1},
    {OP_upconv, {1, 1, 9, 30, 300}, {300, 1, 3, 3, 4}, 2, 1, 1, 1},
    {OP_upconv, {2, 4, 5, 9, 20}, {20, 3, 3, 3, 18}, 4, 1, 3, 1},
    {OP_upconv, {1, 1, 9, 20, 36}, {36, 1, 5, 5, 9}, 3, 2, 2, 2},
    {OP_upconv, {1, 1, 9, 20, 30}, {30, 1, 2, 2, 9}, 3, 0, 1, 1},
};

static OpCase large_case(const Large *l)
{
    OpCase c = {.attr = op_default(l->op),
                .rank = l->x.d > 1   ? 3
                        : l->x.h > 1 ? 2
                                     : 1,
                .x = {l->x, l->w},
                .wrt = 7};
    const OpInfo *info = &op_info[l->op];
    int out = l->op == OP_upconv ? l->w.c * l->groups : l->w.n;

    c.x[2] = (Dims){1, 1, 1, 1, out};
    for (int i = 0; i < info->attrs; i++) {
        const char *name = info->attr[i].name;
        char axis = name[1];
        // an axis of extent 1 keeps its window of 1
        if ((axis == 'd' && l->x.d == 1) || (axis == 'h' && l->x.h == 1))
            continue;
        int32_t *to = &c.attr.word[1 + i];
        if (name[0] == 's') *to = l->stride;
        if (name[0] == 'p') *to = l->pad;
        if (name[0] == 'd') *to = l->dilation;
        if (name[0] == 'g') *to = l->groups;
    }
    return c;
}

TEST(simd_large)
{
    for (size_t i = 0; i < sizeof large / sizeof *large; i++) {
        OpCase c = large_case(&large[i]);
        OpCheck check = {.be = given_backend(1), .report = given_report};
        for (int p = 0; p < PRECISION_COUNT; p++) {
            if (!backend_has(check.be, (Precision)p)) continue;
            check.precision = (Precision)p;
            // a sanitized build runs the kernels; other builds compare them
            if (!given_once()) opcase_agree(&c, &check);
            opcase_exact(&c, &check);
        }
    }
}
