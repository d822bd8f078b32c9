/* upconv_head_fwd.cu -- y of an upconv with 1 to 4 output channels, in 16 bits,
 * as a product over cells.
 *
 * A cell is the box of results that meet the same positions of x: along each
 * axis cell i has the results i*s - lo + r with r = 0 .. s-1, and they meet
 * position i - o by tap r + o*s, o = 0 .. ceil(k / s) - 1. With the results of
 * a cell as columns,
 *
 *     y[i, r] = sum_o sum_c x[i - o, c] w[c, r + o*s]
 *
 * is an implicit GEMM whose columns are dense: 8 for 4x4x4 taps, stride 2 and
 * one channel, where single results would use one column of 8. Taps past the
 * window are zeros of w.
 *
 * A block of 256 threads has a tile of up to 128 cells of a plane and loops
 * over a run of planes of x (2-D: one plane), 64 channels of one tensor at a
 * time, the next ones in flight (cp.async). A thread applies the deferred norm
 * to the lines that it copied. A warp multiplies 16 cells: along h and w it
 * reads the halo of x once for each offset o, moved by o rows; along d the
 * offsets are columns, too, because a plane of x meets several planes of cells.
 * Their sums wait in shared memory for the next plane, each for the thread that
 * made it. w stays in shared memory.
 *
 * Least bytes: 2 an element of x, and y. With 64 positions an axis and two
 * samples (tiles of 11x11 cells, runs of 13 planes) each row of x is loaded
 * 1.23 times. */
#include "cuda/conv/igemm_tile_load.cuh"
#include "cuda/conv/upconv_head.cuh"

