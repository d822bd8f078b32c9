/* onnx_sequence.c -- sequences with lengths, LSTM and attention in ONNX.
 *
 * In ONNX only the LSTM has lengths. Other operators compare the positions 0 ..
 * W-1 with the length of each sample, which gives a mask (N,1,W), and replace
 * invalid values (a product with zero would keep NaN). ONNX's LSTM contains the
 * linear layer of its input and has another gate order (i o f g); attention is
 * written as its products. */
#include "engine/onnx/onnx_inside.h"
#include <math.h>
#include <stdio.h>

static const Node *node_of(const Onnx *o, int i)
{
    return &o->g->node[i];
}

static const Node *operand_of(const Onnx *o, int i, int k)
{
    return &o->g->node[o->g->node[i].in[k]];
}

/* Adds a node with one attribute of integers; returns `out`. */
static const char *put_int(Onnx *o, const char *type, const char *a,
                           const char *b, const char *attr, int64_t v,
                           const char *out)
{
    size_t mark =
        onnx_begin(o, type, (const char *const[]){a, b}, b ? 2 : 1, out);
    onnx_attr_int(o, attr, v);
    onnx_end(o, mark);
    return out;
}

static const char *put_where(Onnx *o, const char *test, const char *x,
                             const char *other, const char *out)
{
    onnx_end(o, onnx_begin(o, "Where", (const char *const[]){test, x, other}, 3,
                           out));
    return out;
}

/* Adds a slice of x to [from, to) along one axis; returns its name. */
static const char *put_slice(Onnx *o, int i, const char *x, const char *part,
                             int64_t axis, int64_t from, int64_t to)
{
    char name[32];
    const char *in[4] = {x}, *const what[] = {"from", "to", "axis"};
    const int64_t value[] = {from, to, axis};
    for (int k = 0; k < 3; k++) {
        snprintf(name, sizeof name, "%s_%s", part, what[k]);
        in[1 + k] = onnx_ints(o, onnx_part(o, i, name), &value[k], 1);
    }
    const char *out = onnx_part(o, i, part);
    onnx_end(o, onnx_begin(o, "Slice", in, 4, out));
    return out;
}

// -- lengths ------------------------------------------------------------------

/* Returns the positions first .. first + W-1 of operand 0 as floats of one
 * axis. */
static const char *positions_of(Onnx *o, int i, const char *x, int first,
                                const char *part)
{
    const int w = operand_of(o, i, 0)->y.dim.w;
    const char *zero = "", *one = "";

    if (!o->any_size) {
        float *v = ARENA_NEW(&o->mem, float, w);
        if (!v) o->failed = true;
        if (!v) return "";
        for (int p = 0; p < w; p++) v[p] = (float)(p + first);
        return onnx_floats(o, onnx_part(o, i, part), v, w);
    }

    // the extent of the image at run time
    char name[48];
    snprintf(name, sizeof name, "%s_shape", part);
    const char *shape = onnx_op(o, "Shape", x, NULL, onnx_part(o, i, name));
    snprintf(name, sizeof name, "%s_w", part);
    const char *extent = put_slice(o, i, shape, name, 0, 2, 3);
    snprintf(name, sizeof name, "%s_float", part);
    extent = onnx_cast(o, extent, ELEMENT_F32, onnx_part(o, i, name));

    // Range takes numbers without an axis
    snprintf(name, sizeof name, "%s_end", part);
    extent = onnx_op(o, "Squeeze", extent, NULL, onnx_part(o, i, name));
    snprintf(name, sizeof name, "%s_zero", part);
    zero = onnx_scalar(o, onnx_part(o, i, name), 0);
    snprintf(name, sizeof name, "%s_one", part);
    one = onnx_scalar(o, onnx_part(o, i, name), 1);
    snprintf(name, sizeof name, "%s_range", part);
    const char *range = onnx_part(o, i, name);
    onnx_end(o, onnx_begin(o, "Range", (const char *const[]){zero, extent, one},
                           3, range));
    if (!first) return range;
    return onnx_op(o, "Add", range, one, onnx_part(o, i, part));
}

/* Returns the mask (N,1,W) of valid steps. Lengths are operand k. */
static const char *counts_of(Onnx *o, int i, const char *x, int k)
{
    return onnx_op(o, "Less", positions_of(o, i, x, 0, "places"),
                   onnx_operand(o, i, k, 1), onnx_part(o, i, "counts"));
}

