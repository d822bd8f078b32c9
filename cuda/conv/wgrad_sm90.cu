/* wgrad_sm90.cu -- see wgrad_sm90.cuh. */
#include "cuda/conv/sm90_host.cuh"
#include "cuda/conv/sm90_norm.cuh"
#include "cuda/conv/wgrad_sm90.cuh"
#include "cuda/lib/grad_sqnorm.cuh"

namespace {

enum {
    BOX = 256,                // positions of a box
    A_BYTES = BOX * SM90_ROW, // of 64 channels of `output`
    STEPS = BOX / 16,         // products of a box
    FOLD_THREADS = 256,
    MOST_BUFFERS = 4,
    THIN = 16, // channels of a row of a thin operand
};

struct WgradParams90 {
    TensorMap a[2], b[2 * SM90_CLASSES]; // [tensor], [tensor * classes + class]
    NormOnLoad a_norm[2], b_norm[2];
    Sm90Side a_side, b_side;
    Sm90Group group[SM90_GROUPS];
    Sm90Extent a_extent, b_extent[SM90_CLASSES];
    int b_classes;
    float4 *parts; // (splits, tiles, warpgroups, N / 8, 128)
    int boxes, splits;
    Divisor a_tiles, b_chunks; // a block's tile: (group, chunk of b, tile of a)
    Sm90Grid grid;
    int a_chunks; // 64-channel chunks of a tile
    int halo_h, pitch;
    int b_bytes, b_room, buffers;
    int b_offset;      // bytes, of pairs: to the first column
    int line;          // bytes: the same line of all planes
    uint32_t b_stride; // bytes of a line of the halo
};

/* WARPGROUPS multiply; they share the taps along h of a group (ROWS of them)
 * and the 64-channel chunks of `output`. B_ROW: bytes of a position of the
 * halo, 128 or 32. */
template <int N, int WARPGROUPS, int ROWS, int B_ROW, Dtype D>
__global__ void __launch_bounds__(128 + WARPGROUPS * 128, 1)
    wgrad_sm90_kernel(const __grid_constant__ WgradParams90 p)
{
    DYN_SMEM_1024(uint64_t, full);
    uint64_t *ready = full + MOST_BUFFERS, *empty = ready + MOST_BUFFERS;
    char *shared = (char *)full + SM90_BARRIERS;
    const int a_room = p.a_chunks * A_BYTES, room = a_room + p.b_room;

    if (threadIdx.x == 0) {
        for (int i = 0; i < p.buffers; i++) {
            mbarrier_init(full + i, 1);
            mbarrier_init(ready + i, SM90_NORM_WARPS);
            mbarrier_init(empty + i, 4 * WARPGROUPS);
        }
        fence_async_shared();
    }
    __syncthreads();

    const int tiles = (int)gridDim.x / p.splits;
    const int first = (int)blockIdx.x / tiles;
    const bool norms = p.a_norm[0].table || p.a_norm[1].table ||
                       p.b_norm[0].table || p.b_norm[1].table;
    const int warpgroup = (int)threadIdx.x / 128 - 1;

    if (warpgroup < 0) {
        uint32_t rest = blockIdx.x - (uint32_t)(first * tiles);
        const int ta = (int)split(&rest, p.a_tiles);
        const int chunk = (int)split(&rest, p.b_chunks);
        const Sm90Group g = p.group[rest];
        const Sm90Chunk b = sm90_chunk(p.b_side, chunk);

        if (threadIdx.x == 0) {
            Sm90Ring r = {0, 1};
            for (int i = first; i < p.boxes; i += p.splits, r.next(p.buffers)) {
                const Sm90Box s = sm90_box_at(p.grid, (uint32_t)i);
                char *to = shared + r.at * room;
                uint64_t *bar = full + r.at;
                mbarrier_wait(empty + r.at, r.phase);
                mbarrier_expect(bar, (uint32_t)(a_room + p.b_bytes));
                for (int k = 0; k < p.a_chunks; k++) {
                    const Sm90Chunk a =
                        sm90_chunk(p.a_side, ta * p.a_chunks + k);
                    tma_load(to + k * A_BYTES, &p.a[a.tensor], a.channel, s.w,
                             s.d, s.n, s.h, bar);
                }
                tma_load(to + a_room, &p.b[b.tensor * p.b_classes + g.map],
                         b.channel, s.w + g.w, s.d + g.d, s.n, s.h + g.h, bar);
            }
        } else if (norms && threadIdx.x >= WARP) {
            const Sm90Extent e = p.b_extent[g.map];
            Sm90Ring r = {0, 0};
            for (int i = first; i < p.boxes; i += p.splits, r.next(p.buffers)) {
                const Sm90Box s = sm90_box_at(p.grid, (uint32_t)i);
                char *at = shared + r.at * room;
                const Sm90Halo halo =
                    sm90_halo(s, p.grid, g, e, p.halo_h, p.pitch);
                const Sm90Halo box = sm90_halo(s, p.grid, {}, p.a_extent,
                                               p.grid.box_h, SM90_BOX_W);
                mbarrier_wait(full + r.at, r.phase);
                for (int k = 0; k < p.a_chunks; k++) {
                    const Sm90Chunk a =
                        sm90_chunk(p.a_side, ta * p.a_chunks + k);
                    sm90_norm_tile<D>(at + k * A_BYTES, box, p.a_norm[a.tensor],
                                      a.channel, p.a_side, a.tensor);
                }
                sm90_norm_tile<D>(at + a_room, halo, p.b_norm[b.tensor],
                                  b.channel, p.b_side, b.tensor);
                sm90_norm_done(ready + r.at);
            }
        }
        return;
    }

    uint64_t *seen = norms ? ready : full;
    const int row = warpgroup % ROWS; // the warpgroup's tap along h
    const uint64_t a0 = wgmma_descriptor(shared + warpgroup / ROWS * A_BYTES,
                                         A_BYTES, 1024, SWIZZLE_128);
    const uint64_t b0 =
        wgmma_descriptor(shared + a_room + row * p.line + p.b_offset, B_ROW,
                         p.b_stride, B_ROW == 32 ? SWIZZLE_32 : SWIZZLE_128);
    float d[N / 2];
    Sm90Ring r = {0, 0};
    int last = -1; // the buffer that products in flight read
    int i = first;
    do {
        mbarrier_wait(seen + r.at, r.phase);
        uint64_t a = wgmma_advance(a0, (uint32_t)(r.at * room));
        uint64_t b = wgmma_advance(b0, (uint32_t)(r.at * room));
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < STEPS; k++) {
            WgmmaProduct<N, D, true, true>::issue(d, a, b,
                                                  (last >= 0) | (k > 0));
            a = wgmma_advance(a, 16 * SM90_ROW);
            b = wgmma_advance(b, 2 * p.b_stride); // two lines on
        }
        wgmma_commit();
        wgmma_wait<1>();
        if (last >= 0 && threadIdx.x % WARP == 0)
            mbarrier_arrive(empty + last, 1);
        last = r.at;
        r.next(p.buffers);
    } while ((i += p.splits) < p.boxes);
    wgmma_wait<0>();

