/* system.c -- system calls that Lua's library lacks.
 *
 * core.sys holds folders, files, clocks, the terminal and the machine; core
 * itself gets version, build, kernels, devices and random numbers that are
 * neither weights nor augmentation. The functions are thin wrappers of system
 * calls and engine functions without a state. Paths are bytes, as for the
 * system. Signals are in signal.c. */
#include "cpu/lib/simd.h"
#include "cpu/lib/thread_pool.h"
#include "engine/api/segengine.h"
#include "engine/base/clock.h"
#include "engine/base/file.h"
#include "engine/base/rng.h"
#include "lua/bind/bind.h"
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

#define SEG_ON(flag)  SEG_ON_(flag)
#define SEG_ON_(flag) SEG_ON_##flag
#define SEG_ON_1      "yes"
#define SEG_ON_0      "no"
#ifdef SEG_CUDA
#define CUDA_ON "yes"
#else
#define CUDA_ON "no"
#endif

/* == files ============================================================= */

/* Raise "PATH: cannot WHAT: the system's reason". */
static int fail_errno(lua_State *L, const char *path, const char *what)
{
    fail("%s: cannot %s: %s", path, what, strerror(errno));
    return raise_error(L);
}

/* sys.list(path) -> names in a folder, sorted by bytes, without . and .. */
static int l_list(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1);
    DIR **box = new_object(L, "seg.dir", sizeof *box);
    *box = folder_open(path);
    if (!*box) return raise_error(L);
    lua_newtable(L);
    struct dirent *e;
    for (lua_Integer i = 1; (errno = 0, e = readdir(*box));) {
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")) continue;
        lua_pushstring(L, e->d_name);
        lua_rawseti(L, -2, i++);
    }

    // only errno distinguishes a failure from the end
    if (errno) {
        file_fails(errno, "%s: cannot read folder", path);
        return raise_error(L);
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

/* Closes the folder, also after an error of Lua in l_list. */
static int dir_gc(lua_State *L)
{
    DIR **box = luaL_checkudata(L, 1, "seg.dir");
    if (*box) closedir(*box);
    *box = NULL;
    return 0;
}

/* sys.stat(path) -> {kind="file"|"folder"|"other", size=, mtime=, mtime_ns=,
 * id=}, of the target of a link; nil when the path does not exist or cannot be
 * read. `mtime` is in seconds since 1970, `mtime_ns` in nanoseconds; `id` is
 * the same text for the same file or folder, by whichever path. */
static int l_stat(lua_State *L)
{
    struct stat st;
    if (stat(luaL_checkstring(L, 1), &st)) return 0;
    lua_createtable(L, 0, 5);
    char id[48];
    snprintf(id, sizeof id, "%llx:%llx", (unsigned long long)st.st_dev,
             (unsigned long long)st.st_ino);
    set_text(L, "id", id);
    set_text(L, "kind",
             S_ISREG(st.st_mode)   ? "file"
             : S_ISDIR(st.st_mode) ? "folder"
                                   : "other");
    set_integer(L, "size", (lua_Integer)st.st_size);
    set_integer(L, "mtime", (lua_Integer)st.st_mtime);
    set_integer(L, "mtime_ns",
                (lua_Integer)st.st_mtim.tv_sec * 1000000000 +
                    st.st_mtim.tv_nsec);
    return 1;
}

/* sys.may_write(folder) -> true when files can be made in this folder, or, if
 * it does not exist, in the nearest folder above that does; else false, the
 * folder that was checked, and the reason, such as "Permission denied" */
static int l_may_write(lua_State *L)
{
    char path[4096];
    const char *given = luaL_checkstring(L, 1);
    size_t length = strlen(given);

    if (length >= sizeof path)
        luaL_error(L, "a path has at most %d bytes", (int)sizeof path - 1);
    memcpy(path, *given ? given : ".", *given ? length + 1 : 2);

    for (;;) {
        struct stat st;
        if (stat(path, &st) == 0) {
            bool folder = S_ISDIR(st.st_mode);
            if (folder && access(path, W_OK | X_OK) == 0) break;
            lua_pushboolean(L, false);
            lua_pushstring(L, path);
            lua_pushstring(L, folder ? strerror(errno) : strerror(ENOTDIR));
            return 3;
        }
        // "a/b" is below "a", "/a" below "/", "a" below "."
        char *slash = strrchr(path, '/');
        while (slash && slash > path && slash[-1] == '/') slash--;
        if (slash)
            slash[slash == path] = '\0';
        else
            strcpy(path, ".");
    }

    lua_pushboolean(L, true);
    return 1;
}

/* sys.of_system(name) -> true for the name (without folder) of a file that
 * macOS, Windows or an office program makes by itself (file_of_system) */
static int l_of_system(lua_State *L)
{
    lua_pushboolean(L, file_of_system(luaL_checkstring(L, 1)));
    return 1;
}

/* sys.real(path) -> the absolute path without links, "." and ".."; nil when it
 * does not exist */
static int l_real(lua_State *L)
{
    char *real = realpath(luaL_checkstring(L, 1), NULL);
    lua_pushstring(L, real);
    free(real);
    return 1;
}

/* sys.mkdir(path): makes the folder and its parents; no error when it exists */
static int l_mkdir(lua_State *L)
{
    if (!file_mkdirs(luaL_checkstring(L, 1))) return raise_error(L);
    return 0;
}

/* sys.make_new(path) -> true when this call made the folder, false when it
 * existed: so two runs never get the same number */
static int l_make_new(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1);
    bool made = mkdir(path, 0777) == 0;
    if (!made && errno != EEXIST) return fail_errno(L, path, "make");
    lua_pushboolean(L, made);
    return 1;
}

