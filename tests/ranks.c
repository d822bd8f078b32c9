/* ranks.c -- processes that train together, against one that trains alone.
 *
 * Ranks are forked here, over the same shared memory as --ranks has. What a
 * child finds wrong it says by its exit code, after printing it. */
#include "ranks.h"
#include "clock.h"
#include "net.h"
#include "rng.h"
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

typedef bool RankFn(Ranks *r, void *context);

/* fn in `count` processes; true when it was in all. A child that dies by a
 * signal counts as true where `killed` is its rank. */
static bool run_ranks(int count, RankFn *fn, void *context, int killed)
{
    int fd, status, bad = 0;
    pid_t child[16];
    REQUIRE(count <= 16 && ranks_shared_make(count, &fd));
    fflush(NULL);
    for (int k = 0; k < count; k++) {
        child[k] = fork();
        if (child[k]) continue;
        Ranks *r = NULL;
        bool ok = ranks_shared_open(fd, k, count, &r) && fn(r, context);
        if (!ok) fprintf(stderr, "rank %d of %d: %s\n", k, count, err_text());
        ranks_close(r);
        _exit(!ok);
    }
    close(fd);
    for (int k = 0; k < count; k++) {
        bool there = waitpid(child[k], &status, 0) == child[k];
        bad += !there ||
               (k == killed ? !WIFSIGNALED(status)
                            : !WIFEXITED(status) || WEXITSTATUS(status) != 0);
    }
    return bad == 0;
}

// -- sums ---------------------------------------------------------------------

TEST(ranks_share_is_whole)
{
    for (int ranks = 1; ranks < 9; ranks++)
        for (int count = 0; count < 20; count++) {
            int next = 0, first, least = count;
            for (int k = 0; k < ranks; k++) {
                int n = ranks_share(count, k, ranks, &first);
                EXPECT_INT(first, next);
                next += n;
                if (n < least) least = n;
                EXPECT(n <= (count + ranks - 1) / ranks);
            }
            EXPECT_INT(next, count);
            EXPECT(least >= count / ranks);
        }
}

/* Number i of rank k: sums of such depend on their order. */
static double number(int k, int64_t i)
{
    return sin((double)(7 * k + 1) * (double)(i + 1)) * pow(10, k % 3);
}

enum { LONG = 300001 }; /* more than a piece, and odd */

static bool sums_right(Ranks *r, void *context)
{
    (void)context;
    double few[3], *many = mem_alloc(LONG * sizeof *many);
    float *reals = mem_alloc(LONG * sizeof *reals);
    char *bytes = mem_alloc(LONG), *all = mem_alloc((size_t)LONG * 16);
    if (!many || !reals || !bytes || !all) return false;
    for (int i = 0; i < 3; i++) few[i] = number(r->rank, i);
    for (int64_t i = 0; i < LONG; i++) {
        many[i] = number(r->rank, i), reals[i] = (float)many[i];
        bytes[i] = (char)(i * 31 + r->rank);
    }
    if (!ranks_sum(r, few, 3) || !ranks_sum(r, many, LONG) ||
        !ranks_sum_values(r, reals, F32, LONG) ||
        !ranks_gather(r, bytes, LONG, all) || !ranks_barrier(r))
        return false;
    for (int64_t i = 0; i < LONG; i++) {
        double sum = number(0, i);
        float real = (float)sum;
        for (int k = 1; k < r->count; k++)
            sum += number(k, i), real += (float)number(k, i);
        // to the bit: the order is that of the ranks
        if (many[i] != sum || (i < 3 && few[i] != sum) || reals[i] != real)
            return fail("sum %lld is wrong", (long long)i);
        for (int k = 0; k < r->count; k++)
            if (all[(size_t)k * LONG + (size_t)i] != (char)(i * 31 + k))
                return fail("byte %lld of %d is wrong", (long long)i, k);
    }
    // the same in double
    for (int64_t i = 0; i < LONG; i++) many[i] = number(r->rank, i);
    if (!ranks_sum_values(r, many, F64, LONG)) return false;
    double last = number(0, LONG - 1);
    for (int k = 1; k < r->count; k++) last += number(k, LONG - 1);
    mem_free(all), mem_free(bytes), mem_free(reals);
    bool ok = many[LONG - 1] == last;
    mem_free(many);
    return ok || fail("a sum in double is wrong");
}

