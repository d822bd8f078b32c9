/* params.c -- the parameters of a session for Lua: one at a time, or their
 * norms.
 *
 * These are methods of seg.session, like those of session.c. Values are copied
 * in user order in both directions. */
#include "lua/bind/bind.h"
#include <math.h>

/* s:params() -> { {name=, shape=, trained=}, ... } in graph order; running
 * statistics are parameters that are not trained */
static int l_params(lua_State *L)
{
    const Params *p = session_params(check_session(L, 1));
    lua_createtable(L, p->count, 0);

    for (int i = 0; i < p->count; i++) {
        int64_t shape[2 + RANK_MAX];
        int axes = dims_to_user(p->list[i].dim, p->list[i].rank, shape);
        lua_createtable(L, 0, 3);
        set_text(L, "name", p->list[i].name);
        set_bool(L, "trained", p->list[i].trained);
        push_shape(L, axes, shape);
        lua_setfield(L, -2, "shape");
        lua_rawseti(L, -2, i + 1);
    }
    return 1;
}

/* One tensor of a parameter: its value, its gradient, or one of the moments of
 * the optimiser. */
typedef struct Piece {
    Params *p;
    int i;     /* place in the list       */
    int state; /* which moment: m 0, v 1  */
    ParamBlock block;
} Piece;

/* The tensor given by session, name and kind ("value", "grad", "m", "v") at
 * arguments 1 to 3; raises when this session has no such tensor. */
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

/* s:get(name, kind = "value") -> array in user order; gradients without the
 * loss scale */
static int l_get(lua_State *L)
{
    Piece q = check_piece(L);
    const Param *a = &q.p->list[q.i];
    int64_t shape[2 + RANK_MAX], n = numel(a->dim);
    int axes = dims_to_user(a->dim, a->rank, shape);
    double *user = lua_newuserdatauv(L, (size_t)n * sizeof *user, 0);
    Array *out = push_array(L, axes, shape);
    if (!params_read(q.p, q.i, q.block, q.state, user)) return raise_error(L);
    double by =
        q.block == PARAM_GRAD ? session_grad_scale(check_session(L, 1)) : 1;
    for (int64_t i = 0; i < n; i++) out->data[i] = (float)(user[i] / by);
    return 1;
}

/* s:set(name, kind, array): as many numbers as the parameter has, in user
 * order; the shape of the array is ignored */
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

/* s:blend(name, from, keep): parameter `name` becomes keep times itself plus
 * 1 - keep times that of the session `from`, computed in double on the host;
 * keep 0 copies it. */
static int l_blend(lua_State *L)
{
    Params *p = session_params(check_session(L, 1));
    const char *name = luaL_checkstring(L, 2);
    Params *q = session_params(check_session(L, 3));
    const double keep = check_number(L, 4, "keep");
    const int i = params_find(p, name), k = params_find(q, name);
    if (i < 0 || k < 0)
        raise_usage(L, "%s network has no parameter \"%s\"",
                    i < 0 ? "the" : "the other", name);
    if (!dims_equal(p->list[i].dim, q->list[k].dim))
        raise_usage(
            L, "parameter \"%s\" has another shape in the other network", name);
    const size_t n = (size_t)numel(p->list[i].dim);
    double *own = lua_newuserdatauv(L, n * sizeof *own, 0);
    double *from = lua_newuserdatauv(L, n * sizeof *from, 0);
    if (!params_read(p, i, PARAM_VALUE, 0, own) ||
        !params_read(q, k, PARAM_VALUE, 0, from))
        return raise_error(L);
    for (size_t at = 0; at < n && keep != 0; at++)
        from[at] = keep * own[at] + (1 - keep) * from[at];
    if (!params_write(p, i, PARAM_VALUE, 0, from)) return raise_error(L);
    return 0;
}

/* The root of the sum of squares of n numbers, each divided by `by`. */
static double norm_of(const double *v, int64_t n, double by)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += v[i] / by * (v[i] / by);
    return sqrt(sum);
}

/* s:param_norms() -> { {name=, value=, grad=}, ... } of the trained parameters
 * in graph order: the norms of each and of its gradient in the last step,
 * without the loss scale. Waits for the device. */
static int l_norms(lua_State *L)
{
    Session *s = check_session(L, 1);
    Params *p = session_params(s);
    double by = session_grad_scale(s);
    int64_t most = 1;

    if (!p->grad) raise_usage(L, "this session has no gradients");
    for (int i = 0; i < p->count; i++)
        if (numel(p->list[i].dim) > most) most = numel(p->list[i].dim);
    double *user = lua_newuserdatauv(L, (size_t)most * sizeof *user, 0);
    lua_newtable(L);

    for (int i = 0, k = 0; i < p->count; i++) {
        if (!p->list[i].trained) continue;
        int64_t n = numel(p->list[i].dim);
        lua_createtable(L, 0, 3);
        set_text(L, "name", p->list[i].name);
        if (!params_read(p, i, PARAM_VALUE, 0, user)) return raise_error(L);
        set_number(L, "value", norm_of(user, n, 1));
        if (!params_read(p, i, PARAM_GRAD, 0, user)) return raise_error(L);
        set_number(L, "grad", norm_of(user, n, by));
        lua_rawseti(L, -2, ++k);
    }
    return 1;
}

void bind_params(lua_State *L)
{
    static const luaL_Reg methods[] = {
        {"params", l_params}, {"get", l_get},           {"set", l_set},
        {"blend", l_blend},   {"param_norms", l_norms}, {NULL, NULL}};
    new_type(L, "seg.session", methods, NULL);
}
