/* launch_log.c -- the log of a dry run. */
#include "engine/backend/launch_log.h"
#include "tests/support/networks.h"
#include "tests/test.h"

/* Without an open log nothing is kept and nothing is lost. */
TEST(launch_log_into_nothing)
{
    long live = mem_live();
    launch_log_into(NULL);
    launch_log_part((LaunchPart){.what = "x"});
    launch_log_add((Launch){.name = "x"});
    EXPECT(!launch_log_here());
    EXPECT_INT(mem_live(), live);
}

TEST(launch_log_keeps_order_and_parts)
{
    LaunchLog r = {0};
    launch_log_into(&r);
    launch_log_add((Launch){.name = "first"}); // before any part
    for (int i = 0; i < 600; i++) {
        launch_log_part((LaunchPart){.node = i});
        launch_log_add((Launch){.name = "a", .grid = {(unsigned)i, 1, 1}});
        launch_log_add((Launch){.name = "b", .bytes = (size_t)i});
    }

    launch_log_into(NULL);
    EXPECT(!r.failed);
    EXPECT_INT(r.parts, 601);
    EXPECT_INT(r.launches, 1201);
    EXPECT_TEXT(r.part[0].what, "step");
    EXPECT_INT(r.part[0].node, LAUNCH_NO_NODE);
    EXPECT_INT(r.launch[0].part, 0);

    for (int i = 0; i < 600; i++) {
        EXPECT_INT(r.part[i + 1].node, i);
        EXPECT_INT(r.launch[2 * i + 1].part, i + 1);
        EXPECT_INT(r.launch[2 * i + 1].grid[0], i);
        EXPECT_INT(r.launch[2 * i + 2].bytes, i);
    }

    launch_log_free(&r);
    EXPECT_INT(r.launches, 0);
}

/* Each allocation fails once: the log reports it and keeps its entries. */
TEST(launch_log_without_memory)
{
    long live = mem_live();
    for (long k = 0; k < 2; k++) {
        LaunchLog r = {0};
        launch_log_into(&r);
        mem_fail_after(k, false);
        launch_log_part((LaunchPart){.what = "x"});
        launch_log_add((Launch){.name = "x"});
        mem_fail_after(-1, false);
        launch_log_into(NULL);
        EXPECT(r.failed);
        EXPECT_INT(r.parts, k);
        EXPECT_INT(r.launches, 0);
        launch_log_free(&r);
    }
    EXPECT_INT(mem_live(), live);
}

/* Only a GPU backend has launches. */
TEST(launch_log_wants_a_device_that_launches)
{
    Net n;
    Optim o = optim_default(OPTIM_adamw);
    net_small(&n);
    SessionSpec spec = {.graph = &n.g,
                        .root = n.root,
                        .roots = n.roots,
                        .loss = n.loss,
                        .device = "cpu",
                        .optim = &o,
                        .dry_run = true};
    Session *s = NULL;
    EXPECT_FAIL(session_open(&spec, &s), "only cuda has a launch plan");
    EXPECT_INT(err_kind(), ERR_USAGE);
    net_free(&n);
}
