/* core.h -- private interface between the files of the emulator.
 *
 * State of the running launch is global: one OS thread at a time is inside
 * the emulator. Schedule state is bit masks (a warp is 32 bits, a block 32
 * warps), so that finding the next fiber is a few instructions.
 *
 * Files: report (messages), fiber (stacks, context switch), launch (blocks,
 * barriers, orders), warp (warp collectives), mma (mma and ldmatrix), shared
 * (shared memory, cp.async), mbarrier, tma and wgmma (of Hopper), memory
 * (allocations), device (properties, settings), fail (checks at the start of
 * each runtime call, injected failures), stream, event and graph (queued work),
 * race (linked in the checked build only, which calls it through `checker`). */
#ifndef EMU_CORE_H
#define EMU_CORE_H
#include "tests/cuda/emulator/emu_control.h"
#include "tests/cuda/emulator/emu_launch.h"
#include "tests/cuda/emulator/emu_prims.h"
#include "tests/cuda/emulator/emu_sm90.h"
#include "tests/cuda/emulator/emu_warp.h"

#include <string>

namespace emu {

enum {
    MAX_THREADS = 1024, /* of a block */
    MAX_WARPS = 32,
    MAX_BLOCKS = 128,          /* of a cooperative launch */
    MAX_FIBERS = 32768,        /* of a cooperative launch */
    SHARED_STATIC = 48 * 1024, /* without the attribute for more */
    SHARED_ROOM = 256 * 1024,  /* reserved for each block, with gaps */
    EXIT_FAULT = 65,
    EXIT_RACE = 66
};

struct Site {
    const char *what, *file;
    int line;
};
inline bool same_site(const Site &a, const Site &b)
{
    return a.line == b.line && a.what == b.what &&
           (a.file == b.file || !strcmp(a.file, b.file));
}

/* -- fibers ---------------------------------------------------------------- */
struct Fiber {
    void *sp;
    int stack;             /* index of its stack */
    uint32_t mask;         /* of its last collective */
    Site site;             /* of the barrier or collective it last reached */
    struct Copies *copies; /* its asynchronous copies, null until used */
    struct Stores *stores; /* its tma_stores, null until used */
    uint64_t polled;       /* fiber_events at its last fiber_poll */
    int polls;             /* since then */
};
struct Warp {
    uint32_t ready;   /* lanes that can run */
    uint32_t fresh;   /* ready lanes that have not started */
    uint32_t alive;   /* lanes that have not returned */
    uint32_t exists;  /* lanes that the block has */
    uint32_t arrived; /* lanes that wait in a collective */
    bool mixed;       /* arrived lanes may have different sites or masks */
    uint32_t epoch;   /* __syncwarps passed in this interval */
    Site site;        /* of the first arrived lane */
};
/* An interval is the time between two barriers of a block; its number is
 * unique over the whole run and grows within a block. */
struct Block {
    uint3 index;
    int number;                /* among the blocks that run together */
    uint32_t runnable;         /* warps with ready lanes */
    int alive, waiting, first; /* threads; `first` reached the barrier first */
    int vote, outcome;
    uint32_t interval, first_interval; /* current; at the block's start */
    Site site;                         /* of the barrier that threads wait at */
    char *shared;
    Fiber *fiber;
    Lane *lane;
    Warp warp[MAX_WARPS];
};

extern Block *block;          /* of the running thread */
extern const Launch *running; /* null outside a kernel */
extern int thread_count;      /* of each block */
extern uint3 thread_places[MAX_THREADS];
extern uint32_t intervals;   /* number of the newest interval */
extern uint32_t phase_first; /* first interval since launch or grid barrier */

enum Order { GREEDY_UP, GREEDY_DOWN, ROUND_UP, ROUND_DOWN, RANDOM };
extern Order order;
uint64_t random_next(uint64_t *state);
void random_seed(uint64_t seed);

/* Runs fibers until every thread of `blocks[0 .. count)` has returned. */
void fibers_run(Block *blocks, int count);
/* Suspends the calling fiber until fiber_wake. The caller has set its `site`.
 */
void fiber_wait();
void fiber_yield(); /* other fibers go first, in the orders that are fair */
void fiber_wake(Block *of, int warp, uint32_t lanes);
/* The calling fiber asks for something in a loop: when it has asked in vain
 * several times, it sleeps until the next fiber_event, or until no other fiber
 * can run. The caller has set its `site`. */
void fiber_poll();
void fiber_event();
/* Starts a new interval of a block: the race checker takes earlier accesses of
 * its threads as ordered before later ones. */
void interval_begin(Block *b);
/* whether `at` lies on the stack of some fiber */
extern uintptr_t stacks_low, stacks_high;
inline bool on_fiber_stack(uintptr_t at)
{
    return at - stacks_low < stacks_high - stacks_low;
}
/* whether `at` lies in the page below some stack */
bool in_stack_guard(uintptr_t at);
/* Updates warp and block after the running thread has returned. */
void thread_returned();
[[noreturn]] void deadlock(Block *blocks, int count);

void launch_run(const Launch &what);

/* -- shared memory --------------------------------------------------------- */
void shared_begin(size_t dynamic, int blocks);
void shared_block_begin(Block *b);
void shared_block_end(Block *b);
/* whether [at, at + n) lies in one array of block b */
bool shared_holds(const Block *b, uintptr_t at, size_t n);
/* address range of the shared memory of all blocks */
extern uintptr_t rooms_low, rooms_high;
inline bool in_shared_memory(uintptr_t at)
{
    return at - rooms_low < rooms_high - rooms_low;
}
void copies_drop(Fiber *f);
size_t shared_limit(); /* bytes of a block, static and dynamic */

/* -- Hopper ---------------------------------------------------------------- */
void sm90_needed(const Site &site); /* stops if the device has none of it */
void dependency_needed(const Site &site); /* stops before a missing wait */
void sm90_begin(Block *b);
void sm90_end(Block *b);
/* The running thread has returned. */
void sm90_returned();
/* Describes the barriers that threads wait for: missing arrivals and bytes. */
std::string mbarrier_lacks(Block *b);
/* `bytes` of a load have arrived. */
void mbarrier_complete(uint64_t *bar, uint32_t bytes, const Site &site);
/* A load into shared memory is issued for `bar`: polling threads wake up. */
void mbarrier_loads(uint64_t *bar, const Site &site);
void loads_begin(Block *b);
void loads_end(Block *b);
/* Lets the loads arrive that belong to barrier `bar` of the running block. */
void loads_land(const uint64_t *bar);
/* whether a load into [at, at + n) is in flight */
bool is_loading(uintptr_t at, size_t n);
void stores_returned(Fiber *f);
void products_begin(Block *b);
void products_returned();

/* -- device memory --------------------------------------------------------- */
struct Allocation {
    uintptr_t at, span_at;
    size_t bytes, span;
    int device;
    bool freed;
};
const Allocation *allocation_of(uintptr_t at);   /* live, with the byte */
const Allocation *allocation_near(uintptr_t at); /* live or freed, or null */
extern uintptr_t heap_low, heap_high; /* the addresses of all devices */
inline bool is_device_memory(uintptr_t at)
{
    return at - heap_low < heap_high - heap_low;
}
bool is_pinned(const void *at, size_t bytes);
bool copies_pending(const void *host, size_t bytes); /* stream.cc */
void check_red_zones(const char *file, int line);
void describe_address(uintptr_t at, size_t n, char *text, size_t size);
/* Host code of the emulator may access device memory while an Opened exists. */
struct Opened {
    Opened();
    ~Opened();
};
void memory_reset();
void streams_reset();
void events_reset();
void reached(const void *kernel); /* notes that the kernel ran: reached.cc */
void graphs_reset();

/* -- callbacks of the checked build ---------------------------------------- */
enum Access { ACCESS_READ, ACCESS_WRITE, ACCESS_ATOMIC };
struct Checker {
    void (*access)(uintptr_t at, size_t n, Access how, void *pc);
    void (*written)(uintptr_t at, size_t n); /* by a copy or memset */
    void (*forgotten)(uintptr_t at, size_t n);
    void (*freed)(uintptr_t at, size_t n);
    void (*closed)(uintptr_t at, size_t n, bool closed);
    void (*interval)(uint32_t number, int block);
    /* TMA begins to write shared memory, for the running thread; it has written
     * it; TMA or wgmma reads it; a thread has called fence_async_shared */
    void (*loading)(uintptr_t at, size_t n, void *pc);
    void (*loaded)(uintptr_t at, size_t n);
    void (*async_read)(uintptr_t at, size_t n, void *pc);
    void (*fenced)(int block, int thread);
    /* the running block arrives at last_block; as the last block there it then
     * joins: accesses of earlier arrivals become visible to it */
    void (*arrived)(const unsigned *word);
    void (*joined)(const unsigned *word);
    long (*count)();
};
extern const Checker *checker; /* null in the plain build */

/* -- messages -------------------------------------------------------------- */
/* Prints the place of the current thread as second line of a message. */
void say_thread();
[[noreturn]] void stop(const Site &site, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
[[noreturn]] void stop_pc(void *pc, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void find_place(void *pc, char *text, size_t size);
const char *kernel_name(char *text, size_t size);

/* -- start of every call of the runtime ------------------------------------ */
enum CallKind {
    CALL_PLAIN = 0,
    CALL_FAILS = 1,  /* counts for emu_fail_at */
    CALL_UNSAFE = 2, /* forbidden while a stream is captured */
    CALL_LAUNCH = 4,
    CALL_ALWAYS = 8 /* works without a device and after a fault */
};
struct Call {
    cudaError_t error; /* unless cudaSuccess, the call returns it at once */
    explicit Call(int kinds);
    ~Call();
    Call(const Call &) = delete;
    /* stores `e` as the last error and returns it */
    cudaError_t end(cudaError_t e);
};
#define BEGIN(kinds)       \
    emu::Call call(kinds); \
    if (call.error) return call.end(call.error)
bool context_faulted();
extern __thread int calls_here; /* of this OS thread, nested */
cudaError_t capture_forbids();  /* graph.cc; invalidates current captures */

void settings_read();
struct Settings {
    int capability, devices;
    enum { DRIVER_OK, DRIVER_NONE, DRIVER_OLD } driver;
    size_t memory;
    bool guard, copies_early;
    const char *wrong; /* EMU_WRONG, or NULL */
};
extern Settings settings;
extern int current_device;
int dynamic_limit(const void *function);
const char *clean_name(const char *name, char *text, size_t size);

} // namespace emu
#endif
