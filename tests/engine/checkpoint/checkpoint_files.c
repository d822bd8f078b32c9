/* checkpoint_files.c -- which files are checkpoints, and which is the newest.
 *
 * Needs no network: the files have one tensor and the metadata of a
 * checkpoint. */
#include "engine/base/file.h"
#include "engine/checkpoint/checkpoint.h"
#include "tests/support/networks.h"
#include <unistd.h>

enum { PATHS = 512 };

static const char *in_folder(char *path, const char *folder, const char *name)
{
    snprintf(path, PATHS, "%s/%s", test_folder(), folder);
    REQUIRE(file_mkdirs(path));
    snprintf(path, PATHS, "%s/%s%s%s", test_folder(), folder, name ? "/" : "",
             name ? name : "");
    return path;
}

TEST(checkpoint_foreign)
{
    Arena mem = {0};
    Meta m;
    REQUIRE(checkpoint_meta("tests/golden/python.safetensors", &mem, &m));
    EXPECT_TEXT(meta_get(&m, "format"), "pt");
    EXPECT_TEXT(m.note, "without checksums (written by another program): "
                        "damage could not be seen");
    EXPECT(checkpoint_verify("tests/golden/python.safetensors"));
    EXPECT_FAIL(checkpoint_verify("tests/golden/safetensors.py"),
                "tests/golden/safetensors.py: safetensors: not safetensors: "
                "its header would have ");
    arena_release(&mem);
}

/* Writes a file with this format, with or without checksums. */
static void write_format(const char *path, const char *format, bool sums)
{
    if (sums) {
        MetaPair pair = {"format", format};
        REQUIRE(safetensors_save(path, &(StWrite){.pair = &pair, .pairs = 1}));
        return;
    }
    char file[256];
    int n = snprintf(file + 8, sizeof file - 8,
                     "{\"__metadata__\":{\"format\":\"%s\"}}", format);
    uint64_t length = (uint64_t)n;
    memcpy(file, &length, 8);
    REQUIRE(file_replace(path, file, length + 8));
}

TEST(checkpoint_formats)
{
    char path[PATHS];
    in_folder(path, "formats", "w.safetensors");

    for (int sums = 0; sums < 2; sums++) {
        write_format(path, "segengine 2", sums);
        EXPECT_FAIL(checkpoint_verify(path),
                    "w.safetensors: checkpoint: its format is \"segengine 2\", "
                    "this program reads \"segengine 1\"; fix: use the version "
                    "of segengine that wrote it, or a later one");
        EXPECT_INT(err_kind(), ERR_DATA);
    }

    write_format(path, "segengine 1", false);
    EXPECT_FAIL(checkpoint_verify(path), "w.safetensors: checkpoint: damaged: "
                                         "its checksums are missing");
    write_format(path, "segengine 1", true);
    EXPECT(checkpoint_verify(path));
}

static bool fill_zero(void *ctx, int i, void *out)
{
    memset(out, 0, ((const StTensor *)ctx)[i].shape[0] * sizeof(double));
    return true;
}

/* Writes FOLDER/checkpoint_<name>.safetensors; returns its path in `path`. */
static const char *write_checkpoint(char *path, const char *folder,
                                    const char *name, const char *contents,
                                    const char *steps)
{
    char file[64];
    snprintf(file, sizeof file, "checkpoint_%s.safetensors", name);
    StTensor t = {.name = "w", .axes = 1, .shape = {9}};
    MetaPair pair[] = {{"contents", contents},
                       {"format", CHECKPOINT_FORMAT},
                       {"steps", steps}};
    REQUIRE(safetensors_save(in_folder(path, folder, file),
                             &(StWrite){&t, 1, pair, 3, fill_zero, &t}));
    return path;
}

/* A run in f16 resumes with its loss scale; a scale that training cannot
 * produce is refused before anything is loaded. */
