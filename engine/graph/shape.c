/* shape.c -- the shape rules named in ops.def.
 *
 * Each rule computes the extents of the result, or fails with a sentence for
 * the author of the recipe. Operands may be missing or invalid, as the rule is
 * the first check; sums and products that may exceed 32 bits are computed in
 * int64_t and refused. Rules run when a node is appended, so an impossible
 * network fails on the line of the recipe before a file is opened, and again
 * when a plan fixes the batch size. Operands beyond the row's `in` never reach
 * a rule. */
#include "engine/graph/attention_dropout.h"
#include "engine/graph/dose_bins.h"
#include "engine/graph/op.h"
#include <limits.h>
#include <stdio.h>

// declares and begins a rule: SHAPE(conv) { ... }
#define SHAPE(name)       \
    ShapeFn shape_##name; \
    bool shape_##name(const Attr *a, const Tensor x[MAX_IN], Tensor *y)

static const char *const axis_name[4] = {"d", "h", "w", "c"};

/* Extents are 1 or more, so n = 0 means that the operand is absent. */
static bool present(const Tensor *t)
{
    return t->dim.n != 0;
}

/* The three spatial extents by number: 0 d, 1 h, 2 w. */
static int32_t *axis(Dims *s, int i)
{
    return i == 0 ? &s->d : i == 1 ? &s->h : &s->w;
}

/* Is this a vector of c channels, or absent? */
static bool vector_of(const char *op, const char *what, const Tensor *t, int c)
{
    char text[DIMS_TEXT];
    Dims want = {1, 1, 1, 1, c};
    if (!present(t) || dims_equal(t->dim, want)) return true;
    return fail_usage("%s: %s must have %d elements, got %s", op, what, c,
                      dims_text(t->dim, t->rank, text));
}

/* Checks v >= least; the reason names operator and attribute. */
static bool at_least(const char *op, const char *what, int v, int least)
{
    if (v >= least) return true;
    return fail_usage("%s: %s must be >= %d, got %d", op, what, least, v);
}

/* Elementwise operators: the extents of the operand. */
SHAPE(same)
{
    (void)a;
    y->dim = x[0].dim;
    return true;
}

/* Reductions over some axes. Extents that stay keep their order, so the
 * elements of a result without the others have the same places in memory. */
SHAPE(reduce)
{
    const int flag[3] = {a->sum.d, a->sum.h, a->sum.w};
    y->dim = op_reduced_dims(a, x[0].dim);
    if (!a->sum.drop || y->rank < 1) return true;
    Dims kept = y->dim;
    int rank = 0;
    kept.d = kept.h = kept.w = 1;
    for (int i = 2; i >= 3 - y->rank; i--) {
        if (flag[i]) continue;
        *axis(&kept, 2 - rank) = *axis(&y->dim, i);
        rank++;
    }
    y->dim = kept, y->rank = rank;
    return true;
}

/* Can a 32-bit float hold every index into x? */
static bool countable(const char *op, const Attr *a, const Tensor *x)
{
    char text[DIMS_TEXT];
    const int64_t count = op_indices(a, x->dim);
    if (count <= MOST_INDICES) return true;
    return fail_usage("%s: %lld indices of %s; a 32-bit float counts to %d; "
                      "fix: fewer axes, a smaller patch or a smaller table",
                      op, (long long)count, dims_text(x->dim, x->rank, text),
                      (int)MOST_INDICES);
}

/* Fibres of the operand become fibres of the result. */
SHAPE(fibres)
{
    y->dim = x[0].dim;
    return countable(op_info[a->op].name, a, &x[0]);
}

/* An index for each fibre of the operand. */
SHAPE(numbers)
{
    return countable(op_info[a->op].name, a, &x[0]) && shape_reduce(a, x, y);
}

/* Class numbers become a channel for each class. */
SHAPE(one_hot)
{
    const int classes = a->one_hot.classes;
    if (x[0].dim.c != 1)
        return fail_usage("one_hot: class numbers have one channel, got %d",
                          x[0].dim.c);
    if (classes < 1 || classes > MOST_INDICES)
        return fail_usage("one_hot: classes must be 1 .. %d, got %d",
                          (int)MOST_INDICES, classes);
    y->dim = x[0].dim;
    y->dim.c = classes;
    return true;
}

