/* mutants.c -- do the properties of opcase.h detect a wrong kernel?
 *
 * A mutant is the cpu backend with one kernel that is wrong in one way: it gets
 * a changed call (`before`), or its result is changed (`after`). The property
 * in the same row of the table must detect it. The correct kernel with the same
 * wrappers must pass, otherwise nothing is proven. */
#include "cpu/lib/kernels.h"
#include "engine/check/opcase.h"
#include "tests/test.h"

/* Attributes and tensors of a call that a mutant may change. */
typedef struct Change {
    Call call;
    Attr attr;
    Tensor x[MAX_IN];
} Change;

typedef void Property(const OpCase *c, OpCheck *check);

typedef struct Mutant {
    const char *name;
    Op op;
    bool backward;
    void (*before)(Change *m);
    void (*after)(const Call *c);
    Property *property; // agreement when NULL
} Mutant;

static const Mutant *current; // the mutant that mutant_run applies

static bool mutant_run(const Call *c)
{
    Change m = {.call = *c, .attr = *c->attr};
    m.call.attr = &m.attr;
    for (int i = 0; i < MAX_IN; i++) {
        if (!c->x[i]) continue;
        m.x[i] = *c->x[i];
        m.call.x[i] = &m.x[i];
    }

    if (current->before) current->before(&m);
    Op op = current->op;
    // another geometry may need more scratch than the caller allocated
    SpaceFn *space = current->before ? backend_cpu.space[op] : NULL;
    Space s = space ? space(&m.call) : (Space){0};
    void *own = space ? mem_alloc(s.fwd + s.bwd) : NULL;
    if (own) m.call.scratch = own;
    bool ok = current->backward ? backend_cpu.bwd[op](&m.call)
                                : backend_cpu.fwd[op](&m.call);
    mem_free(own);
    if (current->after) current->after(c);
    return ok;
}

static float *data(const Tensor *t)
{
    return t->data;
}

static int64_t last(const Tensor *t)
{
    return numel(t->dim) - 1;
}

// -- wrong calls -------------------------------------------------------------

static void halo_h(Change *m)
{
    m->attr.conv.ph0++;
}

static void halo_w(Change *m)
{
    m->attr.conv.pw0--;
}

static void stride_flipped(Change *m)
{
    int s = m->attr.conv.sh;
    m->attr.conv.sh = m->attr.conv.sw, m->attr.conv.sw = s;
}

static void dilation_ignored(Change *m)
{
    m->attr.conv.dw = 1;
}

static void bias_missing(Change *m)
{
    m->call.x[2] = NULL;
}

static void bias_of_neighbour(Change *m)
{
    m->x[2].data = data(&m->x[2]) - 1; // reads a canary, then b[0] ...
}

static void weights_shifted(Change *m)
{
    m->x[1].data = data(&m->x[1]) + 1;
}

static void eps_wrong(Change *m)
{
    m->attr.batch_norm.eps *= 10;
}

static void momentum_swapped(Change *m)
{
    m->attr.batch_norm.momentum = 1 - m->attr.batch_norm.momentum;
}

static void affine_ignored(Change *m)
{
    m->call.x[1] = m->call.x[2] = NULL;
}

static void always_fresh(Change *m)
{
    m->call.fresh = ~0u;
}

static void never_fresh(Change *m)
{
    m->call.fresh = 0;
}

static void fresh_as_first(Change *m)
{
    m->call.fresh = m->call.fresh & 1 ? 1 : 0;
}

// -- wrong results -----------------------------------------------------------

static void tail_element(const Call *c)
{
    data(c->y)[last(c->y)] = 0;
}

static void tail_never_written(const Call *c)
{
    data(c->y)[last(c->y)] = NAN;
}

static void tail_channel(const Call *c)
{
    for (int64_t i = c->y->dim.c - 1; i <= last(c->y); i += c->y->dim.c)
        data(c->y)[i] = 0;
}

static void tail_row(const Call *c)
{
    int64_t row = (int64_t)c->y->dim.w * c->y->dim.c, end = last(c->y) + 1;
    memcpy(data(c->y) + end - row, data(c->y) + end - 2 * row,
           (size_t)row * sizeof(float));
}

static void tail_sample(const Call *c)
{
    int64_t one = numel(c->y->dim) / c->y->dim.n;
    memcpy(data(c->y) + one, data(c->y), (size_t)one * sizeof(float));
}

