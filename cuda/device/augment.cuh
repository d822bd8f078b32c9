/* augment.cuh -- changes of the intensities of a batch, in place. */
#ifndef SEG_CUDA_DEVICE_AUGMENT_H
#define SEG_CUDA_DEVICE_AUGMENT_H
#include "cuda/lib/kernel.cuh"

/* Queues change `kind` for `count` samples of the f32 images in f->out;
 * change[n], in device memory, belongs to sample n: `kind`, or CHANGE_NONE. */
bool change_images(void *dev, const GatherField *f, int count, int32_t kind,
                   const Change *change);
#endif
