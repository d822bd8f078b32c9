/* main.c -- the program: a Lua state, the embedded modules, one script.
 *
 * lua/cli.lua reads the command line; this file has only the parts that Lua
 * cannot do itself: the state, the searcher of `require`, the last handler of
 * errors, the exit code. */
#include "engine/base/thread.h"
#include "lua/bind/bind.h"
#include "lua/bind/embed.h"
#include <errno.h>
#include <fcntl.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The searcher of require "seg" and of embedded modules: "seg.train.fit" is the
 * embedded source of lua/train/fit.lua. Other names are left to the file
 * system. */
static int search_embedded(lua_State *L)
{
    const char *name = luaL_checkstring(L, 1);
    const char *module = strcmp(name, "seg") ? name : "seg.recipe.seg";

    for (const struct EmbeddedLua *e = embedded_lua; e->name; e++) {
        if (strcmp(e->name, module)) continue;
        // '=' marks an embedded chunk: positions in messages skip it
        lua_pushfstring(L, "=[%s]", e->file);
        if (luaL_loadbuffer(L, e->text, e->size, lua_tostring(L, -1)))
            return lua_error(L);
        lua_pushstring(L, name);
        return 2;
    }

    lua_pushfstring(L, "no module \"%s\" inside segengine", name);
    return 1;
}

/* Inserts search_embedded into package.searchers. */
static void add_searcher(lua_State *L)
{
    lua_getglobal(L, "package");
    lua_getfield(L, -1, "searchers");
    // second place: after package.preload, before the file system
    for (lua_Integer i = (lua_Integer)lua_rawlen(L, -1); i >= 2; i--) {
        lua_rawgeti(L, -1, i);
        lua_rawseti(L, -2, i + 1);
    }
    lua_pushcfunction(L, search_embedded);
    lua_rawseti(L, -2, 2);
    lua_pop(L, 2);
}

/* require "seg.core": the table of all C functions. Each bind_*.c adds its
 * functions; functions of a group (data, sys) need its table first. */
static int open_core(lua_State *L)
{
    lua_newtable(L);
    bind_system(L);
    bind_signal(L);
    bind_child(L);
    bind_hash(L);
    bind_watch(L);
    bind_array(L);
    bind_array_file(L);
    bind_spread(L);
    bind_block(L);
    bind_graph(L);
    bind_session(L);
    bind_memory(L);
    bind_params(L);
    bind_training(L);
    bind_ranks(L);
    bind_plan(L);
    bind_trace(L);
    bind_gpu_monitor(L);
    bind_device(L);
    bind_check(L);
    bind_checkpoint(L);
    bind_model(L);
    bind_data(L);
    bind_picture(L);
    bind_measure(L);
    bind_kmeans(L);
    return 1;
}

/* Handler of every uncaught error. Takes the text of an error object; adds the
 * line of the recipe to a Lua error inside an embedded module, which knows only
 * its own line; adds a traceback if SEG_TRACEBACK is set, for authors of
 * modules. */
static int message_handler(lua_State *L)
{
    if (!lua_isstring(L, 1)) {
        if (!luaL_getmetafield(L, 1, "__tostring")) return 1;
        lua_pop(L, 1);
        luaL_tolstring(L, 1, NULL);
    }

    const char *text = lua_tostring(L, -1);
    bool bare = *text == '[' || !strncmp(text, "attempt to ", 11) ||
                !strncmp(text, "bad argument ", 13);
    if (bare) {
        const char *where = push_where(L);
        if (*where) text = lua_pushfstring(L, "%s: %s", where, text);
    }
    if (getenv("SEG_TRACEBACK"))
        luaL_traceback(L, L, text, 1);
    else
        lua_pushstring(L, text);
    return 1;
}

/* Runs all code that may raise in one protected call: passes argc and argv to
 * lua/cli.lua and returns its result, the exit code. */
static int protected_main(lua_State *L)
{
    int argc = (int)lua_tointeger(L, 1);
    char **argv = lua_touserdata(L, 2);
    luaL_openlibs(L);
    luaL_requiref(L, "seg.core", open_core, false);
    lua_pop(L, 1);
    add_searcher(L);
    lua_getglobal(L, "require");
    lua_pushliteral(L, "seg.cli");
    lua_call(L, 1, 1);
    lua_createtable(L, argc, 0);
    for (int i = 0; i < argc; i++) {
        lua_pushstring(L, argv[i]);
        lua_rawseti(L, -2, i);
    }
    lua_call(L, 1, 1);
    return 1;
}

