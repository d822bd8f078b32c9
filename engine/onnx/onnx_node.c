/* onnx_node.c -- converts each operator of ops.def to ONNX.
 *
 * One function per operator, in the table at the end; `out` is the name of the
 * value. The semantics are those of docs/Operators.md of github.com/onnx/onnx
 * at opset 13. Operators that ONNX defined later, or differently, are composed
 * of older ones: a group norm is an instance norm of reshaped groups, a layer
 * norm its formula. ONNX windows need a spatial axis, so values without one
 * (rank 0) temporarily get one. */
#include "engine/onnx/onnx_inside.h"

// an entry of the table
typedef bool Form(Onnx *o, int i, const char *out);

static const Node *node_of(const Onnx *o, int i)
{
    return &o->g->node[i];
}

static const Tensor *operand_of(const Onnx *o, int i, int k)
{
    return &o->g->node[node_of(o, i)->in[k]].y;
}

static bool has(const Onnx *o, int i, int k)
{
    return node_of(o, i)->in[k] >= 0;
}

/* Spatial axes of operand 0, and of the result. */
static int rank_in(const Onnx *o, int i)
{
    return onnx_shown(&o->g->node[node_of(o, i)->in[0]]);
}

static int rank_out(const Onnx *o, int i)
{
    return onnx_shown(node_of(o, i));
}

/* Spatial axes for a window: at least one. */
static int window_rank(const Onnx *o, int i)
{
    return rank_in(o, i) ? rank_in(o, i) : 1;
}

/* Name of the value before its temporary axis is removed. */
static const char *window_out(Onnx *o, int i, const char *out)
{
    return rank_in(o, i) ? out : onnx_part(o, i, "w");
}

static void window_done(Onnx *o, int i, const char *wide, const char *out)
{
    if (!rank_in(o, i)) onnx_rank(o, wide, 1, 0, out);
}

// -- windows ------------------------------------------------------------------

/* Writes the last `rank` of three numbers as an attribute. */
static void attr_axes(Onnx *o, const char *name, const int v[3], int rank)
{
    int64_t list[3];
    for (int k = 0; k < rank; k++) list[k] = v[3 - rank + k];
    onnx_attr_ints(o, name, list, rank);
}

/* Writes padding: all beginnings, then all ends. */
static void attr_pads(Onnx *o, const int lo[3], const int hi[3], int rank)
{
    int64_t pads[6];
    for (int k = 0; k < rank; k++) {
        pads[k] = lo[3 - rank + k];
        pads[rank + k] = hi[3 - rank + k];
    }
    onnx_attr_ints(o, "pads", pads, 2 * rank);
}

/* conv and upconv: their weights in user order have ONNX's layout. The end
 * padding of an upconv may be negative, which is ONNX's output_padding. */
static bool form_conv(Onnx *o, int i, const char *out)
{
    const Attr *a = &node_of(o, i)->attr;
    const bool up = a->op == OP_upconv;
    const int rank = window_rank(o, i);
    Window g = op_window(a, operand_of(o, i, 1));
    int more[3] = {0, 0, 0};

    for (int k = 0; k < 3; k++) {
        if (g.hi[k] >= 0) continue;
        more[k] = -g.hi[k];
        g.hi[k] = 0;
        if (more[k] >= g.s[k] && more[k] >= g.dil[k])
            return fail_usage("upconv: %d more elements at the end than the "
                              "kernel reaches: ONNX allows less than the "
                              "stride, %d; fix: a smaller out_pad, and nn.pad",
                              more[k], g.s[k]);
    }

    const char *in[3] = {onnx_operand(o, i, 0, rank),
                         onnx_operand(o, i, 1, rank)};
    if (has(o, i, 2)) in[2] = onnx_operand(o, i, 2, RANK_VECTOR);
    const char *wide = window_out(o, i, out);
    size_t mark = onnx_begin(o, up ? "ConvTranspose" : "Conv", in,
                             has(o, i, 2) ? 3 : 2, wide);
    attr_axes(o, "kernel_shape", g.k, rank);
    attr_axes(o, "strides", g.s, rank);
    attr_axes(o, "dilations", g.dil, rank);
    attr_pads(o, g.lo, g.hi, rank);
    if (more[0] + more[1] + more[2]) attr_axes(o, "output_padding", more, rank);
    onnx_attr_int(o, "group", g.groups);
    onnx_end(o, mark);
    window_done(o, i, wide, out);
    return true;
}

