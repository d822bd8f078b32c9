/* op.h -- the operator table, expanded from ops.def, and the Call of a kernel.
 *
 * An operator is a row of ops.def. A node of a graph is an operator with
 * attributes and operands. A Call is a node with addresses, ready to run: the
 * only argument of a kernel. */
#ifndef SEG_ENGINE_GRAPH_OP_H
#define SEG_ENGINE_GRAPH_OP_H
#include "engine/base/range.h"
#include "engine/graph/precision.h"

enum { MAX_IN = 6, MAX_ATTR = 16 }; /* bounds of all rows of ops.def */
/* The second operand of an implicit concat: x[X2], dx[X2]; see Call. */
enum { X2 = MAX_IN - 1 };
/* Columns `keep` and `flags` of ops.def; each bit is explained there. */
enum { KEEP_X = 1, KEEP_Y = 2, KEEP_S = 4, KEEP_W = 8 };
enum {
    INPLACE = 1,
    INPLACE_GRAD = 2,
    TRAIN = 4,
    LOSS = 8,
    LENGTHS = 16,
    RANDOM = 32,
    SAVES_ONCE = 64,
    INDICES = 128
};
/* The most elements of a fibre: a 32-bit float holds every index below it. */
enum { MOST_INDICES = 1 << 24 };

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

/* The extents of a reduction over the axes of its attributes, which become 1;
 * or of the places of fibres along these axes. All such operators have the same
 * first attributes. */
static inline Dims op_reduced_dims(const Attr *a, Dims s)
{
    if (a->sum.d) s.d = 1;
    if (a->sum.h) s.h = 1;
    if (a->sum.w) s.w = 1;
    if (a->sum.c) s.c = 1;
    return s;
}

/* The number of elements of a fibre of a tensor of extents s. */
static inline int64_t op_fibre_length(const Attr *a, Dims s)
{
    return numel(s) / numel(op_reduced_dims(a, s));
}

/* The number of indices with which an operator chooses from x, or that it
 * makes: the rows of an embedding, else the elements of a fibre. */
static inline int64_t op_indices(const Attr *a, Dims x)
{
    return a->op == OP_embedding ? x.n : op_fibre_length(a, x);
}

/* The error bound of an operator against ref: see docs/numerics.md. */
typedef enum Bound { BOUND_dot, BOUND_ulp, BOUND_exact, BOUND_nmse } Bound;

/* Sets extents, type and rank of the result, or returns false with an error
 * text. x[i].dim is all zero for an absent operand; the caller has set type and
 * rank of y from operand 0. */
typedef bool ShapeFn(const Attr *a, const Tensor x[MAX_IN], Tensor *y);

/* A row of ops.def as data, column by column. */
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

/* Does sample n of the result depend on sample n of operand k alone? Else it
 * depends on the whole operand, as on weights. An operand number beyond the
 * row's own is one of an implicit concat: see Call. */
bool op_by_sample(const OpInfo *info, int k);
/* Row by name; OP_COUNT when there is none. */
Op op_find(const char *name);
/* An Attr of row `op` with its defaults. */
Attr op_default(Op op);
/* Attribute i as a number, whichever kind it is. */
double op_attr(const Attr *a, int i);
/* Every attribute is finite and in its range; else ERR_USAGE with the name of
 * the first that is not, its value and its range. */
bool op_attrs_valid(const Attr *a);
/* Extents, type and rank of the result of `a` on x: the shape rule of the row,
 * after the checks that all rows share: operand 0 is present, the size in bytes
 * fits size_t, the rank has an axis for every extent. ERR_USAGE with the
 * reason. */
bool op_shape(const Attr *a, const Tensor x[MAX_IN], Tensor *y);
/* Multiply-adds x 2 of one forward run (convolutions, linear, lstm and
 * attention, all steps and positions; 0 for the rest), given the operands' and
 * the result's extents. */
double op_flops(const Attr *a, const Tensor x[MAX_IN], const Tensor *y);

/* The window of conv, upconv (k from w, dil from the row), maxpool, avgpool
 * (dil 1), and of lstm, whose recurrent weights read the step before: axes d,
 * h, w in this order. */
typedef struct Window {
    int k[3], s[3], lo[3], hi[3], dil[3];
    int groups;
} Window;
Window op_window(const Attr *a, const Tensor *w);

