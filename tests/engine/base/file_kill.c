/* file_kill.c -- saves that are killed, or fail in the system, at any call.
 *
 * A child saves while this process steps it from system call to system call
 * (ptrace) and kills it at the k-th step, or makes the k-th call fail, for
 * every k. In each case the file must be the complete old or new one, and
 * leftovers must be cleaned up. Killing at random instants, as a user does,
 * needs no ptrace and comes last. */
#define _GNU_SOURCE // ptrace
#include "engine/base/file.h"
#include "engine/checkpoint/safetensors.h"
#include "tests/test.h"
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PATHS = 512, UNSTEPPED = 77, CALLS = 1000 };

static bool fill_with(void *ctx, int i, void *out)
{
    memset(out, *(const int *)ctx + i, (size_t)30000);
    return true;
}

/* Saves three tensors of one version, named in the metadata, under these
 * paths. */
static bool save_as(const char *const *path, int paths, int version)
{
    static const StTensor tensor[] = {
        {.name = "a", .type = ST_U8, .axes = 1, .shape = {30000}},
        {.name = "b", .type = ST_U8, .axes = 1, .shape = {30000}},
        {.name = "c", .type = ST_U8, .axes = 1, .shape = {30000}},
    };
    char text[16];
    snprintf(text, sizeof text, "%d", version);
    MetaPair pair = {"version", text};
    return safetensors_save_as(
        path, paths, &(StWrite){tensor, 3, &pair, 1, fill_with, &version});
}

static bool save(const char *path, int version)
{
    return save_as(&path, 1, version);
}

/* Writes FOLDER/n.w.safetensors or b.w.safetensors next to `path`. */
static const char *beside(char *name, const char *path, char which)
{
    snprintf(name, PATHS + 32, "%.*s%c.w.safetensors",
             (int)(path_tail(path) - path), path, which);
    return name;
}

/* Saves n, b and then `path` as one file: the numbered, the best and the last
 * checkpoint of an epoch. */
static bool save_names(const char *path, int version)
{
    char n[PATHS + 32], b[PATHS + 32];
    return save_as(
        (const char *const[]){beside(n, path, 'n'), beside(b, path, 'b'), path},
        3, version);
}

typedef bool SaveFn(const char *path, int version);

/* Returns the version of an intact file; 0: no file, -1: damaged. */
static int version_of(const char *path)
{
    Safetensors f;
    if (access(path, F_OK)) return 0;
    if (!safetensors_open(path, &f)) return -1;
    const char *text = meta_get(&f.meta, "version");
    int version = text && f.crcs && safetensors_verify(&f) ? atoi(text) : -1;
    safetensors_close(&f);
    return version;
}

/* Counts files other than [nb.]w.safetensors in a folder, after a cleanup. */
static int left_over(const char *folder, int *stale)
{
    int count = 0;
    REQUIRE(file_clean(folder, stale));
    DIR *dir = opendir(folder);
    REQUIRE(dir);
    for (struct dirent *e; (e = readdir(dir));) {
        const char *name = strstr(e->d_name, "w.safetensors");
        count += *e->d_name != '.' && !(name && !strcmp(name, "w.safetensors"));
    }
    closedir(dir);
    return count;
}

/* Starts a child that stops before it saves version 2; it exits with 0 on
 * success, 1 after a failure with a reason that names the file, else 3. */
static pid_t start(const char *path, SaveFn *saves)
{
    fflush(stdout);
    pid_t pid = fork();
    REQUIRE(pid >= 0);

    if (!pid) {
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL)) _exit(UNSTEPPED);
        raise(SIGSTOP);
        if (saves(path, 2)) _exit(0);
        _exit(strstr(err_text(), "w.safetensors") ? 1 : 3);
    }

    int status;
    REQUIRE(waitpid(pid, &status, 0) == pid);
    if (WIFEXITED(status)) SKIP("stepping a process (ptrace) is not allowed");

    // marks stops at system calls, and kills the child if this process dies
    long options = PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL;
    REQUIRE(!ptrace(PTRACE_SETOPTIONS, pid, NULL, (void *)options));
    return pid;
}

/* Runs the child to its next stop; false: it ended, with *status. */
static bool step(pid_t pid, int *status)
{
    for (;;) {
        REQUIRE(!ptrace(PTRACE_SYSCALL, pid, NULL, NULL));
        REQUIRE(waitpid(pid, status, 0) == pid);
        if (!WIFSTOPPED(*status)) return false;
        if (WSTOPSIG(*status) == (SIGTRAP | 0x80)) return true;
    }
}