TEST(checkpoint_loss_scale)
{
    static const struct {
        const char *by, *good;
    } bad[] = {{"3", "0"},        {"0", "0"},      {"33554432", "0"},
               {"65536", "2000"}, {"65536", NULL}, {"65536", "x"},
               {"-65536", "0"},   {"", "0"}};
    char path[PATHS];
    Arena mem = {0};
    Meta m;
    Optim o = optim_default(OPTIM_sgd);
    Net n;

    net_small(&n);
    n.scaled = true;
    net_open(&n, "cpu", 1, &o);
    in_folder(path, "scale", "checkpoint_good.safetensors");
    static const LossScale kept[] = {{1 << 20, 1999}, {1, 3}, {1, 0}};

    for (int i = 0; i < 3; i++) {
        REQUIRE(session_set_state(n.s, &(StepState){40 + i, kept[i], 0}));
        REQUIRE(checkpoint_save(path, n.s, true, NULL));
        REQUIRE(session_set_state(n.s, &(StepState){7, {8, 8}, 0}));
        REQUIRE(checkpoint_load(path, n.s, true, &mem, &m));
        StepState got = session_state(n.s);
        EXPECT_INT(got.count, 40 + i);
        EXPECT_NEAR(got.scale.by, kept[i].by, 0);
        EXPECT_INT(got.scale.good, kept[i].good);
        // weights for another machine have no scale
        REQUIRE(checkpoint_save(path, n.s, false, NULL));
        REQUIRE(checkpoint_meta(path, &mem, &m));
        EXPECT(!meta_get(&m, "loss_scale"));
    }

    // a run without a scale keeps the current one
    Net plain;
    net_small(&plain);
    net_open(&plain, "cpu", 1, &o);
    EXPECT(net_step(&plain, 2, 1, 0.01, 1).applied);
    in_folder(path, "scale", "checkpoint_plain.safetensors");
    REQUIRE(checkpoint_save(path, plain.s, true, NULL));
    REQUIRE(session_set_state(n.s, &(StepState){42, {4096, 5}, 0}));
    REQUIRE(checkpoint_load(path, n.s, true, &mem, &m));
    EXPECT_INT(session_state(n.s).count, 1);
    EXPECT_NEAR(session_state(n.s).scale.by, 4096, 0);

    // no save and no set while a step is pending
    Plan *p = net_plan(&plain, true, 2);
    net_feed(&plain, p, 1);
    StepPart part = {true, true, 1, 0.01, 0};
    REQUIRE(session_queue(plain.s, p, &part));
    EXPECT_FAIL(checkpoint_save(path, plain.s, true, NULL),
                "1 step is under way: collect them before saving");
    EXPECT_FAIL(session_set_state(plain.s, &(StepState){0, {1, 0}, 0}),
                "1 step is under way: collect them");
    net_free(&plain);
    StTensor t = {.name = "w", .axes = 1, .shape = {9}};

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        MetaPair pair[] = {{"contents", "full"},
                           {"format", CHECKPOINT_FORMAT},
                           {"loss_scale", bad[i].by},
                           {"loss_scale_steps", bad[i].good},
                           {"steps", "5"}};
        int pairs = 5;
        if (!bad[i].good) pair[3] = pair[4], pairs = 4;
        in_folder(path, "scale", "checkpoint_bad.safetensors");
        REQUIRE(safetensors_save(
            path, &(StWrite){&t, 1, pair, pairs, fill_zero, &t}));
        EXPECT_FAIL(checkpoint_load(path, n.s, true, &mem, &m),
                    "want a power of two up to 16777216 and less than 2000 "
                    "steps; fix: load its weights instead");
        EXPECT_INT(session_state(n.s).count, 1);
    }

    net_free(&n);
    arena_release(&mem);
}

/* Changes the last byte: its tensor is damaged. */
static void damage(const char *path)
{
    FILE *f = fopen(path, "r+b");
    REQUIRE(f && !fseek(f, -1, SEEK_END) && fputc(1, f) == 1 && !fclose(f));
}

TEST(checkpoint_newest)
{
    char folder[PATHS], last[PATHS], best[PATHS], one[PATHS], nine[PATHS],
        ten[PATHS], weights[PATHS];
    Arena mem = {0};
    const char *found, *said;

    in_folder(folder, "newest", NULL);
    EXPECT_FAIL(checkpoint_newest(folder, &mem, &found, &said),
                "newest: no checkpoint_*.safetensors in this folder");
    EXPECT_FAIL(checkpoint_newest("/no/such", &mem, &found, &said),
                "cannot list /no/such: No such file or directory");
    write_checkpoint(one, "newest", "0001", "full", "5");
    write_checkpoint(nine, "newest", "0002", "full", "9");
    write_checkpoint(best, "newest", "best", "full", "9");
    write_checkpoint(ten, "newest", "0003", "full", "10");
    write_checkpoint(last, "newest", "last", "full", "10");
    write_checkpoint(weights, "newest", "old", "weights", "7");

    // compares numbers, not texts; among equals the last; older ones give no
    // message
    REQUIRE(checkpoint_newest(folder, &mem, &found, &said));
    EXPECT_TEXT(found, last);
    EXPECT_TEXT(said, "");
    damage(last);
    REQUIRE(checkpoint_newest(folder, &mem, &found, &said));
    EXPECT_TEXT(found, ten);
    EXPECT(strstr(said, "checkpoint_last.safetensors: safetensors: tensor "
                        "\"w\" is damaged (checksum "));
    EXPECT(said[strlen(said) - 1] == '\n' && strchr(said, '\n')[1] == 0);

    // truncated in the header, truncated to nothing, and a folder
    REQUIRE(!truncate(ten, 50) && !truncate(nine, 0) && !unlink(best));
    REQUIRE(file_mkdirs(best));
    REQUIRE(checkpoint_newest(folder, &mem, &found, &said));
    EXPECT_TEXT(found, one);
    EXPECT(strstr(said, "_0003.safetensors: safetensors: the file is "
                        "truncated: its header ends at byte "));
    EXPECT(strstr(said, "_0002.safetensors: safetensors: the file is empty\n"));
    EXPECT(strstr(said, "_best.safetensors is a folder, not a file\n"));
    EXPECT(strstr(said, "_old.safetensors: checkpoint: it has no optimiser "
                        "state\n"));
    REQUIRE(!unlink(one));
    EXPECT_FAIL(checkpoint_newest(folder, &mem, &found, &said),
                "newest: no checkpoint can be used: ");
    EXPECT(!strchr(err_text(), '\n'));
    EXPECT_INT(err_kind(), ERR_DATA);
    arena_release(&mem);
}
