/* upconv_head_bwd.cu -- all gradients of an upconv with 1 to 4 output channels,
 * as in the last layer of a generator, from one reading of x and dy, in 16
 * bits:
 *
 *     dx[p, c] = sum_k dy[p, k] w[c, k]
 *     dw[c, k] = sum_p x[p, c]  dy[p, k]
 *
 * k is (tap, output channel), at most 64 columns, and dy[p, k] the element of
 * dy that position p of x meets there. A product with the output channels as
 * columns would use one column of 16; with taps as columns both products are
 * dense.
 *
 * A block of 256 threads has up to 64 channels of one tensor of x and loops
 * over a run of boxes of 128 positions. w stays in shared memory, a chain of dw
 * in registers. The halo of dy and the x of the next box are in flight
 * (cp.async) while the current box is multiplied. For each box:
 *
 * - dy[p, k]: a row of 64 elements for each position, rounded to 16 bits once
 *   for both products; db is summed from dy in f32, each element by the box
 *   that it belongs to;
 * - dx: a warp computes 32 positions by 32 channels, stores them and adds the
 *   gradient sums (grad_sums.cuh), as x is in shared memory;
 * - dw: a warp computes 16 channels by 32 columns; the deferred norm is applied
 *   to x in registers.
 *
 * Counted: 256 bytes of shared memory an mma for dx, 384 for dw. Bound by
 * memory: 4 B an element of x (16-bit x and dx), 2 B more if dx is added to;
 * dy; and the parts of dw, which the last blocks add (grid_reduce.cuh). */
#include "cuda/conv/upconv_head_tile.cuh"

namespace {

/* dx of a warp: 32 positions, 32 channels. */
template <Precision P>
__device__ __forceinline__ void multiply_dx(const UpconvHead &p,
                                            const Shared &s, int m, int c,
                                            float (&acc)[2][TILES][4])
{
    const int lane = (int)threadIdx.x % WARP;
#pragma unroll 1
    for (int k = 0; k * 16 < p.columns; k++) {
        uint32_t a[2][4], b[TILES][2];
#pragma unroll
        for (int i = 0; i < 2; i++)
            ldmatrix_x4(a[i],
                        s.columns + tile_place<LINES>(m + i * 16 + lane % 16,
                                                      k * 2 + lane / 16));
#pragma unroll
        for (int j = 0; j < TILES; j += 2) {
            uint32_t two[4];
            ldmatrix_x4(two, s.w + tile_place<LINES>(c + j * 8 + lane % 8 +
                                                         lane / 16 * 8,
                                                     k * 2 + lane / 8 % 2));
            b[j][0] = two[0], b[j][1] = two[1];
            b[j + 1][0] = two[2], b[j + 1][1] = two[3];
        }
#pragma unroll
        for (int i = 0; i < 2; i++)
#pragma unroll
            for (int j = 0; j < TILES; j++)
                PrecisionTraits<P>::multiply(acc[i][j], a[i], b[j]);
    }
}

/* Transposes four words of each of four lanes: word k of all four goes to lane
 * k. */
__device__ __forceinline__ void transpose_words(uint32_t (&v)[4])
{
    const int lane = (int)threadIdx.x % WARP;
#pragma unroll
    for (int o = 1; o < 4; o *= 2) {
        const bool up = lane & o;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if (i & o) continue;
            const uint32_t got =
                __shfl_xor_sync(0xffffffffu, up ? v[i] : v[i + o], o);
            v[i] = up ? got : v[i], v[i + o] = up ? v[i + o] : got;
        }
    }
}

/* Stores dx of a warp. x: the box's x before its deferred norm. Of the stored
 * values a lane adds one gradient sum for one of two neighbouring channels, in
 * every second mma tile. */
