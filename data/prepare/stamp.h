/* stamp.h -- what a prepared case depends on, as one number.
 *
 * Two prepared cases with the same stamp are equal: it covers the steps, the
 * fields and options of the data set, and of each file its size, time of
 * change, and first and last 64 KiB. Neither names nor paths are in it. */
#ifndef SEG_STAMP_H
#define SEG_STAMP_H
#include "dataset.h"
#include "step.h"

typedef struct Stamp {
    uint64_t word[2];
} Stamp;

/* One more piece of what a case depends on. */
void stamp_add(Stamp *s, const void *data, size_t bytes);

/* What all cases of a data set have in common: fields, options, steps. False
 * without memory. */
bool stamp_begin(const Dataset *ds, const Steps *steps, Stamp *out);

/* That of a case, from what they have in common. False when a file cannot be
 * read, or a source does not say what it depends on. */
bool stamp_case(const Stamp *common, const Dataset *ds, int item, Stamp *out);

/* The order of two stamps, as of numbers. */
int stamp_order(const Stamp *a, const Stamp *b);
#endif
