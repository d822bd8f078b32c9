/* mem.c -- the allocator with its test hooks, and arenas on top of it.
 *
 * Blocks are zeroed and aligned to a cache line (also the widest vector
 * register), so that kernels may use aligned loads on each of them and no run
 * depends on earlier content of memory. Test hooks run before every request:
 * with mem_fail_after a test makes the first, second, third ... allocation of
 * an operation fail, and mem_live shows whether each error path freed
 * everything. */
#define _DEFAULT_SOURCE // madvise, malloc_usable_size
#include "engine/base/mem.h"
#include <malloc.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    ALIGN = 64,              // bytes: a cache line, an AVX-512 register
    BLOCK_BYTES = 64 * 1024, // minimum room of an arena's block
    LARGE = 8 << 20,         // bytes from which on free memory is checked
    SLACK = 8 << 20,         // bytes that stay free for smaller requests
};

// test hooks; atomics because workers allocate too
static atomic_long live;           // blocks allocated
static atomic_long countdown = -1; // requests that still pass; < 0: off
static atomic_bool keep_failing;

// PTRDIFF_MAX, not SIZE_MAX: differences of pointers must fit as well, and no
// allocator returns more
bool size_mul(size_t a, size_t b, size_t *out)
{
    if (__builtin_mul_overflow(a, b, out) || *out > PTRDIFF_MAX)
        return fail("size %zu x %zu is more than this machine can address", a,
                    b);
    return true;
}

bool size_add(size_t a, size_t b, size_t *out)
{
    if (__builtin_add_overflow(a, b, out) || *out > PTRDIFF_MAX)
        return fail("size %zu + %zu is more than this machine can address", a,
                    b);
    return true;
}

void mem_fail_after(long after, bool from_then_on)
{
    keep_failing = from_then_on;
    countdown = after;
}

long mem_live(void)
{
    return live;
}

/* True if mem_fail_after asks this request to fail. */
static bool injected(void)
{
    if (countdown < 0) return false;
    long left = atomic_fetch_sub(&countdown, 1);
    if (left > 0) return false;
    // another thread decremented between the two lines above
    if (left < 0) {
        countdown = -1;
        return false;
    }
    countdown = keep_failing ? 0 : -1;
    return true;
}

/* Returns NULL with the reason that there is no memory. */
static void *none(size_t bytes)
{
    fail_memory(ERR_FAILURE, bytes, 0,
                "no memory: %zu bytes needed; fix: smaller images, batch or "
                "cache, or fewer workers",
                bytes);
    return NULL;
}

/* Linux overcommits: it hands out addresses freely and kills the process when
 * it fills more pages than there is memory. So a large request is compared with
 * the free memory first. Bytes granted to one thread and not yet filled are not
 * available to others. */
static atomic_size_t granted;

static bool grant(size_t bytes)
{
    if (bytes < LARGE) return true;
    const size_t others = atomic_fetch_add(&granted, bytes);
    const size_t room = mem_room(""), taken = others + SLACK;
    if (room == SIZE_MAX || (taken < room && bytes <= room - taken))
        return true;
    atomic_fetch_sub(&granted, bytes);
    return fail_memory(ERR_FAILURE, bytes, taken < room ? room - taken : 0,
                       "no memory: %zu bytes needed, %zu are free; fix: "
                       "smaller images, batch or cache, or fewer workers",
                       bytes, taken < room ? room - taken : 0);
}

static void filled(size_t bytes)
{
    if (bytes >= LARGE) atomic_fetch_sub(&granted, bytes);
}

void *mem_alloc(size_t bytes)
{
    size_t room;
    if (!size_add(bytes ? bytes : 1, ALIGN - 1, &room)) return NULL;
    room = room / ALIGN * ALIGN; // aligned_alloc requires a multiple
    if (!grant(bytes)) return NULL;
    void *p = injected() ? NULL : aligned_alloc(ALIGN, room);
    if (p) memset(p, 0, room);
    filled(bytes);
    if (!p) return none(bytes);
    live++;
    return p;
}

// realloc keeps only the alignment of malloc, so no buffer of a kernel is ever
// resized
void *mem_realloc(void *p, size_t bytes)
{
    if (bytes > PTRDIFF_MAX) return none(bytes);
    // a growing block may move, and then needs memory for both copies
    const size_t fresh = !p || bytes > malloc_usable_size(p) ? bytes : 0;
    if (!grant(fresh)) return NULL;
    void *q = injected() ? NULL : realloc(p, bytes ? bytes : 1);
    filled(fresh);
    if (!q) return none(bytes);
    if (!p) live++;
    return q;
}

