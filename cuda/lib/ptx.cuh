/* ptx.cuh -- inline PTX and other primitives that C++ lacks: tensor-core
 * products, asynchronous copies, a barrier of the whole grid, last-block
 * detection and sums over a warp.
 *
 * The only file with inline PTX. Each primitive has a device body and, for the
 * emulator, a host body of the same meaning; tests/cuda/emulator/prims.cu
 * checks both with one source. Registers of fragments hold two 16-bit values,
 * the lower index in the low half. With l the lane, g = l/4 and t = l%4:
 *
 *   m16n8k16        a[i]: row g + 8(i&1), k 2t + 8(i>>1) and the next
 *                   b[i]: k 2t + 8i and the next, column g
 *   m16n8k8, f16    a[i]: row g + 8i, k 2t and the next
 *                   b: k 2t and the next, column g
 *   m16n8k8, tf32   a[i]: row g + 8(i&1), k t + 4(i>>1)
 *                   b[i]: k t + 4i, column g
 *   all             d[i]: row g + 8(i>>1), column 2t + (i&1)
 *
 * mma and ldmatrix need the whole warp. None of the primitives orders memory
 * unless its comment says so.
 *
 * Compute capability 7.5 has no m16n8k16, cp.async, bf16 and tf32. There an
 * mma_f16 is two m16n8k8, and a copy has arrived when cp_async returns. The
 * primitives of bf16 and tf32 end a kernel there; the host launches none with
 * them (GpuLimits.precisions). No other file depends on __CUDA_ARCH__. */
#ifndef SEG_CUDA_LIB_PTX_H
#define SEG_CUDA_LIB_PTX_H
#include "cuda/lib/gpu.h"

#ifdef __CUDACC__
#define PRIM static __device__ __forceinline__
/* the emulator gets the file and line of each use */
#define PRIM_AT
#define PRIM_PASS
#else
#define PRIM      static inline __attribute__((always_inline, unused))
#define PRIM_AT   , EMU_AT
#define PRIM_PASS , file, line
#endif

/* -- the instructions of compute capability 8.0 --------------------------- */
/* Has the GPU them? As a constant, for launch bounds, and as a function: the
 * emulated GPU may be of either capability. */
#if defined __CUDA_ARCH__ && __CUDA_ARCH__ < 800
enum { SM80 = 0 };
#else
enum { SM80 = 1 };
#endif
PRIM bool has_sm80()
{
#ifdef __CUDACC__
    return SM80;
#else
    return emu::has_sm80();
#endif
}

/* The stages of a ring of copies in shared memory, one of them in use. Without
 * cp.async a copy is complete when it is issued, so one stage ahead is enough;
 * the host has the number in GpuLimits.copy_stages. */
PRIM int copy_stages()
{
    return has_sm80() ? 4 : 2;
}

/* Ends the kernel on 7.5; the compiler drops the code after it. `what`: for the
 * emulator's message. */
PRIM void need_sm80(const char *what PRIM_AT)
{
    if (has_sm80()) return;
#ifdef __CUDACC__
    (void)what;
    __trap();
    __builtin_unreachable();
#else
    emu::lacks_sm80(what PRIM_PASS);
#endif
}

/* -- tensor-core products: d += a b, accumulated in f32 ------------------- */
#ifdef __CUDACC__
#define PRIM_MMA(name, shape)                                                  \
    PRIM void name(float(&d)[4], const uint32_t(&a)[4], const uint32_t(&b)[2]) \
    {                                                                          \
        need_sm80(shape);                                                      \
        asm volatile("mma.sync.aligned." shape                                 \
                     " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9},"                 \
                     " {%0,%1,%2,%3};\n"                                       \
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])          \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]),  \
                       "r"(b[1]));                                             \
    }
