/* kernel.cuh -- types, helpers and rules that all kernel files share.
 *
 * Rules (docs/gpu.md describes the kernels):
 * - kernels are static; a file exports only launchers, the KernelFn and SpaceFn
 *   of its operators. On the host they read extents and addresses of a Call,
 *   never the elements of a tensor;
 * - each result is written by one thread, or as partial sums. Their number
 *   depends on shapes only, and the last block or a second launch adds them in
 *   one fixed order. There are no float atomics, so the bits do not depend on
 *   the order of blocks and threads;
 * - a chain of float additions has at most CHAIN terms; longer sums continue in
 *   a second register or in double;
 * - positions are counted in 32 bits (launchers refuse more), elements in 64;
 * - dx is written by put(): stored if `fresh` is set, else added. */
#ifndef SEG_CUDA_LIB_KERNEL_H
#define SEG_CUDA_LIB_KERNEL_H
#include "cuda/lib/gpu.h"
#include "cuda/lib/ptx.cuh"
extern "C" {
#include "cuda/lib/cuda.h"
#include "engine/backend/launch_log.h"
}

enum {
    BLOCK = 256, // threads of elementwise kernels
    WARP = 32,
    CHAIN = 512,           // float additions in a register before a second one
    H100_PROCESSORS = 132, // multiprocessors of the GPU whose blocks are
                           // counted where a choice follows from extents alone
    RUN = 16,              // float additions before a sum continues in double
};

// -- extents and operands ----------------------------------------------------

/* Memory of a tensor; NULL for an absent one. */
static inline float *values(const Tensor *t)
{
    return t ? (float *)t->data : NULL;
}

static inline bool is_fresh(const Call *c, int i)
{
    return c->fresh >> i & 1;
}

/* Bytes of a tensor, 0 for an absent one. */
static inline double moved(const Tensor *t)
{
    return t ? (double)tensor_bytes(t) : 0;
}

/* Bytes of a gradient: written if fresh, else read and written. */
static inline double moved(const Tensor *dx, bool fresh)
{
    return moved(dx) * (fresh ? 1 : 2);
}

/* In a dry run, records the memory traffic and operations of the next launch:
 * see launch_log_moves. */
static inline void moves(double bytes, double flops = 0)
{
    if (launch_hook) launch_log_moves(bytes, flops);
}

/* Do several ranks share the batch of this call? Then sums over samples are
 * all-reduced (gpu_allreduce) and an idle rank contributes nothing. Kernels
 * read from gpu_step whether the rank is idle, so one captured CUDA graph
 * serves both cases. */
static inline bool is_sharded(const Call *c)
{
    return c->step && c->step->shard.ranks;
}

/* *p = v or *p += v. */
static __device__ __forceinline__ void put(float *p, float v, bool fresh)
{
    *p = fresh ? v : *p + v;
}

static inline int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static inline int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Rows of channels of a tensor: N*D*H*W. */
static inline int64_t rows(Dims s)
{
    return s.n * positions(s);
}

// -- division by a number that is known at launch ----------------------------

/* n / by for 0 <= n < 2^31 by a multiplication: with s = ceil(log2(by)) and
 * mul = floor(2^32 (2^s - by) / by) + 1, the quotient is
 * (high(n * mul) + n) >> s. Source: Granlund and Montgomery, "Division by
 * invariant integers using multiplication", PLDI 1994, figure 4.1. */
struct Divisor {
    uint32_t by, mul, shift;
};

static inline Divisor divisor(int64_t by)
{
    Divisor v = {(uint32_t)by, 0, 0};
    while ((int64_t)1 << v.shift < by) v.shift++;
    uint64_t above = ((uint64_t)1 << v.shift) - (uint64_t)by;
    v.mul = (uint32_t)((above << 32) / (uint64_t)by + 1);
    return v;
}

static __device__ __forceinline__ uint32_t quotient(uint32_t n, Divisor v)
{
    return (__umulhi(n, v.mul) + n) >> v.shift;
}

