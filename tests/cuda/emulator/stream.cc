/* stream.cc -- streams, copies, and the schedule of queued work.
 *
 * CUDA guarantees only the order within a stream and the order imposed by
 * events and the legacy stream. A program must be right for every schedule
 * within these rules, so the emulator picks adverse schedules (EMU_STREAMS):
 *
 *   late    work runs only when the host waits for it: exposes a result that
 *           is read too soon and a pinned buffer that is refilled too soon
 *   ahead   before a stream runs, the others run as far as events let them:
 *           exposes a buffer that another stream overwrites too soon
 *   early   work runs at once, in the order of calls; rN: at random
 *
 * A copy from pageable memory reads its source at the call, as CUDA stages it;
 * a copy into pageable memory ends before the call returns. */
#include "tests/cuda/emulator/work.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

extern "C" {
__attribute__((weak)) void *__asan_region_is_poisoned(void *, size_t);
}

namespace emu {

Streams streams_mode;
uint64_t streams_dice;
static Handles<CUstream_st> made;
static std::vector<CUstream_st *> streams; /* live, or with work; [0] legacy */
static uint64_t newest;
static std::map<std::string, long> launch_counts;

static CUstream_st *new_stream(bool blocking)
{
    CUstream_st *s = made.add();
    s->id = (int)made.all.size() - 1;
    s->device = current_device;
    s->blocking = blocking;
    streams.push_back(s);
    return s;
}

CUstream_st *legacy_stream()
{
    if (streams.empty()) made.drop(new_stream(true)); /* has no handle */
    return streams[0];
}

/* A fault leaves work in the queue, which still counts as pending. */
static void retire(CUstream_st *s)
{
    made.drop(s);
    if (s->queue.empty())
        streams.erase(std::find(streams.begin(), streams.end(), s));
}

const std::vector<CUstream_st *> &all_streams()
{
    return streams;
}

CUstream_st *find_stream(cudaStream_t handle)
{
    CUstream_st *legacy = legacy_stream();
    if (!handle || handle == cudaStreamLegacy) return legacy;
    return made.has(handle) ? handle : nullptr;
}

/* -- running -------------------------------------------------------------- */
static bool finished(const After &a)
{
    return a.stream->done >= a.number;
}

static bool can_run(const CUstream_st *s)
{
    if (s->queue.empty()) return false;
    for (const After &a : s->queue.front().after)
        if (!finished(a)) return false;
    return true;
}

static void run_front(CUstream_st *s)
{
    Work work = std::move(s->queue.front());
    s->queue.pop_front();
    execute(work);
    s->done = work.number;
}

/* For `ahead`: runs the other streams as far as events let them, before the
 * next operation of `s`. For rN: some of their operations. */
static void run_others(const CUstream_st *s)
{
    if (streams_mode != STREAMS_AHEAD && streams_mode != STREAMS_RANDOM) return;
    bool moved = true;
    while (moved) {
        moved = false;
        for (CUstream_st *t : streams) {
            if (t == s || !can_run(t)) continue;
            if (streams_mode == STREAMS_RANDOM &&
                random_next(&streams_dice) >> 63)
                return;
            run_front(t);
            moved = true;
        }
    }
}

void run_until(CUstream_st *s, uint64_t number)
{
    const Opened open;
    while (s->done < number && !s->queue.empty() && !context_faulted()) {
        run_others(s);
        const std::vector<After> after = s->queue.front().after;
        for (const After &a : after) run_until(a.stream, a.number);
        run_front(s);
    }
}

void run_one(CUstream_st *s)
{
    if (s->queue.empty()) return;
    run_until(s, s->queue.front().number);
}

/* For `late`: runs the newest queued work first, as far as events let it. */
static void run_all()
{
    const Opened open; /* one for all work: opening costs a call per page */
    for (;;) {
        CUstream_st *pick = nullptr;
        for (CUstream_st *s : streams) {
            if (s->queue.empty()) continue;
            if (!pick || s->queue.front().number > pick->queue.front().number)
                pick = s;
        }
        if (!pick || context_faulted()) return;
        run_one(pick);
    }
}

/* The legacy stream and blocking streams wait for each other. */
static void order_with_legacy(Work *work, const CUstream_st *s)
{
    CUstream_st *legacy = legacy_stream();
    if (s != legacy) {
        if (s->blocking && legacy->last > legacy->done)
            work->after.push_back({legacy, legacy->last});
        return;
    }
    for (CUstream_st *t : streams)
        if (t != legacy && t->blocking && t->last > t->done)
            work->after.push_back({t, t->last});
}

uint64_t next_number()
{
    return newest + 1;
}

cudaError_t enqueue(Work &&work, CUstream_st *s)
{
    if (s->capture) return capture_add(s, std::move(work));
    const cudaError_t e = capture_implicit(s);
    if (e) return e;
    work.number = ++newest;
    order_with_legacy(&work, s);
    s->last = work.number;
    s->queue.push_back(std::move(work));
    if (streams_mode == STREAMS_EARLY) run_until(s, s->last);
    return cudaSuccess;
}

void execute(Work &work)
{
    const Opened open;
    char name[256];
    switch (work.kind) {
    case Work::KERNEL:
        launch_counts[clean_name(work.launch.kernel, name, sizeof name)]++;
        reached(work.launch.function);
        launch_run(work.launch);
        break;
    case Work::COPY:
        memmove(work.to, work.staged ? work.staged->data() : work.from,
                work.bytes);
        if (checker && is_device_memory((uintptr_t)work.to))
            checker->written((uintptr_t)work.to, work.bytes);
        break;
    case Work::SET:
        memset(work.to, work.value, work.bytes);
        if (checker) checker->written((uintptr_t)work.to, work.bytes);
        break;
    case Work::RECORD:
        if (work.event->number == work.number) {
            timespec t;
            clock_gettime(CLOCK_MONOTONIC, &t);
            work.event->time = (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
        }
        break;
    case Work::WAIT:
        break;
    case Work::GRAPH:
        run_graph(*work.graph);
        break;
    case Work::HOST:
        work.call(work.data);
        break;
    }
}

bool copies_pending(const void *host, size_t bytes)
{
    const uintptr_t at = (uintptr_t)host;
    for (const CUstream_st *s : streams)
        for (const Work &w : s->queue)
            if (w.kind == Work::COPY &&
                (((uintptr_t)w.from - at < bytes && !w.staged) ||
                 (uintptr_t)w.to - at < bytes))
                return true;
    return false;
}

/* For cudaDeviceReset(): drops all queued work. */
void streams_reset()
{
    for (CUstream_st *s : std::vector<CUstream_st *>(streams)) {
        s->queue.clear();
        s->done = s->last;
        if (s->capture) capture_end(s->capture);
        if (s->id) retire(s);
    }
}

void launch(Launch what, cudaStream_t stream)
{
    Call call(CALL_FAILS | CALL_LAUNCH);
    CUstream_st *s = find_stream(stream);
    const dim3 &g = what.grid, &b = what.block;
    const uint64_t threads = (uint64_t)b.x * b.y * b.z;
    const uint64_t blocks = (uint64_t)g.x * g.y * g.z;
    cudaError_t e = call.error;
    if (e) {
    } else if (!s || (s->id && s->device != current_device)) {
        /* a stream of another device than the current one */
        e = cudaErrorInvalidResourceHandle;
    } else if (settings.capability < 75) {
        e = cudaErrorNoKernelImageForDevice;
    } else if (!threads || b.x > MAX_THREADS || b.y > MAX_THREADS || b.z > 64 ||
               threads > MAX_THREADS || !blocks || g.x > 0x7fffffffu ||
               g.y > 65535 || g.z > 65535) {
        e = cudaErrorInvalidConfiguration;
    } else if (what.shared > (size_t)dynamic_limit(what.function)) {
        e = cudaErrorInvalidValue;
    } else if (what.coop && blocks > MAX_BLOCKS) {
        e = cudaErrorCooperativeLaunchTooLarge;
    } else if (what.coop && blocks * threads > MAX_FIBERS) {
        stop_at(what.file, what.line,
                "cooperative launch of %s: at most %d threads in all",
                what.kernel, MAX_FIBERS);
    } else {
        Work work(Work::KERNEL, what.file, what.line);
        work.launch = std::move(what);
        e = enqueue(std::move(work), s);
    }
    call.end(e);
}

/* -- copies --------------------------------------------------------------- */
/* A device range must lie in one allocation; a host range must be readable. */
static void check_range(const void *p, size_t bytes, bool device,
                        const char *what, const char *file, int line)
{
    char text[256];
    if (device) {
        const Allocation *a = allocation_of((uintptr_t)p);
        if (a && bytes <= a->at + a->bytes - (uintptr_t)p) return;
        const size_t inside = a ? a->at + a->bytes - (uintptr_t)p : 0;
        describe_address((uintptr_t)p + inside, bytes - inside, text,
                         sizeof text);
        stop_at(file, line, "%s touches %s", what, text);
    }
    if (__asan_region_is_poisoned &&
        __asan_region_is_poisoned(const_cast<void *>(p), bytes))
        stop_at(file, line, "%s touches host memory out of bounds", what);
}

/* Returns whether `kind` agrees with the memory of the two pointers. */
static bool kind_fits(cudaMemcpyKind kind, bool from_device, bool to_device)
{
    switch (kind) {
    case cudaMemcpyHostToHost:
        return !from_device && !to_device;
    case cudaMemcpyHostToDevice:
        return !from_device && to_device;
    case cudaMemcpyDeviceToHost:
        return from_device && !to_device;
    case cudaMemcpyDeviceToDevice:
        return from_device && to_device;
    case cudaMemcpyDefault:
        return true;
    }
    return false;
}

static cudaError_t copy(void *to, const void *from, size_t bytes,
                        cudaMemcpyKind kind, CUstream_st *s, bool wait,
                        const char *what, const char *file, int line)
{
    const bool to_device = is_device_memory((uintptr_t)to);
    const bool from_device = is_device_memory((uintptr_t)from);
    if (!s) return cudaErrorInvalidResourceHandle;
    if (!bytes) return cudaSuccess;
    if (!to || !from) return cudaErrorInvalidValue;
    if (!kind_fits(kind, from_device, to_device))
        return (unsigned)kind > cudaMemcpyDefault
                   ? cudaErrorInvalidMemcpyDirection
                   : cudaErrorInvalidValue;
    check_range(to, bytes, to_device, what, file, line);
    check_range(from, bytes, from_device, what, file, line);
    const bool staged = !from_device && !is_pinned(from, bytes);
    const bool late_write = !to_device && !is_pinned(to, bytes);
    if (s->capture && (staged || late_write)) {
        spoil(s->capture);
        return cudaErrorStreamCaptureUnsupported;
    }
    Work work(Work::COPY, file, line);
    work.to = to;
    work.from = from;
    work.bytes = bytes;
    if (staged) {
        const char *p = static_cast<const char *>(from);
        work.staged = std::make_shared<std::vector<char>>(p, p + bytes);
    }
    const cudaError_t e = enqueue(std::move(work), s);
    if (!e && (wait || (late_write && !s->capture))) run_until(s, s->last);
    return e;
}

} // namespace emu

using namespace emu;

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes,
                       cudaMemcpyKind kind, const char *file, int line)
{
    BEGIN(CALL_FAILS);
    CUstream_st *s = legacy_stream();
    cudaError_t e = capture_implicit(s);
    if (!e) e = capture_forbids();
    if (!e) e = copy(to, from, bytes, kind, s, true, "cudaMemcpy", file, line);
    return call.end(e);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes,
                            cudaMemcpyKind kind, cudaStream_t stream,
                            const char *file, int line)
{
    BEGIN(CALL_FAILS);
    return call.end(copy(to, from, bytes, kind, find_stream(stream), false,
                         "cudaMemcpyAsync", file, line));
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes,
                            cudaStream_t stream, const char *file, int line)
{
    BEGIN(CALL_FAILS);
    CUstream_st *s = find_stream(stream);
    if (!s) return call.end(cudaErrorInvalidResourceHandle);
    if (!bytes) return call.end(cudaSuccess);
    if (!is_device_memory((uintptr_t)to))
        return call.end(cudaErrorInvalidValue);
    check_range(to, bytes, true, "cudaMemset", file, line);
    Work work(Work::SET, file, line);
    work.to = to;
    work.value = value;
    work.bytes = bytes;
    return call.end(enqueue(std::move(work), s));
}