/* A number: one value for all samples, positions and channels. */
SHAPE(constant)
{
    (void)a, (void)x;
    y->dim = (Dims){1, 1, 1, 1, 1};
    return true;
}

/* Result of a window along each axis: floor((X + lo + hi - span) / s) + 1, span
 * = dil (k - 1) + 1; sets the three spatial extents of *out only. */
static bool slide(const char *op, const Window *g, Dims in, Dims *out)
{
    for (int i = 0; i < 3; i++) {
        int32_t size = *axis(&in, i);
        if (!at_least(op, "kernel", g->k[i], 1) ||
            !at_least(op, "stride", g->s[i], 1) ||
            !at_least(op, "dilation", g->dil[i], 1) ||
            !at_least(op, "padding", g->lo[i], 0) ||
            !at_least(op, "padding", g->hi[i], 0))
            return false;
        int64_t span = (int64_t)g->dil[i] * (g->k[i] - 1) + 1;
        int64_t room = (int64_t)size + g->lo[i] + g->hi[i] - span;
        if (room < 0)
            return fail_usage("%s: a window of %lld does not fit %s = %d with "
                              "padding %d + %d",
                              op, (long long)span, axis_name[i], size, g->lo[i],
                              g->hi[i]);
        if (room / g->s[i] + 1 > INT32_MAX)
            return fail_usage("%s: %s = %d would become %lld, which is too "
                              "large",
                              op, axis_name[i], size,
                              (long long)(room / g->s[i] + 1));
        *axis(out, i) = (int32_t)(room / g->s[i] + 1);
    }
    return true;
}

/* x (N,D,H,W,Ci), w (Co,kd,kh,kw,Ci/groups), b (Co) or absent. An absent w has
 * extents 0, which match no operand, so it needs no check of its own. */
SHAPE(conv)
{
    Dims in = x[0].dim, w = x[1].dim;
    Window g = op_window(a, &x[1]);
    if (!at_least("conv", "groups", g.groups, 1)) return false;
    if (in.c % g.groups || w.n % g.groups || w.c != in.c / g.groups)
        return fail_usage("conv: %d channels in %d groups do not fit a weight "
                          "of %d filters with %d channels each",
                          in.c, g.groups, w.n, w.c);
    y->dim = (Dims){in.n, 1, 1, 1, w.n};
    return slide("conv", &g, in, &y->dim) &&
           vector_of("conv", "bias", &x[2], w.n);
}

/* x (N,D,H,W,Ci), w (Ci,kd,kh,kw,Co/groups): Y = (X - 1) s + span - lo - hi. hi
 * may be negative: nn.upconv passes its out_pad this way. */
SHAPE(upconv)
{
    Dims in = x[0].dim, w = x[1].dim;
    Window g = op_window(a, &x[1]);
    if (!at_least("upconv", "groups", g.groups, 1)) return false;
    if (in.c != w.n || in.c % g.groups)
        return fail_usage("upconv: %d channels in %d groups do not fit a "
                          "weight for %d channels",
                          in.c, g.groups, w.n);
    if (w.c > INT32_MAX / g.groups)
        return fail_usage("upconv: too many channels");
    y->dim = (Dims){in.n, 1, 1, 1, w.c * g.groups};

    for (int i = 0; i < 3; i++) {
        if (!at_least("upconv", "stride", g.s[i], 1) ||
            !at_least("upconv", "dilation", g.dil[i], 1) ||
            !at_least("upconv", "padding", g.lo[i], 0))
            return false;
        // two products below 2^62 and small terms: no overflow
        int64_t out = (int64_t)(*axis(&in, i) - 1) * g.s[i] +
                      (int64_t)g.dil[i] * (g.k[i] - 1) + 1 - g.lo[i] - g.hi[i];
        if (out < 1 || out > INT32_MAX)
            return fail_usage("upconv: %s = %d would become %lld; less padding "
                              "or a larger kernel is needed",
                              axis_name[i], *axis(&in, i), (long long)out);
        *axis(&y->dim, i) = (int32_t)out;
    }
    return vector_of("upconv", "bias", &x[2], y->dim.c);
}

/* Channels at each position; w (out,1,1,1,in). */
SHAPE(linear)
{
    (void)a;
    Dims w = x[1].dim;
    if (w.c != x[0].dim.c || w.d != 1 || w.h != 1 || w.w != 1)
        return fail_usage("linear: %d channels do not fit a weight for %d",
                          x[0].dim.c, w.c);
    y->dim = x[0].dim;
    y->dim.c = w.n;
    return vector_of("linear", "bias", &x[2], w.n);
}

