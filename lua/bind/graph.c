/* graph.c -- nodes of the graph as Lua values, and op.*.
 *
 * Each Lua state has one graph, in the registry. A node in Lua is its number in
 * that graph: nodes are never removed, so the number stays valid and nothing
 * has to be freed. Every node remembers the recipe's line that made it, for
 * messages of plans and of runs that diverge.
 *
 * One generic function serves every row of ops.def: operands first (nil for one
 * that is absent), then an options table whose keys are the attributes of the
 * operator and `name`, the label of the node. */
#include "engine/graph/op.h"
#include "engine/onnx/onnx.h"
#include "lua/bind/bind.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

static const char GRAPH_KEY = 0; // its address is the key in the registry

static int graph_gc(lua_State *L)
{
    graph_free(luaL_checkudata(L, 1, "seg.graph"));
    return 0;
}

Graph *check_graph(lua_State *L)
{
    lua_rawgetp(L, LUA_REGISTRYINDEX, &GRAPH_KEY);
    Graph *g = lua_touserdata(L, -1);
    lua_pop(L, 1);
    return g;
}

int check_node(lua_State *L, int arg)
{
    int *n = luaL_testudata(L, arg, "seg.node");
    if (!n) {
        luaL_tolstring(L, arg, NULL);
        raise_usage(L, "operand %d must be a node of the network, got %s", arg,
                    lua_isnil(L, arg) ? "nothing" : lua_tostring(L, -1));
        return -1;
    }
    return *n;
}

int check_nodes(lua_State *L, int arg, int *node, int most)
{
    int n = 0;
    luaL_checktype(L, arg, LUA_TTABLE);

    for (; lua_rawgeti(L, arg, n + 1) != LUA_TNIL; lua_pop(L, 1)) {
        const int *one = luaL_testudata(L, -1, "seg.node");
        if (n == most) raise_usage(L, "more than %d nodes", n);
        if (!one)
            raise_usage(L, "a list of nodes of the network has a %s at %d",
                        luaL_typename(L, -1), n + 1);
        node[n++] = *one;
    }

    lua_pop(L, 1);
    return n;
}

int opt_node(lua_State *L, int arg)
{
    return lua_isnoneornil(L, arg) ? -1 : check_node(L, arg);
}

void push_node(lua_State *L, int node)
{
    *(int *)new_object(L, "seg.node", sizeof(int)) = node;
}

/* Set attribute i of `a` to the value on top of the Lua stack. Word 0 of an
 * Attr is the operator; the next words are its attributes, in the order of its
 * row in ops.def. */
static void set_attr(lua_State *L, Attr *a, int i)
{
    const AttrInfo *info = &op_info[a->op].attr[i];
    if (info->kind == 'f') {
        float f = (float)check_number(L, lua_gettop(L), info->name);
        memcpy(&a->word[1 + i], &f, 4);
    } else if (lua_isboolean(L, -1)) {
        a->word[1 + i] = lua_toboolean(L, -1);
    } else {
        a->word[1 + i] = (int32_t)check_int(L, lua_gettop(L), info->name,
                                            INT32_MIN, INT32_MAX);
    }
}

/* Options at `arg` into `a`; returns the label, "" without one. graph_op checks
 * the values and names the operator in its errors. */
static const char *read_options(lua_State *L, int arg, Attr *a)
{
    const OpInfo *info = &op_info[a->op];
    const char *known[MAX_ATTR + 2] = {"name"};
    if (lua_isnoneornil(L, arg)) return "";
    for (int i = 0; i < info->attrs; i++) known[1 + i] = info->attr[i].name;
    check_keys(L, arg, info->name, known);
    for (int i = 0; i < info->attrs; i++) {
        if (lua_getfield(L, arg, info->attr[i].name) != LUA_TNIL)
            set_attr(L, a, i);
        lua_pop(L, 1);
    }
    return opt_string(L, arg, "name", "");
}

/* op.ROW(x, ..., {attribute=, name=}) -> node; upvalue 1 is the row of ops.def.
 * Raises for operands that do not fit each other, at the recipe's line. */
