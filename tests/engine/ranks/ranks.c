/* ranks.c -- processes that train together, compared with one alone. */
#include "tests/support/ranks_training.h"
#include <sched.h>

// -- sums ---------------------------------------------------------------------

TEST(ranks_shard_is_whole)
{
    for (int ranks = 1; ranks < 9; ranks++)
        for (int count = 0; count < 20; count++) {
            int next = 0, first, least = count;
            for (int k = 0; k < ranks; k++) {
                int n = ranks_shard(count, k, ranks, &first);
                EXPECT_INT(first, next);
                next += n;
                if (n < least) least = n;
                EXPECT(n <= (count + ranks - 1) / ranks);
            }
            EXPECT_INT(next, count);
            EXPECT(least >= count / ranks);
        }
}

/* Number i of rank k: sums of these numbers depend on their order. */
static double number(int k, int64_t i)
{
    return sin((double)(7 * k + 1) * (double)(i + 1)) * pow(10, k % 3);
}

enum { LONG = 300001 }; /* longer than a piece, and odd */

static bool sums_right(Ranks *r, void *context)
{
    (void)context;
    double few[3], *many = mem_alloc(LONG * sizeof *many);
    float *reals = mem_alloc(LONG * sizeof *reals);
    char *bytes = mem_alloc(LONG), *all = mem_alloc((size_t)LONG * 16);
    if (!many || !reals || !bytes || !all) return false;
    for (int i = 0; i < 3; i++) few[i] = number(r->rank, i);
    for (int64_t i = 0; i < LONG; i++) {
        many[i] = number(r->rank, i), reals[i] = (float)many[i];
        bytes[i] = (char)(i * 31 + r->rank);
    }
    if (!ranks_sum(r, few, 3) || !ranks_sum(r, many, LONG) ||
        !ranks_sum_values(r, reals, F32, LONG) ||
        !ranks_gather(r, bytes, LONG, all) || !ranks_barrier(r))
        return false;

    for (int64_t i = 0; i < LONG; i++) {
        double sum = number(0, i);
        float real = (float)sum;
        for (int k = 1; k < r->count; k++)
            sum += number(k, i), real += (float)number(k, i);
        // to the bit: added in the order of the ranks
        if (many[i] != sum || (i < 3 && few[i] != sum) || reals[i] != real)
            return fail("sum %lld is wrong", (long long)i);
        for (int k = 0; k < r->count; k++)
            if (all[(size_t)k * LONG + (size_t)i] != (char)(i * 31 + k))
                return fail("byte %lld of %d is wrong", (long long)i, k);
    }

    // the same in double
    for (int64_t i = 0; i < LONG; i++) many[i] = number(r->rank, i);
    if (!ranks_sum_values(r, many, F64, LONG)) return false;
    double last = number(0, LONG - 1);
    for (int k = 1; k < r->count; k++) last += number(k, LONG - 1);
    mem_free(all), mem_free(bytes), mem_free(reals);
    bool ok = many[LONG - 1] == last;
    mem_free(many);
    return ok || fail("a sum in double is wrong");
}

TEST(ranks_sums_in_order)
{
    EXPECT(run_ranks(1, sums_right, NULL, -1));
    EXPECT(run_ranks(2, sums_right, NULL, -1));
    EXPECT(run_ranks(5, sums_right, NULL, -1));
}

// -- a training step ----------------------------------------------------------

TEST(ranks_gradients_ref)
{
    for (int k = 0; k < KINDS; k++) {
        compare("ref", (Kind)k, 6, 2, 1);
        compare("ref", (Kind)k, 7, 4, 1); // shards of 1 and 2
        compare("ref", (Kind)k, 3, 4, 1); // one rank is idle
    }
}

TEST(ranks_gradients_cpu)
{
    for (int k = 0; k < KINDS; k++) {
        compare("cpu", (Kind)k, 7, 2, 1);
        compare("cpu", (Kind)k, 3, 4, 1);
    }
}

