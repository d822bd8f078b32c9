/* bind.h -- the boundary of C and Lua: checked arguments, one way to raise.
 *
 * The rules of all bindings. A binding checks its arguments first (a check may
 * raise; nothing is held yet). Then it makes the owner, a userdata that is
 * empty but has its metatable, and calls the engine, which never raises. It
 * raises last, when it holds nothing. Bindings do not allocate: a value that
 * outlives a call is in a userdata, whose __gc and __close release it. No
 * engine code calls back into the Lua state of the recipe; functions that run
 * as data steps have states of their own (sandbox.h). */
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
/* The same without a position: for errors that no line of the recipe causes,
 * such as a mistake on the command line. */
int raise_bare(lua_State *L);
/* raise_error with a text of its own, of kind ERR_USAGE. */
int raise_usage(lua_State *L, const char *fmt, ...) ERR_FORMAT(2, 3);
/* The kind of the last raise when `message` is its text (and a traceback);
 * ERR_FAILURE for errors that were raised elsewhere. */
ErrKind raised_kind(const char *message);
/* Likewise err_wanted() of the last raise; 0 unless memory was missing. */
size_t raised_wanted(const char *message, size_t *room);

/* Give a thread that runs nothing yet a stack of `slots` at once; up to this
 * size the stack is never moved. Debian's Lua 5.4.4 (deb12u1) has the fix of
 * CVE-2022-33099 without the fix of the regression that it caused; no release
 * of Lua has this combination. It loses its place in a .. b .. c when the stack
 * moves during a metamethod, also by a garbage collection: an operand becomes
 * nil, or the program crashes. The main thread has room for some thousand
 * nested calls; coroutines, of which a script may make many, have room for some
 * hundred. A state for functions of data (sandbox.h) has no metamethods. */
enum { MAIN_SLOTS = 16384, THREAD_SLOTS = 1024 };
void settle_stack(lua_State *L, int slots);

/* Pushes "scripts/x.lua:12" of the innermost frame that runs a script, not an
 * embedded module ("" when there is none). */
const char *push_where(lua_State *L);

/* The argument as a whole number in lo .. hi, or as a number that is not NaN;
 * else an error that calls it `name`. */
int64_t check_int(lua_State *L, int arg, const char *name, int64_t lo,
                  int64_t hi);
double check_number(lua_State *L, int arg, const char *name);

/* Field of the options table at `arg`; `def` when the field or the table is
 * nil. A field of another type is an error that names the field. A string lives
 * as long as the table. */
int64_t opt_int(lua_State *L, int arg, const char *key, int64_t def, int64_t lo,
                int64_t hi);
double opt_number(lua_State *L, int arg, const char *key, double def);
bool opt_bool(lua_State *L, int arg, const char *key, bool def);
const char *opt_string(lua_State *L, int arg, const char *key, const char *def);
/* Raises unless every key of the table at `arg` is in the NULL-terminated list;
 * the error suggests the most similar name. */
void check_keys(lua_State *L, int arg, const char *what,
                const char *const *known);

/* Freeze the parameters in field "frozen" of the options at `arg`, a list of
 * names; nil: none. Fails with a reason instead of raising, as callers hold
 * memory; leaves the Lua stack as it was. */
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

/* Push a number of bytes; nil for SIZE_MAX, an unknown number. */
void push_bytes(lua_State *L, size_t bytes);

/* Field `key` of the table on top of the stack; a text that is NULL is nil. */
void set_number(lua_State *L, const char *key, double v);
void set_integer(lua_State *L, const char *key, int64_t v);
void set_bool(lua_State *L, const char *key, bool v);
void set_text(lua_State *L, const char *key, const char *v);

/* A userdata of `bytes` zero bytes with metatable `type` on the stack; one user
 * value. The __gc of the type must accept a zeroed object. */
void *new_object(lua_State *L, const char *type, size_t bytes);
/* Tell the collector that the newest object holds so many bytes outside of Lua.
 * Lua counts only the userdata of a volume; without this call it would collect
 * hundreds of volumes far too late. May run __gc of other objects, so the
 * caller must hold nothing. */
void charge_memory(lua_State *L, size_t bytes);
/* Register metatable `type`: methods, and `gc` (or NULL) as __gc and
 * __close. Fields are looked up in the methods unless they have __index. */
void new_type(lua_State *L, const char *type, const luaL_Reg *methods,
              lua_CFunction gc);

/* == the types, each in its own file ==================================== */

Trace *opt_trace(lua_State *L, int arg); /* NULL for nil      */
Graph *check_graph(lua_State *L);        /* the only graph of this state   */
int check_node(lua_State *L, int arg);   /* seg.node                   */
int opt_node(lua_State *L, int arg);     /* -1 when nil or absent      */
/* The list of at most so many nodes at `arg`; their count. */
int check_nodes(lua_State *L, int arg, int *node, int most);
void push_node(lua_State *L, int node);

