/* bind.h -- where C meets Lua: checked arguments, one way to raise.
 *
 * The rules of this room. A binding checks its arguments first (checks may
 * raise; nothing is held yet), then makes the owner, a userdata that is empty
 * but has its metatable, then calls the engine, which never raises, and
 * raises last with nothing in its hands. Bindings do not allocate: whatever
 * must outlive a call lives in a userdata whose __gc and __close release it.
 * No engine code calls back into Lua. */
#ifndef SEG_BIND_H
#define SEG_BIND_H
#include "graph.h"
#include "lauxlib.h"
#include "lua.h"
#include "lualib.h"
#include "session.h"
#include <stdatomic.h>

/* Raise err_text() with the position of the recipe in front; remembers the
 * kind of failure for the exit code. */
int raise_error(lua_State *L);
/* The same with a text of its own, of kind ERR_USAGE. */
int raise_usage(lua_State *L, const char *fmt, ...) ERR_FORMAT(2, 3);
/* Kind of the last raise whose message is `message`; ERR_FAILURE otherwise. */
ErrKind raised_kind(const char *message);

/* "scripts/x.lua:12" of the innermost frame that is not one of ours, pushed
 * on the stack ("" when there is none). */
const char *push_where(lua_State *L);

/* Integer argument or field in lo .. hi, else an error that names it. */
int64_t check_int(lua_State *L, int arg, const char *name, int64_t lo,
                  int64_t hi);
double check_number(lua_State *L, int arg, const char *name);

/* Field of the options table at `arg` (nil or absent: `def`). */
int64_t opt_int(lua_State *L, int arg, const char *key, int64_t def, int64_t lo,
                int64_t hi);
double opt_number(lua_State *L, int arg, const char *key, double def);
bool opt_bool(lua_State *L, int arg, const char *key, bool def);
const char *opt_string(lua_State *L, int arg, const char *key, const char *def);
/* Every key of the table at `arg` is in the NULL-terminated list, else an
 * error that names the nearest. */
void check_keys(lua_State *L, int arg, const char *what,
                const char *const *known);

/* A userdata of `bytes` zero bytes with metatable `type`. */
void *new_object(lua_State *L, const char *type, size_t bytes);
/* Register metatable `type`: methods, and `gc` as __gc and __close. */
void new_type(lua_State *L, const char *type, const luaL_Reg *methods,
              lua_CFunction gc);

/* == the nouns, each in its own file ==================================== */

Graph *check_graph(lua_State *L);      /* the one tape of this state */
int check_node(lua_State *L, int arg); /* seg.node                   */
int opt_node(lua_State *L, int arg);   /* -1 when nil or absent      */
void push_node(lua_State *L, int node);

/* seg.array: numbers in user order, rows of the last axis contiguous. */
typedef struct Array {
    float *data;
    int axes;
    int64_t shape[2 + RANK_MAX + 3];
    int64_t count;
} Array;
enum { MAX_AXES = 2 + RANK_MAX + 3 };
Array *check_array(lua_State *L, int arg);
/* A zeroed array of this shape on the stack. */
Array *push_array(lua_State *L, int axes, const int64_t *shape);

/* seg.block: a dense F32 tensor in memory order, as loaders make them. The
 * memory belongs to `owner` (freed with the block) or to the value kept in
 * user value 1. */
typedef struct Block {
    Tensor t;
    void *owner;
} Block;
Block *test_block(lua_State *L, int arg); /* NULL when it is none */
Block *push_block(lua_State *L);

Session *check_session(lua_State *L, int arg);
struct Pipeline *check_pipeline(lua_State *L, int arg);
const struct Dataset *check_dataset(lua_State *L, int arg);

/* Each adds its functions to the table on top of the stack. */
void bind_array(lua_State *L);
void bind_block(lua_State *L);
void bind_graph(lua_State *L);
void bind_session(lua_State *L);
void bind_checkpoint(lua_State *L);
void bind_data(lua_State *L);
void bind_loader(lua_State *L);
void bind_volume(lua_State *L);
void bind_phantom(lua_State *L);
void bind_picture(lua_State *L);
void bind_system(lua_State *L);

/* The signal that told the program to stop, or 0. */
int system_cut(void);
/* True from that signal on: for long work in C, which then fails. */
const atomic_bool *system_stopping(void);
/* Signals leave the state alone from now on: before it is closed. */
void system_quit(void);
#endif
