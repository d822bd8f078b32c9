/* snapshot.c -- snapshots that a thread writes while the session trains on. */
#include "engine/checkpoint/snapshot.h"
#include "engine/base/file.h"
#include "tests/support/networks.h"
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATHS = 512 };

static const char *in_folder(char *path, const char *folder, const char *name)
{
    snprintf(path, PATHS, "%s/%s", test_folder(), folder);
    REQUIRE(file_mkdirs(path));
    snprintf(path, PATHS, "%s/%s/%s", test_folder(), folder, name);
    return path;
}

static bool same_files(const char *a, const char *b)
{
    Arena mem = {0};
    char *x, *y;
    size_t n, m;
    bool same = file_read(a, 1 << 20, &mem, &x, &n) &&
                file_read(b, 1 << 20, &mem, &y, &m) && n == m &&
                !memcmp(x, y, n);
    arena_release(&mem);
    return same;
}

/* A U-Net with running statistics, moments and, with `ema` > 0, averages. */
static void trained(Net *n, const char *device, double ema, int steps)
{
    Optim o = optim_default(OPTIM_adamw);
    net_small(n);
    net_open(n, device, 1, &o);
    if (ema > 0) REQUIRE(session_ema(n->s, ema));
    for (int i = 0; i < steps; i++)
        REQUIRE(net_step(n, 2, (uint32_t)i, 0.01, 1).applied);
}

/* A snapshot is the file of its moment, whatever the session does while it is
 * written, also after the session was closed; and it can be taken again. */
static void written_as(const char *device, double ema, bool full)
{
    char want[2][PATHS], got[2][PATHS];
    char text[] = "17"; // Lua may move the texts of its pairs
    MetaPair pair = {"cursor", text};
    const Meta meta = {.pair = &pair, .count = 1};
    Snapshot *k = snapshot_new();
    Net n;

    REQUIRE(k && snapshot_done(k));
    trained(&n, device, ema, 2);
    for (int i = 0; i < 2; i++) {
        char name[32];
        snprintf(name, sizeof name, "want%d", i);
        in_folder(want[i], "snapshot", name);
        snprintf(name, sizeof name, "got%d", i);
        in_folder(got[i], "snapshot", name);
        text[0] = '1';
        REQUIRE(checkpoint_save(want[i], n.s, full, &meta));
        REQUIRE(snapshot_take(k, n.s, full, &meta));
        text[0] = '9';
        REQUIRE(snapshot_write(k, &(const char *){got[i]}, 1));
        // steps while the thread writes
        for (int s = 0; s < 3; s++)
            REQUIRE(net_step(&n, 2, (uint32_t)(5 + s), 0.01, 1).applied);
        if (i == 1) net_free(&n);
        REQUIRE(snapshot_wait(k));
        EXPECT(snapshot_done(k));
        EXPECT(same_files(want[i], got[i]));
    }
    EXPECT(!same_files(got[0], got[1]));

    // written again, as after a failure
    REQUIRE(!unlink(got[1]));
    REQUIRE(snapshot_write(k, &(const char *){got[1]}, 1) && snapshot_wait(k));
    EXPECT(same_files(want[1], got[1]));
    snapshot_free(k);
}

TEST(snapshot_written_while_training)
{
    written_as("ref", 0, true);
    written_as("cpu", 0, true);
    written_as("cpu", 0.9, true);
    written_as("cpu", 0.9, false);
}

/* The snapshot of one network can be taken of another one. */
TEST(snapshot_of_another_session)
{
    char want[PATHS], got[PATHS];
    Snapshot *k = snapshot_new();
    Net n;

    in_folder(want, "other", "want");
    in_folder(got, "other", "got");
    trained(&n, "cpu", 0.9, 1);
    REQUIRE(k && snapshot_take(k, n.s, true, NULL));
    net_free(&n);
    trained(&n, "cpu", 0, 2); // without averages
    REQUIRE(snapshot_take(k, n.s, true, NULL));
    REQUIRE(checkpoint_save(want, n.s, true, NULL));
    REQUIRE(snapshot_write(k, &(const char *){got}, 1) && snapshot_wait(k));
    EXPECT(same_files(want, got));
    net_free(&n);
    Optim o = optim_default(OPTIM_sgd);
    net_linear(&n);
    net_open(&n, "ref", 1, &o);
    REQUIRE(snapshot_take(k, n.s, true, NULL));
    REQUIRE(checkpoint_save(want, n.s, true, NULL));
    REQUIRE(snapshot_write(k, &(const char *){got}, 1) && snapshot_wait(k));
    EXPECT(same_files(want, got));
    net_free(&n);
    snapshot_free(k);
}

/* The blocks take what snapshot_bytes says, less the gaps of an allocator. */
TEST(snapshot_memory)
{
    Snapshot *k = snapshot_new();
    Net n;
    trained(&n, "cpu", 0.9, 1);
    const Params *p = session_params(n.s);
    EXPECT_INT(snapshot_bytes(p),
               (2 * p->total + 2 * p->trained) * (int64_t)sizeof(float));

    // a second copy allocates no blocks
    REQUIRE(k && snapshot_take(k, n.s, true, NULL));
    long blocks = mem_live();
    REQUIRE(snapshot_take(k, n.s, true, NULL));
    EXPECT_INT(mem_live(), blocks);

    // a failure at any allocation leaves an empty snapshot that can be used
    for (long after = 0;; after++) {
        Snapshot *other = snapshot_new();
        REQUIRE(other);
        mem_fail_after(after, true);
        bool ok = snapshot_take(other, n.s, true, NULL);
        mem_fail_after(-1, false);
        if (!ok) EXPECT(snapshot_take(other, n.s, true, NULL));
        snapshot_free(other);
        if (ok) break;
        REQUIRE(after < 1000);
    }
    EXPECT_INT(mem_live(), blocks);
    snapshot_free(k);
    net_free(&n);
}

