/* check.c -- the checks of operators on this machine. See check/suite.h. */
#include "engine/check/datacheck.h"
#include "engine/check/node.h"
#include "engine/check/suite.h"
#include "lua/bind/bind.h"
#include <string.h>

enum { TEXTS = 4096 }; /* bytes kept of failure messages */

/* The first failures, a line each. */
typedef struct Failures {
    char text[TEXTS];
    size_t used;
} Failures;

static void keep(void *ctx, const char *text)
{
    Failures *f = ctx;
    size_t n = strlen(text);
    if (f->used + n + 2 > sizeof f->text) return;
    memcpy(f->text + f->used, text, n);
    f->text[f->used + n] = '\n';
    f->used += n + 1;
}

/* A check on the device named at argument 1 in the precision named at `arg`,
 * which collects failures in *f. */
static OpCheck begin_check(lua_State *L, int arg, Failures *f)
{
    OpCheck k = {.report = keep, .ctx = f};
    f->used = 0;
    if (!backend_find(check_device(L, 1), &k.be, &k.device) ||
        !precision_find(luaL_checkstring(L, arg), &k.precision))
        raise_error(L);
    backend_target(k.be, k.device, 0);
    if (!backend_takes(k.be, k.precision)) raise_error(L);
    return k;
}

/* core.precisions(device, only) -> list of { name =, unit = } of the precisions
 * that it has, unit the relative rounding error; with a name that precision
 * only, and raises where the device lacks it. Opens no device. */
static int l_precisions(lua_State *L)
{
    const char *only = luaL_optstring(L, 2, NULL);
    const Backend *be;
    Precision asked = PRECISION_f32;
    int device, n = 0;

    if (!backend_find(check_device(L, 1), &be, &device) ||
        (only && !precision_find(only, &asked)))
        return raise_error(L);
    backend_target(be, device, 0);
    if (!backend_takes(be, asked)) return raise_error(L);
    lua_newtable(L);

    for (int p = 0; p < PRECISION_COUNT; p++) {
        if (!backend_has(be, (Precision)p) || (only && p != (int)asked))
            continue;
        lua_newtable(L);
        set_text(L, "name", precision_name((Precision)p));
        set_number(L, "unit", precision_unit((Precision)p));
        lua_rawseti(L, -2, ++n);
    }
    return 1;
}

/* { failures = n, worst = largest fraction of the error bound, blur = largest
 * error of approximate algorithms (see opcase.h; 0: none ran), text = the first
 * failures, a line each } on the stack. */
static void push_findings(lua_State *L, const OpCheck *k, const Failures *f)
{
    lua_newtable(L);
    lua_pushinteger(L, k->failures), lua_setfield(L, -2, "failures");
    lua_pushnumber(L, k->worst), lua_setfield(L, -2, "worst");
    lua_pushnumber(L, k->blur), lua_setfield(L, -2, "blur");
    lua_pushlstring(L, f->text, f->used), lua_setfield(L, -2, "text");
}

/* core.suites() -> list of { op = name, note = text or nil }; the number of a
 * suite is its index */
static int l_suites(lua_State *L)
{
    const OpSuite *s;
    lua_newtable(L);
    for (int at = 0; (s = suite_next(&at));) {
        lua_newtable(L);
        set_text(L, "op", op_info[s->op].name);
        if (s->note) lua_pushstring(L, s->note), lua_setfield(L, -2, "note");
        lua_rawseti(L, -2, at);
    }
    return 1;
}

/* core.check(device, i, precision, shares = 1, share = 1) -> findings of suite
 * i on a device ("cpu", "cuda:1"): push_findings, with gradient = cases and
 * agree = cases. In a precision other than f32 an operator without a matrix
 * product is checked on 16-bit tensors only. With `shares` above 1 only share
 * `share` of the draws runs, gradient is 0 and agree the number of these draws;
 * runs that access the same addresses again are left out. Raises when the
 * device or its precision does not exist. */
