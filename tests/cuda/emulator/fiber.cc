/* fiber.cc -- fibers: the stacks of a block's threads, the context switch and
 * the scheduler.
 *
 * A fiber that has to wait picks the next one and switches to it directly;
 * the host's stack is entered again only when all fibers have returned. A
 * thread that returns hands its stack to the next thread that has not started,
 * so a kernel without barriers runs its threads in a loop on one stack.
 *
 * The switch saves only the callee-saved registers of the ABI: swapcontext()
 * makes two system calls and is 20 times slower. The switches are not announced
 * to the runtime of ASan, which the checked build links for its heap: no object
 * is compiled with ASan, so it keeps nothing about stacks. */
#include "tests/cuda/emulator/core.h"

#include <sys/mman.h>
#include <vector>

extern "C" {
void emu_switch(void **save, void *to);
const char *__asan_default_options();
}

/* emu_switch(save, to): pushes the callee-saved registers, *save = sp, sp = to,
 * pops the registers, returns. */
#if defined(__x86_64__)
asm(".text\n"
    ".globl emu_switch\n"
    ".type emu_switch,@function\n"
    "emu_switch:\n"
    "    pushq %rbp\n    pushq %rbx\n    pushq %r12\n"
    "    pushq %r13\n    pushq %r14\n    pushq %r15\n"
    "    movq %rsp,(%rdi)\n"
    "    movq %rsi,%rsp\n"
    "    popq %r15\n    popq %r14\n    popq %r13\n"
    "    popq %r12\n    popq %rbx\n    popq %rbp\n"
    "    ret\n"
    ".size emu_switch,.-emu_switch\n");
#elif defined(__aarch64__)
asm(".text\n"
    ".globl emu_switch\n"
    ".type emu_switch,%function\n"
    "emu_switch:\n"
    "    sub sp,sp,#160\n"
    "    stp x19,x20,[sp]\n      stp x21,x22,[sp,#16]\n"
    "    stp x23,x24,[sp,#32]\n  stp x25,x26,[sp,#48]\n"
    "    stp x27,x28,[sp,#64]\n  stp x29,x30,[sp,#80]\n"
    "    stp d8,d9,[sp,#96]\n    stp d10,d11,[sp,#112]\n"
    "    stp d12,d13,[sp,#128]\n stp d14,d15,[sp,#144]\n"
    "    mov x9,sp\n             str x9,[x0]\n"
    "    mov sp,x1\n"
    "    ldp x19,x20,[sp]\n      ldp x21,x22,[sp,#16]\n"
    "    ldp x23,x24,[sp,#32]\n  ldp x25,x26,[sp,#48]\n"
    "    ldp x27,x28,[sp,#64]\n  ldp x29,x30,[sp,#80]\n"
    "    ldp d8,d9,[sp,#96]\n    ldp d10,d11,[sp,#112]\n"
    "    ldp d12,d13,[sp,#128]\n ldp d14,d15,[sp,#144]\n"
    "    add sp,sp,#160\n"
    "    ret\n"
    ".size emu_switch,.-emu_switch\n");
#else
#error "emu_switch is written for x86-64 and aarch64"
#endif

const char *__asan_default_options()
{
    return "detect_leaks=0:allow_user_segv_handler=1";
}