static int l_op(lua_State *L)
{
    Op op = (Op)lua_tointeger(L, lua_upvalueindex(1));
    const OpInfo *info = &op_info[op];
    Attr a = op_default(op);
    int in[MAX_IN], args = lua_gettop(L), out;
    bool options = args > 0 && lua_istable(L, args);
    int operands = args - options;

    if (operands > info->in)
        raise_usage(L, "%s: %d operands, takes %d", info->name, operands,
                    info->in);
    for (int i = 0; i < MAX_IN; i++)
        in[i] = i < operands ? opt_node(L, i + 1) : -1;
    const char *name = read_options(L, options ? args : args + 1, &a);
    const char *where = push_where(L);
    if (!graph_op(check_graph(L), &a, in, name, where, &out))
        return raise_error(L);
    push_node(L, out);
    return 1;
}

/* A table of extents in user order at `arg` as Dims of that rank. */
static void check_shape(lua_State *L, int arg, int rank, Dims *dim)
{
    int64_t shape[MAX_AXES];
    luaL_checktype(L, arg, LUA_TTABLE);
    int axes = (int)lua_rawlen(L, arg);
    if (axes > 2 + RANK_MAX) raise_usage(L, "%d axes, at most 5", axes);
    for (int i = 0; i < axes; i++) {
        lua_rawgeti(L, arg, i + 1);
        shape[i] = check_int(L, lua_gettop(L), "extent", 1, INT32_MAX);
        lua_pop(L, 1);
    }
    if (!dims_from_user(shape, axes, rank, dim))
        raise_usage(L, "a shape of %d axes does not fit rank %d", axes, rank);
}

/* input(name, c, d, h, w, rank) -> node with N = 1; the arrays that are fed
 * decide N, and may have other extents of the same rank. Raises when the name
 * is taken or invalid. */
static int l_input(lua_State *L)
{
    const char *name = luaL_checkstring(L, 1);
    Dims dim = {.n = 1,
                .c = (int32_t)check_int(L, 2, "c", 1, INT32_MAX),
                .d = (int32_t)check_int(L, 3, "d", 1, INT32_MAX),
                .h = (int32_t)check_int(L, 4, "h", 1, INT32_MAX),
                .w = (int32_t)check_int(L, 5, "w", 1, INT32_MAX)};
    int rank = (int)check_int(L, 6, "rank", 0, RANK_MAX), out;
    const char *where = push_where(L);

    if (!graph_input(check_graph(L), name, dim, rank, where, &out))
        return raise_error(L);
    push_node(L, out);
    return 1;
}

/* param(name, shape in user order, rank, {init="const", value=0, trained=true,
 * decayed=true}) -> node. init: "uniform" within +-value, "normal" of that
 * standard deviation, "const". A second parameter of a name is an error, also
 * with the same shape: shared layers use nn.scope. */
static int l_param(lua_State *L)
{
    static const char *const kinds[] = {"uniform", "normal", "const", NULL};
    static const char *const known[] = {"init", "value", "trained", "decayed",
                                        NULL};
    const char *name = luaL_checkstring(L, 1);
    int rank = (int)check_int(L, 3, "rank", RANK_VECTOR, RANK_MAX), out, kind;
    Dims dim;

    check_shape(L, 2, rank, &dim);
    check_keys(L, 4, "param", known);
    const char *init = opt_string(L, 4, "init", "const");
    for (kind = 0; kinds[kind] && strcmp(kinds[kind], init);) kind++;
    if (!kinds[kind])
        raise_usage(L, "init \"%s\" is not known; use uniform, normal, const",
                    init);
    Init how = {(InitKind)kind, opt_number(L, 4, "value", 0)};
    bool trained = opt_bool(L, 4, "trained", true);
    bool decayed = opt_bool(L, 4, "decayed", true);
    const char *where = push_where(L);
    if (!graph_param(check_graph(L), name, dim, rank, how, trained, decayed,
                     where, &out))
        return raise_error(L);
    push_node(L, out);
    return 1;
}

/* node.n, .c, .d, .h, .w, .rank, .name, .kind, .where (the line of the script
 * that made it), .shape (user order, N first); any other field is an error */
