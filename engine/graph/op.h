/* op.h -- the operator table, expanded from ops.def.
 *
 * An operator is a row; a node of a graph is a row with attributes; a Call
 * is a node with addresses. Kernels see Calls only. */
#ifndef SEG_ENGINE_GRAPH_OP_H
#define SEG_ENGINE_GRAPH_OP_H
#include "engine/base/range.h"
#include "engine/graph/precision.h"

enum { MAX_IN = 6, MAX_ATTR = 16 }; /* bounds of all rows of ops.def */
/* The operand of a call that no row with a window has: see Call. */
enum { X2 = MAX_IN - 1 };
/* Columns `keep` and `flags` of ops.def, which says what each bit means. */
enum { KEEP_X = 1, KEEP_Y = 2, KEEP_S = 4, KEEP_W = 8 };
enum {
    INPLACE = 1,
    INPLACE_GRAD = 2,
    TRAIN = 4,
    LOSS = 8,
    LENGTHS = 16,
    RANDOM = 32,
    SAVES_ONCE = 64
};

typedef enum Op {
#define OP(name, ...) OP_##name,
#include "engine/graph/ops.def"
    OP_COUNT
} Op;

/* Attributes of one node: a union tagged by its first word. Attribute i of a
 * row is word[1 + i]; int and float are both 32 bits, so kernels write
 * attr->conv.sh with types while Lua, printing and files walk words with
 * names. */
// clang-format off
typedef union Attr {
    int op;
    int32_t word[1 + MAX_ATTR];
#define A(type, id, def, range) type id;
#define OP(id, in, shape, grad, keep, space, flags, bound, cpu, attrs) \
    struct { int op_; attrs } id;
#include "engine/graph/ops.def"
} Attr;
// clang-format on

/* One A() of a row. */
typedef struct AttrInfo {
    const char *name;
    char kind;  /* 'i' int or 'f' float */
    double def; /* default              */
    Range range;
} AttrInfo;

/* How a backend's result is compared with ref: see docs/numerics.md. */
typedef enum Bound { BOUND_dot, BOUND_ulp, BOUND_exact, BOUND_nmse } Bound;

/* Extents, type and rank of the result, or false with the reason. x[i].dim
 * is all zero for an absent operand; type and rank of y come in as those of
 * operand 0. */
typedef bool ShapeFn(const Attr *a, const Tensor x[MAX_IN], Tensor *y);

/* A row as data; the columns are those of ops.def. */
typedef struct OpInfo {
    const char *name;
    int in;          /* operands at most */
    int keep, flags; /* KEEP_*, INPLACE.. */
    int attrs;       /* how many of attr[] there are */
    bool grad;       /* has a backward run           */
    Bound bound;
    ShapeFn *shape;
    AttrInfo attr[MAX_ATTR];
} OpInfo;

extern const OpInfo op_info[OP_COUNT];

/* Does the backward run read operand k? */
static inline bool op_keeps(const OpInfo *info, int k)
{
    return info->keep & (k ? KEEP_X | KEEP_W : KEEP_X);
}

/* Does sample n of the result see sample n of operand k (or the only one that
 * it has)? Else it sees all of it, as of weights. An operand behind those of
 * the row is one of a concat: see Call. */
bool op_by_sample(const OpInfo *info, int k);
/* Row by name; OP_COUNT when there is none. */
Op op_find(const char *name);
/* An Attr of row `op` with its defaults. */
Attr op_default(Op op);
/* Attribute i as a number, whichever kind it is. */
double op_attr(const Attr *a, int i);
/* Every attribute is finite and in its range; ERR_USAGE names the first that
 * is not, what it is and what is wanted. */
bool op_attrs_valid(const Attr *a);
/* Extents, type and rank of the result of `a` on x: the row's rule, and what
 * holds for all of them: operand 0 is there, the bytes can be addressed, the
 * axes of the rank can show all extents. ERR_USAGE with the reason. */
