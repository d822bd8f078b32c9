/* small_cin.cu -- fprop of convolutions with 5 to 15 input channels (except 8),
 * in 16 bits.
 *
 * With 11 channels no row begins at a multiple of 16 bytes, and a chunk of 32
 * channels as in igemm_tile.cu would be two thirds zeros. So positions are
 * padded to 16 channels in shared memory: one m16n8k16 step a tap. A block of
 * 256 threads computes a box of 128 positions by 64 filters; the halo of the
 * box stays in shared memory for all taps. The operands, one or two tensors,
 * are read in place: 4 bytes at a time, or 2 if the number of channels is odd.
 *
 * A launch before the kernel repacks the filter to the mma fragments of the
 * lanes, 16 bytes a lane and tap; they go through a ring of cp.async stages.
 * Column n of mma tile j is filter n/2 * 8 + 2j + n%2, so each lane ends with 8
 * neighbouring filters: one store of 16 bytes, and sums for a norm of the
 * stored values.
 *
 * In shared memory the positions of a line are sorted by their remainder by the
 * stride, so the eight positions that an ldmatrix reads for a tap are
 * neighbours. The two halves of a position swap places every four positions, so
 * an ldmatrix has no bank conflicts (boxes narrower than 8 have some).
 *
 * A warp of 32 x 32 reads 256 bytes of shared memory an mma. From L2 a block
 * reads its halo, 14 positions a result for a window of 4x4x4 and a stride of
 * 2, and the whole filter. Bound by shared memory; with 11 channels a third of
 * its reads are for products with zeros. */
#include "cuda/conv/igemm_tile.cuh"
#include "cuda/conv/small_cin.cuh"
#include "cuda/lib/precision_traits.cuh"

