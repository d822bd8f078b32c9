/* wgrad.cu -- wgrad: the launch of all precisions and the kernel in f32; see
 * wgrad.cuh for the product.
 *
 * Chunks of BK positions go through shared memory as in igemm_f32.cu. Positions
 * are divided into parts (split-K) by a number that depends on extents only, so
 * that layers of few channels fill a GPU too; the last block of a tile adds the
 * parts in double (grid_reduce.cuh), so results have the same bits in each run.
 *
 * Bound by arithmetic from 64 channels on, as igemm_f32.cu; with fewer channels
 * by reading the input once for each tile of taps. Groups of few channels:
 * direct.cu. */
#include "cuda/conv/conv.cuh"
#include "cuda/conv/wgrad.cuh"

namespace {

enum {
    TM = 8,
    TN = 4,
};

/* One tile of w of one group, from one part of the positions. Threads load
 * along the channels (contiguous in memory) and compute 8 x 4 of the tile. */
template <bool VEC>
__global__ void __launch_bounds__(CONV_THREADS)
    wgrad_f32_kernel(const __grid_constant__ WgradParams p)
{
    typedef WgradLoad<float, VEC, VEC> F;
    enum { BK = F::BK, TILE = WGRAD_TILE };
    SMEM(float, output, [2][BK][TILE]);
    SMEM(float, input, [2][BK][TILE]);
    const WgradTile s = wgrad_tile_of(p);
    const int t = (int)threadIdx.x;
    const int my = t / (TILE / TN) * 4, nx = t % (TILE / TN) * TN;
    SMEM(Column, columns, [VEC ? 1 : TILE]);
    F f(p, s, columns);
    Fragment<TM, TN> fragment;
    auto fetch = [&](int at) { f.fetch(p, s, at); };
    auto store = [&](int b) {
#pragma unroll
        for (int i = 0; i < F::LOADS; i++) {
            const int row = F::row() + i * F::STEP;
            *(Line<float> *)&output[b][row][F::first()] = f.g[i];
            *(Line<float> *)&input[b][row][F::first()] = f.x[i];
        }
    };

    auto multiply = [&](int b) {
#pragma unroll
        for (int k = 0; k < BK; k++)
            fragment.multiply(&output[b][k][my], TILE / 2, &input[b][k][nx]);
    };
    each_chunk<BK>(s.from, s.to, fetch, store, multiply,
                   [&] { fragment.end_chain(); });

    double own = 0;
    for (int i = 0; i < TM; i++)
        for (int j = 0; j < TN; j++)
            own += store_wgrad(p, s, i / 4 * (TILE / 2) + my + i % 4, nx + j,
                               fragment.sum[i][j]);
    finish_wgrad(p, own);
}

/* Elements of the (tap, input channel) axis of a group. */
int64_t gemm_n_of(const ConvProblem *r)
{
    return (int64_t)r->win.k[0] * r->win.k[1] * r->win.k[2] * r->cin;
}

int64_t tiles_of(const ConvProblem *r)
{
    return ceil_div(r->cout, WGRAD_TILE) * ceil_div(gemm_n_of(r), WGRAD_TILE) *
           r->win.groups;
}

int parts_of(const ConvProblem *r, int *part)
{
    return wgrad_split_k(r, tiles_of(r), WGRAD_STEP, part);
}

} // namespace

size_t conv_wgrad_bytes(const ConvProblem *r)
{
    int part, parts = parts_of(r, &part);
    return parts > 1 ? (size_t)(tiles_of(r) * parts) * WGRAD_TILE * WGRAD_TILE *
                           sizeof(float)
                     : 0;
}

// one for each tile
int conv_wgrad_sqnorm_parts(const ConvProblem *r)
{
    return (int)tiles_of(r);
}

/* Queues the kernel of the call's precision. */
static bool launch(const ConvProblem *r, const WgradParams *p, dim3 blocks)
{
    cudaStream_t stream = gpu_stream(r->c->dev);
    switch (r->c->precision) {
    case PRECISION_tf32:
        return wgrad_mma<PRECISION_tf32>(r, p, blocks);
    case PRECISION_bf16:
        return wgrad_mma<PRECISION_bf16>(r, p, blocks);
    case PRECISION_f16:
        return wgrad_mma<PRECISION_f16>(r, p, blocks);
    default:
        break;
    }

    if (r->cin % 4 == 0 && r->cout % 4 == 0)
        LAUNCH((wgrad_f32_kernel<true>), blocks, CONV_THREADS, 0, stream, *p);
    else
        LAUNCH((wgrad_f32_kernel<false>), blocks, CONV_THREADS, 0, stream, *p);
    return gpu_launched("wgrad_f32");
}

bool conv_wgrad(const ConvProblem *r, const Source &input, const Source &output,
                float *w, bool fresh, double *sqnorm, void *scratch)
{
    if (!countable(r->c, rows(r->input)) || !countable(r->c, rows(r->output)))
        return false;
    WgradParams p = {};
    int parts = parts_of(r, &p.part);
    const int32_t *count = &r->output.d;
    p.input = input.first.data, p.input_norm = input.first.norm_on_load;
    p.border = r->input.c, p.output_border = r->output.c;
    if (input.border) p.second = input.second, p.border = input.border;
    p.output = output.first.data, p.output_norm = output.first.norm_on_load;
    p.norm_bwd = output.first.norm_bwd;
    if (output.border)
        p.second_output = output.second, p.output_border = output.border;
    p.win = r->win, p.size = r->input;
    p.output_c = r->output.c, p.cin = r->cin, p.cout = r->cout;
    p.gemm_n = (int)gemm_n_of(r);
    p.mtiles = (int)ceil_div(r->cout, WGRAD_TILE);
    p.positions = (int)rows(r->output);
    p.grid_reduce = grid_reduce_of(parts, tiles_of(r));
    p.parts = (float *)scratch;
    if (parts > 1)
        p.counters =
            gpu_counters(r->c->dev, tiles_of(r) * p.grid_reduce.counters);
    p.out = w, p.fresh = fresh, p.sqnorm = sqnorm;
    p.channels = divisor(r->cin);
    for (int i = 0; i < 3; i++) {
        p.axis[i] = divisor(count[i]);
        p.k[i] = divisor(r->win.k[i]);
    }
    dim3 blocks((unsigned)ceil_div(p.gemm_n, WGRAD_TILE),
                (unsigned)(p.mtiles * r->win.groups), (unsigned)parts);

    // dw, and its parts, written and read
    const int64_t times =
        (fresh ? 1 : 2) + 2 * grid_reduce_traffic(p.grid_reduce);
    const double sqnorm_bytes =
        sqnorm ? conv_wgrad_sqnorm_parts(r) * sizeof *sqnorm : 0;
    moves(conv_operand_bytes(r,
                             numel(r->input) + numel(r->output) *
                                                   (p.norm_bwd.table ? 2 : 1)) +
              (double)(times * conv_filter_size(r)) * sizeof(float) +
              sqnorm_bytes,
          conv_flops(r));
    return launch(r, &p, blocks);
}
