/* mem_plan.c -- packs buffers with lifetimes into one block of memory.
 *
 * The problem is NP-hard. The usual greedy answer places the largest buffer
 * first, each into the lowest gap: small buffers fill the gaps that large ones
 * leave. Time is O(n^2 log n) for n buffers; a large U-Net has some hundreds,
 * so a plan takes milliseconds. More than MANY, as in networks of thousands of
 * layers, are placed in the order of their first use, as an allocator would at
 * run time, each into the lowest gap among the live ones: time grows with n and
 * the number of gaps, which is small for a chain. The sort must not depend on
 * the library's qsort, which need not keep the order of equal elements: `plan`
 * prints the offsets, and they must be the same on every system. */
#include "engine/plan/mem_plan.h"
#include "engine/base/mem.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Larger first; among equals the earlier, then by index, so that the result
 * does not depend on the sort. */
static int by_size(const void *a, const void *b)
{
    const Buffer *p = *(Buffer *const *)a, *q = *(Buffer *const *)b;
    if (p->bytes != q->bytes) return p->bytes < q->bytes ? 1 : -1;
    if (p->first != q->first) return p->first < q->first ? -1 : 1;
    return p < q ? -1 : p > q;
}

/* Lowest first; equals by index. */
static int by_offset(const void *a, const void *b)
{
    const Buffer *p = *(Buffer *const *)a, *q = *(Buffer *const *)b;
    if (p->at != q->at) return p->at < q->at ? -1 : 1;
    return p < q ? -1 : p > q;
}

/* Returns the lowest offset for b that avoids the `n` placed buffers with
 * overlapping lifetimes; `near` is room for n pointers. */
static size_t lowest_gap(const Buffer *b, Buffer *const *placed, int n,
                         Buffer **near)
{
    int m = 0;
    size_t at = 0; // the lowest offset free of the neighbours so far
    for (int i = 0; i < n; i++)
        if (placed[i]->first <= b->last && b->first <= placed[i]->last)
            near[m++] = placed[i];
    qsort(near, (size_t)m, sizeof *near, by_offset);

    for (int i = 0; i < m; i++) {
        if (near[i]->at >= at && near[i]->at - at >= b->bytes) break;
        // no overflow: place_buffers checked it when this buffer was placed
        size_t end = near[i]->at + near[i]->bytes;
        if (end > at) at = end;
    }
    return at;
}

enum { MANY = 8192 };

/* Earlier first; among equals the larger, then by index. */
static int by_begin(const void *a, const void *b)
{
    const Buffer *p = *(Buffer *const *)a, *q = *(Buffer *const *)b;
    if (p->first != q->first) return p->first < q->first ? -1 : 1;
    return by_size(a, b);
}

/* Earlier end first. */
static int by_end(const void *a, const void *b)
{
    const Buffer *p = *(Buffer *const *)a, *q = *(Buffer *const *)b;
    if (p->last != q->last) return p->last < q->last ? -1 : 1;
    return p < q ? -1 : p > q;
}

/* Free bytes at .. end-1; the last gap has no end. */
typedef struct Gap {
    size_t at, end;
} Gap;

/* Gaps in the order of their offsets; adjacent gaps are merged. */
typedef struct Gaps {
    Gap *gap;
    int count;
} Gaps;

static void gap_remove(Gaps *g, int i)
{
    memmove(g->gap + i, g->gap + i + 1,
            (size_t)(--g->count - i) * sizeof *g->gap);
}

/* Frees bytes at .. end-1. */
static void gap_return(Gaps *g, size_t at, size_t end)
{
    int lo = 0, hi = g->count; // the first gap after these bytes
    if (at == end) return;

    while (lo < hi) {
        const int mid = lo + (hi - lo) / 2;
        if (g->gap[mid].at < end)
            lo = mid + 1;
        else
            hi = mid;
    }

    const bool before = lo > 0 && g->gap[lo - 1].end == at;
    const bool behind = lo < g->count && g->gap[lo].at == end;

    if (before && behind) {
        g->gap[lo - 1].end = g->gap[lo].end;
        gap_remove(g, lo);
    } else if (before) {
        g->gap[lo - 1].end = end;
    } else if (behind) {
        g->gap[lo].at = at;
    } else {
        memmove(g->gap + lo + 1, g->gap + lo,
                (size_t)(g->count++ - lo) * sizeof *g->gap);
        g->gap[lo] = (Gap){at, end};
    }
}

/* Takes so many bytes at the lowest possible offset; false if the end is not
 * addressable. */
static bool gap_take(Gaps *g, size_t bytes, size_t *at)
{
    int i = 0;
    while (i < g->count && g->gap[i].end - g->gap[i].at < bytes) i++;
    if (i == g->count) return fail("a plan is larger than what is addressable");
    *at = g->gap[i].at;
    g->gap[i].at += bytes;
    if (g->gap[i].at == g->gap[i].end) gap_remove(g, i);
    return true;
}

/* Places `count` buffers in the order of their first use; both lists hold
 * all. */
static bool place_in_time(Buffer **begin, Buffer **end, int count,
                          size_t *bytes)
{
    Gaps g = {.gap = mem_alloc(((size_t)count + 2) * sizeof *g.gap)};
    bool ok = false;
    TRY(g.gap);
    g.gap[g.count++] = (Gap){0, SIZE_MAX};
    qsort(begin, (size_t)count, sizeof *begin, by_begin);
    qsort(end, (size_t)count, sizeof *end, by_end);

    for (int i = 0, gone = 0; i < count; i++) {
        Buffer *b = begin[i];
        for (; end[gone]->last < b->first; gone++)
            gap_return(&g, end[gone]->at, end[gone]->at + end[gone]->bytes);
        TRY(gap_take(&g, b->bytes, &b->at));
        if (b->at + b->bytes > *bytes) *bytes = b->at + b->bytes;
    }

    ok = true;

done:
    mem_free(g.gap);
    return ok;
}

bool place_buffers(Buffer *buffer, int count, size_t *bytes)
{
    bool ok = false;
    size_t n = (size_t)count + 1; // never 0 bytes
    Buffer **order = mem_alloc(n * sizeof *order);
    Buffer **near = mem_alloc(n * sizeof *near);

    *bytes = 0;
    TRY(order && near);
    for (int i = 0; i < count; i++) order[i] = near[i] = &buffer[i];
    if (count > MANY) {
        ok = place_in_time(order, near, count, bytes);
        goto done;
    }
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