static void channels_swapped(const Call *c)
{
    float *y = data(c->y), t = y[0];
    y[0] = y[1], y[1] = t;
}

static void sign_of_one(const Call *c)
{
    data(c->y)[7] = -data(c->y)[7];
}

static void scaled(const Call *c)
{
    for (int64_t i = 0; i <= last(c->y); i++) data(c->y)[i] *= 1.0001f;
}

/* As if operands had been rounded to 16 bits. */
static void halved(const Call *c)
{
    for (int64_t i = 0; i <= last(c->y); i++) {
        uint32_t word;
        memcpy(&word, &data(c->y)[i], 4);
        word &= 0xffff0000u;
        memcpy(&data(c->y)[i], &word, 4);
    }
}

static void beyond_the_end(const Call *c)
{
    data(c->y)[last(c->y) + 1] = 0;
}

static void before_the_begin(const Call *c)
{
    data(c->y)[-1] = 0;
}

static void beyond_saved(const Call *c)
{
    char *end = (char *)c->saved + numel(c->y->dim) * (int64_t)sizeof(int32_t);
    *end = 0;
}

static void operand_changed(const Call *c)
{
    data(c->x[0])[3] += 1;
}

static void dy_changed(const Call *c)
{
    data(c->dy)[0] += 1;
}

static void by_threads(const Call *c)
{
    data(c->y)[0] += (float)c->threads * 1e-6f;
}

static void unbiased_variance(const Call *c)
{
    double n = (double)numel(c->y->dim) / c->y->dim.c;
    for (int64_t i = 0; i <= last(c->y); i++)
        data(c->y)[i] *= (float)sqrt((n - 1) / n);
}

static void biased_running(const Call *c)
{
    for (int64_t i = 0; i <= last(c->x[4]); i++) data(c->x[4])[i] *= 0.99f;
}

static void weight_gradient_tail(const Call *c)
{
    data(c->dx[1])[last(c->dx[1])] *= 0.9f;
}

static void bias_gradient_lost(const Call *c)
{
    for (int64_t i = 0; i <= last(c->dx[2]); i++)
        data(c->dx[2])[i] -= data(c->dy)[i];
}

static void shift_gradient_kept(const Call *c)
{
    for (int64_t i = 0; i <= last(c->dx[0]); i++)
        data(c->dx[0])[i] += 0.01f * data(c->dy)[0];
}

/* The last tap of a tie wins instead of the first: swaps two gradients. */
static void tie_to_the_last(const Call *c)
{
    float *dx = data(c->dx[0]);
    for (int64_t i = 0; i + 1 <= last(c->dx[0]); i++)
        if (dx[i] != dx[i + 1]) {
            float t = dx[i];
            dx[i] = dx[i + 1], dx[i + 1] = t;
            return;
        }
}

