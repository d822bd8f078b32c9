/* mem.c -- checked sizes, the allocator, arenas, injected failures. */
#include "engine/base/mem.h"
#include "tests/test.h"
#include <pthread.h>

static bool aligned(const void *p)
{
    return (uintptr_t)p % 64 == 0;
}

/* Are all `bytes` at p `value`? */
static bool filled(const void *p, int value, size_t bytes)
{
    const unsigned char *c = p;
    for (size_t i = 0; i < bytes; i++)
        if (c[i] != value) return false;
    return true;
}

TEST(mem_sizes)
{
    size_t out = 0, half = (size_t)PTRDIFF_MAX / 2;
    EXPECT(size_mul(half, 2, &out));
    EXPECT(out == 2 * half);
    EXPECT(size_add(half, half + 1, &out));
    EXPECT(out == PTRDIFF_MAX);
    EXPECT(size_mul(0, SIZE_MAX, &out) && out == 0);

    // beyond what a pointer difference holds, and beyond size_t
    EXPECT_FAIL(size_add(half + 1, half + 1, &out),
                "4611686018427387904 + 4611");
    EXPECT_FAIL(size_mul(half + 1, 2, &out), "4611686018427387904 x 2");
    EXPECT_FAIL(size_mul(SIZE_MAX, 2, &out), "more than this machine");
    EXPECT_FAIL(size_mul((size_t)1 << 32, (size_t)1 << 32, &out), "address");
    EXPECT_FAIL(size_add(SIZE_MAX, 1, &out), "address");
}

TEST(mem_blocks)
{
    long live = mem_live();
    static const size_t sizes[] = {0, 1, 63, 64, 65, 4096, 1 << 20};
    void *p[7];

    for (int turn = 0; turn < 2; turn++) {
        for (int i = 0; i < 7; i++) {
            REQUIRE(p[i] = mem_alloc(sizes[i]));
            EXPECT(aligned(p[i]) && filled(p[i], 0, sizes[i]));
            memset(p[i], 0xCC, sizes[i]); // a reused block must be clean
        }
        EXPECT_INT(mem_live(), live + 7);
        for (int i = 0; i < 7; i++) mem_free(p[i]);
        EXPECT_INT(mem_live(), live);
    }

    mem_free(NULL);
    EXPECT_INT(mem_live(), live);
    char *text = mem_strdup("a text");
    EXPECT_TEXT(text, "a text");
    mem_free(text);
}

/* Pages for kernels: clean like other blocks, also when memory is reused. */
TEST(mem_pages_are_clean)
{
    long live = mem_live();
    static const size_t sizes[] = {0, 1, 65, 4096, 1 << 20, 5 << 20};
    char *p[6];

    for (int turn = 0; turn < 2; turn++) {
        for (int i = 0; i < 6; i++) {
            REQUIRE(p[i] = mem_pages(sizes[i]));
            // half of them touched at once, in two parts; touching changes
            // nothing
            mem_touch(p[i], turn ? sizes[i] : 0);
            mem_touch(p[i] + sizes[i] / 2, sizes[i] - sizes[i] / 2);
            EXPECT(aligned(p[i]) && filled(p[i], 0, sizes[i]));
            memset(p[i], 0xCC, sizes[i]);
        }
        EXPECT_INT(mem_live(), live + 6);
        for (int i = 0; i < 6; i++) mem_pages_free(p[i]);
        EXPECT_INT(mem_live(), live);
    }

    mem_pages_free(NULL);
    EXPECT(!mem_pages(PTRDIFF_MAX));
    EXPECT(!mem_pages(SIZE_MAX));
    EXPECT_INT(mem_live(), live);
}

TEST(mem_grows_and_shrinks)
{
    long live = mem_live();
    unsigned char *p = mem_realloc(NULL, 100), *q;
    REQUIRE(p);
    EXPECT_INT(mem_live(), live + 1);
    memset(p, 7, 100);
    REQUIRE(q = mem_realloc(p, 100000));
    EXPECT(filled(q, 7, 100));
    REQUIRE(p = mem_realloc(q, 10));
    EXPECT(filled(p, 7, 10));

    // a failure leaves the old block untouched
    EXPECT(!mem_realloc(p, (size_t)PTRDIFF_MAX + 1));
    EXPECT(strstr(err_text(), "no memory: 9223372036854775808 bytes needed"));
    mem_fail_after(0, false);
    EXPECT(!mem_realloc(p, 20));
    EXPECT(filled(p, 7, 10));
    EXPECT_INT(mem_live(), live + 1);
    REQUIRE(p = mem_realloc(p, 0));
    mem_free(p);
    EXPECT_INT(mem_live(), live);
}

TEST(mem_too_much)
{
    long live = mem_live();
    EXPECT(!mem_alloc(PTRDIFF_MAX));
    EXPECT(strstr(err_text(), "more than this machine"));
    EXPECT(!mem_alloc((size_t)1 << 60));
    EXPECT(strstr(err_text(), "no memory: 1152921504606846976 bytes needed"));
    EXPECT_INT(err_kind(), ERR_FAILURE);
    EXPECT_INT(mem_live(), live);
}