cudaError_t cudaMemset(void *to, int value, size_t bytes, const char *file,
                       int line)
{
    return cudaMemsetAsync(to, value, bytes, nullptr, file, line);
}

/* A constant must not change under kernels that are queued before it. */
cudaError_t emu_copy_to_symbol(void *symbol, size_t size, const void *from,
                               size_t bytes, size_t offset)
{
    BEGIN(CALL_FAILS | CALL_UNSAFE);
    if (offset > size || bytes > size - offset)
        return call.end(cudaErrorInvalidValue);
    run_all();
    memcpy(static_cast<char *>(symbol) + offset, from, bytes);
    return call.end(cudaSuccess);
}

/* -- streams -------------------------------------------------------------- */
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned flags)
{
    BEGIN(CALL_FAILS);
    if (!s || flags > cudaStreamNonBlocking)
        return call.end(cudaErrorInvalidValue);
    legacy_stream();
    *s = new_stream(flags == cudaStreamDefault);
    return call.end(cudaSuccess);
}
cudaError_t cudaStreamCreate(cudaStream_t *s)
{
    return cudaStreamCreateWithFlags(s, cudaStreamDefault);
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *s, unsigned flags, int)
{
    return cudaStreamCreateWithFlags(s, flags);
}
cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    BEGIN(CALL_PLAIN);
    *least = 0;
    *greatest = -1;
    return call.end(cudaSuccess);
}

