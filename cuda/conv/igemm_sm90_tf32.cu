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
};

/* A block: 32 filters by 32 channels of one tap. */
__global__ void __launch_bounds__(TILE *ROWS)
    round_filter_kernel(const RoundFilter p)
{
    SMEM(float, tile, [TILE][TILE + 1]);
    const int lane = (int)threadIdx.x % TILE, first = (int)threadIdx.x / TILE;
    const int tap = (int)blockIdx.z;
    const int filter = (int)blockIdx.y * TILE, channel = (int)blockIdx.x * TILE;
    for (int i = first; i < TILE; i += ROWS) {
        const int f = filter + i, c = channel + lane;
        if (f < p.filters && c < p.channels)
            tile[i][lane] = __uint_as_float(
                to_tf32(p.w[((int64_t)f * p.taps + tap) * p.channels + c]));
    }
    __syncthreads();
    for (int i = first; i < TILE; i += ROWS) {
        const int f = filter + (p.transposes ? lane : i);
        const int c = channel + (p.transposes ? i : lane);
        if (f >= p.filters || c >= p.channels) continue;
        if (p.transposes)
            p.to[((int64_t)c * p.taps + tap) * p.filters + f] = tile[lane][i];
        else
            p.to[((int64_t)f * p.taps + tap) * p.channels + c] = tile[i][lane];
    }
}

} // namespace

bool igemm_sm90_round_filter(const ConvProblem *r, bool dgrad, const float *w,
                             float *to)
{
    const Window *g = &r->win;
    const RoundFilter p = {w,      to,   r->cout, g->k[0] * g->k[1] * g->k[2],
                           r->cin, dgrad};
    const dim3 blocks((unsigned)ceil_div(p.channels, TILE),
                      (unsigned)ceil_div(p.filters, TILE), (unsigned)p.taps);
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
