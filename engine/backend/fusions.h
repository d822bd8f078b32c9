/* fusions.h -- the answers of a backend to the planner about one call: which
 * work of other operators it can take over, which tensors may be in 16 bits,
 * and how it runs. */
#ifndef SEG_ENGINE_BACKEND_FUSIONS_H
#define SEG_ENGINE_BACKEND_FUSIONS_H
#include "engine/graph/op.h"

/* Work of other operators that a call can take over. */
typedef struct Fusions {
    /* It can run c->norm and c->act in its epilogue, and its backward run
     * `act`, bit-identically to separate calls. If c->norm.deferred: it can
     * write the statistics and leave norm and activation to the readers of y.
     */
    bool epilogue;
    /* With x[X2]: it can read an implicit concat, that is, read x[X2] and write
     * dx[X2] directly, with the bits of a separate concat. */
    bool concat;
    /* The operands with a deferred norm that it can apply on load, forward and
     * backward: bit k of x[k]. Values differ from separate calls by rounding
     * alone. */
    unsigned x_norm;
    /* Of a backward call: the gradients that it can sum while it stores them,
     * bit k of dx[k] (CallSums.dx). Other calls may have added to the gradient
     * before. Deferred norms are set. */
    unsigned sums;
    /* Of a backward call: the number of partial sums of squares that it can
     * write for the final gradient dx[k]; it depends on extents alone. */
    int32_t sqnorm_parts[MAX_IN];
} Fusions;

/* Tensors of a call in 16 bits, in a plan whose precision has such a type
 * (precision_copy). */
typedef struct Storage {
    /* The tensors that may have that type instead of `real`, whatever the types
     * of the others are now. Bit k: x[k] and dx[k]; NARROW_Y: y and dy. conv,
     * upconv and linear: any subset of these bits; other operators: all or
     * none. NARROW_ALONE: y may be in 16 bits while the operands are f32, with
     * any number of channels; forward only. */
    unsigned narrow;
    /* The copies that it reads, given the types: bit k of x[k], HALF_DY of dy.
     */
    unsigned copies;
} Storage;

/* The way in which a call runs. */
typedef struct Schedule {
    /* The number of samples in a micro-batch of a forward call, chosen such
     * that operands and result stay in a cache; 0, or the batch or more: no
     * micro-batches. The bits of the result do not depend on it. */
    int32_t microbatch;
    /* The number of the tile (Backend.tile) of y, or of dx in a backward call;
     * 0: a kernel without a choice of tiles. */
    int tile;
    /* Forward or backward uses an approximate algorithm, with an error relative
     * to the largest result instead of to each sum (Winograd,
     * docs/numerics.md). Never with Call.no_winograd. */
    bool approximate;
} Schedule;
#endif
