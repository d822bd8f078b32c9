/* memory.cc -- device memory: addresses, guard pages and red zones.
 *
 * One range of addresses is reserved. Each allocation has its own pages, ends
 * (rounded up to CUDA's 256 bytes) at an inaccessible page, and is filled with
 * 0xFF, a NaN. The bytes between its true end and the page, and at least 256
 * before it, are a red zone that is compared after each launch and at each
 * free. Freed pages stay inaccessible and are reused only after KEEP_FREED
 * further bytes have been freed.
 *
 * Pages are accessible only while the runtime copies or a kernel runs (Opened),
 * so host code that follows a device pointer traps, and the trap prints a
 * message. In the checked build red zones and freed memory are also poisoned
 * for ASan, which checks memcpy and other libc functions. */
#include "tests/cuda/emulator/core.h"

#include <csignal>
#include <cstdio>
#include <deque>
#include <map>
#include <sys/mman.h>
#include <ucontext.h>

extern "C" {
__attribute__((weak)) void __asan_poison_memory_region(const volatile void *,
                                                       size_t);
__attribute__((weak)) void __asan_unpoison_memory_region(const volatile void *,
                                                         size_t);
}

namespace emu {

enum : size_t {
    PAGE = 4096,
    ALIGN = 256,
    RED_ZONE = 256,
    RED_BYTE = 0xa5,
    GUARD_MOST = (size_t)4 << 20, /* larger allocations stay accessible:
                                   * protecting many pages is slow */
    ADDRESSES = (size_t)32 << 30,
    KEEP_FREED = (size_t)4 << 30 /* freed bytes before they are reused */
};

uintptr_t heap_low, heap_high; /* reserved; used up to heap_next */
static uintptr_t heap_next;
static std::map<uintptr_t, Allocation> live; /* by first byte of the span */
static std::map<uintptr_t, Allocation> dead; /* for messages and reuse */
/* spans of freed allocations by size, the earliest freed first: a run frees a
 * hundred thousand spans */
static std::map<size_t, std::deque<uintptr_t>> dead_of;
static size_t dead_bytes, used_bytes[64];
static int opened;
static const Allocation *last_hit;

namespace {
struct Pinned {
    size_t bytes;
    bool registered; /* by cudaHostRegister: not freed by the runtime */
};
} // namespace
static std::map<uintptr_t, Pinned> pinned;

/* -- looking up ----------------------------------------------------------- */
static const Allocation *spanning(const std::map<uintptr_t, Allocation> &in,
                                  uintptr_t at)
{
    auto it = in.upper_bound(at);
    if (it == in.begin()) return nullptr;
    --it;
    /* an address on the guard page is reported with this allocation */
    return at <= it->first + it->second.span + PAGE ? &it->second : nullptr;
}

const Allocation *allocation_of(uintptr_t at)
{
    if (last_hit && at - last_hit->at < last_hit->bytes) return last_hit;
    const Allocation *a = spanning(live, at);
    if (!a || at - a->at >= a->bytes) return nullptr;
    return last_hit = a;
}

const Allocation *allocation_near(uintptr_t at)
{
    const Allocation *a = spanning(live, at), *d = spanning(dead, at);
    if (!a || (d && d->span_at > a->span_at)) return d;
    return a;
}

/* Writes "4 bytes, 12 past the end of an allocation of 100 bytes"; n = 0 when
 * the size is not known. */
void describe_address(uintptr_t at, size_t n, char *text, size_t size)
{
    const Allocation *a = allocation_near(at);
    char count[32] = "memory";
    if (n) snprintf(count, sizeof count, "%zu bytes", n);
    if (!is_device_memory(at))
        snprintf(text, size, "%s of the host (or of nothing)", count);
    else if (!a)
        snprintf(text, size, "%s of no allocation", count);
    else if (a->freed)
        snprintf(text, size, "%s of an allocation of %zu bytes that was freed",
                 count, a->bytes);
    else if (at < a->at)
        snprintf(text, size, "%s, %zu before an allocation of %zu bytes", count,
                 (size_t)(a->at - at), a->bytes);
    else if (at >= a->at + a->bytes)
        snprintf(text, size,
                 "%s, %zu past the end of an allocation of %zu "
                 "bytes",
                 count, (size_t)(at - a->at - a->bytes), a->bytes);
    else
        snprintf(text, size, "%s across the end of an allocation of %zu bytes",
                 count, a->bytes);
}

/* -- opening and traps ---------------------------------------------------- */
static void protect(const Allocation &a, bool open)
{
    if (!a.freed && !open && a.bytes > GUARD_MOST) return;
    mprotect(reinterpret_cast<void *>(a.span_at), a.span,
             open ? PROT_READ | PROT_WRITE : PROT_NONE);
}

Opened::Opened()
{
    if (opened++ || !settings.guard) return;
    for (const auto &e : live)
        if (e.second.bytes <= GUARD_MOST) protect(e.second, true);
}
Opened::~Opened()
{
    if (--opened || !settings.guard) return;
    for (const auto &e : live) protect(e.second, false);
}

static struct sigaction before[2];

static void on_trap(int signal, siginfo_t *info, void *context)
{
    const uintptr_t at = (uintptr_t)info->si_addr;
    const ucontext_t *c = static_cast<ucontext_t *>(context);
#if defined(__x86_64__)
    void *pc = reinterpret_cast<void *>(c->uc_mcontext.gregs[REG_RIP] + 1);
#else
    void *pc = reinterpret_cast<void *>(c->uc_mcontext.pc + 4);
#endif
    char text[256];
    if (in_stack_guard(at))
        stop_pc(pc, "a thread's local variables need more than 128 KB");
    if (is_device_memory(at)) {
        describe_address(at, 0, text, sizeof text);
        if (running) stop_pc(pc, "the kernel touches %s", text);
        stop_pc(pc, "host code follows a device pointer, to %s",
                allocation_of(at) ? "live device memory" : text);
    }
    /* for a misaligned vector load the processor reports no address */
    if (running && info->si_code == SI_KERNEL)
        stop_pc(pc, "the kernel touches a misaligned address");
    if (running && signal == SIGSEGV)
        stop_pc(pc, "the kernel touches address %p, which is no memory",
                info->si_addr);
    /* not device memory: fault again with the former handler in place */
    sigaction(signal, &before[signal == SIGBUS], nullptr);
}

static void memory_init()
{
    static char stack[64 * 1024];
    if (heap_low) return;
    void *p = mmap(nullptr, ADDRESSES, PROT_NONE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) stop_at(__FILE__, __LINE__, "no room for a heap");
    heap_low = heap_next = (uintptr_t)p;
    heap_high = heap_low + ADDRESSES;
    stack_t alternate = {};
    alternate.ss_sp = stack;
    alternate.ss_size = sizeof stack;
    sigaltstack(&alternate, nullptr);
    struct sigaction action = {};
    action.sa_sigaction = on_trap;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(SIGSEGV, &action, &before[0]);
    sigaction(SIGBUS, &action, &before[1]);
}

/* -- red zones ------------------------------------------------------------ */
static uintptr_t round_up(uintptr_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

/* Computes the address ranges z[i] = [from, to) of the red zones before (i = 0)
 * and after (i = 1) the allocation. The bytes between the start of the first
 * page and the front red zone are not checked. */
static void zones(const Allocation &a, uintptr_t z[2][2])
{
    z[0][0] = a.at - RED_ZONE;
    z[0][1] = a.at;
    z[1][0] = a.at + a.bytes;
    z[1][1] = a.span_at + a.span;
}

/* Compares eight bytes at a time; not with memcmp, which ASan checks. */
static bool all_red(const unsigned char *p, size_t n)
{
    const uint64_t red = RED_BYTE * 0x0101010101010101u;
    uint64_t other = 0, word;
    for (; n >= sizeof word; p += sizeof word, n -= sizeof word) {
        memcpy(&word, p, sizeof word);
        other |= word ^ red;
    }
    for (; n; n--) other |= *p++ ^ RED_BYTE;
    return !other;
}

static void check_zone(const Allocation &a, const char *file, int line)
{
    uintptr_t z[2][2];
    zones(a, z);
    for (int i = 0; i < 2; i++) {
        const unsigned char *p = reinterpret_cast<unsigned char *>(z[i][0]);
        const size_t n = z[i][1] - z[i][0];
        if (all_red(p, n)) continue;
        for (size_t k = 0; k < n; k++) {
            if (p[k] == RED_BYTE) continue;
            stop_at(file, line,
                    "red zone damaged %zu bytes %s an allocation of %zu bytes",
                    i ? k : n - k, i ? "past the end of" : "before", a.bytes);
        }
    }
}

void check_red_zones(const char *file, int line)
{
    const Opened open;
    for (const auto &e : live) check_zone(e.second, file, line);
}

/* -- allocate and free ---------------------------------------------------- */
/* Returns address space of `span` bytes and a guard page: a freed span of this
 * size when enough has been freed since, else new addresses; when these are
 * used up, the smallest freed span that is large enough. */
static uintptr_t find_span(size_t *span)
{
    const bool full = heap_next + *span + PAGE > heap_high;
    if (dead_bytes > KEEP_FREED || full) {
        const auto fit =
            full ? dead_of.lower_bound(*span) : dead_of.find(*span);
        if (fit != dead_of.end()) {
            const uintptr_t at = fit->second.front();
            *span = fit->first;
            dead_bytes -= *span;
            dead.erase(at);
            fit->second.pop_front();
            if (fit->second.empty()) dead_of.erase(fit);
            return at;
        }
        if (full)
            stop_at("cudaMalloc", 1, "the emulator's addresses are used up");
    }
    const uintptr_t at = heap_next;
    heap_next += *span + PAGE;
    return at;
}

static void poison(uintptr_t at, size_t n, bool on)
{
    void *p = reinterpret_cast<void *>(at);
    if (on && __asan_poison_memory_region) __asan_poison_memory_region(p, n);
    if (!on && __asan_unpoison_memory_region)
        __asan_unpoison_memory_region(p, n);
}

static void *allocate(size_t bytes)
{
    memory_init();
    const size_t rounded = round_up(bytes, ALIGN);
    Allocation a = {};
    a.span = round_up(rounded + RED_ZONE, PAGE);
    a.span_at = find_span(&a.span);
    a.bytes = bytes;
    a.at = a.span_at + a.span - rounded;
    a.device = current_device;
    protect(a, true);
    poison(a.span_at, a.span, false);
    memset(reinterpret_cast<void *>(a.at - RED_ZONE), RED_BYTE, RED_ZONE);
    memset(reinterpret_cast<void *>(a.at), 0xff, bytes);
    memset(reinterpret_cast<void *>(a.at + bytes), RED_BYTE, rounded - bytes);
    poison(a.span_at, a.at - a.span_at, true);
    poison(a.at + bytes, rounded - bytes, true);
    if (!opened && settings.guard) protect(a, false);
    live[a.span_at] = a;
    used_bytes[a.device] += rounded;
    if (checker) checker->forgotten(a.at, bytes);
    return reinterpret_cast<void *>(a.at);
}

static void release(Allocation a)
{
    live.erase(a.span_at);
    last_hit = nullptr;
    used_bytes[a.device] -= round_up(a.bytes, ALIGN);
    poison(a.span_at, a.span, true);
    madvise(reinterpret_cast<void *>(a.span_at), a.span, MADV_DONTNEED);
    if (checker) checker->freed(a.span_at, a.span);
    a.freed = true;
    protect(a, false);
    dead[a.span_at] = a;
    dead_of[a.span].push_back(a.span_at);
    dead_bytes += a.span;
}

/* cudaDeviceReset() */
void memory_reset()
{
    while (!live.empty()) release(live.begin()->second);
}

bool is_pinned(const void *at, size_t bytes)
{
    auto it = pinned.upper_bound((uintptr_t)at);
    if (it == pinned.begin()) return false;
    --it;
    return (uintptr_t)at + bytes <= it->first + it->second.bytes;
}

} // namespace emu

using namespace emu;

cudaError_t cudaMalloc(void **p, size_t bytes)
{
    BEGIN(CALL_FAILS | CALL_UNSAFE);
    if (!p) return call.end(cudaErrorInvalidValue);
    *p = nullptr;
    if (!bytes) return call.end(cudaSuccess);
    const size_t left = settings.memory - used_bytes[current_device];
    if (bytes > left || round_up(bytes, ALIGN) > left)
        return call.end(cudaErrorMemoryAllocation);
    *p = allocate(bytes);
    return call.end(cudaSuccess);
}

cudaError_t cudaFree(void *p, const char *file, int line)
{
    BEGIN(CALL_UNSAFE);
    const Allocation *a = allocation_of((uintptr_t)p);
    if (!p) return call.end(cudaSuccess);
    cudaDeviceSynchronize(file, line); /* as CUDA's cudaFree does */
    if (!a || a->at != (uintptr_t)p) {
        char text[256];
        const Allocation *d = allocation_near((uintptr_t)p);
        if (d && d->freed && d->at == (uintptr_t)p)
            stop_at(file, line, "cudaFree: freed twice (%zu bytes)", d->bytes);
        describe_address((uintptr_t)p, 0, text, sizeof text);
        stop_at(file, line, "cudaFree: not the start of an allocation: %s",
                text);
    }
    {
        const Opened open;
        check_zone(*a, file, line);
    }
    release(*a);
    return call.end(cudaSuccess);
}

cudaError_t cudaHostAlloc(void **p, size_t bytes, unsigned)
{
    BEGIN(CALL_FAILS | CALL_UNSAFE);
    if (!p) return call.end(cudaErrorInvalidValue);
    *p = aligned_alloc(4096, round_up(bytes ? bytes : 1, 4096));
    if (!*p) return call.end(cudaErrorMemoryAllocation);
    memset(*p, 0xff, bytes);
    pinned[(uintptr_t)*p] = Pinned{bytes, false};
    return call.end(cudaSuccess);
}

cudaError_t cudaMallocHost(void **p, size_t bytes, unsigned flags)
{
    return cudaHostAlloc(p, bytes, flags);
}

cudaError_t cudaFreeHost(void *p, const char *file, int line)
{
    BEGIN(CALL_UNSAFE);
    if (!p) return call.end(cudaSuccess);
    auto it = pinned.find((uintptr_t)p);
    if (it == pinned.end() || it->second.registered)
        stop_at(file, line,
                "cudaFreeHost: freed twice, or not allocated by "
                "cudaHostAlloc");
    if (copies_pending(p, it->second.bytes))
        stop_at(file, line,
                "cudaFreeHost: a queued copy still uses this "
                "memory");
    pinned.erase(it);
    free(p);
    return call.end(cudaSuccess);
}

cudaError_t cudaHostRegister(void *p, size_t bytes, unsigned)
{
    BEGIN(CALL_FAILS | CALL_UNSAFE);
    if (!p || !bytes) return call.end(cudaErrorInvalidValue);
    if (is_pinned(p, 1)) return call.end(cudaErrorHostMemoryAlreadyRegistered);
    pinned[(uintptr_t)p] = Pinned{bytes, true};
    return call.end(cudaSuccess);
}

cudaError_t cudaHostUnregister(void *p, const char *file, int line)
{
    BEGIN(CALL_UNSAFE);
    auto it = pinned.find((uintptr_t)p);
    if (it == pinned.end() || !it->second.registered)
        return call.end(cudaErrorHostMemoryNotRegistered);
    if (copies_pending(p, it->second.bytes))
        stop_at(file, line,
                "cudaHostUnregister: a queued copy still uses "
                "this memory");
    pinned.erase(it);
    return call.end(cudaSuccess);
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total)
{
    BEGIN(CALL_PLAIN);
    *total = settings.memory;
    *free_bytes = settings.memory - used_bytes[current_device];
    return call.end(cudaSuccess);
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *to, const void *p)
{
    BEGIN(CALL_PLAIN);
    const Allocation *a = allocation_of((uintptr_t)p);
    void *const q = const_cast<void *>(p);
    *to = cudaPointerAttributes{cudaMemoryTypeUnregistered, -2, nullptr, q};
    if (a)
        *to =
            cudaPointerAttributes{cudaMemoryTypeDevice, a->device, q, nullptr};
    else if (is_pinned(p, 1))
        *to = cudaPointerAttributes{cudaMemoryTypeHost, current_device, q, q};
    return call.end(cudaSuccess);
}

size_t emu_live_bytes(void)
{
    size_t sum = 0;
    for (const auto &e : live) sum += e.second.bytes;
    return sum;
}
size_t emu_live_blocks(void)
{
    return live.size();
}

/* -- parts of an arena ---------------------------------------------------- */
static void need_inside(const void *at, size_t bytes, const char *what)
{
    const Allocation *a = allocation_of((uintptr_t)at);
    if (bytes && (!a || (uintptr_t)at + bytes > a->at + a->bytes))
        stop_at(what, 1, "%s: not inside one allocation", what);
}
void emu_close(const void *at, size_t bytes)
{
    need_inside(at, bytes, "emu_close");
    poison((uintptr_t)at, bytes, true);
    if (checker) checker->closed((uintptr_t)at, bytes, true);
}
void emu_open(const void *at, size_t bytes)
{
    need_inside(at, bytes, "emu_open");
    poison((uintptr_t)at, bytes, false);
    if (checker) checker->closed((uintptr_t)at, bytes, false);
}
void emu_forget(void *at, size_t bytes)
{
    const Opened open;
    need_inside(at, bytes, "emu_forget");
    memset(at, 0xff, bytes);
    if (checker) checker->forgotten((uintptr_t)at, bytes);
}
