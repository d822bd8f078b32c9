/* prims_wgmma.h -- the cases of prims_sm90.cu with wgmma; included there. */
#ifndef EMU_PRIMS_WGMMA_H
#define EMU_PRIMS_WGMMA_H

// -- one product -------------------------------------------------------------
/* Where an operand lies: bytes from the begin of shared memory. */
struct OperandAt {
    uint32_t start, leading, stride;
    int swizzle;
};
struct Products {
    OperandAt a, b;
    int add;
};
enum { PRODUCT_ROOM = 80 * 1024 };

/* A product, and one of the operands that begin 16 bytes later, which if `add`
 * is added to the first. */
template <int N, Dtype D, bool TA, bool TB>
static __global__ void k_wgmma(Products p, const uint4 *in, float *out)
{
    DYN_SMEM_1024(uint4, tile);
    const int t = threadIdx.x;
    for (int i = t; i < PRODUCT_ROOM / 16; i += 128) tile[i] = in[i];
    fence_async_shared();
    __syncthreads();
    const char *base = reinterpret_cast<const char *>(tile);
    const uint64_t a = wgmma_descriptor(base + p.a.start, p.a.leading,
                                        p.a.stride, p.a.swizzle);
    const uint64_t b = wgmma_descriptor(base + p.b.start, p.b.leading,
                                        p.b.stride, p.b.swizzle);
    float d[N / 2];
    wgmma_fence();
    WgmmaProduct<N, D, TA, TB>::issue(d, a, b, 0);
    WgmmaProduct<N, D, TA, TB>::issue(d, wgmma_advance(a, 16),
                                      wgmma_advance(b, 16), p.add);
    wgmma_commit();
    wgmma_wait<0>();
    for (int i = 0; i < N / 2; i++) out[i * 128 + t] = d[i];
}

/* The numbers along k of a product. */
template <Dtype D> static constexpr int DEPTH = D == F32 ? 8 : 16;

