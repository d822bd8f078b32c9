/* prims_sm90.cu -- the primitives of Hopper (cuda/lib/ptx_sm90.cuh), one source
 * for the emulator and for a GPU of compute capability 9.0; see prims.cu.
 *
 * Numbers are small integers, whose sums are exact in any order, so results
 * are compared exactly with plain loops. With nvcc it is compiled for sm_90a.
 *
 *     prims_sm90    all cases; ends with "N passed, N failed, 0 skipped" */
#include "cuda/lib/ptx_sm90.cuh"
#include "tests/cuda/emulator/kit.h"

#include <algorithm>
#include <stdarg.h>
#ifndef __CUDACC__
#include <emu_control.h>
#endif

// -- functions of the program that tensor_map.cu calls -----------------------
#include "cuda/device/tensor_map.cu"
bool gpu_good(cudaError_t e, const char *what)
{
    if (e) printf("  %s: %s\n", what, cudaGetErrorName(e));
    return !e;
}
extern "C" bool fail_device(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vprintf(format, args);
    printf("\n");
    va_end(args);
    return false;
}

typedef std::vector<uint32_t> Words;
typedef std::vector<uint16_t> Halves;

static uint16_t half_of(float x, Dtype type)
{
    uint16_t u;
    if (type == BF16) {
        const __nv_bfloat16 h = __float2bfloat16(x);
        memcpy(&u, &h, sizeof u);
    } else {
        const __half h = __float2half(x);
        memcpy(&u, &h, sizeof u);
    }
    return u;
}
static float float_of(uint16_t u, Dtype type)
{
    if (type == BF16) {
        __nv_bfloat16 h;
        memcpy(&h, &u, sizeof h);
        return __bfloat162float(h);
    }
    __half h;
    memcpy(&h, &u, sizeof h);
    return __half2float(h);
}

/* One block with `bytes` of dynamic shared memory. */
template <class... P, class... A>
static void launch(void (*kernel)(P...), int threads, size_t bytes, A &&...args)
{
    OK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                            (int)bytes));
    LAUNCH(kernel, 1, threads, bytes, 0, args...);
    OK_LAUNCH();
}

template <class T>
static void compare(const char *what, const std::vector<T> &got,
                    const std::vector<T> &want)
{
    bool same = got.size() == want.size();
    for (size_t i = 0; same && i < got.size(); i++) {
        if (got[i] == want[i]) continue;
        printf("  %s: number %zu is %g, should be %g\n", what, i,
               (double)got[i], (double)want[i]);
        same = false;
    }
    expect(same, what, __LINE__);
}

// -- mbarriers ---------------------------------------------------------------
/* Warps 0 and 1 write a number each round, warp 2 adds them up and lets them go
 * on; each thread arrives once, or the first of a warp 32 times. */
static __global__ void k_phases(uint32_t *out)
{
    SMEM(uint64_t, bars, [2]);
    SMEM(uint32_t, numbers, [64]);
    const int t = threadIdx.x;
    if (t == 0) {
        mbarrier_init(&bars[0], 64);
        mbarrier_init(&bars[1], 32);
        fence_async_shared();
    }
    __syncthreads();
    if (t == 95)
        out[95] = mbarrier_test(&bars[1], 1) * 10 + mbarrier_test(&bars[1], 0);
    __syncthreads();

    for (uint32_t round = 0; round < 5; round++) {
        if (t < 64) {
            mbarrier_wait(&bars[1], (round & 1) ^ 1);
            numbers[t] = round * 100 + (uint32_t)t;
            __syncwarp();
            if (round % 2)
                mbarrier_arrive(&bars[0], 1);
            else if (t % 32 == 0)
                mbarrier_arrive(&bars[0], 32);
        } else {
            while (!mbarrier_test(&bars[0], round & 1)) {
            }
            const uint32_t sum = numbers[t - 64] + numbers[t - 32];
            if (t < 94) out[round * 100 + (uint32_t)t] = sum;
            mbarrier_arrive(&bars[1], 1);
        }
    }
    named_barrier(3, 96);
    if (t == 0) out[94] = numbers[33];
}
static void phases()
{
    Words want(600, 0);
    Buffer<uint32_t> out(want);
    launch(k_phases, 96, 0, out.p);
    for (uint32_t round = 0; round < 5; round++)
        for (uint32_t t = 64; t < 94; t++)
            want[round * 100 + t] = 200 * round + 2 * t - 96;
    want[94] = 433;
    want[95] = 10;
    compare("mbarrier", out.get(), want);
}

