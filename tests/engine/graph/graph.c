/* graph.c -- the graph: appending, names, ancestors, printing and parsing. */
#include "engine/graph/graph.h"
#include "engine/base/rng.h"
#include "tests/support/comma.h"
#include "tests/support/networks.h"
#include <stdlib.h>

static const Dims image = {1, 1, 8, 8, 2};
static const Init zero = {INIT_CONST, 0};

TEST(graph_append)
{
    Graph g = {.count = 0};
    int x, w, y, in[MAX_IN] = {-1, -1, -1, -1, -1, -1};
    Dims batch = image, kernel = {3, 1, 1, 1, 2};

    batch.n = 9;
    REQUIRE(graph_input(&g, "x", batch, 2, "a.lua:1", &x));
    REQUIRE(graph_param(&g, "w", kernel, 2, (Init){INIT_NORMAL, 2}, true, true,
                        NULL, &w));
    in[0] = x, in[1] = w;
    Attr conv = op_default(OP_conv);
    REQUIRE(graph_op(&g, &conv, in, "c", "a.lua:2", &y));
    EXPECT_INT(x, 0);
    EXPECT_INT(w, 1);
    EXPECT_INT(y, 2);
    EXPECT_INT(g.count, 3);
    const Node *n = g.node;
    EXPECT(n[0].kind == NODE_INPUT && n[1].kind == NODE_PARAM &&
           n[2].kind == NODE_OP);
    EXPECT_INT(n[0].y.dim.n, 1); // a graph holds one sample
    EXPECT_TEXT(n[0].name, "x");
    EXPECT_TEXT(n[0].where, "a.lua:1");
    EXPECT_TEXT(n[1].where, "");
    EXPECT(n[1].trained && n[1].decayed && n[1].init.kind == INIT_NORMAL);
    EXPECT(n[0].batched && !n[1].batched && n[2].batched);
    EXPECT_INT(n[2].y.dim.c, 3);
    EXPECT_INT(n[2].in[0], 0);
    EXPECT_INT(n[2].in[2], -1);
    EXPECT_TEXT(n[2].name, "c");
    EXPECT_INT(graph_find(&g, "w"), 1);
    EXPECT_INT(graph_find(&g, "c"), -1); // labels are not looked up

    // the same label again is valid
    EXPECT(graph_op(&g, &conv, in, "c", "", &y));
    graph_free(&g);
    EXPECT_INT(g.count, 0);
    graph_free(&g);
}

