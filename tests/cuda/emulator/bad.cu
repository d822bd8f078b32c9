/* bad.cu -- planted faults that the emulator must find.
 *
 *     bad N         runs case N with its fault
 *     bad N whole   runs the same code without the fault: must end with "right"
 *     bad           prints the numbers and names
 *
 * A case that the emulator does not stop compares its result and prints
 * "right" (exit 0) or "wrong" (exit 3). bad.sh has the table of the messages
 * that each build must print. Faults of barriers and warps are in bad_warp.h,
 * of Hopper's primitives in bad_sm90.h, of host code in bad_host.h, the others
 * here. */
#include "cuda/lib/ptx.cuh"
#include "tests/cuda/emulator/bad.h"

/* Launches a kernel with 128 floats in and out; compares with `want(i)`. */
template <class K, class W>
static bool floats(K kernel, bool broken, int threads, W want)
{
    std::vector<float> x;
    for (int i = 0; i < 128; i++) x.push_back((float)(i + 1));
    Buffer<float> in(x), out(std::vector<float>(128, 0.0f));
    LAUNCH(kernel, 1, threads, 0, 0, in.p, out.p, broken);
    OK_LAUNCH();
    const std::vector<float> y = out.get();
    for (int i = 0; i < threads; i++)
        if (!(y[(size_t)i] == want(i))) return false;
    return true;
}
static float same(int i)
{
    return (float)(i + 1);
}
static float turned(int i)
{
    return (float)(128 - i);
}
static float paired(int i)
{
    return (float)((i ^ 1) + 1);
}

#include "tests/cuda/emulator/bad_warp.h"

/* -- memory ---------------------------------------------------------------- */
static __global__ void k_past_end(const float *in, float *out, int at)
{
    const int i = threadIdx.x;
    out[i] = in[i];
    if (i == 0 && in[at] == 12345.0f) out[i] = 0;
}
static __global__ void k_write(float *out, int at)
{
    out[at] = 1.0f;
}
/* 100 floats: 400 bytes, then 112 bytes up to a page that traps */
static bool reads_at(int at)
{
    Buffer<float> in(std::vector<float>(100, 1.0f)), out(32);
    LAUNCH(k_past_end, 1, 32, 0, 0, in.p, out.p, at);
    OK_LAUNCH();
    return out.get()[0] == 1.0f;
}
static bool writes_at(int at)
{
    Buffer<float> out(100);
    LAUNCH(k_write, 1, 1, 0, 0, out.p, at);
    OK_LAUNCH();
    return out.get()[5] == 1.0f;
}
static bool read_past(bool broken)
{
    return reads_at(broken ? 100 : 99);
}
static bool read_far(bool broken)
{
    return reads_at(broken ? 130 : 99);
}
static bool write_past(bool broken)
{
    return writes_at(broken ? 100 : 5);
}
static bool write_before(bool broken)
{
    return writes_at(broken ? -2 : 5);
}

static __global__ void k_smem_past(const float *in, float *out, bool broken)
{
    SMEM(float, tile, [128]);
    const int i = threadIdx.x;
    tile[i + (broken ? 8 : 0)] = in[i];
    __syncthreads();
    out[i] = tile[i + (broken ? 8 : 0)];
}
static bool smem_past(bool broken)
{
    return floats(k_smem_past, broken, 128, same);
}

static __global__ void k_dynamic_past(float *out, bool broken)
{
    DYN_SMEM(float, tile);
    const int i = threadIdx.x;
    tile[i + (broken ? 1 : 0)] = 2.0f;
    __syncthreads();
    out[i] = tile[i + (broken ? 1 : 0)];
}
static bool dynamic_past(bool broken)
{
    Buffer<float> out(32);
    LAUNCH(k_dynamic_past, 1, 32, 32 * sizeof(float), 0, out.p, broken);
    OK_LAUNCH();
    return out.get()[31] == 2.0f;
}

static __global__ void k_uninitialised(const float *in, float *out, bool broken)
{
    SMEM(float, tile, [32]);
    const int i = threadIdx.x;
    if (!broken || i != 7) tile[i] = in[i];
    __syncthreads();
    out[i] = tile[i];
}
static bool uninitialised_shared(bool broken)
{
    return floats(k_uninitialised, broken, 32, same);
}

