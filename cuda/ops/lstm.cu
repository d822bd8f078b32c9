/* lstm.cu -- one layer of an LSTM in one direction; see ops.def.
 *
 * One launch does all steps. Units are cut into slices, samples into groups; a
 * block has one of each and keeps its slice of the weights in shared memory for
 * all steps. Each step it loads the states of its samples (backward: the
 * gradients of their gates) as written by all blocks of the group, in chunks of
 * up to 16 samples, multiplies, and computes the gates of its own units. Then
 * all blocks wait for each other: at most 64, a cooperative launch. Up to 64
 * units one slice has all units and no block waits. Above 512 units, and where
 * a GPU has fewer multiprocessors than there would be slices, weights come from
 * the L2 cache instead.
 *
 * Four adjacent threads have the four gates of one unit for four samples, a
 * quarter of the sum each: 16 multiply-adds for 2 loads of 16 bytes (backward
 * 4, with one word of weights). Then they exchange sums so that each has the
 * sums of one sample. The order of a sum depends only on its length.
 *
 * Shared memory: 64 KB of weights, 32 KB of states; or 96 KB of states. A step
 * takes at least 16 H^2 N multiply-adds and a barrier of some 2 us; weights
 * from the L2 cache add 16 H^2 bytes a group and step. */
#include "cuda/conv/conv.cuh"
#include "cuda/lib/vec.cuh"
#include "cuda/ops/length.cuh"

