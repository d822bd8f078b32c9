/* wgrad_tile.cu -- the choice of tap sets, boxes and split-K for
 * wgrad_tile.cuh, its launch, and the sum of its parts.
 *
 * All choices follow from extents, precision and the shared memory of the GPU,
 * so a result has the same bits in each run on one GPU. */
#include "cuda/conv/pad_channels.cuh"
#include "cuda/conv/tap_groups.cuh"
#include "cuda/conv/wgrad_fold.cuh"
#include "cuda/conv/wgrad_tile.cuh"
#include "cuda/lib/grad_sqnorm.cuh"

namespace {

enum {
    SLOTS = 2 * H100_PROCESSORS, // blocks that run at a time
    FILL = 3, // boxes that a block could multiply while it fills its ring
    MOST_POSITIONS_LOG = 8, // of a box
    MOST_PADDED = 15,       // channels that are padded to 8 or 16
};

/* Adds the parts of dw in their order, in double; four neighbouring elements a
 * thread. `shares` threads share the parts of four elements. Bound by
 * memory. */
__global__ void __launch_bounds__(FOLD_THREADS)
    wgrad_tile_fold_kernel(const float *parts, int count, int64_t size,
                           int shares, float *dw, bool fresh, double *sqnorm)
{
    SMEM(Sum4, sums, [FOLD_THREADS]);
    const int wide = FOLD_THREADS / shares;
    const int own = (int)threadIdx.x / wide, column = (int)threadIdx.x % wide;
    const int64_t i = ((int64_t)blockIdx.x * wide + column) * 4;
    const int from = count * own / shares, to = count * (own + 1) / shares;
    Sum4 s = {};
    if (i < size) {
#pragma unroll 4
        for (int k = from; k < to; k++)
            add(&s, *(const float4 *)(parts + k * size + i));
    }
    add_shares(&s, shares, sums);

    double squares = 0;
    if (!own && i < size) {
        for (int j = 0; j < 4; j++) {
            put(dw + i + j, (float)s.v[j], fresh);
            squares += square_of(dw[i + j]);
        }
    }
    if (sqnorm) store_sqnorm(squares, sqnorm + blockIdx.x);
}

/* Neighbouring taps of a tap group, on each axis: the group, its first tap, the
 * number of taps. */
struct TapBox {
    int group[3], first[3], count[3];
};

int taps_of(const TapBox &s)
{
    return s.count[0] * s.count[1] * s.count[2];
}

/* The sets of a window. */
struct Sets {
    IgemmAxis<TILE_GROUPS> axis[3];
    TapBox tap_box[WGRAD_TILE_SETS * WGRAD_TILE_TAPS];
    int first[WGRAD_TILE_SETS + 1]; // first tap box of each set
    int count;
    WgradTileShape tile;
    int reach[3]; // largest shift of a tap in a halo
    int groups;   // tap groups of a set, at most
};

/* Adds taps to the last set, or to a new one. False: too many sets. */
bool add_tap_box(const TapBox &s, int *taps, Sets *to)
{
    int &end = to->first[to->count];
    if (*taps + taps_of(s) > to->tile.taps) {
        if (to->count == WGRAD_TILE_SETS) return false;
        to->first[to->count + 1] = end;
        to->count++, *taps = 0;
        return add_tap_box(s, taps, to);
    }
    to->tap_box[end++] = s;
    *taps += taps_of(s);
    to->groups = (int)most(to->groups, end - to->first[to->count - 1]);
    for (int a = 0; a < 3; a++) {
        const int step = to->axis[a].group[s.group[a]].step;
        to->reach[a] = (int)most(to->reach[a], (s.count[a] - 1) * step);
    }
    return true;
}

/* Sorts the taps of a window into sets for a tile. False: too many. */
bool sets_of(const ConvProblem *r, const WgradTileShape &tile, Sets *to)
{
    const Window *g = &r->win;
    const int taps = tile.taps;
    *to = {};
    to->tile = tile;
    for (int a = 0; a < 3; a++) {
        const ConvAxis x = {
            (&r->output.d)[a], g->s[a], -g->lo[a], g->dil[a], g->k[a], 0, 1,
            (&r->input.d)[a],  1,       0};
        if (!tap_groups_of(x, &to->axis[a])) return false;
    }

    int used = taps; // of the last set: the first tap box begins a set
    const auto &x = to->axis;
    for (int i = 0; i < x[0].groups * x[1].groups * x[2].groups; i++) {
        TapBox s = {{i / x[2].groups / x[1].groups,
                     i / x[2].groups % x[1].groups, i % x[2].groups},
                    {},
                    {}};
        int cut[3], count[3], left = taps;
        for (int a = 2; a >= 0; a--) {
            count[a] = x[a].group[s.group[a]].count;
            cut[a] = (int)least(count[a], left);
            left /= cut[a];
        }
        for (int d = 0; d < count[0]; d += cut[0])
            for (int h = 0; h < count[1]; h += cut[1])
                for (int w = 0; w < count[2]; w += cut[2]) {
                    const int first[3] = {d, h, w};
                    for (int a = 0; a < 3; a++) {
                        s.first[a] = first[a];
                        s.count[a] = (int)least(cut[a], count[a] - first[a]);
                    }
                    if (!add_tap_box(s, &used, to)) return false;
                }
    }
    return true;
}

int64_t padded(int64_t count, int64_t to)
{
    return ceil_div(count, to) * to;
}

/* The estimated time of a position with these sets: products of a filter, and
 * loads. */
int64_t cost_of(const ConvProblem *r, const Sets &s)
{
    const WgradTileShape &t = s.tile;
    return s.count * ceil_div(r->cin, t.channels) *
           (t.taps * t.channels + 2 * (WGRAD_TILE_FILTERS + t.channels));
}

/* Do blocks compute at most twice the columns of dw, (tap, channel), that
 * wgrad_mma computes? */
bool wastes_little(const ConvProblem *r, const Sets &s)
{
    const int64_t columns = conv_taps(r) * r->cin;
    return s.count * s.tile.taps * padded(r->cin, s.tile.channels) <=
           2 * padded(columns, 64);
}

/* The sets of the least cost_of. False: none. */
bool choose_sets(const ConvProblem *r, Sets *best)
{
    *best = {};
    for (const WgradTileShape &tile : WGRAD_TILE_SHAPES) {
        Sets s;
        if (sets_of(r, tile, &s) && wastes_little(r, s) &&
            (!best->count || cost_of(r, s) < cost_of(r, *best)))
            *best = s;
    }
    return best->count > 0;
}

/* Sets the tap table of each set, for the halo of p. False: an origin has no 16
 * bits. */
bool set_taps(const Sets &s, const Window *g, WgradTileParams *p)
{
    for (int i = 0; i < s.count; i++) {
        TapSet *to = &p->set[i];
        for (int k = s.first[i]; k < s.first[i + 1]; k++, to->groups++) {
            const TapBox &box = s.tap_box[k];
            for (int a = 0; a < 3; a++) {
                const IgemmTaps &x = s.axis[a].group[box.group[a]];
                const int origin =
                    x.origin + box.first[a] * x.step * p->step[a];
                to->origin[to->groups][a] = (int16_t)origin;
                if (to->origin[to->groups][a] != origin) return false;
            }
            for (int t = 0; t < taps_of(box); t++, to->taps++) {
                const int at[3] = {t / box.count[2] / box.count[1],
                                   t / box.count[2] % box.count[1],
                                   t % box.count[2]};
                int move = 0, number = 0;
                for (int a = 0; a < 3; a++) {
                    const IgemmTaps &x = s.axis[a].group[box.group[a]];
                    move = move * (int)p->halo[a].by + at[a] * x.step;
                    number = number * g->k[a] + x.first +
                             (box.first[a] + at[a]) * x.every;
                }
                to->move[to->taps] =
                    (uint16_t)(move + to->groups * p->halo_rows);
                to->number[to->taps] = (uint16_t)number;
            }
        }
    }
    return true;
}

/* A launch: its arguments without addresses, and its extents. */
struct WgradTileRun {
    WgradTileParams p;
    WgradTileShape tile;
    int tiles, blocks, parts; // blocks and parts of a tile
    size_t padded_bytes;      // of the input's copy with padded channels
    size_t shared;
    int fold_shares, fold_blocks;
};

/* Bytes of an element of an operand. */
int element_bytes(const ConvProblem *r)
{
    return (int)dtype_bytes(precision_copy(r->c->precision));
}

/* Sets p->stage_bytes and returns the bytes of shared memory of a block. */
int64_t shared_of(const ConvProblem *r, int channels, WgradTileParams *p)
{
    const int bytes = element_bytes(r);
    p->stage_bytes =
        (int)padded(bytes * (p->layers * p->positions * WGRAD_TILE_FILTERS +
                             p->rows * channels),
                    1024);
    return WGRAD_TILE_BLOCK + (int64_t)p->stages * p->stage_bytes +
           (p->stages + 1) * (p->positions + p->rows) * 4 + p->positions * 2;
}

/* Lays boxes of extents p->box. Returns the estimated time of all boxes, in
 * clock ticks of a multiprocessor; 0: they do not fit in shared memory. */
double lay_boxes(const ConvProblem *r, const Sets &s, WgradTileParams *p)
{
    enum { MMA_TICKS = 3, BYTES_A_TICK = 32, BARRIER_TICKS = 200 };
    const bool wide = r->c->precision == PRECISION_tf32;
    const int spatial = p->box[0] + p->box[1] + p->box[2];
    p->positions = 1 << spatial << p->log_samples;
    int64_t rows = 1 << p->log_samples;
    for (int a = 0; a < 3; a++) {
        const int halo = (1 << p->box[a]) + s.reach[a];
        p->halo[a] = divisor(halo);
        rows = least(rows * halo, INT32_MAX >> 8);
    }
    p->halo_rows = (int)rows;
    p->rows = (int)least(rows * s.groups, UINT16_MAX);

    int64_t boxes = ceil_div(r->output.n, 1 << p->log_samples);
    for (int a = 0; a < 3; a++) {
        const int64_t along = ceil_div(p->count[a], 1 << p->box[a]);
        p->boxes[a] = divisor(along);
        boxes *= along;
    }
    p->all_boxes = (int)least(boxes, INT32_MAX);

    const int two = gpu_limits()->shared_of_two;
    const int stages = gpu_limits()->copy_stages > 2 ? 3 : 2;
    for (p->stages = stages; p->stages > 2; p->stages--)
        if (shared_of(r, s.tile.channels, p) <= two) break;
    const int64_t bytes = shared_of(r, s.tile.channels, p);
    if (!gpu_fits(bytes)) return 0;

    const double products = (double)p->positions * s.tile.taps *
                            s.tile.channels / 32 * MMA_TICKS / 2 *
                            (wide ? 2 : 1);
    const double loads =
        (double)(p->layers * p->positions * WGRAD_TILE_FILTERS +
                 p->rows * s.tile.channels) *
        element_bytes(r) / BYTES_A_TICK;
    double ticks = (double)p->all_boxes * (products + loads + BARRIER_TICKS);
    if (p->box[2] < 3) ticks += ticks / 16; // bank conflicts
    return bytes > two ? ticks * 5 / 4 : ticks;
}

/* Chooses the boxes of the least estimated time; false: none fit in shared
 * memory. */
bool choose_boxes(const ConvProblem *r, const Sets &s, WgradTileParams *p)
{
    int far[3], best[4] = {};
    double least_ticks = 0;
    for (int a = 0; a < 3; a++) {
        far[a] = 0;
        // at most half of a box lies past the end of an axis
        while (far[a] < MOST_POSITIONS_LOG && 1 << far[a] < p->count[a])
            far[a]++;
    }

    // at least a step (16 positions) for each warp that shares positions
    const int first = s.tile.channels == 8 ? 6 : 5;
    for (int log = first; log <= MOST_POSITIONS_LOG; log++)
        for (int d = 0; d <= far[0]; d++)
            for (int h = 0; h <= far[1] && d + h <= log; h++)
                for (int w = 0; w <= far[2] && d + h + w <= log; w++) {
                    p->box[0] = d, p->box[1] = h, p->box[2] = w;
                    p->log_samples = log - d - h - w;
                    const double ticks = lay_boxes(r, s, p);
                    if (!ticks || (least_ticks && ticks > least_ticks))
                        continue;
                    least_ticks = ticks;
                    memcpy(best, p->box, sizeof p->box);
                    best[3] = p->log_samples;
                }

    memcpy(p->box, best, sizeof p->box);
    p->log_samples = best[3];
    lay_boxes(r, s, p);
    return least_ticks > 0;
}

/* The number of blocks that share the boxes of a tile: the blocks of all tiles
 * take the fewest rounds of boxes, and no sum has more than CHAIN products. */
int blocks_of(const ConvProblem *r, const WgradTileRun &o)
{
    const int k = r->c->precision == PRECISION_tf32 ? 8 : 16;
    const int64_t boxes = o.p.all_boxes;
    const int64_t longest =
        CHAIN * k * wgrad_tile_k_warps(o.tile.channels) / o.p.positions;
    const int64_t fewest = ceil_div(boxes, longest);
    const int64_t limit =
        most(fewest, least(boxes, 2 * ceil_div(SLOTS, o.tiles) + fewest));
    int64_t best = fewest, least_rounds = 0;
    for (int64_t n = fewest; n <= limit; n++) {
        const int64_t rounds =
            ceil_div(o.tiles * n, SLOTS) * (ceil_div(boxes, n) + FILL);
        if (least_rounds && rounds >= least_rounds) continue;
        best = n, least_rounds = rounds;
    }
    return (int)best;
}

/* False: wgrad_tile does not take the problem. */
bool run_of(const ConvProblem *r, bool norm_bwd, WgradTileRun *o)
{
    Sets s;
    WgradTileParams &p = o->p;
    *o = {};
    const bool pads = r->cin % NARROW_CHANNELS != 0;
    if (r->c->precision == PRECISION_f32 || r->cout % NARROW_CHANNELS ||
        (pads && (r->cin > MOST_PADDED || r->win.groups > 1)) ||
        !choose_sets(r, &s))
        return false;
    p.layers = norm_bwd ? 2 : 1;
    p.input_c = r->input.c, p.output_c = r->output.c;
    p.cin = r->cin, p.cout = r->cout, p.samples = r->output.n;
    p.cin_padded = (int)padded(r->cin, NARROW_CHANNELS);
    if (pads) {
        p.input_c = p.cin_padded;
        o->padded_bytes = (size_t)rows(r->input) * (size_t)p.cin_padded *
                          (size_t)element_bytes(r);
    }
    p.filter_taps = (int)conv_taps(r);
    p.part_size = conv_filter_size(r);
    for (int a = 0; a < 3; a++) {
        p.size[a] = (&r->input.d)[a], p.count[a] = (&r->output.d)[a];
        p.step[a] = r->win.s[a];
    }

    // half of the positions of boxes may be padding, and one box more
    if (!choose_boxes(r, s, &p) || !set_taps(s, &r->win, &p) ||
        (int64_t)p.all_boxes * p.positions >
            2 * rows(r->output) + (1 << MOST_POSITIONS_LOG))
        return false;
    const int m = (int)ceil_div(r->cout, WGRAD_TILE_FILTERS);
    const int n = (int)ceil_div(r->cin, s.tile.channels);
    p.m_tiles = divisor(m), p.n_tiles = divisor(n);
    p.groups = divisor(r->win.groups);
    o->tile = s.tile, o->tiles = m * n * r->win.groups * s.count;
    o->blocks = blocks_of(r, *o);
    o->parts = o->blocks * wgrad_tile_k_warps(s.tile.channels);
    o->shared = (size_t)shared_of(r, s.tile.channels, &p);
    o->fold_shares = fold_shares(o->parts);
    o->fold_blocks =
        (int)ceil_div(p.part_size / 4, FOLD_THREADS / o->fold_shares);
    return o->blocks <= UINT16_MAX;
}

} // namespace

