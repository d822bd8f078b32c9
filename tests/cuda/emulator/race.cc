/* race.cc -- race and memory checker: checks every memory access of a kernel.
 *
 * Kernel sources are compiled with -fsanitize=thread. This file replaces the
 * runtime of ThreadSanitizer: the compiler's calls (__tsan_read4, ...) are
 * defined here. A shadow cell of each byte of device and shared memory records
 * the last writing thread, the last reading thread and the interval between
 * barriers of each access. The record decides exactly whether a barrier lies
 * between two accesses, in any order of the fibers. Four bytes share one cell
 * as long as each access covered all four. Two accesses conflict when at least
 * one writes, at least one is not atomic, and they are made by
 *     different blocks of one launch (unless a grid barrier lies between, or
 *     one block is the last in last_block and the other arrived there after its
 *     access), or
 *     different threads of a block in the same interval (of one warp: without a
 *     __syncwarp in between).
 * The checker also reports reads of uninitialised memory, accesses outside
 * allocations and shared arrays, host pointers in kernels, device pointers on
 * the host, and out-of-bounds heap accesses of host code (ASan's runtime, which
 * is linked, puts red zones around each block).
 *
 * Each place in the code is reported once and the run goes on; the exit code is
 * 66. Compile with g++: clang turns copies of 16-byte structs into memcpy calls
 * that it does not report. Accesses by libc functions called in a kernel are
 * not checked. */
#include "tests/cuda/emulator/core.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <set>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

extern "C" {
extern char __executable_start, _end;
__attribute__((weak)) void *__asan_region_is_poisoned(void *, size_t);
}

