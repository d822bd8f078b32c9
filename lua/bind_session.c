/* bind_session.c -- a network that runs, as a Lua object.
 *
 * Inputs arrive as a table name -> seg.array or seg.block; the extents of
 * the values choose the plan. What a step does is decided in Lua: rate,
 * clipping, accumulation. */
#include "bind.h"
#include <stdio.h>
#include <string.h>

enum { MAX_FEEDS = 16, MAX_ROOTS = 64 };

typedef struct Handle {
    Session *s;
    Plan *plan; /* of the last run: what read() reads */
} Handle;

Session *check_session(lua_State *L, int arg)
{
    Handle *h = luaL_checkudata(L, arg, "seg.session");
    if (!h->s) raise_usage(L, "this session is closed");
    return h->s;
}

static Handle *check_handle(lua_State *L, int arg)
{
    check_session(L, arg);
    return lua_touserdata(L, arg);
}

static int session_gc(lua_State *L)
{
    Handle *h = luaL_checkudata(L, 1, "seg.session");
    session_close(h->s);
    h->s = NULL;
    h->plan = NULL;
    return 0;
}

/* == feeding =========================================================== */

typedef struct Feed {
    int node;
    Dims dim;
    const float *user; /* one of these two */
    const Tensor *memory;
} Feed;

/* The value on top of the stack for input `node`. */
static Feed read_feed(lua_State *L, int node)
{
    const Node *n = &check_graph(L)->node[node];
    Block *b = test_block(L, lua_gettop(L));
    Feed f = {.node = node};
    if (b) {
        f.dim = b->t.dim;
        f.memory = &b->t;
        return f;
    }
    Array *a = luaL_testudata(L, -1, "seg.array");
    if (!a)
        raise_usage(L, "input \"%s\" must be a seg.array, got %s", n->name,
                    luaL_typename(L, -1));
    if (!dims_from_user(a->shape, a->axes, n->y.rank, &f.dim)) {
        char want[DIMS_TEXT];
        raise_usage(L, "input \"%s\": an array of %d axes does not fit %s",
                    n->name, a->axes, dims_text(n->y.dim, n->y.rank, want));
    }
    f.user = a->data;
    return f;
}

/* The table at `arg`, name -> value, as feeds; values stay referenced by the
 * table. */
static int read_feeds(lua_State *L, int arg, Feed feed[MAX_FEEDS])
{
    int n = 0;
    const Graph *g = check_graph(L);
    if (!lua_istable(L, arg))
        raise_usage(L, "inputs must be a table name -> array, got %s",
                    luaL_typename(L, arg));
    lua_pushnil(L);
    while (lua_next(L, arg)) {
        if (lua_type(L, -2) != LUA_TSTRING)
            raise_usage(L, "inputs have names, got a value at [%s]",
                        luaL_tolstring(L, -2, NULL));
        int node = graph_find(g, lua_tostring(L, -2));
        if (node < 0 || g->node[node].kind != NODE_INPUT)
            raise_usage(L, "the network has no input \"%s\"",
                        lua_tostring(L, -2));
        if (n == MAX_FEEDS) raise_usage(L, "more than %d inputs", MAX_FEEDS);
        feed[n++] = read_feed(L, node);
        lua_pop(L, 1);
    }
    // a table has no order, plans are found by an ordered list
    for (int i = 1; i < n; i++)
        for (int k = i; k > 0 && feed[k].node < feed[k - 1].node; k--) {
            Feed t = feed[k];
            feed[k] = feed[k - 1];
            feed[k - 1] = t;
        }
    return n;
}

/* Choose the plan for these feeds, give it memory, copy the values in.
 * Inputs that the plan does not need are left out. */
static bool prepare(Session *s, bool train, const Feed *feed, int feeds,
                    Plan **out)
{
    PlanInput input[MAX_FEEDS];
    for (int i = 0; i < feeds; i++)
        input[i] = (PlanInput){feed[i].node, feed[i].dim};
    if (!session_plan(s, train, input, feeds, out) || !session_bind(s, *out))
        return false;
    for (int i = 0; i < feeds; i++) {
        if (!plan_value(*out, feed[i].node)) continue;
        bool ok =
            feed[i].user
                ? session_feed(s, *out, feed[i].node, feed[i].user)
                : session_feed_tensor(s, *out, feed[i].node, feed[i].memory);
        if (!ok) return false;
    }
    return true;
}

