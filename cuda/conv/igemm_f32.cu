/* igemm_f32.cu -- gather and spread: a tiled product with an operand that is
 * looked up; see igemm_operands.cuh.
 *
 * A block of 128 threads makes a tile of BM positions by BN channels, each
 * thread TM x TN of them in registers. Chunks of BK of the k axis go through
 * shared memory, two buffers, the next chunk on its way in registers while
 * this one is used: per chunk (BM + BN) BK floats are read for BM BN BK
 * multiply-adds, 16 FLOP a byte with the 64 x 64 tile. From shared memory a
 * warp reads 3 x 128 bytes for 32 multiply-adds a thread: the arithmetic
 * units, not shared memory, bind. Tile 128 x 16 is for results of few
 * channels.
 *
 * Groups of few channels on both sides would leave most of a tile empty: they
 * take the loop of direct.cu, one thread a result. */
#include "cuda/conv/direct.cuh"
#include "cuda/conv/igemm_operands.cuh"
#include "cuda/conv/igemm_tile.cuh"

namespace {

enum {
    PAD = 4, // floats behind a row of a tile: other banks, same alignment
};

template <int BM, int BN, int TM, int TN, bool SPREAD, bool VEC>
__global__ void __launch_bounds__(CORR_THREADS)
    product_kernel(const __grid_constant__ Product p)
{
    typedef Fetched<float, BM, BN, SPREAD> F;
    enum { BK = F::BK };
    SMEM(float, source, [2][BK][BM + PAD]);
    SMEM(float, weight, [2][BK][BN + PAD]);
    const Class &k = p.cls[blockIdx.z];
    const int t = (int)threadIdx.x, m0 = (int)blockIdx.x * BM;
    const int64_t group = blockIdx.y / p.tiles;
    const int n0 = (int)(blockIdx.y % p.tiles) * BN;
    if (m0 >= k.positions) return; // of a class with fewer: the whole block

    // this thread fetches four k at positions fm + i*STEP ...
    const int fk = t % CORR_LINES * 4, fm = t / CORR_LINES;
    Origin o[F::MS];
    for (int i = 0; i < F::MS; i++) o[i] = origin_of(k, m0 + fm + i * F::STEP);
    // ... and makes rows (i/4)*BM/2 + my + i%4, columns nx + j of the tile
    const int my = t / (BN / TN) * 4, nx = t % (BN / TN) * TN;

    Fragment<TM, TN> mine;
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
            if (SPREAD)
                *(Line<float> *)&weight[b][wk][wn] = f.w[i];
            else
                for (int j = 0; j < 4; j++) weight[b][wk + j][wn] = f.w[i].v[j];
        }
    };

    auto multiply = [&](int b) {
#pragma unroll
        for (int kk = 0; kk < BK; kk++)
            mine.multiply(&source[b][kk][my], BM / 2, &weight[b][kk][nx]);
    };
    each_chunk<BK>(0, k.depth, fetch, store, multiply,
                   [&] { mine.end_chain(); });

    for (int i = 0; i < TM; i++) {
        int m = m0 + i / 4 * (BM / 2) + my + i % 4;
        if (m >= k.positions) continue;
        int64_t row = result_row(p, k, m);
        for (int j = 0; j < TN; j++)
            put_result(p, row, group, n0 + nx + j, mine.sum[i][j]);
    }
}

// -- launching ---------------------------------------------------------------

template <int BM, int BN, int TM, int TN>
bool launch_tile(const Corr *r, Product *p, int classes, int positions)
{
    p->tiles = (int)ceil_div(p->width, BN);
    dim3 grid((unsigned)ceil_div(positions, BM),
              (unsigned)(p->tiles * r->win.groups), (unsigned)classes);
    cudaStream_t stream = gpu_stream(r->c->dev);
    bool vec = p->depth % 4 == 0 && (!p->spread || p->width % 4 == 0);
    if (p->spread && vec)
        LAUNCH((product_kernel<BM, BN, TM, TN, true, true>), grid, CORR_THREADS,
               0, stream, *p);
    else if (p->spread)
        LAUNCH((product_kernel<BM, BN, TM, TN, true, false>), grid,
               CORR_THREADS, 0, stream, *p);
    else if (vec)
        LAUNCH((product_kernel<BM, BN, TM, TN, false, true>), grid,
               CORR_THREADS, 0, stream, *p);
    else
        LAUNCH((product_kernel<BM, BN, TM, TN, false, false>), grid,
               CORR_THREADS, 0, stream, *p);
    return gpu_launched(p->spread ? "spread" : "gather");
}