/* sys.remove(path): a file or an empty folder; no error when it is absent */
static int l_remove(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1);
    if (remove(path) && errno != ENOENT) return fail_errno(L, path, "remove");
    return 0;
}

/* Write a file that only its owner may read, at every moment of writing. */
static bool write_private(const char *path, const char *text, size_t bytes)
{
    struct stat st;
    // an existing file would pass its permissions on
    if (stat(path, &st) == 0 && S_ISREG(st.st_mode) && chmod(path, 0600))
        return fail("cannot write %s: %s", path, strerror(errno));
    // the mask is that of the whole process: a file that another thread makes
    // meanwhile is private too, which is harmless
    mode_t mask = umask(077);
    bool ok = file_replace(path, text, bytes);
    umask(mask);
    return ok;
}

/* sys.write(path, text, private = false): replaces the whole file as in file.h
 * (temporary file, flushed, read back, renamed); `private`: mode 600, for files
 * that name patients. Raises the reason; the previous file is then intact. */
static int l_write(lua_State *L)
{
    size_t n;
    const char *path = luaL_checkstring(L, 1);
    const char *text = luaL_checklstring(L, 2, &n);
    bool ok = lua_toboolean(L, 3) ? write_private(path, text, n)
                                  : file_replace(path, text, n);
    return ok ? 0 : raise_error(L);
}

/* == clocks and the terminal =========================================== */

/* sys.clock() -> seconds since an arbitrary time, monotonic */
static int l_clock(lua_State *L)
{
    lua_pushnumber(L, clock_s());
    return 1;
}

/* sys.sleep(seconds): a signal ends it early */
static int l_sleep(lua_State *L)
{
    double s = luaL_checknumber(L, 1);
    struct timespec t = {.tv_sec = (time_t)s};
    t.tv_nsec = (long)((s - (double)t.tv_sec) * 1e9);
    nanosleep(&t, NULL);
    return 0;
}

/* sys.terminal(stdout = false) -> columns of stderr (or stdout) if that is a
 * terminal, else nil */
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

/* sys.eprint(text): to stderr, unbuffered; a closed stderr is no error */
static int l_eprint(lua_State *L)
{
    size_t n;
    const char *text = luaL_checklstring(L, 1, &n);
    fwrite(text, 1, n, stderr);
    fflush(stderr);
    return 0;
}

/* == this program as a child ============================================ */

static const long LOOK_NS = 10000000; // between two polls of the child

/* sys.again(list of arguments) -> exit code of a second process of this
 * program, for work that needs a Lua state of its own. A signal that asks the
 * program to end is forwarded: a batch system may send it to one process
 * only. */
