/* lens.c -- values that are stored before their norm, on the emulated device:
 * what a lazy convolution leaves, what a lens shows of it, and the way back.
 * Which values a plan has so is in plan_lazy.c. */
#include "check/oprun.h"
#include "emu_control.h"
#include "given.h"
#include "rng.h"
#include <math.h>

extern const Backend backend_cuda;

enum { MOST = 32 };

/* A device and what was allocated on it. */
typedef struct Bench {
    OpDevice d;
    Precision precision;
    void *block[MOST];
    int blocks;
    uint32_t draws;
} Bench;

static void bench_open(Bench *b, Precision p)
{
    *b = (Bench){.precision = p};
    REQUIRE(opdevice_open(&backend_cuda, 1, &b->d));
}

static void bench_close(Bench *b)
{
    for (int i = 0; i < b->blocks; i++)
        backend_cuda.release(b->d.dev, b->block[i]);
    opdevice_close(&b->d);
}

static void *bytes_of(Bench *b, size_t bytes)
{
    void *p = NULL;
    REQUIRE(b->blocks < MOST);
    REQUIRE(backend_cuda.alloc(b->d.dev, bytes, &p));
    return b->block[b->blocks++] = p;
}

static Tensor tensor_of(Bench *b, Dims dim, Dtype type)
{
    Tensor t = {dim, type, RANK_MAX, NULL};
    t.data = bytes_of(b, tensor_bytes(&t));
    return t;
}

static void read_tensor(Bench *b, const Tensor *t, double *out)
{
    Tensor host = *t;
    host.data = mem_alloc(tensor_bytes(t));
    REQUIRE(host.data && backend_cuda.download(b->d.dev, host.data, t->data,
                                               tensor_bytes(t)));
    for (int64_t i = 0; i < numel(t->dim); i++) out[i] = tensor_get(&host, i);
    mem_free(host.data);
}

/* Values lo .. hi. */
static Tensor drawn(Bench *b, Dims dim, Dtype type, float lo, float hi)
{
    Tensor t = tensor_of(b, dim, type), host = t;
    const Rng r = {.seed = 11, .stream = RNG_TEST, .sample = b->draws++};
    host.data = mem_alloc(tensor_bytes(&t));
    REQUIRE(host.data);
    for (int64_t i = 0; i < numel(dim); i++)
        tensor_set(&host, i, (double)rng_range(&r, (uint32_t)i, lo, hi));
    REQUIRE(backend_cuda.upload(b->d.dev, t.data, host.data, tensor_bytes(&t)));
    mem_free(host.data);
    return t;
}

/* The same bits, which are no NaN. */
static void same(Bench *b, const Tensor *p, const Tensor *q)
{
    const int64_t count = numel(p->dim);
    double *v = mem_alloc((size_t)(2 * count) * sizeof *v);
    REQUIRE(v);
    read_tensor(b, p, v);
    read_tensor(b, q, v + count);
    for (int64_t i = 0; i < count; i++) {
        EXPECT_NEAR(v[i], v[count + i], 0);
        if (v[i] != v[count + i]) break;
    }
    mem_free(v);
}

/* Run it, forward or back, with garbage as scratch. */
static void run(Bench *b, Call *c)
{
    const Op op = (Op)c->attr->op;
    static const Step step = {.seed = 3, .count = 5};
    c->dev = b->d.dev, c->threads = 1, c->train = true, c->step = &step;
    c->precision = op_multiplies(op) ? b->precision : PRECISION_f32;
    Space s = {0};
    if (backend_cuda.space[op]) s = backend_cuda.space[op](c);
    if (!c->saved && s.saved) c->saved = bytes_of(b, s.saved);
    const size_t bytes = c->dy ? s.bwd : s.fwd;
    c->scratch = bytes ? drawn(b, (Dims){1, 1, 1, 1, (int32_t)(bytes / 4 + 1)},
                               F32, -9, 9)
                             .data
                       : NULL;
    REQUIRE(backend_cuda.begin(b->d.dev, &step));
    REQUIRE((c->dy ? backend_cuda.bwd : backend_cuda.fwd)[op](c));
    REQUIRE(backend_cuda.sync(b->d.dev));
}

