/* cpu.c -- speed of the CPU kernels, one row each.
 *
 *     build/tests/bench/cpu [--threads N] [--rounds N] [--batch N]
 *                           [--bf16 1] [NAME ...]
 *
 * NAME selects rows with NAME in their name; with --bf16 1, products run in
 * that precision, on existing copies. Convolutions are printed in GFLOP/s of
 * the direct sum and as a fraction of this machine's peak; Winograd
 * convolutions also as a multiple of the speed of the direct sum, which may be
 * above the peak. Memory-bound rows are printed in GB/s, counting each operand,
 * result and gradient once; so are updates of all parameters, which have no
 * batch. The peak is measured again in every round, alternating with the
 * kernels, so that a busy machine lowers both. Figures are medians of
 * rounds. */
#include "cpu/conv/winograd.h"
#include "cpu/lib/simd.h"
#include "cpu/lib/thread_pool.h"
#include "engine/backend/backend.h"
#include "engine/base/rng.h"
#include "tests/bench/timing.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS_MAX = 101, COPY_BYTES = 64 << 20, PASSES = 3 };

/* One row: operands as in op.h; extents with n = 0 get the batch size. */
typedef struct Row {
    const char *name;
    Op op;
    Dims x[MAX_IN];
    int stride, pad, kernel; /* attributes, if the operator has them */
} Row;

#define CONV(text, ci, co, hw, k, s, p)                                      \
    {                                                                        \
        .name = text, .op = OP_conv,                                         \
        .x = {{0, 1, hw, hw, ci}, {co, 1, k, k, ci}}, .stride = s, .pad = p, \
    }

