/* igemm_tiles.c -- every tile that a convolution can take gives the same bits.
 *
 * Therefore igemm_tile.cu may choose the fastest tile. Tested for each tile,
 * with and without split-K, in fprop and dgrad: windows with strides,
 * dilations, groups and transposition, and sums long enough for split-K. */
#include "cuda/conv/igemm_tile_choice.h"
#include "engine/check/oprun.h"
#include "tests/cuda/kernels/bench.h"
#include "tests/support/op_call.h"

/* A convolution: {n,d,h,w,c}, filters, kernel, stride and padding of each axis
 * that the rank has. */
typedef struct Case {
    Op op;
    int rank;
    Dims x;
    int filters, kernel, stride, pad, dilation, groups;
    int tiles; /* least number of tiles that can compute y */
} Case;

static OpCase case_of(const Case *c)
{
    const bool up = c->op == OP_upconv;
    OpCase out = {.attr = op_default(c->op), .rank = c->rank, .wrt = 1};
    int *k[] = {&out.x[1].d, &out.x[1].h, &out.x[1].w};

    out.x[0] = c->x;
    out.x[1] = (Dims){1, 1, 1, 1, 1};
    out.x[1].n = up ? c->x.c : c->filters;
    out.x[1].c = (up ? c->filters : c->x.c) / c->groups;

    // conv and upconv have the same attributes in the same order
    int *s[] = {&out.attr.conv.sd, &out.attr.conv.sh, &out.attr.conv.sw};
    int *lo[] = {&out.attr.conv.pd0, &out.attr.conv.ph0, &out.attr.conv.pw0};
    int *hi[] = {&out.attr.conv.pd1, &out.attr.conv.ph1, &out.attr.conv.pw1};
    int *dil[] = {&out.attr.conv.dd, &out.attr.conv.dh, &out.attr.conv.dw};
    for (int i = 3 - c->rank; i < 3; i++) {
        *k[i] = c->kernel, *s[i] = c->stride;
        *lo[i] = *hi[i] = c->pad, *dil[i] = c->dilation;
    }
    out.attr.conv.groups = c->groups;
    return out;
}

static bool same_bits(const double *a, const double *b, int64_t count)
{
    return !memcmp(a, b, (size_t)count * sizeof *a);
}

/* Compares all tiles with igemm_tile.cu's own choice. Returns the number of
 * tiles for y. */
static int tiles_agree(const OpCase *c, Precision p)
{
    OpDevice d;
    Arena mem = {NULL};
    OpValues in, free_choice;
    int made = 0;

    REQUIRE(opdevice_open(&backend_cuda, 1, &d));
    d.precision = p;
    REQUIRE(opcase_values(c, &mem, &in));
    REQUIRE(oprun(c, &d, &in, (OpOptions){0}, &mem, &free_choice));
    EXPECT(igemm_tile_taken() != TILE_NONE);

    for (int i = 1; i <= igemm_tile_count(); i++) {
        OpValues one;
        igemm_tile_want(i);
        REQUIRE(
            oprun(c, &d, &in, (OpOptions){.forward_only = true}, &mem, &one));
        if (igemm_tile_taken() == i) {
            EXPECT(same_bits(free_choice.y, one.y, one.results));
            made++;
        }
        REQUIRE(oprun(c, &d, &in, (OpOptions){0}, &mem, &one));
        // dgrad is the last call; this tile may not exist for it
        if (igemm_tile_taken() == i)
            EXPECT(same_bits(free_choice.dx[0], one.dx[0], one.count[0]));
        igemm_tile_want(TILE_ANY);
    }

    opdevice_close(&d);
    arena_release(&mem);
    return made;
}

TEST(tiles_same_bits)
{
    static const Case cases[] = {
        {OP_conv, 2, {2, 1, 9, 14, 32}, 40, 3, 1, 1, 1, 1, 4},
        {OP_conv, 2, {1, 1, 11, 7, 64}, 72, 3, 2, 1, 1, 1, 4},
        {OP_conv, 2, {1, 1, 12, 9, 16}, 16, 3, 1, 2, 2, 2, 4},
        {OP_conv, 3, {1, 4, 6, 10, 24}, 32, 4, 2, 1, 1, 1, 4},
        {OP_upconv, 2, {1, 1, 6, 5, 64}, 32, 2, 2, 0, 1, 1, 4},
        {OP_upconv, 3, {1, 3, 2, 5, 32}, 24, 4, 2, 1, 1, 1, 4},
        // long sums: three tiles have slices, added by one block or split-K
        {OP_conv, 2, {2, 1, 4, 6, 256}, 64, 3, 1, 1, 1, 1, 6},
        {OP_upconv, 2, {1, 1, 3, 3, 512}, 32, 4, 2, 1, 1, 1, 6},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const OpCase c = case_of(&cases[i]);
        for (int p = PRECISION_bf16; p <= PRECISION_f16; p++) {
            if (given_once() && ((int)i + p) % 2) continue; // one of the two
            EXPECT(tiles_agree(&c, (Precision)p) >= cases[i].tiles);
        }
    }
}

