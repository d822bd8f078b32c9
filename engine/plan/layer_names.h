/* layer_names.h -- names of layers in a text, with commas between. */
#ifndef SEG_ENGINE_PLAN_LAYER_NAMES_H
#define SEG_ENGINE_PLAN_LAYER_NAMES_H
#include "engine/graph/graph.h"

/* The next one of a text, *length long, which moves behind it; NULL at the end.
 * Spaces before it are passed over. */
const char *layer_next(const char **text, size_t *length);

/* Are these `length` characters all of `text`? */
bool layer_is(const char *label, size_t length, const char *text);

/* Are they the label of a node of g that multiplies (op_multiplies)? Else
 * ERR_USAGE, which begins with `what`. */
bool layer_valid(const Graph *g, const char *what, const char *label,
                 size_t length);
#endif