/* Numbers of a case: a matrix product. Channels at every position: a
 * convolution with a 1x1 kernel. */
static bool form_linear(Onnx *o, int i, const char *out)
{
    const int rank = rank_in(o, i);
    const char *in[3] = {onnx_operand(o, i, 0, rank),
                         onnx_operand(o, i, 1, rank)};
    if (has(o, i, 2)) in[2] = onnx_operand(o, i, 2, RANK_VECTOR);
    size_t mark =
        onnx_begin(o, rank ? "Conv" : "Gemm", in, has(o, i, 2) ? 3 : 2, out);
    if (rank)
        attr_axes(o, "kernel_shape", (const int[3]){1, 1, 1}, rank);
    else
        onnx_attr_int(o, "transB", 1);
    onnx_end(o, mark);
    return true;
}

/* Pads x with `value`; widths are along d, h, w. */
static void put_border(Onnx *o, int i, const char *x, const int lo[3],
                       const int hi[3], float value, const char *out)
{
    const int rank = window_rank(o, i), axes = 2 + rank;
    int64_t pads[2 * (2 + RANK_MAX)] = {0};
    for (int k = 0; k < rank; k++) {
        pads[2 + k] = lo[3 - rank + k];
        pads[axes + 2 + k] = hi[3 - rank + k];
    }
    const char *in[] = {x,
                        onnx_ints(o, onnx_part(o, i, "pads"), pads, 2 * axes),
                        onnx_scalar(o, onnx_part(o, i, "value"), value)};
    size_t mark = onnx_begin(o, "Pad", in, 3, out);
    onnx_attr_text(o, "mode", "constant");
    onnx_end(o, mark);
}

/* A mean that counts its padding becomes a mean of an image with a border of
 * zeros: OpenCV 4.6 ignores count_include_pad and returns other numbers. */
static bool form_pool(Onnx *o, int i, const char *out)
{
    const Attr *a = &node_of(o, i)->attr;
    const int rank = window_rank(o, i);
    Window g = op_window(a, NULL);
    int border = 0;

    for (int k = 0; k < 3; k++) border += g.lo[k] + g.hi[k];
    const char *in[] = {onnx_operand(o, i, 0, rank)};

    if (border && a->op == OP_avgpool && a->avgpool.count_all) {
        const char *padded = onnx_part(o, i, "padded");
        put_border(o, i, in[0], g.lo, g.hi, 0, padded);
        in[0] = padded;
        for (int k = 0; k < 3; k++) g.lo[k] = g.hi[k] = 0;
    }

    const char *wide = window_out(o, i, out);
    size_t mark = onnx_begin(o, a->op == OP_maxpool ? "MaxPool" : "AveragePool",
                             in, 1, wide);
    attr_axes(o, "kernel_shape", g.k, rank);
    attr_axes(o, "strides", g.s, rank);
    attr_pads(o, g.lo, g.hi, rank);
    onnx_end(o, mark);
    window_done(o, i, wide, out);
    return true;
}

static bool form_global(Onnx *o, int i, const char *out)
{
    const bool mean = node_of(o, i)->attr.op == OP_global_avgpool;
    if (has(o, i, 1)) return onnx_length(o, i, out);
    const int rank = window_rank(o, i);
    const char *wide =
        onnx_op(o, mean ? "GlobalAveragePool" : "GlobalMaxPool",
                onnx_operand(o, i, 0, rank), NULL, onnx_part(o, i, "w"));
    onnx_rank(o, wide, rank, 0, out);
    return true;
}