TEST(ranks_sums_in_order)
{
    EXPECT(run_ranks(1, sums_right, NULL, -1));
    EXPECT(run_ranks(2, sums_right, NULL, -1));
    EXPECT(run_ranks(5, sums_right, NULL, -1));
}

// -- a training step ----------------------------------------------------------

typedef enum Kind { BCE, BCE_MASK, DICE, DICE_SAMPLE, CLASSES, KINDS } Kind;

typedef struct Work {
    const char *device;
    Kind kind;
    int batch, steps;
    bool own_norms;
    double loss[20], *grad; /* of the run alone, in the tests' process */
    int64_t grads;
} Work;

/* conv, norm, relu, dropout, conv: everything that knows other samples. */
static void make_net(Net *n, Kind kind)
{
    net_new(n);
    bool classes = kind == CLASSES;
    int x = net_input(n, "image", (Dims){1, 1, 6, 6, 2}, 2);
    int t = net_input(n, "target", (Dims){1, 1, 6, 6, 1}, 2);
    int y = net_relu(n, net_norm(n, net_conv(n, x, 4, 3)));
    y = net_op(n, OP_dropout, y, -1, -1);
    n->bias = true;
    y = net_conv(n, y, classes ? 3 : 1, 3);
    n->root[n->roots++] = y;
    Attr a;
    switch (kind) {
    case BCE_MASK: {
        int mask = net_input(n, "tmask", (Dims){1, 1, 6, 6, 1}, 2);
        a = op_default(OP_bce);
        n->loss = net_row(n, a, (int[]){y, t, mask}, 3);
        break;
    }
    case DICE:
    case DICE_SAMPLE:
        a = op_default(OP_bce_dice);
        a.bce_dice.per_sample = kind == DICE_SAMPLE;
        a.bce_dice.skip_empty = 1;
        n->loss = net_row(n, a, (int[]){y, t}, 2);
        break;
    case CLASSES:
        a = op_default(OP_cross_entropy);
        a.cross_entropy.ignore = 1;
        n->loss = net_row(n, a, (int[]){y, t}, 2);
        break;
    default:
        n->loss = net_op(n, OP_bce, y, t, -1);
    }
}

/* Samples first .. first + count - 1 of step `step`. */
static bool feed(Net *n, Plan *p, int step, int first, int count)
{
    enum { EACH = 6 * 6 * 2 };
    static float v[EACH * 16];
    for (int k = 0; k < n->inputs; k++) {
        int64_t each = numel(plan_value(p, n->input[k])->dim) / count;
        bool target = *n->g.node[n->input[k]].name == 't';
        for (int i = 0; i < count; i++) {
            Rng r = {.seed = 7, .stream = RNG_TEST};
            r.sample = (uint32_t)(first + i), r.epoch = (uint32_t)step;
            r.op = (uint16_t)k;
            // sample 1 has no target: skip_empty, and other counts a rank
            for (int64_t e = 0; e < each; e++)
                v[i * each + e] = !target ? rng_normal(&r, (uint32_t)e)
                                  : first + i == 1 && k == 1
                                      ? 0
                                      : (float)rng_below(&r, (uint32_t)e, 2);
        }
        if (!session_feed(n->s, p, n->input[k], v)) return false;
    }
    return true;
}

/* Steps of this rank, or with NULL alone; losses, and the last gradients,
 * which are the caller's. */
