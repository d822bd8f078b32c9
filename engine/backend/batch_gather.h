/* batch_gather.h -- gathers a batch from a device dataset.
 *
 * The samples of a device dataset are contiguous, preprocessed but not
 * augmented. A gather copies `count` samples by number, in this order, into the
 * inputs of a plan and applies the drawn augmentations to each (augment.h). The
 * result equals the host's: labels exactly, except where a coordinate lies
 * midway between two voxels, values within 1e-5 (check/datacheck.h). */
#ifndef SEG_ENGINE_BACKEND_BATCH_GATHER_H
#define SEG_ENGINE_BACKEND_BATCH_GATHER_H
#include "engine/backend/augment.h"

/* One field of the samples; pointers are to device memory. */
typedef struct GatherField {
    Dims dim;          /* of a sample, n = 1                               */
    Dtype type;        /* in the block: F32, or U8 where nearest           */
    bool image;        /* intensity changes apply, not only spatial ones   */
    bool nearest;      /* class numbers: nearest neighbour, not linear     */
    uint32_t first;    /* first draw of noise, see change_next             */
    const void *block; /* samples                                          */
    Dtype stored;      /* type of out: F32, BF16 or F16                    */
    void *out;         /* (count) samples, channels-last; or NULL          */
} GatherField;

typedef struct Gather {
    const GatherField *field;
    int fields;
    int count, steps;      /* samples; changes of each                        */
    const int32_t *kind;   /* (steps) on the host: the kind of a step's changes,
                            * CHANGE_NONE if no sample has one                */
    const int64_t *points; /* (steps) on the host: number of control points of
                            * an elastic change, the same for all samples     */
    const int32_t *number; /* (count) on the device: index in the block       */
    const Change *change;  /* (steps, count) on the device                    */
    float *room; /* scratch on the device for a batch of the largest 16-bit
                  * field that is not only copied (gather_copies)     */
} Gather;

/* Returns whether at most one flip changes this field. Then the copy stores it
 * in 16 bits directly. */
static inline bool gather_copies(const Gather *g, const GatherField *f)
{
    int flips = 0;
    for (int k = 0; k < g->steps; k++) {
        const int32_t kind = g->kind[k];
        if (kind == CHANGE_FLIP)
            flips++;
        else if (kind != CHANGE_NONE && (f->image || change_moves(kind)))
            return false;
    }
    return flips <= 1;
}
#endif