/* The window is in the attributes; channels do not change. */
SHAPE(pool)
{
    Window g = op_window(a, NULL);
    const char *op = op_info[a->op].name;
    for (int i = 0; i < 3; i++)
        if (g.k[i] < 1)
            return fail_usage("%s: the kernel must be 1 or more, got %d", op,
                              g.k[i]);

    // a window entirely inside the padding would contain no element
    for (int i = 0; i < 3; i++)
        if (g.lo[i] >= g.k[i] || g.hi[i] >= g.k[i])
            return fail_usage("%s: padding %d + %d must be smaller than the "
                              "kernel %d",
                              op, g.lo[i], g.hi[i], g.k[i]);

    y->dim = x[0].dim;
    return slide(op, &g, x[0].dim, &y->dim);
}

/* Are the lengths one number per sample, or absent? */
static bool counts(const char *op, const Tensor *x, const Tensor *lengths)
{
    char text[DIMS_TEXT];
    Dims want = {x->dim.n, 1, 1, 1, 1};
    if (!present(lengths) || dims_equal(lengths->dim, want)) return true;
    return fail_usage("%s: lengths must be one number a sample, (N,1), got "
                      "(N,C,...) of shape %s",
                      op, dims_text(lengths->dim, lengths->rank, text));
}

/* (N,C,...) to (N,C). */
SHAPE(global)
{
    if (!counts(op_info[a->op].name, &x[0], &x[1])) return false;
    y->dim = (Dims){x[0].dim.n, 1, 1, 1, x[0].dim.c};
    y->rank = 0;
    return true;
}

/* Extents of the operand; lengths are required. */
SHAPE(lengths)
{
    const char *op = op_info[a->op].name;
    y->dim = x[0].dim;
    return present(&x[1]) ? counts(op, &x[0], &x[1])
                          : fail_usage("%s: the lengths are missing", op);
}

/* z (N,1,1,W,4H), w (4H,1,1,1,H), b (4H) or absent. */
SHAPE(lstm)
{
    (void)a;
    Dims in = x[0].dim, w = x[1].dim;
    if (in.d != 1 || in.h != 1)
        return fail_usage(
            "lstm: needs a sequence with one axis, got %dx%dx%d as d x h x w",
            in.d, in.h, in.w);
    if (in.c % 4 || w.n != in.c || w.c != in.c / 4 || w.d != 1 || w.h != 1 ||
        w.w != 1)
        return fail_usage("lstm: %d channels of four gates do not fit a weight "
                          "of %d by %d",
                          in.c, w.n, w.c);

    y->dim = in;
    y->dim.c = w.c;
    return vector_of("lstm", "bias", &x[2], in.c) &&
           counts("lstm", &x[0], &x[3]);
}

/* x (N,...,3E) to (N,...,E). */
SHAPE(attention)
{
    Dims in = x[0].dim;
    int heads = a->attention.heads;
    if (!at_least("attention", "heads", heads, 1)) return false;
    if (positions(in) > ATTEND_MOST)
        return fail_usage("attention: %lld positions, the limit is %d",
                          (long long)positions(in), (int)ATTEND_MOST);
    if (in.c % 3 || in.c / 3 % heads)
        return fail_usage("attention: %d channels of q, k and v do not divide "
                          "into %d heads",
                          in.c, heads);
    y->dim = in;
    y->dim.c = in.c / 3;
    return counts("attention", &x[0], &x[1]);
}

/* Each spatial extent times its factor. */
SHAPE(upsample)
{
    // both operators begin with the same three factors
    const int32_t *f = &a->word[1];
    y->dim = x[0].dim;

    for (int i = 0; i < 3; i++) {
        int32_t *e = axis(&y->dim, i);
        if (!at_least(op_info[a->op].name, "scale", f[i], 1)) return false;
        if (f[i] > INT32_MAX / *e)
            return fail_usage("%s: %s = %d times %d is too large",
                              op_info[a->op].name, axis_name[i], *e, f[i]);
        *e *= f[i];
    }
    return true;
}

/* All four norms. Only batch_norm has running statistics; graph_op checks that
 * they are parameters, as extents do not show it. */
