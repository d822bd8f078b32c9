/* bad_warp.h -- planted faults with barriers, shuffles and shared memory.
 *
 * Included by bad.cu only. Most of the faults are harmless on most runs of a
 * GPU: the result is right until a warp is late. */
#ifndef EMU_BAD_WARP_H
#define EMU_BAD_WARP_H

static __global__ void k_no_barrier(const float *in, float *out, bool broken)
{
    SMEM(float, tile, [128]);
    const int i = threadIdx.x;
    tile[i] = in[i];
    if (!broken) __syncthreads();
    out[i] = tile[127 - i];
}
static bool no_barrier(bool broken)
{
    return floats(k_no_barrier, broken, 128, turned);
}

/* Each round fills a tile and reads it transposed; it must not be refilled
 * before all threads have read it. */
static __global__ void k_refill(const float *in, float *out, bool broken)
{
    SMEM(float, tile, [128]);
    const int i = threadIdx.x;
    float sum = 0;
    for (int round = 0; round < 3; round++) {
        tile[i] = in[i] + (float)round;
        __syncthreads();
        sum += tile[127 - i];
        if (!broken) __syncthreads();
    }
    out[i] = sum;
}
static bool refill(bool broken)
{
    return floats(k_refill, broken, 128,
                  [](int i) { return 3 * turned(i) + 3; });
}

static __global__ void k_lax_wait(const float *in, float *out, bool broken)
{
    SMEM(float, tile, [2][128]);
    const int i = threadIdx.x;
    for (int g = 0; g < 2; g++) {
        cp_async4(&tile[g][i], in + i, true);
        cp_async_commit();
    }
    if (broken)
        cp_async_wait<1>();
    else
        cp_async_wait<0>();
    __syncthreads();
    out[i] = tile[1][127 - i];
}
static bool lax_wait(bool broken)
{
    return floats(k_lax_wait, broken, 128, turned);
}

static __global__ void k_no_syncwarp(const float *in, float *out, bool broken)
{
    SMEM(float, tile, [32]);
    const int i = threadIdx.x;
    tile[i] = in[i];
    if (!broken) __syncwarp();
    out[i] = tile[i ^ 1];
}
static bool no_syncwarp(bool broken)
{
    return floats(k_no_syncwarp, broken, 32, paired);
}

/* A shuffle does not order memory: the value is right, the program is not. */
static __global__ void k_shuffle_orders(const float *in, float *out,
                                        bool broken)
{
    SMEM(float, tile, [32]);
    const int i = threadIdx.x;
    tile[i] = in[i];
    (void)__shfl_xor_sync(~0u, i, 1);
    if (!broken) __syncwarp();
    out[i] = tile[i ^ 1];
}
static bool shuffle_orders(bool broken)
{
    return floats(k_shuffle_orders, broken, 32, paired);
}

static __global__ void k_divergent(const float *in, float *out, bool broken)
{
    const int i = threadIdx.x;
    if (broken && i < 32) __syncthreads();
    __syncthreads();
    out[i] = in[i];
}
static bool divergent(bool broken)
{
    return floats(k_divergent, broken, 128, same);
}

static __global__ void k_after_exit(const float *in, float *out, bool broken)
{
    const int i = threadIdx.x;
    out[i] = in[i];
    if (broken && i < 32) return;
    __syncthreads();
}
static bool after_exit(bool broken)
{
    return floats(k_after_exit, broken, 128, same);
}

static __global__ void k_exit_late(const float *in, float *out, bool broken)
{
    const int i = threadIdx.x;
    out[i] = in[i];
    if (broken && i > 96) return;
    __syncthreads();
}
static bool exit_late(bool broken)
{
    return floats(k_exit_late, broken, 128, same);
}

static __global__ void k_not_in_mask(const float *in, float *out, bool broken)
{
    const int i = threadIdx.x;
    out[i] = __shfl_sync(broken ? ~32u : ~0u, in[i], i);
}
static bool not_in_mask(bool broken)
{
    return floats(k_not_in_mask, broken, 32, same);
}

static __global__ void k_inactive(const float *in, float *out, bool broken)
{
    const int i = threadIdx.x;
    out[i] = in[i];
    if (i < 8) out[i] = __shfl_sync(0xffu, in[i], broken ? i + 1 : i, 32);
}
static bool inactive(bool broken)
{
    return floats(k_inactive, broken, 32, same);
}

static __global__ void k_lane_gone(const float *in, float *out, bool broken)
{
    const int i = threadIdx.x;
    out[i] = in[i];
    if (broken && i == 3) return;
    out[i] = __shfl_sync(~0u, in[i], i);
}
static bool lane_gone(bool broken)
{
    return floats(k_lane_gone, broken, 32, same);
}

static __global__ void k_split_warp(const float *in, float *out, bool broken)
{
    const int i = threadIdx.x;
    if (broken && i < 16)
        out[i] = __shfl_sync(~0u, in[i], i);
    else
        out[i] = __shfl_xor_sync(~0u, in[i], 0);
}
static bool split_warp(bool broken)
{
    return floats(k_split_warp, broken, 32, same);
}

static __global__ void k_deadlock(const float *in, float *out, bool broken)
{
    const int i = threadIdx.x;
    out[i] = in[i];
    if (broken && i % 32 < 16)
        __syncwarp();
    else
        __syncthreads();
    if (!broken) __syncwarp();
}
static bool deadlock(bool broken)
{
    return floats(k_deadlock, broken, 64, same);
}

static __global__ void k_part_warp(const float *in, float *out, bool)
{
    const int i = threadIdx.x;
    out[i] = __shfl_sync(~0u, in[i], i);
}
static bool part_warp(bool broken)
{
    return floats(k_part_warp, broken, broken ? 40 : 64, same);
}

/* a second use of the same memory by another warp */
static __global__ void k_reuse(const float *in, float *out, bool broken)
{
    SMEM(float, tile, [32]);
    const int i = threadIdx.x;
    if (i >= 32) tile[i % 32] = in[i];
    __syncthreads();
    if (i < 32) out[i] = tile[i] - 32.0f;
    if (!broken) __syncthreads();
    if (i >= 32) tile[i % 32] = 0;
    if (i >= 32) out[i] = in[i];
}
static bool reuse(bool broken)
{
    return floats(k_reuse, broken, 64, same);
}

static const Case warp_cases[] = {
    {1, "missing barrier", no_barrier},
    {2, "missing barrier before a refill", refill},
    {3, "wait for one group too few", lax_wait},
    {4, "missing __syncwarp", no_syncwarp},
    {5, "a shuffle taken for a __syncwarp", shuffle_orders},
    {6, "divergent barrier", divergent},
    {7, "barrier after a thread returned", after_exit},
    {8, "a thread returns, others wait", exit_late},
    {9, "lane missing from its mask", not_in_mask},
    {10, "shuffle from an inactive lane", inactive},
    {11, "shuffle with a lane that returned", lane_gone},
    {12, "two shuffles in one warp", split_warp},
    {13, "deadlock", deadlock},
    {14, "no barrier after shared memory was read", reuse},
    {19, "block of the wrong shape for a full mask", part_warp},
};
#endif