template <Dtype D>
__device__ __forceinline__ void store_dx(const UpconvHead &p,
                                         const ChannelBlock &cb, const Box &b,
                                         const unsigned char *x, int m, int c,
                                         const float (&acc)[2][TILES][4],
                                         Shared *s)
{
    const int lane = (int)threadIdx.x % WARP;
    const ConcatOperand &side = cb.side;
    int row[4];
    uint32_t word[4][TILES] = {};

#pragma unroll
    for (int i = 0; i < 4; i++) row[i] = output_row(p, b, m + lane / 4 + i * 8);
#pragma unroll
    for (int j = 0; j < TILES; j++) {
        const int mine = c + j * 8 + lane % 4 * 2;
        const float4 *by = &s->grads[mine];
        float sum[4] = {};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if (row[i] < 0) continue;
            const int64_t at = (int64_t)row[i] * side.channels + cb.c0 + mine;
            float2 v = make_float2(acc[i / 2][j][i % 2 * 2],
                                   acc[i / 2][j][i % 2 * 2 + 1]);
            if (side.dx.type == F32) {
                float *to = (float *)side.dx.data + at;
                put(&to[0], v.x, side.dx.fresh);
                put(&to[1], v.y, side.dx.fresh);
                continue;
            }
            if (!side.dx.fresh) {
                const float2 old = Stored<D>::unpack(
                    *(const uint32_t *)((const uint16_t *)side.dx.data + at));
                v.x = old.x + v.x, v.y = old.y + v.y;
            }
            word[i][j] = Stored<D>::pack(v.x, v.y);
            if (!side.grads.runs) continue;
            const int place =
                tile_place<LINES>(m + lane / 4 + i * 8, mine / 8) +
                mine % 8 * 2;
            const float2 z =
                side.grads.x ? Stored<D>::unpack(*(const uint32_t *)(x + place))
                             : make_float2(0, 0);
            v = Stored<D>::unpack(word[i][j]);
            grad_sums_add(by[0], z.x, v.x, &sum[0], &sum[2]);
            grad_sums_add(by[1], z.y, v.y, &sum[1], &sum[3]);
        }
        if (!side.grads.runs) continue;
        const float all = warp_sum_four(sum, 4);
        if (lane / 4 % 2 == j % 2) s->sums[j / 2][threadIdx.x] += (double)all;
    }

    if (side.dx.type == F32) return;
    __syncwarp(); // all lanes have read dx before any writes it
#pragma unroll
    for (int i = 0; i < 4; i++) {
        transpose_words(word[i]);
        if (row[i] < 0) continue;
        const int64_t at = (int64_t)row[i] * side.channels + cb.c0 + c;
        *(uint4 *)((uint16_t *)side.dx.data + at + lane % 4 * 8) =
            make_uint4(word[i][0], word[i][1], word[i][2], word[i][3]);
    }
}

/* Gradient sum `which` of channel c of the block, after a barrier: adds the
 * four warps, in each the lane that has the sum (store_dx). */
__device__ __forceinline__ double box_grad_sum(const Shared &s, int which,
                                               int c)
{
    const int tile = c % UNIT / 8;
    const int at =
        c / UNIT * 4 * WARP + which * 16 + c % 2 * 8 + tile % 2 * 4 + c % 8 / 2;
    double all = 0;
    for (int w = 0; w < 4; w++) all += s.sums[tile / 2][at + w * WARP];
    return all;
}

/* dw of a warp: 16 channels from c on, by four mma tiles of columns from line
 * `line` on. */
template <Precision P>
__device__ __forceinline__ void multiply_dw(const Shared &s,
                                            const unsigned char *x,
                                            const NormOnLoad &norm_on_load,
                                            int c, int line,
                                            float (&acc)[TILES][4])
{
    constexpr Dtype D = NARROW_TYPE<P>;
    const int lane = (int)threadIdx.x % WARP;
    const float leak = norm_on_load.act.leak;
    float4 by[2] = {}; // of a lane's channels, for two positions

    for (int i = 0; i < 2 && norm_on_load.table; i++) {
        const float2 one = s.deferred_norm[c + lane / 4 + i * 8];
        by[i] = make_float4(one.x, one.y, one.x, one.y);
    }
#pragma unroll 2
    for (int m = 0; m < POSITIONS; m += 16) {
        uint32_t a[4];
        ldmatrix_x4_trans(a, x + tile_place<LINES>(m + lane % 8 + lane / 16 * 8,
                                                   c / 8 + lane / 8 % 2));
        if (norm_on_load.table)
#pragma unroll
            for (int i = 0; i < 4; i++)
                a[i] = norm_act_pair<D>(leak, by[i % 2], a[i]);
#pragma unroll
        for (int j = 0; j < TILES; j += 2) {
            uint32_t b[4];
            ldmatrix_x4_trans(
                b, s.columns +
                       tile_place<LINES>(m + lane % 16, line + j + lane / 16));
            PrecisionTraits<P>::multiply(acc[j], a, {b[0], b[1]});
            PrecisionTraits<P>::multiply(acc[j + 1], a, {b[2], b[3]});
        }
    }
}

/* The reduction of dw and db: the last block of each block of channels adds its
 * parts of dw; the first block of channels also adds db. */
