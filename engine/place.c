/* place.c -- packing intervals of time into one block of memory.
 *
 * The general problem is NP-hard. Largest first into the lowest gap is the
 * usual greedy answer: small buffers fill what large ones leave. Time is
 * O(n^2 log n) for n buffers; a large U-Net has some hundreds, so a plan takes
 * milliseconds. Sorting must not depend on the library's qsort (which need not
 * keep the order of equals): the places are part of what `plan` prints, and
 * the same network must print the same everywhere. */
#include "place.h"
#include "mem.h"
#include <stdlib.h>

/* Larger first; among equals the earlier, then the order of making, so that
 * the result does not depend on the sort. */
static int by_size(const void *a, const void *b)
{
    const Buffer *p = *(Buffer *const *)a, *q = *(Buffer *const *)b;
    if (p->bytes != q->bytes) return p->bytes < q->bytes ? 1 : -1;
    if (p->first != q->first) return p->first < q->first ? -1 : 1;
    return p < q ? -1 : p > q;
}

/* Lowest first; equals by the order of making. */
static int by_offset(const void *a, const void *b)
{
    const Buffer *p = *(Buffer *const *)a, *q = *(Buffer *const *)b;
    if (p->at != q->at) return p->at < q->at ? -1 : 1;
    return p < q ? -1 : p > q;
}

/* Lowest offset for b that keeps clear of the `n` placed buffers that live
 * when it does; `near` is room for n pointers. */
static size_t lowest_gap(const Buffer *b, Buffer *const *placed, int n,
                         Buffer **near)
{
    int m = 0;
    size_t at = 0; // the lowest place that no neighbour so far denies
    for (int i = 0; i < n; i++)
        if (placed[i]->first <= b->last && b->first <= placed[i]->last)
            near[m++] = placed[i];
    qsort(near, (size_t)m, sizeof *near, by_offset);
    for (int i = 0; i < m; i++) {
        if (near[i]->at >= at && near[i]->at - at >= b->bytes) break;
        // did not wrap: place_buffers checked it when this one was placed
        size_t end = near[i]->at + near[i]->bytes;
        if (end > at) at = end;
    }
    return at;
}

bool place_buffers(Buffer *buffer, int count, size_t *bytes)
{
    bool ok = false;
    size_t n = (size_t)count + 1; // never 0 bytes
    Buffer **order = mem_alloc(n * sizeof *order);
    Buffer **near = mem_alloc(n * sizeof *near);
    *bytes = 0;
    TRY(order && near);
    for (int i = 0; i < count; i++) order[i] = &buffer[i];
    qsort(order, (size_t)count, sizeof *order, by_size);
    for (int i = 0; i < count; i++) {
        size_t end;
        order[i]->at = lowest_gap(order[i], order, i, near);
        TRY(size_add(order[i]->at, order[i]->bytes, &end));
        if (end > *bytes) *bytes = end;
    }
    ok = true;
done:
    mem_free(order);
    mem_free(near);
    return ok;
}
