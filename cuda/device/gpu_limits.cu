/* gpu_limits.cu -- the target GPU, for which plans are made and kernels are
 * chosen, and its limits.
 *
 * All GPUs from 8.0 on have one row, with the least shared memory of them (8.6,
 * 8.9, 12.0), so that they run the same kernels on the same tiles and give the
 * same bits. The kernels of Hopper have a limit of their own (igemm_sm90.cuh).
 * Instructions that a GPU lacks are replaced in lib/ptx.cuh. */
#include "cuda/device/device.cuh"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

namespace {

enum {
    F32_F16 = 1u << PRECISION_f32 | 1u << PRECISION_f16,
    ALL = (1u << PRECISION_COUNT) - 1,
    ABSENT = 80, // the capability of the target where no GPU is visible
};

const GpuLimits LIMITS[] = {
    {75, 64 << 10, 32 << 10, 2, F32_F16},
    {80, 99 << 10, 80 << 10, 4, ALL},
};

int target = ABSENT;

/* The compute capability of GPU `device`; ABSENT: it cannot be queried. */
int capability_of(int device)
{
    int count = 0, major = 0, minor = 0;
    const bool known =
        cudaGetDeviceCount(&count) == cudaSuccess && device < count &&
        cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor,
                               device) == cudaSuccess &&
        cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor,
                               device) == cudaSuccess;
    (void)cudaGetLastError(); // else the next launch would report this error
    return known ? major * 10 + minor : ABSENT;
}

} // namespace

void gpu_target(int device, int capability)
{
    target = capability ? capability : capability_of(device);
}

int gpu_least_capability(void)
{
    return LIMITS[0].capability;
}

const GpuLimits *gpu_limits(void)
{
    const GpuLimits *found = LIMITS;
    for (const GpuLimits &row : LIMITS)
        if (row.capability <= target) found = &row;
    return found;
}

bool gpu_runs_hopper(int capability)
{
#ifdef SEG_SM90
    const char *wanted = getenv("SEG_HOPPER");
    return capability == 90 && !(wanted && !strcmp(wanted, "0"));
#else
    (void)capability;
    return false;
#endif
}

bool gpu_is_hopper(void)
{
    return gpu_runs_hopper(target);
}

const char *gpu_lacks(Precision p)
{
    static __thread char text[BACKEND_TEXT];
    if (gpu_limits()->precisions >> p & 1) return NULL;
    snprintf(text, sizeof text,
             "the tensor cores of compute capability %d.%d (T4, RTX 20) "
             "multiply f16; bf16 and tf32 need 8.0 or more (RTX 30, A100 and "
             "later): use --precision f16 or f32",
             target / 10, target % 10);
    return text;
}
