/* igemm_tile_mainloop.cuh -- igemm_tile: the main loop and the kernel; see
 * igemm_tile.cuh.
 *
 * A step multiplies BM rows of a halo by BN columns of the filter over a chunk
 * of 64 bytes. Filter tiles go through a ring of copy_stages(), 4; the tiles of
 * the next three steps are in flight (cp.async). Halo loads are issued `ahead`
 * loads before their use, which is at least three steps, so one
 * cp.async.wait_group count serves both. (Without cp.async there are 2 stages,
 * and nothing to wait for.) There is one barrier a step: after it
 * the copies of the step have arrived and the memory that they overwrite next
 * has been used.
 *
 * Counted for 16 bits: a warp of 64 x 32 reads 192 bytes of shared memory for
 * each mma, a warp of 32 x 32 256; a multiprocessor of an A100 serves 128 bytes
 * a cycle and computes an mma in two. From L2 a step of a 3x3 reads BN 64 bytes
 * of the filter and a ninth of the halo: 111 FLOP a byte for the 128 x 128
 * tile. */
#ifndef SEG_CUDA_CONV_IGEMM_TILE_MAINLOOP_H
#define SEG_CUDA_CONV_IGEMM_TILE_MAINLOOP_H
#include "cuda/conv/igemm_tile_load.cuh"
#include "cuda/conv/igemm_tile_sums.cuh"

/* The warps of a tile. A warp of 32 x 32 has registers for a second sum, so its
 * float chains may end before the k axis does (k_slices in one block). */
template <int BM, int BN> struct IgemmTileShape {
    enum {
        WM = tile_warp_rows(BM, BN),
        WN = 32,
        ACROSS = BM / WM,
        DOWN = BN / WN,
        TRANSPOSE_BYTES = tile_transpose_bytes(BM, BN),
        THREADS = ACROSS * (BN / WN) * WARP,
        BLOCKS = 512 / THREADS, // on a multiprocessor: 128 registers a thread
        FRAGMENTS = WM / 16,    // of 16 rows
        COLUMNS = WN / 8,       // of 8 columns
        RESUMES = WM == 32,
    };
};