/* Both operators begin with the three factors. */
static bool form_upsample(Onnx *o, int i, const char *out)
{
    const Attr *a = &node_of(o, i)->attr;
    const int rank = window_rank(o, i);
    const bool nearest = a->op == OP_upsample_nearest;
    float scale[2 + RANK_MAX] = {1, 1};

    for (int k = 0; k < rank; k++)
        scale[2 + k] = (float)a->word[1 + 3 - rank + k];
    const char *in[] = {
        onnx_operand(o, i, 0, rank), "",
        onnx_floats(o, onnx_part(o, i, "scales"), scale, 2 + rank)};
    const char *wide = window_out(o, i, out);
    size_t mark = onnx_begin(o, "Resize", in, 3, wide);
    onnx_attr_text(o, "mode", nearest ? "nearest" : "linear");
    onnx_attr_text(o, "coordinate_transformation_mode",
                   nearest                    ? "asymmetric"
                   : a->upsample_linear.align ? "align_corners"
                                              : "half_pixel");
    if (nearest) onnx_attr_text(o, "nearest_mode", "floor");
    onnx_end(o, mark);
    window_done(o, i, wide, out);
    return true;
}

// -- norms --------------------------------------------------------------------

/* Returns operand k of a norm, or `otherwise` for all channels if it is
 * absent. */
static const char *norm_vector(Onnx *o, int i, int k, float otherwise)
{
    static const char *const part[] = {"", "weight", "bias"};
    if (has(o, i, k)) return onnx_operand(o, i, k, RANK_VECTOR);
    return onnx_fill(o, onnx_part(o, i, part[k]), otherwise,
                     operand_of(o, i, 0)->dim.c);
}

static bool form_batch_norm(Onnx *o, int i, const char *out)
{
    const int rank = rank_in(o, i);
    const char *in[] = {onnx_operand(o, i, 0, rank), norm_vector(o, i, 1, 1),
                        norm_vector(o, i, 2, 0),
                        onnx_operand(o, i, 3, RANK_VECTOR),
                        onnx_operand(o, i, 4, RANK_VECTOR)};
    size_t mark = onnx_begin(o, "BatchNormalization", in, 5, out);
    onnx_attr_float(o, "epsilon", node_of(o, i)->attr.batch_norm.eps);
    onnx_end(o, mark);
    return true;
}

static bool form_instance_norm(Onnx *o, int i, const char *out)
{
    const int rank = window_rank(o, i);
    const char *in[] = {onnx_operand(o, i, 0, rank), norm_vector(o, i, 1, 1),
                        norm_vector(o, i, 2, 0)};
    const char *wide = window_out(o, i, out);
    size_t mark = onnx_begin(o, "InstanceNormalization", in, 3, wide);
    onnx_attr_float(o, "epsilon", node_of(o, i)->attr.instance_norm.eps);
    onnx_end(o, mark);
    window_done(o, i, wide, out);
    return true;
}

/* y = x * weight + bias per channel, if present. */
static void scale_channels(Onnx *o, int i, const char *x, const char *out)
{
    const int rank = rank_in(o, i);
    const char *y = onnx_op(o, "Mul", x, onnx_operand(o, i, 1, rank),
                            onnx_part(o, i, "scaled"));
    onnx_op(o, "Add", y, onnx_operand(o, i, 2, rank), out);
}

/* The groups become the channels of an instance norm, all else its positions;
 * then reshapes to the extents of x, read at run time if they are free. */