/* Replaces n by the quotient and returns the remainder. */
static __device__ __forceinline__ uint32_t split(uint32_t *n, Divisor v)
{
    uint32_t all = *n;
    *n = quotient(all, v);
    return all - *n * v.by;
}

/* Extents as divisors, which split a row number into a Place. */
struct Grid {
    Divisor d, h, w;
};

static inline Grid grid_of(Dims s)
{
    return {divisor(s.d), divisor(s.h), divisor(s.w)};
}

struct Place {
    int32_t n, d, h, w;
};

static __device__ __forceinline__ Place place(Grid g, uint32_t row)
{
    Place p;
    p.w = (int32_t)split(&row, g.w);
    p.h = (int32_t)split(&row, g.h);
    p.d = (int32_t)split(&row, g.d);
    p.n = (int32_t)row;
    return p;
}

/* Element steps along each axis of a tensor that is broadcast to larger
 * extents: 0 along an axis of extent 1, which is repeated. */
struct Steps {
    int64_t n, d, h, w;
    int c;
};

static inline Steps steps_of(Dims s)
{
    Steps v = {};
    int64_t step = s.c;
    v.c = s.c > 1;
    v.w = s.w > 1 ? step : 0, step *= s.w;
    v.h = s.h > 1 ? step : 0, step *= s.h;
    v.d = s.d > 1 ? step : 0, step *= s.d;
    v.n = s.n > 1 ? step : 0;
    return v;
}

static __device__ __forceinline__ int64_t offset(const Steps &v, const Place &p,
                                                 int c)
{
    return p.n * v.n + p.d * v.d + p.h * v.h + p.w * v.w + c * v.c;
}

// -- launches ----------------------------------------------------------------

/* The number of blocks of BLOCK threads that gives each of `items` a thread, up
 * to a number that fills any GPU; kernels loop with the stride of the grid. */
static inline unsigned blocks_for(int64_t items)
{
    return (unsigned)most(1, least(ceil_div(items, BLOCK), 1 << 16));
}

#define EACH(i, count)                                               \
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; \
         i < (count); i += (int64_t)gridDim.x * blockDim.x)

/* The most bytes of shared memory that GpuLimits.shared gives a block; and on
 * Hopper. */
enum { SHARED_MOST = 99 << 10, SM90_SHARED_MOST = 227 << 10 };

/* Does a block with so many bytes of shared memory fit the target GPU? */
static inline bool gpu_fits(int64_t bytes)
{
    return bytes <= gpu_limits()->shared;
}

/* Allows blocks of `kernel`, which has no static shared memory
 * (tests/shell/cuda_ptx.sh), so many bytes of dynamic shared memory. All
 * launches up to the limit of the GPU set that limit, because a captured launch
 * may need more than the next one. False with the reason. */
template <class K> static inline bool gpu_allows(K *kernel, size_t bytes)
{
    const size_t limit = (size_t)gpu_limits()->shared;
    const size_t all = bytes > limit ? bytes : limit;
    // a dry run has no device to ask
    if (launch_hook || bytes <= 48 << 10 ||
        cudaFuncSetAttribute(kernel,
                             cudaFuncAttributeMaxDynamicSharedMemorySize,
                             (int)all) == cudaSuccess)
        return true;
    (void)cudaGetLastError(); // else the next launch would report this error
    return fail_device("this GPU has no %zu KB of shared memory for a block",
                       all >> 10);
}

/* The most positions that 32 bits count; the start of a tile past the last one
 * must be countable too. */
enum { MOST_POSITIONS = INT32_MAX - (1 << 16) };

static inline bool countable(const Call *c, int64_t positions)
{
    if (positions <= MOST_POSITIONS) return true;
    return fail_device("%s: %lld positions in one tensor; the GPU kernels "
                       "count to %d: use a smaller batch",
                       op_info[c->attr->op].name, (long long)positions,
                       (int)MOST_POSITIONS);
}
#endif
