/* bind_system.c -- what Lua cannot ask the operating system itself: folders,
 * clocks, the terminal, signals, the machine. */
#include "bind.h"
#include "file.h"
#include "rng.h"
#include "segengine.h"
#include "simd.h"
#include "siphash.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define SEG_ON(flag)  SEG_ON_(flag)
#define SEG_ON_(flag) SEG_ON_##flag
#define SEG_ON_1      "yes"
#define SEG_ON_0      "no"
#ifdef SEG_CUDA
#define CUDA_ON "yes"
#else
#define CUDA_ON "no"
#endif

/* == signals =========================================================== */

static const int caught[] = {SIGINT, SIGTERM, SIGHUP};
static volatile sig_atomic_t stop_signal;
static volatile sig_atomic_t polled; // a loop looks at stop_signal itself
static int64_t stop_ms;              // when; only the handler looks at it
static atomic_bool stopping;         // the same for long work in C
static lua_State *signal_state;

/* Runs at a safe point of the interpreter: ends a script that does not look
 * for signals. */
static void stop_hook(lua_State *L, lua_Debug *ar)
{
    (void)ar;
    lua_sethook(L, NULL, 0, 0);
    const char *where = push_where(L);
    lua_pushfstring(L, "%s%sinterrupted", where, *where ? ": " : "");
    lua_error(L);
}

int system_cut(void)
{
    return stop_signal;
}

const atomic_bool *system_stopping(void)
{
    return &stopping;
}

void system_quit(void)
{
    polled = 1;
}

enum { ECHO_MS = 100 }; // faster than a person's second Ctrl-C

static int64_t clock_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void on_signal(int number)
{
    static const char note[] =
        "\nstopping as soon as possible; once more ends at once\n";
    // the second one means it, unless it is the first one twice: timeout(1)
    // signals the program and then its group
    if (stop_signal) {
        if (clock_ms() - stop_ms < ECHO_MS) return;
        signal(number, SIG_DFL);
        kill(getpid(), number);
        return;
    }
    stop_signal = number;
    stop_ms = clock_ms();
    atomic_store(&stopping, true);
    int saved = errno;
    if (number == SIGINT && write(2, note, sizeof note - 1) < 0) errno = saved;
    if (!polled)
        lua_sethook(signal_state, stop_hook,
                    LUA_MASKCALL | LUA_MASKRET | LUA_MASKCOUNT, 1);
}

/* catch_signals(): from now on a loop polls stopped(). */
static int l_catch_signals(lua_State *L)
{
    polled = lua_isnone(L, 1) || lua_toboolean(L, 1);
    return 0;
}

/* stopped() -> signal number or nil */
static int l_stopped(lua_State *L)
{
    if (!stop_signal) return 0;
    lua_pushinteger(L, stop_signal);
    return 1;
}

static void install(lua_State *L)
{
    signal_state = L;
    for (size_t i = 0; i < sizeof caught / sizeof *caught; i++) {
        struct sigaction old, act;
        memset(&act, 0, sizeof act);
        act.sa_handler = on_signal;
        // nohup and the like: what the parent ignores stays ignored
        if (sigaction(caught[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
            sigaction(caught[i], &act, NULL);
    }
    // a closed pipe, a file that may not grow (ulimit -f): errors of the
    // write, not the end of a training
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
}

/* == files ============================================================= */

static int fail_errno(lua_State *L, const char *path, const char *what)
{
    fail("%s: cannot %s: %s", path, what, strerror(errno));
    return raise_error(L);
}

/* list(path) -> sorted names, without . and .. */
static int l_list(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1);
    DIR **box = new_object(L, "seg.dir", sizeof *box);
    *box = opendir(path);
    if (!*box) return fail_errno(L, path, "list");
    lua_newtable(L);
    struct dirent *e;
    for (lua_Integer i = 1; (e = readdir(*box));) {
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")) continue;
        lua_pushstring(L, e->d_name);
        lua_rawseti(L, -2, i++);
    }
    closedir(*box);
    *box = NULL;
    lua_getglobal(L, "table");
    lua_getfield(L, -1, "sort");
    lua_pushvalue(L, -3);
    lua_call(L, 1, 0);
    lua_pop(L, 1);
    return 1;
}

static int dir_gc(lua_State *L)
{
    DIR **box = luaL_checkudata(L, 1, "seg.dir");
    if (*box) closedir(*box);
    *box = NULL;
    return 0;
}

/* stat(path) -> {kind="file"|"folder"|"other", size=, mtime=} or nil */
static int l_stat(lua_State *L)
{
    struct stat st;
    if (stat(luaL_checkstring(L, 1), &st)) return 0;
    lua_createtable(L, 0, 3);
    lua_pushstring(L, S_ISREG(st.st_mode)   ? "file"
                      : S_ISDIR(st.st_mode) ? "folder"
                                            : "other");
    lua_setfield(L, -2, "kind");
    lua_pushinteger(L, (lua_Integer)st.st_size);
    lua_setfield(L, -2, "size");
    lua_pushinteger(L, (lua_Integer)st.st_mtime);
    lua_setfield(L, -2, "mtime");
    return 1;
}

/* mkdir(path): the folder and those above it */
static int l_mkdir(lua_State *L)
{
    if (!file_mkdirs(luaL_checkstring(L, 1))) return raise_error(L);
    return 0;
}

/* make_new(path) -> true when this call made the folder, false when it was
 * there: how two runs never share a number */
static int l_make_new(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1);
    bool made = mkdir(path, 0777) == 0;
    if (!made && errno != EEXIST) return fail_errno(L, path, "make");
    lua_pushboolean(L, made);
    return 1;
}

static int l_remove(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1);
    if (remove(path) && errno != ENOENT) return fail_errno(L, path, "remove");
    return 0;
}

