/* tensor_map.cuh -- the description of a tensor for TMA (tma_load, tma_store of
 * ptx_sm90.cuh): address, extents, strides and the box that one copy moves. */
#ifndef SEG_CUDA_LIB_TENSOR_MAP_H
#define SEG_CUDA_LIB_TENSOR_MAP_H
#include "cuda/lib/kernel.cuh"
#ifdef __CUDACC__
#include <cuda.h>
typedef CUtensorMap TensorMap; /* of a launch: a __grid_constant__ parameter */
#else
typedef emu::TensorMap TensorMap;
#endif

enum { TENSOR_MAP_AXES = 5 };

/* Axis 0 of the tensor is the innermost and contiguous. */
struct TensorMapSpec {
    const void *data; // a multiple of 16 bytes
    Dtype type;       // BF16, F16 or F32
    int64_t extent[TENSOR_MAP_AXES];
    int64_t stride[TENSOR_MAP_AXES]; // bytes, multiples of 16; [0] is ignored
    int box[TENSOR_MAP_AXES];        // extents of a copy, 1 to 256 each
    int swizzle; // 128, 64 or 32: the bytes of a row of the box, box[0]
                 // elements
};

/* False with the reason. In a dry run *out is not set. */
bool tensor_map_encode(const TensorMapSpec *spec, TensorMap *out);
#endif
