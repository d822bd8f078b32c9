#include "engine/base/user_cache.h"
#include <stdlib.h>

/* Returns the value of a variable that is the absolute path of a folder; else
 * NULL: the specification has a relative path ignored. */
static const char *absolute(const char *variable)
{
    const char *text = getenv(variable);
    return text && *text == '/' ? text : NULL;
}

char *user_cache_path(const char *name, Arena *mem)
{
    const char *cache = absolute("XDG_CACHE_HOME"), *home = absolute("HOME");
    if (cache) return arena_printf(mem, "%s/segengine/%s", cache, name);
    if (home) return arena_printf(mem, "%s/.cache/segengine/%s", home, name);
    fail("no cache folder: neither XDG_CACHE_HOME nor HOME is an absolute "
         "path; fix: set XDG_CACHE_HOME to a folder that can be written");
    return NULL;
}