/* write(path, text, mode): whole file, written aside and renamed; mode 600
 * for what names patients */
static int l_write(lua_State *L)
{
    size_t n;
    const char *path = luaL_checkstring(L, 1);
    const char *text = luaL_checklstring(L, 2, &n);
    int mode = (int)luaL_optinteger(L, 3, 0666);
    const char *tmp = lua_pushfstring(L, "%s.tmp.%d", path, (int)getpid());
    int fd = open(tmp, O_WRONLY | O_CREAT | O_TRUNC, mode);
    if (fd < 0) return fail_errno(L, path, "write");
    size_t done = 0;
    while (done < n) {
        ssize_t k = write(fd, text + done, n - done);
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) break;
        done += (size_t)k;
    }
    int saved = errno;
    bool ok = done == n;
    if (close(fd)) ok = false, saved = errno;
    if (ok && rename(tmp, path) == 0) return 0;
    if (ok) saved = errno;
    unlink(tmp);
    errno = saved;
    return fail_errno(L, path, "write");
}

/* == clocks and the terminal =========================================== */

static int l_clock(lua_State *L)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    lua_pushnumber(L, (double)t.tv_sec + 1e-9 * (double)t.tv_nsec);
    return 1;
}

/* sleep(seconds): less when a signal comes */
static int l_sleep(lua_State *L)
{
    double s = luaL_checknumber(L, 1);
    struct timespec t = {.tv_sec = (time_t)s};
    t.tv_nsec = (long)((s - (double)t.tv_sec) * 1e9);
    nanosleep(&t, NULL);
    return 0;
}

/* cpu_time() -> seconds of processor time of all threads so far */
static int l_cpu_time(lua_State *L)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    lua_pushnumber(L, (double)t.tv_sec + 1e-9 * (double)t.tv_nsec);
    return 1;
}

/* terminal(stdout) -> columns when stderr (or stdout) is one, else nil */
static int l_terminal(lua_State *L)
{
    struct winsize w;
    const char *term = getenv("TERM");
    int fd = lua_toboolean(L, 1) ? 1 : 2;
    if (!isatty(fd) || (term && !strcmp(term, "dumb"))) return 0;
    bool known = ioctl(fd, TIOCGWINSZ, &w) == 0 && w.ws_col > 0;
    lua_pushinteger(L, known ? w.ws_col : 80);
    return 1;
}

/* eprint(text): to stderr, at once */
static int l_eprint(lua_State *L)
{
    size_t n;
    const char *text = luaL_checklstring(L, 1, &n);
    fwrite(text, 1, n, stderr);
    fflush(stderr);
    return 0;
}

/* == the machine ======================================================= */

static void push_cpu_features(lua_State *L)
{
    luaL_Buffer b;
    luaL_buffinit(L, &b);
#if defined(__x86_64__)
    static const char *const blank = " ";
    if (__builtin_cpu_supports("avx2")) luaL_addstring(&b, "avx2");
    if (__builtin_cpu_supports("fma"))
        luaL_addstring(&b, blank), luaL_addstring(&b, "fma");
    if (__builtin_cpu_supports("avx512f"))
        luaL_addstring(&b, blank), luaL_addstring(&b, "avx512f");
#endif
    luaL_pushresult(&b);
}

/* machine() -> {cores=, memory_bytes=, free_bytes=, cpu=, rss_bytes=} */
static int l_machine(lua_State *L)
{
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    lua_createtable(L, 0, 5);
    lua_pushinteger(L, sysconf(_SC_NPROCESSORS_ONLN));
    lua_setfield(L, -2, "cores");
    lua_pushinteger(L, (lua_Integer)pages * page);
    lua_setfield(L, -2, "memory_bytes");
    lua_pushinteger(L, (lua_Integer)use.ru_maxrss * 1024);
    lua_setfield(L, -2, "rss_bytes");
    push_cpu_features(L);
    lua_setfield(L, -2, "cpu");
    return 1;
}