TEST(ranks_loss_trace)
{
    compare("cpu", BCE, 8, 2, 20);
    compare("cpu", DICE, 8, 4, 20);
    compare("ref", BCE, 3, 4, 5); // idle more than once: nothing is left behind
}

TEST(ranks_local_batch_norm)
{
    compare_local_batch_norm(NULL, "ref", 3);
}

// -- a rank that dies ---------------------------------------------------------

static bool one_dies(Ranks *r, void *context)
{
    double v = 1, since = clock_s();
    (void)context;
    if (!ranks_sum(r, &v, 1)) return false;
    if (r->rank == 1) kill(getpid(), SIGKILL);
    if (ranks_sum(r, &v, 1)) return fail("a sum without rank 1");
    if (!strstr(err_text(), "rank 1 has ended")) return false;
    return clock_s() - since < 10 || fail("noticed too late");
}

static bool one_quits(Ranks *r, void *context)
{
    double v = 1, since = clock_s();
    (void)context;
    if (r->rank == 1) {
        ranks_quit(r, ERR_DATA, "case 7: no such file");
        return true;
    }
    if (ranks_sum(r, &v, 1)) return fail("a sum without rank 1");
    if (!strstr(err_text(), "rank 1 has ended: case 7: no such file"))
        return false;
    return clock_s() - since < 5 || fail("noticed too late");
}

static bool one_leaves(Ranks *r, void *context)
{
    double v = 1;
    (void)context;
    if (r->rank == 1) return true;
    return !ranks_sum(r, &v, 1) && strstr(err_text(), "before the others");
}

TEST(ranks_death)
{
    EXPECT(run_ranks(3, one_dies, NULL, 1));
    EXPECT(run_ranks(3, one_quits, NULL, -1));
    EXPECT(run_ranks(2, one_leaves, NULL, -1));
}

/* In the process of rank 0 of 2, whose starter has died: writes to `out` the
 * reason for which a sum fails, and returns. */
static void sum_without_starter(int fd, int out)
{
    Ranks *r = NULL;
    double v = 1;
    const bool ok = ranks_shared_open(fd, 0, 2, &r) && ranks_sum(r, &v, 1);
    const char *why = ok ? "no failure" : err_text();
    if (write(out, why, strlen(why)) < 0) _exit(1);
    ranks_close(r);
}

/* A command is killed after it has started one rank of two and before that rank
 * has opened the memory: the rank does not wait for the other. */
TEST(ranks_whose_starter_died_before)
{
    int ends[2], status;
    char why[ERR_MAX] = "";
    const double since = clock_s();
    REQUIRE(pipe(ends) == 0);
    fflush(NULL);
    const pid_t starter = fork();
    if (!starter) {
        int fd;
        const pid_t self = getpid();
        if (!ranks_shared_make(2, &fd) || fork()) _exit(0);
        while (getppid() == self) sched_yield();
        sum_without_starter(fd, ends[1]);
        _exit(0);
    }
    close(ends[1]);
    REQUIRE(waitpid(starter, &status, 0) == starter);
    for (size_t at = 0; at + 1 < sizeof why;) {
        const ssize_t got = read(ends[0], why + at, sizeof why - 1 - at);
        if (got <= 0) break;
        at += (size_t)got;
    }
    close(ends[0]);
    EXPECT(strstr(why, "the process that started it has died"));
    EXPECT(clock_s() - since < 10);
}

TEST(ranks_refused)
{
    Ranks *r = NULL;
    int fd;
    EXPECT_FAIL(ranks_shared_make(0, &fd), "want 1 to 1024");
    REQUIRE(setenv(RANKS_VARIABLE, "0 2 2", 1) == 0);
    EXPECT_FAIL(ranks_open(&r), "unset it");
    REQUIRE(setenv(RANKS_VARIABLE, "1 0 2", 1) == 0);
    EXPECT_FAIL(ranks_open(&r), "not the memory of 2 ranks");
    REQUIRE(unsetenv(RANKS_VARIABLE) == 0);
    EXPECT(ranks_open(&r) && !r);
}