static const Row rows[] = {
    CONV("conv 3x3 64->64 @128", 64, 64, 128, 3, 1, 1),
    CONV("conv 3x3 1->32 @256", 1, 32, 256, 3, 1, 1),
    CONV("conv 3x3 32->32 @256", 32, 32, 256, 3, 1, 1),
    CONV("conv 3x3 64->32 @256", 64, 32, 256, 3, 1, 1),
    CONV("conv 3x3 128->128 @64", 128, 128, 64, 3, 1, 1),
    CONV("conv 3x3 256->256 @32", 256, 256, 32, 3, 1, 1),
    CONV("conv 3x3 512->512 @16", 512, 512, 16, 3, 1, 1),
    CONV("conv 1x1 64->64 @128", 64, 64, 128, 1, 1, 0),
    CONV("conv 1x1 32->1 @256 head", 32, 1, 256, 1, 1, 0),
    CONV("conv 4x4 s2 64->128 @128", 64, 128, 128, 4, 2, 1),
    CONV("conv 7x7 s2 3->64 @112", 3, 64, 112, 7, 2, 3),
    {.name = "conv 3x3x3 32->32 @32",
     .op = OP_conv,
     .x = {{0, 32, 32, 32, 32}, {32, 3, 3, 3, 32}},
     .stride = 1,
     .pad = 1},
    {.name = "conv 4x4x4 s2 64->128 @32",
     .op = OP_conv,
     .x = {{0, 32, 32, 32, 64}, {128, 4, 4, 4, 64}},
     .stride = 2,
     .pad = 1},
    {.name = "conv 3 64->64 sequence 512",
     .op = OP_conv,
     .x = {{0, 1, 1, 512, 64}, {64, 1, 1, 3, 64}},
     .stride = 1,
     .pad = 1},
    {.name = "upconv 2x2 s2 64->32 @128",
     .op = OP_upconv,
     .x = {{0, 1, 128, 128, 64}, {64, 1, 2, 2, 32}},
     .stride = 2},
    {.name = "upconv 2x2 s2 512->256 @16",
     .op = OP_upconv,
     .x = {{0, 1, 16, 16, 512}, {512, 1, 2, 2, 256}},
     .stride = 2},
    {.name = "linear 512->512 x1024",
     .op = OP_linear,
     .x = {{0, 1, 1, 256, 512}, {512, 1, 1, 1, 512}}},
    {.name = "relu @256 32", .op = OP_relu, .x = {{0, 1, 256, 256, 32}}},
    {.name = "leaky_relu @256 32",
     .op = OP_leaky_relu,
     .x = {{0, 1, 256, 256, 32}}},
    {.name = "batch_norm @256 32",
     .op = OP_batch_norm,
     .x = {{0, 1, 256, 256, 32},
           {1, 1, 1, 1, 32},
           {1, 1, 1, 1, 32},
           {1, 1, 1, 1, 32},
           {1, 1, 1, 1, 32}}},
    {.name = "batch_norm @16 512",
     .op = OP_batch_norm,
     .x = {{0, 1, 16, 16, 512},
           {1, 1, 1, 1, 512},
           {1, 1, 1, 1, 512},
           {1, 1, 1, 1, 512},
           {1, 1, 1, 1, 512}}},
    {.name = "instance_norm @256 32",
     .op = OP_instance_norm,
     .x = {{0, 1, 256, 256, 32}, {1, 1, 1, 1, 32}, {1, 1, 1, 1, 32}}},
    {.name = "group_norm @64 128",
     .op = OP_group_norm,
     .x = {{0, 1, 64, 64, 128}, {1, 1, 1, 1, 128}, {1, 1, 1, 1, 128}}},
    {.name = "add @256 32",
     .op = OP_add,
     .x = {{0, 1, 256, 256, 32}, {0, 1, 256, 256, 32}}},
    {.name = "concat @256 32+32",
     .op = OP_concat,
     .x = {{0, 1, 256, 256, 32}, {0, 1, 256, 256, 32}}},
    {.name = "maxpool 2x2 @256 32",
     .op = OP_maxpool,
     .x = {{0, 1, 256, 256, 32}},
     .stride = 2,
     .kernel = 2},
    {.name = "bce @256",
     .op = OP_bce,
     .x = {{0, 1, 256, 256, 1}, {0, 1, 256, 256, 1}}},
    {.name = "bce_dice @256",
     .op = OP_bce_dice,
     .x = {{0, 1, 256, 256, 1}, {0, 1, 256, 256, 1}}},
    {.name = "cross_entropy @40x56x40 3",
     .op = OP_cross_entropy,
     .x = {{0, 40, 56, 40, 3}, {0, 40, 56, 40, 1}}},
    {.name = "dice_loss @40x56x40 3",
     .op = OP_dice_loss,
     .x = {{0, 40, 56, 40, 3}, {0, 40, 56, 40, 1}}},
    {.name = "softmax @40x56x40 3",
     .op = OP_softmax,
     .x = {{0, 40, 56, 40, 3}}},
    {.name = "sigmoid @256", .op = OP_sigmoid, .x = {{0, 1, 256, 256, 1}}},
    {.name = "tanh @64 128", .op = OP_tanh, .x = {{0, 1, 64, 64, 128}}},
    {.name = "gelu @64 128", .op = OP_gelu, .x = {{0, 1, 64, 64, 128}}},
    {.name = "silu @64 128", .op = OP_silu, .x = {{0, 1, 64, 64, 128}}},
    {.name = "dropout sequence 512 512",
     .op = OP_dropout,
     .x = {{0, 1, 1, 512, 512}}},
    {.name = "spatial_dropout @32 128",
     .op = OP_spatial_dropout,
     .x = {{0, 1, 32, 32, 128}}},
    {.name = "mask_length 512 512",
     .op = OP_mask_length,
     .x = {{0, 1, 1, 512, 512}, {0, 1, 1, 1, 1}}},
    {.name = "global_maxpool 512 512",
     .op = OP_global_maxpool,
     .x = {{0, 1, 1, 512, 512}, {0, 1, 1, 1, 1}}},
    {.name = "global_avgpool 512 512",
     .op = OP_global_avgpool,
     .x = {{0, 1, 1, 512, 512}, {0, 1, 1, 1, 1}}},
    {.name = "layer_norm 512 512",
     .op = OP_layer_norm,
     .x = {{0, 1, 1, 512, 512}, {1, 1, 1, 1, 512}, {1, 1, 1, 1, 512}}},
    {.name = "mul @256 32",
     .op = OP_mul,
     .x = {{0, 1, 256, 256, 32}, {0, 1, 256, 256, 32}}},
    {.name = "mae @64x64x64",
     .op = OP_mae,
     .x = {{0, 64, 64, 64, 1}, {0, 64, 64, 64, 1}}},
    {.name = "mae @64x64x64 masked",
     .op = OP_mae,
     .x = {{0, 64, 64, 64, 1}, {0, 64, 64, 64, 1}, {0, 64, 64, 64, 1}}},
    {.name = "dvh_loss @32 10",
     .op = OP_dvh_loss,
     .x = {{0, 32, 32, 32, 1}, {0, 32, 32, 32, 1}, {0, 32, 32, 32, 10}}},
};

