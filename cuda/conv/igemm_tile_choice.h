/* igemm_tile_choice.h -- which tile a convolution takes, said from outside.
 *
 * igemm_tile.cu chooses by the extents of a call, by an estimate that nobody
 * had measured when it was written. A bench has to time the others, and a test
 * to show that all give the same bits; both say here what they want of the
 * calls of their thread. Of the program each call says what it asks for:
 * Call.tile, which the network's `tiles` tells it (engine/plan/tile_names.h).
 */
#ifndef SEG_CUDA_CONV_IGEMM_TILE_CHOICE_H
#define SEG_CUDA_CONV_IGEMM_TILE_CHOICE_H

#ifdef __cplusplus
extern "C" {
#endif

/* Numbers of tiles are 1 .. igemm_tile_count(). */
enum {
    TILE_ANY = 0,   /* igemm_tile.cu's choice                     */
    TILE_NONE = -1, /* no tile, but the loop of igemm_mma.cuh */
};

/* What calls of this thread are to take, whatever they ask for, their space
 * included; one that cannot takes no tile. */
void igemm_tile_want(int number);
/* What the last call took that came to igemm_tile.cu; asked again, TILE_NONE:
 * what came since took no tile. */
int igemm_tile_taken(void);

int igemm_tile_count(void);
/* "128x64", "128x64-split" (a block makes one segment); "none" of TILE_NONE. */
const char *igemm_tile_name(int number);
/* Backend.tile: NULL for a number that none has. */
const char *igemm_tile_listed(int number);

#ifdef __cplusplus
}
#endif
#endif