    float4 *to =
        p.parts +
        ((int64_t)blockIdx.x * WARPGROUPS + warpgroup) * (N / 8) * 128 +
        threadIdx.x % 128;
#pragma unroll
    for (int q = 0; q < N / 8; q++)
        to[q * 128] =
            make_float4(d[4 * q], d[4 * q + 1], d[4 * q + 2], d[4 * q + 3]);
}

/* Where the results of the tiles belong in dw. */
struct WgradFold {
    const float4 *parts;
    float *dw;
    bool fresh;
    double *sqnorm;     // a partial sum for each block, or NULL
    int splits, shares; // shares: threads that share the splits of a result
    int64_t pitch;      // float4 between splits
    int count;          // float4 of all tiles
    int rows;           // warpgroups by tap along h
    Divisor columns, warpgroups, a_tiles, b_chunks;
    int a_chunks;
    bool pairs; // the sums of both positions of a pair are added
    Sm90Side a_side, b_side;
    int64_t filter;            // elements of one filter: taps x cin
    int w_step, h_step;        // elements between taps along w, along h
    int group_at[SM90_GROUPS]; // elements to the group's first tap
};

struct Sum4 {
    double v[4];
};

__device__ __forceinline__ void add(Sum4 *s, float4 v)
{
    s->v[0] += (double)v.x, s->v[1] += (double)v.y;
    s->v[2] += (double)v.z, s->v[3] += (double)v.w;
}

