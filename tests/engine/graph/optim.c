/* optim.c -- the optimisers: table, numbers of PyTorch, and independence of the
 * number of threads and of block boundaries. */
#include "engine/graph/optim.h"
#include "engine/backend/backend.h"
#include "engine/base/rng.h"
#include "tests/golden/optim_golden.h"
#include "tests/support/op_call.h"

static void *open_device(const Backend *be, int threads)
{
    void *dev = NULL;
    REQUIRE(be->open(0, threads, &dev));
    return dev;
}

/* A block of the backend's real type: filled in `t`, on the host, and used
 * `at`, on the device. */
typedef struct Block {
    const Backend *be;
    void *dev, *at;
    Tensor t;
} Block;

static Block block_new(Arena *mem, const Backend *be, void *dev, int64_t count)
{
    Block b = {
        be, dev, NULL, {{1, 1, 1, 1, (int32_t)count}, be->real, 0, NULL}};
    b.t.data = arena_alloc(mem, tensor_bytes(&b.t));
    REQUIRE(b.t.data && be->alloc(dev, tensor_bytes(&b.t), &b.at));
    return b;
}

static void block_send(const Block *b)
{
    REQUIRE(b->be->upload(b->dev, b->at, b->t.data, tensor_bytes(&b->t)));
}

static void block_fetch(Block *b)
{
    REQUIRE(b->be->download(b->dev, b->t.data, b->at, tensor_bytes(&b->t)));
}

/* The operands of an update. */
typedef struct Blocks {
    Block p, g, m, v;
} Blocks;

static Blocks blocks_new(Arena *mem, const Backend *be, void *dev,
                         int64_t count)
{
    return (Blocks){
        block_new(mem, be, dev, count), block_new(mem, be, dev, count),
        block_new(mem, be, dev, count), block_new(mem, be, dev, count)};
}

static void blocks_send(const Blocks *b)
{
    block_send(&b->p), block_send(&b->g);
    block_send(&b->m), block_send(&b->v);
}

static void blocks_close(Blocks *b)
{
    const Backend *be = b->p.be;
    void *dev = b->p.dev;
    be->release(dev, b->p.at), be->release(dev, b->g.at);
    be->release(dev, b->m.at), be->release(dev, b->v.at);
    be->close(dev);
}

// -- table -------------------------------------------------------------------

TEST(optim_table)
{
    EXPECT_INT(optim_find("sgd"), OPTIM_sgd);
    EXPECT_INT(optim_find("adamw"), OPTIM_adamw);
    EXPECT_INT(optim_find("adagrad"), OPTIM_COUNT);
    EXPECT_INT(optim_find(""), OPTIM_COUNT);
    EXPECT_INT(optim_info[OPTIM_sgd].states, 1);
    EXPECT_INT(optim_info[OPTIM_sgd].hypers, 3);
    EXPECT_INT(optim_info[OPTIM_adam].states, 2);
    EXPECT_INT(optim_info[OPTIM_adam].hypers, 4);
    EXPECT_TEXT(optim_info[OPTIM_adamw].name, "adamw");
    EXPECT_TEXT(optim_info[OPTIM_adamw].hyper[2].name, "eps");
    for (int k = 0; k < OPTIM_COUNT; k++) {
        Optim o = optim_default((OptimKind)k);
        EXPECT_INT(o.kind, k);
        EXPECT_INT(optim_find(optim_info[k].name), k);
    }

    Optim o = optim_default(OPTIM_adamw);
    EXPECT_NEAR(optim_hyper(&o, "beta1"), 0.9, 0);
    EXPECT_NEAR(optim_hyper(&o, "beta2"), 0.999, 0);
    EXPECT_NEAR(optim_hyper(&o, "eps"), 1e-8, 0);
    EXPECT_NEAR(optim_hyper(&o, "decay"), 0.01, 0);
    o = optim_default(OPTIM_adam);
    EXPECT_NEAR(optim_hyper(&o, "decay"), 0, 0);
}

TEST(optim_numbers_have_ranges)
{
    static const struct {
        OptimKind kind;
        int hyper;
        double v;
        const char *want; // NULL: fine
    } row[] = {
        {OPTIM_adamw, 0, 0, NULL},
        {OPTIM_adamw, 0, 1, "adamw: beta1 is 1, want a number from 0 to below"},
        {OPTIM_adamw, 1, -0.1, "adamw: beta2 is -0.1, want a number from 0"},
        {OPTIM_adam, 2, 0, "adam: eps is 0, want a number above 0"},
        {OPTIM_adam, 3, -1, "adam: decay is -1, want a number of 0 or more"},
        {OPTIM_sgd, 0, 1.5, "sgd: momentum is 1.5, want a number from 0 to 1"},
        {OPTIM_sgd, 0, 1, NULL},
        {OPTIM_sgd, 1, 1, NULL},
        {OPTIM_sgd, 2, NAN, "sgd: decay is not finite"},
    };

    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        Optim o = optim_default(row[i].kind);
        EXPECT(optim_valid(&o));
        o.hyper[row[i].hyper] = row[i].v;
        if (!row[i].want)
            EXPECT(optim_valid(&o));
        else
            EXPECT_FAIL(optim_valid(&o), row[i].want);
    }
}