namespace {

enum {
    CELLS = 128, // of a tile, at most
    THREADS = 256,
    WARPS = THREADS / WARP,
    BLOCKS = 3,                      // on a multiprocessor of an H100
    FILL = BLOCKS * H100_PROCESSORS, // blocks that fill it
    MIN_RUN = 8,       // planes that are worth the extra planes before them
    CHUNK = 64,        // channels that are loaded at a time
    LINES = CHUNK / 8, // of 16 bytes in a row of x
    ROW = LINES * TILE_LINE,
    ROW_STEP = THREADS / LINES, // rows that the block copies at a time
    TILES = 8,                  // of 8 columns, of a warp, at most
    COLUMNS = TILES * 8,
    NO_TAP = 0xffff,
};
static_assert(CELLS == WARPS * 16, "an mma tile of cells for each warp");

/* Offsets in bytes of the parts of shared memory. */
struct Layout {
    int x, carried, norm, result, rows, move, taps, bytes; // from 0 on: w
};

struct UpconvHeadFwd {
    Operand x, second;
    const void *w;
    const float *bias; // or NULL
    float *y;
    int border, channels; // channels of x's first tensor; of both
    int chunks, near;     // of both; of the first tensor
    int results, columns; // channels of y; taps times channels
    Dims output, input;   // of x and y; c is not used
    int k[3], step[3], lo[3];
    int back[3];      // offsets of a cell, less one
    int tile[3];      // cells of a block: planes, lines, cells of a line
    Divisor tiles[3]; // of all cells
    Divisor pitch;    // rows of a line of the halo
    int rows;         // of the halo of a plane
    int offsets;      // along h and w
    int cell, deep;   // mma tiles of 8 results of a cell; times offsets along d
    int even;         // deep, rounded up to pairs
    Layout at;
};

/* The parts of shared memory. */
struct Shared {
    unsigned char *w, *x; // rows (offset, mma tile, channel); two stages
    float4 *carried;      // sums for the next plane, (mma tile, thread)
    float2 *norm;         // (padded channel)
    int *rows;            // of the halo: row in its plane of x; -1: outside
    int *move;            // (offset): rows of the halo from the largest one
    uint16_t *taps;       // (offset, column): its column of w
    uchar4 *result;       // (column of a cell): along d, h, w; channel
};

__device__ __forceinline__ Shared shared_of(const UpconvHeadFwd &p,
                                            unsigned char *bytes)
{
    return {bytes,
            bytes + p.at.x,
            (float4 *)(bytes + p.at.carried),
            (float2 *)(bytes + p.at.norm),
            (int *)(bytes + p.at.rows),
            (int *)(bytes + p.at.move),
            (uint16_t *)(bytes + p.at.taps),
            (uchar4 *)(bytes + p.at.result)};
}

/* A tile: its sample and first cell. */
struct Tile {
    int n, at[3];
};

__device__ __forceinline__ Tile tile_of(const UpconvHeadFwd &p)
{
    uint32_t rest = blockIdx.x;
    Tile t;
#pragma unroll
    for (int a = 2; a >= 0; a--)
        t.at[a] = (int)split(&rest, p.tiles[a]) * p.tile[a];
    t.n = (int)rest;
    return t;
}

/* Channels that are loaded together. */
struct Chunk {
    const Operand &x;
    int channels;        // of the tensor
    int c0, count, from; // first channel in the tensor; channels; first in w
};

__device__ __forceinline__ Chunk chunk_at(const UpconvHeadFwd &p, int i)
{
    const bool far = i >= p.near;
    const int channels = far ? p.channels - p.border : p.border;
    const int c0 = (far ? i - p.near : i) * CHUNK;
    return {far ? p.second : p.x, channels, c0, min((int)CHUNK, channels - c0),
            far ? p.border + c0 : c0};
}

/* The cells of a lane. */
struct LaneCells {
    int row;      // of the halo, for the cell that the lane loads and the
                  // largest offsets
    int2 from[2]; // first results, along h and w, of the cells that it stores
};

__device__ __forceinline__ LaneCells lane_cells(const UpconvHeadFwd &p,
                                                const Tile &t)
{
    const int lane = (int)threadIdx.x % WARP;
    const int first = (int)threadIdx.x / WARP * 16;
    const int count = p.tile[1] * p.tile[2], wide = p.tile[2];
    LaneCells c;
    // lanes past the tile load its first cell and store none
    const int m = first + lane % 16 < count ? first + lane % 16 : 0;
    c.row = m / wide * (int)p.pitch.by + m % wide;
    for (int i = 0; i < 2; i++) {
        const int at = first + lane / 4 + i * 8;
        const int h = (t.at[1] + at / wide) * p.step[1] - p.lo[1];
        c.from[i] = make_int2(at < count ? h : p.input.h,
                              (t.at[2] + at % wide) * p.step[2] - p.lo[2]);
    }
    return c;
}

/* Issues the copies of a chunk of plane d, zeros outside of x. */
__device__ __forceinline__ void fill(const UpconvHeadFwd &p, const Tile &t,
                                     int d, const Chunk &c, const int *rows,
                                     unsigned char *to)
{
    const int first = (int)threadIdx.x / LINES;
    const int line = (int)threadIdx.x % LINES;
    const bool plane = d >= 0 && d < p.output.d && line * 8 < c.count;
    const uint16_t *from =
        (const uint16_t *)c.x.data + (plane ? c.c0 + line * 8 : 0);
    const int above = (t.n * p.output.d + d) * p.output.h * p.output.w;
    to += tile_place<LINES>(first, line);
#pragma unroll 2
    for (int r = first; r < p.rows; r += ROW_STEP, to += ROW_STEP * ROW) {
        const int row = rows[r];
        const bool there = plane && row >= 0;
        const uint32_t at = there ? (uint32_t)(above + row) : 0;
        cp_async16(to, from + (uint64_t)at * (uint32_t)c.channels, there);
    }
}

/* Applies the deferred norm to the lines that this thread copied: bit i of
 * `inside` is its i-th row. Positions outside of x stay zero. */
template <Dtype D>
__device__ __forceinline__ void apply_norm(float leak, const float4 *norm,
                                           uint32_t inside, unsigned char *x)
{
    const int line = (int)threadIdx.x % LINES;
    float4 by[4]; // of two channels
#pragma unroll
    for (int i = 0; i < 4; i++) by[i] = norm[line * 4 + i];
    x += tile_place<LINES>((int)threadIdx.x / LINES, line);
#pragma unroll 1
    for (; inside; inside >>= 1, x += ROW_STEP * ROW) {
        if (!(inside & 1)) continue;
        uint4 all = *(const uint4 *)x;
        uint32_t *v = &all.x;
#pragma unroll
        for (int i = 0; i < 4; i++) v[i] = norm_act_pair<D>(leak, by[i], v[i]);
        *(uint4 *)x = all;
    }
}
static_assert(ROW_STEP % 8 == 0, "a thread's rows have the same swizzle");
static_assert(SHARED_MOST / (2 * ROW * ROW_STEP) < 32,
              "bits of a thread's rows");

/* Adds the products of a chunk of `count` channels to the sums of a warp's
 * cells: of 32 channels at a time, so that chunks of an implicit concat and of
 * a stored one give the same bits. row: the lane's row of the halo for the
 * largest offsets, from which `move` leads to the others; w: of the chunk, for
 * the lane. */
template <Precision P>
__device__ __forceinline__ void multiply(const UpconvHeadFwd &p, int count,
                                         const unsigned char *x,
                                         const unsigned char *w, int row,
                                         const int *move,
                                         float (&acc)[TILES][4])
{
    const int tile = p.chunks * CHUNK * TILE_LINE; // bytes of an mma tile of w
    const int half = (int)threadIdx.x % WARP / 16;
#pragma unroll 1
    for (int k = 0; k < count; k += TILE_CHUNK, w += TILE_CHUNK * TILE_LINE) {
        const unsigned char *b = w;
#pragma unroll 1
        for (int o = 0; o < p.offsets; o++, b += p.even * tile) {
            uint32_t a[2][4];
            const int at = tile_place<LINES>(row + move[o], k / 8 + half);
            ldmatrix_x4(a[0], x + at);
            ldmatrix_x4(a[1], x + (at ^ 2 * TILE_LINE));
#pragma unroll
            for (int j = 0; j < TILES; j += 2) {
                if (j && j >= p.even) break;
                uint32_t two[2][4];
#pragma unroll
                for (int i = 0; i < 2; i++)
                    ldmatrix_x4_trans(two[i],
                                      b + j * tile + i * 16 * TILE_LINE);
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    PrecisionTraits<P>::multiply(acc[j], a[i],
                                                 {two[i][0], two[i][1]});
                    PrecisionTraits<P>::multiply(acc[j + 1], a[i],
                                                 {two[i][2], two[i][3]});
                }
            }
        }
    }
}

