/* onnx_indices.c -- operators on the elements of fibres, and on indices, in
 * ONNX; random numbers.
 *
 * ONNX has one axis where a fibre may have several. Then the axes of fibres
 * move behind the others and become one by a Reshape. All extents are read at
 * run time where they are free. */
#include "engine/base/normal.h"
#include "engine/onnx/onnx_inside.h"

static const Node *node_of(const Onnx *o, int i)
{
    return &o->g->node[i];
}

static const Node *operand_of(const Onnx *o, int i, int k)
{
    return &o->g->node[node_of(o, i)->in[k]];
}

/* The axes of a value in user order: those across fibres, then those of a
 * fibre. */
typedef struct Axes {
    int64_t order[2 + RANK_MAX];
    int across, all;
} Axes;

/* Of an operator with this many spatial axes; false with a reason if a fibre
 * has none of them. */
static bool axes_of(const Onnx *o, int i, int rank, Axes *out)
{
    const Attr *a = &node_of(o, i)->attr;
    const int flag[3] = {a->sum.d, a->sum.h, a->sum.w};
    int64_t own[1 + RANK_MAX];
    int count = 0;
    *out = (Axes){.across = 1}; // the batch
    if (a->sum.c)
        own[count++] = 1;
    else
        out->order[out->across++] = 1;
    for (int k = 0; k < rank; k++)
        if (flag[3 - rank + k])
            own[count++] = 2 + k;
        else
            out->order[out->across++] = 2 + k;
    for (int k = 0; k < count; k++) out->order[out->across + k] = own[k];
    out->all = out->across + count;
    return count || fail_usage("%s: it has no axis", op_info[a->op].name);
}

/* Are the axes of a fibre several? */
static bool is_joined(const Axes *axes)
{
    return axes->all - axes->across > 1;
}

/* The axis of fibres in the file, after join(). */
static int64_t axis_of(const Axes *axes)
{
    return is_joined(axes) ? axes->across : axes->order[axes->across];
}

/* Makes one axis of the axes of fibres. *apart: the value before the Reshape,
 * for its extents; names of values begin with `part`. */
static const char *join(Onnx *o, int i, const Axes *axes, const char *x,
                        const char *part, const char **apart)
{
    *apart = x;
    if (!is_joined(axes)) return x;
    const char *base = onnx_part(o, i, part);
    *apart = onnx_transpose(o, x, axes->order, axes->all,
                            onnx_join(o, base, "apart"));
    int64_t shape[2 + RANK_MAX] = {0}; // 0: same extent as the operand
    shape[axes->across] = -1;
    return onnx_op(
        o, "Reshape", *apart,
        onnx_ints(o, onnx_join(o, base, "shape"), shape, axes->across + 1),
        onnx_join(o, base, "joined"));
}

/* The extents of x as a value, but `otherwise` along the axes `from` ..
 * `to`-1. Names of values begin with `base`. */
static const char *shape_of(Onnx *o, const char *x, int axes, int from, int to,
                            int64_t otherwise, const char *base)
{
    int64_t take[2 + RANK_MAX], other[2 + RANK_MAX];
    for (int k = 0; k < axes; k++) {
        take[k] = k < from || k >= to;
        other[k] = take[k] ? 0 : otherwise;
    }
    const char *shape =
        onnx_op(o, "Shape", x, NULL, onnx_join(o, base, "extents"));
    shape = onnx_op(o, "Mul", shape,
                    onnx_ints(o, onnx_join(o, base, "take"), take, axes),
                    onnx_join(o, base, "taken"));
    return onnx_op(o, "Add", shape,
                   onnx_ints(o, onnx_join(o, base, "other"), other, axes),
                   onnx_join(o, base, "wanted"));
}

/* The reverse of join(), with the extents of `apart`. */
static void part_again(Onnx *o, int i, const Axes *axes, const char *joined,
                       const char *apart, const char *out)
{
    int64_t back[2 + RANK_MAX];
    const char *base = onnx_part(o, i, "again");
    for (int k = 0; k < axes->all; k++) back[axes->order[k]] = k;
    // 0: same extent as the operand
    const char *y =
        onnx_op(o, "Reshape", joined,
                shape_of(o, apart, axes->all, 0, axes->across, 0, base),
                onnx_join(o, base, "apart"));
    onnx_transpose(o, y, back, axes->all, out);
}

