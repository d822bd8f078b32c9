/* ranks_training.h -- training by several processes compared with training by
 * one, for ranks.c and, on emulated devices,
 * tests/cuda/kernels/gpu_ranks.c.
 *
 * Ranks are forked here, over the same shared memory as with --ranks. A child
 * prints an error and reports it by its exit code. */
#ifndef SEG_TESTS_SUPPORT_RANKS_TRAINING_H
#define SEG_TESTS_SUPPORT_RANKS_TRAINING_H
#include "engine/base/clock.h"
#include "engine/base/rng.h"
#include "engine/ranks/ranks.h"
#include "tests/support/networks.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

typedef bool RankFn(Ranks *r, void *context);

/* Runs fn in `count` processes; true when it returned true in all. The death of
 * rank `killed` by a signal counts as true. */
static inline bool run_ranks(int count, RankFn *fn, void *context, int killed)
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

typedef enum Kind {
    BCE,
    BCE_MASK,
    DICE,
    DICE_SAMPLE,
    CLASSES,
    FOCAL,
    MAE,
    DVH,
    KINDS
} Kind;

typedef struct Work {
    const char *device;
    Kind kind;
    int batch, steps;
    int later; /* batch of the second half of the steps; 0: the same */
    Precision precision; /* other than f32: convolutions of 8 channels, which
                          * make the sums of norms in their epilogue */
    bool local_batch_norm;
    const char *allreduce;  /* of devices: see Backend.allreduce_open */
    double loss[20], *grad; /* of the run alone, in the process of the tests */
    int64_t grads;
} Work;

/* conv, norm, relu, dropout, conv: all operators that depend on other samples.
 */
static inline void make_net(Net *n, Kind kind, Precision precision)
{
    const bool narrow = precision != PRECISION_f32, classes = kind == CLASSES;
    net_new(n);
    int x = net_input(n, "image", (Dims){1, 1, 6, 6, 2}, 2);
    int t = net_input(n, "target", (Dims){1, 1, 6, 6, 1}, 2);
    int y = net_relu(n, net_norm(n, net_conv(n, x, narrow ? 8 : 4, 3)));
    if (narrow) y = net_relu(n, net_norm(n, net_conv(n, y, 8, 3)));
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
    case FOCAL:
        n->loss = net_op(n, OP_focal, y, t, -1);
        break;
    case MAE:
        n->loss = net_op(n, OP_mae, y, t, -1);
        break;
    case DVH: {
        int parts = net_input(n, "tparts", (Dims){1, 1, 6, 6, 2}, 2);
        a = op_default(OP_dvh_loss);
        a.dvh_loss.bins = 4;
        n->loss = net_row(n, a, (int[]){y, t, parts}, 3);
        break;
    }
    default:
        n->loss = net_op(n, OP_bce, y, t, -1);
    }
}

/* Samples first .. first + count - 1 of step `step`. */
static inline bool feed(Net *n, Plan *p, int step, int first, int count)
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

/* Steps of this rank, or alone if it is NULL; losses, and the last gradients,
 * which the caller owns. */
static inline bool train(Ranks *r, const Work *w, double *loss, double **grad,
                         int64_t *grads)
{
    static const char *const none = "cannot train";
    Optim o = optim_default(OPTIM_adam);
    Net n;
    char device[16];
    // NCCL needs a device for each rank
    bool own = r && w->allreduce && strcmp(w->allreduce, "host");
    snprintf(device, sizeof device, own ? "%s:%d" : "%s", w->device,
             own ? r->rank : 0);
    make_net(&n, w->kind, w->precision);
    SessionSpec spec = {.graph = &n.g,
                        .root = n.root,
                        .roots = n.roots,
                        .loss = n.loss,
                        .device = device,
                        .allreduce = w->allreduce,
                        .precision = w->precision,
                        .threads = 1,
                        .seed = 11,
                        .ranks = r,
                        .local_batch_norm = w->local_batch_norm,
                        .optim = &o};
    if (!session_open(&spec, &n.s)) return within("%s", none);
    for (int i = 0; i < w->steps; i++) {
        const int batch = w->later && i >= w->steps / 2 ? w->later : w->batch;
        int first = 0, count = batch;
        if (r) count = ranks_shard(batch, r->rank, r->count, &first);
        bool idle = count == 0;
        if (idle) count = 1, first = 0;
        session_set_shard(n.s, first, idle);
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
        // running statistics too: they are equal at all ranks
        ParamBlock block = q->list[i].trained ? PARAM_GRAD : PARAM_VALUE;
        if (!params_read(q, i, block, 0, *grad + *grads)) return false;
        *grads += numel(q->list[i].dim);
    }
    net_free(&n);
    return *grad != NULL;
}

static inline bool same_training(Ranks *r, void *context)
{
    const Work *w = context;
    double loss[20], *grad, off = 0, all = 0, bound = 1e-12;
    int64_t grads;
    if (!train(r, w, loss, &grad, &grads)) return false;
    if (strcmp(w->device, "ref")) bound = 1e-6;
    if (w->precision != PRECISION_f32) bound = 1e-4;
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
    // and bit-identical at all ranks
    double both[2] = {loss[w->steps - 1], -loss[w->steps - 1]}, mine = both[0];
    double ranks = r->count;
    return ranks_sum(r, both, 2) &&
           (fabs(both[0] - ranks * mine) <= 1e-12 * fabs(mine) * ranks ||
            fail("ranks have other losses"));
}

/* Training by ranks must equal training alone. */
static inline void compare_work(Work w, int ranks)
{
    REQUIRE(train(NULL, &w, w.loss, &w.grad, &w.grads));
    EXPECT(run_ranks(ranks, same_training, &w, -1));
    mem_free(w.grad);
}

static inline void compare_by(const char *allreduce, const char *device,
                              Kind kind, int batch, int ranks, int steps)
{
    compare_work((Work){.device = device,
                        .kind = kind,
                        .batch = batch,
                        .steps = steps,
                        .allreduce = allreduce},
                 ranks);
}

static inline void compare(const char *device, Kind kind, int batch, int ranks,
                           int steps)
{
    compare_by(NULL, device, kind, batch, ranks, steps);
}

/* Batch statistics of each rank alone: the results differ from one process's,
 * but are equal at all ranks, running statistics too. */
static inline bool local_batch_norm(Ranks *r, void *context)
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

static inline void compare_local_batch_norm(const char *allreduce,
                                            const char *device, int ranks)
{
    Work w = {.device = device,
              .batch = 6,
              .steps = 2,
              .local_batch_norm = true,
              .allreduce = allreduce};
    REQUIRE(train(NULL, &w, w.loss, &w.grad, &w.grads));
    EXPECT(run_ranks(ranks, local_batch_norm, &w, -1));
    mem_free(w.grad);
}
#endif