__global__ void __launch_bounds__(FOLD_THREADS)
    wgrad_sm90_fold_kernel(const __grid_constant__ WgradFold f)
{
    SMEM(Sum4, sums, [FOLD_THREADS]);
    const int wide = FOLD_THREADS / f.shares;
    const int share = (int)threadIdx.x / wide;
    const int i = (int)blockIdx.x * wide + (int)threadIdx.x % wide;
    const int lane = i % 128;
    const int q = (int)((uint32_t)i / 128 -
                        quotient((uint32_t)i / 128, f.columns) * f.columns.by);
    // row m and column n of the first position of a pair, and row m + 32 and
    // column n + 32 of the second, are the same element of dw
    const bool inside = i < f.count && (!f.pairs || (lane < 64 && q < 12));
    enum { SECOND = 64 + 4 * 128 };
    double own = 0;
    Sum4 s = {};
    if (inside) {
        const int from = f.splits * share / f.shares;
        const int to = f.splits * (share + 1) / f.shares;
        const float4 *at = f.parts + i;
#pragma unroll 4
        for (int k = from; k < to; k++) {
            add(&s, at[k * f.pitch]);
            if (f.pairs) add(&s, at[k * f.pitch + SECOND]);
        }
    }
    sums[threadIdx.x] = s;
    __syncthreads();
    if (inside && !share) {
        for (int k = 1; k < f.shares; k++) {
            const Sum4 &v = sums[k * wide + (int)threadIdx.x];
            for (int j = 0; j < 4; j++) s.v[j] += v.v[j];
        }
        uint32_t rest = (uint32_t)i / 128;
        rest = quotient(rest, f.columns);
        const int warpgroup = (int)split(&rest, f.warpgroups);
        const int ta = (int)split(&rest, f.a_tiles);
        const int chunk = (int)split(&rest, f.b_chunks);
        const Sm90Chunk a =
            sm90_chunk(f.a_side, ta * f.a_chunks + warpgroup / f.rows);
        const Sm90Chunk b = sm90_chunk(f.b_side, chunk);
        const int m = lane / 32 * 16 + lane % 32 / 4;
        const int n = q * 8 + lane % 4 * 2, channel = n % f.b_side.size;
        float *to = f.dw + (a.all + m) * f.filter + f.group_at[rest] +
                    warpgroup % f.rows * f.h_step +
                    n / f.b_side.size * f.w_step + b.all + channel;
        // beyond the channels of a tensor the products are of padding
        const int there =
            min(2, f.b_side.channels[b.tensor] - b.channel - channel);
        const int left = f.a_side.channels[a.tensor] - a.channel;
#pragma unroll
        for (int j = 0; j < 2; j++, to += 8 * f.filter)
#pragma unroll
            for (int k = 0; k < 2; k++) {
                if (k >= there || m + 8 * j >= left) continue;
                put(to + k, (float)s.v[2 * j + k], f.fresh);
                own += square_of(to[k]);
            }
    }
    if (f.sqnorm) store_sqnorm(own, f.sqnorm + blockIdx.x);
}

/* Positions with two tensors of a and b channels to rows of THIN channels, 32
 * bytes, the last ones zero; a position a thread. Bound by memory. */
__global__ void __launch_bounds__(BLOCK)
    pad_channels_kernel(const uint16_t *first, const uint16_t *second, int a,
                        int b, int64_t count, uint16_t *to)
{
    EACH(i, count)
    {
        uint32_t v[THIN / 2] = {};
#pragma unroll
        for (int c = 0; c < THIN; c++) {
            uint32_t x = 0;
            if (c < a)
                x = first[i * a + c];
            else if (c < a + b)
                x = second[i * b + c - a];
            v[c / 2] |= x << c % 2 * 16;
        }
        uint4 *row = (uint4 *)(to + i * THIN);
        row[0] = make_uint4(v[0], v[1], v[2], v[3]);
        row[1] = make_uint4(v[4], v[5], v[6], v[7]);
    }
}

/* The extents of a run. */
struct Shape90 {
    Sm90Boxes boxes;
    bool pairs, thin;
    size_t padded_bytes;                    // of a thin operand's copy
    int gemm_n, rows, a_chunks, warpgroups; // gemm_n: columns of a product
    int tiles, a_tiles, splits, shares, fold_blocks, count;
};

struct Sides {
    Sm90Side a, b;
};

Sides sides_of(const ConvProblem *r, const Shape90 &s)
{
    const int size = s.pairs ? 32 : SM90_CHANNELS;
    return {sm90_side(sm90_border(r, false), r->cout, size),
            s.thin ? sm90_side(0, r->cin, THIN)
                   : sm90_side(sm90_border(r, true), r->cin, size)};
}