PRIM_MMA(mma_bf16, "m16n8k16.row.col.f32.bf16.bf16.f32")
PRIM_MMA(mma_f16_k16, "m16n8k16.row.col.f32.f16.f16.f32")
PRIM_MMA(mma_tf32, "m16n8k8.row.col.f32.tf32.tf32.f32")
PRIM void mma_f16_k8(float (&d)[4], const uint32_t (&a)[2], uint32_t b)
{
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32"
        " {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};\n"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(b));
}
#else
#define PRIM_MMA(name, type)                                                   \
    PRIM void name(float(&d)[4], const uint32_t(&a)[4], const uint32_t(&b)[2], \
                   EMU_AT)                                                     \
    {                                                                          \
        need_sm80(#name, file, line);                                          \
        emu::mma(emu::type, d, a, b, file, line);                              \
    }
PRIM_MMA(mma_bf16, PRODUCT_BF16)
PRIM_MMA(mma_f16_k16, PRODUCT_F16)
PRIM_MMA(mma_tf32, PRODUCT_TF32)
PRIM void mma_f16_k8(float (&d)[4], const uint32_t (&a)[2], uint32_t b, EMU_AT)
{
    const uint32_t rows[4] = {a[0], a[1]}, column[2] = {b};
    emu::mma(emu::PRODUCT_F16_K8, d, rows, column, file, line);
}
#endif
#undef PRIM_MMA

/* m16n8k16 */
PRIM void mma_f16(float (&d)[4], const uint32_t (&a)[4],
                  const uint32_t (&b)[2] PRIM_AT)
{
    if (has_sm80()) {
        mma_f16_k16(d, a, b PRIM_PASS);
    } else {
        const uint32_t low[2] = {a[0], a[1]}, high[2] = {a[2], a[3]};
        mma_f16_k8(d, low, b[0] PRIM_PASS);
        mma_f16_k8(d, high, b[1] PRIM_PASS);
    }
}

/* f32 to tf32 (10 bits of fraction), to nearest, ties away from zero. */
PRIM uint32_t to_tf32(float x PRIM_AT)
{
    need_sm80("tf32" PRIM_PASS);
#ifdef __CUDACC__
    uint32_t r;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(x));
    return r;
#else
    const uint32_t u = __float_as_uint(x);
    if ((u & 0x7f800000u) == 0x7f800000u) /* infinite, or the one NaN */
        return u & 0x007fffffu ? 0x7fffffffu : u;
    return (u + 0x1000u) & 0xffffe000u;
#endif
}

/* Two f32 rounded to nearest even into one register, and back. */
PRIM uint32_t pack_bf16(float low, float high PRIM_AT)
{
    need_sm80("bf16" PRIM_PASS);
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    uint32_t r;
    memcpy(&r, &pair, sizeof r);
    return r;
}
PRIM uint32_t pack_f16(float low, float high)
{
    const __half2 pair = __floats2half2_rn(low, high);
    uint32_t r;
    memcpy(&r, &pair, sizeof r);
    return r;
}
PRIM float2 unpack_bf16(uint32_t r PRIM_AT)
{
    need_sm80("bf16" PRIM_PASS);
    __nv_bfloat162 pair;
    memcpy(&pair, &r, sizeof r);
    return __bfloat1622float2(pair);
}
PRIM float2 unpack_f16(uint32_t r)
{
    __half2 pair;
    memcpy(&pair, &r, sizeof r);
    return __half22float2(pair);
}

/* -- ldmatrix -------------------------------------------------------------
 * 1, 2 or 4 matrices of 8x8 16-bit values from shared memory; lane 8i+r gives
 * the 16-byte aligned address of row r of matrix i. Register i of lane l gets
 * elements (l/4, 2(l%4)) and the next of matrix i; with _trans the element's
 * row and column are exchanged. The other lanes' addresses are not used. */
#ifdef __CUDACC__
PRIM uint32_t shared_address(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}
#define PRIM_X1 "=r"(r[0])
#define PRIM_X2 PRIM_X1, "=r"(r[1])
#define PRIM_X4 PRIM_X2, "=r"(r[2]), "=r"(r[3])
#define PRIM_LDMATRIX(name, n, op, into, out)                             \
    PRIM void name(uint32_t(&r)[n], const void *row)                      \
    {                                                                     \
        asm volatile("ldmatrix.sync.aligned.m8n8." op ".shared.b16 " into \
                     ";\n"                                                \
                     : out                                                \
                     : "r"(shared_address(row))                           \
                     : "memory");                                         \
    }