static __device__ __attribute__((noinline)) void reduce_dw_db(
    const UpconvHead &p)
{
    const ChannelBlock cb = channel_block(p);
    const int64_t size = (int64_t)p.channels * p.columns;
    const int64_t mine = (int64_t)(cb.side.from + cb.c0) * p.columns;
    const int items = p.dw ? cb.channels * p.columns : 0;
    const bool bias = p.db && blockIdx.y == 0;

    if (!items && !bias) return;
    auto add = [&](int first, int step, int count, bool all) {
        const int t = (int)threadIdx.x;
        float *parts = p.parts + first * size + mine;
        for (int i = t * 4; i < items; i += THREADS * 4) {
            double sum[4];
            strided_sum_four(parts + i, step * size, count, sum);
            float *to = all ? p.dw + mine + i : parts + i;
            for (int j = 0; j < 4; j++)
                put(&to[j], (float)sum[j], !all || p.fresh_dw);
        }
        if (!bias || t >= p.results) return;
        double *at = p.db_parts + first * p.results + t;
        const double sum = strided_sum(at, step * p.results, count);
        if (all)
            put(&p.db[t], (float)sum, p.fresh_db);
        else
            *at = sum;
    };
    grid_reduce(p.grid_reduce, (int)blockIdx.x,
                p.counters + (int)blockIdx.y * p.grid_reduce.counters, add);
}

template <Precision P>
__global__ void __launch_bounds__(THREADS, BLOCKS)
    upconv_head_bwd_kernel(const __grid_constant__ UpconvHead p)
{
    constexpr Dtype D = NARROW_TYPE<P>;
    need_sm80("98 KB of shared memory");
    DYN_SMEM(unsigned char, bytes);
    Shared &s = *(Shared *)bytes;
    const int t = (int)threadIdx.x, warp = t / WARP, lane = t % WARP;
    const ChannelBlock cb = channel_block(p);
    const ConcatOperand &side = cb.side;
    const int first = (int)blockIdx.x * p.run;
    const int count = p.run < p.count - first ? p.run : p.count - first;
    fill(p, cb, box_at(p, first), &s.stage[0]);
    cp_async_commit();
    set_up<D>(p, cb, &s);

    const int m = warp % 4 * QUARTER, part = warp / 4 * UNIT; // of dx
    const int c = warp % 4 * 16, line = warp / 4 * TILES;     // of dw
    float acc[TILES][4] = {};

    for (int i = 0; i < count; i++) {
        const Box b = box_at(p, first + i);
        const Stage &now = s.stage[i % 2];
        cp_async_wait<0>();
        __syncthreads(); // and the previous box has been used
        if (i + 1 < count)
            fill(p, cb, box_at(p, first + i + 1), &s.stage[(i + 1) % 2]);
        cp_async_commit();
        fill_columns<D>(p, b, now.dy, &s);
        if (p.db && blockIdx.y == 0) sum_dy(p, b, now.dy, &s);
        __syncthreads();
        if (side.dx.data && part < cb.channels) {
            float dx[2][TILES][4] = {};
            multiply_dx<P>(p, s, m, part, dx);
            store_dx<D>(p, cb, b, now.x, m, part, dx, &s);
        }
        if (!p.dw) continue;
        __syncwarp(); // some lanes skip the store, all multiply
        multiply_dw<P>(s, now.x, side.norm_on_load, c, line, acc);
        if ((i + 1) % (CHAIN / POSITIONS) && i + 1 < count) continue;
#pragma unroll
        for (int k = 0; k < TILES * 4; k++)
            s.dw[k][t] += acc[k / 4][k % 4], acc[k / 4][k % 4] = 0;
    }

    // d[i] of mma is row lane / 4 + i / 2 * 8, column lane % 4 * 2 + i % 2
#pragma unroll
    for (int k = 0; k < TILES * 4; k++) {
        const int a = c + lane / 4 + k % 4 / 2 * 8;
        const int column = (line + k / 4) * 8 + lane % 4 * 2 + k % 2;
        if (p.dw && a < cb.channels && column < p.columns)
            p.parts[((int64_t)blockIdx.x * p.channels + side.from + cb.c0 + a) *
                        p.columns +
                    column] = s.dw[k][t];
    }

    __syncthreads(); // the sums of all boxes are complete
    if (p.db && blockIdx.y == 0 && t < p.results) {
        double all = 0;
        for (int i = 0; i < WARPS; i++) all += s.db[t][i];
        p.db_parts[(int)blockIdx.x * p.results + t] = all;
    }

    if (p.sums.parts) {
        const int which = t / BLOCK_CHANNELS, at = t % BLOCK_CHANNELS;
        if (which < 2 && at < cb.channels)
            p.sums.parts[((int64_t)blockIdx.x * 2 + which) * p.channels +
                         side.from + cb.c0 + at] = box_grad_sum(s, which, at);
        channel_sums_finish(p.sums, (int)blockIdx.x, (int)blockIdx.y,
                            side.from + cb.c0, cb.channels, s.sums[0]);
    }
    reduce_dw_db(p);
}

