/* block.c -- seg.block: a tensor in memory order, made by loaders and read by
 * sessions; array() gives its numbers in user order.
 *
 * A block avoids the two conversions between a loader and a session. Blocks of
 * a batch point into the loader's ring buffer, whose memory the next batch
 * reuses: the loader then sets t.data to NULL, and every user of a block checks
 * that first. */
#include "lua/bind/bind.h"

Block *test_block(lua_State *L, int arg)
{
    return luaL_testudata(L, arg, "seg.block");
}

Block *push_block(lua_State *L)
{
    return new_object(L, "seg.block", sizeof(Block));
}

/* block:array() -> an array, the same numbers in user order; raises when the
 * loader has reused the memory */
static int block_array(lua_State *L)
{
    Block *b = luaL_checkudata(L, 1, "seg.block");
    int64_t shape[2 + RANK_MAX];
    if (!b->t.data)
        raise_usage(L, "the loader has reused the memory of this block");
    int axes = dims_to_user(b->t.dim, b->t.rank, shape);
    Array *a = push_array(L, axes, shape);
    tensor_to_user(&b->t, a->data);
    return 1;
}

/* block:shape() -> {n, c, [d], [h], w}; known also without the memory */
static int block_shape(lua_State *L)
{
    Block *b = luaL_checkudata(L, 1, "seg.block");
    int64_t shape[2 + RANK_MAX];
    int axes = dims_to_user(b->t.dim, b->t.rank, shape);
    push_shape(L, axes, shape);
    return 1;
}

void bind_block(lua_State *L)
{
    static const luaL_Reg block[] = {
        {"array", block_array}, {"shape", block_shape}, {NULL, NULL}};
    new_type(L, "seg.block", block, NULL);
}
