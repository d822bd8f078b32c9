/* grid_reduce_launch.cuh -- the second launch of a sum in parts.
 *
 * One thread per element adds parts[part][element] in the order of the parts,
 * in double; the number of parts depends on the extents only. Adjacent threads
 * read adjacent memory. Bound by memory: the bytes of the parts. */
#ifndef SEG_CUDA_LIB_GRID_REDUCE_LAUNCH_H
#define SEG_CUDA_LIB_GRID_REDUCE_LAUNCH_H
#include "cuda/lib/vec.cuh"

template <Dtype D, class T>
static __global__ void reduce_parts_kernel(const T *parts, int count,
                                           int64_t size, Element<D> *out,
                                           bool fresh)
{
    EACH(i, size)
    {
        double sum = 0;
        for (int k = 0; k < count; k++) sum += (double)parts[k * size + i];
        store_vec<1, D>(out + i, {(float)sum}, fresh);
    }
}

/* Queues out (+)= the sum of `count` parts of `size` elements each. */
template <Dtype D = F32, class T>
static bool reduce_parts(const Call *c, const T *parts, int count, int64_t size,
                         Element<D> *out, bool fresh)
{
    LAUNCH((reduce_parts_kernel<D, T>), blocks_for(size), BLOCK, 0,
           gpu_stream(c->dev), parts, count, size, out, fresh);
    return gpu_launched("sum of parts");
}
#endif
