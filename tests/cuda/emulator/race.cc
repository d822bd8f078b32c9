/* race.cc -- the checked build: every access of a kernel is checked.
 *
 * Kernel sources are compiled with -fsanitize=thread, but this file stands in
 * for that sanitizer's runtime: the compiler's calls (__tsan_read4, ...) come
 * here. For each byte of device and shared memory a cell keeps who wrote it
 * last and who read it, and in which interval between barriers; from that it
 * is exact whether a barrier lies between two accesses, whatever the order
 * in which the fibers happened to run. Four bytes share a cell for as long as
 * all accesses were to all of them. Two accesses conflict when one writes,
 * not both are atomic, and they are by
 *     different blocks of one launch (unless a grid barrier is between, or one
 *     is the last of last_block and the other had come there before), or
 *     different threads of a block in the same interval (within a warp: and
 *     with no __syncwarp between).
 * Also found: reads of what was never written, accesses outside allocations
 * and shared arrays, host pointers in kernels, device pointers on the host, and
 * accesses of host code outside its heap (ASan's runtime, which is linked, has
 * put red zones around each block).
 *
 * Each place is reported once and the run goes on; the exit code is 66.
 * Use g++: clang turns copies of 16-byte structs into memcpy calls that it does
 * not report. Functions of libc called in a kernel are not seen. */
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

/* interval (0: never) and who: thread, __syncwarps passed, flags */
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
    ATOMIC = 1, /* of the write record: the last one was atomic */
    SPLIT = 1,  /* of the read record of a word: each byte has its own cell */
    WROTE = 2,  /* the byte holds something */
    CLOSED = 4, /* by emu_close */
    /* not only by the thread of the record, but also by others: */
    LANES = 8,   /* of its warp since the last __syncwarp */
    WARPS = 16,  /* of other warps in the interval */
    BLOCKS = 32, /* of other blocks in the launch */
    EPOCHS = 1 << 16,
    MAX_REPORTS = 20
};

/* The cells of some memory, by the offset in it. */
struct Cells {
    Cell *words, *bytes;
};
static Cells heap_memory, shared_memory;
/* never destroyed: looked at when the process ends */
static std::set<void *> &reported = *new std::set<void *>;
static std::vector<uint8_t> owners; /* block of interval owners_from + i */
static uint32_t owners_from;
static bool busy; /* reporting: what that touches is not checked */

/* Intervals of a block up to where it came to last_block. What came to each
 * word in this launch, and what the running block sees of it; by `from`. */
struct Span {
    uint32_t from, to;
    bool operator<(const Span &o) const
    {
        // of one block the longer comes later
        return from != o.from ? from < o.from : to < o.to;
    }
};
typedef std::vector<Span> Spans;
static std::map<const unsigned *, Spans> &came =
    *new std::map<const unsigned *, Spans>;
static Spans &seen = *new Spans;
static uint32_t came_from, seen_from; /* the launch, the block they are of */

static Cell *reserve(size_t cells)
{
    void *p = mmap(nullptr, cells * sizeof(Cell), PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) stop_at(__FILE__, __LINE__, "no room for cells");
    return static_cast<Cell *>(p);
}

/* those of `bytes` of memory, all zero: never touched */
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

/* The cells of the bytes of a word, from now on what counts. */
static Cell *split(const Cells &in, size_t word)
{
    Cell *w = in.words + word, *b = in.bytes + word * WORD;
    if (!is_split(*w)) {
        std::fill(b, b + WORD, *w);
        w->read.flags |= SPLIT;
    }
    return b;
}

/* Calls change(cell) for all bytes of [at, at + n), once for those of a whole
 * word that share one. */
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

/* What the running block sees since it was the last of last_block. */
static Spans &seen_here()
{
    if (seen_from != block->first_interval) seen.clear();
    seen_from = block->first_interval;
    return seen;
}

/* Did the block of that access come to last_block after it, and this one as the
 * last? */
static bool is_seen(const Record &r)
{
    const Spans &all = seen_here();
    auto after =
        std::upper_bound(all.begin(), all.end(), Span{r.interval, UINT32_MAX});
    return after != all.begin() && r.interval <= (after - 1)->to;
}

