/* prims.cu -- the primitives, one source for the emulator and for a GPU.
 *
 * Each case is a kernel of one warp (a few need more) whose inputs are
 * distinct integers, so that a wrong layout shows as a permuted result. The
 * result is compared exactly with a result computed on the host, and its hash
 * with the table at the end: the host's formulas and the emulator could share a
 * misreading of PTX; a GPU that gives the same hash rules this out.
 *
 *     prims            all cases; ends with "N passed, N failed, 0 skipped"
 *     prims --hashes   prints the table */
#include "cuda/lib/ptx.cuh"
#include "tests/cuda/emulator/kit.h"

typedef std::vector<uint32_t> Words;

static uint32_t word_of(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

/* -- products -------------------------------------------------------------- */
/* Row-major matrices of integers that the type and the sums hold exactly. */
static float a_value(int row, int k, int depth)
{
    return (float)(row * depth + k);
}
static float b_value(int k, int n)
{
    return (float)(k * 8 + n + 1);
}

enum { BF16_K16, F16_K16, TF32_K8, F16_K8 };
template <int type>
static __global__ void k_product(const float *a, const float *b, float *d)
{
    const int l = threadIdx.x, g = l / 4, t = l % 4;
    const int depth = type == TF32_K8 || type == F16_K8 ? 8 : 16;
    const int registers = type == F16_K8 ? 2 : 4;
    uint32_t fa[4], fb[2];
    float fd[4];

    for (int i = 0; i < registers; i++) {
        const int row = g + 8 * (i & 1);
        const int k = type == TF32_K8 ? t + 4 * (i >> 1) : 2 * t + 8 * (i >> 1);
        const float *p = a + row * depth + k;
        fa[i] = type == TF32_K8    ? to_tf32(p[0])
                : type == BF16_K16 ? pack_bf16(p[0], p[1])
                                   : pack_f16(p[0], p[1]);
    }

    for (int i = 0; i < registers / 2; i++) {
        const int k = type == TF32_K8 ? t + 4 * i : 2 * t + 8 * i;
        const float *p = b + k * 8 + g;
        fb[i] = type == TF32_K8    ? to_tf32(p[0])
                : type == BF16_K16 ? pack_bf16(p[0], p[8])
                                   : pack_f16(p[0], p[8]);
    }

    for (int i = 0; i < 4; i++)
        fd[i] = d[(g + 8 * (i >> 1)) * 8 + 2 * t + (i & 1)];
    if (type == BF16_K16) mma_bf16(fd, fa, fb);
    if (type == F16_K16) mma_f16(fd, fa, fb);
    if (type == TF32_K8) mma_tf32(fd, fa, fb);
    if (type == F16_K8) {
        const uint32_t rows[2] = {fa[0], fa[1]};
        mma_f16_k8(fd, rows, fb[0]);
    }
    for (int i = 0; i < 4; i++)
        d[(g + 8 * (i >> 1)) * 8 + 2 * t + (i & 1)] = fd[i];
}

template <int type> static void product(Words *got, Words *want)
{
    const int depth = type == TF32_K8 || type == F16_K8 ? 8 : 16;
    std::vector<float> a, b, d;
    for (int r = 0; r < 16; r++)
        for (int k = 0; k < depth; k++) a.push_back(a_value(r, k, depth));
    for (int k = 0; k < depth; k++)
        for (int n = 0; n < 8; n++) b.push_back(b_value(k, n));
    for (int i = 0; i < 128; i++) d.push_back((float)(1000 * i));
    Buffer<float> da(a), db(b), dd(d);
    LAUNCH(k_product<type>, 1, 32, 0, 0, da.p, db.p, dd.p);
    OK_LAUNCH();
    for (float x : dd.get()) got->push_back(word_of(x));

    for (int r = 0; r < 16; r++) {
        for (int n = 0; n < 8; n++) {
            float sum = d[(size_t)r * 8 + n];
            for (int k = 0; k < depth; k++)
                sum += a_value(r, k, depth) * b_value(k, n);
            want->push_back(word_of(sum));
        }
    }
}

/* -- tf32 ------------------------------------------------------------------ */
static __global__ void k_tf32(const float *x, uint32_t *out, int n)
{
    for (int i = threadIdx.x; i < n; i += 32)
        out[i] = to_tf32(x[i]) & 0xffffe000u; /* the rest is not defined */
}
static void tf32(Words *got, Words *want)
{
    std::vector<float> x;
    for (uint32_t high : {0x3f800000u, 0xc1234000u, 0x00800000u, 0x7e7fe000u,
                          0x00000000u, 0x42ffe000u}) {
        for (uint32_t low : {0u, 1u, 0xfffu, 0x1000u, 0x1001u, 0x1fffu}) {
            const uint32_t u = high | low;
            float f;
            memcpy(&f, &u, sizeof f);
            x.push_back(f);
            want->push_back((u + 0x1000u) & 0xffffe000u);
        }
    }

    Buffer<float> dx(x);
    Buffer<uint32_t> out(x.size());
    LAUNCH(k_tf32, 1, 32, 0, 0, dx.p, out.p, (int)x.size());
    OK_LAUNCH();
    *got = out.get();
}

/* -- ldmatrix -------------------------------------------------------------- */
template <int n, bool transposed>
static __global__ void k_ldmatrix(const uint16_t *in, uint32_t *out)
{
    SMEM(uint16_t, tile, [32][8]);
    const int l = threadIdx.x;
    uint32_t r[n];
    for (int c = 0; c < 8; c++) tile[l][c] = in[l * 8 + c];
    __syncwarp();
    const void *row = &tile[l % (8 * n)][0];
    if constexpr (n == 1 && !transposed) ldmatrix_x1(r, row);
    if constexpr (n == 2 && !transposed) ldmatrix_x2(r, row);
    if constexpr (n == 4 && !transposed) ldmatrix_x4(r, row);
    if constexpr (n == 1 && transposed) ldmatrix_x1_trans(r, row);
    if constexpr (n == 2 && transposed) ldmatrix_x2_trans(r, row);
    if constexpr (n == 4 && transposed) ldmatrix_x4_trans(r, row);
    for (int i = 0; i < n; i++) out[l * n + i] = r[i];
}
template <int n, bool transposed> static void matrices(Words *got, Words *want)
{
    std::vector<uint16_t> in;
    for (int i = 0; i < 256; i++) in.push_back((uint16_t)(1000 + i));
    Buffer<uint16_t> din(in);
    Buffer<uint32_t> out(32 * n);
    LAUNCH((k_ldmatrix<n, transposed>), 1, 32, 0, 0, din.p, out.p);
    OK_LAUNCH();
    *got = out.get();

    for (int l = 0; l < 32; l++) {
        for (int i = 0; i < n; i++) {
            uint32_t pair[2];
            for (int h = 0; h < 2; h++) {
                const int r = l / 4, c = 2 * (l % 4) + h;
                pair[h] = transposed ? in[(size_t)(i * 8 + c) * 8 + r]
                                     : in[(size_t)(i * 8 + r) * 8 + c];
            }
            want->push_back(pair[0] | pair[1] << 16);
        }
    }
}

/* -- cp.async -------------------------------------------------------------- */
/* Each lane copies `words` words or fills with zeros, in two groups: after the
 * wait for all groups but one only the first is read. */
template <int words>
static __global__ void k_copy(const uint32_t *in, uint32_t *out)
{
    SMEM(uint32_t, tile, [2][32 * words]);
    const int l = threadIdx.x;

    for (int g = 0; g < 2; g++) {
        uint32_t *to = &tile[g][l * words];
        const uint32_t *from = in + (g * 32 + l) * words;
        const bool valid = l % 2 == g;
        if constexpr (words == 1) cp_async4(to, from, valid);
        if constexpr (words == 2) cp_async8(to, from, valid);
        if constexpr (words == 4) cp_async16(to, from, valid);
        cp_async_commit();
    }

    cp_async_wait<1>();
    for (int i = 0; i < words; i++) out[l * words + i] = tile[0][l * words + i];
    cp_async_wait<0>();
    __syncthreads();
    for (int i = 0; i < words; i++) /* of another lane */
        out[(32 + l) * words + i] = tile[1][(l ^ 1) * words + i];
}
template <int words> static void copies(Words *got, Words *want)
{
    Words in;
    for (uint32_t i = 0; i < 64 * words; i++) in.push_back(7000 + i);
    Buffer<uint32_t> din(in), out(in.size());
    LAUNCH(k_copy<words>, 1, 32, 0, 0, din.p, out.p);
    OK_LAUNCH();
    *got = out.get();

    for (size_t g = 0; g < 2; g++)
        for (size_t l = 0; l < 32; l++)
            for (size_t i = 0; i < words; i++) {
                const size_t from = g ? l ^ 1 : l;
                want->push_back(from % 2 == g ? in[(g * 32 + from) * words + i]
                                              : 0);
            }
}

/* -- shuffles, votes, reductions ------------------------------------------- */
template <class T> static __global__ void k_shuffle(uint32_t *out)
{
    const int l = threadIdx.x;
    const T mine = (T)(100 + l);
    uint32_t *at = out + l;

    for (int width = 32; width >= 4; width /= 2) {
        for (int by = 0; by < 8; by += 3) {
            at[0] = (uint32_t)__shfl_sync(~0u, mine, by, width);
            at[32] = (uint32_t)__shfl_up_sync(~0u, mine, by, width);
            at[64] = (uint32_t)__shfl_down_sync(~0u, mine, by, width);
            at[96] = (uint32_t)__shfl_xor_sync(~0u, mine, by, width);
            at += 128;
        }
    }
}
template <class T> static void shuffles(Words *got, Words *want)
{
    Buffer<uint32_t> out(4 * 3 * 128);
    LAUNCH(k_shuffle<T>, 1, 32, 0, 0, out.p);
    OK_LAUNCH();
    *got = out.get();

    for (int width = 32; width >= 4; width /= 2)
        for (int by = 0; by < 8; by += 3)
            for (int form = 0; form < 4; form++)
                for (int l = 0; l < 32; l++) {
                    const int first = l / width * width, last = first + width;
                    int from = form == 0   ? first + by % width
                               : form == 1 ? l - by
                               : form == 2 ? l + by
                                           : l ^ by;
                    if (form == 1 && from < first) from = l;
                    if (form >= 2 && from >= last) from = l;
                    want->push_back((uint32_t)(100 + from));
                }
}

static __global__ void k_votes(uint32_t *out)
{
    const int l = threadIdx.x;
    const unsigned lower = 0xffffu;
    out[l] = __ballot_sync(~0u, l % 3 == 0);
    out[32 + l] = (uint32_t)__any_sync(~0u, l == 31);
    out[64 + l] = (uint32_t)__all_sync(~0u, l < 31);
    out[96 + l] = __match_any_sync(~0u, l % 5);
    out[128 + l] = __reduce_add_sync(~0u, (unsigned)l * l);
    out[160 + l] = (uint32_t)__reduce_min_sync(~0u, 7 - l);
    out[192 + l] = (uint32_t)__reduce_max_sync(~0u, 7 - l);
    out[224 + l] = __reduce_xor_sync(~0u, 1u << l | (unsigned)l);

    /* half a warp votes on its own */
    const unsigned mask = l < 16 ? lower : ~lower;
    out[256 + l] = __ballot_sync(mask, l % 2);
}
static void votes(Words *got, Words *want)
{
    Buffer<uint32_t> out(288);
    LAUNCH(k_votes, 1, 32, 0, 0, out.p);
    OK_LAUNCH();
    *got = out.get();
    uint32_t thirds = 0, squares = 0, all = 0;
    for (uint32_t l = 0; l < 32; l++) {
        thirds |= l % 3 == 0 ? 1u << l : 0;
        squares += l * l;
        all ^= 1u << l | l;
    }

    for (uint32_t what = 0; what < 9; what++)
        for (uint32_t l = 0; l < 32; l++) {
            uint32_t same = 0;
            for (uint32_t k = 0; k < 32; k++)
                same |= k % 5 == l % 5 ? 1u << k : 0;
            const uint32_t odd = l < 16 ? 0xaaaau : 0xaaaa0000u;
            const uint32_t row[] = {thirds,  1,  0,   same, squares,
                                    7u - 31, 7u, all, odd};
            want->push_back(row[what]);
        }
}

static __global__ void k_sums(double *out)
{
    const int l = threadIdx.x;
    for (int width = 32, i = 0; width >= 1; width /= 2, i++) {
        out[i * 128 + l] = warp_sum((double)(l * l), width);
        out[i * 128 + 32 + l] = warp_sum((float)(1 << (l & 15)), width);
        out[i * 128 + 64 + l] = warp_max((float)((l * 7) % 32), width);
        out[i * 128 + 96 + l] = warp_max((l * 11) % 32, width);
        out[768 + i * 32 + l] = warp_sum_strided((double)(l * l), width);
    }
}
static void sums(Words *got, Words *want)
{
    Buffer<double> out(6 * 160);
    LAUNCH(k_sums, 1, 32, 0, 0, out.p);
    OK_LAUNCH();
    for (double x : out.get()) got->push_back((uint32_t)x);

    for (int width = 32; width >= 1; width /= 2) {
        for (int what = 0; what < 4; what++) {
            for (int l = 0; l < 32; l++) {
                uint32_t r = 0;
                const int first = l / width * width;
                for (int k = first; k < first + width; k++) {
                    const uint32_t x[] = {(uint32_t)(k * k), 1u << (k & 15),
                                          (uint32_t)(k * 7 % 32),
                                          (uint32_t)(k * 11 % 32)};
                    r = what < 2 ? r + x[what] : x[what] > r ? x[what] : r;
                }
                want->push_back(r);
            }
        }
    }

    for (uint32_t stride = 32; stride >= 1; stride /= 2)
        for (uint32_t l = 0; l < 32; l++) {
            uint32_t r = 0;
            for (uint32_t k = l % stride; k < 32; k += stride) r += k * k;
            want->push_back(r);
        }
}

#include "tests/cuda/emulator/prims_numbers.h"

/* -- block and grid -------------------------------------------------------- */
static __global__ void k_block(uint32_t *out)
{
    DYN_SMEM(uint32_t, turned);
    const int i = threadIdx.x, n = blockDim.x;
    turned[n - 1 - i] = (uint32_t)(i * i);
    const int any = __syncthreads_or(i == 77);
    const int every = __syncthreads_and(i != 77);
    const int some = __syncthreads_count(i % 7 == 0);
    out[i] = turned[i];
    out[n + i] = (uint32_t)(any * 1000 + every * 100 + some);
}
static void blocks(Words *got, Words *want)
{
    const uint32_t n = 160;
    Buffer<uint32_t> out(2 * n);
    LAUNCH(k_block, 1, n, n * sizeof(uint32_t), 0, out.p);
    OK_LAUNCH();
    *got = out.get();
    for (uint32_t i = 0; i < n; i++) want->push_back((n - 1 - i) * (n - 1 - i));
    for (uint32_t i = 0; i < n; i++) want->push_back(1000 + 23);
}

/* Each round every block reads the cell that its neighbour wrote in the round
 * before. */
static __global__ void k_grid(uint32_t *cells, unsigned *word)
{
    const unsigned n = gridDim.x * blockDim.x;
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    volatile uint32_t *c = cells;
    for (unsigned round = 0; round < 5; round++) {
        const uint32_t seen = c[round * n + (i + blockDim.x) % n];
        c[(round + 1) * n + i] = seen * 3 + round;
        grid_barrier(word);
    }
}
static void grids(Words *got, Words *want)
{
    const uint32_t n = 16 * 64;
    Words cells(6 * n, 0);
    for (uint32_t i = 0; i < n; i++) cells[i] = i;
    Buffer<uint32_t> out(cells);
    Buffer<unsigned> word(std::vector<unsigned>(1, 0));
    LAUNCH_COOP(k_grid, 16, 64, 0, 0, out.p, word.p);
    OK_LAUNCH();
    *got = out.get();
    for (uint32_t round = 0; round < 5; round++)
        for (uint32_t i = 0; i < n; i++)
            cells[(round + 1) * n + i] =
                cells[round * n + (i + 64) % n] * 3 + round;
    *want = cells;
}

/* Each block writes a number, the last of each four blocks adds four numbers,
 * the last of these blocks adds the sums. Runs twice: the counters are 0 again.
 */
static __global__ void k_last(uint32_t *parts, unsigned *words, uint32_t *out)
{
    const unsigned t = threadIdx.x, group = blockIdx.x / 4;
    uint32_t *own = parts + blockIdx.x * blockDim.x;
    own[t] = out[0] + blockIdx.x * 7 + t;
    if (!last_block(&words[group], 4)) return;
    for (unsigned i = group * 4; i < group * 4 + 4; i++)
        if (i != blockIdx.x) own[t] += parts[i * blockDim.x + t];
    parts[(gridDim.x + group) * blockDim.x + t] = own[t];
    if (!last_block(&words[4], gridDim.x / 4)) return;
    uint32_t sum = 0;
    for (unsigned i = 0; i < gridDim.x / 4; i++)
        sum += parts[(gridDim.x + i) * blockDim.x + t];
    out[1 + t] = sum;
}
static void last(Words *got, Words *want)
{
    const uint32_t blocks = 16, threads = 64;
    Buffer<uint32_t> parts(20 * threads), out(Words(1 + threads, 0));
    Buffer<unsigned> words(std::vector<unsigned>(5, 0));

    for (uint32_t turn = 0; turn < 2; turn++) {
        LAUNCH(k_last, blocks, threads, 0, 0, parts.p, words.p, out.p);
        OK_LAUNCH();
    }
    *got = out.get();
    for (unsigned w : words.get()) got->push_back(w);
    want->push_back(0);
    for (uint32_t t = 0; t < threads; t++)
        want->push_back(blocks * (blocks - 1) / 2 * 7 + blocks * t);
    for (int i = 0; i < 5; i++) want->push_back(0);
}

static const struct {
    const char *name;
    void (*run)(Words *got, Words *want);
    uint64_t hash;
    int least; /* compute capability: 80, or 0 for all */
} cases[] = {
    {"mma bf16", product<BF16_K16>, 0x52b5327db954f999u, 80},
    {"mma f16", product<F16_K16>, 0x52b5327db954f999u, 0},
    {"mma f16 k8", product<F16_K8>, 0x415af324b9b2831cu, 0},
    {"mma tf32", product<TF32_K8>, 0x415af324b9b2831cu, 80},
    {"to_tf32", tf32, 0xc21cdf8b951cc2f8u, 80},
    {"ldmatrix x1", matrices<1, false>, 0x3f788420f849c343u, 0},
    {"ldmatrix x2", matrices<2, false>, 0x53b8047c1c603bb3u, 0},
    {"ldmatrix x4", matrices<4, false>, 0x2479b7a9f2841283u, 0},
    {"ldmatrix x1 trans", matrices<1, true>, 0x27441624b71cf3a3u, 0},
    {"ldmatrix x2 trans", matrices<2, true>, 0x60f820bd4706c723u, 0},
    {"ldmatrix x4 trans", matrices<4, true>, 0xf3e088ccd62772a3u, 0},
    {"cp.async 4", copies<1>, 0x89ec1d28ad115123u, 0},
    {"cp.async 8", copies<2>, 0x09ee71a09094d343u, 0},
    {"cp.async 16", copies<4>, 0x684649eaed8c9d8fu, 0},
    {"shuffle int", shuffles<int>, 0x2bfa0ed123ea64f3u, 0},
    {"shuffle float", shuffles<float>, 0x2bfa0ed123ea64f3u, 0},
    {"shuffle double", shuffles<double>, 0x2bfa0ed123ea64f3u, 0},
    {"shuffle int64", shuffles<long long>, 0x2bfa0ed123ea64f3u, 0},
    {"votes", votes, 0xaa77f326bae087e7u, 0},
    {"warp sums", sums, 0xe7595acf40682187u, 0},
    {"16-bit patterns", patterns, 0x37b088bcf0292783u, 80},
    {"16-bit arithmetic", halves, 0x1ff18edc6c4add2eu, 80},
    {"integer intrinsics", bits, 0xfdc80003e365cf1au, 0},
    {"atomics", atomics, 0x6438d41bed0a8ae9u, 0},
    {"block", blocks, 0x10872f4a30f91a1eu, 0},
    {"grid barrier", grids, 0xaa97db75682d341bu, 0},
    {"last block", last, 0x0092af4267bca2e3u, 0},
};

int main(int argc, char **argv)
{
    const bool list = argc > 1 && !strcmp(argv[1], "--hashes");
    int major = 0, minor = 0;
    OK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
    OK(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0));
    for (const auto &c : cases) {
        if (10 * major + minor < c.least) continue;
        Words got, want;
        c.run(&got, &want);
        const uint64_t hash =
            hash_bytes(got.data(), got.size() * sizeof got[0]);
        if (list) {
            printf("%016llx %s\n", (unsigned long long)hash, c.name);
            continue;
        }
        size_t wrong = got.size() != want.size();
        for (size_t i = 0; !wrong && i < got.size(); i++) {
            if (got[i] == want[i]) continue;
            printf("  %s: word %zu is %08x, should be %08x\n", c.name, i,
                   got[i], want[i]);
            wrong = 1;
        }
        expect(!wrong, c.name, __LINE__);
        expect(hash == c.hash, "the hash", __LINE__);
    }
    return list ? 0 : kit_result();
}
