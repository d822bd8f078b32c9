/* signal.c -- Ctrl-C and other signals: from a signal to an orderly end.
 *
 * There are two ways. A loop that polls stopped(), such as training, saves and
 * ends by itself. All other scripts are interrupted: the handler sets a hook on
 * the Lua thread that runs, and the hook raises "interrupted" at the next
 * instruction. Long work in C checks signal_stopping() instead, as a hook
 * cannot reach it. A second signal from a person ends the program at once. A
 * signal with which a batch system announces the end of a job does not end the
 * program at once, nor does the first signal after it: work would be lost.
 *
 * A hook belongs to one Lua thread, and a coroutine is a thread of its own, so
 * coroutine.resume and coroutine.wrap are replaced here by functions that
 * record which thread runs. A hook set on every thread in advance would also
 * work, but the interpreter pays for a hook with each instruction. The same
 * functions allocate the stack of a coroutine that begins.
 *
 * No hook reaches a function in C: string.find with a pattern that backtracks
 * takes hours, table.move of 2^40 elements days. So PATIENCE_S after a signal a
 * timer checks whether Lua has run any instruction since. If a function of
 * Lua's library runs (or a data function runs one, sandbox.c), the program ends
 * there and then, without saving. The program's own C functions have a few
 * times as long, and in a loop that polls they have no limit: a training step
 * may take minutes and then be saved. A wait for a child process, which gets
 * the signal too, is never cut short. */
#include "engine/base/clock.h"
#include "lua/bind/bind.h"
#include "lua/bind/sandbox.h"
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

/* All signals that ask the program to end. once_more: a second one ends it at
 * once. The others announce an end: USR1 is customary with sbatch --signal, and
 * Grid Engine's -notify sends it before it suspends; -notify sends USR2 before
 * it kills, and LSF at a run limit; XCPU is a limit of processor time, which
 * the kernel repeats every second. */
static const struct Caught {
    int number;
    const char *name; /* for people */
    bool once_more;
} caught[] = {{SIGINT, "Ctrl-C", true},    {SIGTERM, "SIGTERM", true},
              {SIGHUP, "SIGHUP", true},    {SIGUSR1, "SIGUSR1", false},
              {SIGUSR2, "SIGUSR2", false}, {SIGXCPU, "SIGXCPU", false}};

static const struct Caught *find_caught(int number)
{
    size_t i = 0;
    while (caught[i].number != number) i++;
    return &caught[i];
}

// Written by the handler, which may run between any two instructions of the
// main thread; workers see `stopping` only.
static volatile sig_atomic_t stop_signal; // the first one, 0 until it comes
static volatile sig_atomic_t polled;      // a loop calls stopped() itself
static volatile sig_atomic_t insisted;    // the first one with once_more came
static double stop_s;                     // its time; only for the handler
static atomic_bool stopping;              // the same for long work in C
static lua_State *volatile running;       // the thread that runs Lua code
static volatile sig_atomic_t looks;       // times that the timer has checked
static volatile sig_atomic_t heard;       // Lua ran an instruction since
static volatile sig_atomic_t waits;       // for a child with the same signal
static volatile sig_atomic_t over;        // the Lua state is left alone

int signal_caught(void)
{
    return stop_signal;
}

const atomic_bool *signal_stopping(void)
{
    return &stopping;
}

void signal_quit(void)
{
    polled = over = 1;
}

void signal_heard(void)
{
    heard = 1;
}

void signal_waits(bool child)
{
    waits = child;
}

/* Runs at a safe point of the interpreter. Once only: the script may then still
 * close its resources. */
static void stop_hook(lua_State *L, lua_Debug *ar)
{
    (void)ar;
    heard = 1;
    lua_sethook(L, NULL, 0, 0);
    const char *where = push_where(L);
    lua_pushfstring(L, "%s%sinterrupted", where, *where ? ": " : "");
    lua_error(L);
}

/* Interrupt `L` at its next call, return or instruction. May be called from a
 * signal handler: lua_sethook only stores a few words. */
static void interrupt(lua_State *L)
{
    lua_sethook(L, stop_hook, LUA_MASKCALL | LUA_MASKRET | LUA_MASKCOUNT, 1);
}

/* Runs at a safe point of the interpreter, in a loop that polls. */
static void heard_hook(lua_State *L, lua_Debug *ar)
{
    (void)ar;
    heard = 1;
    lua_sethook(L, NULL, 0, 0);
}

/* == functions that no hook reaches ==================================== */

