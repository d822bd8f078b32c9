/* wgrad.cu -- the launch of wgrad_mma and wgrad_f32; see wgrad.cuh for the
 * product.
 *
 * Positions are divided into parts (split-K) by a number that depends on
 * extents only, so that layers of few channels fill a GPU too; the last block
 * of a tile adds the parts in double (grid_reduce.cuh), so results have the
 * same bits in each run.
 *
 * Groups of few channels: direct.cu. */
#include "cuda/conv/conv.cuh"
#include "cuda/conv/wgrad.cuh"

namespace {

bool in_f32(const ConvProblem *r)
{
    return r->c->precision == PRECISION_f32;
}

WgradTileSize tile_of(const ConvProblem *r)
{
    return in_f32(r) ? wgrad_f32_tile(r)
                     : WgradTileSize{WGRAD_TILE, WGRAD_TILE, 512};
}

/* Elements of the (tap, input channel) axis of a group. */
int64_t gemm_n_of(const ConvProblem *r)
{
    return conv_taps(r) * r->cin;
}

int64_t tiles_of(const ConvProblem *r)
{
    const WgradTileSize tile = tile_of(r);
    return ceil_div(r->cout, tile.m) * ceil_div(gemm_n_of(r), tile.n) *
           r->win.groups;
}

int parts_of(const ConvProblem *r, int *part)
{
    return wgrad_split_k(r, tiles_of(r), WGRAD_STEP, part, tile_of(r).fill);
}

} // namespace

size_t conv_wgrad_bytes(const ConvProblem *r)
{
    const WgradTileSize tile = tile_of(r);
    int part, parts = parts_of(r, &part);
    return parts > 1
               ? (size_t)(tiles_of(r) * parts * tile.m * tile.n) * sizeof(float)
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
    switch (r->c->precision) {
    case PRECISION_tf32:
        return wgrad_mma<PRECISION_tf32>(r, p, blocks);
    case PRECISION_bf16:
        return wgrad_mma<PRECISION_bf16>(r, p, blocks);
    case PRECISION_f16:
        return wgrad_mma<PRECISION_f16>(r, p, blocks);
    default:
        return wgrad_f32(r, p, blocks);
    }
}

bool conv_wgrad(const ConvProblem *r, const Source &input, const Source &output,
                float *w, bool fresh, double *sqnorm, void *scratch)
{
    if (!countable(r->c, rows(r->input)) || !countable(r->c, rows(r->output)))
        return false;
    const WgradTileSize tile = tile_of(r);
    WgradParams p = {};
    int parts = parts_of(r, &p.part);
    const int32_t *count = &r->output.d;
    p.input = input.first.data, p.input_norm = input.first.norm_on_load;
    p.border = r->input.c, p.output_border = r->output.c;
    if (input.border) p.second = input.second, p.border = input.border;
    p.output = output.first.data, p.output_norm = output.first.norm_on_load;
    if (output.border)
        p.second_output = output.second, p.output_border = output.border;
    p.win = r->win, p.size = r->input;
    p.output_c = r->output.c, p.cin = r->cin, p.cout = r->cout;
    p.gemm_n = (int)gemm_n_of(r);
    p.mtiles = (int)ceil_div(r->cout, tile.m);
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
    dim3 blocks((unsigned)ceil_div(p.gemm_n, tile.n),
                (unsigned)(p.mtiles * r->win.groups), (unsigned)parts);

    // dw, and its parts, written and read
    const int64_t times =
        (fresh ? 1 : 2) + 2 * grid_reduce_traffic(p.grid_reduce);
    const double sqnorm_bytes =
        sqnorm ? conv_wgrad_sqnorm_parts(r) * sizeof *sqnorm : 0;
    moves(conv_operand_bytes(r, numel(r->input) + numel(r->output)) +
              (double)(times * conv_filter_size(r)) * sizeof(float) +
              sqnorm_bytes,
          conv_flops(r));
    return launch(r, &p, blocks);
}
