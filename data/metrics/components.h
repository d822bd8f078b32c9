/* components.h -- connected components of a label, and holes in it.
 *
 * Voxels are connected over faces (connect 6) or over faces, edges and corners
 * (connect 26); in a picture these are 4 and 8. The algorithm works on runs of
 * voxels along w, not on voxels, so that memory grows with the shape of the
 * label and not with the extents of the volume. Rosenfeld and Pfaltz,
 * "Sequential operations in digital picture processing", Journal of the ACM 13
 * (1966), for the two passes; Tarjan, "Efficiency of a good but not linear set
 * union algorithm", Journal of the ACM 22 (1975), for the union-find between
 * them. */
#ifndef SEG_DATA_METRICS_COMPONENTS_H
#define SEG_DATA_METRICS_COMPONENTS_H
#include "engine/base/mem.h"

/* Voxels from .. to - 1 of a row, and their component, numbered from 0. */
typedef struct Run {
    int32_t from, to, piece;
} Run;

/* Components in the order of their first voxels in memory. Zero-initialised is
 * empty. */
typedef struct Components {
    int64_t *row;  /* (rows + 1): first run of row d * h + ...; last, the number
                    * of runs */
    Run *run;      /* in the order of memory */
    int32_t count; /* number of components */
    int64_t *size; /* (count): voxels */
    bool *border;  /* (count): touches a face of the block. An axis of one voxel
                    * has no faces, unless all three have one voxel */
} Components;

/* Finds the components of the voxels of a block (n: extents along w, h, d) that
 * equal `value`, or, with `others`, that do not. Fails without memory, or with
 * more than 2^31 - 1 runs. */
bool components_find(const uint8_t *x, const int32_t n[3], uint8_t value,
                     bool others, int connect, Components *out);
void components_free(Components *c); /* c is zero again */

/* Clean-up of one class of a label map, in the order of the members. */
typedef struct Tidy {
    uint8_t value;    /* the class                                        */
    int connect;      /* 6 or 26; holes are components of the complement, which
                       * uses the other connectivity */
    int32_t keep;     /* number of largest components that stay, of equal ones
                       * the first; the others become 0. 0: all stay */
    int64_t least;    /* components of fewer voxels become 0 */
    bool fill;        /* zeros in holes (components of the complement that reach
                       * no face of the block) become the class; other classes
                       * stay */
    bool fill_slices; /* the same for each slice across d by itself */
} Tidy;

/* Counts of components and voxels that were changed. */
typedef struct TidyDone {
    int64_t pieces, pieces_gone, voxels_gone, voxels_filled;
} TidyDone;

/* Returns the smallest number of voxels, of edges mm along w, h, d, with a
 * volume of at least `ml`: a component of exactly that volume stays. */
int64_t labels_least(double ml, const double mm[3]);
/* Cleans up x in place. Fails as components_find. */
bool labels_tidy(uint8_t *x, const int32_t n[3], const Tidy *how,
                 TidyDone *done);
#endif
