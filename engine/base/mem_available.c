/* mem_available.c -- how much memory this process may still take.
 *
 * The minimum of four numbers: the memory that the machine has without
 * swapping, the limits of the control groups (cached files of a group count as
 * free: the kernel drops them first), and two limits of ulimit. Swap does not
 * count: a training touches all its memory in every step and would stall if a
 * part were on disk. The cache of ZFS (ARC) is not in MemAvailable although the
 * kernel reclaims it: on such a machine the result is too small, and
 * zfs_arc_max limits that cache. */
#include "engine/base/cgroup.h"
#include "engine/base/mem.h"
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* Returns the number of `key` in a file of lines "key number"; -1: none. */
static int64_t number_of(const char *path, const char *key)
{
    char line[256];
    long long v = -1;
    const size_t n = strlen(key);
    FILE *f = fopen(path, "r");
    if (!f) return -1;
    while (v < 0 && fgets(line, sizeof line, f))
        if (!strncmp(line, key, n) && sscanf(line + n, "%lld", &v) != 1) v = -1;
    fclose(f);
    return v;
}

/* Returns the number in a file that holds one; -1: none, also for "max". */
static int64_t number_in(const char *folder, const char *name)
{
    char text[64];
    long long v;
    if (!cgroup_line(folder, name, text, sizeof text)) return -1;
    return sscanf(text, "%lld", &v) == 1 ? v : -1;
}

/* Returns the memory that the limit of the cgroup at `folder` still allows, -1
 * if there is no limit: of cgroup version 2, else of version 1. Above
 * memory.high a process is not killed but throttled until it makes no progress,
 * so that is a limit too. Cached files count as free, active or not. */
static int64_t left_in_group(const char *folder)
{
    static const char *const cached[2][2] = {
        {"inactive_file ", "active_file "},
        {"total_inactive_file ", "total_active_file "}};
    char path[1200];
    int version = 0;
    int64_t limit = number_in(folder, "memory.max");
    int64_t high = number_in(folder, "memory.high");
    int64_t used = number_in(folder, "memory.current");

    if (limit < 0 || (high >= 0 && high < limit)) limit = high;
    if (limit < 0) {
        limit = number_in(folder, "memory.limit_in_bytes");
        used = number_in(folder, "memory.usage_in_bytes");
        version = 1;
    }

    if (limit < 0 || used < 0) return -1;
    snprintf(path, sizeof path, "%s/memory.stat", folder);
    for (int i = 0; i < 2; i++) {
        const int64_t files = number_of(path, cached[version][i]);
        if (files > 0) used -= files < used ? files : used;
    }
    return used < limit ? limit - used : 0;
}

/* Returns how much of an rlimit is left, given the use in field `place` of
 * /proc/self/statm: 0 address space, 5 data. */
static int64_t left_of_limit(const char *root, int resource, int place)
{
    char text[128], folder[600];
    struct rlimit limit;
    long long pages[6] = {0};
    snprintf(folder, sizeof folder, "%.512s/proc/self", root);

    if (getrlimit(resource, &limit) || limit.rlim_cur == RLIM_INFINITY ||
        limit.rlim_cur > INT64_MAX ||
        !cgroup_line(folder, "statm", text, sizeof text) ||
        sscanf(text, "%lld %lld %lld %lld %lld %lld", &pages[0], &pages[1],
               &pages[2], &pages[3], &pages[4], &pages[5]) != 6)
        return -1;

    int64_t used = pages[place] * sysconf(_SC_PAGESIZE);
    return used < (int64_t)limit.rlim_cur ? (int64_t)limit.rlim_cur - used : 0;
}

size_t mem_room(const char *root)
{
    char path[600];
    snprintf(path, sizeof path, "%.512s/proc/meminfo", root);
    int64_t machine = number_of(path, "MemAvailable:");
    const int64_t left[] = {machine < 0 ? -1 : machine << 10,
                            cgroup_least(root, "memory", left_in_group),
                            left_of_limit(root, RLIMIT_AS, 0),
                            left_of_limit(root, RLIMIT_DATA, 5)};
    size_t least = SIZE_MAX;
    for (size_t i = 0; i < sizeof left / sizeof *left; i++)
        if (left[i] >= 0 && (size_t)left[i] < least) least = (size_t)left[i];
    return least;
}
