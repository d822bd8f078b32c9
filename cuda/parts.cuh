/* parts.cuh -- the second launch of a sum by parts.
 *
 * parts[part][element], in a number that depends on extents only, are added in
 * their order by one thread an element, in double. Neighbours read neighbours;
 * bound by memory at the bytes of the parts. */
#ifndef SEG_PARTS_CUH
#define SEG_PARTS_CUH
#include "kernel.cuh"

template <class T>
static __global__ void add_parts_kernel(const T *parts, int count, int64_t size,
                                        float *out, bool fresh)
{
    EACH(i, size)
    {
        double sum = 0;
        for (int k = 0; k < count; k++) sum += (double)parts[k * size + i];
        put(&out[i], (float)sum, fresh);
    }
}

/* Queue out (+)= the sum of `count` parts of `size` elements each. */
template <class T>
static bool add_parts(const Call *c, const T *parts, int count, int64_t size,
                      float *out, bool fresh)
{
    LAUNCH((add_parts_kernel<T>), blocks_for(size), BLOCK, 0,
           gpu_stream(c->dev), parts, count, size, out, fresh);
    return gpu_launched("sum of parts");
}
#endif
