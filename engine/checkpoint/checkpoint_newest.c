/* checkpoint_newest.c -- finds the checkpoint to resume from.
 *
 * It is the intact one with the most steps. The user is told which ones were
 * skipped and why: a damaged newest one costs an epoch or more. */
#include "engine/checkpoint/checkpoint_inside.h"
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>

/* A file that may be the newest. */
typedef struct Candidate {
    const char *path, *name;
    int64_t steps;   // -1: not known
    const char *why; // reason not to use it, or NULL
} Candidate;

static bool is_last(const Candidate *c)
{
    return !strcmp(c->name, "checkpoint_last.safetensors");
}

/* Sorts checkpoints by their number of optimiser steps, most first. A file
 * whose number is unknown (its header is damaged or has none) comes before all
 * others: it may have been the newest, and the user should learn why it is not
 * used. */
static int by_steps(const void *a, const void *b)
{
    const Candidate *x = a, *y = b;
    bool lost = x->steps < 0;
    if (lost != (y->steps < 0)) return lost ? -1 : 1;
    if (x->steps != y->steps) return x->steps > y->steps ? -1 : 1;
    if (is_last(x) != is_last(y)) return is_last(x) ? -1 : 1;
    return strcmp(x->name, y->name);
}

/* Reads the header; a damaged file becomes a candidate with `why`. False only
 * for failures that are not the file's fault. */
static bool candidate_make(const char *folder, const char *name, Arena *mem,
                           Candidate *c)
{
    Meta m;
    *c = (Candidate){.steps = -1};
    c->path = arena_printf(mem, "%s/%s", folder, name);
    c->name = arena_strdup(mem, name);
    if (!c->path || !c->name) return false;
    if (!checkpoint_meta(c->path, mem, &m)) {
        // a lack of memory says nothing about the file
        if (err_kind() != ERR_DATA) return false;
        return (c->why = arena_strdup(mem, err_text()));
    }

    c->steps = steps_of(&m);
    if (!is_full(&m) || c->steps < 0)
        c->why = arena_printf(mem, "%s: checkpoint: it has no optimiser state",
                              c->path);
    return true;
}

/* All checkpoint_*.safetensors of a folder. */
static bool candidates(const char *folder, Arena *mem, Candidate **list,
                       int *count)
{
    DIR *dir = opendir(folder);
    if (!dir) return fail_data("cannot list %s: %s", folder, strerror(errno));
    bool ok = true;
    int room = 0;
    *list = NULL;
    *count = 0;

    for (struct dirent *e; ok && (e = readdir(dir));) {
        if (!starts(e->d_name, "checkpoint_") ||
            !ends(e->d_name, ".safetensors"))
            continue;
        if (*count == room) {
            room = room ? 2 * room : 16;
            Candidate *wider = ARENA_NEW(mem, Candidate, room);
            if (!(ok = wider)) break;
            if (*count) memcpy(wider, *list, (size_t)*count * sizeof *wider);
            *list = wider;
        }
        ok = candidate_make(folder, e->d_name, mem, *list + *count);
        *count += ok;
    }

    closedir(dir);
    return ok;
}

bool checkpoint_newest(const char *folder, Arena *mem, const char **path,
                       const char **said)
{
    Candidate *list = NULL;
    int count = 0;
    const char *all = "";

    *said = "";
    if (!candidates(folder, mem, &list, &count)) return false;
    if (!count)
        return fail_data("%s: no checkpoint_*.safetensors in this folder",
                         folder);

    // best first: usually the first one is good, and the others are never read
    qsort(list, (size_t)count, sizeof *list, by_steps);

    for (int i = 0; i < count; i++) {
        Candidate *c = list + i;
        // reads the data of usable candidates only; the load verifies the file
        // again, as time may pass in between
        if (!c->why && checkpoint_verify(c->path)) {
            *path = c->path;
            return true;
        }
        if (!c->why && err_kind() != ERR_DATA) return false;
        if (!c->why) c->why = arena_strdup(mem, err_text());
        if (!c->why) return false;
        *said = arena_printf(mem, "%s%s\n", *said, c->why);
        all = arena_printf(mem, "%s%s%s", all, i ? "; " : "", c->why);
        if (!*said || !all) return false;
    }
    return fail_data("%s: no checkpoint can be used: %s", folder, all);
}
