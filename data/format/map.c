/* map.c -- a wrapper of mmap in four functions.
 *
 * The descriptor stays open, because only fstat on it shows that another
 * program has truncated the file. Between that check and the access there is a
 * moment that cannot be closed: a program that truncates a file in place during
 * training may still terminate this one. */
#include "data/format/map.h"
#include "engine/base/file.h"
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

bool map_open(const char *path, uint64_t limit, Map *m)
{
    uint64_t size;
    *m = (Map){0};
    m->path = mem_strdup(path);
    m->open = m->path && file_open(path, &m->fd, &size);
    if (!m->open) {
        map_close(m);
        return false;
    }

    // 32-bit machines can open files that they cannot address
    if ((limit && size > limit) || size > SIZE_MAX / 2) {
        fail_data("%s has %llu bytes, limit %llu", path,
                  (unsigned long long)size, (unsigned long long)limit);
        map_close(m);
        return false;
    }

    // an empty file cannot be mapped; its meaning depends on the format
    if (!size) return true;
    void *p = mmap(NULL, (size_t)size, PROT_READ, MAP_PRIVATE, m->fd, (off_t)0);
    if (p == MAP_FAILED) {
        fail("cannot map %s: %s", path, strerror(errno));
        map_close(m);
        return false;
    }

    m->bytes = p;
    m->size = (size_t)size;
    return true;
}

bool map_check(const Map *m)
{
    struct stat st;
    if (!m->open) return true;
    if (fstat(m->fd, &st)) return fail_data("cannot read: %s", strerror(errno));
    if ((uint64_t)st.st_size < m->size)
        return fail_data("file was cut to %lld bytes while it was in use, had "
                         "%zu",
                         (long long)st.st_size, m->size);
    return true;
}

bool map_within(const Map *m)
{
    return m->open ? within("%s", m->path) : false;
}

void map_close(Map *m)
{
    // neither mmap nor munmap takes const
    if (m->bytes) munmap((void *)m->bytes, m->size);
    if (m->open) close(m->fd);
    mem_free(m->path);
    *m = (Map){0};
}
