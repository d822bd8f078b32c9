/* checkpoint_inside.h -- what the two parts of checkpoints share:
 * checkpoint.c saves and loads one, checkpoint_newest.c chooses among many. */
#ifndef SEG_CHECKPOINT_INSIDE_H
#define SEG_CHECKPOINT_INSIDE_H
#include "checkpoint.h"
#include <string.h>

static inline bool starts(const char *text, const char *with)
{
    return !strncmp(text, with, strlen(with));
}

static inline bool ends(const char *text, const char *with)
{
    size_t n = strlen(text), m = strlen(with);
    return n >= m && !strcmp(text + n - m, with);
}

/* Has moments, so that a run can go on from it. */
bool is_full(const Meta *m);
/* Updates so far, or -1 when the file does not say. */
int64_t steps_of(const Meta *m);
#endif
