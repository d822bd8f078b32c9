/* tile_names.h -- the tile of each convolution, where a backend has several
 * (Call.tile, Backend.tile).
 *
 * A text such as "enc1.conv2=128x64/64x64-split,dec1.conv1=-/128x128": labels
 * of nodes, each with the tiles of y and of dx; "-" leaves one to the
 * backend. NULL or "": the backend chooses all. A product has the same bits
 * with any tile; the statistics that a norm takes from it are summed tile by
 * tile, so a run keeps its text. */
#ifndef SEG_ENGINE_PLAN_TILE_NAMES_H
#define SEG_ENGINE_PLAN_TILE_NAMES_H
#include "engine/backend/backend.h"
#include "engine/graph/graph.h"

/* Sets tile[2] to the tiles that the text `which` names for the node with this
 * label, as numbers of `be`; 0: the backend chooses. `which` must be valid. */
void tiles_of(const char *which, const char *label, const Backend *be,
              int8_t tile[2]);

/* Each label is that of a convolution of g, each tile one that `be` has, where
 * it has any; else ERR_USAGE with the first that is not. */
bool tiles_valid(const char *which, const Graph *g, const Backend *be);
#endif