/* Stores the results of a warp's cells in a plane. d[i] of mma is row lane / 4
 * + i / 2 * 8, column lane % 4 * 2 + i % 2. from: the first result of the cells
 * of these two rows, along h and w; d: along d. */
__device__ __forceinline__ void store_cells(const UpconvHeadFwd &p, int n,
                                            int d, const int2 (&from)[2],
                                            const uchar4 *result,
                                            const float (&acc)[TILES][4])
{
    const int lane = (int)threadIdx.x % WARP;
    const uint32_t deep = (uint32_t)p.input.d, high = (uint32_t)p.input.h,
                   wide = (uint32_t)p.input.w;
    result += lane % 4 * 2;
#pragma unroll
    for (int j = 0; j < TILES; j++) {
        if (j >= p.cell) break;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const uchar4 r = result[j * 8 + i];
            const uint32_t q = (uint32_t)d + r.x;
            if (r.w >= p.results || q >= deep) continue;
            const float bias = p.bias ? p.bias[r.w] : 0;
#pragma unroll
            for (int k = 0; k < 2; k++) {
                const uint32_t h = (uint32_t)from[k].x + r.y;
                const uint32_t w = (uint32_t)from[k].y + r.z;
                const uint32_t row =
                    (((uint32_t)n * deep + q) * high + h) * wide + w;
                if (h < high && w < wide)
                    p.y[(uint64_t)row * (uint32_t)p.results + r.w] =
                        acc[j][k * 2 + i] + bias;
            }
        }
    }
}

/* Sets the tables: the rows of the halo, the columns of w for each offset and
 * column of the product, the results of a cell and the norms; clears the sums
 * of planes before the first. */