static __global__ void k_read(const float *in, float *out)
{
    out[threadIdx.x] = in[threadIdx.x];
}
static bool uninitialised_global(bool broken)
{
    Buffer<float> in(32), out(32);
    if (!broken) OK(cudaMemset(in.p, 0, 32 * sizeof(float)));
    LAUNCH(k_read, 1, 32, 0, 0, in.p, out.p);
    OK_LAUNCH();
    return out.get()[3] == 0.0f;
}

static bool host_pointer(bool broken)
{
    const std::vector<float> x(32, 4.0f);
    Buffer<float> in(x), out(32);
    LAUNCH(k_read, 1, 32, 0, 0, broken ? x.data() : in.p, out.p);
    OK_LAUNCH();
    return out.get()[3] == 4.0f;
}

static bool null_pointer(bool broken)
{
    Buffer<float> in(std::vector<float>(32, 4.0f)), out(32);
    LAUNCH(k_read, 1, 32, 0, 0, broken ? nullptr : in.p, out.p);
    OK_LAUNCH();
    return out.get()[3] == 4.0f;
}

static bool freed(bool broken)
{
    float *in;
    Buffer<float> out(32);
    OK(cudaMalloc(&in, 32 * sizeof(float)));
    OK(cudaMemset(in, 0, 32 * sizeof(float)));
    if (broken) OK(cudaFree(in));
    LAUNCH(k_read, 1, 32, 0, 0, in, out.p);
    OK_LAUNCH();
    if (!broken) OK(cudaFree(in));
    return out.get()[3] == 0.0f;
}

static __global__ void k_vector(const float *in, float4 *out, int offset)
{
    out[threadIdx.x] =
        reinterpret_cast<const float4 *>(in + offset)[threadIdx.x];
}
static bool misaligned(bool broken)
{
    Buffer<float> in(std::vector<float>(140, 1.0f));
    Buffer<float4> out(32);
    LAUNCH(k_vector, 1, 32, 0, 0, in.p, out.p, broken ? 1 : 4);
    OK_LAUNCH();
    return out.get()[31].w == 1.0f;
}

static __global__ void k_overflow(int *out, int by)
{
    out[0] = by * by;
}
static bool overflow(bool broken)
{
    Buffer<int> out(1);
    LAUNCH(k_overflow, 1, 1, 0, 0, out.p, broken ? 65536 : 100);
    OK_LAUNCH();
    return out.get()[0] == 10000 || broken;
}

static __global__ void k_locals(float *out, int n)
{
    volatile float big[64 * 1024];
    for (int i = 0; i < n; i++) big[i] = (float)i;
    out[0] = big[n - 1];
}
static __global__ void k_few_locals(float *out, int n)
{
    volatile float few[1024];
    for (int i = 0; i < n; i++) few[i] = (float)i;
    out[0] = few[n - 1];
}
static bool locals(bool broken)
{
    Buffer<float> out(1);
    if (broken)
        LAUNCH(k_locals, 1, 1, 0, 0, out.p, 64 * 1024);
    else
        LAUNCH(k_few_locals, 1, 1, 0, 0, out.p, 1024);
    OK_LAUNCH();
    return out.get()[0] == (broken ? 65535.0f : 1023.0f);
}

/* A thread's array of four numbers, of which number `at` is read: by index, and
 * through a pointer. */
static __global__ void k_array(const float *in, float *out, int at)
{
    float own[4];
    for (int i = 0; i < 4; i++) own[i] = in[i] + (float)threadIdx.x;
    out[threadIdx.x] = own[at];
}
static __device__ float sum_from(const float *v, int at)
{
    return v[0] + v[at];
}
static __global__ void k_array_by_pointer(const float *in, float *out, int at)
{
    float own[4];
    for (int i = 0; i < 4; i++) own[i] = in[i] + (float)threadIdx.x;
    out[threadIdx.x] = sum_from(own, at) - own[0];
}
template <class K> static bool array_of_four(K kernel, bool broken)
{
    Buffer<float> in(std::vector<float>(4, 1.0f)), out(32);
    LAUNCH(kernel, 1, 32, 0, 0, in.p, out.p, broken ? 5 : 3);
    OK_LAUNCH();
    return out.get()[2] == 3.0f;
}
static bool local_past(bool broken)
{
    return array_of_four(k_array, broken);
}
static bool pointer_past(bool broken)
{
    return array_of_four(k_array_by_pointer, broken);
}

