/* parts.cuh -- the second launch of a sum by parts.
 *
 * parts[part][element], in a number that depends on extents only, are added in
 * their order by one thread an element, in double. Neighbours read neighbours;
 * bound by memory at the bytes of the parts. Of a gradient in f32 each block
 * may leave the squares of what it stores: square.cuh. */
#ifndef SEG_PARTS_CUH
#define SEG_PARTS_CUH
#include "pack.cuh"
#include "square.cuh"

template <Dtype D, class T>
static __global__ void add_parts_kernel(const T *parts, int count, int64_t size,
                                        Cell<D> *out, bool fresh,
                                        double *square)
{
    double own = 0;
    EACH(i, size)
    {
        double sum = 0;
        for (int k = 0; k < count; k++) sum += (double)parts[k * size + i];
        put_pack<1, D>(out + i, {(float)sum}, fresh);
        if constexpr (D == F32)
            if (square) own += square_of(out[i]);
    }
    if (square) square_leave(own, square + blockIdx.x);
}

/* Blocks that add parts of `size` elements, each of which leaves a square. */
static inline unsigned part_blocks(int64_t size)
{
    return blocks_for(size);
}

/* Queue out (+)= the sum of `count` parts of `size` elements each; square:
 * NULL, or where part_blocks numbers go. */
template <Dtype D = F32, class T>
static bool add_parts(const Call *c, const T *parts, int count, int64_t size,
                      Cell<D> *out, bool fresh, double *square = NULL)
{
    LAUNCH((add_parts_kernel<D, T>), part_blocks(size), BLOCK, 0,
           gpu_stream(c->dev), parts, count, size, out, fresh, square);
    return gpu_launched("sum of parts");
}
#endif