static bool form_group_norm(Onnx *o, int i, const char *out)
{
    const Attr *a = &node_of(o, i)->attr;
    const Tensor *t = operand_of(o, i, 0);
    const int groups = a->group_norm.groups;
    const bool affine = has(o, i, 1);
    const char *x = onnx_operand(o, i, 0, rank_in(o, i));
    const int64_t split[3] = {0, groups, -1}; // 0: same extent as the operand
    const char *in[] = {
        onnx_op(o, "Reshape", x,
                onnx_ints(o, onnx_part(o, i, "split"), split, 3),
                onnx_part(o, i, "groups")),
        onnx_fill(o, onnx_part(o, i, "ones"), 1, groups),
        onnx_fill(o, onnx_part(o, i, "zeros"), 0, groups)};
    const char *normed = onnx_part(o, i, "normed");
    size_t mark = onnx_begin(o, "InstanceNormalization", in, 3, normed);

    onnx_attr_float(o, "epsilon", a->group_norm.eps);
    onnx_end(o, mark);
    int64_t shape[2 + RANK_MAX];
    const int axes = dims_to_user(t->dim, rank_in(o, i), shape);
    shape[0] = 0; // the batch
    const char *back = onnx_part(o, i, "shape");
    if (o->any_size)
        onnx_op(o, "Shape", x, NULL, back);
    else
        onnx_ints(o, back, shape, axes);
    const char *whole = affine ? onnx_part(o, i, "whole") : out;
    onnx_op(o, "Reshape", normed, back, whole);
    if (affine) scale_channels(o, i, whole, out);
    return true;
}

/* Returns the mean over channels at each position. */
static const char *channel_mean(Onnx *o, int i, const char *x, const char *part)
{
    const char *in[] = {x}, *out = onnx_part(o, i, part);
    size_t mark = onnx_begin(o, "ReduceMean", in, 1, out);
    onnx_attr_ints(o, "axes", (const int64_t[]){1}, 1);
    onnx_attr_int(o, "keepdims", 1);
    onnx_end(o, mark);
    return out;
}

/* (x - mean) / sqrt(mean of (x - mean)^2 + eps) */
static bool form_layer_norm(Onnx *o, int i, const char *out)
{
    const bool affine = has(o, i, 1);
    const float eps = node_of(o, i)->attr.layer_norm.eps;
    const char *x = onnx_operand(o, i, 0, rank_in(o, i));
    const char *off = onnx_op(o, "Sub", x, channel_mean(o, i, x, "mean"),
                              onnx_part(o, i, "off"));
    const char *square = onnx_op(o, "Mul", off, off, onnx_part(o, i, "square"));
    const char *var = onnx_op(o, "Add", channel_mean(o, i, square, "var"),
                              onnx_scalar(o, onnx_part(o, i, "eps"), eps),
                              onnx_part(o, i, "var_eps"));
    const char *sd = onnx_op(o, "Sqrt", var, NULL, onnx_part(o, i, "sd"));
    const char *y =
        onnx_op(o, "Div", off, sd, affine ? onnx_part(o, i, "normed") : out);
    if (affine) scale_channels(o, i, y, out);
    return true;
}

// -- elementwise --------------------------------------------------------------

/* Operators equal to one ONNX operator without attributes, with one or two
 * operands. */
static const char *const plain[OP_COUNT] = {
    [OP_add] = "Add",         [OP_sub] = "Sub",     [OP_mul] = "Mul",
    [OP_div] = "Div",         [OP_relu] = "Relu",   [OP_tanh] = "Tanh",
    [OP_sigmoid] = "Sigmoid", [OP_exp] = "Exp",     [OP_log] = "Log",
    [OP_sqrt] = "Sqrt",       [OP_abs] = "Abs",     [OP_sin] = "Sin",
    [OP_cos] = "Cos",         [OP_erf] = "Erf",     [OP_sign] = "Sign",
    [OP_floor] = "Floor",     [OP_round] = "Round", [OP_max] = "Max",
    [OP_min] = "Min",         [OP_pow] = "Pow",     [OP_stop] = "Identity",
};

static bool form_plain(Onnx *o, int i, const char *out)
{
    const Node *n = node_of(o, i);
    const char *a = onnx_operand(o, i, 0, rank_out(o, i));
    const char *b = has(o, i, 1) ? onnx_operand(o, i, 1, rank_out(o, i)) : NULL;
    onnx_op(o, plain[n->attr.op], a, b, out);
    return true;
}