/* -- between threads and blocks -------------------------------------------- */
static __global__ void k_between_blocks(float *cells, bool broken)
{
    const int b = (int)blockIdx.x;
    if (b == 0) cells[0] = 1.0f;
    if (b == 1) cells[1] = broken ? cells[0] : 1.0f;
}
static bool between_blocks(bool broken)
{
    Buffer<float> cells(std::vector<float>(2, 0.0f));
    LAUNCH(k_between_blocks, 2, 1, 0, 0, cells.p, broken);
    OK_LAUNCH();
    return cells.get()[1] == 1.0f;
}

static __global__ void k_write_same(float *out, bool broken)
{
    out[broken ? 0 : threadIdx.x] = 1.0f;
}
static bool write_same(bool broken)
{
    Buffer<float> out(32);
    LAUNCH(k_write_same, 1, 32, 0, 0, out.p, broken);
    OK_LAUNCH();
    return out.get()[0] == 1.0f;
}

/* Sixteen bytes written at once and one of them alone, halves of a word, bytes
 * whose cells become one cell of a word again: the checked build checks equal
 * cells together. */
static __device__ void put_sixteen(float *out)
{
    *(float4 *)out = make_float4(1, 1, 1, 1);
}
static __global__ void k_part_read(float *, float *out, bool broken)
{
    if (threadIdx.x == 0) put_sixteen(out);
    if (!broken) __syncthreads();
    if (threadIdx.x == 32) out[32] = (float)((unsigned char *)out)[3];
}
static __global__ void k_part_write(float *, float *out, bool broken)
{
    if (threadIdx.x == 0) put_sixteen(out);
    __syncthreads();
    if (threadIdx.x == 32) ((unsigned char *)out)[9] = 0;
    if (!broken) __syncthreads();
    if (threadIdx.x == 1) {
        const float4 all = *(float4 *)out;
        out[32] = all.x + all.y + all.z + all.w;
    }
}
static __global__ void k_whole_read(float *in, float *out, bool broken)
{
    if (threadIdx.x == 0) *(float4 *)out = *(float4 *)in;
    if (!broken) __syncthreads();
    if (threadIdx.x == 32) ((unsigned char *)in)[5] = 0;
}
typedef uint16_t __attribute__((may_alias)) Half;
static __global__ void k_halves(float *, float *out, bool broken)
{
    if (threadIdx.x == 0) ((Half *)out)[0] = 0;
    if (threadIdx.x == 32) ((Half *)out)[1] = 0x3f80;
    if (!broken) __syncthreads();
    if (threadIdx.x == 1) out[32] = out[0];
}
static __global__ void k_rejoined(float *, float *out, bool broken)
{
    if (threadIdx.x < 4) ((unsigned char *)out)[threadIdx.x] = 0;
    __syncthreads();
    if (threadIdx.x == 0) out[0] = 1;
    if (!broken) __syncthreads();
    if (threadIdx.x == 32) out[32] = (float)((unsigned char *)out)[3];
}
template <class K> static bool parts_of_sixteen(K kernel, bool broken)
{
    Buffer<float> in(std::vector<float>(128, 1.0f));
    Buffer<float> out(std::vector<float>(128, 1.0f));
    LAUNCH(kernel, 1, 64, 0, 0, in.p, out.p, broken);
    OK_LAUNCH();
    return out.get()[0] == 1.0f;
}
static bool part_read(bool broken)
{
    return parts_of_sixteen(k_part_read, broken);
}
static bool part_write(bool broken)
{
    return parts_of_sixteen(k_part_write, broken);
}
static bool halves(bool broken)
{
    return parts_of_sixteen(k_halves, broken);
}
static bool rejoined(bool broken)
{
    return parts_of_sixteen(k_rejoined, broken);
}
static bool whole_read(bool broken)
{
    return parts_of_sixteen(k_whole_read, broken);
}

static __global__ void k_mixed_atomic(unsigned *out, bool broken)
{
    atomicAdd(out, 1u);
    if (!broken) __syncthreads();
    if (threadIdx.x == 63) out[1] = out[0];
}
static bool mixed_atomic(bool broken)
{
    Buffer<unsigned> out(std::vector<unsigned>(2, 0));
    LAUNCH(k_mixed_atomic, 1, 64, 0, 0, out.p, broken);
    OK_LAUNCH();
    return out.get()[1] == 64;
}