PRIM_LDMATRIX(ldmatrix_x1, 1, "x1", "{%0}, [%1]", PRIM_X1)
PRIM_LDMATRIX(ldmatrix_x2, 2, "x2", "{%0,%1}, [%2]", PRIM_X2)
PRIM_LDMATRIX(ldmatrix_x4, 4, "x4", "{%0,%1,%2,%3}, [%4]", PRIM_X4)
PRIM_LDMATRIX(ldmatrix_x1_trans, 1, "x1.trans", "{%0}, [%1]", PRIM_X1)
PRIM_LDMATRIX(ldmatrix_x2_trans, 2, "x2.trans", "{%0,%1}, [%2]", PRIM_X2)
PRIM_LDMATRIX(ldmatrix_x4_trans, 4, "x4.trans", "{%0,%1,%2,%3}, [%4]", PRIM_X4)
#undef PRIM_X1
#undef PRIM_X2
#undef PRIM_X4
#else
#define PRIM_LDMATRIX(name, n, transposed)                   \
    PRIM void name(uint32_t(&r)[n], const void *row, EMU_AT) \
    {                                                        \
        emu::ldmatrix(r, n, transposed, row, file, line);    \
    }
PRIM_LDMATRIX(ldmatrix_x1, 1, false)
PRIM_LDMATRIX(ldmatrix_x2, 2, false)
PRIM_LDMATRIX(ldmatrix_x4, 4, false)
PRIM_LDMATRIX(ldmatrix_x1_trans, 1, true)
PRIM_LDMATRIX(ldmatrix_x2_trans, 2, true)
PRIM_LDMATRIX(ldmatrix_x4_trans, 4, true)
#endif
#undef PRIM_LDMATRIX

/* -- asynchronous copies from global to shared memory ---------------------
 * Both addresses are aligned to the size. When not `valid` the destination
 * becomes zero and the source is not read, but must be a valid address.
 * issue ..., commit, wait<groups still in flight>, __syncthreads, use,
 * __syncthreads, refill. */
#ifdef __CUDACC__
/* The load and the store of a copy; their address spaces are named, so that
 * the load may precede earlier stores. */
template <class T> PRIM void copy_now(void *to, const void *from, bool valid)
{
    T v = {};
    if (valid)
        v = *(const T *)__cvta_global_to_generic(
            __cvta_generic_to_global(from));
    *(T *)__cvta_shared_to_generic(__cvta_generic_to_shared(to)) = v;
}
#define PRIM_COPY(n, T, cache)                                               \
    PRIM void cp_async##n(void *to, const void *from, bool valid)            \
    {                                                                        \
        if (!has_sm80()) return copy_now<T>(to, from, valid);                \
        asm volatile("cp.async." cache ".shared.global [%0], [%1], " #n      \
                     ", %2;\n" ::"r"(shared_address(to)),                    \
                     "l"(__cvta_generic_to_global(from)), "r"(valid ? n : 0) \
                     : "memory");                                            \
    }
#else
#define PRIM_COPY(n, T, cache)                                            \
    PRIM void cp_async##n(void *to, const void *from, bool valid, EMU_AT) \
    {                                                                     \
        emu::copy_issue(to, from, n, valid, file, line);                  \
    }
#endif
PRIM_COPY(4, uint1, "ca")
PRIM_COPY(8, uint2, "ca")
PRIM_COPY(16, uint4, "cg")
#undef PRIM_COPY

PRIM void cp_async_commit()
{
#ifdef __CUDACC__
    if (has_sm80()) asm volatile("cp.async.commit_group;\n" ::: "memory");
#else
    emu::copy_commit();
#endif
}

/* Waits until at most N of this thread's groups are in flight. */
template <int N> PRIM void cp_async_wait()
{
#ifdef __CUDACC__
    if (has_sm80())
        asm volatile("cp.async.wait_group %0;\n" ::"n"(N) : "memory");
#else
    emu::copy_wait(N);
#endif
}

/* -- sums and maxima over the warp -----------------------------------------
 * Every lane gets the result over its segment of `width` lanes (a power of
 * two); the order of additions is fixed. The whole warp takes part. */