/* s:forward(inputs, train) : runs; read() gives the roots */
static int l_forward(lua_State *L)
{
    Handle *h = check_handle(L, 1);
    Feed feed[MAX_FEEDS];
    int feeds = read_feeds(L, 2, feed);
    bool train = lua_toboolean(L, 3);
    h->plan = NULL;
    if (!prepare(h->s, train, feed, feeds, &h->plan) ||
        !session_run(h->s, h->plan)) {
        h->plan = NULL;
        return raise_error(L);
    }
    return 0;
}

/* s:step(inputs, {lr=, clip=0, first=true, last=true, parts=1})
 * -> loss, gradient norm, applied */
static int l_step(lua_State *L)
{
    static const char *const known[] = {"lr",   "clip",  "first",
                                        "last", "parts", NULL};
    Handle *h = check_handle(L, 1);
    Feed feed[MAX_FEEDS];
    StepResult r;
    check_keys(L, 3, "step", known);
    double lr = opt_number(L, 3, "lr", 0), clip = opt_number(L, 3, "clip", 0);
    bool first = opt_bool(L, 3, "first", true);
    bool last = opt_bool(L, 3, "last", true);
    int parts = (int)opt_int(L, 3, "parts", 1, 1, 1 << 20);
    int feeds = read_feeds(L, 2, feed);
    h->plan = NULL;
    if (!prepare(h->s, true, feed, feeds, &h->plan) ||
        !session_accumulate(h->s, h->plan, first, last, parts, lr, clip, &r)) {
        h->plan = NULL;
        return raise_error(L);
    }
    lua_pushnumber(L, r.loss);
    lua_pushnumber(L, r.grad_norm);
    lua_pushboolean(L, r.applied || !last);
    return 3;
}

/* s:read(node) -> array of the last run */
static int l_read(lua_State *L)
{
    Handle *h = check_handle(L, 1);
    int node = check_node(L, 2);
    const Tensor *t = h->plan ? plan_value(h->plan, node) : NULL;
    int64_t shape[2 + RANK_MAX];
    if (!t)
        raise_usage(L, "node \"%s\" is not an output of the last run",
                    check_graph(L)->node[node].name);
    int axes = dims_to_user(t->dim, t->rank, shape);
    Array *a = push_array(L, axes, shape);
    if (!session_read(h->s, h->plan, node, a->data)) return raise_error(L);
    return 1;
}

/* s:blame() -> "conv (enc1.conv1, x.lua:12)" or nil, after a bad run */
static int l_blame(lua_State *L)
{
    Handle *h = check_handle(L, 1);
    char text[ERR_MAX / 4];
    if (!h->plan) return 0;
    if (!session_blame(h->s, h->plan, text, sizeof text)) return raise_error(L);
    if (!*text) return 0;
    lua_pushstring(L, text);
    return 1;
}

/* s:time(inputs, train) -> { {name=, kind=, backward=, ms=}, ... } */
static int l_time(lua_State *L)
{
    enum { MAX_CALLS = 4096 };
    Handle *h = check_handle(L, 1);
    Feed feed[MAX_FEEDS];
    int feeds = read_feeds(L, 2, feed), count = 0;
    bool train = lua_toboolean(L, 3);
    PlanTime *time = lua_newuserdatauv(L, MAX_CALLS * sizeof *time, 0);
    PlanRun run = {.backward = train, .seed_grad = 1};
    if (!prepare(h->s, train, feed, feeds, &h->plan) ||
        !plan_time(h->plan, &run, time, MAX_CALLS, &count))
        return raise_error(L);
    lua_createtable(L, count, 0);
    for (int i = 0; i < count; i++) {
        const Node *n = &check_graph(L)->node[time[i].node];
        lua_createtable(L, 0, 4);
        lua_pushstring(L, n->name);
        lua_setfield(L, -2, "name");
        lua_pushstring(L, op_info[n->attr.op].name);
        lua_setfield(L, -2, "kind");
        lua_pushboolean(L, time[i].backward);
        lua_setfield(L, -2, "backward");
        lua_pushnumber(L, time[i].ms);
        lua_setfield(L, -2, "ms");
        lua_rawseti(L, -2, i + 1);
    }
    return 1;
}

/* == parameters ======================================================== */

