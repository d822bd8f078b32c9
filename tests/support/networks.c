/* networks.c -- small networks and their inputs. */
#include "tests/support/networks.h"
#include "engine/base/rng.h"

void net_new(Net *n)
{
    *n = (Net){.loss = -1};
}

void net_free(Net *n)
{
    session_close(n->s);
    graph_free(&n->g);
    *n = (Net){.loss = -1};
}

int net_input(Net *n, const char *name, Dims dim, int rank)
{
    int out;
    REQUIRE(graph_input(&n->g, name, dim, rank, "", &out));
    REQUIRE(n->inputs < 8);
    n->input[n->inputs++] = out;
    return out;
}

int net_param(Net *n, const char *tensor, Dims dim, int rank, Init init,
              bool trained)
{
    char name[64];
    int out;
    snprintf(name, sizeof name, "p%d.%s", n->layers, tensor);
    REQUIRE(graph_param(&n->g, name, dim, rank, init, trained,
                        rank != RANK_VECTOR, "", &out));
    return out;
}

int net_row(Net *n, Attr attr, const int *in, int count)
{
    int at[MAX_IN] = {-1, -1, -1, -1, -1, -1}, out;
    char name[64];
    for (int i = 0; i < count; i++) at[i] = in[i];
    snprintf(name, sizeof name, "n%d", n->g.count);
    REQUIRE(graph_op(&n->g, &attr, at, name, "", &out));
    return out;
}

int net_op(Net *n, Op op, int a, int b, int c)
{
    return net_row(n, op_default(op), (int[]){a, b, c},
                   op_info[op].in < 3 ? op_info[op].in : 3);
}

/* Extents of node i for one sample. */
static Dims dims_of(const Net *n, int i)
{
    return n->g.node[i].y.dim;
}

/* The extent of depth: k where x has that axis, else 1. */
static int depth_of(const Net *n, int x, int k)
{
    return n->g.node[x].y.rank == 3 ? k : 1;
}

/* PyTorch's default: uniform within 1/sqrt(fan_in). */
static Init kaiming(int fan_in)
{
    return (Init){INIT_UNIFORM, 1 / sqrt(fan_in)};
}

int net_conv(Net *n, int x, int filters, int kernel)
{
    int c = dims_of(n, x).c, kd = depth_of(n, x, kernel);
    int fan = c * kd * kernel * kernel;
    Attr a = op_default(OP_conv);

    a.conv.pd0 = a.conv.pd1 = kd / 2;
    a.conv.ph0 = a.conv.ph1 = a.conv.pw0 = a.conv.pw1 = kernel / 2;
    n->layers++;
    int w = net_param(n, "weight", (Dims){filters, kd, kernel, kernel, c},
                      n->g.node[x].y.rank, kaiming(fan), true);
    int b = n->bias ? net_param(n, "bias", (Dims){1, 1, 1, 1, filters},
                                RANK_VECTOR, kaiming(fan), true)
                    : -1;
    return net_row(n, a, (int[]){x, w, b}, 3);
}

int net_upconv(Net *n, int x, int filters)
{
    int c = dims_of(n, x).c, kd = depth_of(n, x, 2);
    Attr a = op_default(OP_upconv);
    a.upconv.sd = kd;
    a.upconv.sh = a.upconv.sw = 2;
    n->layers++;
    int w = net_param(n, "weight", (Dims){c, kd, 2, 2, filters},
                      n->g.node[x].y.rank, kaiming(4 * kd * filters), true);
    int b = net_param(n, "bias", (Dims){1, 1, 1, 1, filters}, RANK_VECTOR,
                      kaiming(4 * kd * filters), true);
    return net_row(n, a, (int[]){x, w, b}, 3);
}

int net_pool(Net *n, int x)
{
    Attr a = op_default(OP_maxpool);
    a.maxpool.kd = a.maxpool.sd = depth_of(n, x, 2);
    a.maxpool.kh = a.maxpool.kw = a.maxpool.sh = a.maxpool.sw = 2;
    return net_row(n, a, &x, 1);
}

