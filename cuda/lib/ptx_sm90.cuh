/* ptx_sm90.cuh -- inline PTX of Hopper GPUs (compute capability 9.0): mbarrier,
 * copies by the tensor memory accelerator (TMA), wgmma, dependent launches,
 * registers of a warp.
 *
 * Only units that are compiled for sm_90a include it. As in ptx.cuh each
 * primitive has a device body and, for the emulator, a host body of the same
 * meaning.
 *
 * Shared memory is read and written by threads (generic proxy) and by TMA and
 * wgmma (async proxy). wgmma and tma_store may read the stores of a thread
 * after this thread's fence_async_shared and a barrier. Threads and wgmma may
 * read the bytes of a tma_load after mbarrier_wait on the load's barrier.
 *
 * Swizzle of 128 bytes: 16 bytes that belong at address a lie at
 * a ^ (a / 128 % 8 * 16); of 64 bytes: at a ^ (a / 128 % 4 * 16). A tile that
 * TMA fills begins at a multiple of 1024 bytes. */
#ifndef SEG_CUDA_LIB_PTX_SM90_H
#define SEG_CUDA_LIB_PTX_SM90_H
#include "cuda/lib/ptx.cuh"
#include "cuda/lib/tensor_map.cuh"

#ifdef __CUDACC__
#define PRIM static __device__ __forceinline__
#define PRIM_AT
#define PRIM_PASS
#else
#define PRIM      static inline __attribute__((always_inline, unused))
#define PRIM_AT   , EMU_AT
#define PRIM_PASS , file, line
#endif

// -- mbarrier ----------------------------------------------------------------
// A barrier in shared memory. A phase ends when `arrivals` threads and all
// expected bytes have arrived; then the next phase begins. A thread waits for
// the end of a phase and names the parity of the phase: 0 for the first, 1 for
// the second, and so on. On a new barrier a wait for parity 1 ends at once.

/* By one thread; then fence_async_shared and __syncthreads before other use. */
PRIM void mbarrier_init(uint64_t *bar, int arrivals PRIM_AT)
{
#ifdef __CUDACC__
    asm volatile(
        "mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(bar)),
        "r"(arrivals)
        : "memory");
#else
    emu::mbarrier_init(bar, arrivals PRIM_PASS);
#endif
}

/* Arrives `count` times. */
PRIM void mbarrier_arrive(uint64_t *bar, int count PRIM_AT)
{
#ifdef __CUDACC__
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0], %1;" ::"r"(
                     shared_address(bar)),
                 "r"(count)
                 : "memory");
#else
    emu::mbarrier_arrive(bar, count PRIM_PASS);
#endif
}

/* Adds to the bytes that the current phase expects, and arrives once. */
PRIM void mbarrier_expect(uint64_t *bar, uint32_t bytes PRIM_AT)
{
#ifdef __CUDACC__
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(
                     shared_address(bar)),
                 "r"(bytes)
                 : "memory");
#else
    emu::mbarrier_expect(bar, bytes PRIM_PASS);
#endif
}

/* Has the phase of this parity ended? Does not sleep, unlike mbarrier_wait: a
 * thread that serves two rings of buffers must not sleep on one of them. */
PRIM bool mbarrier_test(uint64_t *bar, uint32_t parity PRIM_AT)
{
#ifdef __CUDACC__
    uint32_t over;
    asm volatile("{\n.reg .pred p;\n"
                 "mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                 "selp.u32 %0, 1, 0, p;\n}"
                 : "=r"(over)
                 : "r"(shared_address(bar)), "r"(parity)
                 : "memory");
    return over;
#else
    return emu::mbarrier_test(bar, parity PRIM_PASS);
#endif
}

/* Waits for the end of the phase of this parity. A wait of seconds is a
 * mistake: the kernel then traps. */