TEST(graph_refuses)
{
    Graph g = {.count = 0};
    int x, out = 77, in[MAX_IN] = {0, -1, -1, -1, -1, -1};
    char longest[300];

    memset(longest, 'n', sizeof longest);
    longest[sizeof longest - 1] = 0;
    REQUIRE(graph_input(&g, "x", image, 2, "a.lua:1", &x));
    EXPECT_FAIL(graph_input(&g, "x", image, 2, "", &out),
                "input \"x\" exists already, made at a.lua:1");
    EXPECT_FAIL(graph_param(&g, "x", image, 2, zero, true, true, "", &out),
                "parameter \"x\" exists already");
    EXPECT_INT(err_kind(), ERR_USAGE);
    EXPECT_FAIL(graph_input(&g, "", image, 2, "", &out), "1 to 256");
    EXPECT_FAIL(graph_input(&g, longest, image, 2, "", &out), "1 to 256");
    longest[256] = 0;
    EXPECT(graph_input(&g, longest, image, 2, "", &out));
    const char *bad[] = {"a b", "a/b", "a\n", "\xe9t\xe9", "a\"", "a,b"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        EXPECT_FAIL(graph_input(&g, bad[i], image, 2, "", &out),
                    "letters, digits");
    EXPECT_FAIL(graph_input(&g, "y", (Dims){1, 1, 0, 8, 2}, 2, "", &out),
                "every extent must be 1 or more");
    EXPECT_FAIL(graph_input(&g, "y", (Dims){1, 1, 8, 8, 2}, 1, "", &out),
                "more axes than 1x2x8 (N,C,W)");
    EXPECT_FAIL(graph_param(&g, "y", (Dims){2, 1, 1, 1, 1}, RANK_VECTOR, zero,
                            true, true, "", &out),
                "more axes");
    Dims huge = {1 << 30, 1, 1 << 30, 1 << 30, 1};
    EXPECT_FAIL(graph_param(&g, "y", huge, 2, zero, true, true, "", &out),
                "addressable");
    Attr conv = op_default(OP_conv), relu = op_default(OP_relu);
    EXPECT_FAIL(graph_op(&g, &conv, in, "", "", &out), "do not fit a weight");
    EXPECT_FAIL(graph_op(&g, &relu, in, "a b", "", &out), "letters, digits");
    in[0] = -1;
    EXPECT_FAIL(graph_op(&g, &relu, in, "", "", &out), "operand 1 is missing");
    in[0] = x;
    Attr drop = op_default(OP_dropout);
    drop.dropout.p = NAN;
    EXPECT_FAIL(graph_op(&g, &drop, in, "", "", &out), "p is not finite");
    EXPECT_INT(g.count, 2);
    graph_free(&g);
}

/* Sets attribute i of `a` to v, for any type. */
static void set_attr(Attr *a, int i, double v)
{
    float f = (float)v;
    if (op_info[a->op].attr[i].kind == 'f')
        memcpy(&a->word[1 + i], &f, 4);
    else
        a->word[1 + i] = (int32_t)v;
}

/* Every attribute of every operator: its default and both ends of its range
 * pass, values beyond them are refused by name. Without operands, valid
 * attributes make graph_op fail one step later. */
TEST(graph_attributes_have_ranges)
{
    Graph g = {.count = 0};
    int out, in[MAX_IN] = {-1, -1, -1, -1, -1, -1}, limits = 0;

    for (int op = 0; op < OP_COUNT; op++) {
        const OpInfo *info = &op_info[op];
        for (int i = 0; i < info->attrs; i++) {
            const RangeInfo *r = &range_info[info->attr[i].range];
            char name[64];
            Attr a = op_default((Op)op);
            EXPECT_FAIL(graph_op(&g, &a, in, "", "", &out), "operand 1");
            snprintf(name, sizeof name, "%s: %s is ", info->name,
                     info->attr[i].name);
            for (int side = 0; side < 2; side++) {
                double end = side ? r->most : r->least;
                if (fabs(end) == DBL_MAX) continue;
                set_attr(&a, i, end);
                EXPECT_FAIL(graph_op(&g, &a, in, "", "", &out), "operand 1");
                set_attr(&a, i, side ? end + 1 : end - 1);
                EXPECT_FAIL(graph_op(&g, &a, in, "", "", &out), name);
                EXPECT(strstr(err_text(), r->words));
                EXPECT_INT(err_kind(), ERR_USAGE);
                limits++;
            }
        }
    }

    EXPECT(limits > 30);
    Attr dice = op_default(OP_bce_dice), leaky = op_default(OP_leaky_relu);
    dice.bce_dice.eps = -1;
    EXPECT_FAIL(graph_op(&g, &dice, in, "", "", &out),
                "bce_dice: eps is -1, want a number of 0 or more");

    // the minimum is just above 0
    leaky.leaky_relu.slope = 0;
    EXPECT_FAIL(graph_op(&g, &leaky, in, "", "", &out),
                "leaky_relu: slope is 0, want a number above 0");
    graph_free(&g);
}

/* Operands that batch_norm writes in training must have no other use. */
TEST(graph_running_statistics_are_parameters)
{
    Graph g = {.count = 0};
    int x, v, value, mean, var, gamma, out;
    Dims image_of_4 = {1, 1, 1, 1, 4};

    REQUIRE(graph_input(&g, "x", image_of_4, 0, "", &x));
    REQUIRE(graph_input(&g, "v", image_of_4, 0, "", &v));
    REQUIRE(graph_param(&g, "mean", image_of_4, RANK_VECTOR, zero, false, false,
                        "", &mean));
    REQUIRE(graph_param(&g, "var", image_of_4, RANK_VECTOR, zero, false, false,
                        "", &var));
    REQUIRE(graph_param(&g, "gamma", image_of_4, RANK_VECTOR, zero, true, true,
                        "", &gamma));
    Attr relu = op_default(OP_relu), norm = op_default(OP_batch_norm);
    int in[MAX_IN] = {gamma, -1, -1, -1, -1, -1};
    REQUIRE(graph_op(&g, &relu, in, "", "", &value));
    const int running[][2] = {{v, var}, {mean, v}, {value, var}, {mean, gamma}};

    for (int i = 0; i < 4; i++) {
        int want[MAX_IN] = {x, -1, -1, running[i][0], running[i][1], -1};
        EXPECT_FAIL(graph_op(&g, &norm, want, "", "", &out),
                    i % 2 ? "running variance must be a parameter"
                          : "running mean must be a parameter");
    }

    int good[MAX_IN] = {x, -1, -1, mean, var, -1};
    EXPECT(graph_op(&g, &norm, good, "", "", &out));
    graph_free(&g);
}

TEST(graph_of_too_many_nodes)
{
    Graph g = {.count = 0};
    int x, in[MAX_IN] = {-1, -1, -1, -1, -1, -1}, count = 1;
    Attr relu = op_default(OP_relu);
    REQUIRE(graph_input(&g, "x", image, 2, "", &x));
    in[0] = x;
    while (count < 1 << 20 && graph_op(&g, &relu, in, "", "", &in[0])) count++;
    EXPECT_INT(count, 65536);
    EXPECT_INT(g.count, count);
    EXPECT(strstr(err_text(), "more than 65536 nodes"));
    graph_free(&g);
}

TEST(graph_ancestors_of_roots)
{
    Net n;
    bool used[8];
    net_new(&n);
    int x = net_input(&n, "x", image, 2), y = net_input(&n, "y", image, 2);
    int a = net_relu(&n, x), b = net_relu(&n, y), c = net_relu(&n, a);
    int d = net_op(&n, OP_add, c, x, -1);
    graph_ancestors(&n.g, &d, 1, used);
    EXPECT(used[x] && used[a] && used[c] && used[d]);
    EXPECT(!used[y] && !used[b]);
    graph_ancestors(&n.g, (int[]){b, a}, 2, used);
    EXPECT(used[x] && used[a] && used[y] && used[b] && !used[c] && !used[d]);
    graph_ancestors(&n.g, NULL, 0, used);
    for (int i = 0; i < n.g.count; i++) EXPECT(!used[i]);
    net_free(&n);
}

/* Prints g, parses the text and prints it again: the same text. */
static char *there_and_back(const Graph *g, const int *root, int roots,
                            Arena *mem)
{
    Graph back = {.count = 0};
    int at[64], count = 0;
    char *one, *two;
    REQUIRE(graph_print(g, root, roots, mem, &one));
    REQUIRE(graph_parse(one, &back, at, &count, 64));
    EXPECT_INT(count, roots);
    REQUIRE(graph_print(&back, at, count, mem, &two));
    EXPECT_TEXT(two, one);
    graph_free(&back);
    return one;
}

TEST(graph_text_of_a_unet)
{
    Net n;
    Arena mem = {NULL};
    net_small(&n);
    int dead = net_relu(&n, n.root[0]);
    char *all = there_and_back(&n.g, (int[]){n.loss, n.root[0]}, 2, &mem);
    EXPECT(strstr(all, "\nbce n"));
    EXPECT(strstr(all, "\nparam p1.weight 4 1 3 3 2 2 1 1\n"));
    EXPECT(strstr(all, " ph0=1 ph1=1"));
    EXPECT(!strstr(all, " sh=1")); // defaults are omitted

    // the output alone needs no target, no loss and no dead node
    char *one = there_and_back(&n.g, n.root, 1, &mem);
    EXPECT(!strstr(one, "target") && !strstr(one, "bce"));
    EXPECT(!strstr(one, n.g.node[dead].name));

    // parameters, labels and structure equal those of the graph
    Graph back = {.count = 0};
    int root[1], roots;
    REQUIRE(graph_parse(one, &back, root, &roots, 1));
    EXPECT_INT(back.count, n.root[0]); // one node less: the target
    int w = graph_find(&back, "p3.weight"), v = graph_find(&n.g, "p3.weight");
    REQUIRE(w >= 0);
    EXPECT(dims_equal(back.node[w].y.dim, n.g.node[v].y.dim));
    EXPECT_TEXT(back.node[root[0]].name, n.g.node[n.root[0]].name);
    EXPECT(back.node[root[0]].batched);
    graph_free(&back);
    arena_release(&mem);
    net_free(&n);
}

/* Every attribute of every operator is restored with the same bits. */
TEST(graph_text_of_attributes)
{
    static const float values[] = {1e-5f,           0.1f,   -3.4028235e38f,
                                   1.17549435e-38f, 1e-45f, 16777216,
                                   0.333333343f,    0,      7e30f};
    Net n;
    Arena mem = {NULL};

    net_new(&n);
    int x = net_input(&n, "x", image, 2), roots[64], count = 0;

    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        Attr a = op_default(OP_scale);
        a.scale.mul = values[i];
        a.scale.add = -values[i];
        roots[count++] = net_row(&n, a, &x, 1);
    }

    Attr slice = op_default(OP_slice);
    slice.slice.h0 = 1, slice.slice.h = 3, slice.slice.c0 = 1;
    roots[count++] = net_row(&n, slice, &x, 1);
    Attr ce = op_default(OP_cross_entropy);
    ce.cross_entropy.ignore = INT32_MIN;
    int t = net_input(&n, "t", (Dims){1, 1, 8, 8, 1}, 2);
    roots[count++] = net_row(&n, ce, (int[]){x, t}, 2);
    char *text = there_and_back(&n.g, roots, count, &mem);
    Graph back = {.count = 0};
    int at[64], found;
    REQUIRE(graph_parse(text, &back, at, &found, 64));
    for (int i = 0; i < count; i++)
        EXPECT(!memcmp(&back.node[at[i]].attr, &n.g.node[roots[i]].attr,
                       sizeof(Attr)));
    graph_free(&back);
    arena_release(&mem);
    net_free(&n);
}

