/* dgrad_wgrad.cu -- dgrad and wgrad of a 2-D 3x3 convolution with 32 filters
 * and 32 or 64 input channels, as in a U-Net at full resolution, from one
 * reading of dy and x, in 16 bits:
 *
 *     dx[q, a]    = sum_{tap, b} dy[q + 1 - tap, b] w[b, tap, a]
 *     dw[b,tap,a] = sum_q        dy[q + 1 - tap, b] x[q, a]
 *
 * Both products read the halo of dy around the positions of x, and memory is
 * the bound. dy is linear in the gradient dz after the deferred norm and in the
 * layer's y (norm_bwd_on_load.cuh): two kernels would compute dy once, store
 * it, and read dy and x again.
 *
 * A block has 32 input channels and loops over a run of boxes of 8x16
 * positions. w stays in shared memory, the sums of dw in registers. The halo of
 * the next box is in flight (cp.async) while the current one is multiplied. For
 * each box:
 *
 * - norm backward: dy replaces dz in shared memory, each thread on the lines
 *   that it copied;
 * - dx: a warp computes two lines of the box by 16 channels, stores them and
 *   adds the gradient sums (grad_sums.cuh), as x is in shared memory;
 * - dw: a warp computes 16 channels of x by 8 of dy, for all taps; a line of
 *   the halo serves the three lines of the box that read it.
 *
 * Counted: 300 bytes of shared memory an mma for dx, 164 for dw. Bound by
 * memory: 8 B an element (16-bit dz, y, x, dx) if the input has as many
 * channels as dy, 2 B more if dx is added to; and the parts of dw, 72 KB a
 * block written and read, which the last blocks add (grid_reduce.cuh). */
#include "cuda/conv/dgrad_wgrad.cuh"
#include "cuda/conv/igemm_tile_epilogue.cuh"

