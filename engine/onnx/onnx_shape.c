/* onnx_shape.c -- operators that move elements, running sums and products of
 * matrices in ONNX: see onnx_node.c. */
#include "engine/onnx/onnx_inside.h"

enum { AXES = 2 + RANK_MAX }; // of a value, at most

static const Node *node_of(const Onnx *o, int i)
{
    return &o->g->node[i];
}

static const Tensor *operand_of(const Onnx *o, int i)
{
    return &o->g->node[node_of(o, i)->in[0]].y;
}

static int rank_out(const Onnx *o, int i)
{
    return onnx_shown(node_of(o, i));
}

/* The axis in the file of axis k (0 d, 1 h, 2 w, 3 c) of a value with `rank`
 * spatial axes; below 2 for a spatial axis that it does not have. */
static int axis_of(int rank, int k)
{
    return k == 3 ? 1 : k - 1 + rank;
}

/* The extents, or numbers, of the attributes d, h, w, c in the order of the
 * file. Returns the number of axes; the batch is `batch`. */
static int attributes(const Onnx *o, int i, int64_t batch, int64_t list[AXES])
{
    const int rank = rank_out(o, i);
    list[0] = batch;
    for (int k = 3 - rank; k < 4; k++)
        list[axis_of(rank, k)] = node_of(o, i)->attr.word[1 + k];
    return 2 + rank;
}

/* Moves the channels of a value behind its spatial axes; `swap`: and then
 * before the last of them. */
static const char *channels_last(Onnx *o, const char *x, int rank, bool swap,
                                 const char *out)
{
    int64_t perm[AXES] = {0};
    for (int k = 0; k < rank; k++) perm[1 + k] = 2 + k;
    perm[1 + rank] = 1;
    if (swap) perm[1 + rank] = 1 + rank, perm[rank] = 1;
    return onnx_transpose(o, x, perm, 2 + rank, out);
}

/* The inverse, without `swap`. */
static const char *channels_first(Onnx *o, const char *x, int rank,
                                  const char *out)
{
    int64_t perm[AXES] = {0, 1 + rank};
    for (int k = 0; k < rank; k++) perm[2 + k] = 1 + k;
    return onnx_transpose(o, x, perm, 2 + rank, out);
}

bool onnx_reshape(Onnx *o, int i, const char *out)
{
    const int from = onnx_shown(&o->g->node[node_of(o, i)->in[0]]);
    const int rank = rank_out(o, i);
    const char *x = onnx_operand(o, i, 0, from), *shape;
    int64_t list[AXES];
    const int axes = attributes(o, i, 0, list); // 0: the batch of x
    const bool last = node_of(o, i)->attr.reshape.channels_last;

    if (last) {
        const int64_t channels = list[1];
        for (int k = 1; k < axes - 1; k++) list[k] = list[k + 1];
        list[axes - 1] = channels;
        x = channels_last(o, x, from, false, onnx_part(o, i, "last"));
    }
    shape = onnx_ints(o, onnx_part(o, i, "shape"), list, axes);
    if (!last) {
        onnx_op(o, "Reshape", x, shape, out);
        return true;
    }
    x = onnx_op(o, "Reshape", x, shape, onnx_part(o, i, "reshaped"));
    channels_first(o, x, rank, out);
    return true;
}

bool onnx_permute(Onnx *o, int i, const char *out)
{
    const int rank = rank_out(o, i);
    int64_t perm[AXES];
    const int axes = attributes(o, i, 0, perm);
    for (int k = 1; k < axes; k++) perm[k] = axis_of(rank, (int)perm[k]);
    onnx_transpose(o, onnx_operand(o, i, 0, rank), perm, axes, out);
    return true;
}

/* A slice from the last element backwards. */
bool onnx_flip(Onnx *o, int i, const char *out)
{
    int64_t flag[AXES], from[AXES], to[AXES], axis[AXES], step[AXES];
    const int axes = attributes(o, i, 0, flag);
    const char *x = onnx_operand(o, i, 0, rank_out(o, i));
    int n = 0;
    for (int k = 1; k < axes; k++)
        if (flag[k]) {
            axis[n] = k, from[n] = -1, to[n] = INT64_MIN;
            step[n++] = -1;
        }
    if (!n) {
        onnx_op(o, "Identity", x, NULL, out);
        return true;
    }
    const char *in[] = {x, onnx_ints(o, onnx_part(o, i, "from"), from, n),
                        onnx_ints(o, onnx_part(o, i, "to"), to, n),
                        onnx_ints(o, onnx_part(o, i, "axes"), axis, n),
                        onnx_ints(o, onnx_part(o, i, "steps"), step, n)};
    onnx_end(o, onnx_begin(o, "Slice", in, 5, out));
    return true;
}

