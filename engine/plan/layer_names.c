/* layer_names.c -- labels in a text. Few and short, so it is read again for
 * each node of a plan. */
#include "engine/plan/layer_names.h"
#include <string.h>

const char *layer_next(const char **text, size_t *length)
{
    if (!*text || !**text) return NULL;
    const char *label = *text + strspn(*text, " ");
    *length = strcspn(label, ",");
    *text = label + *length + (label[*length] == ',');
    return label;
}

bool layer_is(const char *label, size_t length, const char *text)
{
    return length == strlen(text) && !strncmp(label, text, length);
}

bool layer_valid(const Graph *g, const char *what, const char *label,
                 size_t length)
{
    for (int i = 0; length && i < g->count; i++) {
        const Node *q = &g->node[i];
        if (q->kind == NODE_OP && op_multiplies((Op)q->attr.op) &&
            layer_is(label, length, q->name))
            return true;
    }
    return fail_usage(
        "%s: no convolution is called \"%.*s\"; `plan` shows what "
        "layers are called",
        what, (int)length, label);
}