/* The element (r, k) of a K-major operand in tf32: its upper 19 bits. */
static float element_tf32(const Halves &tile, const OperandAt &p, int r, int k)
{
    static const int rows[] = {0, 128, 64, 32};
    const int row = rows[p.swizzle], stride = (int)p.stride;
    int a = (int)p.start + r / 8 * stride;
    a += row ? r % 8 * row + k * 4
             : k / 4 * (int)p.leading + r % 8 * 16 + k % 4 * 4;
    if (row) a ^= a / 128 % (row / 16) * 16;
    uint32_t u;
    memcpy(&u, &tile[(size_t)a / 2], sizeof u);
    u &= 0xffffe000u;
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

/* The element (r, k) of an operand, as the header of wgmma_descriptor says. */
static float element(const Halves &tile, const OperandAt &p, bool mn_major,
                     int r, int k, Dtype type)
{
    static const int rows[] = {0, 128, 64, 32};
    const int row = rows[p.swizzle], e = row / 2;
    const int leading = (int)p.leading, stride = (int)p.stride;
    int a = (int)p.start;
    if (type == F32) return element_tf32(tile, p, r, k);
    if (mn_major && row)
        a += r / e * leading + k / 8 * stride + k % 8 * row + r % e * 2;
    else if (mn_major)
        a += r / 8 * stride + k / 8 * leading + k % 8 * 16 + r % 8 * 2;
    else if (row)
        a += r / 8 * stride + r % 8 * row + k * 2;
    else
        a += r / 8 * stride + k / 8 * leading + r % 8 * 16 + k % 8 * 2;
    if (row) a ^= a / 128 % (row / 16) * 16;
    return float_of(tile[(size_t)a / 2], type);
}

/* c (64 x n) = a (64 x depth) b^T (n x depth), in the host's memory: most of
 * the time of the checked build, if it checked these accesses. */
__attribute__((no_sanitize("thread"))) static void plain(float *c,
                                                         const float *a,
                                                         const float *b, int n,
                                                         int depth)
{
    for (int m = 0; m < 64; m++)
        for (int i = 0; i < n; i++) {
            float sum = 0;
            for (int k = 0; k < depth; k++)
                sum += a[m * depth + k] * b[i * depth + k];
            c[m * n + i] = sum;
        }
}

/* K-major and MN-major places of an operand; the last two are for operands that
 * overlap themselves, as the taps of a convolution do. */
static const OperandAt places[2][7] = {
    {{1024, 0, 1024, SWIZZLE_128},
     {2048 + 3 * 128 + 32, 0, 1280, SWIZZLE_128},
     {1024 + 7 * 64, 0, 512, SWIZZLE_64},
     {512 + 5 * 32, 0, 272, SWIZZLE_32},
     {256, 128, 256, SWIZZLE_NONE},
     {1024 + 6 * 128 + 64, 0, 128, SWIZZLE_128},
     {1024 + 16, 4096, 144, SWIZZLE_NONE}},
    {{1024, 8192, 1024, SWIZZLE_128},
     {2048 + 3 * 128, 9216, 1280, SWIZZLE_128},
     {1024 + 7 * 64, 4096, 640, SWIZZLE_64},
     {512 + 5 * 32, 2048, 272, SWIZZLE_32},
     {256, 128, 256, SWIZZLE_NONE},
     {3072 + 5 * 128 + 64, 128, 1280, SWIZZLE_128},
     {1024 + 3 * 64, 64, 640, SWIZZLE_64}},
};

template <int N, Dtype D, bool TA, bool TB> static void product(int which)
{
    enum { DEEP = 2 * DEPTH<D> };
    char what[96];
    Halves tile;
    // of f32 the low half has bits that a product does not read
    for (int i = 0; i < PRODUCT_ROOM / 2; i++)
        tile.push_back(D == F32 && i % 2 == 0
                           ? (uint16_t)(i * 7 % 0x2000)
                           : half_of((float)((i * 7 + i / 61) % 5 - 2),
                                     D == F32 ? BF16 : D));
    Buffer<uint16_t> in(tile);
    Buffer<float> out((size_t)N * 64);
    const Products p = {places[TA][which], places[TB][(which * 3 + N / 32) % 7],
                        which % 2};
    launch(k_wgmma<N, D, TA, TB>, 128, PRODUCT_ROOM, p,
           reinterpret_cast<const uint4 *>(in.p), out.p);

    std::vector<float> want((size_t)N * 64), c((size_t)N * 64);
    std::vector<float> a(64 * DEEP), b((size_t)N * DEEP);
    for (int k = p.add ? 0 : DEPTH<D>; k < DEEP; k++) {
        const int own = k % DEPTH<D>;
        OperandAt pa = p.a, pb = p.b;
        pa.start += k / DEPTH<D> * 16, pb.start += k / DEPTH<D> * 16;
        for (int r = 0; r < 64; r++)
            a[(size_t)(r * DEEP + k)] = element(tile, pa, TA, r, own, D);
        for (int r = 0; r < N; r++)
            b[(size_t)(r * DEEP + k)] = element(tile, pb, TB, r, own, D);
    }
    plain(c.data(), a.data(), b.data(), N, DEEP);
    for (int t = 0; t < 128; t++)
        for (int i = 0; i < N / 2; i++) {
            const int row = t / 32 * 16 + t % 32 / 4 + i % 4 / 2 * 8;
            const int column = i / 4 * 8 + t % 4 * 2 + i % 2;
            want[(size_t)(i * 128 + t)] = c[(size_t)(row * N + column)];
        }
    snprintf(what, sizeof what, "wgmma n %d type %d, %d %d, place %d", N,
             (int)D, TA, TB, which);
    compare(what, out.get(), want);
}

template <int N> static void products_of()
{
    for (int which = 0; which < 7; which++) {
        product<N, BF16, false, false>(which);
        product<N, BF16, false, true>(which);
        product<N, BF16, true, false>(which);
        product<N, BF16, true, true>(which);
        product<N, F32, false, false>(which);
    }
    product<N, F16, false, false>(0);
    product<N, F16, false, true>(1);
    product<N, F16, true, false>(1);
    product<N, F16, true, true>(0);
}
static void products()
{
    products_of<32>();
    products_of<64>();
    products_of<96>();
    products_of<128>();
    products_of<192>();
    products_of<256>();
}

// -- a matrix product by a warp-specialised kernel ---------------------------
/* c (columns x 128, bf16) = (a b^T)^T: a has 128 rows, b `columns`, of `depth`
 * numbers each. Warpgroup 0: one thread loads; 1 and 2: products of 64 rows of
 * a by 64 of b, which are stored in two halves. */
enum { STAGES = 3, TILE = 64 * 128, STAGE = 3 * TILE };
struct Gemm {
    TensorMap a, b, c;
    int tiles, chunks; /* of 64 columns, of 64 of the depth */
};

static __global__ void __launch_bounds__(384, 1)
    k_gemm(const __grid_constant__ Gemm g)
{
    DYN_SMEM_1024(char, shared);
    char *staging = shared + STAGES * STAGE;
    uint64_t *full = reinterpret_cast<uint64_t *>(staging + 2 * TILE);
    uint64_t *empty = full + STAGES;
    const int t = threadIdx.x, group = t / 128 - 1, own = t % 128;
    if (t == 0) {
        for (int i = 0; i < STAGES; i++) {
            mbarrier_init(&full[i], 1);
            mbarrier_init(&empty[i], 8);
        }
        fence_async_shared();
    }
    __syncthreads();
    if (group < 0) {
        setmaxnreg_dec<80>();
        if (t) return;
        int at = 0;
        uint32_t parity = 1;
        for (int n = 0; n < g.tiles * g.chunks; n++) {
            char *to = shared + at * STAGE;
            const int k = n % g.chunks * 64, tile = n / g.chunks;
            while (!mbarrier_test(&empty[at], parity)) {
            }
            mbarrier_expect(&full[at], STAGE);
            tma_load(to, &g.a, k, 0, 0, 0, 0, &full[at]);
            tma_load(to + TILE, &g.a, k, 64, 0, 0, 0, &full[at]);
            tma_load(to + 2 * TILE, &g.b, k, tile * 64, 0, 0, 0, &full[at]);
            if (++at == STAGES) at = 0, parity ^= 1;
        }
        return;
    }
    setmaxnreg_inc<208>();
    const int warp = own / 32, lane = own % 32;
    char *mine = staging + group * TILE;
    int at = 0;
    uint32_t parity = 0;
    for (int tile = 0; tile < g.tiles; tile++) {
        float d[32];
        int before = -1;
        for (int c = 0; c < g.chunks; c++) {
            const char *from = shared + at * STAGE;
            mbarrier_wait(&full[at], parity);
            const uint64_t a =
                wgmma_descriptor(from + group * TILE, 0, 1024, SWIZZLE_128);
            const uint64_t b =
                wgmma_descriptor(from + 2 * TILE, 0, 1024, SWIZZLE_128);
            wgmma_fence();
            for (uint32_t k = 0; k < 4; k++)
                WgmmaProduct<64, BF16, false, false>::issue(
                    d, wgmma_advance(a, 32 * k), wgmma_advance(b, 32 * k),
                    c > 0 || k);
            wgmma_commit();
            wgmma_wait<1>();
            if (lane == 0 && before >= 0) mbarrier_arrive(&empty[before], 1);
            before = at;
            if (++at == STAGES) at = 0, parity ^= 1;
        }
        wgmma_wait<0>();
        if (lane == 0) mbarrier_arrive(&empty[before], 1);
        if (own == 0) tma_store_wait_read<0>();
        named_barrier(1 + group, 128);
        /* rows of 64 numbers of one column of d */
        for (int i = 0; i < 4; i++) {
            uint32_t v[4];
            for (int j = 0; j < 4; j++)
                v[j] = pack_bf16(d[8 * i + 2 * j], d[8 * i + 2 * j + 1]);
            const int row = i * 16 + lane / 16 * 8 + lane % 8;
            const int sixteen = (warp * 2 + lane / 8 % 2) ^ lane % 8;
            stmatrix_x4_trans(mine + row * 128 + sixteen * 16, v);
        }
        fence_async_shared();
        named_barrier(1 + group, 128);
        if (own == 0) {
            tma_store(&g.c, mine, group * 64, tile * 64, 0, 0, 0);
            tma_store_commit();
        }
    }
    if (own == 0) tma_store_wait<0>();
}

static TensorMap matrix(const uint16_t *data, int rows, int columns)
{
    TensorMap map = {};
    TensorMapSpec s = {data, BF16, {columns, rows, 1, 1, 1}, {}, {}, 128};
    for (int i = 0; i < TENSOR_MAP_AXES; i++) {
        s.stride[i] = 2 * columns * (i > 1 ? rows : 1);
        s.box[i] = i < 2 ? 64 : 1;
    }
    EXPECT(tensor_map_encode(&s, &map));
    return map;
}
static void gemm()
{
    const int rows = 128, columns = 5 * 64 - 8, depth = 6 * 64 - 16;
    Halves a, b, want;
    for (int i = 0; i < rows * depth; i++)
        a.push_back(half_of((float)(i * 5 % 7 - 3), BF16));
    for (int i = 0; i < columns * depth; i++)
        b.push_back(half_of((float)(i * 3 % 11 - 5), BF16));
    Buffer<uint16_t> da(a), db(b), dc(Halves((size_t)(rows * columns), 7));
    const Gemm g = {matrix(da.p, rows, depth), matrix(db.p, columns, depth),
                    matrix(dc.p, columns, rows), 5, 6};
    launch(k_gemm, 384, STAGES * STAGE + 2 * TILE + 2 * STAGES * 8, g);
    for (int n = 0; n < columns; n++)
        for (int m = 0; m < rows; m++) {
            float sum = 0;
            for (int k = 0; k < depth; k++)
                sum += float_of(a[(size_t)(m * depth + k)], BF16) *
                       float_of(b[(size_t)(n * depth + k)], BF16);
            want.push_back(half_of(sum, BF16));
        }
    compare("a warp-specialised product", dc.get(), want);
}
#endif