enum {
    PATIENCE_S = 4,
    OWN_LOOKS = 3, // in a C function of this program, which mostly returns
    // upvalues of guarded functions; string.gmatch's iterator is one, too
    GUARDED = 3
};

/* Calls a function of Lua's library, upvalue 1, in the frame of this one, so
 * that names and positions in its errors stay. */
static int l_guarded(lua_State *L)
{
    return lua_tocfunction(L, lua_upvalueindex(1))(L);
}

void signal_guard(lua_State *L)
{
    static const char *const libraries[] = {"string", "table", "utf8"};
    for (size_t i = 0; i < sizeof libraries / sizeof *libraries; i++) {
        lua_getglobal(L, libraries[i]);
        for (lua_pushnil(L); lua_next(L, -2);) {
            if (!lua_iscfunction(L, -1)) {
                lua_pop(L, 1);
                continue;
            }
            for (int k = 1; k < GUARDED; k++) lua_pushnil(L);
            lua_pushcclosure(L, l_guarded, GUARDED);
            lua_pushvalue(L, -2);
            lua_insert(L, -2);
            lua_rawset(L, -4); // replaces an existing key: lua_next goes on
        }
        lua_pop(L, 1);
    }
}

bool signal_in_library(lua_State *L)
{
    lua_Debug ar;
    return lua_getstack(L, 0, &ar) && lua_getinfo(L, "Su", &ar) &&
           *ar.what == 'C' && ar.nups == GUARDED;
}

static void start_timer(void)
{
    const struct itimerval once = {.it_value.tv_sec = PATIENCE_S};
    setitimer(ITIMER_REAL, &once, NULL);
}

/* Runs PATIENCE_S after a signal, and again while a polling loop runs. */
static void on_timer(int number)
{
    static const char note[] =
        "\nsegengine: stopped inside a function of Lua or of a data step that "
        "cannot be interrupted; nothing was saved\n";
    (void)number;
    if (over || (heard && !polled)) return;
    const bool ours = !signal_in_library(running);
    const bool stuck =
        !heard && !waits && (!ours || (!polled && ++looks == OWN_LOOKS));
    if (stuck || sandbox_stuck(false)) {
        const int saved = errno;
        if (write(2, note, sizeof note - 1) < 0) errno = saved;
        _exit(128 + stop_signal);
    }

    if (polled) {
        heard = 0;
        lua_sethook(running, heard_hook, LUA_MASKCALL | LUA_MASKCOUNT, 1);
    }
    start_timer();
}

static const double ECHO_S = 0.1; // shorter than a person's second Ctrl-C

static void on_signal(int number)
{
    static const char note[] =
        "\nstopping as soon as possible; once more ends at once\n";
    const bool may_end = find_caught(number)->once_more;

    // a second signal ends the program, unless it is the first one twice:
    // timeout(1) signals the program and then its group
    if (insisted && may_end) {
        if (clock_s() - stop_s < ECHO_S) return;
        signal(number, SIG_DFL);
        kill(getpid(), number);
        return;
    }

    if (may_end) {
        insisted = number;
        stop_s = clock_s();
    }

    // a signal with once_more after an announcement starts the timer
    const bool first = !stop_signal;
    if (!first && !may_end) return;
    if (first) stop_signal = number;
    atomic_store(&stopping, true);
    int saved = errno;
    if (number == SIGINT && write(2, note, sizeof note - 1) < 0) errno = saved;
    if (over) return;

    // a script that was interrupted already may still close its resources
    if (first || polled) heard = 0;
    (void)sandbox_stuck(true);
    if (!polled && first)
        interrupt(running);
    else if (polled && may_end)
        lua_sethook(running, heard_hook, LUA_MASKCALL | LUA_MASKCOUNT, 1);
    if (may_end) start_timer();
}

/* == coroutines ======================================================== */

/* The thread `next` runs from here on. A signal that came since `before` was
 * read may have interrupted the previous thread only: interrupt this one. */
static void run_thread(lua_State *next, int before)
{
    running = next;
    if (!before && stop_signal && !polled) interrupt(next);
}

/* Has `co` not run anything yet? */
static bool is_new(lua_State *co)
{
    lua_Debug frame;
    return lua_status(co) == LUA_OK && !lua_getstack(co, 0, &frame);
}