bool op_shape(const Attr *a, const Tensor x[MAX_IN], Tensor *y);
/* Multiply-adds x 2 of one forward run (convolutions, linear, lstm and
 * attention, all steps and positions; 0 for the rest), given the operands' and
 * the result's extents. */
double op_flops(const Attr *a, const Tensor x[MAX_IN], const Tensor *y);

/* The window of conv, upconv (k from w, dil from the row), maxpool, avgpool
 * (dil 1), and of lstm, whose weights meet the step before: axes d, h, w in
 * this order. */
typedef struct Window {
    int k[3], s[3], lo[3], hi[3], dil[3];
    int groups;
} Window;
Window op_window(const Attr *a, const Tensor *w);

/* The part of a batch that a run is fed, where several processes (ranks.h)
 * work on one batch: a kernel whose result depends on other samples sums over
 * all ranks. All zero: the batch is whole. */
typedef struct Share {
    struct Ranks *ranks; /* NULL: nobody else has a part                   */
    int64_t first;       /* number of its first sample in the batch        */
    bool idle;           /* no sample was left for this rank: it runs with one
                          * of another's, which must not count             */
    bool norms;          /* batch norm takes its statistics over all ranks */
} Share;

/* What changes between two runs of the same plan: with the node's number and
 * that of a sample in the whole batch all that a random draw depends on. */
typedef struct Step {
    uint64_t seed;
    int64_t count; /* optimiser steps so far */
    Share share;
} Step;

/* The bit of dy beside those of operands, see Backend.half; and of y and dy,
 * and of y alone, see Backend.narrow. */
enum {
    HALF_DY = 1 << MAX_IN,
    NARROW_Y = 1 << MAX_IN,
    NARROW_ALONE = 2 << MAX_IN
};
/* The first bit of Call.fresh of the gradients of a lazy norm. */
enum { NORM_FRESH = 8 };
/* Channels of a tensor in 16 bits divide by this (16 bytes), unless products
 * alone read it. */
enum { NARROW_CHANNELS = 8 };
/* Sums of a gradient, see Call.grad_sums. */
enum { GRAD_SUMS = 2 };
/* Doubles of it: the sums, two for what ranks join with them, and two for each
 * channel, which are for what the backend makes of them. */
static inline int32_t grad_sums_size(int32_t channels)
{
    return GRAD_SUMS * channels + 2 + 2 * channels;
}

/* How a call reads an operand that is stored as it was before a batch_norm and
 * the activation behind it, which nobody ran: it applies both to what it
 * loads, with the statistics that the call that made it left. */
typedef struct DeferredNorm {
    const Attr *norm, *act; /* then NULL: no activation               */
    const void *saved;      /* Call.saved of the call that made it    */
} DeferredNorm;

/* One executable call. x[i] is NULL for an absent operand, dx[i] when nobody
 * wants that gradient. Bit i of `fresh`: dx[i] holds nothing yet, store;
 * else add to it. dx[0] may be dy's memory (INPLACE_GRAD rows), y operand 0's
 * (INPLACE rows). All tensors are of the backend's real type, but for narrow
 * ones, which are of 16 bits where Backend.narrow allows it (dx[k] is of the
 * type of x[k], dy of that of y), and for copies: where half[k] or half_dy is
 * there, it holds x[k] or dy in 16 bits, the kernel multiplies that, and x[k]
 * has only extents: its memory may be in use for something else by then. dy
 * stays readable beside its copy. A backend is given the copies that its
 * Backend.half asks for, but of what is narrow.
 *
 * A convolution may see a concat of two that nobody made: where x[X2] is
 * there, its channels follow those of x[0], and dx[X2] is their gradient.
 * Only where Backend.fuses_concat said so. */