void mem_free(void *p)
{
    if (!p) return;
    live--;
    free(p);
}

/* calloc does not write pages that are fresh from the system. The pointer that
 * calloc returned is stored before the aligned bytes. */
void *mem_pages(size_t bytes)
{
    size_t room;
    if (!size_add(bytes, 2 * ALIGN, &room) || !grant(bytes)) return NULL;
    char *raw = injected() ? NULL : calloc(1, room);
    filled(bytes);
    if (!raw) return none(bytes);
    char *p = raw + 2 * ALIGN - (uintptr_t)raw % ALIGN;
    memcpy(p - sizeof raw, &raw, sizeof raw);
    live++;
    return p;
}

void mem_pages_free(void *p)
{
    char *raw;
    if (!p) return;
    memcpy(&raw, (char *)p - sizeof raw, sizeof raw);
    live--;
    free(raw);
}

/* Populates all pages in one request: page faults took 0.2 s more for 600 MiB.
 * If the system does not know this request, or refuses it, pages are touched
 * one by one. Huge pages (MADV_HUGEPAGE) took longer to fill on the virtual
 * machines where it was measured, and made no training step faster. */
void mem_touch(void *p, size_t bytes)
{
#ifdef MADV_POPULATE_WRITE
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t from = ((uintptr_t)p + page - 1) / page * page;
    uintptr_t to = ((uintptr_t)p + bytes) / page * page;
    if (to > from) (void)madvise((void *)from, to - from, MADV_POPULATE_WRITE);
#else
    (void)p, (void)bytes;
#endif
}

char *mem_strdup(const char *text)
{
    size_t n = strlen(text) + 1;
    char *copy = mem_alloc(n);
    if (copy) memcpy(copy, text, n);
    return copy;
}

/* The header of a block; the bytes of the arena follow. */
typedef struct ArenaBlock {
    struct ArenaBlock *below;
    size_t used, room; /* bytes after the header, multiples of ALIGN */
} ArenaBlock;

// the header takes one aligned unit, so the bytes after it are aligned too
_Static_assert(sizeof(ArenaBlock) <= ALIGN, "header fits one unit");

void *arena_alloc(Arena *a, size_t bytes)
{
    size_t want;
    if (!size_add(bytes ? bytes : 1, ALIGN - 1, &want)) return NULL;
    want = want / ALIGN * ALIGN;

    if (!a->top || a->top->room - a->top->used < want) {
        // the rest of the old block stays unused: marks need a plain stack
        size_t room = want > BLOCK_BYTES ? want : BLOCK_BYTES, whole;
        if (!size_add(room, ALIGN, &whole)) return NULL;
        ArenaBlock *b = mem_alloc(whole);
        if (!b) return NULL;
        *b = (ArenaBlock){.below = a->top, .room = room};
        a->top = b;
    }

    char *p = (char *)a->top + ALIGN + a->top->used;
    a->top->used += want;
    memset(p, 0, want); // a rewound block is not clean
    return p;
}

void *arena_array(Arena *a, size_t size, size_t count)
{
    size_t bytes;
    return size_mul(size, count, &bytes) ? arena_alloc(a, bytes) : NULL;
}

char *arena_strdup(Arena *a, const char *text)
{
    size_t n = strlen(text) + 1;
    char *copy = arena_alloc(a, n);
    if (copy) memcpy(copy, text, n);
    return copy;
}

// calls vsnprintf twice: first for the length
char *arena_printf(Arena *a, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    char *text = n < 0 ? NULL : arena_alloc(a, (size_t)n + 1);
    if (!text) return NULL;
    va_start(ap, fmt);
    vsnprintf(text, (size_t)n + 1, fmt, ap);
    va_end(ap);
    return text;
}

ArenaMark arena_mark(const Arena *a)
{
    return (ArenaMark){a->top, a->top ? a->top->used : 0};
}

// frees blocks younger than the mark's; its own block is emptied to the mark
void arena_rewind(Arena *a, ArenaMark m)
{
    while (a->top != m.top) {
        ArenaBlock *b = a->top;
        a->top = b->below;
        mem_free(b);
    }
    if (a->top) a->top->used = m.used;
}

void arena_release(Arena *a)
{
    arena_rewind(a, (ArenaMark){NULL, 0});
}