static __global__ void k_grid(unsigned *word)
{
    grid_barrier(word);
}
static bool no_coop(bool broken)
{
    Buffer<unsigned> word(std::vector<unsigned>(1, 0));
    if (broken)
        LAUNCH(k_grid, 2, 32, 0, 0, word.p);
    else
        LAUNCH_COOP(k_grid, 2, 32, 0, 0, word.p);
    OK_LAUNCH();
    return true;
}
static bool grid_word(bool broken)
{
    Buffer<unsigned> word(std::vector<unsigned>(1, broken ? 3 : 0));
    LAUNCH_COOP(k_grid, 2, 32, 0, 0, word.p);
    OK_LAUNCH();
    return true;
}

/* Broken: any block goes on, not only the last one. */
static __global__ void k_any_block(unsigned *parts, unsigned *word, bool broken)
{
    if (threadIdx.x == 0) parts[blockIdx.x] = blockIdx.x;
    const bool last = last_block(word, broken ? 1 : 4);
    if (!last || threadIdx.x) return;
    for (unsigned i = 0; i < 3; i++) parts[3] += parts[i];
}
static bool any_block(bool broken)
{
    Buffer<unsigned> parts(std::vector<unsigned>(4, 0));
    Buffer<unsigned> word(std::vector<unsigned>(1, 0));
    LAUNCH(k_any_block, 4, 32, 0, 0, parts.p, word.p, broken);
    OK_LAUNCH();
    return parts.get()[3] == 6;
}
/* Broken: the write comes after the arrival. */
static __global__ void k_late_write(unsigned *parts, unsigned *word,
                                    bool broken)
{
    if (!broken) parts[blockIdx.x * 32 + threadIdx.x] = 1;
    const bool last = last_block(word, 4);
    if (broken) parts[blockIdx.x * 32 + threadIdx.x] = 1;
    if (last)
        for (unsigned i = 0; i < 4; i++)
            parts[128 + threadIdx.x] += parts[i * 32 + threadIdx.x];
}
static bool late_write(bool broken)
{
    Buffer<unsigned> parts(std::vector<unsigned>(160, 0));
    Buffer<unsigned> word(std::vector<unsigned>(1, 0));
    LAUNCH(k_late_write, 4, 32, 0, 0, parts.p, word.p, broken);
    OK_LAUNCH();
    return parts.get()[128] == 4;
}
static bool last_word(bool broken)
{
    Buffer<unsigned> parts(std::vector<unsigned>(4, 0));
    Buffer<unsigned> word(std::vector<unsigned>(1, broken ? 5 : 0));
    LAUNCH(k_any_block, 4, 32, 0, 0, parts.p, word.p, false);
    OK_LAUNCH();
    return parts.get()[3] == 6;
}

/* -- primitives ------------------------------------------------------------ */
static __global__ void k_copy(const float *in, float *out, int offset)
{
    SMEM(float, tile, [128]);
    const int i = threadIdx.x;
    cp_async16(&tile[4 * i], in + 4 * i + offset, true);
    cp_async_commit();
    cp_async_wait<0>();
    __syncthreads();
    out[i] = tile[i];
}
static bool copy_from(int offset)
{
    Buffer<float> in(std::vector<float>(132, 1.0f)), out(32);
    LAUNCH(k_copy, 1, 32, 0, 0, in.p, out.p, offset);
    OK_LAUNCH();
    return out.get()[31] == 1.0f;
}
static bool copy_misaligned(bool broken)
{
    return copy_from(broken ? 1 : 4);
}
static bool copy_past(bool broken)
{
    return copy_from(broken ? 8 : 4);
}

static __global__ void k_matrix(uint32_t *out, bool broken)
{
    SMEM(uint16_t, tile, [16][8]);
    const int l = threadIdx.x;
    for (int c = 0; c < 4; c++) tile[l / 2][l % 2 * 4 + c] = (uint16_t)l;
    __syncwarp();
    uint32_t r[2];
    ldmatrix_x2(r, &tile[l % 16 + (broken ? 1 : 0)][0]);
    out[l] = r[0];
}
static bool matrix_past(bool broken)
{
    Buffer<uint32_t> out(32);
    LAUNCH(k_matrix, 1, 32, 0, 0, out.p, broken);
    OK_LAUNCH();
    return out.get()[0] == 0;
}