typedef struct Call {
    const Attr *attr;
    /* A row of one operand that runs on each result of this one before it is
     * stored, or NULL. y and dy are those of that row then, and bwd takes dy
     * through it first: by y, unless the row keeps its operands (KEEP_X), from
     * which it finds again what lies between and is nowhere in memory. Only
     * where Backend.fuses said so. */
    const Attr *act;
    /* A batch_norm of constants, as it is in evaluation, that runs on each
     * result before `then`, or NULL; norm_x: its operands but the first. */
    const Attr *norm;
    const Tensor *norm_x[MAX_IN];
    /* Lazy, in training: neither `norm` nor `then` runs here. fwd stores y as
     * it is, measures the statistics that the norm would and leaves them in
     * `saved`: who reads y has a DeferredNorm. bwd gets y and the gradient of
     * what the lenses show; it takes dy back through `then` and `norm`, in dy's
     * memory, whose gradients of norm_x are norm_dx, and on from there. */
    bool deferred;
    const Tensor *norm_dx[MAX_IN];
    const DeferredNorm
        *deferred_norm[MAX_IN]; /* of x[i], or NULL: as it stands */
    /* bwd: total[i] is there where this call is the last that adds to dx[i] and
     * whoever made x[i] wants sums of it over all rows, TOTAL doubles for each
     * of C channels (grad_sums_size): of u and of u z, u being dx[i] taken
     * through the activation that lens[i] shows and z the norm's operand,
     * normalised; without a lens of dx[i], and the rest is nothing. Through a
     * lens bwd reads x[i] for it, whatever its row keeps. Only where
     * Backend.sums_grads said so. */
    const Tensor *grad_sums[MAX_IN];
    const Tensor *dy_sums; /* of dy, which another call left; or NULL */
    /* The call whose dy is dx[i], where those gradients that it would make of
     * total[i] alone (of a lazy norm's parameters, of a bias) are made by this
     * one, as nobody else adds to them; or NULL. In that call grads_written
     * says so. */
    const struct Call *sums_for[MAX_IN];
    bool grads_written;
    /* bwd: square[i] is there where this call stores the last of dx[i], a
     * parameter's, in this run. It leaves sums of the squares of what is in
     * memory then, as many doubles as Backend.sqnorm_parts said. */
    const Tensor *grad_sqnorm[MAX_IN];
    const Step *step;
    void *dev;   /* what Backend.open returned: a Pool on the CPU */
    int threads; /* of dev; known before it is opened             */
    int node;    /* number in its graph: the op of a draw         */
    bool train;
    bool recomputed; /* fwd ran in this step before and runs once more, for what
                      * it makes: state that a run moves stays as it is now, and
                      * what a SAVES_ONCE row saved is there */
    const Tensor *x[MAX_IN], *y, *dy;
    const Tensor *dx[MAX_IN];
    unsigned fresh;   /* bit NORM_FRESH + i: of norm_dx[i] */
    bool no_winograd; /* convolutions by the direct sum alone: Winograd's error
                       * is larger (docs/numerics.md) */
    int8_t tile[2];   /* asked for, y's and dx's; 0: any (tile_names.h) */
    Precision precision; /* of products; f32 for rows that have none */
    const Tensor *half[MAX_IN], *half_dy;
    void *saved;   /* written by fwd, for bwd; Space.saved bytes, or NULL */
    void *scratch; /* garbage at entry; Space.fwd or Space.bwd bytes    */
} Call;

/* Bytes: what fwd leaves for bwd, and scratch of either. */
typedef struct Space {
    size_t saved, fwd, bwd;
} Space;

/* Bytes a call wants; addresses in `c` are not set yet, extents, threads,
 * train and the presence of operands and dx (non-NULL) are. */
typedef Space SpaceFn(const Call *c);
/* Run it; false with the reason only for a failing device. */
typedef bool KernelFn(const Call *c);

/* Does the row multiply in the precision of its plan? conv, upconv, linear. */
static inline bool op_multiplies(Op op)
{
    return op == OP_conv || op == OP_upconv || op == OP_linear;
}

static inline Op call_op(const Call *c)
{
    return (Op)c->attr->op;
}

/* Extents of the image that a convolution sees. */
static inline Dims call_image(const Call *c)
{
    Dims s = c->x[0]->dim;
    if (c->x[X2]) s.c += c->x[X2]->dim.c;
    return s;
}
#endif