namespace emu {

/* An access: its interval between barriers (0: no access yet), its thread, the
 * number of __syncwarps of the thread's warp so far, flags. */
struct Record {
    uint32_t interval;
    uint32_t thread : 10, epoch : 16, flags : 6;
};
struct Cell {
    Record write, read;
};
static_assert(sizeof(Cell) == 16, "two loads to compare");
enum {
    WORD = 4,   /* bytes that may share a cell */
    ATOMIC = 1, /* in a write record: the last write was atomic */
    SPLIT = 1,  /* in the read record of a word: each byte has its own cell */
    WROTE = 2,  /* the byte is initialised */
    CLOSED = 4, /* emu_close forbids accesses */
    /* besides the thread of the record, the access was also made by */
    LANES = 8,   /* other lanes of its warp since the last __syncwarp */
    WARPS = 16,  /* other warps in the same interval */
    BLOCKS = 32, /* other blocks of the launch */
    EPOCHS = 1 << 16,
    MAX_REPORTS = 20
};

/* The cells of device or of shared memory, indexed by word and by byte. */
struct Cells {
    Cell *words, *bytes;
};
static Cells heap_memory, shared_memory;
/* never destroyed, because at_exit reads it when the process ends */
static std::set<void *> &reported = *new std::set<void *>;
static std::vector<uint8_t> owners; /* block of interval owners_from + i */
static uint32_t owners_from;
static bool busy; /* a report is being printed: its accesses are not checked */

/* The intervals of a block until it arrived at last_block. `came` holds the
 * spans that arrived at each counter in this launch; `seen` holds the spans
 * that are visible to the running block, sorted by `from`. */
struct Span {
    uint32_t from, to;
    bool operator<(const Span &o) const
    {
        // of two spans of one block the longer sorts last
        return from != o.from ? from < o.from : to < o.to;
    }
};
typedef std::vector<Span> Spans;
static std::map<const unsigned *, Spans> &came =
    *new std::map<const unsigned *, Spans>;
static Spans &seen = *new Spans;
/* first interval of the launch of `came`, of the block of `seen` */
static uint32_t came_from, seen_from;

static Cell *reserve(size_t cells)
{
    void *p = mmap(nullptr, cells * sizeof(Cell), PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) stop_at(__FILE__, __LINE__, "no room for cells");
    return static_cast<Cell *>(p);
}

/* Returns the cells of `bytes` of memory, reserved at the first call; a cell of
 * zeros has had no access. */
static const Cells &cells_of(Cells &which, size_t bytes)
{
    if (!which.words) which = {reserve(bytes / WORD), reserve(bytes)};
    return which;
}

static const Cells &heap_cells()
{
    return cells_of(heap_memory, heap_high - heap_low);
}

static bool is_split(const Cell &word)
{
    return (word.read.flags & SPLIT) != 0;
}

/* Returns the four cells of the bytes of a word, which replace the word's cell
 * from this call on. */
static Cell *split(const Cells &in, size_t word)
{
    Cell *w = in.words + word, *b = in.bytes + word * WORD;
    if (!is_split(*w)) {
        std::fill(b, b + WORD, *w);
        w->read.flags |= SPLIT;
    }
    return b;
}

/* Calls change(cell) for all bytes of [at, at + n), once for a word whose bytes
 * share one cell. */
template <class Change>
static void each_cell(const Cells &in, size_t at, size_t n, Change change)
{
    for (const size_t end = at + n; at < end;) {
        const size_t word = at / WORD, in_word = at % WORD;
        const size_t here = std::min(WORD - in_word, end - at);
        const bool whole = here == WORD && !is_split(in.words[word]);
        Cell *c = whole ? in.words + word : split(in, word) + in_word;
        for (size_t i = 0; i < (whole ? 1 : here); i++) change(c[i]);
        at += here;
    }
}

/* -- reports -------------------------------------------------------------- */
static void report(void *pc, const char *text)
{
    char name[256], place[512];
    if (!reported.insert(pc).second || reported.size() > MAX_REPORTS) return;
    busy = true;
    find_place(pc, place, sizeof place);
    fflush(stdout);
    fprintf(stderr, "emulator: %s: %s (%s)\n", kernel_name(name, sizeof name),
            text, place);
    say_thread();
    fflush(stderr);
    busy = false;
}

static long count()
{
    return (long)reported.size();
}

__attribute__((destructor)) static void at_exit()
{
    if (reported.empty()) return;
    fflush(nullptr);
    fprintf(stderr, "emulator: %zu places reported\n", reported.size());
    _exit(EXIT_RACE);
}

static const char *const verbs[] = {"reads", "writes", "updates"};

static bool same_block(const Record &r);

static void report_conflict(void *pc, Access how, const char *done,
                            const Record &r, bool shared)
{
    char text[256];
    const uint3 t = thread_places[r.thread];
    if (r.flags & BLOCKS || !same_block(r))
        snprintf(text, sizeof text,
                 "race between blocks: %s what another block %s in the same "
                 "launch",
                 verbs[how], done);
    else if ((int)r.thread == thread_number)
        snprintf(text, sizeof text,
                 "race in %s memory: %s what several threads %s, and no "
                 "barrier is between",
                 shared ? "shared" : "global", verbs[how], done);
    else
        snprintf(text, sizeof text,
                 "race in %s memory: %s what thread (%u,%u,%u) %s, and no "
                 "barrier is between",
                 shared ? "shared" : "global", verbs[how], t.x, t.y, t.z, done);
    report(pc, text);
}

static void report_outside(void *pc, Access how, uintptr_t at, size_t n)
{
    char where[192], text[256];
    describe_address(at, n, where, sizeof where);
    snprintf(text, sizeof text, "%s %s", verbs[how], where);
    report(pc, text);
}

/* -- the rules ------------------------------------------------------------ */
static bool same_block(const Record &r)
{
    if (running->coop) return owners[r.interval - owners_from] == block->number;
    return r.interval >= block->first_interval;
}

/* Returns the spans that are visible to the running block: the blocks that
 * arrived at last_block before it, if it was the last. */
static Spans &seen_here()
{
    if (seen_from != block->first_interval) seen.clear();
    seen_from = block->first_interval;
    return seen;
}

/* Returns whether the block of access `r` arrived at last_block after the
 * access, and the running block arrived there last. */
static bool is_seen(const Record &r)
{
    const Spans &all = seen_here();
    auto after =
        std::upper_bound(all.begin(), all.end(), Span{r.interval, UINT32_MAX});
    return after != all.begin() && r.interval <= (after - 1)->to;
}

/* Returns whether no barrier lies between access `r` and an access of the
 * running thread in this interval. */
static bool concurrent(const Record &r, uint32_t epoch)
{
    if (!same_block(r)) return !is_seen(r);
    if (r.interval != block->interval || (int)r.thread == thread_number)
        return false;
    return (int)(r.thread >> 5) != thread_number >> 5 || r.epoch == epoch;
}

/* Returns whether any access that record `r` summarises is concurrent. The
 * record holds the last access in full; its flags are enough to decide about
 * the accesses before it. */
static bool any_concurrent(const Record &r, uint32_t epoch)
{
    if (r.flags & BLOCKS || concurrent(r, epoch)) return true;
    if (r.interval != block->interval) return false;
    return r.flags & WARPS || (r.flags & LANES && r.epoch == epoch);
}

/* Adds the running thread's access to the accesses of `r` (all reads, or all
 * atomics) and returns the flags of the new record; 0 unless `live`. */
static uint32_t joined_flags(const Record &r, bool live, uint32_t epoch)
{
    if (!live) return 0;
    // a block that arrived at last_block before this one is ordered before it
    if (!same_block(r)) return is_seen(r) && !(r.flags & BLOCKS) ? 0 : BLOCKS;
    uint32_t flags = r.flags & BLOCKS;
    if (r.interval != block->interval) return flags;
    flags |= r.flags & WARPS;
    if ((int)(r.thread >> 5) != thread_number >> 5) return flags | WARPS;
    if (r.epoch != epoch) return flags;
    return flags | ((int)r.thread == thread_number ? r.flags & LANES : LANES);
}

/* Checks one cell and records the access. Accesses before interval `floor` are
 * ignored. Returns false after a report. */
static bool check_cell(Cell *c, Access how, bool shared, uint32_t floor,
                       uint32_t epoch, void *pc)
{
    const bool wrote = c->write.interval >= floor;
    const bool was_read = c->read.interval >= floor;
    const bool holds = shared ? c->write.interval >= block->first_interval
                              : (c->write.flags & WROTE) != 0;
    if (c->write.flags & CLOSED) {
        report(pc, shared ? "touches shared memory that a tma_load has not yet "
                            "filled (mbarrier_wait)"
                          : "touches device memory that is closed (emu_close)");
        return false;
    }
    if (how != ACCESS_WRITE && !holds) {
        report(pc, shared ? "reads uninitialised shared memory"
                          : "reads uninitialised device memory");
        return false;
    }
    const bool updates = how == ACCESS_ATOMIC && c->write.flags & ATOMIC;
    if (wrote && !updates && any_concurrent(c->write, epoch)) {
        report_conflict(pc, how, "wrote", c->write, shared);
        return false;
    }
    if (how == ACCESS_READ) {
        c->read = Record{block->interval, (uint32_t)thread_number, epoch,
                         joined_flags(c->read, was_read, epoch)};
        return true;
    }
    if (was_read && any_concurrent(c->read, epoch)) {
        report_conflict(pc, how, "read", c->read, shared);
        return false;
    }
    uint32_t flags = WROTE;
    if (how == ACCESS_ATOMIC)
        flags |= ATOMIC | joined_flags(c->write, wrote && updates, epoch);
    c->write = Record{block->interval, (uint32_t)thread_number, epoch, flags};
    return true;
}

/* Returns whether a kernel may access this host memory: arguments, constants,
 * the emulator's own variables, and pinned memory. */
static bool is_innocent(uintptr_t at, size_t n)
{
    const uintptr_t args = (uintptr_t)running->bound.args.get();
    if (at - (uintptr_t)&__executable_start <
        (size_t)(&_end - &__executable_start))
        return true;
    if (at - args < running->bound.size) return true;
    return is_pinned(reinterpret_cast<void *>(at), n);
}

static bool same(const Cell &a, const Cell &b)
{
    uint64_t x[2], y[2];
    memcpy(x, &a, sizeof x);
    memcpy(y, &b, sizeof y);
    return !((x[0] ^ y[0]) | (x[1] ^ y[1]));
}

/* Checks n cells. Neighbours that belong to one number or vector mostly hold
 * the same records: only the first of equal cells is checked, and its new
 * record is copied to the rest. */
template <class Check> static bool check_cells(Cell *c, size_t n, Check check)
{
    for (size_t i = 0, to; i < n; i = to) {
        for (to = i + 1; to < n && same(c[i], c[to]);) to++;
        if (!check(c + i)) return false;
        std::fill(c + i + 1, c + to, c[i]);
    }
    return true;
}

/* Applies check_cells to the cells of bytes [at, at + n). */
template <class Check>
static void check_bytes(const Cells &in, size_t at, size_t n, Check check)
{
    for (const size_t end = at + n; at < end;) {
        const size_t word = at / WORD, in_word = at % WORD;
        size_t here = std::min(WORD - in_word, end - at);
        Cell *w = in.words + word;
        if (here == WORD && !is_split(*w)) {
            size_t words = 1;
            while (at + (words + 1) * WORD <= end && !is_split(w[words]))
                words++;
            if (!check_cells(w, words, check)) return;
            here = words * WORD;
        } else {
            Cell *b = split(in, word);
            if (!check_cells(b + in_word, here, check)) return;
            // four equal cells become one cell of the word again
            if (here == WORD && same(b[0], b[1]) && same(b[0], b[2]) &&
                same(b[0], b[3]))
                *w = b[0];
        }
        at += here;
    }
}

static void note_unshown(uintptr_t at, size_t n);

static void check_access(uintptr_t at, size_t n, Access how, void *pc)
{
    if (!calls_here || !running || thread_number < 0) {
        if (calls_here || !heap_low) return;
        if (is_device_memory(at))
            report(pc, "host code follows a device pointer");
        else if (__asan_region_is_poisoned &&
                 __asan_region_is_poisoned(reinterpret_cast<void *>(at), n))
            report(pc, "host code touches memory out of bounds");
        return;
    }
    const bool shared = in_shared_memory(at);
    uint32_t floor = phase_first;
    if (shared) {
        if (!shared_holds(block, at, n)) {
            report(pc, "out of bounds in shared memory");
            return;
        }
        floor = std::max(floor, block->first_interval);
    } else if (is_device_memory(at)) {
        const Allocation *a = allocation_of(at);
        if (!a || at + n > a->at + a->bytes) {
            report_outside(pc, how, at, n);
            return;
        }
    } else {
        if (!is_innocent(at, n)) report_outside(pc, how, at, n);
        return;
    }
    const uint32_t epoch = block->warp[thread_number >> 5].epoch % EPOCHS;
    const auto check = [=](Cell *c) {
        return check_cell(c, how, shared, floor, epoch, pc);
    };
    if (shared && how == ACCESS_WRITE && settings.capability == 90)
        note_unshown(at, n);
    if (shared)
        check_bytes(cells_of(shared_memory, rooms_high - rooms_low),
                    at - rooms_low, n, check);
    else
        check_bytes(heap_cells(), at - heap_low, n, check);
}

/* Inline, because most accesses are to a thread's local variables. */
static inline void access(uintptr_t at, size_t n, Access how, void *pc)
{
    if (busy || on_fiber_stack(at)) return;
    check_access(at, n, how, pc);
}

/* -- asynchronous proxy (TMA, wgmma) --------------------------------------
 * Which words of shared memory hold what a thread has written since its last
 * fence_async_shared: its number + 1, and the words of each thread. */
static uint16_t *unshown;
namespace {
struct Word { /* a type of this file, see mbarrier.cc */
    uint32_t at;
};
} // namespace
static std::vector<Word> to_show[MAX_BLOCKS][MAX_THREADS];

static void note_unshown(uintptr_t at, size_t n)
{
    std::vector<Word> &mine = to_show[block->number][thread_number];
    const uint16_t who = (uint16_t)(thread_number + 1);
    if (!unshown) {
        void *p = mmap(nullptr, (rooms_high - rooms_low) / WORD * 2,
                       PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p == MAP_FAILED) stop_at(__FILE__, __LINE__, "no room for words");
        unshown = static_cast<uint16_t *>(p);
    }
    for (size_t w = (at - rooms_low) / WORD;
         w <= (at - rooms_low + n - 1) / WORD; w++) {
        if (unshown[w] == who) continue;
        unshown[w] = who;
        mine.push_back({(uint32_t)w});
    }
}

static void fenced(int of, int thread)
{
    std::vector<Word> &mine = to_show[of][thread];
    for (Word w : mine)
        if (unshown[w.at] == thread + 1) unshown[w.at] = 0;
    mine.clear();
}

static void async_read(uintptr_t at, size_t n, void *pc)
{
    check_access(at, n, ACCESS_READ, pc);
    for (size_t w = (at - rooms_low) / WORD;
         unshown && w <= (at - rooms_low + n - 1) / WORD; w++) {
        if (!unshown[w]) continue;
        const uint3 t = thread_places[unshown[w] - 1];
        char text[256];
        snprintf(text, sizeof text,
                 "TMA or wgmma reads what thread (%u,%u,%u) wrote without "
                 "fence_async_shared",
                 t.x, t.y, t.z);
        report(pc, text);
        return;
    }
}

static const Cells &shared_cells()
{
    return cells_of(shared_memory, rooms_high - rooms_low);
}

static void loading(uintptr_t at, size_t n, void *pc)
{
    check_access(at, n, ACCESS_WRITE, pc);
    each_cell(shared_cells(), at - rooms_low, n,
              [](Cell &c) { c.write.flags |= CLOSED; });
}

static void loaded(uintptr_t at, size_t n)
{
    const Record now = {block->interval, (uint32_t)thread_number,
                        block->warp[thread_number >> 5].epoch % EPOCHS, WROTE};
    each_cell(shared_cells(), at - rooms_low, n, [=](Cell &c) {
        c = Cell{now, {0, 0, 0, 0}};
    });
    for (size_t w = (at - rooms_low) / WORD;
         unshown && w <= (at - rooms_low + n - 1) / WORD; w++)
        unshown[w] = 0;
}

/* -- writes, allocations and barriers, reported by the emulator ----------- */
static void written(uintptr_t at, size_t n)
{
    each_cell(heap_cells(), at - heap_low, n, [](Cell &c) {
        c = Cell{{0, 0, 0, (uint32_t)WROTE | (c.write.flags & CLOSED)},
                 {0, 0, 0, 0}};
    });
}

static void forgotten(uintptr_t at, size_t n)
{
    each_cell(heap_cells(), at - heap_low, n, [](Cell &c) { c = Cell(); });
}

static void closed(uintptr_t at, size_t n, bool on)
{
    each_cell(heap_cells(), at - heap_low, n, [=](Cell &c) {
        c.write.flags =
            on ? c.write.flags | CLOSED : c.write.flags & ~(uint32_t)CLOSED;
    });
}

static void interval(uint32_t number, int of)
{
    if (!running->coop) return;
    if (number == phase_first) {
        owners.clear();
        owners_from = number;
    }
    owners.push_back((uint8_t)of);
}

/* Records that the running block arrived at counter `word` of last_block: its
 * accesses so far, and the accesses visible to it, are visible to the last
 * block. */
static void arrived(const unsigned *word)
{
    if (came_from != phase_first) came.clear();
    came_from = phase_first;
    Spans &all = came[word];
    all.push_back({block->first_interval, block->interval});
    all.insert(all.end(), seen_here().begin(), seen_here().end());
}

static void joined(const unsigned *word)
{
    Spans &all = seen_here();
    all.insert(all.end(), came[word].begin(), came[word].end());
    std::sort(all.begin(), all.end());
    came.erase(word);
}

/* Returns the pages of the cells of freed memory to the system: addresses are
 * seldom reused, so the cells would accumulate. n is a multiple of the page
 * size, hence the cells fill whole pages. */
static void freed(uintptr_t at, size_t n)
{
    const size_t from = at - heap_low;
    if (!heap_memory.words) return;
    madvise(heap_memory.words + from / WORD, n / WORD * sizeof(Cell),
            MADV_DONTNEED);
    madvise(heap_memory.bytes + from, n * sizeof(Cell), MADV_DONTNEED);
}

static const Checker callbacks = {
    access, written,    forgotten, freed,   closed, interval, loading,
    loaded, async_read, fenced,    arrived, joined, count};
__attribute__((constructor)) static void install()
{
    checker = &callbacks;
}

} // namespace emu

