/* launch.cc -- runs one launch: blocks, orders, barriers of block and grid.
 *
 * Blocks run one after another, each until its last thread has returned; in a
 * cooperative launch all blocks exist at once and go on whenever the others
 * wait. The order of threads and blocks is a setting (EMU_ORDER), since a race
 * may change results in one order only: greedy orders let a warp run far ahead
 * of the others, which exposes a missing barrier before a buffer is refilled;
 * round robin never does. */
#include "tests/cuda/emulator/core.h"

#include <cstdio>
#include <cstdlib>
#include <map>
#include <numeric>
#include <string>

namespace emu {

const Launch *running;
const Checker *checker;
int thread_count;
uint3 thread_places[MAX_THREADS];
uint32_t intervals, phase_first;

static Fiber fibers[MAX_FIBERS];
static Lane lanes[MAX_FIBERS]; /* static, not on a heap: see race.cc */
static Block blocks[MAX_BLOCKS];
static int block_total;  /* blocks that run together */
static int grid_waiting; /* threads at the grid barrier */
static Site grid_site;
static uint64_t order_seed, launch_number;

void interval_begin(Block *b)
{
    b->interval = ++intervals;
    if (checker) checker->interval(b->interval, b->number);
}

/* -- barriers ------------------------------------------------------------- */
static void wake_all(Block *b)
{
    for (int w = 0; w * 32 < thread_count; w++) {
        b->warp[w].epoch = 0;
        fiber_wake(b, w, b->warp[w].alive);
    }
    b->waiting = 0;
    interval_begin(b);
}

static const char *thread_text(int i, char *text, size_t size)
{
    const uint3 t = thread_places[i];
    snprintf(text, size, "(%u,%u,%u)", t.x, t.y, t.z);
    return text;
}

void block_barrier(const char *what, const char *file, int line)
{
    const Site site = {what, file, line};
    Block *b = block;
    char other[48];
    if (b->alive != thread_count)
        stop(site, "%s after a thread of the block has returned", what);
    if (!b->waiting) {
        b->site = site;
        b->first = thread_number;
    } else if (!same_site(b->site, site)) {
        stop(site, "divergent barrier: thread %s waits at %s of %s:%d",
             thread_text(b->first, other, sizeof other), b->site.what,
             b->site.file, b->site.line);
    }
    if (++b->waiting < b->alive) {
        b->fiber[thread_number].site = site;
        fiber_wait();
        return;
    }
    wake_all(b);
    fiber_yield();
}

/* The first thread to arrive starts the count, the last one publishes it. The
 * next vote cannot start before all threads have left this one, since each
 * thread takes part in it. */
int block_vote(Vote vote, bool yes, const char *file, int line)
{
    static const char *const names[] = {"__syncthreads_or", "__syncthreads_and",
                                        "__syncthreads_count"};
    Block *b = block;
    if (!b->waiting) b->vote = 0;
    b->vote += yes;
    if (b->waiting + 1 == b->alive) {
        b->outcome = vote == VOTE_OR    ? b->vote > 0
                     : vote == VOTE_AND ? b->vote == b->alive
                                        : b->vote;
    }
    block_barrier(names[vote], file, line);
    return b->outcome;
}

/* Stops unless the counter `word` of a grid barrier or of last_block lies in
 * device memory. */
static void check_word(const Site &site, const unsigned *word)
{
    const Allocation *a = allocation_of((uintptr_t)word);
    if (!a || a->at + a->bytes < (uintptr_t)(word + 1))
        stop(site, "%s: its word is not in device memory", site.what);
}

void grid_barrier(unsigned *word, const char *file, int line)
{
    const Site site = {"grid_barrier", file, line};
    if (!running->coop)
        stop(site, "grid_barrier in a kernel not started by LAUNCH_COOP");
    if (block->alive != thread_count)
        stop(site, "grid_barrier after a thread of the block has returned");
    if (grid_waiting && !same_site(grid_site, site))
        stop(site, "divergent grid_barrier: others wait at %s:%d",
             grid_site.file, grid_site.line);
    check_word(site, word);
    grid_site = site;
    if (!grid_waiting && (*word & 0x7fffffffu))
        stop(site,
             "grid_barrier: its word is %u; set it to 0 before the "
             "first use",
             *word);
    if (++grid_waiting < block_total * thread_count) {
        block->fiber[thread_number].site = site;
        fiber_wait();
        return;
    }
    *word ^= 0x80000000u; /* as the device leaves it */
    if (checker) checker->written((uintptr_t)word, sizeof *word);
    grid_waiting = 0;
    phase_first = intervals + 1;
    for (int i = 0; i < block_total; i++) wake_all(blocks + i);
    fiber_yield();
}

/* Runs between two barriers of the block, so all its threads have arrived and
 * all get the answer. */
bool last_block(unsigned *word, unsigned count, const char *file, int line)
{
    const Site site = {"last_block", file, line};
    if (running->coop) stop(site, "last_block in a kernel of LAUNCH_COOP");
    check_word(site, word);
    block_barrier("last_block", file, line);
    if (thread_number == 0) {
        if (*word >= count)
            stop(site,
                 "last_block: its word is %u of %u; set it to 0 before the "
                 "first use",
                 *word, count);
        block->outcome = *word + 1 == count;
        *word = block->outcome ? 0 : *word + 1;
        if (checker) {
            checker->written((uintptr_t)word, sizeof *word);
            checker->arrived(word);
            if (block->outcome) checker->joined(word);
        }
    }
    block_barrier("last_block", file, line);
    return block->outcome;
}

void thread_returned()
{
    Block *b = block;
    Warp *w = &b->warp[thread_number >> 5];
    const uint32_t bit = 1u << (thread_number & 31);
    Fiber *f = &b->fiber[thread_number];
    w->ready &= ~bit;
    w->alive &= ~bit;
    if (!w->ready) b->runnable &= ~(1u << (thread_number >> 5));
    b->alive--;
    if (f->copies) copies_drop(f);
    sm90_returned();
    if (b->waiting || grid_waiting) {
        const Site &site = b->waiting ? b->site : grid_site;
        char self[48];
        stop(site, "thread %s returned, others wait at %s",
             thread_text(thread_number, self, sizeof self), site.what);
    }
    for (uint32_t left = w->arrived; left; left &= left - 1) {
        const Fiber *g = &b->fiber[(thread_number & ~31) + __builtin_ctz(left)];
        if (g->mask & bit)
            stop(g->site, "lane %d returned, others wait for it at %s",
                 thread_number & 31, g->site.what);
    }
}

/* No fiber can run: prints the number of waiting threads for each place. */
void deadlock(Block *all, int count)
{
    std::map<std::string, int> places;
    const Site *site = nullptr;
    for (int i = 0; i < count; i++) {
        for (int t = 0; t < thread_count; t++) {
            if (!(all[i].warp[t >> 5].alive >> (t & 31) & 1)) continue;
            site = &all[i].fiber[t].site;
            char text[512];
            snprintf(text, sizeof text, "%s of %s:%d", site->what, site->file,
                     site->line);
            places[text]++;
        }
    }
    std::string list;
    for (const auto &p : places)
        list += (list.empty() ? "" : ", ") + std::to_string(p.second) + " at " +
                p.first;
    for (int i = 0; i < count; i++) list += mbarrier_lacks(all + i);
    const Site none = {"", running->file, running->line};
    stop(site ? *site : none, "deadlock: no thread can run; %s", list.c_str());
}

/* -- one launch ----------------------------------------------------------- */
static void block_begin(Block *b, int number, uint64_t at)
{
    const dim3 &g = running->grid;
    b->number = number;
    b->index = {(unsigned)(at % g.x), (unsigned)(at / g.x % g.y),
                (unsigned)(at / g.x / g.y)};
    b->alive = thread_count;
    b->waiting = 0;
    b->runnable = 0;
    b->fiber = fibers + (size_t)number * thread_count;
    b->lane = lanes + (size_t)number * thread_count;
    for (int w = 0; w * 32 < thread_count; w++) {
        const int left = thread_count - w * 32;
        const uint32_t all = left >= 32 ? ~0u : (1u << left) - 1;
        b->warp[w] = Warp{all, all, all, all, 0, false, 0, Site{}};
        b->runnable |= 1u << w;
    }
    interval_begin(b);
    b->first_interval = b->interval;
    shared_block_begin(b);
    sm90_begin(b);
}

/* Returns the q-th block to run: ascending, descending, or with a step that is
 * coprime to the number of blocks. */
static uint64_t block_at(uint64_t q, uint64_t total, uint64_t step)
{
    if (order == GREEDY_DOWN || order == ROUND_DOWN) return total - 1 - q;
    return order == RANDOM ? (q * step + order_seed) % total : q;
}
static uint64_t random_step(uint64_t total)
{
    uint64_t state = order_seed + launch_number, step;
    do step = random_next(&state) % total + 1;
    while (std::gcd(step, total) != 1);
    return step;
}

void launch_run(const Launch &what)
{
    static Launch held; /* for messages after the caller's copy is gone */
    held = what;
    running = &held;
    launch_number++;
    block_extent = what.block;
    grid_extent = what.grid;
    thread_count = (int)(what.block.x * what.block.y * what.block.z);
    int i = 0;
    for (unsigned z = 0; z < what.block.z; z++)
        for (unsigned y = 0; y < what.block.y; y++)
            for (unsigned x = 0; x < what.block.x; x++)
                thread_places[i++] = {x, y, z};
    const uint64_t total = (uint64_t)what.grid.x * what.grid.y * what.grid.z;
    const uint64_t step = order == RANDOM ? random_step(total) : 1;
    random_seed(order_seed * 0x2545f4914f6cdd1du + launch_number);
    phase_first = intervals + 1;
    grid_waiting = 0;
    block_total = what.coop ? (int)total : 1;
    shared_begin(what.shared, block_total);
    const uint64_t left_out =
        !what.coop && settings.wrong && strstr(what.kernel, settings.wrong);
    for (uint64_t q = 0; q < total - left_out; q += (uint64_t)block_total) {
        for (int k = 0; k < block_total; k++)
            block_begin(blocks + k, k, block_at(q + (uint64_t)k, total, step));
        fibers_run(blocks, block_total);
        for (int k = 0; k < block_total; k++) {
            shared_block_end(blocks + k);
            sm90_end(blocks + k);
        }
    }
    check_red_zones(what.file, what.line);
    running = nullptr;
}

} // namespace emu

void emu_set_order(const char *text)
{
    static const char letters[] = "ghad";
    const char *at = *text ? strchr(letters, *text) : nullptr;
    char *end = nullptr;
    emu::settings_read();
    if (at && !text[1]) {
        emu::order = (emu::Order)(at - letters);
        return;
    }
    if (*text == 'r') emu::order_seed = strtoull(text + 1, &end, 10);
    if (!end || end == text + 1 || *end)
        emu::stop_at("EMU_ORDER", 1, "unknown order %s: g, h, a, d or rN",
                     text);
    emu::order = emu::RANDOM;
}
