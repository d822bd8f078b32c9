/* layer_names.h -- names of layers in a text, with commas between. */
#ifndef SEG_LAYER_NAMES_H
#define SEG_LAYER_NAMES_H
#include "graph.h"

/* The next one of a text, *length long, which moves behind it; NULL at the end.
 * Spaces before it are passed over. */
const char *layer_next(const char **text, size_t *length);

/* Are these `length` characters the label of a node of g that multiplies
 * (op_multiplies)? */
bool layer_multiplies(const Graph *g, const char *label, size_t length);
#endif
