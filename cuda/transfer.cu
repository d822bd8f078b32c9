/* transfer.cu -- copies between the host and the device.
 *
 * To the device: the bytes go into host memory that the driver may read at any
 * time, from there to a place on the device by a stream of its own, while
 * kernels run, and from there to where they are wanted, in the order of the
 * calls. So the caller's memory is free when an upload returns, nothing waits,
 * and the next batch travels while the GPU works on this one; at the price of
 * one more copy on either side, both far faster than the bus between them.
 * Places are used in turn by whoever finds one free; their number and size
 * bound how far the host runs ahead.
 *
 * From the device: the caller wants the bytes now, so it waits. */
#include "device.cuh"
#include <string.h>

namespace {

// a larger copy goes in pieces
const size_t PIECE = (size_t)32 << 20;
// what a place is a multiple of: small copies then share places
const size_t GRAIN = 4096;

void release(Staging *s)
{
    // in this order: cudaFree waits for copies that still read the other
    if (s->device) (void)cudaFree(s->device);
    if (s->host) (void)cudaFreeHost(s->host);
    s->host = s->device = NULL, s->bytes = 0, s->busy = false;
}

/* Find out which places may be written again. */
bool look(Gpu *g)
{
    for (int i = 0; i < STAGINGS; i++) {
        Staging *s = &g->staging[i];
        if (!s->busy) continue;
        cudaError_t e = cudaEventQuery(s->used);
        s->busy = e == cudaErrorNotReady;
        if (!s->busy && !gpu_good(e, "copying to it")) return false;
        // "not ready" is no error, and must not be taken for one of a launch
        (void)cudaGetLastError();
    }
    return true;
}

/* Make room for `bytes` in a place that is free. */
bool grow(Staging *s, size_t bytes)
{
    release(s);
    bytes = (bytes + GRAIN - 1) / GRAIN * GRAIN;
    const unsigned quiet = cudaEventDisableTiming;
    if (!s->landed &&
        !gpu_good(cudaEventCreateWithFlags(&s->landed, quiet), "an event"))
        return false;
    if (!s->used &&
        !gpu_good(cudaEventCreateWithFlags(&s->used, quiet), "an event"))
        return false;
    if (!gpu_good(cudaMallocHost(&s->host, bytes), "memory of the host that "
                                                   "it reads by itself") ||
        !gpu_memory(bytes, &s->device))
        return false;
    s->bytes = bytes;
    return true;
}

/* A free place with room for `bytes`: the smallest that has it, else one that
 * is grown, else the first that becomes free. NULL with the reason. */
Staging *find_place(Gpu *g, size_t bytes)
{
    Staging *best = NULL, *other = NULL;
    if (!look(g)) return NULL;
    for (int i = 0; i < STAGINGS; i++) {
        Staging *s = &g->staging[i];
        if (s->busy) continue;
        if (s->bytes >= bytes) {
            if (!best || s->bytes < best->bytes) best = s;
        } else if (!other || s->bytes < other->bytes)
            other = s;
    }
    if (best) return best;
    if (!other) {
        // all are busy: the stream is far behind, and any of them will do
        return gpu_sync(g) ? find_place(g, bytes) : NULL;
    }
    return grow(other, bytes) ? other : NULL;
}

/* Queue one piece. */
bool send(Gpu *g, char *to, const char *host, size_t bytes)
{
    Staging *s = find_place(g, bytes);
    if (!s) return false;
    const char *what = "copying to it";
    memcpy(s->host, host, bytes);
    s->busy = true;
    return gpu_good(cudaMemcpyAsync(s->device, s->host, bytes,
                                    cudaMemcpyHostToDevice, g->copies),
                    what) &&
           gpu_good(cudaEventRecord(s->landed, g->copies), what) &&
           gpu_good(cudaStreamWaitEvent(g->stream, s->landed, 0), what) &&
           gpu_good(cudaMemcpyAsync(to, s->device, bytes,
                                    cudaMemcpyDeviceToDevice, g->stream),
                    what) &&
           gpu_good(cudaEventRecord(s->used, g->stream), what);
}

} // namespace

// one that rehearses has no memory to write to
bool gpu_upload(void *dev, void *dst, const void *host, size_t bytes)
{
    if (gpu_rehearses(dev)) return true;
    for (size_t at = 0; at < bytes; at += PIECE) {
        size_t piece = bytes - at < PIECE ? bytes - at : PIECE;
        if (!send((Gpu *)dev, (char *)dst + at, (const char *)host + at, piece))
            return false;
    }
    return true;
}

bool gpu_copy(void *dev, void *dst, const void *src, size_t bytes)
{
    if (gpu_rehearses(dev)) {
        Launch l = {};
        l.name = "copy", l.bytes = bytes;
        launch_log_add(l);
        return true;
    }
    return gpu_good(cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDeviceToDevice,
                                    gpu_stream(dev)),
                    "copying on it");
}

bool gpu_download(void *dev, void *host, const void *src, size_t bytes)
{
    Gpu *g = (Gpu *)dev;
    if (gpu_rehearses(dev)) {
        memset(host, 0, bytes);
        return true;
    }
    return gpu_good(cudaMemcpyAsync(host, src, bytes, cudaMemcpyDeviceToHost,
                                    g->stream),
                    "copying from it") &&
           gpu_sync(dev);
}

// where an asynchronous fault is met: which kernel it was CUDA does not say
bool gpu_sync(void *dev)
{
    return gpu_rehearses(dev) ||
           gpu_good(cudaStreamSynchronize(((Gpu *)dev)->stream), "running");
}

// kernels read seed and count from the device, not from their arguments: a
// recorded run then draws anew each time it is played
bool gpu_begin(void *dev, const Step *step)
{
    return gpu_upload(dev, ((Gpu *)dev)->step, step, sizeof *step);
}

void gpu_drop_staging(Gpu *g)
{
    for (int i = 0; i < STAGINGS; i++) {
        Staging *s = &g->staging[i];
        release(s);
        if (s->landed) (void)cudaEventDestroy(s->landed);
        if (s->used) (void)cudaEventDestroy(s->used);
    }
}
