/* bench.c -- see bench.h. */
#include "tests/cuda/kernels/bench.h"
#include "engine/base/rng.h"

void bench_open(Bench *b, Precision p)
{
    *b = (Bench){.precision = p};
    REQUIRE(opdevice_open(&backend_cuda, 1, &b->d));
}

void bench_close(Bench *b)
{
    for (int i = 0; i < b->blocks; i++)
        backend_cuda.release(b->d.dev, b->block[i]);
    opdevice_close(&b->d);
}

static void *bytes_of(Bench *b, size_t bytes)
{
    void *p = NULL;
    REQUIRE(b->blocks < MAX_BLOCKS);
    REQUIRE(backend_cuda.alloc(b->d.dev, bytes, &p));
    return b->block[b->blocks++] = p;
}

Tensor tensor_of(Bench *b, Dims dim, Dtype type)
{
    Tensor t = {dim, type, RANK_MAX, NULL};
    t.data = bytes_of(b, tensor_bytes(&t));
    return t;
}

void read_tensor(Bench *b, const Tensor *t, double *out)
{
    Tensor host = *t;
    host.data = mem_alloc(tensor_bytes(t));
    REQUIRE(host.data && backend_cuda.download(b->d.dev, host.data, t->data,
                                               tensor_bytes(t)));
    tensor_read(&host, 0, numel(t->dim), out);
    mem_free(host.data);
}

Tensor uniform(Bench *b, Dims dim, Dtype type, float lo, float hi)
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

void same(Bench *b, const Tensor *p, const Tensor *q)
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

void near(Bench *b, const Tensor *p, const Tensor *q, double share)
{
    const int64_t count = numel(p->dim);
    double *v = mem_alloc((size_t)(2 * count) * sizeof *v), off = 0, all = 0;
    REQUIRE(v);
    read_tensor(b, p, v);
    read_tensor(b, q, v + count);
    for (int64_t i = 0; i < count; i++) {
        off += (v[i] - v[count + i]) * (v[i] - v[count + i]);
        all += v[count + i] * v[count + i];
    }
    EXPECT(off <= share * all);
    if (!(off <= share * all)) EXPECT_NEAR(off / all, 0, share);
    mem_free(v);
}

void run(Bench *b, Call *c)
{
    const Op op = (Op)c->attr->op;
    static const Step step = {.seed = 3, .count = 5};
    c->dev = b->d.dev, c->threads = 1, c->train = true, c->step = &step;
    c->precision = op_multiplies(op) ? b->precision : PRECISION_f32;
    Space s = {0};
    if (backend_cuda.space[op]) s = backend_cuda.space[op](c);
    if (!c->saved && s.saved) c->saved = bytes_of(b, s.saved);
    const size_t bytes = c->dy ? s.bwd : s.fwd;
    c->scratch = bytes
                     ? uniform(b, (Dims){1, 1, 1, 1, (int32_t)(bytes / 4 + 1)},
                               F32, -9, 9)
                           .data
                     : NULL;
    REQUIRE(backend_cuda.begin(b->d.dev, &step));
    REQUIRE((c->dy ? backend_cuda.bwd : backend_cuda.fwd)[op](c));
    REQUIRE(backend_cuda.sync(b->d.dev));
}

static void norm_act_new(Bench *b, NormAct *h, int channels, Op act)
{
    const Dims s = {1, 1, 1, 1, channels};
    h->norm = op_default(OP_batch_norm), h->act = op_default(act);
    h->x[1] = uniform(b, s, F32, -2, 2), h->x[2] = uniform(b, s, F32, -1, 1);
    h->x[3] = uniform(b, s, F32, -1, 1), h->x[4] = uniform(b, s, F32, 1, 2);
    for (int k = 1; k <= 2; k++) h->dx[k] = tensor_of(b, s, F32);
    h->deferred_norm =
        (DeferredNorm){&h->norm, op_info[act].in == 1 ? &h->act : NULL, NULL};
}

Tensor deferred_conv(Bench *b, const Attr *attr, const Tensor *x,
                     const Tensor *w, NormAct *h, Call *c)
{
    Tensor in[MAX_IN] = {*x, *w}, y;
    REQUIRE(op_shape(attr, in, &y));
    y = tensor_of(b, y.dim, precision_copy(b->precision));
    norm_act_new(b, h, y.dim.c, OP_leaky_relu);
    h->bias = uniform(b, h->x[1].dim, F32, -1, 1);
    *c = (Call){.attr = attr,
                .norm = {.attr = &h->norm, .deferred = true},
                .act = h->deferred_norm.act,
                .x = {x, w, &h->bias},
                .y = &y};
    for (int k = 1; k <= 4; k++) c->norm.x[k] = &h->x[k];
    run(b, c);
    h->deferred_norm.saved = c->saved;
    return y;
}

Tensor deferred_linear(Bench *b, Dims s, NormAct *h)
{
    Call made;
    const Attr linear = op_default(OP_linear);
    const Dtype type = precision_copy(b->precision);
    const Dims rows = {(int32_t)(s.n * positions(s)), 1, 1, 1, 8};
    const Tensor x = uniform(b, rows, type, -1, 1);
    const Tensor w = uniform(b, (Dims){s.c, 1, 1, 1, 8}, type, -1, 1);
    Tensor y = deferred_conv(b, &linear, &x, &w, h, &made);
    y.dim = s;
    return y;
}

Attr attr_of(const Shape *s)
{
    // conv and upconv have the same attributes in the same order
    Attr a = op_default(s->op);
    const bool deep = s->w.d > 1;
    if (s->op == OP_linear) return a;
    a.conv.sd = deep ? s->stride : 1, a.conv.sh = a.conv.sw = s->stride;
    a.conv.pd0 = a.conv.pd1 = deep ? s->pad : 0;
    a.conv.ph0 = a.conv.ph1 = a.conv.pw0 = a.conv.pw1 = s->pad;
    a.conv.groups = s->groups;
    return a;
}

Attr pool_of_one(void)
{
    Attr pool = op_default(OP_maxpool);
    pool.maxpool.kd = pool.maxpool.kh = pool.maxpool.kw = 1;
    pool.maxpool.sd = pool.maxpool.sh = pool.maxpool.sw = 1;
    return pool;
}
