/* checkpoint_inside.h -- shared by the parts of checkpoints: checkpoint.c saves
 * and loads, checkpoint_kept.c holds one in memory until it can be written,
 * checkpoint_newest.c chooses one of a folder, checkpoint_words.c lists
 * mismatched names. */
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

/* A string that grows piece by piece; text beyond its size is cut. */
typedef struct Words {
    char text[ERR_MAX];
    size_t used;
    int count; /* number of listed names */
} Words;

void words_add(Words *w, const char *text);
void words_list(Words *w, const char *name);
void words_shape(Words *w, const int64_t *shape, int axes);

/* Prepares *w, the data that a save of this session writes. All that *w points
 * to, except the session, `m` and `extra`, lies in `mem`. Reasons do not name a
 * path. */
bool saving_make(Session *s, bool full, const Meta *m, const Extra *extra,
                 int extras, Arena *mem, StWrite *w);

/* True if the file has moments, so that a run can be resumed from it. */
bool is_full(const Meta *m);
/* Returns the number of updates, or -1 if the file does not say. */
int64_t steps_of(const Meta *m);
#endif
