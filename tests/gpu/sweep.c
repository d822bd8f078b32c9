/* sweep.c -- times each convolution of a network alone, with each tile.
 *
 *     segengine SCRIPT.lua plan --json --batch 16 > NAME.json
 *     sweep [--rounds 9] [--flush MIB] [--seconds N] [--most N] NAME.json ...
 *
 * The shapes are read from the program's plan; a shape that several layers of a
 * network share is timed once. Writes a line of JSON for each shape, pass
 * (y, dx, dw) and tile: the median of --rounds launches by CUDA
 * events, in bf16, with 16-bit operands where a plan stores 16 bits. Before
 * each launch --flush MiB are copied, so that the cache holds no data of the
 * last launch. `chosen`: igemm_tile.cu's own choice of tile; a tile that cannot
 * compute a shape has no line. After --seconds the remaining shapes are listed
 * instead of timed. --most N times only the N smallest shapes of a network, to
 * try this program out under the emulator. tests/gpu/sweep.py makes the table
 * and times PyTorch. */
#include "cuda/conv/igemm_tile_choice.h"
#include "engine/backend/backend.h"
#include "engine/base/file.h"
#include "engine/base/json.h"
#include "tests/bench/timing.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern const Backend backend_cuda;

enum {
    SHAPES = 256,     // of a network
    ROUNDS_MAX = 101, // launches of a median
    WARM = 2,         // untimed launches before the first timed one
    PATTERN = 1 << 16,
    FILE_MAX = 16 << 20,
};

/* y, dx, dw: each is timed separately. */
typedef enum Pass { FORWARD, TO_DATA, TO_WEIGHTS, PASSES } Pass;
static const char *const pass_name[PASSES] = {"forward", "data", "weights"};

typedef struct Shape {
    const char *layer; // the first layer with this shape
    int layers, rank;  // layers: number of layers with this shape
    bool first_layer;  // dx is not computed
    Attr attr;
    Dims x, w, y;
} Shape;

static struct {
    int rounds, flush, most;
    double seconds, began;
} options = {.rounds = 9, .flush = 128, .most = SHAPES, .seconds = 1e9};

static const Backend *const be = &backend_cuda;
static void *dev;
static char *flush; // 2 * options.flush MiB: source and target of the copy

static void stop(const char *what)
{
    fprintf(stderr, "sweep: %s: %s\n", what, err_text());
    exit(1);
}

// -- shapes ------------------------------------------------------------------

static void numbers(const JsonValue *table, const char *name, int *out,
                    int count)
{
    const JsonValue *v = json_get(table, name);
    v = v ? v->first : NULL;
    for (int i = 0; i < count; i++, v = v->next) {
        if (!v) {
            fprintf(stderr, "sweep: no %s of %d numbers\n", name, count);
            exit(1);
        }
        out[i] = atoi(v->text);
    }
}

static int number(const JsonValue *table, const char *name)
{
    const JsonValue *v = json_get(table, name);
    return v ? atoi(v->text) : 0;
}

static Shape shape_of(const JsonValue *v, int batch)
{
    int x[4], y[4], w[5], s[3], lo[3], hi[3], dil[3];
    const JsonValue *first_layer = json_get(v, "first_layer");
    const JsonValue *op = json_get(v, "op"), *name = json_get(v, "name");

    if (!op || !name || op_find(op->text) == OP_COUNT) {
        fprintf(stderr, "sweep: a shape without its operator or name\n");
        exit(1);
    }
    Shape out = {.layer = name->text,
                 .layers = 1,
                 .rank = number(v, "rank"),
                 .first_layer = first_layer && first_layer->kind == JSON_TRUE,
                 .attr = op_default(op_find(op->text))};
    numbers(v, "x", x, 4), numbers(v, "y", y, 4), numbers(v, "w", w, 5);
    numbers(v, "stride", s, 3), numbers(v, "dilation", dil, 3);
    numbers(v, "lo", lo, 3), numbers(v, "hi", hi, 3);
    out.x = (Dims){batch, x[0], x[1], x[2], x[3]};
    out.y = (Dims){batch, y[0], y[1], y[2], y[3]};
    out.w = (Dims){w[0], w[1], w[2], w[3], w[4]};

    // conv and upconv have the same attributes in the same order
    Attr *a = &out.attr;
    a->conv.sd = s[0], a->conv.sh = s[1], a->conv.sw = s[2];
    a->conv.pd0 = lo[0], a->conv.ph0 = lo[1], a->conv.pw0 = lo[2];
    a->conv.pd1 = hi[0], a->conv.ph1 = hi[1], a->conv.pw1 = hi[2];
    a->conv.dd = dil[0], a->conv.dh = dil[1], a->conv.dw = dil[2];
    a->conv.groups = number(v, "groups");
    return out;
}