/* The shard of a batch that this rank runs, where several processes (ranks.h)
 * share one batch. A kernel whose result depends on other samples sums over
 * all ranks. All zero: the whole batch. */
typedef struct Shard {
    struct Ranks *ranks;  /* NULL: no other rank                            */
    int64_t first;        /* number of the first sample in the whole batch  */
    bool idle;            /* the batch has no sample for this rank: it runs a
                           * copy of another rank's, which counts nowhere   */
    bool sync_batch_norm; /* batch norm takes its statistics over all ranks */
} Shard;

/* The state of one run of a plan. A random draw depends on it, on the number of
 * the node and on the number of the sample in the whole batch, on nothing
 * else. */
typedef struct Step {
    uint64_t seed;
    int64_t count; /* optimiser steps so far */
    Shard shard;
} Step;

/* Bits above the bits of the operands: dy (Storage.copies); y and dy, y with
 * f32 operands (Storage.narrow). */
enum {
    HALF_DY = 1 << MAX_IN,
    NARROW_Y = 1 << MAX_IN,
    NARROW_ALONE = 2 << MAX_IN
};
/* The first bit of Call.fresh for the parameters of a deferred norm. */
enum { NORM_FRESH = 8 };
/* The channels of a tensor in 16 bits are a multiple of this (16 bytes), unless
 * conv, upconv and linear alone read it. */
enum { NARROW_CHANNELS = 8 };
/* Sums by channel of a gradient: see Call.sums.dx. */
enum { GRAD_SUMS = 2 };
/* The number of doubles in Call.sums.dx: the sums, two that the all-reduce
 * adds, and two a channel as the backend's own workspace. */
static inline int32_t grad_sums_size(int32_t channels)
{
    return GRAD_SUMS * channels + 2 + 2 * channels;
}

/* A batch norm, and the activation after it, that no call runs: memory has the
 * tensor before both, and each reader applies both to the elements that it
 * loads. The statistics come from the call that wrote the tensor. */
typedef struct DeferredNorm {
    const Attr *norm, *act; /* act NULL: no activation                   */
    const void *saved;      /* Call.saved of the call that wrote the tensor */
} DeferredNorm;

/* The batch norm after a call, in the same call: Call.norm.
 *
 * In evaluation its statistics are constants, and the call applies the norm
 * before `act`.
 *
 * In training it is deferred: neither norm nor `act` runs. fwd stores y before
 * both and writes the statistics to Call.saved; each reader of y has a
 * DeferredNorm. bwd gets the gradient of the activation's result as dy, takes
 * it back through `act` and the norm in dy's memory, adds the gradients of x to
 * dx, and continues with its own. */
typedef struct CallNorm {
    const Attr *attr;        /* a batch_norm; NULL: none                    */
    const Tensor *x[MAX_IN]; /* its operands; 0, the result of the call, is
                              * NULL                                        */
    const Tensor *dx[MAX_IN];
    bool deferred;
} CallNorm;

/* Sums of gradients that a backward call writes as it stores them, where
 * Backend.fusions allows it: Call.sums. */
typedef struct CallSums {
    /* Set where this call is the last that adds to the gradient dx[i], and the
     * call that made x[i] needs sums of that gradient over all rows. GRAD_SUMS
     * doubles a channel (grad_sums_size): the sums of u and of u x_hat, where
     * u is the gradient taken back through the activation of x_norm[i] and
     * x_hat the normalised operand of its norm. Without a deferred norm: the
     * sum of the gradient, and zero. With one, bwd reads x[i] even if its row
     * does not keep it. */
    const Tensor *dx[MAX_IN];
    const Tensor *dy; /* such sums of dy, from another call; or NULL */
    /* The backward call that reads the gradient dx[i] as its dy, if this call
     * also writes that call's gradients of norm parameters or bias: they depend
     * on the sums alone, and no other call adds to them. Else NULL. The other
     * call has `written` set. */
    const struct Call *reader[MAX_IN];
    bool written;
    /* Set where this call writes the final gradient dx[i] of a parameter in
     * this run: the partial sums of squares of that gradient,
     * Fusions.sqnorm_parts doubles. */
    const Tensor *sqnorm[MAX_IN];
} CallSums;

