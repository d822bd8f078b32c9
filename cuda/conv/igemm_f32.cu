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
    if (m0 >= k.positions) return; // of a class with fewer: the whole block

    // this thread fetches four k at positions fm + i*STEP ...
    const int fk = t % CHUNK_LINES * 4, fm = t / CHUNK_LINES;
    RowOrigin o[F::MS];
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
            if (DGRAD)
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
bool launch_simt(const ConvProblem *r, IgemmParams *p, int classes,
                 int positions)
{
    p->tiles = (int)ceil_div(p->width, BN);
    dim3 launch_grid((unsigned)ceil_div(positions, BM),
                     (unsigned)(p->tiles * r->win.groups), (unsigned)classes);
    cudaStream_t stream = gpu_stream(r->c->dev);
    bool vec = p->depth % 4 == 0 && (!p->dgrad || p->width % 4 == 0);
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
    return gpu_launched(p->dgrad ? "dgrad" : "fprop");
}

bool launch(const ConvProblem *r, IgemmParams *p, int classes)
{
    int positions = 0;
    for (int i = 0; i < classes; i++)
        if (p->cls[i].positions > positions) positions = p->cls[i].positions;
    if (!positions) return true;
    if (igemm_tile_takes(r)) {
        bool done, ok = igemm_tile_run(r, p, classes, &done);
        if (done) return ok;
    }
    switch (r->c->precision) {
    case PRECISION_tf32:
        return igemm_mma<PRECISION_tf32>(r, p, classes, positions);
    case PRECISION_bf16:
        return igemm_mma<PRECISION_bf16>(r, p, classes, positions);
    case PRECISION_f16:
        return igemm_mma<PRECISION_f16>(r, p, classes, positions);
    default:
        break;
    }
    return p->width > 16 ? launch_simt<64, 64, 8, 4>(r, p, classes, positions)
                         : launch_simt<128, 16, 8, 2>(r, p, classes, positions);
}

/* What follows from the axes. */
void finish(ResidueClass *k, int samples, int channels)
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
ConvAxis dgrad_axis(const Window *g, int i, int r, int size, int count)
{
    int s = g->s[i], first = 0, every = 1;
    ConvAxis x = {};
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
bool fprop_of(const ConvProblem *r, IgemmParams *p)
{
    const Window *g = &r->win;
    const int32_t *size = &r->input.d, *count = &r->output.d;
    *p = {};
    p->source_c = p->border = r->input.c;
    p->result_c = p->result_border = r->output.c;
    p->depth = r->cin, p->width = r->cout, p->extent = r->output;
    for (int i = 0; i < 3; i++) {
        p->taps[i] = g->k[i];
        p->cls[0].axis[i] = {count[i], g->s[i], -g->lo[i], g->dil[i], g->k[i],
                             0,        1,       size[i],   1,         0};
    }
    finish(&p->cls[0], r->output.n, r->cin);
    return countable(r->c, rows(r->input)) && countable(r->c, rows(r->output));
}

/* Likewise, without classes. */
bool dgrad_of(const ConvProblem *r, IgemmParams *p)
{
    *p = {};
    p->source_c = p->border = r->output.c;
    p->result_c = p->result_border = r->input.c;
    p->depth = r->cout, p->width = r->cin, p->extent = r->input;
    p->dgrad = true;
    for (int i = 0; i < 3; i++) p->taps[i] = r->win.k[i];
    return countable(r->c, rows(r->input)) && countable(r->c, rows(r->output));
}

/* The next classes of a spread, as many as a launch has; *at starts as 0. */
int dgrad_classes(const ConvProblem *r, int *at, IgemmParams *p)
{
    const Window *g = &r->win;
    const int32_t *size = &r->input.d, *count = &r->output.d;
    const int all = g->s[0] * g->s[1] * g->s[2];
    int n = 0;
    for (; *at < all && n < RESIDUE_CLASSES; ++*at) {
        const int residue[3] = {*at / g->s[2] / g->s[1],
                                *at / g->s[2] % g->s[1], *at % g->s[2]};
        ResidueClass *k = &p->cls[n];
        *k = {};
        for (int a = 0; a < 3; a++)
            k->axis[a] = dgrad_axis(g, a, residue[a], size[a], count[a]);
        finish(k, r->input.n, r->cout);
        // without taps a class still writes: its bias, or zero
        if (k->positions) n++;
    }
    return n;
}

/* One launch's product, and its classes; false: it is more, or none. */
bool single_launch(const ConvProblem *r, bool dgrad, IgemmParams *p,
                   int *classes)
{
    int at = 0;
    *classes = 1;
    if (!dgrad) return fprop_of(r, p);
    if (!dgrad_of(r, p)) return false;
    *classes = dgrad_classes(r, &at, p);
    return *classes && at == r->win.s[0] * r->win.s[1] * r->win.s[2];
}

} // namespace

