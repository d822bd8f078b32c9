/* gpu.h -- the one header that kernel files and the host runtime include.
 *
 * Under nvcc it is the CUDA runtime; under any other C++ compiler it is the
 * emulator of tests/cuda/emulator, which runs the same source on the CPU (that
 * folder must then be on the include path). Shared memory and launches are
 * written only in the following forms, which are the same for both:
 *
 *     SMEM(float, tile, [32][33]);      one shared array, 16-byte aligned
 *     DYN_SMEM(float, buffer);          the launch's dynamic shared memory
 *     DYN_SMEM_1024(char, tiles);       the same, for TMA: 1024-byte aligned
 *     LAUNCH((kernel<64, 32>), grid, block, bytes, stream, arguments...);
 *     LAUNCH_COOP(kernel, grid, block, bytes, stream, arguments...);
 *     LAUNCH_DEPENDENT(kernel, grid, block, bytes, stream, arguments...);
 *
 * A template-id with commas needs parentheses. cudaGetLastError() reports a
 * failed launch of each form. LAUNCH_COOP is for kernels that call
 * grid_barrier() of ptx.cuh: at most 128 blocks, all resident at once.
 * LAUNCH_DEPENDENT is a programmatic dependent launch: the kernel may begin
 * while the launch before it in the stream still runs, so each of its threads
 * calls grid_dependency_wait() of ptx_sm90.cuh before it reads or writes global
 * memory. Without launches_overlap it is a LAUNCH.
 *
 * In a thread that has set launch_hook, each launch calls it and queues
 * nothing: a dry run lists the launches of a step without a GPU
 * (gpu_dry_run). launch_timer is called before each launch, and after it with
 * NULL (gpu_time_launches). */
#ifndef SEG_CUDA_LIB_GPU_H
#define SEG_CUDA_LIB_GPU_H

/* Does the open GPU take dependent launches? Set by gpu_try_overlap. As the
 * variables below, one of the program. */
__attribute__((weak, visibility("hidden"))) bool launches_overlap;

#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <stdint.h>

#define SMEM(T, name, ...) __shared__ __align__(16) T name __VA_ARGS__
/* all kernels name their dynamic shared memory by this symbol */
#define DYN_SMEM(T, name)                                       \
    extern __shared__ __align__(16) unsigned char smem_bytes[]; \
    T *name = reinterpret_cast<T *>(smem_bytes)
#define DYN_SMEM_1024(T, name)                                    \
    extern __shared__ __align__(1024) unsigned char smem_tiles[]; \
    T *name = reinterpret_cast<T *>(smem_tiles)
#define LAUNCH_NOW(kernel, grid, block, smem, stream, ...) \
    kernel<<<grid, block, smem, stream>>>(__VA_ARGS__)
#define LAUNCH_COOP_NOW(kernel, grid, block, smem, stream, ...) \
    launch_coop(kernel, grid, block, smem, stream, __VA_ARGS__)
#define LAUNCH_DEPENDENT_NOW(kernel, grid, block, smem, stream, ...) \
    launch_dependent(kernel, grid, block, smem, stream, __VA_ARGS__)

/* Converts the arguments to the parameter types of the kernel first, because
 * the runtime copies them by address. Refuses more than 128 blocks as the
 * emulator does, so that a kernel that runs on a large GPU runs on all of
 * them. */
template <class... P, class... A>
static inline void launch_coop(void (*kernel)(P...), dim3 grid, dim3 block,
                               size_t smem, cudaStream_t stream, A... args)
{
    auto go = [&](P... typed) {
        void *list[] = {static_cast<void *>(&typed)...};
        if ((size_t)grid.x * grid.y * grid.z > 128) grid = dim3(0);
        (void)cudaLaunchCooperativeKernel(kernel, grid, block, list, smem,
                                          stream);
    };
    go(static_cast<P>(args)...);
}

template <class... P, class... A>
static inline void launch_dependent(void (*kernel)(P...), dim3 grid, dim3 block,
                                    size_t smem, cudaStream_t stream, A... args)
{
    cudaLaunchAttribute overlap = {};
    overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    overlap.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t c = {};
    c.gridDim = grid, c.blockDim = block;
    c.dynamicSmemBytes = smem, c.stream = stream;
    c.attrs = &overlap, c.numAttrs = launches_overlap ? 1 : 0;
    (void)cudaLaunchKernelEx(&c, kernel, static_cast<P>(args)...);
}
#else
#include <emu.h>
#endif

/* Variables of the program, hidden so that a library made of it exports no
 * symbol: an inline variable would be shared by the whole process. */
__attribute__((weak, visibility("hidden"))) __thread void (*launch_hook)(
    const char *kernel, dim3 grid, dim3 block, size_t shared);

__attribute__((weak, visibility("hidden"))) __thread void (*launch_timer)(
    const char *kernel, dim3 grid, dim3 block, size_t shared);

#define LAUNCH_BY(now, kernel, grid, block, smem, stream, ...)      \
    do {                                                            \
        if (launch_hook) {                                          \
            launch_hook(#kernel, grid, block, smem);                \
            break;                                                  \
        }                                                           \
        if (launch_timer) launch_timer(#kernel, grid, block, smem); \
        now(kernel, grid, block, smem, stream, __VA_ARGS__);        \
        if (launch_timer) launch_timer(NULL, dim3(0), dim3(0), 0);  \
    } while (0)
#define LAUNCH(kernel, grid, block, smem, stream, ...) \
    LAUNCH_BY(LAUNCH_NOW, kernel, grid, block, smem, stream, __VA_ARGS__)
#define LAUNCH_COOP(kernel, grid, block, smem, stream, ...) \
    LAUNCH_BY(LAUNCH_COOP_NOW, kernel, grid, block, smem, stream, __VA_ARGS__)
#define LAUNCH_DEPENDENT(kernel, grid, block, smem, stream, ...)       \
    LAUNCH_BY(LAUNCH_DEPENDENT_NOW, kernel, grid, block, smem, stream, \
              __VA_ARGS__)
#endif