/* s:params() -> { {name=, shape=, trained=}, ... } in graph order */
static int l_params(lua_State *L)
{
    const Params *p = session_params(check_session(L, 1));
    lua_createtable(L, p->count, 0);
    for (int i = 0; i < p->count; i++) {
        int64_t shape[2 + RANK_MAX];
        int axes = dims_to_user(p->list[i].dim, p->list[i].rank, shape);
        lua_createtable(L, 0, 3);
        lua_pushstring(L, p->list[i].name);
        lua_setfield(L, -2, "name");
        lua_pushboolean(L, p->list[i].trained);
        lua_setfield(L, -2, "trained");
        lua_createtable(L, axes, 0);
        for (int k = 0; k < axes; k++) {
            lua_pushinteger(L, shape[k]);
            lua_rawseti(L, -2, k + 1);
        }
        lua_setfield(L, -2, "shape");
        lua_rawseti(L, -2, i + 1);
    }
    return 1;
}

typedef struct Piece {
    Params *p;
    int i, state;
    ParamBlock block;
} Piece;

/* name and kind ("value", "grad", "m", "v") at arguments 2 and 3 */
static Piece check_piece(lua_State *L)
{
    static const char *const kinds[] = {"value", "grad", "m", "v", NULL};
    Session *s = check_session(L, 1);
    Piece q = {.p = session_params(s)};
    const char *name = luaL_checkstring(L, 2);
    int kind = luaL_checkoption(L, 3, "value", kinds);
    q.i = params_find(q.p, name);
    q.block = kind == 0 ? PARAM_VALUE : kind == 1 ? PARAM_GRAD : PARAM_STATE;
    q.state = kind > 2;
    if (q.i < 0) raise_usage(L, "the network has no parameter \"%s\"", name);
    if (kind && (!q.p->list[q.i].trained || !q.p->grad))
        raise_usage(L, "parameter \"%s\" is not trained here", name);
    if (kind >= 2 && q.state >= q.p->states)
        raise_usage(L, "this optimiser keeps no \"%s\"", kinds[kind]);
    return q;
}

static int l_get(lua_State *L)
{
    Piece q = check_piece(L);
    const Param *a = &q.p->list[q.i];
    int64_t shape[2 + RANK_MAX], n = numel(a->dim);
    int axes = dims_to_user(a->dim, a->rank, shape);
    double *user = lua_newuserdatauv(L, (size_t)n * sizeof *user, 0);
    Array *out = push_array(L, axes, shape);
    if (!params_read(q.p, q.i, q.block, q.state, user)) return raise_error(L);
    for (int64_t i = 0; i < n; i++) out->data[i] = (float)user[i];
    return 1;
}

/* s:set(name, kind, array) */
static int l_set(lua_State *L)
{
    Piece q = check_piece(L);
    Array *a = check_array(L, 4);
    int64_t n = numel(q.p->list[q.i].dim);
    if (a->count != n)
        raise_usage(L, "parameter \"%s\" has %lld elements, the array %lld",
                    q.p->list[q.i].name, (long long)n, (long long)a->count);
    double *user = lua_newuserdatauv(L, (size_t)n * sizeof *user, 0);
    for (int64_t i = 0; i < n; i++) user[i] = (double)a->data[i];
    if (!params_write(q.p, q.i, q.block, q.state, user)) return raise_error(L);
    return 0;
}

/* == facts ============================================================= */

/* s:facts() -> {device=, threads=, why=, count=, pool_bytes=, trained=,
 * running=, param_bytes=} */
static int l_facts(lua_State *L)
{
    Session *s = check_session(L, 1);
    const Params *p = session_params(s);
    Dtype real = session_backend(s)->real;
    lua_createtable(L, 0, 8);
    lua_pushstring(L, session_backend(s)->name);
    lua_setfield(L, -2, "device");
    lua_pushstring(L, session_why(s));
    lua_setfield(L, -2, "why");
    const struct {
        const char *key;
        int64_t value;
    } fact[] = {
        {"threads", session_threads(s)},
        {"count", session_count(s)},
        {"pool_bytes", (int64_t)session_pool_bytes(s)},
        {"trained", params_trained(p)},
        {"running", params_running(p)},
        {"param_bytes",
         (int64_t)params_bytes(p, real, p->grad != NULL, p->states)},
    };
    for (size_t i = 0; i < sizeof fact / sizeof *fact; i++) {
        lua_pushinteger(L, fact[i].value);
        lua_setfield(L, -2, fact[i].key);
    }
    return 1;
}

static int l_set_count(lua_State *L)
{
    session_set_count(check_session(L, 1),
                      check_int(L, 2, "count", 0, INT64_MAX));
    return 0;
}

/* == making ============================================================ */