/* Is there no barrier between that access and one by this thread now? */
static bool concurrent(const Record &r, uint32_t epoch)
{
    if (!same_block(r)) return !is_seen(r);
    if (r.interval != block->interval || (int)r.thread == thread_number)
        return false;
    return (int)(r.thread >> 5) != thread_number >> 5 || r.epoch == epoch;
}

/* Is there such an access among those that the record stands for? Of the last
 * one all is known; of the others the flags say enough. */
static bool any_concurrent(const Record &r, uint32_t epoch)
{
    if (r.flags & BLOCKS || concurrent(r, epoch)) return true;
    if (r.interval != block->interval) return false;
    return r.flags & WARPS || (r.flags & LANES && r.epoch == epoch);
}

/* This thread's access joins those of `r` (reads, or atomics) when they are
 * `live`: the flags of the new record. */
static uint32_t joined_flags(const Record &r, bool live, uint32_t epoch)
{
    if (!live) return 0;
    // what came to last_block before this block did is over
    if (!same_block(r)) return is_seen(r) && !(r.flags & BLOCKS) ? 0 : BLOCKS;
    uint32_t flags = r.flags & BLOCKS;
    if (r.interval != block->interval) return flags;
    flags |= r.flags & WARPS;
    if ((int)(r.thread >> 5) != thread_number >> 5) return flags | WARPS;
    if (r.epoch != epoch) return flags;
    return flags | ((int)r.thread == thread_number ? r.flags & LANES : LANES);
}

/* One cell; `floor` is the first interval that counts. False: reported. */
static bool check_cell(Cell *c, Access how, bool shared, uint32_t floor,
                       uint32_t epoch, void *pc)
{
    const bool wrote = c->write.interval >= floor;
    const bool was_read = c->read.interval >= floor;
    const bool holds = shared ? c->write.interval >= block->first_interval
                              : (c->write.flags & WROTE) != 0;
    if (c->write.flags & CLOSED) {
        report(pc, "touches device memory that is closed (emu_close)");
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

/* What is not device memory: arguments, constants and the emulator's own
 * variables are the program's; pinned memory is visible to kernels. */
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

/* n cells, of which neighbours have mostly had the same accesses, as they are
 * of one number or vector; the first of those stands for them all. */
template <class Check> static bool check_cells(Cell *c, size_t n, Check check)
{
    for (size_t i = 0, to; i < n; i = to) {
        for (to = i + 1; to < n && same(c[i], c[to]);) to++;
        if (!check(c + i)) return false;
        std::fill(c + i + 1, c + to, c[i]);
    }
    return true;
}

/* As check_cells for the bytes [at, at + n). */
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
            // a whole word is one again when nothing tells its bytes apart
            if (here == WORD && same(b[0], b[1]) && same(b[0], b[2]) &&
                same(b[0], b[3]))
                *w = b[0];
        }
        at += here;
    }
}

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
    if (shared)
        check_bytes(cells_of(shared_memory, rooms_high - rooms_low),
                    at - rooms_low, n, check);
    else
        check_bytes(heap_cells(), at - heap_low, n, check);
}

/* Most are to variables of a thread: without a call. */
static inline void access(uintptr_t at, size_t n, Access how, void *pc)
{
    if (busy || on_fiber_stack(at)) return;
    check_access(at, n, how, pc);
}

/* -- what the host does --------------------------------------------------- */
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

/* The block's accesses so far, and those that it sees, come with it. */
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

/* Addresses are given out again seldom, so cells would add up; those of a new
 * allocation are forgotten. A span is of whole pages, hence its cells are. */
static void freed(uintptr_t at, size_t n)
{
    const size_t from = at - heap_low;
    if (!heap_memory.words) return;
    madvise(heap_memory.words + from / WORD, n / WORD * sizeof(Cell),
            MADV_DONTNEED);
    madvise(heap_memory.bytes + from, n * sizeof(Cell), MADV_DONTNEED);
}

static const Checker callbacks = {access,   written, forgotten, freed, closed,
                                  interval, arrived, joined,    count};
__attribute__((constructor)) static void install()
{
    checker = &callbacks;
}

} // namespace emu

/* -- what the compiler calls ---------------------------------------------- */
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

/* Host code in an instrumented file: reference counts, guards of statics. */
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