static int node_index(lua_State *L)
{
    const Node *n = &check_graph(L)->node[check_node(L, 1)];
    const char *key = luaL_checkstring(L, 2);
    Dims d = n->y.dim;
    const struct {
        const char *key;
        int64_t value;
    } field[] = {{"n", d.n}, {"c", d.c}, {"d", d.d},
                 {"h", d.h}, {"w", d.w}, {"rank", n->y.rank}};

    for (size_t i = 0; i < sizeof field / sizeof *field; i++)
        if (!strcmp(key, field[i].key)) {
            lua_pushinteger(L, field[i].value);
            return 1;
        }

    if (!strcmp(key, "name")) {
        lua_pushstring(L, n->name);
        return 1;
    }
    if (!strcmp(key, "where")) {
        lua_pushstring(L, n->where);
        return 1;
    }

    if (!strcmp(key, "kind")) {
        lua_pushstring(L, n->kind == NODE_INPUT   ? "input"
                          : n->kind == NODE_PARAM ? "param"
                                                  : op_info[n->attr.op].name);
        return 1;
    }

    if (!strcmp(key, "shape")) {
        int64_t shape[2 + RANK_MAX];
        int axes = dims_to_user(d, n->y.rank, shape);
        push_shape(L, axes, shape);
        return 1;
    }

    return raise_usage(L,
                       "a node has no field \"%s\" (known: n, c, d, h, w, "
                       "rank, shape, name, kind, where)",
                       key);
}

/* "conv enc1.conv1 1x32x64x64 (N,C,H,W)" */
static int node_tostring(lua_State *L)
{
    const Node *n = &check_graph(L)->node[check_node(L, 1)];
    char text[DIMS_TEXT];
    lua_pushfstring(L, "%s %s %s",
                    n->kind == NODE_INPUT   ? "input"
                    : n->kind == NODE_PARAM ? "parameter"
                                            : op_info[n->attr.op].name,
                    n->name, dims_text(n->y.dim, n->y.rank, text));
    return 1;
}

/* node_id(node) -> its number, as a key of tables: two Lua values may be the
 * same node, and tables do not use == */
static int node_id(lua_State *L)
{
    lua_pushinteger(L, check_node(L, 1));
    return 1;
}

/* operand(node, k = 1) -> operand number k of an operator; nil where there is
 * none */
static int l_operand(lua_State *L)
{
    const Graph *g = check_graph(L);
    const Node *n = &g->node[check_node(L, 1)];
    const int k = (int)luaL_optinteger(L, 2, 1);
    if (n->kind != NODE_OP || k < 1 || k > MAX_IN || n->in[k - 1] < 0) return 0;
    push_node(L, n->in[k - 1]);
    return 1;
}

/* a == b: the same node of the graph */
static int node_equal(lua_State *L)
{
    lua_pushboolean(L, check_node(L, 1) == check_node(L, 2));
    return 1;
}

/* Adds an operator of one or two operands (in1 -1: none), without a label. */
static int add_op(lua_State *L, const Attr *a, int in0, int in1)
{
    const int in[MAX_IN] = {in0, in1, -1, -1, -1, -1};
    int out;
    const char *where = push_where(L);
    if (!graph_op(check_graph(L), a, in, "", where, &out))
        return raise_error(L);
    lua_pop(L, 1);
    return out;
}

static int push_op(lua_State *L, const Attr *a, int in0, int in1)
{
    push_node(L, add_op(L, a, in0, in1));
    return 1;
}

static bool is_number(lua_State *L, int arg)
{
    return lua_type(L, arg) == LUA_TNUMBER;
}

/* The number at `arg` as a float. */
static float check_float(lua_State *L, int arg)
{
    const double v = lua_tonumber(L, arg);
    if (!isfinite((float)v))
        raise_usage(L,
                    "the number %g is not finite as a 32-bit float, whose "
                    "largest is 3.4e38; where nothing may be larger, -1e30 "
                    "serves as minus infinity",
                    v);
    return (float)v;
}

/* The node at `arg` of the operator `sign`. */
static int check_operand(lua_State *L, const char *sign, int arg)
{
    if (!luaL_testudata(L, arg, "seg.node"))
        raise_usage(L,
                    "operand %d of %s must be a node of the network or a "
                    "number, got %s",
                    arg, sign, luaL_typename(L, arg));
    return check_node(L, arg);
}

/* The same; a number becomes a constant. */
static int node_or_constant(lua_State *L, const char *sign, int arg)
{
    if (!is_number(L, arg)) return check_operand(L, sign, arg);
    Attr a = op_default(OP_constant);
    a.constant.value = check_float(L, arg);
    // one of the arguments 1 and 2 is a node
    return add_op(L, &a, check_operand(L, sign, 3 - arg), -1);
}

