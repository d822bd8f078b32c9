/* gpu_dry_run.c -- the launches of a dry run, compared with the step itself.
 *
 * A dry run makes no CUDA call, so it works without a driver; it lists the
 * kernels that the same step launches on a device, as often as they run. */
#include "tests/cuda/emulator/emu_control.h"
#include "tests/support/networks.h"
#include "tests/support/op_call.h"

/* A U-Net with two levels. */
static void small_unet(Net *n)
{
    net_new(n);
    int image = net_input(n, "image", (Dims){1, 1, 12, 20, 3}, 2);
    int target = net_input(n, "target", (Dims){1, 1, 12, 20, 1}, 2);
    n->root[n->roots++] = net_unet(n, image, 5, 2);
    n->loss = net_op(n, OP_bce_dice, n->root[0], target, -1);
}

static void open_session(Net *n, const Optim *o, Precision precision,
                         bool dry_run)
{
    SessionSpec spec = {.graph = &n->g,
                        .root = n->root,
                        .roots = n->roots,
                        .loss = n->loss,
                        .device = "cuda",
                        .optim = o,
                        .precision = precision,
                        .dry_run = dry_run};
    REQUIRE(session_open(&spec, &n->s));
}

/* Lists one step of batch 2 on an absent device. */
static void dry_run_one(Net *n, const Optim *o, Precision precision,
                        LaunchLog *r)
{
    PlanInput in[8];
    Plan *p;
    open_session(n, o, precision, true);
    REQUIRE(session_plan(n->s, true, in, net_extents(n, 2, in), &p));
    REQUIRE(session_bind(n->s, p));
    EXPECT(session_dry_run(n->s, p, r));
    session_close(n->s);
    n->s = NULL;
}

/* Returns the number of launches in r with `part` in the kernel's name. */
static long kernels(const LaunchLog *r, const char *part)
{
    long count = 0;
    for (int i = 0; i < r->launches; i++)
        count += r->launch[i].block[0] && strstr(r->launch[i].name, part);
    return count;
}

TEST(gpu_dry_run_needs_no_driver)
{
    static const struct {
        OptimKind kind;
        Precision precision;
    } row[] = {{OPTIM_adamw, PRECISION_f32},
               {OPTIM_sgd, PRECISION_tf32},
               {OPTIM_adam, PRECISION_bf16},
               {OPTIM_adamw, PRECISION_f16}};

    for (size_t k = 0; k < sizeof row / sizeof *row; k++) {
        Net n;
        LaunchLog r = {0};
        Optim o = optim_default(row[k].kind);
        long live = mem_live();
        small_unet(&n);
        emu_set_device(80, 0, "none", 0);
        emu_fail_at(0, 0, 0);
        dry_run_one(&n, &o, row[k].precision, &r);
        EXPECT_INT(emu_fail_count(), 0);
        EXPECT(!r.failed);
        EXPECT_INT(kernels(&r, "optim_update_kernel"), 1);

        // the same step where it runs
        emu_set_device(80, 1, "ok", (size_t)1 << 28);
        open_session(&n, &o, row[k].precision, false);
        // 16-bit copies of the parameters are queued after their values
        REQUIRE(session_backend(n.s)->sync(session_device(n.s)));
        emu_reset_counts();
        net_step(&n, 2, 1, 0.01, 1);
        REQUIRE(session_backend(n.s)->sync(session_device(n.s)));
        EXPECT_INT(kernels(&r, ""), emu_launch_count(NULL));
        for (int i = 0; i < r.launches; i++) {
            const Launch *l = &r.launch[i];
            if (!l->block[0]) continue;
            EXPECT(l->grid[0] && l->grid[1] && l->grid[2] && l->block[1]);
            // LAUNCH has "(kernel<4, 2>)" in parentheses
            char name[128];
            snprintf(name, sizeof name, "%s", l->name + (*l->name == '('));
            if (*l->name == '(') name[strlen(name) - 1] = 0;
            EXPECT(emu_launch_count(name) >= 1);
            EXPECT_INT(kernels(&r, name), emu_launch_count(name));
        }
        net_free(&n);
        launch_log_free(&r);
        EXPECT_INT(mem_live(), live);
    }
}

/* A dry-run device answers the host's queries without CUDA: its memory is zero,
 * no work is pending, and all allocations fit. */
TEST(gpu_dry_run_answers_without_a_driver)
{
    Net n;
    Optim o = optim_default(OPTIM_adamw);
    small_unet(&n);
    emu_set_device(80, 0, "none", 0);
    emu_fail_at(0, 0, 0);
    open_session(&n, &o, PRECISION_f32, true);
    const Backend *be = session_backend(n.s);
    void *dev = session_device(n.s), *p;
    float value[4] = {1, 2, 3, 4};
    size_t room = 0;
    REQUIRE(be->alloc(dev, sizeof value, &p));
    EXPECT(be->upload(dev, p, value, sizeof value));
    EXPECT(be->sync(dev));
    EXPECT(be->download(dev, value, p, sizeof value));
    for (int i = 0; i < 4; i++) EXPECT_NEAR(value[i], 0, 0);
    EXPECT(be->room(dev, &room));
    EXPECT(room == SIZE_MAX);
    be->release(dev, p);
    EXPECT_INT(emu_fail_count(), 0);
    net_free(&n);
}

/* After a dry run kernels run again on the same thread. */
TEST(gpu_dry_run_ends_with_its_session)
{
    Net n;
    LaunchLog r = {0};
    Optim o = optim_default(OPTIM_adamw);

    emu_set_device(80, 1, "ok", (size_t)1 << 28);
    small_unet(&n);
    dry_run_one(&n, &o, PRECISION_f32, &r);
    int before = r.launches;
    net_open(&n, "cuda", 1, &o);
    double loss = net_step(&n, 2, 1, 0.01, 1).loss;
    EXPECT(loss > 0);
    EXPECT_INT(r.launches, before);
    launch_log_free(&r);
    net_free(&n);
}