namespace {

enum {
    CHANNELS = 32, // of dy, and of a block's input: a row of TILE_ROW bytes
    SIDE = 3,      // taps of the window along an axis
    TAPS = SIDE * SIDE,
    TAP_BYTES = CHANNELS * TILE_ROW, // of w
    HIGH = 8,                        // extents of a box
    WIDE = 16,
    POSITIONS = HIGH * WIDE,
    HALO_HIGH = HIGH + SIDE - 1,
    HALO_WIDE = WIDE + SIDE - 1,
    HALO_ROWS = HALO_HIGH * HALO_WIDE,
    THREADS = 256,
    WARPS = THREADS / WARP,
    BLOCKS = 2,  // on a multiprocessor: 128 registers a thread
    FILL = 256,  // blocks that fill any GPU
    MIN_RUN = 8, // boxes that are worth a part of dw
    MAX_RUN = CHAIN * CHAIN / POSITIONS, // the second sum is a chain, too
    ROW_STEP = THREADS / TILE_LINES,     // rows that the block copies at a time
    LINES = 2,                           // lines of the box, of a warp's dx
    ACROSS = HIGH / LINES,
    HALF = CHANNELS / (WARPS / ACROSS), // channels of a warp's dx
    PITCH = HALF + 8, // floats of a transposed row: no bank conflicts
};
static_assert(HALF == 16 && WIDE == 16, "fragments of mma");
static_assert(WARPS == CHANNELS / 16 * (CHANNELS / 8), "warps of dw");

/* One tensor of the input, which may be an implicit concat of two. */
struct ConcatOperand {
    const void *x;
    NormOnLoad norm_on_load;
    Target dx;
    GradSums grads;
    int from, channels; // its first channel in the input; its channels
};

struct DgradWgrad {
    const void *dz, *w;
    NormBwd norm_bwd;
    ConcatOperand side[2];
    int border;        // the first channel of side[1]
    int channels;      // of both tensors
    ChannelSums sums;  // over dx, one part a block
    float *dw, *parts; // parts: (blocks, elements of w)
    bool fresh;
    GridReduce grid_reduce; // over the parts of dw
    unsigned *counters;
    int high, wide; // extents of input and dy
    Divisor boxes[2];
    int count, run; // boxes; boxes of a block
};

/* The operands of a box in shared memory: dz (then dy), the y of the layer, and
 * x. After dy is computed, x after its deferred norm takes the place of y. */
struct Stage {
    unsigned char dy[HALO_ROWS * TILE_ROW], y[HALO_ROWS * TILE_ROW];
    unsigned char x[POSITIONS * TILE_ROW];
};

struct Shared {
    unsigned char w[TAPS][TAP_BYTES];
    Stage stage[2];
    float transposed[WARPS][WIDE * PITCH];
    float4 norm_bwd[CHANNELS], grads[CHANNELS];
    float2 deferred_norm[CHANNELS];
    double sums[THREADS];
};
static_assert(sizeof(Shared) <= SHARED_MOST, "fits a block from 8.0 on");

/* A box: its sample and first position. */
struct Box {
    int n, h, w;
};

__device__ __forceinline__ Box box_at(const DgradWgrad &p, int i)
{
    uint32_t rest = (uint32_t)i;
    Box b;
    b.w = (int)split(&rest, p.boxes[1]) * WIDE;
    b.h = (int)split(&rest, p.boxes[0]) * HIGH;
    b.n = (int)rest;
    return b;
}

/* The row at (h, w) relative to the box; -1: outside. */
__device__ __forceinline__ int input_row(const DgradWgrad &p, const Box &b,
                                         int h, int w)
{
    h += b.h, w += b.w;
    const bool inside = h >= 0 && h < p.high && w >= 0 && w < p.wide;
    return inside ? (b.n * p.high + h) * p.wide + w : -1;
}

__device__ __forceinline__ int halo_row(const DgradWgrad &p, const Box &b,
                                        int r)
{
    return input_row(p, b, r / HALO_WIDE - 1, r % HALO_WIDE - 1);
}

/* The offset of a line of halo row r, swizzled by its column in the halo, so
 * one ldmatrix address serves all lines of the halo. */
__device__ __forceinline__ int halo_place(int r, int line)
{
    return r / HALO_WIDE * HALO_WIDE * TILE_ROW +
           tile_place<TILE_LINES>(r % HALO_WIDE, line);
}

/* Issues the copies of a box; a thread copies one line of each of its rows. */
__device__ __forceinline__ void fill(const DgradWgrad &p,
                                     const ConcatOperand &side, int c0,
                                     const Box &b, Stage *to)
{
    const int line = (int)threadIdx.x % TILE_LINES;
    const int first = (int)threadIdx.x / TILE_LINES;
#pragma unroll 1
    for (int r = first; r < HALO_ROWS; r += ROW_STEP) {
        const int row = halo_row(p, b, r), place = halo_place(r, line);
        const int64_t at = (int64_t)(row < 0 ? 0 : row) * CHANNELS + line * 8;
        cp_async16(to->dy + place, (const uint16_t *)p.dz + at, row >= 0);
        cp_async16(to->y + place, (const uint16_t *)p.norm_bwd.x + at,
                   row >= 0);
    }
#pragma unroll 1
    for (int r = first; r < POSITIONS; r += ROW_STEP) {
        const int row = input_row(p, b, r / WIDE, r % WIDE);
        const int64_t at =
            (int64_t)(row < 0 ? 0 : row) * side.channels + c0 - side.from;
        cp_async16(to->x + tile_place<TILE_LINES>(r, line),
                   (const uint16_t *)side.x + at + line * 8, row >= 0);
    }
}

/* Applies norm backward to the lines that this thread copied, once they have
 * arrived; dy outside of its extents stays zero. */
template <Dtype D>
__device__ __forceinline__ void norm_bwd(const DgradWgrad &p, const Box &b,
                                         const float4 *table, Stage *s)
{
    const int line = (int)threadIdx.x % TILE_LINES;
#pragma unroll 1
    for (int r = (int)threadIdx.x / TILE_LINES; r < HALO_ROWS; r += ROW_STEP) {
        if (halo_row(p, b, r) < 0) continue;
        const int place = halo_place(r, line);
        uint4 both = *(const uint4 *)(s->dy + place);
        const uint4 behind = *(const uint4 *)(s->y + place);
        uint32_t *v = &both.x;
        const uint32_t *x = &behind.x;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float4 *by = &table[line * 8 + i * 2];
            const float2 dz = Stored<D>::unpack(v[i]),
                         y = Stored<D>::unpack(x[i]);
            v[i] = Stored<D>::pack(
                norm_bwd_loaded<D>(by[0], p.norm_bwd.leak, y.x, dz.x),
                norm_bwd_loaded<D>(by[1], p.norm_bwd.leak, y.y, dz.y));
        }
        *(uint4 *)(s->dy + place) = both;
    }
}

