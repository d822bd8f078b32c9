/* mem_plan.h -- offsets for buffers with lifetimes in one block of memory.
 *
 * Independent of tensors and calls: a plan describes each buffer by its size
 * and the first and last call that use it, and gets an offset. */
#ifndef SEG_ENGINE_PLAN_MEM_PLAN_H
#define SEG_ENGINE_PLAN_MEM_PLAN_H
#include "engine/base/err.h"
#include <stddef.h>

/* A piece of memory that is in use from call `first` to call `last`. */
typedef struct Buffer {
    size_t bytes;    /* a multiple of the caller's alignment */
    int first, last; /* first <= last                        */
    size_t at;       /* result: offset                       */
} Buffer;

/* Give every buffer an offset such that two that live at the same time do
 * not overlap; *bytes is the end of the highest. Largest first, each at the
 * lowest gap that holds it: deterministic, and close to the lower bound on
 * networks shaped like a U. Of more than 8,192 in the order of their beginnings
 * instead, in linear time for a chain. False only without memory for its lists,
 * or when the end is not addressable. */
bool place_buffers(Buffer *buffer, int count, size_t *bytes);
#endif
