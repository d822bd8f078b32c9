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

/* Gives every buffer an offset such that two buffers with overlapping lifetimes
 * do not overlap; *bytes is the end of the highest. Largest first, each in the
 * lowest gap that fits: deterministic, and close to the lower bound for
 * U-shaped networks. More than 8,192 buffers are placed in the order of their
 * first use instead, in linear time for a chain. False only without memory for
 * its lists, or if the end is not addressable. */
bool place_buffers(Buffer *buffer, int count, size_t *bytes);
#endif
