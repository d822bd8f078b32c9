/* igemm_sm90.cu -- the choice and the launch of igemm_sm90.cuh; the kernels of
 * 16 bits. */
#include "cuda/conv/igemm_sm90_kernel.cuh"
#include "cuda/conv/igemm_tile_choice.h"
#include "cuda/conv/sm90_host.cuh"
#include "cuda/conv/split_k.cuh"

namespace {

enum {
    LEAST_SLOTS = 3, // so that a stage of filters arrives in time
    FEW_TILES = 32,  // of a sample: too few blocks for a GPU
    MOST_TILES = 128,
    LEAST_STAGES = 64, // worth a block: 33,000 cycles or more
};

/* Sets tiles, halos and filter stages: as many of the latter two as shared
 * memory holds. narrow_tiles: of 64 channels. */
template <Sm90Way WAY, Dtype D>
bool place(IgemmSm90Params *p, int narrow_tiles, int stages)
{
    typedef Sm90Shape<WAY, D> Shape;
    p->tiles = narrow_tiles / Shape::FILTERS;
    p->filter_tiles = divisor(p->to.chunks / Shape::FILTERS);
    const int room =
        SM90_SHARED_MOST - 2 * Shape::ROOM - SM90_BARRIERS - SM90_BOX_SUMS;
    p->resident = !Shape::SHARED && p->filter_tiles.by == 1 &&
                  p->slices.by == 1 && p->classes.by == 1 &&
                  stages <= SM90_SLOTS &&
                  stages * Shape::STAGE + 3 * p->halo_room <= room;
    const int least_slots = p->resident ? stages : LEAST_SLOTS;
    p->buffers = (int)least(SM90_BUFFERS,
                            (room - least_slots * Shape::STAGE) / p->halo_room);
    p->slots = p->resident
                   ? stages
                   : (int)least(SM90_SLOTS, (room - p->buffers * p->halo_room) /
                                                Shape::STAGE);
    return p->buffers >= 2;
}

/* 16-bit types have the same place. */
bool place(Sm90Way way, bool tf32, IgemmSm90Params *p, int tiles, int stages)
{
    if (way == SM90_PAIR) return place<SM90_PAIR, BF16>(p, tiles, stages);
    if (way == SM90_NARROW)
        return tf32 ? place<SM90_NARROW, F32>(p, tiles, stages)
                    : place<SM90_NARROW, BF16>(p, tiles, stages);
    return tf32 ? place<SM90_WIDE, F32>(p, tiles, stages)
                : place<SM90_WIDE, BF16>(p, tiles, stages);
}

/* The slices of a tile's halos. Follows from the extents of one sample. */
int slices_of(Dims result, int chunks, const Sm90Taps *taps, int from_chunks)
{
    int halos = taps->cls[0].count, stages = 0;
    for (int i = 0; i < taps->result_classes; i++) {
        const Sm90Class c = taps->cls[i];
        int count = 0;
        for (int k = 0; k < c.count; k++)
            count += taps->group[c.first + k].count;
        halos = (int)least(halos, c.count), stages = (int)most(stages, count);
    }
    result.n = 1;
    const int64_t tiles =
        ceil_div(positions(result), SM90_BOX) * chunks * taps->result_classes;
    if (tiles > FEW_TILES) return 1;
    return (int)most(
        1, least(least(MOST_TILES / tiles, stages * from_chunks / LEAST_STAGES),
                 halos * from_chunks));
}

/* Sets groups and taps. Returns the number of taps: for pairs, four source
 * positions for each tap along d and h. */
int set_taps(const Sm90Taps *from, bool pairs, IgemmSm90Params *p)
{
    const int planes = sm90_planes(p->grid);
    int count = 0;
    memcpy(p->cls, from->cls, sizeof p->cls);
    memcpy(p->group, from->group, sizeof p->group);
    for (int i = 0; i < from->groups; i++) {
        Sm90Group *g = &p->group[i];
        const int first = g->first, taps = g->count;
        g->first = (uint8_t)count;
        for (int k = first; k < first + taps; k++)
            for (int w = 0; w < (pairs ? 4 : 1); w++) {
                const int row =
                    from->tap[k].h * planes * p->pitch + from->tap[k].w;
                // position 0 is the second of its pair, 64 bytes into the row
                const int bytes =
                    row * SM90_ROW + (pairs ? (w + 1) * SM90_ROW / 2 : 0);
                p->tap[count++] = {(uint16_t)(bytes / 16),
                                   (uint8_t)from->tap[k].filter, (uint8_t)w};
            }
        g->count = (uint8_t)(count - g->first);
    }
    return count;
}

/* Do tiles of 128 channels take no more time than twice as many of 64? They
 * read less, but may leave more multiprocessors idle at the end. The bits of a
 * result are the same. */
bool pays_wide(int64_t narrow_tiles, int processors)
{
    return 2 * ceil_div(narrow_tiles / 2, processors) <=
           ceil_div(narrow_tiles, processors);
}

/* A pass as the kernel runs it; in tf32 pairs of positions of a result of 32
 * channels are positions of 64 channels. */
struct Pass {
    ConvProblem r;
    bool dgrad, pairs_tf32;
};

Pass pass_of(const ConvProblem *r, bool dgrad)
{
    Pass p = {*r, dgrad, sm90_takes_pairs_tf32(r, dgrad)};
    if (!p.pairs_tf32) return p;
    ConvProblem *q = &p.r;
    Window *g = &q->win;
    if (dgrad) { // fprop with the window turned around
        q->input = r->output, q->output = r->input;
        q->cin = r->cout, q->cout = r->cin;
        for (int a = 0; a < 3; a++) g->lo[a] = g->k[a] - 1 - g->lo[a];
        p.dgrad = false;
    }
    q->output.w /= 2, q->output.c *= 2, q->cout *= 2;
    g->k[2]++, g->s[2] = 2;
    return p;
}

/* Everything but addresses, for a GPU of so many multiprocessors. False: the
 * family does not take the pass. */
bool params_of(const Pass &pass, int processors, Sm90Way *way, Sm90Boxes *boxes,
               IgemmSm90Params *p)
{
    const ConvProblem *r = &pass.r;
    const bool dgrad = pass.dgrad;
    const int channels = dgrad ? r->input.c : r->output.c;
    const bool tf32 = sm90_takes_tf32(r, dgrad), pairs = sm90_takes_pairs(r);
    if (igemm_tile_wanted() || !(tf32 || pairs || sm90_takes(r)) ||
        !sm90_boxes_of(r, dgrad, pairs, SM90_LINES, boxes))
        return false;
    const Sm90Taps *taps = &boxes->taps;
    const Dims to = boxes->result;
    if (taps->taps * (pairs ? 4 : 1) > SM90_TAPS) return false; // see set_taps
    p->grid = boxes->grid;
    p->pitch = boxes->pitch, p->halo_h = boxes->halo_h;
    p->from = sm90_side(sm90_border(r, !dgrad), dgrad ? r->cout : r->cin,
                        tf32    ? SM90_CHANNELS_F32
                        : pairs ? 32
                                : SM90_CHANNELS);
    p->to =
        sm90_side(sm90_border(r, dgrad), channels, pairs ? 32 : SM90_CHANNELS);
    // a load of fprop's filter has neighbouring channels, across both tensors
    if (!pairs && !dgrad && p->to.channels[1] &&
        p->to.channels[0] % SM90_CHANNELS)
        return false;
    p->halo_bytes = sm90_halo_bytes(boxes, SM90_ROW);
    p->halo_room = (int)ceil_div(p->halo_bytes, 1024) * 1024;
    p->channels = pass.pairs_tf32 ? channels / 2 : channels;
    p->classes = divisor(taps->result_classes);
    p->chunks = divisor(p->from.chunks);
    // see split_k_sum
    const bool splits = !pairs && !pass.pairs_tf32 && channels % 8 == 0;
    p->slices =
        divisor(splits ? slices_of(to, p->to.chunks, taps, p->from.chunks) : 1);
    p->result = {to.w, to.h, to.d, to.n};
    const int64_t narrow_tiles =
        (int64_t)p->to.chunks * p->slices.by * p->classes.by * boxes->count;
    if (narrow_tiles > INT32_MAX / 2) return false;
    const int stages = set_taps(taps, pairs, p) * p->from.chunks;
    *way = SM90_WIDE;
    if (!pairs && p->to.chunks % 2 == 0 &&
        pays_wide(narrow_tiles, processors) &&
        place(*way, tf32, p, (int)narrow_tiles, stages))
        return true;
    *way = pairs ? SM90_PAIR : SM90_NARROW;
    return place(*way, tf32, p, (int)narrow_tiles, stages);
}

template <Sm90Way WAY, Dtype D, bool DGRAD>
bool launch(const ConvProblem *r, const IgemmSm90Params &p, int blocks)
{
    if (!p.sums)
        return igemm_sm90_queue<WAY, D, DGRAD, SM90_NO_SUMS>(r, p, blocks);
    return p.grads[0].runs || p.grads[1].runs
               ? igemm_sm90_queue<WAY, D, DGRAD, SM90_GRAD_SUMS>(r, p, blocks)
               : igemm_sm90_queue<WAY, D, DGRAD, SM90_Y_SUMS>(r, p, blocks);
}

template <Sm90Way WAY, Dtype D>
bool launch(const ConvProblem *r, bool dgrad, const IgemmSm90Params &p,
            int blocks)
{
    return dgrad ? launch<WAY, D, true>(r, p, blocks)
                 : launch<WAY, D, false>(r, p, blocks);
}

template <Dtype D>
bool launch(const ConvProblem *r, bool dgrad, Sm90Way way,
            const IgemmSm90Params &p, int blocks)
{
    return way == SM90_WIDE     ? launch<SM90_WIDE, D>(r, dgrad, p, blocks)
           : way == SM90_NARROW ? launch<SM90_NARROW, D>(r, dgrad, p, blocks)
                                : launch<SM90_PAIR, D>(r, dgrad, p, blocks);
}

/* The filter (cout, taps, cin) as a tensor map. A box is 64 channels of the
 * input by, in fprop, the output channels of a tile; in dgrad by 64 output
 * channels, loaded once for each 64 of the tile. For pairs (cout, kd x kh, kw,
 * cin): 32 by 32 channels of one tap. */
bool filter_map(const ConvProblem *r, bool dgrad, Sm90Way way, const void *w,
                Dtype type, TensorMap *out)
{
    const Window *g = &r->win;
    const int taps = (int)conv_taps(r), wide = g->k[2];
    const int64_t row = (int64_t)r->cin * 2;
    TensorMapSpec m = {};
    m.data = w, m.type = type;
    m.extent[0] = r->cin, m.extent[4] = 1, m.stride[1] = row;
    m.stride[4] = row * taps * r->cout;
    m.box[1] = m.box[2] = m.box[3] = m.box[4] = 1;
    if (way == SM90_PAIR) {
        m.extent[1] = wide, m.extent[2] = taps / wide, m.extent[3] = r->cout;
        m.stride[2] = row * wide, m.stride[3] = row * taps;
        m.box[0] = m.box[3] = 32, m.swizzle = 64;
    } else {
        m.extent[1] = taps, m.extent[2] = r->cout, m.extent[3] = 1;
        m.stride[2] = row * taps, m.stride[3] = m.stride[4];
        m.box[0] = 64, m.box[2] = !dgrad && way == SM90_WIDE ? 128 : 64;
        m.swizzle = SM90_ROW;
    }
    return tensor_map_encode(&m, out);
}

/* The same of the copy for tf32 (result channels, taps, source channels): 32
 * source channels of one tap. */
bool filter_map_tf32(const IgemmSm90Params &p, int taps, Sm90Way way,
                     const void *w, TensorMap *out)
{
    const int from = p.from.channels[0], to = p.to.channels[0];
    TensorMapSpec m = {};
    m.data = w, m.type = F32;
    m.extent[0] = from, m.extent[1] = taps, m.extent[2] = to;
    m.extent[3] = m.extent[4] = 1;
    m.stride[1] = (int64_t)from * sizeof(float);
    m.stride[2] = m.stride[1] * taps;
    m.stride[3] = m.stride[4] = m.stride[2] * to;
    m.box[0] = SM90_CHANNELS_F32, m.box[2] = way == SM90_WIDE ? 128 : 64;
    m.box[1] = m.box[3] = m.box[4] = 1;
    m.swizzle = SM90_ROW;
    return tensor_map_encode(&m, out);
}

/* Bytes of the copy of the filter for tf32, in the workspace before the partial
 * sums of split-K. */
size_t filter_bytes(const ConvProblem *r)
{
    if (precision_copy(r->c->precision) != F32) return 0;
    return conv_aligned((size_t)conv_filter_size(r) * sizeof(float));
}

/* Rows of a type in memory as rows of shared memory: pairs of 16 bits have two
 * positions each. */
Dims part_of(Dtype type, const Sm90Side &side, Dims all, int tensor)
{
    if (type != F32) return sm90_part(side, all, tensor);
    all.c = side.channels[tensor];
    return all;
}

/* The number of maps: of two tensors of the source and of the result; and of
 * the operands of the deferred norms for gradient sums. */
int maps_of(const Sm90Taps &taps, bool grad_sums)
{
    return 2 * taps.source_classes +
           2 * taps.result_classes * (grad_sums ? 2 : 1);
}

/* Bytes that the results move, with the partial sums. */
double stored_bytes(const Result &to, Dims result)
{
    Result r = to;
    r.sums.parts = NULL; // read by a launch of their own
    return result_traffic(r, result) +
           (to.sums.parts ? (double)channel_sums_bytes(
                                to.sums.grid_reduce.parts, result.c)
                          : 0);
}

} // namespace