namespace {

enum {
    BOX = 7, // log2 of the positions of a block
    ROWS = 32,
    ACROSS = (1 << BOX) / ROWS,             // warps along the positions
    COLUMNS = 64,                           // filters of a block, 32 of a warp
    TILES = 4,                              // of 8 filters, in a warp
    STEP = SMALL_CIN_MAX,                   // of the k axis: one tap
    WORDS = STEP / 2,                       // of a position, in shared memory
    LINES = COLUMNS * STEP * 2 / TILE_LINE, // of the filter tile of a tap
    STAGE = 4,                              // taps between barriers
    RING = 3,                               // stages, one of them in use
    ENDS = CHAIN / STEP / STAGE,            // stages of a chain
};

/* One tensor of the operand; `first` is its first channel in the operand. */
struct ConcatOperand {
    const uint16_t *data;
    int channels, first;
};

/* The tiling of a problem; depends on extents only. */
struct Tiling {
    int box[3];      // log2 of a box's extents
    int64_t slots;   // positions of a halo, with gaps from the sorting
    int lines, wide; // lines of a halo's plane; positions of a line with one
                     // remainder by the stride
    int64_t blocks;
};

struct SmallCin {
    ConcatOperand side[2]; // a tensor without channels is absent
    const uint4 *w;
    const float *bias; // or NULL
    Target y;
    ChannelSums sums; // of y
    Window win;
    Dims input, output;
    int box[3];
    Divisor boxes[3];          // boxes along each axis of y
    Divisor line, plane, step; // slots, lines of the halo; stride along w
    int slots, wide;
    int filters, taps, stages;
};

/* The sample and first position of a box. */
struct BoxCoord {
    int n, from[3];
};

__device__ __forceinline__ BoxCoord box_coord(const SmallCin &p)
{
    BoxCoord s;
    uint32_t rest = blockIdx.x;
    for (int a = 2; a >= 0; a--)
        s.from[a] = (int)split(&rest, p.boxes[a]) << p.box[a];
    s.n = (int)rest;
    return s;
}

/* Position m of a box along each axis. */
__device__ __forceinline__ void position_in_box(const SmallCin &p, int m,
                                                int (&at)[3])
{
    at[2] = m & ((1 << p.box[2]) - 1);
    at[1] = m >> p.box[2] & ((1 << p.box[1]) - 1);
    at[0] = m >> p.box[2] >> p.box[1];
}

/* The row of y for position m of a box; -1: outside. */
__device__ __forceinline__ int row_of(const SmallCin &p, const BoxCoord &s,
                                      int m)
{
    int at[3];
    position_in_box(p, m, at);
    const int d = s.from[0] + at[0], h = s.from[1] + at[1];
    const int w = s.from[2] + at[2];
    const bool inside = d < p.output.d && h < p.output.h && w < p.output.w;
    return inside ? (int)row_at(p.output, s.n, d, h, w) : -1;
}

/* The slot of position w in line h, plane d of a halo. */
__device__ __forceinline__ int slot_of(const SmallCin &p, int d, int h, int w)
{
    uint32_t rest = (uint32_t)w;
    const int remainder = (int)split(&rest, p.step);
    return (d * (int)p.plane.by + h) * (int)p.line.by + remainder * p.wide +
           (int)rest;
}

/* The place of half a slot, in lines of 16 bytes. */
__device__ __forceinline__ int half_of(int slot, int half)
{
    return slot * 2 + (half ^ (slot >> 2 & 1));
}

/* Adds the channels of one tensor to a position in `to`, two channels a word.
 * All loads precede the first use. */
__device__ __forceinline__ void load_channels(const ConcatOperand &s,
                                              int64_t row,
                                              uint32_t (&to)[WORDS])
{
    const uint16_t *at = s.data + row * s.channels;
    uint32_t low[WORDS], high[WORDS];
#pragma unroll
    for (int j = 0; j < WORDS; j++) {
        const int c = 2 * (j - s.first / 2);
        low[j] = high[j] = 0;
        if (c < 0 || c >= s.channels) continue;
        if (s.channels % 2 == 0) {
            low[j] = *(const uint32_t *)(at + c);
        } else {
            low[j] = at[c];
            if (c + 1 < s.channels) high[j] = at[c + 1];
        }
    }

    uint32_t before = 0;
#pragma unroll
    for (int j = 0; j < WORDS; j++) {
        const uint32_t two = low[j] | high[j] << 16;
        to[j] |= s.first % 2 ? two << 16 | before >> 16 : two;
        before = two;
    }
}

/* Loads the halo of a box; zeros outside of the input. */
__device__ __forceinline__ void fill(const SmallCin &p, const BoxCoord &s,
                                     uint4 *halo)
{
    int first[3];
    for (int a = 0; a < 3; a++) first[a] = s.from[a] * p.win.s[a] - p.win.lo[a];
#pragma unroll 2
    for (int i = (int)threadIdx.x; i < p.slots; i += BLOCK) {
        uint32_t rest = (uint32_t)i, v[WORDS] = {};
        const int w = (int)split(&rest, p.line);
        const int h = (int)split(&rest, p.plane);
        const int at[3] = {first[0] + (int)rest, first[1] + h, first[2] + w};
        const int slot = slot_of(p, (int)rest, h, w);
        if ((uint32_t)at[0] < (uint32_t)p.input.d &&
            (uint32_t)at[1] < (uint32_t)p.input.h &&
            (uint32_t)at[2] < (uint32_t)p.input.w) {
            const int64_t row = row_at(p.input, s.n, at[0], at[1], at[2]);
            load_channels(p.side[0], row, v);
            if (p.side[1].channels) load_channels(p.side[1], row, v);
        }
        halo[half_of(slot, 0)] = {v[0], v[1], v[2], v[3]};
        halo[half_of(slot, 1)] = {v[4], v[5], v[6], v[7]};
    }
}

/* The accumulators of a warp, 32 positions by 32 filters. A chain of
 * float additions has at most CHAIN terms: `acc` is the current chain, `sum`
 * the finished ones. */
struct WarpTile {
    float acc[2][TILES][4] = {}, sum[2][TILES][4] = {};

