/* emu_streams.h -- tests of streams, events, captures and injected failures.
 * Part of emu_test.cu. */
#ifndef EMU_STREAMS_TEST_H
#define EMU_STREAMS_TEST_H

static __global__ void k_append(int *log, int value)
{
    log[1 + log[0]] = value;
    log[0]++;
}

/* A log on the device that kernels append to: the order in which they ran. */
struct Log {
    Buffer<int> cells;
    Log() : cells(std::vector<int>(32, 0))
    {
    }
    void add(cudaStream_t s, int value)
    {
        LAUNCH(k_append, 1, 1, 0, s, cells.p, value);
        OK(cudaGetLastError());
    }
    /* Returns the log as digits, 123; does not wait for non-blocking streams */
    long long read() const
    {
        const std::vector<int> v = cells.get();
        long long text = 0;
        for (int i = 0; i < v[0]; i++) text = text * 10 + v[(size_t)i + 1];
        return text;
    }
};

static cudaStream_t new_stream(unsigned flags)
{
    cudaStream_t s;
    OK(cudaStreamCreateWithFlags(&s, flags));
    return s;
}
static cudaEvent_t new_event(void)
{
    cudaEvent_t e;
    OK(cudaEventCreate(&e));
    return e;
}

static void test_late(void)
{
    cudaStream_t a = new_stream(cudaStreamNonBlocking);
    cudaStream_t b = new_stream(cudaStreamNonBlocking);
    cudaStream_t c = new_stream(cudaStreamDefault);
    cudaEvent_t e = new_event(), f = new_event();
    float ms;
    {
        Log log; /* work runs only when the host waits for it */
        emu_reset_counts();
        log.add(a, 1);
        EXPECT(emu_launch_count(NULL) == 0);
        EXPECT(cudaStreamQuery(a) == cudaErrorNotReady); /* runs one more */
        EXPECT(cudaStreamQuery(a) == cudaSuccess);
        EXPECT(cudaGetLastError() == cudaErrorNotReady); /* is the last error */
        EXPECT(log.read() == 1);
    }
    {
        Log log; /* the newest first, unless an event is between */
        log.add(a, 1);
        log.add(b, 2);
        OK(cudaDeviceSynchronize());
        EXPECT(log.read() == 21);
        log.add(a, 3);
        OK(cudaEventRecord(e, a));
        OK(cudaStreamWaitEvent(b, e, 0));
        log.add(b, 4);
        OK(cudaDeviceSynchronize());
        EXPECT(log.read() == 2134);
        /* a later record does not move the wait */
        OK(cudaEventRecord(e, a));
        OK(cudaStreamWaitEvent(b, e, 0));
        log.add(a, 5);
        OK(cudaEventRecord(e, a));
        log.add(b, 6);
        OK(cudaStreamSynchronize(b));
        EXPECT(log.read() == 21346);
        OK(cudaEventSynchronize(e));
        EXPECT(log.read() == 213465);
    }
    {
        Log log; /* blocking streams and the legacy one wait for each other */
        log.add(c, 1);
        log.add(0, 2);
        log.add(c, 3);
        log.add(a, 4);
        OK(cudaStreamSynchronize(c));
        EXPECT(log.read() == 123);
        OK(cudaStreamSynchronize(a));
        EXPECT(log.read() == 1234);
    }
    OK(cudaEventRecord(e, a));
    EXPECT(cudaEventQuery(e) == cudaErrorNotReady);
    EXPECT(cudaEventElapsedTime(&ms, e, f) == cudaErrorInvalidResourceHandle);
    OK(cudaEventRecord(f, a));
    EXPECT(cudaEventElapsedTime(&ms, e, f) == cudaErrorNotReady);
    OK(cudaStreamSynchronize(a));
    OK(cudaEventElapsedTime(&ms, e, f));
    EXPECT(ms >= 0 && ms < 1000);
    OK(cudaEventDestroy(e));
    EXPECT(cudaEventRecord(e, a) == cudaErrorInvalidResourceHandle);
    OK(cudaEventDestroy(f));
    const size_t live = emu_live_handles();
    for (cudaStream_t s : {a, b, c}) OK(cudaStreamDestroy(s));
    EXPECT(emu_live_handles() == live - 3);
    EXPECT(cudaStreamSynchronize(a) == cudaErrorInvalidResourceHandle);
    (void)cudaGetLastError();
}