namespace {

enum {
    THREADS = 256,
    QUAD = 4,           // samples of a thread, and threads of a sum
    CHUNK = 16,         // states of samples loaded together, at most
    SLICES = 64,        // blocks of a cooperative launch
    WEIGHTS = 64 << 10, // bytes of shared memory for weights
    STATES = 32 << 10,  // for states, together with weights
    ROOM = 96 << 10,    // for states alone
    UNITS = 1536,       // most units: ROOM has the gates of QUAD samples
};

struct Lstm {
    const float *in; // z; backward: dy
    const float *w, *bias;
    float *y, *gates, *elements; // of all steps (no gates: see step())
    float *dc;                   // backward: dc (n, units)
    int *lengths, *longest;      // of each sample, of all
    unsigned *barrier;
    int n, steps, units;
    int slices, width;      // units of a slice
    int group, chunk;       // samples of a block; at a time
    bool reverse, together; // together: blocks wait for each other
};

/* Row (n, t) of step number s of a sample. */
__device__ __forceinline__ int64_t row_of_step(const Lstm &p, int n, int s)
{
    const int t = p.reverse ? p.lengths[n] - 1 - s : s;
    return (int64_t)n * p.steps + t;
}

__device__ __forceinline__ float sigmoid(float x)
{
    const float e = expf(-fabsf(x));
    return (x < 0 ? e : 1) / (1 + e);
}

/* Stores the lengths as integers and the largest, and resets the barrier. One
 * block. */
__global__ void __launch_bounds__(THREADS)
    lstm_lengths_kernel(const __grid_constant__ Lstm p, const float *lengths)
{
    SMEM(int, part, [THREADS]);
    int most = 0;
    for (int i = (int)threadIdx.x; i < p.n; i += THREADS) {
        const int own = own_count(lengths, i, p.steps);
        p.lengths[i] = own;
        most = max(most, own);
    }

    part[threadIdx.x] = most;
    __syncthreads();
    if (threadIdx.x) return;
    for (int i = 1; i < THREADS; i++) most = max(most, part[i]);
    *p.longest = most;
    *p.barrier = 0;
}

/* packed[k][u] = the weights of the four gates of unit u for state k: the
 * layout that the forward kernel reads from the L2 cache. */
__global__ void __launch_bounds__(BLOCK)
    lstm_pack_weights_kernel(const float *w, float4 *packed, int units)
{
    EACH(i, (int64_t)units * units)
    {
        const int64_t k = i / units, u = i - k * units;
        const int64_t gate = (int64_t)units * units;
        const float *at = w + u * units + k;
        packed[i] = make_float4(at[0], at[gate], at[2 * gate], at[3 * gate]);
    }
}

/* Sums over four adjacent threads: thread `k` gets the sum of v[k]. Pairs
 * first, so the order is the same for all. */
__device__ __forceinline__ float exchange(const float (&v)[QUAD], int k)
{
    float low = k & 1 ? v[1] : v[0], high = k & 1 ? v[3] : v[2];
    const float give_low = k & 1 ? v[0] : v[1], give_high = k & 1 ? v[2] : v[3];
    low += __shfl_xor_sync(~0u, give_low, 1);
    high += __shfl_xor_sync(~0u, give_high, 1);
    const float give = k & 2 ? low : high;
    return (k & 2 ? high : low) + __shfl_xor_sync(~0u, give, 2);
}

/* The item of a thread in a chunk: (unit, four samples, quarter). */
struct Item {
    int quarter, quad, unit; // unit within the slice
};

__device__ __forceinline__ Item item_of(int i, int quads)
{
    return {i % QUAD, i / QUAD % quads, i / QUAD / quads};
}

/* The block's ranges of units and samples. */
struct Slot {
    int u0, units, n0, n1;
};

__device__ __forceinline__ Slot slot_of(const Lstm &p)
{
    Slot b;
    b.u0 = (int)blockIdx.x % p.slices * p.width;
    b.units = min(p.width, p.units - b.u0);
    b.n0 = (int)blockIdx.x / p.slices * p.group;
    b.n1 = min(p.n, b.n0 + p.group);
    return b;
}

/* state[k][i] = from[row of sample i][k], 0 for samples without a step s. Other
 * blocks wrote it, so the load bypasses the L1 cache. */
__device__ __forceinline__ void fetch(const Lstm &p, const Slot &b, int first,
                                      int s, const float *from, int width,
                                      float *state)
{
    for (int i = 0; i < p.chunk; i++) {
        const int n = first + i;
        const bool has = n < b.n1 && s < p.lengths[n];
        const float *row = has ? from + row_of_step(p, n, s) * width : from;
        for (int k = (int)threadIdx.x; k < width; k += THREADS)
            state[k * p.chunk + i] = has ? __ldcg(row + k) : 0;
    }
}

/* Waits for all blocks that exchange results, or for the threads of this
 * one. */
__device__ __forceinline__ void wait_for_group(const Lstm &p)
{
    if (p.together)
        grid_barrier(p.barrier);
    else
        __syncthreads();
}

/* Clears the rows beyond the lengths in the slice's columns: `parts` blocks of
 * `units` columns of an array of rows. */
__device__ __forceinline__ void clear(const Lstm &p, const Slot &b, float *all,
                                      int parts)
{
    for (int n = b.n0; n < b.n1; n++) {
        const int rest = p.steps - p.lengths[n], row = b.units * parts;
        for (int i = (int)threadIdx.x; i < rest * row; i += THREADS) {
            const int t = p.lengths[n] + i / row, k = i % row;
            const int64_t at = ((int64_t)n * p.steps + t) * parts;
            all[(at + k / b.units) * p.units + b.u0 + k % b.units] = 0;
        }
    }
}

/* Step s of sample n, unit u; g has the sums of the product. */
__device__ __forceinline__ void step(const Lstm &p, int n, int s, int u,
                                     float (&g)[4])
{
    const int64_t row = row_of_step(p, n, s);
    for (int k = 0; k < 4; k++) {
        const int at = k * p.units + u;
        const float in = p.in[row * 4 * p.units + at];
        g[k] += p.bias ? in + p.bias[at] : in;
        g[k] = k == 2 ? tanhf(g[k]) : sigmoid(g[k]);
        if (p.gates) p.gates[row * 4 * p.units + at] = g[k];
    }

    // the thread that wrote the cell of the previous step reads it
    float *to = p.elements + (p.gates ? row : n) * p.units + u;
    float cell = g[0] * g[2];
    if (s) {
        const int64_t last = p.gates ? row_of_step(p, n, s - 1) : n;
        cell = fmaf(g[1], p.elements[last * p.units + u], cell);
    }
    *to = cell;
    p.y[row * p.units + u] = g[3] * tanhf(cell);
}

/* SHARED: the slice's weights [k][u] stay in shared memory; else they are read
 * from p.w, packed. */
template <bool SHARED>
__global__ void __launch_bounds__(THREADS, 1)
    lstm_fwd_kernel(const __grid_constant__ Lstm p)
{
    DYN_SMEM(float4, shared);
    const Slot b = slot_of(p);
    float *state = (float *)(shared + (SHARED ? p.units * p.width : 0));
    const int quads = p.chunk / QUAD, most = *p.longest;
    const int items = (b.units * quads * QUAD + WARP - 1) / WARP * WARP;

    for (int i = (int)threadIdx.x; SHARED && i < b.units * p.units * 4;
         i += THREADS) {
        const int k = i % p.units, u = i / p.units % b.units;
        const int gate = i / p.units / b.units;
        const int64_t row = (int64_t)gate * p.units + b.u0 + u;
        ((float *)(shared + k * p.width + u))[gate] = p.w[row * p.units + k];
    }

    for (int s = 0; s < most; s++) {
        for (int first = b.n0; first < b.n1; first += p.chunk) {
            __syncthreads();
            if (s) fetch(p, b, first, s - 1, p.y, p.units, state);
            __syncthreads();
            for (int i = (int)threadIdx.x; i < items; i += THREADS) {
                const Item t = item_of(i, quads);
                const bool has = t.unit < b.units;
                float sum[4][QUAD] = {}, g[4];
                for (int from = t.quarter; has && s && from < p.units;
                     from += CHAIN * QUAD) {
                    float acc[4][QUAD] = {};
                    const int to = min(from + CHAIN * QUAD, p.units);
                    for (int k = from; k < to; k += QUAD) {
                        const float4 w =
                            SHARED
                                ? shared[k * p.width + t.unit]
                                : ((const float4 *)p.w)[(int64_t)k * p.units +
                                                        b.u0 + t.unit];
                        const float4 h = *(
                            const float4 *)&state[k * p.chunk + t.quad * QUAD];
                        const float x[QUAD] = {h.x, h.y, h.z, h.w};
#pragma unroll
                        for (int j = 0; j < QUAD; j++) {
                            acc[0][j] = fmaf(w.x, x[j], acc[0][j]);
                            acc[1][j] = fmaf(w.y, x[j], acc[1][j]);
                            acc[2][j] = fmaf(w.z, x[j], acc[2][j]);
                            acc[3][j] = fmaf(w.w, x[j], acc[3][j]);
                        }
                    }
                    for (int k = 0; k < 4; k++)
                        for (int j = 0; j < QUAD; j++) sum[k][j] += acc[k][j];
                }
                for (int k = 0; k < 4; k++) g[k] = exchange(sum[k], t.quarter);
                const int n = first + t.quad * QUAD + t.quarter;
                if (has && n < b.n1 && s < p.lengths[n])
                    step(p, n, s, b.u0 + t.unit, g);
            }
        }
        wait_for_group(p);
    }
    clear(p, b, p.y, 1);
}

/* Backward of step s of sample n, unit u; dh: from the step after it. */
__device__ __forceinline__ void grad(const Lstm &p, int n, int s, int u,
                                     float dh)
{
    const int64_t row = row_of_step(p, n, s), h = p.units;
    float *gate = p.gates + row * 4 * h + u, *dc = p.dc + n * h + u;
    const float i = gate[0], f = gate[h], g = gate[2 * h], o = gate[3 * h];
    const float last = s ? p.elements[row_of_step(p, n, s - 1) * h + u] : 0;
    const float t = tanhf(p.elements[row * h + u]), d = p.in[row * h + u] + dh;
    float v = d * o * (1 - t * t);

    if (s + 1 < p.lengths[n]) v += *dc;
    gate[0] = v * g * i * (1 - i);
    gate[h] = v * last * f * (1 - f);
    gate[2 * h] = v * i * (1 - g * g);
    gate[3 * h] = d * t * o * (1 - o);
    *dc = v * f;
}

/* The steps in reverse. SHARED: the slice's columns of w, [row][u], stay in
 * shared memory. */
template <bool SHARED>
__global__ void __launch_bounds__(THREADS, 1)
    lstm_bwd_kernel(const __grid_constant__ Lstm p)
{
    DYN_SMEM(float, shared);
    const Slot b = slot_of(p);
    const int rows = 4 * p.units, quads = p.chunk / QUAD, most = *p.longest;
    float *state = shared + (SHARED ? rows * p.width : 0);
    const int items = (b.units * quads * QUAD + WARP - 1) / WARP * WARP;
    for (int i = (int)threadIdx.x; SHARED && i < rows * b.units; i += THREADS) {
        const int u = i % b.units, row = i / b.units;
        shared[row * p.width + u] = p.w[(int64_t)row * p.units + b.u0 + u];
    }

    for (int s = most - 1; s >= 0; s--) {
        for (int first = b.n0; first < b.n1; first += p.chunk) {
            __syncthreads();
            if (s + 1 < most) fetch(p, b, first, s + 1, p.gates, rows, state);
            __syncthreads();
            for (int i = (int)threadIdx.x; i < items; i += THREADS) {
                const Item t = item_of(i, quads);
                const bool has = t.unit < b.units;
                float sum[QUAD] = {};
                for (int from = t.quarter; has && s + 1 < most && from < rows;
                     from += CHAIN * QUAD) {
                    float acc[QUAD] = {};
                    const int to = min(from + CHAIN * QUAD, rows);
                    for (int k = from; k < to; k += QUAD) {
                        const float w =
                            SHARED ? shared[k * p.width + t.unit]
                                   : p.w[(int64_t)k * p.units + b.u0 + t.unit];
                        const float4 d = *(
                            const float4 *)&state[k * p.chunk + t.quad * QUAD];
                        acc[0] = fmaf(w, d.x, acc[0]);
                        acc[1] = fmaf(w, d.y, acc[1]);
                        acc[2] = fmaf(w, d.z, acc[2]);
                        acc[3] = fmaf(w, d.w, acc[3]);
                    }
                    for (int j = 0; j < QUAD; j++) sum[j] += acc[j];
                }
                const float dh = exchange(sum, t.quarter);
                const int n = first + t.quad * QUAD + t.quarter;
                if (has && n < b.n1 && s < p.lengths[n])
                    grad(p, n, s, b.u0 + t.unit, dh);
            }
        }
        wait_for_group(p);
    }
    clear(p, b, p.gates, 4);
}

/* dx (+)= dz. */
__global__ void __launch_bounds__(BLOCK)
    lstm_store_dx_kernel(const float *from, float *to, int64_t vecs, bool fresh)
{
    EACH(i, vecs)
    store_vec<4>(to + i * 4, load<4>(from + i * 4), fresh);
}

// -- partition of a call -----------------------------------------------------

struct Cut {
    bool shared, together;
    int slices, width, groups, group, chunk;
    size_t bytes; // of shared memory
};

/* Sums, and so results, do not depend on the partition. */
Cut cut_of(const Call *c, bool back, int processors)
{
    const Dims s = c->y->dim;
    const int64_t h = s.c, column = 16 * h; // bytes of a unit's weights
    Cut k = {};

    k.width = (int)least(h, most(1, WEIGHTS / column));
    k.shared = k.width * column <= WEIGHTS && ceil_div(h, k.width) <= SLICES;
    if (!k.shared) k.width = (int)ceil_div(h, SLICES);
    k.slices = (int)ceil_div(h, k.width);
    if (k.slices > processors) k.slices = 1, k.width = (int)h, k.shared = false;
    k.together = k.slices > 1;
    const int64_t blocks = least(SLICES, processors);
    k.groups = (int)ceil_div(s.n, QUAD);
    if (k.together) k.groups = (int)least(k.groups, blocks / k.slices);
    k.group = (int)ceil_div(s.n, k.groups);
    k.groups = (int)ceil_div(s.n, k.group);
    const int64_t sample = (back ? 4 : 1) * h * (int64_t)sizeof(float);
    const int64_t fit = (k.shared ? STATES : ROOM) / sample;
    k.chunk = (int)(least(CHUNK, most(QUAD, fit)) / QUAD * QUAD);
    k.chunk = (int)least(k.chunk, ceil_div(k.group, QUAD) * QUAD);
    k.bytes = (size_t)(k.chunk * sample + k.shared * k.width * column);
    return k;
}

/* The layout of scratch: barrier and longest, lengths, dc or cells, packed
 * weights; each part begins at a multiple of 16 bytes. */
enum { HEAD = 4 };

int64_t rounded(int64_t counters)
{
    return (counters + 3) / 4 * 4;
}

size_t scratch_bytes(const Call *c)
{
    const Dims s = c->y->dim;
    int64_t counters = HEAD + rounded(s.n) + rounded((int64_t)s.n * s.c) +
                       4 * (int64_t)s.c * s.c;
    return (size_t)counters * 4;
}

bool fits(const Call *c)
{
    const Dims s = c->y->dim;
    if (s.c > UNITS)
        return fail_device("lstm: %d units; the GPU kernels hold the states of "
                           "at most %d: use fewer, or --device cpu",
                           s.c, (int)UNITS);
    return countable(c, rows(s));
}

Lstm lstm_of(const Call *c, const Cut *k)
{
    const Dims s = c->y->dim;
    Lstm p = {};
    float *at = (float *)c->scratch + HEAD;

    p.barrier = (unsigned *)c->scratch;
    p.longest = (int *)c->scratch + 1;
    p.lengths = (int *)at;
    p.dc = p.elements = at + rounded(s.n);
    p.w = values(c->x[1]), p.bias = values(c->x[2]), p.y = values(c->y);
    p.gates = (float *)c->saved;
    if (p.gates) p.elements = p.gates + numel(c->x[0]->dim);
    p.n = s.n, p.steps = s.w, p.units = s.c;
    p.slices = k->slices, p.width = k->width;
    p.group = k->group, p.chunk = k->chunk;
    p.reverse = c->attr->lstm.reverse, p.together = k->together;
    return p;
}

template <class K>
bool launch(const Call *c, K *kernel, const Cut *k, const Lstm &p,
            const char *name)
{
    cudaStream_t stream = gpu_stream(c->dev);
    const unsigned blocks = (unsigned)(k->slices * k->groups);
    if (!gpu_allows(kernel, k->bytes))
        return within("lstm of %d units", c->y->dim.c);
    if (k->together)
        LAUNCH_COOP(kernel, blocks, THREADS, k->bytes, stream, p);
    else
        LAUNCH(kernel, blocks, THREADS, k->bytes, stream, p);
    return gpu_launched(name);
}

ConvProblem lstm_wgrad_problem(const Call *c)
{
    return conv_problem(c, op_window(c->attr, c->x[1]), c->y->dim,
                        c->x[0]->dim);
}

} // namespace