__device__ __forceinline__ void set_tables(const UpconvHeadFwd &p,
                                           const Tile &t, const Shared &s)
{
    const int first = (int)threadIdx.x;
    for (int i = first; i < p.rows; i += THREADS) {
        uint32_t h = (uint32_t)i;
        const int x = (int)split(&h, p.pitch) + t.at[2] - p.back[2];
        const int y = (int)h + t.at[1] - p.back[1];
        const bool inside =
            y >= 0 && y < p.output.h && x >= 0 && x < p.output.w;
        s.rows[i] = inside ? y * p.output.w + x : -1;
    }

    for (int i = first; i < COLUMNS; i += THREADS) {
        const int n = i / p.results, w = n % p.step[2];
        const int h = n / p.step[2] % p.step[1], d = n / p.step[2] / p.step[1];
        const bool none = d >= p.step[0] || i >= p.cell * 8;
        s.result[i] = none ? make_uchar4(0, 0, 0, 255)
                           : make_uchar4((unsigned char)d, (unsigned char)h,
                                         (unsigned char)w,
                                         (unsigned char)(i % p.results));
    }

    for (int i = first; i < p.chunks * CHUNK; i += THREADS) {
        const Chunk c = chunk_at(p, i / CHUNK);
        const bool there = c.x.norm_on_load.table && i % CHUNK < c.count;
        s.norm[i] = there ? c.x.norm_on_load.table[c.c0 + i % CHUNK]
                          : make_float2(0, 0);
    }

    for (int i = 0; i < p.deep - p.cell; i++)
        s.carried[i * THREADS + first] = make_float4(0, 0, 0, 0);
    __syncthreads();

    for (int i = first; i < p.offsets; i += THREADS)
        s.move[i] = (p.back[1] - i / (p.back[2] + 1)) * (int)p.pitch.by +
                    p.back[2] - i % (p.back[2] + 1);
    for (int i = first; i < p.offsets * p.even * 8; i += THREADS) {
        const int tile = i / 8 % p.even, o = i / 8 / p.even;
        const uchar4 r = s.result[tile % p.cell * 8 + i % 8];
        const int d = r.x + tile / p.cell * p.step[0];
        const int h = r.y + o / (p.back[2] + 1) * p.step[1];
        const int w = r.z + o % (p.back[2] + 1) * p.step[2];
        const bool none = tile >= p.deep || r.w >= p.results || d >= p.k[0] ||
                          h >= p.k[1] || w >= p.k[2];
        s.taps[i] =
            (uint16_t)(none
                           ? NO_TAP
                           : ((d * p.k[1] + h) * p.k[2] + w) * p.results + r.w);
    }
    __syncthreads();
}

/* Copies w to shared memory: for each offset and mma tile a row of 8 columns
 * for each channel. */
__device__ __forceinline__ void fill_w(const UpconvHeadFwd &p, const Shared &s)
{
    const int tiles = p.offsets * p.even;
    const uint16_t *w = (const uint16_t *)p.w;
    for (int c = (int)threadIdx.x / 8; c < p.chunks * CHUNK; c += THREADS / 8) {
        const Chunk k = chunk_at(p, c / CHUNK);
        const int64_t from = (int64_t)(k.from + c % CHUNK) * p.columns;
        for (int i = 0; i < tiles; i++) {
            const int column = (int)threadIdx.x % 8;
            const uint16_t tap = s.taps[i * 8 + column];
            const bool there = tap != NO_TAP && c % CHUNK < k.count;
            uint16_t *to =
                (uint16_t *)(s.w + (i * p.chunks * CHUNK + c) * TILE_LINE);
            to[column] = there ? w[from + tap] : (uint16_t)0;
        }
    }
}

