/* optim.c -- the optimisers: table, numbers of PyTorch, and the two ways an
 * update may go wrong unseen: by the number of threads, and by its blocks. */
#include "optim.h"
#include "backend.h"
#include "golden/ops_golden.h"
#include "rng.h"
#include "test.h"

static const Backend *const backends[2] = {&backend_ref, &backend_cpu};

static void *open_device(const Backend *be, int threads)
{
    void *dev = NULL;
    REQUIRE(be->open(0, threads, &dev));
    return dev;
}

/* A block of the backend's real type. */
typedef struct Block {
    const Backend *be;
    Tensor t;
} Block;

static Block block_new(Arena *mem, const Backend *be, int64_t count)
{
    Block b = {be, {{1, 1, 1, 1, (int32_t)count}, be->real, 0, NULL}};
    b.t.data = arena_alloc(mem, tensor_bytes(&b.t));
    REQUIRE(b.t.data);
    return b;
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
    enum { N = 6, STEPS = 10 };
    static const struct {
        OptimKind kind;
        double momentum, nesterov, decay;
        const float *want;
    } row[] = {
        {OPTIM_adamw, 0, 0, 0.125, golden_adamw},
        {OPTIM_adam, 0, 0, 0.125, golden_adam},
        {OPTIM_sgd, 0.875, 0, 0.125, golden_sgd},
        {OPTIM_sgd, 0.875, 1, 0.125, golden_nesterov},
        {OPTIM_sgd, 0, 0, 0, golden_descent},
    };
    Arena mem = {0};
    for (size_t i = 0; i < 2 * sizeof row / sizeof *row; i++) {
        const Backend *be = backends[i % 2];
        Optim o = optim_default(row[i / 2].kind);
        if (o.kind == OPTIM_sgd) {
            o.hyper[0] = row[i / 2].momentum;
            o.hyper[1] = row[i / 2].nesterov;
        }
        Block p = block_new(&mem, be, N), g = block_new(&mem, be, N);
        Block m = block_new(&mem, be, N), v = block_new(&mem, be, N);
        for (int k = 0; k < N; k++) {
            tensor_set(&p.t, k, (k * 13 % 64 - 32) / 16.0);
            // a first moment holds nothing yet, whatever stands there
            if (o.kind == OPTIM_sgd) tensor_set(&m.t, k, 1e9);
        }
        void *dev = open_device(be, 2);
        for (int t = 1; t <= STEPS; t++) {
            // the loss scale of 8 is taken out again
            for (int k = 0; k < N; k++)
                tensor_set(&g.t, k,
                           (((t - 1) * N + k) * 29 % 64 - 32) / 64.0 * 8);
            Update u = {.optim = &o,
                        .value = p.t.data,
                        .grad = g.t.data,
                        .m = m.t.data,
                        .v = optim_info[o.kind].states > 1 ? v.t.data : NULL,
                        .count = N,
                        .step = t,
                        .lr = 0.0625,
                        .decay = row[i / 2].decay,
                        .grad_scale = 0.125};
            REQUIRE(be->update(dev, &u));
        }
        be->close(dev);
        // float against PyTorch's float: the promise is 1e-6 relative
        for (int k = 0; k < N; k++) {
            double want = row[i / 2].want[k];
            EXPECT_NEAR(tensor_get(&p.t, k), want,
                        (i % 2 ? 1e-6 : 2e-6) * fmax(0.5, fabs(want)));
        }
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
        // decay 0.5 p = 1 turns the gradient from -0.5 to 0.5
        {OPTIM_adam, 0, 2 + 0.25},
        {OPTIM_adam, 0.5, 2 - 0.25},
        {OPTIM_sgd, 0, 2 + 0.125},
        {OPTIM_sgd, 0.5, 2 - 0.125},
    };
    for (size_t i = 0; i < 2 * sizeof row / sizeof *row; i++) {
        const Backend *be = backends[i % 2];
        Arena mem = {0};
        Optim o = optim_default(row[i / 2].kind);
        Block p = block_new(&mem, be, 1), g = block_new(&mem, be, 1);
        Block m = block_new(&mem, be, 1), v = block_new(&mem, be, 1);
        tensor_set(&p.t, 0, 2);
        tensor_set(&g.t, 0, o.kind == OPTIM_adamw ? 0.5 : -0.5);
        Update u = {.optim = &o,
                    .value = p.t.data,
                    .grad = g.t.data,
                    .m = m.t.data,
                    .v = v.t.data,
                    .count = 1,
                    .step = 1,
                    .lr = 0.25,
                    .decay = row[i / 2].decay,
                    .grad_scale = 1};
        REQUIRE(be->update(NULL, &u));
        EXPECT_NEAR(tensor_get(&p.t, 0), row[i / 2].want, 1e-6);
        arena_release(&mem);
    }
}