/* disk_free(path) -> bytes an ordinary user may still write where path lies
 * or would lie */
static int l_disk_free(lua_State *L)
{
    uint64_t bytes;
    if (!file_room(luaL_checkstring(L, 1), &bytes)) return raise_error(L);
    lua_pushinteger(L, (lua_Integer)(bytes < INT64_MAX ? bytes : INT64_MAX));
    return 1;
}

static int l_pid(lua_State *L)
{
    lua_pushinteger(L, getpid());
    return 1;
}

/* random(seed, count) -> list of numbers in [0, 1) */
static int l_random(lua_State *L)
{
    Rng r = {.seed = (uint64_t)luaL_checkinteger(L, 1), .stream = RNG_USER};
    lua_Integer n = check_int(L, 2, "count", 0, 1 << 24);
    lua_createtable(L, (int)n, 0);
    for (lua_Integer i = 0; i < n; i++) {
        lua_pushnumber(L, (double)rng_uniform(&r, (uint32_t)i));
        lua_rawseti(L, -2, i + 1);
    }
    return 1;
}

/* entropy() -> 16 bytes that nobody can guess; needs no device file */
static int l_entropy(lua_State *L)
{
    char bytes[16];
    if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
        return fail_errno(L, "random numbers", "get");
    lua_pushlstring(L, bytes, sizeof bytes);
    return 1;
}

/* keyed_hash(16 bytes of secret, text) -> 16 hex digits */
static int l_keyed_hash(lua_State *L)
{
    size_t n, bytes;
    const char *secret = luaL_checklstring(L, 1, &n);
    const char *text = luaL_checklstring(L, 2, &bytes);
    char hex[17];
    luaL_argcheck(L, n == 16, 1, "16 bytes");
    uint64_t h = siphash((const uint8_t *)secret, text, bytes);
    snprintf(hex, sizeof hex, "%016llx", (unsigned long long)h);
    lua_pushstring(L, hex);
    return 1;
}

/* isa() -> name of the vector kernels in use */
static int l_isa(lua_State *L)
{
    if (!simd_check()) return raise_error(L);
    lua_pushstring(L, simd()->name);
    return 1;
}

static int l_default_threads(lua_State *L)
{
    lua_pushinteger(L, backend_cpu.threads(0));
    return 1;
}

/* gpu() -> true and its name, or false and why there is none */
static int l_gpu(lua_State *L)
{
    char why[ERR_MAX];
    const Backend *be;
    int device;
    bool ok = backend_find("auto", &be, &device, why);
    lua_pushboolean(L, ok && !strcmp(be->name, "cuda"));
    lua_pushstring(L, ok && !*why ? be->name : why);
    return 2;
}

/* raise(kind, text): an error of a kind, with the recipe's line in front */
static int l_raise(lua_State *L)
{
    static const char *const names[] = {"failure", "usage",    "data",
                                        "device",  "diverged", NULL};
    int kind = luaL_checkoption(L, 1, "failure", names);
    err_set((ErrKind)(kind + 1), luaL_checkstring(L, 2));
    return raise_error(L);
}

void bind_system(lua_State *L)
{
    static const luaL_Reg none[] = {{NULL, NULL}};
    static const luaL_Reg functions[] = {{"catch_signals", l_catch_signals},
                                         {"stopped", l_stopped},
                                         {"list", l_list},
                                         {"stat", l_stat},
                                         {"mkdir", l_mkdir},
                                         {"make_new", l_make_new},
                                         {"remove", l_remove},
                                         {"write", l_write},
                                         {"clock", l_clock},
                                         {"sleep", l_sleep},
                                         {"cpu_time", l_cpu_time},
                                         {"terminal", l_terminal},
                                         {"eprint", l_eprint},
                                         {"machine", l_machine},
                                         {"disk_free", l_disk_free},
                                         {"pid", l_pid},
                                         {"raise", l_raise},
                                         {NULL, NULL}};
    static const luaL_Reg facts[] = {{"random", l_random},
                                     {"keyed_hash", l_keyed_hash},
                                     {"entropy", l_entropy},
                                     {"isa", l_isa},
                                     {"default_threads", l_default_threads},
                                     {"gpu", l_gpu},
                                     {NULL, NULL}};
    new_type(L, "seg.dir", none, dir_gc);
    install(L);
    lua_newtable(L);
    luaL_setfuncs(L, functions, 0);
    lua_setfield(L, -2, "sys");
    luaL_setfuncs(L, facts, 0);
    lua_pushliteral(L, SEG_VERSION);
    lua_setfield(L, -2, "version");
    lua_pushliteral(L, "DICOM " SEG_ON(SEG_DICOM) ", CUDA " CUDA_ON);
    lua_setfield(L, -2, "build");
}
