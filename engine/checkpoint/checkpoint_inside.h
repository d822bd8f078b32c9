/* checkpoint_inside.h -- shared by the parts of checkpoints: checkpoint.c saves
 * and loads, snapshot.c holds one in memory until it is written,
 * checkpoint_newest.c chooses one of a folder. */
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

/* The data of a session that a checkpoint holds. */
typedef struct SessionData {
    const Params *params;
    bool ema, scaled; /* session_has_ema, session_scaled */
    StepState state;
} SessionData;

/* Refuses a session with steps under way. */
bool session_data(Session *s, SessionData *d);

/* Prepares *w, the content of the file of a checkpoint. All that *w points to,
 * except the parameters, `m` and `extra`, lies in `mem`. Reasons do not name a
 * path. */
bool saving_make(const SessionData *s, bool full, const Meta *m,
                 const Extra *extra, int extras, Arena *mem, StWrite *w);

/* True if the file has moments, so that a run can be resumed from it. */
bool is_full(const Meta *m);
/* Returns the number of updates, or -1 if the file does not say. */
int64_t steps_of(const Meta *m);
#endif