static bool train(Ranks *r, const Work *w, double *loss, double **grad,
                  int64_t *grads)
{
    static const char *const none = "cannot train";
    Optim o = optim_default(OPTIM_adam);
    Net n;
    make_net(&n, w->kind);
    SessionSpec spec = {.graph = &n.g,
                        .root = n.root,
                        .roots = n.roots,
                        .loss = n.loss,
                        .device = w->device,
                        .threads = 1,
                        .seed = 11,
                        .ranks = r,
                        .own_norms = w->own_norms,
                        .optim = &o};
    int first = 0, count = w->batch;
    if (r) count = ranks_share(w->batch, r->rank, r->count, &first);
    bool idle = count == 0;
    if (idle) count = 1, first = 0;
    if (!session_open(&spec, &n.s)) return within("%s", none);
    session_share(n.s, first, idle);
    for (int i = 0; i < w->steps; i++) {
        PlanInput in[8];
        Plan *p;
        StepResult out;
        int inputs = net_extents(&n, count, in);
        if (!session_plan(n.s, true, in, inputs, &p) || !session_bind(n.s, p) ||
            !feed(&n, p, i, first, count) ||
            !session_step(n.s, p, 1e-2, 1, &out))
            return within("%s", none);
        if (!out.applied) return fail("step %d was left out", i);
        loss[i] = out.loss;
    }
    Params *q = session_params(n.s);
    *grads = 0;
    *grad = mem_alloc((size_t)q->total * sizeof **grad);
    for (int i = 0; i < q->count && *grad; i++) {
        // running statistics too: they are the same at all ranks
        ParamBlock block = q->list[i].trained ? PARAM_GRAD : PARAM_VALUE;
        if (!params_read(q, i, block, 0, *grad + *grads)) return false;
        *grads += numel(q->list[i].dim);
    }
    net_free(&n);
    return *grad != NULL;
}

static bool same_training(Ranks *r, void *context)
{
    const Work *w = context;
    double loss[20], *grad, off = 0, all = 0, bound = 1e-12;
    int64_t grads;
    if (!train(r, w, loss, &grad, &grads)) return false;
    if (strcmp(w->device, "ref")) bound = 1e-6;
    for (int i = 0; i < w->steps; i++)
        if (!(fabs(loss[i] - w->loss[i]) <=
              (bound < 1e-6 ? 1e-12 : 1e-3) * fabs(w->loss[i])))
            return fail("step %d: loss %.17g, alone %.17g", i, loss[i],
                        w->loss[i]);
    for (int64_t i = 0; i < grads; i++) {
        off += (grad[i] - w->grad[i]) * (grad[i] - w->grad[i]);
        all += w->grad[i] * w->grad[i];
    }
    mem_free(grad);
    if (w->steps == 1 && !(off <= bound * all))
        return fail("gradients: NMSE %.3g, want %g", off / all, bound);
    // and to the bit the same at all ranks
    double both[2] = {loss[w->steps - 1], -loss[w->steps - 1]}, mine = both[0];
    double ranks = r->count;
    return ranks_sum(r, both, 2) &&
           (fabs(both[0] - ranks * mine) <= 1e-12 * fabs(mine) * ranks ||
            fail("ranks have other losses"));
}

static void compare(const char *device, Kind kind, int batch, int ranks,
                    int steps)
{
    Work w = {.device = device, .kind = kind, .batch = batch, .steps = steps};
    REQUIRE(train(NULL, &w, w.loss, &w.grad, &w.grads));
    EXPECT(run_ranks(ranks, same_training, &w, -1));
    mem_free(w.grad);
}

TEST(ranks_gradients_ref)
{
    for (int k = 0; k < KINDS; k++) {
        compare("ref", (Kind)k, 6, 2, 1);
        compare("ref", (Kind)k, 7, 4, 1); // shares of 1 and 2
        compare("ref", (Kind)k, 3, 4, 1); // one is idle
    }
}

