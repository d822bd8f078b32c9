/* bind.h -- where C meets Lua: checked arguments, one way to raise.
 *
 * The rules of this room. A binding checks its arguments first (checks may
 * raise; nothing is held yet), then makes the owner, a userdata that is empty
 * but has its metatable, then calls the engine, which never raises, and
 * raises last with nothing in its hands. Bindings do not allocate: whatever
 * must outlive a call lives in a userdata whose __gc and __close release it.
 * No engine code calls back into the state of the recipe; functions that run as
 * data steps have states of their own (sandbox.h). */
#ifndef SEG_BIND_H
#define SEG_BIND_H
#include "cpu/lib/thread_pool.h"
#include "engine/graph/graph.h"
#include "engine/session/session.h"
#include "lauxlib.h"
#include "lua.h"
#include "lua/bind/device_refs.h"
#include "lualib.h"
#include <stdatomic.h>

/* Raise err_text() with the position of the recipe in front; remembers the
 * kind of failure for the exit code. */
int raise_error(lua_State *L);
/* The same without a position: for what the recipe is not to blame for, as a
 * mistake on the command line. */
int raise_bare(lua_State *L);
/* raise_error with a text of its own, of kind ERR_USAGE. */
int raise_usage(lua_State *L, const char *fmt, ...) ERR_FORMAT(2, 3);
/* Kind of the last raise when `message` is its text (and a traceback);
 * ERR_FAILURE for what others raised. */
ErrKind raised_kind(const char *message);
/* The same of its err_wanted(); 0 for what was not for want of memory. */
size_t raised_wanted(const char *message, size_t *room);

/* Give a thread that runs nothing yet a stack of `slots` at once, below which
 * it neither grows nor shrinks. Debian's Lua 5.4.4 (deb12u1, which has the
 * remedy of CVE-2022-33099 but not that of what it broke; no release of Lua is
 * so) loses its place in a .. b .. c when the stack moves during a metamethod,
 * be it for a collection of garbage: an operand becomes nil, or the program
 * ends. The main thread has room for some thousand nested calls, coroutines, of
 * which a script may make many, for some hundred. A state for functions of data
 * (sandbox.h) has no metamethods. */
enum { MAIN_SLOTS = 16384, THREAD_SLOTS = 1024 };
void settle_stack(lua_State *L, int slots);

/* "scripts/x.lua:12" of the innermost frame that is not one of ours, pushed
 * on the stack ("" when there is none). */
const char *push_where(lua_State *L);

/* The argument as a whole number in lo .. hi, or as a number that is not NaN;
 * else an error that calls it `name`. */
int64_t check_int(lua_State *L, int arg, const char *name, int64_t lo,
                  int64_t hi);
double check_number(lua_State *L, int arg, const char *name);

/* Field of the options table at `arg`; `def` when the field or the table is
 * nil. Another type than wanted is an error that names the field. A string
 * lives as long as the table. */
int64_t opt_int(lua_State *L, int arg, const char *key, int64_t def, int64_t lo,
                int64_t hi);
double opt_number(lua_State *L, int arg, const char *key, double def);
bool opt_bool(lua_State *L, int arg, const char *key, bool def);
const char *opt_string(lua_State *L, int arg, const char *key, const char *def);
/* Every key of the table at `arg` is in the NULL-terminated list, else an
 * error that names the nearest. */
void check_keys(lua_State *L, int arg, const char *what,
                const char *const *known);

/* Freeze the parameters that field "frozen" of the options at `arg`, a list of
 * names, names; nil: none. False with a reason instead of raising, as callers
 * hold things; leaves the stack as it was. */
bool read_frozen(lua_State *L, int arg, Params *p);

/* lua_next() over the table of inputs at `arg`, nil pushed before: the next
 * name and value, or false and nothing. Raises when it is no table, or has a
 * key that is no name. */
bool next_input(lua_State *L, int arg);

/* Push field `key` of the table at `arg`, no metamethods; its type. */
int raw_field(lua_State *L, int arg, const char *key);
/* Push a list of extents, of numbers. */
void push_shape(lua_State *L, int axes, const int64_t *shape);
void push_numbers(lua_State *L, int count, const double *v);