/* Writes x after its deferred norm to the place of y. */
template <Dtype D>
__device__ __forceinline__ void apply_norm(const DgradWgrad &p, const Act &act,
                                           const Box &b, const float2 *table,
                                           Stage *s)
{
    const int line = (int)threadIdx.x % TILE_LINES;
#pragma unroll 1
    for (int r = (int)threadIdx.x / TILE_LINES; r < POSITIONS; r += ROW_STEP) {
        const int place = tile_place<TILE_LINES>(r, line);
        uint4 all = *(const uint4 *)(s->x + place);
        uint32_t *v = &all.x;
        if (input_row(p, b, r / WIDE, r % WIDE) >= 0)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float2 *by = &table[line * 8 + i * 2];
                const float2 x = Stored<D>::unpack(v[i]);
                v[i] = Stored<D>::pack(norm_act_one<D>(act, by[0], x.x),
                                       norm_act_one<D>(act, by[1], x.y));
            }
        *(uint4 *)(s->y + place) = all;
    }
}

/* dx of a warp: LINES lines of the box, from `line` on, by 16 channels. With
 * halo lines counted from `line`, line i of dx multiplies halo line u by the
 * taps of row i + 2 - u. */
template <Precision P>
__device__ __forceinline__ void multiply_dx(const Shared &s, const Stage &from,
                                            int line, int half,
                                            float (&acc)[LINES][2][4])
{
    const int lane = (int)threadIdx.x % WARP;
#pragma unroll 1
    for (int i = 0; i < SIDE * 2; i++) {
        const int shift = i / 2, chunk = i % 2 * 2; // lines of 16 bytes
        const unsigned char *loaded =
            from.dy + line * HALO_WIDE * TILE_ROW +
            tile_place<TILE_LINES>(shift + lane % 16, chunk + lane / 16);
        const unsigned char *w =
            s.w[SIDE - 1 - shift] +
            tile_place<TILE_LINES>(lane % 16 + chunk * 8, half * 2 + lane / 16);
        uint32_t b[SIDE][4];
#pragma unroll
        for (int u = 0; u < LINES + SIDE - 1; u++) {
            uint32_t a[4];
            // loaded at the first use, to save registers
            const int row = SIDE - 1 - u;
            if (row >= 0) ldmatrix_x4_trans(b[row], w + row * SIDE * TAP_BYTES);
            ldmatrix_x4(a, loaded + u * HALO_WIDE * TILE_ROW);
#pragma unroll
            for (int j = 0; j < LINES; j++) {
                const int k = j + row;
                if (k < 0 || k >= SIDE) continue;
#pragma unroll
                for (int n = 0; n < 2; n++)
                    PrecisionTraits<P>::multiply(
                        acc[j][n], a, {b[k][2 * n], b[k][2 * n + 1]});
            }
        }
    }
}

/* dw of a warp: 16 channels of x by 8 of dy, all taps. */
template <Precision P>
__device__ __forceinline__ void multiply_dw(const unsigned char *input,
                                            const unsigned char *halo, int m,
                                            int n, float (&acc)[TAPS][4])
{
    const int lane = (int)threadIdx.x % WARP;
    input +=
        tile_place<TILE_LINES>(lane % 8 + lane / 16 * 8, m * 2 + lane / 8 % 2);
    const unsigned char *two =
        halo + tile_place<TILE_LINES>(lane % 16 + lane / 16, n);
    const unsigned char *third =
        halo + tile_place<TILE_LINES>(lane % 16 + 2, n);
    uint32_t x[SIDE][4];
#pragma unroll
    for (int u = 0; u < HALO_HIGH; u++) {
        uint32_t y[4], last[2];
        if (u < HIGH)
            ldmatrix_x4_trans(x[u % SIDE], input + u * WIDE * TILE_ROW);
        ldmatrix_x4_trans(y, two + u * HALO_WIDE * TILE_ROW);
        ldmatrix_x2_trans(last, third + u * HALO_WIDE * TILE_ROW);
        const uint32_t b[SIDE][2] = {
            {y[0], y[1]}, {y[2], y[3]}, {last[0], last[1]}};
#pragma unroll
        for (int k = 0; k < SIDE; k++) {
            const int h = u + k - (SIDE - 1); // the line of the box
            if (h < 0 || h >= HIGH) continue;
#pragma unroll
            for (int shift = 0; shift < SIDE; shift++)
                PrecisionTraits<P>::multiply(acc[k * SIDE + SIDE - 1 - shift],
                                             x[h % SIDE], b[shift]);
        }
    }
}

