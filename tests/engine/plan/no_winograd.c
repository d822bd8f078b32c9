/* no_winograd.c -- who is told that convolutions sum as they stand: every call
 * of a plan or those of some layers, from PlanSpec, SessionSpec or a bundle.
 * What Winograd's sums are is not asked here. */
#include "engine/plan/no_winograd.h"
#include "engine/api/segengine_inside.h"
#include "engine/plan/plan_inside.h"
#include "tests/support/plan_rig.h"

/* Convolutions among the calls; each is told `direct`, or each is not. */
static int convolutions(const Plan *p, bool direct)
{
    int count = 0;
    for (int i = 0; i < p->calls; i++) {
        const Call *c = &p->call[i];
        if (!c->attr || call_op(c) != OP_conv) continue;
        EXPECT_INT(c->direct, direct);
        count++;
    }
    return count;
}

TEST(direct_reaches_every_call)
{
    Net n;
    PlanRig r;
    net_small(&n);
    plan_rig_open(&r, &n, &backend_cpu, 1, 1);
    for (int direct = 0; direct < 2; direct++) {
        r.spec.direct = direct ? DIRECT_ALL : NULL;
        r.spec.budget = 0;
        plan_rig_plan(&r, true);
        int trained = convolutions(r.plan, direct);
        EXPECT(trained > 4);
        // what runs once more on the way back is to have the same bits
        r.spec.budget = 1, r.spec.least = true;
        plan_rig_plan(&r, true);
        EXPECT(convolutions(r.plan, direct) > trained);
    }
    plan_rig_close(&r);
    net_free(&n);
}

TEST(direct_of_a_session)
{
    for (int direct = 0; direct < 2; direct++) {
        Net n;
        PlanInput input[8];
        Plan *p;
        Optim optim = optim_default(OPTIM_sgd);
        net_small(&n);
        int inputs = net_extents(&n, 1, input);
        SessionSpec spec = {.graph = &n.g,
                            .root = n.root,
                            .roots = n.roots,
                            .loss = n.loss,
                            .device = "cpu",
                            .threads = 1,
                            .optim = &optim,
                            .direct = direct ? DIRECT_ALL : NULL};
        REQUIRE(session_open(&spec, &n.s));
        for (int train = 0; train < 2; train++) {
            REQUIRE(session_plan(n.s, train, input, inputs, &p));
            EXPECT(convolutions(p, direct) > 4);
        }
        net_free(&n);
    }
}

/* A bundle whose row `run` is this. */
static bool read_run(const char *run, char direct[32])
{
    char text[400];
    Arena mem = {NULL};
    Bundle *b;
    snprintf(text, sizeof text,
             "{\"version\": 1, \"network\": \"n\", \"inputs\": [\"image\"], "
             "\"output\": \"mask\", \"read\": {\"kind\": \"nifti\", "
             "\"options\": {}}, \"predict\": {}, \"prepare\": [], "
             "\"run\": {%s}}",
             run);
    bool ok = bundle_read(text, &mem, &b);
    if (ok) snprintf(direct, 32, "%s", b->direct ? b->direct : "none");
    arena_release(&mem);
    return ok;
}

TEST(direct_of_a_bundle)
{
    static const struct {
        const char *run, *direct;
    } row[] = {{"\"batch\": 2", "none"},
               {"\"winograd\": true", "none"},
               {"\"winograd\": false", DIRECT_ALL},
               {"\"direct\": \"a,b\"", "a,b"},
               {"\"direct\": \"\"", "none"},
               {"\"winograd\": false, \"direct\": \"a\"", DIRECT_ALL}};
    char direct[32];
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        REQUIRE(read_run(row[i].run, direct));
        EXPECT_TEXT(direct, row[i].direct);
    }
    EXPECT_FAIL(read_run("\"winograd\": 0", direct),
                "run: winograd is a number, want true or false");
    EXPECT_FAIL(read_run("\"winograd\": null", direct), "want true or false");
    EXPECT_FAIL(read_run("\"direct\": true", direct), "direct");
}

TEST(direct_labels_in_a_text)
{
    EXPECT(!direct_has(NULL, "a") && !direct_has("", "a"));
    EXPECT(direct_has(DIRECT_ALL, "a") && direct_has(DIRECT_ALL, ""));
    EXPECT(direct_has("a", "a") && direct_has("b,a", "a"));
    EXPECT(direct_has("a,b", "a") && direct_has("b,a,c", "a"));
    EXPECT(direct_has("a, b", "b") && !direct_has("a, b", " b"));
    EXPECT(!direct_has("ab", "a") && !direct_has("a", "ab"));
    EXPECT(!direct_has("a.b,b", "a") && !direct_has("a,b", ""));
}

TEST(direct_labels_of_a_network)
{
    Net n;
    PlanRig r;
    net_new(&n);
    int x = net_input(&n, "x", (Dims){1, 1, 12, 12, 16}, 2);
    int a = net_conv(&n, x, 16, 3), b = net_conv(&n, net_relu(&n, a), 16, 3);
    n.root[n.roots++] = b;
    const char *one = n.g.node[a].name, *two = n.g.node[b].name;
    char text[64];
    EXPECT(*one && *two && strcmp(one, two));
    plan_rig_open(&r, &n, &backend_cpu, 1, 1);
    for (int which = 0; which < 4; which++) {
        const PlanRow *row;
        snprintf(text, sizeof text, "%s%s%s", which & 1 ? one : "",
                 which == 3 ? "," : "", which & 2 ? two : "");
        EXPECT(direct_valid(text, &n.g));
        r.spec.direct = text;
        plan_rig_plan(&r, false);
        int rows = plan_rows(r.plan, &row), told = 0, blurred = 0;
        for (int i = 0; i < rows; i++) {
            if (row[i].node == a) blurred |= row[i].approximate ? 0 : 1;
            if (row[i].node == b) blurred |= row[i].approximate ? 0 : 2;
        }
        for (int i = 0; i < r.plan->calls; i++) told += r.plan->call[i].direct;
        EXPECT_INT(blurred, which);
        EXPECT_INT(told, (which & 1) + (which >> 1));
    }
    EXPECT(direct_valid(NULL, &n.g) && direct_valid(DIRECT_ALL, &n.g));
    EXPECT_FAIL(
        direct_valid("nobody", &n.g),
        "direct: no convolution is called \"nobody\"; `plan` shows what "
        "layers are called");
    snprintf(text, sizeof text, "%s,,%s", one, two);
    EXPECT_FAIL(direct_valid(text, &n.g), "is called \"\"");
    snprintf(text, sizeof text, "%s.weight", one);
    EXPECT_FAIL(direct_valid(text, &n.g), ".weight\"");
    plan_rig_close(&r);
    net_free(&n);
}
