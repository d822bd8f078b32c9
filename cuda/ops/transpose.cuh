/* transpose.cuh -- matrices written with rows and columns exchanged.
 *
 *     out[batch, b, a] = in[batch, a, b]
 *
 * with any distance between rows on both sides. A block of 32 x 8 threads
 * transposes tiles of 32 by 32 numbers in shared memory (4 KB), so that whole
 * warps read and write contiguous memory; where either extent is below 8 tiles
 * would be mostly empty, and each thread loads its own number. */
#ifndef SEG_CUDA_OPS_TRANSPOSE_H
#define SEG_CUDA_OPS_TRANSPOSE_H
#include "cuda/lib/vec.cuh"

enum { TILE = 32, TILE_ROWS = 8 };

/* Batches along three axes. Distances are in numbers: of batches in `in` and
 * `out`, of rows a of `in`, of rows b of `out`. */
struct Transpose {
    const void *in;
    void *out;
    int a, b;
    int64_t in_a, out_b;
    int batch[3]; // counts, the last fastest
    int64_t in_batch[3], out_batch[3];
    bool fresh;
    // set by transpose()
    int tiles_a, tiles_b;
    int64_t tiles, count;
};

/* Moves both offsets to batch number i. */
static __device__ __forceinline__ void transpose_batch(const Transpose &p,
                                                       int64_t i, int64_t *in,
                                                       int64_t *out)
{
    *in = *out = 0;
#pragma unroll
    for (int k = 2; k >= 0; k--) {
        const int64_t at = i % p.batch[k];
        *in += at * p.in_batch[k], *out += at * p.out_batch[k];
        i /= p.batch[k];
    }
}

template <Dtype D> static __global__ void transpose_kernel(const Transpose p)
{
    SMEM(float, tile, [TILE][TILE + 1]); // + 1: columns in different banks
    const int x = (int)threadIdx.x, y = (int)threadIdx.y;

    for (int64_t t = blockIdx.x; t < p.tiles; t += gridDim.x) {
        const int a0 = (int)(t / p.tiles_b % p.tiles_a) * TILE;
        const int b0 = (int)(t % p.tiles_b) * TILE;
        int64_t from, to;
        transpose_batch(p, t / p.tiles_b / p.tiles_a, &from, &to);
        const Element<D> *in = (const Element<D> *)p.in + from;
        Element<D> *out = (Element<D> *)p.out + to;
        for (int i = y; i < TILE; i += TILE_ROWS)
            if (a0 + i < p.a && b0 + x < p.b)
                tile[i][x] = load<1, D>(in + (a0 + i) * p.in_a + b0 + x).v[0];
        __syncthreads();
        for (int i = y; i < TILE; i += TILE_ROWS)
            if (b0 + i < p.b && a0 + x < p.a)
                store_vec<1, D>(out + (b0 + i) * p.out_b + a0 + x, {tile[x][i]},
                                p.fresh);
        __syncthreads(); // before the next tile overwrites this one
    }
}

/* For small a or b: each thread loads its element. */
template <Dtype D>
static __global__ void transpose_small_kernel(const Transpose p,
                                              const Divisor columns,
                                              const Divisor matrix)
{
    EACH(i, p.count)
    {
        const int64_t batch = i / matrix.by;
        uint32_t b = (uint32_t)(i - batch * matrix.by);
        const int a = (int)split(&b, columns);
        int64_t from, to;
        transpose_batch(p, batch, &from, &to);
        store_vec<1, D>(
            (Element<D> *)p.out + to + b * p.out_b + a,
            load<1, D>((const Element<D> *)p.in + from + a * p.in_a + b),
            p.fresh);
    }
}

template <Dtype D>
static inline void start_transpose(const Call *c, const Transpose &p)
{
    if (least(p.a, p.b) < TILE_ROWS)
        LAUNCH(transpose_small_kernel<D>, blocks_for(p.count), BLOCK, 0,
               gpu_stream(c->dev), p, divisor(p.a),
               divisor((int64_t)p.a * p.b));
    else
        LAUNCH(transpose_kernel<D>, (unsigned)least(p.tiles, 1 << 16),
               dim3(TILE, TILE_ROWS), 0, gpu_stream(c->dev), p);
}

/* Starts the kernel for tensors of `type`; a times b is below 2^31. */
static inline bool transpose(const Call *c, Transpose p, Dtype type)
{
    const int64_t batches = (int64_t)p.batch[0] * p.batch[1] * p.batch[2];
    p.tiles_a = (int)ceil_div(p.a, TILE), p.tiles_b = (int)ceil_div(p.b, TILE);
    p.count = batches * p.a * p.b;
    p.tiles = batches * p.tiles_a * p.tiles_b;
    if (type == BF16)
        start_transpose<BF16>(c, p);
    else if (type == F16)
        start_transpose<F16>(c, p);
    else
        start_transpose<F32>(c, p);
    return gpu_launched(op_info[c->attr->op].name);
}

/* out[n, b A + a] = in[n, a B + b] for n samples of A by B numbers. */
static inline bool transpose_samples(const Call *c, const Tensor *in,
                                     const Tensor *out, int n, int a, int b,
                                     bool fresh)
{
    Transpose p = {};
    p.in = in->data, p.out = out->data, p.fresh = fresh;
    p.a = a, p.b = b, p.in_a = b, p.out_b = a;
    p.batch[0] = p.batch[1] = 1, p.batch[2] = n;
    p.in_batch[2] = p.out_batch[2] = (int64_t)a * b;
    return transpose(c, p, in->type);
}
#endif
