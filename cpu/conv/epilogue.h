/* epilogue.h -- the epilogue of a convolution: Call.norm, then Call.act,
 * applied to results while they are in L1 or L2.
 *
 * It uses the kernels of the separate operators, so the bits are the same. A
 * task runs the epilogue over its results as soon as they are complete, after
 * the last chunk of their sums: one pass over a cache instead of two over
 * memory. */
#ifndef SEG_CPU_CONV_EPILOGUE_H
#define SEG_CPU_CONV_EPILOGUE_H
#include "cpu/lib/act.h"

/* Bytes of the tables that epilogue_of fills, rounded up to cache lines. */
size_t epilogue_bytes(const Call *c);
/* Returns the epilogue of a call that cpu_fuses accepts, empty without norm and
 * activation. table: NULL while only space is asked for. */
Epilogue epilogue_of(const Call *c, float *table);
/* Runs the epilogue over `pixels` contiguous pixels of `pitch` channels each. y
 * points to channel `from`, and `count` channels from there are finished. */
void epilogue_run(const Epilogue *t, float *y, int64_t pixels, int64_t pitch,
                  int64_t from, int64_t count);

/* Returns the epilogue for channels from `from` on. */
static inline Epilogue epilogue_at(const Epilogue *t, int64_t from)
{
    Epilogue at = *t;
    if (!at.norm.hi) return at;
    at.norm.hi += from, at.norm.lo += from;
    at.norm.scale += from, at.norm.beta += from;
    return at;
}

static inline bool has_epilogue(const Epilogue *t)
{
    return t->norm.hi || t->act.kind;
}
#endif