/* One thread is timed by its processor time, which a busy machine disturbs
 * less; several threads by the wall clock. */
static clockid_t clock_used = CLOCK_MONOTONIC;

static double now(void)
{
    return seconds(clock_used);
}

static void *need(size_t bytes)
{
    void *p = mem_alloc(bytes);
    if (p) return p;
    fprintf(stderr, "%s\n", err_text());
    exit(1);
}

// -- ceilings -----------------------------------------------------------------

typedef struct Ceiling {
    Pool *pool;
    char *from, *to;
    int tasks;
} Ceiling;

static void peak_task(void *ctx, int64_t task, int thread)
{
    (void)ctx, (void)task, (void)thread;
    simd()->peak(20000);
}

/* FLOP/s of multiply-adds in registers. */
static double peak(Pool *pool)
{
    // several tasks per thread, so that a thread that wakes late gets some
    int tasks = 8 * pool_threads(pool);
    double t = now();
    pool_run(pool, tasks, peak_task, NULL);
    return tasks * simd()->peak(0) * 20000 / (now() - t);
}

static void copy_task(void *ctx, int64_t task, int thread)
{
    const Ceiling *c = ctx;
    (void)thread;
    size_t part = COPY_BYTES / (size_t)c->tasks;
    memcpy(c->to + part * (size_t)task, c->from + part * (size_t)task, part);
}

static void print_ceilings(Pool *pool, int rounds)
{
    Ceiling c = {.from = need(COPY_BYTES), .to = need(COPY_BYTES), .tasks = 32};
    double one[ROUNDS_MAX], all[ROUNDS_MAX], copy[ROUNDS_MAX];
    memset(c.from, 1, COPY_BYTES);

    for (int r = 0; r < rounds; r++) {
        one[r] = peak(NULL);
        all[r] = peak(pool);
        double t = now();
        pool_run(pool, c.tasks, copy_task, &c);
        copy[r] = 2.0 * COPY_BYTES / (now() - t);
    }

    printf("%s, %d threads: multiply-adds %.0f GFLOP/s (1 thread %.0f), "
           "memcpy %.0f GB/s read + write\n",
           simd()->name, pool_threads(pool), median(all, rounds) * 1e-9,
           median(one, rounds) * 1e-9, median(copy, rounds) * 1e-9);
    mem_free(c.from);
    mem_free(c.to);
}

// -- one row ------------------------------------------------------------------

/* Memory and state of one row. */
typedef struct Bench {
    Call call;
    Attr attr;
    Step step;
    Tensor x[MAX_IN], dx[MAX_IN], y, dy;
    Tensor half[MAX_IN], half_dy;
} Bench;

static void fill(Tensor *t, Dims dim, uint32_t sample, bool positive)
{
    *t = (Tensor){.dim = dim, .type = F32, .rank = 2};
    t->data = need(tensor_bytes(t));
    Rng r = {.seed = 1, .stream = RNG_TEST, .sample = sample};
    float *p = t->data;
    for (int64_t i = 0; i < numel(dim); i += 4) {
        uint32_t word[4];
        rng_block(&r, (uint32_t)(i / 4), word);
        for (int k = 0; k < 4 && i + k < numel(dim); k++)
            p[i + k] = rng_unit(word[k]) - (positive ? 0 : 0.5f);
    }
}