/* Returns the sum over steps, (N,C) from (N,C,W). */
static const char *sum_steps(Onnx *o, int i, const char *x, const char *part,
                             const char *out)
{
    const int64_t axis = 2;
    const char *axes = onnx_ints(o, onnx_part(o, i, part), &axis, 1);
    return put_int(o, "ReduceSum", x, axes, "keepdims", 0, out);
}

/* Returns the number of valid steps, (N,1). */
static const char *count_steps(Onnx *o, int i, const char *counts)
{
    const char *ones =
        onnx_cast(o, counts, ELEMENT_F32, onnx_part(o, i, "ones"));
    return sum_steps(o, i, ones, "steps_axis", onnx_part(o, i, "steps"));
}

static void mean_steps(Onnx *o, int i, const char *x, const char *counts,
                       const char *out)
{
    const char *kept =
        put_where(o, counts, x, onnx_scalar(o, onnx_part(o, i, "none"), 0),
                  onnx_part(o, i, "kept"));
    const char *sum = sum_steps(o, i, kept, "sum_axis", onnx_part(o, i, "sum"));
    // without valid steps: 0 / 1
    const char *steps = onnx_op(o, "Max", count_steps(o, i, counts),
                                onnx_scalar(o, onnx_part(o, i, "least"), 1),
                                onnx_part(o, i, "divisor"));
    onnx_op(o, "Div", sum, steps, out);
}

static void max_steps(Onnx *o, int i, const char *x, const char *counts,
                      const char *out)
{
    const char *lowest = onnx_scalar(o, onnx_part(o, i, "lowest"), -3.4e38f);
    const char *kept = put_where(o, counts, x, lowest, onnx_part(o, i, "kept"));
    const char *most = onnx_part(o, i, "most");
    size_t mark =
        onnx_begin(o, "ReduceMax", (const char *const[]){kept}, 1, most);

    onnx_attr_ints(o, "axes", (const int64_t[]){2}, 1);
    onnx_attr_int(o, "keepdims", 0);
    onnx_end(o, mark);
    const char *none = onnx_scalar(o, onnx_part(o, i, "none"), 0);
    const char *any = onnx_op(o, "Greater", count_steps(o, i, counts), none,
                              onnx_part(o, i, "any"));
    put_where(o, any, most, none, out);
}

/* Selects the step with the number of valid steps: a sum of one value, or of
 * none. */
static void last_step(Onnx *o, int i, const char *x, const char *counts,
                      const char *out)
{
    const int64_t axis = 2;
    const char *steps = count_steps(o, i, counts);

    // (N,1) to broadcast with (N,C,W)
    steps = onnx_op(o, "Unsqueeze", steps,
                    onnx_ints(o, onnx_part(o, i, "number_axis"), &axis, 1),
                    onnx_part(o, i, "number"));
    const char *last = onnx_op(o, "Equal", positions_of(o, i, x, 1, "numbers"),
                               steps, onnx_part(o, i, "last"));
    const char *kept =
        put_where(o, last, x, onnx_scalar(o, onnx_part(o, i, "none"), 0),
                  onnx_part(o, i, "kept"));
    sum_steps(o, i, kept, "sum_axis", out);
}

/* last_step without lengths: the end of every axis. */
static void last_position(Onnx *o, int i, const char *x, int rank,
                          const char *out)
{
    for (int axis = 2; axis < 2 + rank; axis++) {
        char name[16];
        snprintf(name, sizeof name, "end%d", axis);
        x = put_slice(o, i, x, name, axis, -1, INT64_MAX);
    }
    put_int(o, "Flatten", x, NULL, "axis", 1, out);
}

bool onnx_length(Onnx *o, int i, const char *out)
{
    const Op op = (Op)node_of(o, i)->attr.op;
    const int rank = onnx_shown(operand_of(o, i, 0));
    const char *x = onnx_operand(o, i, 0, rank);

    if (node_of(o, i)->in[1] < 0) {
        last_position(o, i, x, rank, out);
        return true;
    }
    if (rank != 1)
        return fail_usage("%s: lengths count along w, of a sequence (C,W); "
                          "this has rank %d",
                          op_info[op].name, rank);
    const char *counts = counts_of(o, i, x, 1);

    if (op == OP_mask_length)
        put_where(o, counts, x, onnx_scalar(o, onnx_part(o, i, "none"), 0),
                  out);
    else if (op == OP_global_avgpool)
        mean_steps(o, i, x, counts, out);
    else if (op == OP_global_maxpool)
        max_steps(o, i, x, counts, out);
    else
        last_step(o, i, x, counts, out);
    return true;
}

// -- LSTM ---------------------------------------------------------------------

