/* embed_model.c -- the C API, in-process: a trained network gives the same bits
 * in another program, and mistakes of a caller give a reason.
 * tests/engine/api/embed.c does it from outside, through the library. */
#include "engine/api/segengine.h"
#include "engine/base/file.h"
#include "engine/checkpoint/checkpoint.h"
#include "tests/support/networks.h"
#include <pthread.h>
#include <stdlib.h>

enum { PATHS = 512, MOST = 4096 };

static char *path_of(char *path, const char *name)
{
    snprintf(path, PATHS, "%s/%s", test_folder(), name);
    return path;
}

/* Saves the session with its network, or with `graph` and `names` instead. */
static void save(Net *n, const char *path, const char *graph, const char *names)
{
    Arena mem = {NULL};
    char *text;
    REQUIRE(graph_print(&n->g, n->root, n->roots, &mem, &text));
    MetaPair pair[2] = {{"graph", graph ? graph : text}, {"outputs", names}};
    Meta m = {.pair = pair, .count = 2};
    REQUIRE(checkpoint_save(path, n->s, true, &m));
    arena_release(&mem);
}

/* Opens a network with two outputs: logits of the U-Net, and their sigmoid. */
static void trained(Net *n, const char *device)
{
    Optim o = optim_default(OPTIM_adamw);
    net_small(n);
    int logits = n->root[0];
    n->root[n->roots++] = net_op(n, OP_sigmoid, logits, -1, -1);
    net_open(n, device, 1, &o);
    for (uint32_t i = 0; i < 3; i++) EXPECT(net_step(n, 2, i, 0.01, 1).applied);
}

/* Computes the session's own outputs for synthetic images of these extents. */
static void forward(Net *n, Dims image, const float *pixels, float *logits,
                    float *mask)
{
    static const float zero[MOST];
    Dims target = image;
    target.c = 1;
    PlanInput in[] = {{n->input[0], image}, {n->input[1], target}};
    Plan *p;
    REQUIRE(session_plan(n->s, false, in, 2, &p) && session_bind(n->s, p));
    REQUIRE(session_feed(n->s, p, n->input[0], pixels));
    REQUIRE(session_feed(n->s, p, n->input[1], zero));
    REQUIRE(session_run(n->s, p));
    REQUIRE(session_read(n->s, p, n->root[0], logits));
    REQUIRE(session_read(n->s, p, n->root[1], mask));
}

static void wave(float *x)
{
    for (int i = 0; i < MOST; i++) x[i] = sinf(0.37f * (float)i);
}

TEST(embed_model_runs_as_the_session)
{
    static const char *const device[] = {"cpu", "ref"};
    static const Dims sizes[] = {
        {1, 1, 8, 8, 2}, {3, 1, 8, 8, 2}, {2, 1, 12, 16, 2}, {1, 1, 8, 8, 2}};
    static float x[MOST], want[2][MOST], got[2][MOST];
    char path[PATHS];

    wave(x);
    path_of(path, "trained.safetensors");

    for (int d = 0; d < 2; d++) {
        Net n;
        trained(&n, device[d]);
        save(&n, path, NULL, "logits,mask");
        seg_model *m = seg_open(path, device[d], 2);
        REQUIRE(m);
        for (int i = 0; i < 4; i++) {
            Dims s = sizes[i];
            int64_t count = (int64_t)s.n * s.h * s.w;
            forward(&n, s, x, want[0], want[1]);
            seg_tensor in = {"image", 4, {s.n, 2, s.h, s.w}, x};
            seg_tensor out[] = {{"mask", 0, {0}, NULL},
                                {"logits", 0, {0}, NULL}};
            // first only the shapes
            REQUIRE(seg_run(m, &in, 1, out, 2) == 0);
            for (int k = 0; k < 2; k++) {
                EXPECT_INT(out[k].axes, 4);
                EXPECT_INT(out[k].shape[0], s.n);
                EXPECT_INT(out[k].shape[1], 1);
                EXPECT_INT(out[k].shape[2], s.h);
                EXPECT_INT(out[k].shape[3], s.w);
            }
            out[0].data = got[1], out[1].data = got[0];
            memset(got, 0, sizeof got);
            REQUIRE(seg_run(m, &in, 1, out, 2) == 0);
            for (int k = 0; k < 2; k++)
                EXPECT(!memcmp(want[k], got[k], (size_t)count * sizeof(float)));
            EXPECT_NEAR(got[0][count], 0, 0); // no value beyond the end
        }
        seg_close(m);
        net_free(&n);
    }
}

