/* description.c -- reads the options of a Lua table that describe a session, a
 * plan or a list of launches. Each function reads the table at `arg`. */
#include "lua/bind/bind.h"

const char *const session_keys[] = {
    "roots",      "loss",       "device", "threads",
    "seed",       "optim",      "inputs", "frozen",
    "precision",  "draws",      "limit",  "budget",
    "least",      "average",    "ranks",  "local_batch_norm",
    "allreduce",  "winograd",   "tiles",  "plain",
    "capability", "step_roots", NULL};

/* roots = {node, ...}: their count. */
int read_roots(lua_State *L, int arg, int node[MAX_ROOTS])
{
    if (lua_getfield(L, arg, "roots") != LUA_TTABLE)
        raise_usage(L, "roots must be a list of nodes");
    int n = check_nodes(L, lua_gettop(L), node, MAX_ROOTS - 1);
    lua_pop(L, 1);
    return n;
}

/* step_roots = {node, ...}, as in SessionSpec. */
int read_step_roots(lua_State *L, int arg, int node[MAX_ROOTS])
{
    int n = -1;
    if (lua_getfield(L, arg, "step_roots") != LUA_TNIL)
        n = check_nodes(L, lua_gettop(L), node, MAX_ROOTS - 1);
    lua_pop(L, 1);
    return n;
}

/* optim = {kind="adamw", lr=..., decay=..., ...}; false when absent. The keys
 * lr and clip_norm are for the training loop, not for the optimiser. */
bool read_optim(lua_State *L, int arg, Optim *o)
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

/* The node in field "loss", which must be one number; -1 when absent. */
int opt_loss(lua_State *L, int arg)
{
    lua_getfield(L, arg, "loss");
    int loss = opt_node(L, lua_gettop(L));
    lua_pop(L, 1);
    const Graph *g = check_graph(L);
    if (loss >= 0 && g->node[loss].y.rank != RANK_SCALAR) {
        char text[DIMS_TEXT];
        const Tensor *y = &g->node[loss].y;
        raise_usage(L,
                    "the loss must be one number, got a node of shape "
                    "%s; seg.mean(node) makes one",
                    dims_text(y->dim, y->rank, text));
    }
    return loss;
}

/* The name in field "precision"; f32 when absent. The device checks whether it
 * has this precision. */
Precision opt_precision(lua_State *L, int arg)
{
    Precision p;
    if (!precision_find(opt_string(L, arg, "precision", "f32"), &p))
        raise_error(L);
    return p;
}

void set_kind(lua_State *L, const Graph *g, const PlanOps *ops)
{
    char text[PLAN_OPS_TEXT];
    plan_ops_text(g, ops, text);
    lua_createtable(L, ops->count, 0);
    for (int i = 0; i < ops->count; i++) {
        lua_pushstring(L, op_info[g->node[ops->node[i]].attr.op].name);
        lua_rawseti(L, -2, i + 1);
    }
    lua_pushstring(L, text);
    lua_setfield(L, -3, "kind");
    lua_setfield(L, -2, "ops");
}