static void test_modes(void)
{
    cudaStream_t a = new_stream(cudaStreamNonBlocking);
    cudaStream_t b = new_stream(cudaStreamNonBlocking);
    int seen[10] = {0};
    for (int i = 0; i < 20; i++) { /* all orders of 1, 2 | 3 that are allowed */
        char mode[16];
        snprintf(mode, sizeof mode, "r%d", i);
        emu_set_streams(mode);
        Log log;
        log.add(a, 1);
        log.add(a, 2);
        log.add(b, 3);
        OK(cudaDeviceSynchronize());
        const int order = (int)log.read();
        EXPECT(order == 123 || order == 132 || order == 312);
        seen[order / 100] |= order % 100 == 32 ? 2 : 1;
    }
    EXPECT(seen[1] == 3 && seen[3] == 1);
    {
        emu_set_streams("early");
        Log log;
        log.add(a, 1);
        log.add(b, 2);
        EXPECT(log.read() == 12);
        emu_set_streams("ahead");
        log.add(a, 3);
        log.add(b, 4);
        OK(cudaStreamSynchronize(a));
        EXPECT(log.read() == 1243);
        emu_set_streams("late");
    }
    OK(cudaStreamDestroy(a));
    OK(cudaStreamDestroy(b));
}

static void add_one(void *p)
{
    ++*static_cast<int *>(p);
}

static void test_copies(void)
{
    cudaStream_t a = new_stream(cudaStreamNonBlocking);
    Buffer<int> x(std::vector<int>(4, 0));
    int *pinned, pageable[4] = {1, 1, 1, 1}, called = 0;
    OK(cudaMallocHost(&pinned, 16));
    for (int i = 0; i < 4; i++) pinned[i] = 1;
    /* pageable memory is read at the call, pinned memory when the copy runs */
    OK(cudaMemcpyAsync(x.p, pageable, 8, cudaMemcpyHostToDevice, a));
    OK(cudaMemcpyAsync(x.p + 2, pinned, 8, cudaMemcpyHostToDevice, a));
    pageable[0] = pinned[0] = 2;
    OK(cudaStreamSynchronize(a));
    EXPECT(x.get() == std::vector<int>({1, 1, 2, 1}));
    /* a copy into pageable memory ends at once, into pinned when it runs */
    OK(cudaMemsetAsync(x.p, 0, 16, a));
    OK(cudaMemcpyAsync(pinned, x.p, 16, cudaMemcpyDeviceToHost, a));
    EXPECT(pinned[0] == 2);
    OK(cudaMemcpyAsync(pageable, x.p, 16, cudaMemcpyDefault, a));
    EXPECT(pageable[0] == 0 && pinned[0] == 0);
    OK(cudaLaunchHostFunc(a, add_one, &called));
    EXPECT(called == 0);
    OK(cudaStreamDestroy(a)); /* runs the queued work */
    EXPECT(called == 1);
    cudaPointerAttributes attributes;
    OK(cudaPointerGetAttributes(&attributes, pinned));
    EXPECT(attributes.type == cudaMemoryTypeHost);
    OK(cudaFreeHost(pinned));
    OK(cudaHostRegister(pageable, sizeof pageable, 0));
    EXPECT(cudaHostRegister(pageable, 4, 0) ==
           cudaErrorHostMemoryAlreadyRegistered);
    OK(cudaHostUnregister(pageable));
    (void)cudaGetLastError();
}

static void test_streams(void)
{
    emu_set_streams("late");
    test_late();
    test_modes();
    test_copies();
}

/* -- captures -------------------------------------------------------------- */
static void begin_capture(cudaStream_t s)
{
    OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
}
static cudaError_t end_capture(cudaStream_t s)
{
    cudaGraph_t g;
    const cudaError_t e = cudaStreamEndCapture(s, &g);
    EXPECT((g != NULL) == (e == cudaSuccess));
    if (g) OK(cudaGraphDestroy(g));
    return e;
}