PRIM void mbarrier_wait(uint64_t *bar, uint32_t parity PRIM_AT)
{
#ifdef __CUDACC__
    const uint32_t at = shared_address(bar);
    uint32_t over = 0;
    for (int i = 0;; i++) {
        asm volatile("{\n.reg .pred p;\n"
                     "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                     "selp.u32 %0, 1, 0, p;\n}"
                     : "=r"(over)
                     : "r"(at), "r"(parity)
                     : "memory");
        if (over) return;
        if (i > 1 << 22) __trap();
    }
#else
    emu::mbarrier_wait(bar, parity PRIM_PASS);
#endif
}

// -- proxies and named barriers ----------------------------------------------

/* Makes the calling thread's writes to shared memory (and its initialised
 * mbarriers) visible to TMA and wgmma; a barrier must follow. */
PRIM void fence_async_shared()
{
#ifdef __CUDACC__
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#else
    emu::fence_async_shared();
#endif
}

/* A barrier of `threads` threads of the block (whole warps); id 1 to 15. */
PRIM void named_barrier(int id, int threads PRIM_AT)
{
#ifdef __CUDACC__
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
#else
    emu::named_barrier(id, threads PRIM_PASS);
#endif
}

// -- TMA ---------------------------------------------------------------------

/* Copies a box of a tensor to shared memory: `at` are the coordinates of its
 * first element, the innermost axis first; elements outside of the tensor
 * become zero. All bytes of the box count for the expectation of `bar`. */
PRIM void tma_load(void *to, const TensorMap *map, int at0, int at1, int at2,
                   int at3, int at4, uint64_t *bar PRIM_AT)
{
#ifdef __CUDACC__
    asm volatile(
        "cp.async.bulk.tensor.5d.shared::cluster.global.tile"
        ".mbarrier::complete_tx::bytes [%0], [%1, {%2,%3,%4,%5,%6}], [%7];" ::
            "r"(shared_address(to)),
        "l"(map), "r"(at0), "r"(at1), "r"(at2), "r"(at3), "r"(at4),
        "r"(shared_address(bar))
        : "memory");
#else
    const int at[5] = {at0, at1, at2, at3, at4};
    emu::tma_load(to, map, at, bar PRIM_PASS);
#endif
}

/* Copies a box from shared memory to a tensor; elements outside of the tensor
 * are not written. Belongs to the thread's current group of stores. */
PRIM void tma_store(const TensorMap *map, const void *from, int at0, int at1,
                    int at2, int at3, int at4 PRIM_AT)
{
#ifdef __CUDACC__
    asm volatile("cp.async.bulk.tensor.5d.global.shared::cta.tile.bulk_group "
                 "[%0, {%1,%2,%3,%4,%5}], [%6];" ::"l"(map),
                 "r"(at0), "r"(at1), "r"(at2), "r"(at3), "r"(at4),
                 "r"(shared_address(from))
                 : "memory");
#else
    const int at[5] = {at0, at1, at2, at3, at4};
    emu::tma_store(map, from, at PRIM_PASS);
#endif
}

/* The same, but adds to the elements of the tensor, each sum rounded to the
 * tensor's type. */
PRIM void tma_reduce_add(const TensorMap *map, const void *from, int at0,
                         int at1, int at2, int at3, int at4 PRIM_AT)
{
#ifdef __CUDACC__
    asm volatile(
        "cp.reduce.async.bulk.tensor.5d.global.shared::cta.add.tile.bulk_group "
        "[%0, {%1,%2,%3,%4,%5}], [%6];" ::"l"(map),
        "r"(at0), "r"(at1), "r"(at2), "r"(at3), "r"(at4),
        "r"(shared_address(from))
        : "memory");
#else
    const int at[5] = {at0, at1, at2, at3, at4};
    emu::tma_reduce_add(map, from, at PRIM_PASS);
#endif
}

/* Closes the thread's current group of stores. */
PRIM void tma_store_commit()
{
#ifdef __CUDACC__
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
#else
    emu::tma_store_commit();
#endif
}