SHAPE(norm)
{
    const char *op = op_info[a->op].name;
    int c = x[0].dim.c;
    if (present(&x[1]) != present(&x[2]))
        return fail_usage("%s: give weight and bias, or neither", op);
    if (a->op == OP_batch_norm && (!present(&x[3]) || !present(&x[4])))
        return fail_usage("batch_norm: running mean and variance are missing");
    if (a->op == OP_group_norm &&
        (a->group_norm.groups < 1 || c % a->group_norm.groups))
        return fail_usage("group_norm: %d channels do not divide into %d "
                          "groups",
                          c, a->group_norm.groups);

    y->dim = x[0].dim;
    return vector_of(op, "weight", &x[1], c) &&
           vector_of(op, "bias", &x[2], c) &&
           vector_of(op, "running mean", &x[3], c) &&
           vector_of(op, "running variance", &x[4], c);
}

/* Sets out to the common extents of p and q if each pair is equal or has a
 * 1. */
static bool broadcast(Dims p, Dims q, Dims *out)
{
    const int32_t *e = &p.n, *f = &q.n;
    int32_t *o = &out->n;
    for (int i = 0; i < 5; i++) {
        if (e[i] != f[i] && e[i] != 1 && f[i] != 1) return false;
        o[i] = e[i] > f[i] ? e[i] : f[i];
    }
    return true;
}

/* Is operand i present? */
static bool given(const char *op, const Tensor x[MAX_IN], int i)
{
    return present(&x[i]) || fail_usage("%s: operand %d is missing", op, i + 1);
}

/* The result has the larger rank: (N,C) + (N,C,H,W) is an image. */
SHAPE(broadcast)
{
    char p[DIMS_TEXT], q[DIMS_TEXT];
    if (!given(op_info[a->op].name, x, 1)) return false;
    if (x[0].rank > 0 && x[1].rank > 0 && x[0].rank != x[1].rank)
        return fail_usage(
            "%s: %s has %d spatial axes and %s has %d: their axes "
            "would be mixed up; fix: keep = true in a sum or mean "
            "keeps axes of 1",
            op_info[a->op].name, dims_text(x[0].dim, x[0].rank, p), x[0].rank,
            dims_text(x[1].dim, x[1].rank, q), x[1].rank);
    if (!broadcast(x[0].dim, x[1].dim, &y->dim))
        return fail_usage(
            "%s: shapes %s and %s do not match; each extent must be equal or 1",
            op_info[a->op].name, dims_text(x[0].dim, x[0].rank, p),
            dims_text(x[1].dim, x[1].rank, q));
    if (x[1].rank > y->rank) y->rank = x[1].rank;
    return true;
}

/* x and index: fibres of any two lengths; the other extents are broadcast. The
 * fibres of the result are those of index. */
SHAPE(gather)
{
    char p[DIMS_TEXT], q[DIMS_TEXT];
    if (!given("gather", x, 1) || !countable("gather", a, &x[0])) return false;
    const Dims index = x[1].dim;
    if ((x[0].rank > 0 && x[1].rank > 0 && x[0].rank != x[1].rank) ||
        !broadcast(op_reduced_dims(a, x[0].dim), op_reduced_dims(a, index),
                   &y->dim))
        return fail_usage("gather: an index of shape %s does not fit %s; the "
                          "extents of all axes but those along which indices "
                          "count must be equal or 1",
                          dims_text(index, x[1].rank, q),
                          dims_text(x[0].dim, x[0].rank, p));
    if (a->gather.d) y->dim.d = index.d;
    if (a->gather.h) y->dim.h = index.h;
    if (a->gather.w) y->dim.w = index.w;
    if (a->gather.c) y->dim.c = index.c;
    if (x[1].rank > y->rank) y->rank = x[1].rank;
    return true;
}

/* Table (count,1,1,1,size) and indices of one channel: a row for each. */
SHAPE(embedding)
{
    const Dims table = x[0].dim;
    char text[DIMS_TEXT];
    if (!given("embedding", x, 1) || !countable("embedding", a, &x[0]))
        return false;
    if (x[1].dim.c != 1)
        return fail_usage("embedding: indices have one channel, got %d",
                          x[1].dim.c);
    if (table.d != 1 || table.h != 1 || table.w != 1)
        return fail_usage("embedding: a table has two axes, (count, size), "
                          "got %s",
                          dims_text(table, x[0].rank, text));
    y->dim = x[1].dim;
    y->dim.c = table.c;
    y->rank = x[1].rank;
    return true;
}

