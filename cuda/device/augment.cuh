/* augment.cuh -- changes of intensity of a batch, in place. */
#ifndef SEG_CUDA_DEVICE_AUGMENT_H
#define SEG_CUDA_DEVICE_AUGMENT_H
#include "cuda/lib/kernel.cuh"

/* Queue change `kind` of the images in f->out, of F32, `count` samples;
 * change[n] (on the device) is of sample n: `kind`, or CHANGE_NONE. */
bool change_images(void *dev, const GatherField *f, int count, int32_t kind,
                   const Change *change);
#endif