    __device__ __forceinline__ void end_chain()
    {
#pragma unroll
        for (int i = 0; i < 2 * TILES * 4; i++) {
            float &v = acc[i / TILES / 4][i / 4 % TILES][i % 4];
            sum[i / TILES / 4][i / 4 % TILES][i % 4] += v, v = 0;
        }
    }
};

/* Writes the block's sums of v and v^2 over the stored values v[row][filter of
 * the lane] to its partial sums. A warp sums about the mean of its rows, in
 * float, then in double; warps are added in their order. All threads of the
 * block must call it. */
__device__ __forceinline__ void put_sums(const SmallCin &p,
                                         const Vec<TILE_CHANNELS> (&v)[4],
                                         const int (&row)[4], int f0,
                                         double *partials)
{
    const int t = (int)threadIdx.x, lane = t % WARP;
    const int across = t / WARP % ACROSS, down = t / WARP / ACROSS;
    int n = 0;

    for (int r = 0; r < 4; r++) n += row[r] >= 0;
    n = warp_sum_strided(n, 4);
    const float each = n ? 1 / (float)n : 0;
    __syncthreads(); // the halo has been read
#pragma unroll
    for (int i = 0; i < TILE_CHANNELS; i++) {
        float mean = 0, m2 = 0;
        for (int r = 0; r < 4; r++) mean += row[r] >= 0 ? v[r].v[i] : 0;
        mean = warp_sum_strided(mean, 4) * each;
        for (int r = 0; r < 4; r++) {
            const float d = v[r].v[i] - mean;
            m2 += row[r] >= 0 ? d * d : 0;
        }
        m2 = warp_sum_strided(m2, 4);
        if (lane >= 4) continue;
        double *to = partials + across * COLUMNS + down * 32 + lane * 8 + i;
        to[0] = (double)mean * n;
        to[ACROSS * COLUMNS] = (double)m2 + (double)mean * mean * n;
    }

    __syncthreads();
    if (t < 2 * COLUMNS && f0 + t % COLUMNS < p.filters) {
        const int which = t / COLUMNS, at = t % COLUMNS;
        double sum = 0;
        for (int i = 0; i < ACROSS; i++)
            sum += partials[(which * ACROSS + i) * COLUMNS + at];
        p.sums.parts[((int64_t)blockIdx.x * 2 + which) * p.filters + f0 + at] =
            sum;
    }

    channel_sums_finish(p.sums, (int)blockIdx.x, (int)blockIdx.y, f0,
                        min((int)COLUMNS, p.filters - f0), partials);
}

/* Repacks the filter to mma fragments: (block of filters, tap, 32 filters, mma
 * tiles 2i and 2i + 1, lane, two registers of b of each tile), zeros past the
 * last tap and filter. */
__global__ void __launch_bounds__(BLOCK)
    repack_filter_kernel(const uint16_t *w, uint32_t *to, int channels,
                         int filters, int taps, int stages, int64_t count)
{
    EACH(i, count)
    {
        const int q = (int)(i % 4), lane = (int)(i / 4 % WARP);
        const int pair = (int)(i / 4 / WARP % 2);
        const int down = (int)(i / 4 / WARP / 2 % 2);
        const int64_t all = i / 4 / LINES;
        const int tap = (int)(all % (stages * STAGE));
        const int f0 = (int)(all / (stages * STAGE)) * COLUMNS + down * 32;
        const int j = pair * 2 + q / 2, n = lane / 4;
        const int filter = f0 + n / 2 * TILE_CHANNELS + 2 * j + n % 2;
        const int k = lane % 4 * 2 + q % 2 * 8;
        const uint16_t *at = w + ((int64_t)filter * taps + tap) * channels + k;
        uint32_t two = 0;
        if (filter < filters && tap < taps) {
            if (k < channels) two = at[0];
            if (k + 1 < channels) two |= (uint32_t)at[1] << 16;
        }
        to[i] = two;
    }
}

template <Precision P>
__global__ void __launch_bounds__(BLOCK, 2)
    small_cin_kernel(const __grid_constant__ SmallCin p)
{
    constexpr Dtype D = NARROW_TYPE<P>;
    DYN_SMEM(uint4, halo);
    uint4 *const ring = halo + 2 * p.slots;
    int *const taps = (int *)(ring + RING * STAGE * LINES);
    const int t = (int)threadIdx.x, lane = t % WARP;
    const int wm = t / WARP % ACROSS * ROWS, down = t / WARP / ACROSS;
    const int f0 = (int)blockIdx.y * COLUMNS;
    const int filter0 = f0 + down * 32 + lane % 4 * TILE_CHANNELS;
    const BoxCoord s = box_coord(p);
    auto fetch = [&](int stage) {
        const uint4 *from =
            p.w + ((int64_t)blockIdx.y * p.stages + stage) * (STAGE * LINES);
        if (stage < p.stages)
            for (int i = t; i < STAGE * LINES; i += BLOCK)
                cp_async16(ring + stage % RING * (STAGE * LINES) + i, from + i,
                           true);
        cp_async_commit();
    };
    for (int i = 0; i < RING - 1; i++) fetch(i);

    for (int i = t; i < p.taps; i += BLOCK) {
        const int *k = p.win.k;
        taps[i] =
            slot_of(p, i / k[2] / k[1] * p.win.dil[0],
                    i / k[2] % k[1] * p.win.dil[1], i % k[2] * p.win.dil[2]);
    }

    fill(p, s, halo);

    // the slot of tap 0 for the row whose address this lane gives to ldmatrix
    int base[2];

    for (int i = 0; i < 2; i++) {
        int at[3];
        position_in_box(p, wm + i * 16 + lane % 16, at);
        base[i] = slot_of(p, at[0] * p.win.s[0], at[1] * p.win.s[1],
                          at[2] * p.win.s[2]);
    }

    WarpTile share;
    for (int i = 0; i < p.stages; i++) {
        cp_async_wait<RING - 2>();
        __syncthreads();
        fetch(i + RING - 1);
        const uint4 *b =
            ring + i % RING * (STAGE * LINES) + down * (LINES / 2) + lane;
        for (int k = 0; k < STAGE; k++, b += LINES) {
            const int tap = i * STAGE + k;
            // the whole warp breaks
            if (tap >= p.taps || f0 + down * 32 >= p.filters) break;
            uint32_t a[2][4];
#pragma unroll
            for (int h = 0; h < 2; h++)
                ldmatrix_x4(a[h],
                            halo + half_of(base[h] + taps[tap], lane / 16));
            const uint4 two[2] = {b[0], b[WARP]};
            const uint32_t y[TILES][2] = {{two[0].x, two[0].y},
                                          {two[0].z, two[0].w},
                                          {two[1].x, two[1].y},
                                          {two[1].z, two[1].w}};
#pragma unroll
            for (int h = 0; h < 2; h++)
#pragma unroll
                for (int j = 0; j < TILES; j++)
                    PrecisionTraits<P>::multiply(share.acc[h][j], a[h], y[j]);
        }
        if (i % ENDS == ENDS - 1 || i + 1 == p.stages) share.end_chain();
    }

    int row[4];
    Vec<TILE_CHANNELS> v[4];
#pragma unroll
    for (int r = 0; r < 4; r++) {
        row[r] = row_of(p, s, wm + r * 8 + lane / 4);
#pragma unroll
        for (int i = 0; i < TILE_CHANNELS; i++)
            v[r].v[i] = share.sum[r / 2][i / 2][r % 2 * 2 + i % 2];
        if (filter0 >= p.filters) continue;
        add_bias(p.bias, filter0, &v[r]);
        if (row[r] >= 0)
            put_channels(p.y, (int64_t)row[r] * p.filters + filter0, v[r]);
#pragma unroll
        for (int i = 0; i < TILE_CHANNELS; i++)
            v[r].v[i] = rounded<D>(v[r].v[i]);
    }
    if (p.sums.parts) put_sums(p, v, row, f0, (double *)halo);
}

// -- launching ---------------------------------------------------------------

int64_t shared_of(const Tiling &g, int64_t taps)
{
    return (2 * g.slots + RING * STAGE * LINES) * TILE_LINE +
           taps * (int64_t)sizeof(int);
}

/* The tiling with boxes of 2^d x 2^h x 2^w positions. */
Tiling tiling_of(const ConvProblem *r, int d, int h, int w)
{
    const Window &g = r->win;
    Tiling all = {{d, h, w}, 1, 0, 0, r->output.n};
    int64_t size[3];

    for (int a = 0; a < 3; a++) {
        size[a] = ((int64_t)g.s[a] << all.box[a]) - g.s[a] +
                  (int64_t)(g.k[a] - 1) * g.dil[a] + 1;
        all.blocks *= ceil_div((&r->output.d)[a], 1 << all.box[a]);
    }

    all.lines = (int)least(size[1], INT32_MAX);
    all.wide = (int)least(ceil_div(size[2], g.s[2]), INT32_MAX);
    size[2] = (int64_t)all.wide * g.s[2];

    // bounded, to avoid an overflow
    for (int a = 0; a < 3; a++)
        all.slots = least(all.slots * least(size[a], SHARED_MOST), SHARED_MOST);
    return all;
}

/* Chooses the boxes that take the fewest warp instructions to load and to
 * multiply, the widest among equals. False: no halo fits in shared memory. */
bool choose_tiling(const ConvProblem *r, Tiling *best)
{
    enum { FILL = 4, TAP = 192 }; // a position of a halo; a tap of a block
    double least = 0;

    for (int w = BOX; w >= 0; w--)
        for (int h = BOX - w; h >= 0; h--) {
            const Tiling g = tiling_of(r, BOX - w - h, h, w);
            const double cost = (double)g.blocks * (FILL * (double)g.slots +
                                                    TAP * (double)conv_taps(r));
            if (!gpu_fits(shared_of(g, conv_taps(r)))) continue;
            if (least > 0 && cost >= least) continue;
            least = cost, *best = g;
        }
    return least > 0;
}

int stages_of(const ConvProblem *r)
{
    return (int)ceil_div(conv_taps(r), STAGE);
}

/* 32-bit words of the repacked filter. */
int64_t repacked_words(const ConvProblem *r)
{
    return ceil_div(r->cout, COLUMNS) * stages_of(r) * STAGE * LINES * 4;
}

bool repack_filter(const ConvProblem *r, const void *w, void *to)
{
    moves(conv_operand_bytes(r, conv_filter_size(r)) +
          (double)repacked_words(r) * sizeof(uint32_t));
    LAUNCH(repack_filter_kernel, blocks_for(repacked_words(r)), BLOCK, 0,
           gpu_stream(r->c->dev), (const uint16_t *)w, (uint32_t *)to, r->cin,
           r->cout, (int)conv_taps(r), stages_of(r), repacked_words(r));
    return gpu_launched("small_cin, filter");
}

template <Precision P>
bool queue(const ConvProblem *r, const SmallCin &p, const Tiling &g)
{
    const int64_t shared = shared_of(g, p.taps);
    const dim3 blocks((unsigned)g.blocks, (unsigned)ceil_div(r->cout, COLUMNS));
    if (!gpu_allows(small_cin_kernel<P>, (size_t)shared)) return false;
    LAUNCH(small_cin_kernel<P>, blocks, BLOCK, (size_t)shared,
           gpu_stream(r->c->dev), p);
    return gpu_launched("small_cin fprop");
}

} // namespace