/* a OP b, where one may be a number. */
static int binary(lua_State *L, Op op, const char *sign)
{
    const Attr a = op_default(op);
    const int in0 = node_or_constant(L, sign, 1);
    return push_op(L, &a, in0, node_or_constant(L, sign, 2));
}

/* The same of add, sub, mul, div: with a number they are the operator scale, y
 * = mul x + add, but for a number that is divided. */
static int arithmetic(lua_State *L, Op op, const char *sign)
{
    const bool left = is_number(L, 1);
    if ((!left && !is_number(L, 2)) || (left && op == OP_div))
        return binary(L, op, sign);
    const float v = check_float(L, left ? 1 : 2);
    Attr a = op_default(OP_scale);
    if (op == OP_add) a.scale.add = v;
    if (op == OP_sub) a.scale.add = left ? v : -v;
    if (op == OP_sub && left) a.scale.mul = -1;
    if (op == OP_mul) a.scale.mul = v;
    if (op == OP_div) a.scale.mul = 1 / v;
    if (!isfinite(a.scale.mul))
        raise_usage(L, "a division by %g: 1 / %g is not finite", (double)v,
                    (double)v);
    return push_op(L, &a, check_operand(L, sign, left ? 2 : 1), -1);
}

// The metamethods of nodes: a + b, a - b, a * b, a / b, a ^ b, a % b, a // b,
// -a, and the comparisons, which Lua wants to be true or false.
static int node_add(lua_State *L)
{
    return arithmetic(L, OP_add, "+");
}

static int node_sub(lua_State *L)
{
    return arithmetic(L, OP_sub, "-");
}

static int node_mul(lua_State *L)
{
    return arithmetic(L, OP_mul, "*");
}

static int node_div(lua_State *L)
{
    return arithmetic(L, OP_div, "/");
}

static int node_pow(lua_State *L)
{
    if (!is_number(L, 2)) return binary(L, OP_pow, "^");
    Attr a = op_default(OP_power);
    a.power.exponent = check_float(L, 2);
    return push_op(L, &a, check_operand(L, "^", 1), -1);
}

/* a % b or a // b; both are NaN or infinite everywhere if b is the number 0. */
static int quotient(lua_State *L, Op op, const char *sign)
{
    if (is_number(L, 2) && check_float(L, 2) == 0)
        raise_usage(L, "a %s 0: a division by 0 is not finite", sign);
    return binary(L, op, sign);
}

static int node_mod(lua_State *L)
{
    return quotient(L, OP_mod, "%");
}

static int node_idiv(lua_State *L)
{
    return quotient(L, OP_floor_div, "//");
}

static int node_less(lua_State *L)
{
    return raise_usage(L, "a comparison of nodes is no condition of Lua: "
                          "seg.gt(a, b), ge, lt, le give a node of ones and "
                          "zeros, and seg.where chooses by it");
}

static int node_unm(lua_State *L)
{
    // Lua passes the operand twice; the second becomes the factor
    lua_pushnumber(L, -1);
    lua_replace(L, 2);
    return arithmetic(L, OP_mul, "-");
}

/* a .. b concatenates channels, a first. `..` is right associative, which gives
 * the same channels in the same order. */
static int node_concat(lua_State *L)
{
    const Attr a = op_default(OP_concat);
    return push_op(L, &a, check_node(L, 1), check_node(L, 2));
}

/* 1e-05 instead of 9.9999997473788e-06, the value of the float. */
static const char *short_number(char text[32], double v)
{
    snprintf(text, 32, "%.6g", v);
    return text;
}

/* ops() -> { {name=, operands=, grad=, onnx=, bound=, attributes={"stride=1",
 * ...}}, ... }, one for each row of ops.def, for `segengine ops` */
