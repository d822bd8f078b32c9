/* sm90_norm.cuh -- device code of both Hopper kernels: the place of a box,
 * rings of buffers, and the deferred norm applied to a halo in shared memory.
 */
#ifndef SEG_CUDA_CONV_SM90_NORM_H
#define SEG_CUDA_CONV_SM90_NORM_H
#include "cuda/conv/igemm_sm90.cuh"
#include "cuda/lib/ptx_sm90.cuh"

/* A place in a ring of buffers, with the parity of its mbarrier's phase. A
 * division would cost the producing thread hundreds of cycles. */
struct Sm90Ring {
    int at;
    uint32_t phase;

    __device__ __forceinline__ void next(int count)
    {
        if (++at == count) at = 0, phase ^= 1;
    }
};

/* The first position of a box. */
struct Sm90Box {
    int w, h, d, n;
};

static __device__ __forceinline__ Sm90Box sm90_box_at(const Sm90Grid &g,
                                                      uint32_t box)
{
    Sm90Box s;
    s.w = (int)split(&box, g.boxes_w) * SM90_BOX_W;
    s.h = (int)split(&box, g.boxes_h) * g.box_h;
    s.d = (int)split(&box, g.boxes_d) * g.box_d;
    s.n = (int)box * g.box_n;
    return s;
}

/* A line of a box, from the first. */
struct Sm90Line {
    int h, d, n;
};

static __device__ __forceinline__ Sm90Line sm90_line(const Sm90Grid &g,
                                                     int line)
{
    return {line >> (g.log_d + g.log_n), line & (g.box_d - 1),
            line >> g.log_d & (g.box_n - 1)};
}

/* A chunk of a side: its tensor, its first channel there and among all. */
struct Sm90Chunk {
    int tensor, channel, all;
};

static __device__ __forceinline__ Sm90Chunk sm90_chunk(const Sm90Side &side,
                                                       int chunk)
{
    Sm90Chunk c;
    c.tensor = chunk >= side.border;
    c.channel = (chunk - (c.tensor ? side.border : 0)) * side.size;
    c.all = c.channel + (c.tensor ? side.channels[0] : 0);
    return c;
}