static __global__ void k_much_smem(float *out)
{
    SMEM(float, a, [11 * 1024]);
    DYN_SMEM(float, b);
    a[threadIdx.x] = b[threadIdx.x] = 1.0f;
    out[threadIdx.x] = a[threadIdx.x] + b[threadIdx.x];
}
static bool much_smem(bool broken)
{
    Buffer<float> out(32);
    const int bytes = broken ? 60 * 1024 : 50 * 1024;
    OK(cudaFuncSetAttribute(
        k_much_smem, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    LAUNCH(k_much_smem, 1, 32, (size_t)bytes, 0, out.p);
    OK_LAUNCH();
    return out.get()[31] == 2.0f;
}
template <int n> static __global__ void k_static_smem(float *out)
{
    SMEM(float, a, [n]);
    a[threadIdx.x] = 1.0f;
    out[threadIdx.x] = a[threadIdx.x];
}
static bool static_smem(bool broken)
{
    Buffer<float> out(32);
    if (broken)
        LAUNCH(k_static_smem<12 * 1024 + 1>, 1, 32, 0, 0, out.p);
    else
        LAUNCH(k_static_smem<12 * 1024>, 1, 32, 0, 0, out.p);
    OK_LAUNCH();
    return out.get()[31] == 1.0f;
}

#include "tests/cuda/emulator/bad_host.h"
#include "tests/cuda/emulator/bad_sm90.h"

static const Case kernel_cases[] = {
    {15, "read just past the end", read_past},
    {16, "read far past the end", read_far},
    {17, "write just past the end (red zone)", write_past},
    {18, "write before the start (red zone)", write_before},
    {20, "shared array overrun", smem_past},
    {21, "dynamic shared memory overrun", dynamic_past},
    {22, "uninitialised shared memory", uninitialised_shared},
    {23, "uninitialised device memory", uninitialised_global},
    {24, "host pointer in a kernel", host_pointer},
    {25, "null pointer in a kernel", null_pointer},
    {26, "use after free", freed},
    {27, "misaligned float4", misaligned},
    {28, "int overflow", overflow},
    {29, "too many local variables", locals},
    {30, "one block reads what another wrote", between_blocks},
    {31, "all threads write the same value", write_same},
    {32, "plain read beside atomics", mixed_atomic},
    {33, "grid_barrier without LAUNCH_COOP", no_coop},
    {34, "grid_barrier's word is not 0", grid_word},
    {35, "cp.async misaligned", copy_misaligned},
    {36, "cp.async past the end", copy_past},
    {37, "ldmatrix out of bounds", matrix_past},
    {38, "static and dynamic shared memory too large", much_smem},
    {39, "static shared memory too large", static_smem},
    {57, "every block is taken for the last", any_block},
    {58, "a block writes after it came", late_write},
    {59, "last_block's word is not 0", last_word},
    {60, "a byte is read of sixteen that another wrote", part_read},
    {61, "sixteen are read of which another wrote a byte", part_write},
    {62, "a byte is written of sixteen that another read", whole_read},
    {63, "a word is read of which two others wrote a half", halves},
    {64, "a byte is read of a word that had been bytes", rejoined},
    {65, "local array overrun", local_past},
    {66, "local array overrun through a pointer", pointer_past},
};

int main(int argc, char **argv)
{
    const int number = argc > 1 ? atoi(argv[1]) : 0;
    const bool whole = argc > 2 && !strcmp(argv[2], "whole");
    std::vector<Case> all;
    for (const Case &c : warp_cases) all.push_back(c);
    for (const Case &c : kernel_cases) all.push_back(c);
    for (const Case &c : host_cases) all.push_back(c);
    for (const Case &c : sm90_cases) all.push_back(c);

    for (const Case &c : all) {
        if (!number) printf("%d %s\n", c.number, c.name);
        if (c.number != number) continue;
        const bool right = c.run(!whole);
        printf("%s\n", right ? "right" : "wrong");
        return right ? 0 : 3;
    }
    return number ? 2 : 0;
}