bool onnx_folded(const Onnx *o, const bool *used, const int *root, int roots,
                 int i)
{
    int users = 0;
    const Node *n = node_of(o, i);
    if (n->kind != NODE_OP || n->attr.op != OP_linear) return false;
    if (operand_of(o, i, 1)->kind != NODE_PARAM ||
        (n->in[2] >= 0 && operand_of(o, i, 2)->kind != NODE_PARAM))
        return false;
    for (int k = 0; k < roots; k++)
        if (root[k] == i) return false;

    for (int u = i + 1; u < o->g->count; u++)
        for (int k = 0; used[u] && k < MAX_IN; k++) {
            if (node_of(o, u)->in[k] != i) continue;
            if (k || node_of(o, u)->attr.op != OP_lstm) return false;
            users++;
        }
    return users > 0;
}

/* The input weight if the operand is not a linear layer: the operand already
 * holds the gates, and a matrix of zeros and ones reorders them. */
static const char *gate_order(Onnx *o, int i, int hidden)
{
    static const int from[4] = {0, 3, 1, 2};
    const int all = 4 * hidden;
    int64_t count;

    if (__builtin_mul_overflow((int64_t)all, all, &count) || count > INT32_MAX)
        return "";
    float *v = ARENA_NEW(&o->mem, float, count);
    if (!v) o->failed = true;
    if (!v) return "";
    for (int gate = 0; gate < 4; gate++)
        for (int h = 0; h < hidden; h++)
            v[(int64_t)(gate * hidden + h) * all + from[gate] * hidden + h] = 1;
    const int64_t shape[] = {1, all, all};
    const char *flat = onnx_floats(o, onnx_part(o, i, "order"), v, (int)count);
    return onnx_op(o, "Reshape", flat,
                   onnx_ints(o, onnx_part(o, i, "order_shape"), shape, 3),
                   onnx_part(o, i, "input_weight"));
}

/* Returns a bias of four gates, (1,4H), zeros if there is none. */
static const char *gate_bias(Onnx *o, int node, int k, int i, const char *part,
                             int hidden)
{
    if (node >= 0 && node_of(o, node)->in[k] >= 0)
        return onnx_gates(o, node, k);
    char name[32];
    const int64_t shape[] = {1, 4 * (int64_t)hidden};
    snprintf(name, sizeof name, "%s_shape", part);
    const char *flat = onnx_fill(o, onnx_part(o, i, part), 0, 4 * hidden);
    const char *as = onnx_ints(o, onnx_part(o, i, name), shape, 2);
    snprintf(name, sizeof name, "%s_row", part);
    return onnx_op(o, "Reshape", flat, as, onnx_part(o, i, name));
}

/* Operands z (N,4H,W), w (4H,H), b, lengths. ONNX's LSTM takes (W,N,C) and
 * returns (W,1,N,H). */
bool onnx_lstm(Onnx *o, int i, const char *out)
{
    const Node *n = node_of(o, i);
    const int hidden = n->y.dim.c;
    const int linear = o->inside[n->in[0]] ? n->in[0] : -1;
    const char *x =
        linear < 0 ? onnx_operand(o, i, 0, 1) : onnx_operand(o, linear, 0, 1);
    const char *in[6] = {onnx_transpose(o, x, (const int64_t[]){2, 0, 1}, 3,
                                        onnx_part(o, i, "steps_first")),
                         linear < 0 ? gate_order(o, i, hidden)
                                    : onnx_gates(o, linear, 1),
                         onnx_gates(o, i, 1), "", ""};
    const char *bias[] = {gate_bias(o, linear, 2, i, "bias_in", hidden),
                          gate_bias(o, i, 2, i, "bias_back", hidden)};

    if (!*in[1] || !*in[2] || !*bias[0] || !*bias[1]) return o->failed;
    in[3] = put_int(o, "Concat", bias[0], bias[1], "axis", 1,
                    onnx_part(o, i, "biases"));

    if (n->in[3] >= 0) {
        const char *steps = count_steps(o, i, counts_of(o, i, x, 3));
        const int64_t flat = -1;
        steps = onnx_op(o, "Reshape", steps,
                        onnx_ints(o, onnx_part(o, i, "flat"), &flat, 1),
                        onnx_part(o, i, "steps_flat"));
        in[4] = onnx_cast(o, steps, ELEMENT_I32, onnx_part(o, i, "lengths"));
    }

    const char *all = onnx_part(o, i, "all");
    size_t mark = onnx_begin(o, "LSTM", in, 5, all);
    onnx_attr_int(o, "hidden_size", hidden);
    onnx_attr_text(o, "direction",
                   n->attr.lstm.reverse ? "reverse" : "forward");
    onnx_end(o, mark);
    const int64_t direction = 1;
    const char *one =
        onnx_op(o, "Squeeze", all,
                onnx_ints(o, onnx_part(o, i, "direction"), &direction, 1),
                onnx_part(o, i, "one"));
    onnx_transpose(o, one, (const int64_t[]){1, 2, 0}, 3, out);
    return true;
}