static double flops_of(const Shape *s)
{
    const Tensor x[MAX_IN] = {{s->x, F32, s->rank, NULL},
                              {s->w, F32, s->rank, NULL}};
    const Tensor y = {s->y, F32, s->rank, NULL};
    return op_flops(&s->attr, x, &y);
}

static int by_flops(const void *a, const void *b)
{
    const double x = flops_of(a), y = flops_of(b);
    return (x > y) - (x < y);
}

/* Reads the distinct convolutions of a plan and returns their number. */
static int shapes_of(const char *path, Arena *mem, Shape out[SHAPES])
{
    char *text;
    size_t bytes;
    JsonValue *plan;
    int count = 0;

    if (!file_read(path, FILE_MAX, mem, &text, &bytes) ||
        !json_parse(text, path, mem, &plan))
        stop(path);
    const JsonValue *list = json_get(plan, "convolutions");
    const int batch = number(plan, "batch");
    if (!list || !list->first || batch < 1) {
        fprintf(stderr, "sweep: %s: no convolutions of a batch\n", path);
        exit(1);
    }

    for (const JsonValue *v = list->first; v; v = v->next) {
        Shape one = shape_of(v, batch);
        int i = 0;
        while (i < count &&
               (memcmp(&out[i].attr, &one.attr, sizeof one.attr) ||
                !dims_equal(out[i].x, one.x) || !dims_equal(out[i].w, one.w) ||
                out[i].first_layer != one.first_layer))
            i++;
        if (i < count)
            out[i].layers++;
        else if (count < SHAPES)
            out[count++] = one;
    }

    if (options.most >= count) return count;
    qsort(out, (size_t)count, sizeof *out, by_flops);
    return options.most;
}

// -- one convolution ---------------------------------------------------------

/* Returns device memory filled with numbers: zeros would take less power. */
static void *filled(Dims s, Dtype type)
{
    static uint16_t pattern[PATTERN];
    const size_t bytes = (size_t)numel(s) * dtype_bytes(type);
    void *out;

    if (!pattern[0])
        for (int i = 0; i < PATTERN; i++) // in pseudo-random order
            pattern[i] = precision_bits(PRECISION_bf16,
                                        (i * 40503u % 65521u) / 32768.0 - 1);
    if (!be->alloc(dev, bytes, &out)) stop("memory");
    size_t done = bytes < sizeof pattern ? bytes : sizeof pattern;
    if (!be->upload(dev, out, pattern, done)) stop("memory");
    for (size_t more; done < bytes; done += more) {
        more = bytes - done < done ? bytes - done : done;
        if (!be->copy(dev, (char *)out + done, out, more)) stop("memory");
    }
    return out;
}

/* A tensor of a plan and its 16-bit form: the tensor itself, or, when the
 * number of channels is no multiple of a pack, a 16-bit copy of the f32 tensor.
 */
typedef struct Side {
    Tensor whole, half;
    bool copied;
} Side;

static void side_of(Side *s, Dims dim, int rank, bool narrow)
{
    s->copied = !narrow || dim.c % NARROW_CHANNELS;
    s->half = (Tensor){dim, BF16, rank, filled(dim, BF16)};
    s->whole = s->half;
    if (!s->copied) return;
    s->whole.type = F32;
    s->whole.data = filled(dim, F32);
}

static void side_free(const Side *s)
{
    if (s->copied) be->release(dev, s->whole.data);
    be->release(dev, s->half.data);
}

