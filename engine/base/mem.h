/* mem.h -- host memory: checked sizes, one allocator, arenas.
 *
 * Everything the program allocates on the host passes mem_alloc, so that a
 * test can make the n-th request fail and a leak can be counted. An Arena is
 * a chain of blocks that is filled by bumping and freed at once or back to a
 * mark; it is the owner of choice for things that live and die together. */
#ifndef SEG_ENGINE_BASE_MEM_H
#define SEG_ENGINE_BASE_MEM_H
#include "engine/base/err.h"
#include <stddef.h>
#include <stdint.h>

/* out = a * b or a + b; false with a reason when it does not fit. */
bool size_mul(size_t a, size_t b, size_t *out);
bool size_add(size_t a, size_t b, size_t *out);

/* Zeroed bytes, 64-byte aligned; NULL with a reason (bytes wanted) when there
 * are none: what is large is refused where mem_room has not so much, as the
 * kernel would end the process when it is filled. mem_alloc(0) gives a pointer
 * that may be freed. */
void *mem_alloc(size_t bytes);
/* Grow or shrink to `bytes`, keeping what was there; new bytes are not
 * zeroed and the 64-byte alignment is lost; on failure NULL and `p` stays
 * valid. p may be NULL. */
void *mem_realloc(void *p, size_t bytes);
void mem_free(void *p);             /* NULL is fine */
char *mem_strdup(const char *text); /* to be freed with mem_free */

/* As mem_alloc, for what is large: the zeros are those of fresh pages, which
 * nobody writes again, and which come when they are touched. Freed by
 * mem_pages_free and by no other. */
void *mem_pages(size_t bytes);
void mem_pages_free(void *p); /* NULL is fine */
/* All pages that lie wholly in this part of a block, now. May be called for
 * other parts in other threads meanwhile. */
void mem_touch(void *p, size_t bytes);

/* Bytes that this process may still take without swapping or being killed; not
 * a promise, as others take some too. SIZE_MAX where the system does not say.
 * root is "" but in tests: files are read below it. */
size_t mem_room(const char *root);

/* Tests: let `after` requests pass, then fail one (or every further one when
 * `from_then_on`). after < 0 switches it off. */
void mem_fail_after(long after, bool from_then_on);
long mem_live(void); /* blocks allocated and not yet freed */

/* A zeroed Arena is an empty one; copying the struct moves the ownership. */
typedef struct Arena {
    struct ArenaBlock *top; /* newest block; NULL when empty */
} Arena;

/* How full an arena was. A mark is worthless once the arena was rewound to an
 * older one. */
typedef struct ArenaMark {
    struct ArenaBlock *top; /* the newest block then */
    size_t used;            /* bytes of it           */
} ArenaMark;

/* Zeroed, 64-byte aligned bytes that live until the arena is released. */
void *arena_alloc(Arena *a, size_t bytes);
/* These return NULL with a reason like arena_alloc. */
char *arena_strdup(Arena *a, const char *text);
char *arena_printf(Arena *a, const char *fmt, ...) ERR_FORMAT(2, 3);
ArenaMark arena_mark(const Arena *a);
void arena_rewind(Arena *a, ArenaMark m); /* free all since the mark */
void arena_release(Arena *a);             /* free all; a is empty again */

/* Room for `count` things of `type`; the product is checked. */
#define ARENA_NEW(a, type, count) \
    ((type *)arena_array(a, sizeof(type), (size_t)(count)))
void *arena_array(Arena *a, size_t size, size_t count);
#endif
