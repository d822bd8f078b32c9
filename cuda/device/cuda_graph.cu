/* cuda_graph.cu -- CUDA graphs of training steps, and times.
 *
 * A training step is some hundreds of launches, and a launch costs the host
 * about as much time as a small kernel takes. Captured as one CUDA graph, the
 * step is one launch. All values that change from step to step (learning rate,
 * count, loss scale, inputs) are therefore in device memory.
 *
 * Times are differences of CUDA events between calls that are launched one by
 * one. A call of several kernels is one interval; an interval shorter than its
 * launches measures the host's launch time. */
#include "cuda/device/device.cuh"

bool gpu_capture(void *dev)
{
    Gpu *g = (Gpu *)dev;
    return gpu_good(
        cudaStreamBeginCapture(g->stream, cudaStreamCaptureModeThreadLocal),
        "capturing a step");
}

/* Tries again without the staging buffers of finished copies if memory is
 * short. */
static cudaError_t instantiate(Gpu *g, cudaGraph_t graph, cudaGraphExec_t *exec)
{
    cudaError_t e = cudaGraphInstantiate(exec, graph, 0);
    if (e != cudaErrorMemoryAllocation || !gpu_trim(g, NULL)) return e;
    (void)cudaGetLastError();
    return cudaGraphInstantiate(exec, graph, 0);
}

// the graph is not needed once it is instantiated
bool gpu_instantiate(void *dev, void **out)
{
    Gpu *g = (Gpu *)dev;
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    bool ok =
        gpu_good(cudaStreamEndCapture(g->stream, &graph), "capturing a step") &&
        (!out || gpu_good(instantiate(g, graph, &exec),
                          "instantiating the graph of a step"));
    if (graph) (void)cudaGraphDestroy(graph);
    if (out) *out = ok ? exec : NULL;
    return ok;
}

bool gpu_launch_graph(void *dev, void *graph)
{
    return gpu_good(
        cudaGraphLaunch((cudaGraphExec_t)graph, ((Gpu *)dev)->stream),
        "launching a step");
}

// CUDA frees a graph that still runs when it is done
void gpu_destroy_graph(void *dev, void *graph)
{
    (void)dev;
    if (graph) (void)cudaGraphExecDestroy((cudaGraphExec_t)graph);
    (void)cudaGetLastError();
}

bool gpu_mark(void *dev, int i)
{
    Gpu *g = (Gpu *)dev;
    CHECK(i <= g->marks);

    if (i == g->marks) {
        // grows by one, which is rare: a plan has as many calls each time
        size_t bytes = ((size_t)i + 1) * sizeof *g->mark;
        cudaEvent_t *more = (cudaEvent_t *)mem_realloc(g->mark, bytes);
        if (!more) return false;
        g->mark = more;
        if (!gpu_good(cudaEventCreate(&g->mark[i]), "an event")) return false;
        g->marks++;
    }
    return gpu_good(cudaEventRecord(g->mark[i], g->stream), "recording a time");
}

bool gpu_elapsed(void *dev, int i, double *ms)
{
    Gpu *g = (Gpu *)dev;
    float time = 0;
    bool ok = gpu_good(cudaEventElapsedTime(&time, g->mark[i], g->mark[i + 1]),
                       "recording a time");
    *ms = (double)time;
    return ok;
}

void gpu_drop_marks(Gpu *g)
{
    for (int i = 0; i < g->marks; i++) (void)cudaEventDestroy(g->mark[i]);
    mem_free(g->mark);
}
