/* emu_test.cu -- tests of the emulator itself: orders, numbers, memory,
 * devices, failing calls, speed. Streams and graphs are in emu_streams.h.
 *
 *     emu_test          all; ends with "N passed, N failed, 0 skipped"
 *     emu_test speed    nanoseconds per thread of frequent operations
 *
 * Runs under every order and in every build; a test that depends on the order
 * sets it. Not for nvcc: it uses emu_control.h. */
#include "cuda/lib/ptx.cuh"
#include "tests/cuda/emulator/emu_control.h"
#include "tests/cuda/emulator/kit.h"
#include <chrono>
#include <thread>

/* -- orders and fibers ----------------------------------------------------- */
/* Each thread takes a number before and after a barrier. */
static __global__ void k_turns(unsigned *counter, unsigned *turns)
{
    const unsigned n = gridDim.x * blockDim.x;
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    turns[i] = atomicAdd(counter, 1u);
    __syncthreads();
    turns[n + i] = atomicAdd(counter, 1u);
}
static std::vector<unsigned> turns_in(const char *order)
{
    emu_set_order(order);
    Buffer<unsigned> counter(std::vector<unsigned>(1, 0)), turns(2 * 2 * 64);
    LAUNCH(k_turns, 2, 64, 0, 0, counter.p, turns.p);
    OK_LAUNCH();
    return turns.get();
}
static void test_orders(void)
{
    const std::vector<unsigned> g = turns_in("g"), h = turns_in("h");
    const std::vector<unsigned> a = turns_in("a"), d = turns_in("d");
    for (unsigned i = 0; i < 64; i++) {
        EXPECT(g[i] == i && a[i] == i); /* block 0 first, upwards */
        EXPECT(h[i] == 128 + 63 - i && d[i] == 128 + 63 - i);
    }

    /* after a barrier the last thread to arrive goes on, then its warp; round
     * robin starts again from the first thread */
    EXPECT(g[128 + 63] == 64 && g[128 + 32] == 65 && g[128] == 64 + 32);
    EXPECT(h[128] == 128 + 64 && h[128 + 31] == 128 + 65);
    EXPECT(a[128] == 64 && a[128 + 63] == 127);
    EXPECT(d[128 + 63] == 128 + 64 && d[128] == 255);
    EXPECT(turns_in("r5") != g);
    EXPECT(turns_in("r5") != turns_in("r6"));
    emu_set_order("g");
}

