/* igemm_sm90_tf32.cu -- the kernels of igemm_sm90_kernel.cuh in tf32, and the
 * copy of the filter that they read. */
#include "cuda/conv/igemm_sm90_kernel.cuh"

namespace {

enum { TILE = 32, ROWS = 8 }; // of a block that copies

struct RoundFilter {
    const float *w;
    float *to;
    int filters, taps, channels; // of w
    bool transposes;             // exchanges filters and channels
    int positions, wide, copied; // of pairs: 2; taps along w and all taps of
                                 // the copy
};

/* The tap of w for a tap of the copy and a position of a pair; -1: none. The
 * taps along w of the second position are those of the first, moved by one; a
 * transposed filter of pairs is also turned around, as fprop reads it. */
__device__ __forceinline__ int tap_of(const RoundFilter &p, int copied,
                                      int position)
{
    if (p.positions == 1) return copied;
    const int w = copied % p.wide - position;
    if (w < 0 || w >= p.wide - 1) return -1;
    const int tap = copied / p.wide * (p.wide - 1) + w;
    return p.transposes ? p.taps - 1 - tap : tap;
}

/* A block: 32 filters by 32 channels of one tap and position of a pair. */
__global__ void __launch_bounds__(TILE *ROWS)
    round_filter_kernel(const RoundFilter p)
{
    SMEM(float, tile, [TILE][TILE + 1]);
    const int lane = (int)threadIdx.x % TILE, first = (int)threadIdx.x / TILE;
    const int position = (int)blockIdx.z / p.copied;
    const int to_tap = (int)blockIdx.z % p.copied;
    const int tap = tap_of(p, to_tap, position);
    const int filter = (int)blockIdx.y * TILE, channel = (int)blockIdx.x * TILE;
    for (int i = first; i < TILE; i += ROWS) {
        const int f = filter + i, c = channel + lane;
        if (f >= p.filters || c >= p.channels) continue;
        const int64_t at = ((int64_t)f * p.taps + tap) * p.channels + c;
        tile[i][lane] = tap < 0 ? 0 : __uint_as_float(to_tf32(p.w[at]));
    }
    __syncthreads();
    const int rows = p.transposes ? p.channels : p.filters;
    const int columns = p.transposes ? p.filters : p.channels;
    const int row0 = p.transposes ? channel : filter;
    const int column = (p.transposes ? filter : channel) + lane;
    for (int i = first; i < TILE; i += ROWS) {
        const int row = row0 + i;
        if (row < rows && column < columns)
            p.to[((int64_t)(position * rows + row) * p.copied + to_tap) *
                     columns +
                 column] = p.transposes ? tile[lane][i] : tile[i][lane];
    }
}

} // namespace

bool igemm_sm90_round_filter(const ConvProblem *r, bool dgrad, bool pairs,
                             const float *w, float *to)
{
    const int *k = r->win.k, wide = k[2] + pairs;
    RoundFilter p = {};
    p.w = w, p.to = to;
    p.filters = r->cout, p.taps = k[0] * k[1] * k[2], p.channels = r->cin;
    p.transposes = dgrad;
    p.positions = pairs ? 2 : 1, p.wide = wide, p.copied = k[0] * k[1] * wide;
    const dim3 blocks((unsigned)ceil_div(p.channels, TILE),
                      (unsigned)ceil_div(p.filters, TILE),
                      (unsigned)(p.positions * p.copied));
    moves(2.0 * sizeof(float) * (double)conv_filter_size(r));
    LAUNCH(round_filter_kernel, blocks, TILE * ROWS, 0, gpu_stream(r->c->dev),
           p);
    return gpu_launched("copy of a filter in tf32");
}

// the copy makes the filter of dgrad one of fprop
bool igemm_sm90_tf32(const ConvProblem *r, Sm90Way way,
                     const IgemmSm90Params &p, int blocks)
{
    return way == SM90_WIDE
               ? igemm_sm90_queue<SM90_WIDE, F32, false, SM90_NO_SUMS>(r, p,
                                                                       blocks)
               : igemm_sm90_queue<SM90_NARROW, F32, false, SM90_NO_SUMS>(
                     r, p, blocks);
}