/* Channels of up to MAX_IN operands; all other extents must be equal. */
SHAPE(concat)
{
    (void)a;
    char p[DIMS_TEXT], q[DIMS_TEXT];
    int count = MAX_IN; // up to the last one given; a gap is an error below
    while (!present(&x[count - 1])) count--;
    y->dim = x[0].dim;

    for (int i = 1; i < count; i++) {
        Dims d = x[i].dim;
        d.c = x[0].dim.c;
        if (!given("concat", x, i)) return false;
        if (!dims_equal(d, x[0].dim))
            return fail_usage(
                "concat: %s and %s differ in more than channels; the image "
                "size must be divisible by the network's total stride",
                dims_text(x[0].dim, x[0].rank, p),
                dims_text(x[i].dim, x[i].rank, q));
        if (x[i].dim.c > INT32_MAX - y->dim.c)
            return fail_usage("concat: too many channels");
        y->dim.c += x[i].dim.c;
    }
    return true;
}

/* A box of each sample; not along the batch. */
SHAPE(slice)
{
    // pairs (from, size) for d, h, w, c; size 0 means up to the end
    const int32_t *box = &a->word[1];
    y->dim = x[0].dim;
    int32_t *e[4] = {&y->dim.d, &y->dim.h, &y->dim.w, &y->dim.c};

    for (int i = 0; i < 4; i++) {
        int from = box[2 * i], size = box[2 * i + 1];
        if (from < 0 || from >= *e[i] || size < 0 || size > *e[i] - from)
            return fail_usage(
                "slice: %s from %d, length %d, is outside of 0 .. %d",
                axis_name[i], from, size, *e[i] - 1);
        *e[i] = size ? size : *e[i] - from;
    }
    return true;
}

/* A border around the spatial axes. */
SHAPE(pad)
{
    // the same six words in the same order as the padding of a window
    const int32_t *p = &a->word[1];
    y->dim = x[0].dim;

    for (int i = 0; i < 3; i++) {
        int32_t *e = axis(&y->dim, i);
        int64_t sum = (int64_t)*e + p[2 * i] + p[2 * i + 1];
        if (!at_least("pad", "padding", p[2 * i], 0) ||
            !at_least("pad", "padding", p[2 * i + 1], 0))
            return false;
        if (sum > INT32_MAX) return fail_usage("pad: too large");
        *e = (int32_t)sum;
    }
    return true;
}

/* (N,C,D,H,W) to (N, C*D*H*W). */
SHAPE(flatten)
{
    (void)a;
    Dims s = x[0].dim;
    int64_t c = positions(s) * s.c; // fits: the operand is addressable
    if (c > INT32_MAX)
        return fail_usage("flatten: %lld elements are too many for one axis",
                          (long long)c);
    y->dim = (Dims){s.n, 1, 1, 1, (int32_t)c};
    y->rank = 0;
    return true;
}

/* The extents are attributes; one of them may be -1. */
SHAPE(reshape)
{
    const int32_t *want = &a->word[1]; // d, h, w, c
    const int rank = a->reshape.rank;
    const int64_t all = positions(x[0].dim) * x[0].dim.c;
    int32_t *e[4] = {&y->dim.d, &y->dim.h, &y->dim.w, &y->dim.c};
    int64_t rest = all;
    int open = -1;
    bool fits = true;
    char text[DIMS_TEXT];

    if (rank < 0 || rank > RANK_MAX)
        return fail_usage("reshape: rank must be 0 .. %d, got %d", RANK_MAX,
                          rank);
    y->rank = rank;
    for (int i = 0; i < 4; i++) {
        if (want[i] == -1 && open < 0) {
            open = i;
            continue;
        }
        if (want[i] < 1)
            return fail_usage("reshape: %s must be 1 or more, or -1 for one "
                              "axis that takes what remains, got %d",
                              axis_name[i], want[i]);
        fits = fits && rest % want[i] == 0;
        rest /= want[i];
        *e[i] = want[i];
    }
    fits = fits && (open < 0 ? rest == 1 : rest >= 1 && rest <= INT32_MAX);
    if (!fits)
        return fail_usage("reshape: the %lld elements of a sample of %s do "
                          "not fill c %d, d %d, h %d, w %d",
                          (long long)all, dims_text(x[0].dim, x[0].rank, text),
                          want[3], want[0], want[1], want[2]);
    if (open >= 0) *e[open] = (int32_t)rest;
    return true;
}