/* Stores dx of a warp. Returns this lane's gradient sum of the box: sum number
 * l / 16 of channel l % 2 * 8 + l / 2 % 4 * 2 + l / 8 % 2 of 16, for lane l. */
template <Dtype D>
__device__ __forceinline__ float store_dx(const DgradWgrad &p,
                                          const ConcatOperand &side, int c0,
                                          const Box &b, const Shared &s,
                                          const Stage &from, int line, int half,
                                          const float (&acc)[LINES][2][4],
                                          float *transposed)
{
    const int lane = (int)threadIdx.x % WARP;
    const int mine = half * 2 + lane % 2; // line of 16 bytes
    uint4 stored[LINES] = {};

#pragma unroll
    for (int i = 0; i < LINES; i++) {
        transpose_rows<PITCH>(acc[i], transposed);
        const int row = input_row(p, b, line + i, lane / 2);
        if (row < 0) continue;
        uint4 *const at =
            (uint4 *)((uint16_t *)side.dx.data + (int64_t)row * side.channels +
                      c0 - side.from + mine * 8);
        if (!side.dx.fresh) stored[i] = *at;
        uint32_t *two = &stored[i].x;
#pragma unroll
        for (int k = 0; k < 4; k++) {
            float2 v = *(const float2 *)&transposed[lane / 2 * PITCH +
                                                    lane % 2 * 8 + 2 * k];
            if (!side.dx.fresh) {
                const float2 old = Stored<D>::unpack(two[k]);
                v.x = old.x + v.x, v.y = old.y + v.y;
            }
            two[k] = Stored<D>::pack(v.x, v.y);
        }
        *at = stored[i];
    }

    if (!side.grads.runs) return 0;

    // over the stored values, two channels at a time to save registers
    float mine_of_all = 0;
#pragma unroll
    for (int k = 0; k < 4; k++) {
        const float4 *by = &s.grads[mine * 8 + 2 * k];
        float sum[4] = {};
#pragma unroll
        for (int i = 0; i < LINES; i++) {
            const int place = (line + i) * WIDE + lane / 2;
            const float2 v = Stored<D>::unpack((&stored[i].x)[k]);
            const float2 x = Stored<D>::unpack(*(
                const uint32_t *)(from.x + tile_place<TILE_LINES>(place, mine) +
                                  4 * k));
            grad_sums_add(by[0], x.x, v.x, &sum[0], &sum[2]);
            grad_sums_add(by[1], x.y, v.y, &sum[1], &sum[3]);
        }
        const float all = warp_sum_four(sum, 2);
        if (lane / 2 % 4 == k) mine_of_all = all;
    }
    return mine_of_all;
}

/* The reduction of dw: the last block of each 32 input channels adds the parts.
 */
static __device__ __attribute__((noinline)) void reduce_dw(const DgradWgrad &p)
{
    const int lines = CHANNELS / 4; // of 16 bytes
    const int64_t size = (int64_t)CHANNELS * TAPS * p.channels;
    auto add = [&](int first, int step, int count, bool all) {
        float *parts = p.parts + first * size;
        for (int i = (int)threadIdx.x; i < CHANNELS * TAPS * lines;
             i += THREADS) {
            const int64_t at = (int64_t)(i / lines) * p.channels +
                               (int)blockIdx.y * CHANNELS + i % lines * 4;
            double sum[4];
            strided_sum_four(parts + at, step * size, count, sum);
            float *to = all ? p.dw + at : parts + at;
            for (int j = 0; j < 4; j++)
                put(&to[j], (float)sum[j], !all || p.fresh);
        }
    };
    grid_reduce(p.grid_reduce, (int)blockIdx.x,
                p.counters + (int)blockIdx.y * p.grid_reduce.counters, add);
}

