/* bf16.c -- tests of 16-bit numbers on the CPU: copies, the kernels that
 * multiply pairs, and training of a network. The operator suites (ops.c) and
 * the large ones (simd.c) run in this precision, too. */
#include "cpu/lib/simd.h"
#include "engine/graph/precision.h"
#include "tests/support/networks.h"
#include "tests/support/random.h"
#include <math.h>
#include <string.h>

static const char *const set_name[] = {"amx", "avx512_bf16", "avx512", "avx2",
                                       "portable"};

enum { SETS = 5 };

// -- copies ------------------------------------------------------------------

/* x[0 .. count) rounded to bf16 by each instruction set equals the reference,
 * and so does widening to float. */
static void check_copies(const float *x, int count)
{
    enum { MOST = 64 };
    for (int k = 0; k < SETS; k++) {
        const Simd *s = simd_find(set_name[k]);
        uint16_t got[MOST + 1] = {0};
        float back[MOST + 1] = {0};
        if (!s) continue;
        s->round_bf16(x, count, got);
        s->widen_bf16(got, count, back);
        for (int i = 0; i < count; i++) {
            double want = precision_round(PRECISION_bf16, (double)x[i]);
            double v = precision_value(PRECISION_bf16, got[i]);
            EXPECT(v == want || (isnan(v) && isnan(want)));
            EXPECT(isnan(v) || !signbit(v) == !signbit(want));
            EXPECT((double)back[i] == v || (isnan(back[i]) && isnan(v)));
        }
        // no write after the last element
        EXPECT(!got[count] && back[count] == 0);
    }
}

TEST(simd_bf16_of_special_numbers)
{
    static const float x[] = {
        0,         -0.0f,       1,        -65504,      -1e9f,       3.4e38f,
        INFINITY,  -INFINITY,   NAN,      0x1p-126f,   0x1p-133f,   0x1p-134f,
        0x1p-140f, 0x1.8p-134f, -3.4e38f, 1.00390625f, 1.01171875f, 2.9999998f};
    check_copies(x, sizeof x / sizeof *x);
    // NaNs with an upper half that is infinite, or zero after a carry
    static const uint32_t nan[] = {0x7f800001, 0xff80ffff, 0x7fffffff,
                                   0xffffffff};
    float f[4];
    memcpy(f, nan, sizeof f);
    check_copies(f, 4);
}

TEST(simd_bf16_of_every_length)
{
    float x[64];
    for (int i = 0; i < 64; i++) x[i] = 0.37f * (float)(i - 30);
    for (int count = 1; count < 64; count++) check_copies(x, count);
}

// -- kernels of pairs --------------------------------------------------------

/* Returns n pairs of normal numbers that bf16 represents exactly. */
static float *pairs(Arena *mem, int64_t n, uint32_t sample)
{
    Rng r = {.seed = 3, .stream = RNG_TEST, .sample = sample};
    uint16_t *p = ARENA_NEW(mem, uint16_t, 2 * n);
    REQUIRE(p);
    for (int64_t i = 0; i < 2 * n; i++) {
        float v = rng_normal(&r, (uint32_t)i);
        simd()->round_bf16(&v, 1, p + i);
    }
    return (float *)p;
}

/* Returns the sum of both products of two pairs; adds their absolute values to
 * `scale`. */
static double dot(const float *a, const float *b, double *scale)
{
    double sum = 0;
    uint16_t x[2], y[2];
    memcpy(x, a, sizeof x), memcpy(y, b, sizeof y);
    for (int i = 0; i < 2; i++) {
        double v = precision_value(PRECISION_bf16, x[i]) *
                   precision_value(PRECISION_bf16, y[i]);
        sum += v, *scale += fabs(v);
    }
    return sum;
}

static void check_product(const Simd *s, Random *d, Arena *mem)
{
    enum { RUNS = 3, LEN = 70 };
    int co = roll(d, 1, s->panel), cols = roll(d, 1, 70);
    int runs = roll(d, 0, RUNS), len = roll(d, 1, LEN), gap = roll(d, 0, 5);
    int width = (co + s->lanes - 1) / s->lanes * s->lanes, ldy = co + gap;
    Run run[RUNS];
    float *a = pairs(mem, 70 * 64 + 300 + LEN, 1), *bias = numbers(mem, co, 2);
    float *panel = pairs(mem, RUNS * len * width, 3);
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
                   .co = co,
                   .add = roll(d, 0, 1),
                   .far = roll(d, 0, 1)};
    s->pairs->product(&p);

    for (int i = 0; i < cols; i++)
        for (int j = 0; j < ldy; j++) {
            int at = i * ldy + j;
            double want = p.add ? old[at] : p.bias && j < co ? bias[j] : 0;
            double scale = fabs(want);
            for (int r = 0; r < runs && j < co; r++)
                for (int k = 0; k < len; k++)
                    want += dot(run[r].a + i * p.lda + k,
                                panel + (run[r].k + k) * width + j, &scale);
            if (j >= co) want = old[at];
            EXPECT_NEAR(y[at], want, 1e-6 * scale);
        }
}

