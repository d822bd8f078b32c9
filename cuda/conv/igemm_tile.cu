/* igemm_tile.cu -- the choice of tile, box and split-K for igemm_tile.cuh, and
 * its launch.
 *
 * The k axis is divided into slices if one sample has few tiles and long sums,
 * or if a chain of float additions would be too long. The number of slices
 * depends on the extents of one sample only, so a result has the same bits in
 * any batch. Each slice is summed alone, and the slices are added in their
 * order: by one block in registers or, if a GPU would have few blocks, by one
 * block a slice (split-K), with the partial sums in memory and
 * split_k_sum after them. Both give the same bits, and so do all tiles
 * and boxes, so the fastest may be chosen. The exception is the
 * sums over the result, which are added box by box (igemm_tile_sums.cuh). */
#include "cuda/conv/igemm_tile.cuh"
#include "cuda/conv/igemm_tile_choice.h"
#include "cuda/conv/split_k.cuh"
#include <stdio.h>

namespace {

__thread int requested, taken = TILE_NONE; // see igemm_tile_choice.h

enum {
    FEW_TILES = 32, // tiles of a sample that are too few blocks for a GPU
    MIN_SLICE = 32, // steps of the main loop that are worth a block
    LAUNCH_MACS = 6 << 20, // multiply-adds of one in the time of a launch
};

/* The tiles, with the share of the arithmetic rate that each reaches: estimated
 * from its reads of shared memory for each product. */
const struct {
    int bm, bn, percent;
} TILES[] = {{128, 128, 100}, {128, 64, 90}, {64, 64, 75}, {128, 32, 70}};
enum { TILE_KINDS = sizeof TILES / sizeof *TILES };

int number_of(int kind, bool split)
{
    return 1 + kind + (split ? TILE_KINDS : 0);
}

int chunks_of(int channels)
{
    return (int)ceil_div(channels, TILE_ROW / 2);
}

/* The number of taps of the residue class with the most. */
int64_t taps_of(const Window *g, bool dgrad)
{
    int64_t taps = 1;
    for (int i = 0; i < 3; i++)
        taps *=
            ceil_div(g->k[i], dgrad ? g->s[i] / gcd(g->dil[i], g->s[i]) : 1);
    return taps;
}

int number_of(const GemmTile &tile)
{
    int kind = 0;
    while (TILES[kind].bm != tile.bm || TILES[kind].bn != tile.bn) kind++;
    return number_of(kind, tile.split_k);
}

/* The extents of a pass, for the choice of a tile. */
struct ProblemSize {
    int64_t positions, samples; // of one class of one sample
    int64_t classes, groups, gemm_n, taps, chunks;
};

ProblemSize problem_size(const ConvProblem *r, bool dgrad)
{
    const Window *g = &r->win;
    const Dims to = dgrad ? r->input : r->output;
    ProblemSize w = {};
    w.classes = dgrad ? (int64_t)g->s[0] * g->s[1] * g->s[2] : 1;
    w.positions = ceil_div(positions(to), w.classes);
    w.samples = to.n, w.groups = g->groups;
    w.gemm_n = dgrad ? r->cin : r->cout;
    w.taps = taps_of(g, dgrad);
    w.chunks = chunks_of(dgrad ? r->cout : r->cin);
    return w;
}

int64_t tiles_of(const ProblemSize &w, int64_t samples, int bm, int bn)
{
    return ceil_div(w.positions * samples, bm) * w.classes *
           ceil_div(w.gemm_n, bn) * w.groups;
}

/* The slices of the k axis; depends on the extents of one sample only. */
int k_slices_of(const ProblemSize &w)
{
    const int64_t tiles = tiles_of(w, 1, 64, 64);
    int64_t count = 1;
    if (tiles <= FEW_TILES)
        count = least(4 * FEW_TILES / tiles, w.taps * w.chunks / MIN_SLICE);
    // each step adds two products (k = 16) to a register: CHAIN / 2 steps a
    // chain
    count = most(count, ceil_div(w.chunks, CHAIN / 2 / w.taps));
    return (int)most(1, least(count, w.chunks));
}

/* The estimated time, in multiply-adds of one multiprocessor; a byte of partial
 * sums counts as two thirds of one. */
double cost_of(const ProblemSize &w, const GemmTile &tile, int percent)
{
    const double parts = tile.split_k ? tile.k_slices : 1;
    const double blocks =
        (double)tiles_of(w, w.samples, tile.bm, tile.bn) * parts;
    const double k = (double)(w.taps * w.chunks * 32) / parts;
    const double results =
        (double)(w.positions * w.classes * w.samples * w.gemm_n * w.groups);
    return (blocks > H100_PROCESSORS ? blocks / H100_PROCESSORS : 1) * tile.bm *
               tile.bn * k * 100 / percent +
           (tile.split_k
                ? results * parts * 8 * 2 / 3 / H100_PROCESSORS + LAUNCH_MACS
                : 0);
}

/* The cheapest tile with this number (TILE_ANY: of all), with and without
 * split-K. bm = 0: no tile has the number. */
GemmTile cheapest(const ProblemSize &w, int number)
{
    const int k_slices = k_slices_of(w);
    GemmTile best = {};
    double least_cost = 0;

    for (int kind = 0; kind < TILE_KINDS; kind++) {
        const auto &t = TILES[kind];
        if (k_slices > 1 && t.bm * t.bn == 128 * 128)
            continue; // has no registers for a second sum: IgemmTileShape
        // split-K: all classes must fit one launch
        for (int split_k = 0;
             split_k <= (k_slices > 1 && w.classes <= RESIDUE_CLASSES);
             split_k++) {
            if (number && number_of(kind, split_k) != number) continue;
            const GemmTile tile = {t.bm, t.bn, k_slices, split_k != 0};
            const double cost = cost_of(w, tile, t.percent);
            if (best.bm && cost >= least_cost) continue;
            best = tile, least_cost = cost;
        }
    }
    return best;
}

/* The tile that the thread requests (bm = 0 if the problem cannot have it);
 * else the tile of Call.tile, if the problem can have it; else the cheapest. */
GemmTile gemm_tile_of(const ConvProblem *r, bool dgrad)
{
    const ProblemSize w = problem_size(r, dgrad);
    if (requested) return cheapest(w, requested);
    const bool back = dgrad != (call_op(r->c) == OP_upconv);
    const GemmTile asked = cheapest(w, r->c->tile[back]);
    return asked.bm ? asked : cheapest(w, TILE_ANY);
}

// -- classes and boxes -------------------------------------------------------

/* Is each source position of the axis the own position of exactly one box and
 * tap group? The groups must cover each remainder by the step. */
template <int GROUPS> bool axis_owns(const IgemmAxis<GROUPS> &x)
{
    if (x.groups != x.step) return false;
    for (int i = 0; i < x.groups; i++) {
        const IgemmTaps &t = x.group[i];
        const int first = t.origin + t.own * x.step;
        if (t.own > t.reach || first >= x.step ||
            ceil_div(x.size - first, x.step) > x.count)
            return false;
    }
    return true;
}

/* Is each source row the own row of exactly one box, and is the number of rows
 * below TILE_OWN, so that bit is free in the row table? */
template <int GROUPS> bool owns_all(const IgemmClass<GROUPS> &k, Dims source)
{
    return rows(source) < TILE_OWN && axis_owns(k.axis[0]) &&
           axis_owns(k.axis[1]) && axis_owns(k.axis[2]);
}

/* The number of halo loads in flight: the smallest number of successive loads
 * that always covers copy_stages - 1 steps of the main loop. */
template <int GROUPS> int ahead_of(const IgemmClass<GROUPS> &k)
{
    const int covered = gpu_limits()->copy_stages - 1;
    int most_ahead = 1;
    for (int g = 0; g < k.groups; g++) {
        int steps = 0, n = 0;
        for (int i = g; steps < covered; i++, n++) {
            int rest = i % k.groups, taps = 1;
            for (int a = 2; a >= 0; a--) {
                taps *= k.axis[a].group[rest % k.axis[a].groups].count;
                rest /= k.axis[a].groups;
            }
            steps += taps;
        }
        if (n > most_ahead) most_ahead = n;
    }
    return most_ahead;
}

/* Sets everything of a class but its boxes; false: too many tap groups. */
template <int GROUPS>
bool class_of(const ResidueClass &from, IgemmClass<GROUPS> *k)
{
    k->taps = k->groups = 1;
    for (int a = 0; a < 3; a++) {
        if (!tap_groups_of(from.axis[a], &k->axis[a])) return false;
        k->taps *= from.axis[a].taps;
        k->groups *= k->axis[a].groups;
    }
    return true;
}

/* With a window of one and stride 1 all positions become one axis. */
void join_axes(const IgemmParams *p, ResidueClass *k, Dims *extent)
{
    for (int a = 0; a < 3; a++) {
        const ConvAxis &x = k->axis[a];
        if (p->taps[a] != 1 || x.step != 1 || x.out_step != 1 || x.base != 0 ||
            x.size != x.count)
            return;
    }
    k->axis[0].count = k->axis[0].size = 1;
    k->axis[1].count = k->axis[1].size = 1;
    k->axis[2].count = k->axis[2].size = k->positions;
    *extent = {1, 1, 1, k->positions, extent->c};
}

/* Shared memory of a block in the main loop: halos and their row tables, filter
 * tiles, tap table. */
template <bool DGRAD>
size_t shared_of(const IgemmTileParams<DGRAD> &p, int classes, int bn)
{
    int groups = 0, taps = 0;
    for (int i = 0; i < classes; i++) {
        groups = (int)most(groups, p.cls[i].groups);
        taps = (int)most(taps, p.cls[i].taps);
    }
    return (size_t)p.rows *
               (size_t)(p.buffers * p.layers * TILE_ROW + groups * 4) +
           (size_t)(gpu_limits()->copy_stages * bn * TILE_ROW) +
           (size_t)taps * 4;
}

/* Divides the classes into boxes of extents p->box. Returns the cost of the
 * launch: halo rows that are loaded, plus tile rows times taps. */
template <bool DGRAD>
int64_t lay_boxes(IgemmTileParams<DGRAD> *p, int classes, int bm,
                  const int (&reach)[3])
{
    p->samples = bm >> p->box[0] >> p->box[1] >> p->box[2];
    p->rows = p->samples;
    for (int a = 0; a < 3; a++) {
        const int halo = (1 << p->box[a]) + reach[a];
        p->halo[a] = divisor(halo);
        p->rows = (int)least((int64_t)p->rows * halo, INT32_MAX >> 8);
    }

    int64_t cost = 0;
    for (int i = 0; i < classes; i++) {
        auto &k = p->cls[i];
        int64_t blocks = ceil_div(p->extent.n, p->samples);
        for (int a = 0; a < 3; a++) {
            const int64_t boxes = ceil_div(k.axis[a].count, 1 << p->box[a]);
            k.boxes[a] = divisor(most(1, boxes));
            blocks *= boxes;
        }
        k.blocks = (int)blocks;
        k.first = i ? p->cls[i - 1].first + p->cls[i - 1].blocks : 0;
        cost +=
            blocks * (1 + (int64_t)bm * k.taps + (int64_t)p->rows * k.groups);
    }
    return p->box[2] < 3 ? cost + cost / 16 : cost; // bank conflicts
}

/* Chooses the cheapest box; false: no halo fits in shared memory. */
template <bool DGRAD>
bool choose_boxes(IgemmTileParams<DGRAD> *p, int classes, const GemmTile &tile)
{
    const size_t two = (size_t)gpu_limits()->shared_of_two;
    int reach[3] = {}, far[3] = {}, best[3] = {}, log = 0;
    int64_t least_cost = 0;
    while (1 << log < tile.bm) log++;

    for (int i = 0; i < classes; i++)
        for (int a = 0; a < 3; a++) {
            const auto &x = p->cls[i].axis[a];
            for (int g = 0; g < x.groups; g++)
                reach[a] = (int)most(reach[a], x.group[g].reach);
            // at most half of a box lies past the end of an axis
            while (far[a] < log && 1 << far[a] < x.count) far[a]++;
        }

    for (int d = 0; d <= far[0]; d++)
        for (int h = 0; h <= far[1] && d + h <= log; h++)
            for (int w = 0; w <= far[2] && d + h + w <= log; w++) {
                p->box[0] = d, p->box[1] = h, p->box[2] = w;
                int64_t cost = lay_boxes(p, classes, tile.bm, reach);
                const size_t bytes = shared_of(*p, classes, tile.bn);
                if (!gpu_fits((int64_t)bytes)) continue;
                if (bytes > two) cost += cost / 4;
                if (least_cost && cost > least_cost) continue;
                least_cost = cost;
                best[0] = d, best[1] = h, best[2] = w;
            }

    memcpy(p->box, best, sizeof best);
    lay_boxes(p, classes, tile.bm, reach);
    return least_cost > 0;
}

// -- launching ---------------------------------------------------------------

/* Sets the arguments of a launch of these classes, without addresses. False: no
 * tile is as requested, or no halo fits. */
template <bool DGRAD>
bool igemm_tile_params_of(const ConvProblem *r, const IgemmParams *p,
                          int classes, GemmTile *tile,
                          IgemmTileParams<DGRAD> *t)
{
    *t = {};
    if (!tile->bm) return false;
    t->result_c = (int)p->result_c, t->result_border = p->result_border;
    t->border = t->pitch[0] = p->border;
    t->pitch[1] = (int)p->source_c - p->border;
    t->k_channels = p->k_channels, t->gemm_n = p->gemm_n, t->extent = p->extent;
    t->chunks = chunks_of(p->k_channels), t->k_slices = tile->k_slices;
    memcpy(t->taps, p->taps, sizeof t->taps);
    t->ahead = 1;

    for (int i = 0; i < classes; i++) {
        ResidueClass k = p->cls[i];
        if (classes == 1) join_axes(p, &k, &t->extent);
        if (!class_of(k, &t->cls[i])) return false;
        t->ahead = (int)most(t->ahead, ahead_of(t->cls[i]));
    }

    t->buffers = t->ahead + 1, t->layers = p->loads_norm_bwd ? 2 : 1;
    if (p->loads_norm_bwd && !owns_all(t->cls[0], DGRAD ? r->output : r->input))
        return false;
    if (!choose_boxes(t, classes, *tile)) {
        tile->bm = tile->bn = 64; // the smallest halo
        if (!choose_boxes(t, classes, *tile)) return false;
    }
    t->tiles = (int)ceil_div(t->gemm_n, tile->bn);
    return t->tiles * r->win.groups <= UINT16_MAX;
}

template <bool DGRAD>
bool queue(const ConvProblem *r, const IgemmParams *p, int classes,
           GemmTile tile, bool *done)
{
    IgemmTileParams<DGRAD> t;
    *done = igemm_tile_params_of(r, p, classes, &tile, &t);
    if (!*done) return true;
    t.source = p->source, t.norm_on_load = p->norm_on_load, t.sums = p->sums;
    t.norm_bwd = p->norm_bwd;
    t.second = p->second, t.second_result = p->second_result;
    t.w = p->w, t.bias = p->bias, t.result = p->result;
    taken = number_of(tile);
    int parts = 1;

    if (tile.split_k) {
        parts = tile.k_slices;
        t.part_stride = numel(DGRAD ? r->input : r->output);
        t.result = {r->c->scratch, F32, true};
        t.bias = NULL, t.result_border = t.result_c;
        moves(conv_operand_bytes(r, numel(DGRAD ? r->output : r->input) +
                                        conv_filter_size(r)) +
                  target_traffic(t.result, t.part_stride * parts),
              conv_flops(r));
    }

    int blocks = 0;
    for (int i = 0; i < classes; i++)
        blocks = (int)most(blocks, t.cls[i].blocks);
    dim3 launch_grid((unsigned)blocks, (unsigned)(t.tiles * r->win.groups),
                     (unsigned)(classes * parts));
    channel_sums_columns(r->c, (int)launch_grid.y, &t.sums);
    const size_t epilogue =
        tile_transpose_bytes(tile.bm, tile.bn) +
        (t.sums.parts ? tile_sum_bytes(tile.bm, tile.bn) : 0);
    const size_t shared =
        most((int64_t)shared_of(t, classes, tile.bn), (int64_t)epilogue);
    const bool ok =
        r->c->precision == PRECISION_bf16
            ? igemm_tile_launch<PRECISION_bf16>(r, tile, t, launch_grid, shared)
            : igemm_tile_launch<PRECISION_f16>(r, tile, t, launch_grid, shared);
    if (!ok || !tile.split_k) return ok;
    const Dims to = DGRAD ? r->input : r->output;
    Result all = {};
    all.first = p->result, all.second = p->second_result;
    all.border = p->result_border < to.c ? p->result_border : 0;
    return split_k_sum(r->c, (const float *)r->c->scratch, parts, to, p->bias,
                       all);
}

} // namespace

