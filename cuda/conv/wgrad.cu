/* wgrad.cu -- w[b,k,a] = sum_{n,p} image[n,q,a] grid[n,p,b].
 *
 * A product over positions, see wgrad.cuh. Chunks of BK of them go
 * through shared memory as in igemm_f32.cu. Positions are cut into parts, in a
 * number that depends on extents only, so that layers of few channels fill a
 * GPU too; the last blocks of a tile add them up (grid_reduce.cuh), in double.
 * Same bits always.
 *
 * Bound by arithmetic from 64 channels on, as igemm_f32.cu; below, by reading
 * the image once per tile of taps. Groups of few channels: direct.cu. */
#include "cuda/conv/direct.cuh"
#include "cuda/conv/wgrad.cuh"

namespace {

enum {
    TM = 8,
    TN = 4,
};

/* One tile of w of one group, from the positions of one part. Threads fetch
 * along the channels (contiguous in memory) and compute 8 x 4 of the tile. */
template <bool VEC>
__global__ void __launch_bounds__(CORR_THREADS)
    weights_kernel(const __grid_constant__ Weights p)
{
    typedef Pairs<float, VEC, VEC> F;
    enum { BK = F::BK, TILE = WEIGHTS_TILE };
    SMEM(float, grid, [2][BK][TILE]);
    SMEM(float, image, [2][BK][TILE]);
    const Slice s = slice_of(p);
    const int t = (int)threadIdx.x;
    const int my = t / (TILE / TN) * 4, nx = t % (TILE / TN) * TN;
    SMEM(Column, columns, [VEC ? 1 : TILE]);
    F f(p, s, columns);
    Fragment<TM, TN> mine;
    auto fetch = [&](int at) { f.fetch(p, s, at); };
    auto store = [&](int b) {
#pragma unroll
        for (int i = 0; i < F::LOADS; i++) {
            const int row = F::row() + i * F::STEP;
            *(Line<float> *)&grid[b][row][F::first()] = f.g[i];
            *(Line<float> *)&image[b][row][F::first()] = f.x[i];
        }
    };

    auto multiply = [&](int b) {
#pragma unroll
        for (int k = 0; k < BK; k++)
            mine.multiply(&grid[b][k][my], TILE / 2, &image[b][k][nx]);
    };
    each_chunk<BK>(s.from, s.to, fetch, store, multiply,
                   [&] { mine.end_chain(); });

    double own = 0;
    for (int i = 0; i < TM; i++)
        for (int j = 0; j < TN; j++)
            own += put_weight(p, s, i / 4 * (TILE / 2) + my + i % 4, nx + j,
                              mine.sum[i][j]);
    end_weights(p, own);
}

/* Of the (tap, image channel) axis. */
int64_t depth_of(const Corr *r)
{
    return (int64_t)r->win.k[0] * r->win.k[1] * r->win.k[2] * r->a;
}

int64_t tiles_of(const Corr *r)
{
    return ceil_div(r->b, WEIGHTS_TILE) * ceil_div(depth_of(r), WEIGHTS_TILE) *
           r->win.groups;
}

int parts_of(const Corr *r, int *part)
{
    return corr_parts(r, tiles_of(r), WEIGHTS_STEP, part);
}

} // namespace

size_t corr_weights_bytes(const Corr *r)
{
    if (corr_is_small(r)) return corr_direct_weights_bytes(r);
    int part, parts = parts_of(r, &part);
    return parts > 1 ? (size_t)(tiles_of(r) * parts) * WEIGHTS_TILE *
                           WEIGHTS_TILE * sizeof(float)
                     : 0;
}

// one of a tile, by who stores it
int corr_weights_squares(const Corr *r)
{
    return corr_is_small(r) ? corr_direct_weights_squares(r) : (int)tiles_of(r);
}

/* Queue the product of blocks tiles and parts. */
static bool launch(const Corr *r, const Weights *p, dim3 blocks)
{
    cudaStream_t stream = gpu_stream(r->c->dev);
    switch (r->c->precision) {
    case PRECISION_tf32:
        return corr_mma_weights<PRECISION_tf32>(r, p, blocks);
    case PRECISION_bf16:
        return corr_mma_weights<PRECISION_bf16>(r, p, blocks);
    case PRECISION_f16:
        return corr_mma_weights<PRECISION_f16>(r, p, blocks);
    default:
        break;
    }
    if (r->a % 4 == 0 && r->b % 4 == 0)
        LAUNCH((weights_kernel<true>), blocks, CORR_THREADS, 0, stream, *p);
    else
        LAUNCH((weights_kernel<false>), blocks, CORR_THREADS, 0, stream, *p);
    return gpu_launched("weights");
}

bool corr_weights(const Corr *r, const Source &image, const Source &grid,
                  float *w, bool fresh, double *square, void *scratch)
{
    if (!countable(r->c, rows(r->image)) || !countable(r->c, rows(r->grid)))
        return false;
    if (corr_is_small(r))
        return corr_direct_weights(r, image.own.data, grid.own.data, w, fresh,
                                   square, scratch);
    Weights p = {};
    int parts = parts_of(r, &p.part);
    const int32_t *count = &r->grid.d;
    p.image = image.own.data, p.image_norm = image.own.norm_on_load;
    p.border = r->image.c, p.grid_border = r->grid.c;
    if (image.from) p.beside = image.beside, p.border = image.from;
    p.grid = grid.own.data, p.grid_norm = grid.own.norm_on_load;
    p.norm_bwd = grid.own.norm_bwd;
    if (grid.from) p.grid_beside = grid.beside, p.grid_border = grid.from;
    p.win = r->win, p.size = r->image;
    p.grid_c = r->grid.c, p.a = r->a, p.b = r->b;
    p.depth = (int)depth_of(r);
    p.mtiles = (int)ceil_div(r->b, WEIGHTS_TILE);
    p.positions = (int)rows(r->grid);
    p.fold = fold_of(parts, tiles_of(r));
    p.parts = (float *)scratch;
    if (parts > 1) p.words = gpu_words(r->c->dev, tiles_of(r) * p.fold.words);
    p.out = w, p.fresh = fresh, p.square = square;
    p.channels = divisor(r->a);
    for (int i = 0; i < 3; i++) {
        p.axis[i] = divisor(count[i]);
        p.k[i] = divisor(r->win.k[i]);
    }
    dim3 blocks((unsigned)ceil_div(p.depth, WEIGHTS_TILE),
                (unsigned)(p.mtiles * r->win.groups), (unsigned)parts);
    // w, and the parts of it that are written and read
    const int64_t times = (fresh ? 1 : 2) + 2 * fold_moves(p.fold);
    const double squares =
        square ? corr_weights_squares(r) * sizeof *square : 0;
    moves(corr_bytes(r, numel(r->image) +
                            numel(r->grid) * (p.norm_bwd.table ? 2 : 1)) +
              (double)(times * corr_weights_size(r)) * sizeof(float) + squares,
          corr_flops(r));
    return launch(r, &p, blocks);
}