static int l_again(lua_State *L)
{
    enum { MOST = 32 };
    static char name[] = "segengine";
    char *argv[MOST + 2] = {name};
    int n = 0, status;
    pid_t child;
    luaL_checktype(L, 1, LUA_TTABLE);
    while (n < MOST && lua_rawgeti(L, 1, n + 1) != LUA_TNIL)
        argv[++n] = (char *)luaL_checkstring(L, -1); // the table keeps it alive
    fflush(stdout);
    int e = posix_spawn(&child, "/proc/self/exe", NULL, NULL, argv, environ);
    bool told = false;
    pid_t got = 0;
    signal_waits(true);

    while (!e && !got) {
        // polled: a signal that comes right before a blocking wait would not
        // end that wait
        got = waitpid(child, &status, WNOHANG);
        if (got < 0) e = errno;
        if (got) break;
        if (signal_caught() && !told) told = !kill(child, signal_caught());
        nanosleep(&(struct timespec){.tv_nsec = LOOK_NS}, NULL);
    }

    signal_waits(false);
    if (e) {
        fail("cannot start this program again: %s", strerror(e));
        return raise_error(L);
    }
    lua_pushinteger(L, WIFEXITED(status) ? WEXITSTATUS(status)
                                         : 128 + WTERMSIG(status));
    return 1;
}

/* == the machine ======================================================= */

/* The vector extensions that the kernels use, by Linux's names for them. */
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
    if (__builtin_cpu_supports("avx512bf16"))
        luaL_addstring(&b, blank), luaL_addstring(&b, "avx512_bf16");
#elif defined(__aarch64__)
    luaL_addstring(&b, "asimd"); // every CPU of this architecture has it
#endif
    luaL_pushresult(&b);
}

/* Bytes of memory that this program holds (RSS); 0 where the system does not
 * report it. */
static int64_t bytes_now(long page)
{
    long long all = 0, here = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f) return 0;
    if (fscanf(f, "%lld %lld", &all, &here) != 2) here = 0;
    fclose(f);
    return here * page;
}

/* Its peak resident bytes; getrusage would include the peak of the program that
 * started it. */
static int64_t bytes_most(void)
{
    char line[128];
    long long kib = -1;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && kib < 0 && fgets(line, sizeof line, f))
        if (sscanf(line, "VmHWM: %lld", &kib) != 1) kib = -1;
    if (f) fclose(f);
    if (kib >= 0) return kib * 1024;
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    return (int64_t)use.ru_maxrss * 1024;
}

/* sys.nice(by): lowers the priority of this process and of threads that it
 * starts later, as nice(1) does, by 0 to 19; it cannot be raised again */
static int l_nice(lua_State *L)
{
    int by = (int)check_int(L, 1, "nice", 0, 19);
    if (by <= getpriority(PRIO_PROCESS, 0)) return 0;
    if (setpriority(PRIO_PROCESS, 0, by))
        return fail_errno(L, "--nice", "lower the priority");
    return 0;
}

/* sys.pin(first): pins compute threads that start later to a core each, from
 * number `first` of the cores that this process may use on: see pool_pin */
static int l_pin(lua_State *L)
{
    pool_pin((int)check_int(L, 1, "pin", 0, 1 << 20));
    return 0;
}

/* sys.machine() -> {cores=, all_cores=, memory_bytes=, cpu=, rss_bytes=,
 * now_bytes=}: cores that this process may use, cores that are online; all
 * memory, and peak and present memory of this program */
static int l_machine(lua_State *L)
{
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    lua_createtable(L, 0, 6);
    set_integer(L, "cores", pool_cores());
    set_integer(L, "all_cores", sysconf(_SC_NPROCESSORS_ONLN));
    set_integer(L, "memory_bytes", (lua_Integer)pages * page);
    set_integer(L, "rss_bytes", bytes_most());
    set_integer(L, "now_bytes", bytes_now(page));
    push_cpu_features(L);
    lua_setfield(L, -2, "cpu");
    return 1;
}

/* sys.disk_free(path) -> bytes that an ordinary user may still write on the
 * file system of path, which need not exist */
static int l_disk_free(lua_State *L)
{
    uint64_t bytes;
    if (!file_room(luaL_checkstring(L, 1), &bytes)) return raise_error(L);
    lua_pushinteger(L, (lua_Integer)(bytes < INT64_MAX ? bytes : INT64_MAX));
    return 1;
}

/* core.random(seed, count, sample = 0, op = 0) -> list of numbers in [0, 1),
 * the same for the same seed, sample and op */