/* Reasons are those of checkpoint_save, at the end of the write. */
TEST(snapshot_failures)
{
    char path[PATHS];
    Snapshot *k = snapshot_new();
    Net n;
    trained(&n, "cpu", 0, 1);

    REQUIRE(k && snapshot_take(k, n.s, true, NULL));
    snprintf(path, sizeof path, "%s/no/such/folder/x", test_folder());
    REQUIRE(snapshot_write(k, &(const char *){path}, 1));
    EXPECT_FAIL(snapshot_wait(k), "no/such/folder/x: No such file");
    EXPECT_INT(err_kind(), ERR_FAILURE);

    // values that are not finite are found by the thread
    Params *p = session_params(n.s);
    ((float *)p->value)[0] = INFINITY;
    in_folder(path, "failed", "x");
    REQUIRE(snapshot_take(k, n.s, true, NULL));
    REQUIRE(snapshot_write(k, &(const char *){path}, 1));
    EXPECT_FAIL(snapshot_wait(k), "is not finite (inf at element ");
    EXPECT(strstr(err_text(), "; fix: a lower learning rate"));
    EXPECT_INT(err_kind(), ERR_DIVERGED);
    EXPECT(access(path, F_OK));

    // no copy while a step is pending
    Plan *plan = net_plan(&n, true, 2);
    net_feed(&n, plan, 1);
    StepPart part = {true, true, 1, 0.01, 0};
    REQUIRE(session_queue(n.s, plan, &part));
    EXPECT_FAIL(snapshot_take(k, n.s, true, NULL),
                "1 step is under way: collect them before saving");
    net_free(&n);
    snapshot_free(k);
    snapshot_free(NULL);
}

/* A snapshot that is freed is written first. */
TEST(snapshot_freed_under_way)
{
    char want[PATHS], got[PATHS];
    Net n;
    in_folder(want, "freed", "want");
    in_folder(got, "freed", "got");
    trained(&n, "cpu", 0, 1);
    REQUIRE(checkpoint_save(want, n.s, true, NULL));
    Snapshot *k = snapshot_new();
    REQUIRE(k && snapshot_take(k, n.s, true, NULL));
    REQUIRE(snapshot_write(k, &(const char *){got}, 1));
    snapshot_free(k);
    EXPECT(same_files(want, got));
    net_free(&n);
}

/* The names of a checkpoint are links to one file; a name with permissions of
 * its own is a copy that keeps them. */
TEST(snapshot_under_several_names)
{
    char path[3][PATHS];
    const char *const names[] = {path[0], path[1], path[2]};
    struct stat st[3];
    Snapshot *k = snapshot_new();
    Net n;
    trained(&n, "cpu", 0, 1);
    in_folder(path[0], "names", "checkpoint_0001.safetensors");
    in_folder(path[1], "names", "checkpoint_best.safetensors");
    in_folder(path[2], "names", "checkpoint_last.safetensors");
    REQUIRE(file_replace(path[1], "old", 3) && !chmod(path[1], 0600));
    REQUIRE(k && snapshot_take(k, n.s, true, NULL));
    REQUIRE(snapshot_write(k, names, 3) && snapshot_wait(k));
    for (int i = 0; i < 3; i++) {
        EXPECT(checkpoint_verify(path[i]) && !stat(path[i], &st[i]));
        EXPECT(same_files(path[0], path[i]));
    }
    EXPECT(st[0].st_ino == st[2].st_ino && st[0].st_ino != st[1].st_ino);
    EXPECT_INT(st[1].st_mode & 07777, 0600);
    EXPECT_INT(st[0].st_nlink, 2);

    // metadata that is added to one name changes no other
    MetaPair pair = {"threshold", "0.5"};
    REQUIRE(checkpoint_note(path[2], &(Meta){.pair = &pair, .count = 1}));
    EXPECT(!same_files(path[0], path[2]));
    EXPECT(checkpoint_verify(path[0]));

    // a name that cannot be written: the earlier ones are new, the later old
    REQUIRE(net_step(&n, 2, 9, 0.01, 1).applied);
    REQUIRE(!unlink(path[1]) && file_mkdirs(path[1]));
    REQUIRE(snapshot_take(k, n.s, true, NULL));
    REQUIRE(snapshot_write(k, names, 3));
    EXPECT_FAIL(snapshot_wait(k), "checkpoint_best.safetensors: it exists and "
                                  "is not a regular file");
    Arena mem = {0};
    Meta m;
    REQUIRE(checkpoint_meta(path[0], &mem, &m));
    EXPECT_TEXT(meta_get(&m, "steps"), "2");
    REQUIRE(checkpoint_meta(path[2], &mem, &m));
    EXPECT_TEXT(meta_get(&m, "steps"), "1");
    arena_release(&mem);
    net_free(&n);
    snapshot_free(k);
}
