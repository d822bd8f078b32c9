/* warp.cc -- collectives of a warp: wait for the lanes, run the body once.
 *
 * In the usual case all lanes arrive at the same line with the full mask: one
 * comparison with the first arrived lane is enough. With partial masks each
 * arriving lane is compared with every waiting lane of its mask. */
#include "tests/cuda/emulator/core.h"

namespace emu {

Lane &lane_slot()
{
    return block->lane[thread_number];
}

[[noreturn]] static void diverged(const Site &site, int lane, int other,
                                  const Fiber *f)
{
    stop(site,
         "warp divergence: lane %d is in %s, lane %d in %s of %s:%d with mask "
         "%08x",
         lane, site.what, other, f->site.what, f->site.file, f->site.line,
         f->mask);
}

/* All arrived lanes of `mask` must wait in the same call with that mask. */
static void compare(const Block *b, const Warp *w, int base, int lane,
                    uint32_t mask, const Site &site)
{
    for (uint32_t left = w->arrived; left; left &= left - 1) {
        const int other = __builtin_ctz(left);
        const Fiber *f = &b->fiber[base + other];
        if (!(mask >> other & 1)) {
            if (f->mask >> lane & 1) diverged(site, lane, other, f);
            continue;
        }
        if (f->mask != mask || !same_site(f->site, site))
            diverged(site, lane, other, f);
    }
}

void collective(uint32_t mask, WarpBody body, const char *what,
                const char *file, int line)
{
    const Site site = {what, file, line};
    Block *b = block;
    const int lane = thread_number & 31, base = thread_number & ~31;
    const uint32_t bit = 1u << lane;
    Warp *w = &b->warp[base >> 5];
    if (!(mask & bit))
        stop(site, "%s: lane %d is missing from its mask %08x", what, lane,
             mask);
    if (mask & ~w->alive) {
        const int gone = __builtin_ctz(mask & ~w->alive);
        if (w->exists >> gone & 1)
            stop(site, "%s: lane %d of the mask has returned", what, gone);
        stop(site,
             "%s: the mask %08x has lane %d, but the block's %d threads "
             "do not fill the warp",
             what, mask, gone, thread_count);
    }
    Fiber *self = &b->fiber[thread_number];
    if (!w->arrived) {
        w->site = site;
        w->mixed = mask != w->exists;
    } else if (w->mixed || mask != w->exists || !same_site(w->site, site)) {
        w->mixed = true;
        compare(b, w, base, lane, mask, site);
    }
    w->arrived |= bit;
    self->mask = mask;
    self->site = site;
    if ((w->arrived & mask) != mask) {
        fiber_wait();
        return;
    }
    w->arrived &= ~mask;
    body(b->lane + base, mask);
    fiber_wake(b, base >> 5, mask);
    fiber_yield();
}

void body_sync(Lane *, uint32_t)
{
    block->warp[thread_number >> 5].epoch++;
}

void body_shuffle(Lane *lanes, uint32_t mask)
{
    for (int l = 0; l < 32; l++) {
        const int from = lanes[l].arg;
        if (!(mask >> l & 1)) continue;
        if (!(mask >> from & 1)) {
            stop(block->fiber[(thread_number & ~31) + l].site,
                 "shuffle: lane %d reads lane %d, which takes no part "
                 "(mask %08x)",
                 l, from, mask);
        }
        memcpy(lanes[l].out, lanes[from].in, 8);
    }
}

void body_ballot(Lane *lanes, uint32_t mask)
{
    uint32_t votes = 0;
    for (int l = 0; l < 32; l++)
        if (mask >> l & 1 && lanes[l].arg) votes |= 1u << l;
    for (int l = 0; l < 32; l++)
        if (mask >> l & 1) memcpy(lanes[l].out, &votes, sizeof votes);
}

void body_match(Lane *lanes, uint32_t mask)
{
    for (int l = 0; l < 32; l++) {
        uint32_t same = 0;
        if (!(mask >> l & 1)) continue;
        for (int k = 0; k < 32; k++)
            if (mask >> k & 1 && !memcmp(lanes[l].in, lanes[k].in, 8))
                same |= 1u << k;
        memcpy(lanes[l].out, &same, sizeof same);
    }
}

} // namespace emu