static int l_ops(lua_State *L)
{
    static const char *const bound[] = {"dot", "ulp", "exact", "nmse"};
    lua_createtable(L, OP_COUNT, 0);

    for (int i = 0; i < OP_COUNT; i++) {
        const OpInfo *info = &op_info[i];
        lua_createtable(L, 0, 6);
        set_text(L, "name", info->name);
        set_integer(L, "operands", info->in);
        set_bool(L, "grad", info->grad);
        set_bool(L, "onnx", onnx_has((Op)i));
        set_text(L, "bound", bound[info->bound]);
        lua_createtable(L, info->attrs, 0);
        for (int k = 0; k < info->attrs; k++) {
            const AttrInfo *attr = &info->attr[k];
            char text[32];
            if (attr->kind == 'i')
                lua_pushfstring(L, "%s=%d", attr->name, (int)attr->def);
            else
                lua_pushfstring(L, "%s=%s", attr->name,
                                short_number(text, attr->def));
            lua_rawseti(L, -2, k + 1);
        }
        lua_setfield(L, -2, "attributes");
        lua_rawseti(L, -2, i + 1);
    }
    return 1;
}

/* graph_text({root nodes}) -> the nodes that the roots need as text, which
 * seg_open reads back; saved with the weights */
static int l_graph_text(lua_State *L)
{
    int root[MAX_ROOTS], roots = check_nodes(L, 1, root, MAX_ROOTS);
    char *text;
    Graph *g = check_graph(L);
    ArenaMark mark = arena_mark(&g->mem);
    if (!graph_print(g, root, roots, &g->mem, &text)) return raise_error(L);
    // copied into the Lua state before its memory is freed; if Lua has no
    // memory, the text stays in the graph's arena, which is harmless
    lua_pushstring(L, text);
    arena_rewind(&g->mem, mark);
    return 1;
}

/* Push a list of nodes. */
static void push_nodes(lua_State *L, const int *node, int nodes)
{
    lua_createtable(L, nodes, 0);
    for (int i = 0; i < nodes; i++) {
        push_node(L, node[i]);
        lua_rawseti(L, -2, i + 1);
    }
}

/* graph_parse(text) -> {root nodes}, {inputs}: adds the network of a file to
 * the graph, which must be empty */
static int l_graph_parse(lua_State *L)
{
    int root[MAX_ROOTS], roots, input[MAX_FEEDS], inputs = 0;
    const char *text = luaL_checkstring(L, 1);
    Graph *g = check_graph(L);

    if (g->count)
        raise_usage(L, "there is a network already, of %d nodes", g->count);
    if (!graph_parse(text, g, root, &roots, MAX_ROOTS)) return raise_error(L);

    for (int i = 0; i < g->count; i++) {
        if (g->node[i].kind != NODE_INPUT) continue;
        if (inputs == MAX_FEEDS)
            raise_usage(L, "more than %d inputs", MAX_FEEDS);
        input[inputs++] = i;
    }

    push_nodes(L, root, roots);
    push_nodes(L, input, inputs);
    return 2;
}

/* Pushes a table when node `n` is a loss or a count with a target that is an
 * input of the network; pushes nothing for other nodes. */
static bool push_target(lua_State *L, const Graph *g, const Node *n)
{
    const Op op = n->attr.op;
    if (n->kind != NODE_OP) return false;
    if (!(op_info[op].flags & LOSS) && op != OP_overlap) return false;
    if (op == OP_mean) return false; // its second operand is not read
    const Node *truth = &g->node[n->in[1]];
    if (truth->kind != NODE_INPUT) return false;
    lua_createtable(L, 0, 6);
    set_text(L, "op", op_info[op].name);
    set_text(L, "input", truth->name);
    set_integer(L, "channels", g->node[n->in[0]].y.dim.c);
    set_integer(L, "truths", truth->y.dim.c);
    set_bool(L, "masked", n->in[2] >= 0);
    if (op == OP_cross_entropy)
        set_integer(L, "ignore", n->attr.cross_entropy.ignore);
    return true;
}

/* For each node whether the list of nodes at 1 needs it; in memory of Lua, on
 * the stack. */
static const bool *push_needed(lua_State *L)
{
    int root[MAX_ROOTS], roots = check_nodes(L, 1, root, MAX_ROOTS);
    const Graph *g = check_graph(L);
    bool *needed = lua_newuserdatauv(L, (size_t)g->count + 1, 0);
    memset(needed, 0, (size_t)g->count + 1);
    for (int i = 0; i < roots; i++) needed[root[i]] = true;
    // operands precede their users
    for (int i = g->count - 1; i >= 0; i--)
        for (int k = 0; g->node[i].kind == NODE_OP && k < MAX_IN; k++)
            if (needed[i] && g->node[i].in[k] >= 0)
                needed[g->node[i].in[k]] = true;
    return needed;
}