/* Prepares FOLDER/w.safetensors of version 1, or an empty folder. */
static void begin(const char *folder, char *path, bool old, SaveFn *saves)
{
    char name[PATHS + 32];
    REQUIRE(file_mkdirs(folder));
    snprintf(path, PATHS + 16, "%s/w.safetensors", folder);
    unlink(path);
    unlink(beside(name, path, 'n'));
    unlink(beside(name, path, 'b'));
    if (old) REQUIRE(saves(path, 1));
}

/* Each name is complete, and no older than the names after it. */
static void check_names(const char *path, int k, int version, int old)
{
    char name[PATHS + 32];
    const int n = version_of(beside(name, path, 'n'));
    const int b = version_of(beside(name, path, 'b'));
    const bool whole = (n == 2 || n == old) && (b == 2 || b == old);
    if (!whole || n < b || b < version)
        test_failed(__FILE__, __LINE__, "stop %d: versions %d, %d, %d (%s)", k,
                    n, b, version, err_text());
}

static void kill_everywhere(const char *name, bool old, SaveFn *saves)
{
    char folder[PATHS], path[PATHS + 16];
    int seen[3] = {0}, stale_drafts = 0, status = 0;
    snprintf(folder, sizeof folder, "%s/%s", test_folder(), name);
    bool ended = false;

    for (int k = 1; !ended; k++) {
        REQUIRE(k < CALLS);
        begin(folder, path, old, saves);
        pid_t pid = start(path, saves);
        int at = 0;
        while (!ended && at < k) ended = !step(pid, &status), at++;
        if (!ended) {
            kill(pid, SIGKILL);
            REQUIRE(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status));
        }
        int version = version_of(path), stale;
        if (version != 2 && version != old)
            test_failed(__FILE__, __LINE__, "stop %d: version %d (%s)", k,
                        version, err_text());
        else
            seen[version]++;
        if (saves == save_names) check_names(path, k, version, old);
        EXPECT_INT(left_over(folder, &stale), 0);
        stale_drafts += stale;
    }

    EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);

    // the kills came before, within and after the critical calls (their number
    // depends on the allocator; that of a sanitizer has more)
    EXPECT(seen[old] > 20);
    EXPECT(seen[2] > 0);
    EXPECT(stale_drafts > 20);
}

TEST(file_killed_at_every_call)
{
    kill_everywhere("killed_over", true, save);
}

TEST(file_killed_at_every_call_of_the_first)
{
    kill_everywhere("killed_first", false, save);
}

TEST(file_killed_at_every_call_of_names)
{
    kill_everywhere("killed_names", true, save_names);
    kill_everywhere("killed_first_names", false, save_names);
}

#ifdef __x86_64__

// calls that can fail on a disk, a quota or a network file system
static const long fallible[] = {
    SYS_openat, SYS_pwrite64,   SYS_fsync,  SYS_close, SYS_rename, SYS_pread64,
    SYS_fstat,  SYS_newfstatat, SYS_statfs, SYS_flock, SYS_fchmod, SYS_linkat,
};

/* A signal interrupts only calls that wait for the disk. */
static bool is_fallible(long call, int error)
{
    if (error == EINTR)
        return call == SYS_pwrite64 || call == SYS_pread64 || call == SYS_fsync;
    for (size_t i = 0; i < sizeof fallible / sizeof *fallible; i++)
        if (call == fallible[i]) return true;
    return false;
}

/* Runs a save in which the k-th fallible call, and all later ones if `on`,
 * fails with `error` without being made; error 0: it writes half of its data.
 * False if there were fewer than k. *code is the child's exit code. */
static bool failing(const char *path, SaveFn *saves, int k, int error, bool on,
                    int *code)
{
    pid_t pid = start(path, saves);
    struct user_regs_struct r;
    int count = 0, status;

    while (step(pid, &status)) {
        REQUIRE(!ptrace(PTRACE_GETREGS, pid, NULL, &r));
        bool hit = is_fallible((long)r.orig_rax, error) &&
                   (++count == k || (on && count > k));
        if (hit && error) r.orig_rax = (unsigned long long)-1;
        if (hit && !error && r.orig_rax == SYS_pwrite64)
            r.rdx = (r.rdx + 1) / 2;
        if (hit) REQUIRE(!ptrace(PTRACE_SETREGS, pid, NULL, &r));
        if (!step(pid, &status)) break;
        REQUIRE(!ptrace(PTRACE_GETREGS, pid, NULL, &r));
        if (hit && error) r.rax = (unsigned long long)-error;
        if (hit) REQUIRE(!ptrace(PTRACE_SETREGS, pid, NULL, &r));
    }

    *code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    return count >= k;
}

