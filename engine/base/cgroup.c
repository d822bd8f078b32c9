/* cgroup.c -- visits the group of this process and its parents up to the
 * root. */
#include "engine/base/cgroup.h"
#include <stdio.h>
#include <string.h>

enum { PATH_BYTES = 1024 }; // longer names are skipped: no limit

bool cgroup_line(const char *folder, const char *name, char *text, int size)
{
    char path[PATH_BYTES + 64];
    int n = snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = n > 0 && n < (int)sizeof path ? fopen(path, "r") : NULL;
    if (!f) return false;
    bool ok = fgets(text, size, f) != NULL;
    fclose(f);
    return ok;
}

static int64_t lower(int64_t a, int64_t b)
{
    return a < 0 || (b >= 0 && b < a) ? b : a;
}

/* Returns the smallest limit of a group and its parents. A container often sees
 * its own group as the root, hence `base` itself is visited last. */
static int64_t least_of(const char *base, const char *group, CgroupFn *fn)
{
    char folder[PATH_BYTES];
    int n = snprintf(folder, sizeof folder, "%s%s", base, group);
    int64_t least = -1;
    if (n < 0 || n >= (int)sizeof folder) return -1;
    for (;;) {
        least = lower(least, fn(folder));
        if (strlen(folder) <= strlen(base)) return least;
        *strrchr(folder, '/') = 0;
    }
}

/* Is `name` an element of the comma-separated list `names`? */
static bool has_name(const char *names, const char *name)
{
    const size_t n = strlen(name);
    for (; names; names = strchr(names, ',')) {
        names += *names == ',';
        if (!strncmp(names, name, n) && (!names[n] || names[n] == ','))
            return true;
    }
    return false;
}

int64_t cgroup_least(const char *root, const char *controller, CgroupFn *fn)
{
    char path[PATH_BYTES], line[PATH_BYTES], base[PATH_BYTES];
    int64_t least = -1;
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *f = fopen(path, "r");
    if (!f) return -1;

    while (fgets(line, sizeof line, f)) {
        // "number:controllers:/group"; version 2 has no controllers
        line[strcspn(line, "\n")] = 0;
        // version 1 has a line per hierarchy; only the one with this controller
        // counts
        char *names = strchr(line, ':');
        char *group = names ? strchr(names + 1, ':') : NULL;
        if (!group) continue;
        *group++ = 0, names++;
        if (*group != '/' || (*names && !has_name(names, controller))) continue;
        int n = snprintf(base, sizeof base, "%.512s/sys/fs/cgroup%s%.64s", root,
                         *names ? "/" : "", names);
        if (n < 0 || n >= (int)sizeof base) continue;
        least =
            lower(least, least_of(base, strcmp(group, "/") ? group : "", fn));
    }

    fclose(f);
    return least;
}
