/* matmul.cu -- products of matrices: see matmul.h.
 *
 * A block of 256 threads makes a tile of 64 by 64 results, each thread 4 by 4,
 * from 16 terms of the sums at a time in shared memory (8 KB). The operands are
 * loaded along the axis that is contiguous in memory. Products and sums are in
 * f32 in every precision; a chain has at most CHAIN terms. Bound by arithmetic:
 * 32 loads from shared memory feed 64 multiply-adds of a thread's 16 sums. */
#include "cuda/lib/kernel.cuh"
extern "C" {
#include "engine/graph/matmul.h"
}

namespace {

enum { SIDE = 64, DEPTH = 16, EACH_SIDE = 4, SIDES = SIDE / EACH_SIDE };

struct Product {
    MatmulProduct p;
    const float *a, *b;
    float *c;
    int64_t row_tiles, col_tiles; // of a matrix of c
    int64_t tiles, repeats;       // of all; for each tile
    bool fresh;
};

/* part[k][i] = at[i * major + k * minor], 0 where i >= count or k >= deep. One
 * of major and minor is 1: neighbouring threads load along that axis. */
__device__ __forceinline__ void load_part(float (*part)[SIDE + 1],
                                          const float *at, int64_t major,
                                          int64_t minor, int64_t count,
                                          int64_t deep)
{
    const int t = (int)threadIdx.x;
    const bool along = minor == 1;
#pragma unroll
    for (int n = 0; n < SIDE * DEPTH / BLOCK; n++) {
        const int e = t + n * BLOCK;
        const int k = along ? e % DEPTH : e / SIDE;
        const int i = along ? e / DEPTH : e % SIDE;
        part[k][i] = i < count && k < deep ? at[i * major + k * minor] : 0;
    }
}

using Sums = float[EACH_SIDE][EACH_SIDE]; // the results of a thread

/* run += the products of the DEPTH terms in shared memory. y, x: the first row
 * and column of the thread. */
__device__ __forceinline__ void add_products(const float (*a_part)[SIDE + 1],
                                             const float (*b_part)[SIDE + 1],
                                             int y, int x, Sums &run)
{
#pragma unroll
    for (int k = 0; k < DEPTH; k++)
#pragma unroll
        for (int i = 0; i < EACH_SIDE; i++)
#pragma unroll
            for (int j = 0; j < EACH_SIDE; j++)
                run[i][j] = fmaf(a_part[k][y + i * SIDES],
                                 b_part[k][x + j * SIDES], run[i][j]);
}

/* Ends the chains: adds them to the sums. */
__device__ __forceinline__ void end_chains(Sums &sum, Sums &run)
{
#pragma unroll
    for (int i = 0; i < EACH_SIDE; i++)
#pragma unroll
        for (int j = 0; j < EACH_SIDE; j++)
            sum[i][j] += run[i][j], run[i][j] = 0;
}

__global__ void __launch_bounds__(BLOCK)
    matmul_kernel(const __grid_constant__ Product p)
{
    SMEM(float, a_part, [DEPTH][SIDE + 1]);
    SMEM(float, b_part, [DEPTH][SIDE + 1]);
    const MatmulProduct &q = p.p;
    const MatrixPlace none = {0, 0, 0};
    const int y = (int)threadIdx.x / SIDES, x = (int)threadIdx.x % SIDES;

    for (int64_t t = blockIdx.x; t < p.tiles; t += gridDim.x) {
        const int64_t i0 = t / p.col_tiles % p.row_tiles * SIDE;
        const int64_t j0 = t % p.col_tiles * SIDE;
        const MatrixPlace own =
            matrix_place(q.own, t / p.col_tiles / p.row_tiles);
        Sums sum = {}, run = {};
        int chain = 0; // terms in run

        for (int64_t r = 0; r < p.repeats; r++) {
            const MatrixPlace again = matrix_place(q.again, r);
            const float *a = p.a + matrix_at(&q.a, own, again) + i0 * q.a.row;
            const float *b = p.b + matrix_at(&q.b, own, again) + j0 * q.b.col;
            for (int64_t k0 = 0; k0 < q.inner; k0 += DEPTH) {
                const int64_t deep = q.inner - k0;
                load_part(a_part, a + k0 * q.a.col, q.a.row, q.a.col,
                          q.rows - i0, deep);
                load_part(b_part, b + k0 * q.b.row, q.b.col, q.b.row,
                          q.cols - j0, deep);
                __syncthreads();
                add_products(a_part, b_part, y, x, run);
                __syncthreads(); // before the next terms overwrite these
                chain += DEPTH;
                if (chain < CHAIN) continue;
                chain = 0;
                end_chains(sum, run);
            }
        }

        float *c = p.c + matrix_at(&q.c, own, none);
#pragma unroll
        for (int i = 0; i < EACH_SIDE; i++)
#pragma unroll
            for (int j = 0; j < EACH_SIDE; j++) {
                const int64_t row = i0 + y + i * SIDES,
                              col = j0 + x + j * SIDES;
                if (row < q.rows && col < q.cols)
                    put(c + row * q.c.row + col, sum[i][j] + run[i][j],
                        p.fresh);
            }
    }
}

bool product(const Call *c, int which, bool fresh)
{
    Product p = {};
    p.p = matmul_product(c, which);
    p.a = values(p.p.a.t), p.b = values(p.p.b.t), p.c = values(p.p.c.t);
    p.row_tiles = ceil_div(p.p.rows, SIDE);
    p.col_tiles = ceil_div(p.p.cols, SIDE);
    p.tiles = matrix_count(p.p.own) * p.row_tiles * p.col_tiles;
    p.repeats = matrix_count(p.p.again), p.fresh = fresh;
    const double products = 2.0 * (double)matrix_count(p.p.own) *
                            (double)p.repeats * (double)p.p.rows *
                            (double)p.p.cols * (double)p.p.inner;
    moves(moved(p.p.a.t) + moved(p.p.b.t) + moved(p.p.c.t, fresh), products);
    LAUNCH(matmul_kernel, (unsigned)least(p.tiles, 1 << 30), BLOCK, 0,
           gpu_stream(c->dev), p);
    return gpu_launched("matmul");
}

} // namespace

extern "C" Space cuda_matmul_space(const Call *c)
{
    (void)c;
    return {};
}

extern "C" bool cuda_matmul_fwd(const Call *c)
{
    return product(c, 0, true);
}

/* One operand after the other: both gradients may be the same memory. */
extern "C" bool cuda_matmul_bwd(const Call *c)
{
    for (int i = 0; i < 2; i++)
        if (c->dx[i] && !product(c, 1 + i, is_fresh(c, i))) return false;
    return true;
}
