/* map.h -- a file as bytes, without reading it.
 *
 * The kernel brings in the pages that are looked at and drops them again when
 * memory is short, so a file may be larger than memory. What is mapped is the
 * file itself: a page behind its end is a signal, not an error, so map_check
 * comes before every look at bytes that were not just opened. A file that is
 * written anew beside and renamed, as this program writes, stays as it was. */
#ifndef SEG_DATA_FORMAT_MAP_H
#define SEG_DATA_FORMAT_MAP_H
#include "engine/base/mem.h"

/* A zeroed Map is a closed one. */
typedef struct Map {
    const uint8_t *bytes; /* NULL when the file is empty    */
    size_t size;          /* bytes when it was opened       */
    bool open;
    int fd;     /* when open                      */
    char *path; /* for reasons, when open         */
} Map;

/* A regular file of at most `limit` bytes (0: any). Reasons name the path. */
bool map_open(const char *path, uint64_t limit, Map *m);
/* False when the file has become shorter since; true of a closed one. */
bool map_check(const Map *m);
/* Put the path, when open, in front of the reason; return false. */
bool map_within(const Map *m);
void map_close(Map *m); /* fine on a closed one */
#endif
