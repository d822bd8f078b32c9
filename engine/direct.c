/* direct.c -- which layers are direct. */
#include "direct.h"
#include "layer_names.h"
#include <string.h>

bool direct_has(const char *which, const char *label)
{
    size_t length;
    if (which && !strcmp(which, DIRECT_ALL)) return true;
    for (const char *one; (one = layer_next(&which, &length));)
        if (length == strlen(label) && !strncmp(one, label, length))
            return true;
    return false;
}

bool direct_valid(const char *which, const Graph *g)
{
    size_t length;
    if (which && !strcmp(which, DIRECT_ALL)) return true;
    for (const char *one; (one = layer_next(&which, &length));)
        if (!length || !layer_multiplies(g, one, length))
            return fail_usage("direct: no convolution is called \"%.*s\"; "
                              "`plan` shows what layers are called",
                              (int)length, one);
    return true;
}