/* False: the family does not take the problem. */
bool shape_of(const ConvProblem *r, Shape90 *s)
{
    *s = {};
    s->pairs = sm90_takes_pairs(r), s->thin = sm90_takes_thin(r);
    if (!(s->pairs || s->thin || sm90_takes(r)) ||
        !sm90_boxes_of(r, false, s->pairs, &s->boxes))
        return false;
    const Sm90Taps *taps = &s->boxes.taps;
    const Sides sides = sides_of(r, *s);
    const Sm90Side out = sides.a, in = sides.b;
    // the same number of taps in all groups
    const int columns = taps->span_w + 1;
    s->rows = taps->span_h + 1;
    for (int i = 0; i < taps->groups; i++)
        if (taps->group[i].count != columns * s->rows) return false;
    if (s->rows == 3 && (s->pairs || columns == 3))
        s->a_chunks = 1;
    else if (s->thin && s->rows == 2 && columns == 2)
        s->a_chunks = 1;
    else if (s->rows == 2 && columns == 2 && out.chunks % 2 == 0)
        s->a_chunks = 2;
    else
        return false;
    // the four positions around a pair, of 32 channels each
    s->gemm_n = s->pairs ? 128 : columns * in.size;
    s->warpgroups = s->rows * s->a_chunks;
    if (s->thin) s->padded_bytes = (size_t)rows(r->input) * 2 * THIN;
    s->a_tiles = out.chunks / s->a_chunks;
    s->tiles = s->a_tiles * in.chunks * taps->groups;
    s->splits = (int)most(1, least(SM90_PROCESSORS / s->tiles, s->boxes.count));
    s->count = s->tiles * s->warpgroups * s->gemm_n / 8 * 128;
    s->shares = s->splits >= 32 ? 8 : s->splits >= 8 ? 4 : 1;
    s->fold_blocks = (int)ceil_div(s->count, FOLD_THREADS / s->shares);
    return true;
}

template <int N, int WARPGROUPS, int ROWS, int B_ROW, Dtype D>
bool launch_as(const ConvProblem *r, const WgradParams90 &p, int blocks,
               size_t shared)
{
    const auto kernel = wgrad_sm90_kernel<N, WARPGROUPS, ROWS, B_ROW, D>;
    if (!gpu_allows(kernel, SM90_SHARED_MOST)) return false;
    LAUNCH((wgrad_sm90_kernel<N, WARPGROUPS, ROWS, B_ROW, D>), (unsigned)blocks,
           128 + WARPGROUPS * 128, shared, gpu_stream(r->c->dev), p);
    return gpu_launched("wgrad_sm90");
}

template <Dtype D>
bool launch(const ConvProblem *r, const Shape90 &s, const WgradParams90 &p,
            int blocks, size_t shared)
{
    if (s.thin && s.rows == 3)
        return launch_as<48, 3, 3, 32, D>(r, p, blocks, shared);
    if (s.thin) return launch_as<32, 2, 2, 32, D>(r, p, blocks, shared);
    if (s.pairs) return launch_as<128, 3, 3, 128, D>(r, p, blocks, shared);
    if (s.rows == 3) return launch_as<192, 3, 3, 128, D>(r, p, blocks, shared);
    return launch_as<128, 4, 2, 128, D>(r, p, blocks, shared);
}

/* Queues the copy of the input with rows of THIN channels, the last ones zero.
 */
bool pad_channels(const ConvProblem *r, const Source &input, void *to)
{
    const int first = input.border ? input.border : r->cin;
    const int64_t count = rows(r->input);
    moves((double)count * 2 * (r->cin + THIN));
    LAUNCH(pad_channels_kernel, blocks_for(count), BLOCK, 0,
           gpu_stream(r->c->dev), (const uint16_t *)input.first.data,
           (const uint16_t *)input.second.data, first, r->cin - first, count,
           (uint16_t *)to);
    return gpu_launched("wgrad_sm90, padding");
}

} // namespace

WgradSm90Fit wgrad_sm90_fit(const ConvProblem *r)
{
    Shape90 s;
    WgradSm90Fit f = {};
    f.takes = shape_of(r, &s);
    if (!f.takes) return f;
    f.workspace =
        s.padded_bytes + (size_t)s.splits * (size_t)s.count * sizeof(float4);
    f.sqnorm_parts = s.fold_blocks;
    return f;
}

