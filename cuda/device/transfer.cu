/* transfer.cu -- copies between the host and the device.
 *
 * An upload copies the bytes to pinned host memory, from there on a copy stream
 * to a staging buffer on the device, while kernels run, and from there to the
 * destination, in the order of the calls. So the caller's memory is free when
 * an upload returns, nothing waits, and the next batch is transferred while the
 * GPU works on this one. The price is one more copy on either side, both far
 * faster than the bus. Staging buffers grow to the sizes that are copied and
 * are reused by any upload; their number bounds how far the host runs ahead.
 * Free buffers are released when the device has no other memory left.
 *
 * A download waits, as the caller needs the bytes at once. */
#include "cuda/device/device.cuh"
#include <string.h>

namespace {

// a larger copy goes in pieces
const size_t PIECE = (size_t)32 << 20;
// small copies have their own buffers, or they would occupy those of a batch
const size_t SMALL = 4096;

bool is_small(const Gpu *g, const Staging *s)
{
    return s - g->staging < SMALL_STAGINGS;
}

void release(Staging *s)
{
    // in this order: cudaFree waits for copies that still read `host`
    if (s->device) (void)cudaFree(s->device);
    if (s->host) (void)cudaFreeHost(s->host);
    s->host = s->device = NULL, s->bytes = 0;
}

/* Marks buffers as free when their copies are done. */
bool poll_staging(Gpu *g)
{
    for (int i = 0; i < STAGINGS; i++) {
        Staging *s = &g->staging[i];
        if (!s->since) continue;
        cudaError_t e = cudaEventQuery(s->used);
        if (e != cudaErrorNotReady) s->since = 0;
        if (!s->since && !gpu_good(e, "copying to it")) return false;
        // "not ready" is no error, and must not be taken for one of a launch
        (void)cudaGetLastError();
    }
    return true;
}

bool host_memory(size_t bytes, void **out)
{
    cudaError_t e = cudaMallocHost(out, bytes);
    if (e != cudaErrorMemoryAllocation)
        return gpu_good(e, "memory of the host");
    (void)cudaGetLastError();
    return fail_device("GPU: %zu bytes of the host's memory for copies to it: "
                       "use a smaller batch or smaller images, close other "
                       "programs, or raise the limit of locked memory "
                       "(ulimit -l)",
                       bytes);
}

/* Gives a free buffer room for `bytes`. */
bool grow(Gpu *g, Staging *s, size_t bytes)
{
    release(s);
    const unsigned quiet = cudaEventDisableTiming;
    if (!s->landed &&
        !gpu_good(cudaEventCreateWithFlags(&s->landed, quiet), "an event"))
        return false;
    if (!s->used &&
        !gpu_good(cudaEventCreateWithFlags(&s->used, quiet), "an event"))
        return false;
    if (!host_memory(bytes, &s->host)) return false;
    if (!gpu_memory(g, s, bytes, &s->device)) return false;
    s->bytes = bytes;
    return true;
}

/* Returns a free buffer with room for `bytes`: the smallest that is large
 * enough, else the smallest one, grown. While all are busy the host waits for
 * the oldest. NULL with the reason. */
Staging *find_staging(Gpu *g, size_t bytes)
{
    const bool small = bytes <= SMALL;
    if (!poll_staging(g)) return NULL;

    for (;;) {
        Staging *fits = NULL, *other = NULL, *oldest = NULL;
        for (int i = 0; i < STAGINGS; i++) {
            Staging *s = &g->staging[i];
            if (is_small(g, s) != small) continue;
            if (s->since) {
                if (!oldest || s->since < oldest->since) oldest = s;
            } else if (s->bytes >= bytes) {
                if (!fits || s->bytes < fits->bytes) fits = s;
            } else if (!other || s->bytes < other->bytes)
                other = s;
        }
        if (fits) return fits;
        if (other) return grow(g, other, small ? SMALL : bytes) ? other : NULL;
        if (!gpu_good(cudaEventSynchronize(oldest->used), "copying to it"))
            return NULL;
        oldest->since = 0;
    }
}

/* Queues one piece: `bytes` of the host, or its floats rounded to `type`. */
bool send(Gpu *g, char *to, const void *host, size_t bytes, Dtype type)
{
    Staging *s = find_staging(g, bytes);
    if (!s) return false;
    const char *what = "copying to it";

    if (type == F32)
        memcpy(s->host, host, bytes);
    else
        precision_narrow(type, (const float *)host,
                         (int64_t)(bytes / sizeof(uint16_t)),
                         (uint16_t *)s->host);

    s->since = ++g->uploads;
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

/* Uploads `bytes` of dst in pieces; the host has twice as many where its floats
 * are rounded to 16 bits. */
bool upload(Gpu *g, void *dst, const void *host, size_t bytes, Dtype type)
{
    const size_t each = type == F32 ? 1 : sizeof(float) / sizeof(uint16_t);
    if (!gpu_use(g)) return false;
    for (size_t at = 0; at < bytes; at += PIECE) {
        const size_t piece = bytes - at < PIECE ? bytes - at : PIECE;
        if (!send(g, (char *)dst + at, (const char *)host + at * each, piece,
                  type))
            return false;
    }
    return true;
}

} // namespace

// a dry run has no memory to write to
bool gpu_upload(void *dev, void *dst, const void *host, size_t bytes)
{
    return gpu_dry_runs(dev) || upload((Gpu *)dev, dst, host, bytes, F32);
}

// rounded on the host, so half the bytes cross the bus
bool gpu_upload_narrow(void *dev, const Tensor *to, const float *host)
{
    return gpu_dry_runs(dev) ||
           upload((Gpu *)dev, to->data, host, tensor_bytes(to), to->type);
}

// the host fills a buffer more slowly than the GPU empties one, so two of a
// tensor are in use at a time
size_t gpu_staging(size_t bytes)
{
    if (bytes <= SMALL) return SMALL;
    return bytes < 2 * PIECE ? bytes : 2 * PIECE;
}

bool gpu_copy(void *dev, void *dst, const void *src, size_t bytes)
{
    if (gpu_dry_runs(dev)) {
        Launch l = {};
        l.name = "copy", l.bytes = bytes;
        launch_log_add(l);
        return true;
    }
    if (launch_timer) launch_timer("copy", dim3(0), dim3(0), bytes);
    const cudaError_t e = cudaMemcpyAsync(
        dst, src, bytes, cudaMemcpyDeviceToDevice, gpu_stream(dev));
    if (launch_timer) launch_timer(NULL, dim3(0), dim3(0), 0);
    return gpu_good(e, "copying on it");
}

bool gpu_download(void *dev, void *host, const void *src, size_t bytes)
{
    Gpu *g = (Gpu *)dev;
    if (gpu_dry_runs(dev)) {
        memset(host, 0, bytes);
        return true;
    }
    return gpu_use(dev) &&
           gpu_good(cudaMemcpyAsync(host, src, bytes, cudaMemcpyDeviceToHost,
                                    g->stream),
                    "copying from it") &&
           gpu_sync(dev);
}

// reports asynchronous errors; CUDA does not say which kernel failed
bool gpu_sync(void *dev)
{
    return gpu_dry_runs(dev) ||
           gpu_good(cudaStreamSynchronize(((Gpu *)dev)->stream), "running");
}

// kernels read seed and count from the device, not from their arguments, so a
// captured step draws new numbers at each launch
bool gpu_begin(void *dev, const Step *step)
{
    return gpu_upload(dev, ((Gpu *)dev)->step, step, sizeof *step);
}

bool gpu_trim(Gpu *g, const Staging *but)
{
    bool any = false;
    for (int i = 0; i < STAGINGS; i++) {
        Staging *s = &g->staging[i];
        if (s == but || s->since || !s->device) continue;
        release(s);
        any = true;
    }
    return any;
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