/* A call with its tensors. */
typedef struct Work {
    Side x, w, y, dy, dx;
    Tensor dw;
    Call call;
} Work;

static void work_open(Work *k, const Shape *s)
{
    const Tensor x = {s->x, F32, s->rank, NULL}, w = {s->w, F32, s->rank, NULL};
    const Tensor y = {s->y, F32, s->rank, NULL};
    memset(k, 0, sizeof *k);
    k->call = (Call){.attr = &s->attr,
                     .dev = dev,
                     .threads = 1,
                     .train = true,
                     .fresh = 3,
                     .precision = PRECISION_bf16,
                     .x = {&x, &w},
                     .y = &y};
    const unsigned narrow = be->storage(&k->call).narrow;
    side_of(&k->x, s->x, s->rank, narrow & 1);
    side_of(&k->w, s->w, s->rank, false);
    side_of(&k->y, s->y, s->rank, narrow & NARROW_Y);
    side_of(&k->dy, s->y, s->rank, narrow & NARROW_Y);
    side_of(&k->dx, s->x, s->rank, narrow & 1);
    k->dw = (Tensor){s->w, F32, s->rank, filled(s->w, F32)};
    k->call.x[0] = &k->x.whole, k->call.x[1] = &k->w.whole;
    k->call.y = &k->y.whole;
    if (k->x.copied) k->call.half.x[0] = &k->x.half;
    k->call.half.x[1] = &k->w.half;
}

static void work_close(Work *k)
{
    const Side *side[] = {&k->x, &k->w, &k->y, &k->dy, &k->dx};
    for (size_t i = 0; i < sizeof side / sizeof *side; i++) side_free(side[i]);
    be->release(dev, k->dw.data);
}

/* Returns the call of a pass: y without gradients, else with one. */
static Call call_of(const Work *k, Pass pass)
{
    Call c = k->call;
    if (pass == FORWARD) return c;
    c.dy = &k->dy.whole;
    if (k->dy.copied) c.half.dy = &k->dy.half;
    c.dx[pass == TO_DATA ? 0 : 1] = pass == TO_DATA ? &k->dx.whole : &k->dw;
    return c;
}

/* Returns the milliseconds of a call with `tile`; below 0 when the call does
 * not take this tile. */
static double time_call(const Work *k, Pass pass, int tile)
{
    double ms[ROUNDS_MAX];
    Call c = call_of(k, pass);
    const Op op = call_op(&c);
    KernelFn *run = pass == FORWARD ? be->fwd[op] : be->bwd[op];

    igemm_tile_want(tile);
    const Space space = be->space[op](&c);
    const size_t bytes = pass == FORWARD ? space.fwd : space.bwd;
    if (!be->alloc(dev, bytes, &c.scratch)) stop("scratch");
    for (int i = 0; i < WARM; i++)
        if (!run(&c)) stop(pass_name[pass]);
    const bool taken = tile == TILE_ANY || igemm_tile_taken() == tile;
    const size_t half = (size_t)options.flush << 20;
    for (int i = 0; taken && i < options.rounds; i++)
        if ((half && !be->copy(dev, flush + half, flush, half)) ||
            !be->mark(dev, 2 * i) || !run(&c) || !be->mark(dev, 2 * i + 1))
            stop(pass_name[pass]);
    if (!be->sync(dev)) stop(pass_name[pass]);
    for (int i = 0; taken && i < options.rounds; i++)
        if (!be->elapsed(dev, 2 * i, &ms[i])) stop(pass_name[pass]);
    igemm_tile_want(TILE_ANY);
    be->release(dev, c.scratch);
    return taken ? median(ms, options.rounds) : -1;
}

// -- output ------------------------------------------------------------------

static void put_list(const char *name, const int *v, int count)
{
    printf("\"%s\": [", name);
    for (int i = 0; i < count; i++) printf("%s%d", i ? ", " : "", v[i]);
    printf("], ");
}

static void put_dims(const char *name, Dims s)
{
    put_list(name, (const int[]){s.n, s.d, s.h, s.w, s.c}, 5);
}