/* Copies in 16 bits of tensors of a call; NULL: none. */
typedef struct CallCopies {
    const Tensor *x[MAX_IN], *dy;
} CallCopies;

/* One executable call of an operator: `fwd` computes y, `bwd` adds to dx.
 *
 * x[i] is NULL for an absent operand, dx[i] for a gradient that is not wanted.
 * Bit i of `fresh`: dx[i] holds no gradient yet, so store; else add. dx[0] may
 * share dy's memory (INPLACE_GRAD rows), y that of x[0] (INPLACE rows).
 *
 * Types: every tensor is of the backend's real type, with two exceptions.
 * Storage in 16 bits, where Storage.narrow allows it: dx[k] has the type of
 * x[k], dy that of y. Copies in 16 bits, for which Storage.copies asks: half.x
 * and half.dy hold rounded copies of x and dy; the kernel multiplies the
 * copies, and the memory of x[k] may have been reused (dy stays readable).
 *
 * Implicit concat, where Fusions.concat allows it: the image of a
 * convolution is the channels of x[0] followed by the channels of x[X2], and
 * dx[X2] is the gradient of x[X2]. */
typedef struct Call {
    const Attr *attr;
    /* Several elementwise operators that the call runs (program.h); attr is the
     * last of them. NULL: attr alone. */
    const struct Program *program;
    /* Epilogue: an operator of one operand applied to each result before it is
     * stored, or NULL; Fusions.epilogue allows it. y and dy are then those of
     * the epilogue. bwd first takes dy through it: by y, or, for an epilogue
     * that keeps its operand (KEEP_X), by the value in between, which bwd
     * computes again. */
    const Attr *act;
    CallNorm norm;
    /* The deferred norm of x[i], which this call applies on load; or NULL. */
    const DeferredNorm *x_norm[MAX_IN];
    CallSums sums;
    const Step *step;
    void *dev;   /* from Backend.open: a Pool on the CPU             */
    int threads; /* of dev; known before it is opened                */
    int node;    /* number in the graph: part of the key of a draw   */
    bool train;
    /* fwd ran before in this step and runs once more for the backward pass:
     * running statistics stay as they are, and the saved values of a SAVES_ONCE
     * row are present. */
    bool recomputed;
    const Tensor *x[MAX_IN], *y, *dy;
    const Tensor *dx[MAX_IN];
    unsigned fresh;      /* bit NORM_FRESH + i: of norm.dx[i]                 */
    bool no_winograd;    /* convolutions by the direct sum: Winograd's error is
                          * larger (docs/numerics.md)                        */
    int8_t tile[2];      /* requested tile of y and of dx; 0: any
                          * (tile_names.h)                                 */
    Precision precision; /* of products; f32 for rows without products    */
    CallCopies half;
    /* The next call of the plan, if this call also runs that one in the same
     * launch, where Backend.pairs allows it; or NULL. The plan does not run the
     * other call then (`runs_before`). Its buffers are in use with this
     * call's. */
    const struct Call *pair;
    bool runs_before; /* it is the `pair` of the call before it */
    void *saved;   /* written by fwd, read by bwd: Space.saved bytes, or NULL */
    void *scratch; /* undefined at entry: Space.fwd or Space.bwd bytes        */
} Call;

/* Bytes that a call needs: saved from fwd to bwd, and scratch of either. */
typedef struct Space {
    size_t saved, fwd, bwd;
} Space;

/* The Space of a call. `c` has extents, threads, train and the presence of
 * operands and dx (non-NULL), but no addresses yet. */
typedef Space SpaceFn(const Call *c);
/* Run the call; false with the reason if the device fails. */
typedef bool KernelFn(const Call *c);

/* Does the operator multiply in the precision of its plan? conv, upconv,
 * linear. */
static inline bool op_multiplies(Op op)
{
    return op == OP_conv || op == OP_upconv || op == OP_linear;
}

static inline Op call_op(const Call *c)
{
    return (Op)c->attr->op;
}

/* Extents of a convolution's image, implicit concat included. */
static inline Dims call_image(const Call *c)
{
    Dims s = c->x[0]->dim;
    if (c->x[X2]) s.c += c->x[X2]->dim.c;
    return s;
}
#endif
