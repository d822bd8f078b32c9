/* lstm.cu -- one layer of an LSTM in one direction, or in both at once; see
 * ops.def.
 *
 * One launch runs all steps of one call, or of two calls with equal extents
 * (Call.pair: the directions of a layer). Units are cut into slices, samples
 * into groups; a block has one slice of one group of one direction, and keeps
 * the weights of its slice in shared memory for all steps. In each step it
 * copies the states of its samples (backward: the gradients of their gates)
 * from global memory, multiplies, computes the gates of its own units and
 * writes their states for the other blocks. Then all blocks wait for each
 * other, in a cooperative launch; with one slice no block waits. Weights that
 * do not fit in shared memory come from the L2 cache, repacked.
 *
 * A thread has four columns of weights (the gates of a unit; backward four
 * units) and four samples: 16 multiply-adds for two loads of 16 bytes. PARTS
 * adjacent threads share a sum; thread `part` takes the terms k % PARTS ==
 * part, so that about 256 threads of a block have work. Then they exchange
 * sums, so that each has the sums of one sample (backward: of one sample and
 * unit). The order of a sum depends only on its length.
 *
 * Rows of weights and states are padded, so that the 8 threads which load
 * together touch 8 different units of 16 bytes of a 128-byte line of shared
 * memory: see spaced(). */
#include "cuda/conv/conv.cuh"
#include "cuda/lib/vec.cuh"
#include "cuda/ops/length.cuh"

