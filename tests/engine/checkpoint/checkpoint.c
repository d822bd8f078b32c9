/* checkpoint.c -- a small network saved, loaded, damaged and renamed.
 *
 * conv (2 -> 3 channels, 3x3), batch norm, mse: weights with different orders
 * in memory and in the file, running statistics, and both moments of AdamW. */
#include "engine/checkpoint/checkpoint.h"
#include "engine/base/file.h"
#include "tests/test.h"
#include <stdlib.h>
#include <unistd.h>

enum { PATHS = 512, PIXELS = 4 * 5 };

typedef struct Net {
    Graph graph;
    Session *session;
    int image, target, root[2];
} Net;

/* Opens the network; `name` is the scope of the convolution, its kernel is
 * kernel x kernel, so shapes can differ. */
static void net_open(Net *n, const char *name, int kernel, const char *device,
                     bool trains)
{
    Graph *g = &n->graph;
    *n = (Net){.graph = {.count = 0}};
    Dims image = {1, 1, 4, 5, 2}, map = {1, 1, 4, 5, 3}, c = {1, 1, 1, 1, 3};
    Init uniform = {INIT_UNIFORM, 0.5}, one = {INIT_CONST, 1};
    Dims w = {3, 1, kernel, kernel, 2};
    int in[MAX_IN] = {-1, -1, -1, -1, -1, -1}, at[MAX_IN];
    char text[64];
    memcpy(at, in, sizeof at);
    REQUIRE(graph_input(g, "image", image, 2, "", &n->image));
    REQUIRE(graph_input(g, "target", map, 2, "", &n->target));
    at[0] = n->image;
    snprintf(text, sizeof text, "%s.weight", name);
    REQUIRE(graph_param(g, text, w, 2, uniform, true, true, "", &at[1]));
    Attr conv = op_default(OP_conv);
    conv.conv.ph0 = conv.conv.ph1 = conv.conv.pw0 = conv.conv.pw1 = kernel / 2;
    REQUIRE(graph_op(g, &conv, at, "", "", &in[0]));
    static const char *const norm[] = {"norm1.weight", "norm1.bias",
                                       "norm1.running_mean",
                                       "norm1.running_var"};
    for (int i = 0; i < 4; i++)
        REQUIRE(graph_param(g, norm[i], c, RANK_VECTOR, i == 3 ? one : uniform,
                            i < 2, false, "", &in[1 + i]));
    Attr bn = op_default(OP_batch_norm), mse = op_default(OP_mse);
    REQUIRE(graph_op(g, &bn, in, "", "", &n->root[0]));
    int of[MAX_IN] = {n->root[0], n->target, -1, -1, -1, -1};
    REQUIRE(graph_op(g, &mse, of, "", "", &n->root[1]));
    Optim adamw = optim_default(OPTIM_adamw);
    SessionSpec spec = {.graph = g,
                        .root = n->root,
                        .roots = 1,
                        .loss = trains ? n->root[1] : -1,
                        .device = device,
                        .threads = 1,
                        .seed = 5,
                        .optim = trains ? &adamw : NULL};
    REQUIRE(session_open(&spec, &n->session));
}

static void net_close(Net *n)
{
    session_close(n->session);
    graph_free(&n->graph);
}

/* Runs `count` steps on data that depends on the number of the step. */
static void net_train(Net *n, int count)
{
    Session *s = n->session;
    Plan *p;
    PlanInput input[] = {{n->image, {2, 1, 4, 5, 2}},
                         {n->target, {2, 1, 4, 5, 3}}};
    REQUIRE(session_plan(s, true, input, 2, &p) && session_bind(s, p));

    for (int i = 0; i < count; i++) {
        float x[2 * 2 * PIXELS], t[2 * 3 * PIXELS];
        int64_t at = session_state(s).count;
        for (int k = 0; k < 4 * PIXELS; k++) x[k] = sinf((float)(k * 7 + at));
        for (int k = 0; k < 6 * PIXELS; k++) t[k] = cosf((float)(k * 3 + at));
        StepResult r;
        REQUIRE(session_feed(s, p, n->image, x) &&
                session_feed(s, p, n->target, t) &&
                session_step(s, p, 0.01, 0, &r) && r.applied);
    }
}