bool launch(const Corr *r, Product *p, int classes)
{
    int positions = 0;
    for (int i = 0; i < classes; i++)
        if (p->cls[i].positions > positions) positions = p->cls[i].positions;
    if (!positions) return true;
    if (tile_takes(r)) {
        bool done, ok = tile_product(r, p, classes, &done);
        if (done) return ok;
    }
    switch (r->c->precision) {
    case PRECISION_tf32:
        return corr_mma_product<PRECISION_tf32>(r, p, classes, positions);
    case PRECISION_bf16:
        return corr_mma_product<PRECISION_bf16>(r, p, classes, positions);
    case PRECISION_f16:
        return corr_mma_product<PRECISION_f16>(r, p, classes, positions);
    default:
        break;
    }
    return p->width > 16 ? launch_tile<64, 64, 8, 4>(r, p, classes, positions)
                         : launch_tile<128, 16, 8, 2>(r, p, classes, positions);
}

/* What follows from the axes. */
void finish(Class *k, int samples, int channels)
{
    k->positions = samples;
    k->depth = channels;
    for (int i = 0; i < 3; i++) {
        k->positions *= k->axis[i].count;
        k->depth *= k->axis[i].taps;
        k->count[i] = divisor(most(1, k->axis[i].count));
        k->taps[i] = divisor(most(1, k->axis[i].taps));
    }
    k->channels = divisor(channels);
}

/* Image positions r mod s of one axis: taps k with r + lo - k*dil divisible
 * by s are first, first + s/gcd(dil, s), ... */
CorrAxis spread_axis(const Window *g, int i, int r, int size, int count)
{
    int s = g->s[i], first = 0, every = 1;
    CorrAxis x = {};
    x.count = r < size ? (size - r + s - 1) / s : 0;
    x.size = count, x.out_step = s, x.out_base = r, x.step = 1;
    while (first < g->k[i] && (r + g->lo[i] - first * g->dil[i]) % s) first++;
    while (every * g->dil[i] % s) every++;
    x.taps = first < g->k[i] ? (g->k[i] - first + every - 1) / every : 0;
    x.first = first, x.every = every;
    x.base = (r + g->lo[i] - first * g->dil[i]) / s;
    x.tap = -(every * g->dil[i] / s);
    return x;
}

} // namespace

namespace {

/* All of a product but its operands; false: too long for its numbers. */
bool gather_of(const Corr *r, Product *p)
{
    const Window *g = &r->win;
    const int32_t *size = &r->image.d, *count = &r->grid.d;
    *p = {};
    p->source_c = p->border = r->image.c;
    p->result_c = p->result_border = r->grid.c;
    p->depth = r->a, p->width = r->b, p->extent = r->grid;
    for (int i = 0; i < 3; i++) {
        p->taps[i] = g->k[i];
        p->cls[0].axis[i] = {count[i], g->s[i], -g->lo[i], g->dil[i], g->k[i],
                             0,        1,       size[i],   1,         0};
    }
    finish(&p->cls[0], r->grid.n, r->a);
    return countable(r->c, rows(r->image)) && countable(r->c, rows(r->grid));
}

/* Likewise, without classes. */
bool spread_of(const Corr *r, Product *p)
{
    *p = {};
    p->source_c = p->border = r->grid.c;
    p->result_c = p->result_border = r->image.c;
    p->depth = r->b, p->width = r->a, p->extent = r->image;
    p->spread = true;
    for (int i = 0; i < 3; i++) p->taps[i] = r->win.k[i];
    return countable(r->c, rows(r->image)) && countable(r->c, rows(r->grid));
}

/* The next classes of a spread, as many as a launch has; *at starts as 0. */
int spread_classes(const Corr *r, int *at, Product *p)
{
    const Window *g = &r->win;
    const int32_t *size = &r->image.d, *count = &r->grid.d;
    const int all = g->s[0] * g->s[1] * g->s[2];
    int n = 0;
    for (; *at < all && n < CORR_CLASSES; ++*at) {
        const int residue[3] = {*at / g->s[2] / g->s[1],
                                *at / g->s[2] % g->s[1], *at % g->s[2]};
        Class *k = &p->cls[n];
        *k = {};
        for (int a = 0; a < 3; a++)
            k->axis[a] = spread_axis(g, a, residue[a], size[a], count[a]);
        finish(k, r->image.n, r->b);
        // without taps a class still writes: its bias, or zero
        if (k->positions) n++;
    }
    return n;
}

/* One launch's product, and its classes; false: it is more, or none. */
bool all_of(const Corr *r, bool spread, Product *p, int *classes)
{
    int at = 0;
    *classes = 1;
    if (!spread) return gather_of(r, p);
    if (!spread_of(r, p)) return false;
    *classes = spread_classes(r, &at, p);
    return *classes && at == r->win.s[0] * r->win.s[1] * r->win.s[2];
}

} // namespace

