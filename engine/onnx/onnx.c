/* onnx.c -- converts the graph to an ONNX graph: roots, inputs and outputs.
 *
 * Nodes are written to memory one after the other in the order of the graph,
 * which ONNX requires too: operands first. Field numbers are those of
 * onnx.proto (github.com/onnx/onnx). onnx_node.c converts operators,
 * onnx_file.c writes the bytes of the file. */
#include "engine/onnx/onnx_inside.h"
#include <stdio.h>
#include <string.h>

enum { VALUE_NAME = 1, VALUE_TYPE };
enum { TYPE_TENSOR = 1, TYPE_ELEMENT = 1, TYPE_SHAPE, SHAPE_DIM = 1 };
enum { DIM_VALUE = 1, DIM_NAME };
enum { KIND_FLOAT = 1, KIND_INT, KIND_TEXT, KIND_INTS = 7 }; // of attributes

// -- names and constants ------------------------------------------------------

/* Returns a string of the arena, or "" if there was no memory for it. */
static const char *kept(Onnx *o, const char *text)
{
    if (!text) o->failed = true;
    return text ? text : "";
}

const char *onnx_part(Onnx *o, int i, const char *part)
{
    const Node *n = &o->g->node[i];
    const char *base = *n->name ? n->name : op_info[n->attr.op].name;
    return kept(
        o, arena_printf(&o->mem, "%s/%d%s%s", base, i, *part ? "/" : "", part));
}

const char *onnx_join(Onnx *o, const char *base, const char *part)
{
    return kept(o, arena_printf(&o->mem, "%s/%s", base, part));
}

/* Adds a tensor named `name`; NULL if there is no memory. */
static OnnxTensor *tensor_new(Onnx *o, const char *name)
{
    if (o->tensors == o->room) {
        int room = o->room ? 2 * o->room : 64;
        OnnxTensor *grown =
            mem_realloc(o->tensor, (size_t)room * sizeof *grown);
        o->failed |= !grown;
        if (!grown) return NULL;
        o->tensor = grown;
        o->room = room;
    }

    OnnxTensor *t = &o->tensor[o->tensors++];
    *t = (OnnxTensor){.name = name, .param = -1};
    return t;
}

/* Adds a constant with zero or one axis; the numbers are copied. */
static const char *constant(Onnx *o, const char *name, const void *v, int n,
                            int axes, bool whole)
{
    const size_t bytes = (size_t)n * (whole ? sizeof(int64_t) : sizeof(float));
    void *data = arena_alloc(&o->mem, bytes);
    OnnxTensor *t = tensor_new(o, name);
    if (!data) o->failed = true;
    if (!data || !t) return "";
    memcpy(data, v, bytes);
    t->axes = axes;
    t->shape[0] = n;
    t->whole = whole;
    t->data = data;
    return name;
}

const char *onnx_floats(Onnx *o, const char *name, const float *v, int n)
{
    return constant(o, name, v, n, 1, false);
}

const char *onnx_ints(Onnx *o, const char *name, const int64_t *v, int n)
{
    return constant(o, name, v, n, 1, true);
}

const char *onnx_fill(Onnx *o, const char *name, float v, int n)
{
    float *all = ARENA_NEW(&o->mem, float, n);
    if (!all) o->failed = true;
    if (!all) return "";
    for (int i = 0; i < n; i++) all[i] = v;
    return constant(o, name, all, n, 1, false);
}

const char *onnx_scalar(Onnx *o, const char *name, float v)
{
    return constant(o, name, &v, 1, 0, false);
}

// -- nodes --------------------------------------------------------------------

size_t onnx_begin(Onnx *o, const char *type, const char *const *in, int inputs,
                  const char *out)
{
    size_t mark = proto_begin(&o->node, GRAPH_NODE);
    for (int i = 0; i < inputs; i++)
        proto_text(&o->node, ONNX_NODE_INPUT, in[i]);
    proto_text(&o->node, ONNX_NODE_OUTPUT, out);
    proto_text(&o->node, ONNX_NODE_NAME, out);
    proto_text(&o->node, ONNX_NODE_TYPE, type);
    o->nodes++;
    return mark;
}

void onnx_end(Onnx *o, size_t mark)
{
    proto_end(&o->node, mark);
}

/* Begins an attribute; its value follows, then onnx_end. */
static size_t attr_begin(Onnx *o, const char *name, int kind)
{
    size_t mark = proto_begin(&o->node, ONNX_NODE_ATTRIBUTE);
    proto_text(&o->node, ATTR_NAME, name);
    proto_int(&o->node, ATTR_KIND, kind);
    return mark;
}