/* Push a number of bytes; nil for one that nobody knows, SIZE_MAX. */
void push_bytes(lua_State *L, size_t bytes);

/* Field `key` of the table on top of the stack; a text that is NULL is nil. */
void set_number(lua_State *L, const char *key, double v);
void set_integer(lua_State *L, const char *key, int64_t v);
void set_bool(lua_State *L, const char *key, bool v);
void set_text(lua_State *L, const char *key, const char *v);

/* A userdata of `bytes` zero bytes with metatable `type` on the stack; one
 * user value. Zero must be a state that the type's __gc can meet. */
void *new_object(lua_State *L, const char *type, size_t bytes);
/* Tell the collector that the object made last holds so many bytes outside of
 * Lua. To it a volume is as small as its userdata, and without this hundreds
 * of them would wait for a collection that never seems due. May run __gc of
 * other objects, so nothing may be held. */
void charge_memory(lua_State *L, size_t bytes);
/* Register metatable `type`: methods, and `gc` (or NULL) as __gc and
 * __close. Fields are looked up in the methods unless they have __index. */
void new_type(lua_State *L, const char *type, const luaL_Reg *methods,
              lua_CFunction gc);

/* == the nouns, each in its own file ==================================== */

Trace *opt_trace(lua_State *L, int arg); /* NULL for nil      */
Graph *check_graph(lua_State *L);        /* the one tape of this state */
int check_node(lua_State *L, int arg);   /* seg.node                   */
int opt_node(lua_State *L, int arg);     /* -1 when nil or absent      */
/* The list of at most so many nodes at `arg`; their count. */
int check_nodes(lua_State *L, int arg, int *node, int most);
void push_node(lua_State *L, int node);

/* seg.array: numbers in user order, rows of the last axis contiguous. More
 * axes than a network has, for what .npy files hold. */
enum { MAX_AXES = 2 + RANK_MAX + 3 };
typedef struct Array {
    float *data; /* its own, from mem_alloc        */
    int axes;    /* 0: one number                  */
    int64_t shape[MAX_AXES];
    int64_t count; /* product of shape, at least 1 */
} Array;
Array *check_array(lua_State *L, int arg);
/* A zeroed array of this shape on the stack. */
Array *push_array(lua_State *L, int axes, const int64_t *shape);

/* seg.block: a dense F32 tensor in memory order that shows memory of a loader.
 * t.data is NULL when the loader has taken it back. */
typedef struct Block {
    Tensor t;
} Block;
Block *test_block(lua_State *L, int arg); /* NULL when it is none */
Block *push_block(lua_State *L);

/* seg.drawn: a batch of a data set that lies on the device of a session, by
 * the numbers of its samples. */
typedef struct Drawn Drawn;
Drawn *test_drawn(lua_State *L, int arg); /* NULL when it is none */
/* Extents of the batch for input `node`; false when it has none for it. */
bool drawn_dim(const Drawn *d, int node, Dims *out);
/* The session whose device has it; NULL once that or the data set is closed. */
const Session *drawn_session(const Drawn *d);
/* Make it where these inputs of `plan` are, each of which it has. */
bool drawn_feed(const Drawn *d, const Plan *plan, const int *node, int nodes);
/* One input of a batch, F32 in memory order on the host. */
typedef struct HeldInput {
    int node;
    Tensor value;
} HeldInput;
/* A seg.drawn of this batch, which lies on the device of the session at `arg`
 * until that is closed; or nil and why not, as data.resident has it. */
int push_held(lua_State *L, int arg, const HeldInput *input, int inputs);

Session *check_session(lua_State *L, int arg);
/* Those who have memory on the device of the session at `arg`; they are closed
 * before it is, whatever the collector or s:close() takes first. */
DeviceRef **session_device_refs(lua_State *L, int arg);
enum { MAX_THREADS = POOL_MAX };
enum { MAX_FEEDS = 16, MAX_ROOTS = 64 }; /* inputs, outputs of a network */

/* What core.session and core.plan are told about a network, in a table at
 * `arg`; description.c says more of each. */
extern const char *const session_keys[];
Precision opt_precision(lua_State *L, int arg);
/* "ops" of the table on top: what a call of `node` runs, as {"conv",
 * "batch_norm", "relu"}, and "kind", the same in a line, "conv + batch_norm +
 * relu"; concat, norm and then as of a PlanRow. */
