/* self_check.c -- the self-check of a GPU, and its record.
 *
 * The GPU is the cpu backend with another name and, if asked for, with a wrong
 * kernel. */
#include "engine/check/self_check.h"
#include "cpu/lib/kernels.h"
#include "engine/base/build_id.h"
#include "engine/base/file.h"
#include "engine/base/user_cache.h"
#include "engine/check/auto_device.h"
#include "tests/test.h"
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define GPU_NAME "H100, compute capability 9.0, driver 580.1"

static const char *described = GPU_NAME; // NULL: there is no GPU

static bool describe(int number, char text[BACKEND_TEXT])
{
    (void)number;
    if (!described) return fail_device("no NVIDIA driver: install it");
    snprintf(text, BACKEND_TEXT, "%s", described);
    return true;
}

/* Opens the CPU, as a GPU of any number. */
static bool open_any(int number, int threads, void **dev)
{
    (void)number;
    return backend_cpu.open(0, threads, dev);
}

static bool wrong(const Call *c)
{
    if (!backend_cpu.fwd[OP_relu](c)) return false;
    float *y = c->y->data;
    y[numel(c->y->dim) - 1] += 1;
    return true;
}

/* A GPU that computes as the CPU does. */
static Backend gpu_good(void)
{
    Backend be = backend_cpu;
    be.name = "cuda", be.describe = describe, be.open = open_any;
    described = GPU_NAME;
    return be;
}

static Backend gpu_wrong(void)
{
    Backend be = gpu_good();
    be.fwd[OP_relu] = wrong;
    return be;
}

/* Makes an empty cache folder of this name, and uses it. */
static const char *cache(const char *name)
{
    static char path[4096];
    snprintf(path, sizeof path, "%s/%s", test_folder(), name);
    REQUIRE(!setenv("XDG_CACHE_HOME", path, 1));
    return path;
}

// -- the check ---------------------------------------------------------------

static int ran[OP_COUNT]; // forward calls