void onnx_attr_int(Onnx *o, const char *name, int64_t v)
{
    size_t mark = attr_begin(o, name, KIND_INT);
    proto_int(&o->node, ATTR_INT, v);
    onnx_end(o, mark);
}

void onnx_attr_float(Onnx *o, const char *name, float v)
{
    size_t mark = attr_begin(o, name, KIND_FLOAT);
    proto_float(&o->node, ATTR_FLOAT, v);
    onnx_end(o, mark);
}

void onnx_attr_text(Onnx *o, const char *name, const char *v)
{
    size_t mark = attr_begin(o, name, KIND_TEXT);
    proto_text(&o->node, ATTR_TEXT, v);
    onnx_end(o, mark);
}

void onnx_attr_ints(Onnx *o, const char *name, const int64_t *v, int n)
{
    size_t mark = attr_begin(o, name, KIND_INTS);
    for (int i = 0; i < n; i++) proto_int(&o->node, ATTR_INTS, v[i]);
    onnx_end(o, mark);
}

const char *onnx_op(Onnx *o, const char *type, const char *a, const char *b,
                    const char *out)
{
    onnx_end(o,
             onnx_begin(o, type, (const char *const[]){a, b}, b ? 2 : 1, out));
    return out;
}

const char *onnx_transpose(Onnx *o, const char *x, const int64_t *perm,
                           int axes, const char *out)
{
    const size_t mark =
        onnx_begin(o, "Transpose", (const char *const[]){x}, 1, out);
    onnx_attr_ints(o, "perm", perm, axes);
    onnx_end(o, mark);
    return out;
}

const char *onnx_cast(Onnx *o, const char *x, int type, const char *out)
{
    const size_t mark = onnx_begin(o, "Cast", (const char *const[]){x}, 1, out);
    onnx_attr_int(o, "to", type);
    onnx_end(o, mark);
    return out;
}

// -- operands -----------------------------------------------------------------

int onnx_shown(const Node *n)
{
    return n->y.rank < 0 ? 0 : n->y.rank;
}

void onnx_rank(Onnx *o, const char *x, int from, int to, const char *out)
{
    if (!to) {
        // Flatten removes all axes: OpenCV 4.6 supports it better than Squeeze
        const char *in[] = {x};
        size_t mark = onnx_begin(o, "Flatten", in, 1, out);
        onnx_attr_int(o, "axis", 1);
        onnx_end(o, mark);
        return;
    }

    const char *name = kept(o, arena_printf(&o->mem, "%s/axes", out));
    if (!from) {
        // and Reshape better than Unsqueeze; 0: same extent as the operand
        static const int64_t shape[2 + RANK_MAX] = {0, 0, 1, 1, 1};
        onnx_op(o, "Reshape", x, onnx_ints(o, name, shape, 2 + to), out);
        return;
    }

    // adds or removes the first spatial axes, after N and C
    static const int64_t axes[RANK_MAX] = {2, 3, 4};
    int n = from < to ? to - from : from - to;
    onnx_op(o, from < to ? "Unsqueeze" : "Squeeze", x,
            onnx_ints(o, name, axes, n), out);
}

/* Returns a parameter with `rank` spatial axes. Its numbers keep their order,
 * whatever extents of 1 are added. */
static const char *param_operand(Onnx *o, int node, int rank)
{
    const Node *n = &o->g->node[node];
    const char *name = n->name;
    if (rank != n->y.rank)
        name = kept(o, arena_printf(&o->mem, "%s/%d", name, rank));
    for (int i = 0; i < o->tensors; i++)
        if (!strcmp(o->tensor[i].name, name)) return name;
    OnnxTensor *t = tensor_new(o, name);
    if (!t) return "";
    t->param = params_find(o->params, n->name);
    CHECK(t->param >= 0);
    t->axes = dims_to_user(n->y.dim, rank, t->shape);
    return name;
}

const char *onnx_gates(Onnx *o, int i, int k)
{
    const int x = o->g->node[i].in[k];
    const Node *n = &o->g->node[x];
    if (n->kind != NODE_PARAM) {
        fail_usage("lstm: its weights are computed, and ONNX needs constants; "
                   "fix: use parameters");
        return "";
    }

    const char *name = kept(o, arena_printf(&o->mem, "%s/gates", n->name));
    for (int t = 0; t < o->tensors; t++)
        if (!strcmp(o->tensor[t].name, name)) return name;
    OnnxTensor *t = tensor_new(o, name);
    if (!t) return "";
    t->param = params_find(o->params, n->name);
    CHECK(t->param >= 0);
    t->gates = true;
    int64_t shape[2 + RANK_MAX];
    const int axes = dims_to_user(n->y.dim, n->y.rank, shape);
    CHECK(axes < 2 + RANK_MAX); // (4H) or (4H,C)
    memcpy(t->shape + 1, shape, (size_t)axes * sizeof *shape);
    t->shape[0] = 1;
    t->axes = 1 + axes;
    return name;
}