template <Precision P>
__global__ void __launch_bounds__(THREADS, BLOCKS)
    upconv_head_fwd_kernel(const __grid_constant__ UpconvHeadFwd p)
{
    constexpr Dtype D = NARROW_TYPE<P>;
    need_sm80("cp.async");
    DYN_SMEM(unsigned char, bytes);
    const Shared s = shared_of(p, bytes);
    const Tile t = tile_of(p);
    const int thread = (int)threadIdx.x, lane = thread % WARP;
    const int planes = p.tile[0] + p.back[0], before = t.at[0] - p.back[0];
    const int stage = p.rows * ROW;
    set_tables(p, t, s);
    fill(p, t, before, chunk_at(p, 0), s.rows, s.x);
    cp_async_commit();
    fill_w(p, s);

    const LaneCells cells = lane_cells(p, t);
    const unsigned char *w =
        s.w + lane / 16 * p.chunks * CHUNK * TILE_LINE + lane % 16 * TILE_LINE;
    uint32_t inside = 0; // the rows of x that this thread copies
    for (int r = thread / LINES, i = 0; r < p.rows; r += ROW_STEP, i++)
        inside |= (uint32_t)(s.rows[r] >= 0) << i;

    for (int i = 0, buffer = 0; i < planes; i++) {
        float acc[TILES][4] = {};
#pragma unroll
        for (int j = 0; j < TILES; j++) {
            if (j >= p.deep - p.cell) break;
            const float4 v = s.carried[j * THREADS + thread];
            acc[j][0] = v.x, acc[j][1] = v.y, acc[j][2] = v.z, acc[j][3] = v.w;
        }
        for (int c = 0; c < p.chunks; c++, buffer ^= 1) {
            const Chunk chunk = chunk_at(p, c);
            unsigned char *x = s.x + buffer * stage;
            const int d = before + i;
            cp_async_wait<0>();
            if (chunk.x.norm_on_load.table && d >= 0 && d < p.output.d)
                apply_norm<D>(chunk.x.norm_on_load.act.leak,
                              (const float4 *)(s.norm + c * CHUNK), inside, x);
            __syncthreads(); // and the previous chunk has been used
            const int next = c + 1 < p.chunks ? c + 1 : 0;
            if (next || i + 1 < planes)
                fill(p, t, next ? d : d + 1, chunk_at(p, next), s.rows,
                     s.x + (buffer ^ 1) * stage);
            cp_async_commit();
            multiply<P>(p, chunk.count, x, w + c * CHUNK * TILE_LINE, cells.row,
                        s.move, acc);
        }
#pragma unroll
        for (int j = 1; j < TILES; j++)
            if (j >= p.cell && j < p.deep)
                s.carried[(j - p.cell) * THREADS + thread] =
                    make_float4(acc[j][0], acc[j][1], acc[j][2], acc[j][3]);
        if (i >= p.back[0])
            store_cells(p, t.n, (before + i) * p.step[0] - p.lo[0], cells.from,
                        s.result, acc);
    }
}

// -- launching ---------------------------------------------------------------

/* Sets the tile of a plane of count[1] x count[2] cells: the one with the
 * fewest rows of x and products in all, with a halo of at most most_rows rows.
 * False: there is none. */
bool set_tile(UpconvHeadFwd *p, const int64_t (&count)[3], int64_t most_rows)
{
    int64_t best = 0;
    for (int64_t wide = 1; wide <= least(CELLS, count[2]); wide++) {
        const int64_t high = least(CELLS / wide, count[1]);
        const int64_t pitch = wide + p->back[2];
        const int64_t rows = (high + p->back[1]) * pitch;
        const int64_t cost = ceil_div(count[1], high) *
                             ceil_div(count[2], wide) *
                             (ceil_div(rows, ROW_STEP) * ROW_STEP + CELLS);
        if (rows > most_rows || (best && cost > best)) continue;
        best = cost, p->tile[1] = (int)high, p->tile[2] = (int)wide;
        p->rows = (int)rows, p->pitch = divisor(pitch);
    }
    return best > 0;
}

/* Sets everything but the operands. False: the window is dilated, or w and a
 * tile do not fit in shared memory. */