/* Two halves of a block, each with a barrier of its own; most threads of one
 * warp have returned. */
static __global__ void k_named(uint32_t *out)
{
    SMEM(uint32_t, numbers, [256]);
    const int t = threadIdx.x, group = t / 128, warp = t / 32;
    if (warp == 8 && t % 32) return;
    if (warp == 8) {
        out[256] = 8;
        return;
    }
    for (uint32_t round = 0; round < 3; round++) {
        numbers[t] = round * 1000 + (uint32_t)t;
        named_barrier(1 + group, 128);
        out[t] = numbers[t ^ 127];
        named_barrier(1 + group, 128);
    }
}
static void named()
{
    Buffer<uint32_t> out(257);
    Words want;
    launch(k_named, 288, 0, out.p);
    for (uint32_t t = 0; t < 256; t++) want.push_back(2000 + (t ^ 127));
    want.push_back(8);
    compare("named_barrier", out.get(), want);
}

// -- TMA ---------------------------------------------------------------------
struct Copy {
    TensorMap map;
    int at[TENSOR_MAP_AXES];
    uint32_t bytes;
};
enum { COPY_ROOM = 32 * 1024 };

/* A tensor of 5 axes with gaps between its rows, and a box. */
struct Shape {
    int extent[TENSOR_MAP_AXES], box[TENSOR_MAP_AXES], at[TENSOR_MAP_AXES];
    int swizzle;
    int64_t stride[TENSOR_MAP_AXES], elements;
};
static const Shape shapes[] = {
    {{64, 5, 6, 4, 2}, {64, 1, 5, 4, 1}, {0, 2, 1, 0, 1}, 128, {}, 0},
    {{64, 5, 6, 4, 2}, {64, 2, 5, 4, 2}, {0, -1, -2, 2, 1}, 128, {}, 0},
    {{64, 5, 6, 4, 2}, {64, 2, 5, 4, 2}, {0, 4, 3, 2, 1}, 128, {}, 0},
    {{64, 5, 6, 4, 2}, {64, 3, 5, 2, 1}, {0, 3, 4, -1, 0}, 128, {}, 0},
    {{128, 3, 6, 1, 2}, {64, 3, 5, 1, 2}, {40, 0, 0, 0, 0}, 128, {}, 0},
    {{96, 3, 6, 1, 2}, {64, 2, 5, 1, 2}, {-24, 0, 3, 0, -1}, 128, {}, 0},
    {{64, 3, 6, 1, 2}, {64, 2, 5, 1, 1}, {0, 0, 3, 0, 2}, 128, {}, 0},
    {{64, 3, 6, 1, 2}, {64, 2, 5, 1, 1}, {0, 100, 3, 0, 1}, 128, {}, 0},
    {{32, 5, 6, 4, 2}, {32, 2, 5, 4, 2}, {0, -1, -2, 2, 1}, 64, {}, 0},
    {{32, 5, 6, 4, 2}, {32, 2, 5, 4, 2}, {0, 4, 3, 2, 1}, 64, {}, 0},
    {{72, 5, 6, 4, 2}, {32, 1, 7, 3, 1}, {56, 4, 2, 2, 0}, 64, {}, 0},
    // rows that overlap (im2row_sm90.cu)
    {{64, 20, 3, 2, 1}, {64, 8, 2, 1, 1}, {0, 5, 1, 0, 0}, 128, {0, 16}, 0},
    {{32, 20, 3, 2, 1}, {64, 8, 2, 2, 1}, {0, 15, -1, 0, 0}, 128, {0, 32}, 0},
};

