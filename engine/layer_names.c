/* layer_names.c -- labels in a text. Few and short, so it is read again for
 * each node of a plan. */
#include "layer_names.h"
#include <string.h>

const char *layer_next(const char **text, size_t *length)
{
    if (!*text || !**text) return NULL;
    const char *label = *text + strspn(*text, " ");
    *length = strcspn(label, ",");
    *text = label + *length + (label[*length] == ',');
    return label;
}

bool layer_multiplies(const Graph *g, const char *label, size_t length)
{
    for (int i = 0; i < g->count; i++) {
        const Node *q = &g->node[i];
        if (q->kind == NODE_OP && op_multiplies((Op)q->attr.op) &&
            length == strlen(q->name) && !strncmp(label, q->name, length))
            return true;
    }
    return false;
}
