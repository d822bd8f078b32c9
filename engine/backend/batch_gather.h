/* batch_gather.h -- a batch out of a block of samples that lies on a device.
 *
 * The samples of a data set lie one behind the other, prepared but not changed
 * at random. A gather takes `count` of them by number, in this order, into the
 * inputs of a plan, and does to each what was decided for it (augment.h). The
 * same as the host does, labels exactly but where a place falls between two
 * voxels, values within 1e-5 as check/datacheck.h has it. */
#ifndef SEG_ENGINE_BACKEND_BATCH_GATHER_H
#define SEG_ENGINE_BACKEND_BATCH_GATHER_H
#include "engine/backend/augment.h"

/* One field of the samples; addresses are of the device. */
typedef struct GatherField {
    Dims dim;          /* of a sample, n = 1                               */
    Dtype type;        /* in the block: F32, or U8 where nearest           */
    bool image;        /* intensities: changes that are not of places too  */
    bool nearest;      /* class numbers: never between two                 */
    uint32_t first;    /* draw of noise, counted over all images of the set */
    const void *block; /* samples                                          */
    Dtype stored;      /* of out: F32, BF16 or F16                         */
    void *out;         /* (count) samples, in the order of memory; or NULL */
} GatherField;

typedef struct Gather {
    const GatherField *field;
    int fields;
    int count, steps;      /* samples; changes of each                        */
    const int32_t *kind;   /* (steps) on the host: what the change is of all
                            * samples that have it, CHANGE_NONE of none       */
    const int64_t *points; /* (steps) on the host: control points of elastic
                            * changes, the same of all samples                */
    const int32_t *number; /* (count) on the device: place in the block       */
    const Change *change;  /* (steps, count) on the device                    */
    float *room; /* on the device: a batch of any field of 16 bits that is not
                  * only copied (gather_copies); what else stands here is not
                  * looked at                                         */
} Gather;

/* Does nothing but at most one flip happen to this field? Then it is stored in
 * 16 bits as it is taken. */
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