namespace {

enum {
    THREADS = 256,
    QUAD = 4,      // samples of a thread, and its columns of weights
    FWD_PARTS = 4, // threads of a sum
    BWD_PARTS = 16,
    BLOCKS = 128, // of a launch
    UNITS = 1536, // at most: SHARED_MOST has the gate gradients of a QUAD
    BARRIER = 64, // a barrier of all blocks takes as long as so many products
                  // of a thread
};
static_assert(UNITS / FWD_PARTS <= CHAIN && 4 * UNITS / BWD_PARTS <= CHAIN,
              "a thread adds all of its terms in one register");
static_assert(4 * UNITS * QUAD * sizeof(float) <= SHARED_MOST, "UNITS");

/* The operands of one call. */
struct Direction {
    const float *in; // z; backward: dy
    const float *w, *bias;
    const float *valid;          // lengths, NULL: all steps
    float *y, *gates, *elements; // of all steps (no gates: see step_of)
    float *dc;                   // backward: dc (n, units)
    float4 *packed;              // weights as pack_kernel writes them
    float4 *states;              // two buffers: see state_at
    int *lengths;                // of each sample
    bool reverse;
};

struct Lstm {
    Direction way[2];
    int ways;          // directions of this launch
    unsigned *barrier; // of all blocks
    int *longest;      // the largest of all lengths
    int n, steps, units;
    int slices, width;    // units of a slice
    int groups, group;    // samples of a group, a multiple of QUAD
    int chunk;            // samples whose states are in shared memory at a time
    int w_pitch, x_pitch; // of a row of weights and of states, float4
    bool resident;        // the slice's weights stay in shared memory
    bool together;        // blocks wait for each other
};

/* Row (n, t) of step number s of a sample. */
__device__ __forceinline__ int64_t row_of_step(const Lstm &p,
                                               const Direction &o, int n, int s)
{
    const int t = o.reverse ? o.lengths[n] - 1 - s : s;
    return (int64_t)n * p.steps + t;
}

__device__ __forceinline__ float sigmoid(float x)
{
    const float e = expf(-fabsf(x));
    return (x < 0 ? e : 1) / (1 + e);
}

/* Stores the lengths as integers and the largest of them, and resets the
 * barrier. One block. */
__global__ void __launch_bounds__(THREADS)
    lstm_lengths_kernel(const __grid_constant__ Lstm p)
{
    SMEM(int, part, [THREADS]);
    int most = 0;
    for (int way = 0; way < p.ways; way++) {
        for (int i = (int)threadIdx.x; i < p.n; i += THREADS) {
            const int own = own_count(p.way[way].valid, i, p.steps);
            p.way[way].lengths[i] = own;
            most = max(most, own);
        }
    }

    part[threadIdx.x] = most;
    __syncthreads();
    if (threadIdx.x) return;
    for (int i = 1; i < THREADS; i++) most = max(most, part[i]);
    *p.longest = most;
    *p.barrier = 0;
}

/* packed[k][u] = the weights of the four gates of unit u for state k. */
__global__ void __launch_bounds__(BLOCK)
    lstm_pack_fwd_kernel(const float *w, float4 *packed, int units)
{
    EACH(i, (int64_t)units * units)
    {
        const int64_t k = i / units, u = i - k * units;
        const int64_t gate = (int64_t)units * units;
        const float *at = w + u * units + k;
        packed[i] = make_float4(at[0], at[gate], at[2 * gate], at[3 * gate]);
    }
}

/* packed[row][q] = the weights of units 4 q to 4 q + 3 in a row of w, 0 for
 * units that do not exist. */
__global__ void __launch_bounds__(BLOCK)
    lstm_pack_bwd_kernel(const float *w, float *packed, int units)
{
    const int64_t pitch = (units + QUAD - 1) / QUAD * QUAD;
    EACH(i, 4 * units * pitch)
    {
        const int64_t row = i / pitch, u = i - row * pitch;
        packed[i] = u < units ? w[row * units + u] : 0;
    }
}

/* Sums over four threads with lanes `apart` from each other: thread `k` of the
 * four gets the sum of v[k]. Pairs first, so the order is the same for all. */
__device__ __forceinline__ float exchange(const float (&v)[QUAD], int k,
                                          int apart)
{
    float low = k & 1 ? v[1] : v[0], high = k & 1 ? v[3] : v[2];
    const float give_low = k & 1 ? v[0] : v[1], give_high = k & 1 ? v[2] : v[3];
    low += __shfl_xor_sync(~0u, give_low, apart);
    high += __shfl_xor_sync(~0u, give_high, apart);
    const float give = k & 2 ? low : high;
    return (k & 2 ? high : low) + __shfl_xor_sync(~0u, give, 2 * apart);
}

/* The part of a thread in the products of a chunk. */
struct Item {
    int part, quad, column; // of the sum; of samples; of the weights, float4
};

template <int PARTS> __device__ __forceinline__ Item item_of(int i, int quads)
{
    return {i % PARTS, i / PARTS % quads, i / PARTS / quads};
}

/* The block's direction and ranges of units and samples. */
struct Slot {
    int way, u0, units, n0, n1;
};

__device__ __forceinline__ Slot slot_of(const Lstm &p)
{
    Slot b;
    const int slice = (int)blockIdx.x % p.slices,
              group = (int)blockIdx.x / p.slices % p.groups;
    b.way = (int)blockIdx.x / p.slices / p.groups;
    b.u0 = slice * p.width;
    b.units = min(p.width, p.units - b.u0);
    b.n0 = group * p.group;
    b.n1 = min(p.n, b.n0 + p.group);
    return b;
}

/* The quads of samples of the chunk that begins at sample `first`. */
__device__ __forceinline__ int quads_of(const Lstm &p, const Slot &b, int first)
{
    return (min(p.chunk, b.n1 - first) + QUAD - 1) / QUAD;
}

/* States of step s, (samples / QUAD, terms) of QUAD samples each: from sample
 * `n` on, a multiple of QUAD. The steps take turns at two buffers: a block
 * reads one while faster blocks fill the other. */
__device__ __forceinline__ float4 *state_at(const Lstm &p, const Direction &o,
                                            int terms, int s, int n)
{
    const int64_t quads = (p.n + QUAD - 1) / QUAD;
    return o.states + ((s & 1) * quads + n / QUAD) * terms;
}

/* Copies the states of a chunk, state[k][quad] = from[quad][k]. Other blocks
 * wrote them: the copies bypass the L1 cache. */
__device__ __forceinline__ void fetch(const float4 *from, int terms, int quads,
                                      float4 *state, int pitch)
{
    for (int q = 0; q < quads; q++)
        for (int k = (int)threadIdx.x; k < terms; k += THREADS)
            cp_async16(state + k * pitch + q, from + (int64_t)q * terms + k,
                       true);
    cp_async_commit();
    cp_async_wait<0>();
}

/* sum[i][j] = the terms of part `part` for column i of the weights and sample
 * j. */
template <int PARTS>
__device__ __forceinline__ void multiply(const float4 *w, int w_pitch,
                                         const float4 *x, int x_pitch, int part,
                                         int terms, float (&sum)[QUAD][QUAD])
{
#pragma unroll 4
    for (int k = part; k < terms; k += PARTS) {
        const float4 a = w[k * w_pitch], b = x[k * x_pitch];
        const float column[QUAD] = {a.x, a.y, a.z, a.w};
        const float sample[QUAD] = {b.x, b.y, b.z, b.w};
#pragma unroll
        for (int i = 0; i < QUAD; i++)
#pragma unroll
            for (int j = 0; j < QUAD; j++)
                sum[i][j] = fmaf(column[i], sample[j], sum[i][j]);
    }
}

/* Waits for all blocks that exchange states, or for the threads of this one. */
__device__ __forceinline__ void wait_for_all(const Lstm &p)
{
    if (p.together)
        grid_barrier(p.barrier);
    else
        __syncthreads();
}

/* Clears the rows beyond the lengths in the slice's columns: `parts` blocks of
 * `units` columns of an array of rows. */
__device__ __forceinline__ void clear(const Lstm &p, const Direction &o,
                                      const Slot &b, float *all, int parts)
{
    for (int n = b.n0; n < b.n1; n++) {
        const int rest = p.steps - o.lengths[n], row = b.units * parts;
        for (int i = (int)threadIdx.x; i < rest * row; i += THREADS) {
            const int t = o.lengths[n] + i / row, k = i % row;
            const int64_t at = ((int64_t)n * p.steps + t) * parts;
            all[(at + k / b.units) * p.units + b.u0 + k % b.units] = 0;
        }
    }
}

// -- forward -----------------------------------------------------------------

/* The operands of a step of one sample and unit that do not depend on the
 * product, so that they are loaded before it. */
struct FwdStep {
    bool exists; // else y has no such step
    int64_t row;
    float in[4], bias[4]; // input part of the gates
    float *cell;          // to write
    float before;         // the previous step's
};

__device__ __forceinline__ FwdStep fwd_step(const Lstm &p, const Direction &o,
                                            bool exists, int n, int s, int u)
{
    FwdStep t = {exists, 0, {}, {}, NULL, 0};
    if (!exists) return t;
    t.row = row_of_step(p, o, n, s);
    for (int k = 0; k < 4; k++) {
        const int at = k * p.units + u;
        t.in[k] = o.in[t.row * 4 * p.units + at];
        if (o.bias) t.bias[k] = o.bias[at];
    }

    // this thread wrote the cell of the previous step
    t.cell = o.elements + (o.gates ? t.row : n) * p.units + u;
    const int64_t last = !s ? 0 : o.gates ? row_of_step(p, o, n, s - 1) : n;
    if (s) t.before = o.elements[last * p.units + u];
    return t;
}

/* Finishes the step; g has the sums of the product. Returns h. */
__device__ __forceinline__ float fwd_finish(const Lstm &p, const Direction &o,
                                            const FwdStep &t, int u, bool first,
                                            float (&g)[4])
{
    for (int k = 0; k < 4; k++) {
        g[k] += o.bias ? t.in[k] + t.bias[k] : t.in[k];
        g[k] = k == 2 ? tanhf(g[k]) : sigmoid(g[k]);
    }
    float cell = g[0] * g[2];
    if (!first) cell = fmaf(g[1], t.before, cell);
    const float h = g[3] * tanhf(cell);
    for (int k = 0; o.gates && k < 4; k++)
        o.gates[t.row * 4 * p.units + k * p.units + u] = g[k];
    *t.cell = cell;
    o.y[t.row * p.units + u] = h;
    return h;
}

/* Copies the slice's weights: shared[k][u] = those of the gates of unit u. */
__device__ __forceinline__ void fwd_weights(const Lstm &p, const Direction &o,
                                            const Slot &b, float4 *shared)
{
    for (int i = (int)threadIdx.x; i < b.units * p.units * 4; i += THREADS) {
        const int k = i % p.units, u = i / p.units % b.units;
        const int gate = i / p.units / b.units;
        const int64_t row = (int64_t)gate * p.units + b.u0 + u;
        ((float *)(shared + k * p.w_pitch + u))[gate] = o.w[row * p.units + k];
    }
}

__global__ void __launch_bounds__(THREADS, 1)
    lstm_fwd_kernel(const __grid_constant__ Lstm p)
{
    DYN_SMEM(float4, shared);
    const Slot b = slot_of(p);
    const Direction o = b.way ? p.way[1] : p.way[0];
    const int terms = p.units, most = *p.longest;
    float4 *state = shared + (p.resident ? terms * p.w_pitch : 0);
    if (p.resident) fwd_weights(p, o, b, shared);

    for (int s = 0; s < most; s++) {
        for (int first = b.n0; first < b.n1; first += p.chunk) {
            const int quads = quads_of(p, b, first);
            const int items = b.units * quads * FWD_PARTS;
            __syncthreads();
            if (s)
                fetch(state_at(p, o, terms, s - 1, first), terms, quads, state,
                      p.x_pitch);
            __syncthreads();
            for (int i = (int)threadIdx.x; i < (items + WARP - 1) / WARP * WARP;
                 i += THREADS) {
                const Item t = item_of<FWD_PARTS>(i, quads);
                const bool has = t.column < b.units;
                const int n = first + t.quad * QUAD + t.part,
                          u = b.u0 + t.column;
                const FwdStep step = fwd_step(
                    p, o, has && n < b.n1 && s < o.lengths[n], n, s, u);
                float sum[4][QUAD] = {}, g[4];
                const float4 *x = state + t.quad;
                if (has && s && p.resident)
                    multiply<FWD_PARTS>(shared + t.column, p.w_pitch, x,
                                        p.x_pitch, t.part, terms, sum);
                else if (has && s)
                    multiply<FWD_PARTS>(o.packed + u, p.units, x, p.x_pitch,
                                        t.part, terms, sum);
                for (int k = 0; k < 4; k++) g[k] = exchange(sum[k], t.part, 1);
                float h = 0;
                if (step.exists) h = fwd_finish(p, o, step, u, !s, g);
                if (has)
                    ((float *)(state_at(p, o, terms, s, n - t.part) +
                               u))[t.part] = h;
            }
        }
        wait_for_all(p);
    }
    clear(p, o, b, o.y, 1);
}

// -- backward ----------------------------------------------------------------

/* As FwdStep. */
struct BwdStep {
    bool exists;
    float *gate, *dc;
    float g[4], cell, before; // gates, cells of this step and the previous one
    float dy, dc_after;       // dc_after: from the step after this one
};

__device__ __forceinline__ BwdStep bwd_step(const Lstm &p, const Direction &o,
                                            bool exists, int n, int s, int u)
{
    BwdStep t = {exists, NULL, NULL, {}, 0, 0, 0, 0};
    if (!exists) return t;
    const int64_t row = row_of_step(p, o, n, s), h = p.units;
    t.gate = o.gates + row * 4 * h + u;
    t.dc = o.dc + n * h + u;
    for (int k = 0; k < 4; k++) t.g[k] = t.gate[k * h];
    t.cell = o.elements[row * h + u];
    if (s) t.before = o.elements[row_of_step(p, o, n, s - 1) * h + u];
    t.dy = o.in[row * h + u];
    if (s + 1 < o.lengths[n]) t.dc_after = *t.dc;
    return t;
}

/* Finishes the step: replaces the gates by their gradients, also in d. dh: from
 * the step after it. */
__device__ __forceinline__ void bwd_finish(const BwdStep &step, int64_t h,
                                           float dh, float (&d)[4])
{
    const float i = step.g[0], f = step.g[1], g = step.g[2], o = step.g[3];
    const float t = tanhf(step.cell), all = step.dy + dh;
    const float v = all * o * (1 - t * t) + step.dc_after;
    d[0] = v * g * i * (1 - i);
    d[1] = v * step.before * f * (1 - f);
    d[2] = v * i * (1 - g * g);
    d[3] = all * t * o * (1 - o);
    for (int k = 0; k < 4; k++) step.gate[k * h] = d[k];
    *step.dc = v * f;
}

/* Copies the slice's columns of w: shared[row][q] = those of its units 4 q to
 * 4 q + 3, 0 for units that it has not. */
__device__ __forceinline__ void bwd_weights(const Lstm &p, const Direction &o,
                                            const Slot &b, float4 *shared)
{
    const int columns = (b.units + QUAD - 1) / QUAD * QUAD;
    for (int i = (int)threadIdx.x; i < 4 * p.units * columns; i += THREADS) {
        const int row = i / columns, u = i % columns;
        ((float *)(shared + row * p.w_pitch))[u] =
            u < b.units ? o.w[(int64_t)row * p.units + b.u0 + u] : 0;
    }
}

/* The steps in reverse. */
__global__ void __launch_bounds__(THREADS, 1)
    lstm_bwd_kernel(const __grid_constant__ Lstm p)
{
    DYN_SMEM(float4, shared);
    const Slot b = slot_of(p);
    const Direction o = b.way ? p.way[1] : p.way[0];
    const int terms = 4 * p.units, most = *p.longest;
    const int columns = (b.units + QUAD - 1) / QUAD;
    float4 *state = shared + (p.resident ? terms * p.w_pitch : 0);
    if (p.resident) bwd_weights(p, o, b, shared);

    for (int s = most - 1; s >= 0; s--) {
        const bool after = s + 1 < most;
        for (int first = b.n0; first < b.n1; first += p.chunk) {
            const int quads = quads_of(p, b, first);
            const int items = columns * quads * BWD_PARTS;
            __syncthreads();
            if (after)
                fetch(state_at(p, o, terms, s + 1, first), terms, quads, state,
                      p.x_pitch);
            __syncthreads();
            for (int i = (int)threadIdx.x; i < (items + WARP - 1) / WARP * WARP;
                 i += THREADS) {
                const Item t = item_of<BWD_PARTS>(i, quads);
                const int sample = t.part % QUAD, unit = t.part / QUAD;
                const int n = first + t.quad * QUAD + sample,
                          u = b.u0 + t.column * QUAD + unit;
                const bool has = u < b.u0 + b.units;
                const BwdStep step = bwd_step(
                    p, o, has && n < b.n1 && s < o.lengths[n], n, s, u);
                float sum[QUAD][QUAD] = {}, own[QUAD], d[4] = {};
                const float4 *x = state + t.quad;
                if (t.column < columns && after && p.resident)
                    multiply<BWD_PARTS>(shared + t.column, p.w_pitch, x,
                                        p.x_pitch, t.part, terms, sum);
                else if (t.column < columns && after)
                    multiply<BWD_PARTS>(o.packed + b.u0 / QUAD + t.column,
                                        (p.units + QUAD - 1) / QUAD, x,
                                        p.x_pitch, t.part, terms, sum);
                for (int k = 0; k < QUAD; k++)
                    own[k] = exchange(sum[k], sample, 1);
                const float dh = exchange(own, unit, QUAD);
                if (step.exists) bwd_finish(step, p.units, dh, d);
                float4 *to = state_at(p, o, terms, s, n - sample) + u;
                for (int k = 0; has && k < 4; k++)
                    ((float *)(to + k * p.units))[sample] = d[k];
            }
        }
        wait_for_all(p);
    }
    clear(p, o, b, o.gates, 4);
}

/* dx (+)= dz. */
__global__ void __launch_bounds__(BLOCK)
    lstm_store_dx_kernel(const float *from, float *to, int64_t vecs, bool fresh)
{
    EACH(i, vecs)
    store_vec<4>(to + i * 4, load<4>(from + i * 4), fresh);
}

// -- partition of a launch ---------------------------------------------------

/* The extents of a launch that all partitions share. */
struct Work {
    int64_t n, units, terms; // terms of a sum
    int64_t blocks, room;    // at most, of a direction; bytes of shared memory
    bool back;
};

/* The pitch of a row of `count` float4: the 8 threads that load together have 4
 * neighbouring rows and 2 neighbours in each (a pitch of 2 or 6 modulo 8),
 * backward 8 neighbouring rows (an odd pitch). */
int64_t spaced(int64_t count, bool back)
{
    if (back || count == 1) return count | 1;
    return (count + 1) / 4 * 4 + 2;
}

int64_t rounded(int64_t count)
{
    return ceil_div(count, QUAD) * QUAD;
}

/* Bytes of the weights of a slice, and of the states of a chunk. */
int64_t weight_bytes(const Work &k, int64_t width)
{
    const int64_t columns = k.back ? ceil_div(width, QUAD) : width;
    return k.terms * spaced(columns, k.back) * (int64_t)sizeof(float4);
}

int64_t state_bytes(const Work &k, int64_t chunk)
{
    return k.terms * spaced(chunk / QUAD, k.back) * (int64_t)sizeof(float4);
}

/* Sets the partition into `slices`, which have a unit each; false if some
 * would have none. */
bool cut(const Work &k, int64_t slices, bool resident, Lstm *p)
{
    int64_t width = ceil_div(k.units, slices);
    if (k.back) width = rounded(width); // a thread has four units
    if (ceil_div(k.units, width) != slices) return false;
    const int64_t weights = resident ? weight_bytes(k, width) : 0;
    if (weights + state_bytes(k, QUAD) > k.room) return false;
    const int64_t groups =
        most(1, least(ceil_div(k.n, QUAD), k.blocks / slices));
    const int64_t group = rounded(ceil_div(k.n, groups));
    int64_t chunk = group;
    while (weights + state_bytes(k, chunk) > k.room) chunk -= QUAD;

    p->slices = (int)slices, p->width = (int)width;
    p->groups = (int)ceil_div(k.n, group), p->group = (int)group;
    p->chunk = (int)chunk;
    p->w_pitch = (int)spaced(k.back ? ceil_div(width, QUAD) : width, k.back);
    p->x_pitch = (int)spaced(chunk / QUAD, k.back);
    p->resident = resident, p->together = slices > 1;
    return true;
}

/* The time of a step, in products of a thread. */
int64_t cost(const Work &k, const Lstm &p)
{
    const int64_t items = rounded(p.width) * p.chunk;
    const int64_t rounds =
        ceil_div(p.group, p.chunk) * ceil_div(items, THREADS);
    const int parts = k.back ? BWD_PARTS : FWD_PARTS;
    return rounds * ceil_div(k.terms, parts) + (p.together ? BARRIER : 0);
}

/* Sets the fastest partition; of equal partitions the one with the fewest
 * slices: its blocks read the fewest states. Sums, and so results, do not
 * depend on it. */
void cut_best(const Work &k, Lstm *p)
{
    Lstm best = {};
    for (int64_t slices = 1; slices <= least(k.blocks, k.units); slices++)
        if (cut(k, slices, true, p) &&
            (!best.slices || cost(k, *p) < cost(k, best)))
            best = *p;
    if (best.slices) {
        *p = best;
        return;
    }
    int64_t slices = least(k.blocks, k.units);
    while (!cut(k, slices, false, p)) slices--;
}

/* The partition of a launch of `ways` directions. */
void cut_launch(const Call *c, bool back, int ways, Lstm *p)
{
    const Dims s = c->y->dim;
    Work k = {};
    k.n = s.n, k.units = s.c, k.terms = (back ? 4 : 1) * (int64_t)s.c;
    k.blocks = most(1, least(BLOCKS, gpu_processors(c->dev)) / ways);
    k.room = gpu_is_hopper() ? SM90_SHARED_MOST : gpu_limits()->shared;
    k.back = back;
    cut_best(k, p);
    p->ways = ways;
}

size_t shared_bytes(const Lstm &p, bool back)
{
    const int64_t terms = (back ? 4 : 1) * (int64_t)p.units;
    return (size_t)(terms * (p.x_pitch + (p.resident ? p.w_pitch : 0))) *
           sizeof(float4);
}

// -- calls -------------------------------------------------------------------

/* The layout of scratch: barrier and longest, lengths, dc or cells, states,
 * packed weights; each part begins at a multiple of 16 bytes. */
enum { HEAD = 4 };

size_t scratch_bytes(const Call *c, bool back)
{
    const Dims s = c->y->dim;
    const int64_t terms = (back ? 4 : 1) * (int64_t)s.c;
    const int64_t packed = back ? terms * rounded(s.c) : 4 * terms * s.c;
    const int64_t numbers = HEAD + rounded(s.n) + rounded((int64_t)s.n * s.c) +
                            2 * rounded(s.n) * terms + packed;
    return (size_t)numbers * sizeof(float);
}

bool fits(const Call *c)
{
    const Dims s = c->y->dim;
    // shared memory has the gate gradients of a QUAD
    const int64_t units = least(UNITS, gpu_limits()->shared /
                                           (4 * QUAD * (int64_t)sizeof(float)));
    if (s.c > units)
        return fail_device("lstm: %d units; the kernels hold the states of at "
                           "most %d on this GPU: use fewer, or --device cpu",
                           s.c, (int)units);
    return countable(c, rows(s));
}

Direction direction_of(const Call *c, bool back)
{
    const Dims s = c->y->dim;
    const int64_t terms = (back ? 4 : 1) * (int64_t)s.c;
    Direction o = {};
    float *at = (float *)c->scratch + HEAD;

    o.lengths = (int *)at, at += rounded(s.n);
    o.dc = o.elements = at, at += rounded((int64_t)s.n * s.c);
    o.states = (float4 *)at, at += 2 * rounded(s.n) * terms;
    o.packed = (float4 *)at;
    o.in = values(back ? c->dy : c->x[0]);
    o.w = values(c->x[1]), o.bias = values(c->x[2]);
    o.valid = values(c->x[3]), o.y = values(c->y);
    o.gates = (float *)c->saved;
    if (o.gates) o.elements = o.gates + numel(c->x[0]->dim);
    o.reverse = c->attr->lstm.reverse;
    return o;
}

/* The launch of call c and, if `pair` is not NULL, of that one with it. */
Lstm lstm_of(const Call *c, const Call *pair, bool back)
{
    const Dims s = c->y->dim;
    Lstm p = {};
    p.way[0] = direction_of(c, back);
    if (pair) p.way[1] = direction_of(pair, back);
    p.barrier = (unsigned *)c->scratch;
    p.longest = (int *)c->scratch + 1;
    p.n = s.n, p.steps = s.w, p.units = s.c;
    cut_launch(c, back, pair ? 2 : 1, &p);
    return p;
}

/* Are two launches one after the other faster than one of both? Only if half
 * of the multiprocessors cannot hold the weights of a direction, but all can.
 */
bool apart(const Call *c, bool back)
{
    Lstm one = {}, both = {};
    cut_launch(c, back, 1, &one);
    cut_launch(c, back, 2, &both);
    return one.resident && !both.resident;
}

/* Queues the kernels before the steps. */
bool prepare(const Call *c, const Lstm &p, bool back)
{
    cudaStream_t stream = gpu_stream(c->dev);
    LAUNCH(lstm_lengths_kernel, 1, THREADS, 0, stream, p);
    if (!gpu_launched("lstm, lengths")) return false;
    for (int i = 0; !p.resident && i < p.ways; i++) {
        const Direction &o = p.way[i];
        const unsigned blocks = blocks_for((int64_t)p.units * p.units);
        if (back)
            LAUNCH(lstm_pack_bwd_kernel, blocks, BLOCK, 0, stream, o.w,
                   (float *)o.packed, p.units);
        else
            LAUNCH(lstm_pack_fwd_kernel, blocks, BLOCK, 0, stream, o.w,
                   o.packed, p.units);
        if (!gpu_launched("lstm, weights")) return false;
    }
    return true;
}

/* Runs all steps of call c and, if not NULL, of `pair`, in one launch. */
bool run_steps(const Call *c, const Call *pair, bool back)
{
    const Lstm p = lstm_of(c, pair, back);
    const size_t bytes = shared_bytes(p, back);
    // the same limit for all launches: see gpu_allows
    const size_t room = gpu_is_hopper() ? (size_t)SM90_SHARED_MOST : bytes;
    const unsigned blocks = (unsigned)(p.ways * p.slices * p.groups);
    cudaStream_t stream = gpu_stream(c->dev);
    if (!prepare(c, p, back)) return false;
    if (!(back ? gpu_allows(&lstm_bwd_kernel, room)
               : gpu_allows(&lstm_fwd_kernel, room)))
        return within("lstm of %d units", p.units);
    if (back && p.together)
        LAUNCH_COOP(lstm_bwd_kernel, blocks, THREADS, bytes, stream, p);
    else if (back)
        LAUNCH(lstm_bwd_kernel, blocks, THREADS, bytes, stream, p);
    else if (p.together)
        LAUNCH_COOP(lstm_fwd_kernel, blocks, THREADS, bytes, stream, p);
    else
        LAUNCH(lstm_fwd_kernel, blocks, THREADS, bytes, stream, p);
    return gpu_launched(back ? "lstm, backward" : "lstm");
}

/* Runs the steps of call c and of its pair, together where that is faster. */
bool run(const Call *c, bool back)
{
    if (!fits(c)) return false;
    if (c->pair && apart(c, back))
        return run_steps(c, NULL, back) && run_steps(c->pair, NULL, back);
    return run_steps(c, c->pair, back);
}

ConvProblem lstm_wgrad_problem(const Call *c)
{
    return conv_problem(c, op_window(c->attr, c->x[1]), c->y->dim,
                        c->x[0]->dim);
}

/* Computes the gradients of one call from dz, which has replaced the gates; the
 * scratch is free. */
bool gradients(const Call *c)
{
    float *dz = (float *)c->saved;
    const int64_t vecs = numel(c->x[0]->dim) / 4;
    if (c->dx[0]) {
        LAUNCH(lstm_store_dx_kernel, blocks_for(vecs), BLOCK, 0,
               gpu_stream(c->dev), dz, values(c->dx[0]), vecs, is_fresh(c, 0));
        if (!gpu_launched("lstm, dx")) return false;
    }

    const ConvProblem r = lstm_wgrad_problem(c);
    if (c->dx[1] &&
        !conv_wgrad(&r, {{values(c->y), {}, {}}, {}, 0}, {{dz, {}, {}}, {}, 0},
                    values(c->dx[1]), is_fresh(c, 1), NULL, c->scratch))
        return false;
    const Tensor d = {c->x[0]->dim, F32, c->x[0]->rank, dz};
    return !c->dx[2] || conv_bias_grad(c, &d, values(c->dx[2]), is_fresh(c, 2));
}

} // namespace

extern "C" {

Space cuda_lstm_space(const Call *c)
{
    Space s = {};
    s.fwd = scratch_bytes(c, false);
    if (!c->dy) return s; // evaluation: nothing is saved
    const ConvProblem r = lstm_wgrad_problem(c);
    s.saved = (size_t)numel(c->y->dim) * 5 * sizeof(float);
    s.bwd = (size_t)most((int64_t)scratch_bytes(c, true),
                         (int64_t)conv_wgrad_bytes(&r));
    s.bwd = (size_t)most((int64_t)s.bwd,
                         (int64_t)conv_bias_grad_bytes(c->x[0]->dim, F32));
    return s;
}

bool cuda_lstm_fwd(const Call *c)
{
    return run(c, false);
}

bool cuda_lstm_bwd(const Call *c)
{
    return run(c, true) && gradients(c) && (!c->pair || gradients(c->pair));
}
}