IgemmSm90Fit igemm_sm90_fit(const ConvProblem *r, bool dgrad)
{
    const Pass pass = pass_of(r, dgrad);
    IgemmSm90Fit f = {};
    Sm90Way way;
    Sm90Boxes boxes;
    IgemmSm90Params p = {};
    f.takes = params_of(pass, H100_PROCESSORS, &way, &boxes, &p);
    if (!f.takes) return f;
    f.workspace = filter_bytes(&pass.r);
    if (p.slices.by > 1)
        f.workspace += p.slices.by * sizeof(float) *
                       (size_t)numel(dgrad ? r->input : r->output);
    else if (precision_copy(r->c->precision) != F32)
        f.sum_parts =
            boxes.count * (int)p.classes.by * (way == SM90_PAIR ? 2 : 1);
    f.grad_sums = f.sum_parts && maps_of(boxes.taps, true) <= SM90_MAPS;
    return f;
}

bool igemm_sm90_run(const ConvProblem *asked, bool asked_dgrad,
                    const Source &from, const void *w, const float *bias,
                    const Result &to, void *workspace)
{
    const Pass pass = pass_of(asked, asked_dgrad);
    const ConvProblem *r = &pass.r;
    const bool dgrad = pass.dgrad;
    const Dtype type = precision_copy(r->c->precision);
    const Window *g = &r->win;
    const Dims source = dgrad ? r->output : r->input,
               result = dgrad ? r->input : r->output;
    Sm90Way way;
    Sm90Boxes boxes;
    IgemmSm90Params p = {};
    Sm90Extent extent;
    if (!countable(r->c, rows(source)) || !countable(r->c, rows(result)))
        return false;
    CHECK(params_of(pass, sm90_processors(r), &way, &boxes, &p));
    const Sm90Taps &taps = boxes.taps;

    const int one[3] = {1, 1, 1};
    p.source_maps = taps.source_classes, p.result_maps = taps.result_classes;
    p.result_map = 2 * p.source_maps;
    p.norm_map = p.result_map + 2 * p.result_maps;
    p.sums = to.sums.parts;
    p.grads[0] = to.sums.grads, p.grads[1] = to.sums.second;
    CHECK(maps_of(taps, p.grads[0].x || p.grads[1].x) <= SM90_MAPS);
    for (int t = 0; t < 2; t++) {
        const Operand &x = t ? from.second : from.first;
        const Target &y = t ? to.second : to.first;
        p.norm[t] = x.norm_on_load;
        p.skips[t] = !y.data, p.adds[t] = !y.fresh;
        for (int k = 0; x.data && k < p.source_maps; k++)
            if (!sm90_map(x.data, type, part_of(type, p.from, source, t),
                          dgrad ? one : g->s, taps.residue[dgrad ? 0 : k],
                          p.grid, p.pitch, p.halo_h,
                          &p.map[t * p.source_maps + k], &p.extent[k],
                          SM90_ROW / (int)dtype_bytes(type), r->position,
                          r->line))
                return false;
        if (type == F32) {
            p.y[t] = (float *)y.data;
            continue;
        }
        const void *const of[2] = {y.data, p.grads[t].x};
        for (int k = 0; k < 2 * p.result_maps; k++) {
            const int which = k / p.result_maps, cls = k % p.result_maps;
            const int first = which ? p.norm_map : p.result_map;
            if (of[which] &&
                !sm90_map(of[which], type, sm90_part(p.to, result, t),
                          dgrad ? g->s : one, taps.residue[dgrad ? cls : 0],
                          p.grid, SM90_BOX_W, p.grid.box_h,
                          &p.map[first + t * p.result_maps + cls], &extent))
                return false;
        }
    }
    if (type == F32) {
        if (!filter_map_tf32(p, (int)conv_taps(r), way, workspace, &p.filter) ||
            !igemm_sm90_round_filter(asked, asked_dgrad, pass.pairs_tf32,
                                     (const float *)w, (float *)workspace))
            return false;
    } else if (!filter_map(r, dgrad, way, w, type, &p.filter)) {
        return false;
    }
    p.bias = bias;
    const bool split = p.slices.by > 1;
    if (split) p.parts = (float *)((char *)workspace + filter_bytes(r));
    memcpy(p.stride, dgrad ? g->s : one, sizeof p.stride);
    memcpy(p.residue, taps.residue, sizeof p.residue);

    moves(conv_operand_bytes(asked, numel(source) + conv_filter_size(asked)) +
              (split ? (double)(p.slices.by * sizeof(float)) * numel(result)
                     : stored_bytes(to, result)),
          conv_flops(asked));
    const int blocks = (int)least(sm90_processors(r), p.tiles);
    return (type == F32    ? igemm_sm90_tf32(r, way, p, blocks)
            : type == BF16 ? launch<BF16>(r, dgrad, way, p, blocks)
                           : launch<F16>(r, dgrad, way, p, blocks)) &&
           (!split ||
            split_k_sum(r->c, p.parts, (int)p.slices.by, result, bias, to)) &&
           (!p.sums || !to.sums.ends || channel_sums_add(r->c, to.sums));
}