/* Each axis of x is an axis of the result. */
SHAPE(permute)
{
    const int32_t *from = &a->word[1];
    const int32_t extent[4] = {x[0].dim.d, x[0].dim.h, x[0].dim.w, x[0].dim.c};
    int32_t *e[4] = {&y->dim.d, &y->dim.h, &y->dim.w, &y->dim.c};
    unsigned seen = 0;
    char text[DIMS_TEXT];
    y->dim = x[0].dim;
    for (int i = 0; i < 4; i++) {
        if (from[i] < 0 || from[i] > 3)
            return fail_usage("permute: %s must be an axis, 0 .. 3, got %d",
                              axis_name[i], from[i]);
        if (i < 3 - x[0].rank && from[i] != i)
            return fail_usage("permute: %s has no axis %s",
                              dims_text(x[0].dim, x[0].rank, text),
                              axis_name[i]);
        if (seen >> from[i] & 1)
            return fail_usage("permute: axis %s of the operand is given twice",
                              axis_name[from[i]]);
        seen |= 1u << from[i];
        *e[i] = extent[from[i]];
    }
    return true;
}

/* Each extent times its number of repeats. */
SHAPE(repeats)
{
    const int32_t *times = &a->word[1];
    int32_t *e[4] = {&y->dim.d, &y->dim.h, &y->dim.w, &y->dim.c};
    y->dim = x[0].dim;
    for (int i = 0; i < 4; i++) {
        if (!at_least("repeats", axis_name[i], times[i], 1)) return false;
        if (times[i] > INT32_MAX / *e[i])
            return fail_usage("repeats: %s = %d times %d is too large",
                              axis_name[i], *e[i], times[i]);
        *e[i] *= times[i];
    }
    return true;
}

/* The extents of the operand. */
SHAPE(cumsum)
{
    y->dim = x[0].dim;
    if (a->cumsum.axis >= 0 && a->cumsum.axis < 4) return true;
    return fail_usage("cumsum: axis must be 0 .. 3, got %d", a->cumsum.axis);
}

/* A matrix has its rows along w and its columns along c. */
static Dims matrix_of(Dims s, bool transposed)
{
    if (!transposed) return s;
    const int32_t c = s.c;
    s.c = s.w, s.w = c;
    return s;
}

/* A (N,D,H,M,K) by B (N,D,H,K,L) to (N,D,H,M,L). */
SHAPE(matmul)
{
    char p[DIMS_TEXT], q[DIMS_TEXT];
    if (!given("matmul", x, 1)) return false;
    Dims m = matrix_of(x[0].dim, a->matmul.transpose_a);
    Dims k = matrix_of(x[1].dim, a->matmul.transpose_b);
    dims_text(x[0].dim, x[0].rank, p), dims_text(x[1].dim, x[1].rank, q);
    if (m.c != k.w)
        return fail_usage("matmul: %s%s has %d columns, and %s%s has %d rows; "
                          "rows are along w, columns along c",
                          p, a->matmul.transpose_a ? " transposed" : "", m.c, q,
                          a->matmul.transpose_b ? " transposed" : "", k.w);
    const int32_t rows = m.w, cols = k.c;
    m.w = m.c = k.w = k.c = 1;
    if (!broadcast(m, k, &y->dim))
        return fail_usage("matmul: shapes %s and %s do not match; n, d and h "
                          "must be equal or 1",
                          p, q);
    y->dim.w = rows, y->dim.c = cols;
    if (x[1].rank > y->rank) y->rank = x[1].rank;
    if (y->rank < 1) y->rank = 1;
    return true;
}

/* Checks mask x[2] and weight x[3] of a loss, if present: they broadcast to
 * x[0] and must not enlarge it. */
static bool mask_and_weight(const char *op, const Tensor x[MAX_IN])
{
    static const char *const name[2] = {"mask", "weight"};
    char p[DIMS_TEXT], q[DIMS_TEXT];

    for (int i = 0; i < 2; i++) {
        Dims both;
        const Tensor *t = &x[2 + i];
        if (!present(t)) continue;
        if (!broadcast(x[0].dim, t->dim, &both) || !dims_equal(both, x[0].dim))
            return fail_usage("%s: %s of shape %s does not match %s", op,
                              name[i], dims_text(t->dim, t->rank, q),
                              dims_text(x[0].dim, x[0].rank, p));
    }
    return true;
}

