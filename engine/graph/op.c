/* op.c -- the rows of ops.def as data, and queries about an operator.
 *
 * The table is expanded here once; nothing else in the engine switches over
 * operators except where a formula differs (op_window, op_flops), so all loops
 * over op_info see a new operator. An Attr is a union of words: only this file
 * converts words by attribute type; other files read attributes by name
 * (attr->conv.sh) or call op_attr. */
#include "engine/graph/op.h"
#include <string.h>

// word i of an Attr is attribute i of its operator, whatever its type
_Static_assert(sizeof(int) == 4 && sizeof(float) == 4, "attributes are words");

// declares each rule as often as operators use it, which C allows
#define OP(name, in, shp, ...) ShapeFn shape_##shp;
#include "engine/graph/ops.def"

#define GRAD_yes   true
#define GRAD_no    false
#define KIND(type) _Generic((type)0, int : 'i', float : 'f')

// the number of attributes is the number of words in the operator's struct
// minus op; the {0} after the last A() also initialises a row without
// attributes
const OpInfo op_info[OP_COUNT] = {
#define A(type, id, d, r) {#id, KIND(type), d, RANGE_##r},
#define OP(id, n, shp, g, k, s, f, b, cpu, attrs) \
    [OP_##id] = {#id,                             \
                 n,                               \
                 k,                               \
                 f,                               \
                 sizeof(((Attr *)0)->id) / 4 - 1, \
                 GRAD_##g,                        \
                 BOUND_##b,                       \
                 shape_##shp,                     \
                 {attrs{0}}},
#include "engine/graph/ops.def"
};

bool op_by_sample(const OpInfo *info, int k)
{
    if (info->shape == shape_embedding) return k > 0; // 0 is the table
    return k == 0 || k >= info->in || info->shape == shape_broadcast ||
           info->shape == shape_concat || info->shape == shape_matmul ||
           info->shape == shape_overlap || info->shape == shape_gather ||
           ((info->flags & LENGTHS) && k == info->in - 1);
}

// a few dozen names, looked up while a recipe is read: no hash needed
Op op_find(const char *name)
{
    int i = 0;
    while (i < OP_COUNT && strcmp(op_info[i].name, name)) i++;
    return (Op)i;
}

Attr op_default(Op op)
{
    Attr a = {.op = op};
    const OpInfo *info = &op_info[op];
    for (int i = 0; i < info->attrs; i++) {
        float f = (float)info->attr[i].def;
        int32_t n = (int32_t)info->attr[i].def;
        if (info->attr[i].kind == 'f')
            memcpy(&a.word[1 + i], &f, 4);
        else
            a.word[1 + i] = n;
    }
    return a;
}

double op_attr(const Attr *a, int i)
{
    float f;
    if (op_info[a->op].attr[i].kind == 'i') return a->word[1 + i];
    memcpy(&f, &a->word[1 + i], 4);
    return (double)f;
}

bool op_attrs_valid(const Attr *a)
{
    const OpInfo *info = &op_info[a->op];
    for (int i = 0; i < info->attrs; i++)
        if (!range_check(info->attr[i].range, info->name, info->attr[i].name,
                         op_attr(a, i)))
            return false;
    return true;
}

bool op_shape(const Attr *a, const Tensor x[MAX_IN], Tensor *y)
{
    const OpInfo *info = &op_info[a->op];
    if (!x[0].dim.n) return fail_usage("%s: operand 1 is missing", info->name);
    *y = x[0];
    y->data = NULL;
    if (!info->shape(a, x, y)) return false;

    // checked as doubles, so that what fits one backend fits all of them
    if (!dims_valid(y->dim, F64))
        return fail_usage("%s: the result is too large to address", info->name);
    Dims d = y->dim;
    if (!dims_shown(d, y->rank))
        return fail_usage("%s: the result, %dx%dx%dx%dx%d as n x d x h x w x "
                          "c, has more axes than the operands",
                          info->name, d.n, d.d, d.h, d.w, d.c);
    return true;
}

/* Operators with a window name its fields alike, but each has its own struct;
 * these macros read them without a list of fields per operator. */
#define READ_S(r)                 \
    {                             \
        a->r.sd, a->r.sh, a->r.sw \
    }
#define READ_LO(r)                   \
    {                                \
        a->r.pd0, a->r.ph0, a->r.pw0 \
    }
#define READ_HI(r)                   \
    {                                \
        a->r.pd1, a->r.ph1, a->r.pw1 \
    }

Window op_window(const Attr *a, const Tensor *w)
{
    switch (a->op) {
    case OP_conv:
        return (Window){.k = {w->dim.d, w->dim.h, w->dim.w},
                        .s = READ_S(conv),
                        .lo = READ_LO(conv),
                        .hi = READ_HI(conv),
                        .dil = {a->conv.dd, a->conv.dh, a->conv.dw},
                        .groups = a->conv.groups};
    case OP_upconv:
        return (Window){.k = {w->dim.d, w->dim.h, w->dim.w},
                        .s = READ_S(upconv),
                        .lo = READ_LO(upconv),
                        .hi = READ_HI(upconv),
                        .dil = {a->upconv.dd, a->upconv.dh, a->upconv.dw},
                        .groups = a->upconv.groups};
    case OP_maxpool:
        return (Window){.k = {a->maxpool.kd, a->maxpool.kh, a->maxpool.kw},
                        .s = READ_S(maxpool),
                        .lo = READ_LO(maxpool),
                        .hi = READ_HI(maxpool),
                        .dil = {1, 1, 1},
                        .groups = 1};
    case OP_avgpool:
        return (Window){.k = {a->avgpool.kd, a->avgpool.kh, a->avgpool.kw},
                        .s = READ_S(avgpool),
                        .lo = READ_LO(avgpool),
                        .hi = READ_HI(avgpool),
                        .dil = {1, 1, 1},
                        .groups = 1};
    case OP_lstm: // one tap: the result of the previous step
        return (Window){{1, 1, 1}, {1, 1, 1}, {0, 0, a->lstm.reverse ? -1 : 1},
                        {0},       {1, 1, 1}, 1};
    default: // linear: a window of one
        return (Window){{1, 1, 1}, {1, 1, 1}, {0}, {0}, {1, 1, 1}, 1};
    }
}

// a double: it loses low bits only beyond 2^53, for a 3-D network at full size
double op_flops(const Attr *a, const Tensor x[MAX_IN], const Tensor *y)
{
    Dims w = x[1].dim;
    double taps = (double)w.d * w.h * w.w;

    switch (a->op) {
    case OP_conv: // each result sums its window over ci
    case OP_linear:
        return 2.0 * (double)numel(y->dim) * taps * w.c;
    case OP_upconv: // each of the w.n inputs adds to its window and co
        return 2.0 * (double)x[0].dim.n * (double)positions(x[0].dim) * w.n *
               taps * w.c;
    case OP_lstm: // four gates per unit, each a sum over all units
        return 2.0 * (double)numel(x[0].dim) * w.c;
    case OP_matmul: // each result is a sum over the columns of A
        return 2.0 * (double)numel(y->dim) *
               (a->matmul.transpose_a ? x[0].dim.w : x[0].dim.c);
    case OP_attention: // two products of all positions by all positions
        return 4.0 * (double)numel(y->dim) * (double)positions(y->dim);
    default:
        return 0;
    }
}