/* Packs rows of dy, then multiplies them with pairs of x. */
static void check_outer(const Simd *s, Random *d, Arena *mem)
{
    const Pairs *p = s->pairs;
    enum { ROWS = 3, COLS = 70, LIFT = 70, LDX = 60 };
    int high = 1 << roll(d, 0, 5);
    if (high > p->outer_high) high = p->outer_high;

    // several blocks only for the largest
    int height = roll(d, 1, high == p->outer_high ? LIFT : high);
    int rows = roll(d, 1, ROWS), cols = roll(d, 1, COLS);
    int width = roll(d, 1, p->outer_wide), ldo = width + roll(d, 0, 5);
    int many = (cols + 1) / 2, steps = (many + p->deep - 1) / p->deep;
    int step = (many + steps - 1) / steps, ld = height + roll(d, 0, 3);
    int ldx = width + roll(d, 0, LDX - p->outer_wide);
    int blocks = (height + high - 1) / high, row = steps * step * high;
    float *a = pairs(mem, ROWS * COLS * (LIFT + 3), 1), *x;
    float *packed = numbers(mem, blocks * rows * row, 2);
    int pitch = steps * step * ldx + roll(d, 0, 9);
    x = pairs(mem, rows * pitch + LDX, 3);
    float *out = numbers(mem, height * ldo, 4), *old;
    old = numbers(mem, height * ldo, 4);
    const uint16_t *dy = (const uint16_t *)a;

    for (int r = 0; r < rows; r++)
        p->pack(&(PairPack){.a = dy + r * cols * ld,
                            .to = packed + r * row,
                            .ld = ld,
                            .cols = cols,
                            .height = height,
                            .steps = steps,
                            .gap = rows * row,
                            .high = high,
                            .step = step});

    PairOuter o = {.a = packed,
                   .x = x,
                   .out = out,
                   .rows = rows,
                   .steps = steps,
                   .height = height,
                   .gap = rows * row,
                   .pitch = pitch,
                   .ldx = ldx,
                   .ldo = ldo,
                   .high = high,
                   .step = step,
                   .width = width,
                   .add = roll(d, 0, 1)};
    p->outer(&o);

    for (int i = 0; i < height; i++)
        for (int j = 0; j < ldo; j++) {
            int at = i * ldo + j;
            double want = o.add || j >= width ? old[at] : 0;
            double scale = fabs(want);
            for (int r = 0; r < rows && j < width; r++)
                for (int c = 0; c < many; c++) {
                    const uint16_t *y = dy + (r * cols + 2 * c) * ld + i;
                    uint16_t two[2] = {*y, 2 * c + 1 < cols ? y[ld] : 0};
                    float pair;
                    memcpy(&pair, two, sizeof pair);
                    want += dot(&pair, x + r * pitch + c * ldx + j, &scale);
                }
            EXPECT_NEAR(out[at], want, 1e-6 * scale);
        }
}

TEST(simd_pairs)
{
    static void (*const check[])(const Simd *, Random *,
                                 Arena *) = {check_product, check_outer};

    for (int i = 0; i < SETS; i++) {
        const Simd *s = simd_find(set_name[i]);
        if (!s || !s->pairs) continue;
        for (size_t k = 0; k < sizeof check / sizeof *check; k++)
            for (uint32_t r = 0; r < 60; r++) {
                Arena mem = {0};
                Random d = dice(r);
                check[k](s, &d, &mem);
                arena_release(&mem);
            }
    }
}

// -- training ----------------------------------------------------------------

/* Five training steps of a small U-Net on 2-D or 3-D images in a precision:
 * losses, norms and the final state. */
typedef struct Trained {
    double loss[5], norm[5];
    const void *state;
    size_t bytes;
} Trained;

static Trained trained(int rank, Precision p, int threads, Arena *mem)
{
    Trained out;
    Net n;
    Dims image = rank == 3 ? (Dims){1, 4, 8, 12, 1} : (Dims){1, 1, 12, 20, 3};
    Dims mask = image;

    mask.c = 1;
    net_new(&n);
    int x = net_input(&n, "image", image, rank);
    int target = net_input(&n, "target", mask, rank);
    n.root[n.roots++] = net_unet(&n, x, rank == 3 ? 4 : 8, 2);
    n.loss = net_op(&n, OP_bce_dice, n.root[0], target, -1);
    n.precision = p;
    Optim o = optim_default(OPTIM_sgd);
    net_open(&n, "cpu", threads, &o);
    for (uint32_t i = 0; i < 5; i++) {
        StepResult r = net_step(&n, 2, i, 0.05, 1);
        EXPECT(r.applied);
        out.loss[i] = r.loss, out.norm[i] = r.grad_norm;
    }

    out.state = net_state(&n, mem, &out.bytes);
    net_free(&n);
    return out;
}

/* With u the rounding of an operand: the tolerance of the loss, a mean of many
 * rounded results, is u; that of the norm of the gradients is 16 u, because
 * twelve layers round on the way and batch norms of few values amplify the
 * error. The same tolerances apply to a GPU. */
TEST(bf16_trains_like_f32)
{
    const double u = precision_unit(PRECISION_bf16);
    for (int rank = 2; rank <= 3; rank++) {
        Arena mem = {NULL};
        Trained want = trained(rank, PRECISION_f32, 2, &mem);
        Trained got = trained(rank, PRECISION_bf16, 2, &mem);
        for (int i = 0; i < 5; i++) {
            EXPECT(got.loss[i] != want.loss[i]); // the precision differs
            EXPECT_NEAR(got.loss[i], want.loss[i], u * want.loss[i]);
            EXPECT_NEAR(got.norm[i], want.norm[i], 16 * u * want.norm[i]);
        }
        arena_release(&mem);
    }
}

TEST(bf16_same_bits_for_any_threads)
{
    for (int rank = 2; rank <= 3; rank++) {
        Arena mem = {NULL};
        Trained one = trained(rank, PRECISION_bf16, 1, &mem);
        for (int threads = 2; threads < 5; threads++) {
            Trained got = trained(rank, PRECISION_bf16, threads, &mem);
            EXPECT(got.bytes == one.bytes &&
                   !memcmp(got.state, one.state, one.bytes));
        }
        arena_release(&mem);
    }
}
