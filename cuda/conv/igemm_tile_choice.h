/* igemm_tile_choice.h -- the request for a tile of igemm_tile.cu, from outside.
 *
 * igemm_tile.cu chooses the tile of a call from its extents, by an estimate. A
 * bench times the other tiles and a test compares their bits; both request a
 * tile here for all calls of their thread. In the program, each call requests a
 * tile in Call.tile, set from the network's `tiles` (engine/plan/tile_names.h).
 */
#ifndef SEG_CUDA_CONV_IGEMM_TILE_CHOICE_H
#define SEG_CUDA_CONV_IGEMM_TILE_CHOICE_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Tiles are numbered 1 .. igemm_tile_count(). */
enum {
    TILE_ANY = 0,   /* the choice of igemm_tile.cu */
    TILE_NONE = -1, /* igemm_mma.cuh, without a tile */
};

/* Requests tile `number` for the calls of this thread, including their
 * workspace, instead of Call.tile. A call that cannot have this tile runs
 * without one. */
void igemm_tile_want(int number);
/* Does this thread request a tile? Then igemm_tile comes before the kernels of
 * Hopper GPUs. */
bool igemm_tile_wanted(void);
/* Returns the tile of this thread's last call of igemm_tile.cu, and resets it
 * to TILE_NONE. */
int igemm_tile_taken(void);

int igemm_tile_count(void);
/* "128x64", or "128x64-split" (split-K: one block for each slice of the k
 * axis); "none" for TILE_NONE. */
const char *igemm_tile_name(int number);
/* Backend.tile: NULL for a number without a tile. */
const char *igemm_tile_listed(int number);

#ifdef __cplusplus
}
#endif
#endif