bool wgrad_sm90_run(const ConvProblem *r, const Source &input,
                    const Source &output, float *dw, bool fresh, double *sqnorm,
                    void *workspace)
{
    Shape90 s;
    WgradParams90 p = {};
    WgradFold f = {};
    const Window *g = &r->win;
    const Dtype type = precision_copy(r->c->precision);
    if (!countable(r->c, rows(r->output))) return false;
    CHECK(shape_of(r, &s));
    const Sm90Boxes &boxes = s.boxes;
    const Sm90Taps &taps = boxes.taps;
    const Sides sides = sides_of(r, s);
    const int row = s.thin ? 2 * THIN : SM90_ROW; // bytes of a row of the halo
    Source from = input;
    if (s.thin) {
        if (!pad_channels(r, input, workspace)) return false;
        from = {}, from.first.data = workspace;
        workspace = (char *)workspace + s.padded_bytes;
    }

    p.parts = (float4 *)workspace, p.boxes = boxes.count, p.splits = s.splits;
    p.a_tiles = divisor(s.a_tiles);
    p.grid = boxes.grid;
    p.a_chunks = s.a_chunks;
    p.pitch = boxes.pitch, p.halo_h = boxes.halo_h;
    p.b_bytes = sm90_halo_bytes(&boxes, row);
    p.b_room = (int)ceil_div(p.b_bytes, 1024) * 1024;
    p.b_stride = (uint32_t)(p.pitch * row);
    memcpy(p.group, taps.group, sizeof p.group);
    p.b_offset = s.pairs ? SM90_ROW / 2 : 0;
    p.line = (int)p.b_stride * sm90_planes(p.grid);
    p.b_classes = taps.source_classes;

    const int room = p.a_chunks * A_BYTES + p.b_room;
    p.buffers =
        (int)least(MOST_BUFFERS, (SM90_SHARED_MOST - SM90_BARRIERS) / room);
    const size_t shared = (size_t)(SM90_BARRIERS + p.buffers * room);

    p.a_norm[0] = output.first.norm_on_load;
    p.a_norm[1] = output.second.norm_on_load;
    p.b_norm[0] = from.first.norm_on_load;
    p.b_norm[1] = from.second.norm_on_load;
    const int one[3] = {1, 1, 1}, none[3] = {};
    p.a_side = sides.a, p.b_side = sides.b;
    p.b_chunks = divisor(p.b_side.chunks);
    for (int t = 0; t < 2; t++) {
        const Operand &a = t ? output.second : output.first;
        const Operand &b = t ? from.second : from.first;
        if (a.data && !sm90_map(a.data, type, sm90_part(p.a_side, r->output, t),
                                one, none, p.grid, SM90_BOX_W, p.grid.box_h,
                                &p.a[t], &p.a_extent))
            return false;
        for (int k = 0; b.data && k < taps.source_classes; k++) {
            Dims part = sm90_part(p.b_side, r->input, t);
            if (s.thin) part.c = THIN;
            if (!sm90_map(b.data, type, part, g->s, taps.residue[k], p.grid,
                          p.pitch, p.halo_h, &p.b[t * taps.source_classes + k],
                          &p.b_extent[k], row / 2))
                return false;
        }
    }

    moves(conv_operand_bytes(r, numel(r->output) + numel(r->input)) +
              (double)s.splits * s.count * sizeof(float4),
          conv_flops(r));
    const int blocks = s.tiles * s.splits;
    const bool ok = type == BF16 ? launch<BF16>(r, s, p, blocks, shared)
                                 : launch<F16>(r, s, p, blocks, shared);
    if (!ok) return false;

    f.parts = p.parts, f.dw = dw, f.fresh = fresh, f.sqnorm = sqnorm;
    f.splits = s.splits, f.shares = s.shares, f.pitch = s.count;
    f.count = s.count, f.rows = s.rows, f.pairs = s.pairs;
    f.columns = divisor(s.gemm_n / 8), f.warpgroups = divisor(s.warpgroups);
    f.a_tiles = p.a_tiles, f.b_chunks = p.b_chunks, f.a_chunks = s.a_chunks;
    f.a_side = p.a_side, f.b_side = p.b_side;
    f.filter = (int64_t)g->k[0] * g->k[1] * g->k[2] * r->cin;
    f.w_step = g->s[2] * r->cin, f.h_step = g->s[1] * g->k[2] * r->cin;
    for (int i = 0; i < taps.groups; i++)
        f.group_at[i] = taps.tap[taps.group[i].first].filter *
                        (s.pairs ? g->k[2] : 1) * r->cin;
    moves((double)s.splits * s.count * sizeof(float4) +
          (double)conv_filter_size(r) * sizeof(float) * (fresh ? 1 : 2));
    LAUNCH(wgrad_sm90_fold_kernel, (unsigned)s.fold_blocks, FOLD_THREADS, 0,
           gpu_stream(r->c->dev), f);
    return gpu_launched("wgrad_sm90, sum of split-K");
}