int net_norm(Net *n, int x)
{
    Dims c = {1, 1, 1, 1, dims_of(n, x).c};
    static const char *const name[] = {"weight", "bias", "running_mean",
                                       "running_var"};
    int in[5] = {x};
    n->layers++;
    for (int i = 0; i < 4; i++)
        in[1 + i] = net_param(n, name[i], c, RANK_VECTOR,
                              (Init){INIT_CONST, i % 3 == 0}, i < 2);
    return net_row(n, op_default(OP_batch_norm), in, 5);
}

int net_relu(Net *n, int x)
{
    return net_op(n, OP_relu, x, -1, -1);
}

int net_block(Net *n, int x, int filters)
{
    for (int i = 0; i < 2; i++)
        x = net_relu(n, net_norm(n, net_conv(n, x, filters, 3)));
    return x;
}

int net_unet(Net *n, int x, int base, int depth)
{
    int skip[8];
    bool bias = n->bias;
    REQUIRE(depth <= 8);
    for (int i = 0; i < depth; i++) {
        skip[i] = net_block(n, x, base << i);
        x = net_pool(n, skip[i]);
    }
    x = net_block(n, x, base << depth);
    for (int i = depth - 1; i >= 0; i--) {
        x = net_upconv(n, x, base << i);
        x = net_block(n, net_op(n, OP_concat, x, skip[i], -1), base << i);
    }
    n->bias = true;
    x = net_conv(n, x, 1, 1);
    n->bias = bias;
    return x;
}

void net_small(Net *n)
{
    net_new(n);
    int image = net_input(n, "image", (Dims){1, 1, 8, 8, 2}, 2);
    int target = net_input(n, "target", (Dims){1, 1, 8, 8, 1}, 2);
    n->root[n->roots++] = net_unet(n, image, 4, 2);
    n->loss = net_op(n, OP_bce, n->root[0], target, -1);
}

void net_linear(Net *n)
{
    net_new(n);
    int x = net_input(n, "x", (Dims){1, 1, 1, 1, 2}, 0);
    int t = net_input(n, "y", (Dims){1, 1, 1, 1, 1}, 0);
    n->layers++;
    int w = net_param(n, "weight", (Dims){1, 1, 1, 1, 2}, 0,
                      (Init){INIT_UNIFORM, 1}, true);
    int b = net_param(n, "bias", (Dims){1, 1, 1, 1, 1}, RANK_VECTOR,
                      (Init){INIT_UNIFORM, 1}, true);
    n->root[n->roots++] = net_op(n, OP_linear, x, w, b);
    n->loss = net_op(n, OP_mse, n->root[0], t, -1);
}

void net_open(Net *n, const char *device, int threads, const Optim *optim)
{
    SessionSpec spec = {.graph = &n->g,
                        .root = n->root,
                        .roots = n->roots,
                        .loss = n->loss,
                        .device = device,
                        .threads = threads,
                        .seed = 11,
                        .optim = optim,
                        .precision = n->precision,
                        .scaled = n->scaled};
    REQUIRE(session_open(&spec, &n->s));
}

int net_extents(const Net *n, int count, PlanInput out[8])
{
    for (int i = 0; i < n->inputs; i++) {
        out[i] = (PlanInput){n->input[i], dims_of(n, n->input[i])};
        out[i].dim.n = count;
    }
    return n->inputs;
}

Plan *net_plan(Net *n, bool train, int count)
{
    PlanInput in[8];
    Plan *p;
    int inputs = net_extents(n, count, in);
    REQUIRE(session_plan(n->s, train, in, inputs, &p));
    REQUIRE(session_bind(n->s, p));
    return p;
}