template <Precision P>
__global__ void __launch_bounds__(THREADS, BLOCKS)
    dgrad_wgrad_kernel(const __grid_constant__ DgradWgrad p)
{
    constexpr Dtype D = NARROW_TYPE<P>;
    need_sm80("94 KB of shared memory");
    DYN_SMEM(unsigned char, bytes);
    Shared &s = *(Shared *)bytes;
    const int t = (int)threadIdx.x, warp = t / WARP, lane = t % WARP;
    const int c0 = (int)blockIdx.y * CHANNELS;
    const ConcatOperand &side = p.side[c0 >= p.border];
    const int first = (int)blockIdx.x * p.run;
    const int count = p.run < p.count - first ? p.run : p.count - first;

    for (int i = t; i < TAPS * CHANNELS * TILE_LINES; i += THREADS) {
        const int line = i % TILE_LINES, k = i / TILE_LINES % TAPS;
        const int b = i / TILE_LINES / TAPS;
        cp_async16(s.w[k] + tile_place<TILE_LINES>(b, line),
                   (const uint16_t *)p.w +
                       (int64_t)(b * TAPS + k) * p.channels + c0 + line * 8,
                   true);
    }

    fill(p, side, c0, box_at(p, first), &s.stage[0]);
    cp_async_commit();
    s.sums[t] = 0;

    if (t < CHANNELS) {
        const int c = c0 - side.from + t;
        s.norm_bwd[t] = p.norm_bwd.table[t];
        if (side.grads.runs) s.grads[t] = grad_sums_channel(side.grads, c);
        if (side.norm_on_load.table)
            s.deferred_norm[t] = side.norm_on_load.table[c];
    }

    __syncthreads();

    const int line = warp % ACROSS * LINES, half = warp / ACROSS;
    const int m = warp % 2, n = warp / 2; // of dw
    float acc[TAPS][4] = {}, sum[TAPS][4] = {};

    for (int i = 0; i < count; i++) {
        const Box b = box_at(p, first + i);
        Stage &now = s.stage[i % 2];
        cp_async_wait<0>();
        norm_bwd<D>(p, b, s.norm_bwd, &now);
        __syncthreads(); // and the previous box has been used
        if (i + 1 < count)
            fill(p, side, c0, box_at(p, first + i + 1), &s.stage[(i + 1) % 2]);
        cp_async_commit();
        if (side.norm_on_load.table)
            apply_norm<D>(p, side.norm_on_load.act, b, s.deferred_norm, &now);
        __syncwarp(); // some lanes skip the norm, all multiply
        if (side.dx.data) {
            float dx[LINES][2][4] = {};
            multiply_dx<P>(s, now, line, half, dx);
            const float boxed = store_dx<D>(p, side, c0, b, s, now, line, half,
                                            dx, s.transposed[warp]);
            s.sums[t] += (double)boxed;
        }
        __syncthreads();
        multiply_dw<P>(side.norm_on_load.table ? now.y : now.x, now.dy, m, n,
                       acc);
        if ((i + 1) % (CHAIN / POSITIONS) && i + 1 < count) continue;
#pragma unroll
        for (int k = 0; k < TAPS * 4; k++)
            sum[k / 4][k % 4] += acc[k / 4][k % 4], acc[k / 4][k % 4] = 0;
    }

    // d[i] of mma is row lane / 4 + i / 2 * 8, column lane % 4 * 2 + i % 2
#pragma unroll
    for (int k = 0; k < TAPS; k++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int a = m * 16 + lane / 4 + i / 2 * 8;
            const int64_t b =
                (int64_t)blockIdx.x * CHANNELS + n * 8 + lane % 4 * 2 + i % 2;
            p.parts[(b * TAPS + k) * p.channels + c0 + a] = sum[k][i];
        }

    if (p.sums.parts) {
        const int which = t / CHANNELS, c = t % CHANNELS;
        // the lane that has the sum in each warp, see store_dx
        const int at = c / HALF * ACROSS * WARP + which * 16 + c % 2 * 8 +
                       c / 2 % 4 * 2 + c / 8 % 2;
        __syncthreads();
        double all = 0;
        for (int w = 0; w < ACROSS && which < 2; w++)
            all += s.sums[at + w * WARP];
        if (which < 2)
            p.sums.parts[((int64_t)blockIdx.x * 2 + which) * p.channels + c0 +
                         c] = all;
        channel_sums_finish(p.sums, (int)blockIdx.x, (int)blockIdx.y, c0,
                            CHANNELS, s.sums);
    }
    reduce_dw(p);
}

int64_t boxes_of(Dims s)
{
    return s.n * ceil_div(s.h, HIGH) * ceil_div(s.w, WIDE);
}