static void test_replay(void)
{
    cudaStream_t a = new_stream(cudaStreamNonBlocking);
    cudaStream_t b = new_stream(cudaStreamNonBlocking);
    cudaEvent_t fork = new_event(), join = new_event();
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaGraphNode_t nodes[8];
    size_t n = 0;
    int *pinned;
    Buffer<int> x(std::vector<int>(1, 0));
    OK(cudaMallocHost(&pinned, sizeof(int)));
    {
        Log log;
        emu_reset_counts();
        begin_capture(a);
        int value = 1;
        log.add(a, value);
        value = 9; /* arguments were copied at the call */
        OK(cudaEventRecord(fork, a));
        OK(cudaStreamWaitEvent(b, fork, 0));
        OK(cudaMemcpyAsync(x.p, pinned, 4, cudaMemcpyHostToDevice, b));
        log.add(a, 2);
        OK(cudaMemsetAsync(x.p, 0, 1, b));
        OK(cudaEventRecord(join, b));
        OK(cudaStreamWaitEvent(a, join, 0));
        log.add(a, 3);
        cudaStreamCaptureStatus status;
        OK(cudaStreamIsCapturing(b, &status));
        EXPECT(status == cudaStreamCaptureStatusActive);
        OK(cudaStreamEndCapture(a, &graph));
        OK(cudaStreamIsCapturing(b, &status));
        EXPECT(status == cudaStreamCaptureStatusNone);
        EXPECT(log.read() == 0); /* a capture runs nothing */

        OK(cudaGraphGetNodes(graph, NULL, &n));
        EXPECT(n == 5);
        n = 8;
        OK(cudaGraphGetNodes(graph, nodes, &n));
        int kinds[4] = {0};
        for (size_t i = 0; i < n; i++) {
            cudaGraphNodeType type;
            OK(cudaGraphNodeGetType(nodes[i], &type));
            kinds[type]++;
        }
        EXPECT(n == 5 && kinds[cudaGraphNodeTypeKernel] == 3 &&
               kinds[cudaGraphNodeTypeMemcpy] == 1 &&
               kinds[cudaGraphNodeTypeMemset] == 1);
        OK(cudaGraphInstantiate(&exec, graph, 0));
        OK(cudaGraphDestroy(graph)); /* exec stays valid */
        for (int i = 0; i < 2; i++) {
            *pinned = 256 * (i + 1); /* read at each replay */
            OK(cudaGraphLaunch(exec, a));
            OK(cudaStreamSynchronize(a));
            EXPECT(x.get()[0] == 256 * (i + 1));
        }
        EXPECT(log.read() == 123123);
        EXPECT(emu_launch_count("append") == 6);
        OK(cudaGraphLaunch(exec, a));
        OK(cudaGraphLaunch(exec, b)); /* waits for the launch before */
        OK(cudaGraphExecDestroy(exec));
        OK(cudaDeviceSynchronize());
        EXPECT(log.read() % 1000 == 123 && emu_launch_count(NULL) == 12);
        EXPECT(cudaGraphLaunch(exec, a) == cudaErrorInvalidValue);
        (void)cudaGetLastError();
    }
    OK(cudaFreeHost(pinned));
    for (cudaEvent_t e : {fork, join}) OK(cudaEventDestroy(e));
    for (cudaStream_t s : {a, b}) OK(cudaStreamDestroy(s));
}

/* A call that CUDA forbids during a capture fails as in CUDA and invalidates
 * the capture. */