static bool form_scale(Onnx *o, int i, const char *out)
{
    const Node *n = node_of(o, i);
    const char *y =
        onnx_op(o, "Mul", onnx_operand(o, i, 0, rank_out(o, i)),
                onnx_scalar(o, onnx_part(o, i, "mul"), n->attr.scale.mul),
                onnx_part(o, i, "scaled"));
    onnx_op(o, "Add", y,
            onnx_scalar(o, onnx_part(o, i, "add"), n->attr.scale.add), out);
    return true;
}

/* log(1 + x) */
static bool form_log1p(Onnx *o, int i, const char *out)
{
    const char *sum = onnx_op(o, "Add", onnx_operand(o, i, 0, rank_out(o, i)),
                              onnx_scalar(o, onnx_part(o, i, "one"), 1),
                              onnx_part(o, i, "sum"));
    onnx_op(o, "Log", sum, NULL, out);
    return true;
}

static bool form_rsqrt(Onnx *o, int i, const char *out)
{
    const char *root = onnx_op(o, "Sqrt", onnx_operand(o, i, 0, rank_out(o, i)),
                               NULL, onnx_part(o, i, "root"));
    onnx_op(o, "Reciprocal", root, NULL, out);
    return true;
}

static bool form_power(Onnx *o, int i, const char *out)
{
    onnx_op(o, "Pow", onnx_operand(o, i, 0, rank_out(o, i)),
            onnx_scalar(o, onnx_part(o, i, "exponent"),
                        node_of(o, i)->attr.power.exponent),
            out);
    return true;
}

static bool form_clamp(Onnx *o, int i, const char *out)
{
    const Attr *a = &node_of(o, i)->attr;
    const char *in[] = {onnx_operand(o, i, 0, rank_out(o, i)),
                        onnx_scalar(o, onnx_part(o, i, "min"), a->clamp.min),
                        onnx_scalar(o, onnx_part(o, i, "max"), a->clamp.max)};
    onnx_end(o, onnx_begin(o, "Clip", in, 3, out));
    return true;
}

/* The remainder with the sign of b: ONNX's Mod of floats has the sign of a. */
static const char *remainder_of(Onnx *o, int i, const char *a, const char *b,
                                const char *out)
{
    const char *in[] = {a, b}, *rest = onnx_part(o, i, "rest");
    const size_t mark = onnx_begin(o, "Mod", in, 2, rest);
    onnx_attr_int(o, "fmod", 1);
    onnx_end(o, mark);
    const char *signs =
        onnx_op(o, "Mul", onnx_op(o, "Sign", rest, NULL, onnx_part(o, i, "sa")),
                onnx_op(o, "Sign", b, NULL, onnx_part(o, i, "sb")),
                onnx_part(o, i, "signs"));
    const char *choice[] = {
        onnx_op(o, "Less", signs, onnx_scalar(o, onnx_part(o, i, "zero"), 0),
                onnx_part(o, i, "differ")),
        onnx_op(o, "Add", rest, b, onnx_part(o, i, "moved")), rest};
    onnx_end(o, onnx_begin(o, "Where", choice, 3, out));
    return out;
}

static bool form_mod(Onnx *o, int i, const char *out)
{
    remainder_of(o, i, onnx_operand(o, i, 0, rank_out(o, i)),
                 onnx_operand(o, i, 1, rank_out(o, i)), out);
    return true;
}

static bool form_floor_div(Onnx *o, int i, const char *out)
{
    const char *a = onnx_operand(o, i, 0, rank_out(o, i));
    const char *b = onnx_operand(o, i, 1, rank_out(o, i));
    const char *exact = onnx_op(
        o, "Sub", a, remainder_of(o, i, a, b, onnx_part(o, i, "remainder")),
        onnx_part(o, i, "exact"));
    onnx_op(o, "Round", onnx_op(o, "Div", exact, b, onnx_part(o, i, "ratio")),
            NULL, out);
    return true;
}

