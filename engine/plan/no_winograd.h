/* no_winograd.h -- which convolutions sum their products as they stand
 * (Call.direct) where the backend has a faster way with other errors
 * (docs/numerics.md).
 *
 * Said by a text: labels of nodes with commas between, DIRECT_ALL, or NULL for
 * none. Labels, as numbers of nodes are others once a recipe has changed. */
#ifndef SEG_ENGINE_PLAN_NO_WINOGRAD_H
#define SEG_ENGINE_PLAN_NO_WINOGRAD_H
#include "engine/graph/graph.h"

#define DIRECT_ALL "*"

/* Is the node with this label among them? */
bool direct_has(const char *which, const char *label);

/* Each of them is the label of a convolution of g; else ERR_USAGE with the
 * first that is not. */
bool direct_valid(const char *which, const Graph *g);
#endif
