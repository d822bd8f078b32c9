/* err.c -- reasons: bounded, one per thread, from the outside in. */
#include "engine/base/err.h"
#include "tests/test.h"
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

TEST(err_kinds)
{
    EXPECT(!fail("a %d", 1));
    EXPECT_TEXT(err_text(), "a 1");
    EXPECT_INT(err_kind(), ERR_FAILURE);
    EXPECT(!fail_usage("u"));
    EXPECT_INT(err_kind(), ERR_USAGE);
    EXPECT(!fail_data("d"));
    EXPECT_INT(err_kind(), ERR_DATA);
    EXPECT(!fail_device("g"));
    EXPECT_INT(err_kind(), ERR_DEVICE);
    EXPECT(!fail_diverged("n"));
    EXPECT_INT(err_kind(), ERR_DIVERGED);

    // exit codes that scripts rely on
    EXPECT(ERR_FAILURE == 1 && ERR_USAGE == 2 && ERR_DATA == 3 &&
           ERR_DEVICE == 4 && ERR_DIVERGED == 5);
    EXPECT(!err_set(ERR_DIVERGED, "from a worker"));
    EXPECT_TEXT(err_text(), "from a worker");
    EXPECT_INT(err_kind(), ERR_DIVERGED);
}

/* The bytes of a failed allocation survive within(); the next reason clears
 * them. */
TEST(err_memory)
{
    size_t room = 1;
    EXPECT(!fail_memory(ERR_DEVICE, 100, 7, "%d wanted", 100));
    EXPECT_TEXT(err_text(), "100 wanted");
    EXPECT_INT(err_kind(), ERR_DEVICE);
    EXPECT(!within("arena"));
    EXPECT_INT(err_wanted(&room), 100);
    EXPECT_INT(room, 7);
    EXPECT(!fail("something else"));
    EXPECT_INT(err_wanted(&room), 0);
    EXPECT_INT(room, 0);
    fail_memory(ERR_FAILURE, 5, 0, "again");
    EXPECT(!err_set(ERR_DATA, "from a worker"));
    EXPECT_INT(err_wanted(&room), 0);
}

TEST(err_within)
{
    fail_data("no pixel data");
    EXPECT(!within("slice %d", 3));
    EXPECT(!within("%s", "case_017"));
    EXPECT_TEXT(err_text(), "case_017: slice 3: no pixel data");
    EXPECT_INT(err_kind(), ERR_DATA);

    // an argument that is the reason itself
    fail_usage("again: %s", err_text());
    EXPECT_TEXT(err_text(), "again: case_017: slice 3: no pixel data");
    within("%s", err_text());
    EXPECT_TEXT(err_text(), "again: case_017: slice 3: no pixel data: again: "
                            "case_017: slice 3: no pixel data");

    // no failure below: still a failure
    err_set(ERR_NONE, "");
    EXPECT(!within("here"));
    EXPECT_INT(err_kind(), ERR_FAILURE);
}

/* Control characters and line breaks do not reach a reason. */
TEST(err_is_one_line)
{
    EXPECT(!fail_data("a\033[31m\r\nb: no\tdata\x7f \xc3\xa9"));
    EXPECT_TEXT(err_text(), "a?[31m??b: no?data? \xc3\xa9");
    EXPECT(!within("x\ny"));
    EXPECT_TEXT(err_text(), "x?y: a?[31m??b: no?data? \xc3\xa9");
}

/* The text is bounded, and keeps the reason, then the innermost place. */
TEST(err_long)
{
    static char path[3 * ERR_MAX];
    memset(path, 'p', sizeof path - 1);
    fail_data("the reason");
    within("%s", path);
    EXPECT_INT(strlen(err_text()), ERR_MAX - 1);
    EXPECT_TEXT(err_text() + ERR_MAX - 1 - 12, ": the reason");
    within("outer");
    EXPECT_INT(strlen(err_text()), ERR_MAX - 1);
    EXPECT(!fail("%s", path));
    EXPECT_INT(strlen(err_text()), ERR_MAX - 1);
    within("no room");
    EXPECT_INT(strlen(err_text()), ERR_MAX - 1);
    err_set(ERR_DATA, path);
    EXPECT_INT(strlen(err_text()), ERR_MAX - 1);
}

/* Setting a reason from itself changes the kind only. */
TEST(err_set_from_itself)
{
    char long_text[ERR_MAX + 9];
    fail("disk %s", "full");
    EXPECT(!err_set(ERR_DATA, err_text()));
    EXPECT_TEXT(err_text(), "disk full");
    EXPECT_INT(err_kind(), ERR_DATA);
    err_set(ERR_DATA, err_text() + 5);
    EXPECT_TEXT(err_text(), "full");
    memset(long_text, 'x', sizeof long_text);
    long_text[sizeof long_text - 1] = 0;
    err_set(ERR_USAGE, long_text);
    EXPECT_INT(strlen(err_text()), ERR_MAX - 1);
}

static void *other_thread(void *same)
{
    *(bool *)same = !*err_text() && err_kind() == ERR_NONE;
    fail_device("of the other thread");
    return NULL;
}

TEST(err_of_a_thread)
{
    pthread_t t;
    bool fresh = false;
    fail_data("mine");
    REQUIRE(!pthread_create(&t, NULL, other_thread, &fresh));
    pthread_join(t, NULL);
    EXPECT(fresh);
    EXPECT_TEXT(err_text(), "mine");
    EXPECT_INT(err_kind(), ERR_DATA);
}

static bool steps(int at, int *released)
{
    bool ok = false;
    TRY(at != 0 || fail("first"));
    TRY(at != 1 || fail("second"));
    ok = true;
done:
    ++*released;
    return ok;
}

TEST(err_try)
{
    int released = 0;
    EXPECT_FAIL(steps(0, &released), "first");
    EXPECT_FAIL(steps(1, &released), "second");
    EXPECT(steps(2, &released));
    EXPECT_INT(released, 3);
}

/* A failed CHECK ends the program with file, line and expression. */
TEST(err_check)
{
    int ends[2], status;
    char said[512] = "";
    CHECK(1 + 1 == 2);
    REQUIRE(!pipe(ends));
    fflush(stdout);
    pid_t child = fork();
    REQUIRE(child >= 0);
    if (!child) {
        dup2(ends[1], STDERR_FILENO);
        CHECK(1 + 1 == 3);
        _exit(0);
    }

    close(ends[1]);
    REQUIRE(waitpid(child, &status, 0) == child);
    EXPECT(WIFSIGNALED(status));
    EXPECT(read(ends[0], said, sizeof said - 1) > 0);
    close(ends[0]);
    EXPECT(strstr(said, "err.c:") && strstr(said, "1 + 1 == 3"));
}