// -- numbers -----------------------------------------------------------------

TEST(optim_golden)
{
    enum { N = 6, STEPS = 100, SEEN = 4 };
    static const int seen[SEEN] = {1, 6, 10, 100};
    static const struct {
        const char *kind;
        double hyper[4], decay; // of its row, without decay
        const double (*want)[N * SEEN];
    } row[] = {
        {"adamw", {0.9, 0.999, 1e-8}, 0.125, golden_adamw},
        {"adamw", {0.75, 0.875, 0.0625}, 0, golden_adamw_short},
        {"adam", {0.9, 0.999, 1e-8}, 0.125, golden_adam},
        {"radam", {0.9, 0.999, 1e-8}, 0, golden_radam},
        {"radam", {0.75, 0.875, 1e-8}, 0, golden_radam_short},
        {"radam", {0.9, 0.999, 1e-8}, 0.125, golden_radam_decay},
        {"sgd", {0, 0}, 0, golden_descent},
        {"sgd", {0.875, 0}, 0.125, golden_sgd},
        {"sgd", {0.875, 1}, 0.125, golden_nesterov},
    };
    Arena mem = {0};

    for (size_t i = 0; i < 2 * sizeof row / sizeof *row; i++) {
        const Backend *be = given_backend(i % 2);
        Optim o = optim_default(optim_find(row[i / 2].kind));
        for (int k = 0; k < optim_info[o.kind].hypers - 1; k++)
            o.hyper[k] = row[i / 2].hyper[k];
        void *dev = open_device(be, 2);
        Blocks b = blocks_new(&mem, be, dev, N);
        for (int k = 0; k < N; k++) {
            tensor_set(&b.p.t, k, (k * 13 % 64 - 32) / 16.0);
            // a first moment is undefined before its first step
            if (o.kind == OPTIM_sgd) tensor_set(&b.m.t, k, 1e9);
        }
        blocks_send(&b);
        for (int t = 1, at = 0; t <= STEPS; t++) {
            // the loss scale of 8 is divided out
            for (int k = 0; k < N; k++)
                tensor_set(&b.g.t, k,
                           (((t - 1) * N + k) * 29 % 64 - 32) / 64.0 * 8);
            block_send(&b.g);
            Update u = {.optim = &o,
                        .value = b.p.at,
                        .grad = b.g.at,
                        .m = b.m.at,
                        .v = optim_info[o.kind].states > 1 ? b.v.at : NULL,
                        .count = N,
                        .step = t,
                        .lr = 0.0625,
                        .decay = row[i / 2].decay,
                        .grad_scale = 0.125};
            REQUIRE(be->update(dev, &u));
            if (t != seen[at]) continue;
            block_fetch(&b.p);
            // ref against PyTorch's double, float against its float
            const double *want = row[i / 2].want[i % 2] + N * at++;
            for (int k = 0; k < N; k++)
                EXPECT_NEAR(tensor_get(&b.p.t, k), want[k],
                            (i % 2 ? 1e-6 : 1e-12) * fmax(1, fabs(want[k])));
        }
        blocks_close(&b);
    }
    arena_release(&mem);
}

TEST(optim_first_step_by_hand)
{
    // m / (1 - b1) = g, v / (1 - b2) = g^2: adam's first step is lr sign(g)
    static const struct {
        OptimKind kind;
        double decay, want;
    } row[] = {
        {OPTIM_adamw, 0, 2 - 0.25},
        {OPTIM_adamw, 0.5, 2 * 0.875 - 0.25},
        // decay 0.5 p = 1 changes the gradient from -0.5 to 0.5
        {OPTIM_adam, 0, 2 + 0.25},
        {OPTIM_adam, 0.5, 2 - 0.25},
        {OPTIM_sgd, 0, 2 + 0.125},
        {OPTIM_sgd, 0.5, 2 - 0.125},
    };

    for (size_t i = 0; i < 2 * sizeof row / sizeof *row; i++) {
        const Backend *be = given_backend(i % 2);
        Arena mem = {0};
        Optim o = optim_default(row[i / 2].kind);
        void *dev = open_device(be, 1);
        Blocks b = blocks_new(&mem, be, dev, 1);
        tensor_set(&b.p.t, 0, 2);
        tensor_set(&b.g.t, 0, o.kind == OPTIM_adamw ? 0.5 : -0.5);
        blocks_send(&b);
        Update u = {.optim = &o,
                    .value = b.p.at,
                    .grad = b.g.at,
                    .m = b.m.at,
                    .v = b.v.at,
                    .count = 1,
                    .step = 1,
                    .lr = 0.25,
                    .decay = row[i / 2].decay,
                    .grad_scale = 1};
        REQUIRE(be->update(dev, &u));
        block_fetch(&b.p);
        blocks_close(&b);
        EXPECT_NEAR(tensor_get(&b.p.t, 0), row[i / 2].want, 1e-6);
        arena_release(&mem);
    }
}