/* More roots than words in an operator's line. */
TEST(graph_text_of_many_roots)
{
    Net n;
    Arena mem = {NULL};
    Graph back = {.count = 0};
    int roots[40], at[40], count;

    net_new(&n);
    int x = net_input(&n, "x", image, 2);
    for (int i = 0; i < 40; i++) roots[i] = net_relu(&n, x);
    char *text = there_and_back(&n.g, roots, 40, &mem);
    EXPECT_FAIL(graph_parse(text, &back, at, &count, 39), "more than 39");
    graph_free(&back);
    arena_release(&mem);
    net_free(&n);
}

/* An embedding program may have set any locale. */
TEST(graph_text_in_another_locale)
{
    Graph g = {.count = 0};
    int root, roots;
    if (!comma_set())
        SKIP("no decimal comma: locales is not installed (sh vendor/fetch ci)");
    EXPECT_TEXT(localeconv()->decimal_point, ",");
    bool ok = graph_parse("segengine graph 1\ninput x 1 1 1 1 1 0 0 0\n"
                          "scale s 0 mul=0.25 add=1e-05\nroot 1\n",
                          &g, &root, &roots, 1);
    Arena mem = {NULL};
    char *text = NULL;
    bool printed = ok && graph_print(&g, &root, 1, &mem, &text);
    setlocale(LC_NUMERIC, "C");
    REQUIRE(ok && printed);
    EXPECT(strstr(text, "mul=0.25 add=9.99999975e-06\n"));
    arena_release(&mem);
    EXPECT_NEAR(g.node[1].attr.scale.mul, 0.25, 0);
    EXPECT_NEAR(g.node[1].attr.scale.add, 1e-5f, 0);
    graph_free(&g);
}

