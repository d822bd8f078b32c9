/* bad_host.h -- planted faults in host code: streams, copies, captures.
 *
 * Included by bad.cu only. A real GPU shows these faults now and then, or never
 * on the machine at hand. */
#ifndef EMU_BAD_HOST_H
#define EMU_BAD_HOST_H
#include "tests/cuda/emulator/emu_control.h"

static __global__ void k_add(float *x, float by)
{
    x[threadIdx.x] += by;
}
static __global__ void k_double(const float *in, float *out)
{
    out[threadIdx.x] = 2 * in[threadIdx.x];
}

/* Two streams, pinned memory on the host and two buffers of 32 floats. */
struct Pair {
    cudaStream_t copy, work;
    cudaEvent_t event;
    float *host;
    Buffer<float> a, b;
    Pair() : a(std::vector<float>(32, 0.0f)), b(std::vector<float>(32, 0.0f))
    {
        OK(cudaStreamCreateWithFlags(&copy, cudaStreamNonBlocking));
        OK(cudaStreamCreateWithFlags(&work, cudaStreamNonBlocking));
        OK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
        OK(cudaMallocHost(&host, 32 * sizeof(float)));
        fill(5.0f);
    }
    void fill(float value)
    {
        for (int i = 0; i < 32; i++) host[i] = value;
    }
    void upload()
    {
        OK(cudaMemcpyAsync(a.p, host, 32 * sizeof(float),
                           cudaMemcpyHostToDevice, copy));
    }
    /* `later` waits for all work queued on `first` so far */
    void follow(cudaStream_t first, cudaStream_t later)
    {
        OK(cudaEventRecord(event, first));
        OK(cudaStreamWaitEvent(later, event, 0));
    }
};

static bool no_event_wait(bool broken)
{
    Pair p;
    p.upload();
    if (!broken) p.follow(p.copy, p.work);
    LAUNCH(k_double, 1, 32, 0, p.work, p.a.p, p.b.p);
    OK(cudaStreamSynchronize(p.work));
    return p.b.get()[3] == 10.0f;
}

/* The upload for the next step must wait until this step has read the buffer.
 */
static bool overwritten(bool broken)
{
    Pair p;
    p.upload();
    p.follow(p.copy, p.work);
    LAUNCH(k_double, 1, 32, 0, p.work, p.a.p, p.b.p);
    if (!broken) p.follow(p.work, p.copy);
    OK(cudaMemsetAsync(p.a.p, 0, 32 * sizeof(float), p.copy));
    OK(cudaStreamSynchronize(p.work));
    return p.b.get()[3] == 10.0f;
}

static bool pinned_reused(bool broken)
{
    Pair p;
    p.upload();
    if (!broken) OK(cudaStreamSynchronize(p.copy));
    p.fill(6.0f);
    OK(cudaStreamSynchronize(p.copy));
    return p.a.get()[3] == 5.0f;
}

static bool read_too_soon(bool broken)
{
    Pair p;
    OK(cudaMemcpyAsync(p.host, p.a.p, 32 * sizeof(float),
                       cudaMemcpyDeviceToHost, p.copy));
    if (!broken) OK(cudaStreamSynchronize(p.copy));
    const bool right = p.host[3] == 0.0f;
    OK(cudaDeviceSynchronize());
    return right;
}

static bool pinned_freed(bool broken)
{
    Pair p;
    p.upload();
    if (!broken) OK(cudaStreamSynchronize(p.copy));
    OK(cudaFreeHost(p.host));
    return true;
}

/* A capture in which `work` joins and two nodes depend on each other. */
static bool captured_edge(bool broken)
{
    Pair p;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaEvent_t back;
    OK(cudaEventCreate(&back));
    OK(cudaStreamBeginCapture(p.copy, cudaStreamCaptureModeGlobal));
    if (broken) p.follow(p.copy, p.work);
    p.upload();
    if (!broken) p.follow(p.copy, p.work);
    LAUNCH(k_double, 1, 32, 0, p.work, p.a.p, p.b.p);
    OK(cudaEventRecord(back, p.work));
    OK(cudaStreamWaitEvent(p.copy, back, 0));
    OK(cudaStreamEndCapture(p.copy, &graph));
    OK(cudaGraphInstantiate(&exec, graph, 0));
    OK(cudaGraphLaunch(exec, p.work));
    OK(cudaStreamSynchronize(p.work));
    return p.b.get()[3] == 10.0f;
}

static bool captured_malloc(bool broken)
{
    Pair p;
    cudaGraph_t graph;
    float *more;
    OK(cudaStreamBeginCapture(p.copy, cudaStreamCaptureModeGlobal));
    if (broken) need(cudaMalloc(&more, 64));
    p.upload();
    OK(cudaStreamEndCapture(p.copy, &graph));
    return true;
}

static bool captured_wait(bool broken)
{
    Pair p;
    cudaGraph_t graph;
    OK(cudaStreamBeginCapture(p.copy, cudaStreamCaptureModeGlobal));
    p.upload();
    if (broken) (void)cudaStreamSynchronize(p.copy);
    need(cudaStreamEndCapture(p.copy, &graph));
    return true;
}

