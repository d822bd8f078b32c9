/* params.c -- names, offsets in the blocks, initialisation. */
#include "engine/base/rng.h"
#include "tests/support/networks.h"
#include <stdlib.h>

/* conv, norm, conv with bias: trained parameters and running statistics
 * mixed. */
static void mixed(Net *n)
{
    net_new(n);
    int x = net_input(n, "x", (Dims){1, 1, 8, 8, 3}, 2);
    int a = net_norm(n, net_conv(n, x, 5, 3));
    n->bias = true;
    n->root[n->roots++] = net_conv(n, a, 2, 3);
}

TEST(params_places)
{
    Net n;
    Params q;
    mixed(&n);
    REQUIRE(params_list(&q, &n.g, n.root, 1));
    static const struct {
        const char *name;
        int64_t at;
        bool trained;
    } want[] = {{"p1.weight", 0, true},         {"p2.weight", 192, true},
                {"p2.bias", 256, true},         {"p2.running_mean", 512, false},
                {"p2.running_var", 576, false}, {"p3.weight", 320, true},
                {"p3.bias", 448, true}};
    REQUIRE(q.count == 7);

    for (int i = 0; i < 7; i++) {
        EXPECT_TEXT(q.list[i].name, want[i].name);
        EXPECT_INT(q.list[i].at, want[i].at);
        EXPECT_INT(q.list[i].trained, want[i].trained);
        EXPECT_INT(params_find(&q, want[i].name), i);
    }

    EXPECT_INT(params_find(&q, "p4.weight"), -1);
    EXPECT_INT(q.trained, 512);
    EXPECT_INT(q.total, 640);
    EXPECT_INT(params_trained(&q), 5 * 27 + 2 * 5 + 2 * 45 + 2);
    EXPECT_INT(params_running(&q), 10);
    EXPECT_INT(params_bytes(&q, F32, false, 2), 640 * 4);
    EXPECT_INT(params_bytes(&q, F32, true, 2), (640 + 3 * 512) * 4);
    EXPECT_INT(params_bytes(&q, F64, true, 0), (640 + 512) * 8);
    params_free(&q);

    // only parameters that the roots need
    int first = n.g.node[n.root[0]].in[0];
    REQUIRE(params_list(&q, &n.g, &n.g.node[first].in[0], 1));
    EXPECT_INT(q.count, 1);
    params_free(&q);
    net_free(&n);
}

TEST(params_freeze_by_name)
{
    Net n;
    Params q;
    mixed(&n);
    REQUIRE(params_list(&q, &n.g, n.root, 1));
    static const struct {
        const char *name;
        const char *frozen; // of each parameter, in the order of the list
    } row[] = {{"p1", "1000000"},
               {"p3.bias", "1000001"},
               {"p2", "1110001"}}; // running statistics cannot be frozen
    for (size_t k = 0; k < sizeof row / sizeof *row; k++) {
        REQUIRE(params_freeze(&q, row[k].name));
        for (int i = 0; i < q.count; i++)
            EXPECT_INT(q.list[i].frozen, row[k].frozen[i] == '1');
    }

    EXPECT_FAIL(params_freeze(&q, "p"), "no trained parameter is called \"p\"");
    EXPECT_FAIL(params_freeze(&q, "p3.weights"), "begins with \"p3.weights.\"");
    EXPECT_FAIL(params_freeze(&q, "p2.running_var"), "no trained parameter");
    EXPECT_FAIL(params_freeze(&q, ""), "no trained parameter");
    EXPECT(!q.list[5].frozen);
    params_free(&q);
    net_free(&n);
}

/* User order is (Co,Ci,kh,kw), memory order (Co,kh,kw,Ci). */
TEST(params_read_and_write)
{
    static const char *const device[] = {"ref", "cpu"};
    for (int d = 0; d < 2; d++) {
        Net n;
        double v[135], back[135];
        mixed(&n);
        net_open(&n, device[d], 1, NULL);
        Params *q = session_params(n.s);
        for (int i = 0; i < 135; i++) v[i] = i;
        REQUIRE(params_write(q, 0, PARAM_VALUE, 0, v));
        REQUIRE(params_read(q, 0, PARAM_VALUE, 0, back));
        EXPECT(!memcmp(v, back, sizeof v));
        Tensor t = params_tensor(q, 0, PARAM_VALUE, 0);
        for (int co = 0; co < 5; co++)
            for (int k = 0; k < 9; k++)
                for (int ci = 0; ci < 3; ci++)
                    EXPECT_NEAR(tensor_get(&t, (co * 9 + k) * 3 + ci),
                                (co * 3 + ci) * 9 + k, 0);
        // neighbours and gaps are unchanged
        Tensor gap = {{1, 1, 1, 1, 57}, t.type, -1, NULL};
        gap.data = (char *)t.data + 135 * dtype_bytes(t.type);
        for (int i = 0; i < 57; i++) EXPECT_NEAR(tensor_get(&gap, i), 0, 0);
        mem_fail_after(0, false);
        EXPECT_FAIL(params_read(q, 1, PARAM_VALUE, 0, back), "p2.weight: no");
        mem_fail_after(0, false);
        EXPECT_FAIL(params_write(q, 1, PARAM_VALUE, 0, v), "p2.weight: no");
        net_free(&n);
    }
}