/* Waits until at most N of the thread's groups still read shared memory. */
template <int N> PRIM void tma_store_wait_read()
{
#ifdef __CUDACC__
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory");
#else
    emu::tma_store_wait_read(N);
#endif
}

/* Waits until at most N of the thread's groups are incomplete. */
template <int N> PRIM void tma_store_wait()
{
#ifdef __CUDACC__
    asm volatile("cp.async.bulk.wait_group %0;" ::"n"(N) : "memory");
#else
    emu::tma_store_wait(N);
#endif
}

// -- dependent launches ------------------------------------------------------

/* Waits until the launch ahead in the stream has ended and its writes are
 * visible. Each thread of a kernel of LAUNCH_DEPENDENT (gpu.h) calls it before
 * it reads or writes global memory; in other launches it returns at once. */
PRIM void grid_dependency_wait()
{
#ifdef __CUDACC__
    asm volatile("griddepcontrol.wait;" ::: "memory");
#else
    emu::grid_dependency_wait();
#endif
}

// -- registers of a warpgroup ------------------------------------------------

/* Gives registers of each thread of the warpgroup back, or takes more: waits
 * until they are there. COUNT of setmaxnreg_dec must suffice for the code after
 * it: else ptxas leaves the instruction out without a word, and the warpgroups
 * that want more wait forever. */
template <int COUNT> PRIM void setmaxnreg_dec()
{
#ifdef __CUDACC__
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
#else
    emu::setmaxnreg(COUNT, false);
#endif
}
template <int COUNT> PRIM void setmaxnreg_inc()
{
#ifdef __CUDACC__
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
#else
    emu::setmaxnreg(COUNT, true);
#endif
}

/* Returns x, but the compiler cannot know that. It computes an expression of
 * opaque(x) after this call, and does not keep an earlier result in registers
 * until then. */
PRIM int opaque(int x)
{
#ifdef __CUDACC__
    asm volatile("" : "+r"(x));
#endif
    return x;
}

/* pack_bf16 and pack_f16 of ptx.cuh, and back, in 32-bit registers only: the
 * 16-bit variables of CUDA's types cost an epilogue of many accumulators
 * registers and moves. D: BF16 or F16. */
template <Dtype D> PRIM uint32_t pack_pair(float low, float high)
{
#ifdef __CUDACC__
    uint32_t r;
    if constexpr (D == BF16)
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    else
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
#else
    return D == BF16 ? pack_bf16(low, high) : pack_f16(low, high);
#endif
}
template <Dtype D> PRIM float2 unpack_pair(uint32_t r)
{
    if constexpr (D == BF16)
        return make_float2(__uint_as_float(r << 16),
                           __uint_as_float(r & 0xffff0000u));
    else
        return unpack_f16(r);
}

/* The counterpart of ldmatrix_x4_trans: stores four 8x8 matrices of 16 bits.
 * Lane 8i+r gives the 16-byte aligned address of row r of matrix i; register i
 * of lane l holds elements (2(l%4), l/4) and (2(l%4)+1, l/4) of matrix i. */
PRIM void stmatrix_x4_trans(void *row, const uint32_t (&v)[4] PRIM_AT)
{
#ifdef __CUDACC__
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], "
                 "{%1,%2,%3,%4};" ::"r"(shared_address(row)),
                 "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3])
                 : "memory");
#else
    emu::stmatrix(row, v, 4, true PRIM_PASS);
#endif
}

// -- wgmma -------------------------------------------------------------------
// D (64 x N, f32) = A (64 x K) B (K x N) + D by the 128 threads of a warpgroup;
// K is 16, in tf32 8. D: register d[4j + i] of thread t holds row 16 (t / 32) +
// t % 32 / 4 + 8 (i / 2), column 8j + t % 4 * 2 + i % 2.

enum { SWIZZLE_NONE = 0, SWIZZLE_128 = 1, SWIZZLE_64 = 2, SWIZZLE_32 = 3 };

