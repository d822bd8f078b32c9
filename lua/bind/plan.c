/* plan.c -- core.plan and core.launches: the plan and the launches of a session
 * without a session.
 *
 * They take the description of core.session and return tables for `plan` and
 * `bench`: bytes, FLOPs, a row for each operator; and the launches of a
 * training step on a GPU. No device is opened and no tensor is allocated, so a
 * network may be planned for a device or a size that this machine lacks. */
#include "engine/plan/tile_names.h"
#include "lua/bind/bind.h"
#include <string.h>

/* Extents {name = {n, c, [d], [h], w}} in field "inputs"; their count. The
 * caller is lua/inspect/plan.lua, so messages are short. */
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

/* Three numbers, of the axes d, h, w, as field `key` of the table on top. */
static void push_axes(lua_State *L, const int v[3], const char *key)
{
    const int64_t axes[3] = {v[0], v[1], v[2]};
    push_shape(L, 3, axes);
    lua_setfield(L, -2, key);
}

/* Extents in memory order; `sample`: without the first one, N. */
static void push_extents_of(lua_State *L, const Tensor *t, bool sample,
                            const char *key)
{
    const Dims s = t->dim;
    const int64_t extent[5] = {s.n, s.d, s.h, s.w, s.c};
    push_shape(L, 5 - sample, extent + sample);
    lua_setfield(L, -2, key);
}

/* Field `convolution` of the table on top, for a row that is one: the shapes
 * and attributes to run it alone. x and y are {d, h, w, c} of one sample;
 * first_layer: the gradient of x, an input, is not needed. */
static void push_convolution(lua_State *L, const Graph *g, const Node *n)
{
    const Op op = (Op)n->attr.op;
    if (op != OP_conv && op != OP_upconv) return;
    const Node *x = &g->node[n->in[0]], *w = &g->node[n->in[1]];
    const Window window = op_window(&n->attr, &w->y);
    lua_createtable(L, 0, 12);
    set_text(L, "op", op_info[op].name);
    set_integer(L, "rank", n->y.rank);
    push_extents_of(L, &x->y, true, "x");
    push_extents_of(L, &n->y, true, "y");
    push_extents_of(L, &w->y, false, "w");
    push_axes(L, window.s, "stride");
    push_axes(L, window.lo, "lo");
    push_axes(L, window.hi, "hi");
    push_axes(L, window.dil, "dilation");
    set_integer(L, "groups", window.groups);
    set_bool(L, "first_layer", x->kind == NODE_INPUT);
    lua_setfield(L, -2, "convolution");
}

/* A row of the plan's table. */
static void push_row(lua_State *L, const Graph *g, const PlanRow *r)
{
    const Node *n = &g->node[r->node];
    char text[DIMS_TEXT];
    lua_createtable(L, 0, 9);
    set_text(L, "name", n->name);
    set_kind(L, g, &r->ops);
    set_text(L, "shape", dims_text(n->y.dim, n->y.rank, text));
    set_number(L, "flops", r->flops);
    set_integer(L, "params", r->params);
    set_integer(L, "value_bytes", (lua_Integer)r->value_bytes);
    set_bool(L, "again", r->recomputed);
    set_bool(L, "winograd", r->approximate);
    lua_pushinteger(
        L, (lua_Integer)(r->saved_bytes + r->scratch_bytes + r->half_bytes));
    lua_setfield(L, -2, "extra_bytes");
    push_convolution(L, g, n);
}

/* The compute capability of a GPU that need not be present, 75 for 7.5; 0: of
 * the device. */
static int opt_capability(lua_State *L)
{
    return (int)opt_int(L, 1, "capability", 0, 0, 999);
}

/* plan{roots=, step_roots=nil, loss=, inputs={name={n,c,h,w}}, device="cpu",
 * threads=, precision=, winograd=true, tiles="", optim=, budget=0, least=false,
 * average=false, plain=false, capability=0} -> {bytes=, naive_bytes=,
 * peak_values=, peak_gradients=, peak_workspace=, activation_bytes=, flops=,
 * calls=, microbatched=, trained=, running=, param_bytes=, weight_bytes=,
 * gradient_bytes=, kept_bytes=, recompute_values=, recompute_dropped=,
 * recompute_calls=, recompute_flops=, recompute_bytes=, rows={...}}; opens and
 * allocates nothing on a device. With a loss and an optimiser it is the plan of
 * a training step. weight_bytes and gradient_bytes are the blocks that a
 * session allocates: all weights and running statistics, and their gradients; a
 * block of moments is as large as the latter; param_bytes is the sum of all.
 * activation_bytes: see plan_activation_bytes. budget and least are options of
 * PlanSpec, kept_bytes and recompute_* their effect: see PlanRecompute. */