bool fwd_params(const ConvProblem *r, int border, UpconvHeadFwd *p)
{
    const Window *g = &r->win;
    int64_t count[3], results = r->cin;
    *p = {};
    p->channels = r->cout, p->border = border ? border : r->cout;
    p->near = (int)ceil_div(p->border, CHUNK);
    p->chunks = p->near + (int)ceil_div(p->channels - p->border, CHUNK);
    p->results = r->cin, p->output = r->output, p->input = r->input;
    p->columns = (int)conv_taps(r) * r->cin;

    for (int i = 0; i < 3; i++) {
        p->k[i] = g->k[i], p->step[i] = g->s[i], p->lo[i] = g->lo[i];
        p->back[i] = (int)ceil_div(g->k[i], g->s[i]) - 1;
        count[i] = ceil_div((int64_t)(&r->input.d)[i] + g->lo[i], g->s[i]);
        results = least(results * g->s[i], COLUMNS + 1);
        if (g->dil[i] != 1) return false;
    }

    p->cell = (int)ceil_div(results, 8);
    p->deep = p->cell * (p->back[0] + 1), p->even = (p->deep + 1) / 2 * 2;
    if (results > COLUMNS || p->even > TILES) return false;
    const int offsets = (p->back[1] + 1) * (p->back[2] + 1);
    p->offsets = offsets;
    const int64_t channels = (int64_t)p->chunks * CHUNK;
    const int64_t w = offsets * p->even * channels * TILE_LINE;
    const int64_t carried = (p->deep - p->cell) * THREADS * sizeof(float4);
    const int64_t tables =
        channels * sizeof(float2) +
        offsets * (p->even * 8 * sizeof(uint16_t) + sizeof(int)) +
        COLUMNS * sizeof(uchar4);
    const int64_t left = SHARED_MOST - w - carried - tables;
    if (!set_tile(p, count, left / (2 * ROW + (int)sizeof(int)))) return false;

    Layout *at = &p->at;
    at->x = (int)w, at->carried = at->x + 2 * p->rows * ROW;
    at->norm = at->carried + (int)carried;
    at->result = at->norm + (int)(channels * sizeof(float2));
    at->rows = at->result + COLUMNS * (int)sizeof(uchar4);
    at->move = at->rows + p->rows * (int)sizeof(int);
    at->taps = at->move + offsets * (int)sizeof(int);
    at->bytes = at->taps + offsets * p->even * 8 * (int)sizeof(uint16_t);

    for (int i = 1; i < 3; i++) count[i] = ceil_div(count[i], p->tile[i]);
    const int64_t tiles = r->output.n * count[1] * count[2];
    const int64_t run = ceil_div(count[0], most(1, FILL / tiles));
    p->tile[0] = (int)least(most(run, MIN_RUN), count[0]);
    count[0] = ceil_div(count[0], p->tile[0]);
    for (int i = 0; i < 3; i++) p->tiles[i] = divisor(count[i]);
    return countable(r->c, tiles * count[0]);
}

template <Precision P>
bool queue(const ConvProblem *r, const UpconvHeadFwd &p, unsigned blocks)
{
    const size_t bytes = (size_t)p.at.bytes;
    if (!gpu_allows(upconv_head_fwd_kernel<P>, bytes)) return false;
    LAUNCH(upconv_head_fwd_kernel<P>, blocks, THREADS, bytes,
           gpu_stream(r->c->dev), p);
    return gpu_launched("upconv_head fwd");
}

} // namespace

bool upconv_head_fwd_takes(const ConvProblem *r, int border)
{
    UpconvHeadFwd p;
    return gpu_fits(SHARED_MOST) && upconv_head_narrow(r, border) &&
           fwd_params(r, border, &p);
}

bool upconv_head_fwd(const ConvProblem *r, const Source &x, const void *w,
                     const float *bias, float *y)
{
    UpconvHeadFwd p;
    if (!countable(r->c, rows(r->output)) || !countable(r->c, rows(r->input)) ||
        !fwd_params(r, x.border, &p))
        return false;
    p.x = x.first, p.second = x.second, p.w = w, p.bias = bias, p.y = y;
    const unsigned blocks =
        (unsigned)r->output.n * p.tiles[0].by * p.tiles[1].by * p.tiles[2].by;
    moves(conv_operand_bytes(r, numel(r->output) + conv_filter_size(r)) +
              moved(r->c->y),
          conv_flops(r));
    return r->c->precision == PRECISION_bf16
               ? queue<PRECISION_bf16>(r, p, blocks)
               : queue<PRECISION_f16>(r, p, blocks);
}