static Shape with_strides(Shape s)
{
    const int64_t row = 2 * ((s.extent[0] + 7) / 8 * 8);
    int64_t n = row;
    for (int i = 1; i < TENSOR_MAP_AXES; i++) {
        if (!s.stride[i]) s.stride[i] = n + 16 * i; /* a gap */
        n = s.stride[i] * s.extent[i] + row;
    }
    s.elements = n / 2;
    return s;
}

static Copy copy_of(const Shape &s, const void *data, Dtype type)
{
    TensorMapSpec spec = {data, type, {}, {}, {}, s.swizzle};
    Copy c = {};
    c.bytes = 2;
    for (int i = 0; i < TENSOR_MAP_AXES; i++) {
        spec.extent[i] = s.extent[i];
        spec.stride[i] = s.stride[i];
        spec.box[i] = s.box[i];
        c.at[i] = s.at[i];
        c.bytes *= (uint32_t)s.box[i];
    }
    EXPECT(tensor_map_encode(&spec, &c.map));
    return c;
}

/* Calls each(i, at) for all elements of the box that are in the tensor: i, its
 * index in a tile of shared memory; at, in the tensor. */
template <class Each> static void each_element(const Shape &s, Each each)
{
    size_t i = 0;
    int x[TENSOR_MAP_AXES];
    for (int a4 = 0; a4 < s.box[4]; a4++)
        for (int a3 = 0; a3 < s.box[3]; a3++)
            for (int a2 = 0; a2 < s.box[2]; a2++)
                for (int a1 = 0; a1 < s.box[1]; a1++)
                    for (int a0 = 0; a0 < s.box[0]; a0++, i++) {
                        const int in[] = {a0, a1, a2, a3, a4};
                        int64_t at = 0;
                        bool inside = true;
                        for (int k = 0; k < TENSOR_MAP_AXES; k++) {
                            x[k] = s.at[k] + in[k];
                            inside &= x[k] >= 0 && x[k] < s.extent[k];
                            at += k ? x[k] * s.stride[k] / 2 : x[k];
                        }
                        const size_t byte = 2 * i;
                        const size_t turn =
                            byte / 128 % (size_t)(s.swizzle / 16) * 16;
                        if (inside) each((byte ^ turn) / 2, (size_t)at);
                    }
}

static __global__ void k_load(const __grid_constant__ Copy c, uint16_t *out)
{
    DYN_SMEM_1024(uint16_t, tile);
    SMEM(uint64_t, bar, [1]);
    const int t = threadIdx.x;
    if (t == 0) {
        mbarrier_init(bar, 1);
        fence_async_shared();
    }
    __syncthreads();
    if (t == 0) {
        mbarrier_expect(bar, c.bytes);
        tma_load(tile, &c.map, c.at[0], c.at[1], c.at[2], c.at[3], c.at[4],
                 bar);
    }
    mbarrier_wait(bar, 0);
    for (int i = t; i < (int)c.bytes / 2; i += 128) out[i] = tile[i];
}
static void load(const Shape &s)
{
    Halves data, want;
    for (int64_t i = 0; i < s.elements; i++)
        data.push_back((uint16_t)(i * 7 + 1));
    Buffer<uint16_t> from(data);
    const Copy c = copy_of(s, from.p, BF16);
    Buffer<uint16_t> out(c.bytes / 2);
    launch(k_load, 128, COPY_ROOM, c, out.p);
    want.resize(c.bytes / 2);
    each_element(s, [&](size_t i, size_t at) { want[i] = data[at]; });
    compare("tma_load", out.get(), want);
}

