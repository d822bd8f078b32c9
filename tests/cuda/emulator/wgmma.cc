/* wgmma.cc -- products of a warpgroup (128 threads).
 *
 * The first thread that issues a product has its operands copied; the others
 * must come with the same. Products are made when the last thread of the
 * warpgroup comes to a wgmma_wait that needs them. Until the products of an
 * accumulator are done, its values are kept here and the threads' registers
 * hold NaN. Sums are f32, k ascending; the hardware adds in another order, so
 * results are compared with a tolerance. */
#include "tests/cuda/emulator/core.h"
#include "tests/cuda/emulator/emu_half.h"

#include <deque>
#include <vector>

namespace emu {

enum { GROUP = 128, GROUPS = MAX_THREADS / GROUP, M = 64, K = 16, N = 256 };
/* Of 16 bits; tf32 numbers are twice as long, and a product has half as many
 * along k, so its runs of 16 bytes lie at the same addresses. */
enum { RUN = 8 }; /* neighbours of an operand that lie together: 16 bytes */

namespace {
/* D of the products of one accumulator. */
struct Accumulator {
    int n, in_flight;
    float *d[GROUP]; /* registers of each thread; null: it has not come yet */
    float value[M][N];
};
struct Operand {
    uint64_t descriptor;
    bool mn_major;
    int extent;                     /* along m or n */
    uint32_t at[N * K / RUN];       /* of each run, see run_at */
    uint16_t run[N * K / RUN][RUN]; /* the contents at the issue */
};
struct Product {
    Operand a, b;
    ProductType type;
    bool add;
    Site site;
    std::shared_ptr<Accumulator> to;
};
/* The number of products before the end of a group; a type of this file, see
 * mbarrier.cc. */
struct End {
    long products;
};
/* Product i is queue[i - done]; group i ends before product ends[i - closed].
 */
struct Warpgroup {
    std::deque<Product> queue;
    std::deque<End> ends;
    long done, closed; /* products made; groups of which all are */
    long issued[GROUP], commits[GROUP];
    bool fenced[GROUP]; /* since products last wrote the thread's registers */
    std::vector<std::shared_ptr<Accumulator>> live;
    int waiting; /* threads in wgmma_wait */
    long wanted; /* by them: the products before this one */
};
typedef float Floats __attribute__((vector_size(32)));
enum { FLOATS = 8 };
} // namespace

static std::unique_ptr<Warpgroup> groups[MAX_BLOCKS][GROUPS];

static Warpgroup &here(const Site &site)
{
    const int g = thread_number / GROUP;
    auto &w = groups[block->number][g];
    if ((g + 1) * GROUP > thread_count)
        stop(site, "%s needs a warpgroup of 128 threads", site.what);
    if (w) return *w;
    sm90_needed(site);
    w.reset(new Warpgroup());
    return *w;
}

/* -- operands ------------------------------------------------------------- */
/* Offset of run i in shared memory: of row i / 2, k from i % 2 * 8 on, or if
 * mn_major of rows from i / 16 * 8 on, k = i % 16. */
static uint32_t run_at(uint64_t d, bool mn_major, int i)
{
    static const uint32_t rows[] = {0, 128, 64, 32};
    const uint32_t start = (uint32_t)(d & 0x3fff) << 4;
    const uint32_t leading = (uint32_t)(d >> 16 & 0x3fff) << 4;
    const uint32_t stride = (uint32_t)(d >> 32 & 0x3fff) << 4;
    const uint32_t row = rows[d >> 62];
    const uint32_t r = mn_major ? i / 16 * 8 : i / 2; /* m or n */
    const uint32_t k = mn_major ? i % 16 : i % 2 * 8;
    const uint32_t in_core = mn_major ? k % 8 : r % 8; /* row of 16 bytes */
    uint32_t at;
    if (!row) return start + r / 8 * stride + k / 8 * leading + in_core * 16;
    if (mn_major)
        at = start + r * 2 / row * leading + k / 8 * stride + k % 8 * row +
             r * 2 % row;
    else
        at = start + r / 8 * stride + r % 8 * row + k * 2;
    return at ^ at / 128 % (row / 16) * 16;
}

static void check_descriptor(uint64_t d, const Site &site)
{
    static const uint64_t UNUSED =
        ~(0x3fffull | 0x3fffull << 16 | 0x3fffull << 32 | 3ull << 62);
    if (d & UNUSED)
        stop(site, "wgmma: a descriptor of %016llx", (unsigned long long)d);
}

static void copy_runs(uint16_t (*to)[RUN], const Operand &o)
{
    for (int i = 0; i < o.extent * K / RUN; i++)
        memcpy(to[i], block->shared + o.at[i], sizeof to[i]);
}

static void read_operand(Operand *o, const char *name, const Site &site,
                         void *pc)
{
    check_descriptor(o->descriptor, site);
    for (int i = 0; i < o->extent * K / RUN; i++) {
        const uint32_t offset = run_at(o->descriptor, o->mn_major, i);
        o->at[i] = offset;
        const uintptr_t at = (uintptr_t)block->shared + offset;
        if (!shared_holds(block, at, 16))
            stop(site,
                 "wgmma: operand %s out of bounds of shared memory, at "
                 "byte %u",
                 name, offset);
        if (is_loading(at, 16))
            stop(site,
                 "wgmma: operand %s is read while a tma_load into it is "
                 "in flight",
                 name);
        if (checker) checker->async_read(at, 16, pc);
    }
    copy_runs(o->run, *o);
}

static void check_unchanged(const Operand &o, const char *name,
                            const Site &site)
{
    static uint16_t now[N * K / RUN][RUN];
    copy_runs(now, o);
    if (memcmp(now, o.run, sizeof now[0] * (size_t)(o.extent * K / RUN)))
        stop(site,
             "wgmma: operand %s was overwritten between the product and "
             "wgmma_wait",
             name);
}

/* -- products ------------------------------------------------------------- */
static float f32_of_bf16(uint16_t x)
{
    return from_bf16(x);
}
/* without branches, unlike from_f16 */
static float f32_of_f16(uint16_t x)
{
    const uint32_t low = (uint32_t)(x & 0x7fff) << 13;
    const float f = bits<float>(low) * 0x1p112f;
    const uint32_t u =
        low >= 0x7c00u << 13 ? low | 0x7f800000u : bits<uint32_t>(f);
    return bits<float>(u | (uint32_t)(x & 0x8000) << 16);
}

template <float (*f32)(uint16_t)>
static void decode(float (*a)[K], float (*b)[N], const Product &p)
{
    for (int i = 0; i < M * K / RUN; i++)
        for (int j = 0; j < RUN; j++) {
            const float x = f32(p.a.run[i][j]);
            if (p.a.mn_major)
                a[i / 16 * 8 + j][i % 16] = x;
            else
                a[i / 2][i % 2 * 8 + j] = x;
        }
    for (int i = 0; i < p.b.extent * K / RUN; i++) {
        float x[RUN];
        for (int j = 0; j < RUN; j++) x[j] = f32(p.b.run[i][j]);
        if (p.b.mn_major)
            memcpy(b[i % 16] + i / 16 * 8, x, sizeof x);
        else
            for (int j = 0; j < RUN; j++) b[i % 2 * 8 + j][i / 2] = x[j];
    }
}

/* d += a b, in tiles of 2 x 32 that stay in registers */
static void multiply(float (*d)[N], const float (*a)[K], const float (*b)[N],
                     int n, int depth)
{
    enum { ROWS = 2, TILE = 4 };
    for (int j = 0; j < n; j += TILE * FLOATS)
        for (int m = 0; m < M; m += ROWS) {
            Floats sum[ROWS][TILE], x[TILE];
            for (int r = 0; r < ROWS; r++)
                memcpy(sum[r], d[m + r] + j, sizeof sum[r]);
            for (int k = 0; k < depth; k++) {
                memcpy(x, b[k] + j, sizeof x);
                for (int r = 0; r < ROWS; r++)
                    for (int v = 0; v < TILE; v++)
                        sum[r][v] += a[m + r][k] * x[v];
            }
            for (int r = 0; r < ROWS; r++)
                memcpy(d[m + r] + j, sum[r], sizeof sum[r]);
        }
}

/* K-major operands; the hardware reads only the upper 19 bits of a number */
static void decode_tf32(float (*a)[K], float (*b)[N], const Product &p)
{
    enum { WIDE = RUN / 2 };
    auto each = [](const Operand &o, auto set) {
        for (int i = 0; i < o.extent * K / RUN; i++) {
            uint32_t x[WIDE];
            memcpy(x, o.run[i], sizeof x);
            for (int j = 0; j < WIDE; j++)
                set(i / 2, i % 2 * WIDE + j, bits<float>(x[j] & 0xffffe000u));
        }
    };
    each(p.a, [&](int m, int k, float x) { a[m][k] = x; });
    each(p.b, [&](int n, int k, float x) { b[k][n] = x; });
}

static void make(const Product &p)
{
    static float a[M][K], b[K][N];
    check_unchanged(p.a, "a", p.site);
    check_unchanged(p.b, "b", p.site);
    const auto decode_as = p.type == PRODUCT_TF32   ? decode_tf32
                           : p.type == PRODUCT_BF16 ? decode<f32_of_bf16>
                                                    : decode<f32_of_f16>;
    decode_as(a, b, p);
    if (!p.add) memset(p.to->value, 0, sizeof p.to->value);
    multiply(p.to->value, a, b, p.to->n, p.type == PRODUCT_TF32 ? K / 2 : K);
    p.to->in_flight--;
}

/* -- registers ------------------------------------------------------------ */
/* Calls each(register, value) for the registers of thread t. */
template <class Each> static void each_register(Accumulator *acc, int t, Each f)
{
    const int row = t / 32 * 16 + t % 32 / 4, column = t % 4 * 2;
    for (int j = 0; j < acc->n / 8; j++)
        for (int i = 0; i < 4; i++)
            f(acc->d[t][4 * j + i],
              acc->value[row + i / 2 * 8][8 * j + column + i % 2]);
}

static void take_registers(Accumulator *acc, int t, float *d)
{
    acc->d[t] = d;
    each_register(acc, t, [](float &x, float &value) { value = x; });
    memset(d, 0xff, (size_t)acc->n / 2 * sizeof *d);
}

static void deliver(Warpgroup *w)
{
    for (size_t i = 0; i < w->live.size();) {
        Accumulator *acc = w->live[i].get();
        if (acc->in_flight) {
            i++;
            continue;
        }
        for (int t = 0; t < GROUP; t++) {
            each_register(acc, t, [](float &x, float &value) { x = value; });
            w->fenced[t] = false;
        }
        w->live.erase(w->live.begin() + (long)i);
    }
}

/* -- the primitives ------------------------------------------------------- */
static std::shared_ptr<Accumulator> accumulator_of(Warpgroup *w, int t,
                                                   float *d, int n)
{
    for (const auto &acc : w->live)
        if (acc->d[t] == d && acc->n == n) return acc;
    w->live.emplace_back(new Accumulator());
    w->live.back()->n = n;
    return w->live.back();
}

void wgmma(float *d, int n, ProductType type, bool a_mn_major, bool b_mn_major,
           uint64_t a, uint64_t b, bool add, const char *file, int line)
{
    const Site site = {"wgmma", file, line};
    Warpgroup &w = here(site);
    const int t = thread_number % GROUP;
    const size_t i = (size_t)(w.issued[t]++ - w.done);
    if (i == w.queue.size()) {
        w.queue.emplace_back();
        Product &p = w.queue.back();
        p.a.descriptor = a, p.a.mn_major = a_mn_major, p.a.extent = M;
        p.b.descriptor = b, p.b.mn_major = b_mn_major, p.b.extent = n;
        p.type = type, p.add = add, p.site = site;
        p.to = accumulator_of(&w, t, d, n);
        p.to->in_flight++;
        void *pc = __builtin_return_address(0);
        read_operand(&p.a, "a", site, pc);
        read_operand(&p.b, "b", site, pc);
    }
    const Product &p = w.queue[i];
    if (p.a.descriptor != a || p.b.descriptor != b || p.b.extent != n ||
        p.type != type || p.a.mn_major != a_mn_major ||
        p.b.mn_major != b_mn_major || p.add != add || !same_site(p.site, site))
        stop(site,
             "wgmma: the threads of a warpgroup come with different products "
             "(another came from %s:%d)",
             p.site.file, p.site.line);
    if (p.to->d[t] && p.to->d[t] != d)
        stop(site, "wgmma: the threads of a warpgroup come with different "
                   "accumulators");
    if (p.to->d[t]) return;
    if (!w.fenced[t])
        stop(site, "wgmma: no wgmma_fence since the registers of D were "
                   "accessible");
    take_registers(p.to.get(), t, d);
}

void wgmma_fence()
{
    here({"wgmma_fence", running->file, running->line})
        .fenced[thread_number % GROUP] = true;
}

void wgmma_commit(const char *file, int line)
{
    const Site site = {"wgmma_commit", file, line};
    Warpgroup &w = here(site);
    const int t = thread_number % GROUP;
    const size_t i = (size_t)(w.commits[t]++ - w.closed);
    if (i == w.ends.size()) w.ends.push_back({w.issued[t]});
    if (w.ends[i].products != w.issued[t])
        stop(site, "wgmma_commit: the threads of a warpgroup have issued "
                   "different numbers of products");
}

void wgmma_wait(int groups_left, const char *file, int line)
{
    const Site site = {"wgmma_wait", file, line};
    Warpgroup &w = here(site);
    const int t = thread_number % GROUP;
    const long last = w.commits[t] - groups_left - 1 - w.closed;
    if (last < 0) return;
    const long wanted = w.ends[(size_t)last].products;
    if (wanted <= w.done) return;
    block->fiber[thread_number].site = site;
    if (w.waiting && w.wanted != wanted)
        stop(site, "wgmma_wait: the threads of a warpgroup wait for different "
                   "groups");
    w.wanted = wanted;
    if (++w.waiting < GROUP) {
        fiber_wait();
        return;
    }
    for (; w.done < wanted; w.done++) {
        make(w.queue.front());
        w.queue.pop_front();
    }
    for (; !w.ends.empty() && w.ends.front().products <= w.done; w.closed++)
        w.ends.pop_front();
    deliver(&w);
    w.waiting = 0;
    for (int i = 0; i < GROUP / 32; i++)
        fiber_wake(block, thread_number / GROUP * (GROUP / 32) + i, ~0u);
    fiber_event();
    fiber_yield();
}

void products_begin(Block *b)
{
    for (auto &w : groups[b->number]) w.reset();
}

void products_returned()
{
    const auto &w = groups[block->number][thread_number / GROUP];
    if (w && w->issued[thread_number % GROUP] > w->done)
        stop(w->queue.front().site,
             "wgmma: its thread returned without wgmma_wait");
}

} // namespace emu