// -- blocks and threads ------------------------------------------------------

/* Odd, so that blocks, partial sums and vectors end in the middle, and longer
 * than the shortest partial sum of any backend. */
enum { LARGE = 5000003 };

static Block random_block(Arena *mem, const Backend *be, void *dev,
                          uint32_t sample)
{
    Block b = block_new(mem, be, dev, LARGE);
    Rng r = {.stream = RNG_TEST, .sample = sample};
    for (uint32_t i = 0; i < LARGE; i += 4) {
        uint32_t w[4];
        rng_block(&r, i / 4, w);
        for (uint32_t k = 0; k < 4 && i + k < LARGE; k++)
            tensor_set(&b.t, i + k, rng_unit(w[k]) - 0.5f);
    }
    return b;
}

/* An update of `count` elements equals updates of its two parts, with any
 * number of threads; the second part is not aligned to a vector. */
static void update_in_parts(OptimKind kind, int64_t count)
{
    const Backend *be = given_backend(1);
    Arena mem = {0};
    Optim o = optim_default(kind);
    float *values[2] = {NULL, NULL};

    for (int run = 0; run < 2; run++) {
        void *dev = open_device(be, run ? 4 : 1);
        Blocks b = {
            random_block(&mem, be, dev, 1), random_block(&mem, be, dev, 2),
            block_new(&mem, be, dev, LARGE), block_new(&mem, be, dev, LARGE)};
        blocks_send(&b);
        int64_t cut[3] = {0, run ? count / 3 : count, count};
        for (int part = 0; part < 2; part++) {
            if (cut[part] == cut[part + 1]) continue;
            Update u = {.optim = &o,
                        .value = (float *)b.p.at + cut[part],
                        .grad = (float *)b.g.at + cut[part],
                        .m = (float *)b.m.at + cut[part],
                        .v = (float *)b.v.at + cut[part],
                        .count = cut[part + 1] - cut[part],
                        .step = 3,
                        .lr = 0.01,
                        .decay = 0.01,
                        .grad_scale = 1};
            REQUIRE(be->update(dev, &u));
        }
        block_fetch(&b.p);
        blocks_close(&b);
        values[run] = b.p.t.data;
    }

    EXPECT(!memcmp(values[0], values[1], (size_t)count * sizeof(float)));
    arena_release(&mem);
}

TEST(optim_blocks_and_threads)
{
    update_in_parts(OPTIM_adamw, LARGE);
    update_in_parts(OPTIM_sgd, 1001);
}

TEST(optim_sum_squares)
{
    static const int64_t count[] = {0, 1, 7, 8, 9, 16384, 16385, LARGE};
    Arena mem = {0};

    for (size_t b = 0; b < 2; b++) {
        const Backend *be = given_backend(b);
        void *one = open_device(be, 1), *four = open_device(be, 4);
        Block x = random_block(&mem, be, one, 3);
        block_send(&x);
        for (size_t i = 0; i < sizeof count / sizeof *count; i++) {
            double want = 0, got, again;
            for (int64_t k = 0; k < count[i]; k++)
                want += tensor_get(&x.t, k) * tensor_get(&x.t, k);
            REQUIRE(be->sum_squares(one, x.at, count[i], &got));
            REQUIRE(be->sum_squares(four, x.at, count[i], &again));
            EXPECT_NEAR(got, want, 1e-11 * want);
            EXPECT(!memcmp(&got, &again, sizeof got));
        }
        be->release(one, x.at);
        be->close(one);
        be->close(four);
    }
    arena_release(&mem);
}

TEST(optim_sum_squares_is_double)
{
    // 2^24 + 1 is not a float; and no thread pool is required
    float x[2] = {4096, 1};
    double out;
    REQUIRE(backend_cpu.sum_squares(NULL, x, 2, &out));
    EXPECT_NEAR(out, 16777217, 0);
}