/* The number of elements of a fibre, as a value with one axis. */
static const char *length_of(Onnx *o, int i, const Axes *axes, const char *x)
{
    const int64_t length =
        op_fibre_length(&node_of(o, i)->attr, operand_of(o, i, 0)->y.dim);
    const int64_t axis = axis_of(axes);
    if (!o->any_size) return onnx_ints(o, onnx_part(o, i, "k"), &length, 1);
    return onnx_op(
        o, "Gather", onnx_op(o, "Shape", x, NULL, onnx_part(o, i, "extents")),
        onnx_ints(o, onnx_part(o, i, "axis"), &axis, 1), onnx_part(o, i, "k"));
}

bool onnx_argsort(Onnx *o, int i, const char *out)
{
    Axes axes;
    const char *apart;
    const int rank = onnx_shown(operand_of(o, i, 0));
    if (!axes_of(o, i, rank, &axes)) return false;
    const char *x = join(o, i, &axes, onnx_operand(o, i, 0, rank), "x", &apart);
    const char *in[] = {x, length_of(o, i, &axes, x)};
    const char *order = onnx_part(o, i, "order");
    const char *y = is_joined(&axes) ? onnx_part(o, i, "sorted") : out;
    const size_t mark = onnx_begin(o, "TopK", in, 2, onnx_part(o, i, "values"));
    proto_text(&o->node, ONNX_NODE_OUTPUT, order);
    onnx_attr_int(o, "axis", axis_of(&axes));
    onnx_attr_int(o, "largest", node_of(o, i)->attr.argsort.descending);
    onnx_end(o, mark);
    onnx_cast(o, order, ELEMENT_F32, y);
    if (is_joined(&axes)) part_again(o, i, &axes, y, apart, out);
    return true;
}

/* Gives operand k the extents of the other one across fibres, where those are
 * larger: GatherElements does not broadcast. */
static const char *expanded(Onnx *o, int i, const Axes *axes, int k,
                            const char *x, const char *other)
{
    const Node *a = operand_of(o, i, k), *b = operand_of(o, i, 1 - k);
    const Dims p = op_reduced_dims(&node_of(o, i)->attr, a->y.dim);
    const Dims q = op_reduced_dims(&node_of(o, i)->attr, b->y.dim);
    if ((a->batched || !b->batched) && p.n >= q.n && p.d >= q.d && p.h >= q.h &&
        p.w >= q.w && p.c >= q.c)
        return x;

    // all extents but that of the fibres
    const int n = is_joined(axes) ? axes->across + 1 : axes->all;
    const int axis = (int)axis_of(axes);
    const char *base = onnx_part(o, i, k ? "index_wide" : "x_wide");
    return onnx_op(o, "Expand", x,
                   shape_of(o, other, n, axis, axis + 1, 1, base), base);
}

bool onnx_gather(Onnx *o, int i, const char *out)
{
    Axes axes;
    const char *apart;
    const int rank = onnx_shown(node_of(o, i));
    if (!axes_of(o, i, rank, &axes)) return false;
    const char *x = join(o, i, &axes, onnx_operand(o, i, 0, rank), "x", &apart);
    const char *index =
        join(o, i, &axes, onnx_operand(o, i, 1, rank), "index", &apart);
    const char *in[] = {expanded(o, i, &axes, 0, x, index),
                        expanded(o, i, &axes, 1, index, x)};
    in[1] =
        onnx_cast(o, onnx_op(o, "Round", in[1], NULL, onnx_part(o, i, "whole")),
                  ELEMENT_I64, onnx_part(o, i, "number"));
    const char *y = is_joined(&axes) ? onnx_part(o, i, "chosen") : out;
    const size_t mark = onnx_begin(o, "GatherElements", in, 2, y);
    onnx_attr_int(o, "axis", axis_of(&axes));
    onnx_end(o, mark);
    if (is_joined(&axes)) part_again(o, i, &axes, y, apart, out);
    return true;
}