static __global__ void k_indices(uint3 *threads, uint3 *blocks)
{
    const unsigned t =
        (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    const unsigned b =
        (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    const unsigned i = b * blockDim.x * blockDim.y * blockDim.z + t;
    threads[i] = threadIdx;
    blocks[i] = blockIdx;
}
static void test_indices(void)
{
    Buffer<uint3> t(2 * 3 * 4 * 5 * 3 * 7), b(t.n);
    LAUNCH(k_indices, dim3(2, 3, 4), dim3(5, 3, 7), 0, 0, t.p, b.p);
    OK_LAUNCH();
    const std::vector<uint3> tt = t.get(), bb = b.get();
    size_t i = 0, wrong = 0;

    for (unsigned z = 0; z < 4; z++)
        for (unsigned y = 0; y < 3; y++)
            for (unsigned x = 0; x < 2; x++)
                for (unsigned w = 0; w < 7; w++)
                    for (unsigned v = 0; v < 3; v++)
                        for (unsigned u = 0; u < 5; u++, i++)
                            wrong += tt[i].x != u || tt[i].y != v ||
                                     tt[i].z != w || bb[i].x != x ||
                                     bb[i].y != y || bb[i].z != z;
    EXPECT(wrong == 0 && i == t.n);
}

/* a scan with two barriers a step, for every size of block */
static __global__ void k_scan(int *x)
{
    DYN_SMEM(int, s);
    const int i = threadIdx.x, n = blockDim.x;
    s[i] = x[i];
    __syncthreads();
    for (int by = 1; by < n; by *= 2) {
        const int add = i >= by ? s[i - by] : 0;
        __syncthreads();
        s[i] += add;
        __syncthreads();
    }
    x[i] = s[i];
}
static void test_block_sizes(void)
{
    for (const char *order : {"g", "h", "a", "d", "r9"}) {
        emu_set_order(order);
        for (int n = 1; n <= 1024; n += n < 70 ? 1 : 159) {
            Buffer<int> x(std::vector<int>((size_t)n, 3));
            LAUNCH(k_scan, 1, n, (size_t)n * sizeof(int), 0, x.p);
            OK_LAUNCH();
            const std::vector<int> y = x.get();
            bool right = true;
            for (int i = 0; i < n; i++) right &= y[(size_t)i] == 3 * (i + 1);
            EXPECT(right);
        }
    }
    emu_set_order("g");
}

static __constant__ float table[4] = {1, 2, 3, 4};
static __global__ void k_constant(float *out)
{
    out[threadIdx.x] = table[threadIdx.x];
}
static void test_constant(void)
{
    const float nine = 9;
    Buffer<float> out(4);
    LAUNCH(k_constant, 1, 4, 0, 0, out.p); /* queued: reads the old value */
    OK(cudaMemcpyToSymbol(table, &nine, sizeof nine, 2 * sizeof nine));
    EXPECT(out.get()[2] == 3);
    LAUNCH(k_constant, 1, 4, 0, 0, out.p);
    EXPECT(out.get()[2] == 9 && out.get()[3] == 4);
    EXPECT(cudaMemcpyToSymbol(table, &nine, 4, 16) == cudaErrorInvalidValue);
    EXPECT(cudaGetLastError() == cudaErrorInvalidValue);
}

/* -- numbers --------------------------------------------------------------- */
/* The value of a pattern with e bits of exponent and m of fraction. */
static double value_of(unsigned u, int e, int m)
{
    const int bias = (1 << (e - 1)) - 1;
    const int exponent = (int)(u >> m) & ((1 << e) - 1);
    const double fraction = (double)(u & ((1u << m) - 1));
    const double v = exponent ? ldexp(fraction + (1 << m), exponent - bias - m)
                              : ldexp(fraction, 1 - bias - m);
    return u >> (e + m) ? -v : v;
}
/* Returns the pattern nearest to x, of two equally near ones the even one, by
 * bisection over the patterns, which are in the order of their values. */
static unsigned nearest(double x, int e, int m)
{
    const unsigned sign = std::signbit(x) ? 1u << (e + m) : 0;
    const double a = fabs(x);
    unsigned low = 0, high = ((1u << e) - 1) << m; /* infinite */
    while (high - low > 1) {
        const unsigned mid = (low + high) / 2;
        if (value_of(mid, e, m) <= a)
            low = mid;
        else
            high = mid;
    }
    const double down = a - value_of(low, e, m), up = value_of(high, e, m) - a;
    const bool even = low % 2 == 0;
    return sign | (down < up || (down == up && even) ? low : high);
}

static void test_conversions(void)
{
    size_t wrong = 0, wrong_back = 0, wrong_between = 0;
    for (unsigned u = 0; u < 65536; u++) {
        for (int bf = 0; bf < 2; bf++) {
            const int e = bf ? 8 : 5, m = 15 - e;
            const unsigned top = ((1u << e) - 1) << m, a = u & 0x7fff;
            const float x =
                bf ? __bfloat162float(__ushort_as_bfloat16((unsigned short)u))
                   : __half2float(__ushort_as_half((unsigned short)u));
            const unsigned back = bf ? __bfloat16_as_ushort(__float2bfloat16(x))
                                     : __half_as_ushort(__float2half(x));
            if (a > top) {
                wrong += x == x || back != 0x7fff; /* one NaN */
                continue;
            }
            wrong += a == top ? !std::isinf(x) : x != value_of(u, e, m);
            wrong_back += back != u;
            /* just below, at and just above the middle to the next pattern */
            const double next = value_of(a + 1, e, m), here = value_of(a, e, m);
            if (a == top) continue;
            for (int k = -1; k <= 1; k++) {
                float y = (float)(0.5 * here + 0.5 * next);
                if (y != 0.5 * here + 0.5 * next) continue;
                if (k) y = nextafterf(y, k < 0 ? 0.0f : HUGE_VALF);
                if (u >> 15) y = -y;
                const unsigned got =
                    bf ? __bfloat16_as_ushort(__float2bfloat16(y))
                       : __half_as_ushort(__float2half(y));
                wrong_between += got != nearest(y, e, m);
            }
        }
    }

    EXPECT(wrong == 0);
    EXPECT(wrong_back == 0);
    EXPECT(wrong_between == 0);
    EXPECT(__half_as_ushort(__float2half(65519.9f)) == 0x7bff);
    EXPECT(__half_as_ushort(__float2half(65520.0f)) == 0x7c00);
    EXPECT(__half_as_ushort(__float2half(-0.0f)) == 0x8000);
}

/* Each result is the exact result, rounded once. */
static void test_arithmetic(void)
{
    uint32_t state = 12345;
    size_t wrong = 0;

    for (int i = 0; i < 40000; i++) {
        state = state * 1664525u + 1013904223u;
        const unsigned short u = (unsigned short)(state >> 16);
        state = state * 1664525u + 1013904223u;
        const unsigned short v = (unsigned short)(state >> 16);
        const __half a = __ushort_as_half(u), b = __ushort_as_half(v);
        const double x = __half2float(a), y = __half2float(b);
        const __half got[] = {a + b, a - b, a * b, a / b,
                              __hmul2(__half2{a, b}, __half2{b, a}).y};
        const double want[] = {x + y, x - y, x * y, x / y, x * y};
        for (int k = 0; k < 5; k++)
            if (std::isfinite(want[k]))
                wrong += __half_as_ushort(got[k]) != nearest(want[k], 5, 10);
        const __nv_bfloat16 p = __ushort_as_bfloat16(u);
        const __nv_bfloat16 q = __ushort_as_bfloat16(v);
        const double r = __bfloat162float(p), s = __bfloat162float(q);
        if (std::isfinite(r * s) && std::isfinite((float)(r + s)))
            wrong += __bfloat16_as_ushort(p + q) != nearest(r + s, 8, 7) &&
                     fabs(r / s) < 1e4 && fabs(s / r) < 1e4;
        wrong += (a < b) != (x < y) || (a == b) != (x == y) ||
                 __hge(p, q) != (r >= s);
    }

    EXPECT(wrong == 0);
    const __half one = __float2half(1.0f), tiny = __float2half(0x1p-11f);
    EXPECT((float)__hfma(one, one, tiny) == 1.0f);
    EXPECT((float)__hneg(one) == -1.0f && (float)__habs(-one) == 1.0f);
    EXPECT((float)__hmax(one, tiny) == 1.0f &&
           __hisnan(one / one - one / (tiny - tiny) * (tiny - tiny)));
    EXPECT(__float2int_rn(2.5f) == 2 && __float2int_rz(-2.9f) == -2);
    EXPECT(__float2int_rn(1e10f) == INT32_MAX && __float2int_rn(NAN) == 0);
    EXPECT(__float2uint_rz(-3.0f) == 0 && __float2int_rd(-0.5f) == -1);
    EXPECT(__saturatef(NAN) == 0 && __saturatef(7) == 1);
    EXPECT(min(1.0f, NAN) == 1.0f && max(3u, 4u) == 4u);
}

/* -- memory ---------------------------------------------------------------- */
static void test_memory(void)
{
    size_t before, after, total;
    float *p, *q;
    OK(cudaMemGetInfo(&before, &total));
    OK(cudaMalloc(&p, 1000));
    OK(cudaMemGetInfo(&after, &total));
    EXPECT(before - after == 1024);
    EXPECT((uintptr_t)p % 256 == 0);
    EXPECT(emu_live_blocks() == 1 && emu_live_bytes() == 1000);
    float x[250];
    OK(cudaMemcpy(x, p, 1000, cudaMemcpyDeviceToHost));
    EXPECT(x[0] != x[0] && x[249] != x[249]); /* poison is a NaN */
    cudaPointerAttributes attributes;
    OK(cudaPointerGetAttributes(&attributes, p + 3));
    EXPECT(attributes.type == cudaMemoryTypeDevice);
    OK(cudaPointerGetAttributes(&attributes, x));
    EXPECT(attributes.type == cudaMemoryTypeUnregistered);
    OK(cudaFree(p));
    OK(cudaMalloc(&q, 1000));
    EXPECT(p != q); /* so that use after free is detected */
    OK(cudaFree(q));
    EXPECT(cudaMalloc(&p, total + 1) == cudaErrorMemoryAllocation && !p);
    EXPECT(cudaMalloc(&p, ~(size_t)0) == cudaErrorMemoryAllocation);
    EXPECT(cudaGetLastError() == cudaErrorMemoryAllocation);
    EXPECT(cudaGetLastError() == cudaSuccess);
    OK(cudaMalloc(&p, 0));
    EXPECT(!p && cudaFree(p) == cudaSuccess);
    OK(cudaMalloc(&p, 16));
    EXPECT(cudaMemcpy(p, x, 16, cudaMemcpyDeviceToHost) ==
           cudaErrorInvalidValue);
    EXPECT(cudaMemset(x, 0, 16) == cudaErrorInvalidValue);
    OK(cudaFree(p));
    EXPECT(emu_live_blocks() == 0);
    (void)cudaGetLastError();
}

/* -- devices and launches -------------------------------------------------- */
static __global__ void k_nothing(int)
{
}

static void test_devices(void)
{
    int n, value;
    cudaDeviceProp p;
    float *at;
    const size_t memory = (size_t)2 << 30;

    emu_set_device(90, 2, "ok", 1 << 20);
    EXPECT(cudaGetDeviceCount(&n) == cudaSuccess && n == 2);
    OK(cudaGetDeviceProperties(&p, 1));
    EXPECT(!strcmp(p.name, "emulated") && p.major == 9 && p.minor == 0);
    EXPECT(p.totalGlobalMem == 1 << 20 && p.warpSize == 32);
    OK(cudaDeviceGetAttribute(&value, cudaDevAttrComputeCapabilityMajor, 0));
    EXPECT(value == 9);
    EXPECT(cudaSetDevice(2) == cudaErrorInvalidDevice);
    OK(cudaSetDevice(1));
    OK(cudaMalloc(&at, 1 << 20));
    OK(cudaSetDevice(0)); /* each device has its own memory */
    float *other;
    OK(cudaMalloc(&other, 1 << 20));
    EXPECT(cudaMalloc(&other, 1) == cudaErrorMemoryAllocation);
    OK(cudaDeviceReset());
    EXPECT(emu_live_blocks() == 0);

    emu_set_device(70, 1, "ok", memory);
    LAUNCH(k_nothing, 1, 1, 0, 0, 0);
    EXPECT(cudaGetLastError() == cudaErrorNoKernelImageForDevice);
    emu_set_device(80, 0, "ok", memory);
    EXPECT(cudaGetDeviceCount(&n) == cudaErrorNoDevice && n == 0);
    emu_set_device(80, 1, "none", memory);
    EXPECT(cudaGetDeviceCount(&n) == cudaErrorInsufficientDriver && n == 0);
    EXPECT(cudaDriverGetVersion(&value) == cudaSuccess && value == 0);
    EXPECT(cudaMalloc(&at, 1) == cudaErrorInsufficientDriver);
    LAUNCH(k_nothing, 1, 1, 0, 0, 0);
    EXPECT(cudaGetLastError() == cudaErrorInsufficientDriver);
    emu_set_device(80, 1, "old", memory);
    EXPECT(cudaDriverGetVersion(&value) == cudaSuccess);
    OK(cudaRuntimeGetVersion(&n));
    EXPECT(value > 0 && value < n);
    EXPECT(cudaSetDevice(0) == cudaErrorInsufficientDriver);
    emu_set_device(80, 1, "ok", memory);
    OK(cudaSetDevice(0));
    (void)cudaGetLastError();
    EXPECT(!strcmp(cudaGetErrorName(cudaErrorIllegalAddress),
                   "cudaErrorIllegalAddress"));
    EXPECT(!strcmp(cudaGetErrorString(cudaErrorMemoryAllocation),
                   "out of memory"));
}

static cudaError_t try_launch(dim3 grid, dim3 block, size_t smem)
{
    LAUNCH(k_nothing, grid, block, smem, 0, 1);
    (void)cudaDeviceSynchronize();
    return cudaGetLastError();
}
static void test_launches(void)
{
    const cudaError_t bad = cudaErrorInvalidConfiguration;
    EXPECT(try_launch(1, 1024, 0) == cudaSuccess);
    EXPECT(try_launch(1, 1025, 0) == bad && try_launch(1, 0, 0) == bad);
    EXPECT(try_launch(0, 1, 0) == bad);
    EXPECT(try_launch(1, dim3(1, 1, 65), 0) == bad);
    EXPECT(try_launch(dim3(1, 65536), 1, 0) == bad);
    EXPECT(try_launch(dim3(1, 1, 65536), 1, 0) == bad);
    EXPECT(try_launch(1, dim3(64, 8, 2), 0) == cudaSuccess);
    EXPECT(try_launch(1, dim3(64, 8, 3), 0) == bad);
    EXPECT(try_launch(1, 1, 49153) == cudaErrorInvalidValue);
    const cudaFuncAttribute most = cudaFuncAttributeMaxDynamicSharedMemorySize;
    EXPECT(cudaFuncSetAttribute(k_nothing, most, 99 * 1024 + 1) ==
           cudaErrorInvalidValue);
    OK(cudaFuncSetAttribute(k_nothing, most, 99 * 1024));
    (void)cudaGetLastError();
    EXPECT(try_launch(1, 1, 99 * 1024) == cudaSuccess);
    EXPECT(try_launch(1, 1, 99 * 1024 + 1) == cudaErrorInvalidValue);
    emu_set_device(90, 1, "ok", (size_t)2 << 30);
    OK(cudaFuncSetAttribute(k_nothing, most, 227 * 1024));
    EXPECT(cudaFuncSetAttribute(k_nothing, most, 227 * 1024 + 1) ==
           cudaErrorInvalidValue);
    (void)cudaGetLastError();
    EXPECT(try_launch(1, 1, 227 * 1024) == cudaSuccess);
    emu_set_device(80, 1, "ok", (size_t)2 << 30);
    OK(cudaFuncSetAttribute(k_nothing, most, 48 * 1024));
    LAUNCH_COOP(k_nothing, 129, 1, 0, 0, 1);
    EXPECT(cudaGetLastError() == cudaErrorCooperativeLaunchTooLarge);
    LAUNCH(k_nothing, 1, 1, 0, reinterpret_cast<cudaStream_t>(64), 1);
    EXPECT(cudaGetLastError() == cudaErrorInvalidResourceHandle);
    emu_reset_counts();
    EXPECT(try_launch(3, 32, 0) == cudaSuccess);
    EXPECT(emu_launch_count("nothing") == 1 && emu_launch_count("x") == 0);
}

/* Calls from several host threads are serialised. */
static __global__ void k_count(unsigned *sum)
{
    __syncthreads();
    atomicAdd(sum, 1u);
}
static void test_host_threads(void)
{
    unsigned *sum[4], got[4];
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; t++) {
        OK(cudaMalloc(&sum[t], sizeof(unsigned)));
        OK(cudaMemset(sum[t], 0, sizeof(unsigned)));
    }

    for (int t = 0; t < 4; t++)
        threads.emplace_back([&, t] {
            for (int i = 0; i < 50; i++) {
                LAUNCH(k_count, 2, 64, 0, 0, sum[t]);
                OK(cudaDeviceSynchronize());
            }
        });

    for (std::thread &t : threads) t.join();
    for (int t = 0; t < 4; t++) {
        OK(cudaMemcpy(&got[t], sum[t], 4, cudaMemcpyDeviceToHost));
        EXPECT(got[t] == 50 * 128);
        OK(cudaFree(sum[t]));
    }
}

#include "tests/cuda/emulator/emu_streams.h"

/* -- speed ----------------------------------------------------------------- */
static __global__ void k_barriers(int n)
{
    for (int i = 0; i < n; i++) __syncthreads();
}
static __global__ void k_shuffles(float *out, int n)
{
    float x = (float)threadIdx.x;
    for (int i = 0; i < n; i++) x = __shfl_xor_sync(~0u, x, 1);
    if (x < 0) out[0] = x;
}
static __global__ void k_axpy(const float *x, float *y, float a)
{
    const size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    y[i] += a * x[i];
}
static __global__ void k_products(float *out, int n)
{
    const unsigned l = threadIdx.x;
    uint32_t a[4] = {l, l + 1, l + 2, l + 3}, b[2] = {l, l};
    float d[4] = {0, 0, 0, 0};
    for (int i = 0; i < n; i++) mma_bf16(d, a, b);
    out[blockIdx.x * 32 + l] = d[0];
}
/* nanoseconds for each of `count`, the best of five */
template <class F> static void speed(const char *what, double count, F run)
{
    double best = 1e30;
    for (int i = 0; i < 5; i++) {
        const auto begin = std::chrono::steady_clock::now();
        run();
        OK_LAUNCH();
        const std::chrono::duration<double> t =
            std::chrono::steady_clock::now() - begin;
        if (t.count() < best) best = t.count();
    }
    printf("%-28s %8.1f ns\n", what, 1e9 * best / count);
}
static int speeds(void)
{
    Buffer<float> x(std::vector<float>(1 << 20, 1.0f)), y(x.get()), z(2048);
    speed("barrier, a thread", 8.0 * 256 * 1000,
          [] { LAUNCH(k_barriers, 8, 256, 0, 0, 1000); });
    speed("shuffle, a thread", 8.0 * 256 * 1000,
          [&] { LAUNCH(k_shuffles, 8, 256, 0, 0, y.p, 1000); });
    speed("empty kernel, a thread", 4096.0 * 256,
          [] { LAUNCH(k_nothing, 4096, 256, 0, 0, 0); });
    speed("y += a x, a thread", 4096.0 * 256,
          [&] { LAUNCH(k_axpy, 4096, 256, 0, 0, x.p, y.p, 2.0f); });
    speed("mma bf16, a thread", 64.0 * 32 * 200,
          [&] { LAUNCH(k_products, 64, 32, 0, 0, z.p, 200); });
    speed("launch of one thread", 1000, [] {
        for (int i = 0; i < 1000; i++) LAUNCH(k_nothing, 1, 1, 0, 0, 0);
    });
    return 0;
}

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "speed")) return speeds();
    test_orders();
    test_indices();
    test_block_sizes();
    test_constant();
    test_conversions();
    test_arithmetic();
    test_memory();
    test_devices();
    test_launches();
    test_host_threads();
    test_streams();
    test_captures();
    test_failures();
    EXPECT(emu_race_count() == 0);
    return kit_result();
}
