/* plan_programs.c -- programs of random trees of elementwise operators have the
 * bits of separate calls: the parameters after two steps on the device under
 * test. More operators and shapes: tests/lua/recipe/programs.lua. */
#include "engine/base/rng.h"
#include "tests/support/networks.h"
#include "tests/support/op_call.h"

enum { TREES = 40, STEPS = 14, LEAVES = 5, NODES = LEAVES + STEPS };

typedef struct Tree {
    Net n;
    Rng rng;
    uint32_t next;
    int node[NODES], nodes;
} Tree;

static int roll(Tree *t, int sides)
{
    return (int)rng_below(&t->rng, t->next++, (uint32_t)sides);
}

/* An operand: often the newest node, so that trees are deep. */
static int pick(Tree *t)
{
    return roll(t, 8) ? t->node[t->nodes - 1] : t->node[roll(t, t->nodes)];
}

static int param(Tree *t, const char *name, Dims dim)
{
    return net_param(&t->n, name, dim, 2, (Init){INIT_NORMAL, 1}, true);
}

/* Two parameters of all extents; a mask of one channel, a parameter with a
 * number for each channel and one number, which are broadcast. */
static void leaves(Tree *t)
{
    static const int channels[] = {1, 3, 4, 8};
    const int c = channels[roll(t, 4)], h = 1 + roll(t, 5), w = 1 + roll(t, 40);
    const Dims all = {1, 1, h, w, c};
    t->node[t->nodes++] = net_input(&t->n, "mask", (Dims){1, 1, h, w, 1}, 2);
    t->node[t->nodes++] = param(t, "each", (Dims){1, 1, 1, 1, c});
    t->node[t->nodes++] = param(t, "one", (Dims){1, 1, 1, 1, 1});
    t->node[t->nodes++] = param(t, "a", all);
    t->node[t->nodes++] = param(t, "b", all);
}

/* One more operator of one or two nodes. */
static int grow(Tree *t)
{
    static const Op one[] = {
        OP_sigmoid, OP_tanh, OP_gelu, OP_silu,  OP_relu, OP_abs,       OP_sin,
        OP_clamp,   OP_sign, OP_erf,  OP_scale, OP_stop, OP_leaky_relu};
    static const Op two[] = {OP_add, OP_sub, OP_mul,    OP_mul, OP_max,
                             OP_min, OP_gt,  OP_select, OP_eq};
    Net *n = &t->n;
    const int x = pick(t);
    if (roll(t, 2))
        return net_op(n, one[roll(t, sizeof one / sizeof *one)], x, -1, -1);
    if (roll(t, 4)) {
        const int y = t->node[roll(t, roll(t, 3) ? LEAVES : t->nodes)];
        return net_op(n, two[roll(t, sizeof two / sizeof *two)], x, y, -1);
    }
    Attr half = op_default(OP_constant);
    half.constant.value = 0.5f;
    return net_op(n, OP_max, x, net_row(n, half, &x, 1), -1);
}

static void tree(Tree *t, uint32_t number)
{
    *t = (Tree){.rng = {.seed = 12, .stream = RNG_TEST, .sample = number}};
    net_new(&t->n);
    leaves(t);
    for (int i = 0; i < STEPS; i++) {
        const int made = grow(t);
        t->node[t->nodes++] = made;
    }
    // the root has all extents and a gradient
    const int a = t->node[4],
              y = net_op(&t->n, OP_add, t->node[t->nodes - 1], a, -1);
    t->n.root[t->n.roots++] = y;
    t->n.loss = net_op(&t->n, OP_mean, y, y, -1);
}

/* Opens a session of the tree with plain gradient descent. */
static void open_session(Tree *t, bool no_fusion)
{
    const Optim sgd = optim_default(OPTIM_sgd);
    const SessionSpec spec = {.graph = &t->n.g,
                              .root = t->n.root,
                              .roots = t->n.roots,
                              .loss = t->n.loss,
                              .device = given_device(1),
                              .threads = 2,
                              .seed = 11,
                              .optim = &sgd,
                              .no_fusion = no_fusion};
    REQUIRE(session_open(&spec, &t->n.s));
}

/* The state of the tree's parameters after two steps, which has the gradients
 * in the moments; *calls: of its plan. */
static void *train(Tree *t, bool no_fusion, Arena *mem, size_t *bytes,
                   int *calls)
{
    open_session(t, no_fusion);
    *calls = plan_calls(net_plan(&t->n, true, 1));
    for (uint32_t seed = 0; seed < 2; seed++) net_step(&t->n, 1, seed, 1, 0);
    void *state = net_state(&t->n, mem, bytes);
    session_close(t->n.s);
    t->n.s = NULL;
    return state;
}

TEST(programs_have_the_bits_of_separate_calls)
{
    int joined = 0, apart = 0;
    for (uint32_t i = 0; i < TREES; i++) {
        Tree t;
        Arena mem = {NULL};
        int calls;
        size_t bytes, same;
        tree(&t, i);
        const void *got = train(&t, false, &mem, &bytes, &calls);
        joined += calls;
        const void *want = train(&t, true, &mem, &same, &calls);
        apart += calls;
        if (bytes != same || memcmp(got, want, bytes))
            test_failed(__FILE__, __LINE__, "tree %u: bits differ", i);
        arena_release(&mem);
        net_free(&t.n);
    }
    EXPECT(joined < apart / 2); // 280 and 650 calls on the CPU
}