static bool unjoined(bool broken)
{
    Pair p;
    cudaGraph_t graph;
    OK(cudaStreamBeginCapture(p.copy, cudaStreamCaptureModeGlobal));
    p.follow(p.copy, p.work);
    LAUNCH(k_add, 1, 32, 0, p.work, p.a.p, 1.0f);
    if (!broken) p.follow(p.work, p.copy);
    need(cudaStreamEndCapture(p.copy, &graph));
    return true;
}

static bool device_pointer(bool broken)
{
    Buffer<float> x(std::vector<float>(32, 4.0f));
    const std::vector<float> y = x.get();
    const volatile float *p = broken ? x.p : y.data();
    return p[3] == 4.0f;
}

static bool freed_twice(bool broken)
{
    float *p;
    OK(cudaMalloc(&p, 100));
    OK(cudaFree(p));
    if (broken) OK(cudaFree(p));
    return true;
}

static bool copy_too_much(bool broken)
{
    Buffer<float> x(100);
    const std::vector<float> y(120, 1.0f);
    OK(cudaMemcpy(x.p, y.data(), (broken ? 120 : 100) * sizeof(float),
                  cudaMemcpyHostToDevice));
    return x.get()[99] == 1.0f;
}

static bool copy_too_little(bool broken)
{
    Buffer<float> x(128);
    const std::vector<float> y(broken ? 100 : 128, 1.0f);
    OK(cudaMemcpy(x.p, y.data(), 128 * sizeof(float), cudaMemcpyHostToDevice));
    return x.get()[99] == 1.0f;
}

static bool host_past(bool broken)
{
    Buffer<float> x(std::vector<float>(32, 4.0f));
    const std::vector<float> y = x.get();
    const volatile float *p = y.data();
    float v = 0;
    for (int i = 0; i < (broken ? 33 : 32); i++) v = p[i];
    return broken || v == 4.0f;
}

static bool invalid_grid(bool broken)
{
    Buffer<float> x(std::vector<float>(32, 4.0f));
    LAUNCH(k_add, dim3(1, broken ? 65536 : 1), 32, 0, 0, x.p, 0.0f);
    need(cudaGetLastError());
    OK(cudaDeviceSynchronize());
    return x.get()[3] == 4.0f;
}

static bool invalid_block(bool broken)
{
    Buffer<float> x(std::vector<float>(1056, 4.0f));
    LAUNCH(k_add, 1, broken ? 1056 : 1024, 0, 0, x.p, 0.0f);
    need(cudaGetLastError());
    OK(cudaDeviceSynchronize());
    return x.get()[3] == 4.0f;
}

static bool no_attribute(bool broken)
{
    Buffer<float> x(std::vector<float>(32, 4.0f));
    LAUNCH(k_add, 1, 32, broken ? 48 * 1024 + 16 : 48 * 1024, 0, x.p, 0.0f);
    need(cudaGetLastError());
    OK(cudaDeviceSynchronize());
    return x.get()[3] == 4.0f;
}

/* ranges of an arena: closed, and forgotten (emu_close, emu_forget) */
static bool closed_part(bool broken)
{
    Buffer<float> x(std::vector<float>(128, 4.0f)), out(32);
    emu_close(x.p + (broken ? 16 : 64), 64 * sizeof(float));
    LAUNCH(k_double, 1, 32, 0, 0, x.p, out.p);
    OK_LAUNCH();
    emu_open(x.p, 128 * sizeof(float));
    return out.get()[31] == 8.0f;
}
static bool forgotten_part(bool broken)
{
    Buffer<float> x(std::vector<float>(128, 4.0f)), out(32);
    emu_forget(x.p + (broken ? 16 : 64), 64 * sizeof(float));
    LAUNCH(k_double, 1, 32, 0, 0, x.p, out.p);
    OK_LAUNCH();
    return out.get()[31] == 8.0f;
}

static const Case host_cases[] = {
    {40, "missing event wait between streams", no_event_wait},
    {41, "buffer overwritten by another stream", overwritten},
    {42, "pinned buffer reused too early", pinned_reused},
    {43, "result read before it was there", read_too_soon},
    {44, "pinned buffer freed too early", pinned_freed},
    {45, "missing edge in a graph", captured_edge},
    {46, "cudaMalloc in a capture", captured_malloc},
    {47, "synchronisation in a capture", captured_wait},
    {48, "a stream that does not join again", unjoined},
    {49, "device pointer on the host", device_pointer},
    {50, "freed twice", freed_twice},
    {51, "copy past the end", copy_too_much},
    {52, "invalid grid", invalid_grid},
    {53, "invalid block", invalid_block},
    {54, "more than 48 KB without the attribute", no_attribute},
    {55, "a closed part of an arena", closed_part},
    {56, "a forgotten part of an arena", forgotten_part},
    {67, "copy from a host buffer that is too small", copy_too_little},
    {68, "host code reads past its heap block", host_past},
};
#endif
