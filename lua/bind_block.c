/* bind_block.c -- seg.block: a tensor in memory order, as loaders make it and
 * sessions take it; array() gives its numbers in user order. */
#include "bind.h"

Block *test_block(lua_State *L, int arg)
{
    return luaL_testudata(L, arg, "seg.block");
}

Block *push_block(lua_State *L)
{
    return new_object(L, "seg.block", sizeof(Block));
}

static int block_gc(lua_State *L)
{
    Block *b = luaL_checkudata(L, 1, "seg.block");
    mem_free(b->owner);
    b->owner = NULL;
    b->t.data = NULL;
    return 0;
}

/* block:array() -> the same numbers in user order */
static int block_array(lua_State *L)
{
    Block *b = luaL_checkudata(L, 1, "seg.block");
    int64_t shape[2 + RANK_MAX];
    if (!b->t.data) raise_usage(L, "this block is no longer there");
    int axes = dims_to_user(b->t.dim, b->t.rank, shape);
    Array *a = push_array(L, axes, shape);
    tensor_to_user(&b->t, a->data);
    return 1;
}

static int block_shape(lua_State *L)
{
    Block *b = luaL_checkudata(L, 1, "seg.block");
    int64_t shape[2 + RANK_MAX];
    int axes = dims_to_user(b->t.dim, b->t.rank, shape);
    lua_createtable(L, axes, 0);
    for (int i = 0; i < axes; i++) {
        lua_pushinteger(L, shape[i]);
        lua_rawseti(L, -2, i + 1);
    }
    return 1;
}

void bind_block(lua_State *L)
{
    static const luaL_Reg block[] = {
        {"array", block_array}, {"shape", block_shape}, {NULL, NULL}};
    new_type(L, "seg.block", block, block_gc);
}