#define COUNTED(name)                         \
    static bool counted_##name(const Call *c) \
    {                                         \
        ran[OP_##name]++;                     \
        return backend_cpu.fwd[OP_##name](c); \
    }
#define OP(name, ...) COUNTED(name)
#include "engine/graph/ops.def"

/* Every operator runs, in a time that a user waits for. */
TEST(self_check_has_all_operators)
{
    Backend be = gpu_good();
    int cases;
#define OP(name, ...) be.fwd[OP_##name] = counted_##name;
#include "engine/graph/ops.def"
    memset(ran, 0, sizeof ran);
    REQUIRE(self_check_run(&be, 0, PRECISION_f32, &cases));
    for (int op = 0; op < OP_COUNT; op++)
        if (!ran[op]) test_failed(__FILE__, __LINE__, "%s", op_info[op].name);
    EXPECT(cases >= OP_COUNT && cases <= 3 * OP_COUNT);
    REQUIRE(self_check_run(&be, 0, PRECISION_bf16, &cases));
    EXPECT(cases >= 3); // conv, upconv, linear
}

/* The line has all that a report needs. */
TEST(self_check_tells_what_is_wrong)
{
    const Backend be = gpu_wrong();
    char build[BUILD_ID_TEXT];
    int cases;
    REQUIRE(build_id(build));
    EXPECT(!self_check_run(&be, 2, PRECISION_f32, &cases));
    EXPECT_INT(err_kind(), ERR_DEVICE);
    EXPECT(strstr(err_text(), "f32: relu #1"));
    EXPECT(strstr(err_text(), " x0 "));
    EXPECT(strstr(err_text(), "cuda against ref: y["));
    EXPECT(strstr(err_text(), ", want "));
    EXPECT(strstr(err_text(), "; " GPU_NAME "; build "));
    EXPECT(strstr(err_text(), build));
    EXPECT(strstr(err_text(), "to repeat: segengine check --device cuda:2 "
                              "--op relu --precision f32"));
    EXPECT(!strchr(err_text(), '\n'));
}

// -- the record --------------------------------------------------------------

/* Writes `bytes` bytes into the file of a record. */
static void damage(const SelfCheckRecord *r, const char *data, size_t bytes)
{
    FILE *f = fopen(r->path, "wb");
    REQUIRE(f);
    REQUIRE(fwrite(data, 1, bytes, f) == bytes && !fclose(f));
}

TEST(self_check_is_remembered)
{
    Arena mem = {0};
    SelfCheckRecord r, other;
    const char *folder = cache("remembered/new");
    REQUIRE(self_check_record(GPU_NAME, PRECISION_f32, &mem, &r));
    EXPECT(!strncmp(r.path, folder, strlen(folder)));
    EXPECT(strstr(r.path, "/segengine/self_check."));
    EXPECT(!self_check_passed(&r));
    REQUIRE(self_check_remember(&r));
    EXPECT(self_check_passed(&r));
    REQUIRE(self_check_remember(&r));

    // another driver or precision
    REQUIRE(self_check_record(GPU_NAME "1", PRECISION_f32, &mem, &other));
    EXPECT(!self_check_passed(&other) && strcmp(other.path, r.path));
    REQUIRE(self_check_record(GPU_NAME, PRECISION_bf16, &mem, &other));
    EXPECT(!self_check_passed(&other) && strcmp(other.path, r.path));

    // a file of another key, as of a program whose hash begins the same
    damage(&r, other.text, strlen(other.text));
    EXPECT(!self_check_passed(&r));
    const size_t bytes = strlen(r.text);
    for (size_t n = 0; n < bytes; n++) { // cut short
        damage(&r, r.text, n);
        EXPECT(!self_check_passed(&r));
    }
    for (size_t n = 0; n < bytes; n++) { // one bit
        char *text = arena_strdup(&mem, r.text);
        text[n] ^= 1;
        damage(&r, text, bytes);
        EXPECT(!self_check_passed(&r));
    }
    char *more = arena_printf(&mem, "%s%10000s", r.text, "");
    damage(&r, more, strlen(more));
    EXPECT(!self_check_passed(&r));
    REQUIRE(self_check_remember(&r)); // over the damaged file
    EXPECT(self_check_passed(&r));

    REQUIRE(!unlink(r.path) && !mkdir(r.path, 0777));
    EXPECT(!self_check_passed(&r));
    EXPECT_FAIL(self_check_remember(&r), r.path);
    REQUIRE(!rmdir(r.path) && !mkfifo(r.path, 0666));
    EXPECT(!self_check_passed(&r)); // and does not wait for a writer
    arena_release(&mem);
}

/* The folder of the specification, and places where none can be. */
TEST(self_check_folder)
{
    Arena mem = {0};
    SelfCheckRecord r;
    char home[4096];
    cache("folder");
    REQUIRE(self_check_record(GPU_NAME, PRECISION_f32, &mem, &r));
    damage(&(SelfCheckRecord){.path = getenv("XDG_CACHE_HOME")}, "x", 1);
    EXPECT(!self_check_passed(&r));
    EXPECT_FAIL(self_check_remember(&r), "is a file");
    setenv("XDG_CACHE_HOME", "/proc", 1); // no folder can be made there
    REQUIRE(self_check_record(GPU_NAME, PRECISION_f32, &mem, &r));
    EXPECT(!self_check_passed(&r));
    EXPECT_FAIL(self_check_remember(&r), "/proc/segengine");

    char *was = arena_strdup(&mem, getenv("HOME") ? getenv("HOME") : "/");
    snprintf(home, sizeof home, "%s/home", test_folder());
    setenv("HOME", home, 1);
    static const char *const ignored[] = {"", "cache", "./cache"};
    for (int i = 0; i < 4; i++) {
        if (i < 3)
            setenv("XDG_CACHE_HOME", ignored[i], 1);
        else
            unsetenv("XDG_CACHE_HOME");
        char *path = user_cache_path("x", &mem);
        EXPECT_TEXT(path, arena_printf(&mem, "%s/.cache/segengine/x", home));
    }
    unsetenv("HOME");
    EXPECT_FAIL(self_check_record(GPU_NAME, PRECISION_f32, &mem, &r),
                "neither XDG_CACHE_HOME nor HOME");
    setenv("HOME", was, 1);
    arena_release(&mem);
}

/* 32 ranks that start at the same time: each remembers the result and finds
 * it, whole, and no draft is left. */
TEST(self_check_of_many_processes)
{
    enum { RANKS = 32 };
    Arena mem = {0};
    SelfCheckRecord r;
    pid_t child[RANKS];
    int go[2], status, files = 0;
    cache("many");
    REQUIRE(self_check_record(GPU_NAME, PRECISION_f32, &mem, &r));
    REQUIRE(!pipe(go));
    fflush(NULL);
    for (int i = 0; i < RANKS; i++) {
        child[i] = fork();
        REQUIRE(child[i] >= 0);
        if (child[i]) continue;
        char byte;
        close(go[1]);
        (void)!read(go[0], &byte, 1); // ends when the parent closes
        bool ok = true;
        for (int k = 0; k < 5; k++)
            ok = ok && self_check_remember(&r) && self_check_passed(&r);
        _exit(!ok);
    }
    close(go[0]), close(go[1]);
    for (int i = 0; i < RANKS; i++) {
        REQUIRE(waitpid(child[i], &status, 0) == child[i]);
        EXPECT_INT(status, 0);
    }
    EXPECT(self_check_passed(&r));
    char *folder = arena_printf(&mem, "%s/segengine", getenv("XDG_CACHE_HOME"));
    DIR *d = folder_open(folder);
    REQUIRE(d);
    for (struct dirent *e; (e = readdir(d));) files += *e->d_name != '.';
    closedir(d);
    EXPECT_INT(files, 1);
    arena_release(&mem);
}

// -- the choice --------------------------------------------------------------

TEST(auto_device_takes_a_gpu_that_passes)
{
    static Backend good, later, updated; // each is a process of its own
    AutoDevice a;
    char text[BACKEND_TEXT];
    good = gpu_good();
    cache("passes");
    EXPECT(auto_device_due(&good, 1, PRECISION_bf16, text));
    EXPECT_TEXT(text, GPU_NAME);
    auto_device(&good, 1, PRECISION_bf16, &a);
    EXPECT_TEXT(a.device, "cuda:1");
    EXPECT_TEXT(a.why, "");
    EXPECT_TEXT(a.warning, "");
    EXPECT(!auto_device_due(&good, 1, PRECISION_bf16, text));
    EXPECT(!auto_device_due(&good, 1, PRECISION_f32, text));

    // another process finds the records, and does not run the check
    later = gpu_wrong();
    EXPECT(!auto_device_due(&later, 1, PRECISION_f32, text));
    auto_device(&later, 1, PRECISION_bf16, &a);
    EXPECT_TEXT(a.device, "cuda:1");

    // but not with another driver
    described = GPU_NAME " new";
    updated = later;
    EXPECT(auto_device_due(&updated, 1, PRECISION_f32, text));
    auto_device(&updated, 1, PRECISION_bf16, &a);
    EXPECT_TEXT(a.device, "cpu");
}

/* A failed check is not remembered: it runs again, and passes once the cause is
 * gone. */
TEST(auto_device_is_the_cpu_otherwise)
{
    static Backend be;
    AutoDevice a;
    char text[BACKEND_TEXT];
    be = gpu_wrong();
    cache("otherwise");
    for (int i = 0; i < 2; i++) {
        EXPECT(auto_device_due(&be, 0, PRECISION_f32, text));
        auto_device(&be, 0, PRECISION_f32, &a);
        EXPECT_TEXT(a.device, "cpu");
        EXPECT_TEXT(a.why, "its self-check failed");
        EXPECT(strstr(a.warning, "please report: f32: relu #1"));
    }
    be.fwd[OP_relu] = backend_cpu.fwd[OP_relu];
    auto_device(&be, 0, PRECISION_f32, &a);
    EXPECT_TEXT(a.device, "cuda:0");

    described = NULL;
    EXPECT(!auto_device_due(&be, 0, PRECISION_f32, text));
    auto_device(&be, 0, PRECISION_f32, &a);
    EXPECT_TEXT(a.device, "cpu");
    EXPECT_TEXT(a.why, "no NVIDIA driver: install it");
    EXPECT_TEXT(a.warning, "");
    EXPECT(!auto_device_due(NULL, 0, PRECISION_f32, text));
    auto_device(NULL, 0, PRECISION_f32, &a);
    EXPECT_TEXT(a.device, "cpu");
    EXPECT_TEXT(a.why, "this program was built without CUDA");
}

/* Without a cache folder the check runs in each process, once, and says so. */
TEST(auto_device_without_a_cache)
{
    static Backend process[2];
    AutoDevice a;
    char text[BACKEND_TEXT];
    setenv("XDG_CACHE_HOME", "/proc", 1);
    for (int i = 0; i < 2; i++) {
        Backend *be = &process[i];
        *be = gpu_good();
        EXPECT(auto_device_due(be, 0, PRECISION_f32, text));
        auto_device(be, 0, PRECISION_f32, &a);
        EXPECT_TEXT(a.device, "cuda:0");
        EXPECT(strstr(a.warning, "runs again each time, as it cannot be "
                                 "remembered: cannot make folder /proc/"));
        EXPECT(!auto_device_due(be, 0, PRECISION_f32, text));
    }
}
