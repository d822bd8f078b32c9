/* cgroup.h -- what the control groups of this process allow it.
 *
 * Batch systems and containers give a process a share of a machine by control
 * groups (cgroups), of version 1 or 2; each kind of share, a controller, has
 * files in the folder of the group. A group lies in others, whose limits hold
 * too. */
#ifndef SEG_ENGINE_BASE_CGROUP_H
#define SEG_ENGINE_BASE_CGROUP_H
#include <stdbool.h>
#include <stdint.h>

/* What the files of one group's folder allow; < 0: no limit, or none that can
 * be read. */
typedef int64_t CgroupFn(const char *folder);

/* The least that fn gives for the group of this process and those it lies in,
 * of a controller ("cpu", "memory"); < 0 where none has a limit. The files are
 * <root>/proc/self/cgroup and those under <root>/sys/fs/cgroup; root is "" but
 * in tests. */
int64_t cgroup_least(const char *root, const char *controller, CgroupFn *fn);

/* The first line of file `name` in a folder; false when it cannot be read. */
bool cgroup_line(const char *folder, const char *name, char *text, int size);
#endif