TEST(embed_model_tells_its_shapes)
{
    char path[PATHS];
    Net n;
    seg_tensor t[4] = {{0}};

    trained(&n, "cpu");
    save(&n, path_of(path, "shapes.safetensors"), NULL, "logits,mask");
    net_free(&n);
    seg_model *m = seg_open(path, "cpu", 1);
    REQUIRE(m);
    EXPECT_INT(seg_inputs(m, NULL, 0), 1);
    EXPECT_INT(seg_inputs(m, t, 4), 1);
    EXPECT_TEXT(t[0].name, "image");
    EXPECT_INT(t[0].axes, 4);
    EXPECT(t[0].shape[0] == 1 && t[0].shape[1] == 2 && t[0].shape[2] == 8 &&
           t[0].shape[3] == 8 && !t[0].data);
    EXPECT(!t[1].name);
    EXPECT_INT(seg_outputs(m, t, 1), 2);
    EXPECT_TEXT(t[0].name, "logits");
    EXPECT(!t[1].name);
    EXPECT_INT(seg_outputs(m, t, 4), 2);
    EXPECT_TEXT(t[1].name, "mask");
    seg_close(m);
    EXPECT_TEXT(seg_version(), SEG_VERSION);
}

/* A call that must fail with this reason. */
#define WRONG(m, in, inputs, out, outputs, part)                  \
    EXPECT_FAIL(seg_run(m, in, inputs, out, outputs) == 0, part); \
    EXPECT(strstr(seg_error(), part) && !strchr(seg_error(), '\n'))

TEST(embed_model_of_wrong_calls)
{
    static float x[MOST], y[MOST];
    char path[PATHS];
    Net n;

    trained(&n, "cpu");
    save(&n, path_of(path, "calls.safetensors"), NULL, "logits,mask");
    net_free(&n);
    seg_model *m = seg_open(path, "cpu", 1);
    REQUIRE(m);
    const seg_tensor good = {"image", 4, {1, 2, 8, 8}, x};
    seg_tensor in = good, out = {"mask", 0, {0}, y};
    WRONG(m, &in, 0, &out, 1, "input \"image\" is missing");
    WRONG(m, &in, -3, &out, 1, "input \"image\" is missing");
    WRONG(m, NULL, 0, &out, 1, "input \"image\" is missing");
    in.name = "picture";
    WRONG(m, &in, 1, &out, 1, "no input \"picture\"");
    in.name = NULL;
    WRONG(m, &in, 1, &out, 1, "no input \"(NULL)\"");
    in = good, in.data = NULL;
    WRONG(m, &in, 1, &out, 1, "input \"image\" has no data");
    in = good, in.axes = 3;
    WRONG(m, &in, 1, &out, 1, "3 axes, want 1x2x8x8 (N,C,H,W)");
    in = good, in.axes = 1 << 30;
    WRONG(m, &in, 1, &out, 1, "want 1x2x8x8");
    in = good, in.axes = -1;
    WRONG(m, &in, 1, &out, 1, "want 1x2x8x8");
    in = good, in.shape[2] = 0;
    WRONG(m, &in, 1, &out, 1, "axis 2 has 0 elements, want 1x2x8x8");
    in = good, in.shape[2] = INT64_MAX;
    WRONG(m, &in, 1, &out, 1, "axis 2 has 9223372036854775807 elements");
    in = good, in.shape[1] = 3;
    WRONG(m, &in, 1, &out, 1, "has shape 1x3x8x8 (N,C,H,W), want 1x2x8x8");
    in = good, in.shape[3] = 10;
    WRONG(m, &in, 1, &out, 1, "divisible by the network's total stride");
    in = good;
    out.name = "nothing";
    y[0] = 77;
    WRONG(m, &in, 1, &out, 1, "no output \"nothing\"");
    out.name = NULL;
    WRONG(m, &in, 1, &out, 1, "no output \"(NULL)\"");
    EXPECT_NEAR(y[0], 77, 0);
    WRONG(NULL, &in, 1, &out, 1, "model is NULL");
    EXPECT_INT(seg_inputs(NULL, NULL, 0), 0);
    EXPECT_INT(seg_outputs(NULL, NULL, 0), 0);

    // and the model still works
    out.name = "mask";
    EXPECT(seg_run(m, &in, 1, &out, 1) == 0 && y[0] > 0 && y[0] < 1);
    EXPECT(seg_run(m, &in, 1, NULL, 0) == 0);
    seg_close(m);
    seg_close(NULL);
}

static void not_opened(const char *path, const char *device, const char *part)
{
    long live = mem_live();
    EXPECT_FAIL(seg_open(path, device, 1) != NULL, part);
    EXPECT(!strchr(seg_error(), '\n'));
    EXPECT_INT(mem_live(), live);
}