/* The descriptor of an operand in shared memory. With start the tile's address,
 * row = 128, 64 or 32 bytes of the swizzle and e = row / 2 elements, the 16-bit
 * element (m, k) of A, or (n, k) of B, is at byte
 *
 *     K-major,  swizzled: start + m / 8 * stride + m % 8 * row + k * 2
 *     MN-major, swizzled: start + m / e * leading + k / 8 * stride
 *                               + k % 8 * row + m % e * 2
 *     K-major,  none:     start + m / 8 * stride + k / 8 * leading
 *                               + m % 8 * 16 + k % 8 * 2
 *     MN-major, none:     start + m / 8 * stride + k / 8 * leading
 *                               + k % 8 * 16 + m % 8 * 2
 *
 * to which the swizzle is then applied. f32 elements (tf32) are K-major, with k
 * * 4 and k / 4 * leading for k * 2 and k / 8 * leading. start, leading and
 * stride are multiples of 16 bytes; start may be any row of a swizzled tile. */
PRIM uint64_t wgmma_descriptor(const void *start, uint32_t leading,
                               uint32_t stride, int swizzle)
{
#ifdef __CUDACC__
    const uint32_t at = shared_address(start);
#else
    const uint32_t at = emu::shared_offset(start);
#endif
    return (uint64_t)((at & 0x3ffff) >> 4) | (uint64_t)(leading >> 4) << 16 |
           (uint64_t)(stride >> 4) << 32 | (uint64_t)swizzle << 62;
}

/* Moves the start of a descriptor by a multiple of 16 bytes. */
PRIM uint64_t wgmma_advance(uint64_t descriptor, uint32_t bytes)
{
    return descriptor + (uint64_t)(bytes >> 4);
}

/* Before the first product, and after D has been written by other code. */
PRIM void wgmma_fence()
{
#ifdef __CUDACC__
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#else
    emu::wgmma_fence();
#endif
}

PRIM void wgmma_commit()
{
#ifdef __CUDACC__
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#else
    emu::wgmma_commit();
#endif
}

/* Waits until at most N groups of products are in flight. */
template <int N> PRIM void wgmma_wait()
{
#ifdef __CUDACC__
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
#else
    emu::wgmma_wait(N);
#endif
}

/* WgmmaProduct<N, D, TA, TB>::issue(d, a, b, add): one product of operands of
 * type D (BF16, F16, or F32: a tf32 product, which reads the upper 19 bits of a
 * number); TA, TB: the operand is MN-major, never in tf32; add false: d is not
 * read. N 32, 48, 64, 96, 128, 192 or 256. */
template <int N, Dtype D, bool TA, bool TB> struct WgmmaProduct;

#ifdef __CUDACC__
#define SEG_T(t)                                                          \
    "%" #t "0,%" #t "1,%" #t "2,%" #t "3,%" #t "4,%" #t "5,%" #t "6,%" #t \
    "7,%" #t "8,%" #t "9,"
#define SEG_R4(i)  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define SEG_R16(i) SEG_R4(i), SEG_R4(i + 4), SEG_R4(i + 8), SEG_R4(i + 12)
#define SEG_R48(i) SEG_R16(i), SEG_R16(i + 16), SEG_R16(i + 32)
#define SEG_R64(i) SEG_R48(i), SEG_R16(i + 48)
#define SEG_WGMMA(N, TYPE, KIND, LIST, A, B, ADD, MAJOR, ...)                  \
    template <bool TA, bool TB> struct WgmmaProduct<N, TYPE, TA, TB> {         \
        PRIM void issue(float (&d)[N / 2], uint64_t a, uint64_t b, int add)    \
        {                                                                      \
            asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #ADD ", 0;\n"    \
                         "wgmma.mma_async.sync.aligned.m64n" #N KIND " {" LIST \
                         "}, %" #A ", %" #B ", p, 1, 1" MAJOR ";\n}"           \
                         : __VA_ARGS__                                         \
                         : "l"(a), "l"(b), "r"(add), "n"((int)TA),             \
                           "n"((int)TB));                                      \
        }                                                                      \
    };