extern "C" {

Space cuda_lstm_space(const Call *c)
{
    Space s = {};
    s.fwd = scratch_bytes(c);
    if (!c->dy) return s; // evaluation: nothing is saved
    const ConvProblem r = lstm_wgrad_problem(c);
    s.saved = (size_t)numel(c->y->dim) * 5 * sizeof(float);
    s.bwd = (size_t)most((int64_t)s.fwd, (int64_t)conv_wgrad_bytes(&r));
    s.bwd = (size_t)most((int64_t)s.bwd,
                         (int64_t)conv_bias_grad_bytes(c->x[0]->dim));
    return s;
}

bool cuda_lstm_fwd(const Call *c)
{
    const Cut k = cut_of(c, false, gpu_processors(c->dev));
    cudaStream_t stream = gpu_stream(c->dev);
    if (!fits(c)) return false;
    Lstm p = lstm_of(c, &k);
    p.in = values(c->x[0]);
    LAUNCH(lstm_lengths_kernel, 1, THREADS, 0, stream, p, values(c->x[3]));
    if (!gpu_launched("lstm, lengths")) return false;
    if (k.shared) return launch(c, &lstm_fwd_kernel<true>, &k, p, "lstm");
    const int64_t states = rounded((int64_t)p.n * p.units);
    float4 *packed = (float4 *)((float *)p.lengths + rounded(p.n) + states);
    LAUNCH(lstm_pack_weights_kernel, blocks_for((int64_t)p.units * p.units),
           BLOCK, 0, stream, p.w, packed, p.units);
    if (!gpu_launched("lstm, weights")) return false;
    p.w = (const float *)packed;
    return launch(c, &lstm_fwd_kernel<false>, &k, p, "lstm");
}

bool cuda_lstm_bwd(const Call *c)
{
    const Cut k = cut_of(c, true, gpu_processors(c->dev));
    cudaStream_t stream = gpu_stream(c->dev);
    if (!fits(c)) return false;
    Lstm p = lstm_of(c, &k);
    p.in = values(c->dy);
    LAUNCH(lstm_lengths_kernel, 1, THREADS, 0, stream, p, values(c->x[3]));
    if (!gpu_launched("lstm, lengths")) return false;
    bool ok = k.shared
                  ? launch(c, &lstm_bwd_kernel<true>, &k, p, "lstm, backward")
                  : launch(c, &lstm_bwd_kernel<false>, &k, p, "lstm, backward");
    if (!ok) return false;

    // the gates have become dz; the scratch is free from here on
    const int64_t vecs = numel(c->x[0]->dim) / 4;
    if (c->dx[0]) {
        LAUNCH(lstm_store_dx_kernel, blocks_for(vecs), BLOCK, 0, stream,
               p.gates, values(c->dx[0]), vecs, is_fresh(c, 0));
        if (!gpu_launched("lstm, dx")) return false;
    }

    const ConvProblem r = lstm_wgrad_problem(c);
    if (c->dx[1] &&
        !conv_wgrad(&r, {{p.y, {}, {}}, {}, 0}, {{p.gates, {}, {}}, {}, 0},
                    values(c->dx[1]), is_fresh(c, 1), NULL, c->scratch))
        return false;
    const Tensor dz = {c->x[0]->dim, F32, c->x[0]->rank, p.gates};
    return !c->dx[2] ||
           conv_bias_grad(c, &dz, values(c->dx[2]), is_fresh(c, 2));
}
}