/* Stores a tile, or adds it. */
static __global__ void k_store(const __grid_constant__ Copy c,
                               const uint16_t *in, bool add)
{
    DYN_SMEM_1024(uint16_t, tile);
    const int t = threadIdx.x;
    for (int i = t; i < (int)c.bytes / 2; i += 128) tile[i] = in[i];
    fence_async_shared();
    __syncthreads();
    if (t) return;
    if (add)
        tma_reduce_add(&c.map, tile, c.at[0], c.at[1], c.at[2], c.at[3],
                       c.at[4]);
    else
        tma_store(&c.map, tile, c.at[0], c.at[1], c.at[2], c.at[3], c.at[4]);
    tma_store_commit();
    tma_store_wait_read<0>();
    tma_store_wait<0>();
}
static void store(const Shape &s, Dtype type, bool add)
{
    Halves data, tile;
    for (int64_t i = 0; i < s.elements; i++)
        data.push_back(half_of((float)(i % 97), type));
    Buffer<uint16_t> to(data);
    const Copy c = copy_of(s, to.p, type);
    for (uint32_t i = 0; i < c.bytes / 2; i++)
        tile.push_back(half_of((float)(i % 89) - 44, type));
    Buffer<uint16_t> in(tile);
    launch(k_store, 128, COPY_ROOM, c, in.p, add);
    each_element(s, [&](size_t i, size_t at) {
        const float before = add ? float_of(data[at], type) : 0;
        data[at] = half_of(before + float_of(tile[i], type), type);
    });
    compare(add ? "tma_reduce_add" : "tma_store", to.get(), data);
}

// -- stmatrix ----------------------------------------------------------------
static __global__ void k_stmatrix(uint16_t *out)
{
    SMEM(uint16_t, tile, [32][8]);
    const int l = threadIdx.x;
    uint32_t v[4];
    for (uint32_t i = 0; i < 4; i++) {
        const uint32_t x = (uint32_t)l * 8 + 2 * i;
        v[i] = x | (x + 1) << 16;
    }
    stmatrix_x4_trans(tile[l ^ 5], v);
    __syncwarp();
    for (int i = 0; i < 8; i++) out[l * 8 + i] = tile[l][i];
}
static void stmatrices()
{
    Buffer<uint16_t> out(256);
    Halves want(256);
    launch(k_stmatrix, 32, 0, out.p);
    for (int l = 0; l < 32; l++)
        for (int i = 0; i < 4; i++)
            for (int h = 0; h < 2; h++) {
                const int row = 2 * (l % 4) + h, column = l / 4;
                want[(size_t)((i * 8 + row) ^ 5) * 8 + (size_t)column] =
                    (uint16_t)(l * 8 + 2 * i + h);
            }
    compare("stmatrix trans", out.get(), want);
}

#include "tests/cuda/emulator/prims_wgmma.h"

int main(void)
{
#ifndef __CUDACC__
    emu_set_device(90, 1, "ok", (size_t)2 << 30);
#endif
    kit_test = "mbarrier phases", phases();
    kit_test = "named barriers", named();
    for (const Shape &shape : shapes) {
        const Shape s = with_strides(shape);
        char text[64]; // of the box
        snprintf(text, sizeof text, "TMA, a box at %d %d %d %d %d", s.at[0],
                 s.at[1], s.at[2], s.at[3], s.at[4]);
        kit_test = text, load(s);
        // only a load may begin before the tensor, or have rows that overlap
        if (*std::min_element(s.at, s.at + TENSOR_MAP_AXES) < 0 ||
            s.stride[1] < 2 * s.extent[0])
            continue;
        for (Dtype type : {BF16, F16}) {
            store(s, type, false);
            store(s, type, true);
        }
    }
    kit_test = "stmatrix", stmatrices();
    kit_test = "wgmma", products();
    kit_test = "a warp-specialised product", gemm();
    return kit_result();
}