/* The axes that the result keeps come back in their places, with extent 1. */
bool onnx_argmax(Onnx *o, int i, const char *out)
{
    Axes axes;
    const char *apart;
    int64_t back[2 + RANK_MAX];
    const int rank = onnx_shown(operand_of(o, i, 0));
    int count = 0;
    if (!axes_of(o, i, rank, &axes)) return false;
    const char *x = join(o, i, &axes, onnx_operand(o, i, 0, rank), "x", &apart);
    const char *index = onnx_part(o, i, "index");
    const size_t mark =
        onnx_begin(o, "ArgMax", (const char *const[]){x}, 1, index);
    onnx_attr_int(o, "axis", axis_of(&axes));
    onnx_attr_int(o, "keepdims", 0);
    onnx_end(o, mark);

    for (int k = axes.across; k < axes.all; k++)
        if (axes.order[k] == 1 || !node_of(o, i)->attr.argmax.drop)
            back[count++] = axes.order[k];
    const char *y = count ? onnx_part(o, i, "number") : out;
    onnx_cast(o, index, ELEMENT_F32, y);
    if (count)
        onnx_op(o, "Unsqueeze", y,
                onnx_ints(o, onnx_part(o, i, "back"), back, count), out);
    return true;
}

/* The whole numbers nearest to operand k. */
static const char *rounded(Onnx *o, int i, int k, int rank)
{
    return onnx_op(o, "Round", onnx_operand(o, i, k, rank), NULL,
                   onnx_part(o, i, "whole"));
}

/* A comparison with the numbers of all channels. */
bool onnx_one_hot(Onnx *o, int i, const char *out)
{
    const int rank = onnx_shown(operand_of(o, i, 0));
    const int classes = node_of(o, i)->attr.one_hot.classes;
    const int64_t shape[2 + RANK_MAX] = {1, classes, 1, 1, 1};
    float *numbers = ARENA_NEW(&o->mem, float, classes);
    if (!numbers) return false;
    for (int k = 0; k < classes; k++) numbers[k] = (float)k;
    const char *channels =
        onnx_op(o, "Reshape",
                onnx_floats(o, onnx_part(o, i, "numbers"), numbers, classes),
                onnx_ints(o, onnx_part(o, i, "shape"), shape, 2 + rank),
                onnx_part(o, i, "channels"));
    const char *same = onnx_op(o, "Equal", rounded(o, i, 0, rank), channels,
                               onnx_part(o, i, "same"));
    onnx_cast(o, same, ELEMENT_F32, out);
    return true;
}

/* Rows of the table come last and move to the place of the channels. */
bool onnx_embedding(Onnx *o, int i, const char *out)
{
    const int rank = onnx_shown(operand_of(o, i, 1));
    const int64_t one = 1;
    int64_t order[2 + RANK_MAX] = {0, 1 + rank};
    for (int k = 0; k < rank; k++) order[2 + k] = 1 + k;
    const char *number = onnx_cast(o, rounded(o, i, 1, rank), ELEMENT_I64,
                                   onnx_part(o, i, "number"));
    number = onnx_op(o, "Squeeze", number,
                     onnx_ints(o, onnx_part(o, i, "axis"), &one, 1),
                     onnx_part(o, i, "index"));
    const char *rows = onnx_op(o, "Gather", onnx_operand(o, i, 0, 0), number,
                               onnx_part(o, i, "rows"));
    onnx_transpose(o, rows, order, 2 + rank, out);
    return true;
}

/* Random numbers are the mean of their distribution, as in evaluation. */
bool onnx_random(Onnx *o, int i, const char *out)
{
    const Attr *a = &node_of(o, i)->attr;
    const float mean = a->op == OP_normal
                           ? a->normal.mean
                           : uniform_mean(a->uniform.low, a->uniform.high);
    const char *x = onnx_operand(o, i, 0, onnx_shown(operand_of(o, i, 0)));
    const char *zeros =
        onnx_op(o, "ConstantOfShape",
                onnx_op(o, "Shape", x, NULL, onnx_part(o, i, "extents")), NULL,
                onnx_part(o, i, "zeros"));
    onnx_op(o, "Add", zeros, onnx_scalar(o, onnx_part(o, i, "mean"), mean),
            out);
    return true;
}