const char *onnx_operand(Onnx *o, int i, int k, int rank)
{
    const int x = o->g->node[i].in[k], from = onnx_shown(&o->g->node[x]);
    if (o->g->node[x].kind == NODE_PARAM) return param_operand(o, x, rank);
    if (from == rank) return o->value[x];
    const char *out =
        kept(o, arena_printf(&o->mem, "%s/%d", onnx_part(o, i, "operand"), k));
    if (rank >= 0) {
        onnx_rank(o, o->value[x], from, rank, out);
        return out;
    }

    // computed from parameters, where a vector is required
    const char *shape = kept(o, arena_printf(&o->mem, "%s/shape", out));
    return onnx_op(o, "Reshape", o->value[x],
                   onnx_ints(o, shape, (const int64_t[]){-1}, 1), out);
}

// -- the graph ----------------------------------------------------------------

/* Does root `i` of a graph get a sigmoid or softmax appended? */
static bool wants_activation(const Graph *g, int root, const OnnxOptions *how)
{
    const Node *n = &g->node[root];
    return how->probabilities &&
           !(n->kind == NODE_OP &&
             (n->attr.op == OP_sigmoid || n->attr.op == OP_softmax));
}

/* Returns the name of node i: the output's name, if node i is an output without
 * an appended activation. */
static const char *value_name(Onnx *o, int i, const int *root,
                              const char *const *name, int roots,
                              const OnnxOptions *how)
{
    for (int k = 0; k < roots; k++)
        if (root[k] == i && !wants_activation(o->g, i, how)) return name[k];
    return onnx_part(o, i, "");
}

/* Writes an output that is not yet the value of its node: with a sigmoid or
 * softmax, a second name for one value, or an input or parameter as output. */
static void put_output(Onnx *o, int root, const char *name,
                       const OnnxOptions *how, OnnxFacts *facts)
{
    const Node *n = &o->g->node[root];
    const char *value = n->kind == NODE_PARAM
                            ? param_operand(o, root, onnx_shown(n))
                            : o->value[root];
    const char *in[] = {value};

    if (!wants_activation(o->g, root, how)) {
        if (strcmp(value, name)) onnx_op(o, "Identity", value, NULL, name);
        return;
    }
    const bool one = n->y.dim.c == 1;
    size_t mark = onnx_begin(o, one ? "Sigmoid" : "Softmax", in, 1, name);
    if (!one) onnx_attr_int(o, "axis", 1);
    onnx_end(o, mark);
    facts->probabilities++;
}

/* Writes all nodes that the roots need, in the order of the graph. */
static bool put_nodes(Onnx *o, const bool *used, const int *root,
                      const char *const *name, int roots,
                      const OnnxOptions *how, OnnxFacts *facts)
{
    for (int i = 0; i < o->g->count; i++) {
        const Node *n = &o->g->node[i];
        if (!used[i] || n->kind == NODE_PARAM) continue;
        o->inside[i] = onnx_folded(o, used, root, roots, i);
        if (o->inside[i]) continue;
        if (n->kind == NODE_INPUT) {
            o->value[i] = n->name;
        } else if (onnx_identity((Op)n->attr.op)) {
            o->value[i] = onnx_operand(o, i, 0, onnx_shown(n));
        } else {
            o->value[i] = value_name(o, i, root, name, roots, how);
            if (!onnx_operator(o, i, o->value[i]))
                return within("%s%s%s", n->where, *n->where ? ": " : "",
                              "export to ONNX");
        }
    }

    for (int k = 0; k < roots; k++) put_output(o, root[k], name[k], how, facts);
    return true;
}

/* Checks shapes with every image extent doubled: does the network still fit?
 * Otherwise an extent in the graph, fixed in the file, would be wrong. */
static bool check_any_size(const Graph *g, const bool *used, Arena *mem)
{
    Tensor *y = ARENA_NEW(mem, Tensor, g->count);
    if (!y) return false;

    for (int i = 0; i < g->count; i++) {
        const Node *n = &g->node[i];
        if (!used[i]) continue;
        y[i] = n->y;
        int32_t *e[RANK_MAX] = {&y[i].dim.w, &y[i].dim.h, &y[i].dim.d};
        for (int k = 0; n->kind == NODE_INPUT && k < n->y.rank; k++)
            *e[k] = *e[k] > INT32_MAX / 2 ? *e[k] : 2 * *e[k];
        if (n->kind != NODE_OP) continue;
        Tensor x[MAX_IN] = {{{0}, F32, 0, NULL}};
        for (int k = 0; k < MAX_IN; k++)
            if (n->in[k] >= 0) x[k] = y[n->in[k]];
        if (op_shape(&n->attr, x, &y[i])) continue;
        within("any_size: this network takes images of one size only: with "
               "each extent twice as large%s%s",
               *n->where ? ", " : "", n->where);
        return false;
    }
    return true;
}