// -- blocks and threads ------------------------------------------------------

/* Odd, so that blocks, parts and lanes all end in the middle. */
enum { LARGE = 5000003 };

static Block random_block(Arena *mem, const Backend *be, uint32_t sample)
{
    Block b = block_new(mem, be, LARGE);
    Rng r = {.stream = RNG_TEST, .sample = sample};
    for (uint32_t i = 0; i < LARGE; i += 4) {
        uint32_t w[4];
        rng_block(&r, i / 4, w);
        for (uint32_t k = 0; k < 4 && i + k < LARGE; k++)
            tensor_set(&b.t, i + k, rng_unit(w[k]) - 0.5f);
    }
    return b;
}

TEST(optim_blocks_and_threads)
{
    // an update of all is the update of its halves, with any threads
    const Backend *be = &backend_cpu;
    Arena mem = {0};
    Optim o = optim_default(OPTIM_adamw);
    float *values[2] = {NULL, NULL};
    for (int run = 0; run < 2; run++) {
        Block p = random_block(&mem, be, 1), g = random_block(&mem, be, 2);
        Block m = block_new(&mem, be, LARGE), v = block_new(&mem, be, LARGE);
        void *dev = open_device(be, run ? 4 : 1);
        int64_t cut[3] = {0, run ? LARGE / 3 : LARGE, LARGE};
        for (int half = 0; half < 2; half++) {
            if (cut[half] == cut[half + 1]) continue;
            Update u = {.optim = &o,
                        .value = (float *)p.t.data + cut[half],
                        .grad = (float *)g.t.data + cut[half],
                        .m = (float *)m.t.data + cut[half],
                        .v = (float *)v.t.data + cut[half],
                        .count = cut[half + 1] - cut[half],
                        .step = 3,
                        .lr = 0.01,
                        .decay = 0.01,
                        .grad_scale = 1};
            REQUIRE(be->update(dev, &u));
        }
        be->close(dev);
        values[run] = p.t.data;
    }
    EXPECT(!memcmp(values[0], values[1], LARGE * sizeof(float)));
    arena_release(&mem);
}

TEST(optim_sum_squares)
{
    static const int64_t count[] = {0, 1, 7, 8, 9, 16384, 16385, LARGE};
    Arena mem = {0};
    for (int b = 0; b < 2; b++) {
        const Backend *be = backends[b];
        Block x = random_block(&mem, be, 3);
        void *one = open_device(be, 1), *four = open_device(be, 4);
        for (size_t i = 0; i < sizeof count / sizeof *count; i++) {
            double want = 0, got, again, alone;
            for (int64_t k = 0; k < count[i]; k++)
                want += tensor_get(&x.t, k) * tensor_get(&x.t, k);
            REQUIRE(be->sum_squares(one, x.t.data, count[i], &got));
            REQUIRE(be->sum_squares(four, x.t.data, count[i], &again));
            REQUIRE(be->sum_squares(NULL, x.t.data, count[i], &alone));
            EXPECT_NEAR(got, want, 1e-11 * want);
            EXPECT(!memcmp(&got, &again, sizeof got));
            EXPECT(!memcmp(&got, &alone, sizeof got));
        }
        be->close(one);
        be->close(four);
    }
    arena_release(&mem);
}

TEST(optim_sum_squares_is_double)
{
    // 2^24 + 1 does not exist in float
    Arena mem = {0};
    Block x = block_new(&mem, &backend_cpu, 2);
    double out;
    tensor_set(&x.t, 0, 4096), tensor_set(&x.t, 1, 1);
    REQUIRE(backend_cpu.sum_squares(NULL, x.t.data, 2, &out));
    EXPECT_NEAR(out, 16777217, 0);
    arena_release(&mem);
}