static void set_window(Bench *b, const Row *row, int axis)
{
    static const char *const name[3][4] = {{"sd", "pd0", "pd1", "kd"},
                                           {"sh", "ph0", "ph1", "kh"},
                                           {"sw", "pw0", "pw1", "kw"}};
    const int value[4] = {row->stride, row->pad, row->pad, row->kernel};
    const OpInfo *info = &op_info[row->op];
    for (int i = 0; i < info->attrs; i++)
        for (int k = 0; k < 4; k++)
            if (value[k] && !strcmp(info->attr[i].name, name[axis][k]))
                b->attr.word[1 + i] = value[k];
}

/* Returns the copy of an operand in bf16. */
static const Tensor *copied(const Call *c, const Tensor *from, Tensor *to)
{
    *to = *from;
    to->type = BF16;
    to->data = need(tensor_bytes(to));
    backend_cpu.convert(&(Call){.dev = c->dev, .x = {from}, .y = to});
    return to;
}

/* Operand 1 of extents s contains whole numbers below this: classes, or lengths
 * of sequences; 0: any numbers. */
static int64_t whole_below(Op op, Dims x, Dims s)
{
    if (op_info[op].flags & LENGTHS) return x.w;
    return op_info[op].flags & LOSS && s.c == 1 && x.c > 1 ? x.c : 0;
}

static bool bench_open(const Row *row, int batch, bool bf16, Pool *pool,
                       Bench *b)
{
    *b = (Bench){.attr = op_default(row->op)};
    Call *c = &b->call;
    const bool is_dvh = row->op == OP_dvh_loss;

    for (int i = 0; i < MAX_IN; i++) {
        Dims s = row->x[i];
        if (!s.c) continue;
        if (!s.n) s.n = batch;
        fill(&b->x[i], s, (uint32_t)i, i > 0 && row->op != OP_conv);
        fill(&b->dx[i], s, 20, false);
        // a voxel is in one of twenty structures, most are in none
        float *m = b->x[i].data;
        for (int64_t k = 0; k < numel(s) && i == 2 && is_dvh; k++)
            m[k] = m[k] < 0.05f;
        int64_t below = i == 1 ? whole_below(row->op, b->x[0].dim, s) : 0;
        for (int64_t k = 0; k < numel(s) && below; k++)
            m[k] = (float)(int64_t)(m[k] * (float)below);
        c->x[i] = &b->x[i];
    }

    for (int i = 0; i < 3; i++) {
        const Dims s = b->x[0].dim;
        if ((i == 0 ? s.d : i == 1 ? s.h : s.w) > 1) set_window(b, row, i);
    }
    b->y = (Tensor){.type = F32, .rank = 2};
    if (!op_info[row->op].shape(&b->attr, b->x, &b->y)) return false;
    fill(&b->y, b->y.dim, 10, false);
    fill(&b->dy, b->y.dim, 11, false);
    c->attr = &b->attr, c->step = &b->step;
    c->y = &b->y, c->dy = &b->dy;
    c->dev = pool, c->threads = pool_threads(pool);
    c->train = true, c->fresh = ~0u;
    for (int i = 0; i < MAX_IN; i++) c->dx[i] = c->x[i] ? &b->dx[i] : NULL;

    if (bf16 && op_multiplies(row->op)) {
        c->precision = PRECISION_bf16;
        for (int i = 0; i < 2; i++)
            c->half.x[i] = copied(c, &b->x[i], &b->half[i]);
        c->half.dy = copied(c, &b->dy, &b->half_dy);
    }

    Space s = {0};
    if (backend_cpu.space[row->op]) s = backend_cpu.space[row->op](c);
    c->saved = need(s.saved);
    size_t most = s.fwd > s.bwd ? s.fwd : s.bwd;
    c->no_winograd = true;
    if (backend_cpu.space[row->op]) s = backend_cpu.space[row->op](c);
    c->no_winograd = false;
    if (s.fwd > most) most = s.fwd;
    c->scratch = need(s.bwd > most ? s.bwd : most);
    return true;
}

