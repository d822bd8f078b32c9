/* mbarrier.cc -- mbarriers, named barriers, setmaxnreg and waits of dependent
 * launches of Hopper.
 *
 * The state of an mbarrier is kept beside shared memory; the 8 bytes of the
 * kernel hold a mark, to find a barrier that was overwritten. Threads may wait
 * for a phase or poll; the scheduler lets polling threads sleep (fiber_poll).
 * For the race checker each end of a phase, and each named barrier, begins a
 * new interval of the block: it finds accesses with no barrier between them,
 * but does not know whether the barrier was the right one. */
#include "tests/cuda/emulator/core.h"

#include <unordered_map>
#include <vector>

namespace emu {

enum { NAMED = 16, GROUP = 128, GROUPS = MAX_THREADS / GROUP };
static const uint64_t MARK = 0x6d62617272696572u; /* "mbarrier" */
enum { MOST_ARRIVALS = (1 << 20) - 1, REGISTERS = 64 * 1024 };

namespace {
/* Containers hold types of this file: the checked build would otherwise share
 * their functions with the checked code, and report what they access. */
struct Waiter {
    int thread;
};
struct Mbarrier {
    int arrivals, pending; /* of a phase; still to come in this one */
    int64_t bytes;         /* expected and not yet arrived */
    uint32_t phase;
    bool shown; /* fence_async_shared was called since mbarrier_init */
    int maker;  /* the thread that initialised it */
    Site site;  /* of mbarrier_init */
    std::vector<Waiter> waiters;
};
struct Named {
    int threads;
    Site site; /* of the first thread */
    std::vector<Waiter> waiters;
};
struct Barriers {
    std::unordered_map<const uint64_t *, Mbarrier> all;
    Named named[NAMED];
    int registers[MAX_THREADS]; /* the last setmaxnreg; 0: none */
    bool waited[MAX_THREADS];   /* grid_dependency_wait */
};
} // namespace

static Barriers barriers[MAX_BLOCKS];

static Barriers &here()
{
    return barriers[block->number];
}

static void wake(Block *b, std::vector<Waiter> &waiters)
{
    for (const Waiter &w : waiters)
        fiber_wake(b, w.thread >> 5, 1u << (w.thread & 31));
    waiters.clear();
}

static void touch(const uint64_t *bar, Access how, void *pc)
{
    if (checker) checker->access((uintptr_t)bar, sizeof *bar, how, pc);
}

static Mbarrier &find(const uint64_t *bar, const Site &site)
{
    shared_check(bar, sizeof *bar, sizeof *bar, site.what, site.file,
                 site.line);
    auto it = here().all.find(bar);
    if (it == here().all.end())
        stop(site, "%s: the mbarrier was not initialised", site.what);
    if (*bar != MARK)
        stop(site, "%s: the mbarrier of %s:%d was overwritten", site.what,
             it->second.site.file, it->second.site.line);
    return it->second;
}

/* Ends the phase if nothing is missing. */
static void settle(Mbarrier &m, const Site &site)
{
    if (m.pending) return;
    if (m.bytes < 0)
        stop(site,
             "%s: the phase of the mbarrier of %s:%d has got %lld bytes more "
             "than expected",
             site.what, m.site.file, m.site.line, (long long)-m.bytes);
    if (m.bytes) return;
    m.phase++;
    m.pending = m.arrivals;
    interval_begin(block);
    wake(block, m.waiters);
    fiber_event();
}

static void arrive(Mbarrier &m, int count, const Site &site)
{
    if (count < 1 || count > m.pending)
        stop(site,
             "%s: %d arrivals, but the phase of the mbarrier of %s:%d lacks %d",
             site.what, count, m.site.file, m.site.line, m.pending);
    m.pending -= count;
    settle(m, site);
}

void mbarrier_init(uint64_t *bar, int arrivals, const char *file, int line)
{
    const Site site = {"mbarrier_init", file, line};
    sm90_needed(site);
    shared_check(bar, sizeof *bar, sizeof *bar, site.what, file, line);
    if (arrivals < 1 || arrivals > MOST_ARRIVALS)
        stop(site, "mbarrier_init: %d arrivals", arrivals);
    touch(bar, ACCESS_WRITE, __builtin_return_address(0));
    *bar = MARK;
    here().all[bar] =
        Mbarrier{arrivals, arrivals, 0, 0, false, thread_number, site, {}};
}

void mbarrier_arrive(uint64_t *bar, int count, const char *file, int line)
{
    const Site site = {"mbarrier_arrive", file, line};
    Mbarrier &m = find(bar, site);
    touch(bar, ACCESS_ATOMIC, __builtin_return_address(0));
    arrive(m, count, site);
}

void mbarrier_expect(uint64_t *bar, uint32_t bytes, const char *file, int line)
{
    const Site site = {"mbarrier_expect", file, line};
    Mbarrier &m = find(bar, site);
    touch(bar, ACCESS_ATOMIC, __builtin_return_address(0));
    m.bytes += bytes;
    arrive(m, 1, site);
}

void mbarrier_complete(uint64_t *bar, uint32_t bytes, const Site &site)
{
    Mbarrier &m = find(bar, site);
    m.bytes -= bytes;
    settle(m, site);
}

/* TMA sees a barrier only after fence_async_shared of the thread that
 * initialised it. */
void mbarrier_loads(uint64_t *bar, const Site &site)
{
    Mbarrier &m = find(bar, site);
    if (!m.shown)
        stop(site,
             "%s: no fence_async_shared after mbarrier_init of %s:%d by its "
             "thread",
             site.what, m.site.file, m.site.line);
    wake(block, m.waiters);
    fiber_event();
}

bool mbarrier_test(uint64_t *bar, uint32_t parity, const char *file, int line)
{
    const Site site = {"mbarrier_test", file, line};
    const Mbarrier &m = find(bar, site);
    touch(bar, ACCESS_ATOMIC, __builtin_return_address(0));
    const uint32_t phase = m.phase;
    if ((phase & 1) != parity) return true;
    loads_land(bar);
    if (m.phase != phase) return true;
    block->fiber[thread_number].site = site;
    fiber_poll();
    return (m.phase & 1) != parity;
}

void mbarrier_wait(uint64_t *bar, uint32_t parity, const char *file, int line)
{
    const Site site = {"mbarrier_wait", file, line};
    Mbarrier &m = find(bar, site);
    touch(bar, ACCESS_ATOMIC, __builtin_return_address(0));
    if (parity > 1) stop(site, "mbarrier_wait: parity %u", parity);
    const uint32_t phase = m.phase;
    if ((phase & 1) != parity) return;
    for (loads_land(bar); m.phase == phase; loads_land(bar)) {
        m.waiters.push_back({thread_number});
        block->fiber[thread_number].site = site;
        fiber_wait();
    }
    if (m.phase - phase > 1)
        stop(site,
             "mbarrier_wait: %u phases ended while the thread waited for one",
             m.phase - phase);
}

std::string mbarrier_lacks(Block *b)
{
    std::string text;
    for (const auto &e : barriers[b->number].all) {
        const Mbarrier &m = e.second;
        char line[256];
        if (m.waiters.empty()) continue;
        snprintf(line, sizeof line,
                 "; the mbarrier of %s:%d lacks %d arrivals and %lld bytes",
                 m.site.file, m.site.line, m.pending, (long long)m.bytes);
        text += line;
    }
    return text;
}

void fence_async_shared()
{
    for (auto &e : here().all)
        if (e.second.maker == thread_number) e.second.shown = true;
    if (checker) checker->fenced(block->number, thread_number);
}

void named_barrier(int id, int threads, const char *file, int line)
{
    const Site site = {"named_barrier", file, line};
    if (id < 1 || id >= NAMED || threads < 32 || threads % 32 ||
        threads > thread_count)
        stop(site, "named_barrier: id %d, %d threads", id, threads);
    Named &n = here().named[id];
    if (n.waiters.empty()) {
        n.threads = threads;
        n.site = site;
    } else if (n.threads != threads) {
        stop(site,
             "named_barrier %d of %d threads; others wait at %s:%d for "
             "%d threads",
             id, threads, n.site.file, n.site.line, n.threads);
    }
    block->fiber[thread_number].site = site;
    if ((int)n.waiters.size() + 1 < threads) {
        n.waiters.push_back({thread_number});
        fiber_wait();
        return;
    }
    interval_begin(block);
    wake(block, n.waiters);
    fiber_event();
    fiber_yield();
}

/* -- setmaxnreg ------------------------------------------------------------
 * Only checked: all threads of a warpgroup end with the same count, and the
 * warpgroups together have not more than there are. */
void setmaxnreg(int count, bool more, const char *file, int line)
{
    const Site site = {"setmaxnreg", file, line};
    int &mine = here().registers[thread_number];
    if (count < 24 || count > 256 || count % 8)
        stop(site, "setmaxnreg: %d registers", count);
    if (mine && (more ? count < mine : count > mine))
        stop(site, "setmaxnreg: from %d to %d registers", mine, count);
    mine = count;
}

static void check_registers(const Block *b)
{
    const int *all = barriers[b->number].registers;
    int sum = 0;
    for (int t = 0; t < thread_count; t++) {
        if (all[t] != all[t - t % GROUP])
            stop_at(running->file, running->line,
                    "setmaxnreg: thread %d came to %d registers, the first of "
                    "its warpgroup to %d",
                    t, all[t], all[t - t % GROUP]);
        sum += all[t];
    }
    if (sum > REGISTERS)
        stop_at(running->file, running->line,
                "setmaxnreg: %d registers of %d in a block", sum, REGISTERS);
}

/* -- dependent launches -----------------------------------------------------
 * The launch before has ended, as the emulator runs one launch at a time. It is
 * checked that each thread waits, and before it uses TMA. */
void grid_dependency_wait()
{
    here().waited[thread_number] = true;
}

void dependency_needed(const Site &site)
{
    if (running->dependent && !here().waited[thread_number])
        stop(site, "%s before grid_dependency_wait in a dependent launch",
             site.what);
}

/* -- blocks and threads --------------------------------------------------- */
void sm90_needed(const Site &site)
{
    if (settings.capability != 90)
        stop(
            site,
            "%s needs compute capability 9.0, the device has %d.%d (EMU_CC=90)",
            site.what, settings.capability / 10, settings.capability % 10);
}

void sm90_begin(Block *b)
{
    Barriers &all = barriers[b->number];
    all.all.clear();
    for (Named &n : all.named) n.waiters.clear();
    std::fill(all.registers, all.registers + thread_count, 0);
    std::fill(all.waited, all.waited + thread_count, false);
    loads_begin(b);
    products_begin(b);
}

void sm90_end(Block *b)
{
    check_registers(b);
    loads_end(b);
    for (int t = 0; checker && t < thread_count; t++)
        checker->fenced(b->number, t); /* nothing is left for the next block */
}

void sm90_returned()
{
    Fiber *f = &block->fiber[thread_number];
    if (f->stores) stores_returned(f);
    products_returned();
    dependency_needed({"return", running->file, running->line});
}

} // namespace emu