// the last two operands of the instruction: are A and B MN-major?
#define SEG_MAJOR(A, B)   ", %" #A ", %" #B
#define SEG_MAJOR_K(A, B) ""
#define SEG_WGMMAS(TYPE, KIND, MAJOR)                                          \
    SEG_WGMMA(32, TYPE, KIND, SEG_T() "%10,%11,%12,%13,%14,%15", 16, 17, 18,   \
              MAJOR(19, 20), SEG_R16(0))                                       \
    SEG_WGMMA(48, TYPE, KIND, SEG_T() SEG_T(1) "%20,%21,%22,%23", 24, 25, 26,  \
              MAJOR(27, 28), SEG_R16(0), SEG_R4(16), SEG_R4(20))               \
    SEG_WGMMA(64, TYPE, KIND, SEG_T() SEG_T(1) SEG_T(2) "%30,%31", 32, 33, 34, \
              MAJOR(35, 36), SEG_R16(0), SEG_R16(16))                          \
    SEG_WGMMA(96, TYPE, KIND,                                                  \
              SEG_T() SEG_T(1) SEG_T(2) SEG_T(3) "%40,%41,%42,%43,%44,%45,"    \
                                                 "%46,%47",                    \
              48, 49, 50, MAJOR(51, 52), SEG_R48(0))                           \
    SEG_WGMMA(128, TYPE, KIND,                                                 \
              SEG_T() SEG_T(1) SEG_T(2) SEG_T(3) SEG_T(4) SEG_T(5) "%60,%61,"  \
                                                                   "%62,%63",  \
              64, 65, 66, MAJOR(67, 68), SEG_R64(0))                           \
    SEG_WGMMA(192, TYPE, KIND,                                                 \
              SEG_T() SEG_T(1) SEG_T(2) SEG_T(3) SEG_T(4) SEG_T(5) SEG_T(6)    \
                  SEG_T(7) SEG_T(8) "%90,%91,%92,%93,%94,%95",                 \
              96, 97, 98, MAJOR(99, 100), SEG_R48(0), SEG_R48(48))             \
    SEG_WGMMA(256, TYPE, KIND,                                                 \
              SEG_T() SEG_T(1) SEG_T(2) SEG_T(3) SEG_T(4) SEG_T(5) SEG_T(6)    \
                  SEG_T(7) SEG_T(8) SEG_T(9) SEG_T(10)                         \
                      SEG_T(11) "%120,%121,%122,%123,%124,%125,%126,%127",     \
              128, 129, 130, MAJOR(131, 132), SEG_R64(0), SEG_R64(64))
SEG_WGMMAS(BF16, "k16.f32.bf16.bf16", SEG_MAJOR)
SEG_WGMMAS(F16, "k16.f32.f16.f16", SEG_MAJOR)
SEG_WGMMAS(F32, "k8.f32.tf32.tf32", SEG_MAJOR_K)
#undef SEG_T
#undef SEG_R4
#undef SEG_R16
#undef SEG_R48
#undef SEG_R64
#undef SEG_WGMMA
#undef SEG_MAJOR
#undef SEG_MAJOR_K
#undef SEG_WGMMAS
#else
template <int N, Dtype D, bool TA, bool TB> struct WgmmaProduct {
    PRIM void issue(float (&d)[N / 2], uint64_t a, uint64_t b, int add, EMU_AT)
    {
        static_assert(D != F32 || (!TA && !TB), "tf32 operands are K-major");
        emu::wgmma(d, N,
                   D == F32 ? emu::PRODUCT_TF32
                   : D == BF16 ? emu::PRODUCT_BF16
                               : emu::PRODUCT_F16,
                   TA, TB, a, b, add, file, line);
    }
};
#endif

#undef PRIM
#undef PRIM_AT
#undef PRIM_PASS
#endif