/* -- the interface of ThreadSanitizer, called by compiled code ------------ */
#define HERE __builtin_return_address(0)
#define PLAIN(name, bytes, how)                           \
    void __tsan_##name(void *p)                           \
    {                                                     \
        emu::access((uintptr_t)p, bytes, emu::how, HERE); \
    }
#define OF_SIZE(n)                           \
    PLAIN(read##n, n, ACCESS_READ)           \
    PLAIN(write##n, n, ACCESS_WRITE)         \
    PLAIN(unaligned_read##n, n, ACCESS_READ) \
    PLAIN(unaligned_write##n, n, ACCESS_WRITE)

extern "C" {
OF_SIZE(1)
OF_SIZE(2)
OF_SIZE(4)
OF_SIZE(8)
OF_SIZE(16)
void __tsan_read_range(void *p, size_t n)
{
    emu::access((uintptr_t)p, n, emu::ACCESS_READ, HERE);
}
void __tsan_write_range(void *p, size_t n)
{
    emu::access((uintptr_t)p, n, emu::ACCESS_WRITE, HERE);
}
void *__tsan_memcpy(void *to, const void *from, size_t n)
{
    emu::access((uintptr_t)from, n, emu::ACCESS_READ, HERE);
    emu::access((uintptr_t)to, n, emu::ACCESS_WRITE, HERE);
    return memcpy(to, from, n);
}
void *__tsan_memmove(void *to, const void *from, size_t n)
{
    emu::access((uintptr_t)from, n, emu::ACCESS_READ, HERE);
    emu::access((uintptr_t)to, n, emu::ACCESS_WRITE, HERE);
    return memmove(to, from, n);
}
void *__tsan_memset(void *to, int value, size_t n)
{
    emu::access((uintptr_t)to, n, emu::ACCESS_WRITE, HERE);
    return memset(to, value, n);
}
void __tsan_init()
{
}
void __tsan_func_entry(void *)
{
}
void __tsan_func_exit()
{
}
void __tsan_vptr_read(void *)
{
}
void __tsan_vptr_update(void *, void *)
{
}

/* Atomics of host code in an instrumented file: reference counts, guards of
 * static variables. */
#define ATOMICS(bits)                                                          \
    uint##bits##_t __tsan_atomic##bits##_load(                                 \
        const volatile uint##bits##_t *p, int)                                 \
    {                                                                          \
        return __atomic_load_n(p, __ATOMIC_SEQ_CST);                           \
    }                                                                          \
    void __tsan_atomic##bits##_store(volatile uint##bits##_t *p,               \
                                     uint##bits##_t v, int)                    \
    {                                                                          \
        __atomic_store_n(p, v, __ATOMIC_SEQ_CST);                              \
    }                                                                          \
    uint##bits##_t __tsan_atomic##bits##_fetch_add(volatile uint##bits##_t *p, \
                                                   uint##bits##_t v, int)      \
    {                                                                          \
        return __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST);                     \
    }                                                                          \
    uint##bits##_t __tsan_atomic##bits##_fetch_sub(volatile uint##bits##_t *p, \
                                                   uint##bits##_t v, int)      \
    {                                                                          \
        return __atomic_fetch_sub(p, v, __ATOMIC_SEQ_CST);                     \
    }                                                                          \
    uint##bits##_t __tsan_atomic##bits##_exchange(volatile uint##bits##_t *p,  \
                                                  uint##bits##_t v, int)       \
    {                                                                          \
        return __atomic_exchange_n(p, v, __ATOMIC_SEQ_CST);                    \
    }                                                                          \
    int __tsan_atomic##bits##_compare_exchange_strong(                         \
        volatile uint##bits##_t *p, uint##bits##_t *expected,                  \
        uint##bits##_t v, int, int)                                            \
    {                                                                          \
        return __atomic_compare_exchange_n(                                    \
            p, expected, v, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);            \
    }
ATOMICS(8)
ATOMICS(32)
ATOMICS(64)
void __tsan_atomic_thread_fence(int)
{
}
}
