/* session.c -- a network that runs, as a Lua object.
 *
 * Inputs arrive as a table name -> seg.array or seg.block; their extents choose
 * the plan, which the session makes once and keeps. Lua decides rate, clipping
 * and accumulation of a step. Output values are copies in user order; no Lua
 * object points into a plan. */
#include "engine/base/clock.h"
#include "engine/checkpoint/snapshot.h"
#include "lua/bind/bind.h"
#include <stdio.h>
#include <string.h>

typedef struct Handle {
    Session *s; /* NULL once closed                                       */
    Plan *plan; /* of the last run, for read(); NULL before the first run
                 * and after one that failed; owned by the session        */
    DeviceRef *device_refs; /* other objects with memory on its device */
    double copy_s; /* spent copying inputs, all runs together           */
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

DeviceRef **session_device_refs(lua_State *L, int arg)
{
    return &check_handle(L, arg)->device_refs;
}

/* Also s:close(): frees memory and threads at once, without the collector. */
static int session_gc(lua_State *L)
{
    Handle *h = luaL_checkudata(L, 1, "seg.session");
    device_refs_close(&h->device_refs);
    session_close(h->s);
    h->s = NULL;
    h->plan = NULL;
    return 0;
}

/* == feeding =========================================================== */

/* A value for an input: numbers in user order, a tensor, or a batch of a device
 * dataset. */
typedef struct Feed {
    int node;
    Dims dim;
    const float *user;               /* of a seg.array, or NULL */
    const Tensor *memory;            /* of a seg.block, or NULL */
    const DeviceBatch *device_batch; /* a seg.device_batch, or NULL */
} Feed;

/* The value on top of the stack for input `node`. Checks its form only; the
 * planner checks whether the extents suit the network. */
static Feed read_feed(lua_State *L, int node)
{
    const Node *n = &check_graph(L)->node[node];
    Block *b = test_block(L, lua_gettop(L));
    Feed f = {.node = node};

    if (b) {
        if (!b->t.data)
            raise_usage(
                L,
                "input \"%s\": the loader has reused the memory of this block",
                n->name);
        f.dim = b->t.dim;
        f.memory = &b->t;
        return f;
    }

    f.device_batch = test_device_batch(L, lua_gettop(L));
    if (f.device_batch) {
        if (device_batch_session(f.device_batch) != check_session(L, 1))
            raise_usage(L,
                        "input \"%s\": this batch belongs to another session",
                        n->name);
        if (!device_batch_dim(f.device_batch, node, &f.dim))
            raise_usage(L, "input \"%s\": this batch has no samples for it",
                        n->name);
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

/* The table at `arg`, name -> value, as feeds in the order of their nodes; the
 * count. The table keeps the values alive during the call. */
static int read_feeds(lua_State *L, int arg, Feed feed[MAX_FEEDS])
{
    int n = 0;
    const Graph *g = check_graph(L);
    lua_pushnil(L);

    while (next_input(L, arg)) {
        int node = graph_find(g, lua_tostring(L, -2));
        if (node < 0 || g->node[node].kind != NODE_INPUT)
            raise_usage(L, "the network has no input \"%s\"",
                        lua_tostring(L, -2));
        if (n == MAX_FEEDS) raise_usage(L, "more than %d inputs", MAX_FEEDS);
        feed[n++] = read_feed(L, node);
        lua_pop(L, 1);
    }

    // a table has no order; plans are found by a list in order
    for (int i = 1; i < n; i++)
        for (int k = i; k > 0 && feed[k].node < feed[k - 1].node; k--) {
            Feed t = feed[k];
            feed[k] = feed[k - 1];
            feed[k - 1] = t;
        }
    return n;
}

/* Copy the values into the plan. Inputs that it does not need are skipped:
 * prediction needs no target, but may get one. */
static bool copy_in(Session *s, Plan *p, const Feed *feed, int feeds)
{
    const DeviceBatch *device_batch = NULL;
    int node[MAX_FEEDS], nodes = 0; // inputs of `device_batch`

    for (int i = 0; i < feeds; i++) {
        if (!plan_value(p, feed[i].node)) continue;
        if (feed[i].device_batch) {
            if (device_batch && device_batch != feed[i].device_batch)
                return fail_usage(
                    "inputs of two batches on the device; a step takes one");
            device_batch = feed[i].device_batch, node[nodes++] = feed[i].node;
            continue;
        }
        bool ok = feed[i].user
                      ? session_feed(s, p, feed[i].node, feed[i].user)
                      : session_feed_tensor(s, p, feed[i].node, feed[i].memory);
        if (!ok) return false;
    }

    // all inputs of the batch at once
    return !device_batch || device_batch_feed(device_batch, p, node, nodes);
}

/* Choose the plan for these feeds, bind its memory, copy the values in. On
 * failure h->plan may be set, and must not be used. */
static bool prepare(Handle *h, bool train, const Feed *feed, int feeds)
{
    PlanInput input[MAX_FEEDS];
    for (int i = 0; i < feeds; i++)
        input[i] = (PlanInput){feed[i].node, feed[i].dim};
    if (!session_plan(h->s, train, input, feeds, &h->plan) ||
        !session_bind(h->s, h->plan))
        return false;
    const double from = clock_s();
    bool ok = copy_in(h->s, h->plan, feed, feeds);
    h->copy_s += clock_s() - from;
    trace_span(session_traced(h->s), "main", "copy", "copy", -1, from);
    return ok;
}

/* Nodes for kept() must be roots of the current plan; raises otherwise. */
static void check_kept(lua_State *L, Handle *h, const int *keep, int kept)
{
    for (int i = 0; i < kept; i++)
        if (!plan_value(h->plan, keep[i])) {
            h->plan = NULL;
            raise_usage(L, "node \"%s\" is not an output",
                        check_graph(L)->node[keep[i]].name);
        }
}

/* s:forward(inputs, train, keep): runs the network, with dropout and batch
 * statistics when `train`; read() then gives the roots. Raises when the inputs
 * do not fit; read() then has no values. keep = {node, ...}: does not wait, and
 * saves the values of these roots, if any, for kept(). */
static int l_forward(lua_State *L)
{
    Handle *h = check_handle(L, 1);
    Feed feed[MAX_FEEDS];
    int keep[MAX_ROOTS], feeds = read_feeds(L, 2, feed);
    bool train = lua_toboolean(L, 3);
    const bool wait = lua_isnoneornil(L, 4);
    int kept = wait ? 0 : check_nodes(L, 4, keep, MAX_ROOTS);

    h->plan = NULL;
    bool ok = prepare(h, train, feed, feeds);
    if (ok) check_kept(L, h, keep, kept);
    if (!ok || !(wait ? session_run(h->s, h->plan)
                      : session_run_async(h->s, h->plan, keep, kept))) {
        h->plan = NULL;
        return raise_error(L);
    }
    return 0;
}

/* s:kept() -> {array, ...}: the values that forward() and queue() have saved
 * since the last call, in order; waits for them */
static int l_kept(lua_State *L)
{
    Handle *h = check_handle(L, 1);
    Readback *j = session_readback(h->s);
    int count = readback_count(j);

    if (!readback_fetch(j)) {
        readback_clear(j);
        return raise_error(L);
    }
    lua_createtable(L, count, 0);

    for (int i = 0; i < count; i++) {
        const Tensor *t = readback_value(j, i);
        int64_t shape[2 + RANK_MAX];
        int axes = dims_to_user(t->dim, t->rank, shape);
        Array *a = push_array(L, axes, shape);
        tensor_to_user(t, a->data);
        lua_rawseti(L, -2, i + 1);
    }

    readback_clear(j);
    return 1;
}

/* Queue one batch of a step, given by arguments 2 and 3; log: NULL, or for the
 * times of its launches. */
static void queue_part(lua_State *L, Handle *h, LaunchLog *log)
{
    static const char *const known[] = {"lr",    "clip", "first", "last",
                                        "parts", "keep", NULL};
    Feed feed[MAX_FEEDS];
    int keep[MAX_ROOTS], kept = 0;

    check_keys(L, 3, "step", known);
    StepPart part = {
        .first = opt_bool(L, 3, "first", true),
        .last = opt_bool(L, 3, "last", true),
        .parts = (int)opt_int(L, 3, "parts", 1, 1, 1 << 20),
        .lr = opt_number(L, 3, "lr", 0),
        .clip_norm = opt_number(L, 3, "clip", 0),
    };
    int feeds = read_feeds(L, 2, feed);
    if (!lua_isnoneornil(L, 3) && lua_getfield(L, 3, "keep") != LUA_TNIL)
        kept = check_nodes(L, lua_gettop(L), keep, MAX_ROOTS);
    h->plan = NULL;
    bool ok = prepare(h, true, feed, feeds);
    if (ok) check_kept(L, h, keep, kept);
    if (ok &&
        (log ? session_queue_timed(h->s, h->plan, &part, log)
             : session_queue(h->s, h->plan, &part)) &&
        session_readback_add(h->s, h->plan, keep, kept))
        return;
    h->plan = NULL;
    raise_error(L);
}

/* s:hold(inputs) -> the same batch, copied to the device once, as a value for
 * each of its inputs in step() or queue(); nil and the reason where the device
 * keeps none or lacks memory. It stays there until the session is closed. */
static int l_hold(lua_State *L)
{
    check_handle(L, 1);
    Feed feed[MAX_FEEDS];
    HeldInput input[MAX_FEEDS];
    const int feeds = read_feeds(L, 2, feed);
    if (!feeds) raise_usage(L, "a batch without inputs");
    luaL_checkstack(L, MAX_FEEDS + 8, "inputs"); // copies and their owners

    for (int i = 0; i < feeds; i++) {
        if (feed[i].device_batch) raise_usage(L, "this batch is on the device");
        if (feed[i].dim.n != feed[0].dim.n)
            raise_usage(L, "inputs of %d and %d samples", feed[0].dim.n,
                        feed[i].dim.n);
        input[i].node = feed[i].node;
        if (feed[i].memory) {
            input[i].value = *feed[i].memory;
            continue;
        }
        const int rank = check_graph(L)->node[feed[i].node].y.rank;
        Tensor *t = &input[i].value;
        *t = (Tensor){feed[i].dim, F32, rank, NULL};
        // owned by the collector, as later code may raise
        t->data = lua_newuserdatauv(L, tensor_bytes(t), 0);
        tensor_from_user(feed[i].user, t);
    }
    return push_held(L, 1, input, feeds);
}

/* Push the oldest result: loss, gradient norm, applied, overflow; nothing when
 * there is none (yet). */
static int push_result(lua_State *L, Handle *h, bool wait)
{
    StepResult r;
    bool got;
    if (!session_collect(h->s, wait, &r, &got)) {
        h->plan = NULL;
        return raise_error(L);
    }
    if (!got) return 0;
    lua_pushnumber(L, r.loss);
    lua_pushnumber(L, r.grad_norm);
    lua_pushboolean(L, r.applied);
    lua_pushboolean(L, r.overflow);
    return 4;
}

/* s:queue(inputs, {lr=, clip=0, first=true, last=true, parts=1, keep={}})
 * Starts one batch forward and backward; it may still run on return. `first`
 * clears the gradients, `last` updates by their mean over `parts` batches; clip
 * = 0 does not clip. collect() returns the results in order; at most ahead + 1
 * of them (see facts) may be uncollected. keep: roots whose values are saved
 * for kept(). */
static int l_queue(lua_State *L)
{
    Handle *h = check_handle(L, 1);
    if (session_under_way(h->s) > session_ahead(h->s))
        raise_usage(L, "%d steps are under way: collect one before the next",
                    session_under_way(h->s));
    queue_part(L, h, NULL);
    return 0;
}

/* s:launch_times(inputs, options) -> { {name=, kind=, launch=, backward=,
 * copied=, from=, to=}, ... }: queues a batch like queue(), waits for it, and
 * gives each kernel and copy on the device with its time in milliseconds since
 * the first; name and kind of its layer, "" and "begin" or "update" without
 * one. After a step of these extents; not for ranks. collect() as usual. */
static int l_launch_times(lua_State *L)
{
    Handle *h = check_handle(L, 1);
    LaunchLog log = {0}; // a failure, which raises, leaks it: it ends the run
    queue_part(L, h, &log);
    lua_createtable(L, log.launches, 0);
    for (int i = 0; i < log.launches; i++) {
        const Launch *l = &log.launch[i];
        push_launch(L, l, &log.part[l->part]);
        set_number(L, "from", l->from_ms);
        set_number(L, "to", l->to_ms);
        lua_rawseti(L, -2, i + 1);
    }
    launch_log_free(&log);
    return 1;
}

/* s:collect(wait) -> loss, gradient norm, applied, overflow of the oldest
 * queued batch; nothing when there is none, or it is not done and `wait` is
 * false. The loss is from before the update. applied: false for batches that
 * are not the last of a step, and when the loss or the norm of the summed
 * gradient is not finite; the parameters are then unchanged. overflow: not
 * applied because the loss scale was too large; the next step has a smaller
 * one. */
static int l_collect(lua_State *L)
{
    return push_result(L, check_handle(L, 1), lua_toboolean(L, 2));
}

/* s:step(inputs, options) -> as collect(): queues one batch and waits for it */
static int l_step(lua_State *L)
{
    Handle *h = check_handle(L, 1);
    if (session_under_way(h->s))
        raise_usage(L, "%d steps are under way: collect them first",
                    session_under_way(h->s));
    queue_part(L, h, NULL);
    return push_result(L, h, true);
}

/* s:read(node, into = nil) -> array of that root in the last run, which is
 * `into` if that has the shape; raises when the node is no root, or when there
 * was no run */
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
    Array *a = lua_isnoneornil(L, 3) ? NULL : check_array(L, 3);
    bool fits = a && a->axes == axes;
    for (int i = 0; fits && i < axes; i++) fits = a->shape[i] == shape[i];
    if (!fits) a = push_array(L, axes, shape);
    if (!session_read(h->s, h->plan, node, a->data)) return raise_error(L);
    if (fits) lua_pushvalue(L, 3);
    return 1;
}

/* s:blame(inputs, train = true) -> "conv (enc1.conv1, x.lua:12)", the first
 * node with a value that is not finite when the network trains on these inputs,
 * or is evaluated on them, and the contents of that value: {count=, nan=, inf=,
 * sample=, lo=, hi=, from_lo=, from_hi=} as in Blame, sample from 1. Without
 * inputs it takes those of the last run. nil when all values are finite or
 * there was no run. Changes nothing. */
static int l_blame(lua_State *L)
{
    Handle *h = check_handle(L, 1);
    char text[ERR_MAX / 4];
    Blame more;

    if (!lua_isnoneornil(L, 2)) {
        Feed feed[MAX_FEEDS];
        int feeds = read_feeds(L, 2, feed);
        bool train = lua_isnoneornil(L, 3) || lua_toboolean(L, 3);
        if (!prepare(h, train, feed, feeds)) {
            h->plan = NULL;
            return raise_error(L);
        }
    }

    if (!h->plan) return 0;
    if (!session_blame(h->s, h->plan, text, sizeof text, &more))
        return raise_error(L);
    if (!*text) return 0;
    lua_pushstring(L, text);
    lua_createtable(L, 0, 8);
    set_integer(L, "count", more.count);
    set_integer(L, "nan", more.nan);
    set_integer(L, "inf", more.inf);
    if (more.sample >= 0) set_integer(L, "sample", more.sample + 1);
    if (more.lo <= more.hi) {
        set_number(L, "lo", more.lo);
        set_number(L, "hi", more.hi);
    }
    if (more.from_lo <= more.from_hi) {
        set_number(L, "from_lo", more.from_lo);
        set_number(L, "from_hi", more.from_hi);
    }
    return 2;
}

/* s:time(inputs, train) -> { {name=, kind=, backward=, ms=, live=}, ... }, each
 * call of the plan in order, with its milliseconds and the bytes of the arena
 * in use; kind "copy" copies the value `name` to 16 bits; tile: the name of the
 * tile, if any */
static int l_time(lua_State *L)
{
    enum { MAX_CALLS = 4096 };
    Handle *h = check_handle(L, 1);
    Feed feed[MAX_FEEDS];
    int feeds = read_feeds(L, 2, feed), count = 0;
    bool train = lua_toboolean(L, 3);
    PlanTime *time = lua_newuserdatauv(L, MAX_CALLS * sizeof *time, 0);
    PlanRun run = {.backward = train, .seed_grad = 1};
    h->plan = NULL;
    if (!prepare(h, train, feed, feeds) ||
        !plan_time(h->plan, &run, time, MAX_CALLS, &count)) {
        h->plan = NULL;
        return raise_error(L);
    }

    lua_createtable(L, count, 0);
    for (int i = 0; i < count; i++) {
        const Graph *g = check_graph(L);
        lua_createtable(L, 0, 5);
        set_text(L, "name", g->node[time[i].node].name);
        if (time[i].convert)
            set_text(L, "kind", "copy");
        else
            set_kind(L, g, &time[i].ops);
        set_bool(L, "backward", time[i].backward);
        set_number(L, "ms", time[i].ms);
        const Backend *be = session_backend(h->s);
        if (time[i].tile) set_text(L, "tile", be->tile(time[i].tile));
        set_integer(L, "live", (lua_Integer)time[i].live);
        lua_rawseti(L, -2, i + 1);
    }
    return 1;
}

/* s:draw(number): the next runs use the dropout masks of draw `number`, from 0,
 * of this seed */
static int l_draw(lua_State *L)
{
    Session *s = check_session(L, 1);
    StepState state = session_state(s);
    state.count = check_int(L, 2, "number", 0, UINT32_MAX);
    if (!session_set_state(s, &state)) return raise_error(L);
    return 0;
}

/* == facts ============================================================= */

/* s:facts() -> {device=, threads=, count=, ahead=, pool_bytes=, trained=,
 * running=, param_bytes=, snapshot_bytes=, copy_s=, update_s=, transport=}:
 * `transport` is that of the all-reduce between GPUs ("" without one), `count`
 * the updates of all collected steps, `ahead` how many steps are worth queueing
 * ahead, `pool_bytes` the memory that plans share, `param_bytes` parameters
 * with gradients and moments, `snapshot_bytes` the host memory of a snapshot */
static int l_facts(lua_State *L)
{
    Session *s = check_session(L, 1);
    const Params *p = session_params(s);
    Dtype real = session_backend(s)->real;

    lua_createtable(L, 0, 12);
    set_text(L, "transport", session_transport(s));
    set_number(L, "copy_s", check_handle(L, 1)->copy_s);
    set_number(L, "update_s", session_update_s(s));
    set_text(L, "device", session_backend(s)->name);
    const struct {
        const char *key;
        int64_t value;
    } fact[] = {
        {"threads", session_threads(s)},
        {"count", session_state(s).count},
        {"ahead", session_ahead(s)},
        {"pool_bytes", (int64_t)session_pool_bytes(s)},
        {"trained", params_trained(p)},
        {"running", params_running(p)},
        {"param_bytes",
         (int64_t)params_bytes(p, real, p->grad != NULL, p->states) +
             (p->average ? p->total * (int64_t)dtype_bytes(real) : 0)},
        {"snapshot_bytes", (int64_t)snapshot_bytes(p)},
    };
    for (size_t i = 0; i < sizeof fact / sizeof *fact; i++) {
        lua_pushinteger(L, fact[i].value);
        lua_setfield(L, -2, fact[i].key);
    }
    return 1;
}

/* == making ============================================================ */

/* session{roots={node, ...}, loss=, device="auto", threads=0, seed=0, optim=,
 * precision="f32", frozen={name, ...}, draws=false, limit=0, average=false,
 * ranks=false, local_batch_norm=false, allreduce="auto", winograd=true,
 * tiles="", plain=false, step_roots=nil} -> session with parameters drawn from
 * the seed. draws: dropout in evaluation too. Without `optim` it has neither
 * gradients nor moments. limit, average: bytes on the device and whether
 * weights will be averaged, see SessionSpec. ranks: trained by all ranks, each
 * with its shard of a batch (see share). allreduce: its transport between GPUs,
 * see Backend.allreduce_open. winograd: false is Call.no_winograd. tiles: see
 * tile_names.h. plain: no operator is fused with another. step_roots: the roots
 * that step() and queue() leave readable, in addition to the loss; nil: all. */
static int l_session(lua_State *L)
{
    int root[MAX_ROOTS], step_root[MAX_ROOTS];
    Optim optim;
    check_keys(L, 1, "session", session_keys);
    SessionSpec spec = {.graph = check_graph(L),
                        .root = root,
                        .loss = opt_loss(L, 1),
                        .device = opt_device(L, 1, "auto"),
                        .precision = opt_precision(L, 1),
                        .no_winograd = !opt_bool(L, 1, "winograd", true),
                        .tiles = opt_string(L, 1, "tiles", ""),
                        .threads =
                            (int)opt_int(L, 1, "threads", 0, 0, MAX_THREADS)};
    spec.seed = (uint64_t)opt_int(L, 1, "seed", 0, 0, INT64_MAX);
    spec.limit = (size_t)opt_int(L, 1, "limit", 0, 0, INT64_MAX);
    spec.mc_dropout = opt_bool(L, 1, "draws", false);
    spec.no_fusion = opt_bool(L, 1, "plain", false);
    if (opt_bool(L, 1, "ranks", false)) spec.ranks = own_ranks();
    spec.allreduce = opt_string(L, 1, "allreduce", "auto");
    spec.local_batch_norm = opt_bool(L, 1, "local_batch_norm", false);
    spec.averages = opt_bool(L, 1, "average", false);
    spec.roots = read_roots(L, 1, root);
    spec.step_roots = read_step_roots(L, 1, step_root);
    if (spec.step_roots >= 0) spec.step_root = step_root;
    if (read_optim(L, 1, &optim)) spec.optim = &optim;
    Handle *h = new_object(L, "seg.session", sizeof *h);
    if (!session_open(&spec, &h->s) || !read_frozen(L, 1, session_params(h->s)))
        return raise_error(L);
    return 1;
}

void bind_session(lua_State *L)
{
    static const luaL_Reg methods[] = {
        {"forward", l_forward}, {"step", l_step},
        {"queue", l_queue},     {"launch_times", l_launch_times},
        {"hold", l_hold},       {"collect", l_collect},
        {"read", l_read},       {"kept", l_kept},
        {"blame", l_blame},     {"time", l_time},
        {"facts", l_facts},     {"close", session_gc},
        {"draw", l_draw},       {NULL, NULL}};
    static const luaL_Reg functions[] = {{"session", l_session}, {NULL, NULL}};
    new_type(L, "seg.session", methods, session_gc);
    luaL_setfuncs(L, functions, 0);
}