// -- launching ---------------------------------------------------------------

/* Taps times channels of dy: columns of dy[p, k]. */
int columns_of(const ConvProblem *r)
{
    return (int)conv_taps(r) * r->cin;
}

/* log2 of a box along each axis. */
void box_of(Dims output, int (&bits)[3])
{
    bits[0] = output.d > 1 ? 2 : 0;
    bits[1] = output.d > 1 ? 2 : output.h > 1 ? 3 : 0;
    bits[2] = POSITION_BITS - bits[0] - bits[1];
}

UpconvAxis upconv_axis(const ConvProblem *r, int i, int bits)
{
    const Window *g = &r->win;
    const int count = (&r->output.d)[i], box = 1 << bits;
    return {count,
            (&r->input.d)[i],
            g->s[i],
            g->lo[i],
            bits,
            (box - 1) * g->s[i] + (g->k[i] - 1) * g->dil[i] + 1,
            divisor(ceil_div(count, box))};
}

int64_t boxes_of(const ConvProblem *r)
{
    int bits[3];
    box_of(r->output, bits);
    int64_t count = r->output.n;
    for (int i = 0; i < 3; i++)
        count *= ceil_div((&r->output.d)[i], 1 << bits[i]);
    return count;
}

int channel_blocks_of(const ConvProblem *r, int border)
{
    return (int)(ceil_div(border, BLOCK_CHANNELS) +
                 ceil_div(r->cout - border, BLOCK_CHANNELS));
}

/* Boxes of a block. */
int run_of(const ConvProblem *r, int border)
{
    const int64_t blocks = FILL / channel_blocks_of(r, border);
    return (int)least(most(ceil_div(boxes_of(r), blocks), MIN_RUN), MAX_RUN);
}

size_t dw_bytes(const ConvProblem *r, int border)
{
    return (size_t)(upconv_head_sum_parts(r, border) * conv_filter_size(r)) *
           sizeof(float);
}

/* Sets the axes and the offsets of the columns in a halo. */
void set_halo(const ConvProblem *r, UpconvHead *p)
{
    const Window *g = &r->win;
    int bits[3];
    box_of(r->output, bits);
    UpconvAxis *s = p->axis;
    for (int i = 0; i < 3; i++) s[i] = upconv_axis(r, i, bits[i]);
    const int pitch = s[2].reach * r->cin, plane = s[1].reach * pitch;
    p->every = divisor(r->cin), p->high = divisor(s[1].reach);
    p->line = divisor(pitch), p->halo = s[0].reach * plane;
    p->next = {THREADS / plane, THREADS % plane / pitch, THREADS % pitch};

    for (int k = 0; k < COLUMNS; k++) {
        const int tap = k / r->cin, w = tap % g->k[2];
        const int h = tap / g->k[2] % g->k[1], d = tap / g->k[2] / g->k[1];
        const int line =
            d * g->dil[0] * s[1].reach + h * g->dil[1]; // of the halo
        const int at = line * pitch + w * g->dil[2] * r->cin + k % r->cin;
        p->tap[k / 2] |= (uint32_t)(k < p->columns ? at : NO_TAP) << k % 2 * 16;
    }
}

ConcatOperand concat_operand(const Operand &x, const Target &dx,
                             const GradSums &grads, int from, int channels,
                             int channel_blocks)
{
    return {x.data, x.norm_on_load, dx, grads, from, channels, channel_blocks};
}

template <Precision P>
bool queue(const ConvProblem *r, const UpconvHead &p, dim3 blocks)
{
    if (!gpu_allows(upconv_head_bwd_kernel<P>, sizeof(Shared))) return false;
    LAUNCH(upconv_head_bwd_kernel<P>, blocks, THREADS, sizeof(Shared),
           gpu_stream(r->c->dev), p);
    return gpu_launched("upconv_head bwd");
}

} // namespace

// not with a deferred norm of y: it needs statistics, which this kernel does
// not write
bool upconv_head_narrow(const ConvProblem *r, int border)
{
    return call_op(r->c) == OP_upconv && !r->c->norm.deferred &&
           precision_copy(r->c->precision) != F32 && r->win.groups == 1 &&
           r->cin <= RESULTS && r->cout <= UPCONV_HEAD_X_CHANNELS &&
           r->cout % UNIT == 0 && border % UNIT == 0 &&
           columns_of(r) <= COLUMNS;
}

