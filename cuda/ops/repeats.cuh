/* repeats.cuh -- the number of repeats of a broadcast element, or of elements
 * of a result over axes, up to which one thread loops. */
#ifndef SEG_CUDA_OPS_REPEATS_H
#define SEG_CUDA_OPS_REPEATS_H

enum { LOOP_REPEATS = 64 };
#endif