static const char *in_folder(char *path, const char *folder, const char *name)
{
    snprintf(path, PATHS, "%s/%s", test_folder(), folder);
    REQUIRE(file_mkdirs(path));
    snprintf(path, PATHS, "%s/%s%s%s", test_folder(), folder, name ? "/" : "",
             name ? name : "");
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

/* Overwrites `bytes` at `at` (from the end if negative) of a file in place. */
static void overwrite(const char *path, long at, const void *data, size_t bytes)
{
    FILE *f = fopen(path, "r+b");
    REQUIRE(f && !fseek(f, at, at < 0 ? SEEK_END : SEEK_SET));
    REQUIRE(fwrite(data, 1, bytes, f) == bytes && !fclose(f));
}

static MetaPair pairs[] = {{"cursor", "17"}, {"recipe_text", "-- \xc3\xbc\n"}};
static const Meta meta = {.pair = pairs, .count = 2};

/* After a resume a run gives the same bits as an uninterrupted run. */
static void resume_on(const char *device)
{
    char at3[PATHS], at6[PATHS], again[PATHS];
    Arena mem = {0};
    Meta m;
    Net n;

    in_folder(at3, "resume", "3.safetensors");
    in_folder(at6, "resume", "6.safetensors");
    in_folder(again, "resume", "again.safetensors");
    net_open(&n, "enc.conv1", 3, device, true);
    net_train(&n, 3);
    REQUIRE(checkpoint_save(at3, n.session, true, &meta));
    net_train(&n, 3);
    REQUIRE(checkpoint_save(at6, n.session, true, &meta));
    net_close(&n);
    net_open(&n, "enc.conv1", 3, device, true);
    net_train(&n, 1);
    REQUIRE(checkpoint_load(at3, n.session, true, &mem, &m));
    EXPECT_INT(session_state(n.session).count, 3);
    EXPECT_TEXT(meta_get(&m, "cursor"), "17");
    EXPECT_TEXT(meta_get(&m, "recipe_text"), "-- \xc3\xbc\n");
    EXPECT_TEXT(meta_get(&m, "steps"), "3");
    EXPECT_TEXT(meta_get(&m, "contents"), "full");
    EXPECT_TEXT(m.note, "");
    EXPECT(!meta_get(&m, "crc32c.header"));

    // a loaded state is saved unchanged, with its metadata
    REQUIRE(checkpoint_save(again, n.session, true, &m));
    EXPECT(same_files(at3, again));
    net_train(&n, 3);
    REQUIRE(checkpoint_save(again, n.session, true, &meta));
    EXPECT(same_files(at6, again));
    EXPECT(!same_files(at6, at3));
    net_close(&n);
    arena_release(&mem);
}

TEST(checkpoint_resume_ref)
{
    resume_on("ref");
}

TEST(checkpoint_resume_cpu)
{
    resume_on("cpu");
}

TEST(checkpoint_layout)
{
    char path[PATHS];
    Net n;
    Safetensors f;

    net_open(&n, "enc.conv1", 3, "ref", true);
    net_train(&n, 2);
    Params *p = session_params(n.session);
    REQUIRE(
        checkpoint_save(in_folder(path, "layout", "x"), n.session, true, NULL));
    REQUIRE(safetensors_open(path, &f));
    static const char *const names[] = {
        "enc.conv1.weight",
        "norm1.bias",
        "norm1.running_mean",
        "norm1.running_var",
        "norm1.weight",
        "optim.m.enc.conv1.weight",
        "optim.m.norm1.bias",
        "optim.m.norm1.weight",
        "optim.v.enc.conv1.weight",
        "optim.v.norm1.bias",
        "optim.v.norm1.weight",
    };
    REQUIRE(f.count == 11);
    for (int i = 0; i < 11; i++) EXPECT_TEXT(f.tensor[i].name, names[i]);

    // PyTorch's order: (Co,Ci,kh,kw) in the file, (Co,kh,kw,Ci) in memory
    EXPECT_INT(f.tensor[0].axes, 4);
    EXPECT_INT(f.tensor[0].shape[1], 2);
    EXPECT_INT(f.tensor[1].axes, 1);
    EXPECT(f.tensor[0].type == ST_F64);
    double file[54];
    const double *memory = p->value;
    memory += p->list[params_find(p, "enc.conv1.weight")].at;
    REQUIRE(safetensors_read_f64(&f, 0, file));
    for (int co = 0; co < 3; co++)
        for (int ci = 0; ci < 2; ci++)
            for (int k = 0; k < 9; k++)
                EXPECT(file[(co * 2 + ci) * 9 + k] ==
                       memory[(co * 9 + k) * 2 + ci]);

    safetensors_close(&f);
    net_close(&n);
}

TEST(checkpoint_weights)
{
    char path[PATHS], full[PATHS];
    Arena mem = {0};
    Meta m;
    Net n, other;

    net_open(&n, "enc.conv1", 3, "ref", true);
    net_train(&n, 2);
    in_folder(path, "weights", "w.safetensors");
    in_folder(full, "weights", "full.safetensors");
    REQUIRE(checkpoint_save(path, n.session, false, &meta));
    REQUIRE(checkpoint_save(full, n.session, true, &meta));

    // into a network without training and with another real type
    net_open(&other, "enc.conv1", 3, "cpu", false);
    const char *const files[] = {path, full};

    for (int i = 0; i < 2; i++) {
        REQUIRE(checkpoint_load(files[i], other.session, false, &mem, &m));
        double a[54], b[54];
        for (int k = 0; k < 5; k++) {
            Params *p = session_params(n.session);
            int64_t count = numel(p->list[k].dim);
            REQUIRE(params_read(p, k, PARAM_VALUE, 0, a));
            REQUIRE(params_read(session_params(other.session), k, PARAM_VALUE,
                                0, b));
            for (int64_t e = 0; e < count; e++) EXPECT(b[e] == (float)a[e]);
        }
        EXPECT_INT(session_state(other.session).count, 0);
    }

    EXPECT_FAIL(
        checkpoint_load(path, n.session, true, &mem, &m),
        "weights/w.safetensors: checkpoint: it has weights but no "
        "optimiser state, so no run can continue from it; fix: load its "
        "weights instead");
    EXPECT_FAIL(checkpoint_load(full, other.session, true, &mem, &m),
                "a network that is not trained has no optimiser state");
    EXPECT_FAIL(checkpoint_save(path, other.session, true, &meta),
                "a network that is not trained has no optimiser state");
    net_close(&n);
    net_close(&other);
    arena_release(&mem);
}

/* Saves all of a session to a file, to detect changes. */
static void snapshot(Net *n, char *path, const char *name)
{
    REQUIRE(checkpoint_save(in_folder(path, "snapshots", name), n->session,
                            true, NULL));
}

TEST(checkpoint_of_another_network)
{
    char path[PATHS], before[PATHS], after[PATHS], want[1024];
    Arena mem = {0};
    Meta m;
    Net n, other;

    net_open(&n, "enc.conv1", 3, "ref", true);
    REQUIRE(
        checkpoint_save(in_folder(path, "other", "w"), n.session, true, &meta));
    net_close(&n);
    net_open(&other, "head", 3, "ref", true);
    snapshot(&other, before, "before");
    EXPECT(!checkpoint_load(path, other.session, true, &mem, &m));
    snprintf(want, sizeof want,
             "%s: checkpoint: does not fit this network: 3 missing: "
             "head.weight, optim.m.head.weight, optim.v.head.weight; 3 "
             "unknown: enc.conv1.weight, optim.m.enc.conv1.weight, "
             "optim.v.enc.conv1.weight",
             path);
    EXPECT_TEXT(err_text(), want);
    EXPECT_INT(err_kind(), ERR_DATA);
    snapshot(&other, after, "after");
    EXPECT(same_files(before, after));
    net_close(&other);
    net_open(&other, "enc.conv1", 1, "ref", true);
    EXPECT(!checkpoint_load(path, other.session, false, &mem, &m));
    snprintf(want, sizeof want,
             "%s: checkpoint: does not fit this network: 1 of another shape: "
             "enc.conv1.weight (3,2,3,3) instead of (3,2,1,1)",
             path);
    EXPECT_TEXT(err_text(), want);
    net_close(&other);
    arena_release(&mem);
}

static bool fill_ones(void *ctx, int i, void *out)
{
    const StTensor *t = ctx;
    int64_t count = 1;
    for (int k = 0; k < t[i].axes; k++) count *= t[i].shape[k];
    memset(out, 0, (size_t)count * st_type_bytes(t[i].type));
    for (int64_t k = 0; k < count; k++)
        if (t[i].type == ST_F32) ((float *)out)[k] = (float)i + 1;
    return true;
}

/* More names than are listed: their number, the first three and dots. */
TEST(checkpoint_lists_three)
{
    char path[PATHS];
    Arena mem = {0};
    Meta m;
    Net n;
    char name[13][16];
    StTensor t[13] = {{.name = NULL}};

    for (int i = 0; i < 13; i++) {
        snprintf(name[i], sizeof name[i], "x%02d", i);
        t[i] = (StTensor){.name = name[i], .type = ST_F32};
    }
    REQUIRE(safetensors_save(in_folder(path, "ten", "w"),
                             &(StWrite){t, 13, NULL, 0, fill_ones, t}));
    net_open(&n, "enc.conv1", 3, "ref", false);
    EXPECT_FAIL(checkpoint_load(path, n.session, false, &mem, &m),
                "13 unknown: x00, x01, x02, ...");
    net_close(&n);
    arena_release(&mem);
}

// -- files of other programs --------------------------------------------------

static const char *to_ours(void *ctx, const char *name)
{
    static const char *const map[][2] = {
        {"0.weight", "enc.conv1.weight"},
        {"1.weight", "norm1.weight"},
        {"1.bias", "norm1.bias"},
        {"extra", NULL},
        {"1.running_mean", "norm1.running_mean"},
        {"1.running_var", "norm1.running_var"},
    };
    for (size_t i = 0; i < sizeof map / sizeof *map; i++)
        if (!strcmp(name, map[i][0]))
            return ctx && !map[i][1] ? "norm1.bias" : map[i][1];
    return name;
}

TEST(checkpoint_import)
{
    char path[PATHS];
    Arena mem = {0};
    Meta m;
    Net n;
    StTensor t[] = {
        {.name = "0.weight", .type = ST_F32, .axes = 4, .shape = {3, 2, 3, 3}},
        {.name = "1.weight", .type = ST_F32, .axes = 1, .shape = {3}},
        {.name = "1.bias", .type = ST_F32, .axes = 1, .shape = {3}},
        {.name = "1.running_mean", .type = ST_F32, .axes = 1, .shape = {3}},
        {.name = "1.running_var", .type = ST_F32, .axes = 1, .shape = {3}},
        {.name = "1.num_batches_tracked", .type = ST_I64},
        {.name = "extra", .type = ST_F32, .axes = 1, .shape = {9}},
    };

    REQUIRE(safetensors_save(in_folder(path, "import", "w"),
                             &(StWrite){t, 7, NULL, 0, fill_ones, t}));
    net_open(&n, "enc.conv1", 3, "cpu", true);
    Params *p = session_params(n.session);
    REQUIRE(checkpoint_import(path, n.session, to_ours, NULL, false, &mem, &m));
    double x[54];
    REQUIRE(
        params_read(p, params_find(p, "norm1.running_var"), PARAM_VALUE, 0, x));
    EXPECT_NEAR(x[2], 5, 0);
    EXPECT_FAIL(checkpoint_load(path, n.session, false, &mem, &m),
                "5 missing: enc.conv1.weight, norm1.bias, norm1.running_mean, "
                "...; 6 unknown: 0.weight, 1.bias, 1.running_mean, ...");
    int ctx = 1;
    EXPECT_FAIL(
        checkpoint_import(path, n.session, to_ours, &ctx, false, &mem, &m),
        "1.bias and extra are both renamed to norm1.bias");

    // a run cannot resume from it
    EXPECT_FAIL(checkpoint_load(path, n.session, true, &mem, &m),
                "no optimiser state");
    net_close(&n);
    arena_release(&mem);
}

// -- damage -------------------------------------------------------------------

TEST(checkpoint_damaged)
{
    char path[PATHS], before[PATHS], after[PATHS];
    Arena mem = {0};
    Meta m;
    Net n;

    net_open(&n, "enc.conv1", 3, "cpu", true);
    net_train(&n, 2);
    snapshot(&n, before, "before");
    REQUIRE(checkpoint_save(in_folder(path, "damaged", "w"), n.session, true,
                            &meta));
    overwrite(path, -1, "\x55", 1);
    EXPECT_FAIL(checkpoint_verify(path),
                "tensor \"optim.v.norm1.weight\" is damaged (checksum ");
    EXPECT_FAIL(checkpoint_load(path, n.session, true, &mem, &m),
                "tensor \"optim.v.norm1.weight\" is damaged (checksum ");

    // a damaged moment is refused even if only weights are loaded
    EXPECT_FAIL(checkpoint_load(path, n.session, false, &mem, &m),
                "is damaged");
    EXPECT(checkpoint_meta(path, &mem, &m));
    overwrite(path, 100, "\x55", 1);
    EXPECT(!checkpoint_meta(path, &mem, &m));
    EXPECT(!checkpoint_load(path, n.session, true, &mem, &m));
    snapshot(&n, after, "after");
    EXPECT(same_files(before, after));
    net_close(&n);
    arena_release(&mem);
}

/* Zeros, except an infinity in the second element of norm1.weight. */
static bool fill_infinite(void *ctx, int i, void *out)
{
    const StTensor *t = ctx;
    int64_t count = 1;
    for (int k = 0; k < t[i].axes; k++) count *= t[i].shape[k];
    memset(out, 0, (size_t)count * sizeof(double));
    if (i == 1) ((double *)out)[1] = INFINITY;
    return true;
}

TEST(checkpoint_not_finite)
{
    char path[PATHS], before[PATHS], after[PATHS];
    Arena mem = {0};
    Meta m;
    Net n;

    net_open(&n, "enc.conv1", 3, "ref", true);
    Params *p = session_params(n.session);
    int bias = params_find(p, "norm1.bias");
    double x[3] = {0, NAN, 0}, huge[3] = {INFINITY, 0, 0};
    in_folder(path, "nan", "w.safetensors");
    REQUIRE(checkpoint_save(path, n.session, true, &meta));
    REQUIRE(params_write(p, bias, PARAM_VALUE, 0, x));
    EXPECT_FAIL(checkpoint_save(path, n.session, true, &meta),
                "not saved: norm1.bias is not finite (nan at element 1)");
    EXPECT(strstr(err_text(), "w.safetensors"));

    // the old file is still there; a moment may have overflowed
    REQUIRE(checkpoint_load(path, n.session, true, &mem, &m));
    REQUIRE(params_write(p, bias, PARAM_STATE, 1, huge));
    EXPECT(checkpoint_save(path, n.session, true, &meta));
    EXPECT(checkpoint_load(path, n.session, true, &mem, &m));

    // another program's file may contain such a value
    REQUIRE(params_write(p, bias, PARAM_STATE, 1, (double[3]){0}));
    snapshot(&n, before, "before");
    StTensor t[] = {
        {.name = "enc.conv1.weight", .axes = 4, .shape = {3, 2, 3, 3}},
        {.name = "norm1.weight", .axes = 1, .shape = {3}},
        {.name = "norm1.bias", .axes = 1, .shape = {3}},
        {.name = "norm1.running_mean", .axes = 1, .shape = {3}},
        {.name = "norm1.running_var", .axes = 1, .shape = {3}},
    };
    REQUIRE(
        safetensors_save(path, &(StWrite){t, 5, NULL, 0, fill_infinite, t}));
    EXPECT_FAIL(checkpoint_load(path, n.session, false, &mem, &m),
                "w.safetensors: checkpoint: norm1.weight is not finite (inf at "
                "element 1)");
    snapshot(&n, after, "after");
    EXPECT(same_files(before, after));
    net_close(&n);
    arena_release(&mem);
}

TEST(checkpoint_names)
{
    char path[PATHS];
    Net n;
    MetaPair shout = {"Epoch", "1"};

    net_open(&n, "optim.x", 3, "ref", false);
    in_folder(path, "names", "w.safetensors");
    EXPECT_FAIL(checkpoint_save(path, n.session, false, NULL),
                "w.safetensors: parameter optim.x.weight: names that begin "
                "with optim., ema., swa. or batch. are reserved; fix: rename");
    net_close(&n);
    net_open(&n, "x", 3, "ref", false);
    EXPECT_FAIL(checkpoint_save(path, n.session, false, &(Meta){&shout, 1, ""}),
                "metadata key \"Epoch\" (only a-z 0-9 _ . are allowed)");
    EXPECT(access(path, F_OK));
    net_close(&n);
}

// -- no memory ----------------------------------------------------------------

/* Every allocation fails once: a reason, no leak, the old file stays. */
TEST(checkpoint_no_memory)
{
    char path[PATHS], before[PATHS], after[PATHS];
    Arena mem = {0};
    Meta m;
    Net n;

    net_open(&n, "enc.conv1", 3, "ref", true);
    net_train(&n, 1);
    REQUIRE(checkpoint_save(in_folder(path, "memory", "w"), n.session, true,
                            &meta));
    net_train(&n, 1);
    snapshot(&n, before, "before");
    long live = mem_live();
    int kept = 0;

    for (long k = 0;; k++) {
        REQUIRE(k < 2000);
        mem_fail_after(k, false);
        bool ok = checkpoint_load(path, n.session, true, &mem, &m);
        mem_fail_after(-1, false);
        arena_release(&mem);
        EXPECT_INT(mem_live(), live);
        if (ok) break;
        EXPECT(strstr(err_text(), "no memory"));
        // the last failures occur while the session is being set
        snapshot(&n, after, "after");
        kept += same_files(before, after);
    }

    EXPECT(kept >= 5);
    for (long k = 0;; k++) {
        REQUIRE(k < 2000);
        mem_fail_after(k, false);
        bool ok = checkpoint_save(path, n.session, true, &meta);
        mem_fail_after(-1, false);
        EXPECT_INT(mem_live(), live);
        EXPECT(checkpoint_verify(path));
        if (ok) break;
        EXPECT(strstr(err_text(), "no memory"));
    }
    net_close(&n);
}