/* Writes the fields of a line that describe the shape. */
static void put_shape(const char *net, const Shape *s, Pass pass)
{
    const Tensor w = {s->w, F32, s->rank, NULL};
    const Window g = op_window(&s->attr, &w);
    printf("{\"net\": \"%s\", \"layer\": \"%s\", \"layers\": %d, "
           "\"op\": \"%s\", \"rank\": %d, ",
           net, s->layer, s->layers, op_info[s->attr.op].name, s->rank);
    put_dims("x", s->x), put_dims("w", s->w), put_dims("y", s->y);
    put_list("stride", g.s, 3), put_list("dilation", g.dil, 3);
    put_list("lo", g.lo, 3), put_list("hi", g.hi, 3);
    printf("\"groups\": %d, \"pass\": \"%s\", \"gflop\": %.9g", g.groups,
           pass_name[pass], flops_of(s) / 1e9);
}

static void time_pass(const char *net, const Shape *s, const Work *k, Pass pass)
{
    (void)igemm_tile_taken();
    if (time_call(k, pass, TILE_ANY) < 0) return;
    const int chosen = igemm_tile_taken();
    // wgrad has no choice of tiles
    const int last = pass == TO_WEIGHTS ? 0 : igemm_tile_count();

    for (int i = 0; i <= last; i++) {
        const int tile = i ? i : TILE_NONE;
        const double ms = time_call(k, pass, tile);
        if (ms < 0) continue;
        put_shape(net, s, pass);
        printf(", \"tile\": \"%s\", \"chosen\": %s, \"ms\": %.6g}\n",
               igemm_tile_name(tile), tile == chosen ? "true" : "false", ms);
        (void)fflush(stdout);
    }
}

/* Returns whether --seconds are over; then lists the shape as not timed. */
static bool out_of_time(const char *net, const Shape *s)
{
    if (seconds(CLOCK_MONOTONIC) - options.began < options.seconds)
        return false;
    printf("{\"net\": \"%s\", \"layer\": \"%s\", \"not_run\": \"no time "
           "left\"}\n",
           net, s->layer);
    return true;
}

static void sweep(const char *path)
{
    static Shape shape[SHAPES];
    Arena mem = {NULL};
    const char *slash = strrchr(path, '/');
    char net[64];

    snprintf(net, sizeof net, "%s", slash ? slash + 1 : path);
    net[strcspn(net, ".")] = 0;
    const int count = shapes_of(path, &mem, shape);

    for (int i = 0; i < count; i++) {
        Work k;
        if (out_of_time(net, &shape[i])) continue;
        work_open(&k, &shape[i]);
        for (int pass = 0; pass < PASSES; pass++)
            if (pass != TO_DATA || !shape[i].first_layer)
                time_pass(net, &shape[i], &k, (Pass)pass);
        work_close(&k);
    }
    arena_release(&mem);
}

int main(int argc, char **argv)
{
    int at = 1;
    for (; at + 1 < argc && argv[at][0] == '-'; at += 2) {
        const char *name = argv[at];
        const int value = atoi(argv[at + 1]);
        if (!strcmp(name, "--rounds") && value > 0 && value <= ROUNDS_MAX)
            options.rounds = value;
        else if (!strcmp(name, "--flush") && value >= 0)
            options.flush = value;
        else if (!strcmp(name, "--seconds"))
            options.seconds = value;
        else if (!strcmp(name, "--most") && value > 0)
            options.most = value;
        else
            break;
    }

    if (at >= argc || argv[at][0] == '-') {
        fprintf(stderr, "usage: sweep [--rounds N] [--flush MIB] "
                        "[--seconds N] [--most N] NAME.json ...\n");
        return 2;
    }

    if (!be->open(0, 1, &dev)) stop("no GPU");
    if (!be->alloc(dev, (size_t)options.flush << 21, (void **)&flush))
        stop("memory");
    options.began = seconds(CLOCK_MONOTONIC);
    for (; at < argc; at++) sweep(argv[at]);
    be->release(dev, flush);
    be->close(dev);
    return 0;
}