TEST(graph_text_refused)
{
#define HEAD "segengine graph 1\n"
#define X    "input x 1 1 8 8 2 2 0 0\n"
    static const char *const rows[][2] = {
        {"", "begins with \"\""},
        {"hello\nworld", "begins with \"hello\", want \"segengine graph 1\""},
        {"segengine graph 2\n" X "root 0\n", "graph 2"},
        {HEAD, "has no root"},
        {HEAD X, "has no root"},
        {HEAD X "root \n", "has no root"},
        {HEAD X "root 1\n", "line 3: root \"1\" is not an earlier line"},
        {HEAD X "root -1\n", "root \"-1\""},
        {HEAD X "root 0 0 0 0 0\n", "more than 4 roots"},
        {HEAD X "root 0x\n", "root \"0x\""},
        {HEAD X "root 99999999999999999999\n", "root \"999"},
        {HEAD X "root 0\nroot 0\n", "continues after line 3"},
        {HEAD X X "root 0\n", "line 3: input \"x\" exists already"},
        {HEAD "input x 1 1 8 8 2 2 0\nroot 0\n", "line 2: 9 words, want 10"},
        {HEAD "input x 1 1 8 8 2 2 0 0 0\nroot 0\n", "11 words, want 10"},
        {HEAD "input x 1 1 8 8 2 1 0 0\nroot 0\n", "more axes"},
        {HEAD "input x 1 1 8 8 2 4 0 0\nroot 0\n", "rank 4"},
        {HEAD "input x 1 1 8 8 2 -3 0 0\nroot 0\n", "\"-3\" is not"},
        {HEAD "input x 1 1 8 8 2147483648 2 0 0\nroot 0\n", "not an extent"},
        {HEAD "input x 1 1 8 a 2 2 0 0\nroot 0\n", "\"a\" is not an extent"},
        {HEAD "input x 1 1 8 0 2 2 0 0\nroot 0\n", "every extent"},
        {HEAD "param w 1 1 8 8 2 2 2 0\nroot 0\n", "0 or 1"},
        {HEAD "param w 1 1 8 8 2 2 0 -1\nroot 0\n", "0 or 1"},
        {HEAD "input a/b 1 1 8 8 2 2 0 0\nroot 0\n", "letters, digits"},
        {HEAD X "nonsense y 0\nroot 0\n", "operator \"nonsense\""},
        {HEAD X "relu\nroot 0\n", "1 words"},
        {HEAD X "relu y\nroot 0\n", "relu without operands"},
        {HEAD X "relu y 1\nroot 0\n", "operand \"1\" is not an earlier"},
        {HEAD X "relu y -2\nroot 0\n", "operand \"-2\""},
        {HEAD X "relu y -1\nroot 0\n", "operand 1 is missing"},
        {HEAD X "relu y 0,0\nroot 0\n", "operands \"0,0\" cannot"},
        {HEAD X "relu y 0;\nroot 0\n", "operands \"0;\" cannot"},
        {HEAD X "add y 0\nroot 0\n", "operand 2 is missing"},
        {HEAD X "linear y 0,0,-1\nroot 0\n", "do not fit a weight"},
        {HEAD X "scale y 0 mul\nroot 0\n", "attribute \"mul\""},
        {HEAD X "scale y 0 mul=\nroot 0\n", "attribute \"mul=\""},
        {HEAD X "scale y 0 mu=1\nroot 0\n", "attribute \"mu=1\""},
        {HEAD X "scale y 0 mull=1\nroot 0\n", "attribute \"mull=1\""},
        {HEAD X "scale y 0 mul=nan\nroot 0\n", "attribute \"mul=nan\""},
        {HEAD X "scale y 0 mul=inf\nroot 0\n", "attribute \"mul=inf\""},
        {HEAD X "scale y 0 mul=1e39\nroot 0\n", "mul is not finite"},
        {HEAD X "scale y 0 mul=1..2\nroot 0\n", "attribute \"mul=1..2\""},
        {HEAD X "scale y 0 mul=1e\nroot 0\n", "attribute \"mul=1e\""},
        {HEAD X "scale y 0 mul=1e999\nroot 0\n", "attribute \"mul=1e999\""},
        {HEAD X "scale y 0 mul=0x1\nroot 0\n", "attribute \"mul=0x1\""},
        {HEAD X "slice y 0 h=1.5\nroot 0\n", "attribute \"h=1.5\""},
        {HEAD X "slice y 0 h=2147483648\nroot 0\n", "attribute \"h=2147"},
        {HEAD X "slice y 0 h=9\nroot 0\n", "slice: h from 0, length 9"},
        {HEAD X "slice y 0 a a a a a a a a a a a a a a a a a\nroot 0\n",
         "20 words, want 2 to 19"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Graph g = {.count = 0};
        int root[4], roots;
        EXPECT_FAIL(graph_parse(rows[i][0], &g, root, &roots, 4), rows[i][1]);
        EXPECT(!strchr(err_text(), '\n'));
        graph_free(&g);
    }
}

/* Plans a damaged network: sizes may be absurd, then there must be a reason. */
static void planned(const Graph *g, const int *root, int roots)
{
    PlanInput in[8];
    Params q;
    Plan *p = NULL;
    int inputs = 0;

    for (int i = 0; i < g->count && inputs < 8; i++)
        if (g->node[i].kind == NODE_INPUT)
            in[inputs++] = (PlanInput){i, g->node[i].y.dim};
    if (!params_list(&q, g, root, roots)) return;
    PlanSpec spec = {.graph = g,
                     .params = &q,
                     .be = &backend_cpu,
                     .threads = 4,
                     .root = root,
                     .roots = roots,
                     .loss = roots > 1 ? root[0] : -1,
                     .train = roots > 1,
                     .input = in,
                     .inputs = inputs};
    if (plan_build(&spec, &p)) EXPECT(plan_bytes(p) > 0);
    plan_free(p);
    params_free(&q);
}

/* A damaged text is refused, or is a network that prints. */
static bool survives(const char *text)
{
    Graph g = {.count = 0};
    Arena mem = {NULL};
    int root[8], roots;
    bool ok = graph_parse(text, &g, root, &roots, 8);

    if (ok) {
        there_and_back(&g, root, roots, &mem);
        planned(&g, root, roots);
    } else
        EXPECT(*err_text() && !strchr(err_text(), '\n'));

    arena_release(&mem);
    graph_free(&g);
    return ok;
}

/* Replacements for a number, a word or a line. */
static const char *const poison[] = {
    "-1",
    "0",
    "1",
    "2",
    "7",
    "2147483647",
    "2147483648",
    "-2147483648",
    "99999999999999999999",
    "1e9",
    "x",
    "",
    "0,0,0,0,0,0,0",
    "-1,-1,-1",
    "relu",
    "conv",
    "root",
    "param",
    "%s%n",
    "=",
    "groups=0",
    "sh=0",
    "kh=0",
};

TEST(graph_text_damaged)
{
    Net n;
    Arena mem = {NULL};
    char *text;

    net_small(&n);
    REQUIRE(graph_print(&n.g, (int[]){n.loss, n.root[0]}, 2, &mem, &text));
    size_t size = strlen(text);
    char *copy = arena_alloc(&mem, 2 * size + 64);
    int accepted = 0;
    enum { CASES = 4000 };

    for (uint32_t c = 0; c < CASES; c++) {
        Rng r = {.seed = 5, .stream = RNG_TEST, .sample = c};
        size_t at = rng_below(&r, 0, (uint32_t)size);
        const char *with =
            poison[rng_below(&r, 1, sizeof poison / sizeof *poison)];
        size_t from = at, to;
        switch (c % 4) {
        case 0: // one byte
            memcpy(copy, text, size + 1);
            copy[at] = (char)(1 + rng_below(&r, 2, 255));
            break;
        case 1: // truncated, or a piece lost
            to = at + rng_below(&r, 2, (uint32_t)(size - at) + 1);
            snprintf(copy, 2 * size, "%.*s%s", (int)at, text, text + to);
            break;
        case 2: // a word
            while (from > 18 && !strchr(" \n,=", text[from - 1])) from--;
            to = from + strcspn(text + from, " \n,=");
            snprintf(copy, 2 * size + 64, "%.*s%s%s", (int)from, text, with,
                     text + to);
            break;
        default: // a line twice
            while (from > 18 && text[from - 1] != '\n') from--;
            to = from + strcspn(text + from, "\n");
            snprintf(copy, 2 * size, "%.*s%.*s\n%s", (int)from, text,
                     (int)(to - from), text + from, text + from);
            break;
        }
        accepted += survives(copy);
    }

    // both outcomes must occur, otherwise little was tested
    EXPECT(accepted > CASES / 50 && accepted < CASES);
    arena_release(&mem);
    net_free(&n);
}

/* Appending moves the node array; an existing plan stays valid. */
TEST(graph_grows_under_a_plan)
{
    Net n;
    float before[64], after[64];
    net_small(&n);
    net_open(&n, "cpu", 1, NULL);
    Plan *p = net_plan(&n, false, 1);
    net_feed(&n, p, 1);
    REQUIRE(session_run(n.s, p) && session_read(n.s, p, n.root[0], before));
    for (int i = 0; i < 2000; i++) net_relu(&n, n.root[0]);
    net_feed(&n, p, 1);
    REQUIRE(session_run(n.s, p) && session_read(n.s, p, n.root[0], after));
    EXPECT(!memcmp(before, after, sizeof before));
    EXPECT(plan_value(p, n.root[0]) && !plan_value(p, n.g.count - 1));
    Plan *q = net_plan(&n, false, 1);
    EXPECT(p == q);
    net_free(&n);
}

/* Any allocation may fail; the graph stays valid and nothing leaks. */
TEST(graph_without_memory)
{
    long live = mem_live();
    int failed = 0;

    for (long k = 0; k < 400; k++) {
        Graph g = {.count = 0};
        Arena mem = {NULL};
        int x = -1, y = -1, in[MAX_IN] = {-1, -1, -1, -1, -1, -1};
        Attr relu = op_default(OP_relu);
        char *text, name[16];
        mem_fail_after(k, k % 2);
        bool ok = graph_input(&g, "x", image, 2, "a.lua:1", &x);
        for (int i = 0; ok && i < 300; i++) {
            snprintf(name, sizeof name, "relu%d", i);
            in[0] = i ? y : x;
            ok = graph_op(&g, &relu, in, name, "a.lua:2", &y);
        }
        int root[1], roots;
        Graph back = {.count = 0};
        ok = ok && graph_print(&g, &y, 1, &mem, &text) &&
             graph_parse(text, &back, root, &roots, 1);
        mem_fail_after(-1, false);
        if (!ok) EXPECT_FAIL(ok, "no memory");
        failed += !ok;
        for (int i = 0; i < g.count; i++)
            EXPECT(g.node[i].name && g.node[i].where);
        graph_free(&back);
        graph_free(&g);
        arena_release(&mem);
        EXPECT_INT(mem_live(), live);
    }
    EXPECT(failed > 10 && failed < 400);
}
