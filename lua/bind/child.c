/* child.c -- a run of this program as a child process.
 *
 * The runs of an experiment (folds, seeds, trials of a search) are processes of
 * their own: each begins with an empty Lua state, as if started by hand, and a
 * run that fails does not affect the others. The parent waits. It forwards a
 * signal to the child, which saves and ends. A parent that is killed takes its
 * child along, so that no orphan keeps training in a folder that the next start
 * needs. */
#include "lua/bind/bind.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOST_WORDS = 512 };

static const long LOOK_NS = 10 * 1000 * 1000; // between two polls of the child

/* In the child, between fork and exec: async-signal-safe calls only. */
static void become(char *const *argv, int log, pid_t parent)
{
#ifdef __linux__
    prctl(PR_SET_PDEATHSIG, SIGTERM);
#endif
    if (getppid() != parent) _exit(128 + SIGTERM); // the parent has died
    // standard output is for results of the parent; results of the child are in
    // its folder
    const int out = log >= 0 ? log : open("/dev/null", O_WRONLY);
    if (out < 0 || dup2(out, 1) < 0) _exit(127);
    if (log >= 0 && dup2(log, 2) < 0) _exit(127);
    execv("/proc/self/exe", argv);
    _exit(127);
}

/* Wait for the child; forwards the first signal of this program to it. */
static int wait_for(pid_t child)
{
    int status = 0, told = 0;
    signal_waits(true);

    for (;;) {
        pid_t got = waitpid(child, &status, WNOHANG);
        if (got == child) break;
        if (got < 0 && errno != EINTR) {
            signal_waits(false);
            return 127;
        }
        if (signal_caught() && !told) kill(child, told = signal_caught());
        nanosleep(&(struct timespec){.tv_nsec = LOOK_NS}, NULL);
    }

    signal_waits(false);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* sys.child(list of words, path = nil) -> the exit code of this program run
 * with these words, 128 + N where signal N ended it. Its messages go to
 * standard error, its results nowhere; with a path both are appended to that
 * file. */
static int l_child(lua_State *L)
{
    static char name[] = "segengine";
    char *argv[MOST_WORDS + 2] = {name};
    const char *path = luaL_optstring(L, 2, NULL);
    int n = 0, log = -1;

    luaL_checktype(L, 1, LUA_TTABLE);
    lua_Integer words = luaL_len(L, 1);
    if (words > MOST_WORDS) {
        fail_usage("%d words on the command line, at most %d", (int)words,
                   MOST_WORDS);
        return raise_error(L);
    }

    luaL_checkstack(L, MOST_WORDS + 4, NULL);
    while (n < words) {
        lua_rawgeti(L, 1, n + 1);
        argv[++n] = (char *)luaL_checkstring(L, -1); // the table keeps it alive
    }
    if (path) log = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (path && log < 0) {
        fail("%s: cannot write: %s", path, strerror(errno));
        return raise_error(L);
    }
    fflush(NULL); // else both processes would write the buffered output
    const pid_t parent = getpid(), child = fork();
    if (child == 0) become(argv, log, parent);
    const int e = errno;
    if (log >= 0) close(log);
    if (child < 0) {
        fail("cannot start this program again: %s", strerror(e));
        return raise_error(L);
    }
    lua_pushinteger(L, wait_for(child));
    return 1;
}

void bind_child(lua_State *L)
{
    lua_getfield(L, -1, "sys");
    lua_pushcfunction(L, l_child);
    lua_setfield(L, -2, "child");
    lua_pop(L, 1);
}
