/* wgrad_tile.c -- wgrad from a halo in shared memory on the emulated device: dw
 * against ref, bit by bit in a second run and added to; norms on load against
 * stored tensors; the problems that the kernel leaves to others. */
#include "tests/cuda/emulator/emu_control.h"
#include "tests/cuda/kernels/bench.h"
#include "tests/cuda/kernels/windowed.h"

/* A convolution, or the upconv with this filter. */
typedef struct Case {
    Windowed window;
    Op op;
    int groups;
} Case;

static const Case cases[] = {
    // boxes that end past the image; two tiles of filters, of channels
    {{2, {2, 1, 9, 18, 32}, 72, 3, 1, 1, 1, 1}, OP_conv, 1},
    {{2, {1, 1, 17, 33, 40}, 64, 3, 1, 1, 1, 1}, OP_conv, 1},
    // boxes of several samples, no multiple of the samples
    {{2, {7, 1, 3, 4, 32}, 40, 3, 1, 1, 1, 1}, OP_conv, 1},
    // several parts of the boxes (split-K)
    {{2, {2, 1, 33, 40, 16}, 8, 3, 1, 0, 2, 1}, OP_conv, 1},
    // three tap sets, one for each tap along d; sets of five taps
    {{3, {1, 4, 6, 9, 16}, 24, 3, 1, 1, 1, 1}, OP_conv, 1},
    {{2, {1, 1, 12, 13, 32}, 16, 5, 1, 2, 2, 1}, OP_conv, 1},
    {{1, {2, 1, 1, 70, 64}, 16, 3, 1, 1, 1, 1}, OP_conv, 1},
    // tap groups of four, two, two and one taps in one set; of four, of eight
    {{2, {1, 1, 11, 13, 32}, 24, 3, 2, 1, 1, 1}, OP_conv, 1},
    {{2, {2, 1, 12, 10, 64}, 16, 4, 2, 1, 1, 1}, OP_conv, 1},
    {{3, {1, 4, 6, 6, 32}, 16, 4, 2, 1, 1, 1}, OP_conv, 1},
    // four groups of one tap, a tile of 32 channels; of eight, two sets
    {{2, {1, 1, 20, 17, 32}, 72, 2, 2, 0, 1, 1}, OP_conv, 1},
    {{2, {1, 1, 20, 17, 72}, 8, 2, 2, 0, 1, 1}, OP_conv, 1},
    {{3, {1, 4, 6, 5, 32}, 16, 2, 2, 0, 1, 1}, OP_conv, 1},
    // dilation, with stride: one tap group; a stride that leaves rows out
    {{2, {1, 1, 12, 9, 16}, 16, 3, 1, 2, 2, 2}, OP_conv, 1},
    {{2, {1, 1, 19, 16, 32}, 16, 3, 2, 2, 2, 2}, OP_conv, 1},
    {{2, {1, 1, 16, 13, 64}, 16, 2, 3, 0, 0, 1}, OP_conv, 1},
    {{2, {1, 1, 9, 9, 64}, 144, 3, 1, 1, 1, 1}, OP_conv, 2},
    // first layers: positions shared by two and four warps; padded channels
    {{2, {2, 1, 13, 21, 8}, 32, 3, 1, 1, 1, 1}, OP_conv, 1},
    {{2, {1, 1, 30, 19, 3}, 72, 3, 1, 1, 1, 1}, OP_conv, 1},
    {{2, {1, 1, 40, 41, 1}, 16, 3, 1, 1, 1, 1}, OP_conv, 1},
    {{3, {1, 8, 15, 17, 11}, 64, 4, 2, 1, 1, 1}, OP_conv, 1},
    {{2, {1, 1, 9, 9, 32}, 64, 3, 1, 1, 1, 1}, OP_conv, 4},
    {{2, {2, 1, 7, 9, 72}, 64, 2, 2, 0, 0, 1}, OP_upconv, 1},
    {{3, {1, 3, 4, 5, 16}, 32, 4, 2, 1, 1, 1}, OP_upconv, 1},
};
enum { CASES = sizeof cases / sizeof *cases };

static OpCase case_of(const Case *s, uint32_t number)
{
    OpCase c = windowed_case(&s->window, number, 2);
    if (s->op == OP_upconv) { // has the attributes of conv
        c.attr.op = OP_upconv;
        c.x[1].n = s->window.x.c, c.x[1].c = s->window.filters;
    }
    c.attr.conv.groups = s->groups;
    c.x[1].c /= s->groups;
    return c;
}