namespace emu {

enum {
    STACK = 128 * 1024,
    GUARD = 4096,
    STRIDE = STACK + GUARD,
    POLLS = 8, /* in vain before a fiber sleeps: more than it has rings */
    IDLE_MOST = 10000 /* rounds of polls without any event: a deadlock */
};

uint3 thread_index, block_index;
dim3 block_extent, grid_extent;
int thread_number = -1;
Block *block;
Order order;
static uint64_t dice; /* state of the random order */

uintptr_t stacks_low, stacks_high; /* address range of all stacks so far */
static int free_stack[MAX_FIBERS], free_stacks, made_stacks;
static void *host_sp;
static Block *first_block;
static int block_total;

uint64_t random_next(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static char *stack_bottom(int i)
{
    return reinterpret_cast<char *>(stacks_low) + (size_t)i * STRIDE + GUARD;
}

bool in_stack_guard(uintptr_t at)
{
    return on_fiber_stack(at) && (at - stacks_low) % STRIDE < GUARD;
}

/* Reserves address space for `count` stacks, each with a guard page below it;
 * the system adds memory at the first access. */
static void make_stacks(int count)
{
    if (!stacks_low) {
        void *p =
            mmap(nullptr, (size_t)MAX_FIBERS * STRIDE, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p == MAP_FAILED) stop_at(__FILE__, __LINE__, "no stacks");
        stacks_low = stacks_high = (uintptr_t)p;
    }
    for (; made_stacks < count; made_stacks++) {
        mprotect(stack_bottom(made_stacks) - GUARD, GUARD, PROT_NONE);
        stacks_high += STRIDE;
        free_stack[free_stacks++] = made_stacks;
    }
}

static int next_lane(uint32_t ready, int after, bool up)
{
    if (up) {
        const uint32_t later = ready & ~((2u << after) - 1);
        return __builtin_ctz(later ? later : ready);
    }
    const uint32_t earlier = ready & ((1u << after) - 1);
    return 31 - __builtin_clz(earlier ? earlier : ready);
}

static int random_bit(uint32_t set)
{
    const int turn = (int)(random_next(&dice) >> 40 & 31);
    const uint32_t turned = turn ? set >> turn | set << (32 - turn) : set;
    return (__builtin_ctz(turned) + turn) & 31;
}

/* Chooses among the ready threads of the current block, which has at least
 * one. */
static void pick_thread()
{
    Block *b = block;
    int w = thread_number >> 5, l = thread_number & 31;
    if (order == RANDOM) {
        w = random_bit(b->runnable);
        thread_number = w * 32 + random_bit(b->warp[w].ready);
        return;
    }
    const bool up = order == GREEDY_UP || order == ROUND_UP;
    uint32_t here = b->warp[w].ready;
    if (order == ROUND_UP) here &= ~((2u << l) - 1);
    if (order == ROUND_DOWN) here &= (1u << l) - 1;
    if (here) {
        l = next_lane(here, l, up);
    } else {
        w = next_lane(b->runnable, w, up);
        l = next_lane(b->warp[w].ready, up ? 31 : 0, up);
    }
    thread_number = w * 32 + l;
}

/* Chooses the next thread, possibly of another block. Returns false when none
 * is ready. */
static bool pick()
{
    if (!block->runnable || (order == RANDOM && block_total > 1)) {
        const int step = order == GREEDY_DOWN || order == ROUND_DOWN ? -1 : 1;
        int i = block->number, tried = 0;
        if (order == RANDOM)
            i = (int)(random_next(&dice) >> 8) & (MAX_BLOCKS - 1);
        i %= block_total;
        do {
            i = (i + step + block_total) % block_total;
        } while (!first_block[i].runnable && ++tried < block_total);
        if (!first_block[i].runnable) return false;
        block = first_block + i;
        block_index = block->index;
        thread_number = step > 0 ? 0 : thread_count - 1;
        Warp *w = &block->warp[thread_number >> 5];
        if (w->ready >> (thread_number & 31) & 1 && order != RANDOM)
            return true;
    }
    pick_thread();
    return true;
}

/* -- fibers that poll ----------------------------------------------------- */
namespace {
struct Sleeper {
    Block *of;
    int thread;
};
} // namespace
static std::vector<Sleeper> sleepers;
static uint64_t events = 1;
static int idle; /* rounds in which only polling fibers ran */

static void wake_sleepers()
{
    for (const Sleeper &s : sleepers) {
        s.of->fiber[s.thread].polls = 0;
        fiber_wake(s.of, s.thread >> 5, 1u << (s.thread & 31));
    }
    sleepers.clear();
}

void fiber_event()
{
    events++;
    idle = 0;
    wake_sleepers();
}

/* As pick; if no other fiber can run, those that poll may ask again. */
static bool pick_any()
{
    if (pick()) return true;
    if (sleepers.empty() || ++idle > IDLE_MOST) return false;
    wake_sleepers();
    return pick();
}

static void thread_main();

/* Prepares a stack on which emu_switch() "returns" into thread_main(). The tops
 * of the stacks differ by some cache lines; otherwise all would map to the same
 * cache sets. */
static void *prepare(int stack)
{
    const uintptr_t end = (uintptr_t)stack_bottom(stack) + STACK;
    void **sp = reinterpret_cast<void **>(
        (end - (uintptr_t)(stack % 29) * 128) & ~(uintptr_t)63);
#if defined(__x86_64__)
    *--sp = nullptr; /* as if thread_main had been called */
    *--sp = reinterpret_cast<void *>(thread_main);
    sp -= 6;
    memset(sp, 0, 6 * sizeof *sp);
#else
    sp -= 20;
    memset(sp, 0, 20 * sizeof *sp);
    sp[11] = reinterpret_cast<void *>(thread_main);
#endif
    return sp;
}

/* Makes thread_number the current thread. Returns true when the thread has not
 * started yet. */
static bool enter()
{
    Warp *w = &block->warp[thread_number >> 5];
    const uint32_t bit = 1u << (thread_number & 31);
    thread_index = thread_places[thread_number];
    if (!(w->fresh & bit)) return false;
    w->fresh &= ~bit;
    return true;
}

/* Switches to the picked thread and saves the current fiber at `save`. */
static void go(void **save)
{
    const bool begin = enter();
    Fiber *to = &block->fiber[thread_number];
    if (begin) {
        to->stack = free_stack[--free_stacks];
        to->sp = prepare(to->stack);
    }
    emu_switch(save, to->sp);
}

static void thread_main()
{
    int stack;
    for (;;) {
        running->bound.call(running->bound.args.get());
        stack = block->fiber[thread_number].stack;
        thread_returned();
        idle = 0;
        if (!pick_any()) break;
        Warp *w = &block->warp[thread_number >> 5];
        if (w->fresh >> (thread_number & 31) & 1) {
            enter();
            block->fiber[thread_number].stack = stack;
            continue;
        }
        /* no other thread takes the stack before the switch below leaves it */
        free_stack[free_stacks++] = stack;
        void *gone;
        go(&gone);
    }
    for (int i = 0; i < block_total; i++)
        if (first_block[i].alive) deadlock(first_block, block_total);
    free_stack[free_stacks++] = stack;
    void *gone;
    emu_switch(&gone, host_sp);
}

/* Runs other fibers while the caller waits, or has yielded. */
static void leave()
{
    Block *const b = block;
    const int self = thread_number;
    if (!pick_any()) deadlock(first_block, block_total);
    if (block == b && thread_number == self) return;
    go(&b->fiber[self].sp);
}

void fiber_wait()
{
    Warp *w = &block->warp[thread_number >> 5];
    w->ready &= ~(1u << (thread_number & 31));
    if (!w->ready) block->runnable &= ~(1u << (thread_number >> 5));
    leave();
}

/* Called by the last thread that arrives, after it has woken the others. Greedy
 * orders let this thread go on, so that a warp runs ahead; the other orders
 * must not favour it. */
void fiber_yield()
{
    if (order != GREEDY_UP && order != GREEDY_DOWN) leave();
}

void fiber_poll()
{
    Fiber *f = &block->fiber[thread_number];
    if (f->polled != events) f->polls = 0;
    f->polled = events;
    if (++f->polls < POLLS) {
        fiber_yield();
        return;
    }
    sleepers.push_back({block, thread_number});
    fiber_wait();
}

void fiber_wake(Block *of, int warp, uint32_t lanes)
{
    of->warp[warp].ready |= lanes;
    if (of->warp[warp].ready) of->runnable |= 1u << warp;
}

void fibers_run(Block *blocks, int count)
{
    const bool up = order == GREEDY_UP || order == ROUND_UP;
    make_stacks(count == 1 ? MAX_THREADS : count * thread_count);
    first_block = blocks;
    block_total = count;
    block = up || order == RANDOM ? blocks : blocks + count - 1;
    block_index = block->index;
    thread_number = up ? 0 : thread_count - 1;
    if (order == RANDOM) pick_thread();
    go(&host_sp);
    thread_number = -1;
}

/* Seeds the random order, once for each launch, so that a failure does not
 * depend on earlier launches; launch.cc mixes the number of the launch into the
 * seed. */
void random_seed(uint64_t seed)
{
    dice = seed;
}

} // namespace emu
