/* run.c -- runs the list of tests that test.h collects. */
#include "engine/base/clock.h"
#include "tests/test.h"
#include <ftw.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

enum { MAX_SKIPS = 256 };
static const double LONG_S = 5; // a test of this duration is logged, seconds

static Test *tests;
static int failures; // of the running test
static jmp_buf out;
static const char *skip_reason;
static const char *running = "no test"; // printed when a hanging run is killed
static char folder[64];

void test_add(Test *t)
{
    Test **at = &tests;
    while (*at && strcmp((*at)->name, t->name) < 0) at = &(*at)->next;
    t->next = *at;
    *at = t;
}

void test_failed(const char *file, int line, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    printf("  %s:%d: ", file, line);
    vprintf(fmt, ap);
    putchar('\n');
    va_end(ap);
    failures++;
    if (!getenv("SEG_TEST_FIRST")) return;
    fflush(stdout);
    _exit(1); // without cleanup, which may use the broken object
}

_Noreturn void test_stop(void)
{
    longjmp(out, 1);
}

_Noreturn void test_skip(const char *reason)
{
    skip_reason = reason;
    longjmp(out, 1);
}

void test_compared(int files, const char *peer)
{
    printf("  compared %d files: %s\n", files, peer);
}

void test_near(const char *file, int line, const char *what, double got,
               double want, double tol)
{
    if (!(fabs(got - want) <= tol))
        test_failed(file, line, "%s is %.17g, want %.17g +- %.3g", what, got,
                    want, tol);
}

void test_int(const char *file, int line, const char *what, long long got,
              long long want)
{
    if (got != want)
        test_failed(file, line, "%s is %lld, want %lld", what, got, want);
}

void test_text(const char *file, int line, const char *what, const char *got,
               const char *want)
{
    if (!got || strcmp(got, want))
        test_failed(file, line, "%s is \"%s\", want \"%s\"", what,
                    got ? got : "(null)", want);
}

void test_fail(const char *file, int line, const char *what, bool ok,
               const char *part)
{
    if (ok)
        test_failed(file, line, "%s succeeded, want a failure with \"%s\"",
                    what, part);
    else if (!strstr(err_text(), part))
        test_failed(file, line, "%s failed with \"%s\", want \"%s\"", what,
                    err_text(), part);
}

const char *test_folder(void)
{
    if (!*folder) {
        const char *tmp = getenv("TMPDIR");
        snprintf(folder, sizeof folder, "%.32s/segtest.XXXXXX",
                 tmp ? tmp : "/tmp");
        if (!mkdtemp(folder)) perror(folder), exit(1);
    }
    return folder;
}

const char *test_datasets(void)
{
    const char *d = getenv("SEG_DATASETS");
    return d ? d : "datasets";
}

static int remove_one(const char *path, const struct stat *st, int flag,
                      struct FTW *at)
{
    (void)st, (void)flag, (void)at;
    return remove(path);
}

/* Returns whether the arguments select a test. An argument with a slash is a
 * file, which selects all its tests. */
static bool wanted(const Test *t, int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (strchr(argv[i], '/') ? !strcmp(t->file, argv[i])
                                 : strstr(t->name, argv[i]) != NULL)
            return true;
    return argc < 2;
}

/* Runs a test in a separate function, so that no local variable of main lives
 * across the setjmp. */
static void guarded(const Test *t)
{
    if (!setjmp(out)) t->run();
}

/* Signal handler: tests/all stops a run whose time is over; prints the running
 * test. */
static void tell_running(int signal_number)
{
    static const char before[] = "stopped in ", after[] = "\n";
    ssize_t n = write(STDERR_FILENO, before, sizeof before - 1);
    n += write(STDERR_FILENO, running, strlen(running));
    n += write(STDERR_FILENO, after, 1);
    _exit(n > 0 ? 128 + signal_number : 1);
}

int main(int argc, char **argv)
{
    int passed = 0, failed = 0, skipped = 0;
    const char *skips[MAX_SKIPS][2];
    bool list = argc > 1 && !strcmp(argv[1], "--list");

    signal(SIGTERM, tell_running);
    for (Test *t = tests; t; t = t->next) {
        if (list) {
            printf("%-40s %s\n", t->name, t->file);
            continue;
        }
        if (!wanted(t, argc, argv)) continue;
        failures = 0;
        skip_reason = NULL;
        mem_fail_after(-1, false);
        running = t->name;
        const double from = clock_s();
        guarded(t);
        const double took = clock_s() - from;
        if (took >= LONG_S) printf("  %.0f s: %s\n", took, t->name);
        if (failures) {
            printf("FAILED %s\n", t->name);
            failed++;
        } else if (skip_reason) {
            if (skipped < MAX_SKIPS)
                skips[skipped][0] = t->name, skips[skipped][1] = skip_reason;
            skipped++;
        } else {
            passed++;
        }
        fflush(stdout);
    }

    if (*folder) nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    if (list) return 0;
    for (int i = 0; i < skipped && i < MAX_SKIPS; i++)
        printf("skipped %s: %s\n", skips[i][0], skips[i][1]);
    printf("%d passed, %d failed, %d skipped\n", passed, failed, skipped);
    return failed || passed + skipped == 0;
}