// 8 channels go to igemm_tile.cu, also as a concat, so that a concat has the
// bits of one tensor
bool small_cin_takes(const ConvProblem *r)
{
    const Call *c = r->c;
    Tiling g;
    return call_op(c) == OP_conv && r->win.groups == 1 &&
           precision_copy(c->precision) != F32 && r->cin >= SMALL_CIN_MIN &&
           r->cin <= SMALL_CIN_MAX && r->cout % TILE_CHANNELS == 0 &&
           r->cin % TILE_CHANNELS && choose_tiling(r, &g);
}

int small_cin_sum_parts(const ConvProblem *r)
{
    Tiling g;
    return choose_tiling(r, &g) ? (int)g.blocks : 0;
}

size_t small_cin_bytes(const ConvProblem *r)
{
    return (size_t)repacked_words(r) * sizeof(uint32_t);
}

bool small_cin_fprop(const ConvProblem *r, const Source &x, const void *w,
                     const float *bias, const Target &y,
                     const ChannelSums &sums, void *workspace)
{
    const Call *c = r->c;
    Tiling g;
    if (!countable(c, rows(r->input)) || !countable(c, rows(r->output)) ||
        !choose_tiling(r, &g) || !repack_filter(r, w, workspace))
        return false;
    const int own = x.border ? x.border : r->cin;
    SmallCin p = {};
    p.side[0] = {(const uint16_t *)x.first.data, own, 0};
    p.side[1] = {(const uint16_t *)x.second.data, r->cin - own, own};
    p.w = (const uint4 *)workspace, p.bias = bias, p.y = y, p.sums = sums;
    p.win = r->win, p.input = r->input, p.output = r->output;
    for (int a = 0; a < 3; a++) {
        p.box[a] = g.box[a];
        p.boxes[a] = divisor(ceil_div((&r->output.d)[a], 1 << g.box[a]));
    }
    p.line = divisor((int64_t)g.wide * r->win.s[2]);
    p.plane = divisor(g.lines), p.step = divisor(r->win.s[2]);
    p.slots = (int)g.slots, p.wide = g.wide;
    p.filters = r->cout, p.taps = (int)conv_taps(r), p.stages = stages_of(r);
    channel_sums_columns(c, (int)ceil_div(r->cout, COLUMNS), &p.sums);
    moves(conv_operand_bytes(r, numel(r->input)) + (double)small_cin_bytes(r) +
              target_traffic(y, numel(r->output)) +
              channel_sums_traffic(p.sums),
          conv_flops(r));
    return c->precision == PRECISION_bf16 ? queue<PRECISION_bf16>(r, p, g)
                                          : queue<PRECISION_f16>(r, p, g);
}