TEST(wgrad_tile_agrees)
{
    for (int i = 0; i < CASES; i++)
        for (int p = PRECISION_tf32; p <= PRECISION_f16; p++) {
            const OpCase c = case_of(&cases[i], (uint32_t)(i + p));
            OpCheck k = {.be = &backend_cuda,
                         .precision = (Precision)p,
                         .report = given_report};
            emu_reset_counts();
            opcase_agree(&c, &k);
            EXPECT_INT(emu_launch_count("wgrad_tile_kernel"), 2);
            EXPECT_INT(emu_launch_count("wgrad_mma_kernel"), 0);
            if (p == PRECISION_bf16) opcase_exact(&c, &k);
            EXPECT_INT(k.failures, 0);
        }
}

/* Left to wgrad_mma: windows of one position, more than 15 channels or filters
 * that are no multiple of 8, more tap groups or sets than a launch has. */
TEST(wgrad_tile_not_otherwise)
{
    static const Windowed others[] = {
        {2, {1, 1, 8, 7, 64}, 64, 1, 1, 0, 0, 1},
        {2, {1, 1, 8, 7, 20}, 8, 3, 1, 1, 1, 1},
        {2, {1, 1, 8, 7, 36}, 32, 3, 1, 1, 1, 1},
        {2, {1, 1, 8, 7, 32}, 36, 3, 1, 1, 1, 1},
        {2, {1, 1, 12, 12, 32}, 16, 5, 5, 0, 0, 1},
        {3, {1, 7, 7, 7, 16}, 8, 7, 1, 3, 3, 1},
    };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        const OpCase c = windowed_case(&others[i], 2, 2);
        OpCheck k = {.be = &backend_cuda,
                     .precision = PRECISION_bf16,
                     .report = given_report};
        emu_reset_counts();
        opcase_agree(&c, &k);
        EXPECT_INT(emu_launch_count("wgrad_tile_kernel"), 0);
        EXPECT_INT(k.failures, 0);
    }
}

/* A layer whose operand has a deferred norm, with a second operand of x2
 * channels (0: none). */
typedef struct Normed {
    Shape shape;
    int x2;
} Normed;

/* dw of operands with a deferred norm has the bits of dw of the stored
 * results of these norms. */
static void norm_on_load(Precision p, const Normed *s, bool add)
{
    Bench b;
    NormAct h[2];
    Tensor x[2][2], z, dz, dw[2];
    bench_open(&b, p);
    const Dtype type = precision_copy(p);
    const Attr attr = attr_of(&s->shape), pool = pool_of_one();
    const Tensor w = uniform(&b, s->shape.w, type, -1, 1);
    Dims extent = s->shape.x;
    for (int k = 0; k < (s->x2 ? 2 : 1); k++, extent.c = s->x2) {
        x[0][k] = deferred_linear(&b, extent, &h[k]);
        x[1][k] = tensor_of(&b, extent, type);
        run(&b, &(Call){.attr = &pool,
                        .x = {&x[0][k]},
                        .y = &x[1][k],
                        .x_norm = {&h[k].deferred_norm}});
    }
    Dims all = s->shape.x;
    all.c += s->x2;
    Tensor in[MAX_IN] = {{all, type, RANK_MAX, NULL}, w};
    REQUIRE(op_shape(&attr, in, &z));
    dz = uniform(&b, z.dim, type, -1, 1);

    for (int i = 0; i < 2; i++) {
        b.draws = 100; // the same for both
        dw[i] = uniform(&b, s->shape.w, F32, -1, 1);
        Call c = {.attr = &attr, .x = {&x[i][0], &w}, .y = &z, .dy = &dz};
        if (s->x2) c.x[X2] = &x[i][1];
        if (!i) c.x_norm[0] = &h[0].deferred_norm;
        if (!i && s->x2) c.x_norm[X2] = &h[1].deferred_norm;
        c.dx[1] = &dw[i], c.fresh = add ? 0 : ~0u;
        emu_reset_counts();
        run(&b, &c);
        EXPECT_INT(emu_launch_count("wgrad_tile_kernel"), 1);
    }
    same(&b, &dw[0], &dw[1]);
    bench_close(&b);
}

TEST(wgrad_tile_norm_on_load)
{
    static const Normed layers[] = {
        {{OP_conv, {2, 1, 9, 19, 40}, {24, 1, 3, 3, 40}, 1, 1, 1}, 0},
        {{OP_conv, {1, 1, 11, 10, 32}, {16, 1, 3, 3, 72}, 2, 1, 1}, 40},
        {{OP_conv, {1, 1, 14, 9, 32}, {80, 1, 2, 2, 72}, 2, 0, 1}, 40},
        {{OP_upconv, {2, 1, 7, 9, 72}, {72, 1, 2, 2, 64}, 2, 0, 1}, 0},
        {{OP_upconv, {1, 1, 6, 5, 32}, {104, 1, 4, 4, 32}, 2, 1, 1}, 72},
    };
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
        norm_on_load(PRECISION_bf16, &layers[i], i % 2);
        norm_on_load(PRECISION_f16, &layers[i], i % 2 == 0);
    }
}
