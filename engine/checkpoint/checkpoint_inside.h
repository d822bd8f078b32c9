/* checkpoint_inside.h -- what the parts of checkpoints share: checkpoint.c
 * saves and loads one, checkpoint_kept.c holds one in memory until it can be
 * written, checkpoint_newest.c chooses among many, checkpoint_words.c lists
 * what does not fit. */
#ifndef SEG_ENGINE_CHECKPOINT_CHECKPOINT_INSIDE_H
#define SEG_ENGINE_CHECKPOINT_CHECKPOINT_INSIDE_H
#include "engine/checkpoint/checkpoint.h"
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

enum { LISTED = 3 }; /* names of each kind that a reason lists */

/* A sentence part that is built piece by piece; what does not fit is cut. */
typedef struct Words {
    char text[ERR_MAX];
    size_t used;
    int count; /* of the things listed */
} Words;

void words_add(Words *w, const char *text);
void words_list(Words *w, const char *name);
void words_shape(Words *w, const int64_t *shape, int axes);

/* What a save of this session writes, into *w: all that it points to, but the
 * session, `m` and `extra`, lies in `mem`. Reasons do not name a path. */
bool saving_make(Session *s, bool full, const Meta *m, const Extra *extra,
                 int extras, Arena *mem, StWrite *w);

/* Has moments, so that a run can go on from it. */
bool is_full(const Meta *m);
/* Updates so far, or -1 when the file does not say. */
int64_t steps_of(const Meta *m);
#endif
