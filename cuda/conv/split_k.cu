/* split_k.cu -- see split_k.cuh. */
#include "cuda/conv/igemm_tile.cuh"
#include "cuda/conv/split_k.cuh"

/* Eight neighbouring elements a thread. Bound by memory. */
static __global__ void __launch_bounds__(BLOCK)
    split_k_sum_kernel(const float *parts, int count, int64_t size, Vecs vecs,
                       const float *bias, const Target to, const Target second,
                       int border)
{
    EACH(i, vecs.count)
    {
        Vec<TILE_CHANNELS> sum = {};
#pragma unroll 4
        for (int k = 0; k < count; k++) {
            const auto v =
                load<TILE_CHANNELS>(parts + k * size + i * TILE_CHANNELS);
            for (int c = 0; c < TILE_CHANNELS; c++) sum.v[c] += v.v[c];
        }
        int vec;
        const int64_t row = row_of(vecs, i, &vec);
        add_bias(bias, vec * TILE_CHANNELS, &sum);
        store_second(to, second, border, (int)vecs.per_row.by * TILE_CHANNELS,
                     row, vec * TILE_CHANNELS, sum);
    }
}

bool split_k_sum(const Call *c, const float *parts, int count, Dims s,
                 const float *bias, const Result &to)
{
    const Vecs vecs = vecs_of(s, TILE_CHANNELS);
    moves((double)(numel(s) * count) * sizeof(float) + result_traffic(to, s));
    LAUNCH(split_k_sum_kernel, blocks_for(vecs.count), BLOCK, 0,
           gpu_stream(c->dev), parts, count, numel(s), vecs, bias, to.first,
           to.second, to.border ? to.border : s.c);
    return gpu_launched("sum of split-K");
}