/* The sum over the four lanes that share a row of D. */
static __device__ __forceinline__ float quad_sum(float x)
{
    x += __shfl_xor_sync(0xffffffffu, x, 1);
    return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

/* A halo in shared memory: `lines` lines of `pitch` positions of each of
 * `planes` planes, from `first` of a source of extents `size` on. Positions
 * outside of the source are zero and stay zero. */
struct Sm90Halo {
    int lines, pitch, planes, box_d;
    Sm90Box first;
    Sm90Extent size;
};

/* The halo of a group for a box. */
static __device__ __forceinline__ Sm90Halo sm90_halo(const Sm90Box &box,
                                                     const Sm90Grid &grid,
                                                     const Sm90Group &g,
                                                     const Sm90Extent &source,
                                                     int lines, int pitch)
{
    return {lines,
            pitch,
            sm90_planes(grid),
            grid.box_d,
            {box.w + g.w, box.h + g.h, box.d + g.d, box.n},
            source};
}

/* The byte at which TMA put the 16 bytes that belong at `a`, an offset in a
 * tile with a swizzle of 128 bytes. */
static __device__ __forceinline__ uint32_t swizzled_128(uint32_t a)
{
    return a ^ (a >> 3 & 0x70);
}

/* The norm and activation of x; ZERO: relu. Without branches, which would cost
 * more than the arithmetic. */
template <bool ZERO>
static __device__ __forceinline__ float sm90_norm_act(float x, float2 by,
                                                      float leak)
{
    const float v = fmaf(x, by.x, by.y);
    return v <= 0 ? (ZERO ? 0 : v * leak) : v;
}

/* Applies the norm to COUNT lines of one column of 16 bytes, `at` the byte of
 * the first. */
template <int COUNT, Dtype D, bool ZERO>
static __device__ __forceinline__ void sm90_norm_lines(char *tile, uint32_t at,
                                                       uint32_t pitch,
                                                       const float2 (&by)[8],
                                                       float leak)
{
    Vec16<8> x[COUNT];
#pragma unroll
    for (int j = 0; j < COUNT; j++)
        x[j] = *(const Vec16<8> *)(tile + swizzled_128(at + j * pitch));
#pragma unroll
    for (int j = 0; j < COUNT; j++) {
#pragma unroll
        for (int k = 0; k < 4; k++) {
            const float2 v = unpack_pair<D>(x[j].v[k]);
            x[j].v[k] =
                pack_pair<D>(sm90_norm_act<ZERO>(v.x, by[2 * k], leak),
                             sm90_norm_act<ZERO>(v.y, by[2 * k + 1], leak));
        }
        *(Vec16<8> *)(tile + swizzled_128(at + j * pitch)) = x[j];
    }
}

/* All lines of the thread's columns. */
template <Dtype D, bool ZERO>
static __device__ __forceinline__ void sm90_norm_columns(char *tile,
                                                         const Sm90Halo &s,
                                                         const float2 (&by)[8],
                                                         float leak)
{
    const int i = (int)threadIdx.x - WARP;
    const uint32_t plane = (uint32_t)s.pitch * SM90_ROW;
    const uint32_t pitch = (uint32_t)s.planes * plane; // between lines
    const int from = max(0, -s.first.h);
    const int to = min(s.lines, s.size.h - s.first.h);
    const int x = i / 8; // halos are no wider than the threads
    if (x >= s.pitch || (unsigned)(s.first.w + x) >= (unsigned)s.size.w) return;
    for (int k = 0; k < s.planes; k++) {
        const int d = s.first.d + (k & (s.box_d - 1));
        if ((unsigned)d >= (unsigned)s.size.d) continue;
        int y = from;
        uint32_t at = (uint32_t)y * pitch + (uint32_t)k * plane +
                      (uint32_t)x * SM90_ROW + (uint32_t)(i % 8) * 16;
#pragma unroll 1
        for (; y + 4 <= to; y += 4, at += 4 * pitch)
            sm90_norm_lines<4, D, ZERO>(tile, at, pitch, by, leak);
#pragma unroll 1
        for (; y < to; y++, at += pitch)
            sm90_norm_lines<1, D, ZERO>(tile, at, pitch, by, leak);
    }
}

/* By the threads 32 .. 127 of the block: applies the norm of `tensor` (0 or 1
 * of the side), if it has one, to a tile of 64 channels from `channel` on,
 * which TMA has loaded. A thread has the same 8 channels in all positions, so
 * their factors stay in registers. sm90_norm_done must follow. */
template <Dtype D>
static __device__ __forceinline__ void sm90_norm_tile(
    char *tile, const Sm90Halo &s, const NormOnLoad &norm, int channel,
    const Sm90Side &side, int tensor)
{
    if (!norm.table) return;
    const int i = (int)threadIdx.x - WARP;
    float2 by[8];
#pragma unroll
    for (int k = 0; k < 8; k++) {
        const int c = channel + (i % 8 * 8 + k) % side.size;
        by[k] = c < side.channels[tensor] ? norm.table[c] : make_float2(0, 0);
    }
    if (norm.act.zero)
        sm90_norm_columns<D, true>(tile, s, by, 0);
    else
        sm90_norm_columns<D, false>(tile, s, by, norm.act.leak);
}

/* By the threads 32 .. 127 of the block: rounds the f32 numbers of a tile of so
 * many bytes to tf32, ties away from zero; a product would truncate them. */
static __device__ __forceinline__ void sm90_round_tile(char *tile,
                                                       uint32_t bytes)
{
    enum { STEP = SM90_NORM_WARPS * WARP * 16, COUNT = 4 };
    const uint32_t first = (threadIdx.x - WARP) * 16;
#pragma unroll 1
    for (uint32_t at = first; at < bytes; at += COUNT * STEP) {
        Vec16<8> x[COUNT];
#pragma unroll
        for (int j = 0; j < COUNT; j++)
            if (at + j * STEP < bytes)
                x[j] = *(const Vec16<8> *)(tile + at + j * STEP);
#pragma unroll
        for (int j = 0; j < COUNT; j++) {
            if (at + j * STEP >= bytes) continue;
#pragma unroll
            for (int k = 0; k < 4; k++)
                x[j].v[k] = to_tf32(__uint_as_float(x[j].v[k]));
            *(Vec16<8> *)(tile + at + j * STEP) = x[j];
        }
    }
}

/* By the same threads: the warp has written its part of the tile, and `ready`
 * counts its arrival. */
static __device__ __forceinline__ void sm90_norm_done(uint64_t *ready)
{
    fence_async_shared();
    __syncwarp();
    if (threadIdx.x % WARP == 0) mbarrier_arrive(ready, 1);
}
#endif