/* seg.array: numbers in user order, rows of the last axis contiguous. It has
 * room for more axes than a tensor of a network, as .npy files have them. */
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

/* seg.block: a dense F32 tensor in memory order that points into memory of a
 * loader. t.data is NULL once the loader has reused that memory. */
typedef struct Block {
    Tensor t;
} Block;
Block *test_block(lua_State *L, int arg); /* NULL when it is none */
Block *push_block(lua_State *L);

/* seg.device_batch: a batch of a device dataset, given by the numbers of its
 * samples; the device makes it. */
typedef struct DeviceBatch DeviceBatch;
DeviceBatch *test_device_batch(lua_State *L,
                               int arg); /* NULL when it is none */
/* Extents of the batch for input `node`; false when the batch lacks it. */
bool device_batch_dim(const DeviceBatch *d, int node, Dims *out);
/* The session whose device holds the batch; NULL once the session or the device
 * dataset is closed. */
const Session *device_batch_session(const DeviceBatch *d);
/* Write the batch into these inputs of `plan`; the batch has each of them. */
bool device_batch_feed(const DeviceBatch *d, const Plan *plan, const int *node,
                       int nodes);
/* One input of a batch, F32 in memory order on the host. */
typedef struct HeldInput {
    int node;
    Tensor value;
} HeldInput;
/* A seg.device_batch of this batch, which stays on the device of the session at
 * `arg` until that session is closed; or nil and the reason, as from
 * data.device_dataset. */
int push_held(lua_State *L, int arg, const HeldInput *input, int inputs);

/* A table { name=, kind=, backward=, launch=, copied= } of a launch of this
 * call: name and kind of its layer ("" and "begin" or "update" without one),
 * the name of the kernel or copy, the bytes of a copy. */
void push_launch(lua_State *L, const Launch *l, const LaunchPart *part);

Session *check_session(lua_State *L, int arg);
/* The list of objects that hold memory on the device of the session at `arg`.
 * They are closed before the session is, in whatever order the collector or
 * s:close() takes them. */
DeviceRef **session_device_refs(lua_State *L, int arg);
enum { MAX_THREADS = POOL_MAX };
enum { MAX_FEEDS = 16, MAX_ROOTS = 64 }; /* inputs, outputs of a network */

/* Keys of the table that describes a network to core.session and core.plan;
 * description.c documents each. */
extern const char *const session_keys[];
Precision opt_precision(lua_State *L, int arg);
/* The text of a device at `arg`, or in field "device" of the options there
 * (`def` when absent), for backend_find: "auto" becomes the device that it
 * stands for, in f32, or in the precision of the options; it is pushed. */
const char *check_device(lua_State *L, int arg);
const char *opt_device(lua_State *L, int arg, const char *def);
/* "ops" of the table on top: the operators that a call runs, as {"conv",
 * "batch_norm", "relu"}, and "kind", plan_ops_text. */
void set_kind(lua_State *L, const Graph *g, const PlanOps *ops);
/* The nodes of the list "roots", fewer than MAX_ROOTS, so that the loss can be
 * appended; their count. Likewise step_roots; -1 when absent. */
int read_roots(lua_State *L, int arg, int node[MAX_ROOTS]);
int read_step_roots(lua_State *L, int arg, int node[MAX_ROOTS]);
bool read_optim(lua_State *L, int arg, Optim *o);
int opt_loss(lua_State *L, int arg);

/* An empty seg.volume on the stack; the caller fills it, then charges it. */
struct Volume *push_volume(lua_State *L);
/* The seg.volume at `arg`, or an error when it is closed. */
struct Volume *check_volume(lua_State *L, int arg);
/* Tell the collector the size of its voxels. */
void charge_volume(lua_State *L, const struct Volume *v);
/* Push extents, spacing, axes and origin as text, with channels if several. */
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
void bind_device(lua_State *L);
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

/* This process as a rank; NULL while it runs alone. */
struct Ranks *own_ranks(void);
/* The program ends with this code and reason: inform the other ranks. False
 * when no rank has printed the reason, so that this one has to. */
bool ranks_say(int code, const char *text);
/* The program ends in order. */
void ranks_end(void);

/* == signals, in signal.c ========================================= */

/* The signal that asked the program to stop, or 0. */
int signal_caught(void);
/* True from that signal on: for long work in C, which then fails. */
const atomic_bool *signal_stopping(void);
/* true: the program waits for a child process that receives the signal too, and
 * does not end before it, however long that takes; false: no longer. */
void signal_waits(bool child);
/* An error of the program stops the running script already, so the signal needs
 * no hook. */
void signal_heard(void);
/* Remember the functions of Lua's library in this state; signal_in_library()
 * then says whether one of them runs. It reads a few words only, so a signal
 * handler may ask, also about the state of another thread that runs nothing
 * else meanwhile. */
void signal_guard(lua_State *L);
bool signal_in_library(lua_State *L);
/* From here on signals leave the Lua state alone: call it before lua_close. */
void signal_quit(void);
#endif