static void bench_close(Bench *b)
{
    for (int i = 0; i < MAX_IN; i++) {
        mem_free(b->x[i].data);
        mem_free(b->dx[i].data);
        mem_free(b->half[i].data);
    }
    mem_free(b->half_dy.data);
    mem_free(b->y.data);
    mem_free(b->dy.data);
    mem_free(b->call.saved);
    mem_free(b->call.scratch);
}

/* Returns the seconds of one pass: 0 forward, else backward for the operands in
 * wrt. */
static double run_pass(Bench *b, unsigned wrt, bool no_winograd)
{
    Call c = b->call;
    c.no_winograd = no_winograd;
    for (int i = 0; i < MAX_IN; i++)
        if (!(wrt >> i & 1)) c.dx[i] = NULL;
    double t = now();
    bool ok = wrt ? backend_cpu.bwd[call_op(&c)](&c)
                  : backend_cpu.fwd[call_op(&c)](&c);
    t = now() - t;
    if (!ok) fprintf(stderr, "%s\n", err_text());
    return t;
}

/* Returns the bytes that a pass must move: its operands, result, gradients. */
static double pass_bytes(const Bench *b, unsigned wrt)
{
    const OpInfo *info = &op_info[b->attr.op];
    double bytes = (double)tensor_bytes(&b->y);
    if (wrt && info->keep & KEEP_Y) bytes *= 2;
    for (int i = 0; i < MAX_IN; i++) {
        if (!b->x[i].data) continue;
        double size = (double)tensor_bytes(&b->x[i]);
        if (!wrt || info->keep & KEEP_X) bytes += size;
        if (wrt >> i & 1) bytes += size;
    }
    return bytes;
}

static void bench_row(const Row *row, int batch, bool bf16, int rounds,
                      Pool *pool)
{
    static const char *const pass_name[PASSES] = {"fwd", "bwd x", "bwd w"};
    Bench b;
    if (!bench_open(row, batch, bf16, pool, &b)) {
        fprintf(stderr, "%s: %s\n", row->name, err_text());
        return;
    }
    double flops = op_flops(&b.attr, b.x, &b.y);
    bool targets = op_info[row->op].flags & LOSS;
    // elementwise operators have one backward run for all operands
    unsigned wrt[PASSES] = {0, 1, 2};
    int passes = flops > 0 ? 3 : 2;
    if (!(flops > 0)) wrt[1] = targets ? 1 : b.x[1].data ? 7 : 1;
    if (row->op == OP_add || row->op == OP_concat) wrt[1] = 3;
    double time[PASSES][ROUNDS_MAX], share[PASSES][ROUNDS_MAX];
    double gain[PASSES][ROUNDS_MAX]; // over the direct sum in this round
    bool both = winograd_runs(&b.call);

    for (int r = -1; r < rounds; r++) {
        double top = flops > 0 ? peak(pool) : 1;
        for (int p = 0; p < passes; p++) {
            double t = run_pass(&b, wrt[p], false);
            double d = both ? run_pass(&b, wrt[p], true) : 0;
            if (r < 0) continue;
            time[p][r] = t;
            share[p][r] = flops / t / top;
            gain[p][r] = d / t;
        }
    }

    printf("%-28s", row->name);
    for (int p = 0; p < passes; p++) {
        double t = median(time[p], rounds);
        if (flops > 0)
            printf(" | %s %8.3f ms %4.0f GF/s %3.0f %%", pass_name[p], t * 1e3,
                   flops / t * 1e-9, 100 * median(share[p], rounds));
        if (both) printf(" x%.2f", median(gain[p], rounds));
        if (!(flops > 0))
            printf(" | %s %8.3f ms %5.1f GB/s", p ? "bwd" : "fwd", t * 1e3,
                   pass_bytes(&b, wrt[p]) / t * 1e-9);
    }

    printf("\n");
    fflush(stdout);
    bench_close(&b);
}