static int l_random(lua_State *L)
{
    Rng r = {.seed = (uint64_t)luaL_checkinteger(L, 1), .stream = RNG_USER};
    if (!lua_isnoneornil(L, 3))
        r.sample = (uint32_t)check_int(L, 3, "sample", 0, UINT32_MAX);
    if (!lua_isnoneornil(L, 4))
        r.op = (uint16_t)check_int(L, 4, "op", 0, UINT16_MAX);
    lua_Integer n = check_int(L, 2, "count", 0, 1 << 24);
    lua_createtable(L, (int)n, 0);
    for (lua_Integer i = 0; i < n; i++) {
        lua_pushnumber(L, (double)rng_uniform(&r, (uint32_t)i));
        lua_rawseti(L, -2, i + 1);
    }
    return 1;
}

/* core.entropy() -> 16 unpredictable bytes; needs no device file */
static int l_entropy(lua_State *L)
{
    char bytes[16];
    if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
        return fail_errno(L, "random numbers", "get");
    lua_pushlstring(L, bytes, sizeof bytes);
    return 1;
}

/* core.isa() -> name of the vector kernels in use, and of the bf16 multiply
 * instructions ("AMX tiles"), nil where bf16 is converted to float first;
 * raises (kind usage) when SEG_ISA asks for kernels that the CPU lacks */
static int l_isa(lua_State *L)
{
    if (!simd_check()) return raise_error(L);
    lua_pushstring(L, simd()->name);
    lua_pushstring(L, simd()->pairs ? simd()->pairs->text : NULL);
    return 2;
}

/* core.default_threads() -> compute threads when --threads is 0 */
static int l_default_threads(lua_State *L)
{
    lua_pushinteger(L, backend_cpu.threads(0));
    return 1;
}
/* Kinds of errors, as ErrKind from ERR_FAILURE on. */
static const char *const kinds[] = {"failure", "usage",    "data",
                                    "device",  "diverged", NULL};

/* sys.raise(kind, text, bare = false): raises an error of a kind ("failure",
 * "usage", "data", "device", "diverged"), with the recipe's line in front
 * unless `bare` */
static int l_raise(lua_State *L)
{
    int kind = luaL_checkoption(L, 1, "failure", kinds);
    const char *text = luaL_checkstring(L, 2);
    if (lua_isnoneornil(L, 4))
        err_set((ErrKind)(kind + 1), text);
    else
        fail_memory((ErrKind)(kind + 1),
                    (size_t)check_int(L, 4, "wanted", 1, INT64_MAX),
                    (size_t)check_int(L, 5, "room", 0, INT64_MAX), "%s", text);
    return lua_toboolean(L, 3) ? raise_bare(L) : raise_error(L);
}

/* sys.kind(text) -> the kind of this error if it was raised last, else
 * "failure" */
static int l_kind(lua_State *L)
{
    lua_pushstring(L, kinds[raised_kind(luaL_checkstring(L, 1)) - 1]);
    return 1;
}

void bind_system(lua_State *L)
{
    static const luaL_Reg none[] = {{NULL, NULL}};
    static const luaL_Reg functions[] = {{"list", l_list},
                                         {"stat", l_stat},
                                         {"mkdir", l_mkdir},
                                         {"make_new", l_make_new},
                                         {"may_write", l_may_write},
                                         {"of_system", l_of_system},
                                         {"remove", l_remove},
                                         {"write", l_write},
                                         {"clock", l_clock},
                                         {"sleep", l_sleep},
                                         {"terminal", l_terminal},
                                         {"eprint", l_eprint},
                                         {"machine", l_machine},
                                         {"disk_free", l_disk_free},
                                         {"nice", l_nice},
                                         {"pin", l_pin},
                                         {"again", l_again},
                                         {"raise", l_raise},
                                         {"kind", l_kind},
                                         {"real", l_real},
                                         {NULL, NULL}};
    static const luaL_Reg facts[] = {{"random", l_random},
                                     {"entropy", l_entropy},
                                     {"isa", l_isa},
                                     {"default_threads", l_default_threads},
                                     {NULL, NULL}};

    new_type(L, "seg.dir", none, dir_gc);
    lua_newtable(L);
    luaL_setfuncs(L, functions, 0);
    lua_setfield(L, -2, "sys");
    luaL_setfuncs(L, facts, 0);
    lua_pushliteral(L, SEG_VERSION);
    lua_setfield(L, -2, "version");
    lua_pushliteral(L, "DICOM " SEG_ON(SEG_DICOM) ", TIFF " SEG_ON(
                           SEG_TIFF) ", CUDA " CUDA_ON);
    lua_setfield(L, -2, "build");
}