// with a window shorter than its stride, or y larger than x reaches (hi < 0),
// no position of x meets some elements of dy, and db would miss them
bool upconv_head_takes(const ConvProblem *r, int border)
{
    const Window *g = &r->win;
    int bits[3];
    int64_t halo = r->cin;
    bool all = true;

    box_of(r->output, bits);
    for (int i = 0; i < 3; i++) {
        // a window that is too long for a halo may be too long for an int
        const int64_t span = (int64_t)(g->k[i] - 1) * g->dil[i] + 1;
        const int64_t box = ((int64_t)1 << bits[i]) - 1;
        all = all && g->hi[i] >= 0 && span >= g->s[i] && span <= HALO_MOST &&
              g->s[i] <= HALO_MOST && g->lo[i] <= HALO_MOST;
        halo *= least(span + box * g->s[i], HALO_MOST + 1);
        halo = least(halo, HALO_MOST + 1);
    }
    return all && halo <= HALO_MOST && gpu_fits(sizeof(Shared)) &&
           upconv_head_narrow(r, border);
}

int upconv_head_sum_parts(const ConvProblem *r, int border)
{
    return (int)ceil_div(boxes_of(r), run_of(r, border));
}

size_t upconv_head_bytes(const ConvProblem *r, int border)
{
    return dw_bytes(r, border) + (size_t)upconv_head_sum_parts(r, border) *
                                     (size_t)r->cin * sizeof(double);
}

bool upconv_head_bwd(const ConvProblem *r, const Source &x, const void *w,
                     const Result &dx, float *dw, float *db, void *parts)
{
    const Call *c = r->c;
    const int count = upconv_head_sum_parts(r, x.border),
              border = x.border ? x.border : r->cout;
    if (!countable(c, rows(r->input)) || !countable(c, rows(r->output)))
        return false;
    UpconvHead p = {};
    p.dy = (const float *)c->dy->data, p.w = w;
    const int channel_blocks = (int)ceil_div(border, BLOCK_CHANNELS);
    p.side[0] = concat_operand(x.first, dx.first, dx.sums.grads, 0, border, 0);
    p.side[1] = concat_operand(x.second, dx.second, dx.sums.second, border,
                               r->cout - border, channel_blocks);
    p.channels = r->cout, p.results = r->cin, p.columns = columns_of(r);
    set_halo(r, &p);
    p.sums = dx.sums, p.parts = (float *)parts;
    p.db_parts = (double *)((char *)parts + dw_bytes(r, x.border));
    p.dw = dw, p.fresh_dw = is_fresh(c, 1);
    p.db = db, p.fresh_db = is_fresh(c, 2);
    const dim3 blocks((unsigned)count,
                      (unsigned)channel_blocks_of(r, x.border));

    // both reductions have the same shape; their counters are adjacent
    p.grid_reduce = p.sums.grid_reduce = grid_reduce_of(count, 2 * blocks.y);
    p.sums.counters =
        gpu_counters(c->dev, 2 * blocks.y * p.grid_reduce.counters);
    p.counters = p.sums.counters + blocks.y * p.grid_reduce.counters;
    p.count = (int)boxes_of(r), p.run = run_of(r, x.border);
    const double flops = conv_flops(r), all = (double)rows(r->output);

    // each block of channels reads dy
    double bytes = (double)moved(c->dy) * blocks.y +
                   channel_sums_traffic(p.sums) + moved(c->dx[1]) +
                   2.0 * (double)grid_reduce_traffic(p.grid_reduce) *
                       ((dw ? (double)moved(c->dx[1]) : 0) +
                        (db ? r->cin * sizeof(double) : 0));
    if (dw && !p.fresh_dw) bytes += moved(c->dx[1]);
    bool data = false;

    for (const ConcatOperand &s : p.side) {
        const int64_t numbers = (int64_t)all * s.channels;
        if (dw || (s.grads.runs && s.grads.x))
            bytes += conv_operand_bytes(r, numbers);
        if (s.dx.data) data = true, bytes += target_traffic(s.dx, numbers);
    }

    if (data) bytes += conv_operand_bytes(r, conv_filter_size(r));
    moves(bytes, (data ? flops : 0) + (dw ? flops : 0));
    return c->precision == PRECISION_bf16 ? queue<PRECISION_bf16>(r, p, blocks)
                                          : queue<PRECISION_f16>(r, p, blocks);
}
