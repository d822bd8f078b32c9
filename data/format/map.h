/* map.h -- a memory-mapped file.
 *
 * The kernel loads the pages that are accessed and drops them again when memory
 * is short, so a file may be larger than memory. Access to a page beyond the
 * end of a file that has been truncated raises a signal, not an error, so
 * map_check is called before every access later than map_open. A file that is
 * replaced by writing a new one and renaming it, as this program does, stays
 * unchanged in the mapping. */
#ifndef SEG_DATA_FORMAT_MAP_H
#define SEG_DATA_FORMAT_MAP_H
#include "engine/base/mem.h"

/* A zero-initialised Map is closed. */
typedef struct Map {
    const uint8_t *bytes; /* NULL when the file is empty */
    size_t size;          /* size of the file when it was opened */
    bool open;
    int fd;     /* if open */
    char *path; /* for reasons, if open */
} Map;

/* Maps a regular file of at most `limit` bytes (0: any). Reasons name the
 * path. */
bool map_open(const char *path, uint64_t limit, Map *m);
/* Returns false when the file has become shorter since map_open; true for a
 * closed Map. */
bool map_check(const Map *m);
/* Prefixes the reason with the path, if open; returns false. */
bool map_within(const Map *m);
void map_close(Map *m); /* no effect on a closed Map */
#endif
