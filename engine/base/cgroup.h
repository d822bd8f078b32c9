/* cgroup.h -- the limits that Linux control groups set for this process.
 *
 * Batch systems and containers limit the resources of a process by control
 * groups (cgroups), version 1 or 2. Each resource has a controller, and its
 * limits are in files in the folder of the group. Groups nest, and the limits
 * of all enclosing groups apply too. */
#ifndef SEG_ENGINE_BASE_CGROUP_H
#define SEG_ENGINE_BASE_CGROUP_H
#include <stdbool.h>
#include <stdint.h>

/* Reads the limit from the files in the folder of one group; < 0: no limit, or
 * it cannot be read. */
typedef int64_t CgroupFn(const char *folder);

/* Returns the smallest limit that fn reads for the group of this process and
 * all groups that enclose it, for one controller ("cpu", "memory"); < 0 if none
 * has a limit. Reads <root>/proc/self/cgroup and the files under
 * <root>/sys/fs/cgroup; root is "" except in tests. */
int64_t cgroup_least(const char *root, const char *controller, CgroupFn *fn);

/* Reads the first line of file `name` in a folder; false if it cannot be
 * read. */
bool cgroup_line(const char *folder, const char *name, char *text, int size);
#endif