cudaError_t cudaStreamDestroy(cudaStream_t handle)
{
    BEGIN(CALL_PLAIN);
    CUstream_st *s = find_stream(handle);
    if (!s || s == legacy_stream())
        return call.end(cudaErrorInvalidResourceHandle);
    if (s->capture) capture_end(s->capture);
    run_until(s, s->last); /* CUDA finishes the queued work later */
    retire(s);
    return call.end(cudaSuccess);
}

/* Invalidates the capture of `s`: a capturing stream may be neither waited for
 * nor polled. */
static cudaError_t capturing(CUstream_st *s)
{
    if (!s->capture) return capture_implicit(s);
    spoil(s->capture);
    return cudaErrorStreamCaptureUnsupported;
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle, const char *file,
                                  int line)
{
    BEGIN(CALL_FAILS);
    CUstream_st *s = find_stream(handle);
    if (!s) return call.end(cudaErrorInvalidResourceHandle);
    const cudaError_t e = capturing(s);
    if (e) return call.end(e);
    run_until(s, s->last);
    check_red_zones(file, line);
    return call.end(cudaSuccess);
}

cudaError_t cudaStreamQuery(cudaStream_t handle)
{
    BEGIN(CALL_FAILS);
    CUstream_st *s = find_stream(handle);
    if (!s) return call.end(cudaErrorInvalidResourceHandle);
    const cudaError_t e = capturing(s);
    if (e) return call.end(e);
    if (s->queue.empty()) return call.end(cudaSuccess);
    run_one(s);
    return call.end(cudaErrorNotReady);
}