/* Computes mean and variance of `count` values, and the largest magnitude. */
static void moments(const double *v, int64_t count, double out[3])
{
    out[0] = out[1] = out[2] = 0;
    for (int64_t i = 0; i < count; i++) {
        out[0] += v[i] / (double)count;
        out[1] += v[i] * v[i] / (double)count;
        if (fabs(v[i]) > out[2]) out[2] = fabs(v[i]);
    }
}

/* Initialises one parameter of `count` elements with this Init and name. */
static void start(const char *device, const char *name, Init init,
                  int32_t count, uint64_t seed, double *v)
{
    Net n;
    int w;
    net_new(&n);
    REQUIRE(graph_param(&n.g, name, (Dims){1, 1, 1, 1, count}, RANK_VECTOR,
                        init, true, true, "", &w));
    SessionSpec spec = {.graph = &n.g,
                        .root = &w,
                        .roots = 1,
                        .loss = -1,
                        .device = device,
                        .threads = 1,
                        .seed = seed};
    REQUIRE(session_open(&spec, &n.s));
    REQUIRE(params_read(session_params(n.s), 0, PARAM_VALUE, 0, v));
    net_free(&n);
}

TEST(params_start)
{
    enum { N = 20000 };
    double *v = mem_alloc(N * sizeof *v), *w = mem_alloc(N * sizeof *w), m[3];
    REQUIRE(v && w);

    // PyTorch's default: uniform within 1/sqrt(fan_in), variance bound^2 / 3
    double bound = 1 / sqrt(27);
    start("cpu", "a", (Init){INIT_UNIFORM, bound}, N, 1, v);
    moments(v, N, m);
    EXPECT(m[2] <= (double)(float)bound && m[2] > 0.999 * bound);
    EXPECT_NEAR(m[0], 0, 0.01 * bound);
    EXPECT_NEAR(m[1], bound * bound / 3, 0.02 * bound * bound);
    start("cpu", "a", (Init){INIT_NORMAL, 0.02}, N, 1, v);
    moments(v, N, m);
    EXPECT_NEAR(m[0], 0, 0.0006);
    EXPECT_NEAR(m[1], 0.0004, 0.00002);
    EXPECT(m[2] > 0.06 && m[2] < 0.12);
    start("cpu", "a", (Init){INIT_CONST, 0.25}, N, 1, w);
    moments(w, N, m);
    EXPECT_NEAR(m[0], 0.25, 1e-12);

    // values depend on name and seed, and on nothing else
    start("cpu", "a", (Init){INIT_NORMAL, 0.02}, 100, 1, w);
    EXPECT(!memcmp(v, w, 100 * sizeof *v));
    start("cpu", "b", (Init){INIT_NORMAL, 0.02}, 100, 1, w);
    EXPECT(v[0] != w[0] && v[99] != w[99]);
    start("cpu", "a", (Init){INIT_NORMAL, 0.02}, 100, 2, w);
    EXPECT(v[0] != w[0] && v[99] != w[99]);
    start("ref", "a", (Init){INIT_NORMAL, 0.02}, 100, 1, w);
    for (int i = 0; i < 100; i++) EXPECT_NEAR((float)w[i], v[i], 0);
    mem_free(v);
    mem_free(w);
}

/* The same layer in another place of another network has the same
 * initialisation, on every backend; element i of user order is draw i. */
TEST(params_start_alone)
{
    Net a, b;
    double v[54], w[54];
    net_new(&a);
    int x = net_input(&a, "x", (Dims){1, 1, 8, 8, 3}, 2);
    a.root[a.roots++] = net_conv(&a, x, 2, 3);
    net_new(&b);
    x = net_input(&b, "x", (Dims){1, 1, 8, 8, 3}, 2);
    b.layers = 7;
    int other = net_conv(&b, x, 3, 5);
    b.layers = 0;
    b.root[b.roots++] = net_conv(&b, x, 2, 3);
    b.root[b.roots++] = other;
    net_open(&a, "ref", 1, NULL);
    net_open(&b, "cpu", 2, NULL);
    Params *q = session_params(b.s);
    REQUIRE(params_read(session_params(a.s), 0, PARAM_VALUE, 0, v));
    int i = params_find(q, "p1.weight");
    EXPECT_INT(i, 1);
    REQUIRE(params_read(q, i, PARAM_VALUE, 0, w));
    float bound = (float)(1 / sqrt(27));
    Rng r = {.seed = 11, .stream = RNG_INIT, .sample = rng_hash("p1.weight")};
    for (uint32_t k = 0; k < 54; k++) {
        EXPECT_NEAR(v[k], rng_range(&r, k, -bound, bound), 0);
        EXPECT_NEAR((float)v[k], w[k], 0);
    }
    net_free(&a);
    net_free(&b);
}

/* Sums of sizes that overflow are refused before anything is allocated. */
TEST(params_too_many)
{
    Net n;
    Params q;
    int root[16];

    net_new(&n);
    for (int i = 0; i < 16; i++) {
        char name[16];
        snprintf(name, sizeof name, "w%d", i);
        REQUIRE(graph_param(&n.g, name, (Dims){1 << 30, 1, 1 << 15, 1 << 14, 1},
                            2, (Init){INIT_CONST, 0}, true, true, "",
                            &root[i]));
    }

    long live = mem_live();
    for (int count = 1; count <= 16; count += 15)
        EXPECT_FAIL(params_list(&q, &n.g, root, count), "more than this");
    EXPECT_INT(err_kind(), ERR_USAGE);
    EXPECT_INT(mem_live(), live);
    net_free(&n);
}