static bool form_select(Onnx *o, int i, const char *out)
{
    const char *condition = onnx_operand(o, i, 0, rank_out(o, i));
    const char *in[] = {
        onnx_cast(o, condition, ELEMENT_BOOL, onnx_part(o, i, "condition")),
        onnx_operand(o, i, 1, rank_out(o, i)),
        onnx_scalar(o, onnx_part(o, i, "zero"), 0)};
    onnx_end(o, onnx_begin(o, "Where", in, 3, out));
    return true;
}

static bool form_comparison(Onnx *o, int i, const char *out)
{
    const int op = node_of(o, i)->attr.op;
    const char *holds = onnx_op(o,
                                op == OP_gt   ? "Greater"
                                : op == OP_ge ? "GreaterOrEqual"
                                              : "Equal",
                                onnx_operand(o, i, 0, rank_out(o, i)),
                                onnx_operand(o, i, 1, rank_out(o, i)),
                                onnx_part(o, i, "holds"));
    onnx_cast(o, holds, ELEMENT_F32, out);
    return true;
}

/* The axes of the result are those of the operand, or without the summed
 * spatial ones; sums over channels keep an axis of 1. */
static bool form_reduction(Onnx *o, int i, const char *out)
{
    const Attr *a = &node_of(o, i)->attr;
    const bool listed = a->op == OP_sum && !a->sum.mean; // axes as an operand
    const int rank = rank_in(o, i), flag[3] = {a->sum.d, a->sum.h, a->sum.w};
    int64_t axes[1 + RANK_MAX], gone[RANK_MAX];
    int count = 0, dropped = 0;
    if (a->sum.c) axes[count++] = 1;
    for (int k = 0; k < rank; k++) {
        if (!flag[3 - rank + k]) continue;
        axes[count++] = 2 + k;
        if (a->sum.drop) gone[dropped++] = 2 + k;
    }
    const char *x = onnx_operand(o, i, 0, rank);
    if (!count) {
        onnx_op(o, "Identity", x, NULL, out);
        return true;
    }
    const char *kept = dropped ? onnx_part(o, i, "kept") : out;
    const char *in[] = {x, NULL};
    if (listed) in[1] = onnx_ints(o, onnx_part(o, i, "axes"), axes, count);
    const char *op = listed             ? "ReduceSum"
                     : a->op == OP_amax ? "ReduceMax"
                                        : "ReduceMean";
    const size_t mark = onnx_begin(o, op, in, listed ? 2 : 1, kept);
    if (!listed) onnx_attr_ints(o, "axes", axes, count);
    onnx_attr_int(o, "keepdims", 1);
    onnx_end(o, mark);
    if (dropped)
        onnx_op(o, "Squeeze", kept,
                onnx_ints(o, onnx_part(o, i, "gone"), gone, dropped), out);
    return true;
}

static bool form_constant(Onnx *o, int i, const char *out)
{
    const int64_t ones[2 + RANK_MAX] = {1, 1, 1, 1, 1};
    const char *v = onnx_scalar(o, onnx_part(o, i, "value"),
                                node_of(o, i)->attr.constant.value);
    onnx_op(o, "Reshape", v,
            onnx_ints(o, onnx_part(o, i, "ones"), ones, 2 + rank_out(o, i)),
            out);
    return true;
}

static bool form_leaky_relu(Onnx *o, int i, const char *out)
{
    const Node *n = node_of(o, i);
    const char *in[] = {onnx_operand(o, i, 0, rank_out(o, i))};
    size_t mark = onnx_begin(o, "LeakyRelu", in, 1, out);
    onnx_attr_float(o, "alpha", n->attr.leaky_relu.slope);
    onnx_end(o, mark);
    return true;
}

/* x Phi(x) = x / 2 (1 + erf(x / sqrt 2)) */
static bool form_gelu(Onnx *o, int i, const char *out)
{
    const char *x = onnx_operand(o, i, 0, rank_out(o, i));
    const float root = 0.70710678118654752f;
    const char *z =
        onnx_op(o, "Mul", x, onnx_scalar(o, onnx_part(o, i, "root"), root),
                onnx_part(o, i, "z"));
    const char *erf = onnx_op(o, "Erf", z, NULL, onnx_part(o, i, "erf"));
    const char *sum =
        onnx_op(o, "Add", erf, onnx_scalar(o, onnx_part(o, i, "one"), 1),
                onnx_part(o, i, "sum"));
    const char *half =
        onnx_op(o, "Mul", x, onnx_scalar(o, onnx_part(o, i, "half"), 0.5f),
                onnx_part(o, i, "x_half"));
    onnx_op(o, "Mul", half, sum, out);
    return true;
}

