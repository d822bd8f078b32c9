/* mem.c -- the allocator with its test hooks, and arenas on top of it.
 *
 * Blocks come zeroed and aligned to a cache line (which is also the widest
 * vector register), so that a kernel may use aligned loads on any of them and
 * no run depends on what was in memory before. Test hooks sit in front of
 * every request: with mem_fail_after a test walks through the failure of the
 * first, second, third ... allocation of an operation, and mem_live tells
 * whether each of those ways gave everything back. */
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
    BLOCK_BYTES = 64 * 1024, // least room of an arena's block
    LARGE = 8 << 20,         // bytes from which on it is asked what is free
    SLACK = 8 << 20,         // bytes that stay free for all that is smaller
};

// test hooks; atomics because workers allocate too
static atomic_long live;           // blocks given out
static atomic_long countdown = -1; // requests that still pass; < 0: off
static atomic_bool keep_failing;

// PTRDIFF_MAX, not SIZE_MAX: differences of pointers must fit as well, and
// no allocator gives more
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

/* True when this request is the one that a test wants to fail. */
static bool injected(void)
{
    if (countdown < 0) return false;
    long left = atomic_fetch_sub(&countdown, 1);
    if (left > 0) return false;
    // another thread took the turn between the two lines above
    if (left < 0) {
        countdown = -1;
        return false;
    }
    countdown = keep_failing ? 0 : -1;
    return true;
}

/* NULL with the reason that there is no memory. */
static void *none(size_t bytes)
{
    fail_memory(ERR_FAILURE, bytes, 0,
                "no memory: %zu bytes wanted; fix: smaller images, batch or "
                "cache, or fewer workers",
                bytes);
    return NULL;
}

/* The system gives addresses freely and ends the process when it fills more of
 * them than there is memory, so what is large is asked for before. Bytes that
 * were granted to one thread and are not filled yet are not there for others.
 */
static atomic_size_t granted;

static bool grant(size_t bytes)
{
    if (bytes < LARGE) return true;
    const size_t others = atomic_fetch_add(&granted, bytes);
    const size_t room = mem_room(""), taken = others + SLACK;
    if (room == SIZE_MAX || (taken < room && bytes <= room - taken))
        return true;
    atomic_fetch_sub(&granted, bytes);
    return fail_memory(
        ERR_FAILURE, bytes, taken < room ? room - taken : 0,
        "no memory: %zu bytes wanted, %zu are free; fix: smaller "
        "images, batch or cache, or fewer workers",
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
    room = room / ALIGN * ALIGN; // aligned_alloc wants a multiple
    if (!grant(bytes)) return NULL;
    void *p = injected() ? NULL : aligned_alloc(ALIGN, room);
    if (p) memset(p, 0, room);
    filled(bytes);
    if (!p) return none(bytes);
    live++;
    return p;
}

// realloc keeps no alignment beyond that of malloc, which is why nothing that
// a kernel sees is ever grown
void *mem_realloc(void *p, size_t bytes)
{
    if (bytes > PTRDIFF_MAX) return none(bytes);
    // what grows may have to move, and is there twice then
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

/* calloc leaves pages alone that it has just got from the system. What it gave
 * stands before the bytes that are handed out, which are aligned further on. */
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

/* All pages in one request: a fault for each took 0.2 s more for 600 MiB. Where
 * the system knows no such request, or refuses it, they come one by one. Huge
 * pages (MADV_HUGEPAGE) took longer to fill on the machines at hand, which are
 * virtual, and made no step faster. */
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

/* The first unit of a block; the bytes that are handed out follow. */
typedef struct ArenaBlock {
    struct ArenaBlock *below;
    size_t used, room; /* bytes after the header, multiples of ALIGN */
} ArenaBlock;

// the header takes one aligned unit so that what follows is aligned too
_Static_assert(sizeof(ArenaBlock) <= ALIGN, "header fits one unit");

void *arena_alloc(Arena *a, size_t bytes)
{
    size_t want;
    if (!size_add(bytes ? bytes : 1, ALIGN - 1, &want)) return NULL;
    want = want / ALIGN * ALIGN;
    if (!a->top || a->top->room - a->top->used < want) {
        // what is left of the old block is lost: marks need a simple stack
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

// twice through vsnprintf: once to learn the length
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

// blocks younger than the mark's go; the mark's own is only emptied to it
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