/* With TILE_NONE no tile is taken, and results are equal up to rounding. */
TEST(tiles_not_taken)
{
    const Case one = {OP_conv, 2, {1, 1, 9, 9, 32}, 32, 3, 1, 1, 1, 1, 0};
    const OpCase c = case_of(&one);
    OpDevice d;
    Arena mem = {NULL};
    OpValues in, tiled, plain;
    const OpOptions how = {.forward_only = true};

    REQUIRE(opdevice_open(&backend_cuda, 1, &d));
    d.precision = PRECISION_bf16;
    REQUIRE(opcase_values(&c, &mem, &in));
    REQUIRE(oprun(&c, &d, &in, how, &mem, &tiled));
    EXPECT(igemm_tile_taken() != TILE_NONE);
    EXPECT_INT(igemm_tile_taken(), TILE_NONE); // no call since the last query
    igemm_tile_want(TILE_NONE);
    REQUIRE(oprun(&c, &d, &in, how, &mem, &plain));
    EXPECT_INT(igemm_tile_taken(), TILE_NONE);
    igemm_tile_want(TILE_ANY);
    for (int64_t i = 0; i < tiled.results; i++)
        EXPECT_NEAR(plain.y[i], tiled.y[i], 1e-3);
    opdevice_close(&d);
    arena_release(&mem);
}

/* A call takes the tile that it asks for, for y and for dx; a tile that
 * cannot compute it is ignored. */
TEST(tiles_asked_for)
{
    const Case one = {OP_conv, 2, {2, 1, 9, 14, 32}, 40, 3, 1, 1, 1, 1, 0};
    const Case up = {OP_upconv, 2, {1, 1, 6, 5, 64}, 32, 2, 2, 0, 1, 1, 0};

    for (int k = 0; k < 2; k++) {
        OpCase c = case_of(k ? &up : &one);
        OpDevice d;
        Arena mem = {NULL};
        OpValues in, out;
        int taken[2]; // the own choice for y, dx
        REQUIRE(opdevice_open(&backend_cuda, 1, &d));
        d.precision = PRECISION_bf16;
        REQUIRE(opcase_values(&c, &mem, &in));
        for (int back = 0; back < 2; back++) {
            const OpOptions how = {.forward_only = !back};
            c.tile[0] = c.tile[1] = 0;
            REQUIRE(oprun(&c, &d, &in, how, &mem, &out));
            taken[back] = igemm_tile_taken();
            for (int i = 1; i <= igemm_tile_count(); i++) {
                // the tile of the other pass must not matter
                c.tile[back] = (int8_t)i, c.tile[!back] = (int8_t)(1 + i % 3);
                REQUIRE(oprun(&c, &d, &in, how, &mem, &out));
                const bool can =
                    i <= igemm_tile_count() / 2; // short sums: no split-K
                EXPECT_INT(igemm_tile_taken(), can ? i : taken[back]);
            }
        }
        opdevice_close(&d);
        arena_release(&mem);
    }
}

TEST(tiles_have_names)
{
    EXPECT(!strcmp(igemm_tile_name(1), "128x128"));
    EXPECT(!strcmp(igemm_tile_name(igemm_tile_count()), "128x32-split"));
    EXPECT(!strcmp(igemm_tile_name(TILE_NONE), "none"));
    EXPECT(!strcmp(igemm_tile_name(igemm_tile_count() + 1), "none"));
    EXPECT(!igemm_tile_listed(0) && !igemm_tile_listed(igemm_tile_count() + 1));
    EXPECT(!strcmp(igemm_tile_listed(2), igemm_tile_name(2)));
}

/* The backend tells the planner the tile that a call takes, forward and
 * backward; 0 for another kernel. */
TEST(tile_of_the_schedule)
{
    static const struct {
        Shape shape;
        bool tiled;
    } rows[] = {
        {{OP_conv, {2, 1, 9, 14, 32}, {40, 1, 3, 3, 32}, 1, 1, 1}, true},
        {{OP_conv, {1, 1, 11, 7, 64}, {72, 1, 3, 3, 64}, 2, 1, 1}, true},
        {{OP_upconv, {1, 1, 6, 5, 64}, {64, 1, 2, 2, 32}, 2, 0, 1}, true},
        {{OP_conv, {2, 1, 4, 6, 256}, {64, 1, 3, 3, 256}, 1, 1, 1}, true},
        {{OP_conv, {2, 1, 9, 9, 3}, {16, 1, 3, 3, 3}, 1, 1, 1}, false},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const Shape *s = &rows[i].shape;
        const Attr attr = attr_of(s);
        Bench b;
        bench_open(&b, PRECISION_bf16);
        const Tensor x = uniform(&b, s->x, BF16, -1, 1);
        const Tensor w = uniform(&b, s->w, BF16, -1, 1);
        Tensor in[MAX_IN] = {x, w}, y = x;
        REQUIRE(op_shape(&attr, in, &y));
        y = tensor_of(&b, y.dim, BF16);
        const Tensor dy = uniform(&b, y.dim, BF16, -1, 1);
        const Tensor dx = tensor_of(&b, s->x, BF16);
        Call c = {.attr = &attr, .x = {&x, &w}, .y = &y, .fresh = ~0u};
        for (int back = 0; back < 2; back++) {
            if (back) c.dy = &dy, c.dx[0] = &dx;
            run(&b, &c);
            const int taken = igemm_tile_taken();
            EXPECT((taken != TILE_NONE) == rows[i].tiled);
            EXPECT_INT(backend_cuda.schedule(&c).tile,
                       taken == TILE_NONE ? 0 : taken);
        }
        bench_close(&b);
    }
}
