/* ops_pool.c -- pooling, global pooling, upsampling. */
#include "opcase.h"
#include "test.h"

/* Values at least 2 / count apart, so that no step of a gradient check makes
 * another element the largest. */
static const Fill distinct = {FILL_DISTINCT, -1, 1};

#define SET_WINDOW(row, win)                                          \
    do {                                                              \
        c->attr.row.kd = (win).k[0], c->attr.row.kh = (win).k[1];     \
        c->attr.row.kw = (win).k[2];                                  \
        c->attr.row.sd = (win).s[0], c->attr.row.sh = (win).s[1];     \
        c->attr.row.sw = (win).s[2];                                  \
        c->attr.row.pd0 = (win).lo[0], c->attr.row.pd1 = (win).hi[0]; \
        c->attr.row.ph0 = (win).lo[1], c->attr.row.ph1 = (win).hi[1]; \
        c->attr.row.pw0 = (win).lo[2], c->attr.row.pw1 = (win).hi[2]; \
    } while (0)

/* Half of the draws are the common window of 2, stride 2. */
static Window draw_window(Draw *d, int rank)
{
    Window g = {.k = {1, 1, 1}, .s = {1, 1, 1}};
    bool common = draw_bool(d);
    for (int i = 3 - rank; i < 3; i++) {
        g.k[i] = g.s[i] = 2;
        if (common) continue;
        g.k[i] = draw_int(d, 1, 4);
        g.s[i] = draw_int(d, 1, 3);
        g.lo[i] = draw_int(d, 0, g.k[i] - 1);
        g.hi[i] = draw_int(d, 0, g.k[i] - 1);
    }
    return g;
}

static void draw_maxpool(Draw *d, OpCase *c)
{
    c->x[0] = draw_image(d, c);
    Window g = draw_window(d, c->rank);
    SET_WINDOW(maxpool, g);
}

TEST(op_maxpool)
{
    opsuite_run(&(OpSuite){
        .op = OP_maxpool, .draw = draw_maxpool, .wrt = 1, .fill = {distinct}});
}

/* With ties the backends agree on the winner. */
TEST(op_maxpool_ties)
{
    opsuite_run(&(OpSuite){
        .op = OP_maxpool, .draw = draw_maxpool, .fill = {{FILL_CLASS, 0, 1}}});
    OpCase c = {.attr = op_default(OP_maxpool),
                .rank = 2,
                .x = {{2, 1, 6, 8, 5}},
                .fill = {{FILL_CLASS, 0, 1}},
                .wrt = 1};
    c.attr.maxpool.kh = c.attr.maxpool.kw = 3;
    c.attr.maxpool.sh = c.attr.maxpool.sw = 2;
    opcase_agree(&c, &backend_cpu);
}

/* y and dx (dy all 1) of a 4x4 image of one channel. */
static void run_image(const OpCase *c, const Backend *be, double *x, Arena *mem,
                      OpValues *out)
{
    double ones[16];
    OpDevice d;
    Tensor y;
    for (int i = 0; i < 16; i++) ones[i] = 1;
    REQUIRE(opcase_shape(c, &y));
    OpValues in = {.x = {x}, .count = {16}, .dy = ones};
    in.results = numel(y.dim);
    REQUIRE(opdevice_open(be, 1, &d));
    bool ok = oprun(c, &d, &in, (OpOptions){0}, mem, out);
    opdevice_close(&d);
    REQUIRE(ok);
}

/* The winner itself: the first of equal ones, never padding, and a NaN. */
TEST(op_maxpool_winner)
{
    const Backend *be[] = {&backend_ref, &backend_cpu};
    static const double first[16] = {1, 0, 1, 0, 0, 0, 0, 0, //
                                     1, 0, 1, 0, 0, 0, 0, 0};
    for (int k = 0; k < 2; k++) {
        Arena mem = {0};
        OpValues out;
        double x[16];
        for (int i = 0; i < 16; i++) x[i] = -5;
        OpCase c = {.attr = op_default(OP_maxpool),
                    .rank = 2,
                    .x = {{1, 1, 4, 4, 1}},
                    .wrt = 1};
        c.attr.maxpool.kh = c.attr.maxpool.kw = 2;
        c.attr.maxpool.sh = c.attr.maxpool.sw = 2;
        run_image(&c, be[k], x, &mem, &out);
        for (int i = 0; i < 16; i++) EXPECT_NEAR(out.dx[0][i], first[i], 0);
        x[5] = NAN;
        run_image(&c, be[k], x, &mem, &out);
        EXPECT(isnan(out.y[0]));
        EXPECT_NEAR(out.y[1], -5, 0);
        EXPECT_NEAR(out.dx[0][5], 1, 0);
        c.attr.maxpool.ph0 = c.attr.maxpool.pw0 = 1;
        run_image(&c, be[k], x, &mem, &out);
        EXPECT_NEAR(out.y[0], -5, 0);
        arena_release(&mem);
    }
}

TEST(op_global_maxpool_winner)
{
    const Backend *be[] = {&backend_ref, &backend_cpu};
    for (int k = 0; k < 2; k++) {
        Arena mem = {0};
        OpValues out;
        double x[16] = {0, 0, 3, 1, 3, 2};
        OpCase c = {.attr = op_default(OP_global_maxpool),
                    .rank = 2,
                    .x = {{1, 1, 4, 4, 1}},
                    .wrt = 1};
        run_image(&c, be[k], x, &mem, &out);
        EXPECT_NEAR(out.y[0], 3, 0);
        for (int i = 0; i < 16; i++) EXPECT_NEAR(out.dx[0][i], i == 2, 0);
        x[9] = NAN;
        run_image(&c, be[k], x, &mem, &out);
        EXPECT(isnan(out.y[0]));
        EXPECT_NEAR(out.dx[0][9], 1, 0);
        arena_release(&mem);
    }
}

static void draw_avgpool(Draw *d, OpCase *c)
{
    c->x[0] = draw_image(d, c);
    Window g = draw_window(d, c->rank);
    SET_WINDOW(avgpool, g);
    c->attr.avgpool.count_all = draw_bool(d);
}

TEST(op_avgpool)
{
    opsuite_run(&(OpSuite){.op = OP_avgpool, .draw = draw_avgpool, .wrt = 1});
}

static void draw_global(Draw *d, OpCase *c)
{
    c->x[0] = draw_image(d, c);
}

TEST(op_global_avgpool)
{
    opsuite_run(
        &(OpSuite){.op = OP_global_avgpool, .draw = draw_global, .wrt = 1});
}

TEST(op_global_maxpool)
{
    opsuite_run(&(OpSuite){.op = OP_global_maxpool,
                           .draw = draw_global,
                           .wrt = 1,
                           .fill = {distinct}});
}

/* Both rows begin with the same three factors. */
static void draw_upsample(Draw *d, OpCase *c)
{
    c->x[0] = draw_image(d, c);
    for (int i = 3 - c->rank; i < 3; i++)
        c->attr.word[1 + i] = draw_int(d, 1, 3);
    if (c->attr.op == OP_upsample_linear)
        c->attr.upsample_linear.align = draw_bool(d);
}

TEST(op_upsample_nearest)
{
    opsuite_run(
        &(OpSuite){.op = OP_upsample_nearest, .draw = draw_upsample, .wrt = 1});
}

TEST(op_upsample_linear)
{
    opsuite_run(
        &(OpSuite){.op = OP_upsample_linear, .draw = draw_upsample, .wrt = 1});
}