/* Returns the failing requests of `count` as bits. */
static unsigned failures(int count)
{
    unsigned out = 0;
    for (int i = 0; i < count; i++) {
        void *p = i % 2 ? mem_realloc(NULL, 8) : mem_alloc(8);
        out |= (unsigned)!p << i;
        mem_free(p);
    }
    return out;
}

TEST(mem_injected_failures)
{
    mem_fail_after(2, false);
    EXPECT_INT(failures(6), 1 << 2);
    mem_fail_after(0, false);
    EXPECT_INT(failures(6), 1);
    mem_fail_after(3, true);
    EXPECT_INT(failures(6), 7 << 3);
    EXPECT_INT(failures(3), 7);
    mem_fail_after(-1, true);
    EXPECT_INT(failures(6), 0);
    mem_fail_after(1, true);
    mem_fail_after(-1, false);
    EXPECT_INT(failures(6), 0);
}

static void *worker(void *failed)
{
    for (int i = 0; i < 2000; i++) {
        void *p = mem_alloc(64);
        if (!p) ++*(int *)failed;
        mem_free(p);
    }
    return NULL;
}

/* Four threads, one injected failure: it happens once, nothing leaks. */
TEST(mem_of_many_threads)
{
    pthread_t t[4];
    int failed[4] = {0};
    long live = mem_live();
    mem_fail_after(3000, false);
    for (int i = 0; i < 4; i++)
        REQUIRE(!pthread_create(&t[i], NULL, worker, &failed[i]));
    for (int i = 0; i < 4; i++) pthread_join(t[i], NULL);
    EXPECT_INT(failed[0] + failed[1] + failed[2] + failed[3], 1);
    EXPECT_INT(mem_live(), live);
}

TEST(mem_arena)
{
    Arena a = {NULL};
    long live = mem_live();
    char *first = arena_alloc(&a, 3), *p, *next;

    REQUIRE(first);
    EXPECT(aligned(first) && filled(first, 0, 3));
    memcpy(first, "ab", 3);
    REQUIRE(p = arena_alloc(&a, 0));
    REQUIRE(next = arena_alloc(&a, 0));
    EXPECT(p != next && aligned(p) && aligned(next));
    EXPECT_INT(mem_live(), live + 1); // still one block

    // larger than a block; then a small one again
    size_t large = 300 * 1000;
    REQUIRE(p = arena_alloc(&a, large));
    EXPECT(aligned(p) && filled(p, 0, large));
    memset(p, 1, large);
    EXPECT_INT(mem_live(), live + 2);
    EXPECT_TEXT(arena_strdup(&a, "text"), "text");
    EXPECT_TEXT(arena_printf(&a, "%d-%s", 7, "x"), "7-x");
    int *numbers = ARENA_NEW(&a, int, 5);
    REQUIRE(numbers);
    EXPECT(filled(numbers, 0, 5 * sizeof *numbers));
    EXPECT_TEXT(first, "ab");
    EXPECT(filled(p, 1, large));
    EXPECT(!ARENA_NEW(&a, double, SIZE_MAX / 4));
    EXPECT(!arena_alloc(&a, PTRDIFF_MAX));
    EXPECT(!arena_alloc(&a, SIZE_MAX));
    arena_release(&a);
    EXPECT(!a.top);
    arena_release(&a);
    EXPECT_INT(mem_live(), live);
}

/* Back to a mark and again: the same memory, clean. */
TEST(mem_arena_rewinds)
{
    Arena a = {NULL};
    long live = mem_live();
    ArenaMark empty = arena_mark(&a);
    char *kept = arena_strdup(&a, "kept");
    ArenaMark m = arena_mark(&a);
    char *old = NULL;

    for (int turn = 0; turn < 3; turn++) {
        char *p = arena_alloc(&a, 1000);
        REQUIRE(p && kept);
        EXPECT(filled(p, 0, 1000));
        EXPECT(!turn || p == old);
        old = p;
        memset(p, 0xEE, 1000);
        for (int i = 0; i < 10; i++) REQUIRE(arena_alloc(&a, 50000));
        arena_rewind(&a, m);
        EXPECT_INT(mem_live(), live + 1);
        EXPECT_TEXT(kept, "kept");
    }

    arena_rewind(&a, empty);
    EXPECT_INT(mem_live(), live);
    EXPECT(!a.top);
}

TEST(mem_arena_without_memory)
{
    Arena a = {NULL};
    long live = mem_live();
    mem_fail_after(0, true);
    EXPECT(!arena_alloc(&a, 8) && !arena_strdup(&a, "x"));
    EXPECT(!arena_printf(&a, "%d", 1) && !ARENA_NEW(&a, int, 2));
    EXPECT(!mem_strdup("x"));
    mem_fail_after(-1, false);
    REQUIRE(arena_alloc(&a, 8));

    // room in an existing block needs no request
    mem_fail_after(0, true);
    EXPECT(arena_alloc(&a, 8));
    EXPECT(!arena_alloc(&a, 1 << 20));
    EXPECT(arena_alloc(&a, 8));
    mem_fail_after(-1, false);
    arena_release(&a);
    EXPECT_INT(mem_live(), live);
}