/* Checks the target x[1]: the extents of x[0] (`full`), or one channel of class
 * numbers (`classes`); if both are allowed, either. */
static bool target(const char *op, const Tensor x[MAX_IN], bool full,
                   bool classes)
{
    char p[DIMS_TEXT], q[DIMS_TEXT];
    Dims one = x[0].dim;
    one.c = 1;
    if (!present(&x[1])) return fail_usage("%s: the target is missing", op);
    if ((full && dims_equal(x[1].dim, x[0].dim)) ||
        (classes && dims_equal(x[1].dim, one)))
        return true;
    return fail_usage("%s: a target of shape %s does not match %s", op,
                      dims_text(x[1].dim, x[1].rank, q),
                      dims_text(x[0].dim, x[0].rank, p));
}

/* A loss is one number for any batch size. */
static void scalar(Tensor *y)
{
    y->dim = (Dims){1, 1, 1, 1, 1};
    y->rank = RANK_SCALAR;
}

/* Losses with a target value per channel; region losses also take class
 * numbers. */
SHAPE(loss)
{
    const char *op = op_info[a->op].name;
    bool classes =
        a->op == OP_dice_loss || a->op == OP_tversky || a->op == OP_bce_dice;
    // sigmoid cross entropy of several channels needs one target per channel
    if (a->op == OP_bce_dice && x[0].dim.c > 1) classes = false;
    scalar(y);
    return target(op, x, true, classes) && mask_and_weight(op, x);
}

/* cross_entropy: class numbers only. */
SHAPE(classes)
{
    const char *op = op_info[a->op].name;
    if (x[0].dim.c < 2)
        return fail_usage("%s: needs at least 2 classes, got %d channel; use "
                          "bce for one",
                          op, x[0].dim.c);

    // a mask has one value per position; a weight may also differ by class
    Tensor mask[MAX_IN] = {x[0], x[1], x[2]}, weight[MAX_IN] = {x[0], x[1]};
    mask[0].dim.c = 1;
    weight[3] = x[3];
    scalar(y);
    return target(op, x, false, true) && mask_and_weight(op, mask) &&
           mask_and_weight(op, weight);
}

/* dvh_loss: doses of one channel, and a weight map per structure. */
SHAPE(dvh)
{
    char p[DIMS_TEXT], q[DIMS_TEXT];
    const int bins = a->dvh_loss.bins;
    Dims same = x[2].dim;

    same.c = 1;
    if (x[0].dim.c != 1)
        return fail_usage("dvh_loss: a dose has one channel, got %d",
                          x[0].dim.c);
    if (!target("dvh_loss", x, true, false)) return false;
    if (!present(&x[2]))
        return fail_usage("dvh_loss: the structures are missing");
    if (!dims_equal(same, x[0].dim))
        return fail_usage("dvh_loss: structures of shape %s do not match %s",
                          dims_text(x[2].dim, x[2].rank, q),
                          dims_text(x[0].dim, x[0].rank, p));
    if (bins < 1 || bins > DOSE_BINS)
        return fail_usage("dvh_loss: bins must be 1 .. %d, got %d", DOSE_BINS,
                          bins);
    if (!(a->dvh_loss.steep * bins <= DOSE_REACH))
        return fail_usage("dvh_loss: steep times bins must be at most %d, "
                          "got %g",
                          DOSE_REACH, (double)a->dvh_loss.steep * bins);
    scalar(y);
    return true;
}

/* Three counts per class and sample, as 3 C channels of rank 0. */
SHAPE(overlap)
{
    const char *op = op_info[a->op].name;
    if (!target(op, x, true, true)) return false;
    if (!mask_and_weight(op, (Tensor[MAX_IN]){x[0], x[1], x[2]})) return false;
    int64_t c = 3 * (int64_t)x[0].dim.c;
    if (c > INT32_MAX) return fail_usage("overlap: too many classes");
    y->dim = (Dims){x[0].dim.n, 1, 1, 1, (int32_t)c};
    y->rank = 0;
    return true;
}