// -- inputs and outputs -------------------------------------------------------

/* Writes a graph input or output as field `field`: name, type, extents. Free
 * extents have a name instead of a number. */
static void put_value(Proto *p, int field, const char *name, const Node *n,
                      bool any_size)
{
    static const char *const axis[RANK_MAX] = {"d", "h", "w"};
    int64_t shape[2 + RANK_MAX];
    const int axes = dims_to_user(n->y.dim, onnx_shown(n), shape);
    size_t value = proto_begin(p, field);

    proto_text(p, VALUE_NAME, name);
    size_t type = proto_begin(p, VALUE_TYPE);
    size_t tensor = proto_begin(p, TYPE_TENSOR);
    proto_int(p, TYPE_ELEMENT, ELEMENT_F32);
    size_t dims = proto_begin(p, TYPE_SHAPE);

    for (int i = 0; i < axes; i++) {
        char text[300];
        size_t dim = proto_begin(p, SHAPE_DIM);
        if (i == 0 && n->batched) {
            proto_text(p, DIM_NAME, "batch");
        } else if (i >= 2 && n->batched && any_size) {
            // runtimes treat equal names as equal extents: hence a name per
            // axis
            snprintf(text, sizeof text, "%s_%s", name,
                     axis[RANK_MAX - axes + i]);
            proto_text(p, DIM_NAME, text);
        } else {
            proto_int(p, DIM_VALUE, shape[i]);
        }
        proto_end(p, dim);
    }

    proto_end(p, dims);
    proto_end(p, tensor);
    proto_end(p, type);
    proto_end(p, value);
}

static void put_values(Onnx *o, Proto *p, const bool *used, const int *root,
                       const char *const *name, int roots)
{
    for (int i = 0; i < o->g->count; i++)
        if (used[i] && o->g->node[i].kind == NODE_INPUT)
            put_value(p, GRAPH_INPUT, o->g->node[i].name, &o->g->node[i],
                      o->any_size);
    for (int k = 0; k < roots; k++)
        put_value(p, GRAPH_OUTPUT, name[k], &o->g->node[root[k]], o->any_size);
}

/* An output with the name of an input would define that name twice. */
static bool check_names(const Graph *g, const bool *used, const int *root,
                        const char *const *name, int roots)
{
    for (int i = 0; i < roots; i++) {
        int same = graph_find(g, name[i]);
        if (same >= 0 && used[same] && same != root[i])
            return fail_usage("output \"%s\" has the name of %s of the "
                              "network; fix: another name in outputs",
                              name[i],
                              g->node[same].kind == NODE_INPUT ? "an input"
                                                               : "a parameter");
        // a runtime could not tell the two apart either
        if (same >= 0 && used[same])
            return fail_usage(
                "output \"%s\" is an unchanged input; fix: leave it out",
                name[i]);
    }
    return true;
}

bool onnx_save(const char *path, const Graph *g, const Params *p,
               const int *root, const char *const *name, int roots,
               const OnnxOptions *options, OnnxFacts *facts)
{
    bool ok = false;
    Onnx o = {.g = g, .params = p, .any_size = options->any_size};
    Proto tail = {0};

    *facts = (OnnxFacts){0, 0, 0, 0};
    bool *used = mem_alloc((size_t)g->count + 1);
    o.value = mem_alloc(((size_t)g->count + 1) * sizeof *o.value);
    o.inside = mem_alloc((size_t)g->count + 1);
    TRY(used && o.value && o.inside);
    graph_ancestors(g, root, roots, used);
    TRY(check_names(g, used, root, name, roots));
    TRY(!options->any_size || check_any_size(g, used, &o.mem));
    TRY(put_nodes(&o, used, root, name, roots, options, facts));
    proto_text(&tail, GRAPH_NAME, "network");
    put_values(&o, &tail, used, root, name, roots);
    TRY(!o.failed && !o.node.failed && !tail.failed);
    facts->nodes = o.nodes;
    ok = onnx_write(path, &o, &tail, options, facts);

done:
    proto_free(&tail);
    proto_free(&o.node);
    mem_free(o.tensor);
    mem_free(o.value);
    mem_free(o.inside);
    mem_free(used);
    arena_release(&o.mem);
    return ok;
}
