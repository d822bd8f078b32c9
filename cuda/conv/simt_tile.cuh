/* simt_tile.cuh -- the product of two tiles on the FMA units, in f32; shared by
 * igemm_f32.cu and wgrad_f32.cu.
 *
 *     result[m, n] = sum_k a[k, m] b[k, n]
 *
 * A block computes BM x BN results, a thread 8 x TN of them in registers, as
 * quads of 4 x 4. Chunks of SIMT_BK elements of the k axis go through two
 * buffers in shared memory; while a chunk is multiplied, the next one is loaded
 * into registers, and while one element of k is multiplied, the operands of the
 * next one are read from shared memory: the FMA units wait for neither.
 *
 * A warp has 32 x 64 results, or 64 x BN with BN < 64. The lanes are in pairs
 * of neighbouring rows of quads: lanes i and i ^ 1 read the same quad of b, i
 * and i ^ 2 the same of a, so that 16 lanes need one access to shared memory.
 * Eight accesses feed 64 multiply-adds a thread: half of the bandwidth of
 * shared memory.
 *
 * A chain of float additions has at most CHAIN terms; the sum of the finished
 * chains is in local memory, which is written once in CHAIN terms, so that the
 * registers are left to the operands. */
#ifndef SEG_CUDA_CONV_SIMT_TILE_H
#define SEG_CUDA_CONV_SIMT_TILE_H
#include "cuda/lib/kernel.cuh"

enum {
    SIMT_BK = 8,
    SIMT_PAD = 4, // floats after a row of a tile that is stored transposed: 4
                  // rows are 16 banks apart, and vectors stay aligned
};

template <int BM_, int BN_, int TN_> struct SimtTile {
    enum {
        BM = BM_,
        BN = BN_,
        TM = 8,
        TN = TN_,
        QUAD = 4,
        THREADS = BM * BN / TM / TN,
        // results and lanes of a warp
        WN = BN < 64 ? BN : 64,
        LANES_N = WN / TN,
        WM = WARP / LANES_N * TM,
        ACROSS = BN / WN, // warps along n
        // on a multiprocessor: 12 warps, 168 registers a thread; 8 where that
        // spills
        BLOCKS = (SM80 ? 12 : 8) * WARP / THREADS,
    };
    float acc[TM][TN] = {};
    float a[2][TM], b[2][TN];
    int row, column; // of the first quad in the tile

    __device__ __forceinline__ SimtTile()
    {
        const int lane = (int)threadIdx.x % WARP;
        const int warp = (int)threadIdx.x / WARP;
        row = warp / ACROSS * WM + (lane % 2 + lane / (2 * LANES_N) * 2) * QUAD;
        column = warp % ACROSS * WN + lane / 2 % LANES_N * QUAD;
    }

    /* The row (i < TM), the column (j < TN) of a result in the tile. */
    __device__ __forceinline__ int row_of(int i) const
    {
        return row + i / QUAD * (WM / 2) + i % QUAD;
    }
    __device__ __forceinline__ int column_of(int j) const
    {
        return column + j / QUAD * (WN / 2) + j % QUAD;
    }

    /* Reads the operands of one element of k, x[BM] and y[BN], into registers
     * `to`. */
    __device__ __forceinline__ void load(int to, const float *x, const float *y)
    {
#pragma unroll
        for (int i = 0; i < TM; i += QUAD)
            *(float4 *)&a[to][i] = *(const float4 *)&x[row_of(i)];
#pragma unroll
        for (int j = 0; j < TN; j += QUAD)
            *(float4 *)&b[to][j] = *(const float4 *)&y[column_of(j)];
    }

    __device__ __forceinline__ void multiply(int from)
    {
#pragma unroll
        for (int i = 0; i < TM; i++)
#pragma unroll
            for (int j = 0; j < TN; j++)
                acc[i][j] = fmaf(a[from][i], b[from][j], acc[i][j]);
    }

    /* Makes the chain the sum, or adds it, and begins the next one. */
    __device__ __forceinline__ void end_chain(float *sum, bool first)
    {
        if (first) {
#pragma unroll
            for (int i = 0; i < TM * TN; i++) sum[i] = acc[i / TN][i % TN];
        } else {
#pragma unroll
            for (int i = 0; i < TM * TN; i++) sum[i] += acc[i / TN][i % TN];
        }
#pragma unroll
        for (int i = 0; i < TM * TN; i++) acc[i / TN][i % TN] = 0;
    }

    /* Adds the sum of the finished chains to the last one. */
    __device__ __forceinline__ void add_chains(const float *sum)
    {
#pragma unroll
        for (int i = 0; i < TM * TN; i++) acc[i / TN][i % TN] += sum[i];
    }

    /* Multiplies the chunk in buffer I of x and y. If there is a next chunk
     * (more), loads it on the way, stores it to the other buffer and reads its
     * first operands. */
    template <int I, int XS, int YS, class Fetch, class Store>
    __device__ __forceinline__ void chunk(bool more,
                                          const float (&x)[2][SIMT_BK][XS],
                                          const float (&y)[2][SIMT_BK][YS],
                                          const Fetch &fetch,
                                          const Store &store)
    {
        if (more) fetch();
#pragma unroll
        for (int k = 0; k < SIMT_BK; k++) {
            if (k + 1 < SIMT_BK) {
                load((k + 1) % 2, x[I][k + 1], y[I][k + 1]);
            } else if (more) {
                store(1 - I);
                __syncthreads();
                load((k + 1) % 2, x[1 - I][0], y[1 - I][0]);
            }
            multiply(k % 2);
        }
    }

    /* The main loop over `chunks` chunks. fetch() loads the next chunk into
     * registers, store(i) writes it to buffer i of x and y, whose rows are XS
     * and YS floats apart. Leaves the results in acc. */
    template <int XS, int YS, class Fetch, class Store>
    __device__ __forceinline__ void main_loop(int chunks,
                                              const float (&x)[2][SIMT_BK][XS],
                                              const float (&y)[2][SIMT_BK][YS],
                                              const Fetch &fetch,
                                              const Store &store)
    {
        enum { CHUNKS = CHAIN / SIMT_BK }; // of a chain
        static_assert(CHUNKS % 2 == 0, "a chain ends after buffer 1");
        // threadIdx.y is zero, but not for the compiler, which keeps an array
        // with such an index in local memory
        float sums[TM * TN], *sum = sums + threadIdx.y * TM * TN;
        if (chunks == 0) return;
        fetch();
        store(0);
        __syncthreads();
        load(0, x[0][0], y[0][0]);
        for (int at = 0;;) {
            chunk<0>(++at < chunks, x, y, fetch, store);
            if (at >= chunks) break;
            chunk<1>(++at < chunks, x, y, fetch, store);
            if (at >= chunks) break;
            if (at % CHUNKS == 0) end_chain(sum, at == CHUNKS);
        }
        if (chunks > CHUNKS) add_chains(sum);
    }
};
#endif