void set_kind(lua_State *L, const Graph *g, int concat, int node, int norm,
              int then);
/* The nodes of the list "roots", fewer than MAX_ROOTS, so that the loss finds
 * room behind them; their count. Likewise step_roots; -1 when absent. */
int read_roots(lua_State *L, int arg, int node[MAX_ROOTS]);
int read_step_roots(lua_State *L, int arg, int node[MAX_ROOTS]);
bool read_optim(lua_State *L, int arg, Optim *o);
int opt_loss(lua_State *L, int arg);

/* A seg.volume without voxels on the stack, to be filled; then charge it. */
struct Volume *push_volume(lua_State *L);
/* The seg.volume at `arg`, which is not closed. */
struct Volume *check_volume(lua_State *L, int arg);
/* Tell the collector how large it is. */
void charge_volume(lua_State *L, const struct Volume *v);
/* Push extents, spacing, axes and origin, and how many channels if several. */
void push_volume_text(lua_State *L, const struct Volume *v);

struct Pipeline *check_pipeline(lua_State *L, int arg);
const struct Dataset *check_dataset(lua_State *L, int arg);

/* Each adds its functions to the table on top of the stack. */
void bind_array(lua_State *L);
void bind_array_file(lua_State *L); /* after bind_array */
void bind_spread(lua_State *L);
void bind_block(lua_State *L);
void bind_graph(lua_State *L);
void bind_session(lua_State *L);
void bind_memory(lua_State *L);   /* after bind_session */
void bind_params(lua_State *L);   /* after bind_session */
void bind_training(lua_State *L); /* after bind_session */
void bind_ranks(lua_State *L);    /* after bind_session */
void bind_plan(lua_State *L);
void bind_trace(lua_State *L); /* after bind_session */
void bind_gpu_monitor(lua_State *L);
void bind_check(lua_State *L);
void bind_checkpoint(lua_State *L);
void bind_model(lua_State *L);
void bind_data(lua_State *L);
void bind_cases(lua_State *L);
void bind_pipeline(lua_State *L);
void bind_origin(lua_State *L);
void bind_split(lua_State *L);
void bind_statistics(lua_State *L);
void bind_loader(lua_State *L);
void bind_device_dataset(lua_State *L);
void bind_volume(lua_State *L);
void bind_measure(lua_State *L);
void bind_kmeans(lua_State *L);
void bind_result(lua_State *L); /* after bind_volume */
void bind_prediction(lua_State *L);
void bind_look(lua_State *L);
void bind_image(lua_State *L);
void bind_table(lua_State *L);
void bind_survey(lua_State *L);
void bind_phantom(lua_State *L);
void bind_picture(lua_State *L);
void bind_system(lua_State *L);
void bind_hash(lua_State *L);
void bind_watch(lua_State *L);
void bind_signal(lua_State *L); /* after bind_system */
void bind_child(lua_State *L);  /* after bind_system */

/* == ranks, in ranks.c ============================================ */

/* The rank that this program is; NULL while it is alone. */
struct Ranks *own_ranks(void);
/* The program ends with this code and reason: tell the other ranks. False when
 * nobody has said it to the user, who should know. */
bool ranks_say(int code, const char *text);
/* The program ends in order. */
void ranks_end(void);

/* == signals, in signal.c ========================================= */

/* The signal that told the program to stop, or 0. */
int signal_caught(void);
/* True from that signal on: for long work in C, which then fails. */
const atomic_bool *signal_stopping(void);
/* From now on, or no longer, the program waits for a child that is told of a
 * signal: however long that takes to end, it is waited for. */
void signal_waits(bool child);
/* A script that runs is being stopped by an error of ours: no hook will be. */
void signal_heard(void);
/* Functions of Lua's library in this state: from now on signal_in_library says
 * whether one of them runs. Reads a few words only, so a signal handler may
 * ask, also of another thread's state that runs nothing else meanwhile. */
void signal_guard(lua_State *L);
bool signal_in_library(lua_State *L);
/* Signals leave the Lua state alone from now on: before it is closed. */
void signal_quit(void);
#endif