/* After a failure for lack of memory, prints the memory of the plan and ways to
 * reduce it. Fails silently: the error itself was printed already. */
static void explain_memory(lua_State *L, size_t wanted, size_t room,
                           bool device)
{
    int top = lua_gettop(L);
    lua_getglobal(L, "require");
    lua_pushliteral(L, "seg.train.memory");
    if (lua_pcall(L, 1, 1, 0) == LUA_OK) {
        lua_getfield(L, -1, "explain");
        lua_pushinteger(L, (lua_Integer)wanted);
        lua_pushinteger(L, (lua_Integer)room);
        lua_pushboolean(L, device);
        (void)lua_pcall(L, 3, 0, 0);
    }
    lua_settop(L, top);
}

/* Prints the error on top of the stack, the last line of a failed run, and
 * returns the exit code of its kind. */
static int report(lua_State *L)
{
    const char *text = lua_tostring(L, -1);
    int code = (int)raised_kind(text);
    if (!text) text = "the script failed without a message";
    // only one of several ranks prints it, without advice for a single process
    if (ranks_say(code, text)) return code;
    fprintf(stderr, "segengine: %s\n", text);
    size_t room, wanted = raised_wanted(text, &room);
    if (wanted) explain_memory(L, wanted, room, code == ERR_DEVICE);
    return code;
}

/* If a program starts with a closed stdin, stdout or stderr, the first file
 * that it opens would get that number and receive its output. So each is opened
 * in the wrong direction: using it stays an error. */
static void hold_standard_files(void)
{
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF)
            (void)!open("/dev/null", fd ? O_RDONLY : O_WRONLY);
}

/* `| head` closes the pipe when it has read enough, which is no failure. */
static bool stdout_is_pipe(void)
{
    struct stat st;
    return fstat(1, &st) == 0 && S_ISFIFO(st.st_mode);
}

/* Blocks from this size on come from mmap and are returned to the system. By
 * default glibc raises the threshold and keeps larger blocks, and up to 2.37 an
 * aligned block leaves a hole that the next one of its size does not fit into:
 * a program that reads one result after the other would grow without end. */
static void settle_heap(void)
{
#ifdef __GLIBC__
    mallopt(M_MMAP_THRESHOLD, 128 << 10);
#endif
}

typedef struct CommandLine {
    int argc;
    char **argv;
} CommandLine;

/* Runs the program; returns its exit code. */
static int run_program(void *context)
{
    const CommandLine *line = context;
    lua_State *L = luaL_newstate();
    if (!L) {
        fputs("segengine: no memory for Lua\n", stderr);
        return ERR_FAILURE;
    }
    settle_stack(L, MAIN_SLOTS);
    lua_pushcfunction(L, message_handler);
    lua_pushcfunction(L, protected_main);
    lua_pushinteger(L, line->argc);
    lua_pushlightuserdata(L, line->argv);
    int code;

    if (lua_pcall(L, 2, 1, 1) != LUA_OK) {
        code = report(L);
        if (signal_caught()) code = 128 + signal_caught();
    } else {
        code = (int)lua_tointeger(L, -1);
    }

    ranks_end();
    signal_quit();
    lua_close(L);

    // results that did not reach a full disk are a failure too
    int flushed = fflush(stdout) ? errno : 0;
    if ((flushed || ferror(stdout)) && !stdout_is_pipe()) {
        fprintf(stderr, "segengine: standard output: %s\n",
                flushed ? strerror(flushed) : "a part could not be written");
        if (!code) code = ERR_FAILURE;
    }
    return code;
}

int main(int argc, char **argv)
{
    CommandLine line = {argc, argv};
    int code = ERR_FAILURE;
    settle_heap();
    hold_standard_files();
    const int error = thread_with_stack(run_program, &line, &code);
    if (!error) return code;
    fprintf(stderr,
            "segengine: ulimit -s leaves less than the needed %d KiB of stack, "
            "and a thread with such a stack cannot be started: %s; fix: ulimit "
            "-s %d, or a higher ulimit -v or -u\n",
            THREAD_STACK >> 10, strerror(error), THREAD_STACK >> 10);
    return ERR_FAILURE;
}
