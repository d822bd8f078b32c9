/* direct.c -- who is told that convolutions sum as they stand: every call of a
 * plan, from PlanSpec, SessionSpec or a bundle. What Winograd's sums are is not
 * asked here. */
#include "plan_inside.h"
#include "rig.h"
#include "segengine_inside.h"

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
    Rig r;
    net_small(&n);
    rig_open(&r, &n, &backend_cpu, 1, 1);
    for (int direct = 0; direct < 2; direct++) {
        r.spec.direct = direct;
        r.spec.budget = 0;
        rig_plan(&r, true);
        int trained = convolutions(r.plan, direct);
        EXPECT(trained > 4);
        // what runs once more on the way back is to have the same bits
        r.spec.budget = 1, r.spec.least = true;
        rig_plan(&r, true);
        EXPECT(convolutions(r.plan, direct) > trained);
    }
    rig_close(&r);
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
                            .direct = direct};
        REQUIRE(session_open(&spec, &n.s));
        for (int train = 0; train < 2; train++) {
            REQUIRE(session_plan(n.s, train, input, inputs, &p));
            EXPECT(convolutions(p, direct) > 4);
        }
        net_free(&n);
    }
}

/* A bundle whose row `run` is this. */
static bool read_run(const char *run, bool *direct)
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
    if (ok) *direct = b->direct;
    arena_release(&mem);
    return ok;
}

TEST(direct_of_a_bundle)
{
    bool direct;
    REQUIRE(read_run("\"batch\": 2", &direct));
    EXPECT(!direct);
    REQUIRE(read_run("\"winograd\": true", &direct));
    EXPECT(!direct);
    REQUIRE(read_run("\"winograd\": false", &direct));
    EXPECT(direct);
    EXPECT_FAIL(read_run("\"winograd\": 0", &direct),
                "run: winograd is a number, want true or false");
    EXPECT_FAIL(read_run("\"winograd\": null", &direct), "want true or false");
}