/* The list of nodes in field `key`. */
static int read_nodes(lua_State *L, int arg, const char *key,
                      int node[MAX_ROOTS])
{
    int n = 0;
    if (lua_getfield(L, arg, key) != LUA_TTABLE)
        raise_usage(L, "%s must be a list of nodes", key);
    while (lua_rawgeti(L, -1, n + 1) != LUA_TNIL) {
        if (n == MAX_ROOTS - 1) raise_usage(L, "more than %d outputs", n);
        node[n++] = check_node(L, lua_gettop(L));
        lua_pop(L, 1);
    }
    lua_pop(L, 2);
    return n;
}

/* optim = {kind="adamw", lr=..., decay=..., ...}; false when absent. The
 * keys lr and clip_norm belong to the loop, not to the row. */
static bool read_optim(lua_State *L, int arg, Optim *o)
{
    if (lua_getfield(L, arg, "optim") == LUA_TNIL) {
        lua_pop(L, 1);
        return false;
    }
    int t = lua_gettop(L);
    const char *kind = opt_string(L, t, "kind", "adamw");
    OptimKind k = optim_find(kind);
    if (k == OPTIM_COUNT) raise_usage(L, "optimiser \"%s\" is not known", kind);
    *o = optim_default(k);
    for (int i = 0; i < optim_info[k].hypers; i++)
        o->hyper[i] =
            opt_number(L, t, optim_info[k].hyper[i].name, o->hyper[i]);
    lua_pop(L, 1);
    return true;
}

static int opt_loss(lua_State *L, int arg)
{
    lua_getfield(L, arg, "loss");
    int loss = opt_node(L, lua_gettop(L));
    lua_pop(L, 1);
    const Graph *g = check_graph(L);
    if (loss >= 0 && g->node[loss].y.rank != RANK_SCALAR) {
        char text[DIMS_TEXT];
        const Tensor *y = &g->node[loss].y;
        raise_usage(L, "the loss must be one number, got a node of shape %s",
                    dims_text(y->dim, y->rank, text));
    }
    return loss;
}

static const char *const session_keys[] = {
    "roots", "loss", "device", "threads", "seed", "optim", "inputs", NULL};

static int l_session(lua_State *L)
{
    int root[MAX_ROOTS];
    Optim optim;
    check_keys(L, 1, "session", session_keys);
    SessionSpec spec = {.graph = check_graph(L),
                        .root = root,
                        .loss = opt_loss(L, 1),
                        .device = opt_string(L, 1, "device", "auto"),
                        .threads = (int)opt_int(L, 1, "threads", 0, 0, 4096)};
    spec.seed = (uint64_t)opt_int(L, 1, "seed", 0, 0, INT64_MAX);
    spec.roots = read_nodes(L, 1, "roots", root);
    if (read_optim(L, 1, &optim)) spec.optim = &optim;
    Handle *h = new_object(L, "seg.session", sizeof *h);
    if (!session_open(&spec, &h->s)) return raise_error(L);
    return 1;
}

/* Extents {name = {n, c, h, w}} in field "inputs". */
static int read_input_dims(lua_State *L, int arg, PlanInput input[MAX_FEEDS])
{
    int n = 0;
    const Graph *g = check_graph(L);
    lua_getfield(L, arg, "inputs");
    luaL_checktype(L, -1, LUA_TTABLE);
    lua_pushnil(L);
    while (lua_next(L, -2)) {
        int64_t shape[MAX_AXES];
        int node = graph_find(g, luaL_checkstring(L, -2));
        int axes = (int)luaL_len(L, -1);
        if (node < 0 || n == MAX_FEEDS || axes > 2 + RANK_MAX)
            raise_usage(L, "no input \"%s\"", lua_tostring(L, -2));
        for (int i = 0; i < axes; i++) {
            lua_rawgeti(L, -1, i + 1);
            shape[i] = check_int(L, lua_gettop(L), "extent", 1, INT32_MAX);
            lua_pop(L, 1);
        }
        input[n].node = node;
        if (!dims_from_user(shape, axes, g->node[node].y.rank, &input[n].dim))
            raise_usage(L, "input \"%s\": shape of %d axes",
                        lua_tostring(L, -2), axes);
        n++;
        lua_pop(L, 1);
    }
    lua_pop(L, 1);
    return n;
}