/* A name inside node i from `axis`, the name of an axis, and a letter. */
static const char *part_of(Onnx *o, int i, const char *axis, char letter)
{
    const char part[] = {axis[0], letter, 0};
    return onnx_part(o, i, part);
}

/* Elements from .. to-1 of x along an axis; its own name and those of the three
 * constants end in `letter` and the next ones. */
static const char *cut(Onnx *o, int i, const char *x, int64_t from, int64_t to,
                       int64_t axis, const char *name, char letter)
{
    const char *out = part_of(o, i, name, letter);
    const char *in[] = {
        x, onnx_ints(o, part_of(o, i, name, (char)(letter + 1)), &from, 1),
        onnx_ints(o, part_of(o, i, name, (char)(letter + 2)), &to, 1),
        onnx_ints(o, part_of(o, i, name, (char)(letter + 3)), &axis, 1)};
    onnx_end(o, onnx_begin(o, "Slice", in, 4, out));
    return out;
}

/* Rolls x along an axis: the last `shift` elements, then the others; below 0:
 * those after the first -shift, then the first ones. */
static const char *rolled(Onnx *o, int i, const char *x, int axis,
                          const char *name, int64_t shift)
{
    const char *out = onnx_part(o, i, name);
    const char *in[] = {cut(o, i, x, -shift, INT64_MAX, axis, name, 'a'),
                        cut(o, i, x, 0, -shift, axis, name, 'e')};
    const size_t mark = onnx_begin(o, "Concat", in, 2, out);
    onnx_attr_int(o, "axis", axis);
    onnx_end(o, mark);
    return out;
}

bool onnx_roll(Onnx *o, int i, const char *out)
{
    static const char *const name[4] = {"d", "h", "w", "c"};
    const int rank = rank_out(o, i);
    const Dims s = operand_of(o, i)->dim;
    const int32_t *places = &node_of(o, i)->attr.word[1];
    const int32_t extent[4] = {s.d, s.h, s.w, s.c};
    const char *x = onnx_operand(o, i, 0, rank);
    for (int k = 3 - rank; k < 4; k++) {
        // with the sign of the attribute, so that it fits other sizes
        const int64_t shift = places[k] % extent[k];
        if (o->any_size && shift != places[k])
            return fail_usage("roll: %d places are not fewer than the extent "
                              "%d along %s, so sizes cannot be free; fix: "
                              "%lld, or export without any_size",
                              places[k], extent[k], name[k], (long long)shift);
        if (shift) x = rolled(o, i, x, axis_of(rank, k), name[k], shift);
    }
    onnx_op(o, "Identity", x, NULL, out);
    return true;
}

bool onnx_repeats(Onnx *o, int i, const char *out)
{
    int64_t times[AXES];
    const int axes = attributes(o, i, 1, times);
    onnx_op(o, "Tile", onnx_operand(o, i, 0, rank_out(o, i)),
            onnx_ints(o, onnx_part(o, i, "times"), times, axes), out);
    return true;
}

bool onnx_cumsum(Onnx *o, int i, const char *out)
{
    const Attr *a = &node_of(o, i)->attr;
    const int rank = rank_out(o, i);
    const int64_t axis = axis_of(rank, a->cumsum.axis);
    const char *x = onnx_operand(o, i, 0, rank);
    if (a->cumsum.axis < 3 - rank) { // an extent of 1
        onnx_op(o, "Identity", x, NULL, out);
        return true;
    }
    const char *in[] = {x, onnx_ints(o, onnx_part(o, i, "axis"), &axis, 1)};
    const size_t mark = onnx_begin(o, "CumSum", in, 2, out);
    onnx_attr_int(o, "reverse", a->cumsum.reverse);
    onnx_end(o, mark);
    return true;
}

/* MatMul multiplies the last two axes, so rows and columns go there. */
bool onnx_matmul(Onnx *o, int i, const char *out)
{
    const Attr *a = &node_of(o, i)->attr;
    const int rank = rank_out(o, i);
    const char *left =
        channels_last(o, onnx_operand(o, i, 0, rank), rank,
                      a->matmul.transpose_a, onnx_part(o, i, "a"));
    const char *right =
        channels_last(o, onnx_operand(o, i, 1, rank), rank,
                      a->matmul.transpose_b, onnx_part(o, i, "b"));
    channels_first(
        o, onnx_op(o, "MatMul", left, right, onnx_part(o, i, "product")), rank,
        out);
    return true;
}