static int l_check(lua_State *L)
{
    Failures found;
    OpCheck k = begin_check(L, 3, &found);
    int at = (int)check_int(L, 2, "suite", 1, 1 << 20) - 1;
    const OpSuite *s = suite_next(&at);
    if (!s) return raise_usage(L, "there is no suite %d", at);
    k.shares =
        lua_isnoneornil(L, 4) ? 1 : (int)check_int(L, 4, "shares", 1, 1 << 20);
    SuiteSize size = {0};
    if (k.shares > 1) {
        k.share = (int)check_int(L, 5, "share", 1, k.shares) - 1;
        k.once = true;
    } else
        size = suite_size(s, &k);
    suite_run(s, &k);
    if (k.shares > 1) size.agree = k.draws;
    push_findings(L, &k, &found);
    lua_pushinteger(L, size.gradient), lua_setfield(L, -2, "gradient");
    lua_pushinteger(L, size.agree + size.narrow), lua_setfield(L, -2, "agree");
    return 1;
}

/* core.check_data(device) -> the table of push_findings for batches that the
 * device makes (device dataset); `agree` is the number of cases, 0 on a device
 * that makes no batches */
static int l_check_data(lua_State *L)
{
    Failures found;
    lua_settop(L, 1);
    lua_pushliteral(L, "f32");
    OpCheck k = begin_check(L, 2, &found);
    int cases = datacheck_run(&k);
    push_findings(L, &k, &found);
    lua_pushinteger(L, cases), lua_setfield(L, -2, "agree");
    return 1;
}

/* core.nodes(list of outputs) -> the operator nodes that they need, in graph
 * order: { number=, op=, name=, where= } */
static int l_nodes(lua_State *L)
{
    const Graph *g = check_graph(L);
    int root[MAX_ROOTS], roots = check_nodes(L, 1, root, MAX_ROOTS);
    bool *used = lua_newuserdatauv(L, (size_t)g->count + 1, 0);

    graph_ancestors(g, root, roots, used);
    lua_newtable(L);

    for (int i = 0, n = 0; i < g->count; i++) {
        if (!used[i] || g->node[i].kind != NODE_OP) continue;
        lua_newtable(L);
        lua_pushinteger(L, i), lua_setfield(L, -2, "number");
        set_text(L, "op", op_info[g->node[i].attr.op].name);
        lua_pushstring(L, g->node[i].name), lua_setfield(L, -2, "name");
        lua_pushstring(L, g->node[i].where), lua_setfield(L, -2, "where");
        lua_rawseti(L, -2, ++n);
    }
    return 1;
}

/* core.check_node(device, number, full, precision) -> push_findings of one node
 * of core.nodes; full: every element */
static int l_check_node(lua_State *L)
{
    Failures found;
    OpCheck k = begin_check(L, 4, &found);
    const Graph *g = check_graph(L);
    int node = (int)check_int(L, 2, "node", 0, g->count - 1);
    if (g->node[node].kind != NODE_OP)
        return raise_usage(L, "node %d is not an operator", node);
    node_check(g, node, lua_toboolean(L, 3), &k);
    push_findings(L, &k, &found);
    return 1;
}

/* core.tiles(device) -> the names of the tiles that can be chosen for matrix
 * products on the device (engine/plan/tile_names.h); none where there is no
 * choice. Raises when the device does not exist. */
static int l_tiles(lua_State *L)
{
    const char *name;
    const Backend *be;
    int device;
    if (!backend_find(check_device(L, 1), &be, &device)) return raise_error(L);
    lua_newtable(L);
    for (int i = 1; be->tile && (name = be->tile(i)); i++) {
        lua_pushstring(L, name);
        lua_rawseti(L, -2, i);
    }
    return 1;
}

void bind_check(lua_State *L)
{
    static const luaL_Reg functions[] = {
        {"suites", l_suites},         {"check", l_check},
        {"check_data", l_check_data}, {"nodes", l_nodes},
        {"check_node", l_check_node}, {"precisions", l_precisions},
        {"tiles", l_tiles},           {NULL, NULL}};
    luaL_setfuncs(L, functions, 0);

    // core.precisions_known: { f32 = true, ... }
    lua_createtable(L, 0, PRECISION_COUNT);
    for (int p = 0; p < PRECISION_COUNT; p++)
        set_bool(L, precision_name((Precision)p), true);
    lua_setfield(L, -2, "precisions_known");

    // core.precision_names: "f32, tf32, bf16 or f16"
    char names[PRECISION_NAMES];
    set_text(L, "precision_names", precision_names(names));
    set_number(L, "blur", BLUR); // the bound of the findings' blur
}
