/* components.h -- pieces of a label that hang together, and holes in it.
 *
 * Voxels hang together over faces (connect 6) or over faces, edges and corners
 * (connect 26); of a picture these are 4 and 8. Work is with runs of voxels
 * along w, not with voxels, so that memory follows the shape of what is
 * labelled and not the extents of the volume. Rosenfeld and Pfaltz, "Sequential
 * operations in digital picture processing", Journal of the ACM 13 (1966), for
 * the two passes; Tarjan, "Efficiency of a good but not linear set union
 * algorithm", Journal of the ACM 22 (1975), for the sets between them. */
#ifndef SEG_DATA_METRICS_COMPONENTS_H
#define SEG_DATA_METRICS_COMPONENTS_H
#include "engine/base/mem.h"

/* Voxels from .. to - 1 of a row, and the piece that they are of, from 0. */
typedef struct Run {
    int32_t from, to, piece;
} Run;

/* Pieces in the order of their first voxels in memory. Zero is empty. */
typedef struct Components {
    int64_t
        *row; /* (rows + 1): first run of row d * h + ...; then their number */
    Run *run; /* in the order of memory */
    int32_t count; /* pieces */
    int64_t *size; /* (count): voxels */
    bool *border; /* (count): has a voxel on a face of the block. An axis of one
                   * voxel has no faces, unless all have */
} Components;

/* The pieces of the voxels of a block (n: extents along w, h, d) that are equal
 * to `value`, or with `others` that are not. Fails without memory, or with more
 * than 2^31 - 1 runs. */
bool components_find(const uint8_t *x, const int32_t n[3], uint8_t value,
                     bool others, int connect, Components *out);
void components_free(Components *c); /* c is zero again */

/* What is done to one class of a label, in this order. */
typedef struct Tidy {
    uint8_t value;    /* the class                                        */
    int connect;      /* 6 or 26; holes are pieces of what is not the class
                       * that hang together the other way                 */
    int32_t keep;     /* so many of its pieces, the largest, of equals the
                       * first; others become 0. 0: all                   */
    int64_t least;    /* pieces of fewer voxels become 0                  */
    bool fill;        /* zeros in holes, pieces that reach no face of the
                       * block, become the class; other classes stay      */
    bool fill_slices; /* the same in each slice across d by itself        */
} Tidy;

/* What it did, in pieces and voxels. */
typedef struct TidyDone {
    int64_t pieces, pieces_gone, voxels_gone, voxels_filled;
} TidyDone;

/* The fewest voxels, of edges mm along w, h, d, that make up `ml`: a piece of
 * exactly as much stays. */
int64_t labels_least(double ml, const double mm[3]);
/* x in place. Fails as components_find. */
bool labels_tidy(uint8_t *x, const int32_t n[3], const Tidy *how,
                 TidyDone *done);
#endif
