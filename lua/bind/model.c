/* model.c -- weights with their own network, as a Lua object.
 *
 * The C interface (engine/api/segengine.h) for scripts: a model that is opened
 * here has a graph of its own, so its names cannot collide with the script's
 * network, and any number of models may be open. */
#include "engine/api/segengine.h"
#include "lua/bind/bind.h"

static seg_model *check_model(lua_State *L, int arg)
{
    return *(seg_model **)luaL_checkudata(L, arg, "seg.opened");
}

static int model_gc(lua_State *L)
{
    seg_model **box = luaL_checkudata(L, 1, "seg.opened");
    seg_close(*box);
    *box = NULL;
    return 0;
}

/* open(path, device, threads) -> model; raises errors of the file */
static int l_open(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1);
    const char *device = luaL_checkstring(L, 2);
    int threads = (int)check_int(L, 3, "threads", 0, MAX_THREADS);
    seg_model **box = new_object(L, "seg.opened", sizeof *box);
    *box = seg_open(path, device, threads);
    return *box ? 1 : raise_error(L);
}

typedef int Lister(const seg_model *m, seg_tensor *out, int max);

/* Push {name = {extents of one sample}} of the tensors from `list`. */
static int push_tensors(lua_State *L, Lister *list)
{
    seg_tensor t[MAX_ROOTS];
    int n = list(check_model(L, 1), t, MAX_ROOTS);
    lua_createtable(L, 0, n);

    for (int i = 0; i < n; i++) {
        lua_createtable(L, t[i].axes, 0);
        for (int k = 0; k < t[i].axes; k++) {
            lua_pushinteger(L, t[i].shape[k]);
            lua_rawseti(L, -2, k + 1);
        }
        lua_setfield(L, -2, t[i].name);
    }
    return 1;
}

/* m:inputs() -> {name = {1, c, ...}}; so does m:outputs() */
static int l_inputs(lua_State *L)
{
    return push_tensors(L, seg_inputs);
}

static int l_outputs(lua_State *L)
{
    return push_tensors(L, seg_outputs);
}

/* The table at `arg`, name -> seg.array, as tensors; their number. The table
 * keeps the arrays alive. */
static int read_inputs(lua_State *L, int arg, seg_tensor in[MAX_FEEDS])
{
    int n = 0;
    lua_pushnil(L);

    while (next_input(L, arg)) {
        Array *a = luaL_testudata(L, -1, "seg.array");
        if (!a || a->axes > SEG_MAX_AXES)
            raise_usage(L,
                        "input \"%s\" must be a seg.array of at most %d "
                        "axes, got %s",
                        lua_tostring(L, -2), SEG_MAX_AXES,
                        luaL_typename(L, -1));
        if (n == MAX_FEEDS) raise_usage(L, "more than %d inputs", MAX_FEEDS);
        in[n] = (seg_tensor){lua_tostring(L, -2), a->axes, {0}, a->data};
        for (int k = 0; k < a->axes; k++) in[n].shape[k] = a->shape[k];
        n++;
        lua_pop(L, 1);
    }
    return n;
}

/* m:run{name = array} -> {name = array} of all outputs: once for their shapes,
 * once for their values */
static int l_run(lua_State *L)
{
    seg_model *m = check_model(L, 1);
    seg_tensor in[MAX_FEEDS], out[MAX_ROOTS];
    int inputs = read_inputs(L, 2, in);
    int outputs = seg_outputs(m, out, MAX_ROOTS);

    if (seg_run(m, in, inputs, out, outputs)) return raise_error(L);
    lua_createtable(L, 0, outputs);
    for (int i = 0; i < outputs; i++) {
        out[i].data = push_array(L, out[i].axes, out[i].shape)->data;
        lua_setfield(L, -2, out[i].name);
    }
    if (seg_run(m, in, inputs, out, outputs)) return raise_error(L);
    return 1;
}

/* m:predict_file(in, out): of a bundle; writes the class numbers of an image
 * file to another file; raises errors of both */
static int l_predict_file(lua_State *L)
{
    seg_model *m = check_model(L, 1);
    const char *in = luaL_checkstring(L, 2), *out = luaL_checkstring(L, 3);
    return seg_predict_file(m, in, out) ? raise_error(L) : 0;
}

void bind_model(lua_State *L)
{
    static const luaL_Reg model[] = {{"inputs", l_inputs},
                                     {"outputs", l_outputs},
                                     {"run", l_run},
                                     {"predict_file", l_predict_file},
                                     {NULL, NULL}};
    new_type(L, "seg.opened", model, model_gc);
    lua_pushcfunction(L, l_open);
    lua_setfield(L, -2, "open");
}