static bool form_silu(Onnx *o, int i, const char *out)
{
    const char *x = onnx_operand(o, i, 0, rank_out(o, i));
    onnx_op(o, "Mul", x,
            onnx_op(o, "Sigmoid", x, NULL, onnx_part(o, i, "sigmoid")), out);
    return true;
}

static bool form_softmax(Onnx *o, int i, const char *out)
{
    const char *in[] = {onnx_operand(o, i, 0, rank_out(o, i))};
    size_t mark = onnx_begin(o, "Softmax", in, 1, out);
    onnx_attr_int(o, "axis", 1);
    onnx_end(o, mark);
    return true;
}

// -- shapes -------------------------------------------------------------------

static bool form_concat(Onnx *o, int i, const char *out)
{
    const char *in[MAX_IN];
    int n = 0;
    for (int k = 0; k < MAX_IN; k++)
        if (has(o, i, k)) in[n++] = onnx_operand(o, i, k, rank_out(o, i));
    size_t mark = onnx_begin(o, "Concat", in, n, out);
    onnx_attr_int(o, "axis", 1);
    onnx_end(o, mark);
    return true;
}

/* The attributes are (from, size) for d, h, w, c; size 0 means up to the end,
 * which in ONNX is an end beyond any extent. All axes from the first that is
 * cut to the last are listed, as OpenCV requires. */
static bool form_slice(Onnx *o, int i, const char *out)
{
    const int rank = rank_out(o, i);
    const int32_t *box = &node_of(o, i)->attr.word[1];
    int64_t from[1 + RANK_MAX], to[1 + RANK_MAX], axes[1 + RANK_MAX];
    int first = -1, count = 0;

    for (int axis = 1; axis < 2 + rank; axis++) {
        // c is the last pair, and w the one before it
        const int k = axis == 1 ? 3 : axis - 2 + RANK_MAX - rank;
        const int at = box[2 * k], size = box[2 * k + 1];
        if (first < 0 && (at || size)) first = axis;
        if (first < 0) continue;
        axes[axis - first] = axis;
        from[axis - first] = at;
        to[axis - first] = size ? (int64_t)at + size : INT64_MAX;
        if (at || size) count = axis - first + 1;
    }

    const char *x = onnx_operand(o, i, 0, rank);
    if (!count) {
        onnx_op(o, "Identity", x, NULL, out);
        return true;
    }
    const char *in[] = {x, onnx_ints(o, onnx_part(o, i, "from"), from, count),
                        onnx_ints(o, onnx_part(o, i, "to"), to, count),
                        onnx_ints(o, onnx_part(o, i, "axes"), axes, count)};
    onnx_end(o, onnx_begin(o, "Slice", in, 4, out));
    return true;
}

static bool form_pad(Onnx *o, int i, const char *out)
{
    const Node *n = node_of(o, i);
    const int rank = window_rank(o, i);
    const int32_t *p = &n->attr.word[1]; // before and after d, h, w
    const char *wide = window_out(o, i, out);
    put_border(o, i, onnx_operand(o, i, 0, rank),
               (const int[]){p[0], p[2], p[4]}, (const int[]){p[1], p[3], p[5]},
               n->attr.pad.value, wide);
    window_done(o, i, wide, out);
    return true;
}

static bool form_flatten(Onnx *o, int i, const char *out)
{
    const char *in[] = {onnx_operand(o, i, 0, rank_in(o, i))};
    size_t mark = onnx_begin(o, "Flatten", in, 1, out);
    onnx_attr_int(o, "axis", 1);
    onnx_end(o, mark);
    return true;
}