static void test_forbidden(void)
{
    cudaStream_t a = new_stream(cudaStreamNonBlocking);
    cudaStream_t b = new_stream(cudaStreamDefault);
    cudaStream_t c = new_stream(cudaStreamNonBlocking);
    cudaEvent_t outside = new_event(), inside = new_event();
    Buffer<int> x(std::vector<int>(4, 0));
    int host[4] = {0};
    float *p = NULL;
    void *h = NULL;
    OK(cudaEventRecord(outside, c));
    const cudaError_t unsupported = cudaErrorStreamCaptureUnsupported;
    const cudaError_t implicit = cudaErrorStreamCaptureImplicit;
    const cudaError_t spoilt = cudaErrorStreamCaptureInvalidated;
#define FORBIDDEN(stream, call, error)         \
    do {                                       \
        begin_capture(stream);                 \
        EXPECT((call) == (error));             \
        EXPECT(end_capture(stream) == spoilt); \
        (void)cudaGetLastError();              \
    } while (0)
    FORBIDDEN(a, cudaMalloc(&p, 4), unsupported);
    FORBIDDEN(a, cudaFree(x.p), unsupported);
    FORBIDDEN(a, cudaMallocHost(&h, 4), unsupported);
    FORBIDDEN(a, cudaDeviceSynchronize(), unsupported);
    FORBIDDEN(a, cudaStreamSynchronize(a), unsupported);
    FORBIDDEN(a, cudaStreamQuery(a), unsupported);
    FORBIDDEN(a, cudaEventQuery(outside), unsupported);
    FORBIDDEN(a, cudaEventSynchronize(outside), unsupported);
    FORBIDDEN(a, cudaMemcpy(x.p, host, 4, cudaMemcpyDefault), unsupported);
    FORBIDDEN(b, cudaMemcpy(x.p, host, 4, cudaMemcpyDefault), implicit);
    FORBIDDEN(b, cudaMemset(x.p, 0, 4), implicit);
    FORBIDDEN(b, cudaStreamSynchronize(0), implicit);
    FORBIDDEN(a, cudaStreamWaitEvent(a, outside, 0),
              cudaErrorStreamCaptureIsolation);
    FORBIDDEN(a, cudaMemcpyAsync(x.p, host, 4, cudaMemcpyDefault, a),
              unsupported); /* pageable memory */
#undef FORBIDDEN
    begin_capture(b);
    LAUNCH(k_append, 1, 1, 0, 0, x.p, 1); /* on the legacy stream */
    EXPECT(cudaGetLastError() == implicit);
    LAUNCH(k_append, 1, 1, 0, b, x.p, 1);
    EXPECT(cudaGetLastError() == spoilt);
    EXPECT(end_capture(b) == spoilt);

    begin_capture(a); /* an event of the capture is no event of the host */
    OK(cudaEventRecord(inside, a));
    OK(cudaStreamSynchronize(c)); /* other streams may be waited for */
    EXPECT(end_capture(a) == cudaSuccess);
    EXPECT(cudaEventQuery(inside) == cudaErrorCapturedEvent);
    EXPECT(cudaStreamWaitEvent(c, inside, 0) == cudaErrorCapturedEvent);

    begin_capture(a); /* ended in the wrong stream */
    OK(cudaEventRecord(inside, a));
    OK(cudaStreamWaitEvent(c, inside, 0));
    EXPECT(end_capture(c) == cudaErrorStreamCaptureUnmatched);
    EXPECT(end_capture(a) == cudaErrorInvalidValue);
    EXPECT(cudaStreamBeginCapture(0, cudaStreamCaptureModeGlobal) ==
           unsupported);
    begin_capture(a); /* two captures cannot become one */
    begin_capture(c);
    OK(cudaEventRecord(inside, a));
    EXPECT(cudaStreamWaitEvent(c, inside, 0) == cudaErrorStreamCaptureMerge);
    EXPECT(end_capture(a) == spoilt && end_capture(c) == spoilt);
    OK(cudaStreamBeginCapture(a, cudaStreamCaptureModeRelaxed));
    OK(cudaMalloc(&p, 4)); /* relaxed mode allows it */
    EXPECT(end_capture(a) == cudaSuccess);
    OK(cudaFree(p));
    (void)cudaGetLastError();
    for (cudaEvent_t e : {outside, inside}) OK(cudaEventDestroy(e));
    for (cudaStream_t s : {a, b, c}) OK(cudaStreamDestroy(s));
}

static void test_captures(void)
{
    for (const char *mode : {"late", "early", "ahead", "r3"}) {
        emu_set_streams(mode);
        test_replay();
    }
    emu_set_streams("late");
    test_forbidden();
}

/* -- calls that fail ------------------------------------------------------- */
/* A small program that checks each call and ends at the first error; it frees
 * its memory and handles. Returns the error, and in *stage the number of its
 * last call. */
