/* user_cache.h -- the folder for files that the program can make again.
 *
 * $XDG_CACHE_HOME/segengine, or ~/.cache/segengine (XDG Base Directory
 * Specification). Nothing in it is needed: a user may delete it at any time. */
#ifndef SEG_ENGINE_BASE_USER_CACHE_H
#define SEG_ENGINE_BASE_USER_CACHE_H
#include "engine/base/mem.h"

/* Returns the path of file `name` in the folder, from `mem`; makes no folder.
 * NULL with a reason if the environment names none. */
char *user_cache_path(const char *name, Arena *mem);
#endif