// -- the table ----------------------------------------------------------------

static Form *const form[OP_COUNT] = {
    [OP_conv] = form_conv,
    [OP_upconv] = form_conv,
    [OP_linear] = form_linear,
    [OP_maxpool] = form_pool,
    [OP_avgpool] = form_pool,
    [OP_global_avgpool] = form_global,
    [OP_global_maxpool] = form_global,
    [OP_upsample_nearest] = form_upsample,
    [OP_upsample_linear] = form_upsample,
    [OP_batch_norm] = form_batch_norm,
    [OP_instance_norm] = form_instance_norm,
    [OP_group_norm] = form_group_norm,
    [OP_layer_norm] = form_layer_norm,
    [OP_last_step] = onnx_length,
    [OP_mask_length] = onnx_length,
    [OP_lstm] = onnx_lstm,
    [OP_attention] = onnx_attention,
    [OP_add] = form_plain,
    [OP_sub] = form_plain,
    [OP_mul] = form_plain,
    [OP_div] = form_plain,
    [OP_scale] = form_scale,
    [OP_exp] = form_plain,
    [OP_log] = form_plain,
    [OP_log1p] = form_log1p,
    [OP_sqrt] = form_plain,
    [OP_rsqrt] = form_rsqrt,
    [OP_abs] = form_plain,
    [OP_sin] = form_plain,
    [OP_cos] = form_plain,
    [OP_erf] = form_plain,
    [OP_power] = form_power,
    [OP_clamp] = form_clamp,
    [OP_sign] = form_plain,
    [OP_floor] = form_plain,
    [OP_round] = form_plain,
    [OP_max] = form_plain,
    [OP_min] = form_plain,
    [OP_pow] = form_plain,
    [OP_mod] = form_mod,
    [OP_floor_div] = form_floor_div,
    [OP_select] = form_select,
    [OP_gt] = form_comparison,
    [OP_ge] = form_comparison,
    [OP_eq] = form_comparison,
    [OP_constant] = form_constant,
    [OP_sum] = form_reduction,
    [OP_amax] = form_reduction,
    [OP_stop] = form_plain,
    [OP_argsort] = onnx_argsort,
    [OP_gather] = onnx_gather,
    [OP_argmax] = onnx_argmax,
    [OP_one_hot] = onnx_one_hot,
    [OP_embedding] = onnx_embedding,
    [OP_normal] = onnx_random,
    [OP_uniform] = onnx_random,
    [OP_concat] = form_concat,
    [OP_slice] = form_slice,
    [OP_pad] = form_pad,
    [OP_flatten] = form_flatten,
    [OP_reshape] = onnx_reshape,
    [OP_permute] = onnx_permute,
    [OP_flip] = onnx_flip,
    [OP_roll] = onnx_roll,
    [OP_repeats] = onnx_repeats,
    [OP_cumsum] = onnx_cumsum,
    [OP_matmul] = onnx_matmul,
    [OP_relu] = form_plain,
    [OP_leaky_relu] = form_leaky_relu,
    [OP_sigmoid] = form_plain,
    [OP_tanh] = form_plain,
    [OP_gelu] = form_gelu,
    [OP_silu] = form_silu,
    [OP_softmax] = form_softmax,
};

bool onnx_identity(Op op)
{
    return op_info[op].flags & TRAIN;
}

bool onnx_has(Op op)
{
    return form[op] || onnx_identity(op);
}

bool onnx_operator(Onnx *o, int i, const char *out)
{
    const Op op = (Op)node_of(o, i)->attr.op;
    const char *name = op_info[op].name;
    if (form[op]) return form[op](o, i, out);
    if (op_info[op].flags & LOSS || op == OP_overlap)
        return fail_usage("%s compares with the ground truth and is not part "
                          "of a prediction; fix: use its operand as the output",
                          name);
    return fail_usage(
        "%s cannot be exported to ONNX; fix: outputs that do not need it, or "
        "export --bundle, which supports every operator",
        name);
}