/* Boxes of a block. */
int run_of(const ConvProblem *r)
{
    const int64_t boxes = boxes_of(r->output), tiles = r->cin / CHANNELS;
    const int64_t run = most(ceil_div(boxes, most(1, FILL / tiles)), MIN_RUN);
    return (int)least(run, MAX_RUN);
}

ConcatOperand concat_operand(const Operand &x, const Target &dx,
                             const GradSums &grads, int from, int channels)
{
    return {x.data, x.norm_on_load, dx, grads, from, channels};
}

template <Precision P>
bool queue(const ConvProblem *r, const DgradWgrad &p, dim3 blocks)
{
    if (!gpu_allows(dgrad_wgrad_kernel<P>, sizeof(Shared))) return false;
    LAUNCH(dgrad_wgrad_kernel<P>, blocks, THREADS, sizeof(Shared),
           gpu_stream(r->c->dev), p);
    return gpu_launched("dgrad_wgrad");
}

} // namespace

bool dgrad_wgrad_takes(const ConvProblem *r, int border)
{
    const Window *g = &r->win;
    for (int i = 0; i < 3; i++) {
        const int side = i ? SIDE : 1;
        if (g->k[i] != side || g->s[i] != 1 || g->dil[i] != 1 ||
            g->lo[i] != side / 2 || g->hi[i] != side / 2)
            return false;
    }
    return gpu_fits(sizeof(Shared)) && precision_copy(r->c->precision) != F32 &&
           g->groups == 1 && r->input.d == 1 && r->cout == CHANNELS &&
           (r->cin == CHANNELS || r->cin == 2 * CHANNELS) &&
           (border == 0 || border == CHANNELS);
}

int dgrad_wgrad_sum_parts(const ConvProblem *r)
{
    return (int)ceil_div(boxes_of(r->output), run_of(r));
}

size_t dgrad_wgrad_bytes(const ConvProblem *r)
{
    return (size_t)(dgrad_wgrad_sum_parts(r) * conv_filter_size(r)) *
           sizeof(float);
}

bool dgrad_wgrad_run(const ConvProblem *r, const Source &input,
                     const Operand &dy, const void *w, const Result &dx,
                     float *dw, bool fresh, float *parts)
{
    const int64_t all = numel(r->input);
    const int count = dgrad_wgrad_sum_parts(r),
              border = input.border ? input.border : r->cin;
    if (!countable(r->c, rows(r->input))) return false;
    DgradWgrad p = {};
    p.dz = dy.data, p.norm_bwd = dy.norm_bwd, p.w = w;
    p.side[0] = concat_operand(input.first, dx.first, dx.sums.grads, 0, border);
    if (input.border)
        p.side[1] = concat_operand(input.second, dx.second, dx.sums.second,
                                   border, r->cin - border);
    p.border = border, p.channels = r->cin;
    p.sums = dx.sums, p.parts = parts, p.dw = dw, p.fresh = fresh;
    const dim3 blocks((unsigned)count, (unsigned)(r->cin / CHANNELS));

    // both reductions have the same shape; their counters are adjacent
    p.grid_reduce = p.sums.grid_reduce = grid_reduce_of(count, 2 * blocks.y);
    p.sums.counters =
        gpu_counters(r->c->dev, 2 * blocks.y * p.grid_reduce.counters);
    p.counters = p.sums.counters + blocks.y * p.grid_reduce.counters;
    p.high = r->output.h, p.wide = r->output.w;
    p.boxes[0] = divisor(ceil_div(p.high, HIGH));
    p.boxes[1] = divisor(ceil_div(p.wide, WIDE));
    p.count = (int)boxes_of(r->output), p.run = run_of(r);
    const int64_t times =
        (fresh ? 1 : 2) + 2 * grid_reduce_traffic(p.grid_reduce);
    double bytes = conv_operand_bytes(r, 2 * numel(r->output) + all +
                                             conv_filter_size(r)) +
                   (double)(times * conv_filter_size(r)) * sizeof(float) +
                   channel_sums_traffic(p.sums);

    // gradient sums use the x that is in shared memory
    for (const ConcatOperand &s : p.side)
        if (s.dx.data) bytes += target_traffic(s.dx, all / r->cin * s.channels);
    moves(bytes, 2 * conv_flops(r));
    return r->c->precision == PRECISION_bf16
               ? queue<PRECISION_bf16>(r, p, blocks)
               : queue<PRECISION_f16>(r, p, blocks);
}
