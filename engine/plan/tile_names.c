/* tile_names.c -- parses the text with tiles of layers. */
#include "engine/plan/tile_names.h"
#include <stdio.h>
#include <string.h>

enum { LEFT = 0, UNKNOWN = -1 };

/* Returns the next entry of a text, *length long, and advances *text. NULL at
 * the end. Skips spaces before it. */
static const char *next_entry(const char **text, size_t *length)
{
    if (!*text || !**text) return NULL;
    const char *entry = *text + strspn(*text, " ");
    *length = strcspn(entry, ",");
    *text = entry + *length + (entry[*length] == ',');
    return entry;
}

/* Are these `length` characters exactly `text`? */
static bool same_name(const char *name, size_t length, const char *text)
{
    return length == strlen(text) && !strncmp(name, text, length);
}

/* Checks that the characters are the label of a node of g that multiplies
 * (op_multiplies); else ERR_USAGE. */
static bool is_layer(const Graph *g, const char *label, size_t length)
{
    for (int i = 0; length && i < g->count; i++) {
        const Node *q = &g->node[i];
        if (q->kind == NODE_OP && op_multiplies((Op)q->attr.op) &&
            same_name(label, length, q->name))
            return true;
    }
    return fail_usage("tiles: no convolution is called \"%.*s\"; `plan` shows "
                      "the names of the layers",
                      (int)length, label);
}

/* Returns the number of a tile name; LEFT for "-". */
static int number_of(const Backend *be, const char *name, size_t length)
{
    const char *one;
    if (length == 1 && *name == '-') return LEFT;
    for (int i = 1; (one = be->tile(i)); i++)
        if (same_name(name, length, one)) return i;
    return UNKNOWN;
}

/* "LABEL=FORWARD/DATA" split in three; false if the form is wrong. */
typedef struct Entry {
    const char *part[3];
    size_t length[3];
} Entry;

static bool entry_of(const char *text, size_t length, Entry *e)
{
    const char *equals = memchr(text, '=', length), *end = text + length;
    const char *slash =
        equals ? memchr(equals, '/', (size_t)(end - equals)) : NULL;
    if (!slash) return false;
    *e = (Entry){{text, equals + 1, slash + 1},
                 {(size_t)(equals - text), (size_t)(slash - equals - 1),
                  (size_t)(end - slash - 1)}};
    return true;
}

void tiles_of(const char *which, const char *label, const Backend *be,
              int8_t tile[2])
{
    size_t length;
    Entry e;
    tile[0] = tile[1] = LEFT;
    if (!be->tile) return;
    for (const char *one; (one = next_entry(&which, &length));) {
        if (!entry_of(one, length, &e) ||
            !same_name(e.part[0], e.length[0], label))
            continue;
        for (int i = 0; i < 2; i++)
            tile[i] = (int8_t)number_of(be, e.part[1 + i], e.length[1 + i]);
    }
}

/* Lists the valid names for an error. */
static void list_tiles(const Backend *be, char text[ERR_MAX])
{
    const char *name;
    size_t used = 0;
    text[0] = 0;
    for (int i = 1; (name = be->tile(i)) && used < ERR_MAX; i++)
        used += (size_t)snprintf(text + used, ERR_MAX - used, "%s%s",
                                 i > 1 ? ", " : "", name);
}

bool tiles_valid(const char *which, const Graph *g, const Backend *be)
{
    size_t length;
    Entry e;

    for (const char *one; (one = next_entry(&which, &length));) {
        if (!entry_of(one, length, &e))
            return fail_usage("tiles: \"%.*s\" is not LAYER=FORWARD/DATA, as "
                              "enc1.conv2=128x64/-",
                              (int)length, one);
        if (!is_layer(g, e.part[0], e.length[0])) return false;
        for (int i = 1; i < 3 && be->tile; i++) {
            char known[ERR_MAX];
            if (number_of(be, e.part[i], e.length[i]) != UNKNOWN) continue;
            list_tiles(be, known);
            return fail_usage("tiles: %.*s: %s has no tile \"%.*s\"; known: "
                              "%.200s, or - for the default choice",
                              (int)e.length[0], e.part[0], be->name,
                              (int)e.length[i], e.part[i], known);
        }
    }
    return true;
}