/* The data reaches the disk before the rename, and the folder after it. */
TEST(file_order_of_calls)
{
    char folder[PATHS], path[PATHS + 16], order[64] = "";
    struct user_regs_struct r;
    int status, n = 0;

    snprintf(folder, sizeof folder, "%s/order", test_folder());
    begin(folder, path, true, save);
    pid_t pid = start(path, save);

    while (step(pid, &status)) {
        REQUIRE(!ptrace(PTRACE_GETREGS, pid, NULL, &r));
        char c = r.orig_rax == SYS_pwrite64  ? 'w'
                 : r.orig_rax == SYS_fsync   ? 's'
                 : r.orig_rax == SYS_pread64 ? 'r'
                 : r.orig_rax == SYS_rename  ? 'n'
                                             : 0;
        // a series of equal calls is noted once
        if (c && (!n || order[n - 1] != c) && n < 60) order[n++] = c;
        if (!step(pid, &status)) break;
    }
    EXPECT_TEXT(order, "wsrns");
}

static void fail_everywhere(const char *name, SaveFn *saves)
{
    static const struct {
        int error;
        bool on;
    } rows[] = {{ENOSPC, false},
                {EIO, true},
                {EDQUOT, true},
                {EINTR, false},
                {0, false}};
    char folder[PATHS], path[PATHS + 16];
    snprintf(folder, sizeof folder, "%s/%s", test_folder(), name);

    for (size_t row = 0; row < sizeof rows / sizeof *rows; row++) {
        int codes[2] = {0}, code;
        bool more = true;
        for (int k = 1; more; k++) {
            REQUIRE(k < CALLS);
            begin(folder, path, true, saves);
            more =
                failing(path, saves, k, rows[row].error, rows[row].on, &code);
            REQUIRE(code == 0 || code == 1);
            codes[code]++;
            int version = version_of(path), stale;
            // version 2 with code 1: only the folder could not be synced
            if (version < 1 || (code == 0 && version != 2))
                test_failed(__FILE__, __LINE__,
                            "error %d at call %d: version %d, exit %d",
                            rows[row].error, k, version, code);
            if (saves == save_names) check_names(path, k, version, 1);
            EXPECT_INT(left_over(folder, &stale), 0);
            EXPECT_INT(stale, 0);
        }
        EXPECT(codes[0] >= 1);
        // interruption and partial writes are no failure
        bool harmless = !rows[row].error || rows[row].error == EINTR;
        EXPECT(harmless ? codes[1] == 0 : codes[1] > 5);
    }
}

TEST(file_fails_at_every_call)
{
    fail_everywhere("failed", save);
}

TEST(file_fails_at_every_call_of_names)
{
    fail_everywhere("failed_names", save_names);
}

#endif

TEST(file_killed_at_random)
{
    int rounds = getenv("SEG_SOAK") ? 200 : 20, newest = 0;
    char folder[PATHS], path[PATHS + 16];
    uint32_t state = 12345;

    snprintf(folder, sizeof folder, "%s/random", test_folder());
    begin(folder, path, true, save);

    for (int i = 0; i < rounds; i++) {
        int tell[2], last = 0, done;
        REQUIRE(!pipe(tell));
        fflush(stdout);
        pid_t pid = fork();
        REQUIRE(pid >= 0);
        if (!pid) {
            for (int v = newest + 1; save(path, v); v++)
                if (write(tell[1], &v, sizeof v) != sizeof v) break;
            _exit(1);
        }
        close(tell[1]);
        state = state * 1664525u + 1013904223u;
        nanosleep(&(struct timespec){0, 1000000 + (long)(state >> 8)}, NULL);
        kill(pid, SIGKILL);
        int status, stale;
        REQUIRE(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status));
        while (read(tell[0], &done, sizeof done) == sizeof done) last = done;
        close(tell[0]);
        // a version reported as saved is there, or a later one
        int version = version_of(path);
        EXPECT(version >= last && version >= newest && version > 0);
        if (version > newest) newest = version;
        EXPECT_INT(left_over(folder, &stale), 0);
    }
    EXPECT(newest > rounds / 4);
}