static int l_plan(lua_State *L)
{
    int root[MAX_ROOTS], step_root[MAX_ROOTS], number;
    PlanInput input[MAX_FEEDS];
    Params params = {0};
    const Backend *be;
    Optim optim;
    Plan *plan = NULL;

    check_keys(L, 1, "plan", session_keys);
    const Graph *g = check_graph(L);
    int roots = read_roots(L, 1, root);
    int inputs = read_input_dims(L, 1, input), loss = opt_loss(L, 1);
    bool train = read_optim(L, 1, &optim) && loss >= 0;
    int wanted = (int)opt_int(L, 1, "threads", 0, 0, MAX_THREADS);
    size_t budget = (size_t)opt_int(L, 1, "budget", 0, 0, INT64_MAX);
    bool least = opt_bool(L, 1, "least", false);
    bool average = opt_bool(L, 1, "average", false);
    const char *tiles = opt_string(L, 1, "tiles", "");
    if (!backend_find(opt_device(L, 1, "cpu"), &be, &number))
        return raise_error(L);
    backend_target(be, number, opt_capability(L));
    int step_roots = read_step_roots(L, 1, step_root);
    bool all = !train || step_roots < 0;
    if (loss >= 0) root[roots++] = loss;
    bool no_winograd = !opt_bool(L, 1, "winograd", true);
    bool ok = tiles_valid(tiles, g, be) &&
              params_list(&params, g, root, roots) &&
              read_frozen(L, 1, &params);
    PlanSpec spec = {.graph = g,
                     .params = &params,
                     .be = be,
                     .threads = be->threads(wanted),
                     .precision = opt_precision(L, 1),
                     .no_winograd = no_winograd,
                     .tiles = tiles,
                     .no_fusion = opt_bool(L, 1, "plain", false),
                     .sqnorms = train, // as in a session of one rank
                     .root = all ? root : step_root,
                     .roots = all ? roots : step_roots,
                     .loss = train ? loss : -1,
                     .train = train,
                     .input = input,
                     .inputs = inputs,
                     .budget = budget,
                     .least = least};
    params_copied(&params, be, spec.precision);
    ok = ok && plan_build(&spec, &plan);
    if (!ok) {
        params_free(&params);
        return raise_error(L);
    }

    // if Lua runs out of memory below, these two leak, once, at exit
    const PlanRow *rows;
    int count = plan_rows(plan, &rows);
    PlanPeak peak = plan_peak(plan);
    size_t weights = params_bytes(&params, be->real, false, 0);
    size_t averaged =
        average ? (size_t)params.total * dtype_bytes(be->real) : 0;
    PlanRecompute recompute = plan_recomputed(plan);
    lua_createtable(L, 0, 23);
    const struct {
        const char *key;
        int64_t value;
    } fact[] = {
        {"bytes", (int64_t)plan_bytes(plan)},
        {"naive_bytes", (int64_t)plan_naive_bytes(plan)},
        {"upload_bytes", (int64_t)plan_upload_bytes(plan)},
        {"peak_values", (int64_t)peak.values},
        {"peak_gradients", (int64_t)peak.gradients},
        {"peak_workspace", (int64_t)peak.workspace},
        {"activation_bytes", (int64_t)plan_activation_bytes(plan)},
        {"calls", plan_calls(plan)},
        {"microbatched", plan_microbatched(plan)},
        {"trained", params_trained(&params)},
        {"running", params_running(&params)},
        {"param_bytes",
         (int64_t)(averaged +
                   params_bytes(&params, be->real, train,
                                train ? optim_info[optim.kind].states : 0))},
        {"weight_bytes", (int64_t)weights},
        {"kept_bytes", (int64_t)recompute.kept_bytes},
        {"recompute_values", recompute.values},
        {"recompute_dropped", recompute.dropped},
        {"recompute_calls", recompute.calls},
        {"gradient_bytes",
         (int64_t)(params_bytes(&params, be->real, train, 0) - weights)},
    };
    for (size_t i = 0; i < sizeof fact / sizeof *fact; i++) {
        lua_pushinteger(L, fact[i].value);
        lua_setfield(L, -2, fact[i].key);
    }
    set_number(L, "flops", plan_flops(plan));
    set_number(L, "recompute_flops", recompute.flops);
    set_number(L, "recompute_bytes", recompute.moved);
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

/* == launches ========================================================== */

/* A list of three extents as field `key` of the table on top. */
static void push_extents(lua_State *L, const unsigned extent[3],
                         const char *key)
{
    const int64_t shape[3] = {extent[0], extent[1], extent[2]};
    push_shape(L, 3, shape);
    lua_setfield(L, -2, key);
}

/* Does any launch of this call report its bytes? i is the first launch of the
 * call. */
static bool says_moved(const LaunchLog *r, int i)
{
    for (int k = i; k < r->launches && r->launch[k].part == r->launch[i].part;
         k++)
        if (r->launch[k].moved > 0) return true;
    return false;
}

void push_launch(lua_State *L, const Launch *l, const LaunchPart *part)
{
    const Node *n = part->node < 0 ? NULL : &check_graph(L)->node[part->node];
    lua_createtable(L, 0, 12);
    set_text(L, "name", n ? n->name : "");
    set_text(L, "kind", part->what ? part->what : op_info[n->attr.op].name);
    set_bool(L, "backward", part->backward);
    set_text(L, "launch", l->name);
    set_integer(L, "copied", (lua_Integer)l->bytes);
}

/* Push a launch of a dry run. `whole`: its bytes and FLOPs are those of the
 * call, else those of the launch. */
static void push_dry_launch(lua_State *L, const Launch *l,
                            const LaunchPart *part, bool whole)
{
    push_launch(L, l, part);
    set_integer(L, "shared", (lua_Integer)l->shared);
    set_number(L, "bytes", whole ? part->bytes : l->moved);
    set_number(L, "flops", whole ? part->flops : l->flops);
    if (!l->block[0]) return;
    push_extents(L, l->grid, "grid");
    push_extents(L, l->block, "block");
}

/* A dry run of one step of the session that `spec` describes, into r; *arena:
 * the bytes of its pool. */
static bool dry_run_step(lua_State *L, const SessionSpec *spec, size_t budget,
                         const PlanInput *input, int inputs, LaunchLog *r,
                         size_t *arena)
{
    Session *s = NULL;
    Plan *p;
    bool ok = session_open(spec, &s) && read_frozen(L, 1, session_params(s));
    if (ok) session_budget(s, budget, true);
    ok = ok && session_plan(s, true, input, inputs, &p) && session_bind(s, p) &&
         session_dry_run(s, p, r);
    *arena = ok ? plan_bytes(p) : 0;
    session_close(s);
    return ok;
}

/* launches{the options of plan} -> a list of the launches of one training step
 * on device "cuda", in order: { name=, kind=, backward=, launch=, grid=,
 * block=, shared=, copied=, bytes=, flops= }; grid and block for kernels only.
 * bytes and FLOPs are those of the launch if the launches of its call report
 * their bytes; else the minimum of the call is in the row of its first launch.
 * The second result is the bytes of the arena. */
static int l_launches(lua_State *L)
{
    int root[MAX_ROOTS], step_root[MAX_ROOTS];
    PlanInput input[MAX_FEEDS];
    Optim optim;
    LaunchLog r = {0};
    size_t arena;

    check_keys(L, 1, "launches", session_keys);
    const Graph *g = check_graph(L);
    SessionSpec spec = {.graph = g,
                        .root = root,
                        .roots = read_roots(L, 1, root),
                        .loss = opt_loss(L, 1),
                        .device = opt_string(L, 1, "device", "cuda"),
                        .optim = &optim,
                        .precision = opt_precision(L, 1),
                        .no_winograd = !opt_bool(L, 1, "winograd", true),
                        .tiles = opt_string(L, 1, "tiles", ""),
                        .no_fusion = opt_bool(L, 1, "plain", false),
                        .dry_run = true,
                        .capability = opt_capability(L)};
    int inputs = read_input_dims(L, 1, input);
    spec.step_roots = read_step_roots(L, 1, step_root);
    if (spec.step_roots >= 0) spec.step_root = step_root;
    if (!read_optim(L, 1, &optim) || spec.loss < 0)
        return raise_usage(L, "launches: no loss or no optimiser");
    size_t budget = (size_t)opt_int(L, 1, "budget", 0, 0, INT64_MAX);
    if (!dry_run_step(L, &spec, budget, input, inputs, &r, &arena)) {
        launch_log_free(&r);
        return raise_error(L);
    }

    // if Lua runs out of memory below, the log leaks, once, at exit
    lua_createtable(L, r.launches, 0);

    for (int i = 0, last = -1; i < r.launches; i++) {
        const Launch *l = &r.launch[i];
        push_dry_launch(L, l, &r.part[l->part],
                        l->part != last && !says_moved(&r, i));
        last = l->part;
        lua_rawseti(L, -2, i + 1);
    }

    launch_log_free(&r);
    lua_pushinteger(L, (lua_Integer)arena);
    return 2;
}

void bind_plan(lua_State *L)
{
    static const luaL_Reg functions[] = {
        {"plan", l_plan}, {"launches", l_launches}, {NULL, NULL}};
    luaL_setfuncs(L, functions, 0);
}