namespace {

/* The copies that are issued ahead of the steps: halos and filter tiles of the
 * block's chunks, each in the order of the steps. */
template <class T, int BN, int THREADS, bool DGRAD> struct IgemmTileLoad {
    typedef FilterLoad<T, BN, THREADS, DGRAD> Filter;
    enum { CHUNK = Filter::CHUNK };
    const Filter filter;
    const T *source; // the group's first channel in row 0
    unsigned char *halos, *ring;
    const int *rows;
    const TapEntry *taps;
    const int end;                       // after the last chunk
    int group = 0, fill_chunk, halo = 0; // of the next halo load
    int tap = 0, tap_chunk, stage = 0;   // of the next filter tile

    __device__ __forceinline__ IgemmTileLoad(const IgemmTileParams<DGRAD> &p,
                                             const BlockCoord &s, int from,
                                             int to, unsigned char *shared)
        : filter(p, s), source((const T *)p.source + s.group * p.k_channels),
          halos(shared),
          ring(shared + p.layers * p.buffers * p.rows * TILE_ROW),
          rows((const int *)(ring + copy_stages() * Filter::BYTES)),
          taps((const TapEntry *)rows), end(to), fill_chunk(from),
          tap_chunk(from)
    {
    }

    __device__ __forceinline__ void next_fill(const IgemmTileParams<DGRAD> &p,
                                              int groups)
    {
        if (fill_chunk == end) return;
        fill_halo<T, THREADS>(p, rows + group * p.rows, source,
                              fill_chunk * CHUNK,
                              halos + halo * p.rows * TILE_ROW);
        if (++group == groups) group = 0, fill_chunk++;
        if (++halo == p.buffers) halo = 0;
    }

    __device__ __forceinline__ void next_filter(const IgemmTileParams<DGRAD> &p,
                                                int count)
    {
        if (tap_chunk == end) return;
        filter.fill(p, taps[tap].number & ~TapEntry::FIRST, tap_chunk,
                    ring + stage * Filter::BYTES);
        if (++tap == count) tap = 0, tap_chunk++;
        stage = (stage + 1) % copy_stages();
    }
};

/* The accumulators of a warp: FRAGMENTS of 16 rows by COLUMNS of 8. */
template <Precision P, class Shape, bool DGRAD, int BN> struct IgemmWarpTile {
    enum { MF = Shape::FRAGMENTS, NF = Shape::COLUMNS };
    enum { LINES = DGRAD ? BN / 8 : TILE_LINES }; // of a row of the filter tile
    float acc[MF][NF][4] = {};
    float sum[Shape::RESUMES ? MF : 1][NF][4] = {};
    int row[MF]; // halo row of this lane's row in each fragment
    int line;    // offset of this lane's first line of the filter tile

    /* Half a step: channels half*16 .. +15 of the chunk, with the halo shifted
     * by `move` rows. */
    __device__ __forceinline__ void multiply(const unsigned char *halo,
                                             const unsigned char *w, int move,
                                             int half)
    {
        const int lane = (int)threadIdx.x % WARP;
        uint32_t a[MF][4], b[NF][2];
#pragma unroll
        for (int i = 0; i < MF; i++)
            ldmatrix_x4(a[i], halo + tile_place<TILE_LINES>(
                                         row[i] + move, lane / 16 + half * 2));
#pragma unroll
        for (int j = 0; j < NF; j += 2) {
            uint32_t r[4];
            // 16 columns: two lines (dgrad), or 16 rows (fprop)
            if constexpr (DGRAD)
                ldmatrix_x4_trans(r, w + (line ^ j * TILE_LINE) +
                                         half * 16 * LINES * TILE_LINE);
            else
                ldmatrix_x4(r, w + (line ^ half * 2 * TILE_LINE) +
                                   j * 8 * TILE_ROW);
            b[j][0] = r[0], b[j][1] = r[1];
            b[j + 1][0] = r[2], b[j + 1][1] = r[3];
        }
#pragma unroll
        for (int i = 0; i < MF; i++)
#pragma unroll
            for (int j = 0; j < NF; j++)
                PrecisionTraits<P>::multiply(acc[i][j], a[i], b[j]);
    }

    /* Sets the addresses that this lane reads for rows m .. of the box and
     * columns n .. of the tile. */
    __device__ __forceinline__ void begin(const IgemmTileParams<DGRAD> &p,
                                          int m, int n)
    {
        const int lane = (int)threadIdx.x % WARP;
#pragma unroll
        for (int i = 0; i < MF; i++) {
            int rest = m + i * 16 + lane % 16, at[3];
            for (int a = 2; a >= 0; a--) {
                at[a] = rest & ((1 << p.box[a]) - 1);
                rest >>= p.box[a];
            }
            row[i] = rest;
            for (int a = 0; a < 3; a++)
                row[i] = row[i] * (int)p.halo[a].by + at[a];
        }
        line = DGRAD ? tile_place<LINES>(lane % 16, n / 8 + lane / 16)
                     : tile_place<LINES>(n + lane % 8 + lane / 16 * 8,
                                         lane / 8 % 2);
    }

    /* Ends a slice of the k axis: adds its sum to the slices before. */
    __device__ __forceinline__ void end_segment()
    {
        if constexpr (Shape::RESUMES) {
#pragma unroll
            for (int i = 0; i < MF * NF * 4; i++) {
                float &v = acc[i / NF / 4][i / 4 % NF][i % 4];
                sum[i / NF / 4][i / 4 % NF][i % 4] += v, v = 0;
            }
        }
    }

    __device__ __forceinline__ const float (&of(int i) const)[NF][4]
    {
        if constexpr (Shape::RESUMES)
            return sum[i];
        else
            return acc[i];
    }
};

/* The first chunk of a slice. */
template <bool DGRAD>
__device__ __forceinline__ int slice_at(const IgemmTileParams<DGRAD> &p,
                                        int slice)
{
    return slice * p.chunks / p.k_slices;
}

template <Precision P, int BM, int BN, bool DGRAD>
__global__ void __launch_bounds__(IgemmTileShape<BM, BN>::THREADS,
                                  IgemmTileShape<BM, BN>::BLOCKS)
    igemm_tile_kernel(const __grid_constant__ IgemmTileParams<DGRAD> p)
{
    typedef typename PrecisionTraits<P>::T T;
    typedef IgemmTileShape<BM, BN> Shape;
    constexpr Dtype D = NARROW_TYPE<P>;
    typedef IgemmTileLoad<T, BN, Shape::THREADS, DGRAD> Feed;
    DYN_SMEM(unsigned char, shared);
    const bool parts = p.part_stride;
    const auto &k = p.cls[DGRAD ? blockIdx.z / (parts ? p.k_slices : 1) : 0];
    if ((int)blockIdx.x >= k.blocks) return; // a class with fewer boxes
    const BlockCoord s = block_coord<BN>(p, k);
    int slice = s.part, chunk = parts ? slice_at(p, slice) : 0;
    const int end = parts ? slice_at(p, slice + 1) : p.chunks;
    Feed feed(p, s, chunk, end, shared);
    TapEntry *taps = (TapEntry *)(feed.rows + k.groups * p.rows);
    feed.taps = taps;
    row_table(p, k, s, (int *)feed.rows);
    tap_table(p, k, taps);
    const int warp = (int)threadIdx.x / WARP;
    const int wm = warp % Shape::ACROSS * Shape::WM;
    const int wn = warp / Shape::ACROSS * Shape::WN;
    IgemmWarpTile<P, Shape, DGRAD, BN> warp_tile;
    warp_tile.begin(p, wm, wn);
    __syncthreads();

    const int steps = (end - chunk) * k.taps;

    if (steps) {
        for (int i = 0; i < p.ahead; i++) feed.next_fill(p, k.groups);
        for (int i = 0; i < copy_stages() - 1; i++) {
            feed.next_filter(p, k.taps);
            cp_async_commit();
        }
    }

    int tap = 0, group = 0, next = slice_at(p, slice + 1);
    // the last buffer; the first load goes to buffer 0
    unsigned char *halo = feed.halos + (p.buffers - 1) * p.rows * TILE_ROW;

    for (int i = 0; i < steps; i++) {
        // everything but the filter tiles of the next two steps has arrived
        cp_async_wait<2>();
        const TapEntry entry = taps[tap];
        const bool first = entry.number & TapEntry::FIRST;
        if (first) halo += p.rows * TILE_ROW;
        if (halo == feed.halos + p.buffers * p.rows * TILE_ROW)
            halo = feed.halos;
        if (first && (p.norm_on_load.table || p.second.norm_on_load.table ||
                      p.norm_bwd.table)) {
            const int *rows = feed.rows + group * p.rows;
            const int64_t channel =
                s.group * p.k_channels + chunk * Feed::CHUNK;
            const int k_channels = p.k_channels - chunk * Feed::CHUNK;
            if (p.norm_bwd.table)
                norm_bwd_halo<D, Shape::THREADS>(p, rows, channel, k_channels,
                                                 halo);
            else
                norm_halo<D, Shape::THREADS>(p, rows, channel, k_channels,
                                             halo);
            if (++group == k.groups) group = 0;
        }
        __syncthreads();
        const unsigned char *w =
            feed.ring + i % copy_stages() * Feed::Filter::BYTES;
        warp_tile.multiply(halo, w, entry.move, 0);
        // copies are issued while the products run
        if (first) feed.next_fill(p, k.groups);
        feed.next_filter(p, k.taps);
        cp_async_commit();
        // with 16 channels or fewer the rest of the chunk is zero
        if (p.k_channels - chunk * Feed::CHUNK > Feed::CHUNK / 2)
            warp_tile.multiply(halo, w, entry.move, 1);
        if (++tap < k.taps) continue;
        tap = 0;
        if (++chunk < next) continue;
        warp_tile.end_segment();
        next = slice_at(p, ++slice + 1);
    }

    cp_async_wait<0>();
    __syncthreads(); // the epilogue reuses the memory

    float *transposed = (float *)(shared + warp * TILE_TRANSPOSE);
    double *partials = (double *)(shared + Shape::TRANSPOSE_BYTES);
    if (p.sums.grads.runs || p.sums.second.runs) {
        tile_grad_sums<D, Shape>(p, k, s, wm, wn, warp_tile, transposed,
                                 partials);
        return;
    }
    IgemmEpilogue store = {p.result, p.second_result, p.bias, p.result_border,
                           p.result_c};
    if (parts) store.to.data = (float *)p.result.data + s.part * p.part_stride;
#pragma unroll
    for (int i = 0; i < Shape::FRAGMENTS; i++)
        store_fragment(p, k, s, wm + i * TILE_FRAGMENT, s.n0 + wn,
                       warp_tile.of(i), transposed, store);
    if (p.sums.parts)
        tile_y_sums<D, Shape>(p, k, s, wm, wn, warp_tile, store, partials);
}

} // namespace

