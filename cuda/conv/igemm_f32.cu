/* igemm_f32.cu -- fprop and dgrad in f32: an implicit GEMM on the FMA units;
 * see igemm_operands.cuh for the product.
 *
 * A block of 128 threads computes a tile of BM positions by BN channels, TM x
 * TN of them a thread in registers. Chunks of BK elements of the k axis go
 * through two buffers in shared memory: the next chunk is loaded into registers
 * while the current one is multiplied. The 128 x 16 tile is for results of up
 * to 16 channels.
 *
 * With the 64 x 64 tile a chunk reads (BM + BN) BK floats for BM BN BK
 * multiply-adds, 16 FLOP a byte. From shared memory a warp reads 3 x 128 bytes
 * for 32 multiply-adds a thread, so the kernel is bound by arithmetic, not by
 * shared memory. */
#include "cuda/conv/igemm.cuh"

namespace {

enum {
    PAD = 4, // floats after a row of a tile: shifts the banks, keeps the
             // alignment
};

template <int BM, int BN, int TM, int TN, bool DGRAD, bool VEC>
__global__ void __launch_bounds__(CONV_THREADS)
    igemm_f32_kernel(const __grid_constant__ IgemmParams p)
{
    typedef IgemmLoad<float, BM, BN, DGRAD> F;
    enum { BK = F::BK };
    SMEM(float, source, [2][BK][BM + PAD]);
    SMEM(float, weight, [2][BK][BN + PAD]);
    const ResidueClass &k = p.cls[blockIdx.z];
    const int t = (int)threadIdx.x, m0 = (int)blockIdx.x * BM;
    const int64_t group = blockIdx.y / p.tiles;
    const int n0 = (int)(blockIdx.y % p.tiles) * BN;
    if (m0 >= k.positions) return; // a smaller class: the whole block

    // this thread loads four elements of k at positions fm + i*STEP ...
    const int fk = t % CHUNK_LINES * 4, fm = t / CHUNK_LINES;
    RowOrigin o[F::MS];
    for (int i = 0; i < F::MS; i++) o[i] = origin_of(k, m0 + fm + i * F::STEP);

    // ... and computes rows (i/4)*BM/2 + my + i%4, columns nx + j of the tile
    const int my = t / (BN / TN) * 4, nx = t % (BN / TN) * TN;

    Fragment<TM, TN> fragment;
    F f;
    auto fetch = [&](int at) {
        f.template fetch<VEC, VEC>(p, k, o, at, n0, group);
    };
    auto store = [&](int b) {
#pragma unroll
        for (int i = 0; i < F::MS; i++)
            for (int j = 0; j < 4; j++)
                source[b][fk + j][fm + i * F::STEP] = f.s[i].v[j];
#pragma unroll
        for (int i = 0; i < F::NS; i++) {
            int wk, wn;
            if (!F::weights(i, &wk, &wn)) break;
            if (DGRAD)
                *(Line<float> *)&weight[b][wk][wn] = f.w[i];
            else
                for (int j = 0; j < 4; j++) weight[b][wk + j][wn] = f.w[i].v[j];
        }
    };

    auto multiply = [&](int b) {
#pragma unroll
        for (int kk = 0; kk < BK; kk++)
            fragment.multiply(&source[b][kk][my], BM / 2, &weight[b][kk][nx]);
    };
    each_chunk<BK>(0, k.gemm_k, fetch, store, multiply,
                   [&] { fragment.end_chain(); });

    for (int i = 0; i < TM; i++) {
        int m = m0 + i / 4 * (BM / 2) + my + i % 4;
        if (m >= k.positions) continue;
        int64_t row = result_row(p, k, m);
        for (int j = 0; j < TN; j++)
            put_result(p, row, group, n0 + nx + j, fragment.sum[i][j]);
    }
}

template <int BM, int BN, int TM, int TN>
bool launch_simt(const ConvProblem *r, IgemmParams *p, int classes,
                 int positions)
{
    p->tiles = (int)ceil_div(p->gemm_n, BN);
    dim3 launch_grid((unsigned)ceil_div(positions, BM),
                     (unsigned)(p->tiles * r->win.groups), (unsigned)classes);
    cudaStream_t stream = gpu_stream(r->c->dev);
    bool vec = p->k_channels % 4 == 0 && (!p->dgrad || p->gemm_n % 4 == 0);

    if (p->dgrad && vec)
        LAUNCH((igemm_f32_kernel<BM, BN, TM, TN, true, true>), launch_grid,
               CONV_THREADS, 0, stream, *p);
    else if (p->dgrad)
        LAUNCH((igemm_f32_kernel<BM, BN, TM, TN, true, false>), launch_grid,
               CONV_THREADS, 0, stream, *p);
    else if (vec)
        LAUNCH((igemm_f32_kernel<BM, BN, TM, TN, false, true>), launch_grid,
               CONV_THREADS, 0, stream, *p);
    else
        LAUNCH((igemm_f32_kernel<BM, BN, TM, TN, false, false>), launch_grid,
               CONV_THREADS, 0, stream, *p);
    return gpu_launched(p->dgrad ? "igemm_f32 dgrad" : "igemm_f32 fprop");
}

} // namespace

bool igemm_f32(const ConvProblem *r, IgemmParams *p, int classes, int positions)
{
    return p->gemm_n > 16
               ? launch_simt<64, 64, 8, 4>(r, p, classes, positions)
               : launch_simt<128, 16, 8, 2>(r, p, classes, positions);
}