// ---- passes over all parameters ---------------------------------------------

/* A U-Net that begins with 64 channels and has five levels. */
enum { PARAMETERS = 31000000 };

static const struct {
    const char *name;
    OptimKind kind; /* OPTIM_COUNT: no update                */
    int arrays;     /* arrays read and written: bytes moved */
} walks[] = {
    {"update adamw 31 M", OPTIM_adamw, 7},
    {"update sgd 31 M", OPTIM_sgd, 5},
    {"blend 31 M", OPTIM_COUNT, 3},
    {"sum_squares 31 M", OPTIM_COUNT, 1},
};

enum { WALKS = sizeof walks / sizeof *walks, WALK_BLEND = 2 };

static void bench_walk(int which, int rounds, Pool *pool)
{
    Tensor t[4];
    double time[ROUNDS_MAX], squares;
    for (uint32_t i = 0; i < 4; i++)
        fill(&t[i], (Dims){1, 1, 1, 1, PARAMETERS}, i, i == 3);
    OptimKind kind = walks[which].kind;
    Optim o = optim_default(kind < OPTIM_COUNT ? kind : OPTIM_sgd);

    for (int r = -1; r < rounds; r++) {
        Update u = {.optim = &o,
                    .value = t[0].data,
                    .grad = t[1].data,
                    .m = t[2].data,
                    .v = t[3].data,
                    .count = PARAMETERS,
                    .step = r + 2,
                    .lr = 1e-3,
                    .decay = 1e-2,
                    .grad_scale = 1};
        double from = now();
        if (kind < OPTIM_COUNT)
            backend_cpu.update(pool, &u);
        else if (which == WALK_BLEND)
            backend_cpu.blend(pool, u.value, u.grad, u.count, 1e-3);
        else
            backend_cpu.sum_squares(pool, u.grad, u.count, &squares);
        if (r >= 0) time[r] = now() - from;
    }

    double middle = median(time, rounds);
    printf("%-28s | %8.3f ms %5.1f GB/s\n", walks[which].name, middle * 1e3,
           walks[which].arrays * 4e-9 * PARAMETERS / middle);
    for (int i = 0; i < 4; i++) mem_free(t[i].data);
}

/* Without names: every row. */
static bool is_wanted(const char *row, char **names, int count)
{
    for (int k = 0; k < count; k++)
        if (strstr(row, names[k])) return true;
    return count == 0;
}

int main(int argc, char **argv)
{
    int threads = pool_default_threads(), rounds = 15, batch = 4, names = 0;
    int bf16 = 0;

    for (int i = 1; i < argc; i++) {
        int *option = !strcmp(argv[i], "--threads")  ? &threads
                      : !strcmp(argv[i], "--rounds") ? &rounds
                      : !strcmp(argv[i], "--batch")  ? &batch
                      : !strcmp(argv[i], "--bf16")   ? &bf16
                                                     : NULL;
        if (!option) {
            argv[names++] = argv[i]; // the rest are names
        } else if (i + 1 == argc || (*option = atoi(argv[++i])) < 1) {
            fprintf(stderr, "%s takes a number from 1\n", argv[i]);
            return 2;
        }
    }

    if (rounds > ROUNDS_MAX) rounds = ROUNDS_MAX;
    Pool *pool;
    if (!simd_check() || !pool_open(threads, &pool)) {
        fprintf(stderr, "%s\n", err_text());
        return 1;
    }
    if (threads == 1) clock_used = CLOCK_PROCESS_CPUTIME_ID;
    print_ceilings(pool, rounds);
    printf("batch %d, medians of %d rounds\n", batch, rounds);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (is_wanted(rows[i].name, argv, names))
            bench_row(&rows[i], batch, bf16, rounds, pool);
    for (int i = 0; i < WALKS; i++)
        if (is_wanted(walks[i].name, argv, names)) bench_walk(i, rounds, pool);
    pool_close(pool);
    return 0;
}
