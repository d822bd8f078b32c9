/* no_winograd.c -- Call.no_winograd reaches every call of a plan, from
 * PlanSpec, SessionSpec or a bundle. tests/cpu/winograd.c tests the kernels
 * with it. */
#include "engine/api/segengine_inside.h"
#include "engine/plan/plan_inside.h"
#include "tests/support/plan_rig.h"

/* Returns the number of convolutions among the calls, all with this flag. */
static int convolutions(const Plan *p, bool no_winograd)
{
    int count = 0;
    for (int i = 0; i < p->calls; i++) {
        const Call *c = &p->call[i];
        if (!c->attr || call_op(c) != OP_conv) continue;
        EXPECT_INT(c->no_winograd, no_winograd);
        count++;
    }
    return count;
}

TEST(no_winograd_reaches_every_call)
{
    Net n;
    PlanRig r;
    net_small(&n);
    plan_rig_open(&r, &n, &backend_cpu, 1, 1);

    for (int no = 0; no < 2; no++) {
        r.spec.no_winograd = no;
        r.spec.budget = 0;
        plan_rig_plan(&r, true);
        int trained = convolutions(r.plan, no);
        EXPECT(trained > 4);
        // a recomputed value must have the same bits
        r.spec.budget = 1, r.spec.least = true;
        plan_rig_plan(&r, true);
        EXPECT(convolutions(r.plan, no) > trained);
    }

    plan_rig_close(&r);
    net_free(&n);
}

TEST(no_winograd_of_a_session)
{
    for (int no = 0; no < 2; no++) {
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
                            .no_winograd = no};
        REQUIRE(session_open(&spec, &n.s));
        for (int train = 0; train < 2; train++) {
            REQUIRE(session_plan(n.s, train, input, inputs, &p));
            EXPECT(convolutions(p, no) > 4);
        }
        net_free(&n);
    }
}

TEST(no_winograd_in_the_rows_of_a_plan)
{
    Net n;
    PlanRig r;
    net_new(&n);
    int x = net_input(&n, "x", (Dims){1, 1, 12, 12, 16}, 2);
    int a = net_conv(&n, x, 16, 3), b = net_conv(&n, net_relu(&n, a), 16, 3);
    n.root[n.roots++] = b;
    plan_rig_open(&r, &n, &backend_cpu, 1, 1);

    for (int no = 0; no < 2; no++) {
        const PlanRow *row;
        r.spec.no_winograd = no;
        plan_rig_plan(&r, false);
        int rows = plan_rows(r.plan, &row), blurred = 0;
        for (int i = 0; i < rows; i++) blurred += row[i].approximate;
        EXPECT_INT(blurred, no ? 0 : 2);
    }

    plan_rig_close(&r);
    net_free(&n);
}

/* Reads a bundle with this `run` entry. */
static bool read_run(const char *run, bool *no_winograd)
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
    if (ok) *no_winograd = b->no_winograd;
    arena_release(&mem);
    return ok;
}

TEST(no_winograd_of_a_bundle)
{
    static const struct {
        const char *run;
        bool no;
    } row[] = {{"\"batch\": 2", false},
               {"\"winograd\": true", false},
               {"\"winograd\": false", true},
               // of version 0.1: layers without Winograd
               {"\"direct\": \"a,b\"", false},
               {"\"winograd\": false, \"direct\": \"a\"", true}};
    bool no;
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        REQUIRE(read_run(row[i].run, &no));
        EXPECT_INT(no, row[i].no);
    }
    EXPECT_FAIL(read_run("\"winograd\": 0", &no),
                "run: winograd is a number, want true or false");
    EXPECT_FAIL(read_run("\"winograd\": null", &no), "want true or false");
    EXPECT_FAIL(read_run("\"direct\": true", &no), "direct");
}