// groups of fewer channels than a line are what direct.cu has
bool conv_loads_deferred(const ConvProblem *r, bool output)
{
    return precision_copy(r->c->precision) != F32 &&
           (output ? r->cout : r->cin) % NARROW_CHANNELS == 0;
}

// a chunk of the source is of one tensor
bool conv_fuses_concat(const ConvProblem *r, bool output, int from)
{
    return from % TILE_CHUNK == 0 && r->win.groups == 1 &&
           conv_loads_deferred(r, output);
}

namespace {

/* The operands and the result of a product. */
void set_operands(IgemmParams *p, const Source &source, const void *w,
                  const float *bias, const Result &to)
{
    p->source = source.own.data, p->norm_on_load = source.own.norm_on_load;
    p->norm_bwd = source.own.norm_bwd,
    p->loads_norm_bwd = p->norm_bwd.table != NULL;
    if (source.from) p->second = source.second, p->border = source.from;
    p->sums = to.sums;
    p->w = w, p->bias = bias, p->result = to.own;
    if (to.from) p->second_result = to.second, p->result_border = to.from;
}

/* All of a product that tiles make in one launch, but its operands. */
bool igemm_tile_params(const ConvProblem *r, bool dgrad, IgemmParams *p,
                       int *classes)
{
    return igemm_tile_takes(r) && !direct_takes(r) &&
           single_launch(r, dgrad, p, classes);
}

} // namespace

bool conv_loads_norm_bwd(const ConvProblem *r, bool dgrad)
{
    IgemmParams p;
    int n;
    if (!igemm_tile_params(r, dgrad, &p, &n)) return false;
    p.loads_norm_bwd = true;
    return igemm_tile_fits(r, &p, n);
}

int conv_sum_parts(const ConvProblem *r, bool dgrad, bool loads_norm_bwd)
{
    IgemmParams p;
    int n;
    if (!igemm_tile_params(r, dgrad, &p, &n)) return 0;
    p.loads_norm_bwd = loads_norm_bwd;
    return igemm_tile_sum_parts(r, &p, n);
}

bool conv_fprop(const ConvProblem *r, const Source &input, const void *w,
                const float *bias, const Result &output)
{
    IgemmParams p;
    if (!fprop_of(r, &p)) return false;
    moves(operand_traffic(r, input.own.norm_bwd, numel(r->input)) +
              conv_operand_bytes(r, conv_filter_size(r)) +
              result_traffic(output, r->output),
          conv_flops(r));
    if (direct_takes(r))
        return direct_fprop(r, input.own.data, w, bias, output.own);
    set_operands(&p, input, w, bias, output);
    return launch(r, &p, 1);
}

bool conv_dgrad(const ConvProblem *r, const Source &output, const void *w,
                const float *bias, const Result &input)
{
    IgemmParams p;
    if (!dgrad_of(r, &p)) return false;
    moves(operand_traffic(r, output.own.norm_bwd, numel(r->output)) +
              conv_operand_bytes(r, conv_filter_size(r)) +
              result_traffic(input, r->input),
          conv_flops(r));
    if (direct_takes(r))
        return direct_dgrad(r, output.own.data, w, bias, input.own);
    set_operands(&p, output, w, bias, input);
    for (int n, at = 0; (n = dgrad_classes(r, &at, &p));)
        if (!launch(r, &p, n)) return false;
    return true;
}
