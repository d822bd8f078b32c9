/* event.cc -- events: a mark in a stream that other streams and the host wait
 * for.
 *
 * A wait refers to the last record before it, as in CUDA: a later record does
 * not move it. An event that was never recorded is complete. */
#include "tests/cuda/emulator/work.h"

namespace emu {

static Handles<CUevent_st> events;

size_t live_events()
{
    return events.live.size();
}

void events_reset()
{
    events.live.clear();
}

static bool complete(const CUevent_st *e)
{
    return !e->recorded || e->stream->done >= e->number;
}

} // namespace emu

using namespace emu;

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned flags)
{
    BEGIN(CALL_FAILS);
    if (!e) return call.end(cudaErrorInvalidValue);
    *e = events.add();
    (*e)->flags = flags;
    return call.end(cudaSuccess);
}
cudaError_t cudaEventCreate(cudaEvent_t *e)
{
    return cudaEventCreateWithFlags(e, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t e)
{
    BEGIN(CALL_PLAIN);
    if (!events.drop(e)) return call.end(cudaErrorInvalidResourceHandle);
    return call.end(cudaSuccess);
}

cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t stream)
{
    BEGIN(CALL_FAILS);
    CUstream_st *s = find_stream(stream);
    if (!events.has(e) || !s) return call.end(cudaErrorInvalidResourceHandle);
    if (s->capture) {
        if (s->capture->spoilt)
            return call.end(cudaErrorStreamCaptureInvalidated);
        e->capture = s->capture;
        e->tips = s->tips;
        return call.end(cudaSuccess);
    }
    Work work(Work::RECORD, "cudaEventRecord", 1);
    work.event = e;
    /* enqueue gives this number, and may run it at once */
    const CUevent_st before = *e;
    e->capture = nullptr;
    e->recorded = true;
    e->stream = s;
    e->number = next_number();
    const cudaError_t error = enqueue(std::move(work), s);
    if (error) *e = before;
    return call.end(error);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t e, unsigned)
{
    BEGIN(CALL_FAILS);
    CUstream_st *s = find_stream(stream);
    if (!events.has(e) || !s) return call.end(cudaErrorInvalidResourceHandle);
    if (e->capture || s->capture)
        return call.end(capture_wait(s, e->capture, e->tips));
    if (complete(e)) return call.end(cudaSuccess);
    Work work(Work::WAIT, "cudaStreamWaitEvent", 1);
    work.after.push_back({e->stream, e->number});
    return call.end(enqueue(std::move(work), s));
}

cudaError_t cudaEventQuery(cudaEvent_t e)
{
    BEGIN(CALL_FAILS | CALL_UNSAFE);
    if (!events.has(e)) return call.end(cudaErrorInvalidResourceHandle);
    if (e->capture) return call.end(cudaErrorCapturedEvent);
    if (complete(e)) return call.end(cudaSuccess);
    run_one(e->stream); /* a program that polls must make progress */
    return call.end(cudaErrorNotReady);
}

cudaError_t cudaEventSynchronize(cudaEvent_t e)
{
    BEGIN(CALL_FAILS | CALL_UNSAFE);
    if (!events.has(e)) return call.end(cudaErrorInvalidResourceHandle);
    if (e->capture) return call.end(cudaErrorCapturedEvent);
    if (!complete(e)) run_until(e->stream, e->number);
    return call.end(cudaSuccess);
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to)
{
    BEGIN(CALL_PLAIN);
    for (const cudaEvent_t e : {from, to}) {
        if (!events.has(e) || !e->recorded ||
            (e->flags & cudaEventDisableTiming))
            return call.end(cudaErrorInvalidResourceHandle);
        if (e->capture) return call.end(cudaErrorCapturedEvent);
        if (!complete(e)) return call.end(cudaErrorNotReady);
    }
    *ms = (float)(1e3 * (to->time - from->time));
    return call.end(cudaSuccess);
}