/* targets({root nodes}) -> { {op=, input=, channels=, truths=, masked=,
 * ignore=}, ... }: every loss and count needed by the roots that has an input
 * as its target; channels of its prediction and of that input, whether it has a
 * mask, and the class number that is not counted */
static int l_targets(lua_State *L)
{
    const Graph *g = check_graph(L);
    const bool *needed = push_needed(L);
    lua_newtable(L);
    for (int i = g->count - 1, count = 0; i >= 0; i--)
        if (needed[i] && push_target(L, g, &g->node[i]))
            lua_rawseti(L, -2, ++count);
    return 1;
}

/* needed_inputs({nodes}) -> {name = true}: the inputs that the nodes need */
static int l_needed_inputs(lua_State *L)
{
    const Graph *g = check_graph(L);
    const bool *needed = push_needed(L);
    lua_newtable(L);
    for (int i = 0; i < g->count; i++)
        if (needed[i] && g->node[i].kind == NODE_INPUT)
            set_bool(L, g->node[i].name, true);
    return 1;
}

/* needs({root nodes}, node) -> whether they need the node */
static int l_needs(lua_State *L)
{
    const int node = check_node(L, 2);
    lua_pushboolean(L, push_needed(L)[node]);
    return 1;
}

/* length_inputs({root nodes}) -> { name = true, ... }: the inputs from which
 * the sequence lengths of operators needed by the roots are computed */
static int l_length_inputs(lua_State *L)
{
    enum { NEEDED = 1, LENGTH = 2 };
    int root[MAX_ROOTS], roots = check_nodes(L, 1, root, MAX_ROOTS);
    const Graph *g = check_graph(L);
    char *mark = lua_newuserdatauv(L, (size_t)g->count + 1, 0);
    memset(mark, 0, (size_t)g->count + 1);
    lua_newtable(L);
    for (int i = 0; i < roots; i++) mark[root[i]] = NEEDED;

    for (int i = g->count - 1; i >= 0; i--) {
        const Node *n = &g->node[i];
        if (mark[i] & LENGTH && n->kind == NODE_INPUT)
            set_bool(L, n->name, true);
        if (!mark[i] || n->kind != NODE_OP) continue;
        const OpInfo *info = &op_info[n->attr.op];
        for (int k = 0; k < info->in; k++) {
            bool length = info->flags & LENGTHS && k == info->in - 1;
            if (n->in[k] >= 0)
                mark[n->in[k]] |= mark[i] | (length ? LENGTH : 0);
        }
    }
    return 1;
}

void bind_graph(lua_State *L)
{
    static const luaL_Reg graph[] = {{NULL, NULL}};
    static const luaL_Reg node[] = {{"__index", node_index},
                                    {"__tostring", node_tostring},
                                    {"__eq", node_equal},
                                    {"__add", node_add},
                                    {"__sub", node_sub},
                                    {"__mul", node_mul},
                                    {"__div", node_div},
                                    {"__pow", node_pow},
                                    {"__mod", node_mod},
                                    {"__idiv", node_idiv},
                                    {"__unm", node_unm},
                                    {"__lt", node_less},
                                    {"__le", node_less},
                                    {"__concat", node_concat},
                                    {NULL, NULL}};
    static const luaL_Reg functions[] = {{"input", l_input},
                                         {"param", l_param},
                                         {"node_id", node_id},
                                         {"operand", l_operand},
                                         {"ops", l_ops},
                                         {"graph_text", l_graph_text},
                                         {"graph_parse", l_graph_parse},
                                         {"needed_inputs", l_needed_inputs},
                                         {"targets", l_targets},
                                         {"needs", l_needs},
                                         {"length_inputs", l_length_inputs},
                                         {NULL, NULL}};

    new_type(L, "seg.graph", graph, graph_gc);
    new_type(L, "seg.node", node, NULL);
    new_object(L, "seg.graph", sizeof(Graph));
    lua_rawsetp(L, LUA_REGISTRYINDEX, &GRAPH_KEY);
    luaL_setfuncs(L, functions, 0);
    lua_createtable(L, 0, OP_COUNT);
    for (int i = 0; i < OP_COUNT; i++) {
        lua_pushinteger(L, i);
        lua_pushcclosure(L, l_op, 1);
        lua_setfield(L, -2, op_info[i].name);
    }
    lua_setfield(L, -2, "op");
}