bool igemm_tile_takes(const ConvProblem *r)
{
    // TapEntry has 15 bits for a tap, and the taps of a chunk are one chain
    return precision_copy(r->c->precision) != F32 &&
           r->cin % TILE_CHANNELS == 0 && r->cout % TILE_CHANNELS == 0 &&
           conv_taps(r) <= CHAIN / 2;
}

size_t igemm_tile_bytes(const ConvProblem *r, bool dgrad)
{
    const GemmTile tile = gemm_tile_of(r, dgrad);
    const Dims to = dgrad ? r->input : r->output;
    return tile.split_k ? (size_t)(numel(to) * tile.k_slices) * sizeof(float)
                        : 0;
}

bool igemm_tile_run(const ConvProblem *r, const IgemmParams *p, int classes,
                    bool *done)
{
    const GemmTile tile = gemm_tile_of(r, p->dgrad);
    taken = TILE_NONE;
    return p->dgrad ? queue<true>(r, p, classes, tile, done)
                    : queue<false>(r, p, classes, tile, done);
}

template <bool DGRAD>
static IgemmTileFit fit(const ConvProblem *r, const IgemmParams *p, int classes)
{
    IgemmTileFit f = {};
    GemmTile tile = gemm_tile_of(r, DGRAD);
    IgemmTileParams<DGRAD> t;
    if (!igemm_tile_params_of(r, p, classes, &tile, &t)) return f;
    f.number = number_of(tile);
    const auto &last = t.cls[classes - 1];
    if (!tile.split_k && t.tiles * r->win.groups <= GPU_COUNTERS)
        f.sum_parts = last.first + last.blocks;
    return f;
}

IgemmTileFit igemm_tile_fit(const ConvProblem *r, const IgemmParams *p,
                            int classes)
{
    return p->dgrad ? fit<true>(r, p, classes) : fit<false>(r, p, classes);
}

extern "C" bool igemm_tile_wanted(void)
{
    return requested > 0;
}

extern "C" void igemm_tile_want(int number)
{
    requested = number;
}

extern "C" int igemm_tile_taken(void)
{
    const int was = taken;
    taken = TILE_NONE;
    return was;
}

extern "C" int igemm_tile_count(void)
{
    return 2 * TILE_KINDS;
}

extern "C" const char *igemm_tile_name(int number)
{
    static __thread char text[32];
    if (number < 1 || number > igemm_tile_count()) return "none";
    const auto &t = TILES[(number - 1) % TILE_KINDS];
    snprintf(text, sizeof text, "%dx%d%s", t.bm, t.bn,
             number > TILE_KINDS ? "-split" : "");
    return text;
}

extern "C" const char *igemm_tile_listed(int number)
{
    return number < 1 || number > igemm_tile_count() ? NULL
                                                     : igemm_tile_name(number);
}