/* resume(co, ...): calls Lua's own, upvalue 1, with the same results. */
static int l_resume(lua_State *L)
{
    lua_State *outer = running, *co = lua_tothread(L, 1);
    int before = stop_signal;
    lua_pushvalue(L, lua_upvalueindex(1));
    lua_insert(L, 1);
    if (co && is_new(co)) settle_stack(co, THREAD_SLOTS);
    if (co) run_thread(co, before);
    // it raises only for an argument that is not a coroutine; co is NULL then
    lua_call(L, lua_gettop(L) - 1, LUA_MULTRET);
    if (co) run_thread(outer, before);
    return lua_gettop(L);
}

/* The function that wrap() returned, upvalue 1, with its coroutine, upvalue 2.
 * An error is passed on unchanged: Lua's own would add another position. */
static int l_wrapped(lua_State *L)
{
    lua_State *outer = running;
    int before = stop_signal;
    lua_pushvalue(L, lua_upvalueindex(1));
    lua_insert(L, 1);
    run_thread(lua_tothread(L, lua_upvalueindex(2)), before);
    int failed = lua_pcall(L, lua_gettop(L) - 1, LUA_MULTRET, 0);
    running = outer;
    if (failed) return lua_error(L); // may be the interruption itself
    run_thread(outer, before);
    return lua_gettop(L);
}

/* wrap(f): calls Lua's own, upvalue 1. */
static int l_wrap(lua_State *L)
{
    lua_settop(L, 1);
    lua_pushvalue(L, lua_upvalueindex(1));
    lua_insert(L, 1);
    lua_call(L, 1, 1);

    // the closure of lcorolib.c has the coroutine as its only upvalue
    if (!lua_getupvalue(L, 1, 1) || !lua_isthread(L, 2)) {
        lua_settop(L, 1);
        return 1;
    }
    settle_stack(lua_tothread(L, 2), THREAD_SLOTS);
    lua_pushcclosure(L, l_wrapped, 2);
    return 1;
}

/* Replace coroutine[name] by `f` with the old function as upvalue 1; the table
 * is on top of the stack. */
static void put_in_front(lua_State *L, const char *name, lua_CFunction f)
{
    lua_getfield(L, -1, name);
    lua_pushcclosure(L, f, 1);
    lua_setfield(L, -2, name);
}

/* == Lua =============================================================== */

/* sys.catch_signals(): a loop polls stopped() from here on and ends in order;
 * catch_signals(false): no longer. */
static int l_catch_signals(lua_State *L)
{
    polled = lua_isnone(L, 1) || lua_toboolean(L, 1);
    return 0;
}

/* sys.stopped() -> number and name of the first signal, or nothing */
static int l_stopped(lua_State *L)
{
    if (!stop_signal) return 0;
    lua_pushinteger(L, stop_signal);
    lua_pushstring(L, find_caught(stop_signal)->name);
    return 2;
}

/* sys.signal_name(number) -> its name if it asks the program to end, or nothing
 */
static int l_signal_name(lua_State *L)
{
    const lua_Integer number = luaL_checkinteger(L, 1);
    for (size_t i = 0; i < sizeof caught / sizeof *caught; i++) {
        if (caught[i].number != number) continue;
        lua_pushstring(L, caught[i].name);
        return 1;
    }
    return 0;
}

static void install(void)
{
    struct sigaction timer;
    memset(&timer, 0, sizeof timer);
    timer.sa_handler = on_timer;
    timer.sa_flags = SA_RESTART;
    sigaction(SIGALRM, &timer, NULL);

    for (size_t i = 0; i < sizeof caught / sizeof *caught; i++) {
        struct sigaction old, act;
        memset(&act, 0, sizeof act);
        act.sa_handler = on_signal;
        // a signal that the parent ignores stays ignored, as with nohup
        const int number = caught[i].number;
        if (sigaction(number, NULL, &old) == 0 && old.sa_handler != SIG_IGN)
            sigaction(number, &act, NULL);
    }

    // a closed pipe, or a file at its size limit (ulimit -f): an error of the
    // write, not the end of a training
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
}

void bind_signal(lua_State *L)
{
    static const luaL_Reg functions[] = {{"catch_signals", l_catch_signals},
                                         {"stopped", l_stopped},
                                         {"signal_name", l_signal_name},
                                         {NULL, NULL}};
    running = L;
    lua_getglobal(L, "coroutine");
    put_in_front(L, "resume", l_resume);
    put_in_front(L, "wrap", l_wrap);
    lua_pop(L, 1);
    signal_guard(L);
    install();
    lua_getfield(L, -1, "sys");
    luaL_setfuncs(L, functions, 0);
    lua_pop(L, 1);
}