/* A norm and the activation behind it (NULL: none), of `channels`. */
typedef struct Behind {
    Attr norm, then;
    Tensor x[MAX_IN], dx[MAX_IN]; // gamma, beta, running mean and variance
    Tensor bias;                  // of the convolution
    Lens lens;
} Behind;

static void behind(Bench *b, Behind *h, int channels, Op then)
{
    const Dims s = {1, 1, 1, 1, channels};
    h->norm = op_default(OP_batch_norm), h->then = op_default(then);
    h->x[1] = drawn(b, s, F32, -2, 2), h->x[2] = drawn(b, s, F32, -1, 1);
    h->x[3] = drawn(b, s, F32, -1, 1), h->x[4] = drawn(b, s, F32, 1, 2);
    for (int k = 1; k <= 2; k++) h->dx[k] = tensor_of(b, s, F32);
    h->lens = (Lens){&h->norm, op_info[then].in == 1 ? &h->then : NULL, NULL};
}

/* y of a convolution of x, left before `h`; *c is its call, whose y is to be
 * set again. */
static Tensor lazy(Bench *b, const Attr *attr, const Tensor *x, const Tensor *w,
                   Behind *h, Call *c)
{
    Tensor in[MAX_IN] = {*x, *w}, y;
    REQUIRE(op_shape(attr, in, &y));
    y = tensor_of(b, y.dim, precision_copy(b->precision));
    behind(b, h, y.dim.c, OP_leaky_relu);
    h->bias = drawn(b, h->x[1].dim, F32, -1, 1);
    *c = (Call){.attr = attr,
                .norm = &h->norm,
                .then = h->lens.then,
                .lazy = true,
                .x = {x, w, &h->bias},
                .y = &y};
    for (int k = 1; k <= 4; k++) c->norm_x[k] = &h->x[k];
    run(b, c);
    h->lens.saved = c->saved;
    return y;
}

/* What a lens shows of y: the largest of windows of one. */
static Tensor shown(Bench *b, const Tensor *y, const Behind *h)
{
    Attr pool = op_default(OP_maxpool);
    pool.maxpool.kd = pool.maxpool.kh = pool.maxpool.kw = 1;
    pool.maxpool.sd = pool.maxpool.sh = pool.maxpool.sw = 1;
    Tensor out = tensor_of(b, y->dim, y->type);
    run(b, &(Call){.attr = &pool, .x = {y}, .y = &out, .lens = {&h->lens}});
    return out;
}

/* A convolution whose operand is looked at, and what its result is made of. */
typedef struct Shape {
    Op op;
    Dims x, w; // w: B, k, k, k, A
    int stride, pad, groups;
} Shape;