TEST(ranks_gradients_cpu)
{
    for (int k = 0; k < KINDS; k++) {
        compare("cpu", (Kind)k, 7, 2, 1);
        compare("cpu", (Kind)k, 3, 4, 1);
    }
}

TEST(ranks_loss_trace)
{
    compare("cpu", BCE, 8, 2, 20);
    compare("cpu", DICE, 8, 4, 20);
    compare("ref", BCE, 3, 4, 5); // idle more than once: nothing is left behind
}

/* Statistics of a rank alone: other numbers than one process has, but the same
 * at all ranks, running statistics too. */
static bool own_norms(Ranks *r, void *context)
{
    const Work *w = context;
    double loss[20], *grad, *all;
    int64_t grads, differ = 0;
    if (!train(r, w, loss, &grad, &grads)) return false;
    all = mem_alloc((size_t)grads * (size_t)r->count * sizeof *all);
    if (!all || !ranks_gather(r, grad, (size_t)grads * sizeof *grad, all))
        return false;
    for (int k = 0; k < r->count; k++)
        if (memcmp(all + k * grads, grad, (size_t)grads * sizeof *grad))
            return fail("rank %d has others than rank %d", k, r->rank);
    for (int64_t i = 0; i < grads; i++)
        differ += fabs(grad[i] - w->grad[i]) > 1e-9;
    mem_free(all), mem_free(grad);
    return differ > 0 || fail("statistics of a share are those of the batch");
}

TEST(ranks_own_norms)
{
    Work w = {.device = "ref", .batch = 6, .steps = 2, .own_norms = true};
    REQUIRE(train(NULL, &w, w.loss, &w.grad, &w.grads));
    EXPECT(run_ranks(3, own_norms, &w, -1));
    mem_free(w.grad);
}

// -- a rank that dies
// ----------------------------------------------------------

static bool one_dies(Ranks *r, void *context)
{
    double v = 1, since = clock_s();
    (void)context;
    if (!ranks_sum(r, &v, 1)) return false;
    if (r->rank == 1) kill(getpid(), SIGKILL);
    if (ranks_sum(r, &v, 1)) return fail("a sum without rank 1");
    if (!strstr(err_text(), "rank 1 has ended")) return false;
    return clock_s() - since < 10 || fail("noticed too late");
}

static bool one_quits(Ranks *r, void *context)
{
    double v = 1, since = clock_s();
    (void)context;
    if (r->rank == 1) {
        ranks_quit(r, ERR_DATA, "case 7: no such file");
        return true;
    }
    if (ranks_sum(r, &v, 1)) return fail("a sum without rank 1");
    if (!strstr(err_text(), "rank 1 has ended: case 7: no such file"))
        return false;
    return clock_s() - since < 5 || fail("noticed too late");
}

static bool one_leaves(Ranks *r, void *context)
{
    double v = 1;
    (void)context;
    if (r->rank == 1) return true;
    return !ranks_sum(r, &v, 1) && strstr(err_text(), "before the others");
}

TEST(ranks_death)
{
    EXPECT(run_ranks(3, one_dies, NULL, 1));
    EXPECT(run_ranks(3, one_quits, NULL, -1));
    EXPECT(run_ranks(2, one_leaves, NULL, -1));
}

TEST(ranks_refused)
{
    Ranks *r = NULL;
    int fd;
    EXPECT_FAIL(ranks_shared_make(0, &fd), "want 1 to 1024");
    REQUIRE(setenv(RANKS_VARIABLE, "0 2 2", 1) == 0);
    EXPECT_FAIL(ranks_open(&r), "unset it");
    REQUIRE(setenv(RANKS_VARIABLE, "1 0 2", 1) == 0);
    EXPECT_FAIL(ranks_open(&r), "not the memory of 2 ranks");
    REQUIRE(unsetenv(RANKS_VARIABLE) == 0);
    EXPECT(ranks_open(&r) && !r);
}
