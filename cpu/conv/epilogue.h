/* epilogue.h -- what a convolution does to its results while they are in a near
 * cache: Call.norm, then Call.act.
 *
 * The kernels are those of the rows themselves, so the bits are theirs. Results
 * of a task are taken as soon as they are complete, after the last chunk of
 * their sums: a pass over a cache instead of two over memory. */
#ifndef SEG_CPU_CONV_EPILOGUE_H
#define SEG_CPU_CONV_EPILOGUE_H
#include "cpu/lib/act.h"

/* Bytes of the tables that epilogue_of fills, whole lines of a cache. */
size_t epilogue_bytes(const Call *c);
/* Of a call that cpu_fuses takes; one that does nothing where it has neither.
 * table: NULL while space is asked for. */
Epilogue epilogue_of(const Call *c, float *table);
/* `pixels` neighbours of `pitch` channels each, of which `count` from `from`
 * on stand at y. */
void epilogue_run(const Epilogue *t, float *y, int64_t pixels, int64_t pitch,
                  int64_t from, int64_t count);

/* The same, of channels from `from` on. */
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
