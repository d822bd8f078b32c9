/* test.h -- the whole test framework for C.
 *
 * A file under tests/ defines tests with TEST(noun_what) { ... }; they add
 * themselves to one list, which run.c runs in the order of their names.
 * A failed EXPECT is counted and printed, and the test goes on; REQUIRE ends
 * the test. SKIP ends it with a reason that is listed at the end. With
 * SEG_TEST_FIRST in the environment the first failure ends the run.
 *
 *     build/tests/run [--list] [PART_OF_A_NAME | tests/FILE.c ...] */
#ifndef SEG_TEST_H
#define SEG_TEST_H
#include "engine/base/err.h"
#include "engine/base/mem.h"
#include <math.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>

typedef struct Test {
    const char *name, *file;
    void (*run)(void);
    struct Test *next;
} Test;

void test_add(Test *t);
void test_failed(const char *file, int line, const char *fmt, ...)
    ERR_FORMAT(3, 4);
_Noreturn void test_stop(void);
_Noreturn void test_skip(const char *reason);

/* Returns a scratch folder of this run, made on first use, removed at the end.
 */
const char *test_folder(void);
/* Returns the folder of real data: $SEG_DATASETS, else "datasets". */
const char *test_datasets(void);

#define TEST(id)                                                           \
    static void test_##id(void);                                           \
    __attribute__((constructor)) static void add_##id(void)                \
    {                                                                      \
        static Test t = {.name = #id, .file = __FILE__, .run = test_##id}; \
        test_add(&t);                                                      \
    }                                                                      \
    static void test_##id(void)

#define EXPECT(e)                                                      \
    ((e) ? (void)0                                                     \
         : test_failed(__FILE__, __LINE__, "%s (last reason: %s)", #e, \
                       err_text()))
#define REQUIRE(e)                                                      \
    do {                                                                \
        if (!(e)) {                                                     \
            test_failed(__FILE__, __LINE__, "%s (last reason: %s)", #e, \
                        err_text());                                    \
            test_stop();                                                \
        }                                                               \
    } while (0)
#define SKIP(reason) test_skip(reason)

/* Prints a line that tests/shell/compared.sh adds up: the number of files that
 * segengine and the independent program `peer` read or wrote with equal values.
 */
void test_compared(int files, const char *peer);

/* |got - want| <= tol; NaN on either side fails. */
#define EXPECT_NEAR(got, want, tol)                                    \
    test_near(__FILE__, __LINE__, #got, (double)(got), (double)(want), \
              (double)(tol))
void test_near(const char *file, int line, const char *what, double got,
               double want, double tol);

#define EXPECT_INT(got, want) \
    test_int(__FILE__, __LINE__, #got, (long long)(got), (long long)(want))
void test_int(const char *file, int line, const char *what, long long got,
              long long want);

#define EXPECT_TEXT(got, want) test_text(__FILE__, __LINE__, #got, got, want)
void test_text(const char *file, int line, const char *what, const char *got,
               const char *want);

/* The call must fail and its error text must contain `part`. */
#define EXPECT_FAIL(call, part) \
    test_fail(__FILE__, __LINE__, #call, (call), part)
void test_fail(const char *file, int line, const char *what, bool ok,
               const char *part);
#endif