// groups of fewer channels than a line are what direct.cu has
bool conv_loads_deferred(const Corr *r, bool grid)
{
    return precision_copy(r->c->precision) != F32 &&
           (grid ? r->b : r->a) % NARROW_CHANNELS == 0;
}

// a chunk of the source is of one tensor
bool conv_fuses_concat(const Corr *r, bool grid, int from)
{
    return from % TILE_CHUNK == 0 && r->win.groups == 1 &&
           conv_loads_deferred(r, grid);
}

namespace {

/* The operands and the result of a product. */
void set_operands(Product *p, const Source &source, const void *w,
                  const float *bias, const Result &to)
{
    p->source = source.own.data, p->norm_on_load = source.own.norm_on_load;
    p->norm_bwd = source.own.norm_bwd, p->norm_bwds = p->norm_bwd.table != NULL;
    if (source.from) p->beside = source.beside, p->border = source.from;
    p->sums = to.sums;
    p->w = w, p->bias = bias, p->result = to.own;
    if (to.from) p->beside_result = to.beside, p->result_border = to.from;
}

/* All of a product that tiles make in one launch, but its operands. */
bool by_tiles(const Corr *r, bool spread, Product *p, int *classes)
{
    return tile_takes(r) && !corr_is_small(r) && all_of(r, spread, p, classes);
}

} // namespace

bool conv_loads_norm_bwd(const Corr *r, bool spread)
{
    Product p;
    int n;
    if (!by_tiles(r, spread, &p, &n)) return false;
    p.norm_bwds = true;
    return tile_fits(r, &p, n);
}

int corr_sum_parts(const Corr *r, bool spread, bool norm_bwds)
{
    Product p;
    int n;
    if (!by_tiles(r, spread, &p, &n)) return 0;
    p.norm_bwds = norm_bwds;
    return tile_sum_parts(r, &p, n);
}

bool corr_gather(const Corr *r, const Source &image, const void *w,
                 const float *bias, const Result &grid)
{
    Product p;
    if (!gather_of(r, &p)) return false;
    moves(operand_bytes(r, image.own.norm_bwd, numel(r->image)) +
              corr_bytes(r, corr_weights_size(r)) + result_bytes(grid, r->grid),
          corr_flops(r));
    if (corr_is_small(r))
        return corr_direct_gather(r, image.own.data, w, bias, grid.own);
    set_operands(&p, image, w, bias, grid);
    return launch(r, &p, 1);
}

bool corr_spread(const Corr *r, const Source &grid, const void *w,
                 const float *bias, const Result &image)
{
    Product p;
    if (!spread_of(r, &p)) return false;
    moves(operand_bytes(r, grid.own.norm_bwd, numel(r->grid)) +
              corr_bytes(r, corr_weights_size(r)) +
              result_bytes(image, r->image),
          corr_flops(r));
    if (corr_is_small(r))
        return corr_direct_spread(r, grid.own.data, w, bias, image.own);
    set_operands(&p, grid, w, bias, image);
    for (int n, at = 0; (n = spread_classes(r, &at, &p));)
        if (!launch(r, &p, n)) return false;
    return true;
}