/* The network in the metadata does not match the weights or names. */
TEST(embed_model_of_wrong_files)
{
#define HEAD "segengine graph 1\n"
    static const struct {
        const char *graph, *names, *part;
    } rows[] = {
        {NULL, "logits", "2 outputs, but the names \"logits\""},
        {NULL, "a,b,c", "2 outputs, but the names \"a,b,c\""},
        {NULL, "", "2 outputs, but the names \"\""},
        {NULL, "same,same", "two outputs are called \"same\""},
        {"nonsense", "a", "network text begins with \"nonsense\""},
        {HEAD "input x 1 1 1 1 2 0 0 0\n", "a", "no root"},
        {HEAD "param p1.weight 1 1 1 1 2 -1 1 0\nroot 0\n", "a", "p1.weight"},
        // rank and extents that disagree would overrun a caller's array
        {HEAD "input x 1 1 1 1 1 0 0 0\nparam w 1 1 64 64 1 -1 1 0\n"
              "add - 0,1\nroot 2\n",
         "a", "more axes"},
        {HEAD "param w 2147483647 1 2147483647 1 1 2 1 0\nroot 0\n", "a",
         "addressable"},
        {HEAD "param w 1000000 1 1000000 1000 1 2 1 0\nroot 0\n", "a",
         "no memory"},
    };
    char path[PATHS], other[PATHS];
    Net n;
    trained(&n, "cpu");
    path_of(path, "file.safetensors");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        save(&n, path, rows[i].graph, rows[i].names);
        not_opened(path, "cpu", rows[i].part);
        EXPECT(strstr(seg_error(), "file.safetensors"));
    }

    Meta none = {.count = 0};
    REQUIRE(checkpoint_save(path, n.s, false, &none));
    not_opened(path, "cpu", "holds weights but no network");
    save(&n, path, NULL, "a,b");
    not_opened(path, "abacus", "device \"abacus\" is not known");

    // one damaged byte of the weights
    Arena mem = {NULL};
    char *data;
    size_t bytes;
    REQUIRE(file_read(path, 1 << 20, &mem, &data, &bytes));
    data[bytes - 9] ^= 16;
    REQUIRE(file_replace(path_of(other, "bad.safetensors"), data, bytes));
    not_opened(other, "cpu", "bad.safetensors");
    REQUIRE(file_replace(other, data, bytes / 2));
    not_opened(other, "cpu", "bad.safetensors");
    arena_release(&mem);
    not_opened(path_of(other, "none.safetensors"), "cpu", "none.safetensors");
    not_opened(test_folder(), "cpu", test_folder());
    not_opened(NULL, "cpu", "path is NULL");
    net_free(&n);
}

/* Too many inputs are refused, not written past the end. */
TEST(embed_model_of_many_inputs)
{
    char path[PATHS];
    Net n;
    Arena mem = {NULL};

    trained(&n, "cpu");
    char *text = arena_printf(&mem, "%s", HEAD);
    for (int i = 0; i < 17; i++)
        text = arena_printf(&mem, "%sinput x%d 1 1 1 1 2 0 0 0\n", text, i);
    text = arena_printf(&mem, "%sroot 0\n", text);
    save(&n, path_of(path, "inputs.safetensors"), text, "a");
    not_opened(path, "cpu", "more than 16 inputs");
    arena_release(&mem);
    net_free(&n);
}

/* Two threads with models of the same weights, and a mistake in one thread. */
typedef struct Thread {
    const char *path;
    float first;
    bool ok;
} Thread;

static void *run_alone(void *arg)
{
    static const float zero[MOST];
    Thread *t = arg;
    float y[64];

    t->ok = !*seg_error();
    t->ok = t->ok && !seg_open("no/such/file", "cpu", 1) &&
            strstr(seg_error(), "no/such/file");
    seg_model *m = seg_open(t->path, "cpu", 2);

    for (int i = 0; m && i < 20; i++) {
        seg_tensor in = {"image", 4, {1, 2, 8, 8}, (float *)zero};
        seg_tensor out = {"logits", 0, {0}, y};
        t->ok = t->ok && seg_run(m, &in, 1, &out, 1) == 0 &&
                (!i || y[0] == t->first);
        t->first = y[0];
    }

    t->ok = t->ok && m;
    seg_close(m);
    return NULL;
}

TEST(embed_model_in_threads)
{
    char path[PATHS];
    Net n;
    pthread_t id[3];
    Thread t[3] = {{.path = path}, {.path = path}, {.path = path}};

    trained(&n, "cpu");
    save(&n, path_of(path, "threads.safetensors"), NULL, "logits,mask");
    net_free(&n);
    long live = mem_live();
    fail_data("of the first thread");
    for (int i = 0; i < 3; i++)
        REQUIRE(!pthread_create(&id[i], NULL, run_alone, &t[i]));
    for (int i = 0; i < 3; i++) pthread_join(id[i], NULL);
    for (int i = 0; i < 3; i++) EXPECT(t[i].ok && t[i].first == t[0].first);
    EXPECT_TEXT(seg_error(), "of the first thread");
    EXPECT_INT(mem_live(), live);
}

TEST(embed_model_without_memory)
{
    static float x[MOST], y[MOST];
    char path[PATHS];
    Net n;

    trained(&n, "cpu");
    save(&n, path_of(path, "memory.safetensors"), NULL, "logits,mask");
    net_free(&n);

    for (int then_on = 0; then_on < 2; then_on++) {
        long live = mem_live(), k = 0;
        for (bool ok = false; !ok; k++) {
            seg_tensor in = {"image", 4, {2, 2, 8, 8}, x};
            seg_tensor out = {"mask", 0, {0}, y};
            mem_fail_after(k, then_on);
            seg_model *m = seg_open(path, "cpu", 2);
            ok = m && seg_run(m, &in, 1, &out, 1) == 0;
            mem_fail_after(-1, false);
            if (!ok) EXPECT_FAIL(ok, "no memory");
            seg_close(m);
            EXPECT_INT(mem_live(), live);
            REQUIRE(k < 2000);
        }
        EXPECT(k > 40);
    }
}