// -- attention ----------------------------------------------------------------

/* Returns the extents of the result: x with E channels. */
static const char *attention_shape(Onnx *o, int i, const char *x)
{
    const Node *n = node_of(o, i);
    int64_t shape[2 + RANK_MAX];
    const int axes = dims_to_user(n->y.dim, onnx_shown(n), shape);
    shape[0] = 0; // the batch
    if (!o->any_size || axes == 2)
        return onnx_ints(o, onnx_part(o, i, "shape"), shape, axes);
    const char *all = onnx_op(o, "Shape", x, NULL, onnx_part(o, i, "extents"));
    return put_int(o, "Concat",
                   onnx_ints(o, onnx_part(o, i, "channels"), shape, 2),
                   put_slice(o, i, all, "spatial", 0, 2, INT64_MAX), "axis", 0,
                   onnx_part(o, i, "shape"));
}

/* Returns the softmax of q k per head, with weight 0 for invalid keys. A sample
 * without valid keys gives NaN here, but its result is replaced by 0 at the
 * end. */
static const char *attention_weights(Onnx *o, int i, const char *q,
                                     const char *k, int depth,
                                     const char *counts)
{
    const char *turned = onnx_transpose(o, q, (const int64_t[]){0, 1, 3, 2}, 4,
                                        onnx_part(o, i, "queries"));
    const char *products =
        onnx_op(o, "MatMul", turned, k, onnx_part(o, i, "products"));
    const char *scaled =
        onnx_op(o, "Mul", products,
                onnx_scalar(o, onnx_part(o, i, "by"), (float)(1 / sqrt(depth))),
                onnx_part(o, i, "scaled"));

    if (counts) {
        // (N,1,W) to (N,1,1,W): the keys are the last axis
        const int64_t axis = 1;
        const char *keys =
            onnx_op(o, "Unsqueeze", counts,
                    onnx_ints(o, onnx_part(o, i, "keys_axis"), &axis, 1),
                    onnx_part(o, i, "keys"));
        scaled = put_where(o, keys, scaled,
                           onnx_scalar(o, onnx_part(o, i, "never"), -3.4e38f),
                           onnx_part(o, i, "counted"));
    }

    const char *weights = put_int(o, "Softmax", scaled, NULL, "axis", 3,
                                  onnx_part(o, i, "weights"));
    return onnx_transpose(o, weights, (const int64_t[]){0, 1, 3, 2}, 4,
                          onnx_part(o, i, "weights_turned"));
}

/* x (N,3E,...) as (N, 3 heads, D, L); q, k and v have `heads` channels each. */
bool onnx_attention(Onnx *o, int i, const char *out)
{
    const Node *n = node_of(o, i);
    const int heads = n->attr.attention.heads, depth = n->y.dim.c / heads;
    const int rank = onnx_shown(operand_of(o, i, 0));
    const bool lengths = n->in[1] >= 0;
    const char *x = onnx_operand(o, i, 0, rank), *counts = NULL;

    if (lengths && rank != 1)
        return fail_usage("attention: lengths count along w, of a sequence "
                          "(C,W); this has rank %d",
                          rank);
    if (lengths) counts = counts_of(o, i, x, 1);
    const int64_t split[] = {0, 3 * (int64_t)heads, depth, -1};
    const char *all = onnx_op(o, "Reshape", x,
                              onnx_ints(o, onnx_part(o, i, "split"), split, 4),
                              onnx_part(o, i, "heads"));
    const char *q = put_slice(o, i, all, "q", 1, 0, heads);
    const char *k = put_slice(o, i, all, "k", 1, heads, 2 * heads);
    const char *v = put_slice(o, i, all, "v", 1, 2 * heads, 3 * heads);
    const char *weights = attention_weights(o, i, q, k, depth, counts);
    const char *y = onnx_op(o, "MatMul", v, weights, onnx_part(o, i, "sum"));
    const char *whole = lengths ? onnx_part(o, i, "joined") : out;
    onnx_op(o, "Reshape", y, attention_shape(o, i, x), whole);
    if (lengths)
        put_where(o, counts, whole, onnx_scalar(o, onnx_part(o, i, "none"), 0),
                  out);
    return true;
}