template <Precision P, int BM, int BN, bool DGRAD>
static bool igemm_tile_queue(const ConvProblem *r,
                             const IgemmTileParams<DGRAD> &p, dim3 blocks,
                             size_t shared)
{
    if (!gpu_allows(igemm_tile_kernel<P, BM, BN, DGRAD>, shared)) return false;
    LAUNCH((igemm_tile_kernel<P, BM, BN, DGRAD>), blocks,
           (IgemmTileShape<BM, BN>::THREADS), shared, gpu_stream(r->c->dev), p);
    return gpu_launched(DGRAD ? "igemm_tile dgrad" : "igemm_tile fprop");
}

template <Precision P, bool DGRAD>
bool igemm_tile_launch(const ConvProblem *r, const GemmTile &tile,
                       const IgemmTileParams<DGRAD> &p, dim3 blocks,
                       size_t shared)
{
    if (tile.bm == 64) return igemm_tile_queue<P, 64, 64>(r, p, blocks, shared);
    if (tile.bn == 128)
        return igemm_tile_queue<P, 128, 128>(r, p, blocks, shared);
    if (tile.bn == 64)
        return igemm_tile_queue<P, 128, 64>(r, p, blocks, shared);
    return igemm_tile_queue<P, 128, 32>(r, p, blocks, shared);
}
#endif