cudaError_t cudaDeviceSynchronize(const char *file, int line)
{
    BEGIN(CALL_FAILS | CALL_UNSAFE);
    run_all();
    check_red_zones(file, line);
    return call.end(cudaSuccess);
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t f, void *data)
{
    BEGIN(CALL_FAILS);
    CUstream_st *s = find_stream(stream);
    if (!s) return call.end(cudaErrorInvalidResourceHandle);
    Work work(Work::HOST, "cudaLaunchHostFunc", 1);
    work.call = f;
    work.data = data;
    return call.end(enqueue(std::move(work), s));
}

void emu_set_streams(const char *text)
{
    static const char *const words[] = {"late", "early", "ahead"};
    settings_read();
    for (int i = 0; i < 3; i++) {
        if (strcmp(text, words[i])) continue;
        streams_mode = (Streams)i;
        return;
    }
    char *end = nullptr;
    if (*text == 'r') streams_dice = strtoull(text + 1, &end, 10);
    if (!end || end == text + 1 || *end)
        stop_at("EMU_STREAMS", 1, "unknown mode %s: late, early, ahead or rN",
                text);
    streams_mode = STREAMS_RANDOM;
}

long emu_launch_count(const char *part)
{
    long sum = 0;
    for (const auto &c : launch_counts)
        if (!part || c.first.find(part) != std::string::npos) sum += c.second;
    return sum;
}
void emu_reset_counts(void)
{
    launch_counts.clear();
}

size_t emu_live_handles(void)
{
    return live_events() + live_graphs() + made.live.size();
}