static cudaError_t small_program(int *stage)
{
    float *p = NULL;
    void *h = NULL;
    cudaStream_t s = NULL;
    cudaEvent_t e = NULL;
    cudaGraph_t g = NULL;
    cudaGraphExec_t x = NULL;
    cudaError_t error = cudaSuccess;
    *stage = 0;
#define STEP(call)                  \
    do {                            \
        ++*stage;                   \
        if (!error) error = (call); \
        if (error) goto done;       \
    } while (0)
    STEP(cudaMalloc(&p, 64));
    STEP(cudaMallocHost(&h, 64));
    STEP(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    STEP(cudaEventCreate(&e));
    STEP(cudaMemset(p, 0, 64));
    STEP(cudaMemcpyAsync(p, h, 64, cudaMemcpyHostToDevice, s));
    LAUNCH(k_nothing, 1, 32, 0, s, 1);
    STEP(cudaGetLastError());
    STEP(cudaEventRecord(e, s));
    STEP(cudaStreamWaitEvent(s, e, 0));
    STEP(cudaStreamSynchronize(s));
    STEP(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
    LAUNCH(k_nothing, 1, 32, 0, s, 1);
    STEP(cudaGetLastError());
    STEP(cudaStreamEndCapture(s, &g));
    STEP(cudaGraphInstantiate(&x, g, 0));
    STEP(cudaGraphLaunch(x, s));
    STEP(cudaEventSynchronize(e));
    STEP(cudaMemcpy(h, p, 64, cudaMemcpyDeviceToHost));
    STEP(cudaDeviceSynchronize());
#undef STEP
done:
    emu_fail_at(0, 0, 0);
    if (s) cudaStreamDestroy(s);
    if (x) cudaGraphExecDestroy(x);
    if (g) cudaGraphDestroy(g);
    if (e) cudaEventDestroy(e);
    cudaFreeHost(h);
    cudaFree(p);
    (void)cudaGetLastError();
    return error;
}

static void test_failures(void)
{
    int stage, stages;
    const size_t handles = emu_live_handles();
    emu_fail_at(0, 0, 0);
    EXPECT(small_program(&stages) == cudaSuccess);
    for (int k = 1; k <= stages; k++) {
        emu_fail_at(k, cudaErrorLaunchFailure, 0);
        EXPECT(small_program(&stage) == cudaErrorLaunchFailure);
        EXPECT(stage == k); /* each call counts once */
    }
    emu_fail_at(stages + 1, cudaErrorLaunchFailure, 0);
    EXPECT(small_program(&stage) == cudaSuccess);
    EXPECT(emu_live_blocks() == 0 && emu_live_handles() == handles);

    /* the first launch from call 5 on faults; the launch returns success */
    emu_fail_at(5, cudaErrorIllegalAddress, 1);
    EXPECT(small_program(&stage) == cudaErrorIllegalAddress);
    EXPECT(stage == 8); /* the event after the launch */

    emu_fail_at(1, cudaErrorIllegalAddress, 1);
    float *p = NULL;
    OK(cudaMalloc(&p, 4));
    emu_reset_counts();
    LAUNCH(k_nothing, 1, 1, 0, 0, 1);
    EXPECT(cudaGetLastError() == cudaSuccess);
    EXPECT(cudaDeviceSynchronize() == cudaErrorIllegalAddress);
    EXPECT(cudaMalloc(&p, 4) == cudaErrorIllegalAddress);
    EXPECT(cudaFree(p) == cudaErrorIllegalAddress);
    LAUNCH(k_nothing, 1, 1, 0, 0, 1);
    EXPECT(cudaGetLastError() == cudaErrorIllegalAddress);
    EXPECT(emu_launch_count(NULL) == 0);
    OK(cudaDeviceReset());
    EXPECT(emu_live_blocks() == 0);
    OK(cudaMalloc(&p, 4));
    OK(cudaFree(p));
    emu_fail_at(3, cudaErrorMemoryAllocation, 0);
    OK(cudaMalloc(&p, 4));
    OK(cudaFree(p)); /* a free does not count */
    EXPECT(emu_fail_count() == 1);
    emu_fail_at(0, 0, 0);
}
#endif
