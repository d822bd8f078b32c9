/* no_winograd.c -- which layers are direct. */
#include "engine/plan/no_winograd.h"
#include "engine/plan/layer_names.h"
#include <string.h>

bool direct_has(const char *which, const char *label)
{
    size_t length;
    if (which && !strcmp(which, DIRECT_ALL)) return true;
    for (const char *one; (one = layer_next(&which, &length));)
        if (layer_is(one, length, label)) return true;
    return false;
}

bool direct_valid(const char *which, const Graph *g)
{
    size_t length;
    if (which && !strcmp(which, DIRECT_ALL)) return true;
    for (const char *one; (one = layer_next(&which, &length));)
        if (!layer_valid(g, "direct", one, length)) return false;
    return true;
}
