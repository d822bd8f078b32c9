/* mem.h -- host memory: checked sizes, one allocator, arenas.
 *
 * All host memory comes from mem_alloc, so that a test can make the n-th
 * request fail and count leaks. An Arena is a chain of blocks with a bump
 * allocator that is freed as a whole or back to a mark. Use it for objects with
 * the same lifetime. */
#ifndef SEG_ENGINE_BASE_MEM_H
#define SEG_ENGINE_BASE_MEM_H
#include "engine/base/err.h"
#include <stddef.h>
#include <stdint.h>

/* out = a * b or a + b; false with a reason on overflow. */
bool size_mul(size_t a, size_t b, size_t *out);
bool size_add(size_t a, size_t b, size_t *out);

/* Returns zeroed bytes, aligned to 64 bytes; NULL with a reason (bytes
 * requested) if there is not enough memory. A large request is refused if
 * mem_room reports less, because the kernel would kill the process when the
 * pages are filled. mem_alloc(0) returns a pointer that may be freed. */
void *mem_alloc(size_t bytes);
/* Resizes to `bytes` and keeps the content. New bytes are not zeroed, and the
 * 64-byte alignment is lost. On failure returns NULL and `p` stays valid. p may
 * be NULL. */
void *mem_realloc(void *p, size_t bytes);
void mem_free(void *p);             /* NULL is fine       */
char *mem_strdup(const char *text); /* free with mem_free */

/* As mem_alloc, for large blocks: uses the zero pages of the system without
 * writing them, so a page takes memory when it is first touched. Free with
 * mem_pages_free only. */
void *mem_pages(size_t bytes);
void mem_pages_free(void *p); /* NULL is fine */
/* Touches all pages that lie entirely in these bytes of a block. Other threads
 * may do so for other bytes at the same time. */
void mem_touch(void *p, size_t bytes);

/* Returns the bytes that this process may still take without swapping or being
 * killed; an estimate, as other processes take memory too. SIZE_MAX if the
 * system does not say. Files are read under `root`, which is "" except in
 * tests. */
size_t mem_room(const char *root);

/* For tests: lets `after` requests pass, then fails one (or all later ones if
 * `from_then_on`). after < 0 switches it off. */
void mem_fail_after(long after, bool from_then_on);
long mem_live(void); /* blocks allocated and not yet freed */

/* A zeroed Arena is empty; copying the struct moves the ownership. */
typedef struct Arena {
    struct ArenaBlock *top; /* newest block; NULL when empty */
} Arena;

/* The fill level of an arena. Rewinding to an older mark makes later marks
 * invalid. */
typedef struct ArenaMark {
    struct ArenaBlock *top; /* newest block at that moment */
    size_t used;            /* bytes used in it            */
} ArenaMark;

/* Zeroed, 64-byte aligned bytes that live until the arena is released. */
void *arena_alloc(Arena *a, size_t bytes);
/* As arena_alloc: NULL with a reason. */
char *arena_strdup(Arena *a, const char *text);
char *arena_printf(Arena *a, const char *fmt, ...) ERR_FORMAT(2, 3);
ArenaMark arena_mark(const Arena *a);
void arena_rewind(Arena *a, ArenaMark m); /* free all since the mark    */
void arena_release(Arena *a);             /* free all; a is empty again */

/* Allocates an array of `count` elements of `type`; checks the product. */
#define ARENA_NEW(a, type, count) \
    ((type *)arena_array(a, sizeof(type), (size_t)(count)))
void *arena_array(Arena *a, size_t size, size_t count);
#endif