static const Shape shapes[] = {
    {OP_conv, {2, 1, 16, 16, 32}, {32, 1, 3, 3, 32}, 1, 1, 1},
    {OP_conv, {1, 1, 21, 13, 72}, {40, 1, 3, 3, 72}, 1, 1, 1},
    {OP_conv, {2, 1, 15, 17, 24}, {16, 1, 3, 3, 24}, 2, 1, 1},
    {OP_conv, {1, 5, 7, 6, 16}, {24, 3, 3, 3, 16}, 1, 1, 1},
    {OP_conv, {1, 8, 8, 8, 8}, {8, 4, 4, 4, 8}, 2, 1, 1},
    {OP_conv, {3, 1, 9, 9, 40}, {64, 1, 1, 1, 40}, 1, 0, 1},
    {OP_conv, {2, 1, 8, 8, 32}, {32, 1, 3, 3, 16}, 1, 1, 2},
    {OP_conv, {1, 1, 2, 2, 512}, {64, 1, 3, 3, 512}, 1, 1, 1}, // segments
    {OP_upconv, {2, 1, 7, 9, 32}, {32, 1, 2, 2, 16}, 2, 0, 1},
    {OP_conv, {1, 1, 9, 8, 8}, {12, 1, 3, 3, 8}, 1, 1, 1},    // given a copy
    {OP_conv, {1, 1, 12, 12, 16}, {1, 1, 1, 1, 16}, 1, 0, 1}, // few.cu
    {OP_conv, {2, 1, 9, 13, 40}, {2, 1, 1, 1, 40}, 1, 0, 1},
    {OP_linear, {3, 1, 1, 37, 32}, {3, 1, 1, 1, 32}, 1, 0, 1},
    {OP_conv, {1, 3, 5, 7, 72}, {7, 1, 1, 1, 72}, 1, 0, 1},
    {OP_conv, {1, 1, 11, 6, 256}, {8, 1, 1, 1, 256}, 1, 0, 1},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static Attr attr_of(const Shape *s)
{
    Attr a = op_default(s->op);
    const bool deep = s->w.d > 1 && s->op == OP_conv;
    if (s->op == OP_conv) {
        a.conv.sd = deep ? s->stride : 1, a.conv.sh = a.conv.sw = s->stride;
        a.conv.pd0 = a.conv.pd1 = deep ? s->pad : 0;
        a.conv.ph0 = a.conv.ph1 = a.conv.pw0 = a.conv.pw1 = s->pad;
        a.conv.groups = s->groups;
    } else if (s->op == OP_upconv) {
        a.upconv.sd = 1, a.upconv.sh = a.upconv.sw = s->stride;
    }
    return a;
}

/* The same bits through a lens and of what it shows: y, dx and dw. */
static void looks(Precision p, const Shape *s)
{
    Bench b;
    Behind h;
    Call made;
    bench_open(&b, p);
    const Dtype type = precision_copy(p);
    const Attr first = op_default(OP_linear), attr = attr_of(s);
    // a product of rows, as any convolution is
    const int64_t rows = s->x.n * positions(s->x);
    Tensor x = drawn(&b, (Dims){(int32_t)rows, 1, 1, 1, 8}, type, -1, 1);
    Tensor w = drawn(&b, (Dims){s->x.c, 1, 1, 1, 8}, type, -1, 1);
    Tensor y = lazy(&b, &first, &x, &w, &h, &made);
    y.dim = s->x;
    const Tensor seen = shown(&b, &y, &h), w2 = drawn(&b, s->w, type, -1, 1);
    Tensor in[MAX_IN] = {y, w2}, z;
    REQUIRE(op_shape(&attr, in, &z));
    const bool narrow = z.dim.c % NARROW_CHANNELS == 0;
    Tensor out[2], dx[2], dw[2];
    const Tensor dz = drawn(&b, z.dim, narrow ? type : F32, -1, 1);
    const Tensor half = drawn(&b, z.dim, type, -1, 1);
    for (int i = 0; i < 2; i++) {
        out[i] = tensor_of(&b, z.dim, narrow ? type : F32);
        dx[i] = tensor_of(&b, y.dim, type);
        dw[i] = tensor_of(&b, s->w, F32);
        Call c = {.attr = &attr, .x = {i ? &seen : &y, &w2}, .y = &out[i]};
        if (!i) c.lens[0] = &h.lens;
        run(&b, &c);
        c.dy = &dz, c.dx[0] = &dx[i], c.dx[1] = &dw[i], c.fresh = 3;
        if (!narrow) c.half_dy = &half;
        run(&b, &c);
    }
    same(&b, &out[0], &out[1]);
    same(&b, &dx[0], &dx[1]);
    same(&b, &dw[0], &dw[1]);
    bench_close(&b);
}

TEST(lens_shows_products_what_it_shows)
{
    for (int i = 0; i < SHAPES; i++) looks(PRECISION_bf16, &shapes[i]);
    looks(PRECISION_f16, &shapes[1]);
    looks(PRECISION_f16, &shapes[8]);
    for (int i = 9; i < SHAPES; i++) looks(PRECISION_f16, &shapes[i]);
}

/* Of channel c of y: mean and variance of what is stored. */
static void moments(const double *y, int64_t rows, int channels, int c,
                    double *mean, double *var)
{
    *mean = *var = 0;
    for (int64_t r = 0; r < rows; r++) *mean += y[r * channels + c];
    *mean /= (double)rows;
    for (int64_t r = 0; r < rows; r++) {
        const double d = y[r * channels + c] - *mean;
        *var += d * d;
    }
    *var /= (double)rows;
}

/* A lens shows norm and activation of what is stored, rounded once; the running
 * statistics have moved. `after`: they are measured when all is stored. */
static void shows(Precision p, const Shape *s, bool after)
{
    enum { C = 72 };
    static double k[MAX_IN][C], moved[2][C];
    Bench b;
    Behind h;
    Call made;
    bench_open(&b, p);
    const Dtype type = precision_copy(p);
    Attr attr = attr_of(s);
    const bool few = s->x.c % NARROW_CHANNELS;
    Tensor x = drawn(&b, s->x, few ? F32 : type, 0.5f, 1);
    Tensor w = drawn(&b, s->w, type, -1, 1);
    emu_reset_counts();
    Tensor out = lazy(&b, &attr, &x, &w, &h, &made);
    EXPECT_INT(emu_launch_count("stats_kernel"), after);
    const int channels = out.dim.c;
    const int64_t rows = numel(out.dim) / channels;
    double *y = mem_alloc((size_t)(2 * numel(out.dim)) * sizeof *y);
    double *seen = y + numel(out.dim);
    REQUIRE(y && channels <= C);
    const Tensor shown_now = shown(&b, &out, &h);
    read_tensor(&b, &out, y);
    read_tensor(&b, &shown_now, seen);
    for (int i = 1; i <= 2; i++) read_tensor(&b, &h.x[i], k[i]);
    for (int i = 0; i < 2; i++) read_tensor(&b, &h.x[3 + i], moved[i]);
    // half of what the last digit is worth, relative
    const double unit = p == PRECISION_bf16 ? 0x1p-8 : 0x1p-11;
    for (int c = 0; c < channels; c++) {
        double mean, var, most = 0;
        moments(y, rows, channels, c, &mean, &var);
        const double scale = k[1][c] / sqrt(var + 1e-5);
        for (int64_t r = 0; r < rows; r++) {
            double v = (y[r * channels + c] - mean) * scale + k[2][c];
            if (v <= 0) v *= (double)h.then.leaky_relu.slope;
            // ... and what floats lose on the way
            const double far = unit * fabs(v) + 1e-6 * (1 + fabs(mean * scale));
            const double off = fabs(seen[r * channels + c] - v);
            if (off > far && off > most) most = off;
        }
        EXPECT_NEAR(most, 0, 0);
        // from what was -1 .. 1 and 1 .. 2, momentum 0.1
        const double n = (double)rows;
        EXPECT(fabs(moved[0][c] - 0.1 * mean) < 0.9001);
        const double rest = moved[1][c] - 0.1 * var * n / (n - 1);
        EXPECT(rest > 0.8999 && rest < 1.8001);
    }
    mem_free(y);
    bench_close(&b);
}

TEST(lens_shows_the_norm_of_what_is_stored)
{
    for (int i = 0; i < SHAPES; i++) {
        const Shape *s = &shapes[i];
        // the sum of one of few positions goes by parts, and classes of an
        // upconv by themselves
        const bool after = i == 7 || s->op == OP_upconv;
        if (s->w.n % NARROW_CHANNELS) continue;
        shows(PRECISION_bf16, s, after);
        if (i % 3 == 0) shows(PRECISION_f16, s, after);
    }
}

/* Likewise of few channels, which are as they were: entrance.cu. */
TEST(lens_shows_the_norm_behind_few_channels)
{
    static const Shape first[] = {
        {OP_conv, {2, 1, 21, 13, 1}, {32, 1, 3, 3, 1}, 1, 1, 1},
        {OP_conv, {1, 7, 9, 6, 2}, {64, 3, 3, 3, 2}, 1, 1, 1},
        {OP_conv, {1, 1, 15, 17, 3}, {24, 1, 4, 4, 3}, 2, 1, 1},
        {OP_conv, {1, 1, 1, 3, 4}, {8, 1, 1, 1, 4}, 1, 0, 1},
        // warps that make more than one piece
        {OP_conv, {1, 1, 259, 517, 1}, {8, 1, 1, 1, 1}, 1, 0, 1},
    };
    for (int i = 0; i < 5; i++) {
        emu_reset_counts();
        shows(i % 2 ? PRECISION_f16 : PRECISION_bf16, &first[i], false);
        EXPECT_INT(emu_launch_count("entrance_kernel"), 1);
    }
}

/* Back through a lazy convolution: the bits of norm, activation and
 * convolution apart, of dx, dw, dgamma and dbeta, stored and added. */
TEST(lens_way_back)
{
    enum { C = 16 };
    for (int add = 0; add < 2; add++) {
        Bench b;
        Behind h;
        Call c;
        bench_open(&b, PRECISION_bf16);
        Attr conv = attr_of(&shapes[0]);
        Tensor x = drawn(&b, (Dims){2, 1, 9, 11, 8}, BF16, -1, 1);
        Tensor w = drawn(&b, (Dims){C, 1, 3, 3, 8}, BF16, -1, 1);
        Tensor y = lazy(&b, &conv, &x, &w, &h, &c), dx[2], dw[2], dk[2][3];
        Tensor slope[2];
        for (int i = 0; i < 2; i++) {
            b.draws = 100; // the same for both
            dx[i] = drawn(&b, x.dim, BF16, -1, 1);
            dw[i] = drawn(&b, w.dim, F32, -1, 1);
            for (int k = 1; k <= 2; k++)
                dk[i][k] = drawn(&b, h.x[k].dim, F32, -1, 1);
            slope[i] = drawn(&b, y.dim, BF16, -1, 1);
        }
        c.y = &y, c.dy = &slope[0], c.dx[0] = &dx[0], c.dx[1] = &dw[0];
        for (int k = 1; k <= 2; k++) c.norm_dx[k] = &dk[0][k];
        c.fresh = add ? 0 : ~0u;
        run(&b, &c);
        // apart, with the same statistics
        Call norm = {.attr = &h.norm, .then = h.lens.then, .y = &y};
        norm.x[0] = &y, norm.saved = c.saved;
        for (int k = 1; k <= 4; k++) norm.x[k] = &h.x[k];
        norm.dy = norm.dx[0] = &slope[1], norm.fresh = add ? 1 : ~0u;
        for (int k = 1; k <= 2; k++) norm.dx[k] = &dk[1][k];
        run(&b, &norm);
        Call plain = {.attr = &conv, .x = {&x, &w}, .y = &y};
        plain.dy = &slope[1], plain.dx[0] = &dx[1], plain.dx[1] = &dw[1];
        plain.fresh = add ? 0 : ~0u;
        run(&b, &plain);
        same(&b, &dx[0], &dx[1]);
        same(&b, &dw[0], &dw[1]);
        for (int k = 1; k <= 2; k++) same(&b, &dk[0][k], &dk[1][k]);
        bench_close(&b);
    }
}

/* Rows of p are the channels of rows of q from `from` on: the same bits. */
static void same_part(Bench *b, const Tensor *p, const Tensor *q, int from)
{
    const int64_t rows = numel(p->dim) / p->dim.c;
    double *v = mem_alloc((size_t)numel(p->dim) * sizeof *v);
    double *w = mem_alloc((size_t)numel(q->dim) * sizeof *w);
    REQUIRE(v && w);
    read_tensor(b, p, v);
    read_tensor(b, q, w);
    int64_t off = 0;
    for (int64_t r = 0; r < rows; r++)
        for (int c = 0; c < p->dim.c; c++)
            off += v[r * p->dim.c + c] != w[r * q->dim.c + from + c];
    EXPECT_INT(off, 0);
    mem_free(v);
    mem_free(w);
}

/* A convolution of a concat that is not made: the bits of one of the concat,
 * y, both gradients and dw, whichever of its operands are seen through a
 * lens and whichever gradient is wanted. */
static void beside(const Shape *s, int first, int how)
{
    Bench b;
    Behind h;
    Call made;
    bench_open(&b, PRECISION_bf16);
    const Attr linear = op_default(OP_linear), attr = attr_of(s);
    const Attr concat = op_default(OP_concat);
    Dims one = s->x, two = s->x;
    one.c = first, two.c -= first;
    const bool far = how & 1, dx0 = !(how & 2), dx1 = !(how & 4);
    const Dims seen = far ? two : one, rest = far ? one : two;
    const int32_t rows = (int32_t)(seen.n * positions(seen));
    Tensor x = drawn(&b, (Dims){rows, 1, 1, 1, 8}, BF16, -1, 1);
    Tensor w = drawn(&b, (Dims){seen.c, 1, 1, 1, 8}, BF16, -1, 1);
    Tensor y = lazy(&b, &linear, &x, &w, &h, &made);
    y.dim = seen;
    const Tensor other = drawn(&b, rest, BF16, -1, 1);
    const Tensor w2 = drawn(&b, s->w, BF16, -1, 1);
    const Tensor whole = tensor_of(&b, s->x, BF16);
    const Tensor *part[2] = {far ? &other : &y, far ? &y : &other};
    Call join = {.attr = &concat, .x = {part[0], part[1]}, .y = &whole};
    join.lens[far] = &h.lens;
    run(&b, &join);
    Tensor in[MAX_IN] = {whole, w2}, z;
    REQUIRE(op_shape(&attr, in, &z));
    Tensor out[2], dw[2], dx[3];
    const Tensor dz = drawn(&b, z.dim, BF16, -1, 1);
    for (int i = 0; i < 2; i++) {
        out[i] = tensor_of(&b, z.dim, BF16);
        dw[i] = tensor_of(&b, s->w, F32);
    }
    dx[0] = tensor_of(&b, one, BF16), dx[1] = tensor_of(&b, two, BF16);
    dx[2] = tensor_of(&b, s->x, BF16);
    Call c = {.attr = &attr, .x = {part[0], &w2}, .y = &out[0]};
    c.x[BESIDE] = part[1], c.lens[far ? BESIDE : 0] = &h.lens;
    EXPECT(backend_cuda.beside(&(Call){.attr = &attr,
                                       .precision = b.precision,
                                       .x = {c.x[0], &w2, [BESIDE] = part[1]},
                                       .y = &out[0]}));
    run(&b, &c);
    c.dy = &dz, c.dx[1] = &dw[0], c.fresh = ~0u;
    c.dx[0] = dx0 ? &dx[0] : NULL, c.dx[BESIDE] = dx1 ? &dx[1] : NULL;
    run(&b, &c);
    Call plain = {.attr = &attr, .x = {&whole, &w2}, .y = &out[1]};
    run(&b, &plain);
    plain.dy = &dz, plain.dx[0] = &dx[2], plain.dx[1] = &dw[1];
    plain.fresh = ~0u;
    run(&b, &plain);
    same(&b, &out[0], &out[1]);
    same(&b, &dw[0], &dw[1]);
    if (dx0) same_part(&b, &dx[0], &dx[2], 0);
    if (dx1) same_part(&b, &dx[1], &dx[2], first);
    bench_close(&b);
}

TEST(lens_beside)
{
    static const Shape both[] = {
        {OP_conv, {2, 1, 15, 17, 56}, {40, 1, 3, 3, 56}, 1, 1, 1},
        {OP_conv, {1, 5, 7, 6, 40}, {24, 3, 3, 3, 40}, 1, 1, 1},
        {OP_conv, {1, 1, 9, 8, 96}, {16, 1, 1, 1, 96}, 1, 0, 1},
        {OP_conv, {1, 1, 2, 2, 256}, {64, 1, 3, 3, 256}, 1, 1, 1}, // parts
    };
    for (int i = 0; i < 4; i++)
        for (int how = i == 0 ? 0 : i; how < (i == 0 ? 6 : i + 1); how++)
            beside(&both[i], i == 3 ? 128 : 32, how);
}
