/* rates.cu -- measures the memory bandwidth and the FLOP rates of this GPU.
 *
 * The bounds of docs/gpu.md divide bytes and FLOPs by a bandwidth and a rate.
 * This program measures both, so that a benchmark can be given as a share of
 * the measured rate. Copies: 16 bytes a thread from one large array to another;
 * bytes read and written both count. Products: in registers only, with enough
 * independent chains to hide latency; on tensor cores by mma.sync, as in the
 * kernels of cuda/ (on Hopper about two thirds of the rate of wgmma).
 *
 *     rates        one line each: name, number, unit; the best of ROUNDS */
#include "cuda/lib/ptx.cuh"
#include "tests/cuda/emulator/kit.h"

enum {
    ROUNDS = 12,
    BLOCK = 256,
    A_SM = 8,    // blocks for each multiprocessor
    CHAINS = 8,  // independent products of a warp
    LOOPS = 512, // of CHAINS products
};

static __global__ void __launch_bounds__(BLOCK)
    copy_kernel(const uint4 *from, uint4 *to, size_t count)
{
    const size_t step = (size_t)gridDim.x * blockDim.x;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < count;
         i += step)
        to[i] = from[i];
}

/* f32: 4 CHAINS chains a thread. */
static __global__ void __launch_bounds__(BLOCK)
    fma_kernel(float *out, float a, float b)
{
    float d[4 * CHAINS];
    for (int c = 0; c < 4 * CHAINS; c++) d[c] = (float)(threadIdx.x + c);
    for (int i = 0; i < LOOPS; i++)
#pragma unroll
        for (int c = 0; c < 4 * CHAINS; c++) d[c] = fmaf(d[c], a, b);
    float sum = 0;
    for (int c = 0; c < 4 * CHAINS; c++) sum += d[c];
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

enum Kind { BF16, F16, TF32 };

/* FLOPs of one product of a warp. */
static double product_flops(Kind kind)
{
    return 2.0 * 16 * 8 * (kind == TF32 ? 8 : 16);
}

template <Kind kind>
static __global__ void __launch_bounds__(BLOCK) product_kernel(float *out)
{
    float d[CHAINS][4];
    uint32_t a[4], b[2];

    // different numbers per chain, or the compiler would merge all chains
    for (int c = 0; c < CHAINS; c++)
        for (int i = 0; i < 4; i++) d[c][i] = (float)c;

    // no zeros: they would take less power and run at a higher clock
    const float x = 0.5f + (float)threadIdx.x / BLOCK;
    for (int i = 0; i < 4; i++)
        a[i] = kind == TF32  ? to_tf32(x)
               : kind == F16 ? pack_f16(x, 1 - x)
                             : pack_bf16(x, 1 - x);
    b[0] = a[1], b[1] = a[2];

    for (int i = 0; i < LOOPS; i++)
#pragma unroll
        for (int c = 0; c < CHAINS; c++) {
            if (kind == BF16) mma_bf16(d[c], a, b);
            if (kind == F16) mma_f16(d[c], a, b);
            if (kind == TF32) mma_tf32(d[c], a, b);
        }

    float sum = 0;
    for (int c = 0; c < CHAINS; c++) sum += d[c][0] + d[c][3];
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

/* Returns the least milliseconds of f() over ROUNDS; the first round warms up.
 */
template <class F> static float least_ms(F f)
{
    cudaEvent_t begin, end;
    float best = 1e30f;
    OK(cudaEventCreate(&begin));
    OK(cudaEventCreate(&end));

    for (int i = 0; i <= ROUNDS; i++) {
        float ms = 0;
        OK(cudaEventRecord(begin));
        f();
        OK(cudaGetLastError());
        OK(cudaEventRecord(end));
        OK(cudaEventSynchronize(end));
        OK(cudaEventElapsedTime(&ms, begin, end));
        if (i && ms < best) best = ms;
    }

    OK(cudaEventDestroy(begin));
    OK(cudaEventDestroy(end));
    return best;
}

template <Kind kind>
static void product_rate(const char *name, unsigned blocks, float *out)
{
    const float ms = least_ms(
        [&] { LAUNCH(product_kernel<kind>, blocks, BLOCK, 0, 0, out); });
    const double warps = (double)blocks * (BLOCK / 32);
    printf("%-22s %10.1f TFLOP/s\n", name,
           warps * LOOPS * CHAINS * product_flops(kind) / ms / 1e9);
}

int main()
{
    cudaDeviceProp p;
    size_t room, all;
    OK(cudaGetDeviceProperties(&p, 0));
    OK(cudaMemGetInfo(&room, &all));

    // far larger than the caches, at most a quarter of the free memory
    size_t bytes = (size_t)1 << 30;
    while (bytes > room / 4) bytes /= 2;
    {
        Buffer<uint4> from(bytes / 16), to(bytes / 16);
        OK(cudaMemset(from.p, 1, bytes));
        const unsigned blocks = (unsigned)p.multiProcessorCount * A_SM;
        float ms = least_ms([&] {
            LAUNCH(copy_kernel, blocks, BLOCK, 0, 0, from.p, to.p, bytes / 16);
        });
        printf("%-22s %10.0f GB/s\n", "copy, kernel", 2e-6 * bytes / ms);
        ms = least_ms([&] {
            OK(cudaMemcpyAsync(to.p, from.p, bytes, cudaMemcpyDeviceToDevice));
        });
        printf("%-22s %10.0f GB/s\n", "copy, cudaMemcpy", 2e-6 * bytes / ms);
        void *host;
        OK(cudaMallocHost(&host, bytes / 4));
        memset(host, 1, bytes / 4);
        ms = least_ms([&] {
            OK(cudaMemcpyAsync(to.p, host, bytes / 4, cudaMemcpyHostToDevice));
        });
        printf("%-22s %10.1f GB/s\n", "upload, pinned", 1e-6 * bytes / 4 / ms);
        OK(cudaFreeHost(host));
    }
    const unsigned blocks = (unsigned)p.multiProcessorCount * A_SM;
    Buffer<float> out((size_t)blocks * BLOCK);
    const float ms = least_ms([&] {
        LAUNCH(fma_kernel, blocks, BLOCK, 0, 0, out.p, 0.999f, 0.001f);
    });
    printf("%-22s %10.1f TFLOP/s\n", "f32, plain units",
           2.0 * blocks * BLOCK * LOOPS * 4 * CHAINS / ms / 1e9);
    product_rate<TF32>("tf32, tensor cores", blocks, out.p);
    product_rate<BF16>("bf16, tensor cores", blocks, out.p);
    product_rate<F16>("f16, tensor cores", blocks, out.p);
    return 0;
}
