/* direct.c -- labels in a text. Few and short, so it is read again for each
 * node of a plan. */
#include "direct.h"
#include <string.h>

/* The next label of a text, *length long, which moves behind it; NULL at the
 * end. A space may stand before it. */
static const char *next(const char **text, size_t *length)
{
    if (!*text || !**text) return NULL;
    const char *label = *text + strspn(*text, " ");
    *length = strcspn(label, ",");
    *text = label + *length + (label[*length] == ',');
    return label;
}

bool direct_has(const char *which, const char *label)
{
    size_t length;
    if (which && !strcmp(which, DIRECT_ALL)) return true;
    for (const char *one; (one = next(&which, &length));)
        if (length == strlen(label) && !strncmp(one, label, length))
            return true;
    return false;
}

/* A node that Call.direct may mean something to is called so. */
static bool is_label(const Graph *g, const char *label, size_t length)
{
    for (int i = 0; i < g->count; i++) {
        const Node *q = &g->node[i];
        if (q->kind == NODE_OP && op_multiplies((Op)q->attr.op) &&
            length == strlen(q->name) && !strncmp(label, q->name, length))
            return true;
    }
    return false;
}

bool direct_valid(const char *which, const Graph *g)
{
    size_t length;
    if (which && !strcmp(which, DIRECT_ALL)) return true;
    for (const char *one; (one = next(&which, &length));)
        if (!length || !is_label(g, one, length))
            return fail_usage("direct: no convolution is called \"%.*s\"; "
                              "`plan` shows what layers are called",
                              (int)length, one);
    return true;
}