template <class T> PRIM T warp_sum(T x, int width = 32 PRIM_AT)
{
    for (int o = width / 2; o > 0; o /= 2)
        x += __shfl_xor_sync(0xffffffffu, x, o, 32 PRIM_PASS);
    return x;
}
/* Sum over the lanes of equal remainder by `stride`, a power of two. */
template <class T> PRIM T warp_sum_strided(T x, int stride PRIM_AT)
{
    for (int o = 16; o >= stride; o /= 2)
        x += __shfl_xor_sync(0xffffffffu, x, o, 32 PRIM_PASS);
    return x;
}
/* Four sums over the lanes of equal remainder by `stride`, 1 to 8: lane l gets
 * the sum of v[l / 8]. In each exchange a lane sends the number that its
 * partner keeps and adds the one that it receives to its own. */
template <class T> PRIM T warp_sum_four(const T (&v)[4], int stride PRIM_AT)
{
    const int lane = (int)threadIdx.x % 32;
    const bool far = lane & 16, next = lane & 8;
    const T one =
        (far ? v[2] : v[0]) +
        __shfl_xor_sync(0xffffffffu, far ? v[0] : v[2], 16, 32 PRIM_PASS);
    const T two =
        (far ? v[3] : v[1]) +
        __shfl_xor_sync(0xffffffffu, far ? v[1] : v[3], 16, 32 PRIM_PASS);
    T sum = (next ? two : one) +
            __shfl_xor_sync(0xffffffffu, next ? one : two, 8, 32 PRIM_PASS);
    for (int o = 4; o >= stride; o /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, o, 32 PRIM_PASS);
    return sum;
}
/* NaN in any lane is dropped: max() ignores it, on the device and in the
 * emulator. */
template <class T> PRIM T warp_max(T x, int width = 32 PRIM_AT)
{
    for (int o = width / 2; o > 0; o /= 2)
        x = max(x, __shfl_xor_sync(0xffffffffu, x, o, 32 PRIM_PASS));
    return x;
}

/* -- a barrier of all blocks ------------------------------------------------
 * Only in a kernel started by LAUNCH_COOP, reached by every thread. `word` is a
 * counter in global memory, set to 0 once before its first use; it needs no
 * reset after that. Its top bit is the phase: block 0 adds the amount that
 * flips it once all blocks have arrived, so the barrier opens when the bit
 * changes. */
PRIM void grid_barrier(unsigned *word PRIM_AT)
{
#ifdef __CUDACC__
    __syncthreads();

    if (threadIdx.x + threadIdx.y + threadIdx.z == 0) {
        const unsigned blocks = gridDim.x * gridDim.y * gridDim.z;
        const bool first = blockIdx.x + blockIdx.y + blockIdx.z == 0;
        const unsigned step = first ? 0x80000000u - (blocks - 1) : 1u;
        unsigned before, now;
        /* release: the block's writes precede its arrival; acquire: those of
         * the others are visible after it */
        asm volatile("atom.add.release.gpu.global.u32 %0, [%1], %2;\n"
                     : "=r"(before)
                     : "l"(__cvta_generic_to_global(word)), "r"(step)
                     : "memory");
        do
            asm volatile("ld.acquire.gpu.global.u32 %0, [%1];\n"
                         : "=r"(now)
                         : "l"(__cvta_generic_to_global(word))
                         : "memory");
        while (!((before ^ now) & 0x80000000u));
    }

    __syncthreads();
#else
    emu::grid_barrier(word PRIM_PASS);
#endif
}

/* -- the last block ---------------------------------------------------------
 * Is this the last of `count` blocks to call it with this counter? All threads
 * of a block call it, as a barrier, and get the same answer. Writes of the
 * other blocks before their calls are visible to all threads of the last block,
 * so it can complete their work in an order of its own. `word` is a counter in
 * global memory; it is 0 before its first use and 0 again after the last
 * block. */
PRIM bool last_block(unsigned *word, unsigned count PRIM_AT)
{
#ifdef __CUDACC__
    bool last = false;
    __syncthreads();
    if (threadIdx.x + threadIdx.y + threadIdx.z == 0) {
        __threadfence(); /* the block's writes precede its arrival */
        last = atomicInc(word, count - 1) == count - 1; /* then back to 0 */
        __threadfence(); /* and others' writes are visible after it */
    }

    return __syncthreads_or(last);
#else
    return emu::last_block(word, count PRIM_PASS);
#endif
}

#undef PRIM
#undef PRIM_AT
#undef PRIM_PASS
#endif