void net_feed(Net *n, Plan *p, uint32_t seed)
{
    for (int k = 0; k < n->inputs; k++) {
        const Tensor *t = plan_value(p, n->input[k]);
        if (!t) continue;
        bool target = *n->g.node[n->input[k]].name == 't';
        Rng r = {.seed = 7, .stream = RNG_TEST, .sample = seed};
        r.op = (uint16_t)k;
        int64_t count = numel(t->dim);
        float *v = mem_alloc((size_t)count * sizeof *v);
        REQUIRE(v);
        for (int64_t i = 0; i < count; i++)
            v[i] = target ? (float)rng_below(&r, (uint32_t)i, 2)
                          : rng_normal(&r, (uint32_t)i);
        bool ok = session_feed(n->s, p, n->input[k], v);
        mem_free(v);
        REQUIRE(ok);
    }
}

StepResult net_step(Net *n, int count, uint32_t seed, double lr, double clip)
{
    StepResult r;
    Plan *p = net_plan(n, true, count);
    net_feed(n, p, seed);
    REQUIRE(session_step(n->s, p, lr, clip, &r));
    return r;
}

double net_get(Net *n, const char *name, ParamBlock block, int64_t i)
{
    Params *q = session_params(n->s);
    int k = params_find(q, name);
    REQUIRE(k >= 0);
    double *v = mem_alloc((size_t)numel(q->list[k].dim) * sizeof *v);
    REQUIRE(v && params_read(q, k, block, 0, v));
    double out = v[i];
    mem_free(v);
    return out;
}

void *net_state(Net *n, Arena *mem, size_t *bytes)
{
    const Params *q = session_params(n->s);
    const Backend *be = session_backend(n->s);
    size_t real = dtype_bytes(be->real);
    size_t all = (size_t)q->total * real, part = (size_t)q->trained * real;

    *bytes = all + (size_t)q->states * part + sizeof(int64_t);
    char *out = arena_alloc(mem, *bytes), *at = out;
    int64_t count = session_state(n->s).count;
    REQUIRE(out && be->download(session_device(n->s), at, q->value, all));
    at += all;
    for (int i = 0; i < q->states; i++, at += part)
        REQUIRE(be->download(session_device(n->s), at, q->state[i], part));
    memcpy(at, &count, sizeof count);
    return out;
}

bool net_life(Net *n, const char *device, int threads, const Optim *o)
{
    enum { MOST = 2 * 8 * 8 * 2 };
    static float pixels[MOST], mask[MOST];
    PlanInput in[8];
    Plan *p;
    StepResult r;
    char text[64];
    SessionSpec spec = {.graph = &n->g,
                        .root = n->root,
                        .roots = n->roots,
                        .loss = n->loss,
                        .device = device,
                        .threads = threads,
                        .optim = o};
    int inputs = net_extents(n, 2, in);
    bool ok = false;
    for (int i = 0; i < MOST; i++) pixels[i] = sinf((float)i);
    for (int i = 0; i < inputs; i++) CHECK(numel(in[i].dim) <= MOST);
    Session *s = NULL;
    TRY(session_open(&spec, &s));
    TRY(session_plan(s, true, in, inputs, &p) && session_bind(s, p));
    TRY(session_feed(s, p, n->input[0], pixels));
    TRY(session_feed(s, p, n->input[1], mask));

    // a step call by call, then the capture of a CUDA graph, then its launch
    for (int i = 0; i < 3; i++) TRY(session_step(s, p, 0.01, 1, &r));
    TRY(session_blame(s, p, text, sizeof text, NULL));
    in[0].dim.n = in[1].dim.n = 1;
    TRY(session_plan(s, false, in, inputs, &p) && session_bind(s, p));
    TRY(session_feed(s, p, n->input[0], pixels));
    TRY(session_run(s, p) && session_read(s, p, n->root[0], mask));
    TRY(session_run_async(s, p, n->root, 1) &&
        readback_fetch(session_readback(s)));
    ok = true;

done:
    session_close(s);
    return ok;
}