WgradTileFit wgrad_tile_fit(const ConvProblem *r, bool norm_bwd)
{
    WgradTileRun o;
    WgradTileFit f = {};
    f.takes = run_of(r, norm_bwd, &o);
    if (!f.takes) return f;
    f.sqnorm_parts = o.parts == 1 ? o.tiles * WGRAD_TILE_WARPS : o.fold_blocks;
    f.workspace = o.padded_bytes;
    if (o.parts > 1)
        f.workspace += (size_t)(o.p.part_size * o.parts) * sizeof(float);
    return f;
}

bool wgrad_tile_run(const ConvProblem *r, const Source &input,
                    const Source &output, float *dw, bool fresh, double *sqnorm,
                    void *workspace)
{
    WgradTileRun o;
    if (!countable(r->c, rows(r->input)) || !countable(r->c, rows(r->output)))
        return false;
    CHECK(run_of(r, output.first.norm_bwd.table, &o));
    WgradTileParams &p = o.p;
    p.input = input, p.output = output, p.norm_bwd = output.first.norm_bwd;
    if (o.padded_bytes) {
        if (!pad_channels(r, input, p.cin_padded, workspace)) return false;
        p.input = {}, p.input.first.data = workspace;
        workspace = (char *)workspace + o.padded_bytes;
    }
    p.parts = (float *)workspace, p.dw = dw, p.fresh = fresh;
    if (o.parts == 1) p.sqnorm = sqnorm;
    const double dw_bytes =
        (double)p.part_size * sizeof(float) * (fresh ? 1 : 2);
    const double all_parts_bytes =
        (double)p.part_size * o.parts * sizeof(float);
    moves(conv_operand_bytes(r,
                             numel(r->input) + numel(r->output) *
                                                   (p.norm_bwd.table ? 2 : 1)) +
              (o.parts == 1 ? dw_bytes : all_parts_bytes),
          conv_flops(r));
    const dim3 blocks((unsigned)o.tiles, (unsigned)o.blocks);
    bool ok;
    switch (r->c->precision) {
    case PRECISION_tf32:
        ok = wgrad_tile_launch<PRECISION_tf32>(r, o.tile, p, blocks, o.shared);
        break;
    case PRECISION_bf16:
        ok = wgrad_tile_launch<PRECISION_bf16>(r, o.tile, p, blocks, o.shared);
        break;
    default:
        ok = wgrad_tile_launch<PRECISION_f16>(r, o.tile, p, blocks, o.shared);
    }
    if (!ok || o.parts == 1) return ok;

    moves(all_parts_bytes + dw_bytes);
    LAUNCH(wgrad_tile_fold_kernel, (unsigned)o.fold_blocks, FOLD_THREADS, 0,
           gpu_stream(r->c->dev), p.parts, o.parts, p.part_size, o.fold_shares,
           dw, fresh, sqnorm);
    return gpu_launched("wgrad_tile, sum of split-K");
}