// clang-format off
static const Mutant mutants[] = {
    {"conv: padding in h off by one",        OP_conv, 0, halo_h, 0, 0},
    {"conv: padding in w off by one",        OP_conv, 0, halo_w, 0, 0},
    {"conv: strides exchanged",              OP_conv, 0, stride_flipped, 0, 0},
    {"conv: dilation ignored",               OP_conv, 0, dilation_ignored, 0, 0},
    {"conv: no bias",                        OP_conv, 0, bias_missing, 0, 0},
    {"conv: bias of the neighbour",          OP_conv, 0, bias_of_neighbour, 0, 0},
    {"conv: weights one off",                OP_conv, 0, weights_shifted, 0, 0},
    {"conv: last element lost",              OP_conv, 0, 0, tail_element, 0},
    {"conv: last element never written",     OP_conv, 0, 0, tail_never_written, 0},
    {"conv: last channel lost",              OP_conv, 0, 0, tail_channel, 0},
    {"conv: last row is the one before",     OP_conv, 0, 0, tail_row, 0},
    {"conv: second sample is the first",     OP_conv, 0, 0, tail_sample, 0},
    {"conv: two channels swapped",           OP_conv, 0, 0, channels_swapped, 0},
    {"conv: a sign",                         OP_conv, 0, 0, sign_of_one, 0},
    {"conv: 1e-4 too large",                 OP_conv, 0, 0, scaled, 0},
    {"conv: 16 bits",                        OP_conv, 0, 0, halved, 0},
    {"conv: writes beyond the end",          OP_conv, 0, 0, beyond_the_end, 0},
    {"conv: writes before the begin",        OP_conv, 0, 0, before_the_begin, 0},
    {"conv: changes its operand",            OP_conv, 0, 0, operand_changed, 0},
    {"conv: depends on threads",             OP_conv, 0, 0, by_threads, opcase_bits},
    {"conv back: changes dy",                OP_conv, 1, 0, dy_changed, 0},
    {"conv back: halo",                      OP_conv, 1, halo_h, 0, 0},
    {"conv back: dilation ignored",          OP_conv, 1, dilation_ignored, 0, 0},
    {"conv back: last weight",               OP_conv, 1, 0, weight_gradient_tail, 0},
    {"conv back: bias without one position", OP_conv, 1, 0, bias_gradient_lost, 0},
    {"conv back: stores instead of adding",  OP_conv, 1, always_fresh, 0, opcase_adding},
    {"conv back: adds to garbage",           OP_conv, 1, never_fresh, 0, 0},
    {"conv back: one fresh bit for all",     OP_conv, 1, fresh_as_first, 0, opcase_adding},
    {"conv back: weights one off",           OP_conv, 1, weights_shifted, 0, 0},
    {"batch_norm: eps",                      OP_batch_norm, 0, eps_wrong, 0, 0},
    {"batch_norm: momentum",                 OP_batch_norm, 0, momentum_swapped, 0, 0},
    {"batch_norm: gamma and beta ignored",   OP_batch_norm, 0, affine_ignored, 0, 0},
    {"batch_norm: unbiased variance",        OP_batch_norm, 0, 0, unbiased_variance, 0},
    {"batch_norm: biased running variance",  OP_batch_norm, 0, 0, biased_running, 0},
    {"batch_norm back: gamma ignored",       OP_batch_norm, 1, affine_ignored, 0, 0},
    {"batch_norm back: a constant left in",  OP_batch_norm, 1, 0, shift_gradient_kept, 0},
    {"maxpool: last element lost",           OP_maxpool, 0, 0, tail_element, 0},
    {"maxpool: writes beyond saved",         OP_maxpool, 0, 0, beyond_saved, 0},
    {"maxpool back: the tie's other tap",    OP_maxpool, 1, 0, tie_to_the_last, 0},
};
// clang-format on

/* Returns a case of each operator in which every mutant makes a difference. */
static OpCase host_of(Op op)
{
    OpCase c = {.attr = op_default(op), .rank = 2, .number = 1, .wrt = 1};
    c.x[0] = (Dims){2, 1, 7, 9, 5};

    if (op == OP_conv) {
        c.x[1] = (Dims){6, 1, 3, 3, 5};
        c.x[2] = (Dims){1, 1, 1, 1, 6};
        c.attr.conv.ph0 = c.attr.conv.ph1 = c.attr.conv.pw0 = 1;
        c.attr.conv.pw1 = c.attr.conv.dw = c.attr.conv.sh = 2;
        c.wrt = 7;
    }

    if (op == OP_batch_norm) {
        for (int i = 1; i < 5; i++) c.x[i] = (Dims){1, 1, 1, 1, 5};
        c.fill[4] = (Fill){FILL_RANGE, 0.5, 2};
        c.attr.batch_norm.eps = 1e-2f;
        c.changes = 1 << 3 | 1 << 4;
        c.wrt = 7;
    }

    if (op == OP_maxpool) {
        c.attr.maxpool.kh = c.attr.maxpool.kw = 3;
        c.fill[0] = (Fill){FILL_CLASS, 0, 2};
    }
    return c;
}

/* Counts the failures of a mutant's property. */
static int failures_of(const Mutant *m)
{
    Backend be = backend_cpu;
    OpCase host = host_of(m->op);
    OpCheck check = {.be = &be};
    if (m->backward)
        be.bwd[m->op] = mutant_run;
    else
        be.fwd[m->op] = mutant_run;
    current = m;
    (m->property ? m->property : opcase_agree)(&host, &check);
    return check.failures;
}

TEST(opcase_kills_mutants)
{
    for (size_t i = 0; i < sizeof mutants / sizeof *mutants; i++) {
        Mutant sane = {"sane", mutants[i].op, mutants[i].backward,
                       NULL,   NULL,          mutants[i].property};
        EXPECT_INT(failures_of(&sane), 0);
        if (!failures_of(&mutants[i]))
            test_failed(__FILE__, __LINE__, "not noticed: %s", mutants[i].name);
    }
}