static void push_row(lua_State *L, const Graph *g, const PlanRow *r)
{
    const Node *n = &g->node[r->node];
    char text[DIMS_TEXT];
    lua_createtable(L, 0, 7);
    lua_pushstring(L, n->name);
    lua_setfield(L, -2, "name");
    lua_pushstring(L, op_info[n->attr.op].name);
    lua_setfield(L, -2, "kind");
    lua_pushstring(L, dims_text(n->y.dim, n->y.rank, text));
    lua_setfield(L, -2, "shape");
    lua_pushnumber(L, r->flops);
    lua_setfield(L, -2, "flops");
    lua_pushinteger(L, r->params);
    lua_setfield(L, -2, "params");
    lua_pushinteger(L, (lua_Integer)r->value_bytes);
    lua_setfield(L, -2, "value_bytes");
    lua_pushinteger(L, (lua_Integer)(r->saved_bytes + r->scratch_bytes));
    lua_setfield(L, -2, "extra_bytes");
}

/* plan{roots=, loss=, inputs={name={n,c,h,w}}, device="cpu", threads=,
 * optim=} -> {bytes=, naive_bytes=, flops=, calls=, trained=, running=,
 * param_bytes=, rows={...}}; opens and allocates nothing on a device. With a
 * loss and an optimiser it is the plan of a training step. */
static int l_plan(lua_State *L)
{
    int root[MAX_ROOTS], number;
    char why[ERR_MAX];
    PlanInput input[MAX_FEEDS];
    Params params = {0};
    const Backend *be;
    Optim optim;
    Plan *plan = NULL;
    check_keys(L, 1, "plan", session_keys);
    const Graph *g = check_graph(L);
    int roots = read_nodes(L, 1, "roots", root);
    int inputs = read_input_dims(L, 1, input), loss = opt_loss(L, 1);
    bool train = read_optim(L, 1, &optim) && loss >= 0;
    int wanted = (int)opt_int(L, 1, "threads", 0, 0, 4096);
    const char *device = opt_string(L, 1, "device", "cpu");
    if (!backend_find(strcmp(device, "auto") ? device : "cpu", &be, &number,
                      why))
        return raise_error(L);
    if (loss >= 0) root[roots++] = loss;
    bool ok = params_list(&params, g, root, roots);
    PlanSpec spec = {.graph = g,
                     .params = &params,
                     .be = be,
                     .threads = be->threads(wanted),
                     .root = root,
                     .roots = roots,
                     .loss = train ? loss : -1,
                     .train = train,
                     .input = input,
                     .inputs = inputs};
    ok = ok && plan_build(&spec, &plan);
    if (!ok) {
        params_free(&params);
        return raise_error(L);
    }
    // Lua may run out of memory below: then these two leak, once, at exit
    const PlanRow *rows;
    int count = plan_rows(plan, &rows);
    lua_createtable(L, 0, 8);
    const struct {
        const char *key;
        int64_t value;
    } fact[] = {
        {"bytes", (int64_t)plan_bytes(plan)},
        {"naive_bytes", (int64_t)plan_naive_bytes(plan)},
        {"calls", plan_calls(plan)},
        {"trained", params_trained(&params)},
        {"running", params_running(&params)},
        {"param_bytes",
         (int64_t)params_bytes(&params, be->real, train,
                               train ? optim_info[optim.kind].states : 0)},
    };
    for (size_t i = 0; i < sizeof fact / sizeof *fact; i++) {
        lua_pushinteger(L, fact[i].value);
        lua_setfield(L, -2, fact[i].key);
    }
    lua_pushnumber(L, plan_flops(plan));
    lua_setfield(L, -2, "flops");
    lua_createtable(L, count, 0);
    for (int i = 0; i < count; i++) {
        push_row(L, g, &rows[i]);
        lua_rawseti(L, -2, i + 1);
    }
    lua_setfield(L, -2, "rows");
    plan_free(plan);
    params_free(&params);
    return 1;
}

void bind_session(lua_State *L)
{
    static const luaL_Reg methods[] = {
        {"forward", l_forward}, {"step", l_step},
        {"read", l_read},       {"blame", l_blame},
        {"time", l_time},       {"params", l_params},
        {"get", l_get},         {"set", l_set},
        {"facts", l_facts},     {"set_count", l_set_count},
        {"close", session_gc},  {NULL, NULL}};
    static const luaL_Reg functions[] = {
        {"session", l_session}, {"plan", l_plan}, {NULL, NULL}};
    new_type(L, "seg.session", methods, session_gc);
    luaL_setfuncs(L, functions, 0);
}
