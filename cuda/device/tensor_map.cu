/* tensor_map.cu -- encodes tensor maps with the driver's function
 * cuTensorMapEncodeTiled. The program does not link the driver: each call asks
 * the runtime for the function's address. */
#include "cuda/device/device.cuh"
#include "cuda/lib/tensor_map.cuh"

#ifdef __CUDACC__
namespace {

typedef CUresult (*Encode)(CUtensorMap *, CUtensorMapDataType, cuuint32_t,
                           void *, const cuuint64_t *, const cuuint64_t *,
                           const cuuint32_t *, const cuuint32_t *,
                           CUtensorMapInterleave, CUtensorMapSwizzle,
                           CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

/* cuTensorMapEncodeTiled, or NULL with the reason. */
Encode encoder()
{
    void *found = NULL;
    cudaDriverEntryPointQueryResult result;
#if CUDART_VERSION >= 12050
    const cudaError_t e = cudaGetDriverEntryPointByVersion(
        "cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &result);
#else
    const cudaError_t e = cudaGetDriverEntryPoint(
        "cuTensorMapEncodeTiled", &found, cudaEnableDefault, &result);
#endif
    if (!gpu_good(e, "looking up cuTensorMapEncodeTiled")) return NULL;
    if (result == cudaDriverEntryPointSuccess) return (Encode)found;
    fail_device("GPU: the driver has no cuTensorMapEncodeTiled: update it");
    return NULL;
}

} // namespace

bool tensor_map_encode(const TensorMapSpec *s, TensorMap *out)
{
    cuuint64_t extent[TENSOR_MAP_AXES], stride[TENSOR_MAP_AXES - 1];
    cuuint32_t box[TENSOR_MAP_AXES], each[TENSOR_MAP_AXES];

    if (launch_hook) return true;
    const Encode encode = encoder();
    if (!encode) return false;
    for (int i = 0; i < TENSOR_MAP_AXES; i++) {
        extent[i] = (cuuint64_t)s->extent[i];
        box[i] = (cuuint32_t)s->box[i], each[i] = 1;
        if (i) stride[i - 1] = (cuuint64_t)s->stride[i];
    }
    const CUresult e = encode(
        out,
        s->type == F32    ? CU_TENSOR_MAP_DATA_TYPE_FLOAT32
        : s->type == BF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                          : CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
        TENSOR_MAP_AXES, (void *)s->data, extent, stride, box, each,
        CU_TENSOR_MAP_INTERLEAVE_NONE,
        s->swizzle == 128  ? CU_TENSOR_MAP_SWIZZLE_128B
        : s->swizzle == 64 ? CU_TENSOR_MAP_SWIZZLE_64B
                           : CU_TENSOR_MAP_SWIZZLE_32B,
        CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return e == CUDA_SUCCESS ||
           fail_device("GPU: cuTensorMapEncodeTiled: error %d", (int)e);
}
#else
bool tensor_map_encode(const TensorMapSpec *s, TensorMap *out)
{
    return launch_hook ||
           emu::tensor_map_encode(s->data, s->extent, s->stride, s->box,
                                  s->swizzle, out,
                                  s->type == F32   ? emu::MAP_F32
                                  : s->type == F16 ? emu::MAP_F16
                                                   : emu::MAP_BF16);
}
#endif
