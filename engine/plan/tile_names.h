/* tile_names.h -- which tile the products of a convolution take where a backend
 * has several (Call.tile, Backend.tile): a fixed choice by extents is a guess
 * for GPUs that nobody measured.
 *
 * Said by a text, "enc1.conv2=128x64/64x64-split,dec1.conv1=-/128x128": labels
 * of nodes, each with the tile of its forward product and that of the product
 * to its data; "-" leaves one to the backend. NULL or "": all are. Products
 * have the same bits with any tile; sums over a result that a norm takes from
 * it are made tile by tile, so a run keeps its text. */
#ifndef SEG_ENGINE_PLAN_TILE_NAMES_H
#define SEG_ENGINE_PLAN_TILE_NAMES_H
#include "engine/backend/backend.h"
#include "engine/graph/graph.h"

/* The tiles of the node with this label: numbers of `be`, 0 where it is left
 * to choose. Of a valid text. */
void tiles_of(const char *which, const char *label, const Backend *be,
              int8_t tile[2]);

/* Each label is that of a convolution of g, each tile one that `be` has, where
 * it has any; else ERR_USAGE with the first that is not. */
bool tiles_valid(const char *which, const Graph *g, const Backend *be);
#endif
